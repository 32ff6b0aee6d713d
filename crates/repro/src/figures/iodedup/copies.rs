//! Figure of one disk on which each content has 1 to 1,000 copies, beside a short-stroked one.

use super::super::runs::Results;
use super::super::{Data, Entry, Figure, Row};
use super::{Chart, Line, Scale};
use crate::io_deduplication::copies::{READS, expected, nearest_of, short_stroked};
use sim::parallel::{cores, in_order};

pub(super) const COPIES: Entry = Entry {
    name: "iodedup-copies",
    about: "I/O Deduplication, the author's test: the nearest of 1 to 1,000 copies against a short-stroked disk",
    runs: Vec::new,
    make: copies,
};

const COUNTS: [u64; 10] = [1, 2, 3, 5, 10, 30, 100, 200, 500, 1000];

fn copies(results: &Results) -> Figure {
    let reads = if results.quick { READS / 8 } else { READS };
    let found = in_order(cores(), COUNTS.len() as u64, |at| {
        let count = COUNTS[at as usize];
        [nearest_of(count, reads), expected(count), short_stroked(count, reads)]
    });
    let mut rows = Vec::new();
    let (mut near, mut stroked) = (Vec::new(), Vec::new());
    let mut series: [Vec<(f64, f64)>; 3] = Default::default();
    for (count, [nearest, expected, short]) in COUNTS.into_iter().zip(found) {
        let row = Row::new(format!("{count} copies: time of a read, nearest"), "ms", nearest).of(Data::Model);
        rows.push(row.note(format!("expected {expected:.2} ms")));
        near.push((format!("{count} copies"), (0.9 * expected..=1.1 * expected).contains(&nearest)));
        rows.push(Row::new(format!("1/{count} of the disk: time of a read"), "ms", short).of(Data::Model));
        for (points, value) in series.iter_mut().zip([nearest, expected, short]) {
            points.push((count as f64, value));
        }
        if count >= 100 {
            stroked.push((format!("{count} copies"), (nearest / short - 1.0).abs() <= 0.2));
        }
    }
    rows.push(Row::every("iodedup-copies/short-stroked", stroked).of(Data::Model));
    rows.push(Row::every("iodedup-copies/expected", near).of(Data::Model));
    let names = ["nearest of N copies", "expected of the drive", "short-stroked"];
    let series = names.into_iter().zip(series).map(|(name, points)| Line::new(name, points)).collect();
    Figure {
        name: "iodedup-copies",
        source: "I/O Deduplication, author's wiki",
        title: format!("{reads} reads of 4 KiB"),
        rows,
        chart: Chart::lines("The nearest of N copies", ("copies of each content", "time of a read in ms"), series)
            .scale_x(Scale::Log),
        notes: vec![
            "The drive of docs/internals/simulated-disks.md, 160 GB, all of it in use; the author has 500 GB. Copies lie anywhere, no content is read twice, requests follow each other without pause. Half a revolution, \
             4.2 ms, is left however near a copy is: the head is not at the right angle."
                .into(),
        ],
    }
}
