//! Figures of Onefold itself under POD's traces: its log, journal and tables on the same disks, with the same memory.

use engine::policy::IndexCopy;

use super::{TRACES, each, names, parts, title};
use crate::figures::plot::{Bars, Chart};
use crate::figures::runs::{Outcome, Results, Run};
use crate::figures::{Entry, Figure, Row};
use crate::replay::onefold::{Front, Onefold};
use crate::replay::scheme::Scheme;
use crate::traces::synthetic::Profile;

pub(super) const ONEFOLD: Entry = Entry {
    name: "pod-onefold",
    about: "beyond POD: Onefold itself, with its journal and tables on the disks and in NVRAM",
    runs,
    make: onefold,
};

pub(super) const INDEX_COPY: Entry = Entry {
    name: "pod-index-copy",
    about: "beyond POD: the copy that the index of Onefold names",
    runs: || TRACES.into_iter().flat_map(|trace| COPIES.map(|copy| naming(trace, copy))).collect(),
    make: index_copy,
};

pub(super) const JOURNAL: Entry = Entry {
    name: "pod-journal",
    about: "beyond POD: the journal of Onefold on a disk before the array",
    runs: || TRACES.into_iter().flat_map(|trace| FRONTS.map(|front| with_front(trace, front))).collect(),
    make: journal,
};

/// Disks before the array.
const FRONTS: [Option<Front>; 4] =
    [None, Some(Front::JournalOnHdd), Some(Front::JournalOnSsd), Some(Front::TablesOnSsd)];

/// Copies that the index may name; the first is the default of a pool.
const COPIES: [IndexCopy; 3] = [IndexCopy::Sequential, IndexCopy::Oldest, IndexCopy::Newest];

/// Under the papers' rule of acknowledgement first.
const WAYS: [Onefold; 4] = [
    Onefold { through: true, nvram: true, front: None },
    Onefold { through: true, nvram: false, front: None },
    Onefold { through: false, nvram: true, front: None },
    Onefold { through: false, nvram: false, front: None },
];
/// Claim of each way.
const CLAIMS: [&str; WAYS.len()] =
    ["pod-onefold/durable-nvram", "pod-onefold/durable-disks", "pod-onefold/memory-nvram", "pod-onefold/memory-disks"];
/// Schemes shown beside Onefold.
const SHOWN: [Scheme; 5] = [Scheme::NATIVE, Scheme::FULL, Scheme::IDEDUP, Scheme::SELECT, Scheme::POD];

fn run(trace: Profile, way: Onefold) -> Run {
    Run { onefold: Some(way), ..Run::pod(trace, Scheme::SELECT) }
}

/// Returns the run with durable writes, journal and tables in NVRAM, and this choice of the copy that the index names.
fn naming(trace: Profile, index_copy: IndexCopy) -> Run {
    Run { index_copy, ..run(trace, WAYS[0]) }
}

fn runs() -> Vec<Run> {
    let mut runs = each(&SHOWN);
    runs.extend(TRACES.into_iter().flat_map(|trace| WAYS.map(|way| run(trace, way))));
    runs
}

fn shared_percent(outcome: &Outcome) -> f64 {
    100.0 * outcome.counts.shared_blocks as f64 / outcome.counts.written_blocks.max(1) as f64
}

fn onefold(results: &Results) -> Figure {
    let mut rows = Vec::new();
    let mut points: [Vec<(String, bool)>; WAYS.len()] = Default::default();
    let value = Outcome::mean_ms;
    for trace in TRACES {
        let of = |scheme| results.of(Run::pod(trace, scheme));
        let best = SHOWN.into_iter().min_by(|&one, &other| value(of(one)).total_cmp(&value(of(other))));
        let best = best.expect("there are schemes");
        for (at, way) in WAYS.into_iter().enumerate() {
            let outcome = results.of(run(trace, way));
            let (ours, least) = (value(outcome), value(of(best)));
            let mut point = format!("{} {ours:.3} ms, {} {least:.3} ms", trace.name(), title(best));
            if ours > least {
                point += &format!(" (more of: {})", parts::reason(outcome, of(best)));
            }
            rows.push(Row::new(format!("{}, {}: all requests", trace.name(), way.name()), "ms", ours));
            points[at].push((point, ours <= least));
            let label = |what: &str| format!("{}, {}: {what}", trace.name(), way.name());
            rows.push(Row::new(label("reads"), "ms", outcome.reads.mean_ms()));
            rows.push(Row::new(label("writes"), "ms", outcome.writes.mean_ms()));
            rows.push(Row::new(
                label("writes removed"),
                "% of the size that the engine takes at once",
                outcome.removed_percent(),
            ));
            rows.push(Row::new(label("blocks shared"), "% of blocks written", shared_percent(outcome)));
            rows.push(Row::new(label("capacity that the day takes"), "blocks", outcome.taken_blocks() as f64));
            rows.push(Row::new(label("reads in several pieces"), "", outcome.counts.split_reads as f64));
            rows.push(Row::new(label("commands to the disks"), "", (outcome.disk.reads + outcome.disk.writes) as f64));
            rows.extend(parts::rows(&format!("{}, {}", trace.name(), way.name()), outcome, true));
        }
        for scheme in SHOWN {
            let label = |what: &str| format!("{}, {}: {what}", trace.name(), title(scheme));
            rows.push(Row::new(label("blocks shared"), "% of blocks written", shared_percent(of(scheme))));
            rows.push(Row::new(label("capacity that the day takes"), "blocks", of(scheme).taken_blocks() as f64));
            rows.push(Row::new(label("response time"), "ms", value(of(scheme))));
        }
    }
    for (id, points) in CLAIMS.into_iter().zip(points) {
        rows.push(Row::every(id, points));
    }
    let native = |trace| value(results.of(Run::pod(trace, Scheme::NATIVE)));
    let percent = |trace, outcome: &Outcome| 100.0 * value(outcome) / native(trace);
    let mut series: Vec<Bars> = Vec::new();
    for scheme in SHOWN {
        let heights = TRACES.map(|trace| percent(trace, results.of(Run::pod(trace, scheme)))).to_vec();
        series.push(Bars::new(title(scheme), heights));
    }
    for way in WAYS {
        let heights = TRACES.map(|trace| percent(trace, results.of(run(trace, way)))).to_vec();
        series.push(Bars::new(way.name(), heights));
    }
    Figure {
        name: "pod-onefold",
        source: "beyond POD",
        title: "Onefold itself on the paper's disks".into(),
        rows,
        chart: Chart::bars("Mean response time of all requests", "% of Native", names(), series),
        notes: vec![
            "Durable writes: every write is answered when it is durable, as under the papers' schemes. Else it is answered from memory, as a \
             server does where no client asks for a flush: then a mean says more about memory than about disks."
                .into(),
            "The pool has one volume of three quarters of the disks, written in order; then one day of the trace, and then the day that \
             is measured. The memory is all that the engine has: index, read cache, tables and buffers."
                .into(),
            "Parts of a response follow the commands that led to it, from the last one backwards. Their sum is the response time. \
             Where Onefold is slower, the row says which parts are longer. The time of extra pieces of a read is in seek and rotation."
                .into(),
        ],
    }
}

