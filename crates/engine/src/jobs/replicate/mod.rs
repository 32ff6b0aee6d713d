//! Replicas of blocks that reads found scattered, in consecutive slots, so that such a read takes fewer device reads (POD, section 3.3).
//!
//! ```text
//! Note      remembers a read that took many device reads for its blocks: a hint, the oldest goes first
//! Collect   when the pool is idle: the slots of these blocks, and the content that they must hold, to the bit
//! Read      their content and its proof
//! Write     one replica for each, in consecutive slots
//! ```
//!
//! Reads go through the map as before: to a slot. The choice between the slot and its replica is made when device reads are put together: the one
//! that makes fewer of them. So correctness never depends on a replica. A slot's content never changes while it is in use, and neither does its
//! replica's. So a replica is valid until its slot is free.
//!
//! ```text
//! location         in the map of a hidden volume; beside it a table in memory, which reads use (pool/replicas/mod.rs)
//! budget           a number of bytes; the oldest unread replica goes when the next one needs its slot
//! reclaimed        first of all when slots run short, before second copies
//! others           a slot has at most one replica in order: the order made for one file is not broken up for another. Scrubs verify
//!                  replicas like any slot, repairs use them like second copies, checkpoints count them
//! ```
//!
//! A restart loses the noted reads. The replicas are found again, in the background (Find): the map of their volume has their slots.
//!
//! On a rotational store, popular blocks have copies in scratch zones, too: duplicate.rs.

mod duplicate;
mod popular;

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::map_walk::{LEAVES, Maps};
use crate::api::*;
use crate::counters::PlaceCounts;
use crate::format::entry::{Key, Slot, check_bits};
use crate::format::volume::Keeps;
use crate::jobs::job::{Job, JobContext, JobId};
use crate::jobs::mover::{is_alone, is_busy};
use crate::metadata::tree::Missing;
use crate::metadata::tree::{LastLeaf, Unresolved};
use crate::mutant::Mutant;
use crate::pool::Pool;
use crate::pool::change::{Put, Seen};
use crate::pool::metadata_reservation::Asked;
use crate::pool::metadata_reservation::Availability;
use crate::pool::replicas::Number;
use crate::pool::state::LoadSnapshot;
use crate::pool::volumes::{VolumeChange, end_of};
use crate::repair::Repairs;
use crate::requests::request::Request;
use duplicate::Duplicate;

/// Number of reads that are remembered.
const NOTED: usize = 256;
/// Largest number of blocks copied for each device read that can be saved: a read with more is not noted.
const BLOCKS_FOR_A_READ: usize = 16;
/// Number of blocks that are put in order at a time.
const AT_ONCE: usize = 64;
/// Divisor of all slots: no replicas are made when fewer than one slot in N is free.
const SPACE_TO_MAKE: u64 = 8;
/// Divisor of all slots: all replicas are reclaimed when fewer than one slot in N is free.
const SPACE_TO_KEEP: u64 = 16;
/// State and counts of replicas and their making.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ReplicateStatus {
    /// Bytes that replicas may take.
    pub budget_bytes: u64,
    /// Blocks that are replicas (merged ones).
    pub replicas: u64,
    /// Reads that are noted, or being put in order.
    pub noted: u64,
    /// Runs of blocks whose reads are counted to find the popular ones.
    pub popular: u64,
    /// Largest number of popular blocks that get copies in scratch zones.
    pub most_copied: u64,
    /// Popular blocks that have copies in scratch zones, or are to have them.
    pub copied: u64,
    /// Popular blocks that have a copy in each zone.
    pub fully_copied: u64,
    /// Blocks that were copied into replicas since the pool was opened.
    pub made: u64,
    /// Replicas dropped since the pool was opened: for newer ones, with their slots, or because slots ran short.
    pub dropped: u64,
    /// Blocks that reads got from replicas since the pool was opened.
    pub read: u64,
    /// Counts of reads from other places than their slots, by reason, on a rotational store.
    pub places: PlaceCounts,
}

/// Blocks of a read that took many device reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct ScatteredRead {
    first: Key,
    blocks: u64,
}

/// Blocks that are being put in order.
struct ReplicaBatch {
    blocks: Vec<(Slot, Digest, Option<BufferId>)>,
    in_flight: usize,
    /// Set if the batch is cancelled: its buffers are given back when its reads are done.
    is_over: bool,
}

/// The job that makes replicas.
pub(crate) struct Replicate {
    noted: VecDeque<ScatteredRead>,
    work: Option<ReplicaBatch>,
    /// True if the job waits for an event that wakes the engine.
    is_stuck: bool,
    made: u64,
    /// Position of the search for replicas of an earlier run.
    found: Maps,
    duplicate: Duplicate,
}

