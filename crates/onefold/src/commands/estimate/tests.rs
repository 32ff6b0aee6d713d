//! Tests of estimates on made files, against computations that are independent of the estimator.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};

use clap::Parser;

use super::*;
use crate::commands::cli::{Cli, Command};

/// A folder of its own, which is removed when the value is dropped.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("onefold-estimate-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).unwrap();
        Folder(path)
    }

    /// Writes a file with a block for each number: equal numbers give equal bytes, and 0 gives zeroes.
    fn file(&self, name: &str, contents: &[u32]) -> PathBuf {
        let path = self.0.join(name);
        let bytes: Vec<u8> = contents.iter().flat_map(|number| number.to_le_bytes().repeat(BLOCK / 4)).collect();
        fs::write(&path, bytes).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn try_estimate_of(path: &Path, more: &[&str]) -> anyhow::Result<Estimate> {
    let command = ["onefold", "estimate", path.to_str().unwrap()].into_iter().chain(more.iter().copied());
    let Command::Estimate(arguments) = Cli::try_parse_from(command).unwrap().command else { unreachable!() };
    run(&arguments, &AtomicBool::new(false))
}

fn estimate_of(path: &Path, more: &[&str]) -> Estimate {
    try_estimate_of(path, more).unwrap()
}

fn row<'a>(estimate: &'a Estimate, policy: &str, request_bytes: u64) -> &'a Row {
    estimate.estimates.iter().find(|row| row.policy == policy && row.request_bytes == request_bytes).unwrap()
}

/// Numbers that look random.
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// Generates runs of known contents, single known ones, new ones and zeroes; with `repeats`, also one block again and again.
fn contents(chance: &mut Chance, blocks: usize, known: u32, repeats: bool) -> Vec<u32> {
    let (mut contents, mut fresh) = (Vec::new(), chance.below(1 << 20) as u32 * 1024 + known);
    while contents.len() < blocks {
        let start = 1 + chance.below(u64::from(known)) as u32;
        match chance.below(6 + u64::from(repeats)) {
            0 => contents.extend(start..start + 1 + chance.below(20) as u32),
            1 => contents.push(start),
            2 => contents.extend([0, 0]),
            3 => contents.extend([start, start]),
            6 => {
                fresh += 7;
                contents.extend(vec![if chance.below(2) == 0 { start } else { fresh }; 1 + chance.below(9) as usize]);
            }
            _ => {
                fresh += 7;
                contents.extend(fresh..fresh + 5);
            }
        }
    }
    contents.truncate(blocks);
    contents
}

/// Naive pool: the rules of the policies, written down once more with lists.
#[derive(Default)]
struct Naive {
    slots: Vec<u32>,
    /// The slot that the index names for a content.
    known: HashMap<u32, usize>,
    map: Vec<Option<usize>>,
    removed: u64,
    removed_requests: u64,
    categories: [u64; 4],
}

