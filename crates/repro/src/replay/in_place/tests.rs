//! Tests of every scheme against a naive model: reads return the last write, and counters are exact.

use std::collections::HashMap;

use engine::policy::IndexCopy;
use engine::{CacheLimits, Rule};
use proptest::prelude::*;

use super::*;
use crate::replay::scheme::{Counting, PartitionMode, Scheme};

const DATA: u64 = 24;
const LAYOUT: Layout = Layout { data: DATA, spare: 8, index: 4, swap: 8 };

fn request(writes: bool, block: u64, contents: Vec<ContentId>) -> Request {
    Request { at: 0, writes, block, blocks: contents.len() as u32, contents }
}

fn blocks_of_idle(request: &Request) -> bool {
    request.block.is_multiple_of(3)
}

proptest! {
    /// Checks I1 and I2 of REFERENCE 1.1 for every scheme, with memory so small that indexes forget.
    #[test]
    fn every_scheme_holds_what_was_written_last(
        scheme in 0..Scheme::ALL.len(),
        warm_steps in prop::collection::vec((0..DATA, prop::collection::vec(0u64..9, 1..5)), 0..12),
        steps in prop::collection::vec((any::<bool>(), 0..DATA, prop::collection::vec(0u64..9, 1..7)), 0..60),
        relinearises in any::<bool>(),
        copy in 0..3_usize,
        drops_stale in any::<bool>(),
    ) {
        let index_copy = [IndexCopy::Oldest, IndexCopy::Sequential, IndexCopy::Newest][copy];
        let scheme = Scheme { relinearises, index_copy, drops_stale, ..Scheme::ALL[scheme] };
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
                // Each write goes to its block's home, and no block is written twice.
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
            // Once in a while the disks are idle.
            if relinearises && blocks_of_idle(&request) {
                let (reads, writes) = in_place.relinearise();
                let of = |extents: &[Extent]| extents.iter().map(|extent| extent.blocks).sum::<u64>();
                prop_assert!(of(&reads) <= of(&writes) && of(&writes) <= DATA);
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

/// Checks POD, Fig. 6: a request that is known as a whole and in order needs no write. One that is known in pieces is written whole. If a request has a long
/// run, the run is shared.
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

/// Checks POD, Fig. 10: a content with referrers is relocated before its home is overwritten, by a read and a write that no request waits
/// for.
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

/// Checks that a complete index looks up digests on the disk that memory does not know, and finds contents that were never in memory.
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

/// Checks POD, section 3.3: "If a match is found .. the corresponding Count value is incremented. Otherwise, a new hash index entry is
/// inserted". So a block that is written although it is known leaves the entry as it is, under each of the paper's schemes.
#[test]
fn a_match_leaves_the_entry_of_the_index_as_it_is() {
    let after_category_ii = |scheme: Scheme| {
        let mut warm = Warm::new(DATA, 64 * BLOCK);
        warm.request(&request(true, 0, vec![1]));
        let mut in_place = InPlace::new(scheme, LAYOUT, 64 * BLOCK, &warm);
        // One known block among new ones: too few to share, so it is written, to block 5.
        in_place.request(0, &request(true, 4, vec![50, 1, 51, 52]));
        in_place.request(0, &request(true, 12, vec![1]));
        in_place.mapping.resolve(12)
    };
    for scheme in [Scheme::SELECT, Scheme::POD, Scheme::CURVES] {
        assert_eq!(after_category_ii(scheme), 0, "{scheme}");
        for index_copy in [IndexCopy::Sequential, IndexCopy::Newest] {
            assert_eq!(after_category_ii(Scheme { index_copy, ..scheme }), 5, "{scheme}, {index_copy}");
        }
    }
}

/// Checks the lookups that pages and filters save. With memory for one page, that of the whole small index, the page is there after the
/// first lookup. Without pages each unknown digest costs a read; with a filter only those that may be known do.
#[test]
fn pages_and_filters_save_looks_at_the_index_on_the_disk() {
    let looks = |scheme: Scheme, memory: u64, contents: &[u64]| {
        let mut warm = Warm::new(DATA, 64 * BLOCK);
        warm.request(&request(true, 0, vec![1, 2, 3]));
        // A quarter of this memory is one page of the index.
        let mut full = InPlace::new(scheme, LAYOUT, memory, &warm);
        let mut lookups = 0;
        for (at, &content) in contents.iter().enumerate() {
            lookups += full.request(0, &request(true, 4 + at as u64, vec![content])).lookups.len();
        }
        assert_eq!(lookups as u64, full.counts.lookups);
        (full.counts.lookups, full.counts.lookups_saved)
    };
    let new = [20, 21, 22, 23];
    assert_eq!(looks(Scheme::FULL_BARE, 4 * BLOCK, &new), (4, 0));
    assert_eq!(looks(Scheme::FULL, 4 * BLOCK, &new), (0, 4), "the page of what was written before is warm");
    assert_eq!(looks(Scheme::FULL_FILTER, 4 * BLOCK, &new), (0, 4));
    assert_eq!(looks(Scheme::FULL_FREE, 4 * BLOCK, &new), (0, 4));
    // No memory: there is neither page nor filter.
    for scheme in [Scheme::FULL, Scheme::FULL_FILTER, Scheme::FULL_BARE] {
        assert_eq!(looks(scheme, 0, &new), (4, 0), "{scheme}");
    }
}

/// Checks that iCache of POD begins with the ghosts that the days before left: the first use of such a content is a hit.
#[test]
fn the_access_monitor_is_warm_and_counts_requests() {
    let share = |counting: Counting| {
        let limits = CacheLimits { interval: 1, unit: 10, sampled_one_in: 1, ..CacheLimits::default() };
        let limits = CacheLimits { hit_costs: [1, 1], ..limits };
        let scheme = Scheme { partition: PartitionMode::Adaptive(Rule::Paper, limits, counting), ..Scheme::POD };
        let mut warm = Warm::new(DATA, 64 * BLOCK);
        warm.request(&request(true, 0, vec![1, 2, 3, 4]));
        let mut pod = InPlace::new(scheme, LAYOUT, 64 * BLOCK, &warm);
        pod.request(0, &request(true, 8, vec![1, 2, 3, 4]));
        pod.index_share()
    };
    // Nothing was read: the ratio divides by zero under each counting.
    for counting in [Counting::Requests, Counting::Blocks, Counting::Depths] {
        assert_eq!(share(counting), 600, "{counting:?}");
    }
    let hits = |counting: Counting| {
        let PartitionMode::Adaptive(rule, limits, _) = Scheme::POD.partition else { panic!("it adapts") };
        let limits = CacheLimits { interval: 2, ..limits };
        let scheme = Scheme { partition: PartitionMode::Adaptive(rule, limits, counting), ..Scheme::POD };
        let mut warm = Warm::new(DATA, 64 * BLOCK);
        warm.request(&request(true, 0, vec![1, 2, 3, 4]));
        warm.request(&request(false, 20, vec![0]));
        let mut pod = InPlace::new(scheme, LAYOUT, 64 * BLOCK, &warm);
        pod.request(0, &request(true, 8, vec![1, 2, 3, 4]));
        pod.request(0, &request(false, 20, vec![0]));
        pod.index_share()
    };
    // One request that hits on each side: equal benefits go to the read cache. Four blocks against one: four units for the index.
    assert_eq!([hits(Counting::Requests), hits(Counting::Blocks)], [490, 540]);
}

/// Checks that the entry of an overwritten content stays and takes the space of another: POD has no reference from a place to its entry of the index.
#[test]
fn entries_of_overwritten_contents_stay_until_they_are_the_oldest() {
    let removed = |drops_stale: bool| {
        let warm = Warm::new(DATA, 64 * BLOCK);
        // Two entries of the index, and no block.
        let scheme = Scheme { drops_stale, partition: PartitionMode::Fixed(1000), ..Scheme::SELECT };
        let mut pod = InPlace::new(scheme, LAYOUT, 2 * INDEX_ENTRY, &warm);
        for (block, content) in [(0, 1), (1, 2), (1, 3)] {
            pod.request(0, &request(true, block, vec![content]));
        }
        // Content 1 is known only if 2, which is gone, made space for 3. Content 2 is never known.
        pod.request(0, &request(true, 4, vec![1]));
        let known = pod.counts.removed_requests;
        pod.request(0, &request(true, 5, vec![2]));
        assert_eq!(pod.counts.removed_requests, known);
        known
    };
    assert_eq!([removed(true), removed(false)], [1, 0]);
}
