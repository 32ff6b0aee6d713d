//! The NBD handshake: fixed newstyle negotiation, in each TLS mode of the specification (NOTLS, SELECTIVETLS, FORCEDTLS: [`Tls`]). The caller handles
//! the bytes of TLS itself: after STARTTLS a new handshake begins inside.
//!
//! Owns the bytes of the option being received and the results of the options so far.
//!
//! States, in order: client flags; then, per option, its header and its data, and for LIST the parts of the list; then an end state: established,
//! disconnected or violated. One call handles at most one option, or one part of a list. So the output of a call is bounded, and the caller can stop
//! feeding while the client takes no replies.
//!
//! Invariants:
//! - an option longer than [`MAXIMUM_OPTION_BYTES`] ends the session unread: it is never drained (CVE-2017-15119) and
//!   memory for an option is bounded by that limit and by the number of bytes received;
//! - every option but `EXPORT_NAME` is answered, after all its data was taken, so the stream stays in step;
//! - a selection of metadata contexts, failed or not, replaces the one before;
//! - an option looks up one export at most. A list continues behind a name, so exports that come or go between two parts do no harm.

use crate::export::{ExportInfo, Exports};
use crate::options::{ExportQuery, MetaQuery, Rejection, decode_export_query, decode_meta_query, decode_string};
use crate::wire::*;
use crate::{Tls, Violation};

/// Maximum number of data bytes in one option.
pub const MAXIMUM_OPTION_BYTES: u32 = 64 << 10;
/// Maximum number of options in one handshake, besides those that ask about one export after the other.
pub const MAXIMUM_OPTIONS: u32 = 256;
/// Number of further options for each export: `qemu-nbd --list` asks three times about each, `nbdinfo --list` twice.
pub const MAXIMUM_OPTIONS_PER_EXPORT: u32 = 4;
/// Maximum number of bytes in one part of the list of exports.
pub const MAXIMUM_LIST_PART_BYTES: usize = 64 << 10;

/// Export and options that a handshake has agreed on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Agreement {
    pub export: ExportInfo,
    pub structured_replies: bool,
    /// `base:allocation` was selected for this very export.
    pub allocation_context: bool,
}

/// Result of feeding the handshake with input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// More input is needed: feed the rest, or receive.
    Proceed,
    /// A part of a list was appended, and others follow.
    ListPart,
    Established(Agreement),
    StartTls,
    /// The reason.
    ExportRefused(String),
    Disconnect,
    Violated(Violation),
}

#[derive(Clone, Debug)]
enum Stage {
    ClientFlags,
    OptionHeader,
    OptionData {
        option: u32,
        data_bytes: usize,
    },
    /// The answer to LIST continues behind this name.
    List {
        after: String,
    },
}

/// A handshake in progress.
#[derive(Debug)]
pub(crate) struct Handshake {
    stage: Stage,
    /// Received bytes of the current stage.
    received: Vec<u8>,
    options: u32,
    fixed_newstyle: bool,
    no_zeroes: bool,
    structured_replies: bool,
    tls: Tls,
    /// The export for which `base:allocation` was last selected.
    allocation_export: Option<String>,
}

impl Handshake {
    /// Appends the greeting and waits for the client's flags.
    pub(crate) fn new(tls: Tls, output: &mut Vec<u8>) -> Handshake {
        put_u64(output, GREETING_MAGIC);
        put_u64(output, OPTION_MAGIC);
        put_u16(output, HANDSHAKE_FIXED_NEWSTYLE | HANDSHAKE_NO_ZEROES);
        Handshake {
            stage: Stage::ClientFlags,
            received: Vec::new(),
            options: 0,
            fixed_newstyle: false,
            no_zeroes: false,
            structured_replies: false,
            tls,
            allocation_export: None,
        }
    }

