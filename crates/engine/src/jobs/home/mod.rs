//! Regions come home: what readers found scattered is put in order again, by moving it.
//!
//! ```text
//! Note      regions that are read in order, and what is written there since: pool/regions.rs
//! Gather    when the pool is idle: where its blocks lie, what they must hold to the bit, where they go (plan.rs); their places are claimed
//! Read      their content, and its proof: all bits of the digest
//! Write     to the places
//! Sync      until a sync covers the writes
//! Remap     block by block, only while each leads to what was read; the old slot is then free like that of any overwritten block
//! ```
//!
//! It owns the batch under way, and the slots and buffers of that batch. What must hold:
//!
//! - A block leads to its new slot only after that is durable. So no flush of a client ever waits for a move, and recovery finds in
//!   the slot what the record says.
//! - A write that came meanwhile wins: the mapping is compared and changed in one step.
//! - A source is not reused while it is being read ([`Home::holds`]). A claimed slot is in nobody's map until the remap: a crash leaves it
//!   free, and what is not used after all is retired.
//! - Nothing is moved that nobody has read in order, and never more than the allowance ([`Tidy`]).
//!
//! One batch at a time, so recovery never has more than that many blocks of moves to verify between two syncs.

pub(crate) mod plan;

use alloc::vec::Vec;

use crate::canary::Canary;
use crate::care::Care;
use crate::contract::*;
use crate::format::entry::{Entry, Key, Slot, check_bits};
use crate::jobs::{Job, Steps, Work};
use crate::pool::Pool;
use crate::pool::room::{Asked, Room};
use crate::pool::standing::Facts;
use crate::space::SlotState;
use crate::store::pages::PageKey;
use crate::store::tree::{LastLeaf, Missing, Unresolved};
use plan::{Lies, Plan};

/// Blocks that are moved at a time.
const AT_ONCE: usize = 256;
/// Mappings that are changed at a time.
const REMAPS_AT_ONCE: usize = 64;
/// Pages that are asked for at a time.
const LOADS: usize = 64;
/// Times that a region is looked at without being moved before it is given up.
const TRIES: u8 = 32;
/// A pool that is put in order by itself moves so many blocks for two that are written.
const MOVED_FOR_TWO: u64 = 3;
const DAY: Nanos = 86_400_000_000_000;

/// What is known of regions that come home.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct HomeStatus {
    /// What has been set.
    pub tidy: Tidy,
    /// Regions that readers found scattered and that have not been looked at, and the one that is being moved.
    pub noted_regions: u64,
    /// Since the pool was opened: regions that were put in order,
    pub regions: u64,
    /// and those that were not: there was no place for them, or they could not be read.
    pub given_up_regions: u64,
    /// Blocks moved since then.
    pub moved_blocks: u64,
    /// Blocks that may be moved now.
    pub allowance_blocks: u64,
}

/// A block that is being moved.
#[derive(Clone, Copy)]
struct Moved {
    key: Key,
    /// What it leads to.
    seen: Entry,
    from: Slot,
    digest: Digest,
    to: Slot,
    buffer: Option<BufferId>,
}

/// How far a batch has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum At {
    Read,
    Write,
    /// Until so many syncs have finished.
    Sync(u64),
    /// From this block on.
    Remap(usize),
}

/// A batch under way.
struct Batch {
    blocks: Vec<Moved>,
    /// The slots that they are read from, in order.
    sources: Vec<Slot>,
    at: At,
    in_flight: usize,
    /// Something came between: what it holds is given back when its I/O is done.
    is_over: bool,
}

/// What it takes to put regions in order. See above.
pub(crate) struct Home {
    batch: Option<Batch>,
    /// The last of the pages that a region waits for.
    waits_for: Option<PageKey>,
    /// What was freed before this idle time is free by now.
    has_settled: bool,
    /// The job waits for something that moves the engine on when it comes.
    is_stuck: bool,
    /// Blocks of data when the pool was opened: they may be put in order once.
    at_open: Option<u64>,
    moved: u64,
    /// Blocks moved on this day.
    moved_on: (u64, u64),
    done: u64,
    given_up: u64,
}

