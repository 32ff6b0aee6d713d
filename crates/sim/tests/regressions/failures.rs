//! Failed pools: read-only at once and permanently. Nothing is written to them any more, and their durable blocks can be read.

use crate::bench::{Bench, SECOND, metadata_reservations, records, superblocks};
use engine::{
    Command, Damaged, DigestFunction, Error, Failure, Geometry, IoOp, Nanos, OpenError, Parameters, PoolChange,
    Recovered, Superblock,
};
use sim::content::{CELLS, Content};
use sim::random::Random;
use sim::runs::config::Config;
use sim::transcript::Trace;
use sim::world::disk::Cut;
use sim::world::faults::{Class, Faults, Rule};
use sim::world::{Answer, Step, World};

/// Makes a pool with blocks 0 and 1 in their slots and block 2 only in the journal. All are durable.
fn with_three_blocks() -> Bench {
    let mut bench = Bench::new(Config::small(1), 64);
    bench.write(0, &[5, 6]);
    bench.settle();
    bench.write_durably(2, 7);
    bench
}

fn assert_refuses_changes(bench: &mut Bench) {
    let token = bench.begin_write(9, &[1], false);
    assert_eq!(bench.wait(token), Err(Error::ReadOnly));
}

fn assert_holds_three_blocks(bench: &mut Bench) {
    for (block, content) in [(0, 5), (1, 6), (2, 7)] {
        bench.assert_holds(block, content);
    }
}

/// Opens a failed pool after a crash. It reports the failure, serves its durable blocks, and writes nothing.
fn assert_reads_unwritten(bench: &mut Bench, failure: Failure) {
    let recovered = bench.crash(Cut::Lost).expect("a failed pool can be read");
    assert_eq!(recovered.failed, Some(failure));
    let before = bench.world.disk.hash();
    assert_holds_three_blocks(bench);
    assert_refuses_changes(bench);
    bench.pass(60 * SECOND);
    assert_eq!(bench.world.disk.hash(), before, "nothing is written to a failed pool");
    assert!(!bench.world.disk.has_unsynced());
    assert_eq!(bench.world.engine.status().failure, Some(failure));
}

#[test]
fn after_a_failed_sync_no_flush_succeeds_though_later_syncs_would() {
    let mut bench = with_three_blocks();
    // More blocks than a record inlines: it is durable with a sync.
    bench.write(20, &[20, 21, 22, 23, 24, 25, 26, 27]);
    bench.world.fail(|io| io.op == IoOp::Sync);
    let token = bench.begin_write(3, &[8], true);
    assert_eq!(bench.wait(token), Err(Error::Io));
    bench.world.fail(|_| false);
    let token = bench.begin_flush();
    assert_eq!(bench.wait(token), Err(Error::Io), "a failure is never retried into silence");
    assert_refuses_changes(&mut bench);
    assert_holds_three_blocks(&mut bench);
    bench.assert_holds(3, 8);
    bench.pass(SECOND);
    // Its own superblock got through: the failure is known from here on.
    assert_reads_unwritten(&mut bench, Failure::Sync);
    assert_reads_unwritten(&mut bench, Failure::Sync);
}

/// Makes a pool whose block 2 was flushed, inlined in the journal, and then written to its slot, which a failed sync has lost on some disks.
fn with_a_slot_that_a_failed_sync_lost(seed: u64) -> Bench {
    let mut config = Config::small(1);
    (config.limits.buffers, config.limits.write_buffers) = (32, 16);
    let mut bench = Bench::new(config, 64);
    (24..64).for_each(|block| bench.write(block, &[100 + block as u32]));
    bench.settle();
    bench.write_durably(2, 7);
    bench.pass(2 * SECOND);
    // So that it is not in the read cache.
    (24..64).for_each(|block| bench.assert_holds(block, 100 + block as u32));
    bench.world.faults = Faults::new(seed);
    bench.world.faults.begin(&[Rule::nth(Class::SyncError, 0, true)]);
    // More blocks than a record inlines: they are durable with a sync.
    bench.write(8, &[20, 21, 22, 23, 24, 25, 26, 27]);
    bench.write(16, &[30]);
    let token = bench.begin_flush();
    assert_eq!(bench.wait(token), Err(Error::Io));
    bench
}

