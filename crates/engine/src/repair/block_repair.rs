//! Block repair: for a block that fails its check or cannot be read, finds the right content in another copy and writes it back into the slot. For
//! reads, and for the scrub.
//!
//! ```text
//! Prove     the 128 bits that the slot must hold: from a delta, or from its summary
//! Again     the slot is read once more, alone: a multi-block read fails as a whole, and some errors go away
//! Memory    the content in the read cache is copied
//! Journal   the journal inlined it, and no sync has covered its slot since (`inlined.rs`): it is read from there
//! Other     another slot that the index, or the scrub, knows for the same digest is read
//! Copy      its second copy is read (`second_copies.rs`)
//! Write     the content is proven by all its bits: waiters are answered, and the slot is written in place
//! Sync      until a sync covers the write
//! ReadBack  the slot is read once more: only now the block counts as repaired
//! Owner     the volume and block that own it are found, if the map agrees with the summary
//! ```
//!
//! Only the content that the slot must hold is written: a crash at any moment leaves the damage, or the repaired block. A slot under repair is not
//! given back to the allocator. From Write to ReadBack its content is read from memory, as that of any dirty block.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::{Arrived, Repairs};
use crate::api::*;
use crate::format::entry::{Key, Slot, check_bits};
use crate::metadata::io::Purpose;
use crate::metadata::tree::Unresolved;
use crate::pool::Pool;
use crate::pool::state::Look;

/// Blocks under repair at once; the others wait.
const AT_ONCE: usize = 8;
/// Maximum length of the lists of damaged places and of lost blocks; all of them are counted.
const LISTED: usize = 64;

/// Kind of a damaged place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Damaged {
    /// A block of data.
    Block,
    /// A page of metadata, with the name of its table.
    Page(&'static str),
    /// A copy of the superblock.
    Superblock,
}

/// A damage that was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Damage {
    /// Number of the damage since the pool was opened, from 1.
    pub number: u64,
    /// Kind of the damaged place.
    pub what: Damaged,
    /// Byte offset on the store.
    pub offset: u64,
    /// Volume that it belongs to, and its first block there: one of them, if several share the block.
    pub owner: Option<(VolumeId, u64)>,
    /// True if it has been repaired.
    pub repaired: bool,
}

/// Damages that have been found since the pool was opened.
#[derive(Default)]
pub(crate) struct DamageLog {
    pub(super) found: u64,
    pub(super) repaired: u64,
    /// Number of damaged places that remain: those that the last finished scrub left, and those found and not repaired since.
    pub(super) left: u64,
    /// Most recent damages.
    pub(super) list: VecDeque<Damage>,
    number: u64,
    /// Blocks without another copy so far: if a read finds one again, it is not counted again.
    pub(super) lost: Vec<(Slot, Digest)>,
}

impl DamageLog {
    /// Returns the number of damages that were found: of blocks, pages and superblocks.
    #[inline]
    pub(crate) fn found(&self) -> u64 {
        self.found
    }

    /// Returns the number of damages that were repaired.
    #[inline]
    pub(crate) fn repaired(&self) -> u64 {
        self.repaired
    }

    /// Returns the number of damaged places that remain.
    #[inline]
    pub(crate) fn left(&self) -> u64 {
        self.left
    }

    /// Returns the most recent damages.
    #[inline]
    pub(crate) fn list(&self) -> &VecDeque<Damage> {
        &self.list
    }

    /// Returns the blocks without another copy so far.
    #[inline]
    pub(crate) fn lost(&self) -> &[(Slot, Digest)] {
        &self.lost
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum RepairStage {
    Prove,
    Again,
    Memory,
    Journal,
    Other,
    Copy,
    Write,
    Sync(u64),
    ReadBack,
    Owner(Found),
}

/// Outcome of a repair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Found {
    /// The slot holds the right content: the error went away.
    Good,
    Repaired,
    Left,
}

/// Client of a block repair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum For {
    Reads,
    Scrub,
    /// The scrub, which had found the block before and knows another slot now.
    Again,
}

/// A request that waits for a block: its id, the number of the block in it, and the check bits of the digest in the map.
type RepairWaiter = (RequestId, u32, u32);

