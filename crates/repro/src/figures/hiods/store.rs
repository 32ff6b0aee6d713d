//! Tables of the micro experiments (5 to 7 and 9 to 16) of the paper's own system ([`crate::hiods_store`]).
//!
//! The load has a sixteenth of the paper's size and three seeds; the short form has a 1,024th and one seed. Rates and latencies are means, with their standard
//! deviations in the notes, beside the paper's.

use super::claims::{
    TABLE_5, TABLE_6, TABLE_7, TABLE_9, TABLE_10, TABLE_11, TABLE_12, TABLE_13, TABLE_14, TABLE_15, TABLE_16, Values,
};
use super::claims_store::{
    LATENCY_5, LATENCY_6, LATENCY_7, LATENCY_9, LATENCY_10, LATENCY_11, LATENCY_12, LATENCY_13, LATENCY_14, LATENCY_15,
    LATENCY_16,
};
use super::ways::contents;
use crate::dedis::BLOCK;
use crate::dedis::addresses::Pattern;
use crate::dedis::distribution::Distribution;
use crate::figures::plot::{Bars, Chart};
use crate::figures::runs::Results;
use crate::figures::{Data, Entry, Figure, Row};
use crate::hiods_store::client::{Case, Outcome, reads, writes};
use crate::hiods_store::server::Way;
use crate::hiods_store::{CALIBRATED, Keeping, PAPER_BLOCKS, Scale, Unit};
use sim::parallel::{cores, in_order};

/// All of them.
pub(super) const FIGURES: &[Entry] = &[
    Entry {
        name: READS.name,
        about: "HIODS, tables 5 to 7, of its own system: reads",
        runs: Vec::new,
        make: |results| figure(results, &READS),
    },
    Entry {
        name: MEMORY.name,
        about: "HIODS, tables 9 to 12, of its own system: writes with metadata in memory",
        runs: Vec::new,
        make: |results| figure(results, &MEMORY),
    },
    Entry {
        name: DEVICE.name,
        about: "HIODS, tables 13 to 16, of its own system: writes with metadata in LevelDB",
        runs: Vec::new,
        make: |results| figure(results, &DEVICE),
    },
];

const PATTERNS: [Pattern; 3] = [Pattern::Sequential, Pattern::Uniform, Pattern::Hotspot];
const WORKERS: [u64; 2] = [1, 4];
const CONTENTS: [&str; 2] = ["highperf", "kernels"];
/// Number of loads of a table: each of the three patterns with 1 and with 4 workers, each with two contents.
const LOADS: usize = 12;
const FULL: Scale = Scale(16);
const QUICK: Scale = Scale(1024);
const SEEDS: u64 = 3;

/// Kind of a table's load.
#[derive(Clone, Copy, PartialEq)]
enum What {
    /// Reads of sequentially written blocks.
    Reads,
    /// Writes without deduplication, each pattern in its own time.
    Native,
    /// Writes, one way.
    Writes(Way),
}

struct Table {
    number: u32,
    what: What,
    keeping: Keeping,
    rates: Values,
    latencies: Values,
}

/// The first table is the one without deduplication.
struct Tables {
    name: &'static str,
    title: &'static str,
    all: &'static [Table],
    /// The first above the second, for 10 of 12 loads.
    orderings: &'static [(u32, u32)],
    /// Kernels above highperf, for 5 of 6 loads.
    contents: &'static [u32],
}

const fn table(number: u32, what: What, keeping: Keeping, rates: Values, latencies: Values) -> Table {
    Table { number, what, keeping, rates, latencies }
}

const NATIVE: Table = table(9, What::Native, Keeping::Native, TABLE_9, LATENCY_9);
const INLINE: Table = table(10, What::Writes(Way::Inline), Keeping::Memory, TABLE_10, LATENCY_10);

