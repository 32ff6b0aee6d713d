//! Request generator of the workers of a load: worker count, addresses, read share, rate and end. It is pure: time is an argument.

use std::ops::Range;

use engine::Nanos;

use super::addresses::{Addresses, Pattern};
use super::distribution::Distribution;
use sim::random::{Random, mix};

/// Pause of a worker that is ahead of its rate (DEDISbench's 4 ms).
pub const LOOK_AGAIN: Nanos = 4_000_000;
/// First number of the unique contents, which are written once in a run; lower numbers are the distribution's.
const UNIQUE: u64 = 1 << 62;

/// A content: 0 is a block that was never written.
pub type ContentId = u64;

/// A load.
#[derive(Clone, Debug)]
pub struct Load {
    /// Pattern of the addresses.
    pub pattern: Pattern,
    /// Blocks of a request.
    pub request_blocks: u64,
    /// Percentage of requests that are reads.
    pub reads_percent: u32,
    /// Workers, each with a region of the volume of its own.
    pub workers: u64,
    /// Requests a second of all workers together; none: as many as are answered.
    pub rate: Option<u64>,
    /// Condition that ends the load.
    pub stop: Stop,
    /// Seed of the random numbers.
    pub seed: u64,
}

/// Condition that ends a load.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stop {
    /// Total number of requests of all workers.
    Requests(u64),
    /// Duration.
    After(Nanos),
}

/// One request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request {
    /// Else a read.
    pub writes: bool,
    /// Its first block.
    pub first: u64,
    /// Contents to write, one for each block; empty for a read.
    pub contents: Vec<ContentId>,
}

/// Time of a worker's next request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Turn {
    /// Immediate request.
    Now,
    /// Earliest time of the request.
    At(Nanos),
    /// Never again.
    Ended,
}

impl Load {
    /// Checks that the load fits on a volume of `volume_blocks` blocks, with at least one worker and one block a request.
    pub fn check(&self, volume_blocks: u64) -> Result<(), String> {
        if self.workers == 0 || self.request_blocks == 0 {
            return Err("at least one worker and one block a request".into());
        }
        if self.places(volume_blocks) == 0 {
            return Err(format!(
                "{volume_blocks} blocks are too few for {} workers with requests of {} blocks",
                self.workers, self.request_blocks
            ));
        }
        Ok(())
    }

    /// Returns the number of places of one worker: its requests begin there, one request's blocks apart.
    fn places(&self, volume_blocks: u64) -> u64 {
        volume_blocks / self.workers / self.request_blocks
    }

    /// Creates the streams of the workers on a volume of `volume_blocks` blocks, which [`Load::check`] has allowed.
    pub fn streams(&self, volume_blocks: u64) -> Vec<Stream> {
        (0..self.workers).map(|worker| Stream::new(self, worker, self.places(volume_blocks))).collect()
    }

    /// Returns a load with the same regions that writes everything once, in order: before reads are measured.
    pub fn filling(&self, volume_blocks: u64) -> Load {
        let requests = self.places(volume_blocks) * self.workers;
        let stop = Stop::Requests(requests);
        Load { pattern: Pattern::Sequential, reads_percent: 0, rate: None, stop, seed: mix(self.seed), ..self.clone() }
    }

    /// Returns the maximum number of requests of a worker.
    fn most(&self, worker: u64) -> u64 {
        match self.stop {
            Stop::Requests(requests) => requests / self.workers + u64::from(worker < requests % self.workers),
            Stop::After(_) => u64::MAX,
        }
    }
}

/// One worker.
#[derive(Clone, Debug)]
pub struct Stream {
    random: Random,
    addresses: Addresses,
    worker: u64,
    /// Its first block.
    base: u64,
    request_blocks: u64,
    reads_percent: u32,
    rate: Option<u64>,
    workers: u64,
    stop: Stop,
    most: u64,
    /// Number of unique contents so far, continued from earlier loads.
    unique: u64,
    /// Requests so far.
    requests: u64,
}

impl Stream {
    fn new(load: &Load, worker: u64, places: u64) -> Stream {
        let mut random = Random::new(mix(load.seed ^ mix(worker)));
        Stream {
            addresses: Addresses::new(load.pattern, places, &mut random),
            random,
            worker,
            base: worker * places * load.request_blocks,
            request_blocks: load.request_blocks,
            reads_percent: load.reads_percent,
            rate: load.rate,
            workers: load.workers,
            stop: load.stop,
            most: load.most(worker),
            unique: 0,
            requests: 0,
        }
    }

    /// Continues the unique contents of the same worker in an earlier load, so contents that are written once stay unique.
    pub fn after(&mut self, earlier: &Stream) {
        self.unique = earlier.unique;
    }

    /// Returns NURand's constant, if that is the pattern.
    pub fn constant(&self) -> Option<u64> {
        self.addresses.constant()
    }

    /// Returns the blocks that it may write.
    pub fn region(&self) -> Range<u64> {
        self.base..self.base + self.addresses.places() * self.request_blocks
    }

