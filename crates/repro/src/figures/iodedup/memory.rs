//! Costs of the metadata: memory by the slides' formula, and steps of a lookup by number of buckets.

use super::super::claims::find;
use super::super::runs::Results;
use super::super::{Data, Entry, Figure, Row};
use super::{Bars, Chart};
use crate::io_deduplication::metadata_bytes;
use crate::traces::BLOCK;

pub(super) const MEMORY: Entry = Entry {
    name: "iodedup-memory",
    about: "I/O Deduplication, overhead: memory of the metadata, and steps of a look-up",
    runs: Vec::new,
    make: memory,
};

const GIB: u64 = 1 << 30;
/// Our metadata for each buffer: 24 bytes, and 4 to 8 for lists (docs/papers/io-deduplication.md).
const OURS: (u64, u64) = (28, 32);

fn memory(_: &Results) -> Figure {
    let pages = GIB / BLOCK;
    let bytes = metadata_bytes(pages, 4, 1_000_000);
    let percent = |bytes: u64| 100.0 * bytes as f64 / GIB as f64;
    let mut rows = vec![
        Row::claim("iodedup-memory/mib", bytes as f64 / f64::from(1 << 20))
            .note("49.2 MB of 10^6 bytes. The slides' 48 lie between the two readings."),
        Row::claim("iodedup-memory/percent", percent(bytes)),
        Row::new("Onefold, cache-key=content, at least", "%", percent(OURS.0 * pages))
            .note("its map and its summaries know all places; the slides' tables have to"),
        Row::new("Onefold, cache-key=content, at most", "%", percent(OURS.1 * pages)),
    ];
    for buckets in [1_000, 1_000_000] {
        // A failed lookup traverses the whole chain.
        let chain = pages as f64 / buckets as f64;
        rows.push(Row::new(format!("{buckets} buckets: pages of a chain"), "", chain));
    }
    rows.push(Row::claim("iodedup-memory/micros", 101_000.0 / 2_000.0));
    let rows: Vec<Row> = rows.into_iter().map(|row| row.of(Data::Model)).collect();
    let series = [1, 2, 3, 4, 8].map(|similarity| percent(metadata_bytes(pages, similarity, 1_000_000)));
    let stated = find("iodedup-memory/percent").value;
    Figure {
        name: "iodedup-memory",
        source: "I/O Deduplication, overhead",
        title: "memory of the metadata for 1 GB".into(),
        rows,
        chart: Chart::bars(
            "Metadata of a cache of 1 GB, by the slides' formula",
            "% of the cache",
            ["1", "2", "3", "4", "8"].map(|similarity| format!("similarity {similarity}")).to_vec(),
            vec![Bars::new("I/O Deduplication", series.to_vec()).papers(vec![None, None, None, stated, None])],
        ),
        notes: vec!["mem(P, WSS, HTB) = 13 P + 36 P WSS + 8 HTB.".into()],
    }
}
