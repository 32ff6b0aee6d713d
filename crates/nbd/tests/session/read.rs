//! Tests of replies to READ.

use nbd::wire::*;
use nbd::{Failure, Part, ReadReply, Request, Run};

use crate::client::*;

const DF: u16 = 1 << 2;

/// Returns the byte at an offset of the export.
pub fn content(offset: u64) -> u8 {
    (offset % 251) as u8 + 1
}

/// A reply in progress and its bytes on the wire.
pub struct Sender {
    pub reply: ReadReply,
    pub sent: Vec<u8>,
}

impl Sender {
    pub fn new(request: Request) -> Sender {
        Sender { reply: ReadReply::new(request), sent: Vec::new() }
    }

    pub fn piece(&mut self, runs: &[Run]) {
        let (mut headers, mut parts) = (b"earlier".to_vec(), Vec::new());
        self.reply.piece(runs, &mut headers, &mut parts);
        self.send(&headers, &parts);
    }

    pub fn fail(&mut self) -> Failure {
        let (mut headers, mut parts) = (b"earlier".to_vec(), Vec::new());
        let failure = self.reply.fail(ErrorCode::InputOutput, "medium error", &mut headers, &mut parts);
        self.send(&headers, &parts);
        failure
    }

    fn send(&mut self, headers: &[u8], parts: &[Part]) {
        for part in parts {
            match part {
                Part::Headers(range) => self.sent.extend_from_slice(&headers[range.clone()]),
                Part::Data { start, length } => {
                    let first = self.reply.request().offset + u64::from(*start);
                    self.sent.extend((first..first + u64::from(*length)).map(content));
                }
                Part::Zeroes(length) => self.sent.resize(self.sent.len() + *length as usize, 0),
            }
        }
    }

    pub fn outcome(&self) -> ReadOutcome {
        assemble_read(self.reply.request(), &self.sent)
    }
}

/// Returns the bytes that a reader of these runs gets.
pub fn expected(request: &Request, runs: &[Run]) -> Vec<Option<u8>> {
    let mut bytes = Vec::new();
    for run in runs {
        let first = request.offset + bytes.len() as u64;
        match run {
            Run::Data(length) => bytes.extend((first..first + u64::from(*length)).map(content).map(Some)),
            Run::Hole(length) => bytes.resize(bytes.len() + *length as usize, Some(0)),
        }
    }
    bytes
}

const RUNS: [Run; 5] = [Run::Data(100), Run::Hole(200), Run::Hole(50), Run::Data(7), Run::Data(43)];

#[test]
fn a_simple_read_is_one_header_and_all_the_data_with_zeroes_sent() {
    let request = Client::simple("disk").request(Command::Read, 0, 1000, 400);
    let mut sender = Sender::new(request);
    assert!(sender.reply.wants_one_piece());
    sender.piece(&RUNS);
    assert!(sender.reply.is_finished());
    assert_eq!(messages(&sender.sent[..16]), [Message::Simple { error: 0, cookie: COOKIE }]);
    let data: Vec<Option<u8>> = sender.sent[16..].iter().copied().map(Some).collect();
    assert_eq!(data, expected(&request, &RUNS));
}

#[test]
fn a_simple_read_in_pieces_holds_the_stream_and_has_one_header() {
    let request = Client::simple("disk").request(Command::Read, 0, 0, 400);
    let mut sender = Sender::new(request);
    assert!(!sender.reply.holds_stream());
    sender.piece(&RUNS[..2]);
    assert!(sender.reply.holds_stream());
    sender.piece(&RUNS[2..]);
    assert!(!sender.reply.holds_stream());
    assert_eq!(sender.sent.len(), 16 + 400);
}

#[test]
fn a_simple_read_that_fails_before_its_header_is_an_error_without_payload() {
    let mut sender = Sender::new(Client::simple("disk").request(Command::Read, 0, 0, 400));
    assert_eq!(sender.fail(), Failure::Reported);
    assert_eq!(messages(&sender.sent), [Message::Simple { error: 5, cookie: COOKIE }]);
}

#[test]
fn a_simple_read_that_fails_after_its_header_can_only_disconnect() {
    let mut sender = Sender::new(Client::simple("disk").request(Command::Read, 0, 0, 400));
    sender.piece(&RUNS[..2]);
    let sent = sender.sent.len();
    assert_eq!(sender.fail(), Failure::HardDisconnect);
    assert_eq!(sender.sent.len(), sent);
}

#[test]
fn a_structured_read_sends_holes_as_holes() {
    let request = Client::structured("disk").request(Command::Read, 0, 1000, 400);
    let mut sender = Sender::new(request);
    assert!(!sender.reply.wants_one_piece());
    sender.piece(&RUNS);
    let outcome = sender.outcome();
    assert_eq!(outcome.content, expected(&request, &RUNS));
    assert_eq!(outcome.content_chunks, 3, "neighbouring runs of one kind are one chunk");
    assert_eq!(sender.sent.len(), (20 + 8 + 100) + (20 + 12) + (20 + 8 + 50), "and no further chunk ends the reply");
}

