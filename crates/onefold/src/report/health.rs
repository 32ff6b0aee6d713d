//! Health of a pool, and the operator's remedies: for `status`, `/healthz`, the page and `onefold top`.
//!
//! [`findings`] has each finding once, with the command that helps. [`Health`] is their sum.

use crate::report::share::percent;
use crate::report::status::{NOT_RECOVERED, Report, full_text};
use crate::size;

/// Least gain of a pass that is reported, in blocks, and in percent of the stored data.
const GAIN_LEAST: u64 = 1024;
const GAIN_LEAST_PERCENT: f64 = 1.0;

/// Degree of a pool's health.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Level {
    /// Nothing is to be done.
    Good,
    /// The pool serves, and an operator should look.
    Warning,
    /// Reads or writes fail, or will.
    Bad,
}

/// A fact that an operator should know, or act on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// Level of health that the pool has in spite of the finding.
    pub level: Level,
    /// Short name of one or two words.
    pub name: &'static str,
    /// Explanation, and the remedy.
    pub sentence: String,
}

/// Health of a pool, with the reason.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Health {
    /// Worst level of the findings.
    pub level: Level,
    /// Reason, and the remedy.
    pub sentence: String,
}

/// Lists everything to know or to do about a pool, roughly the worst first. Commands in it name the pool as given.
pub fn findings(report: &Report, pool: &str) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut add = |level, name, sentence| found.push(Finding { level, name, sentence });
    if let Some(failure) = &report.failure {
        let remedy = report.remedy.as_deref().unwrap_or_default().replace("POOL", pool);
        add(Level::Bad, "failed", format!("the pool has failed and is read-only: {failure}. {remedy}"));
    }
    if report.needs_recovery {
        add(Level::Good, "recovery", format!("still to be done: {NOT_RECOVERED}"));
    } else if report.mode == "recovering" {
        add(Level::Bad, "opening", "the pool is still being opened".into());
    }
    match report.damages_left {
        0 => {}
        1 => {
            let names = format!("'onefold status {pool}' names it");
            add(Level::Bad, "damaged", format!("1 block is damaged and not repaired: {names}"));
        }
        count => {
            let names = format!("'onefold status {pool}' names the last of them");
            add(Level::Bad, "damaged", format!("{count} blocks are damaged and not repaired: {names}"));
        }
    }
    if report.host_full {
        add(Level::Bad, "no space", "the file system under the pool is full: make space there".into());
    }
    if let Some(full) = full_text(&report.refuses_new) {
        add(Level::Bad, "full", format!("writes of new blocks are refused: {full}"));
    }
    for (percent, what) in [(report.data_percent, "capacity"), (report.metadata_percent, "metadata space")] {
        if percent >= 80 && report.refuses_new.is_empty() {
            let remedy = "trim or delete unneeded data, or grow the pool";
            add(Level::Warning, "nearly full", format!("{percent} % of the pool's {what} are in use: {remedy}"));
        }
    }
    let is_short = report.data_percent >= 80 || !report.refuses_new.is_empty();
    if let Some(holders) = report.snapshots.holders(report.logical_blocks_used, pool).filter(|_| is_short) {
        add(Level::Warning, "snapshots", holders);
    }
    if report.index_filled_percent < 100 && report.is_served() {
        let percent = report.index_filled_percent;
        let what = "what writes miss until it is full is stored again, and a pass shares it";
        add(Level::Good, "index", format!("{percent} % filled since the pool was opened; {what}"));
    }
    let failed = report.volumes.iter().filter_map(|volume| Some((volume, volume.snapshots_failure.as_ref()?)));
    let failed: Vec<_> = failed.collect();
    if let [(volume, failure), others @ ..] = &failed[..] {
        let more = if others.is_empty() { String::new() } else { format!("; {} more volumes", others.len()) };
        add(Level::Warning, "snapshots", format!("an automatic one of '{}' failed, {failure}{more}", volume.name));
    }
    if let Some(blocks) = gain(report) {
        let gain = size::show(blocks.saturating_mul(4096));
        add(
            Level::Good,
            "to gain",
            format!("up to {gain}, known and stored again since the pool was opened: 'onefold dedup {pool}'"),
        );
    }
    found
}

