//! The index: digest to slot. Bounded memory, and a hint: an entry is used only when equality is proven.
//!
//! Entries of 16 bytes (generation 16 bits, slot as many as the pool needs, the rest tag) in buckets of eight, ordered by
//! use. A digest has two possible buckets, one in each half of the table, so that buckets fill evenly. The bucket's number
//! and the tag are digest bits; where both together have at least [`PROOF_BITS`] and the container's generation is still the
//! entry's, the entry proves equality by itself (the slot holds what the entry was made for); otherwise the summary has to
//! be read.

use alloc::vec;
use alloc::vec::Vec;

use crate::contract::Digest;
use crate::entry::Slot;

/// Digest bits that prove equality.
pub(crate) const PROOF_BITS: u32 = 96;

const WAYS: usize = 8;
const GENERATION_BITS: u32 = 16;

/// What the index knows of a digest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Hint {
    pub slot: Slot,
    /// Whether the entry proves equality, provided that the container has this generation.
    pub proves: bool,
    /// The container's generation when the entry was made.
    pub generation: u16,
}

/// Digest to slot, bounded.
pub(crate) struct Index {
    entries: Vec<u128>,
    /// Bits of a bucket number within a half.
    bucket_bits: u32,
    slot_bits: u32,
    tag_bits: u32,
}

impl Index {
    /// An index of at most `entries` entries over `slots` slots. `tag_bits` 0: as many as fit.
    pub(crate) fn new(entries: u32, slots: u64, tag_bits: u32) -> Index {
        let buckets = (entries as usize / WAYS / 2).max(1);
        let bucket_bits = buckets.ilog2();
        let slot_bits = 64 - slots.leading_zeros();
        let most = 128 - GENERATION_BITS - slot_bits;
        let tag_bits = if tag_bits == 0 { most } else { tag_bits.min(most) };
        Index { entries: vec![0; (2 << bucket_bits) * WAYS], bucket_bits, slot_bits, tag_bits }
    }

    /// The pool has more slots by now. Where their numbers take more bits, entries give up bits of their tags.
    pub(crate) fn widen(&mut self, slots: u64) {
        let slot_bits = 64 - slots.leading_zeros();
        if slot_bits == self.slot_bits {
            return;
        }
        let tag_bits = self.tag_bits.min(128 - GENERATION_BITS - slot_bits);
        for entry in self.entries.iter_mut().filter(|entry| **entry != 0) {
            let tag = *entry >> (GENERATION_BITS + self.slot_bits) & (u128::MAX >> (128 - tag_bits));
            let low = *entry & ((1 << (GENERATION_BITS + self.slot_bits)) - 1);
            *entry = tag << (GENERATION_BITS + slot_bits) | low;
        }
        (self.slot_bits, self.tag_bits) = (slot_bits, tag_bits);
    }

    fn tag(&self, digest: Digest) -> u128 {
        u128::from_le_bytes(digest.0) & (u128::MAX >> (128 - self.tag_bits))
    }

    /// The two buckets of a digest: from its top bits, which no tag reaches unless it is as long as the digest.
    fn buckets(&self, digest: Digest) -> [usize; 2] {
        let bits = u128::from_le_bytes(digest.0);
        let mask = (1u128 << self.bucket_bits) - 1;
        // 112 bits of tag at most: the first number has bits of its own; the second may repeat bits of the tag.
        let first = (bits >> (128 - self.bucket_bits.max(1))) & mask;
        let second = (bits >> (128 - 2 * self.bucket_bits.max(1))) & mask;
        [first as usize * WAYS, ((1usize << self.bucket_bits) + second as usize) * WAYS]
    }

    /// Digest bits that a match in a half proves.
    fn proof_bits(&self, half: usize) -> u32 {
        let top = 128 - self.bucket_bits * (half as u32 + 1);
        let own = (top + self.bucket_bits).saturating_sub(self.tag_bits.max(top));
        self.tag_bits + own.min(self.bucket_bits)
    }

    fn slot_of(&self, entry: u128) -> Slot {
        // Slot plus one is stored, so that an entry is never 0.
        Slot((entry >> GENERATION_BITS) as u64 % (1 << self.slot_bits) - 1)
    }

