//! Tables, CSV and figures of the runs.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use crate::icache::load::Burst;
use crate::icache::{Division, Outcome, Plan, Sample, read_nanos, settling, write_nanos};
use crate::plot::{Band, COLOURS, Figure, Line, SHADES};

/// Where the tables begin in the document.
pub const BEGIN: &str = "<!-- made by `lab icache` -->";

/// A workload and its runs.
pub struct Results {
    /// The workload.
    pub plan: Plan,
    /// Its runs.
    pub outcomes: Vec<Outcome>,
}

impl Results {
    /// The fixed division that saved most.
    pub fn best_fixed(&self) -> Option<&Outcome> {
        let fixed = self.outcomes.iter().filter(|outcome| matches!(outcome.division, Division::Fixed(_)));
        fixed.max_by_key(|outcome| outcome.counts.saved())
    }
}

/// The table of a workload, in Markdown.
pub fn table(results: &Results) -> String {
    let mut text = format!("\n**{}**\n\n", results.plan.name);
    text.push_str("| index | read hits | removed | time saved | of what could be | mean latency | of reads |\n");
    text.push_str("|---|---|---|---|---|---|---|\n");
    for outcome in &results.outcomes {
        let counts = outcome.counts;
        let _ = writeln!(
            text,
            "| {} | {:.1} % | {:.1} % | {:.2} s | {:.2} % | {:.1} us | {:.1} us |",
            outcome.division.name(),
            super::percent(counts.read_hits, counts.reads),
            super::percent(counts.removed, counts.known),
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
         mean_latency_us,mean_read_latency_us,virtual_seconds\n",
    );
    for Results { plan, outcomes } in all {
        for outcome in outcomes {
            let counts = outcome.counts;
            let _ = writeln!(
                text,
                "{},{},{},{},{},{},{},{},{},{},{:.2},{:.2},{:.3}",
                plan.name,
                outcome.division.name(),
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
                outcome.nanos as f64 / 1e9
            );
        }
    }
    text
}

/// What was saved by each fixed division.
pub fn divisions_figure(results: &Results) -> Figure {
    let point = |outcome: &Outcome| match outcome.division {
        Division::Fixed(percent) => Some((f64::from(percent), outcome.counts.saved_percent())),
    };
    let fixed: Vec<(f64, f64)> = results.outcomes.iter().filter_map(point).collect();
    Figure {
        title: format!("Time of the device saved, {} workload", results.plan.name),
        x_label: "index, in % of the divided memory (the rest is read cache)".into(),
        y_label: "saved, in % of what could be saved".into(),
        x: (0.0, 100.0),
        y: (0.0, 100.0),
        bands: Vec::new(),
        lines: vec![Line {
            name: "fixed division".into(),
            colour: COLOURS[0],
            dashed: false,
            marked: true,
            points: fixed,
        }],
    }
}

/// Samples of one phase.
pub fn phases(outcome: &Outcome) -> impl Iterator<Item = &[Sample]> {
    outcome.samples.chunk_by(|one, other| one.phase == other.phase)
}

/// The share of what could be saved by what a burst is about, in percent.
pub fn main_hits(burst: Burst, sample: &Sample) -> Option<f64> {
    let counts = sample.counts;
    let (part, whole) = match burst {
        Burst::Reads => (counts.read_hits, counts.reads),
        Burst::Writes => (counts.removed, counts.known),
        Burst::Mixed => (counts.saved(), counts.savable()),
    };
    (whole > 0).then(|| super::percent(part, whole))
}

/// The mean number of requests after a change of phase until the hits are within 10 % of what they settle at, for the phases
/// of one kind that count.
pub fn requests_to_settle(plan: &Plan, outcome: &Outcome, burst: Burst) -> Option<u64> {
    let counted = phases(outcome).skip(plan.warm_up).filter(|samples| plan.phases[samples[0].phase].burst == burst);
    let times = counted.map(|samples| settling(samples, |sample| main_hits(burst, sample), |settled| settled / 10.0));
    let times: Vec<u64> = times.collect::<Option<_>>()?;
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
        let name = format!("{} burst", phase.burst.name().trim_end_matches('s'));
        match bands.iter_mut().find(|band| band.name == name) {
            Some(band) => band.stretches.push(stretch),
            None => bands.push(Band { name, colour: SHADES[bands.len() % 2], stretches: vec![stretch] }),
        }
    }
    bands
}

/// The figures, each with its path.
pub fn figures(all: &[Results], directory: &Path) -> Vec<(PathBuf, String)> {
    let figure = |results: &Results| {
        (directory.join(format!("icache-{}.svg", results.plan.name)), divisions_figure(results).svg())
    };
    all.iter().map(figure).collect()
}

/// The data, each with its path.
pub fn data(all: &[Results], directory: &Path) -> Vec<(PathBuf, String)> {
    vec![(directory.join("icache-runs.csv"), runs_csv(all))]
}
