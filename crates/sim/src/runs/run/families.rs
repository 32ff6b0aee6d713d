//! Snapshots of volumes and groups of them, their clones, their deletion, and rollbacks, whatever is in flight.

use engine::{Command, ControlError, VolumeId};

use crate::Checked;
use crate::oracle::model::{Existence, ModelVolume, Properties};
use crate::runs::run::{Pending, Run};

impl Run {
    /// Makes a snapshot of each volume that a number selects, all in one group.
    pub(crate) fn snapshot_volumes(&mut self, numbers: &[u64]) -> Checked {
        let mut volumes: Vec<usize> = numbers.iter().filter_map(|&number| self.changeable(number)).collect();
        volumes.sort_unstable();
        volumes.dedup();
        let snapshots = self.certain_snapshots().len() + volumes.len();
        if volumes.is_empty() || snapshots > self.config.most_snapshots {
            return Ok(());
        }
        self.names += 1;
        let name = format!("{}-{}", self.epoch, self.names);
        let id = |&volume: &usize| self.model.volumes()[volume].id.expect("usable volumes are listed");
        let ids: Vec<VolumeId> = volumes.iter().map(id).collect();
        let first = self.model.begin_snapshots(&volumes, &name);
        let token = self.token(Pending::Snapshots { first });
        self.world.control(token, Command::CreateSnapshots { volumes: &ids, name: &name, seconds: 0 });
        Ok(())
    }

    /// Clones the snapshot that a number selects: 0 is the newest.
    pub(crate) fn clone_snapshot(&mut self, number: u64) -> Checked {
        let there = |volume: &&ModelVolume| volume.existence != Existence::Gone && !volume.is_snapshot();
        let volumes = self.model.volumes().iter().filter(there).count();
        let snapshots = self.certain_snapshots();
        if snapshots.is_empty() || volumes >= self.config.most_clones {
            return Ok(());
        }
        let snapshot = snapshots[snapshots.len() - 1 - number as usize % snapshots.len()];
        self.names += 1;
        let name = format!("clone-{}-{}", self.epoch, self.names);
        let id = self.model.volumes()[snapshot].id.expect("certain snapshots are listed");
        self.model.begin_clone(snapshot, &name);
        self.note_policies();
        let token = self.token(Pending::Create { name: name.clone(), takes_name: false });
        self.world.control(token, Command::CloneSnapshot { snapshot: id, name: &name });
        Ok(())
    }

    /// Deletes the snapshot that a number selects: 0 is the oldest.
    pub(crate) fn delete_snapshot(&mut self, number: u64) -> Checked {
        self.wait_for_change()?;
        let snapshots = self.certain_snapshots();
        if snapshots.is_empty() {
            return Ok(());
        }
        let volume = snapshots[number as usize % snapshots.len()];
        let refusal = self.model.volumes()[volume].properties.held.then_some(ControlError::Held);
        self.ask_to_delete(volume, refusal);
        Ok(())
    }

    /// Holds or releases the snapshot that a number selects: 0 is the oldest.
    pub(crate) fn hold_snapshot(&mut self, number: u64, held: bool) -> Checked {
        self.wait_for_change()?;
        let snapshots = self.certain_snapshots();
        if snapshots.is_empty() {
            return Ok(());
        }
        let volume = snapshots[number as usize % snapshots.len()];
        let ModelVolume { id, properties, .. } = self.model.volumes()[volume];
        let snapshot = id.expect("certain snapshots are listed");
        self.model.begin_set(volume, Properties { held, ..properties });
        let token = self.token(Pending::Set { volume });
        self.world.control(token, Command::HoldSnapshot { snapshot, held });
        Ok(())
    }

    /// Rolls the volume of the snapshot that a number selects back to it: 0 is the newest.
    pub(crate) fn roll_back(&mut self, number: u64) -> Checked {
        self.wait_for_change()?;
        for _ in 0..2 {
            let snapshots = self.certain_snapshots();
            if snapshots.is_empty() {
                return Ok(());
            }
            let snapshot = snapshots[snapshots.len() - 1 - number as usize % snapshots.len()];
            let Some(volume) = self.model.volume_of(snapshot) else { return Ok(()) };
            let [of, to] = [volume, snapshot].map(|at| &self.model.volumes()[at]);
            // If the size is changing, the pool has failed: the next opening tells it.
            let (Some(id), Some(to_id), false) = (of.id, to.id, of.changes_size()) else { return Ok(()) };
            if of.existence != Existence::Certain {
                return Ok(());
            }
            if to.size_blocks > of.size_blocks && !self.pending.is_empty() {
                // Requests that were submitted before an earlier shrinking might fit again.
                self.drain()?;
                continue;
            }
            let pending = if of.properties.protected {
                Pending::RefusedCommand { reason: ControlError::Protected }
            } else {
                self.model.begin_rollback(volume, snapshot);
                Pending::RollBack { volume }
            };
            let token = self.token(pending);
            self.world.control(token, Command::RollBack { volume: id, snapshot: to_id });
            break;
        }
        Ok(())
    }

    /// Returns the indexes in the model of the snapshots that are there for certain, the oldest first.
    pub(super) fn certain_snapshots(&self) -> Vec<usize> {
        let volumes = self.model.volumes().iter().enumerate();
        let is_certain = |volume: &ModelVolume| {
            volume.is_snapshot() && volume.existence == Existence::Certain && volume.id.is_some()
        };
        volumes.filter(|(_, volume)| is_certain(volume)).map(|(index, _)| index).collect()
    }
}
