//! Mutation tests of the simulator itself: engines with a mutant ([`engine::Mutant`]) have to be caught, each by the harness that needs the least time. A
//! study of all harnesses names that harness.

use std::cell::Cell;
use std::fmt;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use engine::{Engine, Mode, Mutant, Policy};

use crate::content::CELLS;
use crate::parallel::in_order;
use crate::random::Random;
use crate::runs::config::Config;
use crate::runs::crash::{Plan, enumerate};
use crate::runs::run::{Run, Snapshot};
use crate::runs::scenario::{FIXED, OFFLINE};
use crate::runs::soak::{OPERATIONS, run_seed};
use crate::runs::workload::{Operation, Place};
use crate::runs::{exhaustive, faulty, hazards, repair};
use crate::transcript::Trace;
use crate::world::disk::Cut;
use crate::{Checked, Violation, violated};

/// Runs that have to catch a mutant: those that do so in the least time (`sim mutants --study` measures it).
#[derive(Clone, Copy, Debug)]
pub enum Hunt {
    /// Seeds of a harness, from 0 to this, not included.
    Seeds(Harness, u64),
    /// The crashes of a scenario.
    Scenario(u64),
    /// An operation sequence of its own.
    Own(fn() -> Checked),
}

impl fmt::Display for Hunt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Hunt::Seeds(harness, seeds) => write!(f, "{seeds} seeds, {harness:?}"),
            Hunt::Scenario(scenario) => write!(f, "the crashes of scenario {scenario}"),
            Hunt::Own(_) => write!(f, "a sequence of its own"),
        }
    }
}

const fn swarm(seeds: u64) -> Hunt {
    Hunt::Seeds(Harness::Swarm, seeds)
}

const fn faults(seeds: u64) -> Hunt {
    Hunt::Seeds(Harness::Faults, seeds)
}

const fn crash(scenario: u64) -> Hunt {
    Hunt::Scenario(scenario)
}

/// All mutants, each with the runs that have to catch it. engine/src/mutant.rs lists them by part.
pub const MUTANTS: [(Mutant, Hunt); 86] = [
    (Mutant::SkippedSync, swarm(10)),
    (Mutant::UnforcedRecord, swarm(10)),
    (Mutant::LoneRecord, swarm(20)),
    (Mutant::LoneSuccess, faults(2000)),
    (Mutant::UnseenCompletion, swarm(10)),
    (Mutant::EarlyReuse, crash(34)),
    (Mutant::StaleHint, swarm(10)),
    (Mutant::ForgottenReference, swarm(10)),
    (Mutant::EarlyFua, swarm(10)),
    (Mutant::EarlyFlush, swarm(10)),
    (Mutant::UnprovenRecord, swarm(10)),
    (Mutant::StaleRecord, crash(16)),
    (Mutant::OldSuperblock, swarm(10)),
    (Mutant::MissingSeal, swarm(10)),
    (Mutant::UnsyncedSeal, swarm(10)),
    (Mutant::EarlyWatermark, crash(9)),
    (Mutant::SkippedRedo, swarm(10)),
    (Mutant::LostClears, swarm(10)),
    (Mutant::UnsyncedPages, crash(0)),
    (Mutant::UnsyncedSuperblock, swarm(10)),
    (Mutant::ForgottenInlined, crash(35)),
    (Mutant::EarlyPages, swarm(10)),
    (Mutant::LostSubtree, swarm(10)),
    (Mutant::FreedWhileHeld, swarm(10)),
    (Mutant::EarlyDiscard, Hunt::Own(hazards::discards_before_the_superblock)),
    (Mutant::OpenedInDiscard, crash(25)),
    (Mutant::FreedAtMerge, swarm(100)),
    (Mutant::StaleBase, swarm(10)),
    (Mutant::ForgottenRemoval, swarm(10)),
    (Mutant::ForgetfulFilter, swarm(10)),
    (Mutant::LostFromBuffer, swarm(10)),
    (Mutant::StaleLog, swarm(10)),
    (Mutant::ReleasedTwice, swarm(10)),
    (Mutant::InlinedRecord, faults(250)),
    (Mutant::PublicSeed, swarm(100)),
    (Mutant::ForgottenWrite, faults(10)),
    (Mutant::SpaceCountedLow, swarm(10)),
    (Mutant::CleanLeaf, swarm(10)),
    (Mutant::UnmarkedTable, swarm(100)),
    (Mutant::EarlyNumber, Hunt::Own(hazards::numbers_that_come_round)),
    (Mutant::UnawaitedGrowth, crash(36)),
    (Mutant::OwnerNotLookedAt, swarm(10)),
    (Mutant::UnsyncedMove, crash(26)),
    (Mutant::BlindMove, swarm(100)),
    (Mutant::MoveIntoOpen, crash(24)),
    (Mutant::MoveIntoEvacuating, crash(24)),
    (Mutant::EmptiedUnseen, swarm(10)),
    (Mutant::ForgottenReferrer, swarm(40)),
    (Mutant::BlindShare, swarm(10)),
    (Mutant::ShareWithFreed, crash(22)),
    (Mutant::OldGeneration, Hunt::Own(hazards::slots_that_get_other_contents)),
    (Mutant::EndlessChanges, Hunt::Own(hazards::changes_between_syncs)),
    (Mutant::ShareWithoutSpace, Hunt::Own(hazards::passes_short_of_metadata)),
    (Mutant::SpillInUse, Hunt::Own(hazards::spill_space_that_is_reclaimed)),
    (Mutant::SingleForShared, swarm(10)),
    (Mutant::CopyForData, Hunt::Own(hazards::copies_beside_a_pass)),
    (Mutant::UnmarkedOffline, crash(OFFLINE)),
    (Mutant::UnprovenContent, crash(23)),
    (Mutant::UncheckedPlace, crash(27)),
    (Mutant::UnprovenReplica, crash(29)),
    (Mutant::KeptReplica, crash(29)),
    (Mutant::ReplayedOnFlash, Hunt::Own(hazards::replay_into_containers_on_flash)),
    (Mutant::AnyStamp, crash(25)),
    (Mutant::EarlyPlace, crash(28)),
    (Mutant::CopyOfDirty, crash(25)),
    (Mutant::CopyOfOpened, crash(25)),
    (Mutant::ReusedWhileLate, crash(25)),
    (Mutant::SameNonce, crash(28)),
    (Mutant::EndlessTimeSlice, crash(0)),
    (Mutant::ReleasedInherited, swarm(40)),
    (Mutant::UnflushedSnapshot, swarm(40)),
    (Mutant::BlankBelowFrom, swarm(40)),
    (Mutant::UncountedHidden, swarm(40)),
    (Mutant::MovedForReader, swarm(40)),
    (Mutant::ScrubbedFrom, swarm(40)),
    (Mutant::GroupInTwoCuts, swarm(40)),
    (Mutant::GivenTwice, swarm(40)),
    (Mutant::OverriddenByParent, swarm(40)),
    (Mutant::GiverFirst, swarm(100)),
    (Mutant::NamedMapRemoved, swarm(100)),
    (Mutant::EarlyName, Hunt::Own(hazards::names_of_deleted_volumes)),
    (Mutant::MovedAtSnapshot, Hunt::Own(hazards::moves_beside_a_pending_snapshot)),
    (Mutant::ClearTakesReserve, Hunt::Own(hazards::clears_below_a_parent)),
    (Mutant::KeptRoot, crash(40)),
    (Mutant::WrittenAtRollback, swarm(40)),
    (Mutant::RollbackByRecord, crash(40)),
];

