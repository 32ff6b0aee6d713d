//! Control of the engine: commands, answers, figures, failures, and the partition of memory.

pub(crate) mod answers;
pub(crate) mod commands;
pub(crate) mod failure;
mod flash;
pub(crate) mod memory;
mod opening;
pub(crate) mod status;
