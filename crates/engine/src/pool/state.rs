//! State of the pool: serving, or on its way to that or to its end.

use crate::api::Nanos;

/// Phase in which the engine is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    Recovering,
    Serving,
    /// A command to close came: finishing.
    Closing,
    Closed,
    /// Opening failed.
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

/// A look at the owner that was asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Look(pub u64);

/// Snapshot of the foreground load, passed to each background step.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LoadSnapshot {
    /// True if no request has been in flight for a while.
    pub is_idle: bool,
    /// Time at which `is_idle` becomes true, if no request comes.
    pub idle_from: Nanos,
    /// Requests are in flight.
    pub requests_in_flight: bool,
    /// Writes wait for space, or commands for what they asked for.
    pub blocked: bool,
    /// Writes wait for space.
    pub writes_blocked: bool,
    /// Requests wait for buffers.
    pub out_of_buffers: bool,
    /// Long clears have been begun that will go on.
    pub clears_left: bool,
}
