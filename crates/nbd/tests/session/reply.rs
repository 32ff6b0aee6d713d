//! Tests of replies to all commands but READ.

use nbd::wire::*;
use nbd::{Extent, ExtentState, MAXIMUM_EXTENTS, Request, Step};

use crate::client::*;

const COMMANDS_WITHOUT_CONTENT: [(Command, u32); 4] =
    [(Command::Write, 512), (Command::Flush, 0), (Command::Trim, 512), (Command::WriteZeroes, 512)];

#[test]
fn success_without_content_is_a_simple_reply_with_the_cookie() {
    for mut client in [Client::simple("disk"), Client::structured("disk")] {
        for (command, length) in COMMANDS_WITHOUT_CONTENT {
            let mut bytes = Vec::new();
            client.request(command, 0, 0, length).reply_done(&mut bytes);
            assert_eq!(bytes.len(), SIMPLE_REPLY_BYTES);
            assert_eq!(messages(&bytes), [Message::Simple { error: 0, cookie: COOKIE }]);
        }
    }
}

#[test]
fn without_structured_replies_every_error_is_a_simple_reply() {
    let mut client = Client::simple("disk");
    for (command, length) in COMMANDS_WITHOUT_CONTENT.into_iter().chain([(Command::Read, 512)]) {
        let mut bytes = Vec::new();
        client.request(command, 0, 0, length).reply_error(ErrorCode::InputOutput, "text", &mut bytes);
        assert_eq!(messages(&bytes), [Message::Simple { error: 5, cookie: COOKIE }]);
    }
}

#[test]
fn with_structured_replies_every_error_is_one_final_chunk_with_a_text() {
    let mut client = Client::structured("disk");
    for (command, length) in
        COMMANDS_WITHOUT_CONTENT.into_iter().chain([(Command::Read, 512), (Command::BlockStatus, 1)])
    {
        let mut bytes = Vec::new();
        client.request(command, 0, 0, length).reply_error(ErrorCode::NoSpace, "full", &mut bytes);
        let payload = b"\x00\x00\x00\x1c\x00\x04full".to_vec();
        assert_eq!(messages(&bytes), [Message::Chunk { flags: 1, kind: 0x8001, cookie: COOKIE, payload }]);
    }
}

#[test]
fn the_eight_error_values_are_those_of_the_specification() {
    let codes = [
        (ErrorCode::NotPermitted, 1),
        (ErrorCode::InputOutput, 5),
        (ErrorCode::OutOfMemory, 12),
        (ErrorCode::Invalid, 22),
        (ErrorCode::NoSpace, 28),
        (ErrorCode::Overflow, 75),
        (ErrorCode::NotSupported, 95),
        (ErrorCode::Shutdown, 108),
    ];
    let request = Client::simple("disk").request(Command::Flush, 0, 0, 0);
    for (code, number) in codes {
        let mut bytes = Vec::new();
        request.reply_error(code, "", &mut bytes);
        assert_eq!(messages(&bytes), [Message::Simple { error: number, cookie: COOKIE }]);
    }
}