impl Replicate {
    pub(crate) fn new(now: Nanos) -> Replicate {
        let (found, duplicate) = (Maps::default(), Duplicate::new(now));
        Replicate { noted: VecDeque::new(), work: None, is_stuck: false, made: 0, found, duplicate }
    }

    /// Counts a run of slots that was read from the device, where popular blocks get copies.
    pub(crate) fn note_read(&mut self, pool: &Pool, first: Slot, length: usize) {
        self.duplicate.note(pool, first, length);
    }

    /// Returns slots that it has claimed and to which no map refers.
    pub(crate) fn claimed(&self) -> impl Iterator<Item = Slot> + '_ {
        self.duplicate.claimed()
    }

    /// Returns the bytes of memory in excess of its fixed size.
    pub(crate) fn memory(&self) -> u64 {
        self.duplicate.memory()
    }

    /// Returns the state and counts of replicas and their making.
    pub(crate) fn status(&self, pool: &Pool) -> ReplicateStatus {
        let (dropped, read) = pool.hints.replicas.counts();
        ReplicateStatus {
            budget_bytes: pool.replicas_space(&pool.limits).0,
            replicas: pool.replicas_used(),
            noted: self.noted.len() as u64 + u64::from(self.work.is_some()),
            popular: self.duplicate.popular(),
            most_copied: pool.columns_budget(),
            copied: pool.hints.replicas.columns().len(),
            fully_copied: pool.hints.replicas.columns().complete(),
            made: self.made + self.duplicate.made(),
            dropped,
            read,
            places: pool.hints.replicas.place_counts(),
        }
    }

    /// Notes a read in flight, if it takes many device reads.
    pub(crate) fn note_split(&mut self, pool: &mut Pool, request: &Request) {
        let (blocks, reads) = (request.blocks().len(), request.device_reads() as usize);
        let pays = reads > 1 && blocks <= (reads - 1) * BLOCKS_FOR_A_READ;
        if pays && pool.notes_regions() {
            pool.regions_mut().read(request.blocks()[0].key, reads as u32 - 1);
        }
        if !pays || pool.in_order_budget() == 0 || !pool.takes_changes() {
            return;
        }
        let noted = ScatteredRead { first: request.blocks()[0].key, blocks: blocks as u64 };
        if self.noted.contains(&noted) {
            return;
        }
        if self.noted.len() == NOTED {
            self.noted.pop_front();
        }
        self.noted.push_back(noted);
    }
}

/// Returns true if more than half of these blocks have a single referrer each: defragmentation puts such blocks in order, if it may.
fn are_mostly_alone(
    pool: &mut Pool,
    repairs: &Repairs,
    blocks: &[(Slot, Digest, Option<BufferId>)],
) -> Result<bool, Missing> {
    let mut alone = 0;
    for &(slot, ..) in blocks {
        alone += usize::from(is_alone(pool, repairs, slot)?);
    }
    Ok(2 * alone > blocks.len())
}

fn begin_reading(pool: &mut Pool, mut blocks: Vec<(Slot, Digest, Option<BufferId>)>) -> Option<ReplicaBatch> {
    for at in 0..blocks.len() {
        // A buffer of the read cache belongs to its slot: a replica gets a buffer of its own.
        let Some(buffer) = pool.any_buffer() else {
            blocks
                .iter()
                .filter_map(|&(.., buffer)| buffer)
                .for_each(|buffer| pool.memory.buffers_mut().release(buffer));
            return None;
        };
        blocks[at].2 = Some(buffer);
    }
    let mut in_flight = 0;
    let mut at = 0;
    while at < blocks.len() {
        let mut length = 1;
        let follows =
            |length: usize| at + length < blocks.len() && pool.continues(blocks[at].0, length, blocks[at + length].0);
        while follows(length) {
            length += 1;
        }
        let offset = pool.slot_offset(blocks[at].0);
        let bytes = length as u64 * pool.metadata.geometry().block();
        let segments = blocks[at..at + length].iter().filter_map(|&(.., buffer)| buffer).map(Segment::Buffer);
        pool.metadata.io_mut().begin(IoOp::ReadBlocks, offset, bytes, segments, JobId::Replicate.io(at));
        in_flight += 1;
        at += length;
    }
    Some(ReplicaBatch { blocks, in_flight, is_over: false })
}

