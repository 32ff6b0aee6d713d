//! Discard list: subtrees that were cut off maps and are still to be walked.
//!
//! A subtree of the map's own is walked to release its slots and pages. Where a map had the subtree of an ancestor, there is nothing to release, but its mapped
//! blocks are still to be counted: the map hides them (RFC 0020). Such ranges of leaves are kept apart. They wait for the walk, except where there are many: so
//! the list grows by those of two pages, at most.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::api::VolumeId;
use crate::format::bytes::{put_u16, u16_at};
use crate::format::superblock::Pointer;
use crate::sizes::list_bytes;

/// Subtree that a discard cut off and that has not been walked yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Discard {
    pub pointer: Pointer,
    pub volume: VolumeId,
    /// Level of its root; 0: a leaf.
    pub level: u8,
    /// Number of its root within the level. `None`: inherited blocks in it are not counted as hidden.
    pub index: Option<u64>,
    /// True if it comes from a snapshot that was handed over, and the volume hides its blocks: those that are released are no longer hidden.
    pub is_given: bool,
}

/// Range of leaves that a map had from an ancestor and that was cut off. The mapped blocks in it are still to be counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct HiddenRange {
    pub volume: VolumeId,
    /// Epoch of the pointer FROM, which names the ancestor.
    pub epoch: u64,
    /// First leaf, and one past the last.
    pub first: u64,
    pub end: u64,
}

/// Number of bytes of an entry on disk: of a discard, pointer, volume, level, index plus one; of a range, its fields.
pub(crate) const DISCARD_BYTES: usize = 24;
/// End of numbers within a level: they have 40 bits on disk.
const END_OF_LEAVES: u64 = 1 << 40;
/// In place of an index: the subtree was given.
const GIVEN: u64 = END_OF_LEAVES - 1;

/// Writes a number of 40 bits.
fn put_number(out: &mut [u8], number: u64) {
    out[19..24].copy_from_slice(&number.to_le_bytes()[..5]);
}

fn number_at(entry: &[u8]) -> u64 {
    entry[19..24].iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte))
}

/// Number of ranges above which they are counted before more subtrees are walked.
pub(crate) const MUCH_HIDDEN: usize = 512;

impl Discard {
    /// Makes a discard of a subtree whose walk changes no count of hidden blocks.
    pub(crate) fn new(pointer: Pointer, volume: VolumeId, level: u8) -> Discard {
        Discard { pointer, volume, level, index: None, is_given: false }
    }

    pub(crate) fn write(&self, out: &mut [u8]) {
        self.pointer.write(out, 0);
        put_u16(out, 16, self.volume.0);
        out[18] = self.level;
        put_number(out, if self.is_given { GIVEN } else { self.index.map_or(0, |index| index + 1) });
    }

    /// Reads an entry of the list that is not of a range; `None` if it is unused.
    pub(crate) fn read(entry: &[u8]) -> Option<Discard> {
        let pointer = Pointer::read(entry, 0);
        let (volume, level, number) = (VolumeId(u16_at(entry, 16)), entry[18], number_at(entry));
        let is_given = number == GIVEN;
        let index = number.checked_sub(1).filter(|_| !is_given);
        (!pointer.is_none()).then_some(Discard { pointer, volume, level, index, is_given })
    }
}

impl HiddenRange {
    /// Writes an entry of the list. It looks like a pointer FROM with a birth, which no discard has.
    pub(crate) fn write(&self, out: &mut [u8]) {
        let HiddenRange { volume, epoch, first, end } = *self;
        let leaves = end - first;
        Pointer { birth: leaves as u32, ..Pointer::inherited(epoch) }.write(out, 0);
        put_u16(out, 16, volume.0);
        out[18] = (leaves >> 32) as u8;
        put_number(out, first);
    }

    /// Reads an entry of the list; `None` if it is none of a range.
    pub(crate) fn read(entry: &[u8]) -> Option<HiddenRange> {
        let pointer = Pointer::read(entry, 0);
        let epoch = Pointer { birth: 0, ..pointer }.inherited_from()?;
        let first = number_at(entry);
        let leaves = u64::from(entry[18]) << 32 | u64::from(pointer.birth);
        (leaves > 0).then_some(HiddenRange { volume: VolumeId(u16_at(entry, 16)), epoch, first, end: first + leaves })
    }
}

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
    /// Ranges whose mapped blocks are to be counted, the next one last.
    hidden: Vec<HiddenRange>,
    /// Number of leaves of the list on disk, as last written.
    leaves: u64,
}

