//! Sweeps of the size of the cache, the exponent, containers, chunks and the threshold (the slides "Under Various ...").

use engine::admission::{Filter, Rules};

use super::super::plot::{Chart, Line, Scale};
use super::super::runs::Results;
use super::super::{Entry, Figure, Row};
use super::calibrated::{Mean, SLIDES};
use super::{CONTAINERS, PAPER, Workload, ours, percent, sized};
use crate::flash_cache::policies::Policy;
use crate::flash_cache::workload::Shape;
use crate::flash_cache::{Handling, Outcome, Setup};

pub(super) const CACHE_SIZE: Entry = Entry {
    name: "plc-cache-size",
    about: "PLC slides, cache size: time and bytes written, LRU and PLC-Cache",
    runs: Vec::new,
    make: cache_size,
};
pub(super) const ALPHA: Entry = Entry {
    name: "plc-alpha",
    about: "PLC slides, alpha of Zipf: time and bytes written, LRU and PLC-Cache",
    runs: Vec::new,
    make: alpha,
};
pub(super) const CONTAINER: Entry = Entry {
    name: "plc-container",
    about: "PLC slides, container size: time and bytes written, LRU and PLC-Cache",
    runs: Vec::new,
    make: container,
};
pub(super) const CHUNK: Entry = Entry {
    name: "plc-chunk",
    about: "PLC slides, chunk size: time and bytes written, LRU and PLC-Cache",
    runs: Vec::new,
    make: chunk,
};
pub(super) const THRESHOLD: Entry = Entry {
    name: "plc-threshold",
    about: "PLC slides, PF threshold: time and bytes written of PLC-Cache",
    runs: Vec::new,
    make: threshold,
};

/// Divisor of the 520 GB of reads where a read of a file is one of containers: these are five times as many.
const FILES_PART: u64 = 4;
const NAMES: [&str; 3] = ["LRU", "PLC-Cache", "ours"];

/// A point of a sweep: its label, its place on the axis, and the outcome for each of [`NAMES`].
struct Point {
    label: String,
    x: f64,
    outcomes: Vec<Outcome>,
}

/// Measures LRU, PLC-Cache and ours with disks, on a workload.
fn point(label: String, x: f64, workload: &Workload, permille: u64, chunk_bytes: u64) -> Point {
    let cache = workload.cache(permille);
    let setups = [Policy::Lru, PAPER, ours(cache)].map(|policy| {
        let disks = Some(Handling::Foreground);
        Setup { disks, chunk_bytes, ..Setup::new(policy, cache) }
    });
    Point { label, x, outcomes: workload.run(&setups) }
}

fn seconds(outcome: &Outcome) -> f64 {
    outcome.nanos as f64 / 1e9
}

/// Makes the rows of a sweep; the slides say that PLC-Cache is faster and writes less at each point.
fn rows(name: &str, points: &[Point]) -> Vec<Row> {
    let mut rows = Vec::new();
    for Point { label, outcomes, .. } in points {
        for (policy, outcome) in NAMES.into_iter().zip(outcomes) {
            let note = format!("hits {:.1} %", outcome.hit_percent());
            rows.push(Row::new(format!("{label}, {policy}: time"), "s", seconds(outcome)).note(note));
            rows.push(Row::new(format!("{label}, {policy}: written"), "GB", outcome.written_gib()));
        }
    }
    let each = |holds: fn(&[Outcome]) -> bool| points.iter().map(move |point| (&*point.label, holds(&point.outcomes)));
    for (claim, holds) in [
        ("time", each(|of| of[1].nanos < of[0].nanos)),
        ("written", each(|of| of[1].written_bytes < of[0].written_bytes)),
        ("ours", each(|of| of[2].nanos < of[0].nanos)),
    ] {
        rows.push(Row::every(&format!("{name}/{claim}"), holds));
    }
    rows
}

fn figure(
    name: &'static str,
    source: &'static str,
    title: &str,
    (x_label, scale): (&str, Scale),
    points: Vec<Point>,
    more: Vec<Row>,
    notes: Vec<String>,
) -> Figure {
    let mut rows = rows(name, &points);
    rows.extend(more);
    let lines = |value: fn(&Outcome) -> f64| {
        let line = |(at, name): (usize, &str)| {
            Line::new(name, points.iter().map(|point| (point.x, value(&point.outcomes[at]))).collect())
        };
        NAMES.into_iter().enumerate().map(line).collect::<Vec<_>>()
    };
    let written = Chart::lines("", (x_label, "GB written"), lines(Outcome::written_gib));
    let chart = Chart::lines(
        format!("Time of all reads and bytes written: {title}"),
        (x_label, "time in seconds"),
        lines(seconds),
    )
    .below(written)
    .scale_x(scale);
    Figure { name, source, title: title.into(), rows, chart, notes }
}

fn cache_size(results: &Results) -> Figure {
    let workload = Workload::new(sized(CONTAINERS, results.quick));
    let sizes = [5, 10, 20, 50, 100, 200];
    let of = |permille: u64| {
        point(format!("cache {}", percent(permille)), permille as f64 / 10.0, &workload, permille, 4096)
    };
    let points: Vec<Point> = sizes.into_iter().map(of).collect();
    let falls = points.windows(2).all(|pair| pair[1].outcomes[0].written_bytes < pair[0].outcomes[0].written_bytes);
    let more = vec![Row::statement("plc-cache-size/lru-falls", falls)];
    let notes = vec![
        "With 20 % of the data PLC-Cache as printed is no longer faster: its filter keeps out what there would be space for. Ours lets all \
         in until the cache is full."
            .into(),
    ];
    figure(
        "plc-cache-size",
        "PLC slides, cache size",
        "LRU, PLC-Cache and ours by the size of the cache",
        ("cache in % of the data", Scale::Log),
        points,
        more,
        notes,
    )
}

