//! Operators and the service manager: the control socket, commands to the engine, and what is watched for them.

pub mod command;
pub mod control;
pub mod properties;
pub mod relocate;
pub mod service;
pub mod watch;
