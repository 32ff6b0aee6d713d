//! Crash recovery: turns the state that a crash left into a pool that serves. Every opening is a recovery. docs/internals/recovery.md has the argument.
//!
//! ```text
//! Sync         data that is read may be only in a cache
//! Superblocks  four slots; the newest valid one counts
//! Tables       containers, metadata map, volumes, discards come into memory
//! Walk         the journal's chain from the checkpoint to its end
//! Verify       records above the highest watermark, in order, by the digests of their blocks; the first that fails ends it
//! Replay       the valid records fill the delta
//! Redo         the pool is still ours (owner.rs); blocks inlined in the journal go to their slots, where the final mapping needs them
//! Look         the pool is still ours
//! Repair       the missing copy of the superblock, then a sync
//! Seal         a superblock of a new epoch in both places names the last valid record, then a sync
//! ```
//!
//! Every step can be repeated from the start after another crash: up to the seal, only the missing copy and blocks that the journal still carries are
//! written. An I/O error, a damaged page, or a damaged record that was known durable ends the opening with an error that names it; nothing is written
//! in that case.

mod walk;

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::api::Failure;
use crate::api::*;
use crate::block_map::discards::{Discard, HiddenRange};
use crate::block_map::map_buffer::{self, MapBuffer};
use crate::format::entry::{Entry, Key, Slot};
use crate::format::layout::height_for;
use crate::format::record::Change;
use crate::format::superblock::{Root, Superblock, TreeId, VERSION};
use crate::format::volume::{self, Family, Keeps, most_blocks};
use crate::journal::Journal;
use crate::limits::REPLAY_ENTRY_BYTES;
use crate::locality_map::NearMap;
use crate::metadata::io::Purpose;
use crate::metadata::page_cache::{PageKey, Region};
use crate::metadata::tree::{Walk, lookup};
use crate::mutant::Mutant;
use crate::pool::Pool;
use crate::pool::state::Phase;
use crate::pool::tables::table_name;

pub(crate) use walk::{Walked, blocks_of};

/// Number of blocks verified or redone at once.
const AT_ONCE: usize = 32;
/// Number of table leaves loaded ahead.
const LOAD_AHEAD: u64 = 32;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum RecoveryStep {
    #[default]
    Start,
    Sync,
    Superblocks,
    Tables,
    Walk,
    Verify,
    Redo,
    Look,
    Repaired,
    RepairSync,
    Seal,
    SealSync,
}

/// Tables that are held in memory.
const TABLES: [TreeId; 5] = [TreeId::Containers, TreeId::MetaMap, TreeId::Volumes, TreeId::Discards, TreeId::MapBuffer];

/// A block whose digest is checked; in Redo also the slot to copy it to.
#[derive(Clone, Copy)]
pub(crate) struct Check {
    pub(crate) block: u64,
    pub(crate) digest: Digest,
    slot: Slot,
    /// Record that names the block.
    sequence: u64,
}

/// State of an opening.
#[derive(Default)]
pub(crate) struct Recovery {
    step: RecoveryStep,
    outstanding: usize,
    found: [Option<Superblock>; 4],
    /// True if a superblock slot of even, or of odd, epochs could not be read.
    unreadable: [bool; 2],
    table: usize,
    leaf: u64,
    /// Bytes of the ring from block `position` on.
    pub(crate) window: Vec<u8>,
    pub(crate) position: u32,
    walked_blocks: u32,
    pub(crate) records: Vec<Walked>,
    /// Number of entries in `records`.
    entries: u64,
    /// The log of the map buffer.
    buffered: Vec<(Key, Entry)>,
    /// Last record that is certainly durable.
    pub(crate) watermark: u64,
    /// Highest epoch of a record: its superblock was durable in both places.
    pub(crate) newest_epoch: u64,
    verify_at: usize,
    checks: Vec<Check>,
    check_at: usize,
    failed_check: bool,
    /// Blocks inlined in the journal, by slot: digest, block of the store, record.
    pub(crate) inlined: NearMap<Slot, (Digest, u64, u64)>,
    /// Blocks of each volume, as of the record that is being verified.
    pub(crate) sizes: BTreeMap<VolumeId, u64>,
    /// True if the first sync failed: nothing may be written.
    unsynced: bool,
    /// True if the pool has a volume of second copies.
    has_copies: bool,
    report: Recovered,
}

