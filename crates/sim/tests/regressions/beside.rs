//! Metadata pages that are read together with adjacent ones, and write streams that bypass the read cache.

use std::cell::Cell;
use std::rc::Rc;

use engine::{Error, IoOp};
use sim::runs::config::Config;

use crate::bench::{Bench, SECOND, page_reads};

/// Makes a pool with four adjacent leaves of a map, and opens it again, so that none of them is in memory.
fn with_four_leaves() -> (Bench, u64) {
    let mut bench = Bench::new(Config::small(1), 256);
    let leaf = bench.geometry().map_leaf_entries();
    for number in 0..4 {
        bench.write(number * leaf, &[10 + number as u32]);
    }
    bench.settle();
    bench.reopen();
    bench.pass(SECOND);
    (bench, leaf)
}

#[test]
fn with_a_page_come_those_beside_it_while_the_cache_is_being_filled() {
    let (mut bench, leaf) = with_four_leaves();
    let reads = Rc::new(Cell::new((0, 0)));
    let counted = reads.clone();
    bench.world.hold_back(move |io| {
        let (commands, longest) = counted.get();
        if page_reads(io) {
            counted.set((commands + 1, io.length.max(longest)));
        }
        false
    });
    bench.assert_holds(leaf, 11);
    let after_one = reads.get();
    assert!(after_one.1 >= 2 * bench.geometry().block(), "leaves side by side are one read: {after_one:?}");
    for number in 0..4 {
        bench.assert_holds(number * leaf, 10 + number as u32);
    }
    assert_eq!(reads.get(), after_one, "all of them are in memory");
    bench.audit();
}

/// An unreadable leaf lies beside readable ones. Requests for the readable leaves get them, and no request gets another one's error.
#[test]
fn a_page_that_cannot_be_read_harms_none_beside_it() {
    let (mut bench, leaf) = with_four_leaves();
    let reads = Rc::new(Cell::new((0, 0)));
    let seen = reads.clone();
    bench.world.hold_back(move |io| {
        if page_reads(io) && io.length > seen.get().1 {
            seen.set((io.offset, io.length));
        }
        false
    });
    bench.assert_holds(0, 10);
    let (first, length) = reads.get();
    let block = bench.geometry().block();
    assert!(length >= 2 * block, "leaves side by side are one read: {length}");
    let (mut bench, _) = with_four_leaves();
    let bad = first + length - block;
    bench.world.fail(move |io| io.op == IoOp::ReadPages && io.offset <= bad && bad < io.offset + io.length);
    let refused: Vec<u64> = (0..4).filter(|number| bench.read(number * leaf) == Err(Error::Io)).collect();
    assert_eq!(refused.len(), 1, "leaf {refused:?}");
    for number in (0..4).filter(|number| !refused.contains(number)) {
        bench.assert_holds(number * leaf, 10 + number as u32);
    }
    bench.world.fail(|_| false);
    bench.assert_holds(refused[0] * leaf, 10 + refused[0] as u32);
    bench.audit();
}

#[test]
fn a_long_stream_of_writes_leaves_the_read_cache_as_it_was() {
    let mut config = Config::small(1);
    config.parameters.geometry.containers = 64;
    (config.limits.buffers, config.limits.write_buffers) = (48, 16);
    let mut bench = Bench::new(config, 256);
    bench.write(200, &[1, 2, 3, 4]);
    bench.settle();
    for block in 200..204 {
        bench.assert_holds(block, block as u32 - 199);
    }
    for block in (0..160).step_by(8) {
        bench.write(block, &(0..8).map(|at| 1000 + block as u32 + at).collect::<Vec<_>>());
    }
    bench.settle();
    bench.world.hold_back(|io| io.op == IoOp::ReadBlocks);
    for block in 200..204 {
        bench.assert_holds(block, block as u32 - 199);
    }
    assert_eq!(bench.world.held(), 0, "what was read before is still there");
    bench.world.hold_back(|_| false);
    for block in 0..160 {
        bench.assert_holds(block, 1000 + block as u32);
    }
    bench.audit();
}
