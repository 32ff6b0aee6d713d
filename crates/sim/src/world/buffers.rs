//! The payload buffers, which the driver owns and the engine passes around by number.
//!
//! Each buffer has one use at a time. It is taken by the driver until it is submitted or returned, or filled by one I/O
//! in flight, or read by any number of I/O and replies in flight, and unchanged meanwhile. An unfilled buffer is
//! poisoned: its readers get content that no client wrote.

use engine::{BlockContent, BufferId, DataSegment, Io, IoOp, Segment};

use crate::content::{CELLS, Cells, ZERO, describe};
use crate::{Checked, violated};

/// Content of a buffer that is not filled yet.
const POISON: Cells = [0xdead_beef; CELLS];

#[derive(Clone, Copy, Debug)]
struct Buffer {
    cells: Cells,
    /// True if it is taken by the driver and not yet submitted or returned.
    taken: bool,
    /// I/O in flight that reads it.
    readers: u32,
    /// True while an I/O in flight fills it.
    filling: bool,
    /// Replies not yet sent that name it.
    replies: u32,
}

impl Buffer {
    fn is_in_use(&self) -> bool {
        self.taken || self.filling || self.readers > 0 || self.replies > 0
    }
}

/// All buffers.
#[derive(Clone, Debug)]
pub struct Buffers {
    buffers: Vec<Buffer>,
    block_size: u32,
    /// Number of values of the hash behind digests; 0: a good hash.
    weak: u32,
}

impl Buffers {
    /// Creates `count` buffers of one block each.
    pub fn new(count: u32, block_size: u32) -> Buffers {
        let buffer = Buffer { cells: POISON, taken: false, readers: 0, filling: false, replies: 0 };
        Buffers { buffers: vec![buffer; count as usize], block_size, weak: 0 }
    }

    /// Limits digests to `values` values from here on, so that contents collide.
    pub fn weaken(&mut self, values: u32) {
        self.weak = values;
    }

    /// Describes a block of these cells as the engine sees it.
    pub fn describe(&self, cells: &Cells) -> BlockContent {
        match cells.iter().fold(0u32, |sum, cell| sum.wrapping_add(*cell)).checked_rem(self.weak) {
            Some(value) if *cells != ZERO => describe(&[1 + value; CELLS]),
            _ => describe(cells),
        }
    }

    /// Sets the number of buffers. Fails if one that goes is in use.
    pub fn set_count(&mut self, count: u32) -> Checked {
        if let Some(number) = self.buffers.iter().skip(count as usize).position(Buffer::is_in_use) {
            return violated(format!("buffer {} of {count} is in use", count as usize + number));
        }
        let buffer = Buffer { cells: POISON, taken: false, readers: 0, filling: false, replies: 0 };
        self.buffers.resize(count as usize, buffer);
        Ok(())
    }

    /// Returns the number of buffers.
    pub fn count(&self) -> u32 {
        self.buffers.len() as u32
    }

    /// Takes a buffer that the engine hands out to the driver, and fills the cells that have a value. Fails if it does not exist or is in use.
    pub fn take(&mut self, id: BufferId, cells: &[Option<u32>; CELLS]) -> Checked {
        let count = self.buffers.len();
        let Some(buffer) = self.buffers.get_mut(id.0 as usize) else {
            return violated(format!("{id:?} was handed out, there are {count}"));
        };
        if buffer.is_in_use() {
            return violated(format!("{id:?} was handed out while it is in use: {buffer:?}"));
        }
        buffer.taken = true;
        for (cell, (value, poison)) in buffer.cells.iter_mut().zip(cells.iter().zip(POISON)) {
            *cell = value.unwrap_or(poison);
        }
        Ok(())
    }

    /// Gives a buffer that the driver took to the engine, and returns its content. Panics if it was not taken.
    pub fn hand_over(&mut self, id: BufferId) -> Cells {
        let buffer = &mut self.buffers[id.0 as usize];
        assert!(buffer.taken, "the driver hands over only buffers that it took");
        buffer.taken = false;
        buffer.cells
    }

    /// Returns the content of a buffer.
    pub fn cells(&self, id: BufferId) -> Cells {
        self.buffers[id.0 as usize].cells
    }

    /// Fills a buffer with the result of a read.
    pub fn fill(&mut self, id: BufferId, cells: Cells) {
        self.buffers[id.0 as usize].cells = cells;
    }

    /// Collects the cells that a reply's segments name. Fails if a segment is not aligned to cells, or its buffer is being filled or does not exist.
    pub fn gather(&self, segments: &[DataSegment]) -> Checked<Vec<u32>> {
        let cell_bytes = self.block_size / CELLS as u32;
        let mut cells = Vec::new();
        for segment in segments {
            let (from, to) = (segment.from, segment.to);
            let is_cut = !from.is_multiple_of(cell_bytes) || !to.is_multiple_of(cell_bytes);
            if is_cut || from >= to || to > self.block_size {
                return violated(format!("a segment from byte {from} to {to} in a reply to an aligned request"));
            }
            let range = (from / cell_bytes) as usize..(to / cell_bytes) as usize;
            let Some(id) = segment.buffer else {
                cells.extend(range.map(|_| 0));
                continue;
            };
            let Some(buffer) = self.buffers.get(id.0 as usize) else {
                return violated(format!("a reply names {id:?}, which does not exist"));
            };
            if buffer.filling || buffer.taken {
                return violated(format!("a reply names {id:?}, which is being filled"));
            }
            cells.extend_from_slice(&buffer.cells[range]);
        }
        Ok(cells)
    }

    /// Holds the buffers of a reply that is being sent, until [`Buffers::end_reply`].
    pub fn begin_reply(&mut self, segments: &[DataSegment]) {
        for id in segments.iter().filter_map(|segment| segment.buffer) {
            self.buffers[id.0 as usize].replies += 1;
        }
    }

