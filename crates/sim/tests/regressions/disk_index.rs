//! The complete index on disk. With it, `full` shares contents that the index in memory has evicted. The tests cover when a pool has one, and its
//! state after crashes, damage and lack of space. (The swarm has it in most of its runs. The audit there compares it with the summaries.)

use engine::superblock::TreeId;
use engine::{
    Command, DedupCommand, DiskIndexAudit, DiskIndexStatus, KeepRuns, Limits, PassState, Policy, Superblock, Timing,
    VolumeId, VolumePropertyChange, WriteCounts,
};
use sim::content::Content;
use sim::random::Random;
use sim::runs::config::Config;
use sim::runs::workload::policy;
use sim::world::World;
use sim::world::disk::Cut;

use crate::bench::{Bench, SECOND};

/// The most blocks of a write.
const PIECE: u64 = 8;

/// Makes a configuration with space for `containers` containers, and an index of 16 entries in memory.
fn forgetful(containers: u32) -> Config {
    let mut config = Config::small(1);
    let geometry = &mut config.parameters.geometry;
    (geometry.slots_per_container, geometry.containers) = (64, containers);
    (geometry.piece_blocks, geometry.journal_blocks) = (PIECE as u32, 1024);
    geometry.metadata_blocks = 32 * containers + 1024;
    config.limits = Limits { index_entries: 16, pages: 512, delta_entries: 1024, discard_leaves: 64, ..config.limits };
    config
}

fn status(bench: &Bench) -> DiskIndexStatus {
    bench.world.engine.disk_index_status()
}

fn writes(bench: &Bench) -> WriteCounts {
    bench.world.engine.volumes().next().expect("there is one").writes.counts()
}

/// Lets the pool become idle: everything is merged, and an index that is wanted is complete.
fn settle(bench: &mut Bench) {
    bench.command(Command::Settle);
    for _ in 0..1000 {
        if status(bench).buckets == 0 || status(bench).is_complete {
            return bench.pass(SECOND);
        }
        bench.pass(SECOND);
    }
    panic!("the index is not complete: {:?}", status(bench));
}

fn audit(bench: &mut Bench) -> Option<DiskIndexAudit> {
    bench.audit();
    let disk = &bench.world.disk;
    bench.world.engine.check_disk_index(&mut |offset, length| World::read_bytes(disk, offset, length))
}

/// Returns the pages of the index as the superblock on disk has it: level and byte offset of each.
fn pages(bench: &Bench) -> Vec<(u8, u64)> {
    let geometry = bench.geometry();
    let read = |block: u64| World::read_bytes(&bench.world.disk, block * geometry.block(), geometry.block_size);
    let superblocks = (0..2).filter_map(|parity| Superblock::decode(&read(geometry.superblock_block(0, parity))?).ok());
    let newest = superblocks.max_by_key(|superblock| superblock.epoch).expect("there is one");
    let root = newest.roots[TreeId::DiskIndex as usize];
    let mut found = vec![(root.height, root.pointer.location)];
    let mut at = 0;
    while let Some(&(level, location)) = found.get(at) {
        at += 1;
        if level > 0 {
            let page = read(geometry.metadata_start() + u64::from(location) - 1).expect("it can be read");
            let children =
                page.chunks_exact(16).map(|child| u32::from_le_bytes([child[0], child[1], child[2], child[3]]));
            found.extend(children.filter(|&child| child > 0).map(|child| (level - 1, child)));
        }
    }
    let offset = |location: u32| (geometry.metadata_start() + u64::from(location) - 1) * geometry.block();
    found.into_iter().map(|(level, location)| (level, offset(location))).collect()
}

/// Writes blocks with unique contents, numbered from `content` on.
fn fill(bench: &mut Bench, first: u64, blocks: u64, content: u32) {
    for at in (0..blocks).step_by(PIECE as usize) {
        let count = PIECE.min(blocks - at);
        let contents: Vec<u32> = (at..at + count).map(|number| content + number as u32).collect();
        bench.write(first + at, &contents);
    }
}

fn set_policy(bench: &mut Bench, text: &str) {
    let volume = bench.volume;
    bench.command(Command::SetVolume {
        volume,
        change: VolumePropertyChange { policy: Some(Some(policy(text))), ..VolumePropertyChange::default() },
    });
}