thread_local! {
    /// Fault in the engines that this thread makes.
    static BROKEN: Cell<Option<Mutant>> = const { Cell::new(None) };
}

/// Fault in all engines of this process.
static BROKEN_EVERYWHERE: OnceLock<Mutant> = OnceLock::new();

/// Applies the mutant of this thread or process to an engine.
pub(crate) fn broken(mut engine: Engine) -> Engine {
    engine.break_on_purpose(BROKEN.get().or(BROKEN_EVERYWHERE.get().copied()));
    engine
}

/// Applies the mutant to all engines that the process makes from here on. Only the first call counts.
pub fn break_everywhere(mutant: Mutant) {
    BROKEN_EVERYWHERE.get_or_init(|| mutant);
}

/// Finds the mutant of a name.
pub fn named(name: &str) -> Option<Mutant> {
    MUTANTS.into_iter().map(|(mutant, _)| mutant).find(|mutant| format!("{mutant:?}") == name)
}

/// Evidence that a mutant was caught.
#[derive(Clone, Debug)]
pub struct Catch {
    /// Command that caught it.
    pub by: String,
    /// The violation.
    pub violation: String,
}

/// Result of the hunt for a mutant.
#[derive(Clone, Debug)]
pub struct Hunted {
    /// Mutant that was hunted.
    pub mutant: Mutant,
    /// Runs that had to catch it.
    pub hunt: Hunt,
    /// Catch, if it was caught.
    pub catch: Option<Catch>,
}

/// Performs the hunt of each mutant in [`MUTANTS`], `threads` of them at a time. Returns the results in the order of that list, also of those not caught.
pub fn hunt_all(threads: usize) -> Vec<Hunted> {
    in_order(threads, MUTANTS.len() as u64, |number| {
        let (mutant, hunt) = MUTANTS[number as usize];
        BROKEN.set(Some(mutant));
        let catch = match hunt {
            Hunt::Seeds(harness, seeds) => (0..seeds).find_map(|seed| harness.run(mutant, seed)),
            Hunt::Scenario(scenario) => Harness::Crash.run(mutant, scenario),
            Hunt::Own(sequence) => sequence().err().map(|violation| Catch {
                by: format!("sim mutants, the sequence of {mutant:?}"),
                violation: violation.to_string(),
            }),
        };
        BROKEN.set(None);
        Hunted { mutant, hunt, catch }
    })
}

