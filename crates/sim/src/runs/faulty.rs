//! Runs under faults: mixed operations while faults of all classes strike, and small scenarios whose n-th I/O fails.
//!
//! A run of the swarm is a number of rounds. Each begins healthy. Then faults strike while requests are served, and while the pool is opened again. Then they
//! are lifted, and all data has to be present and all functions have to work: every block is verified, the whole state audited, more is written, all requests
//! come to their end.

use engine::Limits;

use crate::content::CELLS;
use crate::random::{Random, mix};
use crate::runs::config::Config;
use crate::runs::run::{Counts, Run};
use crate::runs::scenario::{Scenario, scenario};
use crate::runs::workload::Generator;
use crate::runs::workload::Operation;
use crate::transcript::Trace;
use crate::world::disk::Cut;
use crate::world::faults::{Class, Faults, Rule, Tally};
use crate::{Checked, Violation, guarded, violated};

/// Rounds of a run.
const ROUNDS: u64 = 4;
/// Operations of a round before the faults begin, while they last, and after them.
const HEALTHY: usize = 30;
const FAULTY: usize = 50;
const AFTER: usize = 10;
/// A year of virtual time.
const YEAR: u64 = 365 * 24 * 3600 * 1_000_000_000;

/// Upper bound for the I/O of an opening.
const MOST_TO_OPEN: u64 = 1000;

/// Fault of the n-th I/O of a kind, and the index of that kind in [`crate::world::World::submitted`].
const KINDS: [(Class, usize); 6] = [
    (Class::ReadError, 0),
    (Class::WriteError, 1),
    (Class::SyncError, 2),
    (Class::NoSpace, 3),
    (Class::FullHost, 1),
    (Class::DiscardError, 4),
];

/// Results of runs.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Number of runs.
    pub runs: u64,
    /// Faults that struck.
    pub tally: Tally,
    /// Figures of all runs.
    pub counts: Counts,
    /// Hash of all events in all runs.
    pub digest: u64,
    /// Violations, each with the command that shows it again.
    pub violations: Vec<(String, Violation)>,
}

impl Report {
    /// Formats the last line of `sim faults`.
    pub fn line(&self) -> String {
        let Counts { errors, failed, read_only, refused, doubtful, .. } = self.counts;
        format!(
            "runs: {}, faults: {}, errors answered: {errors}, pools gone read-only: {failed} (and opened so: {read_only}), \
             openings refused: {refused}, in doubt: {doubtful}, violations: {}",
            self.runs,
            self.tally.total(),
            self.violations.len()
        )
    }

    /// Executes one more run. Returns its faults by class, if there was no violation.
    fn run(&mut self, again: impl FnOnce() -> String, work: impl FnOnce() -> Checked<Run>) -> Option<Tally> {
        self.runs += 1;
        match guarded(work) {
            Ok(run) => {
                let tally = run.world.faults.tally;
                self.tally.add(&tally);
                self.counts.errors += run.counts.errors;
                self.counts.failed += run.counts.failed;
                self.counts.read_only += run.counts.read_only;
                self.counts.refused += run.counts.refused;
                self.counts.doubtful += run.counts.doubtful;
                self.counts.openings += run.counts.openings;
                let halves = run.world.trace.digest().bytes().fold(0, |hash, byte| mix(hash ^ u64::from(byte)));
                self.digest = mix(self.digest ^ halves);
                Some(tally)
            }
            Err(violation) => {
                self.violations.push((again(), violation));
                None
            }
        }
    }
}

/// Executes seeds of the swarm under faults.
pub fn swarm(seeds: impl IntoIterator<Item = u64>, print: bool) -> Report {
    let mut report = Report::default();
    for seed in seeds {
        report.run(|| format!("sim faults --seed {seed} --trace"), || run_seed(seed, print));
    }
    report
}

/// Executes one seed of the swarm under faults.
pub fn run_seed(seed: u64, print: bool) -> Checked<Run> {
    let mut run = Run::start(Config::swarm(seed), Trace::new(print), false)?;
    run.world.faults = Faults::new(seed);
    run.begin_enduring()?;
    let random = &mut Random::new(seed ^ 0x6661_756c_7473);
    for _ in 0..ROUNDS {
        run.round(random)?;
    }
    Ok(run)
}

