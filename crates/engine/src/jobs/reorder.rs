//! Putting in order what reads found scattered (POD, section 3.3), as replicas.
//!
//! ```text
//! Note      a read that took many device reads for its blocks is remembered: a hint, the oldest goes first
//! Gather    when the pool is idle: the slots of these blocks, and what they must hold, to the bit
//! Read      their content, and its proof
//! Write     one replica for each, in slots that follow each other
//! ```
//!
//! Reads go through the map as before: to a slot. Whether they fetch its content from the slot or from its replica is decided when
//! device reads are put together: the one that makes fewer of them. So nothing that is true depends on a replica. A slot's content
//! never changes while it is in use, and neither does its replica's: a replica is good until its slot is free.
//!
//! ```text
//! where they are   in the map of a volume that nobody sees: its block n is the replica of slot n; beside it a table in memory, slot to
//!                  replica, which reads go by
//! budget           a number of bytes; the oldest replica goes when the next one needs its place
//! given back       first of all when slots run short, before second copies; and when the pool is opened, for the table is in memory
//! others           a slot has one replica at most: what is in order for one file is not taken apart for another. Scrubs verify
//!                  replicas like any slot, repairs use them like second copies, checkpoints count them
//! ```
//!
//! A restart loses the replicas and what was noted: reads are as fast as before them, until it is noted again.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::contract::*;
use crate::engine::Engine;
use crate::format::entry::{Key, Slot, check_bits};
use crate::format::volume::Keeps;
use crate::pool::Pool;
use crate::pool::change::{Put, Seen};
use crate::pool::room::Asked;
use crate::pool::room::Room;
use crate::store::io::Purpose;
use crate::store::tree::Missing;
use crate::store::tree::{LastLeaf, Unresolved};

/// Reads that are remembered.
const NOTED: usize = 256;
/// A read is noted where each device read that can be saved pays for so many blocks to be copied.
const BLOCKS_FOR_A_READ: usize = 16;
/// Blocks that are put in order at a time.
const AT_ONCE: usize = 64;
/// No replicas are made where fewer slots than one in so many are free,
const ROOM_TO_MAKE: u64 = 8;
/// and where it comes to one in so many, all are given back.
const ROOM_TO_KEEP: u64 = 16;
/// What is known of replicas and their making.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ReorderStatus {
    /// Bytes that replicas may take.
    pub budget_bytes: u64,
    /// Blocks that are replicas (merged ones).
    pub replicas: u64,
    /// Reads that are noted, or being put in order.
    pub noted: u64,
    /// Blocks that replicas were made of since the pool was opened.
    pub made: u64,
    /// Replicas dropped since then: for newer ones, with their slots, or because slots ran short.
    pub dropped: u64,
    /// Blocks that reads got from replicas since then.
    pub read: u64,
}

/// Blocks of a read that took many device reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Noted {
    first: Key,
    blocks: u64,
}

/// Blocks that are being put in order.
struct Work {
    blocks: Vec<(Slot, Digest, Option<BufferId>)>,
    in_flight: usize,
    /// Something came between: what it holds is given back when its reads are done.
    is_over: bool,
}

/// What it takes to make replicas.
pub(crate) struct Reorder {
    noted: VecDeque<Noted>,
    work: Option<Work>,
    /// The job waits for something that moves the engine on when it comes.
    is_stuck: bool,
    made: u64,
}

impl Reorder {
    pub(crate) fn new() -> Reorder {
        Reorder { noted: VecDeque::new(), work: None, is_stuck: false, made: 0 }
    }

    /// Whether a slot must not be reused yet.
    pub(crate) fn holds(&self, slot: Slot) -> bool {
        let works_on = |work: &Work| work.blocks.iter().any(|&(of, ..)| of == slot);
        self.work.as_ref().is_some_and(works_on)
    }
}

