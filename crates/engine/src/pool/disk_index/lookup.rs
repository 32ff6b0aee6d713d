//! Lookups of written blocks in the index on disk: the path to the bucket, then the pages that prove one of the slots that the bucket names. A write waits for
//! these pages, and for no others. Where the filter denies a content, nothing is looked at.

use super::bucket::{bucket_of, hash_of, named};
use super::{DiskIndex, UNREADABLE};
use crate::api::*;
use crate::format::entry::Slot;
use crate::format::superblock::TreeId;
use crate::metadata::page_cache::Region;
use crate::metadata::tree::{Missing, Walk, lookup};
use crate::pool::Pool;

impl Pool {
    fn note_unreadable(&mut self, hash: u64) {
        let DiskIndex { record, unreadable, .. } = &mut self.hints.disk_index;
        let bucket = |hash| bucket_of(hash, record.buckets);
        if unreadable.len() < UNREADABLE && !unreadable.iter().any(|&known| bucket(known) == bucket(hash)) {
            unreadable.push(hash);
        }
    }
}

impl Pool {
    /// Returns true if the filter knows that no block has this digest.
    #[inline]
    pub(crate) fn is_absent_on_disk(&self, digest: Digest) -> bool {
        let hash = hash_of(digest);
        self.hints.disk_index.denies(bucket_of(hash, self.hints.disk_index.record.buckets), hash)
    }

    /// Finds a slot that is proven to hold the content with this digest.
    pub(crate) fn find_on_disk(&mut self, digest: Digest) -> Result<Option<Slot>, Missing> {
        let hash = hash_of(digest);
        let bucket = bucket_of(hash, self.hints.disk_index.record.buckets);
        let root = self.durable.root(TreeId::DiskIndex);
        let slots = match lookup(&mut self.metadata, Region::Metadata, root, bucket) {
            Walk::Leaf(page) => {
                let content = self.metadata.pages().bytes(page);
                self.hints.disk_index.learn_read(bucket, content);
                named(content, hash)
            }
            Walk::Absent(_) => {
                self.hints.disk_index.learn_read(bucket, &[]);
                return Ok(None);
            }
            Walk::Missing(missing) | Walk::From { missing, .. } if self.metadata.has_failed(missing.key) => {
                self.note_unreadable(hash);
                return Ok(None);
            }
            Walk::Missing(missing) | Walk::From { missing, .. } => return Err(missing),
        };
        let mut wants = None;
        for slot in slots.into_iter().flatten() {
            match self.proven_digest(slot) {
                Ok(Some((found, _))) if found == digest => return Ok(Some(slot)),
                Ok(_) => {}
                Err(missing) if self.metadata.has_failed(missing.key) => {}
                Err(missing) => wants = wants.or(Some(missing)),
            }
        }
        if wants.is_none() && self.hints.disk_index.is_filtered(bucket) {
            self.hints.disk_index.false_answers += 1;
        }
        wants.map_or(Ok(None), Err)
    }
}
