//! Options of the exact pass. With `keep-runs` it splits no blocks that can be read together. With `dedup-verify` it compares blocks, in case their
//! digests lie.

use engine::{
    Command, DedupVerify, DefragSetting, KeepRuns, Policy, PoolChange, Timing, VolumeId, VolumePropertyChange,
};
use sim::content::CELLS;
use sim::random::Random;
use sim::world::Answer;
use sim::world::disk::Cut;

use crate::bench::{Bench, SECOND};
use crate::dedup::{BLOCKS, config};

impl Bench {
    fn set_runs(&mut self, policy: Policy, timing: Timing, keep_runs: KeepRuns) {
        let (policy, timing, keep_runs) = (Some(Some(policy)), Some(Some(timing)), Some(keep_runs));
        let change = VolumePropertyChange { policy, timing, keep_runs, ..VolumePropertyChange::default() };
        self.command(Command::SetVolume { volume: VolumeId(1), change });
    }

    /// Returns, for each block and the next one, whether one device read brings both, from a pool with nothing in memory.
    fn joined(&mut self, contents: &[u32]) -> Vec<bool> {
        self.settle();
        let mut disk = self.world.disk.clone();
        disk.crash(Cut::Lost, &mut Random::new(1));
        let is_one_read = |block: usize| {
            let mut other = Bench::on_disk(self.config.clone(), disk.clone(), "what has been settled");
            other.volume = self.volume;
            let token = other.begin_read(block as u64, 2);
            other.wait(token).expect("it reads");
            other.world.engine.read_counts().device_reads == 1 && !contents[block..block + 2].contains(&0)
        };
        (0..contents.len() - 1).map(is_one_read).collect()
    }
}

/// Copies files, as a whole and in part, and changes them, as a client that knows nothing of duplicates stores them.
fn fill(bench: &mut Bench, random: &mut Random, contents: &mut [u32]) {
    let change = PoolChange { defrag: Some(DefragSetting::Off), replicas: Some(Some(0)), ..PoolChange::default() };
    bench.command(Command::SetPool(change));
    for number in 0..40 {
        let (first, from, count) = (random.below(BLOCKS - 12), random.below(BLOCKS - 12), 1 + random.below(12));
        let fresh = |at: u64| 100 * number + at as u32 + 1;
        let values: Vec<u32> = (0..count)
            .map(|at| match contents[(from + at) as usize] {
                0 => fresh(at),
                _ if random.one_in(20) => 1 + random.below(4) as u32,
                known => known,
            })
            .collect();
        contents[first as usize..(first + count) as usize].copy_from_slice(&values);
        for (at, values) in (0..).step_by(8).zip(values.chunks(8)) {
            bench.write(first + at, values);
        }
        if random.one_in(6) {
            bench.settle();
        }
    }
}

fn start(seed: u64) -> (Bench, Random, Vec<u32>) {
    let mut random = Random::new(seed);
    let mut config = config(&mut random);
    config.limits.read_ahead = 0;
    (Bench::new(config, BLOCKS), random, vec![0; BLOCKS as usize])
}

#[test]
fn a_pass_that_keeps_runs_splits_none_and_shares_those_that_are_stored_twice() {
    let (mut shared, mut kept) = (0, 0);
    for seed in 0..24 {
        let (mut bench, mut random, mut contents) = start(seed);
        let policy = random.pick(&["full", "select", "select:2,request", "idedup", "idedup:2", "observe"]);
        let policy: Policy = policy.parse().expect("a policy");
        bench.set_runs(policy, Timing::Offline, KeepRuns::On);
        fill(&mut bench, &mut random, &mut contents);
        let (before, blocks) = (bench.joined(&contents), bench.world.engine.status().data_blocks_used);
        // One pass may let the next one share more, until there is nothing more to share.
        let mut last = None;
        let is_over = (0..6).any(|_| {
            bench.start_pass();
            bench.run_pass(SECOND);
            let after = bench.joined(&contents);
            let split = before.iter().zip(&after).position(|(before, after)| *before && !after);
            assert_eq!(split, None, "seed {seed}, {policy}");
            let shared = bench.dedup().shared_blocks;
            last.replace(shared) == Some(shared)
        });
        assert!(is_over, "seed {seed}, {policy}");
        let status = bench.world.engine.status();
        assert!(status.data_blocks_used <= blocks, "seed {seed}, {policy}");
        (shared, kept) = (shared + status.dedup.shared_blocks, kept + status.dedup.kept_blocks);
        for (block, &content) in (0..).zip(&contents) {
            bench.assert_holds(block, content);
        }
        bench.audit();
    }
    assert!(shared > 200 && kept > 200, "{shared} shared, {kept} kept");
}

