//! Sizes of entries on disk.

/// Bytes of a summary: 16 of digest, 8 of owner.
pub const SUMMARY_BYTES: u64 = 24;

/// Bytes of a container's entry on disk: generation, slots that are not free in the space map.
pub const CONTAINER_BYTES: u64 = 4;
