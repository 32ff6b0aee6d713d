//! Versions of the format, and attacks by clients that know the format.

use engine::encode::{VOLUME_BYTES, checksum};
use engine::superblock::{OLDEST_VERSION, TreeId, VERSION};
use engine::{
    Command, Geometry, OpenError, Parameters, SnapshotSchedule, Superblock, TableForm, VolumeId, VolumePropertyChange,
};
use sim::content::{Content, digest};
use sim::random::Random;
use sim::runs::config::Config;
use sim::runs::forged;
use sim::world::disk::{Cut, Disk};

use crate::bench::{Bench, SECOND};

/// Returns the superblocks of all slots that have one.
fn superblocks_on(disk: &Disk, geometry: Geometry) -> Vec<(u64, Superblock)> {
    let slots = [0, 1].into_iter().flat_map(|place| [0, 1].map(|epoch| geometry.superblock_block(place, epoch)));
    let decode = |block| Superblock::decode(&disk.read(block).to_bytes(geometry.block_size)).ok();
    slots.filter_map(|block| Some((block, decode(block)?))).collect()
}

/// Makes a pool with a block, in the state that version 2 left: pages have the public seed, and superblocks have no other one.
fn pool_of_version_2(closed: bool) -> Bench {
    let mut config = Config::small(1);
    let made = config.parameters;
    let parameters = Parameters::new(made.geometry, made.id, made.key, made.digest);
    config.parameters = Parameters { pages_by_id: true, ..parameters };
    let mut bench = Bench::new(config, 64);
    bench.write(3, &[5, 6, 7]);
    bench.settle();
    if closed {
        bench.command(engine::Command::Close);
    } else {
        // No discard is in flight at the end.
        bench.pass(SECOND);
        bench.write_durably(9, 8);
    }
    let geometry = bench.geometry();
    for (block, superblock) in superblocks_on(&bench.world.disk, geometry) {
        let mut bytes = vec![0; geometry.block_size as usize];
        Superblock { version: OLDEST_VERSION, ..superblock }.encode(&mut bytes);
        assert_eq!(Superblock::decode(&bytes).unwrap().parameters, bench.config.parameters);
        bench.world.disk.put(block, Content::Metadata(bytes.into()));
    }
    bench
}

#[test]
fn a_pool_of_version_2_that_was_closed_is_opened_and_has_version_3_from_then_on() {
    let mut bench = pool_of_version_2(true);
    bench.crash(Cut::Lost).expect("it opens");
    let geometry = bench.geometry();
    let newest = |bench: &Bench| {
        superblocks_on(&bench.world.disk, geometry).into_iter().map(|(_, found)| found).max_by_key(|found| found.epoch)
    };
    let found = newest(&bench).unwrap();
    assert_eq!((found.version, found.clean, found.parameters.pages_by_id), (VERSION, false, true));
    bench.assert_holds(4, 6);
    bench.write_durably(9, 8);
    // The journal is replayed with the secret seed. Then pages are read, and written, with the public one.
    assert_eq!(bench.crash(Cut::Lost).expect("it opens").records, 1);
    bench.assert_holds(9, 8);
    bench.write(20, &[1, 2, 3]);
    bench.settle();
    bench.reopen();
    bench.assert_holds(5, 7);
    bench.assert_holds(21, 2);
    assert_eq!(newest(&bench).unwrap().version, VERSION);
    bench.audit();
}

/// Its journal may have blocks of clients that pass for records. Only the program that wrote it can tell.
#[test]
fn a_pool_of_version_2_that_was_not_closed_is_refused_and_left_alone() {
    let mut bench = pool_of_version_2(false);
    let before = bench.world.disk.hash();
    assert_eq!(bench.crash(Cut::Kept), Err(OpenError::UnknownFormat));
    assert_eq!(bench.world.disk.hash(), before);
}

/// A crash anywhere in the first opening leaves a pool of one version or the other, which opens.
#[test]
fn an_interrupted_opening_of_a_pool_of_version_2_can_be_repeated() {
    for steps in 0..40 {
        for cut in Cut::ALL {
            let mut bench = pool_of_version_2(true);
            bench.begin_to_open(Cut::Kept);
            for _ in 0..steps {
                bench.step_once();
            }
            bench.crash(cut).expect("it opens");
            bench.assert_holds(3, 5);
            bench.audit();
        }
    }
}

/// Makes a pool with two volumes whose table is packed, as programs of before tables by number left it. It was closed.
fn pool_with_packed_table() -> Bench {
    let mut bench = Bench::new(Config::small(1), 64);
    let geometry = bench.geometry();
    bench.command(Command::CreateVolume { name: "second", size: 8 * geometry.block(), policy: None });
    bench.write(3, &[5, 6, 7]);
    bench.settle();
    bench.command(Command::Close);
    let found = superblocks_on(&bench.world.disk, geometry);
    let mut newest = found.iter().map(|(_, found)| *found).max_by_key(|found| found.epoch).expect("it was closed");
    let root = &mut newest.roots[TreeId::Volumes as usize];
    assert_eq!((newest.table_form, root.height), (TableForm::ByNumber, 0));
    let place = geometry.metadata_start() + u64::from(root.pointer.location) - 1;
    let mut page = bench.world.disk.read(place).to_bytes(geometry.block_size).to_vec();
    let (long, short) = (VOLUME_BYTES as usize, TableForm::Packed.entry_bytes() as usize);
    page.copy_within(long..long + short, short);
    page[2 * short..].fill(0);
    root.pointer.checksum = checksum(bench.config.parameters.seed(), &page);
    newest.table_form = TableForm::Packed;
    bench.world.disk.put(place, Content::Metadata(page.into()));
    for (block, superblock) in found {
        let mut bytes = vec![0; geometry.block_size as usize];
        if superblock.epoch == newest.epoch {
            newest.encode(&mut bytes);
        }
        bench.world.disk.put(block, Content::Metadata(bytes.into()));
    }
    bench
}

