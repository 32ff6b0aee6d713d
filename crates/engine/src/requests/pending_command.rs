//! Commands that wait for their effects, each with the condition under which it is answered.

use crate::pool::volumes::VolumeChange;

/// A command that has not been answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PendingCommand {
    pub token: u64,
    pub wait: CommandWait,
}

/// Condition under which a command is answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CommandWait {
    /// This number of checkpoints is done.
    Checkpoint { checkpoints: u64 },
    /// This group of snapshots, or this rollback, is durable, or refused.
    Snapshots { group: u64 },
    /// The pool has grown to this size.
    Grow { capacity: u64, metadata: u64 },
    /// There is space for the change.
    Change(VolumeChange),
    /// This record is durable.
    Record { sequence: u64 },
    /// Nothing is unmerged, buffered or pending.
    Settle,
    /// This number of checkpoints is done; `None` until all requests are answered.
    Close { checkpoints: Option<u64> },
}

impl PendingCommand {
    /// Returns true if the command closes the pool.
    pub(crate) fn is_close(&self) -> bool {
        matches!(self.wait, CommandWait::Close { .. })
    }
}
