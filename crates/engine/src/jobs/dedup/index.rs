//! The pass brings an index on disk up to date that has fallen behind (pool/disk_index/behind.rs): at the end of a range it hands over what
//! it has found, some whole buckets at a time, a part for each checkpoint.
//!
//! A range ends within a bucket. The next one begins where that bucket does, so each bucket is handed over whole.

use alloc::vec::Vec;
use core::ops::Range as Buckets;

use super::range::{PLACES, Range};
use crate::contract::Digest;
use crate::format::entry::Slot;
use crate::pool::Pool;
use crate::pool::disk_index::behind::{Marks, Part};
use crate::pool::disk_index::bucket::{Change, bucket_of, first_hash};
use crate::sizes::list_bytes;

/// Contents that a step looks at.
const AT_ONCE: usize = 1 << 14;

/// What a step of handing over came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Handed {
    /// There is more to be looked at.
    More,
    /// A checkpoint is to bring in what has been handed over.
    Part,
    All,
}

/// What the pass knows of the index that it brings up to date.
#[derive(Default)]
pub(super) struct CatchUp {
    /// What had come into the index when the pass began, if it began since the pool was opened,
    whole_since: Option<Marks>,
    /// and when the scan of this range did.
    range_since: Marks,
    /// Blocks in the range that take no part in the pass, and are in the index.
    others: Vec<Change>,
    /// There were too many of them.
    has_missed: bool,
    /// The next bucket to be handed over.
    next: Option<u64>,
    /// The part that is being gathered, and how much of the range has been looked at for it.
    part: Part,
    looked: usize,
}

/// The buckets of which a range has everything.
fn whole_buckets(range: &Range, buckets: u32) -> Buckets<u64> {
    let first = bucket_of(range.first << 32, buckets);
    let first = if first_hash(first, buckets) < range.first << 32 { first + 1 } else { first };
    let end = if range.end == PLACES { buckets.into() } else { bucket_of(range.end << 32, buckets) };
    first..end.max(first)
}

impl CatchUp {
    pub(super) fn memory(&self) -> u64 {
        self.part.memory() + list_bytes(&self.others)
    }

    /// The scan of a range begins.
    pub(super) fn begin_range(&mut self, pool: &Pool, first: u64) {
        let marks = pool.disk_index_marks();
        let whole_since = if first == 0 { Some(marks) } else { self.whole_since };
        *self = CatchUp { whole_since, range_since: marks, ..CatchUp::default() };
    }

    /// A block that takes no part in the pass.
    pub(super) fn note_other(&mut self, digest: Digest, slot: Slot, most: usize) {
        if self.others.len() < most {
            self.others.push(Change::enter(digest, slot));
        } else {
            (self.has_missed, self.whole_since) = (true, None);
        }
    }

    /// Where the range after this one begins.
    pub(super) fn next_range(&self, pool: &Pool, range: &Range) -> u64 {
        let Some(buckets) = pool.buckets_behind().filter(|_| range.end < PLACES) else { return range.end };
        let whole = whole_buckets(range, buckets);
        if whole.is_empty() { range.end } else { first_hash(whole.end, buckets) >> 32 }
    }

    /// A step of handing over what has been found in a range.
    pub(super) fn hand_over(&mut self, pool: &mut Pool, range: &Range) -> Handed {
        let Some(buckets) = pool.buckets_behind() else { return Handed::All };
        let whole = whole_buckets(range, buckets);
        let start = self.next.unwrap_or(whole.start);
        if self.next.is_some() && start >= whole.end {
            return Handed::All;
        }
        let some = start..whole.end.min(start + pool.buckets_at_once());
        // A range that has no bucket as a whole adds what it has.
        let is_meant = |change: &Change| whole.is_empty() || some.contains(&bucket_of(change.hash, buckets));
        let found = range.contents().map(|(digest, slot)| Change::enter(digest, slot));
        let all = found.chain(self.others.iter().copied()).skip(self.looked).take(AT_ONCE);
        self.part.changes.extend(all.filter(is_meant));
        self.looked += AT_ONCE;
        if self.looked < range.len() + self.others.len() {
            return Handed::More;
        }
        let mut part = core::mem::take(&mut self.part);
        if pool.disk_index_marks().entered == self.range_since.entered && !self.has_missed {
            part.cleared = some.clone();
            part.changes.extend(some.clone().map(|bucket| Change::visit(first_hash(bucket, buckets))));
        }
        pool.bring_into_disk_index(part);
        (self.next, self.looked) = (Some(some.end), 0);
        Handed::Part
    }

    /// The pass is at its end.
    pub(super) fn end(&mut self, pool: &mut Pool) {
        if let Some(since) = self.whole_since.take() {
            pool.disk_index_caught_up(since);
        }
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
                let end = if range.end < PLACES && !whole.is_empty() {
                    first_hash(whole.end, buckets) >> 32
                } else {
                    range.end
                };
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
