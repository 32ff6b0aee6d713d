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

use alloc::vec::Vec;

use super::Pool;
use crate::api::VolumeId;
use crate::format::volume::{Keeps, Volume};
use crate::pool::disk_index::NO_VOLUME;
use crate::pool::state::Phase;

/// Counts of the tables at a moment.
#[derive(Clone, Debug)]
pub(crate) struct Counted {
    data: u64,
    orphaned: Option<u64>,
    /// Number, kind and mapped blocks of each volume, in the order of their numbers.
    volumes: Vec<(VolumeId, Option<Keeps>, u64)>,
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
    fn counts(&self) -> Counted {
        let counts = |volume: &Volume| (volume.id, volume.keeps, volume.logical_blocks_used);
        Counted {
            data: self.durable.space.data_used(),
            orphaned: self.durable.orphaned,
            volumes: self.durable.volumes.iter().map(counts).collect(),
        }
    }

    /// Saves the counts of the tables: a checkpoint begins to change them.
    pub(crate) fn note_counted(&mut self) {
        self.durable.counted = Some(self.counts());
    }

    /// Drops the saved counts: a checkpoint has changed all tables.
    pub(crate) fn note_merged(&mut self) {
        self.durable.counted = None;
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
        if !self.durable.discards.iter().any(|discard| is_orphan(discard.volume)) {
            self.durable.orphaned = Some(0);
        } else if self.state.phase() == Phase::Recovering {
            self.durable.orphaned = None;
        }
    }

    /// Returns the number of mapped, non-zero blocks of a volume. Blocks overwritten since the last merge count twice, up to its size.
    pub(crate) fn held_by(&self, volume: &Volume) -> u64 {
        let counted = self.durable.counted.as_ref().and_then(|counted| {
            let at = counted.volumes.binary_search_by_key(&volume.id, |(id, ..)| *id).ok()?;
            Some(counted.volumes[at].2)
        });
        let merged = match (&self.durable.counted, counted) {
            (Some(_), counted) => counted.unwrap_or(0),
            (None, _) => volume.logical_blocks_used,
        };
        let newer = self.durable.delta.mapped(volume.id) + self.durable.frozen.mapped(volume.id);
        (merged + newer).min(volume.size.div_ceil(self.geometry().block()))
    }

    /// Returns the current counts of mapped blocks and of their slots.
    pub(crate) fn held(&self) -> Held {
        let counts;
        let counted = match &self.durable.counted {
            Some(counted) => counted,
            None => {
                counts = self.counts();
                &counts
            }
        };
        let mut held = Held {
            data: counted.data + self.durable.delta.fresh() + self.durable.frozen.fresh(),
            leaving: counted.orphaned.unwrap_or(0),
            is_leaving_known: counted.orphaned.is_some(),
            ..Held::default()
        };
        let newer = |id: VolumeId| self.durable.delta.mapped(id) + self.durable.frozen.mapped(id);
        let is_visible = |id: VolumeId| self.volume_index(id).is_some();
        for &(id, keeps, merged) in &counted.volumes {
            let blocks = merged + newer(id);
            match keeps {
                Some(_) => held.copies += blocks,
                None if is_visible(id) => held.mapped += blocks,
                None => held.leaving += blocks,
            }
        }
        // Volumes created after the checkpoint began.
        let is_new = |volume: &&Volume| counted.volumes.binary_search_by_key(&volume.id, |(id, ..)| *id).is_err();
        for volume in self.durable.volumes.iter().filter(is_new) {
            match volume.keeps {
                Some(_) => held.copies += newer(volume.id),
                None if is_visible(volume.id) => held.mapped += newer(volume.id),
                None => held.leaving += newer(volume.id),
            }
        }
        held
    }
}