/// Makes a pool that was filled under `full`, and became idle.
fn filled(containers: u32, volume: u64, blocks: u64) -> Bench {
    let mut bench = Bench::new(forgetful(containers), volume);
    fill(&mut bench, 0, blocks, 1);
    settle(&mut bench);
    bench
}

#[test]
fn full_removes_all_of_ten_thousand_blocks_that_are_written_again() {
    let mut bench = filled(320, 20_000, 10_000);
    assert_eq!(audit(&mut bench), Some(DiskIndexAudit { entries: 10_000, stale: 0, absent: 0, denied: 0 }));
    let before = writes(&bench);
    fill(&mut bench, 10_000, 10_000, 1);
    let (after, index) = (writes(&bench), status(&bench));
    assert_eq!((before.written_blocks, after.written_blocks), (10_000, 10_000));
    assert_eq!((before.removed.blocks, after.removed.blocks), (0, 10_000));
    assert!(index.hits > 9_900 && index.lookups >= 10_000 + index.hits && index.loads > 0, "{index:?}");
    assert_eq!(index.entries, 10_000);
    settle(&mut bench);
    for block in [0, 1, 4_999, 9_999] {
        bench.assert_holds(10_000 + block, block as u32 + 1);
    }
    assert_eq!(audit(&mut bench), Some(DiskIndexAudit { entries: 10_000, stale: 0, absent: 0, denied: 0 }));
}

/// New contents end at the filter, and known ones never do.
#[test]
fn the_filter_denies_new_contents_once_it_knows_their_buckets() {
    let mut config = forgetful(320);
    // With less memory the filter covers some of the buckets.
    config.limits.buffers += 512;
    let mut bench = Bench::new(config, 20_000);
    fill(&mut bench, 0, 10_000, 1);
    settle(&mut bench);
    let before = status(&bench);
    assert!(before.filter_bytes > 0 && before.filter_buckets == before.buckets, "{before:?}");
    fill(&mut bench, 10_000, 4_000, 100_000);
    let after = status(&bench);
    let (filtered, wrong) = (after.filtered - before.filtered, after.false_answers - before.false_answers);
    assert!(filtered > 3_900 && wrong < 100 && filtered + wrong <= 4_000, "{before:?} {after:?}");
    // After an opening it learns each bucket from the first lookup in it.
    bench.reopen();
    let opened = status(&bench);
    fill(&mut bench, 14_000, 2_000, 200_000);
    fill(&mut bench, 16_000, 4_000, 300_000);
    let after = status(&bench);
    assert!(after.filtered - opened.filtered > 4_500, "{after:?}");
    assert!(after.lookups - after.filtered < 1_500, "{after:?}");
    let written = writes(&bench).written_blocks;
    fill(&mut bench, 10_000, 10_000, 1);
    assert_eq!(writes(&bench).written_blocks, written, "all are known");
    settle(&mut bench);
    assert_eq!(audit(&mut bench).map(|audit| (audit.stale, audit.denied)), Some((0, 0)));
    // Without an index there is none.
    set_policy(&mut bench, "select");
    settle(&mut bench);
    assert_eq!((status(&bench).filter_bytes, status(&bench).filter_buckets), (0, 0));
}

#[test]
fn select_does_not_look_into_it() {
    let mut bench = filled(320, 20_000, 10_000);
    set_policy(&mut bench, "select");
    let lookups = status(&bench).lookups;
    fill(&mut bench, 10_000, 10_000, 1);
    assert_eq!((writes(&bench).removed.blocks, status(&bench).lookups), (0, lookups));
}

#[test]
fn there_is_one_only_while_a_volume_has_the_policy_full() {
    let mut bench = Bench::new(forgetful(16), 512);
    set_policy(&mut bench, "select");
    fill(&mut bench, 0, 500, 1);
    settle(&mut bench);
    assert_eq!(audit(&mut bench), None);
    let without = bench.world.engine.status().metadata_blocks_used;
    // The index is built from the existing data.
    set_policy(&mut bench, "full");
    settle(&mut bench);
    assert_eq!(audit(&mut bench), Some(DiskIndexAudit { entries: 500, stale: 0, absent: 0, denied: 0 }));
    let written = writes(&bench).written_blocks;
    fill(&mut bench, 3, 500, 1);
    assert!(writes(&bench).written_blocks - written < 30, "all but what lies in the same place");
    // Another policy gives the index back whole.
    set_policy(&mut bench, "idedup");
    settle(&mut bench);
    assert_eq!(status(&bench), DiskIndexStatus { buckets: 0, entries: 0, is_complete: false, ..status(&bench) });
    assert_eq!(audit(&mut bench), None);
    let used = bench.world.engine.status().metadata_blocks_used;
    assert!(used <= without + 4, "{used} of metadata are in use, {without} before");
}

