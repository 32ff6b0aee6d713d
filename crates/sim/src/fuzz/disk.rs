//! Fuzz targets for the contents of a store: every decoder, the journal, and whole malicious pools. For any content, opening it ends in an error or in a pool
//! that serves: no panic, no hang, no memory beyond the limits, no I/O outside the store.

use std::collections::BTreeSet;
use std::sync::OnceLock;

use engine::encode::checksum;
use engine::superblock::{MAGIC, SUPERBLOCK_SIZE};
use engine::{
    Command, Engine, Geometry, HIDDEN_NAMES, Limits, Medium, OpenError, Parameters, Superblock, SuperblockError,
    Volume, VolumeId, plan_repair,
};

use super::bytes::Bytes;
use super::driver::{Driver, Task, describe, digest, probe};
use super::pool::{self, BLOCK, Kind, LIMITS, RECORD_ENTRY, RECORD_HEADER, Structure};

/// Number of blocks that are read from a volume's start; a volume can be larger than anything.
const READ_BLOCKS: u64 = 64;
/// The most changes of one input.
const MOST_CHANGES: usize = 64;

/// Outcome for a store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// The store was not opened: no superblock describes it, or the engine reports the damage.
    Refused(Option<OpenError>),
    /// The store was served, or audited, after this number of records was replayed.
    Served(u64),
}

/// Use of a store.
#[derive(Clone, Copy, Debug)]
pub struct Use(pub u8);

impl Use {
    fn open(self) -> fn(Parameters, Limits, u64) -> Engine {
        match self.0 & 3 {
            1 => Engine::open_to_audit,
            2 => Engine::open_to_read,
            _ => Engine::open,
        }
    }

    /// Returns true if it is written to, not only read.
    fn writes(self) -> bool {
        self.0 & 3 == 3
    }
}

struct Base {
    image: Vec<u8>,
    places: Vec<(usize, Structure)>,
}

fn base(kind: Kind) -> &'static Base {
    static CLOSED: OnceLock<Base> = OnceLock::new();
    static CRASHED: OnceLock<Base> = OnceLock::new();
    static FAMILY: OnceLock<Base> = OnceLock::new();
    let cell = match kind {
        Kind::Closed => &CLOSED,
        Kind::Crashed => &CRASHED,
        Kind::Family => &FAMILY,
    };
    cell.get_or_init(|| {
        let image = pool::make(kind);
        let places = pool::structures(&image).into_iter().collect();
        Base { image, places }
    })
}

fn kind(choice: u8) -> Kind {
    match choice & 9 {
        0 => Kind::Closed,
        1 => Kind::Crashed,
        _ => Kind::Family,
    }
}

/// Opens a store, reads all of it, and performs the operations of a server on it.
pub fn survive(image: Vec<u8>, how: Use) -> Fate {
    if how.0 & 3 == 1 {
        repair(&image);
    }
    let mut driver = match Driver::open(image, LIMITS, how.open()) {
        Ok(driver) => driver,
        Err(error) => return Fate::Refused(error),
    };
    let fate = Fate::Served(driver.replayed());
    if how.0 & 3 == 1 {
        audit(&driver);
        return fate;
    }
    let volumes: Vec<_> = driver.engine.volumes().map(|volume| (volume.id, volume.size)).collect();
    for &(volume, size) in &volumes {
        read(&mut driver, volume, size);
    }
    if how.writes() {
        write(&mut driver, &volumes);
        // The resulting store must be as harmless.
        if let Ok(driver) = Driver::open(driver.image, LIMITS, Engine::open_to_audit) {
            audit(&driver);
        }
    }
    fate
}

/// Audits the whole state; findings are no fault of the engine.
fn audit(driver: &Driver) {
    let image = &driver.image;
    let mut read = |offset, length| bytes_at(image, offset, length);
    driver.engine.check(&mut read, &mut |_| {});
    driver.engine.check_disk_index(&mut read);
    let mut slots = BTreeSet::new();
    driver.engine.live_slots(&mut read, &mut |offset, _| {
        assert!(offset < image.len() as u64);
        slots.insert(offset);
    });
    driver.engine.flawed_blocks(&mut read, &slots, &mut |name, first, blocks, _| {
        // Second copies and replicas are blocks of volumes that no client sees. So are those of deleted snapshots.
        let is_named = |volume: &&Volume| driver.engine.full_name(volume) == name;
        let size = driver.engine.volumes().find(is_named).map(|volume| volume.size);
        let is_hidden = HIDDEN_NAMES.contains(&name) || name.ends_with("@(deleted)");
        assert!(size.is_some() || is_hidden, "{name}: flaws are those of volumes");
        let size = size.unwrap_or(u64::MAX);
        assert!(blocks > 0 && first + blocks <= size.div_ceil(BLOCK as u64), "{name}: {first}, {blocks}");
    });
}

