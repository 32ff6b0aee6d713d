//! A synthetic pool of any size, without a writer: its metadata is a formula, and its pages are made when they are
//! read.
//!
//! It has one volume, `default`, all of whose blocks are mapped, block address = slot. An optional second volume, `other`, has the slots after those. The
//! slots behind them are empty. The content of a slot depends only on its place within a leaf of summaries. So all full leaves of summaries, of the space map
//! and of the container table have the same bytes and the same checksum. Leaves of the map all differ: each is hashed once, when the pool is made, and only
//! the checksums are kept (8 bytes for 2 MiB of pool). In such a pool the summaries say of each slot that it was first written for block 0. Garbage
//! collection needs the true owners: [`Pool::with_owners`] has them, and three times as many pages that differ.
//!
//! All knowledge of the format beyond `engine::encode` is in [`Table`] and [`Pool::fill_leaf`]. The engine's own audit shows that the pools are valid, in the
//! tests of `scale`.

use engine::encode::{CONTAINER_BYTES, SUMMARY_BYTES, VOLUME_BYTES, checksum, height_for, meta_map_location};
use engine::superblock::{Pointer, Root, TREES, TreeId};
use engine::{Digest, DigestFunction, Geometry, Parameters, Superblock, VolumeId, encode};

use crate::content::{CELLS, Cells, Content, ZERO, digest};
use crate::random::mix;

/// The volume.
pub const VOLUME: VolumeId = VolumeId(1);
/// The second volume, of pools that have one.
pub const OTHER_VOLUME: VolumeId = VolumeId(2);
/// Epoch in which all of it was written.
const EPOCH: u64 = 2;

/// Tables of the pool, by the content of their trees' leaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Table {
    Map,
    OtherMap,
    SpaceMap,
    Containers,
    Summaries,
    Volumes,
    MetaMap,
}

/// The trees in the metadata region, in their order there. The volume table names the roots of maps and comes after them.
const TABLES: [Table; 6] =
    [Table::Map, Table::OtherMap, Table::SpaceMap, Table::Containers, Table::Summaries, Table::Volumes];

impl Table {
    /// Returns the number of leaves that the table can have, from which its height follows.
    fn capacity(self, geometry: &Geometry, mapped: u64) -> u64 {
        let block = geometry.block();
        match self {
            Table::Map | Table::OtherMap => mapped.div_ceil(geometry.map_leaf_entries()),
            Table::SpaceMap => geometry.slots().div_ceil(4 * block),
            Table::Containers => u64::from(geometry.containers).div_ceil(block / CONTAINER_BYTES),
            Table::Summaries => geometry.slots().div_ceil(block / SUMMARY_BYTES),
            Table::Volumes => mapped.div_ceil(block / VOLUME_BYTES),
            Table::MetaMap => geometry.meta_map_leaves(),
        }
    }

    /// Returns the number of items, such as blocks or slots, that one leaf has entries for.
    fn entries_per_leaf(self, geometry: &Geometry) -> u64 {
        let block = geometry.block();
        match self {
            Table::Map | Table::OtherMap => geometry.map_leaf_entries(),
            Table::SpaceMap => 4 * block,
            Table::Containers => block / CONTAINER_BYTES,
            Table::Summaries => block / SUMMARY_BYTES,
            Table::Volumes => block / VOLUME_BYTES,
            Table::MetaMap => geometry.meta_map_leaf_bits(),
        }
    }

    /// Returns true if all full leaves have the same bytes.
    fn is_uniform(self) -> bool {
        matches!(self, Table::SpaceMap | Table::Containers | Table::Summaries | Table::MetaMap)
    }
}

/// One level of a tree: pages with consecutive locations.
struct Level {
    /// Location of the first page.
    first: u32,
    pages: u64,
    checksums: Checksums,
}

enum Checksums {
    Each(Vec<u64>),
    /// Checksum of all pages except the last, and checksum of the last.
    Same(u64, u64),
}

impl Level {
    fn pointer(&self, table: Table, geometry: &Geometry, level: usize, index: u64) -> Pointer {
        if index >= self.pages {
            return Pointer::NONE;
        }
        let location = match table {
            Table::MetaMap => meta_map_location(geometry, level, index),
            _ => self.first + index as u32,
        };
        let checksum = match &self.checksums {
            Checksums::Each(all) => all[index as usize],
            Checksums::Same(_, last) if index + 1 == self.pages => *last,
            Checksums::Same(full, _) => *full,
        };
        Pointer { location, birth: EPOCH as u32, checksum }
    }
}

struct Tree {
    table: Table,
    /// Levels of the tree, leaves first.
    levels: Vec<Level>,
}

impl Tree {
    fn root(&self, geometry: &Geometry) -> Root {
        let height = self.levels.len() - 1;
        Root { pointer: self.levels[height].pointer(self.table, geometry, height, 0), height: height as u8 }
    }
}