/// A block under repair.
pub(crate) struct BlockRepair {
    buffer: Option<BufferId>,
    /// Buffer into which it is read back.
    second: Option<BufferId>,
    at: RepairStage,
    in_flight: bool,
    /// Ownership check of the pool before the write.
    look: Option<Look>,
    digest: Option<Digest>,
    owner: Option<Key>,
    /// Another slot with the same content.
    other: Option<Slot>,
    waiters: Vec<RepairWaiter>,
    whom: For,
}

impl BlockRepair {
    pub(crate) fn new(buffer: Option<BufferId>, whom: For, other: Option<Slot>) -> BlockRepair {
        BlockRepair {
            buffer,
            second: None,
            at: RepairStage::Prove,
            in_flight: false,
            look: None,
            digest: None,
            owner: None,
            other,
            waiters: Vec::new(),
            whom,
        }
    }
}

impl BlockRepair {
    fn look_into_memory(&mut self, pool: &mut Pool, slot: Slot) -> RepairStep {
        self.at = RepairStage::Memory;
        if let (Some(known), Some(into)) = (pool.memory.cache().peek(slot), self.buffer) {
            pool.memory.buffers_mut().hold(known);
            self.second = Some(known);
            let segments = [into, known].map(Segment::Buffer);
            let op = IoOp::Merge { from: 0, to: 0, zero: false };
            pool.metadata.io_mut().begin(op, 0, 0, segments, Purpose::BlockRepair(slot));
            self.in_flight = true;
        }
        RepairStep::On
    }

    fn look_into_journal(&mut self, pool: &mut Pool, slot: Slot) -> RepairStep {
        self.at = RepairStage::Journal;
        if let Some(block) = self.digest.and_then(|digest| pool.durable.journal().find_inlined(slot, digest)) {
            read_at_for_repair(pool, slot, block * pool.metadata.geometry().block(), self.buffer);
            self.in_flight = true;
        }
        RepairStep::On
    }

    fn find_alternate(&mut self, pool: &mut Pool, slot: Slot) -> RepairStep {
        self.at = RepairStage::Other;
        let known = self.digest.and_then(|digest| pool.hints.index.lookup(pool.sharing_digest(digest)));
        let other = self.other.or(known.map(|hint| hint.slot));
        let other = other.filter(|&other| other != slot && pool.durable.space().contains(other));
        if let Some(other) = other {
            read_for_repair(pool, slot, other, self.buffer);
            self.in_flight = true;
        }
        RepairStep::On
    }

    /// Puts the buffer of a repair into the read cache.
    fn keep_repaired(&mut self, pool: &mut Pool, slot: Slot) {
        if let Some(buffer) = self.buffer.take() {
            pool.memory.keep_cached(slot, buffer, self.digest);
            pool.memory.release_evicted();
        }
    }

    fn take_from_dirty(&mut self, pool: &mut Pool, slot: Slot, found: Found) {
        pool.memory.end_dirty(slot);
        self.keep_repaired(pool, slot);
        self.at = RepairStage::Owner(found);
    }

    fn end_repair(&mut self, pool: &mut Pool, slot: Slot, found: Found) -> RepairStep {
        self.take_from_dirty(pool, slot, found);
        RepairStep::On
    }

    /// Reads the second copy of a slot, or the original of a second copy.
    fn look_for_copy(&mut self, pool: &mut Pool, slot: Slot) -> RepairStep {
        let other = match self.owner.and_then(|owner| pool.copied_from(owner)) {
            Some(first) => Some(first),
            None => match pool.copy_of(slot) {
                Ok(copy) => copy,
                Err(missing) if !pool.metadata.has_failed(missing.key) => {
                    pool.metadata.load(missing, None);
                    return RepairStep::Wait;
                }
                Err(_) => None,
            },
        };
        self.at = RepairStage::Copy;
        if let Some(other) = other.filter(|&other| other != slot && pool.durable.space().contains(other)) {
            read_for_repair(pool, slot, other, self.buffer);
            self.in_flight = true;
        }
        RepairStep::On
    }
}

fn read_for_repair(pool: &mut Pool, slot: Slot, from: Slot, buffer: Option<BufferId>) {
    read_at_for_repair(pool, slot, pool.slot_offset(from), buffer);
}

fn read_at_for_repair(pool: &mut Pool, slot: Slot, offset: u64, buffer: Option<BufferId>) {
    let block = pool.metadata.geometry().block();
    let segments = buffer.map(Segment::Buffer);
    pool.metadata.io_mut().begin(IoOp::ReadBlocks, offset, block, segments, Purpose::BlockRepair(slot));
}

