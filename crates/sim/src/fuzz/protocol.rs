//! Fuzz targets for the input of clients: any bytes, in any pieces. The session never panics, sends a bounded amount, and requests nothing outside the
//! export. The cuts between pieces make no difference.

use nbd::wire::{Command, ErrorCode, OPTION_MAGIC, OPTION_REPLY_MAGIC, REQUEST_BYTES, Reader, RequestHeader};
use nbd::{
    ExportInfo, Exports, Extent, ExtentState, MAXIMUM_EXTENTS, MAXIMUM_LIST_PART_BYTES, ReadReply, Request, Run,
    Session, Step, Tls,
};

use super::bytes::Bytes;

/// Generous maximum of the answer to one option of these exports, in bytes.
const MOST_ANSWER: usize = 1024;
/// Exports with long names: with them a list has three parts.
const LONG_NAMES: usize = 40;
const DISK_BYTES: u64 = 1 << 20;

fn exports(are_many: bool) -> Vec<ExportInfo> {
    let export = |name: &str, size| ExportInfo::new(name, "for a fuzzer", size).expect("a name that is allowed");
    let mut exports = vec![
        export("disk", DISK_BYTES).default_export(true),
        export("frozen", DISK_BYTES).read_only(true),
        export("big", i64::MAX as u64),
    ];
    let long = (0..if are_many { LONG_NAMES } else { 0 }).map(|number| format!("{number:04096}"));
    exports.extend(long.map(|name| export(&name, DISK_BYTES)));
    exports
}

/// Feeds the decoders of the wire: readers, request headers, and the data of each option.
pub fn wire(data: &[u8]) {
    let mut reader = Reader::new(data);
    while let Some(length) = reader.length() {
        let before = reader.remaining();
        if reader.bytes(length).is_none() {
            assert_eq!(reader.remaining(), before, "a read that fails takes nothing");
            if reader.u16().is_none() && reader.u64().is_none() {
                break;
            }
        }
    }
    if let Some(bytes) = data.first_chunk::<REQUEST_BYTES>()
        && let Some(header) = RequestHeader::decode(bytes)
    {
        let mut encoded = Vec::new();
        header.encode(&mut encoded);
        assert_eq!(encoded, bytes, "what was read is written as it was");
    }
    let mut bytes = Bytes(data);
    let number = u32::from(bytes.u8() % 16);
    let mut talk = Talk::new(false, false);
    talk.hear(&3_u32.to_be_bytes());
    talk.hear(&option(8, &[]));
    talk.hear(&option(number, bytes.0));
    option_replies(&talk.sent[18..]);
}

fn option(number: u32, data: &[u8]) -> Vec<u8> {
    [&OPTION_MAGIC.to_be_bytes()[..], &number.to_be_bytes(), &(data.len() as u32).to_be_bytes(), data].concat()
}

/// Asserts that `sent` consists of whole replies to options. Other bytes pass as the answer to EXPORT_NAME, which has no header; then `sent` may have
/// at most 200 bytes in all.
fn option_replies(sent: &[u8]) {
    let mut reader = Reader::new(sent);
    while reader.remaining() > 0 {
        // An export chosen by name is answered without a header: ten bytes and perhaps zeroes.
        if reader.u64() != Some(OPTION_REPLY_MAGIC) {
            return assert!(sent.len() <= 200, "only the answer to EXPORT_NAME has no header");
        }
        let (_, _, length) = (reader.u32(), reader.u32(), reader.length());
        let length = length.expect("a reply has a length");
        assert!(reader.bytes(length).is_some(), "a reply is whole");
    }
}

/// Feeds a whole session: a beginning, then any bytes, in pieces. The same bytes in one piece must have the same result.
pub fn session(data: &[u8]) {
    let mut bytes = Bytes(data);
    let (choice, cut) = (bytes.u8(), bytes.u8());
    let stops = choice & 0x40 != 0;
    let begin = || {
        let mut talk = Talk::new(choice & 0x80 != 0, choice & 8 != 0);
        let export: &[u8] = [&b"disk"[..], b"frozen", b"big"][usize::from(choice >> 4 & 3) % 3];
        let name = [&(export.len() as u32).to_be_bytes()[..], export].concat();
        if choice & 3 > 0 {
            talk.hear(&3_u32.to_be_bytes());
        }
        if choice & 3 > 1 {
            talk.hear(&option(8, &[]));
            talk.hear(&option(
                10,
                &[&name[..], &1_u32.to_be_bytes(), &15_u32.to_be_bytes(), b"base:allocation"].concat(),
            ));
        }
        if choice & 3 > 2 || choice & 4 != 0 {
            talk.hear(&option(7, &[&name[..], &[0, 0]].concat()));
        }
        talk
    };
    let mut whole = begin();
    whole.hear(bytes.0);
    let mut split = begin();
    let (mut rest, mut size) = (bytes.0, u32::from(cut));
    while !rest.is_empty() {
        size = size.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let (piece, after) = rest.split_at((1 + (size >> 24) as usize % (usize::from(cut) + 1)).min(rest.len()));
        split.hear(piece);
        rest = after;
    }
    assert_eq!(whole.steps, split.steps, "how bytes are cut makes no difference");
    assert!(whole.sent == split.sent, "how bytes are cut makes no difference");
    if stops {
        whole.session.shut_down();
        whole.hear(bytes.0);
    }
}

