//! The event loop by itself: times of requests on disks whose times are known.

use super::driver::{Fold, Replay, Setup};
use super::in_place::{InPlace, Layout, Warm};
use super::onefold::{Onefold, Warmed};
use super::outcome::Outcome;
use super::scheme::Scheme;
use crate::disks::ssd::{Queue, SSD};
use crate::disks::{Disk, Instant};
use crate::traces::{BLOCK, ContentId, Request};

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
    let mut random = crate::random::Random::new(7);
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
    for scheme in Scheme::ALL {
        let outcome = replay(scheme, Disk::Ssd(Queue::new(SSD)), Setup::default(), &trace[..500], &trace);
        assert_eq!(outcome.requests(), 3000);
        for times in [&outcome.reads, &outcome.writes] {
            let parts = times.parts;
            let sum = u128::from(parts.processor + parts.lookup + parts.disk.total());
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
        "a request that the disk has no room for"
    );
}

#[test]
fn parts_of_a_response_of_onefold_add_up_to_it() {
    let mut random = crate::random::Random::new(9);
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
    let warmed = Warmed::new(4 << 30, 64 << 20, Setup::default(), each(&trace[..50])).expect("a small pool");
    for (through, nvram) in [(true, false), (true, true), (false, false)] {
        let disk = Disk::from_spec("raid5:4:65536:hdd:wd1600aajs,write-cache=off").expect("such a disk");
        let how = Onefold { through, nvram };
        let outcome = warmed.replay(how, disk, Setup::default(), each(&trace)).expect("nothing fails");
        assert_eq!(outcome.requests(), 400);
        for times in [&outcome.reads, &outcome.writes] {
            let parts = times.parts;
            let of_engine = parts.processor + parts.lookup + parts.journal + parts.waiting;
            assert_eq!(u128::from(of_engine + parts.disk.total()), times.sum, "{}", how.name());
        }
        let waits_for_journal = outcome.writes.parts.journal > 0;
        assert_eq!(waits_for_journal, through, "{}: {:?}", how.name(), outcome.writes.parts);
    }
}
