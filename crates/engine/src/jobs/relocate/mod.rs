//! The run of a plan: blocks that are read together are put next to each other, shared ones with all who refer to them
//! (docs/rfc/0014-relocation-run.md). What lies where is decided before, by `relocation/`; here are slots in an order.
//!
//! ```text
//! Gather   some blocks of the plan, in its order, and whose they are (gather.rs)
//! Move     into containers that are claimed whole; then the block leads there for which each was first written (jobs/mover.rs)
//! Begin    a checkpoint: the map buffer is in its leaves
//! Walk     all maps, once for all copies so far: who leads to an old slot leads to its copy from then on (walk.rs)
//! Settle   a checkpoint: old slots that nobody leads to are free. Those that are not are walked for again, a few times
//! ```
//!
//! It owns the plan, the places that it has claimed and not filled, and the table of copies of shared blocks. What must hold:
//!
//! - It frees no slot that a map may lead to: an old slot goes when its count is zero, as for any write. So who is missed keeps what he had.
//! - A block is led elsewhere only while it leads to the old slot, and while both hold the same: looked up and changed in one step.
//! - A place is filled and durable before a block leads there. Where writes wait for room, all places that nobody leads to are given back.
//! - Changes between two syncs are bounded, and it keeps to a part of the delta (jobs/changes.rs).
//! - Nothing of it is on disk: a crash ends the run. What has been moved by then is where it is; what has been copied may be there twice.

mod gather;
mod walk;

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::changes::{Changes, Stop};
use super::map_walk::Maps;
use super::mover::Mover;
use super::{Job, Steps, Work};
use crate::api::*;
use crate::format::entry::Slot;
use crate::format::superblock::PassState;
use crate::metadata::page_cache::PageKey;
use crate::pool::Pool;
use crate::pool::standing::{Facts, Phase};
use crate::sizes::list_bytes;

/// Rows of slots that a plan has at most.
pub const MOST_EXTENTS: usize = 1 << 16;
/// Times in a row that something comes between before what is left of the plan is left as it is.
const TRIES: u32 = 64;

/// Blocks of a plan that stay where they are, by the reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Kept {
    /// Their slots hold nothing any more, or nothing of a volume: they were overwritten since the profile.
    pub gone: u64,
    /// They have replicas, which other readers use.
    pub for_replicas: u64,
    /// They could not be read, or their pages could not.
    pub unreadable: u64,
    /// There was no empty container, or no metadata.
    pub no_room: u64,
    /// The run was stopped.
    pub stopped: u64,
}

/// How the last run goes, or went.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RelocateStatus {
    /// Whether one is under way.
    pub state: PassState,
    /// Blocks of the plan,
    pub planned_blocks: u64,
    /// those that have been looked at,
    pub looked_at_blocks: u64,
    /// and those that have been moved.
    pub moved_blocks: u64,
    /// Blocks of volumes that lead to a copy because a walk found them, beside the first of each.
    pub referrers: u64,
    /// Walks of all maps.
    pub map_walks: u64,
    /// Copies whose old slots are still in use after all walks: so many more blocks are stored than before.
    pub doubled_blocks: u64,
    /// Blocks that stay where they are.
    pub kept: Kept,
    /// Of a million parts of the run, those that are done.
    pub done_ppm: u32,
    /// Seconds until its end at the pace so far, if that is known.
    pub left_seconds: Option<u64>,
    /// It rests because metadata is short.
    pub is_short_of_room: bool,
}

/// A shared block that has been copied.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Copied {
    from: Slot,
    to: Slot,
    digest: Digest,
    /// A block leads to the copy. Until then the copy's slot is claimed, and in nobody's map.
    is_placed: bool,
}

/// Where a run is.
enum At {
    Gather,
    /// The walk begins when the checkpoint has come that it waits for.
    Begin,
    Walk(Maps),
    /// So many checkpoints have been waited for since the walk; and the copies before this one are to be judged.
    Settle {
        waited: u32,
        left: Option<usize>,
    },
}