fn alpha(results: &Results) -> Figure {
    let of = |alpha: f64| {
        let shape = Shape { alpha, ..CONTAINERS };
        point(format!("alpha {alpha}"), alpha, &Workload::new(sized(shape, results.quick)), 10, 4096)
    };
    let points: Vec<Point> = [0.6, 0.8, 1.0, 1.2].into_iter().map(of).collect();
    let falls = points.windows(2).all(|pair| seconds(&pair[1].outcomes[1]) < seconds(&pair[0].outcomes[1]));
    let more = vec![Row::statement("plc-alpha/faster", falls)];
    figure(
        "plc-alpha",
        "PLC slides, alpha of Zipf",
        "LRU, PLC-Cache and ours by the exponent",
        ("exponent of Zipf's law", Scale::Linear),
        points,
        more,
        vec!["Cache of 1 % of the data.".into()],
    )
}

/// Makes the slides' workload of files, with fewer reads.
fn files(results: &Results, container_bytes: u64) -> Workload {
    let shape = sized(Shape { container_bytes, ..Shape::SLIDES }, results.quick);
    Workload::new(Shape { read_bytes: shape.read_bytes / FILES_PART, ..shape })
}

fn container(results: &Results) -> Figure {
    let of = |mib: u64| {
        let workload = files(results, mib << 20);
        point(format!("containers of {mib} MiB"), mib as f64, &workload, 10, 4096)
    };
    let points: Vec<Point> = [1, 2, 4, 8, 16].into_iter().map(of).collect();
    let best = points.iter().map(|point| seconds(&point.outcomes[1])).fold(f64::MAX, f64::min);
    let largest = points.last().map_or(0.0, |point| seconds(&point.outcomes[1]));
    let more = vec![Row::statement("plc-container/large", largest > 1.2 * best)];
    figure(
        "plc-container",
        "PLC slides, container size",
        "LRU, PLC-Cache and ours by the size of containers",
        ("MiB of a container", Scale::Binary),
        points,
        more,
        vec!["Files of 64 KiB to 4 MiB, 130 GB of reads, cache of 1 %. A miss reads the whole container, of which the file needs a part.".into()],
    )
}

fn chunk(results: &Results) -> Figure {
    let workload = files(results, 4 << 20);
    let of = |kib: u64| point(format!("chunks of {kib} KiB"), kib as f64, &workload, 10, kib << 10);
    let points: Vec<Point> = [1, 2, 4, 8, 16].into_iter().map(of).collect();
    let time = |at: usize| seconds(&points[at].outcomes[1]);
    let more = vec![
        Row::statement("plc-chunk/small", (1..5).all(|at| time(at) < time(0))),
        // "Does not have obvious impacts".
        Row::claim("plc-chunk/no-impact", 100.0 * (time(2) / time(4) - 1.0)),
    ];
    figure(
        "plc-chunk",
        "PLC slides, chunk size",
        "LRU, PLC-Cache and ours by the size of chunks",
        ("KiB of a chunk", Scale::Binary),
        points,
        more,
        vec![
            "Files, 130 GB of reads, cache of 1 %. The size of chunks changes one thing here: 64 bytes for each chunk are read beside it. What it \
             does to deduplication is left out."
                .into(),
        ],
    )
}

/// Readers at once.
const READERS: [u32; 2] = [1, 8];

fn threshold(results: &Results) -> Figure {
    let thresholds = [1, 2, 3, 5, 8, 12, 20];
    let mut rows = Vec::new();
    let mut lines: Vec<Vec<Line>> = vec![Vec::new(); 2];
    for readers in READERS {
        let cases = thresholds.map(|threshold| {
            let rules = Rules { filter: Filter::Threshold(threshold), ..SLIDES.rules() };
            (Policy::Plc(rules), 5, readers)
        });
        let means = SLIDES.measure(&cases, Some(Handling::Foreground), results.quick);
        let who = if readers == 1 { "1 client".to_string() } else { format!("{readers} clients") };
        for (threshold, mean) in thresholds.into_iter().zip(&means) {
            let note = format!("hits {:.1} %, not popular {:.1} %", mean.hit_percent, mean.quadrants.unpopular);
            rows.push(Row::new(format!("threshold {threshold}, {who}: time"), "s", mean.seconds).note(note));
            rows.push(Row::new(format!("threshold {threshold}, {who}: written"), "GB", mean.written_gib));
        }
        let (first, fifth) = (&means[0], &means[3]);
        if readers > 1 {
            rows.push(Row::statement("plc-threshold/written", first.written_gib > fifth.written_gib));
            rows.push(Row::statement("plc-threshold/time", first.seconds > fifth.seconds));
        }
        let line = |value: fn(&Mean) -> f64| {
            Line::new(who.as_str(), thresholds.into_iter().map(f64::from).zip(means.iter().map(value)).collect())
        };
        lines[0].push(line(|mean| mean.seconds));
        lines[1].push(line(|mean| mean.written_gib));
    }
    let x_label = "reads before a container may enter";
    let written = lines.pop().unwrap_or_default();
    Figure {
        name: "plc-threshold",
        source: "PLC slides, impacts of PF threshold",
        title: "PLC-Cache by the threshold of its filter".into(),
        rows,
        chart: Chart::lines(
            "Time of all reads and bytes written by the threshold, calibrated",
            (x_label, "time in seconds"),
            lines.pop().unwrap_or_default(),
        )
        .below(Chart::lines("", (x_label, "GB written"), written)),
        notes: vec![
            "The run that is calibrated to the quadrants, by one client that reads one container after another, and by eight at once."
                .into(),
        ],
    }
}
