//! Post-process deduplication pass (the exact pass): finds all blocks that are stored more than once and remaps them to one slot. It finds them by
//! the digests in the summaries. It reads no data except the slots that blocks come to share (verify.rs). It needs no table on disk, and resumes
//! after a restart.
//!
//! ```text
//! Begin   a checkpoint: all earlier writes are in the summaries, and the map buffer is in its leaves
//! Scan    all summaries, for one range of digests (range.rs): of each content one slot is canonical, the others are duplicates. With many
//!         ranges, from spill space (partitioning.rs)
//! Share   the owner block of a duplicate slot is remapped to the canonical slot, if it still maps to the duplicate. In an external
//!         partitioning: after its ranges, in block order
//! Maps    duplicate slots that other blocks refer to: one walk of all maps for all of them (jobs/map_walk.rs); before the next range, if
//!         there are many
//! Index   contents of the range for an index on disk that is behind (index.rs)
//! End     a checkpoint: duplicate slots become free
//! ```
//!
//! The pass owns its position in these stages, and lists of bounded size. What must hold:
//!
//! - A block is remapped only while it maps to the duplicate slot, and while both slots hold the content. Lookup and change happen in one step. So a
//!   concurrent write wins, and no block is remapped to a slot that was freed meanwhile.
//! - In a volume that keeps its runs, a remap splits no run (runs.rs).
//! - Hidden volumes, read-only volumes and those with the policy `native` take no part.
//! - Changes between two syncs are bounded, so that recovery stays short. The pass' share of the delta is bounded, so that background work does not
//!   press the foreground.
//! - The place in the superblock is that of a range before which no work is left. An interrupted pass repeats one range, or an external partitioning.
//!
//! Blocks written while a pass is in progress may stay duplicated: the next pass finds them. A pass begins by command, or automatically when writes
//! have left a backlog (backlog.rs).

mod backlog;
mod index;
mod partitioning;
mod partitions;
mod range;
mod runs;
mod share;
mod spill;
mod verify;

use crate::jobs::dedup::share::may_share;
use alloc::vec::Vec;

use super::changes::{Changes, ChangesStop};
use super::map_walk::{LEAVES, Maps};
use crate::api::{ControlError, DedupCommand, Digest, IoError, Nanos, Outcome, Segment};
use crate::format::entry::Slot;
use crate::format::superblock::{DedupRecord, PassState};
use crate::jobs::job::{Job, JobContext};
use crate::locality_map::NearMap;
use crate::metadata::page_cache::PageKey;
use crate::pool::Pool;
use crate::pool::state::{LoadSnapshot, Phase};
use crate::repair::Repairs;
use crate::sizes::table_bytes;
use backlog::{Backlog, Short};
use index::{CatchUp, Handed, next_range};
use partitioning::{Partitionings, Source};
use partitions::Record;
use range::{DuplicateSlot, PLACES, Range};
use runs::Refused;
use share::{RemappedSlots, SeenGenerations, ShareResult, last_of};
use spill::{PARTS, SpillSpace};
use verify::{Proven, Verify};

/// Duplicate slots that are collected before their blocks are remapped in block order, so that few leaves change.
const SPARES: usize = 1024;
/// Time between two checks of a condition whose end is not signalled to the pass, in nanoseconds.
const LOOK_AGAIN: Nanos = 10_000_000;
/// Time between two checkpoints that make the place of the pass durable, in nanoseconds.
const SAVE_PERIOD: Nanos = 60_000_000_000;

