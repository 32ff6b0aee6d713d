//! Journal records: their changes, and their encoding on the device. A record is one or more pages, followed by the whole blocks inlined in it. Layout in
//! docs/reference/disk-format.md.

use alloc::vec::Vec;

use crate::api::{Digest, VolumeId};
use crate::format::bytes::{checksum, put_u16, put_u32, put_u64, u16_at, u32_at, u64_at};
use crate::format::entry::{Key, LBA_BITS, Slot};
use crate::format::superblock::MOST_COUNTED;
use crate::format::volume::MAX_BLOCKS;

const MAGIC: u32 = u32::from_le_bytes(*b"OFJ1");
/// Number of bytes before the first entry.
pub(crate) const HEADER_BYTES: usize = 64;
/// Number of bytes of an entry.
pub(crate) const ENTRY_BYTES: usize = 40;
const CHECKSUM_AT: usize = 56;
/// Maximum number of pages of entries in one record.
pub(crate) const MAX_PAGES: usize = 32;

/// Change of the map.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Change {
    /// Mapping of a block to a formerly free slot with new content. `offline`: the content may be a duplicate, because no lookup has been done.
    Fresh { key: Key, slot: Slot, digest: Digest, offline: bool },
    /// Mapping as in `Fresh`, with the content in this block of the record; the slot is written later.
    Inlined { key: Key, slot: Slot, digest: Digest, block: u16, offline: bool },
    /// Mapping of a block to a slot that was in use.
    Share { key: Key, slot: Slot, digest: Digest },
    /// Block that becomes zero.
    Zero { key: Key },
    /// Range that reads as zeroes.
    Clear { key: Key, end: u64 },
    /// Deletion of a volume: its map is gone, and nothing of it is seen again.
    DeleteVolume { volume: VolumeId },
    /// New size of a volume, in blocks; blocks beyond it are unmapped.
    ResizeVolume { volume: VolumeId, blocks: u64 },
}

impl Change {
    /// Returns true if the block was stored without a lookup of duplicates, which is left to the background pass.
    pub(crate) fn is_offline(&self) -> bool {
        matches!(self, Change::Fresh { offline: true, .. } | Change::Inlined { offline: true, .. })
    }
}

/// Header of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Header {
    /// Number of pages of entries, this one included.
    pub pages: u16,
    /// Number of inlined blocks.
    pub blocks: u16,
    pub sequence: u64,
    /// Epoch of the superblock in force.
    pub epoch: u64,
    /// Checksum of the previous record.
    pub previous: u64,
    /// Last record known durable, with its blocks and all earlier records.
    pub watermark: u64,
    pub entries: u32,
    /// Ring block of its first page.
    pub position: u32,
}

/// Returns the number of pages that a record with `entries` entries needs.
pub(crate) fn pages_for(entries: usize, block_size: usize) -> usize {
    (HEADER_BYTES + entries * ENTRY_BYTES).div_ceil(block_size)
}

/// Returns true if a block begins as the first page of a record does. No such block is inlined in the ring. So a page there that begins so was written by the
/// engine, or is left from the time before version 3.
pub fn begins_as_record(block: &[u8]) -> bool {
    block.first_chunk() == Some(&MAGIC.to_le_bytes())
}

fn encode_change(change: &Change, out: &mut [u8]) {
    let (kind, block, key, value, digest) = match *change {
        Change::Fresh { key, slot, digest, .. } => (1, 0, key, slot.0, digest),
        Change::Inlined { key, slot, digest, block, .. } => (2, block, key, slot.0, digest),
        Change::Share { key, slot, digest } => (3, 0, key, slot.0, digest),
        Change::Zero { key } => (4, 0, key, 0, Digest::default()),
        Change::Clear { key, end } => (5, 0, key, end, Digest::default()),
        Change::DeleteVolume { volume } => (6, 0, Key::new(volume, 0), 0, Digest::default()),
        Change::ResizeVolume { volume, blocks } => (7, 0, Key::new(volume, 0), blocks, Digest::default()),
    };
    (out[0], out[1]) = (kind, change.is_offline().into());
    put_u16(out, 2, block);
    put_u16(out, 4, key.volume().0);
    put_u64(out, 8, key.lba());
    put_u64(out, 16, value);
    out[24..40].copy_from_slice(&digest.0);
}

