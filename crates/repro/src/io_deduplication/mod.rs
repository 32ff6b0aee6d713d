//! Simulation of I/O Deduplication (Koller and Rangaswami, FAST 2010) in place: blocks stay at their addresses, and equal content saves reads.
//!
//! It has three techniques, each of which can be disabled: a cache by content, the choice of the copy nearest to the head, and copies of popular blocks in
//! scratch zones across the disk. [`workload`] makes the traces, [`cache`] is the cache, [`hits`] counts its hits, [`replay`] gives a trace to a disk.
//! [`copies`] measures one disk with many copies of each block, and [`look`] has the statistics of a trace. [`image`] is the disk before a trace, [`dispatch`]
//! a scheduler that knows copies. `figures/iodedup` calls it; docs/papers/io-deduplication.md has the results.
//!
//! Invariants: all is a function of shape and setup alone. A read returns the content of its address, whichever place it is read from: every write passes
//! through the layer that tracks places.

pub mod cache;
pub mod copies;
pub mod dispatch;
pub mod hits;
pub mod image;
pub mod look;
pub mod places;
pub mod replay;
#[cfg(test)]
mod tests;
pub mod workload;
pub mod zones;

/// Returns the bytes of the metadata for `pages` pages in the cache, with `similarity` places of each content on average and `buckets`
/// buckets (slides, "Overhead").
pub fn metadata_bytes(pages: u64, similarity: u64, buckets: u64) -> u64 {
    13 * pages + 36 * pages * similarity + 8 * buckets
}

/// Places of each content that the tables have space for: the slides' example.
pub const PLACES_EACH: u64 = 4;
/// Buckets for each page: a million for 1 GiB, as the slides have it.
const BUCKETS_EACH: u64 = 4;

/// Returns the blocks of 4 KiB that a cache by content holds in `bytes` bytes. Its tables are part of these bytes, so it can be compared with one by sector.
pub fn content_blocks(bytes: u64) -> u64 {
    let blocks = bytes / crate::traces::BLOCK;
    let tables = metadata_bytes(blocks, PLACES_EACH, BUCKETS_EACH * blocks);
    bytes.saturating_sub(tables) / crate::traces::BLOCK
}
