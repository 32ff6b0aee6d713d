//! The index: digest to slot. Bounded memory, and a hint: an entry is used only when equality is proven.
//!
//! Entries of 16 bytes (generation 16 bits, slot as many as the pool needs, the rest tag) in buckets of eight, ordered by use. A digest has two
//! possible buckets, one in each half of the table, so that buckets fill evenly. The bucket's number and the tag are digest bits. Where both together
//! have at least [`PROOF_BITS`] and the container's generation is still the entry's, the entry alone proves equality: the slot still has the entry's
//! content. Otherwise the summary has to be read.
//!
//! The table grows and shrinks while it is used, a chunk of buckets at a time: each half is a linear hash table (Litwin, VLDB 1980). The low bits of
//! a bucket's number, as many as the smallest table has, are digest bits that no tag holds. The others are bits of the tag, so an entry itself names
//! its bucket when its bucket is split. Where two buckets become one, their least recently used entries are lost; no other entry ever is.
//!
//! The table is one list, by chunks, each with its buckets of the first half and those of the second: it becomes longer and
//! shorter at its end, where an allocator can take memory and give it back without copying the rest.

use alloc::vec::Vec;
use core::cmp::Ordering;

use crate::api::Digest;
use crate::format::entry::Slot;

/// Digest bits that prove equality.
pub(crate) const PROOF_BITS: u32 = 96;

const WAYS: usize = 8;
const GENERATION_BITS: u32 = 16;
/// Entries of the smallest chunk: a bucket of each half.
pub(crate) const LEAST_CHUNK: u32 = 2 * WAYS as u32;
/// Bit at which the bits of the tag begin that become bits of a bucket's number in the second half. In the first half it is 0.
const SECOND_HALF_AT: u32 = 28;

/// Entry of the index for a digest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Hint {
    pub slot: Slot,
    /// True if the entry proves equality, provided that the container has this generation.
    pub proves: bool,
    /// The container's generation when the entry was made.
    pub generation: u16,
}

/// Sizes of an index, in entries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Size {
    /// Entries at first.
    pub entries: u64,
    /// The least number of entries, other than none at all.
    pub least: u64,
    /// Entries that are added and taken away at once: [`LEAST_CHUNK`] times a power of two.
    pub chunk: u64,
}

/// Digest to slot, bounded.
pub(crate) struct Index {
    entries: Vec<u128>,
    /// Buckets of each half.
    buckets: u64,
    /// The least power of two that is not less: the number of bucket numbers that a digest can give.
    numbers: u64,
    /// Buckets of each half in a chunk: two to the power of this.
    chunk_bits: u32,
    /// Bits of a bucket's number that are not in the tag.
    base_bits: u32,
    slot_bits: u32,
    tag_bits: u32,
    second_at: u32,
}

impl Index {
    /// Makes an empty index over `slots` slots. `tag_bits` 0: as many as fit.
    pub(crate) fn new(size: Size, slots: u64, tag_bits: u32) -> Index {
        let in_half = |entries: u64| entries / u64::from(LEAST_CHUNK);
        let chunk_bits = in_half(size.chunk).max(1).ilog2();
        let base_bits = in_half(size.least).max(1 << chunk_bits).ilog2().min(32);
        let slot_bits = 64 - slots.leading_zeros();
        let most = 128 - GENERATION_BITS - slot_bits;
        let tag_bits = if tag_bits == 0 { most } else { tag_bits.min(most) };
        let second_at = SECOND_HALF_AT.min(tag_bits / 2);
        let mut index = Index {
            entries: Vec::new(),
            buckets: 0,
            numbers: 1,
            chunk_bits,
            base_bits,
            slot_bits,
            tag_bits,
            second_at,
        };
        let chunks = index.chunks_for(size.entries);
        index.resize(chunks);
        index
    }

    // ---- size ----

