//! Client load that reads a small file and appends copies to a large one.
//!
//! - **Reads** are single blocks of a region without writers. Some blocks are read more often than others.
//! - **Writes** append extents of some blocks to the rest of the volume, from its beginning to its end. So no written block is overwritten, and a written
//!   content stays known as long as the index remembers it. Nine of ten extents come from a catalogue, some more often than others; the tenth is new.
//!
//! Frequencies follow Zipf's law with exponent [`SKEW`]. [`DEPTH`] requests are in flight, and at most one every [`GAP`] is new.

use std::collections::HashMap;

use engine::{Nanos, Operation, Submit};

use crate::icache::Counts;
use sim::content::{CELLS, Cells};
use sim::random::Random;
use sim::timed::machine::{Machine, Step};
use sim::timed::pool::VOLUME;
use sim::{Checked, violated};

/// The exponent of Zipf's law, for reads and for writes.
pub const SKEW: f64 = 0.6;
/// Requests in progress.
const DEPTH: usize = 16;
/// Minimum time between two submissions.
const GAP: Nanos = 10_000;
/// One extent in N has new content.
const NEW_IN: u64 = 10;
/// First content numbers of the catalogue, and of new extents. Lower numbers are the pool's own.
const CATALOGUE_NUMBER: u32 = 1 << 20;
const NEW_NUMBER: u32 = 1 << 29;

/// Mix of reads and writes in a phase.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Burst {
    /// 95 % reads.
    Reads,
    /// 95 % writes.
    Writes,
    /// Equal to one read burst and one write burst together.
    Mixed,
}

impl Burst {
    /// Returns the name that tables use.
    pub fn name(self) -> &'static str {
        match self {
            Burst::Reads => "reads",
            Burst::Writes => "writes",
            Burst::Mixed => "mixed",
        }
    }
}

/// Amounts that are read and written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shape {
    /// Blocks that are read.
    pub read_blocks: u64,
    /// Extents of the catalogue.
    pub extents: u64,
    /// Blocks of each extent.
    pub extent_blocks: u64,
}

impl Shape {
    /// Sizes the load for a memory. The read blocks fit into nine tenths of it. The rewritten blocks fit into an index that is nearly as large as the memory.
    pub fn for_memory(memory: u64) -> Shape {
        let extent_blocks = 8;
        Shape { read_blocks: memory * 9 / 10 / 4096, extents: memory * 3 / 4 / 16 / extent_blocks, extent_blocks }
    }

    /// Returns the requests of a burst of reads, which can save as much device time as a burst of writes.
    pub fn read_requests(&self) -> u64 {
        2 * self.write_requests()
    }

    /// Returns the requests of a burst of writes: three for each extent of the catalogue.
    pub fn write_requests(&self) -> u64 {
        3 * self.extents
    }
}

/// Cumulative weights of Zipf's law over N items.
struct Zipf(Vec<u64>);

impl Zipf {
    fn new(count: u64) -> Zipf {
        let mut sum = 0;
        let weight = |rank: u64| ((1u64 << 32) as f64 / (rank as f64).powf(SKEW)) as u64;
        Zipf(
            (1..=count)
                .map(|rank| {
                    sum += weight(rank);
                    sum
                })
                .collect(),
        )
    }

    fn draw(&self, random: &mut Random) -> u64 {
        let all = self.0.last().copied().expect("there is something to draw");
        let at = random.below(all);
        self.0.partition_point(|&sum| sum <= at) as u64
    }
}

struct InProgress {
    since: Nanos,
    /// Block that the request reads; `None` for a write.
    reads: Option<u64>,
}

/// Totals of the clients so far.
#[derive(Clone, Copy, Debug)]
pub struct Tally {
    /// Blocks.
    pub counts: Counts,
    /// Requests answered.
    pub requests: u64,
    /// The sum of their latencies.
    pub latency: Nanos,
    /// The sum of the latencies of reads.
    pub read_latency: Nanos,
    /// The time.
    pub now: Nanos,
}

/// The clients.
pub struct Client {
    shape: Shape,
    random: Random,
    blocks: Zipf,
    extents: Zipf,
    /// Set for each extent of the catalogue that has been written.
    written: Vec<bool>,
    /// The first number of each extent that was appended.
    log: Vec<u32>,
    new_extents: u32,
    next_token: u64,
    next_submission: Nanos,
    in_progress: HashMap<u64, InProgress>,
    counts: Counts,
    requests: u64,
    latency: Nanos,
    read_latency: Nanos,
}

impl Client {
    /// Creates clients without requests so far.
    pub fn new(shape: Shape, seed: u64) -> Client {
        Client {
            shape,
            random: Random::new(seed),
            blocks: Zipf::new(shape.read_blocks),
            extents: Zipf::new(shape.extents),
            written: vec![false; shape.extents as usize],
            log: Vec::new(),
            new_extents: 0,
            next_token: 1,
            next_submission: 0,
            in_progress: HashMap::new(),
            counts: Counts::default(),
            requests: 0,
            latency: 0,
            read_latency: 0,
        }
    }

    /// Returns the totals so far, with the blocks that the engine removed.
    pub fn tally(&self, machine: &Machine) -> Tally {
        let counts = Counts { removed: machine.engine.write_counts().removed.blocks, ..self.counts };
        let Client { requests, latency, read_latency, .. } = *self;
        Tally { counts, requests, latency, read_latency, now: machine.now }
    }

    /// Works until `requests` more requests have been answered, and leaves the others in flight.
    pub fn work(&mut self, machine: &mut Machine, burst: Burst, requests: u64) -> Checked {
        let upto = self.requests + requests;
        while self.requests < upto {
            let has_space = self.in_progress.len() < DEPTH && machine.engine.can_submit();
            if has_space && machine.now >= self.next_submission && self.submit(machine, burst) {
                self.next_submission = machine.now + GAP;
            }
            let waits = has_space && self.next_submission > machine.now;
            self.step(machine, if waits { self.next_submission } else { Nanos::MAX })?;
        }
        Ok(())
    }

