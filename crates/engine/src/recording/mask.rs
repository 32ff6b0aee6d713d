//! Mask of a recording: it removes the key of the digest function, and blocks inlined in the journal, from the pages that were read.
//!
//! A replay sees the rest. It takes the same course: the key decides nothing, and its superblocks have a checksum that fits again. Recovery reads the
//! blocks inlined in a record into buffers, so in the ring it only steps over them.

use crate::format::bytes::{checksum, put_u64, u64_at};
use crate::format::geometry::Geometry;
use crate::format::record;
use crate::format::superblock::SUPERBLOCK_SIZE;

/// Bytes of a superblock that hold the key.
const KEY: core::ops::Range<usize> = 56..88;

/// Positions on the store of the bytes that are to be left out.
pub(super) struct Mask {
    block: u64,
    superblocks: [u64; 4],
    /// First block of the ring, and one past its last.
    ring: (u64, u64),
    /// The block of the ring after those that were read last; the number of blocks from there on that belong to the pages of a record; and the number
    /// of blocks inlined by it behind these.
    next: u64,
    pages: u16,
    inlined: u16,
}

impl Mask {
    pub(super) fn new(geometry: &Geometry) -> Mask {
        let first = geometry.journal_start();
        Mask {
            block: geometry.block(),
            superblocks: [0, 1, geometry.place_b, geometry.place_b + 1],
            ring: (first, first + u64::from(geometry.journal_blocks)),
            next: first,
            pages: 0,
            inlined: 0,
        }
    }

    /// Returns true if a superblock is at this byte of the store.
    pub(super) fn has_key(&self, offset: u64) -> bool {
        self.superblocks.contains(&(offset / self.block))
    }

    /// Zeroes the secret parts of bytes that were read at `offset`.
    pub(super) fn hide(&mut self, offset: u64, bytes: &mut [u8]) {
        for (number, block) in (offset / self.block..).zip(bytes.chunks_mut(self.block as usize)) {
            if self.superblocks.contains(&number) {
                hide_key(block);
            } else if (self.ring.0..self.ring.1).contains(&number) {
                self.hide_inlined(number, block);
            }
        }
    }

    fn hide_inlined(&mut self, number: u64, block: &mut [u8]) {
        if number != self.next {
            // Recovery reads on where the next record begins.
            (self.pages, self.inlined) = (0, 0);
        }
        self.next = if number + 1 == self.ring.1 { self.ring.0 } else { number + 1 };
        if self.pages > 0 {
            self.pages -= 1;
        } else if self.inlined > 0 {
            self.inlined -= 1;
            block.fill(0);
        } else if block.len() as u64 == self.block
            && let Some(header) = record::decode_header(block)
        {
            (self.pages, self.inlined) = (header.pages.saturating_sub(1), header.blocks);
        } else {
            block.fill(0);
        }
    }
}

/// Zeroes the key in a superblock, or in other bytes in its place. A checksum that was right is right again.
pub(super) fn hide_key(block: &mut [u8]) {
    let Some(superblock) = block.get_mut(..SUPERBLOCK_SIZE) else { return block.fill(0) };
    let at = SUPERBLOCK_SIZE - 8;
    let was_right = checksum(0, &superblock[..at]) == u64_at(superblock, at);
    superblock[KEY].fill(0);
    if was_right {
        let sum = checksum(0, &superblock[..at]);
        put_u64(superblock, at, sum);
    }
}
