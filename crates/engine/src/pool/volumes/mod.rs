//! Volumes of a pool: creation, properties, resizing and deletion.
//!
//! Creation and properties are part of a checkpoint, in its volume table. Deletion and size are records of the journal, in order with the
//! writes, so that a crash leaves a prefix of both. In memory they are in force at once. A checkpoint writes the sizes as of its beginning,
//! because later records refer to them.
//!
//! A deleted volume is a clear of its whole map. It stays in the list, hidden, until the checkpoint that includes its record has cut its map
//! off into the discard list.
//!
//! ```text
//! table      volumes with the roots of their maps
//! held       blocks that volumes map, and the slots for them
//! hidden     second copies and replicas, as volumes that users do not see
//! snapshots  snapshots of volumes, and their clones
//! names      other names, and snapshots that are held
//! rollback   volumes that become one of their snapshots again
//! ```

pub(crate) mod hand_over;
pub mod held;
pub(crate) mod hidden;
pub(crate) mod names;
pub(crate) mod rollback;
pub(crate) mod snapshots;
pub(crate) mod table;

use alloc::string::String;

use crate::api::*;
use crate::counters::VolumeWrites;
use crate::dedup::timing::Mode;
use crate::format::entry::Key;
use crate::format::layout::height_for;
use crate::format::record::Change;
use crate::format::superblock::{Pointer, Root};
use crate::format::volume::{Family, Keeps, MAX_BLOCKS, Volume, is_name, most_blocks};
use crate::mutant::Mutant;
use crate::pool::Pool;
use crate::pool::durable::Durable;
use crate::pool::metadata_reservation::Asked;
use crate::pool::metadata_reservation::Availability;
use crate::pool::replicas::PLACES;
use crate::pool::state::Phase;

/// Divisor of the slots: a controller goes offline only if at least one slot in N is free.
const SPACE_TO_BEGIN: u64 = 8;
/// Divisor of the slots: a controller stays offline while one slot in N is free.
const SPACE_TO_STAY: u64 = 16;

/// Numbers for hidden volumes when numbers have run out. Slots keep the number of the volume that they were first written for, though it is deleted, and count
/// as copies if a hidden volume has it. So these get no number of a former volume that users saw.
pub(crate) const FOR_SECOND_COPIES: u16 = u16::MAX - 1;
const FOR_REPLICAS: u16 = u16::MAX;

/// Change of volumes that is a journal record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum VolumeChange {
    Delete { volume: VolumeId },
    Resize { volume: VolumeId, blocks: u64 },
}

impl Pool {
    /// Returns the index in the list of a usable volume: created, and not deleted.
    pub(crate) fn volume_index(&self, id: VolumeId) -> Option<usize> {
        let at = self.durable.volumes.find(id)?;
        self.is_visible(&self.durable.volumes[at]).then_some(at)
    }

    pub(crate) fn is_visible(&self, volume: &Volume) -> bool {
        volume.since <= self.checkpoint.done() && volume.deleted.is_none()
    }

    /// Returns true if users see a volume or snapshot: it is usable, is not hidden, and has a name.
    pub(crate) fn users_see(&self, volume: &Volume) -> bool {
        self.is_visible(volume) && volume.is_shown()
    }

    /// Returns the volume whose properties are in force: itself, or that of which it is a snapshot, as long as that is there.
    pub(crate) fn with_properties_of<'a>(&'a self, volume: &'a Volume) -> &'a Volume {
        let of = volume.family.snapshot.and_then(|snapshot| self.durable.volumes.find(snapshot.of));
        of.map_or(volume, |at| &self.durable.volumes[at])
    }

    /// Returns the policy of a volume: its own, else the pool's. A snapshot has its volume's.
    pub(crate) fn policy_of(&self, volume: &Volume) -> Policy {
        let volume = self.with_properties_of(volume);
        volume.properties.policy().or(self.properties.policy()).unwrap_or_default()
    }

    /// Returns the timing of a volume, which decides when its duplicates are found. Without a setting it is hybrid if its policy shares.
    pub(crate) fn timing_of(&self, volume: &Volume) -> Timing {
        volume.properties.timing().unwrap_or(match self.policy_of(volume) {
            Policy::Full | Policy::Select { .. } | Policy::Idedup { .. } => Timing::Hybrid,
            Policy::Observe | Policy::Native => Timing::Inline,
        })
    }

    /// Returns true if writes of a volume are stored without a lookup of duplicates, which the background pass finds later. With policy `native` nothing is
    /// shared, so nothing is deferred.
    pub(crate) fn is_offline(&self, volume: &Volume) -> bool {
        match volume.properties.timing() {
            Some(Timing::Offline) => self.policy_of(volume) != Policy::Native,
            _ => volume.is_pressed && self.chooser_of(volume).is_some(),
        }
    }

