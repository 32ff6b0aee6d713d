//! Replay of a trace on one disk, with the three techniques or without: it measures the read time.
//!
//! Requests arrive at their times, divided by the speed factor. When the disk has the maximum number of commands of the replay tool, the next request waits,
//! and so do all that follow it. State changes when a request arrives, and the disk's time passes after that. Writes go through to their addresses and fill the
//! cache.
//!
//! *Service time* is the time in which the disk works on reads, with merged commands counted once: from dispatch to completion in blktrace's terms. *Response
//! time* begins when a read is given to the block layer and ends with its last block. It includes the wait in the queue.

use std::sync::Arc;

use engine::Nanos;

use super::cache::{Block, Counts, Fill, Key, Knowledge, Names, SecondLevel};
use super::dispatch::Sweep;
use super::image::Image;
use super::places::Places;
use super::zones::{Task, ZONES, Zones, is_scratch};
use super::{PLACES_EACH, content_blocks};
use crate::flash_cache::policies::Policy;
use crate::replay::lru::Numbers;
use crate::traces::{BLOCK, ContentId, Request};
use sim::disks::drive::Drive;
use sim::disks::hdd::{Hdd, Options};
use sim::disks::{Class, Command, Disk, Done, Op, Tag};

/// Maximum commands in progress. [D]
const DEPTH: usize = 128;
/// A digest on the paper's machine: 100,000 cycles at 2 GHz.
const DIGEST: Nanos = 50_000;

/// Maximum number of candidate places of a request whose place is chosen at dispatch. [D]
const MOST_PLACES: usize = 16;

/// Places that retrieval knows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tracker {
    /// Places of earlier reads and writes, up to the size of the tables.
    Seen,
    /// All of the disk, as after a scan, without bound. An ablation.
    Disk,
}

/// Moment at which the place of a read is chosen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Choice {
    /// At arrival of the read, by the end of the last completed read: the slides'.
    Arrival,
    /// At dispatch of the read by the scheduler: the slides' future work. An ablation.
    Dispatch,
}

/// Techniques and parameters of a replay.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Setup {
    /// A cache by this, if there is one.
    pub cache: Option<Key>,
    /// Sectors of which a cache by content knows the content.
    pub knowledge: Knowledge,
    /// Requests whose blocks enter the cache.
    pub fill: Fill,
    /// True if the nearest copy is read.
    pub retrieval: bool,
    /// Places that retrieval knows.
    pub tracker: Tracker,
    /// Time at which it chooses.
    pub choice: Choice,
    /// True if popular runs are copied.
    pub duplication: bool,
    /// Bytes of the cache; the tables of known places are as large without one.
    pub memory: u64,
    /// Speed factor, against the rate of the trace.
    pub speed: u64,
    /// Scale: the trace has one part in N of the paper's amounts.
    pub part: u64,
    /// An epoch of the trace's own time.
    pub epoch: Nanos,
}

/// Results of a replay.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Outcome {
    /// Requests to read.
    pub requests: u64,
    /// Blocks of them, and those found in the cache.
    pub blocks: u64,
    /// See `blocks`.
    pub hits: u64,
    /// Reads of the disk.
    pub commands: u64,
    /// Reads of the disk that went elsewhere than to their own address, and those of them that went to a scratch zone.
    pub redirected: u64,
    /// See `redirected`.
    pub from_scratch: u64,
    /// Distance in blocks between the head, as the layer knows it, and each read: the sum.
    pub distance: u64,
    /// Blocks written to scratch zones.
    pub copied: u64,
    /// Commands that waited or were served when a read of the disk came: the sum.
    pub depth: u64,
    /// Parts of the service time of reads: the seek, and the wait for the platter to turn.
    pub seek: Nanos,
    /// See `seek`.
    pub rotation: Nanos,
    /// Reads of the disk that neither moved the arm nor waited for the platter: the drive had read ahead, or reads were merged.
    pub buffered: u64,
    /// Time in which the disk worked on anything, reading ahead left out.
    pub busy: Nanos,
    /// Time at which the disk had completed its last command, or the last request came if that was later.
    pub end: Nanos,
    /// Time in which the disk worked on reads.
    pub service: Nanos,
    /// Time from request to answer, summed over reads.
    pub response: Nanos,
}

