//! Command `repro picture`: charts of the guides, made from recorded results.
//!
//! A chart reads figures of `bench/results/*.jsonl` by subject and name, and verdicts of the papers. It measures nothing. A figure that is not recorded is an
//! error. `docs/pictures` has the charts; a test compares them with the results.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use serde::Deserialize;

use super::plot::{Bars, Chart};

/// Arguments of `repro picture`. The usual paths are relative to the root of the project.
#[derive(Args)]
pub struct Arguments {
    /// Folder of the pictures: savings.svg and speed.svg.
    #[arg(long)]
    out: PathBuf,
    /// Folder of recorded results, a file of JSON lines for each month.
    #[arg(long, default_value = "bench/results")]
    results: PathBuf,
    /// List of verdicts on the papers.
    #[arg(long, default_value = "docs/papers/figures/verdicts.csv")]
    verdicts: PathBuf,
}

/// Executes `repro picture`.
pub fn run(arguments: Arguments) -> ExitCode {
    match write(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn write(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let recorded = Recorded::read(&arguments.results, &arguments.verdicts)?;
    std::fs::create_dir_all(&arguments.out)?;
    for (name, chart) in [("savings", savings(&recorded)?), ("speed", speed(&recorded)?)] {
        let path = arguments.out.join(format!("{name}.svg"));
        std::fs::write(&path, chart.svg()).map_err(|error| format!("{} cannot be written: {error}", path.display()))?;
        println!("{}", path.display());
    }
    Ok(())
}

/// Recorded figures: of two with the same name the later one.
struct Recorded {
    /// By subject and name.
    results: BTreeMap<(String, String), ResultValue>,
    /// By claim.
    verdicts: BTreeMap<String, ClaimValues>,
}

/// Value with its unit, minimum and maximum.
struct ResultValue {
    value: f64,
    unit: String,
    spread: (f64, f64),
}

/// Part of a JSON line that a chart needs.
#[derive(Deserialize)]
struct ResultLine {
    subject: String,
    figure: String,
    value: serde_json::Value,
    unit: String,
    #[serde(default)]
    spread: serde_json::Value,
}

/// Part of a verdict that a chart needs.
#[derive(Deserialize)]
struct ClaimValues {
    claim: String,
    paper: Option<f64>,
    ours: Option<f64>,
}

impl Recorded {
    fn read(folder: &Path, verdicts: &Path) -> Result<Recorded, Box<dyn Error>> {
        let named = |path: &Path, error: &dyn Error| format!("{} cannot be read: {error}", path.display());
        let mut files = Vec::new();
        for entry in std::fs::read_dir(folder).map_err(|error| named(folder, &error))? {
            files.push(entry?.path());
        }
        files.retain(|path| path.extension().is_some_and(|extension| extension == "jsonl"));
        files.sort();
        let mut results = BTreeMap::new();
        for path in files {
            for line in std::fs::read_to_string(&path).map_err(|error| named(&path, &error))?.lines() {
                let line: ResultLine = serde_json::from_str(line).map_err(|error| named(&path, &error))?;
                let Some(value) = line.value.as_f64() else { continue };
                let end = |at: usize| line.spread.get(at).and_then(serde_json::Value::as_f64).unwrap_or(value);
                let measured = ResultValue { value, unit: line.unit, spread: (end(0), end(1)) };
                results.insert((line.subject, line.figure), measured);
            }
        }
        let mut list = csv::Reader::from_path(verdicts).map_err(|error| named(verdicts, &error))?;
        let verdicts: Result<Vec<ClaimValues>, csv::Error> = list.deserialize().collect();
        let verdicts = verdicts?.into_iter().map(|verdict| (verdict.claim.clone(), verdict)).collect();
        Ok(Recorded { results, verdicts })
    }

    /// Returns a figure; an error if it is not recorded in this unit.
    fn figure(&self, subject: &str, figure: &str, unit: &str) -> Result<&ResultValue, String> {
        let key = (subject.to_string(), figure.to_string());
        let found = self.results.get(&key).filter(|measured| measured.unit == unit);
        found.ok_or_else(|| format!("no result in '{unit}' is recorded for '{subject}', '{figure}'"))
    }

    /// Returns the paper's value and ours for a claim.
    fn verdict(&self, claim: &str) -> Result<(f64, f64), String> {
        let found = self.verdicts.get(claim).and_then(|verdict| Some((verdict.paper?, verdict.ours?)));
        found.ok_or_else(|| format!("no values are recorded for the claim '{claim}'"))
    }
}

/// Makes the chart of the space saved, in % of the data: by content and policy, and for the contents of which HIODS' paper states a saving.
fn savings(recorded: &Recorded) -> Result<Chart, String> {
    const SUBJECT: &str = "space saved by content and policy";
    /// Data of the paper's loads, in the unit of its savings.
    const DATA: f64 = 64.0;
    let contents = [
        "programs, /usr/bin",
        "libraries, /usr/lib/x86_64-linux-gnu",
        "data of packages, /usr/share",
        "headers, /usr/include",
        "two disk images with the same files, /usr/share",
    ];
    let published = ["highperf", "kernels"];
    let nothing = || published.map(|_| f64::NAN);
    let (mut full, mut papers) = (Vec::new(), vec![None; contents.len()]);
    for name in published {
        let (paper, ours) = recorded.verdict(&format!("hiods-store-device/space-{name}"))?;
        papers.push(Some(100.0 * paper / DATA));
        full.push(100.0 * ours / DATA);
    }
    let of = |policy: &str| -> Result<Vec<f64>, String> {
        let value = |name| Ok(recorded.figure(SUBJECT, &format!("{name}: {policy}"), "% of the data")?.value);
        contents.into_iter().map(value).collect()
    };
    let series = vec![
        Bars::new("full", [of("full")?, full].concat()).papers(papers),
        Bars::new("select (default)", [of("select")?, nothing().to_vec()].concat()),
        Bars::new("idedup", [of("idedup")?, nothing().to_vec()].concat()),
    ];
    let groups = contents.map(String::from).into_iter();
    let groups = groups.chain(published.map(|name| format!("contents of DEDISbench, '{name}'"))).collect();
    Ok(Chart::bars("Space saved by content and policy", "% of the data", groups, series).range_y(0.0, 80.0))
}

/// Makes the chart of the speed beside nbdkit and qemu-nbd, as parts of the faster of both. They do not deduplicate: only Onefold writes duplicates.
fn speed(recorded: &Recorded) -> Result<Chart, String> {
    const SUBJECT: &str = "beside other servers, full size";
    const OTHERS: [&str; 2] = ["nbdkit", "qemu-nbd"];
    // Label, recorded name, and that of the same job with 75 % duplicates.
    let jobs = [
        ("sequential read, 128 KiB", "sequential read, 128K", ""),
        ("the same after random overwrites", "aged: sequential read, 128K", ""),
        ("random read, 4 KiB", "random read, 4K, depth 1", ""),
        ("random read, 4 KiB, 32 at a time", "random read, 4K, depth 32", ""),
        ("70 % reads, 4 KiB, 32 at a time", "random, 70 % reads, 4K, depth 32", ""),
        ("sequential write, 128 KiB", "sequential write, 128K", "75 %"),
        ("random write, 4 KiB", "random write, 4K, depth 1", "75 %"),
        ("random write, 4 KiB, 32 at a time", "random write, 4K, depth 32", "75 %"),
        ("random write, 4 KiB, a flush each", "random write, 4K, a flush each", "75 %"),
        ("32 at a time, a flush for each 32", "random write, 4K, depth 32, a flush per 32", "75 %"),
    ];
    let servers = [
        ("Onefold", "onefold", 0),
        (OTHERS[0], OTHERS[0], 4),
        (OTHERS[1], OTHERS[1], 6),
        ("Onefold, 75 % duplicates", "onefold", 2),
    ];
    let mut series = Vec::new();
    for (name, server, colour) in servers {
        let (mut heights, mut spread) = (Vec::new(), Vec::new());
        for (_, job, duplicates) in jobs {
            let figure = match (name.contains("75 %"), duplicates) {
                (false, _) => format!("{job}: {server}"),
                (true, "") => {
                    heights.push(f64::NAN);
                    spread.push((f64::NAN, f64::NAN));
                    continue;
                }
                (true, part) => format!("{job}, {part}: {server}"),
            };
            let mut faster: f64 = 0.0;
            for other in OTHERS {
                faster = faster.max(recorded.figure(SUBJECT, &format!("{job}: {other}"), "1/s")?.value);
            }
            let measured = recorded.figure(SUBJECT, &figure, "1/s")?;
            heights.push(measured.value / faster);
            spread.push((measured.spread.0 / faster, measured.spread.1 / faster));
        }
        series.push(Bars::new(name, heights).colour(colour).spread(spread));
    }
    let groups = jobs.map(|(label, _, _)| label.to_string()).to_vec();
    let title = "Operations a second beside nbdkit and qemu-nbd: medians of five rounds, minimum to maximum";
    Ok(Chart::bars(title, "1: the faster of nbdkit and qemu-nbd", groups, series))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_guides_have_the_pictures_of_the_recorded_results() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let verdicts = root.join("docs/papers/figures/verdicts.csv");
        let recorded = Recorded::read(&root.join("bench/results"), &verdicts).unwrap();
        for (name, chart) in [("savings", savings(&recorded)), ("speed", speed(&recorded))] {
            let path = root.join("docs/pictures").join(format!("{name}.svg"));
            let there = std::fs::read_to_string(&path).unwrap_or_default();
            assert!(there == chart.unwrap().svg(), "{name}.svg: `repro picture --out docs/pictures` makes another one");
        }
    }

    #[test]
    fn a_figure_that_is_not_recorded_is_named() {
        let recorded = Recorded { results: BTreeMap::new(), verdicts: BTreeMap::new() };
        let error = speed(&recorded).unwrap_err();
        assert!(error.contains("'beside other servers, full size', 'sequential read, 128K: nbdkit'"), "{error}");
    }
}
