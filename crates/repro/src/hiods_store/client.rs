//! Client machine of the benchmark: workers with one request each, and the page cache of Linux between them and the network block device.
//!
//! The page cache answers writes. It writes back in address order, round and round, while more than a tenth of the remaining memory is dirty. Writers wait
//! while half as much again is dirty (between the two limits, where Linux keeps a writer that is too fast). A page that is written again before its writeback
//! is written back once. Read pages are kept by LRU. A sequential reader gets 128 KiB of read-ahead, one window while the one before is consumed.

use engine::Nanos;
use engine::pid::paper::{EXPERIMENT, PaperThrottle};

use super::bits::Bits;
use super::server::{Server, Way};
use super::store::{Content, Store};
use super::{BETWEEN_WRITES, CACHED, DIGEST, DRIVE, Keeping, Parameters, Scale};
use crate::dedis::BLOCK;
use crate::dedis::addresses::Pattern;
use crate::dedis::distribution::Distribution;
use crate::dedis::load::{ContentId, Load, Stop, Stream, Turn, shared};
use sim::disks::ssd::{Command, Device};

/// Blocks that are read ahead.
const WINDOW: u64 = 32;
/// Processor time of a read through SPDK without deduplication, in addition to the drive's.
const READ: Nanos = 2_000;

/// Load of the tables.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// Addresses of requests.
    pub pattern: Pattern,
    /// Workers that make them.
    pub workers: u64,
    /// Place of the maps.
    pub keeping: Keeping,
    /// Divisor of all sizes against the paper's.
    pub scale: Scale,
    /// Seed.
    pub seed: u64,
}

/// Outcome of a load.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Outcome {
    /// Requests of the workers.
    pub requests: u64,
    /// Time until the last was answered.
    pub time: Nanos,
    /// Mean time of a request.
    pub latency: Nanos,
    /// Blocks that were written back.
    pub written_back: u64,
    /// Blocks that the background processed during the load.
    pub processed: u64,
    /// Contents in the Index when everything was processed.
    pub stored: u64,
    /// Different contents that the logical blocks then have.
    pub distinct: u64,
    /// Entries that LevelDB wrote for each that was put.
    pub write_amplification: f64,
    /// Part of the time for which its thread worked.
    pub merging: f64,
    /// Part of the time for which requests waited for it.
    pub waited: f64,
}

impl Outcome {
    /// Returns the throughput in MiB a second, which the paper calls MB.
    pub fn rate(&self) -> f64 {
        self.requests as f64 * BLOCK as f64 / (1 << 20) as f64 * 1e9 / self.time.max(1) as f64
    }
}

/// Contents of DEDISbench as dense numbers.
struct Contents {
    distribution: Distribution,
    next_unique: Content,
}

impl Contents {
    fn new(distribution: &Distribution) -> Contents {
        Contents { distribution: distribution.clone(), next_unique: distribution.shared_contents() as Content }
    }

    /// Returns an upper bound of the contents of `draws` draws.
    fn bound(distribution: &Distribution, draws: u64) -> u64 {
        distribution.shared_contents() + draws + 1
    }

    fn of(&mut self, content: ContentId) -> Content {
        shared(content).map_or_else(
            || {
                self.next_unique += 1;
                self.next_unique - 1
            },
            |number| number as Content,
        )
    }
}

fn streams(case: &Case, reads: bool) -> Vec<Stream> {
    let blocks = case.scale.blocks();
    let load = Load {
        pattern: case.pattern,
        request_blocks: 1,
        reads_percent: if reads { 100 } else { 0 },
        workers: case.workers,
        rate: None,
        stop: Stop::Requests(blocks),
        seed: case.seed,
    };
    load.streams(blocks)
}

