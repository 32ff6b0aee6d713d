//! `lab figure`: makes figures of the papers.

use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::{Args, Subcommand};

use super::page::page;
use super::runs::{Stopped, run_all};
use super::sources::{Given, Sources};
use super::verdicts::{json, judge};
use super::{Entry, Made, all};
use crate::parallel::cores;

/// What of `lab figure`.
#[derive(Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Arguments {
    #[command(subcommand)]
    what: Option<What>,
    /// Its name, the beginning of some names, such as 'pod', or 'all'.
    #[arg(required = true)]
    name: Option<String>,
    /// Where NAME.json, NAME.csv, NAME.svg, NAME.png and index.html go.
    #[arg(long, required = true)]
    out: Option<PathBuf>,
    /// Shorter forms: of each trace one day, and then two hours of the next.
    #[arg(long)]
    quick: bool,
    /// A user's own files in place of a stand-in, as `mail=FILE[,FILE...]`: days in order, the last is measured. Also for web-vm and homes.
    #[arg(long = "trace", value_name = "NAME=FILE[,FILE...]")]
    traces: Vec<Given>,
    /// How many replays at once. All cores, if not given.
    #[arg(long)]
    threads: Option<usize>,
}

#[derive(Subcommand)]
enum What {
    /// The figures that there are.
    List,
}

/// Does it.
pub fn run(arguments: Arguments) -> ExitCode {
    let Arguments { what, name, out, quick, traces, threads } = arguments;
    let (Some(name), Some(out), None) = (name, out, what) else {
        for entry in all() {
            println!("{:16} {}", entry.name, entry.about);
        }
        return ExitCode::SUCCESS;
    };
    let wanted: Vec<&Entry> = all().filter(|entry| name == "all" || is_meant(entry.name, &name)).collect();
    if wanted.is_empty() {
        eprintln!("there is no figure {name:?}: 'lab figure list' names them");
        return ExitCode::from(2);
    }
    let sources = match Sources::new(traces) {
        Ok(sources) => sources,
        Err(why) => {
            eprintln!("{why}");
            return ExitCode::from(2);
        }
    };
    if let Err(error) = std::fs::create_dir_all(&out) {
        eprintln!("{} cannot be made: {error}", out.display());
        return ExitCode::FAILURE;
    }
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        if let Err(error) = signal_hook::flag::register(signal, Arc::clone(&stop)) {
            eprintln!("signals cannot be caught: {error}");
        }
    }
    let runs: Vec<_> = wanted.iter().flat_map(|entry| (entry.runs)()).collect();
    let results = match run_all(&runs, &sources, quick, threads.unwrap_or_else(cores).max(1), &stop) {
        Ok(results) => results,
        Err(why) => {
            eprintln!("{why}");
            return if why == Stopped::Interrupted { ExitCode::from(130) } else { ExitCode::FAILURE };
        }
    };
    let made = Made { names: name.clone(), quick, options: options(quick, &sources), commit: commit() };
    let mut figures = Vec::new();
    for entry in wanted {
        let mut figure = (entry.make)(&results);
        if let Err(why) = figure.check() {
            eprintln!("{why}: this is an error of the lab");
            return ExitCode::FAILURE;
        }
        figure.mark(|trace| sources.data(trace));
        figure.tag();
        if let Err(error) = figure.write(&out, &made) {
            eprintln!("{} cannot be written to {}: {error}", figure.name, out.display());
            return ExitCode::FAILURE;
        }
        println!("{:24} {}", figure.name, entry.about);
        figures.push(figure);
    }
    let judgements = judge(&figures);
    let path = out.join("verdicts.json");
    if let Err(error) = std::fs::write(&path, json(&judgements, &made.command(), &made.commit)) {
        eprintln!("{} cannot be written: {error}", path.display());
        return ExitCode::FAILURE;
    }
    for judgement in &judgements {
        println!("{}: {}", judgement.paper.title, judgement.score());
    }
    let path = out.join("index.html");
    if let Err(error) = std::fs::write(&path, page(&figures, &made)) {
        eprintln!("{} cannot be written: {error}", path.display());
        return ExitCode::FAILURE;
    }
    println!("{}", path.display());
    ExitCode::SUCCESS
}

/// What else stood on the command line that changes what comes out.
fn options(quick: bool, sources: &Sources) -> String {
    let mut options = String::from(if quick { " --quick" } else { "" });
    for given in sources.given() {
        let files: Vec<_> = given.files.iter().map(|file| file.display().to_string()).collect();
        options += &format!(" --trace {}={}", given.trace.name(), files.join(","));
    }
    options
}

/// `pod` means all that begin with `pod-`.
fn is_meant(name: &str, text: &str) -> bool {
    name == text || name.strip_prefix(text).is_some_and(|rest| rest.starts_with('-'))
}

/// The commit that is checked out, for who reads the files later.
fn commit() -> String {
    let output = Command::new("git").args(["describe", "--always", "--dirty", "--abbrev=12"]).output();
    let text = output.ok().filter(|output| output.status.success()).map(|output| output.stdout);
    text.and_then(|text| String::from_utf8(text).ok()).map_or("unknown".into(), |text| text.trim().to_string())
}
