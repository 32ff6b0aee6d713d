//! Frontier of hits against bytes written to flash, of all policies, for caches from 0.5 to 50 % of the data. At equal hits, fewer written bytes are better.
//!
//! Reads are of single containers (Zipf) for two days. The first day begins with an empty cache, the second with the cache of the first.

use super::super::plot::{Chart, Line, Scale};
use super::super::runs::Results;
use super::super::{Entry, Figure, Row};
use super::{CONTAINERS, PAPER, Workload, ours, percent, sized};
use crate::flash_cache::policies::Policy;
use crate::flash_cache::workload::Shape;
use crate::flash_cache::{Outcome, Setup};

const fn entry(name: &'static str, about: &'static str, make: fn(&Results) -> Figure) -> Entry {
    Entry { name, about, runs: Vec::new, make }
}

pub(super) const FLAT: Entry =
    entry("plc-frontier-06", "beyond PLC: hits against bytes written, all policies, alpha 0.6", |results| {
        frontier(results, "plc-frontier-06", 0.6)
    });
pub(super) const MODERATE: Entry =
    entry("plc-frontier-08", "beyond PLC: hits against bytes written, all policies, alpha 0.8", |results| {
        frontier(results, "plc-frontier-08", 0.8)
    });
pub(super) const USUAL: Entry =
    entry("plc-frontier-10", "beyond PLC: hits against bytes written, all policies, alpha 1.0", |results| {
        frontier(results, "plc-frontier-10", 1.0)
    });
pub(super) const STEEP: Entry =
    entry("plc-frontier-12", "beyond PLC: hits against bytes written, all policies, alpha 1.2", |results| {
        frontier(results, "plc-frontier-12", 1.2)
    });

/// Caches in thousandths of the data.
const SIZES: [u64; 7] = [5, 10, 20, 50, 100, 200, 500];
/// The short form leaves out the smallest, of which nothing is left.
const QUICK_SIZES: [u64; 3] = [20, 50, 200];

fn policies(cache: u64) -> [Policy; 10] {
    [
        Policy::Fifo,
        Policy::Lru,
        Policy::Lfu,
        Policy::Larc,
        Policy::Arc,
        Policy::S3Fifo,
        PAPER,
        ours(cache),
        Policy::DLru,
        Policy::DArc,
    ]
}

fn frontier(results: &Results, name: &'static str, alpha: f64) -> Figure {
    let shape = sized(Shape { alpha, ..CONTAINERS }, results.quick);
    let workload = Workload::new(Shape { read_bytes: 2 * shape.read_bytes, ..shape });
    let sizes: &[u64] = if results.quick { &QUICK_SIZES } else { &SIZES };
    let mut setups = Vec::new();
    for &permille in sizes {
        let cache = workload.cache(permille);
        setups.extend(policies(cache).map(|policy| Setup { days: 2, ..Setup::new(policy, cache) }));
    }
    let outcomes = workload.run_in_parts(&setups, 2);
    let mut rows = Vec::new();
    for (setup, days) in setups.iter().zip(&outcomes) {
        let [first, second] = days[..] else { continue };
        let of = format!("cache {}, {}", percent(setup.cache_bytes * 1000 / workload.shape.bytes), setup.policy.name());
        let note = format!("second day {:.2} %", second.hit_percent());
        rows.push(Row::new(format!("{of}: hits"), "%", first.hit_percent()).note(note));
        let note = format!("second day {:.1} GB", second.written_gib());
        rows.push(Row::new(format!("{of}: written"), "GB", first.written_gib()).note(note));
    }
    let mut points = Points::default();
    for (at, &permille) in sizes.iter().enumerate() {
        for (day, title) in ["first day", "second day"].into_iter().enumerate() {
            let of = |policy: usize| &outcomes[at * 10 + policy][day];
            points.judge(&mut rows, &format!("cache {}, {title}", percent(permille)), permille, of(1), of(6), of(7));
        }
    }
    for (claim, points) in [("lru", points.lru), ("plc", points.plc), ("written", points.written)] {
        rows.push(Row::every(&format!("{name}/{claim}"), points));
    }
    Figure {
        name,
        source: "beyond PLC",
        title: format!("hits against bytes written, alpha {alpha}"),
        rows,
        chart: picture(alpha, sizes.len(), &setups, &outcomes),
        notes: vec![
            "Each line goes from the smallest cache to the largest. A policy is better the further its line is to the left and the higher. \
             Without shared contents D-LRU is LRU, and D-ARC close to ARC; they are in the table."
                .into(),
            "On the first day every cache must be filled. Where LRU's hits are so many that it writes little more than a filling, no policy can \
             write half of that and hit as much: that is so with alpha 1.2. On the second day the cache is full."
                .into(),
        ],
    }
}

/// Verdicts on our policy at each point: at least LRU's and PLC-Cache's hits; from 1 to 5 % an eighth of LRU's bytes at most, at 20 % a half.
#[derive(Default)]
struct Points {
    lru: Vec<(String, bool)>,
    plc: Vec<(String, bool)>,
    written: Vec<(String, bool)>,
}

impl Points {
    fn judge(&mut self, rows: &mut Vec<Row>, title: &str, permille: u64, lru: &Outcome, plc: &Outcome, ours: &Outcome) {
        for (points, other, name) in [(&mut self.lru, lru, "LRU"), (&mut self.plc, plc, "PLC-Cache")] {
            let more = ours.hit_percent() - other.hit_percent();
            rows.push(Row::new(format!("{title}: ours hits more than {name} by"), "points", more));
            points.push((format!("{title} ({more:.2} points)"), more >= 0.0));
        }
        let most = match permille {
            10..=50 => 12.5,
            200 => 50.0,
            _ => return,
        };
        let share = 100.0 * ours.written_bytes as f64 / lru.written_bytes as f64;
        rows.push(Row::new(format!("{title}: ours writes, of LRU's bytes"), "%", share));
        self.written.push((format!("{title} ({share:.1} % of {most} %)"), share <= most));
    }
}

fn picture(alpha: f64, sizes: usize, setups: &[Setup], outcomes: &[Vec<Outcome>]) -> Chart {
    let line = |policy: usize| {
        let first = (0..sizes).map(|size| outcomes[size * 10 + policy][0]);
        let points = first.map(|first| (first.written_gib().max(0.01), first.hit_percent())).collect();
        Line::new(setups[policy].policy.name(), points).colour(policy).dashed(policy.is_multiple_of(2))
    };
    Chart::lines(
        format!("Hits against bytes written on the first day, alpha {alpha}"),
        ("GB written", "hits in % of reads"),
        (0..8).map(line).collect(),
    )
    .scale_x(Scale::Log)
    .range_y(0.0, 100.0)
}
