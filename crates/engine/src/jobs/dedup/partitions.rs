//! What a sweep has found, divided by digest: a partition for each range of digests, as pages that say what they are. Pure.
//!
//! A page of a partition holds what the summaries say of some slots in use ([`Record`]). It has a checksum, the number of the sweep, that of
//! its partition and its own: a page that was lost, or that an earlier sweep has left at its place, is not taken for one of these.

use alloc::vec;
use alloc::vec::Vec;

use super::range::{Found, PLACES, place};
use crate::contract::Digest;
use crate::format::bytes::{checksum, put_u16, put_u32, put_u64, u16_at, u32_at, u64_at};
use crate::format::entry::{Key, Slot};
use crate::pool::disk_index::bucket::{bucket_of, first_hash};
use crate::sizes::list_bytes;

/// Checksum, number of the sweep, of the partition, of the page, and how many records there are.
const HEAD_BYTES: usize = 26;
/// Digest, block that the slot was first written for, slot and flags.
const RECORD_BYTES: usize = 16 + 8 + 5;
const SLOT_BITS: u32 = 37;
const IS_SHARED: u64 = 1 << SLOT_BITS;
const TAKES_NO_PART: u64 = 2 << SLOT_BITS;

/// Records of a page of so many bytes.
pub(super) const fn per_page(block: usize) -> usize {
    (block - HEAD_BYTES) / RECORD_BYTES
}

/// A slot in use, as its summary has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Record {
    pub found: Found,
    /// Its block is of a volume that a pass leaves alone; an index on disk that has fallen behind wants to have it, too.
    pub takes_no_part: bool,
}

impl Record {
    fn write(&self, out: &mut Vec<u8>) {
        let Found { slot, digest, owner, is_shared } = self.found;
        let flags = if is_shared { IS_SHARED } else { 0 } | if self.takes_no_part { TAKES_NO_PART } else { 0 };
        out.extend_from_slice(&digest.0);
        out.extend_from_slice(&owner.0.to_le_bytes());
        out.extend_from_slice(&(slot.0 | flags).to_le_bytes()[..5]);
    }

    fn read(bytes: &[u8]) -> Record {
        let mut digest = [0; 16];
        digest.copy_from_slice(&bytes[..16]);
        let last = u64::from(u32_at(bytes, 24)) | u64::from(bytes[28]) << 32;
        let found = Found {
            slot: Slot(last & (IS_SHARED - 1)),
            digest: Digest(digest),
            owner: Key(u64_at(bytes, 16)),
            is_shared: last & IS_SHARED != 0,
        };
        Record { found, takes_no_part: last & TAKES_NO_PART != 0 }
    }
}

/// Which page this is: the sweep, the partition, and which of its pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Name {
    pub sweep: u64,
    pub partition: u32,
    pub number: u32,
}

/// A page that is full, or the last of its partition.
pub(super) struct Page {
    partition: u32,
    records: Vec<u8>,
}

impl Page {
    /// The partition that it is of.
    pub fn partition(&self) -> usize {
        self.partition as usize
    }

    /// Bytes of memory.
    pub fn memory(&self) -> u64 {
        size_of::<Page>() as u64 + list_bytes(&self.records)
    }

    /// Makes the page what is on disk: the one with this number of its partition.
    pub fn write(&self, seed: u64, (sweep, number): (u64, u32), page: &mut [u8]) {
        put_u64(page, 8, sweep);
        put_u32(page, 16, self.partition);
        put_u32(page, 20, number);
        put_u16(page, 24, (self.records.len() / RECORD_BYTES) as u16);
        page[HEAD_BYTES..][..self.records.len()].copy_from_slice(&self.records);
        let sum = checksum(seed, &page[8..]);
        put_u64(page, 0, sum);
    }
}

/// The records of a page, if it is the one with this name.
pub(super) fn read_page(seed: u64, name: Name, page: &[u8]) -> Option<impl Iterator<Item = Record> + '_> {
    let found = Name { sweep: u64_at(page, 8), partition: u32_at(page, 16), number: u32_at(page, 20) };
    let records = usize::from(u16_at(page, 24));
    let is_right = checksum(seed, &page[8..]) == u64_at(page, 0) && found == name && records <= per_page(page.len());
    is_right.then(|| page[HEAD_BYTES..].chunks_exact(RECORD_BYTES).take(records).map(Record::read))
}

/// The digests of a sweep, and what has not been written of each partition.
pub(super) struct Partitions {
    /// Where each partition begins, and where the last one ends.
    edges: Vec<u64>,
    /// Each partition has what is at its end, too: a range that begins within a bucket of the index on disk finds all of it in one partition.
    overlaps: bool,
    open: Vec<Vec<u8>>,
    page_bytes: usize,
    /// The next partition whose last page is to be written.
    flushed: usize,
}

impl Partitions {
    /// So many partitions from one place to another, with pages of so many bytes. If the index on disk has fallen behind, they begin with its
    /// buckets.
    pub fn new(first: u64, end: u64, count: usize, block: usize, buckets: Option<u32>) -> Partitions {
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
        // Where buckets are wider than partitions, some have nothing.
        edges.retain(|&edge| edge >= first);
        edges.dedup();
        if edges.len() < 2 {
            edges = vec![first, end];
        }
        let count = edges.len() - 1;
        let page_bytes = per_page(block) * RECORD_BYTES;
        Partitions { edges, overlaps: buckets.is_some(), open: vec![Vec::new(); count], page_bytes, flushed: 0 }
    }

