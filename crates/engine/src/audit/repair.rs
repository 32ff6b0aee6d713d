//! Offline repair: plans the writes that turn a damaged pool into one that opens. docs/rfc/0007-repair.md has the decisions.
//!
//! ```text
//! Superblock  the newest valid one, and no other; its missing copy is written again
//! Tables      volumes as far as they can be read, in families that an opening admits (`families`)
//! Journal     the chain as far as it is intact; its blocks are proven; all valid records fill the delta
//! Survey      every reachable page: counts references, notes damaged pages and those that must not be overwritten
//! Prove       blocks whose summary is lost, or contradicts the map, are read
//! Rewrite     maps with the delta merged, tables made anew from the maps, where they differ from the old ones
//! Superblock  of the next epoch, which includes all records
//! ```
//!
//! A repair is planned completely before the first write: [`plan_repair`] only reads, and returns the writes in their order. Nothing that the
//! superblock in force references is overwritten, so a crash before the new superblock leaves the pool unchanged.
//!
//! A repair never invents data: blocks that cannot be proven become *lost*, which read as an error until they are written again.
//!
//! Memory: 8 bytes a slot, two bits a metadata block, the journal, and the pages to be written.

mod families;
mod rewrite;
mod survey;

use crate::recovery::checks_of;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

use foldhash::fast::FixedState;
use hashbrown::HashSet;

use crate::api::Failure;
use crate::api::{BlockContent, Digest, VolumeId};
use crate::engine::Engine;
use crate::format::entry::{Entry, Key, Slot};
use crate::format::record::{self, Change};
use crate::format::superblock::{Parameters, Superblock};
use crate::format::volume::Volume;
use crate::limits::Limits;
use crate::locality_map::NearMap;
use crate::metadata::page_cache::PageKey;
use crate::metadata::tree::MAX_LEVELS;
use crate::recovery::{Recovery, blocks_of};

/// Store that a repair reads from.
pub struct Medium<'a> {
    /// Reads this number of bytes at a byte offset of the store, whole blocks; `None` if they cannot be read.
    pub read: &'a mut dyn FnMut(u64, u32) -> Option<Vec<u8>>,
    /// Describes the data block at a byte offset of the store; `None` if it cannot be read.
    pub content: &'a mut dyn FnMut(u64) -> Option<BlockContent>,
}

/// Blocks of a volume that are affected by damage.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BlockRange {
    /// Name of the volume, or of the snapshot as VOLUME@NAME.
    pub volume: String,
    /// The first block.
    pub first: u64,
    /// Number of blocks.
    pub blocks: u64,
}

/// Reason why there is no plan.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RepairError {
    /// No superblock of this pool can be read.
    NoSuperblock,
    /// A newer version wrote one of the superblocks.
    UnknownFormat,
    /// The pages to be written need more metadata blocks than are free.
    NoSpace {
        /// Metadata blocks that are needed.
        needed: u64,
        /// Metadata blocks that are free.
        free: u64,
    },
}

impl fmt::Display for RepairError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RepairError::NoSuperblock => f.write_str("none of its superblocks can be read"),
            RepairError::UnknownFormat => f.write_str("a newer version has written one of its superblocks"),
            RepairError::NoSpace { needed, free } => {
                write!(f, "the repair needs {needed} blocks of metadata, and {free} are free")
            }
        }
    }
}

/// A repair that has been planned.
pub struct Repair {
    /// Damage that was found, one sentence each.
    pub problems: Vec<String>,
    /// Structures that are written anew, one sentence each.
    pub actions: Vec<String>,
    /// Blocks that become lost, in order: their content is no longer known.
    pub lost: Vec<BlockRange>,
    /// Blocks whose last durable changes are lost with the journal, in order: they have their earlier state. Only those are listed whose records can
    /// still be read.
    pub reverted: Vec<BlockRange>,
    /// Superblock copies to be written first, and synced: byte offset, block.
    pub superblocks: Vec<(u64, Vec<u8>)>,
    /// Blocks that the journal holds and their slots do not, copied next: byte offsets to copy a block from and to.
    pub copies: Vec<(u64, u64)>,
    /// Pages, written last and synced: byte offset, page.
    pub pages: Vec<(u64, Vec<u8>)>,
    /// Reason why the pool has failed, if it has.
    pub failed: Option<Failure>,
    next: Superblock,
}