#[test]
fn a_refused_read_is_answered_in_a_chunk_once_chunks_are_negotiated() {
    for (mut client, structured) in [(Client::simple("disk"), false), (Client::structured("disk"), true)] {
        let [Step::Refused(refused)] = client.send(&request(0, 0, DISK_BYTES, 1))[..] else { panic!() };
        let mut bytes = Vec::new();
        refused.reply(&mut bytes);
        match &messages(&bytes)[..] {
            [Message::Simple { error: 22, cookie: COOKIE }] => assert!(!structured),
            [Message::Chunk { flags: 1, kind: 0x8001, cookie: COOKIE, payload }] => {
                assert!(structured);
                assert_eq!(payload[..4], [0, 0, 0, 22]);
                assert_eq!(&payload[6..], refused.message.as_bytes());
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn an_error_text_is_cut_to_4096_bytes_between_characters() {
    let request = Client::structured("disk").request(Command::Flush, 0, 0, 0);
    for (text, kept) in [("x".repeat(100_000), 4096), ("\u{20ac}".repeat(2000), 4095)] {
        let mut bytes = Vec::new();
        request.reply_error(ErrorCode::InputOutput, &text, &mut bytes);
        let [Message::Chunk { payload, .. }] = &messages(&bytes)[..] else { panic!() };
        assert_eq!(integer(&payload[4..6]), kept);
        assert_eq!(std::str::from_utf8(&payload[6..]).unwrap().len(), kept as usize);
    }
}

fn extent(length_bytes: u64, state: ExtentState) -> Extent {
    Extent { length_bytes, state }
}

/// Returns the descriptors of a reply to BLOCK_STATUS, whose form is checked.
fn descriptors(request: &Request, extents: &[Extent]) -> Vec<(u64, u64)> {
    let mut bytes = b"before".to_vec();
    request.reply_block_status(extents, &mut bytes);
    let [Message::Chunk { flags: 1, kind: 5, cookie: COOKIE, payload }] = &messages(&bytes[6..])[..] else {
        panic!("one final chunk per context");
    };
    assert_eq!(payload[..4], ALLOCATION_CONTEXT_ID.to_be_bytes());
    payload[4..].chunks(8).map(|descriptor| (integer(&descriptor[..4]), integer(&descriptor[4..]))).collect()
}

#[test]
fn block_status_reports_data_zeroes_and_holes_in_order() {
    let request = Client::structured("disk").request(Command::BlockStatus, 0, 0, 3 * 4096);
    let extents =
        [extent(4096, ExtentState::Data), extent(4096, ExtentState::Zero), extent(4096, ExtentState::Unmapped)];
    assert_eq!(descriptors(&request, &extents), [(4096, 0), (4096, 2), (4096, 3)]);
}

#[test]
fn block_status_joins_neighbours_and_skips_empty_extents() {
    let request = Client::structured("disk").request(Command::BlockStatus, 0, 0, 3 * 4096);
    let extents = [
        extent(0, ExtentState::Unmapped),
        extent(4096, ExtentState::Data),
        extent(0, ExtentState::Zero),
        extent(4096, ExtentState::Data),
        extent(4096, ExtentState::Unmapped),
    ];
    assert_eq!(descriptors(&request, &extents), [(8192, 0), (4096, 3)]);
}

#[test]
fn block_status_ends_where_the_request_ends() {
    let request = Client::structured("disk").request(Command::BlockStatus, 0, 0, 5000);
    let extents =
        [extent(4096, ExtentState::Data), extent(4096, ExtentState::Unmapped), extent(4096, ExtentState::Data)];
    assert_eq!(descriptors(&request, &extents), [(4096, 0), (904, 3)]);
}

#[test]
fn block_status_with_req_one_is_one_extent_within_the_request() {
    let request = Client::structured("disk").request(Command::BlockStatus, 1 << 3, 0, 5000);
    let many = [extent(1000, ExtentState::Data), extent(1000, ExtentState::Data), extent(9000, ExtentState::Unmapped)];
    assert_eq!(descriptors(&request, &many), [(2000, 0)]);
    assert_eq!(descriptors(&request, &[extent(u64::MAX, ExtentState::Unmapped)]), [(5000, 3)]);
}

#[test]
fn block_status_may_answer_less_than_was_asked() {
    let request = Client::structured("disk").request(Command::BlockStatus, 0, 0, 5000);
    assert_eq!(descriptors(&request, &[extent(10, ExtentState::Data)]), [(10, 0)]);
}

#[test]
fn block_status_is_bounded_in_extents() {
    let request = Client::structured("big").request(Command::BlockStatus, 0, 0, u32::MAX);
    let extents: Vec<Extent> = (0..100_000)
        .map(|index| extent(4096, if index % 2 == 0 { ExtentState::Data } else { ExtentState::Unmapped }))
        .collect();
    assert_eq!(descriptors(&request, &extents).len(), MAXIMUM_EXTENTS);
}
