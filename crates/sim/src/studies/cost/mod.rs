//! A benchmark of the processor time of deduplication: real time, so different on every machine and in every run.
//!
//! One engine with a large index serves single blocks and longer writes in batches. The policy of the volume and the written contents change from batch to
//! batch, in turn, so a disturbance of one kind of batch disturbs all of them. The time is that of the thread, for the engine and for the simulator's driver
//! together. The results are differences of these times.
//!
//! | difference | meaning |
//! |---|---|
//! | `observe`, new - `native`, new | Lookup of unknown contents, Decide, counting |
//! | `observe`, known - `observe`, new | Verify: the entry is found, and proven |
//! | `select`, new - `native`, new | cost that `select` adds to a write that it cannot remove |
//! | `select`, known - `native`, new | cost that it adds to a write that it removes, less the savings |

pub mod paths;

use std::fmt::Write;
use std::rc::Rc;

use engine::policy::Lookup;
use engine::{CacheLimits, Command, Limits, Nanos, Operation, Policy, Submit, VolumeId, VolumePropertyChange};

use crate::content::{CELLS, Cells};
use crate::random::Random;
use crate::timed::machine::{Machine, Step, Store, thread_nanos};
use crate::timed::pool::{Pool, VOLUME};
use crate::{Checked, Violation, violated};

/// Maximum nanoseconds that `select` may add to a write of a block.
pub const MOST_NANOS: f64 = 1000.0;
const BLOCK_BYTES: u64 = 4096;
const MEMORY: u64 = 1 << 30;
const SPARE_BYTES: u64 = 16 << 30;
const DEPTH: usize = 32;
/// Number of blocks that are overwritten again and again.
const SCRATCH_BLOCKS: u64 = 1 << 18;
/// Number of blocks of the requests that fill the index.
const FILLING_BLOCKS: u64 = 256;
/// First number of known contents; new ones begin at `NEW_NUMBER`.
const KNOWN_NUMBER: u32 = 1 << 20;
const NEW_NUMBER: u32 = 1 << 29;

/// Kind of write that is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Kind {
    /// Name for tables.
    pub name: &'static str,
    policy: Policy,
    is_known: bool,
}

/// All kinds, in the order of [`Results::nanos`].
pub const KINDS: [Kind; 5] = [
    Kind { name: "native, new", policy: Policy::Native, is_known: false },
    Kind { name: "observe, new", policy: Policy::Observe, is_known: false },
    Kind { name: "observe, known", policy: Policy::Observe, is_known: true },
    Kind { name: "select, new", policy: Policy::SELECT, is_known: false },
    Kind { name: "select, known", policy: Policy::SELECT, is_known: true },
];

/// Extent of the measurement.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Entries of the index.
    pub index_entries: u32,
    /// Batches of each kind.
    pub rounds: usize,
    /// Blocks of a batch.
    pub blocks: u64,
    /// The only kind to measure, if given.
    pub only: Option<Kind>,
}

/// Nanoseconds of the processor for each block of each batch, by kind.
#[derive(Clone, Debug)]
pub struct Results {
    /// Blocks of a request.
    pub request_blocks: u64,
    /// Nanoseconds by kind, in the order of the rounds.
    pub nanos: [Vec<f64>; KINDS.len()],
}

/// Median and quartiles of some figures.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Spread {
    /// The median.
    pub median: f64,
    /// The quartiles.
    pub quartiles: (f64, f64),
}

impl Spread {
    fn of(mut values: Vec<f64>) -> Spread {
        values.sort_unstable_by(f64::total_cmp);
        let at = |quarter: usize| values.get(values.len() * quarter / 4).copied().unwrap_or(f64::NAN);
        Spread { median: at(2), quartiles: (at(1), at(3)) }
    }
}

impl Results {
    /// Returns the spread of the times of one kind.
    pub fn spread(&self, kind: usize) -> Spread {
        Spread::of(self.nanos[kind].clone())
    }

    /// Returns the spread of the differences of two kinds, round by round.
    pub fn difference(&self, more: usize, less: usize) -> Spread {
        Spread::of(self.nanos[more].iter().zip(&self.nanos[less]).map(|(more, less)| more - less).collect())
    }
}

struct Bench {
    machine: Machine,
    /// Volume that requests go to.
    volume: VolumeId,
    random: Random,
    known_blocks: u64,
    scratch_blocks: u64,
    next_new: u32,
    next_read: u64,
    next_in_order: u64,
    next_token: u64,
    in_progress: usize,
}