/// State and counts of the pass in progress, or of the last one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DedupStatus {
    /// State of the pass: whether one is in progress.
    pub state: PassState,
    /// Part of the pass that is done, in millionths.
    pub done_ppm: u32,
    /// Seconds until its end at the rate so far, if that is known.
    pub left_seconds: Option<u64>,
    /// Blocks that were remapped to another slot since the pool was opened.
    pub shared_blocks: u64,
    /// Blocks that were not shared because a run would have been split; counted each time that a pass finds them.
    pub kept_blocks: u64,
    /// Pairs of blocks with equal digests that were not shared because reading both did not show the same bytes; counted each time.
    pub unequal_blocks: u64,
    /// Passes completed since the pool was opened.
    pub passes: u64,
    /// Walks of all summaries since the pool was opened.
    pub scans: u64,
    /// Walks of all maps since the pool was opened.
    pub map_walks: u64,
    /// Blocks of empty containers that the pass has taken as spill space.
    pub spill_blocks: u64,
    /// Blocks that the pass wrote to the spill space since the pool was opened.
    pub spill_written: u64,
    /// Blocks that the pass read back from the spill space since the pool was opened.
    pub spill_read: u64,
    /// True while the pass is suspended because metadata is short.
    pub is_short_of_space: bool,
    /// True if writes have left a backlog to the next pass.
    pub has_backlog: bool,
    /// Blocks left to the next pass that were written since the pool was opened, or were in the journal then.
    pub backlog_blocks: u64,
    /// Blocks written since the pool was opened although their content was known, and not yet covered by a pass. A pass could share those that are
    /// still mapped.
    pub missed_blocks: u64,
}

/// Stage of a pass, and its place there.
enum PassStage {
    /// The pass resumes at the place in the record.
    Begin,
    /// The range that begins at this place is next.
    Next(u64),
    /// The next leaf of summaries to be scanned for a range.
    Scan(u64),
    /// The next leaf of summaries to be scanned for an external partitioning.
    Gather(u64),
    /// A range is being read from the spill space.
    Load,
    /// Pages of noted duplicate slots are being written. The duplicates are shared next; then the pass continues from this place.
    Finish(u64),
    /// Noted duplicate slots are shared in block order: collected from this partition on, or (`None`) all collected. Then the pass continues from the
    /// place.
    Share(Option<usize>, u64),
    /// A walk of all maps, after which the pass continues at the given stage.
    Maps(Maps, Back),
    /// Contents found in the range are handed over to the index on disk.
    Index,
    /// All duplicates have been shared; the checkpoint that frees the slots is requested.
    End,
}

/// Stage and place at which a pass continues after a walk of all maps.
#[derive(Clone, Copy)]
enum Back {
    Scan(u64),
    Share(Option<usize>, u64),
    Next(u64),
}

/// The job that runs the exact deduplication pass.
pub(crate) struct Dedup {
    record: DedupRecord,
    at: PassStage,
    range: Range,
    duplicates: Vec<DuplicateSlot>,
    /// Number of `duplicates` that are in block order, the last one first.
    in_order: usize,
    /// Duplicate slots that other blocks than their owners refer to: the slot, the canonical slot, the content.
    unresolved: Vec<(Slot, Slot, Digest)>,
    /// Canonical slots that were given up meanwhile, with the slots that replace them.
    replaced: NearMap<Slot, Slot>,
    remapped: RemappedSlots,
    changes: Changes,
    /// Page load that the pass waits for.
    waiting: Option<PageKey>,
    saved: Nanos,
    /// Place at which the pass began in this session, and its start time.
    rate_since: Option<(u64, Nanos)>,
    /// Run refused in this step: it stays unchanged.
    refused: Option<Refused>,
    /// Number of adjacent blocks that were looked at in this step.
    beside: usize,
    shared: u64,
    /// Blocks that had been shared when the pass began.
    shared_before: u64,
    /// Blocks that writes had missed when the pass began.
    missed_before: u64,
    /// Blocks missed by writes that completed passes have covered.
    missed_seen: u64,
    /// True while writes wait for slots that the pass may free.
    is_awaited: bool,
    kept: u64,
    unequal: u64,
    verify: Verify,
    /// Slots that were read and hold the content of their digest.
    proven: Proven,
    /// Slots that do not hold the content of their digest, each with another slot to repair it from.
    damaged: Vec<(Slot, Slot)>,
    /// Slots whose repair has begun in this pass.
    repaired: NearMap<Slot, ()>,
    /// Time at which the pass continues: verification had no buffers, a repair has to end first, or spill space is being reserved.
    look_again_at: Nanos,
    /// Number of blocks looked at; see [`Dedup::looked_at`].
    looked_at: u64,
    passes: u64,
    scans: u64,
    map_walks: u64,
    /// State of the suspended pass while metadata is short.
    short: Option<Short>,
    backlog: Backlog,
    catch_up: CatchUp,
    spill: SpillSpace,
    partitionings: Partitionings,
    /// Number of generation wraparounds when the duplicate slots were found.
    wraps: u64,
}

