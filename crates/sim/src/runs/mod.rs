//! Runs of the world, each checked against the oracle: the swarm, crashes at every I/O, faults, all short sequences, flipped bytes, repair, and engines with
//! mutants.

mod coming_and_going;
pub mod config;
pub mod crash;
pub mod exhaustive;
pub mod faulty;
pub mod flip;
pub mod forged;
pub mod hazards;
pub mod mutants;
pub mod repair;
pub mod run;
pub mod scenario;
mod shorthand;
pub mod shrink;
pub mod soak;
pub mod workload;
