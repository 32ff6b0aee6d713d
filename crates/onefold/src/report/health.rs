//! Whether a pool is well, in a sentence: for `/healthz`, the page and `onefold top`.

use crate::report::status::{Report, full_text};

/// How a pool is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Level {
    /// Nothing is to be done.
    Good,
    /// It serves, and somebody should look.
    Warning,
    /// Reads or writes fail, or will.
    Bad,
}

/// How a pool is, and why.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Health {
    /// How it is.
    pub level: Level,
    /// Why, and what to do.
    pub sentence: String,
}

impl Health {
    /// As a report has it. A pool that is read-only because somebody wanted it so is well.
    pub fn of(report: &Report) -> Health {
        let mut found: Vec<(Level, String)> = Vec::new();
        if let Some(failure) = &report.failure {
            let remedy = "Check the disk, stop the server, and run 'onefold repair POOL --dry-run'";
            found.push((Level::Bad, format!("the pool has failed and is read-only: {failure}. {remedy}")));
        }
        if report.mode == "recovering" {
            found.push((Level::Bad, "the pool is still being opened".into()));
        }
        let damaged = report.damaged_blocks_found.saturating_sub(report.repaired_blocks);
        match damaged.max(report.scrub.damages_left) {
            0 => {}
            1 => found.push((Level::Bad, "1 block is damaged and not repaired: 'onefold status POOL' names it".into())),
            count => found.push((
                Level::Bad,
                format!("{count} blocks are damaged and not repaired: 'onefold status POOL' names the last of them"),
            )),
        }
        if report.host_full {
            found.push((Level::Bad, "the file system under the pool is full: make room there".into()));
        }
        if let Some(full) = full_text(&report.refuses_new) {
            found.push((Level::Bad, format!("writes of new blocks are refused: {full}")));
        }
        let parts = [(report.data_percent, "capacity"), (report.metadata_percent, "room for maps and tables")];
        for (percent, what) in parts {
            if percent >= 80 && report.refuses_new.is_empty() {
                let remedy = "trim or delete what is not needed, or grow the pool";
                found.push((Level::Warning, format!("{percent} % of the pool's {what} are in use: {remedy}")));
            }
        }
        let level = found.iter().map(|(level, _)| *level).max().unwrap_or(Level::Good);
        let sentences: Vec<String> = found.into_iter().map(|(_, sentence)| sentence).collect();
        let mut sentence = sentences.join("; ");
        if sentence.is_empty() {
            sentence = if report.mode == "read-only" { "well, served read-only" } else { "well" }.into();
        }
        Health { level, sentence }
    }
}
