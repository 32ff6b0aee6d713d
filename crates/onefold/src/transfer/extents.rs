//! Allocation of the disks of a transfer, queried extent by extent, and the pieces that are left once holes are passed over.
//!
//! A hole costs a few requests, however long it is; a piece is a chunk, on the grid of the digests.
//!
//! Invariant: a range counts as a hole only where its disk said so since the transfer began.

use std::collections::VecDeque;

use crate::transfer::disk::{Disk, Place};

/// Bytes that are copied at once.
pub const CHUNK: usize = 1 << 20;
/// Longest range of one query: the maximum of an NBD request, in whole chunks.
const LOOK_AHEAD: u64 = 1 << 31;

/// A disk and its answer about the allocation from some offset on.
pub struct Allocation {
    disk: Disk,
    /// Offset at which the last answer ends.
    asked_to: u64,
    /// Extents of the last answer that were not passed: where each ends, and whether it reads as zeroes.
    known: VecDeque<(u64, bool)>,
}

impl Allocation {
    /// Opens a disk for reading.
    pub fn open(place: &Place) -> anyhow::Result<Allocation> {
        Ok(Allocation { disk: place.open(false)?, asked_to: 0, known: VecDeque::new() })
    }

    /// Returns where the zeroes that begin at `offset` end: `offset` if there may be data. May be short, but not before `least`
    /// if all up to there is zeroes. Offsets of later calls are not smaller.
    pub fn zeroes_to(&mut self, offset: u64, least: u64) -> anyhow::Result<u64> {
        let mut at = offset;
        loop {
            while self.known.front().is_some_and(|(end, _)| *end <= at) {
                self.known.pop_front();
            }
            match self.known.front() {
                Some((_, false)) => return Ok(at),
                Some((end, true)) => at = *end,
                None if at >= least => return Ok(at),
                None => self.ask(at)?,
            }
        }
    }

    /// Asks what begins at an offset.
    fn ask(&mut self, offset: u64) -> anyhow::Result<()> {
        self.asked_to = offset;
        for extent in self.disk.extents(offset, LOOK_AHEAD)? {
            self.asked_to = self.asked_to.saturating_add(extent.length);
            self.known.push_back((self.asked_to, extent.is_zero));
        }
        Ok(())
    }
}

/// A chunk in which one of the disks may hold data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    /// Number of the chunk.
    pub number: u64,
    /// Offset of its first byte.
    pub offset: u64,
    /// Bytes of it.
    pub length: usize,
    /// True, for each of the disks in their order, if it may hold data there.
    pub has_data: [bool; 2],
}

/// Walk over up to two disks; a missing one reads as zeroes.
pub struct Pieces {
    disks: [Option<Allocation>; 2],
    size: u64,
    at: u64,
}

impl Pieces {
    /// Begins a walk over `size` bytes.
    pub fn new(disks: [Option<Allocation>; 2], size: u64) -> Pieces {
        Pieces { disks, size, at: 0 }
    }

    /// Returns the next piece and the number of bytes of holes before it. Chunks in `wanted` are pieces whatever the disks say.
    pub fn next(&mut self, wanted: Option<u64>) -> anyhow::Result<(u64, Option<Piece>)> {
        let begin = self.at;
        let stop = wanted.map_or(self.size, |number| number.saturating_mul(CHUNK as u64)).min(self.size);
        while self.at < stop {
            let end = (self.at + CHUNK as u64).min(self.size);
            let mut zeroes = [self.size; 2];
            for (disk, zeroes) in self.disks.iter_mut().zip(&mut zeroes) {
                if let Some(disk) = disk {
                    *zeroes = disk.zeroes_to(self.at, end)?.min(self.size);
                }
            }
            let has_data = zeroes.map(|zeroes| zeroes < end);
            if has_data != [false; 2] {
                return Ok((self.at - begin, Some(self.piece(has_data))));
            }
            let zeroes = zeroes[0].min(zeroes[1]);
            // The last chunk may be short.
            self.at = if zeroes == self.size { stop } else { stop.min(zeroes / CHUNK as u64 * CHUNK as u64) };
        }
        let passed = self.at - begin;
        let piece = (self.at < self.size).then(|| self.piece([true; 2]));
        Ok((passed, piece))
    }

