//! Crash tests: crashes at every point of small scenarios, and at every point of the recoveries from them.
//!
//! A scenario runs once and keeps the state that a crash would find after each step. From each of these points, for each *variant* (a way to cut, and a seed
//! where chance has a part), the pool is opened again, every block is verified, the whole state is audited, a little more is written, and everything is
//! audited again.

use crate::parallel::in_order;
use crate::random::mix;
use crate::runs::run::{Run, Snapshot};
use crate::runs::scenario::{Scenario, scenario};
use crate::runs::workload::Generator;
use crate::transcript::Trace;
use crate::world::disk::Cut;
use crate::{Checked, Violation, guarded};

/// Number of tries of each cut in which chance has a part.
const TRIES: u64 = 3;
/// Number of operations after a recovery.
const AFTERMATH_OPERATIONS: usize = 10;

impl Snapshot {
    /// Returns true if a crash now can have more than one outcome, on the disk or on the flash.
    pub fn has_unsynced(&self) -> bool {
        self.disk.has_unsynced() || self.flash.as_ref().is_some_and(|flash| flash.disk.has_unsynced())
    }
}

/// Scope of an enumeration.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// End of the range of scenarios, which begins at 0.
    pub seeds: u64,
    /// The only scenario to try, if given.
    pub seed: Option<u64>,
    /// 1: crashes in scenarios; 2: also crashes in the recoveries.
    pub depth: u32,
    /// The only point to try, if given.
    pub point: Option<u64>,
    /// The only variant to try, if given.
    pub variant: Option<u64>,
    /// The only point of the recovery to try, if given.
    pub second_point: Option<u64>,
    /// The only variant to try there, if given.
    pub second_variant: Option<u64>,
    /// True to end with the first violation.
    pub first: bool,
    /// True if the host has no space for some of the writes of the scenario: crashes also come between a write and its repetition.
    pub full_host: bool,
    /// True to print every event.
    pub trace: bool,
    /// Number of scenarios at a time.
    pub threads: usize,
}

impl Plan {
    /// Returns a plan of all points and variants of the first `seeds` scenarios.
    pub fn all(seeds: u64, depth: u32) -> Plan {
        Plan {
            seeds,
            seed: None,
            depth,
            point: None,
            variant: None,
            second_point: None,
            second_variant: None,
            first: false,
            full_host: false,
            trace: false,
            threads: 1,
        }
    }
}

/// Results of an enumeration.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Points at which something crashed, first and second ones.
    pub points: u64,
    /// Recoveries that were verified.
    pub recoveries: u64,
    /// Violations, each with the command that shows it again.
    pub violations: Vec<(String, Violation)>,
}

impl Tally {
    fn plus(mut self, other: Tally) -> Tally {
        self.points += other.points;
        self.recoveries += other.recoveries;
        self.violations.extend(other.violations);
        self
    }

    /// Formats the last line of `sim crash`.
    pub fn line(&self) -> String {
        let (points, recoveries) = (self.points, self.recoveries);
        format!("crash points: {points}, recoveries: {recoveries}, violations: {}", self.violations.len())
    }
}

/// Divisor for the cuts that tear all blocks in one way: each point tries one in this number, and adjacent points try
/// the others.
const MASKS_IN_TURN: u64 = 6;

/// Returns all variants of a crash: the number that its chance is drawn from, and the cut.
fn variants() -> impl Iterator<Item = (u64, Cut)> {
    let cuts = Cut::ALL.into_iter().chain(Cut::MASKS);
    let tries = |cut: Cut| (0..if cut.is_random() { TRIES } else { 1 }).map(move |_| cut);
    cuts.flat_map(tries).enumerate().map(|(number, cut)| (number as u64, cut))
}

/// Returns true if a point tries a variant.
fn is_tried(only: Option<u64>, point: u64, variant: u64, cut: Cut) -> bool {
    let is_mask = cut.number() >= Cut::ALL.len() as u64;
    only.map_or(!is_mask || (point + variant).is_multiple_of(MASKS_IN_TURN), |only| only == variant)
}

/// Returns the variants of a second crash: fewer, since there are very many points.
fn second_variants() -> impl Iterator<Item = (u64, Cut)> {
    [Cut::Lost, Cut::Kept, Cut::Torn, Cut::Mixed].into_iter().enumerate().map(|(number, cut)| (number as u64, cut))
}

/// Returns true if the recovery after such a cut is crashed as well.
fn is_crashed_again(cut: Cut) -> bool {
    matches!(cut, Cut::Lost | Cut::Kept | Cut::Kill | Cut::Torn)
}

fn is_over(plan: &Plan, tally: &Tally) -> bool {
    plan.first && !tally.violations.is_empty()
}

fn wanted(only: Option<u64>, number: u64) -> bool {
    only.is_none_or(|only| only == number)
}

