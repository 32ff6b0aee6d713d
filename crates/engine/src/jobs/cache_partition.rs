//! The cache partition between the dedup index and the read cache (POD, iCache): carries out the decisions of `icache/rule.rs`, while requests are
//! served.
//!
//! It divides the chunks of the index and the payload buffers other than those for incoming data. A move proceeds in steps of a few chunks. Memory is
//! given up on one side before it is taken on the other:
//!
//! - *the index shrinks*: chunks are freed, and the number of buffers rises;
//! - *the index grows*: the number of buffers falls. The read cache evicts the blocks that it needs least. Kept blocks in buffers that go are copied
//!   to other buffers. When the last of these buffers is released, the chunks are added.
//!
//! The side that has grown is filled with its newest ghosts (`cache_warmup.rs`).

use alloc::collections::BTreeMap;

use super::Jobs;
use super::cache_warmup::CacheWarmup;
use super::index_rebuild::IndexRebuild;
use crate::api::*;
use crate::counters::ContentCounts;
use crate::dedup::index::first_bits;
use crate::dedup::index::{Index, Size};
use crate::dedup::policy::Lookup;
use crate::format::entry::{Slot, check_bits};
use crate::icache::ghosts::{GhostKey, Ghosts, ReadGhosts, SEGMENTS};
use crate::icache::rule::{Hits, LEAST, PartitionChange, PartitionController};
use crate::limits::Limits;
use crate::metadata::io::Purpose;
use crate::pool::Pool;
use crate::pool::state::Phase;
use crate::properties::{PartitionMode, Replacement, Rule};
use crate::requests::request::{Decision, Kind, Request};

/// Chunks of the index that one step moves.
const STEP_CHUNKS: u64 = 2;

/// Counts of the read cache, and those of the index that [`crate::WriteCounts`] lacks. Hits and misses count blocks, since the pool was opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CacheCounts {
    /// Index lookups, hits and misses alike, that an index of another size would hit, deeper than the current one reaches. (An estimate from a
    /// sample.)
    pub index_ghost_hits: u64,
    /// Blocks read that were in memory.
    pub read_hits: u64,
    /// Blocks read that came from the device.
    pub read_misses: u64,
    /// Blocks read that a larger read cache would have had in memory.
    pub read_ghost_hits: u64,
    /// Moves of the partition that were decided.
    pub moves: u64,
    /// Blocks that were copied because their buffers were given up.
    pub copied_blocks: u64,
    /// Blocks that were prefetched into a read cache that had grown.
    pub prefetched_blocks: u64,
    /// Entries that a grown index took from the summaries: of each leaf with one of its ghosts, those that it lacked.
    pub prefetched_entries: u64,
}

/// Current division of memory between index and read cache, with the counts of both since the pool was opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CacheStatus {
    /// Bytes that index and read cache share.
    pub shared_bytes: u64,
    /// Bytes of the index.
    pub index_bytes: u64,
    /// Number of entries that the index has space for.
    pub index_entries: u64,
    /// Bytes of the buffers of the read cache (and of reads in flight).
    pub read_bytes: u64,
    /// Thousandths of the shared bytes for the index: the current partition, or the target of a move in progress.
    pub index_share: u32,
    /// Counts of hits, misses and moves since the pool was opened.
    pub counts: CacheCounts,
    /// Counts of blocks that are found by content.
    pub contents: ContentCounts,
}

/// A block that is copied to another buffer.
struct BufferCopy {
    from: BufferId,
    into: BufferId,
}

/// State of the cache partition between index and read cache.
pub(crate) struct CachePartition {
    /// Setting for which `goal` was computed.
    setting: Option<CacheSetting>,
    /// Key by which the read cache finds blocks; its size depends on it.
    key: CacheKey,
    /// Largest number of popular blocks that get copies, and number of buckets of the index on disk, as of the last count of the buffers: memory is set aside
    /// for them.
    set_aside_for: (u64, u32),
    /// True until the first target has been set.
    is_new: bool,
    /// Target number of chunks of the index.
    goal: u64,
    /// Share of the index in thousandths.
    share: u32,
    controller: PartitionController,
    index_ghosts: Ghosts,
    read_ghosts: ReadGhosts,
    copies: BTreeMap<Slot, BufferCopy>,
    /// Blocks of answers that are being sent; they hold their buffers.
    answering: u32,
    /// True if a step can be taken at once.
    work_left: bool,
    counts: CacheCounts,
}

