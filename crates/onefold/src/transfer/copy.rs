//! The loop of a transfer: from piece to piece, several at a time; then every one is read back and compared.
//!
//! Pieces are chunks in which an end may hold data (`extents`); holes of both ends are passed over, and cost nothing for their length.
//!
//! A copied chunk is known by its digest (BLAKE3), so the source is read once. The verification reads the destination as any client would get it. 40 bytes are
//! kept for each chunk with data: 40 MiB for 1 TiB of data.
//!
//! Invariants: a chunk that equals the source is not written again, so an interrupted transfer can resume; one that holds something else is left alone and ends
//! the transfer, unless it may be overwritten.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{anyhow, bail};

use crate::io::digest::is_zero;
use crate::progress::Progress;
use crate::transfer::disk::{Disk, Place};
use crate::transfer::extents::{Allocation, CHUNK, Piece, Pieces};

/// Bytes of a block, the unit of comparing and skipping.
const BLOCK: usize = 4096;
/// Bytes of zeroes from which on they are not written into zeroes.
const GAP: usize = 64 << 10;
/// Chunks at a time.
const WORKERS: usize = 4;

/// Contents of a destination before the transfer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Before {
    /// Nothing: it reads as zeroes.
    Empty,
    /// A part of the same transfer, or nothing. Anything else is left alone.
    Part,
    /// Anything: it is overwritten.
    Anything,
}

/// Byte counts of a transfer that has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Outcome {
    /// Bytes of blocks in the source that are not zero.
    pub data: u64,
    /// Bytes of these that the destination held already, unchanged.
    pub in_place: u64,
    /// Bytes written, with the zeroes within a stretch.
    pub written: u64,
}

/// Error of a transfer whose end was requested.
#[derive(Debug)]
pub struct Interrupted;

impl std::fmt::Display for Interrupted {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("interrupted")
    }
}

impl std::error::Error for Interrupted {}

type Digest = [u8; 32];

/// Returns true if a disk says of itself that all of it reads as zeroes, up to `size`.
pub fn is_empty(place: &Place, size: u64) -> anyhow::Result<bool> {
    Ok(Allocation::open(place)?.zeroes_to(0, size)? >= size)
}

/// A transfer.
pub struct Transfer<'a> {
    /// Disk that the data is read from.
    pub source: &'a Place,
    /// Disk that the data is written to.
    pub destination: &'a Place,
    /// Bytes of the destination that are to be as the source; zeroes beyond the source's end.
    pub size: u64,
    /// Contents of the destination before the transfer.
    pub before: Before,
    /// Name of the copying in the progress shown.
    pub what: &'static str,
    /// Set when the end is requested.
    pub stop: &'a AtomicBool,
}

