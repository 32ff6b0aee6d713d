//! The engine on a disk with times, at full size: made pools, loads, and what they cost. (The `world` is for correctness, at small sizes.)

pub mod load;
pub mod machine;
pub mod path;
pub mod pool;