/// Returns the blocks that a pass may give back, if that is worth a report and no pass is in progress.
fn gain(report: &Report) -> Option<u64> {
    let can_run = report.failure.is_none() && report.mode == "normal" && !report.needs_recovery;
    let is_in_progress = matches!(report.dedup.state.as_str(), "running" | "paused");
    let blocks = report.dedup.missed_blocks.min(report.data_blocks_used);
    let is_worth_it = blocks >= GAIN_LEAST && percent(blocks, report.data_blocks_used) >= GAIN_LEAST_PERCENT;
    (can_run && !is_in_progress && is_worth_it).then_some(blocks)
}

impl Health {
    /// Derives the health from a report. A pool that is read-only by choice is well.
    pub fn of(report: &Report) -> Health {
        let found = findings(report, "POOL");
        let ill = found.iter().filter(|finding| finding.level != Level::Good);
        let level = ill.clone().map(|finding| finding.level).max().unwrap_or(Level::Good);
        let mut sentence = ill.map(|finding| finding.sentence.as_str()).collect::<Vec<_>>().join("; ");
        if sentence.is_empty() {
            sentence = if report.mode == "read-only" { "well, served read-only" } else { "well" }.into();
        }
        Health { level, sentence }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::snapshots::HolderReport;
    use crate::report::text::tests::report;

    fn names(report: &Report) -> Vec<&'static str> {
        findings(report, "p").iter().map(|finding| finding.name).collect()
    }

    #[test]
    fn a_pass_that_would_give_much_back_is_advised_and_one_that_would_not_is_not() {
        let mut report = report(1);
        (report.data_blocks_used, report.dedup.missed_blocks) = (1 << 20, 153_600);
        let found = findings(&report, "p");
        assert_eq!(found.len(), 1);
        assert!(
            found[0].sentence.contains("up to 600 MiB") && found[0].sentence.contains("'onefold dedup p'"),
            "{found:?}"
        );
        assert_eq!(Health::of(&report).sentence, "well", "it is no alarm");
        report.dedup.missed_blocks = 9_000;
        assert_eq!(names(&report), [""; 0], "less than a percent");
        (report.data_blocks_used, report.dedup.missed_blocks) = (1_000, 1_000);
        assert_eq!(names(&report), [""; 0], "less than 4 MiB");
        (report.data_blocks_used, report.dedup.missed_blocks) = (10_000, u64::MAX);
        assert!(findings(&report, "p")[0].sentence.contains("up to 39.1 MiB"), "no more than there is");
        report.dedup.state = "running".into();
        assert_eq!(names(&report), [""; 0]);
    }

    #[test]
    fn a_pool_that_gets_full_says_whose_snapshots_hold_what() {
        let mut report = report(1);
        (report.logical_blocks_used, report.snapshots.count, report.snapshots.blocks) = (4096, 2, 1024);
        report.snapshots.most = vec![HolderReport { volume: "db".into(), snapshots: 2, blocks: 1024 }];
        assert_eq!(names(&report), [""; 0], "there is space");
        report.data_percent = 85;
        assert_eq!(names(&report), ["nearly full", "snapshots"]);
        (report.data_percent, report.refuses_new) = (100, "data".into());
        assert_eq!(names(&report), ["full", "snapshots"]);
        let Health { level, sentence } = Health::of(&report);
        assert_eq!(level, Level::Bad);
        assert!(sentence.contains("snapshots hold 4 MiB of the logical data: 2 snapshots of 'db' 4 MiB"), "{sentence}");
    }

    #[test]
    fn an_index_that_is_not_filled_is_told() {
        let mut report = report(1);
        report.index_filled_percent = 43;
        assert!(findings(&report, "p")[0].sentence.starts_with("43 % filled"));
        assert_eq!(Health::of(&report), Health { level: Level::Good, sentence: "well".into() });
        report.addresses.clear();
        assert_eq!(names(&report), [""; 0], "who only looks fills none");
    }
}