    /// The partition that has all from this place on, and where it ends.
    pub fn at(&self, place: u64) -> Option<(usize, u64)> {
        let next = self.edges.partition_point(|&edge| edge <= place);
        let partition = next.checked_sub(1)?;
        let end = *self.edges.get(next)?;
        Some((partition, if self.overlaps && end < PLACES { end + 1 } else { end }))
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.open.len()
    }

    /// Bytes of memory.
    pub fn memory(&self) -> u64 {
        let open: u64 = self.open.iter().map(list_bytes).sum();
        open + list_bytes(&self.open) + list_bytes(&self.edges)
    }

    /// Takes a slot in use in, if it belongs here. Gives pages that are full by then.
    pub fn push(&mut self, record: &Record, mut full: impl FnMut(Page)) {
        let place = place(record.found.digest);
        let next = self.edges.partition_point(|&edge| edge <= place);
        let Some(partition) = next.checked_sub(1) else { return };
        if next < self.edges.len() {
            self.push_into(partition, record, &mut full);
        }
        if self.overlaps && partition > 0 && place == self.edges[partition] {
            self.push_into(partition - 1, record, &mut full);
        }
    }

    fn push_into(&mut self, partition: usize, record: &Record, full: &mut impl FnMut(Page)) {
        let open = &mut self.open[partition];
        if open.capacity() == 0 {
            open.reserve_exact(self.page_bytes);
        }
        record.write(open);
        if open.len() == self.page_bytes {
            full(self.close(partition));
        }
    }

    fn close(&mut self, partition: usize) -> Page {
        Page { partition: partition as u32, records: core::mem::take(&mut self.open[partition]) }
    }

    /// Whether each partition's last page has been given out.
    pub fn is_flushed(&self) -> bool {
        self.flushed == self.open.len()
    }

    /// Nothing more is taken in: the last page of the next partition that has one.
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
    use super::*;
    use crate::slot_map::near_hash;
    use proptest::prelude::*;

    fn record(content: u64, slot: u64) -> Record {
        let digest = Digest((u128::from(near_hash(content)) << 64 | u128::from(content)).to_le_bytes());
        let found = Found { slot: Slot(slot), digest, owner: Key(slot * 77), is_shared: slot.is_multiple_of(3) };
        Record { found, takes_no_part: slot.is_multiple_of(5) }
    }

    proptest! {
        /// Each partition has all that is in it, and ranges find it whole wherever buckets end.
        #[test]
        fn what_was_taken_in_is_in_the_partition_of_its_place(
            slots in 1u64..2000,
            count in 1usize..40,
            buckets in proptest::option::of(1u32..300),
            sweep in any::<(u32, u32)>(),
            block in proptest::sample::select(vec![512usize, 4096]),
        ) {
            let (first, end) = (u64::from(sweep.0.min(sweep.1)), u64::from(sweep.0.max(sweep.1)) + 1);
            let mut partitions = Partitions::new(first, end, count, block, buckets);
            let mut pages: Vec<Vec<Vec<u8>>> = vec![Vec::new(); partitions.count()];
            let mut write = |page: Page| {
                let mut bytes = vec![0; block];
                let pages = &mut pages[page.partition()];
                page.write(9, (7, pages.len() as u32), &mut bytes);
                pages.push(bytes);
            };
            let records: Vec<Record> = (0..slots).map(|slot| record(slot / 2, slot)).collect();
            records.iter().for_each(|record| partitions.push(record, &mut write));
            while let Some(page) = partitions.flush() {
                write(page);
            }
            let mut from = first;
            while let Some((partition, until)) = partitions.at(from) {
                prop_assert!(from < until && until <= end + 1);
                let mut found = Vec::new();
                for (number, page) in (0..).zip(&pages[partition]) {
                    let name = Name { sweep: 7, partition: partition as u32, number };
                    found.extend(read_page(9, name, page).unwrap());
                    let others = [Name { sweep: 8, ..name }, Name { number: number + 1, ..name }];
                    prop_assert!(others.iter().all(|&other| read_page(9, other, page).is_none()));
                }
                let is_in = |record: &&Record| (from..until).contains(&place(record.found.digest));
                let found: Vec<&Record> = found.iter().filter(is_in).collect();
                prop_assert_eq!(found, records.iter().filter(is_in).collect::<Vec<_>>());
                // The next range begins with the bucket in which this one ended, if that is further on.
                let next = buckets.map(|buckets| first_hash(bucket_of(until << 32, buckets), buckets) >> 32);
                from = next.filter(|&next| until < PLACES && next > from).unwrap_or(until);
            }
            prop_assert!(from > first && (from >= end || buckets.is_some()));
        }
    }

    #[test]
    fn a_page_that_was_changed_is_none() {
        let mut partitions = Partitions::new(0, PLACES, 1, 512, None);
        partitions.push(&record(1, 1), |_| unreachable!("it is not full"));
        let mut bytes = vec![0; 512];
        partitions.flush().unwrap().write(1, (2, 0), &mut bytes);
        let name = Name { sweep: 2, partition: 0, number: 0 };
        assert_eq!(read_page(1, name, &bytes).unwrap().collect::<Vec<_>>(), [record(1, 1)]);
        for at in 0..512 {
            bytes[at] ^= 1;
            assert!(read_page(1, name, &bytes).is_none(), "byte {at}");
            bytes[at] ^= 1;
        }
    }
}
