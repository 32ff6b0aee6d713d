//! Simulation of a container cache on flash in front of a slow store: its hits, its flash writes and its time. The engine's own admission code
//! (`engine::admission`) is compared with the policies of others (PLC-Cache, MSST 2014).
//!
//! Invariants: a run is a function of data, reads, policy and sizes alone. Disk time never changes a decision of the policy: its clock spreads the reads of a
//! run evenly over its days. `figures/plc` calls it; docs/papers/plc-cache.md has the results.

mod clients;
pub mod command;
mod disks;
pub mod policies;
#[cfg(test)]
mod tests;
pub mod workload;

use engine::Nanos;

use disks::Disks;
use policies::{Access, Cache, Policy, Sar, Size};
use sim::disks::Op;
use sim::disks::ftl::{Parameters, Wear};
use workload::{Data, EXTENT, Piece};

const DAY: Nanos = 24 * 3600 * 1_000_000_000;
/// Bytes of metadata for each chunk in its container, beside its content: digest, place, length.
const CHUNK_ENTRY: u64 = 64;

/// Unit of caching.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Level {
    /// Chunks, an extent at a time.
    Chunks,
    /// Containers.
    Containers,
}

/// Handling of a miss.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Handling {
    /// Slides' handling: the whole container is read and, if admitted, written to flash; the reader waits for both.
    Foreground,
    /// The reader waits for its own bytes. The rest is read and written after that.
    Background,
}

/// One run.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Setup {
    /// Policy that decides.
    pub policy: Policy,
    /// Unit of caching.
    pub level: Level,
    /// Bytes of flash for the cache.
    pub cache_bytes: u64,
    /// Handling of a miss on the disks; none: the run has no disks, and only counts.
    pub disks: Option<Handling>,
    /// Bytes of a chunk.
    pub chunk_bytes: u64,
    /// Bytes that flash erases together, and thousandths of space beyond the cache.
    pub flash: (u64, u64),
    /// Minimum number of reads of a popular thing.
    pub popular: u32,
    /// Days over which the reads are spread.
    pub days: u64,
    /// Bytes of a memory cache in front of all (LRU, of the same things). Its hits do not reach flash.
    pub memory_bytes: u64,
    /// Concurrent readers; more than one only with disks and containers. Each waits for the flash writes of its admissions.
    pub clients: u32,
}

impl Setup {
    /// Creates a setup with containers of chunks of 4 KiB, and without disks.
    pub fn new(policy: Policy, cache_bytes: u64) -> Setup {
        Setup {
            policy,
            level: Level::Containers,
            cache_bytes,
            disks: None,
            chunk_bytes: 4096,
            flash: (2 << 20, 70),
            popular: 5,
            days: 1,
            memory_bytes: 0,
            clients: 1,
        }
    }
}

/// Bytes written to flash, by later popularity and writes of the things written: shares in percent.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Quadrants {
    /// Popular, written once: the slides' QA, PLC data.
    pub popular_once: f64,
    /// Popular, written repeatedly: QB.
    pub popular_repeatedly: f64,
    /// Unpopular: QC and QD.
    pub unpopular: f64,
}

/// Results of a run.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Outcome {
    /// Reads of containers, or of extents.
    pub accesses: u64,
    /// Accesses served from flash.
    pub hits: u64,
    /// Reads without a write to flash, by the module of PLC-Cache that refused it: popularity filter, delayed eviction, in-out comparison. They cover the whole
    /// run so far.
    pub refused: [u64; 3],
    /// Reads that the memory cache served; they did not reach the policy. They are not among `accesses`.
    pub memory_hits: u64,
    /// Requested bytes that came from flash.
    pub hit_bytes: u64,
    /// Bytes written to flash.
    pub written_bytes: u64,
    /// Their shares.
    pub quadrants: Quadrants,
    /// Time from the first read to the end of the last, in runs with disks.
    pub nanos: Nanos,
    /// Wear of the flash, in runs with disks.
    pub wear: Wear,
}

