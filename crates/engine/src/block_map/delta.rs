//! The delta: the newest mappings, in memory, consulted before the trees. It collects changes so that a checkpoint can merge them in one pass.
//!
//! Two kinds of mappings: points (one block) and clears (a range that reads as zeroes). A point is always newer than a clear that covers it,
//! because a clear removes the points that it covers.
//!
//! The delta also has the slots that its points refer to, with the number of references. A slot that was allocated since the delta began is
//! "fresh": the delta has its digest and owner. They belong into the slot's summary when the delta is merged.
//!
//! There are at most two deltas: the active one, and, while a checkpoint merges it, the older, frozen one.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::api::{Digest, VolumeId};
use crate::format::entry::{Entry, Key, Slot};
use crate::locality_map::{Near, NearMap};
use crate::sizes::{list_bytes, table_bytes, table_space};

/// Slot that points of a delta refer to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Recent {
    /// Number of points that refer to it. A slot that is not fresh stays known with 0: a record of this delta referred to it.
    pub refs: u32,
    /// True if it was allocated since this delta began: no tree and no older delta knows it.
    pub fresh: bool,
    /// Digest of its content.
    pub digest: Digest,
    /// Block that it was first written for.
    pub owner: Key,
}

/// Counts for each volume. The count of the latest volume is kept separately: requests and walks change many blocks of one volume.
struct Mapped {
    volume: VolumeId,
    count: u64,
    /// Counts by volume number, except for the latest volume.
    others: Vec<u64>,
}

impl Mapped {
    #[inline]
    fn of_mut(&mut self, volume: VolumeId) -> &mut u64 {
        if volume != self.volume {
            self.turn_to(volume);
        }
        &mut self.count
    }

    #[cold]
    fn turn_to(&mut self, volume: VolumeId) {
        let numbers = usize::from(volume.0.max(self.volume.0)) + 1;
        if numbers > self.others.len() {
            self.others.resize(numbers, 0);
        }
        self.others[usize::from(self.volume.0)] = self.count;
        (self.volume, self.count) = (volume, self.others[usize::from(volume.0)]);
    }

    fn of(&self, volume: VolumeId) -> u64 {
        if volume == self.volume { self.count } else { self.others.get(usize::from(volume.0)).copied().unwrap_or(0) }
    }

    /// Returns the sum over all volumes.
    fn of_all(&self) -> u64 {
        let of_latest = self.others.get(usize::from(self.volume.0)).copied().unwrap_or(0);
        self.others.iter().sum::<u64>() - of_latest + self.count
    }

    fn clear(&mut self) {
        self.others.fill(0);
        self.count = 0;
    }
}

/// Delta: mappings newer than the trees.
pub(crate) struct Delta {
    points: NearMap<Key, Entry>,
    /// Ranges from first to one past the last, not overlapping, not adjacent.
    clears: BTreeMap<u64, u64>,
    slots: NearMap<Slot, Recent>,
    /// Numbers of points that refer to slots, by volume.
    mapped: Mapped,
    /// Number of fresh slots that points refer to.
    fresh: u64,
    /// Upper bound on the number of subtrees that merging the clears can cut off.
    cuts: u64,
    /// Upper bound on the number of slots that merging the clears can release in partly covered leaves.
    releases: u64,
}

impl Delta {
    pub(crate) fn with_capacity(entries: usize) -> Delta {
        Delta {
            points: NearMap::with_capacity_and_hasher(entries, Near),
            clears: BTreeMap::new(),
            slots: NearMap::with_capacity_and_hasher(entries, Near),
            mapped: Mapped { volume: VolumeId(0), count: 0, others: Vec::new() },
            fresh: 0,
            cuts: 0,
            releases: 0,
        }
    }

    /// Returns the mappings of single blocks.
    #[inline]
    pub(crate) fn points(&self) -> &NearMap<Key, Entry> {
        &self.points
    }

    /// Returns the clears: ranges from first to one past the last, not overlapping, not adjacent.
    #[inline]
    pub(crate) fn clears(&self) -> &BTreeMap<u64, u64> {
        &self.clears
    }

    /// Returns the slots that points refer to or referred to.
    #[inline]
    pub(crate) fn slots(&self) -> &NearMap<Slot, Recent> {
        &self.slots
    }

