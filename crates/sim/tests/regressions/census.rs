//! The census: the share of each volume's blocks that lies in slots with more than one reference. It counts all sharing, whatever caused it, and also
//! after a restart.

use engine::{Command, DedupCommand, Policy, Shared, Timing, VolumeId, VolumePropertyChange};
use sim::random::Random;
use sim::runs::config::Config;
use sim::world::World;
use sim::world::disk::Cut;

use crate::bench::{Bench, SECOND};

const WHOLE: u32 = 1_000_000;

impl Bench {
    /// Waits until nothing is left to count, and returns the results.
    fn census(&mut self) -> Vec<(VolumeId, Shared)> {
        while self.world.engine.census_is_due() {
            self.pass(SECOND);
        }
        let engine = &self.world.engine;
        engine.volumes().filter_map(|volume| Some((volume.id, engine.shared_of(volume)?))).collect()
    }

    /// Returns the shares of all volumes, all of which have been counted whole.
    fn shares(&mut self) -> Vec<u32> {
        self.settle();
        let counted = self.census();
        assert!(counted.iter().all(|(_, shared)| shared.error_ppm == 0), "{counted:?}");
        counted.iter().map(|(_, shared)| shared.ppm).collect()
    }

    fn create(&mut self, name: &str, blocks: u64) {
        let size = blocks * self.geometry().block();
        self.command(Command::CreateVolume { name, size, policy: Some(Policy::Full) });
        let engine = &self.world.engine;
        self.volume = engine.volumes().find(|volume| volume.name == name).expect("it was created").id;
    }
}

/// Makes four volumes: two equal ones, one that shares half of its blocks, and one that shares none.
fn four_volumes() -> Bench {
    let mut bench = Bench::new(Config::small(1), 64);
    bench.write(0, &[50, 51, 52, 53]);
    bench.create("equal", 64);
    bench.write(8, &[50, 51, 52, 53]);
    bench.create("half", 64);
    bench.write(0, &[60, 51, 61, 53]);
    bench.create("alone", 64);
    bench.write(0, &[70, 71, 72]);
    bench
}

#[test]
fn equal_volumes_are_shared_as_a_whole_and_the_share_is_there_again_after_a_restart() {
    let mut bench = four_volumes();
    assert_eq!(bench.shares(), [WHOLE, WHOLE, WHOLE / 2, 0]);
    for restart in [Bench::reopen, |bench: &mut Bench| bench.crash(Cut::Lost).map(drop).unwrap()] {
        restart(&mut bench);
        let counted: Vec<u32> = bench.census().iter().map(|(_, shared)| shared.ppm).collect();
        assert_eq!(counted, [WHOLE, WHOLE, WHOLE / 2, 0]);
    }
}

/// A slot that loses its last other reference is not shared any more.
#[test]
fn trims_and_deletions_end_the_share_of_others() {
    let mut bench = four_volumes();
    let volumes: Vec<VolumeId> = bench.world.engine.volumes().map(|volume| volume.id).collect();
    assert_eq!(bench.shares(), [WHOLE, WHOLE, WHOLE / 2, 0]);
    bench.volume = volumes[2];
    bench.trim_blocks(1, 3);
    assert_eq!(bench.shares(), [WHOLE, WHOLE, 0, 0]);
    bench.command(Command::DeleteVolume { volume: volumes[1] });
    assert_eq!(bench.shares(), [0, 0, 0]);
}

#[test]
fn what_a_pass_lets_share_a_slot_is_shared() {
    let mut bench = Bench::new(Config::small(1), 64);
    let timing = VolumePropertyChange { timing: Some(Some(Timing::Offline)), ..VolumePropertyChange::default() };
    bench.command(Command::SetVolume { volume: bench.volume, change: timing });
    bench.write(0, &[50, 51, 50, 52]);
    bench.settle();
    bench.command(Command::Dedup { command: DedupCommand::Start });
    bench.pass(60 * SECOND);
    assert_eq!(bench.shares(), [WHOLE / 2]);
}

