//! Remapping step of the pass: a block is remapped to the canonical slot only while it maps to the duplicate slot, and while both hold the content.
//! Lookup and change happen in one step.

use alloc::vec::Vec;

use super::range::{DuplicateSlot, FoundSlot};
use super::runs::{Around, RemappedRun, WINDOW};
use super::verify::{PAIRS, Pair};
use super::{Dedup, LOOK_AGAIN, SPARES};
use crate::api::{DedupVerify, Digest, Policy};
use crate::format::entry::{Entry, Key, Slot};
use crate::jobs::changes::{Changes, ChangesStop};
use crate::jobs::mover::is_alone;
use crate::locality_map::NearMap;
use crate::metadata::tree::{Missing, Unresolved};
use crate::mutant::Mutant;
use crate::pool::Pool;
use crate::pool::change::Put;
use crate::pool::metadata_reservation::Asked;
use crate::pool::state::LoadSnapshot;
use crate::repair::Repairs;
use crate::sizes::table_bytes;
use crate::space::SlotState;

/// Adjacent blocks that a step looks at, to check that runs stay whole.
const BESIDE: usize = 4096;
/// Minimum number of slots remembered as proven: more than a run has.
const LEAST_PROVEN: usize = 2 * WINDOW as usize;
/// Largest number of replacements in a chain of canonical slots.
const MOST_REPLACED: u8 = 8;

/// Result of remapping a block to the canonical slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ShareResult {
    Yes,
    /// The block maps to another slot, or takes no part.
    NotThere,
    /// The canonical slot no longer holds the content.
    Gone,
    /// The block still maps to the duplicate slot: its run would be split.
    Kept,
    /// The block still maps to the duplicate slot for now: it could not be compared, or is not equal.
    Apart,
}

/// Generations of both slots' containers at the time when the slots held the content, if known.
#[derive(Clone, Copy, Default)]
pub(super) struct SeenGenerations {
    duplicate: Option<u16>,
    canonical: Option<u16>,
}

/// Slots that blocks have been remapped from since the last checkpoint: the space map still has the old state.
#[derive(Default)]
pub(super) struct RemappedSlots {
    checkpoints: u64,
    slots: NearMap<Slot, ()>,
}

impl RemappedSlots {
    /// Returns the slots of the time since this number of checkpoints was done; drops older ones.
    fn since(&mut self, checkpoints: u64) -> &mut NearMap<Slot, ()> {
        if core::mem::replace(&mut self.checkpoints, checkpoints) != checkpoints {
            self.slots.clear();
        }
        &mut self.slots
    }

    pub fn memory(&self) -> u64 {
        table_bytes(&self.slots)
    }
}

/// Returns the current canonical slot in place of this one, after at most [`MOST_REPLACED`] replacements.
pub(super) fn last_of(replaced: &NearMap<Slot, Slot>, mut slot: Slot) -> Slot {
    // A replaced slot may be in use again.
    for _ in 0..MOST_REPLACED {
        let Some(&other) = replaced.get(&slot) else { break };
        slot = other;
    }
    slot
}

impl Dedup {
    /// Returns the current canonical slot in place of this one.
    pub(super) fn canonical(&self, slot: Slot) -> Slot {
        last_of(&self.replaced, slot)
    }

    /// Makes another slot canonical in place of one that was given up, or will be. Returns false if the other one does not hold the content.
    pub(super) fn replace(&mut self, pool: &mut Pool, gone: Slot, slot: Slot, digest: Digest) -> Result<bool, Missing> {
        let holds = holds_since(pool, slot, digest, None)?;
        if holds {
            self.replaced.insert(gone, slot);
            self.range.canonical_at(digest, slot, pool.durable.space().generation(slot));
        }
        Ok(holds)
    }

