//! Prefetch of digests into the index: where the index finds a block, those that lie behind it are likely to be written next. The summary page
//! of its slot has their digests, and they are put into the index ahead of need.
//!
//! Nothing waits for it, and it is bounded: one page for each run of hits, that of its last block; few pages wait, fewer are being
//! loaded, at the class of background work; none is gone through again soon. And it is paid for: a page takes the processor as long as several
//! writes do, so after the first ones there is a page for so many digests that came ahead and were asked for, and besides one for so many
//! blocks that were found, to see whether it is worth it by now. What comes ahead is a hint like all that the index knows, and
//! takes the place of the entry that would go next ([`crate::dedup::index::Index::offer`]): of each bucket all entries but one stay what was
//! used, and what is never asked for goes first.

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

use crate::api::{Digest, Nanos};
use crate::dedup::policy::Lookup;
use crate::format::entry::Slot;
use crate::metadata::page_cache::PageKey;
use crate::metadata::tree::Missing;
use crate::pool::Pool;
use crate::pool::state::Phase;
use crate::requests::request::Block;

/// Most pages that wait to be gone through.
const WANTED: usize = 8;
/// Most of these pages that are being loaded.
const LOADS: usize = 2;
/// Most loads for one of these pages: pages above it, itself, and those of the space map.
const LOADS_EACH: u8 = 8;
/// Time for which a page is not gone through again, while it is among the last ones, in nanoseconds.
const REST: Nanos = 10_000_000_000;
/// Number of these last ones.
const RECENT: usize = 64;
/// Cost of a page, in credits.
const COST: u32 = 256;
/// Credits for a block that is found.
const FOUND: u32 = 1;
/// Credits for a block that was found because its digest had come ahead: with four of them a page has paid for itself.
const GAINED: u32 = 64;
/// Most credits that are saved, and those at first.
const SAVED_MAX: u32 = 16 * COST;
/// Digests that have come ahead and whose hits will be counted.
const MARKS: usize = 8192;

/// Counts of the prefetch. Each figure is defined in docs/counters.md.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct IndexPrefetchCounts {
    /// Summary pages that were gone through.
    pub pages: u64,
    /// Device reads for them.
    pub loads: u64,
    /// Entries that the index took.
    pub entries: u64,
    /// Those entries that were found by a write, as far as it is known.
    pub hits: u64,
}

/// A leaf of the summaries that is wanted.
#[derive(Clone, Copy, Debug)]
struct WantedLeaf {
    leaf: u64,
    /// Page that was loaded for it last.
    page: Option<PageKey>,
    /// Number of pages that were loaded for it.
    loads: u8,
}

/// Pages that are wanted, and those that have been gone through.
pub(crate) struct IndexPrefetch {
    wanted: VecDeque<WantedLeaf>,
    recent: VecDeque<(u64, Nanos)>,
    /// Some bits of each digest that has come ahead, at a place given by other bits of it.
    marks: Vec<u32>,
    /// Credits to pay for pages.
    saved: u32,
    pub(crate) counts: IndexPrefetchCounts,
}

impl IndexPrefetch {
    pub(crate) fn new() -> IndexPrefetch {
        IndexPrefetch {
            wanted: VecDeque::with_capacity(WANTED),
            recent: VecDeque::with_capacity(RECENT),
            marks: vec![0; MARKS],
            saved: SAVED_MAX,
            counts: IndexPrefetchCounts::default(),
        }
    }

    /// Returns the place of a digest's mark, and the mark.
    fn mark(digest: Digest) -> (usize, u32) {
        let bits = u128::from_le_bytes(digest.0);
        (bits as usize % MARKS, (bits >> 32) as u32 | 1)
    }

    /// Takes the mark of a digest away. Returns true if it had one.
    fn unmark(&mut self, digest: Digest) -> bool {
        let (at, mark) = IndexPrefetch::mark(digest);
        let has = self.marks[at] == mark;
        if has {
            self.marks[at] = 0;
        }
        has
    }

    /// Notes that the index was asked for a digest, and gains credits if it knew it.
    pub(crate) fn asked(&mut self, digest: Digest, is_known: bool) {
        let came_ahead = self.unmark(digest);
        if is_known {
            self.counts.hits += u64::from(came_ahead);
            self.saved = (self.saved + if came_ahead { GAINED } else { FOUND }).min(SAVED_MAX);
        }
    }

    fn want(&mut self, leaf: u64, now: Nanos) {
        let is_recent = |&(done, when): &(u64, Nanos)| done == leaf && now < when.saturating_add(REST);
        let is_wanted = self.wanted.iter().any(|wanted| wanted.leaf == leaf);
        let has_space = self.saved >= COST && self.wanted.len() < WANTED;
        if has_space && !is_wanted && !self.recent.iter().any(is_recent) {
            self.saved -= COST;
            self.wanted.push_back(WantedLeaf { leaf, page: None, loads: 0 });
        }
    }

    fn offer(&mut self, pool: &mut Pool, digest: Digest, slot: Slot) {
        let digest = pool.sharing_digest(digest);
        if pool.index.offer(digest, slot, pool.space.generation(slot)) {
            self.counts.entries += 1;
            let (at, mark) = IndexPrefetch::mark(digest);
            self.marks[at] = mark;
        }
    }

    fn done(&mut self, leaf: u64, now: Nanos) {
        self.recent.retain(|&(done, _)| done != leaf);
        if self.recent.len() == RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back((leaf, now));
    }

    /// Wants the page of the last block of each run of hits, once all blocks of a write have been looked up.
    pub(crate) fn want_beside(&mut self, blocks: &[Block], pool: &Pool) {
        let per_leaf = pool.metadata.geometry.summary_leaf_slots();
        for (at, block) in blocks.iter().enumerate() {
            let Lookup::Known(slot) = block.lookup else { continue };
            if blocks.get(at + 1).is_none_or(|next| next.lookup != Lookup::Known(slot + 1)) {
                self.want(slot / per_leaf, pool.now);
            }
        }
    }

    /// Goes through the pages that are there, and loads others. Not during a checkpoint: what the summaries and the space map say is of one merge
    /// then.
    pub(crate) fn step(&mut self, pool: &mut Pool) {
        if self.wanted.is_empty() || pool.in_progress.is_some() || pool.phase != Phase::Serving {
            return;
        }
        let is_loading = |wanted: &&WantedLeaf| wanted.page.is_some_and(|page| pool.metadata.pages.is_loading(page));
        let mut loading = self.wanted.iter().filter(is_loading).count();
        for _ in 0..self.wanted.len() {
            let Some(mut wanted) = self.wanted.pop_front() else { break };
            match self.go_through(pool, wanted.leaf) {
                Ok(()) => {
                    self.counts.pages += 1;
                    self.done(wanted.leaf, pool.now);
                }
                Err(_) if wanted.loads == LOADS_EACH => self.done(wanted.leaf, pool.now),
                Err(missing) => {
                    if loading < LOADS && !pool.metadata.pages.is_loading(missing.key) {
                        pool.metadata.load(missing, None);
                        (wanted.page, wanted.loads) = (Some(missing.key), wanted.loads + 1);
                        self.counts.loads += 1;
                        loading += 1;
                    }
                    self.wanted.push_back(wanted);
                }
            }
        }
    }

    /// Puts the digests of live slots of a leaf of the summaries into the index.
    fn go_through(&mut self, pool: &mut Pool, leaf: u64) -> Result<(), Missing> {
        pool.each_block_of_leaf(leaf, |pool, slot, state, digest| {
            if state.is_used() {
                self.offer(pool, digest, slot);
            }
        })?;
        Ok(())
    }
}
