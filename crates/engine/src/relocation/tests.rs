use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;

use proptest::prelude::*;

use super::assess::{Assessment, Sharing, assess};
use super::clones::unite;
use super::forecast::{Forecast, Moved, Reads};
use super::objects::{FIRST, MOST_NAME_BYTES, MOST_NAMES, Objects, Part, Refusal};
use super::plan::{Order, Rules, plan};
use super::profile::{Merge, Profile, contents};
use super::profiling::{MOST_BYTES, Profiling};
use super::{Content, Extent, Object, Run};
use crate::api::VolumeId;

fn run(object: u32, slot: u64, blocks: u32) -> Run {
    Run { slot, blocks, object: Object(object) }
}

fn extent(slot: u64, blocks: u64) -> Extent {
    Extent { slot, blocks }
}

/// Builds Fig. 1: A1 A2 A3 lie at 0 to 2, B2 B3 at 3 and 4, and B1 is A3. Each file is read once for each number.
fn figure_1(reads_of_1: usize, reads_of_2: usize) -> Vec<Run> {
    let mut profile = Profile::new(Merge::Adjacent, 100);
    // A read between those of a file ends its run.
    let other = |profile: &mut Profile| profile.note(Object(9), 1000, 1);
    for _ in 0..reads_of_1 {
        (0..3).for_each(|slot| profile.note(Object(1), slot, 1));
        other(&mut profile);
    }
    for _ in 0..reads_of_2 {
        [2, 103, 104].into_iter().for_each(|slot| profile.note(Object(2), slot, 1));
        other(&mut profile);
    }
    profile.runs().to_vec()
}

/// Checks a case in which nine clones of a file in three pieces are read once each. Another file, with the middle of it behind four blocks of its own, is read
/// three times: it has more runs for each block than one clone, and fewer than all of them together.
#[test]
fn a_file_that_many_clones_read_comes_before_one_that_one_reads() {
    let of_clone = |clone| [run(clone, 0, 1), run(clone, 10, 1), run(clone, 20, 1)];
    let others = (0..3).flat_map(|_| [run(100, 50, 4), run(100, 10, 1)]);
    let runs: Vec<Run> = (1..10).flat_map(of_clone).chain(others).collect();
    let contents = contents(&runs);
    let best = |assessments: &[Assessment]| plan(assessments, &contents, Rules::OURS).moves[0].assessment.object;
    assert_eq!(best(&assess(&runs, Sharing::OthersRuns)), Object(100));
    let united = unite(&runs, &contents);
    assert_eq!(best(&assess(&united, Sharing::OthersRuns)), Object(1));
    // An object with the same slots in another order is no clone: it wants another order. Nor is one with a part of them.
    let runs = [
        run(1, 0, 2),
        run(1, 9, 1),
        run(2, 0, 1),
        run(2, 1, 1),
        run(2, 9, 1),
        run(3, 0, 2),
        run(4, 9, 1),
        run(4, 0, 2),
    ];
    let united = unite(&runs, &super::profile::contents(&runs));
    assert_eq!(united.iter().map(|run| run.object.0).collect::<Vec<_>>(), [1, 1, 1, 1, 1, 3, 4, 4]);
}

fn figure_1_contents() -> Vec<Content> {
    vec![
        Content { object: Object(1), extents: vec![extent(0, 3)] },
        Content { object: Object(2), extents: vec![extent(2, 1), extent(103, 2)] },
    ]
}

#[test]
fn figure_1_of_the_paper() {
    // B1 is A3 and lies with File 1: File 1 is read in one run, File 2 in two.
    let runs = figure_1(1, 1);
    let [one, two, _] = assess(&runs, Sharing::Pairs)[..] else { panic!("three objects") };
    assert_eq!((one.randomness, one.sharing, one.value()), (1, 1, 0));
    assert_eq!((two.randomness, two.sharing, two.value()), (2, 1, 1));
    // Case 2: File 2 in order makes fragments of File 1.
    let case_2 = plan(&[one, two], &figure_1_contents(), Rules::PAPER);
    assert_eq!(case_2.moves[0].assessment.object, Object(2));
    assert_eq!(case_2.moves[0].extents, [extent(2, 1), extent(103, 2)]);
    // File 1 moves only its unlabelled slots.
    assert_eq!((case_2.moves[1].extents.as_slice(), case_2.moves[1].taken), (&[extent(0, 2)][..], 1));
    let moved = Moved::new(&case_2, 500);
    let forecast = Forecast::new(&runs, &moved);
    assert_eq!(forecast.objects[0], (Object(1), Reads { before: 1, after: 2 }));
    assert_eq!(forecast.objects[1], (Object(2), Reads { before: 2, after: 1 }));
    assert_eq!(forecast.harm(), 1);
}

