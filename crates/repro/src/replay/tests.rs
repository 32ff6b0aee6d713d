//! Tests of the event loop alone: times of requests on disks whose times are known.

use super::driver::{Fold, Replay, Setup, Submitters};
use super::in_place::{InPlace, Layout, Warm};
use super::onefold::{Front, Onefold, Pool, Warmed};
use super::outcome::Outcome;
use super::rebuilds::{Starts, rebuilds};
use super::scheme::Scheme;
use crate::traces::{BLOCK, ContentId, Request};
use sim::disks::ssd::{Queue, SSD};
use sim::disks::{Disk, Instant};

const LAYOUT: Layout = Layout { data: 1000, spare: 10, index: 10, swap: 10 };

fn write(at: u64, block: u64, contents: &[ContentId]) -> Request {
    Request { at, writes: true, block, blocks: contents.len() as u32, contents: contents.to_vec() }
}

fn read(at: u64, block: u64, blocks: u32) -> Request {
    Request { at, writes: false, block, blocks, contents: Vec::new() }
}

fn replay(scheme: Scheme, disk: Disk, setup: Setup, warm: &[Request], trace: &[Request]) -> Outcome {
    let memory = 64 * BLOCK;
    let mut start = Warm::new(LAYOUT.data, memory);
    warm.iter().for_each(|request| start.request(request));
    let mut scheme = InPlace::new(scheme, LAYOUT, memory, &start);
    let mut disk = disk;
    let trace = trace.iter().map(|request| Ok::<_, String>(request.clone()));
    Replay::new(&mut scheme, LAYOUT, &mut disk, setup).run(trace).expect("nothing fails")
}

#[test]
fn the_processor_takes_one_request_after_the_other() {
    let instant = || Disk::Instant(Instant::default());
    // Both come at once: the first has 3 digests, the second 2 more.
    let trace = [write(5, 0, &[1, 2, 3]), write(5, 10, &[4, 5])];
    let outcome = replay(Scheme::SELECT, instant(), Setup::default(), &[], &trace);
    assert_eq!(outcome.writes.sum, 3 * 32_000 + 5 * 32_000);
    assert_eq!(outcome.writes.parts.processor, 8 * 32_000);
    assert_eq!((outcome.queue_sum, outcome.queue_most), (1, 2));
    let free = Setup { digest: 0, ..Setup::default() };
    assert_eq!(replay(Scheme::SELECT, instant(), free, &[], &trace).writes.sum, 0);
    assert_eq!(replay(Scheme::NATIVE, instant(), Setup::default(), &[], &trace).writes.sum, 0, "no digests");
}

/// Checks that requests behind a write wait for its digests if the replayer has one thread, reads also.
#[test]
fn one_submitter_computes_digests_before_it_takes_the_next_request() {
    let trace = [write(5, 0, &[1, 2, 3]), read(5, 100, 1), write(5, 10, &[4])];
    let response = |submitters| {
        let setup = Setup { submitters, ..Setup::default() };
        let outcome = replay(Scheme::SELECT, Disk::Instant(Instant::default()), setup, &[], &trace);
        (outcome.reads.sum, outcome.writes.sum, outcome.reads.parts.waiting)
    };
    assert_eq!(response(Submitters::Many), (0, 3 * 32_000 + 4 * 32_000, 0));
    assert_eq!(response(Submitters::One), (3 * 32_000, 3 * 32_000 + 4 * 32_000, 3 * 32_000));
}

/// Checks the sleep of Linux md: a thread that finds no free row of the stripe cache sleeps. So a single submitter keeps the read behind it from idle disks.
#[test]
fn one_submitter_sleeps_while_a_write_waits_for_a_row_of_the_stripe_cache() {
    let contents: Vec<ContentId> = (1..=64).collect();
    let trace = [write(0, 0, &contents), read(1, 900, 1)];
    let read_time = |submitters| {
        let Disk::Array(array) = Disk::from_spec("raid5:3:65536:hdd:wd1600aajs,write-cache=off").expect("such disks")
        else {
            panic!("it is an array")
        };
        let disk = Disk::Array(Box::new(array.with_stripe_cache(8)));
        let outcome = replay(Scheme::NATIVE, disk, Setup { submitters, ..Setup::default() }, &[], &trace);
        (outcome.reads.sum as u64, outcome.reads.parts.waiting)
    };
    let ((many, waited_many), (one, waited)) = (read_time(Submitters::Many), read_time(Submitters::One));
    assert_eq!(waited_many, 0);
    assert!(waited > 0 && one > many && one >= waited, "{one} and {waited}, {many}");
}

