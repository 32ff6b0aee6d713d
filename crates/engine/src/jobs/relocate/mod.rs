//! The run of a relocation plan: puts blocks that are read together next to each other, and remaps all referrers of shared ones
//! (docs/rfc/0014-relocation-run.md). The layout is decided beforehand by `relocation/`; here a plan is a list of slots in order.
//!
//! ```text
//! Gather   collects some blocks of the plan, in its order, and their owners (gather.rs)
//! Move     into containers claimed as a whole; then the block for which each was first written is remapped to it (jobs/mover.rs)
//! Begin    a checkpoint: the map buffer is flushed to its leaves
//! Walk     all maps, once for all copies so far: referrers of an old slot are remapped to its copy (walk.rs)
//! Settle   a checkpoint: old slots without referrers are free. The others are walked for again, a few times
//! ```
//!
//! It owns the plan, the target slots that it has claimed and not filled, and the table of copies of shared blocks. Invariants:
//!
//! - It frees no slot to which a map may refer: an old slot goes when its count is zero, as for any write. So a referrer that was missed keeps its
//!   data.
//! - A block is remapped only while it maps to the old slot, and while both slots hold the same content: looked up and changed in one step.
//! - A target slot is filled and durable before a block maps to it. Where writes wait for space, all target slots without a referrer are given back.
//! - Changes between two syncs are bounded, and the run keeps to a part of the delta (jobs/changes.rs).
//! - The run has no state on disk: a crash ends it. Moved blocks keep their new slots; copied blocks may be stored twice.

mod gather;
mod walk;

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::changes::{Changes, ChangesStop};
use super::map_walk::Maps;
use super::mover::Mover;
use crate::api::*;
use crate::format::entry::Slot;
use crate::format::superblock::PassState;
use crate::jobs::job::{Job, JobContext, JobId};
use crate::metadata::page_cache::PageKey;
use crate::pool::Pool;
use crate::pool::resolve::ReferrerSearch;
use crate::pool::state::{LoadSnapshot, Phase};
use crate::sizes::list_bytes;

/// Largest number of extents in a plan.
pub const MOST_EXTENTS: usize = 1 << 16;
/// Number of failed tries in a row after which the rest of the plan is given up.
const TRIES: u32 = 64;

/// Blocks of a plan that stay in their slots, by reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Kept {
    /// Blocks whose slots are empty by now, or hold no block of a volume: they were overwritten since the profile.
    pub gone: u64,
    /// Blocks that have replicas, which other readers use.
    pub for_replicas: u64,
    /// Blocks that could not be read, or whose pages could not.
    pub unreadable: u64,
    /// Blocks for which there was no empty container, or no metadata.
    pub no_space: u64,
    /// Blocks left when the run was stopped.
    pub stopped: u64,
}

/// State and counts of the run in progress, or of the last one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RelocateStatus {
    /// Progress state of the run.
    pub state: PassState,
    /// Number of blocks in the plan.
    pub planned_blocks: u64,
    /// Blocks of the plan that have been examined.
    pub looked_at_blocks: u64,
    /// Blocks of the plan that have been moved.
    pub moved_blocks: u64,
    /// Blocks of volumes that a walk remapped to a copy, beside the first referrer of each.
    pub referrers: u64,
    /// Number of walks of all maps.
    pub map_walks: u64,
    /// Copies whose old slots are still in use after all walks: the number of blocks stored in addition.
    pub doubled_blocks: u64,
    /// Blocks that stay in their slots.
    pub kept: Kept,
    /// Part of the run that is done, in millionths.
    pub done_ppm: u32,
    /// Seconds until its end at the rate so far, if that is known.
    pub left_seconds: Option<u64>,
    /// True while the run is paused because metadata is short.
    pub is_short_of_space: bool,
}

/// A shared block that has been copied.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Copied {
    from: Slot,
    to: Slot,
    digest: Digest,
    /// True if a block maps to the copy. Until then the copy's slot is claimed, and no map refers to it.
    is_placed: bool,
}

/// Stage of a run.
enum RunStage {
    Gather,
    /// Waiting for the checkpoint after which the walk begins.
    Begin,
    Walk(Maps),
    /// After the walk: `waited` checkpoints have passed, and the copies before `left` are to be judged.
    Settle {
        waited: u32,
        left: Option<usize>,
    },
}

