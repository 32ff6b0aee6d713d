//! Regression tests: one test for each mistake that was made. Its name is the claim that the mistake broke, and its comment tells the story.
//! Submodules test the guarantees of single parts of the engine.
//!
//! The tests drive the real engine by hand, completion by completion where the order matters. `bench` has the means.

mod bench;
mod beside;
mod caches;
mod census;
mod content_cache;
mod copies;
mod dedup;
mod defrag;
mod device;
mod discard;
mod disk_index;
mod external_partitioning;
mod failures;
mod families;
mod flash;
mod full_host;
mod gc;
mod hand_over;
mod map_buffer;
mod metadata;
mod names;
mod numbers;
mod owner;
mod places;
mod policies;
mod readahead;
mod refusals;
mod relocate;
mod repair;
mod repair_snapshots;
mod replicate;
mod runs;
mod scrub;
mod snapshot_figures;
mod snapshots;
mod space;
mod time_slices;
mod timing;
mod versions;
mod volumes;
mod writes;

use bench::{Bench, SECOND, metadata_reservations, page_reads, records, slots, superblocks, tight};
use engine::{Command, Error, Geometry, IoOp, Limits, Policy, VolumeId, VolumePropertyChange};
use sim::content::CELLS;
use sim::runs::config::Config;
use sim::world::Answer;
use sim::world::disk::Cut;

// ---- an index entry proves the content of a slot ----

/// Fills slots 0 to 7. Then slot 0 is free again, and slot 1 holds block 1.
fn full_with_a_hole() -> Bench {
    let mut bench = Bench::new(tight(2), 64);
    bench.write(0, &[10, 11, 12, 13]);
    bench.write(4, &[14, 15, 16, 17]);
    bench.settle();
    bench.trim(0);
    bench.settle();
    bench
}

/// Removes the content of block 1, lets another content take its slot, then writes the first content again.
fn write_again_what_was_overwritten(bench: &mut Bench) {
    // Block 5 leaves space for another block in the other container.
    for block in [1, 5, 9] {
        bench.trim(block);
    }
    bench.settle();
    bench.write(20, &[30]);
    bench.settle();
    bench.write(21, &[11]);
    bench.settle();
    bench.assert_holds(20, 30);
    bench.assert_holds(21, 11);
    bench.reopen();
    bench.assert_holds(20, 30);
    bench.assert_holds(21, 11);
    bench.audit();
}

/// An index entry proves that a slot holds a digest as long as the generation of the slot's container equals the generation in the entry. A
/// generation grew only when a container was opened. A container was opened for its holes while a slot ahead of the cursor was still live. A write of
/// that slot's content checked its summary and entered it with the new generation. Then the content was overwritten everywhere. The allocator, still
/// on its way through the same container, came to the slot and gave it to another content. The entry went on proving the first.
///
/// Lost: the next write of the first content was answered, shared the other content's slot, and was never stored.
/// Lost: the next write of the first content was answered, shared the other content's slot, and was never stored.
#[test]
fn an_entry_checked_while_its_container_is_open_does_not_outlive_the_slot() {
    let mut bench = full_with_a_hole();
    bench.write(8, &[20]);
    bench.write(9, &[11]);
    write_again_what_was_overwritten(&mut bench);
}

/// Sets a policy under which writes do not wait for pages of the index on disk. Known single blocks are still shared.
fn looks_into_memory_alone(bench: &mut Bench) {
    let volume = bench.volume;
    bench.command(Command::SetVolume {
        volume,
        change: VolumePropertyChange { policy: Some(Some(Policy::SELECT)), ..VolumePropertyChange::default() },
    });
}

/// The same mistake with an entry from the rebuild of the index. After an opening the rebuild was still waiting for a page of summaries while the
/// first write opened the container.
#[test]
fn an_entry_rebuilt_while_its_container_is_open_does_not_outlive_the_slot() {
    let mut bench = full_with_a_hole();
    looks_into_memory_alone(&mut bench);
    bench.reopen();
    bench.world.hold_back(page_reads);
    // The page of the space map that opening the container needs comes; the summaries do not.
    bench.until_held(1);
    bench.world.let_go(1);
    bench.until_held(1);
    bench.write(8, &[20]);
    bench.let_all_go();
    bench.pass(SECOND / 10);
    write_again_what_was_overwritten(&mut bench);
}

