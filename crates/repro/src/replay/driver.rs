//! Event loop of a replay. A request arrives at its trace time, waits for the processor, for index lookups and for the disk, and is answered.
//!
//! Acknowledgement follows the papers: a request is answered when its data is on the disk and its metadata in NVRAM.
//!
//! [`Submitters`] selects the submitting threads. When no request was in flight for [`IDLE`], the scheme may write the blocks of split reads home.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use engine::Nanos;

use super::in_place::{Extent, InPlace, Layout, Plan};
use super::outcome::{Outcome, Parts};
use crate::traces::{BLOCK, Request};
use sim::disks::{Breakdown, Class, Command, Disk, Op, Tag};

/// Tag of background commands, for which no request waits.
const NOBODY: Tag = Tag::MAX;
/// Tag of commands that write the blocks of a split read home.
const HOME: Tag = Tag::MAX - 1;

/// Time without requests in flight after which the disks are idle; it also separates bursts (docs/papers/data.md). [D]
pub const IDLE: Nanos = 100_000_000;

/// Threads that submit requests to the scheme.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Submitters {
    /// One thread, as in a trace replayer: it computes the digests of a write, and it sleeps in md while a write waits for a row of the stripe cache. All later
    /// requests wait for it, reads also.
    One,
    /// A thread for each request: only the digests are computed one after the other.
    Many,
}

/// Rule that maps addresses of the trace to a smaller disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fold {
    /// Addresses behind the end begin at the front again.
    Wrap,
    /// Regions of 1 MiB are moved together, in their order; `span` is one more than the last block of the trace.
    Squeeze {
        /// Blocks of the trace.
        span: u64,
    },
}

impl Fold {
    /// Maps a request to an address within `data` blocks; a longer request is cut.
    pub fn fold(self, request: &mut Request, data: u64) {
        const REGION: u64 = 256;
        if let Fold::Squeeze { span } = self
            && span > data
        {
            let (regions, space) = (span.div_ceil(REGION), (data / REGION).max(1));
            let region = (u128::from(request.block / REGION) * u128::from(space) / u128::from(regions)) as u64;
            request.block = region * REGION + request.block % REGION;
        }
        // A disk may be smaller than a single request.
        request.blocks = u64::from(request.blocks).min(data) as u32;
        request.contents.truncate(request.blocks as usize);
        request.block %= data;
        request.block = request.block.min(data - u64::from(request.blocks));
    }
}

/// Parameters that all requests of a replay share.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Setup {
    /// Time of the processor for the digest of a block.
    pub digest: Nanos,
    /// Arrival rate relative to the trace, in thousandths.
    pub speed: u64,
    /// Rule that maps the addresses of the trace to a smaller disk.
    pub fold: Fold,
    /// The length of a stretch of the time series.
    pub stretch: Nanos,
    /// No request that comes after this is looked at, in the trace's time from its beginning.
    pub until: Nanos,
    /// True if the replay ends when the array is rebuilt.
    pub until_rebuilt: bool,
    /// Threads that submit.
    pub submitters: Submitters,
}

impl Default for Setup {
    /// Returns the paper's setup: 32 us for a digest, the trace's own times.
    fn default() -> Setup {
        Setup {
            digest: 32_000,
            speed: 1000,
            fold: Fold::Wrap,
            stretch: 600_000_000_000,
            until: Nanos::MAX,
            until_rebuilt: false,
            submitters: Submitters::Many,
        }
    }
}

/// Stage that a request waits in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Processor,
    Lookups,
    Data,
}

struct Flight {
    at: Nanos,
    writes: bool,
    plan: Plan,
    /// Commands in progress.
    waits_for: usize,
    /// Time at which the present stage began, and time at which the first of its commands completed.
    since: Nanos,
    first: Option<Nanos>,
    stage: Stage,
    parts: Parts,
}

/// A replay in progress.
pub struct Replay<'a> {
    scheme: &'a mut InPlace,
    layout: Layout,
    disk: &'a mut Disk,
    setup: Setup,
    now: Nanos,
    processor_free: Nanos,
    /// Requests that the processor has done with then.
    digested: BinaryHeap<Reverse<(Nanos, usize)>>,
    /// Requests that wait for the one submitter, and whether it computes digests.
    line: VecDeque<Request>,
    is_digesting: bool,
    /// Time of the last answer.
    answered: Nanos,
    /// Commands in progress that write a split read home, and the writes that follow its reads.
    home: (usize, Vec<Extent>),
    flights: Vec<Option<Flight>>,
    unused: Vec<usize>,
    outcome: Outcome,
}

