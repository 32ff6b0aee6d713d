//! A test client. It builds its own messages, decodes the replies with a separate decoder, and checks the protocol's rules on the way.

use nbd::wire::*;
use nbd::{ExportInfo, Progress, Request, Session, Step, Tls, Violation};

pub const DISK_BYTES: u64 = 64 << 20;
pub const BIG_BYTES: u64 = 1 << 40;

pub const FIXED_NEWSTYLE: u32 = 1;
pub const NO_ZEROES: u32 = 2;

/// Returns the exports `disk` (the default one), `frozen` (read-only) and `big`.
pub fn exports() -> Vec<ExportInfo> {
    vec![
        ExportInfo::new("disk", "a disk", DISK_BYTES).unwrap().default_export(true),
        ExportInfo::new("frozen", "", DISK_BYTES).unwrap().read_only(true),
        ExportInfo::new("big", "", BIG_BYTES).unwrap(),
    ]
}

/// A connection seen from the client. Its messages are fed to a session, and the replies are kept.
pub struct Client {
    pub session: Session,
    pub exports: Vec<ExportInfo>,
    pub received: Vec<u8>,
    /// Number of payload bytes of the last request that are still to come.
    payload_bytes: usize,
}

impl Client {
    /// Connects to a server without TLS and receives the greeting. Client flags are not sent.
    pub fn connected() -> Client {
        Client::with(Tls::Unsupported)
    }

    /// Connects to a server with this TLS mode and receives the greeting. Client flags are not sent.
    pub fn with(tls: Tls) -> Client {
        let mut received = Vec::new();
        let session = Session::new(tls, &mut received);
        Client { session, exports: exports(), received, payload_bytes: 0 }
    }

    /// Connects to a server without TLS and sends the client flags. Options can follow.
    pub fn haggling() -> Client {
        Client::haggling_with(Tls::Unsupported)
    }

    /// Connects to a server with this TLS mode and sends the client flags. Options can follow.
    pub fn haggling_with(tls: Tls) -> Client {
        let mut client = Client::with(tls);
        assert_eq!(client.send(&(FIXED_NEWSTYLE | NO_ZEROES).to_be_bytes()), []);
        client.received.clear();
        client
    }

    /// Enters transmission on the export named, with simple replies.
    pub fn simple(export: &str) -> Client {
        let mut client = Client::haggling();
        client.go(export);
        client
    }

    /// Enters transmission on the export named, with structured replies and `base:allocation`.
    pub fn structured(export: &str) -> Client {
        let mut client = Client::haggling();
        assert_eq!(client.send(&option(OPTION_STRUCTURED_REPLY, &[])), []);
        assert_eq!(client.send(&option(OPTION_SET_META_CONTEXT, &meta_data(export, &["base:allocation"]))), []);
        client.go(export);
        client
    }

    pub fn go(&mut self, export: &str) {
        let steps = self.send(&option(OPTION_GO, &info_data(export, &[])));
        assert!(matches!(steps[..], [Step::Established { .. }]), "{steps:?}");
        self.received.clear();
    }

    /// Sends bytes, from which payloads of requests are taken out, and takes the replies. Returns all steps but [`Step::Proceed`] and [`Step::ListPart`].
    pub fn send(&mut self, mut bytes: &[u8]) -> Vec<Step> {
        let mut steps = Vec::new();
        let mut continues = false;
        loop {
            let payload = self.payload_bytes.min(bytes.len());
            self.payload_bytes -= payload;
            bytes = &bytes[payload..];
            if bytes.is_empty() && !continues {
                return steps;
            }
            let Progress { consumed, step } = self.session.receive(bytes, &self.exports, &mut self.received);
            assert_eq!(consumed == 0, continues, "a call makes progress; the next part of a list consumes nothing");
            bytes = &bytes[consumed..];
            continues = step == Step::ListPart;
            match step {
                Step::Proceed | Step::ListPart => continue,
                Step::Request(request) => self.payload_bytes = request.payload_bytes() as usize,
                _ => {}
            }
            steps.push(step);
        }
    }

