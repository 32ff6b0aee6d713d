//! The handling of the map buffer by a checkpoint (docs/rfc/0010): chooses the leaves of the maps to be written, keeps the other mappings in the
//! buffer, and writes the log on disk.
//!
//! ```text
//! Cleared  drops buffered mappings of blocks that clears cover
//! Plan     counts new and buffered mappings, leaf by leaf, and lists the leaves to be written
//! Maps     (merge.rs) writes these; of all other leaves the new mappings stay in the buffer
//! Buffer   brings the buffer up to date: invisible to readers, as the frozen delta and the new leaves say the same
//! Log      (a table) appends new mappings to the log, or writes the whole log anew
//! ```

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use super::{Checkpoint, Progress};
use crate::block_map::map_buffer::{Leaf, RECORD_BYTES, write_record};
use crate::format::entry::{Entry, Key};
use crate::format::superblock::TreeId;
use crate::metadata::page_cache::Region;
use crate::metadata::tree::{Stop, Writer};
use crate::mutant::Mutant;
use crate::pool::Pool;
use crate::pool::metadata_reservation::Paths;
use crate::pool::snapshot_groups::SnapshotPlan;

/// Number of new mappings with which a leaf is written regardless of its buffered ones: that costs less than to write it later.
const MANY_POINTS: usize = 8;
/// Number of mappings that one step examines.
const AT_ONCE: usize = 1 << 13;
/// Number of mappings staying in the buffer that one step merges.
const KEPT_AT_ONCE: usize = 256;

/// Choice of the leaves that a checkpoint writes.
#[derive(Default)]
pub(crate) struct Plan {
    /// Number of leaves by their number of new and buffered mappings; `None` once they have been counted, and where no flush is due.
    counts: Option<Vec<u32>>,
    /// Next new mapping of the walk.
    point_at: usize,
    /// Next place of the buffer, if the buffer is examined.
    place: Option<usize>,
    /// Number of mappings in the counted leaves.
    total: usize,
    /// Number of new mappings with which a leaf is written.
    many: usize,
    /// Number of mappings above which a leaf is flushed.
    threshold: usize,
    /// Number of leaves with exactly `threshold` mappings that are flushed, too.
    quota: u32,
    /// Number of buffered mappings that may be flushed with leaves that are written anyway, and for snapshots.
    along: usize,
    for_snapshots: usize,
    /// Set if no leaf is written: there is no space for all new mappings.
    keeps_all: bool,
    /// Paths to the mappings in the buffer when the checkpoint has ended: to all of them if the buffer was counted, else to the new ones.
    stays: Option<Box<Paths>>,
}

impl Checkpoint {
    /// Recounts the pages that a checkpoint may take, once its leaves are chosen: fewer if it leaves much in the map buffer, more if it flushes.
    fn promise_planned(&mut self, pool: &Pool) {
        let leaves = self.leaves.iter().map(|leaf| leaf.first);
        let kept = self.plan.keeps_all.then_some(self.points.len() as u64);
        self.shared.promised = pool.pages_planned(leaves, self.discard_budget, kept);
    }

    /// Drops buffered mappings of blocks that clears cover, in one step.
    pub(super) fn drop_cleared(&mut self, pool: &mut Pool) -> Progress {
        let mut looked_at = 0;
        while let Some(&(start, end)) = self.clears.get(self.cleared_at) {
            let place = self.cleared_place.unwrap_or_else(|| pool.durable.map_buffer().position(Key(start)));
            let mut next = pool.durable.map_buffer().first_from(place);
            while let Some((place, key, entry)) = next.filter(|&(_, key, _)| key.0 < end) {
                if looked_at == AT_ONCE {
                    self.cleared_place = Some(place);
                    return Progress::Pause;
                }
                looked_at += 1;
                pool.durable.map_buffer_mut().remove(place);
                self.release(pool, key, entry);
                next = pool.durable.map_buffer().first_from(place + 1);
            }
            self.cleared_place = None;
            self.cleared_at += 1;
        }
        Progress::Next
    }

    /// Notes that a mapping is replaced: its slot loses a reference. An inherited one has none: the map hides it from now on.
    pub(super) fn release(&mut self, pool: &mut Pool, key: Key, before: Entry) {
        let Some(slot) = before.slot() else {
            self.hidden += u64::from(before.inherited_from().is_some());
            return;
        };
        self.shared.changes.push((slot, -1));
        match self.merging {
            Some(_) => self.unmapped += 1,
            // The buffer is walked before the maps, across volumes.
            None => drop(pool.durable.volumes_mut().note_unmapped(key.volume(), 1)),
        }
    }

