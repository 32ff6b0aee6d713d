//! Damage to pools with snapshots and clones, and its repair. What an ancestor has lost is lost for all that have it from there, and nothing else is.

use engine::{BlockRange, Command, Error, VolumeId};
use sim::content::{CELLS, Content};
use sim::runs::config::Config;
use sim::runs::repair;
use sim::world::Answer;
use sim::world::disk::{Cut, Disk};

use crate::bench::Bench;

/// Blocks of the volume: three levels of its map.
const BLOCKS: u64 = 5000;
/// Blocks that are looked at.
const PLACES: [u64; 10] = [0, 1, 2, 64, 65, 130, 2048, 2050, 4100, 4990];

/// A pool with a family, as it is on the disk after a crash, and the contents of each map.
struct Pool {
    config: Config,
    disk: Disk,
    /// Name, and contents by place.
    maps: Vec<(String, Vec<u32>)>,
}

/// Makes a volume with two snapshots, a clone of the first, and a snapshot of the clone; the journal has the last writes.
fn pool() -> Pool {
    let mut config = Config::small(1);
    (config.parameters.geometry.containers, config.parameters.geometry.metadata_blocks) = (24, 400);
    let mut bench = Bench::new(config.clone(), BLOCKS);
    let disk = bench.volume;
    let mut next = 100;
    let mut maps: Vec<(String, Vec<u32>)> = Vec::new();
    let mut current = vec![0; PLACES.len()];
    let mut write = |bench: &mut Bench, contents: &mut Vec<u32>, places: &[usize]| {
        for &place in places {
            next += 1;
            bench.write_durably(PLACES[place], next);
            contents[place] = next;
        }
    };
    write(&mut bench, &mut current, &[0, 1, 2, 3, 4, 5, 6, 7, 8]);
    let first = bench.snapshot("first");
    maps.push(("disk@first".into(), current.clone()));
    let mut cloned = current.clone();
    write(&mut bench, &mut current, &[1, 6]);
    bench.trim(PLACES[4]);
    current[4] = 0;
    bench.snapshot("second");
    maps.push(("disk@second".into(), current.clone()));
    let clone = bench.clone_of(first, "clone");
    bench.volume = clone;
    write(&mut bench, &mut cloned, &[2, 9]);
    bench.snapshot("own");
    maps.push(("clone@own".into(), cloned.clone()));
    bench.settle();
    // The journal has the rest.
    write(&mut bench, &mut cloned, &[3, 8]);
    bench.volume = disk;
    write(&mut bench, &mut current, &[0, 7]);
    bench.trim(PLACES[5]);
    current[5] = 0;
    let flush = bench.begin_flush();
    bench.wait(flush).unwrap();
    maps.push(("clone".into(), cloned));
    maps.push(("disk".into(), current));
    let mut disk = bench.world.disk.clone();
    disk.crash(Cut::Kept, &mut sim::random::Random::new(1));
    Pool { config, disk, maps }
}

fn is_lost(lost: &[BlockRange], volume: &str, block: u64) -> bool {
    lost.iter().any(|lost| lost.volume == volume && (lost.first..lost.first + lost.blocks).contains(&block))
}

