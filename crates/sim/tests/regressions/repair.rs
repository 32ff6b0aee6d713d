//! Damage and repair. Whatever is damaged, the pool opens after a repair, and its audit is clean. Every block reads as it was written or, where the
//! repair reported a loss, not at all.

use std::collections::{BTreeMap, BTreeSet};

use engine::{BlockRange, Command, Error, Flaw, Policy, PoolChange, RepairError, VolumeId, VolumePropertyChange};
use sim::content::{CELLS, Content};
use sim::runs::config::Config;
use sim::runs::repair;
use sim::world::disk::{Cut, Disk};
use sim::world::{Answer, World};

use crate::bench::Bench;

/// Blocks of the volume: three levels of its map, of which the last is not full.
const BLOCKS: u64 = 5000;
/// First blocks of the ranges that are written.
const PLACES: [u64; 5] = [0, 70, 2040, 4096, 4900];

/// A pool with shared and single blocks, zeroes and trims, both in the trees and in the journal only.
struct Pool {
    config: Config,
    disk: Disk,
    /// All contents of each block in order of time, the newest last.
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
            // Every third content occurs in the other places too.
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
    disk.crash(Cut::Kept, &mut sim::random::Random::new(1));
    Pool { config, disk, history }
}

fn is_in(lost: &[BlockRange], block: u64) -> bool {
    lost.iter().any(|lost| (lost.first..lost.first + lost.blocks).contains(&block))
}

/// Iterates over the blocks to check: all that were written, and some of the others.
fn looked_at() -> impl Iterator<Item = u64> {
    (0..BLOCKS).filter(|block| {
        block % 97 == 0
            || (3330..3340).contains(block)
            || PLACES.iter().any(|place| (*place..place + 44).contains(block))
    })
}

/// Repairs a disk and checks the pool against the written contents. Where records were lost, older contents are right too.
fn repaired(pool: &Pool, disk: &Disk, data: bool, what: &str) {
    let plan = repair::plan(disk, &pool.config, data).unwrap_or_else(|error| panic!("{what}: {error}"));
    // A damaged record beyond the last watermark is indistinguishable from the end that a crash leaves.
    let geometry = pool.config.parameters.geometry;
    let mut journal = geometry.journal_start()..geometry.meta_map_start();
    let prefix = journal.any(|block| disk.read(block) != pool.disk.read(block));
    let is_gone = plan.problems.iter().any(|problem| problem.contains("volumes are lost"));
    let lost = plan.lost.clone();
    let mut disk = disk.clone();
    repair::perform(&mut disk, &plan);
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
    // A write makes a lost block whole again and leaves the others unchanged. So does a discard.
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

/// Damages each block outside of the data, one after the other, in three ways.
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

/// Damages several random blocks at once, so that several trees are hit.
#[test]
fn whatever_two_pages_are_damaged_a_repair_leads_to_a_pool_that_opens() {
    let pool = pool();
    let geometry = pool.config.parameters.geometry;
    let used: Vec<u64> = (geometry.journal_start()..geometry.data_start())
        .filter(|&block| pool.disk.read(block).to_cells() != [0; CELLS])
        .collect();
    let mut random = sim::random::Random::new(5);
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

/// After a crash in the middle of a repair the pool has the same damage and no more. The next repair completes it.
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
        // Keeps all writes but the superblocks that put the repair into force.
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

/// A volume grows over blocks that a repair gave up. The added blocks read as zeroes.
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
        repair::perform(&mut disk, &plan);
        let mut bench = Bench::on_disk(pool.config.clone(), disk, "grown");
        bench.volume = bench.world.engine.volumes().next().unwrap().id;
        let (volume, size) = (bench.volume, 3 * BLOCKS * geometry.block());
        bench.command(Command::ResizeVolume { volume, size });
        assert_eq!(bench.read(BLOCKS - 1), Err(Error::Io));
        (BLOCKS..3 * BLOCKS).step_by(61).for_each(|block| bench.assert_holds(block, 0));
        bench.command(Command::SetVolume {
            volume,
            change: VolumePropertyChange { policy: Some(Some(Policy::Native)), ..VolumePropertyChange::default() },
        });
        bench.audit();
    }
}

