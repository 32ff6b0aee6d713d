//! The superblock: the block that makes a store a pool. There is one in each of four slots (two places, even and odd epochs).
//!
//! A superblock names a checkpoint: the roots of all trees, and the last journal record that they include. It also names a seal: the last
//! journal record that recovery accepted when this epoch began. Layout in docs/reference/disk-format.md.

mod parameters;
mod passes;

use core::fmt;

use crate::api::{BadGeometry, Failure};
use crate::format::bytes::{checksum, put_u16, put_u32, put_u64, u16_at, u32_at, u64_at};
use crate::format::disk_index;
use crate::format::geometry::{Geometry, Growth, UNGROWN};
use crate::format::layout::TableForm;
use crate::properties::PoolProperties;
pub use parameters::{DigestFunction, Parameters};
pub use passes::{DedupRecord, PassState, ScrubRecord};

/// First eight bytes of a superblock.
pub const MAGIC: [u8; 8] = *b"ONEFOLD\0";
/// Version of the format that this engine writes.
pub const VERSION: u16 = 3;
/// Oldest version that this engine opens, if the pool was closed cleanly. Opening makes it [`VERSION`].
pub const OLDEST_VERSION: u16 = 2;
/// Feature flag: the volume table has its entries by number.
const TABLE_BY_NUMBER: u64 = 1;
/// Feature flag: maps may have parents, and pointers and entries FROM them.
const FAMILIES: u64 = 2;
/// Feature flags that a reader must know to open the pool at all.
pub const KNOWN_INCOMPATIBLE: u64 = TABLE_BY_NUMBER | FAMILIES;
/// Feature flags that a reader must know to write.
pub const KNOWN_READ_ONLY_COMPATIBLE: u64 = 0;

/// Number of parts of a pool's slots in which its allowance for moves is kept.
pub(crate) const ALLOWANCE_PARTS: u64 = 64;
/// Bytes of a superblock; the rest of its block is zero.
pub const SUPERBLOCK_SIZE: usize = 512;
/// Offset of the flags: two bits of a byte. Properties have fields in the other bytes.
const FLAGS_AT: usize = 12;
const GROWTH_AT: usize = 192;
const GROWTH_SIZE: usize = 8;
/// Offset of the pass that finds all duplicates: its state, a byte of bits, and its place. The lowest bit belongs to its record, the others to properties.
const DEDUP_AT: usize = 250;
const ROOTS_AT: usize = 256;
const ROOT_SIZE: usize = 17;
/// Offset of the nonce of the trusted flash.
const FLASH_AT: usize = 409;
const _: () = assert!(ROOTS_AT + TREES * ROOT_SIZE <= FLASH_AT);
const DISK_INDEX_AT: usize = 416;
const PROVEN_AT: usize = DISK_INDEX_AT + 8;
/// Greatest epoch or record number: 146 years at a billion a second.
pub(crate) const MOST_COUNTED: u64 = 1 << 62;
const SCRUB_AT: usize = PROVEN_AT + 8;
/// Offset of a byte that the scrub leaves free.
const ALLOWANCE_AT: usize = SCRUB_AT + 3;
const SECRET_AT: usize = 496;
/// Location in a pointer FROM. Metadata has fewer blocks.
const FROM: u32 = u32::MAX - 1;
/// Epochs in pointers and entries FROM, and those at which snapshots are born, are below this: an entry has 60 bits for them.
pub(crate) const END_OF_BORN: u64 = 1 << 60;
const CLEAN: u32 = 1;
const PAGES_BY_ID: u32 = 2;

/// Pointer to a metadata page: its location, epoch of writing, and checksum.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Pointer {
    /// Number of the block within the tree's region, plus one. 0: no page; `u32::MAX`: a subtree that a repair gave up; one less: a subtree of an ancestor.
    pub location: u32,
    /// Low 32 bits of the epoch in which the page was written.
    pub birth: u32,
    /// Checksum of the page.
    pub checksum: u64,
}

impl Pointer {
    /// Null pointer: no page.
    pub const NONE: Pointer = Pointer { location: 0, birth: 0, checksum: 0 };

    /// Pointer in maps to a subtree that a repair gave up. All its entries count as lost, and it has no page.
    pub const LOST: Pointer = Pointer { location: u32::MAX, birth: 0, checksum: 0 };

