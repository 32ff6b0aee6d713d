//! Onefold's engine: a deduplicating block store as a state machine.
//!
//! No I/O, no clock, no threads, no payload: events go in, effects come out ([`contract`]), and a run is a pure function of
//! parameters, limits and events. `write.rs` and `read.rs` are the data path, `commit.rs` makes it durable, `checkpoint.rs`
//! and `merge.rs` bring it into the trees, `recovery.rs` opens a pool. docs/ describes format and argument.
#![no_std]
#![warn(missing_docs)]

extern crate alloc;

#[cfg(feature = "bench")]
#[doc(hidden)]
pub mod bench;
mod buffers;
mod bytes;
mod cache;
mod canary;
mod carried;
mod check;
mod checkpoint;
mod commit;
mod completions;
pub mod contract;
mod control;
mod copies;
mod decide;
mod delta;
mod disk_index;
pub mod encode;
mod engine;
mod entry;
mod failure;
mod flush;
mod format;
pub mod geometry;
mod ghosts;
mod grow;
mod icache;
mod index;
mod io;
mod jobs;
mod join;
mod journal;
mod limits;
mod map_buffer;
mod memory;
mod mend;
mod merge;
mod meta;
mod near;
mod neighbours;
mod no_room;
pub mod owner;
mod pages;
mod partition;
pub mod policy;
mod read;
mod readahead;
mod rebuild;
mod record;
pub mod recording;
mod recovery;
mod reorder;
mod repair;
mod request;
mod room;
mod scrub;
mod space;
mod status;
mod streams;
mod submit;
mod summaries;
pub mod superblock;
mod tree;
mod turns;
mod volume;
mod volumes;
mod write;

#[cfg(feature = "canaries")]
pub use canary::Canary;
pub use check::{Flaw, ReadMetadata};
pub use contract::*;
pub use disk_index::{DiskIndexAudit, DiskIndexStatus};
pub use engine::Engine;
pub use failure::Failure;
pub use format::{Format, format};
pub use geometry::{BadGeometry, Geometry, Growth, UNGROWN};
pub use icache::{CacheLimits, Division, DivisionChange, Replacement, Rule};
pub use io::Io;
pub use limits::Limits;
pub use mend::{Damage, Damaged};
pub use neighbours::NeighbourCounts;
pub use owner::{Opened, Owner};
pub use partition::{CacheCounts, CacheStatus};
pub use record::begins_as_record;
pub use reorder::ReorderStatus;
pub use repair::{BlockRange, Medium, Repair, RepairError, plan_repair};
pub use request::Stage;
pub use scrub::ScrubStatus;
pub use status::{Counters, Mode, PagesWritten, ReadCounts, Removed, Status, WhatIf, WriteCounts};
pub use superblock::{
    DigestFunction, DiskIndexRecord, Parameters, ScrubRecord, ScrubState, Superblock, SuperblockError,
};
pub use volume::{HIDDEN_NAMES, MAX_VOLUMES, NAME_BYTES, Volume, is_name};
