//! The timed model: the engine on a disk with times, at full size, with made pools, loads, and the costs of requests. (The `world` is for correctness, at
//! small sizes.)

pub mod load;
pub mod machine;
pub mod path;
pub mod pool;
