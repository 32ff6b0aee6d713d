//! Figures of response times: Fig. 11, Fig. 12, and those of the abstract.

use engine::policy::IndexCopy;

use super::{SCHEMES, TRACES, bars, each, gain, mean_of, most_of, names, parts, rows, title};
use crate::figures::claims::find;
use crate::figures::plot::{Bars, Chart};
use crate::figures::runs::{Disks, Outcome, Results, Run};
use crate::figures::{Entry, Figure, Row};
use crate::replay::driver::Submitters;
use crate::replay::scheme::Scheme;
use crate::traces::synthetic::Profile;
use sim::disks::raid5::STRIPE_CACHE;

pub(super) const FIG_11: Entry =
    Entry { name: "pod-11", about: "POD, Fig. 11: response times of all requests", runs: all_schemes, make: fig_11 };
pub(super) const FIG_12_WRITES: Entry =
    Entry { name: "pod-12a", about: "POD, Fig. 12a: response times of writes", runs: all_schemes, make: fig_12_writes };
pub(super) const FIG_12_READS: Entry =
    Entry { name: "pod-12b", about: "POD, Fig. 12b: response times of reads", runs: of_reads, make: fig_12_reads };
pub(super) const FIG_12_QUEUES: Entry = Entry {
    name: "pod-12-queues",
    about: "POD, section 4.2: lengths of queues, the reason for Fig. 12",
    runs: all_schemes,
    make: fig_12_queues,
};
pub(super) const ABSTRACT: Entry = Entry {
    name: "pod-abstract",
    about: "POD, abstract: POD against iDedup",
    runs: all_schemes,
    make: of_the_abstract,
};

/// All schemes and their variants.
const WIDE: [Scheme; 11] = [
    Scheme::NATIVE,
    Scheme::NATIVE_HALF,
    Scheme::NATIVE_UNCACHED,
    Scheme::FULL,
    Scheme::FULL_FREE,
    Scheme::IDEDUP_2,
    Scheme::IDEDUP,
    Scheme::IDEDUP_8,
    Scheme::SELECT,
    Scheme::POD,
    Scheme::CURVES,
];

fn all_schemes() -> Vec<Run> {
    each(&WIDE)
}

/// Readings of unspecified details that affect reads; `pod-decisions` has them all.
const READINGS: [(&str, Scheme); 2] = [
    ("the index names the copy in the longer run", Scheme { index_copy: IndexCopy::Sequential, ..Scheme::SELECT }),
    ("the threshold counts known blocks of the request", Scheme::SELECT_COUNT),
];

fn of_reads() -> Vec<Run> {
    let mut runs = all_schemes();
    runs.extend(each(&READINGS.map(|(_, scheme)| scheme)));
    runs.extend(TRACES.into_iter().flat_map(|trace| LEVERS.map(|lever| pulled(trace, lever)).concat()));
    runs
}

/// Rows of the largest stripe cache that Linux allows: writes hardly ever wait for a place in it.
const ALL_ROWS: usize = 32_768;

/// Two conditions that decide whether reads wait for writes: how many rows md has, and how many threads submit.
const LEVERS: [(&str, usize, Submitters); 4] = [
    ("256 rows, one submitter", STRIPE_CACHE, Submitters::One),
    ("256 rows, a submitter for each request", STRIPE_CACHE, Submitters::Many),
    ("32,768 rows, one submitter", ALL_ROWS, Submitters::One),
    ("32,768 rows, a submitter for each request", ALL_ROWS, Submitters::Many),
];

/// Returns the runs of Native and Select-Dedupe under such conditions.
fn pulled(trace: Profile, (_, stripe_cache, submitters): (&str, usize, Submitters)) -> [Run; 2] {
    [Scheme::NATIVE, Scheme::SELECT].map(|scheme| Run {
        disks: Disks { stripe_cache, ..Disks::POD },
        submitters,
        ..Run::pod(trace, scheme)
    })
}