impl CachePartition {
    pub(crate) fn new(limits: &Limits, block: u64) -> CachePartition {
        CachePartition {
            setting: None,
            key: CacheKey::default(),
            set_aside_for: (0, 0),
            is_new: true,
            goal: 0,
            share: limits.index_share(block),
            controller: PartitionController::new(),
            index_ghosts: Ghosts::new(limits.index_ghosts(block)),
            read_ghosts: ReadGhosts::new(limits.read_ghosts(block)),
            copies: BTreeMap::new(),
            answering: 0,
            work_left: false,
            counts: CacheCounts::default(),
        }
    }

    /// Returns true if a step can be taken at once.
    pub(crate) fn has_work_left(&self) -> bool {
        self.work_left
    }

    /// Returns the bytes of memory that the ghosts take.
    pub(crate) fn memory(&self) -> u64 {
        self.index_ghosts.memory() + self.read_ghosts.memory()
    }

    /// Drops the ghost of a slot that is free.
    pub(crate) fn forget(&mut self, slot: Slot) {
        self.read_ghosts.forget(slot);
    }

    /// Notes a block that is in its slot, and in the read cache.
    pub(crate) fn note_written(&mut self, slot: Slot) {
        let lru = self.setting.is_some_and(|setting| setting.replacement == Replacement::Lru);
        self.read_ghosts.touch(slot, lru);
    }
}

/// Returns the number of buffers, excluding those for incoming data, when the index has N chunks.
fn read_buffers_beside(pool: &Pool, chunks: u64) -> u32 {
    let block = pool.metadata.geometry().block();
    let index = chunks * pool.hints.index.chunk_entries() * 16;
    let least = pool.limits.least_read_buffers(pool.metadata.geometry());
    (divided_bytes(pool).saturating_sub(index) / block).max(u64::from(least)) as u32
}

/// Returns the bytes that index and read cache divide: their shared bytes without those set aside.
fn divided_bytes(pool: &Pool) -> u64 {
    pool.limits.shared_bytes(pool.metadata.geometry().block()).saturating_sub(pool.set_aside_bytes())
}

/// Returns the sizes on which the bytes that are set aside depend, beside the limits and the cache's key.
#[inline]
fn set_aside_for(pool: &Pool) -> (u64, u32) {
    (pool.columns_budget(), pool.hints.disk_index.record().buckets)
}

/// Returns the number of chunks of an index with this share in thousandths. It leaves the buffers that reads need.
fn chunks_of_share(pool: &Pool, share: u32) -> u64 {
    let block = pool.metadata.geometry().block();
    let shared = pool.limits.shared_bytes(block);
    let for_reads = u64::from(pool.limits.least_read_buffers(pool.metadata.geometry())) * block;
    let most = divided_bytes(pool).saturating_sub(for_reads);
    let chunks = pool.hints.index.chunks_for((shared * u64::from(share) / 1000).min(most) / 16);
    // The smallest possible table may be too large.
    if chunks * pool.hints.index.chunk_entries() * 16 > most { 0 } else { chunks }
}

impl CachePartition {
    // ---- counting ----

    /// Counts the index lookups of a write.
    pub(crate) fn note_lookups(&mut self, request: &Request, policy: Policy, limits: &Limits) {
        if request.kind() != Kind::Write {
            return;
        }
        self.controller.count_request();
        if !policy.looks_up() {
            return;
        }
        for block in request.blocks() {
            let Some(content) = block.content.filter(|content| !content.zero) else { continue };
            let slot = match (block.lookup, block.decision) {
                // Found through the mapping of the block, not by the index.
                (Lookup::Unchanged(_), _) => continue,
                (Lookup::Known(slot), _) => Some(Slot(slot)),
                (Lookup::Nothing, Decision::IntraRequest) => continue,
                (Lookup::Nothing, _) => block.entry.slot(),
            };
            let one_in = limits.cache.sampled_one_in;
            let digest = first_bits(content.digest, limits.sharing_digest_bits);
            let Some(key) = slot.and_then(|slot| GhostKey::of_digest(digest, slot, one_in)) else { continue };
            if let Some(segment) = self.index_ghosts.touch(key) {
                let hits = u64::from(one_in);
                self.controller.count_hits(Hits::Index, segment, hits);
                if segment as u64 * 1000 >= u64::from(self.share) * SEGMENTS as u64 {
                    self.counts.index_ghost_hits += hits;
                }
            }
        }
    }

