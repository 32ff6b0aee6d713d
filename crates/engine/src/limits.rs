//! One number of memory, divided among the engine's structures.

use crate::geometry::Geometry;

/// How much memory the engine may use, by structure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Payload buffers of one block.
    pub buffers: u32,
    /// Of these, how many may hold payload that is being received or not yet in its slot ([`crate::Engine::take_buffer`]).
    pub write_buffers: u32,
    /// Metadata pages.
    pub pages: u32,
    /// Entries of the index.
    pub index_entries: u32,
    /// Bits of tag in an index entry (0: as many as fit).
    pub index_tag_bits: u32,
    /// Bits of the digest that sharing looks at (0: all 128). Fewer prove nothing: blocks are compared byte by byte before one
    /// is shared. Landing proof, checks on reads and summaries keep all bits.
    pub sharing_digest_bits: u32,
    /// Mappings held in the delta.
    pub delta_entries: u32,
    /// Pages of cut-off subtrees that one checkpoint walks.
    pub discard_pages: u32,
    /// Cut-off subtrees that are kept to be walked, before discards have to wait. At least what one discard can cut off.
    pub discards: u32,
    /// Requests in flight.
    pub requests: u32,
}

/// Bytes that a mapping of the delta can take, in both deltas and in what a checkpoint makes of them.
const DELTA_ENTRY_BYTES: u64 = 256;
/// Bytes of the read cache's and buffers' tables per buffer.
const BUFFER_TABLE_BYTES: u64 = 112;
/// What the tables of I/Os and the like take.
const FIXED_BYTES: u64 = 4 << 20;
/// Bytes that a request can take for each of its blocks.
const REQUEST_BLOCK_BYTES: u64 = 136;
/// Requests in flight, and where there is little memory.
const MANY_REQUESTS: u64 = 1024;
const FEW_REQUESTS: u64 = 128;
const MIB: u64 = 1 << 20;

impl Limits {
    /// Divides `memory` bytes for a pool; fails with what would do if that is too little.
    ///
    /// Tables that are held in memory whole come first (six bytes a container, one bit a metadata block: 2.5 MiB for a TiB); of
    /// the rest half goes to payload buffers, a quarter to the index, an eighth each to metadata pages and the delta.
    pub fn for_memory(memory: u64, geometry: &Geometry) -> Result<Limits, u64> {
        let tables = u64::from(geometry.containers) * 6 + u64::from(geometry.metadata_blocks) / 8 + FIXED_BYTES;
        let request_bytes = |requests| requests * (u64::from(geometry.piece_blocks) + 1) * REQUEST_BLOCK_BYTES;
        let least = tables + request_bytes(FEW_REQUESTS) + 28 * MIB;
        if memory < least {
            return Err(least.next_multiple_of(MIB));
        }
        let many = request_bytes(MANY_REQUESTS) <= (memory - tables) / 8;
        let requests = if many { MANY_REQUESTS } else { FEW_REQUESTS };
        let rest = memory - tables - request_bytes(requests);
        let block = geometry.block();
        let buffers = (rest / 2 / (block + BUFFER_TABLE_BYTES)) as u32;
        // No more entries than the pool has slots, twice over so that buckets stay half empty; what is left over stays free.
        let index = (rest / 4 / 16).min((geometry.slots() * 2).next_power_of_two()).max(1024);
        let delta = (rest / 8 / DELTA_ENTRY_BYTES).clamp(4096, 1 << 20);
        Ok(Limits {
            buffers,
            write_buffers: buffers / 2,
            pages: (rest / 8 / (block + 96)) as u32,
            index_entries: 1 << index.ilog2().min(31),
            index_tag_bits: 0,
            sharing_digest_bits: 0,
            delta_entries: delta as u32,
            discard_pages: (delta / geometry.map_leaf_entries()).clamp(1, 1024) as u32,
            discards: (delta / 4).max(4096) as u32,
            requests: requests as u32,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_little_says_what_would_do() {
        for (capacity, piece_blocks) in [(1u64 << 30, 256), (1 << 30, 4096), (1 << 40, 256), (16 << 40, 1)] {
            let geometry = Geometry { piece_blocks, ..Geometry::for_capacity(capacity).unwrap() };
            let needed = Limits::for_memory(MIB, &geometry).unwrap_err();
            let limits = Limits::for_memory(needed, &geometry).unwrap();
            let piece = geometry.piece_blocks.min(256);
            assert!(limits.write_buffers > 2 * piece && limits.pages > 256 && limits.delta_entries > 4 * piece);
            for memory in (needed..needed + 2048 * MIB).step_by(64 << 20) {
                Limits::for_memory(memory, &geometry).unwrap();
            }
        }
    }
}
