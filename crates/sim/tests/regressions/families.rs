//! Regressions of snapshots and clones (RFC 0020): background work and space where maps inherit.

use std::cell::Cell;
use std::rc::Rc;

use engine::{Command, DefragSetting, Error, IoOp, Limits, PoolChange, Timing, VolumePropertyChange};
use sim::random::Random;
use sim::runs::config::Config;
use sim::world::Answer;
use sim::world::disk::Cut;

use crate::bench::{Bench, SECOND, superblocks};

/// Blocks of a leaf of a map, where a page has 512 bytes.
const LEAF: u64 = 64;

impl Bench {
    /// Sets what jobs may move, without replicas, and lets no write look for duplicates.
    fn moves_and_offline(&mut self, defrag: DefragSetting) {
        self.command(Command::SetPool(PoolChange {
            defrag: Some(defrag),
            replicas: Some(Some(0)),
            ..PoolChange::default()
        }));
        let timing = VolumePropertyChange { timing: Some(Some(Timing::Offline)), ..VolumePropertyChange::default() };
        self.command(Command::SetVolume { volume: self.volume, change: timing });
    }

    /// Writes a block. Returns false if there is no space for it.
    fn try_write(&mut self, block: u64, content: u32) -> bool {
        let token = self.begin_write(block, &[content], false);
        match self.wait(token) {
            Ok(Answer::Done) => true,
            Err(Error::NoSpace) => false,
            answer => panic!("writing block {block}: {answer:?}"),
        }
    }
}

/// A deleted map of a volume with ancestors has pointers FROM them. The scrub knew that of the maps of volumes, but not of discarded subtrees, which have no
/// volume any more: it reported each of them as a damaged page.
#[test]
fn a_scrub_finds_no_damage_in_a_deleted_clone() {
    const LEAVES: u64 = 500;
    const SHARED: u64 = 8;
    let mut config = Config::small(1);
    (config.limits.discard_leaves, config.limits.map_buffer) = (1, 0);
    (config.parameters.geometry.metadata_blocks, config.parameters.geometry.containers) = (2048, 80);
    let mut bench = Bench::new(config, LEAVES * LEAF);
    for leaf in 0..SHARED {
        bench.write(leaf * LEAF, &[1 + leaf as u32]);
    }
    let snapshot = bench.snapshot("image");
    let clone = bench.clone_of(snapshot, "clone");
    let disk = core::mem::replace(&mut bench.volume, clone);
    // Next to pointers FROM the snapshot, the map has many pages of its own: it takes long to discard.
    for leaf in SHARED / 2..LEAVES {
        bench.write(leaf * LEAF + 1, &[1000 + leaf as u32]);
    }
    bench.settle();
    bench.volume = disk;
    bench.delete(clone);
    let scrub = bench.scrub();
    assert_eq!((scrub.found, bench.world.engine.damages().count()), (0, 0), "{scrub:?}");
    assert!(bench.world.engine.status().discarded_blocks > 0, "it is still discarded");
    bench.audit();
}

