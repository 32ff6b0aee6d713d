//! An index on disk that falls behind. Volumes that are offline look nothing up, so keeping the index up to date for them would be the very
//! cost that offline is to avoid: a page read and written for nearly each new block of a large pool. The background pass brings in what was
//! left out, since it goes through all contents in the order of buckets anyway: each page once.
//!
//! ```text
//! checkpoint   leaves out what was written for volumes that are offline; where no volume looks anything up, all changes
//! pass         hands over whole buckets, of one range of digests after the other ([`DeferredPart`]; jobs/dedup/index.rs)
//! checkpoint   writes a part: what else was in these buckets goes, but for what checkpoints have changed since the pass looked
//! end          complete again, if nothing was left out since the pass began
//! ```
//!
//! Nothing of it has to be exact: the index is a hint. What was left out costs savings, and what is stale a look, until a pass comes by. So
//! it is behind only if blocks were left out; what was not taken out goes when it is behind the next time.

use alloc::vec::Vec;
use core::ops::Range;

use super::bucket::{IndexChange, bucket_of};
use crate::format::disk_index::bucket_entries;
use crate::format::entry::Key;
use crate::format::superblock::DiskIndexRecord;
use crate::pool::Pool;
use crate::sizes::list_bytes;

/// Buckets that a checkpoint writes for the pass, however few entries a delta has.
const LEAST_BUCKETS: u64 = 4;
/// Least number of parts in which the index is written: each takes pages before it gives any back.
const LEAST_PARTS: u64 = 16;

/// Changes that are left out of an index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum LeftOut {
    Nothing,
    /// Blocks that were written for volumes that are offline.
    Offline,
    /// All changes, also removals: no volume looks anything up.
    All,
}

/// Changes that the next checkpoint brings in for the background pass.
#[derive(Default)]
pub(crate) struct DeferredPart {
    /// Entries to be put into the index or removed from it, in any order.
    pub changes: Vec<IndexChange>,
    /// Buckets that hold nothing else, but for what changed beside the pass.
    pub whole: Range<u64>,
}

impl DeferredPart {
    /// Buckets that it changes, at most.
    pub(super) fn buckets(&self) -> u64 {
        let whole = self.whole.end - self.whole.start;
        if whole > 0 { whole } else { self.changes.len() as u64 }
    }

    /// Returns the bytes of memory of the changes.
    pub(crate) fn memory(&self) -> u64 {
        list_bytes(&self.changes)
    }
}

/// State of an index that has fallen behind.
#[derive(Default)]
pub(super) struct Behind {
    part: Option<DeferredPart>,
    /// Blocks that were left out since the pool was opened.
    left_out: u64,
    /// Value of `left_out` when the index was complete for the last time.
    caught_up_at: u64,
    /// Changes by checkpoints since the pass began to look at a range, and how many of them are remembered at most.
    beside: Vec<IndexChange>,
    most_beside: usize,
    /// Set if some changes could not be remembered.
    has_forgotten: bool,
}

impl Behind {
    /// Returns the number of blocks that are missing.
    pub(super) fn left_out(&self) -> u64 {
        self.left_out - self.caught_up_at
    }

    /// Counts N blocks that a checkpoint leaves out.
    pub(super) fn count(&mut self, left_out: u64) {
        self.left_out += left_out;
    }

    /// Remembers the changes that a checkpoint makes, as far as there is space, while the pass looks at a range.
    pub(super) fn note(&mut self, changes: &[IndexChange]) {
        if self.most_beside > 0 {
            let space = self.most_beside.saturating_sub(self.beside.len());
            self.has_forgotten |= changes.len() > space;
            self.beside.extend(&changes[..changes.len().min(space)]);
        }
    }

    /// Returns the changes that belong to a part as well: in its buckets, since the pass looked. `None` if there were too many: then its buckets keep what they
    /// have.
    pub(super) fn beside(&self, part: &DeferredPart, buckets: u32) -> Option<impl Iterator<Item = IndexChange>> {
        let is_of_part = move |change: &&IndexChange| part.whole.contains(&bucket_of(change.hash, buckets));
        (!self.has_forgotten).then(|| self.beside.iter().filter(is_of_part).copied())
    }

