//! Reproduction of the papers: their traces, loads and systems beside Onefold's engine, on the simulator's disk models, and the figures made of them.
//!
//! A figure is a pure function of (name, form). Nothing here reads a clock, except code that states that it measures real time. `bench` is a client of live
//! servers. Tests of the engine are in the crate `sim`, which does not depend on this one.

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
