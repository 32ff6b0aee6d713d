//! Blocks that volumes map now, and the slots that hold them: headline figures of the status.
//!
//! Tables are as of the last merge. Newer changes are in the deltas, which count their points by volume and their fresh slots. So the current
//! figures are the sums. They are consistent: each counted slot has a counted mapping. A block that was overwritten or trimmed since the last
//! merge is still counted with its old slot. So the share of saved blocks is between 0 and 1.
//!
//! A checkpoint changes the maps long before the counts. While one is in progress, and permanently if it fails, the tables count as of its
//! beginning, and the frozen delta still has the newer changes.
//!
//! The map of a deleted volume is walked in parts, after the volume has left the list. The rest of such maps is counted here while the pool is
//! open. After a restart the count is unknown until all of them are walked; the figures then say so.

use crate::api::VolumeId;
use crate::format::volume::Volume;
use crate::pool::Pool;
use crate::pool::disk_index::NO_VOLUME;
use crate::pool::state::Phase;

/// Counts of the tables at a moment. Those of the volumes are with the volumes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counted {
    data: u64,
    orphaned: Option<u64>,
}

/// Blocks that volumes map at this moment, and the slots for them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Held {
    /// Mapped, non-zero blocks of volumes, except deleted ones and those that keep copies. Blocks overwritten since the last merge count twice.
    pub mapped: u64,
    /// Known mapped blocks of deleted volumes whose slots are still to be freed.
    pub leaving: u64,
    /// True if all of these are known.
    pub is_leaving_known: bool,
    /// Slots in use.
    pub data: u64,
    /// Slots in use for second copies and replicas.
    pub copies: u64,
}

impl Held {
    /// Returns the number of mapped blocks beyond the first of each slot.
    pub fn redirected(&self) -> u64 {
        (self.mapped + self.leaving).saturating_sub(self.data.saturating_sub(self.copies))
    }
}

impl Pool {
    /// Saves the counts of the tables: a checkpoint begins to change them.
    pub(crate) fn note_counted(&mut self) {
        let counted = Counted { data: self.durable.space.data_used(), orphaned: self.durable.orphaned };
        self.durable.counted = Some(counted);
        self.durable.volumes.begin_counting();
    }

    /// Drops the saved counts: a checkpoint has changed all tables.
    pub(crate) fn note_merged(&mut self) {
        self.durable.counted = None;
        self.durable.volumes.end_counting();
        self.review_orphans();
    }

    /// Adds the blocks of a deleted volume that leaves the list to those in unwalked subtrees.
    pub(crate) fn orphan(&mut self, volume: &Volume) {
        self.durable.orphaned = self.durable.orphaned.map(|blocks| blocks + volume.logical_blocks_used);
    }

    /// Subtracts `freed` blocks of unwalked subtrees that have been walked.
    pub(crate) fn walked_orphans(&mut self, freed: u64) {
        self.durable.orphaned = self.durable.orphaned.map(|blocks| blocks.saturating_sub(freed));
    }

    /// Resets the count of unwalked blocks to 0 if no subtree of a deleted volume is left. If some are left at opening, the count is unknown. Callers do this
    /// at opening and at the end of a checkpoint.
    pub(crate) fn review_orphans(&mut self) {
        if self.durable.orphaned == Some(0) && self.state.phase() != Phase::Recovering {
            return;
        }
        let is_there = |volume: VolumeId| self.durable.volumes.find(volume).is_some();
        let is_orphan = |volume: VolumeId| volume != NO_VOLUME && !is_there(volume);
        if !self.durable.discards.volumes().any(is_orphan) {
            self.durable.orphaned = Some(0);
        } else if self.state.phase() == Phase::Recovering {
            self.durable.orphaned = None;
        }
    }

    /// Returns the number of mapped, non-zero blocks of a volume. Blocks overwritten since the last merge count twice, up to its size.
    pub(crate) fn held_by(&self, volume: &Volume) -> u64 {
        let merged = self.durable.volumes.blocks_formerly(volume);
        let newer = self.durable.delta.mapped(volume.id) + self.durable.frozen.mapped(volume.id);
        (merged + newer).min(volume.size.div_ceil(self.geometry().block()))
    }

    /// Returns the current counts of mapped blocks and of their slots.
    pub(crate) fn held(&self) -> Held {
        let Counted { data, orphaned } = self
            .durable
            .counted
            .unwrap_or(Counted { data: self.durable.space.data_used(), orphaned: self.durable.orphaned });
        let (delta, frozen) = (&self.durable.delta, &self.durable.frozen);
        let merged = self.durable.volumes.mapped_formerly();
        let newer = |id: VolumeId| delta.mapped(id) + frozen.mapped(id);
        let hidden = [self.durable.copies, self.hints.replicas.volume].into_iter().flatten().map(newer).sum::<u64>();
        let leaving = self.durable.volumes.deleted().map(newer).sum::<u64>();
        let all = delta.mapped_of_all() + frozen.mapped_of_all();
        Held {
            mapped: merged.live + merged.snapshots + all - hidden - leaving,
            leaving: merged.deleted + leaving + orphaned.unwrap_or(0),
            is_leaving_known: orphaned.is_some(),
            data: data + delta.fresh() + frozen.fresh(),
            copies: merged.hidden() + hidden,
        }
    }
}
