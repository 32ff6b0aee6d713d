//! The written blocks of a volume: all others hold zeroes, and always have. So the memory of a model depends on the number of written blocks, not on the size
//! of volumes.
//!
//! A list in order: cloning it, which every crash point does, is one allocation.

use std::ops::Range;
use std::rc::Rc;

use crate::oracle::block::Block;

/// Blocks by their number.
#[derive(Clone, Debug, Default)]
pub struct Blocks(Vec<(u64, Rc<Block>)>);

impl Blocks {
    /// Returns the blocks with a number in a range.
    pub fn range(&self, numbers: Range<u64>) -> &[(u64, Rc<Block>)] {
        let first = self.0.partition_point(|&(number, _)| number < numbers.start);
        let end = first + self.0[first..].partition_point(|&(number, _)| number < numbers.end);
        &self.0[first..end]
    }

    /// Returns the blocks with a number in a range, to change them.
    pub fn range_mut(&mut self, numbers: Range<u64>) -> &mut [(u64, Rc<Block>)] {
        let first = self.0.partition_point(|&(number, _)| number < numbers.start);
        let end = first + self.0[first..].partition_point(|&(number, _)| number < numbers.end);
        &mut self.0[first..end]
    }

    /// Returns a block, if it has been written.
    pub fn get(&self, number: u64) -> Option<&Rc<Block>> {
        self.range(number..number + 1).first().map(|(_, block)| block)
    }

    /// Returns a block to change it, if it has been written.
    pub fn get_mut(&mut self, number: u64) -> Option<&mut Rc<Block>> {
        self.range_mut(number..number + 1).first_mut().map(|(_, block)| block)
    }

    /// Inserts a block that is written for the first time.
    pub fn insert(&mut self, number: u64, block: Block) {
        let at = self.0.partition_point(|&(other, _)| other < number);
        self.0.insert(at, (number, Rc::new(block)));
    }

    /// Drops all blocks from number `size` on.
    pub fn truncate(&mut self, size: u64) {
        self.0.truncate(self.0.partition_point(|&(number, _)| number < size));
    }

    /// Returns all blocks with their numbers, in order.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &Rc<Block>)> {
        self.0.iter().map(|(number, block)| (*number, block))
    }

    /// Returns all blocks, in order, to change them.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Rc<Block>> {
        self.0.iter_mut().map(|(_, block)| block)
    }
}