#[test]
fn what_is_overwritten_and_discarded_leaves_it() {
    let mut bench = filled(16, 512, 500);
    fill(&mut bench, 100, 200, 10_000);
    bench.trim_blocks(0, 50);
    settle(&mut bench);
    assert_eq!(audit(&mut bench), Some(DiskIndexAudit { entries: 450, stale: 0, absent: 0, denied: 0 }));
}

#[test]
fn crashes_at_any_time_while_it_is_built_cost_savings_at_most() {
    for steps in (0..400).step_by(7) {
        let mut bench = Bench::new(forgetful(16), 512);
        set_policy(&mut bench, "native");
        fill(&mut bench, 0, 300, 1);
        bench.command(Command::Settle);
        let volume = bench.volume;
        let full = Some(Some(Policy::Full));
        bench.begin_command(Command::SetVolume {
            volume,
            change: VolumePropertyChange { policy: full, ..VolumePropertyChange::default() },
        });
        for _ in 0..steps {
            bench.step_once();
        }
        let cut = if steps % 2 == 0 { Cut::Lost } else { Cut::Torn };
        bench.crash(cut).expect("the pool opens");
        set_policy(&mut bench, "full");
        settle(&mut bench);
        assert_eq!(
            audit(&mut bench),
            Some(DiskIndexAudit { entries: 300, stale: 0, absent: 0, denied: 0 }),
            "{steps} steps"
        );
        // A crash also comes while the index is cut off.
        bench.begin_command(Command::SetVolume {
            volume,
            change: VolumePropertyChange { policy: Some(Some(policy("select"))), ..VolumePropertyChange::default() },
        });
        for _ in 0..steps / 4 {
            bench.step_once();
        }
        bench.crash(cut).expect("the pool opens");
        settle(&mut bench);
        let audit = audit(&mut bench);
        assert!(audit.is_none_or(|audit| audit.stale + audit.absent == 0), "{steps} steps: {audit:?}");
        assert_eq!(
            audit.is_some(),
            bench.world.engine.volumes().all(|volume| volume.properties.policy() == Some(Policy::Full))
        );
    }
}

#[test]
fn a_page_that_is_lost_is_an_empty_bucket_and_is_entered_again() {
    for level in [0, 1] {
        let mut bench = filled(64, 8_000, 3_000);
        bench.reopen();
        assert!(status(&bench).is_complete);
        let pages = pages(&bench);
        let mut random = Random::new(level);
        let of_level: Vec<u64> = pages.iter().filter(|(at, _)| *at == level as u8).map(|&(_, page)| page).collect();
        let damaged = random.pick(&of_level);
        let block = damaged / bench.geometry().block();
        let (sound, size) = (bench.world.disk.read(block).clone(), bench.geometry().block_size);
        let mut bytes = sound.to_bytes(size).to_vec();
        bytes[100] ^= 1;
        bench.world.disk.put(block, Content::Metadata(bytes.into()));
        // Lookups continue, and find the rest.
        let before = writes(&bench).written_blocks;
        fill(&mut bench, 4_000, 3_000, 1);
        let missed = writes(&bench).written_blocks - before;
        let most = if level == 0 { 64 } else { 3_000 };
        assert!((1..=most).contains(&missed), "level {level}: {missed} are not found");
        settle(&mut bench);
        bench.pass(10 * SECOND);
        settle(&mut bench);
        assert!(bench.world.engine.status().failure.is_none());
        if level > 0 {
            // The subtree below the page comes back when it can be read again.
            bench.world.disk.put(block, sound);
            bench.reopen();
            settle(&mut bench);
        }
        let found = audit(&mut bench).expect("there is one");
        // The bucket may be too small for the contents that the pool now stores twice, all of them in this bucket.
        assert!(found.stale == 0 && found.absent <= missed, "level {level}: {found:?}");
        // One entry of each content is enough for these.
        let before = writes(&bench).written_blocks;
        fill(&mut bench, 500, 3_000, 1);
        assert_eq!(writes(&bench).written_blocks, before, "level {level}");
    }
}

