//! Tests of many exports: how often a session looks them up, and lists in parts.

use std::cell::Cell;
use std::collections::BTreeSet;

use nbd::wire::*;
use nbd::{ExportInfo, Exports, MAXIMUM_LIST_PART_BYTES, Session, Step, Tls};
use proptest::collection::{btree_set, vec};
use proptest::prelude::*;

use crate::client::*;

/// Exports that count the calls of their methods.
#[derive(Default)]
struct Counted {
    names: BTreeSet<String>,
    refused: Option<&'static str>,
    finds: Cell<usize>,
    counts: Cell<usize>,
    /// Calls of `names_after`, and names taken from their results.
    lists: Cell<usize>,
    taken: Cell<usize>,
}

fn add(count: &Cell<usize>) {
    count.set(count.get() + 1);
}

impl Exports for Counted {
    fn find(&self, name: &str) -> Option<ExportInfo> {
        add(&self.finds);
        let name = if name.is_empty() { self.names.first()? } else { self.names.get(name)? };
        let export = ExportInfo::new(name, "", DISK_BYTES).unwrap();
        Some(if self.refused == Some(name) { export.refuse("another has it".into()) } else { export })
    }

    fn count(&self) -> usize {
        add(&self.counts);
        self.names.len()
    }

    fn names_after<'a>(&'a self, name: &'a str) -> Box<dyn Iterator<Item = &'a str> + 'a> {
        add(&self.lists);
        let behind = self.names.iter().filter(move |other| other.as_str() > name);
        Box::new(behind.map(String::as_str).inspect(|_| add(&self.taken)))
    }
}

impl Counted {
    /// Makes `count` exports with names of 63 bytes, the longest of a volume.
    fn of(count: usize) -> Counted {
        Counted { names: (0..count).map(|number| format!("{number:063}")).collect(), ..Counted::default() }
    }
}

/// Begins a session in which options can follow.
fn haggling(exports: &Counted) -> Session {
    let mut output = Vec::new();
    let mut session = Session::new(Tls::Unsupported, &mut output);
    let progress = session.receive(&(FIXED_NEWSTYLE | NO_ZEROES).to_be_bytes(), exports, &mut output);
    assert_eq!(progress.step, Step::Proceed);
    session
}

/// Asks for the list and returns the first part, with true if others follow.
fn first_part(session: &mut Session, exports: &Counted) -> (Vec<u8>, bool) {
    let (mut output, list) = (Vec::new(), option(OPTION_LIST, &[]));
    let progress = session.receive(&list, exports, &mut output);
    assert_eq!(progress.consumed, list.len());
    (output, progress.step == Step::ListPart)
}

/// Returns the next part of a list, with true if others follow.
fn next_part(session: &mut Session, exports: &Counted) -> (Vec<u8>, bool) {
    let mut output = Vec::new();
    let progress = session.receive(&option(OPTION_ABORT, &[]), exports, &mut output);
    assert_eq!(progress.consumed, 0, "a later option waits for the end of the list");
    (output, progress.step == Step::ListPart)
}

/// Returns the names in the replies of one list, or of a part of it.
fn names(replies: &[Reply]) -> Vec<String> {
    let server = replies.iter().filter(|reply| reply.kind == OptionReply::Server as u32);
    server
        .map(|reply| {
            assert_eq!((integer(&reply.data[..4]) as usize, reply.option), (reply.data.len() - 4, OPTION_LIST));
            String::from_utf8(reply.data[4..].to_vec()).unwrap()
        })
        .collect()
}

#[test]
fn each_option_looks_up_one_export_at_most() {
    let mut exports = Counted::of(1000);
    let name = exports.names.first().unwrap().clone();
    exports.refused = Some("v-refused");
    exports.names.insert("v-refused".into());
    let context = meta_data(&name, &["base:allocation"]);
    for (number, data, finds) in [
        (OPTION_INFO, info_data(&name, &[1, 2, 3]), 1),
        (OPTION_INFO, info_data("", &[1]), 1),
        (OPTION_INFO, info_data("none", &[]), 1),
        (OPTION_INFO, Vec::new(), 0),
        (OPTION_LIST_META_CONTEXT, context.clone(), 1),
        (OPTION_SET_META_CONTEXT, context, 1),
        (OPTION_GO, info_data("v-refused", &[3]), 1),
        (OPTION_GO, info_data("none", &[]), 1),
        (OPTION_GO, info_data(&name, &[1, 2, 3]), 1),
        (OPTION_EXPORT_NAME, name.as_bytes().to_vec(), 1),
        (OPTION_EXPORT_NAME, Vec::new(), 1),
        (OPTION_STRUCTURED_REPLY, Vec::new(), 0),
        (OPTION_STARTTLS, Vec::new(), 0),
        (77, name.as_bytes().to_vec(), 0),
    ] {
        let mut session = haggling(&exports);
        let _ = session.receive(&option(OPTION_STRUCTURED_REPLY, &[]), &exports, &mut Vec::new());
        exports.finds.set(0);
        exports.counts.set(0);
        let _ = session.receive(&option(number, &data), &exports, &mut Vec::new());
        assert_eq!((exports.finds.get(), exports.counts.get()), (finds, 1), "option {number}");
    }
    assert_eq!(exports.lists.get(), 0, "only a list asks for names");
}

