//! Layout of the backing store: recorded in every superblock, and fixed when a pool is created, except for growths, which append at the end.
//!
//! In blocks of `block_size` bytes, in this order (docs/reference/disk-format.md has the picture):
//!
//! ```text
//! 0, 1                  superblock place A: even epochs, odd epochs
//! 2                     owner of the pool (owner.rs)
//! place_b, place_b + 1  superblock place B: even epochs, odd epochs
//! journal               a ring
//! meta map              two locations for each page of the map of metadata pages: interior pages, then leaves
//! metadata              copy-on-write pages: volume maps, space map, containers, counts, summaries, volumes, discards
//! data                  containers, aligned to their own size
//! each growth           locations for the further leaves that its metadata needs, metadata, data
//! ```
//!
//! Metadata blocks and containers are numbered through all growths (docs/rfc/0006). A numbered block keeps its place: a growth only adds
//! beyond the end, or extends the last run of containers.

use crate::api::BadGeometry;
use core::cmp::Ordering;

use crate::format::layout::SUMMARY_BYTES;

/// Product's block size in bytes.
pub const BLOCK_SIZE: u32 = 4096;
/// Product's slots per container: containers of 4 MiB.
pub const SLOTS_PER_CONTAINER: u32 = 1024;
/// Product's byte offset of superblock place B.
pub const PLACE_B_OFFSET: u64 = 1 << 20;
/// Product's longest request of one piece, in bytes.
pub const PIECE_SIZE: u32 = 1 << 20;
/// Number of bits of a slot address in a map leaf.
pub const SLOT_BITS: u32 = 36;

/// Maximum number of growths that add metadata to a pool.
pub const GROWTHS: usize = 7;
/// Growths of a pool that has not grown.
pub const UNGROWN: [Growth; GROWTHS] = [Growth { metadata_blocks: 0, containers: 0 }; GROWTHS];

/// Metadata blocks and containers that one growth appended at the end of the store; all zero if unused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Growth {
    /// Number of blocks of copy-on-write metadata.
    pub metadata_blocks: u32,
    /// Number of containers of data.
    pub containers: u32,
}

/// Geometry of a pool. All fields are fixed at creation, except those that say that they grow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Geometry {
    /// Number of bytes per block: a power of two, 512 to 4096.
    pub block_size: u32,
    /// Number of slots per container: a power of two, 4 to 32,768.
    pub slots_per_container: u32,
    /// Maximum number of blocks that a read or write may touch, without the additional one of an unaligned request.
    pub piece_blocks: u32,
    /// First block of superblock place B, at least 2.
    pub place_b: u64,
    /// Number of blocks of the journal ring.
    pub journal_blocks: u32,
    /// Number of blocks of copy-on-write metadata, including those of growths. Grows.
    pub metadata_blocks: u32,
    /// Number of containers of data, including the spare ones and those of growths. Grows.
    pub containers: u32,
    /// Number of containers that do not count as capacity (overprovisioning). With them a full pool can still be overwritten, because new blocks need slots
    /// before the old ones are free. Grows.
    pub spare_containers: u32,
    /// Growths in order; the unused ones are last. The base has the rest of the pool.
    pub growth: [Growth; GROWTHS],
}

/// Maximum number of slots for each metadata block of 4096 bytes after a growth without new metadata. Summaries and counts take a block for 145 slots; the rest
/// is for maps and for copies.
const MOST_SLOTS_PER_METADATA_BLOCK: u64 = 48;
/// Slots for each metadata block of 4096 bytes after a growth with new metadata. The pool can then double without any. After one of the later growths, of which
/// few are left, it can become four times as large. So small steps from a gibibyte get to terabytes.
const GROWN_SLOTS_PER_METADATA_BLOCK: [u64; GROWTHS] = [24, 24, 24, 12, 12, 12, 12];

/// Error when metadata can no longer be added.
const NO_GROWTH_LEFT: BadGeometry =
    BadGeometry("metadata has been added as often as it can be, and is too little for more");

/// Run of consecutive blocks on the store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Run {
    /// Number of the first block among all of its kind.
    first: u64,
    /// Length of the run.
    pub count: u64,
    /// Position of its first block on the store.
    pub block: u64,
}