impl Outcome {
    /// Hits in percent of reads.
    pub fn hit_percent(&self) -> f64 {
        100.0 * self.hits as f64 / self.accesses.max(1) as f64
    }

    /// Returns the GiB written to flash.
    pub fn written_gib(&self) -> f64 {
        self.written_bytes as f64 / (1u64 << 30) as f64
    }
}

/// Reads the files.
pub fn run(data: &Data, files: &[u32], setup: &Setup) -> Result<Outcome, String> {
    Ok(run_in_parts(data, files, setup, 1)?.pop().unwrap_or_default())
}

/// Executes a run and returns the counts of each of `parts` equal parts. Quadrants, time and wear are cumulative up to the end of the part.
pub fn run_in_parts(data: &Data, files: &[u32], setup: &Setup, parts: usize) -> Result<Vec<Outcome>, String> {
    let mut simulation = Simulation::new(data, setup, files.len())?;
    let mut outcomes = Vec::new();
    let mut before = Outcome::default();
    for part in files.chunks(files.len().div_ceil(parts).max(1)) {
        match setup.clients {
            1 => part.iter().for_each(|&file| simulation.read(file)),
            _ => simulation.read_together(part),
        }
        let all = simulation.outcome();
        outcomes.push(Outcome {
            accesses: all.accesses - before.accesses,
            hits: all.hits - before.hits,
            memory_hits: all.memory_hits - before.memory_hits,
            hit_bytes: all.hit_bytes - before.hit_bytes,
            written_bytes: all.written_bytes - before.written_bytes,
            ..all
        });
        before = all;
    }
    Ok(outcomes)
}

struct Simulation<'a> {
    data: &'a Data,
    setup: &'a Setup,
    cache: Cache,
    /// Memory cache in front of the flash cache.
    memory: Cache,
    container_bytes: u64,
    /// Bytes of a thing.
    thing_bytes: u64,
    disks: Option<Disks>,
    /// Place of each thing on flash, and free places, in runs with disks.
    places: Vec<u32>,
    free: Vec<u32>,
    accesses: Vec<u32>,
    writes: Vec<u32>,
    outcome: Outcome,
    files_read: u64,
    files: u64,
    /// Byte ranges (offset, length) of flash to be read for the current piece of a file, in runs with disks.
    reading: Vec<(u64, u64)>,
    /// Byte ranges of flash to be written for the admissions of that piece, in runs with disks.
    writing: Vec<(u64, u64)>,
    /// Bytes of it that memory has.
    from_memory: u64,
    /// Start time of the reads, in runs with disks.
    began: Nanos,
}

const NO_PLACE: u32 = u32::MAX;

