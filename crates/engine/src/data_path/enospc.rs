//! Writes that the store refused for want of space (ENOSPC): on a full copy-on-write file system, or a thin device, an overwrite needs new space,
//! too.
//!
//! Nothing is lost by such a write, so it is no failure of the pool. It is kept, and made again as a whole until there is space. For all others it is
//! still in flight: its buffers and pages stay, its record is not complete, the checkpoint waits for it, and nothing else is written to its place. So
//! no order changes.
//!
//! ```text
//! Idle     no write is kept
//! Waiting  some are; a round begins when it is due
//! Trying   all of them have been submitted once more. A round ends when the last one has come back
//! ```
//!
//! When a round ends and a write has been kept for two seconds, the waiters get an answer. Flushes and FUA writes whose records got no nearer to the
//! store in this round, and all writes that wait for space, fail with [`Error::NoSpace`]. From then on new writes, zeroes and trims fail at once, so
//! that memory does not fill with blocks that cannot be stored. Flushes ask the store again: each waits for the end of a round. Reads continue. When
//! all kept writes are done, everything is as before, and the next flush covers all answered writes.
//!
//! Kept are the writes that must succeed: slots, records, pages, superblocks. A repair in place that finds no space is a failed repair. Writes while
//! a pool is opened, or of a failed pool, are not kept either.

use crate::api::*;
use crate::engine::Engine;
use crate::metadata::io::Purpose;
use crate::mutant::Mutant;
use crate::pool::state::Phase;
use crate::requests::refused_writes::{RefusedWrites, RoundEnd};
use crate::requests::request::Kind;

impl Engine {
    /// Returns true if writes wait for space on the store.
    pub fn waits_for_host_space(&self) -> bool {
        self.enospc.is_on()
    }

    /// Returns true if writes have waited for space for so long that changes and flushes fail.
    pub fn lacks_space(&self) -> bool {
        self.enospc.refuses_changes()
    }

    /// Returns true if the host's lack of space may keep commands from becoming durable.
    pub fn holds_back_commands(&self) -> bool {
        self.enospc.is_on() || self.pool.state.metadata_full()
    }

    /// Returns true if this write waits for space, or is being made again because it did.
    pub fn keeps(&self, io: IoId) -> bool {
        self.enospc.keeps(io)
    }

    /// Returns true if a request of this kind is refused, since it would need space that the store does not have.
    pub(crate) fn is_refused_for_space(&self, kind: Kind) -> bool {
        self.enospc.refuses_changes() && matches!(kind, Kind::Write | Kind::Clear)
    }

    /// Keeps a write of a page, block, journal record or superblock that failed with [`IoError::NoSpace`], so that a later round retries it, and
    /// returns `None`. Returns the result of other I/O and other results, also if the pool is read-only, or neither serves nor closes.
    #[inline]
    pub(crate) fn keep_for_space<'a>(
        &mut self,
        io: IoId,
        result: Result<Outcome<'a>, IoError>,
    ) -> Option<Result<Outcome<'a>, IoError>> {
        if result.is_ok() && !self.enospc.is_on() {
            return Some(result);
        }
        let before = self.enospc.came_back(io);
        let must_succeed = matches!(
            self.pool.metadata.io().purpose(io),
            Purpose::WritePage(_) | Purpose::WriteSlots { .. } | Purpose::WriteRecord { .. } | Purpose::Superblock
        );
        let serves = matches!(self.pool.state.phase(), Phase::Serving | Phase::Closing) && !self.pool.state.read_only();
        if result != Err(IoError::NoSpace) || !must_succeed || !serves {
            return Some(result);
        }
        if self.pool.mutant(Mutant::ForgottenWrite) {
            return Some(Ok(Outcome::Complete));
        }
        let (now, complete) = (self.pool.state.now(), self.pool.durable.journal().complete());
        self.enospc.keep(io, before.unwrap_or(now), now, complete);
        None
    }

    /// Begins and ends rounds.
    pub(crate) fn step_enospc(&mut self) {
        if self.enospc.is_round_over() {
            return self.end_round();
        }
        let io_table = self.pool.metadata.io_mut();
        self.enospc.begin_round(self.pool.state.now(), |io| io_table.send(io));
    }

    fn end_round(&mut self) {
        match self.enospc.end_round(self.pool.state.now(), self.pool.durable.journal().complete()) {
            RoundEnd::Done => self.pool.state.set_host_full(false),
            RoundEnd::Waits => {}
            RoundEnd::Refuses { stalled } => self.refuse_waiting(stalled),
        }
    }

    /// Fails the writes that wait for space, and, if no record has become complete in the round, the flushes.
    fn refuse_waiting(&mut self, stalled: bool) {
        if stalled {
            // Complete records need only a sync.
            let complete = self.pool.durable.journal().complete();
            for (_, id) in self.queues.take_for_records_after(complete) {
                self.fail_request(id, Error::NoSpace);
            }
        }
        while let Some(id) = self.queues.pop_for_space() {
            self.fail_request(id, Error::NoSpace);
        }
        if self.pool.state.phase() == Phase::Closing {
            self.fail_commands_for_space();
        }
    }

    /// Returns true if a pool that is being closed has nothing else to wait for than space.
    fn only_lacks_space(&self) -> bool {
        self.enospc.refuses_changes() && self.pool.metadata.io().in_flight() == self.enospc.kept()
    }

    /// Ends a close that finds no space with an error, when there is nothing else to wait for.
    pub(crate) fn close_without_space(&mut self) -> Option<ControlError> {
        if !self.only_lacks_space() {
            return None;
        }
        self.enospc = RefusedWrites::default();
        // A record that says no more than its watermark may be missing.
        let all = self.pool.durable.journal().is_empty()
            && self.pool.durable.journal().last_filled() <= self.pool.durable.journal().durable();
        Some(if all { ControlError::HostFull } else { ControlError::NotDurable })
    }
}
