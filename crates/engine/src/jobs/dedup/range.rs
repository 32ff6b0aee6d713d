//! Content table of one range of digests: the first slot of each content, and its duplicate slots. Pure, and of bounded size.
//!
//! A pass covers all digests, a range at a time, so that the contents of a range fit into memory. Digests are spread evenly: a range is as wide as
//! the number of blocks allows. If it still has too many contents, its upper half is left to the next range.

use hashbrown::HashMap;

use crate::api::Digest;
use crate::format::entry::{Key, Slot};
use crate::locality_map::Near;
use crate::pool::disk_index::bucket::hash_of;
use crate::sizes::table_bytes;

/// One past the last place of digests.
pub(super) const PLACES: u64 = 1 << 32;

/// Returns the place of a digest among all [`PLACES`]: different contents are spread evenly. Places have the order of the index on disk.
pub(super) fn place(digest: Digest) -> u64 {
    hash_of(digest) >> 32
}

fn halves(digest: Digest) -> [u64; 2] {
    let number = u128::from_le_bytes(digest.0);
    [number as u64, (number >> 64) as u64]
}

/// A slot in use, as its summary has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct FoundSlot {
    pub slot: Slot,
    pub digest: Digest,
    /// Block that the slot was first written for.
    pub owner: Key,
    /// True if several blocks map to the slot, as of the last merge.
    pub is_shared: bool,
    /// Generation of its container. While the generation is the same and the slot is in use, the slot holds this content.
    pub generation: u16,
}

/// A slot with the content of another slot, and that other slot, which is canonical.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct DuplicateSlot {
    pub found: FoundSlot,
    pub canonical: Slot,
    /// Generation of the container of the canonical slot.
    pub canonical_generation: u16,
}

/// Slot that the table keeps for a content.
#[derive(Clone, Copy)]
struct First {
    slot: Slot,
    owner: Key,
    generation: u16,
    /// True if the slot must stay: other blocks are mapped to it, or will be.
    is_fixed: bool,
}

/// A range of digests, and the contents found in it.
pub(super) struct Range {
    pub(super) first: u64,
    pub(super) end: u64,
    contents: HashMap<u64, (Digest, First), Near>,
    /// Contents whose key in `contents` is taken by another content: few, if any.
    more: HashMap<u64, (Digest, First), Near>,
    /// Contents of blocks that take no part in the pass: an index on disk that is behind needs them, too.
    others: HashMap<u64, (Digest, Slot), Near>,
    space: usize,
}

impl Range {
    /// Creates an empty range from this place on, as wide as the number of blocks in use allows.
    pub fn new(first: u64, blocks: u64, space: usize) -> Range {
        let space = space.max(16);
        let parts = (blocks * 5 / 4).div_ceil(space as u64).max(1);
        let width = (PLACES / parts).max(1);
        let (contents, more) = (HashMap::with_hasher(Near), HashMap::with_hasher(Near));
        Range { first, end: (first + width).min(PLACES), contents, more, others: HashMap::with_hasher(Near), space }
    }

    /// Empties the range and moves it to this place, with its memory kept.
    pub fn go_on(&mut self, first: u64, blocks: u64, space: usize) {
        let Range { end, space, .. } = Range::new(first, blocks, space);
        (self.first, self.end, self.space) = (first, end, space);
        self.contents.clear();
        self.more.clear();
        self.others.clear();
    }

    /// Creates an empty range from one place to another.
    #[cfg(test)]
    pub fn between(first: u64, end: u64) -> Range {
        Range { end, ..Range::new(first, 0, 0) }
    }

    pub fn memory(&self) -> u64 {
        table_bytes(&self.contents) + table_bytes(&self.more) + table_bytes(&self.others)
    }

    /// Returns true if the place of a digest lies in the range.
    pub fn has(&self, digest: Digest) -> bool {
        (self.first..self.end).contains(&place(digest))
    }

    /// Takes in a slot in use. Returns the duplicate slot, if its content has been found before.
    pub fn offer(&mut self, found: FoundSlot) -> Option<DuplicateSlot> {
        if !self.has(found.digest) {
            return None;
        }
        let FoundSlot { slot, digest, owner, is_shared, generation } = found;
        let [low, high] = halves(digest);
        let new = First { slot, owner, generation, is_fixed: is_shared };
        let place = if self.contents.get(&low).is_some_and(|(known, _)| *known != digest) {
            // Half of the digest agrees: by chance this happens once in a million pools.
            self.more.entry(high)
        } else {
            self.contents.entry(low)
        };
        let (known, kept) = place.or_insert((digest, new));
        if *known != digest || kept.slot == slot {
            self.narrow();
            return None;
        }
        let duplicate = DuplicateSlot { found, canonical: kept.slot, canonical_generation: kept.generation };
        if !kept.is_fixed && is_shared {
            // Fewer blocks are remapped if the slot that many share stays.
            let First { slot: before, owner, generation: of_before, .. } = core::mem::replace(kept, new);
            let found = FoundSlot { slot: before, digest, owner, is_shared: false, generation: of_before };
            return Some(DuplicateSlot { found, canonical: slot, canonical_generation: generation });
        }
        kept.is_fixed = true;
        Some(duplicate)
    }

