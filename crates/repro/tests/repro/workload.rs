//! Loads from distribution files: their expected savings, and the engine's results.
//!
//! The files are in `../shared/data/dedisbench`, seen from the root of the project. Without them the tests report that and pass.

use std::path::{Path, PathBuf};

use engine::{Goal, Policy, Timing};
use repro::dedis::addresses::Pattern;
use repro::dedis::distribution::Distribution;
use repro::dedis::load::{Load, Stop};
use repro::dedis::virtual_run::{Outcome, Passes, Setup, run};
use sim::disks::Disk;

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/dedisbench")
}

/// Opens a distribution file, if the directory exists.
fn file(name: &str) -> Option<Distribution> {
    if !directory().is_dir() {
        println!("skipped: there is no {}", directory().display());
        return None;
    }
    Some(Distribution::open(name, &directory()).expect("the file is one"))
}

fn setup(volume_blocks: u64, requests: u64) -> Setup {
    Setup {
        policy: Policy::Full,
        timing: Timing::Inline,
        goal: Goal::None,
        passes: Passes::None,
        volatile: false,
        volume_blocks,
        memory: None,
        disk: Disk::from_spec("ssd").expect("there is one"),
        processor: 1500,
        durable: false,
        fills: false,
        load: Load {
            pattern: Pattern::Sequential,
            request_blocks: 1,
            reads_percent: 0,
            workers: 1,
            rate: None,
            stop: Stop::Requests(requests),
            seed: 1,
        },
    }
}

fn outcome(setup: &Setup, distribution: &Distribution) -> Outcome {
    run(setup, distribution, &mut |_| {}).expect("no violation")
}

/// HIODS saved 11.5 and 45.8 GB of 64 GB (sections 5.3 and 5.4).
#[test]
fn expected_savings_are_those_of_the_paper() {
    for (name, gib) in [("highperf", 11.51), ("kernels", 45.80)] {
        let Some(distribution) = file(name) else { return };
        let expected = distribution.expect((64 << 30) / 4096).duplicates * 4096.0 / (1u64 << 30) as f64;
        assert!((expected / gib - 1.0).abs() < 0.005, "{name}: {expected}");
    }
}

#[test]
fn full_with_memory_for_all_contents_stores_exactly_what_is_distinct() {
    for name in ["highperf", "kernels"] {
        let Some(distribution) = file(name) else { return };
        let outcome = outcome(&setup(16_384, 16_384), &distribution);
        let tally = outcome.tally;
        assert_eq!((tally.written_blocks, tally.live_blocks), (16_384, 16_384));
        assert_eq!(tally.saved_blocks(), tally.duplicate_blocks, "nothing was overwritten");
        assert_eq!(outcome.stored_blocks, tally.distinct_blocks, "{name}");
        let expected = distribution.expect(16_384).duplicates;
        let (found, tolerance) = (tally.duplicate_blocks as f64, 5.0 * expected.sqrt());
        assert!((found - expected).abs() < tolerance, "{name}: {found} for {expected}");
    }
}

/// Makes a distribution of our own, with many duplicates in few contents.
fn small() -> Distribution {
    Distribution::parse("small", "0 3000\n1 1000\n9 200\n499 2").expect("it is one")
}

#[test]
fn what_is_overwritten_is_given_back_whatever_the_pattern() {
    for pattern in [Pattern::Uniform, Pattern::Hotspot, Pattern::Zipf(0.99)] {
        let mut setup = setup(4096, 3000);
        setup.load = Load { pattern, workers: 4, request_blocks: 2, seed: 3, ..setup.load };
        let outcome = outcome(&setup, &small());
        assert_eq!((outcome.requests, outcome.blocks), (3000, 6000));
        assert!(outcome.tally.live_blocks < outcome.tally.written_blocks, "{pattern}");
        assert_eq!(outcome.stored_blocks, outcome.tally.distinct_blocks, "{pattern}");
    }
}

#[test]
fn native_stores_every_block_and_a_run_is_the_same_again() {
    let native = Setup { policy: Policy::Native, ..setup(2048, 2048) };
    let (one, two) = (outcome(&native, &small()), outcome(&native, &small()));
    assert_eq!(one.stored_blocks, 2048);
    assert!(one.time >= 2048 * 1500, "the processor takes its time");
    assert_eq!((one.time, one.disk_commands), (two.time, two.disk_commands));
    assert_eq!(one.latencies.report(), two.latencies.report());
}

#[test]
fn a_nominal_load_of_reads_and_writes_keeps_its_rate_and_reads_what_was_written() {
    let mut setup = setup(2048, 0);
    setup.fills = true;
    setup.durable = true;
    setup.load = Load {
        pattern: Pattern::Uniform,
        reads_percent: 60,
        workers: 3,
        rate: Some(2000),
        stop: Stop::After(2_000_000_000),
        ..setup.load
    };
    let outcome = outcome(&setup, &small());
    assert!((3950..=4020).contains(&outcome.requests), "{}", outcome.requests);
    let writes = outcome.tally.written_blocks - 2046;
    assert!((1400..=1800).contains(&writes), "{writes} of {} are writes", outcome.requests);
    assert_eq!(outcome.tally.live_blocks, 2046, "three regions of 682 blocks");
}

#[test]
fn a_load_that_does_not_fit_is_refused() {
    let why = run(&Setup { memory: Some(1 << 20), ..setup(2048, 1) }, &small(), &mut |_| {}).expect_err("too little");
    assert!(why.0.contains("bytes of memory"), "{why}");
    let mut many = setup(2, 1);
    many.load.workers = 3;
    assert!(run(&many, &small(), &mut |_| {}).expect_err("too small").0.contains("too few"));
}

/// With any memory, and with passes during or after the load, each content is stored once after the pass.
#[test]
fn after_a_pass_an_offline_load_is_stored_as_what_is_distinct() {
    let offline = Setup { timing: Timing::Offline, memory: Some(40 << 20), ..setup(16_384, 16_384) };
    for passes in [Passes::After, Passes::Beside] {
        let outcome = outcome(&Setup { passes, ..offline.clone() }, &small());
        assert_eq!(outcome.stored_blocks, outcome.tally.distinct_blocks, "{passes:?}");
        assert!(outcome.pass > 0);
    }
    let before = outcome(&offline, &small());
    assert_eq!(before.stored_blocks, 16_384, "nothing is shared without one");
}

/// The paper's memory version keeps journal and tables in memory. A load takes less time, and its result is the same.
#[test]
fn volatile_metadata_saves_time_and_nothing_else() {
    let durable = Setup { durable: true, ..setup(4096, 4096) };
    let kept = outcome(&durable, &small());
    let volatile = outcome(&Setup { volatile: true, ..durable }, &small());
    assert_eq!(kept.stored_blocks, volatile.stored_blocks);
    assert!(2 * volatile.time < kept.time, "{} {}", volatile.time, kept.time);
}
