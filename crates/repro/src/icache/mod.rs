//! Experiment on the cache partition: one amount of memory for index and read cache, with fixed partitions and with those of iCache (POD).
//!
//! The engine serves a preloaded pool (`scale::pool`) from a simulated SSD (`scale::device`) in virtual time. [`load`] has the workloads. This module runs them
//! with one [`PartitionMode`] after the other and counts the savings. [`report`] makes tables and figures of them.
//!
//! **Metric.** A read that is answered without the device saves a read of a block. A block that is not written because its content is known saves a write of a
//! block. Each saving counts the time of the idle device for it: `READ_NANOS` and `WRITE_NANOS`. The maximum saving is the time of all reads, and of all
//! written blocks whose content had been written before.

pub mod load;
pub mod report;

use std::rc::Rc;

use engine::{CacheCounts, CacheLimits, CacheSetting, CacheStatus, Limits, Nanos, Rule};

use crate::icache::load::{Burst, Client, Shape};
use crate::icache::report::Results;
use sim::disks::ssd::{Command, Device, SSD};
use sim::parallel::in_order;
use sim::timed::machine::{Machine, Store};
use sim::timed::pool::Pool;
use sim::{Checked, Violation, guarded};

/// Bytes of an index entry, and of a buffer.
const ENTRY_BYTES: u64 = 16;
const BLOCK_BYTES: u64 = 4096;
/// Memory outside the partition: the engine's other needs, and buffers for incoming writes.
const OTHER_MEMORY: u64 = 64 << 20;
const WRITE_BUFFERS: u32 = 1024;
/// Pool space beyond the mapped blocks.
const SPARE_BYTES: u64 = 4 << 30;
/// Idle time after opening until the background has no work.
const REST: Nanos = 20_000_000_000;
/// Intervals of the parameter sweep: requests between two checks of the hits.
pub const INTERVALS: [u32; 3] = [256, 1000, 4000];
/// Units of the parameter sweep: the minimum move of the cache partition, in thousandths.
pub const UNITS: [u32; 3] = [5, 10, 20];
/// Samples of a phase.
const SAMPLES: u64 = 100;
/// Blocks that are read at the end and compared.
const VERIFIED: u64 = 500;

/// Default seed.
pub const SEED: u64 = 5;

/// Cache partition: the division of the memory between index and read cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PartitionMode {
    /// Percentage of it that is index; the rest is read cache.
    Fixed(u32),
    /// The engine divides it.
    Adaptive(Adaptive),
}

/// Parameters of the engine's cache partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Adaptive {
    /// Rule that divides it.
    pub rule: Rule,
    /// Requests between two checks of the hits: N_int.
    pub interval: u32,
    /// Minimum move of the cache partition, in thousandths: S_unit.
    pub unit: u32,
    /// True if the engine knows the cost that each kind of hit saves; otherwise all hits count the same.
    pub knows_costs: bool,
    /// Sampling of the index ghosts: they hold one digest in N.
    pub sampled_one_in: u32,
    /// Percentage that is index at first.
    pub begins_with: u32,
}

impl Adaptive {
    /// Parameters of a server, except for the value of hits.
    pub const DEFAULT: Adaptive = Adaptive {
        rule: Rule::Curves,
        interval: 1000,
        unit: 10,
        knows_costs: true,
        sampled_one_in: 64,
        begins_with: 50,
    };
}

impl PartitionMode {
    /// Returns the name that tables use; parameters with their default are left out.
    pub fn name(self) -> String {
        match self {
            PartitionMode::Fixed(percent) => format!("{percent} %"),
            PartitionMode::Adaptive(Adaptive { rule, interval, unit, knows_costs, sampled_one_in, begins_with }) => {
                let rule = if rule == Rule::Paper { "adaptive:paper" } else { "adaptive" };
                let costs = if knows_costs { "" } else { ", all hits alike" };
                let sizes = match (interval, unit) {
                    (1000, 10) => String::new(),
                    _ => format!(", N {interval}, S {} %", f64::from(unit) / 10.0),
                };
                let sampled = match sampled_one_in {
                    64 => String::new(),
                    _ => format!(", 1 digest in {sampled_one_in}"),
                };
                let begins = match begins_with {
                    50 => String::new(),
                    _ => format!(", from {begins_with} %"),
                };
                format!("{rule}{costs}{sizes}{sampled}{begins}")
            }
        }
    }
}

