//! Planner variants on many made populations: the object that moves first, and the order of its blocks.

use engine::relocation::assess::Sharing;
use engine::relocation::plan::{Order, Rules};
use engine::relocation::profile::Merge;

use super::super::runs::Results;
use super::super::{Entry, Figure, Row};
use super::chance::{mean, median, seeds, shape_of, spread};
use super::{Bars, Basis, Chart, Reads, SHAPES, groups};
use crate::relocation::planning::{Planner, follow};
use sim::parallel::{cores, in_order};

pub(super) const ORDERS: Entry = Entry {
    name: "rededup-orders",
    about: "beyond ReDedup: ways to rank, to leave objects where they are, and to order blocks, on many made populations",
    runs: Vec::new,
    make: orders,
};

const fn by(sharing: Sharing, order: Order, keeps_whole: bool) -> Planner {
    Planner { merge: Merge::ByObject, sharing, rules: Rules { order, keeps_whole, ..Rules::PAPER } }
}

/// Ways to plan. The first is the product's, in the version that this figure decided about.
const WAYS: [(&str, Planner); 8] = [
    ("value per block, whole ones stay", by(Sharing::OthersRuns, Order::ValuePerBlock, true)),
    ("value per block", by(Sharing::OthersRuns, Order::ValuePerBlock, false)),
    ("runs per block, whole ones stay", by(Sharing::OthersRuns, Order::RunsPerBlock, true)),
    ("runs per block", by(Sharing::OthersRuns, Order::RunsPerBlock, false)),
    ("own runs, value", by(Sharing::OwnRuns, Order::Value, false)),
    ("own runs, value, whole ones stay", by(Sharing::OwnRuns, Order::Value, true)),
    ("own runs, value per block", by(Sharing::OwnRuns, Order::ValuePerBlock, false)),
    ("normalised", Planner::NORMALISED),
];
/// Layout in which blocks read one after another are adjacent.
const FOLLOWS: &str = "blocks in the order of the next reads";
const COUNT: usize = WAYS.len() + 1;

/// Gains of each way in percent, and blocks that it moves: of the reads that were planned by and of the next day's.
struct Made {
    gains: [[f64; COUNT]; 2],
    moved: [f64; COUNT],
}

fn make(basis: &Basis) -> Made {
    let planned = WAYS.map(|(_, planner)| basis.relocate(&basis.oldest, planner).layout);
    let follows = follow(&basis.world.population, &basis.oldest, &basis.world.days[..1]);
    let layouts: Vec<_> = planned.into_iter().chain([follows]).collect();
    Made {
        gains: Reads::ALL.map(|reads| std::array::from_fn(|at| basis.less(&layouts[at], reads))),
        moved: std::array::from_fn(|at| layouts[at].moved as f64),
    }
}

fn orders(results: &Results) -> Figure {
    let quick = results.quick;
    let seeds = seeds(quick);
    let made = SHAPES.map(|shape| in_order(cores(), seeds, |at| make(&Basis::new(shape_of(shape, at, quick)))));
    let names: Vec<&str> = WAYS.iter().map(|&(name, _)| name).chain([FOLLOWS]).collect();
    let (mut rows, mut heights, mut ends) = (Vec::new(), vec![Vec::new(); COUNT], vec![Vec::new(); COUNT]);
    for reads in Reads::ALL {
        for (shape, made) in SHAPES.iter().zip(&made) {
            let of = format!("{}{}", shape.name, reads.suffix());
            for (at, name) in names.iter().enumerate() {
                let mut gains: Vec<f64> = made.iter().map(|made| made.gains[reads as usize][at]).collect();
                gains.sort_by(f64::total_cmp);
                let is_ahead = |made: &&Made| made.gains[reads as usize][at] > made.gains[reads as usize][0];
                let ahead = made.iter().filter(is_ahead).count();
                let moved = mean(&made.iter().map(|made| made.moved[at]).collect::<Vec<f64>>());
                let note = format!(
                    "mean {:.1}; {}; ahead of the first on {ahead} of {seeds}; {moved:.0} blocks moved",
                    mean(&gains),
                    spread(&gains)
                );
                rows.push(Row::new(format!("{of}: less, {name}, median"), "%", median(&gains)).note(note));
                heights[at].push(median(&gains));
                ends[at].push((gains[0], gains[gains.len() - 1]));
            }
        }
    }
    let bars = names.into_iter().zip(heights).zip(ends);
    Figure {
        name: "rededup-orders",
        source: "beyond ReDedup",
        title: format!("ways to plan: time of a read less than basic, {seeds} populations"),
        rows,
        chart: Chart::bars(
            "Ways to plan: median, lowest and highest",
            "% less",
            groups(),
            bars.map(|((name, heights), ends)| Bars::new(name, heights).spread(ends)).collect(),
        ),
        notes: vec!["Plans are made of the first day. The last way moves all that was read, shared or not.".into()],
    }
}