    pub(super) fn begin_plan(&mut self, pool: &mut Pool) {
        let (buffered, new) = (pool.durable.map_buffer().len(), self.points.len());
        let flushes = buffered + new > pool.buffered_at_most() || flushes_all(pool) && buffered > 0;
        let counts = 2 * pool.metadata.geometry().map_leaf_entries() as usize + 1;
        let is_off = !pool.buffers_frozen();
        let keeps_all = pool.lacks_space_for_leaves(&self.shared);
        if (keeps_all || self.spares_metadata) && !self.snapshots.is_empty() {
            self.defer_snapshots(pool);
        }
        // The flush for snapshots is all that this checkpoint flushes.
        let has_snapshots = !self.snapshots.is_empty();
        let flushes = flushes && !keeps_all && !has_snapshots;
        let has_too_many = has_snapshots && buffered + new > pool.buffered_at_most();
        self.leaves.clear();
        self.plan = Plan {
            counts: (flushes && buffered > 0).then(|| vec![0; counts]),
            place: ((flushes || has_snapshots) && buffered > 0).then_some(0),
            many: match keeps_all {
                true => usize::MAX,
                false if is_off || has_too_many || flushes && buffered == 0 => 1,
                false => MANY_POINTS,
            },
            keeps_all,
            stays: Some(Box::new(Paths::new(pool.metadata.geometry()))),
            threshold: usize::MAX,
            along: pool.limits.flushed(),
            for_snapshots: pool.limits.flushed(),
            ..Plan::default()
        };
    }

    /// Defers the snapshots that this checkpoint was to make to the next one: the leaves of their maps find no space.
    fn defer_snapshots(&mut self, pool: &mut Pool) {
        self.snapshots = SnapshotPlan::default();
        pool.defer_snapshots();
    }

    /// Returns the next leaf with new or buffered mappings: its first block, and the number of new and of buffered ones.
    fn next_group(&mut self, pool: &Pool) -> Option<(Key, usize, usize)> {
        let per_leaf = pool.metadata.geometry().map_leaf_entries();
        let Checkpoint { plan, points, .. } = self;
        let mut buffered = plan.place.and_then(|place| pool.durable.map_buffer().first_from(place));
        let new = points.get(plan.point_at).map(|&(key, _)| key);
        let next = new.into_iter().chain(buffered.map(|(_, key, _)| key)).min()?;
        let first = leaf_of(next, per_leaf);
        let is_here = |key: Key| key.0 < first.0 + per_leaf;
        let new = points[plan.point_at..].iter().take_while(|&&(key, _)| is_here(key)).count();
        plan.point_at += new;
        let mut old = 0;
        while let Some((place, ..)) = buffered.filter(|&(_, key, _)| is_here(key)) {
            old += 1;
            plan.place = Some(place + 1);
            buffered = pool.durable.map_buffer().first_from(place + 1);
        }
        Some((first, new, old))
    }

    /// Ends the plan; it begins again if there is no space for its snapshots.
    fn end_plan(&mut self, pool: &mut Pool) -> Progress {
        self.promise_planned(pool);
        if !self.snapshots.is_empty() && !pool.spares_metadata_for_leaves(&self.shared) {
            self.defer_snapshots(pool);
            self.begin_plan(pool);
            return Progress::Pause;
        }
        let releases =
            if self.plan.place.is_some() { pool.limits.flushed().min(pool.durable.map_buffer().len()) } else { 0 };
        self.shared.changes.reserve_exact(2 * self.points.len() + releases);
        if self.plan.place.is_some() {
            // Waiters for slots see the slots that this frees.
            pool.note_slots_freed();
        }
        Progress::Next
    }

    /// Keeps new mappings of leaves that are not written in the buffer: those before `end`, or some of them.
    pub(super) fn keep_points(&mut self, pool: &mut Pool, end: Key) {
        for _ in 0..KEPT_AT_ONCE {
            let Some(&(key, entry)) = self.points.get(self.point_at).filter(|(key, _)| *key < end) else {
                break;
            };
            if let Some(before) = pool.durable.map_buffer().get(key) {
                self.release(pool, key, before);
                self.note_unchanged(pool, before, entry);
            }
            self.refer(pool, entry);
            if !pool.mutant(Mutant::LostFromBuffer) || !key.0.is_multiple_of(7) {
                self.points[self.kept] = (key, entry);
                self.kept += 1;
            }
            self.point_at += 1;
        }
    }

