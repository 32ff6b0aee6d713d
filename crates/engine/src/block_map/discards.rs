//! Discard list: subtrees that were cut off maps and are still to be walked.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::api::VolumeId;
use crate::format::superblock::Pointer;
use crate::sizes::list_bytes;

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

/// Subtrees to walk, the next one last. Those that cannot be read stand at the head; the next opening tries them again.
#[derive(Default)]
pub(crate) struct DiscardList {
    list: Vec<Discard>,
    /// Number of discards at the head that cannot be read.
    stuck: usize,
    /// Number of discards of each volume that has some.
    of_volumes: BTreeMap<VolumeId, u32>,
    /// Number of leaves of the list on disk, as last written.
    leaves: u64,
}

impl DiscardList {
    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    pub(crate) fn get(&self, at: usize) -> Option<&Discard> {
        self.list.get(at)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Discard> {
        self.list.iter()
    }

    /// Returns the number of subtrees that can be walked.
    #[inline]
    pub(crate) fn to_walk(&self) -> usize {
        self.list.len() - self.stuck
    }

    /// Returns the next subtree to walk.
    pub(crate) fn next(&self) -> Option<Discard> {
        self.list.last().copied().filter(|_| self.to_walk() > 0)
    }

    /// Returns true if subtrees of a volume are in the list.
    pub(crate) fn has_some_of(&self, volume: VolumeId) -> bool {
        self.of_volumes.contains_key(&volume)
    }

    /// Returns the volumes of which subtrees are in the list, in the order of their numbers.
    pub(crate) fn volumes(&self) -> impl Iterator<Item = VolumeId> {
        self.of_volumes.keys().copied()
    }

    pub(crate) fn push(&mut self, discard: Discard) {
        *self.of_volumes.entry(discard.volume).or_default() += 1;
        self.list.push(discard);
    }

    /// Removes the next subtree: its root has been walked.
    pub(crate) fn pop(&mut self) {
        assert!(self.to_walk() > 0, "a subtree was walked");
        let discard = self.list.pop().expect("a subtree was walked");
        let left = self.of_volumes.get_mut(&discard.volume).expect("each discard is counted");
        *left -= 1;
        if *left == 0 {
            self.of_volumes.remove(&discard.volume);
        }
    }

    /// Puts the next subtree aside until the next opening: its root cannot be read.
    pub(crate) fn put_aside(&mut self) {
        assert!(self.to_walk() > 0, "a subtree was to be walked");
        self.list.rotate_right(1);
        self.stuck += 1;
    }

    /// Returns the number of leaves of the list on disk, as last written.
    pub(crate) fn leaves(&self) -> u64 {
        self.leaves
    }

    pub(crate) fn set_leaves(&mut self, leaves: u64) {
        self.leaves = leaves;
    }

    /// Returns the bytes of memory of the list.
    pub(crate) fn memory(&self) -> u64 {
        list_bytes(&self.list) + self.of_volumes.len() as u64 * size_of::<(VolumeId, u32)>() as u64
    }
}
