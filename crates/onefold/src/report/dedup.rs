//! Report of the pass that finds all duplicates, for people and programs.

use engine::{DedupStatus, DedupVerify};
use serde::{Deserialize, Serialize};

use crate::report::define::report;
use crate::size;

report! {
    /// The pass that is in progress, or the last one.
    #[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
    pub struct DedupReport from (status: &DedupStatus, verify: DedupVerify) {
        /// Blocks that are read before blocks share a slot: `kept`, `both` or `off`.
        #[serde(default)]
        verify: String = verify.to_string(),
        /// State of the pass: `never`, `running`, `paused`, `finished` or `stopped`.
        state: String = status.state.name().into(),
        /// Part of the pass that is done, in millionths.
        done_ppm: u32,
        /// Seconds until its end at the rate so far, if that is known.
        left_seconds: Option<u64>,
        /// Blocks that share a slot now and had one of their own before, since the pool was opened.
        shared_blocks: u64,
        /// Blocks that were left apart, so that no run is split, each time that a pass found them, since the pool was opened.
        #[serde(default)]
        kept_blocks: u64,
        /// Pairs of blocks with equal digests that were left apart, since reading both did not show the same bytes; counted since the pool was opened.
        #[serde(default)]
        unequal_blocks: u64,
        /// Passes that have ended since the pool was opened.
        #[serde(default)]
        passes: u64,
        /// Walks of all summaries since the pool was opened.
        scans: u64,
        /// Walks of all maps since the pool was opened.
        map_walks: u64,
        /// Blocks of empty containers that the pass has taken as spill space.
        #[serde(default)]
        spill_blocks: u64,
        /// Blocks that it wrote to this spill space since the pool was opened.
        #[serde(default)]
        spill_written: u64,
        /// Blocks that it read back from this spill space since the pool was opened.
        #[serde(default)]
        spill_read: u64,
        /// Set while the pass is paused because the pool is short of metadata.
        short_of_space: bool = status.is_short_of_space,
        /// True if writes have left work to the next pass.
        #[serde(default)]
        backlog: bool = status.has_backlog,
        /// Blocks of that work that came since the pool was opened.
        #[serde(default)]
        backlog_blocks: u64,
        /// Blocks written since the pool was opened although their content was known, and that no pass has examined since. Each gives back one slot, at most.
        #[serde(default)]
        missed_blocks: u64,
    }
}

impl DedupReport {
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
