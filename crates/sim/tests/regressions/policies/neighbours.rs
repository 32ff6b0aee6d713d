//! Index prefetch: digests that enter the index ahead of need, because an adjacent block was found.

use engine::{IndexPrefetchCounts, Limits};

use super::roomy;
use crate::bench::{Bench, SECOND};

fn counts(bench: &Bench) -> IndexPrefetchCounts {
    bench.world.engine.index_prefetch_counts()
}

const BEFORE: IndexPrefetchCounts = IndexPrefetchCounts { pages: 1, loads: 0, entries: 0, hits: 0 };
/// Blocks that were removed before the test.
const REMOVED: u64 = 65;

fn removed(bench: &Bench) -> u64 {
    bench.world.engine.write_counts().removed.blocks
}

/// Makes a pool whose index has evicted the adjacent contents 1 to 20, except 10, and whose pages are not in memory.
fn with_forgotten_neighbours() -> Bench {
    let mut config = roomy();
    config.limits = Limits { index_entries: 1024, pages: 96, ..config.limits };
    let mut bench = Bench::new(config, 6000);
    let file: Vec<u32> = (1..=20).collect();
    bench.write(0, &file);
    bench.settle();
    // A hit, whose neighbours are all known already.
    bench.write(4500, &[10]);
    for round in 0..64 {
        // A rewrite of the unchanged block keeps the entry, and is no hit.
        bench.write(4500, &[10]);
        let others: Vec<u32> = (0..64).map(|at| 1000 + 64 * round + at).collect();
        bench.write(100 + 64 * u64::from(round), &others);
    }
    bench.settle();
    bench.pass(11 * SECOND);
    assert_eq!(counts(&bench), BEFORE);
    bench
}

#[test]
fn what_lies_beside_a_hit_is_known_again_for_a_page() {
    let mut bench = with_forgotten_neighbours();
    let reads = bench.world.submitted[0];
    bench.write(5000, &[10]);
    // The write waits only for the page that proves the hit.
    let own = bench.world.submitted[0] - reads;
    assert_eq!((removed(&bench), counts(&bench).pages), (REMOVED + 1, BEFORE.pages));
    bench.pass(SECOND);
    let came = counts(&bench);
    assert!(came.pages == 2 && came.entries >= 15, "{came:?}");
    assert_eq!(came.loads, bench.world.submitted[0] - reads - own);
    assert!((1..=4).contains(&came.loads), "{came:?}");
    let file: Vec<u32> = (1..=20).collect();
    bench.write(5100, &file);
    let found = counts(&bench).hits;
    assert!(found >= 15 && found <= came.entries, "{found} of {came:?}");
    // Some others had never been evicted. Now all are known.
    assert_eq!(removed(&bench), REMOVED + 1 + 20);
    bench.audit();
}

#[test]
fn a_page_is_gone_through_once_in_a_while() {
    let mut bench = with_forgotten_neighbours();
    for round in 1..=3 {
        for at in 0..8 {
            bench.write(5000 + 8 * round + at, &[10]);
        }
        bench.pass(11 * SECOND);
        assert_eq!(counts(&bench).pages, BEFORE.pages + round);
    }
    bench.audit();
}

#[test]
fn a_page_that_cannot_be_read_harms_nobody() {
    let mut bench = with_forgotten_neighbours();
    bench.world.fail(crate::bench::page_reads);
    bench.write(5000, &[10]);
    bench.pass(SECOND);
    assert_eq!(counts(&bench).entries, 0);
    bench.world.fail(|_| false);
    bench.write(5001, &[10]);
    bench.assert_holds(5000, 10);
    bench.audit();
}

#[test]
fn native_has_no_hits() {
    let mut bench = with_forgotten_neighbours();
    let (volume, policy) = (bench.volume, Some(Some(engine::Policy::Native)));
    bench.command(engine::Command::SetVolume {
        volume,
        change: engine::VolumePropertyChange { policy, ..engine::VolumePropertyChange::default() },
    });
    bench.write(5000, &[10]);
    bench.pass(SECOND);
    assert_eq!(counts(&bench), BEFORE);
}

/// Each block that was found had its page gone through, and every digest of it was looked up in the index, even where all were known. A write of a
/// known block took the processor 18 microseconds longer than one of a new block.
#[test]
fn where_nothing_is_gained_few_pages_are_gone_through() {
    let mut config = roomy();
    config.limits = Limits { index_entries: 1 << 14, ..config.limits };
    let mut bench = Bench::new(config, 6000);
    let contents: Vec<u32> = (1..=4096).collect();
    for (at, piece) in (0..).step_by(64).zip(contents.chunks(64)) {
        bench.write(at, piece);
    }
    bench.settle();
    for (at, content) in (0..300).zip(contents.iter().step_by(13)) {
        bench.write(5000 + at, &[*content]);
        bench.pass(SECOND / 10);
    }
    let (found, counts) = (bench.world.engine.write_counts().index_hits, counts(&bench));
    assert_eq!(found, 300);
    assert_eq!((counts.pages, counts.entries), (16 + 300 / 256, 0), "{counts:?}");
}
