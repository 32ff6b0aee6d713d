use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use proptest::prelude::*;

use super::admission::{Admission, Ageing, Comparison, Filter, Rules, Verdict};
use super::quadrants::Quadrants;
use crate::api::FlashPolicy;

const CONTAINER: u64 = 4 << 20;
const SECOND: u64 = 1_000_000_000;
const HOUR: u64 = 3600 * SECOND;

/// Reads a container `times` times, with an offer after each miss. Returns the last verdict.
fn read(admission: &mut Admission, container: u32, times: u32, references: u16) -> Option<Verdict> {
    let mut last = None;
    for _ in 0..times {
        let miss = admission.access(0, container).is_none();
        last = miss.then(|| admission.offer(0, container, references, |_| None));
    }
    last
}

/// Checks the slides' example: PF.thr = 5 and b.ac = 7; IOC.m * a.ac = 9 is not exceeded, but b.rc = 23 > a.rc = 20, so b replaces a.
#[test]
fn the_example_of_the_slides() {
    let (a, b) = (0, 1);
    let rules = |comparison| Rules { delay: 1, comparison, ..Rules::PAPER };
    let filled = |comparison| {
        let mut admission = Admission::new(rules(comparison), 2, 1, CONTAINER);
        assert_eq!(read(&mut admission, a, 4, 20), Some(Verdict::Filtered));
        assert_eq!(read(&mut admission, a, 1, 20), Some(Verdict::Admitted { place: 0, evicted: None }));
        // a.ac = 6, and with one hit a.ip = 2: the hand passes it once more.
        assert_eq!(read(&mut admission, a, 1, 20), None);
        for reads in 1..7 {
            assert_eq!(admission.access(0, b), None, "{reads}");
        }
        admission.access(0, b);
        admission
    };
    let mut admission = filled(Rules::PAPER.comparison);
    assert_eq!(admission.offer(0, b, 23, |_| None), Verdict::Admitted { place: 0, evicted: Some(a) });
    assert_eq!((admission.place(a), admission.place(b)), (None, Some(0)));
    // With as many references as a it would not have: 7 is not above 1.5 * 6.
    assert_eq!(filled(Rules::PAPER.comparison).offer(0, b, 20, |_| None), Verdict::NotBetter);
    // Ours: more reads are enough.
    assert_eq!(
        filled(Rules::for_drive(CONTAINER).comparison).offer(0, b, 1, |_| None),
        Verdict::Admitted { place: 0, evicted: Some(a) }
    );
}

#[test]
fn the_filter_asks_also_while_a_place_is_free() {
    let mut admission = Admission::new(Rules::PAPER, 8, 4, CONTAINER);
    assert_eq!(read(&mut admission, 3, 4, 1), Some(Verdict::Filtered));
    assert_eq!(admission.place(3), None);
    assert_eq!(read(&mut admission, 3, 1, 1), Some(Verdict::Admitted { place: 0, evicted: None }));
    assert_eq!(admission.access(0, 3), Some(0));
}

#[test]
fn a_victim_goes_after_as_many_offers_as_its_delay() {
    let rules = Rules { filter: Filter::Off, comparison: Comparison::Off, delay: 3, ..Rules::PAPER };
    let mut admission = Admission::new(rules, 4, 2, CONTAINER);
    read(&mut admission, 0, 1, 1);
    read(&mut admission, 1, 1, 1);
    // Both have a priority of 1. The hand takes the first's and stays there.
    assert_eq!(read(&mut admission, 2, 3, 1), Some(Verdict::Admitted { place: 0, evicted: Some(0) }));
    // A hit gives a priority: the hand passes the second place, and then the third container is due.
    assert_eq!(admission.access(0, 1), Some(1));
    assert_eq!(read(&mut admission, 3, 1, 1), Some(Verdict::Delayed));
    assert_eq!(read(&mut admission, 3, 1, 1), Some(Verdict::Delayed));
    assert_eq!(read(&mut admission, 3, 1, 1), Some(Verdict::Admitted { place: 0, evicted: Some(2) }));
}