    fn step(&mut self, machine: &mut Machine, horizon: Nanos) -> Checked {
        match machine.step(horizon)? {
            Step::Reply(token, result) => self.answered(machine, token, result),
            Step::Quiet if horizon == Nanos::MAX => violated(format!("{} requests hang", self.in_progress.len())),
            _ => Ok(()),
        }
    }

    fn submit(&mut self, machine: &mut Machine, burst: Burst) -> bool {
        // Of a burst of each together, one request in three is a write.
        let writes = match burst {
            Burst::Reads => self.random.below(100) < 5,
            Burst::Writes => self.random.below(100) >= 5,
            Burst::Mixed => self.random.below(3) == 0,
        };
        let reads = if writes {
            let extent = if self.random.one_in(NEW_IN) { None } else { Some(self.draw_extent()) };
            if !self.append(machine, extent) {
                return false;
            }
            None
        } else {
            let block = self.blocks.draw(&mut self.random);
            machine.submit(self.request(block, 1));
            Some(block)
        };
        self.in_progress.insert(self.next_token, InProgress { since: machine.now, reads });
        self.next_token += 1;
        true
    }

    /// Draws an extent of the catalogue by Zipf's law.
    pub fn draw_extent(&mut self) -> u64 {
        self.extents.draw(&mut self.random)
    }

    /// Draws an extent of the catalogue, each with the same probability.
    pub fn draw_any(&mut self) -> u64 {
        self.random.below(self.shape.extents)
    }

    /// Writes one extent of the catalogue, as soon as there is space for the request.
    pub fn write(&mut self, machine: &mut Machine, extent: u64) -> Checked {
        while self.in_progress.len() >= DEPTH || !machine.engine.can_submit() || !self.append(machine, Some(extent)) {
            self.step(machine, Nanos::MAX)?;
        }
        self.in_progress.insert(self.next_token, InProgress { since: machine.now, reads: None });
        self.next_token += 1;
        Ok(())
    }

    /// Submits a write of the next extent, with content of the catalogue or with new one; false if there are no buffers for it.
    fn append(&mut self, machine: &mut Machine, extent: Option<u64>) -> bool {
        let blocks = self.shape.extent_blocks;
        let first = match extent {
            Some(extent) => CATALOGUE_NUMBER + (extent * blocks) as u32,
            None => NEW_NUMBER + self.new_extents * blocks as u32,
        };
        let contents: Vec<Cells> = (first..first + blocks as u32).map(|number| [number; CELLS]).collect();
        let at = self.shape.read_blocks + self.log.len() as u64 * blocks;
        if !machine.write(self.next_token, self.request(at, blocks), &contents) {
            return false;
        }
        self.log.push(first);
        match extent {
            Some(extent) if self.written[extent as usize] => self.counts.known += blocks,
            Some(extent) => self.written[extent as usize] = true,
            None => self.new_extents += 1,
        }
        true
    }

    /// Checks the answer of a request and counts it; a read must return the content of its block.
    fn answered(&mut self, machine: &Machine, token: u64, result: Result<Vec<Cells>, engine::Error>) -> Checked {
        let Some(request) = self.in_progress.remove(&token) else {
            return violated(format!("request {token} is answered twice"));
        };
        let found = match result {
            Ok(found) => found,
            Err(error) => return violated(format!("request {token} failed: {error:?}")),
        };
        let latency = machine.now - request.since;
        self.requests += 1;
        self.latency += latency;
        if let Some(block) = request.reads {
            self.counts.reads += 1;
            // No time passes between a request and its answer, unless the device is needed.
            self.counts.read_hits += u64::from(latency == 0);
            self.read_latency += latency;
            let wanted = self.content(machine, block);
            if found != [wanted] {
                return violated(format!("block {block} reads as {found:?} instead of {wanted:?}"));
            }
        }
        Ok(())
    }

    /// Returns the content that a block must have.
    fn content(&self, machine: &Machine, block: u64) -> Cells {
        let blocks = self.shape.extent_blocks;
        match block.checked_sub(self.shape.read_blocks) {
            Some(at) => [self.log[(at / blocks) as usize] + (at % blocks) as u32; CELLS],
            None => machine.store.pool.cells(block),
        }
    }

    /// Reads some of the appended blocks, and compares their contents.
    pub fn verify(&mut self, machine: &mut Machine, count: u64) -> Checked {
        self.drain(machine)?;
        let written = self.log.len() as u64 * self.shape.extent_blocks;
        for _ in 0..count.min(written) {
            while self.in_progress.len() >= DEPTH || !machine.engine.can_submit() {
                self.step(machine, Nanos::MAX)?;
            }
            let block = self.shape.read_blocks + self.random.below(written);
            machine.submit(self.request(block, 1));
            self.in_progress.insert(self.next_token, InProgress { since: machine.now, reads: Some(block) });
            self.next_token += 1;
        }
        self.drain(machine)
    }

    fn drain(&mut self, machine: &mut Machine) -> Checked {
        while !self.in_progress.is_empty() {
            self.step(machine, Nanos::MAX)?;
        }
        Ok(())
    }

    /// Makes a request for `blocks` blocks: a read, unless it becomes a write (`Machine::write`).
    fn request<'a>(&self, first: u64, blocks: u64) -> Submit<'a> {
        let operation = Operation::Read { object: 0 };
        Submit {
            token: self.next_token,
            volume: VOLUME,
            offset: first * 4096,
            length: blocks * 4096,
            fua: false,
            operation,
        }
    }
}