impl Dedup {
    pub(crate) fn new(now: Nanos) -> Dedup {
        Dedup {
            record: DedupRecord::default(),
            at: PassStage::Begin,
            range: Range::new(0, 0, 0),
            duplicates: Vec::new(),
            in_order: 0,
            unresolved: Vec::new(),
            replaced: NearMap::default(),
            remapped: RemappedSlots::default(),
            changes: Changes::default(),
            waiting: None,
            saved: now,
            rate_since: None,
            refused: None,
            beside: 0,
            shared: 0,
            shared_before: 0,
            missed_before: 0,
            missed_seen: 0,
            is_awaited: false,
            kept: 0,
            unequal: 0,
            verify: Verify::default(),
            proven: Proven::default(),
            damaged: Vec::new(),
            repaired: NearMap::default(),
            look_again_at: 0,
            looked_at: 0,
            passes: 0,
            scans: 0,
            map_walks: 0,
            short: None,
            backlog: Backlog::default(),
            catch_up: CatchUp::default(),
            spill: SpillSpace::default(),
            partitionings: Partitionings::default(),
            wraps: 0,
        }
    }

    /// Returns the place of the pass, as the superblock keeps it.
    pub(crate) fn record(&self) -> DedupRecord {
        DedupRecord { has_backlog: self.backlog.is_some(), ..self.record }
    }

    /// Adopts the place from the superblock, from which the pass resumes.
    pub(crate) fn found(&mut self, record: DedupRecord, now: Nanos) {
        self.record = record;
        if record.has_backlog {
            self.backlog.note(now, 0);
        }
    }

    /// Returns true if a pass is running or paused: it has begun, and has not ended.
    pub(crate) fn has_begun(&self) -> bool {
        matches!(self.record.state, PassState::Running | PassState::Paused)
    }

    /// Returns the number of blocks looked at since the pool was opened: in the summaries, in the spill space, in maps, and to share them. Each step
    /// also counts as one, because it may find nothing to look at.
    pub(crate) fn looked_at(&self) -> u64 {
        self.looked_at
    }

    /// Adds N blocks that were stored without a duplicate lookup to the backlog of the next pass. With N = 0, there may be some.
    pub(crate) fn leave(&mut self, now: Nanos, blocks: u64) {
        self.backlog.note(now, blocks);
    }

    /// Returns the state and counts of the pass in progress, or of the last one.
    pub(crate) fn status(&self, pool: &Pool) -> DedupStatus {
        let is_running = self.record.state == PassState::Running;
        let done = self.done(pool);
        let left = |(from, since): (u64, Nanos)| {
            let (came, left) = (done.saturating_sub(from), PLACES.saturating_sub(done));
            let took = u128::from(pool.state.now().saturating_sub(since));
            (came > 0).then(|| (took * u128::from(left) / u128::from(came) / 1_000_000_000) as u64)
        };
        DedupStatus {
            state: if self.short.is_some() { PassState::Paused } else { self.record.state },
            done_ppm: (done * 1_000_000 / PLACES) as u32,
            left_seconds: self.rate_since.filter(|_| is_running).and_then(left),
            shared_blocks: self.shared,
            kept_blocks: self.kept,
            unequal_blocks: self.unequal,
            passes: self.passes,
            scans: self.scans,
            map_walks: self.map_walks,
            spill_blocks: self.spill.blocks(pool),
            spill_written: self.spill.written,
            spill_read: self.spill.read,
            is_short_of_space: self.short.is_some(),
            has_backlog: self.backlog.is_some(),
            backlog_blocks: self.backlog.blocks,
            missed_blocks: pool.stats.writes.missed().saturating_sub(self.missed_seen),
        }
    }

