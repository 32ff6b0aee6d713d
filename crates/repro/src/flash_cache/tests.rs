use engine::admission::Rules;

use super::policies::{Policy, Sar};
use super::workload::{Data, EXTENT, Piece, Shape, Unit, reads};
use super::*;

const SMALL: Shape = Shape { bytes: 1 << 30, container_bytes: 4 << 20, read_bytes: 4 << 30, ..Shape::SLIDES };

fn counts(policy: Policy, level: Level, shape: &Shape) -> Outcome {
    let data = Data::new(shape);
    let setup = Setup { level, ..Setup::new(policy, shape.bytes / 50) };
    run(&data, &reads(shape, &data), &setup).expect("it has no disks")
}

#[test]
fn containers_are_full_and_counted() {
    let data = Data::new(&SMALL);
    assert!(data.references.iter().all(|&references| references > 0));
    assert!(data.extent_references.iter().all(|&references| references > 0));
    assert!(data.extent_references.iter().any(|&references| references > 1), "nothing is shared");
    for file in 0..data.files() as u32 {
        let inside = |piece: &Piece| piece.first + piece.extents <= data.extents_per_container && piece.extents > 0;
        assert!(data.file(file).1.iter().all(inside));
    }
}

#[test]
fn popular_files_are_read_as_zipf_says() {
    let shape = Shape { unit: Unit::Containers, read_bytes: 400 << 30, ..SMALL };
    let data = Data::new(&shape);
    let mut counts = vec![0u32; data.files()];
    reads(&shape, &data).into_iter().for_each(|file| counts[file as usize] += 1);
    counts.sort_unstable_by(|one, other| other.cmp(one));
    // Of 102,400 reads of 256 containers with exponent 1: rank r has 102,400 / (6.124 r).
    for rank in [1, 2, 5, 20] {
        let expected = 102_400.0 / 6.124 / f64::from(rank);
        let share = f64::from(counts[rank as usize - 1]) / expected;
        assert!((0.9..1.1).contains(&share), "rank {rank}: {share}");
    }
}

/// Checks that a cache with separate chunks agrees with one that treats an extent as a unit.
#[test]
fn extents_stand_for_their_chunks() {
    let shape = Shape { bytes: 256 << 20, read_bytes: 512 << 20, ..SMALL };
    let data = Data::new(&shape);
    let chunks = (EXTENT / 4096) as u32;
    for policy in [Policy::Fifo, Policy::Lru, Policy::Lfu] {
        let places = 100;
        let things = data.containers * data.extents_per_container;
        let size = |factor| Size { things: things * factor, addresses: 0, places: places * factor, bytes: 0 };
        let (mut whole, mut single) = (Cache::new(policy, size(1)), Cache::new(policy, size(chunks)));
        let access = |thing| Access { now: 0, thing, address: 0, references: 1, is_fragment: false };
        for file in reads(&shape, &data) {
            for piece in data.file(file).1 {
                let first = piece.container * data.extents_per_container + piece.first;
                for extent in first..first + piece.extents {
                    let hit = whole.access(access(extent)).hit;
                    for chunk in extent * chunks..(extent + 1) * chunks {
                        assert_eq!(single.access(access(chunk)).hit, hit, "{policy:?}, chunk {chunk}");
                    }
                }
            }
        }
    }
}

#[test]
fn without_modules_it_is_fifo() {
    let outcome = |policy| counts(policy, Level::Containers, &SMALL);
    assert_eq!(outcome(Policy::Plc(Rules::NONE)), outcome(Policy::Fifo));
}

#[test]
fn caches_that_know_contents_are_the_plain_ones_where_nothing_is_shared() {
    let shape = Shape { unit: Unit::Containers, ..SMALL };
    let outcome = |policy| counts(policy, Level::Containers, &shape);
    assert_eq!(outcome(Policy::DLru), outcome(Policy::Lru));
}

#[test]
fn quadrants_are_all_that_is_written() {
    let (recency, fewest) = (Policy::Sar(Sar::Recency), Policy::Sar(Sar::References));
    for policy in [Policy::Lru, Policy::Plc(Rules::PAPER), recency, fewest, Policy::DArc, Policy::S3Fifo] {
        let Outcome { quadrants, written_bytes, .. } = counts(policy, Level::Containers, &SMALL);
        let Quadrants { popular_once, popular_repeatedly, unpopular } = quadrants;
        assert!(written_bytes > 0, "{policy:?}");
        assert!((popular_once + popular_repeatedly + unpopular - 100.0).abs() < 1e-9, "{policy:?}");
    }
    // A thing that passes the filter is popular.
    assert!(counts(Policy::Plc(Rules::PAPER), Level::Containers, &SMALL).quadrants.unpopular == 0.0);
}

