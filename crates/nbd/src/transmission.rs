//! The receiving side of the transmission phase: request headers and the one place where requests are validated.
//!
//! Owns the bytes of an incomplete request header and the count of payload bytes still to be swallowed. The payload of a served request never passes
//! through here: the caller takes it from the stream into its own buffers.
//!
//! States: swallowing a refused payload; then collecting a header. A client can only be disconnected for a bad magic or for a payload beyond
//! [`MAXIMUM_SWALLOWED_BYTES`]; every other mistake is answered with an error.
//!
//! Invariants of every [`Request`] returned, held by [`judge`](Transmission::judge) alone:
//! - `offset + length` does not wrap and lies within the export; a FLUSH has both zero;
//! - `length` is not zero, except for FLUSH, and at most 32 MiB for READ and WRITE;
//! - no flag is set that the command does not permit; a command that writes is on a writable export;
//! - a BLOCK_STATUS comes only when `base:allocation` was selected, thus with structured replies.

use crate::Violation;
use crate::reply::{ReplyForm, put_failure};
use crate::wire::*;

/// Maximum payload of a refused WRITE that is swallowed; a longer one ends the session.
pub const MAXIMUM_SWALLOWED_BYTES: u32 = 64 << 20;

/// A request that is valid on this export in this session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Cookie that every reply echoes; chosen by the client, not necessarily unique.
    pub cookie: u64,
    /// Command of the request, one that is served; never DISC.
    pub command: Command,
    /// Flags of the request, only those that its command permits.
    pub flags: CommandFlags,
    /// First byte, from the start of the export; 0 for FLUSH.
    pub offset: u64,
    /// Number of bytes, within the export; 0 for FLUSH only.
    pub length: u32,
    pub(crate) reply_form: ReplyForm,
}

impl Request {
    /// Returns the number of payload bytes that follow the request on the stream. The caller takes exactly these itself, or has them discarded by
    /// [`Session::discard_payload`](crate::Session::discard_payload).
    pub fn payload_bytes(&self) -> u32 {
        match self.command {
            Command::Write => self.length,
            _ => 0,
        }
    }
}

/// A request that is answered with an error. The session swallows its payload, if any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Cookie that the reply echoes.
    pub cookie: u64,
    /// The error of the reply.
    pub error: ErrorCode,
    /// Text for people; sent only with structured replies.
    pub message: &'static str,
    reply_form: ReplyForm,
}

impl Refused {
    /// Appends the whole reply.
    pub fn reply(&self, output: &mut Vec<u8>) {
        put_failure(output, self.reply_form, self.cookie, self.error, self.message);
    }
}

/// Result of feeding the transmission phase with input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Proceed,
    Request(Request),
    Refused(Refused),
    Disconnect,
    Violated(Violation),
}

/// The receiving side of the transmission phase.
#[derive(Debug)]
pub(crate) struct Transmission {
    size_bytes: u64,
    read_only: bool,
    allocation_context: bool,
    reply_form: ReplyForm,
    header: [u8; REQUEST_BYTES],
    header_received: usize,
    swallow_bytes: u32,
}

type Reason = (ErrorCode, &'static str);

impl Transmission {
    pub(crate) fn new(size_bytes: u64, read_only: bool, allocation_context: bool, reply_form: ReplyForm) -> Self {
        Transmission {
            size_bytes,
            read_only,
            allocation_context,
            reply_form,
            header: [0; REQUEST_BYTES],
            header_received: 0,
            swallow_bytes: 0,
        }
    }

    pub(crate) fn reply_form(&self) -> ReplyForm {
        self.reply_form
    }

    /// Swallows `payload_bytes` more bytes before the next header.
    pub(crate) fn discard_payload(&mut self, payload_bytes: u32) {
        assert!(self.header_received == 0, "the payload of a request comes before any byte of the next header");
        self.swallow_bytes =
            self.swallow_bytes.checked_add(payload_bytes).expect("no more is discarded than the last request carried");
    }

    /// Takes bytes up to the end of at most one request header and returns their number.
    pub(crate) fn receive(&mut self, input: &[u8]) -> (usize, Outcome) {
        let swallowed = input.len().min(self.swallow_bytes as usize);
        self.swallow_bytes -= swallowed as u32;
        let rest = &input[swallowed..];
        if rest.is_empty() {
            return (swallowed, Outcome::Proceed);
        }
        let taken = rest.len().min(REQUEST_BYTES - self.header_received);
        self.header[self.header_received..self.header_received + taken].copy_from_slice(&rest[..taken]);
        self.header_received += taken;
        if self.header_received < REQUEST_BYTES {
            return (swallowed + taken, Outcome::Proceed);
        }
        self.header_received = 0;
        let outcome = match RequestHeader::decode(&self.header) {
            Some(header) => self.take_header(&header),
            None => Outcome::Violated(Violation::RequestMagic),
        };
        (swallowed + taken, outcome)
    }

    fn take_header(&mut self, header: &RequestHeader) -> Outcome {
        if header.command == COMMAND_DISCONNECT {
            return Outcome::Disconnect;
        }
        let refusal = match self.judge(header) {
            Ok(command) => {
                return Outcome::Request(Request {
                    cookie: header.cookie,
                    command,
                    flags: header.flags,
                    offset: header.offset,
                    length: header.length,
                    reply_form: self.reply_form,
                });
            }
            Err(reason) => reason,
        };
        if header.command == Command::Write as u16 {
            if header.length > MAXIMUM_SWALLOWED_BYTES {
                return Outcome::Violated(Violation::PayloadTooLong);
            }
            self.swallow_bytes = header.length;
        }
        let (error, message) = refusal;
        Outcome::Refused(Refused { cookie: header.cookie, error, message, reply_form: self.reply_form })
    }

    /// Decides if a request may go to the engine ("Request types", "Error values").
    fn judge(&self, header: &RequestHeader) -> Result<Command, Reason> {
        const INVALID: ErrorCode = ErrorCode::Invalid;
        let command = Command::from_number(header.command).ok_or((INVALID, "the command is not supported"))?;
        if !header.flags.within(command.permitted_flags()) {
            return Err((INVALID, "a flag is set that the command does not have"));
        }
        if header.flags.do_not_fragment() && self.reply_form == ReplyForm::Simple {
            return Err((INVALID, "DF needs structured replies"));
        }
        if command == Command::BlockStatus && !self.allocation_context {
            return Err((INVALID, "no metadata context was selected for this export"));
        }
        if command.writes() && self.read_only {
            return Err((ErrorCode::NotPermitted, "the export is read-only"));
        }
        if command == Command::Flush {
            return match (header.offset, header.length) {
                (0, 0) => Ok(command),
                _ => Err((INVALID, "the offset and length of a flush are reserved")),
            };
        }
        if header.length == 0 {
            return Err((INVALID, "the length is zero"));
        }
        if matches!(command, Command::Read | Command::Write) && header.length > MAXIMUM_PAYLOAD_BYTES {
            return Err((INVALID, "the payload is longer than 32 MiB"));
        }
        let end = header.offset.checked_add(u64::from(header.length));
        if end.is_none_or(|end| end > self.size_bytes) {
            let beyond = match command {
                Command::Write | Command::WriteZeroes => ErrorCode::NoSpace,
                _ => INVALID,
            };
            return Err((beyond, "the request reaches beyond the end of the export"));
        }
        Ok(command)
    }
}
