//! A study of the blocks of metadata that a random write costs in the steady state, by structure.
//!
//! The pool is synthetic (`pool`), all of it mapped, and a tenth of its capacity free. Uniform writes of 4 KiB continue until the map buffer has been full
//! and flushed several times. Then they are counted, from the end of one flush to the end of another.

use std::fmt::Write;
use std::rc::Rc;

use engine::{Geometry, Limits, Nanos, PagesWritten, Recovered};

use crate::studies::scale::engine_memory;
use crate::timed::load::{Clients, Workload};
use crate::timed::machine::{Machine, Processor, Store};
use crate::timed::pool::Pool;
use crate::{Checked, Violation, violated};

/// Inverse of the free share of the capacity: one part in this number.
const FREE_ONE_IN: u64 = 10;
/// Number of flushes before those that count; `FLUSHES` is the number of those.
const WARM_UP_FLUSHES: u32 = 10;
const FLUSHES: u32 = 5;
/// Number of written blocks that are read after the crash.
const VERIFIED: usize = 20_000;

/// Maximum number of blocks of metadata for a written block.
pub const MOST: f64 = 0.3;

/// Scope of the measurement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Plan {
    /// Bytes mapped.
    pub bytes: u64,
    /// Memory of the server.
    pub memory: u64,
    /// Divisor of the pool and of the engine's memory: the same figures in a `fraction`-th of the time.
    pub fraction: u32,
}

/// Results of a measurement.
#[derive(Clone, Copy, Debug)]
pub struct Results {
    /// Plan that was measured.
    pub plan: Plan,
    /// PartitionMode of the engine's memory.
    pub limits: Limits,
    /// Blocks written while it counted.
    pub blocks: u64,
    /// Pages written.
    pub pages: PagesWritten,
    /// Checkpoints.
    pub checkpoints: u64,
    /// Real time of the processor in calls of the engine.
    pub processor: Processor,
    /// Bytes of memory that the engine used at most, when checkpoints ended.
    pub memory: u64,
    /// Opening after a crash at the end: virtual time, the engine's report, mappings in the buffer, and the longest call (real time).
    pub opening: (Nanos, Recovered, u64, u64),
}

impl Results {
    /// Divides a count of metadata blocks by the blocks written.
    pub fn each(&self, pages: u64) -> f64 {
        pages as f64 / self.blocks.max(1) as f64
    }
}

/// A monitor of the map buffer from checkpoint to checkpoint.
#[derive(Default)]
struct Watch {
    checkpoints: u64,
    buffered: u64,
    flushes: u32,
    memory: u64,
}

impl Watch {
    fn look(&mut self, machine: &Machine) {
        let checkpoints = machine.engine.counters().checkpoints;
        if checkpoints == self.checkpoints {
            return;
        }
        let status = machine.engine.status();
        self.flushes += u32::from(status.buffered_entries < self.buffered);
        self.memory = self.memory.max(status.memory_bytes);
        (self.checkpoints, self.buffered) = (checkpoints, status.buffered_entries);
    }
}