/// Deletes the volume of replicas with all its entries, if there is space for the change now. Returns when there is space.
fn delete_replicas(pool: &mut Pool, load: &LoadSnapshot) -> Availability {
    let Some(volume) = pool.hints.replicas.volume() else { return Availability::Now };
    let cleared = pool.cleared(Key::new(volume, 0), end_of(volume));
    // Checked here, since a change that has to wait requests a checkpoint, and this one is not urgent.
    let space = pool.space_for(&Asked::clear(1, cleared), load.clears_left);
    if space == Availability::Now {
        let _ = pool.change_volume(VolumeChange::Delete { volume }, load.clears_left);
    }
    space
}

/// Adopts a replica from the map of an earlier run, if it holds the content that its slot must hold, to the last bit.
fn find_replica(pool: &mut Pool, number: Number, at: Slot) -> Result<(), Missing> {
    let slot = pool.hints.replicas.slot_of(number);
    let digests = (pool.proven_digest(slot)?, pool.proven_digest(at)?);
    let is_right = match digests {
        (Some((must, _)), Some((has, _))) => must == has || pool.mutant(Mutant::UnprovenReplica),
        _ => false,
    };
    let (in_order, columns) = (pool.in_order_budget(), pool.columns_budget());
    if !is_right || !pool.hints.replicas.adopt(number, at, in_order, columns) {
        pool.hints.replicas.note_stale(number);
    }
    Ok(())
}

/// Drops entries of the volume for slots that are free again, as far as there is space for the changes. Returns when there is space for the rest.
fn drop_stale_replicas(pool: &mut Pool, load: &LoadSnapshot) -> Availability {
    while let (Some(volume), Some(number)) = (pool.hints.replicas.volume(), pool.hints.replicas.stale()) {
        let space = pool.space_for(&Asked::scattered(2), load.clears_left);
        if space != Availability::Now {
            return space;
        }
        if pool.hints.replicas.end_stale() {
            pool.put_alone(Key::new(volume, number.0), Put::Zero);
        }
    }
    Availability::Now
}

/// Makes space for N replicas in consecutive slots: in the pool, in the budget and in a record. Returns true if there is space now.
fn make_space_for_replicas(pool: &mut Pool, load: &LoadSnapshot, count: usize) -> bool {
    let Some(at) = pool.hints.replicas.volume().and_then(|volume| pool.volume_index(volume)) else {
        return false;
    };
    let volume = pool.durable.volumes()[at].id;
    pool.hints.replicas.drop_beyond(pool.in_order_budget().saturating_sub(count as u64), pool.columns_budget());
    drop_stale_replicas(pool, load);
    let space =
        pool.durable.space().free() >= pool.slots_to_spare(SPACE_TO_MAKE) && pool.hints.replicas.stale().is_none();
    space
        && pool.durable.space().ready() >= count as u64
        && pool.volume_index(volume).is_some()
        && matches!(pool.space_for(&Asked::scattered(2 * count), load.clears_left), Availability::Now)
}

impl Replicate {
    /// Advances the rebuild of the table of replicas from the map of their volume, in one step.
    fn find(&mut self, pool: &mut Pool, load: &LoadSnapshot) {
        // Stale entries take memory until their removal is recorded.
        drop_stale_replicas(pool, load);
        let takes_part = |pool: &Pool, key: Key| pool.hints.replicas.volume() == Some(key.volume());
        let each = |pool: &mut Pool, key: Key, at: Slot| {
            let number = Number(key.lba());
            match find_replica(pool, number, at) {
                // The content that it must hold is unknown.
                Err(Missing { key, .. }) if pool.metadata.has_failed(key) => pool.hints.replicas.note_stale(number),
                found => found?,
            }
            Ok(true)
        };
        for _ in 0..LEAVES {
            match self.found.step(pool, takes_part, each) {
                Ok(true) => {}
                Ok(false) => {
                    pool.hints.replicas.begin_anew();
                    break;
                }
                Err(Missing { key, .. }) if pool.metadata.has_failed(key) => self.found.skip(),
                Err(missing) => {
                    self.is_stuck = true;
                    return pool.metadata.load(missing, None);
                }
            }
        }
        pool.wake();
    }

