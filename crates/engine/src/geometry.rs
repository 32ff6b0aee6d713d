//! Where things are on the backing store: fixed when a pool is created, recorded in every superblock.
//!
//! In blocks of `block_size` bytes, in this order (docs/disk-format.md has the picture):
//!
//! ```text
//! 0, 1                    superblock place A: even epochs, odd epochs
//! place_b, place_b + 1    superblock place B: even epochs, odd epochs
//! journal                 a ring
//! meta map                two homes for each page of the map of metadata pages
//! metadata                copy-on-write pages: volume maps, space map, containers, counts, summaries, volumes, discards
//! data                    containers, aligned to their own size
//! ```

use core::fmt;

/// The product's block size in bytes.
pub const BLOCK_SIZE: u32 = 4096;
/// The product's slots per container: containers of 4 MiB.
pub const SLOTS_PER_CONTAINER: u32 = 1024;
/// The product's byte offset of superblock place B.
pub const PLACE_B_OFFSET: u64 = 1 << 20;
/// The product's longest request of one piece, in bytes.
pub const PIECE_SIZE: u32 = 1 << 20;
/// Bits of a slot address in a map leaf.
pub const SLOT_BITS: u32 = 36;

/// How often metadata can be added to a pool.
pub const GROWTHS: usize = 7;
/// The growths of a pool that has not grown.
pub const UNGROWN: [Growth; GROWTHS] = [Growth { metadata_blocks: 0, containers: 0 }; GROWTHS];

/// What one growth appended at the end of the store; all zero if unused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Growth {
    /// Blocks of copy-on-write metadata.
    pub metadata_blocks: u32,
    /// Containers of data.
    pub containers: u32,
}

/// The geometry of a pool. All fields are fixed at creation, except those that say that they grow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Geometry {
    /// Bytes per block: a power of two, 512 to 4096.
    pub block_size: u32,
    /// Slots per container: a power of two, 4 to 32,768.
    pub slots_per_container: u32,
    /// The most blocks that a read or write may touch, not counting the one more that an unaligned one does.
    pub piece_blocks: u32,
    /// First block of superblock place B, at least 2.
    pub place_b: u64,
    /// Blocks of the journal ring.
    pub journal_blocks: u32,
    /// Blocks of copy-on-write metadata, those of growths included. Grows.
    pub metadata_blocks: u32,
    /// Containers of data, the spare ones and those of growths included. Grows.
    pub containers: u32,
    /// Containers that do not count as capacity: with them a pool full of data can still be overwritten, because new blocks
    /// need slots before the old ones are free. Grows.
    pub spare_containers: u32,
    /// What growths appended, in order; the unused ones are last. The base has the rest.
    pub growth: [Growth; GROWTHS],
}

/// Why a geometry is not possible.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BadGeometry(
    /// What is wrong with it.
    pub &'static str,
);

impl fmt::Display for BadGeometry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl Geometry {
    /// The product's geometry for a pool of at least `capacity` bytes of data (rounded up to whole containers).
    pub fn for_capacity(capacity: u64) -> Result<Geometry, BadGeometry> {
        let container = u64::from(BLOCK_SIZE) * u64::from(SLOTS_PER_CONTAINER);
        let wanted = capacity.div_ceil(container).max(4);
        let spare = (wanted / 32).clamp(8, 1024);
        let containers = u32::try_from(wanted + spare).map_err(|_| BadGeometry("the capacity is too large"))?;
        let data_blocks = u64::from(containers) * u64::from(SLOTS_PER_CONTAINER);
        // Summaries take 24 bytes a slot, maps 8 bytes a mapped block; copy-on-write may need both twice for a while.
        let metadata = data_blocks / 32 + 8192;
        let metadata_blocks =
            u32::try_from(metadata).map_err(|_| BadGeometry("the capacity is too large for one pool"))?;
        let journal_blocks = (data_blocks / 32).clamp(4096, 32768) as u32;
        let geometry = Geometry {
            block_size: BLOCK_SIZE,
            slots_per_container: SLOTS_PER_CONTAINER,
            piece_blocks: PIECE_SIZE / BLOCK_SIZE,
            place_b: PLACE_B_OFFSET / u64::from(BLOCK_SIZE),
            journal_blocks,
            metadata_blocks,
            containers,
            spare_containers: spare as u32,
            growth: UNGROWN,
        };
        geometry.validate()?;
        Ok(geometry)
    }

    /// Checks every field; nothing else may be called on a geometry that fails.
    pub fn validate(&self) -> Result<(), BadGeometry> {
        let bad = |text| Err(BadGeometry(text));
        if !self.block_size.is_power_of_two() || !(512..=4096).contains(&self.block_size) {
            return bad("the block size must be a power of two from 512 to 4096");
        }
        if !self.slots_per_container.is_power_of_two() || !(4..=32768).contains(&self.slots_per_container) {
            return bad("slots per container must be a power of two from 4 to 32768");
        }
        if !(1..=4096).contains(&self.piece_blocks) {
            return bad("a piece must be 1 to 4096 blocks");
        }
        if !(2..=1 << 20).contains(&self.place_b) {
            return bad("superblock place B must lie from block 2 to 1048576");
        }
        if self.spare_containers >= self.containers {
            return bad("there are more spare containers than containers");
        }
        if self.journal_blocks < 16 || self.metadata_blocks < 16 || self.containers < 2 {
            return bad("journal, metadata or data are too small");
        }
        self.validate_growth()?;
        if self.journal_blocks > 1 << 24 || self.metadata_blocks > 1 << 31 {
            return bad("journal or metadata are too large");
        }
        if self.slots() > 1 << SLOT_BITS {
            return bad("there are more slots than a slot address can name");
        }
        Ok(())
    }