    /// Takes in a slot whose block takes no part in the pass.
    pub fn note(&mut self, digest: Digest, slot: Slot) {
        let [low, _] = halves(digest);
        if self.others.insert(low, (digest, slot)).is_none() {
            self.narrow();
        }
    }

    /// Replaces the canonical slot of a content of the range; `generation` is that of its container.
    pub fn canonical_at(&mut self, digest: Digest, slot: Slot, generation: u16) {
        let [low, high] = halves(digest);
        let known = [self.contents.get_mut(&low), self.more.get_mut(&high)];
        for (_, first) in known.into_iter().flatten().filter(|(known, _)| *known == digest) {
            (first.slot, first.generation) = (slot, generation);
        }
    }

    /// Halves the range until its contents fit; the upper half is left to the next range.
    fn narrow(&mut self) {
        while self.len() > self.space && self.end - self.first > 1 {
            self.end = self.first + (self.end - self.first) / 2;
            let range = self.first..self.end;
            self.contents.retain(|_, (digest, _)| range.contains(&place(*digest)));
            self.more.retain(|_, (digest, _)| range.contains(&place(*digest)));
            self.others.retain(|_, (digest, _)| range.contains(&place(*digest)));
        }
    }

    /// Returns the number of contents taken in.
    pub fn len(&self) -> usize {
        self.contents.len() + self.more.len() + self.others.len()
    }

    /// Returns all contents taken in, each with its canonical slot.
    pub fn blocks(&self) -> impl Iterator<Item = (Digest, Slot)> + '_ {
        let contents = self.contents.values().chain(self.more.values());
        contents.map(|&(digest, first)| (digest, first.slot)).chain(self.others.values().copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::locality_map::near_hash;
    use alloc::collections::BTreeMap;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    fn digest(content: u64) -> Digest {
        Digest((u128::from(near_hash(content)) << 64 | u128::from(near_hash(content ^ 77))).to_le_bytes())
    }

    /// Goes through all ranges. Returns the canonical slot of each duplicate slot, and the largest number of contents held.
    fn pass(slots: &[(u64, bool)], space: usize) -> (BTreeMap<u64, u64>, usize) {
        let (mut duplicates, mut first, mut most) = (BTreeMap::new(), 0, 0);
        while first < PLACES {
            let mut range = Range::new(first, slots.len() as u64, space);
            for (slot, &(content, is_shared)) in slots.iter().enumerate() {
                let (slot, digest) = (Slot(slot as u64), digest(content));
                let found = FoundSlot { slot, digest, owner: Key(slot.0), is_shared, generation: 1 };
                if let Some(duplicate) = range.offer(found) {
                    duplicates.insert(duplicate.found.slot.0, duplicate.canonical.0);
                }
                most = most.max(range.contents.len() + range.more.len());
            }
            first = range.end;
        }
        (duplicates, most)
    }

    proptest! {
        #[test]
        fn all_ranges_together_leave_one_slot_of_each_content(
            slots in proptest::collection::vec((0u64..60, any::<bool>()), 1..300),
            space in 16usize..40,
        ) {
            let (duplicates, most) = pass(&slots, space);
            prop_assert!(most <= space + 1);
            let mut left: Vec<u64> = (0..slots.len() as u64).filter(|slot| !duplicates.contains_key(slot)).collect();
            for (slot, canonical) in &duplicates {
                prop_assert_eq!(slots[*slot as usize].0, slots[*canonical as usize].0);
                prop_assert!(!duplicates.contains_key(canonical));
            }
            left.iter_mut().for_each(|slot| *slot = slots[*slot as usize].0);
            let before = left.len();
            left.sort_unstable();
            left.dedup();
            prop_assert_eq!(left.len(), before);
        }
    }

    /// Checks that the generation is replaced, too: otherwise the old one would prove any later content of the new slot.
    #[test]
    fn a_slot_that_takes_the_place_of_another_brings_its_own_generation() {
        let mut range = Range::new(0, 0, 16);
        let found = |slot, generation| FoundSlot {
            slot: Slot(slot),
            digest: digest(1),
            owner: Key(slot),
            is_shared: false,
            generation,
        };
        assert_eq!(range.offer(found(1, 5)), None);
        let duplicate = range.offer(found(2, 6)).unwrap();
        assert_eq!((duplicate.found.generation, duplicate.canonical, duplicate.canonical_generation), (6, Slot(1), 5));
        range.canonical_at(digest(1), Slot(2), 6);
        let duplicate = range.offer(found(3, 7)).unwrap();
        assert_eq!((duplicate.found.generation, duplicate.canonical, duplicate.canonical_generation), (7, Slot(2), 6));
    }

    #[test]
    fn the_slot_that_many_share_stays() {
        let (duplicates, _) = pass(&[(1, false), (2, false), (1, true), (1, false)], 16);
        assert_eq!(duplicates.into_iter().collect::<Vec<_>>(), [(0, 2), (3, 2)]);
    }
}
