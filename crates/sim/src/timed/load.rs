//! Clients in virtual time: a bounded number of requests in flight, a minimum time between submissions, and the cost of
//! each request.
//!
//! Or clients that do not wait for each other ([`OpenLoad`]): requests come at random times.
//!
//! Every block read is compared with its last written content; after a crash, with the content that a flush covered or with any later one. No two requests to
//! the same block are in progress at once, so no other content is possible.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use engine::{Command, Counters, Nanos, Operation, Submit};

use crate::content::{CELLS, Cells};
use crate::random::Random;
use crate::timed::machine::{IoCounts, Machine, Step};
use crate::timed::pool::{OTHER_VOLUME, VOLUME};
use crate::{Checked, Violation, violated};

/// Number of blocks of a sequential request: 128 KiB.
const SEQUENTIAL_BLOCKS: u64 = 32;
/// First number of the contents of writes; numbers below are the pool's own.
const FIRST_NUMBER: u32 = 1 << 20;

/// Access patterns of the clients.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Workload {
    /// Reads of 4 KiB anywhere, 32 in progress.
    RandomRead,
    /// Writes of 4 KiB anywhere, 32 in progress.
    RandomWrite,
    /// Reads of 128 KiB in order of address, 8 in progress.
    SequentialRead,
    /// Writes of 128 KiB in order of address, 8 in progress.
    SequentialWrite,
}

impl Workload {
    /// All workloads, in the order in which they run: reads first, from the pool as it was made.
    pub const ALL: [Workload; 4] =
        [Workload::RandomRead, Workload::SequentialRead, Workload::SequentialWrite, Workload::RandomWrite];

    /// Returns its name for tables.
    pub fn name(self) -> &'static str {
        match self {
            Workload::RandomRead => "4 KiB random read",
            Workload::RandomWrite => "4 KiB random write",
            Workload::SequentialRead => "128 KiB sequential read",
            Workload::SequentialWrite => "128 KiB sequential write",
        }
    }

    /// Returns true if its requests are writes.
    pub fn writes(self) -> bool {
        matches!(self, Workload::RandomWrite | Workload::SequentialWrite)
    }

    fn blocks(self) -> u64 {
        if matches!(self, Workload::RandomRead | Workload::RandomWrite) { 1 } else { SEQUENTIAL_BLOCKS }
    }

    fn depth(self) -> usize {
        if self.blocks() == 1 { 32 } else { 8 }
    }

    /// Returns the minimum time between two submissions: 100,000 requests a second of 4 KiB, 10,000 of 128 KiB.
    fn gap(self) -> Nanos {
        if self.blocks() == 1 { 10_000 } else { 100_000 }
    }
}

/// Total cost of a number of requests.
#[derive(Clone, Debug, Default)]
pub struct Cost {
    /// Requests answered.
    pub requests: u64,
    /// Counters of the engine for these requests.
    pub counters: Counters,
    /// Commands to the drive for these requests.
    pub io: IoCounts,
    /// Time from submission to answer, of each request.
    pub latencies: Vec<Nanos>,
}

impl Cost {
    /// Returns the tree pages visited per request, without those for the rebuild of the index.
    pub fn page_visits(&self) -> f64 {
        self.per_request(self.counters.page_visits - self.counters.rebuild_page_visits)
    }

    /// Returns the runs of requests and steps of checkpoints, per request.
    pub fn steps(&self) -> f64 {
        self.per_request(self.counters.request_runs + self.counters.checkpoint_steps)
    }

    /// Returns the commands to the drive per request, without those for the rebuild of the index.
    pub fn commands(&self) -> f64 {
        self.per_request(self.io.commands() - self.counters.rebuild_loads.min(self.io.metadata_reads))
    }

    /// Returns the number of reads of pages, without those for the rebuild of the index.
    pub fn metadata_reads(&self) -> f64 {
        self.per_request(self.io.metadata_reads - self.counters.rebuild_loads.min(self.io.metadata_reads))
    }

    /// Divides a total by the number of requests.
    pub fn per_request(&self, count: u64) -> f64 {
        count as f64 / self.requests.max(1) as f64
    }

    /// Returns the latency that `percent` of the requests did not exceed.
    pub fn percentile(&self, percent: usize) -> Nanos {
        permille(&self.latencies, 10 * percent)
    }
}

/// Returns the latency that `permille` in a thousand did not exceed; 0 if there are none.
pub fn permille(latencies: &[Nanos], permille: usize) -> Nanos {
    let mut sorted = latencies.to_vec();
    sorted.sort_unstable();
    sorted.get((sorted.len() * permille / 1000).min(sorted.len().saturating_sub(1))).copied().unwrap_or(0)
}

