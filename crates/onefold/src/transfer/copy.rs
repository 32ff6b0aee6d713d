//! The loop of a transfer: chunks in order, several at a time; then every chunk is read back and compared.
//!
//! A chunk that was copied is known by its digest (BLAKE3), so the source is read once; what the verification reads is the destination as
//! any client would get it. 33 bytes are kept for each chunk: 33 MiB for an image of 1 TiB.
//!
//! Invariants: a chunk that equals the source is not written again, which is how an interrupted transfer goes on; one that holds
//! something else is left alone and ends the transfer, unless it may be overwritten.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use anyhow::{anyhow, bail};

use crate::progress::Progress;
use crate::transfer::disk::{Disk, Place};

/// Bytes that are copied at once.
const CHUNK: usize = 1 << 20;
/// A block: what is compared and skipped.
const BLOCK: usize = 4096;
/// Zeroes of so many bytes are not written into what is zero.
const GAP: usize = 64 << 10;
/// Chunks at a time.
const WORKERS: usize = 4;
/// How far ahead a source is asked where its data is.
const LOOK_AHEAD: u64 = 1 << 30;

/// What a destination holds before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Before {
    /// Nothing: it reads as zeroes.
    Empty,
    /// A part of the same transfer, or nothing. Anything else is left alone.
    Part,
    /// Anything: it is overwritten.
    Anything,
}

/// What a transfer came to, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Outcome {
    /// What is not zero in the source, by chunks.
    pub data: u64,
    /// What was written; the rest was there.
    pub written: u64,
}

/// That somebody asked for the end.
#[derive(Debug)]
pub struct Interrupted;

impl std::fmt::Display for Interrupted {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("interrupted")
    }
}

impl std::error::Error for Interrupted {}

type Digest = [u8; 32];

/// Whether a disk says of itself that all of it reads as zeroes, up to `size`.
pub fn is_empty(place: &Place, size: u64) -> anyhow::Result<bool> {
    let (mut disk, mut at) = (place.open(false)?, 0);
    while at < size {
        for extent in disk.extents(at, LOOK_AHEAD.min(size - at))? {
            if !extent.is_zero {
                return Ok(false);
            }
            at += extent.length;
        }
    }
    Ok(true)
}

/// A transfer.
pub struct Transfer<'a> {
    /// Where the data is.
    pub source: &'a Place,
    /// Where it goes.
    pub destination: &'a Place,
    /// Bytes of the destination that are to be as the source; zeroes beyond the source's end.
    pub size: u64,
    /// What the destination holds before.
    pub before: Before,
    /// What is shown of the copying.
    pub what: &'static str,
    /// Set when the end is asked for.
    pub stop: &'a AtomicBool,
}

