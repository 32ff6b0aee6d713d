//! Figures on real block traces, each under its own name. Reads are by regions of the disk in place of containers.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::super::plot::{Chart, Line, Scale};
use super::super::runs::Results;
use super::super::{Data as Measured, Entry, Figure, Row};
use super::{PAPER, Workload, ours, percent};
use crate::flash_cache::Setup;
use crate::flash_cache::policies::Policy;
use crate::flash_cache::workload::{Data, EXTENT, Shape, Unit};
use crate::traces::{BLOCK, Options, open};

pub(super) const CLOUDPHYSICS: Entry = Entry {
    name: "plc-cloudphysics",
    about: "beyond PLC: hits against bytes written, reads of a virtual machine of CloudPhysics",
    runs: Vec::new,
    make: |results| of_trace(results, "plc-cloudphysics", "CloudPhysics", "cloudphysics/cloudPhysicsIO.csv"),
};
pub(super) const MQSIM: Entry = Entry {
    name: "plc-mqsim",
    about: "beyond PLC: hits against bytes written, reads of MQSim's sample of TPC-C",
    runs: Vec::new,
    make: |results| of_trace(results, "plc-mqsim", "MQSim, tpcc-small", "mqsim/tpcc-small.trace"),
};

/// Cache sizes in thousandths of the read data.
const SIZES: [u64; 5] = [10, 20, 50, 100, 200];
/// Memory in front of flash, in thousandths of the read data. Without it, hits on flash are mostly of recently read data.
const MEMORY: u64 = 50;
/// Requests read in the short form.
const QUICK_REQUESTS: usize = 10_000;

/// Finds a trace file: `shared/data` beside the repository or further above.
fn file(path: &str) -> Option<PathBuf> {
    let above = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    above.map(|above| above.join("shared/data").join(path)).find(|path| path.exists())
}

/// Makes a workload of the reads of a trace, by regions of the size of an extent. Writes go around the cache.
fn workload(path: &Path, quick: bool) -> Result<Workload, String> {
    let mut regions = BTreeMap::new();
    let mut files = Vec::new();
    let most = if quick { QUICK_REQUESTS } else { usize::MAX };
    for request in open(&[path.to_path_buf()], &Options::default()).map_err(|error| error.to_string())?.take(most) {
        let request = request.map_err(|error| error.to_string())?;
        if request.writes {
            continue;
        }
        let region = |block: u64| block * BLOCK / EXTENT;
        for region in region(request.block)..=region(request.block + u64::from(request.blocks.max(1)) - 1) {
            let next = regions.len() as u32;
            files.push(*regions.entry(region).or_insert(next));
        }
    }
    let bytes = regions.len() as u64 * EXTENT;
    let shape = Shape {
        bytes,
        container_bytes: EXTENT,
        read_bytes: 0,
        unit: Unit::Containers,
        alpha: 0.0,
        others: 0.0,
        seed: 0,
    };
    Ok(Workload { shape, data: Data::of_containers(regions.len() as u32, EXTENT), files })
}

fn of_trace(results: &Results, name: &'static str, title: &str, path: &str) -> Figure {
    let made = match file(path) {
        Some(path) => workload(&path, results.quick),
        None => Err(format!("there is no shared/data/{path} beside the repository: nothing was measured")),
    };
    let mut notes = vec![
        "Reads alone, by regions of 64 KiB; a region is read whole on a miss. Its time is spread over a day."
            .to_string(),
    ];
    notes.push(
        "In front of flash is a read cache in memory (LRU, 5 % of the regions), whose hits flash does not see; shares are of the reads that reach \
         flash. Without memory LRU hits on flash when a region is read again at once."
            .into(),
    );
    let (mut rows, mut series) = (Vec::new(), Vec::new());
    match made {
        Ok(workload) if !workload.files.is_empty() => {
            notes.push(format!("{} reads of {} regions.", workload.files.len(), workload.data.containers));
            series = measure(&workload, name, title, &mut rows);
        }
        Ok(_) => notes.push("It has no reads.".into()),
        Err(why) => notes.push(why),
    }
    Figure {
        name,
        source: "beyond PLC",
        title: format!("{title}: hits and bytes written"),
        rows,
        chart: Chart::lines(
            format!("Hits against bytes written behind memory, {title}"),
            ("MiB written", "hits in % of reads"),
            series.into_iter().map(|(name, points)| Line::new(name, points)).collect(),
        )
        .scale_x(Scale::Log),
        notes,
    }
}

fn measure(workload: &Workload, name: &str, title: &str, rows: &mut Vec<Row>) -> Vec<(String, Vec<(f64, f64)>)> {
    let mut series: Vec<(String, Vec<(f64, f64)>)> = Vec::new();
    let (mut hits, mut plc, mut written) = (Vec::new(), Vec::new(), Vec::new());
    for (permille, memory) in SIZES.into_iter().flat_map(|permille| [(permille, MEMORY), (permille, 0)]) {
        let cache = workload.cache(permille);
        let policies =
            [Policy::Fifo, Policy::Lru, Policy::Lfu, Policy::Larc, Policy::Arc, Policy::S3Fifo, PAPER, ours(cache)];
        let memory_bytes = workload.cache(memory);
        let outcomes = workload.run(&policies.map(|policy| Setup { memory_bytes, ..Setup::new(policy, cache) }));
        series.resize_with(policies.len(), Default::default);
        let front = if memory > 0 { "behind memory" } else { "without memory" };
        for (at, outcome) in outcomes.iter().enumerate() {
            let mib = outcome.written_bytes as f64 / (1u64 << 20) as f64;
            let of = format!("{title} {front}, cache {}, {}", percent(permille), policies[at].name());
            let all = outcome.memory_hits + outcome.accesses;
            let note = format!("{} of {all} reads reach flash", outcome.accesses);
            rows.push(Row::new(format!("{of}: hits"), "%", outcome.hit_percent()).of(Measured::Real).note(note));
            rows.push(Row::new(format!("{of}: written"), "MiB", mib).of(Measured::Real));
            if memory > 0 {
                series[at].0 = policies[at].name().into();
                series[at].1.push((mib.max(0.01), outcome.hit_percent()));
            }
        }
        let (lru, printed, own) = (&outcomes[1], &outcomes[6], &outcomes[7]);
        if memory > 0 {
            let label = format!("cache {}", percent(permille));
            hits.push((label.clone(), own.hits >= lru.hits));
            plc.push((label.clone(), own.hits >= printed.hits));
            written.push((label, 2 * own.written_bytes <= lru.written_bytes));
        }
    }
    for (claim, points) in [("hits", hits), ("plc", plc), ("written", written)] {
        rows.push(Row::every(&format!("{name}/{claim}"), points).of(Measured::Real));
    }
    series
}
