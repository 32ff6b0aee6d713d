//! Cache warm-up: fetches the newest ghosts into the side that has grown, when the partition between index and read cache has moved
//! (`cache_partition.rs`). For the read cache, blocks are read and compared with their digests. For the index, the summaries around the ghosts' slots
//! are read.
//!
//! Ghosts that it has not fetched are forgotten with the next move, and on a restart.

use crate::jobs::job::CopyContext;
use crate::pool::copy_access::CopyAccess;
use alloc::collections::VecDeque;

use crate::api::*;
use crate::format::entry::Slot;
use crate::jobs::job::{Job, JobId};
use crate::metadata::page_cache::PageKey;
use crate::metadata::tree::Missing;
use crate::pool::Pool;
use crate::pool::state::{LoadSnapshot, Phase};
use crate::repair::Repairs;

/// Largest number of blocks that are fetched for ghosts after a move.
const BLOCKS: usize = 256;
/// Largest number of summary leaves that are fetched for ghosts after a move.
const LEAVES: usize = 64;
/// Largest number of ghosts that are fetched at a time.
const AT_ONCE: usize = 8;

/// Ghosts that are to be fetched, and those in flight.
#[derive(Default)]
pub(crate) struct CacheWarmup {
    blocks: VecDeque<Slot>,
    leaves: VecDeque<u64>,
    /// Page that it waits for.
    waiting: Option<PageKey>,
    /// Blocks in flight, with their buffers and digests. The index in the array is the part of the work that their I/O names.
    reads: [Option<(Slot, BufferId, Digest)>; AT_ONCE],
    in_flight: usize,
    /// True while the partition is moving: there may be no space yet.
    is_held_back: bool,
    /// Number of fetched blocks.
    pub(super) fetched_blocks: u64,
    /// Number of entries that were added to the index.
    pub(super) fetched_entries: u64,
}

impl CacheWarmup {
    /// Replaces all wanted ghosts by these blocks, at most [`BLOCKS`], which are fetched into the read cache in this order.
    pub(super) fn want_blocks(&mut self, slots: impl Iterator<Item = Slot>) {
        self.forget_all();
        self.blocks.extend(slots.take(BLOCKS));
    }

    /// Replaces all wanted ghosts by the summary leaves around these slots, at most [`LEAVES`], whose digests go into the index in this order.
    pub(super) fn want_digests(&mut self, slots: impl Iterator<Item = Slot>, per_leaf: u64) {
        self.forget_all();
        for slot in slots.take(4 * LEAVES) {
            let leaf = slot.0 / per_leaf;
            if !self.leaves.contains(&leaf) && self.leaves.len() < LEAVES {
                self.leaves.push_back(leaf);
            }
        }
    }

    /// Drops all wanted ghosts; reads in flight continue.
    pub(super) fn forget_all(&mut self) {
        self.blocks.clear();
        self.leaves.clear();
    }

    /// Sets if fetching is held back: nothing is fetched while the partition is moving.
    pub(super) fn hold_back(&mut self, is_moving: bool) {
        self.is_held_back = is_moving;
    }

    /// Returns true if the slot's content is being prefetched.
    pub(crate) fn is_fetching(&self, slot: Slot) -> bool {
        self.in_flight > 0 && self.reads.iter().flatten().any(|&(of, ..)| of == slot)
    }

    /// Prefetches a block, if it is not in memory and a buffer is free; fails if a page for its digest is missing.
    fn fetch_block(&mut self, pool: &mut CopyAccess<'_>, repairs: &Repairs, slot: Slot) -> Result<(), Missing> {
        let is_here =
            pool.memory.buffer_of(slot).is_some() || pool.memory.is_filling(slot) || repairs.is_repairing(slot);
        if is_here || self.is_fetching(slot) || !pool.durable.space().contains(slot) {
            return Ok(());
        }
        let Some((digest, _)) = pool.proven_digest(slot)? else { return Ok(()) };
        let place = self.reads.iter().position(Option::is_none);
        let Some(place) = place.filter(|_| !repairs.is_lost(slot, digest)) else { return Ok(()) };
        let Some(buffer) = pool.free_buffer() else {
            self.blocks.clear();
            return Ok(());
        };
        self.reads[place] = Some((slot, buffer, digest));
        self.in_flight += 1;
        pool.read_slots(slot, &[buffer], JobId::CacheWarmup.io(place));
        Ok(())
    }
}

impl Job for CacheWarmup {
    type Work<'a> = CopyContext<'a>;

    fn is_in_progress(&self) -> bool {
        !(self.blocks.is_empty() && self.leaves.is_empty())
    }

    #[inline]
    fn can_step(&self, pool: &Pool, _: &LoadSnapshot) -> bool {
        self.is_in_progress()
            && pool.state.phase() == Phase::Serving
            && !self.waiting.is_some_and(|key| pool.metadata.pages().is_loading(key))
            && !self.is_held_back
            && self.in_flight < AT_ONCE
    }

    fn can_advance(&self) -> bool {
        false
    }

    fn step(&mut self, work: &mut CopyContext<'_>) {
        let CopyContext { pool, repairs, .. } = work;
        self.waiting = None;
        for _ in 0..AT_ONCE - self.in_flight {
            let missing = if let Some(slot) = self.blocks.pop_front() {
                self.fetch_block(pool, repairs, slot).err().inspect(|_| self.blocks.push_front(slot))
            } else if let Some(leaf) = self.leaves.pop_front() {
                let noted = note_summaries(pool, leaf);
                self.fetched_entries += noted.unwrap_or(0);
                noted.err().inspect(|_| self.leaves.push_front(leaf))
            } else {
                None
            };
            let Some(missing) = missing else { continue };
            if pool.metadata.has_failed(missing.key) {
                // The ghost that needs this page is dropped.
                let _ = self.blocks.pop_front().is_some() || self.leaves.pop_front().is_some();
                continue;
            }
            self.waiting = Some(missing.key);
            return pool.load(missing);
        }
    }

    fn done(&mut self, work: &mut CopyContext<'_>, part: u32, _: &[Segment], result: Result<Outcome<'_>, IoError>) {
        let pool = &mut work.pool;
        let (slot, buffer, digest) = self.reads[part as usize].take().expect("a fetch ends once");
        self.in_flight -= 1;
        let good = matches!(result, Ok(Outcome::Blocks(&[content])) if !content.zero && content.digest == digest);
        // A failure is not reported: the next reader reads the block again.
        if !good || pool.memory.buffer_of(slot).is_some() {
            return pool.release_buffer(buffer);
        }
        self.fetched_blocks += 1;
        pool.keep_cached(slot, buffer, digest);
    }

    fn in_flight(&self) -> usize {
        self.in_flight
    }

    fn holds(&self, slot: Slot) -> bool {
        self.is_fetching(slot)
    }
}

/// Adds the blocks of one summary leaf that the index lacks; returns their number.
fn note_summaries(pool: &mut CopyAccess<'_>, leaf: u64) -> Result<u64, Missing> {
    let mut noted = 0;
    pool.each_block_of_leaf(leaf, |pool, slot, state, digest| {
        if state.is_used() && !pool.hints.index.contains(pool.sharing_digest(digest)) {
            pool.note_known(digest, slot);
            noted += 1;
        }
    })?;
    Ok(noted)
}
