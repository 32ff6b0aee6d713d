//! Frequency counter of device reads: a count for each of a bounded number of runs of slots, by Misra and Gries. Pure.
//!
//! Where there is no space for another run, all counts fall by one, and runs whose count is zero are dropped. So every run with more than one in N
//! reads, for N counts, is known in the end.

use alloc::vec::Vec;

use crate::format::entry::Slot;
use crate::locality_map::NearMap;

/// Smallest number of reads of a popular run.
const OFTEN: u32 = 2;
/// Largest number of slots of a run that is counted. Longer runs are sequential: they take one seek, wherever they lie.
const LONGEST: usize = 64;

/// Slots that were read together, of which the first is the key.
#[derive(Clone, Copy)]
struct PopularRun {
    length: u32,
    reads: u32,
}

/// Counts of the most frequent runs, for one epoch.
#[derive(Default)]
pub(super) struct Popular {
    runs: NearMap<Slot, PopularRun>,
}

impl Popular {
    /// Counts a run that was read from the disk; at most `most` runs are counted.
    pub(super) fn note(&mut self, first: Slot, length: usize, most: usize) {
        if length > LONGEST {
            return;
        }
        if let Some(run) = self.runs.get_mut(&first) {
            run.reads = run.reads.saturating_add(1);
            run.length = run.length.max(length as u32);
        } else if self.runs.len() < most {
            self.runs.insert(first, PopularRun { length: length as u32, reads: 1 });
        } else {
            self.runs.retain(|_, run| {
                run.reads -= 1;
                run.reads > 0
            });
        }
    }

    /// Returns the number of runs that are counted.
    pub(super) fn len(&self) -> usize {
        self.runs.len()
    }

    /// Ends an epoch: returns popular runs of at most `blocks` blocks in all, the most frequent first, and resets all counts.
    pub(super) fn take(&mut self, blocks: u64) -> Vec<(Slot, u32)> {
        let mut runs: Vec<(Slot, PopularRun)> = core::mem::take(&mut self.runs).into_iter().collect();
        runs.retain(|(_, run)| run.reads >= OFTEN);
        runs.sort_unstable_by_key(|&(first, run)| (core::cmp::Reverse(run.reads), first));
        let mut left = blocks;
        runs.retain(|(_, run)| {
            let fits = u64::from(run.length) <= left;
            left -= if fits { u64::from(run.length) } else { 0 };
            fits
        });
        runs.into_iter().map(|(first, run)| (first, run.length)).collect()
    }

    /// Returns the bytes of memory that the counts take.
    pub(super) fn memory(&self) -> u64 {
        crate::sizes::table_bytes(&self.runs)
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    #[test]
    fn the_most_frequent_runs_come_first_as_far_as_there_is_space() {
        let mut popular = Popular::default();
        for (first, length, times) in [(10, 4, 3), (20, 2, 5), (30, 8, 2), (40, 1, 1), (50, 1, 2), (60, 65, 9)] {
            (0..times).for_each(|_| popular.note(Slot(first), length, 100));
        }
        assert_eq!(popular.take(7), vec![(Slot(20), 2), (Slot(10), 4), (Slot(50), 1)]);
        assert_eq!(popular.len(), 0);
    }

    #[test]
    fn what_is_frequent_is_found_among_many_others() {
        let mut popular = Popular::default();
        for at in 0..10_000 {
            popular.note(Slot(if at % 4 == 0 { 7 } else { 1000 + at }), 1, 16);
            assert!(popular.runs.len() <= 16);
        }
        assert_eq!(popular.take(100).first(), Some(&(Slot(7), 1)));
    }
}
