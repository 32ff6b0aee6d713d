//! A small pool with every kind of structure, the list of its structures, and the repair of its checksums after a change. (An attacker who crafts a pool can
//! compute checksums.)

use std::collections::{BTreeMap, BTreeSet};

use engine::encode::{VOLUME_BYTES, checksum};
use engine::superblock::{MAGIC, SUPERBLOCK_SIZE, TREES, TreeId};
use engine::{
    Command, DeviceKind, DeviceTraits, DigestFunction, Engine, Geometry, Limits, Parameters, Policy, Superblock,
    UNGROWN, VolumeId,
};

use super::driver::{Driver, Task, probe};

/// Bytes of a block.
pub const BLOCK: usize = 512;
/// Block of superblock place B.
pub const PLACE_B: u64 = 2;
/// Size of a record's header in bytes, and position of its checksum (docs/reference/disk-format.md).
pub const RECORD_HEADER: usize = 64;
/// Size of a journal entry in bytes.
pub const RECORD_ENTRY: usize = 40;
const RECORD_CHECKSUM_AT: usize = 56;
const ROOTS_AT: usize = 256;
const ROOT_SIZE: usize = 17;
/// Bytes of a pointer, and of an entry of the discard list.
const POINTER: usize = 16;
const DISCARD: usize = 24;
/// Upper bound for the pages of the pool.
const MOST_PAGES: usize = 4096;

/// Limits with little memory for the engine, so that every table reaches its maximum.
pub const LIMITS: Limits = Limits {
    buffers: 48,
    write_buffers: 24,
    pages: 96,
    index_entries: 64,
    index_chunk: 16,
    index_tag_bits: 8,
    sharing_digest_bits: 0,
    discard_leaves: 1,
    discards: 64,
    delta_entries: 64,
    map_buffer: 24,
    buffered_per_leaf: crate::runs::config::ALWAYS_BUFFERED,
    read_ahead: 1024,
    device: DeviceTraits::SSD,
    requests: 4,
    volumes: engine::MAX_VOLUMES as u32,
    cache: crate::runs::config::GIVEN_CACHE,
};

fn parameters() -> Parameters {
    let geometry = Geometry {
        block_size: BLOCK as u32,
        slots_per_container: 8,
        piece_blocks: 4,
        place_b: PLACE_B,
        journal_blocks: 32,
        metadata_blocks: 192,
        containers: 12,
        spare_containers: 1,
        growth: UNGROWN,
    };
    Parameters::new(geometry, *b"a pool to fuzz..", [7; 32], DigestFunction::Aegis128X2)
}

/// The pools that fuzzing begins with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Closed cleanly, with a discard that has not been worked off.
    Closed,
    /// Crashed: with records in the journal.
    Crashed,
    /// Crashed, with snapshots and a clone: volumes 1, 2 and 6, of which 6 is a clone of snapshot 4; snapshot 3 of volume 1; snapshots 4 and 5 of volume 2.
    /// Snapshot 4 is deleted, and others inherit from it.
    Family,
}

