//! Studies of the engine's costs in virtual time, one module for each subject.

pub mod aged;
pub mod cost;
pub mod scale;
