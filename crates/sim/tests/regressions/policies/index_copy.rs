//! The copy that the index names, under each setting, for the same writes.

use engine::{Command, IndexCopy, PoolChange, VolumePropertyChange, WriteCounts};
use sim::runs::workload::policy;

use super::naive::Naive;
use super::sample::{self, Sample};
use super::{PIECE, roomy};
use crate::bench::Bench;

const COPIES: [IndexCopy; 3] = [IndexCopy::Sequential, IndexCopy::Oldest, IndexCopy::Newest];

fn bench(copy: IndexCopy, text: &str, blocks: u64) -> Bench {
    let mut bench = Bench::new(roomy(), blocks);
    let (volume, policy) = (bench.volume, Some(Some(policy(text))));
    bench.command(Command::SetVolume {
        volume,
        change: VolumePropertyChange { policy, ..VolumePropertyChange::default() },
    });
    bench.command(Command::SetPool(PoolChange { index_copy: Some(copy), ..PoolChange::default() }));
    bench
}

fn counts(bench: &Bench) -> WriteCounts {
    bench.world.engine.write_counts()
}

/// Returns the blocks removed of these writes, one after the other in fresh places, with each setting.
fn removed_blocks(policy: &str, writes: &[&[u32]]) -> [u64; 3] {
    COPIES.map(|copy| {
        let mut bench = bench(copy, policy, 256);
        for (at, contents) in (0..).zip(writes) {
            bench.write(8 * at, contents);
        }
        bench.audit();
        counts(&bench).removed.blocks
    })
}

const FILE: &[u32] = &[1, 2, 3, 4];

/// Blocks that were written one by one, among others, are written again as a file.
#[test]
fn what_was_scattered_and_is_written_in_a_run_is_known_there_unless_the_oldest_is_named() {
    let scattered: [&[u32]; 8] = [&[1], &[11], &[2], &[12], &[3], &[13], &[4], &[14]];
    let writes = [&scattered[..], &[FILE; 3]].concat();
    assert_eq!(removed_blocks("select", &writes), [8, 0, 8]);
}

/// A block of the file is written with a new one. The two runs take it from each other, unless it stays at its first place.
#[test]
fn what_belongs_to_two_requests_stays_with_the_first_if_the_oldest_is_named() {
    let other: &[u32] = &[50, 2];
    assert_eq!(removed_blocks("select", &[FILE, other, other, FILE, other, FILE]), [2, 8, 2]);
}

/// Parts of the file that are too short to be shared are written again.
#[test]
fn a_part_of_a_run_that_is_written_again_breaks_it_if_the_newest_is_named() {
    assert_eq!(removed_blocks("idedup", &[FILE, &FILE[..2], FILE, &FILE[2..], FILE]), [8, 8, 0]);
}

/// Returns the blocks and requests that the engine removes of a sample with each setting, and checks them against `Naive`.
fn removed(sample: &Sample) -> [(u64, u64); 3] {
    COPIES.map(|copy| {
        let mut naive = Naive::new("select");
        naive.index_copy = match copy {
            IndexCopy::Sequential => "sequential",
            IndexCopy::Oldest => "oldest",
            IndexCopy::Newest => "newest",
        };
        let mut bench = bench(copy, "select", sample.blocks);
        for (first, contents) in &sample.writes {
            assert!(contents.len() <= PIECE);
            naive.write(*first, contents);
            bench.write(*first, contents);
        }
        let found = counts(&bench).removed;
        assert_eq!((found.blocks, found.requests), (naive.counts.blocks, naive.counts.requests), "{copy}");
        (found.blocks, found.requests)
    })
}

/// The figures of docs/guide/policies.md.
#[test]
fn what_each_setting_removes_of_real_samples() {
    for (name, read, figures) in [
        ("homes-sample.1.blkparse", sample::homes as fn(&str) -> Sample, [(118, 109); 3]),
        ("mail_day1_first10000.csv", sample::mail, [(131, 73), (134, 73), (131, 73)]),
    ] {
        let path = format!("{}/../../../shared/data/fiu/{name}", env!("CARGO_MANIFEST_DIR"));
        let Ok(text) = std::fs::read_to_string(&path) else {
            eprintln!("skipped: there is no sample at {path}");
            continue;
        };
        let found = removed(&read(&text));
        println!("{name}: {found:?}");
        assert_eq!(found, figures, "{name}");
    }
}