/// Reason why [`Recovery::advance`] returns.
pub(crate) enum RecoveryStop {
    /// It waits for I/O.
    Wait,
    /// The superblock is chosen: the jobs can adopt its records.
    Chosen,
    /// All changes are replayed, and the pool can serve.
    Done,
}

impl Recovery {
    /// Returns the result of the recovery for the driver.
    pub(crate) fn report(&self) -> Recovered {
        self.report
    }

    /// Returns true if the pool has a volume of second copies.
    pub(crate) fn has_copies(&self) -> bool {
        self.has_copies
    }

    /// Steps until recovery waits for I/O (also if the opening has failed meanwhile), has chosen the superblock, or is done.
    pub(crate) fn advance(&mut self, pool: &mut Pool) -> Result<RecoveryStop, OpenError> {
        while self.outstanding == 0 && pool.state.phase() == Phase::Recovering {
            match self.recovery_step(pool)? {
                RecoveryProgress::Wait => break,
                RecoveryProgress::Next(step) => {
                    if core::mem::replace(&mut self.step, step) == RecoveryStep::Superblocks {
                        return Ok(RecoveryStop::Chosen);
                    }
                }
                RecoveryProgress::Done => return Ok(RecoveryStop::Done),
            }
        }
        Ok(RecoveryStop::Wait)
    }
}

/// Result of one step of recovery: it waits for I/O, continues with another step, or is done.
enum RecoveryProgress {
    Wait,
    Next(RecoveryStep),
    Done,
}

impl Recovery {
    fn recovery_sync(&mut self, pool: &mut Pool) {
        self.outstanding += 1;
        pool.metadata.io_mut().begin(IoOp::Sync, 0, 0, [], Purpose::Recovery(0));
    }

    fn read_superblocks(&mut self, pool: &mut Pool) {
        let block = pool.metadata.geometry().block();
        for number in 0..4u32 {
            let at = pool.metadata.geometry().superblock_block(number as usize / 2, u64::from(number % 2));
            self.outstanding += 1;
            pool.metadata.io_mut().begin(IoOp::ReadPages, at * block, block, [], Purpose::Recovery(number));
        }
    }

    /// Reads the next blocks whose digests have to be checked.
    fn read_checks(&mut self, pool: &mut Pool) {
        let bytes = pool.metadata.geometry().block();
        while self.outstanding < AT_ONCE && self.check_at < self.checks.len() {
            let Some(buffer) = pool.memory.buffers_mut().take() else { break };
            let number = self.check_at as u32;
            let offset = self.checks[self.check_at].block * bytes;
            let segment = [Segment::Buffer(buffer)];
            pool.metadata.io_mut().begin(IoOp::ReadBlocks, offset, bytes, segment, Purpose::Recovery(number));
            self.check_at += 1;
            self.outstanding += 1;
        }
    }

    fn block_checked(&mut self, pool: &mut Pool, number: usize, buffer: BufferId, content: BlockContent) {
        if pool.state.phase() != Phase::Recovering {
            return pool.memory.buffers_mut().release(buffer);
        }
        let check = self.checks[number];
        let good = !content.zero && content.digest == check.digest;
        if self.step == RecoveryStep::Redo && good {
            let block = pool.metadata.geometry().block();
            let offset = pool.metadata.geometry().slot_block(check.slot.0) * block;
            let segment = [Segment::Buffer(buffer)];
            pool.metadata.io_mut().begin(IoOp::Write, offset, block, segment, Purpose::Recovery(0));
            self.outstanding += 1;
            self.report.blocks_redone += 1;
            return;
        }
        pool.memory.buffers_mut().release(buffer);
        if !good && self.step == RecoveryStep::Redo {
            pool.recovery_failed(OpenError::DamagedJournal { sequence: check.sequence });
        }
        self.failed_check |= !good;
    }