/// Makes a pool with three volumes, one of which is deleted, and with new, shared, zero and discarded blocks in tables
/// and journal.
pub fn make(kind: Kind) -> Vec<u8> {
    if kind == Kind::Family {
        return make_family();
    }
    let mut driver = new_pool();
    let full = Some(Policy::Full);
    for (name, blocks, policy) in [("a", 40, full), ("b", 3000, Some(Policy::Native)), ("c", 4000, full)] {
        let size = blocks * BLOCK as u64;
        driver.control(Command::CreateVolume { name, size, policy }).expect("answered").expect("created");
    }
    let mut task = |volume, lba: u64, count: u64, task: Task<'_>| {
        let (offset, length) = (lba * BLOCK as u64, count * BLOCK as u64);
        driver.request(VolumeId(volume), offset, length, task).expect("answered").expect("served");
    };
    for lba in 0..6 {
        task(1, lba, 1, Task::Write(&[lba as u8 + 1; 20]));
        task(2, lba * 500, 1, Task::Write(&[lba as u8 + 1; 30]));
        task(3, lba * 64, 2, Task::Write(&[lba as u8 / 2 + 1; 20]));
    }
    task(1, 10, 4, Task::WriteZeroes);
    task(1, 4, 1, Task::Trim);
    driver.control(Command::Settle).expect("answered").expect("settled");
    // The last checkpoint defers the writes of their leaves.
    for leaf in 1..4u64 {
        let (offset, length) = (leaf * 64 * BLOCK as u64, BLOCK as u64);
        driver.request(VolumeId(2), offset, length, Task::Write(&[leaf as u8; 40])).expect("answered").expect("served");
    }
    driver.control(Command::DeleteVolume { volume: VolumeId(3) }).expect("answered").expect("deleted");
    driver.control(Command::Close).expect("answered").expect("closed");
    if kind == Kind::Closed {
        return driver.image;
    }
    let Ok(mut driver) = Driver::open(driver.image, LIMITS, Engine::open) else { panic!("a closed pool opens") };
    let size = 50 * BLOCK as u64;
    driver.control(Command::ResizeVolume { volume: VolumeId(1), size }).expect("answered").expect("resized");
    let mut task = |volume, lba: u64, count: u64, task: Task<'_>| {
        let (offset, length) = (lba * BLOCK as u64, count * BLOCK as u64);
        driver.request(VolumeId(volume), offset, length, task).expect("answered").expect("served");
        driver.request(VolumeId(volume), 0, 0, Task::Flush).expect("answered").expect("flushed");
    };
    task(1, 20, 1, Task::Write(&[1; 20]));
    task(2, 700, 4, Task::Write(&[99; 10]));
    task(1, 0, 3, Task::Trim);
    task(1, 21, 1, Task::WriteZeroes);
    task(2, 500, 1, Task::Write(&[77; 10]));
    driver.image
}

/// Makes an empty pool.
fn new_pool() -> Driver {
    let parameters = parameters();
    let mut image = vec![0; parameters.geometry.total_blocks() as usize * BLOCK];
    for (offset, bytes) in engine::format(parameters, DeviceKind::Auto).blocks {
        image[offset as usize..offset as usize + bytes.len()].copy_from_slice(&bytes);
    }
    Driver::open(image, LIMITS, Engine::open).unwrap_or_else(|_| panic!("a new pool opens"))
}

/// Makes the pool of [`Kind::Family`].
fn make_family() -> Vec<u8> {
    fn command(driver: &mut Driver, command: Command<'_>) {
        driver.control(command).expect("answered").expect("done");
    }
    fn write(driver: &mut Driver, volume: u16, blocks: &[(u64, u8)]) {
        for &(lba, content) in blocks {
            let (offset, length) = (lba * BLOCK as u64, BLOCK as u64);
            let written = driver.request(VolumeId(volume), offset, length, Task::Write(&[content; 20]));
            written.expect("answered").expect("served");
        }
    }
    let mut driver = new_pool();
    for (name, blocks) in [("a", 40), ("b", 3000)] {
        let (size, policy) = (blocks * BLOCK as u64, Some(Policy::Full));
        command(&mut driver, Command::CreateVolume { name, size, policy });
    }
    write(&mut driver, 1, &[(0, 1), (1, 2), (2, 3), (7, 4)]);
    write(&mut driver, 2, &[(0, 11), (1, 2), (64, 13), (130, 14), (2100, 15), (2990, 16)]);
    let both = [VolumeId(1), VolumeId(2)];
    command(&mut driver, Command::CreateSnapshots { volumes: &both, name: "one", seconds: 1 });
    write(&mut driver, 2, &[(0, 21), (2100, 22)]);
    command(&mut driver, Command::CreateSnapshots { volumes: &[VolumeId(2)], name: "two", seconds: 2 });
    command(&mut driver, Command::CloneSnapshot { snapshot: VolumeId(4), name: "c" });
    write(&mut driver, 6, &[(1, 31), (130, 32)]);
    command(&mut driver, Command::DeleteVolume { volume: VolumeId(4) });
    write(&mut driver, 1, &[(1, 41)]);
    command(&mut driver, Command::Settle);
    command(&mut driver, Command::Close);
    let Ok(mut driver) = Driver::open(driver.image, LIMITS, Engine::open) else { panic!("a closed pool opens") };
    write(&mut driver, 1, &[(2, 51)]);
    write(&mut driver, 6, &[(64, 52)]);
    write(&mut driver, 2, &[(2100, 53)]);
    let trimmed = driver.request(VolumeId(2), 130 * BLOCK as u64, BLOCK as u64, Task::Trim);
    trimmed.expect("answered").expect("served");
    driver.request(VolumeId(1), 0, 0, Task::Flush).expect("answered").expect("flushed");
    driver.image
}