impl Pool {
    fn begin_reading(&mut self, mut blocks: Vec<(Slot, Digest, Option<BufferId>)>) -> Option<Work> {
        for at in 0..blocks.len() {
            // A buffer of the read cache belongs to its slot: what becomes a replica has one of its own.
            let Some(buffer) = self.any_buffer() else {
                blocks.iter().filter_map(|&(.., buffer)| buffer).for_each(|buffer| self.buffers.release(buffer));
                return None;
            };
            blocks[at].2 = Some(buffer);
        }
        let mut in_flight = 0;
        let mut at = 0;
        while at < blocks.len() {
            let mut length = 1;
            let follows = |length: usize| {
                at + length < blocks.len() && self.continues(blocks[at].0, length, blocks[at + length].0)
            };
            while follows(length) {
                length += 1;
            }
            let offset = self.slot_offset(blocks[at].0);
            let bytes = length as u64 * self.store.geometry.block();
            let segments = blocks[at..at + length].iter().filter_map(|&(.., buffer)| buffer).map(Segment::Buffer);
            self.store.io.begin(IoOp::ReadBlocks, offset, bytes, segments, Purpose::Reorder { first: at });
            in_flight += 1;
            at += length;
        }
        Some(Work { blocks, in_flight, is_over: false })
    }
}

impl Pool {
    /// Reads the content of slots from their replicas, which follow each other.
    pub(crate) fn read_replicas(&mut self, first: Slot, slots: &[Slot]) {
        let block = self.store.geometry.block();
        let offset = self.slot_offset(first);
        self.replicas.begin_read(first, slots);
        let fills = &self.fills;
        let segments = slots.iter().map(|slot| Segment::Buffer(fills[slot].buffer));
        let purpose = Purpose::FillFromReplicas { first };
        self.store.io.begin(IoOp::ReadBlocks, offset, slots.len() as u64 * block, segments, purpose);
    }
}

impl Engine {
    /// What is known of replicas and their making.
    pub(crate) fn reorder_status(&self) -> ReorderStatus {
        let reorder = &self.jobs.reorder;
        let (dropped, read) = self.pool.replicas.counts();
        ReorderStatus {
            budget_bytes: self.pool.replica_budget() * self.pool.store.geometry.block(),
            replicas: self.pool.hidden_blocks_used(Keeps::Replicas),
            noted: reorder.noted.len() as u64 + u64::from(reorder.work.is_some()),
            made: reorder.made,
            dropped,
            read,
        }
    }

    /// A read is on its way: it is noted if it takes many device reads.
    pub(crate) fn note_split(&mut self, id: RequestId) {
        let request = self.requests.get(id);
        let (blocks, reads) = (request.blocks.len(), request.device_reads as usize);
        let pays = reads > 1 && blocks <= (reads - 1) * BLOCKS_FOR_A_READ;
        if !pays || self.pool.replica_budget() == 0 || !self.pool.takes_changes() {
            return;
        }
        let noted = Noted { first: request.blocks[0].key, blocks: blocks as u64 };
        if self.jobs.reorder.noted.contains(&noted) {
            return;
        }
        if self.jobs.reorder.noted.len() == NOTED {
            self.jobs.reorder.noted.pop_front();
        }
        self.jobs.reorder.noted.push_back(noted);
    }

    // ---- reads ----

    /// The replica of a slot, if a read may go there.
    pub(crate) fn replica_of(&self, slot: Slot) -> Option<Slot> {
        let replica = self.pool.replicas.of(slot)?;
        (!self.pool.dirty.contains_key(&replica) && !self.care.mends(replica)).then_some(replica)
    }

    /// Replicas have come. One that is not what it must be is given up, and its slot read instead.
    pub(crate) fn filled_from_replicas(
        &mut self,
        first: Slot,
        segments: &[Segment],
        result: Result<Outcome<'_>, IoError>,
    ) {
        for i in 0..segments.len() {
            let replica = Slot(first.0 + i as u64);
            let slot = self.pool.replicas.end_read(replica);
            let content = match result {
                Ok(Outcome::Blocks(contents)) => contents.get(i).copied(),
                _ => None,
            };
            if !self.fill_ends(slot, content) {
                self.pool.replicas.give_up(slot, replica);
            }
        }
        self.pool.needs_pump = true;
    }

    // ---- the job ----

    /// Whether the job has something to do when the pool is idle.
    pub(crate) fn reorder_waits(&self) -> bool {
        let reorder = &self.jobs.reorder;
        self.pool.takes_changes()
            && (!reorder.noted.is_empty()
                || self.pool.replicas.stale().is_some()
                || self.pool.replicas.are_left()
                || self.pool.replicas.len() > self.pool.replica_budget())
            && reorder.work.is_none()
    }

    /// Whether something has to happen before the job goes on.
    pub(crate) fn reorder_is_stuck(&self) -> bool {
        self.jobs.reorder.is_stuck
    }

