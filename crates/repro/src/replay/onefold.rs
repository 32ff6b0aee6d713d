//! Replay through Onefold itself: the engine with its log, journal and tables, on the same disks and with the same memory as the papers' schemes.
//!
//! Two rules of acknowledgement are available. *Through*: every write is answered when it is durable, as in the papers. *Back*: a write is answered from
//! memory, as by a server whose clients request no flush. Metadata outside the slots is on the same disks, or in NVRAM as in the papers.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::rc::Rc;

use engine::policy::IndexCopy;
use engine::{CacheKey, Command, DeviceKind, Geometry, Limits, Nanos, Operation, Policy, PoolChange, Submit};

use super::driver::Setup;
use super::outcome::{Outcome, Parts};
use crate::traces::{BLOCK, ContentId, Request, ZEROES};
use sim::content::{CELLS, Cells, ZERO};
use sim::disks::{Disk, Instant};
use sim::timed;
use sim::timed::machine::{Machine, Step, Store};
use sim::timed::pool::VOLUME;
use sim::{Checked, Violation, violated};

/// Time for the index to be filled from the disks after opening.
const FILLS: Nanos = 12 * 3600 * 1_000_000_000;

/// Configuration of Onefold in a figure.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Onefold {
    /// True if every write is answered only when it is durable.
    pub through: bool,
    /// True if journal and tables are in non-volatile memory.
    pub nvram: bool,
    /// Disk of the first part of the store, if it has one of its own.
    pub front: Option<Front>,
}

/// Disk before the array, in one device with it. It has the beginning of the store.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Front {
    /// A hard disk like those of the array, with superblocks and journal.
    JournalOnHdd,
    /// An SSD with superblocks and journal.
    JournalOnSsd,
    /// An SSD with everything except the slots.
    TablesOnSsd,
}

impl Front {
    /// Returns the name of its model.
    fn spec(self) -> &'static str {
        match self {
            Front::JournalOnHdd => "hdd:wd1600aajs,write-cache=off",
            Front::JournalOnSsd | Front::TablesOnSsd => "ssd",
        }
    }

    /// Returns the number of blocks on it.
    fn blocks(self, geometry: &Geometry) -> u64 {
        match self {
            Front::JournalOnHdd | Front::JournalOnSsd => geometry.meta_map_start(),
            Front::TablesOnSsd => geometry.data_start(),
        }
    }
}

impl Onefold {
    /// Returns the name that tables use.
    pub fn name(self) -> &'static str {
        match (self.through, self.nvram, self.front) {
            (true, true, _) => "Onefold, durable writes, NVRAM",
            (true, false, None) => "Onefold, durable writes",
            (true, false, Some(Front::JournalOnHdd)) => "Onefold, durable writes, journal on a hard disk",
            (true, false, Some(Front::JournalOnSsd)) => "Onefold, durable writes, journal on an SSD",
            (true, false, Some(Front::TablesOnSsd)) => "Onefold, durable writes, journal and tables on an SSD",
            (false, true, _) => "Onefold, NVRAM",
            (false, false, None) => "Onefold",
            (false, false, Some(Front::JournalOnHdd)) => "Onefold, journal on a hard disk",
            (false, false, Some(Front::JournalOnSsd)) => "Onefold, journal on an SSD",
            (false, false, Some(Front::TablesOnSsd)) => "Onefold, journal and tables on an SSD",
        }
    }
}

/// Settings of the pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Pool {
    /// Policy of the pool; if absent, that of a new pool.
    pub policy: Option<Policy>,
    /// Key by which the read cache finds blocks.
    pub cache_key: CacheKey,
    /// Copy that the index names after a known block is written again; none: the default of a new pool.
    pub index_copy: Option<IndexCopy>,
    /// Kind of device that the disk is declared as.
    pub device: DeviceKind,
    /// Maximum bytes of replicas, if given.
    pub replicas: Option<u64>,
}

/// Engine state after the warm-up writes.
pub struct Warmed {
    store: Store,
    limits: Limits,
    data: u64,
}

impl Warmed {
    /// Creates a pool on disks of `capacity` bytes, with one volume of three quarters of them that is written in order, and then replays
    /// some days of a trace.
    pub fn new<E: ToString>(
        capacity: u64,
        memory: u64,
        setup: Setup,
        set: Pool,
        trace: impl Iterator<Item = Result<Request, E>>,
    ) -> Checked<Warmed> {
        let (volume, spare) = (capacity / 4 * 3 / (1 << 30) * (1 << 30), capacity / 5);
        let pool = timed::pool::Pool::new(volume, spare)
            .map_err(|why| Violation(format!("no pool of {capacity} bytes: {why}")))?;
        let data = pool.mapped;
        let limits = Limits::for_memory(memory, &pool.parameters.geometry)
            .map_err(|needed| Violation(format!("Onefold needs {needed} bytes of memory for such a pool")))?;
        let mut machine = Machine::on(Disk::Instant(Instant::default()), false, Store::new(Rc::new(pool)), limits, 0);
        machine.opened()?;
        if set != Pool::default() {
            machine.command(Command::SetPool(PoolChange {
                policy: Some(set.policy),
                cache_key: Some(set.cache_key),
                index_copy: set.index_copy,
                device: Some(set.device),
                replicas: Some(set.replicas),
                ..PoolChange::default()
            }))?;
        }
        let setup = Setup { digest: 0, ..setup };
        let how = Onefold { through: false, nvram: false, front: None };
        let (machine, _) = Clients::new(machine, data, setup, how).run(trace)?;
        let store = machine.crash(true);
        Ok(Warmed { store, limits, data })
    }

