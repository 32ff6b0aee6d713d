//! Writes that the store refused for want of space (ENOSPC), and the rounds in which they are retried. `data_path/enospc.rs` drives the rounds.
//!
//! ```text
//! Idle     no write is kept
//! Waiting  some are; a round begins when it is due
//! Trying   all of them have been submitted once more. A round ends when the last one has come back
//! ```

use alloc::vec::Vec;
use core::mem::take;

use crate::api::{IoId, Nanos};
use crate::sizes::list_bytes;

/// Time from the end of one round to the beginning of the next.
const PAUSE: Nanos = 250_000_000;
/// Nanoseconds for which a write is made again before changes and flushes fail.
const PATIENCE: Nanos = 2_000_000_000;

/// A write that waits for space.
#[derive(Clone, Copy)]
struct RefusedWrite {
    io: IoId,
    /// Time at which it first found none.
    since: Nanos,
}

#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum Round {
    #[default]
    Idle,
    Waiting(Nanos),
    Trying,
}

/// Result of a round.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RoundEnd {
    /// All writes have found space.
    Done,
    /// Some wait for the next round.
    Waits,
    /// Some have waited for so long that changes are refused. `stalled`: no record has become complete in this round.
    Refuses { stalled: bool },
}

/// The writes that wait for space.
#[derive(Default)]
pub(crate) struct RefusedWrites {
    round: Round,
    /// Writes that are not with the driver, in the order in which they came back.
    kept: Vec<RefusedWrite>,
    /// Writes that are with the driver once more.
    tried: Vec<RefusedWrite>,
    /// The last record that was complete when the round before ended.
    complete: u64,
    /// True if a write has found no space for longer than [`PATIENCE`]: changes are refused.
    refuses: bool,
}

impl RefusedWrites {
    /// Returns true if any write waits for space.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.round != Round::Idle
    }

    /// Returns true if a write has waited for so long that changes and flushes are refused.
    pub(crate) fn refuses_changes(&self) -> bool {
        self.refuses
    }

    /// Returns the time at which the next round begins, if one waits.
    pub(crate) fn due(&self) -> Option<Nanos> {
        if let Round::Waiting(due) = self.round { Some(due) } else { None }
    }

    /// Returns true if this write waits for space, or is being made again because it did.
    pub(crate) fn keeps(&self, io: IoId) -> bool {
        self.kept.iter().chain(&self.tried).any(|kept| kept.io == io)
    }

    /// Returns the number of writes that are not with the driver.
    pub(crate) fn kept(&self) -> usize {
        self.kept.len()
    }

    /// Forgets that an I/O is with the driver once more. Returns the time since when it has waited, if it is one of these writes.
    pub(crate) fn came_back(&mut self, io: IoId) -> Option<Nanos> {
        let at = self.tried.iter().position(|tried| tried.io == io)?;
        Some(self.tried.swap_remove(at).since)
    }

    /// Keeps a write for the next round. `complete` is the last complete record.
    pub(crate) fn keep(&mut self, io: IoId, since: Nanos, now: Nanos, complete: u64) {
        if !self.is_on() {
            (self.round, self.complete) = (Round::Waiting(now + PAUSE), complete);
        }
        self.kept.push(RefusedWrite { io, since });
    }

    /// Begins a round if one is due: `send` gets each write.
    pub(crate) fn begin_round(&mut self, now: Nanos, mut send: impl FnMut(IoId)) {
        if self.due().is_some_and(|due| due <= now) {
            self.round = Round::Trying;
            self.kept.iter().for_each(|kept| send(kept.io));
            self.tried.append(&mut self.kept);
        }
    }

    /// Returns true if all writes of a round have come back.
    pub(crate) fn is_round_over(&self) -> bool {
        self.round == Round::Trying && self.tried.is_empty()
    }

    /// Ends a round. `complete` is the last complete record.
    pub(crate) fn end_round(&mut self, now: Nanos, complete: u64) -> RoundEnd {
        let Some(since) = self.kept.iter().map(|kept| kept.since).min() else {
            *self = RefusedWrites::default();
            return RoundEnd::Done;
        };
        let stalled = complete == self.complete;
        (self.refuses, self.complete, self.round) = (now >= since + PATIENCE, complete, Round::Waiting(now + PAUSE));
        if self.refuses { RoundEnd::Refuses { stalled } } else { RoundEnd::Waits }
    }

    /// Takes all writes that are not with the driver, and begins anew.
    pub(crate) fn take_all(&mut self) -> impl Iterator<Item = IoId> + use<> {
        take(self).kept.into_iter().map(|kept| kept.io)
    }

    /// Returns the bytes of memory of the lists.
    pub(crate) fn memory(&self) -> u64 {
        list_bytes(&self.kept) + list_bytes(&self.tried)
    }
}
