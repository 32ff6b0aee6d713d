//! The server side of the NBD protocol: fixed newstyle, simple and structured replies, `base:allocation`.
//!
//! Sans-IO: a [`Session`] is a state machine over bytes. It does no I/O, starts no threads, reads no clock and knows no storage. The caller feeds
//! received bytes, sends the bytes appended to its vectors, and serves [`Request`]s.
//!
//! ```text
//! bytes in -> Session::receive -> Step::Request  -> the caller's engine -> Request::reply_..., ReadReply -> bytes out
//!                              -> Step::Refused  -> Refused::reply ------------------------------------> bytes out
//!                              -> options: answered in `output` ---------------------------------------> bytes out
//! ```
//!
//! States of a session, in order: handshake, transmission, ended.
//!
//! Invariants:
//! - bytes from the wire cause no panic and no allocation by a length they claim;
//! - the output of one call is at most the answer to one option or request, or one part of the list of exports;
//! - the division of the input into calls does not matter;
//! - every byte given is consumed, with three exceptions: bytes behind a [`Step`] other than [`Step::Proceed`], bytes behind one
//!   option in the handshake, and all bytes while a list of exports continues. Feed these again;
//! - the payload of a WRITE that [`Step::Request`] returned is not consumed: it belongs to the caller.
//!
//! Duties of the caller, since they need a clock or a socket: a deadline for the handshake, a limit on connections and on unsent bytes per connection
//! (stop feeding when replies are not taken), ignoring SIGPIPE.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod export;
mod handshake;
mod options;
mod read_reply;
mod reply;
mod transmission;
pub mod wire;

pub use export::{ExportInfo, Exports, InvalidExport};
pub use handshake::{MAXIMUM_LIST_PART_BYTES, MAXIMUM_OPTION_BYTES, MAXIMUM_OPTIONS, MAXIMUM_OPTIONS_PER_EXPORT};
pub use options::MAXIMUM_META_QUERIES;
pub use read_reply::{Failure, Part, ReadReply, Run};
pub use reply::{Extent, ExtentState, MAXIMUM_EXTENTS, ReplyForm};
pub use transmission::{MAXIMUM_SWALLOWED_BYTES, Refused, Request};
pub use wire::{Command, CommandFlags, ErrorCode};

use handshake::Handshake;
use transmission::Transmission;

/// Act of the client that ends the session without a reply ("Termination of the session").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Violation {
    /// The client flags hold a bit that was not offered.
    ClientFlags,
    /// An option does not begin with `IHAVEOPT`.
    OptionMagic,
    /// An option claims more than [`MAXIMUM_OPTION_BYTES`] bytes of data.
    OptionTooLong,
    /// More than [`MAXIMUM_OPTIONS`] options in one handshake, and [`MAXIMUM_OPTIONS_PER_EXPORT`] for each export.
    TooManyOptions,
    /// `NBD_OPT_EXPORT_NAME` named no export, or came while shutting down; the option has no error reply.
    ExportRefused,
    /// `NBD_OPT_EXPORT_NAME` came without TLS where that is required; the option has no error reply.
    TlsRequired,
    /// A request does not begin with its magic.
    RequestMagic,
    /// A refused WRITE claims more than [`MAXIMUM_SWALLOWED_BYTES`] bytes of payload.
    PayloadTooLong,
}

impl std::fmt::Display for Violation {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Violation::ClientFlags => "the client set a handshake flag that was not offered",
            Violation::OptionMagic => "an option has the wrong magic number",
            Violation::OptionTooLong => "an option is longer than the limit",
            Violation::TooManyOptions => "too many options in one handshake",
            Violation::ExportRefused => "EXPORT_NAME selected an export that is not available",
            Violation::TlsRequired => "the client asks for an export without TLS, which is required here",
            Violation::RequestMagic => "a request has the wrong magic number",
            Violation::PayloadTooLong => "the payload of a refused write is longer than the limit",
        })
    }
}

impl std::error::Error for Violation {}

/// TLS mode that a connection offers ("TLS support").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tls {
    /// No TLS.
    Unsupported,
    /// TLS begins when the client asks for it (SELECTIVETLS).
    Offered,
    /// TLS begins when the client asks for it, and nothing else is answered before (FORCEDTLS).
    Required,
    /// All bytes received and sent are encrypted already.
    Established,
}

/// Duty of the caller after a call of [`Session::receive`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Send the bytes appended to `output`. Then feed the rest of the input if there is any, else receive.
    Proceed,
    /// The client asked for TLS (`NBD_OPT_STARTTLS`) and got a positive reply: send the appended bytes in the clear, then encrypt. Throw away all
    /// bytes that came behind the option in the clear: another party on the network may have sent them.
    StartTls,
    /// A part of the list of exports was appended (`NBD_OPT_LIST`), at most [`MAXIMUM_LIST_PART_BYTES`]. When it has been sent, call again with the rest
    /// of the input, even if that is empty: the next part follows.
    ListPart,
    /// The handshake is complete: send the appended bytes and open this export. If it cannot be opened, close the connection without sending.
    Established {
        /// Name of the export, also of the default one.
        export: String,
    },
    /// The client asked for an export that is [refused](ExportInfo::refuse), and was told the reason. It may continue with other options.
    ExportRefused {
        /// The reason.
        reason: String,
    },
    /// Serve this request and reply. First take its [payload](Request::payload_bytes) from the stream.
    Request(Request),
    /// Append its [reply](Refused::reply) to the unsent bytes, at a moment when no other reply [holds the stream](ReadReply::holds_stream).
    Refused(Refused),
    /// The client ends the session (`NBD_OPT_ABORT`, `NBD_CMD_DISC`): finish outstanding requests, send all unsent bytes, close.
    Disconnect,
    /// Close at once, without sending.
    ProtocolError(Violation),
}

