//! The pool as jobs see it that only move copies: the flash copy, the cache warm-up, the index prefetch and the index rebuild.
//!
//! All of the pool can be read. Buffers, the read cache, the index and the flash can change: an entry there may be lost or wrong, since each use of it is
//! verified. A mapping, a slot, a record or a volume cannot: there is no way to them that changes anything.

use core::ops::Deref;

use super::Pool;
use crate::api::{BufferId, Digest, IoOp, PageId, Segment};
use crate::counters::Counters;
use crate::format::entry::{Key, Slot, check_bits};
use crate::metadata::io::Purpose;
use crate::metadata::tree::Missing;
use crate::pool::flash::Flash;
use crate::space::SlotState;
use alloc::collections::BTreeSet;

/// Pool for a job that only moves copies.
pub(crate) struct CopyAccess<'a> {
    pool: &'a mut Pool,
}

impl Deref for CopyAccess<'_> {
    type Target = Pool;

    #[inline]
    fn deref(&self) -> &Pool {
        self.pool
    }
}

impl<'a> CopyAccess<'a> {
    /// Lends the pool.
    #[inline]
    pub(crate) fn new(pool: &'a mut Pool) -> CopyAccess<'a> {
        CopyAccess { pool }
    }

    /// Wakes the engine, so that it pumps once more.
    pub(crate) fn wake(&mut self) {
        self.pool.wake();
    }

    /// Lets a checkpoint begin as soon as it can, if `wants` is true.
    pub(crate) fn request_checkpoint_if(&mut self, wants: bool) {
        self.pool.request_checkpoint_if(wants);
    }

    /// Loads a page of the metadata, on behalf of no request.
    pub(crate) fn load(&mut self, missing: Missing) {
        self.pool.metadata.load(missing, None);
    }

    /// Returns the counters, which say nothing of the content.
    pub(crate) fn counters(&mut self) -> &mut Counters {
        &mut self.pool.stats.counters
    }

    // ---- the store ----

    /// Returns the digest that a slot's content must have, and the block that it was first written for. `None`: the slot is not in use.
    pub(crate) fn proven_digest(&mut self, slot: Slot) -> Result<Option<(Digest, Key)>, Missing> {
        self.pool.proven_digest(slot)
    }

    /// Visits the blocks of a leaf of summaries, each with the state of its slot; returns the number of the next leaf.
    pub(crate) fn each_block_of_leaf(
        &mut self,
        leaf: u64,
        mut visit: impl FnMut(&mut CopyAccess<'_>, Slot, SlotState, Digest),
    ) -> Result<u64, Missing> {
        self.pool.each_block_of_leaf(leaf, |pool, slot, state, digest| {
            visit(&mut CopyAccess::new(pool), slot, state, digest);
        })
    }

    /// Reads consecutive slots from the store into these buffers.
    pub(crate) fn read_slots(&mut self, first: Slot, buffers: &[BufferId], purpose: Purpose) {
        let (offset, block) = (self.pool.slot_offset(first), self.pool.metadata.geometry().block());
        let segments = buffers.iter().copied().map(Segment::Buffer);
        self.pool.metadata.io_mut().begin(IoOp::ReadBlocks, offset, block * buffers.len() as u64, segments, purpose);
    }

    // ---- buffers and the read cache ----

    /// Takes a free buffer; `None` if there is none.
    pub(crate) fn free_buffer(&mut self) -> Option<BufferId> {
        self.pool.memory.buffers_mut().take()
    }

    /// Takes a buffer: a free one, or that of a block which leaves the read cache for it.
    pub(crate) fn any_buffer(&mut self) -> Option<BufferId> {
        self.pool.any_buffer()
    }

    /// Releases a buffer.
    pub(crate) fn release_buffer(&mut self, buffer: BufferId) {
        self.pool.memory.buffers_mut().release(buffer);
    }

    /// Puts a block into the read cache, whose content has been compared with this digest.
    pub(crate) fn keep_cached(&mut self, slot: Slot, buffer: BufferId, digest: Digest) {
        self.pool.memory.buffers_mut().set_check(buffer, check_bits(digest));
        self.pool.memory.keep_cached(slot, buffer, Some(digest));
        self.pool.memory.release_evicted();
    }

    // ---- the index ----

    /// Enters a slot in the index, under its content.
    pub(crate) fn note_known(&mut self, digest: Digest, slot: Slot) {
        self.pool.note_known(digest, slot);
    }

    /// Offers an entry to the index, which takes it if it has space; returns true if it did. `digest`: as the index has it.
    pub(crate) fn offer_to_index(&mut self, digest: Digest, slot: Slot) -> bool {
        let generation = self.pool.durable.space.generation(slot);
        self.pool.hints.index.offer(digest, slot, generation)
    }

    // ---- the flash ----

    /// Returns the flash in front of the store.
    pub(crate) fn flash_mut(&mut self) -> Option<&mut Flash> {
        self.pool.flash_mut()
    }

    /// Stops the use of the flash.
    pub(crate) fn switch_flash_off(&mut self) {
        self.pool.switch_flash_off();
    }

    /// Takes a container that could be copied to the flash: returns its place there, if its content admits it.
    pub(crate) fn offer_to_flash(&mut self, container: u32) -> Result<Option<u32>, Missing> {
        self.pool.offer_to_flash(container)
    }

    /// Gives up copies of containers that have been opened since.
    pub(crate) fn follow_changed_containers(&mut self) {
        self.pool.follow_changed_containers();
    }

    /// Takes the containers that have been opened since the last call. Only the flash copy may: a second taker would hide openings from it.
    pub(crate) fn take_changed_containers(&mut self) -> BTreeSet<u32> {
        self.pool.durable.space.take_changed()
    }

    /// Begins an I/O on the flash.
    pub(crate) fn begin_on_flash(
        &mut self,
        op: IoOp,
        offset: u64,
        length: u64,
        segments: &[Segment],
        purpose: Purpose,
    ) {
        self.pool.metadata.io_mut().begin_on_flash(op, offset, length, segments.iter().copied(), purpose);
    }

    /// Takes a page of memory that holds no page of the metadata; `None` if none is free.
    pub(crate) fn free_page(&mut self) -> Option<(PageId, &mut [u8])> {
        let page = self.pool.metadata.pages_mut().allocate()?;
        Some((page, self.pool.metadata.pages_mut().bytes_mut(page)))
    }

    /// Releases such a page.
    pub(crate) fn release_page(&mut self, page: PageId) {
        self.pool.metadata.pages_mut().release(page);
    }
}