    /// Takes bytes up to the end of at most one option and returns their number; none while a list continues.
    pub(crate) fn receive(
        &mut self,
        input: &[u8],
        exports: &dyn Exports,
        shutting_down: bool,
        output: &mut Vec<u8>,
    ) -> (usize, Outcome) {
        let mut consumed = 0;
        loop {
            let wanted = match self.stage {
                Stage::ClientFlags => CLIENT_FLAGS_BYTES,
                Stage::OptionHeader => OPTION_HEADER_BYTES,
                Stage::OptionData { data_bytes, .. } => data_bytes,
                Stage::List { .. } => 0,
            };
            let rest = &input[consumed..];
            let taken = rest.len().min(wanted - self.received.len());
            self.received.extend_from_slice(&rest[..taken]);
            consumed += taken;
            if self.received.len() < wanted {
                return (consumed, Outcome::Proceed);
            }
            let received = std::mem::take(&mut self.received);
            let outcome = self.complete_stage(&received, exports, shutting_down, output);
            self.received = received;
            self.received.clear();
            match outcome {
                Some(outcome) => return (consumed, outcome),
                None => continue,
            }
        }
    }

    /// Handles a complete stage; `None` if the next stage of the same option follows.
    fn complete_stage(
        &mut self,
        received: &[u8],
        exports: &dyn Exports,
        shutting_down: bool,
        output: &mut Vec<u8>,
    ) -> Option<Outcome> {
        let result = match self.stage {
            Stage::ClientFlags => self.take_client_flags(received),
            Stage::OptionHeader => self.take_option_header(received, exports.count()),
            Stage::OptionData { option, .. } => {
                self.stage = Stage::OptionHeader;
                return Some(self.answer(option, received, exports, shutting_down, output));
            }
            Stage::List { ref mut after } => {
                let after = std::mem::take(after);
                self.stage = Stage::OptionHeader;
                return Some(self.answer_list(&after, exports, shutting_down, output));
            }
        };
        result.err().map(Outcome::Violated)
    }

    fn take_client_flags(&mut self, received: &[u8]) -> Result<(), Violation> {
        const FIXED_NEWSTYLE: u32 = HANDSHAKE_FIXED_NEWSTYLE as u32;
        const NO_ZEROES: u32 = HANDSHAKE_NO_ZEROES as u32;
        let flags = Reader::new(received).u32().ok_or(Violation::ClientFlags)?;
        if flags & !(FIXED_NEWSTYLE | NO_ZEROES) != 0 {
            return Err(Violation::ClientFlags);
        }
        self.fixed_newstyle = flags & FIXED_NEWSTYLE != 0;
        self.no_zeroes = flags & NO_ZEROES != 0;
        self.stage = Stage::OptionHeader;
        Ok(())
    }

    fn take_option_header(&mut self, received: &[u8], exports: usize) -> Result<(), Violation> {
        let mut reader = Reader::new(received);
        let (Some(magic), Some(option), Some(data_bytes)) = (reader.u64(), reader.u32(), reader.u32()) else {
            return Err(Violation::OptionMagic);
        };
        if magic != OPTION_MAGIC {
            return Err(Violation::OptionMagic);
        }
        if data_bytes > MAXIMUM_OPTION_BYTES {
            return Err(Violation::OptionTooLong);
        }
        self.options += 1;
        let exports = u32::try_from(exports).unwrap_or(u32::MAX);
        let most = MAXIMUM_OPTIONS.saturating_add(exports.saturating_mul(MAXIMUM_OPTIONS_PER_EXPORT));
        if self.options > most {
            return Err(Violation::TooManyOptions);
        }
        let data_bytes = usize::try_from(data_bytes).map_err(|_| Violation::OptionTooLong)?;
        self.stage = Stage::OptionData { option, data_bytes };
        Ok(())
    }

