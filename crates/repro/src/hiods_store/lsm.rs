//! Model of LevelDB's tables (an LSM tree): the tables that a lookup searches, the merges that a change causes, and the writers' wait for them.
//!
//! A database has a table in memory, tables of level 0 that overlap, and levels of 2 MiB tables that do not, each ten times as large as the one above. The
//! rules are those of LevelDB's own implementation notes, with its default sizes: 4 MiB in memory and 10 MiB in level 1. Four tables in level 0 begin a merge.
//! With eight each write waits for a millisecond, with twelve until there are fewer. There are no Bloom filters by default, so a lookup of a missing key
//! searches every level. All databases of a process share one thread that merges.
//!
//! Entries are numbers below a bound. Their order in the tables is that of their keys' bytes: see [`Order`].

use std::collections::HashSet;
use std::ops::Range;

use engine::Nanos;

/// Number of an entry.
pub type Key = u32;

/// Bytes of the table in memory, of a table, and of level 1.
const IN_MEMORY: u64 = 4 << 20;
const TABLE: u64 = 2 << 20;
const LEVEL_1: u64 = 10 << 20;
const TIMES: u64 = 10;
const LEVELS: usize = 7;
/// Tables of level 0 that begin a merge, that slow writers down, that stop them.
const MERGES: usize = 4;
const SLOWS: usize = 8;
const STOPS: usize = 12;
const SLOW: Nanos = 1_000_000;

/// Order of keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// Digests: chance.
    Digest,
    /// Addresses in machine byte order, least significant byte first. [D]: the prototype is in C, and LevelDB compares bytes. So adjacent addresses lie apart,
    /// and table 14 has equal values for sequential and uniform writes.
    LittleEndian,
}

/// Odd, so a bijection of 32 bits; and its inverse.
const SPREAD: u32 = 0x9e37_79b1;
const GATHER: u32 = inverse(SPREAD);

const fn inverse(odd: u32) -> u32 {
    let (mut found, mut step) = (odd, 0);
    while step < 5 {
        found = found.wrapping_mul(2u32.wrapping_sub(odd.wrapping_mul(found)));
        step += 1;
    }
    found
}

impl Order {
    fn place(self, key: Key) -> u32 {
        match self {
            Order::Digest => key.wrapping_mul(SPREAD),
            Order::LittleEndian => key.swap_bytes(),
        }
    }

    fn key(self, place: u32) -> Key {
        match self {
            Order::Digest => place.wrapping_mul(GATHER),
            Order::LittleEndian => place.swap_bytes(),
        }
    }
}

/// Place of the newest version of an entry: nowhere, in the table in memory, in a level from 1 on, or in the table of level 0 with a number.
const ABSENT: u32 = 0;
const MEMORY: u32 = 100;
const LEVEL_0: u32 = 1000;

/// A sorted table, of places in the order.
type Table = Vec<u32>;

/// A merge in progress.
#[derive(Clone, Debug)]
enum Merge {
    /// The full table in memory becomes one of level 0.
    Flush,
    /// Merge of all of level 0, or of one table of a level, with the overlapping tables of the next level.
    Level(usize),
}

/// A database.
#[derive(Clone, Debug)]
pub struct Lsm {
    order: Order,
    in_memory: u64,
    table: usize,
    limits: [u64; LEVELS],
    /// Changes since the last flush.
    changes: Table,
    /// Changes that are being flushed.
    full: Option<Table>,
    /// Level 0, the oldest first, with its numbers.
    newest: Vec<(u32, Table)>,
    /// Levels from 1 on, each in order.
    levels: Vec<Vec<Table>>,
    /// Place after which the next merge of each level starts.
    merged_up_to: [u32; LEVELS],
    next_number: u32,
    found_in: Vec<u32>,
    /// Entries that clients put, and entries that merges wrote.
    pub put: u64,
    /// Entries that flushes and merges wrote.
    pub written: u64,
}

impl Lsm {
    /// Creates an empty database of keys below `bound`, with entries of `entry_bytes` bytes, `scale` times smaller than LevelDB's.
    pub fn new(order: Order, bound: u64, entry_bytes: u64, scale: u64) -> Lsm {
        let entries = |bytes: u64| (bytes / scale / entry_bytes).max(4);
        let limit = |level: usize| entries(LEVEL_1) * TIMES.pow(level.saturating_sub(1) as u32);
        Lsm {
            order,
            in_memory: entries(IN_MEMORY),
            table: entries(TABLE) as usize,
            limits: std::array::from_fn(limit),
            changes: Vec::new(),
            full: None,
            newest: Vec::new(),
            levels: vec![Vec::new(); LEVELS],
            merged_up_to: [0; LEVELS],
            next_number: LEVEL_0,
            found_in: vec![ABSENT; bound as usize],
            put: 0,
            written: 0,
        }
    }

