//! Tables, CSV and figures of the icache runs.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use engine::Rule;

use crate::figures::plot::{Band, Chart, Line, SHADES};
use crate::icache::load::Burst;
use crate::icache::{
    Adaptive, INTERVALS, Outcome, PartitionMode, Plan, Sample, UNITS, percent, read_nanos, settling, write_nanos,
};

/// Marker before the tables in the document.
pub const BEGIN: &str = "<!-- made by `repro icache` -->";

/// A workload and its runs.
pub struct Results {
    /// The workload.
    pub plan: Plan,
    /// Its runs.
    pub outcomes: Vec<Outcome>,
}

impl Results {
    /// Returns the run with a cache partition, if there is one.
    pub fn of(&self, partition: PartitionMode) -> Option<&Outcome> {
        self.outcomes.iter().find(|outcome| outcome.partition == partition)
    }

    /// Returns the run of the fixed cache partition that saved most.
    pub fn best_fixed(&self) -> Option<&Outcome> {
        let fixed = self.outcomes.iter().filter(|outcome| matches!(outcome.partition, PartitionMode::Fixed(_)));
        fixed.max_by_key(|outcome| outcome.counts.saved())
    }
}

/// Formats the tables of a workload, in Markdown.
pub fn tables(results: &Results) -> String {
    let mut text = table(results);
    for rule in [Rule::Curves, Rule::Paper] {
        let default = Adaptive { rule, ..Adaptive::DEFAULT };
        if results.of(PartitionMode::Adaptive(Adaptive { interval: INTERVALS[0], ..default })).is_some() {
            text.push_str(&sweep_table(results, default));
        }
    }
    text.push_str(&settling_table(results));
    text
}

/// Formats the saved share with other intervals and units.
fn sweep_table(results: &Results, default: Adaptive) -> String {
    let name = PartitionMode::Adaptive(default).name();
    let mut text = format!("\n{}, `{name}`: of the possible saving, by N_int and S_unit\n\n| |", results.plan.name);
    for unit in UNITS {
        let _ = write!(text, " {} % |", f64::from(unit) / 10.0);
    }
    let _ = writeln!(text, "\n|---|{}", "---|".repeat(UNITS.len()));
    for interval in INTERVALS {
        let _ = write!(text, "| {interval} requests |");
        for unit in UNITS {
            let outcome = results.of(PartitionMode::Adaptive(Adaptive { interval, unit, ..default }));
            let _ = write!(text, " {:.2} % |", outcome.map_or(f64::NAN, |outcome| outcome.counts.saved_percent()));
        }
        text.push('\n');
    }
    text
}

/// Formats the requests that each cache partition needs to settle after a change of phase; nothing if no phase is a pure burst.
fn settling_table(results: &Results) -> String {
    let bursts = [Burst::Reads, Burst::Writes];
    if !results.plan.phases.iter().any(|phase| bursts.contains(&phase.burst)) {
        return String::new();
    }
    let mut text = format!("\n{}: requests from a change of phase until it has settled\n\n", results.plan.name);
    text.push_str("| | read hits | partition, reads | removed | partition, writes |\n|---|---|---|---|---|\n");
    for outcome in &results.outcomes {
        let is_shown = match outcome.partition {
            PartitionMode::Fixed(percent) => percent == 50,
            PartitionMode::Adaptive(_) => true,
        };
        if !is_shown {
            continue;
        }
        let _ = write!(text, "| {} |", outcome.partition.name());
        for burst in bursts {
            let hits = requests_to_settle(
                &results.plan,
                outcome,
                burst,
                |sample| main_hits(burst, sample),
                |settled| settled / 10.0,
            );
            let partition =
                requests_to_settle(&results.plan, outcome, burst, |sample| Some(sample.index_percent()), |_| 10.0);
            for requests in [hits, partition] {
                let _ = write!(text, " {} |", requests.map_or("-".to_string(), |requests| requests.to_string()));
            }
        }
        text.push('\n');
    }
    text
}

