//! Figure of the product's copies of popular blocks, in isolation: five weeks of each shape, a drive that is not busy all day, memory for the tables, and no
//! read cache that would keep popular blocks from the drive.

use engine::CacheKey;

use super::super::runs::Results;
use super::super::{Entry, Figure, Row};
use super::onefold::{COPIES, Outcome, Way, run, with_nights};
use super::{Bars, Chart, TOLERANCE, sized, trace_of};
use crate::io_deduplication::workload::Shape;
use sim::parallel::{cores, in_order};

pub(super) const REPLICAS: Entry = Entry {
    name: "iodedup-replicas",
    about: "beyond I/O Deduplication: Onefold's replicas in order and copies of popular blocks, five seeds, a drive that is not busy all day",
    runs: Vec::new,
    make: replicas,
};

const SEEDS: u64 = 5;
/// Memory: enough for counts and tables of all popular blocks.
const MEMORY: u64 = 1 << 30;
const WAYS: [Way; 3] = [
    with_nights("no replicas", Some(0), CacheKey::Off),
    with_nights("replicas in order", None, CacheKey::Off),
    with_nights("replicas in order and copies", Some(COPIES), CacheKey::Off),
];
/// Target busy time of the drive by day in percent; `NEAR` is the tolerance of the search. The search begins with the first rate, in thousandths, and takes a
/// few trials. The work of the drive by day grows less than the rate, since a part of it is the pool's upkeep, which depends on time.
const HALF: f64 = 50.0;
const NEAR: f64 = 5.0;
const FIRST_PACE: u64 = 1000;
const TRIALS: u32 = 8;

/// Finds the rate in thousandths at which a drive is about half busy; returns it with the busy time in percent. If no rate is near, it returns the last one
/// that could be run.
fn half_busy(busy: impl Fn(u64) -> Result<f64, String>) -> (u64, f64) {
    let (mut pace, mut found) = (FIRST_PACE, (FIRST_PACE, f64::NAN));
    for _ in 0..TRIALS {
        let Ok(percent) = busy(pace) else { break };
        found = (pace, percent);
        if (percent - HALF).abs() <= NEAR {
            break;
        }
        pace = ((pace as f64 * HALF / percent.max(1.0)) as u64).max(1);
    }
    found
}

/// Returns the mean of a sample and its standard error.
fn mean(sample: &[f64]) -> (f64, f64) {
    let count = sample.len() as f64;
    let mean = sample.iter().sum::<f64>() / count;
    let squares: f64 = sample.iter().map(|value| (value - mean) * (value - mean)).sum();
    (mean, libm::sqrt(squares / (count - 1.0).max(1.0) / count))
}

fn replicas(_: &Results) -> Figure {
    // The sizes of the short form, in both forms: there are some 60 runs of the engine.
    let shapes = Shape::ALL.map(|shape| sized(shape, true));
    // Without nights the drive serves only requests.
    let by_day = Way { rests: false, ..WAYS[0] };
    let busy = |at: usize, pace: u64| -> Result<f64, String> {
        let outcome = run(&trace_of(shapes[at], 1), shapes[at].part, &by_day, (MEMORY, pace))?;
        Ok(100.0 * outcome.busy as f64 * pace as f64 / 1000.0 / shapes[at].span() as f64)
    };
    let found = in_order(cores(), 3, |at| half_busy(|pace| busy(at as usize, pace)));
    let ways = WAYS.len() as u64;
    let outcomes = in_order(cores(), 3 * SEEDS * ways, |at| {
        let (shape, seed, way) = ((at / ways / SEEDS) as usize, at / ways % SEEDS, (at % ways) as usize);
        let week = trace_of(shapes[shape], seed + 1);
        run(&week, shapes[shape].part, &WAYS[way], (MEMORY, found[shape].0))
    });
    let (mut rows, mut heights) = (Vec::new(), vec![Vec::new(); WAYS.len()]);
    for ((shape, by_day), outcomes) in shapes.into_iter().zip(found).zip(outcomes.chunks((SEEDS * ways) as usize)) {
        let seeds: Vec<_> = outcomes.chunks(ways as usize).collect();
        of_shape(shape, by_day, &seeds, &mut rows, &mut heights);
    }
    Figure {
        name: "iodedup-replicas",
        source: "beyond I/O Deduplication",
        title: "replicas in order, and copies of popular blocks".into(),
        rows,
        chart: Chart::bars(
            "Mean response time of a read, five seeds",
            "% of no replicas",
            shapes.map(|shape| shape.name().to_string()).to_vec(),
            WAYS.iter().zip(heights).map(|(way, heights)| Bars::new(way.name, heights)).collect(),
        ),
        notes: vec![
            "An eighth of the table's sizes, in both forms. The policy is native, the drive is said to have heads, and it rests after each day until the engine's epoch is over. 1 GiB of memory, and no read cache: at 1 GiB it would hold all that these parts of a \
             week read, and nothing popular would reach the drive. So this is what copies can gain at most. Service is that of the command that completed last."
                .into(),
            "Errors are standard errors of the mean of five weeks, made of seeds 1 to 5; gains are of the same week.".into(),
        ],
    }
}

type Outcomes<'a> = &'a [Result<Outcome, String>];

fn of_shape(shape: Shape, (pace, busy): (u64, f64), seeds: &[Outcomes], rows: &mut Vec<Row>, heights: &mut [Vec<f64>]) {
    let name = shape.name();
    let of = |way: usize, value: &dyn Fn(&Outcome) -> f64| -> Vec<f64> {
        seeds.iter().map(|seed| seed[way].as_ref().map_or(f64::NAN, value)).collect()
    };
    let pace = pace as f64 / 1000.0;
    rows.push(Row::new(format!("{name}: pace, so that the drive is about half busy by day"), "", pace));
    rows.push(Row::new(format!("{name}: drive busy by day at that pace"), "%", busy));
    let why = seeds.iter().flat_map(|seed| seed.iter()).find_map(|outcome| outcome.as_ref().err());
    let response = [0, 1, 2].map(|way| of(way, &|outcome| outcome.response_ms));
    for (at, (way, heights)) in WAYS.iter().zip(heights).enumerate() {
        let copied = mean(&of(at, &|outcome| outcome.from_copies as f64)).0;
        let reads = mean(&of(at, &|outcome| outcome.reads as f64)).0;
        let (service, service_error) = mean(&of(at, &|outcome| outcome.service_ms));
        let (time, error) = mean(&response[at]);
        let mut note = format!("+- {error:.2}; {reads:.0} reads of the drive, {copied:.0} blocks from copies");
        if let Some(why) = why {
            note += &format!("; {why}");
        }
        rows.push(Row::new(format!("{name}, {}: response of a read", way.name), "ms", time).note(note));
        let label = format!("{name}, {}: service of a read", way.name);
        rows.push(Row::new(label, "ms", service).note(format!("+- {service_error:.2}")));
        heights.push(100.0 * time / mean(&response[0]).0);
    }
    for (claim, to, from) in [("in-order", 1, 0), ("copies", 2, 1)] {
        let gains: Vec<f64> =
            response[to].iter().zip(&response[from]).map(|(to, from)| 100.0 * (1.0 - to / from)).collect();
        let (gain, error) = mean(&gains);
        let holds = gain >= 100.0 * TOLERANCE && gain > 2.0 * error;
        let row = Row::statement(&format!("iodedup-replicas/{claim}-{name}"), holds);
        rows.push(row.note(format!("{gain:.2} +- {error:.2} % less")));
    }
}
