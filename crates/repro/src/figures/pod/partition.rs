//! Figures of the cache partition: fixed partitions (Fig. 3), and the day with iCache (Fig. 14).

use super::{TRACES, gain, title};
use crate::figures::claims::find;
use crate::figures::plot::{Band, Bars, Chart, Line, SHADES, Scale};
use crate::figures::runs::{Outcome, Results, Run};
use crate::figures::{Entry, Figure, Row};
use crate::replay::outcome::Stretch;
use crate::replay::scheme::{PartitionMode, Scheme};
use crate::traces::synthetic::Profile;

pub(super) const FIG_3: Entry = Entry {
    name: "pod-3",
    about: "POD, Fig. 3: response times by the share of memory that is index",
    runs: partitions,
    make: fig_3,
};
pub(super) const FIG_14_WEB_VM: Entry = Entry {
    name: "pod-14-web-vm",
    about: "POD, Fig. 14a: response times over the day, web-vm",
    runs: || day(Profile::WebVm),
    make: |results| fig_14(results, Profile::WebVm, "pod-14-web-vm"),
};
pub(super) const FIG_14_HOMES: Entry = Entry {
    name: "pod-14-homes",
    about: "POD, Fig. 14b: response times over the day, homes",
    runs: || day(Profile::Homes),
    make: |results| fig_14(results, Profile::Homes, "pod-14-homes"),
};
pub(super) const FIG_14_MAIL: Entry = Entry {
    name: "pod-14-mail",
    about: "POD, Fig. 14c: response times over the day, mail",
    runs: || day(Profile::Mail),
    make: |results| fig_14(results, Profile::Mail, "pod-14-mail"),
};

const SHOWN: [Scheme; 4] = [Scheme::IDEDUP, Scheme::SELECT, Scheme::POD, Scheme::CURVES];

/// POD if a swap cost no I/O.
const POD_UNSWAPPED: Scheme = Scheme { swaps: false, ..Scheme::POD };

fn day(trace: Profile) -> Vec<Run> {
    let mut runs = SHOWN.map(|scheme| Run::pod(trace, scheme)).to_vec();
    runs.extend([Run::pod(trace, POD_UNSWAPPED), bound(trace)]);
    runs
}

/// Returns the run of Select-Dedupe with an index and a read cache of the whole memory each: no cache partition has more of either.
fn bound(trace: Profile) -> Run {
    Run { memory_percent: 200, ..Run::pod(trace, Scheme::SELECT) }
}

/// Returns the run of a trace under full deduplication with a fixed cache partition.
fn with_index(trace: Profile, percent: u32) -> Run {
    Run::pod(trace, Scheme { partition: PartitionMode::Fixed(10 * percent), ..Scheme::FULL })
}

/// Shares of the index: every tenth of mail, which the paper shows, and every quarter of the others.
fn shares(trace: Profile) -> impl Iterator<Item = u32> {
    (0..=100).step_by(if trace == Profile::Mail { 10 } else { 25 })
}

fn partitions() -> Vec<Run> {
    TRACES.into_iter().flat_map(|trace| shares(trace).map(move |percent| with_index(trace, percent))).collect()
}

fn fig_3(results: &Results) -> Figure {
    let points = |trace, value: fn(&Outcome) -> f64| -> Vec<(f64, f64)> {
        shares(trace).map(|percent| (f64::from(percent), value(results.of(with_index(trace, percent))))).collect()
    };
    let writes = |trace| points(trace, |outcome| outcome.writes.mean_ms());
    let reads = |trace| points(trace, |outcome| outcome.reads.mean_ms());
    let change = |points: &[(f64, f64)]| match points {
        [first, .., last] => 100.0 * (last.1 / first.1 - 1.0),
        _ => f64::NAN,
    };
    let mut rows = vec![
        Row::statement("pod-3/writes", change(&writes(Profile::Mail)) < 0.0),
        Row::statement("pod-3/reads", change(&reads(Profile::Mail)) > 0.0),
    ];
    let mut lines = Vec::new();
    for (at, trace) in TRACES.into_iter().enumerate() {
        for (kind, points, dashed) in [("writes", writes(trace), false), ("reads", reads(trace), true)] {
            let label = format!("{}: {kind} with all memory as index against none", trace.name());
            rows.push(Row::new(label, "% longer", change(&points)));
            for (percent, ms) in &points {
                rows.push(Row::new(format!("{}: {kind}, {percent} % index", trace.name()), "ms", *ms));
            }
            lines.push(Line::new(format!("{}, {kind}", trace.name()), points).colour(at).dashed(dashed));
        }
    }
    Figure {
        name: "pod-3",
        source: "POD, Fig. 3",
        title: "response times by the share of memory that is index".into(),
        rows,
        chart: Chart::lines(
            "Full-Dedupe: response time by partition of the memory",
            ("index in % of the memory (the rest is read cache)", "mean response time in ms"),
            lines,
        ),
        notes: vec![
            "The paper shows mail. How far back the stand-ins draw what they write and read again was fitted to mail's two slopes, with one number \
             for all three traces (docs/papers/data.md). So mail's slopes prove nothing. Those of web-vm and homes follow."
                .into(),
        ],
    }
}