    /// Collects the blocks that a read needs in order, and begins to read them. Returns `None` if there is nothing to do, or not now.
    fn gather(
        &mut self,
        pool: &mut Pool,
        repairs: &Repairs,
        noted: ScatteredRead,
    ) -> Result<Option<ReplicaBatch>, Missing> {
        let Some(volume) = pool.volume_index(noted.first.volume()) else { return Ok(None) };
        let mut blocks: Vec<(Slot, Digest, Option<BufferId>)> = Vec::with_capacity(AT_ONCE);
        // The rest of the open container is used up first; a single slot is not worth a stop.
        let run = if pool.durable.space().run() > 1 { pool.durable.space().run() as usize } else { AT_ONCE };
        let most = AT_ONCE.min(pool.in_order_budget() as usize).min(run);
        let (mut end, mut leaf) = (noted.blocks, LastLeaf::default());
        for i in 0..noted.blocks {
            if blocks.len() == most {
                end = i;
                break;
            }
            let entry = match pool.resolve_after(volume, Key(noted.first.0 + i), &mut leaf) {
                Ok(entry) => entry,
                Err(Unresolved::Missing(missing)) => return Err(missing),
                Err(Unresolved::Damaged) => return Ok(None),
            };
            let Some(slot) = entry.slot() else { continue };
            if is_busy(pool, repairs, slot) {
                return Ok(None);
            }
            if pool.hints.replicas.of(slot).is_some() || blocks.iter().any(|&(of, ..)| of == slot) {
                continue;
            }
            match pool.proven_digest(slot)? {
                Some((digest, _)) if check_bits(digest) == entry.check() => blocks.push((slot, digest, None)),
                _ => return Ok(None),
            }
        }
        // Blocks that have been defragmented meanwhile need no replicas.
        let mut slots: Vec<u64> = blocks.iter().map(|(slot, ..)| slot.0).collect();
        slots.sort_unstable();
        if slots.windows(2).filter(|pair| pair[1] != pair[0] + 1).count() * BLOCKS_FOR_A_READ < blocks.len() {
            return Ok(None);
        }
        // Blocks in order for another read stay so; a few blocks in between are not worth a copy.
        if blocks.len() < 2 || (blocks.len() as u64) * 2 < end.min(noted.blocks) {
            return Ok(None);
        }
        if pool.may_move() > 0 && are_mostly_alone(pool, repairs, &blocks)? {
            return Ok(None);
        }
        if end < noted.blocks {
            let rest = ScatteredRead { first: Key(noted.first.0 + end), blocks: noted.blocks - end };
            self.noted.push_front(rest);
        }
        begin_reading(pool, blocks).map_or(Ok(None), |work| Ok(Some(work)))
    }

    /// Ends the work in progress when its reads are done. Makes replicas, if that is wanted and nothing interfered.
    fn end_work(&mut self, pool: &mut Pool, load: &LoadSnapshot, wanted: bool) {
        let Some(work) = &mut self.work else { return };
        work.is_over |= !wanted;
        if work.in_flight > 0 {
            return;
        }
        let (is_over, count) = (work.is_over, work.blocks.len());
        let fits = !is_over && make_space_for_replicas(pool, load, count);
        let Some(work) = self.work.take() else { return };
        let volume = pool.hints.replicas.volume().filter(|_| fits);
        for (slot, digest, buffer) in work.blocks {
            let Some(buffer) = buffer else { continue };
            // A slot that was freed meanwhile needs no replica.
            let (seen, to) = (
                Seen(slot, digest),
                Put::Fresh { digest, buffer, may_travel: false, sequential: false, offline: false },
            );
            let entry = match volume {
                Some(volume) => pool.remap(Key::new(volume, pool.hints.replicas.number(slot, 0).0), seen, to),
                // Looked up all the same: it affects which pages stay in memory, and so the behaviour of recorded runs.
                None => {
                    pool.still_holds(seen);
                    None
                }
            };
            let Some(replica) = entry.and_then(|entry| entry.slot()) else {
                pool.memory.buffers_mut().release(buffer);
                continue;
            };
            pool.hints.replicas.add(slot, replica);
            self.made += 1;
        }
        pool.wake();
    }
}

impl Job for Replicate {
    type Work<'a> = JobContext<'a>;

    fn is_in_progress(&self) -> bool {
        self.work.is_some() || self.duplicate.is_in_progress()
    }

    #[inline]
    fn can_step(&self, pool: &Pool, _: &LoadSnapshot) -> bool {
        let is_wanted = !self.noted.is_empty()
            || pool.hints.replicas.stale().is_some()
            || pool.hints.replicas.are_left()
            || pool.hints.replicas.are_beyond(pool.in_order_budget(), pool.columns_budget())
            || self.duplicate.can_step(pool);
        is_wanted && pool.takes_changes() && !self.is_in_progress()
    }

    fn begins_at(&self, _: &Pool, _: &LoadSnapshot) -> Option<Nanos> {
        self.duplicate.begins_at()
    }

