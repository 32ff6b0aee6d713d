//! Report of the flash in front of the store, for people and programs.

use std::time::Duration;

use engine::{FlashMode, FlashPolicy, FlashStatus, Quadrants};
use serde::{Deserialize, Serialize};

use crate::print::outside;
use crate::report::define::report;
use crate::report::share::whole_percent;
use crate::size;

/// States of the flash, as they are written.
pub const STATES: [&str; 7] = ["none", "away", "opening", "attached", "failed", "unused", "leaving"];

/// Time since the attachment below which a rate says nothing of a day.
const SHORT: Duration = Duration::from_secs(3600);
const DAY_SECONDS: f64 = 86_400.0;

report! {
    /// Copies of containers to flash, in the quadrant in which their containers are by now, from QA to QD: docs/papers/plc-cache.md.
    #[derive(Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
    #[serde(default)]
    pub struct QuadrantsReport of Quadrants {
        /// QA: popular, copied once.
        popular_once: u64,
        /// QB: popular, copied again after they were evicted.
        popular_again: u64,
        /// QC: not popular, copied once.
        unpopular_once: u64,
        /// QD: not popular, copied again.
        unpopular_again: u64,
    }
    named u64
}

impl QuadrantsReport {
    /// Formats the shares of all copies in percent; `None` before the first.
    fn text(&self) -> Option<String> {
        let all: u64 = self.named().iter().map(|(_, copies)| *copies).sum();
        if all == 0 {
            return None;
        }
        let says = [
            ("QA", "popular, copied once"),
            ("QB", "popular, copied again"),
            ("QC", "little read, copied once"),
            ("QD", "little read, copied again"),
        ];
        let shares = self.named().into_iter().zip(says);
        let shown: Vec<String> = shares
            .map(|((_, copies), (name, what))| format!("{name} {} % ({what})", whole_percent(*copies, all)))
            .collect();
        Some(shown.join(", "))
    }
}

/// Figures of the flash: docs/reference/metrics.md.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(default)]
pub struct FlashReport {
    /// State of the flash: `none`; `away`: it was named and cannot be used; `opening`; `attached`; `failed`: it is not used until the next start or
    /// attach; `unused`: the pool is not written; `leaving`: it was detached, and some of its I/O has not ended.
    pub state: String,
    /// Reason why it is away, failed or unused.
    pub reason: Option<String>,
    /// Path of the flash.
    pub path: Option<String>,
    /// Policy of which containers are copied to it, as it is written on the command line. It is set also if there is no flash.
    pub policy: String,
    /// Bytes of it that are used.
    pub size_bytes: u64,
    /// Containers that it has space for.
    pub places: u64,
    /// Containers that it has.
    pub filled_places: u64,
    /// Containers of these that were found there when it was attached.
    pub found_places: u64,
    /// Bytes of the containers that it has.
    pub held_bytes: u64,
    /// Blocks that reads got from flash since it was attached.
    pub read_blocks: u64,
    /// Blocks that reads got from the store since it was attached.
    pub missed_blocks: u64,
    /// Blocks of the missed ones that flash had, while the page that proves them was not in memory.
    pub unproven_blocks: u64,
    /// Reads of flash that failed; their blocks were read from the store.
    pub failed_reads: u64,
    /// Blocks on flash with wrong content; they were read from the store.
    pub bad_blocks: u64,
    /// Containers copied to it.
    pub copied_containers: u64,
    /// Containers whose copy was given up.
    pub given_up_containers: u64,
    /// Copies of containers to flash, those found at attaching included, by whether the container is popular by now and whether it was copied once or again.
    pub quadrants: QuadrantsReport,
    /// Bytes of containers written to it.
    pub copied_bytes: u64,
    /// Bytes of its log written to it.
    pub log_bytes: u64,
    /// Bytes that may be written in a day.
    pub budget_bytes_per_day: u64,
    /// Bytes that may be written now (once, one filling of it comes on top).
    pub budget_left_bytes: u64,
    /// Bytes of a day's budget that are used.
    pub budget_used_bytes: u64,
    /// Bytes that may be written in its life, if that was specified.
    pub endurance_bytes: Option<u64>,
    /// Days that the endurance lasts at the rate written since it was attached; none before an hour has passed.
    pub life_days: Option<f64>,
    /// Days that the endurance lasts if all of the budget is written every day.
    pub life_days_at_budget: Option<f64>,
}