// ---- a slot is reused only when no superblock in force refers to it ----

/// Crashes and checks that the older superblock gives a pool that opens, with its durable blocks.
fn crash_and_check(bench: &mut Bench, durable: &[(u64, u32)]) {
    let opened = bench.crash(Cut::Lost);
    assert!(opened.is_ok(), "after a crash before the superblock was durable, opening came to {opened:?}");
    for &(block, content) in durable {
        bench.assert_holds(block, content);
    }
    bench.audit();
}

/// A checkpoint merged an overwrite of the trees' last reference to a slot. The slot became free in the space map and, two syncs later, for the
/// allocator, while the checkpoint's superblock was still to be written. A write took the slot, its record became durable, and then came the crash.
///
/// Lost: the pool. The superblock in force had the slot in its trees. Replay found a record that called this slot new while it was in use, and
/// refused to open: `DamagedJournal`.
#[test]
fn a_slot_that_a_merge_frees_is_not_reused_before_the_superblock() {
    let mut bench = Bench::new(tight(2), 64);
    bench.write(0, &[10, 11, 12, 13]);
    bench.write(4, &[14, 15, 16]);
    bench.settle();
    bench.write_durably(0, 20);
    bench.world.hold_back(superblocks(bench.geometry()));
    bench.begin_command(Command::Settle);
    bench.until_held(2);
    let token = bench.begin_write(8, &[30], true);
    bench.pass(10 * SECOND);
    let mut durable = vec![(0, 20), (1, 11)];
    if bench.answer(token) == Some(Ok(Answer::Done)) {
        durable.push((8, 30));
    }
    crash_and_check(&mut bench, &durable);
}

/// The same loss in another order. The frozen delta overwrote the trees' only reference to a slot. Between the cut and the merge of the counts a
/// write shared the slot once more. So the merge freed it in the space map and left it to the active delta. There it was overwritten as well before
/// the superblock was durable, and became pending free at once. Two syncs later it was reused.
///
/// Lost: the pool. Replay refused to open it.
#[test]
fn a_slot_shared_during_a_checkpoint_is_not_reused_before_the_superblock() {
    let mut bench = Bench::new(tight(2), 64);
    bench.write(0, &[10, 11, 12, 13]);
    bench.write(4, &[14, 15]);
    bench.settle();
    // Space for metadata is reserved at the beginning of the first checkpoint after an opening: it stops there.
    bench.reopen();
    bench.pass(SECOND / 10);
    bench.write_durably(0, 20);
    bench.world.hold_back(metadata_reservations(bench.geometry()));
    bench.begin_command(Command::Settle);
    bench.until_held(1);
    bench.write_durably(8, 10);
    bench.world.hold_back(superblocks(bench.geometry()));
    bench.world.let_go(1);
    bench.until_held(2);
    bench.write_durably(8, 21);
    let token = bench.begin_write(9, &[30], true);
    bench.pass(10 * SECOND);
    let mut durable = vec![(0, 20), (1, 11), (8, 21)];
    if bench.answer(token) == Some(Ok(Answer::Done)) {
        durable.push((9, 30));
    }
    crash_and_check(&mut bench, &durable);
}

/// No past mistake but a precaution: a full pool grows, and the superblock with the new size is written but not durable. A write that needs the new
/// space must wait. If it were acknowledged as durable, it would be lost with that superblock.
#[test]
fn what_a_growth_adds_is_not_used_before_its_superblock_is_durable() {
    let mut bench = Bench::new(tight(2), 64);
    bench.write(0, &[10, 11, 12, 13, 14, 15, 16, 17]);
    bench.settle();
    let geometry = bench.geometry();
    let capacity = geometry.capacity_bytes() + 4 * 4 * geometry.block();
    bench.world.disk.grow(geometry.grown(capacity).unwrap().total_blocks());
    bench.world.hold_back(superblocks(geometry));
    let grow = bench.begin_command(Command::Grow { capacity, metadata: 0 });
    bench.until_held(2);
    let token = bench.begin_write(8, &[30], true);
    bench.pass(10 * SECOND);
    assert_eq!((bench.command_answer(grow), bench.answer(token)), (None, None));
    crash_and_check(&mut bench, &[(0, 10), (7, 17)]);
    assert_eq!(bench.world.geometry(), geometry);
    // The same without a crash; then one that loses whatever is not durable.
    bench.world.hold_back(superblocks(geometry));
    let grow = bench.begin_command(Command::Grow { capacity, metadata: 0 });
    bench.until_held(2);
    let token = bench.begin_write(8, &[30], true);
    bench.let_all_go();
    assert_eq!(bench.wait(token), Ok(Answer::Done));
    assert_eq!(bench.command_answer(grow), Some(Ok(())));
    crash_and_check(&mut bench, &[(0, 10), (7, 17), (8, 30)]);
    assert_eq!(Ok(bench.world.geometry()), geometry.grown(capacity));
}

