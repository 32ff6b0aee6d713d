//! Block traces: readers of many file formats into one request type, statistics, and synthetic traces.
//!
//! Synthetic traces stand in for real ones that are not available. A reader returns requests one by one, whatever the size of the file: [`open`].

mod blkparse;
mod cloudphysics;
pub mod command;
mod disksim;
mod error;
mod fiu;
mod format;
mod hashing;
mod lines;
mod mqsim;
mod msr;
mod reader;
mod record;
pub mod stat;
pub mod synthetic;
#[cfg(test)]
mod tests;

use engine::Nanos;

pub use error::TraceError;
pub use format::Format;
pub use reader::{BadLines, Options, Reader, Tally, open};

/// Bytes of a block of a trace: the unit of addresses and of contents.
pub const BLOCK: u64 = 4096;

/// Content of a block, as a number: equal contents have equal numbers. (Of a digest in a file the first 64 bits, mixed.)
pub type ContentId = u64;

/// The content of a block of zeroes.
pub const ZEROES: ContentId = 0;

/// A request of a trace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request {
    /// Time of its arrival, from the beginning of the trace's own clock.
    pub at: Nanos,
    /// True for a write, false for a read.
    pub writes: bool,
    /// First block.
    pub block: u64,
    /// Number of blocks.
    pub blocks: u32,
    /// Content of each block; empty if the trace does not say.
    pub contents: Vec<ContentId>,
}