/// Writes, one way.
pub fn writes(case: &Case, way: Way, parameters: &Parameters, distribution: &Distribution) -> Outcome {
    let blocks = case.scale.blocks();
    let store = Store::new(case.keeping, parameters, case.scale, Contents::bound(distribution, blocks));
    let mut server = Server::new(store, way, parameters, case.scale.0, PaperThrottle::new(EXPERIMENT));
    let mut contents = Contents::new(distribution);
    let pages = case.scale.pages(case.keeping);
    let mut cache = WriteBack::new(blocks, pages);
    let mut workers: Vec<(Nanos, Stream)> = streams(case, false).into_iter().map(|stream| (0, stream)).collect();
    let mut outcome = Outcome::default();
    let mut latencies = 0;
    loop {
        let due = workers.iter_mut().filter(|(_, stream)| stream.turn(0) == Turn::Now);
        let Some((at, stream)) = due.min_by_key(|(at, _)| *at) else { break };
        let request = stream.next(&contents.distribution);
        let content = contents.of(request.contents[0]);
        let begun = *at + BETWEEN_WRITES;
        cache.write_back_until(begun, &mut server);
        let space = cache.dirty(request.first, content, begun, &mut server);
        *at = space + CACHED;
        latencies += *at - begun;
        outcome.requests += 1;
        outcome.time = outcome.time.max(*at);
    }
    outcome.latency = latencies / outcome.requests.max(1);
    outcome.written_back = server.served;
    outcome.processed = server.processed;
    let (worked, waited) = server.store.maps.merging();
    let part = |time: Nanos| time as f64 / outcome.time.max(1) as f64;
    (outcome.merging, outcome.waited) = (part(worked), part(waited));
    outcome.write_amplification = server.store.maps.write_amplification();
    if !matches!(way, Way::Native(_)) {
        cache.write_back_all(&mut server);
        server.finish();
        outcome.stored = server.store.stored();
        outcome.distinct = cache.distinct();
    }
    outcome
}

/// The dirty pages.
struct WriteBack {
    dirty: Bits,
    /// Content of each page.
    contents: Vec<Content>,
    background: u64,
    most: u64,
    cursor: u64,
}

impl WriteBack {
    fn new(blocks: u64, pages: u64) -> WriteBack {
        let background = (pages / 10).max(1);
        WriteBack {
            dirty: Bits::new(blocks),
            contents: vec![Content::MAX; blocks as usize],
            background,
            most: background + background / 2 + 1,
            cursor: 0,
        }
    }

    fn write_one(&mut self, server: &mut Server) {
        let Some(page) = self.dirty.next_from(self.cursor) else { return };
        self.cursor = (page + 1) % self.contents.len() as u64;
        self.dirty.remove(page);
        server.write(page, self.contents[page as usize]);
    }

    fn write_back_until(&mut self, time: Nanos, server: &mut Server) {
        while self.dirty.count > self.background && server.now < time {
            self.write_one(server);
        }
        if server.now < time {
            server.rest_until(time);
        }
    }

    /// Makes a page dirty; returns the time at which there was space for it.
    fn dirty(&mut self, page: u64, content: Content, now: Nanos, server: &mut Server) -> Nanos {
        let mut now = now;
        while !self.dirty.has(page) && self.dirty.count >= self.most {
            self.write_one(server);
            now = now.max(server.now);
        }
        self.dirty.add(page);
        self.contents[page as usize] = content;
        now
    }

    fn write_back_all(&mut self, server: &mut Server) {
        while self.dirty.count > 0 {
            self.write_one(server);
        }
    }

    fn distinct(&self) -> u64 {
        let mut contents: Vec<Content> =
            self.contents.iter().copied().filter(|&content| content != Content::MAX).collect();
        contents.sort_unstable();
        contents.dedup();
        contents.len() as u64
    }
}

/// Reads of blocks that were written before, in order, inline.
pub fn reads(case: &Case, parameters: &Parameters, distribution: &Distribution) -> Outcome {
    let blocks = case.scale.blocks();
    let is_native = case.keeping == Keeping::Native;
    let mut store = Store::new(case.keeping, parameters, case.scale, Contents::bound(distribution, blocks));
    if !is_native {
        let mut contents = Contents::new(distribution);
        let filling = Case { pattern: Pattern::Sequential, ..*case };
        let mut now = 0;
        let mut workers = streams(&filling, false);
        while workers.iter().any(|stream| stream.turn(0) == Turn::Now) {
            for stream in workers.iter_mut().filter(|stream| stream.turn(0) == Turn::Now) {
                let request = stream.next(&contents.distribution);
                now = store.inline(request.first, contents.of(request.contents[0]), now).at;
            }
        }
        store.maps.settle();
    }
    let mut reader = Reader {
        store,
        is_native,
        each: if is_native { READ } else { parameters.request - DIGEST },
        free: 0,
        drive: Device::new(DRIVE),
        behind: u64::MAX,
        cache: Lru::new(blocks, case.scale.pages(case.keeping)),
    };
    // The page cache holds the last written pages.
    (0..blocks).for_each(|page| _ = reader.cache.touch(page));
    let mut outcome = Outcome::default();
    let latencies = match case.pattern {
        Pattern::Sequential => reader.in_order(case, &mut outcome),
        _ => reader.anywhere(case, &mut outcome),
    };
    outcome.latency = latencies / outcome.requests.max(1);
    outcome
}

