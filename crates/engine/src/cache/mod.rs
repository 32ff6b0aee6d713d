//! Blocks of payload in memory: the numbered buffers, the read cache, what is on its way, and the streams that pass it by.
//!
//! What must hold: a buffer has one owner at a time or a count of holders, and what a buffer of the cache holds is what its slot holds.
//! The bytes themselves are with the driver.

pub(crate) mod arc;
pub(crate) mod buffers;
pub(crate) mod in_flight;
pub(crate) mod streams;
