//! Figure of the conflict between sharing and sequential order (Fig. 1).

use engine::relocation::assess::{Assessment, Sharing, assess};
use engine::relocation::forecast::{Forecast, Moved};
use engine::relocation::plan::{Rules, plan};
use engine::relocation::{Content, Extent, Object, Run};

use super::super::runs::Results;
use super::super::{Data, Entry, Figure, Row};
use super::{Bars, Chart};

pub(super) const CHALLENGE: Entry = Entry {
    name: "rededup-challenge",
    about: "ReDedup fig. 1: two files share a block; only one of them can lie in order",
    runs: Vec::new,
    make: challenge,
};

/// Pieces in which files 1 and 2 are read, if the one with this number goes first.
fn pieces(first: u32) -> [u64; 2] {
    // A1 A2 lie together, B2 B3 lie together, and B1 is A3. As in the picture, only one file moves.
    let slots = [[0u64, 1, 20], [20, 30, 31]];
    let read = |(object, slots): (usize, [u64; 3])| {
        slots.map(|slot| Run { slot, blocks: 1, object: Object(object as u32 + 1) })
    };
    let runs: Vec<Run> = slots.into_iter().enumerate().flat_map(read).collect();
    let content = |(object, slots): (usize, [u64; 3])| Content {
        object: Object(object as u32 + 1),
        extents: slots.map(|slot| Extent { slot, blocks: 1 }).to_vec(),
    };
    let contents: Vec<Content> = slots.into_iter().enumerate().map(content).collect();
    let favour = |one: Assessment| Assessment { randomness: u64::from(one.object.0 == first) + 3, ..one };
    let assessments: Vec<Assessment> = assess(&runs, Sharing::Pairs).into_iter().map(favour).collect();
    let moved = Moved::new(&plan(&assessments, &contents, Rules { most_blocks: 3, ..Rules::PAPER }), 100);
    let forecast = Forecast::new(&runs, &moved);
    [forecast.objects[0].1.after, forecast.objects[1].1.after]
}

fn challenge(_: &Results) -> Figure {
    let mut rows = Vec::new();
    let (one, two) = (pieces(1), pieces(2));
    for (case, found, paper) in [(1, one, [1, 2]), (2, two, [2, 1])] {
        for (file, pieces) in found.into_iter().enumerate() {
            let label = format!("case {case}, file {}: pieces", file + 1);
            rows.push(Row::new(label, "", pieces as f64).of(Data::Model));
        }
        rows.push(Row::statement(&format!("rededup-challenge/case-{case}"), found == paper).of(Data::Model));
    }
    let of = |file: usize| vec![one[file] as f64, two[file] as f64];
    Figure {
        name: "rededup-challenge",
        source: "ReDedup fig. 1",
        title: "two files of three blocks with one in common".into(),
        rows,
        chart: Chart::bars(
            "Pieces in which a file is read",
            "pieces",
            vec!["file 1 first".into(), "file 2 first".into()],
            vec![Bars::new("file 1", of(0)), Bars::new("file 2", of(1))],
        ),
        notes: Vec::new(),
    }
}
