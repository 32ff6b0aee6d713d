//! Groups of snapshots that commands have asked for, and rollbacks: their progress from the command to the superblock, and the part of them that a checkpoint
//! makes. The protocols stand in `volumes/snapshots.rs` and `volumes/rollback.rs`.

use alloc::vec::Vec;

use crate::api::{ControlError, VolumeId};

/// Number of checkpoints that a group lets pass before it is refused: they flush the map buffer for it, or have no space for its leaves.
const ROUNDS: u32 = 4;

/// Volume, and its snapshot that a checkpoint makes or that it rolls the volume back to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Mark {
    pub volume: VolumeId,
    pub snapshot: VolumeId,
}

/// Change that a checkpoint makes of the volumes of a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum GroupChange {
    /// Each volume gets a snapshot.
    Snapshots,
    /// The volume becomes its snapshot again.
    Rollback,
}

/// Progress of a group of snapshots.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum GroupState {
    /// Waits for a cut.
    Waits,
    /// Is part of a checkpoint, and durable when this number of them is done.
    Cut {
        since: u64,
    },
    Refused(ControlError),
}

struct SnapshotGroup {
    id: u64,
    change: GroupChange,
    marks: Vec<Mark>,
    /// Number of checkpoints that it has let pass.
    rounds: u32,
    state: GroupState,
}

impl SnapshotGroup {
    /// Refuses the group. Adds the snapshots that it was to make to `refused`.
    fn refuse(&mut self, error: ControlError, refused: &mut Vec<Mark>) {
        self.state = GroupState::Refused(error);
        let marks = core::mem::take(&mut self.marks);
        if self.change == GroupChange::Snapshots {
            refused.extend(marks);
        }
    }

    /// Returns true if the group waits, or is not durable after `done` checkpoints.
    fn is_open(&self, done: u64) -> bool {
        match self.state {
            GroupState::Waits => true,
            GroupState::Cut { since } => done < since,
            GroupState::Refused(_) => false,
        }
    }
}

/// Groups of snapshots and rollbacks that are not durable yet, or whose commands are not answered.
#[derive(Default)]
pub(crate) struct SnapshotGroups {
    groups: Vec<SnapshotGroup>,
    next: u64,
}

/// Snapshots and rollbacks that a checkpoint makes, and the volumes for which it flushes the map buffer; all in the order of volumes.
#[derive(Default)]
pub(crate) struct SnapshotPlan {
    marks: Vec<Mark>,
    rollbacks: Vec<Mark>,
    flushed: Vec<VolumeId>,
}

impl SnapshotPlan {
    /// Returns true if the map buffer is flushed for no snapshot and no rollback.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.flushed.is_empty()
    }

    /// Returns true if all mappings of a volume in the map buffer are to be flushed.
    pub(crate) fn flushes(&self, volume: VolumeId) -> bool {
        self.flushed.binary_search(&volume).is_ok()
    }

    /// Returns the snapshots that the checkpoint makes.
    pub(crate) fn marks(&self) -> &[Mark] {
        &self.marks
    }

    /// Returns the rollbacks that the checkpoint makes.
    pub(crate) fn rollbacks(&self) -> &[Mark] {
        &self.rollbacks
    }
}

impl SnapshotGroups {
    pub(crate) fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// Adds a group. Returns its number.
    pub(crate) fn add(&mut self, change: GroupChange, mut marks: Vec<Mark>) -> u64 {
        marks.sort();
        let id = self.next;
        self.next += 1;
        self.groups.push(SnapshotGroup { id, change, marks, rounds: 0, state: GroupState::Waits });
        id
    }

    /// Returns the result of a group, once: durable, or refused. `None` while it waits. `done` checkpoints are done.
    pub(crate) fn take_result(&mut self, id: u64, done: u64) -> Option<Result<(), ControlError>> {
        let at = self.groups.iter().position(|group| group.id == id)?;
        let result = match self.groups[at].state {
            GroupState::Cut { since } if since <= done => Ok(()),
            GroupState::Refused(error) => Err(error),
            GroupState::Cut { .. } | GroupState::Waits => return None,
        };
        self.groups.remove(at);
        Some(result)
    }

    /// Returns true if a group that is not durable yet changes a map: that of a volume, or of a snapshot that it makes.
    pub(crate) fn has(&self, map: VolumeId, done: u64) -> bool {
        let changes = |group: &SnapshotGroup, mark: &Mark| {
            mark.volume == map || mark.snapshot == map && group.change == GroupChange::Snapshots
        };
        let is_part = |group: &SnapshotGroup| group.marks.iter().any(|mark| changes(group, mark));
        self.groups.iter().any(|group| group.is_open(done) && is_part(group))
    }

