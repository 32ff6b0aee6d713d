//! Hand-over of deleted snapshots to their only child (RFC 0020): what it costs, and what all maps read meanwhile.

use engine::{Command, Error, VolumeId};
use sim::runs::config::Config;
use sim::world::Answer;
use sim::world::disk::Cut;

use crate::bench::Bench;

/// Blocks of the volume, far apart: one in each leaf of its map.
const LEAVES: u64 = 64;

impl Bench {
    fn drop_snapshot(&mut self, volume: VolumeId) {
        self.command(Command::DeleteVolume { volume });
    }
}

/// Bench with a volume that has two blocks in each leaf of its map.
fn bench() -> Bench {
    let mut config = Config::small(1);
    config.parameters.geometry.metadata_blocks = 4096;
    config.parameters.geometry.containers = 64;
    config.limits.pages = 512;
    // A checkpoint hands over a few leaves only.
    config.limits.discard_leaves = 1;
    let per_leaf = config.parameters.geometry.map_leaf_entries();
    let mut bench = Bench::new(config, LEAVES * per_leaf);
    overwrite(&mut bench, LEAVES, 0, 1000);
    overwrite(&mut bench, LEAVES, 1, 2000);
    bench
}

/// Writes a block of each leaf.
fn overwrite(bench: &mut Bench, leaves: u64, place: u64, content: u32) {
    for leaf in 0..leaves {
        bench.write(leaf * bench.geometry().map_leaf_entries() + place, &[content + leaf as u32]);
    }
    bench.settle();
}

/// Reads the first two blocks of each leaf, each with the content of the first write that the map sees.
#[track_caller]
fn assert_reads(bench: &mut Bench, map: VolumeId, contents: [u32; 2]) {
    let per_leaf = bench.geometry().map_leaf_entries();
    for leaf in 0..LEAVES {
        let [first, second] = contents.map(|content| content + leaf as u32);
        bench.assert_has(map, &[(leaf * per_leaf, first), (leaf * per_leaf + 1, second)]);
    }
}

/// Checks that the deletion of a snapshot costs no more than three pages for each leaf that both maps have, however large its map is: what only the snapshot
/// has goes to the volume with one pointer.
#[test]
fn a_deletion_costs_the_leaves_that_both_maps_have() {
    for changed in [1, 16, LEAVES] {
        let mut bench = bench();
        let disk = bench.volume;
        let old = bench.snapshot("old");
        overwrite(&mut bench, changed, 0, 5000);
        let written = bench.world.engine.counters().pages_written;
        let reads = bench.world.submitted[0];
        bench.drop_snapshot(old);
        bench.settle();
        let written = (bench.world.engine.counters().pages_written - written).maps;
        let reads = bench.world.submitted[0] - reads;
        assert!(written + reads <= 3 * changed + 64, "{changed} leaves: {written} written, {reads} read");
        assert!(bench.world.engine.volume(old).is_none() && bench.world.engine.volumes().count() == 1);
        let used = bench.world.engine.status().data_blocks_used;
        assert_eq!(used, 2 * LEAVES, "the overwritten blocks are free");
        bench.assert_has(disk, &[(0, 5000), (1, 2000)]);
        bench.audit();
    }
}

/// Checks what all maps of a chain read while a snapshot in its middle is handed over, in parts, and that a crash in between loses nothing.
#[test]
fn maps_read_the_same_while_a_snapshot_is_handed_over() {
    for crashes in [false, true] {
        let mut bench = bench();
        let disk = bench.volume;
        let oldest = bench.snapshot("oldest");
        overwrite(&mut bench, LEAVES, 0, 5000);
        let middle = bench.snapshot("middle");
        overwrite(&mut bench, LEAVES, 0, 6000);
        let newest = bench.snapshot("newest");
        let clone = bench.clone_of(newest, "clone");
        bench.volume = clone;
        overwrite(&mut bench, LEAVES, 2, 7000);
        bench.volume = disk;
        bench.drop_snapshot(middle);
        for _ in 0..4 {
            assert_reads(&mut bench, oldest, [1000, 2000]);
            assert_reads(&mut bench, newest, [6000, 2000]);
            assert_reads(&mut bench, clone, [6000, 2000]);
            assert_reads(&mut bench, disk, [6000, 2000]);
            if crashes {
                bench.crash(Cut::Lost).unwrap();
            }
        }
        bench.settle();
        assert!(bench.world.engine.volume(middle).is_none());
        bench.drop_snapshot(oldest);
        for _ in 0..2 {
            assert_reads(&mut bench, newest, [6000, 2000]);
            assert_reads(&mut bench, clone, [6000, 2000]);
        }
        bench.settle();
        assert!(bench.world.engine.volume(oldest).is_none());
        assert_reads(&mut bench, disk, [6000, 2000]);
        assert_reads(&mut bench, clone, [6000, 2000]);
        bench.audit();
    }
}

/// Checks that a deleted snapshot is not read any more: its map loses its blocks while it is handed over, and a read would find zeroes.
#[test]
fn a_deleted_snapshot_is_not_read() {
    let mut bench = bench();
    let disk = bench.volume;
    let old = bench.snapshot("old");
    overwrite(&mut bench, LEAVES, 0, 5000);
    bench.volume = old;
    let before = bench.begin_read(0, 1);
    bench.drop_snapshot(old);
    let behind = bench.begin_read(0, 1);
    match bench.wait(before) {
        Ok(Answer::Data(content)) => assert!(content.iter().all(|&cell| cell == 1000)),
        before => assert_eq!(before.err(), Some(Error::Invalid)),
    }
    assert_eq!(bench.wait(behind).err(), Some(Error::Invalid));
    bench.volume = disk;
    bench.settle();
    bench.audit();
}

/// Checks that a deleted snapshot is handed over after a crash that came before the hand-over began: the pool was clean, nothing asked for a checkpoint, and
/// the space stayed away.
#[test]
fn a_hand_over_that_has_not_begun_begins_after_a_crash() {
    let mut bench = bench();
    let old = bench.snapshot("old");
    overwrite(&mut bench, LEAVES, 0, 5000);
    bench.drop_snapshot(old);
    bench.crash(Cut::Lost).unwrap();
    bench.settle();
    assert_eq!(bench.world.engine.status().data_blocks_used, 2 * LEAVES);
    bench.audit();
}
