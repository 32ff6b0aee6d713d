//! Ownership of a pool against a second opening. A server of the pool's file, and one of a loop device over that file, could both open it, because
//! each lock is on the object that was opened. Both wrote, and blocks were lost. Since then a record on the disk names the owner, and the engine checks
//! it.

use crate::bench::{Bench, SECOND, superblocks};
use engine::{Command, ControlError, Error, Failure, IoOp};
use sim::content::{Content, ZERO};
use sim::random::Random;
use sim::runs::config::Config;
use sim::world::Answer;
use sim::world::disk::Cut;

/// Makes a pool with an owner. Blocks 0 and 1 are durable.
fn owned() -> Bench {
    let mut bench = Bench::new(Config { owned: true, ..Config::small(1) }, 64);
    bench.write(0, &[5, 6]);
    bench.settle();
    bench
}

fn hash_after(bench: &mut Bench) -> u64 {
    bench.pass(60 * SECOND);
    bench.world.disk.hash()
}

#[test]
fn who_was_taken_over_notices_at_the_next_checkpoint_and_writes_nothing_more() {
    let mut bench = owned();
    bench.write_durably(2, 7);
    bench.world.take_over().unwrap();
    bench.write_durably(3, 8);
    let token = bench.begin_command(Command::Settle);
    assert_eq!(bench.command_result(token), Err(ControlError::ReadOnly));
    assert_eq!(bench.world.engine.status().failure, Some(Failure::TakenOver));
    // Not even the failure is written: the superblocks belong to the new owner. (The world watches over every write.)
    let before = bench.world.disk.hash();
    for (token, error) in [
        (bench.begin_flush(), Error::Io),
        (bench.begin_read(0, 1), Error::Io),
        (bench.begin_write(4, &[9], true), Error::ReadOnly),
    ] {
        assert_eq!(bench.wait(token), Err(error));
    }
    assert_eq!(hash_after(&mut bench), before);
    let token = bench.begin_command(Command::Close);
    assert_eq!(bench.command_result(token), Err(ControlError::ReadOnly), "it is not closed cleanly, and it ends");
    // The new owner finds all flushed data, and a pool that has not failed.
    let recovered = bench.crash(Cut::Lost).unwrap();
    assert_eq!(recovered.failed, None);
    for (block, content) in [(0, 5), (1, 6), (2, 7), (3, 8)] {
        bench.assert_holds(block, content);
    }
}

#[test]
fn a_failure_is_not_written_to_a_pool_that_another_has_taken_over() {
    let mut bench = owned();
    bench.world.take_over().unwrap();
    bench.world.fail(|io| io.op == IoOp::Sync);
    // More blocks than a record inlines: they are durable with a sync.
    bench.write(20, &[20, 21, 22, 23, 24, 25, 26, 27]);
    let token = bench.begin_write(3, &[8], true);
    assert_eq!(bench.wait(token), Err(Error::Io));
    let before = hash_after(&mut bench);
    bench.world.fail(|_| false);
    assert_eq!(bench.world.engine.status().failure, Some(Failure::TakenOver));
    assert_eq!(hash_after(&mut bench), before);
    assert_eq!(bench.crash(Cut::Kept).unwrap().failed, None);
}

/// A host whose access to the store was revoked was told to repair the pool, which another host may have by then.
#[test]
fn a_host_that_was_fenced_is_not_told_to_repair() {
    for reads_fail in [false, true] {
        let mut bench = owned();
        bench.world.fail(move |io| io.op.is_write() || io.op == IoOp::Sync || reads_fail && io.op == IoOp::ReadPages);
        bench.write(3, &[8]);
        let flush = bench.begin_flush();
        assert_eq!(bench.wait(flush), Err(Error::Io));
        bench.pass(SECOND);
        let failure = bench.world.engine.status().failure;
        match reads_fail {
            true => assert_eq!(failure, Some(Failure::StoreGone)),
            false => assert!(matches!(failure, Some(Failure::Write | Failure::Sync)), "{failure:?}"),
        }
        bench.world.fail(|_| false);
        // Nothing of the failure is on the store: it is recovered as after a crash.
        let recovered = bench.crash(Cut::Lost).unwrap();
        assert_eq!(recovered.failed, None);
        (0..2).for_each(|block| bench.assert_holds(block, 5 + block as u32));
    }
}

/// A host that was fenced while no client wrote was told to repair the pool: the look at the owner before its next superblock was its first I/O.
#[test]
fn a_host_that_was_fenced_at_rest_is_not_told_to_repair() {
    let mut bench = owned();
    bench.write(3, &[8]);
    let flush = bench.begin_flush();
    assert_eq!(bench.wait(flush), Ok(Answer::Done));
    bench.world.fail(|io| io.op.is_write() || matches!(io.op, IoOp::Sync | IoOp::ReadPages));
    bench.pass(60 * SECOND);
    if bench.world.engine.status().failure.is_none() {
        let token = bench.begin_command(Command::Close);
        assert!(bench.command_result(token).is_err());
    }
    assert_eq!(bench.world.engine.status().failure, Some(Failure::StoreGone));
    bench.world.fail(|_| false);
    assert_eq!(bench.crash(Cut::Lost).unwrap().failed, None);
    bench.assert_holds(3, 8);
}

