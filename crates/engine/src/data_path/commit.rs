//! Group commit, and the space that writes need: the rules by which records are closed and synced, and by which writes wait.
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
use crate::data_path::write::SCATTERED_INLINED;
use crate::engine::Engine;
use crate::metadata::io::Purpose;
use crate::metadata::page_cache::Region;
use crate::metadata::tree::{LastLeaf, Unresolved};
use crate::metadata::tree::{Missing, PageLookup, locate};
use crate::mutant::Mutant;
use crate::pool::metadata_reservation::{Asked, MetadataUser};
use crate::pool::metadata_reservation::{Availability, Cleared};
use crate::pool::records::are_enough;
use crate::pool::state::{LoadSnapshot, Phase};
use crate::requests::request::{Block, Kind, Stage};

/// Nanoseconds after which the engine syncs without a flush.
const SELF_SYNC: Nanos = 1_000_000_000;
/// Bytes of unsynced writes after which the engine syncs without a flush.
const SELF_SYNC_BYTES: u64 = 64 << 20;
/// Time after which an idle pool merges its delta.
const IDLE_MERGE: Nanos = 5_000_000_000;
/// Checkpoints that a write waits for space before it fails, once all discarded subtrees have been walked.
const SPACE_ATTEMPTS: u64 = 3;

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
        self.committing.push_back((last, id));
    }

    /// Closes and syncs the records that requests wait for.
    pub(crate) fn commit(&mut self) {
        let asked = self.committing.back().map_or(0, |&(target, _)| target).max(self.pool.durable.want_durable);
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
        let first = self.committing.front().map_or(u64::MAX, |&(target, _)| target);
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
        while let Some(&(target, id)) = self.committing.front() {
            if target > self.pool.durable.journal.durable {
                break;
            }
            self.committing.pop_front();
            self.answer_done(id);
        }
        self.jobs.reclaim(&mut self.pool, &self.repairs);
    }

    /// Returns true if blocks that look like records travel in the journal, too: only in builds with mutants.
    pub(crate) fn has_inlined_records(&self) -> bool {
        self.pool.mutant(Mutant::InlinedRecord) || self.pool.mutant(Mutant::PublicSeed)
    }

    // ---- space ----

    /// Lets a write wait for space, in order.
    pub(crate) fn block(&mut self, id: RequestId) {
        if self.pool.state.closes_early {
            // Space comes with a checkpoint, and there will be none.
            return self.fail_request(id, Error::ShuttingDown);
        }
        self.requests.get_mut(id).stage = Stage::Admit;
        self.waiting_for_space.push_back(id);
    }

    /// Admits a write if record, ring, delta and metadata have space for it; if not, it waits, or fails where there will be none.
    pub(crate) fn admit(&mut self, id: RequestId) -> bool {
        let request = self.requests.get(id);
        let more = request.blocks.len() - request.unchanged + 1;
        let mut asked = match self.cleared_by(id) {
            Some(cleared) => Asked::clear(more, cleared),
            None => self.asked_by_write(id, more),
        };
        let mut fits = self.pool.has_metadata(&asked);
        let overwrite = Asked { who: MetadataUser::Overwrite, ..asked };
        if !fits && asked.who == MetadataUser::New && self.pool.has_metadata(&overwrite) {
            match self.only_overwrites(id) {
                Some(true) => (asked, fits) = (overwrite, true),
                Some(false) => {}
                None => return false,
            }
        }
        match self.pool.space_where(&asked, fits, self.time_slices.has_clears()) {
            Availability::Now => return true,
            Availability::Later => self.block(id),
            Availability::Never => self.find_no_space(id, fits),
        }
        false
    }

    /// Makes a write wait for the metadata that the driver offers, or fails it, when nothing is left to reclaim.
    #[cold]
    fn find_no_space(&mut self, id: RequestId, has_metadata: bool) {
        if !has_metadata && self.pool.await_growth() {
            return self.block(id);
        }
        if !has_metadata {
            self.pool.note_refused(Full::Metadata);
        }
        self.fail_request(id, Error::NoSpace);
    }

    /// Returns the space that a write of consecutive blocks asks for.
    fn asked_by_write(&self, id: RequestId, changes: usize) -> Asked {
        let is_changed = |block: &&Block| !block.unchanged;
        let blocks = &self.requests.get(id).blocks;
        let Some(first) = blocks.iter().find(is_changed) else { return Asked::scattered(changes) };
        let last = blocks.iter().rev().find(is_changed).unwrap_or(first);
        self.pool.asked_in_a_row(first.key, last.key, changes)
    }

    /// Returns true if all blocks of a write lie in leaves that exist, or that have been promised; `None` if pages have to be loaded first.
    fn only_overwrites(&mut self, id: RequestId) -> Option<bool> {
        let volume = self.pool.volume_index(self.requests.get(id).volume)?;
        let per_leaf = self.pool.durable.metadata.geometry.map_leaf_entries();
        let mut last = None;
        for at in 0..self.requests.get(id).blocks.len() {
            let Block { key, unchanged, .. } = self.requests.get(id).blocks[at];
            if unchanged || self.pool.unflushed(key).is_some_and(|entry| entry.slot().is_some()) {
                continue;
            }
            let leaf = key.lba() / per_leaf;
            if last.replace(leaf) == Some(leaf) {
                continue;
            }
            match locate(&mut self.pool.durable.metadata, Region::Metadata, self.pool.durable.maps[volume], 0, leaf) {
                PageLookup::At(pointer) if !pointer.is_lost() => {}
                PageLookup::At(_) | PageLookup::Absent(_) => return Some(false),
                PageLookup::Missing(_, Missing { key, pointer, .. })
                    if pointer.is_lost() || self.pool.durable.failed_pages.contains(&key) =>
                {
                    return Some(false);
                }
                PageLookup::Missing(_, missing) => {
                    let request = self.requests.get_mut(id);
                    request.stage = Stage::LoadMap;
                    request.waiting += 1;
                    self.pool.durable.metadata.load(missing, Some(id));
                    return None;
                }
            }
        }
        Some(true)
    }

    /// Returns the most changes of the next part of a clear to its map; `None` if the request is no clear.
    fn cleared_by(&self, id: RequestId) -> Option<Cleared> {
        (self.requests.get(id).kind == Kind::Clear).then(|| {
            let (start, stop) = self.next_to_clear(id);
            self.pool.cleared(start, stop)
        })
    }

    /// Admits a write if there are slots for the blocks that are not shared; if not, it waits for slots that can be reclaimed, and fails when nothing is left
    /// to reclaim.
    pub(crate) fn admit_space(&mut self, id: RequestId) -> bool {
        let request = self.requests.get(id);
        let needed = request.blocks.iter().filter(|block| block.takes_slot()).count() as u64;
        let Some(kept) = self.is_kept_from(id, needed) else { return false };
        if !kept && needed <= self.pool.durable.space.ready() {
            return true;
        }
        if !kept && needed <= self.pool.durable.space.available() {
            // The containers that have them are being opened.
            self.block(id);
            return false;
        }
        let done = self.pool.checkpoint.checkpoints_done;
        let begins = self.requests.get(id).waits_since.is_none();
        let since = *self.requests.get_mut(id).waits_since.get_or_insert(done);
        if begins {
            // The host may have space again: ask once more, for each write that runs short.
            self.pool.state.host_full = false;
        }
        let can_reserve = !kept && self.pool.may_reserve();
        if !can_reserve {
            // A discard's slots become free with the checkpoint that walked it, and with the next ones.
            let tried = done >= since.max(self.pool.durable.slots_freed_in) + SPACE_ATTEMPTS
                && !self.pool.has_discards()
                && !self.pool.has_to_flush();
            let load = self.load();
            if self.pool.give_back_replicas(&load) || self.repairs.give_back_copies(&mut self.pool, &load) {
                // Their slots become free as those of a discard do.
                self.requests.get_mut(id).waits_since = Some(done);
            } else if self.pool.state.metadata_full
                || !self.pool.is_reclaimable(self.time_slices.has_clears()) && !self.pool.has_to_flush()
                || tried
            {
                if self.pool.state.metadata_full || !self.jobs.await_slots(&self.pool) {
                    self.pool.note_refused(Full::Data);
                    self.fail_request(id, Error::NoSpace);
                } else {
                    // The deduplication pass frees duplicate slots with its own checkpoints. Others would only delay it.
                    self.block(id);
                }
                return false;
            }
            self.pool.request_checkpoint();
            self.pool.ask_to_flush();
            self.pool.publish_pending();
        }
        self.block(id);
        false
    }

    /// Returns true if a write must leave the reserve (`spare_slots`) to overwrites: it maps blocks that had no slot, and fewer slots are free than
    /// these and the reserve. Returns `None` if pages of the map have to be loaded first, or the volume is gone or a page damaged.
    fn is_kept_from(&mut self, id: RequestId, needed: u64) -> Option<bool> {
        let spare = self.pool.durable.metadata.geometry.spare_slots();
        let free = self.pool.durable.space.free();
        if needed == 0 || spare == 0 || free >= needed + spare {
            return Some(false);
        }
        let volume = self.pool.volume_index(self.requests.get(id).volume)?;
        let (mut new, mut last, mut leaf) = (0, None, LastLeaf::default());
        for at in 0..self.requests.get(id).blocks.len() {
            let block = self.requests.get(id).blocks[at];
            if !block.takes_slot() {
                continue;
            }
            match self.pool.map_entry_after(volume, block.key, &mut leaf) {
                Ok(entry) => new += u64::from(entry.slot().is_none()),
                Err(Unresolved::Damaged) => {
                    self.fail_when_quiet(id, Error::Io);
                    return None;
                }
                Err(Unresolved::Missing(missing)) if last == Some(missing) => {}
                Err(Unresolved::Missing(missing)) => {
                    let request = self.requests.get_mut(id);
                    request.stage = Stage::LoadMap;
                    request.waiting += 1;
                    self.pool.durable.metadata.load(missing, Some(id));
                    last = Some(missing);
                }
            }
        }
        (self.requests.get(id).waiting == 0).then_some(new > 0 && free < new + spare)
    }

    /// Retries the writes that wait for space, in order, until one still has to wait.
    #[inline]
    pub(crate) fn retry_waiting_for_space(&mut self) {
        if !self.waiting_for_space.is_empty() {
            self.run_waiting_for_space();
        }
    }

    fn run_waiting_for_space(&mut self) {
        let mut others = core::mem::take(&mut self.retried);
        core::mem::swap(&mut self.waiting_for_space, &mut others);
        while self.waiting_for_space.is_empty()
            && let Some(id) = others.pop_front()
        {
            self.run(id);
        }
        // Clears go before writes that wait for space, until one has to wait itself.
        let mut at = 0;
        while let Some(&id) = others.get(at)
            && self.waiting_for_space.len() == 1
        {
            if self.may_overtake(id) {
                others.remove(at);
                self.run(id);
            } else {
                at += 1;
            }
        }
        self.waiting_for_space.append(&mut others);
        self.retried = others;
    }

    /// Relieves back-pressure: waiting blocks are written sooner when buffers get scarce, or when there are many.
    pub(crate) fn relieve_pressure(&mut self) {
        let scarce = self.pool.memory.buffers.incoming_percent() > 50 || !self.out_of_buffers.is_empty();
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

    /// Begins to make changes durable and to publish them, a second after the first change that is not; an idle pool merges its delta.
    pub(crate) fn self_sync(&mut self) {
        self.pool.state.host_full = false;
        if self.pool.state.metadata_full {
            self.jobs.reserve_metadata(&mut self.pool);
        }
        self.pool.durable.want_durable = self.pool.durable.want_durable.max(self.pool.durable.journal.last());
        self.pool.write_inlined();
        self.jobs.reclaim(&mut self.pool, &self.repairs);
        self.pool.publish_pending();
        // A damaged record is told from one that a crash cut off only if it is known to have been durable.
        self.pool.publish(self.pool.durable.journal.last_filled);
        let idle = self.pool.state.now >= self.pool.state.last_change + IDLE_MERGE;
        if idle && (!self.pool.durable.delta.is_empty() || self.pool.has_discards()) {
            self.pool.request_checkpoint();
        }
    }

    /// Decides, at the end of a pump, when the engine next runs without an event.
    pub(crate) fn set_tick(&mut self, load: &LoadSnapshot) {
        let unsafe_records = self.pool.durable.journal.last() > self.pool.durable.journal.durable;
        let waits = unsafe_records
            || self.pool.durable.journal.last_filled > self.pool.durable.journal.published
            || !self.pool.durable.inlined.is_empty()
            || !self.pool.durable.space.pending().is_empty()
            || !self.pool.durable.delta.is_empty()
            || self.pool.has_discards()
            || self.jobs.disk_index_is_due(&self.pool, load)
            || !self.waiting_for_space.is_empty()
            || self.pool.checkpoint.in_progress.is_some()
            || self.pool.state.metadata_full
            || self.pool.state.host_full;
        let open = self.pool.state.phase != Phase::Closed;
        let writes = !self.pool.state.read_only && !self.pool.state.untouched;
        let checkpoint = writes && !self.pool.state.closes_early && self.jobs.checkpoint_can_step();
        self.jobs.set_timer(&self.pool, load, checkpoint);
        let reclaims = self.pool.durable.reclaim_left && open && writes && !self.pool.state.closes_early;
        self.jobs.note_work_left(reclaims || self.time_slices.has_requests());
        if !waits || !writes || self.pool.state.phase == Phase::Closed {
            self.tick = None;
        } else {
            let due = self.pool.state.now + SELF_SYNC;
            self.tick =
                Some(self.tick.map_or(due, |tick| if tick <= self.pool.state.now { due } else { tick.min(due) }));
        }
    }
}