fn bytes_at(image: &[u8], offset: u64, length: u32) -> Option<Vec<u8>> {
    let end = offset.checked_add(u64::from(length)).filter(|&end| end <= image.len() as u64)?;
    Some(image[offset as usize..end as usize].to_vec())
}

/// Repairs a store as the program does: opens and audits the result of the plan before anything is written. (A store with right checksums over senseless
/// contents may be refused.)
fn repair(image: &[u8]) {
    if let Some(repaired) = repaired(image)
        && let Ok(driver) = Driver::open(repaired, LIMITS, Engine::open_to_audit)
    {
        audit(&driver);
    }
}

/// Returns the store after its repair; `None` if that is refused.
pub fn repaired(image: &[u8]) -> Option<Vec<u8>> {
    let superblock = probe(image)?;
    let mut read = |offset, length| bytes_at(image, offset, length);
    let mut content = |offset| Some(describe(&bytes_at(image, offset, BLOCK as u32)?));
    let mut medium = Medium { read: &mut read, content: &mut content };
    let plan = plan_repair(superblock.parameters, LIMITS, false, &mut medium).ok()?;
    let mut repaired = image.to_vec();
    let mut put = |offset: u64, bytes: &[u8]| repaired[offset as usize..][..bytes.len()].copy_from_slice(bytes);
    plan.superblocks.iter().for_each(|(offset, page)| put(*offset, page));
    plan.copies.iter().for_each(|&(from, to)| put(to, &image[from as usize..][..BLOCK]));
    plan.pages.iter().for_each(|(offset, page)| put(*offset, page));
    let (newest, places) = plan.superblock(true);
    places.into_iter().for_each(|place| put(place, &newest));
    Some(repaired)
}

fn read(driver: &mut Driver, volume: VolumeId, size: u64) {
    let piece = u64::from(driver.geometry().piece_blocks) * BLOCK as u64;
    let first = (0..size.min(READ_BLOCKS * BLOCK as u64)).step_by(piece as usize);
    let middle = size / 2 / BLOCK as u64 * BLOCK as u64;
    let places: Vec<u64> = first.chain([middle, size.saturating_sub(piece), 500 * BLOCK as u64]).collect();
    for offset in places.into_iter().filter(|&offset| offset < size) {
        let length = piece.min(size - offset);
        if let Some(Ok(bytes)) = driver.request(volume, offset, length, Task::Read) {
            assert_eq!(bytes.len() as u64, length, "a read gives what was asked for");
        }
    }
    if let Some(Ok(bytes)) = driver.request(volume, 0, size, Task::Extents) {
        let total = u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
        assert!((1..=size).contains(&total) || size == 0, "extents lie within the range");
    }
}

fn write(driver: &mut Driver, volumes: &[(VolumeId, u64)]) {
    let block = BLOCK as u64;
    for &(volume, size) in volumes {
        for (lba, count, task) in [
            (1, 1, Task::Write(&[201; 20])),
            (2, 1, Task::Write(&[1; 20])),
            (16, 4, Task::Write(&[202; 20])),
            (500, 1, Task::Write(&[203; 20])),
            (0, 1, Task::Trim),
            (3, 1, Task::WriteZeroes),
        ] {
            if (lba + count) * block <= size {
                driver.request(volume, lba * block, count * block, task);
            }
        }
        if size > 100 {
            driver.request(volume, 7, 90, Task::Write(&[204; 90]));
        }
        driver.request(volume, size / 2, size - size / 2, Task::Trim);
        driver.request(volume, 0, 0, Task::Flush);
    }
    driver.control(Command::CreateVolume { name: "made", size: 20 * block, policy: None });
    driver.control(Command::Settle);
    if let Some(&(volume, _)) = volumes.first() {
        driver.control(Command::CreateSnapshots { volumes: &[volume], name: "made", seconds: 0 });
        driver.control(Command::ResizeVolume { volume, size: 5 * block });
        let snapshots: Vec<VolumeId> = driver.engine.snapshots_of(volume).map(|snapshot| snapshot.id).collect();
        if let Some(&snapshot) = snapshots.first() {
            driver.control(Command::CloneSnapshot { snapshot, name: "cloned" });
        }
        for volume in snapshots {
            driver.control(Command::DeleteVolume { volume });
        }
        driver.control(Command::DeleteVolume { volume });
    }
    driver.control(Command::Settle);
    driver.control(Command::Close);
}