    /// Replays a day of a trace from this state.
    pub fn replay<E: ToString>(
        &self,
        how: Onefold,
        disk: Disk,
        setup: Setup,
        trace: impl Iterator<Item = Result<Request, E>>,
    ) -> Checked<Outcome> {
        let mut machine = Machine::on(disk, how.nvram, self.store.clone(), self.limits, 0);
        if let Some(front) = how.front {
            let blocks = front.blocks(&self.store.pool.parameters.geometry);
            machine = machine.with_front(Disk::from_spec(front.spec()).map_err(Violation)?, blocks);
        }
        machine.opened()?;
        // The index is refilled after opening, without load. The day begins when it is full.
        let morning = machine.now + FILLS;
        while !matches!(machine.step(morning)?, Step::Quiet) {}
        let before = machine.disk();
        let used_before = machine.engine.status().data_blocks_used;
        let (machine, mut outcome) = Clients::new(machine, self.data, setup, how).run(trace)?;
        let status = machine.engine.status();
        (outcome.used_before, outcome.used_blocks) = (used_before, status.data_blocks_used);
        outcome.from_copies = status.replicate.places.copies;
        outcome.disk = machine.disk().since(&before);
        outcome.end = machine.now;
        Ok(outcome)
    }
}

struct InProgress {
    request: Request,
    since: Nanos,
    processor: Nanos,
    /// Pieces that are not answered yet.
    pieces: u64,
    /// Time at which the engine took the last piece.
    taken: Nanos,
}

struct Clients {
    machine: Machine,
    data: u64,
    setup: Setup,
    how: Onefold,
    /// Time at which the trace's clock began.
    begin: Nanos,
    processor_free: Nanos,
    /// Digested then: when, and which of `in_progress`.
    digested: BinaryHeap<Reverse<(Nanos, u64)>>,
    /// Pieces of requests that are digested, and that the engine has no space for yet: the request, and the piece's first block in it.
    blocked: VecDeque<(u64, u64)>,
    in_progress: HashMap<u64, InProgress>,
    /// Maximum blocks that the engine takes at once.
    piece: u64,
    next_token: u64,
    outcome: Outcome,
}

impl Clients {
    fn new(machine: Machine, data: u64, setup: Setup, how: Onefold) -> Clients {
        let begin = machine.now;
        let piece = u64::from(machine.store.pool.parameters.geometry.piece_blocks);
        Clients {
            machine,
            data,
            setup,
            how,
            begin,
            processor_free: 0,
            digested: BinaryHeap::new(),
            blocked: VecDeque::new(),
            in_progress: HashMap::new(),
            piece,
            next_token: 1,
            outcome: Outcome::new(setup.stretch),
        }
    }

    fn run<E: ToString>(mut self, trace: impl Iterator<Item = Result<Request, E>>) -> Checked<(Machine, Outcome)> {
        let counts = self.machine.engine.write_counts();
        let reads = self.machine.engine.read_counts();
        let mut first = None;
        for request in trace {
            let mut request = request.map_err(|error| Violation(error.to_string()))?;
            let since = request.at.saturating_sub(*first.get_or_insert(request.at));
            if since > self.setup.until {
                break;
            }
            let at = self.begin + (u128::from(since) * 1000 / u128::from(self.setup.speed.max(1))) as Nanos;
            self.setup.fold.fold(&mut request, self.data);
            self.advance(at)?;
            self.arrive(request);
        }
        while !self.in_progress.is_empty() {
            let next = self.digested.peek().map_or(Nanos::MAX, |Reverse((at, _))| *at);
            if next == Nanos::MAX {
                self.step(Nanos::MAX)?;
            } else {
                self.advance(next)?;
            }
        }
        let (now, then) = (self.machine.engine.write_counts(), counts);
        let outcome = &mut self.outcome;
        outcome.counts.write_requests = now.requests - then.requests;
        outcome.counts.removed_requests = now.removed.requests - then.removed.requests;
        outcome.counts.shared_blocks = now.removed.blocks - then.removed.blocks;
        // The engine counts blocks by their outcome.
        outcome.counts.written_blocks = now.written_blocks - then.written_blocks + now.zero_blocks - then.zero_blocks
            + outcome.counts.shared_blocks;
        let (now, then) = (self.machine.engine.read_counts(), reads);
        outcome.counts.read_requests = now.requests - then.requests;
        outcome.counts.split_reads = now.split - then.split;
        Ok((self.machine, self.outcome))
    }