/// The journal had inlined a block. It was flushed, and then went to its slot. The next sync failed, and the disk lost the slot.
///
/// Lost: reads of the flushed block got EIO until the pool was opened again.
#[test]
fn a_flushed_block_whose_slot_a_failed_sync_lost_is_read_from_the_journal() {
    let mut was_lost = 0;
    for seed in 0..24 {
        let mut bench = with_a_slot_that_a_failed_sync_lost(seed);
        bench.assert_holds(2, 7);
        was_lost += u64::from(bench.world.engine.damages().any(|damage| damage.what == Damaged::Block));
    }
    assert!((1..24).contains(&was_lost), "disks differ in what they lose: {was_lost}");
}

/// A read came while a repair read the block's copy in the journal. It read the damaged slot once more, and only then waited for the repair: the list of
/// stages at which requests can wait for a repair left that one out.
#[test]
fn a_read_that_comes_while_a_repair_reads_the_journal_waits_for_the_repair() {
    let mut were_repaired = 0;
    for seed in 0..24 {
        let mut bench = with_a_slot_that_a_failed_sync_lost(seed);
        let geometry = bench.geometry();
        let journal = geometry.journal_start() * geometry.block()..geometry.meta_map_start() * geometry.block();
        bench.world.hold_back(move |io| io.op == IoOp::ReadBlocks && journal.contains(&io.offset));
        let first = bench.begin_read(2, 1);
        bench.pass(SECOND);
        if bench.world.held() == 0 {
            continue;
        }
        were_repaired += 1;
        bench.world.hold_back(|io| io.op == IoOp::ReadBlocks);
        let second = bench.begin_read(2, 1);
        bench.pass(SECOND);
        assert_eq!(bench.world.held(), 1, "seed {seed}: the damaged slot is not read again");
        bench.let_all_go();
        for token in [first, second] {
            assert!(bench.wait(token).is_ok(), "seed {seed}");
        }
        bench.assert_holds(2, 7);
    }
    assert!(were_repaired > 0, "disks differ in the writes that they lose");
}

#[test]
fn a_write_of_metadata_that_fails_is_kept_in_the_superblock() {
    let mut bench = with_three_blocks();
    let geometry = bench.geometry();
    let fails = records(geometry);
    bench.world.fail(move |io| io.op.is_write() && fails(io));
    let token = bench.begin_write(3, &[8], true);
    assert_eq!(bench.wait(token), Err(Error::Io));
    bench.pass(SECOND);
    assert_reads_unwritten(&mut bench, Failure::Write);
}

#[test]
fn a_pool_whose_failure_cannot_be_kept_opens_as_after_a_crash() {
    let mut bench = with_three_blocks();
    bench.world.fail(|io| io.op == IoOp::Sync || io.op.is_write());
    let token = bench.begin_write(3, &[8], true);
    assert_eq!(bench.wait(token), Err(Error::Io));
    bench.pass(SECOND);
    let recovered = bench.crash(Cut::Lost).expect("the disk is well again");
    assert_eq!(recovered.failed, None);
    assert_holds_three_blocks(&mut bench);
    bench.write_durably(3, 9);
    bench.audit();
}