impl Outcome {
    /// Returns the seconds of service, times `part`, as the paper's trace has `part` times as much.
    pub fn service_s(&self, part: u64) -> f64 {
        self.service as f64 / 1e9 * part as f64
    }

    /// Returns the mean milliseconds of service of a read of the disk.
    pub fn service_ms(&self) -> f64 {
        self.service as f64 / 1e6 / self.commands.max(1) as f64
    }

    /// Returns the mean number of commands that a read of the disk found there.
    pub fn mean_depth(&self) -> f64 {
        self.depth as f64 / self.commands.max(1) as f64
    }

    /// Returns the percentage of the time in which the disk worked.
    pub fn busy_percent(&self) -> f64 {
        100.0 * self.busy as f64 / self.end.max(1) as f64
    }

    /// Returns the mean milliseconds until an answer.
    pub fn response_ms(&self) -> f64 {
        self.response as f64 / 1e6 / self.requests.max(1) as f64
    }
}

/// Reason why a command is in progress.
#[derive(Clone, Copy, Debug)]
enum Cause {
    /// A read: of which request.
    Read { request: usize },
    /// A write of the trace.
    Write,
}

#[derive(Clone, Copy, Debug)]
struct Pending {
    cause: Cause,
    /// Place of the read or write: its own address until it is dispatched elsewhere.
    first: u64,
    end: u64,
    home: u64,
}

/// A read that is not answered yet.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    since: Nanos,
    commands: u32,
    digests: Nanos,
}

/// A cache, and the numbers of addresses and of contents.
struct Cached {
    cache: SecondLevel,
    sectors: Names,
    contents: Names,
}

impl Cached {
    fn new(requests: &[Request], setup: &Setup, key: Key) -> Cached {
        let (mut sectors, mut contents) = (Names::default(), Names::default());
        for request in requests {
            for (at, &content) in request.contents.iter().enumerate() {
                sectors.number(request.block + at as u64);
                contents.number(content);
            }
        }
        let blocks = if key == Key::Sector { setup.memory / BLOCK } else { content_blocks(setup.memory) };
        let counts = Counts { sectors: sectors.count(), contents: contents.count() };
        let cache = SecondLevel::new(key, setup.knowledge, Policy::Arc, counts, blocks).filled_by(setup.fill);
        Cached { cache, sectors, contents }
    }

    fn access(&mut self, is_written: bool, block: u64, content: ContentId) -> bool {
        let (sector, content) = (self.sectors.number(block), self.contents.number(content));
        self.cache.access(Block { is_written, sector, content })
    }
}

struct Replay<'a> {
    setup: &'a Setup,
    disk: Disk,
    cache: Option<Cached>,
    places: Places,
    zones: Zones,
    disk_blocks: u64,
    /// Requests to the disk in progress, by number.
    pending: Numbers<Pending>,
    /// Requests that wait in the layer's own scheduler, and the requests that it has submitted to the disk as one command.
    sweep: Sweep<u64>,
    given: Vec<u64>,
    depth: usize,
    next: Tag,
    waiting: Numbers<Waiting>,
    /// The block after the last read that has completed, and after the last command that was given.
    head: u64,
    last_end: u64,
    last_served: Nanos,
    outcome: Outcome,
}

/// Replays requests with contents on a disk that has an image before them.
pub fn replay(requests: &[Request], image: &Image, setup: &Setup) -> Outcome {
    let drive = Drive::wd1600aajs_like();
    let disk_blocks = drive.capacity() / BLOCK;
    let mut replay = Replay {
        setup,
        disk: Disk::Hdd(Box::new(Hdd::new(Arc::new(drive), Options::default()))),
        cache: setup.cache.map(|key| Cached::new(requests, setup, key)),
        places: places(image, setup),
        zones: Zones::new(disk_blocks, setup.part),
        disk_blocks,
        pending: Numbers::default(),
        sweep: Sweep::default(),
        given: Vec::new(),
        depth: 0,
        next: 0,
        waiting: Numbers::default(),
        head: 0,
        last_end: 0,
        last_served: 0,
        outcome: Outcome::default(),
    };
    replay.run(requests);
    replay.outcome
}

fn places(image: &Image, setup: &Setup) -> Places {
    if setup.tracker == Tracker::Seen {
        return Places::new((content_blocks(setup.memory) * PLACES_EACH) as usize);
    }
    let mut places = Places::new(usize::MAX);
    for (block, contents) in image {
        (*block..).zip(contents).for_each(|(block, &content)| places.learn(block, content));
    }
    places
}

