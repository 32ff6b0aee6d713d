//! Background jobs and their scheduler. A job *steps* when its rules and the throttle let it; work in progress *advances* with every pump. A request waits
//! for one pump at most: one small step and one advance of each job.
//!
//! ```text
//! checkpoint       merges the delta into the trees
//! index_rebuild    fills the index after opening
//! cache_partition  moves memory between index and read cache
//! cache_warmup     fills the side that has grown with its newest ghosts
//! defrag           puts regions that readers found scattered back in order
//! gc               empties the emptiest containers
//! relocate         runs a plan: puts shared blocks in order, for all their referrers
//! mover            moves blocks for these three, and for replicate
//! map_walk         walks all maps, for the referrers of some slots
//! changes          bounds the changes that a job makes before it waits
//! replicate        makes replicas of blocks that reads find scattered
//! dedup            lets blocks that are stored more than once share a slot
//! flash            copies containers to the flash in front of the store
//! scrub            reads and verifies everything, and repairs damage
//! census           estimates the share of each volume that lies in shared slots
//! discard          gives the space of empty containers back to the host
//! index_prefetch   fetches the digests beside one that was found
//! throttle         decides when background work may run
//! ```
//!
//! Jobs of the common shape ([`job::Job`]) are listed here and in `job.rs`: each has a name there, and here a field of [`Jobs`], an arm of `ask` and a
//! row of [`RULES`]. They get the pool, the repairs and the foreground load ([`job::JobContext`]), or, if they only move copies, a pool whose mappings
//! they cannot change ([`job::CopyContext`]); they cannot reach a request or the engine. The
//! scheduler visits them in row order, three times a pump ([`PumpPhase`]), and routes their I/O completions to them. Checkpoint, cache partition and
//! index prefetch have another shape: a checkpoint closes records and may fail the pool. The two others bound themselves and need no turn.

pub(crate) mod cache_partition;
pub(crate) mod cache_warmup;
pub(crate) mod census;
mod changes;
pub(crate) mod checkpoint;
pub(crate) mod dedup;
pub(crate) mod defrag;
pub(crate) mod discard;
pub(crate) mod flash;
pub(crate) mod gc;
pub(crate) mod index_prefetch;
pub(crate) mod index_rebuild;
pub(crate) mod job;
mod map_walk;
mod mover;
pub(crate) mod relocate;
pub(crate) mod replicate;
pub(crate) mod scrub;
pub(crate) mod throttle;

use alloc::boxed::Box;

use crate::api::{IoError, Nanos, Outcome, Segment};
use crate::format::entry::Slot;
use crate::limits::Limits;
use crate::mutant::Mutant;
use crate::pool::Pool;
use crate::pool::state::{LoadSnapshot, Phase};
use crate::repair::Repairs;
use cache_partition::CachePartition;
use cache_warmup::CacheWarmup;
use census::Census;
use checkpoint::Checkpoint;
use dedup::Dedup;
use defrag::{Defrag, DefragStatus};
use discard::{DiscardStatus, StoreDiscard};
use flash::FlashCopies;
use gc::{Gc, GcStatus};
use index_prefetch::IndexPrefetch;
use index_rebuild::IndexRebuild;
use job::{Context, Job, JobContext, JobId};
use relocate::Relocate;
use replicate::Replicate;
use scrub::Scrub;
use throttle::{LEAST, QUARTER, Throttle, ThrottleUser, Turn};

/// Largest number of slots that are reclaimed at once.
const RECLAIM_AT_ONCE: usize = 4096;

