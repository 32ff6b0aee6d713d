//! The failure path: the steps when the pool can no longer be written safely. A write, a sync or a reservation failed (not for want of space), a page
//! that a checkpoint needs is damaged, or the tables contradict each other.
//!
//! ```text
//! at once    the pool is read-only: requests that wait for a record or for space are answered with an error, and so is every flush
//! Wait       until no superblock of a checkpoint is in flight
//! Look       until it is certain that the pool has no other owner (owner.rs)
//! Write      a superblock with the failure: to the first place; when that is synced, to the second
//! Writing    until it is written
//! Syncing    until the sync after it is done
//! Done       nothing is written any more
//! ```
//!
//! A failure is never retried: the state after a failed sync is unknown. (A lack of space is no failure: `enospc.rs`.) The superblock of a failed
//! pool has the state of the newest one that is durable in both places, under a later epoch. It takes the places of others than that newest one, one
//! place after the other, so that there is always one that is whole. Where it cannot be written either, the pool is opened next as after a crash.
//!
//! A pool that another has taken over fails in the same way here, and nothing of that is written: it is the other's. All requests fail then, also
//! reads, because their data would be of two engines. Where the record of the owner cannot be read, after a failed write or without one, the store is gone, or
//! it is this host that was fenced: the failure says so, as a repair would be of no use.
//!
//! A pool that has failed is opened without writing anything to it: the journal is replayed in memory, and blocks that it
//! carries are read from there. An explicit repair lifts the failure.

use crate::api::*;
use crate::engine::Engine;
use crate::metadata::io::Purpose;
use crate::pool::Pool;
use crate::pool::state::FailureMarker;
use crate::requests::pending_command::CommandWait;

impl Engine {
    /// Fails the pool, which can no longer be written safely: reads continue, everything else fails from then on.
    pub(crate) fn fail_pool(&mut self, failure: Failure) {
        if !self.pool.state.fail(failure) {
            return;
        }
        let is_kept = !self.pool.has_lost_owner();
        self.pool.state.set_failure_marker(if is_kept { FailureMarker::Wait } else { FailureMarker::Done });
        while let Some(id) = self.queues.pop_for_record(u64::MAX) {
            self.fail_request(id, Error::Io);
        }
        while let Some(id) = self.queues.pop_for_space() {
            self.fail_request(id, Error::ReadOnly);
        }
        self.fail_commands();
        self.pool.wake();
    }

    /// Returns true if every step to keep the failure on the store is done.
    pub(crate) fn failure_is_kept(&self) -> bool {
        self.pool.state.failure_marker() == FailureMarker::Done
    }

    /// Takes the next step to write the superblock of a failed pool.
    pub(crate) fn step_failure(&mut self) {
        if self.pool.state.failure_marker() == FailureMarker::Wait && !self.pool.durable.has_superblocks_in_flight() {
            let look = self.pool.look_at_owner();
            self.pool.state.set_failure_marker(FailureMarker::Look(look));
        }
        if let FailureMarker::Look(look) = self.pool.state.failure_marker()
            && self.pool.is_ours(look)
        {
            let failed = self.pool.state.failure();
            self.pool.durable.mark_failed(failed);
            self.pool.state.set_failure_marker(FailureMarker::Write(0));
        }
        if let FailureMarker::Write(place) = self.pool.state.failure_marker() {
            let failed = *self.pool.durable.superblock();
            let written = self.pool.submit_superblock(&failed, &[place], Purpose::FailureMarker);
            self.pool.state.set_failure_marker(if written.is_some() {
                FailureMarker::Writing(place)
            } else {
                FailureMarker::Done
            });
        }
    }

    /// Takes the completion of a write or a sync of the failure marker, and begins the next one.
    pub(crate) fn marked(&mut self, segments: &[Segment], result: Result<Outcome<'_>, IoError>) {
        if let Some(&Segment::Page(page)) = segments.first() {
            self.pool.metadata.pages_mut().release(page);
        }
        let next = match self.pool.state.failure_marker() {
            _ if result.is_err() => FailureMarker::Done,
            FailureMarker::Writing(place) => {
                self.pool.metadata.io_mut().begin(IoOp::Sync, 0, 0, [], Purpose::FailureMarker);
                FailureMarker::Syncing(place)
            }
            FailureMarker::Syncing(0) => FailureMarker::Write(1),
            _ => FailureMarker::Done,
        };
        self.pool.state.set_failure_marker(next);
    }
}

impl Engine {
    /// Ends a look at the owner record; the pool fails if the record is gone, damaged, or names another owner.
    pub(crate) fn owner_looked_at(&mut self, number: u64, result: Result<Outcome<'_>, IoError>) {
        let is_read = result.is_ok();
        match self.pool.judge_owner(result) {
            None => self.pool.owner_seen(number),
            Some(_) if !is_read => self.lose_owner(Failure::StoreGone),
            Some(failure) => self.lose_owner(failure),
        }
    }

    fn lose_owner(&mut self, failure: Failure) {
        self.pool.lose_owner();
        self.fail_pool(failure);
        self.pool.state.set_failure_marker(FailureMarker::Done);
        if matches!(failure, Failure::TakenOver | Failure::StoreGone) {
            // Replaces an earlier failure, which would advise a repair of another's pool.
            self.pool.state.set_failure(failure);
        }
        self.pool.wake();
    }

    /// Fails the pool, which becomes read-only, if a write did not succeed; returns true if it did. (A write that found no space is made again before
    /// it comes here.)
    pub(crate) fn check_written(&mut self, result: Result<Outcome<'_>, IoError>) -> bool {
        if result.is_err() {
            self.fail_pool(Failure::Write);
        }
        result.is_ok()
    }

    /// Fails all commands but closes when a pool that is being closed finds no space: their changes may or may not be there when it is opened next.
    pub(crate) fn fail_commands_for_space(&mut self) {
        let Engine { pool: Pool { metadata, .. }, pending_commands, .. } = self;
        pending_commands.retain(|pending| {
            let stays = pending.is_close();
            if !stays {
                let result = Err(ControlError::NotDurable);
                metadata.io_mut().queue(Effect::ControlReply { token: pending.token, result });
            }
            stays
        });
    }

    /// Fails the commands that wait for a checkpoint, and, if the pool has failed, those that wait for their record.
    pub(crate) fn fail_commands(&mut self) {
        let Engine { pool: Pool { metadata, state, .. }, pending_commands, .. } = self;
        pending_commands.retain(|pending| {
            let stays = match pending.wait {
                CommandWait::Close { .. } => true,
                CommandWait::Record { .. } => !state.read_only(),
                _ => false,
            };
            if !stays {
                let result = Err(ControlError::ReadOnly);
                metadata.io_mut().queue(Effect::ControlReply { token: pending.token, result });
            }
            stays
        });
    }
}
