//! A hard disk in virtual time: an arm that moves, platters that turn, a buffer that reads ahead and writes behind.
//!
//! One command is served at a time, from the moment at which the disk takes it to its completion. Hits in the buffer need no mechanism; all other commands
//! wait until it is free. While no command is served, the disk writes dirty data of its buffer, and after a read it reads ahead. A command that needs the
//! mechanism ends the reading at once; the writing of a segment is finished first. The events of such a pause are computed when the next command is taken.
//!
//! Chosen where the parameter files leave it open: data cross the bus while they come from the medium. Any level of fast writes
//! acknowledges every write that finds a segment, also a random one, and has the overhead of a write hit (the measured drives
//! do so). A write settles once, when the arm has moved to it, and not again at each track: skews are made for that.

use std::collections::VecDeque;
use std::sync::Arc;

use engine::Nanos;

use super::buffer::{Buffer, Segment};
use super::drive::{Drive, WriteCache};
use super::geometry::{Run, SECTOR};
use super::queue::{Policy, Queue, Waiting};
use super::{Breakdown, Command, Done, Op, Statistics, Tag};

#[path = "read_ahead.rs"]
mod read_ahead;

use read_ahead::Ahead;

/// Settings of a disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Options {
    /// Policy that chooses the next command.
    pub queue: Policy,
    /// Setting of the write cache; `None`: as the drive has it.
    pub write_cache: Option<WriteCache>,
}

/// Position of the heads.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Arm {
    cylinder: u64,
    head: u64,
}

/// Work of the mechanism for a command.
#[derive(Clone, Copy, Debug, Default)]
struct Pass {
    time: Breakdown,
    /// Time at which the first sector began to pass the head.
    began: Nanos,
    end: Nanos,
}

/// A hard disk in operation.
#[derive(Clone, Debug)]
pub struct Hdd {
    drive: Arc<Drive>,
    write_cache: WriteCache,
    arm: Arm,
    /// Time at which the last pass over the medium ended, and the sector with which it would have continued.
    streaming: (Nanos, u64),
    /// Time at which the mechanism is free, apart from reading ahead.
    free: Nanos,
    buffer: Buffer,
    ahead: Option<Ahead>,
    /// True if the drive has the queue: it prepares a command while it serves another.
    overlaps: bool,
    /// Time for which the drive had the command that it serves, before it began.
    early: Nanos,
    /// True if the last command was a write.
    after_write: bool,
    /// Sector after the last read.
    read_end: u64,
    queue: Queue,
    /// Commands being served, which complete together.
    current: VecDeque<Done>,
    completed: VecDeque<Done>,
    statistics: Statistics,
}

impl Hdd {
    /// Creates an idle disk, with an empty buffer.
    pub fn new(drive: Arc<Drive>, options: Options) -> Hdd {
        Hdd {
            write_cache: options.write_cache.unwrap_or(drive.write_cache),
            arm: Arm::default(),
            streaming: (0, u64::MAX),
            free: 0,
            buffer: Buffer::new(drive.segments),
            ahead: None,
            overlaps: options.queue == Policy::Ncq,
            early: 0,
            after_write: false,
            read_end: 0,
            queue: Queue::new(options.queue),
            current: VecDeque::new(),
            completed: VecDeque::new(),
            statistics: Statistics::default(),
            drive,
        }
    }

    pub(super) fn submit(&mut self, now: Nanos, tag: Tag, command: Command) {
        self.statistics.count(command);
        let sector = (command.offset / SECTOR).min(self.drive.geometry.sectors.saturating_sub(1));
        let sectors = (command.bytes / SECTOR).clamp(1, self.drive.geometry.sectors - sector);
        self.queue.push(Waiting { tag, submitted: now, command, sector, sectors });
        if self.current.is_empty() {
            self.start(now);
        }
    }

    pub(super) fn next(&self) -> Option<Nanos> {
        self.completed.front().or(self.current.front()).map(|done| done.at)
    }

    pub(super) fn pop(&mut self, now: Nanos) -> Option<Done> {
        while let Some(first) = self.current.front().filter(|first| first.at <= now) {
            let at = first.at;
            self.completed.append(&mut self.current);
            self.start(at);
        }
        self.completed.pop_front()
    }

    pub(super) fn statistics(&self) -> Statistics {
        self.statistics
    }

    pub(super) fn capacity(&self) -> u64 {
        self.drive.capacity()
    }

