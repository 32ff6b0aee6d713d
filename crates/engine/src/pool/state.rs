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
pub(crate) enum Mark {
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

/// Facts about the requests, which the layer above tells those whom they concern, for the step that is being taken.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Facts {
    /// True if no request has been in flight for a while.
    pub is_idle: bool,
    /// Time at which `is_idle` becomes true, if no request comes.
    pub idle_from: Nanos,
    /// Requests are in flight.
    pub are_active: bool,
    /// Writes wait for space, or commands for what they asked for.
    pub are_waiting: bool,
    /// Writes wait for space.
    pub writes_wait: bool,
    /// Requests wait for buffers.
    pub are_starved: bool,
    /// Long clears have been begun that will go on.
    pub clears_left: bool,
}
