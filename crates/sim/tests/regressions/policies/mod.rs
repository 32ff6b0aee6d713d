//! Policies in the engine. On real samples its counts must equal those of a computation that shares no code with it. Other tests cover the cost of a
//! rewrite with the same content.
//!
//! The samples are in `../shared/data/fiu`, seen from the root of the project. Without them the tests report that and pass.

mod coalesced;
mod examples;
mod index_copy;
mod naive;
mod neighbours;
mod sample;

use engine::{Command, Error, IoOp, Limits, VolumePropertyChange, WriteCounts};
use sim::content::{CELLS, Content};
use sim::runs::config::Config;
use sim::runs::workload::policy;
use sim::world::Answer;
use sim::world::disk::Cut;

use crate::bench::{Bench, SECOND, records};
use naive::Naive;
use sample::Sample;

/// Maximum length of a request in blocks.
const PIECE: usize = 64;

const POLICIES: [&str; 10] = [
    "native",
    "observe",
    "full",
    "select",
    "select:2",
    "select:4",
    "select:3,request",
    "idedup:2",
    "idedup",
    "idedup:8",
];

/// Makes a pool that takes all writes of a sample into one container and one delta. Every slot is used once, and overwritten blocks are dropped at
/// once.
fn roomy() -> Config {
    let mut config = Config::small(1);
    let geometry = &mut config.parameters.geometry;
    (geometry.slots_per_container, geometry.containers) = (8192, 2);
    (geometry.piece_blocks, geometry.journal_blocks, geometry.metadata_blocks) = (PIECE as u32, 16384, 16384);
    config.limits = Limits {
        buffers: 1024,
        write_buffers: 512,
        pages: 2048,
        index_entries: 1 << 16,
        index_chunk: 1 << 10,
        delta_entries: 1 << 14,
        ..config.limits
    };
    config
}

/// Returns the engine's counts for a sample under a policy.
fn counted(sample: &Sample, text: &str) -> WriteCounts {
    let mut bench = Bench::new(roomy(), sample.blocks);
    let volume = bench.volume;
    bench.command(Command::SetVolume {
        volume,
        change: VolumePropertyChange { policy: Some(Some(policy(text))), ..VolumePropertyChange::default() },
    });
    let checkpoints = bench.world.engine.status().checkpoints;
    for (first, contents) in &sample.writes {
        bench.write(*first, contents);
    }
    let status = bench.world.engine.status();
    assert_eq!(status.checkpoints, checkpoints, "nothing is merged meanwhile");
    let counts = bench.world.engine.volumes().next().expect("there is one").writes.counts();
    bench.audit();
    counts
}

/// Compares every policy on the sample of this name with `Naive`, and the blocks and requests that `select` removes with these numbers.
fn agrees(name: &str, read: fn(&str) -> Sample, removed_by_select: (u64, u64)) {
    let path = format!("{}/../../../shared/data/fiu/{name}", env!("CARGO_MANIFEST_DIR"));
    let Ok(text) = std::fs::read_to_string(&path) else {
        eprintln!("skipped: there is no sample at {path}");
        return;
    };
    let sample = read(&text);
    assert!(sample.writes.iter().all(|(_, contents)| contents.len() <= PIECE));
    for text in POLICIES {
        let mut naive = Naive::new(text);
        for (first, contents) in &sample.writes {
            naive.write(*first, contents);
        }
        let counts = counted(&sample, text);
        println!("{name} {text}: {counts:?}");
        let computed = naive.counts;
        assert_eq!(counts.requests, sample.writes.len() as u64);
        if text != "native" {
            assert_eq!(counts.categories, computed.categories, "{text}");
        }
        assert_eq!((counts.removed.blocks, counts.removed.requests), (computed.blocks, computed.requests), "{text}");
        assert_eq!((counts.written_blocks, counts.zero_blocks), (computed.written, computed.zero), "{text}");
        assert_eq!(counts.unchanged_blocks, computed.unchanged, "{text}");
        let what_if = match text {
            "full" => counts.what_if.full,
            "idedup" => counts.what_if.idedup,
            "select" => {
                assert_eq!((counts.removed.blocks, counts.removed.requests), removed_by_select);
                counts.what_if.select
            }
            _ => continue,
        };
        assert_eq!(what_if, counts.removed, "{text}");
    }
}

#[test]
fn a_sample_of_homes_is_decided_as_computed() {
    agrees("homes-sample.1.blkparse", sample::homes, (118, 109));
}

#[test]
fn a_sample_of_mail_is_decided_as_computed() {
    agrees("mail_day1_first10000.csv", sample::mail, (131, 73));
}

/// Writes a sample, merges it, and writes it again elsewhere, with an index of 16 entries in memory. Every block whose content is in the pool is
/// removed.
fn is_found_on_disk(name: &str, read: fn(&str) -> Sample) {
    let path = format!("{}/../../../shared/data/fiu/{name}", env!("CARGO_MANIFEST_DIR"));
    let Ok(text) = std::fs::read_to_string(&path) else {
        eprintln!("skipped: there is no sample at {path}");
        return;
    };
    let sample = read(&text);
    let mut config = roomy();
    config.limits.index_entries = 16;
    config.parameters.geometry.containers = 4;
    let mut bench = Bench::new(config, 2 * sample.blocks);
    let mut live = std::collections::BTreeMap::new();
    for (first, contents) in &sample.writes {
        bench.write(*first, contents);
        live.extend((*first..).zip(contents.iter().copied()));
    }
    bench.settle();
    while !bench.world.engine.disk_index_status().is_complete {
        bench.pass(SECOND);
    }
    let before = writes(&bench).removed.blocks;
    let live: std::collections::BTreeSet<u32> = live.into_values().collect();
    let mut known = 0;
    for (first, contents) in &sample.writes {
        bench.write(sample.blocks + first, contents);
        known += contents.iter().filter(|content| **content != 0 && live.contains(content)).count() as u64;
    }
    let removed = writes(&bench).removed.blocks - before;
    println!("{name}: {known} blocks are known, {removed} removed");
    assert!(known > 500 && removed >= known);
    bench.audit();
}

