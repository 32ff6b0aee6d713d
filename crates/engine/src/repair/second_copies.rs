//! Second copies: redundant copies of blocks that many references share.
//!
//! Deduplication makes the only copy of a block precious: if it rots, all blocks that share it are lost. With a threshold set, a block with more
//! references than the threshold gets a second copy in a slot of its own.
//!
//! ```text
//! made by    the scrub, from content that it has just read and verified
//! stored in  the map of a hidden volume: its block n is the second copy of slot n
//! used by    repairs: of a slot by its second copy, of a second copy by the slot
//! dropped by the scrub, where a slot needs none any more; all of them at once, when slots run short
//! ```
//!
//! The volume is authoritative like any other: journaled, checkpointed, counted. Its block n equals slot n only as a hint, which the digest must
//! prove before any use: slots are freed and reused without a check of their second copies.

use super::Repairs;
use crate::api::*;
use crate::format::entry::{Key, Slot};
use crate::pool::Pool;
use crate::pool::change::Put;
use crate::pool::metadata_reservation::Asked;
use crate::pool::metadata_reservation::Availability;
use crate::pool::state::{LoadSnapshot, Phase};
use crate::pool::volumes::VolumeChange;

/// Divisor of the slots: no second copies are made where fewer than one in N is free beyond the reserve.
const SPACE_TO_MAKE: u64 = 8;
/// Divisor of the slots: all second copies are given back where fewer than one in N is free beyond the reserve.
const SPACE_TO_KEEP: u64 = 16;

impl Repairs {
    /// Maintains the volume of second copies: resizes it to the pool, deletes it when it is no longer wanted, and gives its blocks back when slots
    /// run short.
    pub(crate) fn step_copies(&mut self, pool: &mut Pool, load: &LoadSnapshot) {
        let Some(at) = pool.copies_volume() else { return };
        if pool.state.phase() != Phase::Serving || !pool.takes_changes() || load.writes_blocked {
            return;
        }
        let (volume, slots) = (pool.durable.volumes()[at].id, pool.metadata.geometry().slots());
        if pool.properties.second_copies() == 0 {
            let _ = pool.change_volume(VolumeChange::Delete { volume }, load.clears_left);
        } else if pool.durable.volumes()[at].size < slots * pool.metadata.geometry().block() {
            let _ = pool.change_volume(VolumeChange::Resize { volume, blocks: slots }, load.clears_left);
        } else if pool.durable.space().free() < pool.slots_to_spare(SPACE_TO_KEEP) {
            self.give_back_copies(pool, load);
        }
    }

    /// Drops all second copies. Returns false if there are none, or no metadata space for the clear.
    pub(crate) fn give_back_copies(&mut self, pool: &mut Pool, load: &LoadSnapshot) -> bool {
        if !self.has_copies {
            return false;
        }
        let Some(at) = pool.copies_volume() else { return false };
        if !pool.clear_hidden(at, load) {
            return false;
        }
        self.has_copies = false;
        true
    }

    /// Writes a second copy of a slot from a buffer with its verified content. Takes over the buffer, or releases it if there is no space.
    pub(crate) fn make_copy(
        &mut self,
        pool: &mut Pool,
        load: &LoadSnapshot,
        slot: Slot,
        digest: Digest,
        buffer: BufferId,
    ) {
        let space =
            pool.durable.space().free() >= pool.slots_to_spare(SPACE_TO_MAKE) && pool.durable.space().ready() > 0;
        let Some(volume) = Repairs::space_for_copies(pool, load, space).filter(|_| !load.writes_blocked) else {
            return pool.memory.buffers_mut().release(buffer);
        };
        // The first bytes of the content are no longer known, and it has no waiters: it is never inlined in the journal.
        pool.put_alone(
            Key::new(volume, slot.0),
            Put::Fresh { digest, buffer, may_travel: false, sequential: false, offline: false },
        );
        self.has_copies = true;
    }

    /// Drops the second copy of a slot, if there is metadata space for the change.
    pub(crate) fn drop_copy(pool: &mut Pool, load: &LoadSnapshot, slot: Slot) {
        if let Some(volume) = Repairs::space_for_copies(pool, load, true) {
            pool.put_alone(Key::new(volume, slot.0), Put::Zero);
        }
    }

    /// Returns the volume of second copies, if its map can be changed without waiting.
    fn space_for_copies(pool: &mut Pool, load: &LoadSnapshot, space: bool) -> Option<VolumeId> {
        let at = pool.copies_volume().filter(|_| space && pool.takes_changes())?;
        let volume = pool.durable.volumes()[at].id;
        matches!(pool.space_for(&Asked::scattered(2), load.clears_left), Availability::Now).then_some(volume)
    }
}