    /// Returns the progress of the pass, in places of digests out of [`PLACES`].
    fn done(&self, pool: &Pool) -> u64 {
        let leaves = pool.metadata.geometry().summary_leaves().max(1);
        let leaf = match (&self.at, self.record.state) {
            (_, PassState::Finished) => return PLACES,
            (_, PassState::Never) => return 0,
            (PassStage::Begin, _) => return self.record.next.into(),
            (PassStage::End, _) => return PLACES,
            (PassStage::Gather(leaf), _) => return self.partitionings.gathered(*leaf, leaves),
            (PassStage::Next(place), _) if self.spill.is_on() => return self.partitionings.loaded(*place),
            (PassStage::Next(place), _) => return *place,
            (PassStage::Scan(leaf) | PassStage::Maps(_, Back::Scan(leaf)), _) => *leaf,
            (PassStage::Load, _) => return self.partitionings.loaded(self.range.first),
            (PassStage::Finish(next), _) => return self.partitionings.loaded(*next),
            (PassStage::Share(at, next) | PassStage::Maps(_, Back::Share(at, next)), _) => {
                let read = self.spill.spares_read(at.unwrap_or(usize::MAX));
                return self.partitionings.sharing(*next, read);
            }
            (PassStage::Maps(_, Back::Next(next)), _) => return *next,
            (PassStage::Index, _) if self.spill.is_on() => return self.partitionings.loaded(self.range.end),
            (PassStage::Index, _) => u64::MAX,
        };
        let part = u128::from(self.range.end - self.range.first) * u128::from(leaf.min(leaves)) / u128::from(leaves);
        self.range.first + part as u64
    }

    /// Returns the bytes of memory that the pass holds while it is in progress.
    pub(crate) fn memory(&self) -> u64 {
        self.range.memory()
            + self.catch_up.memory()
            + self.verify.memory()
            + self.proven.memory()
            + table_bytes(&self.repaired)
            + self.spill.memory()
            + table_bytes(&self.replaced)
            + self.remapped.memory()
            + (self.duplicates.capacity() * size_of::<DuplicateSlot>()) as u64
            + (self.unresolved.capacity() * size_of::<(Slot, Slot, Digest)>()) as u64
    }

    /// Carries out a command. Returns the number of checkpoints after which it is done.
    pub(crate) fn command(&mut self, pool: &mut Pool, command: DedupCommand) -> Result<u64, ControlError> {
        if !pool.takes_changes() {
            return Err(ControlError::ReadOnly);
        }
        match (command, self.record.state) {
            (DedupCommand::Start, PassState::Running) if self.short.is_none() => {
                return Ok(pool.checkpoint.done());
            }
            (DedupCommand::Start, PassState::Running | PassState::Paused) => self.record.state = PassState::Running,
            (DedupCommand::Start, _) => self.start(pool),
            (DedupCommand::Pause, PassState::Running) => self.record.state = PassState::Paused,
            // The next automatic pass begins for blocks written from here on.
            (DedupCommand::Stop, PassState::Running | PassState::Paused) => {
                self.record.state = PassState::Stopped;
                self.backlog.clear();
            }
            (DedupCommand::Pause | DedupCommand::Stop, _) => return Err(ControlError::NoDedup),
        }
        // A suspended or paused pass has no memory: it restarts its range from the beginning.
        self.rest(pool);
        self.short = None;
        Ok(pool.after_next_checkpoint())
    }

    /// Starts a new pass, which covers the whole backlog so far.
    fn start(&mut self, pool: &Pool) {
        self.record = DedupRecord { state: PassState::Running, ..DedupRecord::default() };
        self.backlog.clear();
        self.shared_before = self.shared;
        self.missed_before = pool.stats.writes.missed();
    }

