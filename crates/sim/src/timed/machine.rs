//! The engine with a synthesised pool on a simulated SSD, in virtual time: a driver without bytes.
//!
//! This is a second, smaller world. The other one (`world/mod.rs`) holds every block of its disk, notes each step in the digest of the run, and draws the
//! time of each I/O, so that crash tests see every order. Here the disk has terabytes, runs have hundreds of thousands of requests, and times follow from the
//! load of the drive. Crashes are simple: the writes that no sync covered are all lost or all kept.
//!
//! The time of the processor is not part of it: between an event and its effects no time passes. It can be measured
//! ([`Machine::processor`]); nothing depends on it.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::rc::Rc;

use engine::{
    BlockContent, BufferId, Command as EngineCommand, Effect, Engine, Error, Event, Io, IoId, IoOp, Limits, Nanos,
    OpenError, Operation, Outcome, Recovered, Reply, RequestId, Segment, Submit,
};

use crate::content::{Cells, Content, ZERO, describe};
use crate::disks::ssd::{Queue, SSD};
use crate::disks::{Breakdown, Class, Command, Disk, Done, Op, Statistics};
use crate::timed::path::{Begun, Path, Purpose};
use crate::timed::pool::Pool;
use crate::{Checked, allocations, violated};

/// Time of work in memory, and of answers of a host file system that has to reserve nothing.
const MEMORY_NANOS: Nanos = 1_000;

/// The store: the blocks written since the pool was made, over the pool.
#[derive(Clone)]
pub struct Store {
    /// Pool as it was made, under the blocks written since.
    pub pool: Rc<Pool>,
    written: HashMap<u64, Content>,
    /// Writes that no sync has covered, in order of completion: the count of completions then, the block, its content before.
    unsynced: VecDeque<(u64, u64, Option<Content>)>,
    completions: u64,
}

impl Store {
    /// Creates a store that holds the pool as it was made.
    pub fn new(pool: Rc<Pool>) -> Store {
        Store { pool, written: HashMap::new(), unsynced: VecDeque::new(), completions: 0 }
    }

    /// Returns the content that a read of a block sees.
    pub fn read(&self, block: u64) -> Content {
        self.written.get(&block).cloned().unwrap_or_else(|| self.pool.read(block))
    }

    fn land(&mut self, first: u64, contents: Vec<Content>) {
        self.completions += 1;
        for (block, content) in (first..).zip(contents) {
            let before = self.written.insert(block, content);
            self.unsynced.push_back((self.completions, block, before));
        }
    }

    /// Writes contents that are durable without a sync.
    fn land_durably(&mut self, first: u64, contents: Vec<Content>) {
        self.completions += 1;
        let blocks = first..first + contents.len() as u64;
        self.unsynced.retain(|(_, block, _)| !blocks.contains(block));
        self.written.extend(blocks.zip(contents));
    }

    fn synced(&mut self, covered: u64) {
        while self.unsynced.front().is_some_and(|&(completion, ..)| completion <= covered) {
            self.unsynced.pop_front();
        }
    }

    /// Cuts the power: every write that no sync has covered is lost.
    pub fn lose_unsynced(&mut self) {
        while let Some((_, block, before)) = self.unsynced.pop_back() {
            match before {
                Some(content) => self.written.insert(block, content),
                None => self.written.remove(&block),
            };
        }
    }

    /// Reads metadata as an audit does.
    pub fn read_bytes(&self, offset: u64, length: u32) -> Vec<u8> {
        let block_size = self.pool.parameters.geometry.block_size;
        let first = offset / u64::from(block_size);
        let blocks = first..first + u64::from(length / block_size);
        blocks.flat_map(|block| self.read(block).to_bytes(block_size).to_vec()).collect()
    }
}

/// Counts of I/O by purpose, as seen from the drive.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct IoCounts {
    /// Writes of records and of the blocks in them.
    pub journal_writes: u64,
    /// Writes to slots, each of one or more blocks.
    pub slot_writes: u64,
    /// Reads of slots, each of one or more blocks.
    pub slot_reads: u64,
    /// Reads of pages of the trees, and at opening of the journal.
    pub metadata_reads: u64,
    /// Writes of pages of the trees and of superblocks.
    pub metadata_writes: u64,
    /// Syncs.
    pub syncs: u64,
}

