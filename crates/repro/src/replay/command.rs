//! Command `repro replay`: replays a trace under a scheme, on disk models.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use engine::policy::IndexCopy;
use serde::Serialize;

use super::driver::{Fold, Replay, Setup, Submitters};
use super::in_place::{InPlace, Layout, Warm};
use super::outcome::{Outcome, Times};
use super::scheme::{PartitionMode, Scheme};
use crate::figures::runs::paper_memory;
use crate::figures::sources::{DAY, SEED};
use crate::traces::command::Reading;
use crate::traces::synthetic::{self, Profile};
use crate::traces::{self, BLOCK, Request};
use sim::disks::spec::size;
use sim::disks::{Disk, power};

/// Arguments of `repro replay`: the trace, the scheme and the disks.
#[derive(Args)]
pub struct Arguments {
    /// Files of the trace, such as its days, in the order of their time; also .gz. With a preset and no file: its stand-in.
    #[arg(required_unless_present = "preset")]
    files: Vec<PathBuf>,
    /// Files of the days before: contents and index are as after them. With a preset and no file: days 1 to 14 of its stand-in.
    #[arg(long, value_delimiter = ',')]
    warm: Vec<PathBuf>,
    /// The paper's values for a trace: memory, disks, division.
    #[arg(long, value_enum)]
    preset: Option<Preset>,
    /// Scheme of a paper: native, native-half, native-uncached, full, full-bare, full-filter, full-free, idedup-2, idedup, idedup-8, select, select-count,
    /// select-above, pod or curves (select with the engine's own iCache).
    #[arg(long, default_value = "select")]
    scheme: Scheme,
    /// The disk, or each disk of an array: docs/internals/simulated-disks.md has the names.
    #[arg(long, default_value = "hdd:wd1600aajs,write-cache=off")]
    disk: String,
    /// Number of disks in a RAID5.
    #[arg(long, value_parser = clap::value_parser!(u64).range(3..=64))]
    raid5: Option<u64>,
    /// Of the RAID5: how much is on one disk before the next one's turn, a number with K or M.
    #[arg(long, default_value = "64K", value_parser = size)]
    stripe_unit: u64,
    /// Memory of the index and the read cache together: a number with K, M or G, at most 8G.
    #[arg(long, value_parser = parse_memory)]
    memory: Option<u64>,
    /// Part of it that is always index, in percent; else as the scheme has it.
    #[arg(long, value_parser = clap::value_parser!(u32).range(0..=100))]
    partition: Option<u32>,
    /// Copy that the index names, where a known block is written again: oldest, as POD's section 3.3, sequential or newest.
    #[arg(long, default_value = "oldest")]
    index_copy: IndexCopy,
    /// Submit from one thread, which sleeps while md has no space for a write; else one for each request.
    #[arg(long)]
    one_submitter: bool,
    /// Factor of the pace, against that of the trace.
    #[arg(long, default_value_t = 1.0)]
    speed: f64,
    /// Time of the processor for the digest of a block, in microseconds.
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u64).range(0..=1_000_000))]
    digest_us: u64,
    /// Addresses that the disks do not have: moved together, else they begin again at the front.
    #[arg(long)]
    squeeze: bool,
    #[command(flatten)]
    reading: Reading,
    /// As JSON.
    #[arg(long)]
    json: bool,
}

/// The values of POD, section 4.1: 100 or 500 MB, a RAID5 of four disks with a stripe unit of 64 KiB, half of the memory index.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
#[expect(
    clippy::enum_variant_names,
    reason = "the names of the command line, where other papers' presets will stand beside them"
)]
enum Preset {
    PodWebVm,
    PodHomes,
    PodMail,
}

impl Preset {
    fn profile(self) -> Profile {
        match self {
            Preset::PodWebVm => Profile::WebVm,
            Preset::PodHomes => Profile::Homes,
            Preset::PodMail => Profile::Mail,
        }
    }
}