impl Repair {
    /// Returns the superblock that puts the repair into force, and the byte offsets of its two places. Each is written and synced alone, after all
    /// other writes. `lift`: the pool no longer counts as failed, because the audit of the result was clean.
    pub fn superblock(&self, lift: bool) -> (Vec<u8>, [u64; 2]) {
        let geometry = &self.next.parameters.geometry;
        let mut bytes = vec![0; geometry.block_size as usize];
        Superblock { failed: self.failed.filter(|_| !lift), ..self.next }.encode(&mut bytes);
        (bytes, [0, 1].map(|place| geometry.superblock_block(place, self.next.epoch) * geometry.block()))
    }
}

/// Bit that is set if the check bits of a slot's summary are known.
const KNOWN: u32 = 1 << 31;

/// A slot whose summary is lost or contradicts the map.
struct Suspect {
    /// Block that refers to the slot; `check` has the check bits of its map entry.
    owner: Key,
    check: u32,
    /// True if other blocks have other check bits.
    contradicted: bool,
}

/// The log of the map buffer.
struct Log {
    /// Its pages.
    pages: Vec<u32>,
    /// Resolved mappings of the log, without those that the journal has overwritten.
    mappings: Vec<(Key, Entry)>,
    /// True if the log can stay unchanged.
    is_sound: bool,
}

/// A repair being planned.
struct Planner<'a, 'm> {
    /// Engine that holds superblock, roots, volumes, maps and delta. It never runs.
    engine: Engine,
    medium: &'a mut Medium<'m>,
    plan: Repair,
    /// Metadata blocks that the superblock in force references, even if the repair gives them up.
    guarded: Vec<bool>,
    /// Metadata blocks that the repaired pool uses.
    used: Vec<bool>,
    /// Metadata blocks that are in use by their map, as far as it can be read.
    marked: Vec<bool>,
    /// Pages that cannot be used.
    bad: HashSet<PageKey, FixedState>,
    /// References to each slot, and the check bits that its summary gives.
    counts: Vec<u32>,
    checks: Vec<u32>,
    suspects: BTreeMap<Slot, Suspect>,
    /// Digests that were found for suspects, and for blocks that fail their digest; `None` if a block cannot be read.
    proven: BTreeMap<Slot, Option<Digest>>,
    /// Summaries to be written: digest, owner.
    summaries: BTreeMap<Slot, (Digest, Key)>,
    /// Leaves of summaries that cannot be read: first, end.
    lost_summaries: Vec<(u64, u64)>,
    /// Pages of the index on disk; `None` if it is to be dropped.
    index_pages: Option<Vec<u32>>,
    log: Log,
    /// Points of the delta, in order.
    points: Vec<(Key, Entry)>,
    /// For each volume: its number of blocks, of mapped blocks, and the leaves (first, end) that have to be looked at again.
    blocks: Vec<u64>,
    mapped: Vec<u64>,
    touched: Vec<Vec<(u64, u64)>>,
    /// For each volume: the blocks (first, end) that become lost.
    losses: Vec<Vec<(u64, u64)>>,
    /// Indexes of the volumes, parents first; without snapshots in the order of the table.
    order: Vec<usize>,
    /// Volumes whose parent is lost.
    orphans: BTreeSet<VolumeId>,
    /// Index in the plan of each page that the repair has made in a block of metadata.
    written: BTreeMap<u32, usize>,
    /// Page of a map that was looked at last, at each level.
    recent: [Option<(u32, Rc<[u8]>)>; MAX_LEVELS],
    /// Place at which the search for a free metadata block continues.
    next_free: usize,
    /// Number of metadata blocks that were free, and of those that were lacking.
    free: u64,
    lacking: u64,
}

/// Plans the repair of a pool that is not open anywhere. `data`: every block in use is read and compared with its digest, and becomes lost where it
/// does not match. The driver has read the parameters from the newest superblock.
///
/// There may be too few free blocks for the maps with all journaled changes. Then mappings that have no leaf yet go into the log of the map buffer:
/// that takes sixteen bytes a mapping, not a page at each level.
pub fn plan_repair(
    parameters: Parameters,
    limits: Limits,
    data: bool,
    medium: &mut Medium<'_>,
) -> Result<Repair, RepairError> {
    match plan_with(parameters, limits, data, false, medium) {
        Err(RepairError::NoSpace { .. }) => plan_with(parameters, limits, data, true, medium),
        planned => planned,
    }
}