    /// Takes the next command, if one is waiting.
    fn start(&mut self, now: Nanos) {
        let mut queue = std::mem::take(&mut self.queue);
        let batch = queue.take(now, |waiting| self.reach(now, waiting));
        self.queue = queue;
        let Some(first) = batch.first() else { return };
        self.early = if self.overlaps { now - first.submitted } else { 0 };
        self.pause(now);
        let sectors = batch.iter().map(|waiting| waiting.sectors).sum();
        let time = match first.command.op {
            Op::Read => self.read(now, first.sector, sectors),
            Op::Write => self.write(now, first.sector, sectors),
            Op::Flush => self.flush(now),
        };
        let at = now + time.total();
        self.statistics.busy += time.total();
        if first.command.op != Op::Flush {
            self.after_write = first.command.op == Op::Write;
        }
        let done = |waiting: &Waiting| {
            let breakdown = Breakdown { queue: time.queue + (now - waiting.submitted), ..time };
            Done { tag: waiting.tag, at, breakdown }
        };
        self.current.extend(batch.iter().map(done));
    }

    /// Returns the time until the first sector of a command passes; 0 if the buffer serves it.
    fn reach(&self, now: Nanos, waiting: &Waiting) -> Nanos {
        let (sector, end) = (waiting.sector, waiting.sector + waiting.sectors);
        let (overheads, after) = (&self.drive.overheads, usize::from(self.after_write));
        let early = if self.overlaps { now - waiting.submitted } else { 0 };
        let begin = |overhead: Nanos| self.free.max(now + overhead.saturating_sub(early));
        match waiting.command.op {
            Op::Flush => 0,
            Op::Read if self.buffer.holding(sector, end, self.drive.hits_on_writes).is_some() => 0,
            Op::Read => match self.coming(sector) {
                Some(at) => at.saturating_sub(now),
                None => self.passes(begin(overheads.read_miss[after]), sector, false) - now,
            },
            // Into the buffer; if that is full, all commands wait alike until a segment is written.
            Op::Write if self.write_cache == WriteCache::On && waiting.sectors <= self.drive.segment_sectors => {
                let full = self.buffer.unwritten(now) >= self.drive.write_segments;
                if full { self.free.saturating_sub(now) } else { 0 }
            }
            Op::Write => self.passes(begin(overheads.write_miss[after]), sector, true) - now,
        }
    }

    /// Returns the rest of an overhead: a drive with its own queue has begun with it while another command was served.
    fn left_of(&self, overhead: [Nanos; 2]) -> Nanos {
        overhead[usize::from(self.after_write)].saturating_sub(self.early)
    }

    /// Performs the write-backs that the disk began on its own while it had no command, up to now.
    fn pause(&mut self, now: Nanos) {
        while let Some(at) = self.next_dirty(now) {
            let start = self.free.max(self.buffer.segments[at].ready);
            if start >= now {
                break;
            }
            let pass = self.write_back(at, start);
            self.statistics.busy += pass.end.min(now) - start;
        }
    }

    /// Returns the dirty segment that is reached first, of those whose data have arrived.
    fn next_dirty(&self, now: Nanos) -> Option<usize> {
        let dirty = |&at: &usize| self.buffer.segments[at].is_dirty();
        let cost = |&at: &usize| {
            let segment = &self.buffer.segments[at];
            let start = self.free.max(segment.ready);
            (start >= now, self.passes(start, segment.dirty_from, true))
        };
        (0..self.buffer.segments.len()).filter(dirty).min_by_key(cost)
    }

    /// Writes the dirty sectors of a segment, from the time `start` on, at which the mechanism is free.
    fn write_back(&mut self, at: usize, start: Nanos) -> Pass {
        self.stop_ahead(start);
        let Segment { dirty_from, end, .. } = self.buffer.segments[at];
        let pass = self.pass(start, dirty_from, end - dirty_from, start, true);
        let segment = &mut self.buffer.segments[at];
        segment.busy = pass.end;
        segment.dirty_from = segment.end;
        pass
    }