/// Blocks that repeat an earlier content: runs of `run` such blocks, at a share of one block in `one_in`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Doubles {
    /// Inverse of their share: one block in this number, at least two.
    pub one_in: u64,
    /// Length of a run of such blocks; their originals are consecutive, too.
    pub run: u64,
}

impl Doubles {
    /// Returns the number of doubles among the first `blocks` blocks.
    pub fn of(self, blocks: u64) -> u64 {
        let row = self.one_in * self.run;
        blocks / row * self.run + (blocks % row).saturating_sub(row - self.run)
    }

    /// Returns the slot that first had the content of this one.
    fn first(self, slot: u64) -> u64 {
        let row = self.one_in * self.run;
        let (number, place) = (slot / row, slot % row);
        // The first blocks of each row are no doubles.
        let Some(place) = place.checked_sub(row - self.run) else { return slot };
        mix(number) % (number + 1) * row + place
    }
}

/// The pool.
pub struct Pool {
    /// Its parameters.
    pub parameters: Parameters,
    /// Mapped blocks of the volume.
    pub mapped: u64,
    /// Mapped blocks of the second volume.
    pub other: u64,
    trees: Vec<Tree>,
    superblock: Superblock,
    /// Digests of the contents of slots, by place within a leaf of summaries.
    digests: Vec<Digest>,
    /// True if the summaries have for each slot the block that it was written for.
    has_owners: bool,
    /// Blocks with an earlier content among contents that all differ; only the metadata has these contents.
    doubles: Option<Doubles>,
    metadata_used: u64,
}

impl Pool {
    /// Makes a pool with one volume of `bytes`, all of it mapped, and space for `spare_bytes` more.
    pub fn new(bytes: u64, spare_bytes: u64) -> Result<Pool, engine::BadGeometry> {
        Pool::with_other(bytes, 0, spare_bytes)
    }

    /// Makes a pool like [`Pool::new`] with a second volume of `other_bytes`, all of it mapped, too.
    pub fn with_other(bytes: u64, other_bytes: u64, spare_bytes: u64) -> Result<Pool, engine::BadGeometry> {
        Pool::made(bytes, other_bytes, spare_bytes, false, None)
    }

    /// Makes a pool like [`Pool::new`] whose summaries have, for each slot, the block that it was written for.
    pub fn with_owners(bytes: u64, spare_bytes: u64) -> Result<Pool, engine::BadGeometry> {
        Pool::made(bytes, 0, spare_bytes, true, None)
    }

    /// Makes a pool like [`Pool::with_owners`] whose metadata has a different digest for each block, except for these doubles.
    pub fn with_doubles(bytes: u64, spare_bytes: u64, doubles: Doubles) -> Result<Pool, engine::BadGeometry> {
        Pool::made(bytes, 0, spare_bytes, true, Some(doubles))
    }

    fn made(
        bytes: u64,
        other_bytes: u64,
        spare_bytes: u64,
        has_owners: bool,
        doubles: Option<Doubles>,
    ) -> Result<Pool, engine::BadGeometry> {
        let geometry = Geometry::for_capacity(bytes + other_bytes + spare_bytes)?;
        let parameters = Parameters::new(geometry, *b"simulator: scale", [7; 32], DigestFunction::Aegis128X2);
        let (mapped, other) = (bytes / geometry.block(), other_bytes / geometry.block());
        let used = mapped + other;
        let mut superblock = Superblock::new(parameters);
        superblock.epoch = EPOCH;
        superblock.seal_epoch = EPOCH;
        superblock.data_used = used;
        superblock.next_volume = OTHER_VOLUME.0 + 1;
        superblock.reserved_containers = used.div_ceil(u64::from(geometry.slots_per_container)) as u32;
        let digests = (0..geometry.block() / SUMMARY_BYTES).map(|place| digest(&first_cells(place))).collect();
        let (trees, metadata_used) = (Vec::new(), 0);
        let mut pool =
            Pool { parameters, mapped, other, trees, superblock, digests, has_owners, doubles, metadata_used };
        for table in TABLES.into_iter().filter(|&table| table != Table::OtherMap || other > 0) {
            pool.plant(table);
        }
        // Planted last, when the number of blocks in use is known.
        pool.plant(Table::MetaMap);
        let mut roots = [Root::default(); TREES];
        for tree in &pool.trees {
            if let Some(id) = tree_id(tree.table) {
                roots[id as usize] = tree.root(&geometry);
            }
        }
        pool.superblock.roots = roots;
        Ok(pool)
    }

    /// Sets the size of pieces: requests that touch more than `blocks` blocks are cut.
    pub fn with_pieces(mut self, blocks: u32) -> Pool {
        for parameters in [&mut self.parameters, &mut self.superblock.parameters] {
            parameters.geometry.piece_blocks = blocks;
        }
        self
    }

