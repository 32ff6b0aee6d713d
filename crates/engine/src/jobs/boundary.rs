//! The boundary between the index and the read cache: carries out what `icache/rule.rs` decides, while everything is served.
//!
//! What is divided are the chunks of the index and the payload buffers that are not for what comes in. A move goes step by step,
//! a few chunks at a time, and memory is given up on one side before it is taken on the other:
//!
//! - *the index shrinks*: chunks go, and the number of buffers rises;
//! - *the index grows*: the number of buffers falls. The read cache evicts what it needs least; blocks that it keeps and that
//!   are in buffers that go are copied to others. When the last of these buffers is released, the chunks come.
//!
//! What has grown is filled with the newest of its ghosts, as background work: blocks are read and compared with their
//! digests; for the index the summaries around the ghosts' slots are read.

use alloc::collections::{BTreeMap, VecDeque};

use crate::contract::*;
use crate::engine::Engine;
use crate::format::entry::{Slot, check_bits};
use crate::icache::ghosts::{Ghosts, Key, ReadGhosts, SEGMENTS};
use crate::icache::rule::{Controller, DivisionChange, Hits, LEAST};
use crate::jobs::rebuild::Rebuild;
use crate::jobs::throttle::Turn;
use crate::limits::Limits;
use crate::pool::Pool;
use crate::pool::standing::Phase;
use crate::requests::request::{Decision, Kind};
use crate::settings::{Division, Replacement};
use crate::sharing::index::first_bits;
use crate::sharing::index::{Index, Size};
use crate::sharing::policy::Lookup;
use crate::store::io::Purpose;
use crate::store::pages::PageKey;
use crate::store::tree::Missing;

/// Chunks of the index that one step moves.
const STEP_CHUNKS: u64 = 2;
/// Ghosts that are fetched after a move, at most: blocks, and leaves of summaries.
const FETCHED_BLOCKS: usize = 256;
const FETCHED_LEAVES: usize = 64;
/// Ghosts that are fetched at a time.
const FETCHED_AT_ONCE: usize = 8;

/// Figures of the read cache, and of the index what [`crate::WriteCounts`] does not have. Hits and misses count blocks, since the pool
/// was opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CacheCounts {
    /// Of the hits and misses of the index, those that one of another size would have had, deeper than the one that there is. (An
    /// estimate from a sample.)
    pub index_ghost_hits: u64,
    /// Blocks read that were in memory,
    pub read_hits: u64,
    /// and those that came from the device.
    pub read_misses: u64,
    /// Blocks that a larger read cache would have had.
    pub read_ghost_hits: u64,
    /// Moves of the boundary that were decided.
    pub moves: u64,
    /// Blocks that were copied, because their buffers went.
    pub copied_blocks: u64,
    /// Blocks that were read ahead into a read cache that had grown,
    pub prefetched_blocks: u64,
    /// and entries that were put into an index that had grown.
    pub prefetched_entries: u64,
}

/// The division as it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CacheStatus {
    /// Bytes that index and read cache share.
    pub shared_bytes: u64,
    /// Bytes of the index,
    pub index_bytes: u64,
    /// and the entries that there is room for.
    pub index_entries: u64,
    /// Bytes of the buffers of the read cache (and of reads under way).
    pub read_bytes: u64,
    /// Thousandths of the shared bytes that are to be the index: where the boundary is, or is moving to.
    pub index_share: u32,
    /// Counts.
    pub counts: CacheCounts,
}

/// A block that is copied to another buffer.
struct Copy {
    from: BufferId,
    into: BufferId,
}

/// What the engine knows of the division.
pub(crate) struct Partition {
    /// The setting that `goal` is for.
    setting: Option<CacheSetting>,
    /// Nothing has been aimed at yet.
    is_new: bool,
    /// Chunks of the index that there are to be.
    goal: u64,
    /// Thousandths.
    share: u32,
    controller: Controller,
    index_ghosts: Ghosts,
    read_ghosts: ReadGhosts,
    copies: BTreeMap<Slot, Copy>,
    /// Ghosts that are to be fetched.
    blocks: VecDeque<Slot>,
    leaves: VecDeque<u64>,
    /// The page that fetching waits for.
    waiting: Option<PageKey>,
    /// Blocks on their way: their buffers and digests.
    fetching: BTreeMap<Slot, (BufferId, Digest)>,
    /// Blocks of answers that are being sent, and hold their buffers.
    pub(crate) answering: u32,
    /// A step can be taken at once.
    pub(crate) work_left: bool,
    pub(crate) counts: CacheCounts,
}

