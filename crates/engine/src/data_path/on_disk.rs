//! Look-ups of written blocks in the index on disk. A write waits for the pages of a look-up a bounded number of times.

use crate::api::*;
use crate::dedup::policy::OnDisk;
use crate::engine::Engine;
use crate::pool::contents::Known;

/// The most times that a write waits for pages before the index on disk counts as knowing nothing: those on the path to the bucket, of the space map
/// and of the summaries follow each other.
const ATTEMPTS: u8 = 16;

impl Engine {
    /// Looks a block of a request up in the index on disk, and proves the answer; for policies that use that index.
    pub(crate) fn known_on_disk(&mut self, id: RequestId, at: usize, digest: Digest) -> Known {
        let request = self.requests.get_mut(id);
        if !self.pool.hints.disk_index.record().is_on() || request.attempts() >= ATTEMPTS {
            return Known::No;
        }
        let block = &mut request.blocks_mut()[at];
        match block.on_disk {
            OnDisk::Absent => return Known::No,
            OnDisk::NotAsked => {
                self.pool.hints.disk_index.count_lookup();
                if self.pool.is_absent_on_disk(digest) {
                    block.on_disk = OnDisk::Absent;
                    self.pool.hints.disk_index.count_filtered();
                    return Known::No;
                }
                block.on_disk = OnDisk::Asked;
            }
            OnDisk::Asked | OnDisk::Hit => {}
        }
        match self.pool.find_on_disk(digest) {
            Ok(Some(slot)) => {
                let block = &mut self.requests.get_mut(id).blocks_mut()[at];
                if core::mem::replace(&mut block.on_disk, OnDisk::Hit) != OnDisk::Hit {
                    self.pool.hints.disk_index.count_hit();
                }
                self.pool.note_known(digest, slot);
                Known::Yes(slot, digest)
            }
            Ok(None) => {
                self.requests.get_mut(id).blocks_mut()[at].on_disk = OnDisk::Absent;
                Known::No
            }
            Err(missing) => {
                if !self.pool.metadata.pages().is_loading(missing.key) {
                    self.pool.hints.disk_index.count_load();
                }
                Known::NotYet(missing)
            }
        }
    }

    /// Returns true if a request may wait once more for pages that the index on disk needs.
    pub(crate) fn may_ask_disk(&self, id: RequestId, at: usize) -> bool {
        let request = self.requests.get(id);
        matches!(request.blocks()[at].on_disk, OnDisk::Asked | OnDisk::Hit) && request.attempts() < ATTEMPTS
    }
}