    /// Counts the tables that a lookup of a key searches, the one in memory among them.
    pub fn searched(&self, key: Key) -> u64 {
        let (place, found) = (self.order.place(key), self.found_in[key as usize]);
        let mut searched = 1;
        if found == MEMORY {
            return searched;
        }
        for (number, table) in self.newest.iter().rev() {
            searched += u64::from(covers(table, place));
            if *number == found {
                return searched;
            }
        }
        for (level, tables) in self.levels.iter().enumerate().skip(1) {
            let at = tables.partition_point(|table| table.last().is_some_and(|last| *last < place));
            searched += u64::from(tables.get(at).is_some_and(|table| covers(table, place)));
            if found == level as u32 {
                return searched;
            }
        }
        searched
    }

    fn add(&mut self, key: Key) {
        self.put += 1;
        self.changes.push(self.order.place(key));
        self.found_in[key as usize] = MEMORY;
    }

    fn has_space(&self) -> bool {
        (self.changes.len() as u64) < self.in_memory
    }

    fn next_merge(&self) -> Option<Merge> {
        if self.full.is_some() {
            return Some(Merge::Flush);
        }
        if self.newest.len() >= MERGES {
            return Some(Merge::Level(0));
        }
        let size = |level: &usize| self.levels[*level].iter().map(|table| table.len() as u64).sum::<u64>();
        (1..LEVELS - 1).find(|level| size(level) > self.limits[*level]).map(Merge::Level)
    }

    /// Returns the entries that a merge reads; 0 if it only moves a table.
    fn reads(&self, merge: &Merge) -> u64 {
        match merge {
            Merge::Flush => self.full.as_ref().map_or(0, |table| table.len() as u64),
            Merge::Level(0) => {
                let tables = || self.newest.iter().map(|(_, table)| table);
                let first = tables().filter_map(|table| table.first()).min();
                let last = tables().filter_map(|table| table.last()).max();
                let above = tables().map(|table| table.len() as u64).sum();
                self.reads_into(1, above, first, last)
            }
            Merge::Level(level) => {
                let above = &self.levels[*level][self.chosen(*level)];
                self.reads_into(level + 1, above.len() as u64, above.first(), above.last())
            }
        }
    }

    fn reads_into(&self, level: usize, above: u64, first: Option<&u32>, last: Option<&u32>) -> u64 {
        let (Some(&first), Some(&last)) = (first, last) else { return 0 };
        let overlapping = self.overlapping(level, first, last);
        if overlapping.is_empty() && above <= self.table as u64 {
            return 0;
        }
        above + self.levels[level][overlapping].iter().map(|table| table.len() as u64).sum::<u64>()
    }

    /// Returns the index of the table of a level that is merged next, round robin.
    fn chosen(&self, level: usize) -> usize {
        let tables = &self.levels[level];
        let behind = self.merged_up_to[level];
        let at = tables.partition_point(|table| table.first().is_some_and(|first| *first <= behind));
        if at < tables.len() { at } else { 0 }
    }

    fn overlapping(&self, level: usize, first: u32, last: u32) -> Range<usize> {
        let tables = &self.levels[level];
        let from = tables.partition_point(|table| table.last().is_some_and(|end| *end < first));
        let end = tables.partition_point(|table| table.first().is_some_and(|begin| *begin <= last));
        from..end.max(from)
    }

    /// Ends a merge: the tables change.
    fn merge(&mut self, merge: &Merge) {
        match merge {
            Merge::Flush => {
                let mut table = self.full.take().unwrap_or_default();
                table.sort_unstable();
                table.dedup();
                self.written += table.len() as u64;
                let number = self.next_number;
                self.next_number += 1;
                // Entries put again in the meantime are newer in memory.
                let newer: HashSet<u32> = self.changes.iter().copied().collect();
                for place in table.iter().filter(|place| !newer.contains(place)) {
                    self.found_in[self.order.key(*place) as usize] = number;
                }
                self.newest.push((number, table));
            }
            Merge::Level(0) => {
                let tables = std::mem::take(&mut self.newest);
                let mut above: Table = tables.into_iter().flat_map(|(_, table)| table).collect();
                above.sort_unstable();
                above.dedup();
                self.merge_into(1, above, |found| found >= LEVEL_0);
            }
            Merge::Level(level) => {
                let chosen = self.chosen(*level);
                let above = self.levels[*level].remove(chosen);
                self.merged_up_to[*level] = above.last().copied().unwrap_or(0);
                let from = *level as u32;
                self.merge_into(level + 1, above, |found| found == from);
            }
        }
    }

