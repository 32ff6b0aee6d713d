//! Tracking of inlined blocks: blocks that travelled in the journal, until a sync has covered their slots. A small flush then need not wait for slot writes.
//!
//! A flushed block is durable in the record that inlined it. The slot is written later, and no record waits for that: a failed sync may lose
//! it. The pool is read-only from then on. Readers then get such a block from the journal, where recovery would find it (`repair/block_repair.rs`).
//!
//! Inlined blocks go to their slots in batches, in the order of their records. A batch has *landed* when no write of it, or of an earlier one,
//! is in flight.

use super::Unwritten;
use alloc::collections::VecDeque;

use crate::api::Digest;
use crate::format::entry::Slot;

/// Number of copies that triggers a sync: durable writes need none, so no other sync may come for a long time.
const MANY: usize = 4096;

/// Block in the journal.
struct JournalPlace {
    slot: Slot,
    digest: Digest,
    /// Block of the store, in the journal, with its content.
    block: u64,
    /// Batch that takes it to its slot.
    batch: u32,
}

/// Blocks inlined in the journal, on their way to their slots.
pub(super) struct InlinedBlocks {
    /// Blocks whose slot writes are still to be submitted.
    pub(super) unwritten: VecDeque<Unwritten>,
    /// Number of slot writes in flight.
    pub(super) in_flight: usize,
    /// Journal places of blocks whose slots no sync has covered.
    pub(super) copies: InlinedCopies,
}

impl InlinedBlocks {
    /// Creates the state without blocks.
    pub(super) fn new() -> InlinedBlocks {
        InlinedBlocks { unwritten: VecDeque::new(), in_flight: 0, copies: InlinedCopies::new() }
    }
}

/// Inlined blocks whose slots may still be lost, in the order of their batches.
pub(super) struct InlinedCopies {
    copies: VecDeque<JournalPlace>,
    /// Number of the batch that is being collected, and of the first batch that has not landed.
    batch: u32,
    landed: u32,
}

impl InlinedCopies {
    pub(super) fn new() -> InlinedCopies {
        InlinedCopies { copies: VecDeque::with_capacity(MANY + MANY / 8), batch: 0, landed: 0 }
    }

    /// Adds a block inlined in the journal; it belongs to the batch that is being collected.
    pub(super) fn add(&mut self, slot: Slot, digest: Digest, block: u64) {
        self.copies.push_back(JournalPlace { slot, digest, block, batch: self.batch });
    }

    /// Ends the batch that is being collected: its slot writes are submitted.
    pub(super) fn submitted(&mut self) {
        self.batch = self.batch.wrapping_add(1);
    }

    /// Notes that no write of an inlined block is in flight.
    pub(super) fn all_landed(&mut self) {
        self.landed = self.batch;
    }

    /// Returns the first batch that a sync submitted now does not cover.
    pub(super) fn landed(&self) -> u32 {
        self.landed
    }

    /// Drops the copies of the batches before this one, which a sync has covered.
    pub(super) fn synced(&mut self, batch: u32) {
        while self.copies.front().is_some_and(|copy| batch.wrapping_sub(copy.batch).cast_signed() > 0) {
            self.copies.pop_front();
        }
    }

    /// Returns true if the copies need a sync, and it would cover all submitted ones.
    pub(super) fn are_many(&self) -> bool {
        self.copies.len() >= MANY && self.landed == self.batch
    }

    /// Returns the journal block with a slot's expected content, if there is still one: its record may be overwritten.
    pub(super) fn find(&self, slot: Slot, digest: Digest) -> Option<u64> {
        self.copies.iter().rfind(|copy| copy.slot == slot && copy.digest == digest).map(|copy| copy.block)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sync_covers_what_had_landed_when_it_was_submitted() {
        let mut copies = InlinedCopies::new();
        copies.add(Slot(1), Digest::default(), 7);
        copies.submitted();
        copies.add(Slot(2), Digest::default(), 8);
        assert_eq!(copies.landed(), 0, "the first batch is in flight");
        copies.all_landed();
        let landed = copies.landed();
        copies.submitted();
        copies.all_landed();
        copies.synced(landed);
        assert_eq!([1, 2].map(|slot| copies.find(Slot(slot), Digest::default())), [None, Some(8)]);
    }

    #[test]
    fn many_ask_for_a_sync_when_it_would_cover_them() {
        let mut copies = InlinedCopies::new();
        (0..MANY as u64).for_each(|slot| copies.add(Slot(slot), Digest::default(), slot));
        copies.submitted();
        assert!(!copies.are_many());
        copies.all_landed();
        assert!(copies.are_many());
        copies.synced(copies.landed());
        assert_eq!(copies.copies.len(), 0);
    }
}
