//! Subtrees that were cut off maps, until they have been walked.

use crate::api::VolumeId;
use crate::format::superblock::Pointer;

/// A subtree that a discard cut off and that has not been walked yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Discard {
    pub pointer: Pointer,
    pub volume: VolumeId,
    /// 0: a leaf.
    pub level: u8,
}

/// Bytes of a discard on disk: pointer, volume, level.
pub(crate) const DISCARD_BYTES: usize = 24;
