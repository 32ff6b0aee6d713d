//! Assessment of objects: the gain of an object from lying in order, and the cost to others (ReDedup, Algorithm 1, section IV.B).
//!
//! Randomness R is the number of runs in which an object was read. Sharing S is the harm to others; there are three ways to count it. The value of an
//! object is R - S.
//!
//! As printed, S counts *pairs* of runs. It grows with the square of the reads while R grows with the reads, so hot shared objects come last: the
//! opposite of the paper's purpose. The other two count each read once.
//!
//! The printed search looks at all pairs. Here the runs are sorted by first and by last slot. The number of runs that overlap one is then two
//! searches: all that begin before its end, without those that end before its beginning. For n runs that takes n log n steps.

use alloc::vec::Vec;

use super::labels::Labels;
use super::{Object, Run};

/// Count of sharing that an assessment uses.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Sharing {
    /// Pairs of an own run and an overlapping one of another object: as printed.
    Pairs,
    /// Own runs that overlap one of another object, each once.
    #[default]
    OwnRuns,
    /// Runs of other objects that touch a slot read for this one, each once.
    OthersRuns,
}

/// Figures of an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Assessment {
    /// The object.
    pub object: Object,
    /// R: the runs in which it was read.
    pub randomness: u64,
    /// S: the sharing. It is 0 only if no slot read for it was read for another object.
    pub sharing: u64,
}

impl Assessment {
    /// Returns the value of moving the object: R - S.
    pub fn value(&self) -> i64 {
        self.randomness as i64 - self.sharing as i64
    }
}

/// Assesses all objects of a profile, in ascending order of objects.
pub fn assess(runs: &[Run], sharing: Sharing) -> Vec<Assessment> {
    let all = RunBounds::new(runs);
    let mut sorted = runs.to_vec();
    sorted.sort_unstable_by_key(|run| (run.object, run.slot));
    let mut assessments: Vec<Assessment> = sorted
        .chunk_by(|one, other| one.object == other.object)
        .map(|own| {
            let bounds = RunBounds::new(own);
            let others = |run: &Run| (all.overlapping(run) - bounds.overlapping(run)) as u64;
            let sharing = match sharing {
                Sharing::Pairs => own.iter().map(others).sum(),
                Sharing::OwnRuns => own.iter().filter(|run| others(run) > 0).count() as u64,
                Sharing::OthersRuns => 0,
            };
            Assessment { object: own[0].object, randomness: own.len() as u64, sharing }
        })
        .collect();
    if sharing == Sharing::OthersRuns {
        count_others(&sorted, &mut assessments);
    }
    assessments
}

/// The first slots of some runs, sorted, and the slots behind their last ones, sorted.
struct RunBounds {
    firsts: Vec<u64>,
    ends: Vec<u64>,
}

impl RunBounds {
    fn new(runs: &[Run]) -> RunBounds {
        let mut firsts: Vec<u64> = runs.iter().map(|run| run.slot).collect();
        let mut ends: Vec<u64> = runs.iter().map(Run::end).collect();
        firsts.sort_unstable();
        ends.sort_unstable();
        RunBounds { firsts, ends }
    }

    /// Counts the runs that overlap a run.
    fn overlapping(&self, run: &Run) -> usize {
        self.firsts.partition_point(|&first| first < run.end()) - self.ends.partition_point(|&end| end <= run.slot)
    }
}

/// A range of slots between those read for an object.
struct Gap {
    first: u64,
    end: u64,
    /// Index of the object's assessment.
    of: usize,
}

/// Sets `sharing` to the runs of others that touch the blocks read for an object.
///
/// A run touches nothing of an object exactly if it lies within one of the gaps between the blocks read for it. Runs and gaps go by in the order of
/// their ends; a tree counts the runs so far by their first slots.
fn count_others(sorted: &[Run], assessments: &mut [Assessment]) {
    let mut gaps = Vec::new();
    for (of, own) in sorted.chunk_by(|one, other| one.object == other.object).enumerate() {
        let mut read = Labels::default();
        own.iter().for_each(|run| drop(read.insert(run.extent())));
        let mut first = 0;
        for extent in read.extents() {
            gaps.push(Gap { first, end: extent.slot, of });
            first = extent.end();
        }
        gaps.push(Gap { first, end: u64::MAX, of });
    }
    gaps.sort_unstable_by_key(|gap| gap.end);
    let mut by_end = sorted.to_vec();
    by_end.sort_unstable_by_key(Run::end);
    let mut firsts: Vec<u64> = sorted.iter().map(|run| run.slot).collect();
    firsts.sort_unstable();
    firsts.dedup();
    let place = |slot: u64| firsts.partition_point(|&first| first < slot);
    let mut counts = FenwickTree::new(firsts.len());
    let mut next = by_end.iter().peekable();
    let all = sorted.len() as u64;
    assessments.iter_mut().for_each(|one| one.sharing = all - one.randomness);
    for gap in gaps {
        while let Some(run) = next.next_if(|run| run.end() <= gap.end) {
            counts.add(place(run.slot));
        }
        assessments[gap.of].sharing -= counts.from(place(gap.first));
    }
}

/// Counts at places, with sums of all from a place on (a Fenwick tree).
struct FenwickTree {
    sums: Vec<u32>,
    all: u64,
}

impl FenwickTree {
    fn new(places: usize) -> FenwickTree {
        FenwickTree { sums: alloc::vec![0; places + 1], all: 0 }
    }

    fn add(&mut self, place: usize) {
        let mut at = place + 1;
        while at < self.sums.len() {
            self.sums[at] += 1;
            at += at & at.wrapping_neg();
        }
        self.all += 1;
    }

    fn from(&self, place: usize) -> u64 {
        let (mut at, mut before) = (place, 0);
        while at > 0 {
            before += u64::from(self.sums[at]);
            at &= at - 1;
        }
        self.all - before
    }
}
