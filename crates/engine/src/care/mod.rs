//! Damage: blocks and pages that do not hold what they should, what is known of them, and second copies.
//!
//! A repair knows neither requests nor jobs. What it has for them stands on two lists: the engine empties `arrived` after each call that
//! may fill it, the scrub empties `ended` when it moves on.

pub(crate) mod copies;
pub(crate) mod mend;

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use crate::api::{BufferId, Digest, RequestId};
use crate::care::mend::{Damages, For, Found, Mend};
use crate::format::entry::Slot;

/// A block that a request waited for: in this buffer, or there is no good copy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrived {
    pub request: RequestId,
    /// Which block of it.
    pub at: u32,
    pub buffer: Option<BufferId>,
}

/// What is known of damage.
#[derive(Default)]
pub(crate) struct Care {
    /// Blocks under repair.
    mends: BTreeMap<Slot, Mend>,
    damages: Damages,
    /// Blocks for requests, in order.
    arrived: Vec<Arrived>,
    /// What came of repairs that were made for the scrub, in order.
    ended: VecDeque<(For, Found)>,
    /// Whether there may be second copies.
    has_copies: bool,
}

impl Care {
    /// Whether a slot is under repair: it is not to be reused, and read from where the repair says.
    #[inline]
    pub(crate) fn mends(&self, slot: Slot) -> bool {
        self.mends.contains_key(&slot)
    }

    /// Whether any slot is.
    #[inline]
    pub(crate) fn mends_any(&self) -> bool {
        !self.mends.is_empty()
    }

    /// Slots under repair, in order.
    pub(crate) fn under_repair(&self) -> impl ExactSizeIterator<Item = &Slot> {
        self.mends.keys()
    }

    /// What has been found.
    pub(crate) fn damages(&self) -> &Damages {
        &self.damages
    }

    /// Whether a slot is known to hold this content no longer, and there was no other copy. Who writes the content again has one.
    pub(crate) fn is_lost(&self, slot: Slot, digest: Digest) -> bool {
        self.damages.lost.contains(&(slot, digest))
    }

    /// Whether blocks for requests have come.
    #[inline]
    pub(crate) fn has_arrived(&self) -> bool {
        !self.arrived.is_empty()
    }

    /// Blocks for requests that have come since this was asked last; the list is to be given back.
    pub(crate) fn take_arrived(&mut self) -> Vec<Arrived> {
        core::mem::take(&mut self.arrived)
    }

    /// Takes the list back, for the next ones.
    pub(crate) fn give_list_back(&mut self, mut list: Vec<Arrived>) {
        list.clear();
        self.arrived = list;
    }

    /// What came of the next repair that was made for the scrub.
    pub(crate) fn take_ended(&mut self) -> Option<(For, Found)> {
        self.ended.pop_front()
    }

    /// An opening has found a volume of second copies.
    pub(crate) fn found_copies(&mut self) {
        self.has_copies = true;
    }
}