const READS: Tables = Tables {
    name: "hiods-store-reads",
    title: "reads",
    all: &[
        table(5, What::Reads, Keeping::Native, TABLE_5, LATENCY_5),
        table(6, What::Reads, Keeping::Memory, TABLE_6, LATENCY_6),
        table(7, What::Reads, Keeping::Device, TABLE_7, LATENCY_7),
    ],
    orderings: &[(6, 7)],
    contents: &[],
};
const MEMORY: Tables = Tables {
    name: "hiods-store-memory",
    title: "writes with metadata in memory",
    all: &[
        NATIVE,
        INLINE,
        table(11, What::Writes(Way::Offline), Keeping::Memory, TABLE_11, LATENCY_11),
        table(12, What::Writes(Way::Beside), Keeping::Memory, TABLE_12, LATENCY_12),
    ],
    orderings: &[(11, 10), (11, 12)],
    contents: &[],
};
const DEVICE: Tables = Tables {
    name: "hiods-store-device",
    title: "writes with metadata in LevelDB",
    all: &[
        NATIVE,
        INLINE,
        table(13, What::Writes(Way::Inline), Keeping::Device, TABLE_13, LATENCY_13),
        table(14, What::Writes(Way::Offline), Keeping::Device, TABLE_14, LATENCY_14),
        table(15, What::Writes(Way::Beside), Keeping::Device, TABLE_15, LATENCY_15),
        table(16, What::Writes(Way::Goal(Unit::Requests)), Keeping::Device, TABLE_16, LATENCY_16),
    ],
    orderings: &[(14, 13), (14, 15), (13, 15), (16, 15), (16, 13), (10, 13)],
    contents: &[13, 15],
};

fn load(at: usize) -> (Pattern, u64, usize) {
    (PATTERNS[at / 4], WORKERS[at / 2 % 2], at % 2)
}

/// Returns the end of the claim ids of a load.
fn slug(at: usize) -> String {
    let (pattern, workers, kind) = load(at);
    format!("{pattern}-{workers}-{}", CONTENTS[kind])
}

/// Returns mean and standard deviation of a sample.
fn mean(values: &[f64]) -> (f64, f64) {
    let count = values.len().max(1) as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (mean, if values.len() > 1 { (squares / (count - 1.0)).sqrt() } else { 0.0 })
}

/// Measurements of a table: of each load, one outcome a seed.
type Measured = Vec<Vec<Outcome>>;

fn measured(table: &Table, scale: Scale, seeds: u64) -> Measured {
    let distributions = contents(scale.blocks() * BLOCK);
    let all = in_order(cores(), LOADS as u64 * seeds, |at| {
        let (pattern, workers, kind) = load((at / seeds) as usize);
        let case = Case { pattern, workers, keeping: table.keeping, scale, seed: at % seeds + 1 };
        let distribution = &distributions[kind].0;
        match table.what {
            What::Reads => reads(&case, &CALIBRATED, distribution),
            What::Native => {
                let each = CALIBRATED.native[(at / seeds) as usize / 4];
                writes(&case, Way::Native(each), &CALIBRATED, distribution)
            }
            What::Writes(way) => writes(&case, way, &CALIBRATED, distribution),
        }
    });
    all.chunks(seeds as usize).map(<[Outcome]>::to_vec).collect()
}

fn rates(measured: &Measured) -> Vec<(f64, f64)> {
    measured.iter().map(|seeds| mean(&seeds.iter().map(Outcome::rate).collect::<Vec<_>>())).collect()
}