/// Discards during a load.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Discard {
    /// The second volume is deleted.
    Volume,
    /// Bytes of the second volume are trimmed.
    Range(u64, u64),
}

/// Kinds of request of an open load.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    /// A read.
    Read,
    /// A write, answered from memory.
    Write,
    /// A write that is answered when it is durable.
    Durable,
}

impl Class {
    /// All classes, in the order of `OpenLoad::latencies`.
    pub const ALL: [Class; 3] = [Class::Read, Class::Write, Class::Durable];

    /// Draws a class: of a hundred requests 70 are reads, 27 are writes and 3 are durable writes.
    fn draw(random: &mut Random) -> Class {
        match random.below(100) {
            0..70 => Class::Read,
            70..97 => Class::Write,
            _ => Class::Durable,
        }
    }
}

/// Reads and writes of single blocks of the volume, anywhere, at random times, whether or not earlier ones have been
/// answered; and discards, one after the other.
pub struct OpenLoad {
    /// Requests a second, on average.
    per_second: u64,
    /// Time at which the next request comes.
    next: Nanos,
    /// Requests that came and are not submitted yet, with the time at which they came.
    backlog: VecDeque<(Nanos, Class)>,
    /// Discards that are still to do.
    pub discards: VecDeque<Discard>,
    discarding: Option<(u64, Nanos)>,
    /// Times from the arrival of a request to its answer, by class.
    pub latencies: [Vec<Nanos>; 3],
    /// Times from the arrival of a discard to its answer.
    pub discarded: Vec<Nanos>,
}

impl OpenLoad {
    /// Creates a load that begins at `now`.
    pub fn new(per_second: u64, now: Nanos) -> OpenLoad {
        OpenLoad {
            per_second,
            next: now,
            backlog: VecDeque::new(),
            discards: VecDeque::new(),
            discarding: None,
            latencies: Default::default(),
            discarded: Vec::new(),
        }
    }

    /// Adds the requests that are due to the backlog. A request comes in each microsecond with the same chance: a Poisson process, except that a microsecond
    /// has at most one request.
    fn arrive(&mut self, now: Nanos, random: &mut Random) {
        while self.next <= now {
            self.backlog.push_back((self.next, Class::draw(random)));
            self.next += 1_000;
            while random.below(1_000_000) >= self.per_second {
                self.next += 1_000;
            }
        }
    }
}

/// Contents that a block may have, since it was written; the last one is the newest.
type History = Vec<u32>;

/// The clients.
pub struct Clients {
    random: Random,
    written: BTreeMap<u64, History>,
    /// Blocks with more than one content that a crash may leave.
    unflushed: BTreeSet<u64>,
    next_number: u32,
    next_token: u64,
    /// Block at which the sequential requests continue.
    cursor: u64,
    in_progress: HashMap<u64, InProgress>,
    /// True after a crash: a block may have any content of its history.
    is_verifying: bool,
}

#[derive(Clone, Copy)]
struct InProgress {
    first: u64,
    blocks: u64,
    since: Nanos,
    class: Class,
}

impl Clients {
    /// Creates clients that have written nothing.
    pub fn new(seed: u64) -> Clients {
        Clients {
            random: Random::new(seed),
            written: BTreeMap::new(),
            unflushed: BTreeSet::new(),
            next_number: FIRST_NUMBER,
            next_token: 1,
            cursor: 0,
            in_progress: HashMap::new(),
            is_verifying: false,
        }
    }

    /// Works until `enough` returns true, which sees the machine and the number of answers. Requests in progress stay in
    /// progress.
    pub fn work(
        &mut self,
        machine: &mut Machine,
        workload: Workload,
        enough: &mut dyn FnMut(&Machine, u64) -> bool,
    ) -> Checked<Cost> {
        let (counters, io) = (machine.engine.counters(), machine.io);
        let mut cost = Cost::default();
        let mut next = machine.now;
        while !enough(machine, cost.requests) {
            let has_space = self.in_progress.len() < workload.depth() && machine.engine.can_submit();
            if has_space && machine.now >= next && self.submit(machine, workload) {
                next = machine.now + workload.gap();
            }
            let horizon = if has_space && next > machine.now { next } else { Nanos::MAX };
            self.step(machine, horizon, &mut cost)?;
        }
        cost.counters = counters_since(machine.engine.counters(), counters);
        cost.io = io_since(machine.io, io);
        Ok(cost)
    }

