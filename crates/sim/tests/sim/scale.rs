//! Synthesised pools: their validity, and mistakes that were found with them.

use std::rc::Rc;

use engine::{Command, Limits, Nanos, Operation, Submit};
use sim::content::CELLS;
use sim::studies::cost;
use sim::studies::scale::discard::{self, Way};
use sim::studies::scale::{MEMORY, discard_report, measure};
use sim::timed::load::{Clients, Workload};
use sim::timed::machine::{Machine, Step, Store};
use sim::timed::pool::{OTHER_VOLUME, Pool, VOLUME};

#[test]
fn a_synthesised_pool_passes_the_audit_before_and_after_everything() {
    // An odd size: the last leaf of every table is partly filled.
    for bytes in [512 << 20, (300 << 20) + 12 * 4096] {
        let results = measure(bytes, true).unwrap();
        assert!(results.openings.iter().all(|opening| opening.recovered.entries > 2_000), "{:?}", results.openings);
    }
}

#[test]
fn a_pool_with_two_volumes_passes_the_audit_before_and_after_one_is_deleted() {
    let pool = Rc::new(Pool::with_other((300 << 20) + 4096, (200 << 20) + 12 * 4096, 1 << 30).unwrap());
    let limits = Limits::for_memory(MEMORY, &pool.parameters.geometry).unwrap();
    let mut machine = Machine::open(Store::new(pool.clone()), limits, 0);
    machine.opened().unwrap();
    machine.settle_and_audit().unwrap();
    machine.command(Command::DeleteVolume { volume: OTHER_VOLUME }).unwrap();
    machine.settle_and_audit().unwrap();
    assert_eq!(machine.engine.status().data_blocks_used, pool.mapped);
}

/// The study of aged pools began with a pool whose summaries named block 0 as the owner of each slot. So none of its containers could be emptied, and
/// the study's result for full pools was too bad.
#[test]
fn a_pool_that_says_whose_its_slots_are_passes_the_audit_and_its_containers_can_be_emptied() {
    let pool = Rc::new(Pool::with_owners((64 << 20) + 12 * 4096, 1 << 20).unwrap());
    let limits = Limits::for_memory(MEMORY, &pool.parameters.geometry).unwrap();
    let mut machine = Machine::open(Store::new(pool.clone()), limits, 0);
    machine.opened().unwrap();
    machine.settle_and_audit().unwrap();
    // Every second block moves elsewhere, so no container is empty then.
    for (token, lba) in (0..).zip((0..pool.mapped).step_by(2)) {
        let (offset, length) = (lba * 4096, 4096);
        let write = Submit { token, volume: VOLUME, offset, length, fua: false, operation: Operation::Write(&[]) };
        assert!(machine.write(lba, write, &[[u32::MAX - token as u32; CELLS]]));
        while !matches!(machine.step(Nanos::MAX).unwrap(), Step::Reply(_, Ok(_))) {}
    }
    let evening = machine.now + 3_600_000_000_000;
    while !matches!(machine.step(evening).unwrap(), Step::Quiet) {}
    assert!(machine.engine.status().gc.emptied_containers > 0, "{:?}", machine.engine.status().gc);
    machine.settle_and_audit().unwrap();
}

/// The estimate of the subtrees that a clear can cut off was far too high. So a flood of discards waited for space in the list of discards, more than
/// a second each, with all writes behind it, and then all reads.
#[test]
fn a_flood_of_discards_is_answered_at_once_and_nobody_waits_behind_it() {
    let pool = Rc::new(Pool::with_other(1 << 30, 1 << 40, 64 << 30).unwrap());
    // The flood is long enough for the checkpoint that frees its first blocks.
    let results = discard::measure(&pool, 64 << 30, Way::Ranges, 8, false).unwrap();
    assert_eq!(discard_report::excesses(&results), [""; 0]);
    assert_eq!(results.answers.len(), 256);
}

/// The engine syncs automatically after 64 MiB. The goal of that sync was the open record, set anew with each event. So under a steady stream of
/// writes it was never reached: no sync, and a small record for every few writes.
#[test]
fn a_steady_stream_of_writes_is_synced_every_64_mib() {
    let pool = Rc::new(Pool::new(1 << 30, 2 << 30).unwrap());
    let limits = Limits::for_memory(MEMORY, &pool.parameters.geometry).unwrap();
    assert!(limits.delta_entries > 200_000, "no checkpoint comes into it");
    let mut machine = Machine::open(Store::new(pool), limits, 0);
    machine.opened().unwrap();
    let mut clients = Clients::new(1);
    let cost = clients.work(&mut machine, Workload::RandomWrite, &mut |_, answered| answered >= 80_000).unwrap();
    assert_eq!(cost.counters.checkpoints, 0);
    // 80,000 blocks are 312 MiB.
    assert!((4..=8).contains(&cost.io.syncs), "{:?}", cost.io);
    assert!(cost.io.journal_writes < 100, "{:?}", cost.io);
}

/// Measuring checks the removed blocks of each kind. Times do not matter for a test.
#[test]
fn each_kind_of_batch_removes_what_it_must() {
    let plan = cost::Plan { index_entries: 1 << 15, rounds: 2, blocks: 1 << 10, only: None };
    let all = cost::measure(&plan, &[1, 32]).unwrap();
    assert!(all.iter().all(|results| results.nanos.iter().all(|nanos| nanos.len() == 2)), "{all:?}");
}
