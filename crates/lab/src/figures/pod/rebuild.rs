//! A RAID5 that is rebuilt while clients work: Fig. 16.

use super::{TRACES, bars, title};
use crate::figures::runs::{Disks, Outcome, Results, Run};
use crate::figures::{Entry, Figure, Row};
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

const SHOWN: [Scheme; 5] = [Scheme::NATIVE, Scheme::FULL, Scheme::IDEDUP, Scheme::POD, Scheme::CURVES];

fn run(trace: Profile, scheme: Scheme, squeezes: bool) -> Run {
    Run { disks: Disks::POD_REBUILD, squeezes, ..Run::pod(trace, scheme) }
}

fn runs(squeezes: bool) -> Vec<Run> {
    let one = |trace| SHOWN.map(|scheme| run(trace, scheme, squeezes));
    TRACES.into_iter().flat_map(one).collect()
}

/// What is compared.
type Value = fn(&Outcome) -> f64;

/// How long the rebuild took, in seconds.
fn seconds(outcome: &Outcome) -> f64 {
    outcome.rebuilt.map_or(f64::NAN, |at| at as f64 / 1e9)
}

fn fig_16(results: &Results, squeezes: bool, name: &'static str) -> Figure {
    let of = |trace, scheme| results.of(run(trace, scheme, squeezes));
    let gains = |scheme, value: Value| {
        TRACES.map(|trace| 100.0 * (1.0 - value(of(trace, scheme)) / value(of(trace, Scheme::NATIVE))))
    };
    let mut rows = Vec::new();
    for scheme in [Scheme::FULL, Scheme::IDEDUP, Scheme::POD] {
        for (what, slug, value) in
            [("rebuild time", "rebuild", seconds as Value), ("response time meanwhile", "response", Outcome::mean_ms)]
        {
            let gains = gains(scheme, value);
            let most = gains.into_iter().fold(f64::MIN, f64::max);
            let mean = gains.iter().sum::<f64>() / gains.len() as f64;
            for (of, gain) in [("most", most), ("mean", mean)] {
                // One reading is judged.
                rows.push(match squeezes {
                    false => Row::claim(&format!("{name}/{slug}-{}-{of}", scheme.name), gain),
                    true => Row::new(format!("{what} less under {} than under Native, {of}", title(scheme)), "%", gain),
                });
            }
        }
    }
    for trace in TRACES {
        for scheme in SHOWN {
            let outcome = of(trace, scheme);
            let label = format!("{}, {}", trace.name(), title(scheme));
            rows.push(Row::new(format!("{label}: rebuild"), "s", seconds(outcome)));
            rows.push(
                Row::new(format!("{label}: response time meanwhile"), "ms", outcome.mean_ms())
                    .note(format!("{} requests", outcome.requests())),
            );
        }
    }
    let ours = |_: &Results, trace, scheme| seconds(of(trace, scheme));
    Figure {
        name,
        source: "POD, Fig. 16",
        title: format!(
            "a rebuild of 10 GB under load, addresses {}",
            if squeezes { "squeezed together" } else { "that begin again at the front" }
        ),
        rows,
        chart: bars(results, "Time of the rebuild", "time in seconds", &SHOWN, ours, |_, _| None),
        notes: vec![
            "The rebuild begins with the day, and the replay ends with it. The paper does not say from when it replayed, nor how a trace of \
             hundreds of GiB went onto disks of 30 GB: both ways to fold addresses are shown."
                .into(),
            "The disks are idle most of the time, also under Native. So the rebuild goes at the speed of the disks under every scheme, and hardly \
             gets shorter."
                .into(),
        ],
    }
}
