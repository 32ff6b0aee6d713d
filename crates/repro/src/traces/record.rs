//! One line of a trace file, before it becomes a request: in bytes, not in blocks.

use engine::Nanos;

use super::{BLOCK, ContentId, Request, ZEROES};
use sim::random::mix;

/// Bytes of a sector, in which most formats count.
pub(super) const SECTOR: u64 = 512;

/// Bytes of the largest request, joined or not. It bounds the memory that joining takes.
pub(super) const LARGEST: u64 = 64 << 20;

/// One I/O as a line of a file has it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Record {
    pub(super) at: Nanos,
    pub(super) writes: bool,
    pub(super) offset: u64,
    /// Above zero; `offset + bytes` does not overflow.
    pub(super) bytes: u64,
    /// Process that asked for it; 0 if the format does not say.
    pub(super) process: u64,
    /// Content of each of its blocks; empty if the file does not say.
    pub(super) contents: Vec<ContentId>,
}

/// Kind of a line.
#[derive(Debug)]
pub(super) enum Line {
    /// An I/O.
    Record(Record),
    /// Something that belongs there, but is no read or write: a heading, a flush, another stage of an I/O.
    Other,
}

/// Parsed line, or a description of the expected text.
pub(super) type Parsed = Result<Line, &'static str>;

impl Record {
    /// Creates a record without contents and process; the size is at most 64 MiB, and not 0.
    pub(super) fn new(at: Nanos, writes: bool, offset: u64, bytes: u64) -> Result<Record, &'static str> {
        if bytes == 0 || bytes > LARGEST {
            return Err("a size above zero and of at most 64 MiB");
        }
        // The limit holds for the end and its last block. So rounding up cannot overflow.
        if offset > u64::MAX - LARGEST - BLOCK {
            return Err("an address that ends below 2^64 bytes");
        }
        Ok(Record { at, writes, offset, bytes, process: 0, contents: Vec::new() })
    }

    /// Creates a record whose address and size are in sectors.
    pub(super) fn of_sectors(at: Nanos, writes: bool, first: u64, count: u64) -> Result<Record, &'static str> {
        let offset = first.checked_mul(SECTOR).ok_or("an address below 2^64 bytes")?;
        Record::new(at, writes, offset, count.saturating_mul(SECTOR))
    }

    /// Returns true if it begins and ends at block boundaries.
    pub(super) fn is_aligned(&self) -> bool {
        self.offset.is_multiple_of(BLOCK) && self.bytes.is_multiple_of(BLOCK)
    }

    /// Converts it to a request of the blocks that it touches. Contents are kept if it begins and ends at block boundaries. Otherwise none of them is the
    /// content of a block.
    pub(super) fn request(self) -> Request {
        let first = self.offset / BLOCK;
        let blocks = (self.offset + self.bytes).div_ceil(BLOCK) - first;
        let keeps = self.is_aligned() && self.contents.len() as u64 == blocks;
        let contents = if keeps { self.contents } else { Vec::new() };
        // At most `LARGEST` and a block.
        Request { at: self.at, writes: self.writes, block: first, blocks: blocks as u32, contents }
    }
}

/// Derives a content from the first 64 bits of its digest. Never [`ZEROES`].
pub(super) fn content(digest: u64) -> ContentId {
    match mix(digest) {
        ZEROES => 1,
        content => content,
    }
}

/// Parses a number in decimal.
pub(super) fn number(text: Option<&str>) -> Option<u64> {
    text?.parse().ok()
}

/// Parses a time in decimal fractions of a unit that has `unit` nanoseconds.
pub(super) fn fraction(text: Option<&str>, unit: f64) -> Option<Nanos> {
    let nanos = text?.parse::<f64>().ok()? * unit;
    // Only finite, representable times pass; the cast saturates.
    (nanos.is_finite() && (0.0..9e18).contains(&nanos)).then(|| libm::round(nanos) as Nanos)
}
