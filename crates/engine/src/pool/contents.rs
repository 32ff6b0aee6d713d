//! Contents of slots: the digest (fingerprint) and the location of each. The summaries, a tree of their own, have digest and owner of each slot: all 128 bits.
//! The space map says which slots are in use, and the delta has the digests of new slots.

use super::Pool;
use crate::api::*;
use crate::block_map::delta::Recent;
use crate::dedup::index::first_bits;
use crate::format::entry::{Key, Slot, check_bits};
use crate::format::layout::{SUMMARY_BYTES, read_summary};
use crate::format::superblock::TreeId;
use crate::metadata::page_cache::Region;
use crate::metadata::tree::{LastLeaf, Missing, Walk, lookup};
use crate::mutant::Mutant;
use crate::pool::replicas::Number;
use crate::space::SlotState;

/// Maximum number of blocks of one device read.
const RUN_BLOCKS: usize = 64;

/// Answer of the index and the summaries to a lookup of a block.
pub(crate) enum Known {
    /// Live slot that holds the block's content: proven by at least 96 bits of the digest (`dedup/index.rs`).
    Yes(Slot, Digest),
    No,
    NotYet(Missing),
}

impl Pool {
    /// Returns the digest, owner and references of a slot in the deltas, if one refers to it.
    pub(crate) fn recent(&self, slot: Slot) -> Option<&Recent> {
        self.durable.delta.live(slot).or_else(|| self.durable.frozen.live(slot))
    }

    /// Returns the digest in a slot's summary.
    pub(crate) fn summary(&mut self, slot: Slot) -> Result<Option<Digest>, Missing> {
        Ok(self.summary_and_owner(slot)?.map(|(digest, _)| digest))
    }

    /// Returns the digest in a slot's summary, and the block that the slot was first written for.
    pub(crate) fn summary_and_owner(&mut self, slot: Slot) -> Result<Option<(Digest, Key)>, Missing> {
        let per_leaf = self.metadata.geometry().summary_leaf_slots();
        let root = self.durable.root(TreeId::Summaries);
        match lookup(&mut self.metadata, Region::Metadata, root, slot.0 / per_leaf) {
            Walk::Leaf(page) => {
                Ok(Some(read_summary(self.metadata.pages().bytes(page), (slot.0 % per_leaf * SUMMARY_BYTES) as usize)))
            }
            Walk::Absent(_) => Ok(None),
            Walk::Missing(missing) | Walk::From { missing, .. } => Err(missing),
        }
    }
}

impl Pool {
    /// Returns the digest that a slot's content must have, and the block that it was first written for. `None`: the slot is not in use.
    pub(crate) fn proven_digest(&mut self, slot: Slot) -> Result<Option<(Digest, Key)>, Missing> {
        if let Some(recent) = self.recent(slot) {
            return Ok(Some((recent.digest, recent.owner)));
        }
        if !self.durable.space.contains(slot) || !self.slot_state(slot)?.is_used() {
            return Ok(None);
        }
        self.summary_and_owner(slot)
    }

    /// Returns a buffer of the read cache with the same content under another slot. The map's check bits of this slot only name a candidate. The whole digest
    /// proves it, from the deltas, or from the summaries that are in memory. Nothing is read for the proof, since reading the block itself costs no more.
    #[inline(never)]
    pub(crate) fn find_content(&mut self, slot: Slot, check: u32) -> Option<BufferId> {
        let candidate = self.memory.cache().candidate(check)?;
        if self.mutant(Mutant::UnprovenContent) {
            return Some(candidate);
        }
        let digest = match self.recent(slot) {
            Some(recent) => recent.digest,
            None => self.summary(slot).ok()??,
        };
        self.memory.cache().holding(digest).filter(|_| check_bits(digest) == check)
    }

    /// Visits the blocks of data of one leaf of the summaries: slots in use, except second copies and replicas. Returns the next leaf to visit, beyond all
    /// leaves that have no page. Unreadable leaves are skipped; while a page is missing, nothing is visited. The states are those of [`Pool::slot_state`].
    #[inline]
    pub(crate) fn each_block_of_leaf(
        &mut self,
        leaf: u64,
        mut visit: impl FnMut(&mut Pool, Slot, SlotState, Digest),
    ) -> Result<u64, Missing> {
        self.each_owned_block_of_leaf(leaf, |pool, slot, state, digest, _| visit(pool, slot, state, digest))
    }

