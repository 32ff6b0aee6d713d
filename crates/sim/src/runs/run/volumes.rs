//! Changes of volumes while requests are in flight: their creation, setting and deletion, and the meaning of the
//! answers to these commands.
//!
//! Conditions that must hold: an answered command holds permanently; an unanswered one may be lost or not. Requests
//! made impossible by a deletion, a smaller size or read-only fail cleanly, also if they were in flight. Nothing else
//! fails.

use engine::timing::Mode;
use engine::{Command, ControlError, Error, Full, KeepRuns, PassState, Policy, PoolChange, VolumePropertyChange};

use crate::oracle::model::{Existence, Listing, ModelVolume, Properties};
use crate::runs::config::FEW;
use crate::runs::run::{Pending, Run};
use crate::runs::workload::HUGE;
use crate::world::Answer;
use crate::{Checked, violated};

/// Blocks of metadata that tables and reserves of a pool with a huge volume may take.
const LEAST_METADATA: u64 = 256;
impl Run {
    pub(crate) fn create_volume(&mut self, size_blocks: u64, policy: Option<Policy>) -> Checked {
        while self.pending.values().any(|pending| matches!(pending, Pending::Create { .. })) {
            self.wait()?;
        }
        let is_there = |volume: &&ModelVolume| volume.existence != Existence::Gone && !volume.is_snapshot();
        let there = self.model.volumes().iter().filter(is_there);
        if there.count() >= FEW.max(self.config.volumes.len()) {
            return Ok(());
        }
        self.names += 1;
        let mut name = format!("volume-{}-{}", self.epoch, self.names);
        let taken = |name: &str| {
            let of_name = |existence| {
                self.model.volumes().iter().any(|volume| volume.name == name && volume.existence == existence)
            };
            of_name(Existence::Creating) || of_name(Existence::Certain)
        };
        let is_leaving = |volume: &&ModelVolume| volume.existence == Existence::Deleting && !volume.is_snapshot();
        let leaving = self.model.volumes().iter().filter(is_leaving);
        let free = leaving.map(|volume| volume.name.clone()).find(|name| !taken(name));
        let takes_name = free.is_some();
        // Else a name that a renaming in flight has left.
        name = free.or_else(|| self.left_name(None, |volume| volume.existence != Existence::Gone)).unwrap_or(name);
        let token = self.token(Pending::Create { name: name.clone(), takes_name });
        self.model.begin_create(&name, size_blocks, policy);
        self.is_exact &= policy.or(self.model.pool_policy()).unwrap_or_default() == Policy::Full;
        let size = size_blocks * self.config.parameters.geometry.block();
        self.world.control(token, Command::CreateVolume { name: &name, size, policy });
        Ok(())
    }

    /// Waits until no change of volumes is in flight, so that there is one at a time.
    pub(super) fn wait_for_change(&mut self) -> Checked {
        let changes = |pending: &Pending| {
            use Pending::{Delete, RefusedCommand, Resize, RollBack, Set, SetPool};
            matches!(
                pending,
                Delete { .. } | RefusedCommand { .. } | Resize { .. } | RollBack { .. } | Set { .. } | SetPool
            )
        };
        while self.pending.values().any(changes) {
            self.wait()?;
        }
        Ok(())
    }

    /// Returns the index of the volume that a number selects, if its existence is certain.
    pub(super) fn changeable(&self, number: u64) -> Option<usize> {
        let any = self.model.volumes().iter().any(|volume| volume.is_usable());
        let volume = any.then(|| self.volume(number))?;
        let found = &self.model.volumes()[volume];
        (found.existence == Existence::Certain && !found.is_snapshot()).then_some(volume)
    }

    pub(crate) fn delete_volume(&mut self, number: u64) -> Checked {
        self.wait_for_change()?;
        let Some(volume) = self.changeable(number) else { return Ok(()) };
        let is_protected = self.model.volumes()[volume].properties.protected;
        let refusal = is_protected.then_some(ControlError::Protected);
        self.ask_to_delete(volume, refusal.or(self.model.has_snapshots(volume).then_some(ControlError::HasSnapshots)));
        Ok(())
    }

    /// Asks for the deletion of a volume or snapshot, which must be refused if an error is given.
    pub(super) fn ask_to_delete(&mut self, volume: usize, refusal: Option<ControlError>) {
        let id = self.model.volumes()[volume].id.expect("usable volumes are listed");
        let pending = match refusal {
            Some(reason) => Pending::RefusedCommand { reason },
            None => {
                self.model.begin_delete(volume);
                Pending::Delete { volume }
            }
        };
        let token = self.token(pending);
        self.world.control(token, Command::DeleteVolume { volume: id });
    }

