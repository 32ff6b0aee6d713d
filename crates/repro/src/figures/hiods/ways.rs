//! Loads of the dissertation through the engine: its patterns and contents, its ways to find duplicates, on an SSD model.
//!
//! For the tables the drive has the rates of the paper's (its tables 2 and 3); our costs are of the drive of bench/results/simulated.md. A load is N times
//! smaller than 64 GiB, and so are its contents, so the share of duplicates is the same. Requests take no processor time: the drive alone determines the cost
//! of a way. Writes are answered from memory, as behind the paper's page cache. A run is longer than memory, so the drive limits the rate.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use engine::{Goal, Policy, Timing};

use super::model::{Costs, PAPER};
use crate::dedis::BLOCK;
use crate::dedis::addresses::Pattern;
use crate::dedis::distribution::Distribution;
use crate::dedis::load::{Load, Stop};
use crate::dedis::virtual_run::{Outcome, Passes, Setup, run};
use sim::Violation;
use sim::disks::Disk;
use sim::disks::ssd::{Queue, SSD, Ssd};
use sim::parallel::{cores, in_order};

/// The rates of the paper's drive (tables 2 and 3).
pub const DRIVE: Ssd = Ssd { read_bytes_per_second: 1_725_000_000, write_bytes_per_second: 505_000_000, ..SSD };
/// Bytes that the paper writes.
const PAPER_BYTES: u64 = 64 << 30;
/// Minimum memory that the engine needs for such a volume, and 3 MiB: the index in memory has space for one block in ten of 1 GiB.
const LITTLE: u64 = 40 << 20;

/// Contents, if their files are not there: as many duplicates of 64 GiB, in contents of three kinds.
const STAND_INS: [(&str, &str); 2] =
    [("highperf", "0 274550471\n1 15800000\n2 10049345\n64309767 1"), ("kernels", "0 1350366\n3 318000\n4 673486")];

/// Time at which duplicates are found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// No duplicates are found.
    Native,
    /// Inline, before a write is answered.
    Inline,
    /// Offline, not during this load.
    Offline,
    /// Later, with passes during the load.
    Beside,
    /// Later, with passes during the load, under a goal of N requests a second.
    Goal(u64),
}

/// A load.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// Pattern of the addresses.
    pub pattern: Pattern,
    /// Number of workers that make requests.
    pub workers: u64,
    /// Drive of the pool.
    pub drive: Ssd,
    /// Reads; of blocks that were written before, in order.
    pub reads: bool,
    /// Bytes.
    pub bytes: u64,
}

/// Returns the contents of both kinds; true for those that were read from the files.
pub fn contents(bytes: u64) -> [(Distribution, bool); 2] {
    STAND_INS.map(|(name, stand_in)| {
        let found = directory().and_then(|directory| Distribution::open(name, &directory).ok());
        let is_real = found.is_some();
        let distribution =
            found.unwrap_or_else(|| Distribution::parse(name, stand_in).expect("a stand-in is a distribution"));
        (distribution.shrunk(PAPER_BYTES / bytes), is_real)
    })
}

/// Finds the directory of the files: `shared/data` beside the repository or further above.
fn directory() -> Option<PathBuf> {
    let above = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    above.map(|above| above.join("shared/data/dedisbench")).find(|path| path.is_dir())
}

/// Measures one load, one way. `in_memory`: metadata takes no time, and there is memory for all contents; else there is little of it.
pub fn measure(case: Case, way: Way, in_memory: bool, distribution: &Distribution) -> Result<Outcome, String> {
    measure_with(case, way, (!in_memory).then_some(LITTLE), distribution)
}

/// Measures one load with `memory` bytes; none: metadata takes no time, and there is memory for all contents.
pub fn measure_with(case: Case, way: Way, memory: Option<u64>, distribution: &Distribution) -> Result<Outcome, String> {
    run(&setup(case, way, memory), distribution, &mut |_| {}).map_err(|Violation(why)| why)
}

/// Makes the run of one load, one way.
pub fn setup(case: Case, way: Way, memory: Option<u64>) -> Setup {
    let blocks = case.bytes / BLOCK;
    Setup {
        policy: if way == Way::Native { Policy::Native } else { Policy::Full },
        timing: if matches!(way, Way::Native | Way::Inline) { Timing::Inline } else { Timing::Offline },
        goal: if let Way::Goal(goal) = way { Goal::Operations(goal) } else { Goal::None },
        passes: match way {
            Way::Native | Way::Inline => Passes::None,
            Way::Offline => Passes::After,
            Way::Beside | Way::Goal(_) => Passes::Beside,
        },
        volatile: memory.is_none(),
        volume_blocks: blocks,
        memory,
        disk: Disk::Ssd(Queue::new(case.drive)),
        processor: 0,
        durable: false,
        fills: case.reads,
        load: Load {
            pattern: case.pattern,
            request_blocks: 1,
            reads_percent: if case.reads { 100 } else { 0 },
            workers: case.workers,
            rate: None,
            stop: Stop::Requests(blocks),
            seed: 1,
        },
    }
}

/// Returns the requests a second.
pub fn rate(outcome: &Outcome) -> f64 {
    outcome.requests as f64 * 1e9 / outcome.time.max(1) as f64
}

/// Bytes of the loads that [`costs`] are measured with.
const FOR_COSTS: u64 = 2 << 30;
const QUICK: u64 = 128 << 20;

/// Returns the time that our engine takes for a request and for a block of a pass, for the model of phases. It is measured on our drive model, with little
/// memory, uniform writes of highperf, 2 GiB. No cost is stated here.
pub fn costs(quick: bool) -> Result<Costs, String> {
    static COSTS: [OnceLock<Result<Costs, String>>; 2] = [OnceLock::new(), OnceLock::new()];
    COSTS[usize::from(quick)].get_or_init(|| measured_costs(if quick { QUICK } else { FOR_COSTS })).clone()
}

fn measured_costs(bytes: u64) -> Result<Costs, String> {
    let case = Case { pattern: Pattern::Uniform, workers: 1, drive: SSD, reads: false, bytes };
    measure_costs(case, LITTLE)
}

/// Measures the cost of inline and offline requests of a load, and of the pass after the offline ones, with `memory` bytes of memory.
pub fn measure_costs(case: Case, memory: u64) -> Result<Costs, String> {
    let [(highperf, _), _] = contents(case.bytes);
    let both = [Way::Inline, Way::Offline];
    let mut found =
        in_order(cores(), 2, |at| measure_with(case, both[at as usize], Some(memory), &highperf)).into_iter();
    let mut next = || found.next().unwrap_or_else(|| Err("nothing was measured".into()));
    let (inline, offline) = (next()?, next()?);
    let each = |time: u64, count: u64| time.div_ceil(count.max(1)).max(1);
    Ok(Costs {
        inline: each(inline.time, inline.requests),
        offline: each(offline.time, offline.requests),
        background: each(offline.pass, offline.requests),
        sleep: PAPER.sleep,
        ageing: 0,
    })
}
