//! Regions that readers found scattered: a hint, the most device reads to be saved first.
//!
//! A region is as many blocks of a volume as a container has slots, from a multiple of that on. What is known of it is how many device
//! reads its readers could have been saved, and where it goes once that has been chosen. Nothing of it is on disk: a restart forgets it,
//! and the next reader notes it again.

use alloc::collections::BTreeMap;

use crate::format::entry::Key;
use crate::limits::REGION_BYTES;

/// What is known of a region.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Noted {
    /// Device reads that its readers could have been saved.
    pub reads: u32,
    /// The slot where its first block is at home, if that has been chosen: some of it has gone there.
    pub home: Option<i64>,
    /// How often it was tried and could not come home.
    pub tries: u8,
}

/// See above.
pub(crate) struct Regions {
    /// By the first block of each.
    table: BTreeMap<Key, Noted>,
    /// Blocks of a region.
    blocks: u64,
    most: usize,
}

impl Regions {
    /// For at most so many regions, of so many blocks each.
    pub(crate) fn new(most: usize, blocks: u64) -> Regions {
        Regions { table: BTreeMap::new(), blocks, most }
    }

    /// The first block of the region that a block is in.
    fn first(&self, key: Key) -> Key {
        Key::new(key.volume(), key.lba() - key.lba() % self.blocks)
    }

    /// Blocks of a region.
    pub(crate) fn blocks(&self) -> u64 {
        self.blocks
    }

    /// A reader took so many device reads more than it would have if the region of this block lay in order.
    pub(crate) fn note(&mut self, key: Key, reads: u32) {
        let first = self.first(key);
        if !self.table.contains_key(&first) && self.table.len() >= self.most {
            self.age();
            if self.table.len() >= self.most {
                return;
            }
        }
        let noted = self.table.entry(first).or_default();
        noted.reads = noted.reads.saturating_add(reads);
    }

    /// What was noted counts half, and what is then nothing is forgotten.
    fn age(&mut self) {
        self.table.retain(|_, noted| {
            noted.reads /= 2;
            noted.reads > 0
        });
    }

    /// Takes the region out of which the most reads can be saved.
    pub(crate) fn take(&mut self) -> Option<(Key, Noted)> {
        // Of equal ones the first.
        let (&first, _) = self.table.iter().max_by_key(|(first, noted)| (noted.reads, core::cmp::Reverse(**first)))?;
        let noted = self.table.remove(&first)?;
        Some((first, noted))
    }

    /// A region that was taken is to be looked at again.
    pub(crate) fn put_back(&mut self, first: Key, noted: Noted) {
        let again = self.table.entry(first).or_default();
        *again = Noted { reads: noted.reads.max(again.reads), ..noted };
    }

    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    pub(crate) fn clear(&mut self) {
        self.table.clear();
    }

    /// Bytes of memory.
    pub(crate) fn memory(&self) -> u64 {
        self.table.len() as u64 * REGION_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::VolumeId;

    fn key(lba: u64) -> Key {
        Key::new(VolumeId(1), lba)
    }

    #[test]
    fn the_region_that_costs_the_most_reads_comes_first() {
        let mut regions = Regions::new(8, 16);
        regions.note(key(3), 5);
        regions.note(key(40), 4);
        regions.note(key(47), 4);
        assert_eq!(regions.take(), Some((key(32), Noted { reads: 8, ..Noted::default() })));
        assert_eq!(regions.take().map(|(first, _)| first), Some(key(0)));
        assert_eq!(regions.take(), None);
    }

    #[test]
    fn a_full_table_forgets_what_costs_least() {
        let mut regions = Regions::new(2, 16);
        regions.note(key(0), 1);
        regions.note(key(16), 9);
        regions.note(key(32), 3);
        let order: [_; 2] = core::array::from_fn(|_| regions.take().map(|(first, noted)| (first.lba(), noted.reads)));
        assert_eq!(order, [Some((16, 4)), Some((32, 3))]);
    }
}