    /// Answers a complete option.
    fn answer(
        &mut self,
        option: u32,
        data: &[u8],
        exports: &dyn Exports,
        shutting_down: bool,
        output: &mut Vec<u8>,
    ) -> Outcome {
        if option == OPTION_SET_META_CONTEXT {
            self.allocation_export = None;
        }
        let result = match option {
            OPTION_ABORT => {
                put_option_reply(output, option, OptionReply::Ack, 0);
                return Outcome::Disconnect;
            }
            OPTION_EXPORT_NAME if self.tls == Tls::Required => return Outcome::Violated(Violation::TlsRequired),
            OPTION_EXPORT_NAME if shutting_down => return Outcome::Violated(Violation::ExportRefused),
            OPTION_EXPORT_NAME => return self.answer_export_name(data, exports, output),
            _ if shutting_down => Err(Rejection::SHUTDOWN),
            _ if !self.fixed_newstyle => Err(Rejection::invalid("the client did not ask for fixed newstyle")),
            OPTION_STARTTLS => match self.answer_start_tls(data) {
                Ok(()) => {
                    put_option_reply(output, option, OptionReply::Ack, 0);
                    return Outcome::StartTls;
                }
                Err(rejection) => Err(rejection),
            },
            _ if self.tls == Tls::Required => {
                Err(Rejection { reply: OptionReply::TlsRequired, message: "this server requires TLS" })
            }
            OPTION_LIST if !data.is_empty() => Err(Rejection::invalid("the option carries no data")),
            OPTION_LIST => return self.answer_list("", exports, shutting_down, output),
            OPTION_STRUCTURED_REPLY => self.answer_structured_reply(data),
            OPTION_INFO => self.answer_info(data, exports, output),
            OPTION_GO => match self.answer_go(data, exports, output) {
                Ok(outcome) => return outcome,
                Err(rejection) => Err(rejection),
            },
            OPTION_LIST_META_CONTEXT => self.answer_list_meta_context(data, exports, output),
            OPTION_SET_META_CONTEXT => self.answer_set_meta_context(data, exports, output),
            _ => Err(Rejection { reply: OptionReply::Unsupported, message: "the option is not supported" }),
        };
        match result {
            Ok(()) => put_option_reply(output, option, OptionReply::Ack, 0),
            Err(rejection) => put_rejection(output, option, rejection),
        }
        Outcome::Proceed
    }

    fn establish(&self, export: ExportInfo) -> Outcome {
        Outcome::Established(Agreement {
            structured_replies: self.structured_replies,
            allocation_context: self.allocation_export.as_deref() == Some(export.name()),
            export,
        })
    }

    /// Answers `NBD_OPT_EXPORT_NAME` (1), whose data is the name. A refusal can only end the session.
    fn answer_export_name(&self, data: &[u8], exports: &dyn Exports, output: &mut Vec<u8>) -> Outcome {
        let export = decode_string(data).ok().and_then(|name| exports.find(name));
        let Some(export) = export.filter(|export| export.refusal().is_none()) else {
            return Outcome::Violated(Violation::ExportRefused);
        };
        put_u64(output, export.size_bytes());
        put_u16(output, self.transmission_flags(&export));
        if !self.no_zeroes {
            output.extend_from_slice(&[0; EXPORT_NAME_ZEROES]);
        }
        self.establish(export)
    }

    /// Answers `NBD_OPT_LIST` (3) with the next part of the list, whose names follow `after`. The last part ends with the final reply.
    fn answer_list(
        &mut self,
        after: &str,
        exports: &dyn Exports,
        shutting_down: bool,
        output: &mut Vec<u8>,
    ) -> Outcome {
        if shutting_down {
            put_rejection(output, OPTION_LIST, Rejection::SHUTDOWN);
            return Outcome::Proceed;
        }
        match put_names(after, exports, output) {
            Some(after) => {
                self.stage = Stage::List { after };
                Outcome::ListPart
            }
            None => {
                put_option_reply(output, OPTION_LIST, OptionReply::Ack, 0);
                Outcome::Proceed
            }
        }
    }

