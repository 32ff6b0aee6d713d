//! Regions: statistics of sequential reads, by which defragmentation chooses the regions to put in order (`jobs/defrag/`). They are a hint.
//!
//! A region has as many blocks of a volume as a container has slots, aligned to that number. For each region the table counts the sequential
//! passes of readers, and the device reads that order would have saved them. It also counts the blocks written since the region was last put in
//! order. It has only regions that are read in order. Nothing of it is on disk: a restart loses it, and readers note it again.
//!
//! ```text
//! read         noted by read-ahead, a window at a time, and by requests that took many device reads
//! overwritten  noted by checkpoints, a leaf of the map at a time, for known regions alone
//! in order     each time a region is put in order, the weight of its readers is halved: a region without readers is forgotten
//! left         noted by read-ahead when a stream continues in the next region. A region that it found scattered is put in order while the
//!              stream runs. Only the last few are kept: the rest is left to idle time
//! ```

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use super::Pool;
use crate::format::entry::Key;
use crate::limits::REGION_BYTES;

/// Weight of a read of a region: with it, a region is forgotten after two returns without a read, not after one.
const SCAN: u16 = 2;
/// Weight of all reads of a region beyond which they are no longer counted.
const MOST_SCANS: u16 = 64 * SCAN;

/// Number of regions recently left by streams that are remembered.
const LEFT: usize = 8;
/// Blocks of a region per saved device read that make a look worthwhile while clients are busy: a look costs as much processor time as some device reads.
const WORTH_A_LOOK: u64 = 128;
/// Number of batches of a region's blocks before it is given up.
const TRIES: u8 = 32;
/// Number of looks at a region that wait for pages before it is given up. A look may need a page for each block, and loads a few.
const WAITS: u16 = 1024;
/// Regions at the end of the list whose reads by streams are still in flight.
const ON_ITS_WAY: usize = 1;

/// Figures of a region that is read in order.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Noted {
    /// Weight of the recent sequential passes of readers through a part of it.
    scans: u16,
    /// Device reads that its readers could have been saved since it was last put in order.
    reads: u32,
    /// Blocks that clients have written since then.
    displaced: u32,
    /// Blocks that have been moved, and that a checkpoint will find among the written ones.
    moved: u32,
    /// Target slot of its first block, if some of its blocks have gone there.
    target: Option<i64>,
    /// Number of batches of its blocks that were begun since it was last put in order or left by a stream.
    tries: u8,
    /// Number of looks since then, or since it was brought back, that ended at pages that were not in memory.
    waits: u16,
    /// True while it waits for an empty container.
    is_aside: bool,
}

impl Noted {
    /// Returns the target slot of its first block, if some of its blocks have gone there.
    #[inline]
    pub(crate) fn target(&self) -> Option<i64> {
        self.target
    }

    /// Returns true if it has been looked at so often, that it is to be given up: its batches fail, or memory does not hold the pages that a look needs.
    #[inline]
    pub(crate) fn is_hopeless(&self) -> bool {
        self.tries >= TRIES || self.waits >= WAITS
    }

    /// Returns the gain of its readers if it were in order; 0 while it waits for an empty container.
    fn gain(&self) -> u64 {
        if self.is_aside { 0 } else { self.weight() }
    }

    /// Returns the gain of its readers if it were in order.
    fn weight(&self) -> u64 {
        let scattered = self.reads.max(self.displaced);
        u64::from(self.scans) * u64::from(scattered)
    }
}

/// Table of the regions that are read in order.
pub(crate) struct Regions {
    /// Figures by the first block of each region.
    table: BTreeMap<Key, Noted>,
    /// Number of regions with scattered blocks.
    scattered: usize,
    /// Number of regions that wait for an empty container.
    aside: usize,
    /// Regions that streams have recently left, in this order.
    left: VecDeque<Key>,
    /// Number of blocks of a region.
    blocks: u64,
    most: usize,
    /// Number of regions given up since the pool was opened.
    given_up: u64,
}

impl Regions {
    /// Creates a table of at most `most` regions, of `blocks` blocks each.
    pub(crate) fn new(most: usize, blocks: u64) -> Regions {
        Regions {
            table: BTreeMap::new(),
            scattered: 0,
            aside: 0,
            left: VecDeque::with_capacity(LEFT),
            blocks,
            most,
            given_up: 0,
        }
    }

    /// Returns the number of blocks of a region.
    pub(crate) fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Returns the first block of a block's region.
    fn first(&self, key: Key) -> Key {
        Key::new(key.volume(), key.lba() - key.lba() % self.blocks)
    }