/// Repairs a disk, and checks each block of each map that is still there: it has its content, or is lost as the repair said. Returns the losses, and the names
/// of the maps.
fn repaired(pool: &Pool, disk: &Disk, data: bool, what: &str) -> (Vec<BlockRange>, Vec<String>) {
    let plan = repair::plan(disk, &pool.config, data).unwrap_or_else(|error| panic!("{what}: {error}"));
    let lost = plan.lost.clone();
    // Where records are damaged, older contents are right too.
    let geometry = pool.config.parameters.geometry;
    let mut journal = geometry.journal_start()..geometry.meta_map_start();
    let is_prefix = journal.any(|block| disk.read(block) != pool.disk.read(block));
    let mut disk = disk.clone();
    repair::perform(&mut disk, &plan);
    let mut bench = Bench::on_disk(pool.config.clone(), disk, what);
    let named: Vec<(String, VolumeId)> =
        bench.world.engine.volumes().map(|volume| (bench.world.engine.full_name(volume), volume.id)).collect();
    for (name, contents) in &pool.maps {
        let Some(&(_, id)) = named.iter().find(|(found, _)| found == name) else { continue };
        bench.volume = id;
        for (&block, &content) in PLACES.iter().zip(contents) {
            let found = bench.read(block);
            if is_lost(&lost, name, block) {
                assert_eq!(found, Err(Error::Io), "{what}: block {block} of {name} is said to be lost");
            } else if !is_prefix {
                let Ok(Answer::Data(cells)) = found else {
                    panic!("{what}: block {block} of {name} came to {found:?}, lost: {lost:?}, {:?}", plan.problems)
                };
                assert_eq!(cells, [content; CELLS], "{what}: block {block} of {name}");
            }
        }
    }
    bench.audit();
    // A second repair finds nothing to do.
    bench.crash(Cut::Kept).unwrap();
    bench.settle();
    let again = repair::plan(&bench.world.disk, &pool.config, data).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert!(again.problems.is_empty() && again.lost.is_empty(), "{what}: {:?} {:?}", again.problems, again.lost);
    // Everything can be deleted, snapshots first.
    for snapshots in [true, false] {
        let there: Vec<VolumeId> = bench.world.engine.volumes().map(|volume| volume.id).collect();
        for volume in there {
            let is_snapshot = bench.world.engine.volume(volume).is_some_and(|volume| volume.is_snapshot());
            if is_snapshot == snapshots {
                bench.command(Command::DeleteVolume { volume });
            }
        }
    }
    bench.audit();
    assert_eq!(bench.world.engine.status().data_blocks_used, 0, "{what}");
    (lost, named.into_iter().map(|(name, _)| name).collect())
}

fn bent(content: &Content, block_size: u32) -> Content {
    let mut bytes = content.to_bytes(block_size).to_vec();
    bytes[100] ^= 4;
    Content::Metadata(bytes.into())
}

#[test]
fn a_healthy_family_is_repaired_to_itself() {
    let pool = pool();
    let plan = repair::plan(&pool.disk, &pool.config, true).unwrap();
    assert_eq!((plan.problems.len(), plan.lost.len()), (0, 0), "{:?}", plan.problems);
    let (lost, names) = repaired(&pool, &pool.disk, true, "nothing");
    assert!(lost.is_empty());
    assert_eq!(names.len(), 5, "{names:?}");
}

/// Damages each block outside of the data, one after the other.
#[test]
fn whatever_page_of_a_family_is_damaged_a_repair_leads_to_a_pool_that_opens() {
    let pool = pool();
    let geometry = pool.config.parameters.geometry;
    let (mut of_readers, mut noticed) = (0, 0);
    for block in 0..geometry.data_start() {
        let content = pool.disk.read(block);
        if content.to_bytes(geometry.block_size).iter().all(|&byte| byte == 0) {
            continue;
        }
        let mut disk = pool.disk.clone();
        disk.put(block, bent(content, geometry.block_size));
        let (lost, _) = repaired(&pool, &disk, false, &format!("block {block}"));
        noticed += usize::from(!lost.is_empty());
        let named = |name| lost.iter().any(|lost| lost.volume == name);
        of_readers += usize::from(named("disk@first") && named("clone@own"));
    }
    assert!(noticed > 5 && of_readers > 1, "{noticed} {of_readers}");
}

