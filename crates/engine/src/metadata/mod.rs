//! Pages of metadata and I/O: the table of I/O in flight, the pages in memory, which blocks of metadata are in use, and the trees made of them.
//!
//! What must hold: a block of metadata that the newest superblock leads to is not written, and none is freed before a later superblock
//! is durable. Pages are copied before they change. Layers above ask it to look up a leaf, to load one, and to begin an I/O.

pub(crate) mod allocator;
pub(crate) mod io;
pub(crate) mod page_cache;
pub(crate) mod tree;