    /// Remaps the owner blocks of duplicate slots, in block order. Returns true if all are done; otherwise the next step continues.
    pub(super) fn share_spares(
        &mut self,
        pool: &mut Pool,
        repairs: &Repairs,
        load: &LoadSnapshot,
    ) -> Result<bool, ChangesStop> {
        if self.duplicates.len() > self.in_order {
            self.duplicates.sort_unstable_by_key(|duplicate| core::cmp::Reverse(duplicate.found.owner));
        }
        self.in_order = self.duplicates.len();
        for _ in 0..SPARES {
            let Some(&DuplicateSlot { found, canonical: before, canonical_generation }) = self.duplicates.last() else {
                break;
            };
            let FoundSlot { slot, digest, owner, is_shared, generation } = found;
            let canonical = self.canonical(before);
            let seen = match self.wraps == pool.durable.space().wraps() {
                true => SeenGenerations {
                    duplicate: Some(generation),
                    canonical: (canonical == before).then_some(canonical_generation),
                },
                false => SeenGenerations::default(),
            };
            // More blocks may have come to share it since it was found.
            let is_shared = is_shared || pool.slot_state(slot)? == SlotState::Shared;
            let shared = match is_shared {
                _ if canonical == slot => ShareResult::Yes,
                false => self.share(pool, repairs, load, owner, (slot, canonical, digest), seen)?,
                true => ShareResult::NotThere,
            };
            let shared = match shared {
                ShareResult::Kept => self.share_the_other_way(pool, repairs, load, (slot, canonical, digest))?,
                shared => shared,
            };
            match shared {
                ShareResult::Gone => drop(self.replace(pool, canonical, slot, digest)?),
                // The slot may no longer hold the content that was found.
                ShareResult::NotThere if !self.is_remapped(pool, slot)? && holds_since(pool, slot, digest, None)? => {
                    self.unresolved.push((slot, canonical, digest));
                }
                _ => {}
            }
            self.duplicates.pop();
            self.in_order = self.duplicates.len();
            self.looked_at += 1;
        }
        let are_all = self.duplicates.is_empty();
        if are_all {
            self.verify.clear();
        }
        Ok(are_all)
    }

    /// Remaps the only block of the canonical slot to the duplicate slot, if no other block refers to it. The duplicate's own block keeps its slot
    /// because of its run; the canonical slot's block may be free to move.
    fn share_the_other_way(
        &mut self,
        pool: &mut Pool,
        repairs: &Repairs,
        load: &LoadSnapshot,
        (duplicate, canonical, digest): Pair,
    ) -> Result<ShareResult, ChangesStop> {
        let owner = pool.proven_digest(canonical)?.map(|(_, owner)| owner);
        let shared = match owner {
            Some(owner) if is_alone(pool, repairs, canonical)? => {
                self.share(pool, repairs, load, owner, (canonical, duplicate, digest), SeenGenerations::default())?
            }
            _ => ShareResult::Kept,
        };
        if shared == ShareResult::Yes {
            self.replace(pool, canonical, duplicate, digest)?;
        }
        self.kept += u64::from(!matches!(shared, ShareResult::Yes | ShareResult::Apart));
        Ok(if matches!(shared, ShareResult::NotThere | ShareResult::Gone) { ShareResult::Kept } else { shared })
    }

