//! Tests of the validation of requests, and of the answers to refused ones.

use nbd::wire::*;
use nbd::{ReplyForm, Step, Violation};

use crate::client::*;

const MEBIBYTE: u32 = 1 << 20;

#[test]
fn a_request_comes_out_as_it_was_sent() {
    let mut client = Client::simple("disk");
    let request = client.request(Command::WriteZeroes, 0b1_0011, 12_345, 678);
    assert_eq!((request.cookie, request.command), (COOKIE, Command::WriteZeroes));
    assert_eq!((request.offset, request.length), (12_345, 678));
    assert!(request.flags.force_unit_access() && request.flags.no_hole() && request.flags.fast_zero());
    assert!(!request.flags.do_not_fragment() && !request.flags.one_extent());
}

#[test]
fn the_payload_of_a_write_is_left_to_the_caller() {
    let mut client = Client::simple("disk");
    let mut bytes = request(1, 0, 0, 4096);
    bytes.extend_from_slice(&[7; 4096]);
    bytes.extend(request(3, 0, 0, 0));
    let progress = client.session.receive(&bytes, &client.exports, &mut client.received);
    let Step::Request(write) = progress.step else { panic!("{progress:?}") };
    assert_eq!((progress.consumed, write.payload_bytes()), (REQUEST_BYTES, 4096));
    let rest = &bytes[REQUEST_BYTES + 4096..];
    assert!(matches!(client.send(rest)[..], [Step::Request(flush)] if flush.command == Command::Flush));
    assert!(client.received.is_empty(), "requests are never answered behind the caller's back");
}

#[test]
fn a_payload_that_the_caller_discards_is_swallowed() {
    let mut client = Client::simple("disk");
    let mut bytes = request(1, 0, 0, 4096);
    bytes.extend_from_slice(&[0x25; 4096]);
    bytes.extend(request(3, 0, 0, 0));
    let progress = client.session.receive(&bytes, &client.exports, &mut client.received);
    client.session.discard_payload(4096);
    let steps: Vec<Step> = bytes[progress.consumed..].iter().flat_map(|byte| client.send(&[*byte])).collect();
    assert!(matches!(steps[..], [Step::Request(flush)] if flush.command == Command::Flush));
}

#[test]
fn requests_up_to_the_end_of_the_export_are_served() {
    let mut client = Client::structured("disk");
    for command in [Command::Read, Command::Trim, Command::WriteZeroes, Command::BlockStatus, Command::Write] {
        client.request(command, 0, DISK_BYTES - 1, 1);
        client.request(command, 0, 0, 32 * MEBIBYTE);
    }
    client.request(Command::Trim, 0, 0, 64 * MEBIBYTE);
}

#[test]
fn beyond_the_end_is_einval_for_reads_and_enospc_for_writes() {
    let mut client = Client::structured("disk");
    for (offset, length) in [(DISK_BYTES, 1), (DISK_BYTES - 1, 2), (DISK_BYTES + 4096, 512), (0, 64 * MEBIBYTE + 1)] {
        for (command, error) in [
            (Command::Read, ErrorCode::Invalid),
            (Command::Trim, ErrorCode::Invalid),
            (Command::BlockStatus, ErrorCode::Invalid),
            (Command::WriteZeroes, ErrorCode::NoSpace),
        ] {
            assert_eq!(client.refusal(command as u16, 0, offset, length), error, "{command:?} {offset} {length}");
        }
    }
    assert_eq!(client.refusal(Command::Write as u16, 0, DISK_BYTES - 1, 2), ErrorCode::NoSpace);
}