#[test]
fn without_it_each_content_is_stored_once() {
    for seed in 0..12 {
        let (mut bench, mut random, mut contents) = start(seed);
        bench.set_runs(random.pick(&[Policy::SELECT, Policy::IDEDUP, Policy::Full]), Timing::Offline, KeepRuns::Off);
        fill(&mut bench, &mut random, &mut contents);
        bench.start_pass();
        bench.run_pass(SECOND);
        bench.assert_exact(&contents);
    }
}

/// By default the option is automatic: runs are kept unless the policy is `full`.
#[test]
fn runs_are_kept_unless_the_policy_is_full_and_what_is_set_outlives_a_restart() {
    for (policy, keep_runs, blocks) in [
        (Policy::Full, KeepRuns::Auto, 4),
        (Policy::Full, KeepRuns::On, 7),
        (Policy::SELECT, KeepRuns::Auto, 7),
        (Policy::SELECT, KeepRuns::Off, 4),
    ] {
        let (mut bench, ..) = start(1);
        bench.set_runs(policy, Timing::Offline, keep_runs);
        bench.write(0, &[1, 2, 3, 4]);
        bench.write(8, &[2, 4, 1]);
        bench.settle();
        bench.reopen();
        assert_eq!(bench.world.engine.volumes().next().expect("there is one").properties.keep_runs(), keep_runs);
        bench.start_pass();
        bench.run_pass(SECOND);
        bench.settle();
        assert_eq!(bench.world.engine.status().data_blocks_used, blocks, "{policy}, {keep_runs}");
    }
}

/// Blocks that are written in order form one run. A run ends where the next MiB of the volume begins, so consecutive copies are shared.
#[test]
fn copies_one_behind_the_other_are_shared() {
    const WINDOW: u64 = 256;
    let mut config = config(&mut Random::new(1));
    (config.parameters.geometry.slots_per_container, config.limits.delta_entries) = (1024, 2048);
    config.parameters.geometry.metadata_blocks = 4096;
    let mut bench = Bench::new(config, 3 * WINDOW);
    bench.set_runs(Policy::SELECT, Timing::Offline, KeepRuns::Auto);
    for first in (0..3 * WINDOW).step_by(8) {
        bench.write(first, &(0..8).map(|at| 1 + (first % WINDOW) as u32 + at).collect::<Vec<u32>>());
    }
    bench.start_pass();
    bench.run_pass(SECOND);
    bench.settle();
    assert_eq!(bench.world.engine.status().data_blocks_used, WINDOW);
    (0..3 * WINDOW).for_each(|block| bench.assert_holds(block, 1 + (block % WINDOW) as u32));
    bench.audit();
}

/// No slot of a run of equal blocks could be remapped without a split. So a volume of one repeated block kept its written size.
#[test]
fn one_block_again_and_again_takes_one_slot_after_a_pass_that_keeps_runs() {
    let (mut bench, ..) = start(1);
    bench.set_runs(Policy::SELECT, Timing::Offline, KeepRuns::Auto);
    (0..4).for_each(|request| bench.write(8 * request, &[7; 8]));
    // A part of a run stays, because sharing would split it.
    bench.write(40, &[1, 2, 7, 7, 7, 7, 3]);
    bench.start_pass();
    bench.run_pass(SECOND);
    bench.settle();
    assert_eq!(bench.world.engine.status().data_blocks_used, 1 + 7);
    (0..32).for_each(|block| bench.assert_holds(block, 7));
    (40..47).zip([1, 2, 7, 7, 7, 7, 3]).for_each(|(block, content)| bench.assert_holds(block, content));
    bench.audit();
}

/// Stores contents for a volume that shares nothing inline, in a pool whose hash has ten values.
fn weak(seed: u64, verify: DedupVerify, keep_runs: KeepRuns) -> (Bench, Vec<u32>) {
    let (mut bench, mut random, mut contents) = start(seed);
    bench.world.weaken_digests(80);
    bench.command(Command::SetPool(PoolChange { dedup_verify: Some(verify), ..PoolChange::default() }));
    bench.set_runs(Policy::Full, Timing::Offline, keep_runs);
    for _ in 0..60 {
        let (first, count) = (random.below(BLOCKS - 8), 1 + random.below(8));
        let values: Vec<u32> = (0..count).map(|_| 1 + random.below(30) as u32).collect();
        contents[first as usize..(first + count) as usize].copy_from_slice(&values);
        bench.write(first, &values);
    }
    bench.start_pass();
    bench.run_pass(SECOND);
    bench.settle();
    bench.cool();
    (bench, contents)
}

