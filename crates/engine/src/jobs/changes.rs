//! Limits on the changes that a job makes before it waits: for a sync, so that recovery stays short; for a checkpoint, so that background work does
//! not press the foreground; for space.

use crate::api::VolumeId;
use crate::metadata::tree::Missing;
use crate::mutant::Mutant;
use crate::pool::Pool;
use crate::pool::metadata_reservation::{Asked, Availability};
use crate::pool::state::LoadSnapshot;

/// Largest number of changes between two syncs: recovery verifies each of them.
const CHANGES_PER_SYNC: u32 = 1024;
/// Divisor of the delta's limit: a job's changes wait for a checkpoint when the delta holds one part in N.
const PART_OF_DELTA: u32 = 4;
/// Number of checkpoints for which a change waits for metadata.
const ATTEMPTS: u64 = 3;

/// Reason for which a step ends early.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ChangesStop {
    Missing(Missing),
    /// The step continues after a checkpoint or a sync.
    Waits,
    /// There is no metadata for the change, and there will be none.
    NoSpace,
}

impl From<Missing> for ChangesStop {
    fn from(missing: Missing) -> ChangesStop {
        ChangesStop::Missing(missing)
    }
}

/// Number of changes that a job has made, and the conditions that it waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Changes {
    /// Number of changes since the last sync that it waited for.
    count: u32,
    /// Number of checkpoints that the pool must have completed before the job continues.
    begins: u64,
    /// Last record that must be durable before it continues.
    durable: u64,
    /// Number of completed checkpoints when a change found no metadata, and more was to come.
    waits_since: Option<u64>,
}

impl Changes {
    /// Returns true if the checkpoint and the sync that the job waits for are done.
    pub(super) fn may_go_on(&self, pool: &Pool) -> bool {
        !self.waits_for_checkpoint(pool) && pool.durable.journal().durable() >= self.durable
    }

    /// Returns true if the job waits for a checkpoint.
    pub(super) fn waits_for_checkpoint(&self, pool: &Pool) -> bool {
        pool.checkpoint.done() < self.begins
    }

    /// Makes the job wait for a checkpoint that begins from now on.
    pub(super) fn wait_for_checkpoint(&mut self, pool: &mut Pool) {
        self.begins = pool.after_next_checkpoint();
    }

    /// Makes the job wait for a checkpoint that also flushes the map buffer to its leaves.
    pub(super) fn wait_for_flush(&mut self, pool: &mut Pool) {
        pool.ask_to_flush();
        self.wait_for_checkpoint(pool);
    }

    /// Makes the job wait while a snapshot of a map is pending: a change would be the volume's alone, and not its snapshot's.
    pub(super) fn await_snapshot(&mut self, pool: &mut Pool, map: VolumeId) -> Result<(), ChangesStop> {
        if !pool.checkpoint.has_snapshot_pending(map) || pool.mutant(Mutant::MovedAtSnapshot) {
            return Ok(());
        }
        self.wait_for_checkpoint(pool);
        Err(ChangesStop::Waits)
    }

    /// Returns the number of entries that background work may have in the delta, at least 1.
    pub(super) fn part_of_delta(pool: &Pool) -> usize {
        (pool.limits.delta_entries / PART_OF_DELTA).max(1) as usize
    }

    /// Returns true if N more changes exceed the part of the delta that background work may use. The job then waits for a checkpoint.
    pub(super) fn has_filled_part(&mut self, pool: &mut Pool, changes: usize) -> bool {
        let is_full = pool.durable.delta().len() + changes > Self::part_of_delta(pool);
        if is_full {
            self.wait_for_checkpoint(pool);
        }
        is_full
    }

    /// Stops counting the checkpoints that a change has waited for metadata.
    pub(super) fn give_up_waiting(&mut self) {
        self.waits_since = None;
    }

    /// Admits N changes together, which need this space, and counts them. Returns an error if they must wait, or have no space.
    pub(super) fn admit(
        &mut self,
        pool: &mut Pool,
        load: &LoadSnapshot,
        asked: &Asked,
        changes: usize,
    ) -> Result<(), ChangesStop> {
        let are_many = self.count > 0 && self.count as usize + changes > CHANGES_PER_SYNC as usize;
        if are_many && !pool.mutant(Mutant::EndlessChanges) {
            self.count = 0;
            self.durable = pool.durable.journal().last();
            pool.durable.journal_mut().want_durable(self.durable);
            pool.wake();
            return Err(ChangesStop::Waits);
        }
        if self.has_filled_part(pool, changes) {
            return Err(ChangesStop::Waits);
        }
        let has_metadata = pool.has_metadata(asked) || pool.mutant(Mutant::ShareWithoutSpace);
        match pool.space_where(asked, has_metadata, load.clears_left) {
            Availability::Now => {
                self.waits_since = None;
                self.count += changes as u32;
                Ok(())
            }
            // The expected space may never come, while others wait for the same.
            Availability::Later
                if pool.checkpoint.done() >= *self.waits_since.get_or_insert(pool.checkpoint.done()) + ATTEMPTS =>
            {
                Err(ChangesStop::NoSpace)
            }
            Availability::Later => {
                self.wait_for_checkpoint(pool);
                Err(ChangesStop::Waits)
            }
            Availability::Never => Err(ChangesStop::NoSpace),
        }
    }
}
