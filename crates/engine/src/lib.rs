//! Onefold's engine: a deduplicating block store as a state machine.
//!
//! No I/O, no clock, no threads, no payload: events go in, effects come out ([`api`]), and a run is a pure function of parameters, limits and events.
//! Each folder owns a part of the state; its head names that part and its invariants. ARCHITECTURE.md is the map.
#![no_std]
#![warn(missing_docs)]

extern crate alloc;

pub mod api;
mod audit;
#[cfg(feature = "bench")]
#[doc(hidden)]
pub mod bench;
mod block_map;
mod cache;
mod control;
mod counters;
mod data_path;
mod dedup;
mod device;
mod engine;
mod flash_cache;
mod format;
mod icache;
mod jobs;
mod journal;
mod limits;
mod locality_map;
mod metadata;
mod mutant;
pub mod pid;
mod pool;
mod properties;
mod pump;
pub mod recording;
mod recovery;
pub mod relocation;
mod repair;
mod requests;
mod sizes;
mod space;

pub use api::*;
pub use audit::disk_index::DiskIndexAudit;
pub use audit::flaws::Flaw;
pub use audit::repair::{BlockRange, Medium, Repair, RepairError, plan_repair};
pub use audit::shares::SharedBlocks;
pub use control::status::{Mode, Status};
pub use counters::{ContentCounts, Counters, PagesWritten, PlaceCounts, ReadCounts, Removed, WhatIf, WriteCounts};
pub use dedup::{policy, timing};
pub use device::DeviceTraits;
pub use engine::Engine;
pub use flash_cache::admission;
pub use flash_cache::quadrants::Quadrants;
pub use format::create::{Format, format};
pub use format::geometry::{Geometry, Growth, UNGROWN};
pub use format::layout::TableForm;
pub use format::record::begins_as_record;
pub use format::superblock::{
    DedupRecord, DigestFunction, DiskIndexRecord, Parameters, PassState, ScrubRecord, Superblock, SuperblockError,
};
pub use format::volume::{HIDDEN_NAMES, MAX_VOLUMES, NAME_BYTES, Volume, is_name, is_snapshot_name};
pub use format::{encode, geometry, superblock};
pub use icache::monitor::Monitor;
pub use icache::rule::{CacheLimits, PartitionChange};
pub use jobs::cache_partition::{CacheCounts, CacheStatus};
pub use jobs::census::Shared;
pub use jobs::dedup::DedupStatus;
pub use jobs::defrag::DefragStatus;
pub use jobs::discard::DiscardStatus;
pub use jobs::gc::GcStatus;
pub use jobs::index_prefetch::IndexPrefetchCounts;
pub use jobs::relocate::{Kept, MOST_EXTENTS, RelocateStatus};
pub use jobs::replicate::ReplicateStatus;
pub use jobs::scrub::ScrubStatus;
pub use limits::Limits;
pub use metadata::io::Io;
pub use metadata::page_cache::ReadMetadata;
pub use mutant::CAN_BE_BROKEN;
#[cfg(feature = "mutants")]
pub use mutant::Mutant;
pub use pool::disk_index::DiskIndexStatus;
pub use pool::flash::{FlashMode, FlashParameters, FlashStatus};
pub use pool::owner;
pub use pool::owner::{Opened, Owner};
pub use pool::volumes::held::{Held, InheritedCounts};
pub use pool::volumes::table::SnapshotSum;
pub use properties::{
    BadDeviceKind, BadSchedule, BadSnapshotSchedule, Hours, PartitionMode, Replacement, Rule, ValueForm, byte_size,
};
pub use repair::block_repair::{Damage, Damaged};
pub use requests::foreground::{ThrottleStatus, TimingStatus};
pub use requests::request::Stage;
pub use space::zones::ZONES;