    /// Merges sorted entries, whose newest versions `are_here`, with the overlapping tables of a level.
    fn merge_into(&mut self, level: usize, above: Table, are_here: impl Fn(u32) -> bool) {
        let (Some(&first), Some(&last)) = (above.first(), above.last()) else { return };
        for place in &above {
            let found = &mut self.found_in[self.order.key(*place) as usize];
            if are_here(*found) {
                *found = level as u32;
            }
        }
        let overlapping = self.overlapping(level, first, last);
        let tables = &mut self.levels[level];
        let from = overlapping.start;
        if overlapping.is_empty() && above.len() <= self.table {
            // Nothing overlaps: the table is moved as it is.
            tables.insert(from, above);
            return;
        }
        let below: Table = tables.splice(overlapping, []).flatten().collect();
        let merged = merged(&above, &below);
        self.written += merged.len() as u64;
        tables.splice(from..from, merged.chunks(self.table).map(<[u32]>::to_vec));
    }
}

fn covers(table: &[u32], place: u32) -> bool {
    table.first().is_some_and(|first| *first <= place) && table.last().is_some_and(|last| place <= *last)
}

/// Merges two sorted tables, each entry once.
fn merged(above: &[u32], below: &[u32]) -> Table {
    let mut merged: Table = Vec::with_capacity(above.len() + below.len());
    let (mut one, mut other) = (above, below);
    while let (Some(&first), Some(&second)) = (one.first(), other.first()) {
        let least = if first <= second {
            one = &one[1..];
            first
        } else {
            other = &other[1..];
            second
        };
        if merged.last() != Some(&least) {
            merged.push(least);
        }
    }
    for &rest in one.iter().chain(other) {
        if merged.last() != Some(&rest) {
            merged.push(rest);
        }
    }
    merged
}

/// The databases of a process, and the thread that merges for all of them.
#[derive(Clone, Debug)]
pub struct Databases {
    databases: Vec<Lsm>,
    /// Time of an entry of a merge.
    entry: Nanos,
    /// The merge in progress: of which database, and when it ends.
    in_progress: Option<(usize, Merge, Nanos)>,
    /// The one that is looked at first next.
    turn: usize,
    /// Time that writers waited for merges.
    pub waited: Nanos,
    /// Time that the thread worked.
    pub worked: Nanos,
}

impl Databases {
    /// Creates databases whose merges take `entry` of time for each entry read.
    pub fn new(databases: Vec<Lsm>, entry: Nanos) -> Databases {
        Databases { databases, entry, in_progress: None, turn: 0, waited: 0, worked: 0 }
    }

    /// Returns one of the databases.
    pub fn of(&self, database: usize) -> &Lsm {
        &self.databases[database]
    }

    /// Puts an entry; returns the time at which the writer continues.
    pub fn put(&mut self, database: usize, key: Key, now: Nanos) -> Nanos {
        let begun = now;
        let mut now = now;
        self.catch_up(now);
        if self.databases[database].newest.len() >= SLOWS {
            now += SLOW;
            self.catch_up(now);
        }
        while !self.databases[database].has_space() {
            let lsm = &mut self.databases[database];
            if lsm.full.is_none() && lsm.newest.len() < STOPS {
                lsm.full = Some(std::mem::take(&mut lsm.changes));
            } else if let Some((_, _, end)) = &self.in_progress {
                now = now.max(*end);
            }
            self.catch_up(now);
        }
        self.databases[database].add(key);
        self.waited += now - begun;
        now
    }

