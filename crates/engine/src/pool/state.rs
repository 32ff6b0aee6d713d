//! State of the pool: its phase from opening to the end, its failure marker, and the foreground load.

use crate::api::Nanos;

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
    /// True if writes wait for space, or commands for their effects.
    pub blocked: bool,
    /// True if writes wait for space.
    pub writes_blocked: bool,
    /// True if requests wait for buffers.
    pub out_of_buffers: bool,
    /// True if long clears have begun and will continue.
    pub clears_left: bool,
    /// True if commands wait for their effects.
    pub commands_wait: bool,
    /// True if no command waits except closes.
    pub only_closes: bool,
    /// True if the host is full: writes that found no space are kept and made again.
    pub host_full: bool,
}
