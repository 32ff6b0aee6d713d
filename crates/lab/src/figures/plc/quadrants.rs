//! What is written to flash, by how popular it is and how often it was written (the slides "Analysis" and "Distributions").
//!
//! Popular means: read at least PF.thr = 5 times in the run. Written once: QA, the data that PLC-Cache is named after; repeatedly: QB.

use super::super::claims::find;
use super::super::plot::{Bars, Chart};
use super::super::runs::Results;
use super::super::{Entry, Figure, Row};
use super::{PAPER, QUICK_PART, Workload, ours, sized};
use crate::flash_cache::policies::Policy;
use crate::flash_cache::workload::{Shape, Unit};
use crate::flash_cache::{Level, Outcome, Quadrants, Setup};

pub(super) const QUADRANTS: Entry = Entry {
    name: "plc-quadrants",
    about: "PLC slides, analysis: what is written by FIFO, LRU and LFU, by chunk and by container",
    runs: Vec::new,
    make: quadrants,
};
pub(super) const DISTRIBUTION: Entry = Entry {
    name: "plc-distribution",
    about: "PLC slides, distributions: what is written by LRU and by PLC-Cache",
    runs: Vec::new,
    make: distribution,
};

const NAMES: [&str; 3] = ["popular, once (QA)", "popular, repeatedly (QB)", "not popular (QC, QD)"];

fn shares(quadrants: Quadrants) -> [f64; 3] {
    [quadrants.popular_once, quadrants.popular_repeatedly, quadrants.unpopular]
}

fn bars(title: &str, groups: Vec<String>, outcomes: &[Outcome], papers: &[[Option<f64>; 3]]) -> Chart {
    let one = |(at, name): (usize, &str)| {
        let papers = (0..outcomes.len()).map(|of| papers.get(of).and_then(|paper| paper[at])).collect();
        Bars::new(name, outcomes.iter().map(|outcome| shares(outcome.quadrants)[at]).collect()).papers(papers)
    };
    let series = NAMES.into_iter().enumerate().map(one).collect();
    Chart::bars(title, "% of the bytes written", groups, series).range_y(0.0, 100.0)
}

fn quadrants(results: &Results) -> Figure {
    let workload = Workload::new(sized(Shape::SLIDES, results.quick));
    let policies = [Policy::Fifo, Policy::Lru, Policy::Lfu];
    let mut setups = Vec::new();
    for level in [Level::Chunks, Level::Containers] {
        setups.extend(policies.map(|policy| Setup { level, ..Setup::new(policy, workload.cache(10)) }));
    }
    let outcomes = workload.run(&setups);
    let mut rows = Vec::new();
    let mut groups = Vec::new();
    for (setup, outcome) in setups.iter().zip(&outcomes) {
        let by = if setup.level == Level::Chunks { "chunk" } else { "container" };
        groups.push(format!("{}, {by}", setup.policy.name()));
        for (name, share) in NAMES.into_iter().zip(shares(outcome.quadrants)) {
            rows.push(Row::new(format!("{} by {by}: {name}", setup.policy.name()), "%", share));
        }
    }
    let each = |holds: fn(Quadrants, Quadrants) -> bool| {
        let pairs =
            outcomes[..3].iter().zip(&outcomes[3..]).map(|(chunk, container)| (chunk.quadrants, container.quadrants));
        policies.iter().zip(pairs).map(move |(policy, (chunk, container))| (policy.name(), holds(chunk, container)))
    };
    let once = each(|chunk, container| container.popular_once < chunk.popular_once);
    let repeatedly = each(|chunk, container| container.popular_repeatedly > chunk.popular_repeatedly);
    let unpopular = each(|chunk, container| container.unpopular < chunk.unpopular);
    rows.push(Row::every("plc-quadrants/once", once));
    rows.push(Row::every("plc-quadrants/repeatedly", repeatedly));
    rows.push(Row::every("plc-quadrants/unpopular", unpopular));
    let all = |quadrant: fn(Quadrants) -> f64| {
        let of: Vec<f64> = outcomes[3..].iter().map(|outcome| quadrant(outcome.quadrants)).collect();
        of.iter().copied().fold(0.0, f64::max) - of.iter().copied().fold(100.0, f64::min)
    };
    let spread = all(|of| of.popular_once).max(all(|of| of.popular_repeatedly)).max(all(|of| of.unpopular));
    // The slide says "similar" and draws bars that differ by a few points.
    rows.push(Row::claim("plc-quadrants/similar", spread));
    Figure {
        name: "plc-quadrants",
        source: "PLC slides, analysis",
        title: "what FIFO, LRU and LFU write, by chunk and by container".into(),
        rows,
        chart: bars("What is written, cache of 1 %", groups, &outcomes, &[]),
        notes: vec![
            "The slide shows only pictures. A cache of 1 % of the data; with the 20 % of the slide on the overall result, nothing is left \
             that is evicted soon."
                .into(),
        ],
    }
}

