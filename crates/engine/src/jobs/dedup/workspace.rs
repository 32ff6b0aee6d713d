//! Where a sweep keeps what it has found: pages of its partitions, written one behind the other into empty containers, and read again a
//! partition at a time (`partitions.rs`).
//!
//! It owns the containers that are lent to it, the pages on their way there, and what has come back. What must hold:
//!
//! - A container is given back when none of its own writes is on its way any more, whatever calls it in.
//! - What does not come back as it was written is not believed: the workspace has failed, and the pass goes on without it.

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

use super::partitions::{Name, Page, Partitions, Record, per_page, read_page};
use crate::canary::Canary;
use crate::contract::{IoError, IoOp, Outcome, PageId, Segment};
use crate::format::entry::Slot;
use crate::jobs::Job;
use crate::pool::Pool;
use crate::sizes::list_bytes;

/// Parts of the pass' work from here on are the workspace's.
pub(super) const PARTS: u32 = 1 << 16;
/// Pages of a write or a read, at most: 64 KiB.
const AT_ONCE: usize = 16;
/// Writes and reads in flight.
const WRITES: usize = 2;
const READS: usize = 16;
/// Of all pages in memory it has one part in so many on their way.
const PART_OF_PAGES: u32 = 4;
/// With more full pages in memory than this, nothing more is taken in until some are on their way.
const WAITING: usize = 32;

/// A read of pages of a partition, from this one on; and what has come, once it has.
struct Read {
    part: u32,
    first: Name,
    pages: u32,
    records: Option<Vec<Record>>,
}

/// What has been found of one sweep.
struct Sweep {
    number: u64,
    partitions: Partitions,
    /// Full pages, and where the next one goes.
    waiting: VecDeque<Page>,
    next: u32,
    /// Where the pages of each partition are, in their order.
    places: Vec<Vec<u32>>,
    /// The partition that is being read, the next of its pages, and records that have come. They are taken in in the order of slots, as
    /// from the summaries: so of each content the same slot stays, however often a range is begun.
    reading: Option<(usize, usize)>,
    reads: VecDeque<Read>,
    come: vec::IntoIter<Record>,
    has_failed: bool,
}

/// See above.
#[derive(Default)]
pub(super) struct Workspace {
    sweep: Option<Sweep>,
    containers: Vec<u32>,
    /// I/O in flight, and writes among it.
    in_flight: usize,
    writes: usize,
    serial: u32,
    /// Sweeps since the pool was opened.
    sweeps: u16,
    /// No page was free.
    is_stuck: bool,
    /// Pages written and read since the pool was opened.
    pub written: u64,
    pub read: u64,
}

impl Workspace {
    /// Begins a sweep, in this epoch. It has a number that no other one has had: the epoch grows before a pass goes on after an opening.
    pub fn begin(&mut self, epoch: u64, partitions: Partitions) {
        debug_assert!(self.is_free(), "what was there before is given back first");
        self.sweeps = self.sweeps.wrapping_add(1);
        let number = epoch << 16 | u64::from(self.sweeps);
        let places = vec![Vec::new(); partitions.count()];
        self.sweep = Some(Sweep {
            number,
            partitions,
            waiting: VecDeque::new(),
            next: 0,
            places,
            reading: None,
            reads: VecDeque::new(),
            come: Vec::new().into_iter(),
            has_failed: false,
        });
    }

