//! Groups of snapshots that commands have asked for: their progress from the command to the superblock, and the part of them that a checkpoint makes. The
//! protocol stands in `volumes/snapshots.rs`.

use alloc::vec::Vec;

use crate::api::{ControlError, VolumeId};

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

struct SnapshotGroup {
    id: u64,
    marks: Vec<Mark>,
    state: GroupState,
}

/// Groups of snapshots that are not durable yet, or whose commands are not answered.
#[derive(Default)]
pub(crate) struct SnapshotGroups {
    groups: Vec<SnapshotGroup>,
    next: u64,
}

/// Snapshots that a checkpoint makes, and the volumes for which it flushes the map buffer; both in the order of volumes.
#[derive(Default)]
pub(crate) struct SnapshotPlan {
    marks: Vec<Mark>,
    flushed: Vec<VolumeId>,
}

impl SnapshotPlan {
    /// Returns true if the map buffer is flushed for no snapshot.
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
}

impl SnapshotGroups {
    pub(crate) fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// Adds a group. Returns its number.
    pub(crate) fn add(&mut self, mut marks: Vec<Mark>) -> u64 {
        marks.sort();
        let id = self.next;
        self.next += 1;
        self.groups.push(SnapshotGroup { id, marks, state: GroupState::Waits { rounds: 0 } });
        id
    }

    /// Returns the result of a group, once: durable, or refused. `None` while it waits. `done` checkpoints are done.
    pub(crate) fn take_result(&mut self, id: u64, done: u64) -> Option<Result<(), ControlError>> {
        let at = self.groups.iter().position(|group| group.id == id)?;
        let result = match self.groups[at].state {
            GroupState::Cut { since } if since <= done => Ok(()),
            GroupState::Refused(error) => Err(error),
            GroupState::Cut { .. } | GroupState::Waits { .. } => return None,
        };
        self.groups.remove(at);
        Some(result)
    }

    /// Returns true if a map is part of a group that is not durable yet: a volume, or its snapshot.
    pub(crate) fn has(&self, map: VolumeId, done: u64) -> bool {
        let is_open = |group: &&SnapshotGroup| match group.state {
            GroupState::Waits { .. } => true,
            GroupState::Cut { since } => done < since,
            GroupState::Refused(_) => false,
        };
        let is_part = |mark: &Mark| mark.volume == map || mark.snapshot == map;
        self.groups.iter().filter(is_open).any(|group| group.marks.iter().any(is_part))
    }

    /// Returns the volumes of the groups that wait.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = VolumeId> {
        let waits = |group: &&SnapshotGroup| matches!(group.state, GroupState::Waits { .. });
        self.groups.iter().filter(waits).flat_map(|group| group.marks.iter().map(|mark| mark.volume))
    }

    /// Chooses the groups that checkpoint `since` makes: those whose buffered mappings it can flush, `left` at most, in their order. If the first one has more,
    /// it flushes a part of these. `buffered` counts the mappings of a volume; `None`: the volume is gone. Returns the plan, the snapshots of groups that it
    /// refuses, and true if any group still waits.
    /// `splits` leaves all but the first snapshot of a group to the next checkpoint: only a mutant does so.
    pub(crate) fn begin(
        &mut self,
        since: u64,
        mut left: usize,
        splits: bool,
        buffered: impl Fn(VolumeId) -> Option<usize>,
    ) -> (SnapshotPlan, Vec<Mark>, bool) {
        let (mut plan, mut refused, mut waits) = (SnapshotPlan::default(), Vec::new(), false);
        let mut cut_off = Vec::new();
        for group in &mut self.groups {
            let GroupState::Waits { rounds } = group.state else { continue };
            let Some(buffered) = group.marks.iter().map(|mark| buffered(mark.volume)).sum::<Option<usize>>() else {
                refused.append(&mut group.marks);
                group.state = GroupState::Refused(ControlError::NoVolume);
                continue;
            };
            // The second snapshot of a volume needs a cut of its own. Groups are made in their order.
            let meets = group.marks.iter().any(|mark| plan.flushed.contains(&mark.volume));
            if meets || buffered > left && !plan.is_empty() {
                waits = true;
                break;
            }
            if buffered > left && rounds == ROUNDS {
                refused.append(&mut group.marks);
                group.state = GroupState::Refused(ControlError::NoSpace);
                continue;
            }
            plan.flushed.extend(group.marks.iter().map(|mark| mark.volume));
            if buffered > left {
                group.state = GroupState::Waits { rounds: rounds + 1 };
                waits = true;
                break;
            }
            left -= buffered;
            if splits && group.marks.len() > 1 {
                let marks = Vec::from([group.marks.remove(0)]);
                plan.marks.extend(&marks);
                cut_off.push(SnapshotGroup { id: u64::MAX, marks, state: GroupState::Cut { since } });
                waits = true;
                continue;
            }
            group.state = GroupState::Cut { since };
            plan.marks.extend(&group.marks);
        }
        self.groups.append(&mut cut_off);
        plan.marks.sort();
        plan.flushed.sort();
        (plan, refused, waits)
    }

    /// Refuses the groups that checkpoint `since` was to make: their leaves find no space. Returns their snapshots.
    pub(crate) fn refuse(&mut self, since: u64) -> Vec<Mark> {
        let mut refused = Vec::new();
        for group in self.groups.iter_mut().filter(|group| group.state == GroupState::Cut { since }) {
            refused.append(&mut group.marks);
            group.state = GroupState::Refused(ControlError::NoSpace);
        }
        refused
    }
}
