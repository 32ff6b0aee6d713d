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

use super::{Checkpoint, Progress};
use crate::api::*;
use crate::block_map::discards::Discard;
use crate::format::disk_index::pages_for;
use crate::format::layout::SUMMARY_BYTES;
use crate::format::layout::read_summary;
use crate::format::superblock::{DiskIndexRecord, TreeId};
use crate::metadata::page_cache::Region;
use crate::metadata::tree::{Missing, Stop, Walk, Writer, lookup};
use crate::mutant::Mutant;
use crate::pool::Pool;
use crate::pool::disk_index::behind::{DeferredPart, LeftOut};
use crate::pool::disk_index::bucket::{BucketChange, IndexChange, apply_all, bucket_of, sort_changes};
use crate::pool::disk_index::{NO_VOLUME, UNREADABLE};
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
    /// Changes of one bucket, and space for its entries.
    of_bucket: Vec<BucketChange>,
    entries: Vec<u64>,
    /// Buckets that get only entries from the changes.
    cleared: Range<u64>,
    /// True if a page was lost: all blocks are entered once more.
    lost: bool,
    /// Steps until leaves are loaded ahead once more.
    until_ahead: usize,
}

impl Update {
    /// Returns true if leaves are to be loaded ahead in this step: in one of several, since half of them are left then.
    fn looks_ahead(&mut self, most: usize) -> bool {
        let looks = self.until_ahead == 0;
        self.until_ahead = if looks { most / 2 } else { self.until_ahead - 1 };
        looks
    }

    /// Returns the bytes of memory of the changes.
    pub(super) fn memory(&self) -> u64 {
        list_bytes(&self.changes) + list_bytes(&self.of_bucket) + list_bytes(&self.entries)
    }
}

impl Checkpoint {
    /// Returns the most pages that the changes of the index may take in a checkpoint that has just begun.
    pub(super) fn disk_index_space(&self, pool: &Pool) -> usize {
        let part = self.index_part.as_ref().map_or(0, DeferredPart::buckets);
        let frozen = pool.durable.frozen();
        let walked = self.discard_budget.most_released(pool.metadata.geometry().map_leaf_entries());
        let buffered = pool.durable.map_buffer().len() as u64;
        let freed = frozen.points().len() as u64 + frozen.slots().len() as u64 + frozen.releases() + walked + buffered;
        let batch = (build_batch(pool) as u64).max(pool.metadata.geometry().summary_leaf_slots());
        let changes = freed + (self.fresh.len() + UNREADABLE) as u64 + batch + part;
        pages_for(pool.metadata.geometry(), pool.hints.disk_index.record().buckets, changes)
    }

    /// Takes the next step of the stage that updates the index with the merged changes.
    pub(super) fn merge_disk_index(&mut self, pool: &mut Pool) -> Result<Progress, Stop> {
        if !pool.hints.disk_index.record().is_on() {
            return Ok(Progress::Next);
        }
        let mut update = match self.index_update.take() {
            Some(update) => update,
            None => match self.begin_update(pool) {
                Some(update) => update,
                None => {
                    pool.cut_disk_index_off();
                    return Ok(Progress::Next);
                }
            },
        };
        let progress = match update.step {
            UpdateStep::Freed => self.gather_freed(pool, &mut update),
            UpdateStep::Build => self.gather_built(pool, &mut update),
            UpdateStep::Sort if sort_part(&mut update.changes, &mut update.unsorted, |&change| change) => {
                Ok(Progress::Pause)
            }
            UpdateStep::Sort => {
                update.step = UpdateStep::Apply;
                Ok(Progress::More)
            }
            UpdateStep::Apply => self.apply(pool, &mut update),
        };
        if !matches!(progress, Ok(Progress::Next)) {
            self.index_update = Some(update);
        }
        progress
    }