/// After a growth, the new metadata is used, with the new leaf of the meta map and the new interior page above both leaves. After crashes everything
/// is in its place.
#[test]
fn metadata_goes_on_in_a_growth_and_the_meta_map_gets_higher() {
    const PIECE: usize = 32;
    // Each leaf of the volume's map is a metadata block of 64 entries.
    const BLOCKS: u64 = 64 * 4400;
    let mut config = tight(64);
    let geometry = &mut config.parameters.geometry;
    (geometry.piece_blocks, geometry.metadata_blocks, geometry.journal_blocks) = (PIECE as u32, 2000, 1024);
    (config.limits.buffers, config.limits.write_buffers, config.limits.pages) = (512, 256, 1024);
    config.limits.delta_entries = 16384;
    let mut bench = Bench::new(config, BLOCKS);
    let geometry = bench.geometry();
    let capacity = geometry.capacity_bytes() + 5000 * 4 * geometry.block();
    let grown = geometry.grown(capacity).unwrap();
    assert!(grown.metadata_blocks > 6000 && grown.meta_map_leaves() == 2, "{grown:?}");
    bench.world.disk.grow(grown.total_blocks());
    bench.grow(capacity);
    for first in (0..BLOCKS).step_by(PIECE) {
        bench.write(first, &[7; PIECE]);
    }
    bench.settle();
    assert!(bench.world.engine.status().overhead_blocks_used > 4096 + 1024 + 2 * grown.meta_map_pages());
    for cut in [Cut::Lost, Cut::Torn, Cut::Kept] {
        bench.write(3, &[8; PIECE]);
        bench.settle();
        bench.write_durably(BLOCKS - 1, 9);
        bench.crash(cut).expect("it opens");
        for block in [0, BLOCKS / 2, BLOCKS - 2] {
            bench.assert_holds(block, 7);
        }
        bench.assert_holds(3, 8);
        bench.assert_holds(BLOCKS - 1, 9);
        bench.audit();
    }
}

// ---- a request that runs again decides again ----

/// A write had found a known block, and then waited for space. Meanwhile its volume's policy became `native`, the known block was trimmed, and its
/// slot became free. The request ran again. A native volume looks nothing up, and only a lookup dropped the result of the earlier run.
///
/// Lost: the block shared a free slot, which another block could get. The pool became read-only, or the block read as that one.
#[test]
fn what_a_write_found_before_its_policy_changed_does_not_count() {
    let mut bench = Bench::new(tight(2), 64);
    bench.write(0, &[10, 11, 12, 13]);
    bench.write(4, &[14, 15, 16]);
    bench.settle();
    bench.world.hold_back(superblocks(bench.geometry()));
    bench.trim(0);
    // Block 8 is known; for the other three there are two slots when that checkpoint is done, and enough after the next.
    let token = bench.begin_write(8, &[11, 30, 31, 32], false);
    bench.until_held(2);
    let native = Some(Some(Policy::Native));
    bench.begin_command(Command::SetVolume {
        volume: VolumeId(1),
        change: VolumePropertyChange { policy: native, ..VolumePropertyChange::default() },
    });
    bench.trim(1);
    bench.trim(2);
    bench.let_all_go();
    assert_eq!(bench.wait(token), Ok(Answer::Done));
    bench.settle();
    for (block, content) in [(8, 11), (9, 30), (10, 31), (11, 32), (3, 13)] {
        bench.assert_holds(block, content);
    }
    bench.audit();
}

/// The first four cells of a block that a write makes equal to block 2.
const HALF: [u32; CELLS] = [1, 1, 1, 1, 0, 0, 0, 0];

