//! Load generator in the manner of DEDISbench: contents from a distribution file, addresses from a pattern, at full speed or at a rate.
//!
//! Owns the written contents, their addresses, and the duplicates among them. It knows no clock and no device: [`virtual_run`] drives it through the engine in
//! virtual time, `bench` over a socket. Both get the same requests from the same seed.
//!
//! Invariants: no two workers write the same block. A content that is drawn as unique is written once in a run. So [`written::Written`] knows the content of
//! every block, and the number of different contents.
//!
//! Callers: `repro workload` ([`command`]) and `repro bench` (`bench/`). docs/papers/data.md describes both. The original is DEDISbench
//! (github.com/jtpaulo/dedisbench, GPL-2.0). This is our own work after a description of its behaviour; no code was copied.

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
