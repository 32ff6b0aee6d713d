//! The worked examples of docs/internals/write-path.md and docs/internals/read-path.md, computed by the engine: it must do as the documents say.

use std::cell::RefCell;
use std::rc::Rc;

use engine::{Command, IoOp, ReadCounts, VolumePropertyChange, WriteCounts};
use sim::content::CELLS;
use sim::runs::workload::policy;
use sim::world::Answer;

use super::roomy;
use crate::bench::{Bench, SECOND};

const A: u32 = 1;
const B: u32 = 2;
const C: u32 = 3;
const D: u32 = 4;
const E: u32 = 5;
const F: u32 = 6;
const X: u32 = 50;

/// Makes a pool in which the contents A to F are known, in slots 20 to 25.
fn known(text: &str) -> Bench {
    let mut bench = Bench::new(roomy(), 4096);
    let fillers: Vec<u32> = (100..120).collect();
    bench.write(0, &fillers);
    bench.write(20, &[A, B, C, D, E, F]);
    bench.settle();
    for (slot, content) in (20..).zip([A, B, C, D, E, F]) {
        assert_eq!(in_slot(&bench, slot), content);
    }
    let (volume, policy) = (bench.volume, Some(Some(policy(text))));
    bench.command(Command::SetVolume {
        volume,
        change: VolumePropertyChange { policy, ..VolumePropertyChange::default() },
    });
    bench
}

/// Returns the content of a slot on the store.
fn in_slot(bench: &Bench, slot: u64) -> u32 {
    bench.world.disk.read(bench.geometry().data_start() + slot).to_cells()[0]
}

fn counts(bench: &Bench) -> WriteCounts {
    bench.world.engine.write_counts()
}

/// Notes all I/O from here on: operation, first block on the store, and length in blocks.
fn watch(bench: &mut Bench) -> Rc<RefCell<Vec<(IoOp, u64, u64)>>> {
    let seen = Rc::new(RefCell::new(Vec::new()));
    let (list, block) = (seen.clone(), bench.geometry().block());
    bench.world.hold_back(move |io| {
        list.borrow_mut().push((io.op, io.offset / block, io.length / block));
        false
    });
    seen
}

const WRITES: [&[u32]; 4] = [&[B, C, D, E], &[X, B], &[A, B, C, X, F], &[D, F, B]];

/// An image of one repeated block, 0xff perhaps, took its full size, and again when it was written once more.
#[test]
fn one_block_again_and_again_takes_one_slot() {
    for (text, slots) in [("select", 1), ("full", 1), ("idedup:2", 48), ("native", 48)] {
        let mut bench = Bench::new(roomy(), 4096);
        let (volume, policy) = (bench.volume, Some(Some(policy(text))));
        let change = VolumePropertyChange { policy, ..VolumePropertyChange::default() };
        bench.command(Command::SetVolume { volume, change });
        (0..6).for_each(|request| bench.write(request * 8, &[A; 8]));
        bench.settle();
        assert_eq!(bench.world.engine.status().data_blocks_used, slots, "{text}");
        (0..48).for_each(|block| bench.assert_holds(block, A));
        bench.audit();
    }
}

// ---- POD, Fig. 6: categories ----

/// Returns the effect of one write: the category's number (0 nothing known, then I, II, III), removed blocks, and removed requests.
fn decided(text: &str, contents: &[u32]) -> (usize, u64, u64) {
    let mut bench = known(text);
    let before = counts(&bench);
    bench.write(1000, contents);
    let after = counts(&bench);
    let grown = |at: &usize| after.categories[*at] > before.categories[*at];
    let category = (0..4).find(grown).expect("it has a category");
    for (block, &content) in (1000..).zip(contents) {
        bench.assert_holds(block, content);
    }
    bench.audit();
    (category, after.removed.blocks - before.removed.blocks, after.removed.requests - before.removed.requests)
}

#[test]
fn the_categories_of_the_example_of_the_write_path() {
    let decisions = |text| WRITES.map(|contents| decided(text, contents));
    assert_eq!(decisions("select"), [(1, 4, 1), (2, 0, 0), (3, 3, 0), (2, 0, 0)]);
    assert_eq!(decisions("select:3,request"), [(1, 4, 1), (2, 0, 0), (3, 4, 0), (3, 3, 1)]);
    let blocks = |text| WRITES.map(|contents| decided(text, contents).1);
    assert_eq!(blocks("full"), [4, 1, 4, 3]);
    assert_eq!(blocks("idedup"), [4, 0, 0, 0]);
}