/// A clear of a part of a leaf that the map inherits creates the leaf. The look that tells overwrites from new blocks goes over the blocks of a request, and a
/// clear has none: it passed as an overwrite, and used up the pages that are kept for these.
///
/// Lost: overwrites and trims of all volumes failed for lack of space, until the pool was grown.
#[test]
fn clears_below_a_parent_leave_the_overwrites_their_pages() {
    const LEAVES: u64 = 300;
    let mut config = Config::small(1);
    config.limits.map_buffer = 0;
    (config.parameters.geometry.metadata_blocks, config.parameters.geometry.containers) = (700, 120);
    let mut bench = Bench::new(config, LEAVES * LEAF);
    let disk = bench.volume;
    let size = LEAVES * LEAF * bench.geometry().block();
    bench.command(Command::CreateVolume { name: "other", size, policy: None });
    let other = bench.world.engine.volume_named("other").expect("it was made").id;
    for leaf in 0..LEAVES {
        bench.write(leaf * LEAF, &[1 + leaf as u32, 1 + leaf as u32]);
    }
    bench.snapshot("image");
    // New blocks take all pages that they may have.
    bench.volume = other;
    let mut leaves = 0;
    while bench.try_write(leaves * LEAF, 1000 + leaves as u32) {
        leaves += 1;
    }
    assert!((8..LEAVES).contains(&leaves), "{leaves}");
    bench.volume = disk;
    let mut refused = 0;
    for leaf in 0..LEAVES {
        let token = bench.begin_trim_cells(leaf * LEAF * 8, 8);
        let answer = bench.wait(token);
        assert!(matches!(answer, Ok(Answer::Done) | Err(Error::NoSpace)), "{answer:?}");
        refused += u64::from(answer.is_err());
    }
    assert!(refused > 0);
    bench.volume = other;
    for round in 0..3 {
        for leaf in 0..leaves {
            assert!(bench.try_write(leaf * LEAF, 5000 + round), "round {round}, leaf {leaf}");
        }
        bench.settle();
    }
    bench.trim_blocks(0, leaves * LEAF);
    bench.audit();
}

/// Blocks of which a pool has two copies.
const HALF: u64 = 192;

/// Makes a pool with an owner. The second half of its volume has the contents of the first half.
fn with_duplicates() -> Bench {
    let mut config = Config { owned: true, ..Config::small(1) };
    (config.parameters.geometry.containers, config.parameters.geometry.slots_per_container) = (60, 16);
    (config.limits.map_buffer, config.limits.delta_entries) = (0, 1024);
    let mut bench = Bench::new(config, 2 * HALF);
    bench.moves_and_offline(DefragSetting::Off);
    for at in (0..2 * HALF).step_by(8) {
        let contents: Vec<u32> = (at % HALF..).take(8).map(|content| 1 + content as u32).collect();
        bench.write(at, &contents);
    }
    bench.settle();
    bench
}

/// Asks for a snapshot while the look at the owner that each checkpoint begins with is held back. `changes` counts the changes of a job in progress. It makes
/// none while the snapshot is pending, and takes few steps.
#[track_caller]
fn assert_waits_for_a_snapshot(bench: &mut Bench, changes: impl Fn(&Bench) -> u64, all: u64) {
    let at = bench.geometry().owner_block().expect("it has one") * bench.geometry().block();
    bench.world.hold_back(move |io| io.op == IoOp::ReadPages && io.offset == at);
    let volume = bench.volume;
    let token = bench.begin_command(Command::CreateSnapshots { volumes: &[volume], name: "new", seconds: 1 });
    bench.until_held(1);
    let before = changes(bench);
    assert!((1..all).contains(&before), "{before}");
    let (until, mut steps) = (bench.world.now + SECOND, 0);
    while bench.world.now < until {
        bench.step_once();
        steps += 1;
        assert!(steps < 200, "{} of {SECOND} ns are left", until - bench.world.now);
    }
    assert_eq!(changes(bench), before);
    bench.let_all_go();
    bench.await_command(token);
}

/// While a snapshot is pending, a pass and a relocation run leave its volume alone. They said that they waited, and named nothing to wait for: the engine asked
/// to be run again at once, without end, while the look that the snapshot's checkpoint begins with was in flight.
#[test]
fn a_pass_and_a_relocation_run_wait_for_a_pending_snapshot_without_steps() {
    let mut bench = with_duplicates();
    bench.start_pass();
    while bench.dedup().shared_blocks == 0 {
        bench.step_once();
    }
    assert_waits_for_a_snapshot(&mut bench, |bench| bench.dedup().shared_blocks, HALF);
    bench.run_pass(SECOND);
    bench.settle();
    assert_eq!(bench.world.engine.status().data_blocks_used, HALF);

    let mut bench = with_duplicates();
    bench.start_pass();
    bench.run_pass(SECOND);
    bench.settle();
    let plan: Vec<(u64, u64)> = (0..bench.geometry().slots()).rev().map(|slot| (slot, 1)).collect();
    bench.begin_run(&plan);
    while bench.relocation().referrers == 0 {
        assert!(bench.step_once(), "{:?}", bench.relocation());
    }
    assert_waits_for_a_snapshot(&mut bench, |bench| bench.relocation().referrers, 2 * HALF);
    bench.end_run(SECOND);
    bench.audit();
}

