//! Report of the complete index on disk, for people and programs.

use engine::DiskIndexStatus;
use serde::{Deserialize, Serialize};

use crate::report::define::report;

report! {
    /// Figures of the complete index on disk: docs/reference/metrics.md.
    #[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
    pub struct DiskIndexReport from (status: DiskIndexStatus) {
        /// Pages of the index, each a bucket; 0: there is none.
        buckets: u64,
        /// Blocks that are in it, about.
        entries: u64,
        /// True if all blocks are in it.
        complete: bool = status.is_complete,
        /// True if blocks that were written offline are missing: the background pass brings them in.
        behind: bool = status.is_behind,
        /// Blocks that were looked up in it since the pool was opened.
        disk_index_lookups: u64 = status.lookups,
        /// Pages that had to be read for these lookups.
        disk_index_loads: u64 = status.loads,
        /// Blocks that it knew.
        disk_index_hits: u64 = status.hits,
        /// Blocks of which the filter in memory said that it does not know them.
        disk_index_filtered: u64 = status.filtered,
        /// Blocks that it did not know though the filter had not said so.
        disk_index_false_answers: u64 = status.false_answers,
        /// Bytes of memory of the filter.
        filter_bytes: u64,
        /// Pages of the index that the filter covers.
        filter_buckets: u64,
    }
}

impl DiskIndexReport {
    /// Describes the index in one line: its state and its counts.
    pub fn text(&self) -> String {
        let DiskIndexReport { disk_index_lookups: lookups, disk_index_loads: loads, disk_index_hits: hits, .. } = self;
        let filtered = self.disk_index_filtered;
        let state = match (self.complete, self.behind) {
            (true, _) => "on disk, complete",
            (_, true) => "on disk, behind offline writes until a pass has ended",
            _ => "on disk, being built",
        };
        format!(
            "{state}: {} blocks; {lookups} lookups, {filtered} of them ended by the filter, {loads} pages read, {hits} hits",
            self.entries
        )
    }
}