    /// Returns an upper bound on the number of subtrees that merging the clears can cut off.
    #[inline]
    pub(crate) fn cuts(&self) -> u64 {
        self.cuts
    }

    /// Returns an upper bound on the number of slots that merging the clears can release in partly covered leaves.
    #[inline]
    pub(crate) fn releases(&self) -> u64 {
        self.releases
    }

    /// Adds to the bounds of the clears.
    pub(crate) fn note_cleared(&mut self, cuts: u64, releases: u64) {
        self.cuts += cuts;
        self.releases += releases;
    }

    /// Forgets fresh slots without references.
    pub(crate) fn forget_released(&mut self) {
        self.slots.retain(|_, recent| recent.refs > 0 || !recent.fresh);
    }

    /// Returns the number of points, with their slots, that fit before a table would have to grow.
    pub(crate) fn space(&self) -> usize {
        (self.points.capacity() - self.points.len()).min(self.slots.capacity() - self.slots.len())
    }

    /// Returns the bytes of memory of the tables.
    pub(crate) fn memory(&self) -> u64 {
        table_bytes(&self.points) + table_bytes(&self.slots) + list_bytes(&self.mapped.others)
    }

    /// Returns the number of a volume's blocks that points map to slots.
    pub(crate) fn mapped(&self, volume: VolumeId) -> u64 {
        self.mapped.of(volume)
    }

    /// Returns the number of blocks of all volumes that points map to slots.
    pub(crate) fn mapped_of_all(&self) -> u64 {
        self.mapped.of_all()
    }

    /// Returns the number of fresh slots that points refer to.
    pub(crate) fn fresh(&self) -> u64 {
        self.fresh
    }

    /// Returns the mapping of a block, if the delta has one.
    pub(crate) fn get(&self, key: Key) -> Option<Entry> {
        if let Some(&entry) = self.points.get(&key) {
            return Some(entry);
        }
        if self.clears.is_empty() {
            return None;
        }
        let (_, &end) = self.clears.range(..=key.0).next_back()?;
        (key.0 < end).then_some(Entry::UNMAPPED)
    }

    /// Returns the beginning of the clear that ends at a block: a clear from that block on extends it.
    pub(crate) fn clear_before(&self, start: Key) -> Option<Key> {
        let (&first, &end) = self.clears.range(..start.0).next_back()?;
        (end == start.0 && Key(first).volume() == start.volume()).then_some(Key(first))
    }

    /// Returns the end of the clear that covers a block, if one does, and the beginning of the next one.
    pub(crate) fn clear_at(&self, key: Key) -> (Option<Key>, Key) {
        if self.clears.is_empty() {
            return (None, Key(u64::MAX));
        }
        let covers = self.clears.range(..=key.0).next_back().filter(|&(_, &end)| key.0 < end);
        let next = self.clears.range(key.0 + 1..).next();
        (covers.map(|(_, &end)| Key(end)), Key(next.map_or(u64::MAX, |(&first, _)| first)))
    }

    /// Returns the first block from `key` on that has a point, or `end` if there is none before it. Looks at all points.
    pub(crate) fn next_point(&self, key: Key, end: Key) -> Key {
        self.points.keys().copied().filter(|point| (key..end).contains(point)).min().unwrap_or(end)
    }

    /// Returns the state of a slot that points of this delta refer to.
    pub(crate) fn live(&self, slot: Slot) -> Option<&Recent> {
        self.slots.get(&slot).filter(|recent| recent.refs > 0)
    }

    /// Puts a point. Returns the slot that lost its last reference from this delta, if one did.
    pub(crate) fn put(&mut self, key: Key, entry: Entry, digest: Digest, fresh: bool) -> Option<Slot> {
        if let Some(slot) = entry.slot() {
            self.reference(slot, digest, fresh, key);
            *self.mapped.of_mut(key.volume()) += 1;
        }
        let before = self.points.insert(key, entry)?.slot()?;
        *self.mapped.of_mut(key.volume()) -= 1;
        self.dereference(before).then_some(before)
    }