/// Tests superblocks of any content, and pools in which one page or record has any content.
pub fn decoders(data: &[u8]) {
    superblock(data);
    let mut bytes = Bytes(data);
    let (choice, how, number, at) = (bytes.u8(), Use(bytes.u8()), bytes.u8(), usize::from(bytes.u16()));
    let base = base(kind(choice));
    let (place, _) = base.places[usize::from(number) % base.places.len()];
    let mut image = base.image.clone();
    if choice & 2 != 0 {
        image[place..place + BLOCK].fill(0);
    }
    let at = at % BLOCK;
    let given = bytes.take(BLOCK - at);
    image[place + at..place + at + given.len()].copy_from_slice(given);
    pool::reseal(&mut image);
    survive(image, how);
}

/// Checks the decoder of superblocks: a decoded one is encoded as it was read, and describes a possible pool.
fn superblock(data: &[u8]) {
    let _ = (Superblock::decode(data), Superblock::refusal(data));
    let mut block = base(Kind::Closed).image[..BLOCK].to_vec();
    let mut bytes = Bytes(data);
    let at = usize::from(bytes.u16()) % SUPERBLOCK_SIZE;
    let given = bytes.take(SUPERBLOCK_SIZE - at);
    block[at..at + given.len()].copy_from_slice(given);
    let sum = checksum(0, &block[..SUPERBLOCK_SIZE - 8]);
    block[SUPERBLOCK_SIZE - 8..SUPERBLOCK_SIZE].copy_from_slice(&sum.to_le_bytes());
    let decoded = Superblock::decode(&block);
    assert_eq!(
        Superblock::refusal(&block),
        decoded.err().filter(|_| block[..8] == MAGIC),
        "a sealed one is never passed over"
    );
    let Ok(superblock) = decoded else {
        assert_ne!(decoded, Err(SuperblockError::Checksum));
        return;
    };
    let mut encoded = [0; BLOCK];
    superblock.encode(&mut encoded);
    assert_eq!(Superblock::decode(&encoded), Ok(superblock), "what was read is written as it was");
    let geometry = superblock.parameters.geometry;
    assert!(geometry.total_blocks() > geometry.data_start() && geometry.data_start() > geometry.metadata_start());
    assert!(geometry.capacity_bytes() <= geometry.slots() * geometry.block());
    if let Ok(grown) = geometry.grown(geometry.capacity_bytes().saturating_add(given.len() as u64 * BLOCK as u64)) {
        assert_eq!(grown.validate(), Ok(()));
    }
    if let Err(needed) = Limits::for_memory(64 << 20, &geometry) {
        assert!(Limits::for_memory(needed, &geometry).is_ok());
    }
}

/// Tests pools in which any bytes of any structure were changed, and blocks went to other places.
pub fn image(data: &[u8]) -> Fate {
    let mut bytes = Bytes(data);
    let (choice, how) = (bytes.u8(), Use(bytes.u8()));
    let base = base(kind(choice));
    let mut image = base.image.clone();
    for _ in 0..MOST_CHANGES {
        if bytes.is_empty() {
            break;
        }
        let (what, number, at) = (bytes.u8(), usize::from(bytes.u8()), usize::from(bytes.u16()));
        let (place, _) = base.places[number % base.places.len()];
        if what & 0xc0 == 0xc0 {
            let (from, _) = base.places[at % base.places.len()];
            image.copy_within(from..from + BLOCK, place);
        } else {
            let at = at % BLOCK;
            let given = bytes.take((usize::from(what & 31) + 1).min(BLOCK - at));
            image[place + at..place + at + given.len()].copy_from_slice(given);
        }
    }
    // Without resealing, the changes are a model of bit rot.
    if choice & 2 == 0 {
        pool::reseal(&mut image);
    }
    survive(image, how)
}

/// Tests journals: any bytes in the ring, or records of any content whose checksums are right.
pub fn journal(data: &[u8]) -> Fate {
    let mut bytes = Bytes(data);
    let (choice, how) = (bytes.u8(), Use(bytes.u8()));
    let mut image = base(kind(choice)).image.clone();
    let superblock = probe(&image).expect("a pool");
    let mut ring =
        Ring { geometry: superblock.parameters.geometry, image: &mut image, at: superblock.journal_position };
    if choice & 2 == 0 {
        let mut sequence = superblock.included;
        let mut left = ring.geometry.journal_blocks;
        while !bytes.is_empty() && left > 0 {
            sequence = sequence.wrapping_add(1);
            left = left.saturating_sub(ring.record(&mut bytes, sequence, &superblock));
        }
    } else {
        let (from, given) = (bytes.u16(), bytes.0);
        ring.at = u32::from(from) / BLOCK as u32 % ring.geometry.journal_blocks;
        for (number, &byte) in given.iter().take(BLOCK * 8).enumerate() {
            let at = ring.place(number as u32 / BLOCK as u32) + number % BLOCK;
            ring.image[at] = byte;
        }
    }
    if choice & 4 == 0 {
        pool::reseal(&mut image);
    }
    survive(image, how)
}

