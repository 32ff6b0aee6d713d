//! Payload in memory: the buffers, their users, and their use by the read cache. A crash loses all of it.

use super::Pool;
use crate::api::*;
use crate::api::{BufferId, RequestId};
use crate::cache::arc::ReadCache;
use crate::cache::buffers::Buffers;
use crate::cache::in_flight::Fill;
use crate::cache::streams::Streams;
use crate::format::entry::{Key, Slot};
use crate::locality_map::NearMap;
use alloc::vec::Vec;

/// Payload in memory: which buffer holds which block, and for whom.
pub(crate) struct PayloadMemory {
    pub(crate) cache: ReadCache,
    pub(crate) buffers: Buffers,
    /// Buffers of blocks that are not in their slots yet.
    pub(crate) dirty: NearMap<Slot, BufferId>,
    pub(crate) fills: NearMap<Slot, Fill>,
    /// Empty lists for requests that wait for a fill, kept for reuse.
    pub(crate) spare_fill_lists: Vec<Vec<(RequestId, u32)>>,
    /// Streams of reads; blocks are read ahead of them.
    pub(crate) read_streams: Streams,
    pub(super) write_streams: Streams,
    pub(crate) evicted: Vec<BufferId>,
    pub(super) scratch: Vec<u8>,
}

impl Pool {
    /// Returns the setting for the memory shared by index and read cache: the pool's, else that of the limits.
    pub(crate) fn cache_setting(&self) -> Option<CacheSetting> {
        self.properties.cache().or(self.limits.cache.setting)
    }

    /// Returns the buffer that holds a slot's content: a block to be written, or one of the read cache.
    pub(crate) fn in_memory(&self, slot: Slot) -> Option<BufferId> {
        self.memory.dirty.get(&slot).copied().or_else(|| self.memory.cache.peek(slot))
    }

    /// Returns a free buffer, or else evicts one from the read cache; `None`: nothing can be evicted.
    pub(crate) fn any_buffer(&mut self) -> Option<BufferId> {
        while self.memory.buffers.free() == 0 {
            let is_over = self.memory.cache.ahead() > 0 && self.memory.read_streams.are_over(self.state.now());
            let ahead = if is_over { self.memory.cache.evict_ahead() } else { None };
            let victim = ahead.or_else(|| self.memory.cache.evict())?;
            self.memory.buffers.release(victim);
        }
        self.memory.buffers.take()
    }

    /// Puts a block into the read cache, unless its buffer is to go. `digest`: that of the content, if it is known.
    #[inline]
    pub(crate) fn keep_cached(&mut self, slot: Slot, buffer: BufferId, digest: Option<Digest>) {
        if self.memory.buffers.is_pending_free(buffer) {
            return self.memory.evicted.push(buffer);
        }
        if self.memory.cache.is_by_content()
            && let Some(digest) = digest
        {
            return self.memory.cache.insert_content(slot, buffer, digest, &mut self.memory.evicted);
        }
        self.memory.cache.insert(slot, buffer, &mut self.memory.evicted);
    }

    /// Puts a written block into the read cache, unless its buffer is to go.
    #[inline]
    pub(crate) fn keep_written(&mut self, slot: Slot, buffer: BufferId) {
        let recent = if self.memory.cache.is_by_content() { self.recent(slot) } else { None };
        self.keep_cached(slot, buffer, recent.map(|recent| recent.digest));
    }

    /// Puts a block that was read ahead into the read cache.
    pub(crate) fn keep_ahead(&mut self, slot: Slot, buffer: BufferId, digest: Digest) {
        match self.memory.cache.is_by_content() {
            true => self.memory.cache.insert_content_ahead(slot, buffer, digest, &mut self.memory.evicted),
            false => {
                self.memory.cache.insert_ahead(slot, buffer, &mut self.memory.evicted);
            }
        }
    }

    /// Sets the key by which the read cache finds blocks from now on.
    pub(crate) fn set_cache_key(&mut self, key: CacheKey) {
        self.memory.cache.set_key(key, self.limits.most_buffers(self.metadata.geometry().block()) as usize);
    }

    /// Releases the buffers that the read cache evicted.
    pub(crate) fn release_evicted(&mut self) {
        while let Some(buffer) = self.memory.evicted.pop() {
            self.memory.buffers.release(buffer);
        }
    }

    /// Notes a write. Returns true if it belongs to a stream of writes that is longer than this part of the read cache.
    pub(crate) fn is_in_long_write(&mut self, first: Key, blocks: u64, part: usize) -> bool {
        let long = (self.memory.cache.capacity() / part) as u64;
        self.memory.write_streams.is_of_long(first, blocks, self.state.now(), long)
    }
}