fn fig_14(results: &Results, trace: Profile, name: &'static str) -> Figure {
    let of = |scheme| results.of(Run::pod(trace, scheme));
    let value = Outcome::mean_ms;
    let label = |what: &str| format!("{}: {what}", trace.name());
    let id = |claim: &str| format!("{name}/{claim}");
    let mut rows = vec![
        Row::claim(&id("pod"), gain(results, trace, Scheme::POD, Scheme::SELECT, value)),
        Row::statement(&id("idedup"), {
            value(of(Scheme::SELECT)).max(value(of(Scheme::POD))) < value(of(Scheme::IDEDUP))
        }),
        Row::statement(&id("ours"), value(of(Scheme::CURVES)) <= value(of(Scheme::POD))),
        Row::new(
            label("ours against Select-Dedupe"),
            "% less",
            gain(results, trace, Scheme::CURVES, Scheme::SELECT, value),
        ),
        Row::new(
            label("POD that swaps nothing against Select-Dedupe"),
            "% less",
            gain(results, trace, POD_UNSWAPPED, Scheme::SELECT, value),
        ),
        Row::new(
            label("bound: index and read cache of the whole memory each, against Select-Dedupe"),
            "% less",
            100.0 * (1.0 - value(results.of(bound(trace))) / value(of(Scheme::SELECT))),
        ),
    ];
    let hours = |outcome: &Outcome, at: usize| (at as f64 + 0.5) * outcome.stretch as f64 / 3.6e12;
    let mean = |stretch: &Stretch| stretch.sum as f64 / stretch.answered.max(1) as f64 / 1e6;
    let mut lines = Vec::new();
    for (at, scheme) in SHOWN.into_iter().enumerate() {
        let outcome = of(scheme);
        let answered = outcome.stretches.iter().enumerate().filter(|(_, stretch)| stretch.answered > 0);
        let points: Vec<_> = answered.clone().map(|(at, stretch)| (hours(outcome, at), mean(stretch))).collect();
        for ((_, stretch), (hour, ms)) in answered.zip(&points) {
            rows.push(Row::new(format!("{}, {}, hour {hour:.2}", trace.name(), title(scheme)), "ms", *ms).note(
                format!(
                    "{} requests came; the index had {:.1} % of the memory",
                    stretch.arrived,
                    f64::from(stretch.index_share) / 10.0
                ),
            ));
        }
        lines.push(Line::new(title(scheme), points).colour(2 + at).dashed(scheme == Scheme::CURVES).marked(false));
    }
    let select = of(Scheme::SELECT);
    let usual = select.requests() / select.stretches.len().max(1) as u64;
    let busy = select.stretches.iter().enumerate().filter(|(_, stretch)| stretch.arrived > 2 * usual);
    let half = select.stretch as f64 / 7.2e12;
    let stretches: Vec<_> = busy.map(|(at, _)| (hours(select, at) - half, hours(select, at) + half)).collect();
    let end = select.stretches.len() as f64 * select.stretch as f64 / 3.6e12;
    Figure {
        name,
        source: "POD, Fig. 14",
        title: format!("response times over the day, {}", trace.name()),
        rows,
        chart: Chart::lines(
            format!("Mean response time by ten minutes of the day, {}", trace.name()),
            ("hour of the day", "mean response time in ms"),
            lines,
        )
        .scale_y(Scale::Log)
        .range_x(0.0, end.max(1.0))
        .shaded(Vec::from_iter((!stretches.is_empty()).then(|| Band {
            name: "more than twice the usual load".into(),
            colour: SHADES[0],
            stretches,
        })))
        .below(against_select(results, trace, &id("pod"))),
        notes: vec![
            [Scheme::POD, Scheme::CURVES].map(|scheme| had(of(scheme), title(scheme))).join(" ")
                + " Algorithm 1 compares requests that hit by size, ours how many hits each size would have had.",
            "No partition of the memory can be better than the bound, which has twice of it: an index and a read cache as large as all of it.".into(),
            format!(
                "The day has {} requests in {} stretches of ten minutes. {}",
                select.requests(),
                select.stretches.len(),
                if TRACES[2] == trace { "The paper's axis is logarithmic for this trace alone." } else { "" }
            ),
        ],
    }
}

/// Plots the mean response time of the day in percent of Select-Dedupe's; the paper prints POD's gain.
fn against_select(results: &Results, trace: Profile, claim: &str) -> Chart {
    let drawn = |(at, scheme): (usize, Scheme)| {
        let percent = 100.0 - gain(results, trace, scheme, Scheme::SELECT, Outcome::mean_ms);
        let printed = find(claim).value.filter(|_| scheme == Scheme::POD);
        Bars::new(title(scheme), vec![percent]).papers(vec![printed.map(|gain| 100.0 - gain)]).colour(2 + at)
    };
    let series = SHOWN.into_iter().enumerate().map(drawn).collect();
    Chart::bars("Mean response time of the day", "% of Select-Dedupe", vec![trace.name().into()], series)
}

/// Formats a sentence on the cache partition over the day.
fn had(outcome: &Outcome, title: &str) -> String {
    let shares = || outcome.stretches.iter().filter(|stretch| stretch.arrived > 0).map(|stretch| stretch.index_share);
    let percent = |share: Option<u32>| f64::from(share.unwrap_or_default()) / 10.0;
    let [least, most, last] = [shares().min(), shares().max(), shares().next_back()].map(percent);
    format!("Under {title} the index had {least:.1} to {most:.1} % of the memory, in the end {last:.1} %.")
}
