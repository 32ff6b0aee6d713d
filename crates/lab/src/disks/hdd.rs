//! A hard disk in virtual time: an arm that moves, platters that turn, a buffer that reads ahead and writes behind.
//!
//! One command is served at a time, from the moment at which the disk takes it to its completion. Hits in the buffer need no
//! mechanism; all else waits until it is free. While no command is served, the disk writes what is dirty in its buffer,
//! and after a read it reads on; a command that needs the mechanism ends the reading at once, the writing of a segment is
//! finished first. What happens in such a pause is computed when the next command is taken.
//!
//! Chosen where the parameter files leave it open: data cross the bus while they come from the medium. Any level of fast writes
//! acknowledges every write that finds a segment, also a random one, and has the overhead of a write hit (the measured drives
//! do so). A write settles once, when the arm has moved to it, and not again at each track: skews are made for that.

use std::collections::VecDeque;
use std::sync::Arc;

use engine::Nanos;

use super::buffer::{Buffer, Segment};
use super::drive::{Drive, ReadAhead, WriteCache};
use super::geometry::{Run, SECTOR};
use super::queue::{Policy, Queue, Waiting};
use super::{Breakdown, Command, Done, Op, Statistics, Tag};

/// How a disk is run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Options {
    /// Which command is next.
    pub queue: Policy,
    /// The write cache: as the drive has it, if not given.
    pub write_cache: Option<WriteCache>,
}

/// Where the heads are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Arm {
    cylinder: u64,
    head: u64,
}

/// Reading ahead: from when on which sector passes, and where it ends.
#[derive(Clone, Copy, Debug)]
struct Ahead {
    segment: usize,
    from: u64,
    at: Nanos,
    until: u64,
}

/// What the mechanism has done for a command.
#[derive(Clone, Copy, Debug, Default)]
struct Pass {
    time: Breakdown,
    /// When the first sector began to pass the head.
    began: Nanos,
    end: Nanos,
}

/// The disk.
#[derive(Clone, Debug)]
pub struct Hdd {
    drive: Arc<Drive>,
    write_cache: WriteCache,
    arm: Arm,
    /// When the last pass over the medium ended, and with which sector it would have gone on.
    streaming: (Nanos, u64),
    /// When the mechanism is free, apart from reading ahead.
    free: Nanos,
    buffer: Buffer,
    ahead: Option<Ahead>,
    /// The last command was a write.
    after_write: bool,
    /// The sector after the last read.
    read_end: u64,
    queue: Queue,
    /// The commands being served, which complete together.
    current: VecDeque<Done>,
    completed: VecDeque<Done>,
    statistics: Statistics,
}

