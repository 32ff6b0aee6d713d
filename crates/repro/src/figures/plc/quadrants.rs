//! Figures of the bytes written to flash, by popularity and by number of writes (the slides "Analysis" and "Distributions").
//!
//! Popular means: read at least PF.thr = 5 times in the run, unless stated otherwise. Written once: QA, the data that PLC-Cache is named after; repeatedly: QB.

use engine::admission::{Comparison, Filter, Rules};

use super::super::claims::find;
use super::super::plot::{Bars, Chart};
use super::super::runs::Results;
use super::super::{Entry, Figure, Row};
use super::calibrated::{Calibration, Mean, ONE_MEASURE, SLIDES};
use super::{CONTAINERS, PAPER, QUICK_PART, Workload, ours, sized};
use crate::flash_cache::policies::Policy;
use crate::flash_cache::workload::Shape;
use crate::flash_cache::{Level, Quadrants, Setup};

pub(super) const QUADRANTS: Entry = Entry {
    name: "plc-quadrants",
    about: "PLC slides, analysis: writes by FIFO, LRU and LFU, by chunk and by container",
    runs: Vec::new,
    make: quadrants,
};
pub(super) const DISTRIBUTION: Entry = Entry {
    name: "plc-distribution",
    about: "PLC slides, distributions: writes by LRU and by PLC-Cache",
    runs: Vec::new,
    make: distribution,
};

const NAMES: [&str; 3] = ["popular, once (QA)", "popular, repeatedly (QB)", "not popular (QC, QD)"];

fn shares(quadrants: Quadrants) -> [f64; 3] {
    [quadrants.popular_once, quadrants.popular_repeatedly, quadrants.unpopular]
}

