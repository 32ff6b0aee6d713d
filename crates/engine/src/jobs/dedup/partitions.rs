//! Partitions of an external partitioning: records divided evenly by place, in self-describing pages. Pure.
//!
//! - By digest, a partition for each range: slots in use, as their summaries describe them ([`Record`]).
//! - By block: duplicate slots ([`DuplicateSlot`]), so that they can be shared in block order.
//!
//! A page has a checksum, the number of the partitioning, that of its partition and its own. So a lost page, or a page that an earlier external
//! partitioning left at its place, is not accepted.

use alloc::vec;
use alloc::vec::Vec;

use super::range::{DuplicateSlot, FoundSlot, PLACES};
use crate::api::Digest;
use crate::format::bytes::{checksum, put_u16, put_u32, put_u64, u16_at, u32_at, u64_at};
use crate::format::entry::{Key, Slot};
use crate::pool::disk_index::bucket::{bucket_of, first_hash};
use crate::sizes::list_bytes;

/// Bytes of a page's head: checksum, number of the partitioning, of the partition, of the page, and number of bytes of records.
const HEAD_BYTES: usize = 26;
const SLOT_BYTES: usize = 5;
const SLOT_BITS: u32 = 37;
const IS_SHARED: u64 = 1 << SLOT_BITS;
const TAKES_NO_PART: u64 = 2 << SLOT_BITS;

/// An item of fixed size that pages of a partition hold.
pub(super) trait Stored: Sized {
    /// Bytes of an item.
    const BYTES: usize;

    fn write(&self, out: &mut Vec<u8>);

    /// Decodes an item from its `BYTES` bytes.
    fn read(bytes: &[u8]) -> Self;

    /// Returns the number of items that a page of `block` bytes holds.
    fn per_page(block: usize) -> usize {
        (block - HEAD_BYTES) / Self::BYTES
    }
}

fn write_slot(slot: Slot, flags: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(&(slot.0 | flags).to_le_bytes()[..SLOT_BYTES]);
}

/// Decodes a slot and its flags.
fn read_slot(bytes: &[u8]) -> (Slot, u64) {
    let word = u64::from(u32_at(bytes, 0)) | u64::from(bytes[4]) << 32;
    (Slot(word & (IS_SHARED - 1)), word & !(IS_SHARED - 1))
}

/// A slot in use, as its summary has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Record {
    pub found: FoundSlot,
    /// True if its block is of a volume that a pass leaves alone; an index on disk that is behind needs it, too.
    pub takes_no_part: bool,
}

/// Digest, block that the slot was first written for, slot and flags, generation.
impl Stored for Record {
    const BYTES: usize = 16 + 8 + SLOT_BYTES + 2;

    fn write(&self, out: &mut Vec<u8>) {
        let FoundSlot { slot, digest, owner, is_shared, generation } = self.found;
        let flags = if is_shared { IS_SHARED } else { 0 } | if self.takes_no_part { TAKES_NO_PART } else { 0 };
        out.extend_from_slice(&digest.0);
        out.extend_from_slice(&owner.0.to_le_bytes());
        write_slot(slot, flags, out);
        out.extend_from_slice(&generation.to_le_bytes());
    }

    fn read(bytes: &[u8]) -> Record {
        let mut digest = [0; 16];
        digest.copy_from_slice(&bytes[..16]);
        let (digest, owner) = (Digest(digest), Key(u64_at(bytes, 16)));
        let (slot, flags) = read_slot(&bytes[24..]);
        let (is_shared, generation) = (flags & IS_SHARED != 0, u16_at(bytes, 24 + SLOT_BYTES));
        let found = FoundSlot { slot, digest, owner, is_shared, generation };
        Record { found, takes_no_part: flags & TAKES_NO_PART != 0 }
    }
}

/// Fields of a duplicate slot in a page: those of its record (digest, block, slot with flags, generation), then the canonical slot and the generation
/// of its container.
impl Stored for DuplicateSlot {
    const BYTES: usize = Record::BYTES + SLOT_BYTES + 2;

    fn write(&self, out: &mut Vec<u8>) {
        Record { found: self.found, takes_no_part: false }.write(out);
        write_slot(self.canonical, 0, out);
        out.extend_from_slice(&self.canonical_generation.to_le_bytes());
    }

