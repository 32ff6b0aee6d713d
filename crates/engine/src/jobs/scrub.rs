//! The scrub: a background job that reads all data and metadata in use from the device, verifies them, and repairs damage where it can. It advances
//! in small steps.
//!
//! ```text
//! Superblocks  both copies of the newest durable superblock
//! Pages        every page of every tree, against the checksum in its parent; level by level from the root down
//! Blocks       every slot in use, against the 128 bits of its summary, in slot order
//! Search       after a loss: the summaries, for other slots with the content of lost blocks
//! ```
//!
//! It begins with a checkpoint, so that the trees contain all earlier writes. A step reads one batch: a few pages, or a few dozen blocks. The next
//! batch begins when this one is verified, and each failure is repaired or given up (`repair.rs`). Blocks are read while checkpoints are in progress.
//! Pages and superblocks are read only between two checkpoints, since checkpoints move the trees. Slots that are being read are not returned to the
//! allocator. No checkpoint begins while a page or a superblock is rewritten in place.
//!
//! Snapshots are scrubbed as volumes are, also those that are deleted and still needed. Inherited subtrees have no pages of their own: they are passed over.
//!
//! Each superblock stores the position of the scrub: after a restart it continues there, or a little before.

use alloc::vec::Vec;

use crate::api::*;
use crate::format::entry::Slot;
use crate::format::superblock::{PassState, Pointer, Root, ScrubRecord, Superblock, TREES, TreeId};
use crate::jobs::job::{Job, JobContext, JobId};
use crate::metadata::io::Purpose;
use crate::metadata::page_cache::{PageKey, Region};
use crate::metadata::tree::{Missing, PageLookup, Walk, locate, lookup};
use crate::mutant::Mutant;
use crate::pool::Pool;
use crate::pool::state::{LoadSnapshot, Look, Phase};
use crate::pool::tables::table_name;
use crate::pool::volumes::hidden::Copying;
use crate::repair::Repairs;
use crate::repair::block_repair::{Damaged, For, Found};
use crate::space::SlotState;

/// Most pages of a batch.
const PAGES_AT_ONCE: usize = 16;
/// Most blocks of a batch.
const BLOCKS_AT_ONCE: usize = 32;
/// Number of tree positions that one step examines.
const BUDGET: u32 = 64;
/// Time between two checkpoints that make its progress durable, in nanoseconds.
const SAVE_PERIOD: Nanos = 60_000_000_000;
/// First number of trees of volumes.
const VOLUMES: u32 = 16;
/// First number of discarded subtrees.
const DISCARDS: u32 = 1 << 20;

/// Number of the phase that reads both superblocks, as stored in the superblock.
const SUPERBLOCKS: u8 = 0;
/// Number of the phase that reads every page of every tree.
const PAGES: u8 = 1;
/// Number of the phase that reads every slot in use.
const BLOCKS: u8 = 2;
/// Number of the phase that looks for other slots with the content of lost blocks.
const SEARCH: u8 = 3;