/// The job.
pub(crate) struct Relocate {
    mover: Mover,
    state: PassState,
    at: At,
    /// Rows of slots that are left.
    plan: VecDeque<(u64, u64)>,
    /// Slots that are claimed and not filled, in order.
    places: VecDeque<Slot>,
    /// Slots of the batch that one block leads to, in order.
    alone: Vec<Slot>,
    /// In the order of their old slots while maps are walked.
    copies: Vec<Copied>,
    /// Those of them to which nothing leads.
    unplaced: usize,
    /// Walks for the copies of the table.
    again: u32,
    /// Blocks of a batch at most: fewer after one that could not be read, until the bad one has been found.
    at_once: usize,
    /// Times in a row that something came between.
    tries: u32,
    /// Times in a row that pages were loaded for the same blocks.
    loads: u32,
    /// Since when the next block is being read or written by others.
    busy_since: Option<Nanos>,
    /// What is left of the plan is left as it is.
    is_stopping: bool,
    changes: Changes,
    waiting: Option<PageKey>,
    is_stuck: bool,
    /// When it began, or went on.
    pace: Option<(u64, Nanos)>,
    counts: RelocateStatus,
}

impl Relocate {
    pub(crate) fn new() -> Relocate {
        Relocate {
            mover: Mover::for_shared(Job::Relocate),
            state: PassState::Never,
            at: At::Gather,
            plan: VecDeque::new(),
            places: VecDeque::new(),
            alone: Vec::new(),
            copies: Vec::new(),
            unplaced: 0,
            again: 0,
            at_once: usize::MAX,
            tries: 0,
            loads: 0,
            busy_since: None,
            is_stopping: false,
            changes: Changes::default(),
            waiting: None,
            is_stuck: false,
            pace: None,
            counts: RelocateStatus::default(),
        }
    }

    /// How the last run goes, or went.
    pub(crate) fn status(&self, pool: &Pool) -> RelocateStatus {
        let done = self.done_ppm(pool);
        let left = |(from, since): (u64, Nanos)| {
            let (came, left) = (done.saturating_sub(from), 1_000_000 - done);
            let took = u128::from(pool.now.saturating_sub(since));
            (came > 0).then(|| (took * u128::from(left) / u128::from(came) / 1_000_000_000) as u64)
        };
        RelocateStatus {
            state: self.state,
            done_ppm: done as u32,
            left_seconds: self.pace.filter(|_| self.is_running()).and_then(left),
            is_short_of_room: self.counts.is_short_of_room && self.state == PassState::Paused,
            ..self.counts
        }
    }

    /// Three quarters of a run are copies, the last one is its last walk.
    fn done_ppm(&self, pool: &Pool) -> u64 {
        let RelocateStatus { planned_blocks, looked_at_blocks, .. } = self.counts;
        let copied = looked_at_blocks.saturating_mul(750_000).checked_div(planned_blocks).unwrap_or(0).min(750_000);
        let walked = match (&self.at, self.state) {
            (_, PassState::Finished) => return 1_000_000,
            (_, PassState::Never) => return 0,
            _ if !self.plan.is_empty() => 0,
            (At::Walk(maps), _) => maps.done_ppm(pool) / 4,
            (At::Settle { .. }, _) => 250_000,
            (At::Gather | At::Begin, _) => 0,
        };
        (copied + walked).min(1_000_000)
    }

    /// Bytes of memory that it has.
    pub(crate) fn memory(&self) -> u64 {
        (self.plan.capacity() * size_of::<(u64, u64)>() + self.places.capacity() * size_of::<Slot>()) as u64
            + list_bytes(&self.copies)
    }

