use super::*;
use crate::disks::drive::ReadAhead;
use crate::disks::{Class, Disk};
use crate::random::Random;

const REVOLUTION: Nanos = 8_333_333;

fn disk(queue: Policy, write_cache: WriteCache) -> Disk {
    let options = Options { queue, write_cache: Some(write_cache) };
    Disk::Hdd(Box::new(Hdd::new(Arc::new(Drive::wd1600aajs_like()), options)))
}

fn command(op: Op, sector: u64, sectors: u64) -> Command {
    Command { op, offset: sector * SECTOR, bytes: sectors * SECTOR, class: Class::Foreground }
}

/// Submits one command and returns its completion.
fn alone(disk: &mut Disk, now: Nanos, command: Command) -> Done {
    disk.submit(now, 7, command);
    loop {
        let at = disk.next().expect("a command is in progress");
        if let Some(done) = disk.pop(at) {
            return done;
        }
    }
}

#[test]
fn a_read_takes_what_the_angles_say() {
    let mut disk = disk(Policy::Fifo, WriteCache::Off);
    // From rest: the overhead, then the heads find the track, then sector 0 passes when the platter has turned once.
    let done = alone(&mut disk, 0, command(Op::Read, 0, 8));
    let transfer = 8 * REVOLUTION / 1_578 + 1_707;
    let expected =
        Breakdown { queue: 0, seek: 1_000_000, rotation: REVOLUTION - 1_300_000, transfer, overhead: 300_000 };
    assert_eq!(done.breakdown, expected);
    assert_eq!(done.at, REVOLUTION + transfer);
    // The following sectors have been read ahead meanwhile.
    let now = done.at + 5_000_000;
    let done = alone(&mut disk, now, command(Op::Read, 8, 8));
    assert_eq!(done.at - now, 300_000 + 8 * 1_707);
    // At the other end of the disk: 21 ms of seek, less than a turn of waiting.
    let last = 312_581_808 - 8;
    let now = now + 1_000_000_000;
    let time = alone(&mut disk, now, command(Op::Read, last, 8)).breakdown;
    assert_eq!(time.seek / 100_000, 209, "the last sector is not quite in the last cylinder");
    assert!(time.rotation < REVOLUTION);
}

#[test]
fn the_built_in_drive_does_what_its_figures_say() {
    // Sequential reads of 128 KiB: 97 MB/s at the outer edge and 52 at the inner, less a sixth
    // for the skews.
    for (sector, least, most) in [(0, 78, 97), (312_000_000, 41, 52)] {
        let mut disk = disk(Policy::Clook, WriteCache::On);
        let (mut now, count) = (0, 400);
        for request in 0..count {
            now = alone(&mut disk, now, command(Op::Read, sector + request * 256, 256)).at;
        }
        let rate = count * 256 * SECTOR * 1_000 / now;
        assert!((least..=most).contains(&rate), "{rate} MB/s at {sector}");
        let mut now = 0;
        let mut disk = self::disk(Policy::Clook, WriteCache::On);
        for request in 0..count {
            now = alone(&mut disk, now, command(Op::Write, sector + request * 256, 256)).at;
        }
        now = alone(&mut disk, now, command(Op::Flush, 0, 0)).at;
        let rate = count * 256 * SECTOR * 1_000 / now;
        assert!((least..=most).contains(&rate), "{rate} MB/s written at {sector}");
    }
    // Random reads: 8.9 ms of seek, half a turn, 0.3 ms.
    let (mut random, mut disk, mut now, mut seek) = (Random::new(1), disk(Policy::Fifo, WriteCache::Off), 0, 0);
    for _ in 0..2_000 {
        let done = alone(&mut disk, now, command(Op::Read, random.draw() % 312_000_000 / 8 * 8, 8));
        (now, seek) = (done.at, seek + done.breakdown.seek);
    }
    assert!((8_600_000..9_100_000).contains(&(seek / 2_000)), "{seek}");
    assert!((13_000_000..13_700_000).contains(&(now / 2_000)), "{now}");
}

