//! An index on disk that falls behind. Volumes that are offline look nothing up, so keeping the index up to date for them would be the very
//! cost that offline is to avoid: a page read and written for nearly each new block of a large pool. The background pass brings in what was
//! left out, since it goes through all contents in the order of buckets anyway: each page once.
//!
//! ```text
//! checkpoint   leaves out what was written for volumes that are offline; where no volume looks anything up, all changes
//! pass         hands over whole buckets, of one range of digests after the other ([`Part`]; jobs/dedup/index.rs)
//! checkpoint   writes a part: what else was in these buckets goes, but for what checkpoints have changed since the pass looked
//! end          complete again, if nothing was left out since the pass began
//! ```
//!
//! Nothing of it has to be exact: the index is a hint. What was left out costs savings, and what is stale a look, until a pass comes by. So
//! it is behind only if blocks were left out; what was not taken out goes when it is behind the next time.

use alloc::vec::Vec;
use core::ops::Range;

use super::bucket::{Change, bucket_of};
use crate::format::disk_index::bucket_entries;
use crate::format::entry::Key;
use crate::format::superblock::DiskIndexRecord;
use crate::pool::Pool;
use crate::sizes::list_bytes;

/// Buckets that a checkpoint writes for the pass, however few entries a delta has.
const LEAST_BUCKETS: u64 = 4;
/// The index is written in so many parts at least: each takes pages before it gives any back.
const LEAST_PARTS: u64 = 16;

/// What is left out of an index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum LeftOut {
    Nothing,
    /// What was written for volumes that are offline.
    Offline,
    /// No volume looks anything up: everything, and nothing is taken out.
    All,
}

/// What the next checkpoint brings in.
#[derive(Default)]
pub(crate) struct Part {
    /// In any order.
    pub changes: Vec<Change>,
    /// Buckets that hold nothing else, but for what changed beside the pass.
    pub whole: Range<u64>,
}

impl Part {
    /// Buckets that it changes, at most.
    pub(super) fn buckets(&self) -> u64 {
        let whole = self.whole.end - self.whole.start;
        if whole > 0 { whole } else { self.changes.len() as u64 }
    }

    /// Bytes of memory.
    pub(crate) fn memory(&self) -> u64 {
        list_bytes(&self.changes)
    }
}

/// How far behind it is.
#[derive(Default)]
pub(super) struct Behind {
    part: Option<Part>,
    /// Blocks that were left out since the pool was opened,
    left_out: u64,
    /// and when it was complete for the last time.
    caught_up_at: u64,
    /// What checkpoints have changed since the pass began to look at a range, and how many changes are remembered.
    beside: Vec<Change>,
    most_beside: usize,
    /// Some could not be remembered.
    has_forgotten: bool,
}

impl Behind {
    /// Blocks that are missing.
    pub(super) fn left_out(&self) -> u64 {
        self.left_out - self.caught_up_at
    }

    /// A checkpoint leaves out so many blocks.
    pub(super) fn count(&mut self, left_out: u64) {
        self.left_out += left_out;
    }

    /// A checkpoint makes these changes.
    pub(super) fn note(&mut self, changes: &[Change]) {
        if self.most_beside > 0 {
            let room = self.most_beside.saturating_sub(self.beside.len());
            self.has_forgotten |= changes.len() > room;
            self.beside.extend(&changes[..changes.len().min(room)]);
        }
    }

    /// What belongs to a part, too: for each of its buckets what changed since the pass looked. `None` if that was too much: then its buckets
    /// keep what they have.
    pub(super) fn beside(&self, part: &Part, buckets: u32) -> Option<impl Iterator<Item = Change>> {
        let is_of_part = move |change: &&Change| part.whole.contains(&bucket_of(change.hash, buckets));
        (!self.has_forgotten).then(|| self.beside.iter().filter(is_of_part).copied())
    }

    /// Bytes of memory.
    pub(super) fn memory(&self) -> u64 {
        list_bytes(&self.beside) + self.part.as_ref().map_or(0, Part::memory)
    }