#[test]
fn it_is_given_up_before_a_write_fails_for_want_of_metadata() {
    // Metadata for the maps of a few hundred scattered blocks, and not for more.
    let mut config = forgetful(64);
    config.parameters.geometry.metadata_blocks = 900;
    config.limits = Limits { delta_entries: 64, ..config.limits };
    let mut bench = Bench::new(config, 1 << 20);
    fill(&mut bench, 0, 1_000, 1);
    settle(&mut bench);
    assert!(status(&bench).is_complete);
    let mut had_one_last = true;
    for number in 0..2_000u64 {
        let token = bench.begin_write(2_000 + number * 500, &[100_000 + number as u32], false);
        let result = bench.wait(token);
        let has_one = status(&bench).buckets > 0;
        if result.is_err() {
            assert_eq!(result, Err(engine::Error::NoSpace));
            assert!(!has_one && !had_one_last, "the index was there when a write failed");
            bench.audit();
            return;
        }
        had_one_last = has_one;
    }
    panic!("metadata never ran out");
}

#[test]
fn a_pool_that_grows_has_more_buckets_when_they_are_needed() {
    let mut bench = filled(16, 4_000, 900);
    let buckets = status(&bench).buckets;
    let capacity = 40 * 64 * bench.geometry().block();
    let grown = bench.geometry().grown(capacity).expect("it can grow");
    bench.world.disk.grow(grown.total_blocks());
    bench.grow(capacity);
    settle(&mut bench);
    assert!(status(&bench).buckets > 2 * buckets);
    assert_eq!(audit(&mut bench), Some(DiskIndexAudit { entries: 900, stale: 0, absent: 0, denied: 0 }));
    fill(&mut bench, 1_000, 900, 1);
    assert_eq!(writes(&bench).written_blocks, 900);
}

/// Whatever happens to a pool, a second write finds all contents that are in it when it becomes idle.
#[test]
fn whatever_is_in_the_pool_is_found_by_a_second_write() {
    for seed in 0..25 {
        let mut random = Random::new(seed);
        let mut bench = Bench::new(forgetful(48), 4_000);
        let mut contents = vec![0u32; 1_000];
        for number in 0..random.between(200, 900) as u32 {
            let first = random.below(990);
            match random.below(20) {
                0 => {
                    bench.trim_blocks(first, 5);
                    contents[first as usize..first as usize + 5].fill(0);
                }
                1 => set_policy(&mut bench, random.pick(&["full", "full", "full", "select", "native"])),
                2 if random.one_in(6) => {
                    // Answered writes are there: everything was made durable before.
                    let token = bench.begin_flush();
                    bench.wait(token).expect("a flush");
                    bench.crash(random.pick(&[Cut::Lost, Cut::Torn, Cut::Mixed])).expect("the pool opens");
                }
                3 => bench.pass(SECOND / 3),
                _ => {
                    let count = random.between(1, PIECE) as usize;
                    let known = random.below(u64::from(number) * 4 + 1) as u32 + 1;
                    let start = if random.one_in(3) { known } else { number * 8 + 10_000 };
                    let new: Vec<u32> = (start..start + count as u32).collect();
                    bench.write(first, &new);
                    contents[first as usize..first as usize + count].copy_from_slice(&new);
                }
            }
        }
        set_policy(&mut bench, "full");
        settle(&mut bench);
        let found = audit(&mut bench).expect("there is one");
        assert_eq!(found.stale, 0, "seed {seed}");
        let live: Vec<u32> = contents.into_iter().filter(|&content| content != 0).collect();
        let before = writes(&bench).written_blocks;
        for (at, piece) in live.chunks(PIECE as usize).enumerate() {
            bench.write(2_000 + at as u64 * PIECE, piece);
        }
        let missed = writes(&bench).written_blocks - before;
        assert_eq!(missed, 0, "seed {seed}: {found:?}");
    }
}

