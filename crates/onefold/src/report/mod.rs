//! Figures, as people and programs read them.

pub mod caches;
pub mod dedup;
pub mod pace;
pub mod prometheus;
pub mod status;
pub mod writes;