impl Repairs {
    /// Repairs a failed block that requests wait for, and takes over the buffer.
    pub(crate) fn repair_for(
        &mut self,
        pool: &mut Pool,
        slot: Slot,
        buffer: BufferId,
        waiters: impl Iterator<Item = RepairWaiter>,
    ) {
        let mut repair = self.in_progress.remove(&slot).unwrap_or_else(|| BlockRepair::new(None, For::Reads, None));
        repair.waiters.extend(waiters);
        if repair.buffer.is_none() {
            // A repair that has ended except for its report begins again after the report.
            repair.buffer = Some(buffer);
        } else {
            pool.memory.buffers_mut().release(buffer);
            if matches!(repair.at, RepairStage::Write | RepairStage::Sync(_) | RepairStage::ReadBack) {
                self.answer_waiters(pool, &mut repair);
            }
        }
        self.in_progress.insert(slot, repair);
    }

    /// Repairs a block that was found to fail, where `other` should hold the same content. Takes over the buffer.
    pub(crate) fn repair_from(&mut self, pool: &mut Pool, slot: Slot, buffer: BufferId, other: Slot) {
        if self.is_repairing(slot) {
            return pool.memory.buffers_mut().release(buffer);
        }
        self.in_progress.insert(slot, BlockRepair::new(Some(buffer), For::Reads, Some(other)));
        pool.wake();
    }

    /// Repairs a block that the scrub found to fail. Takes over the buffer.
    pub(crate) fn repair_for_scrub(
        &mut self,
        pool: &mut Pool,
        slot: Slot,
        buffer: BufferId,
        whom: For,
        other: Option<Slot>,
    ) {
        // The search for other copies comes after the repairs have had their turn.
        pool.wake();
        match self.in_progress.get_mut(&slot) {
            // A read was faster.
            Some(repair) => {
                repair.whom = whom;
                pool.memory.buffers_mut().release(buffer);
            }
            None => drop(self.in_progress.insert(slot, BlockRepair::new(Some(buffer), whom, other))),
        }
    }

    /// Adds a request to the waiters of a slot under repair. Returns false if the slot is not, or if its repair has ended except for the report.
    pub(crate) fn join_repair(&mut self, slot: Slot, check: u32, id: RequestId, at: u32) -> bool {
        let Some(repair) = self.in_progress.get_mut(&slot) else { return false };
        // Until the content has come, it may still come for one more; afterwards the waiters have been answered.
        let joins = match repair.at {
            RepairStage::Prove | RepairStage::Again | RepairStage::Memory => true,
            RepairStage::Journal | RepairStage::Other | RepairStage::Copy => true,
            RepairStage::Write | RepairStage::Sync(_) | RepairStage::ReadBack | RepairStage::Owner(_) => false,
        };
        if joins {
            repair.waiters.push((id, at, check));
        }
        joins
    }

    /// Steps the repairs.
    pub(crate) fn step_repairs(&mut self, pool: &mut Pool) {
        if self.in_progress.is_empty() {
            return;
        }
        let slots: Vec<Slot> = self.in_progress.keys().copied().take(AT_ONCE).collect();
        for slot in slots {
            let Some(mut repair) = self.in_progress.remove(&slot) else { continue };
            let mut ended = false;
            while !repair.in_flight && !ended {
                match self.step_repair(pool, slot, &mut repair) {
                    RepairStep::On => {}
                    RepairStep::Wait => break,
                    RepairStep::End => ended = true,
                }
            }
            if ended {
                // The waiting repairs get their turn.
                pool.wake();
            } else {
                self.in_progress.insert(slot, repair);
            }
        }
    }

