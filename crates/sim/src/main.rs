//! The program `sim`: runs the engine in virtual time and reports if it ever loses or mixes up data.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use clap::{Parser, Subcommand};
use engine::recording::Ending;
use sim::document::publish;
use sim::fuzz::seeds;
use sim::parallel::{cores, silence_panics};
use sim::rerun::{Options, rerun};
use sim::runs::config::Config;
use sim::runs::crash::{Plan, enumerate};
use sim::runs::faulty;
use sim::runs::mutants;
use sim::runs::scenario::FIXED;
use sim::runs::soak::{self, OPERATIONS};
use sim::runs::{exhaustive, flip};
use sim::studies::scale::report::{self, excesses, parse_size, size_name, tables};
use sim::studies::scale::{discard, discard_report, metadata};
use sim::studies::{cost, scale};
use sim::transcript::Trace;
use sim::{Checked, Violation, allocations, guarded};

#[global_allocator]
static ALLOCATOR: allocations::Counting = allocations::Counting;

/// The engine in virtual time, with crashes at every I/O.
#[derive(Parser)]
#[command(name = "sim", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
    /// Break this in every engine.
    #[arg(long, global = true, value_parser = |name: &str| mutants::named(name).ok_or("there is no such mutant"))]
    mutant: Option<engine::Mutant>,
}

