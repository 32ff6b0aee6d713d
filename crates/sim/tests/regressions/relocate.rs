//! Relocation: the run of a plan. Afterwards the planned blocks lie in order, for all their referrers. Everything reads as before, and no more is
//! stored.

use std::collections::BTreeSet;

use engine::relocation::assess::{Sharing, assess};
use engine::relocation::objects::Part;
use engine::relocation::plan::{Rules, plan};
use engine::relocation::profile::contents;
use engine::{
    Command, ControlError, DedupCommand, DefragSetting, Limits, Nanos, PassState, PoolChange, RelocateCommand,
    RelocateStatus,
};
use sim::content::CELLS;
use sim::random::Random;
use sim::runs::config::Config;
use sim::runs::run::Run;
use sim::runs::scenario::{Scenario, scenario};
use sim::transcript::Trace;
use sim::world::Answer;
use sim::world::disk::Cut;

use crate::bench::{Bench, SECOND};

/// Blocks of a file.
const FILE: u64 = 64;
const FILES: u64 = 4;
const BLOCKS: u64 = FILES * FILE;

fn relocate(command: RelocateCommand<'_>) -> Command<'_> {
    Command::Relocate { command }
}

impl Bench {
    pub(crate) fn relocation(&self) -> RelocateStatus {
        self.world.engine.status().relocate
    }

    /// Reads a file in requests of 8 blocks from a cold cache. Returns the number of device reads.
    fn read_file(&mut self, file: u64, expected: &[u32]) -> u64 {
        self.cool();
        let before = self.world.engine.read_counts().device_reads;
        for first in (file * FILE..(file + 1) * FILE).step_by(8) {
            let token = self.begin_read(first, 8);
            let Ok(Answer::Data(cells)) = self.wait(token) else { panic!("it can be read") };
            for (block, cells) in (first..).zip(cells.chunks(CELLS)) {
                assert_eq!(cells, [expected[block as usize]; CELLS], "block {block}");
            }
        }
        self.world.engine.read_counts().device_reads - before
    }

    /// Notes reads of the files, the last one more often than the others. Returns a plan for them: rows of slots.
    fn planned(&mut self, expected: &[u32]) -> Vec<(u64, u64)> {
        self.settle();
        self.world.engine.set_profiling(true);
        let volume = self.volume;
        let profiling = self.world.engine.profiling_mut().expect("it is on");
        for file in 0..FILES {
            let object = profiling.objects.named(&format!("{file}")).expect("there is space");
            let part = Part { block: file * FILE, blocks: FILE as u32, object, volume };
            profiling.objects.insert(part).expect("no two overlap");
        }
        for file in [0, 3, 3, 1, 3, 3, 2, 3] {
            self.read_file(file, expected);
        }
        let runs = self.world.engine.profiling_mut().expect("it is on").profile.runs().to_vec();
        self.world.engine.set_profiling(false);
        let plan = plan(&assess(&runs, Sharing::default()), &contents(&runs), Rules::OURS);
        plan.moves.iter().flat_map(|one| &one.extents).map(|extent| (extent.slot, extent.blocks)).collect()
    }

    pub(crate) fn begin_run(&mut self, plan: &[(u64, u64)]) {
        for (at, extents) in plan.chunks(7).enumerate() {
            self.command(relocate(RelocateCommand::Plan { begins: at == 0, extents }));
        }
        self.command(relocate(RelocateCommand::Start));
    }

    pub(crate) fn end_run(&mut self, step: Nanos) -> RelocateStatus {
        for _ in 0..10_000 {
            let status = self.relocation();
            if status.state != PassState::Running {
                return status;
            }
            self.pass(step);
        }
        panic!("the run does not come to its end: {:?}", self.relocation());
    }

    fn assert_all_read(&mut self, contents: &[u32]) {
        self.settle();
        self.cool();
        for (block, &content) in (0..).zip(contents) {
            if content != 0 {
                self.assert_holds(block, content);
            }
        }
        self.audit();
    }
}

/// Makes a pool with four files. The first is written in order. The others hold most of its blocks in another order, with some of their own.
fn shared(seed: u64, containers: u32) -> (Bench, Vec<u32>) {
    let mut random = Random::new(seed);
    let mut config = Config::small(1);
    (config.parameters.geometry.containers, config.parameters.geometry.slots_per_container) = (containers, 16);
    config.limits.read_ahead = 0;
    config.limits.delta_entries = random.pick(&[96, 200, 400]);
    config.limits.map_buffer = random.pick(&[0, 64]);
    let mut bench = Bench::new(config, BLOCKS);
    // Replicas are not data blocks.
    let change = PoolChange { defrag: Some(DefragSetting::Off), replicas: Some(Some(0)), ..PoolChange::default() };
    bench.command(Command::SetPool(change));
    let first: Vec<u32> = (0..FILE as u32).map(|block| 1 + block).collect();
    let mut contents = first.clone();
    for file in 1..FILES as u32 {
        let mut other = first.clone();
        for at in (1..other.len()).rev() {
            other.swap(at, random.below(at as u64 + 1) as usize);
        }
        other.iter_mut().step_by(9).for_each(|content| *content += 1000 * file);
        contents.extend(other);
    }
    for at in (0..BLOCKS).step_by(8) {
        bench.write(at, &contents[at as usize..at as usize + 8]);
    }
    bench.settle();
    (bench, contents)
}

#[test]
fn what_is_planned_lies_in_order_for_all_who_refer_to_it_and_no_more_is_stored() {
    let mut walks = BTreeSet::new();
    for seed in 0..6 {
        let (mut bench, contents) = shared(seed, 40);
        let stored = bench.world.engine.status().data_blocks_used;
        let plan = bench.planned(&contents);
        let planned: u64 = plan.iter().map(|&(_, blocks)| blocks).sum();
        assert!(planned >= FILE, "seed {seed}: {plan:?}");
        let before = bench.read_file(3, &contents);
        bench.begin_run(&plan);
        let status = bench.end_run(SECOND / 100);
        assert_eq!((status.state, status.moved_blocks, status.doubled_blocks), (PassState::Finished, planned, 0));
        assert_eq!((status.looked_at_blocks, status.done_ppm), (planned, 1_000_000), "{status:?}");
        // One walk for each table of copies, which holds a quarter of the delta.
        let tables = planned.div_ceil(u64::from(bench.config.limits.delta_entries / 4));
        assert!((1..=tables).contains(&status.map_walks), "{status:?}");
        walks.insert(status.map_walks);
        assert!(status.referrers > FILE, "{status:?}");
        bench.settle();
        assert_eq!(bench.world.engine.status().data_blocks_used, stored, "seed {seed}");
        // Each request finds its blocks in a row, except where a container ends.
        let after = bench.read_file(3, &contents);
        assert!(before > 3 * after && after <= 2 * FILE / 8, "seed {seed}: {before} -> {after} device reads");
        bench.assert_all_read(&contents);
        assert_eq!(bench.world.engine.status().data_blocks_used, stored);
    }
    assert!(walks.len() > 1, "some plans take several tables: {walks:?}");
}

/// A block that cannot be read stays, and all others are moved, even with hardly any pages of metadata in memory.
#[test]
fn a_rotten_block_stays_and_all_others_move() {
    for pages in [16, 64, 512] {
        let (mut bench, contents) = shared(5, 40);
        let plan = bench.planned(&contents);
        let planned: u64 = plan.iter().map(|&(_, blocks)| blocks).sum();
        bench.world.engine.set_limits(Limits { pages, ..bench.config.limits });
        let geometry = bench.geometry();
        bench.rot(geometry.slot_block(plan[plan.len() / 2].0));
        // A cached block is copied from memory, and repaired that way.
        bench.cool();
        bench.begin_run(&plan);
        let status = bench.end_run(SECOND / 100);
        assert_eq!((status.moved_blocks, status.kept.unreadable), (planned - 1, 1), "{pages} pages: {status:?}");
        bench.settle();
        bench.audit();
    }
}

/// After rests, restarts and crashes everything reads as before. Blocks that they leave twice are ordinary duplicates.
#[test]
fn a_run_that_is_interrupted_loses_nothing() {
    for seed in 0..8 {
        let (mut bench, contents) = shared(20 + seed, 40);
        let mut random = Random::new(seed);
        let stored = bench.world.engine.status().data_blocks_used;
        for round in 0..4 {
            let plan = bench.planned(&contents);
            bench.begin_run(&plan);
            for _ in 0..random.below(120) {
                bench.step_once();
            }
            match round % 3 {
                0 => {
                    let token = bench.begin_command(relocate(RelocateCommand::Pause));
                    if bench.command_result(token).is_ok() {
                        bench.pass(SECOND);
                        assert_eq!(bench.relocation().state, PassState::Paused);
                        bench.assert_all_read(&contents);
                        bench.command(relocate(RelocateCommand::Start));
                    }
                }
                1 => bench.reopen(),
                _ => {
                    let cut = random.pick(&[Cut::Lost, Cut::Kept, Cut::Torn]);
                    bench.crash(cut).expect("it opens");
                }
            }
            let status = bench.end_run(SECOND / 100);
            assert!(matches!(status.state, PassState::Finished | PassState::Never), "{status:?}");
            bench.assert_all_read(&contents);
        }
        bench.command(Command::Dedup { command: DedupCommand::Start });
        bench.run_pass(SECOND);
        bench.settle();
        assert_eq!(bench.world.engine.status().data_blocks_used, stored, "seed {seed}");
        bench.assert_all_read(&contents);
    }
}

/// A read returns the blocks that a client has written or trimmed during a run.
#[test]
fn writes_beside_a_run_win() {
    for seed in 0..12 {
        let (mut bench, mut contents) = shared(40 + seed, 40);
        let mut random = Random::new(seed);
        let plan = bench.planned(&contents);
        bench.begin_run(&plan);
        while bench.relocation().state == PassState::Running {
            let first = random.below(BLOCKS - 4);
            let values: Vec<u32> = (0..1 + random.below(4)).map(|_| 1 + random.below(90) as u32).collect();
            contents[first as usize..first as usize + values.len()].copy_from_slice(&values);
            bench.write(first, &values);
            for _ in 0..random.below(8) {
                bench.step_once();
            }
        }
        bench.assert_all_read(&contents);
        bench.start_pass();
        bench.run_pass(SECOND);
        bench.assert_exact(&contents);
    }
}

/// A run that ends leaves nothing twice. A pool without an empty container reports that. Commands that make no sense are refused.
#[test]
fn a_run_can_be_ended_and_says_what_it_left() {
    let (mut bench, contents) = shared(1, 40);
    let stored = bench.world.engine.status().data_blocks_used;
    for command in [RelocateCommand::Start, RelocateCommand::Pause, RelocateCommand::Stop] {
        let token = bench.begin_command(relocate(command));
        assert_eq!(bench.command_result(token), Err(ControlError::NoPlan));
    }
    let plan = bench.planned(&contents);
    bench.begin_run(&plan);
    let token = bench.begin_command(relocate(RelocateCommand::Plan { begins: true, extents: &plan }));
    assert_eq!(bench.command_result(token), Err(ControlError::PlanInUse));
    for _ in 0..12 {
        bench.step_once();
    }
    bench.command(relocate(RelocateCommand::Stop));
    let status = bench.end_run(SECOND / 100);
    let kept = status.kept;
    assert_eq!((status.state, status.doubled_blocks), (PassState::Stopped, 0));
    assert_eq!(status.moved_blocks + kept.stopped + kept.gone, status.planned_blocks, "{status:?}");
    bench.settle();
    assert_eq!(bench.world.engine.status().data_blocks_used, stored);
    bench.assert_all_read(&contents);

    // A plan of slots that hold nothing, and of some that are beyond the pool.
    bench.begin_run(&[(u64::MAX - 9, 3), (1 << 40, 2), (39 * 16, 4)]);
    let status = bench.end_run(SECOND / 100);
    assert_eq!((status.moved_blocks, status.kept.gone), (0, 9), "{status:?}");

    // The pool is so full that no container can be claimed.
    let (mut bench, contents) = shared(2, 9);
    let plan = bench.planned(&contents);
    bench.begin_run(&plan);
    let status = bench.end_run(SECOND / 100);
    assert!(status.kept.no_space > 0 && status.state == PassState::Finished, "{status:?}");
    bench.assert_all_read(&contents);
}

/// Blocks that a plan has placed stay there when regions are defragmented, even if another reader would have them elsewhere.
#[test]
fn defrag_takes_nothing_of_a_plan_apart() {
    let (mut bench, mut contents) = shared(3, 40);
    for at in (0..BLOCKS).step_by(8) {
        let values: Vec<u32> = (9000 + at as u32..9008 + at as u32).collect();
        contents[at as usize..at as usize + 8].copy_from_slice(&values);
        bench.write(at, &values);
    }
    bench.settle();
    bench.world.engine.set_profiling(true);
    bench.read_file(0, &contents);
    let runs = bench.world.engine.profiling_mut().expect("it is on").profile.runs().to_vec();
    let mut plan: Vec<(u64, u64)> = runs.iter().flat_map(|run| run.slot..run.end()).map(|slot| (slot, 1)).collect();
    // Every second block, then the others.
    plan.sort_unstable_by_key(|&(slot, _)| (slot % 2, slot));
    bench.begin_run(&plan);
    let status = bench.end_run(SECOND / 100);
    assert_eq!((status.moved_blocks, status.map_walks), (FILE, 0), "blocks of one referrer need no walk");
    bench.command(Command::SetPool(PoolChange { defrag: Some(DefragSetting::Auto), ..PoolChange::default() }));
    for _ in 0..4 {
        bench.read_file(0, &contents);
        bench.pass(5 * SECOND);
    }
    let home = bench.world.engine.status().defrag;
    assert!(home.moved_blocks == 0 && home.regions > 0, "{home:?}");
    bench.assert_all_read(&contents);
}

/// The scenario of which every I/O is a crash moves shared blocks, also blocks that their owners no longer refer to.
#[test]
fn the_scenario_moves_shared_blocks() {
    let Scenario { config, operations, .. } = scenario(26);
    let mut run = Run::start(config, Trace::new(false), false).unwrap();
    let (mut moved, mut referrers, mut ended) = (0, 0, 0);
    for operation in &operations {
        let before = run.world.engine.status().relocate;
        run.perform(std::slice::from_ref(operation)).unwrap();
        let after = run.world.engine.status().relocate;
        if before.state == PassState::Running && after.state == PassState::Finished {
            (moved, referrers, ended) = (moved + after.moved_blocks, referrers + after.referrers, ended + 1);
        }
    }
    assert!(ended == 2 && moved >= 20 && referrers >= 20, "{ended} runs, {moved} moved, {referrers} referrers");
}
