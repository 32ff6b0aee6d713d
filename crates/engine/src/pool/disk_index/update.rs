//! The checkpoint stage that updates the index on disk with the merged changes:
//!
//! ```text
//! Freed   the digests of slots that lost their last reference, from the summaries
//! Build   while it is not complete: digests of the next slots in use
//! Sort    all of them, and those of new slots, into the order of buckets
//! Apply   one leaf after the other
//! ```

use alloc::vec::Vec;
use core::ops::Range;

use super::behind::{DeferredPart, LeftOut};
use super::bucket::{IndexChange, bucket_of};
use super::{DiskIndex, NO_VOLUME, UNREADABLE};
use crate::api::*;
use crate::block_map::discards::Discard;
use crate::format::disk_index::pages_for;
use crate::format::layout::SUMMARY_BYTES;
use crate::format::layout::read_summary;
use crate::format::superblock::{DiskIndexRecord, TreeId};
use crate::jobs::checkpoint::{Checkpoint, Progress};
use crate::metadata::page_cache::Region;
use crate::metadata::tree::{Missing, Stop, Walk, Writer, lookup};
use crate::mutant::Mutant;
use crate::pool::Pool;
use crate::pool::state::Phase;
use crate::sizes::list_bytes;
use crate::sizes::sort_part;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum UpdateStep {
    Freed,
    Build,
    Sort,
    Apply,
}

/// Part of a checkpoint that changes the index.
pub(crate) struct Update {
    step: UpdateStep,
    changes: Vec<IndexChange>,
    /// Number of freed slots whose removal is already among the changes.
    freed_at: usize,
    /// Maximum number of changes, which also bounds building.
    most: usize,
    /// Progress of building, as [`DiskIndexRecord::built`].
    built: u32,
    unsorted: Vec<Range<usize>>,
    at: usize,
    /// Buckets that get only entries from the changes.
    cleared: Range<u64>,
    /// True if a page was lost: all blocks are entered once more.
    lost: bool,
}

impl Update {
    /// Returns the bytes of memory of the changes.
    pub(crate) fn memory(&self) -> u64 {
        list_bytes(&self.changes)
    }
}

impl Pool {
    /// Returns the most pages that the changes of the index may take in a checkpoint that has just begun.
    pub(crate) fn disk_index_space(&self, checkpoint: &Checkpoint) -> usize {
        let part = checkpoint.index_part.as_ref().map_or(0, DeferredPart::buckets);
        let frozen = &self.durable.frozen;
        let walked = u64::from(checkpoint.discard_budget) * self.durable.metadata.geometry.map_leaf_entries();
        let buffered = self.durable.buffer.len() as u64;
        let freed = frozen.points.len() as u64 + frozen.slots.len() as u64 + frozen.releases + walked + buffered;
        let batch = (self.build_batch() as u64).max(self.durable.metadata.geometry.summary_leaf_slots());
        let changes = freed + (checkpoint.fresh.len() + UNREADABLE) as u64 + batch + part;
        pages_for(&self.durable.metadata.geometry, self.hints.disk_index.record.buckets, changes)
    }

    /// Returns the number of slots that one checkpoint enters while the index is being built; 0: it is not.
    fn build_batch(&self) -> usize {
        let DiskIndexRecord { built, .. } = self.hints.disk_index.record;
        let is_building = built < DiskIndexRecord::BEHIND && self.is_any_looking();
        if is_building { self.limits.delta_entries as usize } else { 0 }
    }

    /// Returns a page of summaries; `None`: it is absent or unreadable.
    fn summary_page(&mut self, leaf: u64) -> Result<Option<PageId>, Stop> {
        match lookup(&mut self.durable.metadata, Region::Metadata, self.durable.roots[TreeId::Summaries as usize], leaf)
        {
            Walk::Leaf(page) => Ok(Some(page)),
            Walk::Absent(_) => Ok(None),
            Walk::Missing(missing) if self.durable.failed_pages.contains(&missing.key) => Ok(None),
            Walk::Missing(missing) => Err(Stop::Missing(missing)),
        }
    }
}