impl Run {
    fn round(&mut self, random: &mut Random) -> Checked {
        self.work(random, HEALTHY, true)?;
        self.drain()?;
        self.secure()?;
        let rules: Vec<Rule> = (0..random.below(4)).map(|_| Rule::draw(random)).collect();
        let mut rot = if random.one_in(2) { random.between(1, 6) } else { 0 };
        self.world.faults.begin(&rules);
        self.world.faults.disconnects = random.pick(&[0, 0, 2, 6]);
        self.world.trace.say(|| format!("======== faults begin: {rules:?}, and rot {rot}"));
        // A deletion or resize of a volume is a record, which silent damage may cut off the journal; with damaged superblocks, a snapshot may be lost with the
        // last of them. The model does not account for that.
        let is_silent =
            |rule: &Rule| matches!(rule.class, Class::LostWrite | Class::MisdirectedWrite | Class::StaleRead);
        let changes_volumes = rot == 0 && !rules.iter().any(is_silent);
        for operation in self.sequences(random, FAULTY, changes_volumes) {
            self.perform_one(&operation)?;
            if rot > 0 && random.one_in(8) {
                rot -= 1;
                self.world.rot();
            }
            self.surround(random)?;
        }
        self.check_mode()?;
        if random.one_in(2) {
            self.verify_all()?;
        }
        for _ in 0..random.below(3) {
            if random.one_in(4) {
                self.close_and_open()?;
            } else {
                self.open_under_faults(any_cut(random))?;
            }
            for operation in self.sequences(random, AFTER, false) {
                self.perform_one(&operation)?;
            }
            (0..rot).for_each(|_| self.world.rot());
        }
        self.lift();
        self.drain()?;
        if random.one_in(2) {
            self.verify_all()?;
        }
        self.finish(random)
    }

    /// Lifts the faults: a pool that has failed is opened again, and then all data is present and requests succeed.
    fn finish(&mut self, random: &mut Random) -> Checked {
        // An unreadable page may make the pool fail only when the checkpoint reaches it.
        self.rest()?;
        self.check_mode()?;
        if self.has_failed() || random.one_in(2) {
            self.open_under_faults(any_cut(random))?;
        }
        self.verify_all()?;
        if self.failed_before {
            self.repair()?;
            self.open_under_faults(any_cut(random))?;
            if self.has_failed() {
                return violated(format!(
                    "a pool that was repaired, and opened without faults, has failed: {:?}",
                    self.opened
                ));
            }
            self.verify_all()?;
        }
        self.audit()?;
        self.work(random, AFTER, true)?;
        self.drain()?;
        self.settle_and_audit()
    }

    fn work(&mut self, random: &mut Random, count: usize, changes_volumes: bool) -> Checked {
        let operations = self.sequences(random, count, changes_volumes);
        self.perform(&operations)
    }

    fn sequences(&mut self, random: &mut Random, count: usize, changes_volumes: bool) -> Vec<Operation> {
        let mut config = self.config.clone();
        config.changes_volumes &= changes_volumes;
        config.has_families &= changes_volumes;
        Generator::new(&config, random.draw(), false).operations(count)
    }

    /// Disturbs the engine from outside: the clock jumps, memory gets scarce, clients disconnect.
    fn surround(&mut self, random: &mut Random) -> Checked {
        if random.one_in(100) {
            self.world.jump(random.between(1, 10) * YEAR);
        }
        if random.one_in(60) {
            self.world.faults.tally.count(Class::SmallestMemory);
            self.limits = smallest(&self.config);
            self.world.set_limits(self.limits)?;
        }
        if self.world.faults.disconnects > 0 && random.one_in(20) {
            self.world.faults.tally.count(Class::Disconnect);
            for _ in 0..random.between(1, 3) {
                if let Some(buffer) = self.world.take_buffer(&[Some(7); CELLS])? {
                    self.world.return_buffer(buffer);
                }
            }
        }
        Ok(())
    }
}

fn any_cut(random: &mut Random) -> Cut {
    if random.one_in(2) { random.pick(&Cut::MASKS) } else { random.pick(&Cut::ALL) }
}

