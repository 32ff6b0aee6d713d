//! Exact count of the blocks of volumes that lie in shared slots, from all maps: the reference for the estimates of a census.

use alloc::vec;
use alloc::vec::Vec;

use crate::api::VolumeId;
use crate::engine::Engine;
use crate::format::bytes::u64_at;
use crate::format::entry::{Entry, Key};
use crate::metadata::page_cache::ReadMetadata;

/// Blocks of a volume as of the last merge.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SharedBlocks {
    /// Id of the volume.
    pub volume: VolumeId,
    /// Number of blocks that are mapped to slots.
    pub mapped: u64,
    /// Number of mapped blocks whose slots have more than one reference.
    pub shared: u64,
}

impl Engine {
    /// Counts the blocks of all volumes in shared slots. Returns `None` if some pages cannot be read, or contradict each other.
    pub fn count_shared(&self, read: &mut ReadMetadata<'_>) -> Option<Vec<SharedBlocks>> {
        let (mut read, mut ignore) = (|offset, length| read(offset, length), |_: &str| {});
        let mut audit = self.look(&mut read, &mut ignore);
        audit.counts = vec![0; self.pool.geometry().slots() as usize];
        audit.volumes();
        audit.discards();
        audit.reached.fill(false);
        let mut found = Vec::new();
        let per_leaf = self.pool.geometry().map_leaf_entries();
        for (volume, &root) in self.pool.durable.volumes().with_maps() {
            let mut blocks = SharedBlocks { volume: volume.id, mapped: 0, shared: 0 };
            let mut note = |counts: &[u32], entry: Entry| {
                if let Some(slot) = entry.slot() {
                    blocks.mapped += 1;
                    blocks.shared += u64::from(counts.get(slot.0 as usize).is_some_and(|&count| count > 1));
                }
            };
            audit.each_map_leaf(volume, root, "a map", &mut |audit, leaf, page| {
                for (at, bytes) in page.chunks_exact(8).enumerate() {
                    let key = Key::new(volume.id, leaf * per_leaf + at as u64);
                    if self.pool.durable.map_buffer().get(key).is_none() {
                        note(&audit.counts, Entry(u64_at(bytes, 0)));
                    }
                }
            });
            self.buffered_of(volume.id).for_each(|(_, entry)| note(&audit.counts, entry));
            found.push(blocks);
        }
        audit.good.then_some(found)
    }
}
