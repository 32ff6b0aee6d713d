//! Defragmentation of regions that readers found scattered. It runs while the pool is idle, with no more writes than needed, whatever interrupts it.

use engine::{Command, DefragSetting, DefragStatus, Error, PoolChange, ReadCounts};
use sim::content::CELLS;
use sim::disks::Disk;
use sim::runs::config::Config;
use sim::runs::run::Run;
use sim::runs::scenario::{Scenario, scenario};
use sim::studies::aged::{Setup, measure};
use sim::transcript::Trace;
use sim::world::Answer;
use sim::world::disk::Cut;

use crate::bench::{Bench, SECOND};

/// Blocks of a region, and slots of a container.
const REGION: u64 = 64;
const BLOCKS: u64 = 4 * REGION;
/// Blocks of a region that are overwritten. Neighbours in this order are far from each other in the region.
const OVERWRITTEN: [u64; 8] = [5, 60, 12, 49, 23, 38, 30, 17];

impl Bench {
    fn defrag(&self) -> DefragStatus {
        self.world.engine.status().defrag
    }

    fn set_defrag(&mut self, defrag: DefragSetting) {
        self.command(Command::SetPool(PoolChange {
            defrag: Some(defrag),
            replicas: Some(Some(0)),
            ..PoolChange::default()
        }));
    }

    /// Reads the first region from a cold cache, in requests of `blocks` blocks. Returns the number of device reads.
    fn read_region(&mut self, blocks: u64, expected: &[u32]) -> u64 {
        self.cool();
        let ReadCounts { device_reads: before, .. } = self.world.engine.read_counts();
        for first in (0..REGION).step_by(blocks as usize) {
            let token = self.begin_read(first, blocks);
            let Ok(Answer::Data(cells)) = self.wait(token) else { panic!("it can be read") };
            for (block, cells) in (first..).zip(cells.chunks(CELLS)) {
                assert_eq!(cells, [expected[block as usize]; CELLS], "block {block}");
            }
        }
        self.world.engine.read_counts().device_reads - before
    }
}

impl Bench {
    /// Reads all regions from a cold cache, in order and without a rest.
    fn stream(&mut self, expected: &[u32]) {
        self.cool();
        let mut in_progress = std::collections::VecDeque::new();
        for first in (0..BLOCKS).step_by(4) {
            in_progress.push_back((first, self.begin_read(first, 4)));
            if in_progress.len() < 4 && first + 4 < BLOCKS {
                continue;
            }
            let keep = if first + 4 < BLOCKS { 3 } else { 0 };
            while in_progress.len() > keep {
                let (first, token) = in_progress.pop_front().expect("there are some");
                let Ok(Answer::Data(cells)) = self.wait(token) else { panic!("it can be read") };
                for (block, cells) in (first..).zip(cells.chunks(CELLS)) {
                    assert_eq!(cells, [expected[block as usize]; CELLS], "block {block}");
                }
            }
        }
    }
}

/// Makes a pool with much space and a volume of `volume` blocks, the first `written` of which were written in order. At most `read_ahead` blocks are
/// read ahead.
fn in_order(volume: u64, written: u64, read_ahead: u32) -> (Bench, Vec<u32>) {
    let mut config = Config::small(1);
    (config.parameters.geometry.containers, config.parameters.geometry.slots_per_container) = (16, REGION as u32);
    config.limits.read_ahead = read_ahead;
    let mut bench = Bench::new(config, volume);
    bench.set_defrag(DefragSetting::Auto);
    let contents: Vec<u32> = (0..written as u32).map(|block| 100 + block).collect();
    for first in (0..written).step_by(8) {
        bench.write(first, &contents[first as usize..first as usize + 8]);
    }
    bench.settle();
    (bench, contents)
}

/// Makes a pool with much space. Its first region was written in order, and blocks of it were overwritten, with others in between.
fn overwritten() -> (Bench, Vec<u32>) {
    overwritten_in(BLOCKS)
}

/// Makes the pool of `overwritten` with a volume of `volume` blocks.
fn overwritten_in(volume: u64) -> (Bench, Vec<u32>) {
    // No reader continues into the next region.
    let (mut bench, mut contents) = in_order(volume, REGION, 0);
    for (n, &block) in (0..).zip(&OVERWRITTEN) {
        contents[block as usize] = 500 + n;
        bench.write(block, &[500 + n]);
        for other in 0..12 {
            bench.write(REGION + 12 * u64::from(n) + other, &[1000 + 12 * n + other as u32]);
        }
    }
    bench.settle();
    (bench, contents)
}

