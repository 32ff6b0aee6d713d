//! A row of an array with parity: its blocks in the stripe cache, its waiting writes, and the plan for writing it.

use super::{Breakdown, Class};

/// A row in the stripe cache. Sets of members are bits.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub cached: u64,
    /// Members to be overwritten as a whole.
    pub full: u64,
    /// Members to be overwritten in part.
    pub partial: u64,
    pub waiting: Vec<u64>,
    pub class: Class,
    pub round: Option<Round>,
    pub used: u64,
}

impl Row {
    /// Creates a row with nothing in the cache and nothing to do.
    pub fn empty() -> Row {
        let class = Class::Background;
        Row { cached: 0, full: 0, partial: 0, waiting: Vec::new(), class, round: None, used: 0 }
    }
}

/// Reads and writes of a row that are in progress.
#[derive(Clone, Debug)]
pub(super) struct Round {
    pub requests: Vec<u64>,
    pub reads: u64,
    pub writes: u64,
    pub reading: bool,
    pub left: u32,
    pub spent: Breakdown,
    pub last: Breakdown,
    pub class: Class,
}

/// Plans the writes that wait in a row: returns the members to read and those to write.
pub(super) fn plan(members: usize, parity: usize, missing: Option<usize>, row: &Row) -> (u64, u64) {
    let (all, parity) = (u64::MAX >> (64 - members), 1u64 << parity);
    let missing = missing.map_or(0, |member| 1u64 << member);
    let written = row.full | row.partial;
    let modified = (written | parity) & !row.cached;
    let others = all & !parity & !row.full & !row.cached;
    let cost = |set: u64| (set & !missing).count_ones() + (set & missing).count_ones() * 2 * members as u32;
    let mut reads = if cost(modified) < cost(others) { modified } else { others };
    if reads & missing != 0 {
        reads = all & !missing & !row.cached;
    }
    (reads, (written | parity) & !missing)
}
