//! Hostile clients: attacks that broke other servers, by CVE number, and further ones.

use nbd::wire::*;
use nbd::{ExportInfo, Extent, ExtentState, InvalidExport, Session, Step, Tls, Violation};

use crate::client::*;

const UNKNOWN: u32 = 0x8000_0006;
const INVALID: u32 = 0x8000_0003;

#[test]
fn cve_2005_3534_and_2011_0530_a_request_longer_than_any_buffer_is_an_error() {
    let mut client = Client::simple("big");
    assert_eq!(client.refusal(0, 0, 0, u32::MAX), ErrorCode::Invalid);
    assert_eq!(client.violate(&request(1, 0, 0, u32::MAX)), Violation::PayloadTooLong);
}

#[test]
fn cve_2011_1925_and_2021_20286_a_client_may_vanish_after_every_byte() {
    let mut bytes = (FIXED_NEWSTYLE | NO_ZEROES).to_be_bytes().to_vec();
    bytes.extend(option(OPTION_STRUCTURED_REPLY, &[]));
    bytes.extend(option(OPTION_GO, &info_data("disk", &[3])));
    bytes.extend(request(0, 0, 0, 4096));
    for cut in 0..bytes.len() {
        let mut client = Client::connected();
        client.send(&bytes[..cut]);
        assert!(!matches!(client.session.receive(&[], &client.exports, &mut client.received).step, Step::Disconnect));
    }
}

#[test]
fn cve_2013_7441_an_unknown_export_ends_its_own_session_only() {
    let mut first = Client::haggling();
    let mut second = Client::haggling();
    assert_eq!(first.violate(&option(OPTION_EXPORT_NAME, b"unknown")), Violation::ExportRefused);
    second.go("disk");
}

#[test]
fn cve_2017_7539_data_where_none_belongs_is_no_crash() {
    for number in 0..=20 {
        let mut client = Client::haggling();
        client.send(&option(number, b"\xff\xff\xff\xff data where none belongs"));
    }
}

#[test]
fn cve_2017_15118_and_2020_10761_names_of_256_and_4096_bytes_are_unknown_and_no_more() {
    for length in [255, 256, 257, 1024, 4095, 4096] {
        let name = "n".repeat(length);
        let mut client = Client::haggling();
        for number in [OPTION_INFO, OPTION_GO] {
            let replies = client.ask(number, &info_data(&name, &[0, 1, 2, 3]));
            assert_eq!(replies.len(), 1);
            assert_eq!(replies[0].kind, UNKNOWN);
            assert!(replies[0].data.len() < 256, "the text does not repeat the name");
        }
        assert_eq!(client.violate(&option(OPTION_EXPORT_NAME, name.as_bytes())), Violation::ExportRefused);
    }
    let name = "n".repeat(4097);
    let mut client = Client::haggling();
    assert_eq!(client.ask_final(OPTION_GO, &info_data(&name, &[])), INVALID);
    assert_eq!(client.violate(&option(OPTION_EXPORT_NAME, name.as_bytes())), Violation::ExportRefused);
}

#[test]
fn cve_2017_15118_an_export_whose_name_has_4096_bytes_can_be_served() {
    let name = "n".repeat(4096);
    let mut client = Client::haggling();
    client.exports = vec![ExportInfo::new(&name, &name, 4096).unwrap()];
    assert_eq!(client.ask(OPTION_LIST, &[]).len(), 2);
    let replies = client.ask(OPTION_GO, &info_data(&name, &[1, 2]));
    assert_eq!(replies.len(), 4);
    assert_eq!(replies[1].data.len(), 2 + 4096);
}

#[test]
fn cve_2017_15119_and_2022_26496_a_huge_option_ends_the_session_undrained() {
    for number in [OPTION_EXPORT_NAME, OPTION_ABORT, OPTION_LIST, OPTION_INFO, OPTION_GO, OPTION_SET_META_CONTEXT, 99] {
        for length in [(64 << 10) + 1, 1 << 31, u32::MAX] {
            let violation = Client::haggling().violate(&option_header(number, length));
            assert_eq!(violation, Violation::OptionTooLong, "option {number} of {length} bytes");
        }
        let mut client = Client::haggling();
        let steps = client.send(&option(number, &vec![b'x'; 64 << 10]));
        assert!(!steps.contains(&Step::ProtocolError(Violation::OptionTooLong)), "64 KiB is within the limit");
    }
}