    fn matches(&self, entry: u128, tag: u128) -> bool {
        entry != 0 && entry >> (GENERATION_BITS + self.slot_bits) == tag
    }

    /// What is known of a digest; counts as a use.
    pub(crate) fn lookup(&mut self, digest: Digest) -> Option<Hint> {
        let tag = self.tag(digest);
        for (half, bucket) in self.buckets(digest).into_iter().enumerate() {
            for way in 0..WAYS {
                let entry = self.entries[bucket + way];
                if self.matches(entry, tag) {
                    self.entries[bucket..=bucket + way].rotate_right(1);
                    let proves = self.proof_bits(half) >= PROOF_BITS;
                    return Some(Hint { slot: self.slot_of(entry), proves, generation: entry as u16 });
                }
            }
        }
        None
    }

    /// Notes that `slot` holds what has this digest. Replaces what was known of the digest; a full bucket loses the entry
    /// used least recently.
    pub(crate) fn insert(&mut self, digest: Digest, slot: Slot, generation: u16) {
        let tag = self.tag(digest);
        let entry = (tag << self.slot_bits | u128::from(slot.0 + 1)) << GENERATION_BITS | u128::from(generation);
        let buckets = self.buckets(digest);
        let known = buckets.into_iter().find_map(|bucket| {
            (bucket..bucket + WAYS).find(|&at| self.matches(self.entries[at], tag)).map(|at| (bucket, at))
        });
        let (bucket, at) = known.unwrap_or_else(|| {
            let used = |bucket: usize| self.entries[bucket..bucket + WAYS].iter().filter(|&&entry| entry != 0).count();
            let bucket = if used(buckets[0]) <= used(buckets[1]) { buckets[0] } else { buckets[1] };
            (bucket, bucket + WAYS - 1)
        });
        self.entries[bucket..=at].rotate_right(1);
        self.entries[bucket] = entry;
    }

    /// Takes an entry that nobody has asked for yet, if the digest is not known; whether it did. It goes behind all others of its bucket,
    /// into an empty place or that of the entry that would go next: so of each bucket only one gives way to what comes like this.
    pub(crate) fn offer(&mut self, digest: Digest, slot: Slot, generation: u16) -> bool {
        let tag = self.tag(digest);
        let buckets = self.buckets(digest);
        let mut places = buckets.into_iter().flat_map(|bucket| bucket..bucket + WAYS);
        if places.any(|at| self.matches(self.entries[at], tag)) {
            return false;
        }
        let used = |bucket: usize| self.entries[bucket..bucket + WAYS].iter().take_while(|&&entry| entry != 0).count();
        let bucket = if used(buckets[0]) <= used(buckets[1]) { buckets[0] } else { buckets[1] };
        let at = bucket + used(bucket).min(WAYS - 1);
        self.entries[at] = (tag << self.slot_bits | u128::from(slot.0 + 1)) << GENERATION_BITS | u128::from(generation);
        true
    }

    /// An entry was found to be wrong.
    pub(crate) fn remove(&mut self, digest: Digest, slot: Slot) {
        let tag = self.tag(digest);
        for bucket in self.buckets(digest) {
            for way in 0..WAYS {
                let entry = self.entries[bucket + way];
                if self.matches(entry, tag) && self.slot_of(entry) == slot {
                    self.entries[bucket + way..bucket + WAYS].rotate_left(1);
                    self.entries[bucket + WAYS - 1] = 0;
                    return;
                }
            }
        }
    }

    /// Forgets whatever names one of these slots.
    pub(crate) fn forget(&mut self, slots: core::ops::Range<u64>) {
        for at in 0..self.entries.len() {
            if self.entries[at] != 0 && slots.contains(&self.slot_of(self.entries[at]).0) {
                self.entries[at] = 0;
            }
        }
    }

    /// Entries that the table has room for.
    pub(crate) fn capacity(&self) -> u64 {
        self.entries.len() as u64
    }

