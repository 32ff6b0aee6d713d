//! Properties of a pool. A command sets them at once; the next checkpoint writes them into its superblock ([`Pool::with_properties`]), and recovery
//! adopts those of the superblock that it finds. Four stand with the part that they rule: `defrag` and the allowance with regions and moves, the budget with the
//! replicas, the key with the read cache. The traits of the device follow from its kind.

use super::Pool;
use crate::device::{DeviceKind, DeviceTraits};
use crate::format::superblock::Superblock;
use crate::properties::FlashPolicy;
use crate::properties::{CacheSetting, DedupVerify, IndexCopy, PassThrottle, Policy};
use crate::schedule::Schedule;

/// Properties of the pool, as the next checkpoint writes them.
pub(crate) struct PoolProperties {
    /// Policy of volumes without one of their own, if it has been set.
    pub(super) pool_policy: Option<Policy>,
    pub(super) pool_memory: u64,
    pub(super) pool_cache: Option<CacheSetting>,
    /// Number of references beyond which a block is kept twice; 0: none is.
    pub(crate) second_copies: u32,
    pub(crate) index_copy: IndexCopy,
    /// Configured kind of the disk under the store, and the traits of the disk.
    pub(super) device_kind: DeviceKind,
    pub(super) device: DeviceTraits,
    /// Reads that the pass does before blocks share a slot.
    pub(super) dedup_verify: DedupVerify,
    /// Feedback loop that throttles the pass.
    pub(super) throttle: PassThrottle,
    /// Policy for the choice of containers that are copied to flash.
    pub(super) flash_policy: FlashPolicy,
    /// Times at which a plan of relocation is made and run automatically.
    pub(super) relocate: Schedule,
}

impl Pool {
    /// Returns a superblock with the present properties of the pool, as the next checkpoint writes them.
    pub(crate) fn with_properties(&self, superblock: Superblock) -> Superblock {
        Superblock {
            pool_policy: self.properties.pool_policy,
            memory: self.properties.pool_memory,
            second_copies: self.properties.second_copies,
            index_copy: self.properties.index_copy,
            dedup_verify: self.dedup_verify(),
            throttle: self.throttle(),
            flash_policy: self.flash_policy(),
            defrag: self.regions().defrag(),
            allowance: self.allowance_to_keep(),
            device: self.device_kind(),
            relocate: self.relocate_schedule(),
            cache: self.properties.pool_cache,
            cache_key: self.memory.cache.key(),
            replicas: self.hints.replicas.budget,
            ..superblock
        }
    }

    /// Returns the pool's policy, if it has been set.
    pub(crate) fn policy(&self) -> Option<Policy> {
        self.properties.pool_policy
    }

    /// Returns the memory that the pool is set to be served with, in bytes; 0 if it is not set.
    pub(crate) fn memory_setting(&self) -> u64 {
        self.properties.pool_memory
    }

    /// Returns the cache setting of the pool, if it has one of its own.
    pub(crate) fn own_cache_setting(&self) -> Option<CacheSetting> {
        self.properties.pool_cache
    }
}