    /// Resumes or begins a pass for writes that find no free slot. Returns true if the pass may free some for them.
    pub(crate) fn await_slots(&mut self, now: Nanos) -> bool {
        let may_begin = self.record.state != PassState::Paused && self.backlog.may_free_slots(now);
        self.is_awaited = self.is_in_progress() || self.short.is_none() && may_begin;
        self.is_awaited
    }

    /// Returns true if writes wait for slots that the pass may free: the pass then runs at full speed.
    pub(crate) fn is_awaited(&self) -> bool {
        self.is_awaited
    }

    /// Returns the time at which a pass begins without a command, if none is running or paused.
    fn due(&self, load: &LoadSnapshot) -> Option<Nanos> {
        let may_begin = !matches!(self.record.state, PassState::Running | PassState::Paused);
        let due = if self.is_awaited { Some(0) } else { self.backlog.due(load) };
        due.filter(|_| may_begin)
    }

    /// Returns true if the pass was suspended because metadata was short, and enough is free again.
    fn has_space_again(&self, pool: &Pool) -> bool {
        let all = pool.metadata.geometry().metadata_blocks;
        self.short.is_some_and(|short| short.is_over(pool.state.now(), pool.metadata.allocator().free(), all))
    }

    /// Drops the in-memory state of the pass.
    fn rest(&mut self, pool: &mut Pool) {
        self.catch_up.rest();
        pool.watch_disk_index(false);
        (self.at, self.waiting, self.rate_since, self.is_awaited) = (PassStage::Begin, None, None, false);
        self.range = Range::new(0, 0, 0);
        (self.duplicates, self.unresolved, self.in_order) = (Vec::new(), Vec::new(), 0);
        (self.replaced, self.remapped) = (NearMap::default(), RemappedSlots::default());
        (self.proven, self.damaged, self.repaired) = (Proven::default(), Vec::new(), NearMap::default());
        self.spill.give_up(pool);
        self.partitionings = Partitionings::default();
        self.changes.give_up_waiting();
        self.verify.clear();
    }

    /// Returns the largest number of contents in a range.
    fn space(pool: &Pool) -> usize {
        2 * pool.limits.delta_entries as usize
    }

    /// Returns the largest number of duplicate slots that wait for a walk of all maps: about the number of changes before a checkpoint.
    fn batch(pool: &Pool) -> usize {
        (pool.limits.delta_entries as usize / 4).max(64)
    }

    // ---- steps ----

    fn go_on(&mut self, work: &mut JobContext<'_>) -> Result<(), ChangesStop> {
        let JobContext { pool, repairs, load } = work;
        match &mut self.at {
            PassStage::Begin => self.begin(pool),
            PassStage::Next(first) => {
                let first = *first;
                self.begin_range(pool, first);
            }
            PassStage::Gather(_) => self.gather(pool, repairs, load)?,
            PassStage::Load => self.load(pool, repairs, load)?,
            PassStage::Finish(_) => self.finish_spares(pool)?,
            PassStage::Share(..) => self.share_noted(pool, repairs, load)?,
            PassStage::Scan(_) => self.scan(pool, repairs, load)?,
            PassStage::Maps(..) => self.walk_maps(pool, repairs, load)?,
            PassStage::Index => self.hand_over(pool),
            PassStage::End => self.end(pool),
        }
        Ok(())
    }

    fn begin(&mut self, pool: &mut Pool) {
        self.changes.wait_for_flush(pool);
        let first = self.record.next.into();
        self.rate_since.get_or_insert((first, pool.state.now()));
        self.at = PassStage::Next(first);
    }

