//! Figure of flash lifetime (the slide "Challenge of SSD Cache").

use super::super::claims::find;
use super::super::plot::{Bars, Chart, Scale};
use super::super::runs::Results;
use super::super::{Data, Entry, Figure, Row};
use super::calibrated::SLIDES;
use super::{PAPER, Workload, ours, sized};
use crate::flash_cache::policies::Policy;
use crate::flash_cache::workload::Shape;
use crate::flash_cache::{Handling, Setup};

pub(super) const LIFETIME: Entry = Entry {
    name: "plc-lifetime",
    about: "PLC slides, challenge: days that flash lasts at the slides' rates of writing, and at those of our runs",
    runs: Vec::new,
    make: lifetime,
};

const MIB: f64 = (1u64 << 20) as f64;
const TIB: f64 = (1u64 << 40) as f64;
/// The slide's rates in MB/s.
const TABLE: [(&str, f64); 3] = [("FIFO", 56.7), ("LRU", 50.7), ("LFU", 53.1)];
/// Endurance of 60 GB of each drive: data that may be written, in TB.
const DRIVES: [(&str, f64); 2] = [("Intel 520", 36.0), ("Intel 910", 768.0)];

fn lifetime(results: &Results) -> Figure {
    let mut rows = Vec::new();
    let mut series = Vec::new();
    for (drive, (name, written)) in DRIVES.into_iter().enumerate() {
        let days = |rate: f64| written * TIB / (rate * MIB) / 86_400.0;
        let id = |policy: &str| format!("plc-lifetime/{}-{}", policy.to_lowercase(), ["520", "910"][drive]);
        for (policy, rate) in TABLE {
            // The slide rounds; with powers of two all six are 1.4 % above it, with powers of ten 3.4 % below.
            rows.push(Row::claim(&id(policy), days(rate)).of(Data::Model));
        }
        let papers = TABLE.map(|(policy, _)| find(&id(policy)).value).to_vec();
        let heights = TABLE.map(|(_, rate)| days(rate)).to_vec();
        series.push(Bars::new(format!("{name}, {written} TB"), heights).papers(papers));
    }
    let policies = [Policy::Fifo, Policy::Lru, Policy::Lfu];
    let written = SLIDES.measure(&policies.map(|policy| (policy, 5, 1)), Some(Handling::Foreground), results.quick);
    for (policy, mean) in policies.into_iter().zip(&written) {
        let note = format!("{:.1} GB in {:.0} s, hits {:.1} %", mean.written_gib, mean.seconds, mean.hit_percent);
        let id = format!("plc-lifetime/{}-rate", policy.name().to_lowercase());
        rows.push(Row::claim(&id, mean.mib_per_second()).note(note));
    }
    let workload = Workload::new(sized(Shape::SLIDES, results.quick));
    let cache = workload.cache(200);
    let policies = [Policy::Fifo, Policy::Lru, Policy::Lfu, PAPER, ours(cache)];
    for outcome in workload.run(&policies.map(|policy| Setup::new(policy, cache))).into_iter().zip(policies) {
        let (outcome, policy) = outcome;
        let part = Shape::SLIDES.bytes as f64 / workload.shape.bytes as f64;
        let days = 36.0 * TIB / (outcome.written_bytes as f64 * part);
        let label = format!("{}: 520 GB of reads a day, cache 20 %, Intel 520", policy.name());
        let note = format!("{:.1} GB written a day, hits {:.1} %", outcome.written_gib() * part, outcome.hit_percent());
        rows.push(Row::new(label, "days", days).note(note));
    }
    Figure {
        name: "plc-lifetime",
        source: "PLC slides, challenge of SSD cache",
        title: "how long flash lasts".into(),
        rows,
        chart: Chart::bars(
            "Days until as much was written as may be",
            "days",
            TABLE.map(|(name, _)| name.to_string()).to_vec(),
            series,
        )
        .scale_y(Scale::Log)
        .range_y(1.0, 1000.0),
        notes: vec![
            "The slide's days follow from its own rates. Those are predicted by the run that is calibrated to the quadrants: one read after another \
             from two hard disks, and the reader waits for the write to flash. The lower rows are of a day with 520 GB of reads, where flash is \
             not written without pause."
                .into(),
        ],
    }
}