/// Damages each block of data, one after the other: what is lost is lost for each map that has it.
#[test]
fn a_lost_block_is_lost_for_all_that_inherit_it() {
    let pool = pool();
    let geometry = pool.config.parameters.geometry;
    let mut of_readers = 0;
    for block in geometry.data_start()..geometry.total_blocks() {
        let content = pool.disk.read(block);
        if content.to_bytes(geometry.block_size).iter().all(|&byte| byte == 0) {
            continue;
        }
        let mut disk = pool.disk.clone();
        disk.put(block, Content::Metadata(vec![0xff; geometry.block_size as usize].into()));
        let (lost, _) = repaired(&pool, &disk, true, &format!("block {block}"));
        let mut names: Vec<&str> = lost.iter().map(|lost| &lost.volume[..]).collect();
        names.dedup();
        of_readers += usize::from(names.len() > 2);
    }
    assert!(of_readers > 1, "{of_readers}");
}

/// Damages each block outside of the data for which `is_meant` holds of the problems of its repair, and repairs the pool.
fn each_damage(pool: &Pool, is_meant: impl Fn(&[String]) -> bool, check: &mut dyn FnMut(&[BlockRange], &[String])) {
    let geometry = pool.config.parameters.geometry;
    for block in geometry.meta_map_start()..geometry.data_start() {
        let mut disk = pool.disk.clone();
        disk.put(block, bent(pool.disk.read(block), geometry.block_size));
        let plan = repair::plan(&disk, &pool.config, false).unwrap();
        if is_meant(&plan.problems) {
            let (lost, names) = repaired(pool, &disk, false, &format!("block {block}: {:?}", plan.problems));
            check(&lost, &names);
        }
    }
}

/// Checks the repair of a snapshot's lost pages: those that have blocks from there lose them too, and only they.
#[test]
fn a_lost_page_of_a_snapshot_is_lost_for_its_readers_and_for_no_other() {
    let pool = pool();
    let (mut pages, mut with_readers) = (0, 0);
    let is_meant = |problems: &[String]| problems.iter().any(|problem| problem.starts_with("snapshot disk@first: "));
    each_damage(&pool, is_meant, &mut |lost, names| {
        let lost_places = |name: &str| PLACES.iter().filter(|&&block| is_lost(lost, name, block)).count();
        let of = ["disk@first", "disk@second", "clone@own", "clone", "disk"].map(lost_places);
        assert!(of[0] >= of[1] && of[0] >= of[2] && of[1] >= of[4] && of[2] >= of[3], "{of:?}");
        assert_eq!(names.len(), 5);
        pages += 1;
        with_readers += usize::from(of[1] > 0 && of[3] > 0);
    });
    assert!(pages > 4 && with_readers > 1, "{pages} {with_readers}");
}

/// Checks the repair of a volume table that has lost a leaf, with a parent in it: the children have no parent, and what they had from it is lost. Snapshots
/// of a lost volume are those of a new one, which has the content of the newest.
#[test]
fn a_lost_leaf_of_the_volume_table_makes_orphans_and_no_snapshot_is_lost_with_its_volume() {
    let pool = pool();
    let mut seen = Vec::new();
    let is_meant = |problems: &[String]| problems.iter().any(|problem| problem.contains("these volumes are lost"));
    each_damage(&pool, is_meant, &mut |lost, names| {
        let mut names: Vec<String> = names.to_vec();
        names.sort();
        let mut losers: Vec<String> = lost.iter().map(|lost| lost.volume.clone()).collect();
        losers.dedup();
        seen.push((names, losers));
    });
    let strings = |names: &[&str]| names.iter().map(|name| String::from(*name)).collect::<Vec<_>>();
    // The volumes disk, first, second, clone and own have the numbers 1 to 5, and a leaf has two entries.
    let expected = [
        (
            strings(&["clone", "clone@own", "volume.1", "volume.1@second"]),
            strings(&["volume.1@second", "clone", "clone@own", "volume.1"]),
        ),
        (strings(&["disk", "disk@first", "volume.4", "volume.4@own"]), strings(&["disk"])),
        (strings(&["clone", "disk", "disk@first", "disk@second"]), strings(&["clone"])),
    ];
    for case in &expected {
        assert!(seen.contains(case), "{case:?} is not among {seen:?}");
    }
}