/// A harness of the simulator, by its numbered runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Harness {
    /// Runs of the swarm, by their seeds.
    Swarm,
    /// All crashes of a scenario, by its number.
    Crash,
    /// All crashes of a scenario on a full host, by its number.
    FullHost,
    /// Runs under faults, by their seeds.
    Faults,
    /// All crashes of a sequence of at most two operations, by its number.
    Sequences,
}

impl Harness {
    /// All harnesses.
    pub const ALL: [Harness; 5] =
        [Harness::Swarm, Harness::Crash, Harness::FullHost, Harness::Faults, Harness::Sequences];

    /// Returns the number of its runs, which has no end where they are drawn from seeds.
    fn runs(self) -> u64 {
        match self {
            Harness::Swarm | Harness::Faults => u64::MAX,
            Harness::Crash | Harness::FullHost => FIXED,
            Harness::Sequences => exhaustive::SHORT_SEQUENCES,
        }
    }

    /// Executes one run and returns the violation that it finds.
    fn run(self, mutant: Mutant, number: u64) -> Option<Catch> {
        let (by, violation) = match self {
            Harness::Swarm => {
                let violation = run_seed(number, OPERATIONS, Trace::new(false)).err()?;
                (format!("sim seed {number}"), violation)
            }
            Harness::Faults => (format!("sim faults --seed {number}"), faulty::run_seed(number, false).err()?),
            Harness::Crash | Harness::FullHost => {
                let full_host = self == Harness::FullHost;
                let plan = Plan { seed: Some(number), first: true, full_host, ..Plan::all(0, 1) };
                enumerate(&plan).violations.into_iter().next()?
            }
            Harness::Sequences => exhaustive::look_at_short(number).violations.into_iter().next()?,
        };
        let by = format!("{} --mutant {mutant:?}", by.trim_end_matches(" --trace"));
        Some(Catch { by, violation: violation.to_string() })
    }
}

/// Result of one harness that looked for one mutant.
#[derive(Clone, Debug)]
pub struct Studied {
    /// The harness.
    pub harness: Harness,
    /// The catch in the last of its runs, if there was one.
    pub catch: Option<Catch>,
    /// Time until then, or until the harness had no more runs or no more time.
    pub until: Duration,
    /// Time of the last run.
    pub alone: Duration,
    /// Number of runs until then.
    pub runs: u64,
}

/// Lets every harness look for a mutant, each for at most `time`.
pub fn study(mutant: Mutant, time: Duration) -> Vec<Studied> {
    BROKEN.set(Some(mutant));
    let studied = Harness::ALL.map(|harness| {
        let begun = Instant::now();
        let (mut catch, mut runs, mut alone) = (None, 0, Duration::ZERO);
        while catch.is_none() && runs < harness.runs() && begun.elapsed() < time {
            let this = Instant::now();
            catch = harness.run(mutant, runs);
            alone = this.elapsed();
            runs += 1;
        }
        Studied { harness, catch, until: begun.elapsed(), alone, runs }
    });
    BROKEN.set(None);
    studied.into()
}

/// Checks the repair of a pool by an engine that counted its space too low, as the engine once did: a checkpoint has run out of metadata. A sound repair has
/// space, loses no flushed data, and leaves a pool that is served and audited.
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
    // All of them come into one checkpoint: the reserve is larger than the need of a few of them.
    let sequence: Vec<Operation> =
        (0..120).map(write).chain([Operation::Flush, Operation::Drain, Operation::Settle]).collect();
    BROKEN.set(Some(Mutant::SpaceCountedLow));
    let broken = Run::start(config.clone(), Trace::new(false), false).map(|mut run| {
        // It ends when the pool has failed.
        let _ = run.perform(&sequence);
        run
    });
    BROKEN.set(None);
    let run = broken?;
    if run.world.engine.status().mode != Mode::ReadOnly {
        return violated("120 blocks far apart do not break an engine that counts its space too low");
    }
    let mut disk = run.world.disk.clone();
    disk.crash(Cut::Lost, &mut Random::new(1));
    let plan = repair::plan(&disk, &config, true).map_err(|error| Violation(format!("no repair: {error}")))?;
    if !plan.lost.is_empty() {
        return violated(format!("the repair loses {:?}", plan.lost));
    }
    repair::perform(&mut disk, &plan);
    let geometry = (config.parameters.geometry, None);
    let (model, now) = (run.model, run.world.now);
    let snapshot =
        Snapshot { point: 0, disk, flash: None, model, now, epoch: 0, geometry, was_offline: false, is_exact: false };
    let mut run = Run::resume(config, &snapshot, Cut::Lost, 1, false, Trace::new(false))?;
    run.verify_all()?;
    run.perform(&[Operation::Trim { place: Place { volume: 0, first: 0, count: 90 * span }, fua: false }])?;
    run.settle_and_audit()
}
