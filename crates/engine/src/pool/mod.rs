//! The pool: the shared state that requests, jobs and repairs work on, in eight parts, and the operations that span several of them.
//!
//! ```text
//! metadata              part: pages, the allocator of their blocks, I/O (`metadata/`)
//! durable               part: state that a crash must keep
//! hints                 part: state that may be lost or wrong
//! memory                part: buffers and their users
//! checkpoint_state      part: requests for checkpoints, their progress and pressure
//! state                 part: phase, failure, time
//! pool_properties       part: properties for the next superblock (`properties/`)
//! stats                 part: statistics
//! tables                sizes and names of the tables
//! map_log               size of the map buffer's log
//! page_loads            loads of metadata pages ahead of need
//! resolve               lookup of a block: deltas, map buffer, leaf
//! change                changes of the map
//! contents              digests of slots, and sources of their content
//! regions               regions that are read in order, and the recent writes to them
//! moves                 limits of jobs that move blocks: budget, target slots, number of containers to empty
//! replay                changes of the journal, applied by recovery
//! replicas              their locations and their limits
//! containers            opening and reserving ahead
//! records               closing a record, and writing its blocks to their slots
//! metadata_reservation  metadata pages promised to checkpoints
//! volumes               their table, creation, changes and deletion; volumes that users do not see
//! copy_access           the pool for jobs that only move copies
//! device                traits of the disk
//! snapshot_groups       snapshots that were asked for and are not durable
//! disk_index            the index on disk, if there is one
//! flash                 copies of containers in front of the store, and the reads that go there
//! growth                geometry, space and tables together
//! owner                 the process that has the pool
//! ```

pub(crate) mod change;
pub(crate) mod checkpoint_state;
pub(crate) mod containers;
pub(crate) mod contents;
pub(crate) mod copy_access;
mod device;
pub(crate) mod disk_index;
mod durable;
pub mod flash;
pub(crate) mod growth;
mod hints;
mod map_log;
mod memory;
pub(crate) mod metadata_reservation;
pub(crate) mod moves;
pub mod owner;
mod page_loads;
mod pool_properties;
pub(crate) mod records;
pub(crate) mod regions;
mod replay;
pub(crate) mod replicas;
pub(crate) mod resolve;
pub(crate) mod snapshot_groups;
pub(crate) mod state;
mod stats;
pub(crate) mod tables;
pub mod volumes;

pub(crate) use checkpoint_state::CheckpointState;
pub(crate) use durable::Durable;
pub(crate) use hints::Hints;
pub(crate) use state::PoolState;
pub(crate) use stats::PoolStats;

use alloc::vec::Vec;

use crate::api::*;
use crate::cache::payload::PayloadMemory;
use crate::counters::{Counters, ReadCounts, WriteCounts};
use crate::dedup::index::Index;
use crate::format::superblock::Parameters;
use crate::limits::Limits;
use crate::metadata::tree::Metadata;
use crate::pool::disk_index::DiskIndex;
use crate::pool::moves::Moves;
use crate::pool::regions::Regions;
use crate::pool::replicas::Replicas;

/// Pool: all parts that more than one layer works on.
pub(crate) struct Pool {
    pub(crate) limits: Limits,
    /// State of the pool as a whole: its phase, its failure, and the time.
    pub(crate) state: PoolState,
    /// Pages of the trees, the allocator of their blocks, and the table of I/O.
    pub(crate) metadata: Metadata,
    /// State that a crash must keep: tables, deltas, journal, space, volumes.
    pub(crate) durable: Durable,
    /// Properties of the pool, as the next checkpoint writes them.
    pub(crate) properties: PoolProperties,
    /// State that may be lost or wrong without harm: every use of it is verified.
    pub(crate) hints: Hints,
    /// Payload in memory: which buffer holds which block, and for whom.
    pub(crate) memory: PayloadMemory,
    /// Requests for checkpoints, and the progress of the one in progress.
    pub(crate) checkpoint: CheckpointState,
    /// Statistics that are not kept elsewhere.
    pub(crate) stats: PoolStats,
}

impl Pool {
    /// Creates a pool with empty tables, to be opened.
    pub(crate) fn new(parameters: Parameters, limits: Limits, now: Nanos) -> Pool {
        let geometry = parameters.geometry;
        let metadata = Metadata::new(geometry, limits.pages, parameters.page_seed(), parameters.seed());
        Pool {
            limits,
            state: PoolState::new(now),
            metadata,
            durable: Durable::new(parameters, &limits),
            properties: PoolProperties::default(),
            hints: Hints {
                regions: Regions::new(limits.regions(), geometry.slots_per_container.into()),
                moves: Moves::default(),
                replicas: Replicas::default(),
                index: Index::new(limits.index_size(geometry.block()), geometry.slots(), limits.index_tag_bits),
                disk_index: DiskIndex::default(),
                flash: None,
                flash_nonce: 0,
                flash_spares: Vec::new(),
            },
            memory: PayloadMemory::new(limits.buffers, limits.write_buffers, limits.most_cached(geometry.block())),
            checkpoint: CheckpointState::new(now),
            stats: PoolStats {
                counters: Counters::default(),
                writes: WriteCounts::default(),
                reads: ReadCounts::default(),
            },
        }
    }
}
