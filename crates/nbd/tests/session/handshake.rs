//! Tests of the handshake.

use nbd::wire::*;
use nbd::{ExportInfo, InvalidExport, ReplyForm, Step, Tls, Violation};

use crate::client::*;

const ACK: u32 = 1;
const SERVER: u32 = 2;
const INFO: u32 = 3;
const META_CONTEXT: u32 = 4;
const UNSUPPORTED: u32 = 0x8000_0001;
const INVALID: u32 = 0x8000_0003;
const TLS_REQUIRED: u32 = 0x8000_0005;
const UNKNOWN: u32 = 0x8000_0006;
const SHUTDOWN: u32 = 0x8000_0007;
const TOO_BIG: u32 = 0x8000_0009;

const DISK_FLAGS: u64 = 0b1001_0110_1101;

fn kinds(replies: &[Reply]) -> Vec<u32> {
    replies.iter().map(|reply| reply.kind).collect()
}

fn established(export: &str) -> Step {
    Step::Established { export: export.into() }
}

#[test]
fn the_greeting_is_newstyle_with_bits_0_and_1_only() {
    assert_eq!(Client::connected().received, b"NBDMAGICIHAVEOPT\x00\x03");
}

#[test]
fn client_flags_that_were_not_offered_end_the_session() {
    for bit in 2..32 {
        let violation = Client::connected().violate(&(1_u32 << bit).to_be_bytes());
        assert_eq!(violation, Violation::ClientFlags, "bit {bit}");
    }
}

#[test]
fn a_handshake_in_single_bytes_gives_what_it_gives_in_one_piece() {
    let mut bytes = (FIXED_NEWSTYLE | NO_ZEROES).to_be_bytes().to_vec();
    bytes.extend(option(OPTION_STRUCTURED_REPLY, &[]));
    bytes.extend(option(OPTION_LIST, &[]));
    bytes.extend(option(77, b"whatever"));
    bytes.extend(option(OPTION_SET_META_CONTEXT, &meta_data("disk", &["base:allocation"])));
    bytes.extend(option(OPTION_GO, &info_data("disk", &[1, 2, 3])));
    bytes.extend(request(0, 0, 4096, 4096));
    let mut whole = Client::connected();
    let steps_whole = whole.send(&bytes);
    let mut split = Client::connected();
    let steps_split: Vec<Step> = bytes.iter().flat_map(|byte| split.send(&[*byte])).collect();
    assert_eq!(whole.received, split.received);
    assert_eq!(steps_whole, steps_split);
    assert!(matches!(&steps_whole[..], [Step::Established { export }, Step::Request(_)] if export == "disk"));
}

#[test]
fn one_call_answers_one_option_at_most() {
    let mut client = Client::haggling();
    let mut bytes = option(OPTION_LIST, &[]);
    let first = bytes.len();
    bytes.extend(option(OPTION_LIST, &[]));
    let progress = client.session.receive(&bytes, &client.exports, &mut client.received);
    assert_eq!((progress.consumed, progress.step), (first, Step::Proceed));
}

#[test]
fn an_unknown_option_is_swallowed_and_the_stream_stays_in_step() {
    let mut client = Client::haggling();
    for number in [0, 4, 12, 99, u32::MAX] {
        assert_eq!(client.ask_final(number, b"IHAVEOPT and more"), UNSUPPORTED, "option {number}");
        assert_eq!(kinds(&client.ask(OPTION_LIST, &[])), [SERVER, SERVER, SERVER, ACK]);
    }
}

#[test]
fn options_not_served_are_unsupported_and_never_require_tls() {
    let mut client = Client::haggling();
    assert_eq!(client.ask_final(OPTION_STARTTLS, &[]), UNSUPPORTED);
    assert_eq!(client.ask_final(OPTION_EXTENDED_HEADERS, &[]), UNSUPPORTED);
    assert_eq!(client.ask_final(OPTION_GO, &info_data("disk", &[])), ACK);
}