impl Hdd {
    /// A disk at rest, with an empty buffer.
    pub fn new(drive: Arc<Drive>, options: Options) -> Hdd {
        Hdd {
            write_cache: options.write_cache.unwrap_or(drive.write_cache),
            arm: Arm::default(),
            streaming: (0, u64::MAX),
            free: 0,
            buffer: Buffer::new(drive.segments),
            ahead: None,
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

    /// Takes the next command, if one waits.
    fn start(&mut self, now: Nanos) {
        let mut queue = std::mem::take(&mut self.queue);
        let batch = queue.take(now, |waiting| self.reach(now, waiting));
        self.queue = queue;
        let Some(first) = batch.first() else { return };
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

    /// How long the mechanism takes until the first sector of a command passes; nothing, if it is in the buffer.
    fn reach(&self, now: Nanos, waiting: &Waiting) -> Nanos {
        let (sector, end) = (waiting.sector, waiting.sector + waiting.sectors);
        let hit = match waiting.command.op {
            Op::Read => self.buffer.holding(sector, end, self.drive.hits_on_writes).is_some(),
            Op::Write | Op::Flush => false,
        };
        if hit {
            return 0;
        }
        let geometry = &self.drive.geometry;
        let run = geometry.locate(sector);
        let at = self.free.max(now) + self.moving(self.arm, &run);
        at - now + (run.angle + geometry.revolution - at % geometry.revolution) % geometry.revolution
    }

    /// What the disk did by itself while it had no command, up to now.
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

    /// The dirty segment that is reached first of those whose data are there.
    fn next_dirty(&self, now: Nanos) -> Option<usize> {
        let geometry = &self.drive.geometry;
        let dirty = |&at: &usize| self.buffer.segments[at].is_dirty();
        let cost = |&at: &usize| {
            let segment = &self.buffer.segments[at];
            let run = geometry.locate(segment.dirty_from);
            let start = self.free.max(segment.ready);
            let at = start + self.moving(self.arm, &run);
            (start >= now, at + (run.angle + geometry.revolution - at % geometry.revolution) % geometry.revolution)
        };
        (0..self.buffer.segments.len()).filter(dirty).min_by_key(cost)
    }

    /// Writes what is dirty of a segment, from a time on at which the mechanism is free.
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
        let overhead = drive.overheads.read_hit[usize::from(self.after_write)];
        let bus = sectors * drive.bus_sector;
        // What is being read ahead is in its segment as far as it has come.
        if let Some(time) = self.read_of_ahead(now, sector, end) {
            return time;
        }
        if let Some(at) = self.buffer.holding(sector, end, drive.hits_on_writes) {
            self.buffer.touch(at);
            self.ahead_again(at, end, now + overhead);
            return Breakdown { overhead, transfer: bus, ..Breakdown::default() };
        }
        let overhead = drive.overheads.read_miss[usize::from(self.after_write)];
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
            let segment = &mut self.buffer.segments[at];
            segment.start = if continued.is_some() { segment.start } else { sector };
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

    /// A read of sectors that are being read ahead, or have been, without a seek.
    fn read_of_ahead(&mut self, now: Nanos, sector: u64, end: u64) -> Option<Breakdown> {
        let ahead = self.ahead?;
        let segment = self.buffer.segments[ahead.segment];
        if self.free > now || sector < segment.start || sector > ahead.until {
            return None;
        }
        if self.walk(&ahead, Some(now), ahead.until).0 == ahead.until {
            self.stop_ahead(now);
            return None;
        }
        let drive = Arc::clone(&self.drive);
        let overhead = drive.overheads.read_hit[usize::from(self.after_write)];
        let bus = (end - sector) * drive.bus_sector;
        let mut done = now + overhead + bus;
        let mut next = Ahead { until: ahead.until.max(end), ..ahead };
        if end > ahead.from {
            let (_, at, arm) = self.walk(&ahead, None, end);
            done = done.max(at + drive.bus_sector);
            (next.from, next.at) = (end, at);
            self.arm = arm;
        }
        next.until = next.until.max(self.ahead_limit(sector, end, true));
        let segment = &mut self.buffer.segments[ahead.segment];
        segment.end = segment.end.max(next.from);
        segment.dirty_from = segment.end;
        segment.start = segment.start.max(next.until.saturating_sub(drive.segment_sectors)).min(sector);
        self.ahead = Some(next);
        self.buffer.touch(ahead.segment);
        let rotation = done - (now + overhead + bus);
        Some(Breakdown { overhead, transfer: bus, rotation, ..Breakdown::default() })
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
        let room = drive.segment_sectors;
        if self.write_cache == WriteCache::Off || sectors > room {
            return self.write_through(now, sector, sectors);
        }
        let overhead = drive.overheads.write_hit[usize::from(self.after_write)];
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
                && let Some(at) = self.buffer.appending(sector, sectors, begin, room)
            {
                let segment = &mut self.buffer.segments[at];
                (segment.start, segment.end) = (segment.start.max(end.saturating_sub(room)), end);
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
        let (end, overhead) = (sector + sectors, drive.overheads.write_miss[usize::from(self.after_write)]);
        let start = now + overhead;
        let begin = self.clean(start, sector, end).max(self.free);
        self.stop_ahead(start);
        // A sector must have come over the bus before it passes the head.
        let behind = drive.bus_sector.saturating_sub(drive.geometry.sector_time(&drive.geometry.locate(sector)));
        let pass = self.pass(begin, sector, sectors, start + drive.bus_sector + (sectors - 1) * behind, true);
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
        let overhead = self.drive.overheads.read_hit[usize::from(self.after_write)];
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

    /// Writes what is dirty of these sectors; when that is done.
    fn clean(&mut self, from: Nanos, sector: u64, end: u64) -> Nanos {
        let mut done = from;
        while let Some(at) = self.buffer.dirty_among(sector, end) {
            let start = done.max(self.free).max(self.buffer.segments[at].ready);
            done = self.write_back(at, start).end;
        }
        done
    }

    /// The arm's way to a track.
    fn moving(&self, arm: Arm, run: &Run) -> Nanos {
        let geometry = &self.drive.geometry;
        let switch = if arm.head == run.head { 0 } else { geometry.head_switch };
        geometry.seek(arm.cylinder.abs_diff(run.cylinder)).max(switch)
    }

    /// Reads or writes sectors of the medium from `begin` on. `ready`: a write does not begin before.
    fn pass(&mut self, begin: Nanos, sector: u64, sectors: u64, ready: Nanos, write: bool) -> Pass {
        let geometry = &self.drive.geometry;
        let mut pass = Pass { end: begin, ..Pass::default() };
        let (mut at, mut left) = (sector, sectors);
        while left > 0 {
            let run = geometry.locate(at);
            let mut moving = self.moving(self.arm, &run);
            let first = left == sectors;
            if first && (begin, sector) != self.streaming {
                moving = moving.max(geometry.resettle);
                moving += if write { geometry.write_settle } else { 0 };
            }
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

    /// Reading ahead, up to a sector or to a time: how far it comes, when, and where the arm is then.
    fn walk(&self, ahead: &Ahead, by: Option<Nanos>, until: u64) -> (u64, Nanos, Arm) {
        let geometry = &self.drive.geometry;
        let (mut sector, mut at, mut arm) = (ahead.from, ahead.at, self.arm);
        while sector < until {
            let run = geometry.locate(sector);
            let there = at + self.moving(arm, &run);
            let wait = (run.angle + geometry.revolution - there % geometry.revolution) % geometry.revolution;
            let begin = there + wait;
            let left = by.map_or(Nanos::MAX, |by| by.saturating_sub(begin));
            if left == 0 {
                break;
            }
            arm = Arm { cylinder: run.cylinder, head: run.head };
            let mut count = run.sectors.min(until - sector);
            let whole = run.time(count, geometry.revolution);
            if whole > left {
                let enough = (left * run.track_sectors / geometry.revolution + 1).min(count);
                count = if run.time(enough, geometry.revolution) > left { enough.saturating_sub(1) } else { enough };
                return (sector + count, begin + left, arm);
            }
            (sector, at) = (sector + count, begin + whole);
        }
        (sector, at, arm)
    }

    /// Ends reading ahead.
    fn stop_ahead(&mut self, now: Nanos) {
        let Some(ahead) = self.ahead.take() else { return };
        let (sector, _, arm) = self.walk(&ahead, Some(now), ahead.until);
        self.arm = arm;
        let segment = &mut self.buffer.segments[ahead.segment];
        segment.end = segment.end.max(sector);
        segment.dirty_from = segment.end;
        segment.start = segment.start.max(segment.end.saturating_sub(self.drive.segment_sectors));
    }

    fn begin_ahead(&mut self, segment: usize, from: u64, at: Nanos, sequential: bool) {
        let until = self.ahead_limit(self.buffer.segments[segment].start, from, sequential);
        self.ahead = (until > from).then_some(Ahead { segment, from, at, until });
    }

    /// After a hit: reads on, if the drive does so and little is left.
    fn ahead_again(&mut self, at: usize, end: u64, now: Nanos) {
        let segment = self.buffer.segments[at];
        let little = segment.end - end.min(segment.end) <= self.drive.most_ahead / 2;
        if self.drive.ahead_on_hit && self.ahead.is_none() && !segment.written && little {
            self.begin_ahead(at, segment.end, now.max(self.free), true);
        }
    }

    /// Up to which sector the drive reads ahead, in a segment that begins with one and when another is the last that was wanted.
    fn ahead_limit(&self, start: u64, end: u64, sequential: bool) -> u64 {
        let (drive, geometry) = (&self.drive, &self.drive.geometry);
        if end >= geometry.sectors {
            return end;
        }
        let track = |sector: u64| sector + geometry.locate(sector).sectors;
        let limit = match drive.read_ahead {
            ReadAhead::None => end,
            ReadAhead::Track => track(end - 1),
            ReadAhead::Cylinder => {
                let cylinder = geometry.locate(end - 1).cylinder;
                let mut limit = track(end - 1);
                while limit < geometry.sectors && geometry.locate(limit).cylinder == cylinder {
                    limit = track(limit);
                }
                limit
            }
            ReadAhead::Segment => end + drive.most_ahead,
            ReadAhead::NextTrack if sequential => track(track(end - 1).min(geometry.sectors - 1)),
            ReadAhead::NextTrack => end,
        };
        let room = if drive.over_requested { end + drive.most_ahead } else { start + drive.segment_sectors };
        limit.min(end + drive.most_ahead).min(room).min(geometry.sectors).max(end)
    }
}

#[cfg(test)]
#[path = "hdd_tests.rs"]
mod tests;
