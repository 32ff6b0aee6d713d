//! Creation of a pool: the initial blocks that make a store a pool.

use alloc::vec;
use alloc::vec::Vec;

use crate::format::superblock::{Parameters, Superblock};
use crate::properties::{DeviceKind, PoolChange, PoolProperties};

/// Writes that make a store a pool: zero `zero` (byte ranges), sync, write each block, sync.
pub struct Format {
    /// Byte ranges (offset, length) to fill with zeroes.
    pub zero: Vec<(u64, u64)>,
    /// Blocks to write: byte offset and bytes.
    pub blocks: Vec<(u64, Vec<u8>)>,
}

/// Computes the writes that make a store a new, empty pool: four superblock slots, two of them left empty, and a journal of zeroes. The parameters must have a
/// valid geometry.
pub fn format(parameters: Parameters, device: DeviceKind) -> Format {
    let geometry = parameters.geometry;
    let block = geometry.block();
    let properties = PoolProperties::default().with(&PoolChange { device: Some(device), ..PoolChange::default() });
    let superblock = Superblock { properties, ..Superblock::new(parameters) };
    let mut bytes = vec![0; block as usize];
    superblock.encode(&mut bytes);
    let blocks = (0..2).map(|place| (geometry.superblock_block(place, superblock.epoch) * block, bytes.clone()));
    let journal = (geometry.journal_start() * block, u64::from(geometry.journal_blocks) * block);
    // All four slots: an older pool's superblocks must not survive a crash in the middle of this.
    let slots = (0..4).map(|slot| (geometry.superblock_block(slot / 2, slot as u64 % 2) * block, block));
    // The pool has no owner yet.
    let owner = geometry.owner_block().map(|at| (at * block, block));
    // The locations of the meta map have no reserve of their own: this gives them their space.
    let meta_map = geometry.segments().map(|segment| (segment.meta_map.block * block, segment.meta_map.count * block));
    let meta_map = meta_map.filter(|(_, length)| *length > 0);
    Format { zero: slots.chain(owner).chain([journal]).chain(meta_map).collect(), blocks: blocks.collect() }
}
