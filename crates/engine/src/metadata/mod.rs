//! Metadata storage and I/O: the table of I/O in flight, the page cache, the allocator of metadata blocks, and the copy-on-write trees.
//!
//! What must hold: a metadata block that the newest superblock references is not written, and none is freed before a later superblock is
//! durable. Pages are copied before they change. Layers above ask it to look up a leaf, to load one, and to begin an I/O.

pub(crate) mod allocator;
pub(crate) mod io;
pub(crate) mod page_cache;
pub(crate) mod tree;
