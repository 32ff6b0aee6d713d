//! A load as DEDISbench makes one: contents drawn from a distribution file, addresses from a pattern, at full speed or at a rate.
//!
//! Owns what is written, where, and what of it is a duplicate. It knows no clock and no device: [`virtual_run`] drives it through the engine
//! in virtual time, `bench` over a socket. Both get the same requests from the same seed.
//!
//! Invariants: no two workers write the same block; a content that is drawn as unique is written once in a run; so [`written::Written`]
//! knows what every block holds, and how many different contents that is.
//!
//! Who calls it: `repro workload` ([`command`]) and `repro bench` (`bench/`). docs/workloads.md describes both. The original is DEDISbench
//! (github.com/jtpaulo/dedisbench, GPL-2.0). This is our own work, after a description of what it does; nothing of it was copied.

pub mod addresses;
pub mod arguments;
pub mod command;
pub mod distribution;
pub mod load;
pub mod summary;
pub mod virtual_run;
pub mod written;

/// Bytes of a block, the unit of contents.
pub const BLOCK: u64 = 4096;