#[test]
fn where_tls_is_required_nothing_but_it_and_a_goodbye_is_answered_before() {
    let mut client = Client::haggling_with(Tls::Required);
    for number in [OPTION_LIST, OPTION_GO, OPTION_INFO, OPTION_STRUCTURED_REPLY, OPTION_SET_META_CONTEXT, 77] {
        assert_eq!(client.ask_final(number, &info_data("disk", &[])), TLS_REQUIRED, "option {number}");
    }
    assert_eq!(client.ask_final(OPTION_STARTTLS, b"x"), INVALID);
    client.received.clear();
    assert_eq!(client.send(&option(OPTION_STARTTLS, &[])), [Step::StartTls]);
    assert_eq!(kinds(&option_replies(&client.received)), [ACK]);
    assert_eq!(client.ask_final(OPTION_STARTTLS, &[]), INVALID, "once");
    assert_eq!(client.ask_final(OPTION_GO, &info_data("disk", &[])), ACK);
    let mut client = Client::haggling_with(Tls::Required);
    assert_eq!(client.ask_final(OPTION_ABORT, &[]), ACK);
    let mut client = Client::haggling_with(Tls::Required);
    assert_eq!(client.violate(&option(OPTION_EXPORT_NAME, b"disk")), Violation::TlsRequired);
}

#[test]
fn an_export_that_is_refused_is_described_and_not_opened_and_says_why() {
    let mut client = Client::haggling();
    let refused = client.exports.remove(0).refuse("another has it".into());
    client.exports.insert(0, refused);
    for name in ["disk", ""] {
        client.received.clear();
        assert_eq!(
            client.send(&option(OPTION_GO, &info_data(name, &[]))),
            [Step::ExportRefused { reason: "another has it".into() }]
        );
        let replies = option_replies(&client.received);
        assert_eq!(kinds(&replies), [OptionReply::Policy as u32]);
        assert_eq!(replies[0].data, b"another has it");
    }
    assert_eq!(client.ask_final(OPTION_INFO, &info_data("disk", &[])), ACK);
    assert_eq!(kinds(&client.ask(OPTION_LIST, &[])), [SERVER, SERVER, SERVER, ACK]);
    assert_eq!(client.violate(&option(OPTION_EXPORT_NAME, b"disk")), Violation::ExportRefused);
    let mut client = Client::haggling();
    client.exports[0] = client.exports[0].clone().refuse("ä".repeat(4096));
    let long = client.ask(OPTION_GO, &info_data("disk", &[])).remove(0).data;
    assert_eq!((long.len(), std::str::from_utf8(&long).is_ok()), (4096, true));
    client.go("frozen");
}

#[test]
fn what_was_negotiated_in_the_clear_does_not_count_under_tls() {
    let mut client = Client::haggling_with(Tls::Offered);
    assert_eq!(client.ask_final(OPTION_STRUCTURED_REPLY, &[]), ACK);
    assert_eq!(client.send(&option(OPTION_STARTTLS, &[])), [Step::StartTls]);
    client.go("disk");
    assert_eq!(client.session.reply_form(), Some(ReplyForm::Simple));
    let mut client = Client::haggling_with(Tls::Offered);
    assert_eq!(client.ask_final(OPTION_GO, &info_data("disk", &[])), ACK, "offered is not required");
}

#[test]
fn a_wrong_option_magic_ends_the_session() {
    let mut bytes = option(OPTION_LIST, &[]);
    bytes[7] ^= 1;
    assert_eq!(Client::haggling().violate(&bytes), Violation::OptionMagic);
}

#[test]
fn without_fixed_newstyle_only_export_name_and_abort_work() {
    let mut client = Client::connected();
    client.send(&NO_ZEROES.to_be_bytes());
    assert_eq!(client.ask_final(OPTION_LIST, &[]), INVALID);
    assert_eq!(client.ask_final(OPTION_GO, &info_data("disk", &[])), INVALID);
    assert_eq!(client.send(&option(OPTION_EXPORT_NAME, b"disk")), [established("disk")]);
}

#[test]
fn export_name_pads_with_124_zeroes_unless_both_agreed_not_to() {
    for (flags, zeroes) in [(FIXED_NEWSTYLE, 124), (0, 124), (FIXED_NEWSTYLE | NO_ZEROES, 0), (NO_ZEROES, 0)] {
        let mut client = Client::connected();
        client.send(&flags.to_be_bytes());
        client.received.clear();
        assert_eq!(client.send(&option(OPTION_EXPORT_NAME, b"disk")), [established("disk")]);
        assert_eq!(client.received.len(), 10 + zeroes);
        assert_eq!(integer(&client.received[..8]), DISK_BYTES);
        assert_eq!(integer(&client.received[8..10]), DISK_FLAGS);
        assert!(client.received[10..].iter().all(|byte| *byte == 0));
    }
}

