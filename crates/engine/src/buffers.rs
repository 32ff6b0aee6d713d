//! Who holds which payload buffer. The driver owns the memory, the engine the numbers: a buffer is free when nobody holds it.
//!
//! Holders: the driver while it receives payload, a request, an answer on its way, a block not yet in its slot, the read
//! cache. Blocks that are being received or wait for their slot are limited, so that reads always find buffers.

use alloc::vec;
use alloc::vec::Vec;

use crate::contract::BufferId;

/// Reference counts of buffers.
pub(crate) struct Buffers {
    holds: Vec<u32>,
    free: Vec<BufferId>,
    /// Buffers that hold payload on its way in: received, or not yet written to a slot.
    incoming: u32,
    is_incoming: Vec<bool>,
    /// What the map must say of the digest of the block in it.
    checks: Vec<u32>,
    limit: u32,
}

impl Buffers {
    pub(crate) fn new(count: u32, limit: u32) -> Buffers {
        Buffers {
            holds: vec![0; count as usize],
            free: (0..count).rev().map(BufferId).collect(),
            incoming: 0,
            is_incoming: vec![false; count as usize],
            checks: vec![0; count as usize],
            limit,
        }
    }

    pub(crate) fn free(&self) -> usize {
        self.free.len()
    }

    /// Whether payload may come in.
    pub(crate) fn may_receive(&self) -> bool {
        self.incoming < self.limit
    }

    /// Share of the limit that incoming payload has reached, in percent.
    pub(crate) fn incoming_percent(&self) -> u32 {
        (u64::from(self.incoming) * 100 / u64::from(self.limit.max(1))) as u32
    }

    /// Takes a free buffer; the caller holds it once.
    pub(crate) fn take(&mut self) -> Option<BufferId> {
        let buffer = self.free.pop()?;
        debug_assert_eq!(self.holds[buffer.0 as usize], 0);
        self.holds[buffer.0 as usize] = 1;
        Some(buffer)
    }

    /// From here until [`Buffers::arrived`] (or until it is free) the buffer counts as incoming.
    pub(crate) fn set_incoming(&mut self, buffer: BufferId) {
        let flag = &mut self.is_incoming[buffer.0 as usize];
        if !*flag {
            *flag = true;
            self.incoming += 1;
        }
    }

    /// The block is in its slot.
    pub(crate) fn arrived(&mut self, buffer: BufferId) {
        if core::mem::take(&mut self.is_incoming[buffer.0 as usize]) {
            self.incoming -= 1;
        }
    }

    /// The buffer holds a block with these check bits.
    pub(crate) fn set_check(&mut self, buffer: BufferId, check: u32) {
        self.checks[buffer.0 as usize] = check;
    }

    /// The check bits of the block in a buffer.
    pub(crate) fn check(&self, buffer: BufferId) -> u32 {
        self.checks[buffer.0 as usize]
    }

    /// One more holder.
    pub(crate) fn hold(&mut self, buffer: BufferId) {
        debug_assert!(self.holds[buffer.0 as usize] > 0);
        self.holds[buffer.0 as usize] += 1;
    }

    /// One holder less.
    pub(crate) fn release(&mut self, buffer: BufferId) {
        let holds = &mut self.holds[buffer.0 as usize];
        assert!(*holds > 0, "a buffer is released as often as it is held");
        *holds -= 1;
        if *holds == 0 {
            self.arrived(buffer);
            self.free.push(buffer);
        }
    }

    pub(crate) fn holds(&self, buffer: BufferId) -> u32 {
        self.holds[buffer.0 as usize]
    }

    pub(crate) fn count(&self) -> usize {
        self.holds.len()
    }

    pub(crate) fn incoming(&self) -> u32 {
        self.incoming
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A shared block is in memory once, and every block of every answer on its way holds it: the count was of 16 bits.
    #[test]
    fn a_buffer_can_be_held_more_than_65535_times() {
        let mut buffers = Buffers::new(1, 1);
        let buffer = buffers.take().unwrap();
        for _ in 0..70_000 {
            buffers.hold(buffer);
        }
        for _ in 0..70_000 {
            buffers.release(buffer);
            assert_eq!(buffers.take(), None);
        }
        buffers.release(buffer);
        assert_eq!(buffers.take(), Some(buffer));
    }
}
