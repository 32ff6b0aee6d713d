//! Changes of the map, in one way for requests and jobs: the open record, the active delta, and the slot and buffer of a new block. Callers have reserved space
//! before (`metadata_reservation.rs`, `space`), so a change waits for nothing. A request changes several blocks and ends with [`Pool::free_dead`]. A job
//! changes blocks with [`Pool::put_alone`], each complete in itself. [`Pool::relocate`] and [`Pool::remap`] compare first that the slot still holds the content
//! that the job saw before its I/O; a job that calls `put_alone` has compared in the same step.

use super::Pool;
use crate::api::{BufferId, Digest};
use crate::format::entry::{Entry, Key, Slot, check_bits};
use crate::format::record::Change;
use crate::journal::Unwritten;
use crate::metadata::tree::{LastLeaf, Missing, Unresolved, subtrees};
use crate::mutant::Mutant;
use crate::pool::metadata_reservation::Cleared;

/// New content of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Put {
    /// Block of zeroes, without a slot.
    Zero,
    /// Slot that the block shares, and the digest of its content.
    Share(Slot, Digest),
    /// Block that gets the next slot, from a buffer that belongs to the slot from now on. Its bytes travel in the journal if they may. `sequential`: it is one
    /// of many blocks that are written together, and that get consecutive slots. `offline`: no duplicate was looked for.
    Fresh { digest: Digest, buffer: BufferId, may_travel: bool, sequential: bool, offline: bool },
    /// Slot that a job has claimed and written, and that a sync has covered since: the record has nothing to wait for.
    Placed(Slot, Digest),
}

/// Slot that a job has read before its I/O, and the digest of its content at that time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Seen(pub Slot, pub Digest);

impl Pool {
    /// Makes pending slots free whose record is at or below `published`, except those whose block is to be written or is being read, replicas, and those that
    /// are `busy`. Looks at `most` of them, the rest with the next call.
    pub(crate) fn reclaim_pending(&mut self, published: u64, most: usize, busy: impl Fn(Slot) -> bool) {
        let Pool { durable, memory, hints, .. } = self;
        let busy = |slot| memory.is_using(slot) || hints.replicas.holds(slot) || busy(slot);
        durable.reclaim_left = durable.space.reclaim(published, most, busy, &mut durable.dead);
    }

    /// Takes the next reclaimed slot. Its replica and its block in the read cache are gone.
    pub(crate) fn next_reclaimed(&mut self) -> Option<Slot> {
        let slot = self.durable.dead.pop()?;
        if !self.mutant(Mutant::KeptReplica) {
            self.hints.replicas.forget(slot);
        }
        self.memory.forget(slot);
        Some(slot)
    }

    /// Notes that the next checkpoint frees discarded slots or slots that a pass has deduplicated: writes that wait for slots find them then.
    pub(crate) fn note_slots_freed(&mut self) {
        self.durable.slots_freed_in = self.checkpoint.done() + 1;
    }

    /// Changes the mapping of a block. A slot that loses its last reference is left to [`Pool::free_dead`].
    #[inline]
    pub(crate) fn put(&mut self, key: Key, what: Put) -> Entry {
        let (entry, digest, fresh) = match what {
            Put::Zero => {
                self.durable.journal.push(Change::Zero { key });
                (Entry::ZERO, Digest::default(), false)
            }
            Put::Share(slot, digest) => {
                self.durable.journal.push(Change::Share { key, slot, digest });
                (Entry::whole(slot, digest), digest, false)
            }
            Put::Fresh { digest, buffer, may_travel, sequential, offline } => {
                let slot = self.durable.space.allocate(sequential).expect("space was counted before");
                // The cache may have this slot's former content, which became invalid when the slot was given back.
                self.memory.buffers_mut().set_check(buffer, check_bits(digest));
                self.memory.set_dirty(slot, buffer);
                self.durable.journal.add_block(Unwritten { slot, buffer }, !may_travel);
                self.durable.journal.push(Change::Fresh { key, slot, digest, offline });
                (Entry::whole(slot, digest), digest, true)
            }
            Put::Placed(slot, digest) => {
                self.durable.journal.push(Change::Fresh { key, slot, digest, offline: false });
                (Entry::whole(slot, digest), digest, true)
            }
        };
        self.durable.reservation.note(key);
        if let Some(slot) = self.durable.delta.put(key, entry, digest, fresh) {
            self.durable.dead.push(slot);
        }
        entry
    }

    /// Changes the mapping of one block for a job or a repair, without a request.
    pub(crate) fn put_alone(&mut self, key: Key, what: Put) -> Entry {
        if let Put::Fresh { buffer, .. } = what {
            self.memory.buffers_mut().set_incoming(buffer);
        }
        let entry = self.put(key, what);
        self.free_dead();
        self.state.note_change();
        self.forget_wrapped();
        entry
    }

    /// Returns true if a slot certainly holds the content that a job has seen there. It answers without waiting.
    pub(crate) fn still_holds(&mut self, Seen(slot, digest): Seen) -> bool {
        self.proven_digest(slot).is_ok_and(|found| found.is_some_and(|(found, _)| found == digest))
    }

    /// Remaps a block to a job's result for a slot that it has read, if the slot still holds the content that the job has seen. `None`: it does not, or the
    /// answer would take a wait; the buffer stays the job's.
    pub(crate) fn remap(&mut self, key: Key, seen: Seen, to: Put) -> Option<Entry> {
        self.still_holds(seen).then(|| self.put_alone(key, to))
    }