    /// Returns the number of blocks of each request.
    pub fn request_blocks(&self) -> u64 {
        self.request_blocks
    }

    /// Returns the time of the next request, `elapsed` after the load began. A worker that fell behind its rate catches up: the mean since
    /// the beginning counts.
    pub fn turn(&self, elapsed: Nanos) -> Turn {
        let is_over = matches!(self.stop, Stop::After(time) if elapsed >= time);
        if self.requests >= self.most || is_over {
            return Turn::Ended;
        }
        let Some(rate) = self.rate else { return Turn::Now };
        let due = u128::from(elapsed) * u128::from(rate);
        if u128::from(self.requests) * u128::from(self.workers) * 1_000_000_000 <= due {
            return Turn::Now;
        }
        Turn::At(match self.stop {
            Stop::After(time) => (elapsed + LOOK_AGAIN).min(time),
            Stop::Requests(_) => elapsed + LOOK_AGAIN,
        })
    }

    /// Draws the next request.
    pub fn next(&mut self, distribution: &Distribution) -> Request {
        self.requests += 1;
        let first = self.base + self.addresses.draw(&mut self.random) * self.request_blocks;
        let writes = match self.reads_percent {
            0 => true,
            percent => self.random.below(100) >= u64::from(percent),
        };
        let blocks = if writes { self.request_blocks } else { 0 };
        Request { writes, first, contents: (0..blocks).map(|_| self.content(distribution)).collect() }
    }

    fn content(&mut self, distribution: &Distribution) -> ContentId {
        match distribution.draw(&mut self.random) {
            Some(shared) => shared + 1,
            None => {
                self.unique += 1;
                UNIQUE | self.worker << 48 | self.unique
            }
        }
    }
}

/// Returns the number of a content in the distribution, if it may come again.
pub fn shared(content: ContentId) -> Option<u64> {
    (1..UNIQUE).contains(&content).then(|| content - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOAD: Load = Load {
        pattern: Pattern::Uniform,
        request_blocks: 2,
        reads_percent: 0,
        workers: 3,
        rate: None,
        stop: Stop::Requests(100),
        seed: 1,
    };

    #[test]
    fn workers_keep_to_their_regions_and_share_the_requests() {
        let distribution = Distribution::parse("one", "0 10\n1 10").expect("it is one");
        let mut all = 0;
        for (worker, mut stream) in LOAD.streams(100).into_iter().enumerate() {
            let region = 32 * worker as u64..32 * (worker as u64 + 1);
            while stream.turn(0) == Turn::Now {
                let request = stream.next(&distribution);
                assert!(region.contains(&request.first) && region.contains(&(request.first + 1)));
                assert_eq!((request.writes, request.contents.len()), (true, 2));
                all += 1;
            }
            assert_eq!(stream.turn(0), Turn::Ended);
        }
        assert_eq!(all, 100);
        assert!(LOAD.check(6).is_ok() && LOAD.check(5).is_err());
    }

    #[test]
    fn a_rate_is_kept_on_average_and_made_up_for() {
        let load = Load { rate: Some(3000), workers: 2, stop: Stop::After(1_000_000_000), ..LOAD };
        let distribution = Distribution::parse("one", "0 10").expect("it is one");
        let mut stream = load.streams(100).remove(0);
        let (mut now, mut requests) = (0, 0);
        loop {
            match stream.turn(now) {
                Turn::Now => {
                    stream.next(&distribution);
                    requests += 1;
                    // Half a second in which nothing is answered.
                    now += if requests == 700 { 500_000_000 } else { 10_000 };
                }
                Turn::At(later) => now = later,
                Turn::Ended => break,
            }
        }
        assert!((1490..=1510).contains(&requests), "{requests}: half of 3000 a second");
    }

    #[test]
    fn the_same_seed_makes_the_same_requests_and_unique_contents_stay_unique() {
        let distribution = Distribution::parse("one", "0 10\n3 10").expect("it is one");
        let requests = |load: &Load| {
            let mut streams = load.streams(1000);
            (0..50)
                .flat_map(|_| streams.iter_mut().map(|stream| stream.next(&distribution)).collect::<Vec<_>>())
                .collect()
        };
        let one: Vec<Request> = requests(&LOAD);
        assert_eq!(one, requests(&LOAD));
        assert_ne!(one, requests(&Load { seed: 2, ..LOAD }));
        let mut unique: Vec<u64> = one.iter().flat_map(|request| &request.contents).copied().collect();
        unique.retain(|&content| shared(content).is_none());
        let count = unique.len();
        unique.sort_unstable();
        unique.dedup();
        assert!(count > 20 && unique.len() == count);
        let mut later = LOAD.streams(1000).remove(0);
        let mut earlier = later.clone();
        (0..50).for_each(|_| drop(earlier.next(&distribution)));
        later.after(&earlier);
        let contents: Vec<u64> = (0..20).flat_map(|_| later.next(&distribution).contents).collect();
        assert!(contents.iter().all(|content| shared(*content).is_some() || !unique.contains(content)));
    }
}
