//! The flash cache: containers of the pool, whole, on a faster device.
//!
//! `admission` decides which containers it holds. It is pure: it knows no device, no content and no clock, and its memory is bounded by the numbers
//! of containers and places. `places` has the certain content of each place. Their readers and writers are in `pool/flash.rs`.

pub mod admission;
mod budget;
pub(crate) mod places;
pub mod quadrants;
#[cfg(test)]
mod tests;
