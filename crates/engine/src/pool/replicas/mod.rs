//! Replicas: further copies of slots, with their locations, their budget, and the replicas in flight. They let reads avoid a seek. The jobs
//! that create them are above (`jobs/replicate/`).
//!
//! ```text
//! places    a slot has at most one replica in order with others, and on an HDD one more in each scratch zone: its copies. Block
//!           p * stride + n of a hidden volume is the replica of slot n at place p
//! valid     until the slot is free: the content of a slot never changes while it is in use
//! tables    in memory, for reads: one of replicas in order, and one of blocks with copies, with one entry for the copies in all zones
//!           (columns.rs). After a restart both are rebuilt from the map of the hidden volume, in the background. Each of its blocks is
//!           proven first, by the digests of both slots: a slot may have been freed, and used again, without the map saying so
//! budget    for all replicas. Where there are copies, replicas in order take at most half of it. Replicas that were not read since they
//!           were made, or since their last turn, are evicted first; among these the oldest
//! ```
//!
//! On an HDD a read goes to the cheapest place from the current head position: the slot, its replica, or another slot that the index names
//! for the same content ("I/O Deduplication", dynamic replica retrieval; docs/papers/io-deduplication.md).

mod columns;
mod locations;

use alloc::collections::VecDeque;
use alloc::vec::Vec;

pub(crate) use self::columns::Columns;
use super::Pool;
use crate::api::{Digest, VolumeId};
use crate::counters::PlaceCounts;
use crate::format::entry::{Key, Slot};
use crate::locality_map::{NearMap, NearSet};
use crate::sizes::{list_bytes, table_bytes};
use crate::space::zones::ZONES;

/// Number of places of a slot's replicas: one in order with others, and one in each zone.
pub(crate) const PLACES: u64 = 1 + ZONES as u64;

/// Number of stale entries that the order may have, besides one for each replica.
const FEW: usize = 64;

/// Replicas of slots: in order with others, and copies in zones.
#[derive(Default)]
pub(crate) struct Replicas {
    /// Hidden volume of replicas, if there is one that is not deleted.
    pub(super) volume: Option<VolumeId>,
    /// Slots of the pool when the volume was created: the distance between two places of a slot in it.
    stride: u64,
    /// Replicas in order, by their slots.
    table: NearMap<Slot, Replica>,
    /// Slots with their replicas in order, the oldest first; entries of dropped replicas are skipped.
    order: VecDeque<(Slot, Slot)>,
    /// Copies in zones.
    pub(super) columns: Columns,
    /// Maximum number of blocks that get copies in zones ([`Pool::review_zones`]).
    most_columns: u64,
    /// Blocks of the hidden volume of replicas to be unmapped: their replicas were dropped, or were left by an earlier run and not adopted.
    stale: Vec<Stale>,
    /// Reads in flight from other places than the slots, by place.
    reading: NearMap<Slot, AlternateLocation>,
    /// Replicas whose writes are in flight.
    writing: NearSet<Slot>,
    /// True once all replicas of an earlier run have been given back or adopted.
    is_fresh: bool,
    dropped: u64,
    read: u64,
    places: PlaceCounts,
}

/// Block number in the hidden volume of replicas.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Number(pub u64);

/// Dropped replicas of a slot: the slot, and above it a flag for each place.
#[derive(Clone, Copy)]
struct Stale(u64);

/// Number of bits of the slot; no pool has slots beyond them.
const STALE_SLOT_BITS: u32 = u64::BITS - PLACES as u32;

impl Stale {
    fn new(slot: Slot, places: u16) -> Stale {
        Stale(slot.0 | u64::from(places) << STALE_SLOT_BITS)
    }

    fn slot(self) -> Slot {
        Slot(self.0 & ((1 << STALE_SLOT_BITS) - 1))
    }

    /// Returns the first of the remaining places; `None` if there is none.
    fn place(self) -> Option<u64> {
        let places = self.0 >> STALE_SLOT_BITS;
        (places > 0).then(|| places.trailing_zeros().into())
    }

    fn end(&mut self, place: u64) {
        self.0 &= !(1 << (STALE_SLOT_BITS + place as u32));
    }
}

/// Replica of a slot: its location, and a flag below it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Replica(u64);

/// Flag of a replica that was read since it was made, or since its last turn for eviction.
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

