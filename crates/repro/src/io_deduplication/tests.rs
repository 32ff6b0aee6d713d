//! Tests of the invariants on any trace, and of the fitted values.

use proptest::prelude::*;

use super::cache::{Fill, Key, Knowledge, SecondLevel};
use super::copies::{expected, nearest_of, short_stroked};
use super::hits::{Stream, count, oracle};
use super::look::{both, working_set};
use super::replay::{Choice, Setup, Tracker, replay};
use super::workload::{DAY, Shape, week};
use super::*;
use crate::flash_cache::policies::Policy;
use crate::traces::{BLOCK, Request};
use sim::disks::drive::Drive;

fn disk_blocks() -> u64 {
    Drive::wd1600aajs_like().capacity() / BLOCK
}

fn reads(blocks: &[u64], contents: &[u64]) -> Vec<Request> {
    let read = |&block: &u64| Request {
        at: 0,
        writes: false,
        block,
        blocks: 1,
        contents: vec![contents[block as usize % contents.len()] + 1],
    };
    blocks.iter().map(read).collect()
}

const PLAIN: Setup = Setup {
    cache: None,
    knowledge: Knowledge::Seen,
    fill: Fill::All,
    retrieval: false,
    tracker: Tracker::Seen,
    choice: Choice::Arrival,
    duplication: false,
    memory: 1 << 20,
    speed: 1,
    part: 1,
    epoch: DAY,
};

proptest! {
    /// Checks on any trace of reads that LRU by content has at least the hits of LRU by sector, block for block, and that an unbounded cache bounds both.
    #[test]
    fn by_content_finds_at_least_what_by_sector_finds(
        blocks in prop::collection::vec(0u64..40, 1..400),
        contents in prop::collection::vec(0u64..20, 40),
        places in 1u64..16,
    ) {
        let trace = reads(&blocks, &contents);
        let stream = Stream::of(&trace);
        let [mut sector, mut content] = [Key::Sector, Key::Content]
            .map(|key| SecondLevel::new(key, Knowledge::Seen, Policy::Lru, stream.counts, places));
        for &block in &stream.blocks {
            let found = (sector.access(block), content.access(block));
            prop_assert!(found.1 || !found.0, "found by sector and not by content");
        }
        let most = oracle(&stream, Key::Content).found[0];
        let of = |key| count(&stream, key, Knowledge::Seen, Policy::Lru, places).found[0];
        let (sector, content) = (of(Key::Sector), of(Key::Content));
        prop_assert!(sector <= content && content <= oracle(&stream, Key::Sector).found[0] && content <= most);
    }

    /// Checks that the techniques change the places and the number of block reads, never the number of requested blocks. Without duplicates they change
    /// nothing.
    #[test]
    fn without_duplicates_retrieval_changes_nothing(blocks in prop::collection::vec(0u64..4000, 1..100)) {
        let trace = reads(&blocks, &(0..4000).collect::<Vec<_>>());
        let nearest = replay(&trace, &Vec::new(), &Setup { retrieval: true, ..PLAIN });
        let vanilla = replay(&trace, &Vec::new(), &PLAIN);
        prop_assert_eq!((nearest.service, nearest.redirected, vanilla.hits), (vanilla.service, 0, 0));
    }

    /// Checks that a scheduler which could choose, and has no choice, is the disk's own elevator.
    #[test]
    fn without_duplicates_the_scheduler_is_the_elevator(
        requests in prop::collection::vec((0u64..100_000, prop::bool::weighted(0.4), 0u64..4000, 1u32..20), 1..200),
    ) {
        let mut at = 0;
        let trace: Vec<Request> = requests.into_iter().map(|(pause, writes, place, blocks)| {
            at += pause * 100;
            let block = place * 9_000;
            let contents = (block..block + u64::from(blocks)).map(|block| block + 1).collect();
            Request { at, writes, block, blocks, contents }
        }).collect();
        let arrival = replay(&trace, &Vec::new(), &Setup { retrieval: true, ..PLAIN });
        let dispatch = replay(&trace, &Vec::new(), &Setup { retrieval: true, choice: Choice::Dispatch, ..PLAIN });
        let times = |outcome: super::replay::Outcome| (outcome.service, outcome.response, outcome.busy, outcome.end);
        prop_assert_eq!(times(arrival), times(dispatch));
    }
}

/// Checks why the property is of reads: a sector that is written again and again is one block by sector, and many by content.
#[test]
fn with_writes_the_cache_by_sector_can_find_more() {
    let request = |writes, block, content| Request { at: 0, writes, block, blocks: 1, contents: vec![content] };
    let trace = [request(true, 1, 1), request(true, 2, 2), request(true, 2, 3), request(false, 1, 1)];
    let stream = Stream::of(&trace);
    let found = [Key::Sector, Key::Content].map(|key| count(&stream, key, Knowledge::Seen, Policy::Lru, 2).found[0]);
    assert_eq!(found, [1, 0]);
}

#[test]
fn stand_ins_have_the_published_working_sets() {
    for shape in Shape::ALL.map(|shape| shape.shortened(4)) {
        let week = week(shape, disk_blocks(), 1);
        for (writes, amounts) in [(false, shape.reads), (true, shape.writes)] {
            let found = working_set(&week, writes);
            let pairs = [
                ("total", found.total, amounts.total),
                ("sectors", found.sectors, amounts.sectors),
                ("contents", found.contents, amounts.contents),
            ];
            for (what, found, wanted) in pairs {
                let ratio = found as f64 / shape.size(wanted) as f64;
                assert!((0.9..=1.1).contains(&ratio), "{}, writes: {writes}, {what}: {ratio}", shape.name());
            }
        }
        let (found, wanted) = (both(&week), shape.size(shape.both()));
        assert!(found.abs_diff(wanted) <= wanted / 10 + 64, "{}: {found}, {wanted}", shape.name());
        assert!(week.is_sorted_by_key(|request| request.at));
    }
}

