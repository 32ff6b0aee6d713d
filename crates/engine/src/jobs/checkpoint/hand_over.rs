//! Hand-over of a deleted snapshot to its only child (RFC 0020): a stage of the checkpoint, in parts.
//!
//! A subtree or block that the child inherits becomes the child's own, with its pointer or entry. Anything else of the snapshot has no reader: the subtree goes to
//! the discards, the slot of the block is released. Both maps are walked from the top. Only pages that both have are read.
//!
//! ```text
//! page of the snapshot | child has          | then
//! any                  | FROM its time      | the child takes the pointer
//! page                 | NONE, LOST, older  | the snapshot's subtree goes to the discards
//! page                 | page               | a level lower; in a leaf, entry by entry
//! ```
//!
//! A place that was handed over is NONE in the snapshot's map. So a part begins at the first place that is left, and needs no cursor. Both maps change in one
//! superblock. During the hand-over, descendants of the child look for blocks of the snapshot in the child first (`block_map/lineage.rs`).
//!
//! What must hold: no key of the snapshot is in a delta or in the map buffer (`Pool::review_hand_over`); its blocks, and those that it hides, count as the
//! child's. The child has counted all that it hides of the snapshot: released blocks cannot be counted later, and it hides one block less for each.

use super::{Checkpoint, Progress};
use crate::api::VolumeId;
use crate::block_map::discards::{Discard, WalkBudget};
use crate::format::bytes::u64_at;
use crate::format::entry::Entry;
use crate::format::superblock::Pointer;
use crate::metadata::page_cache::{PageKey, Region};
use crate::metadata::tree::{Stop, Writer};
use crate::mutant::Mutant;
use crate::pool::Pool;

/// Part of a hand-over that a checkpoint makes.
pub(super) struct HandOver {
    giver: VolumeId,
    taker: VolumeId,
    /// Time of the snapshot: the epochs behind `lower` up to `born`.
    lower: u64,
    born: u64,
    from: Writer,
    to: Writer,
    /// Level and index of the next place; `None` at the end of the map.
    place: Option<(u8, u64)>,
    /// Number of places that may still be handed over.
    left: u64,
}

impl HandOver {
    /// Returns true if a pointer or entry of the child is FROM the snapshot.
    fn inherits(&self, from: Option<u64>) -> bool {
        from.is_some_and(|epoch| self.lower < epoch && epoch <= self.born)
    }

    pub(super) fn writers(&mut self) -> [&mut Writer; 2] {
        [&mut self.from, &mut self.to]
    }

    /// Goes to the next place of the level, or above it.
    fn pass(&mut self, fanout: u64) {
        let (mut level, mut index) = self.place.expect("it is at a place");
        let height = self.from.root().height;
        while level < height && (index + 1).is_multiple_of(fanout) {
            (level, index) = (level + 1, index / fanout);
        }
        self.place = (level < height).then_some((level, index + 1));
    }
}

impl Checkpoint {
    /// Hands over one place, or ends the part.
    pub(super) fn hand_over(&mut self, pool: &mut Pool) -> Result<Progress, Stop> {
        if self.handed.is_none() {
            let Some(part) = begin(pool, self.discard_budget) else { return Ok(Progress::Next) };
            self.handed = Some(part);
        }
        let mut part = self.handed.take().expect("it has begun");
        let is_enough = part.left == 0
            || self.discard_budget.is_spent()
            || pool.discards_to_walk() as u64 >= pool.metadata.geometry().fanout();
        let result = match part.place.filter(|_| !is_enough) {
            None => self.end_part(pool, &mut part),
            Some(place) => match self.hand_over_place(pool, &mut part, place) {
                Err(Stop::Missing(missing)) if pool.metadata.has_failed(missing.key) => {
                    // The rest stays, until the next opening tries again.
                    pool.stop_hand_over();
                    part.left = 0;
                    Ok(Progress::More)
                }
                result => result.map(|()| Progress::More),
            },
        };
        self.handed = Some(part);
        result
    }