#[test]
fn a_volume_without_data_shares_nothing() {
    let mut bench = Bench::new(Config::small(1), 64);
    assert_eq!(bench.shares(), [0]);
}

/// The map has far more leaves than the census reads. All draws of a pool have the same beginning.
#[test]
fn an_estimate_of_a_large_volume_lies_within_its_error_and_is_the_same_in_each_run() {
    let run = || {
        let mut config = Config::small(1);
        config.parameters.geometry.metadata_blocks = 4096;
        config.parameters.geometry.containers = 512;
        config.limits.pages = 160;
        let per_leaf = config.parameters.geometry.block() / 8;
        let mut bench = Bench::new(config, 1 << 20);
        for leaf in 0..900 {
            // Every third leaf has a unique content.
            let content = if leaf % 3 == 0 { 1000 + leaf } else { 50 };
            bench.write(u64::from(leaf) * 3 * per_leaf, &[content]);
        }
        bench.settle();
        let counted = bench.census();
        let disk = &bench.world.disk;
        let exact = bench.world.engine.count_shared(&mut |offset, length| World::read_bytes(disk, offset, length));
        let exact = exact.expect("all pages can be read")[0];
        assert_eq!((exact.mapped, exact.shared), (900, 600));
        let (_, shared) = counted[0];
        assert!(shared.error_ppm > 0, "it is an estimate: {shared:?}");
        assert!(shared.ppm.abs_diff(666_667) <= 3 * shared.error_ppm, "{shared:?}");
        shared
    };
    assert_eq!(run(), run());
}

/// Leaves scattered over a petabyte. The frame ends some levels above them, since there are more subtrees than it takes, and one draw in 100 million meets
/// a leaf: draws ended with the pages that may be read for them, and the volume had no figure. Nothing was due any more, so the status said "counting"
/// until something changed. The swarm found it about once in 2,000 runs, by its volumes of a petabyte. Now the map is walked if draws meet too few leaves.
#[test]
fn leaves_that_no_draw_meets_are_sampled_by_a_walk_of_the_map() {
    let mut config = Config::small(1);
    config.parameters.geometry.metadata_blocks = 8192;
    config.parameters.geometry.containers = 64;
    let blocks = (1 << 50) / config.parameters.geometry.block();
    let mut bench = Bench::new(config, blocks);
    let mut random = Random::new(7);
    for leaf in 0..300 {
        // Every third leaf has a unique content.
        bench.write(random.below(blocks), &[if leaf % 3 == 0 { 1000 + leaf } else { 50 }]);
    }
    bench.settle();
    let counted = bench.census();
    let disk = &bench.world.disk;
    let exact = bench.world.engine.count_shared(&mut |offset, length| World::read_bytes(disk, offset, length));
    let exact = exact.expect("all pages can be read")[0];
    assert_eq!((exact.mapped, exact.shared), (300, 200));
    let &[(_, shared), ..] = &counted[..] else { panic!("the volume has no figure") };
    // The error of a sample of 40 leaves, a quarter of the pages of the cache.
    assert!((50_000..150_000).contains(&shared.error_ppm), "{shared:?}");
    assert!(shared.ppm.abs_diff(666_667) <= 3 * shared.error_ppm, "{shared:?}");
}

/// Mappings wait for a checkpoint as long as there are few. An idle pool writes one. Otherwise the share would be that of an empty volume.
#[test]
fn an_idle_pool_merges_what_it_is_to_count() {
    let mut bench = Bench::new(Config::small(1), 64);
    bench.write(0, &[50, 50, 51, 52]);
    let engine = &bench.world.engine;
    assert!(engine.status().unmerged_entries > 0 && engine.volumes().all(|volume| engine.shared_of(volume).is_none()));
    bench.pass(30 * SECOND);
    let counted = bench.census();
    assert_eq!((counted[0].1.ppm, counted[0].1.error_ppm), (WHOLE / 2, 0));
    assert_eq!(bench.world.engine.status().unmerged_entries, 0);
}
