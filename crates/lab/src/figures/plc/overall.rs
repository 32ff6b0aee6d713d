//! The overall result (the slide "Overall Results"), on models of disks.

use super::super::claims::find;
use super::super::plot::{Bars, Chart};
use super::super::runs::Results;
use super::super::{Entry, Figure, Row};
use super::{PAPER, Workload, less, ours, percent, sized};
use crate::flash_cache::policies::Policy;
use crate::flash_cache::workload::{Shape, Unit};
use crate::flash_cache::{Handling, Setup};

pub(super) const OVERALL: Entry = Entry {
    name: "plc-overall",
    about: "PLC slides, overall results: times and bytes written, against no flash and against LRU",
    runs: Vec::new,
    make: overall,
};

/// Caches in thousandths of the data: the slide's, which is judged, and one in which its modules have something to do.
const CACHES: [u64; 2] = [200, 10];
const NAMES: [&str; 7] = ["HDD only", "FIFO", "LRU", "LFU", "PLC-Cache", "ours, waits", "ours, behind"];

fn overall(results: &Results) -> Figure {
    let shape = Shape { unit: Unit::Containers, ..Shape::SLIDES };
    let workload = Workload::new(sized(shape, results.quick));
    let mut rows = Vec::new();
    let mut points = [Vec::new(), Vec::new()];
    let mut bars: Vec<Vec<f64>> = vec![Vec::new(); NAMES.len()];
    for permille in CACHES {
        let cache = workload.cache(permille);
        let policies = [Policy::None, Policy::Fifo, Policy::Lru, Policy::Lfu, PAPER, ours(cache), ours(cache)];
        let mut setups = policies.map(|policy| {
            let disks = Some(Handling::Foreground);
            Setup { disks, ..Setup::new(policy, cache) }
        });
        setups[6].disks = Some(Handling::Background);
        let outcomes = workload.run(&setups);
        let seconds = |at: usize| outcomes[at].nanos as f64 / 1e9;
        for (at, outcome) in outcomes.iter().enumerate() {
            let of = format!("cache {}, {}", percent(permille), NAMES[at]);
            rows.push(Row::new(format!("{of}: time"), "s", seconds(at)));
            if at > 0 {
                let note = format!("hits {:.1} %", outcome.hit_percent());
                rows.push(Row::new(format!("{of}: written"), "GB", outcome.written_gib()).note(note));
            }
            bars[at].push(less(seconds(at), seconds(0)));
        }
        let traditional = (1..4).map(seconds).sum::<f64>() / 3.0;
        let times = outcomes[2].written_gib() / outcomes[4].written_gib();
        for (id, what, unit, value) in [
            ("plc-overall/hdd", "time less than without flash", "%", less(seconds(4), seconds(0))),
            (
                "plc-overall/traditional",
                "time less than with FIFO, LRU and LFU in the mean",
                "%",
                less(seconds(4), traditional),
            ),
            ("plc-overall/writes", "LRU writes as much, times", "times", times),
        ] {
            let label = format!("cache {}, PLC-Cache: {what}", percent(permille));
            rows.push(if permille == CACHES[0] { Row::claim(id, value) } else { Row::new(label, unit, value) });
        }
        for (points, at) in points.iter_mut().zip([5, 6]) {
            points.push((format!("cache {}", percent(permille)), seconds(at) < seconds(4)));
        }
    }
    let [waits, behind] = points;
    rows.extend([Row::every("plc-overall/ours-waits", waits), Row::every("plc-overall/ours-behind", behind)]);
    let series = NAMES.into_iter().zip(bars).enumerate().skip(1).map(|(at, (name, heights))| {
        let papers = if at == 4 { vec![find("plc-overall/hdd").value, None] } else { Vec::new() };
        Bars::new(name, heights).papers(papers)
    });
    Figure {
        name: "plc-overall",
        source: "PLC slides, overall results",
        title: "520 GB of reads on hard disks with a cache on flash".into(),
        rows,
        chart: Chart::bars(
            "Time of all reads, against hard disks alone",
            "% less",
            CACHES.map(|cache| format!("cache of {}", percent(cache))).to_vec(),
            series.collect(),
        ),
        notes: vec![
            "One read after another, a container each; on a miss the container is written to flash while the reader waits, as on the slides. \
             Ours is shown so, and with the write behind the reader's back."
                .into(),
            "With 20 % of the data, PLC-Cache as printed does not fill its cache: what is read less than five times stays out, and LRU hits \
             more. The slides' gain over traditional caches needs a small cache, or flash that is bound by writes."
                .into(),
        ],
    }
}
