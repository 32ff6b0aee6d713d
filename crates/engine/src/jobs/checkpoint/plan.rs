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

use crate::block_map::map_buffer::{Leaf, RECORD_BYTES, write_record};
use crate::format::entry::{Entry, Key};
use crate::format::superblock::TreeId;
use crate::jobs::checkpoint::{Checkpoint, Progress};
use crate::metadata::page_cache::Region;
use crate::metadata::tree::{Stop, Writer};
use crate::mutant::Mutant;
use crate::pool::Pool;
use crate::pool::metadata_reservation::Paths;

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
    /// Number of buffered mappings that may be flushed with leaves that are written anyway.
    along: usize,
    /// Set if no leaf is written: there is no space for all new mappings.
    keeps_all: bool,
    /// Paths to the mappings in the buffer when the checkpoint has ended: to all of them if the buffer was counted, else to the new ones.
    stays: Option<Box<Paths>>,
}

impl Pool {
    /// Recounts the pages that a checkpoint may take, once its leaves are chosen: fewer if it leaves much in the map buffer, more if it flushes.
    fn promise_planned(&self, checkpoint: &mut Checkpoint) {
        let leaves = checkpoint.leaves.iter().map(|leaf| leaf.first);
        let kept = checkpoint.plan.keeps_all.then_some(checkpoint.points.len() as u64);
        checkpoint.shared.promised = self.pages_planned(leaves, checkpoint.discard_budget, kept);
    }

    /// Returns the largest number of mappings that the buffer may have after a checkpoint. Each holds the slot that it has replaced: with few free
    /// slots, the number is smaller.
    fn buffered_at_most(&self) -> usize {
        (self.limits.map_buffer as usize).min(self.durable.space.free() as usize / 2)
    }

    /// Returns true if a checkpoint is to flush as much as it can.
    fn flushes_all(&self) -> bool {
        self.durable.want_flush || self.durable.buffer.len() > self.limits.map_buffer as usize
    }

    /// Drops buffered mappings of blocks that clears cover, in one step.
    pub(crate) fn drop_cleared(&mut self, checkpoint: &mut Checkpoint) -> Progress {
        let mut looked_at = 0;
        while let Some(&(start, end)) = checkpoint.clears.get(checkpoint.cleared_at) {
            let place = checkpoint.cleared_place.unwrap_or_else(|| self.durable.buffer.position(Key(start)));
            let mut next = self.durable.buffer.first_from(place);
            while let Some((place, key, entry)) = next.filter(|&(_, key, _)| key.0 < end) {
                if looked_at == AT_ONCE {
                    checkpoint.cleared_place = Some(place);
                    return Progress::Pause;
                }
                looked_at += 1;
                self.durable.buffer.remove(place);
                self.release(checkpoint, key, entry);
                next = self.durable.buffer.first_from(place + 1);
            }
            checkpoint.cleared_place = None;
            checkpoint.cleared_at += 1;
        }
        Progress::Next
    }

    /// Notes that a mapping is replaced: its slot loses a reference.
    pub(crate) fn release(&mut self, checkpoint: &mut Checkpoint, key: Key, before: Entry) {
        let Some(slot) = before.slot() else { return };
        checkpoint.shared.changes.push((slot, -1));
        if let Ok(at) = self.durable.volumes.binary_search_by_key(&key.volume(), |volume| volume.id) {
            let used = &mut self.durable.volumes[at].logical_blocks_used;
            *used = used.saturating_sub(1);
        }
    }

    // ---- the plan ----

    pub(crate) fn begin_plan(&self, checkpoint: &mut Checkpoint) {
        let (buffered, new) = (self.durable.buffer.len(), checkpoint.points.len());
        let flushes = buffered + new > self.buffered_at_most() || self.flushes_all() && buffered > 0;
        let counts = 2 * self.durable.metadata.geometry.map_leaf_entries() as usize + 1;
        let is_off = self.limits.map_buffer == 0;
        let keeps_all = self.lacks_space_for_leaves(&checkpoint.shared);
        let flushes = flushes && !keeps_all;
        checkpoint.leaves.clear();
        checkpoint.plan = Plan {
            counts: (flushes && buffered > 0).then(|| vec![0; counts]),
            place: (flushes && buffered > 0).then_some(0),
            many: match keeps_all {
                true => usize::MAX,
                false if is_off || flushes && buffered == 0 => 1,
                false => MANY_POINTS,
            },
            keeps_all,
            stays: Some(Box::new(Paths::new(&self.durable.metadata.geometry))),
            threshold: usize::MAX,
            along: self.limits.flushed(),
            ..Plan::default()
        };
    }

