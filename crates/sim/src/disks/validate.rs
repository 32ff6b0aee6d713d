//! A validation of a drive's model against the drive: the requests that were measured on it, and the distance between the times.
//!
//! A trace has a line for each request: `R|W Hit|Miss sector sectors service_time think_time`, times in microseconds. The next
//! request comes its think time after the completion of the one before, so that one is in progress at a time. The demerit
//! figure is that of Ruemmler and Wilkes: the root mean square of the horizontal distance between the two distributions of times.

use std::path::Path;
use std::sync::Arc;

use engine::Nanos;
use serde::Serialize;

use super::drive::Drive;
use super::hdd::{Hdd, Options};
use super::parameters::{Problem, text};
use super::queue::Policy;
use super::{Class, Command, Disk, Op};

/// A request that was measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Measured {
    /// Reads or writes.
    pub op: Op,
    /// The first sector.
    pub sector: u64,
    /// Number of sectors.
    pub sectors: u64,
    /// Time of the request.
    pub service: Nanos,
    /// Time from its completion to the next request.
    pub think: Nanos,
}

/// Two means, and the distance between two distributions.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Comparison {
    /// Kind of the requests.
    pub requests: String,
    /// Number of the requests.
    pub count: usize,
    /// Mean of the measured times, in milliseconds.
    pub measured_ms: f64,
    /// Mean of the model's times, in milliseconds.
    pub model_ms: f64,
    /// Excess of the model's mean over the measured one, in per cent.
    pub mean_error_percent: f64,
    /// The demerit figure in milliseconds.
    pub demerit_ms: f64,
    /// Demerit figure in per cent of the measured mean.
    pub demerit_percent: f64,
    /// Root mean square of the differences request by request, in milliseconds.
    pub each_ms: f64,
}

/// Reads a trace.
pub fn trace(file: &Path) -> Result<Vec<Measured>, Problem> {
    let mut requests = Vec::new();
    for (number, line) in text(file)?.lines().enumerate() {
        let request = parse(line).ok_or_else(|| Problem {
            file: file.to_owned(),
            line: number + 1,
            what: "expected 'R|W Hit|Miss sector sectors service_time think_time', times in microseconds".to_owned(),
        })?;
        requests.push(request);
    }
    if requests.is_empty() {
        return Err(Problem { file: file.to_owned(), line: 0, what: "has no requests".to_owned() });
    }
    Ok(requests)
}

fn parse(line: &str) -> Option<Measured> {
    let mut fields = line.split_ascii_whitespace();
    let op = match fields.next()? {
        "R" => Op::Read,
        "W" => Op::Write,
        _ => return None,
    };
    fields.next()?;
    let (sector, sectors) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    let mut time = || {
        let time = fields.next()?.parse::<f64>().ok().filter(|time| (0.0..1e9).contains(time))?;
        Some((time * 1000.0).round() as Nanos)
    };
    let (service, think) = (time()?, time()?);
    (sectors > 0 && sector < 1 << 50 && sectors < 1 << 30).then_some(Measured { op, sector, sectors, service, think })
}

/// Returns the model's times of the requests, one after the other.
pub fn replay(drive: &Arc<Drive>, requests: &[Measured]) -> Vec<Nanos> {
    let options = Options { queue: Policy::Fifo, ..Options::default() };
    let mut disk = Disk::Hdd(Box::new(Hdd::new(Arc::clone(drive), options)));
    let mut now = 0;
    let mut times = Vec::with_capacity(requests.len());
    for request in requests {
        let (offset, bytes) = (request.sector * 512, request.sectors * 512);
        disk.submit(now, 0, Command { op: request.op, offset, bytes, class: Class::Foreground });
        let at = disk.next().unwrap_or(now);
        times.push(disk.pop(at).map_or(0, |done| done.breakdown.total()));
        now = at + request.think;
    }
    times
}

