//! Replies to all commands except READ: one call, one whole reply. READ is in [`read_reply`](crate::read_reply).
//!
//! Invariants:
//! - the form of a reply follows from the negotiation, and every [`Request`] carries it: a caller cannot choose;
//! - with structured replies, an error is a chunk with a text. Success without content is a simple reply, which the
//!   specification permits for everything but READ ("Simple reply message") and which is four bytes shorter;
//! - a BLOCK_STATUS reply is one chunk, with at least one extent, none of length zero, and never past the request
//!   (CVE-2025-47711, CVE-2025-47712).

use crate::transmission::Request;
use crate::wire::*;

/// Maximum number of extents in one reply to BLOCK_STATUS; the client asks again for the rest.
pub const MAXIMUM_EXTENTS: usize = 16 << 10;

/// Form of a session's replies: simple, or in chunks (`NBD_OPT_STRUCTURED_REPLY`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyForm {
    /// Simple replies only.
    Simple,
    /// READ, BLOCK_STATUS and errors in chunks.
    Structured,
}

/// State of an extent in `base:allocation`.
///
/// `HOLE` is never reported alone: it would mean that the contents are undefined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExtentState {
    /// Mapped: no bit.
    Data,
    /// Mapped, and known to read as zeroes: `ZERO`.
    Zero,
    /// Not mapped, and reads as zeroes: `HOLE` and `ZERO`.
    Unmapped,
}

impl ExtentState {
    fn bits(self) -> u32 {
        match self {
            ExtentState::Data => 0,
            ExtentState::Zero => STATUS_ZERO,
            ExtentState::Unmapped => STATUS_HOLE | STATUS_ZERO,
        }
    }
}

/// A run of bytes in one state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Number of bytes; the extent may reach past the request, where the encoder cuts it.
    pub length_bytes: u64,
    /// State of the extent.
    pub state: ExtentState,
}

impl Request {
    /// Appends the whole reply of success to a request without content: WRITE, FLUSH, TRIM, WRITE_ZEROES.
    pub fn reply_done(&self, output: &mut Vec<u8>) {
        assert!(
            !matches!(self.command, Command::Read | Command::BlockStatus),
            "the success of a READ or BLOCK_STATUS has content"
        );
        put_simple_reply(output, None, self.cookie);
    }

    /// Appends the whole reply of failure. For a READ only before the first piece of its
    /// [`ReadReply`](crate::ReadReply); after that, [`ReadReply::fail`](crate::ReadReply::fail).
    ///
    /// `message` is sent with structured replies only, cut to 4096 bytes.
    pub fn reply_error(&self, error: ErrorCode, message: &str, output: &mut Vec<u8>) {
        put_failure(output, self.reply_form, self.cookie, error, message);
    }

    /// Appends the whole reply to a BLOCK_STATUS ("`NBD_CMD_BLOCK_STATUS`").
    ///
    /// The `extents` follow each other from the request's offset, and at least one is not empty. They may end before or after the request does.
    /// Adjacent extents in one state are merged.
    pub fn reply_block_status(&self, extents: &[Extent], output: &mut Vec<u8>) {
        assert!(self.command == Command::BlockStatus, "extents answer BLOCK_STATUS only");
        let limit = if self.flags.one_extent() { 1 } else { MAXIMUM_EXTENTS };
        let chunk_start = output.len();
        put_chunk(output, CHUNK_DONE, Chunk::BlockStatus, self.cookie, 0);
        put_u32(output, ALLOCATION_CONTEXT_ID);
        let mut put = 0;
        let mut remaining = self.length;
        let mut extents = extents.iter().filter(|extent| extent.length_bytes != 0).peekable();
        while put < limit && remaining != 0 {
            let Some(first) = extents.next() else { break };
            let mut length = clamp(first.length_bytes, remaining);
            while let Some(next) = extents.next_if(|next| next.state == first.state) {
                length += clamp(next.length_bytes, remaining - length);
            }
            put_u32(output, length);
            put_u32(output, first.state.bits());
            remaining -= length;
            put += 1;
        }
        assert!(put > 0, "a BLOCK_STATUS reply has at least one extent");
        let payload_bytes = (output.len() - chunk_start - CHUNK_HEADER_BYTES) as u32;
        output[chunk_start + CHUNK_HEADER_BYTES - 4..chunk_start + CHUNK_HEADER_BYTES]
            .copy_from_slice(&payload_bytes.to_be_bytes());
    }
}

/// Returns the smaller of `length_bytes` and `limit`.
fn clamp(length_bytes: u64, limit: u32) -> u32 {
    u32::try_from(length_bytes).map_or(limit, |length| length.min(limit))
}

/// Appends a whole reply of failure in the form given.
pub(crate) fn put_failure(output: &mut Vec<u8>, reply_form: ReplyForm, cookie: u64, error: ErrorCode, message: &str) {
    match reply_form {
        ReplyForm::Simple => put_simple_reply(output, Some(error), cookie),
        ReplyForm::Structured => {
            let message = cut_message(message);
            put_chunk(output, CHUNK_DONE, Chunk::Error, cookie, 6 + u32::from(message.1));
            put_error_fields(output, error, message);
        }
    }
}

/// Appends an error chunk that names an offset and ends the reply ("`NBD_REPLY_TYPE_ERROR_OFFSET`").
pub(crate) fn put_failure_at(output: &mut Vec<u8>, cookie: u64, error: ErrorCode, message: &str, offset: u64) {
    let message = cut_message(message);
    put_chunk(output, CHUNK_DONE, Chunk::ErrorOffset, cookie, 14 + u32::from(message.1));
    put_error_fields(output, error, message);
    put_u64(output, offset);
}

fn put_error_fields(output: &mut Vec<u8>, error: ErrorCode, (message, message_bytes): (&str, u16)) {
    put_u32(output, error as u32);
    put_u16(output, message_bytes);
    output.extend_from_slice(message.as_bytes());
}

/// Cuts the message to at most 4096 bytes, between characters; returns it with its length in bytes.
fn cut_message(message: &str) -> (&str, u16) {
    let mut end = message.len().min(MAXIMUM_STRING_BYTES);
    while !message.is_char_boundary(end) {
        end -= 1;
    }
    (&message[..end], end as u16)
}
