//! Memory while serving: its new partition, and its count.
//!
//! Growing is done at once. Shrinking goes as far as it can at once, and the rest of the way as memory in use is released: buffers and pages that are
//! held go when they are released, the tables of a delta when a checkpoint has merged it. Meanwhile everything is served as before.
//! [`Engine::is_resizing`] tells when the end is reached.

use crate::sizes::list_bytes;

use crate::engine::Engine;
use crate::limits::Limits;
use crate::pool::state::Phase;

impl Engine {
    /// Sets the limits of the engine. The driver follows [`Engine::buffer_numbers`]: buffers that are to go are in use until it has come down.
    ///
    /// The index keeps the entries that fit into its new size. It starts anew, to be filled again in the background, only if it was not made for that
    /// size.
    pub fn set_limits(&mut self, limits: Limits) {
        self.pool.limits = limits;
        self.pool.review_zones();
        self.jobs.repartition(&mut self.pool);
        self.pool.memory.fit_dirty(limits.write_buffers as usize);
        self.pool.metadata.pages_mut().set_count(limits.pages);
        self.requests.set_limit(limits.requests);
        self.time_slices.set_limits(&self.pool.limits, self.pool.metadata.geometry().block());
        let entries = limits.delta_entries as usize;
        self.pool.durable.fit_deltas(entries, self.jobs.checkpoint.is_some());
        if self.jobs.checkpoint.as_ref().is_none_or(|checkpoint| !checkpoint.is_in_buffer()) {
            let used = self.pool.durable.map_buffer().used();
            self.pool.durable.map_buffer_mut().fit(limits.buffered_places().max(used));
        }
        self.pool.fit_filter();
        let is_over = !self.pool.durable.delta().fits(entries)
            || self.pool.has_too_much_buffered()
            || self.pool.has_large_filter();
        self.pool.request_checkpoint_if(is_over && self.pool.state.phase() == Phase::Serving);
        self.pool.review_space();
        self.pool.wake();
    }

    /// Returns true while memory has not come down to the last [`Engine::set_limits`] yet.
    pub fn is_resizing(&self) -> bool {
        let entries = self.pool.limits.delta_entries as usize;
        let block = self.pool.metadata.geometry().block();
        // The cache partition moves memory between index and read cache all the time; together they never get more.
        self.pool.shared_memory() > self.pool.limits.shared_bytes(block)
            || self.pool.has_large_filter()
            || self.pool.metadata.pages().is_shrinking()
            || !self.pool.durable.delta().fits(entries)
            || !self.pool.durable.frozen().fits(entries)
            || self.pool.durable.map_buffer().capacity() > self.pool.limits.buffered_places()
    }

    /// Returns the number from which on buffers are not in use; those below can be at any time. It follows the cache partition between index and read
    /// cache, which moves while effects are asked for; [`Limits::most_buffers`] is its maximum.
    pub fn buffer_numbers(&self) -> u32 {
        self.pool.memory.buffers().numbers()
    }

    /// Returns the bytes of memory in use: everything that [`Limits::for_memory`] divides.
    pub(crate) fn memory(&self) -> u64 {
        let checkpoint = self.jobs.checkpoint.as_ref().map_or(0, |checkpoint| checkpoint.memory());
        let lent = self.pool.checkpoint.in_progress().map_or(0, |in_progress| list_bytes(&in_progress.changes));
        u64::from(self.pool.memory.buffers().numbers()) * self.pool.geometry().block()
            + self.pool.memory.buffers().memory()
            + self.pool.metadata.pages().memory()
            + self.pool.metadata.allocator().memory()
            + self.pool.metadata.io().memory()
            + self.pool.durable.volumes().memory()
            + self.enospc.memory()
            + self.pool.durable.space().memory()
            + self.pool.hints.index.memory()
            + self.pool.memory.cache().memory()
            + self.jobs.cache_partition.memory()
            + self.jobs.dedup().memory()
            + self.pool.disk_index_memory()
            + self.jobs.relocate().memory()
            + self.jobs.census().memory()
            + self.requests.foreground().memory()
            + self.pool.memory.dirty_memory()
            + self.pool.durable.delta().memory()
            + self.pool.durable.frozen().memory()
            + self.pool.hints.replicas.memory()
            + self.jobs.replicate.memory()
            + self.pool.flash_memory()
            + self.pool.regions().memory()
            + self.requests.memory()
            + self.pool.durable.map_buffer().memory()
            + self.pool.durable.discards().memory()
            + checkpoint
            + lent
    }
}