/// Why a region is not put in order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stop {
    /// Not now: pages are being loaded, or a container is being reserved.
    Waits,
    /// There is no place for it, or it cannot be read.
    GivenUp,
}

impl Home {
    pub(crate) fn new() -> Home {
        Home {
            batch: None,
            waits_for: None,
            has_settled: false,
            is_stuck: false,
            at_open: None,
            moved: 0,
            moved_on: (0, 0),
            done: 0,
            given_up: 0,
        }
    }

    /// Blocks that may be moved now.
    fn allowance(&self, pool: &Pool) -> u64 {
        match pool.regions().tidy() {
            Tidy::Off => 0,
            Tidy::Auto => {
                let written = pool.writes.written_blocks / 2 * MOVED_FOR_TWO;
                (self.at_open.unwrap_or(pool.space.data_used) + written).saturating_sub(self.moved)
            }
            Tidy::PerDay(bytes) => {
                let (day, moved) = self.moved_on;
                let moved = if day == pool.now / DAY { moved } else { 0 };
                (bytes / pool.store.geometry.block()).saturating_sub(moved)
            }
        }
    }

    fn count_moved(&mut self, now: Nanos) {
        self.moved += 1;
        if self.moved_on.0 != now / DAY {
            self.moved_on = (now / DAY, 0);
        }
        self.moved_on.1 += 1;
    }
}

impl Home {
    /// What is known of regions that come home.
    pub(crate) fn status(&self, pool: &Pool) -> HomeStatus {
        HomeStatus {
            tidy: pool.regions().tidy(),
            noted_regions: pool.regions().scattered() as u64 + u64::from(self.batch.is_some()),
            regions: self.done,
            given_up_regions: self.given_up,
            moved_blocks: self.moved,
            allowance_blocks: self.allowance(pool),
        }
    }
}

impl Steps for Home {
    fn is_under_way(&self) -> bool {
        self.batch.is_some()
    }

    #[inline]
    fn can_step(&self, pool: &Pool, _: &Facts) -> bool {
        pool.regions().scattered() > 0 && self.batch.is_none() && pool.takes_changes() && self.allowance(pool) > 0
    }

    /// Without a batch it says once that it is stuck, and once that idle time is over.
    #[inline]
    fn can_advance(&self) -> bool {
        self.batch.is_some() || !self.is_stuck || self.has_settled
    }

    /// A batch comes to its end even if the pool is no longer idle.
    fn advance(&mut self, work: &mut Work<'_>) {
        // With the first pump of a pool that serves.
        self.at_open.get_or_insert(work.pool.space.data_used);
        if self.batch.is_some() {
            self.go_on(work.pool, &work.facts);
        } else {
            self.is_stuck = true;
            self.has_settled &= work.facts.is_idle;
        }
    }

    fn step(&mut self, work: &mut Work<'_>) {
        let Work { pool, care, facts } = work;
        if !pool.may_be_reordered() || !pool.has_slots_to_move() {
            return pool.regions_mut().clear();
        }
        if facts.writes_wait || facts.are_starved {
            return;
        }
        if self.waits_for.is_some_and(|page| pool.store.pages.is_loading(page)) {
            return;
        }
        // The places at home are those that were freed last.
        self.has_settled |= pool.delta.is_empty() && pool.space.pending().is_empty();
        if !self.has_settled {
            return;
        }
        while let Some((first, noted)) = pool.regions().next() {
            // However often its batches come to nothing, that ends.
            let begun =
                if noted.tries < TRIES { self.begin_region(pool, care, first, noted.home) } else { Err(Stop::GivenUp) };
            match begun {
                Ok(true) => return self.go_on(pool, facts),
                Ok(false) => {
                    self.done += 1;
                    pool.regions_mut().in_order(first);
                }
                Err(Stop::Waits) => return pool.regions_mut().tried(first),
                Err(Stop::GivenUp) => {
                    self.given_up += 1;
                    pool.regions_mut().in_order(first);
                }
            }
        }
        self.is_stuck = false;
    }

    fn is_stuck(&self, _: &Pool) -> bool {
        self.is_stuck
    }