    pub(crate) fn resize_volume(&mut self, number: u64, size_blocks: u64) -> Checked {
        self.wait_for_change()?;
        let Some(volume) = self.changeable(number) else { return Ok(()) };
        if self.model.volumes()[volume].changes_size() {
            // The pool failed meanwhile: the next opening tells its size.
            return Ok(());
        }
        if size_blocks >= self.model.volumes()[volume].size_blocks {
            // Requests submitted before an earlier shrinking might fit again.
            self.drain()?;
            if self.model.volumes()[volume].existence != Existence::Certain {
                return Ok(());
            }
        }
        let id = self.model.volumes()[volume].id.expect("usable volumes are listed");
        self.model.begin_resize(volume, size_blocks);
        let token = self.token(Pending::Resize { volume });
        let size = size_blocks * self.config.parameters.geometry.block();
        self.world.control(token, Command::ResizeVolume { volume: id, size });
        Ok(())
    }

    pub(crate) fn set_volume(&mut self, number: u64, change: VolumePropertyChange) -> Checked {
        self.wait_for_change()?;
        let Some(volume) = self.changeable(number) else { return Ok(()) };
        let id = self.model.volumes()[volume].id.expect("usable volumes are listed");
        let before = self.model.volumes()[volume].properties;
        let properties = Properties {
            policy: change.policy.unwrap_or(before.policy),
            read_only: change.read_only.unwrap_or(before.read_only),
            exclusive: change.exclusive.unwrap_or(before.exclusive),
            timing: change.timing.unwrap_or(before.timing),
            goal: change.goal.unwrap_or(before.goal),
            keep_runs: change.keep_runs.unwrap_or(before.keep_runs),
            controller: change.controller.unwrap_or(before.controller),
            protected: change.protected.unwrap_or(before.protected),
            held: before.held,
            snapshots: change.snapshots.unwrap_or(before.snapshots),
        };
        self.model.begin_set(volume, properties);
        // Runs that are kept leave blocks stored twice, and a pass leaves out read-only volumes.
        self.is_exact &= change.keep_runs != Some(KeepRuns::On) && change.read_only != Some(true);
        self.note_policies();
        let token = self.token(Pending::Set { volume });
        self.world.control(token, Command::SetVolume { volume: id, change });
        Ok(())
    }

    pub(crate) fn set_pool(&mut self, policy: Option<Policy>) -> Checked {
        self.wait_for_change()?;
        self.model.begin_set_pool(policy);
        self.note_policies();
        let token = self.token(Pending::SetPool);
        let policy = Some(policy);
        let set = Command::SetPool(PoolChange { policy, ..PoolChange::default() });
        self.world.control(token, set);
        Ok(())
    }

    /// Changes a property of the pool that the model does not judge.
    pub(crate) fn change_pool(&mut self, pending: Pending, change: PoolChange) -> Checked {
        let token = self.token(pending);
        self.world.control(token, Command::SetPool(change));
        Ok(())
    }

    /// Notes that deduplication may stay inexact, since blocks written while some volume does not share everything may stay stored twice permanently.
    pub(super) fn note_policies(&mut self) {
        let all_full = self.model.volumes().iter().all(|volume| self.model.policy_of(volume) == Policy::Full);
        self.is_exact &= all_full;
    }

    /// Notes writes to volumes that are offline: they are left to a pass, and the index on disk falls behind. Blocks written during a pass may stay
    /// stored twice until the next one.
    pub(crate) fn note_modes(&mut self) {
        let engine = &self.world.engine;
        self.was_offline |= engine.volumes().any(|volume| engine.timing_of(volume).mode == Mode::Offline);
        let is_written = self.pending.values().any(|pending| matches!(pending, Pending::Change { .. }));
        if self.was_offline && self.is_exact && is_written {
            self.is_exact = engine.status().dedup.state != PassState::Running;
        }
    }