    /// Returns the number of chunks of a table of at most N entries: none, or at least the smallest table's.
    pub(crate) fn chunks_for(&self, entries: u64) -> u64 {
        let chunks = entries / self.chunk_entries();
        if chunks == 0 { 0 } else { chunks.max(self.least_chunks()) }
    }

    fn least_chunks(&self) -> u64 {
        1 << (self.base_bits - self.chunk_bits)
    }

    /// Returns the number of entries of a chunk.
    pub(crate) fn chunk_entries(&self) -> u64 {
        u64::from(LEAST_CHUNK) << self.chunk_bits
    }

    /// Returns the number of chunks.
    pub(crate) fn chunks(&self) -> u64 {
        self.buckets >> self.chunk_bits
    }

    /// Returns true if this table can be resized to that size, and proves as much as a new one would.
    pub(crate) fn can_become(&self, size: Size, slots: u64, tag_bits: u32) -> bool {
        let new = Index::new(Size { entries: 0, ..size }, slots, tag_bits);
        let same = (new.chunk_bits, new.slot_bits, new.tag_bits) == (self.chunk_bits, self.slot_bits, self.tag_bits);
        // Its smallest table must leave memory to divide: at most about twice as much as a new one would have.
        let fits = size.entries / self.chunk_entries() >= self.least_chunks() && self.base_bits <= new.base_bits + 1;
        same && fits && (self.proves() || !new.proves())
    }

    /// Returns true if entries of the container's generation prove equality.
    pub(crate) fn proves(&self) -> bool {
        self.proof_bits(0).min(self.proof_bits(1)) >= PROOF_BITS
    }

    /// Reserves the memory for growing to `chunks` chunks at once, in one piece; the table then grows step by step, with [`Index::step`].
    pub(crate) fn reserve(&mut self, chunks: u64) {
        let entries = (chunks * self.chunk_entries()) as usize;
        self.entries.reserve_exact(entries.saturating_sub(self.entries.len()));
    }

    /// Takes one step towards `chunks` chunks: adds one by splitting buckets, or takes one away by merging them. The first chunks, as many as the
    /// smallest table has, come and go together. Returns false if the table has that size already.
    pub(crate) fn step(&mut self, chunks: u64) -> bool {
        let base = 1 << self.base_bits;
        if chunks > self.chunks() {
            let first = self.buckets;
            self.set_buckets((first + (1 << self.chunk_bits)).max(base));
            let entries = self.buckets as usize * LEAST_CHUNK as usize;
            self.entries.resize(entries, 0);
            (first.max(base)..self.buckets).for_each(|bucket| self.split(bucket));
        } else if chunks < self.chunks() {
            let left = self.buckets - (1 << self.chunk_bits);
            let left = if left < base { 0 } else { left };
            (left.max(base)..self.buckets).rev().for_each(|bucket| self.merge(bucket));
            self.set_buckets(left);
            self.entries.truncate(left as usize * LEAST_CHUNK as usize);
        } else {
            return false;
        }
        true
    }

    fn set_buckets(&mut self, buckets: u64) {
        (self.buckets, self.numbers) = (buckets, buckets.next_power_of_two());
    }

    /// Frees the memory beyond the last chunk.
    pub(crate) fn fit(&mut self) {
        self.entries.shrink_to_fit();
    }

    /// Resizes the table to `chunks` chunks at once.
    pub(crate) fn resize(&mut self, chunks: u64) {
        self.reserve(chunks);
        while self.step(chunks) {}
        self.fit();
    }

    /// Fills a new bucket with its entries out of the bucket that is split.
    fn split(&mut self, bucket: u64) {
        let bit = bucket.ilog2();
        for half in 0..2 {
            let (from, into) = (self.at(half, bucket - (1 << bit)), self.at(half, bucket));
            let (mut kept, mut moved) = (0, 0);
            for way in 0..WAYS {
                let entry = core::mem::take(&mut self.entries[from + way]);
                if entry == 0 {
                    continue;
                }
                let number = self.tag_number(half, (entry >> self.tag_at()) as u64);
                let (place, count) = if number >> bit & 1 == 1 { (into, &mut moved) } else { (from, &mut kept) };
                self.entries[place + *count] = entry;
                *count += 1;
            }
        }
    }

