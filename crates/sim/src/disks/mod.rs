//! Models of the timing of disks: given commands and their arrival times, they compute the completion of each, and its
//! time by cause.
//!
//! A disk has no contents; its caller keeps those. Commands go in at [`Disk::submit`] and wait in the disk's own queue, which may serve them in another
//! order. The next event of the disk is at [`Disk::next`]; [`Disk::pop`] lets its time pass and returns the completions one by one. All times are integers,
//! and nothing is random: equal commands have equal times on every machine.

mod buffer;
pub mod command;
pub mod drive;
pub mod ftl;
pub mod geometry;
pub mod hdd;
pub mod parameters;
pub mod power;
pub mod queue;
pub mod raid5;
pub mod rebuild;
pub mod spec;
pub mod ssd;
mod stripe;
pub mod validate;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use engine::{DeviceTraits, Nanos};

/// Name that the caller gives to a command, to recognise it when it completes.
pub type Tag = u64;

/// Operations of a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Op {
    /// Reads.
    Read,
    /// Writes.
    Write,
    /// Makes completed writes durable; its offset and bytes do not matter.
    Flush,
}

/// Classes of commands: with or without a waiting client.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Class {
    /// Commands that a client waits for.
    Foreground,
    /// Commands that no client waits for: they are served when nothing else waits.
    Background,
}

/// Read, write or flush that a disk or array gets: whole sectors of 512 bytes, with or without a waiting client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Command {
    /// Operation of the command.
    pub op: Op,
    /// First byte, a multiple of 512.
    pub offset: u64,
    /// Length in bytes, a multiple of 512.
    pub bytes: u64,
    /// Class of the command.
    pub class: Class,
}

/// Time of a command by cause, in nanoseconds. For a command to an array: of the member that completed last.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Breakdown {
    /// Waiting in queues, behind other commands.
    pub queue: Nanos,
    /// Moving the arm, and switching heads.
    pub seek: Nanos,
    /// Waiting for the platter to turn.
    pub rotation: Nanos,
    /// Data in progress: from or to the medium, over the bus.
    pub transfer: Nanos,
    /// Other time: command overhead, the latency of flash.
    pub overhead: Nanos,
}

impl Breakdown {
    /// Sums all parts: the time from submission to completion.
    pub fn total(&self) -> Nanos {
        self.queue + self.seek + self.rotation + self.transfer + self.overhead
    }

    /// Adds another command's times.
    pub fn add(&mut self, other: &Breakdown) {
        self.queue += other.queue;
        self.seek += other.seek;
        self.rotation += other.rotation;
        self.transfer += other.transfer;
        self.overhead += other.overhead;
    }
}

/// A command that has completed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Done {
    /// Its name.
    pub tag: Tag,
    /// Time of completion.
    pub at: Nanos,
    /// Time of the command by cause.
    pub breakdown: Breakdown,
}

/// Totals of a disk so far. For an array: the sum of its members.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Statistics {
    /// Commands that read from the medium or from the buffer.
    pub reads: u64,
    /// Commands that write.
    pub writes: u64,
    /// Bytes that they read.
    pub read_bytes: u64,
    /// Bytes that they wrote.
    pub written_bytes: u64,
    /// Nanoseconds in which a command was being served, summed over the members of an array.
    pub busy: Nanos,
    /// Nanoseconds among these with the arm in motion.
    pub seeking: Nanos,
}

/// Every kind of disk.
#[derive(Clone, Debug)]
pub enum Disk {
    /// A disk whose commands complete at once, for commands that are only to be counted or to warm caches.
    Instant(Instant),
    /// Flash.
    Ssd(ssd::Queue),
    /// Flash with its translation layer.
    Flash(Box<ftl::Flash>),
    /// A hard disk: an arm that moves, platters that turn, a buffer that reads ahead and writes behind.
    Hdd(Box<hdd::Hdd>),
    /// Several disks.
    Array(Box<raid5::Array>),
}

impl Disk {
    /// Gives the disk a command. `now` never goes backwards, and is no later than [`Disk::next`].
    pub fn submit(&mut self, now: Nanos, tag: Tag, command: Command) {
        match self {
            Disk::Instant(disk) => disk.submit(now, tag, command),
            Disk::Ssd(disk) => disk.submit(now, tag, command),
            Disk::Flash(disk) => disk.submit(now, tag, command),
            Disk::Hdd(disk) => disk.submit(now, tag, command),
            Disk::Array(array) => array.submit(now, tag, command),
        }
    }

    /// Returns the time of the next event in the disk, if any command is in flight: a completion, or a step towards one.
    pub fn next(&self) -> Option<Nanos> {
        match self {
            Disk::Instant(disk) => disk.calendar.next(),
            Disk::Ssd(disk) => disk.next(),
            Disk::Flash(disk) => disk.next(),
            Disk::Hdd(disk) => disk.next(),
            Disk::Array(array) => array.next(),
        }
    }

