//! Figure of the overall result (the slide "Overall Results"), on disk models.

use super::super::claims::find;
use super::super::plot::{Bars, Chart};
use super::super::runs::Results;
use super::super::{Entry, Figure, Row};
use super::calibrated::{Calibration, Mean, ONE_MEASURE, SLIDES};
use super::{CONTAINERS, PAPER, Workload, less, ours, percent, sized};
use crate::flash_cache::policies::Policy;
use crate::flash_cache::{Handling, Setup};

pub(super) const OVERALL: Entry = Entry {
    name: "plc-overall",
    about: "PLC slides, overall results: times and bytes written, against no flash and against LRU",
    runs: Vec::new,
    make: overall,
};

/// Caches in thousandths of the data with 520 GB of reads: the slide's, and one in which its modules have something to do.
const CACHES: [u64; 2] = [200, 10];
const NAMES: [&str; 7] = ["HDD only", "FIFO", "LRU", "LFU", "PLC-Cache", "ours, waits", "ours, behind"];

/// Measures all of [`NAMES`] in a calibrated run.
fn calibrated(calibration: &Calibration, quick: bool) -> Vec<Mean> {
    let (plc, own) = (Policy::Plc(calibration.rules()), ours(calibration.cache_bytes()));
    let cases = [Policy::None, Policy::Fifo, Policy::Lru, Policy::Lfu, plc, own].map(|policy| (policy, 5, 1));
    let mut means = calibration.measure(&cases, Some(Handling::Foreground), quick);
    means.extend(calibration.measure(&cases[5..], Some(Handling::Background), quick));
    means
}

/// Computes the slide's numbers of such a run: the time saved against no flash, and against the traditional policies; and the factor by which LRU writes more.
fn gains(means: &[Mean]) -> [f64; 3] {
    let seconds = |at: usize| means[at].seconds;
    let traditional = (1..4).map(seconds).sum::<f64>() / 3.0;
    [less(seconds(4), seconds(0)), less(seconds(4), traditional), means[2].written_gib / means[4].written_gib]
}

const CLAIMS: [&str; 3] = ["plc-overall/hdd", "plc-overall/traditional", "plc-overall/writes"];

fn overall(results: &Results) -> Figure {
    let workload = Workload::new(sized(CONTAINERS, results.quick));
    let mut rows = Vec::new();
    let (judged, other) = (calibrated(&SLIDES, results.quick), calibrated(&ONE_MEASURE, true));
    rows.extend(CLAIMS.into_iter().zip(gains(&judged)).map(|(id, value)| Row::claim(id, value)));
    for (calibration, means) in [(SLIDES, &judged), (ONE_MEASURE, &other)] {
        for (name, mean) in NAMES.into_iter().zip(means) {
            let note = format!("hits {:.1} %, {:.2} GB written", mean.hit_percent, mean.written_gib);
            rows.push(Row::new(format!("{}, {name}: time", calibration.name), "s", mean.seconds).note(note));
        }
    }
    for (id, value) in CLAIMS.into_iter().zip(gains(&other)) {
        let claim = find(id);
        rows.push(Row::new(format!("{}: {}", ONE_MEASURE.name, claim.what), claim.unit, value));
    }
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
        for (what, unit, value) in [
            ("time less than without flash", "%", less(seconds(4), seconds(0))),
            ("time less than with FIFO, LRU and LFU in the mean", "%", less(seconds(4), traditional)),
            ("LRU writes as much, times", "times", times),
        ] {
            rows.push(Row::new(format!("cache {}, PLC-Cache: {what}", percent(permille)), unit, value));
        }
        for (points, at) in points.iter_mut().zip([5, 6]) {
            points.push((format!("cache {}", percent(permille)), seconds(at) < seconds(4)));
        }
    }
    let [waits, behind] = points;
    rows.extend([Row::every("plc-overall/ours-waits", waits), Row::every("plc-overall/ours-behind", behind)]);
    let series = NAMES.into_iter().zip(bars).enumerate().skip(1).map(|(at, (name, mut heights))| {
        heights.insert(0, less(judged[at].seconds, judged[0].seconds));
        let papers = if at == 4 { vec![find("plc-overall/hdd").value, None, None] } else { Vec::new() };
        Bars::new(name, heights).papers(papers)
    });
    let groups = std::iter::once("calibrated".to_string());
    let groups = groups.chain(CACHES.map(|cache| format!("cache of {}, 520 GB", percent(cache))));
    Figure {
        name: "plc-overall",
        source: "PLC slides, overall results",
        title: "reads of hard disks with a cache on flash".into(),
        rows,
        chart: Chart::bars(
            "Time of all reads, against hard disks alone",
            "% less",
            groups.collect(),
            series.collect(),
        ),
        notes: vec![
            "One read after another, a container each; on a miss the container is written to flash while the reader waits, as on the slides. \
             Ours is shown so, and with the write behind the reader's back."
                .into(),
            "Judged is the run that is calibrated to the quadrants (cache of 1 %, 93 GB of reads); its times were not looked at for that."
                .into(),
            "With 20 % of the data, PLC-Cache as printed does not fill its cache: what is read less than five times stays out, and LRU hits \
             more. The slides' gain over traditional caches needs a small cache, or flash that is bound by writes."
                .into(),
        ],
    }
}