#[test]
fn go_never_pads() {
    for flags in [FIXED_NEWSTYLE, FIXED_NEWSTYLE | NO_ZEROES] {
        let mut client = Client::connected();
        client.send(&flags.to_be_bytes());
        let replies = client.ask(OPTION_GO, &info_data("disk", &[]));
        assert_eq!(kinds(&replies), [INFO, ACK]);
        assert_eq!(replies[0].data.len(), 12);
        assert_eq!(integer(&replies[0].data[..2]), 0);
        assert_eq!(integer(&replies[0].data[2..10]), DISK_BYTES);
        assert_eq!(integer(&replies[0].data[10..]), DISK_FLAGS);
        assert!(replies[1].data.is_empty());
    }
}

#[test]
fn export_name_of_an_unknown_export_ends_the_session() {
    assert_eq!(Client::haggling().violate(&option(OPTION_EXPORT_NAME, b"none")), Violation::ExportRefused);
}

#[test]
fn the_empty_name_is_the_default_export() {
    let mut client = Client::haggling();
    assert_eq!(client.send(&option(OPTION_EXPORT_NAME, b"")), [established("disk")]);
    let mut client = Client::haggling();
    assert_eq!(client.send(&option(OPTION_GO, &info_data("", &[]))), [established("disk")]);
}

#[test]
fn without_a_default_export_the_empty_name_is_unknown() {
    let mut client = Client::haggling();
    client.exports = vec![ExportInfo::new("only", "", 4096).unwrap()];
    assert_eq!(client.ask_final(OPTION_GO, &info_data("", &[])), UNKNOWN);
    assert_eq!(client.violate(&option(OPTION_EXPORT_NAME, b"")), Violation::ExportRefused);
}

#[test]
fn a_name_is_matched_whole() {
    let mut client = Client::haggling();
    for name in ["dis", "disk2", "Disk", "disk ", "di/sk"] {
        assert_eq!(client.ask_final(OPTION_INFO, &info_data(name, &[])), UNKNOWN, "{name}");
    }
}

#[test]
fn info_then_the_same_go_tells_the_same() {
    let mut client = Client::haggling();
    let data = info_data("disk", &[3, 2, 1, 0]);
    let mut info = client.ask(OPTION_INFO, &data);
    let go = client.ask(OPTION_GO, &data);
    info.iter_mut().for_each(|reply| reply.option = OPTION_GO);
    assert_eq!(info, go);
}

#[test]
fn information_is_sent_when_asked_for_and_unknown_requests_are_ignored() {
    let mut client = Client::haggling();
    let replies = client.ask(OPTION_INFO, &info_data("", &[1, 2, 3, 4, 0xffff]));
    let data: Vec<&[u8]> = replies.iter().map(|reply| &reply.data[..]).collect();
    assert_eq!(kinds(&replies), [INFO, INFO, INFO, INFO, ACK]);
    assert_eq!(data[1], b"\x00\x01disk", "the default export tells its own name");
    assert_eq!(data[2], b"\x00\x02a disk");
    assert_eq!(data[3], b"\x00\x03\x00\x00\x00\x01\x00\x00\x10\x00\x02\x00\x00\x00");
    assert_eq!(kinds(&client.ask(OPTION_INFO, &info_data("frozen", &[2]))), [INFO, ACK], "an empty text is not sent");
}

#[test]
fn the_same_information_asked_for_a_thousand_times_is_sent_once() {
    let replies = Client::haggling().ask(OPTION_INFO, &info_data("disk", &[3; 1000]));
    assert_eq!(kinds(&replies), [INFO, INFO, ACK]);
}

#[test]
fn a_failed_go_leaves_the_handshake_going() {
    let mut client = Client::haggling();
    assert_eq!(kinds(&client.ask(OPTION_GO, &info_data("none", &[]))), [UNKNOWN]);
    assert!(client.session.is_in_handshake());
    assert_eq!(client.ask_final(OPTION_GO, &info_data("big", &[])), ACK);
    assert!(!client.session.is_in_handshake());
}

#[test]
fn transmission_flags_tell_what_works() {
    let mut client = Client::haggling();
    let mut flags = |name| integer(&client.ask(OPTION_INFO, &info_data(name, &[]))[0].data[10..]);
    assert_eq!(flags("disk"), DISK_FLAGS, "flush, FUA, trim, zeroes, multi-conn, fast zero");
    assert_eq!(flags("frozen"), 0b1_0000_1111, "read-only: no trim, no zeroes");
    client.ask(OPTION_STRUCTURED_REPLY, &[]);
    let replies = client.ask(OPTION_INFO, &info_data("disk", &[]));
    assert_eq!(integer(&replies[0].data[10..]), DISK_FLAGS | 1 << 7, "DF only with structured replies");
}

