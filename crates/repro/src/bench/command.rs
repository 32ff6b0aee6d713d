//! Command `repro bench`: its arguments, threads and report.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use serde::Serialize;

use super::client::Connection;
use super::uri::Uri;
use super::worker::{Done, Shared, Worker};
use crate::dedis::BLOCK;
use crate::dedis::arguments::{Contents, Requests, whole_blocks};
use crate::dedis::load::{Load, Stop, Stream};
use crate::dedis::summary::{Latencies, LatencyReport, Spread};
use crate::dedis::written::{Tally, Written};
use sim::parallel::Progress;

const MIB: f64 = (1u64 << 20) as f64;
const BETWEEN_LOOKS: Duration = Duration::from_millis(20);

/// Arguments of `repro bench`: the load and the device.
#[derive(Args)]
pub struct Arguments {
    /// The device: nbd://HOST[:PORT]/EXPORT or nbd+unix:///EXPORT?socket=PATH.
    uri: Uri,
    #[command(flatten)]
    contents: Contents,
    #[command(flatten)]
    requests: Requests,
    /// The load stays within this size from the beginning of the device. Not given: all of it. Takes 8 bytes of memory for each block.
    #[arg(long, value_parser = whole_blocks)]
    span: Option<u64>,
    /// Requests that each worker has in progress.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=256))]
    depth: u64,
    /// Answer each write when it is durable (FUA).
    #[arg(long)]
    durable: bool,
    /// Runs one after the other, each with a seed of its own.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=100))]
    runs: u64,
    /// Read back all that was written and compare, in the end.
    #[arg(long)]
    verify: bool,
    /// Overwrite the contents of the device. Everything but pure reads needs it.
    #[arg(long)]
    overwrite: bool,
}

#[derive(Serialize)]
struct Report {
    device: String,
    device_bytes: u64,
    distribution: String,
    pattern: String,
    workers: u64,
    depth: u64,
    request_bytes: u64,
    reads_percent: u32,
    throughput_mib_s: Spread,
    requests_a_second: Spread,
    latency_mean_us: Spread,
    /// Counts of all runs and of filling. A device that was empty and shares everything stores `distinct_blocks`.
    generated: Tally,
    saved_blocks: u64,
    /// Blocks that were read back and were right.
    #[serde(skip_serializing_if = "Option::is_none")]
    verified_blocks: Option<u64>,
    interrupted: bool,
    runs: Vec<RunReport>,
}

#[derive(Serialize)]
struct RunReport {
    seed: u64,
    requests: u64,
    seconds: f64,
    throughput_mib_s: f64,
    requests_a_second: f64,
    latency: LatencyReport,
    #[serde(skip_serializing_if = "Option::is_none")]
    reads: Option<LatencyReport>,
    #[serde(skip_serializing_if = "Option::is_none")]
    writes: Option<LatencyReport>,
    /// Duration of the flush after the last answer.
    flush_seconds: f64,
}

/// Executes `repro bench`, and prints the report as JSON. Exit code 130 if it was interrupted.
pub fn run(arguments: &Arguments) -> ExitCode {
    match bench(arguments) {
        Ok(report) => {
            println!("{}", serde_json::to_string_pretty(&report).expect("a report is plain data"));
            if report.interrupted { ExitCode::from(130) } else { ExitCode::SUCCESS }
        }
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

fn bench(arguments: &Arguments) -> Result<Report, String> {
    let distribution = arguments.contents.open()?;
    let requests = &arguments.requests;
    let look = Connection::open(&arguments.uri)?;
    let export = look.export;
    look.close();
    let writes = requests.reads < 100 || requests.fill;
    if writes && !arguments.overwrite {
        return Err("this overwrites the device: add --overwrite to allow it".into());
    }
    if writes && export.is_read_only {
        return Err(format!("{}: the export is read-only", arguments.uri.place));
    }
    if requests.request > u64::from(export.most_payload) {
        return Err(format!("--request: this server takes {} bytes at most", export.most_payload));
    }
    let blocks = arguments.span.map_or(export.bytes, |span| span.min(export.bytes)) / BLOCK;
    let first = requests.load(0, blocks * BLOCK)?;
    first.check(blocks)?;
    let stop = interruption()?;
    let shared = Shared {
        uri: &arguments.uri,
        distribution: &distribution,
        depth: arguments.depth as usize,
        fua: arguments.durable,
        answered: AtomicU64::new(0),
        stop: &stop,
    };
    let mut workers = connect(&first, blocks, &shared)?;
    if requests.fill {
        next_load(&mut workers, first.filling(blocks).streams(blocks));
        run_once(&mut workers, &first.filling(blocks), "filling", &shared)?;
    }
    let mut runs = Vec::new();
    for number in 0..arguments.runs {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let load = requests.load(number, blocks * BLOCK)?;
        next_load(&mut workers, load.streams(blocks));
        let name = format!("run {} of {}", number + 1, arguments.runs);
        runs.push(run_once(&mut workers, &load, &name, &shared)?);
    }
    let verified_blocks = if arguments.verify { Some(verify(&mut workers, &shared)?) } else { None };
    let written: Vec<Written> = workers.into_iter().map(Worker::close).collect();
    let generated = Written::tally(&written);
    let spread = |value: fn(&RunReport) -> f64| Spread::of(runs.iter().map(value));
    Ok(Report {
        device: arguments.uri.place.to_string(),
        device_bytes: export.bytes,
        distribution: distribution.name.clone(),
        pattern: requests.pattern.to_string(),
        workers: requests.workers,
        depth: arguments.depth,
        request_bytes: requests.request,
        reads_percent: requests.reads,
        throughput_mib_s: spread(|run| run.throughput_mib_s),
        requests_a_second: spread(|run| run.requests_a_second),
        latency_mean_us: spread(|run| run.latency.mean_us),
        saved_blocks: generated.saved_blocks(),
        generated,
        verified_blocks,
        interrupted: stop.load(Ordering::Relaxed),
        runs,
    })
}

/// Returns a flag that SIGINT or SIGTERM sets. Then requests in progress end, and the results so far are reported.
fn interruption() -> Result<Arc<AtomicBool>, String> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        let caught = signal_hook::flag::register(signal, Arc::clone(&stop));
        caught.map_err(|error| format!("signals cannot be caught: {error}"))?;
    }
    Ok(stop)
}

