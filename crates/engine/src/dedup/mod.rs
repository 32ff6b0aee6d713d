//! Inline deduplication: the index from digests (fingerprints) to slots in memory, and which of the duplicates that it finds are shared. (The complete index on disk is in `pool/disk_index.rs`.)
//!
//! What must hold: all of it is a hint. Nothing is shared because the index says so; whoever asks proves that the slot holds the content.

pub(crate) mod index;
pub mod policy;
pub mod timing;
