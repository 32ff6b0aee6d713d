//! Statistics of a trace: working sets, read frequencies, reuse distances, and the overlap of days.

use std::collections::{BTreeSet, HashSet};

use super::cache::Key;
use super::hits::Stream;
use crate::replay::lru::Numbers;
use crate::traces::Request;

/// Blocks, distinct sectors, distinct contents.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WorkingSet {
    /// Blocks read, or written.
    pub total: u64,
    /// Blocks of different addresses.
    pub sectors: u64,
    /// Blocks of different contents.
    pub contents: u64,
}

/// Counts the working set of all reads, or of all writes.
pub fn working_set(requests: &[Request], writes: bool) -> WorkingSet {
    let (mut sectors, mut contents, mut total) = (Numbers::default(), Numbers::default(), 0);
    for request in requests.iter().filter(|request| request.writes == writes) {
        for (at, &content) in request.contents.iter().enumerate() {
            total += 1;
            sectors.insert(request.block + at as u64, ());
            contents.insert(content, ());
        }
    }
    WorkingSet { total, sectors: sectors.len() as u64, contents: contents.len() as u64 }
}

/// Counts the sectors that are both read and written.
pub fn both(requests: &[Request]) -> u64 {
    let of = |writes: bool| -> HashSet<u64> {
        let requests = requests.iter().filter(move |request| request.writes == writes);
        requests.flat_map(|request| request.block..request.block + u64::from(request.blocks)).collect()
    };
    of(false).intersection(&of(true)).count() as u64
}

/// Counts the reads of each address or content, the most read first; those that are only written are left out.
pub fn frequencies(requests: &[Request], key: Key) -> Vec<u64> {
    let stream = Stream::of(requests);
    let mut counts = vec![0; stream.counts.by(key) as usize];
    for block in &stream.blocks {
        counts[block.name(key) as usize] += u64::from(!block.is_written);
    }
    counts.retain(|count| *count > 0);
    counts.sort_unstable_by_key(|&count| std::cmp::Reverse(count));
    counts
}

/// Returns the reuse distances of reads, in ascending order. A distance is the number of other addresses or contents used since the previous use.
pub fn distances(requests: &[Request], key: Key) -> Vec<u64> {
    let stream = Stream::of(requests);
    let mut marks = Marks(vec![0; stream.blocks.len() + 1]);
    let mut last: Vec<Option<usize>> = vec![None; stream.counts.by(key) as usize];
    let mut distances = Vec::new();
    for (at, block) in stream.blocks.iter().enumerate() {
        if let Some(before) = last[block.name(key) as usize].replace(at) {
            if !block.is_written {
                distances.push(marks.up_to(at) - marks.up_to(before + 1));
            }
            marks.add(before, -1);
        }
        marks.add(at, 1);
    }
    distances.sort_unstable();
    distances
}

/// Counts of marks, by Fenwick's tree.
struct Marks(Vec<i64>);

impl Marks {
    fn add(&mut self, at: usize, change: i64) {
        let mut at = at + 1;
        while at < self.0.len() {
            self.0[at] += change;
            at += at & at.wrapping_neg();
        }
    }

    /// Returns the number of marks before this place.
    fn up_to(&self, mut at: usize) -> u64 {
        let mut sum = 0;
        while at > 0 {
            sum += self.0[at];
            at -= at & at.wrapping_neg();
        }
        sum.max(0) as u64
    }
}

/// Returns the percentage of the addresses or contents read in a seventh of a trace that were read in the seventh before it, on average.
pub fn overlap(requests: &[Request], key: Key, span: u64) -> f64 {
    let mut days: [BTreeSet<u64>; 7] = Default::default();
    for request in requests.iter().filter(|request| !request.writes) {
        let day = (request.at * 7 / span.max(1)).min(6) as usize;
        for (at, &content) in request.contents.iter().enumerate() {
            days[day].insert(if key == Key::Sector { request.block + at as u64 } else { content });
        }
    }
    let share =
        |pair: &[BTreeSet<u64>]| 100.0 * pair[1].intersection(&pair[0]).count() as f64 / pair[1].len().max(1) as f64;
    days.windows(2).map(share).sum::<f64>() / 6.0
}