/// State and counts of the scrub in progress, or of the last one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ScrubStatus {
    /// Progress state of the scrub.
    pub state: PassState,
    /// Time at which it began: seconds of the driver's clock, 0 if that is not known.
    pub started: u64,
    /// Time at which it was finished or stopped: seconds of the driver's clock, 0 if that is not known.
    pub finished: u64,
    /// Blocks of data and of metadata that it has read.
    pub blocks_done: u64,
    /// Blocks of data and of metadata to be read in all.
    pub blocks_total: u64,
    /// Damaged blocks, pages and superblock copies that it has found.
    pub found: u64,
    /// Damaged blocks, pages and superblock copies that it has repaired.
    pub repaired: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Target {
    Page(PageKey, Pointer),
    /// The copy of the superblock at this place.
    Superblock(usize),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ScrubStage {
    First,
    Again,
    Look(Look),
    Write,
    Sync(u64),
    ReadBack,
    Done,
}

/// A page or a copy of the superblock that is being verified.
#[derive(Clone, Copy, Debug)]
struct Item {
    target: Target,
    what: Damaged,
    owner: Option<(VolumeId, u64)>,
    at: ScrubStage,
    in_flight: bool,
    good: bool,
}

/// The scrub.
pub(crate) struct Scrub {
    record: ScrubRecord,
    items: Vec<Item>,
    /// Blocks that are being read, in order.
    blocks: Vec<(Slot, Digest, BufferId)>,
    /// Blocks of the batch that are to get a second copy.
    to_copy: Vec<Slot>,
    /// Blocks due for a second copy whose content has arrived.
    copies: Vec<(Slot, Digest, BufferId)>,
    /// Number of reads of blocks in flight.
    reads: usize,
    /// Number of blocks that are being repaired.
    repairing: usize,
    /// Position of the scrub after the batch; `None` between batches.
    next: Option<ScrubRecord>,
    /// Set if the batch must be read again: a checkpoint has changed the trees meanwhile.
    again: bool,
    /// Set if the batch belongs to an earlier scrub.
    stale: bool,
    /// Number of completed checkpoints when the batch began.
    checkpoints: u64,
    /// Number of completed checkpoints that the scrub requires before it begins.
    begins: u64,
    /// Page that it waits for.
    waiting: Option<PageKey>,
    saved: Nanos,
    /// Seconds shown by the driver's clock, and the engine time of that reading.
    wall_clock: Option<(u64, Nanos)>,
}

impl Scrub {
    /// Returns the progress of the scrub, for the superblock.
    #[inline]
    pub(crate) fn record(&self) -> ScrubRecord {
        self.record
    }

    /// Adopts the scrub that the superblock has a record of.
    pub(crate) fn adopt(&mut self, record: ScrubRecord) {
        self.record = record;
    }

    pub(crate) fn new(now: Nanos) -> Scrub {
        Scrub {
            record: ScrubRecord::default(),
            items: Vec::new(),
            blocks: Vec::new(),
            to_copy: Vec::new(),
            copies: Vec::new(),
            reads: 0,
            repairing: 0,
            next: None,
            again: false,
            stale: false,
            checkpoints: 0,
            begins: 0,
            waiting: None,
            saved: now,
            wall_clock: None,
        }
    }

    /// Returns true while a page or a superblock is being written in its place.
    pub(crate) fn writes_metadata(&self) -> bool {
        self.items.iter().any(|item| matches!(item.at, ScrubStage::Write | ScrubStage::Sync(_) | ScrubStage::ReadBack))
    }
}

/// Result of collecting the next batch.
enum Gathered {
    /// A batch, or progress towards one.
    Some,
    /// The phase is done.
    All,
}

/// Returns the first tree at or after a number; for the map of a volume, with its volume.
fn tree_from(pool: &Pool, number: u32) -> Option<(u32, Root, Option<VolumeId>)> {
    if (number as usize) < TREES {
        return Some((number, pool.durable.roots()[number as usize], None));
    }
    if number < DISCARDS {
        let at = pool.durable.volumes().first_after(|id| VOLUMES + u32::from(id.0) < number);
        if let Some(volume) = pool.durable.volumes().get(at) {
            return Some((VOLUMES + u32::from(volume.id.0), pool.durable.volumes().map(at), Some(volume.id)));
        }
    }
    let number = number.max(DISCARDS);
    let discard = pool.durable.discards().get((number - DISCARDS) as usize)?;
    Some((number, Root { pointer: discard.pointer, height: discard.level }, None))
}

fn item_offset(pool: &Pool, target: Target) -> u64 {
    match target {
        Target::Page(key, _) => pool.metadata.offset(key),
        Target::Superblock(place) => {
            pool.metadata.geometry().superblock_block(place, pool.durable.superblock().epoch)
                * pool.metadata.geometry().block()
        }
    }
}

fn rewrite_page(pool: &mut Pool, key: PageKey, pointer: Pointer, purpose: Purpose) -> bool {
    let Some(page) = pool.metadata.pages_mut().get(key) else { return false };
    let good = pool.metadata.is_intact(pointer, pool.metadata.pages().bytes(page));
    if !good || !pool.metadata.pages_mut().begin_rewriting(page) {
        return false;
    }
    let (offset, block) = (pool.metadata.offset(key), pool.metadata.geometry().block());
    pool.metadata.io_mut().begin(IoOp::Write, offset, block, [Segment::Page(page)], purpose);
    true
}

impl Scrub {
    /// Returns the seconds of the driver's clock, if a command has reported it; else 0.
    fn seconds(&self, now: Nanos) -> u64 {
        self.wall_clock.map_or(0, |(seconds, then)| seconds + (now - then) / 1_000_000_000)
    }

    /// Returns the state and counts of the scrub in progress, or of the last one.
    pub(crate) fn status(&self, pool: &Pool) -> ScrubStatus {
        let record = &self.record;
        let all = pool.durable.space().data_used() + u64::from(pool.metadata.allocator().used()) + 2;
        let in_progress = matches!(record.state, PassState::Running | PassState::Paused);
        ScrubStatus {
            state: record.state,
            started: record.started,
            finished: record.finished,
            blocks_done: record.blocks_done,
            blocks_total: if in_progress { all.max(record.blocks_done) } else { record.blocks_done },
            found: record.found.into(),
            repaired: record.repaired.into(),
        }
    }

    /// Executes a command. Returns the number of checkpoints after which the command is durable.
    pub(crate) fn command(
        &mut self,
        pool: &mut Pool,
        command: ScrubCommand,
        seconds: u64,
    ) -> Result<u64, ControlError> {
        self.wall_clock = (seconds > 0).then_some((seconds, pool.state.now()));
        if pool.state.phase() != Phase::Serving {
            return Err(ControlError::ReadOnly);
        }
        let state = self.record.state;
        match (command, state) {
            (ScrubCommand::Start, PassState::Running) => return Ok(pool.checkpoint.done()),
            (ScrubCommand::Start, PassState::Paused) => self.record.state = PassState::Running,
            (ScrubCommand::Start, _) => {
                self.stale = self.next.is_some();
                self.record = ScrubRecord {
                    state: PassState::Running,
                    started: self.seconds(pool.state.now()),
                    ..ScrubRecord::default()
                };
            }
            (ScrubCommand::Pause, PassState::Running) => self.record.state = PassState::Paused,
            (ScrubCommand::Stop, PassState::Running | PassState::Paused) => {
                self.stale = self.next.is_some();
                self.record.state = PassState::Stopped;
                self.record.finished = self.seconds(pool.state.now());
            }
            (ScrubCommand::Pause | ScrubCommand::Stop, _) => return Err(ControlError::NoScrub),
        }
        let durable = if pool.may_repair() { pool.after_next_checkpoint() } else { pool.checkpoint.done() };
        if command == ScrubCommand::Start {
            self.begins = durable;
        }
        Ok(durable)
    }

    // ---- batches ----

    /// Returns true if the next batch may begin.
    fn can_begin(&self, pool: &Pool, load: &LoadSnapshot) -> bool {
        let between = !pool.checkpoint.is_in_progress() || pool.state.read_only() || self.record.phase >= BLOCKS;
        pool.state.phase() == Phase::Serving
            && (pool.state.read_only() || pool.checkpoint.done() >= self.begins)
            && !load.out_of_buffers
            && pool.memory.buffers().free() + pool.memory.cache().len() > 0
            && between
            && !self.waiting.is_some_and(|key| pool.metadata.pages().is_loading(key))
    }

    fn begin_batch(&mut self, work: &mut JobContext<'_>) {
        let JobContext { pool, repairs, load } = work;
        self.waiting = None;
        self.again = false;
        self.checkpoints = pool.checkpoint.done();
        let mut next = self.record;
        let gathered = match next.phase {
            // A pool that has just failed references pages that were never written.
            SUPERBLOCKS | PAGES if pool.state.read_only() => Gathered::All,
            SUPERBLOCKS => self.gather_superblocks(),
            PAGES => self.gather_pages(pool, &mut next),
            BLOCKS => self.gather_blocks(pool, load, &mut next),
            _ => self.search(pool, repairs, &mut next),
        };
        if let Gathered::All = gathered {
            (next.phase, next.tree, next.level, next.index) = (next.phase + 1, 0, u8::MAX, 0);
        }
        next.blocks_done += (self.items.len() + self.blocks.len()) as u64;
        self.next = Some(next);
        for number in 0..self.items.len() {
            self.read_item(pool, repairs, number);
        }
        self.read_blocks(pool);
    }

    /// Ends a batch that has been verified: the next one begins after it.
    fn end_batch(&mut self, pool: &mut Pool, repairs: &mut Repairs) {
        let scrub = &mut *self;
        let busy = scrub.reads > 0
            || !scrub.copies.is_empty()
            || scrub.repairing > 0
            || scrub.items.iter().any(|item| item.at != ScrubStage::Done);
        if busy || scrub.next.is_none() {
            return;
        }
        scrub.items.clear();
        scrub.blocks.clear();
        scrub.to_copy.clear();
        let Some(next) = scrub.next.take() else { return };
        if core::mem::take(&mut scrub.stale) || scrub.again {
            return;
        }
        let record = &mut scrub.record;
        (record.phase, record.tree, record.level, record.index) = (next.phase, next.tree, next.level, next.index);
        record.blocks_done = next.blocks_done;
        if record.phase > SEARCH {
            record.phase = SUPERBLOCKS;
            record.state = PassState::Finished;
            self.record.finished = self.seconds(pool.state.now());
            repairs.set_left(u64::from(self.record.found.saturating_sub(self.record.repaired)));
            if pool.may_repair() {
                pool.request_checkpoint();
                pool.wake();
            }
        }
    }

    /// Makes the scrub wait for a page; returns false if the page has failed already.
    fn await_page(&mut self, pool: &mut Pool, missing: Missing) -> bool {
        if pool.metadata.has_failed(missing.key) || !pool.metadata.is_valid(missing.key) {
            return false;
        }
        self.waiting = Some(missing.key);
        pool.metadata.load(missing, None);
        true
    }

    // ---- superblocks and pages ----

    fn gather_superblocks(&mut self) -> Gathered {
        for place in 0..2 {
            self.push_item(Target::Superblock(place), Damaged::Superblock, None);
        }
        Gathered::All
    }

    fn push_item(&mut self, target: Target, what: Damaged, owner: Option<(VolumeId, u64)>) {
        self.items.push(Item { target, what, owner, at: ScrubStage::First, in_flight: false, good: false });
    }

    fn gather_pages(&mut self, pool: &mut Pool, next: &mut ScrubRecord) -> Gathered {
        let fanout = pool.metadata.geometry().fanout();
        for _ in 0..BUDGET {
            if self.items.len() == PAGES_AT_ONCE {
                break;
            }
            let Some((tree, root, volume)) = tree_from(pool, next.tree) else { return Gathered::All };
            if tree != next.tree {
                (next.tree, next.level, next.index) = (tree, u8::MAX, 0);
            }
            next.level = next.level.min(root.height);
            let region = if tree == TreeId::MetaMap as u32 { Region::MetaMap } else { Region::Metadata };
            let inherits = match volume {
                Some(id) => pool.durable.volumes().lineage().parent(id).is_some(),
                // A discarded map may be that of a volume with ancestors.
                None => tree as usize >= TREES && pool.durable.superblock().has_families,
            };
            let skip = |next: &mut ScrubRecord, level: u8| {
                let span = fanout.saturating_pow(u32::from(level - next.level));
                next.index = (next.index / span).saturating_add(1).saturating_mul(span);
            };
            match locate(&mut pool.metadata, region, root, next.level, next.index) {
                // An ancestor has these pages, and is scrubbed itself. In a tree without ancestors, the pointer is damage; it has been reported with its level.
                PageLookup::From { level, .. }
                    if inherits && !pool.mutant(Mutant::ScrubbedFrom) || level > next.level =>
                {
                    skip(next, level)
                }
                PageLookup::At(pointer) | PageLookup::From { missing: Missing { pointer, .. }, .. } => {
                    let what = match tree {
                        _ if (tree as usize) < TREES => table_name(TABLES[tree as usize]),
                        _ if volume.is_some() => "the map of a volume",
                        _ => "a map that was discarded",
                    };
                    let span = fanout.saturating_pow(next.level.into());
                    let first =
                        next.index.saturating_mul(span).saturating_mul(pool.metadata.geometry().map_leaf_entries());
                    let key = PageKey { region, location: pointer.location };
                    let owner = volume.map(|id| (id, first));
                    self.push_item(Target::Page(key, pointer), Damaged::Page(what), owner);
                    next.index += 1;
                }
                PageLookup::Missing(_, missing) if self.await_page(pool, missing) => break,
                // The position is empty, or it is below an unreadable page, which has been reported already.
                PageLookup::Absent(level) | PageLookup::Missing(level, _) => skip(next, level),
            }
            if next.index >= fanout.saturating_pow(u32::from(root.height - next.level)) {
                next.index = 0;
                match next.level {
                    0 => (next.tree, next.level) = (tree + 1, u8::MAX),
                    _ => next.level -= 1,
                }
            }
        }
        Gathered::Some
    }

    fn read_item(&mut self, pool: &mut Pool, repairs: &mut Repairs, number: usize) {
        let item = self.items[number];
        if let Target::Page(key, _) = item.target
            && !pool.metadata.is_valid(key)
        {
            return self.end_item(pool, repairs, number, Found::Left);
        }
        self.items[number].in_flight = true;
        let (offset, block) = (item_offset(pool, item.target), pool.metadata.geometry().block());
        pool.metadata.io_mut().begin(IoOp::ReadPages, offset, block, [], JobId::Scrub.io(number));
    }

    /// Handles the completion of an I/O of a page or a superblock.
    fn item_done(
        &mut self,
        pool: &mut Pool,
        number: usize,
        segments: &[Segment],
        result: Result<Outcome<'_>, IoError>,
    ) {
        let item = self.items[number];
        let good = match (item.at, item.target, result) {
            (ScrubStage::Write, target, _) => {
                match (target, segments.first()) {
                    (Target::Page(key, _), Some(&Segment::Page(page))) => pool.metadata.pages_mut().written(key, page),
                    (_, Some(&Segment::Page(page))) => pool.metadata.pages_mut().release(page),
                    _ => {}
                }
                result.is_ok()
            }
            (_, Target::Page(_, pointer), Ok(Outcome::Bytes(bytes))) => {
                bytes.len() as u64 == pool.metadata.geometry().block() && pool.metadata.is_intact(pointer, bytes)
            }
            (_, Target::Superblock(_), Ok(Outcome::Bytes(bytes))) => {
                Superblock::decode(bytes) == Ok(*pool.durable.superblock())
            }
            _ => false,
        };
        let item = &mut self.items[number];
        (item.in_flight, item.good) = (false, good);
    }

    fn step_items(&mut self, pool: &mut Pool, repairs: &mut Repairs) {
        let moved =
            pool.checkpoint.is_in_progress() && !pool.state.read_only() || pool.checkpoint.done() != self.checkpoints;
        for number in 0..self.items.len() {
            let item = self.items[number];
            if item.in_flight {
                continue;
            }
            match item.at {
                ScrubStage::Done => {}
                ScrubStage::First | ScrubStage::Again if item.good => self.items[number].at = ScrubStage::Done,
                // The page may no longer belong to any tree.
                ScrubStage::First | ScrubStage::Again | ScrubStage::Look(_) if moved => {
                    self.again = true;
                    self.items[number].at = ScrubStage::Done;
                }
                ScrubStage::First => {
                    self.items[number].at = ScrubStage::Again;
                    self.read_item(pool, repairs, number);
                }
                // The mismatch may be a write of another instance that owns the pool now.
                ScrubStage::Again => {
                    let look = pool.look_at_owner();
                    self.items[number].at = ScrubStage::Look(look);
                    if pool.is_ours(look) {
                        self.rewrite_item(pool, repairs, number);
                    }
                }
                ScrubStage::Look(look) if pool.is_ours(look) || pool.state.read_only() => {
                    self.rewrite_item(pool, repairs, number)
                }
                ScrubStage::Look(_) => {}
                ScrubStage::Write if item.good => {
                    let barrier = pool.durable.journal_mut().request_sync();
                    self.items[number].at = ScrubStage::Sync(barrier);
                }
                ScrubStage::Write => self.end_item(pool, repairs, number, Found::Left),
                ScrubStage::Sync(_) if pool.state.read_only() => self.end_item(pool, repairs, number, Found::Left),
                ScrubStage::Sync(barrier) if !pool.durable.journal().has_synced(barrier) => {}
                ScrubStage::Sync(_) => {
                    self.items[number].at = ScrubStage::ReadBack;
                    self.read_item(pool, repairs, number);
                }
                ScrubStage::ReadBack => {
                    self.end_item(pool, repairs, number, if item.good { Found::Repaired } else { Found::Left })
                }
            }
        }
    }

    /// Rewrites an item in place from a trusted copy: the superblock in force, or a page in memory.
    fn rewrite_item(&mut self, pool: &mut Pool, repairs: &mut Repairs, number: usize) {
        let purpose = JobId::Scrub.io(number);
        let item = self.items[number];
        let begun = pool.may_repair()
            && match item.target {
                Target::Superblock(place) => {
                    let superblock = *pool.durable.superblock();
                    if pool.submit_superblock(&superblock, &[place], purpose).is_none() {
                        // No page is free: retried with the next event.
                        return;
                    }
                    true
                }
                Target::Page(key, pointer) => rewrite_page(pool, key, pointer, purpose),
            };
        if begun {
            self.items[number].at = ScrubStage::Write;
            self.items[number].in_flight = true;
        } else {
            self.end_item(pool, repairs, number, Found::Left);
        }
    }

    fn end_item(&mut self, pool: &Pool, repairs: &mut Repairs, number: usize, found: Found) {
        let item = &mut self.items[number];
        item.at = ScrubStage::Done;
        let item = *item;
        let repaired = found == Found::Repaired;
        let offset = match item.target {
            Target::Page(key, _) if !pool.metadata.is_valid(key) => 0,
            target => item_offset(pool, target),
        };
        repairs.note_found(item.what, offset, item.owner, repaired);
        self.count_scrubbed(1, u32::from(repaired));
    }

    fn count_scrubbed(&mut self, found: u32, repaired: u32) {
        if !self.stale {
            let record = &mut self.record;
            record.found = record.found.saturating_add(found);
            record.repaired = record.repaired.saturating_add(repaired);
        }
    }

    // ---- blocks ----

    /// Returns the slots from `index` to the end of its summary leaf, if all pages that they need are in memory.
    fn leaf_of_slots(&mut self, pool: &mut Pool, next: &mut ScrubRecord) -> Option<core::ops::Range<u64>> {
        let per_leaf = pool.metadata.geometry().summary_leaf_slots();
        let (root, leaf) = (pool.durable.root(TreeId::Summaries), next.index / per_leaf);
        let end = ((leaf + 1) * per_leaf).min(pool.metadata.geometry().slots());
        let missing = match lookup(&mut pool.metadata, Region::Metadata, root, leaf) {
            Walk::Leaf(_) => {
                let ends = [next.index, end - 1];
                ends.into_iter().find_map(|slot| pool.slot_state(Slot(slot)).err())
            }
            Walk::Absent(level) => {
                let span = pool.metadata.geometry().fanout().saturating_pow(level.into());
                next.index = (leaf / span).saturating_add(1).saturating_mul(span).saturating_mul(per_leaf);
                return None;
            }
            Walk::Missing(missing) | Walk::From { missing, .. } => Some(missing),
        };
        match missing {
            None => return Some(next.index..end),
            Some(missing) if self.await_page(pool, missing) => {}
            // The page has been reported; its summaries of these slots are lost.
            Some(_) => next.index = end,
        }
        None
    }

    fn gather_blocks(&mut self, pool: &mut Pool, load: &LoadSnapshot, next: &mut ScrubRecord) -> Gathered {
        let most = BLOCKS_AT_ONCE.min(pool.limits.buffers as usize / 8).max(1);
        for _ in 0..BUDGET / 8 {
            if next.index >= pool.metadata.geometry().slots() {
                return Gathered::All;
            }
            let Some(slots) = self.leaf_of_slots(pool, next) else {
                if self.waiting.is_some() {
                    break;
                }
                continue;
            };
            for slot in slots.map(Slot) {
                if self.blocks.len() == most {
                    return Gathered::Some;
                }
                let proven = pool.proven_digest(slot).ok().flatten();
                match pool.copying(slot, proven.map(|(digest, _)| digest)) {
                    Ok(Copying::Leave) => {}
                    Ok(Copying::Make) => self.to_copy.push(slot),
                    Ok(Copying::Drop) => Repairs::drop_copy(pool, load, slot),
                    Err(missing) if self.await_page(pool, missing) => return Gathered::Some,
                    Err(_) => {}
                }
                if let Some((digest, _)) = proven
                    && !pool.memory.is_dirty(slot)
                    && !pool.durable.is_in_journal(slot)
                {
                    let Some(buffer) = pool.any_buffer() else { return Gathered::Some };
                    self.blocks.push((slot, digest, buffer));
                }
                next.index = slot.0 + 1;
            }
        }
        Gathered::Some
    }

    /// Reads the blocks of the batch, with one I/O for consecutive slots.
    fn read_blocks(&mut self, pool: &mut Pool) {
        let block = pool.metadata.geometry().block();
        let mut at = 0;
        while let Some(&(first, ..)) = self.blocks.get(at) {
            let follows = |i: usize| {
                let slot = Slot(first.0 + i as u64);
                self.blocks.get(at + i).is_some_and(|&(next, ..)| next == slot)
                    && pool.durable.space().container_of(slot) == pool.durable.space().container_of(first)
            };
            let length = (1..BLOCKS_AT_ONCE).find(|&i| !follows(i)).unwrap_or(BLOCKS_AT_ONCE);
            let offset = pool.metadata.geometry().slot_block(first.0) * block;
            let segments = self.blocks[at..at + length].iter().map(|&(.., buffer)| Segment::Buffer(buffer));
            pool.metadata.io_mut().begin(
                IoOp::ReadBlocks,
                offset,
                length as u64 * block,
                segments,
                JobId::Scrub.io(PAGES_AT_ONCE + at),
            );
            self.reads += 1;
            at += length;
        }
    }

    /// Handles the completion of a read of blocks of the batch, from block `first` on.
    fn blocks_read(
        &mut self,
        work: &mut JobContext<'_>,
        first: usize,
        segments: &[Segment],
        result: Result<Outcome<'_>, IoError>,
    ) {
        self.reads -= 1;
        for i in 0..segments.len() {
            let (slot, digest, buffer) = self.blocks[first + i];
            let good = match result {
                Ok(Outcome::Blocks(contents)) => {
                    contents.get(i).is_some_and(|content| !content.zero && content.digest == digest)
                }
                _ => false,
            };
            if good && self.to_copy.contains(&slot) {
                self.copies.push((slot, digest, buffer));
            } else if good {
                work.pool.memory.buffers_mut().release(buffer);
            } else {
                work.repairs.repair_for_scrub(work.pool, slot, buffer, For::Scrub, None);
                self.repairing += 1;
            }
        }
    }

    /// Counts a repair that has ended.
    fn repaired(&mut self, whom: For, found: Found) {
        self.repairing -= 1;
        let repaired = u32::from(found == Found::Repaired);
        let counts = u32::from(whom == For::Scrub && found != Found::Good);
        self.count_scrubbed(counts, repaired);
    }

    /// Searches the summaries for other slots with the content of lost blocks.
    fn search(&mut self, pool: &mut Pool, repairs: &mut Repairs, next: &mut ScrubRecord) -> Gathered {
        for _ in 0..BUDGET / 8 {
            if repairs.damages().lost().is_empty()
                || next.index >= pool.metadata.geometry().slots()
                || !pool.may_repair()
            {
                return Gathered::All;
            }
            let Some(slots) = self.leaf_of_slots(pool, next) else {
                if self.waiting.is_some() {
                    break;
                }
                continue;
            };
            for slot in slots.map(Slot) {
                next.index = slot.0 + 1;
                if !pool.slot_state(slot).is_ok_and(SlotState::is_used) {
                    continue;
                }
                let Ok(Some((digest, _))) = pool.proven_digest(slot) else { continue };
                for at in 0..repairs.damages().lost().len() {
                    let (lost, wanted) = repairs.damages().lost()[at];
                    if lost == slot || wanted != digest || repairs.is_repairing(lost) {
                        continue;
                    }
                    let Some(buffer) = pool.any_buffer() else {
                        next.index = slot.0;
                        return Gathered::Some;
                    };
                    repairs.repair_for_scrub(pool, lost, buffer, For::Again, Some(slot));
                    self.repairing += 1;
                }
            }
            if self.repairing > 0 {
                break;
            }
        }
        Gathered::Some
    }
}

impl Job for Scrub {
    type Work<'a> = JobContext<'a>;

    fn is_in_progress(&self) -> bool {
        self.record.state == PassState::Running
    }

    #[inline]
    fn can_step(&self, pool: &Pool, load: &LoadSnapshot) -> bool {
        self.is_in_progress() && self.next.is_none() && self.can_begin(pool, load)
    }

    /// Returns true while a batch is in progress: only then do repairs end and copies arrive.
    #[inline]
    fn can_advance(&self) -> bool {
        self.next.is_some()
    }

    /// Advances the batch in progress.
    fn advance(&mut self, work: &mut JobContext<'_>) {
        while let Some((whom, found)) = work.repairs.take_ended() {
            self.repaired(whom, found);
        }
        self.step_items(work.pool, work.repairs);
        while let Some((slot, digest, buffer)) = self.copies.pop() {
            work.repairs.make_copy(work.pool, &work.load, slot, digest, buffer);
        }
        self.end_batch(work.pool, work.repairs);
    }

    /// Begins the next batch.
    fn step(&mut self, work: &mut JobContext<'_>) {
        self.begin_batch(work);
        self.end_batch(work.pool, work.repairs);
        let pool = &mut *work.pool;
        if pool.state.now() >= self.saved + SAVE_PERIOD && pool.may_repair() {
            self.saved = pool.state.now();
            pool.request_checkpoint();
            pool.wake();
        }
    }

    /// Handles the completion of an I/O; `part` is the number of an item, or of the first block, counted after the items.
    fn done(
        &mut self,
        work: &mut JobContext<'_>,
        part: u32,
        segments: &[Segment],
        result: Result<Outcome<'_>, IoError>,
    ) {
        match (part as usize).checked_sub(PAGES_AT_ONCE) {
            None => self.item_done(work.pool, part as usize, segments, result),
            Some(first) => self.blocks_read(work, first, segments, result),
        }
    }

    fn in_flight(&self) -> usize {
        self.reads + self.items.iter().filter(|item| item.in_flight).count()
    }

    fn holds(&self, slot: Slot) -> bool {
        self.blocks.binary_search_by_key(&slot, |&(held, ..)| held).is_ok()
    }
}

/// The trees in the order of their roots.
const TABLES: [TreeId; TREES] = [
    TreeId::MetaMap,
    TreeId::SpaceMap,
    TreeId::Containers,
    TreeId::Counts,
    TreeId::Summaries,
    TreeId::Volumes,
    TreeId::Discards,
    TreeId::DiskIndex,
    TreeId::MapBuffer,
];
