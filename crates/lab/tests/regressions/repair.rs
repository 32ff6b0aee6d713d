//! Damage and repair: whatever is damaged, the pool opens after a repair, its audit is clean, and every block reads as it was
//! written or, where the repair said so, not at all.

use engine::{Command, Error, Lost, Policy};
use lab::config::Config;
use lab::content::{CELLS, Content};
use lab::disk::{Cut, Disk};
use lab::repair;
use lab::world::Answer;

use crate::bench::Bench;

/// Blocks of the volume: three levels of its map, of which the last is not full.
const BLOCKS: u64 = 5000;
/// Where something is written.
const PLACES: [u64; 5] = [0, 70, 2040, 4096, 4900];

/// A pool with something of everything: shared and single blocks, zeroes, trims, in the trees and in the journal only.
struct Pool {
    config: Config,
    disk: Disk,
    /// What each block has held, the newest last.
    history: Vec<Vec<u32>>,
}

fn pool() -> Pool {
    let mut config = Config::small(1);
    (config.parameters.geometry.containers, config.parameters.geometry.metadata_blocks) = (24, 400);
    let mut bench = Bench::new(config.clone(), BLOCKS);
    let mut history = vec![vec![0]; BLOCKS as usize];
    let write = |bench: &mut Bench, history: &mut [Vec<u32>], block: u64, content: u32| {
        bench.write_durably(block, content);
        history[block as usize].push(content);
    };
    for (number, place) in PLACES.into_iter().enumerate() {
        for i in 0..12 {
            // Every third content is that of another place too.
            let content = if i % 3 == 0 { 7 + i as u32 } else { (1000 * number + i as usize) as u32 + 100 };
            write(&mut bench, &mut history, place + i, content);
        }
        write(&mut bench, &mut history, place + 20, 0);
    }
    bench.settle();
    // The journal has the rest: overwrites, shares of merged and of new blocks, new places.
    for (i, place) in PLACES.into_iter().enumerate() {
        write(&mut bench, &mut history, place, 5000 + i as u32);
        write(&mut bench, &mut history, place + 1, 7);
        write(&mut bench, &mut history, place + 40, 5000);
    }
    write(&mut bench, &mut history, 3333, 6000);
    bench.trim_blocks(2045, 3);
    (2045..2048).for_each(|block| history[block].push(0));
    write(&mut bench, &mut history, 3334, 6001);
    let mut disk = bench.world.disk.clone();
    disk.crash(Cut::Kept, &mut lab::random::Random::new(1));
    Pool { config, disk, history }
}

fn is_in(lost: &[Lost], block: u64) -> bool {
    lost.iter().any(|lost| (lost.first..lost.first + lost.blocks).contains(&block))
}

/// Blocks that are looked at: all that were written, and some of the others.
fn looked_at() -> impl Iterator<Item = u64> {
    (0..BLOCKS).filter(|block| {
        block % 97 == 0
            || (3330..3340).contains(block)
            || PLACES.iter().any(|place| (*place..place + 44).contains(block))
    })
}

/// Repairs a disk and holds the pool against what was written. Where records were lost, older contents are right too.
fn repaired(pool: &Pool, disk: &Disk, data: bool, what: &str) {
    let plan = repair::plan(disk, &pool.config, data).unwrap_or_else(|error| panic!("{what}: {error}"));
    // A damaged record beyond the last watermark looks like the end that a crash leaves: no one can tell.
    let geometry = pool.config.parameters.geometry;
    let mut journal = geometry.journal_start()..geometry.meta_map_start();
    let prefix = journal.any(|block| disk.read(block) != pool.disk.read(block));
    let is_gone = plan.problems.iter().any(|problem| problem.contains("volumes are lost"));
    let lost = plan.lost.clone();
    let mut disk = disk.clone();
    repair::carry_out(&mut disk, &plan);
    let mut bench = Bench::on_disk(pool.config.clone(), disk, what);
    if is_gone {
        assert_eq!(bench.world.engine.volumes().count(), 0, "{what}");
        return bench.audit();
    }
    bench.volume = bench.world.engine.volumes().next().unwrap_or_else(|| panic!("{what}: the volume is gone")).id;
    let look = |bench: &mut Bench, healed: Option<u64>| {
        for block in looked_at().filter(|block| Some(*block) != healed) {
            let found = bench.read(block);
            if is_in(&lost, block) {
                assert_eq!(found, Err(Error::Io), "{what}: block {block} is said to be lost");
                continue;
            }
            let Ok(Answer::Data(cells)) = found else {
                panic!("{what}: block {block} came to {found:?}, lost: {lost:?}")
            };
            let values = &pool.history[block as usize];
            let legal = if prefix { &values[..] } else { &values[values.len() - 1..] };
            assert!(
                legal.iter().any(|&value| cells == [value; CELLS]),
                "{what}: block {block} is {cells:?}, not {legal:?}"
            );
        }
    };
    look(&mut bench, None);
    bench.audit();
    // Writing makes a lost block whole again, and leaves the others as they are; so does a discard.
    if let Some(first) = lost.first().map(|lost| lost.first) {
        bench.write_durably(first, 4711);
        bench.settle();
        bench.assert_holds(first, 4711);
        look(&mut bench, Some(first));
        bench.trim_blocks(0, BLOCKS);
        bench.audit();
        bench.assert_holds(first, 0);
    }
    let volume = bench.volume;
    bench.command(Command::DeleteVolume { volume });
    bench.audit();
    assert_eq!(bench.world.engine.status().data_blocks_used, 0, "{what}");
}