#[test]
fn what_memory_has_forgotten_of_the_samples_is_found_on_disk() {
    is_found_on_disk("homes-sample.1.blkparse", sample::homes);
    is_found_on_disk("mail_day1_first10000.csv", sample::mail);
}

// ---- unchanged blocks: a block is written again with its own content ----

fn writes(bench: &Bench) -> WriteCounts {
    bench.world.engine.volumes().next().expect("there is one").writes.counts()
}

#[test]
fn a_durable_write_of_what_is_there_waits_for_the_record_of_the_earlier_copy() {
    let mut bench = Bench::new(Config::small(1), 64);
    bench.write(0, &[5]);
    bench.world.hold_back(records(bench.geometry()));
    let token = bench.begin_write(0, &[5], true);
    bench.until_held(1);
    bench.pass(SECOND / 10);
    assert_eq!(bench.answer(token), None);
    bench.let_all_go();
    assert_eq!(bench.wait(token), Ok(Answer::Done));
    assert_eq!(writes(&bench).unchanged_blocks, 1);
    bench.crash(Cut::Lost).expect("the pool opens");
    bench.assert_holds(0, 5);
    bench.audit();
}

#[test]
fn a_durable_write_of_what_is_there_and_durable_waits_for_no_write_and_no_sync() {
    let mut bench = Bench::new(Config::small(1), 64);
    bench.write(0, &[5, 6]);
    bench.write_durably(9, 7);
    // Whole blocks, and a partial block with unchanged bytes.
    let entries = bench.world.engine.status().unmerged_entries;
    bench.world.hold_back(|io| io.op.is_write() || io.op == IoOp::Sync);
    for (first, values) in [(0, vec![5; 8]), (8, vec![6; 8]), (75, vec![7; 3])] {
        let token = bench.begin_cells(first, &values, true);
        assert_eq!(bench.wait(token), Ok(Answer::Done));
    }
    assert_eq!(bench.world.engine.status().unmerged_entries, entries);
    assert_eq!((writes(&bench).unchanged_blocks, writes(&bench).removed.requests), (3, 3));
    bench.let_all_go();
    bench.audit();
}

#[test]
fn where_the_map_is_not_in_memory_the_merge_drops_what_was_there_already() {
    let mut config = Config::small(1);
    config.limits.map_buffer = 0;
    let mut bench = Bench::new(config, 64);
    bench.write(0, &[5, 6, 7]);
    bench.reopen();
    // The index is filled again. No request has read the map.
    bench.pass(5 * SECOND);
    bench.write(0, &[5, 6]);
    assert_eq!(bench.world.engine.status().unmerged_entries, 2);
    assert_eq!((writes(&bench).unchanged_blocks, writes(&bench).removed.blocks), (0, 2));
    bench.settle();
    assert_eq!((writes(&bench).unchanged_blocks, writes(&bench).written_blocks), (2, 0));
    assert_eq!(bench.world.engine.status().data_blocks_used, 3);
    // From here on the leaf is in memory.
    bench.write(0, &[5, 6]);
    assert_eq!((writes(&bench).unchanged_blocks, writes(&bench).removed.blocks), (4, 4));
    assert_eq!(bench.world.engine.status().unmerged_entries, 0);
    bench.audit();
}

#[test]
fn a_scattered_duplicate_that_is_written_again_takes_no_reference() {
    let mut bench = Bench::new(Config::small(1), 64);
    let volume = bench.volume;
    bench.write(0, &[1, 2, 3, 4]);
    bench.command(Command::SetVolume {
        volume,
        change: VolumePropertyChange { policy: Some(Some(policy("select"))), ..VolumePropertyChange::default() },
    });
    bench.write(8, &[50, 2, 51, 4]);
    bench.settle();
    assert_eq!(bench.world.engine.status().data_blocks_used, 8);
    // The first copies are trimmed, and nothing else refers to their slots.
    bench.trim_blocks(0, 4);
    bench.settle();
    assert_eq!(bench.world.engine.status().data_blocks_used, 4);
    for (block, content) in [(8, 50), (9, 2), (10, 51), (11, 4)] {
        bench.assert_holds(block, content);
    }
    bench.audit();
}

/// A block had lost its content, and there was no other copy. It was written again with the same content. The index and the map named the rotten
/// slot, so the block was shared with that slot, or counted as unchanged.
///
/// Lost: the one copy that could have helped. Reads went on failing.
#[test]
fn a_lost_block_is_there_again_when_its_content_is_written() {
    for block in [0, 9] {
        let mut bench = Bench::new(Config::small(1), 64);
        bench.write(0, &[5, 6]);
        bench.settle();
        bench.reopen();
        bench.pass(5 * SECOND);
        let first = bench.geometry().data_start();
        let holds = |&place: &u64| bench.world.disk.read(place).to_cells() == [5; CELLS];
        let place = (first..bench.world.disk.blocks()).find(holds).expect("it is stored");
        let mut bytes = bench.world.disk.read(place).to_bytes(bench.world.disk.block_size()).to_vec();
        bytes[100] ^= 0x40;
        bench.world.disk.put(place, Content::Metadata(bytes.into()));
        assert_eq!(bench.read(0), Err(Error::Io));
        bench.pass(SECOND);
        bench.write(block, &[5]);
        bench.settle();
        bench.reopen();
        bench.assert_holds(block, 5);
        bench.assert_holds(1, 6);
    }
}