/// Rules of the scheduler: one row for each job, in the order in which it visits them.
const RULES: [JobRules; 11] = [
    JobRules {
        job: JobId::IndexRebuild,
        runs: Runs::InBursts { least: QUARTER },
        between_checkpoints: true,
        after: [None, None, None, None],
        also_unwritten: false,
        advances: PumpPhase::Middle,
        steps: PumpPhase::Middle,
    },
    JobRules {
        job: JobId::CacheWarmup,
        runs: Runs::InBursts { least: LEAST },
        between_checkpoints: true,
        after: [Some(JobId::IndexRebuild), None, None, None],
        also_unwritten: false,
        advances: PumpPhase::Middle,
        steps: PumpPhase::Middle,
    },
    JobRules {
        job: JobId::Defrag,
        runs: Runs::InBursts { least: QUARTER },
        between_checkpoints: true,
        // Only one mover has blocks in flight at a time, and no other job breaks up the order of a plan while it runs.
        after: [Some(JobId::Gc), Some(JobId::Relocate), Some(JobId::Replicate), None],
        also_unwritten: false,
        advances: PumpPhase::Last,
        steps: PumpPhase::Last,
    },
    JobRules {
        job: JobId::Gc,
        runs: Runs::WhenIdle,
        between_checkpoints: true,
        after: [Some(JobId::Defrag), Some(JobId::Relocate), Some(JobId::Replicate), None],
        also_unwritten: false,
        advances: PumpPhase::Last,
        steps: PumpPhase::Last,
    },
    JobRules {
        job: JobId::Replicate,
        runs: Runs::WhenIdle,
        between_checkpoints: true,
        after: [Some(JobId::Defrag), Some(JobId::Gc), Some(JobId::Relocate), None],
        also_unwritten: false,
        advances: PumpPhase::Last,
        steps: PumpPhase::Last,
    },
    JobRules {
        job: JobId::Scrub,
        runs: Runs::InBursts { least: LEAST },
        // Blocks are read while a checkpoint is in progress; the scrub itself reads pages and superblocks only between checkpoints.
        between_checkpoints: false,
        after: [Some(JobId::IndexRebuild), None, None, None],
        also_unwritten: true,
        advances: PumpPhase::First,
        steps: PumpPhase::Last,
    },
    JobRules {
        job: JobId::Dedup,
        runs: Runs::InBursts { least: LEAST },
        between_checkpoints: true,
        // The pass would take the copies of a run for duplicates.
        after: [Some(JobId::IndexRebuild), Some(JobId::Relocate), None, None],
        also_unwritten: false,
        advances: PumpPhase::Last,
        steps: PumpPhase::Last,
    },
    JobRules {
        job: JobId::Flash,
        runs: Runs::InBursts { least: QUARTER },
        between_checkpoints: false,
        after: [None, None, None, None],
        also_unwritten: false,
        advances: PumpPhase::Last,
        steps: PumpPhase::Last,
    },
    JobRules {
        job: JobId::Relocate,
        runs: Runs::InBursts { least: LEAST },
        between_checkpoints: true,
        // It waits for batches in progress; no new batch begins during a run.
        after: [Some(JobId::IndexRebuild), Some(JobId::Defrag), Some(JobId::Gc), Some(JobId::Replicate)],
        also_unwritten: false,
        advances: PumpPhase::Last,
        steps: PumpPhase::Last,
    },
    JobRules {
        job: JobId::Census,
        runs: Runs::InBursts { least: LEAST },
        between_checkpoints: true,
        after: [Some(JobId::IndexRebuild), None, None, None],
        // It only reads.
        also_unwritten: true,
        advances: PumpPhase::Last,
        steps: PumpPhase::Last,
    },
    JobRules {
        job: JobId::Discard,
        runs: Runs::InBursts { least: LEAST },
        // A merge fills no empty container.
        between_checkpoints: false,
        // They may have asked for empty containers.
        after: [Some(JobId::Defrag), Some(JobId::Gc), Some(JobId::Relocate), Some(JobId::Dedup)],
        also_unwritten: false,
        advances: PumpPhase::Last,
        steps: PumpPhase::Last,
    },
];

/// Calls a method of the job in the field that belongs to this [`Job`].
macro_rules! ask {
    ($jobs:expr, $job:expr, $verb:ident $with:tt) => {
        match $job {
            JobId::IndexRebuild => $jobs.index_rebuild.$verb $with,
            JobId::CacheWarmup => $jobs.cache_warmup.$verb $with,
            JobId::Defrag => $jobs.defrag.$verb $with,
            JobId::Gc => $jobs.gc.$verb $with,
            JobId::Replicate => $jobs.replicate.$verb $with,
            JobId::Scrub => $jobs.scrub.$verb $with,
            JobId::Dedup => $jobs.dedup.$verb $with,
            JobId::Flash => $jobs.flash.$verb $with,
            JobId::Relocate => $jobs.relocate.$verb $with,
            JobId::Census => $jobs.census.$verb $with,
            JobId::Discard => $jobs.discard.$verb $with,
        }
    };
}