    /// Completes the merges that have ended by now, and begins the next one.
    fn catch_up(&mut self, now: Nanos) {
        loop {
            let free = match self.in_progress.take() {
                Some(in_progress) if in_progress.2 > now => {
                    self.in_progress = Some(in_progress);
                    return;
                }
                Some((database, merge, end)) => {
                    self.databases[database].merge(&merge);
                    end
                }
                None => now,
            };
            let count = self.databases.len();
            let next = (0..count).map(|step| (self.turn + step) % count);
            let Some((database, merge)) = next.filter_map(|at| Some((at, self.databases[at].next_merge()?))).next()
            else {
                return;
            };
            self.turn = (database + 1) % count;
            let read = self.databases[database].reads(&merge);
            self.worked += read * self.entry;
            self.in_progress = Some((database, merge, free + read * self.entry));
        }
    }

    /// Ends all that there is to merge.
    pub fn settle(&mut self) {
        let mut now = 0;
        loop {
            self.catch_up(now);
            let Some((_, _, end)) = &self.in_progress else { return };
            now = *end;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sim::random::Random;

    fn filled(order: Order, keys: impl Iterator<Item = u32>) -> Databases {
        let mut databases = Databases::new(vec![Lsm::new(order, 1 << 16, 50, 256)], 500);
        let mut now = 0;
        for key in keys {
            now = databases.put(0, key, now + 10_000);
        }
        databases
    }

    #[test]
    fn each_order_is_a_bijection() {
        for order in [Order::Digest, Order::LittleEndian] {
            assert!((0..70_000).step_by(7).all(|key| order.key(order.place(key)) == key));
        }
        assert!(Order::LittleEndian.place(256) < Order::LittleEndian.place(1));
    }

    /// Levels keep their order and do not overlap; the newest version of each key is where it is looked for.
    #[test]
    fn tables_keep_their_order_and_every_key_is_found_where_it_is() {
        let mut random = Random::new(3);
        let databases = filled(Order::Digest, (0..60_000).map(|_| random.below(1 << 16) as u32));
        let lsm = databases.of(0);
        for tables in &lsm.levels[1..] {
            let all: Vec<u32> = tables.iter().flatten().copied().collect();
            assert!(all.windows(2).all(|pair| pair[0] < pair[1]));
        }
        assert!(lsm.levels[2].len() > 3, "{:?}", lsm.levels.iter().map(Vec::len).collect::<Vec<_>>());
        for key in 0..1 << 16 {
            let place = lsm.order.place(key);
            let is_in = |table: &Table| table.binary_search(&place).is_ok();
            let is_in_any = |table: &Table| table.contains(&place);
            match lsm.found_in[key as usize] {
                ABSENT => assert!(lsm.levels.iter().flatten().all(|table| !is_in(table))),
                MEMORY => assert!(lsm.changes.contains(&place) || lsm.full.as_ref().is_some_and(is_in_any)),
                number if number >= LEVEL_0 => {
                    assert!(lsm.newest.iter().any(|(of, table)| *of == number && is_in(table)), "{key}");
                }
                level => assert!(lsm.levels[level as usize].iter().any(is_in), "{key}: level {level}"),
            }
        }
    }

    #[test]
    fn keys_in_order_are_moved_and_scattered_ones_are_merged_again_and_again() {
        let ascending = filled(Order::LittleEndian, (0u32..40_000).map(u32::swap_bytes).filter(|key| *key < 1 << 16));
        let mut random = Random::new(5);
        let scattered = filled(Order::Digest, (0..40_000).map(|_| random.below(1 << 16) as u32));
        let times = |databases: &Databases| databases.of(0).written as f64 / databases.of(0).put.max(1) as f64;
        assert!(times(&scattered) > 3.0 && times(&scattered) < 40.0, "{}", times(&scattered));
        assert!(times(&ascending) < times(&scattered), "{} {}", times(&ascending), times(&scattered));
    }

    #[test]
    fn a_look_for_what_is_not_there_searches_more_than_one_for_what_was_just_put() {
        let databases = filled(Order::Digest, (0..30_000).map(|key| key * 2));
        let lsm = databases.of(0);
        assert!(lsm.searched(1) >= 3 && lsm.searched(59_998) == 1, "{} {}", lsm.searched(1), lsm.searched(59_998));
    }

    #[test]
    fn writers_wait_when_merges_are_slower_than_they() {
        let run = |entry| {
            let mut random = Random::new(5);
            let mut databases = Databases::new(vec![Lsm::new(Order::Digest, 1 << 16, 50, 256)], entry);
            let mut now = 0;
            for _ in 0..50_000 {
                now = databases.put(0, random.below(1 << 16) as u32, now + 1_000);
            }
            databases.waited
        };
        assert_eq!(run(1), 0);
        assert!(run(20_000) > 1_000_000_000);
    }
}
