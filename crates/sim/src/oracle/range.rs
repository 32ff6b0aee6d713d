//! Runs of cells, and the blocks that they touch.

use std::ops;

use crate::content::CELLS;

/// A run of cells of one volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Range {
    /// Index of the volume in the model.
    pub volume: usize,
    /// First cell.
    pub first: u64,
    /// Number of cells.
    pub count: u64,
}

/// The part of a [`Range`] that lies in one block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Part {
    /// Block of the volume.
    pub block: u64,
    /// First cell within the block.
    pub from: usize,
    /// One past the last cell within the block.
    pub to: usize,
}

impl Part {
    /// Returns a mask with a bit for each cell.
    pub fn mask(&self) -> u8 {
        (((1u16 << self.to) - 1) & !((1u16 << self.from) - 1)) as u8
    }

    /// Returns true if it is the whole block.
    pub fn is_whole(&self) -> bool {
        self.to - self.from == CELLS
    }
}

impl Range {
    /// Returns the part in each block that it touches, in order.
    pub fn parts(self) -> impl Iterator<Item = Part> {
        self.blocks().map(move |block| self.part(block))
    }

    /// Returns the numbers of these blocks.
    pub fn blocks(self) -> ops::Range<u64> {
        let cells = CELLS as u64;
        self.first / cells..(self.first + self.count).div_ceil(cells)
    }

    /// Returns the part of it that lies in one of these blocks.
    pub(crate) fn part(self, block: u64) -> Part {
        let first = block * CELLS as u64;
        Part {
            block,
            from: self.first.saturating_sub(first) as usize,
            to: (self.first + self.count - first).min(CELLS as u64) as usize,
        }
    }

    /// Returns true if it begins and ends between blocks.
    pub fn is_aligned(self) -> bool {
        self.first.is_multiple_of(CELLS as u64) && self.count.is_multiple_of(CELLS as u64)
    }
}