    /// Works under an open load until the clock stands at `until`.
    pub fn serve(&mut self, machine: &mut Machine, load: &mut OpenLoad, until: Nanos) -> Checked {
        while machine.now < until {
            load.arrive(machine.now, &mut self.random);
            while let Some(&(since, class)) = load.backlog.front()
                && machine.engine.can_submit()
                && self.submit_block(machine, since, class)
            {
                load.backlog.pop_front();
            }
            if load.discarding.is_none()
                && machine.engine.can_submit()
                && let Some(discard) = load.discards.pop_front()
            {
                self.discard(machine, load, discard);
            }
            match machine.step(load.next.min(until))? {
                Step::Reply(token, result) if load.discarding.is_some_and(|(discard, _)| discard == token) => {
                    result.map_err(|error| Violation(format!("a discard failed: {error:?}")))?;
                    load.discarded.extend(load.discarding.take().map(|(_, since)| machine.now - since));
                }
                Step::Reply(token, result) => {
                    let request = self.answered(machine, token, result)?;
                    load.latencies[request.class as usize].push(machine.now - request.since);
                }
                Step::Command(true) => {
                    load.discarded.extend(load.discarding.take().map(|(_, since)| machine.now - since));
                }
                Step::Command(false) => return violated("the volume cannot be deleted"),
                _ => {}
            }
        }
        Ok(())
    }

    fn discard(&mut self, machine: &mut Machine, load: &mut OpenLoad, discard: Discard) {
        load.discarding = Some((self.next_token, machine.now));
        match discard {
            Discard::Volume => machine.begin_command(Command::DeleteVolume { volume: OTHER_VOLUME }),
            Discard::Range(offset, length) => {
                let request = self.request(0, 0, Operation::Trim);
                machine.submit(Submit { volume: OTHER_VOLUME, offset, length, ..request });
            }
        }
        self.next_token += 1;
    }

    /// Submits a request for a block that no other request in progress touches. Returns false if there is no space for
    /// it.
    fn submit_block(&mut self, machine: &mut Machine, since: Nanos, class: Class) -> bool {
        let lba = loop {
            let lba = self.random.below(machine.store.pool.mapped);
            if !self.in_progress.values().any(|other| other.first == lba) {
                break lba;
            }
        };
        let submitted = if class != Class::Read {
            self.write(machine, lba, 1, class == Class::Durable)
        } else {
            machine.submit(self.request(lba, 1, Operation::Read { object: 0 }));
            true
        };
        if submitted {
            self.begin(since, lba, 1, class);
        }
        submitted
    }

    /// Waits until nothing is in progress.
    pub fn drain(&mut self, machine: &mut Machine) -> Checked {
        let mut cost = Cost::default();
        while !self.in_progress.is_empty() {
            self.step(machine, Nanos::MAX, &mut cost)?;
        }
        Ok(())
    }

    /// Makes all written blocks durable, once all writes have been answered.
    pub fn flush(&mut self, machine: &mut Machine) -> Checked {
        self.drain(machine)?;
        // Answered writes may still be in the table.
        while !machine.engine.can_submit() {
            self.step(machine, Nanos::MAX, &mut Cost::default())?;
        }
        machine.submit(self.request(0, 0, Operation::Flush));
        self.begin(machine.now, 0, 0, Class::Durable);
        self.drain(machine)?;
        for lba in std::mem::take(&mut self.unflushed) {
            let history = self.written.get_mut(&lba).expect("it was written");
            history.drain(..history.len() - 1);
        }
        Ok(())
    }

    /// Reads, after a crash and a reopening, every block that was written since the last flush, and `more` others. Each must have one of its possible
    /// contents, and keeps that one.
    pub fn verify(&mut self, machine: &mut Machine, more: usize) -> Checked {
        self.in_progress.clear();
        self.is_verifying = true;
        let flushed: Vec<u64> = self.written.keys().copied().filter(|lba| !self.unflushed.contains(lba)).collect();
        let unflushed = std::mem::take(&mut self.unflushed);
        for lba in unflushed.into_iter().chain(flushed.into_iter().take(more)) {
            while self.in_progress.len() >= 32 || !machine.engine.can_submit() {
                self.step(machine, Nanos::MAX, &mut Cost::default())?;
            }
            let request = self.request(lba, 1, Operation::Read { object: 0 });
            self.begin(machine.now, lba, 1, Class::Read);
            machine.submit(request);
        }
        self.drain(machine)?;
        self.is_verifying = false;
        Ok(())
    }

    fn step(&mut self, machine: &mut Machine, horizon: Nanos, cost: &mut Cost) -> Checked {
        match machine.step(horizon)? {
            Step::Reply(token, result) => {
                let request = self.answered(machine, token, result)?;
                cost.requests += 1;
                cost.latencies.push(machine.now - request.since);
                Ok(())
            }
            Step::Quiet if horizon == Nanos::MAX => violated(format!("{} requests hang", self.in_progress.len())),
            _ => Ok(()),
        }
    }

