//! Whether the pool serves, and what it is on its way to.

use crate::api::Nanos;

/// What the engine is doing.
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

/// How far the superblock of a failed pool has come.
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

/// What is so above, where requests are: told to whom it concerns, for the step that is being taken.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Facts {
    /// No request has been in flight for a while.
    pub is_idle: bool,
    /// When that will be so, if no request comes.
    pub idle_from: Nanos,
    /// Requests are in flight.
    pub are_active: bool,
    /// Writes wait for room, or commands for what they asked for.
    pub are_waiting: bool,
    /// Writes wait for room.
    pub writes_wait: bool,
    /// Requests wait for buffers.
    pub are_starved: bool,
    /// Long clears have been begun that will go on.
    pub clears_left: bool,
}