/// Compares the times of some of the requests.
pub fn compare(name: &str, pairs: &[(Nanos, Nanos)]) -> Comparison {
    let ms = |nanos: f64| nanos / 1e6;
    let count = pairs.len().max(1) as f64;
    let squares = |pairs: &mut dyn Iterator<Item = (Nanos, Nanos)>| -> f64 {
        let sum: f64 = pairs.map(|(a, b)| (a.abs_diff(b) as f64).powi(2)).sum();
        ms((sum / count).sqrt())
    };
    let (mut measured, mut model): (Vec<Nanos>, Vec<Nanos>) = pairs.iter().copied().unzip();
    measured.sort_unstable();
    model.sort_unstable();
    let mean = |times: &[Nanos]| ms(times.iter().sum::<Nanos>() as f64 / count);
    let (measured_ms, model_ms) = (mean(&measured), mean(&model));
    let demerit_ms = squares(&mut measured.iter().copied().zip(model.iter().copied()));
    let percent = |part: f64| if measured_ms > 0.0 { part * 100.0 / measured_ms } else { 0.0 };
    Comparison {
        requests: name.to_owned(),
        count: pairs.len(),
        measured_ms,
        model_ms,
        mean_error_percent: percent(model_ms - measured_ms),
        demerit_ms,
        demerit_percent: percent(demerit_ms),
        each_ms: squares(&mut pairs.iter().copied()),
    }
}

/// Compares all requests of `DIR/NAME.trace` with the model of the drive of `DIR/NAME`, first together, then by kind: reads and writes, each of them
/// sequential (where the request before ended), local (within 2,000 sectors of there) or far.
pub fn validate(directory: &Path, name: &str) -> Result<Vec<Comparison>, Problem> {
    let drive = Arc::new(Drive::load(directory, name)?);
    let requests = trace(&directory.join(format!("{name}.trace")))?;
    let times = replay(&drive, &requests);
    let pairs: Vec<_> = requests.iter().map(|request| request.service).zip(times).collect();
    let mut comparisons = vec![compare("all", &pairs)];
    let mut kinds: Vec<(&str, Vec<(Nanos, Nanos)>)> = Vec::new();
    let mut last = 0;
    for (request, &pair) in requests.iter().zip(&pairs) {
        let kind = match (request.op, request.sector.abs_diff(last)) {
            (Op::Read, 0) => "reads, sequential",
            (Op::Read, 1..2_000) => "reads, local",
            (Op::Read, _) => "reads, far",
            (_, 0) => "writes, sequential",
            (_, 1..2_000) => "writes, local",
            (_, _) => "writes, far",
        };
        last = request.sector + request.sectors;
        match kinds.iter_mut().find(|known| known.0 == kind) {
            Some(known) => known.1.push(pair),
            None => kinds.push((kind, vec![pair])),
        }
    }
    kinds.sort_by_key(|kind| kind.0);
    comparisons.extend(kinds.iter().map(|(kind, pairs)| compare(kind, pairs)));
    Ok(comparisons)
}

/// Formats comparisons as a table.
pub fn table(comparisons: &[Comparison]) -> String {
    let mut table = format!(
        "{:<20}{:>8}{:>13}{:>10}{:>9}{:>12}{:>8}{:>10}\n",
        "requests", "count", "measured ms", "model ms", "mean %", "demerit ms", "%", "each ms"
    );
    for c in comparisons {
        table += &format!(
            "{:<20}{:>8}{:>13.3}{:>10.3}{:>+9.1}{:>12.3}{:>8.1}{:>10.3}\n",
            c.requests,
            c.count,
            c.measured_ms,
            c.model_ms,
            c.mean_error_percent,
            c.demerit_ms,
            c.demerit_percent,
            c.each_ms
        );
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_demerit_is_the_distance_of_two_distributions() {
        let same = compare("", &[(1_000_000, 3_000_000), (3_000_000, 1_000_000)]);
        assert_eq!((same.demerit_ms, same.each_ms, same.mean_error_percent), (0.0, 2.0, 0.0));
        let later = compare("", &[(1_000_000, 2_000_000), (3_000_000, 4_000_000)]);
        assert_eq!((later.demerit_ms, later.demerit_percent, later.mean_error_percent), (1.0, 50.0, 50.0));
    }

    /// Checks the models against two drives whose files and measured requests lie beside the repository, in `shared`.
    #[test]
    fn the_model_is_within_ten_per_cent_of_two_measured_drives() {
        let beside = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().map(|above| above.join("shared/data/disksim"));
        let Some(directory) = beside.into_iter().find(|directory| directory.is_dir()) else {
            println!("skipped: there is no shared/data/disksim beside the repository");
            return;
        };
        for (name, demerit) in [("barracuda", 3.7), ("ibm18es", 1.7)] {
            let all = validate(&directory, name).expect("the files are there").remove(0);
            println!("{name}: {all:?}");
            assert!(all.demerit_percent < 10.0 && all.mean_error_percent.abs() < 3.0, "{name}: {all:?}");
            assert!(all.demerit_percent < demerit, "{name}, as docs/internals/simulated-disks.md says: {all:?}");
            assert_eq!(all.count, 10_000);
        }
    }
}
