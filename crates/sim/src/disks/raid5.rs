//! Arrays of disks: RAID 5 as Linux md does it, and RAID 0.
//!
//! RAID 5 is left-symmetric: in stripe `s` of `n` members the parity is on member `(n-1) - s mod n`, and data unit `i` on the i-th member after that one,
//! around. Writes are decided by rows of 4 KiB at an equal offset of each member. Of the two ways to new parity the one with fewer reads is taken
//! (drivers/md/raid5.c, `handle_stripe_dirtying5` of Linux 2.6.35). Read-modify-write reads the overwritten blocks and the parity; reconstruct-write reads
//! the data that are not overwritten. With equal numbers the row is reconstructed. Blocks in the stripe cache (256 rows, the least recently used is evicted
//! first) need no read; a block on the failed member counts as `2 n` reads.
//!
//! md delays rows that need reads, so that later writes may complete them. Here the plug is the batch: rows are decided when the caller lets time pass, so
//! writes of one moment meet. Commands of one moment for consecutive rows of a member become one, of 512 KiB at most.
//!
//! Reads go to the members as they are, past the stripe cache, one for each unit. A read from the failed member reads all others
//! and takes no time to compute. Left out: bitmaps, and the time of XOR.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use engine::{DeviceTraits, Nanos};

use super::rebuild::{Rebuild, WINDOW};
use super::stripe::{Round, Row, plan};
use super::{Breakdown, Class, Command, Disk, Done, Op, Statistics, Tag};

/// Bytes of a row on each member.
pub const ROW: u64 = 4096;
/// Number of rows of the stripe cache, md's default.
pub const STRIPE_CACHE: usize = 256;
/// Maximum bytes of a command that is made of consecutive rows.
const LONGEST: u64 = 512 << 10;

/// Layouts of an array's data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Level {
    /// Units in turn, no redundancy.
    Raid0,
    /// One unit of parity in each stripe.
    Raid5,
}

/// A command to the array.
#[derive(Clone, Copy, Debug)]
struct Request {
    tag: Tag,
    submitted: Nanos,
    /// Pieces that have not completed.
    left: usize,
    /// Time by cause of the latest piece.
    last: Breakdown,
}

/// Purposes of a command to a member.
#[derive(Clone, Debug)]
enum Part {
    Request(u64),
    Rows(Vec<u64>),
    /// The window of a rebuild at this offset, being read.
    Survivor(u64),
    /// The window of a rebuild at this offset, being written.
    Spare(u64),
}

/// A block that a request writes.
#[derive(Clone, Copy, Debug)]
struct Piece {
    request: u64,
    row: u64,
    member: usize,
    full: bool,
    class: Class,
}

/// A command to a member that has not been submitted.
type Out = (usize, bool, Class, u64);

/// The array.
#[derive(Clone, Debug)]
pub struct Array {
    level: Level,
    members: Vec<Disk>,
    unit: u64,
    failed: Option<usize>,
    rows: HashMap<u64, Row>,
    /// Maximum number of rows.
    stripe_cache: usize,
    /// Rows with nothing to do, by the time of their last use.
    idle: BTreeMap<u64, u64>,
    /// Rows to be decided.
    plugged: BTreeSet<u64>,
    plug: Option<Nanos>,
    /// Writes for which no row was free.
    blocked: VecDeque<Piece>,
    out: Vec<Out>,
    requests: HashMap<u64, Request>,
    parts: HashMap<Tag, Part>,
    sequence: u64,
    completed: VecDeque<Done>,
    rebuild: Option<Rebuild>,
}

impl Array {
    /// Creates an array of equal members, all in order. Fails unless the stripe unit is a multiple of 4 KiB and at most 1 GiB, and the count of members
    /// is allowed.
    pub fn new(level: Level, members: Vec<Disk>, unit: u64) -> Result<Array, String> {
        let least = if level == Level::Raid5 { 3 } else { 2 };
        if !(least..=64).contains(&members.len()) {
            return Err(format!("such an array has from {least} to 64 members, not {}", members.len()));
        }
        if unit == 0 || !unit.is_multiple_of(ROW) || unit > 1 << 30 {
            return Err(format!("the stripe unit must be a multiple of 4 KiB and at most 1 GiB, not {unit} bytes"));
        }
        Ok(Array {
            level,
            members,
            unit,
            failed: None,
            rows: HashMap::new(),
            stripe_cache: STRIPE_CACHE,
            idle: BTreeMap::new(),
            plugged: BTreeSet::new(),
            plug: None,
            blocked: VecDeque::new(),
            out: Vec::new(),
            requests: HashMap::new(),
            parts: HashMap::new(),
            sequence: 0,
            completed: VecDeque::new(),
            rebuild: None,
        })
    }