#[test]
fn a_refused_offer_gives_the_victim_its_delay_back() {
    let rules = Rules { filter: Filter::Off, delay: 2, ..Rules::PAPER };
    let mut admission = Admission::new(rules, 4, 1, CONTAINER);
    read(&mut admission, 0, 2, 1);
    let mut verdicts = Vec::new();
    for _ in 0..4 {
        verdicts.extend(read(&mut admission, 1, 1, 1));
    }
    // Two reads of the victim: the second offer has 2 reads, the fourth 4 > 1.5 * 2.
    let admitted = Verdict::Admitted { place: 0, evicted: Some(0) };
    assert_eq!(verdicts, [Verdict::Delayed, Verdict::NotBetter, Verdict::Delayed, admitted]);
}

#[test]
fn references_break_ties_and_no_more() {
    let rules = |references| {
        let comparison = Comparison::Counts { margin: 1, references };
        Rules { tick: 0, delay: 1, comparison, ..Rules::for_drive(CONTAINER) }
    };
    let tried = [(1, 9, true), (1, 5, false), (2, 1, true)].map(|one| (true, one));
    // Or they do not, as in our own rules.
    for (asked, (reads, references, admitted)) in
        tried.into_iter().chain([(false, (1, 9, false)), (false, (2, 1, true))])
    {
        let mut admission = Admission::new(rules(asked), 4, 1, CONTAINER);
        assert_eq!(admission.asks_for_references(), asked);
        read(&mut admission, 0, 1, 5);
        for _ in 1..reads {
            admission.access(0, 1);
        }
        let verdict = read(&mut admission, 1, 1, references);
        assert_eq!(matches!(verdict, Some(Verdict::Admitted { .. })), admitted, "{reads} reads, {references}");
    }
}

/// Checks that the victim's present references count, not those that were known when it came.
#[test]
fn references_of_the_victim_are_those_that_it_has_by_now() {
    for (known, admitted) in [(None, false), (Some(5), false), (Some(4), true)] {
        let rules = Rules { filter: Filter::Off, delay: 1, ..Rules::PAPER };
        let mut admission = Admission::new(rules, 4, 1, CONTAINER);
        read(&mut admission, 0, 1, 9);
        assert_eq!(admission.access(0, 1), None);
        let verdict = admission.offer(0, 1, 5, |victim| if victim == 0 { known } else { Some(0) });
        assert_eq!(matches!(verdict, Verdict::Admitted { .. }), admitted, "{known:?}");
        // It stays known.
        let again = admission.offer(0, 1, 9, |_| None);
        assert_eq!(matches!(again, Verdict::Admitted { .. }), known == Some(5), "{known:?}");
    }
}

#[test]
fn a_container_that_was_found_is_spared_until_its_references_are_known() {
    let rules = Rules { filter: Filter::Off, delay: 1, ..Rules::PAPER };
    let mut admission = Admission::new(rules, 4, 1, CONTAINER);
    admission.restore(0, &[(0, 3)], None);
    assert_eq!(admission.access(0, 3), Some(0));
    assert_eq!(admission.access(0, 1), None);
    // The first offer takes the priority that the hit gave.
    assert_eq!(admission.offer(0, 1, 1000, |_| None), Verdict::NotBetter);
    assert_eq!(admission.offer(0, 1, 1000, |_| Some(999)), Verdict::Admitted { place: 0, evicted: Some(3) });
}

#[test]
fn a_policy_of_the_pool_changes_the_rules_and_not_the_budget() {
    let drive = Rules::for_drive(2 * CONTAINER);
    let paper = |text: &str| Rules::of_policy(text.parse().unwrap(), drive);
    assert_eq!(Rules::of_policy(FlashPolicy::Budget, drive), drive);
    let Rules { filter, delay, comparison, .. } = paper("paper");
    assert_eq!((filter, delay, comparison), (Rules::PAPER.filter, Rules::PAPER.delay, Rules::PAPER.comparison));
    let Rules { filter, delay, comparison, .. } = paper("paper:filter=off,delay=off,comparison=off");
    assert_eq!((filter, delay, comparison), (Filter::Off, 0, Comparison::Off));
    // A filling of two and a day of two, under any rules.
    let mut admission = Admission::new(drive, 100, 2, CONTAINER);
    admission.set_rules(paper("paper:filter=off,delay=off,comparison=off"));
    let written = (0..100).filter(|&container| {
        admission.access(0, container);
        matches!(admission.offer(0, container, 1, |_| None), Verdict::Admitted { .. })
    });
    assert_eq!(written.count(), 4);
    admission.set_rules(drive);
    assert_eq!((admission.budget_left(0), admission.passes(0, 50)), (0, false));
}