#[test]
fn abort_is_acknowledged_whatever_data_it_carries() {
    for data in [&b""[..], b"goodbye"] {
        let mut client = Client::haggling();
        assert_eq!(client.send(&option(OPTION_ABORT, data)), [Step::Disconnect]);
        assert_eq!(kinds(&option_replies(&client.received)), [ACK]);
        assert_eq!(client.send(b"anything"), [Step::Disconnect], "nothing is read after the end");
    }
}

#[test]
fn list_names_every_export_in_order_and_takes_no_data() {
    let mut client = Client::haggling();
    let replies = client.ask(OPTION_LIST, &[]);
    assert_eq!(kinds(&replies), [SERVER, SERVER, SERVER, ACK]);
    assert_eq!(replies[0].data, b"\x00\x00\x00\x03big");
    assert_eq!(replies[1].data, b"\x00\x00\x00\x04disk");
    assert_eq!(replies[2].data, b"\x00\x00\x00\x06frozen");
    assert_eq!(client.ask_final(OPTION_LIST, b"x"), INVALID);
}

#[test]
fn structured_replies_take_no_data_and_may_be_asked_for_twice() {
    let mut client = Client::haggling();
    assert_eq!(client.ask_final(OPTION_STRUCTURED_REPLY, b"x"), INVALID);
    assert_eq!(client.ask_final(OPTION_STRUCTURED_REPLY, &[]), ACK);
    assert_eq!(client.ask_final(OPTION_STRUCTURED_REPLY, &[]), ACK);
}

#[test]
fn meta_contexts_need_structured_replies_first() {
    let mut client = Client::haggling();
    let data = meta_data("disk", &["base:allocation"]);
    assert_eq!(client.ask_final(OPTION_SET_META_CONTEXT, &data), INVALID);
    assert_eq!(client.ask_final(OPTION_LIST_META_CONTEXT, &data), INVALID);
}

fn with_structured_replies() -> Client {
    let mut client = Client::haggling();
    assert_eq!(client.ask_final(OPTION_STRUCTURED_REPLY, &[]), ACK);
    client
}

#[test]
fn listing_contexts_matches_queries_and_wildcards() {
    let mut client = with_structured_replies();
    for (queries, found) in [
        (&[][..], true),
        (&["base:"][..], true),
        (&["base:allocation"][..], true),
        (&["x-other:", "base:allocation", "base:allocation"][..], true),
        (&["base:other"][..], false),
        (&["qemu:dirty-bitmap:a", "", "base", "base:allocation2"][..], false),
    ] {
        let replies = client.ask(OPTION_LIST_META_CONTEXT, &meta_data("disk", queries));
        if found {
            assert_eq!(kinds(&replies), [META_CONTEXT, ACK], "{queries:?}");
            assert_eq!(replies[0].data, b"\x00\x00\x00\x00base:allocation");
        } else {
            assert_eq!(kinds(&replies), [ACK], "{queries:?}");
        }
    }
}

#[test]
fn setting_contexts_selects_exact_names_only() {
    let mut client = with_structured_replies();
    for (queries, found) in [
        (&[][..], false),
        (&["base:"][..], false),
        (&["base:other", "x-other:thing"][..], false),
        (&["base:allocation"][..], true),
        (&["x-other:", "base:allocation", "base:allocation"][..], true),
    ] {
        let replies = client.ask(OPTION_SET_META_CONTEXT, &meta_data("disk", queries));
        let expected = if found { &[META_CONTEXT, ACK][..] } else { &[ACK][..] };
        assert_eq!(kinds(&replies), expected, "{queries:?}");
    }
}

/// Returns true if BLOCK_STATUS works after these options and GO on `disk`.
fn selected_after(options: &[Vec<u8>]) -> bool {
    let mut client = with_structured_replies();
    for option in options {
        client.send(option);
    }
    client.go("disk");
    matches!(client.send(&request(7, 0, 0, 4096))[..], [Step::Request(_)])
}

#[test]
fn set_meta_context_replaces_the_selection_also_when_it_fails() {
    let select = option(OPTION_SET_META_CONTEXT, &meta_data("disk", &["base:allocation"]));
    assert!(selected_after(std::slice::from_ref(&select)));
    let mut cut_short = meta_data("disk", &["base:allocation"]);
    cut_short.pop();
    for replacement in [
        meta_data("disk", &[]),
        meta_data("disk", &["base:"]),
        meta_data("none", &["base:allocation"]),
        cut_short,
        Vec::new(),
    ] {
        let replacement = option(OPTION_SET_META_CONTEXT, &replacement);
        assert!(!selected_after(&[select.clone(), replacement.clone()]));
        assert!(selected_after(&[replacement, select.clone()]));
    }
    let listing = option(OPTION_LIST_META_CONTEXT, &meta_data("disk", &[]));
    assert!(selected_after(&[select, listing]), "a listing selects and deselects nothing");
}