/// Returns the smallest limits that an engine of the swarm gets.
fn smallest(config: &Config) -> Limits {
    let piece = config.parameters.geometry.piece_blocks + 1;
    let ours = config.limits;
    Limits {
        buffers: 4 * piece,
        write_buffers: 2 * piece,
        // As in `Config::swarm`.
        pages: if config.has_families { 256 } else { 64 },
        index_entries: 16,
        delta_entries: ours.delta_entries.min(64),
        discard_leaves: 1,
        discards: ours.discards.min(64),
        requests: 2,
        map_buffer: ours.map_buffer.min(2),
        ..ours
    }
}

/// Fails the n-th I/O of each kind of the first scenarios, once and permanently, for every n (or one in `stride`), while the scenario runs and while
/// the pool is opened after it.
pub fn every(scenarios: u64, stride: u64, print: bool) -> Report {
    let mut report = Report::default();
    for number in 0..scenarios {
        let scenario = scenario(number);
        let mut submitted = [0; 5];
        let count = |run: &Run| submitted_since(run, [0; 5]);
        report.run(
            || format!("scenario {number} without faults"),
            || {
                let mut run = begin(&scenario, print)?;
                let before = count(&run);
                run.perform(&scenario.operations)?;
                submitted = submitted_since(&run, before);
                run.finish(&mut Random::new(number))?;
                Ok(run)
            },
        );
        for (class, kind) in KINDS {
            for for_ever in [false, true] {
                let first = (number + kind as u64 + u64::from(for_ever)) % stride;
                for nth in (first..submitted[kind]).step_by(stride as usize) {
                    let rule = Rule::nth(class, nth, for_ever);
                    report.run(|| format!("scenario {number}, {rule:?}"), || serve_with(&scenario, rule, print));
                }
                for nth in (first..MOST_TO_OPEN).step_by(stride as usize) {
                    let rule = Rule::nth(class, nth, for_ever);
                    let again = || format!("scenario {number}, opening, {rule:?}");
                    let struck = report.run(again, || open_with(&scenario, rule, print));
                    if struck.is_some_and(|tally| tally.of(class) == 0) {
                        break;
                    }
                }
            }
        }
    }
    report
}

fn submitted_since(run: &Run, before: [u64; 5]) -> [u64; 5] {
    std::array::from_fn(|kind| run.world.submitted[kind] - before[kind])
}

fn begin(scenario: &Scenario, print: bool) -> Checked<Run> {
    let mut run = Run::start(scenario.config.clone(), Trace::new(print), false)?;
    run.world.faults = Faults::new(scenario.number);
    run.begin_enduring()?;
    Ok(run)
}

/// Performs the scenario under the rule.
fn serve_with(scenario: &Scenario, rule: Rule, print: bool) -> Checked<Run> {
    let mut run = begin(scenario, print)?;
    run.world.faults.begin(&[rule]);
    run.perform(&scenario.operations)?;
    run.verify_all()?;
    run.lift();
    run.finish(&mut Random::new(rule.skip))?;
    Ok(run)
}

