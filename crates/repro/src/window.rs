//! Study of the index window: the share of a large pool's duplicates that an index in a given amount of memory finds, counted and measured.
//!
//! The pool is preloaded (`scale::pool`), all of it mapped. A working set, a share of the pool's data, overwrites old data. Then its contents are written again
//! elsewhere, in random order. Each of those blocks could be removed; the number of removed blocks depends on the index alone.

use std::fmt::Write;
use std::rc::Rc;

use engine::Limits;

use crate::icache::SEED;
use crate::icache::load::{Client, Shape};
use sim::studies::scale::engine_memory;
use sim::studies::scale::report::size_name;
use sim::timed::machine::{Machine, Store};
use sim::timed::pool::Pool;
use sim::{Checked, Violation};

/// Memory for a pool: bytes for each N bytes of data. 0.4 GB for 1 TB.
pub const MEMORY_FOR: (u64, u64) = (4, 10_000);
/// The working set, in percent of the data.
pub const WORKING_SET_PERCENT: u64 = 5;
const BLOCK_BYTES: u64 = 4096;
const ENTRY_BYTES: u64 = 16;
const EXTENT_BLOCKS: u64 = 32;
/// One in N extents of the working set is written again, in each order: enough to estimate a share.
const SAMPLED: u64 = 3;
const SPARE_BYTES: u64 = 2 << 30;

/// Use of the memory, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Parts {
    /// Entries of the index.
    pub entries: u64,
    /// Buffers of the read cache.
    pub read_cache: u64,
    /// Buffers for incoming writes.
    pub incoming: u64,
    /// Metadata pages.
    pub pages: u64,
    /// The delta, requests, tables that are held whole.
    pub tables: u64,
    /// Memory that the server keeps for itself.
    pub server: u64,
}

impl Parts {
    fn new(memory: u64, server: u64, limits: &Limits) -> Parts {
        let entries = u64::from(limits.index_entries);
        let read_cache = u64::from(limits.buffers - limits.write_buffers) * BLOCK_BYTES;
        let incoming = u64::from(limits.write_buffers) * BLOCK_BYTES;
        let pages = u64::from(limits.pages) * BLOCK_BYTES;
        let tables = memory - server - entries * ENTRY_BYTES - read_cache - incoming - pages;
        Parts { entries, read_cache, incoming, pages, tables, server }
    }
}

/// Blocks written a second time, and the known blocks among them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Hits {
    /// Blocks written whose content had been written before.
    pub known: u64,
    /// Known blocks that were not written again.
    pub removed: u64,
}

impl Hits {
    /// Returns the share of known blocks that were not written again, in percent.
    pub fn percent(self) -> f64 {
        self.removed as f64 * 100.0 / self.known.max(1) as f64
    }
}

/// Results of the measurement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Results {
    /// Bytes of data in the pool.
    pub data: u64,
    /// All the memory.
    pub memory: u64,
    /// Use of the memory.
    pub parts: Parts,
    /// Bytes that the engine used of it, at the end.
    pub in_use: u64,
    /// Blocks of the working set.
    pub working_set: u64,
    /// Each extent as likely as any other.
    pub uniform: Hits,
    /// Extents drawn by Zipf's law.
    pub skewed: Hits,
}

/// Measures a pool with `data` bytes of data.
pub fn measure(data: u64) -> Checked<Results> {
    let pool = Pool::new(data, SPARE_BYTES).map_err(|why| Violation(format!("no pool of {data} bytes: {why}")))?;
    let memory = data / MEMORY_FOR.1 * MEMORY_FOR.0;
    let server = memory - engine_memory(memory);
    let limits = Limits::for_memory(memory - server, &pool.parameters.geometry)
        .map_err(|needed| Violation(format!("the engine needs {needed} bytes, and has {}", memory - server)))?;
    let mut machine = Machine::open(Store::new(Rc::new(pool)), limits, 0);
    machine.opened()?;
    let extents = data / BLOCK_BYTES * WORKING_SET_PERCENT / 100 / EXTENT_BLOCKS;
    let mut client = Client::new(Shape { read_blocks: 0, extents, extent_blocks: EXTENT_BLOCKS }, SEED);
    for extent in 0..extents {
        client.write(&mut machine, extent)?;
    }
    let uniform = again(&mut client, &mut machine, extents, Client::draw_any)?;
    let skewed = again(&mut client, &mut machine, extents, Client::draw_extent)?;
    let in_use = machine.engine.status().memory_bytes;
    client.verify(&mut machine, 1000)?;
    Ok(Results {
        data,
        memory,
        parts: Parts::new(memory, server, &limits),
        in_use,
        working_set: extents * EXTENT_BLOCKS,
        uniform,
        skewed,
    })
}

/// Writes extents of the working set again.
fn again(client: &mut Client, machine: &mut Machine, extents: u64, draw: impl Fn(&mut Client) -> u64) -> Checked<Hits> {
    let before = client.tally(machine).counts;
    for _ in 0..extents / SAMPLED {
        let extent = draw(client);
        client.write(machine, extent)?;
    }
    let counts = client.tally(machine).counts;
    Ok(Hits { known: counts.known - before.known, removed: counts.removed - before.removed })
}

/// Formats the table, in Markdown.
pub fn table(results: &Results) -> String {
    let Results { data, memory, parts, in_use, working_set, uniform, skewed } = *results;
    let mib = |bytes: u64| format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20));
    let mut text = String::from("\n| | bytes | of the memory |\n|---|---|---|\n");
    let rows = [
        ("memory, 0.4 GB for 1 TB of data", memory),
        ("index", parts.entries * ENTRY_BYTES),
        ("read cache", parts.read_cache),
        ("buffers for incoming data", parts.incoming),
        ("metadata pages", parts.pages),
        ("delta, requests, tables held whole", parts.tables),
        ("the server's own: staging, connections", parts.server),
    ];
    for (what, bytes) in rows {
        let _ = writeln!(text, "| {what} | {} | {:.1} % |", mib(bytes), bytes as f64 * 100.0 / memory as f64);
    }
    let window = parts.entries * BLOCK_BYTES;
    let share = |bytes: u64| bytes as f64 * 100.0 / data as f64;
    let _ = writeln!(text, "\n| | |\n|---|---|");
    let _ = writeln!(text, "| data in the pool | {} |", size_name(data));
    let _ = writeln!(text, "| entries of the index | {} |", parts.entries);
    let _ = writeln!(text, "| bytes an entry | {ENTRY_BYTES} |");
    let gib = window as f64 / f64::from(1 << 30);
    let _ = writeln!(text, "| window: entries x 4 KiB | {gib:.1} GiB, {:.2} % of the data |", share(window));
    let working_set = working_set * BLOCK_BYTES;
    let gib = working_set as f64 / f64::from(1 << 30);
    let _ = writeln!(text, "| working set | {gib:.1} GiB, {:.2} % of the data |", share(working_set));
    let _ = writeln!(text, "| known blocks removed, any extent as likely | {:.1} % |", uniform.percent());
    let _ = writeln!(text, "| known blocks removed, by Zipf's law | {:.1} % |", skewed.percent());
    let _ = writeln!(text, "| memory in use by the engine at the end | {} |", mib(in_use));
    text
}

/// Marker before the table in the document.
pub const BEGIN: &str = "<!-- made by `repro window` -->";
