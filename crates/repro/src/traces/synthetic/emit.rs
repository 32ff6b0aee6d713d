//! Writer of requests as FIU text: a record for each block.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;

use super::{BLOCK, DAY, Profile, days};
use crate::traces::{Request, fiu};

/// Number of processes that alternate, so that two consecutive requests are never read as one.
const PROCESSES: u64 = 7;

const SECTORS: u64 = BLOCK / 512;

/// Writes requests as lines of FIU's text. `number` counts them.
pub fn lines(out: &mut impl Write, profile: Profile, request: &Request, number: u64) -> io::Result<()> {
    let gap = profile.shape().record_gap_us * 1000;
    let op = if request.writes { 'W' } else { 'R' };
    let process = 1000 + number % PROCESSES;
    for (index, (block, &content)) in (request.block..).zip(&request.contents).enumerate() {
        let (at, sector) = (request.at + index as u64 * gap, block * SECTORS);
        writeln!(out, "{at} {process} synthetic {sector} {SECTORS} {op} 6 0 {}", fiu::digest(content))?;
    }
    Ok(())
}

/// Writes days to one file; or, if `out` is a directory, each to a file of its own. Returns the files.
pub fn write_files(
    profile: Profile,
    seed: u64,
    which: RangeInclusive<u32>,
    out: &Path,
    gzip: bool,
) -> io::Result<Vec<PathBuf>> {
    let mut requests = days(profile, seed, which.clone()).peekable();
    let mut files = Vec::new();
    let mut number = 0;
    if !out.is_dir() {
        let mut file = create(out, gzip)?;
        for request in requests {
            lines(&mut file, profile, &request, number)?;
            number += 1;
        }
        file.finish()?;
        return Ok(vec![out.to_path_buf()]);
    }
    for day in which {
        let ending = if gzip { ".gz" } else { "" };
        let path = out.join(format!("synthetic-{}-{seed}.{day}.blkparse{ending}", profile.name()));
        let mut file = create(&path, gzip)?;
        while let Some(request) = requests.next_if(|request| request.at / DAY < u64::from(day)) {
            lines(&mut file, profile, &request, number)?;
            number += 1;
        }
        file.finish()?;
        files.push(path);
    }
    Ok(files)
}

/// A file, plain or gzip.
enum Output {
    Plain(BufWriter<File>),
    Gzip(Box<GzEncoder<BufWriter<File>>>),
}

fn create(path: &Path, gzip: bool) -> io::Result<Output> {
    let file = BufWriter::with_capacity(1 << 18, File::create(path)?);
    Ok(if gzip { Output::Gzip(Box::new(GzEncoder::new(file, Compression::fast()))) } else { Output::Plain(file) })
}

impl Output {
    fn finish(self) -> io::Result<()> {
        match self {
            Output::Plain(mut file) => file.flush(),
            Output::Gzip(file) => file.finish()?.flush(),
        }
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Output::Plain(file) => file.write(bytes),
            Output::Gzip(file) => file.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Output::Plain(file) => file.flush(),
            Output::Gzip(file) => file.flush(),
        }
    }
}