    /// Sets the size of the stripe cache in rows, at least one. Linux allows 17 to 32,768.
    pub fn with_stripe_cache(self, rows: usize) -> Array {
        Array { stripe_cache: rows.max(1), ..self }
    }

    /// Fails a member of a RAID 5; its commands in flight still complete. Returns false if one has failed before, or if there is no such member.
    pub fn fail(&mut self, member: usize) -> bool {
        let can = self.level == Level::Raid5 && self.failed.is_none() && member < self.members.len();
        if can {
            (self.failed, self.rebuild) = (Some(member), None);
            self.rows.values_mut().for_each(|row| row.cached &= !(1 << member));
        }
        can
    }

    /// Puts a disk in the place of the failed member and rebuilds the first `bytes` of it (all, if there are fewer), with md's bounds in KB/s for each disk.
    /// Returns false if none has failed.
    pub fn replace(&mut self, now: Nanos, disk: Disk, bytes: u64, speed_min: u64, speed_max: u64) -> bool {
        let Some(failed) = self.failed else { return false };
        let bytes = bytes.min(disk.capacity() / WINDOW * WINDOW);
        self.members[failed] = disk;
        self.rebuild = Some(Rebuild::new(now, bytes, self.members.len(), speed_min, speed_max));
        true
    }

    /// Returns true if a write of a client waits for a row of the stripe cache: its thread sleeps in `get_active_stripe`.
    pub fn is_full(&self) -> bool {
        self.blocked.iter().any(|piece| piece.class == Class::Foreground)
    }

    /// Returns the rebuild, if there was one.
    pub fn rebuild(&self) -> Option<&Rebuild> {
        self.rebuild.as_ref()
    }

    /// Returns the size of the array in bytes.
    pub fn capacity(&self) -> u64 {
        let member = self.members.iter().map(Disk::capacity).min().unwrap_or(0);
        (member / self.unit * self.unit).saturating_mul(self.data_members() as u64)
    }

    /// Returns the traits that a driver would report of its members.
    pub(super) fn member_traits(&self) -> DeviceTraits {
        self.members.first().map_or(DeviceTraits::SSD, Disk::traits)
    }

    pub(super) fn statistics(&self) -> Statistics {
        self.members.iter().map(Disk::statistics).fold(Statistics::default(), |sum, one| Statistics {
            reads: sum.reads + one.reads,
            writes: sum.writes + one.writes,
            read_bytes: sum.read_bytes + one.read_bytes,
            written_bytes: sum.written_bytes + one.written_bytes,
            busy: sum.busy + one.busy,
            seeking: sum.seeking + one.seeking,
        })
    }

    fn data_members(&self) -> usize {
        self.members.len() - usize::from(self.level == Level::Raid5)
    }

    fn parity(&self, stripe: u64) -> usize {
        let n = self.members.len() as u64;
        (n - 1 - stripe % n) as usize
    }

    /// Returns the member, and the offset on it, of an offset in the array.
    fn place(&self, offset: u64) -> (usize, u64) {
        let (chunk, within) = (offset / self.unit, offset % self.unit);
        let (stripe, nth) = (chunk / self.data_members() as u64, (chunk % self.data_members() as u64) as usize);
        let member = match self.level {
            Level::Raid0 => nth,
            Level::Raid5 => (self.parity(stripe) + 1 + nth) % self.members.len(),
        };
        (member, stripe * self.unit + within)
    }

    /// Returns the member whose block at this offset is missing: the failed one, beyond the rebuilt part.
    fn missing(&self, offset: u64) -> Option<usize> {
        let rebuilt = self.rebuild.as_ref().map_or(0, Rebuild::in_sync);
        self.failed.filter(|_| offset >= rebuilt)
    }

    fn id(&mut self) -> u64 {
        self.sequence += 1;
        self.sequence
    }

    pub(super) fn submit(&mut self, now: Nanos, tag: Tag, command: Command) {
        let id = self.id();
        self.requests.insert(id, Request { tag, submitted: now, left: 1, last: Breakdown::default() });
        match command.op {
            Op::Flush => {
                for member in 0..self.members.len() {
                    if self.failed != Some(member) || self.rebuild.is_some() {
                        self.direct(now, id, member, command);
                    }
                }
            }
            Op::Read | Op::Write => {
                let (mut offset, end) = (command.offset, command.offset.saturating_add(command.bytes));
                while offset < end {
                    let bytes = (self.unit - offset % self.unit).min(end - offset);
                    self.piece(now, id, offset, Command { bytes, ..command });
                    offset += bytes;
                }
            }
        }
        // The hold of `submit` itself on the request, for a request without pieces.
        self.piece_done(now, id, Breakdown::default());
    }

