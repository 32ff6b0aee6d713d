//! The newest mappings from block to slot, in memory: the changes since the last checkpoint (the delta), and mappings that are durable but not in their leaves
//! yet (the map buffer). Older mappings are in the trees of the store.

pub(crate) mod delta;
pub(crate) mod discards;
pub(crate) mod flush;
#[cfg_attr(not(test), expect(dead_code, reason = "no volume has a parent yet"))]
pub(crate) mod lineage;
pub(crate) mod map_buffer;
