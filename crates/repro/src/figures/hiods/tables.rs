//! Tables of the micro experiments (5 to 7 and 9 to 16), through the engine ([`super::ways`]).
//!
//! Values are ratios to the same load without deduplication and with the same memory: table 5 for reads, 9 for writes.

use super::claims::{TABLE_6, TABLE_7, TABLE_10, TABLE_11, TABLE_12, TABLE_13, TABLE_14, TABLE_15, TABLE_16, Values};
use super::ways::{Case, DRIVE, Way, contents, measure, rate};
use crate::dedis::addresses::Pattern;
use crate::dedis::virtual_run::Outcome;
use crate::figures::plot::{Bars, Chart};
use crate::figures::runs::Results;
use crate::figures::{Data, Entry, Figure, Row};
use sim::parallel::{cores, in_order};

/// All of them.
pub(super) const FIGURES: &[Entry] = &[
    Entry {
        name: READ_TABLES.name,
        about: "HIODS, tables 5 to 7: reads, as parts of those without deduplication",
        runs: Vec::new,
        make: |results| figure(results, &READ_TABLES),
    },
    Entry {
        name: MEMORY_TABLES.name,
        about: "HIODS, tables 9 to 12: writes with metadata in memory, as parts of those without deduplication",
        runs: Vec::new,
        make: |results| figure(results, &MEMORY_TABLES),
    },
    Entry {
        name: PERSISTENT_TABLES.name,
        about: "HIODS, tables 9 and 13 to 16: writes with metadata on the device, as parts of those without deduplication",
        runs: Vec::new,
        make: |results| figure(results, &PERSISTENT_TABLES),
    },
];

/// Twelve loads: patterns, in each one worker and four, in each highperf and kernels.
const LOADS: usize = 12;
const PATTERNS: [Pattern; 3] = [Pattern::Sequential, Pattern::Uniform, Pattern::Hotspot];
const WORKERS: [u64; 2] = [1, 4];
const CONTENTS: [&str; 2] = ["highperf", "kernels"];
/// Bytes of a load.
const FULL: u64 = 1 << 30;
const QUICK: u64 = 8 << 20;
/// The paper's goal as a share of sequential writes offline without a pass: 35,000 of 36,641 requests a second.
const GOAL: f64 = 35_000.0 / 36_641.0;
/// A table of the paper: its number, subject and way.
struct Table {
    number: u32,
    name: &'static str,
    way: Way,
    in_memory: bool,
    paper: Values,
}

const fn table(number: u32, name: &'static str, way: Way, in_memory: bool, paper: Values) -> Table {
    Table { number, name, way, in_memory, paper }
}

/// Tables that are compared with the first of them. It is measured for each kind of memory.
struct Tables {
    name: &'static str,
    title: &'static str,
    reads: bool,
    others: &'static [Table],
    once: Option<&'static str>,
    orderings: &'static [Ordering],
}

