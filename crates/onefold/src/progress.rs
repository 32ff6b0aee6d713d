//! Progress of long work, on the error output. A terminal has one line that is rewritten, after a second of silence. A pipe or a file gets a line after 30 s,
//! and each further one after twice the time: twelve in a day.

use std::fmt::Arguments;
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use crate::print::{complain, outside};
use crate::size;

/// Time for which a terminal shows nothing, and the interval between rewrites of its line.
const SILENCE: Duration = Duration::from_secs(1);
const PERIOD: Duration = Duration::from_millis(250);
/// Time of the first line to a pipe or a file.
const FIRST_LINE: Duration = Duration::from_secs(30);

/// Schedule of the lines that show progress.
#[derive(Clone, Copy, Debug)]
struct Schedule {
    is_terminal: bool,
    /// Since the beginning of the work.
    next: Duration,
}

impl Schedule {
    fn new(is_terminal: bool) -> Schedule {
        Schedule { is_terminal, next: if is_terminal { SILENCE } else { FIRST_LINE } }
    }

    /// Returns true if a line is due this long after the beginning, and plans the next one.
    fn is_due(&mut self, elapsed: Duration) -> bool {
        let is_due = elapsed >= self.next;
        if is_due {
            self.next = if self.is_terminal { elapsed + PERIOD } else { elapsed * 2 };
        }
        is_due
    }
}

/// Shows how far work is that says so in its own words.
pub struct Teller {
    started: Instant,
    schedule: Schedule,
    /// True if a line is on the terminal.
    is_shown: bool,
}

impl Teller {
    /// Creates a teller whose time begins now.
    pub fn new() -> Teller {
        Teller { started: Instant::now(), schedule: Schedule::new(std::io::stderr().is_terminal()), is_shown: false }
    }

    /// Shows a line, if it is time for one.
    pub fn tell(&mut self, line: impl FnOnce(Duration) -> String) {
        let elapsed = self.started.elapsed();
        if self.schedule.is_due(elapsed) {
            self.show(format_args!("{}", line(elapsed)));
        }
    }

    fn show(&mut self, line: Arguments<'_>) {
        if !self.schedule.is_terminal {
            return complain(line);
        }
        self.is_shown = true;
        let mut output = std::io::stderr().lock();
        // A terminal that is gone ends nothing.
        let _ = write!(output, "\r\x1b[K{}", outside(&line.to_string())).and_then(|()| output.flush());
    }

    /// Takes the line away from a terminal.
    pub fn finish(&mut self) {
        if std::mem::take(&mut self.is_shown) {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}

impl Drop for Teller {
    fn drop(&mut self) {
        self.finish();
    }
}

/// Work of a known number of bytes.
pub struct Progress {
    what: &'static str,
    total: u64,
    done: u64,
    teller: Teller,
}

impl Progress {
    /// Creates the progress of `total` bytes, none of them done.
    pub fn new(what: &'static str, total: u64) -> Progress {
        Progress { what, total, done: 0, teller: Teller::new() }
    }

    /// Counts `bytes` more as done, and shows that when it is due.
    pub fn add(&mut self, bytes: u64) {
        self.done = self.done.saturating_add(bytes);
        let (what, total, done) = (self.what, self.total, self.done);
        self.teller.tell(|elapsed| line(what, (done, total), elapsed));
    }

    /// Takes the line away.
    pub fn finish(&mut self) {
        self.teller.finish();
    }
}

fn line(what: &str, (done, total): (u64, u64), elapsed: Duration) -> String {
    let percent = done.saturating_mul(100).checked_div(total).unwrap_or(100).min(100);
    let left = u128::from(total.saturating_sub(done)) * elapsed.as_millis() / u128::from(done.max(1));
    let (done, total) = (size::show(done), size::show(total));
    format!("{what}: {done} of {total} ({percent}%), {} left", show_time(left as u64 / 1000))
}

/// Formats seconds for people.
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
        let quarter = line("reading", (1 << 30, 4 << 30), Duration::from_secs(40));
        assert_eq!(quarter, "reading: 1 GiB of 4 GiB (25%), 2 min 0 s left");
        assert_eq!(line("reading", (0, 0), SILENCE), "reading: 0 bytes of 0 bytes (100%), 0 s left");
    }

    #[test]
    fn a_day_of_work_is_a_few_lines_in_a_pipe_and_a_living_line_on_a_terminal() {
        let lines = |is_terminal, seconds: u64| {
            let mut schedule = Schedule::new(is_terminal);
            (0..seconds * 10).filter(|tenths| schedule.is_due(Duration::from_millis(tenths * 100))).count()
        };
        assert_eq!((lines(false, 30), lines(false, 40), lines(false, 86_400)), (0, 1, 12));
        assert!(lines(true, 1) == 0 && lines(true, 60) > 150);
    }
}