    fn geometry(&self) -> &Geometry {
        &self.parameters.geometry
    }

    /// Returns the number of slots in use, which are the first ones.
    fn used(&self) -> u64 {
        self.mapped + self.other
    }

    /// Returns the number of entries in use of a table, from the first on.
    fn entries(&self, table: Table) -> u64 {
        match table {
            Table::Map => self.mapped,
            Table::OtherMap => self.other,
            Table::SpaceMap | Table::Summaries => self.used(),
            Table::Containers => self.used().div_ceil(u64::from(self.geometry().slots_per_container)),
            Table::Volumes => 1 + u64::from(self.other > 0),
            Table::MetaMap => self.metadata_used,
        }
    }

    /// Sets the location of a tree and computes its checksums, from the leaves up.
    fn plant(&mut self, table: Table) {
        let geometry = *self.geometry();
        let entries = self.entries(table);
        let mut pages = entries.div_ceil(table.entries_per_leaf(&geometry));
        let height = height_for(table.capacity(&geometry, entries), geometry.fanout());
        self.trees.push(Tree { table, levels: Vec::new() });
        for level in 0..=usize::from(height) {
            let is_uniform = table.is_uniform() && !(self.has_owners && table == Table::Summaries);
            let checksums = match is_uniform && level == 0 {
                true => Checksums::Same(self.page_checksum(table, 0, 0), self.page_checksum(table, 0, pages - 1)),
                false => Checksums::Each(self.page_checksums(table, level, pages)),
            };
            let first = self.metadata_used as u32 + 1;
            if table != Table::MetaMap {
                self.metadata_used += pages;
            }
            self.trees.last_mut().expect("planted above").levels.push(Level { first, pages, checksums });
            pages = pages.div_ceil(geometry.fanout());
        }
    }

