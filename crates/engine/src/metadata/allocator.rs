//! Allocator of metadata blocks: a bitmap with one bit each, all in memory.
//!
//! A page that a checkpoint replaces is freed "later": it stays in use until the checkpoint's superblock is durable in both places, because
//! the previous superblock still references it. The map that a checkpoint writes already shows it as free.

use alloc::collections::BTreeSet;
use alloc::vec;
use alloc::vec::Vec;

/// Allocator of metadata blocks. Locations are block numbers within the region, plus one.
pub(crate) struct MetadataAllocator {
    blocks: u32,
    used: Vec<u64>,
    /// Blocks freed by the checkpoint in progress. They are in order, because each written leaf looks at its own part.
    freed: BTreeSet<u32>,
    free: u32,
    /// Number of blocks allocated since opening.
    taken: u64,
    lowest: u32,
    leaf_bits: u64,
    dirty: Vec<bool>,
    /// Number of blocks with reserved space: the first ones may be written.
    reserved: u32,
}

impl MetadataAllocator {
    /// Creates the allocator of a region of `blocks` blocks, all of them free. `leaf_bits`: number of blocks that a leaf of its table describes.
    pub(crate) fn new(blocks: u32, leaf_bits: u64) -> MetadataAllocator {
        let leaves = u64::from(blocks).div_ceil(leaf_bits) as usize;
        MetadataAllocator {
            blocks,
            used: vec![0; blocks.div_ceil(64) as usize],
            freed: BTreeSet::new(),
            free: blocks,
            taken: 0,
            lowest: 0,
            leaf_bits,
            dirty: vec![false; leaves],
            reserved: 0,
        }
    }

    /// Adds blocks at the end, up to `blocks`; they are free.
    pub(crate) fn grow(&mut self, blocks: u32) {
        self.free += blocks - self.blocks;
        self.blocks = blocks;
        let words = blocks.div_ceil(64) as usize;
        self.used.reserve_exact(words - self.used.len());
        self.used.resize(words, 0);
        self.dirty.resize(u64::from(blocks).div_ceil(self.leaf_bits) as usize, false);
    }

    fn mark_dirty(&mut self, block: u32) {
        self.dirty[(u64::from(block) / self.leaf_bits) as usize] = true;
    }

    /// Allocates the lowest free block for which `busy` is false.
    pub(crate) fn allocate(&mut self, busy: impl Fn(u32) -> bool) -> Option<u32> {
        let mut word = (self.lowest / 64) as usize;
        let mut first = true;
        while word < self.used.len() {
            let mut free = !self.used[word];
            while free != 0 {
                let block = word as u32 * 64 + free.trailing_zeros();
                if block >= self.blocks {
                    return None;
                }
                if first {
                    self.lowest = block;
                    first = false;
                }
                if !busy(block + 1) {
                    self.used[word] |= 1 << (block % 64);
                    self.free -= 1;
                    self.taken += 1;
                    self.mark_dirty(block);
                    return Some(block + 1);
                }
                free &= free - 1;
            }
            word += 1;
        }
        None
    }

    /// Notes that the checkpoint in progress has replaced the page at `location`, which becomes free once the checkpoint is durable.
    pub(crate) fn free_later(&mut self, location: u32) {
        assert!(self.is_used(location));
        self.freed.insert(location);
        self.mark_dirty(location - 1);
    }

    /// Frees at most `most` blocks replaced by a checkpoint that is durable in both places, and passes each to `freed`; true if there are more.
    pub(crate) fn checkpoint_durable(&mut self, most: usize, mut freed: impl FnMut(u32)) -> bool {
        for _ in 0..most {
            let Some(location) = self.freed.pop_first() else { break };
            freed(location);
            let block = location - 1;
            let bit = 1 << (block % 64);
            assert!(self.used[(block / 64) as usize] & bit != 0, "a metadata block is freed once");
            self.used[(block / 64) as usize] &= !bit;
            self.free += 1;
            self.lowest = self.lowest.min(block);
        }
        !self.freed.is_empty()
    }

    /// Returns true if a block exists and is in use.
    pub(crate) fn is_used(&self, location: u32) -> bool {
        let block = location - 1;
        self.used.get((block / 64) as usize).is_some_and(|word| word >> (block % 64) & 1 != 0)
    }

    /// Returns the number of free blocks.
    pub(crate) fn free(&self) -> u32 {
        self.free
    }

    /// Returns the number of blocks allocated so far, freed ones included.
    pub(crate) fn taken(&self) -> u64 {
        self.taken
    }

