//! Audit of the index on disk: compares its entries with the summaries, and counts stale and missing ones.

use alloc::vec;

use crate::engine::Engine;
use crate::format::superblock::TreeId;
use crate::metadata::page_cache::ReadMetadata;
use crate::pool::disk_index::bucket::{bucket_of, entries, has_tag, hash_of, slot_of};

/// Findings of an audit of the index on disk. None of them is damage: stale and missing entries cost savings.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DiskIndexAudit {
    /// Number of entries.
    pub entries: u64,
    /// Number of stale entries: they name a slot that is not in use or holds another content, or they are in the wrong bucket.
    pub stale: u64,
    /// Number of slots in use that no entry names. (Equal blocks beyond the fourth are among them, and second copies are not.)
    pub absent: u64,
    /// Number of entries of blocks that the filter denies. It must be 0.
    pub denied: u64,
}

impl Engine {
    /// Compares the index on disk with the summaries, on an idle engine. Returns `None` if there is no index, or if pages of tables cannot be read.
    /// Takes 17 bytes of memory a slot.
    pub fn check_disk_index(&self, read: &mut ReadMetadata<'_>) -> Option<DiskIndexAudit> {
        let buckets = self.pool.hints.disk_index.record().buckets;
        if buckets == 0 {
            return None;
        }
        let mut audit = DiskIndexAudit::default();
        let mut hashes = vec![None; self.pool.geometry().slots() as usize];
        self.each_digest_in_use(read, &mut |slot, digest, owner| {
            if self.pool.copied_from(owner).is_none() {
                hashes[slot.0 as usize] = Some(hash_of(digest));
            }
        })?;
        let index = &self.pool.hints.disk_index;
        let mut named = vec![false; hashes.len()];
        self.each_table_leaf(read, TreeId::DiskIndex, &mut |bucket, page| {
            for entry in entries(page).filter(|&entry| entry != 0) {
                let slot = slot_of(entry).map_or(usize::MAX, |slot| slot.0 as usize);
                let hash = hashes.get(slot).copied().flatten();
                let fits = |&hash: &u64| has_tag(entry, hash) && bucket_of(hash, buckets) == bucket;
                audit.entries += 1;
                match hash.filter(fits) {
                    Some(hash) => {
                        named[slot] = true;
                        audit.denied += u64::from(index.denies(bucket, hash));
                    }
                    None => audit.stale += 1,
                }
            }
        })?;
        audit.absent = hashes.iter().zip(named).filter(|(hash, named)| hash.is_some() && !named).count() as u64;
        Some(audit)
    }
}
