//! Table of clients' requests in service, and the division of long ones into pieces for the engine.
//!
//! Invariants: a request is in the table from its header until its reply is queued and every submitted piece is answered; the token of a piece names its
//! request's place in the table and its number, so an answer always finds it.

use engine::{Error, Full, Nanos, RequestId};
use nbd::{ErrorCode, ReadReply, Request};

use crate::report::status::full_of;

/// A range of bytes, cut where the volume's offset is a multiple of the piece size: only the first and the last piece of a request can be unaligned.
/// A range that fits into one piece is never cut, so that a policy sees it as a whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pieces {
    offset: u64,
    length: u64,
    piece_bytes: u64,
    is_one: bool,
}

impl Pieces {
    /// Cuts a range that is not empty and does not wrap; `block` is the size of a block.
    pub fn new(offset: u64, length: u64, piece_bytes: u64, block: u64) -> Pieces {
        let is_one = length > 0 && touched_bytes(offset, length, block) <= piece_bytes;
        Pieces { offset, length, piece_bytes, is_one }
    }

    /// Returns the number of pieces; 0 for an empty range.
    pub fn count(&self) -> u32 {
        if self.length == 0 {
            return 0;
        }
        if self.is_one {
            return 1;
        }
        let last = (self.offset + (self.length - 1)) / self.piece_bytes;
        (last - self.offset / self.piece_bytes + 1) as u32
    }

    /// Returns offset and length of a piece, in bytes.
    pub fn get(&self, number: u32) -> (u64, u64) {
        if self.is_one {
            return (self.offset, self.length);
        }
        let first = self.offset / self.piece_bytes + u64::from(number);
        let start = if number == 0 { self.offset } else { first * self.piece_bytes };
        let end = ((first + 1) * self.piece_bytes).min(self.offset + self.length);
        (start, end - start)
    }
}

/// Returns the bytes of the blocks that a range touches, which its buffers take.
pub fn touched_bytes(offset: u64, length: u64, block: u64) -> u64 {
    (offset + length).next_multiple_of(block) - offset / block * block
}

/// Number of reads that are collected at a time: each keeps its places in the engine's table until it is complete.
pub const COLLECTING_MAX: u32 = 128;

/// The reply to a read, as far as it has come.
pub struct ReadProgress {
    /// State of the reply in the protocol.
    pub reply: ReadReply,
    /// Answers that arrived and were not used yet, by piece.
    pub answers: Vec<Option<Result<RequestId, Error>>>,
    /// Number of the next piece to be sent.
    pub next: u32,
    /// True if nothing is sent before all pieces are there, so that any error can be told.
    pub collect: bool,
    /// True if nothing else can be sent between its first byte and its last.
    pub holds_stream: bool,
}

/// A request in service.
pub struct Entry {
    /// Slot of the connection that sent it.
    pub connection: u32,
    /// Request as the client sent it.
    pub request: Request,
    /// Time at which its header came.
    pub since: Nanos,
    /// Its pieces.
    pub pieces: Pieces,
    /// Number of pieces submitted and not answered.
    pub outstanding: u32,
    /// True if there are no more pieces to submit.
    pub submitted: bool,
    /// First error of a piece (not for reads).
    pub error: Option<Error>,
    /// Progress of the reply to a read; `None` for other commands.
    pub read: Option<ReadProgress>,
}

/// The requests of all connections. Places are used again, and so is the memory of their answers.
#[derive(Default)]
pub struct Table {
    entries: Vec<Option<Entry>>,
    free: Vec<u32>,
    /// Number of requests that were ever entered.
    pub entered: u64,
    /// Number of reads that are being collected.
    collecting: u32,
    /// Lists of answers, to be used again.
    spare: Vec<Vec<Option<Result<RequestId, Error>>>>,
}

