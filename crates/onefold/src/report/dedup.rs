//! Report of the pass that finds all duplicates, for people and programs.

use engine::{DedupStatus, DedupVerify};
use serde::{Deserialize, Serialize};

use crate::size;

/// The pass that is in progress, or the last one.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
pub struct DedupReport {
    /// Blocks that are read before blocks share a slot: `kept`, `both` or `off`.
    #[serde(default)]
    pub verify: String,
    /// State of the pass: `never`, `running`, `paused`, `finished` or `stopped`.
    pub state: String,
    /// Part of the pass that is done, in millionths.
    pub done_ppm: u32,
    /// Seconds until its end at the rate so far, if that is known.
    pub left_seconds: Option<u64>,
    /// Blocks that share a slot now and had one of their own before, since the pool was opened.
    pub shared_blocks: u64,
    /// Blocks that were left apart, so that no run is split, each time that a pass found them, since the pool was opened.
    #[serde(default)]
    pub kept_blocks: u64,
    /// Pairs of blocks with equal digests that were left apart, since reading both did not show the same bytes; counted since the pool was opened.
    #[serde(default)]
    pub unequal_blocks: u64,
    /// Passes that have ended since the pool was opened.
    #[serde(default)]
    pub passes: u64,
    /// Walks of all summaries since the pool was opened.
    pub scans: u64,
    /// Walks of all maps since the pool was opened.
    pub map_walks: u64,
    /// Blocks of empty containers that the pass has taken as spill space.
    #[serde(default)]
    pub spill_blocks: u64,
    /// Blocks that it wrote to this spill space since the pool was opened.
    #[serde(default)]
    pub spill_written: u64,
    /// Blocks that it read back from this spill space since the pool was opened.
    #[serde(default)]
    pub spill_read: u64,
    /// Set while the pass is paused because the pool is short of metadata.
    pub short_of_space: bool,
    /// True if writes have left work to the next pass.
    #[serde(default)]
    pub backlog: bool,
    /// Blocks of that work that came since the pool was opened.
    #[serde(default)]
    pub backlog_blocks: u64,
    /// Blocks written since the pool was opened although their content was known, and that no pass has examined since. Each gives back one slot, at most.
    #[serde(default)]
    pub missed_blocks: u64,
}

impl DedupReport {
    /// Collects the figures from the engine's status.
    pub fn new(status: &DedupStatus, verify: DedupVerify) -> DedupReport {
        DedupReport {
            verify: verify.to_string(),
            state: status.state.name().into(),
            done_ppm: status.done_ppm,
            left_seconds: status.left_seconds,
            shared_blocks: status.shared_blocks,
            kept_blocks: status.kept_blocks,
            unequal_blocks: status.unequal_blocks,
            passes: status.passes,
            scans: status.scans,
            map_walks: status.map_walks,
            spill_blocks: status.spill_blocks,
            spill_written: status.spill_written,
            spill_read: status.spill_read,
            short_of_space: status.is_short_of_space,
            backlog: status.has_backlog,
            backlog_blocks: status.backlog_blocks,
            missed_blocks: status.missed_blocks,
        }
    }

    /// Describes the pass in one line.
    pub fn text(&self) -> String {
        let shared = size::show(self.shared_blocks.saturating_mul(4096));
        let done = format!("{}.{} %", self.done_ppm / 10_000, self.done_ppm / 1_000 % 10);
        let backlog = match self.backlog_blocks {
            _ if !self.backlog => String::new(),
            0 => ", the next has work".into(),
            blocks => format!(", {} wait for the next", size::show(blocks.saturating_mul(4096))),
        };
        match self.state.as_str() {
            "running" => {
                let left = self.left_seconds.map_or(String::new(), |seconds| format!(", {seconds} s left"));
                format!("running: {done} done{left}, {shared} shared{backlog}")
            }
            "paused" if self.short_of_space => {
                format!("paused at {done}: metadata is short. It goes on when something is discarded or the pool grows")
            }
            "paused" => format!("paused at {done}, {shared} shared{backlog}"),
            "finished" => format!("finished, {shared} shared since the pool was opened{backlog}"),
            state => format!("{state}{backlog}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use engine::PassState;

    use super::*;

    #[test]
    fn a_line_says_how_far_it_is() {
        let status = DedupStatus {
            state: PassState::Running,
            done_ppm: 123_456,
            left_seconds: Some(9),
            shared_blocks: 256,
            ..DedupStatus::default()
        };
        assert_eq!(DedupReport::new(&status, DedupVerify::Off).text(), "running: 12.3 % done, 9 s left, 1 MiB shared");
        assert_eq!(DedupReport::new(&DedupStatus::default(), DedupVerify::Off).text(), "never");
        let left = DedupStatus { has_backlog: true, backlog_blocks: 512, ..DedupStatus::default() };
        assert_eq!(DedupReport::new(&left, DedupVerify::Both).text(), "never, 2 MiB wait for the next");
    }
}