#[test]
fn figure_1_with_a_hot_file_keeps_the_blocks_with_it() {
    // File 1 is read ten times as often: as printed both have the same S, so R decides.
    let [one, two, _] = assess(&figure_1(20, 2), Sharing::Pairs)[..] else { panic!("three objects") };
    assert_eq!((one.randomness, one.sharing, two.randomness, two.sharing), (20, 40, 4, 40));
    // By runs of others it is the hot file that comes first.
    let [one, two, _] = assess(&figure_1(20, 2), Sharing::OthersRuns)[..] else { panic!("three objects") };
    assert_eq!((one.value(), two.value()), (20 - 2, 4 - 20));
    // It lies in one piece: where such objects stay, it stays and keeps the shared block.
    let whole_ones_stay = Rules { keeps_whole: true, ..Rules::OURS };
    let stays = plan(&[one, two], &figure_1_contents(), Rules { gains_only: true, ..whole_ones_stay });
    assert_eq!((stays.moves.len(), stays.whole, stays.worthless), (0, 1, 1));
    // Without a bound by value, the rest of the cold file lies in one piece, too.
    let stays = plan(&[one, two], &figure_1_contents(), whole_ones_stay);
    assert_eq!((stays.moves.len(), stays.whole, stays.worthless), (0, 2, 0));
    // By the product's rules both move, the hot one first and with the shared block.
    let all = plan(&[one, two], &figure_1_contents(), Rules::OURS);
    assert_eq!(all.moves[0].extents, [extent(0, 3)]);
    assert_eq!(all.moves[1].extents, [extent(103, 2)]);
}

#[test]
fn printed_sharing_grows_with_the_square_of_the_reads() {
    let reads =
        |times: u32| -> Vec<Run> { (0..times).flat_map(|_| [run(1, 0, 4), run(2, 2, 4), run(3, 3, 4)]).collect() };
    let sharing = |times, how| assess(&reads(times), how)[0].sharing;
    assert_eq!((sharing(1, Sharing::Pairs), sharing(10, Sharing::Pairs)), (2, 200));
    assert_eq!((sharing(1, Sharing::OwnRuns), sharing(10, Sharing::OwnRuns)), (1, 10));
    assert_eq!((sharing(1, Sharing::OthersRuns), sharing(10, Sharing::OthersRuns)), (2, 20));
}

#[test]
fn a_profile_merges_what_is_adjacent() {
    let reads = [(1, 0), (1, 1), (2, 50), (1, 2), (2, 51), (1, 7)];
    let all = |merge| {
        let mut profile = Profile::new(merge, 100);
        reads.iter().for_each(|&(object, slot)| profile.note(Object(object), slot, 1));
        profile.note(Object(3), 5, 0);
        assert_eq!(profile.reads(), 6);
        profile.runs().to_vec()
    };
    assert_eq!(all(Merge::Adjacent), [run(1, 0, 2), run(2, 50, 1), run(1, 2, 1), run(2, 51, 1), run(1, 7, 1)]);
    assert_eq!(all(Merge::ByObject), [run(1, 0, 3), run(2, 50, 2), run(1, 7, 1)]);
}

#[test]
fn a_full_profile_forgets_the_oldest() {
    let mut profile = Profile::new(Merge::Adjacent, 3);
    (0..10).for_each(|number| profile.note(Object(number), u64::from(number) * 10, 1));
    assert_eq!(profile.runs(), [run(7, 70, 1), run(8, 80, 1), run(9, 90, 1)]);
    assert_eq!((profile.dropped(), profile.most_bytes()), (7, 64));
    // A run of as many blocks as its counter holds ends there.
    let mut profile = Profile::new(Merge::Adjacent, 3);
    profile.note(Object(1), 0, u32::MAX);
    profile.note(Object(1), u64::from(u32::MAX), 1);
    assert_eq!(profile.runs(), [run(1, 0, u32::MAX), run(1, u64::from(u32::MAX), 1)]);
}