/// The slide's shares as claims, and what each wrote. The shares of 0 % are statements.
const LRU: [&str; 4] = [
    "plc-distribution/lru-once",
    "plc-distribution/lru-repeatedly",
    "plc-distribution/lru-unpopular",
    "plc-distribution/lru-written",
];
const PLC: [&str; 4] = [
    "plc-distribution/plc-once",
    "plc-distribution/plc-repeatedly",
    "plc-distribution/plc-unpopular",
    "plc-distribution/plc-written",
];

fn distribution(results: &Results) -> Figure {
    let mut rows = Vec::new();
    let mut drawn = Vec::new();
    for gigabytes in [80, 520] {
        let shape = Shape { unit: Unit::Containers, read_bytes: gigabytes << 30, ..Shape::SLIDES };
        let workload = Workload::new(sized(shape, results.quick));
        let part = if results.quick { QUICK_PART as f64 } else { 1.0 };
        let cache = workload.cache(10);
        let policies = [(Policy::Lru, Some(LRU)), (PAPER, Some(PLC)), (ours(cache), None)];
        let outcomes = workload.run(&policies.map(|(policy, _)| Setup::new(policy, cache)));
        for ((policy, paper), outcome) in policies.into_iter().zip(&outcomes) {
            let label = format!("{}, {gigabytes} GB of reads", policy.name());
            let [once, repeatedly, unpopular] = shares(outcome.quadrants);
            for (at, value) in [once, repeatedly, unpopular, outcome.written_gib() * part].into_iter().enumerate() {
                // The slides say neither the size of the cache nor the length of this run. 80 GB of reads are judged, as LRU then
                // writes about as much as on the slide.
                let (what, unit) = if at < 3 { (NAMES[at], "%") } else { ("written", "GB") };
                rows.push(match paper {
                    Some(paper) if gigabytes == 80 => Row::claim(paper[at], value),
                    _ => Row::new(format!("{label}: {what}"), unit, value),
                });
            }
        }
        let (lru, plc) = (outcomes[0].written_gib(), outcomes[1].written_gib());
        if gigabytes == 80 {
            rows.push(Row::claim("plc-distribution/times", lru / plc));
            drawn = outcomes;
        } else {
            rows.push(Row::new(
                format!("{gigabytes} GB of reads: LRU writes as much as PLC-Cache"),
                "times",
                lru / plc,
            ));
        }
    }
    let groups = ["LRU", "PLC-Cache", "ours"].map(String::from).to_vec();
    let shares = |ids: [&str; 4]| [0, 1, 2].map(|at| Some(find(ids[at]).value.unwrap_or(0.0)));
    let papers = [shares(LRU), shares(PLC), [None; 3]];
    Figure {
        name: "plc-distribution",
        source: "PLC slides, distributions of four quadrants",
        title: "what LRU and PLC-Cache write".into(),
        rows,
        chart: bars("What is written, cache of 1 %, 80 GB of reads", groups, &drawn, &papers),
        notes: vec![
            "Containers are read by themselves here (Zipf). PLC-Cache writes nothing unpopular by construction: who passes the filter was read \
             five times. The slides' other shares need a cache of 0.5 to 2 %."
                .into(),
        ],
    }
}