/// A period with one mix of client requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Phase {
    /// Mix of reads and writes that they do.
    pub burst: Burst,
    /// Number of requests of the phase.
    pub requests: u64,
}

/// A workload, and the memory for it.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Name in tables and files.
    pub name: &'static str,
    /// Bytes of the partitioned memory.
    pub memory: u64,
    /// Sizes of the load: the number of blocks that are read, of extents in the catalogue of repeated contents, and of blocks in each extent.
    pub shape: Shape,
    /// Phases in their order.
    pub phases: Vec<Phase>,
    /// The first ones of them, which do not count.
    pub warm_up: usize,
    /// Seed of the random numbers.
    pub seed: u64,
}

impl Plan {
    /// Bursts of reads and of writes in turn, `rounds` of each that count, after one of each that does not.
    pub fn alternating(memory: u64, rounds: usize) -> Plan {
        let shape = Shape::for_memory(memory);
        let reads = Phase { burst: Burst::Reads, requests: shape.read_requests() };
        let writes = Phase { burst: Burst::Writes, requests: shape.write_requests() };
        let phases = [writes, reads].repeat(rounds + 1);
        Plan { name: "alternating", memory, shape, phases, warm_up: 2, seed: SEED }
    }

    /// Plans a mix that stays the same: as many requests as in the alternating workload.
    pub fn steady(memory: u64, rounds: usize) -> Plan {
        let shape = Shape::for_memory(memory);
        let requests = shape.read_requests() + shape.write_requests();
        let phases = vec![Phase { burst: Burst::Mixed, requests }; rounds + 1];
        Plan { name: "steady", memory, shape, phases, warm_up: 1, seed: SEED }
    }

    fn blocks_written(&self) -> u64 {
        self.phases.iter().map(|phase| phase.requests * self.shape.extent_blocks).sum()
    }
}

/// Requested blocks, and those that needed no access to the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Blocks read.
    pub reads: u64,
    /// Blocks read that came from memory.
    pub read_hits: u64,
    /// Blocks written whose content had been written before.
    pub known: u64,
    /// Blocks that were not written, because their content was known.
    pub removed: u64,
}

impl Counts {
    fn since(self, then: Counts) -> Counts {
        Counts {
            reads: self.reads - then.reads,
            read_hits: self.read_hits - then.read_hits,
            known: self.known - then.known,
            removed: self.removed - then.removed,
        }
    }

    /// Returns the device time that was saved.
    pub fn saved(&self) -> Nanos {
        self.read_hits * read_nanos() + self.removed * write_nanos()
    }

    /// Returns the device time that could have been saved at best.
    pub fn savable(&self) -> Nanos {
        self.reads * read_nanos() + self.known * write_nanos()
    }

    /// Returns the saved share of the device time that could have been saved, in percent.
    pub fn saved_percent(&self) -> f64 {
        percent(self.saved(), self.savable())
    }
}

/// Returns `part` of `whole` in percent; 0 of 0 is 0.
fn percent(part: u64, whole: u64) -> f64 {
    part as f64 * 100.0 / whole.max(1) as f64
}

/// Returns the time of a one-block read on an idle device.
pub fn read_nanos() -> Nanos {
    Device::new(SSD).submit(0, Command::Read(BLOCK_BYTES))
}

/// Returns the time of a one-block write on an idle device.
pub fn write_nanos() -> Nanos {
    Device::new(SSD).submit(0, Command::Write(BLOCK_BYTES))
}

/// State at a moment, and counts since the sample before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sample {
    /// Requests answered so far.
    pub requests: u64,
    /// The number of the phase.
    pub phase: usize,
    /// Bytes of the index.
    pub index_bytes: u64,
    /// Bytes of the read cache.
    pub read_bytes: u64,
    /// Counts since the last sample.
    pub counts: Counts,
}

impl Sample {
    /// Returns the index share of the partitioned memory, in percent.
    pub fn index_percent(&self) -> f64 {
        percent(self.index_bytes, self.index_bytes + self.read_bytes)
    }
}