#[test]
fn a_profile_goes_on_from_another() {
    let mut profile = Profile::new(Merge::ByObject, 3);
    profile.go_on_from(9, 5);
    let took: Vec<bool> = (0..4).map(|number| profile.take_up(run(number, 0, 1))).collect();
    assert_eq!(took, [true, true, true, false]);
    assert_eq!((profile.reads(), profile.dropped(), profile.ended()), (9, 5, 8));
    // The new read is a run of its own, for which the oldest goes.
    profile.note(Object(2), 1, 1);
    assert_eq!(profile.runs(), [run(1, 0, 1), run(2, 0, 1), run(2, 1, 1)]);
    assert_eq!((profile.reads(), profile.dropped()), (10, 6));
}

#[test]
fn runs_are_taken_in_parts_while_new_ones_come() {
    let mut profile = Profile::new(Merge::Adjacent, 3);
    (0..4).for_each(|number| profile.note(Object(number), u64::from(number) * 10, 1));
    let from = |profile: &Profile, number| profile.runs_from(number).collect::<Vec<_>>();
    assert_eq!((profile.ended(), from(&profile, 2)), (3, vec![(2, run(2, 20, 1))]));
    profile.end_open();
    // The oldest has gone: the next one that is there comes in its place.
    assert_eq!((profile.ended(), from(&profile, 0).len(), from(&profile, 0)[0]), (4, 3, (1, run(1, 10, 1))));
    assert_eq!((from(&profile, 4), from(&profile, u64::MAX)), (vec![], vec![]));
}

#[test]
fn blocks_belong_to_the_objects_of_a_manifest_or_to_their_volume() {
    let part = |volume, block, blocks, object| Part { block, blocks, object: Object(object), volume: VolumeId(volume) };
    let mut objects = Objects::new(4);
    for one in [part(1, 10, 5, FIRST), part(1, 20, 2, FIRST), part(1, 15, 5, FIRST + 1), part(2, 0, 9, FIRST + 2)] {
        assert_eq!(objects.insert(one), Ok(()));
    }
    let of = |objects: &Objects, volume, block| objects.of(VolumeId(volume), block).0;
    assert_eq!(
        [9, 10, 14, 15, 19, 21, 22].map(|block| of(&objects, 1, block)),
        [1, FIRST, FIRST, FIRST + 1, FIRST + 1, FIRST, 1]
    );
    assert_eq!((of(&objects, 2, 8), of(&objects, 2, 9), of(&objects, 0, 0)), (FIRST + 2, 2, 0));
    assert_eq!(objects.insert(part(1, 0, 11, 9)), Err(Refusal::Overlaps(Object(FIRST))));
    assert_eq!(objects.insert(part(1, 21, 1, 9)), Err(Refusal::Overlaps(Object(FIRST))));
    assert_eq!(objects.insert(part(1, 0, 10, 9)), Err(Refusal::Full));
    assert_eq!(objects.insert(part(3, 0, 0, 9)), Err(Refusal::NoBlocks));
    assert_eq!(objects.insert(part(3, u64::MAX, 1, 9)), Err(Refusal::NoBlocks));
    objects.forget(VolumeId(1));
    assert_eq!((objects.parts().len(), of(&objects, 1, 10)), (1, 1));
}

#[test]
fn names_follow_each_other_and_end() {
    let mut objects = Objects::new(0);
    assert_eq!(
        ["/a", "/a", "/b", "/a"].map(|name| objects.named(name).unwrap().0),
        [FIRST, FIRST, FIRST + 1, FIRST + 2]
    );
    assert_eq!(objects.names(), ["/a", "/b", "/a"]);
    let long = "x".repeat(MOST_NAME_BYTES - 6);
    assert_eq!(objects.named(&long).unwrap().0, FIRST + 3);
    assert_eq!(objects.named("/c"), Err(Refusal::Full));
    let mut objects = Objects::new(0);
    let fitting = (0..).take_while(|number: &usize| objects.named(&number.to_string()).is_ok()).count();
    assert_eq!(fitting, MOST_NAMES);
}

