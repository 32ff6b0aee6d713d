//! Figures of hits against the size of the cache, by sector and by content, reads and writes apart.

use std::path::{Path, PathBuf};

use super::super::runs::Results;
use super::super::{Data, Entry, Figure, Row};
use super::{Chart, Line, Scale, is_at_most, sized, trace};
use crate::flash_cache::policies::Policy;
use crate::io_deduplication::cache::{Key, Knowledge};
use crate::io_deduplication::content_blocks;
use crate::io_deduplication::hits::{Hits, Stream, count, oracle};
use crate::io_deduplication::look::working_set;
use crate::io_deduplication::workload::{Shape, journal_start};
use crate::traces::{BLOCK, Options, Request, open};
use sim::disks::drive::Drive;
use sim::parallel::{cores, in_order};

pub(super) const HITS: Entry = Entry {
    name: "iodedup-hits",
    about: "I/O Deduplication: hits against cache size by sector and by content, reads and writes apart",
    runs: Vec::new,
    make: hits,
};

/// Sizes of the paper's memory, in MiB.
const SIZES: [u64; 6] = [64, 128, 256, 512, 1024, 2048];
const POLICIES: [(Policy, &str); 2] = [(Policy::Lru, "LRU"), (Policy::Arc, "ARC")];
/// Keys of the compared caches. The third uses the knowledge of Onefold's own map: an ablation.
const KEYS: [(Key, Knowledge, &str); 3] = [
    (Key::Sector, Knowledge::Seen, "sector"),
    (Key::Content, Knowledge::Seen, "content"),
    (Key::Content, Knowledge::All, "content, all sectors known"),
];
/// The real sample, below `shared/data`.
const SAMPLE: &str = "fiu/mail_day1_first10000.csv";

/// Returns the blocks of a cache of `bytes` bytes: by content, its tables are paid from them.
fn blocks(key: Key, bytes: u64) -> u64 {
    if key == Key::Sector { bytes / BLOCK } else { content_blocks(bytes) }
}

/// Counts the hits for each size, policy and key.
fn all(stream: &Stream, part: u64) -> Vec<Hits> {
    let each = (POLICIES.len() * KEYS.len()) as u64;
    in_order(cores(), SIZES.len() as u64 * each, |at| {
        let keys = KEYS.len() as u64;
        let (size, policy, (key, knowledge, _)) = (at / each, at % each / keys, KEYS[(at % keys) as usize]);
        let bytes = (SIZES[size as usize] << 20) / part;
        count(stream, key, knowledge, POLICIES[policy as usize].0, blocks(key, bytes))
    })
}

fn hits(results: &Results) -> Figure {
    let (mut rows, mut series) = (Vec::new(), Vec::new());
    for shape in Shape::ALL.map(|shape| sized(shape, results.quick)) {
        let (week, name) = (trace(shape), shape.name());
        let stream = Stream::of(&week);
        let found = all(&stream, shape.part);
        for (policy, (_, policy_name)) in POLICIES.into_iter().enumerate() {
            for (key, (_, knowledge, by)) in KEYS.into_iter().enumerate() {
                let mut points = Vec::new();
                for (size, mib) in SIZES.into_iter().enumerate() {
                    let hits = found[(size * POLICIES.len() + policy) * KEYS.len() + key];
                    for (writes, what) in [(false, "reads"), (true, "writes")] {
                        let label = format!("{name}, {mib} MiB, {policy_name} by {by}: hits of {what}");
                        rows.push(Row::new(label, "%", hits.percent(writes)));
                    }
                    points.push((mib as f64, hits.percent(false)));
                }
                if policy == 1 && knowledge == Knowledge::Seen {
                    series.push(Line::new(format!("{name}, {by}"), points).dashed(key == 0));
                }
            }
        }
        // The slides' cache is ARC.
        let more = |(size, mib): (usize, u64)| {
            let at = (size * POLICIES.len() + 1) * KEYS.len();
            (format!("{mib} MiB"), is_at_most(found[at].percent(false), found[at + 1].percent(false)))
        };
        rows.push(Row::every(&format!("iodedup-hits/{name}"), SIZES.into_iter().enumerate().map(more)));
        let by_sector: Vec<f64> =
            (0..SIZES.len()).map(|size| found[(size * POLICIES.len() + 1) * KEYS.len()].percent(false)).collect();
        of_journal(&week, shape, &by_sector, &mut rows);
        for (key, by) in [(Key::Sector, "sector"), (Key::Content, "content, all sectors known")] {
            rows.push(Row::new(
                format!("{name}, without end, by {by}: hits of reads"),
                "%",
                oracle(&stream, key).percent(false),
            ));
        }
    }
    let mut notes = vec![
        "Memory is the paper's; stand-ins have their part of it. A cache by content pays its tables, 4.6 %, from its memory. Chart: ARC, reads. Writes fill both caches.".to_string(),
        "Writes: a sector that is written again is a hit by sector whatever is written, by content only if the content is known. A write that hits is written all the same."
            .into(),
    ];
    match sample() {
        Some(Ok(sample)) => of_sample(&sample, &mut rows),
        Some(Err(why)) => notes.push(why),
        None => notes.push(format!("There is no shared/data/{SAMPLE}: the real sample was not measured.")),
    }
    Figure {
        name: "iodedup-hits",
        source: "I/O Deduplication, hits versus cache size",
        title: "hits of a cache of 64 MiB to 2 GiB".into(),
        rows,
        chart: Chart::lines("Hits of reads, ARC", ("cache in MiB", "hits in % of blocks read"), series)
            .scale_x(Scale::Binary),
        notes,
    }
}