/// A pool gave its index up, and a page of pointers in it could not be read. Such a page stays on the list of subtrees that are cut off and to be
/// walked. A long trim that cuts off more subtrees than the list has space for goes alone, when the list is empty. Here it never was.
///
/// The trim waited for one checkpoint after the other, and all writes behind it, until the pool was opened again.
#[test]
fn a_long_trim_does_not_wait_for_a_page_that_cannot_be_walked() {
    let mut config = forgetful(64);
    config.limits = Limits { discards: 16, ..config.limits };
    let blocks = 1 << 36;
    let mut bench = Bench::new(config, blocks);
    fill(&mut bench, 0, 3_000, 1);
    settle(&mut bench);
    bench.reopen();
    let &(_, page) = pages(&bench).iter().find(|(level, _)| *level == 1).expect("the index has pages of pointers");
    bench.rot(page / bench.geometry().block());
    set_policy(&mut bench, "native");
    bench.settle();
    bench.pass(10 * SECOND);
    assert_eq!(status(&bench).buckets, 0);
    bench.trim_blocks(1, blocks - 2);
    bench.write(5, &[7]);
    bench.assert_holds(0, 1);
    bench.assert_holds(5, 7);
    assert!(bench.world.engine.status().failure.is_none());
}

impl Bench {
    fn set_timing(&mut self, timing: Timing) {
        let (timing, keep_runs) = (Some(Some(timing)), Some(KeepRuns::Off));
        let change = VolumePropertyChange { timing, keep_runs, ..VolumePropertyChange::default() };
        self.command(Command::SetVolume { volume: self.volume, change });
    }

    fn index_pages(&self) -> u64 {
        self.world.engine.counters().pages_written.disk_index
    }
}

/// Makes a pool that was filled inline, and then overwritten in part while it was offline.
fn behind() -> Bench {
    let mut bench = filled(64, 8_000, 2_000);
    bench.set_timing(Timing::Offline);
    fill(&mut bench, 1_000, 1_500, 10_000);
    fill(&mut bench, 3_000, 500, 10_000);
    bench
}

/// Checkpoints kept the index on disk up to date for volumes that look nothing up: a page read and written for nearly each block of a large pool. Now
/// it falls behind, and the pass writes each page of it once.
#[test]
fn an_index_falls_behind_what_is_written_offline_and_the_pass_brings_it_up_to_date() {
    let mut bench = filled(64, 8_000, 2_000);
    bench.set_timing(Timing::Offline);
    let before = bench.index_pages();
    fill(&mut bench, 1_000, 1_500, 10_000);
    fill(&mut bench, 3_000, 500, 10_000);
    bench.command(Command::Settle);
    let index = status(&bench);
    assert_eq!((index.is_behind, index.is_complete, bench.index_pages()), (true, false, before), "{index:?}");
    let found = audit(&mut bench).expect("there is one");
    assert_eq!(found, DiskIndexAudit { entries: 2_000, stale: 1_000, absent: 2_000, denied: 0 });
    assert_eq!(index.entries, 1_000);
    bench.start_pass();
    bench.run_pass(SECOND);
    bench.command(Command::Settle);
    // 500 of the 3,000 were stored twice.
    assert_eq!(audit(&mut bench), Some(DiskIndexAudit { entries: 2_500, stale: 0, absent: 0, denied: 0 }));
    let index = status(&bench);
    assert_eq!((index.is_behind, index.is_complete, index.entries), (false, true, 2_500), "{index:?}");
    let written = bench.index_pages() - before;
    assert!(written <= 2 * index.buckets, "{written} pages of {}", index.buckets);
    // Blocks written offline are found inline.
    bench.set_timing(Timing::Inline);
    let before = writes(&bench).written_blocks;
    fill(&mut bench, 5_000, 1_500, 10_000);
    assert_eq!(writes(&bench).written_blocks, before);
}

/// An interrupted pass leaves the index behind, and so does a pass during offline writes. The next one does not.
#[test]
fn a_pass_that_was_interrupted_leaves_the_index_to_the_next() {
    for steps in (0..60).step_by(3) {
        let mut bench = behind();
        bench.start_pass();
        for _ in 0..steps * 10 {
            bench.step_once();
        }
        if steps % 2 == 0 {
            bench.crash(Cut::Lost).expect("the pool opens");
        } else {
            fill(&mut bench, 7_000, 100, 20_000);
        }
        bench.pass(100 * SECOND);
        for _ in 0..2 {
            bench.start_pass();
            bench.run_pass(SECOND);
        }
        bench.command(Command::Settle);
        let (index, found) = (status(&bench), audit(&mut bench).expect("there is one"));
        assert!(index.is_complete && found.absent == 0 && found.stale == 0, "{steps} steps: {index:?}, {found:?}");
    }
}

