//! Log of the server: one line on the error output for each event that an operator has to know, none for an I/O that went well.

use std::fs::Metadata;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;

use clap::ValueEnum;
use engine::Nanos;
use tracing::level_filters::LevelFilter;

use crate::print::OneLine;

/// Amount of logging, from the least on. Each level includes those before it.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Failures
    Error,
    /// Failures to come, or of one client
    Warn,
    /// Events: start, stop, recovery, volumes
    Info,
    /// Every client that comes and goes
    Debug,
}

impl From<Level> for LevelFilter {
    fn from(level: Level) -> LevelFilter {
        match level {
            Level::Error => LevelFilter::ERROR,
            Level::Warn => LevelFilter::WARN,
            Level::Info => LevelFilter::INFO,
            Level::Debug => LevelFilter::DEBUG,
        }
    }
}

/// Begins to log. Once in a process.
pub fn start(level: Level) {
    // A log that cannot be written must not end the server.
    let lines = tracing_subscriber::fmt()
        .with_max_level(LevelFilter::from(level))
        .with_target(false)
        .log_internal_errors(false)
        .with_writer(|| OneLine);
    if goes_to_journal() { lines.without_time().init() } else { lines.init() }
}

/// Returns true if the error output is the systemd journal, which has its own timestamps: `JOURNAL_STREAM` names device and inode.
fn goes_to_journal() -> bool {
    let Some(stream) = std::env::var_os("JOURNAL_STREAM") else { return false };
    let output = std::io::stderr().as_fd().try_clone_to_owned().map(std::fs::File::from);
    let metadata = output.and_then(|file| file.metadata());
    metadata.is_ok_and(|metadata| stream.to_str() == Some(&stream_of(&metadata)))
}

fn stream_of(metadata: &Metadata) -> String {
    format!("{}:{}", metadata.dev(), metadata.ino())
}

/// Failures of one kind that are reported in a period.
const REPORTS_MAX: u32 = 20;
const PERIOD: Nanos = 60_000_000_000;

/// Counts failures and says which are worth a line: a slow reader of the log must not delay the server.
#[derive(Default)]
pub struct Failures {
    count: u64,
    /// Since when, and how many of them were reported.
    period: (Nanos, u32),
}

impl Failures {
    /// Counts a failure; returns its number if it is to be reported: the first ones of each minute.
    pub fn add(&mut self, now: Nanos) -> Option<u64> {
        self.count += 1;
        let (since, reported) = &mut self.period;
        if now.saturating_sub(*since) >= PERIOD {
            (*since, *reported) = (now, 0);
        }
        *reported = reported.saturating_add(1);
        (*reported <= REPORTS_MAX).then_some(self.count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_failures_is_reported_now_and_then() {
        let mut failures = Failures::default();
        let mut reported = |now| (0..2500).filter_map(|_| failures.add(now)).collect::<Vec<u64>>();
        assert_eq!(reported(5), (1..=20).collect::<Vec<u64>>());
        assert!(reported(PERIOD - 1).is_empty());
        assert_eq!(reported(PERIOD), (5001..=5020).collect::<Vec<u64>>());
    }
}