    /// Begins the update with the known changes. `None`: there is no space for the pages that it would write.
    fn begin_update(&mut self, pool: &mut Pool) -> Option<Update> {
        let per_leaf = pool.metadata.geometry().summary_leaf_slots() as usize;
        let batch = match (pool.state.phase(), build_batch(pool)) {
            (Phase::Closing, _) | (_, 0) => 0,
            (_, most) if pool.is_pressed(&self.load) => (most / 8).max(per_leaf),
            (_, most) => most.max(per_leaf),
        };
        let unreadable = pool.hints.disk_index.take_unreadable();
        let part = self.index_part.take();
        let others = self.fresh.len() + self.freed.len() + unreadable.len();
        let record = pool.hints.disk_index.record();
        let leaves = (others + batch) as u64 + part.as_ref().map_or(0, DeferredPart::buckets);
        let pages = pages_for(pool.metadata.geometry(), record.buckets, leaves);
        let left = pool.unclaimed_metadata().saturating_sub(pool.left_of(&self.shared));
        if pages as u64 > left || pages > self.index_space {
            return None;
        }
        (self.shared.index_pages, self.index_taken_before) = (pages, pool.metadata.allocator().taken());
        // The merge is done: its result is in the space map, and the memory is needed here.
        (self.shared.changes, self.shared.change_at) = (Vec::new(), 0);
        let mut part = part.unwrap_or_default();
        let mut changes = part.take_changes();
        let beside = pool.hints.disk_index.beside(&part, record.buckets);
        let cleared = if beside.is_some() { part.whole().clone() } else { 0..0 };
        changes.extend(beside.into_iter().flatten());
        let most = changes.len() + others + batch;
        changes.reserve_exact(most - changes.len());
        changes.extend(unreadable.into_iter().map(IndexChange::visit));
        let before = changes.len();
        let left_out = pool.left_out();
        let mut count = 0;
        for &slot in &self.fresh {
            let recent = pool.durable.frozen().slots()[&slot];
            if pool.copied_from(recent.owner).is_some() {
                continue;
            }
            match pool.is_left_out(left_out, recent.owner) {
                true => count += 1,
                false => changes.push(IndexChange::enter(recent.digest, slot)),
            }
        }
        pool.hints.disk_index.note_behind(&changes[before..]);
        pool.hints.disk_index.count_left_out(count);
        if count > 0 {
            pool.hints.disk_index.note_left_out();
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
            of_bucket: Vec::new(),
            entries: Vec::new(),
            lost: false,
            until_ahead: 0,
        })
    }

    /// Collects the digests of the freed slots of one page of summaries. A slot whose summary is lost leaves a stale entry behind.
    fn gather_freed(&self, pool: &mut Pool, update: &mut Update) -> Result<Progress, Stop> {
        let per_leaf = pool.metadata.geometry().summary_leaf_slots();
        let Some(&first) = self.freed.get(update.freed_at) else {
            update.step = UpdateStep::Build;
            return Ok(Progress::More);
        };
        let leaf = first.0 / per_leaf;
        let most = pool.load_ahead(&self.load);
        if update.looks_ahead(most) {
            let leaves = self.freed[update.freed_at..].iter().map(|slot| slot.0 / per_leaf);
            pool.load_leaves_ahead(pool.durable.root(TreeId::Summaries), leaves, most);
        }
        let page = summary_page(pool, leaf)?;
        while let Some(&slot) = self.freed.get(update.freed_at)
            && slot.0 / per_leaf == leaf
        {
            update.freed_at += 1;
            if let Some(page) = page {
                let at = (slot.0 % per_leaf * SUMMARY_BYTES) as usize;
                let (digest, owner) = read_summary(pool.metadata.pages().bytes(page), at);
                if pool.copied_from(owner).is_none() && !pool.mutant(Mutant::ForgottenRemoval) {
                    let change = IndexChange::remove(digest, slot);
                    pool.hints.disk_index.note_behind(&[change]);
                    update.changes.push(change);
                }
            }
        }
        Ok(Progress::More)
    }

    /// Collects the digests of the blocks of data of the next page of summaries.
    fn gather_built(&self, pool: &mut Pool, update: &mut Update) -> Result<Progress, Stop> {
        let per_leaf = pool.metadata.geometry().summary_leaf_slots();
        let (leaf, leaves) = (u64::from(update.built), pool.table_leaves(TreeId::Summaries));
        let is_behind = pool.hints.disk_index.record().is_behind();
        if leaf >= leaves && !is_behind {
            update.built = DiskIndexRecord::COMPLETE;
        }
        if is_behind || leaf >= leaves || update.changes.len() + per_leaf as usize > update.most {
            update.step = UpdateStep::Sort;
            update.unsorted.push(0..update.changes.len());
            return Ok(Progress::More);
        }
        let most = pool.load_ahead(&self.load);
        pool.load_leaves_ahead(pool.durable.root(TreeId::Summaries), leaf..leaves, most);
        let next = pool.each_block_of_leaf(leaf, |_, slot, _, digest| {
            update.changes.push(IndexChange::enter(digest, slot));
        });
        update.built = next.map_err(Stop::Missing)?.min(leaves) as u32;
        Ok(Progress::More)
    }

    /// Applies the changes of one bucket.
    fn apply(&mut self, pool: &mut Pool, update: &mut Update) -> Result<Progress, Stop> {
        let buckets = pool.hints.disk_index.record().buckets;
        let root = pool.durable.root(TreeId::DiskIndex);
        let Some(&first) = update.changes.get(update.at) else {
            if let Some(writer) = &mut self.writer {
                pool.durable.set_root(TreeId::DiskIndex, writer.finish(&mut pool.metadata)?);
                pool.stats.counters.pages_written.disk_index += writer.written();
                self.writer = None;
            }
            pool.hints.disk_index.end_update(update.lost, update.built);
            // The pages that it has taken were promised to it alone.
            self.shared.promised += pool.metadata.allocator().taken() - self.index_taken_before;
            self.shared.index_pages = 0;
            return Ok(Progress::Next);
        };
        let bucket = bucket_of(first.hash(), buckets);
        let most = pool.load_ahead(&self.load);
        if update.looks_ahead(most) {
            let next = update.changes[update.at..].iter().map(|change| bucket_of(change.hash(), buckets));
            pool.load_leaves_ahead(pool.durable.root(TreeId::DiskIndex), next, most);
        }
        let writer = self.writer.get_or_insert_with(|| Writer::new(Region::Metadata, root));
        let page = match writer.leaf(&mut pool.metadata, bucket, true) {
            Ok(page) => page.expect("created"),
            Err(Stop::Missing(missing)) if pool.metadata.has_failed(missing.key) => {
                let level = writer.leave_out(&mut pool.metadata, bucket);
                update.lost = true;
                // The pages below the lost one stay in use while its pointers are unknown.
                let Missing { key, pointer, .. } = missing;
                if level > 0 {
                    pool.durable.discards_mut().push(Discard::new(pointer, NO_VOLUME, level));
                } else {
                    pool.free_index_page(key.location);
                }
                return Ok(Progress::More);
            }
            Err(stop) => return Err(stop),
        };
        let bytes = pool.metadata.pages_mut().bytes_mut(page);
        if update.cleared.contains(&bucket) {
            bytes.fill(0);
        }
        let changes = update.changes[update.at..].iter().map(|change| change.in_bucket(buckets));
        update.of_bucket.clear();
        update.of_bucket.extend(changes.take_while(|change| change.bucket() == bucket));
        sort_changes(&mut update.of_bucket);
        apply_all(bytes, &update.of_bucket, &mut update.entries);
        update.at += update.of_bucket.len();
        if !pool.mutant(Mutant::ForgetfulFilter) {
            pool.hints.disk_index.learn_written(bucket, pool.metadata.pages().bytes(page));
        }
        Ok(Progress::More)
    }
}

/// Returns the number of slots that one checkpoint enters while the index is being built; 0: it is not.
fn build_batch(pool: &Pool) -> usize {
    let DiskIndexRecord { built, .. } = pool.hints.disk_index.record();
    let is_building = built < DiskIndexRecord::BEHIND && pool.is_any_looking();
    if is_building { pool.limits.delta_entries as usize } else { 0 }
}

/// Returns a page of summaries; `None`: it is absent or unreadable.
fn summary_page(pool: &mut Pool, leaf: u64) -> Result<Option<PageId>, Stop> {
    match lookup(&mut pool.metadata, Region::Metadata, pool.durable.root(TreeId::Summaries), leaf) {
        Walk::Leaf(page) => Ok(Some(page)),
        Walk::Absent(_) => Ok(None),
        Walk::Missing(missing) | Walk::From { missing, .. } if pool.metadata.has_failed(missing.key) => Ok(None),
        Walk::Missing(missing) | Walk::From { missing, .. } => Err(Stop::Missing(missing)),
    }
}