/// A stopped pass left an index behind permanently, though volumes used it again. Now another pass begins automatically.
#[test]
fn an_index_that_is_behind_gets_a_pass_when_volumes_look_into_it_again() {
    let mut bench = behind();
    bench.start_pass();
    bench.command(Command::Dedup { command: DedupCommand::Stop });
    bench.set_timing(Timing::Inline);
    bench.pass(100 * SECOND);
    bench.command(Command::Settle);
    assert!(status(&bench).is_complete, "{:?}", status(&bench));
    assert_eq!(audit(&mut bench), Some(DiskIndexAudit { entries: 2_500, stale: 0, absent: 0, denied: 0 }));
}

/// Blocks of volumes that take no part in a pass are in the index, too. Buckets are written whole, with all their entries.
#[test]
fn blocks_of_volumes_that_take_no_part_in_a_pass_stay_in_the_index() {
    let mut bench = behind();
    let size = 2_000 * bench.geometry().block();
    bench.command(Command::CreateVolume { name: "other", size, policy: Some(Policy::Native) });
    bench.volume = VolumeId(2);
    fill(&mut bench, 0, 700, 30_000);
    bench.volume = VolumeId(1);
    bench.command(Command::Settle);
    bench.start_pass();
    bench.run_pass(SECOND);
    // Blocks that are defragmented meanwhile leave work to another pass, which begins automatically.
    bench.pass(300 * SECOND);
    bench.command(Command::Settle);
    assert_eq!(audit(&mut bench), Some(DiskIndexAudit { entries: 3_200, stale: 0, absent: 0, denied: 0 }));
    assert!(status(&bench).is_complete);
}

/// The pass writes each bucket with its own findings and with the changes of later checkpoints.
#[test]
fn what_is_entered_beside_a_pass_is_not_lost_with_the_bucket_it_is_in() {
    for steps in [1, 2, 3, 5, 8, 13] {
        let mut bench = behind();
        let size = 4_000 * bench.geometry().block();
        bench.command(Command::CreateVolume { name: "other", size, policy: Some(Policy::Full) });
        bench.start_pass();
        bench.volume = VolumeId(2);
        let mut written = 0;
        while bench.dedup().state == PassState::Running && written < 800 {
            fill(&mut bench, written, PIECE, 50_000 + written as u32);
            written += PIECE;
            for _ in 0..steps {
                bench.step_once();
            }
        }
        bench.volume = VolumeId(1);
        bench.run_pass(SECOND);
        bench.command(Command::Settle);
        let (index, found) = (status(&bench), audit(&mut bench).expect("there is one"));
        assert!(index.is_complete && found.absent == 0, "{steps} steps, {written} blocks: {index:?}, {found:?}");
    }
}

/// Contents that a pass shares in whole runs are found by their canonical slots.
#[test]
fn contents_of_runs_that_are_shared_are_found() {
    let mut bench = filled(64, 8_000, 1_000);
    bench.set_timing(Timing::Offline);
    let size = 4_000 * bench.geometry().block();
    bench.command(Command::CreateVolume { name: "other", size, policy: Some(policy("select")) });
    let change = VolumePropertyChange {
        timing: Some(Some(Timing::Offline)),
        keep_runs: Some(KeepRuns::On),
        ..VolumePropertyChange::default()
    };
    bench.command(Command::SetVolume { volume: VolumeId(2), change });
    bench.volume = VolumeId(2);
    // Whole runs of the other volume, in another order, and new contents.
    for run in 0..8u64 {
        fill(&mut bench, 100 * run, 96, 1 + 100 * (7 - run) as u32);
    }
    fill(&mut bench, 900, 600, 5_000);
    bench.volume = VolumeId(1);
    bench.set_timing(Timing::Inline);
    bench.pass(400 * SECOND);
    bench.command(Command::Settle);
    assert!(status(&bench).is_complete && bench.dedup().shared_blocks > 700, "{:?}", bench.dedup());
    let before = writes(&bench).written_blocks;
    fill(&mut bench, 3_000, 1_000, 1);
    fill(&mut bench, 5_000, 600, 5_000);
    assert_eq!(writes(&bench).written_blocks, before, "all of it is found");
    bench.audit();
}
