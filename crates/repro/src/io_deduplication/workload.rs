//! Synthetic weeks of web-vm, mail and homes. Their reads and writes have the amounts, and the working sets by sector and by content, that the paper publishes
//! (table 1). Nothing else of them comes from the real traces.
//!
//! *Fitted*: blocks read and written, distinct sectors and distinct contents of both, and the number of sectors that are both read and written (from the part
//! of the file system that was accessed). From POD's table 3: mean sizes of requests. *Chosen here*: the sectors and contents that are used again, their
//! places, and the arrival times. So a result on a stand-in is a prediction of this choice, and says nothing more about the real trace.
//!
//! Generation: the working set is cut into extents, each of which is read as one request. Extents lie in groups of up to 1 MiB anywhere on the disk. A read is
//! the first of its extent, as often as the working set needs. Otherwise it reads an extent again (Zipf), unless the page cache above has it: traces were
//! recorded below one. A write goes round a journal, to an extent for the first time, or to one again (Zipf). Its contents are new as often as the working set
//! needs, some of them those of a read extent. Otherwise they are those of an earlier write.

use crate::replay::lru::{Lru, Numbers};
use crate::traces::synthetic::Profile;
use crate::traces::synthetic::draws::{chance, exponential, geometric, lognormal, zipf};
use crate::traces::{ContentId, Request};
use sim::random::{Random, mix};

use super::zones::is_scratch;

/// A week.
pub const WEEK: u64 = 7 * DAY;
/// A day: an epoch of duplication.
pub const DAY: u64 = 86_400_000_000_000;
/// Blocks of a GiB.
const GIB: f64 = 262_144.0;
/// Blocks of a group of extents, and of the places for groups.
const GROUP: u64 = 256;
/// Blocks of the longest request.
const LONGEST: u64 = 64;
/// Divisor of the working set of reads: the part that is in the page cache above. [D]
const PAGE_CACHE_PART: u64 = 4;
/// Number of times that an extent is drawn again if the page cache has it. [D]
const DRAWS: usize = 8;
/// Share of first-written contents that come from read extents. [D]
const COPIES_OF_READ: f64 = 0.1;
/// Time between requests of a burst, in nanoseconds. [D]
const GAP: u64 = 1_000_000;
/// Writes that are remembered.
const REMEMBERED: usize = 1 << 14;

/// Amount of data that is read or written in a week, in GiB.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Amounts {
    /// All.
    pub total: f64,
    /// Distinct sectors.
    pub sectors: f64,
    /// Distinct contents.
    pub contents: f64,
}

/// Parameters of a stand-in.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Shape {
    /// Real trace that the shape stands in for.
    pub profile: Profile,
    /// Scale: it has one part in N of the paper's amounts, and of its time.
    pub part: u64,
    /// Reads.
    pub reads: Amounts,
    /// Writes.
    pub writes: Amounts,
    /// Sectors that are read or written, in GiB.
    pub accessed: f64,
    /// Mean blocks of a read, of a write (POD, table 3).
    pub blocks: [f64; 2],
    /// Share of writes to the journal; requests of a burst, median and 90th percentile; distance in writes of known contents, the same. All as in the stand-ins
    /// for POD. [D]
    pub journal: f64,
    /// See `journal`.
    pub burst: (f64, f64),
    /// See `journal`.
    pub distance: (f64, f64),
}

impl Shape {
    /// Two web servers: 2.8 % of 70 GB are accessed.
    pub const WEB_VM: Shape = Shape {
        profile: Profile::WebVm,
        part: 8,
        reads: Amounts { total: 3.40, sectors: 1.27, contents: 1.09 },
        writes: Amounts { total: 11.46, sectors: 0.86, contents: 4.85 },
        accessed: 0.028 * 70.0,
        blocks: [3.7, 3.7],
        journal: 0.35,
        burst: (2.0, 7.0),
        distance: (40.0, 4_000.0),
    };
    /// A mail server: 6.27 % of 500 GB.
    pub const MAIL: Shape = Shape {
        profile: Profile::Mail,
        part: 32,
        reads: Amounts { total: 62.0, sectors: 29.24, contents: 28.82 },
        writes: Amounts { total: 482.1, sectors: 4.18, contents: 34.02 },
        accessed: 0.0627 * 500.0,
        blocks: [20.7, 7.3],
        journal: 0.35,
        burst: (1.0, 5.0),
        distance: (8.0, 8_000.0),
    };
    /// Home directories: 1.44 % of 470 GB.
    pub const HOMES: Shape = Shape {
        profile: Profile::Homes,
        part: 32,
        reads: Amounts { total: 5.79, sectors: 2.40, contents: 1.99 },
        writes: Amounts { total: 148.86, sectors: 4.33, contents: 33.68 },
        accessed: 0.0144 * 470.0,
        blocks: [3.3, 3.3],
        journal: 0.40,
        burst: (2.0, 13.0),
        distance: (15.0, 3_000.0),
    };
    /// All, in the slides' order.
    pub const ALL: [Shape; 3] = [Shape::WEB_VM, Shape::MAIL, Shape::HOMES];

