//! Second copies: redundant copies of blocks that many references share.
//!
//! Deduplication makes the only copy of a block precious: if it rots, all blocks that share it are lost. With a threshold set, a block with more
//! references than the threshold gets a second copy in a slot of its own.
//!
//! ```text
//! made by    the scrub, from content that it has just read and verified
//! stored in  the map of a hidden volume: its block n is the second copy of slot n
//! used by    repairs: of a slot by its second copy, of a second copy by the slot
//! dropped by the scrub, where a slot needs none any more; all of them at once, when slots run short
//! ```
//!
//! The volume is authoritative like any other: journaled, checkpointed, counted. Its block n equals slot n only as a hint, which the digest must
//! prove before any use: slots are freed and reused without a check of their second copies.

use super::Repairs;
use crate::api::*;
use crate::format::entry::{Key, Slot};
use crate::format::record::Change;
use crate::format::superblock::TreeId;
use crate::format::volume::Keeps;
use crate::metadata::page_cache::Region;
use crate::metadata::tree::Unresolved;
use crate::metadata::tree::{Missing, Walk, lookup};
use crate::pool::Pool;
use crate::pool::change::Put;
use crate::pool::metadata_reservation::Asked;
use crate::pool::metadata_reservation::Availability;
use crate::pool::state::{LoadSnapshot, Phase};
use crate::pool::volumes::VolumeChange;
use crate::space::SlotState;

/// Divisor of the slots: no second copies are made where fewer than one in N is free beyond the reserve.
const SPACE_TO_MAKE: u64 = 8;
/// Divisor of the slots: all second copies are given back where fewer than one in N is free beyond the reserve.
const SPACE_TO_KEEP: u64 = 16;

/// Change that a slot needs for its second copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Copying {
    Leave,
    Make,
    Drop,
}

impl Pool {
    /// Returns the number of data blocks that are second copies, as of the last merge.
    pub(crate) fn second_copies_used(&self) -> u64 {
        self.hidden_blocks_used(Keeps::SecondCopies)
    }

    /// Returns the number of blocks of hidden volumes of this kind, as of the last merge.
    pub(crate) fn hidden_blocks_used(&self, keeps: Keeps) -> u64 {
        let hidden = self.durable.volumes.iter().filter(|volume| volume.keeps == Some(keeps));
        hidden.map(|volume| volume.logical_blocks_used).sum()
    }

    /// Returns the index of the volume of second copies in the list of volumes, if it is usable already.
    pub(crate) fn copies_volume(&self) -> Option<usize> {
        self.volume_index(self.durable.copies?)
    }

    pub(crate) fn slots_to_spare(&self, one_in: u64) -> u64 {
        let geometry = &self.durable.metadata.geometry;
        geometry.spare_slots() + geometry.slots() / one_in
    }

    /// Returns the slot that holds the second copy of a slot, or held it.
    pub(crate) fn copy_of(&mut self, slot: Slot) -> Result<Option<Slot>, Missing> {
        let Some(at) = self.copies_volume() else { return Ok(None) };
        let volume = &self.durable.volumes[at];
        if slot.0 >= volume.size / self.durable.metadata.geometry.block() {
            return Ok(None);
        }
        match self.map_entry(at, Key::new(volume.id, slot.0)) {
            Ok(entry) => Ok(entry.slot()),
            Err(Unresolved::Missing(missing)) => Err(missing),
            Err(Unresolved::Damaged) => Ok(None),
        }
    }
}

impl Pool {
    /// Returns the change that a slot needs for its second copy; the slot must hold `digest`, or no content any more. Unreadable pages need no
    /// change.
    pub(crate) fn copying(&mut self, slot: Slot, digest: Option<Digest>) -> Result<Copying, Missing> {
        if self.copies_volume().is_none() || !self.may_repair() {
            return Ok(Copying::Leave);
        }
        let copy = self.copy_of(slot)?;
        let Some(digest) = digest.filter(|_| self.properties.second_copies > 0) else {
            return Ok(if copy.is_some() { Copying::Drop } else { Copying::Leave });
        };
        let needed = self.references(slot)? > self.properties.second_copies;
        match copy {
            None if needed => Ok(Copying::Make),
            None => Ok(Copying::Leave),
            Some(_) if !needed => Ok(Copying::Drop),
            Some(copy) => {
                let found = self.proven_digest(copy)?;
                Ok(if found.is_some_and(|(found, _)| found == digest) { Copying::Leave } else { Copying::Make })
            }
        }
    }

