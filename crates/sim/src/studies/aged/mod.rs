//! A study of ageing: a volume is overwritten at random by day, and read from end to end by night.
//!
//! The pool is synthetic (`timed/pool.rs`), its volume in order. Each day a share of the blocks is overwritten one by one, four of five writes in a fifth of
//! the volume. Then the pool is idle. Then a reader reads all of it in order, and the pool is idle again. The speed of the first reader, before any
//! overwrite, is the reference for all others. Times are those of a model of a disk: the processor takes none.
//!
//! On request, a part of the volume is overwritten in order at the very first and at the very last: this compares the speed of sequential writes over an aged
//! pool with that over a new one.

pub mod command;

use std::collections::HashMap;
use std::rc::Rc;

use engine::{Command, DefragSetting, DeviceTraits, Limits, Nanos, Operation, PoolChange, Submit};

use crate::content::Cells;
use crate::disks::Disk;
use crate::random::Random;
use crate::timed::machine::{Machine, Step, Store};
use crate::timed::pool::{Pool, VOLUME};
use crate::{Checked, Violation, violated};

/// Number of blocks of a request of the reader; `READERS` is the number of its requests in progress.
const READ_BLOCKS: u64 = 32;
const READERS: usize = 4;
/// Number of writes in progress.
const WRITERS: usize = 32;
const SECOND: Nanos = 1_000_000_000;
/// Percentage of skewed writes, and the percentage of the volume that they go to.
const SKEW: (u64, u64) = (80, 20);
/// First number of new contents.
const FIRST_NUMBER: u32 = 1 << 28;

/// Pool that ages, and its load.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// Bytes of the volume.
    pub data: u64,
    /// Bytes of the pool beyond those of the volume.
    pub space: u64,
    /// Bytes of memory of the engine.
    pub memory: u64,
    /// Number of days.
    pub days: u64,
    /// Blocks overwritten each day, of a thousand.
    pub permille: u64,
    /// Setting of defragmentation.
    pub defrag: DefragSetting,
    /// Blocks that are overwritten in order at first and at last, of a thousand.
    pub in_order: u64,
    /// True if each block is written as often as any other; otherwise four of five writes go to a fifth of the volume.
    pub is_uniform: bool,
    /// True if the volume has no reader.
    pub is_unread: bool,
    /// Number of reads of the volume each day, without idle time in between.
    pub passes: u64,
    /// Seconds of each idle period.
    pub rest: u64,
    /// Traits of the disk that the engine is told.
    pub device: DeviceTraits,
}

/// A day.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Day {
    /// Bytes a second that the reader got the last time.
    pub read: u64,
    /// Writes a second of the day.
    pub writes: u64,
    /// Blocks moved up to the end of the day, in all.
    pub moved: u64,
    /// Number of blocks that the client has written from the beginning of the study to the end of the day.
    pub written: u64,
    /// Regions that are left to be put in order at the end of the day.
    pub left: Left,
}

/// Work of defragmentation and garbage collection that is left after a rest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Left {
    /// Regions that wait for their turn or for an empty container.
    pub regions: u64,
    /// Regions given up so far.
    pub given_up: u64,
    /// Empty containers.
    pub empty_containers: u64,
    /// Blocks that may still be moved.
    pub allowance: u64,
}

/// Results of the ageing.
#[derive(Clone, PartialEq, Debug)]
pub struct Month {
    /// Bytes a second that the first reader got.
    pub fresh: u64,
    /// Bytes a second that were written in order over the new pool, and at last; 0: not measured.
    pub in_order: [u64; 2],
    /// The days.
    pub days: Vec<Day>,
}

struct Life {
    machine: Machine,
    random: Random,
    blocks: u64,
    written: HashMap<u64, Cells>,
    next_number: u32,
    rest: Nanos,
}

