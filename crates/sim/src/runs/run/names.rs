//! Other names of volumes and snapshots, whatever is in flight.
//!
//! A name is new, or one that a volume had which was renamed or deleted since: the table on disk may still have it twice.

use std::collections::BTreeSet;

use engine::{Command, Volume, VolumeId};

use crate::oracle::model::{Existence, Model, ModelVolume};
use crate::runs::run::{Pending, Run};
use crate::{Checked, violated};

impl Run {
    /// Renames the volume that a number selects; with `reuses`, to a name that another one had, if there is one.
    pub(crate) fn rename_volume(&mut self, number: u64, reuses: bool) -> Checked {
        let Some(volume) = self.changeable(number) else { return Ok(()) };
        self.rename(volume, reuses, None)
    }

    /// Renames the snapshot that a number selects; 0 is the oldest.
    pub(crate) fn rename_snapshot(&mut self, number: u64, reuses: bool) -> Checked {
        let snapshots = self.certain_snapshots();
        if snapshots.is_empty() {
            return Ok(());
        }
        let snapshot = snapshots[number as usize % snapshots.len()];
        let id = self.model.volumes()[snapshot].id.and_then(|id| self.world.engine.volume(id));
        let of = id.and_then(|snapshot| snapshot.family.snapshot).expect("certain snapshots are listed").of;
        self.rename(snapshot, reuses, Some(of))
    }

    /// Renames a volume, or a snapshot of a volume.
    fn rename(&mut self, volume: usize, reuses: bool, of: Option<VolumeId>) -> Checked {
        if self.model.volumes()[volume].is_being_renamed() {
            return Ok(());
        }
        let id = self.model.volumes()[volume].id;
        // A volume is known by its number and its name.
        let left = reuses.then(|| self.left_name(of, |other| other.id != id)).flatten();
        self.names += 1;
        let new = format!("renamed-{}-{}", self.epoch, self.names);
        let name = left.unwrap_or_else(|| of.map_or(new.clone(), |of| Model::name_of_snapshot(of, &new)));
        self.model.begin_rename(volume, &name);
        let token = self.token(Pending::Rename { volume });
        let name = name.split_once('@').map_or(&name[..], |(_, name)| name);
        self.world.control(token, Command::RenameVolume { volume: id.expect("it is listed"), name });
        Ok(())
    }

    /// Returns a name that a volume, or a snapshot of the given one, had until it was renamed or deleted, and that no other has. `may_give` chooses among these
    /// volumes.
    pub(super) fn left_name(&self, of: Option<VolumeId>, may_give: impl Fn(&ModelVolume) -> bool) -> Option<String> {
        let prefix = of.map(|of| Model::name_of_snapshot(of, ""));
        let is_of = |name: &String| prefix.as_ref().map_or(!name.contains('@'), |prefix| name.starts_with(prefix));
        let engine = &self.world.engine;
        let has_left = |volume: &ModelVolume| match volume.existence {
            Existence::Gone => true,
            // The deletion may wait for space.
            Existence::Deleting => volume.id.is_some_and(|id| engine.volume(id).is_none()),
            Existence::Creating | Existence::Certain => false,
        };
        let volumes = self.model.volumes();
        let used: BTreeSet<&String> =
            volumes.iter().filter(|volume| !has_left(volume)).map(|volume| &volume.name).collect();
        let giving = volumes.iter().filter(|volume| may_give(volume));
        let left: Vec<&String> =
            giving.flat_map(ModelVolume::possible_names).filter(|name| is_of(name) && !used.contains(name)).collect();
        (!left.is_empty()).then(|| left[self.names as usize % left.len()].clone())
    }

    /// Returns the name that the model has for a volume or snapshot of the engine.
    pub(super) fn name_in_model(&self, volume: &Volume) -> String {
        let of = volume.family.snapshot.map(|snapshot| snapshot.of);
        of.map_or_else(|| volume.name.clone(), |of| Model::name_of_snapshot(of, &volume.name))
    }

    /// Checks that each volume and snapshot is found by its full name, and that a snapshot has its volume's present name in it.
    pub(super) fn check_names(&self) -> Checked {
        let engine = &self.world.engine;
        for volume in engine.volumes() {
            let of = volume.family.snapshot.and_then(|snapshot| engine.volume(snapshot.of));
            let expected = of.map_or_else(|| volume.name.clone(), |of| format!("{}@{}", of.name, volume.name));
            let name = engine.full_name(volume);
            if name != expected || engine.volume_named(&name).map(|found| found.id) != Some(volume.id) {
                return violated(format!("volume {} has the name {name}, expected {expected}", volume.id.0));
            }
        }
        Ok(())
    }
}
