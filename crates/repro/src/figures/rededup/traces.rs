//! Figures of the made servers (Table I, Fig. 2).

use super::super::claims::find;
use super::super::runs::Results;
use super::super::{Entry, Figure, Row};
use super::{Bars, Chart, Line, SHAPES, sized};
use crate::relocation::World;

pub(super) const TABLE: Entry = Entry {
    name: "rededup-traces",
    about: "ReDedup table I: data read in a week, and how much of the data are copies",
    runs: Vec::new,
    make: table,
};
pub(super) const SKEW: Entry = Entry {
    name: "rededup-skew",
    about: "ReDedup fig. 2a: accesses of the most popular shared files",
    runs: Vec::new,
    make: skew,
};
pub(super) const CONTENT: Entry = Entry {
    name: "rededup-skew-content",
    about: "ReDedup fig. 2b: accesses of copied content by the most popular shared files",
    runs: Vec::new,
    make: content,
};

const WEEK: usize = 7;

fn table(results: &Results) -> Figure {
    let mut rows = Vec::new();
    let (mut copies, mut papers) = (Vec::new(), Vec::new());
    for shape in SHAPES {
        let world = World::new(sized(shape, results.quick), WEEK);
        let blocks: u64 = world.days.iter().flatten().map(|request| u64::from(request.blocks)).sum();
        let read = (blocks * world.shape.part / 256) as f64;
        rows.push(Row::claim(&format!("rededup-traces/read-{}", shape.name), read));
        let ours = world.population.copies_percent();
        rows.push(Row::claim(&format!("rededup-traces/ratio-{}", shape.name), ours));
        let shared = world.population.shared_files().iter().filter(|shared| **shared).count();
        let percent = 100.0 * shared as f64 / world.population.files() as f64;
        rows.push(Row::new(format!("{}: files that share content", shape.name), "%", percent));
        copies.push(ours);
        papers.push(find(&format!("rededup-traces/ratio-{}", shape.name)).value);
    }
    Figure {
        name: "rededup-traces",
        source: "ReDedup table I",
        title: "two servers for a week".into(),
        rows,
        chart: Chart::bars(
            "Deduplication ratio",
            "%",
            SHAPES.map(|shape| shape.name.to_string()).to_vec(),
            vec![Bars::new("copies", copies).papers(papers)],
        ),
        notes: vec![
            "The paper measures reads only, and so do we: the 248,122 and 58,498 MB written are not made. The ratio is read as the share of blocks that need no \
             space of their own."
                .into(),
        ],
    }
}

/// Counts, for each shared file that was read, its reads and the read blocks that others have, too; most read first. A read that continues the last one of its
/// file is part of that.
fn shared(world: &World) -> Vec<(u64, u64)> {
    let (shared, holders) = (world.population.shared_files(), world.population.holders());
    let mut reads = vec![(0u64, 0u64); world.population.files()];
    let mut ends = vec![u32::MAX; reads.len()];
    for request in world.days.iter().flatten() {
        let first = world.population.blocks(request.file).start + request.first as usize;
        let contents = &world.population.content[first..first + request.blocks as usize];
        let (all, copied) = &mut reads[request.file as usize];
        let end = std::mem::replace(&mut ends[request.file as usize], request.first + request.blocks);
        *all += u64::from(end != request.first);
        *copied += contents.iter().filter(|&&content| holders[content as usize] > 1).count() as u64;
    }
    let mut of_shared: Vec<_> = reads
        .into_iter()
        .zip(shared)
        .filter(|(reads, is_shared)| *is_shared && reads.0 > 0)
        .map(|(reads, _)| reads)
        .collect();
    of_shared.sort_unstable_by_key(|&reads| std::cmp::Reverse(reads));
    of_shared
}

/// Returns the share of the first `percent` percent of the files in the total, in percent.
fn share(files: &[(u64, u64)], percent: usize, of: impl Fn(&(u64, u64)) -> u64) -> f64 {
    let sum = |files: &[(u64, u64)]| files.iter().map(&of).sum::<u64>() as f64;
    100.0 * sum(&files[..(files.len() * percent).div_ceil(100)]) / sum(files)
}

fn skew(results: &Results) -> Figure {
    let mut rows = Vec::new();
    let mut series = Vec::new();
    for shape in SHAPES {
        let files = shared(&World::new(sized(shape, results.quick), WEEK));
        let point = |percent| share(&files, percent, |reads| reads.0);
        rows.push(Row::claim(&format!("rededup-skew/{}", shape.name), point(20)));
        let points = (0..=20).map(|at| (at as f64 * 5.0, point(at * 5))).collect();
        series.push(Line::new(shape.name, points));
    }
    Figure {
        name: "rededup-skew",
        source: "ReDedup fig. 2a",
        title: "shared files are not read equally often".into(),
        rows,
        chart: Chart::lines(
            "Accesses of the most popular shared files",
            ("% of shared files", "% of accesses"),
            series,
        ),
        notes: vec!["The paper says 60 to 80 % for both servers together.".into()],
    }
}

fn content(results: &Results) -> Figure {
    let mut rows = Vec::new();
    let mut series = Vec::new();
    for shape in SHAPES {
        let files = shared(&World::new(sized(shape, results.quick), WEEK));
        let heights: Vec<f64> = [10, 20, 30].map(|percent| share(&files, percent, |reads| reads.1)).to_vec();
        for (percent, height) in [10, 20, 30].into_iter().zip(&heights) {
            rows.push(Row::new(format!("{}: copied content read by the top {percent} %", shape.name), "%", *height));
        }
        // The paper draws bars and says "a large portion": more than the files' own share.
        let point = |(percent, height): (i32, &f64)| {
            (format!("top {percent} % ({height:.1} %)"), (2.0 * f64::from(percent)..=95.0).contains(height))
        };
        let points = [10, 20, 30].into_iter().zip(&heights).map(point);
        rows.push(Row::every(&format!("rededup-skew-content/{}", shape.name), points));
        series.push(Bars::new(shape.name, heights));
    }
    Figure {
        name: "rededup-skew-content",
        source: "ReDedup fig. 2b",
        title: "copied content is read by few files".into(),
        rows,
        chart: Chart::bars(
            "Reads of copied content by the most popular shared files",
            "%",
            ["top 10 %", "top 20 %", "top 30 %"].map(String::from).to_vec(),
            series,
        ),
        notes: Vec::new(),
    }
}
