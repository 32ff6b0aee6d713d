//! Answers of the engine about its settings, the pool's owner and the state of its parts.

use crate::api::*;
use crate::engine::Engine;
use crate::format::volume::{HIDDEN_NAMES, Volume};
use crate::icache::rule::PartitionChange;
use crate::jobs::cache_partition::CacheStatus;
use crate::jobs::index_prefetch::IndexPrefetchCounts;
use crate::limits::Limits;
use crate::pool::disk_index::DiskIndexStatus;
use crate::pool::state::Phase;
use crate::pool::volumes::table::SnapshotSum;
use crate::repair::block_repair::Damage;
use alloc::format;
use alloc::string::String;

impl Engine {
    /// Returns the damages found last, in order; at most 64.
    pub fn damages(&self) -> impl Iterator<Item = &Damage> {
        self.repairs.damages().list().iter()
    }

    /// Returns the number of blocks under repair: a read of one waits for the repair's outcome.
    pub fn blocks_under_repair(&self) -> usize {
        self.repairs.under_repair().len()
    }

    /// Returns the properties of the pool, in force and for the next checkpoint.
    pub fn properties(&self) -> &PoolProperties {
        &self.pool.properties
    }

    /// Returns true if maps are short of metadata: less than an eighth of it is left for new blocks.
    pub fn is_metadata_short(&self) -> bool {
        self.pool.state.phase() == Phase::Serving && self.pool.is_metadata_short()
    }

    /// Returns true if changes wait for the driver to grow the pool, which it has offered ([`crate::Event::GrowthOffered`]).
    pub fn awaits_growth(&self) -> bool {
        self.pool.awaits_growth()
    }

    /// Returns the counts of digests that index prefetch put into the index, and of their use.
    pub fn index_prefetch_counts(&self) -> IndexPrefetchCounts {
        self.jobs.index_prefetch.counts()
    }

    /// Returns the cache partition between index and read cache, with the hits of both.
    pub fn cache_status(&self) -> CacheStatus {
        self.jobs.cache_partition.status(&self.pool, &self.jobs.cache_warmup)
    }

