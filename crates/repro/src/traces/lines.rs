//! Line reader over several files in a row, plain or gzip. It returns one line at a time, never longer than [`LONGEST`].

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use flate2::bufread::MultiGzDecoder;
use indicatif::{ProgressBar, ProgressStyle};

use super::TraceError;

/// Bytes of the longest line: a record of the FIU format with digests of 16 MiB has 128 KiB.
const LONGEST: usize = 1 << 20;

/// Bytes that are read from a file at once.
const AT_ONCE: usize = 1 << 18;

const GZIP: [u8; 2] = [0x1f, 0x8b];

/// Position in the files, and the line there.
pub(super) struct Lines {
    paths: Vec<PathBuf>,
    /// Index of the file that is read; the number of files at the end.
    file: usize,
    source: Option<Box<dyn BufRead + Send>>,
    line: Vec<u8>,
    number: u64,
    bar: ProgressBar,
}

impl Lines {
    /// Opens these files, which must be there. With `shows`, a bar on standard error counts their bytes, if that is a terminal.
    pub(super) fn open(paths: &[PathBuf], shows: bool) -> Result<Lines, TraceError> {
        let mut bytes = 0;
        for path in paths {
            let metadata = std::fs::metadata(path).map_err(|error| cannot(path, &error))?;
            if metadata.is_dir() {
                return Err(TraceError::file(
                    path,
                    "this is a directory; give the files in it, in the order of their time",
                ));
            }
            bytes += metadata.len();
        }
        let bar = if shows { ProgressBar::new(bytes) } else { ProgressBar::hidden() };
        if let Ok(style) = ProgressStyle::with_template("{msg} {wide_bar} {bytes}/{total_bytes}, {eta} left") {
            bar.set_style(style);
        }
        Ok(Lines { paths: paths.to_vec(), file: 0, source: None, line: Vec::new(), number: 0, bar })
    }

    /// Goes to the next line; false at the end of the last file.
    pub(super) fn advance(&mut self) -> Result<bool, TraceError> {
        loop {
            let Some(path) = self.paths.get(self.file) else {
                self.bar.finish_and_clear();
                return Ok(false);
            };
            let source = match &mut self.source {
                Some(source) => source,
                None => {
                    self.number = 0;
                    self.bar.set_message(path.display().to_string());
                    self.source.insert(open(path, &self.bar)?)
                }
            };
            self.line.clear();
            let most = LONGEST as u64 + 1;
            source.take(most).read_until(b'\n', &mut self.line).map_err(|error| cannot(path, &error))?;
            if self.line.is_empty() {
                self.source = None;
                self.file += 1;
                continue;
            }
            self.number += 1;
            if self.line.len() > LONGEST {
                return Err(TraceError::line(path, self.number, "lines of at most 1 MiB", &self.line));
            }
            return Ok(true);
        }
    }

    /// Returns the line, without its end.
    pub(super) fn line(&self) -> &[u8] {
        let line = self.line.strip_suffix(b"\n").unwrap_or(&self.line);
        line.strip_suffix(b"\r").unwrap_or(line)
    }

    /// Returns the number of the line in its file, from 1.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Returns the index of the present file, from 0.
    pub(super) fn file(&self) -> usize {
        self.file
    }

    /// Creates an error about this line.
    pub(super) fn error(&self, expected: &str) -> TraceError {
        let path = self.paths.get(self.file).map_or(Path::new(""), PathBuf::as_path);
        TraceError::line(path, self.number, expected, &self.line)
    }
}

fn cannot(path: &Path, error: &std::io::Error) -> TraceError {
    TraceError::file(path, format!("cannot be read: {error}"))
}

/// Opens a file; one that begins like gzip is decompressed.
fn open(path: &Path, bar: &ProgressBar) -> Result<Box<dyn BufRead + Send>, TraceError> {
    let file = File::open(path).map_err(|error| cannot(path, &error))?;
    let mut file = BufReader::with_capacity(AT_ONCE, bar.wrap_read(file));
    let begins = file.fill_buf().map_err(|error| cannot(path, &error))?;
    if begins.starts_with(&GZIP) {
        return Ok(Box::new(BufReader::with_capacity(AT_ONCE, MultiGzDecoder::new(file))));
    }
    Ok(Box::new(file))
}
