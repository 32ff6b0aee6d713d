//! The exact deduplication pass. Afterwards each content is stored once, however it was written, and concurrent writes of clients win.

use std::collections::BTreeSet;

use engine::{
    Command, DedupCommand, DedupStatus, DefragSetting, Error, Nanos, PassState, Policy, PoolChange, Timing, VolumeId,
    VolumePropertyChange,
};
use sim::random::Random;
use sim::runs::config::Config;
use sim::runs::soak::{OPERATIONS, run_seed};
use sim::transcript::Trace;
use sim::world::disk::Cut;

use crate::bench::{Bench, SECOND};

pub const BLOCKS: u64 = 160;

impl Bench {
    pub fn dedup(&self) -> DedupStatus {
        self.world.engine.status().dedup
    }

    pub fn share_by(&mut self, policy: Policy) {
        self.command(Command::SetVolume {
            volume: VolumeId(1),
            change: VolumePropertyChange { policy: Some(Some(policy)), ..VolumePropertyChange::default() },
        });
    }

    pub fn run_pass(&mut self, step: Nanos) {
        for _ in 0..10_000 {
            if matches!(self.dedup().state, PassState::Finished | PassState::Never) {
                return;
            }
            self.pass(step);
        }
        panic!("the pass does not come to its end: {:?}", self.dedup());
    }

    pub fn start_pass(&mut self) {
        self.command(Command::Dedup { command: DedupCommand::Start });
    }

    /// Checks that all blocks read as they should, and that each content is stored once.
    pub fn assert_exact(&mut self, contents: &[u32]) {
        self.settle();
        let distinct: BTreeSet<_> = contents.iter().filter(|&&content| content != 0).collect();
        assert_eq!(self.world.engine.status().data_blocks_used, distinct.len() as u64, "{:?}", self.dedup());
        self.cool();
        for (block, &content) in (0..).zip(contents) {
            if content != 0 {
                self.assert_holds(block, content);
            }
        }
        self.audit();
    }
}

pub fn config(random: &mut Random) -> Config {
    let mut config = Config::small(1);
    (config.parameters.geometry.containers, config.parameters.geometry.slots_per_container) = (40, 16);
    config.limits.delta_entries = random.pick(&[48, 96, 400]);
    config.limits.map_buffer = random.pick(&[0, 64]);
    config
}

/// Writes contents of an alphabet of 60, under one policy after the other, and notes them in `contents`.
fn fill(bench: &mut Bench, random: &mut Random, contents: &mut [u32], writes: u64) {
    fill_with(60, bench, random, contents, writes);
}

/// Writes contents of an alphabet of this size, under one policy after the other, and notes them in `contents`.
pub fn fill_with(alphabet: u64, bench: &mut Bench, random: &mut Random, contents: &mut [u32], writes: u64) {
    // Replicas are not data blocks.
    let change = PoolChange { defrag: Some(DefragSetting::Off), replicas: Some(Some(0)), ..PoolChange::default() };
    bench.command(Command::SetPool(change));
    for _ in 0..writes {
        if random.one_in(8) {
            bench.share_by(random.pick(&[Policy::Native, Policy::Full, Policy::Native]));
        }
        let (first, count) = (random.below(BLOCKS - 8), 1 + random.below(8));
        let values: Vec<u32> = (0..count).map(|_| 1 + random.below(alphabet) as u32).collect();
        contents[first as usize..(first + count) as usize].copy_from_slice(&values);
        bench.write(first, &values);
        if random.one_in(10) {
            bench.settle();
        }
    }
}

#[test]
fn after_a_pass_each_content_is_stored_once() {
    for seed in 0..12 {
        let mut random = Random::new(seed);
        let mut bench = Bench::new(config(&mut random), BLOCKS);
        let mut contents = vec![0; BLOCKS as usize];
        for round in 0..3 {
            fill(&mut bench, &mut random, &mut contents, 60);
            bench.share_by(Policy::Full);
            bench.start_pass();
            bench.run_pass(SECOND);
            assert!(bench.dedup().shared_blocks > 0, "seed {seed}, round {round}");
            bench.assert_exact(&contents);
        }
    }
}

/// After rests, restarts and crashes the pass continues at its place, and its result is as exact.
#[test]
fn a_pass_that_is_interrupted_goes_on() {
    for seed in 0..8 {
        let mut random = Random::new(seed);
        let mut bench = Bench::new(config(&mut random), BLOCKS);
        let mut contents = vec![0; BLOCKS as usize];
        fill(&mut bench, &mut random, &mut contents, 80);
        bench.share_by(Policy::Full);
        bench.settle();
        bench.start_pass();
        let mut done = 0;
        for round in 0..6 {
            for _ in 0..random.below(40) {
                bench.step_once();
            }
            if bench.dedup().state == PassState::Running {
                match round % 3 {
                    0 => {
                        bench.command(Command::Dedup { command: DedupCommand::Pause });
                        let rests = bench.dedup();
                        bench.pass(SECOND);
                        assert_eq!((bench.dedup().state, bench.dedup().done_ppm), (PassState::Paused, rests.done_ppm));
                        bench.start_pass();
                    }
                    1 => bench.reopen(),
                    _ => {
                        let cut = random.pick(&[Cut::Lost, Cut::Kept]);
                        bench.crash(cut).expect("it opens");
                    }
                }
            }
            assert!(bench.dedup().state != PassState::Never);
            done = done.max(bench.dedup().done_ppm);
        }
        bench.run_pass(SECOND);
        bench.assert_exact(&contents);
    }
}

