//! Versions of the format, and attacks by clients that know the format.

use engine::superblock::{OLDEST_VERSION, VERSION};
use engine::{Geometry, OpenError, Parameters, Superblock};
use sim::content::{Content, digest};
use sim::random::Random;
use sim::runs::config::Config;
use sim::runs::forged;
use sim::world::disk::{Cut, Disk};

use crate::bench::Bench;

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
