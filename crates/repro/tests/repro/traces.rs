//! Trace readers and synthetic traces, tested through the public interface with files as users have them.
//!
//! The samples are those of `samples`. Without them the tests report that and pass.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::{Path, PathBuf};

use repro::traces::stat::{Figures, Stat};
use repro::traces::synthetic::{self, Profile, targets};
use repro::traces::{BadLines, Format, Options, Request, TraceError, ZEROES, open};
use sim::random::mix;

use crate::samples::{Words, joined, of_homes, of_mail, sample};

/// A directory that is removed with the test.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let path = std::env::temp_dir().join(format!("repro-traces-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a directory for files");
        Scratch(path)
    }

    fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, bytes).expect("space for a file");
        path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn figures(path: &Path) -> Figures {
    let mut reader = open(&[path.to_path_buf()], &Options::default()).expect("it can be read");
    let mut stat = Stat::default();
    for request in &mut reader {
        stat.add(&request.expect("every line is good"));
    }
    stat.finish(Some(reader.tally()))
}

fn read(paths: &[PathBuf], options: &Options) -> Result<Vec<Request>, TraceError> {
    open(paths, options)?.collect()
}

/// Computes the figures of records of 4 KiB in a slow, independent way, and compares them. Requests are lists of records, and every search goes
/// through the lists of all earlier records.
fn agrees_with_the_slow_way(records: &[Words], figures: &Figures) {
    let requests = joined(records);
    let writes: Vec<_> = requests.iter().filter(|request| request[0].op == "W").collect();
    let kib = |requests: f64, blocks: usize| blocks as f64 * 4.0 / requests.max(1.0);
    let close = |ours: f64, theirs: f64| assert!((ours - theirs).abs() <= 1e-9 * theirs.abs(), "{ours} for {theirs}");
    assert_eq!((figures.requests, figures.writes), (requests.len() as u64, writes.len() as u64));
    close(figures.write_ratio, writes.len() as f64 / requests.len() as f64);
    close(figures.mean_kib, kib(requests.len() as f64, records.len()));
    close(figures.mean_write_kib, kib(writes.len() as f64, writes.iter().map(|request| request.len()).sum()));
    // Redundancy: for each written block, compares its digest with all earlier writes, and with the last write of its place.
    let written: Vec<&Words> = records.iter().filter(|record| record.op == "W").collect();
    let (mut duplicates, mut unchanged) = (0, 0);
    let mut redundant = Vec::new();
    for (index, record) in written.iter().enumerate() {
        let is_known = written[..index].iter().any(|before| before.digest == record.digest);
        let holds = written[..index].iter().rev().find(|before| before.lba == record.lba);
        duplicates += u64::from(is_known);
        unchanged += u64::from(holds.is_some_and(|before| before.digest == record.digest));
        redundant.push(is_known);
    }
    assert_eq!((figures.known_write_blocks, figures.duplicate_blocks), (written.len() as u64, duplicates));
    assert_eq!(figures.unchanged_blocks, unchanged);
    let mut classes = [[0; 3]; 5];
    let mut redundant = redundant.into_iter();
    for request in &writes {
        let known = redundant.by_ref().take(request.len()).filter(|&is_known| is_known).count();
        let class = &mut classes[[1, 2, 4, 8].iter().position(|&most| request.len() <= most).unwrap_or(4)];
        class[2] += 1;
        class[0] += u64::from(known == request.len());
        class[1] += u64::from(known > 0 && known < request.len());
    }
    let ours: Vec<_> = figures.by_size.iter().map(|class| [class.fully, class.partly, class.writes]).collect();
    assert_eq!(ours, classes);
    let distinct = |of: &dyn Fn(&Words) -> bool| {
        records.iter().filter(|r| of(r)).map(|r| r.lba).collect::<BTreeSet<_>>().len() as u64
    };
    assert_eq!(figures.distinct_blocks, distinct(&|_| true));
    assert_eq!(figures.distinct_blocks_read, distinct(&|record| record.op == "R"));
    assert_eq!(
        figures.distinct_contents,
        records.iter().map(|record| &record.digest).collect::<BTreeSet<_>>().len() as u64
    );
    // Arrivals.
    let gaps: Vec<u64> = requests.windows(2).map(|pair| pair[1][0].ns - pair[0][0].ns).collect();
    let variation = |gaps: &[u64]| {
        let mean = gaps.iter().sum::<u64>() as f64 / gaps.len() as f64;
        (gaps.iter().map(|&gap| (gap as f64 - mean).powi(2)).sum::<f64>() / gaps.len() as f64).sqrt() / mean
    };
    let nearly = |ours: f64, theirs: f64| assert!((ours - theirs).abs() <= 2e-3 * theirs, "{ours} for {theirs}");
    nearly(figures.bursts.inter_arrival_cv, variation(&gaps));
    let lines = figures.lines.as_ref().expect("it came from a file");
    nearly(
        lines.record_inter_arrival_cv,
        variation(&records.windows(2).map(|pair| pair[1].ns - pair[0].ns).collect::<Vec<_>>()),
    );
    let mut idle: Vec<u64> = gaps.iter().copied().filter(|&gap| gap > 100_000_000).collect();
    idle.sort_unstable();
    assert_eq!(figures.bursts.bursts, idle.len() as u64 + 1);
    nearly(figures.bursts.idle_s_p50, idle[idle.len().div_ceil(2) - 1] as f64 / 1e9);
    let mut bins = BTreeMap::<u64, f64>::new();
    requests
        .iter()
        .for_each(|request| *bins.entry((request[0].ns - records[0].ns) / 1_000_000_000).or_default() += 1.0);
    let count = *bins.keys().max().expect("there are requests") as f64 + 1.0;
    let mean = requests.len() as f64 / count;
    let variance = bins.values().map(|bin| bin * bin).sum::<f64>() / count - mean * mean;
    nearly(figures.bursts.dispersion_1s, variance / mean);
}