/// Makes a pool with read-ahead and a volume of four regions, each with some overwritten blocks.
fn streamed() -> (Bench, Vec<u32>) {
    let (mut bench, mut contents) = in_order(2 * BLOCKS, BLOCKS, 1024);
    for (n, &block) in (0..).zip(&OVERWRITTEN) {
        for region in 0..4 {
            let (at, content) = (region * REGION + block, 5000 + 4 * n + region as u32);
            contents[at as usize] = content;
            bench.write(at, &[content]);
            let between = 32 * u64::from(n) + 8 * region;
            let contents: [u32; 8] = std::array::from_fn(|block| 6000 + between as u32 + block as u32);
            bench.write(BLOCKS + between, &contents);
        }
    }
    bench.settle();
    (bench, contents)
}

#[test]
fn what_was_overwritten_goes_back_to_its_place_with_one_write_each() {
    let (mut bench, contents) = overwritten();
    let scattered = bench.read_region(8, &contents);
    assert!(scattered > 8, "{scattered}");
    bench.pass(10 * SECOND);
    let defrag = bench.defrag();
    assert_eq!((defrag.moved_blocks, defrag.noted_regions), (OVERWRITTEN.len() as u64, 0), "{defrag:?}");
    bench.settle();
    assert_eq!(bench.read_region(8, &contents), REGION / 8, "one for each request");
    bench.audit();
    // The pool was empty when it was opened: its allowance follows from the written blocks alone. (It once followed from the stored blocks.)
    let written = bench.world.engine.write_counts().written_blocks;
    assert_eq!(defrag.allowance_blocks + defrag.moved_blocks, written / 2 * 3);
    // No read finds anything scattered now, so nothing more is moved.
    bench.pass(10 * SECOND);
    assert_eq!(bench.defrag().moved_blocks, defrag.moved_blocks);
}

#[test]
fn a_region_that_lies_everywhere_goes_to_an_empty_container() {
    let (mut bench, mut contents) = overwritten();
    for block in (0..REGION).rev() {
        contents[block as usize] = 2000 + block as u32;
        bench.write(block, &[2000 + block as u32]);
        bench.write(REGION + block, &[3000 + block as u32]);
    }
    bench.settle();
    bench.read_region(8, &contents);
    bench.pass(10 * SECOND);
    bench.settle();
    assert_eq!(bench.defrag().moved_blocks, REGION, "{:?}", bench.defrag());
    assert_eq!(bench.read_region(8, &contents), REGION / 8, "one for each request");
    bench.audit();
}

/// Makes a pool that is full but for three containers in a row. Eight blocks of its first region are elsewhere, and other blocks have their target
/// slots. `shared` blocks of the region are shared.
fn displaced_by_others(shared: u64) -> (Bench, Vec<u32>) {
    let (mut bench, contents) = overwritten_in(20 * REGION);
    for block in 0..shared {
        bench.write(3 * REGION + block, &contents[block as usize..][..1]);
    }
    let mut next = 3 * REGION + shared;
    let answer = loop {
        let token = bench.begin_write(next, &[10_000 + next as u32], false);
        let answer = bench.wait(token);
        if answer != Ok(Answer::Done) {
            break answer;
        }
        next += 1;
    };
    assert_eq!(answer, Err(Error::NoSpace));
    bench.trim_blocks(4 * REGION, 3 * REGION);
    bench.settle();
    (bench, contents)
}

/// Regions that had lost target slots to others were given up. In a full pool that is overwritten at random, most of them were never defragmented
/// again. Now such a region goes whole to an empty container, unless blocks of it would have to stay behind.
#[test]
fn a_region_whose_places_others_have_goes_to_an_empty_container() {
    for (shared, moved) in [(0, REGION), (5, 0)] {
        let (mut bench, contents) = displaced_by_others(shared);
        let scattered = bench.read_region(8, &contents);
        bench.pass(10 * SECOND);
        bench.settle();
        let defrag = bench.defrag();
        assert_eq!(
            (defrag.moved_blocks, defrag.noted_regions, defrag.waiting_regions),
            (moved, 0, 0),
            "{shared}: {defrag:?}"
        );
        let reads = bench.read_region(8, &contents);
        assert_eq!(reads, if moved > 0 { REGION / 8 } else { scattered }, "one for each request, or as before");
        bench.audit();
    }
}

