//! Replicas: where they are, what they may take, and which of them are on their way. Who makes them is above (`jobs/reorder/`).
//!
//! ```text
//! places    a slot has one replica at most that is in order with others, and on a store with heads one more in each scratch zone: its
//!           copies. Block p * stride + n of a volume that nobody sees is the replica of slot n at place p
//! good      until the slot is free: the content of a slot never changes while it is in use
//! table     in memory, what reads go by. After a restart it is made anew from the map of that volume, in the background. What that has is
//!           proven first, by the digests of both: a slot may have been freed, and used again, without the map saying so
//! budget    for all of them. What was not read since it was made, or since its turn came last, goes first; of that the oldest
//! ```
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
use crate::space::zones::ZONES;

/// Without a word about it, replicas may take one slot in so many.
const SHARE: u64 = 128;

/// Places of a slot's replicas: one in order with others, and one in each zone.
pub(crate) const PLACES: u64 = 1 + ZONES as u64;

/// Entries of the order that may be gone, beside as many as there are replicas.
const FEW: usize = 64;

/// What is known of them.
#[derive(Default)]
pub(crate) struct Replicas {
    /// The volume that has them, if there is one that is not deleted.
    pub volume: Option<VolumeId>,
    /// Bytes that they may take, if somebody said so.
    pub budget: Option<u64>,
    /// Slots of the pool when the volume was made: how far places of a slot lie apart in it.
    stride: u64,
    table: NearMap<Number, Replica>,
    /// How many of them are copies in zones.
    copies: u64,
    /// Replicas with their slots, the oldest first; those that are gone are passed over.
    order: VecDeque<(Number, Slot)>,
    /// Blocks of the volume that are to go: their slots are free again, or they gave way.
    stale: Vec<Number>,
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

/// A block of the volume of replicas.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Number(pub u64);

/// A replica: its slot, and a flag below it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Replica(u64);

/// Flag: it was read since it was made, or since its turn to go came last.
const WAS_READ: u64 = 1;

impl Replica {
    fn new(at: Slot) -> Replica {
        Replica(at.0 << 1)
    }

    fn at(self) -> Slot {
        Slot(self.0 >> 1)
    }

    fn was_read(self) -> bool {
        self.0 & WAS_READ > 0
    }
}

/// A slot whose content is read at another place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Elsewhere {
    /// The slot.
    pub slot: Slot,
    /// Which replica it is, if it is one. Else the index has named the place.
    pub replica: Option<Number>,
    /// What must be found there, where only the index says that it is there. A replica is the slot's own.
    pub hinted: Option<Digest>,
}

impl Replicas {
    /// The volume that nobody sees, of so many blocks.
    pub(crate) fn set_volume(&mut self, volume: Option<(VolumeId, u64)>) {
        self.volume = volume.map(|(id, _)| id);
        self.stride = volume.map_or(0, |(_, blocks)| blocks / PLACES);
    }

    /// Slots that may have replicas: the first ones.
    pub(crate) fn stride(&self) -> u64 {
        self.stride
    }

    /// The block of the volume that is the replica of a slot at a place.
    pub(crate) fn number(&self, slot: Slot, place: u64) -> Number {
        Number(place * self.stride + slot.0)
    }

    /// The slot of which a block of the volume is a replica.
    pub(crate) fn slot_of(&self, number: Number) -> Slot {
        Slot(number.0.checked_rem(self.stride).unwrap_or(number.0))
    }

    /// The replica of a slot that is in order with others.
    #[inline]
    pub(crate) fn of(&self, slot: Slot) -> Option<Slot> {
        if self.table.is_empty() || slot.0 >= self.stride {
            return None;
        }
        self.table.get(&self.number(slot, 0)).map(|replica| replica.at())
    }

    /// Whether there are copies in zones.
    #[inline]
    pub(crate) fn has_copies(&self) -> bool {
        self.copies > 0
    }

