//! Group commit, and the room that writes need: when records are closed and synced, when writes wait.
//!
//! Flushes and FUA writes wait for their record to be durable. While a sync is in flight those that come collect in the
//! open record; when it is done the record is closed, written and synced as one group. A small group carries its blocks
//! (commit rule 4), and where everything before it is durable it is written as a durable write: it needs no sync, since it is all that
//! a flush waits for. Where clients flush after the same number of changes again and again, such a group is closed before
//! they do. A sync covers what was seen complete when it was submitted (rule 1).

use crate::canary::Canary;
use crate::contract::Failure;
use crate::contract::*;
use crate::data_path::write::SCATTERED_CARRIED;
use crate::engine::Engine;
use crate::format::entry::Slot;
use crate::format::superblock::TreeId;
use crate::jobs::throttle::Turn;
use crate::pool::Pool;
use crate::pool::records::are_enough;
use crate::pool::room::{Asked, Who};
use crate::pool::room::{Cleared, Room};
use crate::pool::standing::Phase;
use crate::requests::request::{Kind, Stage};
use crate::space::SlotState;
use crate::store::io::Purpose;
use crate::store::pages::Region;
use crate::store::tree::{LastLeaf, Unresolved};
use crate::store::tree::{Missing, Place, Walk, locate, lookup};

/// The engine syncs by itself after this time,
const SELF_SYNC: Nanos = 1_000_000_000;
/// or after this many bytes.
const SELF_SYNC_BYTES: u64 = 64 << 20;
/// An idle pool merges its delta after this time.
const IDLE_MERGE: Nanos = 5_000_000_000;
/// Slots that are given back at once.
const MATURE_AT_ONCE: usize = 4096;
/// Checkpoints that a write waits for space before it fails, once all that was discarded has been walked.
const SPACE_ATTEMPTS: u64 = 3;

impl Engine {
    pub(crate) fn run_flush(&mut self, id: RequestId) {
        if self.pool.read_only {
            return self.fail_request(id, Error::Io);
        }
        self.pool.journal.note_flush();
        let last = self.pool.journal.last();
        if last <= self.pool.journal.durable || self.pool.canary(Canary::EarlyFlush) {
            return self.answer_done(id);
        }
        self.requests.get_mut(id).stage = Stage::Commit;
        self.committing.push_back((last, id));
    }

    /// Closes and syncs what somebody waits for.
    pub(crate) fn commit(&mut self) {
        let asked = self.committing.back().map_or(0, |&(target, _)| target).max(self.pool.want_durable);
        let idle = self.pool.syncs.covers.is_none() && self.pool.journal.complete + 1 == self.pool.journal.sequence;
        if idle && self.pool.want_publish {
            self.pool.want_publish = !self.pool.close_record(true);
        } else if idle
            && !self.pool.journal.is_empty()
            && (asked >= self.pool.journal.sequence || self.pool.journal.expects_flush())
        {
            self.pool.close_record(true);
        }
        if self.pool.syncs.covers.is_some() {
            return;
        }
        let first = self.committing.front().map_or(u64::MAX, |&(target, _)| target);
        let wanted = first.min(if self.pool.want_durable > self.pool.journal.durable {
            self.pool.want_durable
        } else {
            u64::MAX
        });
        let records = wanted <= self.pool.journal.complete && self.pool.journal.complete > self.pool.journal.durable;
        if records || self.pool.carried_copies.are_many() || self.pool.syncs.wanted > self.pool.syncs.submitted {
            self.pool.syncs.covers = Some(self.pool.journal.complete);
            self.pool.syncs.covers_batches = self.pool.carried_copies.landed();
            self.pool.syncs.submitted += 1;
            self.pool.journal.unsynced_bytes = 0;
            if self.pool.canary(Canary::SkippedSync) {
                return self.synced(Ok(Outcome::Complete));
            }
            self.pool.store.io.begin(IoOp::Sync, 0, 0, [], Purpose::Sync);
        }
    }

