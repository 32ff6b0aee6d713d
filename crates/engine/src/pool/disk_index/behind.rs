//! An index on disk that has fallen behind, and its repair by the background pass. Offline volumes look nothing up. Updates for them would cost
//! a page read and written for nearly each new block of a large pool, and offline exists to avoid that cost. The background pass brings in the
//! omitted blocks: it goes through all contents in the order of buckets anyway, and so touches each page once.
//!
//! ```text
//! checkpoint  omits blocks written for offline volumes; where no volume looks anything up, all changes
//! pass        hands over whole buckets, of one range of digests after the other ([`DeferredPart`]; jobs/dedup/index.rs)
//! checkpoint  writes a part: it replaces the content of these buckets, but keeps checkpoint changes since the pass looked
//! end         complete again, if nothing was omitted since the pass began
//! ```
//!
//! Nothing of it has to be exact: the index is a hint. An omitted block costs savings, and a stale entry costs a look, until the next pass. So
//! the index is behind only if blocks were omitted. Stale entries go when it is behind the next time.

use alloc::vec::Vec;
use core::ops::Range;

use super::bucket::{IndexChange, bucket_of};
use crate::format::disk_index::bucket_entries;
use crate::format::entry::Key;
use crate::format::superblock::DiskIndexRecord;
use crate::pool::Pool;
use crate::sizes::list_bytes;

/// Minimum number of buckets that a checkpoint writes for the pass, however few entries a delta has.
const LEAST_BUCKETS: u64 = 4;
/// Minimum number of parts in which the index is written: each part takes pages before it gives any back.
const LEAST_PARTS: u64 = 16;

/// Changes that are left out of an index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LeftOut {
    Nothing,
    /// Blocks that were written for offline volumes.
    Offline,
    /// All changes, removals included: no volume looks anything up.
    All,
}

/// Changes that the next checkpoint brings in for the background pass.
#[derive(Default)]
pub(crate) struct DeferredPart {
    /// Entries to be put into the index or removed from it, in any order.
    pub(super) changes: Vec<IndexChange>,
    /// Buckets whose content these changes replace, except for concurrent changes by checkpoints.
    pub(super) whole: Range<u64>,
}

impl DeferredPart {
    /// Adds changes to the part.
    pub(crate) fn add(&mut self, changes: impl Iterator<Item = IndexChange>) {
        self.changes.extend(changes);
    }

    /// Takes the changes of the part.
    pub(crate) fn take_changes(&mut self) -> Vec<IndexChange> {
        core::mem::take(&mut self.changes)
    }

    /// Sets the buckets whose content the changes replace.
    pub(crate) fn replace(&mut self, buckets: Range<u64>) {
        self.whole = buckets;
    }

    /// Returns the buckets that are made anew as a whole.
    #[inline]
    pub(crate) fn whole(&self) -> &Range<u64> {
        &self.whole
    }

    /// Returns the most buckets that the part changes.
    pub(crate) fn buckets(&self) -> u64 {
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
    /// Number of blocks left out since the pool was opened.
    left_out: u64,
    /// Value of `left_out` when the index was last complete.
    caught_up_at: u64,
    /// Changes by checkpoints since the pass began to look at a range, and the limit of remembered ones.
    beside: Vec<IndexChange>,
    most_beside: usize,
    /// True if some changes could not be remembered.
    has_forgotten: bool,
}

impl Behind {
    /// Returns the number of missing blocks.
    pub(super) fn left_out(&self) -> u64 {
        self.left_out - self.caught_up_at
    }

    /// Adds to the number of blocks that checkpoints leave out.
    pub(super) fn count(&mut self, left_out: u64) {
        self.left_out += left_out;
    }

    /// Remembers the changes of a checkpoint while the pass looks at a range, if there is space.
    pub(super) fn note(&mut self, changes: &[IndexChange]) {
        if self.most_beside > 0 {
            let space = self.most_beside.saturating_sub(self.beside.len());
            self.has_forgotten |= changes.len() > space;
            self.beside.extend(&changes[..changes.len().min(space)]);
        }
    }

    /// Returns the remembered changes that belong to a part: they are in its buckets, and newer than the look of the pass. `None` if there were too many: then
    /// these buckets keep their entries.
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
        // A pass in progress must not take the next index for its own.
        self.left_out += 1;
        self.caught_up_at = self.left_out;
    }
}

