//! The rule of the cache partition between index and read cache (POD's iCache), as pure code: ghosts, curves, costs, and the verdict.
//! `jobs/cache_partition.rs` carries it out.

pub(crate) mod ghosts;
pub mod monitor;
pub(crate) mod rule;
