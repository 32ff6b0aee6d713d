//! Report of the complete index on disk, for people and programs.

use engine::DiskIndexStatus;
use serde::{Deserialize, Serialize};

/// Figures of the complete index on disk: docs/counters.md.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
pub struct DiskIndexReport {
    /// Pages of the index, each a bucket; 0: there is none.
    pub buckets: u64,
    /// Blocks that are in it, about.
    pub entries: u64,
    /// True if all blocks are in it.
    pub complete: bool,
    /// True if blocks that were written offline are missing: the background pass brings them in.
    pub behind: bool,
    /// Blocks that were looked up in it since the pool was opened.
    pub disk_index_lookups: u64,
    /// Pages that had to be read for these lookups.
    pub disk_index_loads: u64,
    /// Blocks that it knew.
    pub disk_index_hits: u64,
}

impl DiskIndexReport {
    /// Takes the figures from the engine's status.
    pub fn new(status: DiskIndexStatus) -> DiskIndexReport {
        DiskIndexReport {
            buckets: status.buckets,
            entries: status.entries,
            complete: status.is_complete,
            behind: status.is_behind,
            disk_index_lookups: status.lookups,
            disk_index_loads: status.loads,
            disk_index_hits: status.hits,
        }
    }

    /// Describes the index in one line: its state and its counts.
    pub fn text(&self) -> String {
        let DiskIndexReport { disk_index_lookups: lookups, disk_index_loads: loads, disk_index_hits: hits, .. } = self;
        let state = match (self.complete, self.behind) {
            (true, _) => "on disk, complete",
            (_, true) => "on disk, behind offline writes until a pass has ended",
            _ => "on disk, being built",
        };
        format!("{state}: {} blocks; {lookups} lookups, {loads} pages read, {hits} hits", self.entries)
    }
}