    /// Counts the blocks of a read.
    pub(crate) fn note_read(&mut self, request: &Request) {
        self.controller.count_request();
        let lru = self.setting.is_some_and(|setting| setting.replacement == Replacement::Lru);
        for block in request.blocks() {
            let Some(slot) = block.entry.slot() else { continue };
            // A larger cache would not have had a prefetched block sooner.
            if let Some((list, segment)) = self.read_ghosts.touch(slot, lru).filter(|_| !block.was_ahead) {
                self.controller.count_hits(list, segment, 1);
                if segment as u64 * 1000 >= u64::from(1000 - self.share) * SEGMENTS as u64 {
                    self.counts.read_ghost_hits += 1;
                }
            }
        }
    }

    /// Sets the target of the partition, when limits or setting have changed.
    fn aim(&mut self, pool: &mut Pool) {
        let setting = pool.cache_setting();
        self.setting = setting;
        self.is_new = false;
        let lru = setting.is_some_and(|setting| setting.replacement == Replacement::Lru);
        pool.memory.cache_mut().set_lru(lru);
        self.share = match setting.map(|setting| setting.partition) {
            None => pool.limits.index_share(pool.metadata.geometry().block()),
            Some(PartitionMode::Fixed(percent)) => u32::from(percent) * 10,
            Some(PartitionMode::Adaptive(_)) => self.share.clamp(LEAST, 1000 - LEAST),
        };
        self.goal = match setting {
            None => pool.hints.index.chunks_for(u64::from(pool.limits.index_entries)),
            Some(_) => chunks_of_share(pool, self.share),
        };
        self.controller.note(pool.state.now(), self.share);
    }

    /// Repartitions memory under new limits: excess memory is given up at once, as far as possible; added memory comes step by step.
    fn repartition(&mut self, pool: &mut Pool, rebuild: &mut IndexRebuild, fetch: &mut CacheWarmup) {
        let block = pool.metadata.geometry().block();
        let (size, slots) = (pool.limits.index_size(block), pool.metadata.geometry().slots());
        let tag_bits = pool.limits.index_tag_bits;
        let starts_anew = !pool.hints.index.can_become(size, slots, tag_bits);
        if starts_anew {
            pool.hints.index = Index::new(Size { entries: 0, ..size }, slots, tag_bits);
        }
        if self.setting.is_none() {
            self.share = pool.limits.index_share(block);
        }
        self.aim(pool);
        let goal = self.goal;
        if starts_anew || goal < pool.hints.index.chunks() || self.setting.is_none() {
            pool.hints.index.resize(goal);
        }
        if starts_anew && !matches!(pool.state.phase(), Phase::Recovering | Phase::Dead) {
            rebuild.begin(pool.metadata.geometry().summary_leaves());
        }
        self.index_ghosts.resize(pool.limits.index_ghosts(block));
        self.read_ghosts.resize(pool.limits.read_ghosts(block));
        fetch.forget_all();
        let reads = read_buffers_beside(pool, goal.max(pool.hints.index.chunks()));
        pool.memory.buffers_mut().set_count(
            pool.limits.write_buffers + reads,
            pool.limits.write_buffers,
            pool.limits.most_buffers(block),
        );
        let most = pool.limits.most_cached(block);
        let capacity = self.cache_capacity(pool.memory.cache().key(), reads);
        let numbers = pool.limits.most_buffers(block) as usize;
        pool.memory.resize_cache(capacity, most, numbers);
    }

    /// Returns the number of blocks that the read cache may hold: 0 if all memory is for the index, or the cache is off. (Reads need buffers all the
    /// same.)
    fn cache_capacity(&self, key: CacheKey, reads: u32) -> usize {
        let none = self.setting.is_some_and(|setting| setting.partition == PartitionMode::Fixed(100));
        if none || key == CacheKey::Off { 0 } else { reads as usize }
    }

    /// Evaluates the hits if it is time, and moves the partition one step towards its target.
    #[inline]
    fn step(&mut self, pool: &mut Pool, rebuild: &mut IndexRebuild, fetch: &mut CacheWarmup) {
        self.work_left = false;
        let is_same = pool.cache_setting() == self.setting && pool.memory.cache().key() == self.key;
        if self.is_new || !is_same || set_aside_for(pool) != self.set_aside_for {
            self.follow_setting(pool, rebuild);
        }
        if pool.memory.buffers().count() < pool.memory.buffers().numbers() {
            self.copy_out_of_pending_free(pool);
        }
        if pool.hints.index.chunks() == self.goal {
            self.look_at_hits(pool, fetch);
        }
        if pool.hints.index.chunks() != self.goal {
            self.step_chunks(pool);
        }
        fetch.hold_back(pool.hints.index.chunks() != self.goal);
    }