/// Makes a snapshot whose superblocks are held back, lets a job work meanwhile, flushes, and crashes. The snapshot is not there then, and the pool opens.
fn crash_with_a_pending_snapshot(bench: &mut Bench, contents: impl Fn(u64) -> u32, blocks: u64) {
    bench.world.hold_back(superblocks(bench.geometry()));
    let volume = bench.volume;
    bench.begin_command(Command::CreateSnapshots { volumes: &[volume], name: "new", seconds: 1 });
    bench.until_held(1);
    bench.pass(SECOND);
    let flush = bench.begin_flush();
    bench.wait(flush).expect("it needs no checkpoint");
    let opened = bench.crash(Cut::Lost);
    assert!(opened.is_ok(), "a record names a snapshot that is not durable: {opened:?}");
    assert_eq!(bench.world.engine.volumes().count(), 1);
    for block in 0..blocks {
        bench.assert_holds(block, contents(block));
    }
    bench.audit();
}

/// No past mistake but a precaution: a snapshot has the map of its volume from the merge of its checkpoint on, and its number is durable with the superblock. A
/// change of an inherited block goes to the map that has it. A record of such a change names the snapshot: before that superblock is durable, it would make the
/// journal invalid after a crash.
#[test]
fn no_record_names_a_snapshot_before_its_superblock_is_durable() {
    for moment in 0..12 {
        let mut bench = bench_with_holes();
        bench.moves_and_offline(DefragSetting::Auto);
        for _ in 0..moment * 7 {
            bench.step_once();
        }
        crash_with_a_pending_snapshot(&mut bench, |block| if block % 2 == 0 { 1 + block as u32 } else { 0 }, 2 * HALF);
    }
}

/// Makes a pool without empty containers in which every second block has been trimmed.
fn bench_with_holes() -> Bench {
    let mut config = Config::small(1);
    (config.parameters.geometry.containers, config.parameters.geometry.slots_per_container) = (24, 16);
    (config.limits.map_buffer, config.limits.delta_entries) = (0, 1024);
    let mut bench = Bench::new(config, 2 * HALF);
    bench.moves_and_offline(DefragSetting::Off);
    for block in 0..2 * HALF {
        bench.write(block, &[1 + block as u32]);
    }
    for block in (1..2 * HALF).step_by(2) {
        bench.trim(block);
    }
    bench.settle();
    bench
}

/// Checks that a sound engine passes the sequences that catch its mutants.
#[test]
fn moves_beside_a_pending_snapshot_and_clears_below_a_parent_do_no_harm() {
    sim::runs::hazards::moves_beside_a_pending_snapshot().unwrap();
    sim::runs::hazards::clears_below_a_parent().unwrap();
}

/// Versions of a block that its slot's owner hint leads to.
const VERSIONS: u32 = 8;

