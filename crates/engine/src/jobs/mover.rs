//! The mover: copies blocks to other slots and remaps them. Jobs choose the blocks and their target slots (`defrag/`, `gc.rs`, `relocate/`, `replicate/`); a
//! relocation run and the copies in zones are remapped by their jobs.
//!
//! ```text
//! Read      content and proof: all bits of the digest. Blocks in the read cache are copied from there, and proven like the rest
//! Write     to the target slots, which have been claimed
//! Sync      until a sync covers the writes
//! Remap     block by block, only while each still maps to the slot that was read; the old slot is then free like that of any overwritten block.
//!           The record becomes durable with the next flush, or after a second (`pump.rs`)
//! ```
//!
//! It owns the batch in progress, with its slots and buffers. Invariants:
//!
//! - A block maps to its new slot only after that slot is durable. So a client flush waits for no write of a move, at most for a sync that is in
//!   flight, and recovery finds in the slot the content that the record names.
//! - A write that came meanwhile wins: the mapping is compared and changed in one step.
//! - A source slot is not reused while it is being read ([`Mover::holds`]). No map refers to a claimed slot until the remap. So a crash leaves it
//!   free, and an unused one becomes pending free.
//! - The foreground takes precedence: a batch ends where writes wait for space or for buffers.
//!
//! A relocation run needs more: it claims its target slots in advance, and gets the result of each block. If the block was not remapped, the run
//! keeps the copy: other blocks may map to the old slot ([`Mover::for_shared`]).
//!
//! Each job that moves blocks has a mover of its own. None begins a batch while another has one in progress (the rows of the table in `mod.rs`). So
//! recovery never has more than one batch of moves to verify between two syncs.

use alloc::vec::Vec;

use crate::api::*;
use crate::format::entry::{Entry, Key, Slot};
use crate::jobs::job::JobId;
use crate::metadata::page_cache::PageKey;
use crate::metadata::tree::Missing;
use crate::mutant::Mutant;
use crate::pool::Pool;
use crate::pool::metadata_reservation::{Asked, Availability};
use crate::pool::moves::MOVED_AT_ONCE;
use crate::pool::state::LoadSnapshot;
use crate::repair::Repairs;
use crate::space::SlotState;

/// Number of mappings that are changed at a time.
const REMAPS_AT_ONCE: usize = 64;
/// Number of checkpoints for which a batch waits for metadata.
const ATTEMPTS: u64 = 3;
/// Largest number of pages requested at a time.
const LOADS: usize = 64;
/// Divisor of all pages in memory: at most one in N is requested at a time, so that the first is still in memory when the last arrives.
const PART_OF_PAGES: usize = 8;

/// A block to be moved between slots. Its mapping changes only if it still has the entry `seen`, and the old slot still has this digest.
#[derive(Clone, Copy)]
pub(super) struct Moved {
    pub key: Key,
    /// Entry of the block in the map when it was examined.
    pub seen: Entry,
    pub from: Slot,
    pub digest: Digest,
    pub to: Slot,
}

/// Result of moving a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Came {
    /// The block maps to its new slot.
    Moved,
    /// The content is durable in the new slot, but the block does not map to it.
    Copied,
    /// The block stays in its old slot, as something interfered; its target slot is given up.
    Dropped,
    /// The block stays in its old slot, as a read or a write failed; its target slot is given up.
    Failed,
}

/// Reason for which a job does not move a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum MoveStop {
    /// Pages are being loaded, or a container is being reserved.
    Waits,
    /// There is no target slot for the block, or it cannot be read.
    GivenUp,
}

/// Stage of a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum BatchStage {
    #[default]
    Read,
    Write,
    /// Waiting until N syncs have finished.
    Sync(u64),
    /// Remapping, from block N on.
    Remap(usize),
}

/// A batch in progress.
#[derive(Default)]
struct MoveBatch {
    /// Blocks of the batch, each with the buffer of its content.
    blocks: Vec<(Moved, BufferId)>,
    /// Source slots, in order.
    sources: Vec<Slot>,
    /// Read-cache buffer of each block that is copied from there, held until the copy is done.
    cached: Vec<Option<BufferId>>,
    at: BatchStage,
    in_flight: usize,
    /// Number of completed checkpoints when remapping began; bounds the wait for metadata.
    waits_since: Option<u64>,
    /// Set if the batch is cancelled: its slots and buffers are given back when its I/O is done.
    is_over: bool,
    /// Set if an I/O failed, or content did not match its digest.
    has_failed: bool,
}