impl Partition {
    pub(crate) fn new(limits: &Limits, block: u64) -> Partition {
        Partition {
            setting: None,
            is_new: true,
            goal: 0,
            share: limits.index_share(block),
            controller: Controller::new(),
            index_ghosts: Ghosts::new(limits.index_ghosts(block)),
            read_ghosts: ReadGhosts::new(limits.read_ghosts(block)),
            copies: BTreeMap::new(),
            blocks: VecDeque::new(),
            leaves: VecDeque::new(),
            waiting: None,
            fetching: BTreeMap::new(),
            answering: 0,
            work_left: false,
            counts: CacheCounts::default(),
        }
    }

    /// Bytes of memory.
    pub(crate) fn memory(&self) -> u64 {
        self.index_ghosts.memory() + self.read_ghosts.memory()
    }

    /// Blocks on their way ahead.
    pub(crate) fn fetches_in_flight(&self) -> usize {
        self.fetching.len()
    }

    /// Whether the slot's content is being read ahead.
    pub(crate) fn is_fetching(&self, slot: Slot) -> bool {
        self.fetching.contains_key(&slot)
    }

    /// The slot is free: its content is no ghost of anything any more.
    pub(crate) fn forget(&mut self, slot: Slot) {
        self.read_ghosts.forget(slot);
    }

    /// A block is in its slot, and in the read cache.
    pub(crate) fn note_written(&mut self, slot: Slot) {
        let lru = self.setting.is_some_and(|setting| setting.replacement == Replacement::Lru);
        self.read_ghosts.touch(slot, lru);
    }
}

impl Pool {
    // ---- moving ----

    /// Buffers beside those for what comes in, when the index has so many chunks.
    fn read_buffers_beside(&self, chunks: u64) -> u32 {
        let block = self.store.geometry.block();
        let index = chunks * self.index.chunk_entries() * 16;
        let least = self.limits.least_read_buffers(&self.store.geometry);
        (self.limits.shared_bytes(block).saturating_sub(index) / block).max(u64::from(least)) as u32
    }

    /// Chunks of an index with so many thousandths of what is shared. The buffers that reads need are left.
    fn chunks_of_share(&self, share: u32) -> u64 {
        let block = self.store.geometry.block();
        let shared = self.limits.shared_bytes(block);
        let for_reads = u64::from(self.limits.least_read_buffers(&self.store.geometry)) * block;
        let bytes = (shared * u64::from(share) / 1000).min(shared.saturating_sub(for_reads));
        let chunks = self.index.chunks_for(bytes / 16);
        // The smallest table there is may be too large.
        if chunks * self.index.chunk_entries() * 16 > shared.saturating_sub(for_reads) { 0 } else { chunks }
    }
}

impl Engine {
    /// The division of memory between index and read cache, and what was hit.
    pub fn cache_status(&self) -> CacheStatus {
        let block = self.pool.store.geometry.block();
        CacheStatus {
            shared_bytes: self.pool.limits.shared_bytes(block),
            index_bytes: self.pool.index.memory(),
            index_entries: self.pool.index.capacity(),
            read_bytes: u64::from(self.pool.buffers.count().saturating_sub(self.pool.limits.write_buffers)) * block,
            index_share: self.jobs.partition.share,
            counts: self.jobs.partition.counts,
        }
    }

