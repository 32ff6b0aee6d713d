//! Readers of the real samples of FIU's traces. They split the words of the lines, independently of `repro`'s own readers.
//!
//! The samples are in `../shared/data`, seen from the root of the project. Without them tests report that and pass.

use std::path::{Path, PathBuf};

/// Returns the path of a sample, if it exists.
pub fn sample(name: &str) -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data").join(name);
    if !path.exists() {
        eprintln!("skipped: there is no sample at {}", path.display());
        return None;
    }
    Some(path)
}

/// A record of FIU's text, from the words of its line.
pub struct Words {
    pub ns: u64,
    pub pid: String,
    pub op: String,
    pub lba: u64,
    pub digest: String,
}

/// Reads the records of mail's sample, which has tabs, a row number and a row of headings.
pub fn of_mail(path: &Path) -> Vec<Words> {
    let text = std::fs::read_to_string(path).expect("it is text");
    text.lines().skip(1).map(|line| words(&line.split('\t').skip(1).collect::<Vec<_>>())).collect()
}

/// Reads the records of homes' sample.
pub fn of_homes(path: &Path) -> Vec<Words> {
    let text = std::fs::read_to_string(path).expect("it is text");
    text.lines().map(|line| words(&line.split(' ').collect::<Vec<_>>())).collect()
}

fn words(words: &[&str]) -> Words {
    let number = |index: usize| words[index].parse().expect("a number");
    Words { ns: number(0), pid: words[1].into(), op: words[5].into(), lba: number(3), digest: words[8].into() }
}

/// Groups the records by request: one process, one operation, consecutive places, and at most 1 ms between two records.
pub fn joined(records: &[Words]) -> Vec<Vec<&Words>> {
    let mut requests: Vec<Vec<&Words>> = Vec::new();
    for record in records {
        let follows = requests.last().and_then(|request| request.last()).is_some_and(|before| {
            (&before.pid, &before.op, before.lba + 8) == (&record.pid, &record.op, record.lba)
                && record.ns - before.ns <= 1_000_000
        });
        match requests.last_mut() {
            Some(request) if follows => request.push(record),
            _ => requests.push(vec![record]),
        }
    }
    requests
}