/// A session with a simple server, which serves every request.
struct Talk {
    session: Session,
    exports: Vec<ExportInfo>,
    export: Option<ExportInfo>,
    /// True if the session discards payloads itself.
    discards: bool,
    payload: usize,
    steps: Vec<Step>,
    sent: Vec<u8>,
}

impl Talk {
    fn new(discards: bool, has_many_exports: bool) -> Talk {
        let mut sent = Vec::new();
        let session = Session::new(Tls::Offered, &mut sent);
        let exports = exports(has_many_exports);
        Talk { session, exports, export: None, discards, payload: 0, steps: Vec::new(), sent }
    }

    fn hear(&mut self, mut bytes: &[u8]) {
        let mut lists = false;
        loop {
            let payload = self.payload.min(bytes.len());
            self.payload -= payload;
            bytes = &bytes[payload..];
            if bytes.is_empty() && !lists {
                return;
            }
            let before = self.sent.len();
            let progress = self.session.receive(bytes, &self.exports, &mut self.sent);
            let written = self.sent.len() - before;
            if lists {
                assert!(progress.consumed == 0 && written > 0, "a list continues before other input is taken");
            } else {
                assert!(
                    0 < progress.consumed && progress.consumed <= bytes.len(),
                    "every call makes progress, on what it got"
                );
            }
            bytes = &bytes[progress.consumed..];
            let is_part = lists || progress.step == Step::ListPart;
            assert!(
                written <= if is_part { MAXIMUM_LIST_PART_BYTES } else { MOST_ANSWER },
                "the answer to one option, and a part of a list, are bounded"
            );
            lists = progress.step == Step::ListPart;
            match &progress.step {
                // The server would decrypt the following bytes.
                Step::Proceed | Step::ListPart | Step::StartTls | Step::ExportRefused { .. } => continue,
                Step::Established { export } => self.export = self.exports.find(export),
                Step::Request(request) => self.serve(request),
                Step::Refused(refused) => refused.reply(&mut self.sent),
                Step::Disconnect | Step::ProtocolError(_) => {
                    self.steps.push(progress.step);
                    return self.ended(bytes);
                }
            }
            self.steps.push(progress.step);
        }
    }

    /// Checks that after the end everything is consumed, with the same step and no output.
    fn ended(&mut self, rest: &[u8]) {
        let before = self.sent.len();
        let last = self.steps.pop().expect("it ended with a step");
        if self.steps.last() != Some(&last) {
            self.steps.push(last.clone());
        }
        let progress = self.session.receive(rest, &self.exports, &mut self.sent);
        assert_eq!((progress.consumed, progress.step, self.sent.len()), (rest.len(), last, before));
    }

    fn serve(&mut self, request: &Request) {
        let export = self.export.as_ref().expect("a request comes after its export was chosen");
        let end = request.offset.checked_add(u64::from(request.length));
        assert!(end.is_some_and(|end| end <= export.size_bytes()), "{request:?} is outside its export");
        assert!(!(export.is_read_only() && request.command.writes()), "{request:?} writes what is read-only");
        assert!(request.flags.within(request.command.permitted_flags()) && request.payload_bytes() <= 32 << 20);
        assert_eq!(request.length == 0, request.command == Command::Flush);
        if self.discards {
            self.session.discard_payload(request.payload_bytes());
        } else {
            self.payload = request.payload_bytes() as usize;
        }
        let before = self.sent.len();
        match request.command {
            Command::Read => self.reply_read(request),
            Command::BlockStatus => {
                let state = |at: usize| [ExtentState::Data, ExtentState::Zero, ExtentState::Unmapped][at % 3];
                let extents: Vec<Extent> = (0..8_usize)
                    .map(|at| Extent { length_bytes: request.cookie >> (at * 8), state: state(at) })
                    .collect();
                let one = [Extent { length_bytes: u64::MAX, state: ExtentState::Data }];
                let empty = extents.iter().all(|extent| extent.length_bytes == 0);
                request.reply_block_status(if empty { &one } else { &extents }, &mut self.sent);
                assert!(self.sent.len() - before <= 24 + 8 * MAXIMUM_EXTENTS);
            }
            _ if request.cookie & 1 == 0 => request.reply_error(ErrorCode::InputOutput, "medium error", &mut self.sent),
            _ => request.reply_done(&mut self.sent),
        }
    }

    /// Answers a read in pieces of data and holes, which may fail between them.
    fn reply_read(&mut self, request: &Request) {
        let (mut reply, mut parts) = (ReadReply::new(*request), Vec::new());
        let mut turns = request.cookie;
        while !reply.is_finished() {
            let whole = reply.wants_one_piece() || turns == 0;
            let length =
                if whole { reply.remaining_bytes() } else { reply.remaining_bytes().min(1 + (turns as u32 & 0xfff)) };
            if turns & 15 == 15 && !whole {
                let _ = reply.fail(ErrorCode::InputOutput, "medium error", &mut self.sent, &mut parts);
                break;
            }
            let (data, hole) = (length - length / 3, length / 3);
            reply.piece(&[Run::Data(data), Run::Hole(hole)], &mut self.sent, &mut parts);
            turns >>= 4;
        }
        assert!(reply.is_finished() && !reply.holds_stream());
    }
}