    /// Returns the controller that chooses the mode of a volume, if there is one. Ours does so where offline can save something: with the index on disk. (A
    /// lookup in the index in memory takes less than a microsecond.) The paper's controller does so wherever it is configured.
    pub(crate) fn chooser_of(&self, volume: &Volume) -> Option<Controller> {
        let chooses = match volume.properties.controller() {
            Controller::Forecast => self.policy_of(volume) == Policy::Full && self.hints.disk_index.record.is_on(),
            Controller::Paper => self.policy_of(volume) != Policy::Native,
        };
        (chooses && self.timing_of(volume) == Timing::Hybrid).then_some(volume.properties.controller())
    }

    /// Returns true if there is space for blocks that could have been shared. Without it, a volume whose mode a controller chooses stays inline or returns to
    /// it.
    pub(crate) fn has_space_offline(&self, mode: Mode) -> bool {
        let least = if mode == Mode::Offline { SPACE_TO_STAY } else { SPACE_TO_BEGIN };
        self.durable.space.free() >= self.geometry().slots() / least
    }

    /// Returns the policy that applies to a write now: offline writes as with `native`.
    pub(crate) fn policy_in_force(&self, volume: &Volume) -> Policy {
        if self.is_offline(volume) { Policy::Native } else { self.policy_of(volume) }
    }

    /// Sets the mode that a controller has chosen: in force while the timing is hybrid.
    pub(crate) fn choose_mode(&mut self, volume: VolumeId, mode: Mode) {
        if let Some(at) = self.volume_index(volume) {
            self.durable.volumes.set_mode(at, mode);
        }
    }

    fn blocks_of_size(&self, size: u64) -> Result<u64, ControlError> {
        let block = self.geometry().block();
        let possible = size > 0 && size.is_multiple_of(block) && size / block <= most_blocks(self.geometry());
        if possible { Ok(size / block) } else { Err(ControlError::BadSize) }
    }

    /// Returns a free number for a volume: the next one, or, when they have run out, one without remains of a former volume. A hidden volume then gets the
    /// number of its kind.
    fn free_number(&self, keeps: Option<Keeps>) -> Option<VolumeId> {
        let Durable { superblock, volumes, discards, .. } = &self.durable;
        let next = superblock.next_volume.max(volumes.last().map_or(1, |last| last.id.0.saturating_add(1)));
        if next < FOR_SECOND_COPIES {
            // No volume has ever had this number, so mappings need no look.
            return Some(VolumeId(next));
        }
        // The records that name a removed volume come before its deletion, so the checkpoint that removed it has merged them.
        let is_named = |id| discards.has_some_of(id) && !self.mutant(Mutant::EarlyNumber);
        match keeps {
            Some(Keeps::SecondCopies) => Some(VolumeId(FOR_SECOND_COPIES)),
            Some(Keeps::Replicas) => Some(VolumeId(FOR_REPLICAS)),
            None => return volumes.free_number(|id| id.0 >= FOR_SECOND_COPIES || is_named(id)),
        }
        .filter(|&id| volumes.is_free(id) && !is_named(id))
    }

    /// Returns the change for a resize command; `BadSize` if the size is 0, no multiple of a block, or beyond the maximum of a volume.
    pub(crate) fn resizing(&self, volume: VolumeId, size: u64) -> Result<VolumeChange, ControlError> {
        if self.volume_index(volume).is_some_and(|at| self.durable.volumes[at].is_snapshot()) {
            return Err(ControlError::IsSnapshot);
        }
        Ok(VolumeChange::Resize { volume, blocks: self.blocks_of_size(size)? })
    }
}

impl Pool {
    // ---- commands ----

    /// Returns true if commands that make changes are accepted: the pool serves and is not read-only.
    pub(crate) fn takes_changes(&self) -> bool {
        self.state.phase() == Phase::Serving && !self.state.read_only() && !self.state.reads_only()
    }

    /// Returns true if statistics of regions that are read in order are of use: defragmentation is on, and changes are accepted.
    pub(crate) fn notes_regions(&self) -> bool {
        self.properties.defrag() != DefragSetting::Off && self.takes_changes()
    }

    /// Enters a volume. Returns the number of checkpoints after which its creation is durable.
    pub(crate) fn create_volume(&mut self, name: &str, size: u64, policy: Option<Policy>) -> Result<u64, ControlError> {
        if !self.takes_changes() {
            return Err(ControlError::ReadOnly);
        }
        if !is_name(name) {
            return Err(ControlError::BadName);
        }
        if self.durable.volumes.named(name).is_some() {
            return Err(ControlError::Exists);
        }
        self.enter_volume(name, size, policy, None)
    }