    fn change(&mut self, first: Key, change: impl FnOnce(&mut Noted)) {
        let Some(noted) = self.table.get_mut(&first) else { return };
        let (before, was_aside) = (noted.gain() > 0, noted.is_aside);
        change(noted);
        self.scattered = self.scattered + usize::from(noted.gain() > 0) - usize::from(before);
        self.aside = self.aside + usize::from(noted.is_aside) - usize::from(was_aside);
    }

    /// Notes a sequential read in the region of a block. It took `more_reads` device reads more than if the blocks had been in order.
    pub(crate) fn read(&mut self, key: Key, more_reads: u32) {
        let first = self.first(key);
        if !self.table.contains_key(&first) {
            if self.table.len() >= self.most {
                self.age();
                if self.table.len() >= self.most {
                    return;
                }
            }
            self.table.insert(first, Noted::default());
        }
        self.change(first, |noted| {
            noted.scans = (noted.scans + SCAN).min(MOST_SCANS);
            noted.reads = noted.reads.saturating_add(more_reads);
        });
    }

    /// Notes that `blocks` blocks of the region of `key` have been written, in any order.
    pub(crate) fn overwritten(&mut self, key: Key, blocks: usize) {
        if !self.table.is_empty() {
            self.change(self.first(key), |noted| {
                let blocks = blocks as u32;
                let moved = blocks.min(noted.moved);
                noted.moved -= moved;
                noted.displaced = noted.displaced.saturating_add(blocks - moved);
            });
        }
    }

    /// Halves the weight of the readers, and forgets regions with less than that of one read.
    fn age(&mut self) {
        self.table.retain(|_, noted| {
            noted.scans /= 2;
            noted.scans >= SCAN
        });
        self.count();
    }

    fn count(&mut self) {
        self.scattered = self.table.values().filter(|noted| noted.gain() > 0).count();
        self.aside = self.table.values().filter(|noted| noted.is_aside).count();
    }

    /// Returns the region with the largest gain, if there is one with any.
    pub(crate) fn next(&self) -> Option<(Key, Noted)> {
        // The first one wins a tie.
        let best = self.table.iter().max_by_key(|(first, noted)| (noted.gain(), core::cmp::Reverse(**first)))?;
        Some((*best.0, *best.1)).filter(|(_, noted)| noted.gain() > 0)
    }

    /// Notes that a stream continued from one block to another. If the other is in another region, the stream has left the first one's region.
    pub(crate) fn went_on(&mut self, from: Key, to: Key) {
        let first = self.first(from);
        if first == self.first(to) || self.left.contains(&first) {
            return;
        }
        // The region is read repeatedly: a failed attempt behind one reader must not exclude the next reader, nor idle time.
        self.change(first, |noted| (noted.tries, noted.waits) = (0, 0));
        let is_worth_it = |noted: &Noted| u64::from(noted.reads) * WORTH_A_LOOK >= self.blocks && noted.gain() > 0;
        if self.table.get(&first).is_some_and(is_worth_it) {
            if self.left.len() == LEFT {
                self.left.pop_front();
            }
            self.left.push_back(first);
        }
    }

    /// Returns true if streams have left a region and read all of it. The region may have scattered blocks.
    #[inline]
    pub(crate) fn are_left(&self) -> bool {
        self.left.len() > ON_ITS_WAY
    }

    /// Returns the first region that a stream has left, if the stream has read all of it. Regions without a gain are skipped.
    pub(crate) fn next_left(&mut self) -> Option<(Key, Noted)> {
        while self.are_left() {
            let first = self.left[0];
            if let Some(&noted) = self.table.get(&first).filter(|noted| noted.gain() > 0) {
                return Some((first, noted));
            }
            self.left.pop_front();
        }
        None
    }

    /// Drops the first region that a stream has left, after its turn.
    pub(crate) fn pass_left(&mut self) {
        self.left.pop_front();
    }

    /// Notes that blocks of a region are being moved to this target; more of them may follow.
    pub(crate) fn note_target(&mut self, first: Key, target: i64) {
        self.change(first, |noted| (noted.target, noted.tries) = (Some(target), noted.tries + 1));
    }

    /// Notes that a block has been moved: a checkpoint will find it among the written ones, though no client wrote it.
    pub(crate) fn moved(&mut self, key: Key) {
        self.change(self.first(key), |noted| noted.moved = noted.moved.saturating_add(1));
    }