#[test]
fn a_flush_drains_what_was_written_and_the_cache_makes_writes_fast() {
    let mut disk = disk(Policy::Fifo, WriteCache::On);
    let written = alone(&mut disk, 0, command(Op::Write, 1_000_000, 8));
    assert_eq!(written.at, 300_000 + 8 * 1_707);
    let flushed = alone(&mut disk, written.at, command(Op::Flush, 0, 0));
    assert!(flushed.breakdown.seek > 2_000_000);
    let again = alone(&mut disk, flushed.at, command(Op::Flush, 0, 0));
    assert_eq!(again.breakdown.total(), 300_000, "nothing is left");
    let mut through = self::disk(Policy::Fifo, WriteCache::Off);
    let written = alone(&mut through, 0, command(Op::Write, 1_000_000, 8));
    assert!(written.breakdown.seek > 2_000_000);
    assert_eq!(alone(&mut through, written.at, command(Op::Flush, 0, 0)).breakdown.total(), 300_000);
}

/// Submits random commands at random times: `submit` and `pop` at the disk's own times, some of them late.
fn swarm(queue: Policy, write_cache: WriteCache, seed: u64) -> Vec<Done> {
    let mut random = Random::new(seed);
    let mut disk = disk(queue, write_cache);
    let (mut now, mut submitted, mut done) = (0, Vec::new(), Vec::new());
    while submitted.len() < 2_000 || disk.next().is_some() {
        let arrival = now + random.draw() % 10_000_000;
        while let Some(at) = disk.next().filter(|&at| at <= arrival || submitted.len() == 2_000) {
            now = at;
            done.extend(std::iter::from_fn(|| disk.pop(at)));
        }
        if submitted.len() < 2_000 {
            now = arrival;
            let near = submitted.last().map_or(0, |&(_, command): &(Nanos, Command)| command.offset / SECTOR);
            let sector = match random.draw() % 3 {
                0 => random.draw() % 312_000_000,
                1 => near + random.draw() % 3_000,
                _ => near + 8,
            };
            let op = [Op::Read, Op::Read, Op::Write, Op::Flush][(random.draw() % 4) as usize];
            let class = if random.draw().is_multiple_of(4) { Class::Background } else { Class::Foreground };
            let command = Command { class, ..command(op, sector, 1 + random.draw() % 300) };
            disk.submit(now, submitted.len() as Tag, command);
            submitted.push((now, command));
        }
    }
    let mut seen = vec![false; submitted.len()];
    let mut last = 0;
    for done in &done {
        let at = submitted[done.tag as usize].0;
        assert_eq!(done.breakdown.total(), done.at - at, "the parts are the whole: {done:?}");
        assert!(done.at >= last && !std::mem::replace(&mut seen[done.tag as usize], true));
        last = done.at;
    }
    assert!(seen.iter().all(|&seen| seen), "every command completes");
    done
}

#[test]
fn every_command_completes_once_in_order_and_its_parts_are_the_whole() {
    for seed in 0..8 {
        for queue in [Policy::Fifo, Policy::Clook, Policy::Ncq] {
            for write_cache in [WriteCache::Off, WriteCache::On] {
                let done = swarm(queue, write_cache, seed);
                assert_eq!(done, swarm(queue, write_cache, seed), "equal commands have equal times");
            }
        }
    }
}

#[test]
fn queues_that_choose_are_faster_and_the_background_waits() {
    let time = |queue| {
        let (mut random, mut disk) = (Random::new(3), disk(queue, WriteCache::Off));
        for tag in 0..200 {
            disk.submit(0, tag, command(Op::Read, random.draw() % 312_000_000, 8));
        }
        let mut last = 0;
        while let Some(at) = disk.next() {
            last = at;
            while disk.pop(at).is_some() {}
        }
        last
    };
    let (fifo, clook, ncq) = (time(Policy::Fifo), time(Policy::Clook), time(Policy::Ncq));
    assert!(ncq < fifo * 3 / 4 && clook < fifo * 3 / 4, "{fifo} {clook} {ncq}");
    let mut disk = disk(Policy::Fifo, WriteCache::Off);
    for tag in 0..20 {
        let class = if tag < 10 { Class::Background } else { Class::Foreground };
        disk.submit(0, tag, Command { class, ..command(Op::Read, tag * 1_000_000, 8) });
    }
    let mut order = Vec::new();
    while let Some(at) = disk.next() {
        order.extend(std::iter::from_fn(|| disk.pop(at)).map(|done| done.tag));
    }
    assert_eq!(order[1..11], (10..20).collect::<Vec<_>>(), "the first had begun, the others wait");
}