fn table_form(bench: &Bench) -> TableForm {
    let found = superblocks_on(&bench.world.disk, bench.geometry()).into_iter().map(|(_, found)| found);
    found.max_by_key(|found| found.epoch).expect("there is one").table_form
}

fn create_third(bench: &mut Bench) -> u64 {
    let size = 8 * bench.geometry().block();
    bench.begin_command(Command::CreateVolume { name: "third", size, policy: None })
}

fn assert_has_volumes(bench: &Bench, names: &[&str]) {
    let found: Vec<(u16, &str)> = bench.world.engine.volumes().map(|volume| (volume.id.0, &volume.name[..])).collect();
    let wanted: Vec<(u16, &str)> = (1..).zip(names.iter().copied()).collect();
    assert_eq!(found, wanted);
}

/// Checks that the pool stays readable for older programs until it gets what these cannot read.
#[test]
fn a_packed_table_stays_packed_until_a_volume_is_created() {
    let mut bench = pool_with_packed_table();
    bench.crash(Cut::Lost).expect("it opens");
    assert_has_volumes(&bench, &["disk", "second"]);
    bench.write(40, &[9]);
    bench.audit();
    bench.reopen();
    assert_eq!(table_form(&bench), TableForm::Packed);
    bench.assert_holds(4, 6);
    bench.assert_holds(40, 9);
    let command = create_third(&mut bench);
    bench.await_command(command);
    assert_eq!(table_form(&bench), TableForm::ByNumber);
    bench.audit();
    bench.crash(Cut::Lost).expect("it opens");
    assert_has_volumes(&bench, &["disk", "second", "third"]);
    bench.assert_holds(4, 6);
    bench.assert_holds(40, 9);
    bench.audit();
}

/// A crash anywhere in the checkpoint that changes the form leaves a table of one form or the other, and the superblock says which.
#[test]
fn an_interrupted_change_of_the_table_leaves_one_form_or_the_other() {
    let (mut packed, mut by_number) = (0, 0);
    for steps in 0..60 {
        for cut in Cut::ALL {
            let mut bench = pool_with_packed_table();
            bench.crash(Cut::Lost).expect("it opens");
            bench.write(40, &[9]);
            bench.settle();
            create_third(&mut bench);
            for _ in 0..steps {
                bench.step_once();
            }
            bench.crash(cut).expect("it opens");
            match table_form(&bench) {
                TableForm::Packed => {
                    packed += 1;
                    assert_has_volumes(&bench, &["disk", "second"]);
                }
                TableForm::ByNumber => {
                    by_number += 1;
                    assert_has_volumes(&bench, &["disk", "second", "third"]);
                }
            }
            bench.assert_holds(4, 6);
            bench.assert_holds(40, 9);
            bench.audit();
        }
    }
    assert!(packed > 0 && by_number > 0, "{packed} crashes before, {by_number} behind the change");
}

/// A packed entry has no place for a schedule: the table gets its new form with the first one, also if a checkpoint was in progress when it was set.
#[test]
fn a_schedule_of_snapshots_changes_the_form_of_a_packed_table() {
    for steps in (0..60).step_by(3) {
        for cut in Cut::ALL {
            let mut bench = pool_with_packed_table();
            bench.crash(Cut::Lost).expect("it opens");
            bench.write(40, &[9]);
            let settling = bench.begin_command(Command::Settle);
            for _ in 0..steps {
                bench.step_once();
            }
            let snapshots = "hourly:36,daily:30,monthly:3".parse().ok();
            let change = VolumePropertyChange { snapshots, ..VolumePropertyChange::default() };
            let set = bench.begin_command(Command::SetVolume { volume: VolumeId(1), change });
            bench.await_command(settling);
            bench.await_command(set);
            assert_eq!(table_form(&bench), TableForm::ByNumber);
            bench.crash(cut).expect("it opens");
            assert_has_volumes(&bench, &["disk", "second"]);
            let found: Vec<_> = bench.world.engine.volumes().map(|volume| volume.properties.snapshots()).collect();
            assert_eq!(found, [snapshots.expect("it is one"), SnapshotSchedule::OFF]);
            bench.assert_holds(40, 9);
            bench.audit();
        }
    }
}

/// The seed of checksums followed from the pool's id, which is no secret. A client wrote blocks that look like records of a later time. Small durable
/// writes carried them into the ring. After a crash the opening concluded that durable records were missing. It refused the pool, for all, and no
/// repair could help. An attacker with a copy of the pool knows the secret seed, too.
#[test]
fn no_block_of_a_client_is_taken_for_a_record() {
    let mut bench = Bench::new(Config::small(1), 64);
    let random = &mut Random::new(7);
    for turn in 0..400u64 {
        bench.write_durably(turn % 48, forged::any(random) << 4);
        if turn % 4 == 3 {
            bench.write_durably(50, 1 + turn as u32);
            bench.crash(Cut::Lost).unwrap_or_else(|error| panic!("after {turn} writes: {error:?}"));
            bench.assert_holds(50, 1 + turn as u32);
        }
    }
    bench.settle();
    bench.audit();
}

/// Equal cells would make equal digests of different blocks.
#[test]
fn forged_blocks_are_blocks_like_others() {
    let random = &mut Random::new(3);
    let [one, other] = [(); 2].map(|()| forged::any(random) << 4);
    assert_ne!(digest(&[one; 8]), digest(&[other; 8]));
    assert_eq!(Content::Payload([one; 8]).to_bytes(512)[..], forged::block(one, 512)[..]);
}