    fn read(bytes: &[u8]) -> DuplicateSlot {
        let (of_found, rest) = bytes.split_at(Record::BYTES);
        let canonical_generation = u16_at(rest, SLOT_BYTES);
        DuplicateSlot { found: Record::read(of_found).found, canonical: read_slot(rest).0, canonical_generation }
    }
}

/// Identity of a page: its external partitioning, its partition, and its number there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Name {
    pub partitioning: u64,
    pub partition: u32,
    pub number: u32,
}

/// A page that is full, or the last of its partition.
pub(super) struct Page {
    partition: u32,
    records: Vec<u8>,
}

impl Page {
    /// Returns the number of the partition that the page belongs to.
    pub fn partition(&self) -> usize {
        self.partition as usize
    }

    /// Returns the bytes of memory that the page holds.
    pub fn memory(&self) -> u64 {
        size_of::<Page>() as u64 + list_bytes(&self.records)
    }

    /// Encodes the page as it is on disk, as page `number` of its partition.
    pub fn write(&self, seed: u64, (partitioning, number): (u64, u32), page: &mut [u8]) {
        put_u64(page, 8, partitioning);
        put_u32(page, 16, self.partition);
        put_u32(page, 20, number);
        put_u16(page, 24, self.records.len() as u16);
        page[HEAD_BYTES..][..self.records.len()].copy_from_slice(&self.records);
        let sum = checksum(seed, &page[8..]);
        put_u64(page, 0, sum);
    }
}

/// Returns the records in a page, if its checksum is right and it is the one with this name.
pub(super) fn read_page(seed: u64, name: Name, page: &[u8]) -> Option<&[u8]> {
    let found = Name { partitioning: u64_at(page, 8), partition: u32_at(page, 16), number: u32_at(page, 20) };
    let is_right = checksum(seed, &page[8..]) == u64_at(page, 0) && found == name;
    page[HEAD_BYTES..].get(..usize::from(u16_at(page, 24))).filter(|_| is_right)
}

/// Division of a range of digests or blocks into partitions: even, or along the buckets of the index on disk.
/// It holds those items of each partition that do not fill a page yet.
pub(super) struct Partitions {
    /// Beginning of each partition, and the end of the last one.
    edges: Vec<u64>,
    /// Number of the first partition.
    base: u32,
    /// True if each partition also has the records at its end: a range that begins within a bucket of the index on disk finds the whole bucket in one
    /// partition.
    overlaps: bool,
    open: Vec<Vec<u8>>,
    page_bytes: usize,
    /// Next partition whose last page must be written.
    flushed: usize,
}

impl Partitions {
    /// Divides the digests from one place to another into `count` partitions, with pages of `block` bytes. If the index on disk has fallen behind,
    /// the partitions begin with its buckets.
    pub fn of_digests(first: u64, end: u64, count: usize, block: usize, buckets: Option<u32>) -> Partitions {
        let count = count.max(1);
        let edge = |number: usize| {
            let even = first + (u128::from(end - first) * number as u128 / count as u128) as u64;
            match buckets {
                Some(buckets) if number > 0 && even < PLACES => {
                    first_hash(bucket_of(even << 32, buckets), buckets) >> 32
                }
                _ => even,
            }
        };
        let mut edges: Vec<u64> = (0..=count).map(edge).collect();
        // Where buckets are wider than partitions, some partitions are empty.
        edges.retain(|&edge| edge >= first);
        edges.dedup();
        if edges.len() < 2 {
            edges = vec![first, end];
        }
        let page_bytes = Record::per_page(block) * Record::BYTES;
        Partitions { overlaps: buckets.is_some(), ..Partitions::between(edges, 0, page_bytes) }
    }

    /// Divides all blocks, in their order, into at most `count` partitions, whose numbers begin with `base`.
    pub fn of_blocks(blocks: u64, count: usize, block: usize, base: u32) -> Partitions {
        let count = (count as u64).clamp(1, blocks.max(1));
        let edge = |number: u64| (u128::from(blocks.max(1)) * u128::from(number) / u128::from(count)) as u64;
        Partitions::between(
            (0..=count).map(edge).collect(),
            base,
            DuplicateSlot::per_page(block) * DuplicateSlot::BYTES,
        )
    }