/// Enumerates all crashes of the plan.
pub fn enumerate(plan: &Plan) -> Tally {
    let (first, count) = plan.seed.map_or((0, plan.seeds), |seed| (seed, 1));
    let tallies = in_order(plan.threads, count, |number| {
        let mut tally = Tally::default();
        enumerate_scenario(plan, &scenario(first + number), &mut tally);
        tally
    });
    tallies.into_iter().fold(Tally::default(), Tally::plus)
}

fn enumerate_scenario(plan: &Plan, scenario: &Scenario, tally: &mut Tally) {
    let full_host = if plan.full_host { " --full-host" } else { "" };
    let reproduce = format!("sim crash --seed {}{full_host}", scenario.number);
    if plan.trace {
        eprintln!("scenario {} ({}): {:#?}", scenario.number, scenario.name, scenario.config);
    }
    let mut snapshots = Vec::new();
    let mut config = scenario.config.clone();
    // The scenario runs alone before anything crashes; only a request for its own trace prints it.
    let print = plan.trace && plan.point.is_none();
    let outcome = guarded(|| {
        let mut run = Run::start(scenario.config.clone(), Trace::new(print), true)?;
        config = run.config.clone();
        let result = match plan.full_host {
            true => run.perform_on_full_host(&scenario.operations, scenario.number),
            false => run.perform(&scenario.operations),
        };
        snapshots = run.take_snapshots();
        result?;
        run.settle_and_audit()
    });
    if let Err(violation) = outcome {
        tally.violations.push((format!("{reproduce} --trace"), violation));
    }
    for snapshot in snapshots.iter().filter(|snapshot| wanted(plan.point, snapshot.point)) {
        tally.points += 1;
        let point = snapshot.point;
        for (variant, cut) in variants().filter(|&(variant, cut)| is_tried(plan.variant, point, variant, cut)) {
            if is_over(plan, tally) {
                return;
            }
            if cut == Cut::MidSync && !snapshot.disk.is_syncing() {
                continue;
            }
            let is_same_for_all = !snapshot.has_unsynced();
            if is_same_for_all && variant > 0 && plan.variant.is_none() {
                break;
            }
            let reproduce = format!("{reproduce} --point {} --variant {variant}", snapshot.point);
            let seed = mix(scenario.number ^ mix(snapshot.point ^ mix(variant)));
            let first = Scenario { config: config.clone(), ..scenario.clone() };
            crash_once(plan, &first, snapshot, cut, seed, &reproduce, tally);
        }
    }
}

/// Recovers from a crash at a point of the scenario, and then from crashes at the points of that recovery.
fn crash_once(
    plan: &Plan,
    scenario: &Scenario,
    snapshot: &Snapshot,
    cut: Cut,
    seed: u64,
    reproduce: &str,
    tally: &mut Tally,
) {
    let goes_deeper = plan.depth >= 2 && is_crashed_again(cut);
    let print = plan.trace && plan.second_point.is_none();
    let (mut snapshots, outcome) = recover(scenario, snapshot, cut, seed, goes_deeper, print);
    tally.recoveries += 1;
    if let Err(violation) = outcome {
        tally.violations.push((format!("{reproduce} --trace"), violation));
    }
    snapshots.retain(|snapshot| wanted(plan.second_point, snapshot.point));
    for second in &snapshots {
        tally.points += 1;
        for (variant, cut) in second_variants().filter(|(variant, _)| wanted(plan.second_variant, *variant)) {
            if !second.has_unsynced() && variant > 0 && plan.second_variant.is_none() {
                break;
            }
            let seed = mix(seed ^ mix(second.point ^ mix(variant)));
            let (_, outcome) = recover(scenario, second, cut, seed, false, plan.trace);
            tally.recoveries += 1;
            if let Err(violation) = outcome {
                let (point, variant) = (second.point, variant);
                let again = format!("--depth 2 --second-point {point} --second-variant {variant}");
                tally.violations.push((format!("{reproduce} {again} --trace"), violation));
            }
        }
    }
}

/// Opens after a crash and checks everything against the model, then continues for a few operations. The snapshots are
/// of the recovery and of the verification after it.
fn recover(
    scenario: &Scenario,
    snapshot: &Snapshot,
    cut: Cut,
    seed: u64,
    keep_snapshots: bool,
    print: bool,
) -> (Vec<Snapshot>, Checked) {
    let mut snapshots = Vec::new();
    let outcome = guarded(|| {
        let trace = Trace::new(print);
        trace.say(|| format!("======== crash at point {}: {cut:?}", snapshot.point));
        let mut run = Run::resume(scenario.config.clone(), snapshot, cut, seed, keep_snapshots, trace)?;
        run.verify_all()?;
        run.audit()?;
        snapshots = run.take_snapshots();
        run.is_exact = false;
        if snapshot.was_offline && snapshot.is_exact {
            run.passes_leave_each_content_once()?;
        }
        let config = run.config.clone();
        run.perform(&Generator::new(&config, seed, false).operations(AFTERMATH_OPERATIONS))?;
        run.settle_and_audit()
    });
    (snapshots, outcome)
}