    fn read(&mut self, now: Nanos, sector: u64, sectors: u64) -> Breakdown {
        let end = sector + sectors;
        let sequential = self.read_end == sector;
        self.read_end = end;
        let drive = Arc::clone(&self.drive);
        let overhead = self.left_of(drive.overheads.read_hit);
        let bus = sectors * drive.bus_sector;
        // Sectors being read ahead are in their segment up to the present position.
        if let Some(time) = self.read_of_ahead(now, sector, end) {
            return time;
        }
        if let Some(at) = self.buffer.holding(sector, end, drive.hits_on_writes) {
            self.buffer.touch(at);
            self.ahead_again(at, end, now + overhead);
            return Breakdown { overhead, transfer: bus, ..Breakdown::default() };
        }
        let overhead = self.left_of(drive.overheads.read_miss);
        let start = now + overhead;
        let begin = self.clean(start, sector, end).max(self.free);
        self.stop_ahead(start);
        let continued = self.buffer.continued(sector);
        let from = continued.map_or(sector, |at| self.buffer.segments[at].end.min(end - 1));
        let pass = self.pass(begin, from, end - from, begin, false);
        self.free = pass.end;
        let run = drive.geometry.locate(from);
        let first = pass.began + drive.geometry.sector_time(&run);
        let done = (pass.end + drive.bus_sector).max(first + (end - from) * drive.bus_sector).max(start + bus);
        let at = continued.or_else(|| self.buffer.give_up(begin, None));
        if let Some(at) = at {
            // The head waited for the first sector: those that came before it in the track passed meanwhile.
            let waited = pass.time.rotation * run.track_sectors / drive.geometry.revolution;
            let before = if drive.reads_on_arrival { waited.min(run.before) } else { 0 };
            let before = before.min(drive.segment_sectors.saturating_sub(sectors));
            let segment = &mut self.buffer.segments[at];
            segment.start = if continued.is_some() { segment.start } else { sector - before };
            segment.start = segment.start.max(end.saturating_sub(drive.segment_sectors));
            (segment.end, segment.dirty_from, segment.written) = (end, end, false);
            self.buffer.touch(at);
            self.begin_ahead(at, end, pass.end, sequential);
        }
        let mut time = pass.time;
        (time.queue, time.overhead) = (begin - start, overhead);
        time.transfer += done - pass.end;
        time
    }

    fn write(&mut self, now: Nanos, sector: u64, sectors: u64) -> Breakdown {
        let end = sector + sectors;
        let drive = Arc::clone(&self.drive);
        if self.ahead.is_some_and(|ahead| sector < ahead.until && self.buffer.segments[ahead.segment].start < end) {
            self.stop_ahead(now);
        }
        self.buffer.invalidate(sector, end);
        if drive.writes_forget_reads {
            self.stop_ahead(now);
            self.buffer.forget_reads();
        }
        let space = drive.segment_sectors;
        if self.write_cache == WriteCache::Off || sectors > space {
            return self.write_through(now, sector, sectors);
        }
        let overhead = self.left_of(drive.overheads.write_hit);
        let transfer = sectors * drive.bus_sector;
        let mut begin = now;
        let at = loop {
            if let Some(at) = self.buffer.absorbing(sector, end) {
                break Some(at);
            }
            if let Some(at) = self.buffer.dirty_among(sector, end) {
                begin = begin.max(self.write_back(at, self.free.max(begin)).end);
                continue;
            }
            if drive.combine_writes
                && let Some(at) = self.buffer.appending(sector, sectors, begin, space)
            {
                let segment = &mut self.buffer.segments[at];
                (segment.start, segment.end) = (segment.start.max(end.saturating_sub(space)), end);
                break Some(at);
            }
            if self.buffer.unwritten(begin) < drive.write_segments {
                let at = self.buffer.give_up(begin, self.ahead.map(|ahead| ahead.segment));
                if let Some(at) = at {
                    if self.ahead.is_some_and(|ahead| ahead.segment == at) {
                        self.ahead = None;
                    }
                    let fresh = Segment { start: sector, end, dirty_from: sector, written: true, ..Segment::default() };
                    self.buffer.segments[at] = fresh;
                }
                break at;
            }
            // No segment is free: one must be written first.
            match self.buffer.segments.iter().map(|segment| segment.busy).filter(|&busy| busy > begin).min() {
                Some(busy) => begin = busy,
                None => {
                    let Some(at) = self.next_dirty(Nanos::MAX) else { break None };
                    begin = self.write_back(at, self.free.max(begin)).end;
                }
            }
        };
        if let Some(at) = at {
            self.buffer.segments[at].ready = begin + overhead + transfer;
            self.buffer.touch(at);
        }
        Breakdown { queue: begin - now, overhead, transfer, ..Breakdown::default() }
    }

