//! Digest to slot: the index in memory, the complete one on disk, and what is shared of what they find.
//!
//! What must hold: all of it is a hint. Nothing is shared because the index says so; whoever asks proves that the slot holds the content.

pub(crate) mod disk_index;
pub(crate) mod index;
pub mod policy;
