//! The rule by which index and read cache divide their memory (POD's iCache), as pure code: ghosts, curves, costs, and the verdict.
//! `jobs/cache_partition.rs` carries it out.

pub(crate) mod ghosts;
pub mod monitor;
pub(crate) mod rule;