impl Pool {
    /// Takes the next step of the stage that updates the index with the merged changes.
    pub(crate) fn merge_disk_index(&mut self, checkpoint: &mut Checkpoint) -> Result<Progress, Stop> {
        if !self.hints.disk_index.record.is_on() {
            return Ok(Progress::Next);
        }
        let mut update = match checkpoint.index_update.take() {
            Some(update) => update,
            None => match self.begin_update(checkpoint) {
                Some(update) => update,
                None => {
                    self.cut_disk_index_off();
                    return Ok(Progress::Next);
                }
            },
        };
        let progress = match update.step {
            UpdateStep::Freed => self.gather_freed(checkpoint, &mut update),
            UpdateStep::Build => self.gather_built(checkpoint, &mut update),
            UpdateStep::Sort if sort_part(&mut update.changes, &mut update.unsorted, |&change| change) => {
                Ok(Progress::Pause)
            }
            UpdateStep::Sort => {
                update.step = UpdateStep::Apply;
                Ok(Progress::More)
            }
            UpdateStep::Apply => self.apply(checkpoint, &mut update),
        };
        if !matches!(progress, Ok(Progress::Next)) {
            checkpoint.index_update = Some(update);
        }
        progress
    }

    /// Begins the update with the known changes. `None`: there is no space for the pages that it would write.
    fn begin_update(&mut self, checkpoint: &mut Checkpoint) -> Option<Update> {
        let per_leaf = self.durable.metadata.geometry.summary_leaf_slots() as usize;
        let batch = match (self.state.phase, self.build_batch()) {
            (Phase::Closing, _) | (_, 0) => 0,
            (_, most) if self.is_pressed(&checkpoint.load) => (most / 8).max(per_leaf),
            (_, most) => most.max(per_leaf),
        };
        let unreadable = core::mem::take(&mut self.hints.disk_index.unreadable);
        let part = checkpoint.index_part.take();
        let others = checkpoint.fresh.len() + checkpoint.freed.len() + unreadable.len();
        let record = self.hints.disk_index.record;
        let leaves = (others + batch) as u64 + part.as_ref().map_or(0, DeferredPart::buckets);
        let pages = pages_for(&self.durable.metadata.geometry, record.buckets, leaves);
        let left = self.unclaimed_metadata().saturating_sub(self.left_of(&checkpoint.shared));
        if pages as u64 > left || pages > checkpoint.index_space {
            return None;
        }
        (checkpoint.shared.index_pages, checkpoint.index_taken_before) =
            (pages, self.durable.metadata.allocator.taken());
        // The merge is done: its result is in the space map, and the memory is needed here.
        (checkpoint.shared.changes, checkpoint.shared.change_at) = (Vec::new(), 0);
        let mut part = part.unwrap_or_default();
        let mut changes = core::mem::take(&mut part.changes);
        let beside = self.hints.disk_index.behind.beside(&part, record.buckets);
        let cleared = if beside.is_some() { part.whole.clone() } else { 0..0 };
        changes.extend(beside.into_iter().flatten());
        let most = changes.len() + others + batch;
        changes.reserve_exact(most - changes.len());
        changes.extend(unreadable.into_iter().map(IndexChange::visit));
        let before = changes.len();
        let left_out = self.left_out();
        let mut count = 0;
        for &slot in &checkpoint.fresh {
            let recent = self.durable.frozen.slots[&slot];
            if self.copied_from(recent.owner).is_some() {
                continue;
            }
            match self.is_left_out(left_out, recent.owner) {
                true => count += 1,
                false => changes.push(IndexChange::enter(recent.digest, slot)),
            }
        }
        self.hints.disk_index.behind.note(&changes[before..]);
        self.hints.disk_index.behind.count(count);
        if count > 0 {
            self.hints.disk_index.record.built = DiskIndexRecord::BEHIND;
        }
        Some(Update {
            step: if left_out == LeftOut::All { UpdateStep::Build } else { UpdateStep::Freed },
            changes,
            cleared,
            freed_at: 0,
            most,
            built: record.built,
            unsorted: Vec::new(),
            at: 0,
            lost: false,
        })
    }

    /// Collects the digests of the freed slots of one page of summaries. A slot whose summary is lost leaves a stale entry behind.
    fn gather_freed(&mut self, checkpoint: &Checkpoint, update: &mut Update) -> Result<Progress, Stop> {
        let per_leaf = self.durable.metadata.geometry.summary_leaf_slots();
        let Some(&first) = checkpoint.freed.get(update.freed_at) else {
            update.step = UpdateStep::Build;
            return Ok(Progress::More);
        };
        let leaf = first.0 / per_leaf;
        let most = self.load_ahead(&checkpoint.load);
        let leaves = checkpoint.freed[update.freed_at..].iter().map(|slot| slot.0 / per_leaf);
        self.load_leaves_ahead(self.durable.roots[TreeId::Summaries as usize], leaves, most);
        let page = self.summary_page(leaf)?;
        while let Some(&slot) = checkpoint.freed.get(update.freed_at)
            && slot.0 / per_leaf == leaf
        {
            update.freed_at += 1;
            if let Some(page) = page {
                let at = (slot.0 % per_leaf * SUMMARY_BYTES) as usize;
                let (digest, owner) = read_summary(self.durable.metadata.pages.bytes(page), at);
                if self.copied_from(owner).is_none() && !self.mutant(Mutant::ForgottenRemoval) {
                    let change = IndexChange::remove(digest, slot);
                    self.hints.disk_index.behind.note(&[change]);
                    update.changes.push(change);
                }
            }
        }
        Ok(Progress::More)
    }