struct Ring<'a> {
    geometry: Geometry,
    image: &'a mut [u8],
    /// Block of the ring at which the next record begins.
    at: u32,
}

impl Ring<'_> {
    /// Returns the byte at which a block of the ring begins, counted from the start of the next record.
    fn place(&self, block: u32) -> usize {
        let block = (self.at + block) % self.geometry.journal_blocks;
        (self.geometry.journal_start() + u64::from(block)) as usize * BLOCK
    }

    /// Writes the record that `bytes` describe; its checksum and that of the record before come later. Returns the number of blocks that it takes.
    fn record(&mut self, bytes: &mut Bytes<'_>, sequence: u64, superblock: &Superblock) -> u32 {
        let (shape, marks) = (bytes.u8(), bytes.u8());
        let (inlined, entries) = (u32::from(shape >> 6), usize::from(shape & 31));
        let pages = (RECORD_HEADER + entries * RECORD_ENTRY).div_ceil(BLOCK);
        let watermark = match marks & 3 {
            0 => sequence.wrapping_sub(1),
            1 => sequence,
            2 => 0,
            _ => bytes.u64(),
        };
        let epoch = if marks & 4 == 0 { superblock.epoch } else { bytes.u64() };
        let mut page = vec![0; pages * BLOCK];
        page[..4].copy_from_slice(b"OFJ1");
        page[4..6].copy_from_slice(&(pages as u16).to_le_bytes());
        page[6..8].copy_from_slice(&(inlined as u16).to_le_bytes());
        page[8..16].copy_from_slice(&sequence.to_le_bytes());
        page[16..24].copy_from_slice(&epoch.to_le_bytes());
        page[32..40].copy_from_slice(&watermark.to_le_bytes());
        page[40..44].copy_from_slice(&(entries as u32).to_le_bytes());
        page[44..48].copy_from_slice(&self.at.to_le_bytes());
        for entry in 0..entries {
            let entry = &mut page[RECORD_HEADER + entry * RECORD_ENTRY..][..RECORD_ENTRY];
            self.entry(bytes, pages as u32, entry);
        }
        for block in 0..inlined {
            let at = self.place(pages as u32 + block);
            self.image[at..at + BLOCK].fill(block as u8 + 100);
        }
        for (number, page) in page.chunks_exact(BLOCK).enumerate() {
            let at = self.place(number as u32);
            self.image[at..at + BLOCK].copy_from_slice(page);
        }
        let blocks = pages as u32 + inlined;
        self.at = (self.at + blocks) % self.geometry.journal_blocks;
        blocks
    }

    /// Makes an entry for the block that it carries, with the digest of its slot's content or with a wrong one.
    fn entry(&self, bytes: &mut Bytes<'_>, pages: u32, entry: &mut [u8]) {
        let (kind, volume, lba) = (bytes.u8(), bytes.u8(), bytes.u16());
        let wide = kind & 0x80 != 0;
        let lba = if wide { bytes.u64() } else { u64::from(lba) };
        let value = if wide { bytes.u64() } else { u64::from(bytes.u16()) };
        let block = u16::from(kind >> 4 & 3);
        entry[0] = kind & 15;
        entry[2..4].copy_from_slice(&block.to_le_bytes());
        entry[4..6].copy_from_slice(&u16::from(volume).to_le_bytes());
        entry[8..16].copy_from_slice(&lba.to_le_bytes());
        entry[16..24].copy_from_slice(&value.to_le_bytes());
        let at = match kind & 15 {
            2 => self.place(pages + u32::from(block)),
            _ if value < self.geometry.slots() => {
                let container = (value / u64::from(self.geometry.slots_per_container)) as u32;
                let within = value % u64::from(self.geometry.slots_per_container);
                (self.geometry.container_block(container) + within) as usize * BLOCK
            }
            _ => return,
        };
        // An inlined block is filled when all entries are known.
        let content = if kind & 15 == 2 { &[block as u8 + 100; BLOCK][..] } else { &self.image[at..at + BLOCK] };
        if kind & 0x40 == 0 {
            entry[24..40].copy_from_slice(&digest(content).0);
        }
    }
}

/// Reads every block of the volumes of a pool that is served; `None` where the engine fails.
pub fn contents(driver: &mut Driver) -> Vec<(VolumeId, u64, Option<Vec<u8>>)> {
    let volumes: Vec<_> = driver.engine.volumes().map(|volume| (volume.id, volume.size)).collect();
    let mut all = Vec::new();
    for (volume, size) in volumes {
        for offset in (0..size).step_by(BLOCK) {
            let bytes = driver.request(volume, offset, BLOCK as u64, Task::Read);
            all.push((volume, offset, bytes.and_then(Result::ok)));
        }
    }
    all
}
