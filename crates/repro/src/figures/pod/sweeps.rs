//! Sweeps of parameters that the paper leaves open or does not vary: memory, the time of a digest, and the readings of its text.

use engine::policy::IndexCopy;
use engine::{CacheLimits, Rule};

use super::{TRACES, each, gain, title};
use crate::figures::plot::{Bars, Chart, Line, Scale};
use crate::figures::runs::{Disks, Outcome, Results, Run};
use crate::figures::{Entry, Figure, Row};
use crate::replay::scheme::{Counting, PartitionMode, Scheme};
use crate::traces::synthetic::Profile;

pub(super) const MEMORY: Entry = Entry {
    name: "pod-memory",
    about: "beyond POD: from a quarter of its memory to four times as much",
    runs: memory_runs,
    make: memory,
};
pub(super) const DIGEST: Entry = Entry {
    name: "pod-digest",
    about: "beyond POD: digests that cost 0, 2 and 32 us",
    runs: digest_runs,
    make: digest,
};
pub(super) const DECISIONS: Entry = Entry {
    name: "pod-decisions",
    about: "beyond POD: effect of the readings of its text and of open details",
    runs: decision_runs,
    make: decisions,
};

const PERCENTS: [u64; 5] = [25, 50, 100, 200, 400];
const SWEPT: [Scheme; 4] = [Scheme::NATIVE, Scheme::SELECT, Scheme::POD, Scheme::CURVES];

fn with_memory(trace: Profile, scheme: Scheme, memory_percent: u64) -> Run {
    Run { memory_percent, ..Run::pod(trace, scheme) }
}

fn memory_runs() -> Vec<Run> {
    let one =
        |trace| PERCENTS.into_iter().flat_map(move |percent| SWEPT.map(|scheme| with_memory(trace, scheme, percent)));
    TRACES.into_iter().flat_map(one).collect()
}

fn memory(results: &Results) -> Figure {
    let mut rows = Vec::new();
    let mut lines = Vec::new();
    for (trace_at, trace) in TRACES.into_iter().enumerate() {
        for (scheme_at, scheme) in SWEPT.into_iter().enumerate() {
            let of = |percent| results.of(with_memory(trace, scheme, percent)).mean_ms();
            let points: Vec<_> = PERCENTS.into_iter().map(|percent| (percent as f64, of(percent))).collect();
            for percent in PERCENTS {
                let label = format!("{}, {}, {percent} % of the paper's memory", trace.name(), title(scheme));
                rows.push(Row::new(label, "ms", of(percent)));
            }
            if scheme_at > 0 {
                let native = results.of(with_memory(trace, Scheme::NATIVE, 100)).mean_ms();
                let points = points.into_iter().map(|(x, y)| (x, 100.0 * y / native)).collect();
                let name = if scheme == Scheme::CURVES { "ours" } else { title(scheme) };
                let line = Line::new(format!("{}, {name}", trace.name()), points).colour(trace_at);
                lines.push(line.dashed(scheme_at == 2).marked(scheme_at == 1));
            }
        }
        let with = |percent| {
            let of = |scheme| results.of(with_memory(trace, scheme, percent)).mean_ms();
            let (ours, best) = (of(Scheme::CURVES), of(Scheme::SELECT).min(of(Scheme::POD)));
            (format!("with {percent} % of the memory {ours:.3} ms, the better of the others {best:.3}"), ours <= best)
        };
        rows.push(Row::every(&format!("pod-memory/{}", trace.name()), PERCENTS.map(with)));
    }
    Figure {
        name: "pod-memory",
        source: "beyond POD",
        title: "response times with less and more memory".into(),
        rows,
        chart: Chart::lines(
            "Mean response time by memory",
            ("memory in % of the paper's", "% of Native with the paper's memory"),
            lines,
        )
        .scale_x(Scale::Log),
        notes: Vec::new(),
    }
}

const MICROS: [u64; 3] = [0, 2, 32];