/// Lets a pool on a disk age; `each` sees every day when it is over.
pub fn measure(setup: Setup, disk: Disk, mut each: impl FnMut(&Month)) -> Checked<Month> {
    let pool = Pool::with_owners(setup.data, setup.space).map_err(|why| Violation(format!("no such pool: {why}")))?;
    let limits = Limits::for_memory(setup.memory, &pool.parameters.geometry)
        .map_err(|needed| Violation(format!("the engine needs {needed} bytes of memory for such a pool")))?;
    let limits = Limits { device: setup.device, ..limits };
    let blocks = pool.mapped;
    let mut machine = Machine::on(disk, false, Store::new(Rc::new(pool)), limits, 0);
    machine.opened()?;
    let change = PoolChange { defrag: Some(setup.defrag), replicas: Some(Some(0)), ..PoolChange::default() };
    machine.command(Command::SetPool(change))?;
    let mut life = Life {
        machine,
        random: Random::new(1),
        blocks,
        written: HashMap::new(),
        next_number: FIRST_NUMBER,
        rest: setup.rest * SECOND,
    };
    life.rest()?;
    let in_order = blocks * setup.in_order / 1000;
    let new_writes = life.write_in_order(in_order)?;
    life.rest()?;
    let fresh = life.read_all()?;
    life.rest()?;
    let mut month = Month { fresh, in_order: [new_writes, 0], days: Vec::new() };
    for _ in 0..setup.days {
        let writes = life.overwrite(blocks * setup.permille / 1000, setup.is_uniform)?;
        life.rest()?;
        let mut read = 0;
        for _ in 0..if setup.is_unread { 0 } else { setup.passes } {
            read = life.read_all()?;
        }
        life.rest()?;
        let status = life.machine.engine.status();
        let moved = status.defrag.moved_blocks + status.gc.moved_blocks;
        let left = Left {
            regions: status.defrag.noted_regions + status.defrag.waiting_regions,
            given_up: status.defrag.given_up_regions,
            empty_containers: status.gc.empty_containers,
            allowance: status.defrag.allowance_blocks,
        };
        month.days.push(Day { read, writes, moved, written: u64::from(life.next_number - FIRST_NUMBER), left });
        each(&month);
    }
    month.in_order[1] = life.write_in_order(in_order)?;
    Ok(month)
}

impl Life {
    /// Keeps the pool without requests for a while.
    fn rest(&mut self) -> Checked {
        let morning = self.machine.now + self.rest;
        while !matches!(self.machine.step(morning)?, Step::Quiet) {}
        Ok(())
    }