/// Results of a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Outcome {
    /// Cache partition of the run.
    pub partition: PartitionMode,
    /// Counts of the phases that count.
    pub counts: Counts,
    /// Requests in the phases that count.
    pub requests: u64,
    /// Sum of the latencies of these requests.
    pub latency: Nanos,
    /// Sum of the latencies of the reads among them.
    pub read_latency: Nanos,
    /// Virtual time that they took.
    pub nanos: Nanos,
    /// Counters of the engine, from the beginning on.
    pub engine: CacheCounts,
    /// Samples of all phases.
    pub samples: Vec<Sample>,
}

impl Outcome {
    /// Returns the mean latency, in microseconds, of the reads and writes after the warm-up; 0 if there were none.
    pub fn mean_latency_us(&self) -> f64 {
        self.latency as f64 / 1000.0 / self.requests.max(1) as f64
    }

    /// Returns the mean latency of a read, in microseconds.
    pub fn mean_read_latency_us(&self) -> f64 {
        self.read_latency as f64 / 1000.0 / self.counts.reads.max(1) as f64
    }
}

/// Executes a workload with a cache partition.
pub fn run(plan: &Plan, partition: PartitionMode) -> Checked<Outcome> {
    let mapped = (plan.shape.read_blocks + plan.blocks_written()) * BLOCK_BYTES;
    let pool = Pool::new(mapped.next_multiple_of(1 << 30), SPARE_BYTES);
    let pool = pool.map_err(|why| Violation(format!("no pool of {mapped} bytes: {why}")))?;
    // The read cache always has space for two of the longest reads: with so little memory as here, short ones.
    let pool = pool.with_pieces(plan.shape.extent_blocks as u32);
    let limits = limits(plan, partition, &pool)?;
    let mut machine = Machine::open(Store::new(Rc::new(pool)), limits, 0);
    machine.opened()?;
    while machine.now < REST {
        machine.step(REST)?;
    }
    let mut client = Client::new(plan.shape, plan.seed);
    let mut outcome = Outcome {
        partition,
        counts: Counts::default(),
        requests: 0,
        latency: 0,
        read_latency: 0,
        nanos: 0,
        engine: CacheCounts::default(),
        samples: Vec::new(),
    };
    let mut begun = client.tally(&machine);
    let mut before = begun.counts;
    for (number, phase) in plan.phases.iter().enumerate() {
        if number == plan.warm_up {
            begun = client.tally(&machine);
        }
        for part in 0..SAMPLES {
            let requests = (part + 1) * phase.requests / SAMPLES - part * phase.requests / SAMPLES;
            client.work(&mut machine, phase.burst, requests)?;
            let tally = client.tally(&machine);
            let CacheStatus { index_bytes, read_bytes, .. } = machine.engine.cache_status();
            let counts = tally.counts.since(before);
            let sample = Sample { requests: tally.requests, phase: number, index_bytes, read_bytes, counts };
            outcome.samples.push(sample);
            before = tally.counts;
        }
    }
    let ended = client.tally(&machine);
    outcome.engine = machine.engine.cache_status().counts;
    client.verify(&mut machine, VERIFIED)?;
    outcome.counts = ended.counts.since(begun.counts);
    outcome.requests = ended.requests - begun.requests;
    outcome.latency = ended.latency - begun.latency;
    outcome.read_latency = ended.read_latency - begun.read_latency;
    outcome.nanos = ended.now - begun.now;
    Ok(outcome)
}

/// Lists the fixed cache partitions, in steps of 10 % of the index, and the adaptive ones, also with other intervals and units.
pub fn partitions() -> Vec<PartitionMode> {
    let fixed = (0..=100).step_by(10).map(PartitionMode::Fixed);
    let paper = Adaptive { rule: Rule::Paper, ..Adaptive::DEFAULT };
    let alike = Adaptive { knows_costs: false, ..Adaptive::DEFAULT };
    let finer = Adaptive { sampled_one_in: 4, ..Adaptive::DEFAULT };
    let from = |begins_with| Adaptive { begins_with, ..Adaptive::DEFAULT };
    let mut adaptive = vec![Adaptive::DEFAULT, from(10), from(90), finer, alike, paper];
    for rule in [Rule::Curves, Rule::Paper] {
        let swept = INTERVALS.into_iter().flat_map(|interval| UNITS.map(|unit| (interval, unit)));
        let others = swept.map(|(interval, unit)| Adaptive { rule, interval, unit, ..Adaptive::DEFAULT });
        adaptive.extend(others.filter(|other| (other.interval, other.unit) != (1000, 10)));
    }
    fixed.chain(adaptive.into_iter().map(PartitionMode::Adaptive)).collect()
}