    /// Returns true if a repair gave the subtree up: it has no page, and all its entries count as lost.
    pub fn is_lost(self) -> bool {
        self.location == u32::MAX
    }

    /// Returns true if the pointer references no page.
    pub fn is_none(self) -> bool {
        self.location == 0
    }

    /// Returns the pointer to a subtree that the map has from its ancestor whose time covers an epoch.
    pub(crate) fn inherited(epoch: u64) -> Pointer {
        assert!((1..END_OF_BORN).contains(&epoch));
        Pointer { location: FROM, birth: 0, checksum: epoch }
    }

    /// Returns true if the pointer names a page, which may be one that does not exist.
    pub(crate) fn has_page(self) -> bool {
        !self.is_none() && self.location < FROM
    }

    /// Returns the epoch of a pointer FROM: the map has the subtree of the ancestor whose time covers that epoch, and no page of its own. `None` for all other
    /// pointers, and for an invalid one with that location.
    pub(crate) fn inherited_from(self) -> Option<u64> {
        let is_valid = self.location == FROM && self.birth == 0 && (1..END_OF_BORN).contains(&self.checksum);
        is_valid.then_some(self.checksum)
    }

    pub(crate) fn read(bytes: &[u8], at: usize) -> Pointer {
        Pointer { location: u32_at(bytes, at), birth: u32_at(bytes, at + 4), checksum: u64_at(bytes, at + 8) }
    }

    /// Writes the pointer's 16 bytes at `at`.
    pub fn write(self, bytes: &mut [u8], at: usize) {
        put_u32(bytes, at, self.location);
        put_u32(bytes, at + 4, self.birth);
        put_u64(bytes, at + 8, self.checksum);
    }
}

/// Root of a tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Root {
    /// Pointer to the root page.
    pub pointer: Pointer,
    /// Number of levels of interior pages above the leaves.
    pub height: u8,
}

/// Trees that a superblock roots, in the order of their roots.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum TreeId {
    /// Metadata blocks in use: one bit each.
    MetaMap,
    /// Two bits per slot: free, single, shared, held.
    SpaceMap,
    /// 4 bytes per container: generation, and slots that are not free in the space map.
    Containers,
    /// Reference counts of shared slots, 4 bytes a slot, in pages that exist only where there are any.
    Counts,
    /// Digest and owner per slot.
    Summaries,
    /// Volume table.
    Volumes,
    /// Subtrees cut off by discards, not yet walked.
    Discards,
    /// Digest to slot, a hint: in buckets, if there is an index on disk.
    DiskIndex,
    /// Log of mappings that are not in their leaves yet.
    MapBuffer,
}

/// Number of trees in [`TreeId`].
pub const TREES: usize = 9;

/// Record of the complete index on disk, if there is one, and of its build progress.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DiskIndexRecord {
    /// Number of buckets, one a leaf; 0: there is no such index.
    pub buckets: u32,
    /// Number of leaves of the summaries, from the first on, whose slots have been entered.
    pub built: u32,
}

impl DiskIndexRecord {
    /// Value of [`DiskIndexRecord::built`] when all leaves have been entered.
    pub const COMPLETE: u32 = u32::MAX;
    /// Value of [`DiskIndexRecord::built`] when blocks were left out, which the background pass brings in.
    pub const BEHIND: u32 = u32::MAX - 1;

    /// Returns true if the pool has an index on disk.
    pub fn is_on(self) -> bool {
        self.buckets > 0
    }

    /// Returns true if there is an index on disk and it has every block.
    pub fn is_complete(self) -> bool {
        self.is_on() && self.built == DiskIndexRecord::COMPLETE
    }

    /// Returns true if there is an index on disk and it waits for the background pass.
    pub fn is_behind(self) -> bool {
        self.is_on() && self.built == DiskIndexRecord::BEHIND
    }
}

