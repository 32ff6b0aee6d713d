//! Sensitivity of ReDedup's gain to chance: other files and other days, made from the same parameters.

use super::super::runs::Results;
use super::super::{Entry, Figure, Row};
use super::latency::PLANNERS;
use super::{Bars, Basis, Chart, Reads, SHAPES, groups, sized};
use crate::relocation::planning::Planner;
use crate::relocation::population::Shape;
use sim::parallel::{cores, in_order};

pub(super) const CHANCE: Entry = Entry {
    name: "rededup-chance",
    about: "beyond ReDedup: the gains of fig. 5 on many made populations: median, lowest and highest",
    runs: Vec::new,
    make: chance,
};

/// Seeds of a shape. The first is the one of all other figures.
const SEEDS: u64 = 21;
/// Seeds of a shape in the short form.
const SEEDS_QUICK: u64 = 3;
/// Distance from one seed of a shape to the next.
const STEP: u64 = 1000;

/// Returns the number of populations.
pub(super) fn seeds(quick: bool) -> u64 {
    if quick { SEEDS_QUICK } else { SEEDS }
}

/// Returns one of the populations of a shape.
pub(super) fn shape_of(shape: Shape, at: u64, quick: bool) -> Shape {
    sized(Shape { seed: shape.seed + at * STEP, ..shape }, quick)
}

/// Returns the median of sorted values; the lower one of two.
pub(super) fn median(sorted: &[f64]) -> f64 {
    sorted[(sorted.len() - 1) / 2]
}

/// Changes of the basic layout: a plan, homes, or both.
const WAYS: [&str; 5] = ["as printed", "normalised", "ours", "homes alone", "homes, then ours"];
/// Compared pairs of [`WAYS`].
const COMPARED: [(usize, usize); 5] = [(1, 0), (2, 0), (2, 1), (4, 2), (4, 3)];

/// Gains of each change in percent, of the reads that were planned by and of the next day's.
fn gains(basis: &Basis) -> [[f64; WAYS.len()]; 2] {
    let [printed, normalised, ours] = PLANNERS.map(|(_, planner)| basis.relocate(&basis.oldest, planner).layout);
    let homes = basis.oldest.homes(&basis.world.population, &basis.world.days[0]);
    let both = basis.relocate(&homes, Planner::OURS).layout;
    let layouts = [printed, normalised, ours, homes, both];
    Reads::ALL.map(|reads| std::array::from_fn(|at| basis.less(&layouts[at], reads)))
}

/// Returns the mean of some values; 0 of none.
pub(super) fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

fn chance(results: &Results) -> Figure {
    let quick = results.quick;
    let seeds = seeds(quick);
    let made = SHAPES.map(|shape| in_order(cores(), seeds, |at| gains(&Basis::new(shape_of(shape, at, quick)))));
    let mut rows = Vec::new();
    let mut heights = vec![Vec::new(); WAYS.len()];
    let mut ends = vec![Vec::new(); WAYS.len()];
    for reads in Reads::ALL {
        for (shape, gains) in SHAPES.iter().zip(&made) {
            let of = format!("{}{}", shape.name, reads.suffix());
            let sorted = |value: &dyn Fn(&[f64; WAYS.len()]) -> f64| {
                let mut values: Vec<f64> = gains.iter().map(|gains| value(&gains[reads as usize])).collect();
                values.sort_by(f64::total_cmp);
                values
            };
            let mut means = Vec::new();
            for (at, name) in WAYS.into_iter().enumerate() {
                let values = sorted(&|gain| gain[at]);
                let note = format!("mean {:.1}; {}", mean(&values), spread(&values));
                rows.push(Row::new(format!("{of}: less, {name}, median"), "%", median(&values)).note(note));
                heights[at].push(median(&values));
                ends[at].push((values[0], values[values.len() - 1]));
                means.push(mean(&values));
            }
            for (one, other) in COMPARED {
                let values = sorted(&|gain| gain[one] - gain[other]);
                let label = format!("{of}: {} more than {}, median", WAYS[one], WAYS[other]);
                let better = values.iter().filter(|&&value| value > 0.0).count();
                let note = format!("{}; better in {better} of {seeds}", spread(&values));
                rows.push(Row::new(label, "points", median(&values)).note(note));
            }
            if reads == Reads::Planned {
                let is_best = means[4] > means[2].max(means[3]);
                rows.push(Row::statement(&format!("rededup-chance/both-{}", shape.name), is_best));
            }
        }
    }
    Figure {
        name: "rededup-chance",
        source: "ReDedup fig. 5, and beyond",
        title: format!("time of a read less than basic, {seeds} populations"),
        rows,
        chart: Chart::bars(
            "Time of a read less than basic: median, lowest and highest",
            "% less",
            groups(),
            WAYS.into_iter()
                .zip(heights)
                .zip(ends)
                .map(|((name, heights), ends)| Bars::new(name, heights).spread(ends))
                .collect(),
        ),
        notes: vec!["Each population has files, copies and two days of reads of its own; the numbers that they are made of are the same.".into()],
    }
}

/// Formats the lowest and the highest of sorted values, and the middle half of them.
pub(super) fn spread(sorted: &[f64]) -> String {
    let at = |part: usize| sorted[(sorted.len() - 1) * part / 4];
    format!("{:.1} to {:.1}, half of them {:.1} to {:.1}", at(0), at(4), at(1), at(3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_and_the_ends() {
        let values: Vec<f64> = (0..21).map(f64::from).collect();
        assert_eq!((median(&values), spread(&values).as_str()), (10.0, "0.0 to 20.0, half of them 5.0 to 15.0"));
        assert_eq!((median(&[1.0, 2.0]), spread(&[1.0]).as_str()), (1.0, "1.0 to 1.0, half of them 1.0 to 1.0"));
    }
}