    /// Returns the rollbacks that are not durable yet.
    pub(crate) fn rollbacks(&self, done: u64) -> impl Iterator<Item = &Mark> {
        let rolls_back = move |group: &&SnapshotGroup| group.change == GroupChange::Rollback && group.is_open(done);
        self.groups.iter().filter(rolls_back).flat_map(|group| &group.marks)
    }

    /// Returns true if a volume is rolled back by a group that is not durable yet. Out of line, as each write asks.
    #[cold]
    pub(crate) fn rolls_back(&self, volume: VolumeId, done: u64) -> bool {
        self.rollbacks(done).any(|mark| mark.volume == volume)
    }

    /// Returns the number of rollbacks that are not durable yet. Out of line, as each write asks.
    #[cold]
    pub(crate) fn rollback_count(&self, done: u64) -> u64 {
        self.rollbacks(done).count() as u64
    }

    /// Returns the volumes of the groups that wait.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = VolumeId> {
        let waits = |group: &&SnapshotGroup| matches!(group.state, GroupState::Waits);
        self.groups.iter().filter(waits).flat_map(|group| group.marks.iter().map(|mark| mark.volume))
    }

    /// Chooses the groups that checkpoint `since` makes: those whose buffered mappings it can flush, `left` at most, in their order. If the first one has more,
    /// it flushes a part of these. `buffered` counts the mappings of a volume; `None`: the volume is gone. At most `cuts` rollbacks are made: each cuts a map off.
    /// That of `taker`, to which a snapshot is being handed over, waits.
    /// Returns the plan, the snapshots of groups that it refuses, and true if any group still waits.
    /// `splits` leaves all but the first snapshot of a group to the next checkpoint: only a mutant does so.
    pub(crate) fn begin(
        &mut self,
        since: u64,
        mut left: usize,
        mut cuts: u64,
        taker: Option<VolumeId>,
        splits: bool,
        buffered: impl Fn(VolumeId) -> Option<usize>,
    ) -> (SnapshotPlan, Vec<Mark>, bool) {
        let (mut plan, mut refused, mut waits) = (SnapshotPlan::default(), Vec::new(), false);
        let mut cut_off = Vec::new();
        for group in &mut self.groups {
            if group.state != GroupState::Waits {
                continue;
            }
            let Some(buffered) = group.marks.iter().map(|mark| buffered(mark.volume)).sum::<Option<usize>>() else {
                group.refuse(ControlError::NoVolume, &mut refused);
                continue;
            };
            // The second snapshot of a volume needs a cut of its own. Groups are made in their order.
            let meets = group.marks.iter().any(|mark| plan.flushed.contains(&mark.volume));
            let cuts_off = u64::from(group.change == GroupChange::Rollback);
            // Blocks of a snapshot that is handed over to the volume count as the volume's, and could not be told from its own.
            let is_given_to = cuts_off > 0 && group.marks.iter().any(|mark| Some(mark.volume) == taker);
            if meets || buffered > left && !plan.is_empty() || cuts_off > cuts || is_given_to {
                waits = true;
                break;
            }
            if buffered > left && group.rounds == ROUNDS {
                group.refuse(ControlError::NoSpace, &mut refused);
                continue;
            }
            plan.flushed.extend(group.marks.iter().map(|mark| mark.volume));
            if buffered > left {
                group.rounds += 1;
                waits = true;
                break;
            }
            left -= buffered;
            cuts -= cuts_off;
            if splits && group.marks.len() > 1 {
                let marks = Vec::from([group.marks.remove(0)]);
                plan.marks.extend(&marks);
                let state = GroupState::Cut { since };
                cut_off.push(SnapshotGroup { id: u64::MAX, marks, state, ..*group });
                waits = true;
                continue;
            }
            group.state = GroupState::Cut { since };
            match group.change {
                GroupChange::Snapshots => plan.marks.extend(&group.marks),
                GroupChange::Rollback => plan.rollbacks.extend(&group.marks),
            }
        }
        self.groups.append(&mut cut_off);
        plan.marks.sort();
        plan.rollbacks.sort();
        plan.flushed.sort();
        (plan, refused, waits)
    }

    /// Lets the groups that checkpoint `since` was to make wait for the next one, as their leaves find no space. Refuses a group that has waited often. Returns
    /// the snapshots that wait, and those of refused groups.
    pub(crate) fn defer(&mut self, since: u64) -> (Vec<Mark>, Vec<Mark>) {
        let (mut deferred, mut refused) = (Vec::new(), Vec::new());
        for group in self.groups.iter_mut().filter(|group| group.state == GroupState::Cut { since }) {
            if group.rounds == ROUNDS {
                group.refuse(ControlError::NoSpace, &mut refused);
                continue;
            }
            group.rounds += 1;
            group.state = GroupState::Waits;
            if group.change == GroupChange::Snapshots {
                deferred.extend(&group.marks);
            }
        }
        (deferred, refused)
    }
}