/// The journal maps a block two levels above the root that the table of volumes has.
#[test]
fn a_repair_makes_a_map_as_high_as_the_journal_needs() {
    let mut config = Config::small(1);
    (config.parameters.geometry.containers, config.parameters.geometry.metadata_blocks) = (24, 400);
    let mut bench = Bench::new(config.clone(), 64);
    let mut history = vec![vec![0]; BLOCKS as usize];
    bench.write_durably(0, 5);
    bench.settle();
    let (volume, size) = (bench.volume, BLOCKS * bench.geometry().block());
    bench.command(Command::ResizeVolume { volume, size });
    for (block, content) in [(1, 6), (4900, 7)] {
        bench.write_durably(block, content);
        history[block as usize].push(content);
    }
    history[0].push(5);
    let mut disk = bench.world.disk.clone();
    disk.crash(Cut::Kept, &mut sim::random::Random::new(1));
    let pool = Pool { config, disk, history };
    repaired(&pool, &pool.disk, false, "a map that gets higher");
}

/// Makes a pool with 29 subtrees cut off, of which two or three have been walked.
fn with_discards() -> Pool {
    let mut config = Config::small(1);
    (config.parameters.geometry.containers, config.parameters.geometry.metadata_blocks) = (24, 400);
    config.limits.discard_leaves = 1;
    let mut bench = Bench::new(config.clone(), BLOCKS);
    let mut history = vec![vec![0]; BLOCKS as usize];
    for leaf in 1..30 {
        bench.write(leaf * 64, &[leaf as u32]);
        history[leaf as usize * 64].extend([leaf as u32, 0]);
    }
    bench.write(0, &[77]);
    history[0].push(77);
    bench.settle();
    bench.trim_blocks(64, 64 * 29);
    bench.command(Command::SetPool(PoolChange { policy: Some(None), ..PoolChange::default() }));
    assert!(bench.world.engine.status().discarded_blocks > 64 * 10);
    let mut disk = bench.world.disk.clone();
    disk.crash(Cut::Kept, &mut sim::random::Random::new(1));
    Pool { config, disk, history }
}

#[test]
fn what_discards_cut_off_is_free_after_a_repair() {
    let pool = with_discards();
    let plan = repair::plan(&pool.disk, &pool.config, true).unwrap();
    assert!(plan.actions.iter().any(|action| action.contains("discard list")), "{:?}", plan.actions);
    assert_eq!((plan.problems.len(), plan.lost.len()), (0, 0), "{:?}", plan.problems);
    let mut disk = pool.disk.clone();
    repair::perform(&mut disk, &plan);
    let bench = Bench::on_disk(pool.config.clone(), disk, "discards");
    assert_eq!(bench.world.engine.status().data_blocks_used, 1);
    repaired(&pool, &pool.disk, true, "discards");
}

/// The map of metadata blocks could not be read while the repair was planned, but can be read when the repair has been cut off. Subtrees that are
/// still to be walked are unchanged.
#[test]
fn a_repair_that_is_cut_off_leaves_what_discards_cut_off() {
    let pool = with_discards();
    let geometry = pool.config.parameters.geometry;
    let mut disk = pool.disk.clone();
    for block in geometry.meta_map_start()..geometry.metadata_start() {
        disk.put(block, damaged(pool.disk.read(block), geometry.block_size, 0));
    }
    let plan = repair::plan(&disk, &pool.config, true).unwrap();
    assert!(!plan.pages.is_empty());
    let mut disk = pool.disk.clone();
    for (offset, page) in &plan.pages {
        if *offset >= geometry.metadata_start() * geometry.block() {
            disk.put(offset / geometry.block(), Content::Metadata(page.as_slice().into()));
        }
    }
    let mut bench = Bench::on_disk(pool.config.clone(), disk, "cut off");
    bench.volume = bench.world.engine.volumes().next().unwrap().id;
    bench.audit();
    bench.assert_holds(0, 77);
    assert_eq!(bench.world.engine.status().data_blocks_used, 1);
}