/// Superblock: a checkpoint, a seal, and the properties of the pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Superblock {
    /// Version in which it was written.
    pub version: u16,
    /// Parameters that the pool was made with, and its present geometry.
    pub parameters: Parameters,
    /// Number that grows with every superblock written.
    pub epoch: u64,
    /// Last record that the checkpoint includes, 0 for none.
    pub included: u64,
    /// Checksum of that record.
    pub included_checksum: u64,
    /// Ring block at which the next record begins.
    pub journal_position: u32,
    /// Last record that recovery accepted when `seal_epoch` began.
    pub sealed: u64,
    /// Last record that was durable when this superblock was written: damage to the journal up to it is not the loss of a crash.
    pub proven: u64,
    /// Epoch that the last recovery began: records later than `sealed` count only if they are of this epoch or a later one.
    pub seal_epoch: u64,
    /// True if the pool was closed cleanly: there is nothing to replay.
    pub clean: bool,
    /// Reason why the pool must not be written any more, if it has failed.
    pub failed: Option<Failure>,
    /// Number of slots with at least one reference in the checkpoint.
    pub data_used: u64,
    /// Number of the next volume, unless the numbers have run out.
    pub next_volume: u16,
    /// Form of the volume table.
    pub table_form: TableForm,
    /// True if entries of volumes may have a family or a schedule: there is a snapshot or a schedule, or was one.
    pub has_families: bool,
    /// Properties of the pool.
    pub properties: PoolProperties,
    /// Number of containers with reserved space on the store: the first ones.
    pub reserved_containers: u32,
    /// Blocks that may still be moved for the written ones, plus one, in parts of [`ALLOWANCE_PARTS`] of the pool's slots. 0: not counted yet.
    pub allowance: u8,
    /// Record of the scrub in progress, or of the last one.
    pub scrub: ScrubRecord,
    /// Record of the pass that finds all duplicates, in progress or the last one.
    pub dedup: DedupRecord,
    /// Record of the complete index on disk.
    pub disk_index: DiskIndexRecord,
    /// Nonce of the trusted flash, which counts together with `seal_epoch`; 0: none is.
    pub flash: u16,
    /// Roots, by [`TreeId`].
    pub roots: [Root; TREES],
}

/// Reason why a block is not a superblock that this engine can use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SuperblockError {
    /// Block without the signature.
    Foreign,
    /// Format version that is unknown here.
    Version(u16),
    /// Required features (bits) that are unknown here.
    Features(u64),
    /// Checksum that does not match.
    Checksum,
    /// Digest function that is unknown here.
    Digest(u16),
    /// Field with an invalid value.
    Geometry(BadGeometry),
    /// Two pools with equally many of the superblocks.
    TwoPools,
    /// Older version that was not closed cleanly: only a program that knows that version can replay its journal.
    Unclosed(u16),
}

impl fmt::Display for SuperblockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SuperblockError::Foreign => f.write_str("it has no Onefold signature"),
            SuperblockError::Version(version) => {
                write!(f, "it has format version {version}, this program knows version {VERSION}")
            }
            SuperblockError::Features(bits) => {
                write!(f, "it needs features that this program does not have (feature bits {bits:#x})")
            }
            SuperblockError::Checksum => f.write_str("its superblock fails its checksum"),
            SuperblockError::Digest(code) => write!(f, "its digest function (number {code}) is not known here"),
            SuperblockError::Geometry(why) => write!(f, "its superblock makes no sense: {why}"),
            SuperblockError::TwoPools => f.write_str(
                "its superblocks are those of two pools, and nothing says which of them it is: a write has gone to the wrong place. \
                 Check the device, then restore the superblocks or the pool from a copy",
            ),
            SuperblockError::Unclosed(version) => write!(
                f,
                "it has format version {version} and was not closed cleanly. Serve it once with the program that wrote it and stop \
                 that, then use this program again"
            ),
        }
    }
}

impl Superblock {
    /// Makes the superblock of a new, empty pool, as if closed cleanly.
    pub fn new(parameters: Parameters) -> Superblock {
        Superblock {
            version: VERSION,
            parameters,
            epoch: 1,
            included: 0,
            included_checksum: 0,
            journal_position: 0,
            sealed: 0,
            proven: 0,
            seal_epoch: 1,
            clean: true,
            failed: None,
            data_used: 0,
            next_volume: 1,
            table_form: TableForm::default(),
            has_families: false,
            properties: PoolProperties::default(),
            reserved_containers: 0,
            allowance: 0,
            scrub: ScrubRecord::default(),
            dedup: DedupRecord::default(),
            disk_index: DiskIndexRecord::default(),
            flash: 0,
            roots: [Root::default(); TREES],
        }
    }

