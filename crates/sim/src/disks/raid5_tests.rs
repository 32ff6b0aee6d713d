use std::sync::Arc;

use super::*;
use crate::disks::drive::Drive;
use crate::disks::hdd::{Hdd, Options};
use crate::disks::ssd::{Queue, Ssd};
use crate::random::Random;

const UNIT: u64 = 64 << 10;
const READ: Nanos = 100_000;
const WRITE: Nanos = 200_000;

/// Returns a disk that reads in 100 us and writes in 200 us, at any size and place.
fn constant() -> Disk {
    let ssd = Ssd {
        read_nanos: READ,
        write_nanos: WRITE,
        flush_nanos: 0,
        channels: 64,
        read_bytes_per_second: 1 << 60,
        write_bytes_per_second: 1 << 60,
        commands_per_second: 1 << 40,
    };
    Disk::Ssd(Queue::new(ssd))
}

fn array(members: usize) -> Array {
    Array::new(Level::Raid5, vec![constant(); members], UNIT).expect("a right array")
}

fn command(op: Op, offset: u64, bytes: u64) -> Command {
    Command { op, offset, bytes, class: Class::Foreground }
}

/// Submits commands at one moment. Returns the time until the last is done, and the reads and writes of the members.
fn batch(array: &mut Array, now: Nanos, commands: &[Command]) -> (Nanos, u64, u64) {
    let before = array.statistics();
    for (tag, &command) in commands.iter().enumerate() {
        array.submit(now, tag as Tag, command);
    }
    let (mut last, mut count) = (now, 0);
    while let Some(at) = array.next() {
        while let Some(done) = array.pop(at) {
            assert_eq!(done.breakdown.total(), done.at - now, "the parts are the whole");
            (last, count) = (done.at, count + 1);
        }
    }
    assert_eq!(count, commands.len());
    let after = array.statistics();
    (last - now, after.reads - before.reads, after.writes - before.writes)
}

fn write(offset: u64, bytes: u64) -> Command {
    command(Op::Write, offset, bytes)
}

#[test]
fn units_go_round_and_the_parity_goes_down() {
    let array = array(4);
    let places: Vec<_> = (0..12).map(|chunk| array.place(chunk * UNIT + 512)).collect();
    let members: Vec<_> = places.iter().map(|place| place.0).collect();
    assert_eq!(
        members,
        [0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3],
        "left-symmetric: consecutive units on consecutive members"
    );
    assert_eq!((0..5).map(|stripe| array.parity(stripe)).collect::<Vec<_>>(), [3, 2, 1, 0, 3]);
    assert_eq!(places[11].1, 3 * UNIT + 512);
}

#[test]
fn a_write_reads_as_little_as_it_must() {
    // Of four members, three with data.
    assert_eq!(batch(&mut array(4), 0, &[write(0, 3 * UNIT)]), (WRITE, 0, 4), "a full stripe reads nothing");
    assert_eq!(batch(&mut array(4), 0, &[write(0, UNIT)]), (READ + WRITE, 2, 2), "2 to 2 is a tie: reconstruct");
    assert_eq!(batch(&mut array(4), 0, &[write(0, 2 * UNIT)]), (READ + WRITE, 1, 3), "1 to 3: reconstruct");
    assert_eq!(batch(&mut array(4), 0, &[write(8192, 4096)]), (READ + WRITE, 2, 2), "also of one row");
    assert_eq!(batch(&mut array(4), 0, &[write(512, 1024)]), (READ + WRITE, 2, 2), "a part of a block: modify");
    // Of eight: a unit has 7 - 1 others, but itself and the parity are 2.
    assert_eq!(batch(&mut array(8), 0, &[write(0, UNIT)]), (READ + WRITE, 2, 2), "2 to 6: modify");
    assert_eq!(batch(&mut array(8), 0, &[write(0, 5 * UNIT)]), (READ + WRITE, 2, 6), "6 to 2: reconstruct");
}

#[test]
fn reconstruction_keeps_off_the_member_that_is_written() {
    let mut array = array(4);
    batch(&mut array, 0, &[write(0, UNIT)]);
    let reads: Vec<u64> = array.members.iter().map(|member| member.statistics().reads).collect();
    let writes: Vec<u64> = array.members.iter().map(|member| member.statistics().writes).collect();
    assert_eq!((reads, writes), (vec![0, 1, 1, 0], vec![1, 0, 0, 1]), "each member is busy once");
}

