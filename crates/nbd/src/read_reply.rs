//! Replies to READ: a plan of headers and runs of data to send, piece by piece.
//!
//! Owns, per READ in service, the number of bytes that are planned. It never sees data: the plan names runs, and the caller sends each from its own
//! buffers.
//!
//! States, in order: nothing sent; in progress; finished. A reply in progress has one of three shapes:
//! - simple: one header, then all the data. A failure after the header cannot be reported, and the connection must be cut. So
//!   a caller that wants to report failures gives the whole read as one piece ("`NBD_CMD_READ`");
//! - one chunk (DF, and read in several pieces): one header of `OFFSET_DATA` for all of it, then the data, then a chunk
//!   `NONE`. A failure fills the chunk with zeroes and then names the offset;
//! - chunks: every piece has its own chunks, and the last one ends the reply. A failure names the offset.
//!
//! Invariants:
//! - chunks lie within the request, follow each other without overlap, and cover all of it on success;
//! - `DONE` is set once, on the last chunk, and never on a content chunk that may still fail;
//! - with DF there is one content chunk, with zeroes as data ("`NBD_CMD_FLAG_DF`").

use std::ops::Range;

use crate::reply::{ReplyForm, put_failure_at};
use crate::transmission::Request;
use crate::wire::*;

/// A run of bytes that were read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Run {
    /// This many bytes, in the caller's buffers.
    Data(u32),
    /// This many zeroes, which need no buffer.
    Hole(u32),
}

/// Part of a reply, in the order of sending.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// These bytes of the vector of headers.
    Headers(Range<usize>),
    /// Data of the caller: `length` bytes that begin `start` bytes into the request.
    Data {
        /// Bytes from the request's offset.
        start: u32,
        /// Bytes.
        length: u32,
    },
    /// This many zero bytes.
    Zeroes(u32),
}

/// Way to end a READ that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Failure {
    /// The parts appended tell the client; the connection continues.
    Reported,
    /// Success was already claimed in a simple reply: cut the connection at once ("`NBD_CMD_READ`").
    HardDisconnect,
}

/// The reply to one READ.
#[derive(Clone, Debug)]
pub struct ReadReply {
    request: Request,
    /// Number of bytes of the request that are planned.
    planned: u32,
    finished: bool,
}

impl ReadReply {
    /// Begins the reply to a READ; no byte of it is planned yet.
    pub fn new(request: Request) -> ReadReply {
        assert!(request.command == Command::Read, "a read reply answers a READ");
        ReadReply { request, planned: 0, finished: false }
    }

    /// Returns the READ that this reply answers.
    pub fn request(&self) -> &Request {
        &self.request
    }

    /// Returns the number of bytes that are still to be given in pieces.
    pub fn remaining_bytes(&self) -> u32 {
        self.request.length - self.planned
    }

    /// Returns true once the reply is complete, by success or by failure.
    pub fn is_finished(&self) -> bool {
        self.finished
    }

    /// Returns true if a failure between two pieces could not be reported. Then the whole read has to be given as one piece.
    pub fn wants_one_piece(&self) -> bool {
        self.request.reply_form == ReplyForm::Simple
    }

    /// Returns true while the client is in the middle of this reply's data. Until the reply is finished, the connection must send nothing else. Only
    /// simple and DF replies in several pieces reach this state.
    pub fn holds_stream(&self) -> bool {
        !self.finished && self.planned != 0 && self.shape() != Shape::Chunks
    }

    /// Plans the next piece of the read, which was read without error. The `runs` follow each other from the end of the last piece, and none reaches
    /// past the request. Adjacent runs of one kind become one; empty ones are skipped. The piece that completes the request finishes the reply.
    ///
    /// Appends headers to `headers`, and the parts to send to `parts`.
    pub fn piece(&mut self, runs: &[Run], headers: &mut Vec<u8>, parts: &mut Vec<Part>) {
        assert!(!self.finished, "a finished reply has no more pieces");
        let piece_bytes = runs.iter().try_fold(0_u32, |sum, run| sum.checked_add(run.length()));
        let piece_bytes = piece_bytes.filter(|bytes| *bytes <= self.remaining_bytes());
        let piece_bytes = piece_bytes.expect("the pieces of a read do not exceed the request");
        if piece_bytes == 0 {
            return;
        }
        let is_first = self.planned == 0;
        let is_last = piece_bytes == self.remaining_bytes();
        let mut plan = Plan { headers, parts };
        match self.shape() {
            Shape::Simple if is_first => plan.header(|bytes| put_simple_reply(bytes, None, self.request.cookie)),
            Shape::OneChunk if is_first => {
                let flags = if is_last { CHUNK_DONE } else { 0 };
                plan.data_chunk(&self.request, flags, self.request.offset, self.request.length);
            }
            Shape::Simple | Shape::OneChunk | Shape::Chunks => {}
        }
        let mut runs = runs.iter().copied().filter(|run| run.length() != 0).peekable();
        while let Some(mut run) = runs.next() {
            while let Some(next) = runs.next_if(|next| next.is_hole() == run.is_hole()) {
                run = run.extended(next.length());
            }
            self.plan_run(run, &mut plan);
        }
        if is_last {
            self.finished = true;
            if self.shape() == Shape::OneChunk && !is_first {
                plan.header(|bytes| put_chunk(bytes, CHUNK_DONE, Chunk::None, self.request.cookie, 0));
            }
        }
    }

