//! Runs of the swarm: one seed, a range of seeds for their digests, and fresh seeds for any length of time.
//!
//! A run whose sequence ends in a violation is shortened ([`crate::runs::shrink`]) and reported with all data that a test needs.

use std::fmt::Write;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use engine::Nanos;

use crate::parallel::{Progress, in_order};
use crate::random::mix;
use crate::runs::config::Config;
use crate::runs::run::{Counts, Run};
use crate::runs::shrink::{shrink, source};
use crate::runs::workload::{Generator, Operation};
use crate::transcript::Trace;
use crate::{Checked, Violation, guarded};

/// Number of operations of a run of the swarm.
pub const OPERATIONS: usize = 3000;
/// Maximum number of runs for shortening one sequence.
const SHRINKING_RUNS: usize = 1000;
/// Number of violations that are shortened; of more there is one line each.
const MOST_SHRUNK: u64 = 3;
/// Number of last lines of a trace that are shown.
const LINES_SHOWN: usize = 30;

/// Results of a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Outcome {
    /// Digest of all events, and of the disk at the end.
    pub digest: String,
    /// Figures.
    pub counts: Counts,
    /// Virtual time.
    pub nanos: Nanos,
}

/// Generates the sequence of a seed.
pub fn sequence(config: &Config, seed: u64, operations: usize) -> Vec<Operation> {
    Generator::new(config, seed, true).operations(operations)
}

/// Performs a sequence, then settles and audits everything.
pub fn run_operations(config: &Config, sequence: &[Operation], trace: Trace) -> Checked<Outcome> {
    guarded(|| {
        let mut run = Run::start(config.clone(), trace, false)?;
        run.perform(sequence)?;
        run.settle_and_audit()?;
        let state = mix(run.world.disk.hash());
        run.world.trace.note(run.world.now, 30, &[state], || "the end".to_string());
        Ok(Outcome { digest: run.world.trace.digest(), counts: run.counts, nanos: run.world.now })
    })
}

/// Performs the sequence of one seed of the swarm.
pub fn run_seed(seed: u64, operations: usize, trace: Trace) -> Checked<Outcome> {
    let config = Config::swarm(seed);
    run_operations(&config, &sequence(&config, seed, operations), trace)
}

/// Returns the digests of the first `seeds` seeds, or their violations, in order.
pub fn digests(seeds: u64, operations: usize, threads: usize) -> Vec<Checked<String>> {
    let digest = |seed| run_seed(seed, operations, Trace::new(false)).map(|outcome| outcome.digest);
    in_order(threads, seeds, digest)
}

/// Scope of a soak.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Time during which new runs begin.
    pub time: Duration,
    /// Threads.
    pub threads: usize,
    /// First seed; the others follow it.
    pub from: u64,
    /// Operations of a run.
    pub operations: usize,
}

/// Results of a soak.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Runs that ended, with a violation or without.
    pub runs: u64,
    /// Crashes in those without.
    pub crashes: u64,
    /// Virtual time of those without.
    pub nanos: u128,
    /// Runs that ended with a violation.
    pub violations: u64,
    /// Seed of the first of these.
    pub first: Option<u64>,
}

impl Tally {
    /// Formats the last line of `sim soak`.
    pub fn line(&self, elapsed: Duration) -> String {
        let seconds = elapsed.as_secs_f64().max(1e-9);
        let (runs, hours) = (self.runs as f64 * 60.0 / seconds, self.nanos as f64 / 1e9 / seconds);
        let first = self.first.map_or(String::new(), |seed| format!(" (the first in seed {seed})"));
        format!(
            "runs: {}, crashes: {}, violations: {}{first}; {runs:.0} runs a minute, {hours:.1} virtual hours an hour, in {:.0} s",
            self.runs, self.crashes, self.violations, seconds
        )
    }
}

/// Executes new seeds until the time is over or `stop` is set, prints violations as they come, and returns the time that it took.
pub fn soak(plan: &Plan, stop: &AtomicBool) -> (Tally, Duration) {
    let next = AtomicU64::new(plan.from);
    let tally = Mutex::new(Tally::default());
    let mut progress = Progress::begin();
    let end = Instant::now() + plan.time;
    let goes_on = || Instant::now() < end && !stop.load(Ordering::Relaxed);
    let worker = || {
        while goes_on() {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            let result = run_seed(seed, plan.operations, Trace::new(false));
            let mut sum = tally.lock().expect("no thread panics with it");
            sum.runs += 1;
            match result {
                Ok(outcome) => {
                    sum.crashes += outcome.counts.crashes;
                    sum.nanos += u128::from(outcome.nanos);
                }
                Err(violation) => {
                    sum.violations += 1;
                    sum.first.get_or_insert(seed);
                    let shrinks = sum.violations <= MOST_SHRUNK;
                    drop(sum);
                    println!("{}", report(seed, plan.operations, &violation, shrinks));
                }
            }
        }
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..plan.threads.max(1)).map(|_| scope.spawn(worker)).collect();
        while threads.iter().any(|thread| !thread.is_finished()) {
            std::thread::sleep(Duration::from_millis(50));
            let (elapsed, left) = (progress.elapsed(), end.saturating_duration_since(Instant::now()).as_secs());
            let sum = *tally.lock().expect("no thread panics with it");
            progress.say(|| format!("{}; {left} s left", sum.line(elapsed)));
        }
    });
    (tally.into_inner().expect("no thread panics with it"), progress.elapsed())
}

/// Describes a violation: the seed, the shrunk sequence, and the last lines of the shorter run.
fn report(seed: u64, operations: usize, violation: &Violation, shrinks: bool) -> String {
    let mut text =
        format!("violation in seed {seed}: {violation}\n  again: sim seed {seed} --operations {operations} --trace");
    if !shrinks {
        return text;
    }
    let config = Config::swarm(seed);
    let fails = |sequence: &[Operation]| run_operations(&config, sequence, Trace::new(false)).err();
    let shrunk = shrink(sequence(&config, seed, operations), violation.clone(), SHRINKING_RUNS, fails);
    let (trace, lines) = Trace::keeping(LINES_SHOWN);
    // A sequence that fails does so again.
    let _ = run_operations(&config, &shrunk.sequence, trace);
    let _ = write!(
        text,
        "\n  shorter: {} of {operations} operations, after {} runs: {}\n{}",
        shrunk.sequence.len(),
        shrunk.runs,
        shrunk.violation,
        source(seed, &shrunk.sequence)
    );
    let _ = write!(text, "\n  the last that happens in it:");
    for line in lines.borrow().iter() {
        let _ = write!(text, "\n    {line}");
    }
    text
}
