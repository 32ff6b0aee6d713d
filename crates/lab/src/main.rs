//! `lab`: runs the engine in virtual time and says whether it ever loses or mixes up data.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use engine::recording::Ending;
use lab::config::Config;
use lab::crash::{Plan, enumerate};
use lab::faulty;
use lab::fuzz::seeds;
use lab::random::mix;
use lab::rerun::{Options, rerun};
use lab::run::Run;
use lab::scale::report::{self, excesses, parse_size, replace_tables, size_name, tables};
use lab::scale::{discard, discard_report};
use lab::scenario::FIXED;
use lab::trace::Trace;
use lab::workload::Generator;
use lab::{Checked, flip, guarded, scale};

/// The engine in virtual time, with crashes at every I/O.
#[derive(Parser)]
#[command(name = "lab", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
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
        /// How many operations.
        #[arg(long, default_value_t = 3000)]
        operations: usize,
    },
    /// Crashes at every point of small scenarios. The last line counts the crash points.
    Crash {
        /// How many scenarios: first the fixed ones, then seeded ones.
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
        /// Print everything that happens, to standard error.
        #[arg(long)]
        trace: bool,
    },
    /// Every byte of a pool flipped, one at a time: an error or a repair each time, never wrong data. The last lines count.
    Flips {
        /// Blocks and containers of the product's size, in a pool of some MiB.
        #[arg(long)]
        product: bool,
        /// One byte in so many.
        #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
        stride: u64,
        /// How many at a time.
        #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=64))]
        threads: u64,
    },
    /// Runs under faults of every class: mixed operations while faults strike, then they are lifted and everything is verified. The
    /// last line counts runs, faults and violations.
    Faults {
        /// How many runs.
        #[arg(long, default_value_t = 400)]
        seeds: u64,
        /// Only this run.
        #[arg(long)]
        seed: Option<u64>,
        /// Instead: the n-th I/O of each kind of the fixed scenarios fails, once and for ever, for every n, also while the pool
        /// is opened.
        #[arg(long)]
        every: bool,
        /// Of these, only one n in so many.
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
        /// Print the calls and what the engine wants, to standard error.
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
        /// Where: fuzz/corpus.
        directory: PathBuf,
    },
    /// What requests cost, and how long opening after a crash takes, in full pools of many sizes on a simulated SSD. Fails if
    /// that is more than docs/performance.md states.
    Scale {
        /// How much is mapped: numbers with G or T.
        #[arg(long, value_delimiter = ',', default_value = "1G,100G,1T", value_parser = parse_size)]
        sizes: Vec<u64>,
        /// A document whose tables are replaced by these.
        #[arg(long)]
        write: Option<PathBuf>,
    },
    /// What a load on one volume notices when another one is discarded, in pools with room and in full ones on a simulated SSD.
    /// Fails if the p99 of its latencies becomes more than twice what it was.
    Discard {
        /// How much is discarded: a number with G or T.
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
}

fn main() -> ExitCode {
    match Arguments::parse().command {
        Command::Corpus { directory } => write_corpus(&directory),
        Command::Scale { sizes, write } => run_scale(&sizes, write.as_deref()),
        Command::Discard { size, seconds, processor, write } => run_discard(size, seconds, processor, write.as_deref()),
        Command::Flips { product, stride, threads } => run_flips(product, stride, threads),
        Command::Faults { every: true, stride, trace, .. } => run_faults(&faulty::every(FIXED, stride, trace), false),
        Command::Faults { seed: Some(seed), trace, .. } => run_faults(&faulty::swarm([seed], trace), false),
        Command::Faults { seeds, trace, .. } => run_faults(&faulty::swarm(0..seeds, trace), seeds >= ENOUGH_SEEDS),
        Command::Seed { seed, trace, operations } => run_seed(seed, trace, operations),
        Command::Rerun { file, trace, from, until } => {
            run_again(&file, Options { trace_from: trace.then_some(from), until })
        }
        Command::Crash { seeds, depth, seed, point, variant, second_point, second_variant, trace } => {
            let progress = !trace;
            run_crash(&Plan { seeds, seed, depth, point, variant, second_point, second_variant, trace, progress })
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
    match guarded(|| swarm_run(seed, print, operations)) {
        Ok(digest) => {
            println!("digest: {digest}");
            ExitCode::SUCCESS
        }
        Err(violation) => {
            eprintln!("{:#?}", Config::swarm(seed));
            println!("violation in seed {seed}: {violation}");
            println!("again: lab seed {seed} --operations {operations} --trace");
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
    println!("recorded by onefold {}, this is lab {}", header.program, env!("CARGO_PKG_VERSION"));
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

fn swarm_run(seed: u64, print: bool, operations: usize) -> Checked<String> {
    let mut run = Run::start(Config::swarm(seed), Trace::new(print), false)?;
    let operations = Generator::new(&run.config.clone(), seed, true).operations(operations);
    run.perform(&operations)?;
    run.settle_and_audit()?;
    println!("{:?} in {:.3} virtual seconds", run.counts, run.world.now as f64 / 1e9);
    let state = mix(run.world.disk.hash());
    run.world.trace.note(run.world.now, 30, &[state], || "the end".to_string());
    Ok(run.world.trace.digest())
}

fn run_crash(plan: &Plan) -> ExitCode {
    let tally = enumerate(plan);
    const SHOWN: usize = 20;
    for (again, violation) in tally.violations.iter().take(SHOWN) {
        println!("violation: {violation}\n  again: {again}");
    }
    if tally.violations.len() > SHOWN {
        println!("... and {} more", tally.violations.len() - SHOWN);
    }
    println!("{}", tally.line());
    if tally.violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
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
            threads.into_iter().map(join).map(|part| part.unwrap_or_else(|_| lab::violated("a panic"))).collect()
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

/// So many runs have faults of every class.
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
    finish(good, &tables(&all), document, report::BEGIN)
}

/// Prints the tables, or puts them into the document.
fn finish(good: bool, tables: &str, document: Option<&Path>, begin: &str) -> ExitCode {
    let Some(path) = document else {
        println!("{tables}");
        return if good { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    };
    let written = std::fs::read_to_string(path).and_then(|text| {
        let text = replace_tables(&text, tables, begin);
        std::fs::write(path, text.ok_or_else(|| std::io::Error::other("it has no comments that mark the tables"))?)
    });
    if let Err(error) = &written {
        eprintln!("{}: {error}", path.display());
    }
    if good && written.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
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
    finish(good, &discard_report::table(&all), document, discard_report::BEGIN)
}
