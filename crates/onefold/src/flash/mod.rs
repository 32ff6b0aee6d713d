//! Flash cache in front of a slow store: a second file or device with copies of containers (docs/papers/plc-cache.md, docs/rfc/0013).
//!
//! - `label`: its first block, which names its pool
//! - `device`: the file or device, refusals, and making one into a cache
//! - `front`: the reactor's side: its I/O, and its attachment and detachment while the pool is served

pub mod device;
pub mod front;
pub mod label;