    /// Writes the blocks inlined in the journal to their slots, where the final mapping needs them.
    fn redo(&mut self, pool: &mut Pool) -> Result<RecoveryProgress, OpenError> {
        if pool.state.failure().is_some() {
            // The pool is not written: these blocks are read from the journal.
            pool.durable.keep_in_journal(self.checks.drain(..).map(|check| (check.slot, check.block)));
            return Ok(self.rest(pool));
        }
        if self.check_at < self.checks.len() && !pool.mutant(Mutant::SkippedRedo) {
            self.read_checks(pool);
            return Ok(RecoveryProgress::Wait);
        }
        self.look_while_recovering(pool);
        Ok(RecoveryProgress::Next(RecoveryStep::Look))
    }

    /// Checks that the pool is still ours, before it is written to.
    fn look_while_recovering(&mut self, pool: &mut Pool) {
        if let Some(at) = pool.geometry().owner_block().filter(|_| pool.owner_nonce().is_some()) {
            let block = pool.metadata.geometry().block();
            self.outstanding += 1;
            pool.metadata.io_mut().begin(IoOp::ReadPages, at * block, block, [], Purpose::Recovery(0));
        }
    }

    fn repair(&mut self, pool: &mut Pool) -> RecoveryProgress {
        let newest = *pool.durable.superblock();
        let parity = (newest.epoch % 2) as usize;
        let missing: Vec<usize> = (0..2).filter(|place| self.found[place * 2 + parity] != Some(newest)).collect();
        if !missing.is_empty() {
            self.outstanding += missing.len();
            pool.submit_superblock(&newest, &missing, Purpose::Recovery(0)).expect("pages are free");
        }
        if missing.is_empty() {
            RecoveryProgress::Next(RecoveryStep::RepairSync)
        } else {
            RecoveryProgress::Next(RecoveryStep::Repaired)
        }
    }

    fn seal(&mut self, pool: &mut Pool) -> Result<RecoveryProgress, OpenError> {
        let journal = self.journal_after(pool);
        let epoch = pool.begin_epoch();
        let last = journal.last();
        let numbers = Superblock { epoch, sealed: last, proven: last, seal_epoch: epoch, ..*pool.durable.superblock() };
        let seal = Superblock { version: VERSION, clean: false, flash: 0, ..numbers };
        if !pool.mutant(Mutant::MissingSeal) {
            self.outstanding += 2;
            pool.submit_superblock(&seal, &[0, 1], Purpose::Recovery(0)).expect("pages are free");
        }
        pool.durable.set_superblock(seal);
        pool.durable.set_journal(journal);
        self.report.epoch = epoch;
        Ok(RecoveryProgress::Next(RecoveryStep::Seal))
    }

    /// Creates the journal that continues after the valid records.
    fn journal_after(&self, pool: &Pool) -> Journal {
        let last = self.records.last();
        let sequence = last.map_or(pool.durable.superblock().included, |walked| walked.header.sequence);
        let checksum = last.map_or(pool.durable.superblock().included_checksum, |walked| walked.checksum);
        let used: u32 = self.records.iter().map(|walked| blocks_of(&walked.header)).sum();
        let geometry = *pool.metadata.geometry();
        let head = (pool.durable.superblock().journal_position + used) % geometry.journal_blocks;
        Journal::new(geometry.journal_blocks, geometry.block_size, sequence, checksum, head, used)
            .with_entries(self.report.entries)
    }

    /// Ends a recovery without a write: tables and delta have the complete state.
    fn rest(&mut self, pool: &mut Pool) -> RecoveryProgress {
        pool.durable.set_journal(self.journal_after(pool));
        pool.state.leave_untouched();
        self.report.epoch = pool.durable.superblock().epoch;
        RecoveryProgress::Done
    }

