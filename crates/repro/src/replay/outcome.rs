//! Results of a replay.

use engine::Nanos;
use hdrhistogram::Histogram;

use super::in_place::{Counts, InPlace};
use sim::disks::{Breakdown, Disk, Statistics};

/// Components of a response time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Parts {
    /// Waiting for the processor, and digests.
    pub processor: Nanos,
    /// Lookups of the index on the disk; of Onefold, of its tables there.
    pub lookup: Nanos,
    /// Journal records and syncs of Onefold.
    pub journal: Nanos,
    /// Wait for the submitting thread; for Onefold, wait for a request slot of the engine and for timers.
    pub waiting: Nanos,
    /// The disk, for the data: of the command that completed last.
    pub disk: Breakdown,
    /// Part of the disk time after the first piece of a split read. Reads split because blocks are redirected.
    pub splits: Nanos,
}

impl Parts {
    fn add(&mut self, other: &Parts) {
        self.processor += other.processor;
        self.lookup += other.lookup;
        self.splits += other.splits;
        self.journal += other.journal;
        self.waiting += other.waiting;
        self.disk.add(&other.disk);
    }
}

/// Response times of one kind of request.
#[derive(Clone, Debug)]
pub struct Times {
    /// Requests.
    pub requests: u64,
    /// The sum of their response times.
    pub sum: u128,
    /// The sums of their parts.
    pub parts: Parts,
    histogram: Histogram<u64>,
}

impl Times {
    fn new() -> Times {
        let histogram = Histogram::new_with_bounds(1, 86_400_000_000_000, 3).expect("the bounds are in order");
        Times { requests: 0, sum: 0, parts: Parts::default(), histogram }
    }

    fn add(&mut self, time: Nanos, parts: &Parts) {
        self.requests += 1;
        self.sum += u128::from(time);
        self.parts.add(parts);
        self.histogram.saturating_record(time.max(1));
    }

    fn merge(&mut self, other: &Times) {
        self.requests += other.requests;
        self.sum += other.sum;
        self.parts.add(&other.parts);
        self.histogram.add(&other.histogram).expect("all histograms have the same bounds");
    }

    /// Returns the mean response time in milliseconds.
    pub fn mean_ms(&self) -> f64 {
        self.sum as f64 / self.requests.max(1) as f64 / 1e6
    }

    /// Returns the response time that `percent` of the requests did not exceed, in milliseconds.
    pub fn percentile_ms(&self, percent: f64) -> f64 {
        self.histogram.value_at_quantile(percent / 100.0) as f64 / 1e6
    }

    /// Returns the mean of one part in milliseconds.
    pub fn part_ms(&self, part: impl Fn(&Parts) -> Nanos) -> f64 {
        part(&self.parts) as f64 / self.requests.max(1) as f64 / 1e6
    }
}

/// A stretch of the time series.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stretch {
    /// Requests that came.
    pub arrived: u64,
    /// Requests that were answered.
    pub answered: u64,
    /// The sum of their response times.
    pub sum: u128,
    /// Thousandths of the memory that were the index at its end.
    pub index_share: u32,
}

/// All results of a replay.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Response times of reads.
    pub reads: Times,
    /// Response times of writes.
    pub writes: Times,
    /// The length of a stretch.
    pub stretch: Nanos,
    /// The time series.
    pub stretches: Vec<Stretch>,
    /// Time of the last answer.
    pub end: Nanos,
    /// Requests in progress when another came: sum over all arrivals.
    pub queue_sum: u64,
    /// Maximum requests in flight at an arrival, including the new one.
    pub queue_most: u64,
    in_progress: u64,
    /// Counters of the scheme.
    pub counts: Counts,
    /// Blocks in use at the beginning.
    pub used_before: u64,
    /// Blocks in use at the end.
    pub used_blocks: u64,
    /// Blocks that were read from copies in scratch zones.
    pub from_copies: u64,
    /// Maximum bytes of NVRAM.
    pub nvram: u64,
    /// Counters of the disk.
    pub disk: Statistics,
    /// Time at which the rebuild of an array was complete, if there was one.
    pub rebuilt: Option<Nanos>,
}