fn decode_change(bytes: &[u8]) -> Option<Change> {
    let lba = u64_at(bytes, 8);
    let value = u64_at(bytes, 16);
    if lba >> LBA_BITS != 0 {
        return None;
    }
    let key = Key::new(VolumeId(u16_at(bytes, 4)), lba);
    let mut digest = Digest::default();
    digest.0.copy_from_slice(&bytes[24..40]);
    let slot = Slot(value);
    Some(match bytes[0] {
        1 => Change::Fresh { key, slot, digest, offline: bytes[1] & 1 != 0 },
        2 => Change::Inlined { key, slot, digest, block: u16_at(bytes, 2), offline: bytes[1] & 1 != 0 },
        3 => Change::Share { key, slot, digest },
        4 => Change::Zero { key },
        5 if value > lba && value >> LBA_BITS == 0 => Change::Clear { key, end: value },
        6 if lba == 0 => Change::DeleteVolume { volume: key.volume() },
        7 if lba == 0 && (1..=MAX_BLOCKS).contains(&value) => {
            Change::ResizeVolume { volume: key.volume(), blocks: value }
        }
        _ => return None,
    })
}

/// Writes a record's pages to `out`, which has `pages` whole pages, and returns its checksum.
pub(crate) fn encode(header: &Header, changes: &[Change], seed: u64, out: &mut [u8]) -> u64 {
    out.fill(0);
    put_u32(out, 0, MAGIC);
    put_u16(out, 4, header.pages);
    put_u16(out, 6, header.blocks);
    put_u64(out, 8, header.sequence);
    put_u64(out, 16, header.epoch);
    put_u64(out, 24, header.previous);
    put_u64(out, 32, header.watermark);
    put_u32(out, 40, header.entries);
    put_u32(out, 44, header.position);
    for (i, change) in changes.iter().enumerate() {
        let at = HEADER_BYTES + i * ENTRY_BYTES;
        encode_change(change, &mut out[at..at + ENTRY_BYTES]);
    }
    let sum = checksum(seed, out);
    put_u64(out, CHECKSUM_AT, sum);
    sum
}

/// Reads the header of a record from its first page, before its checksum is verified.
pub(crate) fn decode_header(page: &[u8]) -> Option<Header> {
    if page.len() < HEADER_BYTES || u32_at(page, 0) != MAGIC {
        return None;
    }
    let header = Header {
        pages: u16_at(page, 4),
        blocks: u16_at(page, 6),
        sequence: u64_at(page, 8),
        epoch: u64_at(page, 16),
        previous: u64_at(page, 24),
        watermark: u64_at(page, 32),
        entries: u32_at(page, 40),
        position: u32_at(page, 44),
    };
    let fits = pages_for(header.entries as usize, page.len()) == usize::from(header.pages);
    let counted = [header.sequence, header.epoch, header.watermark].iter().all(|&number| number <= MOST_COUNTED);
    (fits && counted && usize::from(header.pages) <= MAX_PAGES).then_some(header)
}

