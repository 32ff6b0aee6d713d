//! Second copies of blocks with many references: their creation, their use in repairs, and their removal.

use engine::{Command, Error, Policy, PoolChange};
use sim::runs::config::Config;
use sim::world::disk::Cut;

use crate::bench::{Bench, SECOND, tight};

impl Bench {
    fn set_copies(&mut self, above: u32) {
        self.command(Command::SetPool(PoolChange { second_copies: Some(above), ..PoolChange::default() }));
    }

    /// Returns the number of second copies.
    fn second_copies(&self) -> u64 {
        self.world.engine.status().second_copies
    }
}

/// Makes a pool in which content 50 has three references, 51 two, and 52 one.
fn bench() -> Bench {
    let mut config = Config::small(1);
    config.volumes = vec![(64, Policy::Full)];
    let mut bench = Bench::new(config, 64);
    bench.write(0, &[50, 51, 52, 50, 51, 50]);
    bench.settle();
    bench
}

#[test]
fn a_block_with_more_references_than_the_threshold_has_a_second_copy_after_a_scrub() {
    let mut bench = bench();
    bench.set_copies(2);
    bench.scrub();
    bench.settle();
    assert_eq!([50, 51, 52].map(|content| bench.places(content).len()), [2, 1, 1]);
    assert_eq!(bench.second_copies(), 1);
    assert_eq!(bench.world.engine.volumes().count(), 1, "nobody sees where it is");
    bench.audit();
    // Another scrub changes nothing, and neither does a crash.
    bench.crash(Cut::Lost).unwrap();
    bench.scrub();
    bench.settle();
    assert_eq!((bench.places(50).len(), bench.second_copies()), (2, 1));
    bench.audit();
}

#[test]
fn a_rotten_block_is_repaired_from_its_second_copy_and_the_copy_from_the_block() {
    for (which, by_read) in [(0, true), (0, false), (1, false)] {
        let mut bench = bench();
        bench.set_copies(2);
        bench.scrub();
        bench.settle();
        bench.reopen();
        let place = bench.places(50)[which];
        bench.rot(place);
        if by_read {
            bench.assert_holds(3, 50);
            bench.pass(SECOND);
        } else {
            let status = bench.scrub();
            assert_eq!((status.found, status.repaired), (1, 1));
        }
        bench.settle();
        assert_eq!(bench.places(50).len(), 2, "it is back in its slot");
        bench.audit();
    }
}

#[test]
fn a_second_copy_goes_when_the_block_needs_none_any_more() {
    for gone in [1, 3] {
        let mut bench = bench();
        bench.set_copies(2);
        bench.scrub();
        for block in [0, 3, 5].into_iter().take(gone) {
            bench.trim(block);
        }
        bench.settle();
        assert_eq!(bench.second_copies(), 1);
        bench.scrub();
        bench.settle();
        assert_eq!(bench.second_copies(), 0);
        let status = bench.world.engine.status();
        assert_eq!(status.data_blocks_used, if gone == 3 { 2 } else { 3 });
        bench.audit();
    }
}

/// The slot of a dropped block is filled again. Its second copy then has another content than the slot.
#[test]
fn a_second_copy_of_what_a_slot_held_before_is_not_used_and_is_replaced() {
    let mut config = tight(4);
    config.volumes = vec![(64, Policy::Full)];
    let mut bench = Bench::new(config, 64);
    bench.write(0, &[50, 50, 50, 51]);
    bench.settle();
    bench.set_copies(2);
    bench.scrub();
    bench.settle();
    assert_eq!(bench.second_copies(), 1);
    let slot = bench.places(50)[0];
    bench.trim_blocks(0, 6);
    bench.settle();
    for content in 60..200 {
        bench.write(8, &[content, content, content]);
        bench.settle();
        if bench.places(content).contains(&slot) {
            bench.rot(slot);
            bench.reopen();
            assert_eq!(bench.read(8), Err(Error::Io));
            bench.write(9, &[content]);
            assert_eq!(bench.scrub().repaired, 1, "from what has been written since");
            bench.assert_holds(8, content);
            bench.audit();
            return;
        }
    }
    panic!("the slot is never used again");
}

#[test]
fn turned_off_second_copies_give_their_slots_back() {
    let mut bench = bench();
    bench.set_copies(1);
    bench.scrub();
    bench.settle();
    assert_eq!(bench.second_copies(), 2);
    bench.set_copies(0);
    bench.settle();
    bench.pass(SECOND);
    bench.settle();
    let status = bench.world.engine.status();
    assert_eq!((status.second_copies, status.data_blocks_used), (0, 3));
    bench.audit();
    bench.scrub();
    bench.settle();
    assert_eq!(bench.second_copies(), 0);
}

#[test]
fn a_full_pool_takes_the_slots_of_second_copies_before_it_refuses_a_write() {
    let mut config = tight(16);
    config.volumes = vec![(128, Policy::Full)];
    let mut bench = Bench::new(config, 128);
    bench.set_copies(1);
    let contents: Vec<u32> = (0..10).flat_map(|n| [100 + n, 100 + n]).collect();
    for (at, piece) in contents.chunks(4).enumerate() {
        bench.write(4 * at as u64, piece);
    }
    bench.settle();
    bench.scrub();
    bench.settle();
    let status = bench.world.engine.status();
    assert_eq!((status.data_blocks_used, status.second_copies), (20, 10));
    let slots = bench.geometry().capacity_bytes() / bench.geometry().block();
    // All blocks that fit without second copies.
    for n in 0..slots - 10 {
        bench.write(20 + n, &[1000 + n as u32]);
    }
    bench.settle();
    assert_eq!(bench.second_copies(), 0);
    bench.audit();
}

#[test]
fn second_copies_grow_with_the_pool() {
    let mut bench = bench();
    bench.set_copies(1);
    bench.scrub();
    let capacity = 4 * bench.geometry().capacity_bytes();
    let blocks = bench.geometry().grown(capacity).expect("it can grow").total_blocks();
    bench.world.disk.grow(blocks);
    bench.grow(capacity);
    bench.scrub();
    bench.settle();
    assert_eq!(bench.second_copies(), 2);
    bench.audit();
    bench.reopen();
    bench.audit();
}

/// One content is written three times, with other blocks beside it. The test counts the blocks that a rotten slot costs.
#[test]
fn what_one_lost_slot_costs_depends_on_the_policy() {
    let lost = |policy: Policy, above: u32, copy: usize| {
        let mut config = Config::small(1);
        config.volumes = vec![(64, Policy::Full)];
        let mut bench = Bench::new(config, 64);
        bench.set_policy(policy);
        for block in [0, 20, 40] {
            bench.write(block, &[50, 60 + block as u32]);
        }
        bench.settle();
        bench.set_copies(above);
        bench.scrub();
        bench.reopen();
        // The index knows all of them again.
        bench.pass(10 * SECOND);
        let place = bench.places(50)[copy];
        bench.rot(place);
        let lost = (0..64).filter(|&block| bench.read(block) == Err(Error::Io)).count();
        bench.audit();
        lost
    };
    assert_eq!(lost(Policy::Full, 0, 0), 3);
    assert_eq!(lost(Policy::Full, 2, 0), 0);
    assert_eq!(lost(Policy::Full, 3, 0), 3, "no more references than that");
    // The index has the first slot, which repairs the others. It has no slot for the first itself, and a scrub would look for one.
    assert_eq!([0, 1, 2].map(|copy| lost(Policy::Native, 0, copy)), [1, 0, 0]);
}
