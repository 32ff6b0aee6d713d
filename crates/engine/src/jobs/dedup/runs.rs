//! Runs that the pass keeps whole (`keep-runs`): consecutive blocks of a volume in consecutive slots of one container. Blocks written in order form
//! one run without end. So a run ends at each multiple of [`WINDOW`] blocks: a sequential reader needs at most one more read there.
//!
//! In a volume that keeps its runs, a block is remapped only together with its whole run, and only to slots that form such a run, too. The volume's
//! policy must also share the whole run ([`crate::api::Policy::shares_run`]). So within a window no read needs more device reads after a pass than
//! before. Blocks that `select` or `idedup` stored apart on purpose stay so.
//!
//! What must hold: entries that are looked up here are changed in the same step, or looked up again.

use crate::jobs::changes::{Changes, ChangesStop};
use crate::jobs::dedup::share::may_share;
use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

use super::verify::Pair;
use crate::api::Digest;
use crate::dedup::policy::Lookup;
use crate::format::entry::{Key, Slot, check_bits};
use crate::metadata::tree::{LastLeaf, Missing, Unresolved};
use crate::pool::Pool;
use crate::repair::Repairs;

/// Blocks of a volume in which a run stays whole: 1 MiB, as much as the longest request has.
pub(super) const WINDOW: u64 = 256;

/// Blocks that are remapped together: consecutive blocks, to consecutive slots or all of them to one slot.
pub(super) struct RemappedRun {
    pub(super) first: Key,
    pub(super) from: Slot,
    pub(super) to: Slot,
    pub(super) digests: Vec<Digest>,
    /// True if all blocks hold the same content, and are remapped to one slot, which may be that of one of them.
    pub(super) repeats: bool,
}

impl RemappedRun {
    /// Creates a run of a single block.
    pub fn one(first: Key, from: Slot, to: Slot, digest: Digest) -> RemappedRun {
        RemappedRun { first, from, to, digests: [digest].into(), repeats: false }
    }

    /// Returns the target slot of block `at` of the run.
    fn target(&self, at: u64) -> Slot {
        Slot(self.to.0 + if self.repeats { 0 } else { at })
    }

    /// Returns the blocks that are remapped, each with its new slot.
    pub fn blocks(&self) -> impl Iterator<Item = (Key, Slot, Digest)> + '_ {
        let all = (0..).zip(&self.digests).map(|(at, &digest)| (at, self.target(at), digest));
        all.filter(|&(at, to, _)| self.from.0 + at != to.0).map(|(at, to, digest)| (Key(self.first.0 + at), to, digest))
    }

    /// Returns the keys of the maps that have the blocks to be remapped, or `None` if a page of them cannot be read or their slots are to stay. Waits while a
    /// snapshot of such a map is pending.
    pub fn standing(
        &self,
        pool: &mut Pool,
        changes: &mut Changes,
        volume: usize,
    ) -> Result<Option<Vec<Key>>, ChangesStop> {
        let (mut keys, mut last) = (Vec::with_capacity(self.digests.len()), LastLeaf::default());
        for (key, ..) in self.blocks() {
            let key = match pool.standing_entry(volume, key, &mut last) {
                Ok((key, _)) => key,
                Err(Unresolved::Missing(missing)) if !pool.metadata.has_failed(missing.key) => {
                    return Err(missing.into());
                }
                Err(_) => return Ok(None),
            };
            changes.await_snapshot(pool, key.volume())?;
            if pool.keeps_its_slots(key.volume()) {
                return Ok(None);
            }
            keys.push(key);
        }
        Ok(Some(keys))
    }

    /// Returns pairs of slots that hold the same content: the old and the new slot of each block.
    pub fn pairs(&self) -> impl Iterator<Item = Pair> + '_ {
        let all = (0..).zip(&self.digests).map(|(at, &digest)| (Slot(self.from.0 + at), self.target(at), digest));
        all.filter(|(from, to, _)| from != to)
    }

    pub fn last(&self) -> Key {
        Key(self.first.0 + self.digests.len() as u64 - 1)
    }
}

/// A run that is not remapped, because one of its blocks cannot be remapped to the slot at this distance from its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Refused {
    first: Key,
    last: Key,
    distance: u64,
}

impl Refused {
    /// Returns true if the block is in the refused run, and would move by the same distance.
    pub fn is(&self, key: Key, from: Slot, to: Slot) -> bool {
        (self.first..=self.last).contains(&key) && self.distance == to.0.wrapping_sub(from.0)
    }
}

/// A lookup of the adjacent blocks of a block, as far as its run extends.
pub(super) struct Around<'a> {
    pub(super) pool: &'a mut Pool,
    pub(super) repairs: &'a Repairs,
    /// Index of the volume in the list of volumes.
    pub(super) volume: usize,
    /// Block that may be remapped.
    pub(super) key: Key,
    /// Slot that the block maps to.
    pub(super) from: Slot,
    /// Slot that the block may be remapped to.
    pub(super) to: Slot,
}

