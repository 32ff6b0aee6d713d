//! What each block may legally hold, whatever has crashed: the model that all runs are held against. It knows requests and answers, and
//! nothing of the engine.

pub mod block;
pub mod blocks;
pub mod model;
pub mod range;
