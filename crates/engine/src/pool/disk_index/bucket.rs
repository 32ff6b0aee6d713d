//! Buckets of the index on disk: hash buckets of packed entries, with insertion, removal and lookup.

use alloc::vec::Vec;

use crate::api::Digest;
use crate::format::bytes::{put_u64, u64_at};
use crate::format::disk_index::ENTRY_BYTES;
use crate::format::entry::Slot;

const SLOT_PLUS_ONE_BITS: u32 = 37;
/// Bytes of the entries that are looked at together. A bucket consists of such groups.
const GROUP: usize = 16 * ENTRY_BYTES as usize;
/// Bits of a tag in the upper half of an entry.
const TAG_IN_UPPER_HALF: u32 = u32::MAX << (SLOT_PLUS_ONE_BITS - 32);
/// Least number of changes of a bucket that are merged with its entries: a single change searches the bucket twice.
const MERGED: usize = 4;
/// Maximum number of slots that a bucket names for one tag.
pub(crate) const COPIES: usize = 4;

/// Change of the index: the indexed part of the digest, the slot, and a flag for removal.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct IndexChange {
    pub(super) hash: u64,
    /// Slot, with the flag for removal in the lowest bit.
    what: u64,
}

impl IndexChange {
    /// Returns the hash of the content: it decides the bucket.
    #[inline]
    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }

    pub fn enter(digest: Digest, slot: Slot) -> IndexChange {
        IndexChange { hash: hash_of(digest), what: slot.0 << 1 }
    }

    pub fn remove(digest: Digest, slot: Slot) -> IndexChange {
        IndexChange { hash: hash_of(digest), what: slot.0 << 1 | 1 }
    }

    /// Visits a bucket without a change to valid entries: removes impossible ones.
    pub fn visit(hash: u64) -> IndexChange {
        IndexChange { hash, what: u64::MAX }
    }

    /// Returns the change as that of its bucket, in an index of `buckets` buckets.
    pub(crate) fn in_bucket(self, buckets: u32) -> BucketChange {
        let visits = self.what == u64::MAX;
        let entry = if visits { 0 } else { entry(self.hash, Slot(self.what >> 1)) };
        BucketChange::new(bucket_of(self.hash, buckets), entry, self.what & 1 == 1)
    }
}

/// Change of a bucket: an entry that is put into it or removed from it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BucketChange {
    bucket: u64,
    /// Packed entry; 0, which is removed, for a bucket that is only visited.
    entry: u64,
    is_removal: bool,
    /// Position among the changes with which it is sorted.
    order: u32,
}

impl BucketChange {
    /// Returns the bucket.
    #[inline]
    pub(crate) fn bucket(&self) -> u64 {
        self.bucket
    }

    fn new(bucket: u64, entry: u64, is_removal: bool) -> BucketChange {
        BucketChange { bucket, entry, is_removal, order: 0 }
    }

    fn apply(self, bucket: &mut [u8]) {
        if self.is_removal { remove(bucket, self.entry) } else { enter(bucket, self.entry) }
    }
}

/// Returns the part of a digest that the index uses.
pub(crate) fn hash_of(digest: Digest) -> u64 {
    (u128::from_le_bytes(digest.0) >> 64) as u64
}

/// Returns the bucket of a digest: buckets are in the order of digests.
pub(crate) fn bucket_of(hash: u64, buckets: u32) -> u64 {
    ((u128::from(hash) * u128::from(buckets)) >> 64) as u64
}

/// Returns the least hash that belongs into a bucket.
pub(crate) fn first_hash(bucket: u64, buckets: u32) -> u64 {
    (u128::from(bucket) << 64).div_ceil(buckets.into()) as u64
}

fn entry(hash: u64, slot: Slot) -> u64 {
    hash << SLOT_PLUS_ONE_BITS | (slot.0 + 1)
}

/// Returns the tag of an entry: the kept bits of its hash.
pub(crate) fn tag_of(entry: u64) -> u64 {
    entry >> SLOT_PLUS_ONE_BITS
}

/// Returns the tag of the entries of a hash.
pub(crate) fn tag_of_hash(hash: u64) -> u64 {
    tag_of(hash << SLOT_PLUS_ONE_BITS)
}

pub(crate) fn slot_of(entry: u64) -> Option<Slot> {
    (entry & ((1 << SLOT_PLUS_ONE_BITS) - 1)).checked_sub(1).map(Slot)
}