impl Naive {
    fn write(&mut self, policy: &str, request: &[u32]) {
        let found: Vec<Option<usize>> = request.iter().map(|content| self.known.get(content).copied()).collect();
        // The length of the run that each block is in.
        let follows = |at: usize| match (found[at - 1], found[at]) {
            (Some(before), Some(slot)) => slot == before + 1 || policy != "idedup" && slot == before,
            _ => false,
        };
        let run = |at: usize| {
            let after = (at + 1..found.len()).take_while(|&at| follows(at)).count();
            let before = (1..=at).rev().take_while(|&at| follows(at)).count();
            if found[at].is_some() { before + 1 + after } else { 0 }
        };
        // New blocks that are the same again and again.
        let is_same = |at: usize| found[at].is_none() && request[at] == request[at - 1];
        let is_repeated = |at: usize| {
            let after = (at + 1..found.len()).take_while(|&at| is_same(at)).count();
            let before = (1..=at).rev().take_while(|&at| is_same(at)).count();
            policy == "select" && before > 0 && before + 1 + after >= 3
        };
        let longest = (0..request.len()).map(run).max().unwrap();
        let category = match found.iter().flatten().count() {
            0 => 0,
            _ if longest == request.len() => 1,
            _ if longest < 3 => 2,
            _ => 3,
        };
        self.categories[category] += 1;
        let (mut places, mut is_written, mut first_of) = (Vec::new(), Vec::new(), HashMap::new());
        for (at, &content) in request.iter().enumerate() {
            let shares = found[at].is_some()
                && match policy {
                    "full" => true,
                    "select" => category == 1 || run(at) >= 3,
                    _ => run(at) >= 4,
                };
            let intra_duplicate = match policy {
                "full" => first_of.get(&content).copied(),
                _ if is_repeated(at) => places[at - 1],
                _ => None,
            };
            let place = match content {
                0 => None,
                _ if shares => found[at],
                _ => intra_duplicate.or(Some(self.slots.len())),
            };
            is_written.push(place == Some(self.slots.len()));
            if place == Some(self.slots.len()) {
                self.slots.push(content);
                first_of.entry(content).or_insert(self.slots.len() - 1);
            }
            places.push(place);
        }
        // The block and those to either side of it that are in slots that follow each other.
        let run = |list: &[Option<usize>], at: usize| {
            let slot = list[at].unwrap();
            let back = (1..=at.min(slot)).take_while(|&i| list[at - i] == Some(slot - i)).count();
            1 + back + (1..list.len() - at).take_while(|&i| list[at + i] == Some(slot + i)).count()
        };
        for at in 0..request.len() {
            if is_written[at] && (found[at].is_none() || run(&places, at) > run(&found, at)) {
                let place = if found[at].is_none() { first_of[&request[at]] } else { places[at].unwrap() };
                self.known.insert(request[at], place);
            }
        }
        let removed = (0..request.len()).filter(|&at| places[at].is_some() && !is_written[at]).count() as u64;
        self.removed += removed;
        self.removed_requests += u64::from(removed > 0 && !is_written.contains(&true));
        self.map.extend(places);
    }

    /// Counts the reads of 32 blocks, and the device reads that they take.
    fn device_reads(&self, map: &[Option<usize>]) -> (u64, u64) {
        let (mut reads, mut device_reads) = (0, 0);
        for part in map.chunks(32) {
            let mut seen = HashSet::new();
            let slots: Vec<usize> = part.iter().flatten().copied().filter(|slot| seen.insert(*slot)).collect();
            let breaks = slots.windows(2).filter(|pair| pair[1] != pair[0] + 1 || pair[1] % 1024 == 0).count();
            reads += u64::from(!slots.is_empty());
            device_reads += if slots.is_empty() { 0 } else { breaks as u64 + 1 };
        }
        (reads, device_reads)
    }
}