/// The superblock with the failure goes to one place after the other. Whatever a crash makes of it, one is whole.
#[test]
fn a_crash_while_the_failure_is_being_kept_loses_nothing() {
    let mut seen = [false; 2];
    for superblocks_done in 0..=2 {
        for cut in [Cut::Lost, Cut::Kept, Cut::Torn, Cut::Mixed] {
            let mut bench = with_three_blocks();
            let geometry = bench.geometry();
            let fails = records(geometry);
            bench.world.fail(move |io| io.op.is_write() && fails(io));
            bench.world.hold_back(superblocks(geometry));
            let token = bench.begin_write(3, &[8], true);
            assert_eq!(bench.wait(token), Err(Error::Io));
            for _ in 0..superblocks_done {
                bench.until_held(1);
                bench.world.let_go(1);
                bench.pass(SECOND / 100);
            }
            let Recovered { failed, .. } = bench.crash(cut).expect("one superblock is whole");
            seen[usize::from(failed.is_some())] = true;
            assert_holds_three_blocks(&mut bench);
            let third = bench.read(3);
            let known = [[8; CELLS], [0; CELLS]].map(|cells| Ok(Answer::Data(cells.to_vec())));
            assert!(known.contains(&third), "{third:?}");
        }
    }
    assert_eq!(seen, [true; 2], "both outcomes were tried");
}

/// The superblocks of a checkpoint could not be written, and were torn in both places. The superblock with the failure went to the places of the
/// newest whole one, and was torn, too.
///
/// Lost: everything, where the other copy of that superblock had rotted.
#[test]
fn a_failure_is_not_written_over_the_newest_superblock_that_is_whole() {
    let mut bench = with_three_blocks();
    let geometry = bench.geometry();
    let whole = |bench: &Bench| {
        let slots = [0, 1].map(|place| [0, 1].map(|parity| geometry.superblock_block(place, parity)));
        let block = |at: u64| bench.world.disk.read(at).to_bytes(geometry.block_size);
        let newest = slots.as_flattened().iter().filter_map(|&at| Superblock::decode(&block(at)).ok());
        let epoch = newest.map(|superblock| superblock.epoch).max().expect("a pool");
        [0, 1].map(|place| block(geometry.superblock_block(place, epoch)))
    };
    let before = whole(&bench);
    let places = [0, 1].map(|place| {
        let epoch = Superblock::decode(&before[0]).expect("it is whole").epoch;
        geometry.superblock_block(place, epoch)
    });
    bench.world.fail(superblocks(geometry));
    let token = bench.begin_command(engine::Command::Settle);
    bench.pass(SECOND);
    assert_eq!(bench.command_answer(token), Some(Err(engine::ControlError::ReadOnly)));
    for (place, before) in places.into_iter().zip(before) {
        assert_eq!(bench.world.disk.read(place).to_bytes(geometry.block_size), before);
    }
}

/// A reservation can fail with another error than lack of space, say EIO where a file system cannot write its own tables. It counted as a full host.
/// Writes got ENOSPC, and the reservation was tried again each second for as long as the disk was bad.
///
/// Lost: nothing, but the cause was not reported.
#[test]
fn a_reservation_that_fails_but_for_want_of_space_is_a_write_that_failed() {
    let metadata = |bench: &mut Bench| bench.begin_command(engine::Command::Settle);
    let growth = |bench: &mut Bench| {
        let capacity = bench.geometry().capacity_bytes() * 64;
        bench.world.disk.grow(bench.geometry().grown(capacity).expect("it can grow").total_blocks());
        bench.begin_command(engine::Command::Grow { capacity, metadata: 0 })
    };
    for (number, begin) in [&metadata as &dyn Fn(&mut Bench) -> u64, &growth].into_iter().enumerate() {
        let mut bench = with_three_blocks();
        // Space for metadata is reserved at the first checkpoint after an opening.
        bench.crash(Cut::Lost).expect("nothing has failed yet");
        bench.world.fail(|io| io.op == IoOp::Reserve);
        let token = begin(&mut bench);
        bench.pass(3 * SECOND);
        bench.world.fail(|_| false);
        assert_eq!(bench.world.engine.status().failure, Some(Failure::Write), "reservation {number}");
        assert_ne!(bench.command_answer(token), Some(Ok(())));
        assert_reads_unwritten(&mut bench, Failure::Write);
    }
}

