//! Group commit: the rules by which records are closed and synced.
//!
//! Flushes and FUA writes wait for their record to be durable. While a sync is in flight, new ones collect in the open record; when it is done, the
//! record is closed, written and synced as one group. A small group inlines its blocks (commit rule 4). Where all earlier records are durable, it is
//! written as a durable write: it needs no sync, since a flush waits for nothing else. Where clients flush after the same number of changes again and
//! again, such a group is closed before they do. A sync covers the writes that were seen complete when it was submitted (rule 1).
//!
//! Where a sync fails, the store may have lost all writes that had not reached the medium. It tells only one of the syncs in progress: the next fsync
//! of a file succeeds again. So a sync and a durable write that overlap are trusted together, when both have succeeded, and neither after a failure.

use crate::api::Failure;
use crate::api::*;
use crate::engine::Engine;
use crate::metadata::io::Purpose;
use crate::mutant::Mutant;
use crate::pool::records::are_enough;
use crate::requests::request::Stage;

/// Bytes of unsynced writes after which the engine syncs without a flush.
const SELF_SYNC_BYTES: u64 = 64 << 20;
/// Most new blocks inlined in the journal that wait for others: few, because the next flush may wait for all of them.
const SCATTERED_INLINED: usize = 8;

impl Engine {
    pub(crate) fn run_flush(&mut self, id: RequestId) {
        if self.pool.state.read_only {
            return self.fail_request(id, Error::Io);
        }
        self.pool.durable.journal.note_flush();
        let last = self.pool.durable.journal.last();
        if last <= self.pool.durable.journal.durable || self.pool.mutant(Mutant::EarlyFlush) {
            return self.answer_done(id);
        }
        self.requests.get_mut(id).stage = Stage::Commit;
        self.queues.wait_for_record(last, id);
    }

    /// Closes and syncs the records that requests wait for.
    pub(crate) fn commit(&mut self) {
        let asked = self.queues.last_record().unwrap_or(0).max(self.pool.durable.want_durable);
        let idle = self.pool.durable.syncs.covers.is_none()
            && self.pool.durable.journal.complete + 1 == self.pool.durable.journal.sequence;
        if idle && self.pool.durable.want_publish {
            self.pool.durable.want_publish = !self.pool.close_record(true);
        } else if idle
            && !self.pool.durable.journal.is_empty()
            && (asked >= self.pool.durable.journal.sequence || self.pool.durable.journal.expects_flush())
        {
            self.pool.close_record(true);
        }
        if self.pool.durable.syncs.covers.is_some() {
            return;
        }
        let first = self.queues.first_record().unwrap_or(u64::MAX);
        let wanted = first.min(if self.pool.durable.want_durable > self.pool.durable.journal.durable {
            self.pool.durable.want_durable
        } else {
            u64::MAX
        });
        let records = wanted <= self.pool.durable.journal.complete
            && self.pool.durable.journal.complete > self.pool.durable.journal.durable;
        if records
            || self.pool.durable.inlined_copies.are_many()
            || self.pool.durable.syncs.wanted > self.pool.durable.syncs.submitted
        {
            self.pool.durable.syncs.covers = Some(self.pool.durable.journal.complete);
            self.pool.durable.syncs.covers_batches = self.pool.durable.inlined_copies.landed();
            self.pool.durable.syncs.submitted += 1;
            self.pool.durable.journal.unsynced_bytes = 0;
            if self.pool.mutant(Mutant::SkippedSync) {
                return self.synced(Ok(Outcome::Complete));
            }
            self.pool.durable.metadata.io.begin(IoOp::Sync, 0, 0, [], Purpose::Sync);
        }
    }

    pub(crate) fn synced(&mut self, result: Result<Outcome<'_>, IoError>) {
        if result.is_err() {
            self.pool.durable.syncs.covers = None;
            return self.fail_pool(Failure::Sync);
        }
        self.pool.durable.syncs.ended = true;
        self.complete_sync();
    }

    /// Counts a successful sync, once no durable write is beside it that may still fail.
    pub(crate) fn complete_sync(&mut self) {
        let waits = self.pool.durable.metadata.io.makes_durable() && !self.pool.mutant(Mutant::LoneSuccess);
        if !self.pool.durable.syncs.ended || waits {
            return;
        }
        self.pool.durable.syncs.ended = false;
        let covers = self.pool.durable.syncs.covers.take().expect("a sync that has ended was in progress");
        if self.pool.state.read_only {
            return;
        }
        self.pool.durable.syncs.finished += 1;
        self.pool.durable.inlined_copies.synced(self.pool.durable.syncs.covers_batches);
        self.proven_durable(covers);
    }

    /// Notes that a record has been written durably: it counts as durable at once, or with the sync beside it.
    pub(crate) fn record_forced(&mut self, sequence: u64) {
        let alone = self.pool.mutant(Mutant::LoneSuccess);
        match &mut self.pool.durable.syncs.covers {
            Some(covers) if !alone => *covers = sequence.max(*covers),
            _ if self.pool.state.read_only && !alone => {}
            _ => self.proven_durable(sequence),
        }
    }

    /// Notes that all records up to this one are durable, with their blocks, and answers the requests that waited for that.
    pub(crate) fn proven_durable(&mut self, upto: u64) {
        self.pool.durable.journal.synced(upto);
        while let Some(id) = self.queues.pop_durable(self.pool.durable.journal.durable) {
            self.answer_done(id);
        }
        self.jobs.reclaim(&mut self.pool, &self.repairs);
    }

    /// Relieves back-pressure: waiting blocks are written sooner when buffers get scarce, or when there are many.
    pub(crate) fn relieve_pressure(&mut self) {
        let scarce = self.pool.memory.buffers.incoming_percent() > 50 || self.queues.waits_for_buffers() > 0;
        if scarce && !self.pool.durable.journal.unwritten.is_empty() {
            self.pool.write_slots();
        }
        let inlined = &self.pool.durable.inlined;
        if scarce || are_enough(inlined.len(), inlined.front(), inlined.back(), SCATTERED_INLINED) {
            self.pool.write_inlined();
        }
        // Once: a goal that moves on with every write that comes meanwhile would never be reached.
        if self.pool.durable.journal.unsynced_bytes >= SELF_SYNC_BYTES
            && self.pool.durable.want_durable <= self.pool.durable.journal.durable
        {
            self.pool.durable.want_durable = self.pool.durable.want_durable.max(self.pool.durable.journal.last());
        }
    }

    // ---- time ----
}