    /// Visits the blocks of a leaf as [`Pool::each_block_of_leaf`] does, with the block that each slot was first written for.
    #[inline]
    pub(crate) fn each_owned_block_of_leaf(
        &mut self,
        leaf: u64,
        mut visit: impl FnMut(&mut Pool, Slot, SlotState, Digest, Key),
    ) -> Result<u64, Missing> {
        let geometry = *self.metadata.geometry();
        let page = match lookup(&mut self.metadata, Region::Metadata, self.durable.root(TreeId::Summaries), leaf) {
            Walk::Leaf(page) => page,
            Walk::Absent(level) => {
                let span = geometry.fanout().saturating_pow(level.into());
                return Ok((leaf / span).saturating_add(1).saturating_mul(span));
            }
            Walk::Missing(missing) | Walk::From { missing, .. } if self.metadata.has_failed(missing.key) => {
                return Ok(leaf + 1);
            }
            Walk::Missing(missing) | Walk::From { missing, .. } => return Err(missing),
        };
        let per_leaf = geometry.summary_leaf_slots();
        let slots = leaf * per_leaf..((leaf + 1) * per_leaf).min(geometry.slots());
        // Its part of the space map: one leaf, or the end of one and the beginning of the next.
        for slot in [slots.start, slots.end - 1] {
            if let Err(missing) = self.slot_state(Slot(slot))
                && !self.metadata.has_failed(missing.key)
            {
                return Err(missing);
            }
        }
        let mut last = LastLeaf::default();
        for slot in slots.clone().map(Slot) {
            let Ok(state @ (SlotState::Single | SlotState::Shared | SlotState::Held)) =
                self.slot_state_after(slot, &mut last)
            else {
                continue;
            };
            let at = ((slot.0 - slots.start) * SUMMARY_BYTES) as usize;
            let (digest, owner) = read_summary(self.metadata.pages().bytes(page), at);
            if self.copied_from(owner).is_none() || self.mutant(Mutant::CopyForData) {
                visit(self, slot, state, digest, owner);
            }
        }
        Ok(leaf + 1)
    }
}

impl Pool {
    pub(crate) fn continues(&self, first: Slot, length: usize, slot: Slot) -> bool {
        length < RUN_BLOCKS
            && slot.0 == first.0 + length as u64
            && self.slot_offset(slot) == self.slot_offset(first) + length as u64 * self.metadata.geometry().block()
            && self.durable.space.container_of(first) == self.durable.space.container_of(slot)
    }

    /// Returns the byte offset on the store of a slot's content: in the slot, or in the journal that inlined it.
    pub(crate) fn slot_offset(&self, slot: Slot) -> u64 {
        let inlined = self.durable.in_journal.get(&slot).copied();
        inlined.unwrap_or_else(|| self.metadata.geometry().slot_block(slot.0)) * self.metadata.geometry().block()
    }

    /// Returns the part of a digest that sharing compares.
    pub(crate) fn sharing_digest(&self, digest: Digest) -> Digest {
        first_bits(digest, self.limits.sharing_digest_bits)
    }

    /// Inserts a slot and its generation into the index in memory, under the part of the digest that sharing compares.
    pub(crate) fn note_known(&mut self, digest: Digest, slot: Slot) {
        self.hints.index.insert(self.sharing_digest(digest), slot, self.durable.space.generation(slot));
    }
}

impl Pool {
    /// Returns the state of a slot in the space map, as far as the merge in progress has come. (A step of the checkpoint must not ask for it before the counts
    /// are merged.)
    pub(crate) fn slot_state(&mut self, slot: Slot) -> Result<SlotState, Missing> {
        self.slot_state_after(slot, &mut LastLeaf::default())
    }

    /// Returns the state of a slot as [`Pool::slot_state`] does; `last` saves walks where slots come in order.
    pub(crate) fn slot_state_after(&mut self, slot: Slot, last: &mut LastLeaf) -> Result<SlotState, Missing> {
        if let Some(state) = self.checkpoint.in_progress().and_then(|in_progress| in_progress.merged_state(slot)) {
            return Ok(state);
        }
        let per_leaf = self.metadata.geometry().space_leaf_slots();
        let root = self.durable.root(TreeId::SpaceMap);
        match last.lookup(&mut self.metadata, root, slot.0 / per_leaf) {
            Walk::Leaf(page) => Ok(SlotState::read(self.metadata.pages().bytes(page), slot.0 % per_leaf)),
            Walk::Absent(_) => Ok(SlotState::Free),
            Walk::Missing(missing) | Walk::From { missing, .. } => Err(missing),
        }
    }

    /// Returns true if digests prove equality, false if blocks with the same digest have to be compared.
    pub(crate) fn digests_prove(&self) -> bool {
        matches!(self.limits.sharing_digest_bits, 0 | 128)
    }

    /// Returns the original slot of a second copy or replica, if the block is one.
    pub(crate) fn copied_from(&self, owner: Key) -> Option<Slot> {
        let volume = Some(owner.volume());
        let slot = if self.durable.copies == volume {
            Slot(owner.lba())
        } else if self.hints.replicas.volume == volume {
            self.hints.replicas.slot_of(Number(owner.lba()))
        } else {
            return None;
        };
        Some(slot).filter(|&slot| self.durable.space.contains(slot))
    }
}