#[test]
fn copies_are_counted_by_what_became_of_their_containers() {
    let rules = Rules { delay: 0, comparison: Comparison::Off, filter: Filter::Off, ..Rules::PAPER };
    let mut admission = Admission::new(rules, 10, 1, CONTAINER);
    let mut copy = |container: u32, times: u32| {
        for _ in 0..times {
            admission.access(0, container);
        }
        if matches!(admission.offer(0, container, 1, |_| None), Verdict::Admitted { .. }) {
            admission.note_copied(container);
        }
        admission.quadrants()
    };
    // Read seven times and copied once; read once and copied once; read three times in all and copied twice.
    copy(0, 7);
    copy(1, 1);
    copy(2, 2);
    copy(3, 1);
    let quadrants = copy(2, 1);
    let expected = Quadrants { popular_once: 1, popular_again: 0, unpopular_once: 2, unpopular_again: 2 };
    assert_eq!((quadrants, quadrants.total()), (expected, 5));
    assert_eq!(copy(2, 9), Quadrants { popular_once: 1, popular_again: 2, unpopular_once: 2, unpopular_again: 0 });
}

#[test]
fn reads_of_one_second_count_once() {
    let rules = Rules { tick: SECOND, ..Rules::PAPER };
    let mut admission = Admission::new(rules, 2, 1, CONTAINER);
    for read in 0..100 {
        admission.access(read * 10_000_000, 0);
        assert_eq!(admission.offer(read * 10_000_000, 0, 1, |_| None), Verdict::Filtered, "a scan is one read");
    }
    for second in 1..4 {
        admission.access(second * SECOND, 0);
        assert_eq!(admission.offer(second * SECOND, 0, 1, |_| None), Verdict::Filtered);
    }
    admission.access(4 * SECOND, 0);
    assert!(matches!(admission.offer(4 * SECOND, 0, 1, |_| None), Verdict::Admitted { .. }));
}

#[test]
fn ageing_halves_counts_only_while_no_place_is_free() {
    let rules = Rules { filter: Filter::Threshold(3), ageing: Ageing::WhileFull(4), ..Rules::PAPER };
    let mut admission = Admission::new(rules, 4, 1, CONTAINER);
    // A free place: nothing is forgotten.
    for _ in 0..10 {
        admission.access(0, 1);
        admission.access(0, 2);
    }
    assert!(matches!(admission.offer(0, 1, 1, |_| None), Verdict::Admitted { .. }));
    // Now four reads halve the ten of the other, and four more halve them again, to below the threshold.
    let ages = |admission: &mut Admission| (0..4).for_each(|_| assert!(admission.access(0, 1).is_some()));
    ages(&mut admission);
    assert_ne!(admission.offer(0, 2, 1, |_| None), Verdict::Filtered);
    ages(&mut admission);
    assert_eq!(admission.offer(0, 2, 1, |_| None), Verdict::Filtered);
}

#[test]
fn a_removed_container_leaves_its_place() {
    let mut admission = Admission::new(Rules::NONE, 4, 2, CONTAINER);
    read(&mut admission, 0, 1, 1);
    read(&mut admission, 1, 1, 1);
    admission.remove(1);
    admission.remove(1);
    assert_eq!(admission.place(1), None);
    assert_eq!(read(&mut admission, 2, 1, 1), Some(Verdict::Admitted { place: 1, evicted: None }));
}