    /// Releases the buffers of a reply that has been sent.
    pub fn end_reply(&mut self, segments: &[DataSegment]) {
        for id in segments.iter().filter_map(|segment| segment.buffer) {
            self.buffers[id.0 as usize].replies -= 1;
        }
    }

    /// Holds the buffers that an I/O fills and reads, until [`Buffers::release`]. Fails if another use conflicts.
    pub fn hold(&mut self, io: &Io) -> Checked {
        for (index, segment) in io.segments.iter().enumerate() {
            let Segment::Buffer(id) = *segment else { continue };
            let buffer = &mut self.buffers[id.0 as usize];
            if fills(io.op, index) {
                if buffer.is_in_use() {
                    return violated(format!("{io:?} fills {id:?}, which is in use: {buffer:?}"));
                }
                buffer.filling = true;
                if io.op == IoOp::ReadBlocks {
                    buffer.cells = POISON;
                }
            } else {
                if buffer.taken || buffer.filling {
                    return violated(format!("{io:?} reads {id:?}, which is being filled: {buffer:?}"));
                }
                buffer.readers += 1;
            }
        }
        Ok(())
    }

    /// Releases the buffers of an I/O that is complete.
    pub fn release(&mut self, io: &Io) {
        for (index, segment) in io.segments.iter().enumerate() {
            let Segment::Buffer(id) = *segment else { continue };
            let buffer = &mut self.buffers[id.0 as usize];
            if fills(io.op, index) {
                buffer.filling = false;
            } else {
                buffer.readers -= 1;
            }
        }
    }

    /// Performs [`IoOp::Merge`].
    pub fn merge(&mut self, io: &Io, from: u32, to: u32, zero: bool) -> BlockContent {
        let cell_bytes = self.block_size / CELLS as u32;
        let buffer = |index: usize| match io.segments.get(index) {
            Some(Segment::Buffer(id)) => Some(id.0 as usize),
            _ => None,
        };
        let into = buffer(0).expect("a merge has a buffer to merge into");
        let mut cells = buffer(1).map_or(ZERO, |base| self.buffers[base].cells);
        let inside = (from / cell_bytes) as usize..(to / cell_bytes) as usize;
        let source = if zero { ZERO } else { self.buffers[into].cells };
        cells[inside.clone()].copy_from_slice(&source[inside]);
        self.buffers[into].cells = cells;
        self.describe(&cells)
    }

    /// Performs [`IoOp::Compare`].
    pub fn compare(&self, io: &Io) -> bool {
        let mut cells = io.segments.iter().map(|segment| match segment {
            Segment::Buffer(id) => self.buffers[id.0 as usize].cells,
            Segment::Page(_) => unreachable!("validated"),
        });
        cells.next() == cells.next()
    }
}

/// Returns true if an I/O fills the buffer of its segment `index`, false if it only reads it.
fn fills(op: IoOp, index: usize) -> bool {
    op == IoOp::ReadBlocks || (matches!(op, IoOp::Merge { .. }) && index == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn io(op: IoOp, buffers: &[u32]) -> Io {
        let segments = buffers.iter().map(|&id| Segment::Buffer(BufferId(id))).collect();
        Io { op, device: engine::Device::Store, offset: 0, length: 0, segments }
    }

    #[test]
    fn a_buffer_in_use_is_not_handed_out_or_filled() {
        let mut buffers = Buffers::new(4, 512);
        let write = io(IoOp::Write, &[1]);
        buffers.hold(&write).unwrap();
        assert!(buffers.take(BufferId(1), &[None; CELLS]).is_err());
        assert!(buffers.hold(&io(IoOp::ReadBlocks, &[1])).is_err());
        assert!(buffers.hold(&write).is_ok(), "several may read it");
        buffers.release(&write);
        buffers.release(&write);
        assert!(buffers.take(BufferId(1), &[None; CELLS]).is_ok());
        assert!(buffers.hold(&write).is_err(), "the driver is filling it");
        assert!(buffers.take(BufferId(4), &[None; CELLS]).is_err());
    }

    #[test]
    fn a_merge_keeps_or_zeroes_the_bytes_inside_and_takes_the_others_from_the_base() {
        let mut buffers = Buffers::new(4, 512);
        let merge = |zero| io(IoOp::Merge { from: 64, to: 192, zero }, &[0, 1]);
        buffers.fill(BufferId(0), [1; 8]);
        buffers.fill(BufferId(1), [2; 8]);
        buffers.merge(&merge(false), 64, 192, false);
        assert_eq!(buffers.cells(BufferId(0)), [2, 1, 1, 2, 2, 2, 2, 2]);
        buffers.merge(&merge(true), 64, 192, true);
        assert_eq!(buffers.cells(BufferId(0)), [2, 0, 0, 2, 2, 2, 2, 2]);
        buffers.merge(&io(IoOp::Merge { from: 0, to: 64, zero: false }, &[0]), 0, 64, false);
        assert_eq!(buffers.cells(BufferId(0)), [2, 0, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn a_reply_gathers_its_segments_and_zeroes() {
        let mut buffers = Buffers::new(4, 512);
        buffers.fill(BufferId(2), [1, 2, 3, 4, 5, 6, 7, 8]);
        let segment = |buffer: Option<u32>, from, to| DataSegment { buffer: buffer.map(BufferId), from, to };
        let segments = [segment(Some(2), 384, 512), segment(None, 0, 64)];
        assert_eq!(buffers.gather(&segments).unwrap(), [7, 8, 0]);
        assert!(buffers.gather(&[segment(None, 0, 63)]).is_err());
        assert!(buffers.gather(&[segment(Some(9), 0, 64)]).is_err());
    }
}
