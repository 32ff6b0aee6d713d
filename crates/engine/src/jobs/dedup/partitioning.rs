//! External partitioning of the digests (docs/rfc/0015): where a pass has many ranges, it does not scan all summaries for each of them. It scans them
//! once for as many ranges as the spill space can hold, and writes the records there, partitioned by range. The ranges are then read from the spill
//! space. Duplicate slots go back there, partitioned by block.
//!
//! ```text
//! Gather   all summaries, once: each slot in use whose digest is of the partitioning goes into its partition
//! Load     a range: the records of its partition; its duplicate slots are noted
//! Share    these, in block order: after the last range, and before one whose notes may find no space
//! ```
//!
//! The records in the spill space are as old as the Gather stage. That is as good as a summary, since each remap looks up both slots in its own step.
//! But the pass does not see blocks that are moved meanwhile: these are work for another pass.
//!
//! The spill space may be reclaimed, or may not come back as it was written. Then the pass continues with the first range that is not completely
//! shared. It begins another external partitioning, a few times, and then reads the summaries.

use super::partitions::{Partitions, Record, Stored};
use super::range::{DuplicateSlot, FoundSlot, PLACES, Range};
use super::{Back, Dedup, PassStage};
use crate::api::{Digest, Nanos};
use crate::format::entry::{Key, Slot};
use crate::jobs::changes::ChangesStop;
use crate::jobs::dedup::share::may_share;
use crate::jobs::map_walk::LEAVES;
use crate::pool::Pool;
use crate::pool::state::LoadSnapshot;
use crate::repair::Repairs;
use crate::space::SlotState;

/// Number of ranges below which the summaries are scanned for each: an external partitioning reads them once, and writes and reads the records once
/// more.
const LEAST_RANGES: u64 = 4;
/// Divisor of all containers: one in N stays empty beside the spill space, but at least one and at most [`MOST_LEFT`].
const LEFT_ONE_IN: u32 = 64;
const MOST_LEFT: u32 = 8;
/// Bytes for partly filled pages, for each content that a range has space for: about the memory of the range itself.
const BYTES_PER_CONTENT: u64 = 64;
/// Number of times that a pass restarts an external partitioning because it lost its spill space.
const AGAIN: u8 = 3;
/// Records that a step takes in.
const RECORDS: usize = 512;
/// Longest time until noted duplicate slots are shared: a pass that is paused each morning is further each evening.
const SHARE_PERIOD: Nanos = 1_800_000_000_000;
/// Largest number of duplicate slots that are shared at a time: they are sorted in one step.
const MOST_AT_ONCE: usize = 1 << 14;

/// Extent of an external partitioning that fits into the spill space.
struct PartitioningPlan {
    end: u64,
    partitions: usize,
    /// Number of partitions of blocks.
    of_blocks: usize,
}

/// Source of the slots in a range.
pub(super) enum Source {
    /// The summaries are scanned for this range.
    Summaries,
    /// The summaries are scanned for an external partitioning that begins with this range.
    Gather,
    /// The spill space has the range.
    SpillSpace,
    /// Not known yet: space is being reserved for spill space.
    Later,
}

/// External partitionings of this pass.
#[derive(Default)]
pub(super) struct Partitionings {
    /// Place at which the last external partitioning begins.
    pub(super) first: u64,
    /// Place at which the last external partitioning ends.
    end: u64,
    /// Place before which all duplicate slots have been shared.
    pub(super) shared: u64,
    /// Time at which `shared` was set.
    pub(super) since: Nanos,
    /// Number of moved blocks when the first external partitioning began, or when it was last read.
    moved: Option<u64>,
    lost: u8,
}

impl Partitionings {
    /// Returns the number of blocks moved since the pass began its first external partitioning, or since the last call.
    pub fn take_moved(&mut self, pool: &Pool) -> u64 {
        let by_now = pool.placed_blocks();
        self.moved.as_mut().map_or(0, |before| by_now - core::mem::replace(before, by_now))
    }

    /// Returns the progress of a pass, in places, when the Gather stage has scanned `leaf` of `leaves`. That stage is a third of the work.
    pub fn gathered(&self, leaf: u64, leaves: u64) -> u64 {
        self.first + part(self.end - self.first, (leaf, 3 * leaves.max(1)))
    }