impl MoveBatch {
    /// Returns all buffers of the batch, including those of the read cache.
    fn buffers(&self) -> impl Iterator<Item = BufferId> + '_ {
        self.blocks.iter().map(|&(_, buffer)| buffer).chain(self.cached.iter().copied().flatten())
    }

    /// Clears the batch, but keeps the memory of its lists.
    fn emptied(self) -> MoveBatch {
        let MoveBatch { mut blocks, mut sources, mut cached, .. } = self;
        blocks.clear();
        sources.clear();
        cached.clear();
        MoveBatch { blocks, sources, cached, ..MoveBatch::default() }
    }
}

/// A mover of one job, with its batch in progress.
pub(super) struct Mover {
    job: JobId,
    batch: Option<MoveBatch>,
    /// Memory of the previous batch, for the next one.
    spare: MoveBatch,
    /// Last of the pages that the job waits for.
    waits_for: Option<PageKey>,
    moved: u64,
    /// Results of the blocks of the last batch; `None` for a job that does not ask for them.
    came: Option<Vec<(Moved, Came)>>,
}

impl Mover {
    pub(super) fn new(job: JobId) -> Mover {
        Mover { job, batch: None, spare: MoveBatch::default(), waits_for: None, moved: 0, came: None }
    }

    /// Creates a mover for target slots that are claimed already. It reports the result of each block, and does not charge the allowance.
    pub(super) fn for_shared(job: JobId) -> Mover {
        Mover { came: Some(Vec::new()), ..Mover::new(job) }
    }

    /// Takes the results of blocks since the last call.
    pub(super) fn take_came(&mut self) -> Vec<(Moved, Came)> {
        self.came.as_mut().map(core::mem::take).unwrap_or_default()
    }

    /// Returns the number of I/Os of the batch in flight.
    #[inline]
    pub(super) fn in_flight(&self) -> usize {
        self.batch.as_ref().map_or(0, |batch| batch.in_flight)
    }