fn classes(figures: &Figures) -> Vec<(u64, u64, u64)> {
    figures.by_size.iter().map(|class| (class.fully, class.partly, class.writes)).collect()
}

#[test]
fn the_sample_of_mail_has_the_figures_that_its_lines_have() {
    let Some(path) = sample("fiu/mail_day1_first10000.csv") else { return };
    let figures = figures(&path);
    agrees_with_the_slow_way(&of_mail(&path), &figures);
    // Figures that were known before: records, requests by size, bursts.
    let lines = figures.lines.as_ref().expect("it came from a file");
    assert_eq!((lines.records, figures.write_blocks, figures.read_blocks), (10_000, 1_095, 8_905));
    assert_eq!(classes(&figures), [(73, 0, 269), (3, 8, 34), (7, 63, 112), (0, 28, 32), (0, 3, 7)]);
    assert_eq!(format!("{:.1} {:.1}", figures.mean_write_kib / 4.0, figures.mean_read_kib / 4.0), "2.4 6.8");
    assert_eq!(format!("{:.1} {:.0}", lines.record_inter_arrival_cv, lines.joined_gap_us_p50), "11.3 38");
    assert_eq!(format!("{:.0} {:.0}", figures.span_gib, figures.bursts.dispersion_1s), "277 250");
    assert_eq!((figures.bursts.requests_p50, figures.bursts.requests_p90, figures.bursts.requests_max), (1, 5, 622));
    assert_eq!(format!("{:.2} {:.1}", figures.bursts.idle_s_p50, figures.bursts.idle_s_p90), "0.18 0.5");
}

#[test]
fn the_sample_of_homes_has_the_figures_that_its_lines_have() {
    let Some(path) = sample("fiu/homes-sample.1.blkparse") else { return };
    let figures = figures(&path);
    agrees_with_the_slow_way(&of_homes(&path), &figures);
    let lines = figures.lines.as_ref().expect("it came from a file");
    assert_eq!((lines.records, figures.write_blocks, figures.read_blocks), (1_000, 1_000, 0));
    assert_eq!(classes(&figures), [(113, 0, 413), (16, 8, 55), (4, 0, 56), (0, 0, 13), (0, 2, 16)]);
    assert_eq!(format!("{:.1} {:.1}", figures.mean_write_kib / 4.0, lines.record_inter_arrival_cv), "1.8 6.1");
    assert_eq!(
        format!("{:.0} {:.0} {:.0}", figures.span_gib, figures.bursts.dispersion_1s, figures.duration_s),
        "443 55 1121"
    );
    assert_eq!((figures.bursts.requests_p50, figures.bursts.requests_p90, figures.bursts.requests_max), (2, 13, 141));
    assert_eq!(format!("{:.1} {:.1}", figures.bursts.idle_s_p50, figures.bursts.idle_s_p90), "5.4 29.7");
}

#[test]
fn samples_of_other_formats_are_told_apart_and_read_whole() {
    let samples = [
        ("cloudphysics/cloudPhysicsIO.csv", Format::CloudPhysics, 113_872),
        ("mqsim/tpcc-small.trace", Format::MqSim, 6_999),
        ("disksim/barracuda.trace", Format::DiskSim, 10_000),
        ("disksim/ibm18es.trace", Format::DiskSim, 10_000),
    ];
    for (name, format, requests) in samples {
        let Some(path) = sample(name) else { continue };
        let reader = open(&[path], &Options::default()).expect("it can be read");
        assert_eq!(reader.format(), format, "{name}");
        let requests_read: Vec<_> = reader.collect::<Result<_, _>>().expect("every line is good");
        assert_eq!(requests_read.len(), requests, "{name}");
        assert!(requests_read.is_sorted_by_key(|request| request.at), "{name}");
    }
    let Some(path) = sample("cloudphysics/cloudPhysicsIO.csv") else { return };
    let figures = figures(&path);
    let lines = figures.lines.expect("it came from a file");
    // In thousands of bytes.
    assert_eq!(format!("{:.3} {:.1}", figures.write_ratio, lines.mean_record_kib * 1.024), "0.587 36.9");
}