    /// Empties the last bucket into the one that it was split from: of both, the most recently used entries stay.
    fn merge(&mut self, bucket: u64) {
        for half in 0..2 {
            let (from, into) = (self.at(half, bucket), self.at(half, bucket - (1 << bucket.ilog2())));
            let mut merged = [0; 2 * WAYS];
            let mut count = 0;
            for place in (0..WAYS).flat_map(|way| [into + way, from + way]) {
                if self.entries[place] != 0 {
                    merged[count] = self.entries[place];
                    count += 1;
                }
            }
            self.entries[into..into + WAYS].copy_from_slice(&merged[..WAYS]);
        }
    }

    // ---- places ----

    /// Returns the place of the first entry of a bucket.
    #[inline]
    fn at(&self, half: usize, bucket: u64) -> usize {
        // Before it are two halves of each chunk before its own, and those before it in its own.
        let before = bucket & !((1 << self.chunk_bits) - 1);
        ((before + bucket + ((half as u64) << self.chunk_bits)) * WAYS as u64) as usize
    }

    /// Returns the bits of a bucket's number that are in the tag, at their places, from the first 64 bits of the tag.
    fn tag_number(&self, half: usize, tag: u64) -> u64 {
        tag >> (half as u32 * self.second_at) << self.base_bits
    }

    /// Makes space for the numbers of a pool that has `slots` slots by now. Where these take more bits, entries give up bits of their tags.
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

    /// Returns the tag of a digest, at its place in an entry.
    fn tag(&self, digest: Digest) -> u128 {
        (u128::from_le_bytes(digest.0) & (u128::MAX >> (128 - self.tag_bits))) << self.tag_at()
    }

    /// Returns the places of the first entries of the two buckets of a digest.
    #[inline]
    fn buckets(&self, digest: Digest) -> [usize; 2] {
        let [first, second] = self.bucket_numbers(digest);
        [self.at(0, first), self.at(1, second)]
    }

    /// Returns the numbers of a digest's buckets, one in each half.
    #[inline]
    fn bucket_numbers(&self, digest: Digest) -> [u64; 2] {
        let bits = u128::from_le_bytes(digest.0);
        let (top, tag) = ((bits >> 64) as u64, bits as u64 & (u64::MAX >> 64u32.saturating_sub(self.tag_bits)));
        [self.bucket_number(0, top, tag), self.bucket_number(1, top, tag)]
    }

    /// Returns the number of a digest's bucket in one half. The first bits of it are from the digest's top, which no tag reaches unless it is as long as the
    /// digest: with at most 112 bits of tag the first number has bits of its own; the second may repeat bits of the tag.
    #[inline]
    fn bucket_number(&self, half: usize, top: u64, tag: u64) -> u64 {
        let own = top >> (64 - (half as u32 + 1) * self.base_bits.max(1));
        let number = (own & ((1 << self.base_bits) - 1) | self.tag_number(half, tag)) & (self.numbers - 1);
        // Without a branch, which would be taken by chance.
        let is_beyond = u64::from(number >= self.buckets);
        number - ((self.numbers / 2) & is_beyond.wrapping_neg())
    }

    /// Returns true if a bucket has been split more often than those that are still to be.
    #[inline]
    fn is_split(&self, number: u64) -> bool {
        number >= self.numbers / 2 || number + self.numbers / 2 < self.buckets
    }

    /// Returns the entries of the bucket that begins at this place.
    #[inline]
    fn ways(&self, bucket: usize) -> &[u128] {
        &self.entries[bucket..bucket + WAYS]
    }

    /// Finds the entry of a bucket with a tag, which is given at its place in an entry.
    #[inline]
    fn find(&self, bucket: usize, tag: u128) -> Option<usize> {
        let below = (1 << self.tag_at()) - 1;
        self.ways(bucket).iter().position(|&entry| {
            // The upper half first: it tells nearly all of them apart. The lower one has the slot, which no entry is without.
            let (high, low) = ((entry >> 64) as u64, entry as u64);
            high == (tag >> 64) as u64 && low ^ tag as u64 <= below && low != 0
        })
    }