    /// Returns the number of blocks that are not free.
    pub(crate) fn used(&self) -> u32 {
        self.blocks - self.free
    }

    /// Returns the number of blocks freed by the checkpoint in progress.
    pub(crate) fn freed_count(&self) -> usize {
        self.freed.len()
    }

    /// Finds the next leaf at or after `from` that changed since it was last written.
    pub(crate) fn next_dirty_leaf(&self, from: u64) -> Option<u64> {
        (from as usize..self.dirty.len()).find(|&leaf| self.dirty[leaf]).map(|leaf| leaf as u64)
    }

    /// Fills a page with a leaf as the checkpoint in progress leaves it, and counts it as written.
    pub(crate) fn write_leaf(&mut self, leaf: u64, page: &mut [u8]) {
        page.fill(0);
        let first = leaf * self.leaf_bits / 64;
        for (i, bytes) in page.chunks_exact_mut(8).enumerate() {
            if let Some(word) = self.used.get(first as usize + i) {
                bytes.copy_from_slice(&word.to_le_bytes());
            }
        }
        let blocks = leaf * self.leaf_bits..((leaf + 1) * self.leaf_bits).min(u64::from(self.blocks));
        for &location in self.freed.range(blocks.start as u32 + 1..=blocks.end as u32) {
            let bit = (u64::from(location - 1) % self.leaf_bits) as usize;
            page[bit / 8] &= !(1 << (bit % 8));
        }
        self.dirty[leaf as usize] = false;
    }

    /// Reads a leaf at opening.
    pub(crate) fn read_leaf(&mut self, leaf: u64, page: &[u8]) {
        let first = leaf * self.leaf_bits / 64;
        for (i, bytes) in page.chunks_exact(8).enumerate() {
            let at = first as usize + i;
            if at < self.used.len() {
                let mut word = [0; 8];
                word.copy_from_slice(bytes);
                let last = self.blocks as u64 - (at as u64 * 64).min(self.blocks as u64);
                let mask = if last >= 64 { u64::MAX } else { (1 << last) - 1 };
                let value = u64::from_le_bytes(word) & mask;
                self.free -= value.count_ones();
                self.used[at] = value;
                let top = 64 - value.leading_zeros();
                if top > 0 {
                    self.reserved = self.reserved.max(at as u32 * 64 + top);
                }
            }
        }
    }

    /// Returns the number of blocks with reserved space.
    pub(crate) fn reserved(&self) -> u32 {
        self.reserved
    }

    /// Notes that the host has reserved space for the blocks up to this one.
    pub(crate) fn note_reserved(&mut self, upto: u32) {
        self.reserved = self.reserved.max(upto);
    }

    /// Returns the bytes of memory of the bitmap.
    pub(crate) fn memory(&self) -> u64 {
        self.used.len() as u64 * 8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_freed_block_is_reused_only_after_the_checkpoint_is_durable() {
        let mut allocator = MetadataAllocator::new(3, 4096);
        let first = allocator.allocate(|_| false).unwrap();
        allocator.allocate(|_| false).unwrap();
        allocator.allocate(|_| false).unwrap();
        assert_eq!(allocator.allocate(|_| false), None);
        allocator.free_later(first);
        assert_eq!(allocator.allocate(|_| false), None);
        let mut page = [0; 512];
        allocator.write_leaf(0, &mut page);
        assert_eq!(page[0], 0b110);
        allocator.checkpoint_durable(usize::MAX, |_| ());
        assert_eq!(allocator.allocate(|_| false), Some(first));
    }

    #[test]
    fn what_growing_adds_is_free_and_what_was_used_stays_so() {
        let mut allocator = MetadataAllocator::new(70, 512);
        while allocator.allocate(|_| false).is_some() {}
        allocator.grow(1100);
        assert_eq!((allocator.free(), allocator.used()), (1030, 70));
        assert_eq!(allocator.allocate(|_| false), Some(71));
        while allocator.allocate(|_| false).is_some() {}
        assert_eq!((allocator.used(), allocator.next_dirty_leaf(2)), (1100, Some(2)));
    }

    #[test]
    fn a_leaf_reads_back_and_bits_beyond_the_end_are_ignored() {
        let mut allocator = MetadataAllocator::new(70, 4096);
        allocator.read_leaf(0, &[0xff; 512]);
        assert_eq!(allocator.free(), 0);
        assert_eq!(allocator.used(), 70);
        assert_eq!(allocator.allocate(|_| false), None);
    }
}