/// The job that runs a relocation plan.
pub(crate) struct Relocate {
    mover: Mover,
    state: PassState,
    at: RunStage,
    /// Extents that are left.
    plan: VecDeque<(u64, u64)>,
    /// Target slots that are claimed and not filled, in order.
    places: VecDeque<Slot>,
    /// Slots of the batch with a single referrer, in order.
    alone: Vec<Slot>,
    /// Shared blocks that have been copied; sorted by old slot while maps are walked.
    copies: Vec<Copied>,
    /// Number of copies without a referrer.
    unplaced: usize,
    /// Number of walks for the copies of the table.
    again: u32,
    /// Largest number of blocks of a batch: reduced after one that could not be read, until the bad block has been found.
    at_once: usize,
    /// Number of consecutive tries that were interrupted.
    tries: u32,
    search: ReferrerSearch,
    /// Number of consecutive page loads for the same blocks.
    loads: u32,
    /// Time since which others have been reading or writing the next block.
    busy_since: Option<Nanos>,
    /// Set if the run is to stop: blocks that return to the plan stay in their slots.
    is_stopping: bool,
    changes: Changes,
    waiting: Option<PageKey>,
    is_stuck: bool,
    /// Part done, in millionths, and the time, when the run began or continued.
    rate_since: Option<(u64, Nanos)>,
    counts: RelocateStatus,
}

impl Relocate {
    pub(crate) fn new() -> Relocate {
        Relocate {
            mover: Mover::for_shared(JobId::Relocate),
            state: PassState::Never,
            at: RunStage::Gather,
            plan: VecDeque::new(),
            places: VecDeque::new(),
            alone: Vec::new(),
            copies: Vec::new(),
            unplaced: 0,
            again: 0,
            at_once: usize::MAX,
            tries: 0,
            search: ReferrerSearch::default(),
            loads: 0,
            busy_since: None,
            is_stopping: false,
            changes: Changes::default(),
            waiting: None,
            is_stuck: false,
            rate_since: None,
            counts: RelocateStatus::default(),
        }
    }

    /// Returns the state and counts of the run in progress, or of the last one.
    pub(crate) fn status(&self, pool: &Pool) -> RelocateStatus {
        let done = self.done_ppm(pool);
        let left = |(from, since): (u64, Nanos)| {
            let (came, left) = (done.saturating_sub(from), 1_000_000 - done);
            let took = u128::from(pool.state.now().saturating_sub(since));
            (came > 0).then(|| (took * u128::from(left) / u128::from(came) / 1_000_000_000) as u64)
        };
        RelocateStatus {
            state: self.state,
            done_ppm: done as u32,
            left_seconds: self.rate_since.filter(|_| self.is_running()).and_then(left),
            is_short_of_space: self.counts.is_short_of_space && self.state == PassState::Paused,
            ..self.counts
        }
    }

    /// Returns the part of the run that is done, in millionths: three quarters of it are copies, the last quarter its last walk.
    fn done_ppm(&self, pool: &Pool) -> u64 {
        let RelocateStatus { planned_blocks, looked_at_blocks, .. } = self.counts;
        let copied = looked_at_blocks.saturating_mul(750_000).checked_div(planned_blocks).unwrap_or(0).min(750_000);
        let walked = match (&self.at, self.state) {
            (_, PassState::Finished) => return 1_000_000,
            (_, PassState::Never) => return 0,
            _ if !self.plan.is_empty() => 0,
            (RunStage::Walk(maps), _) => maps.done_ppm(pool) / 4,
            (RunStage::Settle { .. }, _) => 250_000,
            (RunStage::Gather | RunStage::Begin, _) => 0,
        };
        (copied + walked).min(1_000_000)
    }

    /// Returns the bytes of memory that its lists hold.
    pub(crate) fn memory(&self) -> u64 {
        (self.plan.capacity() * size_of::<(u64, u64)>() + self.places.capacity() * size_of::<Slot>()) as u64
            + list_bytes(&self.copies)
    }

