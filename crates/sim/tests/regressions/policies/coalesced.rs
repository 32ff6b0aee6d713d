//! Coalesced writes: contiguous writes that arrive together are decided as one request.

use engine::{Command, Error, VolumePropertyChange, WriteCounts};
use sim::runs::config::Config;
use sim::runs::run::Run;
use sim::runs::workload::Generator;
use sim::transcript::Trace;
use sim::world::Answer;

use crate::bench::{Bench, tight};

fn counts(bench: &Bench) -> WriteCounts {
    bench.world.engine.write_counts()
}

/// Begins writes at the same moment. Each has a first block, contents, and FUA.
fn begin(bench: &mut Bench, writes: &[(u64, &[u32], bool)]) -> Vec<u64> {
    writes.iter().map(|(block, contents, fua)| bench.begin_write(*block, contents, *fua)).collect()
}

/// Returns the number of requests and of coalesced requests that simultaneous writes become. All are answered, and each block holds its last content.
fn requests(writes: &[(u64, &[u32], bool)]) -> (u64, u64) {
    let mut bench = Bench::new(Config::small(1), 64);
    for token in begin(&mut bench, writes) {
        assert_eq!(bench.wait(token), Ok(Answer::Done));
    }
    let found = (counts(&bench).requests, counts(&bench).coalesced_requests);
    let mut holds = [0; 64];
    for (block, contents, _) in writes {
        holds[*block as usize..][..contents.len()].copy_from_slice(contents);
    }
    for (block, &content) in (0..).zip(&holds) {
        bench.assert_holds(block, content);
    }
    bench.audit();
    found
}

#[test]
fn contiguous_writes_that_arrive_together_are_one_request() {
    let one: [(u64, &[u32], bool); 4] = [(4, &[1], false), (5, &[2], false), (6, &[3, 4], false), (3, &[5], false)];
    assert_eq!(requests(&one), (1, 3));
    let backwards: Vec<_> = one.into_iter().rev().collect();
    assert_eq!(requests(&backwards), (2, 2), "3, and what follows it from behind");
    let durable = one.map(|(block, contents, _)| (block, contents, true));
    assert_eq!(requests(&durable), (1, 3));
    // Another write came between them.
    assert_eq!(requests(&[(4, &[1], false), (20, &[8], false), (5, &[2], false)]), (2, 1));
}

#[test]
fn what_is_not_contiguous_or_not_of_a_kind_stays_by_itself() {
    assert_eq!(requests(&[(4, &[1], false), (6, &[2], false)]), (2, 0));
    assert_eq!(requests(&[(4, &[1], false), (5, &[2], true)]), (2, 0));
    let piece = Config::small(1).parameters.geometry.piece_blocks as usize;
    let long = vec![7; piece];
    assert_eq!(requests(&[(4, &long[1..], false), (3, &[1], false)]), (1, 1));
    assert_eq!(requests(&[(4, &long, false), (3, &[1], false)]), (2, 0), "longer than a request can be");
    let mut bench = Bench::new(Config::small(1), 64);
    let first = bench.begin_write(3, &[1], false);
    assert_eq!(bench.wait(first), Ok(Answer::Done));
    let second = bench.begin_write(4, &[2], false);
    assert_eq!(bench.wait(second), Ok(Answer::Done));
    assert_eq!(counts(&bench).coalesced_requests, 0, "the first had run");
    let tokens = [bench.begin_write(5, &[3], false), bench.begin_cells(48, &[4; 3], false)];
    assert!(tokens.into_iter().all(|token| bench.wait(token) == Ok(Answer::Done)));
    assert_eq!(counts(&bench).coalesced_requests, 0, "a part of a block");
}

/// A write must not overtake an overlapping one to join a third write that it continues.
#[test]
fn overlapping_writes_keep_their_order() {
    assert_eq!(requests(&[(4, &[1], false), (5, &[2, 3], true), (5, &[4], false)]), (3, 0));
    assert_eq!(requests(&[(4, &[1], false), (4, &[2], false), (5, &[3], false)]), (2, 1));
    assert_eq!(requests(&[(4, &[1, 2], false), (5, &[3], false), (6, &[4], false)]), (2, 1));
}

#[test]
fn a_run_that_a_client_cuts_up_is_shared_as_a_run() {
    let mut bench = Bench::new(Config::small(1), 64);
    let volume = bench.volume;
    bench.command(Command::SetVolume {
        volume,
        change: VolumePropertyChange {
            policy: Some(Some("idedup".parse().unwrap())),
            ..VolumePropertyChange::default()
        },
    });
    bench.write(0, &[1, 2, 3, 4]);
    for (block, content) in (10..14).zip(1..) {
        bench.write(block, &[content]);
    }
    assert_eq!(counts(&bench).removed.blocks, 0, "one by one, they are too short");
    for token in begin(&mut bench, &[(20, &[1], false), (21, &[2], false), (22, &[3], false), (23, &[4], false)]) {
        assert_eq!(bench.wait(token), Ok(Answer::Done));
    }
    assert_eq!((counts(&bench).removed.blocks, counts(&bench).removed.requests), (4, 1));
    bench.audit();
}

/// Of joined writes only those without space fail.
#[test]
fn a_full_pool_takes_of_joined_writes_what_fits() {
    let mut bench = Bench::new(tight(2), 64);
    bench.write(0, &[10, 11, 12, 13]);
    bench.write(4, &[14, 15]);
    bench.settle();
    let tokens = begin(&mut bench, &[(20, &[1], false), (21, &[2], false), (22, &[3], false)]);
    let answers: Vec<_> = tokens.into_iter().map(|token| bench.wait(token)).collect();
    assert_eq!(answers, [Ok(Answer::Done), Ok(Answer::Done), Err(Error::NoSpace)]);
    assert_eq!(counts(&bench).requests, 4);
    for (block, content) in [(20, 1), (21, 2), (22, 0)] {
        bench.assert_holds(block, content);
    }
    bench.audit();
}

/// The volume shrinks while joined writes wait for space. Writes that are still inside of it are performed.
#[test]
fn of_joined_writes_only_those_beyond_a_new_end_are_refused() {
    let mut bench = Bench::new(tight(2), 24);
    bench.write(0, &[10, 11, 12, 13]);
    bench.write(4, &[14, 15, 16, 17]);
    bench.settle();
    let trim = bench.begin_trim_cells(0, 32);
    let tokens = begin(&mut bench, &[(19, &[1], false), (20, &[2], false)]);
    let (volume, size) = (bench.volume, 20 * bench.geometry().block());
    let resize = bench.begin_command(Command::ResizeVolume { volume, size });
    let answers: Vec<_> = tokens.into_iter().map(|token| bench.wait(token)).collect();
    assert_eq!(answers, [Ok(Answer::Done), Err(Error::Invalid)]);
    assert_eq!(bench.wait(trim), Ok(Answer::Done));
    bench.await_command(resize);
    bench.assert_holds(19, 1);
    bench.audit();
}

/// Random runs of the simulator meet coalesced writes and prefetched digests.
#[test]
fn the_swarm_joins_writes_and_looks_beside_what_it_finds() {
    let (mut joined, mut pages) = (0, 0);
    for seed in 0..30 {
        let mut run = Run::start(Config::swarm(seed), Trace::new(false), false).unwrap();
        let sequence = Generator::new(&run.config.clone(), seed, false).operations(200);
        run.perform(&sequence).unwrap();
        joined += run.world.engine.write_counts().coalesced_requests;
        pages += run.world.engine.index_prefetch_counts().pages;
    }
    assert!(joined > 100 && pages > 100, "{joined} joined, {pages} pages");
}
