//! Discard list: subtrees that were cut off maps and are still to be walked.

use crate::api::VolumeId;
use crate::format::superblock::Pointer;

/// Subtree that a discard cut off and that has not been walked yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Discard {
    pub pointer: Pointer,
    pub volume: VolumeId,
    /// Level of its root; 0: a leaf.
    pub level: u8,
}

/// Number of bytes of a discard on disk: pointer, volume, level.
pub(crate) const DISCARD_BYTES: usize = 24;