    /// Bytes of memory.
    pub(crate) fn memory(&self) -> u64 {
        self.entries.len() as u64 * 16
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Digests as good as random, from a 64-bit mixer.
    fn digest(n: u64) -> Digest {
        let mix = |mut x: u64| {
            for _ in 0..3 {
                x = (x ^ x >> 31).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            }
            x
        };
        Digest((u128::from(mix(n + 1)) << 64 | u128::from(mix(n ^ 0x5555_5555))).to_le_bytes())
    }

    #[test]
    fn an_index_at_half_its_size_forgets_nothing() {
        let mut index = Index::new(1 << 16, 1 << 20, 0);
        let count = index.capacity() / 2;
        for n in 0..count {
            index.insert(digest(n), Slot(n), n as u16);
        }
        for n in 0..count {
            let hint = index.lookup(digest(n)).expect("still there");
            assert_eq!((hint.slot, hint.generation, hint.proves), (Slot(n), n as u16, true));
        }
        assert_eq!(index.lookup(digest(count)), None);
    }

    #[test]
    fn a_pool_that_grows_keeps_its_entries() {
        let mut index = Index::new(1 << 12, 1 << 10, 0);
        for n in 0..1000 {
            index.insert(digest(n), Slot(n), n as u16);
        }
        for slots in [1 << 10, 1 << 20, 1 << 36] {
            index.widen(slots);
            for n in 0..1000 {
                let hint = index.lookup(digest(n)).expect("still there");
                assert_eq!((hint.slot, hint.generation), (Slot(n), n as u16));
            }
            assert_eq!(index.lookup(digest(1000)), None);
        }
        index.insert(digest(1), Slot((1 << 36) - 1), 1);
        let hint = index.lookup(digest(1)).unwrap();
        // 75 bits of tag and 8 of the bucket's number prove nothing any more.
        assert_eq!((hint.slot, hint.proves), (Slot((1 << 36) - 1), false));
    }

    #[test]
    fn short_tags_never_prove() {
        let mut index = Index::new(256, 64, 8);
        index.insert(digest(1), Slot(63), 1);
        assert_eq!(index.lookup(digest(1)), Some(Hint { slot: Slot(63), proves: false, generation: 1 }));
    }

    #[test]
    fn a_bucket_forgets_the_least_recently_used() {
        let mut index = Index::new(1, 64, 0);
        for n in 0..16 {
            index.insert(digest(n), Slot(n), 1);
        }
        index.lookup(digest(0)).unwrap();
        for n in 16..20 {
            index.insert(digest(n), Slot(n), 1);
        }
        assert!(index.lookup(digest(0)).is_some());
    }

    #[test]
    fn what_is_offered_takes_empty_places_and_else_one_of_each_bucket() {
        let mut index = Index::new(1 << 12, 1 << 20, 0);
        for n in 0..10_000 {
            index.insert(digest(n), Slot(n), 1);
        }
        let known = |index: &mut Index| (0..10_000).filter(|&n| index.lookup(digest(n)).is_some()).count();
        let before = known(&mut index);
        assert_eq!(before as u64, index.capacity());
        assert!(!index.offer(digest(9999), Slot(7), 1), "it is known");
        let taken = (20_000..40_000).filter(|&n| index.offer(digest(n), Slot(n), 1)).count();
        assert_eq!(taken, 20_000);
        assert_eq!(known(&mut index), before - before / WAYS);
        assert_eq!(index.lookup(digest(39_999)).map(|hint| hint.slot), Some(Slot(39_999)));
        // What is used comes before it.
        let mut empty = Index::new(1, 64, 0);
        assert!(empty.offer(digest(1), Slot(1), 1) && empty.lookup(digest(1)).is_some());
    }

    #[test]
    fn inserting_again_replaces_and_removing_removes() {
        let mut index = Index::new(64, 64, 0);
        index.insert(digest(7), Slot(1), 1);
        index.insert(digest(7), Slot(2), 5);
        assert_eq!(index.lookup(digest(7)).unwrap().slot, Slot(2));
        index.remove(digest(7), Slot(1));
        assert!(index.lookup(digest(7)).is_some());
        index.insert(digest(8), Slot(3), 5);
        index.forget(3..4);
        assert_eq!(index.lookup(digest(8)), None);
        index.remove(digest(7), Slot(2));
        assert_eq!(index.lookup(digest(7)), None);
    }
}
