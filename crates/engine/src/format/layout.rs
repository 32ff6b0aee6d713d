//! Sizes of entries on disk, and their places in tables.

use crate::api::{Digest, VolumeId};
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

/// Number of bytes of a volume's entry in a packed table: number, policy, length of the name, height, flags, the policy's threshold, size, blocks used, root,
/// name, timing, goal, flag for kept runs, controller of the mode, flag for exclusive use by one client, flag for protection.
pub(crate) const PACKED_VOLUME_BYTES: u64 = 128;
/// Number of bytes of a volume's entry in a table by number. The upper half has the family of its map and the schedule of its snapshots.
pub const VOLUME_BYTES: u64 = 256;
/// Maximum number of volumes of a packed table.
const MAX_PACKED_VOLUMES: u64 = 1024;

/// Form of the volume table on disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum TableForm {
    /// Entries of 128 bytes, one behind the other, as older programs write them.
    Packed,
    /// Entries of 256 bytes, each at the place of its volume's number: entry *number - 1*. Leaves without volumes have no page.
    #[default]
    ByNumber,
}

impl TableForm {
    /// Returns the bytes of an entry.
    pub fn entry_bytes(self) -> u64 {
        match self {
            TableForm::Packed => PACKED_VOLUME_BYTES,
            TableForm::ByNumber => VOLUME_BYTES,
        }
    }

    /// Returns the number of entries of a leaf.
    pub(crate) fn per_leaf(self, block: u64) -> u64 {
        block / self.entry_bytes()
    }

    /// Returns the most leaves of a table.
    pub(crate) fn most_leaves(self, block: u64) -> u64 {
        let entries = match self {
            TableForm::Packed => MAX_PACKED_VOLUMES,
            TableForm::ByNumber => u64::from(u16::MAX),
        };
        entries.div_ceil(self.per_leaf(block))
    }

    /// Returns true if a volume may stand in entry `at` of leaf `leaf`.
    pub(crate) fn is_place_of(self, volume: VolumeId, leaf: u64, at: u64, block: u64) -> bool {
        self == TableForm::Packed || leaf * self.per_leaf(block) + at + 1 == u64::from(volume.0)
    }
}
