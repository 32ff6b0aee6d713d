//! What the disk under a pool is.

use engine::{DeviceKind, Status};
use serde::{Deserialize, Serialize};

/// What the disk under a pool is, and how it is read therefore.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceReport {
    /// What was set: `auto`, `hdd` or `ssd`.
    pub set: String,
    /// What it is taken for: `hdd` or `ssd`.
    pub kind: String,
    /// Whether it has heads, which take their time from one place to another.
    pub has_heads: bool,
    /// Blocks that nobody wants which a read goes over rather than to end.
    pub gap_blocks: u32,
    /// Blocks that are read ahead at a time, in order of their places.
    pub window_blocks: u32,
    /// Reads for that which are in flight when more are begun, at most.
    pub reads_in_flight: u32,
}

impl DeviceReport {
    /// As the engine has it.
    pub fn new(status: &Status) -> DeviceReport {
        let device = &status.device;
        DeviceReport {
            set: status.device_set.to_string(),
            kind: device.kind().to_string(),
            has_heads: device.has_heads,
            gap_blocks: device.gap_blocks,
            window_blocks: device.window_blocks,
            reads_in_flight: device.reads_in_flight,
        }
    }

    /// Whether somebody has said what it is.
    pub fn is_set(&self) -> bool {
        self.set != DeviceKind::default().to_string()
    }

    /// For people.
    pub fn text(&self) -> String {
        let source = if self.is_set() { "as was set" } else { "as the system says" };
        format!("{:<12}{source}", self.kind)
    }
}