    /// Lets time pass up to `now`, and takes one command that has completed by then, in order of time. Call it until there is none.
    pub fn pop(&mut self, now: Nanos) -> Option<Done> {
        match self {
            Disk::Instant(disk) => disk.calendar.pop(now),
            Disk::Ssd(disk) => disk.pop(now),
            Disk::Flash(disk) => disk.pop(now),
            Disk::Hdd(disk) => disk.pop(now),
            Disk::Array(array) => array.pop(now),
        }
    }

    /// Returns its totals so far.
    pub fn statistics(&self) -> Statistics {
        match self {
            Disk::Instant(disk) => disk.statistics,
            Disk::Ssd(disk) => disk.statistics(),
            Disk::Flash(disk) => disk.statistics(),
            Disk::Hdd(disk) => disk.statistics(),
            Disk::Array(array) => array.statistics(),
        }
    }

    /// Returns true if a write waits for space in the disk's own memory, so that in Linux the thread that submitted it sleeps: in an array, for a row of
    /// its stripe cache.
    pub fn is_full(&self) -> bool {
        match self {
            Disk::Array(array) => array.is_full(),
            Disk::Instant(_) | Disk::Ssd(_) | Disk::Hdd(_) | Disk::Flash(_) => false,
        }
    }

    /// Returns the time at which the rebuild of an array finished, if it had one.
    pub fn rebuilt(&self) -> Option<Nanos> {
        match self {
            Disk::Array(array) => array.rebuild()?.finished(),
            Disk::Instant(_) | Disk::Ssd(_) | Disk::Hdd(_) | Disk::Flash(_) => None,
        }
    }

    /// Returns the traits that a driver would report.
    pub fn traits(&self) -> DeviceTraits {
        match self {
            Disk::Instant(_) | Disk::Ssd(_) | Disk::Flash(_) => DeviceTraits::SSD,
            Disk::Hdd(_) => DeviceTraits::HDD,
            Disk::Array(array) => array.member_traits(),
        }
    }

    /// Returns its size in bytes; `u64::MAX` if it has no bound.
    pub fn capacity(&self) -> u64 {
        match self {
            Disk::Instant(_) | Disk::Ssd(_) => u64::MAX,
            Disk::Flash(disk) => disk.capacity(),
            Disk::Hdd(disk) => disk.capacity(),
            Disk::Array(array) => array.capacity(),
        }
    }
}

/// A disk that takes no time.
#[derive(Clone, Debug, Default)]
pub struct Instant {
    calendar: Calendar,
    statistics: Statistics,
}

impl Instant {
    fn submit(&mut self, now: Nanos, tag: Tag, command: Command) {
        self.statistics.count(command);
        self.calendar.push(Done { tag, at: now, breakdown: Breakdown::default() });
    }
}

impl Statistics {
    /// Subtracts earlier totals.
    pub fn since(&self, then: &Statistics) -> Statistics {
        Statistics {
            reads: self.reads - then.reads,
            writes: self.writes - then.writes,
            read_bytes: self.read_bytes - then.read_bytes,
            written_bytes: self.written_bytes - then.written_bytes,
            busy: self.busy - then.busy,
            seeking: self.seeking - then.seeking,
        }
    }

    /// Counts a command and its bytes.
    pub fn count(&mut self, command: Command) {
        match command.op {
            Op::Read => {
                self.reads += 1;
                self.read_bytes += command.bytes;
            }
            Op::Write => {
                self.writes += 1;
                self.written_bytes += command.bytes;
            }
            Op::Flush => {}
        }
    }
}

/// Future completions, in the order of their times; those of one moment in the order in which they were entered.
#[derive(Clone, Debug, Default)]
pub(crate) struct Calendar {
    entries: BinaryHeap<Reverse<(Nanos, u64, Tag)>>,
    breakdowns: std::collections::HashMap<u64, Breakdown>,
    sequence: u64,
}

impl Calendar {
    pub(crate) fn push(&mut self, done: Done) {
        self.sequence += 1;
        self.entries.push(Reverse((done.at, self.sequence, done.tag)));
        self.breakdowns.insert(self.sequence, done.breakdown);
    }

    pub(crate) fn next(&self) -> Option<Nanos> {
        self.entries.peek().map(|Reverse((at, ..))| *at)
    }

    pub(crate) fn pop(&mut self, now: Nanos) -> Option<Done> {
        let &Reverse((at, sequence, tag)) = self.entries.peek().filter(|Reverse((at, ..))| *at <= now)?;
        self.entries.pop();
        let breakdown = self.breakdowns.remove(&sequence).unwrap_or_default();
        Some(Done { tag, at, breakdown })
    }
}