    fn hand_over_place(&mut self, pool: &mut Pool, part: &mut HandOver, place: (u8, u64)) -> Result<(), Stop> {
        let (level, index) = place;
        let fanout = pool.metadata.geometry().fanout();
        let keeps = pool.mutant(Mutant::GivenTwice);
        let metadata = &mut pool.metadata;
        let pointer = part.from.pointer(metadata, level, index)?;
        if pointer.is_none() {
            part.pass(fanout);
            return Ok(());
        }
        let height = part.to.root().height;
        // The root of a map that was emptied may be lower than before.
        let has_pages_below = level > height && index == 0 && !part.to.root().pointer.is_none();
        let theirs = part.to.pointer(metadata, level, index)?;
        let takes = part.inherits(theirs.inherited_from());
        let before = self.shared.changes.len();
        if takes {
            part.to.open(metadata, level, index)?;
            part.from.open(metadata, level, index)?;
            part.to.replace(metadata, level, index, pointer);
            part.from.replace(metadata, level, index, if keeps { pointer } else { Pointer::NONE });
        } else if !pointer.has_page() {
            part.from.open(metadata, level, index)?;
            part.from.replace(metadata, level, index, Pointer::NONE);
        } else if level > 0 && (theirs.has_page() || has_pages_below) {
            // A page has something to hand over, so this is no place of the budget.
            part.place = Some((level - 1, index * fanout));
            return Ok(());
        } else if theirs.has_page() {
            self.hand_over_leaf(pool, part, index, pointer)?;
        } else {
            part.from.open(metadata, level, index)?;
            part.from.replace(metadata, level, index, Pointer::NONE);
            let given = Discard { is_given: true, ..Discard::new(pointer, part.taker, level) };
            pool.durable.discards_mut().push(given);
        }
        part.pass(fanout);
        self.discard_budget.note_walked((self.shared.changes.len() - before) as u64);
        part.left = part.left.saturating_sub(1);
        Ok(())
    }

    /// Hands over the entries of a leaf that both maps have.
    fn hand_over_leaf(
        &mut self,
        pool: &mut Pool,
        part: &mut HandOver,
        leaf: u64,
        pointer: Pointer,
    ) -> Result<(), Stop> {
        let taker = pool.durable.volumes().find(part.taker).ok_or(Stop::Contradiction)?;
        let page = part.to.leaf(&mut pool.metadata, leaf, false)?.ok_or(Stop::Contradiction)?;
        part.from.open(&mut pool.metadata, 0, leaf)?;
        let key = PageKey { region: Region::Metadata, location: pointer.location };
        if !pool.metadata.is_valid(key) || !pool.metadata.allocator().is_used(pointer.location) {
            return Err(Stop::Contradiction);
        }
        let given = pool.metadata_page(pointer)?;
        let (mut freed, overrides) = (0, pool.mutant(Mutant::OverriddenByParent));
        for at in (0..pool.metadata.geometry().map_leaf_entries() as usize).map(|entry| entry * 8) {
            let pages = pool.metadata.pages_mut();
            let (entry, theirs) = (Entry(u64_at(pages.bytes(given), at)), Entry(u64_at(pages.bytes(page), at)));
            if part.inherits(theirs.inherited_from()) || overrides && entry.slot().is_some() {
                // FROM names a block, or a lost one.
                let entry = if entry.slot().is_some() { entry } else { Entry::LOST };
                pages.bytes_mut(page)[at..at + 8].copy_from_slice(&entry.0.to_le_bytes());
            } else if let Some(slot) = entry.slot() {
                self.shared.changes.push((slot, -1));
                freed += 1;
            }
        }
        part.from.replace(&mut pool.metadata, 0, leaf, Pointer::NONE);
        pool.metadata.free_later(pointer.location);
        pool.durable.volumes_mut().note_unmapped(part.taker, freed);
        pool.durable.volumes_mut().note_unhidden(taker, freed);
        pool.note_slots_freed();
        Ok(())
    }

    /// Puts the maps of a part into force. A map that is empty leaves the table.
    fn end_part(&self, pool: &mut Pool, part: &mut HandOver) -> Result<Progress, Stop> {
        let (to, from) = (part.to.finish(&mut pool.metadata)?, part.from.finish(&mut pool.metadata)?);
        pool.stats.counters.pages_written.maps += part.to.written() + part.from.written();
        let volumes = pool.durable.volumes_mut();
        let (taker, giver) = (volumes.find(part.taker), volumes.find(part.giver));
        let (taker, giver) = (taker.ok_or(Stop::Contradiction)?, giver.ok_or(Stop::Contradiction)?);
        volumes.set_map(taker, to);
        volumes.set_map(giver, from);
        volumes.note_exchanged(taker);
        if from.pointer.is_none() {
            volumes.end_hand_over(giver);
        }
        Ok(Progress::Next)
    }
}

/// Begins a part of the hand-over that is in progress, if there is one.
fn begin(pool: &mut Pool, budget: WalkBudget) -> Option<HandOver> {
    let (giver, taker) = pool.hand_over().filter(|_| !budget.is_spent())?;
    if pool.durable.discards().counts_hidden_of(taker) {
        // Only pages that cannot be read are left to be counted by now. The next opening tries again.
        pool.stop_hand_over();
        return None;
    }
    let left = pool.places_to_hand_over(budget);
    let volumes = pool.durable.volumes();
    let root = |map: VolumeId| volumes.map(volumes.find(map).expect("it is in the table"));
    let covering = volumes.lineage().ancestors(taker).next().expect("it has a parent");
    let (from, to) = (root(giver), root(taker));
    Some(HandOver {
        giver,
        taker,
        lower: covering.lower,
        born: covering.born,
        from: Writer::new(Region::Metadata, from),
        to: Writer::with_ancestors(to, volumes.ancestors(taker)),
        place: Some((from.height, 0)),
        left,
    })
}