impl IoCounts {
    /// Sums the commands to the drive.
    pub fn commands(&self) -> u64 {
        let writes = self.journal_writes + self.slot_writes + self.metadata_writes;
        writes + self.slot_reads + self.metadata_reads + self.syncs
    }
}

/// Results of a step.
pub enum Step {
    /// A request is answered; reads have the blocks.
    Reply(u64, Result<Vec<Cells>, Error>),
    /// The engine has opened the pool, or could not.
    Opened(Result<Recovered, OpenError>),
    /// A command is answered.
    Command(bool),
    /// Another event happened.
    Other,
    /// No event is due up to the horizon; the clock stands there.
    Quiet,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Happening {
    Done(IoId),
    Sent(RequestId),
}

struct Flight {
    io: Io,
    /// Contents of a write.
    contents: Vec<Content>,
    /// Count of completions that a sync covers.
    covers: u64,
    begun: Begun,
}

/// Time of the processor in calls of the engine: real time, different on every machine and in every run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Processor {
    /// Calls.
    pub calls: u64,
    /// Nanoseconds in all of them.
    pub nanos: u64,
    /// Nanoseconds in the longest one.
    pub longest: u64,
    /// Calls of more than a millisecond.
    pub long_calls: u64,
}

impl Processor {
    /// Counts one more call, which began when the thread's clock was at `since`.
    fn add(&mut self, since: u64) {
        let nanos = thread_nanos() - since;
        self.calls += 1;
        self.nanos += nanos;
        self.longest = self.longest.max(nanos);
        self.long_calls += u64::from(nanos > 1_000_000);
    }
}

/// Returns the processor time of this thread; other programs do not count.
pub(crate) fn thread_nanos() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

// The calls of the engine that do work, each a function of its own: `tests/instructions` counts the instructions between their entries and exits.

#[inline(never)]
fn handle(engine: &mut Engine, now: Nanos, event: Event<'_>) {
    engine.handle(now, event);
}

#[inline(never)]
fn next_effect(engine: &mut Engine) -> Option<Effect> {
    engine.next_effect()
}

#[inline(never)]
fn take_buffer(engine: &mut Engine) -> Option<BufferId> {
    engine.take_buffer()
}

/// An engine and its drive.
pub struct Machine {
    /// The engine.
    pub engine: Engine,
    /// The clock.
    pub now: Nanos,
    /// The blocks.
    pub store: Store,
    /// Counts of all I/O so far.
    pub io: IoCounts,
    /// Time that the engine takes, if it is measured.
    pub processor: Option<Processor>,
    /// Allocations of the engine, where they are counted ([`crate::allocations`]).
    pub allocations: u64,
    disk: Disk,
    /// Disk of the first blocks of the store, and their number.
    front: Option<(Disk, u64)>,
    /// True if everything except slots is on a device of its own that takes no time: the papers' NVRAM.
    has_nvram: bool,
    /// Causes of the answers.
    pub path: Path,
    calendar: BinaryHeap<Reverse<(Nanos, u64, Happening)>>,
    sequence: u64,
    flights: HashMap<IoId, Flight>,
    buffers: Vec<Cells>,
}

impl Machine {
    /// Begins to open the pool at `now`, with an idle SSD.
    pub fn open(store: Store, limits: Limits, now: Nanos) -> Machine {
        Machine::on(Disk::Ssd(Queue::new(SSD)), false, store, limits, now)
    }

    /// Begins to open the pool at `now`, with an idle disk. With `has_nvram`, I/O outside of slots takes no time, as if that part were in non-volatile
    /// memory.
    pub fn on(disk: Disk, has_nvram: bool, store: Store, limits: Limits, now: Nanos) -> Machine {
        Machine {
            engine: Engine::open(store.pool.parameters, limits, now),
            now,
            store,
            io: IoCounts::default(),
            processor: None,
            allocations: 0,
            disk,
            front: None,
            has_nvram,
            path: Path::default(),
            calendar: BinaryHeap::new(),
            sequence: 0,
            flights: HashMap::new(),
            buffers: vec![ZERO; limits.buffers as usize],
        }
    }

    /// Puts the first `blocks` blocks of the store on a disk of their own, as a concatenation of two devices does. That disk must have no volatile cache: it
    /// gets no syncs.
    pub fn with_front(self, disk: Disk, blocks: u64) -> Machine {
        Machine { front: Some((disk, blocks)), ..self }
    }