    /// Returns the number of digest bits that a match in a half proves.
    fn proof_bits(&self, half: usize) -> u32 {
        let top = 128 - self.base_bits * (half as u32 + 1);
        let own = (top + self.base_bits).saturating_sub(self.tag_bits.max(top));
        self.tag_bits + own.min(self.base_bits)
    }

    fn slot_of(&self, entry: u128) -> Slot {
        // Slot plus one is stored, so that an entry is never 0.
        Slot((entry >> GENERATION_BITS) as u64 % (1 << self.slot_bits) - 1)
    }

    /// Returns the number of bits of an entry below its tag: less than 64.
    fn tag_at(&self) -> u32 {
        GENERATION_BITS + self.slot_bits
    }

    // ---- entries ----

    /// Asks for the memory of all these digests, so that looking them up one by one does not wait for each.
    pub(crate) fn warm(&self, digests: impl Iterator<Item = Digest>) {
        if self.buckets > 0 {
            let lines = |bucket: usize| {
                let ways = self.ways(bucket);
                ways[0] ^ ways[WAYS / 2] ^ ways[WAYS - 1]
            };
            let sum = digests.fold(0, |sum, digest| {
                let [first, second] = self.buckets(digest);
                sum ^ lines(first) ^ lines(second)
            });
            core::hint::black_box(sum);
        }
    }

    /// Looks a digest up; counts as a use.
    pub(crate) fn lookup(&mut self, digest: Digest) -> Option<Hint> {
        let (half, bucket, way) = self.locate(digest)?;
        let entry = self.entries[bucket + way];
        self.put_first(bucket, way, entry);
        Some(self.hint(half, entry))
    }

    /// Looks a digest up for a caller that does not write it: counts as no use.
    pub(crate) fn peek(&self, digest: Digest) -> Option<Hint> {
        let (half, bucket, way) = self.locate(digest)?;
        Some(self.hint(half, self.entries[bucket + way]))
    }

    /// Finds the entry of a digest: half, place of the bucket, and way in it.
    #[inline(always)]
    fn locate(&self, digest: Digest) -> Option<(usize, usize, usize)> {
        if self.buckets == 0 {
            return None;
        }
        let tag = self.tag(digest);
        for (half, bucket) in self.buckets(digest).into_iter().enumerate() {
            if let Some(way) = self.find(bucket, tag) {
                return Some((half, bucket, way));
            }
        }
        None
    }

    #[inline(always)]
    fn hint(&self, half: usize, entry: u128) -> Hint {
        let proves = self.proof_bits(half) >= PROOF_BITS;
        Hint { slot: self.slot_of(entry), proves, generation: entry as u16 }
    }

    /// Returns true if the index has an entry for a digest. Counts as no use.
    pub(crate) fn contains(&self, digest: Digest) -> bool {
        let tag = self.tag(digest);
        self.buckets > 0 && self.buckets(digest).into_iter().any(|bucket| self.find(bucket, tag).is_some())
    }

    fn entry(&self, tag: u128, slot: Slot, generation: u16) -> u128 {
        // Slot plus one is stored, so that an entry is never 0.
        tag | u128::from((slot.0 + 1) << GENERATION_BITS | u64::from(generation))
    }

    /// Returns the number of entries of a bucket before the first empty place.
    fn used(&self, bucket: usize) -> usize {
        let ways = self.ways(bucket);
        // Most buckets are full: there are no empty places between others, but after `forget`.
        if ways[WAYS - 1] != 0 { WAYS } else { ways.iter().take_while(|&&entry| entry != 0).count() }
    }

