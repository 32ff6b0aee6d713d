//! The flash cache: containers of the pool, whole, on a faster device.
//!
//! `admission` decides which containers it holds. It is pure: it knows no device, no content and no clock, and its memory is bounded by
//! the numbers of containers and places. Called by who reads a container; today that is the lab's `flash_cache`.

pub mod admission;
mod budget;
#[cfg(test)]
mod tests;