#[test]
fn headers_that_follow_each_other_are_one_part() {
    let request = Client::structured("disk").request(Command::Read, 0, 0, 400);
    let (mut headers, mut parts) = (Vec::new(), Vec::new());
    ReadReply::new(request).piece(&RUNS, &mut headers, &mut parts);
    assert_eq!(
        parts,
        [
            Part::Headers(0..28),
            Part::Data { start: 0, length: 100 },
            Part::Headers(28..88),
            Part::Data { start: 350, length: 50 },
        ]
    );
}

#[test]
fn a_structured_read_in_pieces_ends_once_and_never_holds_the_stream() {
    let request = Client::structured("disk").request(Command::Read, 0, 4096, 400);
    let mut sender = Sender::new(request);
    for run in RUNS {
        assert!(!sender.reply.is_finished());
        sender.piece(&[run]);
        assert!(!sender.reply.holds_stream());
    }
    assert!(sender.reply.is_finished());
    assert_eq!(sender.outcome().content, expected(&request, &RUNS));
}

#[test]
fn an_empty_piece_changes_nothing() {
    let mut sender = Sender::new(Client::structured("disk").request(Command::Read, DF, 0, 400));
    sender.piece(&[]);
    sender.piece(&[Run::Data(0), Run::Hole(0)]);
    assert!(sender.sent.is_empty() && !sender.reply.holds_stream());
    assert_eq!(sender.fail(), Failure::Reported);
    assert_eq!(sender.outcome().error, Some((5, None)), "nothing was sent, so the error is a plain one");
}

#[test]
fn a_structured_read_that_fails_late_names_the_offset_and_sends_no_more() {
    let request = Client::structured("disk").request(Command::Read, 0, 4096, 400);
    let mut sender = Sender::new(request);
    sender.piece(&RUNS[..2]);
    assert_eq!(sender.fail(), Failure::Reported);
    let outcome = sender.outcome();
    assert_eq!(outcome.error, Some((5, Some(4096 + 300))));
    assert_eq!(outcome.content[..300], expected(&request, &RUNS[..2]));
    assert!(outcome.content[300..].iter().all(Option::is_none));
}

#[test]
fn a_df_read_in_one_piece_is_one_final_data_chunk() {
    let request = Client::structured("disk").request(Command::Read, DF, 4096, 400);
    let mut sender = Sender::new(request);
    sender.piece(&RUNS);
    assert_eq!(sender.outcome().content, expected(&request, &RUNS));
    assert_eq!(sender.sent.len(), 20 + 8 + 400);
}

#[test]
fn a_df_read_in_pieces_is_one_data_chunk_and_a_final_none() {
    let request = Client::structured("disk").request(Command::Read, DF, 4096, 400);
    let mut sender = Sender::new(request);
    for run in RUNS {
        sender.piece(&[run]);
        assert_eq!(sender.reply.holds_stream(), sender.reply.remaining_bytes() != 0);
    }
    assert_eq!(sender.outcome().content, expected(&request, &RUNS));
    assert_eq!(sender.sent.len(), 20 + 8 + 400 + 20);
}

#[test]
fn a_df_read_that_fails_late_is_filled_up_and_then_fails_at_the_offset() {
    let request = Client::structured("disk").request(Command::Read, DF, 4096, 400);
    let mut sender = Sender::new(request);
    sender.piece(&RUNS[..1]);
    assert_eq!(sender.fail(), Failure::Reported);
    assert!(!sender.reply.holds_stream());
    let outcome = sender.outcome();
    assert_eq!(outcome.error, Some((5, Some(4096 + 100))));
    assert_eq!(outcome.content, expected(&request, &[Run::Data(100), Run::Hole(300)]));
}

#[test]
fn df_is_honoured_up_to_32_mib() {
    let length = 32 << 20;
    let request = Client::structured("disk").request(Command::Read, DF, 0, length);
    let mut reply = ReadReply::new(request);
    let (mut headers, mut parts) = (Vec::new(), Vec::new());
    for _ in 0..32 {
        reply.piece(&[Run::Data(1 << 20)], &mut headers, &mut parts);
    }
    assert!(reply.is_finished());
    assert_eq!(headers.len(), 28 + 20);
    assert_eq!(integer(&headers[16..20]), 8 + u64::from(length));
}

#[test]
#[should_panic(expected = "the pieces of a read do not exceed the request")]
fn a_piece_beyond_the_request_is_a_bug_of_the_caller() {
    Sender::new(Client::simple("disk").request(Command::Read, 0, 0, 400)).piece(&[Run::Data(401)]);
}
