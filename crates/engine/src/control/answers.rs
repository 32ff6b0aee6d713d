//! What the engine answers when it is asked what is set, who has the pool and how parts of it are.

use crate::api::*;
use crate::engine::Engine;
use crate::format::volume::Volume;
use crate::icache::rule::DivisionChange;
use crate::jobs::cache_partition::CacheStatus;
use crate::jobs::index_prefetch::IndexPrefetchCounts;
use crate::limits::Limits;
use crate::pool::disk_index::DiskIndexStatus;
use crate::pool::standing::Phase;
use crate::repair::block_repair::Damage;
use crate::schedule::Schedule;

impl Engine {
    /// The damages found last, in order; at most 64.
    pub fn damages(&self) -> impl Iterator<Item = &Damage> {
        self.repairs.damages().list.iter()
    }

    /// Blocks that are under repair: a read of one waits for what comes of that.
    pub fn blocks_under_repair(&self) -> usize {
        self.repairs.under_repair().len()
    }

    /// References beyond which a block is kept twice; 0: none is.
    pub fn second_copies_above(&self) -> u32 {
        self.pool.second_copies
    }

    /// Which copy the index names of a block that was written again.
    pub fn index_copy(&self) -> IndexCopy {
        self.pool.index_copy
    }

    /// Returns whether maps are short of metadata: less than an eighth of it is left for new blocks.
    pub fn is_metadata_short(&self) -> bool {
        self.pool.phase == Phase::Serving && self.pool.is_metadata_short()
    }

    /// Returns whether changes wait for the driver to grow the pool, which it has offered ([`crate::Event::GrowthOffered`]).
    pub fn awaits_growth(&self) -> bool {
        self.pool.awaits_growth()
    }

    /// Returns what the pass that finds duplicates reads before blocks share a slot.
    pub fn dedup_verify(&self) -> DedupVerify {
        self.pool.dedup_verify()
    }

    /// Which feedback loop sets the pace of that pass.
    pub fn pass_throttle(&self) -> PassThrottle {
        self.pool.throttle()
    }

    /// Returns what decides which containers are copied to a flash in front of the store.
    pub fn flash_policy(&self) -> FlashPolicy {
        self.pool.flash_policy()
    }

    /// When a plan of relocation is made and run unasked: by who drives the engine.
    pub fn relocate_schedule(&self) -> Schedule {
        self.pool.relocate_schedule()
    }

    /// What came of putting digests into the index ahead of need.
    pub fn neighbour_counts(&self) -> IndexPrefetchCounts {
        self.jobs.index_prefetch.counts
    }

    /// The division of memory between index and read cache, and what was hit.
    pub fn cache_status(&self) -> CacheStatus {
        self.jobs.cache_partition.status(&self.pool, &self.jobs.cache_warmup)
    }

    /// The last changes of the division, the oldest first.
    pub fn cache_history(&self) -> impl Iterator<Item = DivisionChange> + '_ {
        self.jobs.cache_partition.history()
    }

    /// What is in force.
    pub fn cache_setting(&self) -> Option<CacheSetting> {
        self.pool.cache_setting()
    }

    /// What the read cache finds blocks by.
    pub fn cache_key(&self) -> CacheKey {
        self.pool.cache.key()
    }

    /// What the pool was set to, if it was.
    pub fn pool_cache(&self) -> Option<CacheSetting> {
        self.pool.pool_cache
    }

    /// Bytes that replicas may take, if somebody said so.
    pub fn replicas_budget(&self) -> Option<u64> {
        self.pool.replicas.budget
    }

    /// Bytes that replicas may take in a server with these limits, and popular blocks that get copies there.
    pub fn replicas_room(&self, limits: &Limits) -> (u64, u64) {
        self.pool.replicas_room(limits)
    }

    /// Figures of the index on disk.
    pub fn disk_index_status(&self) -> DiskIndexStatus {
        self.pool.disk_index_status()
    }

    /// From here on the pool is written only as long as its record has this nonce. To be called before the first event, if at all.
    pub fn set_owner(&mut self, nonce: [u8; 16]) {
        self.pool.set_owner(nonce)
    }

    /// The nonce that the record must have, if there is one.
    pub fn owner_nonce(&self) -> Option<[u8; 16]> {
        self.pool.owner_nonce()
    }

    /// Whether another has taken the pool over.
    pub fn is_taken_over(&self) -> bool {
        self.pool.failure == Some(Failure::TakenOver)
    }

    /// The most pages that a checkpoint has taken beyond what had been counted before it took any: 0, or writes were let in that the pool
    /// may have no room for.
    pub fn pages_beyond_promise(&self) -> u64 {
        self.pool.pages_beyond_promise()
    }

    /// The volumes that users have made, in order of their numbers.
    pub fn volumes(&self) -> impl Iterator<Item = &Volume> {
        self.pool.volumes.iter().filter(|volume| self.pool.is_visible(volume) && volume.keeps.is_none())
    }

    /// The policy that is in force for a volume.
    pub fn policy_of(&self, volume: &Volume) -> Policy {
        self.pool.policy_of(volume)
    }

    /// The pool's policy, if it says something.
    pub fn pool_policy(&self) -> Option<Policy> {
        self.pool.pool_policy
    }

    /// Memory that the pool says it shall be served with, in bytes; 0 if it says nothing.
    pub fn pool_memory(&self) -> u64 {
        self.pool.pool_memory
    }

    /// Whether commands that change something are taken.
    pub fn takes_changes(&self) -> bool {
        self.pool.takes_changes()
    }
}