    /// Returns the next leaf with new or buffered mappings: its first block, and the number of new and of buffered ones.
    fn next_group(&self, checkpoint: &mut Checkpoint) -> Option<(Key, usize, usize)> {
        let per_leaf = self.durable.metadata.geometry.map_leaf_entries();
        let Checkpoint { plan, points, .. } = checkpoint;
        let mut buffered = plan.place.and_then(|place| self.durable.buffer.first_from(place));
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
            buffered = self.durable.buffer.first_from(place + 1);
        }
        Some((first, new, old))
    }

    fn end_plan(&mut self, checkpoint: &mut Checkpoint) {
        self.promise_planned(checkpoint);
        let releases =
            if checkpoint.plan.place.is_some() { self.limits.flushed().min(self.durable.buffer.len()) } else { 0 };
        checkpoint.shared.changes.reserve_exact(2 * checkpoint.points.len() + releases);
        if checkpoint.plan.place.is_some() {
            // Waiters for slots see the slots that this frees.
            self.durable.slots_freed_in = self.checkpoint.checkpoints_done + 1;
        }
    }

    // ---- maps ----

    /// Keeps new mappings of leaves that are not written in the buffer: those before `end`, or some of them.
    pub(crate) fn keep_points(&mut self, checkpoint: &mut Checkpoint, end: Key) {
        for _ in 0..KEPT_AT_ONCE {
            let Some(&(key, entry)) = checkpoint.points.get(checkpoint.point_at).filter(|(key, _)| *key < end) else {
                break;
            };
            if let Some(before) = self.durable.buffer.get(key) {
                self.release(checkpoint, key, before);
                self.note_unchanged(checkpoint, before, entry);
            }
            self.refer(checkpoint, entry);
            if !self.mutant(Mutant::LostFromBuffer) || !key.0.is_multiple_of(7) {
                checkpoint.points[checkpoint.kept] = (key, entry);
                checkpoint.kept += 1;
            }
            checkpoint.point_at += 1;
        }
    }

    /// Notes that a block maps to an entry from now on: its slot gains a reference.
    pub(crate) fn refer(&mut self, checkpoint: &mut Checkpoint, entry: Entry) {
        let forgets = self.mutant(Mutant::ForgottenReference);
        if let Some(slot) = entry.slot() {
            if !forgets || self.durable.frozen.slots.get(&slot).is_some_and(|recent| recent.fresh) {
                checkpoint.shared.changes.push((slot, 1));
            }
            self.durable.volumes[checkpoint.shared.volume_at].logical_blocks_used += 1;
        }
    }

    /// Counts a block that is mapped to the slot that it already maps to: it was written with unchanged content.
    pub(crate) fn note_unchanged(&mut self, checkpoint: &Checkpoint, before: Entry, entry: Entry) {
        if before == entry && entry.slot().is_some() {
            self.durable.volumes[checkpoint.shared.volume_at].writes.unchanged_blocks += 1;
            self.stats.writes.unchanged_blocks += 1;
        }
    }

    // ---- the buffer and its log ----

    /// Brings the buffer up to date, in one step.
    pub(crate) fn step_buffer(&mut self, checkpoint: &mut Checkpoint) -> Progress {
        let kept = &checkpoint.points[..checkpoint.kept];
        let touched = !kept.is_empty() || !self.durable.buffer.is_empty() || self.durable.buffer.capacity() > 0;
        if !touched {
            self.durable.want_flush = false;
            return Progress::Next;
        }
        let usual = self.limits.buffered_places();
        if !checkpoint.buffer_fits {
            // A removed mapping keeps its place until the pass leaves it out.
            let needed = self.durable.buffer.used() + kept.len();
            if needed > self.durable.buffer.capacity() {
                self.durable.buffer.fit(needed.max(usual));
            }
            checkpoint.buffer_fits = true;
        }
        let per_leaf = self.durable.metadata.geometry.map_leaf_entries();
        let most_removed = kept.len() + AT_ONCE;
        if self.durable.buffer.step(&mut checkpoint.pass, kept, &checkpoint.leaves, per_leaf, most_removed) {
            return Progress::Pause;
        }
        self.durable.buffer.fit(usual.max(self.durable.buffer.len()));
        if let Some(stays) = checkpoint.plan.stays.take() {
            match checkpoint.plan.place {
                Some(_) => self.durable.reservation.buffered = *stays,
                None => self.durable.reservation.buffered.add(&stays),
            }
        }
        if self.mutant(Mutant::StaleLog) {
            checkpoint.pass.removed.clear();
            checkpoint.pass.anew = false;
        }
        let (len, added) = (self.durable.buffer.len() as u64, (checkpoint.kept + checkpoint.pass.removed.len()) as u64);
        let page = self.records_per_leaf();
        checkpoint.pass.anew |= self.durable.buffer.logged + added > len + len / 2 + page;
        self.durable.want_flush &= len > 0;
        Progress::Next
    }

    /// Writes a leaf of the log.
    pub(crate) fn write_log(&mut self, checkpoint: &mut Checkpoint) -> Result<Progress, Stop> {
        let per_leaf = self.records_per_leaf();
        let (len, logged) = (self.durable.buffer.len() as u64, self.durable.buffer.logged);
        let added = (checkpoint.kept + checkpoint.pass.removed.len()) as u64;
        let (first, end) = match checkpoint.pass.anew {
            true => (0, len.max(logged).div_ceil(per_leaf)),
            false if added == 0 => (0, 0),
            false => (logged / per_leaf, (logged + added).div_ceil(per_leaf)),
        };
        let leaf = checkpoint.leaf_at.max(first);
        let root = self.durable.roots[TreeId::MapBuffer as usize];
        if leaf >= end {
            if let Some(root) = self.finish_writer(checkpoint)? {
                self.durable.roots[TreeId::MapBuffer as usize] = root;
            }
            self.durable.buffer.logged = if checkpoint.pass.anew { len } else { logged + added };
            checkpoint.leaf_at = 0;
            return Ok(Progress::Next);
        }
        let writer = checkpoint.writer.get_or_insert_with(|| Writer::new(Region::Metadata, root));
        if checkpoint.pass.anew {
            let page = writer.blank(&mut self.durable.metadata, leaf)?;
            self.durable.buffer.write_sorted(leaf * per_leaf, self.durable.metadata.pages.bytes_mut(page));
        } else {
            let page = writer.leaf(&mut self.durable.metadata, leaf, true)?.expect("created");
            let bytes = self.durable.metadata.pages.bytes_mut(page);
            for (number, record) in (leaf * per_leaf..).zip(bytes.chunks_exact_mut(RECORD_BYTES)) {
                let Some(at) = number.checked_sub(logged) else { continue };
                if let Some(&(key, entry)) = checkpoint.points[..checkpoint.kept].get(at as usize) {
                    write_record(record, key, entry);
                } else if let Some(&key) = checkpoint.pass.removed.get(at as usize - checkpoint.kept) {
                    write_record(record, key, Entry::UNBUFFERED);
                }
            }
        }
        checkpoint.leaf_at = leaf + 1;
        Ok(Progress::More)
    }
}

