//! What is said to whoever typed a command: results on the standard output, what went wrong on the error output. A reader
//! that is gone ends nothing. (What a server has to say goes to the log.)

use std::fmt::Arguments;
use std::io::Write;

/// Why a command did not do what it was asked to.
pub fn complain(text: Arguments<'_>) {
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
        Err(error) => complain(format_args!("the result cannot be written as JSON: {error}")),
    }
}