    /// Inserts an entry from a digest to `slot`, in place of an older entry of the digest. A full bucket loses its least recently used entry.
    pub(crate) fn insert(&mut self, digest: Digest, slot: Slot, generation: u16) {
        if self.buckets == 0 {
            return;
        }
        let tag = self.tag(digest);
        let entry = self.entry(tag, slot, generation);
        let numbers = self.bucket_numbers(digest);
        let [first, second] = [self.at(0, numbers[0]), self.at(1, numbers[1])];
        let known = [first, second].into_iter().find_map(|bucket| Some((bucket, self.find(bucket, tag)?)));
        let (bucket, way) = known.unwrap_or_else(|| {
            // Of two full ones, the one that has been split already: it serves half as many digests. Else either, as the digest says: entries would
            // grow old in a half without inserts.
            let [is_split, other_is_split] = numbers.map(|number| self.is_split(number));
            let (first_used, second_used) = (self.used(first), self.used(second));
            let either = u128::from_le_bytes(digest.0) >> 64 & 1 == 1;
            let prefers_second = if is_split == other_is_split { either } else { other_is_split };
            let second_is_better = second_used < first_used || second_used == first_used && prefers_second;
            let (bucket, used) = if second_is_better { (second, second_used) } else { (first, first_used) };
            (bucket, used.min(WAYS - 1))
        });
        self.put_first(bucket, way, entry);
    }

    /// Puts an entry in front of a bucket, in place of one.
    #[inline]
    fn put_first(&mut self, bucket: usize, way: usize, entry: u128) {
        self.entries.copy_within(bucket..bucket + way, bucket + 1);
        self.entries[bucket] = entry;
    }

    /// Inserts an unrequested entry, if the digest is not known; returns true if it did. The entry goes behind all others of its bucket, into an
    /// empty place or that of the next victim: so each bucket loses only one entry to such inserts.
    pub(crate) fn offer(&mut self, digest: Digest, slot: Slot, generation: u16) -> bool {
        if self.buckets == 0 || self.contains(digest) {
            return false;
        }
        let buckets = self.buckets(digest);
        let half = match self.used(buckets[0]).cmp(&self.used(buckets[1])) {
            Ordering::Less => 0,
            // Where both are full, each half of the table has its share.
            Ordering::Equal => usize::from(digest.0[0] & 1),
            Ordering::Greater => 1,
        };
        let at = buckets[half] + self.used(buckets[half]).min(WAYS - 1);
        self.entries[at] = self.entry(self.tag(digest), slot, generation);
        true
    }

    /// Removes the entry of a digest that was found to be wrong, if it names this slot.
    pub(crate) fn remove(&mut self, digest: Digest, slot: Slot) {
        if self.buckets == 0 {
            return;
        }
        let tag = self.tag(digest);
        for bucket in self.buckets(digest) {
            if let Some(way) = self.find(bucket, tag).filter(|&way| self.slot_of(self.entries[bucket + way]) == slot) {
                self.entries[bucket + way..bucket + WAYS].rotate_left(1);
                self.entries[bucket + WAYS - 1] = 0;
                return;
            }
        }
    }

    /// Removes the entries that name one of these slots.
    pub(crate) fn forget(&mut self, slots: core::ops::Range<u64>) {
        for at in 0..self.entries.len() {
            if self.entries[at] != 0 && slots.contains(&self.slot_of(self.entries[at]).0) {
                self.entries[at] = 0;
            }
        }
    }

    /// Returns the number of entries that the table has space for.
    pub(crate) fn capacity(&self) -> u64 {
        self.entries.len() as u64
    }

    /// Returns the bytes of memory of the entries. Memory that is only reserved has never been touched.
    pub(crate) fn memory(&self) -> u64 {
        self.entries.len() as u64 * 16
    }
}

