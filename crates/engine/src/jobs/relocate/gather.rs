//! The batches of a relocation run: collects the next blocks of the plan, claims their target slots, and records the results.

use alloc::vec::Vec;

use super::{ChangesStop, Copied, Relocate, RunStage};
use crate::api::{Digest, Nanos};
use crate::format::entry::{Entry, Key, Slot};
use crate::jobs::mover::{self, Came, Missings, Moved, Mover, is_alone, is_busy};
use crate::metadata::tree::{Missing, Unresolved};
use crate::pool::Pool;
use crate::pool::moves::MOVED_AT_ONCE;
use crate::pool::resolve::{COMPARED_AT_ONCE, ReferrerSearch};
use crate::pool::state::LoadSnapshot;
use crate::repair::Repairs;
use crate::space::SlotState;

/// Number of page loads for a batch before it begins with fewer blocks.
const LOADS: u32 = 8;
/// Longest wait for a block that is under repair or is read repeatedly, in nanoseconds.
const PATIENCE: Nanos = 2_000_000_000;

/// Content of a slot of the plan.
enum PlannedSlot {
    /// A block of a volume. `owner` is the block for which it was first written, if that still maps here; `is_alone`: it is the only referrer.
    Block {
        digest: Digest,
        owner: Option<Key>,
        is_alone: bool,
    },
    /// A slot without a block of a volume.
    Nothing,
    HasReplica,
    Unreadable,
    /// The slot is being read or written.
    Busy,
}

impl Relocate {
    /// Begins to move some blocks of the plan; with no blocks left, begins a walk of the maps or ends the run.
    pub(super) fn gather(
        &mut self,
        pool: &mut Pool,
        repairs: &Repairs,
        load: &LoadSnapshot,
    ) -> Result<(), ChangesStop> {
        if self.plan.is_empty() || self.copies.len() >= pool.limits.relocated() {
            if self.copies.is_empty() {
                self.end(pool);
            } else {
                self.again = 0;
                self.at = RunStage::Begin;
                self.changes.wait_for_flush(pool);
            }
            return Ok(());
        }
        if !pool.may_be_reordered() {
            self.is_stuck = true;
            return Ok(());
        }
        if self.changes.has_filled_part(pool, 1) {
            return Err(ChangesStop::Waits);
        }
        if self.places.is_empty() {
            return self.claim(pool);
        }
        let most = Mover::at_once(pool).min(self.places.len()).min(self.at_once).max(1);
        let (mut blocks, mut alone, mut looked_at) = (Vec::with_capacity(most), Vec::new(), 0);
        let (mut kept, mut missing, mut is_busy) = (self.counts.kept, Missings::default(), false);
        let mut older = 0;
        let slots = self.plan.iter().flat_map(|&(first, blocks)| first..first + blocks).map(Slot);
        for slot in slots {
            if blocks.len() == most
                || missing.are_many(pool)
                || looked_at >= MOVED_AT_ONCE as u64
                || older >= COMPARED_AT_ONCE
            {
                break;
            }
            // Only the search for the first block that lacks a page keeps its position.
            let search = if missing.is_empty() { &mut self.search } else { &mut ReferrerSearch::default() };
            let planned = look_at(pool, repairs, slot, search);
            older += search.take_older();
            let found = match planned {
                Ok(PlannedSlot::Busy) => {
                    is_busy = true;
                    break;
                }
                Ok(found) => found,
                Err(page) if pool.metadata.has_failed(page.key) => PlannedSlot::Unreadable,
                Err(page) => {
                    missing.add(page);
                    continue;
                }
            };
            if !missing.is_empty() {
                // After the first missing page, the loop only collects other missing pages.
                continue;
            }
            looked_at += 1;
            match found {
                PlannedSlot::Block { digest, owner, is_alone } => {
                    // The copy gets no referrer yet where no referrer of the old slot is known.
                    let seen = if owner.is_some() { Entry::whole(slot, digest) } else { Entry::UNMAPPED };
                    let key = owner.unwrap_or(Key(0));
                    blocks.push(Moved { key, seen, from: slot, digest, to: self.places[blocks.len()] });
                    if is_alone {
                        alone.push(slot);
                    }
                }
                PlannedSlot::Nothing => kept.gone += 1,
                PlannedSlot::HasReplica => kept.for_replicas += 1,
                PlannedSlot::Unreadable => kept.unreadable += 1,
                PlannedSlot::Busy => {}
            }
        }
        let waits_for_pages = !missing.is_empty() && (looked_at == 0 || self.loads < LOADS);
        if waits_for_pages {
            // All of it is examined again when the pages are loaded. If pages do not stay long enough, the batch begins with the blocks that have
            // theirs.
            self.loads += 1;
            self.mover.load(pool, missing).map_err(|_| ChangesStop::Waits)?;
            return Ok(());
        }
        if looked_at == 0 && is_busy {
            return self.wait_for_busy(pool);
        }
        let count = blocks.len();
        if count > 0 && !self.mover.begin(pool, &mut blocks) {
            // There are no free buffers: clients hold them.
            self.is_stuck = true;
            return Ok(());
        }
        (self.loads, self.busy_since) = (0, None);
        alone.sort_unstable();
        (self.alone, self.counts.kept) = (alone, kept);
        self.places.drain(..count);
        self.pass(looked_at);
        if count > 0 {
            self.mover.go_on(pool, load);
            self.note_what_came(pool);
        }
        Ok(())
    }

    /// Waits for the next block, which is being read or written; the end of that I/O wakes the engine. After [`PATIENCE`] the block is given up.
    fn wait_for_busy(&mut self, pool: &mut Pool) -> Result<(), ChangesStop> {
        let since = *self.busy_since.get_or_insert(pool.state.now());
        if pool.state.now() < since + PATIENCE {
            self.is_stuck = true;
            return Ok(());
        }
        self.busy_since = None;
        self.counts.kept.unreadable += 1;
        self.pass(1);
        Ok(())
    }

