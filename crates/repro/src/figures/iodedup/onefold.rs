//! Figures of Onefold itself on the weeks of the table: its log, journal and tables on the same drive, with the same memory.
//!
//! The slides' techniques keep every block at its address. Onefold writes to a log, so it finds duplicates and can cache by content. But a block has no fixed
//! address that a copy could be nearer than.

use engine::{CacheKey, DeviceKind, Nanos, Policy};

use super::super::runs::Results;
use super::super::{Entry, Figure, Row};
use super::table::{MEMORY, setup};
use super::{Bars, Chart, is_at_most, sized, trace};
use crate::io_deduplication::replay::{Setup as InPlace, replay};
use crate::io_deduplication::workload::{DAY, Shape};
use crate::replay::driver::Setup;
use crate::replay::onefold::{Onefold, Pool, Warmed};
use crate::replay::outcome::Parts;
use crate::replay::sparse::Sparse;
use crate::traces::Request;
use sim::disks::drive::Drive;
use sim::disks::{Breakdown, Disk};
use sim::parallel::{cores, in_order};

pub(super) const ONEFOLD: Entry = Entry {
    name: "iodedup-onefold",
    about: "beyond I/O Deduplication: Onefold on the weeks of the table, its cache by sector and by content",
    runs: Vec::new,
    make: onefold,
};

/// Setting of the pool, and a flag for a rest of the drive after each day.
pub(super) struct Way {
    pub(super) name: &'static str,
    pub(super) pool: Pool,
    pub(super) rests: bool,
}

const WAYS: [Way; 7] = [
    way("native, by sector", Policy::Native, CacheKey::Sector),
    way("native, by content", Policy::Native, CacheKey::Content),
    way("select, by sector", Policy::SELECT, CacheKey::Sector),
    way("select, by content", Policy::SELECT, CacheKey::Content),
    with_nights("native, by content, nights", Some(0), CacheKey::Content),
    with_nights("native, by content, nights, replicas in order", None, CacheKey::Content),
    with_nights("native, by content, nights, replicas in order and copies", Some(COPIES), CacheKey::Content),
];

const fn way(name: &'static str, policy: Policy, cache_key: CacheKey) -> Way {
    Way {
        name,
        pool: Pool { policy: Some(policy), cache_key, index_copy: None, device: DeviceKind::Auto, replicas: None },
        rests: false,
    }
}

/// Returns a way in which the drive rests at night, and the engine knows that it is rotational. With no setting for replicas it makes replicas that linearise
/// scattered reads, up to a 128th of the drive. With a budget it also copies popular blocks at night; with one of 0 it makes none.
pub(super) const fn with_nights(name: &'static str, replicas: Option<u64>, cache_key: CacheKey) -> Way {
    let Way { pool, .. } = way(name, Policy::Native, cache_key);
    Way { name, pool: Pool { device: DeviceKind::Hdd, replicas, ..pool }, rests: true }
}
/// Minimum memory of Onefold for a drive of this size; the weeks' share of the paper's memory may be less.
const LEAST: u64 = 64 << 20;
/// Replay rate, in thousandths of the week's own. The table's 100 exceed the throughput of one drive on mail and homes. There its clients wait for one another,
/// and here the whole wait would count.
const PACE: u64 = 10_000;
/// Processor time of a written block on today's processors (bench/results/simulated.md).
const DIGEST: Nanos = 1_500;

/// Bytes that copies and other replicas may take: 1 % of the drive, as REFERENCE has it. (There is memory for less.)
pub(super) const COPIES: u64 = 1_600_000_000;
/// Interval between the starts of two days, where the drive rests at night: an epoch of the engine and an hour more.
const NEXT_DAY: Nanos = 25 * 3_600_000_000_000;

/// Results of a run.
pub(super) struct Outcome {
    /// Mean time from a read to its answer.
    pub(super) response_ms: f64,
    /// Part of the response time in service of the drive's command that completed last; 0 where memory answers.
    pub(super) service_ms: f64,
    /// Reads of the drive.
    pub(super) reads: u64,
    pub(super) shared_blocks: u64,
    /// Blocks read from copies.
    pub(super) from_copies: u64,
    /// Time in which the drive worked, in nanoseconds.
    pub(super) busy: Nanos,
}

/// Returns writes that fill the disk before the week: all blocks that are read before they are written.
fn before(week: &[Request]) -> Vec<Request> {
    let mut known = Sparse::default();
    let mut before = Vec::new();
    for request in week {
        for (block, &content) in (request.block..).zip(&request.contents) {
            if known.get(block) == 0 {
                known.set(block, 1);
                if !request.writes {
                    before.push(Request { at: 0, writes: true, block, blocks: 1, contents: vec![content] });
                }
            }
        }
    }
    before.sort_by_key(|request| request.block);
    before
}

/// Delays a request by a night after each day of the trace's own time, which is accelerated. A part of the amounts takes the same part of the time.
fn with_night(request: &Request, part: u64, pace: u64) -> Request {
    let day = DAY / part;
    Request { at: request.at + request.at / day * (NEXT_DAY / 1000 * pace - day), ..request.clone() }
}