    /// Moves the job on, while the pool is idle. What has been read already is written in any case.
    pub(crate) fn step_reorder(&mut self) {
        let may_write =
            self.pool.takes_changes() && !self.pool.untouched && !self.pool.metadata_full && !self.pool.host_full;
        if !may_write {
            self.jobs.reorder.noted.clear();
            return self.end_work(false);
        }
        if !self.blocked.is_empty() || !self.starved.is_empty() {
            return self.end_work(false);
        }
        if self.jobs.reorder.work.is_some() {
            return self.end_work(true);
        }
        self.jobs.reorder.is_stuck = true;
        if !self.reorder_waits() || !self.facts().is_idle || self.jobs.checkpoint.is_some() {
            return;
        }
        let at = self.pool.replicas.volume.and_then(|volume| self.pool.volume_index(volume));
        match at {
            Some(at) if self.pool.replicas.are_left() => {
                let facts = self.facts();
                if !self.pool.clear_hidden(at, &facts) {
                    return;
                }
                self.pool.replicas.begin_anew();
                self.pool.needs_pump = true;
            }
            None if self.pool.replicas.volume.is_none() => {
                self.pool.replicas.begin_anew();
                self.pool.needs_pump = true;
                if self.pool.enter_hidden_volume(Keeps::Replicas).is_err() {
                    // There are too many volumes.
                    self.jobs.reorder.noted.clear();
                }
                return;
            }
            // Its creation becomes durable first.
            None => return,
            Some(_) => {}
        }
        self.pool.replicas.drop_oldest_beyond(self.pool.replica_budget());
        self.drop_stale();
        self.jobs.reorder.is_stuck = self.pool.replicas.stale().is_some();
        if self.pool.space.free() < self.pool.slots_to_spare(ROOM_TO_KEEP) {
            self.jobs.reorder.noted.clear();
            self.give_back_replicas();
            return;
        }
        while let Some(noted) = self.jobs.reorder.noted.pop_front() {
            match self.gather(noted) {
                Ok(Some(work)) => {
                    self.jobs.reorder.work = Some(work);
                    return self.end_work(true);
                }
                Ok(None) => {}
                Err(missing) => {
                    self.jobs.reorder.noted.push_front(noted);
                    self.jobs.reorder.is_stuck = true;
                    return self.pool.store.load(missing, None);
                }
            }
        }
    }

    /// Drops what the volume has of slots that are free again, as far as there is room to say so.
    fn drop_stale(&mut self) {
        while let (Some(volume), Some(slot)) = (self.pool.replicas.volume, self.pool.replicas.stale()) {
            if !matches!(self.pool.room_for(&Asked::scattered(2), self.has_clears_left()), Room::Enough) {
                return;
            }
            if self.pool.replicas.end_stale() {
                self.pool.put_alone(Key::new(volume, slot.0), Put::Zero);
            }
        }
    }

    /// Gives all replicas back; false if there are none, or no room to say so.
    pub(crate) fn give_back_replicas(&mut self) -> bool {
        let at = self.pool.replicas.volume.and_then(|volume| self.pool.volume_index(volume));
        let is_empty = self.pool.replicas.len() == 0 && self.pool.replicas.stale().is_none();
        let Some(at) = at.filter(|_| !is_empty || self.pool.replicas.are_left()) else { return false };
        let facts = self.facts();
        if !self.pool.clear_hidden(at, &facts) {
            return false;
        }
        self.pool.replicas.clear();
        self.pool.replicas.begin_anew();
        true
    }

