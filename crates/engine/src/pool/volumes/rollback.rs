//! Rollback of a volume to one of its snapshots (RFC 0020).
//!
//! A rollback is in force when a checkpoint is durable; no record tells of it. The volume keeps its number, its name and its properties.
//!
//! ```text
//! command     refuses writes of the volume from now on, and asks for a checkpoint
//! cut         takes the rollbacks whose mappings in the map buffer it can flush, as with snapshots
//! Plan        chooses all leaves of the volume that have new or buffered mappings: no mapping of its old content stays behind
//! Maps        merges the volume as any other
//! Sort        puts its root on the discard list, as the Discards stage is over: a later checkpoint frees its pages and slots
//! Tables      writes the volume as a clone of the snapshot, with the snapshot's size
//! superblock  makes it durable
//! end         makes the volume that clone in memory, too, and answers the command
//! ```
//!
//! Until the end, reads see the old content: its pages, its slots and the frozen delta are all there. So a pool that fails on the way keeps it.
//!
//! A protected volume is not rolled back: its content would be gone, as if it were deleted. Held snapshots forbid nothing, as all snapshots stay.
//!
//! What must hold: nothing changes the volume between the command and the end, so no record behind the cut names it. The snapshot keeps its name as long.
//! Blocks in the discarded map count as the volume's until they have been walked.

use alloc::vec;

use crate::api::{ControlError, VolumeId};
use crate::block_map::discards::Discard;
use crate::format::entry::Key;
use crate::format::record::Change;
use crate::mutant::Mutant;
use crate::pool::Pool;
use crate::pool::metadata_reservation::{Asked, Availability};
use crate::pool::snapshot_groups::{GroupChange, Mark};
use crate::pool::volumes::end_of;

impl Pool {
    /// Asks for the rollback of a volume to one of its snapshots. Returns the group to ask for.
    pub(crate) fn roll_back(&mut self, volume: VolumeId, snapshot: VolumeId) -> Result<u64, ControlError> {
        if !self.takes_changes() {
            return Err(ControlError::ReadOnly);
        }
        let of = self.shown_volume(volume)?;
        if of.is_snapshot() {
            return Err(ControlError::IsSnapshot);
        }
        if of.properties.protected() {
            return Err(ControlError::Protected);
        }
        let size = of.size;
        let to = self.shown_volume(snapshot)?;
        if to.family.snapshot.is_none_or(|snapshot| snapshot.of != volume) {
            return Err(ControlError::NotItsSnapshot);
        }
        let leaves = to.size.div_ceil(self.geometry().block() * self.geometry().map_leaf_entries());
        if to.size > size && !self.has_metadata_for_volume(leaves) {
            return Err(ControlError::NoSpace);
        }
        if self.mutant(Mutant::RollbackByRecord) {
            self.clear_by_record(volume);
        }
        self.request_checkpoint();
        Ok(self.checkpoint.snapshots.add(GroupChange::Rollback, vec![Mark { volume, snapshot }]))
    }

    /// Clears a volume by a record, where there is space for it: only a mutant does so.
    #[cold]
    fn clear_by_record(&mut self, volume: VolumeId) {
        let (key, stop) = (Key::new(volume, 0), end_of(volume));
        let cleared = self.cleared(key, stop);
        if self.space_for(&Asked::clear(1, cleared), false) == Availability::Now {
            self.durable.journal.push(Change::Clear { key, end: stop.lba() });
            self.clear_keys(key, stop);
        }
    }

    /// Puts the maps that the checkpoint in progress cuts off its volumes on the discard list. It has merged them, and walks no subtrees any more.
    pub(crate) fn discard_rolled_back(&mut self) {
        for at in self.durable.volumes.rolled_back() {
            let (root, volume) = (self.durable.volumes.map(at), self.durable.volumes[at].id);
            self.durable.discards.forget_hidden(volume);
            if root.pointer.has_page() && !self.mutant(Mutant::KeptRoot) {
                self.durable.discards.push(Discard::new(root.pointer, volume, root.height));
            }
        }
    }
}
