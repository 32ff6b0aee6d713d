//! A bounded set of simulations: fixed seeds of the swarm, and crashes at every point of a few scenarios.

use sim::guarded;
use sim::runs::config::Config;
use sim::runs::crash::{Plan, Tally, enumerate};
use sim::runs::faulty::{self, Report};
use sim::runs::run::Run;
use sim::runs::scenario::FIXED;
use sim::runs::workload::Generator;
use sim::transcript::Trace;

fn digest_of_seed(seed: u64, operations: usize) -> String {
    let run = guarded(|| {
        let mut run = Run::start(Config::swarm(seed), Trace::new(false), false)?;
        let operations = Generator::new(&run.config.clone(), seed, true).operations(operations);
        run.perform(&operations)?;
        run.settle_and_audit()?;
        Ok(run.world.trace.digest())
    });
    run.unwrap_or_else(|violation| panic!("seed {seed}: {violation}"))
}

fn assert_clean(tally: &Tally, points: u64) {
    let first = tally.violations.first();
    assert!(first.is_none(), "{}; the first: {first:?}", tally.line());
    assert!(tally.points >= points, "{}", tally.line());
}

#[test]
fn the_swarm_finds_nothing() {
    for seed in 0..40 {
        digest_of_seed(seed, 400);
    }
}

#[test]
fn the_same_seed_gives_the_same_digest_and_another_seed_another() {
    assert_eq!(digest_of_seed(7, 500), digest_of_seed(7, 500));
    assert_ne!(digest_of_seed(7, 500), digest_of_seed(8, 500));
}

/// Crashes at every point of the first scenarios. `sim crash` does it with all.
#[test]
fn crashes_at_every_point_of_a_scenario_lose_nothing() {
    assert_clean(&enumerate(&Plan::all(5, 1)), 200);
}

#[test]
fn crashes_at_every_point_of_a_recovery_lose_nothing() {
    assert_clean(&enumerate(&Plan { seed: Some(0), ..Plan::all(1, 2) }), 500);
}

#[test]
fn crashes_while_the_host_has_no_space_for_writes_lose_nothing() {
    assert_clean(&enumerate(&Plan { full_host: true, ..Plan::all(7, 1) }), 500);
}

fn assert_unhurt(report: &Report) {
    let first = report.violations.first();
    assert!(first.is_none(), "{}; the first: {first:?}", report.line());
}

#[test]
fn runs_under_faults_of_every_class_lose_nothing() {
    let report = faulty::swarm(0..250, false);
    assert_unhurt(&report);
    assert!(report.tally.missing().is_empty(), "{}", report.tally);
    assert!(report.counts.failed > 0 && report.counts.read_only > 0 && report.counts.refused > 0);
}

#[test]
fn an_io_that_fails_while_serving_or_opening_loses_nothing() {
    let report = faulty::every(FIXED, 11, false);
    assert_unhurt(&report);
    assert!(report.runs > 300, "{}", report.line());
}