/// A power cut at any time of such a move leaves each block as it was.
#[test]
fn a_crash_while_a_whole_region_moves_loses_nothing() {
    let mut moved = Vec::new();
    for step in 0..20 {
        for cut in [Cut::Lost, Cut::Kept] {
            let (mut bench, contents) = displaced_by_others(0);
            bench.read_region(8, &contents);
            bench.pass(SECOND / 10 + step * SECOND / 500);
            moved.push(bench.defrag().moved_blocks);
            bench.crash(cut).unwrap();
            bench.read_region(8, &contents);
            bench.settle();
            bench.audit();
        }
    }
    assert!(moved[0] == 0 && moved[39] == REGION, "some of them before, some after: {moved:?}");
}

#[test]
fn off_moves_nothing_and_a_budget_for_the_day_is_kept() {
    for (defrag, moved) in [(DefragSetting::Off, 0), (DefragSetting::PerDay(1 << 20), OVERWRITTEN.len() as u64)] {
        let (mut bench, contents) = overwritten();
        bench.set_defrag(defrag);
        bench.read_region(8, &contents);
        bench.pass(10 * SECOND);
        assert_eq!(bench.defrag().moved_blocks, moved, "{defrag:?}");
        assert_eq!(bench.defrag().defrag, defrag);
        bench.crash(Cut::Kept).unwrap();
        assert_eq!(bench.defrag().defrag, defrag, "it is kept");
    }
}

/// Each server counted the allowance of moves anew. Blocks written before a restart allowed no moves after it, and a pool that was restarted daily
/// could move all its blocks each day.
#[test]
fn what_may_be_moved_outlives_a_restart_and_is_not_granted_anew() {
    let (mut bench, contents) = overwritten();
    let part = u64::from(bench.geometry().containers) * REGION / 64;
    let before = bench.defrag().allowance_blocks;
    let data = bench.world.engine.status().data_blocks_used;
    assert!(before > data + part, "more than what the pool holds: {before}, {data}");
    bench.reopen();
    let after = bench.defrag().allowance_blocks;
    assert!((before - part..=before).contains(&after), "all of it, down to a 64th of the slots: {before}, {after}");
    bench.read_region(8, &contents);
    bench.pass(10 * SECOND);
    bench.settle();
    let moved = bench.defrag().moved_blocks;
    assert_eq!(moved, OVERWRITTEN.len() as u64);
    for _ in 0..3 {
        bench.crash(Cut::Kept).unwrap();
        assert!(bench.defrag().allowance_blocks <= after - moved, "{:?}", bench.defrag());
    }
}

/// A pool without readers in order moves nothing, however it was written.
#[test]
fn blocks_that_are_read_one_by_one_stay_where_they_are() {
    let (mut bench, contents) = overwritten();
    for round in 0..3 {
        for n in 0..REGION {
            let block = n * 11 % REGION;
            let token = bench.begin_read(block, 1);
            let Ok(Answer::Data(cells)) = bench.wait(token) else { panic!("it can be read") };
            assert_eq!(cells, [contents[block as usize]; CELLS], "round {round}");
        }
        bench.cool();
    }
    bench.pass(10 * SECOND);
    assert_eq!((bench.defrag().noted_regions, bench.defrag().moved_blocks), (0, 0));
}

/// A write to a block that is being moved wins, at whatever step of the move it comes.
#[test]
fn a_write_in_the_middle_of_a_move_is_what_is_read() {
    let mut moved = Vec::new();
    for step in 0..40 {
        let (mut bench, mut contents) = overwritten();
        bench.read_region(8, &contents);
        bench.pass(SECOND / 10 + step * SECOND / 10_000);
        moved.push(bench.defrag().moved_blocks);
        for (n, block) in (0..).zip([5, 60, 30]) {
            contents[block] = 7000 + n;
            bench.write(block as u64, &[7000 + n]);
        }
        bench.pass(10 * SECOND);
        bench.settle();
        bench.read_region(8, &contents);
        bench.audit();
    }
    assert!(moved[2] == 0 && moved[39] > 0, "some of them before, some after: {moved:?}");
}