    /// Begins the range from this place on: from the spill space, or from the summaries.
    fn begin_range(&mut self, pool: &mut Pool, first: u64) {
        // Slots may hold other contents by the next range.
        self.forget_replaced();
        match self.source(pool, first) {
            Source::Later => self.look_again_at = pool.state.now() + LOOK_AGAIN,
            Source::SpillSpace if self.is_to_share_before(pool, first) => self.begin_sharing(first),
            Source::SpillSpace => self.load_from(pool, first),
            source => {
                self.catch_up.begin_range(pool, first);
                self.wraps = pool.durable.space().wraps();
                self.range.go_on(first, pool.durable.space().data_used(), Self::space(pool));
                self.at = if matches!(source, Source::Gather) { PassStage::Gather(0) } else { PassStage::Scan(0) };
            }
        }
    }

    /// Replaces the canonical slots of unresolved duplicates by the current ones, and forgets the replaced slots.
    fn forget_replaced(&mut self) {
        let replaced = core::mem::take(&mut self.replaced);
        for (_, canonical, _) in &mut self.unresolved {
            *canonical = last_of(&replaced, *canonical);
        }
    }

    /// Scans some leaves of summaries, and shares the duplicates found so far.
    fn scan(&mut self, pool: &mut Pool, repairs: &Repairs, load: &LoadSnapshot) -> Result<(), ChangesStop> {
        let PassStage::Scan(mut leaf) = self.at else { return Ok(()) };
        let leaves = pool.metadata.geometry().summary_leaves();
        let is_behind = pool.buckets_behind().is_some();
        let budget = if pool.is_at_full_speed(load) { LEAVES } else { 1 };
        for _ in 0..budget {
            if self.unresolved.len() >= Self::batch(pool) {
                self.begin_maps(Back::Scan(leaf));
                return Ok(());
            }
            if (self.duplicates.len() >= SPARES || leaf >= leaves) && !self.share_spares(pool, repairs, load)? {
                return Ok(());
            }
            if leaf >= leaves {
                self.scans += 1;
                self.at = PassStage::Index;
                return Ok(());
            }
            leaf = pool.each_owned_block_of_leaf(leaf, |pool, slot, state, digest, owner| {
                self.looked_at += 1;
                if self.range.has(digest)
                    && let Some(record) = Record::of(pool, repairs, is_behind, (slot, state, digest, owner))
                    && self.take_in(&record)
                {
                    // Writes that were stored without a duplicate lookup have not entered their digests into the index.
                    pool.hints.index.offer(pool.sharing_digest(digest), slot, pool.durable.space().generation(slot));
                }
            })?;
            self.at = PassStage::Scan(leaf);
        }
        Ok(())
    }

    /// Takes a slot in use into the range. Returns true if it is the first with its content.
    fn take_in(&mut self, record: &Record) -> bool {
        let found = record.found;
        if record.takes_no_part {
            self.range.note(found.digest, found.slot);
            return false;
        }
        let duplicate = self.range.offer(found);
        let is_first = duplicate.is_none();
        self.duplicates.extend(duplicate);
        is_first
    }

    /// Hands over the contents of a range to the index on disk; then the next range begins.
    fn hand_over(&mut self, pool: &mut Pool) {
        match self.catch_up.hand_over(pool, &self.range) {
            Handed::More => {}
            Handed::Part => self.changes.wait_for_checkpoint(pool),
            Handed::All => {
                let next = next_range(&self.range, pool.buckets_behind());
                let is_last_of_partitioning = next == PLACES || self.spill.end_from(next).is_none();
                if is_last_of_partitioning && self.spill.duplicates() > 0 {
                    self.begin_sharing(next);
                } else {
                    self.go_on_from(pool, next);
                }
            }
        }
    }

    /// Ends a range and continues from this place; with no range left, ends the pass after a last walk of the maps if one is needed.
    fn go_on_from(&mut self, pool: &mut Pool, next: u64) {
        let is_shared = self.spill.duplicates() == 0;
        if is_shared {
            (self.partitionings.shared, self.partitionings.since) = (next, pool.state.now());
        }
        if next == PLACES {
            if self.unresolved.is_empty() {
                self.at = PassStage::End;
                self.changes.wait_for_flush(pool);
            } else {
                self.begin_maps(Back::Next(PLACES));
            }
            return;
        }
        // Contents that are found again there are not left to a walk of the maps as well.
        self.forget_from(next);
        if is_shared && self.unresolved.is_empty() {
            self.record.next = next as u32;
        }
        self.at = PassStage::Next(next);
    }

