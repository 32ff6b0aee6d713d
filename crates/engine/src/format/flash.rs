//! Layout of the flash in front of a store: its log, its places, and the pages of the log (docs/reference/disk-format.md).
//!
//! A log says which container lies in which place. It has two halves, of which one is in force. A page is written once, after the last one.
//! When the half is full, the valid records are rewritten to the other half, in a new round. An invalid page ends the log.

use crate::format::bytes::{checksum, put_u16, put_u32, put_u64, u16_at, u32_at, u64_at};
use crate::format::geometry::Geometry;

/// First eight bytes of a page of the log.
const MAGIC: [u8; 8] = *b"ONEFLOG\0";
const VERSION: u16 = 2;
const HEAD_BYTES: usize = 80;
/// Offset of the checksum, which covers all other bytes.
const SUM: usize = 64;
const RECORD_BYTES: usize = 16;
/// Number of pages of a half besides two for each page that the places need.
const SPARE_PAGES: u32 = 14;

/// Layout of a flash device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Shape {
    block: u64,
    slots: u64,
    /// Number of pages of each half of the log.
    pub(super) half: u32,
    /// Number of places, each of one container.
    pub(super) places: u32,
}

impl Shape {
    /// Returns the number of pages of each half of the log.
    #[inline]
    pub(crate) fn half(&self) -> u32 {
        self.half
    }

    /// Returns the number of places, each of one container.
    #[inline]
    pub(crate) fn places(&self) -> u32 {
        self.places
    }

    /// Lays out flash of `blocks` blocks, in front of a pool of this geometry, with as many places as fit, at most `most`; `None` if not one fits.
    pub(crate) fn new(blocks: u64, most: u32, geometry: &Geometry) -> Option<Shape> {
        let slots = u64::from(geometry.slots_per_container);
        let mut places = u32::try_from(blocks / slots).unwrap_or(u32::MAX).min(most);
        while places > 0 {
            let shape = Shape { block: geometry.block(), slots, half: 0, places };
            let half = 2 * shape.pages_for(places) + SPARE_PAGES;
            let shape = Shape { half, ..shape };
            let end = shape.first_place() + u64::from(places) * slots;
            if end <= blocks {
                return Some(shape);
            }
            places -= u32::try_from((end - blocks).div_ceil(slots)).unwrap_or(places).min(places);
        }
        None
    }

    /// Returns the number of records that fit into a page after its header.
    pub(crate) fn per_page(&self) -> usize {
        (self.block as usize - HEAD_BYTES) / RECORD_BYTES
    }

    /// Returns the number of pages for `records` records: at least one.
    pub(crate) fn pages_for(&self, records: u32) -> u32 {
        records.div_ceil(self.per_page() as u32).max(1)
    }

    fn first_place(&self) -> u64 {
        (2 * u64::from(self.half)).next_multiple_of(self.slots)
    }

    /// Returns the byte offset of a page of the log.
    pub(crate) fn page_offset(&self, half: u32, page: u32) -> u64 {
        u64::from(half * self.half + page) * self.block
    }

    /// Returns the byte offset of a container's slot, if the container lies in this place.
    pub(crate) fn slot_offset(&self, place: u32, slot: u64) -> u64 {
        (self.first_place() + u64::from(place) * self.slots + slot % self.slots) * self.block
    }
}

/// Stamp in which the superblock and each page of the log must agree: the epoch that the opening began, and a nonce drawn then, never 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Stamp {
    pub epoch: u64,
    pub nonce: u16,
}

/// Header of a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Head {
    pub stamp: Stamp,
    /// Number that grows each time that the log switches to the other half.
    pub round: u64,
    /// Number of the page within the half.
    pub page: u32,
    /// Number of pages, from the first on, that were written when the round began: without all of them the round is invalid.
    pub first_pages: u32,
    /// Bytes that the write budget had left when the page was written.
    pub budget: u64,
}

/// Change of a place's content, as the log notes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LogRecord {
    pub place: u32,
    /// Container that was copied there, with its generation; `None`: the former copy is gone.
    pub holds: Option<(u32, u16)>,
}

/// Owner of a log: the pool's id, the secret that seeds checksums, and the layout.
#[derive(Clone, Copy)]
pub(crate) struct LogOwner {
    pub id: [u8; 16],
    pub secret: u64,
    pub shape: Shape,
}