impl Around<'_> {
    /// Returns the run that the block is in, if it may be remapped; otherwise the part of the run that was looked up. Also returns the number of
    /// blocks looked at.
    pub fn run(&mut self, digest: Digest) -> Result<(Result<RemappedRun, Refused>, usize), Missing> {
        let (repeated, looked) = self.repeated(digest)?;
        if let Some(run) = repeated {
            return Ok((Ok(run), looked));
        }
        let mut digests = VecDeque::from([digest]);
        let mut first = self.key;
        let distance = self.to.0.wrapping_sub(self.from.0);
        let refused = |first, last, looked| Ok((Err(Refused { first, last, distance }), looked));
        for forward in [true, false] {
            let mut last = LastLeaf::default();
            let mut at = self.key;
            while let Some((key, slot, check)) = self.beside(at, forward, &mut last)? {
                at = key;
                let Some(digest) = self.held_at_both(slot, check)? else {
                    let end = Key(first.0 + digests.len() as u64 - 1);
                    return refused(first.min(at), end.max(at), digests.len() + 1);
                };
                if forward {
                    digests.push_back(digest);
                } else {
                    digests.push_front(digest);
                    first = key;
                }
            }
        }
        let looked = digests.len();
        let from = Slot(self.from.0 - (self.key.0 - first.0));
        let run = RemappedRun { first, from, to: self.target(from), digests: digests.into(), repeats: false };
        let lookups: Vec<Lookup> = run.blocks().map(|(_, slot, _)| Lookup::Known(slot.0)).collect();
        let policy = self.pool.policy_of(&self.pool.durable.volumes()[self.volume]);
        // Where a run overlaps its target, its target slots would be given up.
        let overlaps = self.to.0.abs_diff(self.from.0) < looked as u64;
        if overlaps || !policy.shares_run(&lookups) {
            return refused(run.first, run.last(), looked);
        }
        Ok((Ok(run), looked))
    }

    /// Returns the run that the block is in, if all its blocks hold one content and may be remapped to one slot. Also returns the number of blocks
    /// looked at.
    fn repeated(&mut self, digest: Digest) -> Result<(Option<RemappedRun>, usize), Missing> {
        let (mut first, mut count) = (self.key, 1);
        for forward in [true, false] {
            let mut last = LastLeaf::default();
            let mut at = self.key;
            while let Some((key, slot, check)) = self.beside(at, forward, &mut last)? {
                let is_same = check == check_bits(digest)
                    && self.pool.proven_digest(slot)?.is_some_and(|(found, _)| found == digest);
                if !is_same {
                    return Ok((None, count));
                }
                (at, first, count) = (key, first.min(key), count + 1);
            }
        }
        let lookups = vec![Lookup::Known(self.to.0); count];
        let policy = self.pool.policy_of(&self.pool.durable.volumes()[self.volume]);
        if count == 1 || !policy.shares_run(&lookups) {
            return Ok((None, count));
        }
        let from = Slot(self.from.0 - (self.key.0 - first.0));
        Ok((Some(RemappedRun { first, from, to: self.to, digests: vec![digest; count], repeats: true }), count))
    }

    /// Returns the target of a slot of the run, at the same distance.
    fn target(&self, from: Slot) -> Slot {
        Slot(from.0.wrapping_add(self.to.0.wrapping_sub(self.from.0)))
    }

    /// Returns the next or previous block, if it is in the same run, with its slot and the digest bits of its map entry.
    fn beside(&mut self, at: Key, forward: bool, last: &mut LastLeaf) -> Result<Option<(Key, Slot, u32)>, Missing> {
        let step = |number: u64| if forward { number.checked_add(1) } else { number.checked_sub(1) };
        let slot = Slot(self.from.0.wrapping_add(at.0).wrapping_sub(self.key.0));
        let (Some(key), Some(slot)) = (step(at.0).map(Key), step(slot.0).map(Slot)) else { return Ok(None) };
        let space = self.pool.durable.space();
        if key.volume() != self.key.volume()
            || key.lba() / WINDOW != self.key.lba() / WINDOW
            || !space.contains(slot)
            || space.container_of(slot) != space.container_of(self.from)
        {
            return Ok(None);
        }
        match self.pool.resolve_after(self.volume, key, last) {
            Ok(entry) => Ok((entry.slot() == Some(slot)).then_some((key, slot, entry.check()))),
            Err(Unresolved::Missing(missing)) if !self.pool.metadata.has_failed(missing.key) => Err(missing),
            Err(_) => Ok(None),
        }
    }

    /// Returns the digest of a slot of the run, if the target slot holds the same content and may be shared.
    fn held_at_both(&mut self, from: Slot, check: u32) -> Result<Option<Digest>, Missing> {
        let to = self.target(from);
        let space = self.pool.durable.space();
        if !space.contains(to) || space.container_of(to) != space.container_of(self.to) {
            return Ok(None);
        }
        let Some((digest, _)) = self.pool.proven_digest(from)? else { return Ok(None) };
        let Some((found, owner)) = self.pool.proven_digest(to)? else { return Ok(None) };
        let is_data = self.pool.copied_from(owner).is_none() && may_share(self.pool, owner);
        let holds = digest == found && check_bits(digest) == check && !self.repairs.is_lost(to, digest);
        Ok((is_data && holds).then_some(digest))
    }
}