    /// Finds out what a read needs to be in order, and begins to read it. `None`: there is nothing to do, or not now.
    fn gather(&mut self, noted: Noted) -> Result<Option<Work>, Missing> {
        let Some(volume) = self.pool.volume_index(noted.first.volume()) else { return Ok(None) };
        let mut blocks: Vec<(Slot, Digest, Option<BufferId>)> = Vec::with_capacity(AT_ONCE);
        // What is left of the open container is used up first; one slot is not worth a stop.
        let run = if self.pool.space.run() > 1 { self.pool.space.run() as usize } else { AT_ONCE };
        let most = AT_ONCE.min(self.pool.replica_budget() as usize).min(run);
        let (mut end, mut leaf) = (noted.blocks, LastLeaf::default());
        for i in 0..noted.blocks {
            if blocks.len() == most {
                end = i;
                break;
            }
            let entry = match self.pool.resolve_after(volume, Key(noted.first.0 + i), &mut leaf) {
                Ok(entry) => entry,
                Err(Unresolved::Missing(missing)) => return Err(missing),
                Err(Unresolved::Damaged) => return Ok(None),
            };
            let Some(slot) = entry.slot() else { continue };
            let is_moving = self.pool.dirty.contains_key(&slot)
                || self.pool.in_journal.contains_key(&slot)
                || self.care.mends(slot)
                || self.pool.fills.contains_key(&slot);
            if is_moving {
                return Ok(None);
            }
            if self.pool.replicas.of(slot).is_some() || blocks.iter().any(|&(of, ..)| of == slot) {
                continue;
            }
            match self.pool.proven_digest(slot)? {
                Some((digest, _)) if check_bits(digest) == entry.check() => blocks.push((slot, digest, None)),
                _ => return Ok(None),
            }
        }
        // What is in order for another read stays so; a few blocks in between are not worth a copy.
        if blocks.len() < 2 || (blocks.len() as u64) * 2 < end.min(noted.blocks) {
            return Ok(None);
        }
        if end < noted.blocks {
            let rest = Noted { first: Key(noted.first.0 + end), blocks: noted.blocks - end };
            self.jobs.reorder.noted.push_front(rest);
        }
        self.pool.begin_reading(blocks).map_or(Ok(None), |work| Ok(Some(work)))
    }

    /// Blocks to be put in order have come.
    pub(crate) fn reorder_read(&mut self, first: usize, segments: &[Segment], result: Result<Outcome<'_>, IoError>) {
        let work = self.jobs.reorder.work.as_mut().expect("work stays until its reads are done");
        work.in_flight -= 1;
        let blocks = &work.blocks[first..first + segments.len()];
        let good = match result {
            Ok(Outcome::Blocks(contents)) => {
                let is_right = |(content, block): (&BlockContent, &(Slot, Digest, Option<BufferId>))| {
                    !content.zero && content.digest == block.1
                };
                contents.len() == blocks.len() && contents.iter().zip(blocks).all(is_right)
            }
            _ => false,
        };
        // What is wrong with one of them a read or a scrub will find.
        work.is_over |= !good;
        self.pool.needs_pump = true;
    }

    /// Ends the work under way when its reads are done: with replicas, if that is wanted and nothing came between.
    fn end_work(&mut self, wanted: bool) {
        let Some(work) = &mut self.jobs.reorder.work else { return };
        work.is_over |= !wanted;
        if work.in_flight > 0 {
            return;
        }
        let (is_over, count) = (work.is_over, work.blocks.len());
        let fits = !is_over && self.make_room_for_replicas(count);
        let Some(work) = self.jobs.reorder.work.take() else { return };
        let volume = self.pool.replicas.volume.filter(|_| fits);
        for (slot, digest, buffer) in work.blocks {
            let Some(buffer) = buffer else { continue };
            // A slot that was freed meanwhile needs none.
            let (seen, to) = (Seen(slot, digest), Put::Fresh { digest, buffer, may_travel: false });
            let entry = match volume {
                Some(volume) => self.pool.remap(Key::new(volume, slot.0), seen, to),
                // Looked at all the same: which pages stay in memory, and so what recorded runs do, depends on it.
                None => {
                    self.pool.still_holds(seen);
                    None
                }
            };
            let Some(replica) = entry.and_then(|entry| entry.slot()) else {
                self.pool.buffers.release(buffer);
                continue;
            };
            self.pool.replicas.add(slot, replica);
            self.jobs.reorder.made += 1;
        }
        self.pool.needs_pump = true;
    }

    /// Whether there is room for so many replicas that follow each other, in the pool, in the budget and in a record; sees to it that
    /// there is.
    fn make_room_for_replicas(&mut self, count: usize) -> bool {
        let Some(at) = self.pool.replicas.volume.and_then(|volume| self.pool.volume_index(volume)) else {
            return false;
        };
        if self.pool.volumes[at].size < self.pool.store.geometry.slots() * self.pool.store.geometry.block() {
            // The pool has grown; the volume follows when it is made anew.
            return false;
        }
        let volume = self.pool.volumes[at].id;
        self.pool.replicas.drop_oldest_beyond(self.pool.replica_budget().saturating_sub(count as u64));
        self.drop_stale();
        let room =
            self.pool.space.free() >= self.pool.slots_to_spare(ROOM_TO_MAKE) && self.pool.replicas.stale().is_none();
        room && self.pool.space.ready() >= count as u64
            && self.pool.volume_index(volume).is_some()
            && matches!(self.pool.room_for(&Asked::scattered(2 * count), self.has_clears_left()), Room::Enough)
    }
}