#[test]
fn a_failed_pool_closes_and_its_failure_is_the_answer() {
    let mut bench = with_three_blocks();
    // More blocks than a record inlines: it is durable with a sync.
    bench.write(20, &[20, 21, 22, 23, 24, 25, 26, 27]);
    bench.world.fail(|io| io.op == IoOp::Sync);
    let token = bench.begin_write(3, &[8], true);
    assert_eq!(bench.wait(token), Err(Error::Io));
    let token = bench.begin_command(engine::Command::Close);
    bench.pass(SECOND);
    assert_eq!(bench.command_answer(token), Some(Err(engine::ControlError::ReadOnly)));
}

/// Of the four superblock slots two belong to the newest epoch. One of these was rotten, and the read of the other one failed. An unreadable slot
/// counted as missing as soon as its other copy could be read, whatever that held. So the superblock of the epoch before was taken for the newest
/// one.
///
/// Lost: everything since the checkpoint before, and then, by the seal, the newest superblock itself.
#[test]
fn an_older_superblock_is_not_used_while_the_newest_may_be_the_one_that_cannot_be_read() {
    let mut bench = Bench::new(Config::small(1), 64);
    for content in [5, 6] {
        bench.write(0, &[content]);
        bench.settle();
    }
    let geometry = bench.geometry();
    let mut disk = bench.world.disk.clone();
    disk.crash(Cut::Lost, &mut Random::new(1));
    let epoch = |block: u64| Superblock::decode(&disk.read(block).to_bytes(geometry.block_size)).unwrap().epoch;
    let newest = if epoch(0) > epoch(1) { 0 } else { 1 };
    disk.put(newest, Content::Payload([9; CELLS]));
    let twin = geometry.superblock_block(1, newest) * geometry.block();
    let (parameters, limits) = (bench.config.parameters, bench.config.limits);
    let mut world = World::open(parameters, limits, disk, 0, Random::new(1), Trace::new(false)).unwrap();
    world.fail(move |io| io.op == IoOp::ReadPages && io.offset == twin);
    let opened = loop {
        match world.step(Nanos::MAX).unwrap() {
            Step::Opened(result) => break result,
            Step::Quiet => panic!("opening never ends"),
            _ => {}
        }
    };
    assert_eq!(opened, Err(OpenError::Device { offset: newest * geometry.block() }));
}

/// One copy of the newest superblock could not be read. The write of the other had been lost, so its slot held a valid superblock of an older epoch.
/// The superblock of the epoch before was taken for the newest: nothing about the four slots says otherwise.
///
/// Lost: the changes that only the checkpoint had (a new volume, a property), and everything where the journal had wrapped since. But a record has
/// the epoch of a superblock that was durable in both places. If one has a later epoch, that superblock is missing.
#[test]
fn a_superblock_that_is_older_than_a_record_is_not_used() {
    let mut bench = with_three_blocks();
    let geometry = bench.geometry();
    let slots = [0, 1].map(|place| [0, 1].map(|parity| geometry.superblock_block(place, parity)));
    let older = bench.world.disk.clone();
    bench.write(4, &[9]);
    bench.settle();
    bench.write(5, &[10]);
    bench.settle();
    bench.write_durably(6, 11);
    let mut disk = bench.world.disk.clone();
    disk.crash(Cut::Lost, &mut Random::new(1));
    let decoded = |disk: &sim::world::disk::Disk, block: u64| {
        Superblock::decode(&disk.read(block).to_bytes(geometry.block_size)).expect("it is whole")
    };
    let newest = slots.as_flattened().iter().map(|&block| decoded(&disk, block).epoch).max().expect("four");
    let [first, twin] = [0, 1].map(|place| geometry.superblock_block(place, newest));
    for block in [first, twin] {
        assert!(decoded(&older, block).epoch < newest);
        disk.put(block, older.read(block).clone());
    }
    let (parameters, limits) = (bench.config.parameters, bench.config.limits);
    let mut world = World::open(parameters, limits, disk.clone(), 0, Random::new(1), Trace::new(false)).unwrap();
    world.fail(move |io| io.op == IoOp::ReadPages && io.offset == twin * geometry.block());
    let opened = loop {
        match world.step(Nanos::MAX).unwrap() {
            Step::Opened(result) => break result,
            Step::Quiet => panic!("opening never ends"),
            _ => {}
        }
    };
    let offset = first * geometry.block();
    assert_eq!(opened, Err(OpenError::DamagedPage { offset, what: "the newest superblock" }));
    // A repair reports this, and the superblock that it writes is newer than all records.
    let plan = sim::runs::repair::plan(&disk, &bench.config, true).expect("it can be repaired");
    assert!(plan.problems[0].contains("the newest superblock is lost"), "{:?}", plan.problems);
    sim::runs::repair::perform(&mut disk, &plan);
    assert!(decoded(&disk, geometry.superblock_block(0, newest + 1)).epoch > newest);
    let mut bench = Bench::on_disk(bench.config.clone(), disk, "after the repair");
    bench.volume = bench.world.engine.volumes().next().expect("one volume").id;
    assert_holds_three_blocks(&mut bench);
    for (block, content) in [(4, 9), (5, 10), (6, 11)] {
        bench.assert_holds(block, content);
    }
    bench.audit();
}

