//! Time slices: requests with long work take turns, and short requests are served before them.
//!
//! A query for the extents of a dense range took up to 8,192 steps of some hundred nanoseconds. All queries received so far were answered before any
//! other request was looked at. A client that sent one behind the other kept all others waiting for more than a second, and the handshakes of others
//! took so long that they were given up. Large clears over a large delta were as bad.

use sim::content::CELLS;
use sim::runs::config::Config;
use sim::world::Answer;

use crate::bench::Bench;

const BLOCKS: u64 = 384;

/// Makes a volume of which every block is mapped, merged or still in the delta. The first leaf is in memory.
fn dense(is_merged: bool) -> Bench {
    let mut config = Config::small(1);
    (config.parameters.geometry.containers, config.parameters.geometry.journal_blocks) = (64, 512);
    config.limits.delta_entries = if is_merged { 256 } else { 1024 };
    let mut bench = Bench::new(config, BLOCKS);
    for block in (0..BLOCKS).step_by(8) {
        bench.write(block, &[7; 8]);
    }
    if is_merged {
        bench.settle();
    }
    // Its turns are as long as those of a small delta.
    bench.assert_holds(0, 7);
    bench
}

/// Returns the number of the other requests that have been answered when this one is.
fn answered_before(bench: &mut Bench, others: &[u64], one: u64) -> usize {
    let mut count = 0;
    loop {
        count += others.iter().filter(|&&token| bench.answer(token).is_some()).count();
        if bench.answer(one).is_some() {
            return count;
        }
        assert!(bench.step_once(), "never answered");
    }
}

#[test]
fn a_short_read_is_answered_before_questions_for_everything_that_came_first() {
    for is_merged in [true, false] {
        let mut bench = dense(is_merged);
        bench.client = 1;
        let questions: Vec<u64> = (0..12).map(|_| bench.begin_extents(0, BLOCKS)).collect();
        bench.client = 2;
        let read = bench.begin_read(0, 1);
        assert_eq!(answered_before(&mut bench, &questions, read), 0);
    }
}

#[test]
fn a_client_with_many_questions_gets_no_more_than_one_with_one() {
    let mut bench = dense(true);
    bench.client = 1;
    let many: Vec<u64> = (0..12).map(|_| bench.begin_extents(0, BLOCKS)).collect();
    bench.client = 2;
    let one = bench.begin_extents(0, BLOCKS);
    assert_eq!(answered_before(&mut bench, &many, one), 1);
}

#[test]
fn a_question_for_everything_is_answered_in_parts_that_a_turn_has_space_for() {
    for is_merged in [true, false] {
        let mut bench = dense(is_merged);
        let (mut at, mut questions) = (0, 0);
        while at < BLOCKS {
            let before = bench.world.engine.slice_steps_taken();
            let token = bench.begin_extents(at, BLOCKS - at);
            let answer = bench.wait(token);
            let Ok(Answer::Extents(extents)) = answer else { panic!("{answer:?}") };
            assert!(extents.len() == 1 && !extents[0].hole, "{extents:?}");
            at += extents[0].length / bench.geometry().block();
            questions += 1;
            let taken = bench.world.engine.slice_steps_taken() - before;
            assert!(taken <= bench.config.limits.slice_steps() + 64, "{taken}");
        }
        assert!(questions > 1, "{questions}");
    }
}

/// While the delta had any point, holes were found block by block. An answer covered at most 8 MiB. A client that looked for the data of a volume of
/// 1 TiB, of which one block had just been written, sent 131,072 queries.
#[test]
fn holes_are_as_long_beside_points_of_the_delta_as_without() {
    const LARGE: u64 = 1 << 16;
    for points in [1, 8, 64] {
        let mut config = Config::small(1);
        config.limits.delta_entries = 256;
        let mut bench = Bench::new(config, LARGE);
        let at = |number: u64| number * (LARGE / points);
        for number in 0..points {
            bench.write(at(number), &[7]);
        }
        let (mut questions, mut next) = (0, 0);
        while next < LARGE {
            let token = bench.begin_extents(next, LARGE - next);
            let answer = bench.wait(token);
            let Ok(Answer::Extents(extents)) = answer else { panic!("{answer:?}") };
            for extent in extents {
                let length = extent.length / bench.geometry().block();
                assert_eq!(extent.hole, next % (LARGE / points) != 0, "{points} points, block {next}");
                assert!(!extent.hole || length < LARGE / points);
                next += length;
            }
            questions += 1;
        }
        assert!(questions <= 8 * points, "{questions} questions for {points} points");
    }
}

#[test]
fn a_clear_of_everything_over_a_full_delta_lets_others_go_first_between_its_parts() {
    let mut bench = dense(false);
    bench.client = 1;
    let trims: Vec<u64> = (0..4).map(|_| bench.begin_trim_cells(3, BLOCKS * CELLS as u64 - 5)).collect();
    bench.client = 2;
    let read = bench.begin_read(0, 1);
    assert_eq!(answered_before(&mut bench, &trims, read), 0);
    let begun = bench.world.engine.slice_steps_taken();
    for token in trims {
        assert_eq!(bench.wait(token), Ok(Answer::Done));
    }
    let taken = bench.world.engine.slice_steps_taken() - begun;
    assert!(taken > bench.config.limits.slice_steps(), "{taken} steps are one turn");
    for block in 1..BLOCKS - 1 {
        bench.assert_holds(block, 0);
    }
    bench.audit();
}
