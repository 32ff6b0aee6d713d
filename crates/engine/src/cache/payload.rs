//! Payload in memory: which buffer holds which block, and for whom. A crash loses all of it.
//!
//! Owns the buffers, the read cache, the blocks that are not in their slots yet (dirty), the reads in flight (fills), and the streams of reads and writes.
//! Invariants: a dirty slot has one buffer until its write ends; a slot is read once at a time (a repair may write it meanwhile); a buffer that the read
//! cache has given up is released before the next event.

use alloc::vec::Vec;

use crate::api::{BufferId, CacheKey, Digest, Nanos};
use crate::cache::arc::ReadCache;
use crate::cache::buffers::Buffers;
use crate::cache::in_flight::{Fill, Waiter};
use crate::cache::streams::Streams;
use crate::format::entry::{Key, Slot};
use crate::locality_map::{Near, NearMap};
use crate::sizes::table_bytes;

/// Payload in memory: which buffer holds which block, and for whom.
pub(crate) struct PayloadMemory {
    cache: ReadCache,
    buffers: Buffers,
    /// Buffers of blocks that are not in their slots yet.
    dirty: NearMap<Slot, BufferId>,
    fills: NearMap<Slot, Fill>,
    /// Empty lists for requests that wait for a fill, kept for reuse.
    spare_fill_lists: Vec<Vec<Waiter>>,
    /// Streams of reads; blocks are read ahead of them.
    read_streams: Streams,
    write_streams: Streams,
    /// Buffers that the read cache has given up, to be released.
    evicted: Vec<BufferId>,
}

impl PayloadMemory {
    /// Creates memory of `buffers` buffers, of which `write_buffers` are for incoming data, with an empty read cache of at most `most_cached` blocks.
    pub(crate) fn new(buffers: u32, write_buffers: u32, most_cached: usize) -> PayloadMemory {
        PayloadMemory {
            cache: ReadCache::new(buffers.saturating_sub(write_buffers) as usize, most_cached),
            buffers: Buffers::new(buffers, write_buffers),
            dirty: NearMap::with_capacity_and_hasher(write_buffers as usize, Near),
            fills: NearMap::default(),
            spare_fill_lists: Vec::new(),
            read_streams: Streams::new(),
            write_streams: Streams::new(),
            evicted: Vec::new(),
        }
    }

    #[inline]
    pub(crate) fn buffers(&self) -> &Buffers {
        &self.buffers
    }

    #[inline]
    pub(crate) fn buffers_mut(&mut self) -> &mut Buffers {
        &mut self.buffers
    }

    #[inline]
    pub(crate) fn cache(&self) -> &ReadCache {
        &self.cache
    }

    #[inline]
    pub(crate) fn cache_mut(&mut self) -> &mut ReadCache {
        &mut self.cache
    }

    pub(crate) fn read_streams_mut(&mut self) -> &mut Streams {
        &mut self.read_streams
    }

    /// Returns true if a slot's block is to be written, or is being read.
    #[inline]
    pub(crate) fn is_using(&self, slot: Slot) -> bool {
        self.is_dirty(slot) || self.is_filling(slot)
    }

    /// Returns the buffer that holds a slot's content: a block to be written, or one of the read cache.
    #[inline]
    pub(crate) fn buffer_of(&self, slot: Slot) -> Option<BufferId> {
        self.dirty.get(&slot).copied().or_else(|| self.cache.peek(slot))
    }

    /// Returns the buffer that holds a slot's content, and counts a use of the read cache. Blocks that were read ahead are not found.
    #[inline]
    pub(crate) fn use_buffer_of(&mut self, slot: Slot) -> Option<BufferId> {
        self.dirty.get(&slot).copied().or_else(|| self.cache.get(slot))
    }

    /// Uses a block that was read ahead, for the first time.
    pub(crate) fn use_ahead(&mut self, slot: Slot) -> Option<BufferId> {
        let buffer = self.cache.use_ahead(slot, &mut self.evicted)?;
        self.release_evicted();
        Some(buffer)
    }

    /// Uses a buffer whose content `slot` shares: the caller holds it. Returns true if this is the first use of a block that was read ahead.
    pub(crate) fn use_shared(&mut self, slot: Slot, buffer: BufferId) -> bool {
        self.buffers.hold(buffer);
        let was_ahead = self.cache.use_shared(slot, buffer, &mut self.evicted);
        self.release_evicted();
        was_ahead
    }

    /// Returns a free buffer, or else evicts one from the read cache; `None`: nothing can be evicted.
    pub(crate) fn any_buffer(&mut self, now: Nanos) -> Option<BufferId> {
        while self.buffers.free() == 0 {
            let is_over = self.cache.ahead() > 0 && self.read_streams.are_over(now);
            let ahead = if is_over { self.cache.evict_ahead() } else { None };
            let victim = ahead.or_else(|| self.cache.evict())?;
            self.buffers.release(victim);
        }
        self.buffers.take()
    }

    /// Notes a write at time `now`. Returns true if it belongs to a stream of writes that is longer than this part of the read cache.
    pub(crate) fn is_in_long_write(&mut self, first: Key, blocks: u64, part: usize, now: Nanos) -> bool {
        let long = (self.cache.capacity() / part) as u64;
        self.write_streams.is_of_long(first, blocks, now, long)
    }
}

// The read cache.
impl PayloadMemory {
    /// Puts a block into the read cache, unless its buffer is to go. `digest`: that of the content, if it is known.
    #[inline]
    pub(crate) fn keep_cached(&mut self, slot: Slot, buffer: BufferId, digest: Option<Digest>) {
        if self.buffers.is_pending_free(buffer) {
            return self.evicted.push(buffer);
        }
        if self.cache.is_by_content()
            && let Some(digest) = digest
        {
            return self.cache.insert_content(slot, buffer, digest, &mut self.evicted);
        }
        self.cache.insert(slot, buffer, &mut self.evicted);
    }

