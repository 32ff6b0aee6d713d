//! Deleted snapshots with one child: which of them is handed over to it, and when (RFC 0020). `jobs/checkpoint/hand_over.rs` does it, in parts.
//!
//! A deleted snapshot with several children waits: a block that all of them hide stays with it. With one child left, it is handed over, one snapshot at a time.
//! From then on background work leaves its blocks in their slots: no record may name a map that is to leave the table. The hand-over begins when neither the
//! deltas nor the map buffer have a key of it.

use crate::api::VolumeId;
use crate::format::entry::Key;
use crate::mutant::Mutant;
use crate::pool::Pool;
use crate::pool::volumes::end_of;

impl Pool {
    /// Returns true if a deleted snapshot is to be handed over, and the hand-over has not begun. The next checkpoint begins it.
    pub(crate) fn awaits_hand_over(&self) -> bool {
        let volumes = &self.durable.volumes;
        volumes.giver().is_none() && !self.durable.is_hand_over_stopped && volumes.next_giver(|_| true).is_some()
    }

    /// Chooses the next snapshot to be handed over, if none is. A checkpoint has just ended.
    pub(crate) fn review_hand_over(&mut self) {
        let volumes = &self.durable.volumes;
        if !self.takes_changes() || self.durable.is_hand_over_stopped || volumes.giver().is_some() {
            return;
        }
        let names = |map: VolumeId| {
            let (first, end) = (Key::new(map, 0), end_of(map));
            let is_named = self.durable.delta.mapped(map) > 0 || self.durable.map_buffer.count(first, end) > 0;
            is_named && !self.mutant(Mutant::NamedMapRemoved)
        };
        let is_rolled_back = |map: VolumeId| self.checkpoint.rolls_back(map);
        let may_give = |map: VolumeId| !names(map) && !volumes.lineage().children(map).any(is_rolled_back);
        if let Some(giver) = volumes.next_giver(may_give) {
            let child = volumes.lineage().children(giver).next().expect("it has a child");
            let is_first = self.mutant(Mutant::GiverFirst);
            self.durable.volumes.begin_hand_over(giver, is_first);
            self.durable.discards.relabel(giver, child);
            self.request_checkpoint();
        } else if self.awaits_hand_over() && !self.durable.map_buffer.is_empty() {
            self.ask_to_flush();
        }
    }
}
