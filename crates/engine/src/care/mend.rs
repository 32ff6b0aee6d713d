//! Blocks that fail their check, or cannot be read: the right content from another copy, and back into the slot. For reads, and
//! for the scrub.
//!
//! ```text
//! Prove     the 128 bits that the slot must hold: from a delta, or from its summary
//! Again     the slot is read once more, by itself: a run fails as a whole, and some errors go away
//! Memory    the content in the read cache is copied
//! Journal   the journal carried it, and no sync has covered its slot since (`carried.rs`): it is read from there
//! Other     another slot that the index, or the scrub, knows for the same digest is read
//! Copy      its second copy is read (`copies.rs`)
//! Write     the content is proven by all its bits: whoever waits is answered, and the slot is written in place
//! Sync      until a sync covers the write
//! ReadBack  the slot is read once more: only now the block counts as repaired
//! Owner     which block of which volume it is, if the map agrees with the summary
//! ```
//!
//! Nothing is written but what the slot must hold: a crash at any moment leaves the damage, or its end. A slot under repair is not
//! given back to the allocator, and from Write to ReadBack its content is read from memory, as that of any dirty block.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::{Arrived, Care};
use crate::api::*;
use crate::format::entry::{Key, Slot, check_bits};
use crate::metadata::io::Purpose;
use crate::metadata::tree::Unresolved;
use crate::pool::Pool;
use crate::pool::standing::Look;

/// Blocks that are under repair at once; the others wait.
const AT_ONCE: usize = 8;
/// Damages that are listed, and blocks that are remembered as lost; all are counted.
const LISTED: usize = 64;

/// What is damaged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Damaged {
    /// A block of data.
    Block,
    /// A page of metadata: of this table.
    Page(&'static str),
    /// A copy of the superblock.
    Superblock,
}

/// A damage that was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Damage {
    /// Counts the damages since the pool was opened, from 1.
    pub number: u64,
    /// What.
    pub what: Damaged,
    /// Byte offset on the store.
    pub offset: u64,
    /// The volume that it belongs to, and the first of its blocks: one of them, if several share the block.
    pub owner: Option<(VolumeId, u64)>,
    /// Whether it has been repaired.
    pub repaired: bool,
}

/// What has been found since the pool was opened.
#[derive(Default)]
pub(crate) struct Damages {
    pub found: u64,
    pub repaired: u64,
    /// Damages that still are: what the last finished scrub left, and what was found and not repaired since.
    pub left: u64,
    /// The last ones.
    pub list: VecDeque<Damage>,
    number: u64,
    /// Blocks without another copy so far: found again by a read they are not counted again.
    pub lost: Vec<(Slot, Digest)>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum At {
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

/// What it came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Found {
    /// The slot holds what it must: the error went away.
    Good,
    Repaired,
    Left,
}

/// For whom a block is mended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum For {
    Reads,
    Scrub,
    /// For the scrub, which had found it before and knows another slot now.
    Again,
}

/// A request that waits for a block: which of its blocks, and what the map says of the digest.
type Waiter = (RequestId, u32, u32);

/// A block under repair.
pub(crate) struct Mend {
    buffer: Option<BufferId>,
    /// Where it is read back.
    second: Option<BufferId>,
    at: At,
    in_flight: bool,
    /// The look at who has the pool, before it is written.
    look: Option<Look>,
    digest: Option<Digest>,
    owner: Option<Key>,
    /// Another slot that holds the same.
    other: Option<Slot>,
    waiters: Vec<Waiter>,
    whom: For,
}