/// Slot whose content is read from another place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct AlternateLocation {
    /// Slot that the read is for.
    pub slot: Slot,
    /// Number of the replica that is read there. `None`: the index has named the place.
    pub replica: Option<Number>,
    /// Digest that the content must have, if only the index names the place. A replica has the slot's own.
    pub hinted: Option<Digest>,
}

impl Replicas {
    /// Returns the volume of replicas, if there is one.
    #[inline]
    pub(crate) fn volume(&self) -> Option<VolumeId> {
        self.volume
    }

    /// Returns the blocks with copies in scratch zones.
    pub(crate) fn columns(&self) -> &Columns {
        &self.columns
    }

    pub(crate) fn columns_mut(&mut self) -> &mut Columns {
        &mut self.columns
    }

    /// Sets the hidden volume of replicas, with its size in blocks, and the number of slots of a container.
    pub(crate) fn set_volume(&mut self, volume: Option<(VolumeId, u64)>, width: u32) {
        self.volume = volume.map(|(id, _)| id);
        // A volume of another size gets no stride and is made anew: no number has more places than there are.
        self.stride = volume.map_or(0, |(_, blocks)| if blocks % PLACES == 0 { blocks / PLACES } else { 0 });
        self.columns.set_width(width);
    }

    /// Returns the number of slots that may have replicas: the first ones.
    pub(crate) fn stride(&self) -> u64 {
        self.stride
    }

    /// Returns the number of a slot's replica at a place.
    pub(crate) fn number(&self, slot: Slot, place: u64) -> Number {
        Number(place * self.stride + slot.0)
    }

    /// Returns the slot that this block of the volume is a replica of.
    pub(crate) fn slot_of(&self, number: Number) -> Slot {
        Slot(number.0.checked_rem(self.stride).unwrap_or(number.0))
    }

    /// Returns the zone of a copy by its number; `None`: the replica is in order with others.
    fn zone_of(&self, number: Number) -> Option<u32> {
        number.0.checked_div(self.stride)?.checked_sub(1).map(|zone| zone as u32)
    }

    /// Returns the location of a slot's replica in order.
    #[inline]
    pub(crate) fn of(&self, slot: Slot) -> Option<Slot> {
        if self.table.is_empty() {
            return None;
        }
        self.table.get(&slot).map(|replica| replica.at())
    }

    /// Returns true if any block has a copy in a zone.
    #[inline]
    pub(crate) fn has_copies(&self) -> bool {
        self.columns.copies() > 0
    }

