//! Operators and the service manager: the control socket, commands to the engine, and conditions that are watched for them.

pub mod auto_relocate;
pub mod auto_snapshots;
pub mod command;
pub mod control;
pub mod planning;
pub mod profile_file;
pub mod properties;
pub mod relocate;
pub mod selection;
pub mod service;
#[cfg(feature = "faults")]
mod set_clock;
pub mod settings;
mod snapshot_plan;
pub mod watch;
