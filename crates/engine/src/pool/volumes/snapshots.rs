//! Snapshots of volumes, and their clones (RFC 0020).
//!
//! A snapshot takes the map of its volume at the cut of a checkpoint, and the volume inherits all of it from then on. It is in force when that checkpoint is
//! durable; no record tells of it. The snapshots of a group are of one cut.
//!
//! ```text
//! command     enters the snapshots, without maps and invisible, and asks for a checkpoint
//! cut         takes the groups whose mappings in the map buffer it can flush; for the first of the others, it flushes as much as it can
//! Plan        chooses all leaves of these volumes that have new or buffered mappings: a map that others inherit from must be complete
//! Maps        gives the volume's map to the snapshot, once it is merged (`VolumeTable::take_snapshot`)
//! superblock  makes it durable, and the command is answered
//! ```
//!
//! What must hold: a group is made as a whole, or refused as a whole. A volume with snapshots is not deleted. A snapshot that others inherit from stays when it
//! is deleted, without a name, and is removed as a volume is when the last of them is gone.

use alloc::string::String;
use alloc::vec::Vec;

use crate::api::{ControlError, VolumeId, VolumePropertyChange};
use crate::counters::VolumeWrites;
use crate::format::entry::Key;
use crate::format::superblock::Root;
use crate::format::volume::{Family, Snapshot, Volume, is_name};
use crate::pool::Pool;
use crate::pool::volumes::{VolumeChange, end_of};

/// Maximum number of snapshots of a volume.
pub(crate) const MAX_SNAPSHOTS: usize = 4096;
/// Number of checkpoints that flush the map buffer for a group before it is refused.
const ROUNDS: u32 = 4;

/// Volume and its snapshot that a checkpoint makes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Mark {
    pub volume: VolumeId,
    pub snapshot: VolumeId,
}

/// Progress of a group of snapshots.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum GroupState {
    /// Waits for a cut, after this many checkpoints that flushed for it.
    Waits {
        rounds: u32,
    },
    /// Is part of a checkpoint, and durable when this number of them is done.
    Cut {
        since: u64,
    },
    Refused(ControlError),
}

struct Group {
    id: u64,
    marks: Vec<Mark>,
    state: GroupState,
}

/// Groups of snapshots that are not durable yet, or whose commands are not answered.
#[derive(Default)]
pub(crate) struct SnapshotGroups {
    groups: Vec<Group>,
    next: u64,
}

/// Snapshots that a checkpoint makes, and the volumes for which it flushes the map buffer; both in the order of volumes.
#[derive(Default)]
pub(crate) struct SnapshotPlan {
    pub marks: Vec<Mark>,
    pub flushed: Vec<VolumeId>,
}