    /// Returns the copies of a slot in zones, with their numbers.
    pub(crate) fn copies_of(&self, slot: Slot) -> impl Iterator<Item = (Number, Slot)> + '_ {
        self.columns.copies_of(slot).map(move |(zone, at)| (self.number(slot, 1 + u64::from(zone)), at))
    }

    /// Returns true if a slot has a replica at any place.
    pub(crate) fn has_any(&self, slot: Slot) -> bool {
        self.of(slot).is_some() || self.copies_of(slot).next().is_some()
    }

    /// Returns true if there is a replica of this number.
    fn has(&self, number: Number) -> bool {
        let slot = self.slot_of(number);
        match self.zone_of(number) {
            None => self.table.contains_key(&slot),
            Some(zone) => self.columns.of(slot).is_some_and(|column| self.columns.has(column, zone)),
        }
    }

    /// Returns the number of replicas in order and copies.
    pub(crate) fn len(&self) -> u64 {
        self.table.len() as u64 + self.columns.copies()
    }

    /// Returns true if there are more than `in_order` replicas in order, or more than `columns` blocks with copies.
    pub(crate) fn are_beyond(&self, in_order: u64, columns: u64) -> bool {
        self.table.len() as u64 > in_order || self.columns.len() > columns
    }

    /// Returns true if there may be replicas of an earlier run that have not been given back.
    pub(crate) fn are_left(&self) -> bool {
        !self.is_fresh && self.volume.is_some()
    }

    /// Notes that all replicas of an earlier run have been given back or adopted.
    pub(crate) fn begin_anew(&mut self) {
        self.is_fresh = true;
    }

    /// Adds a replica of a slot in order. Its write is in flight.
    pub(crate) fn add(&mut self, slot: Slot, at: Slot) {
        self.writing.insert(at);
        self.add_written(slot, at);
    }

    /// Adds a replica of a slot in order, which is already written.
    fn add_written(&mut self, slot: Slot, at: Slot) {
        self.table.insert(slot, Replica::new(at));
        if self.order.len() > 2 * self.table.len() + FEW {
            let table = &self.table;
            self.order.retain(|(slot, at)| table.get(slot).is_some_and(|replica| replica.at() == *at));
        }
        self.order.push_back((slot, at));
    }

    /// Adopts a replica of an earlier run. Returns false if it is not kept: at most `in_order` replicas in order and `columns` blocks with copies are.
    pub(crate) fn adopt(&mut self, number: Number, at: Slot, in_order: u64, columns: u64) -> bool {
        let slot = self.slot_of(number);
        if self.has(number) {
            return true;
        }
        match self.zone_of(number) {
            Some(zone) => self.columns.adopt(slot, zone, at, columns),
            None if (self.table.len() as u64) < in_order => {
                self.add_written(slot, at);
                true
            }
            None => false,
        }
    }

    /// Ends the write of a slot, and returns true if it is a replica. The read cache keys contents by the slots that maps refer to.
    pub(crate) fn was_written(&mut self, slot: Slot) -> bool {
        self.writing.remove(&slot)
    }

    /// Drops all replicas of a free slot.
    pub(crate) fn forget(&mut self, slot: Slot) {
        if self.table.is_empty() && self.columns.len() == 0 {
            return;
        }
        let in_order = self.table.remove(&slot).is_some();
        let zones = self.columns.remove(slot);
        self.drop(slot, u16::from(in_order) | zones << 1);
    }

    /// Counts dropped replicas of a slot at the given places, and puts their blocks of the volume on the stale list.
    fn drop(&mut self, slot: Slot, places: u16) {
        self.dropped += u64::from(places.count_ones());
        if places > 0 {
            self.stale.push(Stale::new(slot, places));
        }
    }

    fn forget_one(&mut self, number: Number) {
        let slot = self.slot_of(number);
        let (had, place) = match self.zone_of(number) {
            None => (self.table.remove(&slot).is_some(), 0),
            Some(zone) => (self.columns.remove_one(slot, zone), 1 + zone),
        };
        self.drop(slot, u16::from(had) << place);
    }

    /// Puts the block of the volume with this number on the stale list.
    pub(crate) fn note_stale(&mut self, number: Number) {
        let place = self.zone_of(number).map_or(0, |zone| 1 + zone);
        self.stale.push(Stale::new(self.slot_of(number), 1 << place));
    }

    /// Drops replicas until at most `in_order` in order and `columns` blocks with copies are left: unread ones first, and of these the oldest.
    pub(crate) fn drop_beyond(&mut self, in_order: u64, columns: u64) {
        while self.table.len() as u64 > in_order {
            let Some((slot, at)) = self.order.pop_front() else { break };
            match self.table.get_mut(&slot).filter(|replica| replica.at() == at) {
                Some(replica) if replica.was_read() => {
                    replica.0 &= !WAS_READ;
                    self.order.push_back((slot, at));
                }
                Some(_) => {
                    self.table.remove(&slot);
                    self.drop(slot, 1);
                }
                None => {}
            }
        }
        while let Some((slot, zones)) = self.columns.shrink(columns) {
            self.drop(slot, zones << 1);
        }
    }

    /// Takes a column from a block whose copies were not read, in at most `turns` turns. Returns false if there is none.
    pub(crate) fn free_column(&mut self, turns: &mut u64) -> bool {
        let evicted = self.columns.evict(turns);
        evicted.into_iter().for_each(|(slot, zones)| self.drop(slot, zones << 1));
        evicted.is_some()
    }

    /// Drops all replicas and copies.
    pub(crate) fn clear(&mut self) {
        self.dropped += self.len();
        self.table = NearMap::default();
        let width = self.columns.width();
        self.columns = Columns::default();
        self.columns.set_width(width);
        self.order.clear();
        self.stale.clear();
    }

    /// Returns the number of the next stale block of the volume.
    pub(crate) fn stale(&self) -> Option<Number> {
        let last = self.stale.last()?;
        Some(self.number(last.slot(), last.place()?))
    }

    /// Takes the block that [`Replicas::stale`] returned off the list. Returns true if it must be unmapped: no newer replica has this number.
    pub(crate) fn end_stale(&mut self) -> bool {
        let Some(mut last) = self.stale.pop() else { return false };
        let Some(place) = last.place() else { return false };
        let number = self.number(last.slot(), place);
        last.end(place);
        if last.place().is_some() {
            self.stale.push(last);
        }
        !self.has(number)
    }

    /// Begins reads of slots at other places, which are consecutive from `first` on.
    pub(crate) fn begin_read(&mut self, first: Slot, slots: &[AlternateLocation]) {
        for (i, &of) in slots.iter().enumerate() {
            self.reading.insert(Slot(first.0 + i as u64), of);
            let Some(number) = of.replica else { continue };
            if self.zone_of(number).is_some() {
                self.columns.mark_read(of.slot);
                self.places.copies += 1;
            } else if let Some(replica) = self.table.get_mut(&of.slot) {
                replica.0 |= WAS_READ;
            }
        }
        let hinted = slots.iter().filter(|of| of.replica.is_none()).count() as u64;
        self.places.hinted += hinted;
        self.read += slots.len() as u64 - hinted;
    }

    /// Ends the read of another place, and returns the slot that it was for.
    pub(crate) fn end_read(&mut self, place: Slot) -> AlternateLocation {
        self.reading.remove(&place).expect("a read of another place ends once")
    }

    /// Drops the replica of this number, if it lies in this slot. Returns true if it did.
    fn drop_at(&mut self, number: Number, at: Slot) -> bool {
        let is_there = self.place(number) == Some(at);
        if is_there {
            self.forget_one(number);
        }
        is_there
    }

    /// Counts a read of another place with wrong content. If the place is a replica that is still there, the replica is dropped.
    pub(crate) fn was_wrong(&mut self, number: Option<Number>, at: Slot) {
        self.places.wrong += 1;
        if let Some(number) = number {
            self.drop_at(number, at);
        }
    }

    /// Returns the location of the replica with this number.
    fn place(&self, number: Number) -> Option<Slot> {
        let slot = self.slot_of(number);
        match self.zone_of(number) {
            None => self.of(slot),
            Some(zone) => self.columns.copies_of(slot).find(|&(in_zone, _)| in_zone == zone).map(|(_, at)| at),
        }
    }

    /// Returns true if a slot must not be reused yet: a replica or a hinted content is being read from it.
    pub(crate) fn holds(&self, slot: Slot) -> bool {
        self.reading.contains_key(&slot)
    }

    /// Returns the counts of reads that went to other places.
    pub(crate) fn place_counts(&self) -> PlaceCounts {
        self.places
    }

    /// Returns the number of replicas dropped since the pool was opened, and of blocks that reads got from them.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.dropped, self.read)
    }

    /// Returns the bytes of memory of the tables and lists.
    pub(crate) fn memory(&self) -> u64 {
        let tables = table_bytes(&self.table) + table_bytes(&self.reading);
        tables + self.columns.memory() + self.order.capacity() as u64 * 16 + list_bytes(&self.stale)
    }
}