    /// Starts the part of a request that lies in one unit: by rows for a write to a RAID 5, else by a command to the member, or to all others if it is
    /// missing.
    fn piece(&mut self, now: Nanos, id: u64, offset: u64, command: Command) {
        let (member, place) = self.place(offset);
        let command = Command { offset: place, ..command };
        let missing = self.missing(place) == Some(member);
        if command.op == Op::Write && self.level == Level::Raid5 {
            let end = place + command.bytes;
            for row in place / ROW..end.div_ceil(ROW) {
                let full = place <= row * ROW && (row + 1) * ROW <= end;
                self.requests.entry(id).and_modify(|request| request.left += 1);
                self.admit(Piece { request: id, row, member, full, class: command.class });
            }
            self.plug.get_or_insert(now);
        } else if missing {
            for other in (0..self.members.len()).filter(|&other| other != member) {
                self.direct(now, id, other, command);
            }
        } else {
            self.direct(now, id, member, command);
        }
    }

    fn direct(&mut self, now: Nanos, id: u64, member: usize, command: Command) {
        self.requests.entry(id).and_modify(|request| request.left += 1);
        self.order(now, member, command, Part::Request(id));
    }

    fn order(&mut self, now: Nanos, member: usize, command: Command, part: Part) {
        if let (Some(rebuild), Part::Request(_) | Part::Rows(_)) = (&mut self.rebuild, &part) {
            rebuild.other_work(member, command.bytes);
        }
        let tag = self.id();
        self.parts.insert(tag, part);
        self.members[member].submit(now, tag, command);
    }

    /// Takes a block to write into its row, or lets it wait until a row is free.
    fn admit(&mut self, piece: Piece) -> bool {
        if !self.rows.contains_key(&piece.row) {
            if self.rows.len() >= self.stripe_cache {
                let Some((_, row)) = self.idle.pop_first() else {
                    self.blocked.push_back(piece);
                    return false;
                };
                self.rows.remove(&row);
            }
            self.rows.insert(piece.row, Row::empty());
        }
        let Some(row) = self.rows.get_mut(&piece.row) else { return false };
        self.idle.remove(&row.used);
        let bit = 1 << piece.member;
        if piece.full || row.full & bit != 0 {
            (row.full, row.partial) = (row.full | bit, row.partial & !bit);
        } else {
            row.partial |= bit;
        }
        row.waiting.push(piece.request);
        row.class = row.class.min(piece.class);
        if row.round.is_none() {
            self.plugged.insert(piece.row);
        }
        true
    }

    /// Decides the method of writing a row.
    fn decide(&mut self, number: u64) {
        let (parity, missing) = (self.parity(number * ROW / self.unit), self.missing(number * ROW));
        let members = self.members.len();
        let Some(row) = self.rows.get_mut(&number).filter(|row| row.round.is_none() && !row.waiting.is_empty()) else {
            return;
        };
        let (reads, writes) = plan(members, parity, missing, row);
        let class = row.class;
        row.round = Some(Round {
            requests: std::mem::take(&mut row.waiting),
            reads,
            writes,
            reading: reads != 0,
            left: if reads != 0 { reads.count_ones() } else { writes.count_ones() },
            spent: Breakdown::default(),
            last: Breakdown::default(),
            class,
        });
        (row.full, row.partial, row.class) = (0, 0, Class::Background);
        self.enqueue(number, if reads != 0 { reads } else { writes }, reads == 0, class);
    }

    fn enqueue(&mut self, row: u64, members: u64, write: bool, class: Class) {
        let of = |&member: &usize| members & (1 << member) != 0;
        self.out.extend((0..self.members.len()).filter(of).map(|member| (member, write, class, row)));
    }

    /// Submits the commands of rows to the members, merged for consecutive rows.
    fn issue(&mut self, now: Nanos) {
        let mut out = std::mem::take(&mut self.out);
        out.sort_unstable();
        let continues = |a: &Out, b: &Out| (a.0, a.1, a.2, a.3 + 1) == *b;
        for run in out.chunk_by(continues).flat_map(|run| run.chunks((LONGEST / ROW) as usize)) {
            let (member, write, class, first) = run[0];
            let op = if write { Op::Write } else { Op::Read };
            let command = Command { op, offset: first * ROW, bytes: run.len() as u64 * ROW, class };
            self.order(now, member, command, Part::Rows(run.iter().map(|out| out.3).collect()));
        }
    }