/// Garbage collection looks for the block of a slot in the versions that a family has of it, eight at most, and each can take a path of pages of its own. With
/// few pages in memory, the first of them were evicted before the last came, and the search began anew, without end. It keeps its position now.
#[test]
fn gc_finds_the_blocks_of_eight_versions_with_few_pages_in_memory() {
    const BLOCKS: u64 = 12;
    let mut config = Config::small(1);
    let geometry = &mut config.parameters.geometry;
    (geometry.metadata_blocks, geometry.containers) = (2048, 24);
    (config.limits.map_buffer, config.limits.read_ahead) = (0, 0);
    let most = geometry.most_volume_blocks();
    let far = most / BLOCKS;
    let mut bench = Bench::new(config, most);
    bench.moves_and_offline(DefragSetting::Off);
    let disk = bench.volume;
    let size = 64 * LEAF * bench.geometry().block();
    bench.command(Command::CreateVolume { name: "other", size, policy: None });
    let other = bench.world.engine.volume_named("other").expect("it was made").id;
    let mut kept = 0;
    for version in 0..VERSIONS {
        for block in 0..BLOCKS {
            bench.volume = disk;
            bench.write(block * far, &[1000 * version + block as u32 + 1]);
            // A hole beside each of them.
            bench.volume = other;
            bench.write(kept, &[50_000 + kept as u32]);
            kept += 1;
        }
        bench.volume = disk;
        if version + 1 < VERSIONS {
            bench.snapshot(&format!("v{version}"));
        }
    }
    bench.volume = other;
    bench.trim_blocks(0, kept);
    bench.settle();
    bench.settle();
    bench.world.engine.set_limits(Limits { pages: 24, ..bench.config.limits });
    bench.cool();
    let [reads, ..] = bench.world.submitted;
    bench.command(Command::SetPool(PoolChange { defrag: Some(DefragSetting::Auto), ..PoolChange::default() }));
    let until = bench.world.now + 60 * SECOND;
    while bench.world.now < until {
        bench.step_once();
        let tried = bench.world.submitted[0] - reads;
        assert!(tried < 2000, "{tried} reads");
    }
    let gc = bench.world.engine.status().gc;
    assert!(!gc.is_due && gc.moved_blocks > 0, "{gc:?}");
    bench.audit();
}

// ---- the bars of RFC 0020, in counts ----

/// Hourly, daily and monthly snapshots of a common schedule.
const SCHEDULED: u64 = 36 + 30 + 3;

/// Makes a volume with the snapshots of a schedule, between which blocks are overwritten. Beside each write lies a block that is trimmed in the end.
fn scheduled(rewritten: u64) -> Bench {
    const SLOTS: u64 = 16;
    let mut random = Random::new(7);
    let mut config = Config::small(1);
    let writes = VOLUME + SCHEDULED * rewritten;
    let geometry = &mut config.parameters.geometry;
    (geometry.metadata_blocks, geometry.slots_per_container) = (4096, SLOTS as u32);
    geometry.containers = (2 * writes).div_ceil(SLOTS) as u32;
    let mut bench = Bench::new(config, VOLUME);
    bench.moves_and_offline(DefragSetting::Off);
    let disk = bench.volume;
    let size = writes * bench.geometry().block();
    bench.command(Command::CreateVolume { name: "other", size, policy: None });
    let other = bench.world.engine.volume_named("other").expect("it was made").id;
    let mut written = 0;
    let mut write = |bench: &mut Bench, block: u64| {
        bench.volume = disk;
        bench.write(block, &[1 + written]);
        bench.volume = other;
        bench.write(u64::from(written), &[100_000 + written]);
        bench.volume = disk;
        written += 1;
    };
    (0..VOLUME).for_each(|block| write(&mut bench, block));
    for number in 0..SCHEDULED {
        bench.snapshot(&format!("s{number}"));
        for at in 0..rewritten {
            let block = if rewritten < VOLUME { random.below(VOLUME) } else { at };
            write(&mut bench, block);
        }
    }
    bench.volume = other;
    bench.trim_blocks(0, writes);
    bench.settle();
    bench.settle();
    bench.volume = disk;
    bench
}

/// Blocks of that volume.
const VOLUME: u64 = 256;

/// Lets garbage collection work, and checks that it reaches its high watermark.
fn assert_gc_reaches_its_high_watermark(bench: &mut Bench, case: &str) {
    bench.command(Command::SetPool(PoolChange { defrag: Some(DefragSetting::Auto), ..PoolChange::default() }));
    bench.pass(600 * SECOND);
    let status = bench.world.engine.status();
    let (gc, geometry) = (status.gc, bench.geometry());
    let free = geometry.slots() - status.data_blocks_used;
    let low = (free / 4 / u64::from(geometry.slots_per_container)).min(u64::from(geometry.containers) / 16).max(1);
    assert!(gc.empty_containers >= 3 * low, "{case}, {low} containers are low water: {gc:?}");
    bench.audit();
}