/// Writes the second half of block 0, which makes it equal to block 2, and block 1, which becomes equal to block 3. Block 0 has been compared and
/// found equal. The comparison of block 1 is held back, so that the write waits.
fn waiting_with_a_hit() -> (Bench, u64) {
    let mut config = tight(16);
    // Digests this short prove nothing: blocks are compared.
    config.limits.sharing_digest_bits = 8;
    (config.limits.buffers, config.limits.write_buffers) = (24, 18);
    let mut bench = Bench::new(config, 64);
    bench.write_cells(0, &[1, 1, 1, 1, 9, 9, 9, 9]);
    bench.write_cells(2 * CELLS as u64, &HALF);
    bench.write(3, &[40]);
    bench.write(10, &[50, 51, 52, 53, 54, 55, 56, 57]);
    bench.settle();
    bench.reopen();
    bench.pass(SECOND);
    // Blocks 0 and 2 are in memory; block 3 has to be read before it can be compared.
    for block in [0, 2] {
        bench.read(block).expect("it can be read");
    }
    bench.world.hold_back(|io| io.op == IoOp::Compare);
    let values: Vec<u32> = [0; 4].into_iter().chain([40; CELLS]).collect();
    let token = bench.begin_cells(4, &values, false);
    bench.until_held(1);
    bench.world.let_go(1);
    bench.until_held(1);
    (bench, token)
}

/// A write of a part of block 0 made it equal to block 2, whose slot was noted as a hit. Then the request waited, here for the comparison of its
/// second block. Meanwhile both blocks were trimmed, and the slot became free. The request ran again, and block 0 was completed again: now it was all
/// zeroes. Zero blocks were skipped before the hit of the earlier run was dropped. The last step took a reference to the freed slot and gave it back.
///
/// Lost: the slot was freed twice, which stops the program.
#[test]
fn a_block_that_became_zero_while_its_write_waited_frees_no_slot() {
    let (mut bench, token) = waiting_with_a_hit();
    for block in [0, 2] {
        bench.trim(block);
    }
    bench.settle();
    bench.let_all_go();
    assert_eq!(bench.wait(token), Ok(Answer::Done));
    bench.settle();
    bench.assert_holds(0, 0);
    bench.assert_holds(1, 40);
    bench.audit();
}

/// The same mistake where block 2 stays, so that its slot stays in use. The reference that came and went left the slot in the delta with the digest
/// of the zero block. The next write of block 2's content shared the slot. Every read of it from the device was checked against that digest.
///
/// Lost: reads of good blocks failed until the delta was merged.
#[test]
fn a_block_that_became_zero_while_its_write_waited_says_nothing_of_a_slot() {
    let (mut bench, token) = waiting_with_a_hit();
    bench.trim(0);
    bench.let_all_go();
    assert_eq!(bench.wait(token), Ok(Answer::Done));
    bench.write_cells(5 * CELLS as u64, &HALF);
    // Blocks that are read twice in a row evict blocks that were used again earlier.
    for block in (10..18).flat_map(|block| [block; 2]) {
        bench.assert_holds(block, 40 + block as u32);
    }
    for block in [2, 5] {
        assert_eq!(bench.read(block), Ok(Answer::Data(HALF.to_vec())), "block {block}");
    }
    bench.assert_holds(0, 0);
    bench.audit();
}

// ---- buffers ----

/// The reference count of a buffer had 16 bits. A block that many blocks share is in memory once, and every block of every answer in flight holds it.
/// With pieces of 256 blocks, 256 reads in flight are enough. (Pieces are longer here.)
///
/// Lost: the counter wrapped to 0, and the buffer was handed to a write while it was being sent. With checked arithmetic the program stopped.
#[test]
fn a_buffer_can_be_held_by_more_than_65535_blocks_at_once() {
    const PIECE: u64 = 4096;
    let mut config = Config::small(1);
    let geometry = &mut config.parameters.geometry;
    (geometry.piece_blocks, geometry.journal_blocks, geometry.metadata_blocks) = (PIECE as u32, 1024, 1024);
    (config.limits.pages, config.limits.requests) = (512, 32);
    config.limits.delta_entries = 2 * PIECE as u32;
    let mut bench = Bench::new(config, PIECE);
    for block in (0..PIECE).step_by(32) {
        bench.write(block, &[10; 32]);
    }
    bench.settle();
    let tokens: Vec<u64> = (0..17).map(|_| bench.begin_read(0, PIECE)).collect();
    for token in tokens {
        let answer = bench.wait(token).expect("it can be read");
        assert_eq!(answer, Answer::Data(vec![10; PIECE as usize * CELLS]));
    }
    bench.audit();
}