    /// Whether a sweep has something here.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.sweep.is_some()
    }

    /// Whether it holds nothing: a sweep may begin.
    pub fn is_free(&self) -> bool {
        self.sweep.is_none() && self.containers.is_empty() && self.in_flight == 0
    }

    /// Whether something did not come back as it was written, or could not be written.
    pub fn has_failed(&self) -> bool {
        self.sweep.as_ref().is_some_and(|sweep| sweep.has_failed)
    }

    /// Whether there was no page for it.
    pub fn is_stuck(&self) -> bool {
        self.is_stuck
    }

    /// Blocks of containers that are lent to it.
    pub fn blocks(&self, pool: &Pool) -> u64 {
        self.containers.len() as u64 * u64::from(pool.store.geometry.slots_per_container)
    }

    /// The range of places that it has all of, from this one on: where that ends.
    pub fn end_from(&self, place: u64) -> Option<u64> {
        Some(self.sweep.as_ref()?.partitions.at(place)?.1)
    }

    #[inline]
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    pub fn memory(&self) -> u64 {
        let Some(sweep) = &self.sweep else { return 0 };
        let places: u64 = sweep.places.iter().map(list_bytes).sum();
        let pages = sweep.waiting.iter().map(Page::memory).sum::<u64>();
        let come: u64 = sweep.reads.iter().filter_map(|read| read.records.as_ref()).map(list_bytes).sum();
        sweep.partitions.memory() + list_bytes(&sweep.places) + places + pages + come
    }

    /// Whether it goes on only when an I/O has come back.
    #[inline]
    pub fn waits(&self) -> bool {
        match &self.sweep {
            None => !self.is_free(),
            Some(sweep) if sweep.has_failed => false,
            Some(sweep) if sweep.reading.is_some() => {
                sweep.come.len() == 0 && sweep.reads.front().is_some_and(|read| read.records.is_none())
            }
            Some(sweep) => {
                let is_busy = self.writes >= WRITES || self.writes > 0 && sweep.waiting.is_empty();
                is_busy && (sweep.waiting.len() > WAITING || sweep.partitions.is_flushed())
            }
        }
    }

    // ---- what goes in ----

    /// Takes a slot in use in.
    pub fn push(&mut self, record: &Record) {
        let Some(Sweep { partitions, waiting, .. }) = &mut self.sweep else { return };
        partitions.push(record, |page| waiting.push_back(page));
    }

    /// Writes full pages, some at a time. Whether there is room for more.
    pub fn write(&mut self, pool: &mut Pool) -> bool {
        let at_once = AT_ONCE.min((pool.limits.pages / PART_OF_PAGES) as usize / WRITES).max(1);
        self.write_some(pool, at_once, at_once);
        self.sweep.as_ref().is_some_and(|sweep| !sweep.has_failed && sweep.waiting.len() <= WAITING)
    }

    /// Writes what is left. Whether all of it is there.
    pub fn finish(&mut self, pool: &mut Pool) -> bool {
        while self.write(pool) {
            let Some(sweep) = &mut self.sweep else { return false };
            match sweep.partitions.flush() {
                Some(page) => sweep.waiting.push_back(page),
                None => break,
            }
        }
        if self.sweep.as_ref().is_some_and(|sweep| sweep.partitions.is_flushed()) {
            self.write_some(pool, 1, AT_ONCE);
        }
        let is_done = |sweep: &Sweep| sweep.partitions.is_flushed() && sweep.waiting.is_empty() && !sweep.has_failed;
        self.sweep.as_ref().is_some_and(is_done) && self.writes == 0
    }

    /// As long as so many pages are full, writes as many together as this.
    fn write_some(&mut self, pool: &mut Pool, least: usize, most: usize) {
        self.is_stuck = false;
        let per_container = pool.store.geometry.slots_per_container;
        let mut batch = Vec::new();
        while let Some(sweep) = &mut self.sweep
            && sweep.waiting.len() >= least
            && self.writes < WRITES
            && !self.is_stuck
        {
            let first = sweep.next;
            if first as usize == self.containers.len() * per_container as usize {
                let Some(container) = pool.space.lend_workspace() else {
                    sweep.has_failed = true;
                    return;
                };
                self.containers.push(container);
            }
            // Behind the end of a container comes one that may be elsewhere.
            let room = (per_container - first % per_container) as usize;
            batch.clear();
            while batch.len() < most.min(room)
                && let Some(page) = sweep.waiting.front()
            {
                let Some(id) = pool.store.pages.allocate() else {
                    self.is_stuck = batch.is_empty();
                    break;
                };
                let places = &mut sweep.places[page.partition()];
                let number = (sweep.number, places.len() as u32);
                page.write(pool.store.page_seed, number, pool.store.pages.bytes_mut(id));
                places.push(sweep.next);
                sweep.next += 1;
                sweep.waiting.pop_front();
                batch.push(id);
            }
            if !batch.is_empty() {
                self.writes += 1;
                self.written += batch.len() as u64;
                self.begin_io(pool, IoOp::Write, (first, batch.len() as u32), &batch);
            }
        }
    }

    /// Begins an I/O of pages that follow each other: the part of the work that it is.
    fn begin_io(&mut self, pool: &mut Pool, op: IoOp, (first, pages): (u32, u32), segments: &[PageId]) -> u32 {
        let block = pool.store.geometry.block();
        let offset = pool.store.geometry.slot_block(self.slot(pool, first).0) * block;
        self.serial = self.serial.wrapping_add(1) % PARTS;
        let part = PARTS + self.serial;
        let segments = segments.iter().map(|&page| Segment::Page(page));
        self.in_flight += 1;
        pool.store.io.begin(op, offset, u64::from(pages) * block, segments, Job::Dedup.io(part as usize));
        part
    }

    fn slot(&self, pool: &Pool, place: u32) -> Slot {
        let per_container = pool.store.geometry.slots_per_container;
        let slots = pool.space.slots_of(self.containers[(place / per_container) as usize]);
        Slot(slots.start + u64::from(place % per_container))
    }

    // ---- what comes back ----

    /// A range from this place on is wanted: all that its partition has.
    pub fn read_from(&mut self, place: u64) {
        let Some(sweep) = &mut self.sweep else { return };
        sweep.reads.clear();
        sweep.come = Vec::new().into_iter();
        sweep.reading = sweep.partitions.at(place).map(|(partition, _)| (partition, 0));
    }

    /// A record of it, if the next one has come.
    pub fn next(&mut self) -> Option<Record> {
        let sweep = self.sweep.as_mut()?;
        while sweep.come.len() == 0 && sweep.reads.front().is_some_and(|read| read.records.is_some()) {
            let read = sweep.reads.pop_front()?;
            sweep.come = read.records?.into_iter();
        }
        sweep.come.next()
    }

    /// Asks for more of it. Whether all of it has been taken in.
    pub fn read(&mut self, pool: &mut Pool) -> bool {
        let per_container = pool.store.geometry.slots_per_container;
        while let Some(sweep) = &self.sweep
            && let Some((partition, next)) = sweep.reading
            && let places = &sweep.places[partition]
            && next < places.len()
            && sweep.reads.len() < READS
        {
            let first = places[next];
            let follows = |&(at, &place): &(u32, &u32)| {
                at < AT_ONCE as u32 && place == first + at && place / per_container == first / per_container
            };
            let pages = (0..).zip(&places[next..]).take_while(follows).count() as u32;
            let name = Name { sweep: sweep.number, partition: partition as u32, number: next as u32 };
            let part = self.begin_io(pool, IoOp::ReadPages, (first, pages), &[]);
            self.read += u64::from(pages);
            let Some(sweep) = &mut self.sweep else { break };
            sweep.reading = Some((partition, next + pages as usize));
            sweep.reads.push_back(Read { part, first: name, pages, records: None });
        }
        let Some(sweep) = &self.sweep else { return true };
        let is_asked_for = sweep.reading.is_none_or(|(partition, next)| next >= sweep.places[partition].len());
        is_asked_for && sweep.reads.is_empty() && sweep.come.len() == 0
    }

    /// An I/O is done.
    pub fn done(&mut self, pool: &mut Pool, part: u32, segments: &[Segment], result: Result<Outcome<'_>, IoError>) {
        self.in_flight -= 1;
        let reads = |sweep: &mut Sweep| sweep.reads.iter().position(|read| read.part == part && read.records.is_none());
        let wanted = self.sweep.as_mut().and_then(reads);
        match (&mut self.sweep, wanted) {
            _ if !segments.is_empty() => self.written_to(pool, segments, result.is_ok()),
            (Some(sweep), Some(at)) => {
                let read = &mut sweep.reads[at];
                let records = read.take_in(pool.store.page_seed, pool.store.geometry.block() as usize, result);
                sweep.has_failed |= records.is_none();
                read.records = Some(records.unwrap_or_default());
            }
            // Nobody waits for it any more.
            (..) => {}
        }
        if self.sweep.is_none() {
            self.give_back(pool);
        }
        pool.needs_pump = true;
    }

    fn written_to(&mut self, pool: &mut Pool, segments: &[Segment], is_good: bool) {
        self.writes -= 1;
        for &segment in segments {
            if let Segment::Page(page) = segment {
                pool.store.pages.release(page);
            }
        }
        if let Some(sweep) = &mut self.sweep {
            sweep.has_failed |= !is_good;
        }
    }

    /// Gives all of it up.
    pub fn give_up(&mut self, pool: &mut Pool) {
        self.is_stuck = false;
        self.sweep = None;
        self.give_back(pool);
    }

    /// What is on its way comes to its end first.
    fn give_back(&mut self, pool: &mut Pool) {
        if self.containers.is_empty() || self.writes > 0 && !pool.canary(Canary::WorkspaceInUse) {
            return;
        }
        for container in core::mem::take(&mut self.containers) {
            pool.space.end_workspace(container);
        }
        pool.needs_pump = true;
    }
}

impl Read {
    /// The records that have come; `None` if they are not those that were written.
    fn take_in(&self, seed: u64, block: usize, result: Result<Outcome<'_>, IoError>) -> Option<Vec<Record>> {
        let Ok(Outcome::Bytes(bytes)) = result else { return None };
        let mut records = Vec::with_capacity(self.pages as usize * per_page(block));
        for number in 0..self.pages {
            let page = bytes.get(number as usize * block..)?.get(..block)?;
            records.extend(read_page(seed, Name { number: self.first.number + number, ..self.first }, page)?);
        }
        Some(records)
    }
}
