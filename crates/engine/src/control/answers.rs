//! Answers of the engine about its settings, the pool's owner and the state of its parts.

use crate::api::*;
use crate::engine::Engine;
use crate::format::volume::Volume;
use crate::icache::rule::PartitionChange;
use crate::jobs::cache_partition::CacheStatus;
use crate::jobs::index_prefetch::IndexPrefetchCounts;
use crate::limits::Limits;
use crate::pool::disk_index::DiskIndexStatus;
use crate::pool::state::Phase;
use crate::repair::block_repair::Damage;
use crate::schedule::Schedule;

impl Engine {
    /// Returns the damages found last, in order; at most 64.
    pub fn damages(&self) -> impl Iterator<Item = &Damage> {
        self.repairs.damages().list.iter()
    }

    /// Returns the number of blocks under repair: a read of one waits for the repair's outcome.
    pub fn blocks_under_repair(&self) -> usize {
        self.repairs.under_repair().len()
    }

    /// Returns the number of references beyond which a block is kept twice; 0: none is.
    pub fn second_copies_above(&self) -> u32 {
        self.pool.properties.second_copies
    }

    /// Returns the copy that the index names of a block that was written again.
    pub fn index_copy(&self) -> IndexCopy {
        self.pool.properties.index_copy
    }

    /// Returns true if maps are short of metadata: less than an eighth of it is left for new blocks.
    pub fn is_metadata_short(&self) -> bool {
        self.pool.state.phase() == Phase::Serving && self.pool.is_metadata_short()
    }

    /// Returns true if changes wait for the driver to grow the pool, which it has offered ([`crate::Event::GrowthOffered`]).
    pub fn awaits_growth(&self) -> bool {
        self.pool.awaits_growth()
    }

    /// Returns the verification level of the deduplication pass: the slots that it reads before blocks share one.
    pub fn dedup_verify(&self) -> DedupVerify {
        self.pool.dedup_verify()
    }

    /// Returns the feedback loop that throttles the deduplication pass.
    pub fn pass_throttle(&self) -> PassThrottle {
        self.pool.throttle()
    }

    /// Returns the policy by which containers are copied to a flash in front of the store.
    pub fn flash_policy(&self) -> FlashPolicy {
        self.pool.flash_policy()
    }

    /// Returns the times at which the driver of the engine makes and runs a plan of relocation without a command.
    pub fn relocate_schedule(&self) -> Schedule {
        self.pool.relocate_schedule()
    }

    /// Returns the counts of digests that index prefetch put into the index, and of their use.
    pub fn index_prefetch_counts(&self) -> IndexPrefetchCounts {
        self.jobs.index_prefetch.counts
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

    /// Returns the key by which the read cache finds blocks.
    pub fn cache_key(&self) -> CacheKey {
        self.pool.memory.cache.key()
    }

    /// Returns the cache setting of the pool, if it has one of its own.
    pub fn pool_cache(&self) -> Option<CacheSetting> {
        self.pool.own_cache_setting()
    }

    /// Returns the bytes that replicas may take, if that has been set.
    pub fn replicas_budget(&self) -> Option<u64> {
        self.pool.hints.replicas.budget
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

    /// Returns the volumes that users have made, in order of their numbers.
    pub fn volumes(&self) -> impl Iterator<Item = &Volume> {
        self.pool.durable.volumes.iter().filter(|volume| self.pool.is_visible(volume) && volume.keeps.is_none())
    }

    /// Returns the policy in force for a volume: its own or the pool's.
    pub fn policy_of(&self, volume: &Volume) -> Policy {
        self.pool.policy_of(volume)
    }

    /// Returns the pool's policy, if it has been set.
    pub fn pool_policy(&self) -> Option<Policy> {
        self.pool.policy()
    }

    /// Returns the memory that the pool is set to be served with, in bytes; 0 if it is not set.
    pub fn pool_memory(&self) -> u64 {
        self.pool.memory_setting()
    }

    /// Returns true if commands that change something are taken.
    pub fn takes_changes(&self) -> bool {
        self.pool.takes_changes()
    }
}