/// A volume was deleted after its snapshots, and the crash came before the checkpoint that takes their names. The next checkpoint left snapshots of no volume.
#[test]
fn a_volume_and_its_snapshots_that_are_deleted_before_a_crash_leave_a_pool_that_opens() {
    let mut bench = Bench::new(Config::small(1), 512);
    let disk = bench.volume;
    bench.write(0, &[1, 2, 3]);
    let first = bench.snapshot("first");
    bench.write(1, &[22]);
    bench.settle();
    let clone = bench.clone_of(first, "clone");
    bench.begin_command(Command::DeleteVolume { volume: first });
    bench.command(Command::DeleteVolume { volume: disk });
    bench.crash(Cut::Lost).unwrap();
    bench.settle();
    bench.audit();
    bench.crash(Cut::Lost).unwrap();
    bench.assert_has(clone, &[(0, 1), (1, 2), (2, 3)]);
    let plan = repair::plan(&bench.world.disk, &bench.config, true).unwrap();
    assert!(plan.problems.is_empty() && plan.lost.is_empty(), "{:?}", plan.problems);
    bench.command(Command::DeleteVolume { volume: clone });
    bench.audit();
    assert_eq!(bench.world.engine.status().data_blocks_used, 0);
}

/// The scrub took what a map has from an ancestor for damaged pages. It finds damage to each page of each map, also of deleted snapshots that others need, and
/// nothing else.
#[test]
fn a_scrub_reads_the_pages_of_all_maps_and_passes_over_what_they_inherit() {
    let pool = pool();
    let mut bench = Bench::on_disk(pool.config.clone(), pool.disk.clone(), "the pool");
    let first = bench.world.engine.volume_named("disk@first").expect("it is there").id;
    bench.command(Command::DeleteVolume { volume: first });
    bench.settle();
    assert_eq!(bench.scrub().found, 0);
    bench.reopen();
    let disk = bench.world.disk.clone();
    let (mut of_deleted, mut all) = (0, 0);
    let geometry = pool.config.parameters.geometry;
    for block in geometry.metadata_start()..geometry.data_start() {
        let mut disk = disk.clone();
        disk.put(block, bent(disk.read(block), geometry.block_size));
        let problems = repair::plan(&disk, &pool.config, false).unwrap().problems;
        let is_page = |problem: &&String| problem.contains("fails its checksum");
        let is_of = |what: &str| problems.iter().filter(is_page).any(|problem| problem.starts_with(what));
        if is_of("volume ") || is_of("snapshot ") {
            let mut bench = Bench::on_disk(pool.config.clone(), disk, "one page is damaged");
            assert_eq!(bench.scrub().found, 1, "{problems:?}");
            all += 1;
            of_deleted += u32::from(is_of("snapshot disk@(deleted)"));
        }
    }
    assert!(of_deleted > 4 && all > of_deleted + 8, "{of_deleted} of {all}");
}

/// Checks that the census counts volumes and not their snapshots, by their own blocks.
#[test]
fn a_census_counts_the_own_blocks_of_volumes() {
    let mut bench = Bench::new(Config::small(1), BLOCKS);
    let disk = bench.volume;
    for (number, &block) in PLACES.iter().enumerate() {
        bench.write(block, &[50 + number as u32]);
    }
    let first = bench.snapshot("first");
    let clone = bench.clone_of(first, "clone");
    bench.volume = clone;
    bench.write(2050, &[50, 999]);
    bench.settle();
    while bench.world.engine.census_is_due() {
        bench.pass(crate::bench::SECOND);
    }
    let shared = |volume| bench.world.engine.shared_of(bench.world.engine.volume(volume).unwrap());
    let of_clone = shared(clone).expect("it was counted");
    assert_eq!((of_clone.ppm, of_clone.error_ppm), (500_000, 0));
    assert_eq!(shared(disk).map(|shared| (shared.ppm, shared.error_ppm)), Some((0, 0)));
    assert_eq!(shared(first), None);
}
