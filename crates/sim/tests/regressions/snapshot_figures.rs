//! Figures of snapshots and clones (RFC 0020): what each holds, what it refers to, and what the snapshots of a volume hold.

use engine::{Command, InheritedCounts, SnapshotSum, VolumeId};
use sim::runs::config::Config;
use sim::world::disk::Cut;

use crate::bench::Bench;

const BLOCKS: u64 = 512;
/// Blocks of a leaf of the map.
const LEAF: u64 = 64;

impl Bench {
    /// Returns what a volume holds, and what it refers to, once the pool has settled and the audit has counted both.
    fn figures(&mut self, volume: VolumeId) -> (u64, u64) {
        self.settle();
        self.audit();
        let engine = &self.world.engine;
        let volume = engine.volume(volume).expect("it is there");
        (engine.held_by(volume), engine.referred_by(volume, &mut InheritedCounts::default()))
    }
}

fn bench() -> (Bench, VolumeId) {
    let mut bench = Bench::new(Config::small(1), BLOCKS);
    bench.write(0, &[1, 2, 3]);
    bench.write(LEAF, &[4, 5]);
    bench.write(2 * LEAF, &[6, 7, 8, 9]);
    bench.write(300, &[10]);
    let disk = bench.volume;
    (bench, disk)
}

/// Checks the figures after overwrites, discards of single blocks and of whole leaves, in a volume, a clone, and below a second snapshot.
#[test]
fn a_volume_refers_to_what_it_reads_as() {
    let (mut bench, disk) = bench();
    let first = bench.snapshot("first");
    assert_eq!([disk, first].map(|volume| bench.figures(volume)), [(0, 10), (10, 10)]);
    let clone = bench.clone_of(first, "clone");
    assert_eq!(bench.figures(clone), (0, 10));
    // A block of its own for an inherited one, one where there was none, a leaf with two blocks cut off, and one block.
    bench.write(0, &[11]);
    bench.write(40, &[12]);
    bench.trim_blocks(LEAF, LEAF);
    bench.trim_blocks(2 * LEAF, 1);
    assert_eq!([disk, first].map(|volume| bench.figures(volume)), [(2, 8), (10, 10)]);
    let second = bench.snapshot("second");
    // A leaf of its own that inherits blocks is cut off.
    bench.write(2, &[13]);
    bench.trim_blocks(0, LEAF);
    assert_eq!([disk, second].map(|volume| bench.figures(volume)), [(0, 4), (2, 8)]);
    bench.volume = clone;
    bench.trim_blocks(0, BLOCKS);
    bench.write(7, &[14]);
    assert_eq!(bench.figures(clone), (1, 1));
    bench.reopen();
    assert_eq!([disk, first, second, clone].map(|volume| bench.figures(volume)), [(0, 4), (10, 10), (2, 8), (1, 1)]);
}

/// Checks that leaves which are still to be counted when a crash comes are counted later, also where a snapshot has taken the map meanwhile.
#[test]
fn what_is_still_to_be_counted_survives_a_crash() {
    let (mut bench, disk) = bench();
    let first = bench.snapshot("first");
    bench.trim_blocks(0, BLOCKS);
    let second = bench.snapshot("second");
    let token = bench.begin_flush();
    bench.wait(token).unwrap();
    bench.crash(Cut::Lost).unwrap();
    assert_eq!([disk, first, second].map(|volume| bench.figures(volume)), [(0, 0), (10, 10), (0, 0)]);
}

/// Checks what the snapshots of a volume hold, and a deleted one that a clone inherits from.
#[test]
fn what_snapshots_hold_is_known_by_volume() {
    let (mut bench, disk) = bench();
    let first = bench.snapshot("first");
    bench.write(0, &[11]);
    bench.snapshot("second");
    bench.settle();
    bench.audit();
    let held = |bench: &Bench| bench.world.engine.held_by_snapshots_of(disk);
    assert_eq!(held(&bench), SnapshotSum { snapshots: 2, blocks: 11 });
    bench.command(Command::DeleteVolume { volume: first });
    assert_eq!(held(&bench).snapshots, 1);
    let engine = &bench.world.engine;
    let named: Vec<_> = engine.held_by_snapshots().map(|(volume, sum)| (volume.id, sum)).collect();
    assert_eq!(named, [(disk, held(&bench))]);
    assert_eq!(held(&bench).blocks + engine.held_by_deleted_snapshots().blocks, 11);
}

/// Checks the figures of a chain while a snapshot in its middle is handed over, in parts, with crashes and without: the audit counts the hidden blocks between two
/// parts. The volume overwrites blocks, trims leaves whole and in part, and trims more while the hand-over goes on.
#[test]
fn figures_hold_while_a_snapshot_is_handed_over() {
    for (has_parent, crashes) in [(false, false), (false, true), (true, false), (true, true)] {
        let mut config = Config::small(1);
        config.parameters.geometry.metadata_blocks = 4096;
        config.parameters.geometry.containers = 64;
        config.limits.pages = 512;
        // A checkpoint walks and hands over a few leaves only.
        config.limits.discard_leaves = 1;
        let mut bench = Bench::new(config, 64 * LEAF);
        let disk = bench.volume;
        let write = |bench: &mut Bench, leaves: core::ops::Range<u64>, place: u64| {
            leaves.for_each(|leaf| bench.write(leaf * LEAF + place, &[(100 * leaf + place) as u32 + 1]));
        };
        write(&mut bench, 0..64, 0);
        write(&mut bench, 0..64, 1);
        let oldest = has_parent.then(|| bench.snapshot("oldest"));
        write(&mut bench, 0..48, 2);
        bench.trim_blocks(8 * LEAF, 2 * LEAF);
        let middle = bench.snapshot("middle");
        write(&mut bench, 0..40, 3);
        bench.write(5 * LEAF, &[7, 8]);
        bench.trim_blocks(40 * LEAF, 10 * LEAF);
        bench.trim_blocks(20 * LEAF, 1);
        let refers = bench.figures(disk).1;
        bench.command(Command::DeleteVolume { volume: middle });
        let (mut trimmed, mut checked) = (0, 0);
        while bench.world.engine.held_by_deleted_snapshots().snapshots > 0 {
            let done = bench.world.engine.counters().checkpoints;
            while bench.world.engine.counters().checkpoints == done && bench.step_once() {
                let findings = bench.findings();
                if !findings.iter().any(|finding| finding.contains("not at rest")) {
                    assert!(findings.is_empty(), "{findings:?}");
                    checked += 1;
                }
            }
            if crashes {
                bench.crash(Cut::Lost).unwrap();
            }
            if trimmed < 4 {
                bench.trim_blocks((51 + trimmed) * LEAF, LEAF);
                trimmed += 1;
            }
        }
        assert!(!crashes || checked > 100, "{checked} states were checked");
        let (own, refers_now) = bench.figures(disk);
        assert_eq!(refers_now, refers - 2 * trimmed, "{has_parent} {crashes}");
        assert!(has_parent || own == refers_now, "nothing is inherited");
        if let Some(oldest) = oldest {
            assert_eq!(bench.figures(oldest), (128, 128));
        }
    }
}