#[test]
fn a_volume_whose_deletion_only_the_journal_has_is_gone_after_a_repair() {
    let mut bench = Bench::new(Config::small(1), 64);
    let size = 64 * bench.geometry().block();
    bench.write(0, &[5, 6]);
    bench.command(Command::CreateVolume { name: "kept", size, policy: None });
    let deleted = bench.volume;
    bench.volume = bench.world.engine.volumes().find(|volume| volume.name == "kept").unwrap().id;
    bench.write(0, &[6, 7]);
    bench.settle();
    bench.world.hold_back(crate::bench::superblocks(bench.geometry()));
    bench.command(Command::DeleteVolume { volume: deleted });
    let mut disk = bench.world.disk.clone();
    disk.crash(Cut::Lost, &mut sim::random::Random::new(1));
    let config = bench.config.clone();
    let plan = repair::plan(&disk, &config, true).unwrap();
    assert_eq!((plan.problems.len(), plan.lost.len()), (0, 0), "{:?}", plan.problems);
    repair::perform(&mut disk, &plan);
    let kept = bench.volume;
    let mut bench = Bench::on_disk(config, disk, "deleted");
    bench.volume = kept;
    assert_eq!(bench.world.engine.volumes().map(|volume| volume.name.clone()).collect::<Vec<_>>(), ["kept"]);
    assert_eq!(bench.world.engine.status().data_blocks_used, 2);
    bench.assert_holds(0, 6);
    bench.assert_holds(1, 7);
    bench.audit();
}

/// A rotten block is found although its summary is damaged, too: the 24 bits of the map find it, without a read of all data.
#[test]
fn a_rotten_block_whose_summary_is_damaged_becomes_lost() {
    let pool = pool();
    let geometry = pool.config.parameters.geometry;
    let holds = |block: &u64| pool.disk.read(*block).to_cells() != [0; CELLS];
    let pages: Vec<u64> = (geometry.metadata_start()..geometry.data_start()).filter(holds).collect();
    let slots = (0..geometry.slots()).map(|slot| geometry.slot_block(slot)).filter(holds);
    let mut found = 0;
    for slot in slots.step_by(7) {
        for &page in &pages {
            let mut disk = pool.disk.clone();
            disk.put(page, damaged(pool.disk.read(page), geometry.block_size, 0));
            let without = repair::plan(&disk, &pool.config, false).unwrap().lost;
            disk.put(slot, Content::Payload([999_999; CELLS]));
            let with = repair::plan(&disk, &pool.config, false).unwrap();
            if with.lost == without {
                continue;
            }
            found += 1;
            let offset = slot * geometry.block();
            let named = format!("the block at byte {offset} of the store does not match its digest");
            assert!(with.problems.contains(&named), "{:?}", with.problems);
            repaired(&pool, &disk, false, &format!("page {page}, slot at block {slot}"));
        }
    }
    assert!(found > 3, "{found}");
}

/// A part of a lost block cannot be changed, because its other bytes are unknown.
#[test]
fn a_part_of_a_lost_block_cannot_be_changed() {
    let pool = pool();
    let geometry = pool.config.parameters.geometry;
    let with_losses = |slot| {
        let mut disk = pool.disk.clone();
        disk.put(geometry.slot_block(slot), Content::Payload([999_999; CELLS]));
        let plan = repair::plan(&disk, &pool.config, true).unwrap();
        Some((disk, plan)).filter(|(_, plan)| !plan.lost.is_empty())
    };
    let (mut disk, plan) = (0..geometry.slots()).find_map(with_losses).expect("some slot is in use");
    let lost = plan.lost[0].first;
    repair::perform(&mut disk, &plan);
    let mut bench = Bench::on_disk(pool.config.clone(), disk, "lost");
    bench.volume = bench.world.engine.volumes().next().unwrap().id;
    let cell = lost * CELLS as u64;
    let write = bench.begin_cells(cell + 2, &[9], false);
    let trim = bench.begin_trim_cells(cell + 2, 3);
    for token in [write, trim] {
        assert_eq!(bench.wait(token), Err(Error::Io));
    }
    assert_eq!(bench.read(lost), Err(Error::Io));
    bench.audit();
}

