//! Snapshots of volumes, and their clones (RFC 0020).
//!
//! A snapshot takes the map of its volume at the cut of a checkpoint, and the volume inherits all of it from then on. It is in force when that checkpoint is
//! durable; no record tells of it. The snapshots of a group are of one cut.
//!
//! ```text
//! command     enters the snapshots, without maps and invisible, and asks for a checkpoint
//! cut         takes the groups whose mappings in the map buffer it can flush; for the first of the others, it flushes as much as it can
//! Plan        chooses all leaves of these volumes that have new or buffered mappings: a map that others inherit from must be complete; without space for
//!             them, the groups wait for the next checkpoint
//! Maps        gives the volume's map to the snapshot, once it is merged (`VolumeTable::take_snapshot`)
//! superblock  makes it durable, and the command is answered
//! ```
//!
//! What must hold: a group is made as a whole, or refused as a whole. A volume with snapshots is not deleted. A snapshot that others inherit from stays when it
//! is deleted, without a name, and is removed as a volume is when the last of them is gone.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use crate::api::{ControlError, VolumeId, VolumePropertyChange};
use crate::counters::VolumeWrites;
use crate::format::entry::Key;
use crate::format::superblock::Root;
use crate::format::volume::{Family, Snapshot, Volume, is_name, is_snapshot_name};
use crate::mutant::Mutant;
use crate::pool::Pool;
use crate::pool::snapshot_groups::{GroupChange, Mark, SnapshotPlan};
use crate::pool::volumes::{VolumeChange, end_of};
use crate::properties::SnapshotSchedule;

/// Maximum number of snapshots of a volume.
pub(crate) const MAX_SNAPSHOTS: usize = 4096;
impl Pool {
    /// Enters a snapshot of each volume, all with one name and of one cut. `seconds` is the time of the driver's clock. Returns the group to ask for.
    pub(crate) fn create_snapshots(
        &mut self,
        volumes: &[VolumeId],
        name: &str,
        seconds: u64,
    ) -> Result<u64, ControlError> {
        if !self.takes_changes() {
            return Err(ControlError::ReadOnly);
        }
        if !is_snapshot_name(name) {
            return Err(ControlError::BadName);
        }
        if volumes.is_empty() {
            return Err(ControlError::NoVolume);
        }
        let mut leaves = 0;
        for (at, &id) in volumes.iter().enumerate() {
            let volume = self.shown_volume(id)?;
            if volume.is_snapshot() {
                return Err(ControlError::IsSnapshot);
            }
            leaves += volume.size.div_ceil(self.geometry().block() * self.geometry().map_leaf_entries());
            if volumes[..at].contains(&id) || self.durable.volumes.snapshot_named(id, name).is_some() {
                return Err(ControlError::Exists);
            }
            if self.durable.volumes.snapshots_of(id).count() >= MAX_SNAPSHOTS {
                return Err(ControlError::TooManySnapshots);
            }
        }
        if self.durable.volumes.len() + volumes.len() > self.limits.volumes as usize {
            return Err(ControlError::TooManyVolumes);
        }
        if !self.has_metadata_for_volume(leaves) {
            return Err(ControlError::NoSpace);
        }
        // A snapshot has no snapshots, so its clones begin without a schedule.
        let off = VolumePropertyChange { snapshots: Some(SnapshotSchedule::OFF), ..VolumePropertyChange::default() };
        let mut marks = Vec::with_capacity(volumes.len());
        for &of in volumes {
            let Some(snapshot) = self.free_number(None) else {
                self.withdraw(&marks);
                return Err(ControlError::TooManyVolumes);
            };
            let volume = &self.durable.volumes[self.durable.volumes.find(of).expect("it was found")];
            let taken = Snapshot { of, born: 0, created: seconds, held: false, gives: false };
            let entry = Volume {
                id: snapshot,
                name: String::from(name),
                family: Family { snapshot: Some(taken), ..Family::default() },
                properties: volume.properties.with(&off),
                is_pressed: false,
                // The checkpoint that makes it sets both sizes.
                merged_size: volume.size,
                logical_blocks_used: 0,
                since: u64::MAX,
                writes: VolumeWrites::default(),
                ..volume.clone()
            };
            let at = self.durable.volumes.create(entry, Root::default());
            self.checkpoint.note_inserted(at);
            marks.push(Mark { volume: of, snapshot });
        }
        self.review_space();
        self.request_checkpoint();
        Ok(self.checkpoint.snapshots.add(GroupChange::Snapshots, marks))
    }

    /// Returns the result of a group of snapshots or of a rollback, once: durable, or refused. `None` while it waits.
    pub(crate) fn take_snapshots_result(&mut self, id: u64) -> Option<Result<(), ControlError>> {
        let done = self.checkpoint.done();
        self.checkpoint.snapshots.take_result(id, done)
    }