    /// Verifies one record after the other; the first that fails, and all later ones, count as never written.
    fn verify(&mut self, pool: &mut Pool) -> Result<RecoveryProgress, OpenError> {
        loop {
            if self.failed_check {
                self.records.truncate(self.verify_at);
                self.checks.clear();
                break;
            }
            if self.check_at < self.checks.len() {
                self.read_checks(pool);
                return Ok(RecoveryProgress::Wait);
            }
            if !self.checks.is_empty() {
                // All blocks of the record have passed.
                self.checks.clear();
                self.verify_at += 1;
                continue;
            }
            let Recovery { records, inlined, sizes, watermark, .. } = self;
            let Some(walked) = records.get(self.verify_at) else { break };
            let (checks, valid) = checks_of(pool, walked, inlined, sizes, *watermark);
            if !valid {
                return Err(OpenError::DamagedJournal { sequence: walked.header.sequence });
            }
            self.check_at = 0;
            if checks.is_empty() {
                self.verify_at += 1;
            }
            self.checks = checks;
        }
        self.replay(pool)?;
        self.check_at = 0;
        self.look_while_recovering(pool);
        Ok(RecoveryProgress::Next(RecoveryStep::Redo))
    }

    /// Replays the valid records into the delta.
    fn replay(&mut self, pool: &mut Pool) -> Result<(), OpenError> {
        for walked in &self.records {
            self.report.records += 1;
            self.report.entries += walked.changes.len() as u64;
            for change in &walked.changes {
                self.report.offline_blocks += u64::from(change.is_offline());
                pool.replay_change(change, walked.header.sequence);
            }
        }
        // No change of these records can be lost, because the seal makes them durable. Fresh slots without references are free. The other slots are
        // in use in the space map, or held.
        pool.durable.forget_released();
        let fresh: Vec<_> =
            pool.durable.delta().slots().iter().filter(|(_, recent)| recent.fresh).map(|(&s, r)| (s, *r)).collect();
        for (slot, recent) in fresh {
            // A container that is full in its table has no new block.
            pool.note_replayed(slot);
            if pool.durable.space_mut().take(slot).is_none() {
                let block = pool.metadata.geometry().slot_block(slot.0);
                let offset = block * pool.metadata.geometry().block();
                return Err(OpenError::DamagedPage { offset, what: "a slot that is in use" });
            }
            if pool.copied_from(recent.owner).is_none() {
                pool.note_known(recent.digest, slot);
            }
        }
        self.checks.clear();
        let mut inlined: Vec<_> = core::mem::take(&mut self.inlined).into_iter().collect();
        inlined.sort_unstable_by_key(|&(slot, _)| slot);
        for (slot, (digest, block, sequence)) in inlined {
            if pool.durable.delta().live(slot).is_some_and(|recent| recent.fresh && recent.digest == digest) {
                self.checks.push(Check { block, digest, slot, sequence });
            }
        }
        Ok(())
    }

    fn recovery_step(&mut self, pool: &mut Pool) -> Result<RecoveryProgress, OpenError> {
        match self.step {
            RecoveryStep::Start => {
                self.recovery_sync(pool);
                Ok(RecoveryProgress::Next(RecoveryStep::Sync))
            }
            RecoveryStep::Sync => {
                self.read_superblocks(pool);
                Ok(RecoveryProgress::Next(RecoveryStep::Superblocks))
            }
            RecoveryStep::Superblocks => self.choose_superblock(pool),
            RecoveryStep::Tables => self.read_tables(pool),
            RecoveryStep::Walk => self.walk(pool),
            RecoveryStep::Verify => self.verify(pool),
            RecoveryStep::Redo => self.redo(pool),
            RecoveryStep::Look => Ok(self.repair(pool)),
            RecoveryStep::Repaired => {
                self.recovery_sync(pool);
                Ok(RecoveryProgress::Next(RecoveryStep::RepairSync))
            }
            RecoveryStep::RepairSync => self.seal(pool),
            RecoveryStep::Seal if pool.mutant(Mutant::UnsyncedSeal) => Ok(RecoveryProgress::Done),
            RecoveryStep::Seal => {
                self.recovery_sync(pool);
                Ok(RecoveryProgress::Next(RecoveryStep::SealSync))
            }
            RecoveryStep::SealSync => Ok(RecoveryProgress::Done),
        }
    }