impl Run {
    fn end_block(&self) -> u64 {
        self.block + self.count
    }
}

/// Part of the pool that was laid out at once: the base, or a growth.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Segment {
    /// Locations of pages of the meta map.
    pub meta_map: Run,
    /// Metadata blocks of the part.
    metadata: Run,
    /// Slots of the part.
    data: Run,
}

/// Returns the number of spare containers in a pool of `wanted` others: an eighth, between 8 and 1024.
fn spare_containers(wanted: u64) -> u64 {
    (wanted / 8).clamp(8, 1024)
}

impl Geometry {
    /// Computes the product's geometry for a pool of at least `capacity` bytes of data (rounded up to whole containers).
    pub fn for_capacity(capacity: u64) -> Result<Geometry, BadGeometry> {
        let container = u64::from(BLOCK_SIZE) * u64::from(SLOTS_PER_CONTAINER);
        let wanted = capacity.div_ceil(container).max(4);
        let spare = spare_containers(wanted);
        let containers = u32::try_from(wanted + spare).map_err(|_| BadGeometry("the capacity is too large"))?;
        let data_blocks = u64::from(containers) * u64::from(SLOTS_PER_CONTAINER);
        // Summaries take 24 bytes a slot, maps 8 bytes a mapped block; copy-on-write may need both twice for a while.
        let metadata = data_blocks / 32 + 8192;
        let metadata_blocks =
            u32::try_from(metadata).map_err(|_| BadGeometry("the capacity is too large for one pool"))?;
        let journal_blocks = (data_blocks / 32).clamp(4096, 65536) as u32;
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

    /// Checks every field; no other function may be called on a geometry that fails.
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
        if self.journal_blocks > 1 << 24 || u64::from(self.metadata_blocks) > self.max_metadata_blocks() {
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

    /// Returns the bytes of one block, as a length.
    pub fn block(&self) -> u64 {
        u64::from(self.block_size)
    }

    /// Returns the number of slots in all containers, spare ones included.
    pub fn slots(&self) -> u64 {
        u64::from(self.containers) * u64::from(self.slots_per_container)
    }

    /// Returns the number of blocks of the largest possible volume.
    pub fn most_volume_blocks(&self) -> u64 {
        crate::format::volume::most_blocks(self)
    }

    /// Returns the first block of the journal, two behind the superblock's place B.
    pub fn journal_start(&self) -> u64 {
        self.place_b + 2
    }

    /// Returns the first block of the meta map's locations, directly after the journal.
    pub fn meta_map_start(&self) -> u64 {
        self.journal_start() + u64::from(self.journal_blocks)
    }

    /// Returns the number of bits that one leaf of the meta map holds: one per metadata block.
    pub fn meta_map_leaf_bits(&self) -> u64 {
        self.block() * 8
    }

    /// Returns the number of leaves of the meta map for the pool's metadata.
    pub fn meta_map_leaves(&self) -> u64 {
        self.leaves_for(self.metadata_blocks.into())
    }

    fn leaves_for(&self, metadata_blocks: u64) -> u64 {
        metadata_blocks.div_ceil(self.meta_map_leaf_bits())
    }

    /// Returns the number of interior pages of the greatest possible meta map, with two levels of them. They have locations from the beginning.
    pub fn meta_map_interior_pages(&self) -> u64 {
        self.fanout() + 1
    }

    /// Returns the most blocks of metadata that a pool can reach: all that two levels of interior pages of the meta map cover. That is 2^31 with blocks of 4096
    /// bytes.
    pub fn max_metadata_blocks(&self) -> u64 {
        self.fanout() * self.fanout() * self.meta_map_leaf_bits()
    }

    /// Returns the number of pages of the meta map that have locations.
    pub fn meta_map_pages(&self) -> u64 {
        self.meta_map_interior_pages() + self.meta_map_leaves()
    }

    /// Returns the number of a page of the meta map among those that have locations: interior pages of the lower level, of the upper level, leaves. Page `n`
    /// has the locations `2 n` and `2 n + 1`.
    pub(crate) fn meta_map_page(&self, level: usize, index: u64) -> u64 {
        match level {
            0 => self.meta_map_interior_pages() + index,
            1 => index,
            _ => self.fanout() + index,
        }
    }

    /// Returns the first block of the copy-on-write metadata that the pool was created with.
    pub fn metadata_start(&self) -> u64 {
        self.base().metadata.block
    }

    /// Returns the first block of the first container.
    pub fn data_start(&self) -> u64 {
        self.base().data.block
    }

    /// Returns the byte ranges of the metadata on the store: offset and length, one for each part of the pool.
    pub fn metadata_ranges(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.segments().map(|segment| (segment.metadata.block * self.block(), segment.metadata.count * self.block()))
    }

    /// Returns the block on the store of a location of the meta map.
    pub(crate) fn meta_map_block(&self, page: u64) -> u64 {
        self.locate(|segment| segment.meta_map, page).0
    }

    /// Returns the block on the store of a metadata block.
    pub(crate) fn metadata_block(&self, number: u64) -> u64 {
        self.locate(|segment| segment.metadata, number).0
    }

    /// Returns the place of metadata from a block's number on: block on the store, and the number of consecutive blocks there.
    pub(crate) fn metadata_run(&self, number: u64) -> (u64, u64) {
        self.locate(|segment| segment.metadata, number)
    }

    /// Returns the first block on the store of a container.
    pub fn container_block(&self, container: u32) -> u64 {
        self.container_run(container).0
    }

    /// Returns the place of containers from a number on: first block on the store, and the number of consecutive containers there.
    pub(crate) fn container_run(&self, container: u32) -> (u64, u32) {
        let per_container = u64::from(self.slots_per_container);
        let (block, blocks) = self.locate(|segment| segment.data, u64::from(container) * per_container);
        (block, (blocks / per_container) as u32)
    }

    fn locate(&self, part: impl Fn(&Segment) -> Run, number: u64) -> (u64, u64) {
        let holds = |run: &Run| number < run.first + run.count;
        let run = self.segments().map(|segment| part(&segment)).find(holds).expect("only what exists is looked for");
        let within = number - run.first;
        (run.block + within, run.count - within)
    }

    /// Returns the base and the growths, in order.
    pub(crate) fn segments(&self) -> impl Iterator<Item = Segment> + '_ {
        let mut growths = self.growth.iter().take_while(|growth| growth.containers > 0);
        core::iter::successors(Some(self.base()), move |before| {
            let growth = growths.next()?;
            Some(self.segment(before, growth.metadata_blocks.into(), growth.containers.into()))
        })
    }

    /// Computes the segment that the pool was created with: all blocks that growths did not append.
    fn base(&self) -> Segment {
        let (mut metadata_blocks, mut containers) = (u64::from(self.metadata_blocks), u64::from(self.containers));
        for growth in self.growth.iter().take_while(|growth| growth.containers > 0) {
            metadata_blocks -= u64::from(growth.metadata_blocks);
            containers -= u64::from(growth.containers);
        }
        let interior = Run { first: 0, count: 2 * self.meta_map_interior_pages(), block: self.meta_map_start() };
        let none = Run { first: 0, count: 0, block: 0 };
        let mut base =
            self.segment(&Segment { meta_map: interior, metadata: none, data: none }, metadata_blocks, containers);
        base.meta_map = Run { count: interior.count + base.meta_map.count, ..interior };
        base
    }

    /// Lays out the segment after `before`, with this much metadata and this many containers. Its locations are for the new leaves of the meta map.
    fn segment(&self, before: &Segment, metadata_blocks: u64, containers: u64) -> Segment {
        let per_container = u64::from(self.slots_per_container);
        let start = before.data.end_block().max(before.meta_map.end_block());
        let first = before.metadata.first + before.metadata.count;
        let leaves = self.leaves_for(first + metadata_blocks) - self.leaves_for(first);
        let meta_map = Run { first: before.meta_map.first + before.meta_map.count, count: 2 * leaves, block: start };
        let metadata = Run { first, count: metadata_blocks, block: meta_map.end_block() };
        let data = Run {
            first: before.data.first + before.data.count,
            count: containers * per_container,
            block: metadata.end_block().next_multiple_of(per_container),
        };
        Segment { meta_map, metadata, data }
    }

    /// Computes the product's geometry for a pool of at least `capacity` bytes of data, whose metadata is at least `percent` of these bytes.
    pub fn with_metadata(capacity: u64, percent: u64) -> Result<Geometry, BadGeometry> {
        let geometry = Geometry::for_capacity(capacity)?;
        let wanted = u128::from(geometry.capacity_bytes() / geometry.block()) * u128::from(percent) / 100;
        let metadata = u32::try_from(wanted).map_err(|_| BadGeometry("the metadata is too large for one pool"))?;
        let geometry = Geometry { metadata_blocks: geometry.metadata_blocks.max(metadata), ..geometry };
        geometry.validate()?;
        Ok(geometry)
    }

    /// Computes the geometry after growing to at least `capacity` bytes of data (rounded up to whole containers). If metadata is enough, the last run of
    /// containers is extended. Otherwise a growth begins that brings more metadata than needed now.
    pub fn grown(&self, capacity: u64) -> Result<Geometry, BadGeometry> {
        self.grown_with(capacity, 0)
    }

    /// Computes the grown geometry as [`Geometry::grown`] does, with at least `metadata_blocks` blocks of metadata. If only these are wanted, the growth has
    /// one container, which is a spare one: the capacity is unchanged.
    pub fn grown_with(&self, capacity: u64, metadata_blocks: u64) -> Result<Geometry, BadGeometry> {
        let grown = self.grown_in_capacity(capacity, metadata_blocks > u64::from(self.metadata_blocks))?;
        if metadata_blocks <= u64::from(grown.metadata_blocks) {
            return Ok(grown);
        }
        if metadata_blocks > self.max_metadata_blocks() {
            return Err(BadGeometry("this much metadata is too large for one pool"));
        }
        let begun = self.growth.iter().take_while(|growth| growth.containers > 0).count();
        let mut grown = grown;
        if grown.containers == self.containers {
            grown.containers = self.containers.checked_add(1).ok_or(BadGeometry("the capacity is too large"))?;
            grown.spare_containers += 1;
        }
        let new = grown.growth.get_mut(begun).ok_or(NO_GROWTH_LEFT)?;
        let metadata_blocks = metadata_blocks as u32;
        *new = Growth {
            metadata_blocks: metadata_blocks - self.metadata_blocks,
            containers: grown.containers - self.containers,
        };
        grown.metadata_blocks = metadata_blocks;
        grown.validate()?;
        Ok(grown)
    }

    /// Returns the number of times that metadata can still be added.
    pub fn growths_left(&self) -> usize {
        self.growth.iter().filter(|growth| growth.containers == 0).count()
    }

    /// Computes the growth to a capacity. With `begins`, a separate growth follows, so the last one is not extended.
    fn grown_in_capacity(&self, capacity: u64, begins: bool) -> Result<Geometry, BadGeometry> {
        let wanted = capacity.div_ceil(u64::from(self.slots_per_container) * self.block());
        match wanted.cmp(&u64::from(self.containers - self.spare_containers)) {
            Ordering::Less => return Err(BadGeometry("a pool cannot become smaller")),
            Ordering::Equal => return Ok(*self),
            Ordering::Greater => {}
        }
        let spare = spare_containers(wanted).max(self.spare_containers.into());
        let containers = u32::try_from(wanted + spare).map_err(|_| BadGeometry("the capacity is too large"))?;
        let mut grown = Geometry { containers, spare_containers: spare as u32, ..*self };
        let added = containers - self.containers;
        let begun = self.growth.iter().take_while(|growth| growth.containers > 0).count();
        let most = self.per_metadata_block(MOST_SLOTS_PER_METADATA_BLOCK);
        if u64::from(self.metadata_blocks) * most >= grown.slots() {
            if begins {
                return Ok(grown);
            }
            if let Some(last) = begun.checked_sub(1) {
                grown.growth[last].containers += added;
            }
        } else {
            let new = grown.growth.get_mut(begun).ok_or(NO_GROWTH_LEFT)?;
            let slots = u64::from(containers) * u64::from(self.slots_per_container);
            let metadata = slots / self.per_metadata_block(GROWN_SLOTS_PER_METADATA_BLOCK[begun]);
            let metadata = metadata.min(self.max_metadata_blocks());
            if metadata * most < slots {
                return Err(BadGeometry("the capacity is too large for one pool"));
            }
            let metadata = metadata as u32 - self.metadata_blocks;
            *new = Growth { metadata_blocks: metadata, containers: added };
            grown.metadata_blocks += metadata;
        }
        grown.validate()?;
        Ok(grown)
    }

    /// Converts a number of slots for a metadata block of 4096 bytes to blocks of this geometry; at least 1.
    fn per_metadata_block(&self, slots: u64) -> u64 {
        (slots * self.block() / u64::from(BLOCK_SIZE)).max(1)
    }

    /// Returns the greatest capacity in bytes that [`Geometry::grown`] can reach: at least the present one.
    pub fn greatest_capacity(&self) -> u64 {
        let container = u64::from(self.slots_per_container) * self.block();
        let (mut possible, mut impossible) = (self.capacity_bytes() / container, (1 << SLOT_BITS) + 1);
        while impossible - possible > 1 {
            let middle = possible.midpoint(impossible);
            match self.grown(middle * container) {
                Ok(_) => possible = middle,
                Err(_) => impossible = middle,
            }
        }
        possible * container
    }

    /// Returns the blocks of the whole store, up to the end of the last container.
    pub fn total_blocks(&self) -> u64 {
        self.segments().last().map_or(0, |segment| segment.data.end_block())
    }

    /// Returns the bytes of the whole store: the size that the backing file or device must have.
    pub fn total_bytes(&self) -> u64 {
        self.total_blocks() * self.block()
    }

    /// Returns the number of slots of the spare containers (overprovisioning), for blocks that replace others.
    pub fn spare_slots(&self) -> u64 {
        u64::from(self.spare_containers) * u64::from(self.slots_per_container)
    }

    /// Returns the bytes of data that fit: the capacity that users see.
    pub fn capacity_bytes(&self) -> u64 {
        u64::from(self.containers - self.spare_containers) * u64::from(self.slots_per_container) * self.block()
    }

    /// Returns the most children of an interior page: one for 16 bytes.
    pub fn fanout(&self) -> u64 {
        self.block() / 16
    }

    /// Returns the number of slots whose summaries fit into one leaf.
    pub fn summary_leaf_slots(&self) -> u64 {
        self.block() / SUMMARY_BYTES
    }

    /// Returns the number of leaves that the summaries of all slots take.
    pub fn summary_leaves(&self) -> u64 {
        self.slots().div_ceil(self.summary_leaf_slots())
    }

    /// Returns the number of slots of a leaf of the space map: two bits for each.
    pub fn space_leaf_slots(&self) -> u64 {
        self.block() * 4
    }

    /// Returns the number of leaves of the space map for all slots.
    pub fn space_leaves(&self) -> u64 {
        self.slots().div_ceil(self.space_leaf_slots())
    }

    /// Returns the block of the store that holds a slot.
    pub fn slot_block(&self, slot: u64) -> u64 {
        let per_container = u64::from(self.slots_per_container);
        self.container_block((slot / per_container) as u32) + slot % per_container
    }

    /// Returns the number of entries of a map leaf, of 8 bytes each.
    pub fn map_leaf_entries(&self) -> u64 {
        self.block() / 8
    }

    /// Returns the block that names the pool's owner, if there is space for one: everywhere except in some pools of tests.
    pub fn owner_block(&self) -> Option<u64> {
        (self.place_b > 2).then_some(2)
    }

    /// Returns the block of superblock place 0 (A) or 1 (B) for an epoch: each place has two, used in turn.
    pub fn superblock_block(&self, place: usize, epoch: u64) -> u64 {
        (if place == 0 { 0 } else { self.place_b }) + epoch % 2
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

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
            // Spare containers, metadata for them and for the others, and the journal.
            let spare = (g.capacity_bytes() / 8).clamp(32 << 20, 4 << 30);
            assert!(overhead < spare + (g.capacity_bytes() + spare) / 31 + (328 << 20), "{overhead}");
        }
    }

