//! Block to slot: the changes since the last checkpoint (the delta), and mappings that are durable and not in their leaves yet (the map
//! buffer). What is older is in the trees of the store.

pub(crate) mod delta;
pub(crate) mod discards;
pub(crate) mod map_buffer;
