//! Garbage collection. It empties the emptiest containers while the pool is idle, so that later writes in order find whole ones, whatever interrupts
//! it.

use engine::{
    Command, ControlError, DefragSetting, DefragStatus, DeviceTraits, GcStatus, Limits, PoolChange, ReadCounts,
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

/// Slots of a container, and blocks of a volume that fills the pool but for its spare containers.
const CONTAINER: u64 = 32;
const BLOCKS: u64 = 20 * CONTAINER;

impl Bench {
    fn collect(&self) -> GcStatus {
        self.world.engine.status().gc
    }

    fn moved(&self) -> (GcStatus, DefragStatus) {
        let status = self.world.engine.status();
        (status.gc, status.defrag)
    }

    fn set_moves(&mut self, defrag: DefragSetting) {
        let change = PoolChange { defrag: Some(defrag), replicas: Some(Some(0)), ..PoolChange::default() };
        self.command(Command::SetPool(change));
    }

    /// Reads all blocks from `start` on from a cold cache, in requests of eight blocks. Returns the number of device reads.
    fn verify_from(&mut self, start: u64, expected: &[u32]) -> u64 {
        self.cool();
        let ReadCounts { device_reads: before, .. } = self.world.engine.read_counts();
        for first in (0..expected.len() as u64).step_by(8) {
            let token = self.begin_read(start + first, 8);
            let Ok(Answer::Data(cells)) = self.wait(token) else { panic!("it can be read") };
            for (block, cells) in (first..).zip(cells.chunks(CELLS)) {
                assert_eq!(cells, [expected[block as usize]; CELLS], "block {block}");
            }
        }
        self.world.engine.read_counts().device_reads - before
    }

    /// Overwrites blocks from `first` on, in requests of eight.
    fn write_in_order(&mut self, first: u64, contents: &mut [u32], number: u32) {
        for at in (0..contents.len()).step_by(8) {
            (0..8).for_each(|n| contents[at + n] = number + (at + n) as u32);
            self.write(first + at as u64, &contents[at..at + 8]);
        }
    }

    /// Overwrites `count` random blocks, one by one.
    fn write_anywhere(&mut self, contents: &mut [u32], count: u64, number: u32) {
        let mut random = Random::new(number.into());
        for n in 0..count {
            let block = random.below(contents.len() as u64);
            contents[block as usize] = number + n as u32;
            self.write(block, &[number + n as u32]);
        }
    }
}

/// Makes a full pool with `spare` containers beyond its volume. The volume was written in order and then overwritten at random until no container was
/// empty any more. Nothing is read ahead.
fn aged(defrag: DefragSetting, spare: u32, blocks: u64) -> (Bench, Vec<u32>) {
    aged_with(|_| {}, defrag, spare, blocks)
}

/// Makes the pool of `aged` with other limits.
fn aged_with(set: impl FnOnce(&mut Limits), defrag: DefragSetting, spare: u32, blocks: u64) -> (Bench, Vec<u32>) {
    let mut config = Config::small(1);
    set(&mut config.limits);
    let geometry = &mut config.parameters.geometry;
    geometry.slots_per_container = CONTAINER as u32;
    (geometry.containers, geometry.spare_containers) = ((blocks / CONTAINER) as u32 + spare, spare);
    config.limits.read_ahead = 0;
    let mut bench = Bench::new(config, blocks);
    bench.set_moves(defrag);
    let mut contents = vec![0; blocks as usize];
    bench.write_in_order(0, &mut contents, 1_000);
    bench.write_anywhere(&mut contents, blocks, 10_000);
    bench.settle();
    (bench, contents)
}

#[test]
fn an_aged_pool_gets_its_empty_containers_back_and_writes_in_order_fill_them() {
    let mut reads = Vec::new();
    for defrag in [DefragSetting::Off, DefragSetting::Auto] {
        let (mut bench, mut contents) = aged(defrag, 6, BLOCKS);
        let before = bench.collect();
        assert_eq!(before.empty_containers, 0, "{before:?}");
        bench.pass(120 * SECOND);
        let after = bench.collect();
        assert!(!after.is_due, "{after:?}");
        if defrag == DefragSetting::Auto {
            assert!(after.empty_containers >= 3 && after.emptied_containers >= 3, "{after:?}");
        } else {
            assert_eq!((after.empty_containers, after.moved_blocks), (0, 0));
        }
        bench.set_moves(DefragSetting::Off);
        // The open containers' remaining slots are used up first.
        let container = CONTAINER as usize;
        bench.write_in_order(0, &mut contents[..container], 50_000);
        bench.write_in_order(CONTAINER, &mut contents[container..3 * container], 60_000);
        bench.settle();
        reads.push(bench.verify_from(CONTAINER, &contents[container..3 * container]));
        bench.verify_from(0, &contents);
        bench.audit();
    }
    // One for each request, and one more where a container ends within one.
    assert!(reads[1] <= 2 * CONTAINER / 8 + 2 && reads[0] > 2 * reads[1], "{reads:?}");
}

#[test]
fn nothing_is_moved_where_enough_containers_are_empty() {
    let (mut bench, mut contents) = aged(DefragSetting::Auto, 24, BLOCKS / 2);
    bench.pass(60 * SECOND);
    bench.write_anywhere(&mut contents, CONTAINER, 30_000);
    bench.pass(60 * SECOND);
    let collect = bench.collect();
    assert_eq!((collect.moved_blocks, collect.emptied_containers), (0, 0), "{collect:?}");
    assert!(collect.empty_containers > 2, "{collect:?}");
}

/// In a full pool, regions that have lost their rows are defragmented with the emptied containers. Without readers and writers both jobs become idle,
/// with most of their allowance left.
#[test]
fn both_jobs_come_to_rest_when_the_load_has_ended() {
    let (mut bench, contents) = aged(DefragSetting::Auto, 4, BLOCKS);
    let scattered = bench.verify_from(0, &contents);
    for _ in 0..8 {
        bench.pass(60 * SECOND);
    }
    let (collect, home) = bench.moved();
    assert!(collect.moved_blocks > 0 && home.moved_blocks > 0, "{collect:?} {home:?}");
    assert!(!collect.is_due && home.noted_regions + home.waiting_regions == 0, "{collect:?} {home:?}");
    assert!(home.allowance_blocks > 0, "{home:?}");
    bench.pass(3600 * SECOND);
    assert_eq!(bench.moved(), (collect, home), "they rest");
    let in_order = bench.verify_from(0, &contents);
    assert!(in_order < scattered, "{in_order} {scattered}");
    bench.audit();
}

/// Returns the time until the first blocks have been moved in a small aged pool.
fn first_move() -> u64 {
    const STEP: u64 = SECOND / 10_000;
    let (mut bench, _) = aged(DefragSetting::Auto, 3, 6 * CONTAINER);
    let mut steps = 0;
    while bench.collect().moved_blocks == 0 {
        bench.pass(STEP);
        steps += 1;
        assert!(steps < 100_000, "{:?}", bench.collect());
    }
    steps * STEP
}

/// A write to a block that is being moved wins, at whatever step of the move it comes.
#[test]
fn a_write_in_the_middle_of_a_move_is_what_is_read() {
    let first = first_move();
    let mut moved = Vec::new();
    for step in 0..30 {
        let (mut bench, mut contents) = aged(DefragSetting::Auto, 3, 6 * CONTAINER);
        bench.pass(first - SECOND / 500 + step * SECOND / 5_000);
        moved.push(bench.collect().moved_blocks);
        // Some blocks of every container.
        for block in (step % 4..contents.len() as u64).step_by(4) {
            contents[block as usize] = 70_000 + block as u32;
            bench.write(block, &[70_000 + block as u32]);
        }
        bench.pass(30 * SECOND);
        bench.settle();
        bench.verify_from(0, &contents);
        bench.audit();
    }
    assert!(moved[0] == 0 && moved[29] > 0, "some of them before, some after: {moved:?}");
}

/// A duplicate of a block that is being moved, written elsewhere, shares the old slot or the new one.
#[test]
fn what_is_shared_in_the_middle_of_a_move_stays_whole() {
    let first = first_move();
    for step in 0..15 {
        let (mut bench, mut contents) = aged(DefragSetting::Auto, 3, 6 * CONTAINER);
        bench.pass(first - SECOND / 500 + step * SECOND / 2_500);
        for block in (0..contents.len() / 2).step_by(3) {
            let (from, to) = (block, contents.len() - 1 - block);
            contents[to] = contents[from];
            bench.write(to as u64, &[contents[from]]);
        }
        bench.pass(30 * SECOND);
        bench.settle();
        bench.verify_from(0, &contents);
        bench.audit();
    }
}

/// A power cut at any time of a move leaves each block as it was.
#[test]
fn a_crash_in_the_middle_of_emptying_loses_nothing() {
    let first = first_move();
    for step in 0..15 {
        for cut in [Cut::Lost, Cut::Kept] {
            let (mut bench, contents) = aged(DefragSetting::Auto, 3, 6 * CONTAINER);
            bench.pass(first - SECOND / 500 + step * SECOND / 2_500);
            bench.crash(cut).unwrap();
            bench.verify_from(0, &contents);
            bench.audit();
        }
    }
}

/// The scenario of which every I/O is a crash empties containers.
#[test]
fn the_scenario_empties_containers() {
    let Scenario { config, operations, .. } = scenario(24);
    let mut run = Run::start(config, Trace::new(false), false).unwrap();
    run.perform(&operations).unwrap();
    let status = run.world.engine.status();
    assert!(status.gc.moved_blocks >= 8 && status.gc.emptied_containers >= 2, "{:?}", status.gc);
    assert!(status.defrag.regions + status.defrag.given_up_regions > 0, "regions are looked at: {:?}", status.defrag);
}

/// The remaining slots of open containers are scattered, and were used up first. On an HDD that took longer than all that followed.
#[test]
fn where_the_disk_is_rotational_sequential_writes_get_empty_containers_at_once_and_others_leave_them_some() {
    let heads = DeviceTraits { sequential_blocks: 8, ..DeviceTraits::HDD };
    let (mut bench, mut contents) = aged_with(|limits| limits.device = heads, DefragSetting::Auto, 6, BLOCKS);
    bench.pass(120 * SECOND);
    let after = bench.collect();
    assert!(!after.is_due && after.empty_containers >= 4, "{after:?}");
    bench.set_moves(DefragSetting::Off);
    // More blocks than there are holes beside the reserved containers.
    bench.write_anywhere(&mut contents, 6 * CONTAINER, 50_000);
    let container = CONTAINER as usize;
    bench.write_in_order(0, &mut contents[..container], 60_000);
    bench.settle();
    let reads = bench.verify_from(0, &contents[..container]);
    assert!(reads <= CONTAINER / 8 + 2, "{reads}");
    bench.verify_from(0, &contents);
    bench.audit();
}

/// Rotten blocks cannot be moved. Where so few slots are free that a batch leaves too few for the next, the job rests. The slots of that batch were
/// then given back, which ended the rest. The job tried the same blocks again and again, in some pools without end.
#[test]
fn places_that_were_not_needed_do_not_end_a_rest() {
    let (mut bench, _) = aged_with(|limits| limits.buffers = 64, DefragSetting::Auto, 3, BLOCKS);
    let (geometry, mut random) = (bench.geometry(), Random::new(1));
    for slot in 0..geometry.slots() {
        bench.world.disk.rot(geometry.slot_block(slot), &mut random);
    }
    bench.trim_blocks(0, 52);
    let [reads, ..] = bench.world.submitted;
    bench.pass(60 * SECOND);
    let collect = bench.collect();
    assert!(!collect.is_due && collect.moved_blocks == 0, "{collect:?}");
    // The job reads a batch, and another one after the trim has freed many slots. Else there would be thousands of reads.
    let tried = bench.world.submitted[0] - reads;
    assert!(tried < 256, "{tried} reads in vain");
}

/// A pool that was closed early kept the timers of its jobs. One that had work left at that moment called for its timer again and again (seed 1796068368637).
#[test]
fn a_pool_that_was_closed_early_needs_no_timer() {
    let (mut bench, _) = aged(DefragSetting::Auto, 6, BLOCKS);
    while bench.collect().moved_blocks == 0 {
        bench.step_once();
    }
    let close = bench.begin_command(Command::CloseEarly);
    assert_eq!(bench.command_result(close), Err(ControlError::NoCheckpoint));
    assert_eq!(bench.world.engine.next_timer(), None);
}
