//! Command `repro figure`: makes figures of the papers.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::{Args, Subcommand};

use super::claims::PAPERS;
use super::page::page;
use super::runs::{Stopped, run_all};
use super::sources::{Given, Sources};
use super::verdicts::{json, judge};
use super::{Entry, Figure, Made, all, recorded};
use sim::parallel::cores;

/// Arguments of `repro figure`.
#[derive(Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Arguments {
    #[command(subcommand)]
    list: Option<Listing>,
    /// Figures, each by its name; a paper's by the paper's name, such as 'pod'; or 'all'.
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,
    /// Folder of NAME.json, NAME.csv, NAME.svg, NAME.png, index.html, verdicts.json and verdicts.csv.
    #[arg(long, required = true)]
    out: Option<PathBuf>,
    /// Shorter forms: of each trace one day, and then two hours of the next.
    #[arg(long)]
    quick: bool,
    /// A user's own files in place of a stand-in, as `mail=FILE[,FILE...]`: days in order, the last is measured. Also for web-vm and homes.
    #[arg(long = "trace", value_name = "NAME=FILE[,FILE...]")]
    traces: Vec<Given>,
    /// Compares the verdicts with a list, exactly: fails and says what moved.
    #[arg(long, value_name = "FILE")]
    compare: Option<PathBuf>,
    /// Records the verdicts in a list; lines of figures that were not made stay as they are.
    #[arg(long, value_name = "FILE")]
    verdicts: Option<PathBuf>,
    /// Number of replays at once [default: one for each core].
    #[arg(long)]
    threads: Option<usize>,
}

#[derive(Subcommand)]
enum Listing {
    /// The figures that there are.
    List,
}

/// Executes `repro figure`.
pub fn run(arguments: Arguments) -> ExitCode {
    let Arguments { list: None, out: Some(out), ref names, .. } = arguments else {
        for entry in all() {
            println!("{:24} {}", entry.name, entry.about);
        }
        return ExitCode::SUCCESS;
    };
    let wanted = match wanted(names) {
        Ok(wanted) => wanted,
        Err(why) => {
            eprintln!("{why}");
            return ExitCode::from(2);
        }
    };
    let sources = match Sources::new(arguments.traces) {
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
    let quick = arguments.quick;
    let runs: Vec<_> = wanted.iter().flat_map(|entry| (entry.runs)()).collect();
    let results = match run_all(&runs, &sources, quick, arguments.threads.unwrap_or_else(cores).max(1), &stop) {
        Ok(results) => results,
        Err(why) => {
            eprintln!("{why}");
            return if why == Stopped::Interrupted { ExitCode::from(130) } else { ExitCode::FAILURE };
        }
    };
    let made = Made { names: names.join(" "), quick, options: options(quick, &sources), commit: commit() };
    let mut figures = Vec::new();
    for entry in wanted {
        let mut figure = (entry.make)(&results);
        if let Err(why) = figure.check() {
            eprintln!("{why}: this is a bug of this program");
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
    let lists = Lists { compared: arguments.compare, recorded: arguments.verdicts };
    match finish(&figures, &out, &made, &lists) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

/// Finds the named figures: each exactly, all of a paper, or all. An unknown name is an error.
fn wanted(names: &[String]) -> Result<Vec<&'static Entry>, String> {
    let is_meant = |entry: &Entry, name: &str| {
        name == "all" || entry.name == name || PAPERS.iter().any(|paper| paper.name == name && paper.has(entry.name))
    };
    if let Some(unknown) = names.iter().find(|name| !all().any(|entry| is_meant(entry, name))) {
        let known: Vec<&str> = PAPERS.iter().map(|paper| paper.name).chain(all().map(|entry| entry.name)).collect();
        return Err(format!("there is no figure {unknown:?}. There are: all, {}", known.join(", ")));
    }
    Ok(all().filter(|entry| names.iter().any(|name| is_meant(entry, name))).collect())
}

/// Lists of verdicts on the command line.
struct Lists {
    compared: Option<PathBuf>,
    recorded: Option<PathBuf>,
}

/// Writes the files common to all figures, prints the scores, and compares.
fn finish(figures: &[Figure], out: &Path, made: &Made, lists: &Lists) -> Result<(), String> {
    let judgements = judge(figures);
    let (names, lines) = (figures.iter().map(|figure| figure.name).collect::<Vec<_>>(), recorded::lines(&judgements));
    let write = |name: &str, text: &str| {
        let path = out.join(name);
        std::fs::write(&path, text).map_err(|error| format!("{} cannot be written: {error}", path.display()))
    };
    write("index.html", &page(figures, made))?;
    write("verdicts.json", &json(&judgements, &made.command(), &made.commit))?;
    // An earlier command's list of other figures is not kept.
    let path = out.join("verdicts.csv");
    if path.exists() {
        std::fs::remove_file(&path).map_err(|error| format!("{} cannot be replaced: {error}", path.display()))?;
    }
    recorded::write(&path, &lines, &names)?;
    println!();
    for judgement in &judgements {
        println!("{}: {}", judgement.paper.title, judgement.score());
    }
    println!("{}", out.join("index.html").display());
    if let Some(path) = &lists.recorded {
        recorded::write(path, &lines, &names)?;
    }
    let Some(path) = &lists.compared else { return Ok(()) };
    let (moved, left_out) = recorded::compare(&recorded::read(path)?, &lines, &names);
    if left_out > 0 {
        println!("{left_out} claims have other data here than in {}: not compared", path.display());
    }
    if moved.is_empty() {
        return Ok(());
    }
    Err(format!(
        "{}\nverdicts differ from {}. If that is meant, record them: {} --verdicts {}",
        moved.join("\n"),
        path.display(),
        made.command(),
        path.display()
    ))
}

/// Formats the other options of the command line that change the results.
fn options(quick: bool, sources: &Sources) -> String {
    let mut options = String::from(if quick { " --quick" } else { "" });
    for given in sources.given() {
        let files: Vec<_> = given.files.iter().map(|file| file.display().to_string()).collect();
        options += &format!(" --trace {}={}", given.trace.name(), files.join(","));
    }
    options
}

/// Returns the commit that is checked out, for later readers of the files; "unknown" without git.
fn commit() -> String {
    let output = Command::new("git").args(["describe", "--always", "--dirty", "--abbrev=12"]).output();
    let text = output.ok().filter(|output| output.status.success()).map(|output| output.stdout);
    text.and_then(|text| String::from_utf8(text).ok()).map_or("unknown".into(), |text| text.trim().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_means_that_figure_and_a_paper_all_of_its_figures() {
        let names = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| name.to_string()).collect();
            wanted(&names).map(|wanted| wanted.iter().map(|entry| entry.name).collect::<Vec<_>>())
        };
        assert_eq!(names(&["hiods-mountain"]), Ok(vec!["hiods-mountain"]));
        assert_eq!(names(&["pod-12b", "pod-1"]), Ok(vec!["pod-1", "pod-12b"]));
        assert!(
            names(&["pod"]).is_ok_and(|names| names.len() > 20 && names.iter().all(|name| name.starts_with("pod-")))
        );
        assert_eq!(names(&["all"]).map(|names| names.len()), Ok(all().count()));
        assert!(names(&["pod-14"]).is_err_and(|why| why.contains("pod-14-mail") && why.contains("rededup")));
    }
}
