//! Garbage collection: empties the emptiest containers while the pool is idle. So sequential writes find whole containers, and a region that has lost
//! its row has a place to be put in order (`defrag/`). RFC 0012.
//!
//! ```text
//! Begin    fewer whole empty containers than the low watermark (pool/moves.rs), or a region waits for one
//! Settle   a checkpoint, and all of the map buffer in its leaves: overwritten and moved slots are free by now
//! Survey   chooses the emptiest containers, and the ones that take their blocks: space/evacuation.rs
//! Look     finds the owners of the blocks of an evacuated container. The summary names the block for which each was first written, and the map
//!          says if that block still maps here. A block that is shared, or whose owner is not found, stays, and so does all of its container:
//!          that is not tried again until some of its slots have become free
//! Weigh    a container whose blocks lie in order stays if the free slots that would take them are scattered: readers would lose more than they gain
//! Move     its blocks, in order of volume and place, into free slots of the containers that take them (mover.rs), a batch at a time
//! Judge    after the next settling: a container whose slots are all free has been emptied. The evacuation ends
//! End      at the high watermark, or when nothing more can be emptied: then it rests until some slots have become free
//! ```
//!
//! It owns the evacuations and the list of containers that it has tried. Invariants:
//!
//! - An evacuated container gets no new blocks, from any writer. It is reclaimed for writes that find no other slot; the job then looks again.
//! - All moves share one budget and one mover at a time, and run only while no request waits for space or buffers.
//! - Regions that can be defragmented without an empty container do so first: moved blocks fill the slots to which they would return.
//!
//! Termination, without reads and writes of clients. Defragmentation makes a bounded number of batches (`defrag/`): a region that waits is brought back
//! only for an empty container that it can get, one region for each. Between two batches this job moves a block only to a container in which no fewer
//! slots are in use. So the sum of the squares of the used slots of each container grows with every block, and it has a maximum. A container that stays,
//! for its shared blocks or for their order, is not tried again in the same state. And the job rests until slots have become free, which takes moves.
//! RFC 0012, "Why both end".

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::mover::{Missings, MoveStop, Moved, Mover, is_alone};
use crate::api::*;
use crate::format::entry::{Entry, Slot};
use crate::jobs::job::{Job, JobContext, JobId};
use crate::metadata::tree::{LastLeaf, Missing, Unresolved};
use crate::mutant::Mutant;
use crate::pool::Pool;
use crate::pool::resolve::{COMPARED_AT_ONCE, ReferrerSearch};
use crate::pool::state::LoadSnapshot;
use crate::repair::Repairs;
use crate::space::SlotState;
use crate::space::evacuation::{EvacuationPlan, Survey};

/// Largest number of containers emptied between two settlings.
const CONTAINERS: usize = 1024;
/// Divisor of the delta: the job settles when changes take one part in N, so that background work does not press the foreground.
const PART_OF_DELTA: u64 = 4;
/// Factor by which the pieces of a container's blocks may grow when they are moved.
const MOST_PIECES: usize = 2;
/// Number of tried containers at which no others are chosen to be emptied, until the list is cleared.
const TRIED: usize = 4096;
/// Divisor of all slots: tried containers are forgotten when one slot in N has become free since.
const FORGET_AFTER: u64 = 16;
/// Divisor of all slots: the job rests until half a container's slots have become free, or one slot in N.
const REST_UNTIL: u64 = 64;

/// State and counts of garbage collection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct GcStatus {
    /// Containers of which every slot is free now.
    pub empty_containers: u64,
    /// Containers that were emptied since the pool was opened.
    pub emptied_containers: u64,
    /// Blocks that were moved out of containers to empty them, since the pool was opened.
    pub moved_blocks: u64,
    /// True if there is work as soon as the pool is idle.
    pub is_due: bool,
}

/// A container that is being emptied.
struct Victim {
    container: u32,
    /// Slot that is examined next.
    next: u64,
    /// Blocks that have not been moved; the last one is moved next.
    left: Vec<Moved>,
    /// True if its blocks may move to the slots that were found for them.
    is_weighed: bool,
}

/// Content of a slot.
enum SlotContent {
    /// Nothing that has to be moved: the slot is free, or its content has been overwritten.
    Nothing,
    /// A block that can be moved.
    Block(Moved),
    /// A content that stays.
    Stays,
}