#[test]
fn an_exact_estimate_is_what_a_naive_computation_says() {
    let (folder, mut chance) = (Folder::new("naive"), Chance(1));
    let files: Vec<Vec<u32>> =
        [1, 300, 17, 2000, 1024].iter().map(|&blocks| contents(&mut chance, blocks, 150, true)).collect();
    for (number, file) in files.iter().enumerate() {
        folder.file(&format!("{number}"), file);
    }
    let estimate = estimate_of(&folder.0, &[]);
    assert!(estimate.exact && !estimate.interrupted);
    let payload = files.iter().flatten().filter(|content| **content != 0).count() as u64;
    let different: HashSet<u32> = files.iter().flatten().copied().filter(|content| *content != 0).collect();
    let zeroes = files.iter().map(Vec::len).sum::<usize>() as u64 - payload;
    assert_eq!((estimate.payload_blocks, estimate.zero_blocks), (payload, zeroes));
    assert_eq!(estimate.distinct_blocks, Figure::exact(different.len() as f64));
    assert_eq!(estimate.estimates.len(), 20);
    for policy in ["full", "select", "idedup"] {
        for request_blocks in [1, 4, 16, 64, 256] {
            let mut naive = Naive::default();
            let (mut requests, mut reads, mut device_reads) = (0, 0, 0);
            for file in &files {
                naive.map.clear();
                for request in file.chunks(request_blocks) {
                    naive.write(policy, request);
                    requests += 1;
                }
                let (more, device) = naive.device_reads(&naive.map);
                (reads, device_reads) = (reads + more, device_reads + device);
            }
            let row = row(&estimate, policy, (request_blocks * BLOCK) as u64);
            let exact = |count: u64| Figure::exact(count as f64);
            assert_eq!(row.requests, requests);
            assert_eq!(row.removed_blocks, exact(naive.removed), "{policy} {request_blocks}");
            assert_eq!(row.written_blocks, exact(naive.slots.len() as u64), "{policy} {request_blocks}");
            assert_eq!(row.removed_requests, exact(naive.removed_requests), "{policy} {request_blocks}");
            assert_eq!(row.categories.map(|figure| figure.value as u64), naive.categories, "{policy} {request_blocks}");
            let per_read = device_reads as f64 / reads as f64;
            assert_eq!(row.device_reads_per_read, Figure::exact(per_read), "{policy} {request_blocks}");
        }
    }
    let native = row(&estimate, "native", 4096);
    assert_eq!((native.removed_blocks.value, native.written_blocks.value), (0.0, payload as f64));
}

#[test]
fn a_sample_in_little_memory_is_within_its_intervals() {
    let (folder, mut chance) = (Folder::new("sample"), Chance(2));
    // 200 MiB: halves that are mostly copies, and others that are mostly new.
    for number in 0..10 {
        let known = if number % 2 == 0 { 3000 } else { 400_000 };
        folder.file(&format!("{number}"), &contents(&mut chance, 5120, known, false));
    }
    let exact = estimate_of(&folder.0, &[]);
    let sampled = estimate_of(&folder.0, &["--memory", "1500K"]);
    assert!(exact.exact && !sampled.exact);
    assert_eq!((exact.payload_blocks, exact.zero_blocks), (sampled.payload_blocks, sampled.zero_blocks));
    let (mut figures, mut outside) = (0, Vec::new());
    let mut compare = |name: String, sampled: Figure, exact: Figure| {
        figures += 1;
        assert!(exact.half() == 0.0 && sampled.low <= sampled.value && sampled.value <= sampled.high, "{name}");
        // The interval, and a little for slots that lie in the order of the data.
        let slack = 0.02 * exact.value.abs() + 1e-9;
        if sampled.low - slack > exact.value || sampled.high + slack < exact.value {
            outside.push(format!("{name}: {sampled:?}, truly {}", exact.value));
        }
    };
    compare("different".into(), sampled.distinct_blocks, exact.distinct_blocks);
    for (sampled, exact) in sampled.estimates.iter().zip(&exact.estimates) {
        let name = format!("{} {}", exact.policy, exact.request_bytes);
        assert_eq!((&sampled.policy, sampled.requests), (&exact.policy, exact.requests));
        compare(format!("{name} removed blocks"), sampled.removed_blocks, exact.removed_blocks);
        compare(format!("{name} removed requests"), sampled.removed_requests, exact.removed_requests);
        compare(format!("{name} unknown"), sampled.categories[0], exact.categories[0]);
        compare(format!("{name} device reads"), sampled.device_reads_per_read, exact.device_reads_per_read);
    }
    assert!(outside.len() * 10 <= figures, "{} of {figures} miss: {outside:#?}", outside.len());
    // An interval that says nothing would hold everything.
    let full = row(&sampled, "full", 4096).removed_blocks;
    assert!(full.half() < 0.1 * full.value, "{full:?}");
}