    /// Remaps a block to another slot with the same content, in the map that has it, for all maps that inherit it. It does so only while the block maps to
    /// the entry that the job has seen, with this digest. Returns true if it has remapped the block.
    pub(crate) fn relocate(&mut self, key: Key, seen: Entry, digest: Digest, to: Slot) -> Result<bool, Missing> {
        let (Some(volume), Some(slot)) = (self.volume_index(key.volume()), seen.slot()) else { return Ok(false) };
        let key = match self.standing_entry(volume, key, &mut LastLeaf::default()) {
            Ok((key, entry)) if entry == seen => key,
            Ok((key, _)) if self.mutant(Mutant::BlindMove) => key,
            Ok(_) | Err(Unresolved::Damaged) => return Ok(false),
            Err(Unresolved::Missing(missing)) => return Err(missing),
        };
        if self.keeps_its_slots(key.volume()) && !self.mutant(Mutant::MovedAtSnapshot) {
            // While a snapshot is pending, the change would be the volume's alone, and the snapshot would keep the old slot.
            return Ok(false);
        }
        if self.proven_digest(slot)?.is_none_or(|(found, _)| found != digest) {
            return Ok(false);
        }
        let known = self.sharing_digest(digest);
        let is_named = self.hints.index.lookup(known).is_some_and(|hint| hint.slot == slot);
        self.put_alone(key, Put::Placed(to, digest));
        if is_named {
            self.note_known(digest, to);
        }
        Ok(true)
    }

    /// Removes slots from the index that generations no longer tell apart.
    pub(crate) fn forget_wrapped(&mut self) {
        while let Some(slots) = self.durable.space.take_wrapped() {
            self.hints.index.forget(slots);
        }
    }

    /// Returns the upper bound on the effect of clearing the blocks from `start` up to `stop`, beyond the clears that the delta already has.
    pub(crate) fn cleared(&self, start: Key, stop: Key) -> Cleared {
        let Some(begins) = self.durable.delta.clear_before(start) else {
            return Cleared { cuts: self.cuts(start, stop), releases: self.releases(start, stop) };
        };
        // The new clear extends an existing one: only the extension counts.
        let more = |most: u64, known: u64| most.saturating_sub(known);
        Cleared {
            cuts: more(self.cuts(begins, stop), self.cuts(begins, start)),
            releases: more(self.releases(begins, stop), self.releases(begins, start)),
        }
    }

    /// Returns the most subtrees that clearing the blocks from `start` up to `stop` can cut off a map.
    pub(crate) fn cuts(&self, start: Key, stop: Key) -> u64 {
        let geometry = self.metadata.geometry();
        let per_leaf = geometry.map_leaf_entries();
        let Some(at) = self.durable.volumes.find(start.volume()) else { return 0 };
        let reach = geometry.fanout().saturating_pow(self.durable.volumes.map(at).height.into());
        let (first, end) = (start.lba(), start.lba() + stop.0.saturating_sub(start.0));
        let (first, end) = (first.div_ceil(per_leaf), (end / per_leaf).min(reach));
        if first == 0 && end == reach {
            return 1;
        }
        subtrees(first, end, geometry.fanout())
    }

    /// Returns the most slots that clearing the blocks from `start` up to `stop` can release in leaves that it covers in part, and in the map buffer.
    pub(crate) fn releases(&self, start: Key, stop: Key) -> u64 {
        let per_leaf = self.metadata.geometry().map_leaf_entries();
        let (first, end) = (start.lba(), start.lba() + stop.0.saturating_sub(start.0));
        let in_leaves = if first >= end {
            return 0;
        } else if first / per_leaf == end / per_leaf {
            end - first
        } else {
            first.next_multiple_of(per_leaf) - first + end % per_leaf
        };
        in_leaves + self.durable.map_buffer.count(start, stop) as u64
    }

    /// Puts a clear into the delta, and returns the number of entries that it has looked at. Slots without references are left to [`Pool::free_dead`].
    pub(crate) fn cover_keys(&mut self, start: Key, stop: Key) -> u64 {
        let cleared = self.cleared(start, stop);
        self.durable.delta.note_cleared(cleared.cuts, cleared.releases);
        self.durable.delta.clear(start, stop, &mut self.durable.dead)
    }

    /// Makes a slot pending free if the active delta has lost its last reference to it, and no tree and no older delta knows it. The merge of the delta settles
    /// all other slots.
    pub(crate) fn free_if_dead(&mut self, slot: Slot) {
        if self.durable.delta.slots().get(&slot).is_some_and(|recent| recent.fresh && recent.refs == 0) {
            self.durable.delta.forget(slot);
            self.durable.space.defer_free(slot, self.durable.journal.sequence());
        }
    }

    /// Puts a clear into the delta, and frees the slots that lose their last reference by it.
    pub(crate) fn clear_keys(&mut self, start: Key, stop: Key) {
        self.cover_keys(start, stop);
        self.free_dead();
    }

    /// Frees the slots to which the active delta has lost its last reference. It runs at the end of a change, because one block of the change may share a slot
    /// that another one has just overwritten.
    pub(crate) fn free_dead(&mut self) {
        while let Some(slot) = self.durable.dead.pop() {
            self.free_if_dead(slot);
        }
    }
}