    /// Answers `NBD_OPT_STARTTLS` (5). Options negotiated before, in the clear, do not count afterwards.
    fn answer_start_tls(&mut self, data: &[u8]) -> Result<(), Rejection> {
        match self.tls {
            Tls::Unsupported => {
                return Err(Rejection {
                    reply: OptionReply::Unsupported,
                    message: "TLS is not supported on this socket",
                });
            }
            Tls::Established => return Err(Rejection::invalid("this connection has TLS already")),
            Tls::Offered | Tls::Required if !data.is_empty() => {
                return Err(Rejection::invalid("the option carries no data"));
            }
            Tls::Offered | Tls::Required => {}
        }
        self.tls = Tls::Established;
        self.structured_replies = false;
        self.allocation_export = None;
        Ok(())
    }

    /// Answers `NBD_OPT_STRUCTURED_REPLY` (8); asking again changes nothing.
    fn answer_structured_reply(&mut self, data: &[u8]) -> Result<(), Rejection> {
        if !data.is_empty() {
            return Err(Rejection::invalid("the option carries no data"));
        }
        self.structured_replies = true;
        Ok(())
    }

    /// Answers `NBD_OPT_INFO` (6), up to the final reply.
    fn answer_info(&self, data: &[u8], exports: &dyn Exports, output: &mut Vec<u8>) -> Result<(), Rejection> {
        let query = decode_export_query(data)?;
        let export = exports.find(query.name).ok_or(Rejection::UNKNOWN_EXPORT)?;
        self.put_information(OPTION_INFO, &query, &export, output);
        Ok(())
    }

    /// Answers `NBD_OPT_GO` (7), with the final reply unless the option is rejected.
    fn answer_go(&self, data: &[u8], exports: &dyn Exports, output: &mut Vec<u8>) -> Result<Outcome, Rejection> {
        let query = decode_export_query(data)?;
        let export = exports.find(query.name).ok_or(Rejection::UNKNOWN_EXPORT)?;
        if let Some(reason) = export.refusal() {
            put_refusal(output, OPTION_GO, OptionReply::Policy, reason);
            return Ok(Outcome::ExportRefused(reason.to_owned()));
        }
        self.put_information(OPTION_GO, &query, &export, output);
        put_option_reply(output, OPTION_GO, OptionReply::Ack, 0);
        Ok(self.establish(export))
    }

    /// Writes the replies to `NBD_OPT_INFO` and `NBD_OPT_GO` that describe an export.
    fn put_information(&self, option: u32, query: &ExportQuery<'_>, export: &ExportInfo, output: &mut Vec<u8>) {
        put_option_reply(output, option, OptionReply::Info, 12);
        put_u16(output, Information::Export as u16);
        put_u64(output, export.size_bytes());
        put_u16(output, self.transmission_flags(export));
        if query.wants_name {
            put_information_text(output, option, Information::Name, export.name());
        }
        if query.wants_description && !export.description().is_empty() {
            put_information_text(output, option, Information::Description, export.description());
        }
        if query.wants_block_size {
            put_option_reply(output, option, OptionReply::Info, 14);
            put_u16(output, Information::BlockSize as u16);
            put_u32(output, MINIMUM_BLOCK_BYTES);
            put_u32(output, PREFERRED_BLOCK_BYTES);
            put_u32(output, MAXIMUM_PAYLOAD_BYTES);
        }
    }

    /// Answers `NBD_OPT_LIST_META_CONTEXT` (9), up to the final reply; `base:allocation` is the only context.
    fn answer_list_meta_context(
        &self,
        data: &[u8],
        exports: &dyn Exports,
        output: &mut Vec<u8>,
    ) -> Result<(), Rejection> {
        let (_, query) = self.meta_query(data, exports)?;
        if query.is_empty || query.names_allocation || query.names_namespace {
            put_allocation_context(output, OPTION_LIST_META_CONTEXT, 0);
        }
        Ok(())
    }