    /// Returns the progress of a pass, in places, when ranges up to this place have been read: another third of the work.
    pub fn loaded(&self, place: u64) -> u64 {
        let from_here = |place: u64| place.clamp(self.first, self.end) - self.first;
        self.first + (self.end - self.first + from_here(place) + from_here(self.shared)) / 3
    }

    /// Returns the progress of a pass, in places, while duplicate slots are shared, of which the part `done` is: the last third of the work.
    pub fn sharing(&self, place: u64, done: (u64, u64)) -> u64 {
        self.loaded(place) + part(place.saturating_sub(self.shared), done) / 3
    }
}

/// Returns `done` parts of `all`, divided into `parts`.
fn part(all: u64, (done, parts): (u64, u64)) -> u64 {
    (u128::from(all) * u128::from(done.min(parts)) / u128::from(parts)) as u64
}

impl Record {
    /// Builds the record of a slot from its summary; `None` if the pass does not need it.
    pub(super) fn of(
        pool: &Pool,
        repairs: &Repairs,
        is_behind: bool,
        (slot, state, digest, owner): (Slot, SlotState, Digest, Key),
    ) -> Option<Record> {
        let takes_no_part = !may_share(pool, owner);
        let is_wanted = !takes_no_part || is_behind && pool.copied_from(owner).is_none();
        let (is_shared, generation) = (state == SlotState::Shared, pool.durable.space().generation(slot));
        (state.is_used() && is_wanted && !repairs.is_lost(slot, digest))
            .then_some(Record { found: FoundSlot { slot, digest, owner, is_shared, generation }, takes_no_part })
    }
}

impl Dedup {
    /// Chooses the source of a range that begins at this place, and begins an external partitioning where that pays.
    pub(super) fn source(&mut self, pool: &mut Pool, first: u64) -> Source {
        if self.spill.end_from(first).is_some() {
            return Source::SpillSpace;
        }
        self.spill.give_up(pool);
        if self.partitionings.lost >= AGAIN {
            return Source::Summaries;
        }
        let Some(plan) = self.plan(pool, first) else { return Source::Summaries };
        if plan.end < PLACES && pool.ask_for_fresh() || !self.spill.is_free() {
            return Source::Later;
        }
        let buckets = pool.buckets_behind();
        let block = pool.metadata.geometry().block() as usize;
        let partitions = Partitions::of_digests(first, plan.end, plan.partitions, block, buckets);
        self.spill.begin(pool, partitions, plan.of_blocks);
        let moved = self.partitionings.moved.or(Some(pool.placed_blocks()));
        self.partitionings =
            Partitionings { first, end: plan.end, shared: first, since: pool.state.now(), moved, ..self.partitionings };
        Source::Gather
    }

    /// Returns the end of an external partitioning from this place on, and its partitions; `None` if there is no space for one, or it is not worth it.
    fn plan(&self, pool: &Pool, first: u64) -> Option<PartitioningPlan> {
        let geometry = pool.metadata.geometry();
        let space = Self::space(pool);
        let range = Range::new(first, pool.durable.space().data_used(), space);
        let width = range.end - range.first;
        let most = (space as u64 * BYTES_PER_CONTENT / geometry.block()).max(LEAST_RANGES);
        let containers = pool.durable.space().lendable().saturating_sub(Self::left_empty(pool));
        let pages = u64::from(containers) * u64::from(geometry.slots_per_container);
        // Each partition has a partly filled page. One sixteenth more is for partitions that exceed their share.
        let blocks = |places: u64| ((u128::from(pool.durable.space().data_used()) * u128::from(places)) >> 32) as u64;
        let pages_of = |blocks: u64, per_page: usize| (blocks * 17 / 16).div_ceil(per_page as u64);
        let block = geometry.block() as usize;
        let duplicates = pages_of(blocks(width.max((PLACES - first) / most)), DuplicateSlot::per_page(block));
        let needed = |places: u64| {
            let partitions = places.div_ceil(width).min(most);
            pages_of(blocks(places), Record::per_page(block)) + partitions + duplicates
        };
        let mut places = PLACES - first;
        while needed(places) > pages && places >= width {
            places -= (places / 16).max(1);
        }
        let partitions = places.div_ceil(width);
        let of_blocks = (pool.durable.space().data_used() / Self::at_once(pool) as u64).clamp(1, most) as usize;
        let plan = PartitioningPlan { end: first + places, partitions: partitions.min(most) as usize, of_blocks };
        // Containers that can be reserved may make it wider.
        let may_be_wider = || (PLACES - first).div_ceil(width) >= LEAST_RANGES && pool.may_reserve();
        (partitions >= LEAST_RANGES || plan.end < PLACES && may_be_wider()).then_some(plan)
    }

