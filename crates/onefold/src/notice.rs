//! What is printed: results on the standard output, notices on the error output. A reader that is gone ends nothing.

use std::fmt::Arguments;
use std::io::Write;

/// A line about what goes on, or went wrong.
pub fn notice(text: Arguments<'_>) {
    let _ = writeln!(std::io::stderr(), "onefold: {text}");
}

/// Failures of one kind that are reported one by one.
const REPORTS_MAX: u64 = 20;

/// Counts failures and says which are worth a line: whoever reads the error output slowly must not hold up the server.
#[derive(Default)]
pub struct Failures {
    count: u64,
}

impl Failures {
    /// Counts a failure; returns its number if it is to be reported: the first ones each, later ones now and then.
    pub fn add(&mut self) -> Option<u64> {
        self.count += 1;
        (self.count <= REPORTS_MAX || self.count.is_multiple_of(1000)).then_some(self.count)
    }
}

/// A result.
pub fn print(text: Arguments<'_>) {
    let mut output = std::io::stdout().lock();
    let _ = output.write_fmt(text);
    let _ = output.flush();
}

/// A result as JSON, on one line.
pub fn print_json(value: &impl serde::Serialize) {
    match serde_json::to_string(value) {
        Ok(text) => print(format_args!("{text}\n")),
        Err(error) => notice(format_args!("the result cannot be written as JSON: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_failures_is_reported_now_and_then() {
        let mut failures = Failures::default();
        let reported: Vec<u64> = (0..2500).filter_map(|_| failures.add()).collect();
        assert_eq!(reported[..20], (1..=20).collect::<Vec<u64>>());
        assert_eq!(reported[20..], [1000, 2000]);
    }
}