fn with_digest(trace: Profile, scheme: Scheme, digest_micros: u64) -> Run {
    Run { digest_micros, ..Run::pod(trace, scheme) }
}

fn digest_runs() -> Vec<Run> {
    let one = |trace| MICROS.map(|micros| with_digest(trace, Scheme::SELECT, micros));
    TRACES.into_iter().flat_map(one).collect()
}

fn digest(results: &Results) -> Figure {
    let mut rows = Vec::new();
    let mut largest = f64::MIN;
    let mut lines = Vec::new();
    for trace in TRACES {
        let of = |micros| results.of(with_digest(trace, Scheme::SELECT, micros)).writes.mean_ms();
        for micros in MICROS {
            rows.push(Row::new(format!("{}, {micros} us a block", trace.name()), "ms", of(micros)));
        }
        let share = 100.0 * (of(32) - of(0)) / of(0);
        rows.push(Row::new(format!("{}: writes take longer with 32 us than with none", trace.name()), "%", share));
        largest = largest.max(share);
        let points = MICROS.map(|micros| (micros as f64, of(micros))).to_vec();
        lines.push(Line::new(trace.name(), points));
    }
    rows.push(Row::claim("pod-digest/negligible", largest));
    Figure {
        name: "pod-digest",
        source: "POD, section 4.5.1",
        title: "response times of writes by the time of a digest".into(),
        rows,
        chart: Chart::lines(
            "Mean response time of writes under Select-Dedupe",
            ("processor time of a digest in us", "mean response time in ms"),
            lines,
        ),
        notes: Vec::new(),
    }
}

const fn adaptive(interval: u32, unit: u32) -> PartitionMode {
    let limits = CacheLimits { setting: None, interval, unit, sampled_one_in: 1, hit_costs: [1, 1] };
    PartitionMode::Adaptive(Rule::Paper, limits, Counting::Requests)
}

const fn naming(index_copy: IndexCopy, scheme: Scheme) -> Scheme {
    Scheme { index_copy, ..scheme }
}

const fn counting(counting: Counting) -> Scheme {
    match Scheme::POD.partition {
        PartitionMode::Adaptive(rule, limits, _) => {
            Scheme { partition: PartitionMode::Adaptive(rule, limits, counting), ..Scheme::POD }
        }
        PartitionMode::Fixed(_) => Scheme::POD,
    }
}