    /// Shortens the week to one part in `part`.
    pub fn shortened(self, part: u64) -> Shape {
        Shape { part: self.part * part, ..self }
    }

    /// Returns the name of its profile.
    pub fn name(&self) -> &'static str {
        self.profile.name()
    }

    /// Returns the time from the first request to the last.
    pub fn span(&self) -> u64 {
        WEEK / self.part
    }

    /// Returns the sectors that are both read and written, in GiB.
    pub fn both(&self) -> f64 {
        (self.reads.sectors + self.writes.sectors - self.accessed).max(0.0)
    }

    /// Returns the journal blocks of the stand-in.
    pub fn journal_blocks(&self) -> u64 {
        let rewritten = self.size(self.writes.sectors).saturating_sub(self.size(self.both()));
        (rewritten as f64 * self.journal) as u64
    }

    /// Converts GiB of the paper to blocks of the stand-in.
    pub fn size(&self, gib: f64) -> u64 {
        (gib * GIB / self.part as f64) as u64
    }
}

/// Returns the first block of the journal.
pub fn journal_start(disk_blocks: u64) -> u64 {
    disk_blocks / GROUP * 9 / 20 * GROUP
}

/// Blocks that are read or written together.
#[derive(Clone, Copy, Debug)]
struct Extent {
    block: u64,
    blocks: u32,
    /// Number from which its contents are derived.
    content: u64,
    /// Its contents are written within the week, and not read before.
    is_written: bool,
}

impl Extent {
    fn contents(&self) -> Vec<ContentId> {
        (0..u64::from(self.blocks)).map(|at| mix(self.content ^ mix(at))).collect()
    }
}

/// Requests that are being made.
struct Maker {
    shape: Shape,
    random: Random,
    fresh: u64,
    /// Extents to read for the first time, the next one last. One that must be written first is inserted when it is written.
    unread: Vec<Extent>,
    /// Number of blocks to read for the first time, including those that must be written first.
    unread_blocks: u64,
    read: Vec<Extent>,
    /// Blocks that the page cache above has, by first block.
    above: Lru,
    /// Extents to write for the first time, the next one last.
    unwritten: Vec<Extent>,
    unwritten_blocks: u64,
    written: Vec<Extent>,
    /// First block of the journal, its blocks, and the position of the next write.
    journal: (u64, u64, u64),
    /// The last writes.
    writes: Vec<Vec<ContentId>>,
    count: usize,
    /// All contents that were written.
    known: Numbers<()>,
    /// Blocks left to read, to write, and new contents left to write.
    left: [u64; 2],
    new_left: u64,
}

/// Makes the requests of a week, in the order of time, on a disk of `disk_blocks` blocks. Scratch zones stay free.
pub fn week(shape: Shape, disk_blocks: u64, seed: u64) -> Vec<Request> {
    let mut maker = Maker::new(shape, disk_blocks, seed);
    let requests = |at: usize| maker.left[at] as f64 / shape.blocks[at];
    let mean_burst = shape.burst.0.max(1.0) * 2.0;
    let bursts = ((requests(0) + requests(1)) / mean_burst).max(1.0);
    let mean_pause = (shape.span() as f64 / bursts - GAP as f64 * mean_burst).max(GAP as f64);
    let (mut at, mut made) = (0, Vec::new());
    while maker.left != [0, 0] {
        at += (exponential(&mut maker.random) * mean_pause) as u64;
        let reads = maker.left[0] as f64 / shape.blocks[0];
        let writes = maker.left[1] as f64 / shape.blocks[1];
        let is_write = chance(&mut maker.random, writes / (reads + writes));
        let length = libm::round(lognormal(&mut maker.random, shape.burst)).clamp(1.0, 1000.0) as u64;
        for _ in 0..length {
            if maker.left[usize::from(is_write)] == 0 {
                break;
            }
            let (block, contents) = if is_write { maker.write() } else { maker.read() };
            let blocks = contents.len() as u32;
            let left = &mut maker.left[usize::from(is_write)];
            *left = left.saturating_sub(u64::from(blocks));
            made.push(Request { at, writes: is_write, block, blocks, contents });
            at += GAP;
        }
    }
    // Bursts are drawn: the last request is at the end of the week nonetheless.
    let (end, span) = (made.last().map_or(1, |last| last.at.max(1)), shape.span());
    for request in &mut made {
        request.at = (u128::from(request.at) * u128::from(span) / u128::from(end)) as u64;
    }
    made
}

