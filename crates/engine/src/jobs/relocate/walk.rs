//! The walk of a relocation run: searches all maps for the other referrers of old slots, remaps them to the copies, and settles the copies.

use super::{ChangesStop, Copied, Relocate, RunStage};
use crate::format::entry::{Entry, Key};
use crate::jobs::map_walk::LEAVES;
use crate::metadata::tree::{Missing, Unresolved};
use crate::mutant::Mutant;
use crate::pool::Pool;
use crate::pool::change::{Put, Seen};
use crate::pool::metadata_reservation::Asked;
use crate::pool::state::LoadSnapshot;

/// Largest number of walks for the same copies.
const WALKS: u32 = 4;
/// Largest number of checkpoints that are waited for after a walk, until all is settled.
const CHECKPOINTS: u32 = 8;

/// Number of copies that a step judges.
const JUDGED_AT_ONCE: usize = 1024;

/// Result of remapping a block that may map to an old slot.
enum Remap {
    Done,
    /// The block maps to another slot, or the old slot has another content by now.
    Stale,
    /// The copy was given up: all blocks that mapped to it have been overwritten.
    CopyGone,
}

impl Relocate {
    /// Walks some leaves of maps.
    pub(super) fn walk(&mut self, pool: &mut Pool, load: &LoadSnapshot) -> Result<(), ChangesStop> {
        let RunStage::Walk(mut maps) = self.at else { return Ok(()) };
        for _ in 0..if pool.is_at_full_speed(load) { LEAVES } else { 1 } {
            let mut gone = None;
            let walked = maps.step(pool, may_be_remapped, |pool, key, slot| {
                let Ok(at) = self.copies.binary_search_by_key(&slot, |copy| copy.from) else { return Ok(false) };
                if pool.mutant(Mutant::ForgottenReferrer) && key.lba() % 2 == 1 {
                    return Ok(false);
                }
                match self.lead(pool, load, key, at)? {
                    Remap::Done | Remap::Stale => {}
                    Remap::CopyGone => gone = Some(at),
                }
                Ok::<_, ChangesStop>(true)
            });
            self.at = RunStage::Walk(maps);
            if let Some(at) = gone {
                self.copies.remove(at);
            }
            if !walked? {
                self.at = RunStage::Settle { waited: 0, left: None };
                self.changes.wait_for_flush(pool);
                return Ok(());
            }
        }
        Ok(())
    }

    /// Remaps a block to the copy, if it maps to the old slot and both slots hold the content.
    fn lead(&mut self, pool: &mut Pool, load: &LoadSnapshot, key: Key, at: usize) -> Result<Remap, ChangesStop> {
        let Copied { from, to, digest, is_placed } = self.copies[at];
        let seen = Entry::whole(from, digest);
        let Some(volume) = pool.volume_index(key.volume()) else { return Ok(Remap::Stale) };
        self.changes.await_snapshot(pool, key.volume())?;
        if pool.keeps_its_slots(key.volume()) {
            return Ok(Remap::Stale);
        }
        match pool.resolve(volume, key) {
            Ok(entry) if entry == seen => {}
            Err(Unresolved::Missing(missing)) if !pool.metadata.has_failed(missing.key) => {
                return Err(missing.into());
            }
            Ok(_) | Err(_) => return Ok(Remap::Stale),
        }
        if !holds(pool, Seen(from, digest))? {
            return Ok(Remap::Stale);
        }
        if is_placed && !holds(pool, Seen(to, digest))? {
            return Ok(Remap::CopyGone);
        }
        self.changes.admit(pool, load, &Asked::scattered(1), 1)?;
        if is_placed {
            pool.put_alone(key, Put::Share(to, digest));
            self.counts.referrers += 1;
        } else if pool.relocate(key, seen, digest, to)? {
            self.copies[at].is_placed = true;
            (self.unplaced, self.counts.moved_blocks) = (self.unplaced - 1, self.counts.moved_blocks + 1);
        } else {
            return Ok(Remap::Stale);
        }
        pool.note_known(digest, to);
        pool.regions_mut().moved(key);
        Ok(Remap::Done)
    }

    /// Judges some copies, once all remaps of the walk are merged. Copies whose old slots are still in use are walked for again, a few times.
    pub(super) fn settle(&mut self, pool: &mut Pool, waited: u32, left: Option<usize>) -> Result<(), ChangesStop> {
        if left.is_none() && (pool.has_to_flush() || pool.has_discards()) && waited < CHECKPOINTS {
            self.at = RunStage::Settle { waited: waited + 1, left };
            self.changes.wait_for_flush(pool);
            return Ok(());
        }
        // From the end: the copy that takes the place of a removed one has been judged before.
        let left = left.unwrap_or(self.copies.len()).min(self.copies.len());
        let end = left.saturating_sub(JUDGED_AT_ONCE);
        for at in (end..left).rev() {
            self.at = RunStage::Settle { waited, left: Some(at + 1) };
            let Copied { from, to, digest, is_placed } = self.copies[at];
            let is_used = match holds(pool, Seen(from, digest)) {
                Err(missing) if !pool.metadata.has_failed(missing.key) => return Err(missing.into()),
                held => held.unwrap_or(true),
            };
            if is_used && pool.mutant(Mutant::ForgottenReferrer) {
                pool.durable.space_mut().give_out_as_if_free(from);
            }
            if is_used && self.again < WALKS {
                continue;
            }
            match (is_placed, is_used) {
                (true, true) => self.counts.doubled_blocks += 1,
                (true, false) => {}
                // No referrer of the old slot was found.
                (false, _) => {
                    pool.durable.space_mut().defer_free(to, 0);
                    (self.unplaced, self.counts.kept.gone) = (self.unplaced - 1, self.counts.kept.gone + 1);
                }
            }
            self.copies.swap_remove(at);
        }
        self.at = match (end, self.copies.is_empty()) {
            (1.., _) => RunStage::Settle { waited, left: Some(end) },
            (0, true) => RunStage::Gather,
            (0, false) => RunStage::Begin,
        };
        pool.wake();
        Ok(())
    }
}

/// Returns true if a slot holds this content.
fn holds(pool: &mut Pool, Seen(slot, digest): Seen) -> Result<bool, Missing> {
    Ok(pool.proven_digest(slot)?.is_some_and(|(found, _)| found == digest))
}

/// Returns true if blocks of this block's volume may be remapped to other slots with the same content: those of all but hidden volumes.
fn may_be_remapped(pool: &Pool, key: Key) -> bool {
    pool.volume_index(key.volume()).is_some_and(|at| pool.durable.volumes()[at].keeps.is_none())
}