/// Measures requests of each of these sizes, in blocks.
pub fn measure(plan: &Plan, sizes: &[u64]) -> Checked<Vec<Results>> {
    let mut bench = Bench::new(plan)?;
    sizes.iter().map(|&blocks| bench.rounds(plan, blocks)).collect()
}

impl Bench {
    /// Creates an engine with a quarter of its index full of contents that are on the store: new contents need space in it while they are measured, too.
    fn new(plan: &Plan) -> Checked<Bench> {
        let known_blocks = u64::from(plan.index_entries) / 4;
        let bytes = ((known_blocks + SCRATCH_BLOCKS) * BLOCK_BYTES).next_multiple_of(1 << 30);
        let pool =
            Pool::new(bytes, SPARE_BYTES).map_err(|why| Violation(format!("no pool of {bytes} bytes: {why}")))?;
        let limits = Limits::for_memory(MEMORY, &pool.parameters.geometry)
            .map_err(|needed| Violation(format!("the pool needs {needed} bytes of memory")))?;
        // The index keeps its size.
        let cache = CacheLimits { setting: None, ..limits.cache };
        let limits = Limits { index_entries: plan.index_entries, cache, ..limits };
        let mut machine = Machine::open(Store::new(Rc::new(pool)), limits, 0);
        machine.opened()?;
        let mut bench = Bench {
            machine,
            volume: VOLUME,
            random: Random::new(3),
            known_blocks,
            scratch_blocks: SCRATCH_BLOCKS,
            next_new: NEW_NUMBER,
            next_read: 0,
            next_in_order: 0,
            next_token: 1,
            in_progress: 0,
        };
        for first in (0..known_blocks).step_by(FILLING_BLOCKS as usize) {
            bench.write(first, FILLING_BLOCKS, KNOWN_NUMBER + first as u32, false)?;
        }
        bench.drain()?;
        bench.machine.command(Command::Settle)?;
        Ok(bench)
    }

    /// Measures batches of all kinds in turn.
    fn rounds(&mut self, plan: &Plan, request_blocks: u64) -> Checked<Results> {
        let mut results = Results { request_blocks, nanos: Default::default() };
        for round in 0..=plan.rounds {
            for at in 0..KINDS.len() {
                // Another kind comes first each time.
                let number = (at + round) % KINDS.len();
                let kind = KINDS[number];
                if plan.only.is_some_and(|only| only != kind) {
                    continue;
                }
                let policy = Some(Some(kind.policy));
                self.machine.command(Command::SetVolume {
                    volume: VOLUME,
                    change: VolumePropertyChange { policy, ..VolumePropertyChange::default() },
                })?;
                let counts = self.machine.engine.write_counts();
                // A profiler may not know the clock.
                let clock = || if plan.only.is_some() { 0 } else { thread_nanos() };
                let begun = clock();
                self.batch(kind.is_known, plan.blocks / request_blocks, request_blocks)?;
                let nanos = clock() - begun;
                let removed = self.machine.engine.write_counts().removed.blocks - counts.removed.blocks;
                let wanted = if kind.is_known && kind.policy == Policy::SELECT { plan.blocks } else { 0 };
                if removed.abs_diff(wanted) > plan.blocks / 100 {
                    return violated(format!("{}: {removed} blocks were removed instead of {wanted}", kind.name));
                }
                // The first round only fills caches.
                if round > 0 {
                    results.nanos[number].push(nanos as f64 / plan.blocks as f64);
                }
            }
        }
        Ok(results)
    }

    /// Writes `requests` requests and waits for their answers. (Not inlined, so that a profiler finds it.)
    #[inline(never)]
    fn batch(&mut self, is_known: bool, requests: u64, blocks: u64) -> Checked {
        for _ in 0..requests {
            let (first, number) = self.next_write(is_known, blocks);
            self.write(first, blocks, number, false)?;
        }
        self.drain()
    }

    /// Draws the next write: its first block and the number of its content.
    fn next_write(&mut self, is_known: bool, blocks: u64) -> (u64, u32) {
        // Never adjacent to another write. Joined, they would be longer runs than the known ones, and the index would
        // name copies that are overwritten soon.
        let first = self.known_blocks + self.random.below(self.scratch_blocks / (2 * blocks)) * 2 * blocks;
        let number = if is_known {
            KNOWN_NUMBER + (self.random.below(self.known_blocks / blocks) * blocks) as u32
        } else {
            self.next_new += blocks as u32;
            self.next_new - blocks as u32
        };
        (first, number)
    }

