//! Buffers for all users, and their use by the read cache.

use super::Pool;
use crate::api::*;
use crate::format::entry::Slot;

impl Pool {
    /// Returns the setting for the memory shared by index and read cache: the pool's, else that of the limits.
    pub(crate) fn cache_setting(&self) -> Option<CacheSetting> {
        self.pool_cache.or(self.limits.cache.setting)
    }

    /// Returns the buffer that holds a slot's content: a block to be written, or one of the read cache.
    pub(crate) fn in_memory(&self, slot: Slot) -> Option<BufferId> {
        self.dirty.get(&slot).copied().or_else(|| self.cache.peek(slot))
    }

    /// Returns a free buffer, or else evicts one from the read cache; `None`: nothing can be evicted.
    pub(crate) fn any_buffer(&mut self) -> Option<BufferId> {
        while self.buffers.free() == 0 {
            let is_over = self.cache.ahead() > 0 && self.read_streams.are_over(self.now);
            let ahead = if is_over { self.cache.evict_ahead() } else { None };
            let victim = ahead.or_else(|| self.cache.evict())?;
            self.buffers.release(victim);
        }
        self.buffers.take()
    }

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

    /// Puts a written block into the read cache, unless its buffer is to go.
    #[inline]
    pub(crate) fn keep_written(&mut self, slot: Slot, buffer: BufferId) {
        let recent = if self.cache.is_by_content() { self.recent(slot) } else { None };
        self.keep_cached(slot, buffer, recent.map(|recent| recent.digest));
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

    /// Sets the key by which the read cache finds blocks from now on.
    pub(crate) fn set_cache_key(&mut self, key: CacheKey) {
        self.cache.set_key(key, self.limits.most_buffers(self.metadata.geometry.block()) as usize);
    }

    /// Releases the buffers that the read cache evicted.
    pub(crate) fn release_evicted(&mut self) {
        while let Some(buffer) = self.evicted.pop() {
            self.buffers.release(buffer);
        }
    }
}