    /// Lets a region wait until containers have been emptied. If none become empty, only the blocks that can return to this target are moved.
    pub(crate) fn set_aside(&mut self, first: Key, target: Option<i64>) {
        self.change(first, |noted| (noted.is_aside, noted.target) = (true, target));
    }

    /// Returns true if the region of a block is scattered, as far as is known: it is to be put in order, or waits for an empty container.
    pub(crate) fn is_scattered(&self, key: Key) -> bool {
        self.table.get(&self.first(key)).is_some_and(|noted| noted.weight() > 0)
    }

    /// Returns the number of regions that wait for an empty container.
    pub(crate) fn aside(&self) -> usize {
        self.aside
    }

    /// Ends the wait of the region with the largest gain: there is an empty container for it, and it is looked at again.
    pub(crate) fn bring_back(&mut self) {
        let aside = self.table.iter().filter(|(_, noted)| noted.is_aside);
        // The first one wins a tie.
        let best = aside.max_by_key(|(first, noted)| (noted.weight(), core::cmp::Reverse(**first)));
        if let Some((&first, _)) = best {
            self.change(first, |noted| (noted.is_aside, noted.target, noted.waits) = (false, None, 0));
        }
    }

    /// Ends the wait of regions with a target, because there will be no container for now: their blocks return as far as they can. The others wait on.
    pub(crate) fn return_aside(&mut self) {
        let has_target = |(&first, noted): (&Key, &Noted)| (noted.is_aside && noted.target.is_some()).then_some(first);
        let aside: Vec<Key> = self.table.iter().filter_map(has_target).collect();
        for first in aside {
            self.change(first, |noted| noted.is_aside = false);
        }
    }

    /// Gives a region up until it is read or written again: there is no place for it, or it cannot be read. It stays unchanged.
    pub(crate) fn give_up(&mut self, first: Key) {
        self.given_up += 1;
        self.was_in_order(first);
    }

    /// Returns the number of regions given up since the pool was opened.
    pub(crate) fn given_up(&self) -> u64 {
        self.given_up
    }

    /// Notes that a look at a region waits for pages.
    pub(crate) fn waits(&mut self, first: Key) {
        self.change(first, |noted| noted.waits += 1);
    }

    /// Notes that a region has been put in order, as far as it can be.
    pub(crate) fn in_order(&mut self, first: Key) {
        self.change(first, |noted| {
            *noted = Noted { scans: noted.scans / 2, moved: noted.moved, ..Noted::default() };
        });
        if self.table.get(&first).is_some_and(|noted| noted.scans == 0) {
            self.table.remove(&first);
        }
    }

    /// Notes that a look has found a region in order. It cost no moves, so its readers count as before.
    pub(crate) fn was_in_order(&mut self, first: Key) {
        self.change(first, |noted| {
            *noted = Noted { scans: noted.scans, moved: noted.moved, ..Noted::default() };
        });
    }

    /// Returns the number of regions with scattered blocks.
    #[inline]
    pub(crate) fn scattered(&self) -> usize {
        self.scattered
    }

    /// Returns the bytes of memory of the table.
    pub(crate) fn memory(&self) -> u64 {
        self.table.len() as u64 * REGION_BYTES
    }
}

impl Pool {
    /// Returns the regions that are read in order.
    #[inline]
    pub(crate) fn regions(&self) -> &Regions {
        &self.hints.regions
    }