/// Checks that the blocks of a split read go home while the disks are idle, and that the next read is one piece (POD, section 3.3).
#[test]
fn split_reads_go_home_when_the_disks_are_idle_and_not_before() {
    let second = 1_000_000_000;
    // Three known blocks of an earlier write, between new ones: shared, so that the read of five is split.
    let before = [write(0, 0, &[1, 2, 3])];
    let trace = |pause: u64| {
        [
            write(0, 100, &[10, 1, 2, 3, 11]),
            read(1000, 100, 5),
            // Other reads drive the five out of the read cache of 32 blocks.
            read(pause, 500, 32),
            read(pause + 1, 100, 5),
        ]
    };
    let splits = |scheme: Scheme, pause| {
        let ssd = Disk::Ssd(Queue::new(SSD));
        let outcome = replay(scheme, ssd, Setup::default(), &before, &trace(pause));
        (outcome.counts.split_reads, outcome.counts.returned_home)
    };
    assert_eq!(splits(Scheme::SELECT, 2 * second), (2, 3));
    assert_eq!(splits(Scheme::SELECT, 2 * 1_000_000), (4, 0), "there was no time");
    assert_eq!(splits(Scheme { relinearises: false, ..Scheme::SELECT }, 2 * second), (4, 0));
    assert_eq!(splits(Scheme::FULL_FREE, 2 * second), (4, 0), "POD alone");
}

/// Checks that a scheme without a state sees from each start the same as a replay that begins there.
#[test]
fn a_rebuild_within_the_day_is_one_of_the_day_that_begins_there() {
    let second = 1_000_000_000;
    let mut random = sim::random::Random::new(3);
    let day: Vec<Request> = (0..8000)
        .map(|number| {
            let at = 77 + number * second + random.below(second / 2);
            if random.one_in(3) { read(at, random.below(900), 2) } else { write(at, random.below(900), &[1, 2, 3]) }
        })
        .collect();
    let array = || {
        let Disk::Array(mut array) =
            Disk::from_spec("raid5:3:65536:hdd:wd1600aajs,write-cache=on").expect("such disks")
        else {
            panic!("it is an array")
        };
        let spare = Disk::from_spec("hdd:wd1600aajs,write-cache=on").expect("such a disk");
        array.fail(0);
        array.replace(0, spare, 64 << 20, 10_240, 200_000);
        Ok::<_, String>(Disk::Array(array))
    };
    let starts = Starts::Hours.of(&day);
    assert_eq!(starts, [0, 3600 * second, 7200 * second]);
    let begin = |scheme| InPlace::new(scheme, LAYOUT, 0, &Warm::new(LAYOUT.data, 0));
    let mut scheme = begin(Scheme::NATIVE_UNCACHED);
    let setup = Setup::default();
    let all = rebuilds(&mut scheme, LAYOUT, setup, &day, &starts, array, || Ok(())).expect("nothing fails");
    for (start, outcome) in &all {
        let first = day.partition_point(|request| request.at < day[0].at + start);
        let (mut scheme, mut disk) = (begin(Scheme::NATIVE_UNCACHED), array().expect("such disks"));
        let trace = day[first..].iter().map(|request| Ok::<_, String>(request.clone()));
        let setup = Setup { until_rebuilt: true, ..setup };
        let alone = Replay::new(&mut scheme, LAYOUT, &mut disk, setup).run(trace).expect("nothing fails");
        assert!(outcome.rebuilt.is_some() && outcome.requests() > 0);
        assert_eq!((outcome.rebuilt, outcome.requests()), (alone.rebuilt, alone.requests()));
        assert_eq!((outcome.reads.sum, outcome.writes.sum), (alone.reads.sum, alone.writes.sum));
    }
    // Each request between rebuilds reaches the scheme exactly once.
    let seen = scheme.counts.write_requests + scheme.counts.read_requests;
    let last = day.partition_point(|request| request.at < day[0].at + 7200 * second) as u64;
    assert_eq!(seen, last + all[2].1.requests());
    let busiest: Vec<Request> = [0, 700, 710, 720, 1300].map(|at| read(at * second, 0, 1)).to_vec();
    assert_eq!(Starts::Busiest.of(&busiest), [600 * second]);
}

#[test]
fn looks_at_the_index_come_before_the_write() {
    let ssd = Disk::Ssd(Queue::new(SSD));
    let outcome = replay(Scheme::FULL, ssd, Setup { digest: 0, ..Setup::default() }, &[], &[write(0, 0, &[1])]);
    // A read of a block takes 80 us and its transfer, the write 20 us and its transfer.
    assert_eq!((outcome.writes.parts.lookup, outcome.counts.lookups), (80_000 + 1365, 1));
    assert_eq!(outcome.writes.sum, 80_000 + 1365 + 20_000 + 2048);
    assert_eq!(outcome.writes.parts.disk.total(), 20_000 + 2048);
}

