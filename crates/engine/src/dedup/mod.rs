//! Inline deduplication: the index from digests (fingerprints) to slots in memory, and the policy that decides which of the found duplicates are
//! shared. (The complete index on disk is in `pool/disk_index.rs`.)
//!
//! What must hold: all of it is a hint. No block is shared because the index says so; the caller proves that the slot holds the content.

pub(crate) mod index;
pub mod policy;
pub mod timing;