    /// Chooses the snapshots and rollbacks that the beginning checkpoint makes, and refuses those that cannot be made.
    pub(crate) fn begin_snapshots(&mut self) -> SnapshotPlan {
        if self.checkpoint.snapshots.is_empty() {
            return SnapshotPlan::default();
        }
        let since = self.checkpoint.done() + 1;
        let buffered = |volume: VolumeId| {
            self.volume_index(volume)?;
            Some(self.durable.map_buffer.count(Key::new(volume, 0), end_of(volume)))
        };
        let buffered: BTreeMap<VolumeId, Option<usize>> =
            self.checkpoint.snapshots.waiting().map(|volume| (volume, buffered(volume))).collect();
        let (most, splits) = (self.limits.flushed(), self.mutant(Mutant::GroupInTwoCuts));
        // Each rollback adds a subtree to the discard list, at least one where the list is empty.
        let cut_off = self.discards_to_walk() as u64 + self.cuts_to_merge();
        let cuts = u64::from(self.limits.discards).saturating_sub(cut_off).max(u64::from(cut_off == 0));
        let buffered = |volume| buffered.get(&volume).copied().flatten();
        let taker = self.hand_over().map(|(_, taker)| taker);
        let (plan, refused, waits) = self.checkpoint.snapshots.begin(since, most, cuts, taker, splits, buffered);
        self.withdraw(&refused);
        for mark in plan.marks() {
            let at = self.durable.volumes.find(mark.snapshot).expect("it was entered");
            self.durable.volumes.schedule(at, mark.volume, since);
        }
        for mark in plan.rollbacks() {
            self.durable.volumes.schedule_rollback(mark.volume, mark.snapshot);
        }
        self.request_checkpoint_if(waits);
        plan
    }

    /// Defers the snapshots and rollbacks of the beginning checkpoint to the next one: their leaves find no space. Refuses those that were deferred often.
    pub(crate) fn defer_snapshots(&mut self) {
        let (deferred, refused) = self.checkpoint.snapshots.defer(self.checkpoint.done() + 1);
        for mark in deferred {
            let at = self.durable.volumes.find(mark.snapshot).expect("it was entered");
            self.durable.volumes.unschedule(at);
        }
        self.withdraw(&refused);
        self.durable.volumes.withdraw_rollbacks();
        let waits = self.checkpoint.snapshots.waiting().next().is_some();
        self.request_checkpoint_if(waits);
        self.wake();
    }

    /// Removes snapshots that were entered and not made. No map is being merged.
    fn withdraw(&mut self, marks: &[Mark]) {
        for mark in marks {
            let at = self.durable.volumes.find(mark.snapshot).expect("it was entered");
            self.durable.volumes.withdraw(at);
        }
    }

    /// Enters a clone of a snapshot: a writable volume that inherits all of it. Returns the number of checkpoints after which it is durable.
    pub(crate) fn clone_snapshot(&mut self, snapshot: VolumeId, name: &str) -> Result<u64, ControlError> {
        if !self.takes_changes() {
            return Err(ControlError::ReadOnly);
        }
        let origin = self.shown_volume(snapshot)?.clone();
        if !origin.is_snapshot() {
            return Err(ControlError::NotSnapshot);
        }
        if !is_name(name) {
            return Err(ControlError::BadName);
        }
        if self.durable.volumes.named(name).is_some() {
            return Err(ControlError::Exists);
        }
        let id = self.free_number(None).filter(|_| self.durable.volumes.len() < self.limits.volumes as usize);
        let id = id.ok_or(ControlError::TooManyVolumes)?;
        if !self
            .has_metadata_for_volume(origin.size.div_ceil(self.geometry().block() * self.geometry().map_leaf_entries()))
        {
            return Err(ControlError::NoSpace);
        }
        let since = self.after_next_checkpoint();
        // An image is kept read-only and protected; its clones are made to be written, and to be deleted.
        let off = Some(false);
        let writable = VolumePropertyChange { read_only: off, protected: off, ..VolumePropertyChange::default() };
        let clone = Volume {
            id,
            name: String::from(name),
            family: Family { parent: Some(snapshot), ..Family::default() },
            logical_blocks_used: 0,
            since,
            properties: origin.properties.with(&writable),
            writes: VolumeWrites::default(),
            ..origin
        };
        let at = self.durable.volumes.create_clone(clone);
        self.checkpoint.note_inserted(at);
        self.review_space();
        Ok(since)
    }

    /// Takes the name of a snapshot away: it is deleted for its users, and removed when nothing inherits from it. Returns the number of checkpoints after which
    /// that is durable.
    pub(crate) fn delete_snapshot(&mut self, snapshot: VolumeId) -> Result<u64, ControlError> {
        if !self.takes_changes() {
            return Err(ControlError::ReadOnly);
        }
        self.shown_volume(snapshot)?;
        self.check_deletion(snapshot)?;
        if self.checkpoint.rolls_back_to(snapshot) {
            return Err(ControlError::RollbackPending);
        }
        let at = self.volume_index(snapshot).ok_or(ControlError::NoVolume)?;
        self.durable.volumes.take_name(at);
        Ok(self.after_next_checkpoint())
    }

    /// Begins to remove the deleted snapshots that nothing inherits from, as far as there is space.
    pub(crate) fn remove_unneeded_snapshots(&mut self, clears_left: bool) {
        while let Some(volume) = self.unneeded_snapshot().filter(|_| self.takes_changes()) {
            if !matches!(self.change_volume(VolumeChange::Delete { volume }, clears_left), Ok(Some(_))) {
                return;
            }
        }
    }

    /// Returns a deleted snapshot that nothing inherits from, and that is still to be removed.
    pub(crate) fn unneeded_snapshot(&self) -> Option<VolumeId> {
        let volumes = &self.durable.volumes;
        volumes.unnamed().find(|&id| volumes.lineage().child_count(id) == 0)
    }

    /// Returns a volume or snapshot that users see.
    pub(super) fn shown_volume(&self, id: VolumeId) -> Result<&Volume, ControlError> {
        let at = self.volume_index(id).ok_or(ControlError::NoVolume)?;
        let volume = &self.durable.volumes[at];
        if self.users_see(volume) { Ok(volume) } else { Err(ControlError::NoVolume) }
    }
}
