//! Synthetic traces that stand in for web-vm, homes and mail of FIU, which may not be passed on. They have the counts, sizes and shares that are published of
//! the real ones (docs/papers/data.md), and no byte of them.
//!
//! A trace is a pure function of (profile, seed). All days come from one state, so a single later day is made after those before it. Day 15 is POD's, a quiet
//! Saturday. The others are working days: each has a 21st part of the three weeks that CacheDedup publishes. They write more contents than POD's memory holds
//! entries. The short form of figures has days that are all as small as day 15: [`quiet_days`].
//!
//! Write generation: the size is drawn so that the day has the published mean. The write is redundant as a whole, redundant in parts, or new. A redundant write
//! takes the current content of an earlier write's place. It overwrites that place unchanged, or another one. In a write that is redundant in parts, new
//! contents replace runs of it. A new write goes to the journal, to the end of a file that grows, to a hot place, or anywhere. A read returns the last written
//! content of its blocks, or the initial content of the disk before day 1 ([`initial`]).

mod arrivals;
pub(crate) mod draws;
mod emit;
mod held;
mod image;
mod places;
mod profile;
mod select;
pub mod targets;

use std::ops::RangeInclusive;

use engine::Nanos;

pub use emit::{lines, write_files};
pub use image::{initial, similarity};
pub use profile::Profile;

use self::arrivals::{Burst, DAY};
use self::draws::{chance, geometric, zipf};
use self::held::Held;
use self::places::{Place, Places};
use self::profile::{JOURNAL, Shape, Sizes};
use super::record::content;
use super::{BLOCK, ContentId, Request, ZEROES};
use sim::random::{Random, mix};

/// Day that POD measures; those before it warm up.
pub const MEASURED_DAY: u32 = 15;

/// Blocks of a hot place.
const HOT_BLOCKS: u64 = 256;

/// Probability that a sequential write begins a new file. [D]
const NEW_FILE: f64 = 0.05;

/// Shares of reads of recently written blocks, and of a hot place; the rest go anywhere. [D]
const READS: (f64, f64) = (0.4, 0.4);

/// Share of redundant writes, and of reads of written blocks, that draw uniformly from the writes of all days before. The others draw a distance as in the
/// samples. One number serves all three traces. It exists for the slopes of POD's Fig. 3 on mail, which count as fitted. [D]
const FAR: f64 = 0.1;

/// Number of requests over which sizes are steered to their mean.
const STEERED_OVER: u64 = 100;

/// Makes the requests of days in a row, in the order of time, from the first of November 2008 as in the real traces. Days count from 1.
pub fn days(profile: Profile, seed: u64, days: RangeInclusive<u32>) -> Days {
    Days::new(profile, seed, days, 1, true)
}

/// Makes the requests of days in a row that are all as small as day 15.
pub fn quiet_days(profile: Profile, seed: u64, days: RangeInclusive<u32>) -> Days {
    Days::new(profile, seed, days, 1, false)
}

/// Returns one more than the last block that requests go to.
pub fn span(profile: Profile) -> u64 {
    profile.shape().span
}

/// Makes the requests of one day. The days before it are also made, and discarded.
pub fn day(profile: Profile, seed: u64, day: u32) -> Days {
    days(profile, seed, day..=day)
}

/// Makes requests.
pub struct Days {
    shape: &'static Shape,
    profile: Profile,
    seed: u64,
    random: Random,
    day: u32,
    last_day: u32,
    /// Scale: a day has one request in N of the real one's.
    one_in: u64,
    /// True if days before the measured one are working days.
    has_working_days: bool,
    bursts: std::vec::IntoIter<Burst>,
    /// Requests left of the burst; of the day; writes of the day.
    left: (u64, u64, u64),
    /// Blocks that writes and reads of the day still have to have, for their means.
    blocks_left: [f64; 2],
    at: Nanos,
    /// Time at which the records of the last request end.
    busy_until: Nanos,
    held: Held,
    /// Writes so far.
    writes: u32,
    places: Places,
    /// Number of new contents so far.
    fresh: u64,
    /// Position of the next journal write, and end of the file that grows.
    journal: u64,
    behind: u64,
    /// The mean and the weight of the mix of sizes, and the mean of the tail, for reads and for writes.
    means: [(f64, f64); 2],
}

impl Days {
    /// Creates the days. `one_in` makes short days, for tests: one request in N.
    fn new(profile: Profile, seed: u64, days: RangeInclusive<u32>, one_in: u64, has_working_days: bool) -> Days {
        let shape = profile.shape();
        let mut made = Days {
            shape,
            profile,
            seed,
            random: Random::new(mix(seed) ^ profile as u64),
            day: 0,
            last_day: *days.end(),
            one_in,
            has_working_days,
            bursts: Vec::new().into_iter(),
            left: (0, 0, 0),
            blocks_left: [0.0; 2],
            at: 0,
            busy_until: 0,
            held: Held::default(),
            writes: 0,
            places: Places::default(),
            fresh: 0,
            journal: 0,
            behind: JOURNAL,
            means: [means(&shape.read_sizes), means(&shape.write_sizes)],
        };
        made.skip_to(*days.start());
        made
    }