    /// Compares the engine's list of volumes with the model's.
    pub(crate) fn reconcile(&mut self, opened: bool) -> Checked {
        let block = self.config.parameters.geometry.block();
        let listed = self.world.engine.volumes().map(|volume| Listing {
            id: volume.id,
            name: self.name_in_model(volume),
            // A size that is no multiple of the block size matches no volume of the model.
            size_blocks: if volume.size.is_multiple_of(block) { volume.size / block } else { u64::MAX },
            properties: Properties {
                policy: volume.properties.policy(),
                read_only: volume.properties.read_only(),
                exclusive: volume.properties.exclusive(),
                timing: volume.properties.timing(),
                goal: volume.properties.goal(),
                keep_runs: volume.properties.keep_runs(),
                controller: volume.properties.controller(),
                protected: volume.properties.protected(),
                held: volume.is_held(),
                snapshots: volume.properties.snapshots(),
            },
            parent: volume.family.parent,
        });
        let listed: Vec<Listing> = listed.collect();
        self.check_names()?;
        self.model.reconcile(&listed, self.world.engine.properties().policy(), opened)
    }

    /// Returns true if a change of its volume explains that a request was refused.
    pub(crate) fn is_refusal_due(&self, pending: &Pending, result: &Result<Answer, Error>) -> bool {
        let (volume, stamp) = match *pending {
            Pending::Change { range, stamp, .. } => (range.volume, stamp),
            Pending::Refused { volume, stamp }
            | Pending::Read { volume, stamp }
            | Pending::Extents { volume, stamp, .. }
            | Pending::Flush { volume, stamp } => (volume, stamp),
            _ => return false,
        };
        match result {
            Err(Error::Invalid) => self.model.may_be_outside(volume, stamp),
            Err(Error::ReadOnly) => {
                matches!(pending, Pending::Change { .. }) && self.model.may_be_locked(volume, stamp)
            }
            _ => false,
        }
    }

    pub(crate) fn commanded(&mut self, token: u64, result: Result<(), ControlError>) -> Checked {
        let Some(pending) = self.pending.remove(&token) else {
            return violated(format!("an answer to command {token}, which waits for none: {result:?}"));
        };
        if matches!(pending, Pending::Close { .. }) {
            self.closed = Some(result);
        }
        match (&pending, result) {
            (_, Err(error)) if self.endures && self.is_command_explained(&pending, error) => return Ok(()),
            (Pending::Grow { grown: Ok(grown) }, Ok(())) => {
                self.has_grown(*grown);
                let capacity = self.world.engine.status().capacity_bytes;
                if capacity != grown.capacity_bytes() {
                    return violated(format!("grown to {grown:?}, and the capacity is {capacity}"));
                }
                return Ok(());
            }
            (Pending::Grow { grown: Ok(_) }, Err(ControlError::NoSpace))
                if self.may_lack_metadata() || self.has_cut_off_much() =>
            {
                return Ok(());
            }
            (Pending::Grow { grown: Err(expected) }, Err(ControlError::BadCapacity(error))) if *expected == error => {
                return Ok(());
            }
            (Pending::Settle | Pending::Scrub | Pending::Dedup | Pending::SecondCopies | Pending::Replicas, Ok(()))
            | (Pending::Relocate, Ok(()) | Err(ControlError::NoPlan | ControlError::PlanInUse))
            | (Pending::IndexCopy | Pending::SetCache | Pending::CacheKey | Pending::Close { .. }, Ok(())) => {
                return Ok(());
            }
            (Pending::Close { .. }, Err(ControlError::ReadOnly)) if self.world.ownership.taken => return Ok(()),
            // The driver answers for writes that wait, while the pool closes.
            (Pending::Grow { .. }, Err(ControlError::ReadOnly)) if self.closes() => return Ok(()),
            (Pending::Scrub, Err(ControlError::NoScrub))
            | (Pending::Dedup, Err(ControlError::NoDedup))
            | (Pending::SecondCopies, Err(ControlError::TooManyVolumes)) => return Ok(()),
            (Pending::Close { early: true }, Err(ControlError::NoCheckpoint)) => return Ok(()),
            (Pending::Create { name, .. }, Ok(())) => self.model.end_create(name, true),
            (Pending::Create { name, .. }, Err(ControlError::TooManyVolumes)) => self.model.end_create(name, false),
            // Mappings in the map buffer stay there.
            (Pending::Settle, Err(ControlError::NoSpace)) if self.may_lack_metadata() => {
                self.is_unsettled = true;
                return Ok(());
            }
            (Pending::SecondCopies, Err(ControlError::NoSpace)) if self.may_lack_metadata() => return Ok(()),
            (Pending::Create { name, .. }, Err(ControlError::NoSpace)) if self.may_lack_metadata() => {
                self.model.end_create(name, false);
            }
            // The deletion waits for space.
            (Pending::Create { name, takes_name: true }, Err(ControlError::Exists)) => {
                self.model.end_create(name, false);
            }
            // It waited for a checkpoint, which was given up: the change may have happened.
            (_, Err(ControlError::ReadOnly)) if self.closes_early() => return Ok(()),
            (Pending::RefusedCommand { reason }, Err(error)) if error == *reason => return Ok(()),
            (Pending::Rename { volume }, Ok(())) => self.model.end_rename(*volume),
            (Pending::Snapshots { first }, Ok(())) => self.model.end_snapshots(*first, true)?,
            (Pending::Snapshots { first }, Err(ControlError::TooManyVolumes)) => {
                self.model.end_snapshots(*first, false)?
            }
            (Pending::Snapshots { first }, Err(ControlError::NoSpace)) if self.may_lack_metadata() => {
                self.model.end_snapshots(*first, false)?;
            }
            (Pending::RollBack { volume }, Ok(())) => self.model.end_rollback(*volume, true),
            (Pending::RollBack { volume }, Err(ControlError::NoSpace)) if self.may_lack_metadata() => {
                self.model.end_rollback(*volume, false);
            }
            (Pending::Delete { volume }, Ok(())) => self.model.end_delete(*volume),
            (Pending::Resize { volume }, Err(ControlError::NoSpace)) if self.may_lack_metadata() => {
                self.model.fail_resize(*volume);
            }
            (Pending::Resize { volume }, Ok(())) => self.model.end_resize(*volume),
            (Pending::Set { volume }, Ok(())) => self.model.end_set(*volume),
            (Pending::SetPool, Ok(())) => self.model.end_set_pool(),
            _ => return violated(format!("command {pending:?} was answered with {result:?}, and nothing had failed")),
        }
        self.reconcile(false)
    }