#[test]
fn requests_look_up_nothing() {
    let exports = Counted::of(1000);
    let mut session = haggling(&exports);
    let go = option(OPTION_GO, &info_data("", &[]));
    assert!(matches!(session.receive(&go, &exports, &mut Vec::new()).step, Step::Established { .. }));
    exports.finds.set(0);
    exports.counts.set(0);
    assert!(matches!(session.receive(&request(0, 0, 0, 512), &exports, &mut Vec::new()).step, Step::Request(_)));
    assert_eq!((exports.finds.get(), exports.counts.get(), exports.lists.get()), (0, 0, 0));
}

#[test]
fn a_list_of_1000_names_is_sent_in_parts_to_a_client_that_reads_slowly() {
    let exports = Counted::of(1000);
    let mut session = haggling(&exports);
    let (mut unsent, mut continues) = first_part(&mut session, &exports);
    let (mut received, mut parts) = (Vec::new(), 1);
    loop {
        assert!(unsent.len() <= MAXIMUM_LIST_PART_BYTES, "so much is all that the server keeps for this client");
        // The client takes some bytes now and then; the server calls again when it has sent all.
        while !unsent.is_empty() {
            received.extend(unsent.drain(..unsent.len().min(777)));
        }
        if !continues {
            break;
        }
        (unsent, continues) = next_part(&mut session, &exports);
        parts += 1;
    }
    let replies = option_replies(&received);
    assert_eq!(names(&replies), Vec::from_iter(exports.names.iter().cloned()));
    assert_eq!(replies[1000..].iter().map(|reply| reply.kind).collect::<Vec<_>>(), [OptionReply::Ack as u32]);
    let bytes = 1000 * (OPTION_REPLY_HEADER_BYTES + 4 + 63) + OPTION_REPLY_HEADER_BYTES;
    assert_eq!((received.len(), parts), (bytes, bytes.div_ceil(MAXIMUM_LIST_PART_BYTES)));
    assert_eq!(exports.lists.get(), parts, "each part begins with one search");
    assert_eq!(exports.taken.get(), 1000 + parts - 1, "a part takes its names, and one to see that others follow");
    assert_eq!(exports.finds.get(), 0, "names are enough");
    let progress = session.receive(&option(OPTION_ABORT, &[]), &exports, &mut Vec::new());
    assert_eq!(progress.step, Step::Disconnect, "options go on behind the list");
}

#[test]
fn a_part_is_full_to_the_last_name_that_fits_with_the_final_reply() {
    let reply = |name_bytes: usize| OPTION_REPLY_HEADER_BYTES + 4 + name_bytes;
    let most = MAXIMUM_LIST_PART_BYTES - OPTION_REPLY_HEADER_BYTES;
    let (others, last) = (most / reply(63) - 1, most % reply(63) + 63);
    for (longer, continues) in [(0, false), (1, true)] {
        let mut exports = Counted::of(others);
        exports.names.insert("z".repeat(last + longer));
        let (part, more) = first_part(&mut haggling(&exports), &exports);
        assert_eq!(more, continues);
        let expected = if continues { others * reply(63) } else { MAXIMUM_LIST_PART_BYTES };
        assert_eq!(part.len(), expected);
    }
}

#[test]
fn a_shutdown_ends_a_list_at_its_next_part() {
    let exports = Counted::of(1000);
    let mut session = haggling(&exports);
    assert!(first_part(&mut session, &exports).1);
    session.shut_down();
    let (last, continues) = next_part(&mut session, &exports);
    let kinds: Vec<u32> = option_replies(&last).iter().map(|reply| reply.kind).collect();
    assert_eq!((kinds, continues), (vec![OptionReply::Shutdown as u32], false));
}

#[test]
fn a_list_of_no_export_is_its_final_reply() {
    let exports = Counted::default();
    let (list, continues) = first_part(&mut haggling(&exports), &exports);
    assert_eq!((option_replies(&list).len(), continues), (1, false));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn exports_that_come_or_go_between_two_parts_do_no_harm(
        kept in btree_set("[a-z]{1,3}", 1..60),
        passing in vec(btree_set("[a-z]{1,3}", 0..60), 1..6),
        length in prop_oneof![Just(4096_usize), 3_usize..4097],
    ) {
        let padded = |name: &String| format!("{name:.<length$}");
        let kept: BTreeSet<String> = kept.iter().map(padded).collect();
        let mut exports = Counted::default();
        let mut turns = passing.iter().cycle();
        let mut change = |exports: &mut Counted| {
            exports.names = kept.clone();
            exports.names.extend(turns.next().into_iter().flatten().map(padded));
        };
        change(&mut exports);
        let mut ever = exports.names.clone();
        let mut session = haggling(&exports);
        let (mut part, mut continues) = first_part(&mut session, &exports);
        let mut listed = Vec::new();
        loop {
            prop_assert!(part.len() <= MAXIMUM_LIST_PART_BYTES);
            let replies = option_replies(&part);
            listed.extend(names(&replies));
            if !continues {
                prop_assert_eq!(replies.last().map(|reply| reply.kind), Some(OptionReply::Ack as u32));
                break;
            }
            prop_assert!(!replies.is_empty(), "each part makes progress");
            change(&mut exports);
            ever.extend(exports.names.iter().cloned());
            (part, continues) = next_part(&mut session, &exports);
        }
        prop_assert!(listed.is_sorted_by(|one, other| one < other), "each once, in order");
        prop_assert!(kept.iter().all(|name| listed.binary_search(name).is_ok()), "all that were there throughout");
        prop_assert!(listed.iter().all(|name| ever.contains(name)));
    }
}