impl Pool {
    /// Counts or chooses some leaves, in one step.
    pub(crate) fn plan(&mut self, checkpoint: &mut Checkpoint) -> Progress {
        let mut left = AT_ONCE;
        while left > 0 {
            let Some((first, new, old)) = self.next_group(checkpoint) else {
                if checkpoint.plan.counts.is_some() {
                    self.choose(checkpoint);
                    return Progress::Pause;
                }
                self.end_plan(checkpoint);
                return Progress::Next;
            };
            left = left.saturating_sub(new + old);
            let plan = &mut checkpoint.plan;
            if let Some(counts) = &mut plan.counts {
                counts[new + old] += 1;
                plan.total += new + old;
                continue;
            }
            // Done once for each group: in its only pass, or in the second.
            self.regions_mut().overwritten(first, new);
            let is_full = new + old > plan.threshold || new + old == plan.threshold && plan.quota > 0;
            if is_full && new + old == plan.threshold {
                plan.quota -= 1;
            }
            if is_full || new >= plan.many {
                let end = Key(first.0 + self.durable.metadata.geometry.map_leaf_entries());
                let old = if plan.place.is_some() { old } else { self.durable.buffer.count(first, end) };
                let flushes = is_full || old <= plan.along;
                plan.along -= if flushes && !is_full { old } else { 0 };
                checkpoint.leaves.push(Leaf { first, flushes });
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
    fn choose(&mut self, checkpoint: &mut Checkpoint) {
        let counts = checkpoint.plan.counts.take().expect("they have been counted");
        let most = self.buffered_at_most();
        let stays = if self.flushes_all() { 0 } else { most - most / 4 };
        let budget = if self.has_much_pending() { 0 } else { self.limits.flushed() + checkpoint.points.len() };
        let mut wanted = checkpoint.plan.total.saturating_sub(stays).min(budget);
        let space = if checkpoint.spares_metadata { 0 } else { self.metadata_to_flush(&checkpoint.shared) };
        let mut pages = if self.claimed() <= space { usize::MAX } else { (space / self.map_levels()) as usize };
        let plan = &mut checkpoint.plan;
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
        self.durable.flush_is_stuck = flushed == 0 && wanted > 0;
        if !self.durable.flush_is_stuck {
            self.durable.free_when_stuck = 0;
        }
        if plan.total - flushed > most {
            // There is no space for the new mappings.
            plan.many = 1;
        }
        (plan.point_at, plan.place) = (0, Some(0));
    }
}

/// Returns the first block of the leaf of a block.
pub(crate) fn leaf_of(key: Key, per_leaf: u64) -> Key {
    Key(key.0 - key.lba() % per_leaf)
}

impl Checkpoint {
    /// Returns the bytes of memory that the plan and its leaves hold.
    pub(crate) fn plan_memory(&self) -> u64 {
        let counts = self.plan.counts.as_ref().map_or(0, |counts| counts.capacity() * 4);
        let leaves = self.leaves.capacity() * core::mem::size_of::<Leaf>();
        (counts + leaves + self.pass.removed.capacity() * 8) as u64
    }
}
