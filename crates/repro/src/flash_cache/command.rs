//! Command `repro flash-reads`: a list of the figures' reads, for programs that are compared with ours, and the results of our policies on them.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use engine::admission::Rules;
use serde::Serialize;

use super::policies::Policy;
use super::workload::{Data, EXTENT, Shape, reads};
use super::{Level, Setup, run as simulate};
use sim::parallel::{cores, in_order};

/// Arguments of `repro flash-reads`.
#[derive(Args)]
pub struct Arguments {
    /// Of the slides' sizes (200 GB of data, 520 GB of reads), one part in N.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    part: u64,
    /// The exponent of Zipf's law.
    #[arg(long, default_value_t = 1.0, value_parser = parse_alpha)]
    alpha: f64,
    /// The cache, in thousandths of the data.
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..=1000))]
    permille: u64,
    /// File of the list: a line for each read, with offset and length in bytes.
    #[arg(long)]
    out: PathBuf,
}

fn parse_alpha(text: &str) -> Result<f64, String> {
    text.parse().ok().filter(|alpha| (0.0..=4.0).contains(alpha)).ok_or("an exponent is a number from 0 to 4".into())
}

/// Report that is printed, as JSON.
#[derive(Serialize)]
struct Said {
    store_bytes: u64,
    cache_bytes: u64,
    reads: u64,
    asked_bytes: u64,
    policies: Vec<Counted>,
}

/// Results of a policy.
#[derive(Serialize)]
struct Counted {
    policy: String,
    hit_bytes: u64,
    written_bytes: u64,
}

/// Writes the list, and prints the figures.
pub fn run(arguments: &Arguments) -> ExitCode {
    match list(arguments) {
        Ok(said) => {
            println!("{said}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{}: {error}", arguments.out.display());
            ExitCode::FAILURE
        }
    }
}

fn list(arguments: &Arguments) -> std::io::Result<String> {
    let part = |bytes| bytes / arguments.part;
    let slides = Shape::SLIDES;
    let read_bytes = part(slides.read_bytes);
    let shape = Shape { bytes: part(slides.bytes), read_bytes, alpha: arguments.alpha, ..slides };
    let data = Data::new(&shape);
    let files = reads(&shape, &data);
    let mut out = BufWriter::new(File::create(&arguments.out)?);
    let (mut count, mut asked_bytes) = (0, 0);
    for piece in files.iter().flat_map(|&file| data.file(file).1) {
        let offset = u64::from(piece.container) * shape.container_bytes + u64::from(piece.first) * EXTENT;
        let length = u64::from(piece.extents) * EXTENT;
        writeln!(out, "{offset} {length}")?;
        (count, asked_bytes) = (count + 1, asked_bytes + length);
    }
    out.flush()?;
    let cache_bytes = shape.bytes * arguments.permille / 1000;
    let setups = [
        ("LRU of extents of 64 KiB", Policy::Lru, Level::Chunks),
        ("LRU of containers", Policy::Lru, Level::Containers),
        ("PLC-Cache", Policy::Plc(Rules::PAPER), Level::Containers),
        ("Onefold", Policy::Plc(Rules::for_drive(cache_bytes)), Level::Containers),
    ];
    let policies = in_order(cores(), setups.len() as u64, |at| {
        let (name, policy, level) = setups[at as usize];
        let setup = Setup { level, ..Setup::new(policy, cache_bytes) };
        let outcome = simulate(&data, &files, &setup).expect("no disks take part");
        Counted { policy: name.into(), hit_bytes: outcome.hit_bytes, written_bytes: outcome.written_bytes }
    });
    let store_bytes = u64::from(data.containers) * shape.container_bytes;
    let said = Said { store_bytes, cache_bytes, reads: count, asked_bytes, policies };
    Ok(serde_json::to_string(&said)?)
}