fn table(results: &Results) -> String {
    let mut text = format!("\n**{}**\n\n", results.plan.name);
    text.push_str("| index | read hits | removed | time saved | of the possible | mean latency | of reads |\n");
    text.push_str("|---|---|---|---|---|---|---|\n");
    for outcome in &results.outcomes {
        let counts = outcome.counts;
        let _ = writeln!(
            text,
            "| {} | {:.1} % | {:.1} % | {:.2} s | {:.2} % | {:.1} us | {:.1} us |",
            outcome.partition.name(),
            percent(counts.read_hits, counts.reads),
            percent(counts.removed, counts.known),
            counts.saved() as f64 / 1e9,
            counts.saved_percent(),
            outcome.mean_latency_us(),
            outcome.mean_read_latency_us()
        );
    }
    text
}

/// Figures of all runs, with a line of names.
pub fn runs_csv(all: &[Results]) -> String {
    let mut text = String::from(
        "workload,index,reads,read_hits,known_blocks,removed_blocks,read_ns,write_ns,saved_ns,savable_ns,\
         mean_latency_us,mean_read_latency_us,virtual_seconds,moves,prefetched_blocks,prefetched_entries,copied_blocks\n",
    );
    for Results { plan, outcomes } in all {
        for outcome in outcomes {
            let counts = outcome.counts;
            let _ = writeln!(
                text,
                "{},\"{}\",{},{},{},{},{},{},{},{},{:.2},{:.2},{:.3},{},{},{},{}",
                plan.name,
                outcome.partition.name(),
                counts.reads,
                counts.read_hits,
                counts.known,
                counts.removed,
                read_nanos(),
                write_nanos(),
                counts.saved(),
                counts.savable(),
                outcome.mean_latency_us(),
                outcome.mean_read_latency_us(),
                outcome.nanos as f64 / 1e9,
                outcome.engine.moves,
                outcome.engine.prefetched_blocks,
                outcome.engine.prefetched_entries,
                outcome.engine.copied_blocks
            );
        }
    }
    text
}

/// Plots the saved device time of each fixed cache partition, and of the adaptive ones.
pub fn partitions_figure(results: &Results) -> Chart {
    let point = |outcome: &Outcome| match outcome.partition {
        PartitionMode::Fixed(percent) => Some((f64::from(percent), outcome.counts.saved_percent())),
        PartitionMode::Adaptive(_) => None,
    };
    let mut lines = vec![Line::new("fixed partition", results.outcomes.iter().filter_map(point).collect())];
    let paper = Adaptive { rule: Rule::Paper, ..Adaptive::DEFAULT };
    for (adaptive, dashed) in [(Adaptive::DEFAULT, false), (paper, true)] {
        let partition = PartitionMode::Adaptive(adaptive);
        if let Some(outcome) = results.of(partition) {
            let saved = outcome.counts.saved_percent();
            let line = Line::new(partition.name(), vec![(0.0, saved), (100.0, saved)]);
            lines.push(line.dashed(dashed).marked(false));
        }
    }
    Chart::lines(
        format!("Time of the device that is saved, {} workload", results.plan.name),
        (
            "fixed partition: index in % of the divided memory (the rest is read cache)",
            "saved, in % of the possible saving",
        ),
        lines,
    )
}

/// Plots the cache partition over time.
pub fn time_figure(results: &Results) -> Chart {
    let paper = Adaptive { rule: Rule::Paper, ..Adaptive::DEFAULT };
    let mut lines = Vec::new();
    for (adaptive, dashed) in [(Adaptive::DEFAULT, false), (paper, true)] {
        let partition = PartitionMode::Adaptive(adaptive);
        if let Some(outcome) = results.of(partition) {
            let point = |sample: &Sample| (sample.requests as f64 / 1000.0, sample.index_percent());
            let points = outcome.samples.iter().map(point).collect();
            let line = Line::new(partition.name(), points).colour(1 + lines.len());
            lines.push(line.dashed(dashed).marked(false));
        }
    }
    let requests: u64 = results.plan.phases.iter().map(|phase| phase.requests).sum();
    Chart::lines(
        format!("The partition over time, {} workload", results.plan.name),
        ("requests, in thousands", "index, in % of the divided memory"),
        lines,
    )
    .range_x(0.0, requests as f64 / 1000.0)
    .range_y(0.0, 100.0)
    .shaded(bands(results))
}

