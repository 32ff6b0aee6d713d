//! Reader that turns lines into requests: one at a time, in time order, with counts of the lines.

use std::path::PathBuf;

use engine::Nanos;

use super::format::Parser;
use super::lines::Lines;
use super::record::{LARGEST, Line, Record};
use super::stat::spread::Spread;
use super::{Format, Request, TraceError};

/// Longest time between two lines of the same request (REFERENCE of the FIU traces: 100 us to 5 ms give nearly the same).
const JOIN: Nanos = 1_000_000;

/// Largest overlap of a file with the file before it: days are cut a little unevenly.
const CUT: Nanos = 1_000_000_000;

/// Treatment of lines that are not of the format.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, clap::ValueEnum)]
pub enum BadLines {
    /// The reading ends with an error.
    #[default]
    Refuse,
    /// It is passed over and counted.
    Count,
}

/// Options of reading.
#[derive(Clone, Debug)]
pub struct Options {
    /// Format of all files; detected from the first file if not given.
    pub format: Option<Format>,
    /// Longest time between two lines of one request, in formats with a line for each 4 KiB. None: every line is a request.
    pub join: Option<Nanos>,
    /// Treatment of lines that are not of the format.
    pub bad_lines: BadLines,
    /// Set if a bar on standard error, if that is a terminal, shows the progress.
    pub progress: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options { format: None, join: Some(JOIN), bad_lines: BadLines::Refuse, progress: false }
    }
}

/// Counts of the files so far.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Lines.
    pub lines: u64,
    /// Lines that are I/Os.
    pub records: u64,
    /// Bytes of these I/Os, as given in the lines: requests are of whole blocks.
    pub bytes: u128,
    /// Lines that belong there, but are no I/O.
    pub other_lines: u64,
    /// Lines that are not of the format.
    pub bad_lines: u64,
    /// I/Os with a time before that of the line before them; they got that line's time.
    pub moved: u64,
    /// I/Os with digests that do not begin and end with blocks: their contents are not known.
    pub unaligned_contents: u64,
    /// Times between I/Os, in ns.
    pub gaps: Spread,
    /// Times between the I/Os of one request, in ns.
    pub joined_gaps: Spread,
}

/// Gives the requests of files.
pub struct Reader {
    lines: Lines,
    parser: Parser,
    join: Option<Nanos>,
    bad_lines: BadLines,
    /// The request that further lines may belong to, and the time of its last line.
    open: Option<(Record, Nanos)>,
    /// The time of the last line, and its file.
    clock: Option<(Nanos, usize)>,
    tally: Tally,
    is_over: bool,
}

/// Opens files, which are read in this order. Requests come in time order: a line that is earlier than the one before gets that one's time, and is counted.
pub fn open(paths: &[PathBuf], options: &Options) -> Result<Reader, TraceError> {
    let lines = Lines::open(paths, options.progress)?;
    let format = match (options.format, paths.first()) {
        (Some(format), _) => format,
        (None, Some(first)) => Format::detect(first)?,
        (None, None) => return Err(TraceError::file("".as_ref(), "no file was given")),
    };
    Ok(Reader {
        lines,
        parser: Parser::new(format),
        join: options.join.filter(|_| format.is_split()),
        bad_lines: options.bad_lines,
        open: None,
        clock: None,
        tally: Tally::default(),
        is_over: false,
    })
}

impl Reader {
    /// Returns the format of the files.
    pub fn format(&self) -> Format {
        self.parser.format
    }

    /// Returns the counts so far.
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Reads the next I/O of the files.
    fn record(&mut self) -> Result<Option<Record>, TraceError> {
        while self.lines.advance()? {
            self.tally.lines += 1;
            match self.parser.line(self.lines.line(), self.lines.number()) {
                Ok(Line::Record(record)) => return self.in_time(record).map(Some),
                Ok(Line::Other) => self.tally.other_lines += 1,
                Err(_) if self.bad_lines == BadLines::Count => self.tally.bad_lines += 1,
                Err(expected) => return Err(self.lines.error(expected)),
            }
        }
        Ok(None)
    }

    fn in_time(&mut self, mut record: Record) -> Result<Record, TraceError> {
        let file = self.lines.file();
        if let Some((last, of)) = self.clock {
            if record.at < last {
                if file != of && last - record.at > CUT {
                    return Err(self
                        .lines
                        .error("a time after the end of the file before: files go in the order of their time"));
                }
                self.tally.moved += 1;
                record.at = last;
            }
            self.tally.gaps.add(record.at - last);
        }
        self.clock = Some((record.at, file));
        self.tally.records += 1;
        self.tally.bytes += u128::from(record.bytes);
        self.tally.unaligned_contents += u64::from(!record.contents.is_empty() && !record.is_aligned());
        Ok(record)
    }

    /// Reads the next request: I/Os of one process that follow each other in time and place are one.
    fn request(&mut self) -> Result<Option<Request>, TraceError> {
        loop {
            let record = self.record()?;
            let Some(limit) = self.join else {
                return Ok(record.map(Record::request));
            };
            match (self.open.take(), record) {
                (open, None) => return Ok(open.map(|(record, _)| record.request())),
                (None, Some(record)) => {
                    let at = record.at;
                    self.open = Some((record, at));
                }
                (Some((mut whole, last)), Some(record)) => {
                    let at = record.at;
                    if !continues(&whole, &record) || at - last > limit {
                        self.open = Some((record, at));
                        return Ok(Some(whole.request()));
                    }
                    self.tally.joined_gaps.add(at - last);
                    whole.bytes += record.bytes;
                    whole.contents.extend(record.contents);
                    self.open = Some((whole, at));
                }
            }
        }
    }
}

fn continues(whole: &Record, record: &Record) -> bool {
    whole.process == record.process
        && whole.writes == record.writes
        && whole.offset + whole.bytes == record.offset
        && whole.bytes + record.bytes <= LARGEST
}

impl Iterator for Reader {
    type Item = Result<Request, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_over {
            return None;
        }
        let request = self.request().transpose();
        self.is_over = !matches!(request, Some(Ok(_)));
        request
    }
}