    fn done(&mut self, work: &mut Work<'_>, part: u32, segments: &[Segment], result: Result<Outcome<'_>, IoError>) {
        let batch = self.batch.as_mut().expect("a batch stays until its I/O is done");
        batch.in_flight -= 1;
        let good = match (batch.at, result) {
            (At::Read, Ok(Outcome::Blocks(contents))) => {
                let blocks = batch.blocks[part as usize..].iter().take(segments.len());
                let is_right =
                    |(content, block): (&BlockContent, &Moved)| !content.zero && content.digest == block.digest;
                contents.len() == segments.len() && contents.iter().zip(blocks).all(is_right)
            }
            (At::Read, _) => false,
            // Who finds a place that cannot be written is whoever needs it: what is moved stays where it is.
            (_, result) => result.is_ok(),
        };
        // What is wrong with a source a read or a scrub will find.
        batch.is_over |= !good;
        work.pool.needs_pump = true;
    }

    fn holds(&self, slot: Slot) -> bool {
        self.batch.as_ref().is_some_and(|batch| batch.sources.binary_search(&slot).is_ok())
    }
}

impl Home {
    // ---- gathering ----

    /// Looks at a region and begins to move what is to be moved; false if it is in order.
    fn begin_region(&mut self, pool: &mut Pool, care: &Care, first: Key, home: Option<i64>) -> Result<bool, Stop> {
        let region = self.look_at(pool, care, first)?;
        let container = pool.store.geometry.slots_per_container.into();
        let lies: Vec<Lies> = region.iter().map(|&(lies, _)| lies).collect();
        let home = match home {
            Some(home) => home,
            None => match plan::plan(&lies, container) {
                Plan::Leave => return Ok(false),
                Plan::Return(home) => home,
                Plan::Move => {
                    let Some(empty) = pool.space.empty_container() else {
                        return Err(if pool.ask_for_fresh() { Stop::Waits } else { Stop::GivenUp });
                    };
                    pool.space.slots_of(empty).start as i64
                }
            },
        };
        let most = AT_ONCE.min(pool.limits.buffers as usize / 8).min(self.allowance(pool) as usize);
        let (mut blocks, mut more) = (Vec::new(), false);
        let mut missing = Missings::default();
        for (lies, to) in plan::displaced(&lies, home) {
            if blocks.len() >= most {
                more = true;
                break;
            }
            let open = pool.canary(Canary::MoveIntoOpen) && pool.space.contains(to);
            if !(pool.space.may_claim(to) || open && !pool.space.is_taken(to)) {
                continue;
            }
            let Some(is_free) = missing.or(pool.slot_state(to)) else { continue };
            let Some(proven) = missing.or(pool.proven_digest(lies.slot)) else { continue };
            let at = region.partition_point(|(other, _)| other.place < lies.place);
            let seen = region[at].1;
            if let Some((digest, _)) = proven
                && is_free == SlotState::Free
                && check_bits(digest) == seen.check()
            {
                let key = Key::new(first.volume(), first.lba() + lies.place);
                blocks.push(Moved { key, seen, from: lies.slot, digest, to, buffer: None });
            }
        }
        self.load(pool, missing)?;
        if blocks.is_empty() {
            return Err(Stop::GivenUp);
        }
        let moved = blocks.len();
        if !self.begin_move(pool, blocks) {
            return Err(Stop::GivenUp);
        }
        pool.regions_mut().goes_home(first, home, moved);
        if !more {
            self.done += 1;
            pool.regions_mut().in_order(first);
        }
        Ok(true)
    }