    /// Returns the bytes of memory of part and changes.
    pub(super) fn memory(&self) -> u64 {
        list_bytes(&self.beside) + self.part.as_ref().map_or(0, DeferredPart::memory)
    }

    /// Drops the part: there is no index any more.
    pub(super) fn cut_off(&mut self) {
        self.part = None;
        // A pass that is in progress does not take the next one for its own.
        self.left_out += 1;
        self.caught_up_at = self.left_out;
    }
}

impl Pool {
    /// Returns true if a volume looks into the index now.
    pub(super) fn is_any_looking(&self) -> bool {
        self.any_is_full(Pool::policy_in_force)
    }

    /// Returns the kind of changes that checkpoints leave out now.
    pub(super) fn left_out(&self) -> LeftOut {
        match () {
            () if !self.volumes.iter().any(|volume| self.is_offline(volume)) => LeftOut::Nothing,
            () if self.is_any_looking() => LeftOut::Offline,
            () => LeftOut::All,
        }
    }

    /// Returns true if a block that was written for this owner is left out.
    pub(super) fn is_left_out(&self, left_out: LeftOut, owner: Key) -> bool {
        let is_offline = || self.volume_index(owner.volume()).is_some_and(|at| self.is_offline(&self.volumes[at]));
        left_out == LeftOut::All || left_out == LeftOut::Offline && is_offline()
    }
}

impl Pool {
    /// Returns true if the index waits for the background pass, and a volume looks into it.
    pub(crate) fn disk_index_wants_pass(&self) -> bool {
        self.disk_index.record.is_behind() && self.is_any_looking()
    }

    /// Returns the number of buckets of the index, if the background pass is to bring something in.
    pub(crate) fn buckets_behind(&self) -> Option<u32> {
        let record = self.disk_index.record;
        record.is_behind().then_some(record.buckets)
    }

    /// Returns the number of blocks that have been left out since opening: for the pass, to see if some were meanwhile.
    pub(crate) fn left_out_of_disk_index(&self) -> u64 {
        self.disk_index.behind.left_out
    }

    /// Begins to remember changes, when the pass begins to look at a range, or ends that.
    pub(crate) fn watch_disk_index(&mut self, looks: bool) {
        let behind = &mut self.disk_index.behind;
        let is_behind = looks && self.disk_index.record.is_behind();
        behind.most_beside = if is_behind { self.limits.delta_entries as usize } else { 0 };
        (behind.beside, behind.has_forgotten) = (Vec::new(), false);
    }

    /// Forgets the changes of all buckets before this hash: the pass has handed them over.
    pub(crate) fn watch_disk_index_from(&mut self, hash: u64) {
        let Some(buckets) = self.buckets_behind() else { return };
        let first = bucket_of(hash, buckets);
        self.disk_index.behind.beside.retain(|change| bucket_of(change.hash, buckets) >= first);
    }

    /// Returns the bytes of memory of what the pass and checkpoints have for each other.
    pub(crate) fn disk_index_memory(&self) -> u64 {
        self.disk_index.behind.memory()
    }

    /// Returns the number of buckets that one checkpoint writes for the pass, of an index with `buckets` buckets, where each has `entries` entries.
    pub(crate) fn buckets_at_once(&self, buckets: u32, entries: u64) -> u64 {
        let entries = entries.clamp(1, bucket_entries(&self.metadata.geometry));
        let most = u64::from(buckets) / LEAST_PARTS;
        (u64::from(self.limits.delta_entries) / entries).min(most).max(LEAST_BUCKETS)
    }

    /// Hands over a part that the next checkpoint brings in.
    pub(crate) fn bring_into_disk_index(&mut self, part: DeferredPart) {
        self.disk_index.behind.part = Some(part);
    }

    /// Takes the part that the pass has handed over, for the checkpoint that brings it in.
    pub(crate) fn take_disk_index_part(&mut self) -> Option<DeferredPart> {
        self.disk_index.behind.part.take()
    }

    /// Notes that a pass has brought in all blocks that had been left out by then. The index is complete if none was since.
    pub(crate) fn disk_index_caught_up(&mut self, left_out: u64) {
        let behind = &mut self.disk_index.behind;
        if self.disk_index.record.is_behind() && behind.left_out == left_out {
            behind.caught_up_at = left_out;
            self.disk_index.record.built = DiskIndexRecord::COMPLETE;
        }
    }
}