    /// Returns true if there is work, or if the job is not marked as stuck yet.
    #[inline]
    fn can_advance(&self) -> bool {
        self.work.is_some() || !self.noted.is_empty() || !self.is_stuck || self.duplicate.can_advance()
    }

    /// Advances the work to its end: blocks that have been read already are written, unless writes wait or the pool takes no changes.
    fn advance(&mut self, work: &mut JobContext<'_>) {
        let JobContext { pool, load, .. } = work;
        // The event that it waits for wakes the engine; a step that makes progress clears this.
        self.is_stuck = true;
        if self.duplicate.can_advance() {
            self.duplicate.advance(pool, load);
        }
        if !pool.may_be_reordered() {
            self.noted.clear();
            self.end_work(pool, load, false);
        } else if load.writes_blocked || load.out_of_buffers {
            self.end_work(pool, load, false);
        } else if self.work.is_some() {
            self.end_work(pool, load, true);
        }
    }

    fn step(&mut self, work: &mut JobContext<'_>) {
        let JobContext { pool, repairs, load } = work;
        if !pool.may_be_reordered() || load.writes_blocked || load.out_of_buffers {
            return;
        }
        let at = pool.hints.replicas.volume().and_then(|volume| pool.volume_index(volume));
        match at {
            Some(_) if pool.hints.replicas.stride() != pool.metadata.geometry().slots() => {
                // The pool has grown, or an earlier program had one entry for each slot: the volume is made anew.
                pool.hints.replicas.clear();
                if delete_replicas(pool, load) == Availability::Never {
                    // No checkpoint makes space for the deletion, so nothing would end the wait.
                    self.noted.clear();
                    self.duplicate.give_up(pool);
                }
                return;
            }
            Some(_) if pool.hints.replicas.are_left() => return self.find(pool, load),
            None if pool.hints.replicas.volume().is_none() => {
                pool.hints.replicas.begin_anew();
                pool.wake();
                if pool.enter_hidden_volume(Keeps::Replicas).is_err() {
                    // There are too many volumes.
                    self.noted.clear();
                    self.duplicate.give_up(pool);
                }
                return;
            }
            // The creation of the volume becomes durable first.
            None => return,
            Some(_) => {}
        }
        pool.hints.replicas.drop_beyond(pool.in_order_budget(), pool.columns_budget());
        let space = drop_stale_replicas(pool, load);
        self.is_stuck = pool.hints.replicas.stale().is_some();
        if pool.durable.space().free() < pool.slots_to_spare(SPACE_TO_KEEP) {
            self.noted.clear();
            self.duplicate.give_up(pool);
            pool.give_back_replicas(load);
            return;
        }
        while let Some(noted) = self.noted.pop_front() {
            match self.gather(pool, repairs, noted) {
                Ok(Some(work)) => {
                    self.work = Some(work);
                    return self.end_work(pool, load, true);
                }
                Ok(None) => {}
                Err(missing) => {
                    self.noted.push_front(noted);
                    self.is_stuck = true;
                    return pool.metadata.load(missing, None);
                }
            }
        }
        if self.duplicate.can_step(pool) {
            self.duplicate.step(pool, repairs, load, space);
        }
    }

    fn is_stuck(&self, _: &Pool) -> bool {
        self.is_stuck
    }

    /// Handles the completion of a read of blocks to be put in order; `part` is the number of its first block.
    fn done(
        &mut self,
        work: &mut JobContext<'_>,
        part: u32,
        segments: &[Segment],
        result: Result<Outcome<'_>, IoError>,
    ) {
        if self.duplicate.is_in_progress() {
            return self.duplicate.done(work.pool, part, segments, result);
        }
        let batch = self.work.as_mut().expect("work stays until its reads are done");
        batch.in_flight -= 1;
        let blocks = &batch.blocks[part as usize..][..segments.len()];
        let good = match result {
            Ok(Outcome::Blocks(contents)) => {
                let is_right = |(content, block): (&BlockContent, &(Slot, Digest, Option<BufferId>))| {
                    !content.zero && content.digest == block.1
                };
                contents.len() == blocks.len() && contents.iter().zip(blocks).all(is_right)
            }
            _ => false,
        };
        // A read or a scrub will find a damaged block.
        batch.is_over |= !good;
        work.pool.wake();
    }

    fn holds(&self, slot: Slot) -> bool {
        let works_on = |work: &ReplicaBatch| work.blocks.iter().any(|&(of, ..)| of == slot);
        self.work.as_ref().is_some_and(works_on) || self.duplicate.holds(slot)
    }
}