    fn step_repair(&mut self, pool: &mut Pool, slot: Slot, repair: &mut BlockRepair) -> RepairStep {
        match repair.at {
            // The slot has been freed and taken again since the damage was seen: its new block is in flight.
            RepairStage::Prove if pool.memory.is_dirty(slot) => self.give_up(pool, repair, Found::Good),
            RepairStage::Prove => match pool.proven_digest(slot) {
                Ok(Some((digest, owner))) if repair.buffer.is_some() => {
                    (repair.digest, repair.owner) = (Some(digest), Some(owner));
                    repair.at = RepairStage::Again;
                    read_for_repair(pool, slot, slot, repair.buffer);
                    repair.in_flight = true;
                    RepairStep::On
                }
                Err(missing) if !pool.metadata.has_failed(missing.key) => {
                    pool.metadata.load(missing, None);
                    RepairStep::Wait
                }
                // Neither delta nor summary gives its content: a slot that is no longer in use is no damage.
                Ok(None) => self.give_up(pool, repair, Found::Good),
                _ => self.give_up(pool, repair, Found::Left),
            },
            // These stages are in flight until their read fails.
            RepairStage::Again => repair.look_into_memory(pool, slot),
            RepairStage::Memory => repair.look_into_journal(pool, slot),
            RepairStage::Journal => repair.find_alternate(pool, slot),
            RepairStage::Other => repair.look_for_copy(pool, slot),
            RepairStage::Copy => {
                if let Some(digest) = repair.digest {
                    // No block may share it any more: later writes of this content make a new copy.
                    pool.hints.index.remove(pool.sharing_digest(digest), slot);
                }
                self.give_up(pool, repair, Found::Left)
            }
            RepairStage::Write => {
                if !pool.may_repair() {
                    repair.keep_repaired(pool, slot);
                    return self.give_up(pool, repair, Found::Left);
                }
                let Some(buffer) = repair.buffer else { return self.give_up(pool, repair, Found::Left) };
                // The block may have failed because another owner has the pool now and wrote to it.
                let look = *repair.look.get_or_insert_with(|| pool.look_at_owner());
                if !pool.is_ours(look) {
                    return RepairStep::Wait;
                }
                let block = pool.metadata.geometry().block();
                let offset = pool.metadata.geometry().slot_block(slot.0) * block;
                pool.memory.set_dirty(slot, buffer);
                pool.metadata.io_mut().begin(
                    IoOp::Write,
                    offset,
                    block,
                    [Segment::Buffer(buffer)],
                    Purpose::BlockRepair(slot),
                );
                repair.in_flight = true;
                RepairStep::On
            }
            RepairStage::Sync(_) if pool.state.read_only() => repair.end_repair(pool, slot, Found::Left),
            RepairStage::Sync(barrier) if !pool.durable.journal().has_synced(barrier) => RepairStep::Wait,
            RepairStage::Sync(_) => {
                let Some(second) = pool.any_buffer() else { return RepairStep::Wait };
                repair.second = Some(second);
                repair.at = RepairStage::ReadBack;
                read_for_repair(pool, slot, slot, repair.second);
                repair.in_flight = true;
                RepairStep::On
            }
            RepairStage::ReadBack => repair.end_repair(pool, slot, Found::Left),
            RepairStage::Owner(found) => self.report_repair(pool, slot, repair, found),
        }
    }

    /// Handles an I/O of a repair that is done.
    pub(crate) fn repaired(&mut self, pool: &mut Pool, slot: Slot, result: Result<Outcome<'_>, IoError>) {
        let Some(mut repair) = self.in_progress.remove(&slot) else { return };
        repair.in_flight = false;
        let good = match result {
            Ok(Outcome::Blocks(&[content])) => !content.zero && Some(content.digest) == repair.digest,
            _ => false,
        };
        if matches!(repair.at, RepairStage::Memory | RepairStage::ReadBack)
            && let Some(second) = repair.second.take()
        {
            pool.memory.buffers_mut().release(second);
        }
        match repair.at {
            RepairStage::Again if good => {
                let matched = self.answer_waiters(pool, &mut repair);
                // If the slot holds the content of its summary, the map refers to the wrong slot.
                repair.at = RepairStage::Owner(if matched { Found::Good } else { Found::Left });
                repair.keep_repaired(pool, slot);
            }
            RepairStage::Memory | RepairStage::Journal | RepairStage::Other | RepairStage::Copy if good => {
                self.answer_waiters(pool, &mut repair);
                repair.at = RepairStage::Write;
            }
            RepairStage::Write if result.is_ok() => {
                let barrier = pool.durable.journal_mut().request_sync();
                repair.at = RepairStage::Sync(barrier);
            }
            RepairStage::Write => repair.take_from_dirty(pool, slot, Found::Left),
            RepairStage::ReadBack => {
                repair.take_from_dirty(pool, slot, if good { Found::Repaired } else { Found::Left });
            }
            _ => {}
        }
        self.in_progress.insert(slot, repair);
    }