/// Values that the paper prints, as claims: trace, scheme, and the scheme that it is faster than.
type Stated = [(&'static str, Profile, Scheme, Scheme)];

fn stated_rows(results: &Results, stated: &Stated, value: fn(&Outcome) -> f64) -> Vec<Row> {
    let row = |&(id, trace, scheme, base): &(&str, Profile, Scheme, Scheme)| {
        Row::claim(id, gain(results, trace, scheme, base, value))
    };
    stated.iter().map(row).collect()
}

/// Plots the value in percent of native; the paper's where it is stated.
fn normalized(results: &Results, heading: &str, stated: &Stated, value: fn(&Outcome) -> f64) -> Chart {
    let ours = |results: &Results, trace, scheme| 100.0 - gain(results, trace, scheme, Scheme::NATIVE, value);
    let paper = |trace, scheme| {
        let found = stated.iter().find(|row| row.1 == trace && row.2 == scheme && row.3 == Scheme::NATIVE);
        found.and_then(|row| find(row.0).value).map(|percent| 100.0 - percent)
    };
    bars(results, heading, "% of Native", &SCHEMES, ours, paper)
}

/// Makes rows that compare ours with the best of the paper's schemes, for each trace.
fn ours_rows(results: &Results, value: fn(&Outcome) -> f64) -> Vec<Row> {
    let row = |trace: Profile| {
        let of = |scheme| results.of(Run::pod(trace, scheme));
        let best = [Scheme::NATIVE, Scheme::FULL, Scheme::IDEDUP, Scheme::SELECT, Scheme::POD]
            .into_iter()
            .min_by(|&one, &other| value(of(one)).total_cmp(&value(of(other))))
            .expect("there are schemes");
        let (ours, least) = (value(of(Scheme::CURVES)), value(of(best)));
        let mut note = format!("ours {ours:.3} ms; the best of the paper's: {} with {least:.3} ms", title(best));
        if ours > least {
            note += &format!("; ours has more of: {}", parts::reason(of(Scheme::CURVES), of(best)));
        }
        Row::statement(&format!("pod-11/ours-{}", trace.name()), ours <= least).note(note)
    };
    TRACES.into_iter().map(row).collect()
}

fn fig_11(results: &Results) -> Figure {
    use Profile::{Homes, Mail, WebVm};
    let stated = [
        ("pod-11/select-web-vm", WebVm, Scheme::SELECT, Scheme::NATIVE),
        ("pod-11/select-homes", Homes, Scheme::SELECT, Scheme::NATIVE),
        ("pod-11/select-mail", Mail, Scheme::SELECT, Scheme::NATIVE),
    ];
    let value = Outcome::mean_ms;
    let mut all = stated_rows(results, &stated, value);
    let of = |trace, scheme| value(results.of(Run::pod(trace, scheme)));
    all.push(Row::statement("pod-11/full-homes", of(Homes, Scheme::FULL) > of(Homes, Scheme::NATIVE)));
    for trace in TRACES {
        let best = of(trace, Scheme::SELECT) <= of(trace, Scheme::IDEDUP).min(of(trace, Scheme::FULL));
        all.push(Row::statement(&format!("pod-11/best-{}", trace.name()), best));
    }
    all.extend(ours_rows(results, value));
    all.extend(rows(results, "ms", &WIDE, value));
    all.extend(of_parts(results));
    Figure {
        name: "pod-11",
        source: "POD, Fig. 11",
        title: "mean response time".into(),
        rows: all,
        chart: normalized(results, "Mean response time of all requests", &stated, value),
        notes: vec![
            "The paper does not say whether Native has a read cache. Here it has one of the whole memory; the bare device is in the \
             table, too."
                .into(),
        ],
    }
}

/// Makes the rows of the parts of response times.
fn of_parts(results: &Results) -> Vec<Row> {
    let columns = TRACES.into_iter().flat_map(|trace| SCHEMES.map(|scheme| (trace, scheme)));
    let rows = |(trace, scheme): (Profile, Scheme)| {
        let column = format!("{}, {}", trace.name(), title(scheme));
        parts::rows(&column, results.of(Run::pod(trace, scheme)), false)
    };
    columns.flat_map(rows).collect()
}

fn fig_12_writes(results: &Results) -> Figure {
    use Profile::{Homes, Mail, WebVm};
    let (native, idedup, select, full) = (Scheme::NATIVE, Scheme::IDEDUP, Scheme::SELECT, Scheme::FULL);
    let stated = [
        ("pod-12a/select-native-web-vm", WebVm, select, native),
        ("pod-12a/select-native-homes", Homes, select, native),
        ("pod-12a/select-native-mail", Mail, select, native),
        ("pod-12a/select-idedup-web-vm", WebVm, select, idedup),
        ("pod-12a/select-idedup-homes", Homes, select, idedup),
        ("pod-12a/select-idedup-mail", Mail, select, idedup),
        ("pod-12a/idedup-native-web-vm", WebVm, idedup, native),
        ("pod-12a/idedup-native-homes", Homes, idedup, native),
        ("pod-12a/idedup-native-mail", Mail, idedup, native),
        ("pod-12a/full-native-homes", Homes, full, native),
    ];
    let value: fn(&Outcome) -> f64 = |outcome| outcome.writes.mean_ms();
    let mut all = stated_rows(results, &stated, value);
    all.extend(rows(results, "ms", &WIDE, value));
    Figure {
        name: "pod-12a",
        source: "POD, Fig. 12a",
        title: "mean response time of writes".into(),
        rows: all,
        chart: normalized(results, "Mean response time of writes", &stated, value),
        notes: vec![
            "Requests that can be removed and have fewer than four blocks iDedup leaves alone: `pod-15` has the shares. Full-Dedupe looks for each \
             block that is new on the disk, if its page is not in memory."
                .into(),
            lookups(results),
        ],
    }
}

/// Formats a sentence on the share of lookups that Full-Dedupe made on the disk.
fn lookups(results: &Results) -> String {
    let of = |trace: Profile| {
        let counts = &results.of(Run::pod(trace, Scheme::FULL)).counts;
        let all = (counts.lookups + counts.lookups_saved).max(1);
        format!("{:.0} % on {}", 100.0 * counts.lookups as f64 / all as f64, trace.name())
    };
    format!("Of what its entries in memory do not have it looked up on the disk {}.", TRACES.map(of).join(", "))
}

fn fig_12_reads(results: &Results) -> Figure {
    use Profile::{Homes, Mail, WebVm};
    let (native, select, full) = (Scheme::NATIVE, Scheme::SELECT, Scheme::FULL);
    let stated = [
        ("pod-12b/full-native-web-vm", WebVm, full, native),
        ("pod-12b/full-native-homes", Homes, full, native),
        ("pod-12b/full-native-mail", Mail, full, native),
        ("pod-12b/select-native-web-vm", WebVm, select, native),
        ("pod-12b/select-native-homes", Homes, select, native),
        ("pod-12b/select-native-mail", Mail, select, native),
    ];
    let value: fn(&Outcome) -> f64 = |outcome| outcome.reads.mean_ms();
    let mut all = stated_rows(results, &stated, value);
    // The other reading of the paper's Native judges nothing.
    all.extend(stated.map(|(_, trace, scheme, _)| {
        let base = Scheme::NATIVE_HALF;
        let label = format!("{}: read time less under {} than under {}", trace.name(), title(scheme), title(base));
        Row::new(label, "%", gain(results, trace, scheme, base, value))
    }));
    all.extend(rows(results, "ms", &WIDE, value));
    all.extend(
        rows(results, "% of blocks read", &WIDE, Outcome::hit_percent)
            .into_iter()
            .map(|row| row.note("hits of the read cache")),
    );
    let splits = |outcome: &Outcome| 100.0 * outcome.counts.split_reads as f64 / outcome.reads.requests.max(1) as f64;
    let split = rows(results, "% of reads", &SCHEMES, splits);
    all.extend(split.into_iter().map(|row| row.note("more pieces than in place")));
    for trace in TRACES {
        for (reading, scheme) in READINGS {
            let label = |what: &str| format!("{}, Select-Dedupe, {reading}: {what}", trace.name());
            let less = gain(results, trace, scheme, Scheme::NATIVE, value);
            all.push(Row::new(label("read time less than under Native"), "%", less));
            all.push(Row::new(label("splits"), "% of reads", splits(results.of(Run::pod(trace, scheme)))));
        }
    }
    for trace in TRACES {
        for lever in LEVERS {
            let [native, select] = pulled(trace, lever).map(|run| value(results.of(run)));
            let label = |what: &str| format!("{}, {}: {what}", trace.name(), lever.0);
            all.push(Row::new(
                label("read time less under Select-Dedupe than under Native"),
                "%",
                100.0 * (1.0 - select / native),
            ));
            all.push(Row::new(label("reads under Native"), "ms", native));
            all.push(Row::new(label("reads under Select-Dedupe"), "ms", select));
        }
    }
    Figure {
        name: "pod-12b",
        source: "POD, Fig. 12b",
        title: "mean response time of reads".into(),
        rows: all,
        chart: normalized(results, "Mean response time of reads", &stated, value),
        notes: vec![
            "Native has the whole memory as read cache here, the others half of it: a scheme must win that back first. \
             The paper does not say how large Native's read cache was. Further rows compare with a Native that has half of the memory, too."
                .into(),
            "Linux md lets a write wait for one of the 256 rows of its stripe cache. With a submitter for each request reads go by such writes. The \
             paper's replayer is one thread, which sleeps then, so that the reads behind it wait, too: that is what is judged. The last rows show \
             both conditions, alone and together."
                .into(),
        ],
    }
}

fn fig_12_queues(results: &Results) -> Figure {
    let value = Outcome::mean_queue;
    let mut all = Vec::new();
    for trace in TRACES {
        let of = |scheme| value(results.of(Run::pod(trace, scheme)));
        let shorter = of(Scheme::SELECT) < of(Scheme::NATIVE);
        all.push(Row::statement(&format!("pod-12-queues/{}", trace.name()), shorter));
    }
    all.extend(rows(results, "requests", &SCHEMES, value));
    let most = rows(results, "requests", &SCHEMES, |outcome| outcome.queue_most as f64);
    all.extend(most.into_iter().map(|row| row.note("at most")));
    let ours = |results: &Results, trace, scheme| value(results.of(Run::pod(trace, scheme)));
    Figure {
        name: "pod-12-queues",
        source: "POD, section 4.2",
        title: "requests in flight when another comes".into(),
        rows: all,
        chart: bars(results, "Requests in progress when another comes", "requests", &SCHEMES, ours, |_, _| None),
        notes: Vec::new(),
    }
}

fn of_the_abstract(results: &Results) -> Figure {
    let value = Outcome::mean_ms;
    let gains = TRACES.map(|trace| gain(results, trace, Scheme::POD, Scheme::IDEDUP, value));
    let mut all =
        vec![Row::claim("pod-abstract/most", most_of(gains)), Row::claim("pod-abstract/mean", mean_of(gains))];
    all.extend(TRACES.into_iter().zip(gains).map(|(trace, gain)| Row::new(trace.name(), "%", gain)));
    let drawn = |scheme: Scheme| {
        let gains = TRACES.map(|trace| gain(results, trace, scheme, Scheme::IDEDUP, value));
        let heights = [&gains[..], &[mean_of(gains), most_of(gains)]].concat();
        let printed = |id| find(id).value.filter(|_| scheme == Scheme::POD);
        let papers = vec![None, None, None, printed("pod-abstract/mean"), printed("pod-abstract/most")];
        Bars::new(title(scheme), heights.into_iter().map(|gain| gain.max(0.0)).collect()).papers(papers)
    };
    let groups = names().into_iter().chain(["mean".into(), "most".into()]).collect();
    let series = [Scheme::SELECT, Scheme::POD, Scheme::CURVES].map(drawn).to_vec();
    Figure {
        name: "pod-abstract",
        source: "POD, abstract",
        title: "how much less the mean response time is than under iDedup".into(),
        rows: all,
        chart: Chart::bars("Mean response time against iDedup", "% less than under iDedup", groups, series),
        notes: Vec::new(),
    }
}
