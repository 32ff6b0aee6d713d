//! Paths to the keys that a checkpoint merges, as an upper bound on the map pages that it writes; and the reservation that follows from them.

use crate::format::entry::{Key, LBA_BITS};
use crate::format::geometry::Geometry;
use crate::format::volume::MAX_HEIGHT;

/// Number of levels that a map can have, leaves included.
pub(crate) const LEVELS: usize = MAX_HEIGHT as usize + 1;
/// Number of page addresses of each level that are remembered as counted.
const REMEMBERED: usize = 64;

/// Pages of maps, by level.
pub(crate) type PagesByLevel = [u64; LEVELS];

/// Upper bound on the number of distinct map pages on the paths to the noted keys. It is exact if the keys come in order. Otherwise a page may be counted again
/// after keys of other pages.
pub(crate) struct Paths {
    pub(super) pages: PagesByLevel,
    /// Sum over all levels.
    pub(super) total: u64,
    /// Leaf of the last key.
    last: u64,
    /// Addresses of counted pages; 0: none. The pages above each of these have been counted, too.
    counted: [[u64; REMEMBERED]; LEVELS],
    /// Number of bits of a key that a page of each level covers.
    pub(super) bits: [u32; LEVELS],
    levels: usize,
}

impl Paths {
    pub(crate) fn new(geometry: &Geometry) -> Paths {
        let leaf = geometry.map_leaf_entries().trailing_zeros();
        let bits = core::array::from_fn(|level| (leaf + level as u32 * (leaf - 1)).min(LBA_BITS));
        let levels = bits.iter().take_while(|&&bits| bits < LBA_BITS).count() + 1;
        let counted = [[0; REMEMBERED]; LEVELS];
        Paths { pages: [0; LEVELS], total: 0, last: u64::MAX, counted, bits, levels: levels.min(LEVELS) }
    }

    /// Notes that the mapping of a block changes, and counts the pages on its path.
    #[inline]
    pub(crate) fn note(&mut self, key: Key) {
        let leaf = key.0 >> self.bits[0];
        if leaf != self.last {
            self.last = leaf;
            self.count(key);
        }
    }

    fn count(&mut self, key: Key) {
        for level in 0..self.levels {
            let page = key.0 >> self.bits[level];
            let place = (page.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58) as usize;
            if core::mem::replace(&mut self.counted[level][place], page) == page {
                break;
            }
            self.pages[level] += 1;
            self.total += 1;
        }
    }

    /// Drops all noted keys.
    pub(crate) fn reset(&mut self) {
        if self.total > 0 {
            (self.pages, self.total, self.last) = ([0; LEVELS], 0, u64::MAX);
            self.counted = [[0; REMEMBERED]; LEVELS];
        }
    }

    /// Adds the pages on the paths to the keys of another set.
    pub(crate) fn add(&mut self, others: &Paths) {
        self.pages.iter_mut().zip(others.pages).for_each(|(pages, more)| *pages += more);
        self.total += others.total;
    }

    /// Returns the pages by level if at most `keys` of the noted keys are left.
    pub(super) fn of_at_most(&self, keys: u64) -> PagesByLevel {
        self.pages.map(|pages| pages.min(keys))
    }
}

/// Reservation of metadata as of the last review, and the paths that the active delta, the frozen delta and the map buffer need.
pub(crate) struct MetadataReservation {
    /// Paths to the points of the active delta and of the frozen one, and to the mappings of the map buffer.
    pub(super) active: Paths,
    pub(super) frozen: Paths,
    pub(super) buffered: Paths,
    /// True if mappings of the frozen delta may stay in the map buffer: decided when the delta is frozen.
    pub(in crate::pool) buffers: bool,
    /// Pages that must be free whatever the deltas contain, as of the last review. A coarse bound, above the exact one.
    pub(super) fixed: u64,
    /// Levels of the highest map, and pages that maps take when they become higher.
    pub(super) levels: u64,
    pub(super) raised: u64,
    /// Free pages that no change may take; that all but clears must leave besides; and that new blocks must leave besides.
    pub(super) reserve: u64,
    pub(super) for_clear: u64,
    pub(super) for_overwrite: u64,
    /// Largest number of pages that a checkpoint has taken beyond its count; 0 unless the count is wrong.
    pub(super) beyond: u64,
}

impl MetadataReservation {
    pub(crate) fn new(geometry: &Geometry) -> MetadataReservation {
        let paths = || Paths::new(geometry);
        MetadataReservation {
            active: paths(),
            frozen: paths(),
            buffered: paths(),
            buffers: false,
            fixed: u64::MAX,
            levels: LEVELS as u64,
            raised: 0,
            reserve: 0,
            for_clear: 0,
            for_overwrite: 0,
            beyond: 0,
        }
    }

    /// Notes that the active delta has a mapping of a block.
    #[inline]
    pub(in crate::pool) fn note(&mut self, key: Key) {
        self.active.note(key);
    }

    /// Notes that the map buffer has a mapping of a block.
    pub(in crate::pool) fn note_buffered(&mut self, key: Key) {
        self.buffered.note(key);
    }

    /// Hands the paths of the active delta to the frozen one.
    pub(in crate::pool) fn freeze(&mut self) {
        core::mem::swap(&mut self.active, &mut self.frozen);
    }

    /// Drops the paths of the frozen delta: it has been merged.
    pub(in crate::pool) fn end_merge(&mut self) {
        self.frozen.reset();
        self.buffers = false;
    }

    /// Sets the paths to the mappings in the map buffer; unless `alone`, those of the former ones count on.
    pub(in crate::pool) fn set_buffered(&mut self, paths: Paths, alone: bool) {
        match alone {
            true => self.buffered = paths,
            false => self.buffered.add(&paths),
        }
    }
}