/// Statement of the paper about two tables, in its words: the values of the first are above those of the second. It judges the paper's own system
/// ([`super::store`]); here it is shown.
struct Ordering(u32, u32, &'static str);

const READ_TABLES: Tables = Tables {
    name: "hiods-reads",
    title: "reads",
    reads: true,
    others: &[
        table(6, "metadata in memory", Way::Inline, true, TABLE_6),
        table(7, "metadata on the device", Way::Inline, false, TABLE_7),
    ],
    once: None,
    orderings: &[Ordering(6, 7, "reads are faster with metadata in memory")],
};
const MEMORY_TABLES: Tables = Tables {
    name: "hiods-writes-memory",
    title: "writes with metadata in memory",
    reads: false,
    others: &[
        table(10, "inline", Way::Inline, true, TABLE_10),
        table(11, "offline without passes", Way::Offline, true, TABLE_11),
        table(12, "offline beside passes", Way::Beside, true, TABLE_12),
    ],
    once: Some("hiods-writes-memory/once"),
    orderings: &[
        Ordering(11, 10, "in memory, offline without passes is faster than inline"),
        Ordering(11, 12, "in memory, passes take something"),
    ],
};
const PERSISTENT_TABLES: Tables = Tables {
    name: "hiods-writes-device",
    title: "writes with metadata on the device",
    reads: false,
    others: &[
        table(13, "inline", Way::Inline, false, TABLE_13),
        table(14, "offline without passes", Way::Offline, false, TABLE_14),
        table(15, "offline beside passes", Way::Beside, false, TABLE_15),
        table(16, "offline beside passes, with a goal", Way::Goal(0), false, TABLE_16),
    ],
    once: Some("hiods-writes-device/once"),
    orderings: &[
        Ordering(14, 13, "on the device, offline without passes is faster than inline"),
        Ordering(14, 15, "on the device, passes take something"),
        Ordering(16, 15, "a goal takes from the passes"),
    ],
};

fn load(at: usize) -> (Pattern, u64, usize) {
    (PATTERNS[at / 4], WORKERS[at / 2 % 2], at % 2)
}

fn name(at: usize) -> String {
    let (pattern, workers, kind) = load(at);
    format!("{pattern}, {workers} at once, {}", CONTENTS[kind])
}

/// Returns the end of the claim ids of a load.
fn slug(at: usize) -> String {
    let (pattern, workers, kind) = load(at);
    format!("{pattern}-{workers}-{}", CONTENTS[kind])
}

/// Measurements of a table: one result for each load.
type Measured = Vec<Result<Outcome, String>>;

fn measured(results: &Results, reads: bool, in_memory: bool, way: impl Fn(usize) -> Way + Sync) -> Measured {
    let bytes = if results.quick { QUICK } else { FULL };
    in_order(cores(), LOADS as u64, |at| {
        let way = way(at as usize);
        let (pattern, workers, kind) = load(at as usize);
        measure(Case { pattern, workers, drive: DRIVE, reads, bytes }, way, in_memory, &contents(bytes)[kind].0)
    })
}

fn figure(results: &Results, tables: &Tables) -> Figure {
    let is_real = contents(FULL).iter().all(|(_, is_real)| *is_real);
    let mut natives: [Option<Measured>; 2] = [None, None];
    let mut rates: Vec<(u32, Vec<f64>)> = Vec::new();
    let mut rows = Vec::new();
    let mut parts_of = Vec::new();
    let (mut once, mut goals) = (Vec::new(), Vec::new());
    for table in tables.others {
        let native = natives[usize::from(table.in_memory)]
            .get_or_insert_with(|| measured(results, tables.reads, table.in_memory, |_| Way::Native));
        let native: Vec<f64> = native.iter().map(|native| native.as_ref().map_or(f64::NAN, rate)).collect();
        // Sequential writes of as many workers and of the same contents, offline without a pass.
        let goal = |at: usize| {
            let offline = rates.iter().find(|(number, _)| *number == 14).map_or(0.0, |(_, rates)| rates[at % 4]);
            (offline * GOAL) as u64
        };
        let found = measured(results, tables.reads, table.in_memory, |at| match table.way {
            Way::Goal(_) => Way::Goal(goal(at)),
            way => way,
        });
        let mut parts = Vec::new();
        for (load, outcome) in found.iter().enumerate() {
            let label = format!("table {}, {}, {}", table.number, table.name, name(load));
            let rate = outcome.as_ref().map_or(f64::NAN, rate);
            let row =
                Row::claim(&format!("{}/table-{}-{}", tables.name, table.number, slug(load)), rate / native[load]);
            parts.push((rate / native[load], row.paper));
            rows.push(row.note(says(outcome, table.paper[load])));
            if table.number == 16 {
                let part = rate / goal(load) as f64;
                rows.push(Row::new(format!("{label}: of its goal"), "of the goal", part));
                goals.push((format!("{} ({part:.3})", name(load)), (0.95..=9.0).contains(&part)));
            }
        }
        once.extend(stored_once(table, &found));
        rates.push((table.number, found.iter().map(|outcome| outcome.as_ref().map_or(f64::NAN, rate)).collect()));
        parts_of.push((format!("table {}: {}", table.number, table.name), parts));
    }
    let of = |number: u32| rates.iter().find(|rates| rates.0 == number).map_or(&[][..], |rates| &rates.1);
    for Ordering(above, below, words) in tables.orderings {
        let count = of(*above).iter().zip(of(*below)).filter(|(above, below)| above > below).count();
        rows.push(Row::new(*words, "of 12 loads", count as f64));
    }
    rows.extend(tables.once.map(|id| Row::every(id, once)));
    if !goals.is_empty() {
        rows.push(Row::every("hiods-writes-device/goal", goals));
    }
    for row in &mut rows {
        row.data = if is_real { Data::Real } else { Data::Synthetic };
    }
    let numbers: Vec<String> = tables.others.iter().map(|table| table.number.to_string()).collect();
    Figure {
        name: tables.name,
        source: "HIODS, section 5.3",
        title: format!("{}: tables {} as parts of what native gets", tables.title, numbers.join(", ")),
        rows,
        chart: chart(tables, parts_of),
        notes: notes(is_real),
    }
}

fn says(outcome: &Result<Outcome, String>, paper: f64) -> String {
    match outcome {
        Err(why) => why.clone(),
        Ok(outcome) => {
            let mut words = format!("{:.0} MiB/s; the paper's {paper:.0}", rate(outcome) / 256.0);
            if outcome.shared_blocks > 0 {
                words += &format!("; {} blocks shared meanwhile", outcome.shared_blocks);
            }
            words
        }
    }
}

/// Checks that after the pass each content is stored once, exactly; for inline only with memory for all contents.
fn stored_once(table: &Table, found: &Measured) -> Option<(String, bool)> {
    if table.way == Way::Inline && !table.in_memory {
        return None;
    }
    let is_once = |outcome: &Result<Outcome, String>| {
        outcome.as_ref().is_ok_and(|outcome| outcome.stored_blocks == outcome.tally.distinct_blocks)
    };
    Some((format!("table {}, {}", table.number, table.name), found.iter().all(is_once)))
}

/// Our parts and the paper's of each load of a table, with its name.
type Parts = (String, Vec<(f64, Option<f64>)>);

/// Groups of both contents, one worker; four workers are in the rows.
fn chart(tables: &Tables, parts: Vec<Parts>) -> Chart {
    let shown: Vec<usize> = (0..LOADS).filter(|&at| load(at).1 == 1).collect();
    let groups = shown.iter().map(|&at| format!("{} {}", load(at).0, CONTENTS[load(at).2])).collect();
    let bars = |(name, parts): Parts| {
        let papers = shown.iter().map(|&at| parts[at].1).collect();
        Bars::new(name, shown.iter().map(|&at| parts[at].0).collect()).papers(papers)
    };
    let series = parts.into_iter().map(bars).collect();
    Chart::bars(format!("HIODS, {}, one worker", tables.title), "times what native gets", groups, series)
}

fn notes(is_real: bool) -> Vec<String> {
    let contents = if is_real {
        "Contents are those of the paper's files"
    } else {
        "There are no files of contents in shared/data/dedisbench: made ones stand in"
    };
    vec![
        format!(
            "{contents}, shrunk with the load, so that as many writes are duplicates as of 64 GiB: 1 GiB. The drive has the \
             rates of the paper's: 505 MB/s of writes, 1,725 MB/s of reads, 80 us for a read of 4 KiB."
        ),
        "Metadata in memory: all but the data takes no time, and there is memory for all contents; an engine that keeps its journal cannot do that. \
         Metadata on the device: 40 MiB of memory, 3 MiB more than it needs at least, and the complete index is on the device. Native has the same memory."
            .into(),
        "Passes without a goal have all of the drive that they can use, from the beginning on, and begin again whenever they end. The goal is 95.5 % of \
         what sequential writes get offline without a pass, as the paper's 35,000 requests a second were."
            .into(),
        "Ours has no page cache before it and takes no time of a processor here. The paper's tables went through both, so parts of native can be \
         compared, numbers cannot."
            .into(),
    ]
}