/// Plans a repair. `spares`: new mappings without a leaf go into the log.
fn plan_with(
    parameters: Parameters,
    limits: Limits,
    data: bool,
    spares: bool,
    medium: &mut Medium<'_>,
) -> Result<Repair, RepairError> {
    let mut engine = Engine::open_to_audit(parameters, limits, 0);
    let mut plan = Repair {
        problems: Vec::new(),
        actions: Vec::new(),
        lost: Vec::new(),
        reverted: Vec::new(),
        superblocks: Vec::new(),
        copies: Vec::new(),
        pages: Vec::new(),
        failed: None,
        next: Superblock::new(parameters),
    };
    choose_superblock(&mut engine, &mut plan, medium)?;
    let geometry = parameters.geometry;
    let mut planner = Planner {
        engine,
        medium,
        plan,
        guarded: vec![false; geometry.metadata_blocks as usize],
        used: vec![false; geometry.metadata_blocks as usize],
        marked: vec![false; geometry.metadata_blocks as usize],
        bad: HashSet::with_hasher(FixedState::with_seed(11)),
        counts: vec![0; geometry.slots() as usize],
        checks: vec![0; geometry.slots() as usize],
        suspects: BTreeMap::new(),
        proven: BTreeMap::new(),
        summaries: BTreeMap::new(),
        lost_summaries: Vec::new(),
        index_pages: Some(Vec::new()),
        log: Log { pages: Vec::new(), mappings: Vec::new(), is_sound: true },
        points: Vec::new(),
        blocks: Vec::new(),
        mapped: Vec::new(),
        touched: Vec::new(),
        losses: Vec::new(),
        order: Vec::new(),
        orphans: BTreeSet::new(),
        written: BTreeMap::new(),
        recent: [const { None }; MAX_LEVELS],
        next_free: 0,
        free: 0,
        lacking: 0,
    };
    planner.read_volumes();
    let end = planner.read_journal();
    planner.survey();
    planner.prove(data);
    if spares {
        planner.keep_in_log();
    }
    planner.free = planner.guarded.iter().filter(|guarded| !**guarded).count() as u64;
    planner.rewrite(end);
    if planner.lacking > 0 {
        return Err(RepairError::NoSpace { needed: planner.free + planner.lacking, free: planner.free });
    }
    Ok(planner.plan)
}

/// Chooses the newest valid superblock, and plans its missing copy.
fn choose_superblock(engine: &mut Engine, plan: &mut Repair, medium: &mut Medium<'_>) -> Result<(), RepairError> {
    let geometry = *engine.pool.geometry();
    let ours = engine.pool.durable.superblock().parameters;
    let mut found = [None; 4];
    let mut broken = [false; 4];
    for (number, found) in found.iter_mut().enumerate() {
        let offset = geometry.superblock_block(number / 2, number as u64 % 2) * geometry.block();
        let bytes = (medium.read)(offset, geometry.block_size);
        if bytes.as_deref().is_some_and(|bytes| Superblock::refusal(bytes).is_some()) {
            return Err(RepairError::UnknownFormat);
        }
        // Superblocks of epochs that have not existed yet are zero; older geometries are fine.
        broken[number] = bytes
            .as_deref()
            .is_none_or(|bytes| bytes.iter().any(|&byte| byte != 0) && Superblock::decode(bytes).is_err());
        let decoded = bytes.as_deref().and_then(|bytes| Superblock::decode(bytes).ok());
        *found = decoded.filter(|found| found.parameters == ours);
        if broken[number] {
            plan.problems.push(format!("the superblock at byte {offset} cannot be read, or fails its checksum"));
        }
    }
    let newest = found.iter().flatten().max_by_key(|found| found.epoch).copied().ok_or(RepairError::NoSuperblock)?;
    let parity = (newest.epoch % 2) as usize;
    if broken[1 - parity] && broken[3 - parity] {
        let epoch = newest.epoch;
        plan.problems.push(format!(
            "both copies of one superblock are damaged: if it was the newer one, the following is the pool as of epoch \
             {epoch}, before its last changes"
        ));
    }
    for place in 0..2 {
        if found[place * 2 + parity] != Some(newest) {
            let offset = geometry.superblock_block(place, newest.epoch) * geometry.block();
            let mut bytes = vec![0; geometry.block_size as usize];
            newest.encode(&mut bytes);
            plan.superblocks.push((offset, bytes));
            plan.actions.push(format!("the superblock at byte {offset} is written again from its other copy"));
        }
    }
    engine.pool.durable.adopt_superblock(newest);
    plan.failed = newest.failed;
    engine.pool.durable.set_roots(newest.roots);
    engine.pool.adopt_properties();
    engine.pool.metadata.begin_epoch(newest.epoch + 1);
    Ok(())
}

/// Place at which the journal continues after the valid records.
struct JournalEnd {
    sequence: u64,
    checksum: u64,
    position: u32,
}

impl Planner<'_, '_> {
    fn problem(&mut self, text: String) {
        self.plan.problems.push(text);
    }