    /// Forgets unresolved slots whose digest has its place at `next` or later: they are found again.
    fn forget_from(&mut self, next: u64) {
        self.unresolved.retain(|&(.., digest)| range::place(digest) < next);
    }

    fn begin_maps(&mut self, back: Back) {
        self.unresolved.sort_unstable();
        self.map_walks += 1;
        self.at = PassStage::Maps(Maps::default(), back);
    }

    /// Scans some leaves of maps.
    fn walk_maps(&mut self, pool: &mut Pool, repairs: &Repairs, load: &LoadSnapshot) -> Result<(), ChangesStop> {
        let PassStage::Maps(mut maps, back) = self.at else { return Ok(()) };
        for _ in 0..if pool.is_at_full_speed(load) { LEAVES } else { 1 } {
            let walked = maps.step(pool, may_share, |pool, key, slot| {
                self.looked_at += 1;
                let Ok(found) = self.unresolved.binary_search_by_key(&slot, |&(duplicate, ..)| duplicate) else {
                    return Ok(false);
                };
                let (_, canonical, digest) = self.unresolved[found];
                let canonical = self.canonical(canonical);
                if canonical == slot {
                    return Ok(false);
                }
                let shared =
                    self.share(pool, repairs, load, key, (slot, canonical, digest), SeenGenerations::default())?;
                if shared == ShareResult::Gone {
                    self.replace(pool, canonical, slot, digest)?;
                }
                self.kept += u64::from(shared == ShareResult::Kept);
                Ok::<_, ChangesStop>(true)
            });
            self.at = PassStage::Maps(maps, back);
            if !walked? {
                self.unresolved.clear();
                self.verify.clear();
                match back {
                    Back::Scan(leaf) => self.at = PassStage::Scan(leaf),
                    Back::Share(partition, next) => self.at = PassStage::Share(partition, next),
                    Back::Next(next) => self.go_on_from(pool, next),
                }
                return Ok(());
            }
        }
        Ok(())
    }

    fn end(&mut self, pool: &mut Pool) {
        // A slot that a leaf still maps to is not free: changes go into their leaves first.
        if pool.has_to_flush() {
            self.changes.wait_for_flush(pool);
            return;
        }
        self.catch_up.end(pool);
        self.record = DedupRecord { state: PassState::Finished, ..DedupRecord::default() };
        self.backlog.sleep(pool.state.now(), self.shared - self.shared_before);
        self.passes += 1;
        self.missed_seen = self.missed_before;
        self.rest(pool);
        // The freed slots come with the next checkpoints.
        pool.note_slots_freed();
        pool.request_checkpoint();
        pool.wake();
    }
}

impl Job for Dedup {
    type Work<'a> = JobContext<'a>;

    fn is_in_progress(&self) -> bool {
        self.record.state == PassState::Running && self.short.is_none()
    }

    #[inline]
    fn can_step(&self, pool: &Pool, load: &LoadSnapshot) -> bool {
        (self.is_in_progress()
            || self.has_space_again(pool)
            || self.due(load).is_some_and(|due| due <= pool.state.now()))
            && pool.state.phase() == Phase::Serving
            && pool.takes_changes()
            && (!load.writes_blocked || self.is_awaited)
            && pool.state.now() >= self.look_again_at
            && self.changes.may_go_on(pool)
            && !self.verify.is_in_progress()
            && !self.spill.waits()
            && !self.waiting.is_some_and(|key| pool.metadata.pages().is_loading(key))
    }

    fn can_advance(&self) -> bool {
        self.verify.holds_any() || self.spill.is_on()
    }

