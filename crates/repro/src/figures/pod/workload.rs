//! Figures of the traces: Table 3, Fig. 1 and Fig. 2.

use super::{TRACES, names};
use crate::figures::claims::find;
use crate::figures::plot::{Bars, Chart};
use crate::figures::runs::Results;
use crate::figures::{Entry, Figure, Row};
use crate::traces::stat::Figures as Stated;

pub(super) const TABLE_3: Entry =
    Entry { name: "pod-table-3", about: "POD, Table 3: the traces", runs: Vec::new, make: table_3 };
pub(super) const FIG_1: Entry =
    Entry { name: "pod-1", about: "POD, Fig. 1: redundancy by size of request", runs: Vec::new, make: fig_1 };
pub(super) const FIG_2: Entry = Entry {
    name: "pod-2",
    about: "POD, Fig. 2: redundancy at the same place and elsewhere",
    runs: Vec::new,
    make: fig_2,
};

fn table_3(results: &Results) -> Figure {
    let mut rows = Vec::new();
    let (mut heights, mut papers) = (Vec::new(), Vec::new());
    for trace in TRACES {
        let stated = results.day(trace);
        let name = trace.name();
        let all =
            [("ratio", 100.0 * stated.write_ratio), ("requests", stated.requests as f64), ("size", stated.mean_kib)];
        rows.extend(all.map(|(what, ours)| Row::claim(&format!("pod-table-3/{what}-{name}"), ours)));
        heights.push(stated.mean_kib);
        papers.push(find(&format!("pod-table-3/size-{name}")).value);
    }
    let bars = Bars::new("ours", heights).papers(papers);
    Figure {
        name: "pod-table-3",
        source: "POD, Table 3",
        title: "the day that is measured".into(),
        rows,
        chart: Chart::bars("Mean size of requests", "KiB", names(), vec![bars]),
        notes: vec!["The stand-ins were made to have these values: they count for nothing.".into()],
    }
}

fn fig_1(results: &Results) -> Figure {
    let mut rows = Vec::new();
    let mut series = Vec::new();
    let mut groups = Vec::new();
    for trace in TRACES {
        let stated = results.day(trace);
        let of = |part: u64, class: u64| 100.0 * part as f64 / class.max(1) as f64;
        groups = stated.by_size.iter().map(|class| format!("{} blocks", class.blocks)).collect();
        for class in &stated.by_size {
            let label = |what: &str| format!("{}, {} blocks: {what}", trace.name(), class.blocks);
            rows.push(Row::new(label("of all writes"), "%", of(class.writes, stated.writes)));
            rows.push(Row::new(label("known as a whole"), "% of these", of(class.fully, class.writes)));
            rows.push(Row::new(label("known in part"), "% of these", of(class.partly, class.writes)));
        }
        if let [small, .., large] = &stated.by_size[..] {
            let dominates = stated.by_size.iter().all(|class| class.writes <= small.writes);
            let falls = of(small.fully, small.writes) > of(large.fully, large.writes);
            rows.push(Row::statement(&format!("pod-1/small-{}", trace.name()), dominates));
            rows.push(Row::statement(&format!("pod-1/known-{}", trace.name()), falls));
        }
        let heights = stated.by_size.iter().map(|class| of(class.fully, class.writes)).collect();
        series.push(Bars::new(format!("{}, known as a whole", trace.name()), heights));
    }
    Figure {
        name: "pod-1",
        source: "POD, Fig. 1",
        title: "redundancy by size of request".into(),
        rows,
        chart: Chart::bars("Writes that are known as a whole, by size", "% of the writes of this size", groups, series)
            .range_y(0.0, 100.0),
        notes: vec!["Known: written before on the same day.".into()],
    }
}

fn fig_2(results: &Results) -> Figure {
    let stated = TRACES.map(|trace| results.day(trace));
    let mut rows = Vec::new();
    for (trace, stated) in TRACES.iter().zip(&stated) {
        rows.push(Row::new(
            format!("{}: same place", trace.name()),
            "% of blocks written",
            100.0 * stated.unchanged_share,
        ));
        rows.push(Row::new(
            format!("{}: elsewhere", trace.name()),
            "% of blocks written",
            100.0 * stated.elsewhere_share,
        ));
    }
    let points = stated.iter().map(|stated| 100.0 * stated.unchanged_share).sum::<f64>() / 3.0;
    let above = |stated: &&Stated| 100.0 * stated.unchanged_share / stated.elsewhere_share.max(1e-9);
    let relative = stated.iter().map(above).sum::<f64>() / 3.0;
    rows.push(Row::claim("pod-2/above", points));
    let label = "I/O redundancy above capacity redundancy, mean of the three";
    rows.push(Row::new(label, "% of capacity redundancy", relative).note("the other reading of the paper's 21.9 %"));
    let bars = |name: &str, share: fn(&Stated) -> f64| {
        Bars::new(name, stated.iter().map(|stated| 100.0 * share(stated)).collect())
    };
    let series =
        vec![bars("same place", |stated| stated.unchanged_share), bars("elsewhere", |stated| stated.elsewhere_share)];
    Figure {
        name: "pod-2",
        source: "POD, Fig. 2",
        title: "redundancy at the same place and elsewhere".into(),
        rows,
        chart: Chart::bars("Blocks written whose content was written before", "% of blocks written", names(), series)
            .range_y(0.0, 100.0),
        notes: Vec::new(),
    }
}