    fn geometry(&self) -> crate::format::geometry::Geometry {
        *self.engine.pool.geometry()
    }

    /// Returns the byte offset of a slot by the layout, in its container.
    fn slot_offset(&self, slot: Slot) -> u64 {
        let geometry = self.geometry();
        geometry.slot_block(slot.0) * geometry.block()
    }

    // ---- the journal ----

    /// Replays the valid records into the delta.
    fn read_journal(&mut self) -> JournalEnd {
        let mut recovery = Recovery::default();
        let Superblock { included, included_checksum, journal_position, .. } = *self.engine.pool.durable.superblock();
        let block = self.geometry().block();
        recovery.position = journal_position;
        recovery.watermark = self.engine.pool.durable.superblock().watermark();
        let sizes = self.engine.pool.durable.volumes().iter().map(|volume| (volume.id, volume.size.div_ceil(block)));
        recovery.sizes = sizes.collect();
        while let Some((offset, length)) = recovery.walk_window(&self.engine.pool, u64::MAX) {
            let bytes = (self.medium.read)(offset, length as u32);
            // One block may be unreadable, and not be needed.
            match bytes.or_else(|| (self.medium.read)(offset, block as u32)) {
                Some(bytes) => recovery.window.extend_from_slice(&bytes),
                None => break,
            }
        }
        let (epoch, newest) = (self.engine.pool.durable.superblock().epoch, recovery.newest_epoch);
        if newest > epoch {
            self.problem(format!(
                "the newest superblock is lost: the journal has records of epoch {newest}, and the newest superblock that can be read \
                 is of epoch {epoch}: volumes and properties are those of then, with what the journal says"
            ));
            // Old records must be older than the seal.
            self.engine.pool.metadata.begin_epoch(newest + 1);
        }
        let accepted = self.accept(&mut recovery);
        let last = recovery.records[..accepted].last();
        let end = JournalEnd {
            sequence: last.map_or(included, |record| record.header().sequence),
            checksum: last.map_or(included_checksum, |record| record.checksum()),
            position: {
                let used: u32 = recovery.records[..accepted].iter().map(|record| blocks_of(record.header())).sum();
                (journal_position + used) % self.geometry().journal_blocks
            },
        };
        if recovery.watermark > end.sequence {
            let (first, watermark) = (end.sequence + 1, recovery.watermark);
            self.problem(format!(
                "the journal is damaged from record {first} on: changes up to record {watermark} were durable, and those from \
                 there on are lost; every volume is as it was after record {}",
                end.sequence
            ));
            self.list_reverted(end.sequence, watermark);
        }
        recovery.records.truncate(accepted);
        for record in &recovery.records {
            for change in record.changes() {
                self.engine.pool.durable.note_replayed_backlog(change.is_offline());
                self.engine.pool.replay_change(change, record.header().sequence);
            }
        }
        self.prove_new_blocks(&recovery.inlined);
        end
    }

    /// Lists the blocks that the durable records after record `last` changed.
    fn list_reverted(&mut self, last: u64, watermark: u64) {
        let block = self.geometry().block();
        let mut ranges = BTreeMap::new();
        for record in self.stray_records(last, watermark) {
            for change in record {
                let Some(at) = volume_of(&change).and_then(|volume| self.engine.pool.volume_index(volume)) else {
                    continue;
                };
                let volume = &self.engine.pool.durable.volumes()[at];
                let (first, end) = match change {
                    Change::Clear { key, end } => (key.lba(), end.min(volume.size.div_ceil(block))),
                    Change::Fresh { key, .. }
                    | Change::Inlined { key, .. }
                    | Change::Share { key, .. }
                    | Change::Zero { key } => (key.lba(), key.lba() + 1),
                    Change::DeleteVolume { .. } => {
                        let text = format!("the deletion of {} is lost: it is there again", self.what(at));
                        self.problem(text);
                        continue;
                    }
                    Change::ResizeVolume { .. } => {
                        let text = format!("a change of the size of {} is lost", self.what(at));
                        self.problem(text);
                        continue;
                    }
                };
                let longest = ranges.entry((at, first)).or_insert(end);
                *longest = end.max(*longest);
            }
        }
        for ((at, first), end) in ranges {
            let volume = self.name_of(at);
            match self.plan.reverted.last_mut() {
                Some(before) if before.volume == volume && first <= before.first + before.blocks => {
                    before.blocks = before.blocks.max(end - before.first);
                }
                _ if first < end => {
                    self.plan.reverted.push(BlockRange { volume, first, blocks: end - first });
                }
                _ => {}
            }
        }
    }