    /// Makes all requests before a day.
    fn skip_to(&mut self, day: u32) {
        while self.day + 1 < day && self.begin_day() {
            while self.request().is_some() {}
        }
    }

    /// Begins the next day, if there is one.
    fn begin_day(&mut self) -> bool {
        if self.day >= self.last_day {
            return false;
        }
        self.day += 1;
        let (requests, write_ratio) = match self.has_working_days && self.day != MEASURED_DAY {
            true => self.shape.working_day(),
            false => (self.shape.requests, self.shape.write_ratio),
        };
        let requests = (requests / self.one_in).max(1);
        let writes = (requests as f64 * write_ratio) as u64;
        self.left = (0, requests, writes);
        let mean = |sizes: &Sizes, count: u64| sizes.mean * count as f64;
        self.blocks_left = [mean(&self.shape.read_sizes, requests - writes), mean(&self.shape.write_sizes, writes)];
        self.bursts = arrivals::plan(self.shape, &mut self.random, requests).into_iter();
        self.at = u64::from(self.day - 1) * DAY;
        self.busy_until = self.busy_until.max(self.at);
        true
    }

    /// Makes the next request of the day.
    fn request(&mut self) -> Option<Request> {
        let (in_burst, requests, writes) = self.left;
        let pause = match in_burst {
            0 => {
                let burst = self.bursts.next()?;
                self.left.0 = burst.requests;
                burst.idle
            }
            _ => arrivals::next(&mut self.random),
        };
        self.at = self.busy_until + pause;
        let is_write = self.random.below(requests) < writes;
        self.left.0 -= 1;
        self.left.1 -= 1;
        self.left.2 -= u64::from(is_write);
        let blocks = self.size(is_write);
        let (block, contents) = if is_write { self.write(blocks) } else { self.read(blocks) };
        self.busy_until = self.at + u64::from(blocks) * self.shape.record_gap_us * 1000;
        Some(Request { at: self.at, writes: is_write, block, blocks, contents })
    }

    /// Draws the blocks of a request: from the mix, or from the tail as often as the mean still needs.
    fn size(&mut self, writes: bool) -> u32 {
        let sizes = if writes { &self.shape.write_sizes } else { &self.shape.read_sizes };
        let (of_mix, of_tail) = self.means[usize::from(writes)];
        let left = if writes { self.left.2 } else { self.left.1 - self.left.2 } + 1;
        let surplus =
            (self.blocks_left[usize::from(writes)] - sizes.mean * left as f64) / left.max(STEERED_OVER) as f64;
        let tail = (sizes.mean + surplus - of_mix) / (of_tail - of_mix);
        let blocks = if chance(&mut self.random, tail) {
            sizes.tail.draw(&mut self.random)
        } else {
            let all: f64 = sizes.mix.iter().map(|(_, weight)| weight).sum();
            let mut rest = draws::unit(&mut self.random) * all;
            let found = sizes.mix.iter().find(|(_, weight)| {
                rest -= weight;
                rest < 0.0
            });
            found.or(sizes.mix.last()).map_or(1, |&(blocks, _)| blocks)
        };
        self.blocks_left[usize::from(writes)] -= f64::from(blocks);
        blocks
    }

    fn write(&mut self, blocks: u32) -> (u64, Vec<ContentId>) {
        let size = match blocks {
            1 => 0,
            2..=8 => 1,
            _ => 2,
        };
        let kind = draws::unit(&mut self.random);
        let is_whole = kind < self.shape.whole[size];
        let in_parts = !is_whole && kind < self.shape.whole[size] + self.shape.parts[size];
        let is_whole_still = |place: Place| {
            let ends = [place.block, place.block + u64::from(blocks) - 1];
            ends.iter().all(|&end| self.held.get(end).is_some_and(|(_, write)| write == place.write))
        };
        let source = match is_whole || in_parts {
            true => self.places.draw(self.shape, FAR, &mut self.random, blocks, is_whole_still),
            false => None,
        };
        let (block, contents) = match source {
            None => {
                let contents = (0..blocks).map(|_| self.fresh()).collect();
                (self.somewhere(blocks), contents)
            }
            Some(source) => self.redundant(source, blocks, in_parts),
        };
        self.writes += 1;
        self.held.write(block, &contents, self.writes);
        if block >= JOURNAL {
            // Under a deduplicating scheme a partly changed write is fragmented. So it is no source for writes that are redundant as a whole.
            if !in_parts {
                self.places.add(Place { block, blocks, write: self.writes });
            }
        }
        (block, contents)
    }