#[derive(Subcommand)]
enum Command {
    /// One run of the swarm: mixed operations with crashes and reopenings. The last line is the digest of the run.
    Seed {
        /// The seed.
        seed: u64,
        /// Print everything that happens, to standard error.
        #[arg(long)]
        trace: bool,
        /// Number of operations.
        #[arg(long, default_value_t = OPERATIONS)]
        operations: usize,
    },
    /// Fresh seeds of the swarm, in parallel. A violation is printed with its seed, a shorter sequence that ends in one too, and the
    /// last that happens in it. The last line counts runs, crashes and violations.
    Soak {
        /// For how many minutes runs begin.
        #[arg(long, default_value_t = 10.0)]
        minutes: f64,
        /// Number of runs at once [default: one for each core].
        #[arg(long)]
        threads: Option<usize>,
        /// The first seed. One from the clock, if not given.
        #[arg(long)]
        from: Option<u64>,
        /// Number of operations of a run.
        #[arg(long, default_value_t = OPERATIONS)]
        operations: usize,
    },
    /// The digests of runs of the swarm, one line for each seed. They do not depend on the number of threads.
    Digests {
        /// Number of seeds.
        #[arg(long, default_value_t = 20)]
        seeds: u64,
        /// Number of runs at once [default: one for each core].
        #[arg(long)]
        threads: Option<usize>,
        /// Number of operations of a run.
        #[arg(long, default_value_t = OPERATIONS)]
        operations: usize,
    },
    /// Crashes at every point of small scenarios. The last line counts the crash points.
    Crash {
        /// Number of scenarios: first the fixed ones, then seeded ones.
        #[arg(long, default_value_t = 20)]
        seeds: u64,
        /// 1: crashes in the scenarios; 2: also in the recoveries.
        #[arg(long, default_value_t = 1)]
        depth: u32,
        /// Only this scenario.
        #[arg(long)]
        seed: Option<u64>,
        /// Only this crash point.
        #[arg(long)]
        point: Option<u64>,
        /// Only this way to crash.
        #[arg(long)]
        variant: Option<u64>,
        /// Only this crash point of the recovery (with --depth 2).
        #[arg(long)]
        second_point: Option<u64>,
        /// Only this way to crash there.
        #[arg(long)]
        second_variant: Option<u64>,
        /// The host has no space for some of the writes of the scenarios.
        #[arg(long)]
        full_host: bool,
        /// Print everything that happens, to standard error.
        #[arg(long)]
        trace: bool,
    },
    /// Every byte of a pool flipped, one at a time: an error or a repair each time, never wrong data. The last lines count.
    Flips {
        /// Blocks and containers of the product's size, in a pool of some MiB.
        #[arg(long)]
        product: bool,
        /// One byte in N.
        #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
        stride: u64,
        /// Number of threads.
        #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=64))]
        threads: u64,
    },
    /// Runs under faults of every class: mixed operations while faults strike, then they are lifted and everything is verified. The
    /// last line counts runs, faults and violations.
    Faults {
        /// Number of runs.
        #[arg(long, default_value_t = 400)]
        seeds: u64,
        /// Only this run.
        #[arg(long)]
        seed: Option<u64>,
        /// Instead: the n-th I/O of each kind of the fixed scenarios fails, once and permanently, for every n, also while the pool
        /// is opened.
        #[arg(long)]
        every: bool,
        /// Of these, only one n in N.
        #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
        stride: u64,
        /// Print everything that happens, to standard error.
        #[arg(long)]
        trace: bool,
    },
    /// Runs again what 'onefold serve --record FILE' has recorded, and says where the engine takes another course, where an
    /// answer is wrong, or where it panics. The last line counts.
    Rerun {
        /// The recording.
        file: PathBuf,
        /// Print the calls and the effects of the engine, to standard error.
        #[arg(long)]
        trace: bool,
        /// Print from this call on.
        #[arg(long, requires = "trace", default_value_t = 0)]
        from: u64,
        /// Stop after this call.
        #[arg(long)]
        until: Option<u64>,
    },
    /// Writes the seeds of the fuzz targets, a directory for each.
    Corpus {
        /// Directory to write to: fuzz/corpus.
        directory: PathBuf,
    },
    /// Mutants of the engine, each until it is caught. Fails if one is not caught by its stated harness (docs/internals/testing.md).
    Mutants {
        /// Number of threads [default: one for each core].
        #[arg(long)]
        threads: Option<usize>,
        /// Instead: have every harness look for every mutant, for N seconds each, and say which caught it and how long that took.
        #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=3600))]
        study: Option<u64>,
    },
    /// All sequences of up to three operations on a tiny pool, a crash at every I/O, and all that the disk may then hold. The last
    /// line counts the states.
    Exhaustive {
        /// The most operations of a sequence.
        #[arg(long, default_value_t = 3)]
        operations: usize,
        /// Only one part of N: 1/24 is the first of 24.
        #[arg(long, default_value = "1/1", value_parser = parse_part)]
        part: (u64, u64),
        /// Number of threads [default: one for each core].
        #[arg(long)]
        threads: Option<usize>,
        /// Only this sequence: n new block, s the same again, d duplicate, o overwrite two, z zeroes, p partial, t trim, f flush, u FUA,
        /// c checkpoint, k crash, r reopen, l policy select, v policy native, i content like a record of the journal, m move of all blocks,
        /// S snapshot, C clone of the newest one, D deletion of the oldest one, B rollback to the newest one.
        #[arg(long, value_parser = parse_sequence)]
        sequence: Option<Sequence>,
        /// The operations of the sequence all at once.
        #[arg(long, requires = "sequence")]
        together: bool,
        /// Only this crash point of the sequence.
        #[arg(long, requires = "sequence")]
        point: Option<u64>,
        /// Only this state there.
        #[arg(long, requires = "point")]
        state: Option<u64>,
        /// Print everything that happens, to standard error.
        #[arg(long, requires = "sequence")]
        trace: bool,
    },
    /// Costs of requests, and time of opening after a crash, in full pools of many sizes on a simulated SSD. Fails if
    /// that is more than docs/internals/performance.md states.
    Scale {
        /// Bytes mapped: numbers with G or T.
        #[arg(long, value_delimiter = ',', default_value = "1G,100G,1T", value_parser = parse_size)]
        sizes: Vec<u64>,
        /// A document whose tables are replaced by these.
        #[arg(long)]
        write: Option<PathBuf>,
    },
    /// Blocks of metadata that a random write costs in the steady state, by table. Fails if they are more than
    /// docs/internals/performance.md states.
    Metadata {
        /// Bytes mapped.
        #[arg(long, default_value_t = 1_000_000_000_000, value_parser = clap::value_parser!(u64).range(1 << 30..1 << 47))]
        bytes: u64,
        /// Memory of the server, in MiB.
        #[arg(long, default_value_t = 400, value_parser = clap::value_parser!(u64).range(64..1 << 20))]
        memory: u64,
        /// A pool of one part in N, and as much less memory for the engine: the same figures in as much less time.
        #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
        fraction: u32,
        /// A document whose table is replaced by this one.
        #[arg(long)]
        write: Option<PathBuf>,
    },
    /// Cost of the exact pass in a large pool on a simulated SSD: reads, writes, memory. Fails if that is more than docs/rfc/0015 states, or
    /// if something stays double.
    Pass(sim::studies::scale::pass::Arguments),
    /// Latencies of a load on one volume while another one is discarded, in pools with space and in full ones on a simulated SSD.
    /// Fails if the p99 of its latencies more than doubles.
    Discard {
        /// Bytes that are discarded: a number with G or T.
        #[arg(long, default_value = "1T", value_parser = parse_size)]
        size: u64,
        /// Virtual seconds for which latencies are taken, before and after.
        #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=3600))]
        seconds: u64,
        /// Also measure the time of the processor: real time, for information only.
        #[arg(long)]
        processor: bool,
        /// A document whose table is replaced by this one.
        #[arg(long)]
        write: Option<PathBuf>,
    },
    /// Cost that `select` adds to a write, in time of the processor: real time, so different on every machine. Fails if it is more than
    /// 1 us for 4 KiB.
    Cost {
        /// Entries of the index; a quarter of them are known contents.
        #[arg(long, default_value_t = 8 << 20, value_parser = clap::value_parser!(u32).range(1024..=1 << 28))]
        index_entries: u32,
        /// Batches of each kind.
        #[arg(long, default_value_t = 31, value_parser = clap::value_parser!(u64).range(1..=10_000))]
        rounds: u64,
        /// Blocks of a batch.
        #[arg(long, default_value_t = 1 << 14, value_parser = clap::value_parser!(u64).range(32..=1 << 20))]
        blocks: u64,
        /// Blocks of a request.
        #[arg(long, value_delimiter = ',', default_value = "1,32", value_parser = clap::value_parser!(u64).range(1..=32))]
        request_blocks: Vec<u64>,
        /// Only batches of this kind, such as 'select, new': for a profiler. No table then.
        #[arg(long, value_parser = parse_kind)]
        only: Option<cost::Kind>,
        /// A document whose table is replaced by this one.
        #[arg(long)]
        write: Option<PathBuf>,
    },
    /// Speed of reading a volume in order that is overwritten at random every day, against its speed when it was new: docs/rfc/0012-defragmentation.md.
    /// Fails if that is less than 0.8 from the second day on, if more than 1.5 blocks are moved for each written one, or if regions are left
    /// scattered though blocks may be moved.
    Aged(sim::studies::aged::command::Arguments),
    /// Allocations of requests of each kind in the engine; under callgrind, by `tests/instructions`, also the instructions that they
    /// take. The same in every run.
    Paths {
        /// Only those whose name contains this.
        #[arg(long, default_value = "")]
        only: String,
        /// Requests and allocations, by name, one line each, for programs.
        #[arg(long)]
        plain: bool,
    },
}