impl Table {
    /// Enters a request; returns its place.
    pub fn insert(&mut self, connection: u32, request: Request, pieces: Pieces, collect_bytes: u64, now: Nanos) -> u32 {
        self.entered += 1;
        let read = (request.command == nbd::Command::Read).then(|| {
            let mut answers = self.spare.pop().unwrap_or_default();
            answers.clear();
            answers.resize(pieces.count() as usize, None);
            let reply = ReadReply::new(request);
            let whole = reply.wants_one_piece() || request.flags.do_not_fragment();
            let collect = whole && u64::from(request.length) <= collect_bytes && self.collecting < COLLECTING_MAX;
            self.collecting += u32::from(collect);
            let holds_stream = whole && !collect && pieces.count() > 1;
            ReadProgress { reply, answers, next: 0, collect, holds_stream }
        });
        let entry =
            Entry { connection, request, since: now, pieces, outstanding: 0, submitted: false, error: None, read };
        match self.free.pop() {
            Some(place) => {
                self.entries[place as usize] = Some(entry);
                place
            }
            None => {
                self.entries.push(Some(entry));
                (self.entries.len() - 1) as u32
            }
        }
    }

    /// Returns the request at a place that is taken; panics if it is free.
    pub fn get(&mut self, place: u32) -> &mut Entry {
        self.entries[place as usize].as_mut().expect("a request stays in the table until it is answered")
    }

    /// Takes a request out, and frees its place.
    pub fn remove(&mut self, place: u32) {
        let entry = self.entries[place as usize].take().expect("a request is taken out once");
        if let Some(read) = entry.read {
            self.collecting -= u32::from(read.collect);
            self.spare.push(read.answers);
        }
        self.free.push(place);
    }

    /// Returns the places of all requests of a connection.
    pub fn of_connection(&self, connection: u32) -> Vec<u32> {
        let taken = self.entries.iter().enumerate().filter_map(|(place, entry)| Some((place, entry.as_ref()?)));
        taken.filter(|(_, entry)| entry.connection == connection).map(|(place, _)| place as u32).collect()
    }
}

/// Packs the token of a piece; the connection is in it because the engine distinguishes clients.
pub fn token(connection: u32, place: u32, piece: u32) -> u64 {
    u64::from(connection as u16) << 48 | u64::from(piece as u16) << 32 | u64::from(place)
}

/// Unpacks place and piece from a token.
pub fn from_token(token: u64) -> (u32, u32) {
    (token as u32, ((token >> 32) as u16).into())
}

/// Returns the protocol's error code, and words for it; `full` says which part of the pool is full if it refuses new blocks.
pub fn explain(error: Error, full: Option<Full>) -> (ErrorCode, &'static str) {
    match error {
        Error::Io => (ErrorCode::InputOutput, "the backing store failed, or a block failed its check"),
        Error::NoSpace => (
            ErrorCode::NoSpace,
            full.map_or("the pool has no space for it, or the file system under the pool has none", full_of),
        ),
        Error::Invalid => (ErrorCode::Invalid, "the volume has shrunk or is gone: connect again to see what is there"),
        Error::ReadOnly => (
            ErrorCode::NotPermitted,
            "the volume or the pool is read-only, or the volume is being rolled back; see 'onefold status'",
        ),
        Error::ShuttingDown => (ErrorCode::Shutdown, "the server is stopping"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn pieces_cover_a_request_without_gap_and_end_at_boundaries(
            offset in 0u64..1 << 50,
            length in 1u64..=32 << 20,
            shift in 12u32..21,
        ) {
            let piece_bytes = 1u64 << shift;
            let pieces = Pieces::new(offset, length, piece_bytes, 4096);
            prop_assert_eq!(pieces.count() == 1, touched_bytes(offset, length, 4096) <= piece_bytes);
            let mut at = offset;
            for number in 0..pieces.count() {
                let (start, bytes) = pieces.get(number);
                prop_assert_eq!(start, at);
                prop_assert!(bytes > 0 && bytes <= piece_bytes);
                prop_assert!(touched_bytes(start, bytes, 4096) <= piece_bytes);
                prop_assert!(pieces.count() == 1 || start / piece_bytes == (start + bytes - 1) / piece_bytes);
                at += bytes;
                if number + 1 < pieces.count() {
                    prop_assert_eq!(at % piece_bytes, 0);
                }
            }
            prop_assert_eq!(at, offset + length);
        }

        #[test]
        fn tokens_read_back(connection: u32, place: u32, piece in 0u32..1 << 16) {
            prop_assert_eq!(from_token(token(connection, place, piece)), (place, piece));
        }
    }

    #[test]
    fn a_flush_has_no_pieces() {
        assert_eq!(Pieces::new(0, 0, 4096, 4096).count(), 0);
    }
}