    #[inline(never)]
    fn follow_setting(&mut self, pool: &mut Pool, rebuild: &mut IndexRebuild) {
        let before = pool.hints.index.chunks();
        self.aim(pool);
        let same_key = core::mem::replace(&mut self.key, pool.memory.cache().key()) == self.key;
        let same_rest = core::mem::replace(&mut self.set_aside_for, set_aside_for(pool)) == self.set_aside_for;
        let reads = match same_key && same_rest {
            true => pool.memory.buffers().count().saturating_sub(pool.limits.write_buffers),
            false => read_buffers_beside(pool, before),
        };
        self.set_read_buffers(pool, reads);
        if before == 0 && self.goal > 0 {
            rebuild.begin(pool.metadata.geometry().summary_leaves());
        }
    }

    #[inline]
    fn look_at_hits(&mut self, pool: &Pool, fetch: &mut CacheWarmup) {
        let Some(CacheSetting { partition: PartitionMode::Adaptive(rule), .. }) = self.setting else { return };
        if self.controller.is_due(&pool.limits.cache) {
            self.decide(pool, fetch, rule);
        }
    }

    #[inline(never)]
    fn decide(&mut self, pool: &Pool, fetch: &mut CacheWarmup, rule: Rule) {
        let before = self.share;
        let share = self.controller.look(rule, &pool.limits.cache, before);
        if share != before {
            self.share = share;
            self.goal = chunks_of_share(pool, share);
            self.counts.moves += 1;
            self.controller.note(pool.state.now(), share);
            self.choose_ghosts(pool, fetch, before);
        }
    }

    fn step_chunks(&mut self, pool: &mut Pool) {
        let (goal, chunks) = (self.goal, pool.hints.index.chunks());
        if goal < chunks {
            let near = goal.max(chunks.saturating_sub(STEP_CHUNKS));
            while pool.hints.index.chunks() > near {
                pool.hints.index.step(near);
            }
            pool.hints.index.fit();
        }
        // An index without chunks gets its smallest table at once.
        let near = if chunks == 0 { goal } else { goal.min(chunks + STEP_CHUNKS) };
        let chunks = pool.hints.index.chunks();
        let reads = read_buffers_beside(pool, near.max(chunks));
        if pool.memory.buffers().count() != pool.limits.write_buffers + reads {
            if !self.can_have(pool, reads) {
                return;
            }
            self.set_read_buffers(pool, reads);
        }
        if near > chunks {
            let space = pool.limits.write_buffers + read_buffers_beside(pool, near);
            if pool.memory.buffers().numbers() > space {
                // The next step follows when these buffers have been released.
                return;
            }
            pool.hints.index.reserve(near);
            while pool.hints.index.chunks() < near {
                pool.hints.index.step(near);
            }
        }
        self.work_left = pool.hints.index.chunks() != goal;
    }

    /// Returns true if N buffers, excluding those for incoming data, leave enough that no answer in progress holds. A client that is slow to take its
    /// answers must not leave the others without buffers.
    fn can_have(&self, pool: &Pool, reads: u32) -> bool {
        let fewer = (pool.memory.buffers().count() - pool.limits.write_buffers).saturating_sub(reads);
        let incoming = pool.limits.write_buffers.saturating_sub(pool.memory.buffers().incoming());
        let least = pool.limits.least_read_buffers(pool.metadata.geometry());
        fewer == 0 || {
            let needed = fewer + incoming + least / 2 + self.answering;
            pool.memory.buffers().free() + pool.memory.cache().len() >= needed as usize
        }
    }

    /// Sets the number of buffers, excluding those for incoming data; the read cache evicts the blocks that no longer fit.
    fn set_read_buffers(&mut self, pool: &mut Pool, reads: u32) {
        let write_buffers = pool.limits.write_buffers;
        let most = pool.limits.most_buffers(pool.metadata.geometry().block());
        pool.memory.buffers_mut().set_count(write_buffers + reads, write_buffers, most);
        let capacity = self.cache_capacity(pool.memory.cache().key(), reads);
        pool.memory.set_cache_capacity(capacity);
        self.copy_out_of_pending_free(pool);
    }

    /// Begins to copy cached blocks out of buffers that are given up; without a free buffer they are dropped.
    fn copy_out_of_pending_free(&mut self, pool: &mut Pool) {
        for number in pool.memory.buffers().count()..pool.memory.buffers().numbers() {
            let from = BufferId(number);
            let Some(slot) = pool.memory.cache().in_buffer(from) else { continue };
            if self.copies.contains_key(&slot) {
                continue;
            }
            let Some(into) = pool.memory.buffers_mut().take() else {
                pool.memory.cache_mut().let_go(slot);
                pool.memory.buffers_mut().release(from);
                continue;
            };
            pool.memory.buffers_mut().hold(from);
            self.copies.insert(slot, BufferCopy { from, into });
            // None of the old content of the new buffer is kept.
            let op = IoOp::Merge { from: 0, to: 0, zero: false };
            pool.metadata.io_mut().begin(op, 0, 0, [into, from].map(Segment::Buffer), Purpose::CopyBlock(slot));
        }
    }

