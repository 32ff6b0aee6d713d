//! Counts of the cost of requests: allocations here, instructions by `tests/instructions`, which runs this under
//! callgrind.
//!
//! One engine with the limits of a server serves batches of requests, one kind after another. Only work inside the engine's own calls counts (`handle`,
//! `next_effect`, `take_buffer`). So neither the simulator's driver counts nor digests, which cost the simulator nothing. Before a batch counts, the same
//! work is done until every list and table has reached its lasting size. Nothing here depends on the clock or on random draws that differ: two runs give the
//! same figures.
//!
//! A batch of writes ends before a checkpoint begins. The checkpoint that follows is counted separately, for each request of its batch.

use std::fmt::Write;
use std::rc::Rc;

use engine::{Command, Limits, Nanos, Operation, Policy, Submit, VolumePropertyChange};

use super::{BLOCK_BYTES, Bench, FILLING_BLOCKS, KNOWN_NUMBER, NEW_NUMBER};
use crate::random::Random;
use crate::timed::machine::{Machine, Step, Store};
use crate::timed::pool::{Pool, VOLUME};
use crate::{Checked, Violation, violated};

/// Bytes of memory of the server.
const MEMORY: u64 = 256 << 20;
/// Bytes of the volume, all of it mapped; the pool has as much space again.
const BYTES: u64 = 1 << 30;
/// Number of blocks with known contents, at the beginning of the volume.
const KNOWN_BLOCKS: u64 = 1 << 14;
/// Number of blocks after these that are overwritten again and again.
const SCRATCH_BLOCKS: u64 = 1 << 15;
/// Number of blocks after these that are read again and again, few enough to be cached.
const READ_BLOCKS: u64 = 1 << 10;
/// Step between reads of the other blocks, in an order that does not repeat. It is odd, so that it reaches all of a power of two.
const STRIDE: u64 = 40_503;
/// Maximum number of blocks of a batch: no checkpoint begins before.
const BATCH_BLOCKS: u64 = 1 << 13;
/// Maximum number of requests of a batch.
const BATCH_REQUESTS: u64 = 1 << 12;

/// Numbers of volumes in a pool that gets [`CREATIONS`] more. Below 65, an engine that can have mutants walks its table with each change.
const VOLUMES: [usize; 2] = [100, 1000];
/// Number of volumes that are created in a batch.
const CREATIONS: usize = 10;

/// Minimum number of batches that do not count.
const ROUNDS: u64 = 6;

/// Number of rounds of overwriting half of the scratch blocks, before all other work.
const AGING_ROUNDS: u64 = 4;

/// Kinds of request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Work {
    /// A write of contents that are new.
    New,
    /// A write of new contents like [`Work::New`], directly behind the previous one.
    InOrder,
    /// A write of contents that are known.
    Known,
    /// A write of new contents that is answered when it is durable.
    Durable,
    /// A write of new contents and, when that is answered, a flush, one pair at a time.
    Flushed,
    /// A trim of blocks here and there.
    Trim,
    /// A flush when everything is durable.
    Flush,
    /// A read of blocks that are cached.
    Hit,
    /// A read of blocks that are not cached.
    Miss,
    /// Seven reads of any blocks to three writes of new contents.
    Mixed,
}

/// A kind of request.
#[derive(Clone, Copy, Debug)]
struct Path {
    name: &'static str,
    policy: Policy,
    blocks: u64,
    work: Work,
}

const fn path(name: &'static str, policy: Policy, blocks: u64, work: Work) -> Path {
    Path { name, policy, blocks, work }
}