    /// Sends an option and returns its replies.
    pub fn ask(&mut self, number: u32, data: &[u8]) -> Vec<Reply> {
        self.received.clear();
        self.send(&option(number, data));
        let replies = option_replies(&self.received);
        assert!(replies.iter().all(|reply| reply.option == number), "replies carry the client's option number");
        replies
    }

    /// Sends one option and returns the type of its final reply.
    pub fn ask_final(&mut self, number: u32, data: &[u8]) -> u32 {
        self.ask(number, data).last().expect("every option is answered").kind
    }

    /// Sends one request that must be accepted, without its payload, if any.
    pub fn request(&mut self, command: Command, flags: u16, offset: u64, length: u32) -> Request {
        let steps = self.send(&request(command as u16, flags, offset, length));
        self.payload_bytes = 0;
        match steps[..] {
            [Step::Request(request)] => request,
            ref steps => panic!("not accepted: {steps:?}"),
        }
    }

    /// Sends one request that must be refused, with its payload if it is a write. Returns the error.
    pub fn refusal(&mut self, command: u16, flags: u16, offset: u64, length: u32) -> ErrorCode {
        let mut bytes = request(command, flags, offset, length);
        if command == Command::Write as u16 {
            bytes.resize(bytes.len() + length as usize, 0x25);
        }
        match self.send(&bytes)[..] {
            [Step::Refused(refused)] => {
                assert_eq!(refused.cookie, COOKIE);
                refused.error
            }
            ref steps => panic!("not refused: {steps:?}"),
        }
    }

    /// Sends bytes that must end the session at once.
    pub fn violate(&mut self, bytes: &[u8]) -> Violation {
        match self.send(bytes)[..] {
            [.., Step::ProtocolError(violation)] => violation,
            ref steps => panic!("no violation: {steps:?}"),
        }
    }
}

pub const COOKIE: u64 = 0x0123_4567_89ab_cdef;

pub fn option(number: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = option_header(number, data.len() as u32);
    bytes.extend_from_slice(data);
    bytes
}

pub fn option_header(number: u32, data_bytes: u32) -> Vec<u8> {
    let mut bytes = b"IHAVEOPT".to_vec();
    bytes.extend_from_slice(&number.to_be_bytes());
    bytes.extend_from_slice(&data_bytes.to_be_bytes());
    bytes
}

pub fn info_data(export: &str, requests: &[u16]) -> Vec<u8> {
    let mut data = string(export);
    data.extend_from_slice(&(requests.len() as u16).to_be_bytes());
    for request in requests {
        data.extend_from_slice(&request.to_be_bytes());
    }
    data
}

pub fn meta_data(export: &str, queries: &[&str]) -> Vec<u8> {
    let mut data = string(export);
    data.extend_from_slice(&(queries.len() as u32).to_be_bytes());
    for query in queries {
        data.extend(string(query));
    }
    data
}

pub fn string(text: &str) -> Vec<u8> {
    let mut bytes = (text.len() as u32).to_be_bytes().to_vec();
    bytes.extend_from_slice(text.as_bytes());
    bytes
}

pub fn request(command: u16, flags: u16, offset: u64, length: u32) -> Vec<u8> {
    let mut bytes = vec![0x25, 0x60, 0x95, 0x13];
    bytes.extend_from_slice(&flags.to_be_bytes());
    bytes.extend_from_slice(&command.to_be_bytes());
    bytes.extend_from_slice(&COOKIE.to_be_bytes());
    bytes.extend_from_slice(&offset.to_be_bytes());
    bytes.extend_from_slice(&length.to_be_bytes());
    bytes
}

/// One reply to an option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    pub option: u32,
    pub kind: u32,
    pub data: Vec<u8>,
}

/// Decodes a series of whole replies to options.
pub fn option_replies(mut bytes: &[u8]) -> Vec<Reply> {
    let mut replies = Vec::new();
    while !bytes.is_empty() {
        assert_eq!(bytes[..8], 0x0003_e889_0455_65a9_u64.to_be_bytes());
        let length = integer(&bytes[16..20]) as usize;
        replies.push(Reply {
            option: integer(&bytes[8..12]) as u32,
            kind: integer(&bytes[12..16]) as u32,
            data: bytes[20..20 + length].to_vec(),
        });
        bytes = &bytes[20 + length..];
    }
    replies
}