    /// Returns the number of containers that stay empty beside the spill space.
    pub(super) fn left_empty(pool: &Pool) -> u32 {
        (pool.metadata.geometry().containers / LEFT_ONE_IN).clamp(1, MOST_LEFT)
    }

    /// Gives up the spill space, which is reclaimed or has failed: the pass continues without it.
    pub(super) fn lose_spill(&mut self, pool: &mut Pool) {
        self.spill.give_up(pool);
        self.partitionings.lost += 1;
        self.verify.clear();
        match self.at {
            PassStage::Begin | PassStage::Scan(_) | PassStage::End => return,
            // After a checkpoint, duplicates that have just been shared are not found again.
            PassStage::Share(..) | PassStage::Maps(_, Back::Share(..)) => self.changes.wait_for_checkpoint(pool),
            _ => {}
        }
        // Duplicates that were found and not shared are found again.
        let from = self.partitionings.shared;
        self.duplicates.clear();
        self.in_order = 0;
        // A walk of the maps that is in progress continues.
        match &mut self.at {
            PassStage::Maps(_, back) => *back = Back::Next(from),
            at => *at = PassStage::Next(from),
        }
        self.forget_from(from);
        pool.wake();
    }

    /// Scans some leaves of summaries for the partitioning.
    pub(super) fn gather(
        &mut self,
        pool: &mut Pool,
        repairs: &Repairs,
        load: &LoadSnapshot,
    ) -> Result<(), ChangesStop> {
        let PassStage::Gather(mut leaf) = self.at else { return Ok(()) };
        let leaves = pool.metadata.geometry().summary_leaves();
        let is_behind = pool.buckets_behind().is_some();
        for _ in 0..if pool.is_at_full_speed(load) { LEAVES } else { 1 } {
            if self.spill.has_failed() {
                self.lose_spill(pool);
                return Ok(());
            }
            if leaf >= leaves {
                if !self.spill.finish(pool) {
                    return if self.spill.has_failed() { Ok(()) } else { Err(ChangesStop::Waits) };
                }
                self.scans += 1;
                self.at = PassStage::Next(self.partitionings.first);
                return Ok(());
            }
            if !self.spill.write(pool) {
                return if self.spill.has_failed() { Ok(()) } else { Err(ChangesStop::Waits) };
            }
            let (spill, looked_at) = (&mut self.spill, &mut self.looked_at);
            leaf = pool.each_owned_block_of_leaf(leaf, |pool, slot, state, digest, owner| {
                *looked_at += 1;
                if let Some(record) = Record::of(pool, repairs, is_behind, (slot, state, digest, owner)) {
                    spill.push(&record);
                    if !record.takes_no_part {
                        // As in a scan: later the slot may hold another content.
                        pool.hints.index.offer(
                            pool.sharing_digest(digest),
                            slot,
                            pool.durable.space().generation(slot),
                        );
                    }
                }
            })?;
            self.at = PassStage::Gather(leaf);
        }
        Ok(())
    }

    /// Begins to read the next range from the spill space.
    pub(super) fn load_from(&mut self, pool: &mut Pool, first: u64) {
        self.range.go_on(first, pool.durable.space().data_used(), Self::space(pool));
        if let Some(end) = self.spill.end_from(first) {
            // A range with too many contents gets narrower automatically.
            let twice = 2 * (self.range.end - first);
            self.range.end = end.min(first + twice);
        }
        self.spill.read_from(first);
        // Index changes since the Gather stage count for all remaining ranges.
        self.catch_up.rest();
        pool.watch_disk_index_from(first << 32);
        self.at = PassStage::Load;
    }

