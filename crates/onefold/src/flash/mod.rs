//! The flash in front of a slow store: a second file or device with copies of containers (docs/flash-cache.md, docs/rfc/0013).
//!
//! - `label`: the first block of it, which says whose it is
//! - `device`: which file or device is meant, what is refused, and how one is made into a cache
//! - `front`: what the reactor has of it: its I/O, and how it comes and goes while the pool is served

pub mod device;
pub mod front;
pub mod label;