impl Default for FlashReport {
    fn default() -> FlashReport {
        FlashReport {
            state: "none".into(),
            reason: None,
            path: None,
            policy: FlashPolicy::default().to_string(),
            size_bytes: 0,
            places: 0,
            filled_places: 0,
            found_places: 0,
            held_bytes: 0,
            read_blocks: 0,
            missed_blocks: 0,
            unproven_blocks: 0,
            failed_reads: 0,
            bad_blocks: 0,
            copied_containers: 0,
            given_up_containers: 0,
            quadrants: QuadrantsReport::default(),
            copied_bytes: 0,
            log_bytes: 0,
            budget_bytes_per_day: 0,
            budget_left_bytes: 0,
            budget_used_bytes: 0,
            endurance_bytes: None,
            life_days: None,
            life_days_at_budget: None,
        }
    }
}

impl FlashReport {
    /// Adds the engine's figures, of the time `since` it was attached. `reason` is the last failure.
    pub fn with(self, flash: &FlashStatus, container: u64, since: Duration, reason: Option<String>) -> FlashReport {
        let is_late = flash.mode == FlashMode::Late;
        let reason =
            if is_late { "it did not answer in time".into() } else { reason.unwrap_or("it gave errors".into()) };
        let written = flash.copied_bytes + flash.log_bytes;
        let endurance = self.endurance_bytes.map(|bytes| bytes as f64);
        let per_day = written as f64 * DAY_SECONDS / since.as_secs_f64().max(1.0);
        let life = |rate: f64| endurance.filter(|_| rate > 0.0).map(|bytes| bytes / rate);
        FlashReport {
            state: match flash.mode {
                FlashMode::Opening => "opening",
                FlashMode::Found | FlashMode::Active => "attached",
                FlashMode::Off | FlashMode::Late => "failed",
            }
            .into(),
            reason: matches!(flash.mode, FlashMode::Off | FlashMode::Late).then_some(reason),
            places: flash.places.into(),
            filled_places: flash.filled.into(),
            found_places: flash.found.into(),
            held_bytes: u64::from(flash.filled) * container,
            read_blocks: flash.read_blocks,
            missed_blocks: flash.missed_blocks,
            unproven_blocks: flash.unproven_blocks,
            failed_reads: flash.failed_reads,
            bad_blocks: flash.bad_blocks,
            copied_containers: flash.copied,
            given_up_containers: flash.given_up,
            quadrants: QuadrantsReport::new(flash.quadrants),
            copied_bytes: flash.copied_bytes,
            log_bytes: flash.log_bytes,
            budget_left_bytes: flash.budget_left,
            budget_used_bytes: self.budget_bytes_per_day.saturating_sub(flash.budget_left),
            life_days: life(per_day).filter(|_| since >= SHORT),
            life_days_at_budget: life(self.budget_bytes_per_day as f64),
            ..self
        }
    }

    /// Returns true if the pool has a flash, or one was named for it.
    pub fn is_there(&self) -> bool {
        self.state != "none"
    }

    /// Describes the flash in one line.
    pub fn text(&self) -> String {
        let path = outside(self.path.as_deref().unwrap_or_default());
        match (&self.reason, self.state.as_str()) {
            (Some(reason), state) => format!("{state}: {path}: {reason}"),
            (None, "attached") => {
                let (held, size) = (size::show(self.held_bytes), size::show(self.size_bytes));
                let written = size::show(self.copied_bytes + self.log_bytes);
                format!("{path}: {held} of {size}, {} % of blocks read from it, {written} written", self.hit_percent())
            }
            (None, state) => format!("{state}: {path}"),
        }
    }

