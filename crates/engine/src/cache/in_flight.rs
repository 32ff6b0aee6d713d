//! Blocks on their way from the device, and who waits for them.

use alloc::vec::Vec;

use crate::api::{BufferId, RequestId};

/// A request that waits for a block, and for which of its blocks.
pub(crate) type Waiter = (RequestId, u32);

/// A block on its way from the device.
#[derive(Debug)]
pub(crate) struct Fill {
    pub buffer: BufferId,
    /// What the map says of its digest.
    pub check: u32,
    /// It is read ahead, or was when it began.
    pub is_ahead: bool,
    /// Requests that wait for it; none if it is read ahead.
    first: Option<Waiter>,
    more: Vec<Waiter>,
}

impl Fill {
    /// A block that a request waits for.
    #[inline]
    pub(crate) fn wanted(buffer: BufferId, check: u32, by: Waiter) -> Fill {
        Fill { buffer, check, is_ahead: false, first: Some(by), more: Vec::new() }
    }

    /// A block that nobody waits for.
    pub(crate) fn ahead(buffer: BufferId, check: u32) -> Fill {
        Fill { buffer, check, is_ahead: true, first: None, more: Vec::new() }
    }

    /// One more waits for it. The list for that may be one of those that are spare.
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

    /// Whether anybody waits for it.
    #[inline]
    pub(crate) fn is_wanted(&self) -> bool {
        self.first.is_some()
    }

    /// Those who wait for it, in the order in which they came.
    #[inline]
    pub(crate) fn waiters(&self) -> impl Iterator<Item = Waiter> + Clone + '_ {
        self.first.into_iter().chain(self.more.iter().copied())
    }

    /// It has ended: its list is spare, if it has one.
    #[inline]
    pub(crate) fn give_list_back(mut self, spare: &mut Vec<Vec<Waiter>>) {
        if self.more.capacity() > 0 {
            self.more.clear();
            spare.push(self.more);
        }
    }
}