/// Returns true if an entry may be of a digest: their tags are equal, and the entry is not empty.
pub(crate) fn has_tag(entry: u64, hash: u64) -> bool {
    entry >> SLOT_PLUS_ONE_BITS == hash << SLOT_PLUS_ONE_BITS >> SLOT_PLUS_ONE_BITS && entry != 0
}

pub(crate) fn entries(bucket: &[u8]) -> impl Iterator<Item = u64> + '_ {
    bucket.chunks_exact(ENTRY_BYTES as usize).map(|bytes| u64_at(bytes, 0))
}

/// Returns the entries that `is` accepts, with their numbers, in groups that `has` accepts. Accepted entries are few, so groups are tested first, without a
/// branch for each entry.
fn like(
    bucket: &[u8],
    has: impl Fn(&[u8; GROUP]) -> bool,
    is: impl Fn(u64) -> bool + Copy,
) -> impl Iterator<Item = (usize, u64)> {
    let groups = bucket.as_chunks::<GROUP>().0.iter().enumerate();
    groups.filter(move |(_, group)| has(group)).flat_map(move |(at, group)| {
        let first = at * GROUP / ENTRY_BYTES as usize;
        (first..).zip(entries(group)).filter(move |&(_, entry)| is(entry))
    })
}

/// Returns the entries with this value, with their numbers.
fn equal(bucket: &[u8], value: u64) -> impl Iterator<Item = (usize, u64)> {
    let has = move |group: &[u8; GROUP]| entries(group).fold(false, |any, entry| any | (entry == value));
    like(bucket, has, move |entry| entry == value)
}

/// Returns true if a group has an entry whose upper half has the tag of `upper`. In a separate function, the loop becomes vector instructions of 32-bit lanes,
/// which every x86-64 has; inlined in its caller it does not.
#[inline(never)]
fn has_tag_of(group: &[u8; GROUP], upper: u32) -> bool {
    let halves = entries(group).map(|entry| (entry >> 32) as u32);
    halves.fold(false, |any, half| any | ((half ^ upper) & TAG_IN_UPPER_HALF == 0))
}

/// Returns the entries that may be of a digest.
pub(crate) fn tagged(bucket: &[u8], hash: u64) -> impl Iterator<Item = u64> {
    let wanted = hash << SLOT_PLUS_ONE_BITS;
    let upper = (wanted >> 32) as u32;
    let has = move |group: &[u8; GROUP]| has_tag_of(group, upper);
    let entries = like(bucket, has, move |entry| (entry ^ wanted) >> SLOT_PLUS_ONE_BITS == 0);
    entries.map(|(_, entry)| entry).filter(|&entry| entry != 0)
}

/// Returns the slots that may have the content of a digest. It is not inlined, so that the machine code of the loop over a bucket does not depend on its
/// caller.
#[inline(never)]
pub(crate) fn named(bucket: &[u8], hash: u64) -> [Option<Slot>; COPIES] {
    let mut named = [None; COPIES];
    let slots = tagged(bucket, hash).filter_map(slot_of);
    named.iter_mut().zip(slots).for_each(|(place, slot)| *place = Some(slot));
    named
}

/// Puts changes of one bucket in the order of entries, and those of one entry in the order in which they came.
pub(crate) fn sort_changes(changes: &mut [BucketChange]) {
    changes.iter_mut().zip(0..).for_each(|(change, order)| change.order = order);
    // A stable sort would allocate.
    changes.sort_unstable_by_key(|change| (change.entry, change.order));
}

/// Applies sorted changes to their bucket. Of one entry the last change counts. Many are merged with all entries at once, which puts these in ascending order,
/// unless the bucket may become full: then its entries stay. `scratch` is for a list of the entries before and after.
pub(crate) fn apply_all(bucket: &mut [u8], changes: &[BucketChange], scratch: &mut Vec<u64>) {
    if changes.len() < MERGED {
        return changes.iter().for_each(|change| change.apply(bucket));
    }
    let capacity = bucket.len() / ENTRY_BYTES as usize;
    scratch.clear();
    scratch.extend(entries(bucket).filter(|&entry| entry != 0));
    if scratch.len() + changes.len() > capacity {
        return changes.iter().for_each(|change| change.apply(bucket));
    }
    if !scratch.is_sorted() {
        scratch.sort_unstable();
    }
    let known = scratch.len();
    let (mut at, mut copies) = (0, Copies::default());
    for changed in changes.chunk_by(|one, other| one.entry == other.entry) {
        let change = changed[changed.len() - 1];
        while at < known && scratch[at] < change.entry {
            copies.keep(scratch[at], scratch);
            at += 1;
        }
        at += usize::from(at < known && scratch[at] == change.entry);
        if !change.is_removal {
            copies.keep(change.entry, scratch);
        }
    }
    for at in at..known {
        copies.keep(scratch[at], scratch);
    }
    let kept = scratch[known..].iter().copied().chain(core::iter::repeat(0));
    let places = bucket.chunks_exact_mut(ENTRY_BYTES as usize);
    places.zip(kept).for_each(|(place, entry)| put_u64(place, 0, entry));
}

