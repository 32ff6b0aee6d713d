//! Run of a load through the engine, in virtual time, on a disk model.
//!
//! Each worker has one request in flight, as a DEDISbench process has. Every read is compared with the written content. One processor serves the written blocks
//! one after the other, with a given time for each. The engine's real time is reported beside it.

pub mod phases;

use std::collections::HashMap;
use std::rc::Rc;

use engine::{
    Command, DedupCommand, Goal, Limits, Nanos, Operation, PassState, Policy, Submit, Timing, VolumeId,
    VolumePropertyChange,
};

use self::phases::Watch;
use super::BLOCK;
use super::distribution::Distribution;
use super::load::{ContentId, Load, Request, Stop, Stream, Turn};
use super::summary::Latencies;
use super::written::{Tally, Written};
use sim::content::{CELLS, Cells, ZERO};
use sim::disks::Disk;
use sim::timed::machine::{Machine, Processor, Step, Store};
use sim::timed::pool::{Pool, VOLUME as BEFORE_VOLUME};
use sim::{Checked, Violation, violated};

/// Size of a volume that is in the pool from the start and that the load does not touch.
const BEFORE: u64 = 64 << 20;
/// Memory for each block that may be written, where the memory is to hold all contents. A quarter of the memory is index, of 16 bytes an entry; the constant
/// below covers all else.
const MEMORY_A_BLOCK: u64 = 96;
const MEMORY_BESIDE: u64 = 128 << 20;
/// Number of replies between two checks for the end of a pass.
const LOOK_AT_PASS: u64 = 1024;
/// Duration and reads a second of the warm-up before a load with concurrent passes and no goal. The pass's share then has grown to the whole device. With a
/// goal the pass begins with the minimum share.
const WARM: Nanos = 25_000_000_000;
const WARM_RATE: u64 = 10;

/// Passes that find duplicates.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Passes {
    /// None.
    None,
    /// One pass after the load, without client requests.
    After,
    /// Consecutive passes during the load, and another one after it.
    Beside,
}

/// Parameters of a run.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Policy that decides which blocks are shared.
    pub policy: Policy,
    /// Time at which blocks are shared.
    pub timing: Timing,
    /// Performance goal of the clients.
    pub goal: Goal,
    /// Passes that find the duplicates that were not shared inline.
    pub passes: Passes,
    /// Volatile metadata, as the papers have it in memory: journal, tables and checkpoints are on a device that takes no time. It would not survive a crash.
    pub volatile: bool,
    /// Blocks of the volume.
    pub volume_blocks: u64,
    /// Memory of the engine, in bytes. None: enough for all contents, with the whole cache partition as index.
    pub memory: Option<u64>,
    /// The disk, before anything happened to it.
    pub disk: Disk,
    /// Time of the processor for each block that is written, its digest among it.
    pub processor: Nanos,
    /// True if writes are answered when they are durable, false if they are answered from memory.
    pub durable: bool,
    /// True if every block is written once before, unmeasured.
    pub fills: bool,
    /// Requests of the clients that are measured: their addresses, size and rate, the share of reads, and the condition that ends them.
    pub load: Load,
}

/// Results of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Requests that were answered, and their blocks.
    pub requests: u64,
    /// Their blocks.
    pub blocks: u64,
    /// Virtual time from the beginning of the load to the last answer.
    pub time: Nanos,
    /// Latencies from the arrival of a request to its answer.
    pub latencies: Latencies,
    /// Blocks that were generated, filling included.
    pub tally: Tally,
    /// Blocks that the pool stores for it, when everything has settled.
    pub stored_blocks: u64,
    /// Real time that the engine took in the load. It differs from run to run.
    pub processor: Processor,
    /// Bytes of the engine's tables and buffers.
    pub memory_bytes: u64,
    /// Blocks that concurrent passes remapped to another slot.
    pub shared_blocks: u64,
    /// The time of the pass after the load; 0 if there was none.
    pub pass: Nanos,
    /// Commands to the disk in the load.
    pub disk_commands: u64,
    /// NURand's constant of each worker, if that is the pattern.
    pub constants: Vec<u64>,
}