/// Returns the run with durable writes, and this disk before the array.
fn with_front(trace: Profile, front: Option<Front>) -> Run {
    run(trace, Onefold { front, ..WAYS[1] })
}

fn journal(results: &Results) -> Figure {
    let values: [(&str, Value); 3] = [
        ("all requests", Outcome::mean_ms),
        ("reads", |outcome| outcome.reads.mean_ms()),
        ("writes", |outcome| outcome.writes.mean_ms()),
    ];
    let of = |trace, front| results.of(with_front(trace, front));
    let name = |front| Onefold { front, ..WAYS[1] }.name();
    let mut rows = Vec::new();
    for (trace, front) in TRACES.into_iter().flat_map(|trace| FRONTS.map(|front| (trace, front))) {
        let column = format!("{}, {}", trace.name(), name(front));
        let outcome = of(trace, front);
        rows.extend(values.map(|(what, value)| Row::new(format!("{column}: {what}"), "ms", value(outcome))));
        rows.extend(parts::rows(&column, outcome, true));
    }
    let bars = |value: Value| {
        FRONTS.map(|front| Bars::new(name(front), TRACES.map(|trace| value(of(trace, front))).to_vec())).to_vec()
    };
    Figure {
        name: "pod-journal",
        source: "beyond POD",
        title: "the journal of Onefold on the array, and on a disk before it".into(),
        rows,
        chart: Chart::bars("Mean response time of writes", "ms", names(), bars(|outcome| outcome.writes.mean_ms()))
            .below(Chart::bars(
                "Journal and syncs, of a write",
                "ms",
                names(),
                bars(|outcome| outcome.writes.part_ms(|parts| parts.journal)),
            )),
        notes: vec![
            "The store is a concatenation: a disk with the superblocks and the journal, or with all tables, and then the array. The hard disk is \
             like those of the array. docs/rfc/0023-journal-on-parity-arrays.md has the reasons."
                .into(),
        ],
    }
}

/// Value of an outcome.
type Value = fn(&Outcome) -> f64;

fn index_copy(results: &Results) -> Figure {
    let values: [(&str, &str, Value); 5] = [
        ("writes removed", "% of the size that the engine takes at once", Outcome::removed_percent),
        ("blocks shared", "% of blocks written", shared_percent),
        ("capacity that the day takes", "blocks", |outcome| outcome.taken_blocks() as f64),
        ("reads in several pieces", "", |outcome| outcome.counts.split_reads as f64),
        ("all requests", "ms", Outcome::mean_ms),
    ];
    let of = |trace, copy| results.of(naming(trace, copy));
    let mut rows = Vec::new();
    for trace in TRACES {
        for (what, unit, value) in values {
            for copy in COPIES {
                rows.push(Row::new(format!("{}, {copy}: {what}", trace.name()), unit, value(of(trace, copy))));
            }
        }
    }
    let bars = |value: Value| {
        COPIES.map(|copy| Bars::new(copy.to_string(), TRACES.map(|trace| value(of(trace, copy))).to_vec())).to_vec()
    };
    Figure {
        name: "pod-index-copy",
        source: "beyond POD",
        title: "the copy that the index of Onefold names, where a known block was written again".into(),
        rows,
        chart: Chart::bars("Blocks shared", "% of blocks written", names(), bars(shared_percent))
            .below(Chart::bars("Mean response time, durable writes, NVRAM", "ms", names(), bars(Outcome::mean_ms))),
        notes: vec![
            "A pool of each kind is set so before anything is written. Response times of the engine move with chance: background work that falls \
             between other requests."
                .into(),
        ],
    }
}
