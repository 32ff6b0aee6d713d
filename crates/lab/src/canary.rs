//! The lab's own test: engines that are broken on purpose ([`engine::Canary`]) have to be caught, each within a stated number
//! of seeds. A seed is a run of the swarm and after it, if that found nothing, the crashes of the scenario of the same number.

use std::cell::Cell;

use engine::{Canary, Engine};

use crate::crash::{Plan, enumerate};
use crate::parallel::in_order;
use crate::soak::{OPERATIONS, run_seed};
use crate::trace::Trace;

/// All canaries, each with the number of seeds within which it has to be caught: docs/fault-model.md says the same.
pub const CANARIES: [(Canary, u64); 23] = [
    (Canary::SkippedSync, 5),
    (Canary::UnseenCompletion, 5),
    (Canary::EarlyReuse, 5),
    (Canary::StaleHint, 5),
    (Canary::ForgottenReference, 5),
    (Canary::EarlyFua, 5),
    (Canary::EarlyFlush, 5),
    (Canary::UnprovenRecord, 5),
    (Canary::OldSuperblock, 5),
    (Canary::MissingSeal, 5),
    (Canary::UnsyncedSeal, 5),
    (Canary::StaleRecord, 5),
    (Canary::EarlyWatermark, 5),
    (Canary::SkippedRedo, 5),
    (Canary::LostClears, 5),
    (Canary::UnsyncedPages, 5),
    (Canary::UnsyncedSuperblock, 5),
    (Canary::ForgottenCarried, 5),
    (Canary::EarlyPages, 5),
    (Canary::LostSubtree, 5),
    (Canary::FreedWhileHeld, 5),
    (Canary::FreedAtMerge, 5),
    (Canary::StaleBase, 5),
];

thread_local! {
    /// What is broken in the engines that this thread makes.
    static BROKEN: Cell<Option<Canary>> = const { Cell::new(None) };
}

/// Breaks an engine as this thread wants it.
pub(crate) fn broken(mut engine: Engine) -> Engine {
    engine.break_on_purpose(BROKEN.get());
    engine
}

/// How a canary was caught.
#[derive(Clone, Debug)]
pub struct Catch {
    /// In which seed, from 0.
    pub seed: u64,
    /// By the command of a build without canaries that does the same.
    pub by: String,
    /// The violation.
    pub violation: String,
}

/// What became of a canary.
#[derive(Clone, Debug)]
pub struct Hunt {
    /// Which.
    pub canary: Canary,
    /// The number of seeds that were to be enough.
    pub within: u64,
    /// How it was caught, if it was.
    pub catch: Option<Catch>,
}

/// Hunts all canaries, for as many seeds as are stated or as are given.
pub fn hunt(seeds: Option<u64>, threads: usize) -> Vec<Hunt> {
    in_order(threads, CANARIES.len() as u64, |number| {
        let (canary, stated) = CANARIES[number as usize];
        let within = seeds.unwrap_or(stated);
        BROKEN.set(Some(canary));
        let catch = (0..within).find_map(caught);
        BROKEN.set(None);
        Hunt { canary, within, catch }
    })
}

fn caught(seed: u64) -> Option<Catch> {
    if let Err(violation) = run_seed(seed, OPERATIONS, Trace::new(false)) {
        return Some(Catch { seed, by: format!("lab seed {seed}"), violation: violation.to_string() });
    }
    let tally = enumerate(&Plan { seed: Some(seed), first: true, ..Plan::all(0, 1) });
    let (by, violation) = tally.violations.into_iter().next()?;
    Some(Catch { seed, by: by.trim_end_matches(" --trace").to_string(), violation: violation.to_string() })
}