/// A sequence for `sim exhaustive`.
#[derive(Clone)]
struct Sequence(Vec<exhaustive::ShortOperation>);

fn parse_sequence(text: &str) -> Result<Sequence, String> {
    let operation = |name| exhaustive::operation(name).ok_or(format!("there is no operation {name:?}"));
    text.chars().map(operation).collect::<Result<_, _>>().map(Sequence)
}

fn parse_part(text: &str) -> Result<(u64, u64), String> {
    let numbers = text.split_once('/').and_then(|(part, all)| Some((part.parse().ok()?, all.parse().ok()?)));
    numbers.filter(|(part, all)| (1..=*all).contains(part)).ok_or("a part is I/N, with I from 1 to N".to_string())
}

fn parse_kind(text: &str) -> Result<cost::Kind, String> {
    let found = cost::KINDS.into_iter().find(|kind| kind.name == text);
    found.ok_or_else(|| format!("the kinds are: {}", cost::KINDS.map(|kind| kind.name).join("; ")))
}

fn main() -> ExitCode {
    if let Err(error) = sim::closed_pipe::ends_quietly() {
        eprintln!("signals cannot be caught: {error}");
    }
    let arguments = Arguments::parse();
    arguments.mutant.into_iter().for_each(mutants::break_everywhere);
    match arguments.command {
        Command::Corpus { directory } => write_corpus(&directory),
        Command::Scale { sizes, write } => run_scale(&sizes, write.as_deref()),
        Command::Metadata { bytes, memory, fraction, write } => {
            run_metadata(metadata::Plan { bytes, memory: memory << 20, fraction }, write.as_deref())
        }
        Command::Pass(arguments) => sim::studies::scale::pass::run(&arguments),
        Command::Discard { size, seconds, processor, write } => run_discard(size, seconds, processor, write.as_deref()),
        Command::Aged(arguments) => sim::studies::aged::command::run(&arguments),
        Command::Paths { only, plain } => run_paths(&only, plain),
        Command::Cost { index_entries, rounds, blocks, request_blocks, only, write } => {
            let plan = cost::Plan { index_entries, rounds: rounds as usize, blocks, only };
            run_cost(&plan, &request_blocks, write.as_deref())
        }
        Command::Flips { product, stride, threads } => run_flips(product, stride, threads),
        Command::Faults { every: true, stride, trace, .. } => run_faults(&faulty::every(FIXED, stride, trace), false),
        Command::Faults { seed: Some(seed), trace, .. } => run_faults(&faulty::swarm([seed], trace), false),
        Command::Faults { seeds, trace, .. } => run_faults(&faulty::swarm(0..seeds, trace), seeds >= ENOUGH_SEEDS),
        Command::Seed { seed, trace, operations } => run_seed(seed, trace, operations),
        Command::Rerun { file, trace, from, until } => {
            run_again(&file, Options { trace_from: trace.then_some(from), until })
        }
        Command::Soak { minutes, threads, from, operations } => run_soak(minutes, threads, from, operations),
        Command::Digests { seeds, threads, operations } => run_digests(seeds, threads, operations),
        Command::Crash { seeds, depth, seed, point, variant, second_point, second_variant, full_host, trace } => {
            // Events are printed in their order.
            let threads = if trace { 1 } else { cores() };
            let tally = enumerate(&Plan {
                seeds,
                seed,
                depth,
                point,
                variant,
                second_point,
                second_variant,
                first: false,
                full_host,
                trace,
                threads,
            });
            finish_enumeration(&tally.violations, &tally.line())
        }
        Command::Mutants { study: Some(seconds), threads } => study_mutants(seconds, threads.unwrap_or_else(cores)),
        Command::Mutants { study: None, threads } => run_mutant(threads.unwrap_or_else(cores)),
        Command::Exhaustive { operations, part, threads, sequence, together, point, state, trace } => {
            silence_panics();
            let tally = match sequence {
                Some(Sequence(sequence)) => {
                    exhaustive::look(&exhaustive::Only { sequence, together, point, state, trace })
                }
                None => {
                    let threads = threads.unwrap_or_else(cores);
                    exhaustive::enumerate(&exhaustive::Plan { operations, part, threads })
                }
            };
            finish_enumeration(&tally.violations, &tally.line())
        }
    }
}