#[test]
fn files_are_read_once_and_links_are_not_followed() {
    let folder = Folder::new("walk");
    let file = folder.file("file", &[1, 2, 3]);
    fs::create_dir_all(folder.0.join("below/further")).unwrap();
    folder.file("below/further/other", &[3, 4]);
    fs::hard_link(&file, folder.0.join("below/again")).unwrap();
    symlink(&file, folder.0.join("link")).unwrap();
    symlink(&folder.0, folder.0.join("below/circle")).unwrap();
    let estimate = estimate_of(&folder.0, &["--policy", "full", "--request-size", "4K"]);
    assert_eq!((estimate.payload_blocks, estimate.estimates.len()), (5, 1));
    assert_eq!(row(&estimate, "full", 4096).removed_blocks, Figure::exact(1.0));
    // A named symbolic link counts as its target.
    assert_eq!(estimate_of(&folder.0.join("link"), &[]).payload_blocks, 3);
}

#[test]
fn holes_are_not_written_and_ends_of_files_are_filled_with_zeroes() {
    let folder = Folder::new("holes");
    let path = folder.0.join("sparse");
    let file = fs::File::create(&path).unwrap();
    file.set_len(64 << 20).unwrap();
    file.write_all_at(&[7; BLOCK], 32 << 20).unwrap();
    file.write_all_at(&[7; 100], (64 << 20) - 100).unwrap();
    let estimate = estimate_of(&path, &[]);
    assert_eq!((estimate.payload_blocks, estimate.distinct_blocks.value), (2, 2.0));
    assert_eq!(row(&estimate, "full", 4096).requests, 2 + estimate.zero_blocks);
    assert_eq!(row(&estimate, "full", 1 << 20).requests, 2);
    // The end of a file is a block, the rest of it zeroes.
    fs::write(folder.0.join("short"), vec![9; BLOCK + 10]).unwrap();
    let mut padded = vec![9; BLOCK + 10];
    padded.resize(2 * BLOCK, 0);
    fs::write(folder.0.join("padded"), padded).unwrap();
    fs::remove_file(path).unwrap();
    assert_eq!(row(&estimate_of(&folder.0, &[]), "full", 8192 * 2).removed_blocks, Figure::exact(2.0));
}

#[test]
fn what_cannot_be_estimated_is_named() {
    let folder = Folder::new("errors");
    let said = |name: &str| try_estimate_of(&folder.0.join(name), &[]).err().unwrap().to_string();
    assert!(said("missing").contains("missing does not exist"));
    assert!(said("").contains("no files"));
    let parse = |more: [&str; 2]| {
        Cli::try_parse_from(["onefold", "estimate", "x", more[0], more[1]]).err().unwrap().to_string()
    };
    assert!(parse(["--policy", "some"]).contains("native, observe, full, select or idedup"));
    assert!(parse(["--request-size", "12K"]).contains("power of two from 4K to 1M"));
    assert!(parse(["--request-size", "2M"]).contains("power of two"));
    assert!(parse(["--memory", "4K"]).contains("1M at least"));
}

#[test]
fn a_report_says_what_it_is_worth() {
    let (folder, mut chance) = (Folder::new("report"), Chance(3));
    folder.file("a", &contents(&mut chance, 30_000, 500, false));
    let short = estimate_of(&folder.0, &[]).text(false);
    let first = short.lines().next().unwrap();
    assert!(
        first.starts_with("A pool would save ") && first.contains("with the policy 'select' (the default)"),
        "{short}"
    );
    assert!(short.lines().count() <= 10 && short.contains("--all") && !short.contains("idedup"), "{short}");
    let text = estimate_of(&folder.0, &[]).text(true);
    assert!(text.starts_with(first));
    for part in ["117.2 MiB, 1 file", "exact", "0.4 GB for each TB", "sample of", "native", "idedup", "256 KiB"] {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
    let text = estimate_of(&folder.0, &["--memory", "1M"]).text(true);
    for part in ["by one content in", "of 118 segments", "±"] {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
    let json = serde_json::to_value(estimate_of(&folder.0, &[])).unwrap();
    assert_eq!(json["estimates"][19]["policy"], "idedup");
    assert!(json["estimates"][5]["categories"]["sequential"]["estimate"].is_number());
}