    /// Returns the target slots of the batch to which no block maps yet; they are claimed.
    pub(super) fn places(&self) -> impl Iterator<Item = Slot> + '_ {
        let left = |batch: &MoveBatch| if let BatchStage::Remap(at) = batch.at { at } else { 0 };
        self.batch.iter().flat_map(move |batch| batch.blocks[left(batch)..].iter().map(|(block, _)| block.to))
    }

    pub(super) fn is_in_progress(&self) -> bool {
        self.batch.is_some()
    }

    /// Returns the number of blocks moved since the mover was created.
    pub(super) fn moved(&self) -> u64 {
        self.moved
    }

    pub(super) fn holds(&self, slot: Slot) -> bool {
        self.batch.as_ref().is_some_and(|batch| batch.sources.binary_search(&slot).is_ok())
    }

    /// Returns the largest number of blocks of a batch.
    pub(super) fn at_once(pool: &Pool) -> usize {
        MOVED_AT_ONCE.min(pool.limits.buffers as usize / 8)
    }

    /// Returns the largest number of blocks of a batch that begins now and is charged to the allowance.
    pub(super) fn most(pool: &Pool) -> usize {
        Mover::at_once(pool).min(pool.may_move() as usize)
    }

    /// Returns true while the last of the pages that the job requested is being loaded.
    pub(super) fn is_loading(&self, pool: &Pool) -> bool {
        self.waits_for.is_some_and(|page| pool.metadata.pages().is_loading(page))
    }

    /// Begins to load missing pages. Returns `Waits` if there are any, `GivenUp` if one of them has failed.
    pub(super) fn load(&mut self, pool: &mut Pool, missing: Missings) -> Result<(), MoveStop> {
        for page in &missing.pages {
            if pool.metadata.has_failed(page.key) {
                return Err(MoveStop::GivenUp);
            }
            pool.metadata.load(*page, None);
        }
        self.waits_for = missing.pages.last().map(|page| page.key);
        if missing.pages.is_empty() { Ok(()) } else { Err(MoveStop::Waits) }
    }

    /// Claims the target slots of a batch, unless the job has, and begins to read it; returns false if there are too few buffers.
    pub(super) fn begin(&mut self, pool: &mut Pool, blocks: &mut [Moved]) -> bool {
        blocks.sort_unstable_by_key(|block| block.from);
        let mut batch = core::mem::take(&mut self.spare);
        for &block in blocks.iter() {
            let there = pool.memory.cache().peek(block.from);
            there.iter().for_each(|&there| pool.memory.buffers_mut().hold(there));
            batch.cached.push(there);
            // A buffer of the read cache belongs to its slot: a moved block gets a buffer of its own.
            let Some(buffer) = pool.any_buffer() else {
                batch.buffers().for_each(|buffer| pool.memory.buffers_mut().release(buffer));
                self.spare = batch.emptied();
                return false;
            };
            batch.blocks.push((block, buffer));
        }
        if self.came.is_none() {
            // Borrows the memory of `sources`, which is still unused.
            let places = &mut batch.sources;
            places.extend(blocks.iter().map(|block| block.to));
            places.sort_unstable();
            let space = pool.durable.space_mut();
            let per_container = space.slots_of(0).end;
            for places in places.chunk_by(|one, next| one.0 / per_container == next.0 / per_container) {
                space.claim(places).expect("each of them may be claimed");
            }
            pool.forget_wrapped();
            places.clear();
        }
        batch.sources.extend(blocks.iter().map(|block| block.from));
        let mut at = 0;
        while at < batch.blocks.len() {
            let (rest, cached) = (&batch.blocks[at..], &batch.cached[at..]);
            let first = rest[0].0.from;
            let mut length = 1;
            if let Some(there) = cached[0] {
                let copy = IoOp::Merge { from: 0, to: 0, zero: false };
                pool.metadata.io_mut().begin(copy, 0, 0, [rest[0].1, there].map(Segment::Buffer), self.job.io(at));
            } else {
                let is_read_with = |length: usize| {
                    let (block, _) = rest.get(length)?;
                    Some(cached[length].is_none() && pool.continues(first, length, block.from))
                };
                while is_read_with(length) == Some(true) {
                    length += 1;
                }
                moving_io(pool, self.job, IoOp::ReadBlocks, pool.slot_offset(first), &rest[..length], at);
            }
            batch.in_flight += 1;
            at += length;
        }
        self.batch = Some(batch);
        true
    }

    /// Handles the completion of an I/O of the batch.
    pub(super) fn done(
        &mut self,
        pool: &mut Pool,
        part: u32,
        segments: &[Segment],
        result: Result<Outcome<'_>, IoError>,
    ) {
        let batch = self.batch.as_mut().expect("a batch stays until its I/O is done");
        batch.in_flight -= 1;
        let at = part as usize;
        let copied_from = if batch.at == BatchStage::Read { batch.cached[at].take() } else { None };
        copied_from.iter().for_each(|&there| pool.memory.buffers_mut().release(there));
        let good = match (batch.at, result) {
            (BatchStage::Read, Ok(Outcome::Blocks(contents))) => {
                let count = if copied_from.is_some() { 1 } else { segments.len() };
                let blocks = batch.blocks[at..].iter().take(count);
                let is_right = |(content, (block, _)): (&BlockContent, &(Moved, BufferId))| {
                    !content.zero && content.digest == block.digest
                };
                contents.len() == count && contents.iter().zip(blocks).all(is_right)
            }
            (BatchStage::Read, _) => false,
            // A bad target slot is left for its next user to find: the block stays in its old slot.
            (_, result) => result.is_ok(),
        };
        // A read or a scrub will find the damage of a source.
        batch.is_over |= !good;
        batch.has_failed |= !good;
        pool.wake();
    }

    /// Advances the batch to its next stage when no I/O is in flight; ends it where writes wait.
    pub(super) fn go_on(&mut self, pool: &mut Pool, load: &LoadSnapshot) {
        let goes_on = pool.may_be_reordered() && !load.writes_blocked && !load.out_of_buffers;
        let Some(batch) = &mut self.batch else { return };
        batch.is_over |= !goes_on;
        if batch.in_flight > 0 {
            return;
        }
        if batch.is_over {
            return self.end(pool, 0);
        }
        match batch.at {
            BatchStage::Read => self.write(pool),
            BatchStage::Write => {
                // A sync covers the writes that are complete when it is submitted.
                let syncs = !pool.mutant(Mutant::UnsyncedMove);
                let barrier = if syncs { pool.durable.journal_mut().request_sync() } else { 0 };
                batch.at = BatchStage::Sync(barrier);
                pool.wake();
            }
            BatchStage::Sync(barrier) => {
                if pool.durable.journal().has_synced(barrier) {
                    batch.at = BatchStage::Remap(0);
                    self.remap(pool, load, 0);
                }
            }
            BatchStage::Remap(from) => self.remap(pool, load, from),
        }
    }

    fn write(&mut self, pool: &mut Pool) {
        let Some(batch) = &mut self.batch else { return };
        batch.at = BatchStage::Write;
        batch.blocks.sort_unstable_by_key(|(block, _)| block.to);
        let (block, geometry) = (pool.metadata.geometry().block(), *pool.metadata.geometry());
        let mut rest = &batch.blocks[..];
        while let Some((first, _)) = rest.first() {
            let follows = |pair: &&[(Moved, BufferId)]| {
                let (one, next) = (pair[0].0.to, pair[1].0.to);
                next.0 == one.0 + 1
                    && geometry.slot_block(next.0) == geometry.slot_block(one.0) + 1
                    && pool.durable.space().container_of(one) == pool.durable.space().container_of(next)
            };
            let length = 1 + rest.windows(2).take_while(follows).count();
            moving_io(pool, self.job, IoOp::Write, geometry.slot_block(first.to.0) * block, &rest[..length], 0);
            batch.in_flight += 1;
            rest = &rest[length..];
        }
    }

    /// Remaps blocks to their new slots, from block `from` on.
    fn remap(&mut self, pool: &mut Pool, load: &LoadSnapshot, from: usize) {
        let Some(mut batch) = self.batch.take() else { return };
        let end = batch.blocks.len().min(from + REMAPS_AT_ONCE);
        let space = pool.space_for(&Asked::scattered(end - from), load.clears_left);
        let mut at = from;
        let since = *batch.waits_since.get_or_insert(pool.checkpoint.done());
        let waited = space == Availability::Later && pool.checkpoint.done() >= since + ATTEMPTS;
        let mut is_over = space == Availability::Never || waited;
        while space == Availability::Now && at < end {
            let block = batch.blocks[at].0;
            let Moved { key, seen, digest, to, .. } = block;
            match pool.relocate(key, seen, digest, to) {
                Ok(true) => {
                    self.moved += 1;
                    pool.regions_mut().moved(key);
                    pool.note_placed();
                    match &mut self.came {
                        Some(came) => came.push((block, Came::Moved)),
                        None => pool.count_moved(),
                    }
                }
                Ok(false) => match &mut self.came {
                    Some(came) => came.push((block, Came::Copied)),
                    None => pool.durable.space_mut().defer_free(to, 0),
                },
                Err(missing) if pool.metadata.has_failed(missing.key) => {
                    is_over = true;
                    break;
                }
                Err(missing) => {
                    pool.metadata.load(missing, None);
                    break;
                }
            }
            at += 1;
        }
        is_over |= at == batch.blocks.len();
        pool.wake_if(at == end);
        batch.at = BatchStage::Remap(at);
        self.batch = Some(batch);
        if is_over {
            self.end(pool, at);
        }
    }

    /// Gives back the buffers of the batch, and the target slots of its blocks from `from` on.
    fn end(&mut self, pool: &mut Pool, from: usize) {
        let Some(batch) = self.batch.take() else { return };
        let from = if let BatchStage::Remap(at) = batch.at { at.max(from) } else { from };
        for (at, &(block, buffer)) in batch.blocks.iter().enumerate() {
            pool.memory.buffers_mut().release(buffer);
            if at >= from {
                pool.durable.space_mut().defer_free(block.to, 0);
                let what = if batch.has_failed { Came::Failed } else { Came::Dropped };
                self.came.iter_mut().for_each(|came| came.push((block, what)));
            }
        }
        self.spare = batch.emptied();
        pool.wake();
    }
}