/// Evaluates an expression for each row. Unrolled, not a loop: the compiler then knows the content of a row, and most of it costs nothing.
macro_rules! each_row {
    ($row:ident => $what:expr) => { each_row!(0 1 2 3 4 5 6 7 8 9 10 11; $row => $what) };
    ($($number:literal)+; $row:ident => $what:expr) => { $( if let Some($row) = RULES.get($number) { $what } )+ };
}
const _: () = assert!(RULES.len() <= 12, "each_row! has a number for each row");

/// Conditions under which the scheduler lets a job take steps.
struct JobRules {
    job: JobId,
    runs: Runs,
    /// True if it takes no step while a checkpoint is in progress.
    between_checkpoints: bool,
    /// Jobs that it waits for: it takes no step while one of them is in progress.
    after: [Option<JobId>; 4],
    /// True if it also runs in a pool that is not written; there it waits for no other job.
    also_unwritten: bool,
    /// Phase of a pump in which work in progress advances.
    advances: PumpPhase,
    /// Phase of a pump in which it takes a step.
    steps: PumpPhase,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Runs {
    /// Steps in turns that the throttle grants, with at least this share of the device, in millionths.
    InBursts { least: i64 },
    /// Steps only while the pool is idle.
    WhenIdle,
}

/// Phase of a pump in which jobs are visited.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PumpPhase {
    /// Phase after the repairs of blocks.
    First,
    /// Phase after the checkpoint, before records are closed and synced; only while the pool is written.
    Middle,
    /// Phase at the end of the pump, after all other work.
    Last,
}

// A job's number is that of its row.
const _: () = {
    let mut at = 0;
    while at < RULES.len() {
        assert!(RULES[at].job as usize == at);
        at += 1;
    }
};

/// All background work.
pub(crate) struct Jobs {
    pub(crate) checkpoint: Option<Box<Checkpoint>>,
    index_rebuild: IndexRebuild,
    pub(crate) cache_partition: CachePartition,
    pub(crate) cache_warmup: CacheWarmup,
    defrag: Defrag,
    gc: Gc,
    pub(crate) replicate: Replicate,
    pub(crate) scrub: Scrub,
    dedup: Dedup,
    flash: FlashCopies,
    relocate: Relocate,
    census: Census,
    discard: StoreDiscard,
    pub(crate) index_prefetch: IndexPrefetch,
    throttle: Throttle,
    /// True if a job stopped at its budget and can continue at once.
    work_left: bool,
    /// Time at which a resting job continues.
    timer: Option<Nanos>,
}

impl Jobs {
    /// Creates all jobs, with none of them in progress.
    pub(crate) fn new(limits: &Limits, block: u64, now: Nanos) -> Jobs {
        Jobs {
            checkpoint: None,
            index_rebuild: IndexRebuild::default(),
            cache_partition: CachePartition::new(limits, block),
            cache_warmup: CacheWarmup::default(),
            defrag: Defrag::new(),
            gc: Gc::new(),
            replicate: Replicate::new(now),
            scrub: Scrub::new(now),
            dedup: Dedup::new(now),
            flash: FlashCopies::new(),
            relocate: Relocate::new(),
            census: Census::new(),
            discard: StoreDiscard::new(now),
            index_prefetch: IndexPrefetch::new(),
            throttle: Throttle::new(now),
            work_left: false,
            timer: None,
        }
    }

    /// Advances the jobs that are due in this phase. An idle job costs a few comparisons.
    #[inline(always)]
    pub(crate) fn pass(&mut self, place: PumpPhase, pool: &mut Pool, repairs: &mut Repairs, load: &LoadSnapshot) {
        each_row!(rules => self.pass_one(rules, place, pool, repairs, load));
    }

    #[inline(always)]
    fn pass_one(
        &mut self,
        rules: &JobRules,
        place: PumpPhase,
        pool: &mut Pool,
        repairs: &mut Repairs,
        load: &LoadSnapshot,
    ) {
        // A job whose work ends in this call begins its next work in another pump.
        let is_its_time = rules.steps == place && (rules.runs != Runs::WhenIdle || load.is_idle);
        let can_step = is_its_time && self.can_step(rules, pool, load);
        if rules.advances == place && ask!(self, rules.job, can_advance()) {
            self.advance(rules.job, JobContext { pool, repairs, load: *load });
        }
        let has_turn = match rules.runs {
            _ if !can_step => false,
            Runs::WhenIdle => true,
            Runs::InBursts { .. } => self.begins_burst(ThrottleUser::Job(rules.job), pool, load),
        };
        if has_turn {
            self.step(rules.job, JobContext { pool, repairs, load: *load });
        }
    }