/// All paths. Those with `full` are last: it makes an index on disk.
const PATHS: [Path; 23] = [
    path("4 KiB write, native, new", Policy::Native, 1, Work::New),
    path("4 KiB write, select, new", Policy::SELECT, 1, Work::New),
    path("4 KiB write, select, known", Policy::SELECT, 1, Work::Known),
    path("4 KiB write, select, new, in order", Policy::SELECT, 1, Work::InOrder),
    path("128 KiB write, native, new", Policy::Native, 32, Work::New),
    path("128 KiB write, select, new", Policy::SELECT, 32, Work::New),
    path("128 KiB write, select, known", Policy::SELECT, 32, Work::Known),
    path("4 KiB durable write, native", Policy::Native, 1, Work::Durable),
    path("4 KiB durable write, select, new", Policy::SELECT, 1, Work::Durable),
    path("4 KiB write and flush, native", Policy::Native, 1, Work::Flushed),
    path("4 KiB write and flush, select, new", Policy::SELECT, 1, Work::Flushed),
    path("4 KiB trim", Policy::SELECT, 1, Work::Trim),
    path("flush, nothing to do", Policy::SELECT, 0, Work::Flush),
    path("4 KiB read, hit", Policy::SELECT, 1, Work::Hit),
    path("4 KiB read, miss", Policy::SELECT, 1, Work::Miss),
    path("128 KiB read, hit", Policy::SELECT, 32, Work::Hit),
    path("128 KiB read, miss", Policy::SELECT, 32, Work::Miss),
    path("4 KiB, 7 reads to 3 writes, native", Policy::Native, 1, Work::Mixed),
    path("4 KiB, 7 reads to 3 writes, select, new", Policy::SELECT, 1, Work::Mixed),
    path("4 KiB write, full, new", Policy::Full, 1, Work::New),
    path("4 KiB write, full, known", Policy::Full, 1, Work::Known),
    path("128 KiB write, full, new", Policy::Full, 32, Work::New),
    path("128 KiB write, full, known", Policy::Full, 32, Work::Known),
];

/// Read of blocks that a clone inherits, apart from the others: the snapshot that it needs changes what writes to the volume cost.
const CLONE: Path = path("4 KiB read of a clone, miss", Policy::SELECT, 1, Work::Miss);

/// Counts for one kind of request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Count {
    /// Name for tables.
    pub name: String,
    /// Requests.
    pub requests: u64,
    /// Allocations of the engine while it served them.
    pub allocations: u64,
}

impl Count {
    /// Returns the allocations for each request.
    pub fn allocations_per_request(&self) -> f64 {
        self.allocations as f64 / self.requests as f64
    }
}

/// Counts all paths, or those whose name contains `only`.
pub fn count(only: &str) -> Checked<Vec<Count>> {
    let mut bench = Bench::for_paths()?;
    let mut counts = Vec::new();
    for path in PATHS.into_iter().filter(|path| path.name.contains(only)) {
        bench.count(path, &mut counts)?;
    }
    for volumes in VOLUMES {
        let name = format!("creation of a volume beside {volumes}");
        if name.contains(only) {
            bench.count_creations(name, volumes, &mut counts)?;
        }
    }
    if CLONE.name.contains(only) {
        bench.clone_volume()?;
        bench.count(CLONE, &mut counts)?;
    }
    Ok(counts)
}

/// Separates counted work from other work: callgrind divides its counts here.
#[inline(never)]
fn mark() {
    std::hint::black_box(());
}

/// Counts the allocations of the engine in some work.
fn counted(bench: &mut Bench, work: impl FnOnce(&mut Bench) -> Checked) -> Checked<u64> {
    mark();
    let before = bench.machine.allocations;
    work(bench)?;
    let allocations = bench.machine.allocations - before;
    mark();
    Ok(allocations)
}

impl Bench {
    fn for_paths() -> Checked<Bench> {
        let pool = Pool::new(BYTES, BYTES).map_err(|why| Violation(format!("no pool of {BYTES} bytes: {why}")))?;
        let limits = Limits::for_memory(MEMORY, &pool.parameters.geometry)
            .map_err(|needed| Violation(format!("the pool needs {needed} bytes of memory")))?;
        let machine = Machine::open(Store::new(Rc::new(pool)), limits, 0);
        let mut bench = Bench {
            machine,
            volume: VOLUME,
            random: Random::new(5),
            known_blocks: KNOWN_BLOCKS,
            scratch_blocks: SCRATCH_BLOCKS,
            next_new: NEW_NUMBER,
            next_read: 0,
            next_in_order: 0,
            next_token: 1,
            in_progress: 0,
        };
        bench.machine.opened()?;
        for first in (0..KNOWN_BLOCKS).step_by(FILLING_BLOCKS as usize) {
            bench.write(first, FILLING_BLOCKS, KNOWN_NUMBER + first as u32, false)?;
        }
        bench.settle()?;
        // Repeated until there are holes everywhere, and the number of I/Os in progress at once has reached its
        // maximum.
        let aging = path("aging", Policy::SELECT, 1, Work::New);
        for _ in 0..AGING_ROUNDS {
            bench.requests(aging, SCRATCH_BLOCKS / 2)?;
            bench.settle()?;
        }
        Ok(bench)
    }