#[test]
fn what_is_removed_needs_no_disk_and_what_is_cached_neither() {
    let ssd = || Disk::Ssd(Queue::new(SSD));
    let before = [write(0, 0, &[1, 2])];
    let trace = [write(0, 100, &[1, 2]), read(1000, 100, 2), read(1_000_000, 100, 2)];
    let outcome = replay(Scheme::SELECT, ssd(), Setup { digest: 0, ..Setup::default() }, &before, &trace);
    assert_eq!((outcome.writes.sum, outcome.counts.removed_requests, outcome.disk.writes), (0, 1, 0));
    assert_eq!((outcome.disk.reads, outcome.counts.read_hits, outcome.removed_percent()), (1, 2, 100.0));
    let native = replay(Scheme::NATIVE_UNCACHED, ssd(), Setup::default(), &before, &trace);
    assert_eq!((native.disk.writes, native.disk.reads), (1, 2));
}

#[test]
fn parts_of_a_response_add_up_to_it() {
    let mut random = sim::random::Random::new(7);
    let mut trace = Vec::new();
    for number in 0..3000 {
        let (block, blocks) = (random.below(900), 1 + random.below(12));
        let at = number * 40_000;
        if random.one_in(3) {
            trace.push(read(at, block, blocks as u32));
        } else {
            let first = random.below(200);
            trace.push(write(at, block, &(first..first + blocks).collect::<Vec<_>>()));
        }
    }
    for (scheme, submitters) in
        Scheme::ALL.into_iter().flat_map(|scheme| [(scheme, Submitters::Many), (scheme, Submitters::One)])
    {
        let setup = Setup { submitters, ..Setup::default() };
        let outcome = replay(scheme, Disk::Ssd(Queue::new(SSD)), setup, &trace[..500], &trace);
        assert_eq!(outcome.requests(), 3000);
        for times in [&outcome.reads, &outcome.writes] {
            let parts = times.parts;
            let sum = u128::from(parts.waiting + parts.processor + parts.lookup + parts.disk.total());
            assert_eq!(sum, times.sum, "{scheme}");
        }
        let answered: u64 = outcome.stretches.iter().map(|stretch| stretch.answered).sum();
        assert_eq!(answered, 3000);
    }
}

#[test]
fn addresses_are_folded_into_the_disk() {
    let folded = |fold: Fold, block, blocks| {
        let mut request = read(0, block, blocks);
        fold.fold(&mut request, 1024);
        request.block
    };
    assert_eq!(folded(Fold::Wrap, 1030, 2), 6);
    assert_eq!(folded(Fold::Wrap, 1023, 4), 1020, "a request stays in one piece");
    let squeeze = Fold::Squeeze { span: 4096 };
    assert_eq!(folded(squeeze, 4095, 1), 3 * 256 + 255);
    assert_eq!([0, 255, 256, 1024].map(|block| folded(squeeze, block, 1)), [0, 255, 0, 256]);
    assert_eq!(folded(Fold::Squeeze { span: 500 }, 400, 1), 400, "what fits stays");
    let mut large = write(0, 5, &[7; 2000]);
    Fold::Wrap.fold(&mut large, 1024);
    assert_eq!(
        (large.block, large.blocks, large.contents.len()),
        (0, 1024, 1024),
        "a request that the disk has no space for"
    );
}

#[test]
fn parts_of_a_response_of_onefold_add_up_to_it() {
    let mut random = sim::random::Random::new(9);
    let trace: Vec<Request> = (0..400)
        .map(|number| {
            let (at, block, blocks) = (number * 300_000, random.below(90_000), 1 + random.below(40));
            match random.one_in(3) {
                true => read(at, block, blocks as u32),
                false => write(at, block, &(number * 50 % 700..).take(blocks as usize).collect::<Vec<_>>()),
            }
        })
        .collect();
    fn each(requests: &[Request]) -> impl Iterator<Item = Result<Request, String>> {
        requests.iter().cloned().map(Ok)
    }
    let warmed =
        Warmed::new(4 << 30, 64 << 20, Setup::default(), Pool::default(), each(&trace[..50])).expect("a small pool");
    let ways =
        [(true, false, None), (true, false, Some(Front::JournalOnHdd)), (true, true, None), (false, false, None)];
    let mut journal = Vec::new();
    for (through, nvram, front) in ways {
        let disk = Disk::from_spec("raid5:4:65536:hdd:wd1600aajs,write-cache=off").expect("such a disk");
        let how = Onefold { through, nvram, front };
        let outcome = warmed.replay(how, disk, Setup::default(), each(&trace)).expect("nothing fails");
        assert_eq!(outcome.requests(), 400);
        for times in [&outcome.reads, &outcome.writes] {
            let parts = times.parts;
            let of_engine = parts.processor + parts.lookup + parts.journal + parts.waiting;
            assert_eq!(u128::from(of_engine + parts.disk.total()), times.sum, "{}", how.name());
        }
        let waits_for_journal = outcome.writes.parts.journal > 0;
        assert_eq!(waits_for_journal, through, "{}: {:?}", how.name(), outcome.writes.parts);
        journal.push(outcome.writes.parts.journal);
    }
    assert!(journal[1] < journal[0] / 2, "a disk of its own seeks less: {journal:?}");
}
