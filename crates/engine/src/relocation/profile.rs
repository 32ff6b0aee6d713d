//! Runs of device reads, in bounded memory (the paper's LBA-to-FILE table, section IV.A).
//!
//! A read that continues where the last one of its object ended makes that run longer. With [`Merge::Adjacent`] another object's read in between ends
//! the run, as printed. Interleaved streams then never merge. [`Merge::ByObject`] keeps the last runs of 64 objects open.
//!
//! Memory: 16 bytes a run; 1,048,576 runs are 16 MiB. When there is no space the oldest run goes, and [`Profile::dropped`] counts it: the latest
//! reads say most about the next ones.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::{Content, Extent, Object, Run, labels::Labels, push};

/// Runs that are kept open with [`Merge::ByObject`].
const MOST_OPEN: usize = 64;

/// Read that ends a run.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Merge {
    /// Any read that does not continue where the run ended, of any object: only adjacent records merge, as printed.
    Adjacent,
    /// A read of the same object elsewhere. Reads of others may come in between.
    ByObject,
}

/// Runs of blocks that were read from the device.
#[derive(Clone, Debug)]
pub struct Profile {
    most: usize,
    most_open: usize,
    runs: VecDeque<Run>,
    /// Runs that may become longer; the one that was read last is at the end.
    open: Vec<Run>,
    reads: u64,
    dropped: u64,
}

impl Profile {
    /// Makes an empty profile, which keeps at most `most_runs` runs; at least 1.
    pub fn new(merge: Merge, most_runs: usize) -> Profile {
        let most_open = match merge {
            Merge::Adjacent => 1,
            Merge::ByObject => MOST_OPEN,
        };
        let most = most_runs.max(1);
        Profile { most, most_open, runs: VecDeque::with_capacity(most), open: Vec::new(), reads: 0, dropped: 0 }
    }

    /// Notes a read of the device. One of no blocks is not noted.
    pub fn note(&mut self, object: Object, slot: u64, blocks: u32) {
        if blocks == 0 {
            return;
        }
        self.reads += 1;
        let mut run = Run { slot, blocks, object };
        if let Some(at) = self.open.iter().rposition(|open| open.object == object) {
            let open = self.open.remove(at);
            match open.blocks.checked_add(blocks) {
                Some(all) if open.end() == slot => run = Run { blocks: all, ..open },
                _ => self.close(open),
            }
        } else if self.open.len() == self.most_open {
            let oldest = self.open.remove(0);
            self.close(oldest);
        }
        self.open.push(run);
    }

    /// Continues another profile in an empty one, with the numbers of its reads and forgotten runs; its runs follow with [`Profile::take_up`].
    pub fn go_on_from(&mut self, reads: u64, dropped: u64) {
        (self.reads, self.dropped) = (reads, dropped);
    }

    /// Adds a run that another profile has noted; returns false if there is no space. None is forgotten for it.
    pub fn take_up(&mut self, run: Run) -> bool {
        let has_space = self.runs.len() < self.most;
        if has_space {
            self.runs.push_back(run);
        }
        has_space
    }

    fn close(&mut self, run: Run) {
        if self.runs.len() == self.most {
            self.runs.pop_front();
            self.dropped += 1;
        }
        self.runs.push_back(run);
    }

    /// Returns the runs so far, in the order in which they ended. Open ones end (the paper's listing forgets the last).
    pub fn runs(&mut self) -> &[Run] {
        self.end_open();
        self.runs.make_contiguous()
    }

    /// Ends the open runs.
    pub fn end_open(&mut self) {
        for run in core::mem::take(&mut self.open) {
            self.close(run);
        }
    }

    /// Returns the number of runs that have ended, with those that were forgotten since: the number of the next one.
    pub fn ended(&self) -> u64 {
        self.dropped + self.runs.len() as u64
    }

    /// Returns the runs that have ended, by their numbers, from one on: for callers that take them in parts. Numbers stay while new runs come; the oldest runs
    /// may be gone.
    pub fn runs_from(&self, number: u64) -> impl Iterator<Item = (u64, Run)> + '_ {
        let first = number.max(self.dropped);
        let skipped = usize::try_from(first - self.dropped).unwrap_or(usize::MAX).min(self.runs.len());
        (first..).zip(self.runs.range(skipped..).copied())
    }

    /// Returns the number of reads that were noted.
    pub fn reads(&self) -> u64 {
        self.reads
    }

    /// Returns the number of runs that were forgotten for want of space.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Returns the bytes that the runs take at most.
    pub fn most_bytes(&self) -> usize {
        (self.most + self.most_open) * size_of::<Run>()
    }
}

/// Computes the slots that each object was seen to consist of, in the order of its first reads: for callers without a manifest. In ascending order of objects.
pub fn contents(runs: &[Run]) -> Vec<Content> {
    let mut by_object: Vec<(Object, usize)> = runs.iter().enumerate().map(|(at, run)| (run.object, at)).collect();
    by_object.sort_unstable();
    by_object
        .chunk_by(|one, other| one.0 == other.0)
        .map(|part| {
            let (mut seen, mut extents) = (Labels::default(), Vec::new());
            let new = part.iter().flat_map(|&(_, at)| seen.insert(runs[at].extent()));
            new.for_each(|extent: Extent| push(&mut extents, extent));
            Content { object: part[0].0, extents }
        })
        .collect()
}
