//! Implementations of the commands, one module each: its use of a pool, its output, and its error messages.

pub mod cache;
pub mod check;
pub mod cli;
pub mod confirm;
pub mod connect;
pub mod create;
pub mod dedup;
pub mod ephemeral_server;
pub mod error_text;
pub mod estimate;
pub mod images;
pub mod inspect;
pub mod manual;
pub mod objects;
pub mod offline;
#[cfg(test)]
mod paths;
pub mod relocate;
pub mod repair;
mod screen;
pub mod scrub;
pub mod serve;
pub mod snapshot;
mod snapshot_names;
pub mod top;