    pub(crate) fn synced(&mut self, result: Result<Outcome<'_>, IoError>) {
        let covers = self.pool.syncs.covers.take().expect("one sync at a time");
        if result.is_err() {
            return self.fail_pool(Failure::Sync);
        }
        self.pool.syncs.finished += 1;
        self.pool.carried_copies.synced(self.pool.syncs.covers_batches);
        self.proven_durable(covers);
    }

    /// All records up to this one are durable, with their blocks.
    pub(crate) fn proven_durable(&mut self, upto: u64) {
        self.pool.journal.synced(upto);
        while let Some(&(target, id)) = self.committing.front() {
            if target > self.pool.journal.durable {
                break;
            }
            self.committing.pop_front();
            self.answer_done(id);
        }
        self.mature();
    }

    /// Gives back what a crash can no longer bring back: some of it, and the rest when the jobs go on.
    pub(crate) fn mature(&mut self) {
        let early = self.pool.canary(Canary::EarlyReuse);
        let published = if early { self.pool.journal.durable } else { self.pool.journal.published };
        let Engine { pool: Pool { space, dirty, fills, dead, .. }, mends, scrub, partition, reorder, .. } = self;
        let busy = |slot| {
            dirty.contains_key(&slot)
                || fills.contains_key(&slot)
                || mends.contains_key(&slot)
                || scrub.holds(slot)
                || partition.is_fetching(slot)
                || reorder.holds(slot)
        };
        self.pool.mature_left = space.mature(published, MATURE_AT_ONCE, busy, dead);
        self.pool.forget_wrapped();
        while let Some(slot) = self.pool.dead.pop() {
            self.partition.forget(slot);
            self.reorder.forget(slot);
            if let Some(buffer) = self.pool.cache.remove(slot) {
                self.pool.buffers.release(buffer);
            }
        }
    }

    /// Whether blocks that look like records travel in the journal, too: only where that is broken on purpose.
    pub(crate) fn carries_records(&self) -> bool {
        self.pool.canary(Canary::CarriedRecord) || self.pool.canary(Canary::PublicSeed)
    }

    // ---- room ----

    /// Lets a write wait for room, in order.
    pub(crate) fn block(&mut self, id: RequestId) {
        if self.pool.closes_early {
            // Room comes with a checkpoint, and there will be none.
            return self.fail_request(id, Error::ShuttingDown);
        }
        self.requests.get_mut(id).stage = Stage::Admit;
        self.blocked.push_back(id);
    }

    /// Whether there is room for a write in record, ring, delta and metadata; if not it waits.
    pub(crate) fn admit(&mut self, id: RequestId) -> bool {
        let more = self.requests.get(id).blocks.len() + 1;
        let mut asked = match self.cleared_by(id) {
            Some(cleared) => Asked::clear(more, cleared),
            None => self.asked_by_write(id, more),
        };
        let mut fits = self.has_metadata(&asked);
        let overwrite = Asked { who: Who::Overwrite, ..asked };
        if !fits && asked.who == Who::New && self.has_metadata(&overwrite) {
            match self.only_overwrites(id) {
                Some(true) => (asked, fits) = (overwrite, true),
                Some(false) => {}
                None => return false,
            }
        }
        match self.room_where(&asked, fits) {
            Room::Enough => return true,
            Room::Later => self.block(id),
            Room::Never => self.fail_request(id, Error::NoSpace),
        }
        false
    }

    /// What a write of some blocks in a row asks for.
    fn asked_by_write(&self, id: RequestId, changes: usize) -> Asked {
        let blocks = &self.requests.get(id).blocks;
        let (Some(first), Some(last)) = (blocks.first(), blocks.last()) else { return Asked::scattered(changes) };
        self.pool.asked_in_a_row(first.key, last.key, changes)
    }

