//! Report of the disk under a pool.

use engine::{DeviceKind, DeviceTraits};
use serde::{Deserialize, Serialize};

use crate::report::define::report;

report! {
    /// Kind of the disk under a pool, and the way in which it is read therefore.
    #[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
    pub struct DeviceReport from (device: &DeviceTraits, set: DeviceKind) {
        /// Setting of the pool: `auto`, `hdd` or `ssd`.
        set: String = set.to_string(),
        /// Kind that the disk is treated as: `hdd` or `ssd`.
        kind: String = device.kind().to_string(),
        /// True if it is rotational: its heads take time to move from one place to another.
        is_rotational: bool,
        /// Number of unwanted blocks that a read goes over rather than end.
        gap_blocks: u32,
        /// Number of blocks that are read ahead at a time, in order of their places.
        window_blocks: u32,
        /// Number of reads ahead in flight, at most, when more are begun.
        reads_in_flight: u32,
    }
}

impl DeviceReport {
    /// Returns true if the kind was set, and is not left to the system.
    pub fn is_set(&self) -> bool {
        self.set != DeviceKind::default().to_string()
    }

    /// Formats the kind and its origin for people.
    pub fn text(&self) -> String {
        let source = if self.is_set() { "as was set" } else { "as the system says" };
        format!("{:<12}{source}", self.kind)
    }
}
