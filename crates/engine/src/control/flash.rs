//! Flash in front of the store, attached and detached while the pool serves.

use crate::engine::Engine;
use crate::pool::flash::FlashParameters;

impl Engine {
    /// Attaches flash in front of the store of a served pool. It counts as empty: no data on it is trusted. Returns false if the pool has flash, I/O
    /// of the last one is in flight, the pool is not written, or the flash is too small.
    pub fn attach_flash(&mut self, parameters: FlashParameters) -> bool {
        let is_free = !self.pool.has_flash() && self.jobs.flash_is_at_rest() && self.pool.metadata.io().on_flash() == 0;
        if !is_free || !self.takes_changes() {
            return false;
        }
        self.pool.set_flash(parameters);
        self.jobs.open_flash(&mut self.pool);
        self.pool.wake();
        self.pool.has_flash()
    }

    /// Detaches the flash: the engine submits no more I/O to it, and the next superblock trusts none. Its I/O in flight still ends; returns true if
    /// there is none.
    pub fn detach_flash(&mut self) -> bool {
        self.pool.switch_flash_off();
        self.pool.forget_flash();
        self.jobs.take_flash_away(&mut self.pool);
        self.pool.wake();
        self.pool.metadata.io().on_flash() == 0
    }
}