    /// Gives up the spill space if it is reclaimed. Gives up slots held for comparison if writes wait for space: the pass waits until then.
    fn advance(&mut self, work: &mut JobContext<'_>) {
        if work.pool.durable.space().is_spill_reclaimed() && self.spill.is_on() {
            self.lose_spill(work.pool);
        }
        if work.load.writes_blocked && !self.is_awaited && self.verify.holds_any() {
            self.verify.clear();
            work.pool.wake_if(!self.verify.holds_any());
        }
    }

    #[inline]
    fn begins_at(&self, _: &Pool, load: &LoadSnapshot) -> Option<Nanos> {
        let look_again = self.is_in_progress().then_some(self.look_again_at);
        self.short.map(|short| short.due()).or(look_again).or_else(|| self.due(load))
    }

    fn step(&mut self, work: &mut JobContext<'_>) {
        (self.waiting, self.refused, self.beside) = (None, None, 0);
        if self.short.take().is_none() && !self.is_in_progress() {
            self.start(work.pool);
        }
        // The pass has not seen blocks that were moved behind its position.
        let moved = self.partitionings.take_moved(work.pool);
        if moved > 0 {
            self.backlog.note(work.pool.state.now(), moved);
        }
        let went = self.go_on(work);
        self.repair(work);
        self.looked_at += 1 + self.beside as u64;
        match went {
            Ok(()) | Err(ChangesStop::Waits) => {}
            Err(ChangesStop::Missing(missing)) if work.pool.metadata.has_failed(missing.key) => self.skip(),
            Err(ChangesStop::Missing(missing)) => {
                self.waiting = Some(missing.key);
                work.pool.metadata.load(missing, None);
            }
            Err(ChangesStop::NoSpace) => {
                self.rest(work.pool);
                self.short = Some(Short::new(work.pool.state.now(), work.pool.metadata.allocator().free()));
            }
        }
        let pool = &mut *work.pool;
        // A checkpoint that the pass requested begins with the next pump.
        pool.wake_if(self.changes.waits_for_checkpoint(pool));
        if self.is_in_progress() && pool.state.now() >= self.saved + SAVE_PERIOD {
            self.saved = pool.state.now();
            pool.request_checkpoint();
            pool.wake();
        }
    }

    fn is_stuck(&self, _: &Pool) -> bool {
        self.spill.is_stuck()
    }

    fn done(
        &mut self,
        work: &mut JobContext<'_>,
        part: u32,
        segments: &[Segment],
        result: Result<Outcome<'_>, IoError>,
    ) {
        match part {
            PARTS.. => self.spill.done(work.pool, part, segments, result),
            _ => self.verify.done(work.pool, part as usize, segments.len(), result),
        }
    }

    fn in_flight(&self) -> usize {
        self.verify.in_flight() + self.spill.in_flight()
    }

    fn holds(&self, slot: Slot) -> bool {
        self.verify.holds(slot)
    }
}

impl Dedup {
    /// Starts the repair of slots that should stay and do not hold the content of their digest.
    fn repair(&mut self, work: &mut JobContext<'_>) {
        while let Some((slot, other)) = self.damaged.pop() {
            let Some(buffer) = work.pool.any_buffer() else {
                return self.damaged.push((slot, other));
            };
            work.repairs.repair_from(work.pool, slot, buffer, other);
        }
    }

    /// Skips the leaf, map or duplicate slot whose page cannot be read; it stays unchanged.
    fn skip(&mut self) {
        match &mut self.at {
            PassStage::Maps(maps, _) => maps.skip(),
            PassStage::Scan(_) | PassStage::Share(..) if !self.duplicates.is_empty() => {
                self.duplicates.pop();
                self.in_order = self.duplicates.len();
            }
            PassStage::Scan(leaf) | PassStage::Gather(leaf) => *leaf += 1,
            PassStage::Begin
            | PassStage::Next(_)
            | PassStage::Load
            | PassStage::Finish(_)
            | PassStage::Share(..)
            | PassStage::Index
            | PassStage::End => {}
        }
    }
}
