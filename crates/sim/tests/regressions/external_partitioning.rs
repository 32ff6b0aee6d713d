//! External partitioning of the exact pass. With many ranges it goes through the summaries once, and keeps its findings in empty containers for a
//! while.

use engine::{
    Command, DedupStatus, DefragSetting, KeepRuns, PassState, Policy, PoolChange, VolumeId, VolumePropertyChange,
};
use sim::content::Content;
use sim::random::Random;
use sim::runs::config::Config;
use sim::runs::run::Run;
use sim::runs::scenario::{Scenario, scenario};
use sim::transcript::Trace;

use crate::bench::{Bench, SECOND};
use crate::dedup::{BLOCKS, config, fill_with};

/// Makes a pool with empty containers and so little memory that a pass has many ranges. So the pass partitions its work.
fn config_of_many_ranges(random: &mut Random) -> Config {
    let mut config = config(random);
    config.limits.delta_entries = 12;
    config
}

/// A pass with many ranges goes through the summaries once. It is as exact as a pass that goes through them for each range.
#[test]
fn a_pass_with_many_ranges_is_partitioned_and_leaves_each_content_once() {
    for seed in 0..12 {
        let mut random = Random::new(seed);
        let mut bench = Bench::new(config_of_many_ranges(&mut random), BLOCKS);
        let mut contents = vec![0; BLOCKS as usize];
        for round in 0..3 {
            fill_with(140, &mut bench, &mut random, &mut contents, 80);
            bench.share_by(Policy::Full);
            let scans = bench.dedup().scans;
            bench.start_pass();
            bench.run_pass(SECOND);
            let dedup = bench.dedup();
            assert!(dedup.shared_blocks > 0 && dedup.spill_written > 0, "seed {seed}, round {round}: {dedup:?}");
            assert!(dedup.spill_read >= dedup.spill_written / 2 && dedup.spill_blocks == 0, "{dedup:?}");
            assert_eq!(dedup.scans, scans + 1, "seed {seed}, round {round}: {dedup:?}");
            bench.assert_exact(&contents);
        }
    }
}

/// A pass that finds more than fits beside the remaining ranges shares these findings in between. The next findings take their space.
#[test]
fn what_finds_no_space_beside_the_ranges_is_shared_in_between() {
    const MANY: u64 = 4 * BLOCKS;
    let mut in_between = 0;
    for seed in 0..12 {
        let mut random = Random::new(seed);
        let mut config = config_of_many_ranges(&mut random);
        // Forty of them are in use.
        config.parameters.geometry.containers = 45 + (seed % 6) as u32;
        let mut bench = Bench::new(config, MANY);
        let contents: Vec<u32> = (0..MANY).map(|_| 1 + random.below(40) as u32).collect();
        let change = PoolChange { defrag: Some(DefragSetting::Off), replicas: Some(Some(0)), ..PoolChange::default() };
        bench.command(Command::SetPool(change));
        bench.share_by(Policy::Native);
        for (first, values) in (0..).step_by(8).zip(contents.chunks(8)) {
            bench.write(first, values);
        }
        bench.share_by(Policy::Full);
        bench.start_pass();
        let (mut before, mut is_in_between) = (None, false);
        while bench.dedup().state == PassState::Running {
            bench.step_once();
            let dedup = bench.dedup();
            if dedup.shared_blocks > 0 && dedup.spill_blocks > 0 {
                // The spilled blocks do not come from another external partitioning.
                let (written, scans) = *before.get_or_insert((dedup.spill_written, dedup.scans));
                is_in_between |= written < dedup.spill_written && scans == dedup.scans;
            }
        }
        in_between += u32::from(is_in_between);
        bench.assert_exact(&contents);
    }
    assert!(in_between > 3, "{in_between}");
}