    /// Writes the superblock to a block, which is zeroed first. The block must have at least [`SUPERBLOCK_SIZE`] bytes.
    pub fn encode(&self, block: &mut [u8]) {
        block.fill(0);
        let b = &mut block[..SUPERBLOCK_SIZE];
        let g = &self.parameters.geometry;
        b[..8].copy_from_slice(&MAGIC);
        put_u16(b, 8, self.version);
        put_u16(b, 10, self.parameters.digest.code());
        let pages_by_id = if self.parameters.pages_by_id { PAGES_BY_ID } else { 0 };
        put_u32(
            b,
            FLAGS_AT,
            if self.clean { CLEAN } else { 0 } | if self.version == OLDEST_VERSION { 0 } else { pages_by_id },
        );
        // 24: read-only compatible, 32 (4 bytes): compatible features: none so far.
        let table = if self.table_form == TableForm::ByNumber { TABLE_BY_NUMBER } else { 0 };
        put_u64(b, 16, table | if self.has_families { FAMILIES } else { 0 });
        b[40..56].copy_from_slice(&self.parameters.id);
        b[56..88].copy_from_slice(&self.parameters.key);
        put_u32(b, 88, g.block_size);
        put_u32(b, 92, g.slots_per_container);
        put_u32(b, 96, g.piece_blocks);
        put_u32(b, 100, g.journal_blocks);
        put_u32(b, 104, g.metadata_blocks);
        put_u32(b, 108, g.containers);
        put_u64(b, 112, g.place_b);
        put_u64(b, 120, self.epoch);
        put_u64(b, 128, self.included);
        put_u64(b, 136, self.included_checksum);
        put_u64(b, 144, self.sealed);
        put_u64(b, 152, self.seal_epoch);
        put_u64(b, 160, self.data_used);
        put_u32(b, 168, self.journal_position);
        put_u16(b, 172, self.next_volume);
        b[175] = self.failed.map_or(0, Failure::code);
        put_u32(b, 176, g.spare_containers);
        put_u32(b, 180, self.reserved_containers);
        for (i, growth) in g.growth.iter().enumerate() {
            put_u32(b, GROWTH_AT + i * GROWTH_SIZE, growth.metadata_blocks);
            put_u32(b, GROWTH_AT + i * GROWTH_SIZE + 4, growth.containers);
        }
        for (i, root) in self.roots.iter().enumerate() {
            let at = ROOTS_AT + i * ROOT_SIZE;
            root.pointer.write(b, at);
            b[at + 16] = root.height;
        }
        put_u16(b, FLASH_AT, self.flash);
        put_u32(b, DISK_INDEX_AT, self.disk_index.buckets);
        put_u32(b, DISK_INDEX_AT + 4, self.disk_index.built);
        put_u64(b, PROVEN_AT, self.proven);
        self.scrub.write(b, SCRUB_AT);
        b[ALLOWANCE_AT] = self.allowance;
        self.dedup.write(b, DEDUP_AT);
        put_u64(b, SECRET_AT, if self.version == OLDEST_VERSION { 0 } else { self.parameters.secret });
        // Into bytes that are still zero, or have bits left.
        self.properties.write(b);
        let sum = checksum(0, &b[..SUPERBLOCK_SIZE - 8]);
        put_u64(b, SUPERBLOCK_SIZE - 8, sum);
    }

    /// Returns the newest of the superblocks in the four slots of a pool. Normally all are of one pool. After a misplaced write, a client's block may look like
    /// the superblock of another pool. So the pool with the most of them counts; `TwoPools` if another has as many.
    pub fn newest(found: &[Superblock]) -> Result<Superblock, SuperblockError> {
        let is_of_one = |one: &Superblock, other: &Superblock| one.parameters.id == other.parameters.id;
        let count = |one: &Superblock| found.iter().filter(|other| is_of_one(one, other)).count();
        let most = found.iter().map(count).max().ok_or(SuperblockError::Foreign)?;
        let mut chosen = found.iter().filter(|one| count(one) == most);
        let newest = *chosen.clone().max_by_key(|one| one.epoch).ok_or(SuperblockError::Foreign)?;
        if chosen.all(|one| is_of_one(one, &newest)) { Ok(newest) } else { Err(SuperblockError::TwoPools) }
    }

