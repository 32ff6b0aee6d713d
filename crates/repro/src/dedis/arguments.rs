//! Load arguments of the command line, shared by `repro workload run` and `repro bench`.

use std::path::PathBuf;

use clap::Args;

use super::BLOCK;
use super::addresses::Pattern;
use super::distribution::Distribution;
use super::load::{Load, Stop};
use sim::disks::spec::size;

/// Directory of the distribution files, relative to the root of the project.
const DIRECTORY: &str = "../shared/data/dedisbench";

/// Arguments that choose the contents.
#[derive(Args, Clone)]
pub struct Contents {
    /// A distribution file of DEDISbench, or NAME for the file dist_NAME in the directory of --data, such as highperf or kernels.
    pub distribution: String,
    /// The directory of distribution files.
    #[arg(long, default_value = DIRECTORY)]
    pub data: PathBuf,
}

impl Contents {
    /// Reads the file.
    pub fn open(&self) -> Result<Distribution, String> {
        Distribution::open(&self.distribution, &self.data)
    }
}

/// Arguments that choose the requests.
#[derive(Args, Clone)]
pub struct Requests {
    /// Addresses of requests: sequential, uniform, hotspot (NURand), zipf or zipf:EXPONENT.
    #[arg(long, default_value = "sequential")]
    pub pattern: Pattern,
    /// Bytes of a request, a multiple of 4K.
    #[arg(long, default_value = "4K", value_parser = whole_blocks)]
    pub request: u64,
    /// Reads of a hundred requests: 0 writes only, 100 reads only.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=100))]
    pub reads: u32,
    /// Workers, each with a region of its own.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=256))]
    pub workers: u64,
    /// Requests a second of all workers together (nominal load). Not given: as many as are answered (peak load).
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub rate: Option<u64>,
    /// Stop after N bytes: a number with K, M, G or T.
    #[arg(long, value_parser = whole_blocks, conflicts_with = "seconds")]
    pub size: Option<u64>,
    /// Stop after N seconds.
    #[arg(long)]
    pub seconds: Option<f64>,
    /// Write every block once before, in order. This is not measured. Reads need it, else they find nothing.
    #[arg(long)]
    pub fill: bool,
    /// Seed of the random numbers.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

impl Requests {
    /// Returns the load of run number `run`, the first being 0. Without an end on the command line it stops after `otherwise` bytes.
    pub fn load(&self, run: u64, otherwise: u64) -> Result<Load, String> {
        let stop = match self.seconds {
            Some(seconds) if !(seconds > 0.0 && seconds <= 1e7) => {
                return Err(format!("--seconds {seconds}: a number above 0, at most 10000000"));
            }
            Some(seconds) => Stop::After((seconds * 1e9) as u64),
            None => Stop::Requests(self.size.unwrap_or(otherwise) / self.request),
        };
        if stop == Stop::Requests(0) {
            return Err("this is less than one request: --size must be at least --request".into());
        }
        Ok(Load {
            pattern: self.pattern,
            request_blocks: self.request / BLOCK,
            reads_percent: self.reads,
            workers: self.workers,
            rate: self.rate,
            stop,
            seed: self.seed.wrapping_add(run),
        })
    }
}

/// Parses a number of bytes that is a multiple of the block size, at least one block and at most 64 TiB.
pub fn whole_blocks(text: &str) -> Result<u64, String> {
    let bytes = size(text)?;
    let is_good = bytes > 0 && bytes.is_multiple_of(BLOCK) && bytes <= 1 << 46;
    is_good.then_some(bytes).ok_or_else(|| format!("'{text}': at least 4K, a multiple of 4K, at most 64T"))
}