/// Returns a digest of which only the first `bits` bits are kept; 0: all.
pub(crate) fn first_bits(digest: Digest, bits: u32) -> Digest {
    match bits {
        0 => digest,
        bits => Digest((u128::from_le_bytes(digest.0) & (u128::MAX >> (128 - bits.min(128)))).to_le_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Makes digests as good as random, from a 64-bit mixer.
    fn digest(n: u64) -> Digest {
        let mix = |mut x: u64| {
            for _ in 0..3 {
                x = (x ^ x >> 31).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            }
            x
        };
        Digest((u128::from(mix(n + 1)) << 64 | u128::from(mix(n ^ 0x5555_5555))).to_le_bytes())
    }

    fn new(entries: u64, slots: u64, tag_bits: u32) -> Index {
        Index::new(Size { entries, least: entries, chunk: 16 }, slots, tag_bits)
    }

    #[test]
    fn an_index_at_half_its_size_forgets_nothing() {
        // A power of two, and in between, where some buckets have been split.
        for entries in [1u64 << 16, 3 << 15, 9 << 13] {
            let mut index = Index::new(Size { entries, least: 1 << 10, chunk: 1 << 10 }, 1 << 20, 0);
            let count = index.capacity() / 2;
            for n in 0..count {
                index.insert(digest(n), Slot(n), n as u16);
            }
            let found = (0..count).filter(|&n| {
                let hint = index.lookup(digest(n));
                assert!(hint.is_none_or(|hint| (hint.slot, hint.generation, hint.proves) == (Slot(n), n as u16, true)));
                hint.is_some()
            });
            assert_eq!(found.count() as u64, count, "{entries}");
            assert_eq!(index.lookup(digest(count)), None);
        }
    }

    /// Checks that all entries that fit into the table survive its growing, and its shrinking except in crowded buckets.
    #[test]
    fn growing_loses_nothing_and_shrinking_only_what_does_not_fit() {
        let mut index = Index::new(Size { entries: 1 << 14, least: 1 << 12, chunk: 1 << 10 }, 1 << 20, 0);
        let count = 1u64 << 13;
        for n in 0..count {
            index.insert(digest(n), Slot(n), 3);
        }
        let found = |index: &mut Index| (0..count).filter(|&n| index.lookup(digest(n)).is_some()).count() as u64;
        for chunks in [16, 17, 23, 31, 32, 47, 64, 33, 20, 16] {
            index.resize(chunks);
            assert_eq!((index.chunks(), index.capacity(), index.memory()), (chunks, chunks << 10, chunks << 14));
            assert_eq!(found(&mut index), count, "{chunks} chunks");
        }
        index.resize(4);
        let left = found(&mut index);
        assert!(left > 4000 && left <= 4096, "{left} of 4096 entries are in use");
        index.resize(0);
        index.insert(digest(1), Slot(1), 3);
        assert_eq!((index.lookup(digest(1)), index.memory()), (None, 0));
        index.resize(index.chunks_for(1 << 10));
        assert_eq!(index.chunks(), 4, "no fewer than the smallest table has");
        index.insert(digest(1), Slot(1), 3);
        assert!(index.lookup(digest(1)).is_some());
    }

    #[test]
    fn merged_buckets_keep_what_was_used_last() {
        let mut index = Index::new(Size { entries: 1 << 8, least: 16, chunk: 16 }, 1 << 20, 0);
        for n in 0..4096 {
            index.insert(digest(n), Slot(n), 3);
        }
        let last = index.chunks() - 1;
        for half in 0..2 {
            let ways = |index: &Index, bucket| index.entries[index.at(half, bucket)..][..WAYS].to_vec();
            let (into, from) = (ways(&index, last - 8), ways(&index, last));
            let expected: Vec<u128> = (0..WAYS / 2).flat_map(|way| [into[way], from[way]]).collect();
            index.step(last);
            assert_eq!(ways(&index, last - 8), expected);
            index.step(last + 1);
            (0..4096).for_each(|n| index.insert(digest(n), Slot(n), 3));
        }
    }

    proptest! {
        /// Compares the index with a list of everything that was inserted: an answer is always the last that was inserted for the digest, entries in the table
        /// are found, and a growing table loses nothing.
        #[test]
        fn what_is_in_the_table_is_found_wherever_it_has_moved(
            least in 1u64..5, chunk_bits in 0u32..3, tag_bits in 0u32..2,
            steps in proptest::collection::vec((0u8..10, 0u64..200), 1..400),
        ) {
            let chunk = 16u64 << chunk_bits;
            let size = Size { entries: least * chunk, least: least * chunk, chunk };
            let mut index = Index::new(size, 1 << 16, tag_bits * 60);
            let mut model = alloc::collections::BTreeMap::new();
            let mut next = 0;
            let slots = |index: &Index| -> alloc::collections::BTreeSet<u64> {
                index.entries.iter().filter(|entry| **entry != 0).map(|&entry| index.slot_of(entry).0).collect()
            };
            for (kind, n) in steps {
                match kind {
                    0..5 => {
                        index.insert(digest(n), Slot(next), n as u16);
                        if index.chunks() > 0 {
                            model.insert(n, next);
                        }
                        next += 1;
                    }
                    5 => {
                        let known = model.remove(&n);
                        index.remove(digest(n), Slot(known.unwrap_or(next)));
                    }
                    6 | 7 => {
                        let before = slots(&index);
                        index.reserve(index.chunks() + 1);
                        prop_assert!(index.step(index.chunks() + 1));
                        prop_assert_eq!(&before, &slots(&index));
                    }
                    8 => {
                        let before = slots(&index);
                        index.step(index.chunks().saturating_sub(1));
                        index.fit();
                        prop_assert!(slots(&index).is_subset(&before));
                    }
                    _ => {
                        let found = index.lookup(digest(n));
                        prop_assert!(found.is_none_or(|hint| model.get(&n) == Some(&hint.slot.0)));
                    }
                }
                prop_assert_eq!(index.entries.len() as u64, index.chunks() * chunk);
            }
            let present = slots(&index);
            for (n, slot) in model {
                let found = index.lookup(digest(n)).map(|hint| (hint.slot.0, hint.generation));
                prop_assert_eq!(found, present.contains(&slot).then_some((slot, n as u16)));
            }
        }
    }

    #[test]
    fn a_pool_that_grows_keeps_its_entries() {
        let mut index = new(1 << 12, 1 << 10, 0);
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
        let mut index = new(256, 64, 8);
        index.insert(digest(1), Slot(63), 1);
        assert_eq!(index.lookup(digest(1)), Some(Hint { slot: Slot(63), proves: false, generation: 1 }));
    }

    #[test]
    fn a_bucket_forgets_the_least_recently_used() {
        let mut index = new(16, 64, 0);
        for n in 0..16 {
            index.insert(digest(n), Slot(n), 1);
        }
        index.lookup(digest(0)).unwrap();
        for n in 16..20 {
            index.insert(digest(n), Slot(n), 1);
        }
        assert!(index.lookup(digest(0)).is_some());
    }

    /// Guards against a lopsided table: of two full buckets the first was always chosen, so half of the table kept the oldest entries, and only the other half
    /// was left for later ones.
    #[test]
    fn an_index_that_is_full_remembers_as_much_of_what_came_last() {
        let mut index = new(1 << 14, 1 << 20, 0);
        let (all, last) = (8 * index.capacity(), index.capacity() / 2);
        for n in 0..all {
            index.insert(digest(n), Slot(n), 1);
        }
        let found = (all - last..all).filter(|&n| index.lookup(digest(n)).is_some()).count() as u64;
        assert!(found > last * 9 / 10, "{found} of the last {last}");
    }

    #[test]
    fn what_is_offered_takes_empty_places_and_else_one_of_each_bucket() {
        let mut index = new(1 << 12, 1 << 20, 0);
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
        // Used entries come before it.
        let mut empty = new(16, 64, 0);
        assert!(empty.offer(digest(1), Slot(1), 1) && empty.lookup(digest(1)).is_some());
    }

    #[test]
    fn inserting_again_replaces_and_removing_removes() {
        let mut index = new(64, 64, 0);
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
