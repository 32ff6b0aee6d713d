//! Crash recovery: turns the state that a crash left into a pool that serves. Every opening is a recovery. docs/recovery.md has the argument.
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
use crate::block_map::map_buffer::{self, MapBuffer};
use crate::format::entry::{Entry, Key, Slot};
use crate::format::layout::height_for;
use crate::format::record::Change;
use crate::format::superblock::{Pointer, Superblock, TreeId, VERSION};
use crate::format::volume::{self, Keeps, VOLUME_BYTES, most_blocks};
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
use crate::pool::volumes::VolumeChange;

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
    pub block: u64,
    pub digest: Digest,
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
    pub window: Vec<u8>,
    pub position: u32,
    walked_blocks: u32,
    pub records: Vec<Walked>,
    /// Number of entries in `records`.
    entries: u64,
    /// The log of the map buffer.
    buffered: Vec<(Key, Entry)>,
    /// Last record that is certainly durable.
    pub watermark: u64,
    /// Highest epoch of a record: its superblock was durable in both places.
    pub newest_epoch: u64,
    verify_at: usize,
    checks: Vec<Check>,
    check_at: usize,
    failed_check: bool,
    /// Blocks inlined in the journal, by slot: digest, block of the store, record.
    pub inlined: NearMap<Slot, (Digest, u64, u64)>,
    /// Blocks of each volume, as of the record that is being verified.
    pub sizes: BTreeMap<VolumeId, u64>,
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
        while self.outstanding == 0 && pool.state.phase == Phase::Recovering {
            match pool.recovery_step(self)? {
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

impl Pool {
    pub(crate) fn recovery_failed(&mut self, error: OpenError) {
        if self.state.phase == Phase::Recovering {
            self.state.phase = Phase::Dead;
            self.durable.metadata.io.effects.push_back(Effect::Opened(Err(error)));
        }
    }

    fn recovery_sync(&mut self, recovery: &mut Recovery) {
        recovery.outstanding += 1;
        self.durable.metadata.io.begin(IoOp::Sync, 0, 0, [], Purpose::Recovery(0));
    }

    // ---- superblocks and tables ----

    fn read_superblocks(&mut self, recovery: &mut Recovery) {
        let block = self.durable.metadata.geometry.block();
        for number in 0..4u32 {
            let at = self.durable.metadata.geometry.superblock_block(number as usize / 2, u64::from(number % 2));
            recovery.outstanding += 1;
            self.durable.metadata.io.begin(IoOp::ReadPages, at * block, block, [], Purpose::Recovery(number));
        }
    }

    /// Returns an error if the map buffer holds more than memory allows. Until it is flushed, it may exceed its limit by an eighth of the payload
    /// buffers.
    fn has_memory_to_buffer(&self, records: usize) -> Result<(), OpenError> {
        let beyond = (records as u64).saturating_sub(self.limits.map_buffer.into()) * map_buffer::RECORD_BYTES as u64;
        let entries = 8 * beyond / REPLAY_ENTRY_BYTES;
        let fits = entries <= self.limits.replayable_entries(&self.durable.metadata.geometry);
        if fits { Ok(()) } else { Err(OpenError::TooLittleMemory { entries }) }
    }

    /// Returns true if a mapping of the map buffer makes sense with the existing volumes.
    pub(crate) fn may_be_buffered(&self, key: Key, entry: Entry) -> bool {
        let known = self.durable.volumes.binary_search_by_key(&key.volume(), |volume| volume.id);
        known.is_ok_and(|at| key.lba() < self.durable.volumes[at].size.div_ceil(self.durable.metadata.geometry.block()))
            && entry.is_valid()
            && entry.slot().is_none_or(|slot| self.durable.space.contains(slot))
    }

    /// Returns the blocks that have to be checked before a record counts as valid, and false if its changes make no sense.
    pub(crate) fn checks_of(
        &self,
        walked: &Walked,
        inlined: &mut NearMap<Slot, (Digest, u64, u64)>,
        sizes: &mut BTreeMap<VolumeId, u64>,
        watermark: u64,
    ) -> (Vec<Check>, bool) {
        let header = &walked.header;
        let proven = header.sequence <= watermark || self.mutant(Mutant::UnprovenRecord);
        let ring = u64::from(self.durable.metadata.geometry.journal_blocks);
        let first_block = u64::from(header.position) + u64::from(header.pages);
        let mut checks = Vec::new();
        for change in &walked.changes {
            if !self.makes_sense(change, sizes) {
                return (checks, false);
            }
            let (slot, digest, block) = match *change {
                Change::Inlined { slot, digest, block, .. } => {
                    let ring_block = (first_block + u64::from(block)) % ring;
                    let block = self.durable.metadata.geometry.journal_start() + ring_block;
                    inlined.insert(slot, (digest, block, header.sequence));
                    (slot, digest, block)
                }
                Change::Fresh { slot, digest, .. } => {
                    inlined.remove(&slot);
                    (slot, digest, self.durable.metadata.geometry.slot_block(slot.0))
                }
                Change::Share { slot, digest, .. } => match inlined.get(&slot) {
                    Some((known, ..)) if *known == digest => continue,
                    _ => (slot, digest, self.durable.metadata.geometry.slot_block(slot.0)),
                },
                Change::Zero { .. }
                | Change::Clear { .. }
                | Change::DeleteVolume { .. }
                | Change::ResizeVolume { .. } => continue,
            };
            if !proven {
                checks.push(Check { block, digest, slot, sequence: header.sequence });
            }
        }
        (checks, true)
    }

    /// Returns true if a change makes sense for volumes of these sizes; keeps the sizes up to date.
    fn makes_sense(&self, change: &Change, sizes: &mut BTreeMap<VolumeId, u64>) -> bool {
        let (key, end) = match *change {
            Change::Clear { key, end } => (key, end),
            Change::Fresh { key, slot, .. } | Change::Inlined { key, slot, .. } | Change::Share { key, slot, .. } => {
                if !self.durable.space.contains(slot) {
                    return false;
                }
                (key, key.lba() + 1)
            }
            Change::Zero { key } => (key, key.lba() + 1),
            Change::DeleteVolume { volume } => return sizes.remove(&volume).is_some(),
            Change::ResizeVolume { volume, blocks } => {
                let possible = blocks <= most_blocks(&self.durable.metadata.geometry);
                return possible && sizes.get_mut(&volume).map(|size| *size = blocks).is_some();
            }
        };
        sizes.get(&key.volume()).is_some_and(|&size| end <= size)
    }

    /// Reads the next blocks whose digests have to be checked.
    fn read_checks(&mut self, recovery: &mut Recovery) {
        let bytes = self.durable.metadata.geometry.block();
        while recovery.outstanding < AT_ONCE && recovery.check_at < recovery.checks.len() {
            let Some(buffer) = self.memory.buffers.take() else { break };
            let number = recovery.check_at as u32;
            let offset = recovery.checks[recovery.check_at].block * bytes;
            let segment = [Segment::Buffer(buffer)];
            self.durable.metadata.io.begin(IoOp::ReadBlocks, offset, bytes, segment, Purpose::Recovery(number));
            recovery.check_at += 1;
            recovery.outstanding += 1;
        }
    }

    fn block_checked(&mut self, recovery: &mut Recovery, number: usize, buffer: BufferId, content: BlockContent) {
        if self.state.phase != Phase::Recovering {
            return self.memory.buffers.release(buffer);
        }
        let check = recovery.checks[number];
        let good = !content.zero && content.digest == check.digest;
        if recovery.step == RecoveryStep::Redo && good {
            let block = self.durable.metadata.geometry.block();
            let offset = self.durable.metadata.geometry.slot_block(check.slot.0) * block;
            let segment = [Segment::Buffer(buffer)];
            self.durable.metadata.io.begin(IoOp::Write, offset, block, segment, Purpose::Recovery(0));
            recovery.outstanding += 1;
            recovery.report.blocks_redone += 1;
            return;
        }
        self.memory.buffers.release(buffer);
        if !good && recovery.step == RecoveryStep::Redo {
            self.recovery_failed(OpenError::DamagedJournal { sequence: check.sequence });
        }
        recovery.failed_check |= !good;
    }

    /// Writes the blocks inlined in the journal to their slots, where the final mapping needs them.
    fn redo(&mut self, recovery: &mut Recovery) -> Result<RecoveryProgress, OpenError> {
        if self.state.failure.is_some() {
            // The pool is not written: these blocks are read from the journal.
            self.durable.in_journal.extend(recovery.checks.drain(..).map(|check| (check.slot, check.block)));
            return Ok(self.rest(recovery));
        }
        if recovery.check_at < recovery.checks.len() && !self.mutant(Mutant::SkippedRedo) {
            self.read_checks(recovery);
            return Ok(RecoveryProgress::Wait);
        }
        self.look_while_recovering(recovery);
        Ok(RecoveryProgress::Next(RecoveryStep::Look))
    }

    /// Checks that the pool is still ours, before it is written to.
    fn look_while_recovering(&mut self, recovery: &mut Recovery) {
        if let Some(at) = self.geometry().owner_block().filter(|_| self.owner_nonce().is_some()) {
            let block = self.durable.metadata.geometry.block();
            recovery.outstanding += 1;
            self.durable.metadata.io.begin(IoOp::ReadPages, at * block, block, [], Purpose::Recovery(0));
        }
    }

    // ---- the seal ----

    fn repair(&mut self, recovery: &mut Recovery) -> RecoveryProgress {
        let newest = self.durable.superblock;
        let parity = (newest.epoch % 2) as usize;
        let missing: Vec<usize> = (0..2).filter(|place| recovery.found[place * 2 + parity] != Some(newest)).collect();
        if !missing.is_empty() {
            recovery.outstanding += missing.len();
            self.submit_superblock(&newest, &missing, Purpose::Recovery(0)).expect("pages are free");
        }
        if missing.is_empty() {
            RecoveryProgress::Next(RecoveryStep::RepairSync)
        } else {
            RecoveryProgress::Next(RecoveryStep::Repaired)
        }
    }

    fn seal(&mut self, recovery: &mut Recovery) -> Result<RecoveryProgress, OpenError> {
        let journal = self.journal_after(recovery);
        let epoch = self.begin_epoch();
        let last = journal.last();
        let numbers = Superblock { epoch, sealed: last, proven: last, seal_epoch: epoch, ..self.durable.superblock };
        let seal = Superblock { version: VERSION, clean: false, flash: 0, ..numbers };
        if !self.mutant(Mutant::MissingSeal) {
            recovery.outstanding += 2;
            self.submit_superblock(&seal, &[0, 1], Purpose::Recovery(0)).expect("pages are free");
        }
        self.durable.superblock = seal;
        self.durable.journal = journal;
        recovery.report.epoch = epoch;
        Ok(RecoveryProgress::Next(RecoveryStep::Seal))
    }

    /// Creates the journal that continues after the valid records.
    fn journal_after(&self, recovery: &Recovery) -> Journal {
        let last = recovery.records.last();
        let sequence = last.map_or(self.durable.superblock.included, |walked| walked.header.sequence);
        let checksum = last.map_or(self.durable.superblock.included_checksum, |walked| walked.checksum);
        let used: u32 = recovery.records.iter().map(|walked| blocks_of(&walked.header)).sum();
        let geometry = self.durable.metadata.geometry;
        let head = (self.durable.superblock.journal_position + used) % geometry.journal_blocks;
        let mut journal = Journal::new(geometry.journal_blocks, geometry.block_size, sequence, checksum, head, used);
        journal.entries = recovery.report.entries;
        journal
    }

    /// Ends a recovery without a write: tables and delta have the complete state.
    fn rest(&mut self, recovery: &mut Recovery) -> RecoveryProgress {
        self.durable.journal = self.journal_after(recovery);
        self.state.untouched = true;
        recovery.report.epoch = self.durable.superblock.epoch;
        RecoveryProgress::Done
    }
}

impl Pool {
    // ---- the journal ----

    /// Verifies one record after the other; the first that fails, and all later ones, count as never written.
    fn verify(&mut self, recovery: &mut Recovery) -> Result<RecoveryProgress, OpenError> {
        loop {
            if recovery.failed_check {
                recovery.records.truncate(recovery.verify_at);
                recovery.checks.clear();
                break;
            }
            if recovery.check_at < recovery.checks.len() {
                self.read_checks(recovery);
                return Ok(RecoveryProgress::Wait);
            }
            if !recovery.checks.is_empty() {
                // All blocks of the record have passed.
                recovery.checks.clear();
                recovery.verify_at += 1;
                continue;
            }
            let Recovery { records, inlined, sizes, watermark, .. } = recovery;
            let Some(walked) = records.get(recovery.verify_at) else { break };
            let (checks, valid) = self.checks_of(walked, inlined, sizes, *watermark);
            if !valid {
                return Err(OpenError::DamagedJournal { sequence: walked.header.sequence });
            }
            recovery.check_at = 0;
            if checks.is_empty() {
                recovery.verify_at += 1;
            }
            recovery.checks = checks;
        }
        self.replay(recovery)?;
        recovery.check_at = 0;
        self.look_while_recovering(recovery);
        Ok(RecoveryProgress::Next(RecoveryStep::Redo))
    }

    /// Replays the valid records into the delta.
    fn replay(&mut self, recovery: &mut Recovery) -> Result<(), OpenError> {
        for walked in &recovery.records {
            recovery.report.records += 1;
            recovery.report.entries += walked.changes.len() as u64;
            for change in &walked.changes {
                recovery.report.offline_blocks += u64::from(change.is_offline());
                self.replay_change(change, walked.header.sequence);
            }
        }
        // No change of these records can be lost, because the seal makes them durable. Fresh slots without references are free. The other slots are
        // in use in the space map, or held.
        self.durable.delta.slots.retain(|_, recent| recent.refs > 0 || !recent.fresh);
        let fresh: Vec<_> =
            self.durable.delta.slots.iter().filter(|(_, recent)| recent.fresh).map(|(&s, r)| (s, *r)).collect();
        for (slot, recent) in fresh {
            // A container that is full in its table has no new block.
            self.note_replayed(slot);
            if self.durable.space.take(slot).is_none() {
                let block = self.durable.metadata.geometry.slot_block(slot.0);
                let offset = block * self.durable.metadata.geometry.block();
                return Err(OpenError::DamagedPage { offset, what: "a slot that is in use" });
            }
            if self.copied_from(recent.owner).is_none() {
                self.note_known(recent.digest, slot);
            }
        }
        recovery.checks.clear();
        let mut inlined: Vec<_> = core::mem::take(&mut recovery.inlined).into_iter().collect();
        inlined.sort_unstable_by_key(|&(slot, _)| slot);
        for (slot, (digest, block, sequence)) in inlined {
            if self.durable.delta.live(slot).is_some_and(|recent| recent.fresh && recent.digest == digest) {
                recovery.checks.push(Check { block, digest, slot, sequence });
            }
        }
        Ok(())
    }

    pub(crate) fn replay_change(&mut self, change: &Change, sequence: u64) {
        let (key, entry, digest, fresh) = match *change {
            Change::Fresh { key, slot, digest, .. } | Change::Inlined { key, slot, digest, .. } => {
                // The former use of the slot, if this delta has it, ended before.
                if self.durable.delta.live(slot).is_none() {
                    self.durable.delta.forget(slot);
                }
                (key, Entry::whole(slot, digest), digest, true)
            }
            Change::Share { key, slot, digest } => (key, Entry::whole(slot, digest), digest, false),
            Change::Zero { key } => (key, Entry::ZERO, Digest::default(), false),
            Change::Clear { key, end } => return self.replay_clear(key, Key(key.0 - key.lba() + end)),
            Change::DeleteVolume { volume } => {
                return self.replay_volume_change(VolumeChange::Delete { volume }, sequence);
            }
            Change::ResizeVolume { volume, blocks } => {
                return self.replay_volume_change(VolumeChange::Resize { volume, blocks }, sequence);
            }
        };
        self.durable.reservation.active.note(key);
        self.durable.delta.put(key, entry, digest, fresh);
    }
}

impl Pool {
    fn recovery_step(&mut self, recovery: &mut Recovery) -> Result<RecoveryProgress, OpenError> {
        match recovery.step {
            RecoveryStep::Start => {
                self.recovery_sync(recovery);
                Ok(RecoveryProgress::Next(RecoveryStep::Sync))
            }
            RecoveryStep::Sync => {
                self.read_superblocks(recovery);
                Ok(RecoveryProgress::Next(RecoveryStep::Superblocks))
            }
            RecoveryStep::Superblocks => self.choose_superblock(recovery),
            RecoveryStep::Tables => self.read_tables(recovery),
            RecoveryStep::Walk => self.walk(recovery),
            RecoveryStep::Verify => self.verify(recovery),
            RecoveryStep::Redo => self.redo(recovery),
            RecoveryStep::Look => Ok(self.repair(recovery)),
            RecoveryStep::Repaired => {
                self.recovery_sync(recovery);
                Ok(RecoveryProgress::Next(RecoveryStep::RepairSync))
            }
            RecoveryStep::RepairSync => self.seal(recovery),
            RecoveryStep::Seal if self.mutant(Mutant::UnsyncedSeal) => Ok(RecoveryProgress::Done),
            RecoveryStep::Seal => {
                self.recovery_sync(recovery);
                Ok(RecoveryProgress::Next(RecoveryStep::SealSync))
            }
            RecoveryStep::SealSync => Ok(RecoveryProgress::Done),
        }
    }

    fn choose_superblock(&mut self, recovery: &mut Recovery) -> Result<RecoveryProgress, OpenError> {
        let unknown = |parity: &usize| {
            recovery.unreadable[*parity] && [0, 2].iter().all(|place| recovery.found[place + parity].is_none())
        };
        if let Some(parity) = (0..2).find(unknown) {
            // The unreadable superblock may be the newest.
            let offset = self.durable.metadata.geometry.superblock_block(0, parity as u64)
                * self.durable.metadata.geometry.block();
            return Err(OpenError::Device { offset });
        }
        let ours = self.durable.superblock.parameters;
        let valid = recovery.found.iter().flatten().filter(|found| found.parameters == ours);
        let oldest = self.mutant(Mutant::OldSuperblock);
        let age = |found: &&Superblock| if oldest { u64::MAX - found.epoch } else { found.epoch };
        self.durable.superblock = *valid.max_by_key(age).ok_or(OpenError::NoSuperblock)?;
        if self.durable.superblock.objection().is_some() {
            return Err(OpenError::UnknownFormat);
        }
        self.durable.roots = self.durable.superblock.roots;
        self.adopt_settings();
        self.durable.metadata.epoch = self.durable.superblock.epoch;
        recovery.report.clean = self.durable.superblock.clean;
        self.state.failure = self.durable.superblock.failed;
        recovery.report.failed = self.state.failure;
        self.state.reads_only |= self.state.failure.is_some();
        if recovery.unsynced && self.state.failure.is_none() {
            return Err(OpenError::Device { offset: 0 });
        }
        recovery.position = self.durable.superblock.journal_position;
        recovery.watermark = self.durable.superblock.watermark();
        for tree in TABLES.into_iter().chain([TreeId::SpaceMap, TreeId::Counts, TreeId::Summaries, TreeId::DiskIndex]) {
            let height = height_for(self.table_leaves(tree), self.durable.metadata.geometry.fanout());
            let root = &mut self.durable.roots[tree as usize];
            if root.pointer.is_none() {
                root.height = height;
            } else if root.height > height {
                let offset = self.durable.metadata.geometry.superblock_block(0, self.durable.superblock.epoch)
                    * self.durable.metadata.geometry.block();
                return Err(OpenError::DamagedPage { offset, what: "the superblock" });
            }
        }
        Ok(RecoveryProgress::Next(RecoveryStep::Tables))
    }

    fn read_tables(&mut self, recovery: &mut Recovery) -> Result<RecoveryProgress, OpenError> {
        let Some(&tree) = TABLES.get(recovery.table) else {
            let records = core::mem::take(&mut recovery.buffered);
            self.has_memory_to_buffer(records.len())?;
            self.durable.buffer = MapBuffer::from_log(records, self.durable.buffer.logged);
            self.durable.buffer.iter().for_each(|(key, _)| self.durable.reservation.buffered.note(key));
            if !self.durable.buffer.iter().all(|(key, entry)| self.may_be_buffered(key, entry)) {
                let location = self.durable.roots[TreeId::MapBuffer as usize].pointer.location;
                let offset = self.durable.metadata.offset(PageKey { region: Region::Metadata, location });
                return Err(OpenError::DamagedPage { offset, what: table_name(TreeId::MapBuffer) });
            }
            self.durable.space.data_used = self.durable.superblock.data_used;
            self.review_orphans();
            self.durable.space.set_reserved(
                self.durable.superblock.reserved_containers.min(self.durable.metadata.geometry.containers),
            );
            self.durable.journal.head = recovery.position;
            if self.state.reads_only && self.durable.superblock.clean {
                return Ok(self.rest(recovery));
            }
            let block = self.durable.metadata.geometry.block();
            recovery.sizes =
                self.durable.volumes.iter().map(|volume| (volume.id, volume.size.div_ceil(block))).collect();
            return Ok(RecoveryProgress::Next(RecoveryStep::Walk));
        };
        let region = if tree == TreeId::MetaMap { Region::MetaMap } else { Region::Metadata };
        let (root, leaves) = (self.durable.roots[tree as usize], self.table_leaves(tree));
        while recovery.leaf < leaves {
            match lookup(&mut self.durable.metadata, region, root, recovery.leaf) {
                Walk::Leaf(page) => {
                    if self.read_table_leaf(recovery, tree, page).is_none() {
                        let offset = self.durable.metadata.offset(self.durable.metadata.pages.key_of(page));
                        return Err(OpenError::DamagedPage { offset, what: table_name(tree) });
                    }
                    recovery.leaf += 1;
                }
                Walk::Absent(level) => {
                    let span = self.durable.metadata.geometry.fanout().saturating_pow(u32::from(level));
                    recovery.leaf = (recovery.leaf / span).saturating_add(1).saturating_mul(span);
                }
                Walk::Missing(missing) => {
                    if !self.durable.metadata.is_valid(missing.key) {
                        let offset = self.durable.metadata.offset(missing.key);
                        return Err(OpenError::DamagedPage { offset, what: table_name(tree) });
                    }
                    self.durable.metadata.load(missing, None);
                    let ahead = LOAD_AHEAD.min(self.durable.metadata.pages.available() as u64 / 4);
                    for leaf in recovery.leaf + 1..leaves.min(recovery.leaf + ahead) {
                        if let Walk::Missing(missing) = lookup(&mut self.durable.metadata, region, root, leaf) {
                            self.durable.metadata.load(missing, None);
                        }
                    }
                    return Ok(RecoveryProgress::Wait);
                }
            }
        }
        recovery.table += 1;
        recovery.leaf = 0;
        Ok(RecoveryProgress::Next(RecoveryStep::Tables))
    }

    fn read_table_leaf(&mut self, recovery: &mut Recovery, tree: TreeId, page: PageId) -> Option<()> {
        let leaf = recovery.leaf;
        let bytes = self.durable.metadata.pages.bytes(page);
        let geometry = &self.durable.metadata.geometry;
        // Addresses below a higher tree would not fit into their bits.
        let most = most_blocks(geometry);
        let highest = height_for(most / geometry.map_leaf_entries(), geometry.fanout());
        match tree {
            TreeId::Containers => self.durable.space.read_container_leaf(leaf, bytes)?,
            TreeId::MetaMap => self.durable.metadata.allocator.read_leaf(leaf, bytes),
            TreeId::Volumes => {
                for entry in bytes.chunks_exact(VOLUME_BYTES as usize) {
                    let Some((volume, root)) = volume::decode(entry).ok()? else { continue };
                    if volume.size.div_ceil(geometry.block()) > most || root.height > highest {
                        return None;
                    }
                    if self.durable.volumes.last().is_some_and(|last| last.id >= volume.id) {
                        return None;
                    }
                    match volume.keeps {
                        Some(Keeps::SecondCopies) => {
                            self.durable.copies = Some(volume.id);
                            recovery.has_copies = true;
                        }
                        Some(Keeps::Replicas) => {
                            let found = (volume.id, volume.size / geometry.block());
                            self.hints.replicas.set_volume(Some(found), geometry.slots_per_container);
                        }
                        None => {}
                    }
                    self.durable.volumes.push(volume);
                    self.durable.maps.push(root);
                    self.durable.volume_leaves = leaf + 1;
                }
            }
            TreeId::Discards => {
                for entry in bytes.chunks_exact(crate::block_map::discards::DISCARD_BYTES) {
                    let pointer = Pointer::read(entry, 0);
                    if !pointer.is_none() {
                        let volume = VolumeId(crate::format::bytes::u16_at(entry, 16));
                        let level = entry[18];
                        if level > highest {
                            return None;
                        }
                        self.durable.discards.push(crate::block_map::discards::Discard { pointer, volume, level });
                        self.durable.discard_leaves = leaf + 1;
                    }
                }
            }
            TreeId::MapBuffer => {
                let before = recovery.buffered.len();
                recovery.buffered.extend(map_buffer::records(bytes));
                let per_leaf = geometry.block() / map_buffer::RECORD_BYTES as u64;
                self.durable.buffer.logged = leaf * per_leaf + (recovery.buffered.len() - before) as u64;
            }
            TreeId::SpaceMap | TreeId::Counts | TreeId::Summaries | TreeId::DiskIndex => {}
        }
        Some(())
    }

    /// Handles the completion of an I/O of the recovery.
    pub(crate) fn recovery_done(
        &mut self,
        recovery: Option<&mut Recovery>,
        number: u32,
        offset: u64,
        segments: &[Segment],
        result: Result<Outcome<'_>, IoError>,
    ) {
        for &segment in segments {
            if let Segment::Page(page) = segment {
                self.durable.metadata.pages.release(page);
            }
        }
        let Some(recovery) = recovery else { return };
        recovery.outstanding -= 1;
        match (recovery.step, result) {
            // A copy that cannot be read counts as missing, if the other one can and is valid.
            (RecoveryStep::Superblocks, Ok(Outcome::Bytes(bytes))) => {
                if Superblock::refusal(bytes).is_some() {
                    self.recovery_failed(OpenError::UnknownFormat);
                }
                recovery.found[number as usize] = Superblock::decode(bytes).ok();
            }
            (RecoveryStep::Superblocks, Err(_)) => recovery.unreadable[number as usize % 2] = true,
            // A failed pool can still be read.
            (RecoveryStep::Sync, Err(_)) => recovery.unsynced = true,
            (_, Err(IoError::NoSpace)) => self.recovery_failed(OpenError::HostFull { offset }),
            (_, Err(_)) => self.recovery_failed(OpenError::Device { offset }),
            (RecoveryStep::Redo | RecoveryStep::Look, Ok(Outcome::Bytes(_))) => match self.judge_owner(result) {
                Some(Failure::TakenOver) => self.recovery_failed(OpenError::TakenOver),
                Some(_) => self.recovery_failed(OpenError::DamagedPage { offset, what: "the owner's record" }),
                None => {}
            },
            (RecoveryStep::Walk, Ok(Outcome::Bytes(bytes))) => recovery.window.extend_from_slice(bytes),
            (RecoveryStep::Verify | RecoveryStep::Redo, Ok(Outcome::Blocks(&[content]))) => {
                let &[Segment::Buffer(buffer)] = segments else { unreachable!("one block at a time") };
                self.block_checked(recovery, number as usize, buffer, content);
            }
            (RecoveryStep::Redo, Ok(_)) => {
                for &segment in segments {
                    if let Segment::Buffer(buffer) = segment {
                        self.memory.buffers.release(buffer);
                    }
                }
            }
            _ => {}
        }
    }
}