const TWO_DAYS: [&str; 2] = [
    "10 7 nfsd 8 8 W 6 0 2c4787c7671c2f638777c4ab72859ce1\n20 7 nfsd 16 8 W 6 0 88b93b628d84082186026d9da044f173\n",
    "1000030 7 nfsd 24 8 W 6 0 88b93b628d84082186026d9da044f173\n1000030 8 nfsd 32 8 W 6 0 88b93b628d84082186026d9da044f173\n",
];

#[test]
fn days_in_a_row_plain_or_gzip_are_one_trace() {
    let scratch = Scratch::new("days");
    let first = scratch.file("1.blkparse", TWO_DAYS[0].as_bytes());
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(TWO_DAYS[1].as_bytes()).expect("memory");
    let second = scratch.file("2.blkparse.gz", &gzip.finish().expect("memory"));
    let days = [first.clone(), second.clone()];
    let places = |options: &Options| {
        let requests = read(&days, options).expect("both are good");
        requests.iter().map(|request| (request.at, request.block, request.blocks)).collect::<Vec<_>>()
    };
    // The third line comes 1.00001 ms after the second. With the default of 1 ms it is another request.
    assert_eq!(places(&Options::default()), [(10, 1, 2), (1_000_030, 3, 1), (1_000_030, 4, 1)]);
    assert_eq!(places(&Options { join: Some(1_000_010), ..Options::default() }), [(10, 1, 3), (1_000_030, 4, 1)]);
    assert_eq!(places(&Options { join: None, ..Options::default() }).len(), 4);
    // The days are in the wrong order. A small step back is a cut, a larger one is a mistake.
    let late = scratch.file("3.blkparse", b"9000000000 7 nfsd 8 8 W 6 0\n");
    assert!(read(&[second.clone(), first.clone()], &Options::default()).is_ok());
    let error = read(&[late, first], &Options::default()).expect_err("eight seconds back");
    assert!(
        error.to_string().contains("1.blkparse, line 1: expected a time after the end of the file before"),
        "{error}"
    );
    assert!(read(&[second, scratch.0.join("none")], &Options::default()).is_err(), "all files must be there at once");
}

#[test]
fn a_bad_line_is_refused_with_its_place_or_counted() {
    let scratch = Scratch::new("bad");
    let path = scratch.file("bad", format!("{}what is this\n5 7 nfsd 8 8 W 6 0\n", TWO_DAYS[0]).as_bytes());
    let error = read(std::slice::from_ref(&path), &Options::default()).expect_err("it is bad");
    assert_eq!(error.line_number(), Some(3));
    assert!(error.to_string().contains("line 3: expected 'time process name"), "{error}");
    assert!(error.to_string().contains("found \"what is this\""), "{error}");
    let options = Options { bad_lines: BadLines::Count, ..Options::default() };
    let mut reader = open(std::slice::from_ref(&path), &options).expect("it is there");
    let requests: Vec<_> = reader.by_ref().collect::<Result<_, _>>().expect("bad lines are counted");
    // The last line is earlier than those before it, so it is returned with them.
    assert_eq!(requests.iter().map(|request| request.at).collect::<Vec<_>>(), [10, 20]);
    assert_eq!((reader.tally().bad_lines, reader.tally().records, reader.tally().moved), (1, 3, 1));
    let path = scratch.file("long", &vec![b'7'; 3 << 20]);
    let long = Options { format: Some(Format::MqSim), ..Options::default() };
    assert!(read(&[path], &long).expect_err("it is too long").to_string().contains("1 MiB"));
    let path = scratch.file("other", b"nobody knows this\n");
    assert!(read(&[path], &Options::default()).expect_err("no format").to_string().contains("--format"));
    assert!(read(&[], &Options::default()).is_err());
}

fn achieved(report: &targets::Report, name: &str) -> (f64, f64) {
    let row = report.rows.iter().find(|row| row.name == name).expect("there is such a row");
    (row.achieved, row.target.unwrap_or(f64::NAN))
}

