//! Admission of writes: the space that a write needs in record, ring, deltas, metadata and slots, and the wait for it.
//!
//! A write that finds no space waits in the order in which it came, and runs again when there may be some (`dispatch.rs`). It fails where nothing is left that
//! could give space.

use crate::api::*;
use crate::engine::Engine;
use crate::metadata::page_cache::Region;
use crate::metadata::tree::{LastLeaf, Unresolved};
use crate::metadata::tree::{Missing, PageLookup, locate};
use crate::mutant::Mutant;
use crate::pool::Pool;
use crate::pool::metadata_reservation::{Asked, MetadataUser};
use crate::pool::metadata_reservation::{Availability, Cleared};
use crate::requests::request::{Block, Kind, Stage};

/// Checkpoints that a write waits for space before it fails, once all discarded subtrees have been walked.
const SPACE_ATTEMPTS: u64 = 3;

impl Engine {
    /// Lets a write wait for space, in order.
    pub(crate) fn block(&mut self, id: RequestId) {
        if self.pool.state.closes_early() {
            // Space comes with a checkpoint, and there will be none.
            return self.fail_request(id, Error::ShuttingDown);
        }
        self.requests.get_mut(id).enter(Stage::Admit);
        self.queues.wait_for_space(id);
        self.release_beside_payload(id);
    }

    /// Releases the buffers of a write that waits for space, except its payload, where few are left: a pass that is to free slots needs some. The write reads,
    /// merges and compares again when it runs again.
    fn release_beside_payload(&mut self, id: RequestId) {
        let Engine { pool: Pool { memory, metadata, .. }, requests, .. } = self;
        if memory.buffers().free() + memory.cache().len() > metadata.geometry().piece_blocks as usize {
            return;
        }
        let request = requests.get_mut(id);
        let is_clear = request.kind() == Kind::Clear;
        for block in request.blocks_mut() {
            let completed = if is_clear { block.buffer.take() } else { None };
            if completed.is_some() {
                (block.content, block.base) = (None, None);
            }
            block.compared = None;
            for buffer in completed.into_iter().chain(block.base_buffer.take()) {
                memory.buffers_mut().release(buffer);
            }
        }
    }

