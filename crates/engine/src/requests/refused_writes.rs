//! Writes that the store refused for want of space: the list that `data_path/enospc.rs` retries in rounds.

use alloc::vec::Vec;

use crate::api::{IoId, Nanos};
use crate::sizes::list_bytes;

/// A write that waits for space.
#[derive(Clone, Copy)]
pub(crate) struct RefusedWrite {
    pub io: IoId,
    /// Time at which it first found none.
    pub since: Nanos,
}

/// State of the retries of refused writes: see `data_path/enospc.rs`.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Round {
    #[default]
    Idle,
    Waiting(Nanos),
    Trying,
}

/// The writes that wait for space.
#[derive(Default)]
pub(crate) struct EnospcWrites {
    pub round: Round,
    /// Writes that are not with the driver, in the order in which they came back.
    pub kept: Vec<RefusedWrite>,
    /// Writes that are with the driver once more.
    pub tried: Vec<RefusedWrite>,
    /// The last record that was complete when the round before ended.
    pub complete: u64,
    /// True if a write has found no space for two seconds: changes are refused.
    pub refuses: bool,
}

impl EnospcWrites {
    /// Returns true if any write waits for space.
    pub(crate) fn is_on(&self) -> bool {
        self.round != Round::Idle
    }

    /// Returns the time at which the next round begins, if one waits.
    pub(crate) fn due(&self) -> Option<Nanos> {
        if let Round::Waiting(due) = self.round { Some(due) } else { None }
    }

    /// Returns the bytes of memory of the lists.
    pub(crate) fn memory(&self) -> u64 {
        list_bytes(&self.kept) + list_bytes(&self.tried)
    }
}
