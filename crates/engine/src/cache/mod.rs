//! Blocks of payload in memory: the numbered buffers, the read cache, blocks in flight, and the streams that pass the cache by.
//!
//! What must hold: a buffer has one owner at a time or a count of holders, and a buffer of the cache has its slot's content. The bytes themselves are
//! with the driver.

pub(crate) mod arc;
pub(crate) mod buffers;
pub(crate) mod in_flight;
pub(crate) mod payload;
pub(crate) mod streams;
