//! How far chance moves ReDedup's gain: other files and other days, made of the same numbers.

use super::super::runs::Results;
use super::super::{Entry, Figure, Row};
use super::latency::PLANNERS;
use super::{Bars, Basis, Chart, SHAPES, sized};
use crate::parallel::{cores, in_order};
use crate::relocation::population::Shape;

pub(super) const CHANCE: Entry = Entry {
    name: "rededup-chance",
    about: "beyond ReDedup: the gains of fig. 5 on many made populations: median, lowest and highest",
    runs: Vec::new,
    make: chance,
};

/// Seeds of a shape. The first is the one of all other figures.
const SEEDS: u64 = 21;
/// In the short form.
const SEEDS_QUICK: u64 = 3;
/// From one seed of a shape to the next.
const STEP: u64 = 1000;

/// The value in the middle of some that are sorted; the lower one of two.
fn median(sorted: &[f64]) -> f64 {
    sorted[(sorted.len() - 1) / 2]
}

fn chance(results: &Results) -> Figure {
    let quick = results.quick;
    let seeds = if quick { SEEDS_QUICK } else { SEEDS };
    let mut rows = Vec::new();
    let mut heights = vec![Vec::new(); PLANNERS.len()];
    let mut ends = vec![Vec::new(); PLANNERS.len()];
    for shape in SHAPES {
        let gains = in_order(cores(), seeds, |at| {
            let shape = Shape { seed: shape.seed + at * STEP, ..shape };
            let basis = Basis::new(sized(shape, quick));
            PLANNERS.map(|(_, planner)| basis.gain(planner))
        });
        let sorted = |value: &dyn Fn(&[f64; 3]) -> f64| {
            let mut values: Vec<f64> = gains.iter().map(value).collect();
            values.sort_by(f64::total_cmp);
            values
        };
        for (at, (name, _)) in PLANNERS.into_iter().enumerate() {
            let values = sorted(&|gain| gain[at]);
            let label = format!("{}: less with ReDedup, {name}, median", shape.name);
            rows.push(Row::new(label, "%", median(&values)).note(spread(&values)));
            heights[at].push(median(&values));
            ends[at].push((values[0], values[values.len() - 1]));
        }
        for (one, other) in [(1, 0), (2, 0), (2, 1)] {
            let values = sorted(&|gain| gain[one] - gain[other]);
            let (name, than) = (PLANNERS[one].0, PLANNERS[other].0);
            let label = format!("{}: {name} more than {than}, median", shape.name);
            let better = values.iter().filter(|&&value| value > 0.0).count();
            let note = format!("{}; better in {better} of {seeds}", spread(&values));
            rows.push(Row::new(label, "points", median(&values)).note(note));
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
            SHAPES.map(|shape| shape.name.to_string()).to_vec(),
            PLANNERS
                .iter()
                .zip(heights)
                .zip(ends)
                .map(|(((name, _), heights), ends)| Bars::new(*name, heights).spread(ends))
                .collect(),
        ),
        notes: vec!["Each population has files, copies and two days of reads of its own; the numbers that they are made of are the same.".into()],
    }
}

/// The lowest and the highest of some that are sorted, and the middle half of them.
fn spread(sorted: &[f64]) -> String {
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