#[test]
fn offset_plus_length_never_wraps() {
    let mut client = Client::structured("disk");
    for (offset, length) in [(u64::MAX, 1), (u64::MAX, 4096), (u64::MAX - 4095, 4096), (u64::MAX - 4096, 4096)] {
        assert_eq!(client.refusal(0, 0, offset, length), ErrorCode::Invalid);
        assert_eq!(client.refusal(1, 0, offset, length), ErrorCode::NoSpace);
        assert_eq!(client.refusal(4, 0, offset, length), ErrorCode::Invalid);
        assert_eq!(client.refusal(6, 0, offset, length), ErrorCode::NoSpace);
        assert_eq!(client.refusal(7, 0, offset, length), ErrorCode::Invalid);
    }
    assert_eq!(client.refusal(6, 0, u64::MAX - 10, u32::MAX), ErrorCode::NoSpace);
}

#[test]
fn commands_without_payload_may_be_longer_than_the_maximum_payload() {
    let mut client = Client::structured("big");
    for command in [Command::Trim, Command::WriteZeroes, Command::BlockStatus] {
        assert_eq!(client.request(command, 0, 1, u32::MAX).length, u32::MAX);
    }
}

#[test]
fn zero_lengths_are_einval_and_do_not_disconnect() {
    let mut client = Client::structured("disk");
    for command in [Command::Read, Command::Write, Command::Trim, Command::WriteZeroes, Command::BlockStatus] {
        assert_eq!(client.refusal(command as u16, 0, 0, 0), ErrorCode::Invalid, "{command:?}");
    }
    client.request(Command::Read, 0, 0, 1);
}

#[test]
fn payloads_beyond_32_mib_are_einval_and_swallowed() {
    let mut client = Client::simple("big");
    assert_eq!(client.refusal(0, 0, 0, 32 * MEBIBYTE + 1), ErrorCode::Invalid);
    assert_eq!(client.refusal(0, 0, 0, u32::MAX), ErrorCode::Invalid);
    assert_eq!(client.refusal(1, 0, 0, 32 * MEBIBYTE + 1), ErrorCode::Invalid);
    assert_eq!(client.refusal(1, 0, 0, 64 * MEBIBYTE), ErrorCode::Invalid);
    client.request(Command::Flush, 0, 0, 0);
}

#[test]
fn a_refused_payload_beyond_64_mib_ends_the_session() {
    let bytes = request(1, 0, 0, 64 * MEBIBYTE + 1);
    assert_eq!(Client::simple("big").violate(&bytes), Violation::PayloadTooLong);
}

#[test]
fn a_refused_write_is_swallowed_in_any_fragments() {
    let mut bytes = request(1, 0, DISK_BYTES, 1000);
    bytes.extend_from_slice(&[0x25; 1000]);
    bytes.extend(request(0, 0, 0, 1));
    for fragment in [1, 7, 28, 29, 500, 2000] {
        let mut client = Client::simple("disk");
        let steps: Vec<Step> = bytes.chunks(fragment).flat_map(|chunk| client.send(chunk)).collect();
        assert!(matches!(steps[..], [Step::Refused(_), Step::Request(_)]), "fragments of {fragment}");
    }
}

#[test]
fn a_read_only_export_refuses_every_command_that_writes_with_eperm() {
    let mut client = Client::structured("frozen");
    for command in [Command::Write, Command::Trim, Command::WriteZeroes] {
        assert_eq!(client.refusal(command as u16, 0, 0, 4096), ErrorCode::NotPermitted, "{command:?}");
    }
    for command in [Command::Read, Command::BlockStatus] {
        client.request(command, 0, 0, 4096);
    }
    client.request(Command::Flush, 0, 0, 0);
}

#[test]
fn fua_is_accepted_on_every_command() {
    let mut client = Client::structured("disk");
    for command in [Command::Read, Command::Write, Command::Trim, Command::WriteZeroes, Command::BlockStatus] {
        assert!(client.request(command, 1, 0, 4096).flags.force_unit_access());
    }
    client.request(Command::Flush, 1, 0, 0);
}

