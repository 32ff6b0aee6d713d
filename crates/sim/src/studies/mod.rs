//! Studies of the engine's costs in virtual time, a subject each.

pub mod aged;
pub mod cost;
pub mod scale;
