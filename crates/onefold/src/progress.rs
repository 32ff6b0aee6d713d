//! Progress of long work, on a terminal: silent for the first second, then one line that is rewritten.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use crate::size;

const SILENCE: Duration = Duration::from_secs(1);
const PERIOD: Duration = Duration::from_millis(250);

/// Work of a known number of bytes.
pub struct Progress {
    what: &'static str,
    total: u64,
    done: u64,
    started: Instant,
    shown: Option<Instant>,
    enabled: bool,
}

impl Progress {
    /// Begins.
    pub fn new(what: &'static str, total: u64) -> Progress {
        let enabled = std::io::stderr().is_terminal();
        Progress { what, total, done: 0, started: Instant::now(), shown: None, enabled }
    }

    /// `bytes` more are done.
    pub fn add(&mut self, bytes: u64) {
        self.done = self.done.saturating_add(bytes);
        if !self.enabled {
            return;
        }
        let now = Instant::now();
        let due = self.shown.map_or(self.started + SILENCE, |shown| shown + PERIOD);
        if now >= due {
            self.shown = Some(now);
            eprint!("\r\x1b[K{}", self.line(now - self.started));
            let _ = std::io::stderr().flush();
        }
    }

    /// Takes the line away.
    pub fn finish(&mut self) {
        if self.shown.take().is_some() {
            eprint!("\r\x1b[K");
        }
    }

    fn line(&self, elapsed: Duration) -> String {
        let percent = self.done.saturating_mul(100).checked_div(self.total).unwrap_or(100).min(100);
        let left =
            u128::from(self.total.saturating_sub(self.done)) * elapsed.as_millis() / u128::from(self.done.max(1));
        let (done, total) = (size::show(self.done), size::show(self.total));
        format!("{}: {done} of {total} ({percent}%), {} left", self.what, show_time(left as u64 / 1000))
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.finish();
    }
}

/// Seconds for people.
fn show_time(seconds: u64) -> String {
    match seconds {
        0..=59 => format!("{seconds} s"),
        60..=3599 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_how_much_and_how_long() {
        let mut progress = Progress::new("reading", 4 << 30);
        progress.enabled = false;
        progress.add(1 << 30);
        assert_eq!(progress.line(Duration::from_secs(40)), "reading: 1 GiB of 4 GiB (25%), 2 min 0 s left");
        assert_eq!(Progress::new("reading", 0).line(SILENCE), "reading: 0 bytes of 0 bytes (100%), 0 s left");
    }
}