    /// Computes the checksums of a level on all cores; the result does not depend on how the work is divided.
    fn page_checksums(&self, table: Table, level: usize, pages: u64) -> Vec<u64> {
        let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64);
        let share = pages.div_ceil(cores).max(1 << 12);
        std::thread::scope(|scope| {
            let part = |first: u64| {
                let end = pages.min(first + share);
                scope.spawn(move || {
                    (first..end).map(|index| self.page_checksum(table, level, index)).collect::<Vec<_>>()
                })
            };
            let parts: Vec<_> = (0..pages).step_by(share as usize).map(part).collect();
            parts.into_iter().flat_map(|part| part.join().expect("hashing cannot fail")).collect()
        })
    }

    fn page_checksum(&self, table: Table, level: usize, index: u64) -> u64 {
        let mut page = [0; 4096];
        self.fill_page(table, level, index, &mut page);
        checksum(self.parameters.seed(), &page)
    }

    /// Makes a page; those of a level are made from the checksums of the level below.
    fn fill_page(&self, table: Table, level: usize, index: u64, page: &mut [u8]) {
        if level == 0 {
            return self.fill_leaf(table, index, page);
        }
        let geometry = self.geometry();
        let below = &self.tree(table).levels[level - 1];
        for (i, out) in page.chunks_exact_mut(16).enumerate() {
            let child = index * geometry.fanout() + i as u64;
            below.pointer(table, geometry, level - 1, child).write(out, 0);
        }
    }

    fn tree(&self, table: Table) -> &Tree {
        self.trees.iter().find(|tree| tree.table == table).expect("planted")
    }

    fn fill_leaf(&self, table: Table, leaf: u64, page: &mut [u8]) {
        let geometry = self.geometry();
        let per_leaf = table.entries_per_leaf(geometry);
        let first = leaf * per_leaf;
        let count = per_leaf.min(self.entries(table) - first);
        match table {
            Table::Map | Table::OtherMap => {
                let first = first + if table == Table::OtherMap { self.mapped } else { 0 };
                for (slot, out) in (first..first + count).zip(page.chunks_exact_mut(8)) {
                    out.copy_from_slice(&encode::map_entry(slot, self.digest_of(slot)).to_le_bytes());
                }
            }
            // Two bits a slot: each slot has one reference.
            Table::SpaceMap => fill_bits(page, 2 * count, 0x55),
            Table::Containers => {
                // Includes the empty containers in the rest of the leaf.
                let all = per_leaf.min(u64::from(geometry.containers) - first);
                for (number, out) in (first..first + all).zip(page.chunks_exact_mut(CONTAINER_BYTES as usize)) {
                    encode::container(1, self.live_slots(number), out);
                }
            }
            Table::Summaries => {
                let entries = page.chunks_exact_mut(SUMMARY_BYTES as usize).take(count as usize);
                for (slot, out) in (first..).zip(entries) {
                    // Without owners the same block for all slots: it is a hint.
                    let owner = if self.has_owners { slot } else { 0 };
                    encode::summary(self.digest_of(slot), VOLUME, owner, out);
                }
            }
            Table::Volumes => {
                let volumes = [
                    (Table::Map, VOLUME, "default", self.mapped),
                    (Table::OtherMap, OTHER_VOLUME, "other", self.other),
                ];
                let entries = page.chunks_exact_mut(VOLUME_BYTES as usize).take(count as usize);
                for ((map, id, name, blocks), out) in volumes.into_iter().zip(entries) {
                    let (size, root) = (blocks * geometry.block(), self.tree(map).root(geometry));
                    encode::full_volume(id, name, size, geometry.block_size, root, out);
                }
            }
            Table::MetaMap => fill_bits(page, count, 0xff),
        }
    }

    /// Returns the digest that the metadata has for a slot in use.
    fn digest_of(&self, slot: u64) -> Digest {
        let Some(doubles) = self.doubles else {
            return self.digests[(slot % self.digests.len() as u64) as usize];
        };
        digest(&first_cells(doubles.first(slot)))
    }

    /// Counts the slots in use of a container.
    fn live_slots(&self, container: u64) -> u16 {
        let per_container = u64::from(self.geometry().slots_per_container);
        self.used().saturating_sub(container * per_container).min(per_container) as u16
    }

    /// Returns the content of a block of the store.
    pub fn read(&self, block: u64) -> Content {
        let geometry = self.geometry();
        if block >= geometry.data_start() {
            return Content::Payload(self.cells(block - geometry.data_start()));
        }
        let place_b = geometry.place_b;
        let is_superblock = block == EPOCH % 2 || block == place_b + EPOCH % 2;
        let page = if is_superblock {
            let mut bytes = vec![0; geometry.block_size as usize];
            self.superblock.encode(&mut bytes);
            Some(bytes)
        } else if block >= geometry.metadata_start() {
            self.metadata_page(block - geometry.metadata_start() + 1)
        } else if block >= geometry.meta_map_start() {
            self.meta_map_page(block - geometry.meta_map_start() + 1)
        } else {
            None
        };
        page.map_or(Content::Payload(ZERO), |bytes| Content::Metadata(bytes.into()))
    }

    fn metadata_page(&self, location: u64) -> Option<Vec<u8>> {
        let trees = self.trees.iter().filter(|tree| tree.table != Table::MetaMap);
        let mut levels =
            trees.flat_map(|tree| tree.levels.iter().enumerate().map(move |(at, level)| (tree, at, level)));
        let (tree, at, level) = levels.find(|(_, _, level)| {
            let first = u64::from(level.first);
            (first..first + level.pages).contains(&location)
        })?;
        self.page(tree.table, at, location - u64::from(level.first))
    }

    fn meta_map_page(&self, location: u64) -> Option<Vec<u8>> {
        let levels = &self.tree(Table::MetaMap).levels;
        let geometry = self.geometry();
        let (at, index) = levels.iter().enumerate().find_map(|(at, level)| {
            let first = u64::from(meta_map_location(geometry, at, 0));
            let index = location.checked_sub(first)? / 2;
            (index < level.pages && location == first + 2 * index).then_some((at, index))
        })?;
        self.page(Table::MetaMap, at, index)
    }

    fn page(&self, table: Table, level: usize, index: u64) -> Option<Vec<u8>> {
        let mut page = vec![0; self.geometry().block_size as usize];
        self.fill_page(table, level, index, &mut page);
        Some(page)
    }

    /// Returns the content of a slot, and so of the first volume's block of that address.
    pub fn cells(&self, slot: u64) -> Cells {
        match self.doubles {
            _ if slot >= self.used() => ZERO,
            Some(doubles) => first_cells(doubles.first(slot)),
            None => first_cells(slot % self.digests.len() as u64),
        }
    }
}

/// Returns the content of slots at a place within a leaf of summaries; with doubles, of slots whose content was first at `place`.
fn first_cells(place: u64) -> Cells {
    [place as u32 + 1; CELLS]
}

/// Fills the first `bits` of a page with a pattern that repeats in each byte.
fn fill_bits(page: &mut [u8], bits: u64, pattern: u8) {
    let (bytes, rest) = ((bits / 8) as usize, bits % 8);
    page[..bytes].fill(pattern);
    if rest > 0 {
        page[bytes] = pattern & ((1 << rest) - 1);
    }
}

fn tree_id(table: Table) -> Option<TreeId> {
    match table {
        Table::Map | Table::OtherMap => None,
        Table::SpaceMap => Some(TreeId::SpaceMap),
        Table::Containers => Some(TreeId::Containers),
        Table::Summaries => Some(TreeId::Summaries),
        Table::Volumes => Some(TreeId::Volumes),
        Table::MetaMap => Some(TreeId::MetaMap),
    }
}
