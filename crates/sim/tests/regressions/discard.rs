//! Discards of empty containers: RFC 0021.

use engine::{Command, DiscardSetting, DiscardStatus, Failure, IoOp, PoolChange};
use sim::runs::config::Config;
use sim::world::disk::Cut;
use sim::world::faults::{Class, Rule};

use crate::bench::{Bench, SECOND, tight};

const BLOCKS: u64 = 160;
/// Bytes of a container.
const CONTAINER: u64 = 4 * 512;

fn set(bench: &mut Bench, setting: DiscardSetting) {
    bench.command(Command::SetPool(PoolChange { discard: Some(setting), ..PoolChange::default() }));
}

fn fill(bench: &mut Bench) {
    for at in 0..BLOCKS / 4 {
        bench.write(4 * at, &[1, 2, 3, 4].map(|number| number + 4 * at as u32));
    }
}

/// Creates a pool of 64 containers of four slots without discards, writes 40 of them full, and trims all.
fn trimmed() -> Bench {
    trimmed_with(tight(64))
}

fn trimmed_with(config: Config) -> Bench {
    let mut bench = Bench::new(config, BLOCKS);
    set(&mut bench, DiscardSetting::Off);
    fill(&mut bench);
    bench.settle();
    bench.trim_blocks(0, BLOCKS);
    bench.settle();
    assert_eq!(rested(&mut bench).discards, 0);
    bench
}

/// Lets a minute pass, and returns the status of discards.
fn rested(bench: &mut Bench) -> DiscardStatus {
    bench.pass(60 * SECOND);
    let status = bench.world.engine.status().discard;
    assert!(!status.is_due, "{status:?}");
    status
}

#[test]
fn empty_containers_are_discarded_once_and_reserved_again_before_they_are_written() {
    let mut bench = trimmed();
    set(&mut bench, DiscardSetting::On);
    let first = rested(&mut bench);
    let stay = bench.world.engine.status().gc.empty_containers * CONTAINER;
    assert!(first.discarded_bytes >= 24 * CONTAINER && first.discarded_bytes <= stay, "{first:?} of {stay}");
    assert_eq!(first.unreserved_bytes, first.discarded_bytes);
    assert_eq!(rested(&mut bench), first, "nothing is discarded twice");
    let reserved = bench.world.submitted[3];
    fill(&mut bench);
    bench.settle();
    let filled = bench.world.engine.status().discard;
    assert!(filled.unreserved_bytes <= first.unreserved_bytes - 24 * CONTAINER, "{filled:?}");
    assert!(bench.world.submitted[3] > reserved);
    for at in 0..BLOCKS {
        bench.assert_holds(at, 1 + at as u32);
    }
    bench.audit();
}

#[test]
fn an_opening_discards_each_empty_container_once_more() {
    let mut bench = trimmed();
    set(&mut bench, DiscardSetting::On);
    let before = rested(&mut bench);
    for _ in 0..3 {
        bench.crash(Cut::Lost).unwrap();
        let after = rested(&mut bench);
        assert!(after.discarded_bytes <= before.discarded_bytes + 8 * CONTAINER, "{after:?}, {before:?} before");
        assert_eq!(rested(&mut bench), after);
    }
}

#[test]
fn ranges_shorter_than_the_unit_of_the_store_stay() {
    let mut bench = trimmed();
    set(&mut bench, DiscardSetting::Units(1 << 20));
    assert_eq!(rested(&mut bench).discards, 0, "the pool has less than that");
    set(&mut bench, DiscardSetting::On);
    assert!(rested(&mut bench).discards > 0);
}

/// A store without space for a discard, as a thin pool may be, was never asked again.
#[test]
fn a_discard_without_space_is_tried_again() {
    let mut bench = trimmed();
    set(&mut bench, DiscardSetting::On);
    let first = rested(&mut bench).discards;
    fill(&mut bench);
    bench.trim_blocks(0, BLOCKS);
    bench.settle();
    // The job rests.
    assert_eq!(bench.world.submitted[4], first);
    bench.world.faults.begin(&[Rule::nth(Class::FullHost, 0, true)]);
    bench.pass(150 * SECOND);
    let status = bench.world.engine.status().discard;
    assert_eq!((status.has_failed, status.discards, bench.world.submitted[4]), (false, first, first + 3), "{status:?}");
    bench.world.faults.end();
    bench.pass(60 * SECOND);
    assert!(rested(&mut bench).discards > first);
    fill(&mut bench);
    bench.settle();
    bench.audit();
}

/// Checks that a refusal ends discards, and nothing else: the containers may have been discarded all the same.
#[test]
fn a_failed_discard_loses_nothing_and_is_the_last_one() {
    let mut bench = trimmed();
    bench.world.fail(|io| io.op == IoOp::Discard);
    set(&mut bench, DiscardSetting::On);
    let status = rested(&mut bench);
    assert!(status.has_failed && status.discards == 0 && status.unreserved_bytes > 0, "{status:?}");
    assert_eq!(bench.world.submitted[4], 1);
    bench.world.fail(|_| false);
    fill(&mut bench);
    bench.settle();
    for at in 0..BLOCKS {
        bench.assert_holds(at, 1 + at as u32);
    }
    bench.audit();
}