/// A checkpoint's sync and a durable write were in flight together, and the sync failed. A file system reports that error to only one of two callers,
/// so the write reported success. The engine trusted it: the client had its answer, and the next opening found the record missing.
#[test]
fn a_write_beside_a_sync_that_fails_is_not_called_durable() {
    let mut bench = Bench::new(Config::small(1), 64);
    bench.write(0, &[1]);
    bench.reopen();
    bench.write(0, &[5]);
    bench.write(40, &[6]);
    let geometry = bench.geometry();
    bench.world.hold_back(metadata_reservations(geometry));
    bench.begin_command(Command::SetPool(PoolChange { policy: Some(None), ..PoolChange::default() }));
    bench.until_held(1);
    bench.pass(SECOND / 10);
    bench.world.hold_back(records(geometry));
    let write = bench.begin_write(9, &[7], true);
    bench.until_held(2);
    bench.world.fail(|io| io.op == IoOp::Sync);
    bench.world.let_go(1);
    while !bench.world.in_flight().contains("Sync") {
        assert!(bench.step_once(), "the checkpoint comes to its sync");
    }
    bench.world.fail(|_| false);
    bench.let_all_go();
    assert_eq!(bench.wait(write), Err(Error::Io));
    bench.pass(SECOND);
    bench.crash(Cut::Lost).expect("nothing that is missing is called durable");
    bench.assert_holds(0, 5);
}

/// A client had written a block that looks like the superblock of another pool, with an epoch that is far ahead. The device put it at the wrong
/// place: over one of the four superblocks. The newest of the four was taken for the pool's, whichever pool it belonged to.
///
/// Lost: everything, since the opening writes to the places that this superblock states.
#[test]
fn a_superblock_of_another_pool_at_the_wrong_place_is_not_trusted() {
    let mut bench = with_three_blocks();
    bench.settle();
    let geometry = bench.geometry();
    let larger = Geometry { containers: geometry.containers + 8, ..geometry };
    let alien = Parameters::new(larger, [1; 16], [1; 32], DigestFunction::Aegis128X2);
    let mut bytes = vec![0; geometry.block_size as usize];
    Superblock { epoch: 1 << 40, ..Superblock::new(alien) }.encode(&mut bytes);
    for place in 0..2 {
        for parity in 0..2 {
            let block = geometry.superblock_block(place, parity);
            bench.world.disk.put(block, Content::Metadata(bytes.clone().into()));
            bench.crash(Cut::Lost).unwrap();
            assert_holds_three_blocks(&mut bench);
            bench.audit();
            assert_ne!(bench.world.disk.read(block).to_bytes(geometry.block_size)[..], bytes[..], "it is written over");
        }
    }
}