    /// Answers `NBD_OPT_SET_META_CONTEXT` (10), up to the final reply; the caller has dropped the former selection already.
    fn answer_set_meta_context(
        &mut self,
        data: &[u8],
        exports: &dyn Exports,
        output: &mut Vec<u8>,
    ) -> Result<(), Rejection> {
        let (export, query) = self.meta_query(data, exports)?;
        if query.names_allocation {
            self.allocation_export = Some(export.name().to_owned());
            put_allocation_context(output, OPTION_SET_META_CONTEXT, ALLOCATION_CONTEXT_ID);
        }
        Ok(())
    }

    fn meta_query<'data>(
        &self,
        data: &'data [u8],
        exports: &dyn Exports,
    ) -> Result<(ExportInfo, MetaQuery<'data>), Rejection> {
        if !self.structured_replies {
            return Err(Rejection::invalid("structured replies come first"));
        }
        let query = decode_meta_query(data)?;
        let export = exports.find(query.name).ok_or(Rejection::UNKNOWN_EXPORT)?;
        Ok((export, query))
    }

    /// Returns the flags of "Transmission flags": only those that work on this export in this session.
    fn transmission_flags(&self, export: &ExportInfo) -> u16 {
        let mut flags =
            TRANSMISSION_HAS_FLAGS | TRANSMISSION_SEND_FLUSH | TRANSMISSION_SEND_FUA | TRANSMISSION_CAN_MULTI_CONN;
        if export.is_read_only() {
            flags |= TRANSMISSION_READ_ONLY;
        } else {
            flags |= TRANSMISSION_SEND_TRIM | TRANSMISSION_SEND_WRITE_ZEROES | TRANSMISSION_SEND_FAST_ZERO;
        }
        if self.structured_replies {
            flags |= TRANSMISSION_SEND_DF;
        }
        flags
    }
}

/// Writes the names that follow `after` as replies to `NBD_OPT_LIST`, until only the final reply still fits into the part. Returns the last name
/// if others follow it.
fn put_names(after: &str, exports: &dyn Exports, output: &mut Vec<u8>) -> Option<String> {
    let end = output.len() + MAXIMUM_LIST_PART_BYTES - OPTION_REPLY_HEADER_BYTES;
    let mut last: Option<&str> = None;
    for name in exports.names_after(after) {
        let name_bytes = string_bytes(name);
        if output.len() + OPTION_REPLY_HEADER_BYTES + 4 + name.len() > end {
            return last.map(str::to_owned);
        }
        put_option_reply(output, OPTION_LIST, OptionReply::Server, 4 + name_bytes);
        put_u32(output, name_bytes);
        output.extend_from_slice(name.as_bytes());
        last = Some(name);
    }
    None
}

fn put_information_text(output: &mut Vec<u8>, option: u32, information: Information, text: &str) {
    put_option_reply(output, option, OptionReply::Info, 2 + string_bytes(text));
    put_u16(output, information as u16);
    output.extend_from_slice(text.as_bytes());
}

fn put_allocation_context(output: &mut Vec<u8>, option: u32, context_id: u32) {
    put_option_reply(output, option, OptionReply::MetaContext, 4 + string_bytes(ALLOCATION_CONTEXT));
    put_u32(output, context_id);
    output.extend_from_slice(ALLOCATION_CONTEXT.as_bytes());
}

fn put_rejection(output: &mut Vec<u8>, option: u32, rejection: Rejection) {
    put_refusal(output, option, rejection.reply, rejection.message);
}

/// Writes a refusal. The text never repeats bytes from the client, so it cannot outgrow a string's limit (CVE-2020-10761).
fn put_refusal(output: &mut Vec<u8>, option: u32, reply: OptionReply, text: &str) {
    put_option_reply(output, option, reply, string_bytes(text));
    output.extend_from_slice(text.as_bytes());
}

/// Returns the length of a string that the server sends; all of these are within the protocol's limit.
fn string_bytes(string: &str) -> u32 {
    assert!(string.len() <= MAXIMUM_STRING_BYTES, "strings that we send are bounded where they are made");
    string.len() as u32
}