#[test]
fn writes_that_need_a_container_in_a_discard_wait_for_its_end() {
    let mut bench = trimmed();
    bench.world.hold_back(|io| io.op == IoOp::Discard);
    set(&mut bench, DiscardSetting::On);
    bench.until_held(1);
    let writes: Vec<u64> = (0..BLOCKS / 4).map(|at| bench.begin_write(4 * at, &[7 + at as u32; 4], false)).collect();
    bench.pass(SECOND);
    bench.let_all_go();
    for token in writes {
        bench.wait(token).unwrap();
    }
    bench.settle();
    for at in 0..BLOCKS {
        bench.assert_holds(at, 7 + (at / 4) as u32);
    }
    bench.audit();
}

/// Cuts the power at every I/O of a pool that trims, discards, reserves and writes again.
#[test]
fn a_crash_at_every_io_of_discards_loses_nothing() {
    for cut in Cut::ALL {
        let (mut steps, mut in_flight) = (0, 0);
        loop {
            let mut bench = trimmed();
            bench.write_durably(0, 5);
            bench.begin_command(Command::SetPool(PoolChange {
                discard: Some(DiscardSetting::On),
                ..PoolChange::default()
            }));
            let writes: Vec<u64> =
                (0..BLOCKS / 8).map(|at| bench.begin_write(4 * at + 4, &[9 + at as u32; 4], false)).collect();
            let goes_on = (0..steps).all(|_| bench.step_once());
            let began = bench.world.submitted[4];
            in_flight += u64::from(began > bench.world.engine.status().discard.discards);
            let is_written: Vec<bool> = writes.iter().map(|&token| bench.answer(token).is_some()).collect();
            let is_flushed = bench.world.engine.status().unmerged_entries == 0 && is_written.iter().all(|&is| is);
            bench.crash(cut).unwrap();
            bench.assert_holds(0, 5);
            if is_flushed {
                (0..BLOCKS / 8).for_each(|at| bench.assert_holds(4 * at + 7, 9 + at as u32));
            }
            // A sound pool reads, writes and passes an audit.
            fill(&mut bench);
            bench.settle();
            (0..BLOCKS).for_each(|at| bench.assert_holds(at, 1 + at as u32));
            bench.audit();
            if !goes_on || steps > 300 {
                break;
            }
            steps += 3;
        }
        assert!(in_flight > 0, "{cut:?}: no crash met a discard");
    }
}

#[test]
fn a_superblock_comes_before_the_discards_behind_it() {
    sim::runs::hazards::discards_before_the_superblock().unwrap();
}

/// A server that was idle would have discarded the data of the one that took its pool over: an idle server made no checkpoint, and so never looked at the
/// owner's record.
#[test]
fn a_server_whose_pool_was_taken_over_discards_nothing() {
    let (mut before, mut behind) = (0, 0);
    for steps in 0..40 {
        let mut bench = trimmed_with(Config { owned: true, ..tight(64) });
        let discard = Some(DiscardSetting::On);
        bench.begin_command(Command::SetPool(PoolChange { discard, ..PoolChange::default() }));
        for _ in 0..steps {
            bench.step_once();
        }
        bench.world.take_over().unwrap();
        // The world watches over each discard.
        bench.pass(60 * SECOND);
        match bench.world.submitted[4] {
            0 => before += 1,
            _ => behind += 1,
        }
        if bench.world.submitted[4] == 0 {
            assert_eq!(bench.world.engine.status().failure, Some(Failure::TakenOver));
        }
    }
    assert!(before > 0 && behind > 0, "{before} {behind}");
}

/// After an opening it is not known which empty containers have their space. On a full host, the first one that had none kept writes from all that had.
#[test]
fn on_a_full_host_an_opened_pool_writes_where_it_has_space() {
    let mut bench = trimmed();
    bench.crash(Cut::Kept).unwrap();
    let geometry = bench.geometry();
    let lacks_space = |container: u64| container < 8 || container.is_multiple_of(3);
    bench.world.refuse_space(move |io| {
        let first = io.offset / geometry.block();
        let blocks = first..first + io.length / geometry.block();
        let covers = |container: u32| blocks.contains(&geometry.container_block(container));
        io.op == IoOp::Reserve && (0..64).any(|container| lacks_space(container.into()) && covers(container))
    });
    for at in 0..25 {
        bench.write(4 * at, &[1, 2, 3, 4].map(|number| number + 4 * at as u32));
    }
    bench.settle();
    (0..100).for_each(|at| bench.assert_holds(at, 1 + at as u32));
    bench.audit();
}