impl SnapshotGroups {
    /// Returns true if a snapshot of a volume was asked for and is not durable yet.
    fn has(&self, volume: VolumeId, done: u64) -> bool {
        let is_open = |group: &&Group| match group.state {
            GroupState::Waits { .. } => true,
            GroupState::Cut { since } => done < since,
            GroupState::Refused(_) => false,
        };
        self.groups.iter().filter(is_open).any(|group| group.marks.iter().any(|mark| mark.volume == volume))
    }
}

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
        if !is_name(name) {
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
        let mut marks = Vec::with_capacity(volumes.len());
        for &of in volumes {
            let Some(snapshot) = self.free_number(None) else {
                self.withdraw(&marks);
                return Err(ControlError::TooManyVolumes);
            };
            let volume = &self.durable.volumes[self.durable.volumes.find(of).expect("it was found")];
            let taken = Snapshot { of, born: 0, created: seconds };
            let entry = Volume {
                id: snapshot,
                name: String::from(name),
                family: Family { parent: None, snapshot: Some(taken) },
                is_pressed: false,
                logical_blocks_used: 0,
                since: u64::MAX,
                writes: VolumeWrites::default(),
                ..volume.clone()
            };
            let at = self.durable.volumes.create(entry, Root::default());
            self.checkpoint.note_inserted(at);
            marks.push(Mark { volume: of, snapshot });
        }
        marks.sort();
        let groups = &mut self.checkpoint.snapshots;
        let id = groups.next;
        groups.next += 1;
        groups.groups.push(Group { id, marks, state: GroupState::Waits { rounds: 0 } });
        self.review_space();
        self.request_checkpoint();
        Ok(id)
    }

    /// Returns the result of a group of snapshots, once: durable, or refused. `None` while it waits.
    pub(crate) fn snapshots_result(&mut self, id: u64) -> Option<Result<(), ControlError>> {
        let done = self.checkpoint.done();
        let groups = &mut self.checkpoint.snapshots.groups;
        let at = groups.iter().position(|group| group.id == id)?;
        let result = match groups[at].state {
            GroupState::Cut { since } if since <= done => Ok(()),
            GroupState::Refused(error) => Err(error),
            GroupState::Cut { .. } | GroupState::Waits { .. } => return None,
        };
        groups.remove(at);
        Some(result)
    }

    /// Returns true if a snapshot of a volume was asked for and is not durable yet. What its blocks and leaves have stays with the snapshot, so changes of them
    /// give nothing back.
    pub(crate) fn has_snapshot_pending(&self, volume: VolumeId) -> bool {
        !self.checkpoint.snapshots.groups.is_empty() && self.checkpoint.snapshots.has(volume, self.checkpoint.done())
    }

    /// Chooses the snapshots that the beginning checkpoint makes, and refuses those that cannot be made.
    pub(crate) fn begin_snapshots(&mut self) -> SnapshotPlan {
        let mut plan = SnapshotPlan::default();
        if self.checkpoint.snapshots.groups.is_empty() {
            return plan;
        }
        let since = self.checkpoint.done() + 1;
        let mut left = self.limits.flushed();
        let mut groups = core::mem::take(&mut self.checkpoint.snapshots.groups);
        for group in &mut groups {
            let GroupState::Waits { rounds } = group.state else { continue };
            let is_there = |mark: &Mark| self.volume_index(mark.volume).is_some();
            if !group.marks.iter().all(is_there) {
                self.withdraw(&group.marks);
                group.state = GroupState::Refused(ControlError::NoVolume);
                continue;
            }
            // The second snapshot of a volume needs a cut of its own, and groups are made in their order.
            let is_free = |mark: &Mark| !plan.flushed.contains(&mark.volume);
            if !group.marks.iter().all(is_free) {
                self.request_checkpoint();
                continue;
            }
            let buffered = |mark: &Mark| self.durable.map_buffer.count(Key::new(mark.volume, 0), end_of(mark.volume));
            let buffered: usize = group.marks.iter().map(buffered).sum();
            if buffered > left && !plan.marks.is_empty() {
                // The next checkpoint may flush more.
                self.request_checkpoint();
                break;
            }
            if buffered > left && rounds == ROUNDS {
                self.withdraw(&group.marks);
                group.state = GroupState::Refused(ControlError::NoSpace);
                continue;
            }
            plan.flushed.extend(group.marks.iter().map(|mark| mark.volume));
            if buffered > left {
                group.state = GroupState::Waits { rounds: rounds + 1 };
                self.request_checkpoint();
                break;
            }
            left -= buffered;
            group.state = GroupState::Cut { since };
            for mark in &group.marks {
                let at = self.durable.volumes.find(mark.snapshot).expect("it was entered");
                self.durable.volumes.schedule(at, mark.volume, since);
            }
            plan.marks.extend(&group.marks);
        }
        self.checkpoint.snapshots.groups = groups;
        plan.marks.sort();
        plan.flushed.sort();
        plan
    }

    /// Refuses the snapshots of the beginning checkpoint: their leaves find no space.
    pub(crate) fn refuse_snapshots(&mut self) {
        let since = self.checkpoint.done() + 1;
        let mut groups = core::mem::take(&mut self.checkpoint.snapshots.groups);
        for group in groups.iter_mut().filter(|group| group.state == GroupState::Cut { since }) {
            self.withdraw(&group.marks);
            group.state = GroupState::Refused(ControlError::NoSpace);
        }
        self.checkpoint.snapshots.groups = groups;
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
        // An image is kept read-only, and its clones are made to be written.
        let writable = VolumePropertyChange { read_only: Some(false), ..VolumePropertyChange::default() };
        let clone = Volume {
            id,
            name: String::from(name),
            family: Family { parent: Some(snapshot), snapshot: None },
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
    fn shown_volume(&self, id: VolumeId) -> Result<&Volume, ControlError> {
        let at = self.volume_index(id).ok_or(ControlError::NoVolume)?;
        let volume = &self.durable.volumes[at];
        if self.users_see(volume) { Ok(volume) } else { Err(ControlError::NoVolume) }
    }
}
