//! Reference counts of payload buffers. The driver owns the memory, the engine the numbers: a buffer without a holder is free.
//!
//! Holders: the driver while it receives payload, a request, an answer in flight, a block not yet in its slot, the read cache. Blocks that are being
//! received or wait for their slot are limited, so that reads always find buffers.
//!
//! The number of buffers can change. Numbers from the new count on are to go: a held one goes when its last holder releases it.

use alloc::vec;
use alloc::vec::Vec;

use crate::api::BufferId;

/// State of a block in a buffer: its origin, and its fate after the write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum BufferState {
    /// The block is in its slot, or there is none.
    Known,
    /// In flight to its slot, and into the read cache.
    Incoming,
    /// In flight to its slot. The read cache does not keep it.
    Passing,
}

/// Reference counts of buffers.
pub(crate) struct Buffers {
    holds: Vec<u32>,
    free: Vec<BufferId>,
    /// Buffers with incoming payload: received, or not yet written to a slot.
    incoming: u32,
    states: Vec<BufferState>,
    /// Check bits that the map must have for the block in each buffer.
    checks: Vec<u32>,
    limit: u32,
    /// Target number of buffers; a held buffer with this number or a higher one goes when its last holder releases it.
    count: u32,
    /// Held buffers beyond `count`.
    leaving: u32,
    /// The most buffers over time: the tables keep their memory up to that.
    most: u32,
}

impl Buffers {
    pub(crate) fn new(count: u32, limit: u32) -> Buffers {
        Buffers {
            holds: vec![0; count as usize],
            free: (0..count).rev().map(BufferId).collect(),
            incoming: 0,
            states: vec![BufferState::Known; count as usize],
            checks: vec![0; count as usize],
            limit,
            count,
            leaving: 0,
            most: count,
        }
    }

    /// Sets the number of buffers, and the number of them for incoming payload; there are at most `most` over time.
    pub(crate) fn set_count(&mut self, count: u32, limit: u32, most: u32) {
        let before = self.count;
        (self.count, self.limit, self.most) = (count, limit, most.max(count));
        self.free.retain(|buffer| buffer.0 < count);
        let numbers = self.holds.len().max(count as usize);
        self.holds.resize(numbers, 0);
        self.states.resize(numbers, BufferState::Known);
        self.checks.resize(numbers, 0);
        let free = (before..count).rev().filter(|&number| self.holds[number as usize] == 0);
        self.free.extend(free.map(BufferId));
        self.leaving = self.holds[count as usize..].iter().filter(|&&holds| holds > 0).count() as u32;
        self.trim();
    }

    /// Forgets the numbers that are no longer in use.
    fn trim(&mut self) {
        if self.leaving == 0 {
            let count = self.count as usize;
            self.holds.truncate(count);
            self.states.truncate(count);
            self.checks.truncate(count);
            let most = self.most as usize;
            self.holds.shrink_to(most);
            self.states.shrink_to(most);
            self.checks.shrink_to(most);
            self.free.shrink_to(most);
        }
    }

    /// Returns true if the buffer goes as soon as its last holder releases it.
    pub(crate) fn is_pending_free(&self, buffer: BufferId) -> bool {
        buffer.0 >= self.count
    }

    /// Returns the target number of buffers.
    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    pub(crate) fn free(&self) -> usize {
        self.free.len()
    }

    /// Returns true if payload may be received.
    pub(crate) fn may_receive(&self) -> bool {
        self.incoming < self.limit
    }

    /// Returns the share of the limit that incoming payload has reached, in percent.
    pub(crate) fn incoming_percent(&self) -> u32 {
        (u64::from(self.incoming) * 100 / u64::from(self.limit.max(1))) as u32
    }

    /// Takes a free buffer; the caller holds it once.
    pub(crate) fn take(&mut self) -> Option<BufferId> {
        let buffer = self.free.pop()?;
        assert_eq!(self.holds[buffer.0 as usize], 0);
        self.holds[buffer.0 as usize] = 1;
        Some(buffer)
    }