impl Outcome {
    /// Creates an empty outcome; `stretch` is the length of a step of the time series.
    pub fn new(stretch: Nanos) -> Outcome {
        Outcome {
            reads: Times::new(),
            writes: Times::new(),
            stretch: stretch.max(1),
            stretches: Vec::new(),
            end: 0,
            queue_sum: 0,
            queue_most: 0,
            in_progress: 0,
            counts: Counts::default(),
            used_before: 0,
            used_blocks: 0,
            from_copies: 0,
            nvram: 0,
            disk: Statistics::default(),
            rebuilt: None,
        }
    }

    fn stretch_at(&mut self, at: Nanos) -> &mut Stretch {
        // A slow disk may take days for a day.
        let index = ((at / self.stretch) as usize).min(100_000);
        if index >= self.stretches.len() {
            self.stretches.resize(index + 1, Stretch::default());
        }
        &mut self.stretches[index]
    }

    /// Counts the arrival of a request, and notes the index share of that time.
    pub fn arrived(&mut self, at: Nanos, index_share: u32) {
        self.queue_sum += self.in_progress;
        self.in_progress += 1;
        self.queue_most = self.queue_most.max(self.in_progress);
        let stretch = self.stretch_at(at);
        stretch.arrived += 1;
        stretch.index_share = index_share;
    }

    /// Counts the answer of a request that arrived at `since`; the time series has it at the arrival.
    pub fn answered(&mut self, at: Nanos, since: Nanos, writes: bool, parts: Parts) {
        self.in_progress -= 1;
        let time = at - since;
        if writes { &mut self.writes } else { &mut self.reads }.add(time, &parts);
        // The arrival time selects the stretch, so a burst and its response times are in the same one.
        let stretch = self.stretch_at(since);
        stretch.answered += 1;
        stretch.sum += u128::from(time);
    }

    /// Takes the final numbers of scheme and disk, after all requests are answered.
    pub fn end(&mut self, at: Nanos, scheme: &InPlace, disk: &Disk) {
        self.end = at;
        self.counts = scheme.counts;
        self.used_blocks = scheme.used_blocks();
        self.nvram = scheme.most_nvram();
        self.disk = disk.statistics();
        self.rebuilt = disk.rebuilt();
    }

    /// Merges several rebuilds: the requests of all, and the mean time of a rebuild. Returns nothing for an empty slice.
    pub fn of_rebuilds(all: &[Outcome]) -> Option<Outcome> {
        let (first, others) = all.split_first()?;
        let mut sum = first.clone();
        for other in others {
            sum.reads.merge(&other.reads);
            sum.writes.merge(&other.writes);
        }
        let times = all.iter().map(|outcome| outcome.rebuilt).collect::<Option<Vec<Nanos>>>();
        sum.rebuilt = times.map(|times| times.iter().sum::<Nanos>() / all.len() as Nanos);
        sum.stretches.clear();
        Some(sum)
    }

    /// Returns the growth of the blocks in use from beginning to end; below 0 if there are fewer.
    pub fn taken_blocks(&self) -> i64 {
        self.used_blocks as i64 - self.used_before as i64
    }

    /// Returns the number of requests, reads and writes.
    pub fn requests(&self) -> u64 {
        self.reads.requests + self.writes.requests
    }

    /// Returns the mean response time of all requests in milliseconds.
    pub fn mean_ms(&self) -> f64 {
        (self.reads.sum + self.writes.sum) as f64 / self.requests().max(1) as f64 / 1e6
    }

    /// Returns the mean number of requests in flight when another comes.
    pub fn mean_queue(&self) -> f64 {
        self.queue_sum as f64 / self.requests().max(1) as f64
    }

    /// Returns the share of write requests that needed no write, in percent.
    pub fn removed_percent(&self) -> f64 {
        100.0 * self.counts.removed_requests as f64 / self.counts.write_requests.max(1) as f64
    }

    /// Returns the share of read blocks that the read cache had, in percent.
    pub fn hit_percent(&self) -> f64 {
        100.0 * self.counts.read_hits as f64 / self.counts.read_blocks.max(1) as f64
    }
}
