//! Model of the author's small test of replica retrieval: reads of 4 KiB from a disk on which each content has N copies, anywhere. The copy nearest to the head
//! is read. Beside it the same drive is short-stroked to one part in N. With many copies the arm should have as little to do as there.

use std::sync::Arc;

use super::dispatch::Sweep;
use super::replay::Choice;
use crate::traces::BLOCK;
use sim::disks::drive::Drive;
use sim::disks::hdd::{Hdd, Options};
use sim::disks::{Class, Command, Disk, Op};
use sim::random::Random;

/// Reads (the author's wiki has 8,192).
pub const READS: u64 = 8192;
const SECTORS: u64 = 8;
const SEED: u64 = 1;
/// Steps of the sums that stand for integrals.
const STEPS: u64 = 200;

/// Returns the mean milliseconds of a read.
fn run(mut next: impl FnMut(u64) -> u64, reads: u64) -> f64 {
    let mut disk = Disk::Hdd(Box::new(Hdd::new(Arc::new(Drive::wd1600aajs_like()), Options::default())));
    let (mut now, mut head) = (0, 0);
    for _ in 0..reads {
        let block = next(head);
        head = block + 1;
        disk.submit(now, 0, Command { op: Op::Read, offset: block * BLOCK, bytes: BLOCK, class: Class::Foreground });
        while disk.pop(now).is_none() {
            now = now.max(disk.next().expect("a read is in flight"));
        }
    }
    now as f64 / 1e6 / reads.max(1) as f64
}

fn blocks() -> u64 {
    Drive::wd1600aajs_like().capacity() / BLOCK
}

/// Measures reads of the nearest of `copies` random copies of each content. No content is read twice.
pub fn nearest_of(copies: u64, reads: u64) -> f64 {
    let (mut random, blocks) = (Random::new(SEED), blocks());
    run(
        move |head| {
            let places = (0..copies.max(1)).map(|_| random.below(blocks));
            places.min_by_key(|place| place.abs_diff(head)).unwrap_or(0)
        },
        reads,
    )
}

/// Returns the mean service time of a read in milliseconds, with `waiting` requests always in progress, under C-LOOK. Each has `copies` copies, anywhere. At
/// arrival, the copy nearest to the end of the last completed read is chosen. At dispatch, the scheduler chooses.
pub fn queued(copies: u64, waiting: u64, choice: Choice, reads: u64) -> f64 {
    let (mut random, blocks) = (Random::new(SEED), blocks());
    let mut disk = Disk::Hdd(Box::new(Hdd::new(Arc::new(Drive::wd1600aajs_like()), Options::default())));
    let mut sweep = Sweep::default();
    let (mut now, mut head, mut served) = (0, 0, 0);
    let mut add = |sweep: &mut Sweep<()>, head: u64| {
        let mut places: Vec<u64> = (0..copies.max(1)).map(|_| random.below(blocks)).collect();
        if choice == Choice::Arrival {
            let nearest = places.iter().copied().min_by_key(|place| place.abs_diff(head));
            places = nearest.into_iter().collect();
        }
        sweep.push(Op::Read, 1, places, ());
    };
    for _ in 0..waiting.max(1) {
        add(&mut sweep, head);
    }
    while served < reads {
        let Some(next) = sweep.take() else { break };
        let (offset, bytes) = (next.block * BLOCK, next.blocks * BLOCK);
        disk.submit(now, 0, Command { op: Op::Read, offset, bytes, class: Class::Foreground });
        while disk.pop(now).is_none() {
            now = now.max(disk.next().expect("a read is in flight"));
        }
        head = next.block + next.blocks;
        served += next.parts.len() as u64;
        for _ in &next.parts {
            add(&mut sweep, head);
        }
    }
    now as f64 / 1e6 / served.max(1) as f64
}

/// Measures random reads on the first part of the disk alone, one in `part`.
pub fn short_stroked(part: u64, reads: u64) -> f64 {
    let (mut random, used) = (Random::new(SEED), (blocks() / part.max(1)).max(1));
    run(move |_| random.below(used), reads)
}

/// Predicts the time of a read of the nearest of `copies` copies from the parameters of the drive alone: the head is anywhere, and places are independent. The
/// nearest copy is farther than d with the probability that none of them lies within d of the head. The time is a seek of that distance, half a revolution, the
/// block under the head, and the overhead.
pub fn expected(copies: u64) -> f64 {
    let drive = Drive::wd1600aajs_like();
    let geometry = &drive.geometry;
    let sectors = geometry.sectors;
    let cylinder = |share: f64| {
        let sector = (share.clamp(0.0, 1.0) * sectors as f64) as u64;
        geometry.locate(sector.min(sectors - 1)).cylinder
    };
    let farther = |head: f64, distance: f64| {
        let within = (head + distance).min(1.0) - (head - distance).max(0.0);
        libm::pow(1.0 - within, copies as f64)
    };
    // Distances grow in steps: with many copies most of the probability is at short ones.
    let steps: Vec<f64> = (0..=STEPS).map(|at| libm::pow(at as f64 / STEPS as f64, 4.0)).collect();
    let mut seek = 0.0;
    for at in 0..STEPS {
        let head = (at as f64 + 0.5) / STEPS as f64;
        let from = cylinder(head);
        for pair in steps.windows(2) {
            let chance = farther(head, pair[0]) - farther(head, pair[1]);
            if chance <= 0.0 {
                continue;
            }
            let distance = (pair[0] + pair[1]) / 2.0;
            let ways = [head - distance, head + distance].into_iter().filter(|place| (0.0..1.0).contains(place));
            let seeks: Vec<f64> = ways.map(|place| geometry.seek(from.abs_diff(cylinder(place))) as f64).collect();
            seek += chance * seeks.iter().sum::<f64>() / seeks.len().max(1) as f64;
        }
    }
    seek /= STEPS as f64;
    let revolution = geometry.revolution as f64;
    let middle = geometry.locate(sectors / 2).track_sectors as f64;
    let overhead = drive.overheads.read_miss[0] as f64;
    (seek + revolution / 2.0 + revolution * SECTORS as f64 / middle + overhead) / 1e6
}