#[test]
fn a_repair_without_a_superblock_or_without_space_says_so() {
    let pool = pool();
    let geometry = pool.config.parameters.geometry;
    let places = [(0, 0), (0, 1), (1, 0), (1, 1)].map(|(place, epoch)| geometry.superblock_block(place, epoch));
    let error = |disk: &Disk, data| match repair::plan(disk, &pool.config, data) {
        Ok(plan) => panic!("there is a plan: {:?}", plan.actions),
        Err(error) => error,
    };
    let mut disk = pool.disk.clone();
    places.into_iter().for_each(|block| disk.put(block, damaged(pool.disk.read(block), geometry.block_size, 0)));
    assert_eq!(error(&disk, false), RepairError::NoSuperblock);
    assert!(error(&disk, false).to_string().contains("superblocks"));
    // A superblock of a later version may be the newest.
    let mut bytes = pool.disk.read(places[3]).to_bytes(geometry.block_size).to_vec();
    bytes[16] |= 128;
    let sum = engine::encode::checksum(0, &bytes[..engine::superblock::SUPERBLOCK_SIZE - 8]);
    bytes[engine::superblock::SUPERBLOCK_SIZE - 8..][..8].copy_from_slice(&sum.to_le_bytes());
    let mut disk = pool.disk.clone();
    disk.put(places[3], Content::Metadata(bytes.into()));
    assert_eq!(error(&disk, false), RepairError::UnknownFormat);
    assert!(error(&disk, false).to_string().contains("newer version"));
    // Both copies of one superblock are damaged: it may have been the newer.
    for pair in [[0, 2], [1, 3]] {
        let mut disk = pool.disk.clone();
        pair.iter().for_each(|&at| disk.put(places[at], damaged(disk.read(places[at]), geometry.block_size, 0)));
        let plan = repair::plan(&disk, &pool.config, false).unwrap();
        assert!(plan.problems.iter().any(|problem| problem.contains("both copies")), "{:?}", plan.problems);
    }
}

/// A repair fails when it has to write more map pages than there are free metadata blocks.
#[test]
fn a_repair_without_space_for_its_pages_says_how_much_there_is() {
    let mut config = Config::small(1);
    (config.parameters.geometry.containers, config.parameters.geometry.metadata_blocks) = (64, 400);
    config.limits.map_buffer = 0;
    // The leaves take more than the metadata that is kept for a repair.
    let mut bench = Bench::new(config.clone(), 64 * 220);
    for leaf in 0..220 {
        bench.write(leaf * 64, &[100 + leaf as u32]);
    }
    bench.settle();
    let used = bench.world.engine.status().overhead_blocks_used;
    let geometry = bench.geometry();
    let mut disk = bench.world.disk.clone();
    disk.crash(Cut::Lost, &mut sim::random::Random::new(1));
    for slot in 0..geometry.slots() {
        let block = geometry.slot_block(slot);
        if disk.read(block).to_cells() != [0; CELLS] {
            disk.put(block, Content::Payload([999_999; CELLS]));
        }
    }
    let refused = match repair::plan(&disk, &config, true) {
        Ok(plan) => panic!("220 leaves fit: {} pages, {used} used", plan.pages.len()),
        Err(refused) => refused,
    };
    assert!(refused.to_string().contains("free"), "{refused}");
    let RepairError::NoSpace { .. } = refused else { panic!("{refused:?}") };
}

/// Returns those of the checked blocks that the engine reports as flawed.
fn flawed(bench: &Bench, offsets: &BTreeSet<u64>, kind: Flaw) -> BTreeSet<u64> {
    let mut blocks = BTreeSet::new();
    let mut read = |offset, length| World::read_bytes(&bench.world.disk, offset, length);
    bench.world.engine.flawed_blocks(&mut read, offsets, &mut |name, first, count, flaw| {
        assert_eq!(name, "disk");
        assert_eq!(flaw, kind, "block {first}");
        blocks.extend(first..first + count);
    });
    looked_at().filter(|block| blocks.contains(block)).collect()
}

fn unreadable(bench: &mut Bench) -> BTreeSet<u64> {
    let unreadable: Vec<u64> = looked_at().filter(|&block| bench.read(block).is_err()).collect();
    unreadable.into_iter().collect()
}

/// Checks the blocks of a rotten slot, in the trees and in the journal only.
#[test]
fn the_blocks_of_a_rotten_slot_are_those_that_cannot_be_read() {
    let pool = pool();
    let geometry = pool.config.parameters.geometry;
    let mut shared = 0;
    for slot in 0..geometry.slots() {
        for settled in [false, true] {
            let mut bench = Bench::on_disk(pool.config.clone(), pool.disk.clone(), "rotten");
            if settled {
                bench.settle();
                bench.reopen();
            }
            bench.volume = bench.world.engine.volumes().next().unwrap().id;
            let block = geometry.slot_block(slot);
            if bench.world.disk.read(block).to_cells() == [0; CELLS] {
                continue;
            }
            bench.world.disk.put(block, Content::Payload([999_999; CELLS]));
            let found = flawed(&bench, &BTreeSet::from([block * geometry.block()]), Flaw::InSlot);
            assert_eq!(found, unreadable(&mut bench), "slot {slot}, settled: {settled}");
            shared += usize::from(found.len() > 1);
        }
    }
    assert!(shared > 3, "{shared}");
}