/// The first ownership check was in flight, and another server took the pool over before its answer was read. The next checkpoint notices.
#[test]
fn a_look_that_began_before_serves_one_superblock_and_no_other() {
    let mut bench = owned();
    let geometry = bench.geometry();
    let change = Command::SetPool(engine::PoolChange { memory: Some(0), ..Default::default() });
    bench.world.hold_back(superblocks(geometry));
    bench.write(4, &[9]);
    let token = bench.begin_command(change);
    bench.until_held(2);
    bench.world.take_over().unwrap();
    bench.let_all_go();
    bench.command_result(token).unwrap();
    bench.write(5, &[10]);
    let token = bench.begin_command(change);
    assert_eq!(bench.command_result(token), Err(ControlError::ReadOnly));
    assert!(bench.world.engine.is_taken_over());
}

/// An unreadable or empty owner record is no evidence of another owner. An empty one counts as a failed metadata page, an unreadable one as a store that is
/// gone. But nothing is written without it.
#[test]
fn a_record_that_cannot_be_read_is_a_failure_and_no_take_over() {
    let at = owned().geometry().owner_block().unwrap();
    for is_gone in [false, true] {
        let mut bench = owned();
        let offset = at * bench.geometry().block();
        if is_gone {
            bench.world.disk.put(at, Content::Payload(ZERO));
        } else {
            bench.world.fail(move |io| io.op == IoOp::ReadPages && io.offset == offset);
        }
        bench.write(4, &[9]);
        let token = bench.begin_command(Command::Settle);
        assert_eq!(bench.command_result(token), Err(ControlError::ReadOnly));
        let failure = if is_gone { Failure::Page } else { Failure::StoreGone };
        assert_eq!(bench.world.engine.status().failure, Some(failure));
        bench.assert_holds(0, 5);
        let before = bench.world.disk.hash();
        assert_eq!(hash_after(&mut bench), before);
        assert_eq!(bench.crash(Cut::Kept).unwrap().failed, None, "who comes next looks for itself");
    }
}

/// A block that fails in a pool with another owner may hold that owner's new data. A repair would overwrite it.
#[test]
fn a_block_that_another_has_written_is_not_repaired_in_place() {
    let mut bench = owned();
    let slot = bench.geometry().data_start();
    let block = (slot..bench.world.disk.blocks())
        .find(|&block| *bench.world.disk.read(block) != Content::Payload(ZERO))
        .expect("a block is in its slot");
    bench.command(Command::SetPool(engine::PoolChange { second_copies: Some(1), ..Default::default() }));
    // Both contents are known twice.
    bench.write(10, &[5, 6, 5, 6]);
    bench.settle();
    bench.command(Command::Scrub { command: engine::ScrubCommand::Start, seconds: 0 });
    bench.pass(10 * SECOND);
    assert!(bench.world.engine.status().second_copies > 0, "there is something to repair it from");
    bench.reopen();
    let theirs = Content::Payload([77; sim::content::CELLS]);
    for is_taken in [false, true] {
        bench.world.disk.put(block, theirs.clone());
        if is_taken {
            bench.world.take_over().unwrap();
        }
        let _ = bench.read(0);
        bench.pass(10 * SECOND);
        assert_eq!(*bench.world.disk.read(block) == theirs, is_taken, "ours is repaired");
        assert_eq!(bench.world.engine.is_taken_over(), is_taken);
        if !is_taken {
            bench.reopen();
        }
    }
}

/// Another server may take the pool over during the replay of the journal, which can take long.
#[test]
fn an_opening_that_is_overtaken_writes_no_seal() {
    let mut bench = owned();
    bench.write_durably(2, 7);
    let (parameters, limits) = (bench.config.parameters, bench.config.limits);
    let mut disk = bench.world.disk.clone();
    disk.crash(Cut::Kept, &mut Random::new(1));
    let trace = sim::transcript::Trace::new(false);
    let world = sim::world::World::open(parameters, limits, disk, bench.world.now, Random::new(1), trace);
    bench.world = world.unwrap();
    bench.world.acquire(99).unwrap();
    bench.world.take_over().unwrap();
    let before = bench.world.disk.hash();
    assert_eq!(bench.finish_opening(), Err(engine::OpenError::TakenOver));
    assert_eq!(bench.world.disk.hash(), before);
}

#[test]
fn who_was_not_taken_over_goes_on() {
    let mut bench = owned();
    for round in 0..5 {
        bench.write(2, &[10 + round, 20 + round]);
        bench.settle();
    }
    bench.audit();
    bench.reopen();
    bench.assert_holds(2, 14);
    assert_eq!(bench.read(3), Ok(Answer::Data(vec![24; sim::content::CELLS])));
}
