//! Blocks in flight from the device, and their waiters.

use alloc::vec::Vec;

use crate::api::{BufferId, RequestId};

/// A request that waits for a block, and the index of that block in it.
pub(crate) type Waiter = (RequestId, u32);

/// A block in flight from the device.
#[derive(Debug)]
pub(crate) struct Fill {
    buffer: BufferId,
    /// Check bits that the map has of its digest.
    check: u32,
    /// True if it is read ahead, or was when it began.
    is_ahead: bool,
    /// Requests that wait for it; none if it is read ahead.
    first: Option<Waiter>,
    more: Vec<Waiter>,
}

impl Fill {
    /// Makes the read of a block that a request waits for.
    #[inline]
    pub(crate) fn wanted(buffer: BufferId, check: u32, by: Waiter) -> Fill {
        Fill { buffer, check, is_ahead: false, first: Some(by), more: Vec::new() }
    }

    /// Makes the read of a block that has no waiters.
    pub(crate) fn ahead(buffer: BufferId, check: u32) -> Fill {
        Fill { buffer, check, is_ahead: true, first: None, more: Vec::new() }
    }

    #[inline]
    pub(crate) fn buffer(&self) -> BufferId {
        self.buffer
    }

    /// Returns the check bits that the map has of the block's digest.
    #[inline]
    pub(crate) fn check(&self) -> u32 {
        self.check
    }

    /// Returns true if the block is read ahead, or was when its read began.
    #[inline]
    pub(crate) fn is_ahead(&self) -> bool {
        self.is_ahead
    }

    /// Moves the read to another buffer, and returns the former one.
    pub(super) fn redirect(&mut self, buffer: BufferId) -> BufferId {
        core::mem::replace(&mut self.buffer, buffer)
    }

    /// Adds a waiter. The list for it may come from `spare`.
    #[inline]
    pub(crate) fn add_waiter(&mut self, waiter: Waiter, spare: &mut Vec<Vec<Waiter>>) {
        match self.first {
            None => self.first = Some(waiter),
            Some(_) => {
                if self.more.capacity() == 0 {
                    self.more = spare.pop().unwrap_or_default();
                }
                self.more.push(waiter);
            }
        }
    }

    /// Returns true if any request waits for it.
    #[inline]
    pub(crate) fn is_wanted(&self) -> bool {
        self.first.is_some()
    }

    /// Returns the waiters in the order in which they came.
    #[inline]
    pub(crate) fn waiters(&self) -> impl Iterator<Item = Waiter> + Clone + '_ {
        self.first.into_iter().chain(self.more.iter().copied())
    }

    /// Gives the list of a read that has ended to `spare`, if it has one.
    #[inline]
    pub(crate) fn give_list_back(mut self, spare: &mut Vec<Vec<Waiter>>) {
        if self.more.capacity() > 0 {
            self.more.clear();
            spare.push(self.more);
        }
    }
}