    /// Returns true if a lack of space is credible: half of the slots are in use, in flight, or held for a crash. (The rest may be a reserve, or
    /// duplicates that a small index could not know.)
    pub(crate) fn may_be_full(&self) -> bool {
        let in_flight = self.config.depth * u64::from(self.config.parameters.geometry.piece_blocks);
        2 * (self.model.blocks_that_may_take_space() + in_flight) >= self.config.parameters.geometry.slots()
    }

    /// Returns true if a lack of metadata is credible, where volumes are so large that each block may have a page of its own at all levels, or snapshots keep
    /// such pages: the pages on the paths to written blocks are a quarter of all. (They are needed twice when they are copied; the tables and reserves take
    /// the rest.)
    pub(crate) fn may_lack_metadata(&self) -> bool {
        let geometry = &self.config.parameters.geometry;
        let has_families = self.model.has_families();
        let mut pages = 0;
        for volume in self.model.volumes().iter().filter(|volume| has_families || volume.most_blocks() > HUGE) {
            let mut span = geometry.map_leaf_entries();
            while span < volume.most_blocks().saturating_mul(geometry.fanout()) {
                let mut numbers: Vec<u64> = volume.written().map(|block| block / span).collect();
                numbers.dedup();
                pages += numbers.len() as u64;
                span = span.saturating_mul(geometry.fanout());
            }
        }
        if self.config.first_number > 1 && has_families {
            // In the table of volumes, each has a leaf to itself and three pages above it.
            pages += 4 * self.model.volumes().len() as u64;
        }
        let is_huge = self.model.volumes().iter().any(|volume| volume.most_blocks() > HUGE);
        (is_huge || has_families) && 4 * pages + LEAST_METADATA >= u64::from(geometry.metadata_blocks)
    }

    /// Returns true if the engine reports that metadata is full, and half of the slots are in use, with the copies of popular blocks: these give way where slots
    /// are missing, but not where metadata is (sim seed 1796067558708 --operations 3000).
    pub(crate) fn has_filled_metadata(&self) -> bool {
        let slots = self.model.blocks_that_may_take_space() + self.world.engine.status().held.copies;
        self.world.engine.full() == Some(Full::Metadata) && 2 * slots >= self.config.parameters.geometry.slots()
    }

    /// Returns true if many pages of a huge volume are still to be freed: the model has forgotten them, and they take space. Writes wait for that; a request
    /// for a larger pool is repeated.
    pub(crate) fn has_cut_off_much(&self) -> bool {
        self.world.engine.status().discarded_blocks > HUGE
    }
}