    /// Copies of a slot in zones.
    pub(crate) fn copies_of(&self, slot: Slot) -> impl Iterator<Item = (Number, Slot)> + '_ {
        let numbers = (1..PLACES)
            .filter(move |_| self.copies > 0 && slot.0 < self.stride)
            .map(move |place| self.number(slot, place));
        numbers.filter_map(|number| Some((number, self.table.get(&number)?.at())))
    }

    /// Whether a slot has a replica at any place.
    pub(crate) fn has_any(&self, slot: Slot) -> bool {
        self.of(slot).is_some() || self.copies_of(slot).next().is_some()
    }

    /// Whether there is one of this number.
    pub(crate) fn has(&self, number: Number) -> bool {
        self.table.contains_key(&number)
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

    /// A slot has one more. It is on its way there.
    pub(crate) fn add(&mut self, number: Number, at: Slot) {
        self.writing.insert(at);
        self.add_written(number, at);
    }

    /// A slot has one more, which is there.
    pub(crate) fn add_written(&mut self, number: Number, at: Slot) {
        if self.table.insert(number, Replica::new(at)).is_none() {
            self.copies += u64::from(number.0 >= self.stride);
        }
        if self.order.len() > 2 * self.table.len() + FEW {
            let table = &self.table;
            self.order.retain(|(number, at)| table.get(number).is_some_and(|replica| replica.at() == *at));
        }
        self.order.push_back((number, at));
    }

    /// A slot has been written: whether it is a replica. The read cache knows contents by the slots that maps lead to.
    pub(crate) fn was_written(&mut self, slot: Slot) -> bool {
        self.writing.remove(&slot)
    }

    /// A slot is free: it has no replicas any more.
    pub(crate) fn forget(&mut self, slot: Slot) {
        if slot.0 >= self.stride {
            return;
        }
        self.forget_one(self.number(slot, 0));
        for place in 1..PLACES {
            if self.copies == 0 {
                break;
            }
            self.forget_one(self.number(slot, place));
        }
    }

    fn forget_one(&mut self, number: Number) {
        if self.table.remove(&number).is_some() {
            self.copies -= u64::from(number.0 >= self.stride);
            self.stale.push(number);
            self.dropped += 1;
        }
    }

    /// What the volume has of this number is to go.
    pub(crate) fn note_stale(&mut self, number: Number) {
        self.stale.push(number);
    }

    /// Forgets some where there are more than so many: what has not been read goes first, and of that the oldest.
    pub(crate) fn drop_beyond(&mut self, most: u64) {
        while self.len() > most {
            let Some((number, at)) = self.order.pop_front() else { break };
            match self.table.get_mut(&number).filter(|replica| replica.at() == at) {
                Some(replica) if replica.was_read() => {
                    replica.0 &= !WAS_READ;
                    self.order.push_back((number, at));
                }
                Some(_) => self.forget_one(number),
                None => {}
            }
        }
    }

    /// Forgets all of them.
    pub(crate) fn clear(&mut self) {
        self.dropped += self.len();
        (self.table, self.copies) = (NearMap::default(), 0);
        self.order.clear();
        self.stale.clear();
    }

    /// A block of the volume that is to go.
    pub(crate) fn stale(&self) -> Option<Number> {
        self.stale.last().copied()
    }

    /// That one is to be dropped; whether there is none of it that is newer.
    pub(crate) fn end_stale(&mut self) -> bool {
        self.stale.pop().is_some_and(|number| !self.has(number))
    }

    /// Content of slots is read at other places, which follow each other.
    pub(crate) fn begin_read(&mut self, first: Slot, slots: &[Elsewhere]) {
        for (i, &of) in slots.iter().enumerate() {
            self.reading.insert(Slot(first.0 + i as u64), of);
            let replica = of.replica.and_then(|number| self.table.get_mut(&number));
            replica.into_iter().for_each(|replica| replica.0 |= WAS_READ);
            self.places.copies += u64::from(of.replica.is_some_and(|number| number.0 >= self.stride));
        }
        let hinted = slots.iter().filter(|of| of.replica.is_none()).count() as u64;
        self.places.hinted += hinted;
        self.read += slots.len() as u64 - hinted;
    }

    /// A place has been read: what for.
    pub(crate) fn end_read(&mut self, place: Slot) -> Elsewhere {
        self.reading.remove(&place).expect("a read of another place ends once")
    }

    /// What was read at another place is not what it must be: if it is a replica, there is none of this number any more.
    pub(crate) fn was_wrong(&mut self, number: Option<Number>, at: Slot) {
        self.places.wrong += 1;
        if let Some(number) = number.filter(|number| self.table.get(number).is_some_and(|replica| replica.at() == at)) {
            self.forget_one(number);
        }
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
        wanted.min(self.limits.replicas(self.device().has_heads && self.replicas.budget.is_some()))
    }

    /// Whether popular blocks get copies: on a store with heads, if somebody has said what replicas may take.
    pub(crate) fn makes_copies(&self) -> bool {
        self.device().has_heads && self.replicas.budget.is_some() && self.replica_budget() >= u64::from(ZONES)
    }

    /// Space has been reserved for containers from this one on: some are kept for copies.
    pub(crate) fn keep_zones(&mut self, from: u32) {
        if self.makes_copies() {
            self.space.keep_middles(from);
        }
    }

    /// What the disk is, or the budget, may have changed.
    pub(crate) fn review_zones(&mut self) {
        if self.makes_copies() {
            self.space.keep_middles(0);
        } else {
            self.space.keep_none();
        }
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