/// Checks that garbage collection reaches its high watermark where blocks have the versions of 69 snapshots.
#[test]
fn gc_reaches_its_high_watermark_with_69_snapshots_of_a_volume() {
    for rewritten in [16, 64, VOLUME] {
        assert_gc_reaches_its_high_watermark(&mut scheduled(rewritten), &format!("{rewritten} blocks rewritten"));
    }
}

/// A summary named the map for which a block was first written. Where an image had been deleted behind its clones, gc found none of its blocks, and the containers
/// with them stayed as they were. It finds them by the snapshots of the image's line.
#[test]
fn gc_moves_the_blocks_of_an_image_that_was_deleted_behind_its_clones() {
    const BLOCKS: u64 = 256;
    let mut config = Config::small(1);
    let geometry = &mut config.parameters.geometry;
    (geometry.metadata_blocks, geometry.slots_per_container, geometry.containers) = (2048, 16, 33);
    let mut bench = Bench::new(config, BLOCKS);
    bench.moves_and_offline(DefragSetting::Off);
    let image = bench.volume;
    let size = BLOCKS * bench.geometry().block();
    bench.command(Command::CreateVolume { name: "other", size, policy: None });
    let other = bench.world.engine.volume_named("other").expect("it was made").id;
    for block in 0..BLOCKS {
        bench.volume = image;
        bench.write(block, &[1 + block as u32]);
        bench.volume = other;
        bench.write(block, &[100_000 + block as u32]);
    }
    bench.volume = image;
    let snapshot = bench.snapshot("v1");
    bench.clone_of(snapshot, "one");
    bench.clone_of(snapshot, "two");
    bench.delete(snapshot);
    bench.delete(image);
    bench.volume = other;
    bench.trim_blocks(0, BLOCKS);
    bench.settle();
    bench.settle();
    assert!(bench.world.engine.volume_named("one").is_some() && bench.world.engine.volume_named("disk").is_none());
    assert_gc_reaches_its_high_watermark(&mut bench, "without the image");
    assert!(bench.world.engine.status().gc.moved_blocks > 0);
}

/// Counts the pages that opening a pool with this number of clones reads, where a page has 16 entries of the table of volumes.
fn pages_to_open(clones: u32) -> u64 {
    let mut config = Config::small(1);
    let geometry = &mut config.parameters.geometry;
    (geometry.block_size, geometry.metadata_blocks) = (4096, 1 << 13);
    let mut bench = Bench::new(config, 512);
    bench.write(0, &[1]);
    let snapshot = bench.snapshot("image");
    let name = |number: u32| format!("clone-{number}");
    let commands: Vec<u64> = (0..clones)
        .map(|number| bench.begin_command(Command::CloneSnapshot { snapshot, name: &name(number) }))
        .collect();
    commands.into_iter().for_each(|command| bench.await_command(command));
    bench.settle();
    bench.command(Command::Close);
    bench.begin_to_open(Cut::Lost);
    let (pages, block, start) = (Rc::new(Cell::new(0)), bench.geometry().block(), bench.geometry().meta_map_start());
    let counted = pages.clone();
    bench.world.hold_back(move |io| {
        if io.op == IoOp::ReadPages && io.offset >= start * block {
            counted.set(counted.get() + io.length / block);
        }
        false
    });
    bench.finish_opening().expect("it opens");
    let last = bench.world.engine.volume_named(&name(clones - 1)).expect("it is there").id;
    let read = pages.get();
    bench.assert_has(last, &[(0, 1), (1, 0)]);
    read
}

/// Checks that opening reads of 5,000 clones what the size of the table says: 16 entries a page, and the pages above.
#[test]
fn opening_a_pool_with_5000_clones_reads_the_table_and_little_more() {
    let (few, many) = (pages_to_open(10), pages_to_open(5000));
    assert!((312..=313 + 8).contains(&(many - few)), "{few}, {many}");
}
