//! Spill space of an external partitioning: pages of its partitions, appended to empty containers and read back one partition at a time
//! (`partitions.rs`). First come the partitions of digests. Those of duplicate slots follow, partitioned by block.
//!
//! It owns the containers that it has taken, the pages being written, and the records read back. What must hold:
//!
//! - A container is given back only when none of its own writes is in flight, whatever reclaims it.
//! - A page that does not come back as it was written is not trusted: the spill space has failed, and the pass continues without it.

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

use super::partitions::{Name, Page, Partitions, Record, Stored, read_page};
use super::range::{DuplicateSlot, place};
use crate::api::{IoError, IoOp, Outcome, PageId, Segment};
use crate::format::entry::{Key, Slot};
use crate::jobs::job::JobId;
use crate::mutant::Mutant;
use crate::pool::Pool;
use crate::sizes::list_bytes;

/// Number from which on I/O numbers of the pass belong to the spill space.
pub(super) const PARTS: u32 = 1 << 16;
/// Largest number of pages in a write or a read: 64 KiB.
const AT_ONCE: usize = 16;
/// Largest number of writes in flight.
const WRITES: usize = 2;
/// Largest number of reads in flight.
const READS: usize = 16;
/// Divisor of all pages in memory: at most one in N is in flight to the spill space.
const PART_OF_PAGES: u32 = 4;
/// Number of full pages in memory above which no more records are taken in until some pages are being written.
const WAITING: usize = 32;

/// A read of consecutive pages of a partition, from `first` on, with the records once they have come.
struct PartitionRead {
    part: u32,
    first: Name,
    pages: u32,
    records: Option<Vec<u8>>,
}

/// Duplicate slots, partitioned by block.
struct Spares {
    partitions: Partitions,
    /// First block of each volume, and the place of this block in the order of all blocks.
    volumes: Vec<(Key, u64)>,
    /// Number of duplicate slots taken in.
    count: u64,
    /// Place in the spill space of the first page with duplicate slots, once there is one.
    first: Option<u32>,
}

impl Spares {
    fn new(pool: &Pool, count: usize, base: usize) -> Spares {
        let block = pool.metadata.geometry().block();
        let mut sizes: Vec<(Key, u64)> =
            pool.durable.volumes().iter().map(|volume| (Key::new(volume.id, 0), volume.size.div_ceil(block))).collect();
        sizes.sort_unstable();
        let mut blocks = 0;
        for (_, size) in &mut sizes {
            blocks += core::mem::replace(size, blocks);
        }
        let partitions = Partitions::of_blocks(blocks, count, block as usize, base as u32);
        Spares { partitions, volumes: sizes, count: 0, first: None }
    }

    /// Returns the place of a block in the order of all blocks. Blocks of a volume that is newer than the list come behind the volume before it.
    fn place(&self, owner: Key) -> u64 {
        let next = self.volumes.partition_point(|&(first, _)| first <= owner);
        let place = next.checked_sub(1).map_or(0, |at| self.volumes[at].1 + (owner.0 - self.volumes[at].0.0));
        place.min(self.volumes.get(next).map_or(u64::MAX, |&(_, place)| place)).min(self.partitions.last())
    }
}

/// Records, duplicate slots and page places of one external partitioning.
struct Partitioning {
    number: u64,
    partitions: Partitions,
    duplicates: Spares,
    /// Full pages that wait to be written.
    waiting: VecDeque<Page>,
    /// Place in the spill space of the next page to be written.
    next: u32,
    /// Places in the spill space of the pages of each partition, in their order.
    places: Vec<Vec<u32>>,
    /// Partition that is being read, and the next of its pages. Records are taken in in slot order, as from the summaries. So each content keeps the
    /// same canonical slot, however often a range is begun.
    reading: Option<(usize, usize)>,
    reads: VecDeque<PartitionRead>,
    /// Bytes that have been read, and the number of those taken in.
    come: (Vec<u8>, usize),
    has_failed: bool,
}

impl Partitioning {
    fn has_come(&self) -> bool {
        self.come.1 < self.come.0.len()
    }

    /// Returns the index in `places` of the partition with this number: those of blocks come behind those of digests.
    fn at(&self, number: usize) -> usize {
        let digests = self.partitions.count();
        number.checked_sub(self.duplicates.partitions.base()).map_or(number, |of_blocks| digests + of_blocks)
    }