    fn choose_superblock(&mut self, pool: &mut Pool) -> Result<RecoveryProgress, OpenError> {
        let unknown = |parity: &usize| {
            self.unreadable[*parity] && [0, 2].iter().all(|place| self.found[place + parity].is_none())
        };
        if let Some(parity) = (0..2).find(unknown) {
            // The unreadable superblock may be the newest.
            let offset = pool.metadata.geometry().superblock_block(0, parity as u64) * pool.metadata.geometry().block();
            return Err(OpenError::Device { offset });
        }
        let ours = pool.durable.superblock().parameters;
        let valid = self.found.iter().flatten().filter(|found| found.parameters == ours);
        let oldest = pool.mutant(Mutant::OldSuperblock);
        let age = |found: &&Superblock| if oldest { u64::MAX - found.epoch } else { found.epoch };
        pool.durable.adopt_superblock(*valid.max_by_key(age).ok_or(OpenError::NoSuperblock)?);
        if pool.durable.superblock().objection().is_some() {
            return Err(OpenError::UnknownFormat);
        }
        pool.durable.set_roots(pool.durable.superblock().roots);
        pool.adopt_properties();
        pool.metadata.begin_epoch(pool.durable.superblock().epoch);
        self.report.clean = pool.durable.superblock().clean;
        pool.state.adopt_failure(pool.durable.superblock().failed);
        self.report.failed = pool.state.failure();
        if self.unsynced && pool.state.failure().is_none() {
            return Err(OpenError::Device { offset: 0 });
        }
        self.position = pool.durable.superblock().journal_position;
        self.watermark = pool.durable.superblock().watermark();
        for tree in TABLES.into_iter().chain([TreeId::SpaceMap, TreeId::Counts, TreeId::Summaries, TreeId::DiskIndex]) {
            let height = height_for(pool.table_leaves(tree), pool.metadata.geometry().fanout());
            let root = pool.durable.root(tree);
            if root.pointer.is_none() {
                // The volume table becomes higher with its numbers.
                let height = if tree == TreeId::Volumes { 0 } else { height };
                pool.durable.set_root(tree, Root { height, ..root });
            } else if root.height > height {
                let offset = pool.metadata.geometry().superblock_block(0, pool.durable.superblock().epoch)
                    * pool.metadata.geometry().block();
                return Err(OpenError::DamagedPage { offset, what: "the superblock" });
            }
        }
        Ok(RecoveryProgress::Next(RecoveryStep::Tables))
    }