    /// Counts the buffer as incoming until [`Buffers::arrived`] (or until it is free).
    pub(crate) fn set_incoming(&mut self, buffer: BufferId) {
        let state = &mut self.states[buffer.0 as usize];
        if *state == BufferState::Known {
            *state = BufferState::Incoming;
            self.incoming += 1;
        }
    }

    /// Makes an incoming block leave memory as soon as it is in its slot.
    pub(crate) fn pass(&mut self, buffer: BufferId) {
        assert_ne!(self.states[buffer.0 as usize], BufferState::Known);
        self.states[buffer.0 as usize] = BufferState::Passing;
    }

    /// Notes that the block is in its slot; returns true if it shall stay in memory.
    pub(crate) fn arrived(&mut self, buffer: BufferId) -> bool {
        let state = core::mem::replace(&mut self.states[buffer.0 as usize], BufferState::Known);
        self.incoming -= u32::from(state != BufferState::Known);
        state != BufferState::Passing
    }

    /// Sets the check bits of the block that the buffer holds.
    pub(crate) fn set_check(&mut self, buffer: BufferId, check: u32) {
        self.checks[buffer.0 as usize] = check;
    }

    /// Returns the check bits of the block in a buffer.
    pub(crate) fn check(&self, buffer: BufferId) -> u32 {
        self.checks[buffer.0 as usize]
    }

    /// Adds a holder to a buffer that has one.
    #[inline]
    pub(crate) fn hold(&mut self, buffer: BufferId) {
        assert!(self.holds[buffer.0 as usize] > 0);
        self.holds[buffer.0 as usize] += 1;
    }

    /// Removes a holder. Without the last one the buffer is free, or goes if its number is beyond the count.
    pub(crate) fn release(&mut self, buffer: BufferId) {
        let holds = &mut self.holds[buffer.0 as usize];
        assert!(*holds > 0, "a buffer is released as often as it is held");
        *holds -= 1;
        if *holds == 0 {
            self.arrived(buffer);
            if buffer.0 < self.count {
                return self.free.push(buffer);
            }
            self.leaving -= 1;
            self.trim();
        }
    }

    pub(crate) fn holds(&self, buffer: BufferId) -> u32 {
        self.holds[buffer.0 as usize]
    }

    /// Returns the number of buffer numbers: those from it on are not in use.
    pub(crate) fn numbers(&self) -> u32 {
        self.holds.len() as u32
    }

    /// Returns the bytes of memory, apart from the buffers themselves.
    pub(crate) fn memory(&self) -> u64 {
        (self.holds.capacity() * 4 + self.free.capacity() * 4 + self.checks.capacity() * 4 + self.states.capacity())
            as u64
    }

    pub(crate) fn incoming(&self) -> u32 {
        self.incoming
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn held_buffers_stay_until_they_are_released_when_there_are_to_be_fewer() {
        let mut buffers = Buffers::new(8, 8);
        let held: Vec<BufferId> = (0..8).map(|_| buffers.take().unwrap()).collect();
        for &buffer in &held[..6] {
            buffers.release(buffer);
        }
        buffers.set_count(4, 2, 8);
        assert_eq!((buffers.free(), buffers.numbers()), (4, 8));
        buffers.release(held[6]);
        buffers.set_count(7, 2, 8);
        // 4, 5 and 6 are back, 7 is still to go.
        assert_eq!((buffers.free(), buffers.numbers(), buffers.is_pending_free(held[7])), (7, 8, true));
        buffers.release(held[7]);
        assert_eq!((buffers.free(), buffers.numbers()), (7, 7));
        let mut all: Vec<u32> = core::iter::from_fn(|| buffers.take()).map(|buffer| buffer.0).collect();
        all.sort_unstable();
        assert_eq!(all, [0, 1, 2, 3, 4, 5, 6]);
    }

    /// Guards against an overflow: a shared block is in memory once, and every block of every answer in flight holds it; the count was of 16 bits.
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