struct Reader {
    store: Store,
    is_native: bool,
    /// Time of the processor for a request, and with deduplication each of its blocks.
    each: Nanos,
    /// Time at which the processor is free.
    free: Nanos,
    drive: Device,
    /// Block after the last one that the drive read.
    behind: u64,
    cache: Lru,
}

impl Reader {
    /// Reads `count` blocks from `first` on, and returns the time of their arrival. A request for them comes at some time.
    fn fetch(&mut self, first: u64, count: u64, now: Nanos) -> Nanos {
        let mut begun = self.free.max(now);
        if self.is_native {
            begun += self.each;
            self.free = begun;
            return self.read_drive(first, count, begun);
        }
        let mut last = begun;
        for logical in first..first + count {
            begun += self.each;
            let (looked_up, physical) = self.store.read(logical, begun);
            begun = looked_up;
            last = last.max(match physical {
                Some(physical) => self.read_drive(u64::from(physical), 1, begun),
                None => begun,
            });
        }
        self.free = begun;
        last
    }

    /// Reads from the drive. Where it reads on, it needs no time but that of the transfer.
    fn read_drive(&mut self, first: u64, count: u64, now: Nanos) -> Nanos {
        let bytes = count * BLOCK;
        let reads_on = first == self.behind;
        self.behind = first + count;
        let end = self.drive.submit(now, Command::Read(bytes));
        if reads_on { (end - DRIVE.read_nanos).max(now) } else { end }
    }

    /// Reads in order with read-ahead; returns the sum of latencies.
    fn in_order(&mut self, case: &Case, outcome: &mut Outcome) -> Nanos {
        let blocks = case.scale.blocks() / case.workers;
        let mut latencies = 0;
        // For each worker: its next window, the arrival time of that, and the time at which it can begin with it.
        let mut workers: Vec<(u64, Nanos, Nanos)> = Vec::new();
        for worker in 0..case.workers {
            let ready = self.fetch(worker * blocks, WINDOW.min(blocks), 0);
            workers.push((0, ready, 0));
        }
        while let Some(worker) = (0..workers.len())
            .filter(|&worker| workers[worker].0 < blocks)
            .min_by_key(|&worker| workers[worker].1.max(workers[worker].2))
        {
            let (done, ready, free) = workers[worker];
            let count = WINDOW.min(blocks - done);
            let begun = ready.max(free);
            let next = done + count;
            let first = worker as u64 * blocks + next;
            let ready = if next < blocks { self.fetch(first, WINDOW.min(blocks - next), begun) } else { begun };
            let end = begun + count * CACHED;
            latencies += end - free;
            workers[worker] = (next, ready, end);
            outcome.requests += count;
            outcome.time = outcome.time.max(end);
        }
        latencies
    }

    /// Reads at random places; returns the sum of latencies.
    fn anywhere(&mut self, case: &Case, outcome: &mut Outcome) -> Nanos {
        let mut latencies = 0;
        let nothing = Distribution::parse("nothing", "0 1").expect("a distribution");
        let mut workers: Vec<(Nanos, Stream)> = streams(case, true).into_iter().map(|stream| (0, stream)).collect();
        while let Some((at, stream)) =
            workers.iter_mut().filter(|(_, stream)| stream.turn(0) == Turn::Now).min_by_key(|(at, _)| *at)
        {
            let page = stream.next(&nothing).first;
            let begun = *at;
            let end = if self.cache.touch(page) { begun } else { self.fetch(page, 1, begun) } + CACHED;
            *at = end;
            latencies += end - begun;
            outcome.requests += 1;
            outcome.time = outcome.time.max(end);
        }
        latencies
    }
}

const NONE: u32 = u32::MAX;

/// The pages that were used last.
struct Lru {
    /// Neighbours of each page in LRU order: the page used after it, and the page used before it.
    links: Vec<(u32, u32)>,
    is_in: Bits,
    newest: u32,
    oldest: u32,
    most: u64,
}