    /// Notes that a block maps to an entry from now on: its slot gains a reference.
    pub(super) fn refer(&mut self, pool: &mut Pool, entry: Entry) {
        let forgets = pool.mutant(Mutant::ForgottenReference);
        if let Some(slot) = entry.slot() {
            if !forgets || pool.durable.frozen().slots().get(&slot).is_some_and(|recent| recent.fresh) {
                self.shared.changes.push((slot, 1));
            }
            self.mapped += 1;
        }
    }

    /// Counts a block that is mapped to the slot that it already maps to: it was written with unchanged content.
    pub(super) fn note_unchanged(&self, pool: &mut Pool, before: Entry, entry: Entry) {
        if before == entry && entry.slot().is_some() {
            pool.durable.volumes_mut().count_unchanged(self.shared.volume_at);
            pool.stats.writes.unchanged_blocks += 1;
        }
    }

    /// Brings the buffer up to date, in one step.
    pub(super) fn step_buffer(&mut self, pool: &mut Pool) -> Progress {
        let kept = &self.points[..self.kept];
        let touched =
            !kept.is_empty() || !pool.durable.map_buffer().is_empty() || pool.durable.map_buffer().capacity() > 0;
        if !touched {
            pool.durable.buffer_flush_mut().end_pass(false);
            return Progress::Next;
        }
        let usual = pool.limits.buffered_places();
        if !self.buffer_fits {
            // A removed mapping keeps its place until the pass leaves it out.
            let needed = pool.durable.map_buffer().used() + kept.len();
            if needed > pool.durable.map_buffer().capacity() {
                pool.durable.map_buffer_mut().fit(needed.max(usual));
            }
            self.buffer_fits = true;
        }
        let per_leaf = pool.metadata.geometry().map_leaf_entries();
        let most_removed = kept.len() + AT_ONCE;
        if pool.durable.map_buffer_mut().step(&mut self.pass, kept, &self.leaves, per_leaf, most_removed) {
            return Progress::Pause;
        }
        let len = pool.durable.map_buffer().len();
        pool.durable.map_buffer_mut().fit(usual.max(len));
        if let Some(stays) = self.plan.stays.take() {
            pool.durable.set_buffered_paths(*stays, self.plan.place.is_some());
        }
        if pool.mutant(Mutant::StaleLog) {
            self.pass.revoke_nothing();
        }
        let (len, added) = (pool.durable.map_buffer().len() as u64, (self.kept + self.pass.removed().len()) as u64);
        let page = pool.records_per_leaf();
        let too_many = pool.durable.map_buffer().logged() + added > len + len / 2 + page;
        self.pass.rewrite_if(too_many);
        pool.durable.buffer_flush_mut().end_pass(len > 0);
        Progress::Next
    }

    /// Writes a leaf of the log.
    pub(super) fn write_log(&mut self, pool: &mut Pool) -> Result<Progress, Stop> {
        let per_leaf = pool.records_per_leaf();
        let (len, logged) = (pool.durable.map_buffer().len() as u64, pool.durable.map_buffer().logged());
        let added = (self.kept + self.pass.removed().len()) as u64;
        let (first, end) = match self.pass.is_anew() {
            true => (0, len.max(logged).div_ceil(per_leaf)),
            false if added == 0 => (0, 0),
            false => (logged / per_leaf, (logged + added).div_ceil(per_leaf)),
        };
        let leaf = self.leaf_at.max(first);
        let root = pool.durable.root(TreeId::MapBuffer);
        if leaf >= end {
            if let Some(root) = self.finish_writer(pool)? {
                pool.durable.set_root(TreeId::MapBuffer, root);
            }
            pool.durable.map_buffer_mut().set_logged(if self.pass.is_anew() { len } else { logged + added });
            self.leaf_at = 0;
            return Ok(Progress::Next);
        }
        let writer = self.writer.get_or_insert_with(|| Writer::new(Region::Metadata, root));
        if self.pass.is_anew() {
            let page = writer.blank(&mut pool.metadata, leaf)?;
            pool.durable.map_buffer().write_sorted(leaf * per_leaf, pool.metadata.pages_mut().bytes_mut(page));
        } else {
            let page = writer.leaf(&mut pool.metadata, leaf, true)?.expect("created");
            let bytes = pool.metadata.pages_mut().bytes_mut(page);
            for (number, record) in (leaf * per_leaf..).zip(bytes.chunks_exact_mut(RECORD_BYTES)) {
                let Some(at) = number.checked_sub(logged) else { continue };
                if let Some(&(key, entry)) = self.points[..self.kept].get(at as usize) {
                    write_record(record, key, entry);
                } else if let Some(&key) = self.pass.removed().get(at as usize - self.kept) {
                    write_record(record, key, Entry::UNBUFFERED);
                }
            }
        }
        self.leaf_at = leaf + 1;
        Ok(Progress::More)
    }