    /// Submits a write, as soon as there is space for it.
    fn write(&mut self, first: u64, blocks: u64, number: u32, fua: bool) -> Checked {
        let contents: Vec<Cells> = (number..).take(blocks as usize).map(|number| [number; CELLS]).collect();
        let (offset, length) = (first * BLOCK_BYTES, blocks * BLOCK_BYTES);
        let operation = Operation::Flush;
        let submit = Submit { token: self.next_token, volume: self.volume, offset, length, fua, operation };
        self.make_space()?;
        while !self.machine.write(self.next_token, submit, &contents) {
            self.step()?;
        }
        self.next_token += 1;
        self.in_progress += 1;
        Ok(())
    }

    /// Steps until one more request may be in flight.
    fn make_space(&mut self) -> Checked {
        while self.in_progress >= DEPTH || !self.machine.engine.can_submit() {
            self.step()?;
        }
        Ok(())
    }

    fn step(&mut self) -> Checked {
        match self.machine.step(Nanos::MAX)? {
            Step::Reply(_, Ok(_)) => self.in_progress -= 1,
            Step::Reply(token, Err(error)) => return violated(format!("request {token} failed: {error:?}")),
            Step::Quiet => return violated(format!("{} requests hang", self.in_progress)),
            _ => {}
        }
        Ok(())
    }

    fn drain(&mut self) -> Checked {
        while self.in_progress > 0 {
            self.step()?;
        }
        Ok(())
    }
}

/// Measures the time in nanoseconds that the policy takes for each block of a request of `blocks` blocks, all of them known.
pub fn decide(blocks: usize, rounds: usize) -> Spread {
    const CALLS: usize = 10_000;
    let lookups: Vec<Lookup> = (0..blocks as u64).map(|at| Lookup::Known(7 + at)).collect();
    let mut shares = vec![false; blocks];
    let round = |_| {
        let begun = thread_nanos();
        for _ in 0..CALLS {
            Policy::SELECT.decide(std::hint::black_box(&lookups), std::hint::black_box(&mut shares));
        }
        (thread_nanos() - begun) as f64 / (CALLS * blocks) as f64
    };
    Spread::of((0..rounds).map(round).collect())
}

/// Describes each difference that exceeds [`MOST_NANOS`].
pub fn excesses(all: &[Results]) -> Vec<String> {
    let mut found = Vec::new();
    for results in all {
        for (name, more) in [("new", 3), ("known", 4)] {
            let added = results.difference(more, 0).median;
            if added > MOST_NANOS {
                let blocks = results.request_blocks;
                found.push(format!(
                    "requests of {blocks}, {name}: select adds {added:.0} ns a block, {MOST_NANOS} allowed"
                ));
            }
        }
    }
    found
}

/// Formats the results as a table in Markdown.
pub fn table(all: &[Results], decide: &[Spread]) -> String {
    let mut text = String::from("\n| ns of the processor for each 4 KiB |");
    for results in all {
        let _ = write!(text, " requests of {} KiB |", results.request_blocks * 4);
    }
    let _ = writeln!(text, "\n|---|{}", "---|".repeat(all.len()));
    let mut row = |name: &str, spread: &dyn Fn(usize) -> Spread| {
        let _ = write!(text, "| {name} |");
        for at in 0..all.len() {
            let Spread { median, quartiles: (low, high) } = spread(at);
            let _ = write!(text, " {median:.0} ({low:.0} to {high:.0}) |");
        }
        text.push('\n');
    };
    for (number, kind) in KINDS.iter().enumerate() {
        row(&format!("whole write: {}", kind.name), &|at| all[at].spread(number));
    }
    row("Lookup of what is not known, Decide", &|at| all[at].difference(1, 0));
    row("Decide alone", &|at| decide[at]);
    row("Verify: a hit, and its proof", &|at| all[at].difference(2, 1));
    row("**`select` adds, contents not known**", &|at| all[at].difference(3, 0));
    row("**`select` adds, contents known**", &|at| all[at].difference(4, 0));
    text
}

/// Line of the document at which the table begins.
pub const BEGIN: &str = "<!-- made by `sim cost` -->";