/// Known blocks that are written nevertheless lie in a run. So the same write again is of category I.
#[test]
fn what_the_example_of_the_write_path_writes_is_known_in_one_run_from_then_on() {
    for contents in [&WRITES[1], &WRITES[3]] {
        let mut bench = known("select");
        bench.write(1000, contents);
        let before = counts(&bench);
        bench.write(2000, contents);
        let after = counts(&bench);
        assert_eq!(after.categories[1] - before.categories[1], 1);
        assert_eq!(after.removed.blocks - before.removed.blocks, contents.len() as u64);
        bench.audit();
    }
}

// ---- POD, Fig. 8: a read of redirected blocks ----

/// Writes A B C X F under a policy, opens the pool again, and reads it. Returns the counts, and the slots and lengths of device reads.
fn read_back(text: &str) -> (ReadCounts, Vec<(u64, u64)>) {
    let mut bench = known(text);
    bench.write(1000, WRITES[2]);
    bench.settle();
    bench.reopen();
    let seen = watch(&mut bench);
    let token = bench.begin_read(1000, 5);
    let cells: Vec<u32> = WRITES[2].iter().flat_map(|&content| [content; CELLS]).collect();
    assert_eq!(bench.wait(token), Ok(Answer::Data(cells.clone())));
    let first = bench.geometry().data_start();
    let reads =
        seen.borrow().iter().filter(|(op, ..)| *op == IoOp::ReadBlocks).map(|&(_, at, n)| (at - first, n)).collect();
    let counts = bench.world.engine.read_counts();
    // The second read comes from memory.
    let token = bench.begin_read(1000, 5);
    assert_eq!(bench.wait(token), Ok(Answer::Data(cells)));
    assert_eq!(bench.world.engine.read_counts(), ReadCounts { requests: 2, ..counts });
    (counts, reads)
}

#[test]
fn the_reads_of_the_example_of_the_read_path() {
    let counts =
        |device_reads, split| ReadCounts { requests: 1, from_device: 1, device_reads, split, ..ReadCounts::default() };
    assert_eq!(read_back("native"), (counts(1, 0), vec![(26, 5)]));
    assert_eq!(read_back("select"), (counts(2, 1), vec![(20, 3), (26, 2)]));
    assert_eq!(read_back("select:3,request"), (counts(3, 1), vec![(20, 3), (26, 1), (25, 1)]));
}

// ---- POD, section 3.5 and Fig. 10: a shared block is overwritten ----

/// Returns all I/O of a durable write of new content, up to 2 s later, when its block is in its slot.
fn cost(bench: &mut Bench, block: u64, content: u32) -> Vec<(IoOp, u64)> {
    let seen = watch(bench);
    bench.write_durably(block, content);
    bench.pass(2 * SECOND);
    bench.world.hold_back(|_| false);
    let list = seen.borrow();
    list.iter().map(|&(op, _, length)| (op, length)).collect()
}

#[test]
fn overwriting_a_shared_block_costs_what_a_new_block_costs_and_no_copy() {
    for text in ["select", "full", "idedup:1"] {
        let mut bench = known(text);
        // A is at block 20, and three more blocks refer to it.
        for block in [1000, 1010, 1020] {
            bench.write(block, &[A]);
        }
        bench.settle();
        let status = bench.world.engine.status();
        assert_eq!((status.data_blocks_used, status.redirected_blocks), (26, 3));
        let fresh = cost(&mut bench, 2000, X);
        let shared = cost(&mut bench, 20, X + 1);
        assert_eq!(shared, fresh, "{text}");
        let is_read = |(op, _): &&(IoOp, u64)| matches!(op, IoOp::ReadBlocks | IoOp::ReadPages);
        assert_eq!(shared.iter().filter(is_read).count(), 0);
        // The record with the block in it, and the write of the block to its slot.
        let written: u64 = shared.iter().filter(|(op, _)| op.is_write()).map(|(_, length)| length).sum();
        assert!(written <= 4, "{shared:?}");
        bench.settle();
        assert_eq!(in_slot(&bench, 20), A, "it stayed where it was");
        assert_eq!(bench.world.engine.status().redirected_blocks, 2);
        for (block, content) in [(20, X + 1), (1000, A), (1010, A), (1020, A)] {
            bench.assert_holds(block, content);
        }
        bench.audit();
    }
}
