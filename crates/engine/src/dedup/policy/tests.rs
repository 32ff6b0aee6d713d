use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;

use proptest::prelude::*;

use super::Lookup::{Known, Nothing, Unchanged};
use super::*;

fn threshold(number: u8) -> Threshold {
    Threshold::new(number).unwrap()
}

fn select(number: u8) -> Policy {
    Policy::Select { threshold: threshold(number), counts: Counts::Run }
}

fn by_request(number: u8) -> Policy {
    Policy::Select { threshold: threshold(number), counts: Counts::Request }
}

fn idedup(number: u8) -> Policy {
    Policy::Idedup { threshold: threshold(number) }
}

fn shares(policy: Policy, lookups: &[Lookup]) -> Vec<bool> {
    // The former values of the slice must not matter.
    let mut shares = vec![true; lookups.len()];
    policy.decide(lookups, &mut shares);
    shares
}

/// Returns the indices of the blocks that are shared.
fn shared(policy: Policy, lookups: &[Lookup]) -> Vec<usize> {
    shares(policy, lookups).iter().enumerate().filter(|(_, share)| **share).map(|(at, _)| at).collect()
}

// ---- the papers' rules, once more, block by block and without regard to cost ----

/// Returns the length of the run that block `at` is in: as far as one can go to either side while everything is known and each block is in the slot after the
/// one before it, or, if `repeats`, in the same one.
fn naive_run(slots: &[Option<u64>], at: usize, repeats: bool) -> usize {
    let is_next = |a, b| a + 1 == b || repeats && a == b;
    let follows = |left: usize| matches!((slots[left], slots[left + 1]), (Some(a), Some(b)) if is_next(a, b));
    if slots[at].is_none() {
        return 0;
    }
    let (mut first, mut last) = (at, at);
    while first > 0 && follows(first - 1) {
        first -= 1;
    }
    while last + 1 < slots.len() && follows(last) {
        last += 1;
    }
    last - first + 1
}

/// Decides as the papers do, and as `select` does for repeated blocks, without blocks that have their content already. `exceeds` is the paper's wording: a
/// threshold has to be exceeded.
fn naive(policy: Policy, exceeds: bool, slots: &[Option<u64>]) -> (Vec<bool>, Option<u8>) {
    let all = slots.len();
    let known = slots.iter().flatten().count();
    let enough = |count: usize, threshold: Threshold| {
        let threshold = usize::from(threshold.get());
        if exceeds { count > threshold } else { count >= threshold }
    };
    let repeats = !matches!(policy, Policy::Idedup { .. });
    let run = |at| naive_run(slots, at, repeats);
    let longest = (0..all).map(run).max().unwrap_or(0);
    let long_runs = |threshold| -> Vec<bool> { (0..all).map(|at| enough(run(at), threshold)).collect() };
    let known_ones: Vec<bool> = slots.iter().map(Option::is_some).collect();
    match policy {
        Policy::Native | Policy::Observe => (vec![false; all], None),
        Policy::Full => (known_ones, None),
        Policy::Idedup { threshold } => (long_runs(threshold), None),
        Policy::Select { .. } if known == 0 => (vec![false; all], None),
        // "(I) the fully redundant write requests whose write data are already sequentially stored on disks"
        Policy::Select { .. } if longest == all => (vec![true; all], Some(1)),
        // "(II) [...] where the number of redundant data chunks in each request is less than a predefined threshold"
        Policy::Select { threshold, counts: Counts::Request } if !enough(known, threshold) => {
            (vec![false; all], Some(2))
        }
        Policy::Select { threshold, counts: Counts::Run } if !enough(longest, threshold) => (vec![false; all], Some(2)),
        // "(III) [...] of which the [number] exceeds the threshold": all of them, or the runs that do.
        Policy::Select { counts: Counts::Request, .. } => (known_ones, Some(3)),
        Policy::Select { threshold, counts: Counts::Run } => (long_runs(threshold), Some(3)),
    }
}

fn number(category: Category) -> Option<u8> {
    match category {
        Category::Unknown => None,
        Category::Sequential => Some(1),
        Category::Scattered => Some(2),
        Category::Partial => Some(3),
    }
}

