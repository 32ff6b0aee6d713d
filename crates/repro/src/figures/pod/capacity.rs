//! Figures of the savings: capacity (Fig. 13), writes (Fig. 15), and their NVRAM cost (section 4.5.2).

use super::{SCHEMES, TRACES, bars, each, rows, title};
use crate::figures::claims::find;
use crate::figures::runs::{Outcome, Results, Run};
use crate::figures::{Entry, Figure, Row};
use crate::replay::scheme::Scheme;
use crate::traces::synthetic::Profile;

pub(super) const FIG_13: Entry =
    Entry { name: "pod-13", about: "POD, Fig. 13: capacity in use", runs: schemes, make: fig_13 };
pub(super) const FIG_15: Entry =
    Entry { name: "pod-15", about: "POD, Fig. 15: writes that are removed", runs: schemes, make: fig_15 };
pub(super) const NVRAM: Entry =
    Entry { name: "pod-nvram", about: "POD, section 4.5.2: size of the Map_table", runs: schemes, make: nvram };

fn schemes() -> Vec<Run> {
    each(&SCHEMES)
}

fn fig_13(results: &Results) -> Figure {
    let used = |trace, scheme| results.of(Run::pod(trace, scheme)).used_blocks as f64;
    let mut all = Vec::new();
    for trace in TRACES {
        let name = trace.name();
        let least = SCHEMES.map(|scheme| used(trace, scheme)).into_iter().fold(f64::MAX, f64::min);
        all.push(Row::statement(&format!("pod-13/full-{name}"), used(trace, Scheme::FULL) <= least));
        let select = used(trace, Scheme::SELECT) <= used(trace, Scheme::IDEDUP);
        all.push(Row::statement(&format!("pod-13/select-{name}"), select));
        let ours = used(trace, Scheme::CURVES);
        let others = [Scheme::NATIVE, Scheme::IDEDUP, Scheme::SELECT, Scheme::POD].map(|scheme| used(trace, scheme));
        let best = others.into_iter().fold(f64::MAX, f64::min);
        all.push(
            Row::statement(&format!("pod-13/ours-{name}"), ours <= best)
                .note(format!("{ours:.0} blocks, the best of the others {best:.0}")),
        );
    }
    let percent = |_: &Results, trace, scheme| 100.0 * used(trace, scheme) / used(trace, Scheme::NATIVE);
    for trace in TRACES {
        for scheme in SCHEMES {
            let label = format!("{}, {}", trace.name(), title(scheme));
            all.push(Row::new(label, "% of Native", percent(results, trace, scheme)));
        }
    }
    Figure {
        name: "pod-13",
        source: "POD, Fig. 13",
        title: "blocks of the disk in use at the end of the day".into(),
        rows: all,
        chart: bars(results, "Blocks in use at the end of the day", "% of Native", &SCHEMES, percent, |_, _| None),
        notes: vec![
            "Days 1 to 14 are at home, without sharing: the paper warms the index alone, as the sizes of its Map_tables show. \
             So only one day of fifteen saves anything, under all schemes."
                .into(),
            "Where ours uses more than Select-Dedupe, iCache has given memory of the index to reads, and misses the oldest duplicates."
                .into(),
        ],
    }
}

fn fig_15(results: &Results) -> Figure {
    let value = Outcome::removed_percent;
    let of = |trace, scheme| value(results.of(Run::pod(trace, scheme)));
    let mut all = vec![Row::claim("pod-15/select-mail", of(Profile::Mail, Scheme::SELECT))];
    for trace in TRACES {
        let (full, pod, select, idedup) =
            (of(trace, Scheme::FULL), of(trace, Scheme::POD), of(trace, Scheme::SELECT), of(trace, Scheme::IDEDUP));
        let order = full > pod && pod >= select && select > idedup;
        all.push(
            Row::statement(&format!("pod-15/order-{}", trace.name()), order)
                .note(format!("{full:.1}, {pod:.1}, {select:.1}, {idedup:.1} %")),
        );
    }
    all.extend(rows(results, "% of write requests", &SCHEMES, value));
    let ours = |_: &Results, trace, scheme| of(trace, scheme);
    let paper = |trace, scheme| {
        let is_stated = trace == Profile::Mail && scheme == Scheme::SELECT;
        is_stated.then(|| find("pod-15/select-mail").value).flatten()
    };
    Figure {
        name: "pod-15",
        source: "POD, Fig. 15",
        title: "write requests that are removed".into(),
        rows: all,
        chart: bars(results, "Write requests that are removed", "% of write requests", &SCHEMES, ours, paper),
        notes: Vec::new(),
    }
}

fn nvram(results: &Results) -> Figure {
    let value: fn(&Outcome) -> f64 = |outcome| outcome.nvram as f64 / 1e6;
    let id = |trace: Profile| format!("pod-nvram/{}", trace.name());
    let row = |trace: Profile| Row::claim(&id(trace), value(results.of(Run::pod(trace, Scheme::POD))));
    let mut all: Vec<Row> = TRACES.into_iter().map(row).collect();
    all.extend(rows(results, "MB", &SCHEMES, value));
    let ours = |results: &Results, trace, scheme| value(results.of(Run::pod(trace, scheme)));
    let shown = [Scheme::IDEDUP, Scheme::SELECT, Scheme::POD, Scheme::FULL];
    let drawn = |trace, scheme| (scheme == Scheme::POD).then(|| find(&id(trace)).value).flatten();
    Figure {
        name: "pod-nvram",
        source: "POD, section 4.5.2",
        title: "most NVRAM that the table of redirects needs".into(),
        rows: all,
        chart: bars(results, "Most NVRAM of the Map_table (16 bytes an entry)", "MB", &shown, ours, drawn),
        notes: vec!["Within a factor of two counts: the paper rounds to 0.1 MB.".into()],
    }
}