/// The garbage collection job.
pub(crate) struct Gc {
    mover: Mover,
    /// True between the low and the high watermark.
    is_running: bool,
    /// True if the job continues once all freed slots are free.
    settles: bool,
    /// Number of completed checkpoints that includes the one that it requested.
    begins: u64,
    /// Number of mappings in the map buffer at that request: if as many are left, there is no space to flush them.
    buffered: Option<usize>,
    survey: Option<Survey>,
    /// Containers to be emptied, and to be filled; the last of each is next.
    partition: EvacuationPlan,
    victim: Option<Victim>,
    search: ReferrerSearch,
    /// Containers emptied as far as is known: they stay evacuated until that has settled.
    moved_out: Vec<u32>,
    /// Number of moved blocks at the last settling.
    settled_at: u64,
    /// Containers that were tried, each with its number of free slots at that time.
    tried: BTreeMap<u32, u16>,
    /// Number of slots ever given back when the list of tried containers was cleared last.
    tried_since: u64,
    /// Number of slots ever given back, or pending free, when nothing could be emptied.
    rests: Option<u64>,
    /// Number of empty containers at which a region that waits for one got none: they are open, or being evacuated.
    unusable: Option<u32>,
    emptied: u64,
}

impl Gc {
    pub(crate) fn new() -> Gc {
        Gc {
            mover: Mover::new(JobId::Gc),
            is_running: false,
            settles: false,
            begins: 0,
            buffered: None,
            survey: None,
            partition: EvacuationPlan::default(),
            victim: None,
            search: ReferrerSearch::default(),
            moved_out: Vec::new(),
            settled_at: 0,
            tried: BTreeMap::new(),
            tried_since: 0,
            rests: None,
            unusable: None,
            emptied: 0,
        }
    }

    /// Returns the state and counts of garbage collection.
    pub(crate) fn status(&self, pool: &Pool) -> GcStatus {
        GcStatus {
            empty_containers: pool.durable.space().empty_containers().into(),
            emptied_containers: self.emptied,
            moved_blocks: self.mover.moved(),
            is_due: self.mover.is_in_progress() || self.is_due(pool) || self.may_end_a_wait(pool),
        }
    }

    /// Returns true if containers should be emptied, and may be.
    fn is_due(&self, pool: &Pool) -> bool {
        let empty = u64::from(pool.durable.space().empty_containers());
        let is_wanted = self.is_running || pool.regions().aside() > 0 || pool.is_below_low_water(empty);
        let has_slots = || self.is_running || pool.has_slots_to_move();
        is_wanted && has_slots() && !self.rests(pool) && pool.may_be_reordered() && pool.may_move() > 0
    }

    /// Returns true if there may be an empty container for a region that waits for one.
    fn may_end_a_wait(&self, pool: &Pool) -> bool {
        pool.regions().aside() > 0
            && self.unusable != Some(pool.durable.space().empty_containers())
            && pool.may_move_for_order()
    }

    /// Returns true if too few slots have been given back since nothing could be emptied.
    fn rests(&self, pool: &Pool) -> bool {
        let geometry = pool.metadata.geometry();
        let freed = u64::from(geometry.slots_per_container / 2).max(geometry.slots() / REST_UNTIL);
        self.rests.is_some_and(|since| pool.durable.space().given_back() < since + freed)
    }

    fn is_evacuating_any(&self) -> bool {
        self.victim.is_some() || !self.moved_out.is_empty()
    }
}

impl Job for Gc {
    type Work<'a> = JobContext<'a>;

    fn is_in_progress(&self) -> bool {
        self.mover.is_in_progress()
    }

    #[inline]
    fn can_step(&self, pool: &Pool, _: &LoadSnapshot) -> bool {
        (self.is_due(pool) || self.may_end_a_wait(pool))
            && !self.mover.is_in_progress()
            && (pool.regions().scattered() == 0 || !pool.may_move_for_order())
            && pool.checkpoint.done() >= self.begins
    }

    #[inline]
    fn can_advance(&self) -> bool {
        self.mover.is_in_progress() || self.is_evacuating_any()
    }

    /// Advances a batch to its end, even if the pool is no longer idle. Ends all evacuations when no more blocks may be moved.
    fn advance(&mut self, work: &mut JobContext<'_>) {
        if self.mover.is_in_progress() {
            self.mover.go_on(work.pool, &work.load);
        } else if !self.is_due(work.pool) {
            self.stop(work.pool);
        }
    }