fn figure(results: &Results, tables: &Tables) -> Figure {
    let (scale, seeds) = if results.quick { (QUICK, 1) } else { (FULL, SEEDS) };
    let found: Vec<(&Table, Measured)> =
        tables.all.iter().map(|table| (table, measured(table, scale, seeds))).collect();
    let native: Vec<f64> = rates(&found[0].1).iter().map(|rate| rate.0).collect();
    let mut rows = Vec::new();
    for (table, measured) in &found {
        rows.extend(rows_of(tables, table, measured, &native));
    }
    let of = |number: u32| -> Vec<f64> {
        let of = found.iter().find(|(table, _)| table.number == number);
        of.map_or(Vec::new(), |(_, measured)| rates(measured).iter().map(|rate| rate.0).collect())
    };
    for (above, below) in tables.orderings {
        let count = of(*above).iter().zip(of(*below)).filter(|(above, below)| *above > below).count();
        let id = format!("{}/{above}-above-{below}", tables.name);
        rows.push(Row::statement(&id, count >= 10).note(format!("For {count} of 12 loads.")));
    }
    for number in tables.contents {
        let count = of(*number).chunks(2).filter(|pair| pair[1] > pair[0]).count();
        let id = format!("{}/{number}-kernels-above-highperf", tables.name);
        rows.push(Row::statement(&id, count >= 5).note(format!("For {count} of 6 loads.")));
    }
    if tables.name == DEVICE.name {
        rows.extend(space());
        rows.extend(in_kibibytes(scale, &native));
    }
    let is_real = contents(scale.blocks() * BLOCK).iter().all(|(_, is_real)| *is_real);
    for row in &mut rows {
        row.data = if is_real { Data::Real } else { Data::Synthetic };
    }
    Figure {
        name: tables.name,
        source: "HIODS, section 5.3",
        title: format!("{} of the paper's own system", tables.title),
        rows,
        chart: chart(tables, &found),
        notes: notes(),
    }
}

fn rows_of(tables: &Tables, table: &Table, measured: &Measured, native: &[f64]) -> Vec<Row> {
    let is_first = table.number == tables.all[0].number;
    let mut rows = Vec::new();
    for (at, (rate, deviation)) in rates(measured).into_iter().enumerate() {
        let latencies: Vec<f64> = measured[at].iter().map(|outcome| outcome.latency as f64 / 1e3).collect();
        let (latency, latency_deviation) = mean(&latencies);
        let note = format!(
            "{rate:.1} MB/s (standard deviation {deviation:.1}), paper {:.1}; latency {latency:.1} us ({latency_deviation:.1}), paper {:.1}.",
            table.rates[at], table.latencies[at]
        );
        // Table 9 is judged where metadata are in memory, and so is table 10.
        let is_repeated = tables.name == DEVICE.name && table.number <= 10;
        if !is_repeated {
            let ours = if is_first { rate } else { 100.0 * (1.0 - native[at] / rate) };
            let id = format!("{}/table-{}-{}", tables.name, table.number, slug(at));
            rows.push(Row::claim(&id, ours).note(note));
        }
        let first = &measured[at][0];
        if table.keeping == Keeping::Device && table.what != What::Reads && load(at).1 == 1 {
            let label = format!("table {}, {}: entries that LevelDB writes for each one put", table.number, slug(at));
            rows.push(Row::new(label, "times", first.write_amplification).note(format!(
                "Its thread merges for {:.0} % of the time; requests wait for it for {:.1} %. {} blocks of the background beside {} written back.",
                100.0 * first.merging,
                100.0 * first.waited,
                first.processed,
                first.written_back
            )));
        }
    }
    let is_once = |outcome: &Outcome| outcome.stored == outcome.distinct;
    if matches!(table.what, What::Writes(_)) {
        let all: Vec<&Outcome> = measured.iter().flatten().collect();
        let once = all.iter().filter(|outcome| is_once(outcome)).count();
        let label = format!("table {}: loads after which each content is stored once", table.number);
        rows.push(Row::new(label, "of all", once as f64 / all.len() as f64));
    }
    rows
}

/// Makes the rows of the space saved, by the expected duplicates of the distributions in 64 GiB.
fn space() -> Vec<Row> {
    let whole = contents(PAPER_BLOCKS * BLOCK);
    let saved =
        |distribution: &Distribution| distribution.expect(PAPER_BLOCKS).duplicates * BLOCK as f64 / (1u64 << 30) as f64;
    whole
        .iter()
        .zip(CONTENTS)
        .map(|((distribution, _), name)| Row::claim(&format!("{}/space-{name}", DEVICE.name), saved(distribution)))
        .collect()
}

