//! The lab's own test: engines that are broken on purpose ([`engine::Canary`]) have to be caught, each within a stated number
//! of seeds. A seed is a run of the swarm, and, if that finds nothing, the crashes of the fixed scenario of the same number,
//! if there is one. (Of one canary it is a run under faults, of some a word or a scenario of their own.)

use std::cell::Cell;
use std::sync::OnceLock;

use engine::{Canary, Engine, Mode, Policy};

use crate::content::CELLS;
use crate::parallel::in_order;
use crate::random::Random;
use crate::runs::config::Config;
use crate::runs::crash::{Plan, enumerate};
use crate::runs::run::{Run, Snapshot};
use crate::runs::scenario::{FIXED, OFFLINE};
use crate::runs::soak::{OPERATIONS, run_seed};
use crate::runs::workload::{Operation, Place};
use crate::runs::{faulty, hazards, repair};
use crate::transcript::Trace;
use crate::world::disk::Cut;
use crate::{Checked, Violation, violated};

/// All canaries, each with the number of seeds within which it has to be caught: docs/fault-model.md says the same.
pub const CANARIES: [(Canary, u64); 61] = [
    (Canary::SkippedSync, 10),
    (Canary::UnforcedRecord, 10),
    (Canary::LoneRecord, 20),
    (Canary::LoneSuccess, 500),
    (Canary::UnseenCompletion, 10),
    (Canary::EarlyReuse, 500),
    (Canary::StaleHint, 10),
    (Canary::ForgottenReference, 10),
    (Canary::EarlyFua, 10),
    (Canary::EarlyFlush, 10),
    (Canary::UnprovenRecord, 10),
    (Canary::StaleRecord, 20),
    (Canary::OldSuperblock, 10),
    (Canary::MissingSeal, 10),
    (Canary::UnsyncedSeal, 10),
    (Canary::EarlyWatermark, 40),
    (Canary::SkippedRedo, 10),
    (Canary::LostClears, 10),
    (Canary::UnsyncedPages, 10),
    (Canary::UnsyncedSuperblock, 10),
    (Canary::ForgottenCarried, 100),
    (Canary::EarlyPages, 10),
    (Canary::LostSubtree, 10),
    (Canary::FreedWhileHeld, 10),
    (Canary::FreedAtMerge, 100),
    (Canary::StaleBase, 10),
    (Canary::ForgottenRemoval, 10),
    (Canary::LostFromBuffer, 10),
    (Canary::StaleLog, 10),
    (Canary::ReleasedTwice, 10),
    (Canary::CarriedRecord, 250),
    (Canary::PublicSeed, 60),
    (Canary::ForgottenWrite, 10),
    (Canary::RoomCountedLow, 10),
    (Canary::OwnerNotLookedAt, 10),
    (Canary::UnsyncedMove, 60),
    (Canary::BlindMove, 60),
    (Canary::MoveIntoOpen, 60),
    (Canary::MoveIntoLent, 60),
    (Canary::EmptiedUnseen, 60),
    (Canary::ForgottenReferrer, 60),
    (Canary::BlindShare, 60),
    (Canary::ShareWithFreed, 60),
    (Canary::OldGeneration, 1),
    (Canary::EndlessChanges, 1),
    (Canary::ShareWithoutRoom, 1),
    (Canary::WorkspaceInUse, 1),
    (Canary::CopyForData, 1),
    (Canary::UnmarkedOffline, 1),
    (Canary::UnprovenContent, 60),
    (Canary::UncheckedPlace, 60),
    (Canary::UnprovenReplica, 60),
    (Canary::KeptReplica, 60),
    (Canary::ReplayedOnFlash, 60),
    (Canary::AnyStamp, 60),
    (Canary::EarlyPlace, 60),
    (Canary::CopyOfDirty, 60),
    (Canary::CopyOfOpened, 60),
    (Canary::ReusedWhileLate, 60),
    (Canary::SameMark, 60),
    (Canary::EndlessTurn, 10),
];

thread_local! {
    /// What is broken in the engines that this thread makes.
    static BROKEN: Cell<Option<Canary>> = const { Cell::new(None) };
}

/// What is broken in all engines of this process.
static BROKEN_EVERYWHERE: OnceLock<Canary> = OnceLock::new();

/// Breaks an engine as this thread or this process wants it.
pub(crate) fn broken(mut engine: Engine) -> Engine {
    engine.break_on_purpose(BROKEN.get().or(BROKEN_EVERYWHERE.get().copied()));
    engine
}

/// From here on this is broken in all engines that the process makes. Only the first call counts.
pub fn break_everywhere(canary: Canary) {
    BROKEN_EVERYWHERE.get_or_init(|| canary);
}

