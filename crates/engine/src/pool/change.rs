//! Changing the map, in one way for requests and jobs: the open record, the active delta, and the slot and buffer of a new block.
//!
//! Space has been found before (`metadata_reservation.rs`, `space`): a change waits for nothing. A request changes several blocks and ends with
//! [`Pool::free_dead`]; a job changes one at a time, and goes by what it has seen before its I/O.

use super::Pool;
use crate::api::{BufferId, Digest};
use crate::format::entry::{Entry, Key, Slot, check_bits};
use crate::format::record::Change;
use crate::journal::Unwritten;
use crate::metadata::tree::{Missing, Unresolved, subtrees};
use crate::mutant::Mutant;
use crate::pool::metadata_reservation::Cleared;

/// New content of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Put {
    /// Block of zeroes, without a slot.
    Zero,
    /// Slot that the block shares: it holds what has this digest.
    Share(Slot, Digest),
    /// Block that gets the next slot, from a buffer that is the slot's from here on. Its bytes travel in the journal if they may. `sequential`: it is one of many
    /// that are written together, and get slots that follow each other. `offline`: no look has been taken for a duplicate.
    Fresh { digest: Digest, buffer: BufferId, may_travel: bool, sequential: bool, offline: bool },
    /// Slot that a job has claimed and written, and that a sync has covered since: the record has nothing to wait for.
    Placed(Slot, Digest),
}

/// Slot that a job has read before its I/O, and the digest of what it held.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Seen(pub Slot, pub Digest);

impl Pool {
    /// Changes the mapping of a block. What it was the last reference to is left to [`Pool::free_dead`].
    #[inline]
    pub(crate) fn put(&mut self, key: Key, what: Put) -> Entry {
        let (entry, digest, fresh) = match what {
            Put::Zero => {
                self.journal.changes.push(Change::Zero { key });
                (Entry::ZERO, Digest::default(), false)
            }
            Put::Share(slot, digest) => {
                self.journal.changes.push(Change::Share { key, slot, digest });
                (Entry::whole(slot, digest), digest, false)
            }
            Put::Fresh { digest, buffer, may_travel, sequential, offline } => {
                let slot = self.space.allocate(sequential).expect("space was counted before");
                // The content may be cached under the slot's former life; that ended when the slot was given back.
                self.buffers.set_check(buffer, check_bits(digest));
                let before = self.dirty.insert(slot, buffer);
                assert!(before.is_none(), "no write of an old block is outstanding when its slot is reused");
                self.journal.add_block(Unwritten { slot, buffer }, !may_travel);
                self.journal.changes.push(Change::Fresh { key, slot, digest, offline });
                (Entry::whole(slot, digest), digest, true)
            }
            Put::Placed(slot, digest) => {
                self.journal.changes.push(Change::Fresh { key, slot, digest, offline: false });
                (Entry::whole(slot, digest), digest, true)
            }
        };
        self.reservation.active.note(key);
        if let Some(slot) = self.delta.put(key, entry, digest, fresh) {
            self.dead.push(slot);
        }
        entry
    }

    /// Changes the mapping of one block that no request has asked for.
    pub(crate) fn put_alone(&mut self, key: Key, what: Put) -> Entry {
        if let Put::Fresh { buffer, .. } = what {
            self.buffers.set_incoming(buffer);
        }
        let entry = self.put(key, what);
        self.free_dead();
        self.last_change = self.now;
        self.forget_wrapped();
        entry
    }

    /// Returns true if a slot holds what a job has seen there, as far as that can be said without waiting.
    pub(crate) fn still_holds(&mut self, Seen(slot, digest): Seen) -> bool {
        self.proven_digest(slot).is_ok_and(|found| found.is_some_and(|(found, _)| found == digest))
    }

    /// Remaps a block to what a job has made of a slot that it has read, while that holds what the job has seen. `None`: it does not, or that cannot be said
    /// without waiting; the buffer stays the job's.
    pub(crate) fn remap(&mut self, key: Key, seen: Seen, to: Put) -> Option<Entry> {
        self.still_holds(seen).then(|| self.put_alone(key, to))
    }

    /// Lets a block lead to another slot that holds the same: only while it leads to what the job has seen, and that is what has this
    /// digest. Whether it did.
    pub(crate) fn relocate(&mut self, key: Key, seen: Entry, digest: Digest, to: Slot) -> Result<bool, Missing> {
        let (Some(volume), Some(slot)) = (self.volume_index(key.volume()), seen.slot()) else { return Ok(false) };
        match self.resolve(volume, key) {
            Ok(entry) if entry == seen => {}
            Ok(_) if self.mutant(Mutant::BlindMove) => {}
            Ok(_) | Err(Unresolved::Damaged) => return Ok(false),
            Err(Unresolved::Missing(missing)) => return Err(missing),
        }
        if self.proven_digest(slot)?.is_none_or(|(found, _)| found != digest) {
            return Ok(false);
        }
        let known = self.sharing_digest(digest);
        let is_named = self.index.lookup(known).is_some_and(|hint| hint.slot == slot);
        self.put_alone(key, Put::Placed(to, digest));
        if is_named {
            self.note_known(digest, to);
        }
        Ok(true)
    }

    /// Removes the slots from the index that generations can no longer tell apart.
    pub(crate) fn forget_wrapped(&mut self) {
        while let Some(slots) = self.space.take_wrapped() {
            self.index.forget(slots);
        }
    }

    /// Returns the most that clearing the blocks from `start` up to `stop` can do to a map, beside what the delta clears already.
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

    /// Returns the most subtrees that clearing the blocks from `start` up to `stop` can cut off a map.
    pub(crate) fn cuts(&self, start: Key, stop: Key) -> u64 {
        let geometry = &self.metadata.geometry;
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

    /// Returns the most slots that clearing the blocks from `start` up to `stop` can release in leaves that it covers in part, and in the map buffer.
    pub(crate) fn releases(&self, start: Key, stop: Key) -> u64 {
        let per_leaf = self.metadata.geometry.map_leaf_entries();
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

    /// Puts a clear into the delta. What it covers there is left to [`Pool::free_dead`]. Gives the entries that it has looked at.
    pub(crate) fn cover_keys(&mut self, start: Key, stop: Key) -> u64 {
        let cleared = self.cleared(start, stop);
        self.delta.cuts += cleared.cuts;
        self.delta.releases += cleared.releases;
        self.delta.clear(start, stop, &mut self.dead)
    }

    /// Retires a slot if the active delta has lost its last reference to it, and no tree and no older delta knows it: it waits to become free. The others are
    /// settled when the delta is merged.
    pub(crate) fn free_if_dead(&mut self, slot: Slot) {
        if self.delta.slots.get(&slot).is_some_and(|recent| recent.fresh && recent.refs == 0) {
            self.delta.forget(slot);
            self.space.defer_free(slot, self.journal.sequence);
        }
    }

    /// Puts a clear into the delta, and gives up what it covers there.
    pub(crate) fn clear_keys(&mut self, start: Key, stop: Key) {
        self.cover_keys(start, stop);
        self.free_dead();
    }

    /// Gives up the slots to which the active delta has lost its last reference. At the end of a change, for what one of its blocks
    /// overwrites another one may share.
    pub(crate) fn free_dead(&mut self) {
        while let Some(slot) = self.dead.pop() {
            self.free_if_dead(slot);
        }
    }
}