fn bars(title: &str, groups: Vec<String>, quadrants: &[Quadrants], papers: &[[Option<f64>; 3]]) -> Chart {
    let one = |(at, name): (usize, &str)| {
        let papers = (0..quadrants.len()).map(|of| papers.get(of).and_then(|paper| paper[at])).collect();
        Bars::new(name, quadrants.iter().map(|&quadrants| shares(quadrants)[at]).collect()).papers(papers)
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
    let all_quadrants: Vec<Quadrants> = outcomes.iter().map(|outcome| outcome.quadrants).collect();
    // The slide says "similar" and draws bars that differ by a few points.
    rows.push(Row::claim("plc-quadrants/similar", spread));
    Figure {
        name: "plc-quadrants",
        source: "PLC slides, analysis",
        title: "what FIFO, LRU and LFU write, by chunk and by container".into(),
        rows,
        chart: bars("Writes, cache of 1 %", groups, &all_quadrants, &[]),
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
    let means = SLIDES.measure(&SLIDES.pair(), None, results.quick);
    let mut rows = Vec::new();
    for (ids, mean) in [LRU, PLC].into_iter().zip(&means) {
        let [once, repeatedly, unpopular] = shares(mean.quadrants);
        rows.extend(
            ids.into_iter().zip([once, repeatedly, unpopular, mean.written_gib]).map(|(id, of)| Row::claim(id, of)),
        );
    }
    rows.push(Row::claim("plc-distribution/times", means[0].written_gib / means[1].written_gib));
    rows.extend(parts(&SLIDES, &means));
    // Both results by each measure of popularity, and the effect of each module.
    let [lru, plc] = SLIDES.pair();
    for (case, popular) in [(lru, SLIDES.popular[1]), (plc, SLIDES.popular[0])] {
        let mean = SLIDES.measure(&[(case.0, popular, case.2)], None, results.quick);
        let label = format!("{}, popular from {popular} reads on, {}", SLIDES.name, name_of(case.0));
        rows.extend(
            NAMES
                .into_iter()
                .zip(shares(mean[0].quadrants))
                .map(|(of, share)| Row::new(format!("{label}: {of}"), "%", share)),
        );
    }
    let rules = SLIDES.rules();
    let without = [
        ("the filter", Rules { filter: Filter::Off, ..rules }),
        ("delayed eviction", Rules { delay: 0, ..rules }),
        ("the comparison", Rules { comparison: Comparison::Off, ..rules }),
    ];
    let cases = without.map(|(_, rules)| (Policy::Plc(rules), SLIDES.popular[1], 1));
    for ((module, _), mean) in without.into_iter().zip(SLIDES.measure(&cases, None, results.quick)) {
        let label = format!("{}, PLC-Cache without {module}", SLIDES.name);
        let note = format!("hits {:.1} %", mean.hit_percent);
        rows.push(Row::new(format!("{label}: written"), "GB", mean.written_gib).note(note));
        rows.push(Row::new(format!("{label}: {}", NAMES[0]), "%", mean.quadrants.popular_once));
    }
    rows.extend(parts(&ONE_MEASURE, &ONE_MEASURE.measure(&ONE_MEASURE.pair(), None, results.quick)));
    rows.extend(as_printed(results.quick));
    let shown = |ids: [&str; 4]| [0, 1, 2].map(|at| find(ids[at]).value);
    let quadrants: Vec<Quadrants> = means.iter().map(|mean| mean.quadrants).collect();
    let groups = ["LRU", "PLC-Cache"].map(String::from).to_vec();
    Figure {
        name: "plc-distribution",
        source: "PLC slides, distributions of four quadrants",
        title: "what LRU and PLC-Cache write".into(),
        rows,
        chart: bars("Writes, calibrated", groups, &quadrants, &[shown(LRU), shown(PLC)]),
        notes: vec![
            "Calibrated: a cache of 1 % (2 GB), 93 GB of reads of containers (Zipf, exponent 1), PF.thr 3, delay 1, m 1.5, and references of 1 + an \
             exponential distribution of mean 2 that have nothing to do with what is popular. The mean of three seeds."
                .into(),
            "A container is popular there from 5 reads on with LRU, and from what the filter asks (3) with PLC-Cache, which so writes nothing that is \
             not. The slides do not say how they count. The nearest with one measure for both is shown, too: exponent 0.8, 60 GB of reads, popular \
             from 3 reads on, m 1.2, references of 1 + a mean of 8."
                .into(),
        ],
    }
}

fn name_of(policy: Policy) -> &'static str {
    if policy == Policy::Lru { "LRU" } else { "PLC-Cache" }
}

/// Makes the rows of a calibrated run for LRU and PLC-Cache, against the slides.
fn parts(calibration: &Calibration, means: &[Mean]) -> Vec<Row> {
    let mut rows = Vec::new();
    for ((name, ids), mean) in [("LRU", LRU), ("PLC-Cache", PLC)].into_iter().zip(means) {
        let [once, repeatedly, unpopular] = shares(mean.quadrants);
        for (id, value) in ids.into_iter().zip([once, repeatedly, unpopular, mean.written_gib]) {
            let claim = find(id);
            let note = format!("slide {}, hits {:.1} %", claim.value.unwrap_or(0.0), mean.hit_percent);
            rows.push(Row::new(format!("{}, {}", calibration.name, claim.what), claim.unit, value).note(note));
        }
        let modules = ["the filter", "delayed eviction", "the comparison"];
        rows.extend(modules.into_iter().zip(mean.refused).filter(|_| name != "LRU").map(|(module, reads)| {
            Row::new(format!("{}, {name}: reads refused by {module}", calibration.name), "", reads)
        }));
    }
    rows
}

/// Measures the rules as printed (PF.thr 5, delay 3), and ours, over 520 GB of reads and a cache of 1 %.
fn as_printed(quick: bool) -> Vec<Row> {
    let workload = Workload::new(sized(CONTAINERS, quick));
    let part = if quick { QUICK_PART as f64 } else { 1.0 };
    let cache = workload.cache(10);
    let policies = [Policy::Lru, PAPER, ours(cache)];
    let outcomes = workload.run(&policies.map(|policy| Setup::new(policy, cache)));
    let mut rows = Vec::new();
    for (policy, outcome) in policies.into_iter().zip(&outcomes) {
        let label = format!("{}, 520 GB of reads", policy.name());
        rows.extend(
            NAMES
                .into_iter()
                .zip(shares(outcome.quadrants))
                .map(|(of, share)| Row::new(format!("{label}: {of}"), "%", share)),
        );
        rows.push(Row::new(format!("{label}: written"), "GB", outcome.written_gib() * part));
    }
    rows
}