    /// Returns the blocks that came from flash, in percent of those that were not in memory.
    fn hit_percent(&self) -> u64 {
        whole_percent(self.read_blocks, self.read_blocks.saturating_add(self.missed_blocks))
    }

    /// Formats all figures as a table for people; without the figures if nothing of a flash is used.
    pub fn table(&self) -> String {
        let mut text = String::new();
        let mut row = |name: &str, value: String| text.push_str(&format!("  {name:<12}{value}\n"));
        row("state", self.state.clone());
        if let Some(path) = &self.path {
            row("flash", outside(path).into_owned());
        }
        if let Some(reason) = &self.reason {
            row("reason", reason.clone());
        }
        if self.size_bytes == 0 {
            return text;
        }
        let (held, size) = (size::show(self.held_bytes), size::show(self.size_bytes));
        row("holds", format!("{held} of {size}: {} containers of {}", self.filled_places, self.places));
        row("found", format!("{} of them were there when it was attached", self.found_places));
        let (read, missed) = (self.read_blocks, self.missed_blocks);
        row("hits", format!("{} %: {read} blocks from flash, {missed} from the store", self.hit_percent()));
        if self.failed_reads + self.bad_blocks > 0 {
            let (failed, bad) = (self.failed_reads, self.bad_blocks);
            row("errors", format!("{failed} failed reads, {bad} bad blocks: the store had them"));
        }
        row("policy", self.policy.clone());
        if let Some(quadrants) = self.quadrants.text() {
            row("quadrants", quadrants);
        }
        let (copies, log) = (size::show(self.copied_bytes), size::show(self.log_bytes));
        row("written", format!("{copies} of containers, {log} of its log"));
        let (used, budget) = (size::show(self.budget_used_bytes), size::show(self.budget_bytes_per_day));
        row("budget", format!("{used} of {budget} a day are used, {} are left", size::show(self.budget_left_bytes)));
        if let Some(endurance) = self.endurance_bytes {
            let days = |days: Option<f64>| days.map_or("not known yet".into(), |days| format!("{days:.0} days"));
            let (now, least) = (days(self.life_days), days(self.life_days_at_budget));
            let endurance = size::show(endurance);
            row("life", format!("{now} at the rate so far, {least} with all of the budget, of {endurance} (TBW)"));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn life_follows_from_what_is_written() {
        let flash = FlashStatus {
            mode: FlashMode::Active,
            places: 10,
            filled: 3,
            found: 1,
            read_blocks: 30,
            missed_blocks: 10,
            unproven_blocks: 0,
            failed_reads: 0,
            bad_blocks: 0,
            copied: 2,
            given_up: 0,
            copied_bytes: 900,
            log_bytes: 100,
            budget_left: 4000,
            quadrants: Quadrants { popular_once: 2, popular_again: 0, unpopular_once: 1, unpopular_again: 0 },
        };
        let report =
            FlashReport { budget_bytes_per_day: 5000, endurance_bytes: Some(48_000), ..FlashReport::default() };
        let after = |hours: u64| report.clone().with(&flash, 4 << 20, Duration::from_secs(hours * 3600), None);
        assert_eq!((after(12).life_days, after(12).life_days_at_budget), (Some(24.0), Some(9.6)));
        assert_eq!((after(0).life_days, after(12).hit_percent(), after(12).budget_used_bytes), (None, 75, 1000));
        assert_eq!((after(12).state.as_str(), after(12).held_bytes), ("attached", 12 << 20));
        assert_eq!(report.quadrants.text(), None);
        let shown = "QA 66 % (popular, copied once), QB 0 % (popular, copied again), QC 33 % (little read, copied once), QD 0 % (little read, \
                     copied again)";
        assert_eq!(after(12).quadrants.text().as_deref(), Some(shown));
    }
}