#[test]
fn a_request_is_noted_by_object_and_run() {
    let mut profiling = Profiling::default();
    let part = Part { block: 2, blocks: 2, object: Object(FIRST), volume: VolumeId(7) };
    profiling.objects.insert(part).unwrap();
    // Blocks 0 to 5: slots 100 to 104, then one elsewhere; block 4 is a hole.
    let places = [(0, 100), (1, 101), (2, 102), (3, 103), (5, 104), (6, 900)];
    profiling.note(VolumeId(7), places.into_iter());
    profiling.note(VolumeId(7), core::iter::empty());
    assert_eq!(profiling.profile.runs(), [run(7, 100, 2), run(7, 104, 1), run(FIRST, 102, 2), run(7, 900, 1)]);
    assert_eq!(profiling.profile.reads(), 4);
    let runs = profiling.profile.most_bytes() - 64 * size_of::<Run>();
    assert_eq!((runs + profiling.objects.most_bytes(), MOST_BYTES), (7 << 20, (7 << 20) + (11 << 19)));
}

#[test]
fn contents_are_in_the_order_of_first_reads() {
    let runs = [run(2, 8, 2), run(1, 0, 4), run(2, 0, 2), run(2, 1, 3), run(2, 9, 3)];
    let found = contents(&runs);
    assert_eq!(found[0], Content { object: Object(1), extents: vec![extent(0, 4)] });
    assert_eq!(found[1], Content { object: Object(2), extents: vec![extent(8, 2), extent(0, 4), extent(10, 2)] });
}

#[test]
fn a_budget_passes_over_what_is_too_large() {
    let one = |object, randomness| Assessment { object: Object(object), randomness, sharing: 1 };
    let content = |object: u32, blocks| {
        let first = u64::from(object) * 1000;
        Content { object: Object(object), extents: vec![extent(first + 500, blocks), extent(first, blocks)] }
    };
    // Object 9 is unread; all share with it.
    let all = Content { object: Object(9), extents: vec![extent(0, 5000)] };
    let contents = [content(1, 10), content(2, 100), content(3, 20), all];
    let assessments = [one(1, 5), one(2, 100), one(3, 6)];
    let made = |order, most_blocks| {
        let made = plan(&assessments, &contents, Rules { order, most_blocks, ..Rules::OURS });
        let objects: Vec<u32> = made.moves.iter().map(|one| one.assessment.object.0).collect();
        (objects, made.too_large, made.blocks())
    };
    assert_eq!(made(Order::Value, u64::MAX), (vec![2, 3, 1], 0, 260));
    assert_eq!(made(Order::Value, 60), (vec![3, 1], 1, 60));
    // 99 / 200, 4 / 20, 5 / 40.
    assert_eq!(made(Order::ValuePerBlock, 200), (vec![2], 2, 200));
    assert_eq!(made(Order::ValuePerBlock, u64::MAX), (vec![2, 1, 3], 0, 260));
}

/// Assesses by all pairs, as printed.
fn naive(runs: &[Run], sharing: Sharing) -> Vec<Assessment> {
    let mut objects: Vec<Object> = runs.iter().map(|run| run.object).collect();
    objects.sort_unstable();
    objects.dedup();
    let overlap =
        |one: &Run, other: &Run| one.object != other.object && one.slot < other.end() && other.slot < one.end();
    let own = |object| runs.iter().filter(move |run| run.object == object);
    let assess = |&object: &Object| {
        let sharing = match sharing {
            Sharing::Pairs => own(object).map(|one| runs.iter().filter(|other| overlap(one, other)).count()).sum(),
            Sharing::OwnRuns => own(object).filter(|one| runs.iter().any(|other| overlap(one, other))).count(),
            Sharing::OthersRuns => runs.iter().filter(|other| own(object).any(|one| overlap(one, other))).count(),
        };
        Assessment { object, randomness: own(object).count() as u64, sharing: sharing as u64 }
    };
    objects.iter().map(assess).collect()
}

#[test]
fn only_who_shares_is_a_candidate() {
    let content = |object, extents: &[Extent]| Content { object: Object(object), extents: extents.to_vec() };
    let contents = [
        content(1, &[extent(0, 100)]),
        content(2, &[extent(10, 2)]),
        content(3, &[extent(90, 5), extent(300, 5)]),
        content(4, &[extent(100, 10), extent(200, 10)]),
        content(5, &[extent(205, 1), extent(600, 1)]),
        content(6, &[extent(400, 10), extent(405, 10)]),
    ];
    let runs: Vec<Run> = (1..=6).map(|object| run(object, 1000 + u64::from(object), 1)).collect();
    let made = plan(&assess(&runs, Sharing::Pairs), &contents, Rules::PAPER);
    assert_eq!((made.candidates, made.moves.len() as u64 + made.taken), (5, 5));
}