#[test]
fn what_the_pool_does_not_have_is_refused() {
    let mut admission = Admission::new(Rules::NONE, 2, 1, CONTAINER);
    assert_eq!((admission.access(0, 2), admission.offer(0, 2, 1, |_| None)), (None, Verdict::Filtered));
    let mut nowhere = Admission::new(Rules::NONE, 2, 0, CONTAINER);
    assert_eq!((nowhere.access(0, 1), nowhere.offer(0, 1, 1, |_| None)), (None, Verdict::Filtered));
}

#[test]
fn the_threshold_rises_as_the_budget_goes_and_no_byte_beyond_it_is_written() {
    let places = 10;
    let budget = 40 * CONTAINER;
    let rules = Rules { filter: Filter::Budget { bytes_per_day: budget }, comparison: Comparison::Off, ..Rules::NONE };
    let mut admission = Admission::new(rules, 1000, places, CONTAINER);
    let mut thresholds = Vec::new();
    let mut written = 0;
    // Everything is read 300 times over: at any threshold, some container passes.
    for round in 0..300 {
        for container in 0..1000 {
            admission.access(0, container);
            written += u64::from(matches!(admission.offer(0, container, 1, |_| None), Verdict::Admitted { .. }));
        }
        thresholds.push(admission.threshold());
        assert!(written <= 50, "round {round}: {written} written of a filling of 10 and a day of 40");
    }
    assert!(thresholds.is_sorted(), "{thresholds:?}");
    assert_eq!((written, admission.passes(0, 999)), (50, false));
    // Half a day gives half of it back.
    admission.offer(12 * HOUR, 0, 1, |_| None);
    assert_eq!(admission.threshold(), 10);
}

proptest! {
    /// Checks that the containers on flash are the admitted ones, after any operations.
    #[test]
    fn places_are_a_book_of_what_was_said(
        rules in any_rules(),
        places in 0u32..6,
        calls in prop::collection::vec((0u32..12, 0u16..4, 0u64..3, prop::bool::weighted(0.1)), 0..300),
    ) {
        let mut admission = Admission::new(rules, 10, places, CONTAINER);
        let mut held: BTreeSet<u32> = BTreeSet::new();
        let mut now = 0;
        for (container, references, seconds, removes) in calls {
            now += seconds * SECOND / 2;
            if removes {
                admission.remove(container);
                held.remove(&container);
                continue;
            }
            let on_flash = admission.access(now, container);
            prop_assert_eq!(on_flash.is_some(), held.contains(&container));
            if let Verdict::Admitted { place, evicted } = admission.offer(now, container, references, |_| None) {
                prop_assert!(on_flash.is_none() && place < places && container < 10);
                prop_assert_eq!(admission.place(container), Some(place));
                prop_assert_eq!(evicted.is_some(), held.len() as u32 == places);
                if let Some(evicted) = evicted {
                    prop_assert!(held.remove(&evicted) && admission.place(evicted).is_none());
                }
                held.insert(container);
            }
            prop_assert!(held.len() as u32 <= places);
        }
    }
}

fn any_rules() -> impl Strategy<Value = Rules> {
    let filter = prop_oneof![
        Just(Filter::Off),
        (0u8..6).prop_map(Filter::Threshold),
        (0u64..20).prop_map(|containers| Filter::Budget { bytes_per_day: containers * CONTAINER }),
    ];
    let comparison = prop_oneof![
        Just(Comparison::Off),
        (10u16..40).prop_map(|tenths| Comparison::Either { tenths }),
        (1u8..4, any::<bool>()).prop_map(|(margin, references)| Comparison::Counts { margin, references }),
    ];
    let ageing =
        prop_oneof![Just(Ageing::Never), (0u32..10).prop_map(Ageing::Always), (0u32..10).prop_map(Ageing::WhileFull),];
    let tick = prop_oneof![Just(0), Just(SECOND)];
    let most_steps = prop_oneof![Just(u32::MAX), 0u32..20];
    (filter, 0u8..5, comparison, ageing, tick, most_steps).prop_map(
        |(filter, delay, comparison, ageing, tick, most_steps)| Rules {
            filter,
            delay,
            comparison,
            ageing,
            tick,
            most_steps,
        },
    )
}
