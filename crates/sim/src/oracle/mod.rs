//! The oracle: a model of the legal contents of each block after any crash, against which all runs are checked. It knows requests and answers, and nothing of
//! the engine.

pub mod block;
pub mod blocks;
mod families;
pub mod model;
pub mod range;
mod rollback;
