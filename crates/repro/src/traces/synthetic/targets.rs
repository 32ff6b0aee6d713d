//! Comparison of a made trace with the published figures of the real one.
//!
//! A row is `fitted` if parameters were moved until it was met, or are that figure. Then it does not show whether the stand-in is like the real trace. A row is
//! `predicted` if no parameter was moved for it.

use std::fmt::Write;

use serde::Serialize;

use super::select::Select;
use super::{Days, MEASURED_DAY, Profile, image};
use crate::traces::BLOCK;
use crate::traces::stat::Stat;
use crate::traces::stat::spread::Spread;

/// Origin of a figure: fitted or predicted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Label {
    /// Figure that the made trace was fitted to.
    Fitted,
    /// Figure that was not a target.
    Predicted,
}

/// A figure of the real trace, if it is published, and of the made one.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Row {
    /// Name of the figure.
    pub name: &'static str,
    /// Label that says if the figure was a target.
    pub label: Label,
    /// Published value, if there is one.
    pub target: Option<f64>,
    /// Value of the made trace.
    pub achieved: f64,
    /// Source of the target.
    pub source: &'static str,
}

/// All rows of a profile.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Report {
    /// Always "synthetic".
    pub kind: &'static str,
    /// Name of the profile.
    pub profile: &'static str,
    /// Seed of the random stream.
    pub seed: u64,
    /// Measured day, after those before it.
    pub day: u32,
    /// The figures.
    pub rows: Vec<Row>,
}

const POD: &str = "POD, table 3 (day 15)";
const SAMPLE: &str = "real sample, of seconds or minutes";

/// Makes the days, with one request in `one_in`, and measures the last day.
pub fn measure(profile: Profile, seed: u64, one_in: u64) -> Report {
    let mut stat = Stat::default();
    let mut select = Select::default();
    let mut before = (0, 0);
    // Blocks of the days before, and their contents.
    let (mut blocks, mut contents) = (0, 0);
    let mut made = Days::new(profile, seed, 1..=MEASURED_DAY, one_in, true);
    let mut gaps = Spread::default();
    let mut last = None;
    let mut is_measured = false;
    let shape = profile.shape();
    while let Some(request) = made.next() {
        if made.day == MEASURED_DAY && !is_measured {
            is_measured = true;
            contents = stat.distinct_contents();
            stat = stat.warmed();
            before = (select.writes, select.removed);
        }
        stat.add(&request);
        blocks += if is_measured { 0 } else { u64::from(request.blocks) };
        if request.writes {
            select.write(&request);
        }
        if is_measured {
            let gap = shape.record_gap_us * 1000;
            last.into_iter().for_each(|last| gaps.add(request.at.saturating_sub(last)));
            (1..request.blocks).for_each(|_| gaps.add(gap));
            last = Some(request.at + u64::from(request.blocks - 1) * gap);
        }
    }
    let figures = stat.finish(None);
    let removed = (select.removed - before.1) as f64 / (select.writes - before.0).max(1) as f64;
    let mut rows = Vec::new();
    let mut row = |name, label, target, achieved, source| rows.push(Row { name, label, target, achieved, source });
    use Label::{Fitted, Predicted};
    row("requests a day", Fitted, Some((shape.requests / one_in) as f64), figures.requests as f64, POD);
    row("write ratio", Fitted, Some(shape.write_ratio), figures.write_ratio, POD);
    row("mean size, KiB", Fitted, Some(shape.mean_kib), figures.mean_kib, POD);
    row(
        "duplicate share of write blocks",
        Fitted,
        Some(shape.duplicates),
        figures.duplicate_share,
        "HPDedup (whole trace)",
    );
    let source = "POD, figure 2: 21.9 points as the mean of three, divided in proportion";
    row("... to the same place", Fitted, Some(shape.unchanged), figures.unchanged_share, source);
    let (label, source) = match shape.removed {
        Some(_) => (Fitted, "POD, figure 15"),
        None => (Predicted, "not published as a number"),
    };
    row("writes removed by Select-Dedupe", label, shape.removed, removed, source);
    let of_weeks = |gb: f64| Some(gb * f64::from(MEASURED_DAY - 1) / 21.0 / one_in as f64);
    let gb = |blocks: u64| (blocks * BLOCK) as f64 / 1e9;
    let source = "CacheDedup, three weeks (not verified), in proportion";
    row("days 1 to 14, GB", Fitted, of_weeks(shape.weeks.total_gb), gb(blocks), source);
    row("days 1 to 14, distinct contents, GB", Predicted, of_weeks(shape.weeks.unique_gb), gb(contents), source);
    let source = "I/O Deduplication, slides";
    row(
        "disk pages by distinct contents",
        Fitted,
        Some(shape.image.similarity),
        image::similarity(profile, seed),
        source,
    );
    row("addresses, GiB", Fitted, Some(shape.span as f64 / f64::from(1 << 18)), figures.span_gib, SAMPLE);
    let bursts = &figures.bursts;
    row("requests of a burst, p50", Fitted, Some(shape.burst.0), bursts.requests_p50 as f64, SAMPLE);
    row("requests of a burst, p90", Fitted, Some(shape.sample.burst_p90), bursts.requests_p90 as f64, SAMPLE);
    // Mail's longest bursts have a limit, which is a parameter.
    let most = if shape.long.0 > 0.0 { Fitted } else { Predicted };
    row("requests of a burst, most", most, Some(shape.sample.burst_most), bursts.requests_max as f64, SAMPLE);
    // Mail's pauses are those of the sample; the others' are scaled so that the day has its requests.
    let idle = if profile == Profile::Mail { Fitted } else { Predicted };
    row("idle between bursts, s, p50", idle, Some(shape.idle.0), bursts.idle_s_p50, SAMPLE);
    row("idle between bursts, s, p90", idle, Some(shape.idle.1), bursts.idle_s_p90, SAMPLE);
    row("requests/s, index of dispersion", Predicted, Some(shape.sample.dispersion), bursts.dispersion_1s, SAMPLE);
    row("inter-arrival variation of records", Predicted, Some(shape.sample.record_variation), gaps.variation(), SAMPLE);
    let source = "POD, figure 1: not published as a number; chosen so that the shares above are met";
    for (class, name) in figures.by_size.iter().zip(REDUNDANT) {
        row(name, Fitted, None, class.fully as f64 / class.writes.max(1) as f64, source);
    }
    Report { kind: "synthetic", profile: profile.name(), seed, day: MEASURED_DAY, rows }
}

const REDUNDANT: [&str; 5] = [
    "writes of 1 block redundant as a whole",
    "writes of 2 blocks, the same",
    "writes of 3-4 blocks, the same",
    "writes of 5-8 blocks, the same",
    "writes of 9+ blocks, the same",
];

/// Formats the rows as a table for documents.
pub fn table(report: &Report) -> String {
    let mut text = format!(
        "Synthetic {}, seed {}, day {}, after the days before it. Targets are of the real trace.\n\n",
        report.profile, report.seed, report.day
    );
    text.push_str("| figure | target | synthetic | | source of the target |\n|---|---|---|---|---|\n");
    for row in &report.rows {
        let number = |value: f64| if value >= 1000.0 { format!("{value:.0}") } else { format!("{value:.3}") };
        let target = row.target.map_or("-".to_string(), number);
        let label = if row.label == Label::Fitted { "fitted" } else { "predicted" };
        let achieved = number(row.achieved);
        // Writing to a string does not fail.
        let _ = writeln!(text, "| {} | {target} | {achieved} | {label} | {} |", row.name, row.source);
    }
    text
}
