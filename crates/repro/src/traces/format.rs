//! File formats of traces, and the detection of a file's format.

use std::path::PathBuf;

use clap::ValueEnum;
use engine::Nanos;

use super::lines::Lines;
use super::record::{Line, Parsed};
use super::{TraceError, blkparse, cloudphysics, disksim, fiu, mqsim, msr};

/// Number of lines at the beginning of a file that decide its format.
const LOOKED_AT: usize = 20;

/// Format of a trace file: each is described in its own file beside this one, and in docs/papers/data.md.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Format {
    /// FIU's text with digests of 4 KiB or 512 bytes; also separated by tabs.
    Fiu,
    /// CSV of Microsoft Research, Cambridge.
    Msr,
    /// CSV of CloudPhysics' virtual machines.
    #[value(name = "cloudphysics")]
    CloudPhysics,
    /// Text of MQSim.
    #[value(name = "mqsim")]
    MqSim,
    /// Default output of blkparse.
    Blkparse,
    /// DiskSim's ASCII, or its measured requests.
    #[value(name = "disksim")]
    DiskSim,
}

impl Format {
    /// Returns the name that `--format` takes.
    pub fn name(self) -> &'static str {
        match self {
            Format::Fiu => "fiu",
            Format::Msr => "msr",
            Format::CloudPhysics => "cloudphysics",
            Format::MqSim => "mqsim",
            Format::Blkparse => "blkparse",
            Format::DiskSim => "disksim",
        }
    }

    /// Returns true if one request is several lines, one for each 4 KiB.
    pub(super) fn is_split(self) -> bool {
        self == Format::Fiu
    }

    /// Detects the format of a file by its first lines: the one in which most of them are requests.
    pub(super) fn detect(path: &PathBuf) -> Result<Format, TraceError> {
        let mut lines = Lines::open(std::slice::from_ref(path), false)?;
        let formats = Format::value_variants();
        let mut parsers: Vec<(Parser, usize)> = formats.iter().map(|&format| (Parser::new(format), 0)).collect();
        for _ in 0..LOOKED_AT {
            if !lines.advance()? {
                break;
            }
            for (parser, records) in &mut parsers {
                *records += usize::from(matches!(parser.line(lines.line(), lines.number()), Ok(Line::Record(_))));
            }
        }
        // A tie goes to the first: a file of MQSim could be one of DiskSim whose times are whole milliseconds.
        let most = parsers.iter().map(|(_, records)| *records).max().unwrap_or(0);
        match parsers.iter().find(|(_, records)| *records == most && most > 0) {
            Some((parser, _)) => Ok(parser.format),
            None => Err(TraceError::file(
                path,
                "its first lines are of no known format; say which with --format fiu, msr, cloudphysics, mqsim, blkparse or disksim",
            )),
        }
    }
}

/// Parser of the lines of one trace format, to be given in the order of the file: times of DiskSim's format follow from the lines before.
pub(super) struct Parser {
    pub(super) format: Format,
    /// Time of the next measured request of a drive.
    clock: Nanos,
}

impl Parser {
    pub(super) fn new(format: Format) -> Parser {
        Parser { format, clock: 0 }
    }

    /// Parses the line of this number in its file; an empty one is no record.
    pub(super) fn line(&mut self, line: &[u8], number: u64) -> Parsed {
        let text = std::str::from_utf8(line).map_err(|_| "text in UTF-8")?;
        if text.trim().is_empty() {
            return Ok(Line::Other);
        }
        match self.format {
            Format::Fiu => fiu::line(text, number == 1),
            Format::Msr => msr::line(text, number == 1),
            Format::CloudPhysics => cloudphysics::line(text, number == 1),
            Format::MqSim => mqsim::line(text),
            Format::Blkparse => blkparse::line(text),
            Format::DiskSim => disksim::line(text, &mut self.clock),
        }
    }
}