    /// Takes the chunk that is next.
    fn piece(&mut self, has_data: [bool; 2]) -> Piece {
        let offset = self.at;
        let length = (self.size - offset).min(CHUNK as u64) as usize;
        self.at += length as u64;
        Piece { number: offset / CHUNK as u64, offset, length, has_data }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;
    use std::path::PathBuf;

    /// A sparse file with data at some offsets, 4 KiB each.
    struct Sparse(PathBuf);

    impl Sparse {
        fn new(name: &str, size: u64, data: &[u64]) -> Sparse {
            let path = std::env::temp_dir().join(format!("onefold-extents-{name}-{}", std::process::id()));
            let file = std::fs::File::create(&path).unwrap();
            file.set_len(size).unwrap();
            data.iter().for_each(|at| file.write_all_at(&[7; 4096], *at).unwrap());
            Sparse(path)
        }

        fn allocation(&self) -> Option<Allocation> {
            let file = std::fs::File::open(&self.0).unwrap();
            Some(Allocation::open(&Place::File(file.into(), self.0.clone())).unwrap())
        }
    }

    impl Drop for Sparse {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.0);
        }
    }

    const MIB: u64 = CHUNK as u64;

    /// Collects all pieces, as numbers and the disks with data there, and counts the bytes that were passed.
    fn walk(mut pieces: Pieces, wanted: &[u64]) -> (Vec<(u64, [bool; 2])>, u64) {
        let (mut found, mut passed) = (Vec::new(), 0);
        loop {
            let next = wanted.iter().find(|number| found.last().is_none_or(|(last, _)| *number > last));
            let (bytes, piece) = pieces.next(next.copied()).unwrap();
            passed += bytes;
            let Some(piece) = piece else { return (found, passed) };
            assert_eq!(piece.offset, piece.number * MIB);
            passed += piece.length as u64;
            found.push((piece.number, piece.has_data));
        }
    }

    #[test]
    fn only_chunks_where_a_disk_has_data_are_pieces_however_long_the_holes_are() {
        // A check of each of these chunks would not end.
        let size = (4 << 40) + 512;
        let one = Sparse::new("one", size, &[0, 7 * MIB - 4096, (3 << 40) + 5 * MIB]);
        let two = Sparse::new("two", 10 * MIB, &[6 * MIB, 9 * MIB + 8192]);
        let far = (3 << 20) + 5;
        let (pieces, passed) = walk(Pieces::new([one.allocation(), two.allocation()], size), &[]);
        assert_eq!(pieces, [(0, [true, false]), (6, [true, true]), (9, [false, true]), (far, [true, false])]);
        assert_eq!(passed, size);
        // A wanted chunk is always a piece, also the last one, which is short.
        let (pieces, passed) = walk(Pieces::new([None, two.allocation()], size), &[0, 6, 4 << 20]);
        assert_eq!(pieces, [(0, [true; 2]), (6, [true; 2]), (9, [false, true]), (4 << 20, [true; 2])]);
        assert_eq!(passed, size);
    }

    #[test]
    fn zeroes_end_where_data_begins_and_go_on_beyond_the_end() {
        let disk = Sparse::new("zeroes", 4 * MIB, &[2 * MIB]);
        let mut allocation = disk.allocation().unwrap();
        assert_eq!(allocation.zeroes_to(0, MIB).unwrap(), 2 * MIB);
        assert_eq!(allocation.zeroes_to(2 * MIB, 3 * MIB).unwrap(), 2 * MIB);
        assert!(allocation.zeroes_to(3 * MIB, 9 * MIB).unwrap() >= 9 * MIB);
    }
}
