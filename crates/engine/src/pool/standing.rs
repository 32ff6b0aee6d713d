//! Whether the pool serves, and what it is on its way to.

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
