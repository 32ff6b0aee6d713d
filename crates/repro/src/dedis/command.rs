//! Command `repro workload`: expected savings of a distribution, and a load through the engine in virtual time.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use engine::{Goal, Policy, Timing};
use serde::Serialize;

use super::BLOCK;
use super::arguments::{Contents, Requests, whole_blocks};
use super::summary::{LatencyReport, Spread};
use super::virtual_run::{Outcome, Passes, Setup, run as run_once};
use super::written::Tally;
use sim::disks::Disk;
use sim::parallel::Progress;
use sim::{Violation, guarded};

const GIB: f64 = (1u64 << 30) as f64;

/// Arguments of `repro workload`.
#[derive(Args)]
pub struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Duplicates among N bytes with contents from a distribution, on average.
    Expect {
        #[command(flatten)]
        contents: Contents,
        /// Bytes that are written: a number with K, M, G or T.
        #[arg(long, default_value = "64G", value_parser = whole_blocks)]
        size: u64,
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
    /// A load through the engine on the model of a disk, in virtual time. Prints JSON.
    Run(Box<Run>),
}

#[derive(Args)]
struct Run {
    #[command(flatten)]
    contents: Contents,
    #[command(flatten)]
    requests: Requests,
    /// Size of the volume. Not given: --size, or 1G.
    #[arg(long, value_parser = whole_blocks)]
    volume: Option<u64>,
    /// Deduplication policy: native, observe, full, select, idedup, with their parameters (docs/guide/policies.md).
    #[arg(long, default_value = "full")]
    policy: String,
    /// Timing of the deduplication: inline, offline, hybrid (docs/guide/timing.md).
    #[arg(long, default_value_t = Timing::Inline)]
    timing: Timing,
    /// Goal of the clients, such as 20000iops or 200MiB/s.
    #[arg(long, default_value_t = Goal::None)]
    goal: Goal,
    /// Background passes: after the load; or beside it, one after the other.
    #[arg(long, value_parser = passes, default_value = "none")]
    passes: Passes,
    /// Journal, tables and checkpoints take no time, and nothing of them would survive. Only here: a server always keeps them.
    #[arg(long)]
    volatile_metadata: bool,
    /// Memory of the engine. Not given: enough for all contents, and the index keeps its part.
    #[arg(long, value_parser = sim::disks::spec::size)]
    memory: Option<u64>,
    /// The model of a disk: docs/internals/simulated-disks.md has the names.
    #[arg(long, default_value = "ssd")]
    disk: String,
    /// Time of the processor for each block that is written, in nanoseconds: bench/results/simulated.md has ours.
    #[arg(long, default_value_t = 1500, value_parser = clap::value_parser!(u64).range(0..=1_000_000_000))]
    processor_ns: u64,
    /// Answer each write when it is durable, not from memory.
    #[arg(long)]
    durable: bool,
    /// Runs, each with a seed of its own.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=100))]
    runs: u64,
}

fn passes(text: &str) -> Result<Passes, String> {
    match text {
        "none" => Ok(Passes::None),
        "after" => Ok(Passes::After),
        "beside" => Ok(Passes::Beside),
        _ => Err(format!("'{text}': none, after or beside")),
    }
}