    /// Makes a clone of the volume. Requests go to it from here on. There is no index on disk any more.
    fn clone_volume(&mut self) -> Checked {
        self.set_policy(Policy::SELECT)?;
        self.settle()?;
        self.machine.command(Command::CreateSnapshots { volumes: &[VOLUME], name: "image", seconds: 0 })?;
        let snapshot = self.machine.engine.snapshots_of(VOLUME).next().map(|snapshot| snapshot.id);
        let Some(snapshot) = snapshot else { return violated("there is no snapshot") };
        self.machine.command(Command::CloneSnapshot { snapshot, name: "clone" })?;
        let clone = self.machine.engine.volume_named("clone").map(|clone| clone.id);
        let Some(clone) = clone else { return violated("there is no clone") };
        self.volume = clone;
        Ok(())
    }

    fn set_policy(&mut self, policy: Policy) -> Checked {
        let change = VolumePropertyChange { policy: Some(Some(policy)), ..VolumePropertyChange::default() };
        self.machine.command(Command::SetVolume { volume: self.volume, change })
    }

    fn settle(&mut self) -> Checked {
        self.drain()?;
        self.machine.command(Command::Settle)
    }

    /// Counts a batch after others like it, and the checkpoint after it. Fails if a checkpoint comes in between.
    fn count(&mut self, path: Path, counts: &mut Vec<Count>) -> Checked {
        self.set_policy(path.policy)?;
        let writes = !matches!(path.work, Work::Flush | Work::Hit | Work::Miss);
        let requests = BATCH_REQUESTS.min(BATCH_BLOCKS / path.blocks.max(1));
        // Repeated until the read cache is full of the blocks that this path reads, and its tables have been through a
        // few checkpoints.
        let cached = u64::from(self.machine.engine.buffer_numbers());
        let rounds =
            if matches!(path.work, Work::Miss | Work::Mixed) { 2 * cached / (requests * path.blocks) } else { 0 };
        for _ in 0..rounds.max(ROUNDS) {
            self.requests(path, requests)?;
            self.settle()?;
        }
        let (checkpoints, reads, removed) = self.so_far();
        let allocations = counted(self, |bench| bench.requests(path, requests))?;
        let (checkpoints, reads, removed) =
            (self.so_far().0 - checkpoints, self.so_far().1 - reads, self.so_far().2 - removed);
        counts.push(Count { name: path.name.to_string(), requests, allocations });
        if checkpoints != 0 {
            return violated(format!("{}: a checkpoint came in between", path.name));
        }
        let blocks = requests * path.blocks;
        let wanted = if path.work == Work::Known { blocks } else { 0 };
        // Where reads have taken memory from the index, it has dropped some entries.
        if removed.abs_diff(wanted) > blocks / 16 {
            return violated(format!("{}: {removed} blocks were removed instead of {wanted}", path.name));
        }
        if path.work == Work::Hit && reads > 0 || path.work == Work::Miss && reads < blocks / 32 {
            return violated(format!("{}: {reads} reads of the device for {blocks} blocks", path.name));
        }
        if writes {
            let (name, allocations) = (format!("{}: its checkpoint", path.name), counted(self, Bench::settle)?);
            counts.push(Count { name, requests, allocations });
        }
        Ok(())
    }

