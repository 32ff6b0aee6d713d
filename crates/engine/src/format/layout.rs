//! Sizes of entries on disk.

use crate::api::Digest;
use crate::format::bytes::u64_at;
use crate::format::entry::Key;

/// Number of bytes of a summary: 16 of digest, 8 of owner.
pub const SUMMARY_BYTES: u64 = 24;

/// Number of bytes of a container's entry on disk: generation, slots that are not free in the space map.
pub const CONTAINER_BYTES: u64 = 4;

/// Returns the height of a tree with this many leaves: 0 for a single leaf.
pub fn height_for(leaves: u64, fanout: u64) -> u8 {
    let (mut height, mut reach) = (0, 1u64);
    while reach < leaves {
        reach = reach.saturating_mul(fanout);
        height += 1;
    }
    height
}

/// Reads the summary at byte `at` of a leaf of the summaries: the digest of the slot's block, and the block that owned it first.
pub(crate) fn read_summary(leaf: &[u8], at: usize) -> (Digest, Key) {
    let mut digest = Digest::default();
    digest.0.copy_from_slice(&leaf[at..at + 16]);
    (digest, Key(u64_at(leaf, at + 16)))
}
