//! Onefold itself on the weeks of the table: its log, journal and tables on the same drive, with the same memory.
//!
//! The slides' techniques keep every block at its address. Onefold writes to a log, so duplicates are found and the cache goes by content, but there is no home that a copy
//! could be nearer than.

use engine::{CacheKey, Nanos, Policy};

use super::super::runs::Results;
use super::super::{Entry, Figure, Row};
use super::table::{MEMORY, setup};
use super::{bars, sized, trace};
use crate::disks::Disk;
use crate::disks::drive::Drive;
use crate::io_deduplication::replay::{Setup as InPlace, replay};
use crate::io_deduplication::workload::Shape;
use crate::parallel::{cores, in_order};
use crate::replay::driver::Setup;
use crate::replay::onefold::{Onefold, Pool, Warmed};
use crate::replay::sparse::Sparse;
use crate::traces::Request;

pub(super) const ONEFOLD: Entry = Entry {
    name: "iodedup-onefold",
    about: "beyond I/O Deduplication: Onefold on the weeks of the table, its cache by sector and by content",
    runs: Vec::new,
    make: onefold,
};

const WAYS: [(&str, Pool); 4] = [
    ("native, by sector", Pool { policy: Some(Policy::Native), cache_key: CacheKey::Sector }),
    ("native, by content", Pool { policy: Some(Policy::Native), cache_key: CacheKey::Content }),
    ("select, by sector", Pool { policy: Some(Policy::SELECT), cache_key: CacheKey::Sector }),
    ("select, by content", Pool { policy: Some(Policy::SELECT), cache_key: CacheKey::Content }),
];
/// The least memory that Onefold takes for a drive of this size; the weeks' part of the paper's may be less.
const LEAST: u64 = 64 << 20;
/// So many times as fast as the week. The table's 100 are more than one drive can do on mail and homes: there its clients wait for one another, and here all that waited would count.
const PACE: u64 = 10;
/// What a block that is written takes of a processor of today (docs/performance.md).
const DIGEST: Nanos = 1_500;

/// Mean time of a read in milliseconds, reads of the drive, blocks shared.
struct Outcome {
    response_ms: f64,
    reads: u64,
    shared_blocks: u64,
}

/// What was there before the week: whatever is read before it is written.
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

fn run(week: &[Request], memory: u64, pool: Pool) -> Result<Outcome, String> {
    let drive = Drive::wd1600aajs_like();
    let setup = Setup { digest: DIGEST, speed: PACE * 1000, ..Setup::default() };
    let warmed = Warmed::of(drive.capacity(), memory, setup, pool, before(week).into_iter().map(Ok::<_, String>))
        .map_err(|why| why.0)?;
    let disk = Disk::from_spec("hdd:wd1600aajs")?;
    let outcome = warmed
        .replay(Onefold { through: false, nvram: false }, disk, setup, week.iter().cloned().map(Ok::<_, String>))
        .map_err(|why| why.0)?;
    Ok(Outcome {
        response_ms: outcome.reads.mean_ms(),
        reads: outcome.disk.reads,
        shared_blocks: outcome.counts.shared_blocks,
    })
}

fn onefold(results: &Results) -> Figure {
    let shapes = Shape::ALL.map(|shape| sized(shape, results.quick));
    let weeks = shapes.map(trace);
    let count = WAYS.len() as u64 + 2;
    let memory = |shape: Shape| (MEMORY / shape.part).max(LEAST);
    let outcomes = in_order(cores(), shapes.len() as u64 * count, |at| {
        let (shape, way) = ((at / count) as usize, (at % count) as usize);
        match way.checked_sub(2) {
            // Vanilla, and the slides' cache.
            None => {
                let outcome = replay(
                    &weeks[shape],
                    &InPlace { memory: memory(shapes[shape]), speed: PACE, ..setup(shapes[shape], way) },
                );
                Ok(Outcome { response_ms: outcome.response_ms(), reads: outcome.commands, shared_blocks: 0 })
            }
            Some(way) => run(&weeks[shape], memory(shapes[shape]), WAYS[way].1),
        }
    });
    let names = ["in place, vanilla", "in place, content cache"].into_iter().chain(WAYS.map(|(name, _)| name));
    let names: Vec<&'static str> = names.collect();
    let mut rows = Vec::new();
    let mut heights = vec![Vec::new(); names.len()];
    for (shape, outcomes) in shapes.into_iter().zip(outcomes.chunks(names.len())) {
        let vanilla = outcomes[0].as_ref().map_or(0.0, |outcome| outcome.response_ms);
        for ((name, outcome), heights) in names.iter().zip(outcomes).zip(&mut heights) {
            let label = format!("{}, {name}: response of a read", shape.name());
            match outcome {
                Ok(Outcome { response_ms, reads, shared_blocks }) => {
                    heights.push(100.0 * response_ms / vanilla);
                    let note = format!("{reads} reads of the drive, {shared_blocks} blocks shared");
                    rows.push(Row::new(label, "ms", *response_ms).note(note));
                }
                Err(why) => {
                    heights.push(0.0);
                    rows.push(Row::holds(label, false).note(why.clone()));
                }
            }
        }
        for (less, than) in [(3, 2), (5, 4)] {
            if let (Ok(less_of), Ok(than_of)) = (&outcomes[less], &outcomes[than]) {
                let holds = less_of.reads <= than_of.reads;
                let label =
                    format!("{}: {} reads the drive no more often than {}", shape.name(), names[less], names[than]);
                rows.push(Row::holds(label, holds));
            }
        }
    }
    Figure {
        name: "iodedup-onefold",
        source: "beyond I/O Deduplication",
        title: "Onefold on the same weeks".into(),
        rows,
        chart: bars(
            "Time of a read, of vanilla",
            "%",
            shapes.map(|shape| shape.name().to_string()).to_vec(),
            names.into_iter().zip(heights).map(|(name, heights)| (name, heights, Vec::new())).collect(),
        ),
        notes: vec![
            "Same drive, same memory (64 MiB at least: Onefold's tables for a drive of 160 GB need that), requests at 10 times their pace. Onefold answers writes from memory, as the \
             table's drive does with its write cache, and its memory holds its index and its tables, too. A block written takes 1.5 us of its processor, one of today; the slides' model takes none for writes. What is read before it is written was there before."
                .into(),
        ],
    }
}
