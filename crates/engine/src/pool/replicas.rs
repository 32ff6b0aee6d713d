//! Replicas: where they are, what they may take, and which of them are on their way. Who makes them is above (`jobs/reorder.rs`).
//!
//! A slot has one replica at most. It is good until its slot is free: the content of a slot never changes while it is in use. The table
//! is in memory, beside the map of a volume that nobody sees; so a restart loses it, and what an earlier run left is given back.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::Pool;
use crate::contract::VolumeId;
use crate::format::entry::Slot;
use crate::sizes::{list_bytes, table_bytes};
use crate::slot_map::{NearMap, NearSet};

/// Without a word about it, replicas may take one slot in so many.
const SHARE: u64 = 128;

/// What is known of them.
#[derive(Default)]
pub(crate) struct Replicas {
    /// The volume that has them, if there is one that is not deleted.
    pub volume: Option<VolumeId>,
    /// Bytes that they may take, if somebody said so.
    pub budget: Option<u64>,
    table: NearMap<Slot, Slot>,
    /// Slots with their replicas, the oldest first; those that are gone are passed over.
    order: VecDeque<(Slot, Slot)>,
    /// Slots that are free again: the volume still has replicas of them.
    stale: Vec<Slot>,
    /// Reads from replicas that are in flight: replica, slot.
    reading: NearMap<Slot, Slot>,
    /// Replicas that are on their way to their slots.
    writing: NearSet<Slot>,
    /// What an earlier run left has been given back.
    is_fresh: bool,
    dropped: u64,
    read: u64,
}

impl Replicas {
    /// The replica of a slot.
    #[inline]
    pub(crate) fn of(&self, slot: Slot) -> Option<Slot> {
        self.table.get(&slot).copied()
    }

    pub(crate) fn len(&self) -> u64 {
        self.table.len() as u64
    }

    /// Whether an earlier run has left some.
    pub(crate) fn are_left(&self) -> bool {
        !self.is_fresh && self.volume.is_some()
    }

    /// What an earlier run left has been given back.
    pub(crate) fn begin_anew(&mut self) {
        self.is_fresh = true;
    }

    /// A slot has one. It is on its way there.
    pub(crate) fn add(&mut self, slot: Slot, replica: Slot) {
        self.writing.insert(replica);
        self.table.insert(slot, replica);
        self.order.push_back((slot, replica));
    }

    /// A slot has been written: whether it is a replica. The read cache knows contents by the slots that maps lead to.
    pub(crate) fn was_written(&mut self, slot: Slot) -> bool {
        self.writing.remove(&slot)
    }

    /// A slot is free: it has no replica any more.
    pub(crate) fn forget(&mut self, slot: Slot) {
        if self.table.remove(&slot).is_some() {
            self.stale.push(slot);
            self.dropped += 1;
        }
    }

    /// Forgets the oldest where there are more than so many.
    pub(crate) fn drop_oldest_beyond(&mut self, most: u64) {
        while self.len() > most {
            let Some((slot, replica)) = self.order.pop_front() else { break };
            self.give_up(slot, replica);
        }
    }

    /// Forgets one, if it still is the slot's.
    pub(crate) fn give_up(&mut self, slot: Slot, replica: Slot) {
        if self.of(slot) == Some(replica) {
            self.forget(slot);
        }
    }

    /// Forgets all of them.
    pub(crate) fn clear(&mut self) {
        self.dropped += self.len();
        self.table.clear();
        self.order.clear();
        self.stale.clear();
    }

    /// A slot that is free again and of which the volume still has a replica.
    pub(crate) fn stale(&self) -> Option<Slot> {
        self.stale.last().copied()
    }

    /// That one is to be dropped; whether there is none of it that is newer.
    pub(crate) fn end_stale(&mut self) -> bool {
        self.stale.pop().is_some_and(|slot| self.of(slot).is_none())
    }

    /// Content of slots is read from their replicas, which follow each other.
    pub(crate) fn begin_read(&mut self, first: Slot, slots: &[Slot]) {
        for (i, &slot) in slots.iter().enumerate() {
            self.reading.insert(Slot(first.0 + i as u64), slot);
        }
        self.read += slots.len() as u64;
    }

    /// One has been read: the slot that it is the replica of.
    pub(crate) fn end_read(&mut self, replica: Slot) -> Slot {
        self.reading.remove(&replica).expect("a read of a replica ends once")
    }

    /// Whether a slot must not be reused yet: it is being read.
    pub(crate) fn holds(&self, slot: Slot) -> bool {
        self.reading.contains_key(&slot)
    }

    /// How many were dropped since the pool was opened, and how many blocks reads got from them.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.dropped, self.read)
    }

    /// Bytes of memory.
    pub(crate) fn memory(&self) -> u64 {
        table_bytes(&self.table) + self.order.capacity() as u64 * 16 + list_bytes(&self.stale)
    }
}

impl Pool {
    /// Blocks that replicas may take: as many as was said, as long as there is memory for the table.
    pub(crate) fn replica_budget(&self) -> u64 {
        let block = self.store.geometry.block();
        let wanted = self.replicas.budget.map_or(self.store.geometry.slots() / SHARE, |bytes| bytes / block);
        wanted.min(self.limits.replicas())
    }
}