impl<'a> Simulation<'a> {
    fn new(data: &'a Data, setup: &'a Setup, files: usize) -> Result<Simulation<'a>, String> {
        let container_bytes = u64::from(data.extents_per_container) * EXTENT;
        let (things, thing_bytes, addresses) = match setup.level {
            Level::Containers => (data.containers, container_bytes, data.pieces.len() as u32),
            Level::Chunks => {
                let extents = data.containers * data.extents_per_container;
                (extents, EXTENT, extents)
            }
        };
        let places = (setup.cache_bytes / thing_bytes).max(1) as u32;
        let size = Size { things, addresses, places, bytes: thing_bytes };
        let disks = match setup.disks {
            None => None,
            Some(_) => {
                let bytes = if setup.policy == Policy::None { 0 } else { u64::from(places) * thing_bytes };
                let (erase_unit, spare_permille) = setup.flash;
                let flash = |bytes| Parameters { erase_unit, spare_permille, ..Parameters::of_size(bytes) };
                Some(Disks::new(container_bytes, bytes.max(if bytes > 0 { erase_unit } else { 0 }), flash)?)
            }
        };
        let placed = if disks.is_some() { things as usize } else { 0 };
        let memory = match (setup.memory_bytes / thing_bytes) as u32 {
            0 => Cache::None,
            places => Cache::new(Policy::Lru, Size { places, ..size }),
        };
        let mut simulation = Simulation {
            data,
            setup,
            cache: Cache::new(setup.policy, size),
            memory,
            container_bytes,
            thing_bytes,
            disks,
            places: vec![NO_PLACE; placed],
            free: if placed > 0 { (0..places).rev().collect() } else { Vec::new() },
            accesses: vec![0; things as usize],
            writes: vec![0; things as usize],
            outcome: Outcome::default(),
            files_read: 0,
            files: files as u64,
            reading: Vec::new(),
            writing: Vec::new(),
            from_memory: 0,
            began: 0,
        };
        if setup.policy == Policy::Sar(Sar::Ingest) {
            simulation.ingest();
        }
        Ok(simulation)
    }

    /// Ingests the files one after another. Each adds a reference to its contents, and the cache writes the admitted ones.
    fn ingest(&mut self) {
        let data = self.data;
        let mut references = vec![0u16; self.accesses.len()];
        for file in 0..data.files() as u32 {
            let (first, pieces) = data.file(file);
            for (at, piece) in pieces.iter().enumerate() {
                let is_fragment = data.is_fragment(file, piece);
                let address = first + at as u32;
                let things = match self.setup.level {
                    Level::Containers => piece.container..piece.container + 1,
                    Level::Chunks => data.extents_of(piece),
                };
                for thing in things {
                    let known = &mut references[thing as usize];
                    *known = known.saturating_add(1);
                    let references = *known;
                    self.access(Access { now: 0, thing, address, references, is_fragment }, 0, 0);
                }
            }
            self.reading.clear();
            if let Some(disks) = &mut self.disks {
                disks.flash(Op::Write, &self.writing, true);
            }
            self.writing.clear();
        }
        self.cache.close();
        self.accesses.fill(0);
        let written_bytes = self.outcome.written_bytes;
        self.outcome = Outcome { written_bytes, ..Outcome::default() };
        self.began = self.disks.as_ref().map_or(0, Disks::now);
    }

    /// Returns the time at which the next file is read, by the clock of policies.
    fn next_time(&mut self) -> Nanos {
        let passed = u128::from(DAY * self.setup.days) * u128::from(self.files_read);
        self.files_read += 1;
        (passed / u128::from(self.files.max(1))) as Nanos
    }

    fn read(&mut self, file: u32) {
        let data = self.data;
        let now = self.next_time();
        for (at, piece) in data.file(file).1.iter().enumerate() {
            self.ask(file, at, now);
            self.serve(piece);
        }
    }

    /// Applies the policy to a piece of a file.
    fn ask(&mut self, file: u32, at: usize, now: Nanos) {
        let data = self.data;
        let (first, pieces) = data.file(file);
        let piece = &pieces[at];
        let is_fragment = data.is_fragment(file, piece);
        match self.setup.level {
            Level::Containers => {
                let references = data.references[piece.container as usize];
                let address = first + at as u32;
                let access = Access { now, thing: piece.container, address, references, is_fragment };
                self.access(access, u64::from(piece.first) * EXTENT, u64::from(piece.extents) * EXTENT);
            }
            Level::Chunks => {
                for thing in data.extents_of(piece) {
                    let references = data.extent_references.get(thing as usize).copied().unwrap_or(1);
                    self.access(Access { now, thing, address: thing, references, is_fragment }, 0, EXTENT);
                }
            }
        }
    }

    /// Applies the policy to a thing, of which a byte range is requested.
    fn access(&mut self, access: Access, offset: u64, bytes: u64) {
        let thing = access.thing as usize;
        if self.memory.access(access).hit {
            self.outcome.memory_hits += 1;
            self.from_memory += bytes;
            return;
        }
        self.outcome.accesses += 1;
        self.accesses[thing] += 1;
        let policies::Outcome { hit, inserted, evicted, refused } = self.cache.access(access);
        if let Some(module) = refused {
            self.outcome.refused[module as usize] += 1;
        }
        self.outcome.hits += u64::from(hit);
        self.outcome.hit_bytes += if hit { bytes } else { 0 };
        if inserted {
            self.writes[thing] += 1;
            self.outcome.written_bytes += self.thing_bytes;
        }
        if self.disks.is_none() {
            return;
        }
        if let Some(evicted) = evicted {
            self.free.push(std::mem::replace(&mut self.places[evicted as usize], NO_PLACE));
        }
        if inserted {
            self.places[thing] = self.free.pop().expect("the policy keeps to its places");
            self.writing.push((u64::from(self.places[thing]) * self.thing_bytes, self.thing_bytes));
        }
        if hit {
            self.reading.push((u64::from(self.places[thing]) * self.thing_bytes + offset, bytes));
        }
    }

    /// Submits the disk commands that the policy decided for a piece of a file.
    fn serve(&mut self, piece: &Piece) {
        let from_memory = std::mem::take(&mut self.from_memory);
        let chunk_bytes = self.setup.chunk_bytes;
        let (Some(disks), Some(handling)) = (&mut self.disks, self.setup.disks) else { return };
        let entries = |bytes: u64| entries(bytes, chunk_bytes);
        let asked = u64::from(piece.extents) * EXTENT - from_memory;
        let from_flash: u64 = self.reading.iter().map(|(_, bytes)| bytes).sum();
        if from_flash > 0 {
            // The entries of the chunks lie beside them.
            if let Some(last) = self.reading.last_mut() {
                last.1 += entries(from_flash);
            }
            disks.flash(Op::Read, &self.reading, true);
        }
        if from_flash < asked {
            let whole = self.container_bytes;
            match handling {
                Handling::Foreground => {
                    disks.read_store(piece.container, 0, whole + entries(whole), true);
                    disks.flash(Op::Write, &self.writing, true);
                }
                Handling::Background => {
                    let offset = u64::from(piece.first) * EXTENT;
                    disks.read_store(piece.container, offset, asked + entries(asked), true);
                    if !self.writing.is_empty() && asked < whole {
                        disks.read_store(piece.container, 0, whole + entries(whole), false);
                    }
                    disks.flash(Op::Write, &self.writing, false);
                }
            }
        }
        self.reading.clear();
        self.writing.clear();
    }

    /// Returns the bytes of the entries of the chunks in `bytes` bytes.
    fn entries(&self, bytes: u64) -> u64 {
        entries(bytes, self.setup.chunk_bytes)
    }

    fn outcome(&self) -> Outcome {
        let mut bytes = [0u64; 3];
        for (&accesses, &writes) in self.accesses.iter().zip(&self.writes) {
            let quadrant = match (accesses >= self.setup.popular, writes) {
                (_, 0) => continue,
                (true, 1) => 0,
                (true, _) => 1,
                (false, _) => 2,
            };
            bytes[quadrant] += u64::from(writes);
        }
        let share = |part: u64| 100.0 * part as f64 / bytes.iter().sum::<u64>().max(1) as f64;
        let [popular_once, popular_repeatedly, unpopular] = bytes.map(share);
        Outcome {
            quadrants: Quadrants { popular_once, popular_repeatedly, unpopular },
            nanos: self.disks.as_ref().map_or(0, Disks::now) - self.began,
            wear: self.disks.as_ref().map(Disks::wear).unwrap_or_default(),
            ..self.outcome
        }
    }
}

/// Returns the bytes of the entries of chunks of this size, in `bytes` bytes of them; a multiple of 512.
fn entries(bytes: u64, chunk_bytes: u64) -> u64 {
    (bytes / chunk_bytes * CHUNK_ENTRY).next_multiple_of(512)
}