    pub(crate) fn enter_volume(
        &mut self,
        name: &str,
        size: u64,
        policy: Option<Policy>,
        keeps: Option<Keeps>,
    ) -> Result<u64, ControlError> {
        let blocks = self.blocks_of_size(size)?;
        let id = self.free_number(keeps).filter(|_| self.durable.volumes.len() < self.limits.volumes as usize);
        let id = id.ok_or(ControlError::TooManyVolumes)?;
        let since = self.after_next_checkpoint();
        let leaves = blocks.div_ceil(self.geometry().map_leaf_entries());
        if !self.has_metadata_for_volume(leaves) {
            return Err(ControlError::NoSpace);
        }
        let root = Root { pointer: Pointer::NONE, height: height_for(leaves, self.geometry().fanout()) };
        let change = VolumePropertyChange { policy: Some(policy), ..VolumePropertyChange::default() };
        let volume = Volume {
            id,
            name: String::from(name),
            size,
            properties: VolumeProperties::default().with(&change),
            is_pressed: false,
            family: Family::default(),
            logical_blocks_used: 0,
            keeps,
            since,
            deleted: None,
            merged_size: size,
            writes: VolumeWrites::default(),
        };
        let at = self.durable.volumes.create(volume, root);
        self.checkpoint.note_inserted(at);
        self.note_hidden_volumes();
        self.review_space();
        Ok(since)
    }

    /// Enters a hidden volume: one block for each slot, or for each replica place of a slot.
    pub(crate) fn enter_hidden_volume(&mut self, keeps: Keeps) -> Result<u64, ControlError> {
        let places = if keeps == Keeps::Replicas { PLACES } else { 1 };
        let size = places * self.metadata.geometry().slots() * self.metadata.geometry().block();
        self.enter_volume(keeps.name(), size, Some(Policy::Native), Some(keeps))
    }

    /// Changes properties of a volume. Returns the number of checkpoints after which they are durable.
    pub(crate) fn set_volume(&mut self, volume: VolumeId, change: VolumePropertyChange) -> Result<u64, ControlError> {
        if !self.takes_changes() {
            return Err(ControlError::ReadOnly);
        }
        let at = self.volume_index(volume).ok_or(ControlError::NoVolume)?;
        if self.durable.volumes[at].is_snapshot() {
            return Err(ControlError::IsSnapshot);
        }
        let chose = self.chooser_of(&self.durable.volumes[at]);
        let properties = self.durable.volumes[at].properties.with(&change);
        self.durable.volumes.set_properties(at, properties);
        if self.chooser_of(&self.durable.volumes[at]) != chose {
            // A controller that gets the choice begins inline.
            self.durable.volumes.set_mode(at, Mode::Inline);
        }
        Ok(self.after_next_checkpoint())
    }

    /// Returns the reason why a volume or snapshot is not deleted, if there is one. Others may inherit from a snapshot.
    pub(crate) fn check_deletion(&self, id: VolumeId) -> Result<(), ControlError> {
        let volumes = &self.durable.volumes;
        let Some(volume) = volumes.find(id).map(|at| &volumes[at]) else { return Err(ControlError::NoVolume) };
        match volume.family.snapshot {
            Some(snapshot) if snapshot.held => Err(ControlError::Held),
            Some(_) => Ok(()),
            None if volume.properties.protected() => Err(ControlError::Protected),
            None if volumes.snapshots_of(id).next().is_some() => Err(ControlError::HasSnapshots),
            None => Ok(()),
        }
    }

    // ---- records ----