/// A durable write's block travels in its record, and later goes to its slot. The slot was written first, while the write of the record was still in
/// flight. That made the block a part of the read cache, the cache evicted it, and its buffer received another block.
///
/// Lost: the record went out with the other block's bytes. After a crash its block failed the check, and this durable write and all later ones were
/// gone.
#[test]
fn a_buffer_that_a_record_inlines_is_kept_until_the_record_is_written() {
    let mut config = Config::small(1);
    (config.limits.buffers, config.limits.write_buffers) = (20, 18);
    let mut bench = Bench::new(config, 64);
    bench.write(0, &[10, 11, 12, 13, 14, 15, 16, 17]);
    bench.settle();
    bench.world.hold_back(records(bench.geometry()));
    let token = bench.begin_write(20, &[20], true);
    bench.until_held(1);
    // The block goes to its slot when a second has passed. Then reads fill the cache, which has space for two blocks.
    bench.pass(3 * SECOND / 2);
    for block in 0..6 {
        bench.assert_holds(block, 10 + block as u32);
    }
    bench.write(30, &[30, 31, 32, 33]);
    bench.let_all_go();
    assert_eq!(bench.wait(token), Ok(Answer::Done));
    crash_and_check(&mut bench, &[(20, 20), (0, 10)]);
}

// ---- space ----

/// The product's smallest pool, with a volume of its whole capacity, is filled with blocks that are all different. Then every block is overwritten by
/// yet another one. The old block's slot is free only after a checkpoint. With no slot left there was nothing that a write could wait for.
///
/// Lost: a disk that was full once could not be written any more (no space), although the new data replaces the old.
#[test]
fn a_full_volume_as_large_as_the_pool_can_be_overwritten() {
    let mut config = Config::small(1);
    let geometry = Geometry::for_capacity(1 << 24).expect("a possible capacity");
    config.parameters.geometry = geometry;
    config.limits = Limits::for_memory(128 << 20, &geometry).expect("enough memory");
    let blocks = geometry.capacity_bytes() / geometry.block();
    let mut bench = Bench::new(config, blocks);
    for round in 0..3 {
        for block in (0..blocks).step_by(64) {
            let first = round * 1_000_000 + block as u32 + 1;
            bench.write(block, &(first..first + 64.min(blocks - block) as u32).collect::<Vec<_>>());
        }
        bench.settle();
    }
    for block in [0, blocks / 2, blocks - 1] {
        bench.assert_holds(block, 2_000_000 + block as u32 + 1);
    }
}

/// Space was reserved four containers ahead of the allocator. Four small containers can be one slot less than an unaligned piece needs. There a write
/// waited for more free slots than would ever be ready, with most of the pool unused.
///
/// Lost: nothing, but neither the write nor any later write ever completed.
#[test]
fn a_piece_longer_than_four_containers_finds_space() {
    let mut config = tight(32);
    config.parameters.geometry.piece_blocks = 16;
    let mut bench = Bench::new(config, 64);
    // Space for 8 containers is reserved at once: 32 slots, of which 16 are left.
    bench.write(0, &(10..26).collect::<Vec<_>>());
    let values: Vec<u32> = (0..16 * CELLS).map(|cell| 1000 + cell as u32).collect();
    bench.write_cells(16 * CELLS as u64 + 4, &values);
    bench.assert_holds(15, 25);
    bench.audit();
}