    fn step(&mut self, work: &mut JobContext<'_>) {
        let JobContext { pool, repairs, load } = work;
        if load.writes_blocked || load.out_of_buffers || self.mover.is_loading(pool) {
            return;
        }
        if self.may_end_a_wait(pool) {
            if pool.durable.space_mut().empty_container().is_some() {
                pool.regions_mut().bring_back();
                return pool.wake();
            }
            self.unusable = Some(pool.durable.space().empty_containers());
        }
        if !self.is_due(pool) {
            return;
        }
        if !self.is_running {
            (self.is_running, self.settles, self.rests) = (true, true, None);
            self.forget_tried(pool);
        }
        if self.settles {
            return self.settle(pool);
        }
        let mut waits = false;
        if let Some(victim) = self.victim.take() {
            waits = self.empty(pool, repairs, load, victim) == Err(MoveStop::Waits);
        } else if let Some(container) = self.partition.next_emptied() {
            self.begin(pool, container);
        } else {
            self.survey(pool);
        }
        // Unless it waits for pages, it continues at once.
        pool.wake_if(!waits);
    }

    /// Returns true: the event that the job waits for wakes the engine.
    fn is_stuck(&self, _: &Pool) -> bool {
        true
    }

    fn done(
        &mut self,
        work: &mut JobContext<'_>,
        part: u32,
        segments: &[Segment],
        result: Result<Outcome<'_>, IoError>,
    ) {
        self.mover.done(work.pool, part, segments, result);
    }

    fn holds(&self, slot: Slot) -> bool {
        self.mover.holds(slot)
    }
}

impl Gc {
    // ---- between two settlings ----

    /// Asks for checkpoints that flush, until all freed slots are free.
    fn settle(&mut self, pool: &mut Pool) {
        // Pending slots become free automatically within a second.
        if !pool.durable.space().pending().is_empty() {
            return;
        }
        let flushes =
            pool.has_to_flush() && self.buffered.is_none_or(|before| pool.durable.map_buffer().len() < before);
        if !pool.durable.delta().is_empty() || flushes {
            self.buffered = Some(pool.durable.map_buffer().len());
            pool.ask_to_flush();
            self.begins = pool.after_next_checkpoint();
            pool.wake();
        } else {
            (self.settles, self.buffered) = (false, None);
            self.judge(pool);
        }
    }

    /// Ends the evacuation of containers moved out of, once all freed slots are free, and counts the empty ones. Open containers with many freed slots are
    /// closed, to be emptied as well.
    fn judge(&mut self, pool: &mut Pool) {
        self.settled_at = self.mover.moved();
        pool.durable.space_mut().close_grown();
        let mut emptied = 0;
        for container in self.moved_out.drain(..) {
            if pool.mutant(Mutant::EmptiedUnseen) && !pool.durable.space().is_empty(container) {
                pool.durable.space_mut().open_as_if_empty(container);
            } else if pool.durable.space_mut().end_evacuation(container) && pool.durable.space().is_empty(container) {
                emptied += 1;
            }
        }
        self.emptied += emptied;
        self.unusable = None;
        // An empty container may be open or out of reach: waiters go by the containers that they can get.
        let is_enough =
            u64::from(pool.durable.space().empty_containers()) >= pool.high_water() && pool.regions().aside() == 0;
        if is_enough && self.victim.is_none() {
            self.stop(pool);
        }
        pool.wake();
    }

    /// Finds containers to be emptied, a step at a time.
    fn survey(&mut self, pool: &mut Pool) {
        // Blocks moved since would be examined as if they were still in their old slots.
        if self.settled_at != self.mover.moved() || !self.moved_out.is_empty() {
            self.settles = true;
            return;
        }
        let mut survey = self.survey.take().unwrap_or_default();
        let is_on_flash = |container| pool.flash().is_some_and(|flash| flash.has(container));
        if !pool.durable.space().look_further(&mut survey, is_on_flash) {
            self.survey = Some(survey);
            return;
        }
        let empty = u64::from(pool.durable.space().empty_containers());
        let wanted = pool.high_water().saturating_sub(empty).max(1).min(CONTAINERS as u64) as usize;
        let tried = &self.tried;
        let is_new = |container, free| tried.len() < TRIED && tried.get(&container) != Some(&free);
        self.partition = survey.divide(pool.metadata.geometry().slots_per_container, wanted, pool.may_move(), is_new);
        if self.partition.is_over() {
            self.rest(pool);
        }
    }

    /// Pauses the job, as nothing more can be emptied for now. Pending slots count as given back: they may be the target slots of blocks that could
    /// not be moved, and would end each pause at once.
    fn rest(&mut self, pool: &mut Pool) {
        self.stop(pool);
        self.rests = Some(pool.durable.space().given_back() + pool.durable.space().pending().len() as u64);
        pool.regions_mut().return_aside();
    }

