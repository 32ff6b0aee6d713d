//! Fills the index from the summaries after opening: a job, in the background, a leaf at a time. The pool serves meanwhile;
//! until it is done, some known blocks are written again. What the index has learned meanwhile comes before what it is filled with.

use alloc::vec::Vec;

use crate::contract::Digest;
use crate::engine::Engine;
use crate::format::entry::Slot;
use crate::pool::Pool;
use crate::store::pages::PageKey;
use crate::store::tree::Missing;

/// Leaves between two looks at requests, when there are none: some hundred microseconds.
const BUDGET: u32 = 8;

/// The job's progress.
#[derive(Debug)]
pub(crate) struct Rebuild {
    leaf: u64,
    leaves: u64,
    /// Slots that the index has been told of: no more than it has room for.
    noted: u64,
    /// What a leaf has for the index.
    found: Vec<(Digest, Slot)>,
    /// The page that it waits for.
    waiting: Option<PageKey>,
}

impl Rebuild {
    /// A rebuild from so many leaves of summaries.
    pub(crate) fn new(leaves: u64) -> Rebuild {
        Rebuild { leaf: 0, leaves, noted: 0, found: Vec::new(), waiting: None }
    }
}

impl Pool {
    /// Tells the index of the blocks of one leaf of summaries that it does not know; gives their number.
    pub(crate) fn note_summaries(&mut self, leaf: u64) -> Result<u64, Missing> {
        let mut noted = 0;
        self.each_block_of_leaf(leaf, |pool, slot, state, digest| {
            if state.is_used() && !pool.index.contains(pool.sharing_digest(digest)) {
                pool.note_known(digest, slot);
                noted += 1;
            }
        })?;
        Ok(noted)
    }
}

impl Engine {
    pub(crate) fn rebuild_can_step(&self) -> bool {
        let waits = |job: &Rebuild| job.waiting.is_some_and(|key| self.pool.store.pages.is_loading(key));
        self.jobs.checkpoint.is_none() && self.jobs.rebuild.as_ref().is_some_and(|job| !waits(job))
    }

    pub(crate) fn step_rebuild(&mut self) {
        let Some(mut job) = self.jobs.rebuild.take() else { return };
        job.waiting = None;
        let budget = if self.is_at_full_speed() { BUDGET } else { 1 };
        for _ in 0..budget {
            if job.leaf >= job.leaves || job.noted >= self.pool.index.capacity() {
                return;
            }
            job.found.clear();
            let next = self.pool.each_block_of_leaf(job.leaf, |pool, slot, state, digest| {
                if state.is_used() {
                    job.found.push((pool.sharing_digest(digest), slot));
                }
            });
            self.pool.index.warm(job.found.iter().map(|&(digest, _)| digest));
            for &(digest, slot) in &job.found {
                job.noted += u64::from(self.pool.index.offer(digest, slot, self.pool.space.generation(slot)));
            }
            match next {
                Ok(next) => job.leaf = next,
                Err(missing) => {
                    job.waiting = Some(missing.key);
                    self.pool.store.load(missing, None);
                    break;
                }
            }
        }
        self.jobs.rebuild = Some(job);
    }
}