    fn validate_growth(&self) -> Result<(), BadGeometry> {
        let used = self.growth.iter().take_while(|growth| **growth != Growth::default()).count();
        if self.growth[used..].iter().any(|growth| *growth != Growth::default()) {
            return Err(BadGeometry("its growths have a gap"));
        }
        let (mut metadata_blocks, mut containers) = (0, 0);
        for growth in &self.growth[..used] {
            if growth.metadata_blocks == 0 || growth.containers == 0 {
                return Err(BadGeometry("a growth without metadata or without containers"));
            }
            metadata_blocks += u64::from(growth.metadata_blocks);
            containers += u64::from(growth.containers);
        }
        if metadata_blocks + 16 > u64::from(self.metadata_blocks) || containers + 2 > u64::from(self.containers) {
            return Err(BadGeometry("its growths are more than the whole"));
        }
        Ok(())
    }

    /// Bytes of one block, as a length.
    pub fn block(&self) -> u64 {
        u64::from(self.block_size)
    }

    /// Slots of the pool.
    pub fn slots(&self) -> u64 {
        u64::from(self.containers) * u64::from(self.slots_per_container)
    }

    /// First block of the journal.
    pub fn journal_start(&self) -> u64 {
        self.place_b + 2
    }

    /// First block of the meta map's homes.
    pub fn meta_map_start(&self) -> u64 {
        self.journal_start() + u64::from(self.journal_blocks)
    }

    /// Bits that one leaf of the meta map holds: one per metadata block.
    pub fn meta_map_leaf_bits(&self) -> u64 {
        self.block() * 8
    }

    /// Leaves of the meta map.
    pub fn meta_map_leaves(&self) -> u64 {
        u64::from(self.metadata_blocks).div_ceil(self.meta_map_leaf_bits())
    }

    /// Pages of the meta map, all levels.
    pub fn meta_map_pages(&self) -> u64 {
        let (mut level, mut total) = (self.meta_map_leaves(), 0);
        loop {
            total += level;
            if level == 1 {
                return total;
            }
            level = level.div_ceil(self.fanout());
        }
    }

    /// First block of copy-on-write metadata.
    pub fn metadata_start(&self) -> u64 {
        self.meta_map_start() + 2 * self.meta_map_pages()
    }

    /// First block of the first container.
    pub fn data_start(&self) -> u64 {
        let end = self.metadata_start() + u64::from(self.metadata_blocks);
        end.next_multiple_of(u64::from(self.slots_per_container))
    }

    /// Blocks of the whole store.
    pub fn total_blocks(&self) -> u64 {
        self.data_start() + self.slots()
    }

    /// Bytes of the whole store: what the backing file or device must have.
    pub fn total_bytes(&self) -> u64 {
        self.total_blocks() * self.block()
    }

    /// Bytes of data that fit: the capacity that users see.
    pub fn capacity_bytes(&self) -> u64 {
        u64::from(self.containers - self.spare_containers) * u64::from(self.slots_per_container) * self.block()
    }

    /// Children of an interior page.
    pub fn fanout(&self) -> u64 {
        self.block() / 16
    }

    /// Slots of a leaf of the space map.
    pub fn space_leaf_slots(&self) -> u64 {
        self.block() * 4
    }

    /// Leaves of the space map.
    pub fn space_leaves(&self) -> u64 {
        self.slots().div_ceil(self.space_leaf_slots())
    }

    /// Block of the store where a slot lies.
    pub fn slot_block(&self, slot: u64) -> u64 {
        self.data_start() + slot
    }

    /// Entries of a map leaf.
    pub fn map_leaf_entries(&self) -> u64 {
        self.block() / 8
    }

    /// Block of superblock place 0 (A) or 1 (B) for an epoch.
    pub fn superblock_block(&self, place: usize, epoch: u64) -> u64 {
        (if place == 0 { 0 } else { self.place_b }) + epoch % 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_follow_each_other_and_containers_are_aligned() {
        for capacity in [1u64 << 20, 10 << 30, 1 << 40, 64 << 40] {
            let g = Geometry::for_capacity(capacity).unwrap();
            assert!(g.capacity_bytes() >= capacity);
            assert!(g.journal_start() > g.place_b + 1);
            assert!(g.metadata_start() >= g.meta_map_start() + 2);
            assert_eq!(g.data_start() % u64::from(g.slots_per_container), 0);
            let overhead = g.total_bytes() - g.capacity_bytes();
            assert!(overhead < g.capacity_bytes() / 15 + (224 << 20), "{overhead}");
        }
    }

    #[test]
    fn impossible_geometries_are_refused() {
        assert!(Geometry::for_capacity(u64::MAX).is_err());
        let good = Geometry::for_capacity(1 << 30).unwrap();
        assert!(Geometry { block_size: 3000, ..good }.validate().is_err());
        assert!(Geometry { slots_per_container: 0, ..good }.validate().is_err());
        assert!(Geometry { containers: u32::MAX, slots_per_container: 65536, ..good }.validate().is_err());
    }
}