    /// Returns the next completion of the disks up to a time.
    fn pop_done(&mut self, now: Nanos) -> Option<Done> {
        let of_front = self.front.as_mut().and_then(|(disk, _)| disk.pop(now));
        of_front.or_else(|| self.disk.pop(now))
    }

    /// Stops the machine. With `keep`, all writes in flight or not covered by a sync are kept; otherwise none.
    pub fn crash(mut self, keep: bool) -> Store {
        if keep {
            // In the order in which they would have completed.
            while let Some(done) = self.pop_done(Nanos::MAX) {
                self.land_at_once(IoId(done.tag as u32));
            }
            while let Some(Reverse((_, _, happening))) = self.calendar.pop() {
                if let Happening::Done(id) = happening {
                    self.land_at_once(id);
                }
            }
            self.store.unsynced.clear();
        } else {
            self.store.lose_unsynced();
        }
        self.store
    }

    fn land_at_once(&mut self, id: IoId) {
        if let Some(flight) = self.flights.remove(&id)
            && flight.io.op.is_write()
        {
            self.store.land(self.block_of(&flight.io), flight.contents);
        }
    }

    /// Takes one effect, or delivers the next event that is due no later than `horizon`.
    pub fn step(&mut self, horizon: Nanos) -> Checked<Step> {
        let before = self.before();
        let effect = next_effect(&mut self.engine);
        self.called(before);
        self.follow_buffers();
        if let Some(effect) = effect {
            return self.perform(effect);
        }
        let calendar = self.calendar.peek().map_or(Nanos::MAX, |Reverse((time, ..))| *time);
        let front = self.front.as_ref().and_then(|(disk, _)| disk.next());
        let disk = self.disk.next().into_iter().chain(front).min().unwrap_or(Nanos::MAX);
        let next = calendar.min(disk);
        let timer = self.engine.next_timer().map_or(Nanos::MAX, |time| time.max(self.now));
        if next.min(timer) > horizon || next.min(timer) == Nanos::MAX {
            if horizon != Nanos::MAX {
                self.now = self.now.max(horizon);
            }
            return Ok(Step::Quiet);
        }
        self.now = self.now.max(next.min(timer));
        if timer < next {
            self.handle(Event::Timer);
            return Ok(Step::Other);
        }
        if disk < calendar {
            // A step of the disk may end without a completion.
            if let Some(done) = self.pop_done(self.now) {
                self.complete(IoId(done.tag as u32), done.breakdown)?;
            }
            return Ok(Step::Other);
        }
        let Some(Reverse((_, _, happening))) = self.calendar.pop() else { return Ok(Step::Quiet) };
        match happening {
            Happening::Done(id) => self.complete(id, Breakdown::default())?,
            Happening::Sent(request) => self.handle(Event::Sent(request)),
        }
        Ok(Step::Other)
    }

    /// Submits a write of whole blocks. Returns false if there are no buffers for it now.
    pub fn write(&mut self, token: u64, submit: Submit<'_>, contents: &[Cells]) -> bool {
        let mut inputs = Vec::with_capacity(contents.len());
        for cells in contents {
            let before = self.before();
            let buffer = take_buffer(&mut self.engine);
            self.called(before);
            let Some(buffer) = buffer else {
                for engine::BlockInput { buffer, .. } in inputs {
                    self.engine.return_buffer(buffer);
                }
                return false;
            };
            self.buffers[buffer.0 as usize] = *cells;
            inputs.push(engine::BlockInput { buffer, content: Some(describe(cells)) });
        }
        let operation = Operation::Write(&inputs);
        self.handle(Event::Submit(Submit { token, operation, ..submit }));
        true
    }

    /// Submits anything but a write.
    pub fn submit(&mut self, submit: Submit<'_>) {
        self.handle(Event::Submit(submit));
    }

    /// Gives the engine a command and waits for its answer.
    pub fn command(&mut self, command: EngineCommand<'_>) -> Checked {
        self.begin_command(command);
        loop {
            match self.step(Nanos::MAX)? {
                Step::Command(true) => return Ok(()),
                Step::Command(false) | Step::Quiet => return violated(format!("{command:?} failed")),
                _ => {}
            }
        }
    }

    /// Gives the engine a command.
    pub fn begin_command(&mut self, command: EngineCommand<'_>) {
        self.handle(Event::Control { token: 0, command });
    }

