//! Figure of a RAID5 rebuild under client load: Fig. 16.

use super::{TRACES, mean_of, most_of, title};
use crate::figures::claims::find;
use crate::figures::plot::{Bars, Chart};
use crate::figures::runs::{Disks, Outcome, Results, Run};
use crate::figures::{Entry, Figure, Row};
use crate::replay::rebuilds::Starts;
use crate::replay::scheme::Scheme;
use crate::traces::synthetic::Profile;

pub(super) const FIG_16_WRAPPED: Entry = Entry {
    name: "pod-16-wrapped",
    about: "POD, Fig. 16: a rebuild under load; addresses begin again at the front",
    runs: || runs(false),
    make: |results| fig_16(results, false, "pod-16-wrapped"),
};
pub(super) const FIG_16_SQUEEZED: Entry = Entry {
    name: "pod-16-squeezed",
    about: "POD, Fig. 16: a rebuild under load; addresses are squeezed together",
    runs: || runs(true),
    make: |results| fig_16(results, true, "pod-16-squeezed"),
};

/// Schemes whose gains against Native the paper prints.
const PRINTED: [Scheme; 3] = [Scheme::FULL, Scheme::IDEDUP, Scheme::POD];
const SHOWN: [Scheme; 5] = [Scheme::NATIVE, Scheme::FULL, Scheme::IDEDUP, Scheme::POD, Scheme::CURVES];

fn run(trace: Profile, scheme: Scheme, squeezes: bool, starts: Starts) -> Run {
    Run { disks: Disks::rebuild(starts), squeezes, ..Run::pod(trace, scheme) }
}

/// Returns the start times to show. The 24 hours are judged, of one way to fold addresses; the busiest ten minutes are shown of both.
fn starts(squeezes: bool) -> &'static [Starts] {
    if squeezes { &[Starts::Busiest] } else { &[Starts::Hours, Starts::Busiest] }
}

fn runs(squeezes: bool) -> Vec<Run> {
    let of = |trace| {
        SHOWN
            .into_iter()
            .flat_map(move |scheme| starts(squeezes).iter().map(move |&at| run(trace, scheme, squeezes, at)))
    };
    TRACES.into_iter().flat_map(of).collect()
}

fn name_of(starts: Starts) -> &'static str {
    match starts {
        Starts::Hours => "24 starts",
        Starts::Busiest => "from the busiest ten minutes on",
    }
}

/// Value that is compared.
type Value = fn(&Outcome) -> f64;

/// Returns the time that the rebuild took, in seconds; not a number without one.
fn seconds(outcome: &Outcome) -> f64 {
    outcome.rebuilt.map_or(f64::NAN, |at| at as f64 / 1e9)
}

fn fig_16(results: &Results, squeezes: bool, name: &'static str) -> Figure {
    let of = |trace, scheme, starts| results.of(run(trace, scheme, squeezes, starts));
    let gains = |scheme, value: Value, starts| {
        TRACES.map(|trace| 100.0 * (1.0 - value(of(trace, scheme, starts)) / value(of(trace, Scheme::NATIVE, starts))))
    };
    let mut rows = Vec::new();
    for &starts in starts(squeezes) {
        for scheme in PRINTED {
            for (what, slug, value) in [
                ("rebuild time", "rebuild", seconds as Value),
                ("response time meanwhile", "response", Outcome::mean_ms),
            ] {
                let gains = gains(scheme, value, starts);
                for (of, gain) in [("most", most_of(gains)), ("mean", mean_of(gains))] {
                    // One reading is judged.
                    rows.push(match starts {
                        Starts::Hours => Row::claim(&format!("{name}/{slug}-{}-{of}", scheme.name), gain),
                        Starts::Busiest => {
                            let label = format!("{what} less under {} than under Native, {of}", title(scheme));
                            Row::new(format!("{label}, {}", name_of(starts)), "%", gain)
                        }
                    });
                }
            }
        }
        for trace in TRACES {
            for scheme in SHOWN {
                let outcome = of(trace, scheme, starts);
                let label = format!("{}, {}, {}", trace.name(), title(scheme), name_of(starts));
                rows.push(Row::new(format!("{label}: rebuild"), "s", seconds(outcome)));
                rows.push(
                    Row::new(format!("{label}: response time meanwhile"), "ms", outcome.mean_ms())
                        .note(format!("{} requests", outcome.requests())),
                );
            }
        }
    }
    let drawn = starts(squeezes)[0];
    let percent =
        |trace, scheme, value: Value| 100.0 * value(of(trace, scheme, drawn)) / value(of(trace, Scheme::NATIVE, drawn));
    Figure {
        name,
        source: "POD, Fig. 16",
        title: format!(
            "a rebuild of 10 GB under load, addresses {}",
            if squeezes { "squeezed together" } else { "that begin again at the front" }
        ),
        rows,
        chart: chart(&percent),
        notes: vec![
            "The paper does not say from when it replayed, nor how a trace of hundreds of GiB went onto disks of 30 GB. Here an array fails with each \
             hour of the day, and in further rows with the ten minutes that have the most requests. Addresses begin again at the front, which is \
             judged, or are squeezed together. Requests of all starts are one mean."
                .into(),
            "The disks have their write caches on. With them off the spare loses a turn with each write."
                .into(),
        ],
    }
}

/// Plots rebuild and response of each trace, in percent of Native; the paper prints the mean and the maximum reduction.
fn chart(percent: &impl Fn(Profile, Scheme, Value) -> f64) -> Chart {
    let values: [(&str, Value); 2] = [("rebuild", seconds), ("response", Outcome::mean_ms)];
    let mut groups = Vec::new();
    for (what, _) in values {
        groups.extend(TRACES.map(|trace| format!("{}, {what}", trace.name())));
        groups.extend(["mean", "least"].map(|of| format!("{what}, {of}")));
    }
    let bars = |scheme: Scheme| {
        let (mut heights, mut papers) = (Vec::new(), Vec::new());
        for (what, value) in values {
            let all = TRACES.map(|trace| percent(trace, scheme, value));
            heights.extend(all);
            heights.extend([mean_of(all), -most_of(all.map(|height| -height))]);
            papers.extend([None; 3]);
            papers.extend(["mean", "most"].map(|of| {
                let claim = format!("pod-16-wrapped/{what}-{}-{of}", scheme.name);
                let gain = if PRINTED.contains(&scheme) { find(&claim).value } else { None };
                gain.map(|gain| 100.0 - gain)
            }));
        }
        Bars::new(title(scheme), heights).papers(papers)
    };
    let title = "Time of the rebuild, and response time meanwhile";
    Chart::bars(title, "% of Native", groups, SHOWN.map(bars).to_vec())
}