    /// Begins to evacuate a container, and notes it as tried.
    fn begin(&mut self, pool: &mut Pool, container: u32) {
        self.tried.insert(container, pool.durable.space().free_in(container));
        if pool.durable.space_mut().begin_evacuation(container) {
            let next = pool.durable.space().slots_of(container).start;
            self.victim = Some(Victim { container, next, left: Vec::new(), is_weighed: false });
        }
    }

    /// Ends the job's work for now, and all its evacuations.
    fn stop(&mut self, pool: &mut Pool) {
        let victim = self.victim.take().map(|victim| victim.container);
        for container in self.moved_out.drain(..).chain(victim) {
            pool.durable.space_mut().end_evacuation(container);
        }
        (self.is_running, self.settles, self.survey, self.unusable) = (false, false, None, None);
        self.partition = EvacuationPlan::default();
    }

    /// Clears the list of tried containers when many slots have become free since.
    fn forget_tried(&mut self, pool: &Pool) {
        let given_back = pool.durable.space().given_back();
        if given_back >= self.tried_since + pool.metadata.geometry().slots() / FORGET_AFTER {
            self.tried.clear();
            self.tried_since = given_back;
        }
    }

    // ---- a container ----

    /// Examines the evacuated container, or begins to move some of its blocks.
    fn empty(
        &mut self,
        pool: &mut Pool,
        repairs: &Repairs,
        load: &LoadSnapshot,
        mut victim: Victim,
    ) -> Result<(), MoveStop> {
        if !pool.durable.space().is_evacuating(victim.container) {
            // It has been reclaimed for writes: there is no space to move anything.
            self.partition = EvacuationPlan::default();
            return Ok(());
        }
        if victim.next < pool.durable.space().slots_of(victim.container).end {
            let looked = self.look(pool, repairs, &mut victim);
            if looked == Err(MoveStop::GivenUp) {
                pool.durable.space_mut().end_evacuation(victim.container);
            } else {
                self.victim = Some(victim);
            }
            return looked;
        }
        if victim.left.is_empty() {
            self.moved_out.push(victim.container);
            return Ok(());
        }
        if !victim.is_weighed {
            match self.places(pool, victim.left.len()) {
                Err(stop) => {
                    self.victim = Some(victim);
                    return Err(stop);
                }
                Ok((places, _)) if breaks_order(pool, &victim.left, &places) => {
                    pool.durable.space_mut().end_evacuation(victim.container);
                    return Ok(());
                }
                Ok(_) => victim.is_weighed = true,
            }
        }
        let has_much_to_settle =
            pool.durable.delta().len() as u64 * PART_OF_DELTA >= u64::from(pool.limits.delta_entries);
        if has_much_to_settle || !pool.has_slots_to_move() {
            self.victim = Some(victim);
            match self.settled_at == self.mover.moved() && pool.durable.delta().is_empty() {
                true => self.rest(pool),
                false => self.settles = true,
            }
            return Ok(());
        }
        let most = Mover::most(pool).min(victim.left.len());
        let places = match self.places(pool, most) {
            Err(stop) => {
                self.victim = Some(victim);
                return Err(stop);
            }
            Ok((places, used_up)) => {
                (0..used_up).for_each(|_| self.partition.end_filled());
                places
            }
        };
        let mut blocks = victim.left.split_off(victim.left.len() - places.len());
        blocks.reverse();
        blocks.iter_mut().zip(&places).for_each(|(block, &place)| block.to = place);
        let has_places = !blocks.is_empty();
        self.victim = Some(victim);
        if has_places && self.mover.begin(pool, &mut blocks) {
            self.mover.go_on(pool, load);
        } else if has_places {
            // There are no free buffers.
            self.rest(pool);
        } else {
            // Others have taken the target slots: the survey is repeated.
            self.moved_out.extend(self.victim.take().map(|victim| victim.container));
            self.partition = EvacuationPlan::default();
        }
        Ok(())
    }