impl Maker {
    fn new(shape: Shape, disk_blocks: u64, seed: u64) -> Maker {
        let mut maker = Maker {
            shape,
            random: Random::new(mix(seed) ^ shape.profile as u64),
            fresh: 0,
            unread: Vec::new(),
            unread_blocks: shape.size(shape.reads.sectors),
            read: Vec::new(),
            above: Lru::new(0),
            unwritten: Vec::new(),
            unwritten_blocks: 0,
            written: Vec::new(),
            journal: (0, 0, 0),
            writes: Vec::new(),
            count: 0,
            known: Numbers::default(),
            left: [shape.size(shape.reads.total), shape.size(shape.writes.total)],
            new_left: shape.size(shape.writes.contents),
        };
        let both = shape.size(shape.both());
        let mut read = maker.cut(shape.size(shape.reads.sectors), shape.blocks[0]);
        maker.give_contents(&mut read);
        let mut blocks = 0;
        // Every N-th extent, so that they spread over the groups.
        let every = (shape.size(shape.reads.sectors) / both.max(1)).max(1) as usize;
        for at in (0..read.len()).step_by(every) {
            if blocks >= both {
                break;
            }
            read[at].is_written = true;
            blocks += u64::from(read[at].blocks);
        }
        let rewritten = shape.size(shape.writes.sectors).saturating_sub(both);
        let journal = shape.journal_blocks();
        let mut written = maker.cut(rewritten - journal, shape.blocks[1]);
        maker.place(&mut read, &mut written, journal, disk_blocks);
        maker.above = Lru::new(read.len() / PAGE_CACHE_PART as usize);
        maker.unwritten = written;
        maker.unwritten.extend(read.iter().filter(|extent| extent.is_written));
        maker.shuffle_unwritten();
        maker.unwritten_blocks = maker.unwritten.iter().map(|extent| u64::from(extent.blocks)).sum();
        read.retain(|extent| !extent.is_written);
        read.reverse();
        maker.unread = read;
        maker
    }

    /// Cuts `blocks` blocks into extents of this mean length.
    fn cut(&mut self, mut blocks: u64, mean: f64) -> Vec<Extent> {
        let mut extents = Vec::new();
        while blocks > 0 {
            let length = u64::from(geometric(&mut self.random, mean)).min(LONGEST).min(blocks);
            blocks -= length;
            extents.push(Extent { block: 0, blocks: length as u32, content: 0, is_written: false });
        }
        extents
    }

    /// Gives extents their contents: copies of earlier ones as often as there are fewer contents than sectors.
    fn give_contents(&mut self, extents: &mut [Extent]) {
        let share = self.shape.reads.contents / self.shape.reads.sectors;
        let (mut blocks, mut distinct) = (0.0, 0.0);
        for at in 0..extents.len() {
            let length = extents[at].blocks;
            blocks += f64::from(length);
            let copied = if distinct + f64::from(length) > blocks * share + f64::from(length) / 2.0 && at > 0 {
                let mut draws = (0..DRAWS).map(|_| extents[self.random.below(at as u64) as usize]);
                draws.find(|earlier| earlier.blocks >= length)
            } else {
                None
            };
            extents[at].content = match copied {
                Some(earlier) => earlier.content,
                None => {
                    distinct += f64::from(length);
                    self.fresh()
                }
            };
        }
    }

    /// Gives extents their places: groups anywhere, the journal in one piece in the middle.
    fn place(&mut self, read: &mut [Extent], written: &mut [Extent], journal: u64, disk_blocks: u64) {
        let places = disk_blocks / GROUP;
        let first = journal_start(disk_blocks);
        self.journal = (first, journal.max(LONGEST), 0);
        let mut taken = std::collections::BTreeSet::new();
        let (part, random) = (self.shape.part, &mut self.random);
        let journal_end = first + journal.max(LONGEST);
        let mut group = || loop {
            let start = random.below(places) * GROUP;
            let in_journal = start < journal_end && first < start + GROUP;
            if !in_journal && !is_scratch(disk_blocks, part, start, GROUP) && taken.insert(start) {
                return start;
            }
        };
        for extents in [read, written] {
            let (mut at, mut end) = (0, 0);
            for extent in extents {
                if at + u64::from(extent.blocks) > end {
                    at = group();
                    end = at + GROUP;
                }
                extent.block = at;
                at += u64::from(extent.blocks);
            }
        }
    }