    fn read_tables(&mut self, pool: &mut Pool) -> Result<RecoveryProgress, OpenError> {
        let Some(&tree) = TABLES.get(self.table) else {
            let records = core::mem::take(&mut self.buffered);
            has_memory_to_buffer(pool, records.len())?;
            pool.durable.set_map_buffer(MapBuffer::from_log(records, pool.durable.map_buffer().logged()));
            if !pool.durable.map_buffer().iter().all(|(key, entry)| pool.may_be_buffered(key, entry)) {
                let location = pool.durable.root(TreeId::MapBuffer).pointer.location;
                let offset = pool.metadata.offset(PageKey { region: Region::Metadata, location });
                return Err(OpenError::DamagedPage { offset, what: table_name(TreeId::MapBuffer) });
            }
            let data_used = pool.durable.superblock().data_used;
            pool.durable.space_mut().set_data_used(data_used);
            pool.review_orphans();
            let reserved = pool.durable.superblock().reserved_containers.min(pool.metadata.geometry().containers);
            pool.durable.space_mut().set_reserved(reserved);
            if pool.state.reads_only() && pool.durable.superblock().clean {
                return Ok(self.rest(pool));
            }
            let block = pool.metadata.geometry().block();
            self.sizes = pool.durable.volumes().iter().map(|volume| (volume.id, volume.size.div_ceil(block))).collect();
            return Ok(RecoveryProgress::Next(RecoveryStep::Walk));
        };
        let region = if tree == TreeId::MetaMap { Region::MetaMap } else { Region::Metadata };
        let (root, leaves) = (pool.durable.root(tree), pool.table_leaves(tree));
        while self.leaf < leaves {
            match lookup(&mut pool.metadata, region, root, self.leaf) {
                Walk::Leaf(page) => {
                    if self.read_table_leaf(pool, tree, page).is_none() {
                        let offset = pool.metadata.offset(pool.metadata.pages().key_of(page));
                        return Err(OpenError::DamagedPage { offset, what: table_name(tree) });
                    }
                    self.leaf += 1;
                }
                Walk::Absent(level) => {
                    let span = pool.metadata.geometry().fanout().saturating_pow(u32::from(level));
                    self.leaf = (self.leaf / span).saturating_add(1).saturating_mul(span);
                }
                Walk::Missing(missing) | Walk::From { missing, .. } => {
                    if !pool.metadata.is_valid(missing.key) {
                        let offset = pool.metadata.offset(missing.key);
                        return Err(OpenError::DamagedPage { offset, what: table_name(tree) });
                    }
                    pool.metadata.load(missing, None);
                    let ahead = LOAD_AHEAD.min(pool.metadata.pages().available() as u64 / 4);
                    for leaf in self.leaf + 1..leaves.min(self.leaf + ahead) {
                        if let Walk::Missing(missing) = lookup(&mut pool.metadata, region, root, leaf) {
                            pool.metadata.load(missing, None);
                        }
                    }
                    return Ok(RecoveryProgress::Wait);
                }
            }
        }
        if tree == TreeId::Volumes && !link_families(pool) {
            let offset = pool.metadata.offset(PageKey { region, location: root.pointer.location });
            return Err(OpenError::DamagedPage { offset, what: table_name(tree) });
        }
        self.table += 1;
        self.leaf = 0;
        Ok(RecoveryProgress::Next(RecoveryStep::Tables))
    }

    fn read_table_leaf(&mut self, pool: &mut Pool, tree: TreeId, page: PageId) -> Option<()> {
        let leaf = self.leaf;
        let bytes = pool.metadata.pages().bytes(page);
        let geometry = pool.metadata.geometry();
        match tree {
            TreeId::Containers => pool.durable.space_mut().read_container_leaf(leaf, bytes)?,
            TreeId::MetaMap => pool.metadata.read_allocator_leaf(leaf, page),
            TreeId::Volumes => {
                let (form, block) = (pool.durable.volumes().form(), geometry.block());
                for (at, entry) in bytes.chunks_exact(form.entry_bytes() as usize).enumerate() {
                    let Some((volume, root)) = volume::decode(entry).ok()? else { continue };
                    if !form.is_place_of(volume.id, leaf, at as u64, block) {
                        return None;
                    }
                    let volumes = pool.durable.volumes();
                    let is_family = volume.family != Family::default();
                    let has_families = pool.durable.superblock().has_families;
                    if !volumes.admits(&volume, &root) || volumes.has_name_of(&volume) || is_family && !has_families {
                        return None;
                    }
                    match volume.keeps {
                        Some(Keeps::SecondCopies) => {
                            pool.durable.set_second_copies(volume.id);
                            self.has_copies = true;
                        }
                        Some(Keeps::Replicas) => {
                            let found = (volume.id, volume.size / geometry.block());
                            pool.hints.replicas.set_volume(Some(found), geometry.slots_per_container);
                        }
                        None => {}
                    }
                    pool.durable.volumes_mut().load(volume, root, leaf);
                }
            }
            TreeId::Discards => {
                for entry in bytes.chunks_exact(crate::block_map::discards::DISCARD_BYTES) {
                    if let Some(range) = HiddenRange::read(entry) {
                        let volume = pool.durable.volumes().find(range.volume).map(|at| &pool.durable.volumes()[at]);
                        if volume.is_none_or(|volume| volume.family.parent.is_none()) {
                            return None;
                        }
                        pool.durable.discards_mut().hide(range);
                    } else if let Some(discard) = Discard::read(entry) {
                        if !pool.durable.volumes().admits_level(discard.level) {
                            return None;
                        }
                        pool.durable.discards_mut().push(discard);
                    } else {
                        continue;
                    }
                    pool.durable.discards_mut().set_leaves(leaf + 1);
                }
            }
            TreeId::MapBuffer => {
                let before = self.buffered.len();
                self.buffered.extend(map_buffer::records(bytes));
                let per_leaf = geometry.block() / map_buffer::RECORD_BYTES as u64;
                pool.durable.map_buffer_mut().set_logged(leaf * per_leaf + (self.buffered.len() - before) as u64);
            }
            TreeId::SpaceMap | TreeId::Counts | TreeId::Summaries | TreeId::DiskIndex => {}
        }
        Some(())
    }
}

