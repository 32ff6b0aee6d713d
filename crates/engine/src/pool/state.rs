//! State of the pool as a whole: its phase from opening to the end, its failure, the time, whether the engine has to be woken; and the foreground load.

use super::Pool;
use crate::api::Effect;
use crate::api::Failure;
use crate::api::Nanos;
use crate::api::OpenError;
use crate::mutant::Mutant;

/// Phase of the engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    Recovering,
    Serving,
    /// Phase after a command to close: work is being finished.
    Closing,
    Closed,
    /// Phase after opening failed.
    Dead,
}

/// Step of the superblock that marks a pool as failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FailureMarker {
    Wait,
    Look(Look),
    Write(usize),
    Writing(usize),
    Syncing(usize),
    Done,
}

/// Number of a requested look at the owner.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Look(pub u64);

/// Snapshot of the foreground load, passed to each background step.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LoadSnapshot {
    /// True if no request has been in flight for a while.
    pub is_idle: bool,
    /// Time at which `is_idle` becomes true, if no request comes.
    pub idle_from: Nanos,
    /// True if requests are in flight.
    pub requests_in_flight: bool,
    /// True if writes wait for space.
    pub writes_blocked: bool,
    /// True if requests wait for buffers.
    pub out_of_buffers: bool,
    /// True if long clears have begun and will continue.
    pub clears_left: bool,
    /// True if commands wait for their effects.
    pub commands_wait: bool,
    /// True if the pool is being closed, and no other command waits.
    pub only_closes: bool,
    /// True if writes that the host refused for want of space are kept and retried.
    pub writes_refused: bool,
}

impl LoadSnapshot {
    /// Returns true if writes wait for space, or commands for their effects.
    #[inline]
    pub(crate) fn is_blocked(&self) -> bool {
        self.writes_blocked || self.commands_wait
    }
}

/// State of the pool as a whole: its phase, its failure, and the time.
pub(crate) struct PoolState {
    now: Nanos,
    phase: Phase,
    /// True if the pool has failed since it was opened.
    read_only: bool,
    /// Reason of its failure, in this run or before.
    failure: Option<Failure>,
    failure_marker: FailureMarker,
    /// True if the pool is opened to be read: changes are refused.
    reads_only: bool,
    /// True if nothing at all is written: opened to be read and found cleanly closed, or the pool has failed before.
    untouched: bool,
    /// True if space for the metadata of a checkpoint could not be reserved: the host is full.
    metadata_full: bool,
    /// True if reserving failed because the host is full. The next tick clears it.
    host_full: bool,
    /// True if closing must not wait for a checkpoint.
    closes_early: bool,
    last_change: Nanos,
    needs_pump: bool,
    /// Active mutant, if there is one.
    #[cfg(feature = "mutants")]
    broken: Option<Mutant>,
}

impl PoolState {
    /// Creates the state of a pool that is to be recovered.
    pub(super) fn new(now: Nanos) -> PoolState {
        PoolState {
            now,
            phase: Phase::Recovering,
            read_only: false,
            failure: None,
            failure_marker: FailureMarker::Done,
            reads_only: false,
            untouched: false,
            metadata_full: false,
            host_full: false,
            closes_early: false,
            last_change: now,
            needs_pump: true,
            #[cfg(feature = "mutants")]
            broken: None,
        }
    }

    /// Returns the time of the last event.
    #[inline]
    pub(crate) fn now(&self) -> Nanos {
        self.now
    }

    /// Advances the time. It never goes back.
    pub(crate) fn advance(&mut self, now: Nanos) {
        self.now = self.now.max(now);
    }

    /// Returns the phase of the pool.
    #[inline]
    pub(crate) fn phase(&self) -> Phase {
        self.phase
    }

    /// Begins to serve, after recovery.
    pub(crate) fn begin_serving(&mut self) {
        assert_eq!(self.phase, Phase::Recovering, "a pool serves once it is recovered");
        self.phase = Phase::Serving;
    }

    /// Begins to close; `early`: without a checkpoint.
    pub(crate) fn begin_closing(&mut self, early: bool) {
        assert!(matches!(self.phase, Phase::Serving | Phase::Closing), "a pool that serves is closed");
        self.phase = Phase::Closing;
        self.closes_early |= early;
    }

    /// Ends the pool: nothing happens any more.
    pub(crate) fn close(&mut self) {
        // Each of several commands to close ends here.
        assert!(matches!(self.phase, Phase::Closing | Phase::Closed), "a pool is closed on command");
        self.phase = Phase::Closed;
    }

    /// Ends an opening that has failed.
    pub(super) fn fail_to_open(&mut self) {
        self.phase = Phase::Dead;
    }

    /// Makes the pool read-only for this reason; returns false if it was already.
    pub(crate) fn fail(&mut self, failure: Failure) -> bool {
        if self.read_only {
            return false;
        }
        (self.read_only, self.failure) = (true, Some(failure));
        true
    }

