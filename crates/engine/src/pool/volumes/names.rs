//! Other names of volumes and snapshots, and snapshots that are held.
//!
//! A name is changed in the volume table, and durable with the next checkpoint. The volume keeps its number, so clients stay connected, and its snapshots,
//! which name it by number, follow. A held snapshot is not deleted (`Pool::check_deletion`); the property `protected` does the same for a volume.
//!
//! What must hold: the table of each checkpoint has the names of its beginning. A name may belong to another volume by then that a later record deletes, or
//! whose entry stands in a leaf that the checkpoint has written or does not write. So the table remembers the former names (`VolumeTable::keep_name`).

use crate::api::{ControlError, VolumeId};
use crate::format::volume::is_name;
use crate::mutant::Mutant;
use crate::pool::Pool;

impl Pool {
    /// Gives a volume or snapshot another name. Returns the number of checkpoints after which it is durable.
    pub(crate) fn rename_volume(&mut self, volume: VolumeId, name: &str) -> Result<u64, ControlError> {
        if !self.takes_changes() {
            return Err(ControlError::ReadOnly);
        }
        let of = self.shown_volume(volume)?.family.snapshot.map(|snapshot| snapshot.of);
        if !is_name(name) {
            return Err(ControlError::BadName);
        }
        let is_early = self.mutant(Mutant::EarlyName);
        let volumes = &mut self.durable.volumes;
        let is_taken = match of {
            None => volumes.named(name).is_some(),
            Some(of) => volumes.snapshot_named(of, name).is_some(),
        };
        if is_taken {
            return Err(ControlError::Exists);
        }
        let at = volumes.find(volume).expect("it was found");
        if !is_early {
            volumes.keep_name(at);
        }
        volumes.rename(at, name);
        Ok(self.after_next_checkpoint())
    }

    /// Holds or releases a snapshot. Returns the number of checkpoints after which that is durable.
    pub(crate) fn hold_snapshot(&mut self, snapshot: VolumeId, held: bool) -> Result<u64, ControlError> {
        if !self.takes_changes() {
            return Err(ControlError::ReadOnly);
        }
        if !self.shown_volume(snapshot)?.is_snapshot() {
            return Err(ControlError::NotSnapshot);
        }
        let volumes = &mut self.durable.volumes;
        let at = volumes.find(snapshot).expect("it was found");
        volumes.set_held(at, held);
        Ok(self.after_next_checkpoint())
    }
}