    /// Applies a change if there is space for it, and returns its record; `None` if it has to wait.
    pub(crate) fn change_volume(
        &mut self,
        change: VolumeChange,
        clears_left: bool,
    ) -> Result<Option<u64>, ControlError> {
        let (VolumeChange::Delete { volume } | VolumeChange::Resize { volume, .. }) = change;
        let at = self.volume_index(volume).ok_or(ControlError::NoVolume)?;
        if matches!(change, VolumeChange::Delete { .. }) {
            // Its snapshots may have been made while the deletion waited for space.
            self.check_deletion(volume)?;
        }
        if self.checkpoint.rolls_back(volume) {
            // Nothing changes it until that is durable. The checkpoint has been asked for.
            return Ok(None);
        }
        let cleared = match change {
            VolumeChange::Delete { volume } => self.cleared(Key::new(volume, 0), end_of(volume)),
            VolumeChange::Resize { volume, blocks } => self.cleared(Key::new(volume, blocks), end_of(volume)),
        };
        if let VolumeChange::Resize { blocks, .. } = change
            && blocks * self.metadata.geometry().block() > self.durable.volumes[at].size
            && !self.has_metadata_for_volume(blocks.div_ceil(self.geometry().map_leaf_entries()))
        {
            if self.is_reclaimable(clears_left) {
                self.request_checkpoint();
            } else if !self.await_growth() {
                return Err(ControlError::NoSpace);
            }
            return Ok(None);
        }
        match self.space_for(&Asked::clear(1, cleared), clears_left) {
            Availability::Now => {}
            Availability::Later => return Ok(None),
            Availability::Never if self.await_growth() => return Ok(None),
            Availability::Never => return Err(ControlError::NoSpace),
        }
        if !self.can_clear_at_once() && !self.state.metadata_full() {
            // A search through a full delta would take long: the checkpoint that follows anyway comes first.
            self.request_checkpoint();
            return Ok(None);
        }
        let sequence = self.durable.journal.sequence();
        match change {
            VolumeChange::Delete { volume } => {
                self.durable.journal.push(Change::DeleteVolume { volume });
                self.clear_keys(Key::new(volume, 0), end_of(volume));
                self.durable.volumes.delete(at, sequence);
                self.note_hidden_volumes();
                // A checkpoint frees its space and its place in the table.
                self.request_checkpoint();
            }
            VolumeChange::Resize { volume, blocks } => {
                self.durable.journal.push(Change::ResizeVolume { volume, blocks });
                let size = blocks * self.metadata.geometry().block();
                if size < self.durable.volumes[at].size {
                    self.clear_keys(Key::new(volume, blocks), end_of(volume));
                }
                self.durable.volumes.resize(at, size);
            }
        }
        self.review_space();
        self.state.note_change();
        Ok(Some(sequence))
    }
}

/// Returns the end of a volume's largest possible range, so that whole subtrees are cut off there.
pub(crate) fn end_of(volume: VolumeId) -> Key {
    Key::new(volume, MAX_BLOCKS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block_map::discards::Discard;
    use crate::engine::Engine;
    use crate::format::geometry::Geometry;
    use crate::format::superblock::{DigestFunction, Parameters, Superblock};
    use crate::limits::Limits;

    /// Checks that the number after the last one is never used: it was 0, and a superblock with it is refused. Hidden volumes had numbers of former volumes,
    /// whose shared blocks counted as copies then.
    #[test]
    fn numbers_are_used_again_when_they_have_run_out_but_not_while_anything_names_them() {
        let geometry = Geometry::for_capacity(1 << 30).unwrap();
        let parameters = Parameters::new(geometry, [7; 16], [9; 32], DigestFunction::Blake3);
        let limits = Limits::for_memory(128 << 20, &geometry).unwrap();
        let mut engine = Engine::open(parameters, limits, 0);
        engine.pool.state.begin_serving();
        engine.pool.durable.superblock = Superblock { next_volume: u16::MAX - 3, ..engine.pool.durable.superblock };
        let create = |engine: &mut Engine, name: &str| {
            engine.pool.create_volume(name, 4096, None).unwrap();
            engine.pool.durable.volumes.iter().find(|volume| volume.name == name).unwrap().id.0
        };
        assert_eq!(create(&mut engine, "first"), u16::MAX - 3);
        assert_eq!(create(&mut engine, "last"), u16::MAX - 2);
        assert_eq!(create(&mut engine, "a"), 1);
        engine.pool.durable.discards.push(Discard::new(Pointer::NONE, VolumeId(2), 0));
        // The checkpoint in progress has removed number 3; its delta may still name it.
        engine.pool.durable.volumes.begin_counting();
        let template = engine.pool.durable.volumes[0].clone();
        let gone = Volume { id: VolumeId(3), name: String::from("gone"), deleted: Some(0), ..template };
        let at = engine.pool.durable.volumes.create(gone, Root::default());
        engine.pool.durable.volumes.remove(at);
        assert_eq!(create(&mut engine, "b"), 4);
        engine.pool.durable.volumes.end_counting();
        let numbers = |engine: &Engine| -> alloc::vec::Vec<u16> {
            engine.pool.durable.volumes.iter().map(|volume| volume.id.0).collect()
        };
        assert_eq!(numbers(&engine), [1, 4, u16::MAX - 3, u16::MAX - 2]);
        for keeps in [Keeps::Replicas, Keeps::SecondCopies] {
            engine.pool.enter_hidden_volume(keeps).unwrap();
            assert_eq!(engine.pool.enter_volume("again", 4096, None, Some(keeps)), Err(ControlError::TooManyVolumes));
        }
        assert_eq!(create(&mut engine, "c"), 3);
        assert_eq!(numbers(&engine), [1, 3, 4, u16::MAX - 3, u16::MAX - 2, u16::MAX - 1, u16::MAX]);
    }
}
