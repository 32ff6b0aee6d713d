//! Shorthands for operations.

use crate::content::CELLS;
use crate::runs::workload::{Operation, Place};

pub(super) const SECONDS: u64 = 1_000_000_000;

pub(super) fn place(volume: u64, block: u64, blocks: u64) -> Place {
    Place { volume, first: block * CELLS as u64, count: blocks * CELLS as u64 }
}

/// Writes whole blocks, with consecutive contents.
pub(super) fn write(volume: u64, block: u64, blocks: u64, content: u32) -> Operation {
    let contents = (content..).take(blocks as usize).collect();
    Operation::Write { place: place(volume, block, blocks), contents, fua: false }
}