    fn between(edges: Vec<u64>, base: u32, page_bytes: usize) -> Partitions {
        let open = vec![Vec::new(); edges.len() - 1];
        Partitions { edges, base, overlaps: false, open, page_bytes, flushed: 0 }
    }

    /// Returns the partition that has all records from this place on, and its end.
    pub fn at(&self, place: u64) -> Option<(usize, u64)> {
        let next = self.edges.partition_point(|&edge| edge <= place);
        let partition = next.checked_sub(1)?;
        let end = *self.edges.get(next)?;
        Some((partition, if self.overlaps && end < PLACES { end + 1 } else { end }))
    }

    /// Returns the number of partitions.
    pub fn count(&self) -> usize {
        self.open.len()
    }

    /// Returns the number of the first partition.
    pub fn base(&self) -> usize {
        self.base as usize
    }

    /// Returns the last place of all partitions.
    pub fn last(&self) -> u64 {
        self.edges[self.edges.len() - 1].saturating_sub(1)
    }

    /// Gives all partitions new numbers once they are empty, so that old pages that are still there are not accepted as new ones.
    pub fn begin_again(&mut self) {
        self.base += self.count() as u32;
    }

    /// Returns the bytes of memory that the partitions hold.
    pub fn memory(&self) -> u64 {
        let open: u64 = self.open.iter().map(list_bytes).sum();
        open + list_bytes(&self.open) + list_bytes(&self.edges)
    }

    /// Takes in the item at a place, if it belongs here. Passes pages that become full to `full`.
    pub fn push(&mut self, place: u64, what: &impl Stored, mut full: impl FnMut(Page)) {
        let next = self.edges.partition_point(|&edge| edge <= place);
        let Some(partition) = next.checked_sub(1) else { return };
        if next < self.edges.len() {
            self.push_into(partition, what, &mut full);
        }
        if self.overlaps && partition > 0 && place == self.edges[partition] {
            self.push_into(partition - 1, what, &mut full);
        }
    }

    fn push_into(&mut self, partition: usize, what: &impl Stored, full: &mut impl FnMut(Page)) {
        let open = &mut self.open[partition];
        if open.capacity() == 0 {
            open.reserve_exact(self.page_bytes);
        }
        what.write(open);
        if open.len() == self.page_bytes {
            full(self.close(partition));
        }
    }

    /// Takes the bytes of a partition that are in no page yet.
    pub fn take_open(&mut self, partition: usize) -> Vec<u8> {
        core::mem::take(&mut self.open[partition])
    }

    fn close(&mut self, partition: usize) -> Page {
        Page { partition: self.base + partition as u32, records: self.take_open(partition) }
    }

    /// Returns true if the last page of each partition has been returned.
    pub fn is_flushed(&self) -> bool {
        self.flushed == self.open.len()
    }

