//! The scrub: reads everything that is in use from the device, verifies it, and repairs what it can. A job, in small steps.
//!
//! ```text
//! Superblocks  both copies of the newest durable one
//! Pages        every page of every tree, against the checksum in its parent: levels from the root down
//! Blocks       every slot in use, against the 128 bits of its summary, in the order of slots
//! Search       where blocks were lost: the summaries, for other slots with the same content
//! ```
//!
//! It begins with a checkpoint, so that all that was written before is in the trees. A step reads one batch: a few pages, or a few
//! dozen blocks. The next one begins when the batch is verified and what failed is repaired, or is not (`mend.rs`). Blocks are read
//! while checkpoints are under way; pages and superblocks only between two of them, since these move the trees. Slots that are
//! being read are not given back to the allocator, and no checkpoint begins while a page or a superblock is written in its place.
//!
//! Where it stands is in each superblock: after a restart it goes on there, or a little before.

use alloc::vec::Vec;

use crate::care::Care;
use crate::care::copies::Copying;
use crate::care::mend::{Damaged, For, Found};
use crate::contract::*;
use crate::engine::Engine;
use crate::format::entry::Slot;
use crate::format::superblock::{Pointer, Root, ScrubRecord, ScrubState, Superblock, TREES, TreeId};
use crate::jobs::throttle::Turn;
use crate::opening::table_name;
use crate::pool::Pool;
use crate::pool::standing::Look;
use crate::pool::standing::Phase;
use crate::space::SlotState;
use crate::store::io::Purpose;
use crate::store::pages::{PageKey, Region};
use crate::store::tree::{Missing, Place, Walk, locate, lookup};

/// Pages and blocks of a batch, at most.
const PAGES_AT_ONCE: usize = 16;
const BLOCKS_AT_ONCE: usize = 32;
/// Places that one step looks at.
const BUDGET: u32 = 64;
/// Its progress becomes durable so often.
const SAVE_PERIOD: Nanos = 60_000_000_000;
/// Where the numbers of trees of volumes, and of cut-off subtrees, begin.
const VOLUMES: u32 = 16;
const DISCARDS: u32 = 1 << 20;

/// What the scrub goes through, as the superblock has it.
const SUPERBLOCKS: u8 = 0;
const PAGES: u8 = 1;
const BLOCKS: u8 = 2;
const SEARCH: u8 = 3;

