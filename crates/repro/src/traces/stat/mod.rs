//! Statistics of a trace: the figures that the papers print for their traces.
//!
//! Memory grows with the distinct blocks and the distinct contents of the trace: the modelled index is unbounded.

pub mod report;
pub mod spread;

use engine::Nanos;
use serde::Serialize;

use self::spread::Spread;
use super::hashing::Table;
use super::{BLOCK, ContentId, Request, Tally, ZEROES};

/// A burst is over when nothing came for longer than this.
const IDLE: Nanos = 100_000_000;

/// Width of the bins in which requests are counted for the index of dispersion.
const BIN: Nanos = 1_000_000_000;

/// Classes of writes by blocks: up to 1, 2, 4, 8 of them, and more. POD's figure 1 has 4, 8, 16, 32 KB and 64 KB or more.
const CLASSES: [(u32, &str); 5] = [(1, "1"), (2, "2"), (4, "3-4"), (8, "5-8"), (u32::MAX, "9+")];

/// Adds requests up.
#[derive(Default)]
pub struct Stat {
    requests: [u64; 2],
    blocks: [u64; 2],
    /// Written blocks whose contents the trace gives.
    known: u64,
    duplicates: u64,
    unchanged: u64,
    zeroes: u64,
    classes: [Class; CLASSES.len()],
    /// Known state of every block that was touched.
    places: Table<Place>,
    /// Every content; whether it was written, or only read.
    contents: Table<bool>,
    span: Option<(u64, u64)>,
    first: Nanos,
    last: Option<Nanos>,
    gaps: Spread,
    /// Requests of the current burst.
    burst: u64,
    bursts: Spread,
    idle: Spread,
    /// Current bin and its number of requests; the field below has the sums of earlier bins.
    bin: (u64, u64),
    bins: (u128, u128),
}

#[derive(Clone, Copy, Default)]
struct Place {
    /// Content that was last written to it, if the trace said it.
    holds: Option<ContentId>,
    is_written: bool,
    is_read: bool,
}

/// Writes of a class of sizes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Class {
    /// Range of sizes, in blocks.
    pub blocks: &'static str,
    /// Writes whose contents are known.
    pub writes: u64,
    /// ... of which all blocks had been written before, somewhere,
    pub fully: u64,
    /// ... or some.
    pub partly: u64,
}

/// Statistics of a trace. Shares are of 1.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[allow(missing_docs, reason = "names say it, and the report that is printed explains them")]
pub struct Figures {
    pub requests: u64,
    pub reads: u64,
    pub writes: u64,
    pub write_ratio: f64,
    pub mean_kib: f64,
    pub mean_read_kib: f64,
    pub mean_write_kib: f64,
    pub duration_s: f64,
    pub read_blocks: u64,
    pub write_blocks: u64,
    /// Written blocks with known contents: the base of the shares below.
    pub known_write_blocks: u64,
    pub zero_write_blocks: u64,
    /// Blocks whose content had been written before, anywhere: I/O redundancy.
    pub duplicate_blocks: u64,
    pub duplicate_share: f64,
    /// Duplicate blocks that already hold this content.
    pub unchanged_blocks: u64,
    pub unchanged_share: f64,
    /// The others: capacity redundancy.
    pub elsewhere_share: f64,
    pub by_size: Vec<Class>,
    pub distinct_blocks: u64,
    pub distinct_blocks_read: u64,
    pub distinct_blocks_written: u64,
    pub distinct_contents: u64,
    pub distinct_contents_written: u64,
    pub first_block: u64,
    pub last_block: u64,
    pub span_gib: f64,
    pub read_working_set_mib: f64,
    pub bursts: Bursts,
    /// Statistics of the files' lines; none of requests that come from elsewhere.
    pub lines: Option<Lines>,
}

/// Statistics of arrivals.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[allow(missing_docs, reason = "names say it, and the report that is printed explains them")]
pub struct Bursts {
    pub inter_arrival_cv: f64,
    pub dispersion_1s: f64,
    pub bursts: u64,
    pub requests_p50: u64,
    pub requests_p90: u64,
    pub requests_max: u64,
    pub idle_s_p50: f64,
    pub idle_s_p90: f64,
}

/// Statistics of the lines of files.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[allow(missing_docs, reason = "names say it, and the report that is printed explains them")]
pub struct Lines {
    pub lines: u64,
    pub records: u64,
    pub mean_record_kib: f64,
    pub other_lines: u64,
    pub bad_lines: u64,
    pub moved: u64,
    pub unaligned_contents: u64,
    pub record_inter_arrival_cv: f64,
    pub joined_gap_us_p50: f64,
}

impl Stat {
    /// Adds a request; they come in the order of time.
    pub fn add(&mut self, request: &Request) {
        self.time(request.at);
        let op = usize::from(request.writes);
        self.requests[op] += 1;
        self.blocks[op] += u64::from(request.blocks);
        let end = request.block + u64::from(request.blocks);
        let last = end.saturating_sub(1);
        self.span =
            Some(self.span.map_or((request.block, last), |(low, high)| (low.min(request.block), high.max(last))));
        let mut redundant = 0;
        for (index, block) in (request.block..end).enumerate() {
            redundant += u32::from(self.block(block, request.writes, request.contents.get(index).copied()));
        }
        if request.writes && !request.contents.is_empty() {
            let class = CLASSES.iter().position(|&(most, _)| request.blocks <= most).unwrap_or(CLASSES.len() - 1);
            let class = &mut self.classes[class];
            class.writes += 1;
            class.fully += u64::from(redundant == request.blocks);
            class.partly += u64::from(0 < redundant && redundant < request.blocks);
        }
    }

