//! Report of the run of a plan of relocation, for people and programs.

use engine::{Kept, RelocateStatus, Schedule};
use serde::{Deserialize, Serialize};

use crate::report::define::report;
use crate::size;

report! {
    /// Blocks of a plan that stay where they are, by the reason.
    #[derive(Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct KeptReport of Kept {
        /// Blocks that were overwritten since the profile.
        gone: u64,
        /// Blocks that have replicas, which other readers use.
        for_replicas: u64,
        /// Blocks that could not be read.
        unreadable: u64,
        /// Blocks for which there was no empty container, or no metadata.
        no_space: u64,
        /// Blocks that were left when the run was stopped.
        stopped: u64,
    }
}

report! {
    /// Run that is in progress, or the last one since the pool was opened.
    #[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
    pub struct RelocateReport from (status: &RelocateStatus, by_itself: Schedule) {
        /// Schedule on which the server makes and runs a plan automatically: `off`, `auto`, or hours of the day.
        #[serde(default)]
        by_itself: String = by_itself.to_string(),
        /// State of the run: `never`, `running`, `paused`, `finished` or `stopped`.
        state: String = status.state.name().into(),
        /// Part of the run that is done, in millionths.
        done_ppm: u32,
        /// Seconds until its end at the rate so far, if that is known.
        left_seconds: Option<u64>,
        /// Blocks of the plan.
        planned_blocks: u64,
        /// Blocks of the plan that have been moved.
        moved_blocks: u64,
        /// Blocks of volumes that a walk found and remapped to a copy.
        referrers: u64,
        /// Walks of all maps.
        map_walks: u64,
        /// Blocks that are stored once more than before.
        doubled_blocks: u64,
        /// Blocks that stay where they are, by the reason.
        kept: KeptReport = KeptReport::new(status.kept),
        /// Set while the run is paused because the pool is short of metadata.
        short_of_space: bool = status.is_short_of_space,
    }
}

impl RelocateReport {
    /// Returns true if there was a run, or if runs are scheduled.
    pub fn has_news(&self) -> bool {
        self.state != "never" || self.is_by_itself()
    }

    /// Returns true if runs begin automatically. The report of an earlier version has no schedule.
    pub fn is_by_itself(&self) -> bool {
        !self.by_itself.is_empty() && self.by_itself != Schedule::Off.to_string()
    }

    /// Describes the run in one line, with the schedule if there is one.
    pub fn text(&self) -> String {
        let run = self.text_of_run();
        if self.is_by_itself() { format!("{run}; by itself: {}", self.by_itself) } else { run }
    }

    fn text_of_run(&self) -> String {
        let show = |blocks: u64| size::show(blocks.saturating_mul(4096));
        let moved = format!("{} of {} moved", show(self.moved_blocks), show(self.planned_blocks));
        let done = format!("{}.{} %", self.done_ppm / 10_000, self.done_ppm / 1_000 % 10);
        let KeptReport { gone, for_replicas, unreadable, no_space, stopped } = self.kept;
        let reasons = [
            (gone, "overwritten since the profile"),
            (for_replicas, "kept for the replicas of other readers"),
            (unreadable, "unreadable"),
            (no_space, "without an empty container: grow the pool or discard something"),
            (stopped, "left when the run was stopped"),
            (self.doubled_blocks, "stored twice until the next 'onefold dedup'"),
        ];
        let left: String = reasons
            .iter()
            .filter(|(blocks, _)| *blocks > 0)
            .map(|(blocks, why)| format!("; {} {why}", show(*blocks)))
            .collect();
        match self.state.as_str() {
            "running" => {
                let time = self.left_seconds.map_or(String::new(), |seconds| format!(", {seconds} s left"));
                format!("running: {done} done{time}, {moved}")
            }
            "paused" if self.short_of_space => format!(
                "paused at {done}: metadata is short. Grow the pool or discard something, then run 'onefold relocate run'"
            ),
            "paused" => format!("paused at {done}, {moved}"),
            "finished" => format!("finished: {moved}{left}"),
            "stopped" => format!("stopped: {moved}{left}"),
            "never" => "none so far".into(),
            state => state.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use engine::PassState;

    use super::*;

    #[test]
    fn a_line_says_how_far_it_is_and_what_it_left() {
        let status = RelocateStatus {
            state: PassState::Running,
            done_ppm: 123_456,
            left_seconds: Some(9),
            planned_blocks: 512,
            moved_blocks: 256,
            ..RelocateStatus::default()
        };
        assert_eq!(
            RelocateReport::new(&status, Schedule::Off).text(),
            "running: 12.3 % done, 9 s left, 1 MiB of 2 MiB moved"
        );
        let kept = Kept { gone: 1, ..Kept::default() };
        let status = RelocateStatus { state: PassState::Finished, kept, ..status };
        let text = RelocateReport::new(&status, Schedule::Off).text();
        assert_eq!(text, "finished: 1 MiB of 2 MiB moved; 4 KiB overwritten since the profile");
        let text = |by_itself| RelocateReport::new(&RelocateStatus::default(), by_itself).text();
        assert_eq!(text(Schedule::Off), "none so far");
        assert_eq!(text(Schedule::Auto), "none so far; by itself: auto");
    }
}
