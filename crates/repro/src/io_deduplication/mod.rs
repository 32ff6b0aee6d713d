//! I/O Deduplication (Koller and Rangaswami, FAST 2010) in place: blocks lie where their addresses say, and equal content saves reads.
//!
//! Three techniques, each of which can be left out: a cache by content, the choice of the copy that is nearest to the head, and copies of
//! popular blocks in scratch zones across the disk. [`workload`] makes the traces, [`cache`] is the cache, [`hits`] counts what it finds, [`replay`] gives a trace to a disk,
//! [`copies`] measures one disk with many copies of each block, and [`look`] says what a trace has.
//! [`image`] is the disk before a trace, [`dispatch`] a scheduler that knows copies. Called by `figures/iodedup`; docs/io-deduplication.md says
//! what came out.
//!
//! What must hold: all is a function of shape and set-up alone. A read gets the content that its address holds, from wherever it comes: places are known by
//! the layer through which every write goes.

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

/// Returns the blocks of 4 KiB that a cache by content holds in `bytes` bytes: its tables are paid from them, so that it can be compared
/// with one by sector.
pub fn content_blocks(bytes: u64) -> u64 {
    let blocks = bytes / crate::traces::BLOCK;
    let tables = metadata_bytes(blocks, PLACES_EACH, BUCKETS_EACH * blocks);
    bytes.saturating_sub(tables) / crate::traces::BLOCK
}