    /// Restarts the statistics with the current block contents and written contents. Later requests are counted as if an index were warm.
    pub fn warmed(mut self) -> Stat {
        self.places.values_mut().for_each(|place| (place.is_written, place.is_read) = (false, false));
        Stat { places: self.places, contents: self.contents, ..Stat::default() }
    }

    /// Counts the contents that were read or written so far, including those before [`Stat::warmed`].
    pub fn distinct_contents(&self) -> u64 {
        self.contents.len() as u64
    }

    /// Counts one block of a request; returns true if it is written, and its content was before.
    fn block(&mut self, block: u64, writes: bool, content: Option<ContentId>) -> bool {
        let place = self.places.entry(block).or_default();
        if !writes {
            place.is_read = true;
            if let Some(content) = content {
                self.contents.entry(content).or_insert(false);
            }
            return false;
        }
        place.is_written = true;
        let before = std::mem::replace(&mut place.holds, content);
        let Some(content) = content else {
            return false;
        };
        self.known += 1;
        self.zeroes += u64::from(content == ZEROES);
        if self.contents.insert(content, true) != Some(true) {
            return false;
        }
        self.duplicates += 1;
        self.unchanged += u64::from(before == Some(content));
        true
    }

    fn time(&mut self, at: Nanos) {
        match self.last {
            None => self.first = at,
            Some(last) => {
                let gap = at.saturating_sub(last);
                self.gaps.add(gap);
                if gap > IDLE {
                    self.bursts.add(std::mem::take(&mut self.burst));
                    self.idle.add(gap);
                }
            }
        }
        self.last = Some(at);
        self.burst += 1;
        let bin = at.saturating_sub(self.first) / BIN;
        if bin != self.bin.0 {
            self.end_bin();
            self.bin = (bin, 0);
        }
        self.bin.1 += 1;
    }

    fn end_bin(&mut self) {
        let count = u128::from(self.bin.1);
        self.bins.0 += count;
        self.bins.1 += count * count;
    }

    /// Computes the statistics, including those of the lines if the requests came from files.
    pub fn finish(mut self, tally: Option<&Tally>) -> Figures {
        let bursts = self.end();
        let [reads, writes] = self.requests;
        let [read_blocks, write_blocks] = self.blocks;
        let kib = |blocks: u64| blocks as f64 * (BLOCK / 1024) as f64;
        let places = |is: fn(&Place) -> bool| self.places.values().filter(|place| is(place)).count() as u64;
        let distinct_blocks_read = places(|place| place.is_read);
        let (first_block, last_block) = self.span.unwrap_or((0, 0));
        let span = if self.span.is_some() { last_block - first_block + 1 } else { 0 };
        let elsewhere = self.duplicates - self.unchanged;
        let classes = self.classes.iter().zip(CLASSES);
        Figures {
            requests: reads + writes,
            reads,
            writes,
            write_ratio: share(writes, reads + writes),
            mean_kib: ratio(kib(read_blocks + write_blocks), reads + writes),
            mean_read_kib: ratio(kib(read_blocks), reads),
            mean_write_kib: ratio(kib(write_blocks), writes),
            duration_s: self.last.map_or(0, |last| last - self.first) as f64 / 1e9,
            read_blocks,
            write_blocks,
            known_write_blocks: self.known,
            zero_write_blocks: self.zeroes,
            duplicate_blocks: self.duplicates,
            duplicate_share: share(self.duplicates, self.known),
            unchanged_blocks: self.unchanged,
            unchanged_share: share(self.unchanged, self.known),
            elsewhere_share: share(elsewhere, self.known),
            by_size: classes.map(|(&class, (_, blocks))| Class { blocks, ..class }).collect(),
            distinct_blocks: places(|place| place.is_read || place.is_written),
            distinct_blocks_read,
            distinct_blocks_written: places(|place| place.is_written),
            distinct_contents: self.contents.len() as u64,
            distinct_contents_written: self.contents.values().filter(|&&is_written| is_written).count() as u64,
            first_block,
            last_block,
            span_gib: kib(span) / (1 << 20) as f64,
            read_working_set_mib: kib(distinct_blocks_read) / 1024.0,
            bursts,
            lines: tally.map(lines),
        }
    }

    fn end(&mut self) -> Bursts {
        if self.burst > 0 {
            self.bursts.add(self.burst);
        }
        self.end_bin();
        let bins = (self.bin.0 + 1) as f64;
        let (sum, squares) = (self.bins.0 as f64, self.bins.1 as f64);
        let mean = sum / bins;
        let dispersion_1s = if sum == 0.0 { 0.0 } else { (squares / bins - mean * mean).max(0.0) / mean };
        Bursts {
            inter_arrival_cv: self.gaps.variation(),
            dispersion_1s,
            bursts: self.bursts.count(),
            requests_p50: self.bursts.percentile(50.0),
            requests_p90: self.bursts.percentile(90.0),
            requests_max: self.bursts.most(),
            idle_s_p50: self.idle.percentile(50.0) as f64 / 1e9,
            idle_s_p90: self.idle.percentile(90.0) as f64 / 1e9,
        }
    }
}

fn lines(tally: &Tally) -> Lines {
    Lines {
        lines: tally.lines,
        records: tally.records,
        mean_record_kib: ratio(tally.bytes as f64 / 1024.0, tally.records),
        other_lines: tally.other_lines,
        bad_lines: tally.bad_lines,
        moved: tally.moved,
        unaligned_contents: tally.unaligned_contents,
        record_inter_arrival_cv: tally.gaps.variation(),
        joined_gap_us_p50: tally.joined_gaps.percentile(50.0) as f64 / 1e3,
    }
}

fn share(part: u64, whole: u64) -> f64 {
    ratio(part as f64, whole)
}

fn ratio(part: f64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part / whole as f64 }
}