/// Opens the pool under the rule, after a crash at the end of the scenario.
fn open_with(scenario: &Scenario, rule: Rule, print: bool) -> Checked<Run> {
    let mut run = begin(scenario, print)?;
    run.perform(&scenario.operations)?;
    run.world.faults.begin(&[rule]);
    run.open_under_faults(if rule.skip.is_multiple_of(2) { Cut::Kept } else { Cut::Torn })?;
    // A fault that has not struck by now belongs to serving.
    run.lift();
    run.finish(&mut Random::new(rule.skip))?;
    Ok(run)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runs::run::Pending;
    use crate::runs::workload::Place;

    /// Returns a run whose pool has three blocks in their slots and was opened again: the cache is empty.
    fn three_blocks() -> Run {
        let mut run = Run::start(Config::small(3), Trace::new(false), false).unwrap();
        run.begin_enduring().unwrap();
        let place = Place { volume: 0, first: 0, count: 3 * CELLS as u64 };
        run.perform(&[Operation::Write { place, contents: vec![5, 6, 7], fua: true }]).unwrap();
        run.secure().unwrap();
        run.open_under_faults(Cut::Lost).unwrap();
        run
    }

    fn data_blocks(run: &Run) -> Vec<u64> {
        let first = run.config.parameters.geometry.data_start();
        let nothing = crate::content::Content::Payload(crate::content::ZERO);
        (first..run.world.disk.blocks()).filter(|&block| *run.world.disk.read(block) != nothing).collect()
    }

    #[test]
    fn an_error_that_no_fault_explains_is_a_violation() {
        let mut run = three_blocks();
        let block = data_blocks(&run)[0];
        run.world.disk.put(block, crate::content::Content::Payload([9; CELLS]));
        let found = run.verify_all().unwrap_err().to_string();
        assert!(found.contains("nothing had failed"), "{found}");
    }

    #[test]
    fn a_rotten_block_is_an_error_until_the_fault_is_lifted() {
        let mut run = three_blocks();
        for block in data_blocks(&run) {
            run.world.disk.rot(block, &mut Random::new(block));
        }
        run.verify_all().unwrap();
        assert!(run.counts.errors > 0);
        run.lift();
        let before = run.counts.errors;
        run.verify_all().unwrap();
        assert_eq!(run.counts.errors, before);
    }

    /// Checks that the model reports a wrong block from the engine under any fault.
    #[test]
    fn a_wrong_block_is_a_violation_under_faults_too() {
        let mut run = three_blocks();
        run.world.faults.begin(&[Rule::nth(Class::ReadError, 0, true)]);
        let place = Place { volume: 0, first: 0, count: CELLS as u64 };
        run.perform(&[Operation::Read(place)]).unwrap();
        let range = crate::oracle::model::Range { volume: 0, first: 0, count: CELLS as u64 };
        run.model.begin_observation(u64::MAX, range);
        assert!(run.model.end_read(u64::MAX, &[9; CELLS]).is_err());
    }

    /// Checks a regression: the device lost a durable write of a record after the faults had been lifted. Flushed data was lost, and no failure
    /// explained it.
    #[test]
    fn a_durable_write_in_flight_when_faults_are_lifted_completes_as_it_should() {
        for class in [Class::LostWrite, Class::MisdirectedWrite] {
            let mut run = three_blocks();
            run.world.faults.begin(&[Rule::nth(class, 0, true)]);
            let place = Place { volume: 0, first: 0, count: CELLS as u64 };
            run.perform_one(&Operation::Write { place, contents: vec![9], fua: true }).unwrap();
            while !run.world.in_flight().contains("WriteDurable") {
                run.wait().unwrap();
            }
            run.lift();
            run.drain().unwrap();
            assert_eq!(run.world.disk.damaged(), 0, "{class:?}");
        }
    }

    /// Checks that damage accepted by an opening becomes permanent. Writes to the journal and to a slot were lost. The pool was opened, and accepted the disk
    /// as it was: without the records, and with the slot still holding the block before. Then the faults were lifted, and the slot held the lost content.
    #[test]
    fn a_lost_write_does_not_come_to_a_slot_that_an_opening_accepted() {
        let mut run = three_blocks();
        let block = data_blocks(&run)[0];
        assert!(run.world.disk.submit_write(1 << 20, block, vec![crate::content::Content::Payload([9; CELLS])]));
        assert_eq!(run.world.disk.lose_write(1 << 20, None), 1);
        run.world.disk.submit_sync(1 << 20);
        run.world.disk.complete_sync(1 << 20);
        run.keep_accepted_slots();
        run.lift();
        run.verify_all().unwrap();
        assert_eq!(run.counts.errors, 0);
    }

    /// Checks a regression: a pool could not be settled because a page was unreadable, and was held to figures of a settled one.
    #[test]
    fn what_could_not_be_settled_because_of_a_fault_is_unsettled() {
        let mut run = three_blocks();
        run.world.faults.struck.pages = 1;
        let token = run.token(Pending::Settle);
        run.commanded(token, Err(engine::ControlError::NoSpace)).unwrap();
        assert!(run.is_unsettled);
    }

    #[test]
    fn the_same_seed_gives_the_same_digest() {
        let digest = || swarm(5..9, false).digest;
        assert_eq!(digest(), digest());
        assert_ne!(digest(), swarm(9..13, false).digest);
    }
}