/// How the last scrub went, or goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ScrubStatus {
    /// Whether one is under way.
    pub state: ScrubState,
    /// When it began, and when it was finished or stopped: seconds of the driver's clock, 0 if that is not known.
    pub started: u64,
    /// See there.
    pub finished: u64,
    /// Blocks of data and of metadata that it has read,
    pub blocks_done: u64,
    /// and all that there are to read.
    pub blocks_total: u64,
    /// Damaged blocks, pages and superblock copies that it has found.
    pub found: u64,
    /// And those of them that it has repaired.
    pub repaired: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Target {
    Page(PageKey, Pointer),
    /// The copy at this place.
    Superblock(usize),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum At {
    First,
    Again,
    Look(Look),
    Write,
    Sync(u64),
    ReadBack,
    Done,
}

/// A page that is verified, or a copy of the superblock.
#[derive(Clone, Copy, Debug)]
struct Item {
    target: Target,
    what: Damaged,
    owner: Option<(VolumeId, u64)>,
    at: At,
    in_flight: bool,
    good: bool,
}

/// The scrub.
pub(crate) struct Scrub {
    pub record: ScrubRecord,
    items: Vec<Item>,
    /// Blocks that are being read, in order.
    blocks: Vec<(Slot, Digest, BufferId)>,
    /// Blocks of the batch that are to be kept twice, and those whose content has come.
    to_copy: Vec<Slot>,
    copies: Vec<(Slot, Digest, BufferId)>,
    /// Reads of blocks in flight, and blocks that are being repaired.
    reads: usize,
    mending: usize,
    /// Where it stands when the batch is done; `None` between batches.
    next: Option<ScrubRecord>,
    /// The batch has to be read again: a checkpoint has changed the trees meanwhile.
    again: bool,
    /// The batch is of a scrub before this one.
    stale: bool,
    /// Checkpoints that were done when the batch began.
    checkpoints: u64,
    /// It begins when so many are.
    begins: u64,
    /// The page that it waits for.
    waiting: Option<PageKey>,
    saved: Nanos,
}

impl Scrub {
    pub(crate) fn new(now: Nanos) -> Scrub {
        Scrub {
            record: ScrubRecord::default(),
            items: Vec::new(),
            blocks: Vec::new(),
            to_copy: Vec::new(),
            copies: Vec::new(),
            reads: 0,
            mending: 0,
            next: None,
            again: false,
            stale: false,
            checkpoints: 0,
            begins: 0,
            waiting: None,
            saved: now,
        }
    }

    /// Whether a slot is being read.
    pub(crate) fn holds(&self, slot: Slot) -> bool {
        self.blocks.binary_search_by_key(&slot, |&(held, ..)| held).is_ok()
    }

    /// Whether a page or a superblock is being written in its place.
    pub(crate) fn writes_metadata(&self) -> bool {
        self.items.iter().any(|item| matches!(item.at, At::Write | At::Sync(_) | At::ReadBack))
    }

    /// I/O in flight.
    pub(crate) fn in_flight(&self) -> usize {
        self.reads + self.items.iter().filter(|item| item.in_flight).count()
    }
}

/// What looking for the next batch came to.
enum Gathered {
    /// A batch, or a part of the way.
    Some,
    /// The phase is done.
    All,
}

impl Pool {
    /// The first tree at or after a number.
    fn tree_from(&self, number: u32) -> Option<(u32, Root, Option<VolumeId>)> {
        if (number as usize) < TREES {
            return Some((number, self.roots[number as usize], None));
        }
        if number < DISCARDS {
            let at = self.volumes.partition_point(|volume| VOLUMES + u32::from(volume.id.0) < number);
            if let Some(volume) = self.volumes.get(at) {
                return Some((VOLUMES + u32::from(volume.id.0), self.maps[at], Some(volume.id)));
            }
        }
        let number = number.max(DISCARDS);
        let discard = self.discards.get((number - DISCARDS) as usize)?;
        Some((number, Root { pointer: discard.pointer, height: discard.level }, None))
    }

    fn item_offset(&self, target: Target) -> u64 {
        match target {
            Target::Page(key, _) => self.store.offset(key),
            Target::Superblock(place) => {
                self.store.geometry.superblock_block(place, self.superblock.epoch) * self.store.geometry.block()
            }
        }
    }

    fn rewrite_page(&mut self, key: PageKey, pointer: Pointer, purpose: Purpose) -> bool {
        let Some(page) = self.store.pages.get(key) else { return false };
        let good =
            crate::format::bytes::checksum(self.store.page_seed, self.store.pages.bytes(page)) == pointer.checksum;
        if !good || !self.store.pages.begin_rewriting(page) {
            return false;
        }
        let (offset, block) = (self.store.offset(key), self.store.geometry.block());
        self.store.io.begin(IoOp::Write, offset, block, [Segment::Page(page)], purpose);
        true
    }
}

impl Engine {
    /// The driver's clock, as far as a command has told it.
    fn wall_clock(&self) -> u64 {
        self.jobs.wall_clock.map_or(0, |(seconds, then)| seconds + (self.pool.now - then) / 1_000_000_000)
    }

    pub(crate) fn scrub_status(&self) -> ScrubStatus {
        let record = &self.jobs.scrub.record;
        let all = self.pool.space.data_used + u64::from(self.pool.store.meta.used()) + 2;
        let under_way = matches!(record.state, ScrubState::Running | ScrubState::Paused);
        ScrubStatus {
            state: record.state,
            started: record.started,
            finished: record.finished,
            blocks_done: record.blocks_done,
            blocks_total: if under_way { all.max(record.blocks_done) } else { record.blocks_done },
            found: record.found.into(),
            repaired: record.repaired.into(),
        }
    }

    /// Carries out a command; it is done when so many checkpoints are.
    pub(crate) fn command_scrub(&mut self, command: ScrubCommand, seconds: u64) -> Result<u64, ControlError> {
        self.jobs.wall_clock = (seconds > 0).then_some((seconds, self.pool.now));
        if self.pool.phase != Phase::Serving {
            return Err(ControlError::ReadOnly);
        }
        let state = self.jobs.scrub.record.state;
        match (command, state) {
            (ScrubCommand::Start, ScrubState::Running) => return Ok(self.pool.checkpoints_done),
            (ScrubCommand::Start, ScrubState::Paused) => self.jobs.scrub.record.state = ScrubState::Running,
            (ScrubCommand::Start, _) => {
                self.jobs.scrub.stale = self.jobs.scrub.next.is_some();
                self.jobs.scrub.record =
                    ScrubRecord { state: ScrubState::Running, started: self.wall_clock(), ..ScrubRecord::default() };
            }
            (ScrubCommand::Pause, ScrubState::Running) => self.jobs.scrub.record.state = ScrubState::Paused,
            (ScrubCommand::Stop, ScrubState::Running | ScrubState::Paused) => {
                self.jobs.scrub.stale = self.jobs.scrub.next.is_some();
                self.jobs.scrub.record.state = ScrubState::Stopped;
                self.jobs.scrub.record.finished = self.wall_clock();
            }
            (ScrubCommand::Pause | ScrubCommand::Stop, _) => return Err(ControlError::NoScrub),
        }
        let durable = if self.pool.may_mend() { self.pool.after_next_checkpoint() } else { self.pool.checkpoints_done };
        if command == ScrubCommand::Start {
            self.jobs.scrub.begins = durable;
        }
        Ok(durable)
    }

    pub(crate) fn scrub_can_step(&self) -> bool {
        let scrub = &self.jobs.scrub;
        let between = self.jobs.checkpoint.is_none() || self.pool.read_only || scrub.record.phase >= BLOCKS;
        scrub.record.state == ScrubState::Running
            && self.pool.phase == Phase::Serving
            && scrub.next.is_none()
            && (self.pool.read_only || self.pool.checkpoints_done >= scrub.begins)
            && (self.jobs.rebuild.is_none() || !self.pool.may_mend())
            && self.starved.is_empty()
            && self.pool.buffers.free() + self.pool.cache.len() > 0
            && between
            && !scrub.waiting.is_some_and(|key| self.pool.store.pages.is_loading(key))
    }

    /// Moves the batch on that is under way.
    pub(crate) fn step_scrub(&mut self) {
        while let Some((whom, found)) = self.care.take_ended() {
            self.scrub_mended(whom, found);
        }
        self.step_items();
        while let Some((slot, digest, buffer)) = self.jobs.scrub.copies.pop() {
            let facts = self.facts();
            self.care.make_copy(&mut self.pool, &facts, slot, digest, buffer);
        }
        self.end_batch();
    }

    /// Begins the next batch, if it is its turn.
    pub(crate) fn begin_scrub(&mut self) {
        if self.scrub_can_step() && self.turn() == Turn::Now {
            self.begin_burst();
            self.begin_batch();
            self.end_batch();
            if self.pool.now >= self.jobs.scrub.saved + SAVE_PERIOD && self.pool.may_mend() {
                self.jobs.scrub.saved = self.pool.now;
                self.pool.want_checkpoint = true;
                self.pool.needs_pump = true;
            }
        }
    }

    // ---- batches ----

    fn begin_batch(&mut self) {
        self.jobs.scrub.waiting = None;
        self.jobs.scrub.again = false;
        self.jobs.scrub.checkpoints = self.pool.checkpoints_done;
        let mut next = self.jobs.scrub.record;
        let gathered = match next.phase {
            // A pool that has just failed has pages that were never written.
            SUPERBLOCKS | PAGES if self.pool.read_only => Gathered::All,
            SUPERBLOCKS => self.gather_superblocks(),
            PAGES => self.gather_pages(&mut next),
            BLOCKS => self.gather_blocks(&mut next),
            _ => self.search(&mut next),
        };
        if let Gathered::All = gathered {
            (next.phase, next.tree, next.level, next.index) = (next.phase + 1, 0, u8::MAX, 0);
        }
        next.blocks_done += (self.jobs.scrub.items.len() + self.jobs.scrub.blocks.len()) as u64;
        self.jobs.scrub.next = Some(next);
        for number in 0..self.jobs.scrub.items.len() {
            self.read_item(number);
        }
        self.read_blocks();
    }

    /// A batch has been verified: the next one begins behind it.
    fn end_batch(&mut self) {
        let scrub = &mut self.jobs.scrub;
        let busy = scrub.reads > 0
            || !scrub.copies.is_empty()
            || scrub.mending > 0
            || scrub.items.iter().any(|item| item.at != At::Done);
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
            record.state = ScrubState::Finished;
            self.jobs.scrub.record.finished = self.wall_clock();
            if self.pool.may_mend() {
                self.pool.want_checkpoint = true;
                self.pool.needs_pump = true;
            }
        }
    }

    /// Lets the scrub wait for a page; false if that has failed already.
    fn await_page(&mut self, missing: Missing) -> bool {
        if self.pool.failed_pages.contains(&missing.key) || !self.pool.store.is_valid(missing.key) {
            return false;
        }
        self.jobs.scrub.waiting = Some(missing.key);
        self.pool.store.load(missing, None);
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
        self.jobs.scrub.items.push(Item { target, what, owner, at: At::First, in_flight: false, good: false });
    }

    fn gather_pages(&mut self, next: &mut ScrubRecord) -> Gathered {
        let fanout = self.pool.store.geometry.fanout();
        for _ in 0..BUDGET {
            if self.jobs.scrub.items.len() == PAGES_AT_ONCE {
                break;
            }
            let Some((tree, root, volume)) = self.pool.tree_from(next.tree) else { return Gathered::All };
            if tree != next.tree {
                (next.tree, next.level, next.index) = (tree, u8::MAX, 0);
            }
            next.level = next.level.min(root.height);
            let region = if tree == TreeId::MetaMap as u32 { Region::MetaMap } else { Region::Metadata };
            match locate(&mut self.pool.store, region, root, next.level, next.index) {
                Place::At(pointer) => {
                    let what = match tree {
                        _ if (tree as usize) < TREES => table_name(TABLES[tree as usize]),
                        _ if volume.is_some() => "the map of a volume",
                        _ => "a map that was discarded",
                    };
                    let span = fanout.saturating_pow(next.level.into());
                    let first =
                        next.index.saturating_mul(span).saturating_mul(self.pool.store.geometry.map_leaf_entries());
                    let key = PageKey { region, location: pointer.location };
                    let owner = volume.map(|id| (id, first));
                    self.push_item(Target::Page(key, pointer), Damaged::Page(what), owner);
                    next.index += 1;
                }
                Place::Absent(level) => {
                    let span = fanout.saturating_pow(u32::from(level - next.level));
                    next.index = (next.index / span).saturating_add(1).saturating_mul(span);
                }
                Place::Missing(missing) => {
                    if self.await_page(missing) {
                        break;
                    }
                    // What it leads to is out of reach. It has been reported itself.
                    next.index = (next.index / fanout + 1) * fanout;
                }
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

    fn read_item(&mut self, number: usize) {
        let item = self.jobs.scrub.items[number];
        if let Target::Page(key, _) = item.target
            && !self.pool.store.is_valid(key)
        {
            return self.end_item(number, Found::Left);
        }
        self.jobs.scrub.items[number].in_flight = true;
        let (offset, block) = (self.pool.item_offset(item.target), self.pool.store.geometry.block());
        self.pool.store.io.begin(IoOp::ReadPages, offset, block, [], Purpose::ScrubItem(number as u32));
    }

    /// An I/O of a page or a superblock is done.
    pub(crate) fn scrub_item_done(&mut self, number: u32, segments: &[Segment], result: Result<Outcome<'_>, IoError>) {
        let item = self.jobs.scrub.items[number as usize];
        let good = match (item.at, item.target, result) {
            (At::Write, target, _) => {
                match (target, segments.first()) {
                    (Target::Page(key, _), Some(&Segment::Page(page))) => self.pool.store.pages.written(key, page),
                    (_, Some(&Segment::Page(page))) => self.pool.store.pages.release(page),
                    _ => {}
                }
                result.is_ok()
            }
            (_, Target::Page(_, pointer), Ok(Outcome::Bytes(bytes))) => {
                bytes.len() as u64 == self.pool.store.geometry.block()
                    && crate::format::bytes::checksum(self.pool.store.page_seed, bytes) == pointer.checksum
            }
            (_, Target::Superblock(_), Ok(Outcome::Bytes(bytes))) => {
                Superblock::decode(bytes) == Ok(self.pool.superblock)
            }
            _ => false,
        };
        let item = &mut self.jobs.scrub.items[number as usize];
        (item.in_flight, item.good) = (false, good);
    }

    fn step_items(&mut self) {
        let moved = self.jobs.checkpoint.is_some() && !self.pool.read_only
            || self.pool.checkpoints_done != self.jobs.scrub.checkpoints;
        for number in 0..self.jobs.scrub.items.len() {
            let item = self.jobs.scrub.items[number];
            if item.in_flight {
                continue;
            }
            match item.at {
                At::Done => {}
                At::First | At::Again if item.good => self.jobs.scrub.items[number].at = At::Done,
                // It may be no part of anything any more.
                At::First | At::Again | At::Look(_) if moved => {
                    self.jobs.scrub.again = true;
                    self.jobs.scrub.items[number].at = At::Done;
                }
                At::First => {
                    self.jobs.scrub.items[number].at = At::Again;
                    self.read_item(number);
                }
                // What fails may be what another has written who has the pool now.
                At::Again => {
                    let look = self.pool.look_at_owner();
                    self.jobs.scrub.items[number].at = At::Look(look);
                    if self.pool.is_ours(look) {
                        self.rewrite_item(number);
                    }
                }
                At::Look(look) if self.pool.is_ours(look) || self.pool.read_only => self.rewrite_item(number),
                At::Look(_) => {}
                At::Write if item.good => {
                    let barrier = self.pool.syncs.submitted + 1;
                    self.pool.syncs.wanted = self.pool.syncs.wanted.max(barrier);
                    self.jobs.scrub.items[number].at = At::Sync(barrier);
                }
                At::Write => self.end_item(number, Found::Left),
                At::Sync(_) if self.pool.read_only => self.end_item(number, Found::Left),
                At::Sync(barrier) if self.pool.syncs.finished < barrier => {}
                At::Sync(_) => {
                    self.jobs.scrub.items[number].at = At::ReadBack;
                    self.read_item(number);
                }
                At::ReadBack => self.end_item(number, if item.good { Found::Repaired } else { Found::Left }),
            }
        }
    }

    /// Writes what is known for certain in its place: the superblock in force, or a page that is in memory.
    fn rewrite_item(&mut self, number: usize) {
        let purpose = Purpose::ScrubItem(number as u32);
        let item = self.jobs.scrub.items[number];
        let begun = self.pool.may_mend()
            && match item.target {
                Target::Superblock(place) => {
                    let superblock = self.pool.superblock;
                    if self.pool.submit_superblock(&superblock, &[place], purpose).is_none() {
                        // No page is free: with the next event.
                        return;
                    }
                    true
                }
                Target::Page(key, pointer) => self.pool.rewrite_page(key, pointer, purpose),
            };
        if begun {
            self.jobs.scrub.items[number].at = At::Write;
            self.jobs.scrub.items[number].in_flight = true;
        } else {
            self.end_item(number, Found::Left);
        }
    }

    fn end_item(&mut self, number: usize, found: Found) {
        let item = &mut self.jobs.scrub.items[number];
        item.at = At::Done;
        let item = *item;
        let repaired = found == Found::Repaired;
        let offset = match item.target {
            Target::Page(key, _) if !self.pool.store.is_valid(key) => 0,
            target => self.pool.item_offset(target),
        };
        self.care.note_found(item.what, offset, item.owner, repaired);
        self.count_scrubbed(1, u32::from(repaired));
    }

    fn count_scrubbed(&mut self, found: u32, repaired: u32) {
        if !self.jobs.scrub.stale {
            let record = &mut self.jobs.scrub.record;
            record.found = record.found.saturating_add(found);
            record.repaired = record.repaired.saturating_add(repaired);
        }
    }

    // ---- blocks ----

    /// The slots of the leaf of summaries that `index` is in, from there on, if all that they need is in memory.
    fn leaf_of_slots(&mut self, next: &mut ScrubRecord) -> Option<core::ops::Range<u64>> {
        let per_leaf = self.pool.store.geometry.summary_leaf_slots();
        let (root, leaf) = (self.pool.roots[TreeId::Summaries as usize], next.index / per_leaf);
        let end = ((leaf + 1) * per_leaf).min(self.pool.store.geometry.slots());
        let missing = match lookup(&mut self.pool.store, Region::Metadata, root, leaf) {
            Walk::Leaf(_) => {
                let ends = [next.index, end - 1];
                ends.into_iter().find_map(|slot| self.pool.slot_state(Slot(slot)).err())
            }
            Walk::Absent(level) => {
                let span = self.pool.store.geometry.fanout().saturating_pow(level.into());
                next.index = (leaf / span).saturating_add(1).saturating_mul(span).saturating_mul(per_leaf);
                return None;
            }
            Walk::Missing(missing) => Some(missing),
        };
        match missing {
            None => return Some(next.index..end),
            Some(missing) if self.await_page(missing) => {}
            // Its page has been reported; what it says of these slots is lost.
            Some(_) => next.index = end,
        }
        None
    }

    fn gather_blocks(&mut self, next: &mut ScrubRecord) -> Gathered {
        let most = BLOCKS_AT_ONCE.min(self.pool.limits.buffers as usize / 8).max(1);
        for _ in 0..BUDGET / 8 {
            if next.index >= self.pool.store.geometry.slots() {
                return Gathered::All;
            }
            let Some(slots) = self.leaf_of_slots(next) else {
                if self.jobs.scrub.waiting.is_some() {
                    break;
                }
                continue;
            };
            for slot in slots.map(Slot) {
                if self.jobs.scrub.blocks.len() == most {
                    return Gathered::Some;
                }
                let proven = self.pool.proven_digest(slot).ok().flatten();
                match self.pool.copying(slot, proven.map(|(digest, _)| digest)) {
                    Ok(Copying::Leave) => {}
                    Ok(Copying::Make) => self.jobs.scrub.to_copy.push(slot),
                    Ok(Copying::Drop) => {
                        let facts = self.facts();
                        Care::drop_copy(&mut self.pool, &facts, slot);
                    }
                    Err(missing) if self.await_page(missing) => return Gathered::Some,
                    Err(_) => {}
                }
                if let Some((digest, _)) = proven
                    && !self.pool.dirty.contains_key(&slot)
                    && !self.pool.in_journal.contains_key(&slot)
                {
                    let Some(buffer) = self.pool.any_buffer() else { return Gathered::Some };
                    self.jobs.scrub.blocks.push((slot, digest, buffer));
                }
                next.index = slot.0 + 1;
            }
        }
        Gathered::Some
    }

    /// Reads the blocks of the batch, consecutive ones together.
    fn read_blocks(&mut self) {
        let block = self.pool.store.geometry.block();
        let mut at = 0;
        while let Some(&(first, ..)) = self.jobs.scrub.blocks.get(at) {
            let follows = |i: usize| {
                let slot = Slot(first.0 + i as u64);
                self.jobs.scrub.blocks.get(at + i).is_some_and(|&(next, ..)| next == slot)
                    && self.pool.space.container_of(slot) == self.pool.space.container_of(first)
            };
            let length = (1..BLOCKS_AT_ONCE).find(|&i| !follows(i)).unwrap_or(BLOCKS_AT_ONCE);
            let offset = self.pool.store.geometry.slot_block(first.0) * block;
            let segments = self.jobs.scrub.blocks[at..at + length].iter().map(|&(.., buffer)| Segment::Buffer(buffer));
            let purpose = Purpose::ScrubBlocks { first };
            self.pool.store.io.begin(IoOp::ReadBlocks, offset, length as u64 * block, segments, purpose);
            self.jobs.scrub.reads += 1;
            at += length;
        }
    }

    /// Blocks of the batch have come.
    pub(crate) fn scrub_blocks_read(
        &mut self,
        first: Slot,
        segments: &[Segment],
        result: Result<Outcome<'_>, IoError>,
    ) {
        self.jobs.scrub.reads -= 1;
        for i in 0..segments.len() {
            let slot = Slot(first.0 + i as u64);
            let at = self.jobs.scrub.blocks.binary_search_by_key(&slot, |&(held, ..)| held);
            let (_, digest, buffer) = self.jobs.scrub.blocks[at.expect("a block of the batch")];
            let good = match result {
                Ok(Outcome::Blocks(contents)) => {
                    contents.get(i).is_some_and(|content| !content.zero && content.digest == digest)
                }
                _ => false,
            };
            if good && self.jobs.scrub.to_copy.contains(&slot) {
                self.jobs.scrub.copies.push((slot, digest, buffer));
            } else if good {
                self.pool.buffers.release(buffer);
            } else {
                self.care.mend_for_scrub(&mut self.pool, slot, buffer, For::Scrub, None);
                self.jobs.scrub.mending += 1;
            }
        }
    }

    /// The repair of a block has come to its end.
    fn scrub_mended(&mut self, whom: For, found: Found) {
        self.jobs.scrub.mending -= 1;
        let repaired = u32::from(found == Found::Repaired);
        let counts = u32::from(whom == For::Scrub && found != Found::Good);
        self.count_scrubbed(counts, repaired);
    }

    /// Looks for other slots with the content of blocks that were lost.
    fn search(&mut self, next: &mut ScrubRecord) -> Gathered {
        for _ in 0..BUDGET / 8 {
            if self.care.damages().lost.is_empty()
                || next.index >= self.pool.store.geometry.slots()
                || !self.pool.may_mend()
            {
                return Gathered::All;
            }
            let Some(slots) = self.leaf_of_slots(next) else {
                if self.jobs.scrub.waiting.is_some() {
                    break;
                }
                continue;
            };
            for slot in slots.map(Slot) {
                next.index = slot.0 + 1;
                if !self.pool.slot_state(slot).is_ok_and(SlotState::is_used) {
                    continue;
                }
                let Ok(Some((digest, _))) = self.pool.proven_digest(slot) else { continue };
                for at in 0..self.care.damages().lost.len() {
                    let (lost, wanted) = self.care.damages().lost[at];
                    if lost == slot || wanted != digest || self.care.mends(lost) {
                        continue;
                    }
                    let Some(buffer) = self.pool.any_buffer() else {
                        next.index = slot.0;
                        return Gathered::Some;
                    };
                    self.care.mend_for_scrub(&mut self.pool, lost, buffer, For::Again, Some(slot));
                    self.jobs.scrub.mending += 1;
                }
            }
            if self.jobs.scrub.mending > 0 {
                break;
            }
        }
        Gathered::Some
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