/// Returns true if work on a slot is in progress that must end before the slot is moved.
pub(super) fn is_busy(pool: &Pool, repairs: &Repairs, slot: Slot) -> bool {
    pool.memory.is_using(slot) || pool.durable.is_in_journal(slot) || repairs.is_repairing(slot)
}

/// Returns true if a slot belongs to one block alone, as far as is known, and is not busy. Its replicas go when it is moved.
pub(super) fn is_alone(pool: &mut Pool, repairs: &Repairs, slot: Slot) -> Result<bool, Missing> {
    let is_busy = is_busy(pool, repairs, slot);
    match pool.recent(slot) {
        _ if is_busy => Ok(false),
        Some(recent) => Ok(recent.fresh && recent.refs == 1),
        None => Ok(pool.slot_state(slot)? == SlotState::Single),
    }
}

/// Reads blocks from their old slots, or writes them to their new ones.
fn moving_io(pool: &mut Pool, job: JobId, op: IoOp, offset: u64, blocks: &[(Moved, BufferId)], first: usize) {
    let bytes = blocks.len() as u64 * pool.metadata.geometry().block();
    let segments = blocks.iter().map(|&(_, buffer)| Segment::Buffer(buffer));
    pool.metadata.io_mut().begin(op, offset, bytes, segments, job.io(first));
}

/// Missing pages that a step has found; they are requested together.
#[derive(Default)]
pub(super) struct Missings {
    pages: Vec<Missing>,
}

impl Missings {
    pub(super) fn add(&mut self, missing: Missing) {
        if self.pages.len() < LOADS && !self.pages.contains(&missing) {
            self.pages.push(missing);
        }
    }

    /// Returns the value found; else `None`, and notes the missing page.
    pub(super) fn or<T>(&mut self, found: Result<T, Missing>) -> Option<T> {
        found.map_err(|missing| self.add(missing)).ok()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }

    /// Returns true if the missing pages are so numerous that one more might evict the first of them.
    pub(super) fn are_many(&self, pool: &Pool) -> bool {
        self.pages.len() >= LOADS.min(pool.limits.pages as usize / PART_OF_PAGES)
    }
}
