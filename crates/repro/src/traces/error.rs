//! Error type of a trace reader: the file, the line and the expected text.

use std::fmt;
use std::path::{Path, PathBuf};

/// Number of characters of a line that an error shows.
const SHOWN: usize = 80;

/// Reason why a trace cannot be read further.
#[derive(Debug)]
pub struct TraceError {
    file: PathBuf,
    /// Line number from 1; 0 for an error about the whole file.
    line: u64,
    what: String,
}

impl TraceError {
    /// Creates an error about a file as a whole.
    pub(super) fn file(file: &Path, what: impl Into<String>) -> TraceError {
        TraceError { file: file.to_path_buf(), line: 0, what: what.into() }
    }

    /// Creates an error about a line, which is not as expected.
    pub(super) fn line(file: &Path, line: u64, expected: &str, found: &[u8]) -> TraceError {
        let text = String::from_utf8_lossy(found);
        let mut shown: String = text.trim_end().chars().take(SHOWN).collect();
        if shown.len() < text.trim_end().len() {
            shown.push_str("...");
        }
        TraceError { file: file.to_path_buf(), line, what: format!("expected {expected}, found {shown:?}") }
    }

    /// Returns the line that it is about, from 1, if any.
    pub fn line_number(&self) -> Option<u64> {
        (self.line > 0).then_some(self.line)
    }
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file.display())?;
        if self.line > 0 {
            write!(f, ", line {}", self.line)?;
        }
        write!(f, ": {}", self.what)
    }
}

impl std::error::Error for TraceError {}
