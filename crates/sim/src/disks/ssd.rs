//! An SSD in virtual time: a model of the completion time of each command, given all earlier ones.
//!
//! This is not the timing of the crash tests (`world/mod.rs`), which takes each I/O independently and shuffles completions on purpose. Here commands only
//! compete: for a controller that takes one after the other, flash channels that each serve one read at a time, and a bus for each direction. Nothing is
//! random, so equal runs have equal times.
//!
//! The figures are round numbers for a datacenter drive behind PCIe 3 or 4, on the slow side of the market (80 us for a random read of 4 KiB, acknowledged
//! writes from a cache with power-loss protection). They are parameters of the model and no measurement. Left out: garbage collection, and reads that wait
//! behind the programming of flash.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use engine::Nanos;

use super::{Breakdown, Calendar, Done, Op, Statistics, Tag};

/// Performance of a drive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ssd {
    /// Time from the moment at which a channel takes a read until its data is in the controller.
    pub read_nanos: Nanos,
    /// Time from the arrival of a write's data until its acknowledgement from the cache.
    pub write_nanos: Nanos,
    /// Time of a flush, once everything before it has arrived.
    pub flush_nanos: Nanos,
    /// Number of reads that are served at the same time.
    pub channels: usize,
    /// Bytes per second from the drive.
    pub read_bytes_per_second: u64,
    /// Bytes per second to the drive.
    pub write_bytes_per_second: u64,
    /// Commands per second, of all kinds.
    pub commands_per_second: u64,
}

/// The drive of all tables in bench/results/simulated.md.
pub const SSD: Ssd = Ssd {
    read_nanos: 80_000,
    write_nanos: 20_000,
    flush_nanos: 100_000,
    channels: 32,
    read_bytes_per_second: 3_000_000_000,
    write_bytes_per_second: 2_000_000_000,
    commands_per_second: 500_000,
};

/// A command to the drive. Its address does not matter to an SSD.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Command {
    /// Read of this number of bytes.
    Read(u64),
    /// Write of this number of bytes.
    Write(u64),
    /// Makes all written data durable.
    Flush,
}

/// A drive in operation.
#[derive(Clone, Debug)]
pub struct Device {
    ssd: Ssd,
    /// Time at which the controller takes the next command.
    controller: Nanos,
    /// Time at which each channel is free.
    channels: BinaryHeap<Reverse<Nanos>>,
    read_bus: Nanos,
    write_bus: Nanos,
}

impl Device {
    /// Creates an idle drive.
    pub fn new(ssd: Ssd) -> Device {
        let channels = (0..ssd.channels).map(|_| Reverse(0)).collect();
        Device { ssd, controller: 0, channels, read_bus: 0, write_bus: 0 }
    }

    /// Submits a command and returns the time at which it completes. `now` never goes backwards.
    pub fn submit(&mut self, now: Nanos, command: Command) -> Nanos {
        let taken = self.controller.max(now);
        self.controller = taken + 1_000_000_000 / self.ssd.commands_per_second;
        match command {
            Command::Read(bytes) => {
                let Reverse(free) = self.channels.pop().expect("a drive has channels");
                let ready = free.max(taken) + self.ssd.read_nanos;
                self.channels.push(Reverse(ready));
                self.read_bus = self.read_bus.max(ready) + transfer(bytes, self.ssd.read_bytes_per_second);
                self.read_bus
            }
            Command::Write(bytes) => {
                self.write_bus = self.write_bus.max(taken) + transfer(bytes, self.ssd.write_bytes_per_second);
                self.write_bus + self.ssd.write_nanos
            }
            Command::Flush => self.write_bus.max(taken) + self.ssd.flush_nanos,
        }
    }
}

/// A drive with its commands in progress.
#[derive(Clone, Debug)]
pub struct Queue {
    device: Device,
    calendar: Calendar,
    statistics: Statistics,
}

impl Queue {
    /// Creates an idle drive.
    pub fn new(ssd: Ssd) -> Queue {
        Queue { device: Device::new(ssd), calendar: Calendar::default(), statistics: Statistics::default() }
    }

    pub(super) fn submit(&mut self, now: Nanos, tag: Tag, command: super::Command) {
        self.statistics.count(command);
        let ssd = self.device.ssd;
        let (kind, overhead, rate) = match command.op {
            Op::Read => (Command::Read(command.bytes), ssd.read_nanos, ssd.read_bytes_per_second),
            Op::Write => (Command::Write(command.bytes), ssd.write_nanos, ssd.write_bytes_per_second),
            Op::Flush => (Command::Flush, ssd.flush_nanos, 0),
        };
        let at = self.device.submit(now, kind);
        let transfer = if rate == 0 { 0 } else { transfer(command.bytes, rate) };
        self.statistics.busy += overhead + transfer;
        let breakdown = Breakdown { queue: at - now - overhead - transfer, overhead, transfer, ..Breakdown::default() };
        self.calendar.push(Done { tag, at, breakdown });
    }

    pub(super) fn next(&self) -> Option<Nanos> {
        self.calendar.next()
    }

    pub(super) fn pop(&mut self, now: Nanos) -> Option<Done> {
        self.calendar.pop(now)
    }

    pub(super) fn statistics(&self) -> Statistics {
        self.statistics
    }
}

fn transfer(bytes: u64, bytes_per_second: u64) -> Nanos {
    bytes * 1_000_000_000 / bytes_per_second
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the commands per second when `depth` of them are always in flight.
    fn rate(depth: usize, command: Command) -> u64 {
        let mut device = Device::new(SSD);
        let mut calendar: BinaryHeap<_> = (0..depth).map(|_| Reverse(device.submit(0, command))).collect();
        let (mut count, second) = (0, 1_000_000_000);
        while let Some(Reverse(now)) = calendar.pop()
            && now < second
        {
            count += 1;
            calendar.push(Reverse(device.submit(now, command)));
        }
        count
    }

    #[test]
    fn the_drive_does_what_its_figures_say() {
        assert_eq!(Device::new(SSD).submit(0, Command::Read(4096)), 80_000 + 1365);
        assert_eq!(Device::new(SSD).submit(0, Command::Write(4096)), 20_000 + 2048);
        assert!((12_000..12_500).contains(&rate(1, Command::Read(4096))), "one at a time: latency");
        assert!((380_000..400_000).contains(&rate(32, Command::Read(4096))), "one a channel");
        assert!((390_000..401_000).contains(&rate(64, Command::Read(4096))), "no more than the channels serve");
        assert!((22_000..23_000).contains(&rate(32, Command::Read(1 << 17))), "3 GB/s");
        assert!((480_000..490_000).contains(&rate(32, Command::Write(4096))), "2 GB/s");
        assert!((495_000..501_000).contains(&rate(32, Command::Write(512))), "the controller");
    }

    #[test]
    fn a_flush_waits_for_what_was_written_before() {
        let mut device = Device::new(SSD);
        device.submit(0, Command::Write(2_000_000));
        assert_eq!(device.submit(0, Command::Flush), 1_000_000 + 100_000);
    }
}