impl<'a> Replay<'a> {
    /// Creates a replay of a scheme over an idle disk.
    pub fn new(scheme: &'a mut InPlace, layout: Layout, disk: &'a mut Disk, setup: Setup) -> Replay<'a> {
        let mut outcome = Outcome::new(setup.stretch);
        outcome.used_before = scheme.used_blocks();
        Replay {
            scheme,
            layout,
            disk,
            setup,
            now: 0,
            processor_free: 0,
            digested: BinaryHeap::new(),
            line: VecDeque::new(),
            is_digesting: false,
            answered: 0,
            home: (0, Vec::new()),
            flights: Vec::new(),
            unused: Vec::new(),
            outcome,
        }
    }

    /// Replays all requests of a trace until each is answered. The trace's clock begins with its first request.
    pub fn run<E>(mut self, trace: impl Iterator<Item = Result<Request, E>>) -> Result<Outcome, E> {
        let mut begin = None;
        for request in trace {
            let mut request = request?;
            let since = request.at.saturating_sub(*begin.get_or_insert(request.at));
            if since > self.setup.until {
                break;
            }
            request.at = (u128::from(since) * 1000 / u128::from(self.setup.speed.max(1))) as Nanos;
            // Traces of several processors are now and then a little out of order.
            request.at = request.at.max(self.now);
            self.setup.fold.fold(&mut request, self.layout.data);
            self.advance(request.at);
            if self.setup.until_rebuilt && self.disk.rebuilt().is_some() {
                break;
            }
            self.arrive(request);
        }
        self.advance(Nanos::MAX);
        self.outcome.end(self.now, self.scheme, self.disk);
        Ok(self.outcome)
    }

    /// Lets everything happen that is due by `until`.
    fn advance(&mut self, until: Nanos) {
        loop {
            let digested = self.digested.peek().map_or(Nanos::MAX, |Reverse((at, _))| *at);
            let disk = self.disk.next().unwrap_or(Nanos::MAX);
            let idle = if until == Nanos::MAX { Nanos::MAX } else { self.idle_from() };
            let next = digested.min(disk).min(idle);
            if next > until || next == Nanos::MAX {
                break;
            }
            self.now = self.now.max(next);
            if digested <= disk.min(idle) {
                if let Some(Reverse((_, at))) = self.digested.pop() {
                    self.is_digesting = false;
                    self.enter(at);
                }
            } else if disk <= idle {
                while let Some(done) = self.disk.pop(self.now) {
                    match done.tag {
                        NOBODY => {}
                        HOME => self.home_step(),
                        tag => self.completed(tag as usize, done.breakdown),
                    }
                }
            } else {
                self.relinearise();
            }
            self.serve();
        }
        if until != Nanos::MAX {
            self.now = until;
        }
    }

    /// Returns the time at which the idle work may start, [`IDLE`] after the last answer; never, if requests are in flight or no read was
    /// split.
    fn idle_from(&self) -> Nanos {
        let in_progress = self.flights.len() - self.unused.len() + self.line.len() + self.home.0;
        if in_progress > 0 || !self.scheme.has_split() { Nanos::MAX } else { (self.answered + IDLE).max(self.now) }
    }

    /// Begins to write one split read home.
    fn relinearise(&mut self) {
        let (reads, writes) = self.scheme.relinearise();
        self.home = (0, writes);
        self.submit_home(Op::Read, &reads);
        if reads.is_empty() {
            self.write_home();
        }
    }

    fn write_home(&mut self) {
        let writes = std::mem::take(&mut self.home.1);
        self.submit_home(Op::Write, &writes);
    }

    fn submit_home(&mut self, op: Op, extents: &[Extent]) {
        self.home.0 += extents.len();
        for &extent in extents {
            let command = self.command(op, extent, Class::Background);
            self.disk.submit(self.now, HOME, command);
        }
    }

    fn home_step(&mut self) {
        self.home.0 -= 1;
        if self.home.0 == 0 {
            self.write_home();
        }
    }

    fn arrive(&mut self, request: Request) {
        self.outcome.arrived(self.now, self.scheme.index_share());
        match self.setup.submitters {
            Submitters::Many => self.take(request),
            Submitters::One => {
                self.line.push_back(request);
                self.serve();
            }
        }
    }

    /// Lets the one submitter take requests until it computes digests or sleeps.
    fn serve(&mut self) {
        while !self.is_digesting
            && !self.disk.is_full()
            && let Some(request) = self.line.pop_front()
        {
            self.take(request);
        }
    }

    /// Takes a request that arrived in time: plans its work, and queues its digests.
    fn take(&mut self, request: Request) {
        let plan = self.scheme.request(self.now, &request);
        let digests = plan.digests;
        let flight = Flight {
            at: request.at,
            writes: request.writes,
            plan,
            waits_for: 0,
            since: self.now,
            first: None,
            stage: Stage::Processor,
            parts: Parts { waiting: self.now - request.at, ..Parts::default() },
        };
        let at = self.unused.pop().unwrap_or(self.flights.len());
        if at == self.flights.len() {
            self.flights.push(Some(flight));
        } else {
            self.flights[at] = Some(flight);
        }
        if digests == 0 {
            return self.enter(at);
        }
        self.is_digesting = self.setup.submitters == Submitters::One;
        self.processor_free = self.processor_free.max(self.now) + digests * self.setup.digest;
        self.digested.push(Reverse((self.processor_free, at)));
    }

    /// Moves a request to its next stage: lookups in the index, then its reads or writes, then the answer.
    fn enter(&mut self, at: usize) {
        let Some(flight) = &mut self.flights[at] else { return };
        if flight.stage == Stage::Processor {
            flight.parts.processor = self.now - flight.since;
            flight.stage = Stage::Lookups;
            let lookups = std::mem::take(&mut flight.plan.lookups);
            if !lookups.is_empty() {
                return self.submit(at, Op::Read, &lookups);
            }
        }
        flight.stage = Stage::Data;
        let background = std::mem::take(&mut flight.plan.background);
        let (op, extents) = match flight.writes {
            true => (Op::Write, std::mem::take(&mut flight.plan.writes)),
            false => (Op::Read, std::mem::take(&mut flight.plan.reads)),
        };
        if extents.is_empty() {
            self.answer(at);
        } else {
            self.submit(at, op, &extents);
        }
        for (op, extent) in background {
            let command = self.command(op, extent, Class::Background);
            self.disk.submit(self.now, NOBODY, command);
        }
    }

    fn submit(&mut self, at: usize, op: Op, extents: &[Extent]) {
        if let Some(flight) = &mut self.flights[at] {
            (flight.waits_for, flight.since, flight.first) = (extents.len(), self.now, None);
        }
        for &extent in extents {
            let command = self.command(op, extent, Class::Foreground);
            self.disk.submit(self.now, at as Tag, command);
        }
    }

    fn command(&self, op: Op, extent: Extent, class: Class) -> Command {
        // Each relocation takes a new spare place. A scheme with more relocations than the spare area has space for begins again at its front.
        let total = self.layout.blocks();
        let block = if extent.block < total {
            extent.block
        } else {
            self.layout.data + extent.block % self.layout.spare.max(1)
        };
        let block = block.min(total.saturating_sub(extent.blocks));
        Command { op, offset: block * BLOCK, bytes: extent.blocks * BLOCK, class }
    }

    fn completed(&mut self, at: usize, breakdown: Breakdown) {
        let Some(flight) = &mut self.flights[at] else { return };
        flight.waits_for -= 1;
        let first = *flight.first.get_or_insert(self.now);
        if flight.waits_for > 0 {
            return;
        }
        if flight.stage == Stage::Lookups {
            flight.parts.lookup = self.now - flight.since;
            return self.enter(at);
        }
        if flight.plan.splits > 0 {
            flight.parts.splits = self.now - first;
        }
        flight.parts.disk = breakdown;
        self.answer(at);
    }

    fn answer(&mut self, at: usize) {
        if let Some(flight) = self.flights[at].take() {
            self.answered = self.now;
            self.outcome.answered(self.now, flight.at, flight.writes, flight.parts);
            self.unused.push(at);
        }
    }
}
