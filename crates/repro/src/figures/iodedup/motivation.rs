//! Reasons for content-based caching: content is read more often, its reuse distance is shorter, it has several copies on the disk, and days share it.

use super::super::runs::Results;
use super::super::{Entry, Figure, Row};
use super::{Chart, Line, SEED, is_at_most, is_more, sized, trace};
use crate::io_deduplication::cache::Key;
use crate::io_deduplication::look::{both, distances, frequencies, overlap, working_set};
use crate::io_deduplication::workload::Shape;
use crate::traces::synthetic::similarity;

pub(super) const MOTIVATION: Entry = Entry {
    name: "iodedup-motivation",
    about: "I/O Deduplication, motivation: frequency and reuse distance by sector and content, similarity, overlap",
    runs: Vec::new,
    make: motivation,
};

/// Returns the mean number of reads of a different address or content.
fn mean(counts: &[u64]) -> f64 {
    counts.iter().sum::<u64>() as f64 / counts.len().max(1) as f64
}

fn motivation(results: &Results) -> Figure {
    let (mut rows, mut series) = (Vec::new(), Vec::new());
    for shape in Shape::ALL.map(|shape| sized(shape, results.quick)) {
        let (week, name) = (trace(shape), shape.name());
        for (writes, what) in [(false, "read"), (true, "written")] {
            let set = working_set(&week, writes);
            for (of, found) in [("blocks", set.total), ("sectors", set.sectors), ("contents", set.contents)] {
                let ours = found as f64 / shape.size(1.0) as f64;
                rows.push(Row::claim(&format!("iodedup-motivation/{of}-{what}-{name}"), ours));
            }
        }
        let id = |claim: &str| format!("iodedup-motivation/{claim}-{name}");
        rows.push(Row::claim(&id("both"), both(&week) as f64 / shape.size(1.0) as f64));
        rows.push(Row::claim(&id("similarity"), similarity(shape.profile, SEED)));
        let mut ranked = |key: Key, by: &str| {
            let counts = frequencies(&week, key);
            let points = (0..=20).map(|at| {
                let top = &counts[..counts.len() * at / 20];
                (5.0 * at as f64, 100.0 * top.iter().sum::<u64>() as f64 / counts.iter().sum::<u64>().max(1) as f64)
            });
            series.push(Line::new(format!("{name}, {by}"), points.collect()).dashed(key == Key::Sector));
            counts
        };
        let [sectors, contents] = [ranked(Key::Sector, "sector"), ranked(Key::Content, "content")];
        rows.push(Row::new(format!("{name}: reads of a sector"), "", mean(&sectors)));
        rows.push(Row::new(format!("{name}: reads of a content"), "", mean(&contents)));
        let most = |counts: &[u64]| counts.first().copied().unwrap_or(0) as f64;
        rows.push(Row::new(format!("{name}: reads of the most popular sector"), "", most(&sectors)));
        rows.push(Row::new(format!("{name}: reads of the most popular content"), "", most(&contents)));
        rows.push(Row::statement(
            &id("frequency"),
            is_more(mean(&contents), mean(&sectors)) && is_at_most(most(&sectors), most(&contents)),
        ));
        let [sector, content] = [Key::Sector, Key::Content].map(|key| distances(&week, key));
        let reads = working_set(&week, false).total as f64;
        for (by, distances) in [("sector", &sector), ("content", &content)] {
            let again = 100.0 * distances.len() as f64 / reads;
            rows.push(Row::new(format!("{name}: reads of blocks used before, by {by}"), "%", again));
            let median = distances.get(distances.len() / 2).copied().unwrap_or(0) as f64 * shape.part as f64;
            rows.push(Row::new(format!("{name}: median reuse distance by {by}, scaled"), "blocks", median));
        }
        // Shares of all reads: a first use is infinitely far.
        let near = |distances: &[u64]| distances.partition_point(|&distance| distance <= shape.size(1.0));
        rows.push(Row::statement(&id("recency"), is_more(near(&content) as f64, near(&sector) as f64)));
        let [sector, content] = [Key::Sector, Key::Content].map(|key| overlap(&week, key, shape.span()));
        rows.push(Row::new(format!("{name}: sectors of a day that the day before has, too"), "%", sector));
        rows.push(Row::new(format!("{name}: contents of a day that the day before has, too"), "%", content));
        rows.push(Row::statement(&id("overlap"), is_more(content, sector)));
    }
    Figure {
        name: "iodedup-motivation",
        source: "I/O Deduplication, motivation",
        title: "reads by sector and by content".into(),
        rows,
        chart: Chart::lines("Reads of the most popular sectors or contents", ("% of different ones", "% of reads"), series),
        notes: vec![
            "Amounts are scaled to the paper's week. Working sets are fitted, and so are mean frequencies, which follow from them. Similarity is that of the disk image of the stand-ins for POD; the weeks here do not use it, \
             but `iodedup-retrieval` and two rows of `iodedup-table` have such copies."
                .into(),
        ],
    }
}