    /// Checks the sizes that docs/guide/disks.md gives for a faster device before the others.
    #[test]
    fn the_journal_ends_within_260_mib_and_all_tables_within_a_32nd_and_512_mib() {
        for capacity in [1u64 << 20, 1 << 30, 10 << 30, 1 << 40, 32 << 40] {
            let g = Geometry::for_capacity(capacity).unwrap();
            assert!(g.meta_map_start() * g.block() <= 260 << 20);
            assert!(g.data_start() * g.block() <= capacity / 32 + (512 << 20));
        }
    }

    fn small() -> Geometry {
        Geometry {
            block_size: 512,
            slots_per_container: 8,
            piece_blocks: 8,
            place_b: 4,
            journal_blocks: 64,
            metadata_blocks: 300,
            containers: 16,
            spare_containers: 1,
            growth: UNGROWN,
        }
    }

    /// Lists the blocks of all numbered things: locations, metadata, slots.
    fn places(g: &Geometry) -> [Vec<u64>; 3] {
        let per_container = u64::from(g.slots_per_container);
        [
            (0..2 * g.meta_map_pages()).map(|page| g.meta_map_block(page)).collect(),
            (0..u64::from(g.metadata_blocks)).map(|number| g.metadata_block(number)).collect(),
            (0..g.slots())
                .map(|slot| g.container_block((slot / per_container) as u32) + slot % per_container)
                .collect(),
        ]
    }

