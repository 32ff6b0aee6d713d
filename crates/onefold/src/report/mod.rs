//! Reports: figures of a server for people and programs.

pub mod caches;
pub mod dedup;
mod define;
pub mod device;
pub mod disk_index;
pub mod flash;
pub mod health;
pub mod jobs;
pub mod latency;
pub mod prometheus;
pub mod properties;
pub mod recent;
pub mod relocate;
pub mod share;
pub mod snapshots;
pub mod status;
pub mod text;
pub mod throttle;
pub mod writes;