impl Transfer<'_> {
    /// Transfers everything, makes it durable, reads it back and compares.
    pub fn run(&self) -> anyhow::Result<Outcome> {
        // An empty destination is not asked for its holes.
        let before = if self.before == Before::Empty { None } else { Some(Allocation::open(self.destination)?) };
        let pieces = Pieces::new([Some(Allocation::open(self.source)?), before], self.size);
        let walk = Mutex::new(Walk {
            pieces,
            progress: Progress::new(self.what, self.size),
            digests: Vec::new().into_iter().peekable(),
        });
        let copied = self.workers(|ended| self.copy(&walk, ended))?;
        self.destination.open(true)?.flush()?;
        drop(walk);
        let (mut outcome, mut digests) = (Outcome::default(), Vec::new());
        for (part, chunks) in copied {
            outcome.data += part.data;
            outcome.in_place += part.in_place;
            outcome.written += part.written;
            digests.extend(chunks);
        }
        digests.sort_unstable_by_key(|(number, _)| *number);
        let pieces = Pieces::new([None, Some(Allocation::open(self.destination)?)], self.size);
        let digests = digests.into_iter().peekable();
        let walk = Mutex::new(Walk { pieces, progress: Progress::new("verifying", self.size), digests });
        self.workers(|ended| self.verify(&walk, ended))?;
        Ok(outcome)
    }

    /// Starts the workers and waits for their ends; returns the first error, if there is one.
    fn workers<T: Send>(&self, work: impl Fn(&AtomicBool) -> anyhow::Result<T> + Sync) -> anyhow::Result<Vec<T>> {
        let ended = &AtomicBool::new(false);
        std::thread::scope(|scope| {
            let work = &work;
            let one = move || {
                let result = work(ended);
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

    /// Takes the next piece, and the digest of its content.
    fn next(&self, walk: &Mutex<Walk>, ended: &AtomicBool) -> anyhow::Result<Option<(Piece, Option<Digest>)>> {
        let mut walk = walk.lock().map_err(|_| anyhow!("another worker of the transfer has failed"))?;
        if self.stop.load(Ordering::Relaxed) || ended.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let Walk { pieces, progress, digests } = &mut *walk;
        let (passed, piece) = pieces.next(digests.peek().map(|(number, _)| *number))?;
        progress.add(passed);
        let Some(piece) = piece else { return Ok(None) };
        let digest = digests.next_if(|(number, _)| *number == piece.number).map(|(_, digest)| digest);
        Ok(Some((piece, digest)))
    }

    fn copy(&self, walk: &Mutex<Walk>, ended: &AtomicBool) -> anyhow::Result<(Outcome, Vec<(u64, Digest)>)> {
        let (mut source, mut destination) = (self.source.open(false)?, self.destination.open(true)?);
        let (mut data, mut there) = (vec![0; CHUNK], vec![0; CHUNK]);
        let (mut outcome, mut digests) = (Outcome::default(), Vec::new());
        while let Some((Piece { number, offset, length, has_data: [source_has, destination_has] }, _)) =
            self.next(walk, ended)?
        {
            let (data, there) = (&mut data[..length], &mut there[..length]);
            if source_has {
                source.read(offset, data)?;
            } else {
                data.fill(0);
            }
            let is_empty = is_zero(data);
            if !is_empty {
                digests.push((number, *blake3::hash(data).as_bytes()));
            }
            let used = bytes_of(data.chunks(BLOCK).filter(|block| !is_zero(block)));
            outcome.data += used;
            if destination_has {
                destination.read(offset, there)?;
                let blocks = data.chunks(BLOCK).zip(there.chunks(BLOCK));
                let same = blocks.filter(|(data, there)| data == there && !is_zero(data));
                outcome.in_place += bytes_of(same.map(|(data, _)| data));
                outcome.written += self.replace(&mut destination, offset, data, there)?;
            } else if !is_empty {
                outcome.written += write_data(&mut destination, offset, data)?;
            }
            add(walk, length);
        }
        Ok((outcome, digests))
    }

    /// Writes the different blocks over the destination's; returns the written bytes.
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

    fn verify(&self, walk: &Mutex<Walk>, ended: &AtomicBool) -> anyhow::Result<()> {
        let mut destination = self.destination.open(false)?;
        let mut there = vec![0; CHUNK];
        while let Some((Piece { offset, length, .. }, wanted)) = self.next(walk, ended)? {
            let there = &mut there[..length];
            destination.read(offset, there)?;
            let is_right = match wanted {
                Some(digest) => *blake3::hash(there).as_bytes() == digest,
                None => is_zero(there),
            };
            if !is_right {
                bail!(
                    "verification failed: between byte {offset} and byte {} the result differs from the source. Did \
                     somebody else write to it meanwhile?",
                    offset + length as u64
                );
            }
            add(walk, length);
        }
        Ok(())
    }
}

/// State of the walk, shared by the workers.
struct Walk {
    pieces: Pieces,
    progress: Progress,
    /// Digests of the chunks with data, in their order, if this is a verification; all other chunks must be zero.
    digests: Digests,
}

type Digests = std::iter::Peekable<std::vec::IntoIter<(u64, Digest)>>;

fn add(walk: &Mutex<Walk>, bytes: usize) {
    if let Ok(mut walk) = walk.lock() {
        walk.progress.add(bytes as u64);
    }
}

fn bytes_of<'a>(blocks: impl Iterator<Item = &'a [u8]>) -> u64 {
    blocks.map(|block| block.len() as u64).sum()
}

/// Writes non-zero blocks into zeroes; returns the written bytes.
fn write_data(destination: &mut Disk, offset: u64, data: &[u8]) -> anyhow::Result<u64> {
    let mut written = 0;
    for (from, to) in stretches(data) {
        destination.write(offset + from as u64, &data[from..to])?;
        written += (to - from) as u64;
    }
    Ok(written)
}

/// Returns the ranges with data, in whole blocks; a short gap of zeroes belongs to its range.
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

    fn file(path: &PathBuf) -> Place {
        let file = std::fs::File::options().read(true).write(true).open(path).unwrap();
        Place::File(file.into(), path.clone())
    }

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
            let (source, destination) = (file(&self.source), file(&self.destination));
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
        assert!(is_empty(&file(&files.destination), SIZE).unwrap());
        let first = files.run(Before::Empty).unwrap();
        assert!(files.are_equal());
        assert!(!is_empty(&file(&files.destination), SIZE).unwrap());
        assert!(first.written > 0 && first.written < 100 << 10, "{first:?}");
        assert_eq!(files.run(Before::Part).unwrap(), Outcome { written: 0, in_place: first.data, ..first });
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
        let (source, destination) = (file(&files.source), file(&files.destination));
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