/// Returns an error if the map buffer holds more than memory allows. Until it is flushed, it may exceed its limit by an eighth of the payload
/// buffers.
fn has_memory_to_buffer(pool: &Pool, records: usize) -> Result<(), OpenError> {
    let beyond = (records as u64).saturating_sub(pool.limits.map_buffer.into()) * map_buffer::RECORD_BYTES as u64;
    let entries = 8 * beyond / REPLAY_ENTRY_BYTES;
    let fits = entries <= pool.limits.replayable_entries(pool.metadata.geometry());
    if fits { Ok(()) } else { Err(OpenError::TooLittleMemory { entries }) }
}

/// Returns the blocks that have to be checked before a record counts as valid, and false if its changes make no sense.
pub(crate) fn checks_of(
    pool: &Pool,
    walked: &Walked,
    inlined: &mut NearMap<Slot, (Digest, u64, u64)>,
    sizes: &mut BTreeMap<VolumeId, u64>,
    watermark: u64,
) -> (Vec<Check>, bool) {
    let header = &walked.header;
    let proven = header.sequence <= watermark || pool.mutant(Mutant::UnprovenRecord);
    let ring = u64::from(pool.metadata.geometry().journal_blocks);
    let first_block = u64::from(header.position) + u64::from(header.pages);
    let mut checks = Vec::new();
    for change in &walked.changes {
        if !makes_sense(pool, change, sizes) {
            return (checks, false);
        }
        let (slot, digest, block) = match *change {
            Change::Inlined { slot, digest, block, .. } => {
                let ring_block = (first_block + u64::from(block)) % ring;
                let block = pool.metadata.geometry().journal_start() + ring_block;
                inlined.insert(slot, (digest, block, header.sequence));
                (slot, digest, block)
            }
            Change::Fresh { slot, digest, .. } => {
                inlined.remove(&slot);
                (slot, digest, pool.metadata.geometry().slot_block(slot.0))
            }
            Change::Share { slot, digest, .. } => match inlined.get(&slot) {
                Some((known, ..)) if *known == digest => continue,
                _ => (slot, digest, pool.metadata.geometry().slot_block(slot.0)),
            },
            Change::Zero { .. } | Change::Clear { .. } | Change::DeleteVolume { .. } | Change::ResizeVolume { .. } => {
                continue;
            }
        };
        if !proven {
            checks.push(Check { block, digest, slot, sequence: header.sequence });
        }
    }
    (checks, true)
}

/// Returns true if a change makes sense for volumes of these sizes; keeps the sizes up to date.
fn makes_sense(pool: &Pool, change: &Change, sizes: &mut BTreeMap<VolumeId, u64>) -> bool {
    let (key, end) = match *change {
        Change::Clear { key, end } => (key, end),
        Change::Fresh { key, slot, .. } | Change::Inlined { key, slot, .. } | Change::Share { key, slot, .. } => {
            if !pool.durable.space().contains(slot) {
                return false;
            }
            (key, key.lba() + 1)
        }
        Change::Zero { key } => (key, key.lba() + 1),
        Change::DeleteVolume { volume } => {
            // What others inherit from stays.
            let mut children = pool.durable.volumes().lineage().children(volume);
            return children.all(|child| !sizes.contains_key(&child)) && sizes.remove(&volume).is_some();
        }
        Change::ResizeVolume { volume, blocks } => {
            let possible = blocks <= most_blocks(pool.metadata.geometry()) && !is_snapshot(pool, volume);
            return possible && sizes.get_mut(&volume).map(|size| *size = blocks).is_some();
        }
    };
    // The blocks of a snapshot can get other slots. They do not become holes.
    let is_hole = matches!(change, Change::Zero { .. } | Change::Clear { .. });
    sizes.get(&key.volume()).is_some_and(|&size| end <= size) && !(is_hole && is_snapshot(pool, key.volume()))
}

