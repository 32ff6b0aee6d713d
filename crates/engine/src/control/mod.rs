//! Control of the engine: opening, commands, answers, statistics, failures, the partition of memory, and flash that comes and goes.

pub(crate) mod answers;
pub(crate) mod commands;
pub(crate) mod failure;
mod flash;
pub(crate) mod memory;
mod opening;
pub(crate) mod status;