impl Pool {
    /// Drops the replica that lies in a slot, if this block of the hidden volume is one there. Returns true if it is.
    pub(crate) fn drop_replica(&mut self, block: Key, at: Slot) -> bool {
        let replicas = &mut self.hints.replicas;
        replicas.volume == Some(block.volume()) && replicas.drop_at(Number(block.lba()), at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks that a volume of 11 n + 3 blocks, as only a damaged disk has it, gets no places: its numbers would have a twelfth place, and no zone has that.
    #[test]
    fn a_volume_of_another_size_has_no_places() {
        let mut replicas = Replicas::default();
        replicas.set_volume(Some((VolumeId(1), PLACES * 100)), 4);
        assert_eq!((replicas.stride(), replicas.zone_of(Number(1_099))), (100, Some(ZONES - 1)));
        replicas.set_volume(Some((VolumeId(1), PLACES * 100 + 3)), 4);
        assert_eq!((replicas.stride(), replicas.zone_of(Number(1_102))), (0, None));
    }

    /// Checks that each stale place is returned once, and that a place with a newer replica is not dropped.
    #[test]
    fn what_is_stale_is_dropped_place_by_place() {
        let mut replicas = Replicas::default();
        replicas.set_volume(Some((VolumeId(1), PLACES * 100)), 4);
        replicas.drop(Slot(7), 0b100_0000_0101);
        replicas.add(Slot(7), Slot(50));
        let mut dropped = Vec::new();
        while let Some(number) = replicas.stale() {
            dropped.push((number.0, replicas.end_stale()));
        }
        assert_eq!(dropped, [(7, false), (207, true), (1_007, true)]);
        assert!(!replicas.end_stale());
    }
}
