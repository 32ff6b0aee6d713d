//! Read-ahead for sequential readers. Blocks are in memory before such a reader asks for them. Reads elsewhere, and reads of rotten blocks, are not
//! affected.

use std::cell::Cell;
use std::rc::Rc;

use engine::{Error, IoOp, ReadCounts};
use sim::content::CELLS;
use sim::runs::config::Config;
use sim::world::Answer;

use crate::bench::{Bench, SECOND};

const BLOCKS: u64 = 512;
const REQUEST: u64 = 4;

/// Makes a configuration with containers of 64 slots, and a read cache that windows fit into.
fn roomy() -> Config {
    let mut config = Config::small(1);
    (config.parameters.geometry.containers, config.parameters.geometry.slots_per_container) = (32, 64);
    config.limits.buffers = 600;
    config
}

/// Makes a pool whose blocks hold their number plus 1000, written in this order. Nothing is cached.
fn written(order: impl Iterator<Item = u64>) -> Bench {
    let mut bench = Bench::new(roomy(), BLOCKS);
    for block in order {
        bench.write(block, &[1000 + block as u32]);
    }
    bench.settle();
    bench.cool();
    bench
}

impl Bench {
    fn reads_so_far(&self) -> ReadCounts {
        self.world.engine.read_counts()
    }

    fn assert_reads(&mut self, token: u64, first: u64) {
        let answer = self.wait(token);
        let Ok(Answer::Data(cells)) = answer else { panic!("blocks from {first} on: {answer:?}") };
        for (block, cells) in (first..).zip(cells.chunks(CELLS)) {
            assert_eq!(cells, [1000 + block as u32; CELLS], "block {block}");
        }
    }

    /// Reads all blocks, one request after the other.
    fn read_on(&mut self) {
        for first in (0..BLOCKS).step_by(REQUEST as usize) {
            let token = self.begin_read(first, REQUEST);
            self.assert_reads(token, first);
        }
    }
}

#[test]
fn a_sequential_reader_waits_for_the_device_only_where_it_begins() {
    let mut bench = written(0..BLOCKS);
    bench.read_on();
    let counts = bench.reads_so_far();
    assert_eq!(counts.requests, BLOCKS / REQUEST);
    assert_eq!(counts.from_device, 3, "the third in a row begins it: {counts:?}");
    // One block was cached.
    let ahead = BLOCKS - 3 * REQUEST - 1;
    assert_eq!((counts.ahead_blocks, counts.ahead_used), (ahead, ahead));
    // The first use of a block that was read ahead is no hit.
    let cache = bench.world.engine.cache_status().counts;
    assert_eq!((cache.read_hits, cache.read_misses), (1, BLOCKS - 1));
    bench.audit();
}

#[test]
fn requests_in_flight_together_may_come_in_any_order() {
    let mut bench = written(0..BLOCKS);
    let depth = 8;
    for first in (0..BLOCKS).step_by((depth * REQUEST) as usize) {
        let tokens: Vec<_> = (0..depth)
            .map(|number| first + (number * 5 % depth) * REQUEST)
            .map(|first| (first, bench.begin_read(first, REQUEST)))
            .collect();
        tokens.into_iter().for_each(|(first, token)| bench.assert_reads(token, first));
    }
    let counts = bench.reads_so_far();
    // One block was cached.
    assert!(counts.from_device <= depth && counts.ahead_used >= BLOCKS - depth * REQUEST - 1, "{counts:?}");
    bench.audit();
}

#[test]
fn several_readers_have_a_stream_each() {
    let mut bench = written(0..BLOCKS);
    let readers = 4;
    for step in (0..BLOCKS / readers).step_by(REQUEST as usize) {
        for reader in 0..readers {
            let first = reader * BLOCKS / readers + step;
            let token = bench.begin_read(first, REQUEST);
            bench.assert_reads(token, first);
        }
    }
    let counts = bench.reads_so_far();
    assert!(counts.from_device <= 3 * readers, "{counts:?}");
    bench.audit();
}

#[test]
fn a_random_reader_gets_what_it_asks_for_and_nothing_else_is_read() {
    let mut bench = written(0..BLOCKS);
    for block in (0..16).map(|number| number * 61 % BLOCKS) {
        bench.assert_holds(block, 1000 + block as u32);
    }
    assert_eq!(bench.reads_so_far().ahead_blocks, 0);
    bench.audit();
}

/// Blocks that lie in any order within their container, with another block in every second slot, come in few large reads.
#[test]
fn blocks_that_lie_near_each_other_come_in_few_reads_over_the_gaps() {
    let around = BLOCKS / 2;
    let place = |number: u64| number / 32 * 32 + number * 13 % 32;
    let mut bench = written((0..around).flat_map(|number| [place(number), around + place(number)]));
    let reads = Rc::new(Cell::new(0));
    let counted = reads.clone();
    bench.world.hold_back(move |io| {
        counted.set(counted.get() + u64::from(io.op == IoOp::ReadBlocks));
        false
    });
    for first in (0..around).step_by(REQUEST as usize) {
        let token = bench.begin_read(first, REQUEST);
        bench.assert_reads(token, first);
    }
    let counts = bench.reads_so_far();
    assert!(reads.get() <= around / 6, "{} reads for {around} blocks", reads.get());
    assert!(counts.ahead_gaps > 0 && counts.ahead_used >= around - 4 * REQUEST, "{counts:?}");
    bench.audit();
}

/// A block that fails during read-ahead is no error before a read asks for it. Then only that read fails.
#[test]
fn what_fails_ahead_is_found_by_who_reads_it() {
    let mut bench = written(0..BLOCKS);
    let rotten = 301;
    let place = bench.places(1000 + rotten as u32)[0];
    bench.rot(place);
    for block in 0..rotten {
        bench.assert_holds(block, 1000 + block as u32);
    }
    assert_eq!(bench.world.engine.status().damaged_blocks_found, 0);
    assert_eq!(bench.read(rotten), Err(Error::Io));
    assert_eq!(bench.world.engine.status().damaged_blocks_found, 1);
    for block in rotten + 1..BLOCKS {
        bench.assert_holds(block, 1000 + block as u32);
    }
}

/// The slot of a block that is being read ahead becomes free, and is requested again, before the read is done.
#[test]
fn a_slot_that_is_being_read_ahead_is_not_reused_before_it_has_come() {
    let mut config = roomy();
    config.parameters.geometry.containers = (BLOCKS / 64) as u32 + 1;
    let mut bench = Bench::new(config, 2 * BLOCKS);
    (0..BLOCKS).for_each(|block| bench.write(block, &[1000 + block as u32]));
    bench.settle();
    bench.cool();
    for first in [0, 1] {
        bench.assert_holds(first, 1000 + first as u32);
    }
    bench.world.hold_back(|io| io.op == IoOp::ReadBlocks);
    let token = bench.begin_read(2, 1);
    bench.until_held(2);
    bench.trim_blocks(3, 16);
    (0..64).for_each(|number| bench.write(BLOCKS + number, &[5000 + number as u32]));
    // There is no other slot as long as the read is in flight.
    let early: Vec<_> = (0..8).map(|number| bench.begin_write(3 + number, &[6000 + number as u32], false)).collect();
    bench.pass(20 * SECOND);
    assert!(early.iter().all(|&token| !matches!(bench.answer(token), Some(Ok(_)))));
    bench.let_all_go();
    bench.assert_reads(token, 2);
    bench.settle();
    (0..8).for_each(|number| bench.write(3 + number, &[6000 + number as u32]));
    (0..8).for_each(|number| bench.assert_holds(3 + number, 6000 + number as u32));
    bench.audit();
}