    /// Admits a write if record, ring, delta and metadata have space for it; if not, it waits, or fails where there will be none.
    pub(crate) fn admit(&mut self, id: RequestId) -> bool {
        let request = self.requests.get(id);
        let more = request.blocks().len() - request.unchanged() + 1;
        let mut asked = match self.cleared_by(id) {
            Some(cleared) => self.asked_by_clear(id, more, cleared),
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
        let blocks = self.requests.get(id).blocks();
        let Some(first) = blocks.iter().find(is_changed) else { return Asked::scattered(changes) };
        let last = blocks.iter().rev().find(is_changed).unwrap_or(first);
        self.pool.asked_in_a_row(first.key, last.key, changes)
    }

    /// Returns the space that a part of a clear asks for. Where the map inherits, the leaves at its ends become its own.
    fn asked_by_clear(&self, id: RequestId, changes: usize, cleared: Cleared) -> Asked {
        let (asked, volume) = (Asked::clear(changes, cleared), self.requests.get(id).volume());
        let inherits = self.pool.durable.volumes().lineage().parent(volume).is_some();
        if inherits || self.pool.checkpoint.has_snapshot_pending(volume) {
            return Asked { who: MetadataUser::New, ..asked };
        }
        asked
    }

    /// Returns true if all blocks of a write lie in leaves that exist, or that have been promised; `None` if pages have to be loaded first.
    fn only_overwrites(&mut self, id: RequestId) -> Option<bool> {
        let volume = self.pool.volume_index(self.requests.get(id).volume())?;
        let creates_leaves =
            self.requests.get(id).kind() == Kind::Clear && !self.pool.mutant(Mutant::ClearTakesReserve);
        if creates_leaves || self.pool.checkpoint.has_snapshot_pending(self.requests.get(id).volume()) {
            // The leaves stay with the snapshot, or a clear creates them.
            return Some(false);
        }
        let per_leaf = self.pool.metadata.geometry().map_leaf_entries();
        let mut last = None;
        for at in 0..self.requests.get(id).blocks().len() {
            let Block { key, unchanged, .. } = self.requests.get(id).blocks()[at];
            if unchanged || self.pool.unflushed(key).is_some_and(|entry| entry.slot().is_some()) {
                continue;
            }
            let leaf = key.lba() / per_leaf;
            if last.replace(leaf) == Some(leaf) {
                continue;
            }
            match locate(&mut self.pool.metadata, Region::Metadata, self.pool.durable.volumes().map(volume), 0, leaf) {
                PageLookup::At(pointer) if !pointer.is_lost() => {}
                PageLookup::At(_) | PageLookup::From { .. } | PageLookup::Absent(_) => return Some(false),
                PageLookup::Missing(_, Missing { key, pointer, .. })
                    if pointer.is_lost() || self.pool.metadata.has_failed(key) =>
                {
                    return Some(false);
                }
                PageLookup::Missing(_, missing) => {
                    let request = self.requests.get_mut(id);
                    request.enter(Stage::LoadMap);
                    request.wait_for(1);
                    self.pool.metadata.load(missing, Some(id));
                    return None;
                }
            }
        }
        Some(true)
    }

    /// Returns the most changes of the next part of a clear to its map; `None` if the request is no clear.
    fn cleared_by(&self, id: RequestId) -> Option<Cleared> {
        (self.requests.get(id).kind() == Kind::Clear).then(|| {
            let (start, stop) = self.next_to_clear(id);
            self.pool.cleared(start, stop)
        })
    }

    /// Admits a write if there are slots for the blocks that are not shared; if not, it waits for slots that can be reclaimed, and fails when nothing is left
    /// to reclaim.
    pub(crate) fn admit_space(&mut self, id: RequestId) -> bool {
        let request = self.requests.get(id);
        let needed = request.blocks().iter().filter(|block| block.takes_slot()).count() as u64;
        let Some(kept) = self.is_kept_from(id, needed) else { return false };
        if !kept && needed <= self.pool.durable.space().ready() {
            return true;
        }
        if !kept && needed <= self.pool.durable.space().available() {
            // The containers that have them are being opened.
            self.block(id);
            return false;
        }
        let done = self.pool.checkpoint.done();
        let begins = self.requests.get(id).waits_since().is_none();
        let since = self.requests.get_mut(id).wait_for_space_since(done);
        if begins {
            // The host may have space again: ask once more, for each write that runs short.
            self.pool.state.set_host_full(false);
        }
        let can_reserve = !kept && self.pool.may_reserve();
        if !can_reserve {
            // A discard's slots become free with the checkpoint that walked it, and with the next ones.
            let tried = done >= since.max(self.pool.durable.slots_freed_in()) + SPACE_ATTEMPTS
                && !self.pool.has_discards()
                && !self.pool.has_to_flush();
            let load = self.load();
            if self.pool.give_back_replicas(&load) || self.repairs.give_back_copies(&mut self.pool, &load) {
                // Their slots become free as those of a discard do.
                self.requests.get_mut(id).wait_anew(done);
            } else if self.pool.state.metadata_full()
                || !self.pool.is_reclaimable(self.time_slices.has_clears()) && !self.pool.has_to_flush()
                || tried
            {
                if self.pool.state.metadata_full() || !self.jobs.await_slots(&self.pool) {
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
        let spare = self.pool.metadata.geometry().spare_slots();
        let free = self.pool.durable.space().free();
        if needed == 0 || spare == 0 || free >= needed + spare {
            return Some(false);
        }
        let volume = self.pool.volume_index(self.requests.get(id).volume())?;
        let is_held = self.pool.checkpoint.has_snapshot_pending(self.requests.get(id).volume());
        let (mut new, mut last, mut leaf) = (0, None, LastLeaf::default());
        for at in 0..self.requests.get(id).blocks().len() {
            let block = self.requests.get(id).blocks()[at];
            if !block.takes_slot() {
                continue;
            }
            match self.pool.own_entry_after(volume, block.key, &mut leaf) {
                // The slot of an inherited block stays with the ancestor.
                Ok(entry) => new += u64::from(entry.slot().is_none() || is_held),
                Err(Unresolved::Damaged) => {
                    self.fail_when_quiet(id, Error::Io);
                    return None;
                }
                Err(Unresolved::Missing(missing)) if last == Some(missing) => {}
                Err(Unresolved::Missing(missing)) => {
                    let request = self.requests.get_mut(id);
                    request.enter(Stage::LoadMap);
                    request.wait_for(1);
                    self.pool.metadata.load(missing, Some(id));
                    last = Some(missing);
                }
            }
        }
        (self.requests.get(id).waiting() == 0).then_some(new > 0 && free < new + spare)
    }

    /// Returns true for a clear while the first blocked write waits for space: the clear need not wait behind it, as it frees space.
    pub(crate) fn may_overtake(&self, id: RequestId) -> bool {
        let waits_for_space = |first: RequestId| self.requests.get(first).waits_since().is_some();
        self.requests.get(id).kind() == Kind::Clear && self.queues.first_for_space().is_some_and(waits_for_space)
    }
}