/// A structure on the store.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Structure {
    /// A copy of a superblock.
    Superblock,
    /// A block of the journal that a record has written.
    Journal,
    /// A page of a table.
    Table(usize),
    /// A page of a volume's map.
    Map,
    /// A page of a subtree that is to be discarded.
    Discarded,
    /// A block of data.
    Data,
}

/// Finds every structure of a pool, by the byte at which it begins.
pub fn structures(image: &[u8]) -> BTreeMap<usize, Structure> {
    let superblock = probe(image).expect("a pool");
    let geometry = superblock.parameters.geometry;
    let mut found = BTreeMap::new();
    let at = |block: u64| block as usize * BLOCK;
    found.extend([0, 1, PLACE_B, PLACE_B + 1].map(|block| (at(block), Structure::Superblock)));
    let written = |block: &u64| image[at(*block)..][..BLOCK].iter().any(|&byte| byte != 0);
    let journal = geometry.journal_start()..geometry.journal_start() + u64::from(geometry.journal_blocks);
    found.extend(journal.filter(written).map(|block| (at(block), Structure::Journal)));
    found.extend(
        (geometry.data_start()..geometry.total_blocks()).filter(written).map(|block| (at(block), Structure::Data)),
    );
    let mut image = image.to_vec();
    let mut walk = Walk { image: &mut image, superblock, done: BTreeSet::new(), found };
    walk.roots();
    walk.found
}

/// Corrects every checksum along the newest superblock's trees and the journal's chain, as far as they can be followed.
pub fn reseal(image: &mut [u8]) {
    for slot in [0, 1, PLACE_B, PLACE_B + 1] {
        seal_superblock(image, slot as usize * BLOCK);
    }
    let Some(superblock) = probe(image) else { return };
    Walk { image, superblock, done: BTreeSet::new(), found: BTreeMap::new() }.roots();
    reseal_journal(image, &superblock);
}

fn seal_superblock(image: &mut [u8], at: usize) {
    let block = &mut image[at..at + SUPERBLOCK_SIZE];
    if block[..8] == MAGIC {
        let sum = checksum(0, &block[..SUPERBLOCK_SIZE - 8]);
        block[SUPERBLOCK_SIZE - 8..].copy_from_slice(&sum.to_le_bytes());
    }
}

/// Gives the record at a ring block, whose header is in place, the checksum that it needs; `None` if it cannot be a record.
fn reseal_record(image: &mut [u8], geometry: &Geometry, seed: u64, position: u32) -> Option<(u32, u64)> {
    let ring = geometry.journal_blocks;
    let place = |block: u32| (geometry.journal_start() as usize + ((position + block) % ring) as usize) * BLOCK;
    let header = &image[place(0)..][..RECORD_HEADER];
    let pages = u32::from(u16::from_le_bytes([header[4], header[5]]));
    let blocks = u32::from(u16::from_le_bytes([header[6], header[7]]));
    if &header[..4] != b"OFJ1" || pages == 0 || pages + blocks > ring {
        return None;
    }
    let mut bytes: Vec<u8> = (0..pages).flat_map(|page| image[place(page)..][..BLOCK].to_vec()).collect();
    bytes[RECORD_CHECKSUM_AT..RECORD_HEADER].fill(0);
    let sum = checksum(seed, &bytes);
    image[place(0) + RECORD_CHECKSUM_AT..][..8].copy_from_slice(&sum.to_le_bytes());
    Some((pages + blocks, sum))
}