    /// Returns the changes of the records after `last` up to `watermark` that the journal still has, anywhere in the ring.
    fn stray_records(&mut self, last: u64, watermark: u64) -> Vec<Vec<Change>> {
        let geometry = self.geometry();
        let (block, ring) = (geometry.block(), geometry.journal_blocks);
        let mut page_at = |position: u32| {
            let offset = (geometry.journal_start() + u64::from(position % ring)) * block;
            (self.medium.read)(offset, block as u32)
        };
        let mut records = Vec::new();
        for position in 0..ring {
            let Some(mut pages) = page_at(position) else { continue };
            let Some(header) = record::decode_header(&pages) else { continue };
            let is_meant = header.position == position
                && header.epoch >= self.engine.pool.durable.superblock().seal_epoch
                && (last + 1..=watermark).contains(&header.sequence);
            if !is_meant {
                continue;
            }
            let more: Option<Vec<_>> = (1..u32::from(header.pages)).map(|page| page_at(position + page)).collect();
            pages.extend(more.into_iter().flatten().flatten());
            if pages.len() as u64 == u64::from(header.pages) * block {
                let decoded = record::decode(&header, &mut pages, self.engine.pool.metadata.journal_seed());
                records.extend(decoded.map(|(changes, _)| changes));
            }
        }
        records
    }

    /// Returns the number of valid records: those that make sense, and whose blocks are proven where necessary.
    fn accept(&mut self, recovery: &mut Recovery) -> usize {
        let block = self.geometry().block();
        let Recovery { records, inlined, sizes, watermark, .. } = recovery;
        for (number, record) in records.iter_mut().enumerate() {
            // Changes of a volume that is lost with its table are lost with it.
            record.retain(|change| volume_of(change).is_none_or(|volume| sizes.contains_key(&volume)));
            let (checks, makes_sense) = checks_of(&self.engine.pool, record, inlined, sizes, *watermark);
            let content = &mut self.medium.content;
            let holds = |check: &crate::recovery::Check| {
                content(check.block * block).is_some_and(|found| !found.zero && found.digest == check.digest)
            };
            if !makes_sense || !checks.iter().all(holds) {
                return number;
            }
        }
        records.len()
    }

    /// Checks that slots first named by the delta hold their contents, or that the journal still has them; otherwise the blocks that refer to them
    /// are lost.
    fn prove_new_blocks(&mut self, inlined: &NearMap<Slot, (Digest, u64, u64)>) {
        let block = self.geometry().block();
        let fresh =
            self.engine.pool.durable.delta().slots().iter().filter(|(_, recent)| recent.fresh && recent.refs > 0);
        let mut fresh: Vec<_> = fresh.map(|(&slot, &recent)| (slot, recent)).collect();
        fresh.sort_unstable_by_key(|&(slot, _)| slot);
        for (slot, recent) in fresh {
            let offset = self.slot_offset(slot);
            let content = &mut self.medium.content;
            let mut holds = |offset| content(offset).is_some_and(|found| !found.zero && found.digest == recent.digest);
            if holds(offset) {
                self.summaries.insert(slot, (recent.digest, recent.owner));
                continue;
            }
            let in_journal = inlined.get(&slot).filter(|(digest, ..)| *digest == recent.digest);
            let from = in_journal.map(|(_, at, _)| at * block).filter(|&from| holds(from));
            match from {
                Some(from) => {
                    self.plan.copies.push((from, offset));
                    self.summaries.insert(slot, (recent.digest, recent.owner));
                }
                None => {
                    self.problem(format!("the block at byte {offset} of the store does not match its digest"));
                    self.proven.insert(slot, None);
                }
            }
        }
        self.points = self.engine.pool.durable.delta().points().iter().map(|(&key, &entry)| (key, entry)).collect();
        self.points.sort_unstable_by_key(|&(key, _)| key);
        let lost = |slot: Slot| self.proven.contains_key(&slot);
        for (_, entry) in self.points.iter_mut().filter(|(_, entry)| entry.slot().is_some_and(lost)) {
            *entry = Entry::LOST;
        }
    }

    /// Returns the volume at this index of the table.
    fn volume(&self, at: usize) -> &Volume {
        &self.engine.pool.durable.volumes()[at]
    }
}

/// Returns the volume that a change is about; `None` if it is about none.
fn volume_of(change: &Change) -> Option<VolumeId> {
    Some(match *change {
        Change::Fresh { key, .. }
        | Change::Inlined { key, .. }
        | Change::Share { key, .. }
        | Change::Zero { key }
        | Change::Clear { key, .. } => key.volume(),
        Change::DeleteVolume { volume } | Change::ResizeVolume { volume, .. } => volume,
    })
}
