//! Index rebuild: a background job that fills the dedup index from the summaries after opening, a leaf at a time. The pool serves meanwhile. Until
//! the rebuild is done, some known contents are stored again; these duplicates are left to the dedup pass. Entries that the index has learned
//! meanwhile take precedence over entries from the summaries.

use crate::jobs::job::CopyContext;
use crate::pool::copy_access::CopyAccess;
use alloc::vec::Vec;

use crate::api::Digest;
use crate::format::entry::Slot;
use crate::jobs::job::Job;
use crate::metadata::page_cache::PageKey;
use crate::pool::Pool;
use crate::pool::state::LoadSnapshot;

/// Number of leaves between two checks for requests, when there are none: some hundred microseconds.
const BUDGET: u32 = 8;

/// The job's progress.
#[derive(Default, Debug)]
pub(crate) struct IndexRebuild {
    is_in_progress: bool,
    /// True if the pool was just opened, and held data: writes may miss known contents.
    misses: bool,
    leaf: u64,
    leaves: u64,
    /// Number of slots that were added to the index: no more than it has space for.
    noted: u64,
    /// Digests and slots of a leaf for the index.
    found: Vec<(Digest, Slot)>,
    /// Page that it waits for.
    waiting: Option<PageKey>,
}

impl IndexRebuild {
    /// Begins anew, from N leaves of summaries.
    pub(crate) fn begin(&mut self, leaves: u64) {
        *self = IndexRebuild { is_in_progress: true, leaves, ..IndexRebuild::default() };
    }

    /// Begins for a pool that was just opened; `misses`: it holds data.
    pub(crate) fn begin_after_opening(&mut self, leaves: u64, misses: bool) {
        self.begin(leaves);
        self.misses = misses;
    }

    /// Returns true if writes may miss contents that the pool holds.
    pub(crate) fn misses(&self) -> bool {
        self.misses
    }

    /// Returns the part that is done, in millionths; `None` if it is not in progress.
    pub(crate) fn done_ppm(&self) -> Option<u32> {
        self.is_in_progress.then(|| (self.leaf.min(self.leaves) * 1_000_000 / self.leaves.max(1)) as u32)
    }

    /// Ends the rebuild; entries that are left stay out of the index.
    pub(crate) fn end(&mut self) {
        *self = IndexRebuild::default();
    }

    fn fill(&mut self, pool: &mut CopyAccess<'_>, budget: u32) {
        self.waiting = None;
        for _ in 0..budget {
            if self.leaf >= self.leaves || self.noted >= pool.hints.index.capacity() {
                return self.end();
            }
            self.found.clear();
            let next = pool.each_block_of_leaf(self.leaf, |pool, slot, state, digest| {
                if state.is_used() {
                    self.found.push((pool.sharing_digest(digest), slot));
                }
            });
            pool.hints.index.warm(self.found.iter().map(|&(digest, _)| digest));
            for &(digest, slot) in &self.found {
                self.noted += u64::from(pool.offer_to_index(digest, slot));
            }
            match next {
                Ok(next) => self.leaf = next,
                Err(missing) => {
                    self.waiting = Some(missing.key);
                    return pool.load(missing);
                }
            }
        }
    }
}

impl Job for IndexRebuild {
    type Work<'a> = CopyContext<'a>;

    fn is_in_progress(&self) -> bool {
        self.is_in_progress
    }

    fn can_step(&self, _: &Pool, _: &LoadSnapshot) -> bool {
        self.is_in_progress
    }

    fn can_advance(&self) -> bool {
        false
    }

    fn is_stuck(&self, pool: &Pool) -> bool {
        self.waiting.is_some_and(|key| pool.metadata.pages().is_loading(key))
    }

    fn step(&mut self, work: &mut CopyContext<'_>) {
        let pool = &mut work.pool;
        let (visits, reads) = (pool.metadata.page_visits(), pool.metadata.io().in_flight());
        self.fill(pool, if pool.is_at_full_speed(&work.load) { BUDGET } else { 1 });
        let (visits, reads) = (pool.metadata.page_visits() - visits, pool.metadata.io().in_flight() - reads);
        pool.counters().rebuild_page_visits += visits;
        pool.counters().rebuild_loads += reads as u64;
    }
}
