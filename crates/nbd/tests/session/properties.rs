//! Property tests over all inputs: no panic, bounded output, no dependence on the division into calls, valid plans.

use nbd::wire::*;
use nbd::{Extent, ExtentState, Failure, MAXIMUM_EXTENTS, Run, Step};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};

use crate::client::*;
use crate::read::{Sender, expected};

/// Maximum length of the answer to one option of the exports in these tests, generously.
const MAXIMUM_ANSWER_BYTES: usize = 1024;

fn option_number() -> impl Strategy<Value = u32> {
    prop_oneof![20 => 0_u32..14, 1 => any::<u32>()]
}

fn export_name() -> impl Strategy<Value = &'static str> {
    select(vec!["disk", "frozen", "big", "", "none"])
}

fn option_data() -> impl Strategy<Value = Vec<u8>> {
    let query = select(vec!["base:allocation", "base:", "base:x", "other:x", ""]);
    prop_oneof![
        vec(any::<u8>(), 0..64),
        (export_name(), vec(0_u16..6, 0..5)).prop_map(|(name, requests)| info_data(name, &requests)),
        (export_name(), vec(query, 0..4)).prop_map(|(name, queries)| meta_data(name, &queries)),
        export_name().prop_map(|name| name.as_bytes().to_vec()),
    ]
}

fn offset() -> impl Strategy<Value = u64> {
    prop_oneof![0..DISK_BYTES, any::<u64>(), (0_u64..10_000).prop_map(|back| u64::MAX - back)]
}

fn length() -> impl Strategy<Value = u32> {
    prop_oneof![10 => 0_u32..10_000, 1 => any::<u32>()]
}

/// Generates a request and, if it is a short write, its payload.
fn request_bytes() -> impl Strategy<Value = Vec<u8>> {
    (0_u16..10, prop_oneof![3 => Just(0_u16), 1 => any::<u16>()], offset(), length()).prop_map(
        |(command, flags, offset, length)| {
            let mut bytes = request(command, flags, offset, length);
            if command == 1 {
                bytes.resize(bytes.len() + (length as usize).min(20_000), 0x25);
            }
            bytes
        },
    )
}

/// Generates a client's bytes after the greeting. They are mostly well-formed, then changed in a few places.
fn conversation() -> impl Strategy<Value = Vec<u8>> {
    let flags = prop_oneof![10 => Just(3_u32), 1 => 0_u32..4, 1 => any::<u32>()];
    let options = vec((option_number(), option_data()), 0..8);
    let go = prop_oneof![
        export_name().prop_map(|name| option(OPTION_GO, &info_data(name, &[]))),
        export_name().prop_map(|name| option(OPTION_EXPORT_NAME, name.as_bytes())),
    ];
    let bent = prop_oneof![2 => Just(Vec::new()), 1 => vec((any::<Index>(), any::<u8>()), 1..3)];
    (flags, options, go, vec(request_bytes(), 0..6), bent).prop_map(|(flags, options, go, requests, bent)| {
        let mut bytes = flags.to_be_bytes().to_vec();
        bytes.extend(options.iter().flat_map(|(number, data)| option(*number, data)));
        bytes.extend(go);
        bytes.extend(requests.concat());
        for (index, byte) in bent {
            let position = index.index(bytes.len());
            bytes[position] = byte;
        }
        bytes
    })
}

/// Feeds bytes call by call and checks the output of each call.
fn feed_checking_output(client: &mut Client, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        client.received.clear();
        let progress = client.session.receive(bytes, &client.exports, &mut client.received);
        assert!(progress.consumed > 0 && progress.consumed <= bytes.len());
        assert!(client.received.len() <= MAXIMUM_ANSWER_BYTES);
        bytes = &bytes[progress.consumed..];
        if let Step::Refused(refused) = progress.step {
            refused.reply(&mut client.received);
            assert!(client.received.len() <= MAXIMUM_ANSWER_BYTES);
        }
    }
}

fn run() -> impl Strategy<Value = Run> {
    prop_oneof![(0_u32..3000).prop_map(Run::Data), (0_u32..3000).prop_map(Run::Hole)]
}

