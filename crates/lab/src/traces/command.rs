//! `lab trace`: what is in a trace.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};

use super::stat::{Stat, report};
use super::{BadLines, Format, Options, open};

/// What of `lab trace`.
#[derive(Args)]
pub struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// What is in a trace: requests, sizes, redundancy, working sets, bursts.
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
}

#[derive(Args)]
struct Reading {
    /// The format of the files; told from their first lines if not given.
    #[arg(long)]
    format: Option<Format>,
    /// FIU: lines of one process that follow each other within so many microseconds, and in place, are one request.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(..=3_600_000_000))]
    join_us: u64,
    /// FIU: every line is a request.
    #[arg(long)]
    no_join: bool,
    /// What to do with lines that are not of the format.
    #[arg(long, value_enum, default_value_t)]
    bad_lines: BadLines,
}

impl Reading {
    fn options(&self) -> Options {
        let join = (!self.no_join).then_some(self.join_us * 1000);
        Options { format: self.format, join, bad_lines: self.bad_lines, progress: true }
    }
}

/// Does it.
pub fn run(arguments: &Arguments) -> ExitCode {
    let result = match &arguments.what {
        What::Stat { files, reading, json } => stat(files, &reading.options(), *json),
    };
    match result {
        Ok(text) => {
            print!("{text}");
            ExitCode::SUCCESS
        }
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
        return serde_json::to_string_pretty(&figures).map(|text| text + "\n").map_err(|error| error.to_string());
    }
    Ok(format!("{:<34} {}\n{}", "format", reader.format().name(), report::text(&figures)))
}