/// The result of [`Session::receive`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct Progress {
    /// Number of input bytes that were consumed. The bytes behind them are fed again, or are payload.
    pub consumed: usize,
    /// Duty of the caller before it feeds more.
    pub step: Step,
}

/// The server's side of one connection.
#[derive(Debug)]
pub struct Session {
    phase: Phase,
    shutting_down: bool,
}

#[derive(Debug)]
enum Phase {
    Handshake(Handshake),
    Transmission(Transmission),
    /// All further input is swallowed, with this step as the only answer.
    Ended(Step),
}

impl Session {
    /// Begins a session and appends its greeting to `output` ("Newstyle negotiation").
    pub fn new(tls: Tls, output: &mut Vec<u8>) -> Session {
        Session { phase: Phase::Handshake(Handshake::new(tls, output)), shutting_down: false }
    }

    /// Takes received bytes, at most up to the end of one option or of one request header.
    ///
    /// During the handshake `exports` are those that can be selected now, and answers are appended to `output`. In the transmission phase neither is
    /// used.
    pub fn receive(&mut self, input: &[u8], exports: &dyn Exports, output: &mut Vec<u8>) -> Progress {
        let (consumed, step) = match &mut self.phase {
            Phase::Handshake(handshake) => {
                let (consumed, outcome) = handshake.receive(input, exports, self.shutting_down, output);
                (consumed, self.after_handshake(outcome))
            }
            Phase::Transmission(transmission) => {
                let (consumed, outcome) = transmission.receive(input);
                let step = match outcome {
                    transmission::Outcome::Proceed => Step::Proceed,
                    transmission::Outcome::Request(request) => Step::Request(request),
                    transmission::Outcome::Refused(refused) => Step::Refused(refused),
                    transmission::Outcome::Disconnect => Step::Disconnect,
                    transmission::Outcome::Violated(violation) => Step::ProtocolError(violation),
                };
                (consumed, step)
            }
            Phase::Ended(step) => (input.len(), step.clone()),
        };
        if matches!(step, Step::Disconnect | Step::ProtocolError(_)) {
            self.phase = Phase::Ended(step.clone());
        }
        Progress { consumed, step }
    }

    fn after_handshake(&mut self, outcome: handshake::Outcome) -> Step {
        match outcome {
            handshake::Outcome::Proceed => Step::Proceed,
            handshake::Outcome::Disconnect => Step::Disconnect,
            handshake::Outcome::StartTls => Step::StartTls,
            handshake::Outcome::ListPart => Step::ListPart,
            handshake::Outcome::ExportRefused(reason) => Step::ExportRefused { reason },
            handshake::Outcome::Violated(violation) => Step::ProtocolError(violation),
            handshake::Outcome::Established(agreement) => {
                let export = agreement.export;
                let reply_form = if agreement.structured_replies { ReplyForm::Structured } else { ReplyForm::Simple };
                self.phase = Phase::Transmission(Transmission::new(
                    export.size_bytes(),
                    export.is_read_only(),
                    agreement.allocation_context,
                    reply_form,
                ));
                Step::Established { export: export.name().to_owned() }
            }
        }
    }

    /// Swallows the next `payload_bytes` bytes of the stream. It is for a WRITE that the caller will not serve: for the whole payload, or for the
    /// part not taken yet. Call it before feeding any byte behind the request.
    pub fn discard_payload(&mut self, payload_bytes: u32) {
        if let Phase::Transmission(transmission) = &mut self.phase {
            transmission.discard_payload(payload_bytes);
        }
    }

    /// Answers options with `NBD_REP_ERR_SHUTDOWN` from now on; the client can still end the session. After the handshake the server must leave all
    /// input unread. A client that reconnects repeats unanswered requests, while `NBD_ESHUTDOWN` is an error for the requester.
    pub fn shut_down(&mut self) {
        self.shutting_down = true;
    }

    /// Returns the form of the session's replies; `None` outside the transmission phase.
    pub fn reply_form(&self) -> Option<ReplyForm> {
        match &self.phase {
            Phase::Transmission(transmission) => Some(transmission.reply_form()),
            Phase::Handshake(_) | Phase::Ended(_) => None,
        }
    }

    /// Returns true during the handshake; the caller sets its deadline by this.
    pub fn is_in_handshake(&self) -> bool {
        matches!(self.phase, Phase::Handshake(_))
    }
}
