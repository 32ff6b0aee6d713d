//! Error texts for refusals and failures: why a pool does not open, why a command fails, and the remedy.

use engine::{ControlError, OpenError};

/// Describes why a pool cannot be opened, and what to do.
pub fn explain_open(error: OpenError) -> String {
    match error {
        OpenError::NoSuperblock => "none of its four superblocks is valid: is this the right file?".into(),
        OpenError::Device { offset } => format!("the store cannot be read or written at byte {offset}: check the disk"),
        OpenError::HostFull { offset } => format!(
            "the file system under it is full (at byte {offset} of the store), and opening has to write: make space there, then \
             start again. What was flushed is safe"
        ),
        OpenError::DamagedPage { offset, what } => {
            format!(
                "its metadata is damaged: a page of {what} at byte {offset} fails its checksum or makes no sense. \
                 Restore it from a copy, or see what a repair would do: onefold repair POOL --dry-run"
            )
        }
        OpenError::TooLittleMemory { .. } => {
            "its journal or its map buffer has more than this memory has space for: the server before had more. Start it \
             once with as much as that had"
                .into()
        }
        OpenError::DamagedJournal { sequence } => {
            format!(
                "its journal is damaged: record {sequence}, which was durable, cannot be read. Restore it from a copy, or \
                 see what a repair would do: onefold repair POOL --dry-run"
            )
        }
        OpenError::TakenOver => "another process has taken it over: 'onefold status' shows its owner".into(),
        OpenError::UnknownFormat => {
            "a newer program has written it: its version or features are not known here. Use that program".into()
        }
    }
}

/// Describes why a command failed, and what to do.
pub fn explain_control(error: ControlError) -> &'static str {
    match error {
        ControlError::Exists => {
            "a volume or snapshot of this name exists: 'onefold volume list' and 'onefold snapshot list' show them"
        }
        ControlError::BadName => {
            "this name is not allowed: use 1 to 63 letters, digits, '.', '_' and '-', not starting with '.' or '-'; the name of a \
             snapshot may also have ':'"
        }
        ControlError::BadSize => {
            "this size is not possible: it must be a multiple of 4096, not zero, and not beyond the map"
        }
        ControlError::NoVolume => {
            "there is no such volume or snapshot any more: 'onefold volume list' and 'onefold snapshot list' show them"
        }
        ControlError::IsSnapshot => {
            "it is a snapshot, which never changes: 'onefold clone' makes a volume of it that can be changed"
        }
        ControlError::NotSnapshot => {
            "it is a volume, not a snapshot: 'onefold snapshot create' makes one of it, and 'onefold snapshot list' shows them"
        }
        ControlError::NotItsSnapshot => "it is no snapshot of this volume: 'onefold snapshot list' shows the volume's",
        ControlError::RollbackPending => "a volume is being rolled back to it: try again in a moment",
        ControlError::HasSnapshots => {
            "it has snapshots, which are deleted first: 'onefold snapshot list' shows them, 'onefold volume delete --snapshots' deletes them, too"
        }
        ControlError::Held => "it is held: 'onefold snapshot release' ends that, and then it can be deleted",
        ControlError::Protected => {
            "it is protected: 'onefold volume set POOL NAME protected=off' ends that, and then it can be deleted or rolled back"
        }
        ControlError::TooManySnapshots => {
            "it has 4,096 snapshots, which is the limit: 'onefold snapshot delete' deletes those that are not needed"
        }
        ControlError::NoScrub => "no scrub is in progress: 'onefold status' tells how the last one ended",
        ControlError::NoDedup => {
            "no pass that finds duplicates is in progress: 'onefold status' tells how the last one ended"
        }
        ControlError::NoPlan => "there is no plan, and no run of one: 'onefold relocate run' makes one and runs it",
        ControlError::PlanInUse => {
            "a plan is being run: 'onefold status' shows how far it is, 'onefold relocate run --stop' ends it"
        }
        ControlError::PlanTooLong => "the plan has too many pieces: --budget makes it smaller",
        ControlError::NoSpace => {
            "the pool's tables have no space for this change: discard something, or wait until deleted data is freed"
        }
        ControlError::TooManyVolumes => {
            "the pool has one volume for each 4 KiB of memory or 32,768, \
             which is the limit, with deleted ones whose space has not come back yet: delete one, \
             give the server more memory, or use another pool"
        }
        ControlError::BadCapacity(error) => error.0,
        ControlError::NoHostSpace => {
            "the host file system has no space for the tables of a larger pool; the pool is unchanged"
        }
        ControlError::HostFull => {
            "closed without a checkpoint, because the host file system is full; nothing is lost, the next start replays the \
             journal"
        }
        ControlError::NotDurable => {
            "the host file system is full: unflushed writes may be lost. Flushed writes are in the journal; make space on \
             the host before the next start"
        }
        ControlError::NoCheckpoint => {
            "closed without a checkpoint, as it was asked to; nothing is lost, the next start replays the journal"
        }
        ControlError::ReadOnly => {
            "the pool is served read-only, is read-only after a failure, or is being closed; see 'onefold status'"
        }
    }
}
