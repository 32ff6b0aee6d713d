//! Fuzz tests for all data from outside, which may have any content: the bodies of the fuzz targets in `fuzz/`, which `tests/sim/fuzz.rs` runs with the
//! corpus and with bytes from fixed seeds. A body panics where a promise is broken. docs/internals/testing.md has the promises of each target.

mod bytes;
pub mod disk;
pub mod driver;
pub mod pool;
pub mod protocol;
pub mod seeds;