    /// Slots that it has claimed and to which nothing leads, for the audit.
    pub(crate) fn claimed(&self) -> impl Iterator<Item = Slot> + '_ {
        let unplaced = self.copies.iter().filter(|copy| !copy.is_placed).map(|copy| copy.to);
        self.places.iter().copied().chain(unplaced).chain(self.mover.places())
    }

    /// Whether it has claimed slots that nothing leads to, beside those of a batch.
    fn claims(&self) -> bool {
        !self.places.is_empty() || self.unplaced > 0
    }

    fn is_running(&self) -> bool {
        self.state == PassState::Running
    }

    /// Carries out a command. All of them are done at once.
    pub(crate) fn command(&mut self, pool: &mut Pool, command: RelocateCommand<'_>) -> Result<(), ControlError> {
        if !pool.takes_changes() {
            return Err(ControlError::ReadOnly);
        }
        let is_there = matches!(self.state, PassState::Running | PassState::Paused);
        match command {
            RelocateCommand::Plan { .. } if is_there => return Err(ControlError::PlanInUse),
            RelocateCommand::Plan { begins, extents } => return self.take_plan(begins, extents),
            RelocateCommand::Start if self.is_running() => {}
            RelocateCommand::Start if self.state == PassState::Paused => self.go_on_with(pool),
            RelocateCommand::Start if self.plan.is_empty() => return Err(ControlError::NoPlan),
            RelocateCommand::Start => {
                let planned_blocks = self.plan.iter().map(|&(_, blocks)| blocks).sum();
                self.counts = RelocateStatus { planned_blocks, ..RelocateStatus::default() };
                (self.at, self.again, self.tries, self.is_stopping) = (At::Gather, 0, 0, false);
                self.at_once = usize::MAX;
                self.go_on_with(pool);
            }
            RelocateCommand::Pause | RelocateCommand::Stop if !is_there => return Err(ControlError::NoPlan),
            RelocateCommand::Pause => self.rest(pool),
            RelocateCommand::Stop => {
                self.give_up_plan(|kept| &mut kept.stopped);
                self.is_stopping = true;
                self.go_on_with(pool);
            }
        }
        Ok(())
    }

    fn take_plan(&mut self, begins: bool, extents: &[(u64, u64)]) -> Result<(), ControlError> {
        if begins {
            self.plan.clear();
        }
        if self.plan.len() + extents.len() > MOST_EXTENTS {
            self.plan.clear();
            return Err(ControlError::PlanTooLong);
        }
        self.plan.extend(extents.iter().filter(|&&(slot, blocks)| blocks > 0 && slot.checked_add(blocks).is_some()));
        Ok(())
    }

    fn go_on_with(&mut self, pool: &mut Pool) {
        (self.state, self.counts.is_short_of_room) = (PassState::Running, false);
        self.pace = Some((self.done_ppm(pool), pool.now));
        pool.needs_pump = true;
    }

    /// It rests: the plan and what has been copied stay, and nothing stays claimed.
    fn rest(&mut self, pool: &mut Pool) {
        self.state = PassState::Paused;
        self.pace = None;
        self.give_back(pool);
    }

    /// What is left of the plan is left as it is.
    fn give_up_plan(&mut self, why: fn(&mut Kept) -> &mut u64) {
        let left: u64 = self.plan.drain(..).map(|(_, blocks)| blocks).sum();
        self.counts.looked_at_blocks += left;
        *why(&mut self.counts.kept) += left;
    }

    /// All places that nobody leads to are given back; what was to lead there is looked at again.
    fn give_back(&mut self, pool: &mut Pool) {
        for place in self.places.drain(..) {
            pool.space.retire(place, 0);
        }
        if self.unplaced > 0 {
            let (placed, unplaced) = self.copies.drain(..).partition(|copy| copy.is_placed);
            (self.copies, self.unplaced) = (placed, 0);
            for copy in Vec::into_iter(unplaced).rev() {
                pool.space.retire(copy.to, 0);
                self.look_again(copy.from);
            }
            // What comes back to the plan is copied before the next walk.
            self.at = At::Gather;
        }
        pool.needs_pump = true;
    }

    /// A slot comes next in the plan once more.
    fn look_again(&mut self, slot: Slot) {
        self.counts.looked_at_blocks -= 1;
        match self.is_stopping {
            true => {
                self.counts.looked_at_blocks += 1;
                self.counts.kept.stopped += 1;
            }
            false => match self.plan.front_mut() {
                Some((first, blocks)) if *first == slot.0 + 1 => (*first, *blocks) = (slot.0, *blocks + 1),
                _ => self.plan.push_front((slot.0, 1)),
            },
        }
    }

    /// Something came between. True if that has happened so often that the plan is given up.
    fn has_tried_enough(&mut self) -> bool {
        self.tries += 1;
        let is_enough = self.tries > TRIES;
        if is_enough {
            self.give_up_plan(|kept| &mut kept.no_room);
            self.tries = 0;
        }
        is_enough
    }

    fn go_on(&mut self, work: &mut Work<'_>) -> Result<(), Stop> {
        let Work { pool, repairs, facts } = work;
        match self.at {
            At::Gather => self.gather(pool, repairs, facts),
            At::Begin => {
                self.copies.sort_unstable();
                self.counts.map_walks += 1;
                self.again += 1;
                self.at = At::Walk(Maps::default());
                Ok(())
            }
            At::Walk(_) => self.walk(pool, facts),
            At::Settle { waited, left } => self.settle(pool, waited, left),
        }
    }

    fn end(&mut self, pool: &mut Pool) {
        self.give_back(pool);
        self.state = if self.is_stopping { PassState::Stopped } else { PassState::Finished };
        self.pace = None;
        (self.plan, self.places, self.copies) = (VecDeque::new(), VecDeque::new(), Vec::new());
        (self.alone, self.again) = (Vec::new(), 0);
    }
}