fn write_corpus(directory: &Path) -> ExitCode {
    for (target, _) in seeds::TARGETS {
        let directory = directory.join(target);
        let written = std::fs::create_dir_all(&directory).and_then(|()| {
            seeds::of(target).iter().try_for_each(|(name, bytes)| std::fs::write(directory.join(name), bytes))
        });
        if let Err(error) = written {
            eprintln!("{}: {error}", directory.display());
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

fn run_seed(seed: u64, print: bool, operations: usize) -> ExitCode {
    match soak::run_seed(seed, operations, Trace::new(print)) {
        Ok(outcome) => {
            println!("{:?} in {:.3} virtual seconds", outcome.counts, outcome.nanos as f64 / 1e9);
            println!("digest: {}", outcome.digest);
            ExitCode::SUCCESS
        }
        Err(violation) => {
            eprintln!("{:#?}", Config::swarm(seed));
            println!("violation in seed {seed}: {violation}");
            println!("again: sim seed {seed} --operations {operations} --trace");
            ExitCode::FAILURE
        }
    }
}

fn run_again(path: &Path, options: Options) -> ExitCode {
    let file = std::fs::File::open(path).map_err(|error| error.to_string());
    let (header, report) = match file.and_then(|file| rerun(file, options)) {
        Ok(result) => result,
        Err(why) => {
            eprintln!("{}: {why}", path.display());
            return ExitCode::FAILURE;
        }
    };
    println!("recorded by onefold {}, this is sim {}", header.program, env!("CARGO_PKG_VERSION"));
    let ending = match report.ending {
        Some(Ending::Closed) => "the server stopped",
        Some(Ending::Full) => "the recording had its greatest size",
        Some(Ending::Behind) => "the recording could not be written fast enough",
        Some(Ending::Panicked) => "the server panicked",
        None if report.is_whole => "it breaks off: the server was killed, or is still running",
        None => "this run does not go to its end",
    };
    println!("end of the recording: {ending}");
    if let Some(call) = report.damaged {
        println!("damaged: the file is not what was written, somewhere after call {call}");
    }
    for request in &report.in_flight {
        println!("in flight at the end: {request}");
    }
    if let Some(divergence) = &report.divergence {
        println!("divergence {divergence}");
    }
    for violation in &report.violations {
        println!("violation {violation}");
    }
    println!("{}", report.line());
    if report.is_good() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn run_soak(minutes: f64, threads: Option<usize>, from: Option<u64>, operations: usize) -> ExitCode {
    let Ok(time) = Duration::try_from_secs_f64(minutes * 60.0) else {
        eprintln!("--minutes {minutes}: this is no time");
        return ExitCode::FAILURE;
    };
    let from = from.unwrap_or_else(|| {
        let clock = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        // Space for a thousand runs in a second, so that no two soaks have seeds in common.
        clock.map_or(0, |time| time.as_secs() * 1000)
    });
    let stop = Arc::new(AtomicBool::new(false));
    if let Err(error) = signal_hook::flag::register(signal_hook::consts::SIGINT, stop.clone()) {
        eprintln!("cannot catch SIGINT: {error}");
        return ExitCode::FAILURE;
    }
    silence_panics();
    let (tally, elapsed) =
        soak::soak(&soak::Plan { time, threads: threads.unwrap_or_else(cores), from, operations }, &stop);
    println!("{}", tally.line(elapsed));
    if tally.violations == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn run_digests(seeds: u64, threads: Option<usize>, operations: usize) -> ExitCode {
    let mut good = true;
    silence_panics();
    for (seed, digest) in soak::digests(seeds, operations, threads.unwrap_or_else(cores)).iter().enumerate() {
        match digest {
            Ok(digest) => println!("{seed} {digest}"),
            Err(violation) => {
                println!("{seed} violation: {violation}");
                good = false;
            }
        }
    }
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Prints violations, each with the command that shows it again, and the last line.
fn finish_enumeration(violations: &[(String, Violation)], line: &str) -> ExitCode {
    const SHOWN: usize = 20;
    for (again, violation) in violations.iter().take(SHOWN) {
        println!("violation: {violation}\n  again: {again}");
    }
    if violations.len() > SHOWN {
        println!("... and {} more", violations.len() - SHOWN);
    }
    println!("{line}");
    if violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn run_mutant(threads: usize) -> ExitCode {
    silence_panics();
    let hunts = mutants::hunt_all(threads);
    for hunted in &hunts {
        let (name, hunt) = (format!("{:?}", hunted.mutant), hunted.hunt);
        match &hunted.catch {
            Some(catch) => {
                // Whole states are long.
                let violation: String = catch.violation.chars().take(100).collect();
                println!("{name:<19} within {hunt}, by {}: {violation}", catch.by);
            }
            None => println!("{name:<19} not caught by {hunt}: sim mutants --study 60 finds what catches it"),
        }
    }
    let caught = hunts.iter().filter(|hunted| hunted.catch.is_some()).count();
    let repaired = mutants::repair_of_what_was_counted_low();
    if let Err(violation) = &repaired {
        println!("repair of what SpaceCountedLow breaks: {violation}");
    }
    println!("mutants: {}, caught: {caught}", hunts.len());
    if caught == hunts.len() && repaired.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn study_mutants(seconds: u64, threads: usize) -> ExitCode {
    silence_panics();
    let time = Duration::from_secs(seconds);
    println!("mutant\tharness\tcaught\truns\tseconds\tseconds of the last run\tby");
    sim::parallel::in_order(threads, mutants::MUTANTS.len() as u64, |number| {
        let (mutant, _) = mutants::MUTANTS[number as usize];
        for found in mutants::study(mutant, time) {
            let by = found.catch.map_or(String::new(), |catch| catch.by);
            println!(
                "{mutant:?}\t{:?}\t{}\t{}\t{:.3}\t{:.3}\t{by}",
                found.harness,
                u8::from(!by.is_empty()),
                found.runs,
                found.until.as_secs_f64(),
                found.alone.as_secs_f64(),
            );
        }
    });
    ExitCode::SUCCESS
}

fn run_flips(product: bool, stride: u64, threads: u64) -> ExitCode {
    let mut good = true;
    for state in [flip::State::Closed, flip::State::Crashed] {
        let part = |number| {
            let plan = flip::Plan { state, product, stride, part: (number, threads) };
            let progress = |done: u64| {
                if number == 0 && done.is_multiple_of(10_000) {
                    eprintln!("{state:?}: {done} flipped by the first of {threads}");
                }
            };
            flip::flip_all(&plan, progress)
        };
        let parts: Vec<Checked<flip::Tally>> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..threads).map(|number| scope.spawn(move || part(number))).collect();
            let join = |thread: std::thread::ScopedJoinHandle<'_, _>| thread.join();
            threads.into_iter().map(join).map(|part| part.unwrap_or_else(|_| sim::violated("a panic"))).collect()
        });
        let mut tally = flip::Tally::default();
        for part in parts {
            match part {
                Ok(part) => tally.add(part),
                Err(violation) => {
                    println!("violation: {violation}");
                    good = false;
                }
            }
        }
        for (byte, violation) in tally.violations.iter().take(20) {
            println!("violation: {state:?}, byte {byte}: {violation}");
        }
        good &= tally.violations.is_empty();
        println!("{state:?}: {}", tally.line());
    }
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Least number of runs after which faults of every class must have struck.
const ENOUGH_SEEDS: u64 = 100;

fn run_faults(report: &faulty::Report, wants_all: bool) -> ExitCode {
    const SHOWN: usize = 20;
    for (again, violation) in report.violations.iter().take(SHOWN) {
        println!("violation: {violation}\n  again: {again}");
    }
    println!("{}", report.tally);
    let missing = report.tally.missing();
    if wants_all && !missing.is_empty() {
        println!("never struck: {missing:?}");
    }
    println!("digest: {:016x}", report.digest);
    println!("{}", report.line());
    let good = report.violations.is_empty() && (!wants_all || missing.is_empty());
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn run_scale(sizes: &[u64], document: Option<&Path>) -> ExitCode {
    let mut all = Vec::new();
    let mut good = true;
    for &bytes in sizes {
        eprintln!("{}", size_name(bytes));
        match guarded(|| scale::measure(bytes, false)) {
            Ok(results) => {
                for excess in excesses(&results) {
                    println!("too much: {excess}");
                    good = false;
                }
                all.push(results);
            }
            Err(violation) => {
                println!("violation: {violation}");
                good = false;
            }
        }
    }
    publish(good, &tables(&all), document, report::BEGIN)
}

fn run_discard(bytes: u64, seconds: u64, processor: bool, document: Option<&Path>) -> ExitCode {
    let mut all = Vec::new();
    let mut good = true;
    for spare in discard::SPARES {
        let results = guarded(|| discard::measure_all(bytes, spare, seconds, processor));
        match results {
            Ok(results) => all.extend(results),
            Err(violation) => {
                println!("violation: {violation}");
                good = false;
            }
        }
    }
    for excess in all.iter().flat_map(discard_report::excesses) {
        println!("too much: {excess}");
        good = false;
    }
    if processor {
        println!("{}", discard_report::processor_table(&all));
    }
    publish(good, &discard_report::table(&all), document, discard_report::BEGIN)
}

fn run_paths(only: &str, plain: bool) -> ExitCode {
    match guarded(|| cost::paths::count(only)) {
        Ok(counts) if plain => {
            for count in counts {
                println!("{}\t{}\t{}", count.name, count.requests, count.allocations);
            }
            ExitCode::SUCCESS
        }
        Ok(counts) => {
            print!("{}", cost::paths::table(&counts));
            ExitCode::SUCCESS
        }
        Err(violation) => {
            println!("violation: {violation}");
            ExitCode::FAILURE
        }
    }
}

fn run_metadata(plan: metadata::Plan, document: Option<&Path>) -> ExitCode {
    match guarded(|| metadata::measure(plan)) {
        Ok(results) => {
            let excess = metadata::excess(&results);
            excess.iter().for_each(|excess| println!("too much: {excess}"));
            publish(excess.is_none(), &metadata::table(&results), document, metadata::BEGIN)
        }
        Err(violation) => {
            println!("violation: {violation}");
            ExitCode::FAILURE
        }
    }
}

fn run_cost(plan: &cost::Plan, request_blocks: &[u64], document: Option<&Path>) -> ExitCode {
    let all = match guarded(|| cost::measure(plan, request_blocks)) {
        Ok(all) => all,
        Err(violation) => {
            println!("violation: {violation}");
            return ExitCode::FAILURE;
        }
    };
    if plan.only.is_some() {
        return ExitCode::SUCCESS;
    }
    let excesses = cost::excesses(&all);
    for excess in &excesses {
        println!("too much: {excess}");
    }
    let decide: Vec<_> = request_blocks.iter().map(|&blocks| cost::decide(blocks as usize, plan.rounds)).collect();
    publish(excesses.is_empty(), &cost::table(&all, &decide), document, cost::BEGIN)
}