proptest! {
    #[test]
    fn each_block_is_whose_part_it_lies_in(
        drawn in proptest::collection::vec((0u16..3, 0u64..60, 0u32..9), 0..40),
    ) {
        let mut objects = Objects::new(20);
        let mut owners = alloc::collections::BTreeMap::new();
        for (number, (volume, block, blocks)) in drawn.into_iter().enumerate() {
            let object = Object(FIRST + number as u32);
            let part = Part { block, blocks, object, volume: VolumeId(volume) };
            let own = (block..block + u64::from(blocks)).map(|block| (volume, block));
            let is_free = own.clone().all(|place| !owners.contains_key(&place));
            let fits = objects.parts().len() < 20;
            let taken = objects.insert(part).is_ok();
            prop_assert_eq!(taken, is_free && fits && blocks > 0);
            if taken {
                owners.extend(own.map(|place| (place, object)));
            }
        }
        for (volume, block) in (0..3).flat_map(|volume| (0..70).map(move |block| (volume, block))) {
            let owner = owners.get(&(volume, block)).copied().unwrap_or(Object(volume.into()));
            prop_assert_eq!(objects.of(VolumeId(volume), block), owner);
        }
    }

    #[test]
    fn sharing_is_what_all_pairs_say(drawn in proptest::collection::vec((0u32..6, 0u64..60, 1u32..9), 0..60)) {
        let runs: Vec<Run> = drawn.into_iter().map(|(object, slot, blocks)| run(object, slot, blocks)).collect();
        for sharing in [Sharing::Pairs, Sharing::OwnRuns, Sharing::OthersRuns] {
            prop_assert_eq!(assess(&runs, sharing), naive(&runs, sharing));
        }
    }

    #[test]
    fn a_plan_moves_each_slot_once_and_to_one_place(
        drawn in proptest::collection::vec((0u32..6, 0u64..60, 1u32..9), 0..60),
        most_blocks in 0u64..80,
    ) {
        let runs: Vec<Run> = drawn.into_iter().map(|(object, slot, blocks)| run(object, slot, blocks)).collect();
        let contents = contents(&runs);
        for rules in [Rules::PAPER, Rules::OURS] {
            let made = plan(&assess(&runs, Sharing::OthersRuns), &contents, Rules { most_blocks, ..rules });
            prop_assert!(made.blocks() <= most_blocks);
            let mut slots: Vec<u64> = Vec::new();
            for one in &made.moves {
                let content = contents.iter().find(|content| content.object == one.assessment.object).unwrap();
                for extent in &one.extents {
                    let inside = |slot| content.extents.iter().any(|own| (own.slot..own.end()).contains(&slot));
                    prop_assert!((extent.slot..extent.end()).all(inside));
                    slots.extend(extent.slot..extent.end());
                }
            }
            let moved = Moved::new(&made, 1000);
            let places: Vec<u64> = slots.iter().map(|&slot| moved.of(slot).0).collect();
            prop_assert!(places.iter().copied().eq(1000..1000 + slots.len() as u64));
            slots.sort_unstable();
            let before = slots.len();
            slots.dedup();
            prop_assert_eq!(slots.len(), before);
            prop_assert!((0..70).filter(|slot| slots.binary_search(slot).is_err()).all(|slot| moved.of(slot).0 == slot));
        }
    }
}

/// Checks that by runs for each block the small object that is read half as often comes first, however much it shares; by value the large one does.
#[test]
fn the_most_runs_for_a_block_come_first() {
    let assessments = [
        Assessment { object: Object(1), randomness: 10, sharing: 0 },
        Assessment { object: Object(2), randomness: 5, sharing: 50 },
    ];
    let contents = [
        Content { object: Object(1), extents: vec![Extent { slot: 0, blocks: 100 }] },
        Content { object: Object(2), extents: vec![Extent { slot: 95, blocks: 10 }] },
    ];
    let first = |order| plan(&assessments, &contents, Rules { order, ..Rules::PAPER }).moves[0].assessment.object;
    let orders = [Order::RunsPerBlock, Order::ValuePerBlock, Order::Value];
    assert_eq!(orders.map(first), [Object(2), Object(1), Object(1)]);
}