    fn shuffle_unwritten(&mut self) {
        for at in (1..self.unwritten.len()).rev() {
            self.unwritten.swap(at, self.random.below(at as u64 + 1) as usize);
        }
    }

    fn fresh(&mut self) -> u64 {
        self.fresh += 1;
        mix(mix(self.fresh) ^ self.shape.profile as u64)
    }

    fn read(&mut self) -> (u64, Vec<ContentId>) {
        let first = self.unread_blocks as f64 / self.left[0].max(1) as f64;
        let next = if self.read.is_empty() || chance(&mut self.random, first) { self.unread.pop() } else { None };
        let extent = match next {
            Some(extent) => {
                self.unread_blocks = self.unread_blocks.saturating_sub(u64::from(extent.blocks));
                self.read.push(extent);
                extent
            }
            None => self.again(),
        };
        self.above.put(extent.block, 0);
        (extent.block, extent.contents())
    }

    /// Draws an extent that was read before, if possible one that the page cache above does not have.
    fn again(&mut self) -> Extent {
        let mut extent = None;
        for _ in 0..DRAWS {
            let drawn = self.read.get(zipf(&mut self.random, self.read.len().max(1) as u64) as usize).copied();
            extent = drawn;
            if drawn.is_some_and(|drawn| self.above.peek(drawn.block).is_none()) {
                break;
            }
        }
        extent.unwrap_or(Extent { block: self.journal.0, blocks: 1, content: 0, is_written: false })
    }

    fn write(&mut self) -> (u64, Vec<ContentId>) {
        let first = self.unwritten_blocks as f64 / self.left[1].max(1) as f64;
        let to_journal = chance(&mut self.random, self.shape.journal);
        let (block, blocks) = if to_journal {
            let blocks = u64::from(geometric(&mut self.random, self.shape.blocks[1])).min(LONGEST);
            let (start, size, at) = self.journal;
            let at = if at + blocks > size { 0 } else { at };
            self.journal.2 = at + blocks;
            (start + at, blocks as u32)
        } else {
            // The journal takes a share of all requests. So the share of first writes among the others is greater by that factor.
            let next = match self.written.is_empty() || chance(&mut self.random, first / (1.0 - self.shape.journal)) {
                true => self.unwritten.pop(),
                false => None,
            };
            match next {
                Some(extent) => {
                    self.unwritten_blocks -= u64::from(extent.blocks);
                    if extent.is_written {
                        return self.write_what_is_read(extent);
                    }
                    self.written.push(extent);
                    (extent.block, extent.blocks)
                }
                None => {
                    let at = zipf(&mut self.random, self.written.len().max(1) as u64) as usize;
                    self.written.get(at).map_or((self.journal.0, 1), |extent| (extent.block, extent.blocks))
                }
            }
        };
        let contents = self.contents(blocks as usize);
        self.remember(contents.clone());
        (block, contents)
    }

    /// Writes an extent that is read later.
    fn write_what_is_read(&mut self, extent: Extent) -> (u64, Vec<ContentId>) {
        let at = self.unread.len() - (self.random.below(self.unread.len() as u64 + 1)) as usize;
        self.unread.insert(at, extent);
        let contents = extent.contents();
        self.remember(contents.clone());
        (extent.block, contents)
    }

    fn contents(&mut self, blocks: usize) -> Vec<ContentId> {
        let new = self.new_left as f64 / self.left[1].max(1) as f64;
        if self.writes.is_empty() || chance(&mut self.random, new) {
            if !self.read.is_empty() && chance(&mut self.random, COPIES_OF_READ) {
                let mut contents = self.read[zipf(&mut self.random, self.read.len() as u64) as usize].contents();
                contents.resize_with(blocks, || self.fresh());
                return contents;
            }
            let content = self.fresh();
            return (0..blocks as u64).map(|at| mix(content ^ mix(at))).collect();
        }
        let mut contents = Vec::with_capacity(blocks);
        while contents.len() < blocks {
            let back = (lognormal(&mut self.random, self.shape.distance) as usize).min(self.writes.len() - 1);
            let from = (self.count + REMEMBERED - 1 - back) % REMEMBERED;
            contents.extend_from_slice(&self.writes[from.min(self.writes.len() - 1)]);
        }
        contents.truncate(blocks);
        contents
    }

    fn remember(&mut self, contents: Vec<ContentId>) {
        let new = contents.iter().filter(|content| self.known.insert(**content, ()).is_none()).count() as u64;
        self.new_left = self.new_left.saturating_sub(new);
        let at = self.count % REMEMBERED;
        match self.writes.get_mut(at) {
            Some(old) => *old = contents,
            None => self.writes.push(contents),
        }
        self.count += 1;
    }
}