/// Entries of one tag that a merge has kept.
#[derive(Default)]
struct Copies {
    tag: u64,
    count: usize,
}

impl Copies {
    /// Appends an entry to a list, unless enough entries with its tag are there. Entries come in ascending order.
    fn keep(&mut self, entry: u64, kept: &mut Vec<u64>) {
        if tag_of(entry) != self.tag {
            *self = Copies { tag: tag_of(entry), count: 0 };
        }
        self.count += 1;
        if self.count <= COPIES {
            kept.push(entry);
        }
    }
}

/// Enters a slot, unless the bucket is full or names enough slots with that tag.
fn enter(bucket: &mut [u8], new: u64) {
    let mut same = 0;
    for known in tagged(bucket, new >> SLOT_PLUS_ONE_BITS) {
        if known == new {
            return;
        }
        same += 1;
    }
    let free = equal(bucket, 0).next();
    if let Some((at, _)) = free.filter(|_| same < COPIES) {
        put_u64(bucket, at * ENTRY_BYTES as usize, new);
    }
}

fn remove(bucket: &mut [u8], old: u64) {
    let at = equal(bucket, old).next();
    if let Some((at, _)) = at {
        put_u64(bucket, at * ENTRY_BYTES as usize, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn digest(hash: u64) -> Digest {
        Digest((u128::from(hash) << 64).to_le_bytes())
    }

    fn slots(bucket: &[u8], hash: u64) -> Vec<u64> {
        tagged(bucket, hash).filter_map(slot_of).map(|slot| slot.0).collect()
    }

    #[test]
    fn an_entry_holds_the_greatest_slot_and_is_found_by_its_tag_alone() {
        let most = Slot((1 << crate::format::geometry::SLOT_BITS) - 1);
        let mut bucket = [0; GROUP];
        for (hash, slot) in [(u64::MAX, most), (1 << 63, Slot(0)), (5, Slot(7))] {
            IndexChange::enter(digest(hash), slot).in_bucket(1).apply(&mut bucket);
        }
        assert_eq!(slots(&bucket, u64::MAX), [most.0]);
        assert_eq!(slots(&bucket, 5), [7]);
        assert_eq!(slots(&bucket, 6), [0; 0]);
        // The tag is the lower part of it.
        assert_eq!(slots(&bucket, 0), [0]);
    }

    #[test]
    fn entering_twice_is_entering_once_and_a_full_bucket_takes_no_more() {
        let mut bucket = [0; GROUP];
        // Four places are left.
        for other in 0..12 {
            IndexChange::enter(digest(100 + other), Slot(50 + other)).in_bucket(1).apply(&mut bucket);
        }
        for slot in [1, 1, 2, 1] {
            IndexChange::enter(digest(9), Slot(slot)).in_bucket(1).apply(&mut bucket);
        }
        assert_eq!(slots(&bucket, 9), [1, 2]);
        for slot in 0..9 {
            IndexChange::enter(digest(10 + slot), Slot(slot)).in_bucket(1).apply(&mut bucket);
        }
        assert_eq!((slots(&bucket, 10), slots(&bucket, 11), slots(&bucket, 12)), (vec(&[0]), vec(&[1]), vec(&[])));
        IndexChange::remove(digest(9), Slot(2)).in_bucket(1).apply(&mut bucket);
        IndexChange::remove(digest(10), Slot(3)).in_bucket(1).apply(&mut bucket);
        IndexChange::visit(9).in_bucket(1).apply(&mut bucket);
        assert_eq!((slots(&bucket, 9), slots(&bucket, 10)), (vec(&[1]), vec(&[0])));
    }

    fn vec(slots: &[u64]) -> Vec<u64> {
        slots.to_vec()
    }

    proptest! {
        /// Compares changes that are merged with changes that are applied one by one.
        #[test]
        fn merging_changes_is_applying_them(
            before in proptest::collection::vec((0u64..30, 0u64..3), 0..40),
            changes in proptest::collection::vec((0u64..30, 0u64..3, any::<bool>()), 0..40),
        ) {
            let change = |tag: u64, slot, is_removal| BucketChange::new(0, entry(tag, Slot(slot)), is_removal);
            let mut one_by_one = [0; 1024];
            before.iter().for_each(|&(tag, slot)| change(tag, slot, false).apply(&mut one_by_one));
            let mut merged = one_by_one;
            let mut changes: Vec<_> =
                changes.into_iter().map(|(tag, slot, is_removal)| change(tag, slot, is_removal)).collect();
            changes.iter().for_each(|change| change.apply(&mut one_by_one));
            sort_changes(&mut changes);
            apply_all(&mut merged, &changes, &mut Vec::new());
            let sorted = |bucket: &[u8]| {
                let mut all: Vec<u64> = entries(bucket).filter(|&entry| entry != 0).collect();
                all.sort_unstable();
                all
            };
            prop_assert_eq!(sorted(&merged), sorted(&one_by_one));
        }
    }

    #[test]
    fn a_bucket_that_may_become_full_keeps_what_it_has() {
        let mut bucket = [0; GROUP];
        let change = |tag: u64| BucketChange::new(0, entry(tag, Slot(1)), false);
        (0..13).for_each(|tag| change(50 + tag).apply(&mut bucket));
        let mut changes: Vec<_> = (0..9).map(change).collect();
        sort_changes(&mut changes);
        apply_all(&mut bucket, &changes, &mut Vec::new());
        assert!((0..13).all(|tag| slots(&bucket, 50 + tag) == [1]) && (0..3).all(|tag| slots(&bucket, tag) == [1]));
        assert_eq!(slots(&bucket, 3), [0; 0]);
    }

    #[test]
    fn of_equal_blocks_four_are_named() {
        let mut bucket = [0; 512];
        (0..9).for_each(|slot| IndexChange::enter(digest(3), Slot(slot)).in_bucket(1).apply(&mut bucket));
        assert_eq!(slots(&bucket, 3), [0, 1, 2, 3]);
    }

    #[test]
    fn buckets_are_in_the_order_of_digests_and_all_of_them_are_used() {
        for buckets in [1, 7, 12, 7920] {
            let step = u64::MAX / (u64::from(buckets) * 3);
            let numbers: Vec<u64> = (0..u64::from(buckets) * 3).map(|n| bucket_of(n * step, buckets)).collect();
            assert!(numbers.is_sorted());
            assert_eq!((numbers.first(), numbers.last()), (Some(&0), Some(&(u64::from(buckets) - 1))));
            assert!(numbers.windows(2).all(|pair| pair[1] - pair[0] <= 1));
            for bucket in 0..u64::from(buckets) {
                let first = first_hash(bucket, buckets);
                assert_eq!(bucket_of(first, buckets), bucket);
                assert!(bucket == 0 || bucket_of(first - 1, buckets) == bucket - 1);
            }
        }
    }

    /// Checks that skipping groups never skips an entry, wherever entries are.
    #[test]
    fn what_is_found_is_what_each_entry_by_itself_says() {
        let mut random = 7_u64;
        for _ in 0..200 {
            let mut bucket = [0; 4096];
            for at in 0..512 {
                random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                // Tags have few values, which differ in their lowest or their highest bits, and one place in four is free.
                let entry = entry(random >> 60 | (random >> 20 & 1) << 26, Slot(random >> 40 & 0xffff));
                put_u64(&mut bucket, at * 8, if random >> 33 & 3 == 0 { 0 } else { entry });
            }
            for hash in (0..17).flat_map(|low| [low, low | 1 << 26]) {
                let naive: Vec<u64> = entries(&bucket).filter(|&entry| has_tag(entry, hash)).collect();
                assert_eq!(tagged(&bucket, hash).collect::<Vec<_>>(), naive);
            }
            let free = entries(&bucket).position(|entry| entry == 0);
            assert_eq!(equal(&bucket, 0).next().map(|(at, _)| at), free);
        }
    }
}