/// Executes all workloads with all cache partitions, or with those whose names contain `only`.
pub fn run_all(memory: u64, rounds: usize, seed: u64, threads: usize, only: &str) -> Checked<Vec<Results>> {
    let mut plans = [(Plan::alternating(memory, rounds), partitions()), (Plan::steady(memory, rounds), partitions())];
    for (plan, partitions) in &mut plans {
        plan.seed = seed;
        partitions.retain(|partition| partition.name().contains(only));
    }
    let runs: Vec<(&Plan, PartitionMode)> = plans
        .iter()
        .flat_map(|(plan, partitions)| partitions.iter().map(move |&partition| (plan, partition)))
        .collect();
    let outcomes = in_order(threads, runs.len() as u64, |number| {
        let (plan, partition) = runs[number as usize];
        guarded(|| run(plan, partition))
    });
    let mut outcomes = outcomes.into_iter();
    plans
        .iter()
        .map(|(plan, partitions)| {
            let outcomes = outcomes.by_ref().take(partitions.len()).collect::<Checked<_>>()?;
            Ok(Results { plan: plan.clone(), outcomes })
        })
        .collect()
}

/// Returns the limits of the engine: the same in every run, except for the partitioned memory.
fn limits(plan: &Plan, partition: PartitionMode, pool: &Pool) -> Checked<Limits> {
    let other = Limits::for_memory(OTHER_MEMORY, &pool.parameters.geometry).map_err(|needed| {
        Violation(format!("the pool needs {needed} bytes of memory beside the partitioned memory"))
    })?;
    let (percent, cache) = match partition {
        PartitionMode::Fixed(percent) => (percent, CacheLimits { setting: None, ..other.cache }),
        PartitionMode::Adaptive(Adaptive { rule, interval, unit, knows_costs, sampled_one_in, begins_with }) => {
            let partition = engine::PartitionMode::Adaptive(rule);
            let setting = Some(CacheSetting { partition, ..CacheSetting::default() });
            let costs = [write_nanos() as u32, read_nanos() as u32];
            let hit_costs = if knows_costs { costs } else { [1, 1] };
            (begins_with, CacheLimits { setting, interval, unit, sampled_one_in, hit_costs })
        }
    };
    let index = plan.memory * u64::from(percent) / 100;
    Ok(Limits {
        cache,
        write_buffers: WRITE_BUFFERS,
        buffers: WRITE_BUFFERS + ((plan.memory - index) / BLOCK_BYTES) as u32,
        index_entries: (index / ENTRY_BYTES) as u32,
        // A thousandth of the memory.
        index_chunk: ((plan.memory / 1024 / ENTRY_BYTES) as u32).next_power_of_two().max(16),
        // POD's question is the saving of a partition alone; read-ahead makes a small read cache look better.
        read_ahead: 0,
        ..other
    })
}

/// Counts the requests of a phase until a value settles: until it is within `tolerance` of its mean over the phase's last quarter, at this
/// sample and the next. `None`: there is nothing to measure.
pub fn settling(
    samples: &[Sample],
    value: impl Fn(&Sample) -> Option<f64>,
    tolerance: impl Fn(f64) -> f64,
) -> Option<u64> {
    let values: Vec<f64> = samples.iter().map(&value).collect::<Option<_>>()?;
    let last = &values[values.len() * 3 / 4..];
    let settled = last.iter().sum::<f64>() / last.len().max(1) as f64;
    let is_near = |at: usize| values.get(at).is_none_or(|value| (value - settled).abs() <= tolerance(settled));
    let at = (0..values.len()).find(|&at| is_near(at) && is_near(at + 1))?;
    let each = samples.get(1)?.requests - samples[0].requests;
    Some((at as u64 + 1) * each)
}
