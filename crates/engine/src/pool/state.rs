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
    pub(crate) now: Nanos,
    pub(crate) phase: Phase,
    /// True if the pool has failed since it was opened.
    pub(crate) read_only: bool,
    /// Reason of its failure, in this run or before.
    pub(crate) failure: Option<Failure>,
    pub(crate) failure_marker: FailureMarker,
    /// True if the pool is opened to be read: changes are refused.
    pub(crate) reads_only: bool,
    /// True if nothing at all is written: opened to be read and found cleanly closed, or the pool has failed before.
    pub(crate) untouched: bool,
    /// True if space for the metadata of a checkpoint could not be reserved: the host is full.
    pub(crate) metadata_full: bool,
    /// True if reserving failed because the host is full. The next tick clears it.
    pub(crate) host_full: bool,
    /// True if closing must not wait for a checkpoint.
    pub(crate) closes_early: bool,
    pub(crate) last_change: Nanos,
    pub(super) needs_pump: bool,
    /// Active mutant, if there is one.
    #[cfg(feature = "mutants")]
    pub(super) broken: Option<Mutant>,
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
    pub(crate) fn recovery_failed(&mut self, error: OpenError) {
        if self.state.phase == Phase::Recovering {
            self.state.phase = Phase::Dead;
            self.durable.metadata.io.effects.push_back(Effect::Opened(Err(error)));
        }
    }

    /// Returns true if repairs may be written: the pool is neither read-only nor left untouched.
    pub(crate) fn may_repair(&self) -> bool {
        !self.state.read_only && !self.state.untouched && !self.state.reads_only
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
            self.durable.metadata.journal_seed = self.durable.superblock.parameters.public_seed();
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