fn damaged(content: &Content, block_size: u32, way: usize) -> Content {
    let mut bytes = content.to_bytes(block_size).to_vec();
    match way {
        0 => bytes[100] ^= 4,
        1 => bytes.fill(0),
        _ => bytes.fill(0xff),
    }
    Content::Metadata(bytes.into())
}

#[test]
fn a_healthy_pool_is_repaired_to_itself() {
    let pool = pool();
    let plan = repair::plan(&pool.disk, &pool.config, true).unwrap();
    assert_eq!((plan.problems.len(), plan.lost.len()), (0, 0), "{:?}", plan.problems);
    repaired(&pool, &pool.disk, true, "nothing");
}

/// Each block outside of the data, one after the other, in three ways.
#[test]
fn whatever_page_is_damaged_a_repair_leads_to_a_pool_that_opens() {
    let pool = pool();
    let geometry = pool.config.parameters.geometry;
    let mut noticed = 0;
    for block in 0..geometry.data_start() {
        for way in 0..3 {
            let mut disk = pool.disk.clone();
            let damaged = damaged(disk.read(block), geometry.block_size, way);
            if damaged == *disk.read(block) || disk.read(block).to_cells() == [0; CELLS] {
                continue;
            }
            disk.put(block, damaged);
            noticed += usize::from(!repair::plan(&disk, &pool.config, false).unwrap().problems.is_empty());
            repaired(&pool, &disk, false, &format!("block {block}, way {way}"));
        }
    }
    assert!(noticed > 60, "{noticed}");
}

/// Pairs of blocks, so that several trees are damaged at once.
#[test]
fn whatever_two_pages_are_damaged_a_repair_leads_to_a_pool_that_opens() {
    let pool = pool();
    let geometry = pool.config.parameters.geometry;
    let used: Vec<u64> = (geometry.journal_start()..geometry.data_start())
        .filter(|&block| pool.disk.read(block).to_cells() != [0; CELLS])
        .collect();
    let mut random = lab::random::Random::new(5);
    for number in 0..150 {
        let mut disk = pool.disk.clone();
        let blocks = [random.pick(&used), random.pick(&used), random.pick(&used)];
        for block in blocks {
            disk.put(block, damaged(pool.disk.read(block), geometry.block_size, 1));
        }
        repaired(&pool, &disk, number % 2 == 0, &format!("blocks {blocks:?}"));
    }
}

/// Rotten data is found where the repair reads it, named, and given up.
#[test]
fn rotten_data_becomes_lost_where_a_repair_reads_it() {
    let pool = pool();
    let geometry = pool.config.parameters.geometry;
    let mut found = 0;
    for slot in 0..geometry.slots() {
        let block = geometry.slot_block(slot);
        if pool.disk.read(block).to_cells() == [0; CELLS] {
            continue;
        }
        let mut disk = pool.disk.clone();
        disk.put(block, Content::Payload([999_999; CELLS]));
        found += usize::from(!repair::plan(&disk, &pool.config, true).unwrap().lost.is_empty());
        repaired(&pool, &disk, true, &format!("slot {slot}"));
    }
    assert!(found > 20, "{found}");
}

/// A crash in the middle of a repair: the pool is as damaged as it was, no more, and the next repair ends it.
#[test]
fn a_repair_that_is_cut_off_can_be_repeated() {
    let pool = pool();
    let geometry = pool.config.parameters.geometry;
    let used = (geometry.metadata_start()..geometry.data_start())
        .filter(|&block| pool.disk.read(block).to_cells() != [0; CELLS]);
    for block in used.step_by(3) {
        let mut disk = pool.disk.clone();
        disk.put(block, damaged(pool.disk.read(block), geometry.block_size, 0));
        let plan = repair::plan(&disk, &pool.config, false).unwrap();
        let writes = repair::writes(&disk, &plan);
        // All but the superblocks that put it into force.
        for kept in (0..writes.len() - 1).step_by(2) {
            let mut disk = disk.clone();
            for (block, content) in &writes[..kept] {
                disk.put(*block, content.clone());
            }
            let again = repair::plan(&disk, &pool.config, false).unwrap();
            assert!(
                again.lost.iter().map(|lost| lost.blocks).sum::<u64>()
                    <= plan.lost.iter().map(|lost| lost.blocks).sum()
            );
            repaired(&pool, &disk, false, &format!("block {block}, {kept} writes of the repair"));
        }
    }
}

/// Growing a volume over what a repair gave up: what is added reads as zeroes.
#[test]
fn a_volume_that_grows_after_a_repair_is_zero_where_it_grew() {
    let pool = pool();
    let geometry = pool.config.parameters.geometry;
    for block in geometry.metadata_start()..geometry.data_start() {
        let mut disk = pool.disk.clone();
        disk.put(block, damaged(pool.disk.read(block), geometry.block_size, 1));
        let plan = repair::plan(&disk, &pool.config, false).unwrap();
        if !is_in(&plan.lost, BLOCKS - 1) {
            continue;
        }
        repair::carry_out(&mut disk, &plan);
        let mut bench = Bench::on_disk(pool.config.clone(), disk, "grown");
        bench.volume = bench.world.engine.volumes().next().unwrap().id;
        let (volume, size) = (bench.volume, 3 * BLOCKS * geometry.block());
        bench.command(Command::ResizeVolume { volume, size });
        assert_eq!(bench.read(BLOCKS - 1), Err(Error::Io));
        (BLOCKS..3 * BLOCKS).step_by(61).for_each(|block| bench.assert_holds(block, 0));
        bench.command(Command::SetVolume { volume, policy: Some(Some(Policy::Native)), read_only: None });
        bench.audit();
    }
}