    /// Processes all events up to a time, and submits the requests that are digested by then.
    fn advance(&mut self, until: Nanos) -> Checked {
        loop {
            let next = self.digested.peek().map_or(Nanos::MAX, |Reverse((at, _))| *at);
            if next > until {
                while !self.step(until)? {}
                return Ok(());
            }
            while !self.step(next)? {}
            if let Some(Reverse((_, token))) = self.digested.pop() {
                if let Some(in_progress) = self.in_progress.get_mut(&token) {
                    let blocks = u64::from(in_progress.request.blocks.max(1));
                    in_progress.pieces = blocks.div_ceil(self.piece);
                    self.blocked.extend((0..blocks).step_by(self.piece as usize).map(|first| (token, first)));
                }
                self.submit_blocked();
            }
        }
    }

    /// Advances the machine by one step; returns true if nothing is due any more.
    fn step(&mut self, horizon: Nanos) -> Checked<bool> {
        match self.machine.step(horizon)? {
            Step::Quiet if horizon == Nanos::MAX => violated("requests are in flight, and nothing happens any more"),
            Step::Quiet => Ok(true),
            Step::Reply(token, result) => {
                if let Err(error) = result {
                    return violated(format!("a request failed: {error:?}"));
                }
                self.answered(token)?;
                self.submit_blocked();
                Ok(false)
            }
            _ => {
                self.submit_blocked();
                Ok(false)
            }
        }
    }

    /// Counts a piece of a request as answered, and the request when it was the last piece.
    fn answered(&mut self, token: u64) -> Checked {
        let Some(in_progress) = self.in_progress.get_mut(&token) else {
            return violated(format!("request {token} is answered twice"));
        };
        in_progress.pieces -= 1;
        if in_progress.pieces == 0
            && let Some(in_progress) = self.in_progress.remove(&token)
        {
            let InProgress { since, processor, taken, .. } = in_progress;
            let waited = self.machine.path.waited(taken, self.machine.now);
            let parts = Parts {
                processor,
                lookup: waited.tables,
                journal: waited.journal,
                waiting: taken - since - processor + waited.other,
                disk: waited.data,
                splits: 0,
            };
            let (at, since) = (self.machine.now - self.begin, since - self.begin);
            self.outcome.answered(at, since, in_progress.request.writes, parts);
        }
        Ok(())
    }

    fn arrive(&mut self, request: Request) {
        let now = self.machine.now;
        let digests = if request.writes { u64::from(request.blocks) } else { 0 };
        let ready = match digests {
            0 => now,
            _ => {
                self.processor_free = self.processor_free.max(now) + digests * self.setup.digest;
                self.processor_free
            }
        };
        self.outcome.arrived(now - self.begin, 0);
        let token = self.next_token;
        self.next_token += 1;
        self.in_progress
            .insert(token, InProgress { request, since: now, processor: ready - now, pieces: 0, taken: ready });
        self.digested.push(Reverse((ready, token)));
    }

    /// Submits blocked pieces in order while the engine has space.
    fn submit_blocked(&mut self) {
        while let Some(&(token, first)) = self.blocked.front()
            && self.machine.engine.can_submit()
        {
            let Some(InProgress { request, .. }) = self.in_progress.get(&token) else { break };
            let blocks = self.piece.min(u64::from(request.blocks) - first);
            let submit = Submit {
                token,
                volume: VOLUME,
                offset: (request.block + first) * BLOCK,
                length: blocks * BLOCK,
                fua: self.how.through && request.writes,
                operation: Operation::Read { object: 0 },
            };
            if request.writes {
                let content = |at: u64| match request.contents.get(at as usize) {
                    Some(&content) => cells(content),
                    // The trace has no contents: each block is new.
                    None => cells(1 << 60 | token << 20 | at),
                };
                let contents: Vec<Cells> = (first..first + blocks).map(content).collect();
                if !self.machine.write(token, submit, &contents) {
                    return;
                }
            } else {
                self.machine.submit(submit);
            }
            self.blocked.pop_front();
            if let Some(in_progress) = self.in_progress.get_mut(&token) {
                in_progress.taken = self.machine.now;
            }
        }
    }
}

/// Returns a block that holds a content.
fn cells(content: ContentId) -> Cells {
    if content == ZEROES {
        return ZERO;
    }
    // Numbers are below 2^26; those above belong to blocks that imitate metadata.
    let part = |shift: u32| (content >> shift) as u32 & 0x3f_ffff;
    let mut cells = [0; CELLS];
    (cells[0], cells[1], cells[2], cells[3]) = (1, part(0), part(22), part(44));
    cells
}
