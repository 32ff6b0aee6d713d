//! Index prefetch: adds digests to the dedup index ahead of need. Where the index finds a block, the blocks stored behind it are likely to be written
//! next. The summary page of its slot has their digests.
//!
//! No request waits for it, and it is bounded: one page for each run of hits, that of its last block. Few pages wait, and fewer are being loaded, in
//! the class of background work. No page is scanned again soon.
//!
//! The prefetch has to pay for itself: a page takes as much processor time as several writes. So after the first pages, there is one for every N
//! prefetched digests that were hit, and one for every M blocks that were found, to test if prefetch is worth it by now. Prefetched digests are
//! hints like all entries of the index, and replace the entry that would be evicted next ([`crate::dedup::index::Index::offer`]). So in each bucket
//! all entries but one have been used, and entries that are never hit are evicted first.

use crate::pool::copy_access::CopyAccess;
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

/// Largest number of pages that wait to be scanned.
const WANTED: usize = 8;
/// Largest number of waiting pages that are being loaded.
const LOADS: usize = 2;
/// Largest number of loads for one waiting page: pages above it, itself, and those of the space map.
const LOADS_EACH: u8 = 8;
/// Time for which a recently scanned page is not scanned again, in nanoseconds.
const REST: Nanos = 10_000_000_000;
/// Number of recently scanned pages that are remembered.
const RECENT: usize = 64;
/// Cost of a page, in credits.
const COST: u32 = 256;
/// Credits for a block that was found.
const FOUND: u32 = 1;
/// Credits for a block that was found through a prefetched digest: four of these pay for a page.
const GAINED: u32 = 64;
/// Largest number of saved credits, and the initial number.
const SAVED_MAX: u32 = 16 * COST;
/// Number of marks of prefetched digests, whose hits will be counted.
const MARKS: usize = 8192;

/// Counts of the prefetch. Each figure is defined in docs/reference/metrics.md.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct IndexPrefetchCounts {
    /// Summary pages that were scanned.
    pub pages: u64,
    /// Device reads for summary pages.
    pub loads: u64,
    /// Entries that the index accepted.
    pub entries: u64,
    /// Prefetched entries that a write found, as far as is known.
    pub hits: u64,
}

/// A leaf of the summaries that is wanted.
#[derive(Clone, Copy, Debug)]
struct WantedLeaf {
    leaf: u64,
    /// Page that was loaded last for it.
    page: Option<PageKey>,
    /// Number of pages that were loaded for it.
    loads: u8,
}

/// Pages that are wanted, and those that have been scanned.
pub(crate) struct IndexPrefetch {
    wanted: VecDeque<WantedLeaf>,
    recent: VecDeque<(u64, Nanos)>,
    /// Some bits of each prefetched digest, at an index given by other bits of it.
    marks: Vec<u32>,
    /// Credits to pay for pages.
    saved: u32,
    counts: IndexPrefetchCounts,
}

impl IndexPrefetch {
    /// Returns the counts of prefetches.
    #[inline]
    pub(crate) fn counts(&self) -> IndexPrefetchCounts {
        self.counts
    }

    pub(crate) fn new() -> IndexPrefetch {
        IndexPrefetch {
            wanted: VecDeque::with_capacity(WANTED),
            recent: VecDeque::with_capacity(RECENT),
            marks: vec![0; MARKS],
            saved: SAVED_MAX,
            counts: IndexPrefetchCounts::default(),
        }
    }

    /// Returns the index of a digest's mark, and the mark.
    fn mark(digest: Digest) -> (usize, u32) {
        let bits = u128::from_le_bytes(digest.0);
        (bits as usize % MARKS, (bits >> 32) as u32 | 1)
    }

    /// Removes the mark of a digest. Returns true if it had one.
    fn unmark(&mut self, digest: Digest) -> bool {
        let (at, mark) = IndexPrefetch::mark(digest);
        let has = self.marks[at] == mark;
        if has {
            self.marks[at] = 0;
        }
        has
    }

    /// Notes a lookup of a digest in the index, and gains credits if the digest was found.
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

    fn offer(&mut self, pool: &mut CopyAccess<'_>, digest: Digest, slot: Slot) {
        let digest = pool.sharing_digest(digest);
        if pool.offer_to_index(digest, slot) {
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

    /// Queues the page of the last block of each run of hits, once all blocks of a write have been looked up.
    pub(crate) fn want_beside(&mut self, blocks: &[Block], pool: &Pool) {
        let per_leaf = pool.metadata.geometry().summary_leaf_slots();
        for (at, block) in blocks.iter().enumerate() {
            let Lookup::Known(slot) = block.lookup else { continue };
            if blocks.get(at + 1).is_none_or(|next| next.lookup != Lookup::Known(slot + 1)) {
                self.want(slot / per_leaf, pool.state.now());
            }
        }
    }

    /// Scans the pages in memory, and loads others. Does nothing during a checkpoint, so that summaries and space map are those of one merge.
    pub(crate) fn step(&mut self, pool: &mut CopyAccess<'_>) {
        if self.wanted.is_empty() || pool.checkpoint.is_in_progress() || pool.state.phase() != Phase::Serving {
            return;
        }
        let is_loading = |wanted: &&WantedLeaf| wanted.page.is_some_and(|page| pool.metadata.pages().is_loading(page));
        let mut loading = self.wanted.iter().filter(is_loading).count();
        for _ in 0..self.wanted.len() {
            let Some(mut wanted) = self.wanted.pop_front() else { break };
            match self.go_through(pool, wanted.leaf) {
                Ok(()) => {
                    self.counts.pages += 1;
                    self.done(wanted.leaf, pool.state.now());
                }
                Err(_) if wanted.loads == LOADS_EACH => self.done(wanted.leaf, pool.state.now()),
                Err(missing) => {
                    if loading < LOADS && !pool.metadata.pages().is_loading(missing.key) {
                        pool.load(missing);
                        (wanted.page, wanted.loads) = (Some(missing.key), wanted.loads + 1);
                        self.counts.loads += 1;
                        loading += 1;
                    }
                    self.wanted.push_back(wanted);
                }
            }
        }
    }

    /// Adds the digests of live slots of a summary leaf to the index.
    fn go_through(&mut self, pool: &mut CopyAccess<'_>, leaf: u64) -> Result<(), Missing> {
        pool.each_block_of_leaf(leaf, |pool, slot, state, digest| {
            if state.is_used() {
                self.offer(pool, digest, slot);
            }
        })?;
        Ok(())
    }
}