    /// There is no index any more.
    pub(super) fn cut_off(&mut self) {
        self.part = None;
        // A pass that is under way does not take the next one for its own.
        self.left_out += 1;
        self.caught_up_at = self.left_out;
    }
}

impl Pool {
    /// Whether a volume looks into the index now.
    pub(super) fn is_any_looking(&self) -> bool {
        self.any_is_full(Pool::policy_in_force)
    }

    /// What checkpoints leave out now.
    pub(super) fn left_out(&self) -> LeftOut {
        match () {
            () if !self.volumes.iter().any(|volume| self.is_offline(volume)) => LeftOut::Nothing,
            () if self.is_any_looking() => LeftOut::Offline,
            () => LeftOut::All,
        }
    }

    /// Whether a block that was written for this owner is.
    pub(super) fn is_left_out(&self, left_out: LeftOut, owner: Key) -> bool {
        let is_offline = || self.volume_index(owner.volume()).is_some_and(|at| self.is_offline(&self.volumes[at]));
        left_out == LeftOut::All || left_out == LeftOut::Offline && is_offline()
    }
}

impl Pool {
    /// Whether it waits for the background pass, and a volume looks into it.
    pub(crate) fn disk_index_wants_pass(&self) -> bool {
        self.disk_index.record.is_behind() && self.is_any_looking()
    }

    /// Its buckets, if the background pass is to bring something in.
    pub(crate) fn buckets_behind(&self) -> Option<u32> {
        let record = self.disk_index.record;
        record.is_behind().then_some(record.buckets)
    }

    /// Blocks that have been left out: for the pass, to see whether some were meanwhile.
    pub(crate) fn left_out_of_disk_index(&self) -> u64 {
        self.disk_index.behind.left_out
    }

    /// The pass begins to look at a range, or looks at nothing more.
    pub(crate) fn watch_disk_index(&mut self, looks: bool) {
        let behind = &mut self.disk_index.behind;
        let is_behind = looks && self.disk_index.record.is_behind();
        behind.most_beside = if is_behind { self.limits.delta_entries as usize } else { 0 };
        (behind.beside, behind.has_forgotten) = (Vec::new(), false);
    }

    /// The pass has handed over all buckets before this hash: what changes there now it need not know.
    pub(crate) fn watch_disk_index_from(&mut self, hash: u64) {
        let Some(buckets) = self.buckets_behind() else { return };
        let first = bucket_of(hash, buckets);
        self.disk_index.behind.beside.retain(|change| bucket_of(change.hash, buckets) >= first);
    }

    /// Bytes of memory of what the pass and checkpoints have for each other.
    pub(crate) fn disk_index_memory(&self) -> u64 {
        self.disk_index.behind.memory()
    }

    /// Buckets that one checkpoint writes for the pass, of an index with so many, where each has so many entries.
    pub(crate) fn buckets_at_once(&self, buckets: u32, entries: u64) -> u64 {
        let entries = entries.clamp(1, bucket_entries(&self.metadata.geometry));
        let most = u64::from(buckets) / LEAST_PARTS;
        (u64::from(self.limits.delta_entries) / entries).min(most).max(LEAST_BUCKETS)
    }

    /// The next checkpoint brings this in.
    pub(crate) fn bring_into_disk_index(&mut self, part: Part) {
        self.disk_index.behind.part = Some(part);
    }

    /// For the checkpoint that does.
    pub(crate) fn take_disk_index_part(&mut self) -> Option<Part> {
        self.disk_index.behind.part.take()
    }

    /// A pass has brought in everything that had been left out by then. It is complete if nothing was since.
    pub(crate) fn disk_index_caught_up(&mut self, left_out: u64) {
        let behind = &mut self.disk_index.behind;
        if self.disk_index.record.is_behind() && behind.left_out == left_out {
            behind.caught_up_at = left_out;
            self.disk_index.record.built = DiskIndexRecord::COMPLETE;
        }
    }
}
