//! Command `repro trace`: statistics of traces, and synthetic traces.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};

use super::stat::{Stat, report};
use super::synthetic::{self, Profile, targets};
use super::{BadLines, Format, Options, open};

/// The real traces have three weeks.
const LAST_DAY: u32 = 21;

/// Arguments of `repro trace`.
#[derive(Args)]
pub struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Contents of a trace: requests, sizes, redundancy, working sets, bursts.
    Stat {
        /// Files of one trace, such as its days, in the order of their time; also .gz.
        #[arg(required = true)]
        files: Vec<PathBuf>,
        #[command(flatten)]
        reading: Reading,
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
    /// Writes a made trace that stands in for one of FIU, in FIU's format: docs/papers/data.md describes it, and is not.
    Synth {
        /// For which.
        profile: Profile,
        /// Days: 15, or 1-15. The last of 15 is the one that is measured, those before it warm up.
        #[arg(long, default_value = "1-15", value_parser = parse_days)]
        days: (u32, u32),
        /// Seed of the random numbers.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// A file for all of it; or a directory, which must be there, for a file a day.
        #[arg(long)]
        out: PathBuf,
        /// As gzip.
        #[arg(long)]
        gz: bool,
    },
    /// Published figures of a trace of FIU, and those of the made one: both, side by side.
    Targets {
        /// Of which.
        profile: Profile,
        /// Seed of the random numbers.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Days with one request in N: nearly the same shares in as much less time.
        #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1000))]
        one_in: u64,
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
}

fn parse_days(text: &str) -> Result<(u32, u32), String> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let days = first.parse().ok().zip(last.parse().ok());
    let is_right = |&(first, last): &(u32, u32)| 1 <= first && first <= last && last <= LAST_DAY;
    days.filter(is_right).ok_or(format!("days are N or N-M, from 1 to {LAST_DAY}"))
}

/// Arguments for the reading of trace files.
#[derive(Args)]
pub struct Reading {
    /// The format of the files; told from their first lines if not given.
    #[arg(long)]
    format: Option<Format>,
    /// FIU: lines of one process that follow each other within N microseconds, and in place, are one request.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(..=3_600_000_000))]
    join_us: u64,
    /// FIU: every line is a request.
    #[arg(long)]
    no_join: bool,
    /// Treatment of lines that are not of the format.
    #[arg(long, value_enum, default_value_t)]
    bad_lines: BadLines,
}

impl Reading {
    /// Converts the arguments to options for [`open`].
    pub fn options(&self) -> Options {
        let join = (!self.no_join).then_some(self.join_us * 1000);
        Options { format: self.format, join, bad_lines: self.bad_lines, progress: true }
    }
}

/// Executes `repro trace`.
pub fn run(arguments: &Arguments) -> ExitCode {
    let result = match &arguments.what {
        What::Stat { files, reading, json } => stat(files, &reading.options(), *json),
        What::Synth { profile, days: (first, last), seed, out, gz } => {
            let files = synthetic::write_files(*profile, *seed, *first..=*last, out, *gz);
            files
                .map(|files| files.iter().map(|file| format!("{}\n", file.display())).collect())
                .map_err(|error| format!("{}: cannot be written: {error}", out.display()))
        }
        What::Targets { profile, seed, one_in, json } => {
            let report = targets::measure(*profile, *seed, *one_in);
            if *json { as_json(&report) } else { Ok(targets::table(&report)) }
        }
    };
    match result {
        // A reader may close the pipe early. Then no output can be printed.
        Ok(text) => match std::io::stdout().write_all(text.as_bytes()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE,
        },
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn stat(files: &[PathBuf], options: &Options, json: bool) -> Result<String, String> {
    let mut reader = open(files, options).map_err(|error| error.to_string())?;
    let mut stat = Stat::default();
    for request in &mut reader {
        stat.add(&request.map_err(|error| format!("{error}\nto pass over such lines: --bad-lines count"))?);
    }
    let figures = stat.finish(Some(reader.tally()));
    if json {
        return as_json(&figures);
    }
    Ok(format!("{:<34} {}\n{}", "format", reader.format().name(), report::text(&figures)))
}

fn as_json(value: &impl serde::Serialize) -> Result<String, String> {
    serde_json::to_string_pretty(value).map(|text| text + "\n").map_err(|error| error.to_string())
}