    /// Returns slots that it has claimed and to which no map refers, for the audit.
    pub(crate) fn claimed(&self) -> impl Iterator<Item = Slot> + '_ {
        let unplaced = self.copies.iter().filter(|copy| !copy.is_placed).map(|copy| copy.to);
        self.places.iter().copied().chain(unplaced).chain(self.mover.places())
    }

    /// Returns true if it has claimed slots without a referrer, beside those of a batch.
    fn claims(&self) -> bool {
        !self.places.is_empty() || self.unplaced > 0
    }

    fn is_running(&self) -> bool {
        self.state == PassState::Running
    }

    /// Executes a command. Every command completes at once.
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
                (self.at, self.again, self.tries, self.is_stopping) = (RunStage::Gather, 0, 0, false);
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
        (self.state, self.counts.is_short_of_space) = (PassState::Running, false);
        self.rate_since = Some((self.done_ppm(pool), pool.state.now()));
        pool.wake();
    }

    /// Pauses the run: the plan and the copies with a referrer are kept, and all claimed slots are given back.
    fn rest(&mut self, pool: &mut Pool) {
        self.state = PassState::Paused;
        self.rate_since = None;
        self.give_back(pool);
    }

    /// Drops the rest of the plan; its blocks stay in their slots, and count as kept for this reason.
    fn give_up_plan(&mut self, why: fn(&mut Kept) -> &mut u64) {
        let left: u64 = self.plan.drain(..).map(|(_, blocks)| blocks).sum();
        self.counts.looked_at_blocks += left;
        *why(&mut self.counts.kept) += left;
    }

    /// Gives back all target slots without a referrer; their blocks return to the plan.
    fn give_back(&mut self, pool: &mut Pool) {
        for place in self.places.drain(..) {
            pool.durable.space_mut().defer_free(place, 0);
        }
        if self.unplaced > 0 {
            let (placed, unplaced) = self.copies.drain(..).partition(|copy| copy.is_placed);
            (self.copies, self.unplaced) = (placed, 0);
            for copy in Vec::into_iter(unplaced).rev() {
                pool.durable.space_mut().defer_free(copy.to, 0);
                self.look_again(copy.from);
            }
            // Blocks that return to the plan are copied before the next walk.
            self.at = RunStage::Gather;
        }
        pool.wake();
    }

    /// Puts a slot back at the front of the plan; a run that is stopping counts it as kept.
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

    /// Counts a try that was interrupted. Returns true if their number exceeds a limit: the plan is then given up.
    fn has_tried_enough(&mut self) -> bool {
        self.tries += 1;
        let is_enough = self.tries > TRIES;
        if is_enough {
            self.give_up_plan(|kept| &mut kept.no_space);
            self.tries = 0;
        }
        is_enough
    }

    fn go_on(&mut self, work: &mut JobContext<'_>) -> Result<(), ChangesStop> {
        let JobContext { pool, repairs, load } = work;
        match self.at {
            RunStage::Gather => self.gather(pool, repairs, load),
            RunStage::Begin => {
                self.copies.sort_unstable();
                self.counts.map_walks += 1;
                self.again += 1;
                self.at = RunStage::Walk(Maps::default());
                Ok(())
            }
            RunStage::Walk(_) => self.walk(pool, load),
            RunStage::Settle { waited, left } => self.settle(pool, waited, left),
        }
    }

    fn end(&mut self, pool: &mut Pool) {
        self.give_back(pool);
        self.state = if self.is_stopping { PassState::Stopped } else { PassState::Finished };
        self.rate_since = None;
        (self.plan, self.places, self.copies) = (VecDeque::new(), VecDeque::new(), Vec::new());
        (self.alone, self.again) = (Vec::new(), 0);
    }
}

impl Job for Relocate {
    type Work<'a> = JobContext<'a>;

    fn is_in_progress(&self) -> bool {
        self.is_running() || self.mover.is_in_progress()
    }

    #[inline]
    fn can_step(&self, pool: &Pool, load: &LoadSnapshot) -> bool {
        self.is_running()
            && pool.state.phase() == Phase::Serving
            && pool.takes_changes()
            && !load.writes_blocked
            && !load.out_of_buffers
            && !self.mover.is_in_progress()
            && self.changes.may_go_on(pool)
            && !self.waiting.is_some_and(|key| pool.metadata.pages().is_loading(key))
            && !self.mover.is_loading(pool)
    }

    #[inline]
    fn can_advance(&self) -> bool {
        self.mover.is_in_progress() || self.claims()
    }

    /// Advances a batch to its end, also of a paused run. Where writes wait for space, they get the claimed slots.
    fn advance(&mut self, work: &mut JobContext<'_>) {
        let JobContext { pool, load, .. } = work;
        if self.mover.is_in_progress() {
            self.mover.go_on(pool, load);
            self.note_what_came(pool);
        }
        if !self.claims() {
            return;
        }
        if load.writes_blocked {
            self.has_tried_enough();
        }
        if load.writes_blocked || !pool.takes_changes() || !self.is_running() {
            self.give_back(pool);
        }
    }

    fn step(&mut self, work: &mut JobContext<'_>) {
        (self.waiting, self.is_stuck) = (None, false);
        match self.go_on(work) {
            Ok(()) | Err(ChangesStop::Waits) => {}
            Err(ChangesStop::Missing(missing)) if work.pool.metadata.has_failed(missing.key) => {
                if let RunStage::Walk(maps) = &mut self.at {
                    maps.skip();
                }
            }
            Err(ChangesStop::Missing(missing)) => {
                self.waiting = Some(missing.key);
                work.pool.metadata.load(missing, None);
            }
            Err(ChangesStop::NoSpace) => {
                self.rest(work.pool);
                self.counts.is_short_of_space = true;
            }
        }
        // A checkpoint that it requested begins with the next pump.
        work.pool.wake_if(self.changes.waits_for_checkpoint(work.pool));
    }

    fn is_stuck(&self, _: &Pool) -> bool {
        self.is_stuck
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

    fn in_flight(&self) -> usize {
        self.mover.in_flight()
    }

    fn holds(&self, slot: Slot) -> bool {
        self.mover.holds(slot)
    }
}