/// Replays a week on a pool with a given memory, at a rate in thousandths of its own.
pub(super) fn run(
    week: &[Request],
    part: u64,
    &Way { pool, rests, .. }: &Way,
    (memory, pace): (u64, u64),
) -> Result<Outcome, String> {
    let drive = Drive::wd1600aajs_like();
    let setup = Setup { digest: DIGEST, speed: pace, ..Setup::default() };
    let warmed = Warmed::new(drive.capacity(), memory, setup, pool, before(week).into_iter().map(Ok::<_, String>))
        .map_err(|why| why.0)?;
    let disk = Disk::from_spec("hdd:wd1600aajs")?;
    let requests = week.iter().map(|request| if rests { with_night(request, part, pace) } else { request.clone() });
    let outcome = warmed
        .replay(Onefold { through: false, nvram: false, front: None }, disk, setup, requests.map(Ok::<_, String>))
        .map_err(|why| why.0)?;
    let service = |parts: &Parts| {
        let Breakdown { seek, rotation, transfer, overhead, .. } = parts.disk;
        seek + rotation + transfer + overhead
    };
    Ok(Outcome {
        response_ms: outcome.reads.mean_ms(),
        service_ms: outcome.reads.part_ms(service),
        busy: outcome.disk.busy,
        reads: outcome.disk.reads,
        shared_blocks: outcome.counts.shared_blocks,
        from_copies: outcome.from_copies,
    })
}

/// Returns the memory for a part of the week, at least `LEAST`.
fn memory(shape: Shape) -> u64 {
    (MEMORY / shape.part).max(LEAST)
}

fn onefold(results: &Results) -> Figure {
    let shapes = Shape::ALL.map(|shape| sized(shape, results.quick));
    let weeks = shapes.map(trace);
    let count = WAYS.len() as u64 + 2;
    let outcomes = in_order(cores(), shapes.len() as u64 * count, |at| {
        let (shape, way) = ((at / count) as usize, (at % count) as usize);
        match way.checked_sub(2) {
            // Vanilla, and the slides' cache.
            None => {
                let outcome = replay(
                    &weeks[shape],
                    &Vec::new(),
                    &InPlace { memory: memory(shapes[shape]), speed: PACE / 1000, ..setup(shapes[shape], way) },
                );
                Ok(Outcome {
                    response_ms: outcome.response_ms(),
                    service_ms: outcome.service as f64 / 1e6 / outcome.requests.max(1) as f64,
                    busy: outcome.busy,
                    reads: outcome.commands,
                    shared_blocks: 0,
                    from_copies: 0,
                })
            }
            Some(way) => run(&weeks[shape], shapes[shape].part, &WAYS[way], (memory(shapes[shape]), PACE)),
        }
    });
    let names = ["in place, vanilla", "in place, content cache"].into_iter().chain(WAYS.map(|way| way.name));
    let names: Vec<&'static str> = names.collect();
    let mut rows = Vec::new();
    let mut heights = vec![Vec::new(); names.len()];
    for (shape, outcomes) in shapes.into_iter().zip(outcomes.chunks(names.len())) {
        let vanilla = outcomes[0].as_ref().map_or(0.0, |outcome| outcome.response_ms);
        for ((name, outcome), heights) in names.iter().zip(outcomes).zip(&mut heights) {
            let label = format!("{}, {name}: response of a read", shape.name());
            match outcome {
                Ok(Outcome { response_ms, service_ms, reads, shared_blocks, from_copies, .. }) => {
                    heights.push(100.0 * response_ms / vanilla);
                    let note = format!(
                        "service {service_ms:.2} ms, {reads} reads of the drive, {shared_blocks} blocks shared, {from_copies} blocks from copies"
                    );
                    rows.push(Row::new(label, "ms", *response_ms).note(note));
                }
                Err(why) => {
                    heights.push(0.0);
                    rows.push(Row::new(label, "ms", f64::NAN).note(why.clone()));
                }
            }
        }
        // By content against by sector.
        for (claim, less, than) in [("native", 3, 2), ("select", 5, 4)] {
            if let (Ok(less_of), Ok(than_of)) = (&outcomes[less], &outcomes[than]) {
                let id = format!("iodedup-onefold/{claim}-{}", shape.name());
                rows.push(Row::statement(&id, is_at_most(less_of.reads as f64, than_of.reads as f64)));
            }
        }
    }
    Figure {
        name: "iodedup-onefold",
        source: "beyond I/O Deduplication",
        title: "Onefold on the same weeks".into(),
        rows,
        chart: Chart::bars(
            "Mean response time of a read",
            "% of vanilla in place",
            shapes.map(|shape| shape.name().to_string()).to_vec(),
            names.into_iter().zip(heights).map(|(name, heights)| Bars::new(name, heights)).collect(),
        ),
        notes: vec![
            "Same drive, same memory (64 MiB at least: Onefold's tables for a drive of 160 GB need that), requests at 10 times their pace. Onefold answers writes from memory, as the \
             table's drive does with its write cache, and its memory holds its index and its tables, too. A block written takes 1.5 us of its processor, one of today; the slides' model takes none for writes. What is read before it is written was there before. With nights, the drive rests after each day until the engine's epoch of a day is over: then popular blocks are copied, if they are. What copies gain by themselves is in `iodedup-replicas`."
                .into(),
        ],
    }
}