/// The spare containers exist so that a full pool can be overwritten. They were given to new blocks like all others. A volume larger than the pool
/// filled them too.
///
/// Lost: nothing, but a pool with more data than its capacity, in which no block could be overwritten any more.
#[test]
fn new_blocks_stop_at_the_capacity_and_overwriting_goes_on() {
    let mut config = tight(4);
    config.parameters.geometry.spare_containers = 2;
    let mut bench = Bench::new(config, 64);
    bench.write(0, &[10, 11, 12, 13]);
    bench.write(4, &[14, 15, 16, 17]);
    let token = bench.begin_write(8, &[18], false);
    assert_eq!(bench.wait(token), Err(Error::NoSpace));
    for round in 1..4 {
        bench.write(0, &[20 * round, 20 * round + 1, 20 * round + 2, 20 * round + 3]);
        bench.write(4, &[20 * round + 4, 20 * round + 5, 20 * round + 6, 20 * round + 7]);
    }
    bench.trim(3);
    bench.settle();
    bench.write(8, &[18]);
    bench.assert_holds(8, 18);
    bench.audit();
}

/// Trims shared one queue with the writes. In a full pool, a write at the head of the queue waited for slots that could still be reclaimed. The trims
/// that would have given it space waited behind it.
///
/// Lost: nothing, but a full pool answered no trim until the write before it had failed.
#[test]
fn a_trim_does_not_wait_behind_a_write_that_waits_for_space() {
    let mut bench = Bench::new(tight(2), 64);
    bench.write(0, &[10, 11, 12, 13]);
    bench.write(4, &[14, 15, 16, 17]);
    bench.settle();
    bench.world.hold_back(superblocks(bench.geometry()));
    bench.trim(0);
    // It waits for the checkpoint that frees block 0, and that is held back.
    let token = bench.begin_write(8, &[30], false);
    bench.until_held(2);
    bench.trim(1);
    assert_eq!(bench.answer(token), None);
    bench.let_all_go();
    assert_eq!(bench.wait(token), Ok(Answer::Done));
    bench.assert_holds(8, 30);
    bench.audit();
}

/// The background work of an opening continued only on other events. After its first page it rested, nothing was to wake it, and an idle pool never
/// filled its index.
///
/// Lost: savings.
#[test]
fn the_index_is_filled_after_an_opening_without_any_request() {
    let mut bench = Bench::new(tight(16), 64);
    bench.write(0, &[10, 11, 12, 13]);
    bench.write(40, &[14]);
    bench.settle();
    bench.reopen();
    bench.pass(SECOND);
    bench.world.hold_back(page_reads);
    bench.write(20, &[10, 14]);
    bench.let_all_go();
    bench.settle();
    assert_eq!(bench.world.engine.status().data_blocks_used, 5);
}

/// The index is filled after an opening while requests are served. Every block went to the front, whether its digest was known or not. So the entry
/// named the newest copy in place of the oldest. Where the table was full, recently used entries were evicted.
///
/// Lost: savings. When the copy was overwritten, the content was unknown, though its first block was still there.
#[test]
fn an_index_that_is_filled_again_goes_on_naming_the_oldest_copy() {
    let mut bench = Bench::new(tight(16), 64);
    let volume = bench.volume;
    let set = |bench: &mut Bench, policy| {
        bench.command(Command::SetVolume {
            volume,
            change: VolumePropertyChange { policy: Some(Some(policy)), ..VolumePropertyChange::default() },
        });
    };
    bench.write(0, &[10]);
    set(&mut bench, Policy::Observe);
    bench.write(1, &[10]);
    set(&mut bench, Policy::SELECT);
    bench.settle();
    bench.reopen();
    bench.pass(SECOND);
    bench.write(1, &[11]);
    bench.settle();
    bench.write(2, &[10]);
    assert_eq!(bench.world.engine.write_counts().removed.blocks, 1);
    bench.audit();
}

// ---- pages ----