impl DiscardList {
    /// Returns the number of entries on disk.
    pub(crate) fn entries(&self) -> usize {
        self.list.len() + self.hidden.len()
    }

    /// Writes an entry, by its number.
    pub(crate) fn write(&self, number: usize, out: &mut [u8]) {
        if let Some(discard) = self.list.get(number) {
            discard.write(out);
        } else if let Some(range) = self.hidden.get(number - self.list.len()) {
            range.write(out);
        }
    }

    /// Adds a subtree that was cut off, or a child of one: one with pages to those to be walked, an inherited one to those to be counted.
    pub(crate) fn cut(&mut self, discard: Discard, fanout: u64) {
        let Discard { pointer, volume, level, index, .. } = discard;
        if pointer.has_page() {
            self.push(discard);
        } else if let (Some(epoch), Some(index)) = (pointer.inherited_from(), index) {
            let span = fanout.saturating_pow(level.into());
            let (first, end) = (index.saturating_mul(span), index.saturating_add(1).saturating_mul(span));
            self.hide(HiddenRange { volume, epoch, first, end });
        }
    }

    /// Returns true if many ranges are to be counted: that comes before the walk.
    pub(crate) fn has_much_hidden(&self) -> bool {
        self.hidden.len() > MUCH_HIDDEN
    }

    /// Returns the ranges whose mapped blocks are to be counted.
    pub(crate) fn hidden(&self) -> &[HiddenRange] {
        &self.hidden
    }

    /// Adds a range. It goes on with the last one if it follows there.
    pub(crate) fn hide(&mut self, range: HiddenRange) {
        let range = HiddenRange { end: range.end.min(END_OF_LEAVES - 1), ..range };
        match self.hidden.last_mut() {
            Some(last) if (last.volume, last.epoch, last.end) == (range.volume, range.epoch, range.first) => {
                last.end = range.end;
            }
            _ if range.first < range.end => self.hidden.push(range),
            _ => {}
        }
    }

    /// Notes that the last range is counted up to a leaf.
    pub(crate) fn note_counted(&mut self, upto: u64) {
        let last = self.hidden.last_mut().expect("a range was counted");
        last.first = upto;
        if last.first >= last.end {
            self.hidden.pop();
        }
    }

    /// Counts nothing more as hidden by a volume: it is removed, or its map is replaced.
    pub(crate) fn forget_hidden(&mut self, volume: VolumeId) {
        self.hidden.retain(|range| range.volume != volume);
        if self.has_some_of(volume) {
            let discards = self.list.iter_mut().filter(|discard| discard.volume == volume);
            discards.for_each(|discard| (discard.index, discard.is_given) = (None, false));
        }
    }

    /// Returns true if inherited blocks of a volume are still to be counted, in ranges or in subtrees of its own.
    pub(crate) fn counts_hidden_of(&self, volume: VolumeId) -> bool {
        let is_to_count = |discard: &Discard| discard.volume == volume && discard.index.is_some();
        self.hidden.iter().any(|range| range.volume == volume)
            || self.has_some_of(volume) && self.list.iter().any(is_to_count)
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
        self.hidden.iter_mut().filter(|range| range.volume == from).for_each(|range| range.volume = to);
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
        list_bytes(&self.list)
            + list_bytes(&self.hidden)
            + self.of_volumes.len() as u64 * size_of::<(VolumeId, u32)>() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Checks that an entry of a range is read as it was written, and as no discard.
        #[test]
        fn ranges_read_back(volume in 1u16.., epoch in 1u64..1 << 59, first in 0u64..1 << 39, leaves in 1u64..1 << 39) {
            let range = HiddenRange { volume: VolumeId(volume), epoch, first, end: first + leaves };
            let mut entry = [0; DISCARD_BYTES];
            range.write(&mut entry);
            prop_assert_eq!(HiddenRange::read(&entry), Some(range));
            prop_assert!(!Pointer::read(&entry, 0).has_page() && !Pointer::read(&entry, 0).is_none());
        }

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
