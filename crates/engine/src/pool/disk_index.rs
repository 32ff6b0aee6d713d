//! The complete index on disk: digest to slot for every block of data. It finds duplicates beyond the index in memory. It is a hint
//! (docs/rfc/0009), kept by checkpoints while a volume has the policy `full`. Only such volumes look into it, after a miss in memory.
//!
//! It is one tree; a leaf is a bucket of entries, each a slot and a tag (`bucket.rs`). Checkpoints change it in batches
//! (`jobs/checkpoint/disk_index.rs`). Writes look into it (`lookup.rs`), unless a filter in memory says that a content is absent (`filter.rs`). An audit
//! compares it with the summaries (`audit/disk_index.rs`). While volumes are offline it falls behind, and the background pass brings it up to date
//! (`behind.rs`). This module decides its size and existence, and discards the pages of a former index.
//!
//! Each answer is proven by the summary before it is used. A lost page of it is an empty bucket.

pub(crate) mod behind;
pub(crate) mod bucket;
pub(crate) mod filter;
mod lookup;

use alloc::vec::Vec;

use super::Pool;
use crate::api::*;
use crate::block_map::discards::Discard;
use crate::format::disk_index::{buckets_for, is_outgrown, pages_for};
use crate::format::layout::height_for;
use crate::format::superblock::{DiskIndexRecord, Pointer, Root, TreeId};
use crate::format::volume::Volume;
use crate::metadata::page_cache::Region;
use crate::metadata::tree::Stop;

use behind::{Behind, DeferredPart};
use bucket::IndexChange;
use filter::BloomFilter;

/// Maximum number of remembered buckets with unreadable pages.
pub(crate) const UNREADABLE: usize = 64;
/// Volume number of subtrees of the index on the discard list: no volume has this number.
pub(crate) const NO_VOLUME: VolumeId = VolumeId(0);

/// Figures of the index on disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DiskIndexStatus {
    /// Number of buckets, each a page; 0: there is no such index.
    pub buckets: u64,
    /// Approximate number of blocks of data in it.
    pub entries: u64,
    /// True if all blocks of data are in it.
    pub is_complete: bool,
    /// True if blocks were left out that the background pass brings in.
    pub is_behind: bool,
    /// Number of blocks that were looked up in it.
    pub lookups: u64,
    /// Number of pages loaded for lookups: its own, and those that prove the slots that it names.
    pub loads: u64,
    /// Number of looked-up blocks that were in it.
    pub hits: u64,
    /// Number of looked-up blocks of which the filter said that they are absent.
    pub filtered: u64,
    /// Number of looked-up blocks that were absent though the filter did not say so.
    pub false_answers: u64,
    /// Bytes of memory of the filter.
    pub filter_bytes: u64,
    /// Number of buckets that the filter covers.
    pub filter_buckets: u64,
}

impl DiskIndex {
    /// Returns the record of the index, as the next superblock has it.
    #[inline]
    pub(crate) fn record(&self) -> DiskIndexRecord {
        self.record
    }

    /// Notes that blocks were left out of the index: it is behind the pool.
    pub(crate) fn note_left_out(&mut self) {
        self.record.built = DiskIndexRecord::BEHIND;
    }

    /// Drops the record of the index: the superblock that a repair writes has none.
    pub(crate) fn drop_record(&mut self) {
        self.record = DiskIndexRecord::default();
    }

    /// Counts a block that is looked up in the index.
    pub(crate) fn count_lookup(&mut self) {
        self.lookups += 1;
    }

    /// Counts a page that is loaded for a lookup.
    pub(crate) fn count_load(&mut self) {
        self.loads += 1;
    }

    /// Counts a block that was found in the index.
    pub(crate) fn count_hit(&mut self) {
        self.hits += 1;
    }

    /// Counts a block of which the filter said that it is absent.
    pub(crate) fn count_filtered(&mut self) {
        self.filtered += 1;
    }
}