    /// Returns the last changes of the cache partition, the oldest first.
    pub fn cache_history(&self) -> impl Iterator<Item = PartitionChange> + '_ {
        self.jobs.cache_partition.history()
    }

    /// Returns the cache setting in force, by the pool or by the limits.
    pub fn cache_setting(&self) -> Option<CacheSetting> {
        self.pool.cache_setting()
    }

    /// Returns the bytes that replicas may take in a server with these limits, and the number of popular blocks that get copies there.
    pub fn replicas_space(&self, limits: &Limits) -> (u64, u64) {
        self.pool.replicas_space(limits)
    }

    /// Returns the figures of the index on disk.
    pub fn disk_index_status(&self) -> DiskIndexStatus {
        self.pool.disk_index_status()
    }

    /// Sets the nonce that the pool's record must have: the pool is written only as long as it has. Call it before the first event, if at all.
    pub fn set_owner(&mut self, nonce: [u8; 16]) {
        self.pool.set_owner(nonce)
    }

    /// Returns the nonce that the record must have, if there is one.
    pub fn owner_nonce(&self) -> Option<[u8; 16]> {
        self.pool.owner_nonce()
    }

    /// Returns true if another server has taken the pool over.
    pub fn is_taken_over(&self) -> bool {
        self.pool.state.failure() == Some(Failure::TakenOver)
    }

    /// Returns the most pages that a checkpoint has taken beyond those counted before it took any: 0, or writes were admitted that the pool may have
    /// no space for.
    pub fn pages_beyond_promise(&self) -> u64 {
        self.pool.pages_beyond_promise()
    }

    /// Returns the volumes that users have made, and their snapshots, in order of their numbers.
    pub fn volumes(&self) -> impl Iterator<Item = &Volume> {
        self.pool.durable.volumes().iter().filter(|volume| self.pool.users_see(volume))
    }

    /// Returns the volumes that users have made, and their snapshots, with higher numbers than one, in order of their numbers. Those before cost no step.
    pub fn volumes_above(&self, number: VolumeId) -> impl Iterator<Item = &Volume> {
        let volumes = self.pool.durable.volumes();
        let above = volumes.iter().skip(volumes.first_after(|id| id <= number));
        above.filter(|volume| self.pool.users_see(volume))
    }

    /// Returns the bytes of memory that the table of volumes takes.
    pub fn volumes_memory(&self) -> u64 {
        self.pool.durable.volumes().memory()
    }

    /// Returns the volume or snapshot with a number, if users may see it.
    pub fn volume(&self, id: VolumeId) -> Option<&Volume> {
        let volume = &self.pool.durable.volumes()[self.pool.volume_index(id)?];
        self.pool.users_see(volume).then_some(volume)
    }

    /// Returns the volume with a name, or the snapshot with a name VOLUME@NAME, if users may see it.
    pub fn volume_named(&self, name: &str) -> Option<&Volume> {
        let volumes = self.pool.durable.volumes();
        let at = match name.split_once('@') {
            None => volumes.named(name)?,
            Some((of, name)) => volumes.find(volumes.snapshot_named(volumes[volumes.named(of)?].id, name)?)?,
        };
        let volume = &volumes[at];
        self.pool.users_see(volume).then_some(volume)
    }

    /// Returns the name of a volume, or VOLUME@NAME for a snapshot. One that was deleted while others inherit from it is VOLUME@(deleted).
    pub fn full_name(&self, volume: &Volume) -> String {
        let Some(snapshot) = volume.family.snapshot else { return volume.name.clone() };
        let of = self.volume(snapshot.of).map_or("", |of| &of.name);
        let name = if volume.is_unnamed() { "(deleted)" } else { &volume.name };
        format!("{of}@{name}")
    }

    /// Returns kind and name of a volume or snapshot, for messages.
    pub(crate) fn kind_and_name(&self, volume: &Volume) -> String {
        format!("{} {}", if volume.is_snapshot() { "snapshot" } else { "volume" }, self.full_name(volume))
    }

    /// Returns the snapshots of a volume, in the order of their names.
    pub fn snapshots_of(&self, volume: VolumeId) -> impl Iterator<Item = &Volume> {
        let volumes = self.pool.durable.volumes();
        let snapshots = volumes.snapshots_of(volume).filter_map(|id| volumes.get(volumes.find(id)?));
        snapshots.filter(|volume| self.pool.users_see(volume))
    }

    /// Returns the number of snapshots of a volume, and the blocks that they map and do not inherit. Deleted snapshots do not count.
    pub fn held_by_snapshots_of(&self, volume: VolumeId) -> SnapshotSum {
        self.pool.durable.volumes().held_by_snapshots_of(volume)
    }

    /// Returns the volumes with snapshots, each with the sums of its snapshots.
    pub fn held_by_snapshots(&self) -> impl Iterator<Item = (&Volume, SnapshotSum)> {
        let volumes = self.pool.durable.volumes();
        volumes.held_by_snapshots().filter_map(|(of, sum)| Some((self.volume(of)?, sum)))
    }

    /// Returns the number of snapshots that were deleted while others inherit from them, and the blocks that they map and do not inherit.
    pub fn held_by_deleted_snapshots(&self) -> SnapshotSum {
        self.pool.durable.volumes().held_by_unnamed()
    }

    /// Returns the snapshot that a volume was cloned from: the nearest one of another volume that it inherits from. `None` if it inherits from none, or only
    /// from deleted ones.
    pub fn origin_of(&self, volume: &Volume) -> Option<&Volume> {
        let own = volume.family.snapshot.map_or(volume.id, |snapshot| snapshot.of);
        let volumes = self.pool.durable.volumes();
        let ancestors =
            volumes.lineage().ancestors(volume.id).filter_map(|found| volumes.get(volumes.find(found.map)?));
        let is_of_another = |found: &&Volume| found.family.snapshot.is_some_and(|snapshot| snapshot.of != own);
        ancestors.filter(|found| self.pool.users_see(found)).find(is_of_another)
    }

    /// Returns the number of volumes that were cloned from a snapshot and are not deleted. A clone with snapshots counts once.
    pub fn clone_count(&self, snapshot: &Volume) -> usize {
        let Some(own) = snapshot.family.snapshot.map(|snapshot| snapshot.of) else { return 0 };
        let volumes = self.pool.durable.volumes();
        let is_clone = |id: &VolumeId| {
            let child = volumes.find(*id).map(|at| &volumes[at]);
            child.is_some_and(|child| {
                child.deleted.is_none() && child.family.snapshot.map_or(child.id, |of| of.of) != own
            })
        };
        volumes.lineage().children(snapshot.id).filter(is_clone).count()
    }

    /// Returns the volumes that users have made, without snapshots, whose names follow a name, or all, in the order of names.
    pub fn volumes_after(&self, name: Option<&str>) -> impl Iterator<Item = &Volume> {
        let named = self.pool.durable.volumes().named_after(name);
        named.filter(|volume| self.pool.users_see(volume))
    }

    /// Returns the number of volumes that users have made, with those whose creation is not complete.
    pub fn volume_count(&self) -> usize {
        let volumes = self.pool.durable.volumes();
        volumes.names() - HIDDEN_NAMES.iter().filter(|name| volumes.named(name).is_some()).count()
    }

    /// Returns the policy in force for a volume: its own or the pool's.
    pub fn policy_of(&self, volume: &Volume) -> Policy {
        self.pool.policy_of(volume)
    }

    /// Returns true if commands that change something are taken.
    pub fn takes_changes(&self) -> bool {
        self.pool.takes_changes()
    }
}