fn is_snapshot(pool: &Pool, volume: VolumeId) -> bool {
    let volumes = pool.durable.volumes();
    volumes.find(volume).is_some_and(|at| volumes[at].is_snapshot())
}

impl Recovery {
    /// Handles the completion of an I/O of the recovery.
    pub(crate) fn recovery_done(
        &mut self,
        pool: &mut Pool,
        number: u32,
        offset: u64,
        segments: &[Segment],
        result: Result<Outcome<'_>, IoError>,
    ) {
        self.outstanding -= 1;
        match (self.step, result) {
            // A copy that cannot be read counts as missing, if the other one can and is valid.
            (RecoveryStep::Superblocks, Ok(Outcome::Bytes(bytes))) => {
                if Superblock::refusal(bytes).is_some() {
                    pool.recovery_failed(OpenError::UnknownFormat);
                }
                self.found[number as usize] = Superblock::decode(bytes).ok();
            }
            (RecoveryStep::Superblocks, Err(_)) => self.unreadable[number as usize % 2] = true,
            // A failed pool can still be read.
            (RecoveryStep::Sync, Err(_)) => self.unsynced = true,
            (_, Err(IoError::NoSpace)) => pool.recovery_failed(OpenError::HostFull { offset }),
            (_, Err(_)) => pool.recovery_failed(OpenError::Device { offset }),
            (RecoveryStep::Redo | RecoveryStep::Look, Ok(Outcome::Bytes(_))) => match pool.judge_owner(result) {
                Some(Failure::TakenOver) => pool.recovery_failed(OpenError::TakenOver),
                Some(_) => pool.recovery_failed(OpenError::DamagedPage { offset, what: "the owner's record" }),
                None => {}
            },
            (RecoveryStep::Walk, Ok(Outcome::Bytes(bytes))) => self.window.extend_from_slice(bytes),
            (RecoveryStep::Verify | RecoveryStep::Redo, Ok(Outcome::Blocks(&[content]))) => {
                let &[Segment::Buffer(buffer)] = segments else { unreachable!("one block at a time") };
                self.block_checked(pool, number as usize, buffer, content);
            }
            (RecoveryStep::Redo, Ok(_)) => {
                for &segment in segments {
                    if let Segment::Buffer(buffer) = segment {
                        pool.memory.buffers_mut().release(buffer);
                    }
                }
            }
            _ => {}
        }
    }
}

/// Links the maps of the volume table to families; returns false if they make no sense.
fn link_families(pool: &mut Pool) -> bool {
    let epoch = pool.durable.superblock().epoch;
    pool.durable.volumes_mut().link(epoch).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DigestFunction;
    use crate::format::geometry::Geometry;
    use crate::format::superblock::Parameters;
    use crate::limits::Limits;

    /// Checks that the opening of a pool whose superblock has epoch 0 does not panic, as it did: a new pool begins with epoch 1, and the chosen superblock was
    /// taken for its successor. Anyone can write such a superblock.
    #[test]
    fn a_superblock_older_than_that_of_a_new_pool_is_adopted() {
        let geometry = Geometry::for_capacity(1 << 30).unwrap();
        let parameters = Parameters::new(geometry, [7; 16], [9; 32], DigestFunction::Blake3);
        let mut pool = Pool::new(parameters, Limits::for_memory(128 << 20, &geometry).unwrap(), 0);
        let old = Superblock { epoch: 0, ..*pool.durable.superblock() };
        let mut recovery = Recovery { found: [Some(old), None, None, None], ..Recovery::default() };
        assert!(recovery.choose_superblock(&mut pool).is_ok());
        assert_eq!(*pool.durable.superblock(), old);
    }
}