    /// Remaps a block to the canonical slot, if it maps to the duplicate and both hold the content; with it the whole run, where runs are kept.
    pub(super) fn share(
        &mut self,
        pool: &mut Pool,
        repairs: &Repairs,
        load: &LoadSnapshot,
        key: Key,
        (duplicate, canonical, digest): Pair,
        seen: SeenGenerations,
    ) -> Result<ShareResult, ChangesStop> {
        let Some(volume) = pool.volume_index(key.volume()).filter(|_| may_share(pool, key)) else {
            return Ok(ShareResult::NotThere);
        };
        match pool.resolve(volume, key) {
            Ok(entry) if entry == Entry::whole(duplicate, digest) => {}
            Ok(_) if pool.mutant(Mutant::BlindShare) => {}
            Ok(_) | Err(Unresolved::Damaged) => return Ok(ShareResult::NotThere),
            Err(Unresolved::Missing(missing)) if pool.metadata.has_failed(missing.key) => {
                return Ok(ShareResult::NotThere);
            }
            Err(Unresolved::Missing(missing)) => return Err(missing.into()),
        }
        // The canonical slot may have been found damaged since.
        let is_lost = repairs.is_lost(canonical, digest);
        if !pool.mutant(Mutant::ShareWithFreed) && (is_lost || !holds_since(pool, canonical, digest, seen.canonical)?) {
            return Ok(ShareResult::Gone);
        }
        if !holds_since(pool, duplicate, digest, seen.duplicate)? && !pool.mutant(Mutant::BlindShare) {
            return Ok(ShareResult::NotThere);
        }
        let keeps_runs = keeps_runs(pool, volume);
        let run = match keeps_runs {
            false => RemappedRun::one(key, duplicate, canonical, digest),
            true => match self.run_around(pool, repairs, volume, key, (duplicate, canonical, digest))? {
                Some(run) if run.digests.len() <= Changes::part_of_delta(pool) => run,
                _ => return Ok(ShareResult::Kept),
            },
        };
        let verified = match pool.properties.dedup_verify() {
            DedupVerify::Kept => self.are_proven(pool, repairs, &run)?,
            DedupVerify::Both => self.are_equal(pool, repairs, &run, keeps_runs)?,
            DedupVerify::Off => true,
        };
        if !verified {
            return Ok(ShareResult::Apart);
        }
        let changes = run.digests.len();
        let asked = match changes {
            1 => Asked::scattered(1),
            _ => pool.asked_in_a_row(run.first, run.last(), changes),
        };
        let Some(keys) = run.standing(pool, &mut self.changes, volume)? else { return Ok(ShareResult::NotThere) };
        self.changes.admit(pool, load, &asked, changes)?;
        for ((_, slot, digest), key) in run.blocks().zip(keys) {
            pool.put_alone(key, Put::Share(slot, digest));
            pool.note_known(digest, slot);
        }
        self.shared += run.pairs().count() as u64;
        self.remapped.since(pool.checkpoint.done()).extend(run.pairs().map(|(slot, ..)| (slot, ())));
        Ok(ShareResult::Yes)
    }

    /// Returns true if the only block of a slot has been remapped, and the space map does not say so yet.
    fn is_remapped(&mut self, pool: &mut Pool, slot: Slot) -> Result<bool, Missing> {
        Ok(self.remapped.since(pool.checkpoint.done()).contains_key(&slot)
            && pool.recent(slot).is_none()
            && pool.slot_state(slot)? == SlotState::Single)
    }

    /// Returns the run that a block is in, if all of it may be remapped.
    fn run_around(
        &mut self,
        pool: &mut Pool,
        repairs: &Repairs,
        volume: usize,
        key: Key,
        (from, to, digest): (Slot, Slot, Digest),
    ) -> Result<Option<RemappedRun>, ChangesStop> {
        if self.refused.is_some_and(|refused| refused.is(key, from, to)) {
            return Ok(None);
        }
        if self.beside >= BESIDE {
            return Err(ChangesStop::Waits);
        }
        let (run, looked) = Around { pool, repairs, volume, key, from, to }.run(digest)?;
        self.beside += looked;
        self.refused = run.as_ref().err().copied();
        Ok(run.ok())
    }

    /// Returns true if the target slots of a run hold on the device the contents of their digests. Reads slots that are probably needed next in the
    /// same batch. A damaged target is repaired first, from the block that would have been given up.
    fn are_proven(&mut self, pool: &mut Pool, repairs: &Repairs, run: &RemappedRun) -> Result<bool, ChangesStop> {
        // Contents that are not on the device yet are in memory, or in the journal.
        let needs_proof = |dedup: &Dedup, pool: &Pool, (_, kept, digest): Pair| {
            !dedup.proven.has(pool, kept, digest) && !pool.memory.is_dirty(kept) && !pool.durable.is_in_journal(kept)
        };
        let most = Dedup::batch(pool).max(LEAST_PROVEN);
        let mut unknown = Vec::new();
        for pair @ (duplicate, kept, digest) in run.pairs() {
            if !needs_proof(self, pool, pair) {
                continue;
            }
            if repairs.is_repairing(kept) || self.damaged.iter().any(|&(slot, _)| slot == kept) {
                self.look_again_at = pool.state.now() + LOOK_AGAIN;
                return Err(ChangesStop::Waits);
            }
            match self.verify.verdict([(kept, kept, digest)].into_iter()) {
                Some(true) => self.proven.add(pool, kept, digest, most),
                Some(false) if self.repaired.insert(kept, ()).is_some() => {
                    self.unequal += 1;
                    return Ok(false);
                }
                Some(false) => {
                    self.verify.forget(kept, kept);
                    self.damaged.push((kept, duplicate));
                    self.look_again_at = pool.state.now() + LOOK_AGAIN;
                    return Err(ChangesStop::Waits);
                }
                None => unknown.push((kept, kept, digest)),
            }
        }
        if unknown.is_empty() {
            return Ok(true);
        }
        let duplicates = self.duplicates.iter().rev().filter(|duplicate| !duplicate.found.is_shared);
        let duplicates =
            duplicates.map(|duplicate| (duplicate.found.slot, duplicate.canonical, duplicate.found.digest));
        let next = duplicates
            .chain(self.unresolved.iter().copied())
            .map(|(duplicate, kept, digest)| (duplicate, self.canonical(kept), digest));
        let next =
            next.filter(|&pair| pair.0 != pair.1 && needs_proof(self, pool, pair) && !repairs.is_repairing(pair.1));
        unknown.extend(next.map(|(_, kept, digest)| (kept, kept, digest)).take(2 * PAIRS));
        self.begin_to_verify(pool, unknown);
        Err(ChangesStop::Waits)
    }