/// Checks a whole record (all its pages) and returns its changes and checksum.
pub(crate) fn decode(header: &Header, pages: &mut [u8], seed: u64) -> Option<(Vec<Change>, u64)> {
    let stored = u64_at(pages, CHECKSUM_AT);
    put_u64(pages, CHECKSUM_AT, 0);
    let sum = checksum(seed, pages);
    put_u64(pages, CHECKSUM_AT, stored);
    if sum != stored {
        return None;
    }
    let entries = &pages[HEADER_BYTES..HEADER_BYTES + header.entries as usize * ENTRY_BYTES];
    let changes = entries.chunks_exact(ENTRY_BYTES).map(decode_change).collect::<Option<Vec<_>>>()?;
    let inlined = changes.iter().all(|change| match change {
        Change::Inlined { block, .. } => *block < header.blocks,
        _ => true,
    });
    inlined.then_some((changes, stored))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use proptest::prelude::*;

    proptest! {
        /// Checks that any record with the right checksum is refused, or is written as it was read.
        #[test]
        fn what_is_decoded_encodes_as_it_was(
            mut entries in proptest::collection::vec((0u8..9, any::<[u8; 39]>(), any::<[bool; 2]>()), 0..30),
            header in any::<[u8; 32]>(),
            lying in proptest::bool::weighted(0.1),
            blocks in 0u16..40,
            lie in prop_oneof![9 => Just(0u32), 1 => any::<u32>()],
        ) {
            let mut pages = vec![0; pages_for(entries.len(), 512) * 512];
            let count = (entries.len() as u32).wrapping_add(lie);
            put_u32(&mut pages, 0, MAGIC);
            let page_count = (pages.len() / 512) as u16;
            put_u16(&mut pages, 4, page_count);
            put_u16(&mut pages, 6, blocks);
            pages[8..40].copy_from_slice(&header);
            if !lying {
                // Possible numbers: of records, of the epoch, of the watermark.
                [15, 23, 39].iter().for_each(|&top| pages[top] &= 0x3f);
            }
            put_u32(&mut pages, 40, count);
            for (i, (kind, rest, [near, low])) in entries.iter_mut().enumerate() {
                let bytes = &mut pages[HEADER_BYTES + i * ENTRY_BYTES..][..ENTRY_BYTES];
                bytes[0] = *kind;
                bytes[1..].copy_from_slice(rest);
                if *near {
                    put_u64(bytes, 8, if *low { 0 } else { u64::from(rest[9]) });
                }
            }
            let sum = checksum(5, &pages);
            put_u64(&mut pages, CHECKSUM_AT, sum);
            let Some(read) = decode_header(&pages[..512]) else { return Ok(()) };
            prop_assert_eq!(usize::from(read.pages), pages.len() / 512);
            let Some((changes, found)) = decode(&read, &mut pages, 5) else { return Ok(()) };
            prop_assert_eq!(found, sum);
            let mut again = vec![0; pages.len()];
            let sum = encode(&read, &changes, 5, &mut again);
            prop_assert_eq!(decode_header(&again[..512]), Some(read));
            prop_assert_eq!(decode(&read, &mut again, 5), Some((changes, sum)));
        }

        #[test]
        fn no_page_makes_a_header_that_its_record_does_not_fit(page in proptest::collection::vec(any::<u8>(), 0..600)) {
            let mut page = page;
            if page.len() >= 4 {
                put_u32(&mut page, 0, MAGIC);
            }
            if let Some(header) = decode_header(&page) {
                prop_assert!(HEADER_BYTES + header.entries as usize * ENTRY_BYTES <= usize::from(header.pages) * page.len());
            }
        }
    }

    fn sample() -> (Header, Vec<Change>) {
        let key = Key::new(VolumeId(2), 9);
        let digest = Digest([4; 16]);
        let mut changes = vec![
            Change::Fresh { key, slot: Slot(1), digest, offline: true },
            Change::Inlined { key, slot: Slot(2), digest, block: 0, offline: false },
            Change::Share { key, slot: Slot(3), digest },
            Change::Zero { key },
            Change::Clear { key, end: 100 },
            Change::DeleteVolume { volume: VolumeId(3) },
            Change::ResizeVolume { volume: VolumeId(2), blocks: 77 },
        ];
        changes.extend([Change::Zero { key }; 20]);
        let pages = pages_for(changes.len(), 512) as u16;
        let (sequence, entries) = (77, changes.len() as u32);
        (Header { pages, blocks: 1, sequence, epoch: 3, previous: 5, watermark: 70, entries, position: 11 }, changes)
    }

    #[test]
    fn a_record_reads_back_and_every_flipped_byte_is_noticed() {
        let (header, changes) = sample();
        let mut pages = vec![0; header.pages as usize * 512];
        let sum = encode(&header, &changes, 99, &mut pages);
        assert_eq!(decode_header(&pages[..512]), Some(header));
        assert_eq!(decode(&header, &mut pages, 99), Some((changes.clone(), sum)));
        assert_eq!(decode(&header, &mut pages, 98), None);
        for at in 0..pages.len() {
            pages[at] ^= 0x40;
            let same = decode_header(&pages[..512]).filter(|read| *read == header);
            assert!(same.is_none_or(|header| decode(&header, &mut pages, 99).is_none()), "byte {at}");
            pages[at] ^= 0x40;
        }
    }

    #[test]
    fn entry_counts_that_lie_are_refused() {
        let (header, changes) = sample();
        let mut pages = vec![0; header.pages as usize * 512];
        encode(&header, &changes, 0, &mut pages);
        put_u32(&mut pages, 40, u32::MAX);
        assert_eq!(decode_header(&pages[..512]), None);
    }
}