/// The blocks of a run are remapped together, and each of them was noted. Changes that the space map does not have before a checkpoint are no reason
/// for a walk of all maps.
#[test]
fn runs_that_are_shared_as_a_whole_need_no_walk_of_the_maps() {
    const MANY: u64 = 1024;
    for keep_runs in [KeepRuns::On, KeepRuns::Off] {
        let mut config = config(&mut Random::new(1));
        // Space for a run of 16 blocks within the changes of one checkpoint.
        (config.parameters.geometry.containers, config.limits.delta_entries) = (96, 64);
        let mut bench = Bench::new(config, MANY);
        let change = PoolChange { defrag: Some(DefragSetting::Off), replicas: Some(Some(0)), ..PoolChange::default() };
        bench.command(Command::SetPool(change));
        bench.share_by(Policy::Native);
        let contents: Vec<u32> = (0..MANY).map(|block| 1 + (block % (MANY / 2)) as u32).collect();
        for (first, values) in (0..).step_by(8).zip(contents.chunks(8)) {
            bench.write(first, values);
        }
        bench.share_by(Policy::Full);
        let change = VolumePropertyChange { keep_runs: Some(keep_runs), ..VolumePropertyChange::default() };
        bench.command(Command::SetVolume { volume: VolumeId(1), change });
        bench.settle();
        bench.start_pass();
        bench.run_pass(SECOND);
        let dedup = bench.dedup();
        assert_eq!((dedup.shared_blocks, dedup.map_walks, dedup.scans), (MANY / 2, 0, 1), "{keep_runs:?}: {dedup:?}");
        bench.assert_exact(&contents);
    }
}

/// Writes get the containers that a pass spills into when they need them. The pass finds the remaining duplicates without spill space.
#[test]
fn spill_space_goes_to_writes_that_need_it() {
    let mut lost = 0;
    for seed in 0..12 {
        let mut random = Random::new(seed);
        let mut config = config_of_many_ranges(&mut random);
        config.parameters.geometry.containers = 24;
        let mut bench = Bench::new(config, 3 * BLOCKS);
        let mut contents = vec![0; 3 * BLOCKS as usize];
        fill_with(140, &mut bench, &mut random, &mut contents[..BLOCKS as usize], 80);
        bench.share_by(Policy::Full);
        bench.settle();
        bench.start_pass();
        while bench.dedup().spill_blocks == 0 && bench.dedup().state == PassState::Running {
            bench.step_once();
        }
        for _ in 0..random.below(24) {
            bench.step_once();
        }
        let before = bench.dedup().spill_blocks;
        // Fills all the space there is.
        for first in (BLOCKS..3 * BLOCKS).step_by(8) {
            if bench.world.engine.status().data_blocks_used + 24 > 24 * 16 {
                break;
            }
            let values: Vec<u32> = (0..8).map(|block| 1000 + (first + block) as u32).collect();
            contents[first as usize..first as usize + 8].copy_from_slice(&values);
            bench.write(first, &values);
        }
        lost += u32::from(before > 0);
        bench.run_pass(SECOND);
        bench.start_pass();
        bench.run_pass(SECOND);
        bench.assert_exact(&contents);
    }
    assert!(lost > 3, "{lost}");
}

/// A page of the spill space does not come back as it was written. The pass works without it, and is as exact.
#[test]
fn spill_space_that_is_damaged_is_not_trusted() {
    for seed in 0..12 {
        let mut random = Random::new(seed);
        let mut bench = Bench::new(config_of_many_ranges(&mut random), BLOCKS);
        let mut contents = vec![0; BLOCKS as usize];
        fill_with(140, &mut bench, &mut random, &mut contents, 80);
        bench.share_by(Policy::Full);
        bench.settle();
        bench.start_pass();
        while bench.dedup().spill_read == 0 {
            bench.step_once();
        }
        let geometry = bench.geometry();
        let is_page = |block: u64| matches!(bench.world.disk.read(block), Content::Metadata(_));
        let pages: Vec<u64> =
            (0..geometry.slots()).map(|slot| geometry.slot_block(slot)).filter(|&b| is_page(b)).collect();
        assert!(!pages.is_empty());
        for block in pages {
            bench.world.disk.rot(block, &mut random);
        }
        bench.run_pass(SECOND);
        bench.assert_exact(&contents);
    }
}

/// The scenario that is crashed everywhere covers its subject: partitionings that complete, and one whose spill space is reclaimed.
#[test]
fn the_scenario_of_external_partitionings_has_them() {
    let Scenario { config, operations, .. } = scenario(32);
    let mut run = Run::start(config, Trace::new(false), false).unwrap();
    let (mut sorts, mut lost, mut before) = (0, 0, DedupStatus::default());
    for operation in operations {
        run.perform(&[operation]).unwrap();
        let dedup = run.world.engine.status().dedup;
        sorts += u32::from(dedup.spill_written > before.spill_written);
        lost += u32::from(before.spill_blocks > 0 && dedup.spill_blocks == 0 && dedup.passes == before.passes);
        before = dedup;
    }
    assert_eq!((sorts, lost, before.passes), (3, 1, 3), "{before:?}");
}