#[test]
fn each_flag_belongs_to_its_command() {
    const COMMANDS: [Command; 6] =
        [Command::Read, Command::Write, Command::Flush, Command::Trim, Command::WriteZeroes, Command::BlockStatus];
    let owner = |bit| match bit {
        1 | 4 => Some(Command::WriteZeroes),
        2 => Some(Command::Read),
        3 => Some(Command::BlockStatus),
        _ => None,
    };
    let mut client = Client::structured("disk");
    for command in COMMANDS {
        let length = if command == Command::Flush { 0 } else { 512 };
        for bit in 1..16 {
            if owner(bit) == Some(command) {
                client.request(command, 1 << bit, 0, length);
            } else {
                assert_eq!(
                    client.refusal(command as u16, 1 << bit, 0, length),
                    ErrorCode::Invalid,
                    "{command:?} {bit}"
                );
            }
        }
    }
}

#[test]
fn unknown_commands_are_einval_and_keep_the_stream_in_step() {
    let mut client = Client::simple("disk");
    for number in [5, 8, 9, 255, u16::MAX] {
        assert_eq!(client.refusal(number, 0, 0, 4096), ErrorCode::Invalid, "command {number}");
    }
    client.request(Command::Read, 0, 0, 1);
}

#[test]
fn df_without_structured_replies_is_einval() {
    assert_eq!(Client::simple("disk").refusal(0, 1 << 2, 0, 4096), ErrorCode::Invalid);
    Client::structured("disk").request(Command::Read, 1 << 2, 0, 32 * MEBIBYTE);
}

#[test]
fn block_status_without_a_selected_context_is_einval() {
    assert_eq!(Client::simple("disk").refusal(7, 0, 0, 4096), ErrorCode::Invalid);
    let mut client = Client::haggling();
    client.send(&option(OPTION_STRUCTURED_REPLY, &[]));
    client.go("disk");
    assert_eq!(client.refusal(7, 0, 0, 4096), ErrorCode::Invalid);
}

#[test]
fn the_reserved_fields_of_a_flush_must_be_zero() {
    let mut client = Client::simple("disk");
    assert_eq!(client.refusal(3, 0, 1, 0), ErrorCode::Invalid);
    assert_eq!(client.refusal(3, 0, 0, 1), ErrorCode::Invalid);
    client.request(Command::Flush, 0, 0, 0);
}

#[test]
fn disc_ends_the_session_whatever_its_fields() {
    for (flags, offset, length) in [(0, 0, 0), (u16::MAX, 5, 6)] {
        let mut client = Client::simple("disk");
        assert_eq!(client.send(&request(2, flags, offset, length)), [Step::Disconnect]);
        assert_eq!(client.send(&request(0, 0, 0, 1)), [Step::Disconnect], "nothing is served after it");
        assert_eq!(client.session.reply_form(), None);
    }
}

#[test]
fn a_write_sent_just_before_disc_is_served_first() {
    let mut client = Client::simple("disk");
    let mut bytes = request(1, 0, 0, 512);
    bytes.extend_from_slice(&[1; 512]);
    bytes.extend(request(2, 0, 0, 0));
    assert!(matches!(client.send(&bytes)[..], [Step::Request(_), Step::Disconnect]));
}

#[test]
fn a_wrong_request_magic_ends_the_session() {
    for bit in 0..32 {
        let mut bytes = request(0, 0, 0, 512);
        bytes[bit / 8] ^= 1 << (bit % 8);
        let mut client = Client::simple("disk");
        assert_eq!(client.violate(&bytes), Violation::RequestMagic);
        assert_eq!(client.violate(&request(0, 0, 0, 512)), Violation::RequestMagic, "it stays ended");
    }
}

#[test]
fn the_reply_form_is_what_was_negotiated() {
    assert_eq!(Client::haggling().session.reply_form(), None);
    assert_eq!(Client::simple("disk").session.reply_form(), Some(ReplyForm::Simple));
    assert_eq!(Client::structured("disk").session.reply_form(), Some(ReplyForm::Structured));
}
