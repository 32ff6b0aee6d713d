use engine::admission::Rules;

use super::policies::Policy;
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

/// A cache that treats each chunk by itself, beside the one that treats an extent as one.
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
    for policy in [Policy::Lru, Policy::Plc(Rules::PAPER), Policy::Sar, Policy::DArc, Policy::S3Fifo] {
        let Outcome { quadrants, written_bytes, .. } = counts(policy, Level::Containers, &SMALL);
        let Quadrants { popular_once, popular_repeatedly, unpopular } = quadrants;
        assert!(written_bytes > 0, "{policy:?}");
        assert!((popular_once + popular_repeatedly + unpopular - 100.0).abs() < 1e-9, "{policy:?}");
    }
    // Who passes the filter is popular.
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
        (Policy::Sar, Level::Chunks),
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
