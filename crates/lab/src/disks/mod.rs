//! Disks, as models of time.

pub mod ssd;
