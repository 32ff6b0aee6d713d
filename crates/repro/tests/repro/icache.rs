//! Short forms of `repro icache` and `repro window`.

use repro::icache::{Adaptive, PartitionMode, Plan, run};
use repro::window;

#[test]
fn more_index_removes_more_writes_and_more_read_cache_saves_more_reads() {
    for plan in [Plan::alternating(1 << 20, 1), Plan::steady(1 << 20, 1)] {
        let [few, half, most] = [10, 50, 90].map(|percent| run(&plan, PartitionMode::Fixed(percent)).unwrap().counts);
        assert!(few.removed * 2 < half.removed && half.removed * 5 < most.removed * 4, "{few:?} {half:?} {most:?}");
        assert!(
            most.read_hits * 2 < half.read_hits && half.read_hits * 5 < few.read_hits * 4,
            "{few:?} {half:?} {most:?}"
        );
        // All blocks that are read fit into nine tenths of the memory, and nothing else evicts them.
        assert!(few.read_hits * 100 > few.reads * 99, "{few:?}");
    }
}

#[test]
fn where_bursts_alternate_the_engine_divides_better_than_any_fixed_partition() {
    let plan = Plan::alternating(1 << 20, 1);
    let saved = |partition| run(&plan, partition).unwrap().counts.saved_percent();
    let adaptive = saved(PartitionMode::Adaptive(Adaptive::DEFAULT));
    for percent in (0..=100).step_by(10) {
        let fixed = saved(PartitionMode::Fixed(percent));
        assert!(adaptive > fixed + 3.0, "{adaptive:.2} %, and {fixed:.2} % with {percent} % index");
    }
}

#[test]
fn on_a_steady_load_the_engine_saves_within_3_percent_of_the_best_fixed_partition_wherever_it_begins() {
    let plan = Plan::steady(1 << 20, 1);
    let saved = |partition| run(&plan, partition).unwrap().counts.saved();
    let best = (0..=100).step_by(10).map(|percent| saved(PartitionMode::Fixed(percent))).max().unwrap();
    for begins_with in [10, 50, 90] {
        for interval in [256, 1000] {
            let adaptive = saved(PartitionMode::Adaptive(Adaptive { begins_with, interval, ..Adaptive::DEFAULT }));
            assert!(adaptive * 100 > best * 97, "{adaptive} of {best}, from {begins_with} %, N {interval}");
        }
    }
}

#[test]
fn the_same_run_comes_to_the_same() {
    let plan = Plan::alternating(1 << 19, 1);
    for partition in [PartitionMode::Fixed(40), PartitionMode::Adaptive(Adaptive::DEFAULT)] {
        assert_eq!(run(&plan, partition).unwrap(), run(&plan, partition).unwrap());
    }
}

/// Measures with 0.4 GB of memory for 1 TB of data.
#[test]
fn the_index_finds_nearly_as_much_of_a_working_set_as_it_has_entries_for() {
    let results = window::measure(128 << 30).unwrap();
    let most = results.parts.entries as f64 * 100.0 / results.working_set as f64;
    // The index may also take the read cache's memory, at 16 bytes an entry.
    let grown = (results.parts.entries + results.parts.read_cache / 16) as f64 * 100.0 / results.working_set as f64;
    assert!((most * 0.7..=grown).contains(&results.uniform.percent()), "{results:?}");
    assert!(results.skewed.percent() > results.uniform.percent(), "{results:?}");
    assert!(results.in_use <= results.memory - results.parts.server, "{results:?}");
}