    fn request<'a>(token: u64, first: u64, blocks: u64, operation: Operation<'a>) -> Submit<'a> {
        Submit { token, volume: VOLUME, offset: first * 4096, length: blocks * 4096, fua: false, operation }
    }

    /// Reads the volume in order, fails if a block is not as it was written, and returns the rate in bytes a second of virtual time.
    fn read_all(&mut self) -> Checked<u64> {
        let begin = self.machine.now;
        let (mut next, mut in_progress) = (0, 0);
        while next < self.blocks || in_progress > 0 {
            while next < self.blocks && in_progress < READERS && self.machine.engine.can_submit() {
                let count = READ_BLOCKS.min(self.blocks - next);
                self.machine.submit(Life::request(next, next, count, Operation::Read { object: 0 }));
                (next, in_progress) = (next + count, in_progress + 1);
            }
            match self.machine.step(Nanos::MAX)? {
                Step::Reply(first, Ok(blocks)) => {
                    in_progress -= 1;
                    for (lba, cells) in (first..).zip(&blocks) {
                        let expected = self.written.get(&lba).copied();
                        if *cells != expected.unwrap_or_else(|| self.machine.store.pool.cells(lba)) {
                            return violated(format!("block {lba} has {cells:?}"));
                        }
                    }
                }
                Step::Reply(first, Err(error)) => return violated(format!("reading block {first}: {error:?}")),
                Step::Quiet => return violated("a read does not end"),
                _ => {}
            }
        }
        let nanos = (self.machine.now - begin).max(1);
        Ok((u128::from(self.blocks * 4096) * 1_000_000_000 / u128::from(nanos)) as u64)
    }

    /// Overwrites `count` blocks in order, from the first on, and flushes. Returns bytes a second.
    fn write_in_order(&mut self, count: u64) -> Checked<u64> {
        let begin = self.machine.now;
        let (mut next, mut in_progress, mut is_flushed) = (0, 0, false);
        while next < count || in_progress > 0 {
            while next < count && in_progress < READERS && self.machine.engine.can_submit() {
                let blocks = READ_BLOCKS.min(count - next);
                let number = |block| [self.next_number + block as u32; crate::content::CELLS];
                let contents: Vec<Cells> = (0..blocks).map(number).collect();
                let request = Life::request(next, next, blocks, Operation::Write(&[]));
                if !self.machine.write(next, request, &contents) {
                    break;
                }
                self.written.extend((next..).zip(contents));
                self.next_number += blocks as u32;
                (next, in_progress) = (next + blocks, in_progress + 1);
            }
            match self.machine.step(Nanos::MAX)? {
                Step::Reply(_, Ok(_)) => in_progress -= 1,
                Step::Reply(lba, Err(error)) => return violated(format!("writing block {lba}: {error:?}")),
                Step::Quiet => return violated("a write does not end"),
                _ => {}
            }
            if next == count && in_progress == 0 && !is_flushed {
                is_flushed = true;
                in_progress = 1;
                self.machine.submit(Life::request(count, 0, 0, Operation::Flush));
            }
        }
        let nanos = (self.machine.now - begin).max(1);
        Ok((u128::from(count * 4096) * 1_000_000_000 / u128::from(nanos)) as u64)
    }

    /// Overwrites `count` blocks one by one. Returns writes a second.
    fn overwrite(&mut self, count: u64, is_uniform: bool) -> Checked<u64> {
        let begin = self.machine.now;
        let (mut left, mut in_progress) = (count, Vec::new());
        while left > 0 || !in_progress.is_empty() {
            while left > 0 && in_progress.len() < WRITERS && self.machine.engine.can_submit() {
                let hot = self.blocks * SKEW.1 / 100;
                let is_hot = self.random.below(100) < SKEW.0;
                let lba = match is_hot {
                    _ if is_uniform => self.random.below(self.blocks),
                    true => self.random.below(hot),
                    false => self.random.between(hot, self.blocks - 1),
                };
                if in_progress.contains(&lba) {
                    continue;
                }
                let cells = [self.next_number; crate::content::CELLS];
                let request = Life::request(lba, lba, 1, Operation::Write(&[]));
                if !self.machine.write(lba, request, &[cells]) {
                    break;
                }
                self.written.insert(lba, cells);
                (self.next_number, left) = (self.next_number + 1, left - 1);
                in_progress.push(lba);
            }
            match self.machine.step(Nanos::MAX)? {
                Step::Reply(lba, Ok(_)) => in_progress.retain(|&other| other != lba),
                Step::Reply(lba, Err(error)) => return violated(format!("writing block {lba}: {error:?}")),
                Step::Quiet => return violated("a write does not end"),
                _ => {}
            }
        }
        let nanos = (self.machine.now - begin).max(1);
        Ok((u128::from(count) * 1_000_000_000 / u128::from(nanos)) as u64)
    }
}

impl Month {
    /// Returns the speed of writes in order at last, in thousandths of that over a new pool, if both were measured.
    pub fn in_order_permille(&self) -> Option<u64> {
        let [new, aged] = self.in_order;
        (new > 0 && aged > 0).then(|| aged * 1000 / new)
    }

    /// Returns the speed of a day's reader, in thousandths of the first one's.
    pub fn permille(&self, day: &Day) -> u64 {
        day.read * 1000 / self.fresh.max(1)
    }
}