impl Transfer<'_> {
    /// Copies everything, makes it durable, reads it back and compares.
    pub fn run(&self) -> anyhow::Result<Outcome> {
        let progress = Mutex::new(Progress::new(self.what, self.size));
        let (next, ended) = (AtomicU64::new(0), AtomicBool::new(false));
        let copied = self.workers(&ended, || self.copy(&next, &ended, &progress))?;
        self.destination.open(true)?.flush()?;
        drop(progress);
        let mut outcome = Outcome::default();
        let mut digests: Vec<Option<Digest>> = vec![None; self.size.div_ceil(CHUNK as u64) as usize];
        for (part, chunks) in copied {
            outcome.data += part.data;
            outcome.written += part.written;
            for (number, digest) in chunks {
                digests[number as usize] = Some(digest);
            }
        }
        let progress = Mutex::new(Progress::new("verifying", self.size));
        let (next, ended) = (AtomicU64::new(0), AtomicBool::new(false));
        self.workers(&ended, || self.verify(&next, &ended, &digests, &progress))?;
        Ok(outcome)
    }

    /// Runs the workers to their ends; the first error, if there is one.
    fn workers<T: Send>(
        &self,
        ended: &AtomicBool,
        work: impl Fn() -> anyhow::Result<T> + Sync,
    ) -> anyhow::Result<Vec<T>> {
        std::thread::scope(|scope| {
            let work = &work;
            let one = move || {
                let result = work();
                if result.is_err() {
                    ended.store(true, Ordering::Relaxed);
                }
                result
            };
            let workers: Vec<_> = (0..WORKERS).map(|_| scope.spawn(one)).collect();
            let mut results = Vec::new();
            let mut failed = None;
            for worker in workers {
                match worker.join().unwrap_or_else(|_| Err(anyhow!("a defect of this program: please report it"))) {
                    Ok(result) => results.push(result),
                    Err(error) => drop(failed.get_or_insert(error)),
                }
            }
            if self.stop.load(Ordering::Relaxed) {
                return Err(anyhow::Error::new(Interrupted));
            }
            failed.map_or(Ok(results), Err)
        })
    }

    /// The next chunk: its number, where it begins and how long it is.
    fn chunk(&self, next: &AtomicU64, ended: &AtomicBool) -> Option<(u64, u64, usize)> {
        if self.stop.load(Ordering::Relaxed) || ended.load(Ordering::Relaxed) {
            return None;
        }
        let number = next.fetch_add(1, Ordering::Relaxed);
        let offset = number.checked_mul(CHUNK as u64).filter(|offset| *offset < self.size)?;
        Some((number, offset, (self.size - offset).min(CHUNK as u64) as usize))
    }

    fn copy(
        &self,
        next: &AtomicU64,
        ended: &AtomicBool,
        progress: &Mutex<Progress>,
    ) -> anyhow::Result<(Outcome, Vec<(u64, Digest)>)> {
        let (mut source, mut destination) = (self.source.open(false)?, self.destination.open(true)?);
        let (mut source_holes, mut holes) = (Holes::default(), Holes::default());
        let (mut data, mut there) = (vec![0; CHUNK], vec![0; CHUNK]);
        let (mut outcome, mut digests) = (Outcome::default(), Vec::new());
        while let Some((number, offset, length)) = self.chunk(next, ended) {
            let (data, there) = (&mut data[..length], &mut there[..length]);
            if source_holes.cover(&mut source, offset, length)? {
                data.fill(0);
            } else {
                source.read(offset, data)?;
            }
            let is_zero = is_zero(data);
            if !is_zero {
                digests.push((number, *blake3::hash(data).as_bytes()));
                outcome.data += length as u64;
            }
            let empty = self.before == Before::Empty || holes.cover(&mut destination, offset, length)?;
            if empty {
                if !is_zero {
                    outcome.written += write_data(&mut destination, offset, data)?;
                }
            } else {
                destination.read(offset, there)?;
                outcome.written += self.replace(&mut destination, offset, data, there)?;
            }
            add(progress, length);
        }
        Ok((outcome, digests))
    }

    /// Writes what differs over what is there; how much that was.
    fn replace(&self, destination: &mut Disk, offset: u64, data: &[u8], there: &[u8]) -> anyhow::Result<u64> {
        if data == there {
            return Ok(0);
        }
        let blocks = || data.chunks(BLOCK).zip(there.chunks(BLOCK)).enumerate();
        if self.before == Before::Part
            && let Some((number, _)) = blocks().find(|(_, (data, there))| data != there && !is_zero(there))
        {
            bail!(
                "at byte {} there is something else, which is not from this image: nothing of it was overwritten. \
                 --overwrite replaces everything that is there",
                offset + (number * BLOCK) as u64
            );
        }
        if is_zero(data) {
            destination.zero(offset, data.len())?;
        } else {
            destination.write(offset, data)?;
        }
        Ok(data.len() as u64)
    }

    fn verify(
        &self,
        next: &AtomicU64,
        ended: &AtomicBool,
        digests: &[Option<Digest>],
        progress: &Mutex<Progress>,
    ) -> anyhow::Result<()> {
        let mut destination = self.destination.open(false)?;
        let (mut holes, mut there) = (Holes::default(), vec![0; CHUNK]);
        while let Some((number, offset, length)) = self.chunk(next, ended) {
            let there = &mut there[..length];
            let wanted = digests[number as usize];
            if wanted.is_some() || !holes.cover(&mut destination, offset, length)? {
                destination.read(offset, there)?;
                let is_right = match wanted {
                    Some(digest) => *blake3::hash(there).as_bytes() == digest,
                    None => is_zero(there),
                };
                if !is_right {
                    bail!(
                        "verification failed: between byte {offset} and byte {} the result is not what was read. Did \
                         somebody else write to it meanwhile?",
                        offset + length as u64
                    );
                }
            }
            add(progress, length);
        }
        Ok(())
    }
}

fn add(progress: &Mutex<Progress>, bytes: usize) {
    if let Ok(mut progress) = progress.lock() {
        progress.add(bytes as u64);
    }
}

/// Writes what is not zero into what is; how much that was.
fn write_data(destination: &mut Disk, offset: u64, data: &[u8]) -> anyhow::Result<u64> {
    let mut written = 0;
    for (from, to) in stretches(data) {
        destination.write(offset + from as u64, &data[from..to])?;
        written += (to - from) as u64;
    }
    Ok(written)
}

/// The parts with data, whole blocks; zeroes between them belong to them where they are few.
fn stretches(data: &[u8]) -> Vec<(usize, usize)> {
    let mut found: Vec<(usize, usize)> = Vec::new();
    for (number, block) in data.chunks(BLOCK).enumerate().filter(|(_, block)| !is_zero(block)) {
        let (from, to) = (number * BLOCK, number * BLOCK + block.len());
        match found.last_mut() {
            Some((_, end)) if from - *end < GAP => *end = to,
            _ => found.push((from, to)),
        }
    }
    found
}

