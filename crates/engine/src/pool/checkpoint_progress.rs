//! Progress of a checkpoint, visible to other parts between its steps: the position of the merge, and the pages that it may still take.

use alloc::vec::Vec;
use core::ops::Range;

use super::Pool;
use crate::format::entry::Slot;
use crate::space::SlotState;

/// State that a checkpoint in progress shares between its steps; during a step the checkpoint holds it.
#[derive(Default)]
pub(crate) struct CheckpointProgress {
    /// Changes of reference counts, found by Maps and Discards. Those before `change_at` are merged: they are in order of slots, each with the current state of
    /// its slot.
    pub changes: Vec<(Slot, i32)>,
    pub change_at: usize,
    /// Index of the volume whose map is being merged.
    pub volume_at: usize,
    /// Pages promised to the index on disk while its stage lasts.
    pub index_pages: usize,
    /// Pages that the checkpoint may take, without those of the index on disk while its stage lasts; and pages taken before it began.
    pub promised: u64,
    pub taken_before: u64,
}

impl CheckpointProgress {
    /// Returns the state of a slot whose count the merge has already changed; `None`: it has not.
    pub(crate) fn merged_state(&self, slot: Slot) -> Option<SlotState> {
        let merged = &self.changes[..self.change_at];
        let at = merged.binary_search_by_key(&slot, |&(slot, _)| slot).ok()?;
        Some(SlotState::from_code(merged[at].1 as u8))
    }

    /// Returns the slots of a range whose counts the merge has already changed, each with its state as a number; some more than once.
    pub(crate) fn merged_in(&self, slots: &Range<u64>) -> &[(Slot, i32)] {
        let merged = &self.changes[..self.change_at];
        let first = merged.partition_point(|&(slot, _)| slot.0 < slots.start);
        let end = merged.partition_point(|&(slot, _)| slot.0 < slots.end);
        &merged[first..end]
    }
}

impl Pool {
    /// Returns the number of checkpoints after which all present changes are durable.
    pub(crate) fn after_next_checkpoint(&mut self) -> u64 {
        self.want_checkpoint = true;
        self.checkpoints_done + if self.in_progress.is_some() { 2 } else { 1 }
    }
}