    /// Steps until the pool is open, and returns the engine's report of the recovery.
    pub fn opened(&mut self) -> Checked<Recovered> {
        loop {
            match self.step(Nanos::MAX)? {
                Step::Opened(Ok(recovered)) => return Ok(recovered),
                Step::Opened(Err(error)) => return violated(format!("the pool cannot be opened: {error:?}")),
                Step::Quiet => return violated("opening does not end"),
                _ => {}
            }
        }
    }

    /// Waits until nothing is in progress, and audits everything. For small pools: the audit reads all of the pool.
    pub fn settle_and_audit(&mut self) -> Checked {
        self.command(EngineCommand::Settle)?;
        while self.engine.next_timer().is_some() || !self.calendar.is_empty() || self.disk.next().is_some() {
            self.step(Nanos::MAX)?;
        }
        let mut findings = Vec::new();
        let store = &self.store;
        let good = self.engine.check(&mut |offset, length| Some(store.read_bytes(offset, length)), &mut |finding| {
            findings.push(finding.to_string());
        });
        if good { Ok(()) } else { violated(format!("audit: {}", findings.join("; "))) }
    }

    /// Follows the engine's number of buffers with space for exactly as many.
    fn follow_buffers(&mut self) {
        let numbers = self.engine.buffer_numbers() as usize;
        if numbers != self.buffers.len() {
            self.buffers.resize(numbers, ZERO);
        }
    }

    fn handle(&mut self, event: Event<'_>) {
        let before = self.before();
        handle(&mut self.engine, self.now, event);
        self.called(before);
        self.follow_buffers();
    }

    /// Reads the thread's clock, if the processor is measured, and the count of allocations, before a call of the engine.
    fn before(&self) -> (Option<u64>, u64) {
        (self.processor.map(|_| thread_nanos()), allocations::count())
    }

    fn called(&mut self, (since, allocations): (Option<u64>, u64)) {
        self.allocations += allocations::count() - allocations;
        if let (Some(processor), Some(since)) = (&mut self.processor, since) {
            processor.add(since);
        }
    }

    fn schedule(&mut self, at: Nanos, happening: Happening) {
        self.sequence += 1;
        self.calendar.push(Reverse((at, self.sequence, happening)));
    }

    fn block_of(&self, io: &Io) -> u64 {
        io.offset / self.store.pool.parameters.geometry.block()
    }

    fn perform(&mut self, effect: Effect) -> Checked<Step> {
        match effect {
            Effect::Io(id) => {
                self.begin(id)?;
                Ok(Step::Other)
            }
            Effect::Reply { token, result } => {
                let result = match result {
                    Ok(Reply::Data(request)) => {
                        let block = |buffer: Option<BufferId>| buffer.map_or(ZERO, |id| self.buffers[id.0 as usize]);
                        let blocks = self.engine.data(request).iter().map(|segment| block(segment.buffer)).collect();
                        self.schedule(self.now + MEMORY_NANOS, Happening::Sent(request));
                        Ok(blocks)
                    }
                    Ok(Reply::Extents(request)) => {
                        self.schedule(self.now + MEMORY_NANOS, Happening::Sent(request));
                        Ok(Vec::new())
                    }
                    Ok(Reply::Done) => Ok(Vec::new()),
                    Err(error) => Err(error),
                };
                Ok(Step::Reply(token, result))
            }
            Effect::ControlReply { result, .. } => Ok(Step::Command(result.is_ok())),
            Effect::Opened(result) => Ok(Step::Opened(result)),
        }
    }