    /// Makes a write of the content of a place, there or elsewhere; or elsewhere in parts, with new contents in between.
    fn redundant(&mut self, source: Place, blocks: u32, in_parts: bool) -> (u64, Vec<ContentId>) {
        let stays = !in_parts && chance(&mut self.random, self.shape.same);
        if !stays && blocks == 1 && chance(&mut self.random, self.shape.zeroes) {
            return (self.somewhere(blocks), vec![ZEROES]);
        }
        let mut contents = self.contents(source.block, blocks);
        if in_parts {
            self.replace_parts(&mut contents);
        }
        let block = if stays { source.block } else { self.somewhere(blocks) };
        (block, contents)
    }

    /// Replaces runs of contents by new ones, and leaves runs between them: at least one of each.
    fn replace_parts(&mut self, contents: &mut [ContentId]) {
        let mut at = 0;
        let mut is_known = chance(&mut self.random, 0.5);
        let most = contents.len().saturating_sub(1).max(1);
        while at < contents.len() {
            let mean = if is_known { self.shape.run } else { self.shape.gap };
            let end = contents.len().min(at + (geometric(&mut self.random, mean) as usize).min(most));
            if !is_known {
                for content in &mut contents[at..end] {
                    *content = self.fresh();
                }
            }
            at = end;
            is_known = !is_known;
        }
    }

    fn read(&mut self, blocks: u32) -> (u64, Vec<ContentId>) {
        let kind = draws::unit(&mut self.random);
        let recent =
            if kind < READS.0 { self.places.draw(self.shape, FAR, &mut self.random, 1, |_| true) } else { None };
        let block = match recent {
            Some(place) => place.block,
            None if kind < READS.0 + READS.1 => {
                let size = self.random.between(1, 4) as u32;
                self.hot_place(size)
            }
            None => self.anywhere(),
        };
        let block = self.within(block, blocks);
        (block, self.contents(block, blocks))
    }

    fn contents(&self, block: u64, blocks: u32) -> Vec<ContentId> {
        let mut contents = Vec::with_capacity(blocks as usize);
        self.held.range(block, blocks, |block, entry| {
            contents.push(entry.map_or_else(|| initial(self.profile, self.seed, block), |(content, _)| content));
        });
        contents
    }

    /// Makes a content that no block has.
    fn fresh(&mut self) -> ContentId {
        self.fresh += 1;
        content(mix(self.seed ^ mix(u64::MAX - self.fresh)))
    }

    /// Draws the place of a write that does not go where its content is.
    fn somewhere(&mut self, blocks: u32) -> u64 {
        let shape = self.shape;
        let kind = draws::unit(&mut self.random);
        if kind < shape.journal {
            if self.journal + u64::from(blocks) > JOURNAL {
                self.journal = 0;
            }
            self.journal += u64::from(blocks);
            return self.journal - u64::from(blocks);
        }
        let block = if kind < shape.journal + shape.sequential {
            if chance(&mut self.random, NEW_FILE) {
                self.behind = self.anywhere();
            }
            let block = self.within(self.behind, blocks);
            self.behind = block + u64::from(blocks);
            block
        } else if kind < shape.journal + shape.sequential + shape.hot {
            self.hot_place(blocks)
        } else {
            self.anywhere()
        };
        self.within(block, blocks)
    }

    /// Draws the beginning of a hot place. They are scattered; each has writes of one size, as files have that are written again.
    fn hot_place(&mut self, blocks: u32) -> u64 {
        let rank = zipf(&mut self.random, self.shape.hot_places);
        let all = (self.shape.span - JOURNAL) / HOT_BLOCKS;
        JOURNAL + mix(self.seed ^ mix(rank ^ u64::from(blocks) << 32)) % all * HOT_BLOCKS
    }

    fn anywhere(&mut self) -> u64 {
        JOURNAL + self.random.below(self.shape.span - JOURNAL)
    }

    /// Moves a place towards the front so that `blocks` blocks fit after it.
    fn within(&self, block: u64, blocks: u32) -> u64 {
        block.min(self.shape.span - u64::from(blocks))
    }
}

impl Iterator for Days {
    type Item = Request;

    fn next(&mut self) -> Option<Request> {
        loop {
            if let Some(request) = self.request() {
                return Some(request);
            }
            if !self.begin_day() {
                return None;
            }
        }
    }
}

/// Returns the mean of the mix, and of the tail.
fn means(sizes: &Sizes) -> (f64, f64) {
    let all: f64 = sizes.mix.iter().map(|(_, weight)| weight).sum();
    let sum: f64 = sizes.mix.iter().map(|&(blocks, weight)| f64::from(blocks) * weight).sum();
    (sum / all, sizes.tail.mean())
}