/// Variants of other readings and choices, each against the scheme that it is a variant of.
const VARIANTS: [(&str, Scheme, Scheme); 28] = [
    ("the index names the copy in the longer run", Scheme::FULL, naming(IndexCopy::Sequential, Scheme::FULL)),
    ("the index names the copy in the longer run", Scheme::IDEDUP, naming(IndexCopy::Sequential, Scheme::IDEDUP)),
    ("the index names the copy in the longer run", Scheme::SELECT, naming(IndexCopy::Sequential, Scheme::SELECT)),
    ("the index names the copy in the longer run", Scheme::POD, naming(IndexCopy::Sequential, Scheme::POD)),
    ("the index names the copy in the longer run", Scheme::CURVES, naming(IndexCopy::Sequential, Scheme::CURVES)),
    ("the index names the newest copy", Scheme::FULL, naming(IndexCopy::Newest, Scheme::FULL)),
    ("the index names the newest copy", Scheme::IDEDUP, naming(IndexCopy::Newest, Scheme::IDEDUP)),
    ("the index names the newest copy", Scheme::SELECT, naming(IndexCopy::Newest, Scheme::SELECT)),
    ("the index names the newest copy", Scheme::POD, naming(IndexCopy::Newest, Scheme::POD)),
    ("the index names the newest copy", Scheme::CURVES, naming(IndexCopy::Newest, Scheme::CURVES)),
    ("threshold counts known blocks of the request", Scheme::SELECT, Scheme::SELECT_COUNT),
    (
        "threshold counts known blocks of the request",
        Scheme::POD,
        Scheme { policy: Scheme::SELECT_COUNT.policy, ..Scheme::POD },
    ),
    ("threshold must be exceeded", Scheme::SELECT, Scheme::SELECT_ABOVE),
    (
        "entries of overwritten blocks leave the index at once",
        Scheme::SELECT,
        Scheme { drops_stale: true, ..Scheme::SELECT },
    ),
    ("entries of overwritten blocks leave the index at once", Scheme::POD, Scheme { drops_stale: true, ..Scheme::POD }),
    ("split reads stay in pieces", Scheme::SELECT, Scheme { relinearises: false, ..Scheme::SELECT }),
    ("split reads stay in pieces", Scheme::POD, Scheme { relinearises: false, ..Scheme::POD }),
    ("no page of the index is cached", Scheme::FULL, Scheme::FULL_BARE),
    ("a filter in front of the index on the disk", Scheme::FULL, Scheme::FULL_FILTER),
    ("lookups on disk are free", Scheme::FULL, Scheme::FULL_FREE),
    ("T = 2", Scheme::IDEDUP, Scheme::IDEDUP_2),
    ("T = 8", Scheme::IDEDUP, Scheme::IDEDUP_8),
    ("Native without a cache", Scheme::NATIVE, Scheme::NATIVE_UNCACHED),
    ("iCache counts blocks that hit", Scheme::POD, counting(Counting::Blocks)),
    ("iCache counts blocks, in lists of its own as ARC has them", Scheme::POD, counting(Counting::Depths)),
    ("iCache looks every 256 requests", Scheme::POD, Scheme { partition: adaptive(256, 10), ..Scheme::POD }),
    ("iCache looks every 4,000 requests", Scheme::POD, Scheme { partition: adaptive(4000, 10), ..Scheme::POD }),
    ("iCache moves by 2 %", Scheme::POD, Scheme { partition: adaptive(1000, 20), ..Scheme::POD }),
];

/// The schemes again, on disks that acknowledge writes from their caches.
const CACHED: [Scheme; 4] = [Scheme::NATIVE, Scheme::FULL, Scheme::IDEDUP, Scheme::SELECT];

fn with_write_cache(trace: Profile, scheme: Scheme) -> Run {
    Run { disks: Disks { write_cache: true, ..Disks::POD }, ..Run::pod(trace, scheme) }
}

fn decision_runs() -> Vec<Run> {
    let mut runs = each(&VARIANTS.map(|(_, base, _)| base));
    runs.extend(each(&VARIANTS.map(|(.., variant)| variant)));
    runs.extend(TRACES.into_iter().flat_map(|trace| CACHED.map(|scheme| with_write_cache(trace, scheme))));
    runs
}

fn decisions(results: &Results) -> Figure {
    let mut rows = Vec::new();
    let mut series = Vec::new();
    for trace in TRACES {
        let mut heights = Vec::new();
        for (what, base, variant) in VARIANTS {
            let less = gain(results, trace, variant, base, Outcome::mean_ms);
            heights.push(-less);
            let label = format!("{}, {}: {what}", trace.name(), title(base));
            rows.push(Row::new(label, "% longer", -less));
        }
        for scheme in [Scheme::FULL, Scheme::IDEDUP, Scheme::SELECT] {
            let of = |scheme| results.of(with_write_cache(trace, scheme)).mean_ms();
            let share = 100.0 * (1.0 - of(scheme) / of(Scheme::NATIVE));
            let label = format!("{}, {}: disks with write caches", trace.name(), title(scheme));
            rows.push(Row::new(label, "% less than Native", share));
        }
        series.push(Bars::new(trace.name(), heights));
    }
    Figure {
        name: "pod-decisions",
        source: "beyond POD",
        title: "what other readings of the paper's text come to".into(),
        rows,
        chart: Chart::bars(
            "Mean response time against the scheme as it is built",
            "% longer",
            VARIANTS.iter().map(|(what, base, _)| format!("{}: {what}", title(*base))).collect(),
            series,
        ),
        notes: Vec::new(),
    }
}