    /// The blocks of a region that have slots, and what leads there.
    fn look_at(&mut self, pool: &mut Pool, care: &Care, first: Key) -> Result<Vec<(Lies, Entry)>, Stop> {
        let volume = pool.volume_index(first.volume()).ok_or(Stop::GivenUp)?;
        let end = pool.volumes[volume].size.div_ceil(pool.store.geometry.block());
        let blocks = pool.regions().blocks().min(end.saturating_sub(first.lba()));
        let mut region = Vec::with_capacity(blocks as usize);
        let (mut leaf, mut missing) = (LastLeaf::default(), Missings::default());
        for place in 0..blocks {
            let entry = match pool.resolve_after(volume, Key(first.0 + place), &mut leaf) {
                Ok(entry) => entry,
                Err(Unresolved::Damaged) => return Err(Stop::GivenUp),
                Err(Unresolved::Missing(page)) => {
                    missing.add(page);
                    continue;
                }
            };
            let Some(slot) = entry.slot() else { continue };
            let is_moving = pool.dirty.contains_key(&slot)
                || pool.in_journal.contains_key(&slot)
                || pool.fills.contains_key(&slot)
                || care.mends(slot);
            let is_alone = match pool.recent(slot) {
                _ if is_moving || pool.replicas.of(slot).is_some() => false,
                Some(recent) => recent.fresh && recent.refs == 1,
                None => missing.or(pool.slot_state(slot)) == Some(SlotState::Single),
            };
            region.push((Lies { place, slot, is_alone }, entry));
        }
        self.load(pool, missing)?;
        Ok(region)
    }

    /// Asks for pages that are missing, if there are any.
    fn load(&mut self, pool: &mut Pool, missing: Missings) -> Result<(), Stop> {
        for page in &missing.pages {
            if pool.failed_pages.contains(&page.key) {
                return Err(Stop::GivenUp);
            }
            pool.store.load(*page, None);
        }
        self.waits_for = missing.pages.last().map(|page| page.key);
        if missing.pages.is_empty() { Ok(()) } else { Err(Stop::Waits) }
    }

    // ---- the batch ----

    /// Claims the places of a batch and begins to read it; false if there are not enough buffers.
    fn begin_move(&mut self, pool: &mut Pool, mut blocks: Vec<Moved>) -> bool {
        for at in 0..blocks.len() {
            // A buffer of the read cache belongs to its slot: what is moved has one of its own.
            blocks[at].buffer = pool.any_buffer();
            if blocks[at].buffer.is_none() {
                blocks.iter().filter_map(|block| block.buffer).for_each(|buffer| pool.buffers.release(buffer));
                return false;
            }
        }
        let mut places: Vec<Slot> = blocks.iter().map(|block| block.to).collect();
        places.sort_unstable();
        let space = &mut pool.space;
        let per_container = space.slots_of(0).end;
        for places in places.chunk_by(|one, next| one.0 / per_container == next.0 / per_container) {
            space.claim(places).expect("each of them may be claimed");
        }
        pool.forget_wrapped();
        blocks.sort_unstable_by_key(|block| block.from);
        let sources = blocks.iter().map(|block| block.from).collect();
        let mut batch = Batch { blocks, sources, at: At::Read, in_flight: 0, is_over: false };
        let mut at = 0;
        while at < batch.blocks.len() {
            let rest = &batch.blocks[at..];
            let mut length = 1;
            while rest.get(length).is_some_and(|block| pool.continues(rest[0].from, length, block.from)) {
                length += 1;
            }
            pool.home_io(IoOp::ReadBlocks, pool.slot_offset(rest[0].from), &rest[..length], at);
            batch.in_flight += 1;
            at += length;
        }
        self.batch = Some(batch);
        true
    }

    /// Moves the batch on.
    fn go_on(&mut self, pool: &mut Pool, facts: &Facts) {
        let goes_on = pool.may_be_reordered() && !facts.writes_wait && !facts.are_starved;
        let Some(batch) = &mut self.batch else { return };
        batch.is_over |= !goes_on;
        if batch.in_flight > 0 {
            return;
        }
        if batch.is_over {
            return self.end_move(pool, 0);
        }
        match batch.at {
            At::Read => self.write_moved(pool),
            At::Write => {
                // It covers what is complete when it is submitted.
                let barrier = if pool.canary(Canary::UnsyncedMove) { 0 } else { pool.syncs.submitted + 1 };
                pool.syncs.wanted = pool.syncs.wanted.max(barrier);
                batch.at = At::Sync(barrier);
                pool.needs_pump = true;
            }
            At::Sync(barrier) => {
                if pool.syncs.finished >= barrier {
                    batch.at = At::Remap(0);
                    self.remap_moved(pool, facts, 0);
                }
            }
            At::Remap(from) => self.remap_moved(pool, facts, from),
        }
    }

