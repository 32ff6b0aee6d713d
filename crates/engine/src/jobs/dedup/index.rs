//! Catch-up of an index on disk that is behind (pool/disk_index/behind.rs), by the pass: at the end of a range it hands over the contents found, some
//! whole buckets at a time, one part for each checkpoint.
//!
//! Where a pass shares whole runs, it gives up slots that it has found before. Where a canonical slot has gone, another one replaces it. If that
//! happens after the range has been handed over, the index names the old slots and lacks the new ones. That costs savings until the next time that
//! the index is behind.
//!
//! A range ends within a bucket. The next one begins at the start of that bucket, so each bucket is handed over whole.

use core::ops::Range as Buckets;

use super::range::{PLACES, Range};
use crate::pool::Pool;
use crate::pool::disk_index::behind::DeferredPart;
use crate::pool::disk_index::bucket::{IndexChange, bucket_of, first_hash};

/// Contents that a step looks at.
const AT_ONCE: usize = 1 << 14;

/// Result of a step of handing over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Handed {
    /// More contents of the range remain.
    More,
    /// A checkpoint has to bring in the part that was handed over.
    Part,
    All,
}

/// State of the catch-up of an index on disk that is behind.
#[derive(Default)]
pub(super) struct CatchUp {
    /// Number of blocks that had been left out when the pass began, if it began since the pool was opened.
    whole_since: Option<u64>,
    /// True if the index was behind when the range, or its partitioning, began: all contents that belong there have been found.
    has_all: bool,
    /// Number of buckets of the index, and the next bucket of the range that is being handed over.
    at: Option<(u32, u64)>,
    /// Part that is being collected.
    part: DeferredPart,
    /// Number of contents of the range that have been looked at for the part.
    looked: usize,
}

/// Returns the buckets that a range covers completely.
fn whole_buckets(range: &Range, buckets: u32) -> Buckets<u64> {
    let first = bucket_of(range.first << 32, buckets);
    let first = if first_hash(first, buckets) < range.first << 32 { first + 1 } else { first };
    let end = if range.end == PLACES { buckets.into() } else { bucket_of(range.end << 32, buckets) };
    first..end.max(first)
}

/// Returns the place at which the next range begins, for an index with this number of buckets that is behind.
pub(super) fn next_range(range: &Range, buckets: Option<u32>) -> u64 {
    let Some(buckets) = buckets.filter(|_| range.end < PLACES) else { return range.end };
    let whole = whole_buckets(range, buckets);
    if whole.is_empty() { range.end } else { first_hash(whole.end, buckets) >> 32 }
}

impl CatchUp {
    pub(super) fn memory(&self) -> u64 {
        self.part.memory()
    }

    /// Prepares for the scan of a range, before its first summary is read.
    pub(super) fn begin_range(&mut self, pool: &mut Pool, first: u64) {
        self.rest();
        self.has_all = pool.buckets_behind().is_some();
        if first == 0 {
            self.whole_since = Some(pool.left_out_of_disk_index());
        }
        pool.watch_disk_index(true);
    }

    /// Drops the state of the range in progress.
    pub(super) fn rest(&mut self) {
        *self = CatchUp { whole_since: self.whole_since, has_all: self.has_all, ..CatchUp::default() };
    }

    /// Hands over some of the contents found in a range, in one step.
    pub(super) fn hand_over(&mut self, pool: &mut Pool, range: &Range) -> Handed {
        let Some(buckets) = pool.buckets_behind().filter(|_| self.has_all) else { return Handed::All };
        if self.at.is_some_and(|(before, _)| before != buckets) {
            // The index was made anew meanwhile.
            self.rest();
        }
        let whole = whole_buckets(range, buckets);
        let start = match self.at {
            Some((_, next)) if next >= whole.end && self.looked == 0 => return Handed::All,
            Some((_, next)) => next,
            None => whole.start,
        };
        let entries = range.len() as u64 / (whole.end - whole.start).max(1);
        let some = start..whole.end.min(start + pool.buckets_at_once(buckets, entries));
        // A range that has no whole bucket adds its contents.
        let is_meant = |change: &IndexChange| whole.is_empty() || some.contains(&bucket_of(change.hash(), buckets));
        let found = range.blocks().skip(self.looked).take(AT_ONCE);
        let found = found.map(|(digest, slot)| IndexChange::enter(digest, slot));
        self.part.add(found.filter(is_meant));
        self.looked += AT_ONCE;
        self.at = Some((buckets, start));
        if self.looked < range.len() {
            return Handed::More;
        }
        let mut part = core::mem::take(&mut self.part);
        part.add(some.clone().map(|bucket| IndexChange::visit(first_hash(bucket, buckets))));
        part.replace(some.clone());
        pool.bring_into_disk_index(part);
        (self.at, self.looked) = (Some((buckets, some.end)), 0);
        Handed::Part
    }

    /// Ends the pass: all blocks that were left out of the index before it began have been caught up.
    pub(super) fn end(&mut self, pool: &mut Pool) {
        if let Some(since) = self.whole_since.take() {
            pool.disk_index_caught_up(since);
        }
        pool.watch_disk_index(false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_bucket_is_whole_in_one_of_the_ranges() {
        for (buckets, parts) in [(1, 1), (1, 5), (7, 1), (7, 3), (24, 5), (24, 40), (7920, 37), (789_504, 900)] {
            let (mut first, mut next_bucket, mut ranges) = (0, 0, 0);
            while first < PLACES {
                let range = Range::between(first, (first + PLACES / parts).min(PLACES));
                let whole = whole_buckets(&range, buckets);
                if !whole.is_empty() {
                    assert!(whole.start <= next_bucket, "{buckets} buckets: {whole:?} after {next_bucket}");
                    next_bucket = whole.end;
                }
                let end = next_range(&range, Some(buckets));
                assert!(end > first);
                (first, ranges) = (end, ranges + 1);
            }
            // Ranges that are narrower than buckets have none of them whole.
            if u64::from(buckets) >= 2 * parts || parts == 1 {
                assert_eq!(next_bucket, buckets.into(), "in {ranges} ranges");
            }
        }
    }
}
