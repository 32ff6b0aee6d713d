//! Online repair: repairs of damaged blocks and pages, the log of damages, and second copies.
//!
//! A repair knows neither requests nor jobs. Its results stand on two lists: the engine empties `arrived` after each call that may fill it, and the
//! scrub empties `ended` in its next step.

pub(crate) mod block_repair;
pub(crate) mod second_copies;

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use crate::api::{BufferId, Digest, RequestId};
use crate::format::entry::Slot;
use crate::repair::block_repair::{BlockRepair, DamageLog, For, Found};

/// Result for a request that waited for a block: the content in this buffer, or no good copy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrived {
    pub request: RequestId,
    /// Number of the block in the request.
    pub at: u32,
    pub buffer: Option<BufferId>,
}

/// Repairs in progress, and the damage that they have found.
#[derive(Default)]
pub(crate) struct Repairs {
    /// Blocks under repair.
    in_progress: BTreeMap<Slot, BlockRepair>,
    damages: DamageLog,
    /// Blocks for requests, in order.
    arrived: Vec<Arrived>,
    /// Outcomes of repairs that were made for the scrub, in order.
    ended: VecDeque<(For, Found)>,
    /// Set if second copies may exist.
    has_copies: bool,
}

impl Repairs {
    /// Returns true if a slot is under repair: it must not be reused, and is read from the place that the repair names.
    #[inline]
    pub(crate) fn is_repairing(&self, slot: Slot) -> bool {
        self.in_progress.contains_key(&slot)
    }

    /// Returns true if any slot is under repair.
    #[inline]
    pub(crate) fn is_repairing_any(&self) -> bool {
        !self.in_progress.is_empty()
    }

    /// Returns the slots under repair, in order.
    pub(crate) fn under_repair(&self) -> impl ExactSizeIterator<Item = &Slot> {
        self.in_progress.keys()
    }

    /// Returns the log of the damages that have been found.
    pub(crate) fn damages(&self) -> &DamageLog {
        &self.damages
    }

    /// Returns true if a slot is known to have lost this content, and no other copy was found. A new write of the content makes one.
    pub(crate) fn is_lost(&self, slot: Slot, digest: Digest) -> bool {
        self.damages.lost.contains(&(slot, digest))
    }

    /// Returns true if blocks for requests have arrived.
    #[inline]
    pub(crate) fn has_arrived(&self) -> bool {
        !self.arrived.is_empty()
    }

    /// Returns the blocks for requests that have arrived since the last call; the list is to be given back.
    pub(crate) fn take_arrived(&mut self) -> Vec<Arrived> {
        core::mem::take(&mut self.arrived)
    }

    /// Takes the list back, for later blocks.
    pub(crate) fn give_list_back(&mut self, mut list: Vec<Arrived>) {
        list.clear();
        self.arrived = list;
    }

    /// Returns the outcome of the next repair that was made for the scrub.
    pub(crate) fn take_ended(&mut self) -> Option<(For, Found)> {
        self.ended.pop_front()
    }

    /// Notes that an opening has found a volume of second copies.
    pub(crate) fn found_copies(&mut self) {
        self.has_copies = true;
    }
}
