//! Comparison of ReDedup with other block layouts.

use super::super::runs::Results;
use super::super::{Entry, Figure, Row};
use super::{Bars, Basis, Chart, Reads, SHAPES, less, sized};
use crate::relocation::layouts::Layout;
use crate::relocation::planning::Planner;

pub(super) const BASELINES: Entry = Entry {
    name: "rededup-baselines",
    about: "beyond ReDedup: native, iDedup, copies, homes and BORG-like beside it",
    runs: Vec::new,
    make: baselines,
};

/// Blocks that the pool's re-order may have as copies, at full size.
const MOST_COPIES: u64 = 131_072;
const NAMES: [&str; 9] = [
    "native",
    "iDedup 8",
    "iDedup 16",
    "re-order by copies",
    "homes",
    "BORG-like",
    "ReDedup, printed",
    "ReDedup, ours",
    "homes, then ours",
];

fn baselines(results: &Results) -> Figure {
    let mut rows = Vec::new();
    let mut heights = vec![Vec::new(); NAMES.len()];
    for shape in SHAPES {
        let basis = Basis::new(sized(shape, results.quick));
        let (population, day, basic) = (&basis.world.population, &basis.world.days[0], basis.basic(Reads::Planned));
        let printed = basis.relocate(&basis.oldest, Planner::PRINTED).layout;
        let ours = basis.relocate(&basis.oldest, Planner::OURS).layout;
        let homes = basis.oldest.homes(population, day);
        let both = basis.relocate(&homes, Planner::OURS).layout;
        let layouts = [
            Layout::native(population),
            Layout::shared_from(population, 8),
            Layout::shared_from(population, 16),
            basis.oldest.copies(population, day, MOST_COPIES / basis.world.shape.part),
            homes,
            // As many blocks as ours moves.
            basis.oldest.hottest(population, day, ours.moved),
            printed,
            ours,
            both,
        ];
        let mut gains = Vec::new();
        for (layout, name) in layouts.iter().zip(NAMES) {
            let outcome = basis.measure(layout, Reads::Planned);
            let gain = less(outcome.latency(), basic.latency());
            let space = 100.0 * (f64::from(distinct(layout)) / f64::from(distinct(&basis.oldest)) - 1.0);
            let note = format!(
                "{} blocks moved, {space:.1} % more space; {:.2} device reads for 128 KiB; seeks {:.1} % shorter in sum",
                layout.moved,
                outcome.reads_per_128_kib(),
                less(outcome.sectors as f64, basic.sectors as f64)
            );
            rows.push(Row::new(format!("{}: time less, {name}", shape.name), "%", gain).note(note));
            gains.push(gain);
        }
        let statements = [
            ("native", gains[0] > 0.0),
            ("idedup", gains[2] > 0.0),
            ("homes", gains[7] > gains[4]),
            ("both-homes", gains[8] > gains[4]),
            ("both-ours", gains[8] > gains[7]),
        ];
        let id = |claim: &str| format!("rededup-baselines/{claim}-{}", shape.name);
        rows.extend(statements.map(|(claim, holds)| Row::statement(&id(claim), holds)));
        heights.iter_mut().zip(gains).for_each(|(heights, gain)| heights.push(gain));
    }
    Figure {
        name: "rededup-baselines",
        source: "beyond ReDedup",
        title: "ways to lay blocks out".into(),
        rows,
        chart: Chart::bars(
            "Time of a read less than basic",
            "% less",
            SHAPES.map(|shape| shape.name.to_string()).to_vec(),
            NAMES.into_iter().zip(heights).map(|(name, heights)| Bars::new(name, heights)).collect(),
        ),
        notes: vec![
            "Native and iDedup use more space; so do copies. ReDedup, homes and BORG-like move blocks and use none. BORG-like moves as many blocks as ours."
                .into(),
        ],
    }
}

/// Counts the places that are used.
fn distinct(layout: &Layout) -> u32 {
    let mut used = vec![false; layout.free as usize];
    layout.places.iter().for_each(|&place| used[place as usize] = true);
    used.iter().filter(|used| **used).count() as u32
}
