//! Table of the read time with each technique and with all.

use super::super::claims::find;
use super::super::runs::Results;
use super::super::{Entry, Figure, Row};
use super::{Bars, Chart, image, sized, trace};
use crate::io_deduplication::cache::{Fill, Key, Knowledge};
use crate::io_deduplication::replay::{Choice, Outcome, Setup, Tracker, replay};
use crate::io_deduplication::workload::{DAY, Shape};
use sim::parallel::{cores, in_order};

pub(super) const TABLE: Entry = Entry {
    name: "iodedup-table",
    about: "I/O Deduplication, all together: read time with each technique, three stand-ins at 100 times their pace",
    runs: Vec::new,
    make: table,
};

/// Minimum saving of a technique that helps, in percent of the time.
const HELPS: f64 = 1.0;
/// The cache of the paper's machine.
pub(super) const MEMORY: u64 = 1 << 30;
pub(super) const SPEED: u64 = 100;

/// Techniques of a row.
struct Way {
    name: &'static str,
    cache: Option<(Key, Knowledge)>,
    retrieval: Option<(Tracker, Choice)>,
    duplication: bool,
}

type Cached = Option<(Key, Knowledge)>;
type Retrieval = Option<(Tracker, Choice)>;

const fn way(name: &'static str, cache: Cached, retrieval: Retrieval, duplication: bool) -> Way {
    Way { name, cache, retrieval, duplication }
}

const CONTENT: Cached = Some((Key::Content, Knowledge::Seen));
/// Cache with the knowledge of Onefold's map, or of a disk scan.
const KNOWN: Cached = Some((Key::Content, Knowledge::All));
const SEEN: Retrieval = Some((Tracker::Seen, Choice::Arrival));

/// Rows whose cache is filled by reads alone.
const READS_FILL: &str = "content cache, writes past it";
const ALL_READS_FILL: &str = "all, writes past the cache";

/// The first eight are the slides'; the others are ablations.
const WAYS: [Way; 14] = [
    way("vanilla", None, None, false),
    way("+ content cache", CONTENT, None, false),
    way("+ replica retrieval", CONTENT, SEEN, false),
    way("all", CONTENT, SEEN, true),
    way("retrieval alone", None, SEEN, false),
    way("duplication without cache", None, SEEN, true),
    way("sector cache alone", Some((Key::Sector, Knowledge::Seen)), None, false),
    way("cache and duplication", CONTENT, None, true),
    way("content cache, all sectors known", KNOWN, None, false),
    way("all, the disk known", KNOWN, Some((Tracker::Disk, Choice::Arrival)), true),
    way("all, the disk known, chosen at dispatch", KNOWN, Some((Tracker::Disk, Choice::Dispatch)), true),
    way(READS_FILL, CONTENT, None, false),
    way(ALL_READS_FILL, CONTENT, SEEN, true),
    way("all, chosen at dispatch", CONTENT, Some((Tracker::Seen, Choice::Dispatch)), true),
];

pub(super) fn setup(shape: Shape, way: usize) -> Setup {
    let Way { name, cache, retrieval, duplication } = WAYS[way];
    let (tracker, choice) = retrieval.unwrap_or((Tracker::Seen, Choice::Arrival));
    Setup {
        cache: cache.map(|cache| cache.0),
        knowledge: cache.map_or(Knowledge::Seen, |cache| cache.1),
        fill: if [READS_FILL, ALL_READS_FILL].contains(&name) { Fill::Reads } else { Fill::All },
        retrieval: retrieval.is_some(),
        tracker,
        choice,
        duplication,
        memory: MEMORY / shape.part,
        speed: SPEED,
        part: shape.part,
        epoch: DAY / shape.part,
    }
}

/// Returns the reduction of one value against another, in percent of the latter.
fn less(value: f64, than: f64) -> f64 {
    100.0 * (1.0 - value / than)
}

