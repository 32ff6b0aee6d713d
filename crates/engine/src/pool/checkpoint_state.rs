//! The checkpoint as other parts of the pool see it: requests for one, its progress between two steps, the pressure that makes one urgent, the discards
//! that one walks, and the writing of superblocks.

use crate::api::{Nanos, VolumeId};
use alloc::vec::Vec;
use core::ops::Range;

use super::Pool;
use super::state::{LoadSnapshot, Phase};
use crate::api::{IoOp, Segment};
use crate::format::entry::Slot;
use crate::format::superblock::Superblock;
use crate::metadata::io::Purpose;
use crate::pool::snapshot_groups::SnapshotGroups;
use crate::space::SlotState;

/// State that a checkpoint in progress shares between its steps; during a step the checkpoint holds it.
#[derive(Default)]
pub(crate) struct CheckpointProgress {
    /// Changes of reference counts, found by Maps and Discards. Those before `change_at` are merged: they are in order of slots, each with the current state of
    /// its slot.
    pub(crate) changes: Vec<(Slot, i32)>,
    pub(crate) change_at: usize,
    /// Index of the volume whose map is being merged.
    pub(crate) volume_at: usize,
    /// Pages promised to the index on disk while its stage lasts.
    pub(crate) index_pages: usize,
    /// Pages that the checkpoint may take, without those of the index on disk while its stage lasts; and pages taken before it began.
    pub(crate) promised: u64,
    pub(crate) taken_before: u64,
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

/// Requests for checkpoints, and the progress of the one in progress.
pub(crate) struct CheckpointState {
    pub(super) want_checkpoint: bool,
    done: u64,
    /// State of the checkpoint in progress, absent while one of its steps has taken it.
    in_progress: Option<CheckpointProgress>,
    /// Time at which the last checkpoint ended.
    last_ended: Nanos,
    /// Snapshots and rollbacks that checkpoints are to make.
    pub(super) snapshots: SnapshotGroups,
}

impl CheckpointState {
    /// Creates the state of a pool that is opened at time `now`.
    pub(super) fn new(now: Nanos) -> CheckpointState {
        let snapshots = SnapshotGroups::default();
        CheckpointState { want_checkpoint: false, done: 0, in_progress: None, last_ended: now, snapshots }
    }

    /// Returns the number of checkpoints that have ended since the pool was opened.
    #[inline]
    pub(crate) fn done(&self) -> u64 {
        self.done
    }

    /// Returns true if a snapshot or a rollback of a volume was asked for and is not durable yet, or if the map is that snapshot. The blocks and leaves of the
    /// volume stay with the snapshot, so changes of them give nothing back; and no record may name the snapshot, or the volume behind the cut of its rollback.
    #[inline]
    pub(crate) fn has_snapshot_pending(&self, map: VolumeId) -> bool {
        !self.snapshots.is_empty() && self.snapshots.has(map, self.done)
    }

    /// Returns true if a rollback of a volume was asked for and is not durable yet: nothing changes the volume.
    #[inline]
    pub(crate) fn rolls_back(&self, volume: VolumeId) -> bool {
        !self.snapshots.is_empty() && self.snapshots.rolls_back(volume, self.done)
    }

    /// Returns true if a rollback to a snapshot was asked for and is not durable yet: the snapshot stays.
    pub(crate) fn rolls_back_to(&self, snapshot: VolumeId) -> bool {
        self.snapshots.rollbacks(self.done).any(|mark| mark.snapshot == snapshot)
    }

    /// Returns the number of maps that rollbacks cut off which are not durable yet.
    #[inline]
    pub(crate) fn rollback_count(&self) -> u64 {
        if self.snapshots.is_empty() { 0 } else { self.snapshots.rollback_count(self.done) }
    }

    /// Returns the time at which the last checkpoint ended.
    pub(crate) fn last_ended(&self) -> Nanos {
        self.last_ended
    }

    /// Returns true if a checkpoint is in progress, and none of its steps has taken its state.
    #[inline]
    pub(crate) fn is_in_progress(&self) -> bool {
        self.in_progress.is_some()
    }

    /// Returns the state of the checkpoint in progress; `None` while one of its steps has taken it.
    #[inline]
    pub(crate) fn in_progress(&self) -> Option<&CheckpointProgress> {
        self.in_progress.as_ref()
    }

    /// Notes that a volume was inserted at an index: the volumes behind it have moved.
    pub(super) fn note_inserted(&mut self, at: usize) {
        if let Some(in_progress) = &mut self.in_progress
            && at <= in_progress.volume_at
        {
            in_progress.volume_at += 1;
        }
    }

    /// Shows the state of the checkpoint between two of its steps.
    pub(crate) fn put(&mut self, progress: CheckpointProgress) {
        assert!(self.in_progress.is_none(), "one checkpoint is in progress");
        self.in_progress = Some(progress);
    }

