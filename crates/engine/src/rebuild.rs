//! Fills the index from the summaries after opening: a job, in the background, a leaf at a time. The pool serves meanwhile;
//! until it is done, some known blocks are written again.

use crate::engine::Engine;
use crate::entry::Slot;
use crate::mend::read_summary;
use crate::pages::{PageKey, Region};
use crate::space::SlotState;
use crate::superblock::TreeId;
use crate::tree::{Missing, Walk, lookup};
use crate::write::SUMMARY_BYTES;

/// Leaves between two looks at requests.
const BUDGET: u32 = 8;

/// The job's progress.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rebuild {
    leaf: u64,
    leaves: u64,
    /// Slots that the index has been told of: no more than it has room for.
    noted: u64,
    /// The page that it waits for.
    waiting: Option<PageKey>,
}

impl Rebuild {
    pub(crate) fn new(slots: u64, block: u64) -> Rebuild {
        Rebuild { leaf: 0, leaves: slots.div_ceil(block / SUMMARY_BYTES), noted: 0, waiting: None }
    }
}

impl Engine {
    pub(crate) fn rebuild_can_step(&self) -> bool {
        let waits = |job: &Rebuild| job.waiting.is_some_and(|key| self.store.pages.is_loading(key));
        self.checkpoint.is_none() && self.rebuild.as_ref().is_some_and(|job| !waits(job))
    }

    /// Tells the index of the blocks of one leaf of summaries that it does not know; gives their number.
    pub(crate) fn note_summaries(&mut self, leaf: u64) -> Result<u64, Missing> {
        let root = self.roots[TreeId::Summaries as usize];
        let per_leaf = self.store.geometry.block() / SUMMARY_BYTES;
        let slots = leaf * per_leaf..((leaf + 1) * per_leaf).min(self.store.geometry.slots());
        let mut noted = 0;
        for slot in slots.clone().map(Slot) {
            if !self.slot_state(slot)?.is_used() {
                continue;
            }
            let page = match lookup(&mut self.store, Region::Metadata, root, leaf) {
                Walk::Leaf(page) => page,
                Walk::Absent(_) => break,
                Walk::Missing(missing) => return Err(missing),
            };
            let at = ((slot.0 - slots.start) * SUMMARY_BYTES) as usize;
            let (digest, owner) = read_summary(self.store.pages.bytes(page), at);
            if self.copied_from(owner).is_none() && !self.index.contains(self.sharing_digest(digest)) {
                self.note_known(digest, slot);
                noted += 1;
            }
        }
        Ok(noted)
    }

    pub(crate) fn step_rebuild(&mut self) {
        let Some(mut job) = self.rebuild else { return };
        let root = self.roots[TreeId::Summaries as usize];
        let per_leaf = self.store.geometry.block() / SUMMARY_BYTES;
        job.waiting = None;
        for _ in 0..BUDGET {
            if job.leaf >= job.leaves || job.noted >= self.index.capacity() {
                self.rebuild = None;
                return;
            }
            match lookup(&mut self.store, Region::Metadata, root, job.leaf) {
                Walk::Leaf(page) => {
                    let slots = job.leaf * per_leaf..((job.leaf + 1) * per_leaf).min(self.store.geometry.slots());
                    // Its part of the space map: one leaf, or the end of one and the beginning of the next.
                    let missing =
                        [slots.start, slots.end - 1].into_iter().find_map(|slot| self.slot_state(Slot(slot)).err());
                    if let Some(missing) = missing {
                        if self.failed_pages.contains(&missing.key) {
                            job.leaf += 1;
                            continue;
                        }
                        job.waiting = Some(missing.key);
                        self.store.load(missing, None);
                        break;
                    }
                    for i in 0..slots.end - slots.start {
                        let slot = Slot(slots.start + i);
                        if self.slot_state(slot).is_ok_and(SlotState::is_used) {
                            let at = (i * SUMMARY_BYTES) as usize;
                            let (digest, owner) = read_summary(self.store.pages.bytes(page), at);
                            if self.copied_from(owner).is_none() {
                                self.note_known(digest, slot);
                                job.noted += 1;
                            }
                        }
                    }
                    job.leaf += 1;
                }
                Walk::Absent(level) => {
                    let span = self.store.geometry.fanout().saturating_pow(u32::from(level));
                    job.leaf = (job.leaf / span).saturating_add(1).saturating_mul(span);
                }
                Walk::Missing(missing) if self.failed_pages.contains(&missing.key) => job.leaf += 1,
                Walk::Missing(missing) => {
                    job.waiting = Some(missing.key);
                    self.store.load(missing, None);
                    break;
                }
            }
        }
        self.rebuild = Some(job);
    }
}