fn table(results: &Results) -> Figure {
    let shapes = Shape::ALL.map(|shape| sized(shape, results.quick));
    let weeks = shapes.map(trace);
    let images = std::array::from_fn::<_, 3, _>(|at| image(shapes[at], &weeks[at]));
    let count = WAYS.len() as u64;
    let outcomes = in_order(cores(), shapes.len() as u64 * count, |at| {
        let (shape, way) = ((at / count) as usize, (at % count) as usize);
        replay(&weeks[shape], &images[shape], &setup(shapes[shape], way))
    });
    let mut rows = Vec::new();
    let mut heights = vec![Vec::new(); WAYS.len()];
    for (shape, outcomes) in shapes.into_iter().zip(outcomes.chunks(WAYS.len())) {
        let seconds: Vec<f64> = outcomes.iter().map(|outcome| outcome.service_s(shape.part)).collect();
        of_shape(shape, outcomes, &seconds, &mut rows);
        let highest = seconds[0];
        heights.iter_mut().zip(&seconds).for_each(|(heights, seconds)| heights.push(100.0 * seconds / highest));
    }
    Figure {
        name: "iodedup-table",
        source: "I/O Deduplication, all together",
        title: "time of reads, as the disk works on them, and as clients wait".into(),
        rows,
        chart: Chart::bars(
            "Time in which the disk works on reads",
            "% of vanilla",
            shapes.map(|shape| shape.name().to_string()).to_vec(),
            WAYS.iter().zip(heights).map(|(way, heights)| with_paper(way.name, heights, &shapes)).collect(),
        ),
        notes: vec![
            "One drive of 7,200 rpm (docs/internals/simulated-disks.md) with its write cache; at most 128 commands in progress; C-LOOK. The slides' seconds are of blktrace and do not say whether with the queue: both are here. \
             1 GiB for the cache is the machine's memory in the slides; the cache's own size is not stated."
                .into(),
            "Service is scaled to a week of the paper's amounts. The paper does not say how much of its traces was replayed.".into(),
        ],
    }
}

/// Makes the bars of a way, with the slides' gain of all together.
fn with_paper(name: &str, heights: Vec<f64>, shapes: &[Shape; 3]) -> Bars {
    let paper = |shape: &Shape| find(&format!("iodedup-table/gain-{}", shape.name())).value.map(|gain| 100.0 - gain);
    let papers = if name == "all" { shapes.iter().map(paper).collect() } else { Vec::new() };
    Bars::new(name, heights).papers(papers)
}

fn of_shape(shape: Shape, outcomes: &[Outcome], seconds: &[f64], rows: &mut Vec<Row>) {
    let name = shape.name();
    let id = |claim: &str| format!("iodedup-table/{claim}-{name}");
    for ((way, outcome), &seconds) in WAYS.iter().zip(outcomes).zip(seconds) {
        let note = format!(
            "{:.1} % of blocks found in the cache, {} reads of the disk, {} at another location, {} of them in scratch zones; mean distance {:.1} GB; {} blocks copied; {:.1} commands there when a read came",
            100.0 * outcome.hits as f64 / outcome.blocks.max(1) as f64,
            outcome.commands,
            outcome.redirected,
            outcome.from_scratch,
            outcome.distance as f64 * 4096.0 / 1e9 / outcome.commands.max(1) as f64,
            outcome.copied,
            outcome.mean_depth(),
        );
        let row = match way.name {
            "vanilla" => Row::claim(&id("vanilla"), seconds),
            "all" => Row::claim(&id("all"), seconds),
            _ => Row::new(format!("{name}, {}: service of all reads, scaled", way.name), "s", seconds),
        };
        rows.push(row.note(note));
        rows.push(Row::new(format!("{name}, {}: response of a read", way.name), "ms", outcome.response_ms()));
    }
    let response: Vec<f64> = outcomes.iter().map(|outcome| outcome.response as f64).collect();
    for (what, times) in [("service", seconds), ("response", &response)] {
        let all = less(times[3], times[0]);
        // The slides' seconds are of the disk: its service is judged.
        let is_judged = what == "service";
        rows.push(match is_judged {
            true => Row::claim(&id("gain"), all),
            false => Row::new(format!("{name}: less {what} with all"), "%", all),
        });
        for (part, from, to) in [
            ("the cache", 0, 1),
            ("retrieval after that", 1, 2),
            ("duplication after that", 2, 3),
            ("retrieval alone", 0, 4),
        ] {
            rows.push(Row::new(format!("{name}: less {what} by {part}"), "%", less(times[to], times[from])));
        }
        for (claim, to, from) in [
            ("cache", 1, 0),
            ("retrieval", 2, 1),
            ("duplication", 3, 2),
            ("retrieval-alone", 4, 0),
            ("duplication-alone", 5, 4),
        ] {
            let gain = less(times[to], times[from]);
            if is_judged {
                rows.push(Row::statement(&id(claim), gain >= HELPS).note(format!("{gain:.2} % less")));
            }
        }
    }
}