#[test]
fn disks_change_the_time_and_nothing_else() {
    let data = Data::new(&SMALL);
    let files = &reads(&SMALL, &data)[..500];
    let run = |policy, level, disks| {
        let setup = Setup { level, disks, ..Setup::new(policy, 64 << 20) };
        run(&data, files, &setup).expect("such disks exist")
    };
    for (policy, level) in [
        (Policy::Lru, Level::Containers),
        (Policy::Sar(Sar::Recency), Level::Chunks),
        (Policy::DArc, Level::Containers),
        (Policy::Plc(Rules::for_drive(64 << 20)), Level::Containers),
    ] {
        let counted = run(policy, level, None);
        for handling in [Handling::Foreground, Handling::Background] {
            let timed = run(policy, level, Some(handling));
            assert_eq!(timed.wear.host_pages * 4096, timed.written_bytes, "{policy:?}");
            assert!(timed.nanos > 0);
            assert_eq!(Outcome { nanos: 0, wear: Default::default(), ..timed }, counted, "{policy:?}");
        }
    }
    let bare = run(Policy::None, Level::Containers, Some(Handling::Foreground));
    assert!(bare.nanos > run(Policy::Lru, Level::Containers, Some(Handling::Foreground)).nanos / 2);
    assert_eq!((bare.hits, bare.written_bytes), (0, 0));
}

/// Checks the drawn references: exponential with mean 2, rounded down: 1 / (e^0.5 - 1) = 1.54 in the mean, and none for 39 % of all.
#[test]
fn references_are_drawn_and_have_nothing_to_do_with_what_is_popular() {
    let shape = Shape { unit: Unit::Containers, bytes: 40 << 30, others: 2.0, ..SMALL };
    let data = Data::new(&shape);
    let others: Vec<f64> = data.references.iter().map(|&references| f64::from(references - 1)).collect();
    let of_all = |count: f64| count / others.len() as f64;
    let mean = of_all(others.iter().sum());
    let alone = of_all(others.iter().filter(|&&others| others == 0.0).count() as f64);
    assert!((1.48..1.60).contains(&mean) && (0.38..0.41).contains(&alone), "{mean}, {alone}");
    assert!(Data::new(&Shape { others: 0.0, ..shape }).references.iter().all(|&references| references == 1));
    let reads = |shape: &Shape| reads(shape, &Data::new(shape));
    assert_eq!(reads(&shape), reads(&Shape { others: 0.0, ..shape }));
}

#[test]
fn memory_in_front_takes_what_it_has_and_the_rest_is_as_without_it() {
    let data = Data::of_containers(4, 4 << 20);
    let setup = Setup { memory_bytes: 4 << 20, ..Setup::new(Policy::Lru, 16 << 20) };
    // The memory cache holds one container: it serves immediate repeats, and flash sees the others.
    let outcome = run(&data, &[0, 0, 1, 1, 1, 0, 2, 0], &setup).expect("no disks");
    let counts = (outcome.memory_hits, outcome.accesses, outcome.hits, outcome.written_bytes >> 22);
    assert_eq!(counts, (3, 5, 2, 3));
    let seen = run(&data, &[0, 1, 0, 2, 0], &Setup { memory_bytes: 0, ..setup }).expect("no disks");
    assert_eq!(Outcome { memory_hits: 3, ..seen }, outcome);
}

/// Checks that ingest writes the extents shared by the most files, and that reads change nothing.
#[test]
fn sar_at_ingest_has_what_the_most_files_share() {
    let data = Data::new(&SMALL);
    let setup = Setup { level: Level::Chunks, ..Setup::new(Policy::Sar(Sar::Ingest), 64 * EXTENT) };
    let read = |files: &[u32]| run(&data, files, &setup).expect("no disks");
    let files: Vec<u32> = (0..data.files() as u32).collect();
    let (one, all) = (read(&files[..1]), read(&files));
    assert_eq!(one.written_bytes, all.written_bytes);
    assert!(all.written_bytes >= 64 * EXTENT && all.accesses > 0);
    // Each of the 64 is read once for each file that has it: no other extent is read as often.
    let mut references: Vec<u64> = data.extent_references.iter().map(|&references| references.into()).collect();
    references.sort_unstable_by(|one, other| other.cmp(one));
    let most: u64 = references[..64].iter().sum();
    assert!(all.hits * 10 >= most * 9 && all.hits <= most, "{} of {most}", all.hits);
}

#[test]
fn readers_together_take_less_time_and_change_nothing_else() {
    let shape = Shape { unit: Unit::Containers, ..SMALL };
    let data = Data::new(&shape);
    let files = &reads(&shape, &data)[..400];
    let run = |clients| {
        let setup = Setup { disks: Some(Handling::Foreground), clients, ..Setup::new(Policy::Lru, 64 << 20) };
        run(&data, files, &setup).expect("such disks exist")
    };
    let (one, four) = (run(1), run(4));
    assert_eq!((four.hits, four.written_bytes, four.accesses), (one.hits, one.written_bytes, one.accesses));
    assert!(four.nanos < one.nanos && 4 * four.nanos > one.nanos, "{} {}", four.nanos, one.nanos);
}