/// Samples of one phase.
pub fn phases(outcome: &Outcome) -> impl Iterator<Item = &[Sample]> {
    outcome.samples.chunk_by(|one, other| one.phase == other.phase)
}

/// Returns the saved share for the main requests of a burst, in percent; nothing if there were none.
pub fn main_hits(burst: Burst, sample: &Sample) -> Option<f64> {
    let counts = sample.counts;
    let (part, whole) = match burst {
        Burst::Reads => (counts.read_hits, counts.reads),
        Burst::Writes => (counts.removed, counts.known),
        Burst::Mixed => (counts.saved(), counts.savable()),
    };
    (whole > 0).then(|| percent(part, whole))
}

/// Returns the mean number of requests from a change of phase until a value settles, over the phases of one kind that count.
fn requests_to_settle(
    plan: &Plan,
    outcome: &Outcome,
    burst: Burst,
    value: impl Fn(&Sample) -> Option<f64>,
    tolerance: impl Fn(f64) -> f64,
) -> Option<u64> {
    let counted = phases(outcome).skip(plan.warm_up).filter(|samples| plan.phases[samples[0].phase].burst == burst);
    let times: Vec<u64> = counted.map(|samples| settling(samples, &value, &tolerance)).collect::<Option<_>>()?;
    (!times.is_empty()).then(|| times.iter().sum::<u64>() / times.len() as u64)
}

/// Phases as shades.
pub fn bands(results: &Results) -> Vec<Band> {
    let mut begin = 0;
    let mut bands: Vec<Band> = Vec::new();
    for phase in &results.plan.phases {
        let end = begin + phase.requests;
        let stretch = (begin as f64 / 1000.0, end as f64 / 1000.0);
        begin = end;
        let name = match phase.burst {
            Burst::Mixed => "mixed load".to_string(),
            burst => format!("burst of {}", burst.name()),
        };
        match bands.iter_mut().find(|band| band.name == name) {
            Some(band) => band.stretches.push(stretch),
            None => bands.push(Band { name, colour: SHADES[bands.len() % 2], stretches: vec![stretch] }),
        }
    }
    bands
}

/// Samples of the default division, with a line of names.
pub fn samples_csv(results: &Results) -> String {
    let mut text =
        String::from("requests,phase,index_bytes,read_cache_bytes,reads,read_hits,known_blocks,removed_blocks\n");
    for sample in
        results.of(PartitionMode::Adaptive(Adaptive::DEFAULT)).into_iter().flat_map(|outcome| &outcome.samples)
    {
        let Sample { requests, phase, index_bytes, read_bytes, counts } = sample;
        let phase = results.plan.phases[*phase].burst.name();
        let _ = writeln!(
            text,
            "{requests},{phase},{index_bytes},{read_bytes},{},{},{},{}",
            counts.reads, counts.read_hits, counts.known, counts.removed
        );
    }
    text
}

/// Returns the figures as SVG, each with its path.
pub fn figures(all: &[Results], directory: &Path) -> Vec<(PathBuf, String)> {
    let figures = |results: &Results| {
        let path = |what: &str| directory.join(format!("icache-{}-{what}.svg", results.plan.name));
        [(path("saved"), partitions_figure(results).svg()), (path("partition"), time_figure(results).svg())]
    };
    all.iter().flat_map(figures).collect()
}

/// Returns the data as CSV, each with its path.
pub fn data(all: &[Results], directory: &Path) -> Vec<(PathBuf, String)> {
    let samples = all
        .iter()
        .map(|results| (directory.join(format!("icache-{}-partition.csv", results.plan.name)), samples_csv(results)));
    samples.chain([(directory.join("icache-runs.csv"), runs_csv(all))]).collect()
}