fn connect(load: &Load, blocks: u64, shared: &Shared<'_>) -> Result<Vec<Worker>, String> {
    let contents = shared.distribution.shared_contents();
    let worker = |stream: Stream| {
        let region = stream.region();
        Worker::connect(shared.uri, stream, Written::new(region.start, region.end - region.start, contents))
    };
    load.streams(blocks).into_iter().map(worker).collect()
}

/// Gives the workers the requests of the next load; contents that are written once stay so.
fn next_load(workers: &mut [Worker], streams: Vec<Stream>) {
    for (worker, mut stream) in workers.iter_mut().zip(streams) {
        stream.after(&worker.stream);
        worker.stream = stream;
    }
}

/// Executes one load with all workers, each in a thread, and a flush after it if there were writes.
fn run_once(workers: &mut [Worker], load: &Load, name: &str, shared: &Shared<'_>) -> Result<RunReport, String> {
    shared.answered.store(0, Ordering::Relaxed);
    let done = in_threads(workers, load, name, shared)?;
    let mut all = Done::default();
    for done in &done {
        all.bytes += done.bytes;
        all.reads.merge(&done.reads);
        all.writes.merge(&done.writes);
        all.time = all.time.max(done.time);
    }
    let before = Instant::now();
    if all.writes.count() > 0 {
        workers[0].flush(shared)?;
    }
    let flush_seconds = before.elapsed().as_secs_f64();
    let mut latencies = all.reads.clone();
    latencies.merge(&all.writes);
    let seconds = all.time.as_secs_f64().max(1e-9);
    let report = |latencies: &Latencies| (latencies.count() > 0).then(|| latencies.report());
    Ok(RunReport {
        seed: load.seed,
        requests: latencies.count(),
        seconds,
        throughput_mib_s: all.bytes as f64 / MIB / seconds,
        requests_a_second: latencies.count() as f64 / seconds,
        latency: latencies.report(),
        reads: report(&all.reads),
        writes: report(&all.writes),
        flush_seconds,
    })
}

fn verify(workers: &mut [Worker], shared: &Shared<'_>) -> Result<u64, String> {
    let counts = std::thread::scope(|scope| {
        let threads: Vec<_> = workers.iter_mut().map(|worker| scope.spawn(|| worker.verify(shared))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| Err("a worker panicked".into()))).collect()
    });
    let counts: Result<Vec<u64>, String> = counts;
    counts.map(|counts| counts.iter().sum())
}

/// Starts each worker in a thread, and prints lines of progress meanwhile. If one fails, all stop.
fn in_threads(workers: &mut [Worker], load: &Load, name: &str, shared: &Shared<'_>) -> Result<Vec<Done>, String> {
    let mut progress = Progress::begin();
    std::thread::scope(|scope| {
        let fails = |_: &String| shared.stop.store(true, Ordering::Relaxed);
        let threads: Vec<_> =
            workers.iter_mut().map(|worker| scope.spawn(move || worker.work(shared).inspect_err(fails))).collect();
        while threads.iter().any(|thread| !thread.is_finished()) {
            std::thread::sleep(BETWEEN_LOOKS);
            let bytes = shared.answered.load(Ordering::Relaxed);
            let done = match load.stop {
                Stop::Requests(requests) => bytes as f64 / (requests * load.request_blocks * BLOCK).max(1) as f64,
                Stop::After(time) => progress.elapsed().as_secs_f64() / (time as f64 / 1e9),
            };
            let (left, speed) = (progress.left(done), bytes as f64 / MIB / progress.elapsed().as_secs_f64());
            progress.say(|| format!("{name}: {:.0} MiB, {speed:.0} MiB/s; about {left:?} left", bytes as f64 / MIB));
        }
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| Err("a worker panicked".into()))).collect()
    })
}
