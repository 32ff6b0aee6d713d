//! Sweeps of the parameters that ReDedup's gain depends on.

use engine::relocation::plan::Rules;

use super::super::runs::Results;
use super::super::{Entry, Figure, Row};
use super::{Bars, Basis, Chart, less, sized};
use crate::relocation::World;
use crate::relocation::layouts::Layout;
use crate::relocation::measure::measure;
use crate::relocation::planning::{Planner, relocate};
use crate::relocation::population::Shape;
use sim::parallel::{cores, in_order};

pub(super) const SWEEPS: Entry = Entry {
    name: "rededup-sweeps",
    about: "beyond ReDedup: the gain by deduplication ratio, skew, sharing, length of the profile and budget",
    runs: Vec::new,
    make: sweeps,
};

/// Maximum number of days of a profile.
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
    for newest_percent in [0, 50, 100] {
        let label = format!("popularity of {newest_percent} % of the files by age");
        variants.push(("age", label, Shape { newest_percent, ..shape }));
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
    let (mut rows, mut groups, mut heights) = (Vec::new(), Vec::new(), [Vec::new(), Vec::new(), Vec::new()]);
    for ((_, label, _), gains) in variants.iter().zip(gains) {
        let [printed, normalised, ours] = gains;
        let row = Row::new(format!("research, {label}: ours, time less"), "%", ours);
        rows.push(row.note(format!("as printed {printed:.1}, normalised {normalised:.1}")));
        groups.push(label.clone());
        heights.iter_mut().zip(gains).for_each(|(heights, gain)| heights.push(gain));
    }
    for (label, ours) in by_days(shape).into_iter().chain(by_budget(shape)) {
        rows.push(Row::new(format!("research, {label}: ours, time less"), "%", ours));
        groups.push(label);
        heights.iter_mut().zip([f64::NAN, f64::NAN, ours]).for_each(|(heights, gain)| heights.push(gain));
    }
    let names = ["as printed", "normalised", "ours"];
    Figure {
        name: "rededup-sweeps",
        source: "beyond ReDedup",
        title: "parameters of the gain".into(),
        rows,
        chart: Chart::bars(
            "Time of a read less than basic, research",
            "% less",
            groups,
            names.into_iter().zip(heights).map(|(name, heights)| Bars::new(name, heights)).collect(),
        ),
        notes: vec!["Research; one thing differs at a time.".into()],
    }
}

/// Measures profiles of the last N days.
fn by_days(shape: Shape) -> Vec<(String, f64)> {
    let world = World::new(shape, DAYS + 1);
    let oldest = Layout::oldest(&world.population);
    let basic = measure(&world, &oldest, &world.days[DAYS]).latency();
    (1..=DAYS)
        .map(|days| {
            let planned = relocate(&world.population, &oldest, &world.days[DAYS - days..DAYS], Planner::OURS);
            let gain = less(measure(&world, &planned.layout, &world.days[DAYS]).latency(), basic);
            (format!("profile of {days} days, next day"), gain)
        })
        .collect()
}

/// Budgets in percent of all blocks.
fn by_budget(shape: Shape) -> Vec<(String, f64)> {
    let basis = Basis::new(shape);
    [1, 2, 5, 10, 20, 50]
        .into_iter()
        .map(|percent| {
            let most_blocks = u64::from(basis.oldest.free) * percent / 100;
            let gain = basis.gain(Planner { rules: Rules { most_blocks, ..Rules::OURS }, ..Planner::OURS });
            (format!("{percent} % of blocks moved at most"), gain)
        })
        .collect()
}