/// State of the index on disk in memory.
#[derive(Default)]
pub(crate) struct DiskIndex {
    /// Record of the index, as the next superblock has it.
    pub(super) record: DiskIndexRecord,
    /// Filter over its entries; `None` while there is no memory for it.
    filter: Option<BloomFilter>,
    /// True if a more important use needs the metadata.
    gives_up: bool,
    /// Digests that belong into buckets with unreadable pages.
    unreadable: Vec<u64>,
    behind: Behind,
    lookups: u64,
    loads: u64,
    hits: u64,
    filtered: u64,
    false_answers: u64,
}

impl DiskIndex {
    /// Takes the digests that belong into buckets with unreadable pages.
    pub(crate) fn take_unreadable(&mut self) -> Vec<u64> {
        core::mem::take(&mut self.unreadable)
    }

    /// Ends an update: `built` is the number of leaves of summaries that are entered so far, as [`DiskIndexRecord::built`], if no page of the index was lost.
    pub(crate) fn end_update(&mut self, lost: bool, built: u32) {
        match lost {
            // The pass in progress may have handed over the entries of the lost page.
            true if self.record.is_behind() => self.behind.count(1),
            true => self.record.built = 0,
            false if self.record.built < DiskIndexRecord::BEHIND => self.record.built = built,
            false => {}
        }
    }

    /// Remembers the changes of a checkpoint while the background pass looks at a range.
    pub(crate) fn note_behind(&mut self, changes: &[IndexChange]) {
        self.behind.note(changes);
    }

    /// Adds to the number of blocks that checkpoints leave out.
    pub(crate) fn count_left_out(&mut self, left_out: u64) {
        self.behind.count(left_out);
    }

    /// Returns the remembered changes that belong to a part that the pass brings in; `None` if there were too many.
    pub(crate) fn beside(&self, part: &DeferredPart, buckets: u32) -> Option<impl Iterator<Item = IndexChange>> {
        self.behind.beside(part, buckets)
    }
}

impl Pool {
    // ---- existence ----

    /// Returns true if a volume has the policy that looks into the index on disk.
    fn disk_index_is_wanted(&self) -> bool {
        self.any_is_full(Pool::policy_of)
    }

    /// Returns true if any client volume has the policy `full`. `policy` gives each volume's policy: its own or the one in force.
    fn any_is_full(&self, policy: impl Fn(&Pool, &Volume) -> Policy) -> bool {
        let is_full = |volume: &Volume| policy(self, volume) == Policy::Full;
        self.durable.volumes.with_different_settings().any(|volume| volume.keeps.is_none() && is_full(volume))
    }

    /// Asks for a checkpoint after opening if the index does not follow a change of policies yet.
    pub(crate) fn open_disk_index(&mut self) {
        self.request_checkpoint_if(
            !self.state.reads_only() && self.disk_index_is_wanted() != self.hints.disk_index.record.is_on(),
        );
    }

    /// Cuts the index off: its pages go to the discard list.
    pub(crate) fn cut_disk_index_off(&mut self) {
        let root = self.durable.take_root(TreeId::DiskIndex);
        if !root.pointer.is_none() {
            self.durable.discards.push(Discard::new(root.pointer, NO_VOLUME, root.height));
        }
        self.hints.disk_index.record = DiskIndexRecord::default();
        self.hints.disk_index.unreadable.clear();
        self.hints.disk_index.behind.cut_off();
        self.hints.disk_index.filter = None;
    }

    /// Lets the next checkpoint give the index up, because metadata is short. Returns false if there is no index.
    pub(crate) fn give_up_disk_index(&mut self) -> bool {
        let has_pages = !self.durable.root(TreeId::DiskIndex).pointer.is_none();
        self.hints.disk_index.gives_up |= has_pages;
        has_pages
    }