    /// Adds a reference to a slot.
    pub(crate) fn reference(&mut self, slot: Slot, digest: Digest, fresh: bool, owner: Key) {
        let new = Recent { refs: 0, fresh, digest, owner };
        let recent = self.slots.entry(slot).or_insert(new);
        if recent.refs == 0 {
            if !recent.fresh {
                // Its former state has ended. (A slot that is fresh here stays fresh: replay may count down before up.)
                *recent = new;
            }
            self.fresh += u64::from(recent.fresh);
        }
        recent.refs += 1;
    }

    /// Clears a range. The slots that lost their last reference from this delta go to `dead`. Returns the number of entries that it has looked at.
    pub(crate) fn clear(&mut self, start: Key, end: Key, dead: &mut Vec<Slot>) -> u64 {
        let length = end.0 - start.0;
        let looked_at = length.min(self.points.len() as u64);
        if length <= self.points.len() as u64 {
            for key in start.0..end.0 {
                self.remove_point(Key(key), dead);
            }
        } else {
            let mut covered: Vec<Key> = self.points.keys().copied().filter(|key| (start..end).contains(key)).collect();
            covered.sort_unstable();
            for key in covered {
                self.remove_point(key, dead);
            }
        }
        looked_at + self.insert_clear(start.0, end.0)
    }

    fn remove_point(&mut self, key: Key, dead: &mut Vec<Slot>) {
        if let Some(entry) = self.points.remove(&key)
            && let Some(slot) = entry.slot()
        {
            *self.mapped.of_mut(key.volume()) -= 1;
            if self.dereference(slot) {
                dead.push(slot);
            }
        }
    }

    /// Removes a reference; returns true if it was the last.
    pub(crate) fn dereference(&mut self, slot: Slot) -> bool {
        let recent = self.slots.get_mut(&slot).expect("every point's slot is counted");
        recent.refs -= 1;
        self.fresh -= u64::from(recent.fresh && recent.refs == 0);
        recent.refs == 0
    }

    /// Drops the state of a slot that is pending free.
    pub(crate) fn forget(&mut self, slot: Slot) {
        let recent = self.slots.remove(&slot);
        assert!(recent.is_none_or(|recent| recent.refs == 0));
    }

    /// Inserts a clear, and returns the number of clears that it has absorbed.
    fn insert_clear(&mut self, mut start: u64, mut end: u64) -> u64 {
        let mut taken_in = 0;
        if let Some((&before, &its_end)) = self.clears.range(..=start).next_back()
            && its_end >= start
        {
            start = before;
            end = end.max(its_end);
        }
        while let Some((&next, &its_end)) = self.clears.range(start..=end).next() {
            end = end.max(its_end);
            self.clears.remove(&next);
            taken_in += 1;
        }
        self.clears.insert(start, end);
        taken_in
    }

    /// Returns the number of mappings: points and clears.
    pub(crate) fn len(&self) -> usize {
        self.points.len() + self.clears.len()
    }

    /// Empties the delta, and keeps the memory of tables that have the right size.
    pub(crate) fn reset(&mut self, entries: usize) {
        self.points.clear();
        self.slots.clear();
        self.clears.clear();
        self.mapped.clear();
        self.fresh = 0;
        (self.cuts, self.releases) = (0, 0);
        self.fit(entries);
    }

    /// Returns true if the tables have the right size for `entries` entries.
    pub(crate) fn fits(&self, entries: usize) -> bool {
        let fits = |space: usize| (entries..=2 * entries.max(16)).contains(&space);
        fits(table_space(&self.points)) && fits(table_space(&self.slots))
    }