    /// The last changes of the division, the oldest first.
    pub fn cache_history(&self) -> impl Iterator<Item = DivisionChange> + '_ {
        self.jobs.partition.controller.history.iter().copied()
    }

    // ---- counting ----

    /// Counts what a write found in the index.
    pub(crate) fn note_lookups(&mut self, id: RequestId, policy: Policy) {
        let Engine { pool: Pool { limits, .. }, requests, jobs, .. } = self;
        let partition = &mut jobs.partition;
        let request = requests.get(id);
        if request.kind != Kind::Write {
            return;
        }
        partition.controller.count_request();
        if !policy.looks_up() {
            return;
        }
        for block in &request.blocks {
            let Some(content) = block.content.filter(|content| !content.zero) else { continue };
            let slot = match (block.lookup, block.decision) {
                // Found by what the block maps to, not by the index.
                (Lookup::SamePlace(_), _) => continue,
                (Lookup::Known(slot), _) => Some(Slot(slot)),
                (Lookup::Nothing, Decision::Twin) => continue,
                (Lookup::Nothing, _) => block.entry.slot(),
            };
            let one_in = limits.cache.sampled_one_in;
            let digest = first_bits(content.digest, limits.sharing_digest_bits);
            let Some(key) = slot.and_then(|slot| Key::of_digest(digest, slot, one_in)) else { continue };
            if let Some(segment) = partition.index_ghosts.touch(key) {
                let hits = u64::from(one_in);
                partition.controller.count_hits(Hits::Index, segment, hits);
                if segment as u64 * 1000 >= u64::from(partition.share) * SEGMENTS as u64 {
                    partition.counts.index_ghost_hits += hits;
                }
            }
        }
    }

    /// Counts the blocks of a read.
    pub(crate) fn note_read(&mut self, id: RequestId) {
        let Engine { requests, jobs, .. } = self;
        let partition = &mut jobs.partition;
        partition.controller.count_request();
        let lru = partition.setting.is_some_and(|setting| setting.replacement == Replacement::Lru);
        for block in &requests.get(id).blocks {
            let Some(slot) = block.entry.slot() else { continue };
            // What came ahead would not have come sooner from a larger cache.
            if let Some((list, segment)) = partition.read_ghosts.touch(slot, lru).filter(|_| !block.was_ahead) {
                partition.controller.count_hits(list, segment, 1);
                if segment as u64 * 1000 >= u64::from(1000 - partition.share) * SEGMENTS as u64 {
                    partition.counts.read_ghost_hits += 1;
                }
            }
        }
    }

    /// Limits or setting have changed: where the boundary is to be.
    fn aim(&mut self) {
        let setting = self.cache_setting();
        self.jobs.partition.setting = setting;
        self.jobs.partition.is_new = false;
        let lru = setting.is_some_and(|setting| setting.replacement == Replacement::Lru);
        self.pool.cache.set_lru(lru);
        self.jobs.partition.share = match setting.map(|setting| setting.division) {
            None => self.pool.limits.index_share(self.pool.store.geometry.block()),
            Some(Division::Fixed(percent)) => u32::from(percent) * 10,
            Some(Division::Adaptive(_)) => self.jobs.partition.share.clamp(LEAST, 1000 - LEAST),
        };
        self.jobs.partition.goal = match setting {
            None => self.pool.index.chunks_for(u64::from(self.pool.limits.index_entries)),
            Some(_) => self.pool.chunks_of_share(self.jobs.partition.share),
        };
        self.jobs.partition.controller.note(self.pool.now, self.jobs.partition.share);
    }

    /// New limits are in force: what is too much goes at once, as far as it can; what there is more comes step by step.
    pub(crate) fn divide_anew(&mut self) {
        let block = self.pool.store.geometry.block();
        let (size, slots) = (self.pool.limits.index_size(block), self.pool.store.geometry.slots());
        let tag_bits = self.pool.limits.index_tag_bits;
        let starts_anew = !self.pool.index.can_become(size, slots, tag_bits);
        if starts_anew {
            self.pool.index = Index::new(Size { entries: 0, ..size }, slots, tag_bits);
        }
        if self.jobs.partition.setting.is_none() {
            self.jobs.partition.share = self.pool.limits.index_share(block);
        }
        self.aim();
        let goal = self.jobs.partition.goal;
        if starts_anew || goal < self.pool.index.chunks() || self.jobs.partition.setting.is_none() {
            self.pool.index.resize(goal);
        }
        if starts_anew && !matches!(self.pool.phase, Phase::Recovering | Phase::Dead) {
            self.jobs.rebuild = Some(Rebuild::new(self.pool.store.geometry.summary_leaves()));
        }
        self.jobs.partition.index_ghosts.resize(self.pool.limits.index_ghosts(block));
        self.jobs.partition.read_ghosts.resize(self.pool.limits.read_ghosts(block));
        self.jobs.partition.blocks.clear();
        self.jobs.partition.leaves.clear();
        let reads = self.pool.read_buffers_beside(goal.max(self.pool.index.chunks()));
        self.pool.buffers.set_count(
            self.pool.limits.write_buffers + reads,
            self.pool.limits.write_buffers,
            self.pool.limits.most_buffers(block),
        );
        let most = self.pool.limits.most_cached(block);
        let capacity = self.cache_capacity(reads);
        let Pool { cache, buffers, evicted, .. } = &mut self.pool;
        cache.resize(capacity, most, |buffer| !buffers.is_retired(buffer), evicted);
        self.pool.release_evicted();
        self.pool.evicted.shrink_to(0);
    }

    /// Blocks that the read cache may hold: none if all memory is to be the index. (Reads need buffers all the same.)
    fn cache_capacity(&self, reads: u32) -> usize {
        let none = self.jobs.partition.setting.is_some_and(|setting| setting.division == Division::Fixed(100));
        if none { 0 } else { reads as usize }
    }

    /// Looks at the hits if it is time, and moves the boundary by a step if it is not where it should be.
    pub(crate) fn step_partition(&mut self) {
        self.jobs.partition.work_left = false;
        if self.jobs.partition.is_new || self.cache_setting() != self.jobs.partition.setting {
            let before = self.pool.index.chunks();
            self.aim();
            let reads = self.pool.buffers.count().saturating_sub(self.pool.limits.write_buffers);
            self.set_read_buffers(reads);
            if before == 0 && self.jobs.partition.goal > 0 {
                self.jobs.rebuild = Some(Rebuild::new(self.pool.store.geometry.summary_leaves()));
            }
        }
        self.copy_out_of_retired();
        if self.pool.index.chunks() == self.jobs.partition.goal {
            self.look_at_hits();
        }
        self.step_boundary();
    }

    fn look_at_hits(&mut self) {
        let Some(CacheSetting { division: Division::Adaptive(rule), .. }) = self.jobs.partition.setting else { return };
        if !self.jobs.partition.controller.is_due(&self.pool.limits.cache) {
            return;
        }
        let before = self.jobs.partition.share;
        let share = self.jobs.partition.controller.look(rule, &self.pool.limits.cache, before);
        if share != before {
            self.jobs.partition.share = share;
            self.jobs.partition.goal = self.pool.chunks_of_share(share);
            self.jobs.partition.counts.moves += 1;
            self.jobs.partition.controller.note(self.pool.now, share);
            self.choose_ghosts(before, share);
        }
    }

    fn step_boundary(&mut self) {
        let (goal, chunks) = (self.jobs.partition.goal, self.pool.index.chunks());
        if goal == chunks {
            return;
        }
        if goal < chunks {
            let near = goal.max(chunks.saturating_sub(STEP_CHUNKS));
            while self.pool.index.chunks() > near {
                self.pool.index.step(near);
            }
            self.pool.index.fit();
        }
        // From none the smallest table comes at once.
        let near = if chunks == 0 { goal } else { goal.min(chunks + STEP_CHUNKS) };
        let chunks = self.pool.index.chunks();
        let reads = self.pool.read_buffers_beside(near.max(chunks));
        if self.pool.buffers.count() != self.pool.limits.write_buffers + reads {
            if !self.can_have(reads) {
                return;
            }
            self.set_read_buffers(reads);
        }
        if near > chunks {
            let room = self.pool.limits.write_buffers + self.pool.read_buffers_beside(near);
            if self.pool.buffers.numbers() > room {
                // The step after this one comes when these have been released.
                return;
            }
            self.pool.index.reserve(near);
            while self.pool.index.chunks() < near {
                self.pool.index.step(near);
            }
        }
        self.jobs.partition.work_left = self.pool.index.chunks() != goal;
    }

    /// Whether so many buffers beside those for what comes in leave enough that no answer under way holds: a client that is slow
    /// to take its answers must not leave the others without.
    fn can_have(&self, reads: u32) -> bool {
        let fewer = (self.pool.buffers.count() - self.pool.limits.write_buffers).saturating_sub(reads);
        let incoming = self.pool.limits.write_buffers.saturating_sub(self.pool.buffers.incoming());
        let least = self.pool.limits.least_read_buffers(&self.pool.store.geometry);
        fewer == 0 || {
            let needed = fewer + incoming + least / 2 + self.jobs.partition.answering;
            self.pool.buffers.free() + self.pool.cache.len() >= needed as usize
        }
    }

    /// There are to be so many buffers beside those for what comes in.
    fn set_read_buffers(&mut self, reads: u32) {
        let write_buffers = self.pool.limits.write_buffers;
        let most = self.pool.limits.most_buffers(self.pool.store.geometry.block());
        self.pool.buffers.set_count(write_buffers + reads, write_buffers, most);
        let capacity = self.cache_capacity(reads);
        self.pool.cache.set_capacity(capacity, &mut self.pool.evicted);
        self.pool.release_evicted();
        self.copy_out_of_retired();
    }

    /// What the read cache keeps in buffers that go, moves to others.
    fn copy_out_of_retired(&mut self) {
        for number in self.pool.buffers.count()..self.pool.buffers.numbers() {
            let from = BufferId(number);
            let Some(slot) = self.pool.cache.in_buffer(from) else { continue };
            if self.jobs.partition.copies.contains_key(&slot) {
                continue;
            }
            let Some(into) = self.pool.buffers.take() else {
                self.pool.cache.remove(slot);
                self.pool.buffers.release(from);
                continue;
            };
            self.pool.buffers.hold(from);
            self.jobs.partition.copies.insert(slot, Copy { from, into });
            // Nothing of the new buffer is kept.
            let op = IoOp::Merge { from: 0, to: 0, zero: false };
            self.pool.store.io.begin(op, 0, 0, [into, from].map(Segment::Buffer), Purpose::CopyBlock(slot));
        }
    }

    /// A block has been copied: the cache has it there from now on, if it still has it at all.
    pub(crate) fn copied(&mut self, slot: Slot, result: Result<Outcome<'_>, IoError>) {
        let Copy { from, into } = self.jobs.partition.copies.remove(&slot).expect("a copy ends once");
        let check = self.pool.buffers.check(from);
        let good =
            matches!(result, Ok(Outcome::Blocks(&[content])) if !content.zero && check_bits(content.digest) == check);
        self.pool.buffers.release(from);
        if self.pool.cache.peek(slot) != Some(from) {
            return self.pool.buffers.release(into);
        }
        self.pool.buffers.release(from);
        if good {
            self.pool.buffers.set_check(into, check);
            self.pool.cache.set_buffer(slot, into);
            self.jobs.partition.counts.copied_blocks += 1;
        } else {
            self.pool.cache.remove(slot);
            self.pool.buffers.release(into);
        }
    }

    // ---- ghosts ----

    /// Chooses the ghosts that are to come into what grows, the newest first.
    fn choose_ghosts(&mut self, before: u32, share: u32) {
        let segment = |share: u32| (share as usize * SEGMENTS).div_ceil(1000).min(SEGMENTS);
        let Engine { pool: Pool { store, .. }, jobs, .. } = self;
        let partition = &mut jobs.partition;
        partition.blocks.clear();
        partition.leaves.clear();
        if share < before {
            let (from, to) = ((1000 - before) as usize * SEGMENTS / 1000, segment(1000 - share));
            partition.blocks.extend(partition.read_ghosts.slots(from..to).take(FETCHED_BLOCKS));
        } else {
            let per_leaf = store.geometry.summary_leaf_slots();
            let from = before as usize * SEGMENTS / 1000;
            for slot in partition.index_ghosts.slots(from..segment(share)).take(4 * FETCHED_LEAVES) {
                let leaf = slot.0 / per_leaf;
                if !partition.leaves.contains(&leaf) && partition.leaves.len() < FETCHED_LEAVES {
                    partition.leaves.push_back(leaf);
                }
            }
        }
    }

    /// Whether ghosts can be fetched, when their turn comes.
    pub(crate) fn fetch_can_step(&self) -> bool {
        let has_ghosts = !(self.jobs.partition.blocks.is_empty() && self.jobs.partition.leaves.is_empty());
        let waits = self.jobs.partition.waiting.is_some_and(|key| self.pool.store.pages.is_loading(key));
        has_ghosts
            && self.pool.phase == Phase::Serving
            && !waits
            && self.pool.index.chunks() == self.jobs.partition.goal
            && self.jobs.partition.fetching.len() < FETCHED_AT_ONCE
            && self.jobs.checkpoint.is_none()
            && self.jobs.rebuild.is_none()
    }

    /// Fetches some ghosts, if it is a time for background work.
    pub(crate) fn step_fetch(&mut self) {
        if !self.fetch_can_step() || self.turn() != Turn::Now {
            return;
        }
        self.begin_burst();
        self.jobs.partition.waiting = None;
        for _ in 0..FETCHED_AT_ONCE - self.jobs.partition.fetching.len() {
            let missing = if let Some(slot) = self.jobs.partition.blocks.pop_front() {
                self.fetch_block(slot).err().inspect(|_| self.jobs.partition.blocks.push_front(slot))
            } else if let Some(leaf) = self.jobs.partition.leaves.pop_front() {
                let noted = self.pool.note_summaries(leaf);
                self.jobs.partition.counts.prefetched_entries += noted.unwrap_or(0);
                noted.err().inspect(|_| self.jobs.partition.leaves.push_front(leaf))
            } else {
                None
            };
            let Some(missing) = missing else { continue };
            if self.pool.failed_pages.contains(&missing.key) {
                // Whatever needs this page is left.
                let _ = self.jobs.partition.blocks.pop_front().is_some()
                    || self.jobs.partition.leaves.pop_front().is_some();
                continue;
            }
            self.jobs.partition.waiting = Some(missing.key);
            return self.pool.store.load(missing, None);
        }
    }

    /// Reads a block ahead, if it is not in memory and a buffer is free; fails if its digest is not at hand.
    fn fetch_block(&mut self, slot: Slot) -> Result<(), Missing> {
        let is_here =
            self.pool.in_memory(slot).is_some() || self.pool.fills.contains_key(&slot) || self.care.mends(slot);
        if is_here || self.jobs.partition.is_fetching(slot) || !self.pool.space.contains(slot) {
            return Ok(());
        }
        let Some((digest, _)) = self.pool.proven_digest(slot)? else { return Ok(()) };
        if self.care.is_lost(slot, digest) {
            return Ok(());
        }
        let Some(buffer) = self.pool.buffers.take() else {
            self.jobs.partition.blocks.clear();
            return Ok(());
        };
        self.jobs.partition.fetching.insert(slot, (buffer, digest));
        let (offset, block) = (self.pool.slot_offset(slot), self.pool.store.geometry.block());
        self.pool.store.io.begin(IoOp::ReadBlocks, offset, block, [Segment::Buffer(buffer)], Purpose::Fetch(slot));
        Ok(())
    }

    /// A block has been read ahead.
    pub(crate) fn fetched(&mut self, slot: Slot, result: Result<Outcome<'_>, IoError>) {
        let (buffer, digest) = self.jobs.partition.fetching.remove(&slot).expect("a fetch ends once");
        let good = matches!(result, Ok(Outcome::Blocks(&[content])) if !content.zero && content.digest == digest);
        // What fails is not reported: whoever needs it will read it again.
        if !good || self.pool.in_memory(slot).is_some() {
            return self.pool.buffers.release(buffer);
        }
        self.pool.buffers.set_check(buffer, check_bits(digest));
        self.jobs.partition.counts.prefetched_blocks += 1;
        self.pool.keep_cached(slot, buffer);
        self.pool.release_evicted();
    }
}
