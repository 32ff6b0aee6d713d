//! A reader of the writes of FIU trace samples. It joins the records of 4 KiB, each with the hash of its content, to the original requests.

use std::collections::BTreeMap;

use super::PIECE;

/// Maximum time between two records of one request: one millisecond.
const GAP_NANOS: u64 = 1_000_000;
/// MD5 of 512 bytes of zeroes.
const ZERO_SECTOR: &str = "bf619eac0cdf3f68d496ea9344137e8b";
/// MD5 of 4096 bytes of zeroes.
const ZERO_PAGE: &str = "620f0b67a91f7f74151bc5be745b7110";

/// The writes of a sample.
pub struct Sample {
    /// First block, and a number for the content of each block; 0 is a block of zeroes.
    pub writes: Vec<(u64, Vec<u32>)>,
    /// Blocks of a volume that has space for all of them.
    pub blocks: u64,
}

struct Record {
    nanos: u64,
    process: u64,
    block: u64,
    content: u32,
}

/// Reads the format of homes: eight hashes a record, one for each sector.
pub fn homes(text: &str) -> Sample {
    requests(records(text.lines().map(|line| line.split(' ').collect())))
}

/// Reads the format of the mail sample: tabs, a header, numbered rows.
pub fn mail(text: &str) -> Sample {
    requests(records(text.lines().skip(1).map(|line| line.split('\t').skip(1).collect())))
}

fn records<'a>(lines: impl Iterator<Item = Vec<&'a str>>) -> Vec<Record> {
    let mut contents = BTreeMap::new();
    let mut records = Vec::new();
    for fields in lines {
        let [nanos, process, _, sector, sectors, operation, _, _, hash] = fields[..] else {
            panic!("a record has nine fields: {fields:?}")
        };
        let number = |text: &str| text.parse::<u64>().expect("a number");
        assert_eq!(number(sectors), 8, "records are of 4 KiB");
        if operation != "W" {
            continue;
        }
        let is_zero = hash == ZERO_PAGE || hash.len() == 256 && hash == ZERO_SECTOR.repeat(8);
        let next = contents.len() as u32 + 1;
        let content = if is_zero { 0 } else { *contents.entry(hash).or_insert(next) };
        assert_eq!(number(sector) % 8, 0, "records are aligned");
        records.push(Record { nanos: number(nanos), process: number(process), block: number(sector) / 8, content });
    }
    records
}

/// Joins the records of one process that follow each other on disk within a millisecond to one request. Places are compacted: adjacent blocks stay
/// adjacent, and others do not become so.
fn requests(records: Vec<Record>) -> Sample {
    let mut places: BTreeMap<u64, u64> = records.iter().map(|record| (record.block, 0)).collect();
    let (mut before, mut next) = (None, 0);
    for (&block, place) in &mut places {
        next += if before.is_some_and(|before: u64| before + 1 == block) { 1 } else { 2 };
        (*place, before) = (next, Some(block));
    }
    let mut writes: Vec<(u64, Vec<u32>)> = Vec::new();
    let mut last: Option<&Record> = None;
    for record in &records {
        let continues = |last: &Record| {
            last.process == record.process && last.block + 1 == record.block && record.nanos - last.nanos <= GAP_NANOS
        };
        match writes.last_mut().filter(|(_, contents)| contents.len() < PIECE) {
            Some((_, contents)) if last.is_some_and(continues) => contents.push(record.content),
            _ => writes.push((places[&record.block], vec![record.content])),
        }
        last = Some(record);
    }
    Sample { writes, blocks: next + 2 }
}