/// Adds rows on the anomaly of ARC by sector, whose read hits fall as memory grows: the sizes at which they fall, against the size of the journal. Further rows
/// have the falls that remain when the journal, or all writes, bypass the cache.
fn of_journal(week: &[Request], shape: Shape, all: &[f64], rows: &mut Vec<Row>) {
    let name = shape.name();
    let journal = shape.journal_blocks() as f64 / shape.size(1.0) as f64 * 1024.0;
    rows.push(Row::new(format!("{name}: journal, scaled"), "MiB", journal));
    let falls = |hits: &[f64]| {
        let pairs = hits.windows(2).zip(&SIZES[1..]);
        pairs.map(|(pair, mib)| (format!("{mib} MiB"), is_at_most(pair[0], pair[1]))).collect::<Vec<_>>()
    };
    // Falls where it begins to fit, and nowhere else.
    let first = SIZES.iter().find(|&&mib| mib as f64 >= journal);
    let expected =
        falls(all).into_iter().zip(&SIZES[1..]).map(|((label, rises), mib)| (label, rises || first == Some(mib)));
    rows.push(Row::every(&format!("iodedup-hits/falls-{name}"), expected));
    let start = journal_start(Drive::wd1600aajs_like().capacity() / BLOCK);
    let of_journal = |request: &Request| (start..start + shape.journal_blocks()).contains(&request.block);
    let without = |passes: &dyn Fn(&Request) -> bool| {
        Stream::of(&week.iter().filter(|request| !request.writes || !passes(request)).cloned().collect::<Vec<_>>())
    };
    let streams = [("journal", without(&of_journal)), ("writes", without(&|_| true))];
    for (what, stream) in streams {
        let found = in_order(cores(), SIZES.len() as u64, |size| {
            let blocks = (SIZES[size as usize] << 20) / shape.part / BLOCK;
            count(&stream, Key::Sector, Knowledge::Seen, Policy::Arc, blocks).percent(false)
        });
        for (mib, hits) in SIZES.into_iter().zip(&found) {
            let label = format!("{name}, {mib} MiB, ARC by sector, {what} past the cache: hits of reads");
            rows.push(Row::new(label, "%", *hits));
        }
        rows.push(Row::every(&format!("iodedup-hits/without-{what}-{name}"), falls(&found)));
    }
}

/// Reads the real sample of mail, if it lies beside the repository or further above.
fn sample() -> Option<Result<Vec<Request>, String>> {
    let mut above = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    let path: PathBuf =
        above.find_map(|above| Some(above.join("shared/data").join(SAMPLE)).filter(|path| path.exists()))?;
    let read = || open(&[path], &Options::default())?.collect::<Result<Vec<_>, _>>();
    Some(read().map_err(|error| error.to_string()))
}

fn of_sample(sample: &[Request], rows: &mut Vec<Row>) {
    let (read, stream) = (working_set(sample, false), Stream::of(sample));
    for (by, names) in [("sector", read.sectors), ("content", read.contents)] {
        let row = Row::new(format!("mail, real sample: different blocks read, by {by}"), "", names as f64);
        rows.push(row.of(Data::Real));
    }
    for (key, knowledge, by) in KEYS {
        for mib in [1, 4, 16, 64] {
            let hits = count(&stream, key, knowledge, Policy::Lru, blocks(key, mib << 20));
            let label = format!("mail, real sample, {mib} MiB, LRU by {by}: hits of reads");
            rows.push(Row::new(label, "%", hits.percent(false)).of(Data::Real));
        }
    }
    // Even a cache that knows all sectors has no more hits.
    let [sector, content] = [Key::Sector, Key::Content].map(|key| oracle(&stream, key).percent(false));
    for (by, most) in [("sector", sector), ("content, all sectors known", content)] {
        rows.push(
            Row::new(format!("mail, real sample, without end, by {by}: hits of reads"), "%", most).of(Data::Real),
        );
    }
    rows.push(Row::statement("iodedup-hits/sample", content - sector < 0.1).of(Data::Real));
}