/// Makes the rows of table 16 with the error of the loop in KiB a second: an ablation that judges nothing.
fn in_kibibytes(scale: Scale, native: &[f64]) -> Vec<Row> {
    let table = table(16, What::Writes(Way::Goal(Unit::Kibibytes)), Keeping::Device, TABLE_16, LATENCY_16);
    let measured = measured(&table, scale, 1);
    let row = |(at, (rate, _)): (usize, (f64, f64))| {
        Row::new(format!("table 16 with the error in KiB a second: {}", slug(at)), "MB/s", rate).note(format!(
            "{:.1} % less time than native; paper {:.1} MB/s.",
            100.0 * (1.0 - native[at] / rate),
            TABLE_16[at]
        ))
    };
    rates(&measured).into_iter().enumerate().map(row).collect()
}

/// Groups of both contents, one worker; four workers are in the rows.
fn chart(tables: &Tables, found: &[(&Table, Measured)]) -> Chart {
    let shown: Vec<usize> = (0..LOADS).filter(|&at| load(at).1 == 1).collect();
    let groups = shown.iter().map(|&at| format!("{} {}", load(at).0, CONTENTS[load(at).2])).collect();
    let bars = |(table, measured): &(&Table, Measured)| {
        let rates = rates(measured);
        let heights = shown.iter().map(|&at| rates[at].0).collect();
        let papers = shown.iter().map(|&at| Some(table.rates[at])).collect();
        let spread = shown.iter().map(|&at| (rates[at].0 - rates[at].1, rates[at].0 + rates[at].1)).collect();
        Bars::new(format!("table {}", table.number), heights).papers(papers).spread(spread)
    };
    Chart::bars(
        format!("HIODS' own system: {}, one worker", tables.title),
        "MB/s",
        groups,
        found.iter().map(bars).collect(),
    )
}

fn notes() -> Vec<String> {
    vec![
        "The paper's own system in virtual time, a sixteenth of its size, three seeds (short form: a 1,024th, one seed, which says little).          MB are MiB, as the paper's are."
            .into(),
        format!(
            "Calibrated: {:.2}, {:.2} and {:.2} us for a block that is written back without deduplication (table 9; sequential, uniform, hotspot), {:.2} us for a              block through the prototype (table 10), {:.2} us for a look into one sorted table of LevelDB (table 13). The drive is that of tables 2 and 3, the              memory that of table 8.",
            CALIBRATED.native[0] as f64 / 1e3,
            CALIBRATED.native[1] as f64 / 1e3,
            CALIBRATED.native[2] as f64 / 1e3,
            CALIBRATED.request as f64 / 1e3,
            CALIBRATED.search as f64 / 1e3
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mean_has_a_deviation_once_there_are_two() {
        assert_eq!(mean(&[3.0]), (3.0, 0.0));
        let (mean, deviation) = mean(&[1.0, 2.0, 3.0]);
        assert!((mean - 2.0).abs() < 1e-9 && (deviation - 1.0).abs() < 1e-9);
    }

    /// Checks that calibrated parameters come out in the cells that they were calibrated from, and that the band of no row there contains
    /// no change.
    #[test]
    fn calibrated_cells_are_the_paper_s() {
        let case = |keeping, pattern| Case { pattern, workers: 1, keeping, scale: Scale(64), seed: 1 };
        let bytes = Scale(64).blocks() * BLOCK;
        let [(highperf, _), _] = contents(bytes);
        let rate = |keeping, pattern, way| writes(&case(keeping, pattern), way, &CALIBRATED, &highperf).rate();
        let native = rate(Keeping::Native, Pattern::Sequential, Way::Native(CALIBRATED.native[0]));
        let memory = rate(Keeping::Memory, Pattern::Sequential, Way::Inline);
        let device = rate(Keeping::Device, Pattern::Sequential, Way::Inline);
        for (ours, paper) in [(native, TABLE_9[0]), (memory, TABLE_10[0]), (device, TABLE_13[0])] {
            assert!((ours / paper - 1.0).abs() < 0.1, "{ours} for {paper}");
        }
    }
}