/// A message of the transmission phase.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    Simple { error: u32, cookie: u64 },
    Chunk { flags: u16, kind: u16, cookie: u64, payload: Vec<u8> },
}

/// Decodes messages that carry no data after a simple reply.
pub fn messages(mut bytes: &[u8]) -> Vec<Message> {
    let mut messages = Vec::new();
    while !bytes.is_empty() {
        match integer(&bytes[..4]) {
            0x6744_6698 => {
                messages.push(Message::Simple { error: integer(&bytes[4..8]) as u32, cookie: integer(&bytes[8..16]) });
                bytes = &bytes[16..];
            }
            0x668e_33ef => {
                let length = integer(&bytes[16..20]) as usize;
                messages.push(Message::Chunk {
                    flags: integer(&bytes[4..6]) as u16,
                    kind: integer(&bytes[6..8]) as u16,
                    cookie: integer(&bytes[8..16]),
                    payload: bytes[20..20 + length].to_vec(),
                });
                bytes = &bytes[20 + length..];
            }
            magic => panic!("{magic:#x} begins no message"),
        }
    }
    messages
}

pub fn integer(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |value, byte| value << 8 | u64::from(*byte))
}

/// Result of a structured reply to a READ, as the client sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadOutcome {
    /// Received content of each byte of the request.
    pub content: Vec<Option<u8>>,
    /// The error and, if it was named, its offset.
    pub error: Option<(u32, Option<u64>)>,
    pub content_chunks: usize,
}

/// Assembles a structured reply to a READ and checks every rule on its chunks ("Structured reply types").
pub fn assemble_read(request: &Request, bytes: &[u8]) -> ReadOutcome {
    let mut outcome = ReadOutcome { content: vec![None; request.length as usize], error: None, content_chunks: 0 };
    let messages = messages(bytes);
    for (index, message) in messages.iter().enumerate() {
        let Message::Chunk { flags, kind, cookie, payload } = message else {
            panic!("a READ is answered in chunks once they are negotiated");
        };
        assert_eq!(*cookie, request.cookie);
        assert_eq!(*flags, u16::from(index + 1 == messages.len()), "DONE is on the last chunk only");
        match kind {
            0 => assert!(payload.is_empty() && *flags == 1),
            1 => {
                assert!(payload.len() >= 9, "an OFFSET_DATA chunk is at least 9 bytes");
                outcome.put(request, integer(&payload[..8]), &payload[8..]);
            }
            2 => {
                assert_eq!(payload.len(), 12, "an OFFSET_HOLE chunk is 12 bytes");
                let length = integer(&payload[8..]) as usize;
                assert!(length > 0, "a hole is not empty");
                assert!(!request.flags.do_not_fragment(), "with DF zeroes are data");
                outcome.put(request, integer(&payload[..8]), &vec![0; length]);
            }
            0x8001 | 0x8002 => {
                let error = integer(&payload[..4]) as u32;
                let message_bytes = integer(&payload[4..6]) as usize;
                assert!(error != 0 && message_bytes <= 4096);
                let rest = &payload[6 + message_bytes..];
                let offset = (*kind == 0x8002).then(|| integer(rest));
                assert_eq!(rest.len(), if offset.is_some() { 8 } else { 0 });
                if let Some(offset) = offset {
                    assert!(offset >= request.offset && offset - request.offset < u64::from(request.length));
                }
                assert_eq!(outcome.error.replace((error, offset)), None, "one error per reply");
            }
            kind => panic!("{kind} is no chunk type for a READ"),
        }
    }
    if outcome.error.is_none() {
        assert!(outcome.content.iter().all(Option::is_some), "success covers the request");
    }
    if request.flags.do_not_fragment() {
        assert!(outcome.content_chunks <= 1, "with DF there is at most one content chunk");
    }
    outcome
}

impl ReadOutcome {
    fn put(&mut self, request: &Request, offset: u64, data: &[u8]) {
        assert_eq!(self.error, None, "content does not follow an error");
        self.content_chunks += 1;
        let start = offset.checked_sub(request.offset).expect("content begins within the request") as usize;
        for (slot, byte) in self.content[start..start + data.len()].iter_mut().zip(data) {
            assert_eq!(slot.replace(*byte), None, "content does not overlap");
        }
    }
}