    /// Ends the copy of a block: the cache has it in the new buffer from now on, if it still has the block.
    pub(crate) fn copied(&mut self, pool: &mut Pool, slot: Slot, result: Result<Outcome<'_>, IoError>) {
        let BufferCopy { from, into } = self.copies.remove(&slot).expect("a copy ends once");
        let (check, digest) = (pool.memory.buffers().check(from), pool.memory.cache().digest_in(from));
        let is_same = |content: BlockContent| {
            !content.zero && check_bits(content.digest) == check && digest.is_none_or(|digest| content.digest == digest)
        };
        let good = matches!(result, Ok(Outcome::Blocks(&[content])) if is_same(content));
        pool.memory.buffers_mut().release(from);
        if pool.memory.cache().peek(slot) != Some(from) {
            return pool.memory.buffers_mut().release(into);
        }
        pool.memory.buffers_mut().release(from);
        if good {
            pool.memory.buffers_mut().set_check(into, check);
            pool.memory.cache_mut().set_buffer(slot, into);
            self.counts.copied_blocks += 1;
        } else {
            pool.memory.cache_mut().let_go(slot);
            pool.memory.buffers_mut().release(into);
        }
    }

    /// Chooses the ghosts to be fetched into the growing side, the newest first.
    fn choose_ghosts(&self, pool: &Pool, fetch: &mut CacheWarmup, before: u32) {
        let segment = |share: u32| (share as usize * SEGMENTS).div_ceil(1000).min(SEGMENTS);
        if self.share < before {
            let (from, to) = ((1000 - before) as usize * SEGMENTS / 1000, segment(1000 - self.share));
            fetch.want_blocks(self.read_ghosts.slots(from..to));
        } else {
            let from = before as usize * SEGMENTS / 1000;
            let per_leaf = pool.metadata.geometry().summary_leaf_slots();
            fetch.want_digests(self.index_ghosts.slots(from..segment(self.share)), per_leaf);
        }
    }

    /// Notes that an answer with this number of blocks is being sent: they hold their buffers.
    #[inline]
    pub(crate) fn begin_answer(&mut self, buffers: u32) {
        self.answering += buffers;
    }

    /// Notes that a block of an answer has been sent.
    #[inline]
    pub(crate) fn end_answer(&mut self) {
        self.answering -= 1;
    }

    /// Counts the blocks of a read: found in the read cache, and not found. Blocks that were read ahead are misses that came early.
    #[inline]
    pub(crate) fn count_reads(&mut self, hits: u64, misses: u64) {
        self.counts.read_hits += hits;
        self.counts.read_misses += misses;
    }

    /// Returns the cache partition and the counts of hits.
    pub(crate) fn status(&self, pool: &Pool, fetch: &CacheWarmup) -> CacheStatus {
        let block = pool.metadata.geometry().block();
        CacheStatus {
            shared_bytes: pool.limits.shared_bytes(block),
            index_bytes: pool.hints.index.memory(),
            index_entries: pool.hints.index.capacity(),
            read_bytes: u64::from(pool.memory.buffers().count().saturating_sub(pool.limits.write_buffers)) * block,
            index_share: self.share,
            contents: pool.memory.cache().content_counts(),
            counts: CacheCounts {
                prefetched_blocks: fetch.fetched_blocks,
                prefetched_entries: fetch.fetched_entries,
                ..self.counts
            },
        }
    }

    /// Returns the last changes of the partition, the oldest first.
    pub(crate) fn history(&self) -> impl Iterator<Item = PartitionChange> + '_ {
        self.controller.history().iter().copied()
    }
}

impl Jobs {
    /// Evaluates the hits if it is time, and moves the partition one step towards its target.
    pub(crate) fn move_partition(&mut self, pool: &mut Pool) {
        let Jobs { cache_partition, index_rebuild, cache_warmup, .. } = self;
        cache_partition.step(pool, index_rebuild, cache_warmup);
    }

    /// Repartitions memory under new limits: excess memory is given up at once, as far as possible; added memory comes step by step.
    pub(crate) fn repartition(&mut self, pool: &mut Pool) {
        let Jobs { cache_partition, index_rebuild, cache_warmup, .. } = self;
        cache_partition.repartition(pool, index_rebuild, cache_warmup);
    }
}
