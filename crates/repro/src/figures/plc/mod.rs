//! Figures and tables of PLC-Cache (MSST 2014, slides), and the frontier of all policies.
//!
//! Common setup: 200 GB of data in containers of 4 MiB and 520 GB of reads (Zipf, exponent 1) in a day; the short form has a 64th of these sizes. A container
//! that is read alone is shared by other files (1 + an exponential distribution of mean 2), independently of its popularity. Data and reads are synthetic, as
//! the slides' are not available ("collected in the laboratory server").

mod calibrated;
pub mod claims;
mod decisions;
mod erases;
mod frontier;
mod lifetime;
mod overall;
mod quadrants;
mod sweeps;
mod traces;

use engine::admission::Rules;

use super::Entry;
use crate::flash_cache::policies::Policy;
use crate::flash_cache::workload::{Data, Shape, Unit, reads};
use crate::flash_cache::{Outcome, Setup, run, run_in_parts};
use sim::parallel::{cores, in_order};

/// All of them, in the order of the slides.
pub const FIGURES: &[Entry] = &[
    lifetime::LIFETIME,
    quadrants::QUADRANTS,
    overall::OVERALL,
    quadrants::DISTRIBUTION,
    sweeps::CACHE_SIZE,
    sweeps::ALPHA,
    sweeps::CONTAINER,
    erases::ERASES,
    sweeps::CHUNK,
    sweeps::THRESHOLD,
    decisions::MODULES,
    decisions::DECISIONS,
    frontier::FLAT,
    frontier::MODERATE,
    frontier::USUAL,
    frontier::STEEP,
    traces::CLOUDPHYSICS,
    traces::MQSIM,
];

/// Divisor of the sizes in the short form.
const QUICK_PART: u64 = 64;

const PAPER: Policy = Policy::Plc(Rules::PAPER);

/// Workload of single-container reads.
const CONTAINERS: Shape = Shape { unit: Unit::Containers, others: 2.0, ..Shape::SLIDES };

/// Returns our policy for a cache of `cache_bytes` bytes.
fn ours(cache_bytes: u64) -> Policy {
    Policy::Plc(Rules::for_drive(cache_bytes))
}

/// Returns a shape, or its short form.
fn sized(shape: Shape, quick: bool) -> Shape {
    let part = if quick { QUICK_PART } else { 1 };
    Shape { bytes: shape.bytes / part, read_bytes: shape.read_bytes / part, ..shape }
}

/// Data, and the files read in order.
struct Workload {
    shape: Shape,
    data: Data,
    files: Vec<u32>,
}

impl Workload {
    fn new(shape: Shape) -> Workload {
        let data = Data::new(&shape);
        let files = reads(&shape, &data);
        Workload { shape, data, files }
    }

    /// Returns the bytes of a cache of `permille` thousandths of the data.
    fn cache(&self, permille: u64) -> u64 {
        self.shape.bytes * permille / 1000
    }

    /// Executes the runs on all cores.
    fn run(&self, setups: &[Setup]) -> Vec<Outcome> {
        in_order(cores(), setups.len() as u64, |at| {
            run(&self.data, &self.files, &setups[at as usize]).expect("the disks of figures exist")
        })
    }

    /// Executes the runs on all cores, each in equal parts with counts of their own.
    fn run_in_parts(&self, setups: &[Setup], parts: usize) -> Vec<Vec<Outcome>> {
        in_order(cores(), setups.len() as u64, |at| {
            run_in_parts(&self.data, &self.files, &setups[at as usize], parts).expect("the disks of figures exist")
        })
    }
}

/// Returns the reduction of one value against another, in percent of the latter.
fn less(value: f64, than: f64) -> f64 {
    100.0 * (1.0 - value / than)
}

/// Formats a size in percent.
fn percent(permille: u64) -> String {
    format!("{} %", permille as f64 / 10.0)
}