    /// Whether all blocks of a write lie in leaves that there are, or that have been promised; `None` if pages have to be loaded first.
    fn only_overwrites(&mut self, id: RequestId) -> Option<bool> {
        let volume = self.pool.volume_index(self.requests.get(id).volume)?;
        let per_leaf = self.pool.store.geometry.map_leaf_entries();
        let mut last = None;
        for at in 0..self.requests.get(id).blocks.len() {
            let key = self.requests.get(id).blocks[at].key;
            if self.pool.unflushed(key).is_some_and(|entry| entry.slot().is_some()) {
                continue;
            }
            let leaf = key.lba() / per_leaf;
            if last.replace(leaf) == Some(leaf) {
                continue;
            }
            match locate(&mut self.pool.store, Region::Metadata, self.pool.maps[volume], 0, leaf) {
                Place::At(pointer) if !pointer.is_lost() => {}
                Place::At(_) | Place::Absent(_) => return Some(false),
                Place::Missing(Missing { key, pointer, .. })
                    if pointer.is_lost() || self.pool.failed_pages.contains(&key) =>
                {
                    return Some(false);
                }
                Place::Missing(missing) => {
                    let request = self.requests.get_mut(id);
                    request.stage = Stage::LoadMap;
                    request.waiting += 1;
                    self.pool.store.load(missing, Some(id));
                    return None;
                }
            }
        }
        Some(true)
    }

    /// Whether there is room in record, ring, delta and metadata; sees to it that there will be.
    pub(crate) fn room_for(&mut self, asked: &Asked) -> Room {
        let fits = self.has_metadata(asked);
        self.room_where(asked, fits)
    }

    /// The same, where it is known whether there is metadata.
    fn room_where(&mut self, asked: &Asked, has_metadata: bool) -> Room {
        let &Asked { changes: more, cleared, .. } = asked;
        if self.pool.journal.changes.len() + more > self.pool.journal.record_capacity()
            && !self.pool.close_record(false)
        {
            return Room::Later;
        }
        let most_released = self.pool.limits.releases(&self.pool.store.geometry);
        // So much is buffered of what it covers that some of it has to go into its leaves before; where it cannot, it goes alone.
        let covers_much = cleared.is_some_and(|cleared| cleared.releases > most_released);
        let has_to_flush = covers_much && !(self.pool.flush_is_stuck && self.pool.delta.is_empty());
        let full_delta = self.pool.delta.len() + more > self.pool.limits.delta_entries as usize
            || self.pool.delta.room() < more
            || has_to_flush
            || !covers_much
                && cleared.is_some_and(|cleared| self.pool.delta.releases + cleared.releases > most_released);
        if has_to_flush {
            self.ask_to_flush();
        }
        let full_ring = !self.pool.journal.has_room(more)
            || self.pool.journal.entries > 4 * u64::from(self.pool.limits.delta_entries);
        let cut_off = self.pool.discards.len() as u64 + self.cuts_to_merge();
        let most = u64::from(self.pool.limits.discards);
        let full_discards = cut_off > 0 && cleared.is_some_and(|cleared| cut_off + cleared.cuts > most);
        if !full_delta && !full_ring && has_metadata && !full_discards {
            return Room::Enough;
        }
        if !has_metadata {
            // What is in the map buffer has a claim to pages that is the less the fuller leaves are written.
            self.ask_to_flush();
        }
        let stuck = self.pool.metadata_full && (full_delta || full_ring);
        let last_resort = !stuck && !has_metadata && !self.is_reclaimable() && !self.has_to_flush();
        if stuck || last_resort && !self.pool.give_up_disk_index() {
            return Room::Never;
        }
        self.pool.ask_for_checkpoint();
        Room::Later
    }

    /// What a request clears, if it does.
    fn cleared_by(&self, id: RequestId) -> Option<Cleared> {
        (self.requests.get(id).kind == Kind::Clear).then(|| {
            let (start, stop) = self.next_to_clear(id);
            self.pool.cleared(start, stop)
        })
    }

