//! Device writes of new blocks: their batching and their lengths.

use std::cell::RefCell;
use std::rc::Rc;

use sim::runs::config::Config;

use crate::bench::{Bench, slots};

const CONTAINER: u32 = 1024;
const REQUEST: u64 = 16;

/// Makes a pool of `containers` containers, with memory for many writes. Returns it with the lengths in blocks of later device writes to slots.
fn watched(containers: u32, blocks: u64) -> (Bench, Rc<RefCell<Vec<u64>>>) {
    let mut config = Config::small(1);
    let geometry = &mut config.parameters.geometry;
    (geometry.containers, geometry.slots_per_container, geometry.piece_blocks) = (containers, CONTAINER, 64);
    (geometry.journal_blocks, geometry.metadata_blocks) = (4096, 2048);
    (config.limits.buffers, config.limits.write_buffers, config.limits.delta_entries) = (6000, 4096, 8192);
    let mut bench = Bench::new(config, blocks);
    let lengths = Rc::new(RefCell::new(Vec::new()));
    let (is_slots, block) = (slots(bench.geometry()), bench.geometry().block());
    let seen = lengths.clone();
    bench.world.hold_back(move |io| {
        if is_slots(io) {
            seen.borrow_mut().push(io.length / block);
        }
        false
    });
    (bench, lengths)
}

/// Fills blocks with unique contents, request by request.
fn fill(bench: &mut Bench, blocks: u64) {
    for first in (0..blocks).step_by(REQUEST as usize) {
        let contents: Vec<u32> = (first..first + REQUEST).map(|block| 100_000 + block as u32).collect();
        bench.write(first, &contents);
    }
}

/// Makes the pool of `watched`, full except for 256 single slots, every second of the first 512.
fn watched_with_holes() -> (Bench, Rc<RefCell<Vec<u64>>>) {
    let (mut bench, lengths) = watched(2, 2048);
    fill(&mut bench, 2048);
    for block in (0..512).step_by(2) {
        bench.trim(block);
    }
    bench.settle();
    lengths.borrow_mut().clear();
    (bench, lengths)
}

#[test]
fn a_stream_of_writes_goes_to_the_device_in_writes_of_256_blocks() {
    let (mut bench, lengths) = watched(4, 2048);
    fill(&mut bench, 1024);
    // With such small blocks a record is full after 400 of them, and then its blocks go to their slots.
    assert_eq!(*lengths.borrow(), [256, 144, 256, 144]);
}

/// Writes to a pool with holes once waited for 256 others like those of a stream. Each then held up the requests behind it for as many simultaneous
/// device writes.
#[test]
fn blocks_that_lie_apart_wait_for_63_others_at_most() {
    let (mut bench, lengths) = watched_with_holes();
    for block in 0..63 {
        bench.write(2 * block, &[200_000 + block as u32]);
    }
    assert_eq!(lengths.borrow().len(), 0);
    bench.write(2 * 63, &[200_063]);
    assert_eq!(*lengths.borrow(), [1; 64]);
}

/// Writes a block with a unique content, durably.
fn write_durably(bench: &mut Bench, block: u64) {
    let token = bench.begin_write(block, &[300_000 + block as u32], true);
    bench.wait(token).expect("a durable write");
}

/// Blocks that the journal had inlined once went to their slots 64 at a time. With a flush after each write that meant four times as many writes
/// beside those that a client waits for. In reserved space that was never written it also meant as many changes of the file's extents, which the next
/// durable write had to wait for.
#[test]
fn what_the_journal_inlined_goes_to_the_device_in_writes_of_256_blocks() {
    let (mut bench, lengths) = watched(4, 2048);
    (0..255).for_each(|block| write_durably(&mut bench, block));
    assert_eq!(lengths.borrow().len(), 0);
    (255..512).for_each(|block| write_durably(&mut bench, block));
    assert_eq!(*lengths.borrow(), [256, 256]);
}

/// Scattered blocks once went out in 64 simultaneous writes, and the flushes that came meanwhile waited for all of them. One flush of a hundred took
/// twice as long as with few simultaneous writes.
#[test]
fn what_the_journal_inlined_of_blocks_that_lie_apart_waits_for_7_others_at_most() {
    let (mut bench, lengths) = watched_with_holes();
    (0..7).for_each(|block| write_durably(&mut bench, 2 * block));
    assert_eq!(lengths.borrow().len(), 0);
    write_durably(&mut bench, 2 * 7);
    assert_eq!(*lengths.borrow(), [1; 8]);
}
