//! Addresses and the eight-byte entry of a map leaf.
//!
//! ```text
//! bits  0..4    state: 0 unmapped, 1 zero, 2 whole block, 3 lost, 5 inherited (FROM)
//! bits  4..40   slot address
//! bits 40..64   check: the first 24 bits of the block's digest
//! ```
//!
//! An inherited entry has an epoch in bits 4..64: the block is that of the ancestor whose time covers it (RFC 0020).

use crate::api::{Digest, VolumeId};
use crate::format::geometry::SLOT_BITS;
use crate::format::superblock::END_OF_BORN;

/// Slot of the pool: container number times slots per container, plus the slot within it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) struct Slot(pub u64);

/// Block of a volume: 16 bits of volume, 48 bits of block address.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) struct Key(pub u64);

/// Number of bits of a block address within a volume.
pub(crate) const LBA_BITS: u32 = 48;

impl Key {
    pub(crate) fn new(volume: VolumeId, lba: u64) -> Key {
        assert!(lba >> LBA_BITS == 0);
        Key(u64::from(volume.0) << LBA_BITS | lba)
    }

    pub(crate) fn volume(self) -> VolumeId {
        VolumeId((self.0 >> LBA_BITS) as u16)
    }

    pub(crate) fn lba(self) -> u64 {
        self.0 & ((1 << LBA_BITS) - 1)
    }
}

const UNMAPPED: u64 = 0;
const ZERO: u64 = 1;
const WHOLE: u64 = 2;
const LOST: u64 = 3;
const UNBUFFERED: u64 = 4;
const FROM: u64 = 5;

/// Entry of a map leaf.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Entry(pub u64);

impl Entry {
    /// Entry of a block never written, or discarded: reads as zeroes.
    pub(crate) const UNMAPPED: Entry = Entry(UNMAPPED);
    /// Entry of a block written with zeroes.
    pub(crate) const ZERO: Entry = Entry(ZERO);
    /// Entry in the map buffer that revokes the block's buffered mapping. No leaf has it.
    pub(crate) const UNBUFFERED: Entry = Entry(UNBUFFERED);
    /// Entry whose content a repair gave up as unknown. Reading it fails until the block is written or discarded.
    pub(crate) const LOST: Entry = Entry(LOST);

    pub(crate) fn whole(slot: Slot, digest: Digest) -> Entry {
        assert!(slot.0 >> SLOT_BITS == 0);
        Entry(WHOLE | slot.0 << 4 | u64::from(check_bits(digest)) << 40)
    }

    /// Returns the entry of a block that the map has from its ancestor whose time covers an epoch.
    pub(crate) fn inherited(epoch: u64) -> Entry {
        assert!((1..END_OF_BORN).contains(&epoch));
        Entry(FROM | epoch << 4)
    }

    /// Returns the epoch of an inherited entry; `None` for all others.
    pub(crate) fn inherited_from(self) -> Option<u64> {
        (self.0 & 15 == FROM && self.0 >> 4 > 0).then_some(self.0 >> 4)
    }

    /// Returns the slot, if the entry has one.
    pub(crate) fn slot(self) -> Option<Slot> {
        (self.0 & 15 == WHOLE).then_some(Slot(self.0 >> 4 & ((1 << SLOT_BITS) - 1)))
    }

    pub(crate) fn check(self) -> u32 {
        (self.0 >> 40) as u32
    }

    /// Returns true if the block has no slot and reads as zeroes.
    pub(crate) fn is_hole(self) -> bool {
        self.0 & 15 <= ZERO
    }

    /// Returns true if a repair gave the block up.
    pub(crate) fn is_lost(self) -> bool {
        self.0 & 15 == LOST
    }

    /// Returns true if the map buffer, the journal and maps without parent can have the entry's state.
    pub(crate) fn is_valid(self) -> bool {
        self.0 & 15 <= LOST
    }

    /// Returns true if a leaf can have the entry: only a map with a parent inherits.
    pub(crate) fn may_stand(self, has_parent: bool) -> bool {
        self.is_valid() || has_parent && self.inherited_from().is_some()
    }
}

/// Returns the 24 bits of a digest that a map entry holds.
pub(crate) fn check_bits(digest: Digest) -> u32 {
    u32::from(digest.0[0]) | u32::from(digest.0[1]) << 8 | u32::from(digest.0[2]) << 16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_holds_slot_and_check() {
        let digest = Digest([0xab; 16]);
        let entry = Entry::whole(Slot((1 << SLOT_BITS) - 1), digest);
        assert_eq!(entry.slot(), Some(Slot((1 << SLOT_BITS) - 1)));
        assert_eq!(entry.check(), check_bits(digest));
        assert_eq!(Entry::ZERO.slot(), None);
        assert!(Entry::LOST.is_valid() && Entry::LOST.is_lost() && Entry::LOST.slot().is_none());
        assert!(!Entry(7).is_valid());
        let states = [Entry::UNMAPPED, Entry::ZERO, entry, Entry::LOST, Entry::UNBUFFERED, Entry(5), Entry(7)];
        assert_eq!(states.map(Entry::is_hole), [true, true, false, false, false, false, false]);
    }

    #[test]
    fn an_inherited_entry_has_an_epoch_and_stands_below_a_parent_only() {
        for epoch in [1, 7, END_OF_BORN - 1] {
            let entry = Entry::inherited(epoch);
            assert_eq!((entry.inherited_from(), entry.slot()), (Some(epoch), None));
            assert!(!entry.is_hole() && !entry.is_lost() && !entry.is_valid());
            assert!(entry.may_stand(true) && !entry.may_stand(false));
        }
        let others = [Entry::UNMAPPED, Entry::ZERO, Entry::whole(Slot(1), Digest([2; 16])), Entry::LOST];
        assert!(others.iter().all(|entry| entry.may_stand(false) && entry.inherited_from().is_none()));
        let invalid = [Entry::UNBUFFERED, Entry(FROM), Entry(6), Entry(15 | 1 << 4)];
        assert!(invalid.iter().all(|entry| !entry.may_stand(true) && entry.inherited_from().is_none()));
    }

    #[test]
    fn a_key_orders_by_volume_then_block() {
        let key = Key::new(VolumeId(3), 77);
        assert_eq!((key.volume(), key.lba()), (VolumeId(3), 77));
        assert!(Key::new(VolumeId(2), u64::MAX >> 16) < key);
    }
}