    /// Returns true if the pool has failed since it was opened.
    #[inline]
    pub(crate) fn read_only(&self) -> bool {
        self.read_only
    }

    /// Returns the reason of its failure, in this run or before.
    pub(crate) fn failure(&self) -> Option<Failure> {
        self.failure
    }

    /// Replaces the reason of a failure.
    pub(crate) fn set_failure(&mut self, failure: Failure) {
        assert!(self.read_only, "only a failed pool has a reason");
        self.failure = Some(failure);
    }

    /// Adopts the failure that the superblock keeps: such a pool is only read.
    pub(crate) fn adopt_failure(&mut self, failure: Option<Failure>) {
        self.failure = failure;
        self.reads_only |= failure.is_some();
    }

    /// Returns the step of the superblock that marks the pool as failed.
    pub(crate) fn failure_marker(&self) -> FailureMarker {
        self.failure_marker
    }

    /// Takes the next step of the superblock that marks the pool as failed.
    pub(crate) fn set_failure_marker(&mut self, step: FailureMarker) {
        self.failure_marker = step;
    }

    /// Returns true if the pool is opened to be read: changes are refused.
    pub(crate) fn reads_only(&self) -> bool {
        self.reads_only
    }

    /// Refuses changes from now on: the pool is opened to be read.
    pub(crate) fn refuse_changes(&mut self) {
        self.reads_only = true;
    }

    /// Returns true if nothing at all is written: opened to be read and found cleanly closed, or the pool has failed before.
    pub(crate) fn untouched(&self) -> bool {
        self.untouched
    }

    /// Notes that nothing at all is written.
    pub(crate) fn leave_untouched(&mut self) {
        self.untouched = true;
    }

    /// Returns true if the pool is written: it has not failed, and may be touched.
    #[inline]
    pub(crate) fn is_written(&self) -> bool {
        !self.read_only && !self.untouched
    }

    /// Returns true if space for the metadata of a checkpoint could not be reserved.
    pub(crate) fn metadata_full(&self) -> bool {
        self.metadata_full
    }

    /// Notes if space for the metadata of a checkpoint could be reserved.
    pub(crate) fn set_metadata_full(&mut self, full: bool) {
        self.metadata_full = full;
    }

    /// Returns true if a reservation has failed because the host is full.
    pub(crate) fn host_full(&self) -> bool {
        self.host_full
    }

    /// Notes if a reservation has failed because the host is full.
    pub(crate) fn set_host_full(&mut self, full: bool) {
        self.host_full = full;
    }

    /// Returns true if closing must not wait for a checkpoint.
    pub(crate) fn closes_early(&self) -> bool {
        self.closes_early
    }

    /// Returns the time of the last change of the map.
    pub(crate) fn last_change(&self) -> Nanos {
        self.last_change
    }

    /// Notes a change of the map.
    #[inline]
    pub(crate) fn note_change(&mut self) {
        self.last_change = self.now;
    }
}

impl Pool {
    /// Makes the engine pump once more when it has no effects left.
    #[inline]
    pub(crate) fn wake(&mut self) {
        self.state.needs_pump = true;
    }

    /// Makes the engine pump once more if `wakes` is true.
    #[inline]
    pub(crate) fn wake_if(&mut self, wakes: bool) {
        self.state.needs_pump |= wakes;
    }

    /// Returns true if the engine is to pump, which ends the request for it.
    #[inline]
    pub(crate) fn take_wake(&mut self) -> bool {
        core::mem::take(&mut self.state.needs_pump)
    }
}

impl Pool {
    /// Ends an opening with an error: nothing more is done.
    pub(crate) fn recovery_failed(&mut self, error: OpenError) {
        if self.state.phase() == Phase::Recovering {
            self.state.fail_to_open();
            self.metadata.io_mut().queue(Effect::Opened(Err(error)));
        }
    }

    /// Returns true if repairs may be written: the pool is neither read-only nor left untouched.
    pub(crate) fn may_repair(&self) -> bool {
        self.state.is_written() && !self.state.reads_only()
    }
}

#[cfg(feature = "mutants")]
impl Pool {
    /// Returns true if this mutant is active.
    pub(crate) fn mutant(&self, mutant: Mutant) -> bool {
        self.state.broken == Some(mutant)
    }

    /// Makes this mutant the active one, or none.
    pub(crate) fn set_mutant(&mut self, mutant: Option<Mutant>) {
        self.state.broken = mutant;
        if mutant == Some(Mutant::PublicSeed) {
            self.metadata.set_journal_seed(self.durable.superblock.parameters.public_seed());
        }
    }
}

#[cfg(not(feature = "mutants"))]
impl Pool {
    /// Returns false: without the feature, no mutant is active.
    #[inline(always)]
    pub(crate) fn mutant(&self, _mutant: Mutant) -> bool {
        false
    }
}