    /// Removes N examined slots from the front of the plan.
    fn pass(&mut self, mut slots: u64) {
        self.counts.looked_at_blocks += slots;
        while slots > 0
            && let Some((first, blocks)) = self.plan.front_mut()
        {
            let passed = slots.min(*blocks);
            (*first, *blocks) = (*first + passed, *blocks - passed);
            slots -= passed;
            if *blocks == 0 {
                self.plan.pop_front();
            }
        }
    }

    /// Claims an empty container as a whole, so that no other writer puts blocks in between.
    fn claim(&mut self, pool: &mut Pool) -> Result<(), ChangesStop> {
        let empty = pool.durable.space_mut().empty_container().filter(|_| pool.has_slots_to_claim());
        let Some(container) = empty else {
            let is_called = pool.durable.space().is_spill_reclaimed();
            if pool.has_slots_to_claim() && (pool.ask_for_fresh() || pool.durable.space_mut().reclaim_spill()) {
                self.is_stuck = true;
                pool.wake_if(pool.durable.space().is_spill_reclaimed() && !is_called);
            } else if !pool.durable.space().pending().is_empty() && !self.has_tried_enough() {
                // Slots that are pending free may be the missing ones.
                self.changes.wait_for_checkpoint(pool);
            } else {
                self.give_up_plan(|kept| &mut kept.no_space);
            }
            return Ok(());
        };
        let slots: Vec<Slot> = pool.durable.space().slots_of(container).map(Slot).collect();
        let mut missing = Missings::default();
        let are_free = slots.iter().all(|&slot| {
            let is_free = missing.or(pool.slot_state(slot)).is_none_or(|state| state == SlotState::Free);
            is_free && pool.may_move_to(slot)
        });
        match self.mover.load(pool, missing) {
            Ok(()) => {}
            Err(mover::MoveStop::Waits) => return Err(ChangesStop::Waits),
            Err(mover::MoveStop::GivenUp) => {
                // The part of the space map for this container cannot be read.
                pool.durable.space_mut().exclude(container);
                return Ok(());
            }
        }
        if !are_free || pool.durable.space_mut().claim(&slots).is_none() {
            self.give_up_plan(|kept| &mut kept.no_space);
            return Ok(());
        }
        pool.forget_wrapped();
        pool.durable.space_mut().note_planned(container);
        self.places.extend(slots);
        Ok(())
    }

    /// Collects the results of a batch, if it has ended.
    pub(super) fn note_what_came(&mut self, pool: &mut Pool) {
        if self.mover.is_in_progress() {
            return;
        }
        let came = self.mover.take_came();
        let has_failed = came.iter().any(|(_, came)| *came == Came::Failed);
        let has_come_far = came.iter().any(|(_, came)| matches!(came, Came::Moved | Came::Copied));
        if has_come_far {
            (self.tries, self.at_once) = (0, self.at_once.saturating_mul(2));
        }
        let is_one = came.len() == 1;
        for &(Moved { from, to, digest, .. }, came) in came.iter().rev() {
            let is_alone = self.alone.binary_search(&from).is_ok() && pool.recent(from).is_none();
            match came {
                Came::Moved => {
                    self.counts.moved_blocks += 1;
                    if !is_alone {
                        self.copies.push(Copied { from, to, digest, is_placed: true });
                    }
                }
                // The block was overwritten meanwhile.
                Came::Copied
                    if pool.proven_digest(from).is_ok_and(|found| found.is_none_or(|(has, _)| has != digest)) =>
                {
                    pool.durable.space_mut().defer_free(to, 0);
                    self.counts.kept.gone += 1;
                }
                Came::Copied => {
                    self.copies.push(Copied { from, to, digest, is_placed: false });
                    self.unplaced += 1;
                }
                Came::Failed if is_one => self.counts.kept.unreadable += 1,
                Came::Failed | Came::Dropped => self.look_again(from),
            }
        }
        if has_failed {
            // The unreadable block is found by bisection.
            self.at_once = if is_one { 1 } else { (came.len() / 2).max(1) };
        } else if !came.is_empty() && !has_come_far {
            self.has_tried_enough();
        }
        self.alone.clear();
        pool.wake();
    }
}

/// Returns the content of a slot of the plan, as far as pages are in memory.
fn look_at(
    pool: &mut Pool,
    repairs: &Repairs,
    slot: Slot,
    search: &mut ReferrerSearch,
) -> Result<PlannedSlot, Missing> {
    if !pool.durable.space().contains(slot) {
        return Ok(PlannedSlot::Nothing);
    }
    if is_busy(pool, repairs, slot) {
        return Ok(PlannedSlot::Busy);
    }
    let Some((digest, owner)) = pool.proven_digest(slot)? else { return Ok(PlannedSlot::Nothing) };
    if pool.copied_from(owner).is_some() {
        return Ok(PlannedSlot::Nothing);
    }
    if pool.hints.replicas.has_any(slot) {
        return Ok(PlannedSlot::HasReplica);
    }
    if repairs.is_lost(slot, digest) {
        return Ok(PlannedSlot::Unreadable);
    }
    let is_alone = is_alone(pool, repairs, slot)?;
    let referrer = match pool.referrer(owner, Entry::whole(slot, digest), search) {
        Ok(key) => key,
        Err(Unresolved::Missing(missing)) if !pool.metadata.has_failed(missing.key) => return Err(missing),
        Err(_) => None,
    };
    Ok(PlannedSlot::Block { digest, owner: referrer, is_alone: is_alone && referrer.is_some() })
}