impl LogOwner {
    /// Writes a page, which must be all zeroes before.
    pub(crate) fn write(&self, bytes: &mut [u8], head: &Head, records: &[LogRecord]) {
        bytes[..8].copy_from_slice(&MAGIC);
        put_u16(bytes, 8, VERSION);
        put_u16(bytes, 10, head.stamp.nonce);
        put_u32(bytes, 12, self.shape.slots as u32);
        bytes[16..32].copy_from_slice(&self.id);
        put_u64(bytes, 32, head.stamp.epoch);
        put_u64(bytes, 40, head.round);
        put_u32(bytes, 48, head.page);
        put_u32(bytes, 52, head.first_pages);
        put_u32(bytes, 56, self.shape.places);
        put_u32(bytes, 60, records.len() as u32);
        put_u64(bytes, 72, head.budget);
        for (bytes, record) in bytes[HEAD_BYTES..].chunks_exact_mut(RECORD_BYTES).zip(records) {
            put_u32(bytes, 0, record.place);
            if let Some((container, generation)) = record.holds {
                put_u32(bytes, 4, container);
                put_u16(bytes, 8, generation);
                put_u16(bytes, 10, 1);
            }
        }
        put_u64(bytes, SUM, self.sum(bytes));
    }

    /// Computes the checksum of a page over all bytes except the checksum.
    fn sum(&self, bytes: &[u8]) -> u64 {
        checksum(checksum(self.secret, &bytes[..SUM]), &bytes[SUM + 8..])
    }

    /// Reads a page. `None`: it is not of this log.
    pub(crate) fn read<'a>(&self, bytes: &'a [u8]) -> Option<(Head, impl Iterator<Item = LogRecord> + 'a + use<'a>)> {
        let is_ours = bytes.len() as u64 == self.shape.block
            && bytes[..8] == MAGIC
            && u16_at(bytes, 8) == VERSION
            && u64::from(u32_at(bytes, 12)) == self.shape.slots
            && bytes[16..32] == self.id
            && u32_at(bytes, 56) == self.shape.places
            && u32_at(bytes, 60) as usize <= self.shape.per_page()
            && u64_at(bytes, SUM) == self.sum(bytes);
        let head = is_ours.then(|| Head {
            stamp: Stamp { epoch: u64_at(bytes, 32), nonce: u16_at(bytes, 10) },
            round: u64_at(bytes, 40),
            page: u32_at(bytes, 48),
            first_pages: u32_at(bytes, 52),
            budget: u64_at(bytes, 72),
        })?;
        let places = self.shape.places;
        let records = bytes[HEAD_BYTES..].chunks_exact(RECORD_BYTES).take(u32_at(bytes, 60) as usize);
        let records = records.map(|bytes| LogRecord {
            place: u32_at(bytes, 0),
            holds: (u16_at(bytes, 10) != 0).then(|| (u32_at(bytes, 4), u16_at(bytes, 8))),
        });
        Some((head, records.filter(move |record| record.place < places)))
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;
    use alloc::vec::Vec;

    use super::*;

    fn owner(places: u32) -> LogOwner {
        let geometry = Geometry::for_capacity(1 << 30).unwrap();
        let shape = Shape::new(200 + u64::from(places) * 1024 + 1024, u32::MAX, &geometry).unwrap();
        assert_eq!(shape.places, places);
        LogOwner { id: [3; 16], secret: 77, shape }
    }

    #[test]
    fn places_fit_and_none_overlaps_the_log() {
        let geometry = Geometry::for_capacity(1 << 30).unwrap();
        for blocks in (0..40_000).step_by(37) {
            let Some(shape) = Shape::new(blocks, u32::MAX, &geometry) else { continue };
            assert!(shape.slot_offset(0, 0) >= shape.page_offset(1, shape.half - 1) + 4096);
            assert!(shape.slot_offset(shape.places - 1, 1023) + 4096 <= blocks * 4096);
            assert!(shape.places > 0 && 2 * shape.pages_for(shape.places) <= shape.half);
        }
        assert_eq!(Shape::new(1024, u32::MAX, &geometry), None);
        assert_eq!(Shape::new(40_000, 3, &geometry).unwrap().places, 3);
    }

    #[test]
    fn a_page_reads_back_and_every_changed_byte_is_noticed() {
        let owner = owner(5);
        let head = Head { stamp: Stamp { epoch: 9, nonce: 4 }, round: 2, page: 7, first_pages: 1, budget: 5 << 40 };
        let records = [LogRecord { place: 1, holds: Some((6, 65_535)) }, LogRecord { place: 4, holds: None }];
        let mut page = vec![0; 4096];
        owner.write(&mut page, &head, &records);
        let (found, read) = owner.read(&page).unwrap();
        assert_eq!((found, read.collect::<Vec<_>>()), (head, records.to_vec()));
        for at in (0..200).chain([4095]) {
            page[at] ^= 8;
            assert!(owner.read(&page).is_none(), "{at}");
            page[at] ^= 8;
        }
        assert!(LogOwner { id: [4; 16], ..owner }.read(&page).is_none());
        assert!(LogOwner { secret: 78, ..owner }.read(&page).is_none());
        assert!(self::owner(6).read(&page).is_none());
    }
}