    /// Returns true if the blocks of a run hold the same bytes as its target slots. Compares pairs that are probably needed next in the same batch.
    fn are_equal(
        &mut self,
        pool: &mut Pool,
        repairs: &Repairs,
        run: &RemappedRun,
        keeps_runs: bool,
    ) -> Result<bool, ChangesStop> {
        match self.verify.verdict(run.pairs()) {
            Some(true) => return Ok(true),
            Some(false) => {
                self.unequal += 1;
                return Ok(false);
            }
            None => {}
        }
        // Contents that are not on the device yet, or may change there, cannot be compared.
        let is_moving = |slot: &Slot| {
            pool.memory.is_dirty(*slot) || pool.durable.is_in_journal(*slot) || repairs.is_repairing(*slot)
        };
        let is_at_rest = |(one, other, _): &Pair| !is_moving(one) && !is_moving(other);
        if !run.pairs().all(|pair| is_at_rest(&pair)) {
            return Ok(false);
        }
        let next = self.duplicates.iter().rev().skip(1).filter(|duplicate| !duplicate.found.is_shared);
        let next = next
            .map(|duplicate| (duplicate.found.slot, duplicate.canonical, duplicate.found.digest))
            .take(if keeps_runs { 0 } else { PAIRS });
        let pairs: Vec<Pair> = run.pairs().chain(next.filter(is_at_rest)).collect();
        self.begin_to_verify(pool, pairs);
        Err(ChangesStop::Waits)
    }

    fn begin_to_verify(&mut self, pool: &mut Pool, pairs: Vec<Pair>) {
        if !self.verify.begin(pool, pairs.into_iter()) {
            self.look_again_at = pool.state.now() + LOOK_AGAIN;
        }
    }
}

/// Returns true if a slot still holds a content that it held when its container had this generation. If the generation is unchanged, the summary
/// is not read.
fn holds_since(pool: &mut Pool, slot: Slot, digest: Digest, generation: Option<u16>) -> Result<bool, Missing> {
    let is_same = pool.durable.space().contains(slot)
        && generation
            .is_some_and(|seen| pool.durable.space().generation(slot) == seen || pool.mutant(Mutant::OldGeneration));
    if is_same && pool.recent(slot).is_none() {
        return Ok(pool.slot_state(slot)?.is_used());
    }
    Ok(pool.proven_digest(slot)?.is_some_and(|(found, _)| found == digest))
}

/// Returns true if a pass may share a block's content: its volume is not hidden, not read only, and not of the policy `native`.
pub(super) fn may_share(pool: &Pool, owner: Key) -> bool {
    let Some(at) = pool.volume_index(owner.volume()) else { return true };
    let volume = &pool.durable.volumes()[at];
    if volume.keeps.is_some() {
        return pool.mutant(Mutant::CopyForData);
    }
    !pool.with_properties_of(volume).properties.read_only() && pool.policy_of(volume) != Policy::Native
}

/// Returns true if a pass must not split a run of this volume.
fn keeps_runs(pool: &Pool, volume: usize) -> bool {
    let volume = &pool.durable.volumes()[volume];
    pool.with_properties_of(volume).properties.keep_runs().keeps(pool.policy_of(volume))
}
