//! Replay of a change that the journal has: recovery applies it to the deltas and the volumes, without a new record.

use alloc::vec::Vec;

use super::Pool;
use crate::api::{Digest, VolumeId};
use crate::format::entry::Entry;
use crate::format::entry::Key;
use crate::format::record::Change;
use crate::mutant::Mutant;
use crate::pool::volumes::VolumeChange;
use crate::pool::volumes::end_of;

impl Pool {
    /// Applies a change of a record to deltas and volumes.
    pub(crate) fn replay_change(&mut self, change: &Change, sequence: u64) {
        let (key, entry, digest, fresh) = match *change {
            Change::Fresh { key, slot, digest, .. } | Change::Inlined { key, slot, digest, .. } => {
                // The former use of the slot, if this delta has it, ended before.
                if self.durable.delta.live(slot).is_none() {
                    self.durable.delta.forget(slot);
                }
                (key, Entry::whole(slot, digest), digest, true)
            }
            Change::Share { key, slot, digest } => (key, Entry::whole(slot, digest), digest, false),
            Change::Zero { key } => (key, Entry::ZERO, Digest::default(), false),
            Change::Clear { key, end } => return self.replay_clear(key, Key(key.0 - key.lba() + end)),
            Change::DeleteVolume { volume } => {
                return self.replay_volume_change(VolumeChange::Delete { volume }, sequence);
            }
            Change::ResizeVolume { volume, blocks } => {
                return self.replay_volume_change(VolumeChange::Resize { volume, blocks }, sequence);
            }
        };
        self.durable.reservation.note(key);
        self.durable.delta.put(key, entry, digest, fresh);
    }

    /// Replays a clear. The slots that lose their last reference here are found after the whole replay.
    fn replay_clear(&mut self, start: Key, stop: Key) {
        if self.mutant(Mutant::LostClears) {
            return;
        }
        self.cover_keys(start, stop);
        self.durable.dead.clear();
    }

    /// Replays a change of volumes of record `sequence`.
    fn replay_volume_change(&mut self, change: VolumeChange, sequence: u64) {
        let (VolumeChange::Delete { volume } | VolumeChange::Resize { volume, .. }) = change;
        let at = self.volume_index(volume).expect("checked before it was believed");
        match change {
            VolumeChange::Delete { volume } => {
                // Its snapshots were deleted before it, and no checkpoint says so.
                let snapshots: Vec<VolumeId> = self.durable.volumes.snapshots_of(volume).collect();
                for snapshot in snapshots {
                    let at = self.durable.volumes.find(snapshot).expect("it is in the table");
                    self.durable.volumes.take_name(at);
                }
                self.replay_clear(Key::new(volume, 0), end_of(volume));
                self.durable.volumes.delete(at, sequence);
                self.note_hidden_volumes();
            }
            VolumeChange::Resize { volume, blocks } => {
                let size = blocks * self.metadata.geometry().block();
                if size < self.durable.volumes[at].size {
                    self.replay_clear(Key::new(volume, blocks), end_of(volume));
                }
                self.durable.volumes.resize(at, size);
            }
        }
    }
}