impl Pool {
    /// Returns true if a volume looks into the index now.
    pub(crate) fn is_any_looking(&self) -> bool {
        self.any_is_full(Pool::policy_in_force)
    }

    /// Returns the kind of changes that checkpoints leave out now.
    pub(crate) fn left_out(&self) -> LeftOut {
        match () {
            () if !self.durable.volumes.with_different_settings().any(|volume| self.is_offline(volume)) => {
                LeftOut::Nothing
            }
            () if self.is_any_looking() => LeftOut::Offline,
            () => LeftOut::All,
        }
    }

    /// Returns true if the change for a block with this owner is left out.
    pub(crate) fn is_left_out(&self, left_out: LeftOut, owner: Key) -> bool {
        let is_offline =
            || self.volume_index(owner.volume()).is_some_and(|at| self.is_offline(&self.durable.volumes[at]));
        left_out == LeftOut::All || left_out == LeftOut::Offline && is_offline()
    }
}

impl Pool {
    /// Returns true if the index waits for the background pass, and a volume looks into it.
    pub(crate) fn disk_index_wants_pass(&self) -> bool {
        self.hints.disk_index.record.is_behind() && self.is_any_looking()
    }

    /// Returns the number of buckets of the index, if the background pass has blocks to bring in.
    pub(crate) fn buckets_behind(&self) -> Option<u32> {
        let record = self.hints.disk_index.record;
        record.is_behind().then_some(record.buckets)
    }

    /// Returns the number of blocks left out since opening. The pass compares it to find later ones.
    pub(crate) fn left_out_of_disk_index(&self) -> u64 {
        self.hints.disk_index.behind.left_out
    }

    /// Starts to remember changes if the pass begins to look at a range (`looks`), else stops.
    pub(crate) fn watch_disk_index(&mut self, looks: bool) {
        let behind = &mut self.hints.disk_index.behind;
        let is_behind = looks && self.hints.disk_index.record.is_behind();
        behind.most_beside = if is_behind { self.limits.delta_entries as usize } else { 0 };
        (behind.beside, behind.has_forgotten) = (Vec::new(), false);
    }

    /// Drops the changes of all buckets before this hash, which the pass has handed over.
    pub(crate) fn watch_disk_index_from(&mut self, hash: u64) {
        let Some(buckets) = self.buckets_behind() else { return };
        let first = bucket_of(hash, buckets);
        self.hints.disk_index.behind.beside.retain(|change| bucket_of(change.hash, buckets) >= first);
    }

    /// Returns the bytes of memory of the filter, and of the part and the changes that the pass and checkpoints exchange.
    pub(crate) fn disk_index_memory(&self) -> u64 {
        self.hints.disk_index.behind.memory() + self.hints.disk_index.filter_memory()
    }

    /// Returns the number of buckets that one checkpoint writes for the pass, for an index of `buckets` buckets with `entries` entries each.
    pub(crate) fn buckets_at_once(&self, buckets: u32, entries: u64) -> u64 {
        let entries = entries.clamp(1, bucket_entries(self.metadata.geometry()));
        let most = u64::from(buckets) / LEAST_PARTS;
        (u64::from(self.limits.delta_entries) / entries).min(most).max(LEAST_BUCKETS)
    }

    /// Hands over a part that the next checkpoint brings in.
    pub(crate) fn bring_into_disk_index(&mut self, part: DeferredPart) {
        self.hints.disk_index.behind.part = Some(part);
    }

    /// Takes the part that the pass has handed over, for the checkpoint that brings it in.
    pub(crate) fn take_disk_index_part(&mut self) -> Option<DeferredPart> {
        self.hints.disk_index.behind.part.take()
    }

    /// Notes that a pass has brought in all blocks left out up to `left_out`. The index is complete if no more were left out since.
    pub(crate) fn disk_index_caught_up(&mut self, left_out: u64) {
        let behind = &mut self.hints.disk_index.behind;
        if self.hints.disk_index.record.is_behind() && behind.left_out == left_out {
            behind.caught_up_at = left_out;
            self.hints.disk_index.record.built = DiskIndexRecord::COMPLETE;
        }
    }
}