    /// Hands the proven content to all waiters. Returns true if the maps of all of them agree with it.
    fn answer_waiters(&mut self, pool: &mut Pool, repair: &mut BlockRepair) -> bool {
        let (Some(buffer), Some(digest)) = (repair.buffer, repair.digest) else { return false };
        let check = check_bits(digest);
        pool.memory.buffers_mut().set_check(buffer, check);
        let mut all = true;
        for (id, at, expected) in core::mem::take(&mut repair.waiters) {
            let good = expected == check;
            all &= good;
            if good {
                pool.memory.buffers_mut().hold(buffer);
            }
            self.arrived.push(Arrived { request: id, at, buffer: good.then_some(buffer) });
        }
        all
    }

    /// Ends a repair without another copy, or whose content cannot be written: the remaining waiters get an error.
    fn give_up(&mut self, pool: &mut Pool, repair: &mut BlockRepair, found: Found) -> RepairStep {
        if let Some(buffer) = repair.buffer.take() {
            pool.memory.buffers_mut().release(buffer);
        }
        let waiters = core::mem::take(&mut repair.waiters);
        self.arrived.extend(waiters.iter().map(|&(request, at, _)| Arrived { request, at, buffer: None }));
        repair.at = RepairStage::Owner(found);
        RepairStep::On
    }

    /// Finds the owner of the block, and reports the outcome.
    fn report_repair(&mut self, pool: &mut Pool, slot: Slot, repair: &mut BlockRepair, found: Found) -> RepairStep {
        let mut owner = None;
        if found != Found::Good
            && let Some(key) = repair.owner
            && let Some(volume) = pool.volume_index(key.volume())
        {
            match pool.resolve(volume, key) {
                Ok(entry) if entry.slot() == Some(slot) => owner = Some((key.volume(), key.lba())),
                Err(Unresolved::Missing(missing)) if !pool.metadata.has_failed(missing.key) => {
                    pool.metadata.load(missing, None);
                    return RepairStep::Wait;
                }
                _ => {}
            }
        }
        let known = self.damages.lost.iter().any(|&(lost, digest)| lost == slot && Some(digest) == repair.digest);
        let counts = !known && repair.whom != For::Again;
        let offset = pool.metadata.geometry().slot_block(slot.0) * pool.metadata.geometry().block();
        match found {
            Found::Good => self.damages.lost.retain(|&(lost, _)| lost != slot),
            Found::Repaired => {
                self.damages.found += u64::from(counts);
                self.damages.repaired += 1;
                self.damages.left = self.damages.left.saturating_sub(u64::from(!counts));
                self.damages.lost.retain(|&(lost, _)| lost != slot);
                self.note_damage(Damaged::Block, offset, owner, true);
            }
            Found::Left => {
                self.damages.found += u64::from(counts);
                self.damages.left += u64::from(counts);
                if let (false, Some(digest)) = (known, repair.digest) {
                    self.damages.lost.retain(|&(lost, _)| lost != slot);
                    if self.damages.lost.len() == LISTED {
                        self.damages.lost.remove(0);
                    }
                    self.damages.lost.push((slot, digest));
                }
                if counts || repair.whom == For::Scrub {
                    self.note_damage(Damaged::Block, offset, owner, false);
                }
            }
        }
        if repair.whom != For::Reads {
            self.ended.push_back((repair.whom, found));
        }
        if repair.buffer.is_some() {
            // A read that was in progress has failed meanwhile.
            (repair.at, repair.whom, repair.other) = (RepairStage::Prove, For::Reads, None);
            return RepairStep::On;
        }
        RepairStep::End
    }

    /// Counts and lists a damage found by the scrub that is not a block.
    pub(crate) fn note_found(&mut self, what: Damaged, offset: u64, owner: Option<(VolumeId, u64)>, repaired: bool) {
        self.damages.found += 1;
        self.damages.repaired += u64::from(repaired);
        self.damages.left += u64::from(!repaired);
        self.note_damage(what, offset, owner, repaired);
    }

    /// Adopts the number of damages that a complete scrub has left.
    pub(crate) fn set_left(&mut self, left: u64) {
        self.damages.left = left;
    }

    /// Adds a damage to the list.
    fn note_damage(&mut self, what: Damaged, offset: u64, owner: Option<(VolumeId, u64)>, repaired: bool) {
        let damages = &mut self.damages;
        if damages.list.len() == LISTED {
            damages.list.pop_front();
        }
        damages.number += 1;
        damages.list.push_back(Damage { number: damages.number, what, offset, owner, repaired });
    }
}

enum RepairStep {
    On,
    Wait,
    End,
}