impl Lru {
    fn new(pages: u64, most: u64) -> Lru {
        let links = vec![(NONE, NONE); pages as usize];
        Lru { links, is_in: Bits::new(pages), newest: NONE, oldest: NONE, most: most.max(1) }
    }

    fn unlink(&mut self, page: u32) {
        let (after, before) = self.links[page as usize];
        match after {
            NONE => self.newest = before,
            after => self.links[after as usize].1 = before,
        }
        match before {
            NONE => self.oldest = after,
            before => self.links[before as usize].0 = after,
        }
    }

    /// Makes a page the most recently used; returns true if it was cached.
    fn touch(&mut self, page: u64) -> bool {
        let was_there = !self.is_in.add(page);
        let page = page as u32;
        if was_there {
            self.unlink(page);
        }
        self.links[page as usize] = (NONE, self.newest);
        match self.newest {
            NONE => self.oldest = page,
            newest => self.links[newest as usize].0 = page,
        }
        self.newest = page;
        if self.is_in.count > self.most {
            let oldest = self.oldest;
            self.unlink(oldest);
            self.is_in.remove(u64::from(oldest));
        }
        was_there
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hiods_store::{CALIBRATED, Unit};

    const SCALE: Scale = Scale(1 << 10);

    fn distribution() -> Distribution {
        Distribution::parse("some", "0 30000\n1 3000\n20 100").expect("it is one")
    }

    fn case(pattern: Pattern, workers: u64, keeping: Keeping) -> Case {
        Case { pattern, workers, keeping, scale: SCALE, seed: 1 }
    }

    /// Checks for all ways, patterns and workers that every content is stored once when everything is processed.
    #[test]
    fn each_content_is_stored_once_whatever_the_way() {
        let ways = [Way::Inline, Way::Offline, Way::Beside, Way::Goal(Unit::Requests)];
        for pattern in [Pattern::Sequential, Pattern::Uniform, Pattern::Hotspot] {
            for (keeping, workers) in [(Keeping::Memory, 1), (Keeping::Device, 4)] {
                for way in ways {
                    let outcome = writes(&case(pattern, workers, keeping), way, &CALIBRATED, &distribution());
                    assert_eq!(outcome.requests, SCALE.blocks());
                    assert_eq!(outcome.stored, outcome.distinct, "{pattern} {keeping:?} {way:?}");
                }
            }
        }
    }

    #[test]
    fn a_page_that_is_written_again_before_its_turn_is_written_back_once() {
        let native =
            |pattern| writes(&case(pattern, 1, Keeping::Native), Way::Native(9_000), &CALIBRATED, &distribution());
        let [sequential, hotspot] = [Pattern::Sequential, Pattern::Hotspot].map(native);
        assert!(sequential.written_back <= SCALE.blocks() && hotspot.written_back < sequential.written_back * 9 / 10);
        // Writeback limits the rate.
        let each = sequential.time / sequential.written_back;
        assert!((8_900..9_400).contains(&each), "{each}");
    }

    #[test]
    fn the_background_takes_from_requests_and_the_loop_gives_back() {
        let rate =
            |way| writes(&case(Pattern::Sequential, 1, Keeping::Device), way, &CALIBRATED, &distribution()).rate();
        let [inline, offline, beside, goal] =
            [Way::Inline, Way::Offline, Way::Beside, Way::Goal(Unit::Requests)].map(rate);
        assert!(offline > inline && offline > goal && goal > beside, "{inline} {offline} {beside} {goal}");
    }

    #[test]
    fn what_was_used_last_is_kept() {
        let mut lru = Lru::new(10, 3);
        let touched = [1, 2, 3, 1, 4, 1, 2, 3].map(|page| lru.touch(page));
        assert_eq!(touched, [false, false, false, true, false, true, false, false]);
    }

    #[test]
    fn reads_in_order_are_read_ahead_and_deduplication_costs_each_block() {
        let rate = |keeping| reads(&case(Pattern::Sequential, 1, keeping), &CALIBRATED, &distribution()).rate();
        let [native, memory, device] = [Keeping::Native, Keeping::Memory, Keeping::Device].map(rate);
        assert!(native > 2.0 * memory && memory > device, "{native} {memory} {device}");
    }
}
