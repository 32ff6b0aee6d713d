//! Buffers for whoever needs one, and what the read cache keeps in them.

use super::Pool;
use crate::api::*;
use crate::format::entry::Slot;

impl Pool {
    /// How index and read cache share their memory, as it was set.
    pub(crate) fn cache_setting(&self) -> Option<CacheSetting> {
        self.pool_cache.or(self.limits.cache.setting)
    }

    /// The buffer that holds a slot's content, if one does.
    pub(crate) fn in_memory(&self, slot: Slot) -> Option<BufferId> {
        self.dirty.get(&slot).copied().or_else(|| self.cache.peek(slot))
    }

    /// A buffer for whatever needs one, from the free ones or from the read cache.
    pub(crate) fn any_buffer(&mut self) -> Option<BufferId> {
        while self.buffers.free() == 0 {
            let is_over = self.cache.ahead() > 0 && self.read_streams.are_over(self.now);
            let ahead = if is_over { self.cache.evict_ahead() } else { None };
            let victim = ahead.or_else(|| self.cache.evict())?;
            self.buffers.release(victim);
        }
        self.buffers.take()
    }

    /// Puts a block into the read cache, unless its buffer is to go. `digest`: of what is in the buffer, if it is at hand.
    #[inline]
    pub(crate) fn keep_cached(&mut self, slot: Slot, buffer: BufferId, digest: Option<Digest>) {
        if self.buffers.is_retired(buffer) {
            return self.evicted.push(buffer);
        }
        if self.cache.is_by_content()
            && let Some(digest) = digest
        {
            return self.cache.insert_content(slot, buffer, digest, &mut self.evicted);
        }
        self.cache.insert(slot, buffer, &mut self.evicted);
    }

    /// The same, of a block that was written.
    #[inline]
    pub(crate) fn keep_written(&mut self, slot: Slot, buffer: BufferId) {
        let recent = if self.cache.is_by_content() { self.recent(slot) } else { None };
        self.keep_cached(slot, buffer, recent.map(|recent| recent.digest));
    }

    /// The same, of a block that was read ahead.
    pub(crate) fn keep_ahead(&mut self, slot: Slot, buffer: BufferId, digest: Digest) {
        match self.cache.is_by_content() {
            true => self.cache.insert_content_ahead(slot, buffer, digest, &mut self.evicted),
            false => {
                self.cache.insert_ahead(slot, buffer, &mut self.evicted);
            }
        }
    }

    /// The read cache finds blocks by this from here on.
    pub(crate) fn set_cache_key(&mut self, key: CacheKey) {
        self.cache.set_key(key, self.limits.most_buffers(self.metadata.geometry.block()) as usize);
    }

    /// Releases what the read cache let go of.
    pub(crate) fn release_evicted(&mut self) {
        while let Some(buffer) = self.evicted.pop() {
            self.buffers.release(buffer);
        }
    }
}