/// Parses a size of at most 8 GiB. iCache's ghosts cover all of the memory and are made at once: a larger size would take much of this machine's memory.
fn parse_memory(text: &str) -> Result<u64, String> {
    let most = 8 << 30;
    size(text).and_then(|bytes| if bytes <= most { Ok(bytes) } else { Err("8G at most".into()) })
}

/// Executes `repro replay`, and prints the report as text or JSON.
pub fn run(arguments: &Arguments) -> ExitCode {
    match replay(arguments) {
        Ok((report, outcome)) => {
            let text = match arguments.json {
                true => serde_json::to_string_pretty(&report).expect("a report is plain data") + "\n",
                false => text(&report, &outcome),
            };
            // The reader may have closed the pipe early.
            let _ = std::io::stdout().write_all(text.as_bytes());
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn replay(arguments: &Arguments) -> Result<(Report, Outcome), String> {
    if !(arguments.speed > 0.0 && arguments.speed <= 1e6) {
        return Err("the speed is a number from 0.001 to 1000000".into());
    }
    let profile = arguments.preset.map(Preset::profile);
    let memory = arguments.memory.or(profile.map(paper_memory)).unwrap_or(500 << 20);
    let members = arguments.raid5.or(profile.map(|_| 4));
    let spec = match members {
        Some(members) => format!("raid5:{members}:{}:{}", arguments.stripe_unit, arguments.disk),
        None => arguments.disk.clone(),
    };
    let mut disk = Disk::from_spec(&spec)?;
    let mut scheme = Scheme { index_copy: arguments.index_copy, ..arguments.scheme };
    if let Some(percent) = arguments.partition {
        scheme.partition = PartitionMode::Fixed(10 * percent);
    }
    let layout = Layout::of(disk.capacity() / BLOCK, memory);
    let mut start = Warm::new(layout.data, memory);
    let fold = match (arguments.squeeze, profile, arguments.files.is_empty()) {
        (false, ..) => Fold::Wrap,
        (true, Some(profile), true) => Fold::Squeeze { span: synthetic::span(profile) },
        (true, ..) => Fold::Squeeze { span: span(arguments)? },
    };
    for request in before(arguments, profile)? {
        let mut request = request?;
        fold.fold(&mut request, layout.data);
        start.request(&request);
    }
    let mut in_place = InPlace::new(scheme, layout, memory, &start);
    drop(start);
    let setup = Setup {
        digest: arguments.digest_us * 1000,
        speed: (arguments.speed * 1000.0).round().max(1.0) as u64,
        fold,
        submitters: if arguments.one_submitter { Submitters::One } else { Submitters::Many },
        ..Setup::default()
    };
    let outcome = Replay::new(&mut in_place, layout, &mut disk, setup).run(measured(arguments, profile)?)?;
    let energy =
        power_of(&arguments.disk).map(|power| power::joules(power, &outcome.disk, members.unwrap_or(1), outcome.end));
    Ok((Report::of(&outcome, scheme, memory, in_place.index_share(), energy), outcome))
}

/// Returns the power model for a disk with this name: that of the HDD or of the SSD, if it names either.
fn power_of(spec: &str) -> Option<power::Power> {
    let is = |kind: &str| spec.split([':', ',']).any(|word| word == kind);
    match (is("hdd"), is("ssd") || is("flash")) {
        (true, _) => Some(power::HDD),
        (_, true) => Some(power::SSD),
        _ => None,
    }
}

type Requests = Box<dyn Iterator<Item = Result<Request, String>>>;

fn measured(arguments: &Arguments, profile: Option<Profile>) -> Result<Requests, String> {
    match profile {
        Some(profile) if arguments.files.is_empty() => Ok(Box::new(synthetic::day(profile, SEED, DAY).map(Ok))),
        _ => read(&arguments.files, &arguments.reading),
    }
}

fn before(arguments: &Arguments, profile: Option<Profile>) -> Result<Requests, String> {
    match profile {
        Some(profile) if arguments.files.is_empty() && arguments.warm.is_empty() => {
            Ok(Box::new(synthetic::days(profile, SEED, 1..=DAY - 1).map(Ok)))
        }
        _ if arguments.warm.is_empty() => Ok(Box::new(std::iter::empty())),
        _ => read(&arguments.warm, &arguments.reading),
    }
}

fn read(files: &[PathBuf], reading: &Reading) -> Result<Requests, String> {
    let reader = traces::open(files, &reading.options()).map_err(|error| error.to_string())?;
    Ok(Box::new(reader.map(|request| request.map_err(|error| error.to_string()))))
}

/// Returns one more than the last block of the files, warm-up included.
fn span(arguments: &Arguments) -> Result<u64, String> {
    let mut span = 1;
    for files in [&arguments.files, &arguments.warm].into_iter().filter(|files| !files.is_empty()) {
        for request in read(files, &arguments.reading)? {
            let request = request?;
            span = span.max(request.block + u64::from(request.blocks));
        }
    }
    Ok(span)
}

/// Results of a replay, for programs. Times are in milliseconds.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs, reason = "names say it, and the report that is printed explains them")]
pub struct Report {
    pub scheme: &'static str,
    pub memory: u64,
    pub index_percent_at_end: f64,
    pub seconds: f64,
    pub mean_ms: f64,
    pub reads: OfKind,
    pub writes: OfKind,
    pub mean_queue: f64,
    pub most_queue: u64,
    pub write_requests_removed_percent: f64,
    pub blocks_shared: u64,
    pub blocks_known: u64,
    pub index_lookups_on_disk: u64,
    pub index_lookups_saved: u64,
    pub read_cache_hit_percent: f64,
    pub reads_more_by_splits: u64,
    pub blocks_written_home_again: u64,
    pub blocks_swapped: u64,
    pub blocks_in_use: u64,
    pub nvram_bytes: u64,
    pub device_reads: u64,
    pub device_writes: u64,
    pub device_read_bytes: u64,
    pub device_written_bytes: u64,
    /// Energy of the disk; none if its power is not known.
    pub joules: Option<f64>,
}

/// Response times of one kind of request, in milliseconds.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs, reason = "names say it, and the report that is printed explains them")]
pub struct OfKind {
    pub requests: u64,
    pub mean: f64,
    pub p50: f64,
    pub p90: f64,
    pub p99: f64,
    pub p999: f64,
    pub waiting_for_submitter: f64,
    pub processor: f64,
    pub index_lookup: f64,
    pub queue: f64,
    pub seek: f64,
    pub rotation: f64,
    pub transfer: f64,
    pub overhead: f64,
    /// Part of the above: after the first piece of a read that was split.
    pub splits: f64,
}

impl OfKind {
    fn of(times: &Times) -> OfKind {
        OfKind {
            requests: times.requests,
            mean: times.mean_ms(),
            p50: times.percentile_ms(50.0),
            p90: times.percentile_ms(90.0),
            p99: times.percentile_ms(99.0),
            p999: times.percentile_ms(99.9),
            waiting_for_submitter: times.part_ms(|parts| parts.waiting),
            processor: times.part_ms(|parts| parts.processor),
            index_lookup: times.part_ms(|parts| parts.lookup),
            queue: times.part_ms(|parts| parts.disk.queue),
            seek: times.part_ms(|parts| parts.disk.seek),
            rotation: times.part_ms(|parts| parts.disk.rotation),
            transfer: times.part_ms(|parts| parts.disk.transfer),
            overhead: times.part_ms(|parts| parts.disk.overhead),
            splits: times.part_ms(|parts| parts.splits),
        }
    }
}

impl Report {
    fn of(outcome: &Outcome, scheme: Scheme, memory: u64, index_share: u32, joules: Option<f64>) -> Report {
        let counts = &outcome.counts;
        Report {
            scheme: scheme.name,
            memory,
            index_percent_at_end: f64::from(index_share) / 10.0,
            seconds: outcome.end as f64 / 1e9,
            mean_ms: outcome.mean_ms(),
            reads: OfKind::of(&outcome.reads),
            writes: OfKind::of(&outcome.writes),
            mean_queue: outcome.mean_queue(),
            most_queue: outcome.queue_most,
            write_requests_removed_percent: outcome.removed_percent(),
            blocks_shared: counts.shared_blocks,
            blocks_known: counts.known_blocks,
            index_lookups_on_disk: counts.lookups,
            index_lookups_saved: counts.lookups_saved,
            read_cache_hit_percent: outcome.hit_percent(),
            reads_more_by_splits: counts.split_reads,
            blocks_written_home_again: counts.returned_home,
            blocks_swapped: counts.swapped_blocks,
            blocks_in_use: outcome.used_blocks,
            nvram_bytes: outcome.nvram,
            device_reads: outcome.disk.reads,
            device_writes: outcome.disk.writes,
            device_read_bytes: outcome.disk.read_bytes,
            device_written_bytes: outcome.disk.written_bytes,
            joules,
        }
    }
}

fn text(report: &Report, outcome: &Outcome) -> String {
    use std::fmt::Write;
    let mut text = String::new();
    let _ = writeln!(
        text,
        "{:10} {:>9} {:>9} {:>9} {:>9} {:>9}   of the mean: submitter, processor, index on disk, queue, seek, rotation, transfer, overhead (splits)",
        "ms", "requests", "mean", "p50", "p99", "p99.9"
    );
    for (name, of) in [("reads", &report.reads), ("writes", &report.writes)] {
        let _ = writeln!(
            text,
            "{name:10} {:9} {:9.3} {:9.3} {:9.3} {:9.3}   {:.3}, {:.3}, {:.3}, {:.3}, {:.3}, {:.3}, {:.3}, {:.3} ({:.3})",
            of.requests,
            of.mean,
            of.p50,
            of.p99,
            of.p999,
            of.waiting_for_submitter,
            of.processor,
            of.index_lookup,
            of.queue,
            of.seek,
            of.rotation,
            of.transfer,
            of.overhead,
            of.splits
        );
    }
    let mut line = |name: &str, value: String| {
        let _ = writeln!(text, "{name:44} {value}");
    };
    line("mean of all requests, ms", format!("{:.3}", report.mean_ms));
    line("requests in flight when another comes", format!("{:.2}, at most {}", report.mean_queue, report.most_queue));
    line("write requests removed", format!("{:.1} %", report.write_requests_removed_percent));
    line("blocks written: known, shared", {
        format!("{}, {} of {}", report.blocks_known, report.blocks_shared, outcome.counts.written_blocks)
    });
    line("hits of the read cache", format!("{:.1} % of blocks read", report.read_cache_hit_percent));
    line("looks at the index on disk, saved", {
        format!("{}, {}", report.index_lookups_on_disk, report.index_lookups_saved)
    });
    line("more reads because blocks are scattered", report.reads_more_by_splits.to_string());
    line("blocks written home again when idle", report.blocks_written_home_again.to_string());
    line("blocks in use", report.blocks_in_use.to_string());
    line("NVRAM for redirected blocks, at most", format!("{} bytes", report.nvram_bytes));
    line("memory, index at the end", format!("{} bytes, {:.1} %", report.memory, report.index_percent_at_end));
    line("blocks swapped by iCache", report.blocks_swapped.to_string());
    let (reads, writes) = (report.device_reads, report.device_writes);
    let (read, written) = (report.device_read_bytes >> 20, report.device_written_bytes >> 20);
    line("disks: reads, writes", format!("{reads} ({read} MiB), {writes} ({written} MiB)"));
    line(
        "energy of the disks",
        report.joules.map_or("not known".into(), |joules| format!("{:.1} kJ", joules / 1000.0)),
    );
    line("virtual time", format!("{:.1} s", report.seconds));
    text
}