#[test]
fn cve_2022_26495_a_name_length_that_lies_is_invalid() {
    let mut client = Client::haggling();
    client.ask(OPTION_STRUCTURED_REPLY, &[]);
    for number in [OPTION_INFO, OPTION_GO, OPTION_LIST_META_CONTEXT, OPTION_SET_META_CONTEXT] {
        for length in [5_u32, 7, 4096, 1 << 16, 1 << 31, u32::MAX - 5, u32::MAX - 1, u32::MAX] {
            let mut data = length.to_be_bytes().to_vec();
            data.extend_from_slice(b"disk\0\0");
            assert_eq!(client.ask_final(number, &data), INVALID, "option {number}, name of {length} bytes");
        }
    }
}

#[test]
fn a_query_count_or_length_that_lies_is_an_error() {
    let mut client = Client::haggling();
    client.ask(OPTION_STRUCTURED_REPLY, &[]);
    for (count, length) in [(1, u32::MAX), (1, 16), (2, 15), (1024, 15), (1025, 15), (u32::MAX, 15)] {
        let mut data = string("disk");
        data.extend_from_slice(&u32::to_be_bytes(count));
        data.extend_from_slice(&u32::to_be_bytes(length));
        data.extend_from_slice(b"base:allocation");
        assert!(client.ask_final(OPTION_SET_META_CONTEXT, &data) & 1 << 31 != 0, "{count} queries of {length}");
    }
}

#[test]
fn cve_2019_14851_commands_before_the_handshake_is_over_are_no_requests() {
    let mut client = Client::haggling();
    assert_eq!(client.violate(&request(0, 0, 0, 512)), Violation::OptionMagic);
    let violation = Client::simple("disk").violate(&option(OPTION_GO, &info_data("disk", &[1, 2, 3])));
    assert_eq!(violation, Violation::RequestMagic);
}

#[test]
fn cve_2019_14850_nothing_is_established_by_a_mere_connection() {
    let mut output = Vec::new();
    let session = Session::new(Tls::Unsupported, &mut output);
    assert!(session.is_in_handshake());
    let mut client = Client::connected();
    assert_eq!(client.send(&FIXED_NEWSTYLE.to_be_bytes()), []);
    assert_eq!(client.send(&option(OPTION_INFO, &info_data("disk", &[]))), []);
}

#[test]
fn cve_2021_3716_what_comes_before_starttls_does_not_make_it_succeed() {
    let mut client = Client::haggling();
    client.ask(OPTION_STRUCTURED_REPLY, &[]);
    assert_eq!(client.ask_final(OPTION_STARTTLS, &[]), 0x8000_0001, "there is no TLS, so nothing can survive into it");
}

#[test]
fn cve_2023_5215_sizes_of_2_to_the_63_and_more_are_not_exported() {
    assert_eq!(ExportInfo::new("a", "", 1 << 63), Err(InvalidExport::SizeTooLarge));
    assert!(ExportInfo::new("a", "", (1 << 63) - 1).is_ok());
}

#[test]
fn cve_2025_47711_and_47712_block_status_of_four_gigabytes_stays_within_the_request() {
    let mut client = Client::structured("big");
    let request = client.request(Command::BlockStatus, 0, 1, u32::MAX);
    for length_bytes in [u64::from(u32::MAX), 1 << 32, u64::MAX] {
        for repeat in [1, 3] {
            let mut bytes = Vec::new();
            request.reply_block_status(&vec![Extent { length_bytes, state: ExtentState::Data }; repeat], &mut bytes);
            let [Message::Chunk { payload, .. }] = &messages(&bytes)[..] else { panic!() };
            assert_eq!(payload[4..], [0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0]);
        }
    }
}

#[test]
fn fast_zero_on_a_read_only_export_that_does_not_advertise_it_is_an_error_and_no_abort() {
    assert_eq!(Client::simple("frozen").refusal(6, 1 << 4, 0, 4096), ErrorCode::NotPermitted);
}

#[test]
fn more_options_than_the_limit_end_the_session() {
    let mut client = Client::haggling();
    for _ in 0..nbd::MAXIMUM_OPTIONS + nbd::MAXIMUM_OPTIONS_PER_EXPORT * client.exports.len() as u32 {
        assert_eq!(client.send(&option(99, &[])), []);
    }
    assert_eq!(client.violate(&option(99, &[])), Violation::TooManyOptions);
}
