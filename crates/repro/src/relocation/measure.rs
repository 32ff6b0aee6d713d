//! Measurement of a day's reads on the hard disk model, one after another without pause, as the paper replays them with fio.
//!
//! Only a part of the paper's data is made. Containers of 4 MiB lie as far apart as if all of it were there, so seek distances are the paper's.

use std::sync::Arc;

use engine::Nanos;

use super::World;
use super::layouts::Layout;
use super::reads::Request;
use sim::disks::drive::Drive;
use sim::disks::hdd::{Hdd, Options};
use sim::disks::{Class, Command, Disk, Op};

/// Blocks of a container.
const CONTAINER: u64 = 1024;
const BLOCK: u64 = 4096;
const SECTOR: u64 = 512;
/// Parts of a day of which seeks are kept apart.
pub const PARTS: usize = 50;
/// Sectors from which on a seek is long: 1 GiB.
pub const LONG: u64 = 1 << 21;

/// Results of a measurement.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Requests.
    pub requests: u64,
    /// Blocks that they read.
    pub blocks: u64,
    /// Reads of the device.
    pub commands: u64,
    /// Time from the first read to the last.
    pub nanos: Nanos,
    /// Sectors from the end of each read of the device to the beginning of the next, summed.
    pub sectors: u64,
    /// Reads that are far from the one before.
    pub long: u64,
    /// Reads that are near the one before, and do not follow it.
    pub short: u64,
    /// Mean seek distance in sectors, for each of equal parts of the day.
    pub by_part: Vec<f64>,
}

impl Outcome {
    /// Returns the mean milliseconds of a request.
    pub fn latency(&self) -> f64 {
        self.nanos as f64 / 1e6 / self.requests.max(1) as f64
    }

    /// Returns the mean length of a seek in sectors.
    pub fn seek(&self) -> f64 {
        self.sectors as f64 / self.commands.max(1) as f64
    }

    /// Reads of the device for each 128 KiB.
    pub fn reads_per_128_kib(&self) -> f64 {
        self.commands as f64 * 32.0 / self.blocks.max(1) as f64
    }
}

/// Reads.
pub fn measure(world: &World, layout: &Layout, day: &[Request]) -> Outcome {
    let drive = Arc::new(Drive::wd1600aajs_like());
    let mut disk = Disk::Hdd(Box::new(Hdd::new(drive, Options::default())));
    let mut outcome = Outcome::default();
    let (mut now, mut at) = (0, 0);
    for requests in day.chunks(day.len().div_ceil(PARTS).max(1)) {
        let before = (outcome.sectors, outcome.commands);
        for &request in requests {
            outcome.requests += 1;
            outcome.blocks += u64::from(request.blocks);
            for (place, blocks) in layout.stretches(&world.population, request) {
                for (offset, bytes) in on_disk(u64::from(place), u64::from(blocks), world.shape.part) {
                    outcome.note(at, offset / SECTOR);
                    at = (offset + bytes) / SECTOR;
                    disk.submit(now, 0, Command { op: Op::Read, offset, bytes, class: Class::Foreground });
                    while disk.pop(now).is_none() {
                        now = now.max(disk.next().expect("a command is in progress"));
                    }
                }
            }
        }
        let commands = (outcome.commands - before.1).max(1);
        outcome.by_part.push((outcome.sectors - before.0) as f64 / commands as f64);
    }
    outcome.nanos = now;
    outcome
}

impl Outcome {
    fn note(&mut self, from: u64, to: u64) {
        let distance = from.abs_diff(to);
        self.commands += 1;
        self.sectors += distance;
        self.long += u64::from(distance >= LONG);
        self.short += u64::from(distance > 0 && distance < LONG);
    }
}

/// Maps blocks to pieces on the disk: offset and bytes of each.
fn on_disk(mut place: u64, mut blocks: u64, part: u64) -> Vec<(u64, u64)> {
    let mut pieces = Vec::new();
    while blocks > 0 {
        let within = place % CONTAINER;
        let here = blocks.min(CONTAINER - within);
        pieces.push(((place / CONTAINER * CONTAINER * part + within) * BLOCK, here * BLOCK));
        place += here;
        blocks -= here;
    }
    pieces
}
