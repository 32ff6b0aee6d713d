//! The record of a run: a digest of all events, and, on request, the lines that describe them.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use engine::Nanos;

use crate::random::mix;

/// The record of a run.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    state: [u64; 2],
    print: bool,
    /// The last lines, and how many of them are kept.
    kept: Option<(Lines, usize)>,
}

/// Lines that outlive their run.
pub type Lines = Rc<RefCell<VecDeque<String>>>;

impl Trace {
    /// Creates a record that prints each line to standard error as it happens, or only digests.
    pub fn new(print: bool) -> Trace {
        Trace { state: [1, 2], print, kept: None }
    }

    /// Creates a record that keeps the last `count` lines, for when the run ends with a violation.
    pub fn keeping(count: usize) -> (Trace, Lines) {
        let lines = Lines::default();
        (Trace { kept: Some((lines.clone(), count)), ..Trace::new(false) }, lines)
    }

    /// Notes an event: `code` and `values` identify it, `text` describes it to a reader.
    pub fn note(&mut self, now: Nanos, code: u64, values: &[u64], text: impl FnOnce() -> String) {
        self.mix(now ^ mix(code));
        for &value in values {
            self.mix(value);
        }
        self.line(|| format!("{:>12.3} us  {}", now as f64 / 1000.0, text()));
    }

    /// Prints or keeps a line that is not part of the digest.
    pub fn say(&self, text: impl FnOnce() -> String) {
        self.line(|| format!("                 {}", text()));
    }

    fn line(&self, text: impl FnOnce() -> String) {
        if let Some((lines, count)) = &self.kept {
            let mut lines = lines.borrow_mut();
            if lines.len() == *count {
                lines.pop_front();
            }
            lines.push_back(text());
        } else if self.print {
            eprintln!("{}", text());
        }
    }

    /// Returns the digest so far, in hexadecimal.
    pub fn digest(&self) -> String {
        format!("{:016x}{:016x}", self.state[0], self.state[1])
    }

    fn mix(&mut self, value: u64) {
        self.state[0] = mix(self.state[0] ^ value);
        self.state[1] = mix(self.state[1].wrapping_add(value).rotate_left(17));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digest_depends_on_every_value_and_its_order() {
        let digest = |values: &[u64]| {
            let mut trace = Trace::new(false);
            trace.note(1, 2, values, String::new);
            trace.digest()
        };
        assert_eq!(digest(&[1, 2]), digest(&[1, 2]));
        assert_ne!(digest(&[1, 2]), digest(&[2, 1]));
        assert_ne!(digest(&[1, 2]), digest(&[1, 3]));
    }

    #[test]
    fn the_last_lines_are_kept() {
        let (trace, lines) = Trace::keeping(2);
        for line in ["a", "b", "c"] {
            trace.say(|| line.to_string());
        }
        let lines: Vec<_> = lines.borrow().iter().map(|line| line.trim().to_string()).collect();
        assert_eq!(lines, ["b", "c"]);
    }
}