fn policies() -> impl Strategy<Value = Policy> {
    let threshold = || prop_oneof![4 => 1u8..8, 1 => 1u8..=255].prop_map(threshold);
    prop_oneof![
        Just(Policy::Native),
        Just(Policy::Observe),
        Just(Policy::Full),
        threshold().prop_map(|threshold| Policy::Select { threshold, counts: Counts::Run }),
        threshold().prop_map(|threshold| Policy::Select { threshold, counts: Counts::Request }),
        threshold().prop_map(|threshold| Policy::Idedup { threshold }),
    ]
}

/// Generates requests made of pieces: unknown blocks, runs that go up or down, the same slot again, at few places, so that pieces happen to continue
/// each other.
fn requests() -> impl Strategy<Value = Vec<Lookup>> {
    let piece = (0..6u8, 0..12u64, 1..7u64, any::<u8>());
    proptest::collection::vec(piece, 0..6).prop_map(|pieces| {
        let mut lookups = vec![];
        for (kind, start, length, places) in pieces {
            for i in 0..length {
                let slot = match kind {
                    0 => None,
                    1 => Some(start + length - i),
                    2 => Some(start),
                    _ => Some(start + i),
                };
                let same = places >> i & 3 == 3;
                lookups.push(slot.map_or(Nothing, |slot| if same { Unchanged(slot) } else { Known(slot) }));
            }
        }
        lookups
    })
}

fn slots(lookups: &[Lookup]) -> Vec<Option<u64>> {
    lookups.iter().map(|lookup| lookup.slot()).collect()
}

/// Adds the unchanged blocks: a block that has its content already is not written by a policy that shares.
fn kept(policy: Policy, lookups: &[Lookup], mut shares: Vec<bool>) -> Vec<bool> {
    if !matches!(policy, Policy::Native | Policy::Observe) {
        for (share, lookup) in shares.iter_mut().zip(lookups) {
            *share |= matches!(lookup, Unchanged(_));
        }
    }
    shares
}

proptest! {
    #[test]
    fn policies_share_what_the_papers_rules_say(policy in policies(), lookups in requests()) {
        let (expected, category) = naive(policy, false, &slots(&lookups));
        prop_assert_eq!(shares(policy, &lookups), kept(policy, &lookups, expected));
        if let Policy::Select { .. } = policy {
            prop_assert_eq!(number(policy.category(&lookups)), category);
        } else if !matches!(policy, Policy::Idedup { .. }) {
            prop_assert_eq!(policy.category(&lookups), Policy::SELECT.category(&lookups));
        }
    }

    #[test]
    fn to_exceed_a_threshold_is_to_reach_the_next_one(number in 1..=254u8, lookups in requests()) {
        for of in [select, by_request, idedup] {
            let (expected, category) = naive(of(number), true, &slots(&lookups));
            let next = of(number + 1);
            prop_assert_eq!(shares(next, &lookups), kept(next, &lookups, expected));
            if next != idedup(number + 1) {
                prop_assert_eq!(self::number(next.category(&lookups)), category);
            }
        }
    }

    #[test]
    fn full_shares_what_select_shares_and_select_what_idedup_shares(policy in policies(), lookups in requests()) {
        let full = shares(Policy::Full, &lookups);
        prop_assert!(shares(policy, &lookups).iter().zip(&full).all(|(some, all)| !some || *all));
        for select in [Policy::SELECT, by_request(3)] {
            let select = shares(select, &lookups);
            prop_assert!(shares(Policy::IDEDUP, &lookups).iter().zip(&select).all(|(some, all)| !some || *all));
        }
    }

    #[test]
    fn a_larger_threshold_shares_no_more(number in 1..=254u8, lookups in requests()) {
        for of in [select, by_request, idedup] {
            let (small, large) = (shares(of(number), &lookups), shares(of(number + 1), &lookups));
            prop_assert!(large.iter().zip(&small).all(|(large, small)| !large || *small));
        }
    }

    #[test]
    fn what_is_shown_and_stored_reads_back(policy in policies(), code: u8, threshold: u8) {
        prop_assert_eq!(policy.to_string().parse(), Ok(policy));
        let (its_code, its_threshold) = policy.encode();
        prop_assert_eq!(Policy::decode(its_code, its_threshold), Some(policy));
        if let Some(policy) = Policy::decode(code, threshold) {
            prop_assert_eq!(policy.encode(), (code, threshold));
        }
    }

    #[test]
    fn any_text_is_a_policy_or_refused(text in "(native|observe|full|select|idedup|x)?[:,]?[0-9]{0,4}(,run|,request)?[ -~]{0,3}") {
        if let Ok(policy) = text.parse::<Policy>() {
            prop_assert_eq!(policy.to_string().parse(), Ok(policy));
        }
    }
}

