//! The papers: their traces, loads and systems beside Onefold's engine, on the simulator's models of disks, and the figures that come of it.
//!
//! A figure is a pure function of (name, form): nothing here reads a clock, but for what says that it measures real time. `bench` is a client of live
//! servers. What tests the engine is in the crate `sim`, which knows nothing of this one.

pub mod bench;
pub mod dedis;
pub mod figures;
pub mod flash_cache;
pub mod hiods_store;
pub mod icache;
pub mod io_deduplication;
pub mod relocation;
pub mod replay;
pub mod traces;
pub mod window;
