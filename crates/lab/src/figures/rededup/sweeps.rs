//! What ReDedup's gain depends on.

use engine::relocation::plan::Rules;

use super::super::runs::Results;
use super::super::{Entry, Figure, Row};
use super::{Basis, less, lines, sized};
use crate::parallel::{cores, in_order};
use crate::relocation::World;
use crate::relocation::layouts::Layout;
use crate::relocation::measure::measure;
use crate::relocation::planning::{Planner, relocate};
use crate::relocation::population::Shape;

pub(super) const SWEEPS: Entry = Entry {
    name: "rededup-sweeps",
    about: "beyond ReDedup: the gain by deduplication ratio, skew, sharing, length of the profile and budget",
    runs: Vec::new,
    make: sweeps,
};

/// Days of a profile at most.
const DAYS: usize = 5;

/// One world, and how it is called.
type Variant = (&'static str, String, Shape);

/// Worlds in which one thing differs.
fn variants(shape: Shape) -> Vec<Variant> {
    let mut variants = Vec::new();
    for copies_percent in [20, 30, 40, 50, 60] {
        variants.push(("copies", format!("{copies_percent} % copies"), Shape { copies_percent, ..shape }));
    }
    for alpha in [0.4, 0.6, 0.8, 1.0, 1.2] {
        variants.push(("skew", format!("Zipf {alpha}"), Shape { alpha, ..shape }));
    }
    for (parents, what) in
        [(0, "from any file"), (1000, "from one of 1000"), (100, "from one of 100"), (10, "from one of 10")]
    {
        variants.push(("sharing", format!("copied {what}"), Shape { parents, ..shape }));
    }
    for stretch_blocks in [2, 4, 8, 16, 32] {
        variants.push((
            "stretch",
            format!("copied {stretch_blocks} blocks at a time"),
            Shape { stretch_blocks, ..shape },
        ));
    }
    variants
}

fn sweeps(results: &Results) -> Figure {
    let shape = sized(Shape::RESEARCH, results.quick);
    let variants = variants(shape);
    let gains = in_order(cores(), variants.len() as u64, |at| {
        let basis = Basis::new(variants[at as usize].2);
        [Planner::PRINTED, Planner::NORMALISED, Planner::OURS].map(|planner| basis.gain(planner))
    });
    let mut rows = Vec::new();
    let mut series: Vec<(String, Vec<(f64, f64)>)> = Vec::new();
    for ((sweep, label, _), [printed, normalised, ours]) in variants.iter().zip(gains) {
        let row = Row::new(format!("research, {label}: ours, time less"), "%", ours);
        rows.push(row.note(format!("as printed {printed:.1}, normalised {normalised:.1}")));
        if series.last().is_none_or(|(name, _)| name != sweep) {
            series.push(((*sweep).into(), Vec::new()));
        }
        if let Some((_, points)) = series.last_mut() {
            points.push((points.len() as f64, ours));
        }
    }
    for (name, points) in [("days", by_days(shape, &mut rows)), ("budget", by_budget(shape, &mut rows))] {
        series.push((name.into(), points));
    }
    Figure {
        name: "rededup-sweeps",
        source: "beyond ReDedup",
        title: "what the gain depends on".into(),
        rows,
        chart: lines(
            "Time of a read less than basic, ours",
            ("steps of a sweep, as the rows have them", "% less"),
            series,
        ),
        notes: vec!["Research; one thing differs at a time.".into()],
    }
}

/// Profiles of the last so many days.
fn by_days(shape: Shape, rows: &mut Vec<Row>) -> Vec<(f64, f64)> {
    let world = World::new(shape, DAYS + 1);
    let oldest = Layout::oldest(&world.population);
    let basic = measure(&world, &oldest, &world.days[DAYS]).latency();
    (1..=DAYS)
        .map(|days| {
            let planned = relocate(&world.population, &oldest, &world.days[DAYS - days..DAYS], Planner::OURS);
            let gain = less(measure(&world, &planned.layout, &world.days[DAYS]).latency(), basic);
            rows.push(Row::new(format!("research, profile of {days} days: ours, time less"), "%", gain));
            ((days - 1) as f64, gain)
        })
        .collect()
}

/// Budgets in percent of all blocks.
fn by_budget(shape: Shape, rows: &mut Vec<Row>) -> Vec<(f64, f64)> {
    let basis = Basis::new(shape);
    [1, 2, 5, 10, 20, 50]
        .into_iter()
        .enumerate()
        .map(|(at, percent)| {
            let most_blocks = u64::from(basis.oldest.free) * percent / 100;
            let gain = basis.gain(Planner { rules: Rules { most_blocks, ..Rules::OURS }, ..Planner::OURS });
            rows.push(Row::new(format!("research, {percent} % of blocks moved at most: ours, time less"), "%", gain));
            (at as f64, gain)
        })
        .collect()
}