    /// The most subtrees that merging both deltas can cut off. Clears that meet in a leaf may cover all of it together.
    fn cuts_to_merge(&self) -> u64 {
        let joined =
            (self.pool.delta.releases + self.pool.frozen.releases) / self.pool.store.geometry.map_leaf_entries();
        self.pool.delta.cuts + self.pool.frozen.cuts + joined
    }

    /// Whether a checkpoint or a published watermark could free something.
    pub(crate) fn is_reclaimable(&self) -> bool {
        self.pool.delta.len() + self.pool.frozen.len() > 0
            || self.pool.has_discards()
            || !self.pool.space.pending().is_empty()
            || self.checkpoint.is_some()
            || self.has_clears_left()
    }

    /// The next checkpoints flush the map buffer, as far as they can.
    pub(crate) fn ask_to_flush(&mut self) {
        if !self.pool.want_flush && !self.pool.buffer.is_empty() {
            (self.pool.want_flush, self.pool.flush_is_stuck) = (true, false);
        }
    }

    /// Whether there is anything in the map buffer that can be flushed.
    pub(crate) fn has_to_flush(&self) -> bool {
        !self.pool.buffer.is_empty() && !self.pool.flush_is_stuck
    }

    /// Whether there are slots for the blocks that are not shared; if not, the write waits for what can be reclaimed, and
    /// fails when there is nothing left to reclaim.
    pub(crate) fn admit_space(&mut self, id: RequestId) -> bool {
        let request = self.requests.get(id);
        let needed = request.blocks.iter().filter(|block| block.takes_slot()).count() as u64;
        let Some(kept) = self.is_kept_from(id, needed) else { return false };
        if !kept && needed <= self.pool.space.ready() {
            return true;
        }
        if !kept && needed <= self.pool.space.available() {
            // The containers that have them are being opened.
            self.block(id);
            return false;
        }
        let done = self.pool.checkpoints_done;
        let begins = self.requests.get(id).waits_since.is_none();
        let since = *self.requests.get_mut(id).waits_since.get_or_insert(done);
        if begins {
            // The host may have room again: ask once more, for each write that runs short.
            self.pool.host_full = false;
        }
        let can_reserve = !kept && !self.pool.host_full && self.pool.space.to_reserve(u64::MAX, 1).is_some();
        if !can_reserve {
            // What a discard frees comes with the checkpoint that walked it, and with the next ones.
            let tried = done >= since.max(self.pool.walked_in) + SPACE_ATTEMPTS
                && !self.pool.has_discards()
                && !self.has_to_flush();
            if self.give_back_replicas() || self.give_back_copies() {
                // What they held comes back as what a discard frees does.
                self.requests.get_mut(id).waits_since = Some(done);
            } else if self.pool.metadata_full || !self.is_reclaimable() && !self.has_to_flush() || tried {
                self.fail_request(id, Error::NoSpace);
                return false;
            }
            self.pool.want_checkpoint = true;
            self.ask_to_flush();
            self.pool.publish_pending();
        }
        self.block(id);
        false
    }

