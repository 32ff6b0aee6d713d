//! A study of the cost of the exact pass in a large synthetic pool: reads and writes of the device, and their time.
//!
//! All of the pool is mapped, and its metadata says that contents differ, except for one block of every N, which repeats an earlier content. The pass begins
//! in an idle pool and reads no data.

use std::fmt::Write;
use std::process::ExitCode;
use std::rc::Rc;

use clap::Args;
use engine::{
    Command, DedupCommand, DedupStatus, DefragSetting, Geometry, KeepRuns, Limits, Nanos, PassState, Policy,
    PoolChange, VolumePropertyChange,
};

use crate::studies::scale::engine_memory;
use crate::studies::scale::report::parse_size;
use crate::timed::machine::{Machine, Processor, Store};
use crate::timed::pool::{Doubles, Pool, VOLUME};
use crate::{Checked, Violation};

/// Maximum bytes that a pass with external partitionings reads and writes for each block in use. Its summary is read once, of which a page has 170. Its entry
/// in the spill space is written and read, 131 a page. A tenth more is for interior pages, the space map and checkpoints.
const MOST_BYTES_A_BLOCK: f64 = 1.1 * (4096.0 / 170.0 + 2.0 * 4096.0 / 131.0);

/// Maximum number of pages that each shared block may cost in addition, in a run of 64 or more, and otherwise. In order, blocks share leaves of maps, counts
/// and space map; otherwise the canonical slot has pages of its own.
const MOST_PAGES_IN_RUNS: f64 = 0.3;
const MOST_PAGES_ALONE: f64 = 4.0;
const LONG_RUN: u64 = 64;

/// Number of steps of the model between two looks.
const LOOK_EVERY: u32 = 256;

/// Scope of the measurement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Plan {
    /// Bytes mapped.
    pub bytes: u64,
    /// Bytes of the pool that are free.
    pub spare: u64,
    /// Memory of the server.
    pub memory: u64,
    /// Blocks that repeat an earlier content.
    pub doubles: Doubles,
    /// Rule for keeping runs whole.
    pub keep_runs: KeepRuns,
}

/// Results of a measurement.
#[derive(Clone, Copy, Debug)]
pub struct Results {
    /// Plan that was measured.
    pub plan: Plan,
    /// Status of the pass when it had finished.
    pub dedup: DedupStatus,
    /// Bytes of the device, read and written.
    pub bytes: [u64; 2],
    /// Its virtual time.
    pub nanos: Nanos,
    /// Real time of the processor in calls of the engine.
    pub processor: Processor,
    /// Maximum memory of the pass, beyond the engine's memory before it.
    pub memory: u64,
    /// Blocks of data afterwards, and the expected number.
    pub blocks: [u64; 2],
}

impl Results {
    /// Returns the bytes of the device that the pass cost for each block in use.
    pub fn bytes_a_block(&self) -> f64 {
        (self.bytes[0] + self.bytes[1]) as f64 / self.blocks_in_use()
    }

    fn blocks_in_use(&self) -> f64 {
        (self.plan.bytes / 4096) as f64
    }

    /// Returns the most bytes that it may cost for each block in use. Beside the pages, the canonical slot is read, at most once for each block that comes to
    /// share it.
    fn most_bytes_a_block(&self) -> f64 {
        let pages = if self.plan.doubles.run >= LONG_RUN { MOST_PAGES_IN_RUNS } else { MOST_PAGES_ALONE };
        MOST_BYTES_A_BLOCK + self.dedup.shared_blocks as f64 * (pages + 1.0) * 4096.0 / self.blocks_in_use()
    }
}

/// Measures the plan; `progress` gets the progress in millionths.
pub fn measure(plan: Plan, mut progress: impl FnMut(u32)) -> Checked<Results> {
    let no_pool = |why| Violation(format!("no pool of {} bytes: {why}", plan.bytes));
    let geometry = Geometry::for_capacity(plan.bytes + plan.spare).map_err(no_pool)?;
    let limits = Limits::for_memory(engine_memory(plan.memory), &geometry)
        .map_err(|needed| Violation(format!("the engine needs {needed} bytes")))?;
    let pool = Pool::with_doubles(plan.bytes, plan.spare, plan.doubles).map_err(no_pool)?;
    let mapped = pool.mapped;
    let mut machine = Machine::open(Store::new(Rc::new(pool)), limits, 0);
    machine.opened()?;
    let change = PoolChange { defrag: Some(DefragSetting::Off), replicas: Some(Some(0)), ..PoolChange::default() };
    machine.command(Command::SetPool(change))?;
    let (policy, keep_runs) = (Some(Some(Policy::default())), Some(plan.keep_runs));
    let change = VolumePropertyChange { policy, keep_runs, ..VolumePropertyChange::default() };
    machine.command(Command::SetVolume { volume: VOLUME, change })?;
    machine.command(Command::Settle)?;
    let (before, disk, now) = (machine.engine.status(), machine.disk(), machine.now);
    machine.processor = Some(Processor::default());
    machine.begin_command(Command::Dedup { command: DedupCommand::Start });
    let (mut memory, mut steps) = (0, 0u32);
    let dedup = loop {
        machine.step(Nanos::MAX)?;
        steps = steps.wrapping_add(1);
        let status = steps.is_multiple_of(LOOK_EVERY).then(|| machine.engine.status());
        let Some(status) = status else { continue };
        memory = memory.max(status.memory_bytes.saturating_sub(before.memory_bytes));
        progress(status.dedup.done_ppm);
        if status.dedup.state == PassState::Finished {
            break status.dedup;
        }
    };
    let (after, nanos) = (machine.disk(), machine.now - now);
    machine.command(Command::Settle)?;
    Ok(Results {
        plan,
        dedup,
        bytes: [after.read_bytes - disk.read_bytes, after.written_bytes - disk.written_bytes],
        nanos,
        processor: machine.processor.unwrap_or_default(),
        memory,
        blocks: [machine.engine.status().data_blocks_used, mapped - plan.doubles.of(mapped)],
    })
}