    /// Examines the slots of a container, as far as pages are in memory. Returns `GivenUp` if some of it stays.
    fn look(&mut self, pool: &mut Pool, repairs: &Repairs, victim: &mut Victim) -> Result<(), MoveStop> {
        let end = pool.durable.space().slots_of(victim.container).end;
        let (mut missing, mut older) = (Missings::default(), 0);
        for slot in victim.next..end {
            if older >= COMPARED_AT_ONCE {
                break;
            }
            // Only the search for the first block that lacks a page keeps its position.
            let search = if missing.is_empty() { &mut self.search } else { &mut ReferrerSearch::default() };
            let found = missing.or(look_at(pool, repairs, Slot(slot), search));
            older += search.take_older();
            match found {
                Some(SlotContent::Stays) => return Err(MoveStop::GivenUp),
                _ if !missing.is_empty() => {
                    if missing.are_many(pool) {
                        break;
                    }
                }
                Some(SlotContent::Block(block)) => {
                    victim.left.push(block);
                    victim.next = slot + 1;
                }
                _ => victim.next = slot + 1,
            }
        }
        self.mover.load(pool, missing)?;
        victim.left.sort_unstable_by_key(|block| core::cmp::Reverse(block.key));
        Ok(())
    }

    /// Returns free slots of the containers to be filled, in order, for at most `most` blocks, and the number of containers that have none beyond these.
    fn places(&mut self, pool: &mut Pool, most: usize) -> Result<(Vec<Slot>, usize), MoveStop> {
        let (mut places, mut missing, mut leaf) = (Vec::new(), Missings::default(), LastLeaf::default());
        let mut used_up = 0;
        for container in self.partition.filled() {
            for slot in pool.durable.space().slots_of(container).map(Slot) {
                if places.len() < most
                    && pool.may_move_to(slot)
                    && missing.or(pool.slot_state_after(slot, &mut leaf)) == Some(SlotState::Free)
                {
                    places.push(slot);
                }
            }
            if places.len() == most || !missing.is_empty() {
                break;
            }
            used_up += 1;
        }
        let loaded = self.mover.load(pool, missing);
        if loaded == Err(MoveStop::GivenUp) {
            // Containers are not filled whose slots cannot be read.
            (0..=used_up).for_each(|_| self.partition.end_filled());
        }
        loaded.map(|()| (places, used_up))
    }
}

/// Returns true if blocks that lie in few pieces, with consecutive blocks in consecutive slots, would lie in many more in these places. The last block
/// goes to the first place. Blocks of regions that are scattered do not count: these regions are put in order as a whole.
fn breaks_order(pool: &Pool, left: &[Moved], places: &[Slot]) -> bool {
    let (mut before, mut after) = (1, 1);
    let mut last: Option<(&Moved, Slot)> = None;
    for (block, &at) in left.iter().rev().zip(places) {
        if pool.regions().is_scattered(block.key) {
            continue;
        }
        let follows = |(one, _): &(&Moved, Slot)| block.key.0 == one.key.0 + 1;
        let follower = last.replace((block, at)).filter(follows);
        before += usize::from(follower.is_none_or(|(one, _)| block.from.0 != one.from.0 + 1));
        after += usize::from(follower.is_none_or(|(_, place)| at.0 != place.0 + 1));
    }
    after > MOST_PIECES * before
}

/// Returns the content of a slot of an evacuated container.
fn look_at(
    pool: &mut Pool,
    repairs: &Repairs,
    slot: Slot,
    search: &mut ReferrerSearch,
) -> Result<SlotContent, Missing> {
    if pool.recent(slot).is_none() {
        match pool.slot_state(slot)? {
            // A merge settles held slots; a slot that is not free by then is found when the container is judged.
            SlotState::Free | SlotState::Held => return Ok(SlotContent::Nothing),
            SlotState::Single => {}
            SlotState::Shared => return Ok(SlotContent::Stays),
        }
    }
    let Some((digest, owner)) = pool.proven_digest(slot)? else { return Ok(SlotContent::Nothing) };
    // The job that makes replicas unmaps a dropped one.
    if pool.drop_replica(owner, slot) {
        return Ok(SlotContent::Nothing);
    }
    if pool.copied_from(owner).is_some() || !is_alone(pool, repairs, slot)? {
        return Ok(SlotContent::Stays);
    }
    let seen = Entry::whole(slot, digest);
    match pool.referrer(owner, seen, search) {
        Ok(Some(key)) => Ok(SlotContent::Block(Moved { key, seen, from: slot, digest, to: slot })),
        // The block was overwritten, and its leaf does not show that yet.
        Ok(_) if pool.unflushed(owner).is_some() => Ok(SlotContent::Nothing),
        Ok(_) | Err(Unresolved::Damaged) => Ok(SlotContent::Stays),
        Err(Unresolved::Missing(missing)) if pool.metadata.has_failed(missing.key) => Ok(SlotContent::Stays),
        Err(Unresolved::Missing(missing)) => Err(missing),
    }
}