impl Replay<'_> {
    fn run(&mut self, requests: &[Request]) {
        let (mut now, mut epoch) = (0, 1);
        for (number, request) in requests.iter().enumerate() {
            now = now.max(request.at / self.setup.speed);
            self.complete_until(now);
            while self.depth >= DEPTH {
                now = now.max(self.disk.next().unwrap_or(now));
                self.complete_until(now);
            }
            if self.setup.duplication && request.at >= epoch * self.setup.epoch {
                epoch = request.at / self.setup.epoch + 1;
                self.end_epoch();
            }
            if request.writes { self.write(now, request) } else { self.read(now, number, request) }
        }
        while let Some(at) = self.disk.next() {
            now = now.max(at);
            self.complete_until(now);
        }
        (self.outcome.busy, self.outcome.end) = (self.disk.statistics().busy, now);
    }

    /// Submits a read or write to the disk at one of some places; the first is the block's own address.
    fn submit(&mut self, now: Nanos, op: Op, blocks: u64, places: Vec<u64>, cause: Cause) {
        self.depth += 1;
        self.next += 1;
        let (home, number) = (places[0], self.next);
        self.pending.insert(number, Pending { cause, first: home, end: home + blocks, home });
        if self.setup.choice == Choice::Dispatch {
            self.sweep.push(op, blocks, places, number);
            self.dispatch(now);
        } else {
            self.give(now, number, op, home, blocks);
        }
    }

    fn give(&mut self, now: Nanos, tag: Tag, op: Op, block: u64, blocks: u64) {
        let command = Command { op, offset: block * BLOCK, bytes: blocks * BLOCK, class: Class::Foreground };
        self.disk.submit(now, tag, command);
    }

    /// Gives the disk the next command of the scheduler, if it has none.
    fn dispatch(&mut self, now: Nanos) {
        if !self.given.is_empty() {
            return;
        }
        let Some(next) = self.sweep.take() else { return };
        for &(first, blocks, number) in &next.parts {
            self.given.push(number);
            if let Some(pending) = self.pending.get_mut(&number) {
                (pending.first, pending.end) = (first, first + blocks);
                if matches!(pending.cause, Cause::Read { .. }) {
                    self.outcome.distance += first.abs_diff(self.head);
                    self.outcome.redirected += u64::from(first != pending.home);
                    self.outcome.from_scratch += u64::from(is_scratch(self.disk_blocks, self.setup.part, first, 1));
                }
            }
        }
        let tag = next.parts[0].2;
        self.give(now, tag, next.op, next.block, next.blocks);
    }

    fn complete_until(&mut self, now: Nanos) {
        while let Some(done) = self.disk.pop(now) {
            if self.setup.choice == Choice::Arrival {
                self.complete(done.tag, done);
                continue;
            }
            for number in std::mem::take(&mut self.given) {
                self.complete(number, done);
            }
            self.dispatch(done.at);
        }
    }

    /// Ends a request, with the command that served it.
    fn complete(&mut self, number: u64, done: Done) {
        let Some(pending) = self.pending.remove(&number) else { return };
        self.depth -= 1;
        let Cause::Read { request } = pending.cause else { return };
        self.head = pending.end;
        // Commands that the disk served as one complete together.
        let is_alone = done.at != self.last_served;
        if is_alone {
            self.outcome.service += done.breakdown.total() - done.breakdown.queue;
            self.outcome.seek += done.breakdown.seek;
            self.outcome.rotation += done.breakdown.rotation;
        }
        self.outcome.buffered += u64::from(!is_alone || done.breakdown.seek + done.breakdown.rotation == 0);
        self.last_served = done.at;
        if let Some(waiting) = self.waiting.get_mut(&(request as u64)) {
            waiting.commands -= 1;
            if waiting.commands == 0 {
                self.outcome.response += done.at - waiting.since + waiting.digests;
                self.waiting.remove(&(request as u64));
            }
        }
    }

    /// Makes the copies between two epochs, in time that is not counted. In a real week the disk is idle for most of the time; at many times the week's rate it
    /// never is.
    fn end_epoch(&mut self) {
        for Task { blocks, at, .. } in self.zones.end_epoch() {
            self.zones.written(at);
            self.outcome.copied += blocks * ZONES;
        }
    }

    /// Reads or writes a block of the cache, and returns whether it answers. It has the block afterwards.
    fn is_cached(&mut self, is_written: bool, block: u64, content: ContentId) -> bool {
        self.cache.as_mut().is_some_and(|cached| cached.access(is_written, block, content))
    }

    fn knows(&self) -> bool {
        self.setup.retrieval || self.setup.duplication
    }

    fn write(&mut self, now: Nanos, request: &Request) {
        for (at, &content) in request.contents.iter().enumerate() {
            let block = request.block + at as u64;
            self.is_cached(true, block, content);
            if self.knows() {
                self.places.learn(block, content);
            }
        }
        self.last_end = request.block + u64::from(request.blocks);
        self.submit(now, Op::Write, u64::from(request.blocks), vec![request.block], Cause::Write);
    }

    fn read(&mut self, now: Nanos, number: usize, request: &Request) {
        self.outcome.requests += 1;
        self.outcome.blocks += u64::from(request.blocks);
        let missed: Vec<bool> = request
            .contents
            .iter()
            .enumerate()
            .map(|(at, &content)| !self.is_cached(false, request.block + at as u64, content))
            .collect();
        let misses = missed.iter().filter(|missed| **missed).count() as u64;
        self.outcome.hits += u64::from(request.blocks) - misses;
        let mut commands = 0;
        let mut from = 0;
        while from < missed.len() {
            if !missed[from] {
                from += 1;
                continue;
            }
            let to = missed[from..].iter().position(|missed| !missed).map_or(missed.len(), |length| from + length);
            let (home, contents) = (request.block + from as u64, &request.contents[from..to]);
            let places = self.places_of(home, contents);
            self.outcome.commands += 1;
            self.outcome.depth += self.depth as u64;
            if self.setup.choice == Choice::Arrival {
                self.outcome.distance += places[0].abs_diff(self.head);
            }
            self.last_end = places[0] + contents.len() as u64;
            self.submit(now, Op::Read, contents.len() as u64, places, Cause::Read { request: number });
            commands += 1;
            if self.setup.duplication {
                self.zones.read(home, contents);
            }
            from = to;
        }
        if self.knows() {
            for (at, &content) in request.contents.iter().enumerate() {
                self.places.learn(request.block + at as u64, content);
            }
        }
        if commands > 0 {
            let digests = if self.setup.cache == Some(Key::Content) || self.knows() { misses * DIGEST } else { 0 };
            self.waiting.insert(number as u64, Waiting { since: now, commands, digests });
        }
    }

    /// Returns the place of a run, or the candidates of which the scheduler takes one. A run adjacent to a command in progress or to the last command stays at
    /// its own address. Otherwise the place is the nearest to the head.
    fn places_of(&mut self, home: u64, contents: &[ContentId]) -> Vec<u64> {
        let end = home + contents.len() as u64;
        // The content of an unread block is unknown, unless the disk was scanned.
        let is_known =
            || contents.iter().enumerate().all(|(at, content)| self.places.content(home + at as u64) == Some(*content));
        let is_adjacent =
            || self.last_end == home || self.pending.values().any(|other| other.end == home || other.first == end);
        if !self.knows() || is_adjacent() || !is_known() {
            return vec![home];
        }
        if self.setup.choice == Choice::Dispatch {
            let mut places = vec![home];
            if self.setup.retrieval {
                places.extend(self.places.all(contents, MOST_PLACES).into_iter().filter(|&place| place != home));
            }
            if self.setup.duplication {
                places.extend(self.zones.places(contents));
            }
            return places;
        }
        let mut best = home;
        if self.setup.retrieval {
            for place in self.places.nearest(contents, self.head) {
                if place.abs_diff(self.head) < best.abs_diff(self.head) {
                    best = place;
                }
            }
        }
        let mut is_scratch = false;
        if self.setup.duplication {
            for place in self.zones.places(contents) {
                if place.abs_diff(self.head) < best.abs_diff(self.head) {
                    (best, is_scratch) = (place, true);
                }
            }
        }
        self.outcome.redirected += u64::from(best != home);
        self.outcome.from_scratch += u64::from(is_scratch);
        vec![best]
    }
}
