//! What is printed: results on the standard output, notices on the error output. A reader that is gone ends nothing.

use std::fmt::Arguments;
use std::io::Write;

/// A line about what goes on, or went wrong.
pub fn notice(text: Arguments<'_>) {
    let _ = writeln!(std::io::stderr(), "onefold: {text}");
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