/// The canary of a name.
pub fn named(name: &str) -> Option<Canary> {
    CANARIES.into_iter().map(|(canary, _)| canary).find(|canary| format!("{canary:?}") == name)
}

/// How a canary was caught.
#[derive(Clone, Debug)]
pub struct Catch {
    /// In which seed, from 0.
    pub seed: u64,
    /// By which command.
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
        let catch = (0..within).find_map(|seed| caught(canary, seed));
        BROKEN.set(None);
        Hunt { canary, within, catch }
    })
}

/// A pool that an engine broke which counted its room too low, as the engine once did: a checkpoint has run out of metadata. A sound
/// repair has room, loses nothing that was flushed, and what it leaves is served and audited.
pub fn repair_of_what_was_counted_low() -> Checked {
    let mut config = Config::small(1);
    config.parameters.geometry.containers = 64;
    config.limits.delta_entries = 512;
    config.limits.map_buffer = 0;
    config.depth = 1;
    config.volumes = vec![(config.parameters.geometry.most_volume_blocks(), Policy::Native)];
    let span = 64 * 32 * 32 * 32 * CELLS as u64;
    let write = |number: u64| Operation::Write {
        place: Place { volume: 0, first: number * span, count: CELLS as u64 },
        contents: vec![number as u32 + 1],
        fua: false,
    };
    // All of them come into one checkpoint: what is kept in reserve is more than a few of them take.
    let word: Vec<Operation> =
        (0..120).map(write).chain([Operation::Flush, Operation::Drain, Operation::Settle]).collect();
    BROKEN.set(Some(Canary::RoomCountedLow));
    let broken = Run::start(config.clone(), Trace::new(false), false).map(|mut run| {
        // It ends when the pool has failed.
        let _ = run.perform(&word);
        run
    });
    BROKEN.set(None);
    let run = broken?;
    if run.world.engine.status().mode != Mode::ReadOnly {
        return violated("120 blocks far apart do not break an engine that counts its room too low");
    }
    let mut disk = run.world.disk.clone();
    disk.crash(Cut::Lost, &mut Random::new(1));
    let plan = repair::plan(&disk, &config, true).map_err(|error| Violation(format!("no repair: {error}")))?;
    if !plan.lost.is_empty() {
        return violated(format!("the repair loses {:?}", plan.lost));
    }
    repair::carry_out(&mut disk, &plan);
    let geometry = (config.parameters.geometry, None);
    let (model, now) = (run.model, run.world.now);
    let snapshot =
        Snapshot { point: 0, disk, flash: None, model, now, epoch: 0, geometry, was_offline: false, is_exact: false };
    let mut run = Run::resume(config, &snapshot, Cut::Lost, 1, false, Trace::new(false))?;
    run.verify_all()?;
    run.perform(&[Operation::Trim { place: Place { volume: 0, first: 0, count: 90 * span }, fua: false }])?;
    run.settle_and_audit()
}

fn caught(canary: Canary, seed: u64) -> Option<Catch> {
    if canary == Canary::LoneSuccess {
        // It matters only where a sync fails.
        let violation = faulty::run_seed(seed, false).err()?.to_string();
        return Some(Catch { seed, by: format!("lab faults --seed {seed} --canary {canary:?}"), violation });
    }
    let word = match canary {
        Canary::EndlessChanges => Some(hazards::changes_between_syncs()),
        Canary::ShareWithoutRoom => Some(hazards::passes_short_of_metadata()),
        Canary::WorkspaceInUse => Some(hazards::workspaces_that_are_called_in()),
        Canary::OldGeneration => Some(hazards::slots_that_get_other_contents()),
        Canary::CopyForData => Some(hazards::copies_beside_a_pass()),
        _ => None,
    };
    if let Some(result) = word {
        let violation = result.err()?.to_string();
        return Some(Catch { seed, by: format!("lab canary, the word of {canary:?}"), violation });
    }
    if canary == Canary::UnmarkedOffline {
        return caught_by_crashes(canary, OFFLINE);
    }
    if let Err(violation) = run_seed(seed, OPERATIONS, Trace::new(false)) {
        let by = format!("lab seed {seed} --canary {canary:?}");
        return Some(Catch { seed, by, violation: violation.to_string() });
    }
    if seed < FIXED { caught_by_crashes(canary, seed) } else { None }
}

/// The crashes of a scenario.
fn caught_by_crashes(canary: Canary, seed: u64) -> Option<Catch> {
    // Without room on the host only where that is all that matters: it takes long.
    let full_host = canary == Canary::ForgottenWrite;
    let tally = enumerate(&Plan { seed: Some(seed), first: true, full_host, ..Plan::all(0, 1) });
    let (by, violation) = tally.violations.into_iter().next()?;
    Some(Catch { seed, by: by.replace("--trace", &format!("--canary {canary:?}")), violation: violation.to_string() })
}
