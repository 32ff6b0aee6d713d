//! Progress of a checkpoint, as others see it between its steps: how far the merge has come, and the pages that it may still take.

use alloc::vec::Vec;
use core::ops::Range;

use super::Pool;
use crate::format::entry::Slot;
use crate::space::SlotState;

/// State that a checkpoint in progress lends to others between its steps; during a step the checkpoint has it.
#[derive(Default)]
pub(crate) struct CheckpointProgress {
    /// Changes of reference counts, found by Maps and Discards. Up to `change_at` they are merged: then in order of slots, with
    /// the state that the slot has now.
    pub changes: Vec<(Slot, i32)>,
    pub change_at: usize,
    /// The volume whose map is being merged.
    pub volume_at: usize,
    /// Pages that the index on disk may take, while its stage lasts: promised to it.
    pub index_pages: usize,
    /// Pages that the checkpoint may take, the index on disk not included while its stage lasts; and what had been taken before it began.
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
    /// Checkpoints after which everything of this moment is durable.
    pub(crate) fn after_next_checkpoint(&mut self) -> u64 {
        self.want_checkpoint = true;
        self.checkpoints_done + if self.in_progress.is_some() { 2 } else { 1 }
    }
}
