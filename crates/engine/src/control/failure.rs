//! What happens when the pool can no longer be written safely: a write, a sync or a reservation failed (not for want of space), a page that a checkpoint needs is
//! damaged, or the tables contradict each other.
//!
//! ```text
//! at once    the pool is read-only: what waits for a record or for space is answered with an error, and so is every flush
//! Wait       until no superblock of a checkpoint is on its way
//! Look       until it is certain that nobody else has the pool (owner.rs)
//! First      a superblock that says so, to the first place; then a sync
//! Second     the same to the second place; then a sync
//! Done       nothing is written any more
//! ```
//!
//! A failure is never retried: what a failed sync left is unknown. (A lack of space is no failure: `enospc.rs`.) The superblock of a failed pool has the state of the newest one
//! that is durable in both places, under a later epoch; it takes the places of others than that newest one, one place after the other, so that
//! there is always one that is whole. Where it cannot be written either, the pool is opened next as after a crash.
//!
//! A pool that another has taken over fails in the same way here, and nothing of that is written: it is the other's. All requests
//! fail then, also reads, for what they would find is of two engines.
//!
//! A pool that has failed is opened without writing anything to it: the journal is replayed in memory, and blocks that it
//! carries are read from there. An explicit repair lifts the failure.

use crate::api::*;
use crate::engine::Engine;
use crate::format::superblock::Superblock;
use crate::metadata::io::Purpose;
use crate::pool::state::FailureMarker;

impl Engine {
    /// Fails the pool, which can no longer be written safely: reads go on, everything else fails from here on.
    pub(crate) fn fail_pool(&mut self, failure: Failure) {
        if core::mem::replace(&mut self.pool.read_only, true) {
            return;
        }
        self.pool.failure = Some(failure);
        self.pool.failure_marker = if self.pool.has_lost_owner() { FailureMarker::Done } else { FailureMarker::Wait };
        while let Some((_, id)) = self.committing.pop_front() {
            self.fail_request(id, Error::Io);
        }
        while let Some(id) = self.waiting_for_space.pop_front() {
            self.fail_request(id, Error::ReadOnly);
        }
        self.fail_commands();
        self.pool.needs_pump = true;
    }

    /// Returns true if everything has been done to keep the failure on the store.
    pub(crate) fn failure_is_kept(&self) -> bool {
        self.pool.failure_marker == FailureMarker::Done
    }

    /// Brings the superblock of a failed pool on its way.
    pub(crate) fn step_failure(&mut self) {
        if self.pool.failure_marker == FailureMarker::Wait && self.pool.superblocks_in_flight == 0 {
            self.pool.failure_marker = FailureMarker::Look(self.pool.look_at_owner());
        }
        if let FailureMarker::Look(look) = self.pool.failure_marker
            && self.pool.is_ours(look)
        {
            // Not where the newest superblock is that is whole for certain: writing may tear what is there.
            let epoch = match self.pool.superblock_submitted {
                submitted if submitted > self.pool.superblock.epoch => submitted + 2,
                _ => self.pool.superblock.epoch + 1,
            };
            let proven = self.pool.journal.durable;
            self.pool.superblock =
                Superblock { epoch, proven, clean: false, failed: self.pool.failure, ..self.pool.superblock };
            self.pool.failure_marker = FailureMarker::Write(0);
        }
        if let FailureMarker::Write(place) = self.pool.failure_marker {
            let failed = self.pool.superblock;
            let written = self.pool.submit_superblock(&failed, &[place], Purpose::FailureMarker);
            self.pool.failure_marker =
                if written.is_some() { FailureMarker::Writing(place) } else { FailureMarker::Done };
        }
    }

    /// Takes the completion of a write or a sync of the failure's mark, and begins the next one.
    pub(crate) fn marked(&mut self, segments: &[Segment], result: Result<Outcome<'_>, IoError>) {
        if let Some(&Segment::Page(page)) = segments.first() {
            self.pool.metadata.pages.release(page);
        }
        self.pool.failure_marker = match self.pool.failure_marker {
            _ if result.is_err() => FailureMarker::Done,
            FailureMarker::Writing(place) => {
                self.pool.metadata.io.begin(IoOp::Sync, 0, 0, [], Purpose::FailureMarker);
                FailureMarker::Syncing(place)
            }
            FailureMarker::Syncing(0) => FailureMarker::Write(1),
            _ => FailureMarker::Done,
        };
    }
}

impl Engine {
    /// Ends a look at the owner record; the pool fails if the record is gone, damaged, or names another owner.
    pub(crate) fn owner_looked_at(&mut self, number: u64, result: Result<Outcome<'_>, IoError>) {
        match self.pool.judge_owner(result) {
            None => self.pool.owner_seen(number),
            Some(failure) => self.lose_owner(failure),
        }
    }

    fn lose_owner(&mut self, failure: Failure) {
        self.pool.lose_owner();
        self.fail_pool(failure);
        self.pool.failure_marker = FailureMarker::Done;
        if failure == Failure::TakenOver {
            // Also where something else had failed before: who is told of it must not repair another's pool.
            self.pool.failure = Some(failure);
        }
        self.pool.needs_pump = true;
    }
}