impl Setup {
    fn limits(&self, pool: &Pool) -> Checked<Limits> {
        let memory = self.memory.unwrap_or(MEMORY_BESIDE + self.volume_blocks * MEMORY_A_BLOCK);
        let limits = Limits::for_memory(memory, &pool.parameters.geometry);
        let mut limits = limits.map_err(|needed| Violation(format!("this volume needs {needed} bytes of memory")))?;
        if self.memory.is_none() {
            // The index keeps its size.
            limits.cache.setting = None;
        }
        Ok(limits)
    }
}

/// Executes a run: fills the volume if asked, works through the load, and measures the pass after it.
pub fn run(setup: &Setup, distribution: &Distribution, progress: &mut dyn FnMut(u64)) -> Checked<Outcome> {
    let (mut workers, before) = prepare(setup, distribution)?;
    if setup.fills {
        let filling = setup.load.filling(setup.volume_blocks).streams(setup.volume_blocks);
        let measured = std::mem::replace(&mut workers.streams, filling);
        workers.work(&mut |_| {})?;
        let filled = std::mem::replace(&mut workers.streams, measured);
        workers.streams.iter_mut().zip(&filled).for_each(|(stream, earlier)| stream.after(earlier));
        workers.machine.command(Command::Settle)?;
    }
    if setup.passes == Passes::Beside && setup.goal == Goal::None {
        let reads = Load { reads_percent: 100, rate: Some(WARM_RATE), stop: Stop::After(WARM), ..setup.load.clone() };
        let measured = std::mem::replace(&mut workers.streams, reads.streams(setup.volume_blocks));
        workers.work(&mut |_| {})?;
        workers.streams = measured;
    }
    workers.has_passes = setup.passes == Passes::Beside;
    workers.machine.processor = Some(Processor::default());
    let commands = workers.machine.io.commands();
    let (requests, blocks, time, latencies) = workers.work(progress)?;
    let disk_commands = workers.machine.io.commands() - commands;
    let processor = workers.machine.processor.take().unwrap_or_default();
    let shared_blocks = workers.machine.engine.status().dedup.shared_blocks;
    let pass = if setup.passes == Passes::None { 0 } else { workers.pass()? };
    workers.machine.command(Command::Settle)?;
    let status = workers.machine.engine.status();
    Ok(Outcome {
        requests,
        blocks,
        time,
        latencies,
        tally: Written::tally(std::slice::from_ref(&workers.written)),
        stored_blocks: status.data_blocks_used - before - status.replicate.replicas,
        processor,
        memory_bytes: status.memory_bytes,
        shared_blocks,
        pass,
        disk_commands,
        constants: workers.streams.iter().filter_map(Stream::constant).collect(),
    })
}

/// Creates a pool with the volume, and the workers on it; returns them with the number of blocks that the pool had stored before.
fn prepare<'a>(setup: &Setup, distribution: &'a Distribution) -> Checked<(Workers<'a>, u64)> {
    setup.load.check(setup.volume_blocks).map_err(Violation)?;
    let bytes = setup.volume_blocks * BLOCK;
    let pool = Pool::new(BEFORE, bytes + bytes / 8 + (256 << 20));
    let pool = pool.map_err(|why| Violation(format!("no pool for {bytes} bytes: {why}")))?;
    let limits = setup.limits(&pool)?;
    let mut machine = Machine::on(setup.disk.clone(), setup.volatile, Store::new(Rc::new(pool)), limits, 0);
    machine.opened()?;
    machine.command(Command::CreateVolume { name: "load", size: bytes, policy: Some(setup.policy) })?;
    machine.command(Command::Settle)?;
    let volume = machine.engine.volumes().find(|volume| volume.name == "load").map(|volume| volume.id);
    let volume = volume.ok_or(Violation("the volume is not there".into()))?;
    // Read-only also excludes it from passes: its contents are not part of the load.
    let change = VolumePropertyChange { read_only: Some(true), ..VolumePropertyChange::default() };
    machine.command(Command::SetVolume { volume: BEFORE_VOLUME, change })?;
    let (timing, goal) = (Some(Some(setup.timing)), Some(setup.goal));
    let change = VolumePropertyChange { timing, goal, ..VolumePropertyChange::default() };
    machine.command(Command::SetVolume { volume, change })?;
    let before = machine.engine.status().data_blocks_used;
    let streams = setup.load.streams(setup.volume_blocks);
    let written = Written::new(0, setup.volume_blocks, distribution.shared_contents());
    let workers = Workers {
        machine,
        volume,
        durable: setup.durable,
        processor: setup.processor,
        processor_free: 0,
        streams,
        written,
        distribution,
        flights: HashMap::new(),
        has_passes: false,
        watch: None,
    };
    Ok((workers, before))
}

