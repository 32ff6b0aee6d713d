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

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::api::VolumeId;
use crate::block_map::discards::HiddenRange;
use crate::format::bytes::u64_at;
use crate::format::entry::Entry;
use crate::format::volume::Volume;
use crate::metadata::page_cache::Region;
use crate::metadata::tree::{Stop, Walk, lookup};
use crate::pool::Pool;
use crate::pool::disk_index::NO_VOLUME;
use crate::pool::state::Phase;

/// Number of lookups of one step in inherited leaves that were cut off.
const ABSENT_AT_ONCE: u32 = 64;

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

/// Inherited blocks of maps, as far as an answer has counted them.
#[derive(Default)]
pub struct InheritedCounts(BTreeMap<VolumeId, i64>);

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

    /// Adds the blocks of a deleted volume that leaves the list to those in unwalked subtrees. Nothing reads its count of hidden blocks any more.
    pub(crate) fn orphan(&mut self, volume: &Volume) {
        self.durable.discards.forget_hidden(volume.id);
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

    /// Returns the number of mapped blocks that a map inherits: those that its parent maps or inherits, without those that it hides. `known` saves steps after
    /// other maps of the family. Negative while blocks of a deleted snapshot without parent are released: they are counted in its child, as own and as hidden.
    fn inherited_by(&self, map: VolumeId, known: &mut InheritedCounts) -> i64 {
        let mut path = Vec::new();
        let mut next = Some(map);
        let mut blocks = 0;
        while let Some((id, at)) = next.and_then(|id| Some((id, self.durable.volumes.find(id)?))) {
            if let Some(&found) = known.0.get(&id) {
                blocks = found;
                break;
            }
            path.push((id, at));
            next = self.durable.volumes.lineage().parent(id);
        }
        for (id, at) in path.into_iter().rev() {
            let volume = &self.durable.volumes[at];
            if let Some(parent) = volume.family.parent.and_then(|parent| self.durable.volumes.find(parent)) {
                blocks += self.durable.volumes[parent].logical_blocks_used as i64;
            }
            blocks -= volume.family.hidden.blocks as i64;
            known.0.insert(id, blocks);
        }
        blocks
    }

    /// Returns the number of mapped, non-zero blocks that a volume reads as: its own and those that it inherits. Blocks overwritten since the last merge count
    /// twice, up to its size.
    pub(crate) fn referred_by(&self, volume: &Volume, known: &mut InheritedCounts) -> u64 {
        let blocks = self.held_by(volume).saturating_add_signed(self.inherited_by(volume.id, known));
        blocks.min(volume.size.div_ceil(self.geometry().block()))
    }

    /// Counts the mapped blocks in the first leaf of a range that the ancestor has. Returns their number, and the leaf to continue with.
    pub(crate) fn hidden_in_leaf(&mut self, range: HiddenRange) -> Result<(u64, u64), Stop> {
        let HiddenRange { volume, epoch, first, end } = range;
        let fanout = self.geometry().fanout();
        let (mut map, mut epoch) = (volume, epoch);
        let mut leaf = first;
        for _ in 0..ABSENT_AT_ONCE {
            if leaf >= end {
                break;
            }
            map = self.durable.volumes.lineage().ancestor_for(map, epoch).ok_or(Stop::Contradiction)?;
            let at = self.durable.volumes.find(map).ok_or(Stop::Contradiction)?;
            match lookup(&mut self.metadata, Region::Metadata, self.durable.volumes.map(at), leaf) {
                Walk::Leaf(page) => {
                    let entries = self.metadata.pages().bytes(page).chunks_exact(8);
                    let is_mapped = |entry: Entry| entry.slot().is_some() || entry.inherited_from().is_some();
                    let mapped = entries.filter(|entry| is_mapped(Entry(u64_at(entry, 0)))).count();
                    return Ok((mapped as u64, leaf + 1));
                }
                Walk::From { epoch: older, .. } => {
                    epoch = older;
                    continue;
                }
                Walk::Absent(level) => {
                    let span = fanout.saturating_pow(level.into());
                    leaf = (leaf / span).saturating_add(1).saturating_mul(span);
                }
                // Lost blocks count for none. Those of a page that cannot be read are not known: the count is too low by them.
                Walk::Missing(missing) if self.is_unreadable(&missing) => {
                    if !missing.pointer.is_lost() {
                        let at = self.durable.volumes.find(volume).ok_or(Stop::Contradiction)?;
                        self.durable.volumes.note_hidden_is_low(at);
                    }
                    leaf += 1;
                }
                Walk::Missing(missing) => return Err(Stop::Missing(missing)),
            }
            (map, epoch) = (volume, range.epoch);
        }
        Ok((0, leaf.min(end)))
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
