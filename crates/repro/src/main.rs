//! Program `repro`: makes the figures of the papers from traces, loads, replays and disk models.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use repro::{icache, window};
use sim::document::publish;
use sim::guarded;
use sim::parallel::cores;
use sim::studies::scale::report::parse_size;

/// The figures of the papers, and the traces, loads, replays and models of disks that they are made of.
#[derive(Parser)]
#[command(name = "repro", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Traces of block devices: their contents, and synthetic ones.
    Trace(repro::traces::command::Arguments),
    /// Replays a trace under one of the papers' schemes on models of disks: response times and their parts, removed blocks,
    /// memory, energy.
    Replay(Box<repro::replay::command::Arguments>),
    /// Loads with contents from a distribution file, as DEDISbench makes them: docs/papers/data.md.
    Workload(repro::dedis::command::Arguments),
    /// The same loads against a live NBD device, in real time: docs/papers/data.md. Prints JSON.
    Bench(Box<repro::bench::command::Arguments>),
    /// Figures of the papers: their claims, and our results. 'repro figure list' names them.
    Figure(repro::figures::command::Arguments),
    /// Charts of the guides, from recorded results: docs/pictures.
    Picture(repro::figures::pictures::Arguments),
    /// The reads of the flash cache's figures as a list, for programs that are compared with its policies, and what these come to on
    /// them: `bench/ocf/run`, docs/papers/plc-cache.md.
    FlashReads(repro::flash_cache::command::Arguments),
    /// The models of disks: beside the drives that were measured.
    Disk(sim::disks::command::Arguments),
    /// I/O saved when index and read cache compete for memory, by fixed divisions of it and by those that the engine makes, on
    /// a workload that alternates and one that does not: docs/papers/pod.md. Takes many minutes.
    Icache {
        /// Memory that is divided, in MiB.
        #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..=1024))]
        memory: u64,
        /// Bursts of each kind that count.
        #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=100))]
        rounds: u64,
        /// Seed of the random numbers.
        #[arg(long, default_value_t = icache::SEED)]
        seed: u64,
        /// Number of runs at once [default: one for each core].
        #[arg(long)]
        threads: Option<usize>,
        /// Only divisions with this in their names, such as 'adaptive' or '50 %'.
        #[arg(long, default_value = "")]
        only: String,
        /// A directory for figures (SVG).
        #[arg(long)]
        figures: Option<PathBuf>,
        /// A directory for data (CSV).
        #[arg(long)]
        data: Option<PathBuf>,
        /// A document whose tables are replaced by these.
        #[arg(long)]
        write: Option<PathBuf>,
    },
    /// Part of the data that an index covers in 0.4 GB of memory for 1 TB of data, and how much of a working set of 5 % it finds: docs/guide/memory.md.
    Window {
        /// The pool's data: a number with G or T.
        #[arg(long, default_value = "1T", value_parser = parse_size)]
        size: u64,
        /// A document whose table is replaced by this one.
        #[arg(long)]
        write: Option<PathBuf>,
    },
}

fn main() -> ExitCode {
    if let Err(error) = sim::closed_pipe::ends_quietly() {
        eprintln!("signals cannot be caught: {error}");
    }
    match Arguments::parse().command {
        Command::Trace(arguments) => repro::traces::command::run(&arguments),
        Command::Replay(arguments) => repro::replay::command::run(&arguments),
        Command::Workload(arguments) => repro::dedis::command::run(&arguments),
        Command::Bench(arguments) => repro::bench::command::run(&arguments),
        Command::Figure(arguments) => repro::figures::command::run(arguments),
        Command::Picture(arguments) => repro::figures::pictures::run(arguments),
        Command::FlashReads(arguments) => repro::flash_cache::command::run(&arguments),
        Command::Disk(arguments) => sim::disks::command::run(arguments),
        Command::Icache { memory, rounds, seed, threads, only, figures, data, write } => {
            let threads = threads.unwrap_or_else(cores);
            match icache::run_all(memory << 20, rounds as usize, seed, threads, &only) {
                Ok(all) => report_icache(&all, figures.as_deref(), data.as_deref(), write.as_deref()),
                Err(violation) => {
                    println!("violation: {violation}");
                    ExitCode::FAILURE
                }
            }
        }
        Command::Window { size, write } => run_window(size, write.as_deref()),
    }
}

fn report_icache(
    all: &[icache::report::Results],
    figures: Option<&Path>,
    data: Option<&Path>,
    document: Option<&Path>,
) -> ExitCode {
    let files = figures.into_iter().flat_map(|directory| icache::report::figures(all, directory));
    let files = files.chain(data.into_iter().flat_map(|directory| icache::report::data(all, directory)));
    for (path, text) in files {
        if let Err(error) = std::fs::write(&path, text) {
            eprintln!("{}: {error}", path.display());
            return ExitCode::FAILURE;
        }
    }
    let tables: String = all.iter().map(icache::report::tables).collect();
    publish(true, &tables, document, icache::report::BEGIN)
}

fn run_window(size: u64, document: Option<&Path>) -> ExitCode {
    match guarded(|| window::measure(size)) {
        Ok(results) => publish(true, &window::table(&results), document, window::BEGIN),
        Err(violation) => {
            println!("violation: {violation}");
            ExitCode::FAILURE
        }
    }
}