impl Steps for Relocate {
    fn is_under_way(&self) -> bool {
        self.is_running() || self.mover.is_under_way()
    }

    #[inline]
    fn can_step(&self, pool: &Pool, facts: &Facts) -> bool {
        self.is_running()
            && pool.phase == Phase::Serving
            && pool.takes_changes()
            && !facts.writes_wait
            && !facts.are_starved
            && !self.mover.is_under_way()
            && self.changes.may_go_on(pool)
            && !self.waiting.is_some_and(|key| pool.metadata.pages.is_loading(key))
            && !self.mover.is_loading(pool)
    }

    #[inline]
    fn can_advance(&self) -> bool {
        self.mover.is_under_way() || self.claims()
    }

    /// A batch comes to its end, also of a run that rests by now. Where writes wait for room, they get what is claimed.
    fn advance(&mut self, work: &mut Work<'_>) {
        let Work { pool, facts, .. } = work;
        if self.mover.is_under_way() {
            self.mover.go_on(pool, facts);
            self.note_what_came(pool);
        }
        if !self.claims() {
            return;
        }
        if facts.writes_wait {
            self.has_tried_enough();
        }
        if facts.writes_wait || !pool.takes_changes() || !self.is_running() {
            self.give_back(pool);
        }
    }

    fn step(&mut self, work: &mut Work<'_>) {
        (self.waiting, self.is_stuck) = (None, false);
        match self.go_on(work) {
            Ok(()) | Err(Stop::Waits) => {}
            Err(Stop::Missing(missing)) if work.pool.failed_pages.contains(&missing.key) => {
                if let At::Walk(maps) = &mut self.at {
                    maps.skip();
                }
            }
            Err(Stop::Missing(missing)) => {
                self.waiting = Some(missing.key);
                work.pool.metadata.load(missing, None);
            }
            Err(Stop::NoRoom) => {
                self.rest(work.pool);
                self.counts.is_short_of_room = true;
            }
        }
        // A checkpoint that it asked for begins with the next pump.
        work.pool.needs_pump |= self.changes.waits_for_checkpoint(work.pool);
    }

    fn is_stuck(&self, _: &Pool) -> bool {
        self.is_stuck
    }

    fn done(&mut self, work: &mut Work<'_>, part: u32, segments: &[Segment], result: Result<Outcome<'_>, IoError>) {
        self.mover.done(work.pool, part, segments, result);
    }

    fn in_flight(&self) -> usize {
        self.mover.in_flight()
    }

    fn holds(&self, slot: Slot) -> bool {
        self.mover.holds(slot)
    }
}