/// Corrects the checksums of the chain of records from the newest superblock's position on.
fn reseal_journal(image: &mut [u8], superblock: &Superblock) {
    let parameters = superblock.parameters;
    let (ring, mut position) = (parameters.geometry.journal_blocks, superblock.journal_position);
    let (mut previous, mut walked, mut sequence) = (superblock.included_checksum, 0, superblock.included);
    while walked < ring {
        let at = (parameters.geometry.journal_start() + u64::from(position)) as usize * BLOCK;
        // Remains of an earlier round of the ring stay out of the chain.
        sequence = sequence.wrapping_add(1);
        if image[at + 8..at + 16] != sequence.to_le_bytes() {
            return;
        }
        image[at + 24..at + 32].copy_from_slice(&previous.to_le_bytes());
        let Some((blocks, sum)) = reseal_record(image, &parameters.geometry, parameters.seed(), position) else {
            return;
        };
        (previous, walked, position) = (sum, walked + blocks, (position + blocks) % ring);
    }
}

/// A walk through all trees, children first, that puts the checksum of each page into its parent.
struct Walk<'a> {
    image: &'a mut [u8],
    superblock: Superblock,
    done: BTreeSet<usize>,
    found: BTreeMap<usize, Structure>,
}

impl Walk<'_> {
    fn roots(&mut self) {
        let newest = self.superblock.epoch;
        for tree in 0..TREES {
            let root = self.superblock.roots[tree];
            for slot in [newest % 2, PLACE_B + newest % 2] {
                let at = slot as usize * BLOCK;
                if &self.image[at..at + 8] == MAGIC.as_slice() {
                    self.pointer(at + ROOTS_AT + tree * ROOT_SIZE, root.height, Structure::Table(tree));
                    seal_superblock(self.image, at);
                }
            }
        }
    }

    /// Visits the page that the pointer at byte `at` names, `level` levels above the leaves, with all below, and corrects the pointer's checksum.
    fn pointer(&mut self, at: usize, level: u8, what: Structure) {
        let location = u32::from_le_bytes(self.image[at..at + 4].try_into().expect("four bytes"));
        let Some(page) = self.place(location, what) else { return };
        // The checksum of a page that points to itself cannot be corrected.
        if self.done.len() < MOST_PAGES && self.done.insert(page) {
            self.found.insert(page, what);
            if level > 0 {
                for child in (page..page + BLOCK).step_by(POINTER) {
                    self.pointer(child, level - 1, what);
                }
            } else if what == Structure::Table(TreeId::Volumes as usize) {
                for entry in (page..page + BLOCK).step_by(VOLUME_BYTES as usize) {
                    self.pointer(entry + 24, self.image[entry + 4].min(7), Structure::Map);
                }
            } else if what == Structure::Table(TreeId::Discards as usize) {
                for entry in (page..page + BLOCK - DISCARD).step_by(DISCARD) {
                    self.pointer(entry, self.image[entry + 18].min(7), Structure::Discarded);
                }
            }
        }
        let sum = checksum(self.superblock.parameters.seed(), &self.image[page..page + BLOCK]);
        self.image[at + 8..at + 16].copy_from_slice(&sum.to_le_bytes());
    }

    /// Returns the byte at which the page of a location begins, if that is in the pool. (The pool has not grown.)
    fn place(&self, location: u32, what: Structure) -> Option<usize> {
        let geometry = &self.superblock.parameters.geometry;
        let first = match what {
            Structure::Table(tree) if tree == TreeId::MetaMap as usize => geometry.meta_map_start(),
            _ => geometry.metadata_start(),
        };
        let block = first + u64::from(location.checked_sub(1)?);
        (block < geometry.total_blocks()).then_some(block as usize * BLOCK)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pools_hold_something_of_every_structure() {
        for kind in [Kind::Closed, Kind::Crashed] {
            let image = make(kind);
            let found: BTreeSet<Structure> = structures(&image).into_values().collect();
            let tables = (0..TREES).map(Structure::Table);
            let others =
                [Structure::Superblock, Structure::Journal, Structure::Map, Structure::Discarded, Structure::Data];
            for structure in tables.chain(others) {
                assert!(found.contains(&structure), "{kind:?}: {structure:?} of {found:?}");
            }
        }
    }

    #[test]
    fn resealing_a_sound_pool_changes_nothing() {
        for kind in [Kind::Closed, Kind::Crashed, Kind::Family] {
            let image = make(kind);
            let mut resealed = image.clone();
            reseal(&mut resealed);
            assert!(resealed == image, "{kind:?}");
        }
    }
}
