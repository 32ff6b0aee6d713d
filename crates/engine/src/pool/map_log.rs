//! Size of the map buffer and of its log, as checkpoints and reservations count it.

use super::Pool;
use crate::block_map::map_buffer::RECORD_BYTES;

impl Pool {
    /// Returns the most mappings that the buffer is to hold, by memory and by the leaves that all maps can have; 0 where it is not used.
    pub(crate) fn map_buffer_limit(&self) -> u64 {
        self.limits.buffered_for(self.durable.volumes.map_pages()[0])
    }

    /// Returns the most mappings that the buffer may have after a checkpoint. Each holds the slot that it has replaced: with few free slots, the number is
    /// smaller.
    pub(crate) fn buffered_at_most(&self) -> usize {
        (self.map_buffer_limit() as usize).min(self.durable.space.free() as usize / 2)
    }

    /// Returns true if the buffer has mappings, or may get some from the checkpoint in progress or the next one.
    pub(crate) fn uses_map_buffer(&self) -> bool {
        !self.durable.map_buffer.is_empty() || self.durable.reservation.buffers || self.map_buffer_limit() > 0
    }

    /// Decides whether mappings of the delta that was just frozen may stay in the buffer. Volumes that come or go while the checkpoint is in progress do not
    /// change this.
    pub(crate) fn decide_to_buffer(&mut self) {
        self.durable.reservation.buffers = self.map_buffer_limit() > 0;
    }

    /// Returns true if mappings of the frozen delta may stay in the buffer.
    pub(crate) fn buffers_frozen(&self) -> bool {
        self.durable.reservation.buffers
    }

    /// Returns the number of records in a leaf of the log.
    pub(crate) fn records_per_leaf(&self) -> u64 {
        self.metadata.geometry().block() / RECORD_BYTES as u64
    }

    /// Returns the largest number of log leaves that a checkpoint can write with N new mappings in the buffer.
    pub(crate) fn log_leaves(&self, new: u64) -> u64 {
        let records = self.durable.map_buffer.len() as u64 + new;
        (records + records / 2).div_ceil(self.records_per_leaf()) + 3
    }

    /// Returns the largest number of log pages that a checkpoint can write with N new mappings; 0 if the buffer is empty and takes no mappings.
    pub(crate) fn log_pages(&self, new: u64) -> u64 {
        if !self.uses_map_buffer() {
            return 0;
        }
        self.log_leaves(new)
    }

    /// Returns true if the buffer exceeds its limit; the next checkpoints flush the excess.
    pub(crate) fn has_too_much_buffered(&self) -> bool {
        self.durable.map_buffer.len() as u64 > self.map_buffer_limit() && !self.durable.buffer_flush.is_stuck()
    }
}