    /// Returns true if the delta has no mappings and no slots.
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0 && self.slots.is_empty()
    }

    /// Gives the tables of an empty delta the right size.
    pub(crate) fn fit(&mut self, entries: usize) {
        assert!(self.is_empty());
        if !self.fits(entries) {
            // The oversized tables are freed before their replacement is allocated.
            *self = Delta::with_capacity(0);
            *self = Delta::with_capacity(entries);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use proptest::prelude::*;

    /// Guards against an endless resize. An entry removed among neighbours takes space in a hash table, which then reports less capacity than it was made with.
    /// A server that changed its size then reported permanently that the change was still in progress.
    #[test]
    fn a_table_fits_whatever_was_removed_from_it() {
        for entries in [64, 1000, 1 << 12] {
            let mut delta = Delta::with_capacity(entries);
            for block in 0..entries as u64 {
                delta.put(Key(block), Entry::whole(Slot(block), Digest([7; 16])), Digest([7; 16]), true);
            }
            delta.clear(Key(0), Key(entries as u64), &mut vec![]);
            (0..entries as u64).for_each(|slot| delta.forget(Slot(slot)));
            assert!(delta.points.is_empty() && delta.points.capacity() < table_space(&delta.points));
            assert!(delta.fits(entries) && !delta.fits(4 * entries) && !delta.fits(entries / 4), "{entries}");
        }
    }

    #[test]
    fn points_are_counted_by_volume() {
        let mut delta = Delta::with_capacity(0);
        let key = |volume, lba| Key::new(VolumeId(volume), lba);
        for (slot, (volume, lba)) in [(1, 0), (1, 1), (3, 0), (1, 1), (2, 5), (3, 1), (3, 2)].into_iter().enumerate() {
            delta.put(key(volume, lba), Entry::whole(Slot(slot as u64), digest(1)), digest(1), true);
        }
        let counts = |delta: &Delta| [0, 1, 2, 3, 4].map(|volume| delta.mapped(VolumeId(volume)));
        assert_eq!((counts(&delta), delta.fresh()), ([0, 2, 1, 3, 0], 6));
        delta.put(key(3, 0), Entry::ZERO, Digest::default(), false);
        delta.clear(key(1, 0), key(1, 1), &mut vec![]);
        assert_eq!((counts(&delta), delta.fresh()), ([0, 1, 1, 2, 0], 4));
        delta.slots.clear();
        delta.reset(0);
        assert_eq!((counts(&delta), delta.fresh()), ([0; 5], 0));
    }

    fn digest(slot: u64) -> Digest {
        Digest(u128::to_le_bytes(u128::from(slot)))
    }

    #[test]
    fn a_clear_hides_older_points_and_a_point_hides_a_clear() {
        let mut delta = Delta::with_capacity(0);
        assert_eq!(delta.put(Key(5), Entry::whole(Slot(1), digest(1)), digest(1), true), None);
        let mut dead = vec![];
        delta.clear(Key(4), Key(8), &mut dead);
        assert_eq!(dead, [Slot(1)]);
        assert_eq!(delta.get(Key(5)), Some(Entry::UNMAPPED));
        assert_eq!(delta.get(Key(8)), None);
        delta.put(Key(5), Entry::ZERO, Digest::default(), false);
        assert_eq!(delta.get(Key(5)), Some(Entry::ZERO));
    }

    proptest! {
        #[test]
        fn a_delta_agrees_with_a_plain_array(steps in proptest::collection::vec((0u8..3, 0u64..40, 1u64..12), 1..60)) {
            let mut delta = Delta::with_capacity(0);
            let mut model: Vec<Option<Entry>> = vec![None; 64];
            let mut next_slot = 0;
            for (kind, at, length) in steps {
                match kind {
                    0 => {
                        next_slot += 1;
                        let entry = Entry::whole(Slot(next_slot), digest(next_slot));
                        delta.put(Key(at), entry, digest(next_slot), true);
                        model[at as usize] = Some(entry);
                    }
                    1 => {
                        delta.put(Key(at), Entry::ZERO, Digest::default(), false);
                        model[at as usize] = Some(Entry::ZERO);
                    }
                    _ => {
                        delta.clear(Key(at), Key(at + length), &mut vec![]);
                        model[at as usize..(at + length) as usize].fill(Some(Entry::UNMAPPED));
                    }
                }
                for (key, &expected) in model.iter().enumerate() {
                    prop_assert_eq!(delta.get(Key(key as u64)), expected);
                }
                let mapped = delta.points.values().filter(|entry| entry.slot().is_some()).count();
                prop_assert_eq!(delta.slots.values().map(|recent| recent.refs as usize).sum::<usize>(), mapped);
                prop_assert_eq!(delta.mapped(VolumeId(0)), mapped as u64);
                let fresh = delta.slots.values().filter(|recent| recent.fresh && recent.refs > 0).count();
                prop_assert_eq!(delta.fresh(), fresh as u64);
            }
        }
    }
}
