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
    /// Answers a flush, or lets it wait until all records so far are durable.
    pub(crate) fn run_flush(&mut self, id: RequestId) {
        if self.pool.state.read_only() {
            return self.fail_request(id, Error::Io);
        }
        self.pool.durable.journal_mut().note_flush();
        let last = self.pool.durable.journal().last();
        if last <= self.pool.durable.journal().durable() || self.pool.mutant(Mutant::EarlyFlush) {
            return self.answer_done(id);
        }
        self.requests.get_mut(id).enter(Stage::Commit);
        self.queues.wait_for_record(last, id);
    }

    /// Closes and syncs the records that requests wait for.
    pub(crate) fn commit(&mut self) {
        let asked = self.queues.last_record().unwrap_or(0);
        if self.pool.durable.journal().is_to_close(asked) && self.pool.close_record(true) {
            self.pool.durable.journal_mut().end_publish_request();
        }
        if !self.pool.durable.journal_mut().begin_sync(self.queues.first_record()) {
            return;
        }
        if self.pool.mutant(Mutant::SkippedSync) {
            return self.synced(Ok(Outcome::Complete));
        }
        self.pool.metadata.io_mut().begin(IoOp::Sync, 0, 0, [], Purpose::Sync);
    }

    /// Takes the completion of a sync.
    pub(crate) fn synced(&mut self, result: Result<Outcome<'_>, IoError>) {
        if result.is_err() {
            self.pool.durable.journal_mut().sync_failed();
            return self.fail_pool(Failure::Sync);
        }
        self.pool.durable.journal_mut().sync_succeeded();
        self.complete_sync();
    }

    /// Counts a successful sync, once no durable write is beside it that may still fail.
    pub(crate) fn complete_sync(&mut self) {
        if !self.pool.durable.journal().has_sync_succeeded() {
            return;
        }
        if self.pool.metadata.io().makes_durable() && !self.pool.mutant(Mutant::LoneSuccess) {
            return;
        }
        let covers = self.pool.durable.journal_mut().end_sync();
        if self.pool.state.read_only() {
            return;
        }
        self.pool.durable.journal_mut().count_sync();
        self.proven_durable(covers);
    }

    /// Notes that a record has been written durably: it counts as durable at once, or with the sync beside it.
    pub(crate) fn record_forced(&mut self, sequence: u64) {
        let alone = self.pool.mutant(Mutant::LoneSuccess);
        if !alone && (self.pool.durable.journal_mut().extend_sync(sequence) || self.pool.state.read_only()) {
            return;
        }
        self.proven_durable(sequence);
    }

    /// Notes that all records up to this one are durable, with their blocks, and answers the requests that waited for that.
    pub(crate) fn proven_durable(&mut self, upto: u64) {
        self.pool.durable.journal_mut().synced(upto);
        while let Some(id) = self.queues.pop_for_record(self.pool.durable.journal().durable()) {
            self.answer_done(id);
        }
        self.jobs.reclaim(&mut self.pool, &self.repairs);
    }

    /// Relieves back-pressure: waiting blocks are written sooner when buffers get scarce, or when there are many.
    pub(crate) fn relieve_pressure(&mut self) {
        let scarce = self.pool.memory.buffers().incoming_percent() > 50 || self.queues.waits_for_buffers() > 0;
        if scarce && !self.pool.durable.journal().unwritten().is_empty() {
            self.pool.write_slots();
        }
        let inlined = self.pool.durable.journal().inlined();
        if scarce || are_enough(inlined.len(), inlined.front(), inlined.back(), SCATTERED_INLINED) {
            self.pool.write_inlined();
        }
        // Once: a goal that moves on with every write that comes meanwhile would never be reached.
        let journal = self.pool.durable.journal_mut();
        if journal.unsynced_bytes() >= SELF_SYNC_BYTES && !journal.is_durability_wanted() {
            journal.want_all_durable();
        }
    }
}