/// The pool that is measured, from the command line.
#[derive(Args, Clone, Debug)]
pub struct Arguments {
    /// Bytes mapped: a number with G or T.
    #[arg(long, default_value = "1T", value_parser = parse_size)]
    size: u64,
    /// Bytes of the pool that are free beside that.
    #[arg(long, default_value = "16G", value_parser = parse_size)]
    spare: u64,
    /// Memory of the server, in MiB.
    #[arg(long, default_value_t = 512, value_parser = clap::value_parser!(u64).range(64..1 << 20))]
    memory: u64,
    /// One block of N duplicates an earlier one.
    #[arg(long, default_value_t = 65_536, value_parser = clap::value_parser!(u64).range(2..))]
    doubled_one_in: u64,
    /// Number of these that follow each other, as do their originals.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    run: u64,
    /// Share what splits no run: all of it where a run has a multiple of 256.
    #[arg(long)]
    keep_runs: bool,
}

/// Measures, and prints the results. Fails if the pass left a duplicate, or cost more than allowed.
pub fn run(arguments: &Arguments) -> ExitCode {
    let &Arguments { size, spare, memory, doubled_one_in: one_in, run, keep_runs } = arguments;
    let keep_runs = if keep_runs { KeepRuns::On } else { KeepRuns::Off };
    let plan = Plan { bytes: size, spare, memory: memory << 20, doubles: Doubles { one_in, run }, keep_runs };
    let mut shown = 0;
    let measured = measure(plan, |ppm| {
        if ppm / 50_000 > shown {
            shown = ppm / 50_000;
            eprintln!("{} % of the pass", ppm / 10_000);
        }
    });
    let results = match measured {
        Ok(results) => results,
        Err(violation) => {
            println!("violation: {violation}");
            return ExitCode::FAILURE;
        }
    };
    print!("{}", table(&results));
    let is_exact = results.blocks[0] == results.blocks[1];
    let is_cheap = results.bytes_a_block() <= results.most_bytes_a_block();
    if !is_exact {
        println!("violation: something is still stored twice");
    }
    if !is_cheap {
        println!("too much: the device read and wrote more for each block in use than docs/rfc/0015 states");
    }
    if is_exact && is_cheap { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn table(results: &Results) -> String {
    let Results { plan, dedup, bytes: [read, written], nanos, processor, memory, blocks } = results;
    let gib = |bytes: u64| bytes as f64 / f64::from(1 << 30);
    let mut text = String::from("| | |\n|---|---|\n");
    let mut row = |what: &str, value: String| {
        let _ = writeln!(text, "| {what} | {value} |");
    };
    row("mapped, memory of the server", format!("{:.0} GiB, {} MiB", gib(plan.bytes), plan.memory >> 20));
    row("read, written", format!("{:.2} GiB, {:.2} GiB", gib(*read), gib(*written)));
    let spill = [dedup.spill_written, dedup.spill_read].map(|blocks| gib(blocks * 4096));
    row("of that in the spill space", format!("{:.2} GiB, {:.2} GiB", spill[1], spill[0]));
    row(
        "bytes for each block in use",
        format!("{:.1} (at most {:.1})", results.bytes_a_block(), results.most_bytes_a_block()),
    );
    row("walks of all summaries, of all maps", format!("{}, {}", dedup.scans, dedup.map_walks));
    row("blocks shared", dedup.shared_blocks.to_string());
    row("blocks of data afterwards, and distinct contents", format!("{}, {}", blocks[0], blocks[1]));
    row("memory beside the engine's", format!("{:.1} MiB", *memory as f64 / f64::from(1 << 20)));
    row("virtual time", format!("{:.1} s", *nanos as f64 / 1e9));
    let (all, longest) = (processor.nanos as f64 / 1e9, processor.longest as f64 / 1e6);
    row("the processor's, and its longest call (depend on the machine)", format!("{all:.1} s, {longest:.1} ms"));
    text
}