    /// Handles the completion of a read or write of a row on one member; after the last read the writes follow.
    fn row_step(&mut self, now: Nanos, number: u64, breakdown: Breakdown) {
        let Some(row) = self.rows.get_mut(&number) else { return };
        let Some(round) = &mut row.round else { return };
        (round.left, round.last) = (round.left - 1, breakdown);
        if round.left > 0 {
            return;
        }
        round.spent = Breakdown {
            queue: 0,
            seek: round.spent.seek + round.last.seek,
            rotation: round.spent.rotation + round.last.rotation,
            transfer: round.spent.transfer + round.last.transfer,
            overhead: round.spent.overhead + round.last.overhead,
        };
        if round.reading {
            row.cached |= round.reads;
            (round.reading, round.left) = (false, round.writes.count_ones());
            let (writes, class) = (round.writes, round.class);
            self.enqueue(number, writes, true, class);
            return;
        }
        row.cached |= round.writes;
        let (requests, spent) = (std::mem::take(&mut round.requests), round.spent);
        row.round = None;
        self.sequence += 1;
        row.used = self.sequence;
        if row.waiting.is_empty() {
            self.idle.insert(row.used, number);
        } else {
            self.plugged.insert(number);
        }
        for request in requests {
            self.piece_done(now, request, spent);
        }
        while let Some(piece) = self.blocked.pop_front() {
            if !self.admit(piece) {
                // It was put at the end of the queue: back to the front.
                self.blocked.rotate_right(1);
                break;
            }
        }
        if !self.plugged.is_empty() {
            self.plug.get_or_insert(now);
        }
    }

    fn piece_done(&mut self, now: Nanos, id: u64, breakdown: Breakdown) {
        let Some(request) = self.requests.get_mut(&id) else { return };
        request.left -= 1;
        request.last = breakdown;
        if request.left == 0 {
            let Request { tag, submitted, last, .. } = *request;
            self.requests.remove(&id);
            let served = last.seek + last.rotation + last.transfer + last.overhead;
            let queue = (now - submitted).saturating_sub(served);
            self.completed.push_back(Done { tag, at: now, breakdown: Breakdown { queue, ..last } });
        }
    }

    pub(super) fn next(&self) -> Option<Nanos> {
        match self.completed.front() {
            Some(done) => Some(done.at),
            None => self.next_event(),
        }
    }

    fn next_event(&self) -> Option<Nanos> {
        let members = self.members.iter().filter_map(Disk::next);
        members.chain(self.plug).chain(self.rebuild.as_ref().and_then(Rebuild::wake)).min()
    }

    pub(super) fn pop(&mut self, now: Nanos) -> Option<Done> {
        while self.completed.is_empty() {
            let at = self.next_event().filter(|&at| at <= now)?;
            self.step(at);
        }
        self.completed.pop_front()
    }

    /// Handles all events of one moment.
    fn step(&mut self, at: Nanos) {
        for member in 0..self.members.len() {
            while let Some(done) = self.members[member].pop(at) {
                match self.parts.remove(&done.tag) {
                    Some(Part::Request(id)) => self.piece_done(at, id, done.breakdown),
                    Some(Part::Rows(rows)) => {
                        rows.into_iter().for_each(|row| self.row_step(at, row, done.breakdown));
                    }
                    Some(Part::Survivor(window)) => self.survivor_read(at, window),
                    Some(Part::Spare(window)) => {
                        self.rebuild.iter_mut().for_each(|rebuild| rebuild.written(at, window));
                    }
                    None => {}
                }
            }
        }
        if self.plug.is_some_and(|plug| plug <= at) {
            self.plug = None;
            for row in std::mem::take(&mut self.plugged) {
                self.decide(row);
            }
        }
        self.issue(at);
        while let (Some(failed), Some(rebuild)) = (self.failed, &mut self.rebuild) {
            let Some((offset, bytes)) = rebuild.next_window(at) else {
                if rebuild.finished().is_some() {
                    self.failed = None;
                }
                break;
            };
            let command = Command { op: Op::Read, offset, bytes, class: Class::Foreground };
            for member in (0..self.members.len()).filter(|&member| member != failed) {
                self.order(at, member, command, Part::Survivor(offset));
            }
        }
    }

    fn survivor_read(&mut self, now: Nanos, window: u64) {
        let (Some(failed), Some(rebuild)) = (self.failed, &mut self.rebuild) else { return };
        if let Some(bytes) = rebuild.read(window) {
            let command = Command { op: Op::Write, offset: window, bytes, class: Class::Foreground };
            self.order(now, failed, command, Part::Spare(window));
        }
    }
}

#[cfg(test)]
#[path = "raid5_tests.rs"]
mod tests;