fn run_bytes(runs: &[Run]) -> u32 {
    runs.iter()
        .map(|run| match run {
            Run::Data(length) | Run::Hole(length) => *length,
        })
        .sum()
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic_and_output_is_bounded(bytes in vec(any::<u8>(), 0..400)) {
        feed_checking_output(&mut Client::connected(), &bytes);
        feed_checking_output(&mut Client::haggling(), &bytes);
        feed_checking_output(&mut Client::simple("disk"), &bytes);
        feed_checking_output(&mut Client::structured("big"), &bytes);
    }

    #[test]
    fn arbitrary_option_data_never_panics(number in option_number(), data in vec(any::<u8>(), 0..200)) {
        let mut client = Client::haggling();
        client.send(&option(OPTION_STRUCTURED_REPLY, &[]));
        feed_checking_output(&mut client, &option(number, &data));
    }

    #[test]
    fn bent_conversations_never_panic_and_output_is_bounded(bytes in conversation()) {
        feed_checking_output(&mut Client::connected(), &bytes);
    }

    #[test]
    fn arbitrary_fragments_give_what_one_piece_gives(bytes in conversation(), cuts in vec(any::<Index>(), 0..40)) {
        let mut whole = Client::connected();
        let steps_whole = whole.send(&bytes);
        let mut positions: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
        positions.extend([0, bytes.len()]);
        positions.sort_unstable();
        let mut split = Client::connected();
        let mut steps_split = Vec::new();
        for pair in positions.windows(2) {
            steps_split.extend(split.send(&bytes[pair[0]..pair[1]]));
        }
        // After the end every call repeats the last step.
        let ends = |step: &Step| matches!(step, Step::Disconnect | Step::ProtocolError(_));
        let meaningful = |steps: Vec<Step>| {
            let end = steps.iter().position(ends).map_or(steps.len(), |position| position + 1);
            steps[..end].to_vec()
        };
        prop_assert_eq!(meaningful(steps_whole), meaningful(steps_split));
        prop_assert_eq!(whole.received, split.received);
    }

    #[test]
    fn every_request_handed_out_is_within_its_export(
        command in 0_u16..10,
        flags in prop_oneof![Just(0_u16), 0_u16..64, any::<u16>()],
        offset in offset(),
        length in length(),
        structured in any::<bool>(),
    ) {
        let mut client = if structured { Client::structured("disk") } else { Client::simple("disk") };
        let steps = client.send(&request(command, flags, offset, length));
        prop_assert_eq!(steps.len(), 1);
        if let Step::Request(request) = steps[0] {
            let end = request.offset.checked_add(u64::from(request.length));
            prop_assert!(end.is_some_and(|end| end <= DISK_BYTES));
            prop_assert_eq!(request.length == 0, request.command == Command::Flush);
            prop_assert!(request.payload_bytes() <= MAXIMUM_PAYLOAD_BYTES);
            prop_assert!(request.flags.within(request.command.permitted_flags()));
        }
    }

    #[test]
    fn structured_reads_obey_every_rule_on_chunks(
        pieces in vec(vec(run(), 0..6), 1..6),
        do_not_fragment in any::<bool>(),
        offset in 0_u64..1_000_000,
        fail_before in prop_oneof![Just(None), (0_usize..6).prop_map(Some)],
    ) {
        let runs = pieces.concat();
        prop_assume!(run_bytes(&runs) > 0);
        let flags = if do_not_fragment { CommandFlags::DO_NOT_FRAGMENT } else { 0 };
        let request = Client::structured("disk").request(Command::Read, flags, offset, run_bytes(&runs));
        let mut sender = Sender::new(request);
        for (index, piece) in pieces.iter().enumerate() {
            if sender.reply.is_finished() {
                break;
            }
            if fail_before == Some(index) {
                prop_assert_eq!(sender.fail(), Failure::Reported);
            } else {
                sender.piece(piece);
            }
        }
        prop_assert!(sender.reply.is_finished() && !sender.reply.holds_stream());
        let outcome = sender.outcome();
        let wanted = expected(&request, &runs);
        match outcome.error {
            None => prop_assert_eq!(outcome.content, wanted),
            Some((_, None)) => prop_assert_eq!(outcome.content_chunks, 0),
            Some((_, Some(error_offset))) => {
                let valid = (error_offset - offset) as usize;
                prop_assert_eq!(&outcome.content[..valid], &wanted[..valid]);
            }
        }
    }

    #[test]
    fn simple_reads_are_a_header_and_the_bytes(pieces in vec(vec(run(), 0..6), 1..4)) {
        let runs = pieces.concat();
        prop_assume!(run_bytes(&runs) > 0);
        let request = Client::simple("disk").request(Command::Read, 0, 512, run_bytes(&runs));
        let mut sender = Sender::new(request);
        for piece in pieces {
            if !sender.reply.is_finished() {
                sender.piece(&piece);
            }
        }
        let data: Vec<Option<u8>> = sender.sent[SIMPLE_REPLY_BYTES..].iter().copied().map(Some).collect();
        prop_assert_eq!(data, expected(&request, &runs));
    }

    #[test]
    fn block_status_obeys_every_rule_on_descriptors(
        lengths in vec((prop_oneof![0_u64..10_000, any::<u64>()], 0_usize..3), 0..40),
        length in 1..u32::MAX,
        one_extent in any::<bool>(),
    ) {
        let states = [ExtentState::Data, ExtentState::Zero, ExtentState::Unmapped];
        let extents: Vec<Extent> =
            lengths.iter().map(|(length_bytes, state)| Extent { length_bytes: *length_bytes, state: states[*state] }).collect();
        prop_assume!(extents.iter().any(|extent| extent.length_bytes != 0));
        let flags = if one_extent { CommandFlags::ONE_EXTENT } else { 0 };
        let request = Client::structured("big").request(Command::BlockStatus, flags, 0, length);
        let mut bytes = Vec::new();
        request.reply_block_status(&extents, &mut bytes);
        let decoded = messages(&bytes);
        let [Message::Chunk { flags: 1, kind: 5, payload, .. }] = &decoded[..] else { panic!("{decoded:?}") };
        let descriptors: Vec<(u64, u64)> = payload[4..].chunks(8).map(|bytes| (integer(&bytes[..4]), integer(&bytes[4..]))).collect();
        prop_assert!(!descriptors.is_empty() && descriptors.len() <= MAXIMUM_EXTENTS);
        prop_assert!(descriptors.iter().all(|(length, status)| *length != 0 && [0, 2, 3].contains(status)));
        prop_assert!(descriptors.iter().map(|(length, _)| length).sum::<u64>() <= u64::from(length));
        prop_assert!(!one_extent || descriptors.len() == 1);
        prop_assert!(descriptors.windows(2).all(|pair| pair[0].1 != pair[1].1), "neighbours differ");
    }
}