    /// Returns the number of the partition whose pages are listed at this index of `places`.
    fn number(&self, at: usize) -> u32 {
        let of_blocks = at.checked_sub(self.partitions.count());
        of_blocks.map_or(at, |of_blocks| self.duplicates.partitions.base() + of_blocks) as u32
    }
}

/// The spill space of a pass: the partitioning in progress, and the containers taken for it.
#[derive(Default)]
pub(super) struct SpillSpace {
    partitioning: Option<Partitioning>,
    containers: Vec<u32>,
    /// Number of I/Os in flight, writes included.
    in_flight: usize,
    /// Number of writes in flight.
    writes: usize,
    serial: u32,
    /// External partitionings since the pool was opened.
    partitionings: u16,
    /// Set if no page was free for a write.
    is_stuck: bool,
    /// Pages written since the pool was opened.
    pub(super) written: u64,
    /// Pages read since the pool was opened.
    pub(super) read: u64,
}

impl SpillSpace {
    /// Begins an external partitioning, with N partitions of blocks. Its number is unique: the epoch grows before a pass resumes after the pool is
    /// opened.
    pub fn begin(&mut self, pool: &Pool, partitions: Partitions, of_blocks: usize) {
        assert!(self.is_free(), "what was there before is given back first");
        self.partitionings = self.partitionings.wrapping_add(1);
        let number = pool.metadata.epoch() << 16 | u64::from(self.partitionings);
        let duplicates = Spares::new(pool, of_blocks, partitions.count());
        let places = vec![Vec::new(); partitions.count() + duplicates.partitions.count()];
        self.partitioning = Some(Partitioning {
            number,
            partitions,
            duplicates,
            waiting: VecDeque::new(),
            next: 0,
            places,
            reading: None,
            reads: VecDeque::new(),
            come: (Vec::new(), 0),
            has_failed: false,
        });
    }