/// Returns the commands per second when `depth` of them are always in flight.
fn rate(queue: Policy, write_cache: WriteCache, depth: u64, op: Op, sequential: bool, sectors: u64) -> u64 {
    let (mut disk, mut random, mut count, mut now) = (disk(queue, write_cache), Random::new(1), 0, 0);
    let mut wanted = depth;
    while count < 2_000 {
        for _ in 0..wanted {
            let sector = if sequential { count * sectors } else { random.draw() % 39_000_000 * 8 };
            disk.submit(now, count, command(op, sector, sectors));
            count += 1;
        }
        now = disk.next().expect("commands are in progress");
        wanted = std::iter::from_fn(|| disk.pop(now)).count() as u64;
    }
    count * 1_000_000_000 / now
}

/// Checks the order of the drive's own queue. It once ignored its overheads and the settling of writes: it chose sectors that had just passed when the arm
/// arrived, and was slower than the order of arrival. It took the parts of a stream out of order.
#[test]
fn the_drives_own_queue_is_the_fastest_and_keeps_streams_in_order() {
    let (off, on) = (WriteCache::Off, WriteCache::On);
    for op in [Op::Read, Op::Write] {
        let [fifo, clook, ncq] =
            [Policy::Fifo, Policy::Clook, Policy::Ncq].map(|queue| rate(queue, off, 32, op, false, 8));
        assert!(fifo < clook && clook < ncq, "{op:?}: {fifo} {clook} {ncq}");
    }
    assert!((180..=220).contains(&rate(Policy::Ncq, off, 32, Op::Read, false, 8)));
    assert_eq!(rate(Policy::Ncq, off, 1, Op::Read, false, 8), rate(Policy::Fifo, off, 1, Op::Read, false, 8));
    // 80 MB/s in 128 KiB.
    for (op, write_cache) in [(Op::Read, off), (Op::Write, off), (Op::Write, on)] {
        let rate = rate(Policy::Ncq, write_cache, 32, op, true, 256);
        assert!((600..650).contains(&rate), "{op:?} {write_cache:?}: {rate}");
    }
    // One at a time without a cache: each write misses its turn.
    assert!((95..=105).contains(&rate(Policy::Fifo, off, 1, Op::Write, true, 256)));
}

#[test]
fn what_a_drive_keeps_depends_on_what_it_reads() {
    let with = |change: &dyn Fn(&mut Drive)| {
        let mut drive = Drive::wd1600aajs_like();
        change(&mut drive);
        Disk::Hdd(Box::new(Hdd::new(Arc::new(drive), Options::default())))
    };
    let (hit, first) = (300_000 + 8 * 1_707, 1_000 * 1_578 + 700);
    let is_hit = |mut disk: Disk, between: Option<Command>, then: u64| {
        let mut now = 1_000_000;
        for command in std::iter::once(command(Op::Read, first, 8)).chain(between) {
            now = alone(&mut disk, now, command).at + 50_000_000;
        }
        let time = alone(&mut disk, now, command(Op::Read, then, 8)).breakdown.total();
        assert!(time == hit || time > 1_300_000, "{time}");
        time == hit
    };
    let as_built = || with(&|_| {});
    assert!(is_hit(as_built(), None, first + 1_000) && !is_hit(as_built(), None, first + 1_030));
    assert!(!is_hit(as_built(), None, first - 8));
    let on_arrival =
        |over_requested| with(&move |drive| (drive.reads_on_arrival, drive.over_requested) = (true, over_requested));
    assert!(is_hit(on_arrival(false), None, first - 8), "it passed the head before");
    assert!(!is_hit(on_arrival(true), None, first - 8), "but reading ahead has overwritten it");
    let far = command(Op::Write, 200_000_000, 8);
    assert!(is_hit(as_built(), Some(far), first + 8));
    assert!(!is_hit(with(&|drive| drive.writes_forget_reads = true), Some(far), first + 8));
    let overwritten = command(Op::Write, first + 16, 8);
    assert!(is_hit(as_built(), Some(overwritten), first + 16), "what was written is in the buffer, too");
    assert!(!is_hit(with(&|drive| drive.hits_on_writes = false), Some(overwritten), first + 16));
    for (ahead, next, track) in [
        (ReadAhead::None, false, false),
        (ReadAhead::NextTrack, false, false),
        (ReadAhead::Track, true, false),
        (ReadAhead::Cylinder, true, true),
    ] {
        let disk = || with(&|drive| drive.read_ahead = ahead);
        assert_eq!(is_hit(disk(), None, first + 8), next, "{ahead:?}");
        let after = 1_001 * 1_578 + 8;
        assert_eq!(is_hit(disk(), None, after), track, "{ahead:?}");
    }
}
