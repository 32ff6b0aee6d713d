//! The common shape of background jobs: a name, the parts that a job works on, and the verbs with which the scheduler (`jobs/mod.rs`) drives it.

use crate::api::{IoError, Nanos, Outcome, Segment};
use crate::format::entry::Slot;
use crate::metadata::io::Purpose;
use crate::pool::Pool;
use crate::pool::copy_access::CopyAccess;
use crate::pool::state::LoadSnapshot;
use crate::repair::Repairs;

/// Name of a job of the common shape.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum JobId {
    IndexRebuild,
    CacheWarmup,
    Defrag,
    Gc,
    Replicate,
    Scrub,
    Dedup,
    Flash,
    Relocate,
    Census,
    Discard,
}

impl JobId {
    /// Returns the purpose of an I/O for a part of its work.
    pub(crate) fn io(self, part: usize) -> Purpose {
        Purpose::Job(self as u8, part as u32)
    }
}

/// Parts of the engine that a job works on in a step.
pub(crate) struct JobContext<'a> {
    pub pool: &'a mut Pool,
    pub repairs: &'a mut Repairs,
    /// Load of the foreground during the step.
    pub load: LoadSnapshot,
}

/// Parts of the engine that a job works on in a step if it only moves copies: it cannot change a mapping.
pub(crate) struct CopyContext<'a> {
    pub pool: CopyAccess<'a>,
    pub repairs: &'a Repairs,
    /// Load of the foreground during the step.
    pub load: LoadSnapshot,
}

/// Context of a job: parts of the engine that the scheduler lends it.
pub(crate) trait Context<'a> {
    /// Creates the context from these parts, of which it may have less.
    fn from_parts(parts: JobContext<'a>) -> Self;
}

impl<'a> Context<'a> for JobContext<'a> {
    #[inline]
    fn from_parts(parts: JobContext<'a>) -> JobContext<'a> {
        parts
    }
}

impl<'a> Context<'a> for CopyContext<'a> {
    #[inline]
    fn from_parts(JobContext { pool, repairs, load }: JobContext<'a>) -> CopyContext<'a> {
        CopyContext { pool: CopyAccess::new(pool), repairs, load }
    }
}

/// A job of the common shape, which the scheduler drives.
pub(crate) trait Job {
    /// Parts that it works on: [`JobContext`], or [`CopyContext`] if it only moves copies.
    type Work<'a>: Context<'a>;

    /// Returns true if it has begun and not ended; other jobs may wait for its end.
    fn is_in_progress(&self) -> bool;

    /// Returns true if a step would make progress, as far as the job can tell.
    fn can_step(&self, pool: &Pool, load: &LoadSnapshot) -> bool;

    /// Returns the time at which it next has work, barring other events; `None` if no time is set.
    fn begins_at(&self, _pool: &Pool, _load: &LoadSnapshot) -> Option<Nanos> {
        None
    }

    /// Returns true if `advance` would make progress; false for a job without one. Called with every pump, like `can_step`, so it must cost only a
    /// few comparisons where there is no work.
    fn can_advance(&self) -> bool;

    /// Continues work in progress, with or without a turn.
    fn advance(&mut self, _work: &mut Self::Work<'_>) {}

    /// Takes the next step; the job has its turn.
    fn step(&mut self, work: &mut Self::Work<'_>);

    /// Returns true if it has tried in vain and retries with the next pump, so that it needs no timer.
    fn is_stuck(&self, _pool: &Pool) -> bool {
        false
    }

    /// Handles the completion of an I/O that it began; `part` is the part of its work that it named then.
    fn done(
        &mut self,
        _work: &mut Self::Work<'_>,
        _part: u32,
        _segments: &[Segment],
        _result: Result<Outcome<'_>, IoError>,
    ) {
    }

    /// Returns the number of block I/Os in flight: a burst lasts until it is 0. (The throttle counts pages itself.)
    fn in_flight(&self) -> usize {
        0
    }

    /// Returns true if the job works on a slot, so that the slot must not be reused yet.
    fn holds(&self, _slot: Slot) -> bool {
        false
    }
}
