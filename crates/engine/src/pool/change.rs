//! Changing the map: what a clear does to it, and the slots that it has lost the last reference to.

use super::Pool;
use crate::format::entry::{Key, Slot};
use crate::pool::room::Cleared;
use crate::store::tree::subtrees;

impl Pool {
    /// The index forgets what generations can no longer tell apart.
    pub(crate) fn forget_wrapped(&mut self) {
        while let Some(slots) = self.space.take_wrapped() {
            self.index.forget(slots);
        }
    }

    /// The most that clearing the blocks from `start` up to `stop` can do to a map, beside what the delta clears already.
    pub(crate) fn cleared(&self, start: Key, stop: Key) -> Cleared {
        let Some(begins) = self.delta.clear_before(start) else {
            return Cleared { cuts: self.cuts(start, stop), releases: self.releases(start, stop) };
        };
        // It makes that clear longer: of this only what is more.
        let more = |most: u64, known: u64| most.saturating_sub(known);
        Cleared {
            cuts: more(self.cuts(begins, stop), self.cuts(begins, start)),
            releases: more(self.releases(begins, stop), self.releases(begins, start)),
        }
    }

    /// The most subtrees that clearing the blocks from `start` up to `stop` can cut off a map.
    pub(crate) fn cuts(&self, start: Key, stop: Key) -> u64 {
        let geometry = &self.store.geometry;
        let per_leaf = geometry.map_leaf_entries();
        let Ok(at) = self.volumes.binary_search_by_key(&start.volume(), |volume| volume.id) else { return 0 };
        let reach = geometry.fanout().saturating_pow(self.maps[at].height.into());
        let (first, end) = (start.lba(), start.lba() + stop.0.saturating_sub(start.0));
        let (first, end) = (first.div_ceil(per_leaf), (end / per_leaf).min(reach));
        if first == 0 && end == reach {
            return 1;
        }
        subtrees(first, end, geometry.fanout())
    }

    /// The most slots that clearing the blocks from `start` up to `stop` can release in leaves that it covers in part, and in the map
    /// buffer.
    pub(crate) fn releases(&self, start: Key, stop: Key) -> u64 {
        let per_leaf = self.store.geometry.map_leaf_entries();
        let (first, end) = (start.lba(), start.lba() + stop.0.saturating_sub(start.0));
        let in_leaves = if first >= end {
            return 0;
        } else if first / per_leaf == end / per_leaf {
            end - first
        } else {
            first.next_multiple_of(per_leaf) - first + end % per_leaf
        };
        in_leaves + self.buffer.count(start, stop) as u64
    }

    /// Puts a clear into the delta. What it covers there is left to [`Pool::retire_dead`]. Gives the entries that it has looked at.
    pub(crate) fn cover_keys(&mut self, start: Key, stop: Key) -> u64 {
        let cleared = self.cleared(start, stop);
        self.delta.cuts += cleared.cuts;
        self.delta.releases += cleared.releases;
        self.delta.clear(start, stop, &mut self.dead)
    }

    /// The active delta may have lost its last reference to a slot. A slot that no tree and no older delta knows then waits
    /// to become free; the others are settled when the delta is merged.
    pub(crate) fn retire_if_dead(&mut self, slot: Slot) {
        if self.delta.slots.get(&slot).is_some_and(|recent| recent.fresh && recent.refs == 0) {
            self.delta.forget(slot);
            self.space.retire(slot, self.journal.sequence);
        }
    }

    /// Puts a clear into the delta, and gives up what it covers there.
    pub(crate) fn clear_keys(&mut self, start: Key, stop: Key) {
        self.cover_keys(start, stop);
        self.retire_dead();
    }

    /// Gives up the slots to which the active delta has lost its last reference. At the end of a change, for what one of its blocks
    /// overwrites another one may share.
    pub(crate) fn retire_dead(&mut self) {
        while let Some(slot) = self.dead.pop() {
            self.retire_if_dead(slot);
        }
    }
}