    /// Counts or chooses some leaves, in one step.
    pub(super) fn plan(&mut self, pool: &mut Pool) -> Progress {
        let mut left = AT_ONCE;
        while left > 0 {
            let Some((first, new, old)) = self.next_group(pool) else {
                if self.plan.counts.is_some() {
                    self.choose(pool);
                    return Progress::Pause;
                }
                return self.end_plan(pool);
            };
            left = left.saturating_sub(new + old);
            let Checkpoint { plan, snapshots, .. } = self;
            if let Some(counts) = &mut plan.counts {
                counts[new + old] += 1;
                plan.total += new + old;
                continue;
            }
            // Done once for each group: in its only pass, or in the second.
            pool.regions_mut().overwritten(first, new);
            let is_for_snapshot = !snapshots.is_empty()
                && !pool.mutant(Mutant::UnflushedSnapshot)
                && old <= plan.for_snapshots
                && snapshots.flushes(first.volume());
            plan.for_snapshots -= if is_for_snapshot { old } else { 0 };
            let is_full =
                is_for_snapshot || new + old > plan.threshold || new + old == plan.threshold && plan.quota > 0;
            if is_full && new + old == plan.threshold {
                plan.quota -= 1;
            }
            if is_full || new >= plan.many {
                let end = Key(first.0 + pool.metadata.geometry().map_leaf_entries());
                let old = if plan.place.is_some() { old } else { pool.durable.map_buffer().count(first, end) };
                let flushes = is_full || old <= plan.along;
                plan.along -= if flushes && !is_full { old } else { 0 };
                self.leaves.push(Leaf { first, flushes });
                if flushes || old == 0 {
                    continue;
                }
            }
            if let Some(stays) = &mut plan.stays {
                stays.note(first);
            }
        }
        Progress::Pause
    }

    /// Chooses the leaves with the most mappings for the flush, after the count, until at most three quarters of the mappings that may stay are left.
    /// A flush frees slots all over the pool, and writes much of the space map. So it is rare, and then flushes much.
    fn choose(&mut self, pool: &mut Pool) {
        let counts = self.plan.counts.take().expect("they have been counted");
        let most = pool.buffered_at_most();
        let stays = if flushes_all(pool) { 0 } else { most - most / 4 };
        let budget = if pool.has_much_pending() { 0 } else { pool.limits.flushed() + self.points.len() };
        let mut wanted = self.plan.total.saturating_sub(stays).min(budget);
        let space = if self.spares_metadata { 0 } else { pool.metadata_to_flush(&self.shared) };
        let mut pages = if pool.claimed() <= space { usize::MAX } else { (space / pool.map_levels()) as usize };
        let plan = &mut self.plan;
        let mut flushed = 0;
        for (each, &leaves) in counts.iter().enumerate().skip(1).rev() {
            let take = (leaves as usize).min(wanted.div_ceil(each)).min(pages);
            (plan.threshold, plan.quota) = (each, take as u32);
            flushed += take * each;
            wanted = wanted.saturating_sub(take * each);
            pages -= take;
            if take < leaves as usize || wanted == 0 {
                break;
            }
        }
        pool.durable.buffer_flush_mut().note_plan(flushed == 0 && wanted > 0);
        if plan.total - flushed > most {
            // There is no space for the new mappings.
            plan.many = 1;
        }
        (plan.point_at, plan.place) = (0, Some(0));
    }
}

/// Returns true if a checkpoint is to flush as much as it can.
fn flushes_all(pool: &Pool) -> bool {
    pool.durable.buffer_flush().is_wanted() || pool.durable.map_buffer().len() as u64 > pool.map_buffer_limit()
}

/// Returns the first block of the leaf of a block.
pub(super) fn leaf_of(key: Key, per_leaf: u64) -> Key {
    Key(key.0 - key.lba() % per_leaf)
}

impl Checkpoint {
    /// Returns the bytes of memory that the plan and its leaves hold.
    pub(super) fn plan_memory(&self) -> u64 {
        let counts = self.plan.counts.as_ref().map_or(0, |counts| counts.capacity() * 4);
        let leaves = self.leaves.capacity() * core::mem::size_of::<Leaf>();
        (counts + leaves + self.pass.removed().capacity() * 8) as u64
    }
}
