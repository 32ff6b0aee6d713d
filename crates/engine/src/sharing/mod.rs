//! Digest to slot: the index in memory, and what is shared of what it finds. (The complete one on disk is in `pool/disk_index.rs`.)
//!
//! What must hold: all of it is a hint. Nothing is shared because the index says so; whoever asks proves that the slot holds the content.

pub(crate) mod index;
pub mod policy;
pub mod timing;