struct Workers<'a> {
    machine: Machine,
    volume: VolumeId,
    durable: bool,
    processor: Nanos,
    /// Time at which the processor is free again.
    processor_free: Nanos,
    streams: Vec<Stream>,
    written: Written,
    distribution: &'a Distribution,
    /// Requests in flight, by token.
    flights: HashMap<u64, Flight>,
    /// True if a pass begins whenever none is in progress.
    has_passes: bool,
    /// Observation of every second, if any.
    watch: Option<Watch>,
}

/// A request in flight.
struct Flight {
    worker: usize,
    since: Nanos,
    first: u64,
    writes: bool,
    blocks: u64,
}

impl Workers<'_> {
    /// Works until all streams have ended: requests, their blocks, the time, the latencies.
    fn work(&mut self, progress: &mut dyn FnMut(u64)) -> Checked<(u64, u64, Nanos, Latencies)> {
        let (begin, mut latencies) = (self.machine.now, Latencies::default());
        let (mut requests, mut blocks, mut last) = (0, 0, begin);
        // Workers without a request in flight; some have a request that is not submitted yet.
        let mut resting: Vec<(usize, Option<Ready>)> = (0..self.streams.len()).map(|worker| (worker, None)).collect();
        loop {
            let mut wake = Nanos::MAX;
            let mut is_full = false;
            for (worker, ready) in std::mem::take(&mut resting) {
                match ready.map_or_else(|| self.next(worker, begin), Next::Request) {
                    Next::Request(ready) if ready.at > self.machine.now => {
                        wake = wake.min(ready.at);
                        resting.push((worker, Some(ready)));
                    }
                    Next::Request(ready) if is_full || !self.submit(worker, &ready) => {
                        is_full = true;
                        resting.push((worker, Some(ready)));
                    }
                    Next::Request(_) | Next::Ended => {}
                    Next::At(later) => {
                        wake = wake.min(later);
                        resting.push((worker, None));
                    }
                }
            }
            if resting.is_empty() && self.flights.is_empty() {
                return Ok((requests, blocks, last - begin, latencies));
            }
            // The engine sees all requests of this round together. Then step until a worker's state changes.
            loop {
                match self.machine.step(wake)? {
                    Step::Reply(token, result) => {
                        let flight = self.answered(token, result)?;
                        last = self.machine.now;
                        latencies.add(last - flight.since);
                        requests += 1;
                        blocks += flight.blocks;
                        progress(requests);
                        self.look();
                        if self.has_passes && requests % LOOK_AT_PASS == 1 {
                            self.keep_passing();
                        }
                        resting.push((flight.worker, None));
                        break;
                    }
                    Step::Quiet if wake == Nanos::MAX => {
                        return violated("requests are in flight, and nothing happens");
                    }
                    Step::Quiet => break,
                    _ if is_full && self.machine.engine.can_submit() => break,
                    _ => {}
                }
            }
        }
    }

    /// Begins another pass if there is none in progress.
    fn keep_passing(&mut self) {
        let dedup = self.machine.engine.status().dedup;
        // In phases inline writes leave nothing to it.
        let has_work = self.watch.is_none() || dedup.has_backlog;
        if dedup.state != PassState::Running && has_work {
            self.machine.begin_command(Command::Dedup { command: DedupCommand::Start });
        }
    }

    /// Executes a whole pass without client requests; returns the time that it took.
    fn pass(&mut self) -> Checked<Nanos> {
        // One that is in progress is not the one to be measured.
        while self.machine.engine.status().dedup.state == PassState::Running {
            self.machine.step(Nanos::MAX)?;
        }
        self.machine.command(Command::Settle)?;
        let begin = self.machine.now;
        self.machine.command(Command::Dedup { command: DedupCommand::Start })?;
        while self.machine.engine.status().dedup.state == PassState::Running {
            if matches!(self.machine.step(Nanos::MAX)?, Step::Quiet) {
                return violated("a pass is in progress, and nothing happens");
            }
        }
        Ok(self.machine.now - begin)
    }

    fn next(&mut self, worker: usize, begin: Nanos) -> Next {
        let stream = &mut self.streams[worker];
        match stream.turn(self.machine.now - begin) {
            Turn::Now => {
                let request = stream.next(self.distribution);
                let since = self.machine.now;
                let at = match request.contents.len() as u64 {
                    0 => since,
                    blocks => {
                        self.processor_free = self.processor_free.max(since) + blocks * self.processor;
                        self.processor_free
                    }
                };
                Next::Request(Ready { request, since, at })
            }
            Turn::At(elapsed) => Next::At(begin + elapsed),
            Turn::Ended => Next::Ended,
        }
    }

    /// Gives the engine a request; false if it has no space for it now.
    fn submit(&mut self, worker: usize, Ready { request, since, .. }: &Ready) -> bool {
        if !self.machine.engine.can_submit() {
            return false;
        }
        let blocks = self.streams[worker].request_blocks();
        let token = worker as u64 + 1;
        let submit = Submit {
            token,
            volume: self.volume,
            offset: request.first * BLOCK,
            length: blocks * BLOCK,
            fua: self.durable && request.writes,
            operation: Operation::Read { object: 0 },
        };
        if request.writes {
            let contents: Vec<Cells> = request.contents.iter().map(|&content| cells(content)).collect();
            if !self.machine.write(token, submit, &contents) {
                return false;
            }
            for (block, &content) in (request.first..).zip(&request.contents) {
                self.written.write(block, content);
            }
        } else {
            self.machine.submit(submit);
        }
        self.flights
            .insert(token, Flight { worker, since: *since, first: request.first, writes: request.writes, blocks });
        true
    }

    fn answered(&mut self, token: u64, result: Result<Vec<Cells>, engine::Error>) -> Checked<Flight> {
        let Some(flight) = self.flights.remove(&token) else {
            return violated(format!("request {token} is answered twice"));
        };
        let found = result.map_err(|error| Violation(format!("a request failed: {error:?}")))?;
        if !flight.writes {
            for (block, found) in (flight.first..flight.first + flight.blocks).zip(found) {
                if found != cells(self.written.content(block)) {
                    return violated(format!("block {block} does not read as it was written: {found:?}"));
                }
            }
        }
        Ok(flight)
    }
}

/// A request, when it came, and when the processor is done with it.
struct Ready {
    request: Request,
    since: Nanos,
    at: Nanos,
}

/// Next step of a worker.
enum Next {
    Request(Ready),
    At(Nanos),
    Ended,
}

/// Returns a block that holds a content.
fn cells(content: ContentId) -> Cells {
    if content == 0 {
        return ZERO;
    }
    // Numbers are below 2^26; those above belong to blocks that imitate metadata.
    let part = |shift: u32| (content >> shift) as u32 & 0x3f_ffff;
    let mut cells = [0; CELLS];
    (cells[0], cells[1], cells[2], cells[3]) = (2, part(0), part(22), part(44));
    cells
}