#[test]
fn writes_of_one_moment_complete_each_others_rows_and_the_stripe_cache_saves_reads() {
    let rows = [write(0, 4096), write(UNIT, 4096), write(2 * UNIT, 4096)];
    assert_eq!(batch(&mut array(4), 0, &rows), (WRITE, 0, 4));
    let mut array = array(4);
    assert_eq!(batch(&mut array, 0, &rows[..1]), (READ + WRITE, 2, 2));
    assert_eq!(batch(&mut array, 1_000_000, &rows[..1]), (WRITE, 0, 2), "all of the row is in the cache");
    assert_eq!(batch(&mut array, 2_000_000, &rows[1..2]), (WRITE, 0, 2));
    // 256 other rows later it is not.
    let others: Vec<_> = (0..256).map(|row| write(30 * UNIT + row % 16 * 4096 + row / 16 * 3 * UNIT, 4096)).collect();
    batch(&mut array, 3_000_000, &others);
    assert_eq!(batch(&mut array, 4_000_000, &rows[..1]), (READ + WRITE, 2, 2));
}

#[test]
fn a_write_of_more_rows_than_the_cache_has_waits_for_them() {
    let mut array = array(4);
    let bytes = 600 * UNIT;
    let (time, reads, _) = batch(&mut array, 0, &[write(0, bytes)]);
    assert_eq!((time, reads), ((200 * 16u64).div_ceil(256) * WRITE, 0), "200 stripes, of which 256 rows at a time");
    assert!(array.rows.len() <= STRIPE_CACHE);
    assert_eq!(array.statistics().written_bytes, bytes / 3 * 4);
}

#[test]
fn without_a_member_its_data_are_made_of_the_others() {
    let degraded = |failed| {
        let mut array = array(4);
        assert!(array.fail(failed) && !array.fail(1));
        array
    };
    let read = |offset| command(Op::Read, offset, 4096);
    assert_eq!(batch(&mut degraded(0), 0, &[read(0)]), (READ, 3, 0));
    assert_eq!(batch(&mut degraded(0), 0, &[read(UNIT)]), (READ, 1, 0));
    // Stripe 0: data on 0, 1, 2, parity on 3.
    assert_eq!(batch(&mut degraded(0), 0, &[write(0, 4096)]), (READ + WRITE, 2, 1), "reconstruct, write the parity");
    assert_eq!(batch(&mut degraded(1), 0, &[write(0, 4096)]), (READ + WRITE, 2, 2), "modify: the others are not there");
    assert_eq!(batch(&mut degraded(3), 0, &[write(0, 4096)]), (READ + WRITE, 2, 1), "no parity, but md reads");
    assert_eq!(batch(&mut degraded(0), 0, &[write(512, 512)]), (READ + WRITE, 3, 1), "a part of a lost block");
}

fn rebuild_time(speed_min: u64, load: bool) -> u64 {
    let mut array = array(4);
    array.fail(2);
    let second = 1_000_000_000;
    assert!(array.replace(0, constant(), 10 << 30, speed_min, 200_000));
    let mut next = 0;
    let mut now;
    loop {
        // A read of 64 KiB every 50 ms, over all members.
        if load && array.next().is_none_or(|at| at > next) {
            now = next;
            next += second / 20;
            array.submit(now, 0, command(Op::Read, now / second * 20 % 7 * UNIT, UNIT));
        }
        let Some(at) = array.next() else { break };
        while array.pop(at).is_some() {}
        if let Some(at) = array.rebuild().and_then(Rebuild::finished) {
            assert_eq!(array.failed, None);
            return at / second;
        }
    }
    panic!("the rebuild did not end");
}

#[test]
fn a_rebuild_takes_all_it_gets_when_idle_and_the_least_speed_under_load() {
    // 10 GiB at 200,000 KB/s at most.
    assert!((50..=55).contains(&rebuild_time(10_240, false)), "{}", rebuild_time(10_240, false));
    // At 10,240 KB/s: 1,024 s.
    let throttled = rebuild_time(10_240, true);
    assert!((980..=1_030).contains(&throttled), "{throttled}");
}

