//! Every scheme against a naive model: reads see what was written last, and counts are what they say.

use std::collections::HashMap;

use proptest::prelude::*;

use super::*;
use crate::replay::scheme::Scheme;

const DATA: u64 = 24;
const LAYOUT: Layout = Layout { data: DATA, spare: 8, index: 4, swap: 8 };

fn request(writes: bool, block: u64, contents: Vec<ContentId>) -> Request {
    Request { at: 0, writes, block, blocks: contents.len() as u32, contents }
}

proptest! {
    /// I1 and I2 of REFERENCE 1.1, for every scheme, with memory so small that indexes forget.
    #[test]
    fn every_scheme_holds_what_was_written_last(
        scheme in 0..Scheme::ALL.len(),
        warm_steps in prop::collection::vec((0..DATA, prop::collection::vec(0u64..9, 1..5)), 0..12),
        steps in prop::collection::vec((any::<bool>(), 0..DATA, prop::collection::vec(0u64..9, 1..7)), 0..60),
        relinearises in any::<bool>(),
    ) {
        let scheme = Scheme { relinearises, ..Scheme::ALL[scheme] };
        let mut warm = Warm::new(DATA, 8 * BLOCK);
        let mut model = HashMap::new();
        let fit = |block: u64, contents: &[u64]| contents[..contents.len().min((DATA - block) as usize)].to_vec();
        for (block, contents) in warm_steps {
            let contents = fit(block, &contents);
            model.extend((block..).zip(contents.iter().copied()));
            warm.request(&request(true, block, contents));
        }
        let mut in_place = InPlace::new(scheme, LAYOUT, 3 * BLOCK, &warm);
        let mut writes = 0;
        for (is_write, block, contents) in steps {
            let contents = fit(block, &contents);
            let request = request(is_write, block, contents.clone());
            let plan = in_place.request(0, &request);
            let blocks: u64 = plan.writes.iter().map(|extent| extent.blocks).sum();
            if is_write {
                writes += 1;
                model.extend((block..).zip(contents.iter().copied()));
                // What is written goes home, and nothing is written twice.
                prop_assert!(blocks <= contents.len() as u64 && plan.reads.is_empty());
                for extent in &plan.writes {
                    prop_assert!(extent.block >= block && extent.block + extent.blocks <= block + contents.len() as u64);
                }
                if !scheme.policy.shares() {
                    prop_assert_eq!(blocks, contents.len() as u64);
                }
            } else {
                prop_assert!(plan.writes.is_empty());
            }
            for (&block, &content) in &model {
                prop_assert_eq!(in_place.content(block), Some(content), "block {} under {}", block, scheme);
            }
        }
        prop_assert_eq!(in_place.counts.write_requests, writes);
        let distinct: std::collections::HashSet<_> = model.values().collect();
        prop_assert!(in_place.used_blocks() >= distinct.len() as u64);
        prop_assert!(in_place.used_blocks() <= model.len() as u64);
    }
}

/// POD, Fig. 6: a request that is known as a whole and in order needs no write; one that is known in pieces is written whole; of one that
/// has a long run, the run is shared.
#[test]
fn the_three_categories_of_select_dedupe() {
    let mut warm = Warm::new(DATA, 64 * BLOCK);
    warm.request(&request(true, 0, vec![1, 2, 3, 4, 5, 6]));
    let mut pod = InPlace::new(Scheme::SELECT, LAYOUT, 64 * BLOCK, &warm);
    let mut writes = |block, contents: Vec<u64>| pod.request(0, &request(true, block, contents)).writes;
    assert_eq!(writes(10, vec![2, 3]), [], "I");
    assert_eq!(writes(12, vec![6, 1, 40]), [Extent { block: 12, blocks: 3 }], "II");
    assert_eq!(
        writes(16, vec![41, 3, 4, 5, 42]),
        [Extent { block: 16, blocks: 1 }, Extent { block: 20, blocks: 1 }],
        "III"
    );
    assert_eq!(pod.counts.removed_requests, 1);
    assert_eq!(pod.most_nvram(), 5 * MAP_ENTRY);
}

/// POD, Fig. 10: what others refer to is relocated before its home is overwritten, by a read and a write that nobody waits for.
#[test]
fn a_shared_place_is_relocated_before_it_is_overwritten() {
    let mut warm = Warm::new(DATA, 64 * BLOCK);
    warm.request(&request(true, 0, vec![1]));
    let mut pod = InPlace::new(Scheme::SELECT, LAYOUT, 64 * BLOCK, &warm);
    for block in [4, 5, 6] {
        assert_eq!(pod.request(0, &request(true, block, vec![1])).writes, []);
    }
    let plan = pod.request(0, &request(true, 0, vec![2]));
    assert_eq!(plan.writes, [Extent { block: 0, blocks: 1 }]);
    let [(Op::Read, from), (Op::Write, to)] = plan.background[..] else { panic!("{plan:?}") };
    assert_eq!((from.block, (4..=6).contains(&to.block)), (0, true));
    assert_eq!(pod.used_blocks(), 2);
    assert_eq!([4, 5, 6].map(|block| pod.content(block)), [Some(1); 3]);
    // The index follows: another duplicate is still found.
    assert_eq!(pod.request(0, &request(true, 9, vec![1])).writes, []);
}

/// A complete index looks on the disk for what memory does not know, and finds what was never in memory.
#[test]
fn full_dedupe_pays_for_what_memory_does_not_know() {
    let mut warm = Warm::new(DATA, 64 * BLOCK);
    warm.request(&request(true, 0, vec![1, 2, 3]));
    // No memory at all.
    let mut full = InPlace::new(Scheme::FULL, LAYOUT, 0, &warm);
    let plan = full.request(0, &request(true, 8, vec![3, 1, 9]));
    assert_eq!((plan.lookups.len(), plan.writes), (3, vec![Extent { block: 10, blocks: 1 }]));
    let read = full.request(0, &request(false, 8, vec![0; 3]));
    assert_eq!((read.reads.len(), read.splits), (3, 2));
}