    /// Takes in some records of the range from the spill space, and notes duplicate slots.
    pub(super) fn load(&mut self, pool: &mut Pool, repairs: &Repairs, load: &LoadSnapshot) -> Result<(), ChangesStop> {
        for _ in 0..if pool.is_at_full_speed(load) { LEAVES } else { 1 } {
            if self.spill.has_failed() {
                self.lose_spill(pool);
                return Ok(());
            }
            if !self.spill.write(pool) {
                return if self.spill.has_failed() { Ok(()) } else { Err(ChangesStop::Waits) };
            }
            if self.spill.read(pool) {
                self.at = PassStage::Index;
                return Ok(());
            }
            let mut taken = 0;
            while taken < RECORDS
                && let Some(record) = self.spill.next::<Record>()
            {
                if self.range.has(record.found.digest) && !repairs.is_lost(record.found.slot, record.found.digest) {
                    self.take_in(&record);
                    self.duplicates.drain(..).for_each(|duplicate| self.spill.push_duplicate(&duplicate));
                }
                taken += 1;
            }
            if taken == 0 {
                return Err(ChangesStop::Waits);
            }
            self.looked_at += taken as u64;
        }
        Ok(())
    }

    /// Returns true if noted duplicate slots must be shared before the range at this place: there may be no space for more, or they have waited too
    /// long.
    pub(super) fn is_to_share_before(&self, pool: &Pool, first: u64) -> bool {
        let is_due = pool.state.now() >= self.partitionings.since + SHARE_PERIOD;
        self.spill.duplicates() > 0 && (is_due || !self.spill.has_space_from(pool, first, Self::left_empty(pool)))
    }

    /// Returns the largest number of duplicate slots that are shared together, in block order.
    fn at_once(pool: &Pool) -> usize {
        Self::batch(pool).min(MOST_AT_ONCE)
    }

    /// Begins to share duplicate slots before the pass continues from this place.
    pub(super) fn begin_sharing(&mut self, next: u64) {
        self.spill.end_reading();
        self.at = PassStage::Finish(next);
    }

    /// Writes noted duplicate slots as far as necessary; then their sharing begins.
    pub(super) fn finish_spares(&mut self, pool: &mut Pool) -> Result<(), ChangesStop> {
        let PassStage::Finish(next) = self.at else { return Ok(()) };
        if self.spill.has_failed() {
            self.lose_spill(pool);
        } else if self.spill.finish(pool) {
            self.at = PassStage::Share(self.spill.read_spares_from(0), next);
        } else if !self.spill.has_failed() {
            return Err(ChangesStop::Waits);
        }
        Ok(())
    }

    /// Shares some of the noted duplicate slots, in block order.
    pub(super) fn share_noted(
        &mut self,
        pool: &mut Pool,
        repairs: &Repairs,
        load: &LoadSnapshot,
    ) -> Result<(), ChangesStop> {
        for _ in 0..if pool.is_at_full_speed(load) { LEAVES } else { 1 } {
            let PassStage::Share(partition, next) = self.at else { return Ok(()) };
            if self.spill.has_failed() {
                self.lose_spill(pool);
                return Ok(());
            }
            if self.unresolved.len() >= Self::batch(pool) {
                self.begin_maps(Back::Share(partition, next));
                return Ok(());
            }
            if partition.is_none() || self.in_order > 0 || self.duplicates.len() >= Self::at_once(pool) {
                let are_all = self.share_spares(pool, repairs, load)?;
                if are_all && partition.is_none() {
                    self.spill.forget_spares();
                    self.go_on_from(pool, next);
                } else if are_all && self.replaced.len() >= Self::batch(pool) {
                    // Later duplicates of these contents may name canonical slots that are gone.
                    self.backlog.note(pool.state.now(), self.replaced.len() as u64);
                    self.forget_replaced();
                }
                return Ok(());
            }
            let is_read = self.spill.read(pool);
            let mut taken = 0;
            while taken < RECORDS
                && let Some(duplicate) = self.spill.next::<DuplicateSlot>()
            {
                self.duplicates.push(duplicate);
                taken += 1;
            }
            self.looked_at += taken as u64;
            match partition {
                Some(partition) if is_read => {
                    self.at = PassStage::Share(self.spill.read_spares_from(partition + 1), next)
                }
                _ if taken == 0 => return Err(ChangesStop::Waits),
                _ => {}
            }
        }
        Ok(())
    }
}