/// A power cut at any time of a move leaves each block as it was.
#[test]
fn a_crash_in_the_middle_of_a_move_loses_nothing() {
    for step in 0..40 {
        for cut in [Cut::Lost, Cut::Kept] {
            let (mut bench, contents) = overwritten();
            bench.read_region(8, &contents);
            bench.pass(SECOND / 10 + step * SECOND / 10_000);
            bench.crash(cut).unwrap();
            bench.read_region(8, &contents);
            bench.settle();
            bench.audit();
        }
    }
}

/// The scenarios of which every I/O is a crash move blocks, both while the pool is idle and behind readers.
#[test]
fn the_scenarios_move_blocks() {
    // Of the second scenario only the first round runs. It has no idle time after its readers.
    for (number, first, least) in [(20, usize::MAX, 3), (30, 34, 2)] {
        let Scenario { config, operations, .. } = scenario(number);
        let mut run = Run::start(config, Trace::new(false), false).unwrap();
        run.perform(&operations[..first.min(operations.len())]).unwrap();
        let defrag = run.world.engine.status().defrag;
        assert!(defrag.moved_blocks >= least, "{number}: {defrag:?}");
    }
}

/// Regions were defragmented in idle time alone. A reader that never rested found them scattered permanently. Now the blocks that a stream has read
/// are written in order while it continues, from memory. Later regions than the last one that the stream left wait for idle time.
#[test]
fn who_reads_without_a_rest_finds_it_in_order_the_next_time() {
    let (mut bench, contents) = streamed();
    for _ in 0..4 {
        bench.stream(&contents);
    }
    let defrag = bench.defrag();
    assert!(defrag.moved_blocks >= 2 * OVERWRITTEN.len() as u64, "two regions at least: {defrag:?}");
    bench.pass(10 * SECOND);
    let moved = bench.defrag().moved_blocks;
    bench.settle();
    bench.audit();
    // Nothing is scattered now.
    bench.stream(&contents);
    bench.pass(10 * SECOND);
    assert_eq!((bench.defrag().moved_blocks, bench.defrag().noted_regions), (moved, 0), "{:?}", bench.defrag());
}

/// A client that writes and never reads in order causes no moves, however busy the pool is.
#[test]
fn nothing_is_moved_beside_who_writes() {
    let (mut bench, mut contents) = streamed();
    bench.stream(&contents);
    let moved = bench.defrag().moved_blocks;
    for round in 0..4 {
        for (n, content) in contents.iter_mut().enumerate() {
            *content = 9000 + 1000 * round + n as u32;
            bench.write(n as u64, &[*content]);
        }
    }
    assert!(bench.defrag().moved_blocks <= moved + 4, "what was on its way: {moved}, {:?}", bench.defrag());
}

/// Checks that pools with little or much free space come into order each day, though all of the volume is overwritten at random, and that nothing is left to
/// do while blocks may be moved. Regions were given up while gc emptied containers for others, containers with blocks that have replicas could not be emptied,
/// containers with the only free slots were open for writes, a shortage of slots made the pool forget its readers, and so did two looks for one reader.
#[test]
fn an_aged_pool_comes_into_order_in_idle_time() {
    for disk in ["ssd", "hdd:wd1600aajs"] {
        for space in [1 << 20, 32 << 20] {
            let disk = Disk::from_spec(disk).expect("a known disk");
            let setup = Setup {
                data: 64 << 20,
                space,
                memory: 64 << 20,
                days: 4,
                permille: 1000,
                defrag: DefragSetting::Auto,
                in_order: 0,
                is_uniform: false,
                is_unread: false,
                passes: 1,
                rest: 3600,
                device: disk.traits(),
            };
            let month = measure(setup, disk, |_| {}).unwrap();
            for day in &month.days {
                assert!(month.permille(day) >= 850, "{:?}: {month:?}", (space, setup.device));
                assert_eq!((day.left.regions, day.left.given_up), (0, 0), "{:?}: {month:?}", (space, setup.device));
                assert!(2 * day.moved <= 3 * day.written, "{:?}: {month:?}", (space, setup.device));
            }
        }
    }
}