    fn begin(&mut self, id: IoId) -> Checked {
        let io = self.engine.io(id).clone();
        let geometry = self.store.pool.parameters.geometry;
        let block = self.block_of(&io);
        if io.offset + io.length > geometry.total_bytes() {
            return violated(format!("an I/O outside the store: {io:?}"));
        }
        let contents = io.segments.iter().filter(|_| io.op.is_write()).map(|segment| match *segment {
            Segment::Page(page) => Content::Metadata(self.engine.page(page).into()),
            Segment::Buffer(buffer) => Content::Payload(self.buffers[buffer.0 as usize]),
        });
        let contents = contents.collect();
        let (op, purpose) = match io.op {
            IoOp::ReadBlocks => {
                self.io.slot_reads += 1;
                (Op::Read, Purpose::Data)
            }
            IoOp::ReadPages => {
                self.io.metadata_reads += 1;
                (Op::Read, Purpose::Tables)
            }
            IoOp::Write | IoOp::WriteDurable => {
                let in_journal = geometry.journal_start()..geometry.meta_map_start();
                let (count, purpose) = match block {
                    _ if block >= geometry.data_start() => (&mut self.io.slot_writes, Purpose::Data),
                    _ if in_journal.contains(&block) => (&mut self.io.journal_writes, Purpose::Journal),
                    _ => (&mut self.io.metadata_writes, Purpose::Tables),
                };
                *count += 1;
                (Op::Write, purpose)
            }
            IoOp::Sync => {
                self.io.syncs += 1;
                (Op::Flush, Purpose::Journal)
            }
            IoOp::Reserve | IoOp::Discard | IoOp::Merge { .. } | IoOp::Compare => {
                let begun = self.path.begin(self.now, Purpose::Data);
                self.flights.insert(id, Flight { io, contents, covers: 0, begun });
                self.schedule(self.now + MEMORY_NANOS, Happening::Done(id));
                return Ok(());
            }
        };
        let covers = self.store.completions;
        // A sync is for both devices. On one that has nothing to make durable it takes no time.
        let is_instant = self.has_nvram && op != Op::Flush && block < geometry.data_start();
        let command = Command { op, offset: io.offset, bytes: io.length, class: Class::Foreground };
        let begun = self.path.begin(self.now, purpose);
        self.flights.insert(id, Flight { io, contents, covers, begun });
        if is_instant {
            self.schedule(self.now + MEMORY_NANOS, Happening::Done(id));
        } else {
            let front = self.front.as_mut().filter(|(_, blocks)| op != Op::Flush && block < *blocks);
            front.map_or(&mut self.disk, |(disk, _)| disk).submit(self.now, u64::from(id.0), command);
        }
        Ok(())
    }

    /// Returns the statistics of the disk so far, without that of the first blocks.
    pub fn disk(&self) -> Statistics {
        self.disk.statistics()
    }

    fn complete(&mut self, id: IoId, breakdown: Breakdown) -> Checked {
        let Some(Flight { io, contents, covers, begun }) = self.flights.remove(&id) else {
            return violated(format!("{id:?} completes twice"));
        };
        self.path.complete(begun, self.now, breakdown);
        let block = self.block_of(&io);
        let size = self.store.pool.parameters.geometry.block();
        let blocks = block..block + io.length / size;
        let mut found: Vec<BlockContent> = Vec::new();
        let mut bytes = Vec::new();
        let outcome = match io.op {
            IoOp::Write => {
                self.store.land(block, contents);
                Outcome::Complete
            }
            IoOp::WriteDurable => {
                self.store.land_durably(block, contents);
                Outcome::Complete
            }
            IoOp::Sync => {
                self.store.synced(covers);
                Outcome::Complete
            }
            IoOp::Reserve | IoOp::Discard => Outcome::Complete,
            IoOp::ReadPages => {
                for block in blocks {
                    bytes.extend_from_slice(&self.store.read(block).to_bytes(size as u32));
                }
                Outcome::Bytes(&bytes)
            }
            IoOp::ReadBlocks => {
                for (block, segment) in blocks.zip(&io.segments) {
                    let Segment::Buffer(buffer) = *segment else { return violated("a page among blocks") };
                    let cells = self.store.read(block).to_cells();
                    self.buffers[buffer.0 as usize] = cells;
                    found.push(describe(&cells));
                }
                Outcome::Blocks(&found)
            }
            // A copy: nothing of the first buffer's old content stays.
            IoOp::Merge { from: 0, to: 0, zero: false } => {
                let [Segment::Buffer(into), Segment::Buffer(from)] = io.segments[..] else {
                    return violated(format!("not two buffers: {io:?}"));
                };
                self.buffers[into.0 as usize] = self.buffers[from.0 as usize];
                found.push(describe(&self.buffers[into.0 as usize]));
                Outcome::Blocks(&found)
            }
            IoOp::Merge { .. } | IoOp::Compare => {
                return violated(format!("whole blocks need no {io:?}"));
            }
        };
        self.handle(Event::Done { io: id, result: Ok(outcome) });
        Ok(())
    }
}