    /// Collects the digests of the blocks of data of the next page of summaries.
    fn gather_built(&mut self, checkpoint: &Checkpoint, update: &mut Update) -> Result<Progress, Stop> {
        let per_leaf = self.durable.metadata.geometry.summary_leaf_slots();
        let (leaf, leaves) = (u64::from(update.built), self.table_leaves(TreeId::Summaries));
        let is_behind = self.hints.disk_index.record.is_behind();
        if leaf >= leaves && !is_behind {
            update.built = DiskIndexRecord::COMPLETE;
        }
        if is_behind || leaf >= leaves || update.changes.len() + per_leaf as usize > update.most {
            update.step = UpdateStep::Sort;
            update.unsorted.push(0..update.changes.len());
            return Ok(Progress::More);
        }
        let most = self.load_ahead(&checkpoint.load);
        self.load_leaves_ahead(self.durable.roots[TreeId::Summaries as usize], leaf..leaves, most);
        let next = self.each_block_of_leaf(leaf, |_, slot, _, digest| {
            update.changes.push(IndexChange::enter(digest, slot));
        });
        update.built = next.map_err(Stop::Missing)?.min(leaves) as u32;
        Ok(Progress::More)
    }

    /// Applies the changes of one bucket.
    fn apply(&mut self, checkpoint: &mut Checkpoint, update: &mut Update) -> Result<Progress, Stop> {
        let buckets = self.hints.disk_index.record.buckets;
        let root = self.durable.roots[TreeId::DiskIndex as usize];
        let Some(&first) = update.changes.get(update.at) else {
            if let Some(writer) = &mut checkpoint.writer {
                self.durable.roots[TreeId::DiskIndex as usize] = writer.finish(&mut self.durable.metadata)?;
                self.stats.counters.pages_written.disk_index += writer.written;
                checkpoint.writer = None;
            }
            let DiskIndex { record, behind, .. } = &mut self.hints.disk_index;
            match update.lost {
                // The pass in progress may have handed over the entries of the lost page.
                true if record.is_behind() => behind.count(1),
                true => record.built = 0,
                false if record.built < DiskIndexRecord::BEHIND => record.built = update.built,
                false => {}
            }
            // The pages that it has taken were promised to it alone.
            checkpoint.shared.promised += self.durable.metadata.allocator.taken() - checkpoint.index_taken_before;
            checkpoint.shared.index_pages = 0;
            return Ok(Progress::Next);
        };
        let bucket = bucket_of(first.hash, buckets);
        let next = update.changes[update.at..].iter().map(|change| bucket_of(change.hash, buckets));
        let most = self.load_ahead(&checkpoint.load);
        self.load_leaves_ahead(self.durable.roots[TreeId::DiskIndex as usize], next, most);
        let writer = checkpoint.writer.get_or_insert_with(|| Writer::new(Region::Metadata, root));
        let page = match writer.leaf(&mut self.durable.metadata, bucket, true) {
            Ok(page) => page.expect("created"),
            Err(Stop::Missing(missing)) if self.durable.failed_pages.contains(&missing.key) => {
                let level = writer.leave_out(&mut self.durable.metadata, bucket);
                update.lost = true;
                // The pages below the lost one stay in use while its pointers are unknown.
                let Missing { key, pointer, .. } = missing;
                if level > 0 {
                    self.durable.discards.push(Discard { pointer, volume: NO_VOLUME, level });
                } else {
                    self.free_index_page(key.location);
                }
                return Ok(Progress::More);
            }
            Err(stop) => return Err(stop),
        };
        let bytes = self.durable.metadata.pages.bytes_mut(page);
        if update.cleared.contains(&bucket) {
            bytes.fill(0);
        }
        while let Some(&change) = update.changes.get(update.at)
            && bucket_of(change.hash, buckets) == bucket
        {
            change.apply(bytes);
            update.at += 1;
        }
        Ok(Progress::More)
    }
}