#[test]
fn made_traces_have_what_is_published_of_the_real_ones() {
    for (profile, one_in) in [(Profile::WebVm, 40), (Profile::Homes, 10), (Profile::Mail, 40)] {
        let report = targets::measure(profile, 1, one_in);
        assert_eq!((report.kind, report.profile), ("synthetic", profile.name()));
        let holds = |name: &str, relative: f64, absolute: f64| {
            let (ours, theirs) = achieved(&report, name);
            let near = (ours - theirs).abs() <= theirs.abs() * relative + absolute;
            assert!(near, "{} {name}: {ours} for {theirs}", profile.name());
        };
        // Means and shares of short days scatter more than those of whole ones; docs/papers/data.md has these.
        holds("requests a day", 0.0, 0.0);
        holds("write ratio", 0.001, 0.0);
        holds("mean size, KiB", 0.02, 0.0);
        holds("duplicate share of write blocks", 0.0, 0.03);
        holds("... to the same place", 0.0, 0.03);
        holds("disk pages by distinct contents", 0.01, 0.0);
        if profile == Profile::Mail {
            holds("writes removed by Select-Dedupe", 0.0, 0.03);
        }
        holds("requests of a burst, p50", 0.0, 1.0);
        holds("requests of a burst, p90", 0.3, 1.0);
    }
}

#[test]
fn a_made_trace_is_a_function_of_profile_seed_and_day() {
    let first: Vec<Request> = synthetic::days(Profile::Homes, 7, 1..=2).collect();
    let second: Vec<Request> = synthetic::day(Profile::Homes, 7, 2).collect();
    // This is a working day. The measured day, and the days of the short form, are as small as POD's.
    assert_eq!(second.len(), 238_904);
    assert_eq!(synthetic::quiet_days(Profile::Homes, 7, 2..=2).count(), 64_819);
    assert_eq!(first[first.len() - second.len()..], second);
    assert!(synthetic::day(Profile::Homes, 8, 1).ne(first.iter().take(second.len()).cloned()));
    assert!(first.is_sorted_by_key(|request| request.at), "in the order of time");
    assert!(second.iter().all(|request| (1..2).contains(&(request.at / 86_400_000_000_000))), "a day is a day");
    // The digest is equal on every machine, and in every version. A change of a synthetic trace changes it, and all figures drawn from the trace.
    let digest = first.iter().fold(0, |state, request| {
        let parts = [request.at, u64::from(request.writes), request.block, u64::from(request.blocks)];
        parts.iter().chain(&request.contents).fold(state, |state, &part| mix(state ^ part))
    });
    assert_eq!(format!("{digest:016x}"), "23900648507dacc9");
}

/// A read of unwritten blocks returns the disk's initial contents. A read of the others returns the last written contents.
#[test]
fn reads_of_a_made_trace_have_what_their_blocks_hold() {
    let mut held = BTreeMap::new();
    let (mut of_disk, mut written) = (0, 0);
    for request in synthetic::day(Profile::WebVm, 3, 1).take(20_000) {
        for (block, &content) in (request.block..).zip(&request.contents) {
            if request.writes {
                held.insert(block, content);
                continue;
            }
            match held.get(&block) {
                Some(&holds) => written += u64::from(holds == content),
                None => of_disk += u64::from(synthetic::initial(Profile::WebVm, 3, block) == content),
            }
        }
        if !request.writes {
            assert_eq!(request.contents.len(), request.blocks as usize);
        }
    }
    let reads: u64 = synthetic::day(Profile::WebVm, 3, 1)
        .take(20_000)
        .filter(|request| !request.writes)
        .map(|request| u64::from(request.blocks))
        .sum();
    assert_eq!(of_disk + written, reads);
    assert!(of_disk > 1_000 && written > 1_000, "{of_disk} {written}");
}

#[test]
fn a_made_trace_that_was_written_is_read_as_the_same_requests() {
    let scratch = Scratch::new("synth");
    let files = synthetic::write_files(Profile::Homes, 5, 1..=2, &scratch.0, true).expect("space for files");
    assert!(files[1].ends_with("synthetic-homes-5.2.blkparse.gz"));
    let read = read(&files, &Options::default()).expect("it is FIU's format");
    let made: Vec<Request> = synthetic::days(Profile::Homes, 5, 1..=2).collect();
    assert_eq!(read.len(), made.len());
    // The contents have other numbers after reading. Equal ones stay equal, and zeroes stay zeroes.
    let (mut there, mut back) = (BTreeMap::new(), BTreeMap::new());
    for (read, made) in read.iter().zip(&made) {
        let places = |request: &Request| (request.at, request.writes, request.block, request.blocks);
        assert_eq!(places(read), places(made));
        for (&read, &made) in read.contents.iter().zip(&made.contents) {
            assert_eq!(*there.entry(made).or_insert(read), read);
            assert_eq!(*back.entry(read).or_insert(made), made);
            assert_eq!(read == ZEROES, made == ZEROES);
        }
    }
}