/// Measures the plan.
pub fn measure(plan: Plan) -> Checked<Results> {
    let spare = |bytes: u64| bytes / (FREE_ONE_IN - 1);
    let no_pool = |why| Violation(format!("no pool of {} bytes: {why}", plan.bytes));
    let whole = Geometry::for_capacity(plan.bytes + spare(plan.bytes)).map_err(no_pool)?;
    let limits = Limits::for_memory(engine_memory(plan.memory), &whole)
        .map_err(|needed| Violation(format!("the engine needs {needed} bytes")))?;
    let limits = a_part_of(limits, plan.fraction);
    let bytes = (plan.bytes / u64::from(plan.fraction)).next_multiple_of(whole.block());
    let pool = Pool::new(bytes, spare(bytes)).map_err(no_pool)?;
    let mut machine = Machine::open(Store::new(Rc::new(pool)), limits, 0);
    machine.opened()?;
    let (mut clients, mut watch) = (Clients::new(plan.bytes), Watch::default());
    let mut flushed = |machine: &Machine, flushes: u32| {
        watch.look(machine);
        watch.flushes >= flushes
    };
    clients.work(&mut machine, Workload::RandomWrite, &mut |machine, _| flushed(machine, WARM_UP_FLUSHES))?;
    let before = machine.engine.write_counts().written_blocks;
    machine.processor = Some(Processor::default());
    let upto = WARM_UP_FLUSHES + FLUSHES;
    let cost = clients.work(&mut machine, Workload::RandomWrite, &mut |machine, _| flushed(machine, upto))?;
    let blocks = machine.engine.write_counts().written_blocks - before;
    let (pages, processor) = (cost.counters.pages_written, machine.processor.unwrap_or_default());
    let difference = cost.io.metadata_writes.abs_diff(pages.sum());
    if difference > pages.sum() / 50 + 100 {
        return violated(format!("the drive got {} writes of pages, counted are {pages:?}", cost.io.metadata_writes));
    }
    let now = machine.now;
    machine = Machine::open(machine.crash(true), limits, now);
    machine.processor = Some(Processor::default());
    let recovered = machine.opened()?;
    let longest = machine.processor.unwrap_or_default().longest;
    let opening = (machine.now - now, recovered, machine.engine.status().buffered_entries, longest);
    clients.verify(&mut machine, VERIFIED)?;
    let checkpoints = cost.counters.checkpoints;
    Ok(Results { plan, limits, blocks, pages, checkpoints, processor, memory: watch.memory, opening })
}

/// Scales the memory of an engine to one part in `fraction` of a pool. Buffers are for requests, and stay.
fn a_part_of(limits: Limits, fraction: u32) -> Limits {
    let chunk = limits.index_chunk;
    Limits {
        pages: (limits.pages / fraction).max(512),
        index_entries: (limits.index_entries / fraction).next_multiple_of(chunk),
        delta_entries: (limits.delta_entries / fraction).max(512),
        map_buffer: limits.map_buffer / fraction,
        ..limits
    }
}

/// Describes the excess over the figure in docs/internals/performance.md, if there is one.
pub fn excess(results: &Results) -> Option<String> {
    let each = results.each(results.pages.sum());
    (each > MOST).then(|| format!("{each:.3} blocks of metadata for a block written, {MOST} allowed"))
}

/// Formats the results as a table in Markdown.
pub fn table(results: &Results) -> String {
    let Results { plan, limits, blocks, pages, checkpoints, processor, memory, opening } = results;
    let mut text = String::from("\n| blocks of metadata for a random write of 4 KiB | |\n|---|---|\n");
    let rows = [
        ("maps of volumes", pages.maps),
        ("space map", pages.space_map),
        ("reference counts", pages.counts),
        ("summaries", pages.summaries),
        ("map buffer", pages.map_buffer),
        ("all other tables, superblocks", pages.others + pages.disk_index),
        ("**all**", pages.sum()),
    ];
    for (what, count) in rows {
        let _ = writeln!(text, "| {what} | {:.4} |", results.each(count));
    }
    let _ = writeln!(text, "| **at most** | **{MOST}** |");
    let mib = |bytes: u64| format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20));
    let (nanos, recovered, buffered, longest) = opening;
    let _ = writeln!(text, "\n| | |\n|---|---|");
    let _ = writeln!(text, "| bytes mapped | {} |", plan.bytes / u64::from(plan.fraction));
    let _ = writeln!(text, "| memory of the server | {} |", mib(plan.memory));
    let _ = writeln!(text, "| the engine's at the end of a checkpoint, at most | {} |", mib(*memory));
    let _ = writeln!(text, "| mappings: delta, map buffer | {}, {} |", limits.delta_entries, limits.map_buffer);
    let _ = writeln!(text, "| blocks written, checkpoints | {blocks}, {checkpoints} |");
    let _ = writeln!(
        text,
        "| opening after a crash: virtual ms, entries of the journal, mappings buffered | {:.0}, {}, {buffered} |",
        *nanos as f64 / 1e6,
        recovered.entries
    );
    let _ = writeln!(
        text,
        "| longest call of the engine, in real time (depends on the machine): serving, opening | {:.1} ms, {:.1} ms |",
        processor.longest as f64 / 1e6,
        *longest as f64 / 1e6
    );
    text
}

/// Line of the document at which the table begins.
pub const BEGIN: &str = "<!-- made by `sim metadata` -->";