    /// Takes the answer of a request. Fails if it is the second one, an error, or a read of wrong content.
    fn answered(
        &mut self,
        machine: &Machine,
        token: u64,
        result: Result<Vec<Cells>, engine::Error>,
    ) -> Checked<InProgress> {
        let Some(request) = self.in_progress.remove(&token) else {
            return violated(format!("request {token} is answered twice"));
        };
        match result {
            Ok(blocks) if request.class == Class::Read => self.compare(machine, request, &blocks)?,
            Ok(_) => {}
            Err(error) => return violated(format!("request {token} failed: {error:?}")),
        }
        Ok(request)
    }

    fn compare(&mut self, machine: &Machine, request: InProgress, blocks: &[Cells]) -> Checked {
        if blocks.len() as u64 != request.blocks {
            return violated(format!("{} blocks were read instead of {}", blocks.len(), request.blocks));
        }
        for (lba, found) in (request.first..).zip(blocks) {
            let good = match self.written.get_mut(&lba) {
                Some(history) if self.is_verifying => {
                    history.retain(|&number| [number; CELLS] == *found);
                    !history.is_empty()
                }
                Some(history) => history.last().is_some_and(|&number| [number; CELLS] == *found),
                None => *found == machine.store.pool.cells(lba),
            };
            if !good {
                return violated(format!("block {lba} reads as {found:?}"));
            }
        }
        Ok(())
    }

    /// Submits the next request. Returns false if there is no space for it.
    fn submit(&mut self, machine: &mut Machine, workload: Workload) -> bool {
        let blocks = workload.blocks();
        let end = machine.store.pool.mapped / blocks;
        let random = blocks == 1;
        let first = blocks * if random { self.random.below(end) } else { self.cursor % end };
        if self.in_progress.values().any(|other| first < other.first + other.blocks && other.first < first + blocks) {
            return false;
        }
        if workload.writes() {
            if !self.write(machine, first, blocks, false) {
                return false;
            }
        } else {
            machine.submit(self.request(first, blocks, Operation::Read { object: 0 }));
        }
        self.begin(machine.now, first, blocks, if workload.writes() { Class::Write } else { Class::Read });
        if !random {
            self.cursor += 1;
        }
        true
    }

    /// Submits a write of new contents. Returns false if there are no buffers for it.
    fn write(&mut self, machine: &mut Machine, first: u64, blocks: u64, fua: bool) -> bool {
        let contents: Vec<Cells> = (self.next_number..).take(blocks as usize).map(|number| [number; CELLS]).collect();
        let request = Submit { fua, ..self.request(first, blocks, Operation::Flush) };
        if !machine.write(self.next_token, request, &contents) {
            return false;
        }
        for lba in first..first + blocks {
            let pool = &machine.store.pool;
            self.written.entry(lba).or_insert_with(|| vec![pool.cells(lba)[0]]).push(self.next_number);
            self.unflushed.insert(lba);
            self.next_number += 1;
        }
        true
    }

    /// Notes the request that gets the next token as in progress.
    fn begin(&mut self, since: Nanos, first: u64, blocks: u64, class: Class) {
        self.in_progress.insert(self.next_token, InProgress { first, blocks, since, class });
        self.next_token += 1;
    }

    fn request<'a>(&self, first: u64, blocks: u64, operation: Operation<'a>) -> Submit<'a> {
        let (offset, length) = (first * 4096, blocks * 4096);
        Submit { token: self.next_token, volume: VOLUME, offset, length, fua: false, operation }
    }
}

fn counters_since(now: Counters, then: Counters) -> Counters {
    Counters {
        page_visits: now.page_visits - then.page_visits,
        request_runs: now.request_runs - then.request_runs,
        checkpoint_steps: now.checkpoint_steps - then.checkpoint_steps,
        checkpoints: now.checkpoints - then.checkpoints,
        pages_written: now.pages_written - then.pages_written,
        rebuild_page_visits: now.rebuild_page_visits - then.rebuild_page_visits,
        rebuild_loads: now.rebuild_loads - then.rebuild_loads,
    }
}

fn io_since(now: IoCounts, then: IoCounts) -> IoCounts {
    IoCounts {
        journal_writes: now.journal_writes - then.journal_writes,
        slot_writes: now.slot_writes - then.slot_writes,
        slot_reads: now.slot_reads - then.slot_reads,
        metadata_reads: now.metadata_reads - then.metadata_reads,
        metadata_writes: now.metadata_writes - then.metadata_writes,
        syncs: now.syncs - then.syncs,
    }
}
