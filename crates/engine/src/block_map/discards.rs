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

/// Part of the subtrees that a checkpoint may still walk. The walk ends where one of the two is 0. So it exceeds `releases` by the slots of one leaf, at most.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct WalkBudget {
    /// Slots that it releases, and one for each page.
    pub releases: u32,
    /// Pages that it reads.
    pub pages: u32,
}

impl WalkBudget {
    /// The least walk for which a checkpoint has space: one page.
    pub(crate) const ONE_PAGE: WalkBudget = WalkBudget { releases: 1, pages: 1 };

    /// Returns true if no further page may be walked.
    pub(crate) fn is_spent(&self) -> bool {
        self.releases == 0 || self.pages == 0
    }

    /// Notes that a page was walked, and released `slots` slots.
    pub(crate) fn note_walked(&mut self, slots: u64) {
        let taken = u32::try_from(slots + 1).unwrap_or(u32::MAX);
        *self = WalkBudget { releases: self.releases.saturating_sub(taken), pages: self.pages.saturating_sub(1) };
    }

    /// Returns the most slots that the walk releases, in leaves of `per_leaf` entries.
    pub(crate) fn most_released(&self, per_leaf: u64) -> u64 {
        if self.is_spent() { 0 } else { u64::from(self.releases) - 1 + per_leaf }
    }

    /// Returns the most pages that the walk reads.
    pub(crate) fn most_pages(&self) -> u64 {
        self.pages.min(self.releases).into()
    }
}

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

    /// Gives the subtrees of a volume to another one: their blocks count as that one's.
    pub(crate) fn relabel(&mut self, from: VolumeId, to: VolumeId) {
        let Some(count) = self.of_volumes.remove(&from) else { return };
        self.list.iter_mut().filter(|discard| discard.volume == from).for_each(|discard| discard.volume = to);
        *self.of_volumes.entry(to).or_default() += count;
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Compares the pages and releases of a walk with the bounds that its reservation uses.
        #[test]
        fn a_walk_stays_within_its_bounds(releases in 0u32..3000, pages in 0u32..50, slots in proptest::collection::vec(0u64..=512, 100)) {
            let budget = WalkBudget { releases, pages };
            let (mut left, mut released, mut walked) = (budget, 0, 0);
            for slots in slots {
                if left.is_spent() {
                    break;
                }
                left.note_walked(slots);
                (released, walked) = (released + slots, walked + 1);
            }
            prop_assert!(released <= budget.most_released(512) && walked <= budget.most_pages());
        }
    }
}