    /// Puts a block that was read ahead into the read cache.
    pub(crate) fn keep_ahead(&mut self, slot: Slot, buffer: BufferId, digest: Digest) {
        match self.cache.is_by_content() {
            true => self.cache.insert_content_ahead(slot, buffer, digest, &mut self.evicted),
            false => {
                self.cache.insert_ahead(slot, buffer, &mut self.evicted);
            }
        }
    }

    /// Adds a buffer to those that are released with the evicted ones.
    #[inline]
    pub(crate) fn release_later(&mut self, buffer: BufferId) {
        self.evicted.push(buffer);
    }

    /// Releases the buffers that the read cache evicted.
    #[inline]
    pub(crate) fn release_evicted(&mut self) {
        while let Some(buffer) = self.evicted.pop() {
            self.buffers.release(buffer);
        }
    }

    /// Removes a slot's block from the read cache: the slot is free.
    #[inline]
    pub(crate) fn forget(&mut self, slot: Slot) {
        if let Some(buffer) = self.cache.remove(slot) {
            self.buffers.release(buffer);
        }
    }

    /// Sets the key by which the read cache finds blocks from now on. `most`: largest number of buffers.
    pub(crate) fn set_cache_key(&mut self, key: CacheKey, most: usize) {
        self.cache.set_key(key, most);
    }

    /// Sets the number of blocks that the read cache holds; it evicts those that no longer fit.
    pub(crate) fn set_cache_capacity(&mut self, capacity: usize) {
        self.cache.set_capacity(capacity, &mut self.evicted);
        self.release_evicted();
    }

    /// Sets the number of blocks that the read cache holds, and its maximum, and reduces its memory to them. `numbers`: largest number of buffers.
    pub(crate) fn resize_cache(&mut self, capacity: usize, most: usize, numbers: usize) {
        let PayloadMemory { cache, buffers, evicted, .. } = self;
        cache.resize(capacity, most, numbers, |buffer| !buffers.is_pending_free(buffer), evicted);
        self.release_evicted();
        self.evicted.shrink_to(0);
    }
}

// Blocks that are not in their slots yet.
impl PayloadMemory {
    #[inline]
    pub(crate) fn is_dirty(&self, slot: Slot) -> bool {
        self.dirty.contains_key(&slot)
    }

    /// Returns the buffers of all dirty blocks.
    pub(crate) fn dirty_buffers(&self) -> impl ExactSizeIterator<Item = BufferId> + '_ {
        self.dirty.values().copied()
    }

    /// Makes a buffer the content of a slot that is to be written.
    #[inline]
    pub(crate) fn set_dirty(&mut self, slot: Slot, buffer: BufferId) {
        let before = self.dirty.insert(slot, buffer);
        assert!(before.is_none(), "no write of an old block is outstanding when its slot is reused");
    }

    /// Ends the write of a dirty block, and returns its buffer.
    #[inline]
    pub(crate) fn end_dirty(&mut self, slot: Slot) -> BufferId {
        self.dirty.remove(&slot).expect("a dirty block is written once")
    }

    /// Reduces the table of dirty blocks to a new limit.
    pub(crate) fn fit_dirty(&mut self, write_buffers: usize) {
        self.dirty.shrink_to(write_buffers);
    }

    /// Returns the bytes of memory of the table of dirty blocks.
    pub(crate) fn dirty_memory(&self) -> u64 {
        table_bytes(&self.dirty)
    }
}

// Reads in flight.
impl PayloadMemory {
    #[inline]
    pub(crate) fn is_filling(&self, slot: Slot) -> bool {
        self.fills.contains_key(&slot)
    }

    /// Returns the read of a slot that is in flight.
    #[inline]
    pub(crate) fn fill(&self, slot: Slot) -> &Fill {
        &self.fills[&slot]
    }

    /// Returns true if a slot is being read into this buffer.
    pub(crate) fn fills_into(&self, slot: Slot, buffer: BufferId) -> bool {
        self.fills.get(&slot).is_some_and(|fill| fill.buffer() == buffer)
    }

    /// Begins the read of a slot.
    #[inline]
    pub(crate) fn begin_fill(&mut self, slot: Slot, fill: Fill) {
        let before = self.fills.insert(slot, fill);
        assert!(before.is_none(), "a slot is read once at a time");
    }

    /// Lets a request wait for the read of a slot; false if there is none.
    #[inline]
    pub(crate) fn join_fill(&mut self, slot: Slot, waiter: Waiter) -> bool {
        let Some(fill) = self.fills.get_mut(&slot) else { return false };
        fill.add_waiter(waiter, &mut self.spare_fill_lists);
        true
    }

    /// Moves the read of a slot to another buffer, and returns the former one.
    pub(crate) fn redirect_fill(&mut self, slot: Slot, buffer: BufferId) -> BufferId {
        self.fills.get_mut(&slot).expect("a read has its fills").redirect(buffer)
    }

    /// Takes the read of a slot that has ended.
    #[inline]
    pub(crate) fn take_fill(&mut self, slot: Slot) -> Fill {
        self.fills.remove(&slot).expect("a fill ends once")
    }

    /// Takes the list of waiters of a read back.
    #[inline]
    pub(crate) fn recycle_fill(&mut self, fill: Fill) {
        fill.give_list_back(&mut self.spare_fill_lists);
    }
}
