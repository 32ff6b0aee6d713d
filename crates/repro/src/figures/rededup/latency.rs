//! Figures of read latency (Fig. 5), and of the value of each assessment rule.

use engine::relocation::assess::Sharing;
use engine::relocation::plan::{Order, Rules};
use engine::relocation::profile::Merge;

use super::super::claims::find;
use super::super::runs::Results;
use super::super::{Entry, Figure, Row};
use super::{Bars, Basis, Chart, Reads, SHAPES, groups, less, sized};
use crate::relocation::planning::Planner;

pub(super) const LATENCY: Entry = Entry {
    name: "rededup-latency",
    about: "ReDedup fig. 5: mean time of a read, against deduplication that keeps the oldest copy",
    runs: Vec::new,
    make: latency,
};
pub(super) const ASSESS: Entry = Entry {
    name: "rededup-assess",
    about: "beyond ReDedup: ways to count sharing, to merge reads and to rank, with all blocks moved and with a tenth",
    runs: Vec::new,
    make: assess,
};

pub(super) const PLANNERS: [(&str, Planner); 3] =
    [("as printed", Planner::PRINTED), ("normalised", Planner::NORMALISED), ("ours", Planner::OURS)];

fn latency(results: &Results) -> Figure {
    let mut rows = Vec::new();
    let (mut heights, mut papers) = (vec![Vec::new(); PLANNERS.len()], Vec::new());
    let bases = SHAPES.map(|shape| Basis::new(sized(shape, results.quick)));
    let plans = bases.each_ref().map(|basis| PLANNERS.map(|(_, planner)| basis.relocate(&basis.oldest, planner)));
    for reads in Reads::ALL {
        for ((shape, basis), plans) in SHAPES.iter().zip(&bases).zip(&plans) {
            let (of, basic) = (format!("{}{}", shape.name, reads.suffix()), basis.basic(reads));
            rows.push(Row::new(format!("{of}: basic deduplication"), "ms", basic.latency()));
            let id = format!("rededup-latency/{}", shape.name);
            papers.push(find(&id).value.filter(|_| reads == Reads::Planned));
            for (at, ((name, _), planned)) in PLANNERS.into_iter().zip(plans).enumerate() {
                let ours = basis.measure(&planned.layout, reads);
                let gain = less(ours.latency(), basic.latency());
                let note = format!(
                    "{:.2} ms; {} objects and {} blocks moved; {:.2} device reads for 128 KiB, before {:.2}",
                    ours.latency(),
                    planned.plan.moves.len(),
                    planned.plan.blocks(),
                    ours.reads_per_128_kib(),
                    basic.reads_per_128_kib()
                );
                let row = match (at, reads) {
                    (0, Reads::Planned) => Row::claim(&id, gain),
                    _ => Row::new(format!("{of}: less with ReDedup, {name}"), "%", gain),
                };
                rows.push(row.note(note));
                heights[at].push(gain);
            }
        }
    }
    let mut papers = vec![papers].into_iter();
    let bars = |((name, _), heights): ((&str, Planner), Vec<f64>)| {
        Bars::new(name, heights).papers(papers.next().unwrap_or_default())
    };
    Figure {
        name: "rededup-latency",
        source: "ReDedup fig. 5",
        title: "mean time of a read".into(),
        rows,
        chart: Chart::bars(
            "Mean time of a read less than with basic deduplication",
            "% less",
            groups(),
            PLANNERS.into_iter().zip(heights).map(bars).collect(),
        ),
        notes: vec![
            "Requests of 32 KiB, one after another without pause. The paper's 0.1 to 0.7 ms are of smaller requests on a faster disk: only the \
             ratio is compared."
                .into(),
            "A plan of one day's reads. The paper does not say which reads it measured: the planned ones are judged, the next day's stand beside them."
                .into(),
        ],
    }
}

fn assess(results: &Results) -> Figure {
    let sharings = [(Sharing::Pairs, "pairs"), (Sharing::OwnRuns, "own runs"), (Sharing::OthersRuns, "others' runs")];
    let merges = [(Merge::Adjacent, "adjacent"), (Merge::ByObject, "by object")];
    let orders = [(Order::Value, "value"), (Order::ValuePerBlock, "value for a block")];
    let mut rows = Vec::new();
    let mut heights = vec![Vec::new(); sharings.len()];
    for shape in SHAPES {
        let basis = Basis::new(sized(shape, results.quick));
        let tenth = u64::from(basis.oldest.free) / 10;
        for (most_blocks, amount, claim) in [(u64::MAX, "all", "all"), (tenth, "a tenth", "tenth")] {
            let gain = |sharing, merge, order| {
                let rules = Rules { order, most_blocks, ..Rules::PAPER };
                basis.gain(Planner { merge, sharing, rules })
            };
            let mut by_sharing = Vec::new();
            for (merge, merged) in merges {
                for (order, ordered) in orders {
                    let gains = sharings.map(|(sharing, _)| gain(sharing, merge, order));
                    for (gain, (_, counted)) in gains.into_iter().zip(sharings) {
                        let label = format!("{}, {amount} moved: {counted}, merged {merged}, by {ordered}", shape.name);
                        rows.push(Row::new(label, "%", gain));
                    }
                    by_sharing.push(gains);
                }
            }
            let [pairs, own, _] = by_sharing[0];
            rows.push(Row::statement(&format!("rededup-assess/{}-{claim}", shape.name), own > pairs));
            for (heights, gain) in heights.iter_mut().zip(by_sharing[0]) {
                heights.push(gain);
            }
        }
    }
    let groups = SHAPES.iter().flat_map(|shape| ["all", "a tenth"].map(|amount| format!("{}, {amount}", shape.name)));
    Figure {
        name: "rededup-assess",
        source: "ReDedup section IV.B, and beyond",
        title: "ways to assess".into(),
        rows,
        chart: Chart::bars(
            "Time of a read less than basic, merged as printed",
            "% less",
            groups.collect(),
            sharings.into_iter().zip(heights).map(|((_, name), heights)| Bars::new(name, heights)).collect(),
        ),
        notes: vec!["All candidates are taken here, also those with a value below 0, as printed.".into()],
    }
}