#[test]
fn a_selection_holds_for_its_export_only() {
    let other = option(OPTION_SET_META_CONTEXT, &meta_data("big", &["base:allocation"]));
    assert!(!selected_after(&[other]));
    let default = option(OPTION_SET_META_CONTEXT, &meta_data("", &["base:allocation"]));
    assert!(selected_after(&[default]), "the empty name and the default export's name are one export");
}

#[test]
fn malformed_queries_are_invalid_and_leave_the_stream_in_step() {
    let mut client = with_structured_replies();
    let good = meta_data("disk", &["base:allocation"]);
    for cut in 0..good.len() {
        assert_eq!(client.ask_final(OPTION_SET_META_CONTEXT, &good[..cut]), INVALID, "cut at {cut}");
        assert_eq!(client.ask_final(OPTION_LIST_META_CONTEXT, &good[..cut]), INVALID, "cut at {cut}");
    }
    let mut long = good.clone();
    long.push(0);
    assert_eq!(client.ask_final(OPTION_SET_META_CONTEXT, &long), INVALID);
    assert_eq!(client.ask_final(OPTION_SET_META_CONTEXT, &good), ACK);
}

#[test]
fn more_queries_than_the_limit_are_too_big() {
    let mut client = with_structured_replies();
    assert_eq!(client.ask_final(OPTION_SET_META_CONTEXT, &meta_data("disk", &["x:"; 1024])), ACK);
    assert_eq!(client.ask_final(OPTION_SET_META_CONTEXT, &meta_data("disk", &["x:"; 1025])), TOO_BIG);
}

#[test]
fn contexts_of_an_unknown_export_are_unknown() {
    let mut client = with_structured_replies();
    assert_eq!(client.ask_final(OPTION_LIST_META_CONTEXT, &meta_data("none", &[])), UNKNOWN);
    assert_eq!(client.ask_final(OPTION_SET_META_CONTEXT, &meta_data("none", &[])), UNKNOWN);
}

#[test]
fn strings_must_be_utf_8_without_nul() {
    let mut client = with_structured_replies();
    assert_eq!(client.ask_final(OPTION_INFO, b"\x00\x00\x00\x02\xff\xfe\x00\x00"), INVALID);
    assert_eq!(client.ask_final(OPTION_INFO, &info_data("di\0sk", &[])), INVALID);
    assert_eq!(client.ask_final(OPTION_SET_META_CONTEXT, &meta_data("disk", &["base:\0"])), INVALID);
    assert_eq!(client.violate(&option(OPTION_EXPORT_NAME, b"\xff")), Violation::ExportRefused);
}

#[test]
fn malformed_info_is_invalid_at_every_length() {
    let mut client = Client::haggling();
    let good = info_data("disk", &[1, 3]);
    for cut in 0..good.len() {
        assert_eq!(client.ask_final(OPTION_GO, &good[..cut]), INVALID, "cut at {cut}");
    }
    let mut long = good.clone();
    long.push(0);
    assert_eq!(client.ask_final(OPTION_GO, &long), INVALID);
    assert_eq!(client.ask_final(OPTION_GO, &good), ACK);
}

#[test]
fn while_shutting_down_options_but_abort_are_refused() {
    let mut client = Client::haggling();
    client.session.shut_down();
    for number in [OPTION_LIST, OPTION_GO, OPTION_STARTTLS, 77] {
        assert_eq!(client.ask_final(number, &[]), SHUTDOWN);
    }
    assert_eq!(client.ask_final(OPTION_ABORT, &[]), ACK);
    let mut client = Client::haggling();
    client.session.shut_down();
    assert_eq!(client.violate(&option(OPTION_EXPORT_NAME, b"disk")), Violation::ExportRefused);
}

#[test]
fn exports_are_checked_where_they_are_made() {
    let long = "x".repeat(4097);
    assert_eq!(ExportInfo::new("", "", 0), Err(InvalidExport::EmptyName));
    assert_eq!(ExportInfo::new(&long, "", 0), Err(InvalidExport::StringTooLong));
    assert_eq!(ExportInfo::new("a", &long, 0), Err(InvalidExport::StringTooLong));
    assert_eq!(ExportInfo::new("a\0", "", 0), Err(InvalidExport::StringHoldsNul));
}
