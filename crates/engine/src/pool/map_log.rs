//! Size of the map buffer and of its log, as checkpoints and reservations count it.

use super::Pool;
use crate::block_map::map_buffer::RECORD_BYTES;

impl Pool {
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
        if self.limits.map_buffer == 0 && self.durable.map_buffer.is_empty() {
            return 0;
        }
        self.log_leaves(new)
    }

    /// Returns true if the buffer exceeds its limit; the next checkpoints flush the excess.
    pub(crate) fn has_too_much_buffered(&self) -> bool {
        self.durable.map_buffer.len() > self.limits.map_buffer as usize && !self.durable.buffer_flush.is_stuck()
    }
}