fn is_zero(data: &[u8]) -> bool {
    data.iter().all(|byte| *byte == 0)
}

/// What is known of where a disk reads as zeroes: the last part that was asked for.
#[derive(Default)]
struct Holes {
    from: u64,
    to: u64,
    is_zero: bool,
}

impl Holes {
    /// Whether a range is known to read as zeroes.
    fn cover(&mut self, disk: &mut Disk, offset: u64, length: usize) -> anyhow::Result<bool> {
        let (mut at, end) = (offset, offset + length as u64);
        while at < end {
            if !(self.from..self.to).contains(&at) {
                let extents = disk.extents(at, LOOK_AHEAD)?;
                self.is_zero = extents.first().is_some_and(|extent| extent.is_zero);
                let same = extents.iter().take_while(|extent| extent.is_zero == self.is_zero);
                (self.from, self.to) = (at, at + same.map(|extent| extent.length).sum::<u64>().max(1));
            }
            if !self.is_zero {
                return Ok(false);
            }
            at = self.to;
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;
    use std::path::PathBuf;

    /// Two raw files: an image of a few chunks with holes, and where it goes.
    struct Files {
        source: PathBuf,
        destination: PathBuf,
    }

    const SIZE: u64 = 9 * CHUNK as u64 + 512;

    impl Files {
        fn new(name: &str) -> Files {
            let path = std::env::temp_dir().join(format!("onefold-copy-{name}-{}", std::process::id()));
            let files = Files { source: path.with_extension("in"), destination: path.with_extension("out") };
            let source = std::fs::File::create(&files.source).unwrap();
            source.set_len(SIZE).unwrap();
            for (at, byte) in [(0, 1), (CHUNK as u64 - 10, 2), (3 * CHUNK as u64 + 5000, 3), (SIZE - 3, 4)] {
                source.write_all_at(&[byte; 3], at).unwrap();
            }
            std::fs::File::create(&files.destination).unwrap().set_len(SIZE).unwrap();
            files
        }

        fn run(&self, before: Before) -> anyhow::Result<Outcome> {
            let (source, destination) = (Place::File(self.source.clone()), Place::File(self.destination.clone()));
            let (source, destination, stop) = (&source, &destination, &AtomicBool::new(false));
            Transfer { source, destination, size: SIZE, before, what: "copying", stop }.run()
        }

        fn are_equal(&self) -> bool {
            std::fs::read(&self.source).unwrap() == std::fs::read(&self.destination).unwrap()
        }

        fn destroy(&self, at: u64) {
            let file = std::fs::OpenOptions::new().write(true).open(&self.destination).unwrap();
            file.write_all_at(b"else", at).unwrap();
        }
    }

    impl Drop for Files {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.source);
            let _ = std::fs::remove_file(&self.destination);
        }
    }

    #[test]
    fn what_was_there_is_not_written_again() {
        let files = Files::new("again");
        assert!(is_empty(&Place::File(files.destination.clone()), SIZE).unwrap());
        let first = files.run(Before::Empty).unwrap();
        assert!(files.are_equal());
        assert!(!is_empty(&Place::File(files.destination.clone()), SIZE).unwrap());
        assert!(first.written > 0 && first.written < 100 << 10, "{first:?}");
        assert_eq!(files.run(Before::Part).unwrap(), Outcome { written: 0, ..first });
        assert!(files.are_equal());
    }

    #[test]
    fn something_else_is_overwritten_only_if_that_was_asked_for() {
        for at in [100, 5 * CHUNK as u64 + 77] {
            let files = Files::new(&format!("else-{at}"));
            files.destroy(at);
            let error = files.run(Before::Part).unwrap_err().to_string();
            assert!(error.contains(&format!("at byte {} there", at / 4096 * 4096)), "{error}");
            files.run(Before::Anything).unwrap();
            assert!(files.are_equal());
        }
    }

    #[test]
    fn an_end_that_was_asked_for_is_told_apart_from_an_error() {
        let files = Files::new("stop");
        let (source, destination) = (Place::File(files.source.clone()), Place::File(files.destination.clone()));
        let transfer = Transfer {
            source: &source,
            destination: &destination,
            size: SIZE,
            before: Before::Empty,
            what: "copying",
            stop: &AtomicBool::new(true),
        };
        assert!(transfer.run().unwrap_err().is::<Interrupted>());
    }

    #[test]
    fn zeroes_between_data_are_written_only_where_they_are_few() {
        let mut data = vec![0; CHUNK];
        (data[0], data[2 * BLOCK], data[CHUNK - 1]) = (1, 1, 1);
        assert_eq!(stretches(&data), [(0, 3 * BLOCK), (CHUNK - BLOCK, CHUNK)]);
        assert_eq!(stretches(&data[BLOCK..2 * BLOCK]), []);
        assert_eq!(stretches(&[1; 10]), [(0, 10)]);
    }
}