#[test]
fn the_blocks_of_a_damaged_page_are_those_that_cannot_be_read() {
    let pool = pool();
    let geometry = pool.config.parameters.geometry;
    let mut bench = Bench::on_disk(pool.config.clone(), pool.disk.clone(), "damaged");
    bench.reopen();
    let mut closed = bench.world.disk.clone();
    closed.crash(Cut::Lost, &mut sim::random::Random::new(1));
    let mut pages = 0;
    for block in geometry.metadata_start()..geometry.data_start() {
        let mut disk = closed.clone();
        disk.put(block, damaged(closed.read(block), geometry.block_size, 0));
        let plan = repair::plan(&disk, &pool.config, false).unwrap();
        if !plan.problems.iter().any(|problem| problem.starts_with("volume disk")) {
            continue;
        }
        pages += 1;
        let mut bench = Bench::on_disk(pool.config.clone(), disk.clone(), "damaged");
        bench.volume = bench.world.engine.volumes().next().unwrap().id;
        let found = flawed(&bench, &BTreeSet::new(), Flaw::Damaged);
        assert_eq!(found, unreadable(&mut bench), "page {block}");
        // After the repair the same blocks are lost.
        repair::perform(&mut disk, &plan);
        let bench = Bench::on_disk(pool.config.clone(), disk, "repaired");
        assert_eq!(found, flawed(&bench, &BTreeSet::new(), Flaw::Lost), "page {block}");
    }
    assert!(pages > 5, "{pages}");
}

/// Returns the flawed blocks of each map that users see.
fn flaws_by_name(bench: &Bench, offsets: &BTreeSet<u64>) -> BTreeMap<String, BTreeSet<u64>> {
    let mut found: BTreeMap<String, BTreeSet<u64>> = BTreeMap::new();
    let mut read = |offset, length| World::read_bytes(&bench.world.disk, offset, length);
    bench.world.engine.flawed_blocks(&mut read, offsets, &mut |name, first, count, _| {
        found.entry(name.into()).or_default().extend(first..first + count);
    });
    found
}

/// Returns the blocks of each map that cannot be read.
fn unreadable_by_name(bench: &mut Bench) -> BTreeMap<String, BTreeSet<u64>> {
    let engine = &bench.world.engine;
    let volumes: Vec<_> = engine.volumes().collect();
    let snapshots: Vec<_> = volumes.iter().flat_map(|volume| engine.snapshots_of(volume.id)).collect();
    let maps: Vec<(String, VolumeId)> =
        volumes.into_iter().chain(snapshots).map(|map| (engine.full_name(map), map.id)).collect();
    let mut found = BTreeMap::new();
    for (name, map) in maps {
        bench.volume = map;
        let blocks: BTreeSet<u64> = (0..FAMILY_BLOCKS).filter(|&block| bench.read(block).is_err()).collect();
        if !blocks.is_empty() {
            found.insert(name, blocks);
        }
    }
    found
}

const FAMILY_BLOCKS: u64 = 256;

/// Makes a family: an image with a named and a deleted snapshot that two clones inherit from, one of which has a snapshot and a clone of its own.
fn family() -> Bench {
    let mut config = Config::small(1);
    (config.parameters.geometry.containers, config.parameters.geometry.metadata_blocks) = (24, 400);
    let mut bench = Bench::new(config, FAMILY_BLOCKS);
    let mut written = 0;
    let mut write = |bench: &mut Bench, map: VolumeId, from: u64, step: usize| {
        bench.volume = map;
        for block in (from..FAMILY_BLOCKS).step_by(step) {
            written += 1;
            bench.write(block, &[written]);
        }
        bench.settle();
    };
    let image = bench.volume;
    write(&mut bench, image, 0, 5);
    bench.snapshot("v1");
    write(&mut bench, image, 0, 40);
    let deleted = bench.snapshot("v2");
    write(&mut bench, image, 0, 60);
    let [one, two] = ["one", "two"].map(|name| bench.clone_of(deleted, name));
    write(&mut bench, one, 0, 90);
    write(&mut bench, two, 7, 80);
    let nested = bench.snapshot("nested");
    bench.clone_of(nested, "three");
    bench.volume = image;
    bench.delete(deleted);
    bench.settle();
    bench.reopen();
    bench
}