/// A checkpoint merges the leaves of a map in order. It had replaced the first and waited for the second. Then a reader that still saw the old tree
/// loaded the first again, from its old location. It stayed cached there. The checkpoint became durable, the location was free, and the next page
/// written there found another page in the cache.
///
/// Lost: the program stopped ("a location is cached once"). Without that check, reads would have found the wrong page.
#[test]
fn a_replaced_page_that_a_reader_loaded_again_is_forgotten_with_its_location() {
    let mut bench = Bench::new(Config::small(1), 1088);
    // Another leaf, which does not come with the first one.
    let leaf = 16 * bench.geometry().map_leaf_entries();
    bench.write(0, &[10, 11]);
    bench.write(leaf, &[12, 13]);
    looks_into_memory_alone(&mut bench);
    bench.settle();
    bench.reopen();
    bench.pass(SECOND);
    bench.world.hold_back(page_reads);
    bench.write(0, &[20]);
    bench.write(leaf, &[22]);
    bench.begin_command(Command::Settle);
    // The root; then both leaves, of which the first comes.
    bench.until_held(1);
    bench.world.let_go(1);
    bench.until_held(2);
    bench.world.let_go(1);
    bench.pass(SECOND / 10);
    assert_eq!(bench.world.held(), 1, "the checkpoint waits for the second leaf");
    // A reader of the old tree loads the first leaf if it has to.
    bench.world.hold_back(|_| false);
    bench.assert_holds(1, 11);
    bench.let_all_go();
    for round in 30..40 {
        bench.write(0, &[round]);
        bench.write(leaf, &[round + 100]);
        bench.settle();
        bench.assert_holds(1, 11);
        bench.assert_holds(leaf + 1, 13);
        bench.assert_holds(leaf, round + 100);
    }
    bench.audit();
}

// ---- the list of discards ----

/// A trim cut off more subtrees than one page of the list of discards holds, and the list was walked over several checkpoints. The table's page count
/// on disk was updated while its first page was written. So pages that a shorter list no longer filled were never emptied. The next opening found
/// them and walked those subtrees again.
///
/// Lost: every block of them was counted down a second time. Slots in use were freed, and then held blocks of others.
#[test]
fn a_list_of_discards_that_got_shorter_is_short_after_opening_too() {
    let mut config = tight(16);
    config.limits.discard_leaves = 1;
    let mut bench = Bench::new(config, 64 * 40);
    // One block in each of 29 leaves of 64 entries.
    let leaves = 1..30u64;
    for leaf in leaves.clone() {
        bench.write(leaf * 64, &[leaf as u32]);
    }
    bench.write(0, &[77]);
    bench.settle();
    bench.trim_blocks(64, 64 * 29);
    bench.settle();
    bench.write(5, &[78]);
    bench.reopen();
    bench.audit();
    bench.assert_holds(0, 77);
    bench.assert_holds(5, 78);
    for leaf in leaves {
        bench.assert_holds(leaf * 64, 0);
        // Answers are still being sent.
        bench.pass(SECOND / 100);
    }
}

// ---- a record that a recovery rejected never comes back ----

/// No past mistake, but the reason why records beyond the seal count only with the seal's epoch or a later one. The chain alone does not tell. A crash lost
/// the blocks of the last record and left the record, which recovery rejected. The next record has to name the same sequence number, ring block and
/// checksum as this one. The allocator began at the same slot, too. When the client wrote the same contents to another place, they came into the
/// slots that the old record names. Then a second crash lost the new record, and every digest proved the old one.
///
/// Lost without the rule: blocks that had been read, and flushed, changed to contents that no client had written there since.
#[test]
fn a_record_whose_blocks_become_right_after_the_seal_is_not_trusted() {
    // More than a record inlines.
    let before: Vec<u32> = (10..26).collect();
    let after: Vec<u32> = (30..46).collect();
    let write = |bench: &mut Bench, first: u64, contents: &[u32]| {
        for (at, contents) in (first..).step_by(8).zip(contents.chunks(8)) {
            bench.write(at, contents);
        }
    };
    let mut bench = Bench::new(Config::small(1), 64);
    write(&mut bench, 0, &before);
    bench.settle();
    bench.reopen();
    bench.world.hold_back(slots(bench.geometry()));
    write(&mut bench, 0, &after);
    bench.begin_flush();
    bench.pass(SECOND / 10);
    bench.crash(Cut::MetadataOnly).expect("a record may be lost");
    for (block, &content) in (0..).zip(&before) {
        bench.assert_holds(block, content);
    }
    let token = bench.begin_flush();
    assert_eq!(bench.wait(token), Ok(Answer::Done));

    bench.world.hold_back(records(bench.geometry()));
    write(&mut bench, 32, &after);
    bench.begin_flush();
    bench.pass(SECOND / 10);
    bench.crash(Cut::PayloadOnly).expect("a record may be lost");
    for (block, &content) in (0..).zip(&before) {
        bench.assert_holds(block, content);
        bench.assert_holds(block + 32, 0);
    }
    bench.audit();
}