    /// Plans the end of a reply whose next piece could not be read; the reply is finished.
    ///
    /// `message` is for people; it is sent with structured replies only, cut to 4096 bytes.
    pub fn fail(&mut self, error: ErrorCode, message: &str, headers: &mut Vec<u8>, parts: &mut Vec<Part>) -> Failure {
        assert!(!self.finished, "a finished reply cannot fail");
        self.finished = true;
        let mut plan = Plan { headers, parts };
        if self.planned == 0 {
            plan.header(|bytes| self.request.reply_error(error, message, bytes));
            return Failure::Reported;
        }
        match self.shape() {
            Shape::Simple => return Failure::HardDisconnect,
            Shape::OneChunk => plan.parts.push(Part::Zeroes(self.remaining_bytes())),
            Shape::Chunks => {}
        }
        let offset = self.request.offset + u64::from(self.planned);
        plan.header(|bytes| put_failure_at(bytes, self.request.cookie, error, message, offset));
        Failure::Reported
    }

    fn plan_run(&mut self, run: Run, plan: &mut Plan<'_>) {
        let length = run.length();
        let start = self.planned;
        self.planned += length;
        match (self.shape(), run) {
            (Shape::Simple | Shape::OneChunk, Run::Hole(_)) => plan.parts.push(Part::Zeroes(length)),
            (Shape::Simple | Shape::OneChunk, Run::Data(_)) => plan.parts.push(Part::Data { start, length }),
            (Shape::Chunks, run) => {
                let flags = if self.planned == self.request.length { CHUNK_DONE } else { 0 };
                let offset = self.request.offset + u64::from(start);
                if run.is_hole() {
                    plan.hole_chunk(&self.request, flags, offset, length);
                } else {
                    plan.data_chunk(&self.request, flags, offset, length);
                    plan.parts.push(Part::Data { start, length });
                }
            }
        }
    }

    fn shape(&self) -> Shape {
        match self.request.reply_form {
            ReplyForm::Simple => Shape::Simple,
            ReplyForm::Structured if self.request.flags.do_not_fragment() => Shape::OneChunk,
            ReplyForm::Structured => Shape::Chunks,
        }
    }
}

impl Run {
    fn length(self) -> u32 {
        match self {
            Run::Data(length) | Run::Hole(length) => length,
        }
    }

    fn is_hole(self) -> bool {
        matches!(self, Run::Hole(_))
    }

    /// Returns the run with `more` bytes added; the caller has checked that the sum of a piece does not overflow.
    fn extended(self, more: u32) -> Run {
        match self {
            Run::Data(length) => Run::Data(length + more),
            Run::Hole(length) => Run::Hole(length + more),
        }
    }
}

/// The shape of a reply; see the module's states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    Simple,
    OneChunk,
    Chunks,
}

/// Destination of the headers and parts of a planned piece.
struct Plan<'a> {
    headers: &'a mut Vec<u8>,
    parts: &'a mut Vec<Part>,
}

impl Plan<'_> {
    /// Appends the bytes that `put` writes. Adjacent headers become one part.
    fn header(&mut self, put: impl FnOnce(&mut Vec<u8>)) {
        let start = self.headers.len();
        put(self.headers);
        let end = self.headers.len();
        match self.parts.last_mut() {
            Some(Part::Headers(range)) if range.end == start => range.end = end,
            _ => self.parts.push(Part::Headers(start..end)),
        }
    }

    /// Plans the header of a chunk "`NBD_REPLY_TYPE_OFFSET_DATA`", without its data.
    fn data_chunk(&mut self, request: &Request, flags: u16, offset: u64, length: u32) {
        self.header(|bytes| {
            put_chunk(bytes, flags, Chunk::OffsetData, request.cookie, 8 + length);
            put_u64(bytes, offset);
        });
    }

    /// Plans a whole chunk "`NBD_REPLY_TYPE_OFFSET_HOLE`".
    fn hole_chunk(&mut self, request: &Request, flags: u16, offset: u64, length: u32) {
        self.header(|bytes| {
            put_chunk(bytes, flags, Chunk::OffsetHole, request.cookie, 12);
            put_u64(bytes, offset);
            put_u32(bytes, length);
        });
    }
}