    /// Whether a write of `needed` new slots is kept from the spare ones: these are for blocks that take the place of others, so
    /// that a full pool can be overwritten. Looks at the map only where it matters; `None` if that has to be waited for.
    fn is_kept_from(&mut self, id: RequestId, needed: u64) -> Option<bool> {
        let spare = self.pool.store.geometry.spare_slots();
        let free = self.pool.space.free();
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
                    self.pool.store.load(missing, Some(id));
                    last = Some(missing);
                }
            }
        }
        (self.requests.get(id).waiting == 0).then_some(new > 0 && free < new + spare)
    }

    /// Runs the writes that wait for room, in order, until one still has to.
    pub(crate) fn retry_blocked(&mut self) {
        let mut others = core::mem::take(&mut self.retried);
        core::mem::swap(&mut self.blocked, &mut others);
        while self.blocked.is_empty()
            && let Some(id) = others.pop_front()
        {
            self.run(id);
        }
        // Clears go before writes that wait for space, until one has to wait itself.
        let mut at = 0;
        while let Some(&id) = others.get(at)
            && self.blocked.len() == 1
        {
            if self.may_overtake(id) {
                others.remove(at);
                self.run(id);
            } else {
                at += 1;
            }
        }
        self.blocked.append(&mut others);
        self.retried = others;
    }

    /// Blocks that wait to be written are written sooner when buffers get scarce, or when there are many.
    pub(crate) fn relieve_pressure(&mut self) {
        let scarce = self.pool.buffers.incoming_percent() > 50 || !self.starved.is_empty();
        if scarce && !self.pool.journal.unwritten.is_empty() {
            self.pool.write_slots();
        }
        let carried = &self.pool.carried;
        if scarce || are_enough(carried.len(), carried.front(), carried.back(), SCATTERED_CARRIED) {
            self.pool.write_carried();
        }
        // Once: a goal that moves on with every write that comes meanwhile would never be reached.
        if self.pool.journal.unsynced_bytes >= SELF_SYNC_BYTES && self.pool.want_durable <= self.pool.journal.durable {
            self.pool.want_durable = self.pool.want_durable.max(self.pool.journal.last());
        }
    }

    /// Slots that are kept at hand for the next writes.
    fn slots_ahead(&self) -> u64 {
        2 * u64::from(self.pool.store.geometry.piece_blocks) + 2
    }

    /// Opens containers ahead of the allocator, which needs their part of the space map. True if one was opened.
    pub(crate) fn open_ahead(&mut self) -> bool {
        let mut opened = false;
        while self.pool.space.ready() < self.slots_ahead() {
            let fresh = !self.pool.host_full && self.pool.space.to_reserve(u64::MAX, 1).is_some();
            let Some(container) = self.pool.space.choose(fresh) else {
                self.pool.wants_fresh = fresh;
                break;
            };
            match self.free_slots(container) {
                Ok(()) => {
                    opened = true;
                    self.pool.forget_wrapped();
                }
                Err(missing) if self.pool.failed_pages.contains(&missing.key) => self.pool.space.exclude(container),
                Err(missing) => {
                    self.pool.store.load(missing, None);
                    break;
                }
            }
        }
        opened
    }

    /// Opens a container, with the slots that are free in its part of the space map and not taken.
    fn free_slots(&mut self, container: u32) -> Result<(), Missing> {
        let per_leaf = self.pool.store.geometry.space_leaf_slots();
        let root = self.pool.roots[TreeId::SpaceMap as usize];
        let slots = self.pool.space.slots_of(container);
        let mut free = core::mem::take(&mut self.pool.free_slots);
        free.clear();
        while let next = slots.start + free.len() as u64
            && next < slots.end
        {
            let end = slots.end.min((next / per_leaf + 1) * per_leaf);
            match lookup(&mut self.pool.store, Region::Metadata, root, next / per_leaf) {
                Walk::Leaf(page) => {
                    let page = self.pool.store.pages.bytes(page);
                    let is_free = |slot| SlotState::read(page, slot % per_leaf) == SlotState::Free;
                    free.extend((next..end).map(is_free));
                }
                Walk::Absent(_) => free.extend((next..end).map(|_| true)),
                Walk::Missing(missing) => {
                    self.pool.free_slots = free;
                    return Err(missing);
                }
            }
        }
        for &(slot, state) in self.checkpoint.iter().flat_map(|checkpoint| checkpoint.merged_in(&slots)) {
            free[(slot.0 - slots.start) as usize] = SlotState::from_code(state as u8) == SlotState::Free;
        }
        for (slot, free) in slots.zip(&mut free) {
            *free &= !self.pool.space.is_taken(Slot(slot));
        }
        if free.iter().filter(|&&free| free).count() == usize::from(self.pool.space.containers[container as usize].free)
        {
            self.pool.space.open(container, |place| free[place as usize]);
        } else {
            // The tables contradict each other: whatever is free there stays unused.
            self.pool.space.exclude(container);
        }
        self.pool.free_slots = free;
        Ok(())
    }

    /// Keeps space reserved ahead of the allocator.
    pub(crate) fn reserve_ahead(&mut self) {
        if self.pool.reserving || self.pool.host_full {
            return;
        }
        let per_container = u64::from(self.pool.store.geometry.slots_per_container);
        let mut ahead = (4 * per_container).max(self.slots_ahead());
        if core::mem::take(&mut self.pool.wants_fresh) {
            ahead = u64::MAX;
        }
        if let Some((first, count)) = self.pool.space.to_reserve(ahead, self.pool.reserve_at_once) {
            let bytes = per_container * self.pool.store.geometry.block();
            let (block, together) = self.pool.store.geometry.container_run(first);
            let (offset, count) = (block * self.pool.store.geometry.block(), count.min(together));
            let purpose = Purpose::ReserveContainers(count);
            self.pool.store.io.begin(IoOp::Reserve, offset, u64::from(count) * bytes, [], purpose);
            self.pool.reserving = true;
        }
    }

    // ---- time ----

    /// A second has passed with something not durable or not published.
    pub(crate) fn self_sync(&mut self) {
        self.pool.host_full = false;
        if self.pool.metadata_full {
            self.reserve_metadata();
        }
        self.pool.want_durable = self.pool.want_durable.max(self.pool.journal.last());
        self.pool.write_carried();
        self.mature();
        self.pool.publish_pending();
        // Only what is known to have been durable is told from what a crash cut off, should it rot.
        self.pool.publish(self.pool.journal.last_filled);
        let idle = self.pool.now >= self.pool.last_change + IDLE_MERGE;
        if idle && (!self.pool.delta.is_empty() || self.pool.has_discards()) {
            self.pool.want_checkpoint = true;
        }
    }

    pub(crate) fn set_tick(&mut self) {
        let unsafe_records = self.pool.journal.last() > self.pool.journal.durable;
        let waits = unsafe_records
            || self.pool.journal.last_filled > self.pool.journal.published
            || !self.pool.carried.is_empty()
            || !self.pool.space.pending().is_empty()
            || !self.pool.delta.is_empty()
            || self.pool.has_discards()
            || self.disk_index_is_due()
            || !self.blocked.is_empty()
            || self.checkpoint.is_some()
            || self.pool.metadata_full
            || self.pool.host_full;
        let open = self.pool.phase != Phase::Closed;
        let writes = !self.pool.read_only && !self.pool.untouched;
        let jobs =
            !self.pool.closes_early && (self.checkpoint_can_step() || self.rebuild_can_step() || self.fetch_can_step());
        let work = open && (writes && jobs || self.scrub_can_step());
        (self.work_left, self.job_timer) = match self.turn() {
            _ if !work => (false, None),
            Turn::Now => (true, None),
            Turn::At(due) => (false, Some(due)),
            Turn::AfterIo => (false, None),
        };
        if self.reorder_waits() && self.requests.active() == 0 {
            let due = self.idle_from();
            match due <= self.pool.now {
                true => self.work_left |= !self.reorder_is_stuck(),
                false => self.job_timer = Some(self.job_timer.map_or(due, |timer| timer.min(due))),
            }
        }
        self.work_left |= self.pool.mature_left && open && writes && !self.pool.closes_early || self.has_turns_left();
        if !waits || !writes || self.pool.phase == Phase::Closed {
            self.tick = None;
        } else {
            let due = self.pool.now + SELF_SYNC;
            self.tick = Some(self.tick.map_or(due, |tick| if tick <= self.pool.now { due } else { tick.min(due) }));
        }
    }
}