    /// Walks one page of a discarded index. An unreadable page stays on the list, at its beginning.
    pub(crate) fn walk_disk_index(&mut self, discard: Discard) -> Result<(), Stop> {
        let Discard { pointer, volume, level, .. } = discard;
        let mut children = Vec::new();
        if self.is_index_page(pointer.location) && level > 0 {
            match self.metadata_page(pointer) {
                Ok(page) => {
                    let pointers = self.metadata.pages().bytes(page).chunks_exact(16);
                    children.extend(pointers.map(|child| Pointer::read(child, 0)));
                }
                Err(Stop::Missing(missing)) if self.metadata.has_failed(missing.key) => {
                    self.durable.discards.put_aside();
                    return Ok(());
                }
                Err(stop) => return Err(stop),
            }
        }
        self.durable.discards.pop();
        self.free_index_page(pointer.location);
        for pointer in children {
            if level == 1 {
                self.free_index_page(pointer.location);
            } else if !pointer.is_none() {
                self.durable.discards.push(Discard::new(pointer, volume, level - 1));
            }
        }
        Ok(())
    }

    fn is_index_page(&self, location: u32) -> bool {
        let key = crate::metadata::page_cache::PageKey { region: Region::Metadata, location };
        self.metadata.is_valid(key) && self.metadata.allocator().is_used(location)
    }

    pub(crate) fn free_index_page(&mut self, location: u32) {
        if self.is_index_page(location) {
            self.metadata.free_later(location);
        }
    }
}

impl Pool {
    /// Decides at the beginning of a checkpoint if there is to be an index. Discards one that is unwanted or outgrown, and begins a wanted one.
    pub(crate) fn review_disk_index(&mut self) {
        let wanted = self.disk_index_is_wanted() && !core::mem::take(&mut self.hints.disk_index.gives_up);
        let geometry = *self.metadata.geometry();
        let record = self.hints.disk_index.record;
        if !wanted || record.is_on() && is_outgrown(&geometry, record.buckets) {
            self.cut_disk_index_off();
        }
        let buckets = buckets_for(&geometry);
        let space = 2 * pages_for(&geometry, buckets, buckets.into()) as u64;
        if wanted && !self.hints.disk_index.record.is_on() && space <= self.metadata_to_begin() {
            self.hints.disk_index.record = DiskIndexRecord { buckets, built: 0 };
            let height = height_for(buckets.into(), geometry.fanout());
            self.durable.set_root(TreeId::DiskIndex, Root { height, ..Root::default() });
        }
        self.fit_filter();
    }
}

impl Pool {
    /// Returns the figures of the index on disk.
    pub(crate) fn disk_index_status(&self) -> DiskIndexStatus {
        let DiskIndex { record, lookups, loads, hits, filtered, false_answers, ref behind, .. } = self.hints.disk_index;
        let filter = self.hints.disk_index.filter.as_ref();
        let leaves = self.table_leaves(TreeId::Summaries).max(1);
        let used = self.durable.space.data_used();
        let entries = match record.built {
            DiskIndexRecord::COMPLETE => used,
            DiskIndexRecord::BEHIND => used.saturating_sub(behind.left_out()),
            built => used * u64::from(built).min(leaves) / leaves,
        };
        DiskIndexStatus {
            buckets: record.buckets.into(),
            entries: if record.is_on() { entries } else { 0 },
            is_complete: record.is_complete(),
            is_behind: record.is_behind(),
            lookups,
            loads,
            hits,
            filtered,
            false_answers,
            filter_bytes: filter.map_or(0, BloomFilter::memory),
            filter_buckets: filter.map_or(0, BloomFilter::covered).into(),
        }
    }

    /// Returns true if the index exists and must be built, be enlarged, or get digests of unreadable buckets again.
    pub(crate) fn disk_index_is_unfinished(&self) -> bool {
        let index = &self.hints.disk_index;
        let is_built = index.record.is_complete() || index.record.is_behind();
        index.record.is_on()
            && (!is_built && self.is_any_looking()
                || is_outgrown(self.metadata.geometry(), index.record.buckets)
                || !index.unreadable.is_empty())
    }
}