    /// Returns the reason why a valid block must not be skipped for an older one: its checksum is right, but its version or features are unknown here. (Every
    /// version keeps signature, version, features and checksum where they are.)
    pub fn refusal(block: &[u8]) -> Option<SuperblockError> {
        let b = block.get(..SUPERBLOCK_SIZE).filter(|b| b[..8] == MAGIC)?;
        if checksum(0, &b[..SUPERBLOCK_SIZE - 8]) != u64_at(b, SUPERBLOCK_SIZE - 8) {
            return None;
        }
        Superblock::decode(block).err()
    }

    /// Returns the reason why a pool with this readable, newest superblock cannot be used: an older version that was not closed cleanly.
    pub fn objection(&self) -> Option<SuperblockError> {
        (self.version < VERSION && !self.clean).then_some(SuperblockError::Unclosed(self.version))
    }

    /// Returns the number of the last record that is certainly durable.
    pub fn watermark(&self) -> u64 {
        self.included.max(self.sealed).max(self.proven)
    }

    /// Reads a superblock from a block of any length.
    pub fn decode(block: &[u8]) -> Result<Superblock, SuperblockError> {
        if block.len() < SUPERBLOCK_SIZE || block[..8] != MAGIC {
            return Err(SuperblockError::Foreign);
        }
        let b = &block[..SUPERBLOCK_SIZE];
        // An unknown version may have its checksum elsewhere: report the version first.
        let version = u16_at(b, 8);
        if !(OLDEST_VERSION..=VERSION).contains(&version) {
            return Err(SuperblockError::Version(version));
        }
        if checksum(0, &b[..SUPERBLOCK_SIZE - 8]) != u64_at(b, SUPERBLOCK_SIZE - 8) {
            return Err(SuperblockError::Checksum);
        }
        let unknown = (u64_at(b, 16) & !KNOWN_INCOMPATIBLE) | (u64_at(b, 24) & !KNOWN_READ_ONLY_COMPATIBLE);
        if unknown != 0 {
            return Err(SuperblockError::Features(unknown));
        }
        let digest = match u16_at(b, 10) {
            1 => DigestFunction::Blake3,
            2 => DigestFunction::Aegis128X2,
            code => return Err(SuperblockError::Digest(code)),
        };
        let mut growth = UNGROWN;
        for (i, growth) in growth.iter_mut().enumerate() {
            let at = GROWTH_AT + i * GROWTH_SIZE;
            *growth = Growth { metadata_blocks: u32_at(b, at), containers: u32_at(b, at + 4) };
        }
        let geometry = Geometry {
            block_size: u32_at(b, 88),
            slots_per_container: u32_at(b, 92),
            piece_blocks: u32_at(b, 96),
            place_b: u64_at(b, 112),
            journal_blocks: u32_at(b, 100),
            metadata_blocks: u32_at(b, 104),
            containers: u32_at(b, 108),
            spare_containers: u32_at(b, 176),
            growth,
        };
        geometry.validate().map_err(SuperblockError::Geometry)?;
        let (mut id, mut key) = ([0; 16], [0; 32]);
        id.copy_from_slice(&b[40..56]);
        key.copy_from_slice(&b[56..88]);
        let mut roots = [Root::default(); TREES];
        for (i, root) in roots.iter_mut().enumerate() {
            let at = ROOTS_AT + i * ROOT_SIZE;
            *root = Root { pointer: Pointer::read(b, at), height: b[at + 16] };
            if root.height > 7 {
                return Err(SuperblockError::Geometry(BadGeometry("a tree is too high")));
            }
        }
        // Epochs, records and slots are counted on from here: impossible values would overflow.
        let numbers = [u64_at(b, 120), u64_at(b, 128), u64_at(b, 144), u64_at(b, 152), u64_at(b, PROVEN_AT)];
        if numbers.iter().any(|&number| number > MOST_COUNTED) {
            return Err(SuperblockError::Geometry(BadGeometry("an epoch or a record has an impossible number")));
        }
        if u64_at(b, 160) > geometry.slots() {
            return Err(SuperblockError::Geometry(BadGeometry("more slots are in use than there are")));
        }
        if u16_at(b, 172) == 0 {
            return Err(SuperblockError::Geometry(BadGeometry("the next volume has no number")));
        }
        let properties = PoolProperties::read(b).map_err(|why| SuperblockError::Geometry(BadGeometry(why)))?;
        let failed = Failure::from_code(b[175]);
        if failed.is_none() && b[175] != 0 {
            return Err(SuperblockError::Geometry(BadGeometry("a failure of an unknown kind")));
        }
        let reserved_containers = u32_at(b, 180);
        if reserved_containers > geometry.containers {
            return Err(SuperblockError::Geometry(BadGeometry("more containers are reserved than there are")));
        }
        let journal_position = u32_at(b, 168);
        if journal_position >= geometry.journal_blocks {
            return Err(SuperblockError::Geometry(BadGeometry("the journal's position is outside the journal")));
        }
        let disk_index = DiskIndexRecord { buckets: u32_at(b, DISK_INDEX_AT), built: u32_at(b, DISK_INDEX_AT + 4) };
        if let Some(why) = disk_index::contradiction(&geometry, disk_index, roots[TreeId::DiskIndex as usize]) {
            return Err(SuperblockError::Geometry(BadGeometry(why)));
        }
        let mut parameters = Parameters::new(geometry, id, key, digest);
        if version == OLDEST_VERSION {
            parameters.pages_by_id = true;
        } else {
            parameters.secret = u64_at(b, SECRET_AT);
            parameters.pages_by_id = u32_at(b, FLAGS_AT) & PAGES_BY_ID != 0;
        }
        Ok(Superblock {
            version,
            parameters,
            epoch: u64_at(b, 120),
            included: u64_at(b, 128),
            included_checksum: u64_at(b, 136),
            journal_position,
            sealed: u64_at(b, 144),
            proven: u64_at(b, PROVEN_AT),
            seal_epoch: u64_at(b, 152),
            clean: u32_at(b, FLAGS_AT) & CLEAN != 0,
            failed,
            data_used: u64_at(b, 160),
            next_volume: u16_at(b, 172),
            table_form: if u64_at(b, 16) & TABLE_BY_NUMBER != 0 { TableForm::ByNumber } else { TableForm::Packed },
            has_families: u64_at(b, 16) & FAMILIES != 0,
            properties,
            reserved_containers,
            allowance: b[ALLOWANCE_AT],
            scrub: ScrubRecord::read(b, SCRUB_AT),
            dedup: DedupRecord::read(b, DEDUP_AT),
            disk_index,
            flash: u16_at(b, FLASH_AT),
            roots,
        })
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;
    use crate::properties::{PoolChange, PoolProperty, tests::codes};

    fn with(change: PoolChange) -> Superblock {
        let superblock = sample();
        Superblock { properties: superblock.properties.with(&change), ..superblock }
    }

    fn sample() -> Superblock {
        let mut geometry = Geometry::for_capacity(1 << 30).unwrap();
        geometry.growth[0] = Growth { metadata_blocks: 64, containers: 3 };
        geometry.growth[1] = Growth { metadata_blocks: 32, containers: 1 };
        let parameters = Parameters::new(geometry, [7; 16], [9; 32], DigestFunction::Blake3);
        let mut superblock = Superblock::new(parameters);
        superblock.roots[3] = Root { pointer: Pointer { location: 5, birth: 6, checksum: 7 }, height: 2 };
        superblock.disk_index = DiskIndexRecord { buckets: 12, built: 345 };
        let mut change = PoolChange::default();
        for (name, value) in [
            ("policy", "native"),
            ("memory", "1T"),
            ("second-copies", "99"),
            ("replicas", "77b"),
            ("index-copy", "newest"),
            ("defrag", "5M"),
            ("cache", "fixed:40,lru"),
            ("cache-key", "off"),
            ("device", "hdd"),
            ("dedup-verify", "both"),
            ("relocate", "22-06"),
            ("throttle", "paper:0.001"),
            ("flash-policy", "paper:filter=3,comparison=off"),
        ] {
            change.set_text(PoolProperty::named(name).unwrap(), value).unwrap();
        }
        let settings = Superblock {
            properties: PoolProperties::default().with(&change),
            failed: Some(Failure::Sync),
            scrub: ScrubRecord {
                state: PassState::Paused,
                phase: 2,
                level: 3,
                tree: 4,
                index: 5,
                blocks_done: 6,
                found: 7,
                repaired: 8,
                started: 9,
                finished: 10,
            },
            dedup: DedupRecord { state: PassState::Paused, next: 11, has_backlog: true },
            reserved_containers: 17,
            allowance: 78,
            flash: 0x1234,
            ..superblock
        };
        Superblock {
            epoch: 12,
            included: 77,
            included_checksum: 3,
            journal_position: 9,
            sealed: 80,
            proven: 85,
            ..settings
        }
    }

    #[test]
    fn a_pointer_names_a_page_or_an_ancestor() {
        for epoch in [1, 7, END_OF_BORN - 1] {
            let pointer = Pointer::inherited(epoch);
            assert_eq!(pointer.inherited_from(), Some(epoch));
            assert!(!pointer.has_page() && !pointer.is_none() && !pointer.is_lost());
            let mut bytes = [9; 16];
            pointer.write(&mut bytes, 0);
            assert_eq!(Pointer::read(&bytes, 0), pointer);
        }
        let page = Pointer { location: 1 << 31, birth: 2, checksum: 3 };
        assert!(page.has_page() && page.inherited_from().is_none());
        for other in [Pointer::NONE, Pointer::LOST] {
            assert!(!other.has_page() && other.inherited_from().is_none());
        }
        let good = Pointer::inherited(7);
        let invalid =
            [Pointer { birth: 1, ..good }, Pointer { checksum: 0, ..good }, Pointer { checksum: END_OF_BORN, ..good }];
        assert!(invalid.iter().all(|pointer| !pointer.has_page() && pointer.inherited_from().is_none()));
    }

    #[test]
    fn a_superblock_reads_back_as_written() {
        let mut block = [1; 512];
        sample().encode(&mut block);
        assert_eq!(Superblock::decode(&block), Ok(sample()));
        let selects = with(PoolChange { policy: Some("select:5".parse().ok()), ..PoolChange::default() });
        selects.encode(&mut block);
        assert_eq!(Superblock::decode(&block), Ok(selects));
    }

    /// Checks that a superblock has the bytes that it always had: those of before are read.
    #[test]
    fn the_bytes_of_a_superblock_stay() {
        let mut block = [0; 512];
        let sum = |superblock: Superblock, block: &mut [u8]| {
            Superblock { table_form: TableForm::Packed, ..superblock }.encode(block);
            checksum(0, block)
        };
        let selects = with(PoolChange { policy: Some("select:5".parse().ok()), ..PoolChange::default() });
        assert_eq!(
            [sum(sample(), &mut block), sum(selects, &mut block)],
            [17_769_148_512_755_570_839, 15_852_567_746_757_250_899]
        );
    }

    #[test]
    fn fields_that_make_no_sense_are_refused() {
        let refused = |change: &dyn Fn(&mut [u8])| {
            let mut block = [0; 512];
            sample().encode(&mut block);
            change(&mut block);
            let sum = checksum(0, &block[..SUPERBLOCK_SIZE - 8]);
            put_u64(&mut block, SUPERBLOCK_SIZE - 8, sum);
            matches!(Superblock::decode(&block), Err(SuperblockError::Geometry(_)))
        };
        assert!(!refused(&|_| ()));
        assert!(refused(&|block| block[174] = 7));
        assert!(refused(&|block| block[174] = 4));
        assert!(refused(&|block| block[248] = 3));
        assert!(refused(&|block| block[175] = 9));
        assert!(refused(&|block| put_u16(block, 14, 2)));
        assert!(refused(&|block| block[DEDUP_AT + 1] |= 3 << 2));
        assert!(refused(&|block| put_u32(block, 36, 1)));
        assert!(refused(&|block| put_u16(block, 172, 0)));
        assert!(refused(&|block| put_u32(block, 180, 289)));
        // The pool has space for 864 buckets and 1735 leaves of summaries, and without buckets there is no page.
        assert!(!refused(&|block| put_u32(block, DISK_INDEX_AT, 864)));
        assert!(refused(&|block| put_u32(block, DISK_INDEX_AT, 865)));
        assert!(refused(&|block| put_u32(block, DISK_INDEX_AT, u32::MAX)));
        assert!(!refused(&|block| put_u32(block, DISK_INDEX_AT + 4, 1735)));
        assert!(refused(&|block| put_u32(block, DISK_INDEX_AT + 4, 1736)));
        assert!(!refused(&|block| put_u64(block, DISK_INDEX_AT, 0)));
        assert!(refused(&|block| put_u32(block, DISK_INDEX_AT, 0)));
        assert!(refused(&|block| {
            put_u64(block, DISK_INDEX_AT, 0);
            put_u32(block, ROOTS_AT + TreeId::DiskIndex as usize * ROOT_SIZE, 1);
        }));
        // More metadata and more containers than the totals; a gap; half a growth.
        assert!(refused(&|block| put_u32(block, GROWTH_AT, 1 << 20)));
        assert!(refused(&|block| put_u32(block, GROWTH_AT + 4, u32::MAX)));
        assert!(refused(&|block| put_u64(block, GROWTH_AT, 0)));
        assert!(refused(&|block| put_u32(block, GROWTH_AT + GROWTH_SIZE + 4, 0)));
    }

    #[test]
    fn what_is_wrong_is_named() {
        let named = |change: &dyn Fn(&mut [u8])| {
            let mut block = [0; 512];
            sample().encode(&mut block);
            change(&mut block);
            let sum = checksum(0, &block[..SUPERBLOCK_SIZE - 8]);
            put_u64(&mut block, SUPERBLOCK_SIZE - 8, sum);
            Superblock::decode(&block).unwrap_err().to_string()
        };
        assert!(named(&|block| block[0] = 0).contains("no Onefold signature"));
        assert!(named(&|block| block[8] = 9).contains("format version 9"));
        assert!(named(&|block| block[16] = 4).contains("0x4"));
        assert!(named(&|block| block[10] = 200).contains("number 200"));
        assert!(named(&|block| put_u32(block, 168, u32::MAX)).contains("outside the journal"));
        assert!(named(&|block| put_u32(block, DISK_INDEX_AT, u32::MAX)).contains("more buckets"));
        assert!(SuperblockError::Checksum.to_string().contains("checksum"));
    }

    /// Checks every row of the table: its field is its own.
    #[test]
    fn a_property_of_any_value_leaves_the_rest_of_the_superblock_as_it_is() {
        let mut block = [0; 512];
        for (property, code) in codes() {
            let mut change = PoolChange::default();
            if change.set_code(property, code).is_ok() {
                let superblock = with(change);
                superblock.encode(&mut block);
                assert_eq!(Superblock::decode(&block), Ok(superblock), "{property:?} {code:x}");
            }
        }
    }

    #[test]
    fn every_flipped_byte_is_noticed() {
        let mut block = [0; 512];
        sample().encode(&mut block);
        for at in 0..SUPERBLOCK_SIZE {
            block[at] ^= 0x10;
            assert!(Superblock::decode(&block).is_err(), "byte {at}");
            block[at] ^= 0x10;
        }
    }

    #[test]
    fn of_the_superblocks_of_two_pools_those_of_the_one_with_more_count() {
        let ours = |epoch| Superblock { epoch, ..sample() };
        let mut alien = Superblock { epoch: 1 << 40, ..sample() };
        alien.parameters.id = [1; 16];
        assert_eq!(Superblock::newest(&[ours(4), ours(7), ours(6)]), Ok(ours(7)));
        assert_eq!(Superblock::newest(&[alien, ours(7), ours(6)]), Ok(ours(7)));
        assert_eq!(Superblock::newest(&[ours(6), alien, ours(7), alien]), Err(SuperblockError::TwoPools));
        assert_eq!(Superblock::newest(&[ours(1), alien]), Err(SuperblockError::TwoPools));
        assert_eq!(Superblock::newest(&[]), Err(SuperblockError::Foreign));
    }

    #[test]
    fn foreign_unknown_and_short_blocks_are_told_apart() {
        let mut block = [0; 512];
        assert_eq!(Superblock::decode(&block), Err(SuperblockError::Foreign));
        assert_eq!(Superblock::decode(&block[..10]), Err(SuperblockError::Foreign));
        sample().encode(&mut block);
        block[8] = 9;
        assert_eq!(Superblock::decode(&block), Err(SuperblockError::Version(9)));
        // Damaged bytes may look like a version; only with a valid checksum they are one.
        assert_eq!(Superblock::refusal(&block), None);
        sample().encode(&mut block);
        block[16] = 4;
        let sum = checksum(0, &block[..SUPERBLOCK_SIZE - 8]);
        put_u64(&mut block, SUPERBLOCK_SIZE - 8, sum);
        assert_eq!(Superblock::decode(&block), Err(SuperblockError::Features(4)));
        assert_eq!(Superblock::refusal(&block), Some(SuperblockError::Features(4)));
    }
}
