//! Space that snapshots hold: for `status`, and for an operator whose pool gets full.
//!
//! A block counts with the map that has its mapping. So a block that a volume and its snapshots all read counts once, with the oldest snapshot that has it, and
//! blocks that only snapshots have are among those of the snapshots. Deleting all snapshots of a volume frees at most that much.

use engine::Engine;
use serde::{Deserialize, Serialize};

use crate::report::define::report;
use crate::report::share::percent;
use crate::size;

/// Number of volumes that the report names.
const MOST: usize = 3;
/// Least share of the logical data that snapshots hold where a pool that gets full says so, in percent.
const LEAST_PERCENT: f64 = 1.0;

report! {
    /// Space that snapshots hold. Blocks are mapped, non-zero blocks without inherited ones, as of the last merge.
    #[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
    pub struct SnapshotsReport from (engine: &Engine) where {
        let most = most(engine);
        let deleted = engine.held_by_deleted_snapshots();
        let sums = engine.held_by_snapshots().fold((0, 0), |all, (_, sum)| (all.0 + sum.snapshots, all.1 + sum.blocks));
    } {
        /// Number of snapshots.
        count: u64 = sums.0,
        /// Blocks that they hold.
        blocks: u64 = sums.1,
        /// Number of deleted snapshots from which volumes or snapshots still inherit.
        deleted: u64 = deleted.snapshots,
        /// Blocks that these hold.
        deleted_blocks: u64 = deleted.blocks,
        /// The volumes whose snapshots hold most, at most three, the first of them most.
        most: Vec<HolderReport> = most,
    }
}

/// Volume with the space that its snapshots hold.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub struct HolderReport {
    /// The volume.
    pub volume: String,
    /// Number of its snapshots.
    pub snapshots: u64,
    /// Blocks that they hold.
    pub blocks: u64,
}

/// Returns the volumes whose snapshots hold most.
fn most(engine: &Engine) -> Vec<HolderReport> {
    let mut most = Vec::with_capacity(MOST + 1);
    for (volume, sum) in engine.held_by_snapshots().filter(|(_, sum)| sum.blocks > 0) {
        let at = most.partition_point(|&(_, blocks, _)| blocks >= sum.blocks);
        most.insert(at, (volume, sum.blocks, sum.snapshots));
        most.truncate(MOST);
    }
    let report = |(volume, blocks, snapshots): (&engine::Volume, u64, u64)| HolderReport {
        volume: volume.name.clone(),
        snapshots,
        blocks,
    };
    most.into_iter().map(report).collect()
}

impl SnapshotsReport {
    /// Returns all blocks that snapshots hold, deleted ones included.
    pub fn all_blocks(&self) -> u64 {
        self.blocks + self.deleted_blocks
    }

    /// Describes the snapshots in words, without the bytes of those that are not deleted; `None` if there are none.
    pub fn text(&self) -> Option<String> {
        let kept = |count: u64, blocks: u64| {
            let noun = if count == 1 { "deleted snapshot" } else { "deleted snapshots" };
            format!("{} in {count} {noun} that others inherit from", bytes(blocks))
        };
        let (deleted, count) = (self.deleted > 0, self.count);
        let noun = if count == 1 { "snapshot" } else { "snapshots" };
        match (count, deleted) {
            (0, false) => None,
            (_, false) => Some(format!("held by {count} {noun}")),
            (_, true) => Some(format!("held by {count} {noun}; {}", kept(self.deleted, self.deleted_blocks))),
        }
    }

    /// Returns a sentence on who holds what, for a pool that gets full; `None` if snapshots hold next to nothing of the logical data.
    pub fn holders(&self, logical_blocks: u64, pool: &str) -> Option<String> {
        if percent(self.all_blocks(), logical_blocks) < LEAST_PERCENT {
            return None;
        }
        let of = |holder: &HolderReport| {
            let noun = if holder.snapshots == 1 { "snapshot" } else { "snapshots" };
            format!("{} {noun} of '{}' {}", holder.snapshots, holder.volume, bytes(holder.blocks))
        };
        let named: u64 = self.most.iter().map(|holder| holder.blocks).sum();
        let mut parts: Vec<String> = self.most.iter().map(of).collect();
        if self.blocks > named {
            parts.push(format!("others {}", bytes(self.blocks - named)));
        }
        if self.deleted_blocks > 0 {
            parts.push(format!("deleted ones that others inherit from {}", bytes(self.deleted_blocks)));
        }
        let (all, list) = (bytes(self.all_blocks()), parts.join(", "));
        Some(format!("snapshots hold {all} of the logical data: {list}. 'onefold snapshot list {pool}' has all"))
    }
}

fn bytes(blocks: u64) -> String {
    size::show(blocks.saturating_mul(4096))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holder(volume: &str, snapshots: u64, blocks: u64) -> HolderReport {
        HolderReport { volume: volume.into(), snapshots, blocks }
    }

    #[test]
    fn a_pool_says_what_its_snapshots_hold() {
        let none = SnapshotsReport::default();
        assert_eq!((none.text(), none.holders(100, "p")), (None, None));
        let one = SnapshotsReport { count: 1, blocks: 256, most: vec![holder("vm", 1, 256)], ..none.clone() };
        assert_eq!(one.text().unwrap(), "held by 1 snapshot");
        let left = SnapshotsReport { deleted: 2, deleted_blocks: 512, ..none };
        let words = "held by 0 snapshots; 2 MiB in 2 deleted snapshots that others inherit from";
        assert_eq!(left.text().unwrap(), words);
    }

    #[test]
    fn a_pool_that_gets_full_names_those_whose_snapshots_hold_most() {
        let most = vec![holder("db", 24, 2048), holder("vm1", 1, 512)];
        let held = SnapshotsReport { count: 30, blocks: 2816, deleted: 1, deleted_blocks: 256, most };
        assert_eq!(held.all_blocks(), 3072);
        let said = "snapshots hold 12 MiB of the logical data: 24 snapshots of 'db' 8 MiB, 1 snapshot of 'vm1' 2 MiB, others 1 MiB, deleted ones \
                    that others inherit from 1 MiB. 'onefold snapshot list p' has all";
        assert_eq!(held.holders(4096, "p").unwrap(), said);
        assert_eq!(held.holders(1 << 30, "p"), None, "next to nothing");
    }
}
