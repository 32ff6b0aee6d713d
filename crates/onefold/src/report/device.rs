//! Report of the disk under a pool.

use engine::{DeviceKind, Status};
use serde::{Deserialize, Serialize};

/// Kind of the disk under a pool, and the way in which it is read therefore.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceReport {
    /// Setting of the pool: `auto`, `hdd` or `ssd`.
    pub set: String,
    /// Kind that the disk is treated as: `hdd` or `ssd`.
    pub kind: String,
    /// True if it is rotational: its heads take time to move from one place to another.
    pub is_rotational: bool,
    /// Number of unwanted blocks that a read goes over rather than end.
    pub gap_blocks: u32,
    /// Number of blocks that are read ahead at a time, in order of their places.
    pub window_blocks: u32,
    /// Number of reads ahead in flight, at most, when more are begun.
    pub reads_in_flight: u32,
}

impl DeviceReport {
    /// Takes the figures from the engine's status.
    pub fn new(status: &Status) -> DeviceReport {
        let device = &status.device;
        DeviceReport {
            set: status.device_set.to_string(),
            kind: device.kind().to_string(),
            is_rotational: device.is_rotational,
            gap_blocks: device.gap_blocks,
            window_blocks: device.window_blocks,
            reads_in_flight: device.reads_in_flight,
        }
    }

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