    /// Returns true while there is an external partitioning.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.partitioning.is_some()
    }

    /// Returns true if there is no external partitioning, no container taken and no I/O in flight: an external partitioning may begin.
    pub fn is_free(&self) -> bool {
        self.partitioning.is_none() && self.containers.is_empty() && self.in_flight == 0
    }

    /// Returns true if a page did not come back as it was written, or could not be written.
    pub fn has_failed(&self) -> bool {
        self.partitioning.as_ref().is_some_and(|partitioning| partitioning.has_failed)
    }

    /// Returns true if no page was free for the last write.
    pub fn is_stuck(&self) -> bool {
        self.is_stuck
    }

    /// Returns the number of blocks in the containers that the spill space has taken.
    pub fn blocks(&self, pool: &Pool) -> u64 {
        self.containers.len() as u64 * u64::from(pool.metadata.geometry().slots_per_container)
    }

    /// Returns the end of the range of places from `place` on that the spill space covers completely; `None` if no partition has the place.
    pub fn end_from(&self, place: u64) -> Option<u64> {
        Some(self.partitioning.as_ref()?.partitions.at(place)?.1)
    }

    #[inline]
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    pub fn memory(&self) -> u64 {
        let Some(partitioning) = &self.partitioning else { return 0 };
        let places: u64 = partitioning.places.iter().map(list_bytes).sum();
        let pages = partitioning.waiting.iter().map(Page::memory).sum::<u64>();
        let come: u64 = partitioning.reads.iter().filter_map(|read| read.records.as_ref()).map(list_bytes).sum();
        let partitions = partitioning.partitions.memory() + partitioning.duplicates.partitions.memory();
        let taken_in = list_bytes(&partitioning.come.0) + list_bytes(&partitioning.duplicates.volumes);
        partitions + list_bytes(&partitioning.places) + places + pages + come + taken_in
    }

    /// Returns true if the spill space can continue only when an I/O has come back.
    #[inline]
    pub fn waits(&self) -> bool {
        match &self.partitioning {
            None => !self.is_free(),
            Some(partitioning) if partitioning.has_failed => false,
            Some(partitioning) if partitioning.waiting.len() > WAITING && self.writes >= WRITES => true,
            Some(partitioning) if partitioning.reading.is_some() => {
                !partitioning.has_come() && partitioning.reads.front().is_some_and(|read| read.records.is_none())
            }
            Some(partitioning) => {
                let is_busy = self.writes >= WRITES || self.writes > 0 && partitioning.waiting.is_empty();
                is_busy && (partitioning.waiting.len() > WAITING || partitioning.partitions.is_flushed())
            }
        }
    }

    // ---- writing ----

    /// Takes in a slot in use, into the partition of its digest.
    pub fn push(&mut self, record: &Record) {
        let Some(Partitioning { partitions, waiting, .. }) = &mut self.partitioning else { return };
        partitions.push(place(record.found.digest), record, |page| waiting.push_back(page));
    }

    /// Takes in a duplicate slot, into the partition of its block.
    pub fn push_duplicate(&mut self, duplicate: &DuplicateSlot) {
        let Some(Partitioning { duplicates, waiting, .. }) = &mut self.partitioning else { return };
        let place = duplicates.place(duplicate.found.owner);
        duplicates.partitions.push(place, duplicate, |page| waiting.push_back(page));
        duplicates.count += 1;
    }

    /// Returns the number of duplicate slots taken in.
    pub fn duplicates(&self) -> u64 {
        self.partitioning.as_ref().map_or(0, |partitioning| partitioning.duplicates.count)
    }

    /// Returns true if there is space for all duplicate slots that the partition at `first` may yield, with N containers left empty.
    pub fn has_space_from(&self, pool: &Pool, first: u64, left: u32) -> bool {
        let Some(partitioning) = &self.partitioning else { return false };
        let block = pool.metadata.geometry().block() as usize;
        let pages = partitioning.partitions.at(first).map_or(0, |(partition, _)| partitioning.places[partition].len());
        let duplicates = partitioning.duplicates.count + (pages * Record::per_page(block)) as u64;
        let end = u64::from(partitioning.duplicates.first.unwrap_or(partitioning.next))
            + duplicates.div_ceil(DuplicateSlot::per_page(block) as u64);
        let containers = self.containers.len() as u64 + u64::from(pool.durable.space().lendable().saturating_sub(left));
        end <= containers * u64::from(pool.metadata.geometry().slots_per_container)
    }

    /// Writes full pages, a batch at a time. Returns true if there is space for more.
    pub fn write(&mut self, pool: &mut Pool) -> bool {
        let at_once = AT_ONCE.min((pool.limits.pages / PART_OF_PAGES) as usize / WRITES).max(1);
        self.write_some(pool, at_once, at_once);
        self.partitioning
            .as_ref()
            .is_some_and(|partitioning| !partitioning.has_failed && partitioning.waiting.len() <= WAITING)
    }

    /// Writes the rest; of duplicate slots only full pages. Returns true if all of it is written.
    pub fn finish(&mut self, pool: &mut Pool) -> bool {
        while self.write(pool) {
            let Some(partitioning) = &mut self.partitioning else { return false };
            match partitioning.partitions.flush() {
                Some(page) => partitioning.waiting.push_back(page),
                None => break,
            }
        }
        if self.partitioning.as_ref().is_some_and(|partitioning| partitioning.partitions.is_flushed()) {
            self.write_some(pool, 1, AT_ONCE);
        }
        let is_done = |partitioning: &Partitioning| {
            partitioning.partitions.is_flushed() && partitioning.waiting.is_empty() && !partitioning.has_failed
        };
        self.partitioning.as_ref().is_some_and(is_done) && self.writes == 0
    }

    /// Writes batches of at most `most` pages while at least `least` pages are full.
    fn write_some(&mut self, pool: &mut Pool, least: usize, most: usize) {
        self.is_stuck = false;
        let per_container = pool.metadata.geometry().slots_per_container;
        let mut batch = Vec::new();
        while let Some(partitioning) = &mut self.partitioning
            && partitioning.waiting.len() >= least
            && self.writes < WRITES
            && !self.is_stuck
        {
            let first = partitioning.next;
            if first as usize == self.containers.len() * per_container as usize {
                let Some(container) = pool.durable.space_mut().take_spill_container() else {
                    partitioning.has_failed = true;
                    return;
                };
                self.containers.push(container);
            }
            // A write ends at the end of a container: the next container may lie elsewhere.
            let space = (per_container - first % per_container) as usize;
            batch.clear();
            while batch.len() < most.min(space)
                && let Some(page) = partitioning.waiting.front()
            {
                let Some(id) = pool.metadata.pages_mut().allocate() else {
                    self.is_stuck = batch.is_empty();
                    break;
                };
                let at = partitioning.at(page.partition());
                if at >= partitioning.partitions.count() {
                    partitioning.duplicates.first.get_or_insert(partitioning.next);
                }
                let places = &mut partitioning.places[at];
                let number = (partitioning.number, places.len() as u32);
                page.write(pool.metadata.page_seed(), number, pool.metadata.pages_mut().bytes_mut(id));
                places.push(partitioning.next);
                partitioning.next += 1;
                partitioning.waiting.pop_front();
                batch.push(id);
            }
            if !batch.is_empty() {
                self.writes += 1;
                self.written += batch.len() as u64;
                self.begin_io(pool, IoOp::Write, (first, batch.len() as u32), &batch);
            }
        }
    }

    /// Begins an I/O of consecutive pages. Returns its number among the I/Os of the pass.
    fn begin_io(&mut self, pool: &mut Pool, op: IoOp, (first, pages): (u32, u32), segments: &[PageId]) -> u32 {
        let block = pool.metadata.geometry().block();
        let offset = pool.metadata.geometry().slot_block(self.slot(pool, first).0) * block;
        self.serial = self.serial.wrapping_add(1) % PARTS;
        let part = PARTS + self.serial;
        let segments = segments.iter().map(|&page| Segment::Page(page));
        self.in_flight += 1;
        pool.metadata.io_mut().begin(op, offset, u64::from(pages) * block, segments, JobId::Dedup.io(part as usize));
        part
    }

    fn slot(&self, pool: &Pool, place: u32) -> Slot {
        let per_container = pool.metadata.geometry().slots_per_container;
        let slots = pool.durable.space().slots_of(self.containers[(place / per_container) as usize]);
        Slot(slots.start + u64::from(place % per_container))
    }

    // ---- reading ----

    /// Begins to read the range from this place on: the whole partition.
    pub fn read_from(&mut self, place: u64) {
        self.is_stuck = false;
        let Some(partitioning) = &mut self.partitioning else { return };
        partitioning.reads.clear();
        partitioning.come = (Vec::new(), 0);
        partitioning.reading = partitioning.partitions.at(place).map(|(partition, _)| (partition, 0));
    }

    /// Ends reading; full pages are written next ([`Self::finish`]).
    pub fn end_reading(&mut self) {
        self.is_stuck = false;
        let Some(partitioning) = &mut self.partitioning else { return };
        partitioning.reads.clear();
        (partitioning.come, partitioning.reading) = ((Vec::new(), 0), None);
    }

    /// Begins to read duplicate slots, from the first non-empty partition at or after this one. Returns its number; `None` if all others are empty.
    pub fn read_spares_from(&mut self, partition: usize) -> Option<usize> {
        let partitioning = self.partitioning.as_mut()?;
        let base = partitioning.partitions.count();
        for partition in partition..partitioning.duplicates.partitions.count() {
            let open = partitioning.duplicates.partitions.take_open(partition);
            if !open.is_empty() || !partitioning.places[base + partition].is_empty() {
                partitioning.come = (open, 0);
                partitioning.reading = Some((base + partition, 0));
                return Some(partition);
            }
        }
        None
    }

    /// Returns the part of the duplicate slots that has been read, as the number of partitions read and of all.
    pub fn spares_read(&self, partition: usize) -> (u64, u64) {
        let parts = self.partitioning.as_ref().map_or(0, |partitioning| partitioning.duplicates.partitions.count());
        (partition as u64, parts.max(1) as u64)
    }

    /// Drops the duplicate slots once they have been shared. Their space is free for others, whose partitions have other numbers.
    pub fn forget_spares(&mut self) {
        let Some(partitioning) = &mut self.partitioning else { return };
        partitioning.duplicates.count = 0;
        partitioning.duplicates.partitions.begin_again();
        partitioning.next = partitioning.duplicates.first.take().unwrap_or(partitioning.next);
        partitioning.places[partitioning.partitions.count()..].iter_mut().for_each(Vec::clear);
    }

    /// Takes the next record or duplicate slot, if it has been read.
    pub fn next<T: Stored>(&mut self) -> Option<T> {
        let partitioning = self.partitioning.as_mut()?;
        while !partitioning.has_come() && partitioning.reads.front().is_some_and(|read| read.records.is_some()) {
            partitioning.come = (partitioning.reads.pop_front()?.records?, 0);
        }
        let (bytes, at) = &mut partitioning.come;
        let next = bytes.get(*at..*at + T::BYTES)?;
        *at += T::BYTES;
        Some(T::read(next))
    }

    /// Begins more reads of the partition. Returns true if all of it has been taken in.
    pub fn read(&mut self, pool: &mut Pool) -> bool {
        let per_container = pool.metadata.geometry().slots_per_container;
        while let Some(partitioning) = &self.partitioning
            && let Some((partition, next)) = partitioning.reading
            && let places = &partitioning.places[partition]
            && next < places.len()
            && partitioning.reads.len() < READS
        {
            let first = places[next];
            let follows = |&(at, &place): &(u32, &u32)| {
                at < AT_ONCE as u32 && place == first + at && place / per_container == first / per_container
            };
            let pages = (0..).zip(&places[next..]).take_while(follows).count() as u32;
            let name = Name {
                partitioning: partitioning.number,
                partition: partitioning.number(partition),
                number: next as u32,
            };
            let part = self.begin_io(pool, IoOp::ReadPages, (first, pages), &[]);
            self.read += u64::from(pages);
            let Some(partitioning) = &mut self.partitioning else { break };
            partitioning.reading = Some((partition, next + pages as usize));
            partitioning.reads.push_back(PartitionRead { part, first: name, pages, records: None });
        }
        let Some(partitioning) = &self.partitioning else { return true };
        let is_asked_for =
            partitioning.reading.is_none_or(|(partition, next)| next >= partitioning.places[partition].len());
        is_asked_for && partitioning.reads.is_empty() && !partitioning.has_come()
    }

    /// Takes the result of a write or a read.
    pub fn done(&mut self, pool: &mut Pool, part: u32, segments: &[Segment], result: Result<Outcome<'_>, IoError>) {
        self.in_flight -= 1;
        let reads = |partitioning: &mut Partitioning| {
            partitioning.reads.iter().position(|read| read.part == part && read.records.is_none())
        };
        let wanted = self.partitioning.as_mut().and_then(reads);
        match (&mut self.partitioning, wanted) {
            _ if !segments.is_empty() => self.written_to(pool, segments, result.is_ok()),
            (Some(partitioning), Some(at)) => {
                let read = &mut partitioning.reads[at];
                let records =
                    read.take_in(pool.metadata.page_seed(), pool.metadata.geometry().block() as usize, result);
                partitioning.has_failed |= records.is_none();
                read.records = Some(records.unwrap_or_default());
            }
            // Its result is no longer wanted.
            (..) => {}
        }
        if self.partitioning.is_none() {
            self.give_back(pool);
        }
        pool.wake();
    }

    fn written_to(&mut self, pool: &mut Pool, segments: &[Segment], is_good: bool) {
        self.writes -= 1;
        for &segment in segments {
            if let Segment::Page(page) = segment {
                pool.metadata.pages_mut().release(page);
            }
        }
        if let Some(partitioning) = &mut self.partitioning {
            partitioning.has_failed |= !is_good;
        }
    }

    /// Gives up the partitioning, and gives its containers back.
    pub fn give_up(&mut self, pool: &mut Pool) {
        self.is_stuck = false;
        self.partitioning = None;
        self.give_back(pool);
    }

    /// Gives all containers back, once no write is in flight.
    fn give_back(&mut self, pool: &mut Pool) {
        if self.containers.is_empty() || self.writes > 0 && !pool.mutant(Mutant::SpillInUse) {
            return;
        }
        for container in core::mem::take(&mut self.containers) {
            pool.durable.space_mut().end_spill(container);
        }
        pool.wake();
    }
}

impl PartitionRead {
    /// Returns the records of the pages read; `None` if a page is not as it was written.
    fn take_in(&self, seed: u64, block: usize, result: Result<Outcome<'_>, IoError>) -> Option<Vec<u8>> {
        let Ok(Outcome::Bytes(bytes)) = result else { return None };
        let mut records = Vec::with_capacity(self.pages as usize * block);
        for number in 0..self.pages {
            let page = bytes.get(number as usize * block..)?.get(..block)?;
            records.extend_from_slice(read_page(
                seed,
                Name { number: self.first.number + number, ..self.first },
                page,
            )?);
        }
        Some(records)
    }
}