impl Mend {
    pub(crate) fn new(buffer: Option<BufferId>, whom: For, other: Option<Slot>) -> Mend {
        Mend {
            buffer,
            second: None,
            at: At::Prove,
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

impl Pool {
    /// Whether repairs may be written.
    pub(crate) fn may_mend(&self) -> bool {
        !self.read_only && !self.untouched && !self.reads_only
    }

    fn read_for_mend(&mut self, slot: Slot, from: Slot, buffer: Option<BufferId>) {
        self.read_at_for_mend(slot, self.slot_offset(from), buffer);
    }

    fn read_at_for_mend(&mut self, slot: Slot, offset: u64, buffer: Option<BufferId>) {
        let block = self.metadata.geometry.block();
        let segments = buffer.map(Segment::Buffer);
        self.metadata.io.begin(IoOp::ReadBlocks, offset, block, segments, Purpose::Mend(slot));
    }

    fn look_into_memory(&mut self, slot: Slot, mend: &mut Mend) -> MendStep {
        mend.at = At::Memory;
        if let (Some(known), Some(into)) = (self.cache.peek(slot), mend.buffer) {
            self.buffers.hold(known);
            mend.second = Some(known);
            let segments = [into, known].map(Segment::Buffer);
            let op = IoOp::Merge { from: 0, to: 0, zero: false };
            self.metadata.io.begin(op, 0, 0, segments, Purpose::Mend(slot));
            mend.in_flight = true;
        }
        MendStep::On
    }

    fn look_into_journal(&mut self, slot: Slot, mend: &mut Mend) -> MendStep {
        mend.at = At::Journal;
        if let Some(block) = mend.digest.and_then(|digest| self.carried_copies.find(slot, digest)) {
            self.read_at_for_mend(slot, block * self.metadata.geometry.block(), mend.buffer);
            mend.in_flight = true;
        }
        MendStep::On
    }

    fn look_elsewhere(&mut self, slot: Slot, mend: &mut Mend) -> MendStep {
        mend.at = At::Other;
        let known = mend.digest.and_then(|digest| self.index.lookup(self.sharing_digest(digest)));
        let other = mend.other.or(known.map(|hint| hint.slot));
        let other = other.filter(|&other| other != slot && self.space.contains(other));
        if let Some(other) = other {
            self.read_for_mend(slot, other, mend.buffer);
            mend.in_flight = true;
        }
        MendStep::On
    }

    /// The buffer goes into the read cache.
    fn keep_mended(&mut self, slot: Slot, mend: &mut Mend) {
        if let Some(buffer) = mend.buffer.take() {
            self.keep_cached(slot, buffer, mend.digest);
            self.release_evicted();
        }
    }

    fn take_from_dirty(&mut self, slot: Slot, mend: &mut Mend, found: Found) {
        self.dirty.remove(&slot);
        self.keep_mended(slot, mend);
        mend.at = At::Owner(found);
    }

    fn end_mending(&mut self, slot: Slot, mend: &mut Mend, found: Found) -> MendStep {
        self.take_from_dirty(slot, mend, found);
        MendStep::On
    }
}

impl Pool {
    /// Reads the second copy, or what a second copy was made from.
    fn look_for_copy(&mut self, slot: Slot, mend: &mut Mend) -> MendStep {
        let other = match mend.owner.and_then(|owner| self.copied_from(owner)) {
            Some(first) => Some(first),
            None => match self.copy_of(slot) {
                Ok(copy) => copy,
                Err(missing) if !self.failed_pages.contains(&missing.key) => {
                    self.metadata.load(missing, None);
                    return MendStep::Wait;
                }
                Err(_) => None,
            },
        };
        mend.at = At::Copy;
        if let Some(other) = other.filter(|&other| other != slot && self.space.contains(other)) {
            self.read_for_mend(slot, other, mend.buffer);
            mend.in_flight = true;
        }
        MendStep::On
    }
}

impl Care {
    /// Requests wait for a block that has failed; the buffer is the block's from here on.
    pub(crate) fn mend_for(
        &mut self,
        pool: &mut Pool,
        slot: Slot,
        buffer: BufferId,
        waiters: impl Iterator<Item = Waiter>,
    ) {
        let mut mend = self.mends.remove(&slot).unwrap_or_else(|| Mend::new(None, For::Reads, None));
        mend.waiters.extend(waiters);
        if mend.buffer.is_none() {
            // One that is over but for the report begins again after that.
            mend.buffer = Some(buffer);
        } else {
            pool.buffers.release(buffer);
            if matches!(mend.at, At::Write | At::Sync(_) | At::ReadBack) {
                self.answer_waiters(pool, &mut mend);
            }
        }
        self.mends.insert(slot, mend);
    }

    /// A block has been found to fail, and `other` should hold the same. The buffer is the block's from here on.
    pub(crate) fn mend_from(&mut self, pool: &mut Pool, slot: Slot, buffer: BufferId, other: Slot) {
        if self.mends(slot) {
            return pool.buffers.release(buffer);
        }
        self.mends.insert(slot, Mend::new(Some(buffer), For::Reads, Some(other)));
        pool.needs_pump = true;
    }

    /// The scrub has found a block that fails. The buffer is the block's from here on.
    pub(crate) fn mend_for_scrub(
        &mut self,
        pool: &mut Pool,
        slot: Slot,
        buffer: BufferId,
        whom: For,
        other: Option<Slot>,
    ) {
        // The search comes after the repairs have had their turn.
        pool.needs_pump = true;
        match self.mends.get_mut(&slot) {
            // A read has been faster.
            Some(mend) => {
                mend.whom = whom;
                pool.buffers.release(buffer);
            }
            None => drop(self.mends.insert(slot, Mend::new(Some(buffer), whom, other))),
        }
    }

    /// Lets a request wait for a slot that is under repair; false if it is not, or if that is over but for the report.
    pub(crate) fn join_mend(&mut self, slot: Slot, check: u32, id: RequestId, at: u32) -> bool {
        let Some(mend) = self.mends.get_mut(&slot) else { return false };
        let joins = matches!(mend.at, At::Prove | At::Again | At::Memory | At::Other | At::Copy);
        if joins {
            mend.waiters.push((id, at, check));
        }
        joins
    }

    /// Moves the repairs on.
    pub(crate) fn step_mends(&mut self, pool: &mut Pool) {
        if self.mends.is_empty() {
            return;
        }
        let slots: Vec<Slot> = self.mends.keys().copied().take(AT_ONCE).collect();
        for slot in slots {
            let Some(mut mend) = self.mends.remove(&slot) else { continue };
            let mut ended = false;
            while !mend.in_flight && !ended {
                match self.step_mend(pool, slot, &mut mend) {
                    MendStep::On => {}
                    MendStep::Wait => break,
                    MendStep::End => ended = true,
                }
            }
            if ended {
                // Others may have their turn.
                pool.needs_pump = true;
            } else {
                self.mends.insert(slot, mend);
            }
        }
    }

    fn step_mend(&mut self, pool: &mut Pool, slot: Slot, mend: &mut Mend) -> MendStep {
        match mend.at {
            // The slot has been given back and taken again since somebody saw it damaged: its new block is on its way.
            At::Prove if pool.dirty.contains_key(&slot) => self.give_up(pool, mend, Found::Good),
            At::Prove => match pool.proven_digest(slot) {
                Ok(Some((digest, owner))) if mend.buffer.is_some() => {
                    (mend.digest, mend.owner) = (Some(digest), Some(owner));
                    mend.at = At::Again;
                    pool.read_for_mend(slot, slot, mend.buffer);
                    mend.in_flight = true;
                    MendStep::On
                }
                Err(missing) if !pool.failed_pages.contains(&missing.key) => {
                    pool.metadata.load(missing, None);
                    MendStep::Wait
                }
                // Nothing says what it must hold. One that is no longer in use is no damage.
                Ok(None) => self.give_up(pool, mend, Found::Good),
                _ => self.give_up(pool, mend, Found::Left),
            },
            // These are in flight until they have failed.
            At::Again => pool.look_into_memory(slot, mend),
            At::Memory => pool.look_into_journal(slot, mend),
            At::Journal => pool.look_elsewhere(slot, mend),
            At::Other => pool.look_for_copy(slot, mend),
            At::Copy => {
                if let Some(digest) = mend.digest {
                    // Nobody shall share it: what is written with this content from here on is a new copy.
                    pool.index.remove(pool.sharing_digest(digest), slot);
                }
                self.give_up(pool, mend, Found::Left)
            }
            At::Write => {
                if !pool.may_mend() {
                    pool.keep_mended(slot, mend);
                    return self.give_up(pool, mend, Found::Left);
                }
                let Some(buffer) = mend.buffer else { return self.give_up(pool, mend, Found::Left) };
                // What failed may be what another has written who has the pool now.
                let look = *mend.look.get_or_insert_with(|| pool.look_at_owner());
                if !pool.is_ours(look) {
                    return MendStep::Wait;
                }
                let block = pool.metadata.geometry.block();
                let offset = pool.metadata.geometry.slot_block(slot.0) * block;
                pool.dirty.insert(slot, buffer);
                pool.metadata.io.begin(IoOp::Write, offset, block, [Segment::Buffer(buffer)], Purpose::Mend(slot));
                mend.in_flight = true;
                MendStep::On
            }
            At::Sync(_) if pool.read_only => pool.end_mending(slot, mend, Found::Left),
            At::Sync(barrier) if pool.syncs.finished < barrier => MendStep::Wait,
            At::Sync(_) => {
                let Some(second) = pool.any_buffer() else { return MendStep::Wait };
                mend.second = Some(second);
                mend.at = At::ReadBack;
                pool.read_for_mend(slot, slot, mend.second);
                mend.in_flight = true;
                MendStep::On
            }
            At::ReadBack => pool.end_mending(slot, mend, Found::Left),
            At::Owner(found) => self.report_mend(pool, slot, mend, found),
        }
    }

    /// An I/O of a repair is done.
    pub(crate) fn mended(&mut self, pool: &mut Pool, slot: Slot, result: Result<Outcome<'_>, IoError>) {
        let Some(mut mend) = self.mends.remove(&slot) else { return };
        mend.in_flight = false;
        let good = match result {
            Ok(Outcome::Blocks(&[content])) => !content.zero && Some(content.digest) == mend.digest,
            _ => false,
        };
        if matches!(mend.at, At::Memory | At::ReadBack)
            && let Some(second) = mend.second.take()
        {
            pool.buffers.release(second);
        }
        match mend.at {
            At::Again if good => {
                let matched = self.answer_waiters(pool, &mut mend);
                // It holds what its summary says: then it is the map that leads to the wrong slot.
                mend.at = At::Owner(if matched { Found::Good } else { Found::Left });
                pool.keep_mended(slot, &mut mend);
            }
            At::Memory | At::Journal | At::Other | At::Copy if good => {
                self.answer_waiters(pool, &mut mend);
                mend.at = At::Write;
            }
            At::Write if result.is_ok() => {
                let barrier = pool.syncs.submitted + 1;
                pool.syncs.wanted = pool.syncs.wanted.max(barrier);
                mend.at = At::Sync(barrier);
            }
            At::Write => pool.take_from_dirty(slot, &mut mend, Found::Left),
            At::ReadBack => {
                pool.take_from_dirty(slot, &mut mend, if good { Found::Repaired } else { Found::Left });
            }
            _ => {}
        }
        self.mends.insert(slot, mend);
    }

    /// The content is proven: whoever waits gets it. Whether the map of all of them agrees with it.
    fn answer_waiters(&mut self, pool: &mut Pool, mend: &mut Mend) -> bool {
        let (Some(buffer), Some(digest)) = (mend.buffer, mend.digest) else { return false };
        let check = check_bits(digest);
        pool.buffers.set_check(buffer, check);
        let mut all = true;
        for (id, at, expected) in core::mem::take(&mut mend.waiters) {
            let good = expected == check;
            all &= good;
            if good {
                pool.buffers.hold(buffer);
            }
            self.arrived.push(Arrived { request: id, at, buffer: good.then_some(buffer) });
        }
        all
    }

    /// There is no other copy, or it cannot be written: whoever still waits gets an error.
    fn give_up(&mut self, pool: &mut Pool, mend: &mut Mend, found: Found) -> MendStep {
        if let Some(buffer) = mend.buffer.take() {
            pool.buffers.release(buffer);
        }
        let waiters = core::mem::take(&mut mend.waiters);
        self.arrived.extend(waiters.iter().map(|&(request, at, _)| Arrived { request, at, buffer: None }));
        mend.at = At::Owner(found);
        MendStep::On
    }

    /// Finds the owner, and tells.
    fn report_mend(&mut self, pool: &mut Pool, slot: Slot, mend: &mut Mend, found: Found) -> MendStep {
        let mut owner = None;
        if found != Found::Good
            && let Some(key) = mend.owner
            && let Some(volume) = pool.volume_index(key.volume())
        {
            match pool.resolve(volume, key) {
                Ok(entry) if entry.slot() == Some(slot) => owner = Some((key.volume(), key.lba())),
                Err(Unresolved::Missing(missing)) if !pool.failed_pages.contains(&missing.key) => {
                    pool.metadata.load(missing, None);
                    return MendStep::Wait;
                }
                _ => {}
            }
        }
        let known = self.damages.lost.iter().any(|&(lost, digest)| lost == slot && Some(digest) == mend.digest);
        let counts = !known && mend.whom != For::Again;
        let offset = pool.metadata.geometry.slot_block(slot.0) * pool.metadata.geometry.block();
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
                if let (false, Some(digest)) = (known, mend.digest) {
                    self.damages.lost.retain(|&(lost, _)| lost != slot);
                    if self.damages.lost.len() == LISTED {
                        self.damages.lost.remove(0);
                    }
                    self.damages.lost.push((slot, digest));
                }
                if counts || mend.whom == For::Scrub {
                    self.note_damage(Damaged::Block, offset, owner, false);
                }
            }
        }
        if mend.whom != For::Reads {
            self.ended.push_back((mend.whom, found));
        }
        if mend.buffer.is_some() {
            // A read that was under way has failed meanwhile.
            (mend.at, mend.whom, mend.other) = (At::Prove, For::Reads, None);
            return MendStep::On;
        }
        MendStep::End
    }

    /// The scrub has found a damage that is no block: it is counted and listed.
    pub(crate) fn note_found(&mut self, what: Damaged, offset: u64, owner: Option<(VolumeId, u64)>, repaired: bool) {
        self.damages.found += 1;
        self.damages.repaired += u64::from(repaired);
        self.damages.left += u64::from(!repaired);
        self.note_damage(what, offset, owner, repaired);
    }

    /// Takes over how many damages a scrub that read everything has left.
    pub(crate) fn set_left(&mut self, left: u64) {
        self.damages.left = left;
    }

    /// Lists a damage.
    fn note_damage(&mut self, what: Damaged, offset: u64, owner: Option<(VolumeId, u64)>, repaired: bool) {
        let damages = &mut self.damages;
        if damages.list.len() == LISTED {
            damages.list.pop_front();
        }
        damages.number += 1;
        damages.list.push_back(Damage { number: damages.number, what, offset, owner, repaired });
    }
}

enum MendStep {
    On,
    Wait,
    End,
}