#[test]
fn with_dedup_verify_a_pass_shares_no_two_different_contents_whatever_their_digests_say() {
    for seed in 0..12 {
        let (mut bench, contents) = weak(seed, DedupVerify::Both, [KeepRuns::Off, KeepRuns::On][seed as usize % 2]);
        let status = bench.dedup();
        assert!(status.shared_blocks > 0 && status.unequal_blocks > 0, "seed {seed}: {status:?}");
        for (block, &content) in (0..).zip(&contents).filter(|(_, content)| **content != 0) {
            bench.assert_holds(block, content);
        }
        bench.audit();
    }
    // The comparison makes the difference.
    let (mut bench, contents) = weak(0, DedupVerify::Off, KeepRuns::Off);
    let mut wrong = (0..).zip(&contents).filter(|(_, content)| **content != 0);
    assert!(wrong.any(|(block, &content)| bench.read(block) != Ok(Answer::Data(vec![content; CELLS]))));
}

/// Clients write, and the pool is reopened, while blocks are being compared.
#[test]
fn what_is_written_while_a_pass_compares_is_what_is_read() {
    for seed in 0..12 {
        let (mut bench, mut random, mut contents) = start(100 + seed);
        bench.command(Command::SetPool(PoolChange { dedup_verify: Some(DedupVerify::Both), ..PoolChange::default() }));
        bench.set_runs(Policy::Full, Timing::Offline, random.pick(&[KeepRuns::Off, KeepRuns::On]));
        fill(&mut bench, &mut random, &mut contents);
        bench.settle();
        bench.start_pass();
        for round in 0..60 {
            let (first, content) = (random.below(BLOCKS), 1 + random.below(60) as u32);
            contents[first as usize] = content;
            bench.write(first, &[content]);
            for _ in 0..random.below(12) {
                bench.step_once();
            }
            if round % 20 == 19 {
                bench.reopen();
            }
        }
        bench.set_runs(Policy::Full, Timing::Offline, KeepRuns::Off);
        bench.run_pass(SECOND);
        bench.start_pass();
        bench.run_pass(SECOND);
        bench.assert_exact(&contents);
    }
}

/// Makes two volumes with the same 64 blocks, each in its own slots. One of the two slots of each block has rotted unnoticed.
fn rotten(seed: u64, keep_runs: KeepRuns) -> (Bench, VolumeId) {
    let (mut bench, mut random, _) = start(seed);
    let size = 64 * bench.geometry().block();
    bench.command(Command::CreateVolume { name: "other", size, policy: Some(Policy::Full) });
    let (first, other) = (bench.volume, VolumeId(bench.volume.0 + 1));
    let timing = Some(Some(Timing::Offline));
    for volume in [first, other] {
        let policy = Some(Some(Policy::Full));
        let change =
            VolumePropertyChange { policy, timing, keep_runs: Some(keep_runs), ..VolumePropertyChange::default() };
        bench.command(Command::SetVolume { volume, change });
        bench.volume = volume;
        (0..64).step_by(8).for_each(|at| bench.write(at, &(1000 + at as u32..1008 + at as u32).collect::<Vec<u32>>()));
    }
    bench.settle();
    bench.reopen();
    for content in 1000..1064 {
        let places = bench.places(content);
        assert_eq!(places.len(), 2, "block {content}");
        bench.rot(places[random.below(2) as usize]);
    }
    bench.volume = first;
    (bench, other)
}

/// A pass kept the rotten one of two copies, and gave the good one up. 64 of 128 blocks were lost in both volumes.
#[test]
fn a_pass_keeps_no_rotten_copy_in_place_of_a_good_one() {
    for (seed, keep_runs) in (0..6).zip([KeepRuns::Off, KeepRuns::On].into_iter().cycle()) {
        let (mut bench, other) = rotten(seed, keep_runs);
        bench.start_pass();
        bench.run_pass(SECOND);
        let first = bench.volume;
        bench.settle();
        bench.cool();
        for volume in [first, other] {
            bench.volume = volume;
            (0..64).for_each(|block| bench.assert_holds(block, 1000 + block as u32));
        }
        bench.settle();
        bench.audit();
    }
    // The proof makes the difference.
    let (mut bench, _) = rotten(0, KeepRuns::Off);
    bench.command(Command::SetPool(PoolChange { dedup_verify: Some(DedupVerify::Off), ..PoolChange::default() }));
    bench.start_pass();
    bench.run_pass(SECOND);
    bench.settle();
    bench.cool();
    assert!((0..64).filter(|&block| bench.read(block).is_err()).count() > 8);
}