    fn write_through(&mut self, now: Nanos, sector: u64, sectors: u64) -> Breakdown {
        let drive = Arc::clone(&self.drive);
        let (end, overhead) = (sector + sectors, self.left_of(drive.overheads.write_miss));
        let start = now + overhead;
        let begin = self.clean(start, sector, end).max(self.free);
        self.stop_ahead(start);
        // A sector must have come over the bus before it passes the head.
        let behind = drive.bus_sector.saturating_sub(drive.geometry.sector_time(&drive.geometry.locate(sector)));
        let bus = drive.bus_sector + (sectors - 1) * behind;
        let arrived =
            now + (drive.overheads.write_miss[usize::from(self.after_write)] + bus).saturating_sub(self.early);
        let pass = self.pass(begin, sector, sectors, arrived, true);
        if drive.hits_on_writes
            && sectors <= drive.segment_sectors
            && let Some(at) = self.buffer.give_up(begin, None)
        {
            let fresh = Segment { start: sector, end, dirty_from: end, written: true, ..Segment::default() };
            self.buffer.segments[at] = fresh;
            self.buffer.touch(at);
        }
        Breakdown { queue: begin - start, overhead, ..pass.time }
    }

    fn flush(&mut self, now: Nanos) -> Breakdown {
        let overhead = self.left_of(self.drive.overheads.read_hit);
        let mut time = Breakdown { overhead, ..Breakdown::default() };
        let mut at = now + overhead;
        while let Some(segment) = self.next_dirty(Nanos::MAX) {
            let start = at.max(self.free).max(self.buffer.segments[segment].ready);
            let pass = self.write_back(segment, start);
            time.queue += start - at;
            time.seek += pass.time.seek;
            time.rotation += pass.time.rotation;
            time.transfer += pass.time.transfer;
            at = pass.end;
        }
        let last = self.buffer.segments.iter().map(|segment| segment.busy).max().unwrap_or(0);
        time.queue += last.saturating_sub(at);
        time
    }

    /// Writes the dirty segments among these sectors. Returns the time at which that is done.
    fn clean(&mut self, from: Nanos, sector: u64, end: u64) -> Nanos {
        let mut done = from;
        while let Some(at) = self.buffer.dirty_among(sector, end) {
            let start = done.max(self.free).max(self.buffer.segments[at].ready);
            done = self.write_back(at, start).end;
        }
        done
    }

    /// Returns the time that the arm takes to a track: the seek or the head switch, whichever is longer.
    fn moving(&self, arm: Arm, run: &Run) -> Nanos {
        let geometry = &self.drive.geometry;
        let switch = if arm.head == run.head { 0 } else { geometry.head_switch };
        geometry.seek(arm.cylinder.abs_diff(run.cylinder)).max(switch)
    }

    /// Returns the time to the first track of an access that begins at `begin`, with settling unless it continues the last pass.
    fn moving_first(&self, begin: Nanos, sector: u64, run: &Run, write: bool) -> Nanos {
        let (geometry, moving) = (&self.drive.geometry, self.moving(self.arm, run));
        if (begin, sector) == self.streaming {
            return moving;
        }
        let settle = if write { geometry.write_settle } else { 0 };
        moving.max(geometry.resettle).saturating_add_signed(settle)
    }

    /// Returns the time at which the first sector of an access that begins at `begin` passes the head.
    fn passes(&self, begin: Nanos, sector: u64, write: bool) -> Nanos {
        let (revolution, run) = (self.drive.geometry.revolution, self.drive.geometry.locate(sector));
        let there = begin + self.moving_first(begin, sector, &run, write);
        there + (run.angle + revolution - there % revolution) % revolution
    }

    /// Reads or writes sectors of the medium from `begin` on. `ready`: a write does not begin before.
    fn pass(&mut self, begin: Nanos, sector: u64, sectors: u64, ready: Nanos, write: bool) -> Pass {
        let geometry = &self.drive.geometry;
        let mut pass = Pass { end: begin, ..Pass::default() };
        let (mut at, mut left) = (sector, sectors);
        while left > 0 {
            let run = geometry.locate(at);
            let first = left == sectors;
            let moving =
                if first { self.moving_first(begin, sector, &run, write) } else { self.moving(self.arm, &run) };
            let hold = if first { ready.saturating_sub(pass.end + moving) } else { 0 };
            let there = pass.end + moving + hold;
            let wait = (run.angle + geometry.revolution - there % geometry.revolution) % geometry.revolution;
            if first {
                pass.began = there + wait;
            }
            let count = run.sectors.min(left);
            let time = run.time(count, geometry.revolution);
            pass.time.seek += moving;
            pass.time.rotation += wait;
            pass.time.transfer += time + hold;
            pass.end = there + wait + time;
            self.arm = Arm { cylinder: run.cylinder, head: run.head };
            (at, left) = (at + count, left - count);
        }
        self.free = pass.end;
        self.streaming = (pass.end, at);
        self.statistics.seeking += pass.time.seek;
        pass
    }
}

#[cfg(test)]
#[path = "hdd_tests.rs"]
mod tests;