    /// Checks that each has a separate block after the journal, inside the store, and that containers are aligned.
    fn check_places(g: &Geometry) {
        let places = places(g);
        let mut all: Vec<u64> = places.iter().flatten().copied().collect();
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count, "two things in one place: {g:?}");
        assert!(all[0] >= g.meta_map_start() && all[count - 1] == g.total_blocks() - 1);
        for (slot, block) in places[2].iter().enumerate() {
            assert_eq!(slot as u64 % u64::from(g.slots_per_container), block % u64::from(g.slots_per_container));
        }
    }

    #[test]
    fn growing_moves_nothing_and_every_number_has_a_place_of_its_own() {
        let mut random = 1u64;
        let mut draw = |below: u64| {
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (random >> 33) % below
        };
        let mut most_growths = 0;
        for _ in 0..20 {
            let mut g = Geometry {
                slots_per_container: 1 << (2 + draw(3)),
                metadata_blocks: 16 + draw(300) as u32,
                containers: 4 + draw(30) as u32,
                ..small()
            };
            check_places(&g);
            for _ in 0..8 {
                let before = g;
                let most = if draw(2) == 0 { 5000 } else { 4 * g.capacity_bytes() };
                let capacity = g.capacity_bytes() + draw(most);
                if capacity > 24 << 20 {
                    break;
                }
                g = g.grown(capacity).unwrap();
                assert!(g.capacity_bytes() >= capacity && g.spare_containers >= before.spare_containers);
                assert!(g.containers >= before.containers && g.total_blocks() >= before.total_blocks());
                assert!(g == before || u64::from(g.metadata_blocks) * 6 >= g.slots());
                check_places(&g);
                for (old, new) in places(&before).iter().zip(places(&g)) {
                    assert_eq!(old[..], new[..old.len()], "a growth from {before:?} to {g:?} moved something");
                }
                // The requested capacity is reached: asking again changes nothing.
                assert_eq!(g.grown(capacity), Ok(g));
            }
            most_growths = most_growths.max(g.growth.iter().filter(|growth| growth.containers > 0).count());
            // Growths that begin anywhere within a leaf of the meta map and add any number of leaves.
            for at in 0..GROWTHS {
                if g.growth[at] == Growth::default() {
                    let before = g;
                    g.growth[at] = Growth { metadata_blocks: 1 + draw(9000) as u32, containers: 1 + draw(5) as u32 };
                    g.metadata_blocks += g.growth[at].metadata_blocks;
                    g.containers += g.growth[at].containers;
                    check_places(&g);
                    for (old, new) in places(&before).iter().zip(places(&g)) {
                        assert_eq!(old[..], new[..old.len()], "a growth from {before:?} to {g:?} moved something");
                    }
                }
            }
        }
        assert!(most_growths >= 2, "{most_growths}");
    }

    #[test]
    fn runs_of_metadata_and_of_containers_end_where_a_segment_ends() {
        let mut g = small();
        g.growth[0] = Growth { metadata_blocks: 10, containers: 3 };
        g.growth[1] = Growth { metadata_blocks: 20, containers: 2 };
        assert_eq!((g.metadata_run(0).1, g.metadata_run(269).1, g.metadata_run(270).1), (270, 1, 10));
        assert_eq!((g.container_run(0).1, g.container_run(12).1, g.container_run(15).1), (11, 2, 1));
        assert_eq!(g.metadata_block(280), g.segments().last().unwrap().metadata.block);
        check_places(&g);
    }

    #[test]
    fn a_growth_of_the_product_goes_from_a_gibibyte_to_the_greatest_pool_in_small_and_in_large_steps() {
        let first = Geometry::for_capacity(1 << 30).unwrap();
        let at_once = first.grown(first.greatest_capacity()).unwrap();
        assert!(at_once.capacity_bytes() > 240 << 40, "{at_once:?}");
        assert_eq!(at_once.growth[1], Growth::default());
        let mut doubled = first;
        for power in 31..48 {
            doubled = doubled.grown(1 << power).unwrap();
        }
        assert!(doubled.capacity_bytes() >= 128 << 40, "{doubled:?}");
        // Small steps finally use up all growths; the error is then about them, and the greatest capacity is possible.
        let mut stepped = first;
        while let Ok(next) = stepped.grown(stepped.capacity_bytes() + (1 << 30)) {
            stepped = next;
        }
        assert!(stepped.capacity_bytes() > 2 << 40, "{stepped:?}");
        let limit = stepped.greatest_capacity();
        assert!(limit >= stepped.capacity_bytes() && stepped.grown(limit).is_ok());
        assert!(stepped.grown(limit + 1).unwrap_err().0.contains("as often as it can be"));
    }

    #[test]
    fn metadata_alone_grows_and_the_capacity_stays() {
        for first in [Geometry::for_capacity(1 << 30).unwrap(), small()] {
            let mut g = first;
            for left in (0..GROWTHS).rev() {
                let metadata = 2 * u64::from(g.metadata_blocks);
                let grown = g.grown_with(g.capacity_bytes(), metadata).unwrap();
                assert_eq!((u64::from(grown.metadata_blocks), grown.growths_left()), (metadata, left));
                assert_eq!(grown.capacity_bytes(), g.capacity_bytes());
                assert_eq!(grown.grown_with(g.capacity_bytes(), metadata), Ok(grown), "asking again changes nothing");
                // With more capacity in one growth; and later growths of capacity alone need no metadata.
                let both = g.grown_with(g.capacity_bytes() + 1, metadata).unwrap();
                assert!(both.capacity_bytes() > g.capacity_bytes() && both.growths_left() == left);
                assert_eq!(grown.grown(grown.capacity_bytes() + 1).unwrap().growths_left(), left);
                if first == small() && grown.total_blocks() < 1 << 16 {
                    check_places(&grown);
                    check_places(&both);
                }
                g = grown;
            }
            assert!(
                g.grown_with(g.capacity_bytes(), u64::from(g.metadata_blocks) + 1)
                    .unwrap_err()
                    .0
                    .contains("as often as it can be")
            );
        }
    }

    #[test]
    fn a_pool_is_made_with_a_share_of_metadata() {
        let usual = Geometry::for_capacity(10 << 30).unwrap();
        assert_eq!(Geometry::with_metadata(10 << 30, 0), Ok(usual));
        let more = Geometry::with_metadata(10 << 30, 25).unwrap();
        assert_eq!(u64::from(more.metadata_blocks) * more.block(), (10 << 30) / 4);
        assert_eq!(more.capacity_bytes(), usual.capacity_bytes());
        assert!(Geometry::with_metadata(200 << 40, 1000).is_err());
    }

    #[test]
    fn a_pool_does_not_shrink_and_what_is_too_large_is_refused() {
        let g = Geometry::for_capacity(1 << 30).unwrap();
        assert!(g.grown((1 << 30) - (4 << 20)).unwrap_err().0.contains("smaller"));
        assert_eq!(g.grown(1 << 30), Ok(g));
        for capacity in [u64::MAX, 1 << 60, 1 << 49] {
            assert!(g.grown(capacity).is_err());
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