/// Checks that with 1 to 1,000 copies the read of the nearest one takes the time that the drive's parameters predict, within 10 %. More copies bring it nearer
/// to the short-stroked disk.
#[test]
fn the_nearest_copy_is_as_near_as_the_model_expects() {
    for copies in [1, 3, 10, 100, 1000] {
        let (found, expected) = (nearest_of(copies, 2000), expected(copies));
        assert!((0.9..=1.1).contains(&(found / expected)), "{copies}: {found} ms, expected {expected} ms");
    }
    let (few, many) = (nearest_of(1, 2000) - short_stroked(1, 2000), nearest_of(1000, 500) / short_stroked(1000, 500));
    assert!(few.abs() < 0.5 && (0.8..=1.2).contains(&many), "{few}, {many}");
}

/// Checks that of two places with the same content the nearer one is read, and only after its content is known.
#[test]
fn the_nearer_copy_is_read_once_it_is_known() {
    let read = |at: u64, block, content| Request { at, writes: false, block, blocks: 1, contents: vec![content] };
    let far = 30_000_000;
    // Both places become known. Then the head is next to the far one, and the near one is read.
    let trace = [(0, 5, 1), (1, far, 1), (2, far + 100, 2), (3, 5, 1)];
    let trace = trace.map(|(second, block, content)| read(second * 1_000_000_000, block, content));
    assert_eq!(replay(&trace, &Vec::new(), &Setup { retrieval: true, ..PLAIN }).redirected, 1);
}

/// Checks that a tracker which has scanned the disk reads a copy that was not read before; the tables of the paper do not know it. A scheduler that chooses at
/// dispatch takes the copy on its way up, although the head was at the block's own address at the arrival.
#[test]
fn a_scan_of_the_disk_tells_copies_that_never_went_by() {
    let far = 30_000_000;
    let read = |at: u64, block, content| Request { at, writes: false, block, blocks: 1, contents: vec![content] };
    let redirected = |trace: &[Request], image: &[(u64, u64)], tracker, choice| {
        let image = image.iter().map(|&(block, content)| (block, vec![content])).collect();
        replay(trace, &image, &Setup { retrieval: true, tracker, choice, ..PLAIN }).redirected
    };
    let trace = [read(0, far, 1), read(1_000_000_000, 5, 2)];
    let image = [(far, 1), (5, 2), (far + 1000, 2)];
    assert_eq!(redirected(&trace, &image, Tracker::Seen, Choice::Arrival), 0);
    assert_eq!(redirected(&trace, &image, Tracker::Disk, Choice::Arrival), 1);
    assert_eq!(redirected(&trace, &image, Tracker::Disk, Choice::Dispatch), 1);
    // All come at once, the head at the beginning of the disk.
    let trace = [read(0, 500, 3), read(0, far, 1), read(0, 100, 2)];
    let image = [(500, 3), (far, 1), (100, 2), (far + 1000, 2)];
    assert_eq!(redirected(&trace, &image, Tracker::Disk, Choice::Arrival), 0);
    assert_eq!(redirected(&trace, &image, Tracker::Disk, Choice::Dispatch), 1);
}

/// Checks that the disk before a week holds the contents that are read before they are written, with the given number of places of each content.
#[test]
fn the_disk_has_the_similarity_that_it_is_told() {
    for shape in Shape::ALL.map(|shape| shape.shortened(16)) {
        let trace = week(shape, disk_blocks(), 1);
        let image = super::image::before(&trace, shape, disk_blocks(), 2.7, 1);
        let found = super::image::similarity(&image);
        assert!((2.5..=2.9).contains(&found), "{}: {found}", shape.name());
        let mut held = std::collections::HashMap::new();
        for (block, contents) in &image {
            for (block, content) in (*block..).zip(contents) {
                assert!(held.insert(block, *content).is_none(), "{}: {block} twice", shape.name());
            }
        }
        for request in &trace {
            for (block, &content) in (request.block..).zip(&request.contents) {
                let before = held.insert(block, content);
                assert!(request.writes || before == Some(content), "{}: {block}", shape.name());
            }
        }
    }
}

/// Checks that a run which was read twice in an epoch has copies in the next one, and that a read from far away goes to the nearest.
#[test]
fn what_is_popular_is_copied_and_read_there() {
    let mut trace = Vec::new();
    for second in 0..40 {
        // Every second read is far away.
        let block = if second % 2 == 0 { 7 } else { 35_000_000 + 1000 * second };
        let content = if second % 2 == 0 { 1 } else { 100 + second };
        let at = second * 1_000_000_000;
        trace.push(Request { at, writes: false, block, blocks: 1, contents: vec![content] });
    }
    let setup = Setup { duplication: true, epoch: 10_000_000_000, ..PLAIN };
    let outcome = replay(&trace, &Vec::new(), &setup);
    assert!(outcome.from_scratch > 5 && outcome.copied == zones::ZONES, "{outcome:?}");
}

#[test]
fn metadata_is_what_the_slides_say() {
    let bytes = metadata_bytes(1 << 18, 4, 1_000_000);
    assert_eq!(bytes, 49_156_608);
    assert!((4.5..4.7).contains(&(bytes as f64 / f64::from(1 << 30) * 100.0)));
    // The cache gets the memory that its metadata leave.
    let blocks = content_blocks(1 << 30);
    assert!((240_000..(1 << 18) * 96 / 100).contains(&blocks), "{blocks}");
}
