//! Figures and tables of POD (IEEE Transactions on Computers 65(6), 2016), on synthetic stand-ins for its traces.
//!
//! Common setup: four disks of 7,200 rpm as a RAID5 with a stripe unit of 64 KiB, and the paper's memory for each trace. Half of the memory is index and half
//! read cache where iCache does not decide. The digest of a block takes 32 us. Days 1 to 14 warm up, and day 15 is replayed at its own rate (sections 4.1 and
//! 4.2), by one thread as in a replayer.

mod capacity;
pub mod claims;
mod energy;
mod onefold;
mod partition;
mod parts;
mod rebuild;
mod response;
mod restore;
mod sweeps;
mod workload;

use super::plot::{Bars, Chart};
use super::runs::{Outcome, Results, Run};
use super::{Entry, Row};
use crate::replay::scheme::Scheme;
use crate::traces::synthetic::Profile;

/// All of them, in the order of the paper.
pub const FIGURES: &[Entry] = &[
    workload::FIG_1,
    workload::FIG_2,
    partition::FIG_3,
    restore::RESTORE,
    workload::TABLE_3,
    response::FIG_11,
    response::FIG_12_WRITES,
    response::FIG_12_READS,
    response::FIG_12_QUEUES,
    capacity::FIG_13,
    partition::FIG_14_WEB_VM,
    partition::FIG_14_HOMES,
    partition::FIG_14_MAIL,
    capacity::FIG_15,
    rebuild::FIG_16_WRAPPED,
    rebuild::FIG_16_SQUEEZED,
    capacity::NVRAM,
    response::ABSTRACT,
    sweeps::MEMORY,
    sweeps::DIGEST,
    sweeps::DECISIONS,
    onefold::ONEFOLD,
    onefold::INDEX_COPY,
    onefold::JOURNAL,
    energy::ENERGY,
];

/// The paper's traces, in its order.
const TRACES: [Profile; 3] = [Profile::WebVm, Profile::Homes, Profile::Mail];
/// The paper's schemes, in its order, and then ours.
const SCHEMES: [Scheme; 6] =
    [Scheme::NATIVE, Scheme::FULL, Scheme::IDEDUP, Scheme::SELECT, Scheme::POD, Scheme::CURVES];

/// Lists the runs of each trace under each of some schemes, as the paper has them.
fn each(schemes: &[Scheme]) -> Vec<Run> {
    TRACES.into_iter().flat_map(|trace| schemes.iter().map(move |&scheme| Run::pod(trace, scheme))).collect()
}

/// Returns the reduction of a value under a scheme against another scheme, in percent of the latter.
fn gain(results: &Results, trace: Profile, scheme: Scheme, base: Scheme, value: fn(&Outcome) -> f64) -> f64 {
    let of = |scheme| value(results.of(Run::pod(trace, scheme)));
    100.0 * (1.0 - of(scheme) / of(base))
}

/// Returns the largest of the traces' gains.
fn most_of(gains: [f64; 3]) -> f64 {
    gains.into_iter().fold(f64::MIN, f64::max)
}

/// Returns the mean of the traces' gains.
fn mean_of(gains: [f64; 3]) -> f64 {
    gains.iter().sum::<f64>() / gains.len() as f64
}

/// Returns the display name of a scheme.
fn title(scheme: Scheme) -> &'static str {
    match scheme.name {
        "native" => "Native",
        "native-half" => "Native with half the memory",
        "native-uncached" => "Native without cache",
        "full" => "Full-Dedupe",
        "full-bare" => "Full-Dedupe, no page cached",
        "full-filter" => "Full-Dedupe, with a filter",
        "full-free" => "Full-Dedupe, free lookups",
        "idedup" => "iDedup",
        "idedup-2" => "iDedup, T = 2",
        "idedup-8" => "iDedup, T = 8",
        "select" => "Select-Dedupe",
        "pod" => "POD",
        "curves" => "ours (select, iCache by curves)",
        name => name,
    }
}

/// Plots bars by trace and scheme.
fn bars(
    results: &Results,
    heading: &str,
    y_label: &str,
    schemes: &[Scheme],
    value: impl Fn(&Results, Profile, Scheme) -> f64,
    paper: impl Fn(Profile, Scheme) -> Option<f64>,
) -> Chart {
    let one = |&scheme: &Scheme| {
        let papers = TRACES.map(|trace| paper(trace, scheme)).to_vec();
        Bars::new(title(scheme), TRACES.map(|trace| value(results, trace, scheme)).to_vec()).papers(papers)
    };
    Chart::bars(heading, y_label, names(), schemes.iter().map(one).collect())
}

/// Returns the names of the traces.
fn names() -> Vec<String> {
    TRACES.map(|trace| trace.name().to_string()).to_vec()
}

/// Makes rows with the value of each trace and scheme, as information.
fn rows(results: &Results, unit: &'static str, schemes: &[Scheme], value: impl Fn(&Outcome) -> f64) -> Vec<Row> {
    let row = |trace: Profile, &scheme: &Scheme| {
        Row::new(format!("{}, {}", trace.name(), title(scheme)), unit, value(results.of(Run::pod(trace, scheme))))
    };
    TRACES.into_iter().flat_map(|trace| schemes.iter().map(move |scheme| row(trace, scheme))).collect()
}