    // Out of line, as these calls are rare: the scheduler itself stays small.
    #[inline(never)]
    fn advance(&mut self, job: JobId, work: JobContext<'_>) {
        ask!(self, job, advance(&mut Context::from_parts(work)));
    }

    #[inline(never)]
    fn step(&mut self, job: JobId, work: JobContext<'_>) {
        ask!(self, job, step(&mut Context::from_parts(work)));
    }

    /// Returns true if a job may take steps, by its own state and by its rules.
    #[inline(always)]
    fn can_step(&self, rules: &JobRules, pool: &Pool, load: &LoadSnapshot) -> bool {
        if !ask!(self, rules.job, can_step(pool, load)) {
            return false;
        }
        let is_written = pool.state.is_written() && !pool.state.closes_early();
        let is_done = |before: Option<JobId>| before.is_none_or(|before| !ask!(self, before, is_in_progress()));
        let waits_for_none = rules.also_unwritten && !pool.may_repair();
        (rules.also_unwritten || is_written)
            && (waits_for_none
                || (!rules.between_checkpoints || !pool.checkpoint.is_in_progress())
                    && is_done(rules.after[0])
                    && is_done(rules.after[1])
                    && is_done(rules.after[2])
                    && is_done(rules.after[3]))
    }

    /// Passes the result of an I/O to the job that began it.
    pub(crate) fn done(
        &mut self,
        work: JobContext<'_>,
        (job, part): (u8, u32),
        segments: &[Segment],
        result: Result<Outcome<'_>, IoError>,
    ) {
        ask!(self, RULES[job as usize].job, done(&mut Context::from_parts(work), part, segments, result));
    }

    /// Returns the number of block I/Os in flight of all jobs that run in bursts.
    fn in_flight(&self) -> usize {
        let mut all = 0;
        each_row!(rules => if rules.runs != Runs::WhenIdle {
            all += ask!(self, rules.job, in_flight());
        });
        all
    }

    /// Returns true if a slot must not be reused yet because a job works on it.
    #[inline]
    pub(crate) fn hold(&self, slot: Slot) -> bool {
        let mut any = false;
        each_row!(rules => any |= ask!(self, rules.job, holds(slot)));
        any
    }

    /// Decides at the end of a pump when jobs continue; `checkpoint` is true if a checkpoint can continue.
    #[inline]
    pub(crate) fn set_timer(&mut self, pool: &Pool, load: &LoadSnapshot, checkpoint: bool) {
        let mut wanting = if checkpoint { ThrottleUser::Checkpoint.bit() } else { 0 };
        each_row!(rules => if rules.runs != Runs::WhenIdle
            && self.can_step(rules, pool, load)
            && !ask!(self, rules.job, is_stuck(pool))
        {
            wanting |= ThrottleUser::Job(rules.job).bit();
        });
        self.throttle.note_wanting(wanting);
        self.end_bursts(pool);
        (self.work_left, self.timer) = (false, None);
        if wanting > 0 {
            self.set_timer_for(wanting, pool, load);
        }
        each_row!(rules => if let Some(due) = ask!(self, rules.job, begins_at(pool, load)).filter(|&due| due > pool.state.now()) {
            self.timer = Some(self.timer.map_or(due, |timer| timer.min(due)));
        });
        if load.requests_in_flight {
            return;
        }
        // Its rules are checked once the pool is idle: the jobs that it waits for may have ended by then.
        each_row!(rules => if rules.runs == Runs::WhenIdle && ask!(self, rules.job, can_step(pool, load)) {
            match load.idle_from <= pool.state.now() {
                true => self.work_left |= !ask!(self, rules.job, is_stuck(pool)),
                false => self.timer = Some(self.timer.map_or(load.idle_from, |timer| timer.min(load.idle_from))),
            }
        });
    }

    fn set_timer_for(&mut self, wanting: u16, pool: &Pool, load: &LoadSnapshot) {
        let jobs = RULES.iter().map(|rules| ThrottleUser::Job(rules.job));
        for who in jobs.chain([ThrottleUser::Checkpoint]).filter(|who| wanting & who.bit() > 0) {
            match self.turn(who, pool, load) {
                Turn::Now => self.work_left = true,
                Turn::At(due) => self.timer = Some(self.timer.map_or(due, |timer| timer.min(due))),
                Turn::AfterIo => {}
            }
        }
    }