    /// Takes the state for a step of the checkpoint.
    pub(crate) fn take(&mut self) -> CheckpointProgress {
        self.in_progress.take().unwrap_or_default()
    }

    /// Notes that a checkpoint has ended at time `now`.
    pub(crate) fn note_done(&mut self, now: Nanos) {
        (self.done, self.last_ended) = (self.done + 1, now);
    }
}

impl Pool {
    /// Returns the number of checkpoints after which all present changes are durable.
    pub(crate) fn after_next_checkpoint(&mut self) -> u64 {
        self.request_checkpoint();
        self.checkpoint.done() + if self.checkpoint.is_in_progress() { 2 } else { 1 }
    }

    /// Returns true if any discarded subtree is to be walked, or a deleted snapshot is being handed over.
    pub(crate) fn has_discards(&self) -> bool {
        self.discards_to_walk() > 0 || self.durable.volumes.giver().is_some() && self.hand_over().is_some()
    }

    /// Returns true if background work leaves the blocks of a map in their slots now: a snapshot of it is pending, or it is to be handed over.
    #[inline]
    pub(crate) fn keeps_its_slots(&self, map: VolumeId) -> bool {
        self.checkpoint.has_snapshot_pending(map) || self.durable.volumes.is_to_be_handed_over(map)
    }

    /// Returns the snapshot that is being handed over, and its child.
    pub(crate) fn hand_over(&self) -> Option<(VolumeId, VolumeId)> {
        self.durable.volumes.hand_over().filter(|_| !self.durable.is_hand_over_stopped)
    }

    /// Stops the hand-over until the next opening: a page of it cannot be read.
    pub(crate) fn stop_hand_over(&mut self) {
        self.durable.is_hand_over_stopped = true;
    }

    /// Returns true if inherited leaves that were cut off are to be counted.
    pub(crate) fn has_hidden_to_count(&self) -> bool {
        !self.durable.discards.hidden().is_empty()
    }

    /// Returns the number of discarded subtrees that can be walked.
    pub(crate) fn discards_to_walk(&self) -> usize {
        self.durable.discards.to_walk()
    }

    /// Lets a checkpoint begin as soon as it can, and wakes the engine for it: also where jobs have had their turn in this pump already.
    pub(crate) fn request_checkpoint_and_wake(&mut self) {
        self.wake_if(!self.wants_checkpoint());
        self.request_checkpoint();
    }

    /// Writes a superblock to the given places. Returns `None` if no page is free.
    pub(crate) fn submit_superblock(&mut self, next: &Superblock, places: &[usize], purpose: Purpose) -> Option<()> {
        if self.metadata.pages().available() < places.len() {
            return None;
        }
        let block = self.metadata.geometry().block();
        for &place in places {
            let page = self.metadata.pages_mut().allocate()?;
            next.encode(self.metadata.pages_mut().bytes_mut(page));
            let offset = self.metadata.geometry().superblock_block(place, next.epoch) * block;
            self.metadata.io_mut().begin(IoOp::Write, offset, block, [Segment::Page(page)], purpose);
        }
        Some(())
    }

    /// Returns true if something waits for a checkpoint, or soon would.
    pub(crate) fn is_pressed(&self, load: &LoadSnapshot) -> bool {
        let limit = self.limits.delta_entries as usize;
        let full_delta = self.durable.delta.len() >= limit / 2
            && (!self.durable.frozen.is_empty() || self.durable.delta.len() >= limit / 4 * 3);
        full_delta
            || self.durable.space.free() < self.durable.frozen.len() as u64 / 2
            || self.durable.journal.used() >= self.durable.journal.ring() / 4 * 3
            || self.durable.journal.entries() >= 3 * limit as u64
            || load.is_blocked()
            || self.state.phase() == Phase::Closing
    }

    /// Returns true if background work runs at full speed: the pool is idle, or pressed.
    pub(crate) fn is_at_full_speed(&self, load: &LoadSnapshot) -> bool {
        load.is_idle || self.is_pressed(load)
    }

    /// Lets a checkpoint begin as soon as it can.
    pub(crate) fn request_checkpoint(&mut self) {
        self.checkpoint.want_checkpoint = true;
    }

    /// Lets a checkpoint begin as soon as it can, if `wants` is true.
    pub(crate) fn request_checkpoint_if(&mut self, wants: bool) {
        self.checkpoint.want_checkpoint |= wants;
    }

    /// Returns true if a checkpoint was requested that has not begun.
    pub(crate) fn wants_checkpoint(&self) -> bool {
        self.checkpoint.want_checkpoint
    }

    /// Ends the request for a checkpoint, as one begins.
    pub(crate) fn end_checkpoint_request(&mut self) {
        self.checkpoint.want_checkpoint = false;
    }
}
