//! Payload in memory, where its use depends on other parts of the pool: settings, time, and the digests of recent writes.

use super::Pool;
use crate::api::*;
use crate::format::entry::{Key, Slot};

impl Pool {
    /// Returns the setting for the memory shared by index and read cache: the pool's, else that of the limits.
    pub(crate) fn cache_setting(&self) -> Option<CacheSetting> {
        self.properties.cache().or(self.limits.cache.setting)
    }

    /// Returns the bytes of the memory that index and read cache share that they have now.
    pub(crate) fn shared_memory(&self) -> u64 {
        let reads = self.memory.buffers().numbers().saturating_sub(self.limits.write_buffers);
        u64::from(reads) * self.metadata.geometry().block() + self.hints.index.memory()
    }

    /// Returns the bytes that are set aside, of the memory that index and read cache share: for tables of blocks found by content, copies of popular blocks,
    /// and the filter of the index on disk.
    pub(crate) fn set_aside_bytes(&self) -> u64 {
        let is_by_content = self.memory.cache().is_by_content();
        let contents = if is_by_content { self.limits.content_bytes(self.metadata.geometry().block()) } else { 0 };
        contents + self.columns_bytes() + self.filter_bytes()
    }

    /// Returns a free buffer, or else evicts one from the read cache; `None`: nothing can be evicted.
    pub(crate) fn any_buffer(&mut self) -> Option<BufferId> {
        self.memory.any_buffer(self.state.now())
    }

    /// Puts a written block into the read cache, unless its buffer is to go.
    #[inline]
    pub(crate) fn keep_written(&mut self, slot: Slot, buffer: BufferId) {
        let recent = if self.memory.cache().is_by_content() { self.recent(slot) } else { None };
        self.memory.keep_cached(slot, buffer, recent.map(|recent| recent.digest));
    }

    /// Sets the key by which the read cache finds blocks from now on.
    pub(crate) fn set_cache_key(&mut self, key: CacheKey) {
        let most = self.limits.most_buffers(self.metadata.geometry().block()) as usize;
        self.memory.set_cache_key(key, most);
    }

    /// Notes a write. Returns true if it belongs to a stream of writes that is longer than this part of the read cache.
    pub(crate) fn is_in_long_write(&mut self, first: Key, blocks: u64, part: usize) -> bool {
        self.memory.is_in_long_write(first, blocks, part, self.state.now())
    }
}