    /// Returns true if background work has no throughput to cede to clients that want more: it has its minimum share, or no dedup pass, relocation or
    /// scrub is in progress.
    pub(crate) fn has_no_more_to_give(&self) -> bool {
        let is_at_work = self.dedup.is_in_progress() || self.relocate.is_in_progress() || self.scrub.is_in_progress();
        !is_at_work || self.throttle.is_at_least()
    }

    /// Returns the share of the device that background work has while clients are busy, in millionths.
    pub(crate) fn share(&self) -> i64 {
        self.throttle.share()
    }

    /// Returns the state and counts of defragmentation, which puts regions back in order.
    pub(crate) fn defrag_status(&self, pool: &Pool) -> DefragStatus {
        self.defrag.status(pool)
    }

    /// Returns the state and counts of garbage collection, which empties containers.
    pub(crate) fn gc_status(&self, pool: &Pool) -> GcStatus {
        self.gc.status(pool)
    }

    /// Returns the state and counts of discards, which give space back to the host.
    pub(crate) fn discard_status(&self, pool: &Pool) -> DiscardStatus {
        self.discard.status(pool)
    }

    /// Returns the dedup pass, which finds all duplicates.
    pub(crate) fn dedup(&self) -> &Dedup {
        &self.dedup
    }

    /// Returns the dedup pass for changes of its progress.
    pub(crate) fn dedup_mut(&mut self) -> &mut Dedup {
        &mut self.dedup
    }

    /// Returns the estimates of the share of each volume that lies in shared slots.
    pub(crate) fn census(&self) -> &Census {
        &self.census
    }

    /// Returns the census for changes, so that it learns of events that may start the next one.
    pub(crate) fn census_mut(&mut self) -> &mut Census {
        &mut self.census
    }

    /// Continues or begins the dedup pass, for writes that find no free slot. Returns true if the pass may free slots for them. A relocation run
    /// takes precedence over the pass, and itself waits for these writes.
    pub(crate) fn await_slots(&mut self, pool: &Pool) -> bool {
        let can_step = pool.state.phase() == Phase::Serving && pool.takes_changes() && !self.relocate.is_in_progress();
        can_step && self.dedup.await_slots(pool.state.now())
    }

    /// Returns the job that runs a relocation plan.
    pub(crate) fn relocate(&self) -> &Relocate {
        &self.relocate
    }

    /// Returns the relocation job for changes of its progress.
    pub(crate) fn relocate_mut(&mut self) -> &mut Relocate {
        &mut self.relocate
    }

    /// Fills the index of a pool that was just opened, from the summaries.
    pub(crate) fn fill_index(&mut self, pool: &Pool) {
        self.index_rebuild
            .begin_after_opening(pool.metadata.geometry().summary_leaves(), pool.durable.space().data_used() > 0);
    }

    /// Returns the job that fills the index after opening.
    pub(crate) fn rebuild(&self) -> &IndexRebuild {
        &self.index_rebuild
    }

    /// Ends the filling of the index; missing entries stay out.
    pub(crate) fn stop_filling_index(&mut self) {
        self.index_rebuild.end();
    }

    /// Notes, if `is_left`, that work other than a job can continue at once.
    pub(crate) fn note_work_left(&mut self, is_left: bool) {
        self.work_left |= is_left;
    }

    /// Returns true if work can continue at once, without a timer.
    pub(crate) fn is_work_left(&self) -> bool {
        self.work_left
    }

    /// Returns the time at which a resting job continues.
    pub(crate) fn due(&self) -> Option<Nanos> {
        self.timer
    }

    /// Clears the timer if its time has come.
    pub(crate) fn forget_due(&mut self, now: Nanos) {
        self.timer = self.timer.filter(|&due| due > now);
    }

    /// Reclaims slots that no crash can bring back into use: a bounded number, the rest when the jobs continue.
    pub(crate) fn reclaim(&mut self, pool: &mut Pool, repairs: &Repairs) {
        let early = pool.mutant(Mutant::EarlyReuse);
        let published = if early { pool.durable.journal().durable() } else { pool.durable.journal().published() };
        pool.reclaim_pending(published, RECLAIM_AT_ONCE, |slot| repairs.is_repairing(slot) || self.hold(slot));
        pool.forget_wrapped();
        while let Some(slot) = pool.next_reclaimed() {
            self.cache_partition.forget(slot);
        }
    }
}