// ---- examples ----

#[test]
fn category_one_is_shared_as_a_whole_also_a_single_block() {
    for request in [&[Known(7)][..], &[Known(7), Known(8)], &[Known(0), Known(1), Known(2), Known(3)]] {
        assert_eq!(Policy::SELECT.category(request), Category::Sequential);
        assert_eq!(shared(Policy::SELECT, request).len(), request.len());
    }
    // iDedup leaves the small ones.
    assert_eq!(shared(Policy::IDEDUP, &[Known(7), Known(8)]), []);
}

#[test]
fn category_two_is_written_as_a_whole() {
    let request = [Nothing, Known(4), Known(5), Nothing];
    assert_eq!(Policy::SELECT.category(&request), Category::Scattered);
    assert_eq!(shared(Policy::SELECT, &request), []);
    assert_eq!(shared(Policy::Full, &request), [1, 2]);
}

#[test]
fn category_three_shares_its_long_runs_or_by_request_all_that_is_known() {
    let request = [Nothing, Known(4), Known(5), Known(6), Nothing, Known(90)];
    assert_eq!(Policy::SELECT.category(&request), Category::Partial);
    assert_eq!(shared(Policy::SELECT, &request), [1, 2, 3]);
    assert_eq!(shared(by_request(3), &request), [1, 2, 3, 5]);
    assert_eq!(shared(by_request(5), &request), []);
    assert_eq!(shared(idedup(4), &request), []);
    assert_eq!(shared(idedup(3), &request), [1, 2, 3]);
}

#[test]
fn known_as_a_whole_but_scattered_is_decided_by_its_runs() {
    let scattered = [Known(4), Known(9), Known(2), Known(3)];
    assert_eq!(Policy::SELECT.category(&scattered), Category::Scattered);
    assert_eq!(shared(Policy::SELECT, &scattered), []);
    // By request, the same four blocks are more than three.
    assert_eq!(by_request(3).category(&scattered), Category::Partial);
    assert_eq!(shared(by_request(3), &scattered), [0, 1, 2, 3]);
    // Two sequential halves that do not follow each other.
    let halves = [Known(4), Known(5), Known(6), Known(20), Known(21), Known(22)];
    assert_eq!(Policy::SELECT.category(&halves), Category::Partial);
    assert_eq!(shared(Policy::SELECT, &halves).len(), 6);
    assert_eq!(shared(Policy::IDEDUP, &halves), []);
}

#[test]
fn a_run_goes_up_in_steps_of_one() {
    for request in [[Known(6), Known(5), Known(4)], [Known(4), Known(6), Known(8)]] {
        assert_eq!(shared(Policy::SELECT, &request), []);
    }
    assert_eq!(shared(Policy::SELECT, &[Known(u64::MAX), Known(0), Nothing]), []);
}

/// Guards against lost savings: one block again and again is read from one place, and was written as often as it came: an image of 0xff took all of its size.
#[test]
fn a_run_may_stay_at_a_slot_but_not_for_idedup() {
    for request in [[Known(4), Known(4), Known(4)], [Known(4), Known(4), Known(5)], [Unchanged(4), Known(5), Known(5)]]
    {
        assert_eq!(shared(Policy::SELECT, &request), [0, 1, 2]);
        assert_eq!(Policy::SELECT.category(&request), Category::Sequential);
        assert!(shared(idedup(3), &request).len() < 3);
    }
    assert_eq!(shared(Policy::SELECT, &[Known(4), Known(4), Known(3), Nothing]), []);
    assert_eq!(shared(Policy::SELECT, &[Nothing, Known(4), Known(4), Known(4), Known(9)]), [1, 2, 3]);
}