/// Executes `repro workload`.
pub fn run(arguments: &Arguments) -> ExitCode {
    let done = match &arguments.what {
        What::Expect { contents, size, json } => expect(contents, *size, *json),
        What::Run(run) => all_runs(run).map(|report| {
            println!("{}", serde_json::to_string_pretty(&report).expect("a report is plain data"));
        }),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

#[derive(Serialize)]
struct ExpectReport {
    distribution: String,
    written_bytes: u64,
    duplicate_gib: f64,
    duplicate_percent: f64,
}

fn expect(contents: &Contents, size: u64, json: bool) -> Result<(), String> {
    let distribution = contents.open()?;
    let expected = distribution.expect(size / BLOCK);
    let report = ExpectReport {
        distribution: distribution.name.clone(),
        written_bytes: size,
        duplicate_gib: expected.duplicates * BLOCK as f64 / GIB,
        duplicate_percent: 100.0 * expected.duplicates / expected.draws as f64,
    };
    if json {
        println!("{}", serde_json::to_string_pretty(&report).expect("a report is plain data"));
    } else {
        println!(
            "{}: {:.2} GiB of {:.2} GiB are duplicates ({:.1} %)",
            report.distribution,
            report.duplicate_gib,
            size as f64 / GIB,
            report.duplicate_percent
        );
    }
    Ok(())
}

/// Report of all runs, with their common parameters.
#[derive(Serialize)]
struct Report {
    distribution: String,
    pattern: String,
    policy: String,
    timing: String,
    goal: String,
    volatile_metadata: bool,
    disk: String,
    workers: u64,
    request_bytes: u64,
    reads_percent: u32,
    volume_bytes: u64,
    /// Expected mean for the number of writes of the first run.
    expected_duplicate_gib: f64,
    throughput_mib_s: Spread,
    requests_a_second: Spread,
    latency_mean_us: Spread,
    /// Real time of the engine: different on every machine.
    processor_us_a_request: Spread,
    saved_gib: Spread,
    runs: Vec<RunReport>,
}

/// One run.
#[derive(Serialize)]
struct RunReport {
    seed: u64,
    requests: u64,
    seconds: f64,
    throughput_mib_s: f64,
    requests_a_second: f64,
    latency: LatencyReport,
    /// Blocks that were generated.
    generated: Tally,
    /// Blocks that the pool stores for them.
    stored_blocks: u64,
    /// Blocks that hold something, less those that are stored.
    saved_blocks: i64,
    saved_gib: f64,
    /// Blocks that concurrent passes remapped to another slot.
    shared_blocks: u64,
    /// The time of the pass after the load.
    pass_seconds: f64,
    processor_us_a_request: f64,
    memory_bytes: u64,
    disk_commands: u64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    nurand_constants: Vec<u64>,
}

impl RunReport {
    fn of(seed: u64, outcome: &Outcome) -> RunReport {
        let seconds = outcome.time as f64 / 1e9;
        let a_second = |count: f64| if seconds > 0.0 { count / seconds } else { 0.0 };
        let saved_blocks = outcome.tally.live_blocks as i64 - outcome.stored_blocks as i64;
        RunReport {
            seed,
            requests: outcome.requests,
            seconds,
            throughput_mib_s: a_second((outcome.blocks * BLOCK) as f64 / (1u64 << 20) as f64),
            requests_a_second: a_second(outcome.requests as f64),
            latency: outcome.latencies.report(),
            generated: outcome.tally,
            stored_blocks: outcome.stored_blocks,
            saved_blocks,
            saved_gib: saved_blocks as f64 * BLOCK as f64 / GIB,
            shared_blocks: outcome.shared_blocks,
            pass_seconds: outcome.pass as f64 / 1e9,
            processor_us_a_request: outcome.processor.nanos as f64 / 1e3 / outcome.requests.max(1) as f64,
            memory_bytes: outcome.memory_bytes,
            disk_commands: outcome.disk_commands,
            nurand_constants: outcome.constants.clone(),
        }
    }
}

fn all_runs(run: &Run) -> Result<Report, String> {
    let distribution = run.contents.open()?;
    let policy: Policy = run.policy.parse().map_err(|why| format!("--policy {}: {why}", run.policy))?;
    let disk = Disk::from_spec(&run.disk)?;
    let volume_bytes = run.volume.or(run.requests.size).unwrap_or(1 << 30);
    let mut reports: Vec<RunReport> = Vec::new();
    for number in 0..run.runs {
        let load = run.requests.load(number, volume_bytes)?;
        let seed = load.seed;
        let setup = Setup {
            policy,
            timing: run.timing,
            goal: run.goal,
            passes: run.passes,
            volatile: run.volatile_metadata,
            volume_blocks: volume_bytes / BLOCK,
            memory: run.memory,
            disk: disk.clone(),
            processor: run.processor_ns,
            durable: run.durable,
            fills: run.requests.fill,
            load,
        };
        let mut progress = Progress::begin();
        let mut say = |requests: u64| {
            progress.say(|| format!("run {} of {}: {requests} requests", number + 1, run.runs));
        };
        let outcome = guarded(|| run_once(&setup, &distribution, &mut say)).map_err(|Violation(why)| why)?;
        reports.push(RunReport::of(seed, &outcome));
    }
    let spread = |value: fn(&RunReport) -> f64| Spread::of(reports.iter().map(value));
    let written = reports[0].generated.written_blocks;
    Ok(Report {
        expected_duplicate_gib: distribution.expect(written).duplicates * BLOCK as f64 / GIB,
        distribution: distribution.name,
        pattern: run.requests.pattern.to_string(),
        policy: run.policy.clone(),
        timing: run.timing.to_string(),
        goal: run.goal.to_string(),
        volatile_metadata: run.volatile_metadata,
        disk: run.disk.clone(),
        workers: run.requests.workers,
        request_bytes: run.requests.request,
        reads_percent: run.requests.reads,
        volume_bytes,
        throughput_mib_s: spread(|run| run.throughput_mib_s),
        requests_a_second: spread(|run| run.requests_a_second),
        latency_mean_us: spread(|run| run.latency.mean_us),
        processor_us_a_request: spread(|run| run.processor_us_a_request),
        saved_gib: spread(|run| run.saved_gib),
        runs: reports,
    })
}