/// A check named the map with the damaged page alone. Snapshots and clones that inherit its blocks cannot be read, either.
#[test]
fn the_flaws_of_a_family_are_those_of_all_its_readers() {
    let bench = family();
    let (geometry, config) = (bench.geometry(), bench.config.clone());
    let mut closed = bench.world.disk.clone();
    closed.crash(Cut::Lost, &mut sim::random::Random::new(1));
    let (mut pages, mut readers) = (0, 0);
    for block in geometry.metadata_start()..geometry.data_start() {
        let mut disk = closed.clone();
        disk.put(block, damaged(closed.read(block), geometry.block_size, 0));
        let plan = repair::plan(&disk, &config, false).unwrap();
        let is_of_map = |problem: &String| ["volume ", "snapshot "].iter().any(|kind| problem.starts_with(kind));
        if plan.problems.is_empty() || !plan.problems.iter().all(is_of_map) {
            continue;
        }
        pages += 1;
        let mut bench = Bench::on_disk(config.clone(), disk.clone(), "damaged");
        let found = flaws_by_name(&bench, &BTreeSet::new());
        assert_eq!(found, unreadable_by_name(&mut bench), "page {block}");
        readers = readers.max(found.len());
        repair::perform(&mut disk, &plan);
        let bench = Bench::on_disk(config.clone(), disk, "repaired");
        assert_eq!(found, flaws_by_name(&bench, &BTreeSet::new()), "page {block}");
    }
    assert!(pages > 10 && readers == 6, "{pages}, {readers}");
    let mut rotten = 0;
    for slot in 0..geometry.slots() {
        let block = geometry.slot_block(slot);
        if closed.read(block).to_cells() == [0; CELLS] {
            continue;
        }
        let mut disk = closed.clone();
        disk.put(block, Content::Payload([999_999; CELLS]));
        let mut bench = Bench::on_disk(config.clone(), disk, "rotten");
        let found = flaws_by_name(&bench, &BTreeSet::from([block * geometry.block()]));
        assert_eq!(found, unreadable_by_name(&mut bench), "slot {slot}");
        rotten += usize::from(found.len() > 2);
    }
    assert!(rotten > 10, "{rotten}");
}

/// One page of the journal is damaged. The blocks of later records have their old contents, and the repair names these blocks. The contents of the
/// damaged record itself are unknown.
#[test]
fn a_repair_names_the_blocks_whose_last_changes_went_with_the_journal() {
    const WRITES: u64 = 8;
    let mut bench = Bench::new(Config::small(1), 64);
    (0..WRITES).for_each(|block| bench.write_durably(block * 3, 100 + block as u32));
    bench.settle();
    (0..WRITES).for_each(|block| bench.write_durably(block * 3, 200 + block as u32));
    bench.trim_blocks(40, 5);
    bench.write_durably(60, 5);
    let mut pristine = bench.world.disk.clone();
    pristine.crash(Cut::Kept, &mut sim::random::Random::new(1));
    let geometry = bench.geometry();
    let mut named = 0;
    for page in geometry.journal_start()..geometry.meta_map_start() {
        let mut disk = pristine.clone();
        disk.put(page, damaged(disk.read(page), geometry.block_size, 0));
        let plan = repair::plan(&disk, &bench.config, false).unwrap();
        repair::perform(&mut disk, &plan);
        let mut after = Bench::on_disk(bench.config.clone(), disk, "journal");
        after.volume = bench.volume;
        let mut unnamed = 0;
        for block in 0..WRITES {
            if is_in(&plan.lost, block * 3) {
                // The damaged page was the block's content on the way to its slot.
                continue;
            }
            let found = after.read(block * 3);
            let Ok(Answer::Data(cells)) = found else {
                panic!("page {page}: block {block} is not lost: {found:?}, {:?}", plan.problems)
            };
            let is_old = cells != [200 + block as u32; CELLS];
            assert!(!is_old || cells == [100 + block as u32; CELLS], "page {page}: {cells:?}");
            let is_named = is_in(&plan.reverted, block * 3);
            assert!(is_old || !is_named, "page {page}: block {block} is as it was written last");
            unnamed += usize::from(is_old && !is_named);
            named += usize::from(is_named);
        }
        assert!(unnamed <= 1, "page {page}: one record cannot be read: {:?}", plan.reverted);
        assert!(plan.reverted.iter().all(|range| range.blocks == 1 || (range.first, range.blocks) == (40, 5)));
    }
    assert!(named > 0);
}
