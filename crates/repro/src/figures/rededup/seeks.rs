//! Figures of seek distances (Figs. 6, 7 and 8).

use super::super::claims::find;
use super::super::runs::Results;
use super::super::{Entry, Figure, Row};
use super::{Bars, Basis, Chart, Line, Reads, SHAPES, groups, less, sized};
use crate::relocation::measure::Outcome;
use crate::relocation::planning::{Planner, insert};
use crate::relocation::population::Shape;

pub(super) const MAIL: Entry = Entry {
    name: "rededup-seeks-mail",
    about: "ReDedup fig. 6: distances of seeks over a day, mail",
    runs: Vec::new,
    make: |results| over_time("rededup-seeks-mail", "ReDedup fig. 6", Shape::MAIL, results),
};
pub(super) const RESEARCH: Entry = Entry {
    name: "rededup-seeks-research",
    about: "ReDedup fig. 7: distances of seeks over a day, research",
    runs: Vec::new,
    make: |results| over_time("rededup-seeks-research", "ReDedup fig. 7", Shape::RESEARCH, results),
};
pub(super) const MEAN: Entry =
    Entry { name: "rededup-seek-mean", about: "ReDedup fig. 8: mean distance of seeks", runs: Vec::new, make: mean };

fn over_time(name: &'static str, source: &'static str, shape: Shape, results: &Results) -> Figure {
    let basis = Basis::new(sized(shape, results.quick));
    let with = |planner| basis.measure(&basis.relocate(&basis.oldest, planner).layout, Reads::Planned);
    let (basic, printed, ours) = (basis.basic(Reads::Planned), with(Planner::PRINTED), with(Planner::OURS));
    let all = [("basic", basic), ("ReDedup as printed", &printed), ("ReDedup, ours", &ours)];
    let mut rows = Vec::new();
    for (name, outcome) in all {
        rows.push(Row::new(format!("{}, {name}: seeks of 1 GiB or more", shape.name), "", outcome.long as f64));
        rows.push(Row::new(format!("{}, {name}: shorter ones", shape.name), "", outcome.short as f64));
    }
    rows.push(Row::statement(&format!("{name}/long"), printed.long < basic.long));
    rows.push(Row::statement(&format!("{name}/short"), printed.short > basic.short));
    let points = |outcome: &Outcome| {
        let parts = outcome.by_part.len().max(1) as f64;
        outcome.by_part.iter().enumerate().map(|(at, sectors)| (at as f64 / parts, sectors / 1e6)).collect()
    };
    Figure {
        name,
        source,
        title: format!("seeks over a day, {}", shape.name),
        rows,
        chart: Chart::lines(
            "Mean distance of seeks",
            ("part of the day", "millions of sectors"),
            all.map(|(name, outcome)| Line::new(name, points(outcome)).marked(false)).to_vec(),
        ),
        notes: vec!["The paper draws each seek; the lines here are means over a fiftieth of the day.".into()],
    }
}

fn mean(results: &Results) -> Figure {
    let ways = ["as printed", "as printed, each object where its longest piece was", "ours"];
    let mut rows = Vec::new();
    let mut heights = vec![Vec::new(); ways.len()];
    let mut papers = Vec::new();
    let bases = SHAPES.map(|shape| Basis::new(sized(shape, results.quick)));
    let layouts = bases.each_ref().map(|basis| {
        let [printed, ours] = [Planner::PRINTED, Planner::OURS].map(|planner| basis.relocate(&basis.oldest, planner));
        [printed.layout, insert(&basis.oldest, &printed.plan), ours.layout]
    });
    for reads in Reads::ALL {
        for ((shape, basis), layouts) in SHAPES.iter().zip(&bases).zip(&layouts) {
            let (of, basic) = (format!("{}{}", shape.name, reads.suffix()), basis.basic(reads));
            let id = format!("rededup-seek-mean/{}", shape.name);
            papers.push(find(&id).value.filter(|_| reads == Reads::Planned));
            rows.push(Row::new(format!("{of}: basic deduplication"), "sectors", basic.seek()));
            for (at, ((name, layout), heights)) in ways.into_iter().zip(layouts).zip(&mut heights).enumerate() {
                let ours = basis.measure(layout, reads);
                let gain = less(ours.seek(), basic.seek());
                let of_day = less(ours.sectors as f64, basic.sectors as f64);
                let time = less(ours.latency(), basic.latency());
                let row = match (at, reads) {
                    (0, Reads::Planned) => Row::claim(&id, gain),
                    _ => Row::new(format!("{of}: less with ReDedup, {name}"), "%", gain),
                };
                rows.push(
                    row.note(format!("the sum of the day is {of_day:.1} % less, the time of a read {time:.1} %")),
                );
                heights.push(gain);
            }
        }
    }
    let mut papers = vec![papers, Vec::new()].into_iter();
    Figure {
        name: "rededup-seek-mean",
        source: "ReDedup fig. 8",
        title: "mean distance of seeks".into(),
        rows,
        chart: Chart::bars(
            "Mean distance of seeks less than basic",
            "% less",
            groups(),
            ways.into_iter()
                .zip(heights)
                .map(|(name, heights)| Bars::new(name, heights).papers(papers.next().unwrap_or_default()))
                .collect(),
        ),
        notes: vec![
            "A mean for each read of the device. ReDedup makes fewer of them: what it saves are pieces. So the mean can rise while the sum falls."
                .into(),
        ],
    }
}
