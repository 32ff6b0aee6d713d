//! Replicas: where they are, what they may take, and which of them are on their way. Who makes them is above (`jobs/reorder.rs`).
//!
//! A slot has one replica at most. It is good until its slot is free: the content of a slot never changes while it is in use. The table
//! is in memory, beside the map of a volume that nobody sees; so a restart loses it, and what an earlier run left is given back.
//!
//! On a store with heads a read goes to the place that is cheapest from where they are, of the slot, its replica, and another slot that
//! the index names for the same content ("I/O Deduplication", dynamic replica retrieval; docs/io-deduplication.md).

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::Pool;
use crate::contract::{Digest, VolumeId};
use crate::counters::PlaceCounts;
use crate::format::entry::Slot;
use crate::sizes::{list_bytes, table_bytes};
use crate::slot_map::{NearMap, NearSet};

/// Without a word about it, replicas may take one slot in so many.
const SHARE: u64 = 128;

/// Entries of the order that may be gone, beside as many as there are replicas.
const FEW: usize = 64;

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
    /// Reads from other places than the slots that are in flight: place, what is read there.
    reading: NearMap<Slot, Elsewhere>,
    /// Replicas that are on their way to their slots.
    writing: NearSet<Slot>,
    /// What an earlier run left has been given back.
    is_fresh: bool,
    dropped: u64,
    read: u64,
    places: PlaceCounts,
}

/// A slot whose content is read at another place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Elsewhere {
    /// The slot.
    pub slot: Slot,
    /// What must be found there, where only the index says that it is there. A replica is the slot's own.
    pub hinted: Option<Digest>,
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
        if self.order.len() > 2 * self.table.len() + FEW {
            let table = &self.table;
            self.order.retain(|(slot, replica)| table.get(slot) == Some(replica));
        }
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

    /// Content of slots is read at other places, which follow each other.
    pub(crate) fn begin_read(&mut self, first: Slot, slots: &[Elsewhere]) {
        for (i, &of) in slots.iter().enumerate() {
            self.reading.insert(Slot(first.0 + i as u64), of);
        }
        let hinted = slots.iter().filter(|of| of.hinted.is_some()).count() as u64;
        self.places.hinted += hinted;
        self.read += slots.len() as u64 - hinted;
    }

    /// A place has been read: what for.
    pub(crate) fn end_read(&mut self, place: Slot) -> Elsewhere {
        self.reading.remove(&place).expect("a read of another place ends once")
    }

    /// What was read at another place is not what it must be: the slot has no replica there any more.
    pub(crate) fn was_wrong(&mut self, slot: Slot, place: Slot) {
        self.places.wrong += 1;
        self.give_up(slot, place);
    }

    /// Whether a slot must not be reused yet: it is being read.
    pub(crate) fn holds(&self, slot: Slot) -> bool {
        self.reading.contains_key(&slot)
    }

    /// Reads that went to other places.
    pub(crate) fn place_counts(&self) -> PlaceCounts {
        self.places
    }

    /// How many were dropped since the pool was opened, and how many blocks reads got from them.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.dropped, self.read)
    }

    /// Bytes of memory.
    pub(crate) fn memory(&self) -> u64 {
        let tables = table_bytes(&self.table) + table_bytes(&self.reading);
        tables + self.order.capacity() as u64 * 16 + list_bytes(&self.stale)
    }
}

impl Pool {
    /// Blocks that replicas may take: as many as was said, as long as there is memory for the table.
    pub(crate) fn replica_budget(&self) -> u64 {
        let block = self.store.geometry.block();
        let wanted = self.replicas.budget.map_or(self.store.geometry.slots() / SHARE, |bytes| bytes / block);
        wanted.min(self.limits.replicas())
    }

    /// Another slot that holds what a slot does, as far as the index and the pages in memory say: a hint.
    #[inline(never)]
    pub(crate) fn hinted_place(&mut self, slot: Slot) -> Option<(Slot, Digest)> {
        let digest = match self.recent(slot) {
            Some(recent) => recent.digest,
            None => self.summary(slot).ok()??,
        };
        let hint = self.index.peek(self.sharing_digest(digest))?;
        let place = hint.slot;
        let is_there = place != slot
            && self.space.contains(place)
            && hint.generation == self.space.generation(place)
            && (self.recent(place).is_some() || self.slot_state(place).is_ok_and(|state| state.is_used()));
        // What is on its way, from the device or to it, is left alone.
        let is_at_rest = !self.dirty.contains_key(&place)
            && !self.in_journal.contains_key(&place)
            && !self.fills.contains_key(&place)
            && !self.replicas.holds(place);
        (is_there && is_at_rest).then_some((place, digest))
    }

    /// Whether so many blocks are read at another place, and not in their slots, if these follow each other, too.
    pub(crate) fn goes_elsewhere(&mut self, home: Option<Slot>, place: Slot, length: usize) -> bool {
        if !self.device().has_heads {
            return true;
        }
        let bytes = length as u64 * self.store.geometry.block();
        let Some(home) = home.map(|home| self.slot_offset(home)) else {
            self.replicas.places.in_order += 1;
            return true;
        };
        let (place, io) = (self.slot_offset(place), &self.store.io);
        if io.has_read_beside(home, bytes) {
            return false;
        }
        let (is_beside, head) = (io.has_read_beside(place, bytes), io.head());
        let is_nearer = !is_beside && place.abs_diff(head) < home.abs_diff(head);
        self.replicas.places.beside += u64::from(is_beside);
        self.replicas.places.nearer += u64::from(is_nearer);
        is_beside || is_nearer
    }
}