    /// Creates volumes until the pool has this number. Then counts the commands of a batch of creations, and the work until they are answered, which is
    /// durably.
    fn count_creations(&mut self, name: String, volumes: usize, counts: &mut Vec<Count>) -> Checked {
        let present = self.machine.engine.volumes().count();
        for first in (present..volumes).step_by(CREATIONS) {
            let few = CREATIONS.min(volumes - first);
            self.begin_creations(first, few);
            self.end_creations(few)?;
        }
        self.settle()?;
        let requests = CREATIONS as u64;
        let allocations = counted(self, |bench| {
            bench.begin_creations(volumes, CREATIONS);
            Ok(())
        })?;
        counts.push(Count { name: name.clone(), requests, allocations });
        let allocations = counted(self, |bench| bench.end_creations(CREATIONS))?;
        counts.push(Count { name: format!("{name}: its checkpoint"), requests, allocations });
        self.settle()
    }

    fn begin_creations(&mut self, first: usize, count: usize) {
        for number in first..first + count {
            let name = format!("volume-{number}");
            self.machine.begin_command(Command::CreateVolume { name: &name, size: BYTES, policy: None });
        }
    }

    fn end_creations(&mut self, count: usize) -> Checked {
        let mut answered = 0;
        while answered < count {
            match self.machine.step(Nanos::MAX)? {
                Step::Command(true) => answered += 1,
                Step::Command(false) | Step::Quiet => return violated("a volume is not created"),
                _ => {}
            }
        }
        Ok(())
    }

    /// Returns the counts so far of checkpoints, reads of slots, and removed blocks.
    fn so_far(&self) -> (u64, u64, u64) {
        let engine = &self.machine.engine;
        (engine.counters().checkpoints, self.machine.io.slot_reads, engine.write_counts().removed.blocks)
    }

    fn requests(&mut self, path: Path, requests: u64) -> Checked {
        for number in 0..requests {
            let reads = match path.work {
                Work::Hit | Work::Miss => true,
                Work::Mixed => number % 10 < 7,
                _ => false,
            };
            if reads {
                self.read(path)?;
            } else if path.work == Work::Flush {
                self.flush()?;
            } else if path.work == Work::Trim {
                let (first, _) = self.next_write(false, path.blocks);
                self.submit(Operation::Trim, first * BLOCK_BYTES, path.blocks * BLOCK_BYTES)?;
            } else {
                self.write_for(path)?;
            }
        }
        self.drain()
    }

    fn write_for(&mut self, path: Path) -> Checked {
        let (mut first, number) = self.next_write(path.work == Work::Known, path.blocks);
        if path.work == Work::InOrder {
            self.next_in_order += path.blocks;
            first = self.known_blocks + self.next_in_order % self.scratch_blocks;
        }
        self.write(first, path.blocks, number, path.work == Work::Durable)?;
        if path.work == Work::Flushed {
            self.drain()?;
            self.flush()?;
            self.drain()?;
        }
        Ok(())
    }

    fn read(&mut self, path: Path) -> Checked {
        let start = self.known_blocks + self.scratch_blocks;
        let first = if path.work == Work::Hit {
            start + self.random.below(READ_BLOCKS / path.blocks) * path.blocks
        } else {
            // The rear half of the volume has no block that is written.
            let places = BYTES / BLOCK_BYTES / 2 / path.blocks;
            self.next_read += 1;
            places * path.blocks + (self.next_read * STRIDE) % places * path.blocks
        };
        self.submit(Operation::Read { object: 0 }, first * BLOCK_BYTES, path.blocks * BLOCK_BYTES)
    }

    fn flush(&mut self) -> Checked {
        self.submit(Operation::Flush, 0, 0)
    }

    /// Submits anything but a write, as soon as there is space for it.
    fn submit(&mut self, operation: Operation<'_>, offset: u64, length: u64) -> Checked {
        self.make_space()?;
        let token = self.next_token;
        self.machine.submit(Submit { token, volume: self.volume, offset, length, fua: false, operation });
        self.next_token += 1;
        self.in_progress += 1;
        Ok(())
    }
}

/// Formats the counts as a table in Markdown.
pub fn table(counts: &[Count]) -> String {
    let mut text = String::from("\n| request | allocations for each |\n|---|---|\n");
    for count in counts {
        let _ = writeln!(text, "| {} | {:.4} |", count.name, count.allocations_per_request());
    }
    text
}