    /// Returns the number of references to a slot, as of the last merge.
    fn references(&mut self, slot: Slot) -> Result<u32, Missing> {
        match self.slot_state(slot)? {
            SlotState::Shared => {}
            SlotState::Single => return Ok(1),
            SlotState::Free | SlotState::Held => return Ok(0),
        }
        let per_leaf = self.durable.metadata.geometry.block() / 4;
        let root = self.durable.roots[TreeId::Counts as usize];
        match lookup(&mut self.durable.metadata, Region::Metadata, root, slot.0 / per_leaf) {
            Walk::Leaf(page) => Ok(crate::format::bytes::u32_at(
                self.durable.metadata.pages.bytes(page),
                (slot.0 % per_leaf * 4) as usize,
            )),
            Walk::Absent(_) => Ok(0),
            Walk::Missing(missing) => Err(missing),
        }
    }

    /// Gives back all blocks of the hidden volume at this index of the list. Returns false if there is no space for the clear.
    pub(crate) fn clear_hidden(&mut self, at: usize, load: &LoadSnapshot) -> bool {
        let volume = &self.durable.volumes[at];
        let end = volume.size / self.durable.metadata.geometry.block();
        let (start, stop) = (Key::new(volume.id, 0), Key::new(volume.id, end));
        let cleared = self.cleared(start, stop);
        if !matches!(self.space_for(&Asked::clear(1, cleared), load.clears_left), Availability::Now) {
            return false;
        }
        self.durable.journal.changes.push(Change::Clear { key: start, end });
        self.clear_keys(start, stop);
        self.state.last_change = self.state.now;
        self.request_checkpoint();
        true
    }
}

impl Repairs {
    /// Maintains the volume of second copies: resizes it to the pool, deletes it when it is no longer wanted, and gives its blocks back when slots
    /// run short.
    pub(crate) fn step_copies(&mut self, pool: &mut Pool, load: &LoadSnapshot) {
        let Some(at) = pool.copies_volume() else { return };
        if pool.state.phase != Phase::Serving || !pool.takes_changes() || load.writes_blocked {
            return;
        }
        let (volume, slots) = (pool.durable.volumes[at].id, pool.durable.metadata.geometry.slots());
        if pool.properties.second_copies == 0 {
            let _ = pool.change_volume(VolumeChange::Delete { volume }, load.clears_left);
        } else if pool.durable.volumes[at].size < slots * pool.durable.metadata.geometry.block() {
            let _ = pool.change_volume(VolumeChange::Resize { volume, blocks: slots }, load.clears_left);
        } else if pool.durable.space.free() < pool.slots_to_spare(SPACE_TO_KEEP) {
            self.give_back_copies(pool, load);
        }
    }

    /// Drops all second copies. Returns false if there are none, or no metadata space for the clear.
    pub(crate) fn give_back_copies(&mut self, pool: &mut Pool, load: &LoadSnapshot) -> bool {
        if !self.has_copies {
            return false;
        }
        let Some(at) = pool.copies_volume() else { return false };
        if !pool.clear_hidden(at, load) {
            return false;
        }
        self.has_copies = false;
        true
    }

    /// Writes a second copy of a slot from a buffer with its verified content. Takes over the buffer, or releases it if there is no space.
    pub(crate) fn make_copy(
        &mut self,
        pool: &mut Pool,
        load: &LoadSnapshot,
        slot: Slot,
        digest: Digest,
        buffer: BufferId,
    ) {
        let space = pool.durable.space.free() >= pool.slots_to_spare(SPACE_TO_MAKE) && pool.durable.space.ready() > 0;
        let Some(volume) = Repairs::space_for_copies(pool, load, space).filter(|_| !load.writes_blocked) else {
            return pool.memory.buffers.release(buffer);
        };
        // The first bytes of the content are no longer known, and it has no waiters: it is never inlined in the journal.
        pool.put_alone(
            Key::new(volume, slot.0),
            Put::Fresh { digest, buffer, may_travel: false, sequential: false, offline: false },
        );
        self.has_copies = true;
    }

    /// Drops the second copy of a slot, if there is metadata space for the change.
    pub(crate) fn drop_copy(pool: &mut Pool, load: &LoadSnapshot, slot: Slot) {
        if let Some(volume) = Repairs::space_for_copies(pool, load, true) {
            pool.put_alone(Key::new(volume, slot.0), Put::Zero);
        }
    }

    /// Returns the volume of second copies, if its map can be changed without waiting.
    fn space_for_copies(pool: &mut Pool, load: &LoadSnapshot, space: bool) -> Option<VolumeId> {
        let at = pool.copies_volume().filter(|_| space && pool.takes_changes())?;
        let volume = pool.durable.volumes[at].id;
        matches!(pool.space_for(&Asked::scattered(2), load.clears_left), Availability::Now).then_some(volume)
    }
}
