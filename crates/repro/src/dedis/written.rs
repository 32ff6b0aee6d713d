//! Record of the workers' writes: the content of each block, and the number of different contents. It gives the saving of a device that shares everything.

use std::ops::Range;

use serde::Serialize;

use super::load::{ContentId, shared};

/// Record of the contents that one worker, or all of them, have written.
#[derive(Clone, Debug)]
pub struct Written {
    /// The block of the first content.
    base: u64,
    contents: Vec<ContentId>,
    /// Blocks written, also those that were overwritten later.
    blocks: u64,
    /// Contents of the distribution that were written at any time.
    seen: Bits,
    /// Contents that are written once.
    unique: u64,
}

/// Counts of written blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Tally {
    /// Blocks that were written.
    pub written_blocks: u64,
    /// Written blocks whose content the run had written before, there or elsewhere.
    pub duplicate_blocks: u64,
    /// Blocks that hold something in the end.
    pub live_blocks: u64,
    /// Different contents among the live blocks: the blocks that a device with full deduplication stores.
    pub distinct_blocks: u64,
}

impl Tally {
    /// Returns the blocks that sharing saves in the end.
    pub fn saved_blocks(&self) -> u64 {
        self.live_blocks - self.distinct_blocks
    }
}

impl Written {
    /// Creates an empty record for a region of `blocks` blocks from `base` on, of a distribution with `shared_contents` contents that may
    /// come again.
    pub fn new(base: u64, blocks: u64, shared_contents: u64) -> Written {
        let contents = vec![0; blocks as usize];
        Written { base, contents, blocks: 0, seen: Bits::new(shared_contents), unique: 0 }
    }

    /// Sets the content of a block, and counts the write.
    pub fn write(&mut self, block: u64, content: ContentId) {
        self.contents[(block - self.base) as usize] = content;
        self.blocks += 1;
        match shared(content) {
            Some(number) => self.seen.set(number),
            None => self.unique += 1,
        }
    }

    /// Returns the content of a block; 0: nothing was written there.
    pub fn content(&self, block: u64) -> ContentId {
        self.contents[(block - self.base) as usize]
    }

    /// Returns the blocks of the region.
    pub fn blocks(&self) -> Range<u64> {
        self.base..self.base + self.contents.len() as u64
    }

    /// Iterates over the written blocks, each with its content.
    pub fn live(&self) -> impl Iterator<Item = (u64, ContentId)> {
        (self.base..)
            .zip(&self.contents)
            .filter(|(_, content)| **content != 0)
            .map(|(block, content)| (block, *content))
    }

    /// Counts the blocks that all of them have written together.
    pub fn tally(all: &[Written]) -> Tally {
        let shared_contents = all.iter().map(|written| written.seen.len).max().unwrap_or(0);
        let (mut seen, mut live_seen) = (Bits::new(shared_contents), Bits::new(shared_contents));
        let mut tally = Tally::default();
        let mut different = 0;
        for written in all {
            seen.add(&written.seen);
            different += written.unique;
            tally.written_blocks += written.blocks;
            for (_, content) in written.live() {
                tally.live_blocks += 1;
                match shared(content) {
                    Some(number) => live_seen.set(number),
                    None => tally.distinct_blocks += 1,
                }
            }
        }
        tally.distinct_blocks += live_seen.count();
        tally.duplicate_blocks = tally.written_blocks - different - seen.count();
        tally
    }
}

/// A set of small numbers.
#[derive(Clone, Debug)]
struct Bits {
    words: Vec<u64>,
    len: u64,
}

impl Bits {
    fn new(len: u64) -> Bits {
        Bits { words: vec![0; len.div_ceil(64) as usize], len }
    }

    fn set(&mut self, number: u64) {
        self.words[(number / 64) as usize] |= 1 << (number % 64);
    }

    fn add(&mut self, other: &Bits) {
        for (word, more) in self.words.iter_mut().zip(&other.words) {
            *word |= more;
        }
    }

    fn count(&self) -> u64 {
        self.words.iter().map(|word| u64::from(word.count_ones())).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_overwritten_counts_as_written_and_not_as_live() {
        let unique = |number: u64| 1 << 62 | number;
        let mut one = Written::new(0, 4, 100);
        for (block, content) in [(0, 1), (1, 1), (2, unique(1)), (2, 2), (0, unique(2))] {
            one.write(block, content);
        }
        let mut two = Written::new(4, 4, 100);
        for (block, content) in [(4, 2), (7, 1)] {
            two.write(block, content);
        }
        assert_eq!(one.live().collect::<Vec<_>>(), [(0, unique(2)), (1, 1), (2, 2)]);
        let tally = Written::tally(&[one, two]);
        // 7 blocks, of them 4 different: 1, 2 and two unique ones. Live are 5, of them 3 different.
        let expected = Tally { written_blocks: 7, duplicate_blocks: 3, live_blocks: 5, distinct_blocks: 3 };
        assert_eq!((tally, tally.saved_blocks()), (expected, 2));
    }
}
