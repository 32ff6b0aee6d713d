//! Output of commands for their users: results on the standard output, errors on the error output. A reader that is gone ends nothing. (A server's messages go
//! to the log.)
//!
//! A result that cannot be written, as to a full disk, is told once; [`has_failed`] then makes the exit status of the command a failure. All results pass
//! through [`print`] or [`print_parsed`].
//!
//! Text from outside (paths, names of a guest's files, answers of servers) may hold control sequences of a terminal, or characters that change the direction of
//! text. No such character leaves the program: [`print`], [`complain`] and [`OneLine`] write it as an escape. Line breaks are ours, so [`outside`] is for text
//! in the middle of a line.

use std::borrow::Cow;
use std::fmt::Arguments;
use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// Set once a result could not be written.
static HAS_FAILED: AtomicBool = AtomicBool::new(false);

/// Escapes text from outside for the middle of a line: control characters, line breaks among them, and those that change the direction of text. The escape is
/// that of JSON, so that a JSON string keeps its value.
pub fn outside(text: &str) -> Cow<'_, str> {
    escaped(text, |c| is_unsafe(c) || c == '\n' || c == '\t')
}

/// Escapes a path for the middle of a line.
pub fn shown(path: &Path) -> String {
    outside(&path.to_string_lossy()).into_owned()
}

/// Returns true if a character acts on a terminal, or on the text around it. Line breaks and tabs are left to the caller, who knows their origin.
fn is_unsafe(c: char) -> bool {
    let is_bidirectional =
        matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let breaks_lines = matches!(c, '\u{2028}' | '\u{2029}');
    is_bidirectional || breaks_lines || (c.is_control() && c != '\n' && c != '\t')
}

fn escaped(text: &str, is_escaped: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&is_escaped) {
        return Cow::Borrowed(text);
    }
    let escape = |c: char| if is_escaped(c) { format!("\\u{:04x}", u32::from(c)) } else { c.into() };
    Cow::Owned(text.chars().map(escape).collect())
}

/// Writes to the error output why a command has failed.
pub fn complain(text: Arguments<'_>) {
    // Lines of ours that follow the first one are indented.
    let text = text.to_string();
    let lines: Vec<_> = text.split("\n  ").map(outside).collect();
    let _ = writeln!(io::stderr(), "onefold: {}", lines.join("\n  "));
}

/// Writes a result to the output, at once; a failure other than a closed pipe counts for [`has_failed`].
pub fn print(text: Arguments<'_>) {
    let mut output = io::stdout().lock();
    let text = text.to_string();
    judge(output.write_all(escaped(&text, is_unsafe).as_bytes()).and_then(|()| output.flush()));
}

/// Writes help, the version, or the refusal of a command line, as clap words and colours them.
pub fn print_parsed(said: &clap::Error) {
    let printed = said.print().and_then(|()| io::stdout().flush());
    if !said.use_stderr() {
        judge(printed);
    }
}

/// Returns true if a result could not be written, so that the command has failed although it did its work.
pub fn has_failed() -> bool {
    HAS_FAILED.load(Ordering::Relaxed)
}

/// Takes note of a result that could not be written. A reader that has closed its pipe wanted no more.
fn judge(written: io::Result<()>) {
    match written {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            fail(format_args!("the result cannot be written to the standard output: {error}"));
        }
        _ => {}
    }
}

/// Tells the first failure.
fn fail(text: Arguments<'_>) {
    if !HAS_FAILED.swap(true, Ordering::Relaxed) {
        complain(text);
    }
}

/// The error output for a log: the bytes of one write are one line.
pub struct OneLine;

impl Write for OneLine {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let line = String::from_utf8_lossy(bytes.strip_suffix(b"\n").unwrap_or(bytes));
        writeln!(io::stderr(), "{}", outside(&line))?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

/// Writes a result as JSON, on one line.
pub fn print_json(value: &impl serde::Serialize) {
    match serde_json::to_string(value) {
        Ok(text) => print(format_args!("{text}\n")),
        Err(error) => fail(format_args!("the result cannot be written as JSON: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_obeys_is_escaped() {
        assert_eq!(outside("a\u{1b}[2J\n\t\u{9b}é"), "a\\u001b[2J\\u000a\\u0009\\u009bé");
        assert_eq!(outside("exe\u{202e}gnp.\u{2067}\u{200f}\u{2028}"), "exe\\u202egnp.\\u2067\\u200f\\u2028");
        assert!(matches!(outside("/srv/disk.onefold"), Cow::Borrowed(_)));
        let json = serde_json::json!({ "name": "a\u{9b}\u{202e}\u{7f}" });
        let shown = escaped(&json.to_string(), is_unsafe).into_owned();
        assert!(shown.is_ascii());
        assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).unwrap(), json);
    }
}