    /// Returns the last page of the next partition that has one; no item is taken in after the first call.
    pub fn flush(&mut self) -> Option<Page> {
        while self.flushed < self.open.len() {
            let partition = self.flushed;
            self.flushed += 1;
            if !self.open[partition].is_empty() {
                return Some(self.close(partition));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::super::range::place;
    use super::*;
    use crate::locality_map::near_hash;
    use proptest::prelude::*;

    fn records(bytes: &[u8]) -> impl Iterator<Item = Record> + '_ {
        bytes.chunks_exact(Record::BYTES).map(Record::read)
    }

    fn record(content: u64, slot: u64) -> Record {
        let digest = Digest((u128::from(near_hash(content)) << 64 | u128::from(content)).to_le_bytes());
        let (is_shared, generation) = (slot.is_multiple_of(3), (slot * 7) as u16);
        let found = FoundSlot { slot: Slot(slot), digest, owner: Key(slot * 77), is_shared, generation };
        Record { found, takes_no_part: slot.is_multiple_of(5) }
    }

    proptest! {
        /// Checks that each partition has all of its records, and that ranges find them whole wherever buckets end.
        #[test]
        fn what_was_taken_in_is_in_the_partition_of_its_place(
            slots in 1u64..2000,
            count in 1usize..40,
            buckets in proptest::option::of(1u32..300),
            partitioning in any::<(u32, u32)>(),
            block in proptest::sample::select(vec![512usize, 4096]),
        ) {
            let (first, end) = (u64::from(partitioning.0.min(partitioning.1)), u64::from(partitioning.0.max(partitioning.1)) + 1);
            let mut partitions = Partitions::of_digests(first, end, count, block, buckets);
            let mut pages: Vec<Vec<Vec<u8>>> = vec![Vec::new(); partitions.count()];
            let mut write = |page: Page| {
                let mut bytes = vec![0; block];
                let pages = &mut pages[page.partition()];
                page.write(9, (7, pages.len() as u32), &mut bytes);
                pages.push(bytes);
            };
            let all: Vec<Record> = (0..slots).map(|slot| record(slot / 2, slot)).collect();
            all.iter().for_each(|record| partitions.push(place(record.found.digest), record, &mut write));
            while let Some(page) = partitions.flush() {
                write(page);
            }
            let mut from = first;
            while let Some((partition, until)) = partitions.at(from) {
                prop_assert!(from < until && until <= end + 1);
                let mut found = Vec::new();
                for (number, page) in (0..).zip(&pages[partition]) {
                    let name = Name { partitioning: 7, partition: partition as u32, number };
                    found.extend(records(read_page(9, name, page).unwrap()));
                    let others = [Name { partitioning: 8, ..name }, Name { number: number + 1, ..name }];
                    prop_assert!(others.iter().all(|&other| read_page(9, other, page).is_none()));
                }
                let is_in = |record: &&Record| (from..until).contains(&place(record.found.digest));
                let found: Vec<&Record> = found.iter().filter(is_in).collect();
                prop_assert_eq!(found, all.iter().filter(is_in).collect::<Vec<_>>());
                // The next range begins with the bucket in which this one ended, if that is further on.
                let next = buckets.map(|buckets| first_hash(bucket_of(until << 32, buckets), buckets) >> 32);
                from = next.filter(|&next| until < PLACES && next > from).unwrap_or(until);
            }
            prop_assert!(from > first && (from >= end || buckets.is_some()));
        }
    }

    proptest! {
        /// Checks that duplicate slots come back unchanged, in the partition of their block.
        #[test]
        fn spares_are_in_the_partition_of_their_block(
            blocks in 0u64..3000,
            count in 1usize..40,
            duplicates in proptest::collection::vec((0u64..4000, 0u64..1 << 37, any::<u16>()), 0..500),
        ) {
            let mut partitions = Partitions::of_blocks(blocks, count, 512, 5);
            let mut found: Vec<Vec<u8>> = vec![Vec::new(); partitions.count()];
            let duplicates = duplicates.into_iter().filter(|duplicate| duplicate.0 < blocks);
            let duplicates: Vec<(u64, DuplicateSlot)> = duplicates.map(|(block, canonical, canonical_generation)| {
                let found = record(block, canonical / 2).found;
                (block, DuplicateSlot { found, canonical: Slot(canonical), canonical_generation })
            }).collect();
            for (block, duplicate) in &duplicates {
                partitions.push(*block, duplicate, |page| found[page.partition() - 5].extend(&page.records));
            }
            let mut came = Vec::new();
            for (partition, mut bytes) in found.into_iter().enumerate() {
                bytes.extend(partitions.take_open(partition));
                came.extend(bytes.chunks_exact(DuplicateSlot::BYTES).map(DuplicateSlot::read));
            }
            // In the order of partitions, and within one in the order of insertion.
            let mut all = duplicates.clone();
            let of = |block: u64| partitions.edges.partition_point(|&edge| edge <= block);
            all.sort_by_key(|&(block, _)| of(block));
            prop_assert_eq!(came, all.into_iter().map(|(_, duplicate)| duplicate).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_page_that_was_changed_is_none() {
        let mut partitions = Partitions::of_digests(0, PLACES, 1, 512, None);
        partitions.push(place(record(1, 1).found.digest), &record(1, 1), |_| unreachable!("it is not full"));
        let mut bytes = vec![0; 512];
        partitions.flush().unwrap().write(1, (2, 0), &mut bytes);
        let name = Name { partitioning: 2, partition: 0, number: 0 };
        assert_eq!(records(read_page(1, name, &bytes).unwrap()).collect::<Vec<_>>(), [record(1, 1)]);
        for at in 0..512 {
            bytes[at] ^= 1;
            assert!(read_page(1, name, &bytes).is_none(), "byte {at}");
            bytes[at] ^= 1;
        }
    }
}