/// Runs the sequences by which the simulator catches engines that disregard a hazard of the pass. A sound engine passes.
#[test]
fn a_pass_waits_for_syncs_and_leaves_second_copies_alone() {
    sim::runs::hazards::changes_between_syncs().unwrap();
    sim::runs::hazards::passes_short_of_metadata().unwrap();
    sim::runs::hazards::copies_beside_a_pass().unwrap();
    sim::runs::hazards::spill_space_that_is_reclaimed().unwrap();
    sim::runs::hazards::slots_that_get_other_contents().unwrap();
}

/// A read returns the blocks that a client writes during a pass. The next pass finds the new duplicates.
#[test]
fn writes_beside_a_pass_win() {
    for seed in 0..12 {
        let mut random = Random::new(100 + seed);
        let mut bench = Bench::new(config(&mut random), BLOCKS);
        let mut contents = vec![0; BLOCKS as usize];
        fill(&mut bench, &mut random, &mut contents, 80);
        bench.share_by(Policy::Full);
        bench.settle();
        bench.start_pass();
        while bench.dedup().state == PassState::Running {
            let (first, content) = (random.below(BLOCKS), 1 + random.below(60) as u32);
            contents[first as usize] = content;
            bench.write(first, &[content]);
            for _ in 0..random.below(6) {
                bench.step_once();
            }
        }
        bench.start_pass();
        bench.run_pass(SECOND);
        bench.assert_exact(&contents);
    }
}

#[test]
fn commands_that_make_no_sense_are_refused_and_a_pass_can_be_ended() {
    let mut bench = Bench::new(Config::small(1), BLOCKS);
    let token = bench.begin_command(Command::Dedup { command: DedupCommand::Pause });
    assert_eq!(bench.command_result(token), Err(engine::ControlError::NoDedup));
    bench.start_pass();
    if bench.dedup().state == PassState::Running {
        bench.command(Command::Dedup { command: DedupCommand::Stop });
        assert_eq!(bench.dedup().state, PassState::Stopped);
    }
    bench.audit();
}

/// Makes a pool of 640 blocks whose volume is offline under `full`.
fn offline(blocks: u64) -> Bench {
    let mut bench = Bench::new(config(&mut Random::new(1)), blocks);
    let (policy, timing) = (Some(Some(Policy::Full)), Some(Some(Timing::Offline)));
    let change = VolumePropertyChange { policy, timing, ..VolumePropertyChange::default() };
    bench.command(Command::SetVolume { volume: VolumeId(1), change });
    bench
}

/// The same 16 MiB, written offline again and again, filled a pool of 128 MiB. Writes failed for ten minutes until a pass began automatically. It
/// took a third of a second.
#[test]
fn writes_that_find_no_slot_wait_for_a_pass_that_has_work() {
    let mut bench = offline(3200);
    let content = |block: u64| 1 + (block % 64) as u32;
    for first in (0..3200).step_by(8) {
        bench.write(first, &(first..first + 8).map(content).collect::<Vec<u32>>());
    }
    let status = bench.dedup();
    assert!(status.passes > 0 && status.scans < 60, "{status:?}");
    bench.run_pass(SECOND);
    (0..3200).step_by(7).for_each(|block| bench.assert_holds(block, content(block)));
    bench.settle();
    bench.audit();
}

/// The write fails after a pass that shares nothing, and the writes after it fail at once.
#[test]
fn writes_that_find_no_slot_wait_for_no_second_pass_after_one_in_vain() {
    let mut bench = offline(3200);
    let mut refused = Vec::new();
    for block in 0..800 {
        let token = bench.begin_write(block, &[1 + block as u32], false);
        match bench.wait(token) {
            Ok(_) => {}
            Err(error) => refused.push((block, error, bench.dedup().passes)),
        }
    }
    assert!(refused.len() > 150 && refused.iter().all(|&(_, error, passes)| (error, passes) == (Error::NoSpace, 1)));
    // The new blocks are duplicates. There is a free slot again once the next pass has found them, a minute later.
    bench.trim_blocks(0, 64);
    bench.settle();
    (0..64).for_each(|block| bench.write(block, &[7]));
    bench.pass(61 * SECOND);
    bench.write(900, &[900]);
    bench.assert_holds(900, 900);
    bench.run_pass(SECOND);
    bench.settle();
    bench.audit();
}

/// A run of a plan precedes a pass, and neither continued while a write waited for the pass. The bug needs the state that all of this seed's run
/// leaves behind.
#[test]
fn a_write_without_a_slot_waits_for_no_pass_behind_a_run_of_a_plan() {
    run_seed(1_795_898_832_045, OPERATIONS, Trace::new(false)).unwrap();
}

/// Writes that waited for slots held all buffers but those for incoming data, with the blocks that theirs had been compared with. The pass that was to free
/// slots needs two, and looked for them again and again. The bug needs the state that all of this seed's run leaves behind.
#[test]
fn a_pass_that_writes_wait_for_finds_buffers() {
    run_seed(1_796_071_564_108, OPERATIONS, Trace::new(false)).unwrap();
}