#[test]
fn a_rebuild_of_hard_disks_goes_at_the_speed_of_their_tracks() {
    let drive = Arc::new(Drive::wd1600aajs_like());
    let hdd = || Disk::Hdd(Box::new(Hdd::new(Arc::clone(&drive), Options::default())));
    let mut array = Array::new(Level::Raid5, (0..4).map(|_| hdd()).collect(), UNIT).expect("a right array");
    array.fail(1);
    array.replace(0, hdd(), 1 << 30, 10_240, 200_000);
    batch(&mut array, 0, &[]);
    let finished = array.rebuild().and_then(Rebuild::finished).expect("it ends");
    // 1 GiB at the outer edge: 97 MB/s on the track, a sixth less with the skews.
    assert!((12_000..15_000).contains(&(finished / 1_000_000)), "{finished}");
}

#[test]
fn what_is_rebuilt_is_used() {
    let mut array = array(4);
    array.fail(0);
    array.replace(0, constant(), 1 << 20, 1_000, 200_000);
    assert_eq!(array.missing(0), Some(0));
    batch(&mut array, 0, &[]);
    assert_eq!((array.missing(0), array.failed), (None, None));
    assert_eq!(array.members[0].statistics().written_bytes, 1 << 20);
    assert_eq!(batch(&mut array, 1 << 40, &[command(Op::Read, 0, 4096)]), (READ, 1, 0));
    assert!(array.fail(1));
    assert_eq!(batch(&mut array, 1 << 41, &[command(Op::Read, UNIT, 4096)]), (READ, 3, 0));
}

#[test]
fn a_flush_goes_to_all_members_and_stripes_without_parity_go_round() {
    assert_eq!(batch(&mut array(4), 0, &[command(Op::Flush, 0, 0)]), (0, 0, 0));
    let mut stripes = Array::new(Level::Raid0, vec![constant(); 3], UNIT).expect("a right array");
    assert_eq!(batch(&mut stripes, 0, &[write(0, 6 * UNIT)]), (WRITE, 0, 6));
    assert_eq!(stripes.place(4 * UNIT), (1, UNIT));
    assert!(!stripes.fail(0));
    assert!(Array::new(Level::Raid5, vec![constant(); 2], UNIT).is_err());
    assert!(Array::new(Level::Raid5, vec![constant(); 4], 1000).is_err());
}

#[test]
fn every_command_to_an_array_of_hard_disks_completes_and_its_parts_are_the_whole() {
    let drive = Arc::new(Drive::wd1600aajs_like());
    for seed in 0..6 {
        let mut random = Random::new(seed);
        let hdd = || Disk::Hdd(Box::new(Hdd::new(Arc::clone(&drive), Options::default())));
        let members = (0..4).map(|_| hdd()).collect();
        let mut array = Array::new(Level::Raid5, members, UNIT).expect("a right array");
        let (mut submitted, mut seen, mut now) = (Vec::new(), 0, 0);
        if seed % 2 == 1 {
            array.fail(seed as usize % 4);
        }
        if seed % 3 == 1 {
            array.replace(0, hdd(), 50 << 20, 1_000, 200_000);
        }
        while submitted.len() < 300 || array.next().is_some() {
            let arrival = now + random.draw() % 20_000_000;
            while let Some(at) = array.next().filter(|&at| at <= arrival || submitted.len() == 300) {
                assert!(at >= now);
                now = at;
                while let Some(done) = array.pop(at) {
                    assert_eq!(done.breakdown.total(), done.at - submitted[done.tag as usize]);
                    seen += 1;
                }
            }
            if submitted.len() < 300 {
                now = arrival;
                let op = [Op::Read, Op::Write, Op::Write, Op::Flush][(random.draw() % 4) as usize];
                let offset = random.draw() % 2_000 * 16_384 + random.draw() % 2 * 512;
                array.submit(now, submitted.len() as Tag, command(op, offset, (1 + random.draw() % 400) * 512));
                submitted.push(now);
            }
        }
        assert_eq!(seen, 300);
    }
}
