//! Memory while serving: dividing it anew, and counting it.
//!
//! Growing is done at once. Shrinking goes as far as it can at once, and the rest of the way as what is in use is done with:
//! buffers and pages that are held go when they are released, the tables of a delta when a checkpoint has merged it. Meanwhile
//! everything is served as before. [`Engine::is_resizing`] tells when the end is reached.

use crate::sizes::list_bytes;

use crate::engine::Engine;
use crate::jobs::checkpoint::Stage;
use crate::limits::Limits;
use crate::pool::standing::Phase;
use crate::sizes::table_bytes;

impl Engine {
    /// From here on the engine keeps to these limits. The driver follows [`Engine::buffer_numbers`]: those that are to go are in
    /// use until it has come down.
    ///
    /// The index keeps what fits into its new size. It starts anew, to be filled again in the background, only if that is a
    /// size that it was not made for.
    pub fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
        self.divide_anew();
        self.dirty.shrink_to(limits.write_buffers as usize);
        self.store.pages.set_count(limits.pages);
        self.requests.set_limit(limits.requests);
        self.turns.set_limits(&self.limits, self.store.geometry.block());
        let entries = limits.delta_entries as usize;
        if self.delta.is_empty() {
            self.delta.fit(entries);
        }
        if self.frozen.is_empty() && self.checkpoint.is_none() {
            self.frozen.fit(entries);
        }
        if self.checkpoint.as_ref().is_none_or(|checkpoint| checkpoint.stage != Stage::Buffer) {
            self.buffer.fit(limits.buffered_places().max(self.buffer.used()));
        }
        let is_over = !self.delta.fits(entries) || self.has_too_much_buffered();
        self.want_checkpoint |= is_over && self.phase == Phase::Serving;
        self.review_room();
        self.needs_pump = true;
    }

    /// Whether [`Engine::set_limits`] has not come to its end yet.
    pub fn is_resizing(&self) -> bool {
        let entries = self.limits.delta_entries as usize;
        let block = self.store.geometry.block();
        let reads = self.buffers.numbers().saturating_sub(self.limits.write_buffers);
        // Between index and read cache memory moves all the time; together they never get more.
        u64::from(reads) * block + self.index.memory() > self.limits.shared_bytes(block)
            || self.store.pages.is_shrinking()
            || !self.delta.fits(entries)
            || !self.frozen.fits(entries)
            || self.buffer.capacity() > self.limits.buffered_places()
    }

    /// Buffers from this number on are not in use, those below can be at any time. It follows the boundary between index and read
    /// cache, which moves while effects are asked for; [`Limits::most_buffers`] is the most that it comes to.
    pub fn buffer_numbers(&self) -> u32 {
        self.buffers.numbers()
    }

    /// Bytes of memory in use: everything that [`Limits::for_memory`] divides.
    pub(crate) fn memory(&self) -> u64 {
        let checkpoint = self.checkpoint.as_ref().map_or(0, |checkpoint| checkpoint.memory());
        u64::from(self.buffers.numbers()) * self.geometry().block()
            + self.buffers.memory()
            + self.store.pages.memory()
            + self.store.meta.memory()
            + self.store.io.memory()
            + self.no_room.memory()
            + self.space.memory()
            + self.index.memory()
            + self.cache.memory()
            + self.partition.memory()
            + table_bytes(&self.dirty)
            + self.delta.memory()
            + self.frozen.memory()
            + self.reorder.memory()
            + self.requests.memory()
            + self.buffer.memory()
            + list_bytes(&self.discards)
            + checkpoint
    }
}
