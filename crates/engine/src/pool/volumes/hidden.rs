//! Hidden volumes of the pool: second copies of blocks, and replicas. Users do not see them, and their blocks are cleared for them where space is short.

use crate::api::Digest;
use crate::format::entry::Key;
use crate::format::entry::Slot;
use crate::format::record::Change;
use crate::format::superblock::TreeId;
use crate::format::volume::Keeps;
use crate::metadata::page_cache::Region;
use crate::metadata::tree::Missing;
use crate::metadata::tree::Unresolved;
use crate::metadata::tree::Walk;
use crate::metadata::tree::lookup;
use crate::pool::Pool;
use crate::pool::metadata_reservation::Asked;
use crate::pool::metadata_reservation::Availability;
use crate::pool::state::LoadSnapshot;
use crate::space::SlotState;

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
        self.durable.volumes.mapped().second_copies
    }

    /// Returns the number of data blocks that are replicas, as of the last merge.
    pub(crate) fn replicas_used(&self) -> u64 {
        self.durable.volumes.mapped().replicas
    }

    /// Returns the index of the volume of second copies in the list of volumes, if it is usable already.
    pub(crate) fn copies_volume(&self) -> Option<usize> {
        self.volume_index(self.durable.copies?)
    }

    /// Returns the number of slots that hidden volumes leave free: one in N.
    pub(crate) fn slots_to_spare(&self, one_in: u64) -> u64 {
        let geometry = self.metadata.geometry();
        geometry.spare_slots() + geometry.slots() / one_in
    }

    /// Returns the slot that holds the second copy of a slot, or held it.
    pub(crate) fn copy_of(&mut self, slot: Slot) -> Result<Option<Slot>, Missing> {
        let Some(at) = self.copies_volume() else { return Ok(None) };
        let volume = &self.durable.volumes[at];
        if slot.0 >= volume.size / self.metadata.geometry().block() {
            return Ok(None);
        }
        match self.map_entry(at, Key::new(volume.id, slot.0)) {
            Ok(entry) => Ok(entry.slot()),
            Err(Unresolved::Missing(missing)) => Err(missing),
            Err(Unresolved::Damaged) => Ok(None),
        }
    }

    /// Returns the change that a slot needs for its second copy; the slot must hold `digest`, or no content any more. Unreadable pages need no
    /// change.
    pub(crate) fn copying(&mut self, slot: Slot, digest: Option<Digest>) -> Result<Copying, Missing> {
        if self.copies_volume().is_none() || !self.may_repair() {
            return Ok(Copying::Leave);
        }
        let copy = self.copy_of(slot)?;
        let Some(digest) = digest.filter(|_| self.properties.second_copies() > 0) else {
            return Ok(if copy.is_some() { Copying::Drop } else { Copying::Leave });
        };
        let needed = self.references(slot)? > self.properties.second_copies();
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
        let per_leaf = self.metadata.geometry().block() / 4;
        let root = self.durable.root(TreeId::Counts);
        match lookup(&mut self.metadata, Region::Metadata, root, slot.0 / per_leaf) {
            Walk::Leaf(page) => {
                Ok(crate::format::bytes::u32_at(self.metadata.pages().bytes(page), (slot.0 % per_leaf * 4) as usize))
            }
            Walk::Absent(_) => Ok(0),
            Walk::Missing(missing) | Walk::From { missing, .. } => Err(missing),
        }
    }

    /// Gives back all blocks of the hidden volume at this index of the list. Returns false if there is no space for the clear.
    pub(crate) fn clear_hidden(&mut self, at: usize, load: &LoadSnapshot) -> bool {
        let volume = &self.durable.volumes[at];
        let end = volume.size / self.metadata.geometry().block();
        let (start, stop) = (Key::new(volume.id, 0), Key::new(volume.id, end));
        let cleared = self.cleared(start, stop);
        if !matches!(self.space_for(&Asked::clear(1, cleared), load.clears_left), Availability::Now) {
            return false;
        }
        self.durable.journal.push(Change::Clear { key: start, end });
        self.clear_keys(start, stop);
        self.state.note_change();
        self.request_checkpoint();
        true
    }

    /// Reclaims all replicas; returns false if there are none, or no space for the change.
    pub(crate) fn give_back_replicas(&mut self, load: &LoadSnapshot) -> bool {
        let at = self.hints.replicas.volume.and_then(|volume| self.volume_index(volume));
        let is_empty = self.hints.replicas.len() == 0 && self.hints.replicas.stale().is_none();
        let Some(at) = at.filter(|_| !is_empty || self.hints.replicas.are_left()) else { return false };
        if !self.clear_hidden(at, load) {
            return false;
        }
        self.hints.replicas.clear();
        self.hints.replicas.begin_anew();
        true
    }

    /// Finds the hidden volumes again, after a change of the list of volumes.
    pub(in crate::pool) fn note_hidden_volumes(&mut self) {
        let find = |keeps| {
            let volume = &self.durable.volumes[self.durable.volumes.named(Keeps::name(keeps))?];
            Some((volume.id, volume.size / self.metadata.geometry().block()))
        };
        let (copies, replicas) = (find(Keeps::SecondCopies), find(Keeps::Replicas));
        self.durable.copies = copies.map(|(id, _)| id);
        self.hints.replicas.set_volume(replicas, self.metadata.geometry().slots_per_container);
    }
}