    /// Returns the regions that are read in order, to be changed.
    #[inline]
    pub(crate) fn regions_mut(&mut self) -> &mut Regions {
        &mut self.hints.regions
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::VolumeId;

    fn key(lba: u64) -> Key {
        Key::new(VolumeId(1), lba)
    }

    fn next(regions: &Regions) -> Option<u64> {
        regions.next().map(|(first, _)| first.lba())
    }

    #[test]
    fn the_region_that_costs_the_most_reads_comes_first() {
        let mut regions = Regions::new(8, 16);
        regions.read(key(3), 5);
        regions.read(key(40), 4);
        regions.read(key(47), 4);
        assert_eq!((next(&regions), regions.scattered()), (Some(32), 2));
        regions.in_order(key(32));
        assert_eq!(next(&regions), Some(0));
        regions.in_order(key(0));
        assert_eq!((next(&regions), regions.scattered()), (None, 0));
    }

    /// Checks that blocks with a target are brought back where there is no empty container, and that regions that go as a whole wait on. They were given up
    /// when gc could empty nothing, and stayed scattered when it could again.
    #[test]
    fn for_want_of_a_container_what_has_a_target_is_brought_back_and_the_rest_waits() {
        let mut regions = Regions::new(8, 16);
        regions.read(key(3), 5);
        regions.read(key(40), 4);
        regions.set_aside(key(0), Some(77));
        regions.set_aside(key(32), None);
        assert_eq!((next(&regions), regions.aside()), (None, 2));
        let target = |regions: &Regions| regions.next().map(|(first, noted)| (first.lba(), noted.target));
        regions.return_aside();
        assert_eq!((target(&regions), regions.aside(), regions.given_up()), (Some((0, Some(77))), 1, 0));
        regions.set_aside(key(0), Some(77));
        regions.bring_back();
        assert_eq!((target(&regions), regions.aside()), (Some((0, None)), 1), "it is looked at anew");
        regions.in_order(key(0));
        regions.bring_back();
        assert_eq!((target(&regions), regions.aside(), regions.scattered()), (Some((32, None)), 0, 1));
    }

    #[test]
    fn what_is_overwritten_is_noted_only_where_somebody_reads() {
        let mut regions = Regions::new(8, 16);
        regions.overwritten(key(1), 3);
        assert_eq!((next(&regions), regions.scattered()), (None, 0));
        regions.read(key(1), 0);
        assert_eq!(next(&regions), None, "it lies in order");
        regions.overwritten(key(2), 3);
        assert_eq!((next(&regions), regions.scattered()), (Some(0), 1));
    }

    #[test]
    fn what_goes_to_its_target_is_not_taken_for_what_clients_write() {
        let mut regions = Regions::new(8, 16);
        (0..4).for_each(|_| regions.read(key(0), 0));
        regions.overwritten(key(0), 5);
        regions.note_target(key(0), 7);
        (0..5).for_each(|block| regions.moved(key(block)));
        regions.in_order(key(0));
        regions.overwritten(key(0), 5);
        assert_eq!(next(&regions), None);
        regions.overwritten(key(0), 1);
        assert_eq!(next(&regions), Some(0));
    }

    #[test]
    fn what_a_stream_has_left_is_looked_at_when_it_has_left_the_next_one_too() {
        let mut regions = Regions::new(8, 16);
        for region in 0..3 {
            regions.read(key(16 * region), 5);
        }
        regions.went_on(key(4), key(12));
        regions.went_on(key(12), key(20));
        assert!(!regions.are_left(), "the last one is still on its way");
        regions.went_on(key(20), key(32));
        assert_eq!(regions.next_left().map(|(first, _)| first), Some(key(0)));
        // Regions that have become in order need no look.
        regions.went_on(key(40), key(48));
        regions.in_order(key(0));
        assert_eq!(regions.next_left().map(|(first, _)| first), Some(key(16)));
        regions.pass_left();
        assert!(regions.next_left().is_none());
    }

    /// Checks that a reader resets the looks at a region. A region that waited for its places was looked at behind each reader; then idle time gave it up
    /// without a look.
    #[test]
    fn each_reader_brings_new_tries() {
        let mut regions = Regions::new(8, 16);
        regions.read(key(0), 5);
        (0..TRIES).for_each(|_| regions.note_target(key(0), 7));
        (0..WAITS).for_each(|_| regions.waits(key(0)));
        let is_hopeless = |regions: &Regions| regions.next().map(|(_, noted)| noted.is_hopeless());
        assert_eq!(is_hopeless(&regions), Some(true));
        regions.went_on(key(0), key(16));
        assert_eq!(is_hopeless(&regions), Some(false));
    }

    /// Checks that a region that is overwritten, put in order and read each day stays noted, though each reader finds a little out of order. It was forgotten
    /// after two looks without a reader in between, the second of which moved little or nothing. All that was overwritten on the next day stayed scattered.
    #[test]
    fn two_looks_for_each_reader_do_not_make_a_region_forgotten() {
        let mut regions = Regions::new(8, 16);
        regions.read(key(0), 0);
        for _ in 0..30 {
            regions.overwritten(key(0), 9);
            assert_eq!(next(&regions), Some(0));
            regions.in_order(key(0));
            regions.read(key(0), 1);
            regions.in_order(key(0));
            regions.was_in_order(key(0));
        }
    }

    #[test]
    fn a_full_table_forgets_what_is_read_seldom() {
        let mut regions = Regions::new(2, 16);
        regions.read(key(0), 1);
        (0..3).for_each(|_| regions.read(key(16), 1));
        regions.read(key(32), 9);
        assert_eq!(next(&regions), Some(32));
        regions.in_order(key(32));
        assert_eq!(next(&regions), Some(16));
    }
}