#[test]
fn a_block_that_has_its_content_is_not_written_and_counts_in_runs() {
    let request = [Unchanged(4), Nothing, Known(9)];
    assert_eq!(Policy::SELECT.category(&request), Category::Scattered);
    assert_eq!(shared(Policy::SELECT, &request), [0]);
    assert_eq!(shared(Policy::IDEDUP, &request), [0]);
    assert_eq!(shared(Policy::Observe, &request), []);
    assert_eq!(shared(Policy::SELECT, &[Nothing, Known(3), Unchanged(4), Known(5)]), [1, 2, 3]);
}

#[test]
fn a_request_without_blocks_has_no_category() {
    assert_eq!(Policy::SELECT.category(&[]), Category::Unknown);
    assert_eq!(shared(Policy::Full, &[]), []);
}

#[test]
fn a_policy_is_written_with_its_threshold() {
    for (text, policy) in [
        ("native", Policy::Native),
        ("observe", Policy::Observe),
        ("full", Policy::Full),
        ("select", Policy::default()),
        ("select:4", select(4)),
        ("select:3,request", by_request(3)),
        ("idedup", idedup(4)),
        ("idedup:255", idedup(255)),
    ] {
        assert_eq!(text.parse(), Ok(policy));
        assert_eq!(policy.to_string(), text);
    }
    assert_eq!("select:3,run".parse(), Ok(Policy::SELECT));
    assert_eq!("idedup:4".parse(), Ok(Policy::IDEDUP));
}

#[test]
fn a_text_that_is_no_policy_is_refused_with_what_is_allowed() {
    let refused = |text: &str| text.parse::<Policy>().unwrap_err();
    for text in ["", "Native", "some", "select ", " full", "select,3", ":3", "inherit"] {
        assert_eq!(refused(text), BadPolicy::Unknown, "{text:?}");
    }
    for text in ["native:1", "full:", "observe:3"] {
        assert_eq!(refused(text), BadPolicy::NoThreshold);
    }
    for text in
        ["select:0", "select:256", "select:", "select:+3", "select:x", "idedup:0", "idedup:-1", "idedup:4,request"]
    {
        assert_eq!(refused(text), BadPolicy::Threshold, "{text:?}");
    }
    for text in ["select:3,", "select:3,runs", "select:3,request,run"] {
        assert_eq!(refused(text), BadPolicy::Counts, "{text:?}");
    }
    assert!(BadPolicy::Unknown.to_string().contains("native, observe, full, select or idedup"));
    assert!(BadPolicy::Threshold.to_string().contains("1 to 255"));
    assert!(BadPolicy::Counts.to_string().contains("run or request"));
}

#[test]
fn numbers_on_disk_that_make_no_sense_are_no_policy() {
    for (code, threshold) in [(0, 1), (1, 3), (2, 1), (3, 0), (4, 0), (5, 0), (6, 0), (6, 3), (255, 0)] {
        assert_eq!(Policy::decode(code, threshold), None);
    }
}

// ---- runs that a pass remaps ----

#[test]
fn a_pass_remaps_a_run_only_if_it_stays_one_and_the_policy_shares_all_of_it() {
    let (one, run, torn) = (&[Known(5)][..], &[Known(5), Known(6), Known(7)][..], &[Known(5), Known(7), Known(8)][..]);
    let part = &[Known(5), Nothing, Known(7), Known(8), Known(9)][..];
    for policy in [Policy::Full, Policy::SELECT, by_request(1), Policy::Observe] {
        assert!(policy.shares_run(one) && policy.shares_run(run), "{policy}");
        assert!(!policy.shares_run(torn) && !policy.shares_run(part), "{policy}");
    }
    assert!(idedup(3).shares_run(run) && !idedup(4).shares_run(run) && !idedup(2).shares_run(one));
}