    fn write_moved(&mut self, pool: &mut Pool) {
        let Some(batch) = &mut self.batch else { return };
        batch.at = At::Write;
        batch.blocks.sort_unstable_by_key(|block| block.to);
        let (block, geometry) = (pool.store.geometry.block(), pool.store.geometry);
        let mut rest = &batch.blocks[..];
        while let Some(first) = rest.first() {
            let follows = |pair: &&[Moved]| {
                pair[1].to.0 == pair[0].to.0 + 1
                    && geometry.slot_block(pair[1].to.0) == geometry.slot_block(pair[0].to.0) + 1
                    && pool.space.container_of(pair[0].to) == pool.space.container_of(pair[1].to)
            };
            let length = 1 + rest.windows(2).take_while(follows).count();
            pool.home_io(IoOp::Write, geometry.slot_block(first.to.0) * block, &rest[..length], 0);
            batch.in_flight += 1;
            rest = &rest[length..];
        }
    }

    /// Lets blocks lead to their new slots, from this one on.
    fn remap_moved(&mut self, pool: &mut Pool, facts: &Facts, from: usize) {
        let Some(mut batch) = self.batch.take() else { return };
        let end = batch.blocks.len().min(from + REMAPS_AT_ONCE);
        let room = pool.room_for(&Asked::scattered(end - from), facts.clears_left);
        let mut at = from;
        let mut is_over = room == Room::Never;
        while room == Room::Enough && at < end {
            let Moved { key, seen, digest, to, .. } = batch.blocks[at];
            match pool.relocate(key, seen, digest, to) {
                Ok(true) => self.count_moved(pool.now),
                Ok(false) => pool.space.retire(to, 0),
                Err(missing) if pool.failed_pages.contains(&missing.key) => {
                    is_over = true;
                    break;
                }
                Err(missing) => {
                    pool.store.load(missing, None);
                    break;
                }
            }
            at += 1;
        }
        is_over |= at == batch.blocks.len();
        pool.needs_pump |= at == end;
        batch.at = At::Remap(at);
        self.batch = Some(batch);
        if is_over {
            self.end_move(pool, at);
        }
    }

    /// Gives back what the batch holds, and the places of its blocks from this one on.
    fn end_move(&mut self, pool: &mut Pool, from: usize) {
        let Some(batch) = self.batch.take() else { return };
        let from = if let At::Remap(at) = batch.at { at.max(from) } else { from };
        for (at, block) in batch.blocks.iter().enumerate() {
            if let Some(buffer) = block.buffer {
                pool.buffers.release(buffer);
            }
            if at >= from {
                pool.space.retire(block.to, 0);
            }
        }
        pool.needs_pump = true;
    }
}

impl Pool {
    /// Whether nobody misses the slots that a batch takes until the old ones are free.
    fn has_slots_to_move(&self) -> bool {
        let geometry = &self.store.geometry;
        self.space.free() >= (geometry.spare_slots() / 2 + AT_ONCE as u64).min(geometry.slots() / 8)
    }

    /// Reads blocks from their old slots, or writes them to their new ones.
    fn home_io(&mut self, op: IoOp, offset: u64, blocks: &[Moved], first: usize) {
        let bytes = blocks.len() as u64 * self.store.geometry.block();
        let segments = blocks.iter().filter_map(|block| block.buffer).map(Segment::Buffer);
        self.store.io.begin(op, offset, bytes, segments, Job::Home.io(first));
    }
}

/// Pages that are not in memory: all that a step finds are asked for together.
#[derive(Default)]
struct Missings {
    pages: Vec<Missing>,
}

impl Missings {
    fn add(&mut self, missing: Missing) {
        if self.pages.len() < LOADS && !self.pages.contains(&missing) {
            self.pages.push(missing);
        }
    }

    /// What was found, or nothing and a page more.
    fn or<T>(&mut self, found: Result<T, Missing>) -> Option<T> {
        found.map_err(|missing| self.add(missing)).ok()
    }
}
