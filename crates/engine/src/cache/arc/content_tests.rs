//! Tests of the read cache by content, against the simplest possible models.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec;

use super::*;
use crate::api::Digest;
use crate::format::entry::check_bits;
use proptest::prelude::*;

/// Makes digests with few different check bits: most candidates are false.
fn digest(content: u64) -> Digest {
    Digest((u128::from(content % 3) | u128::from(content) << 64).to_le_bytes())
}

/// A read cache with buffers, and the content of each of them.
struct Bench {
    cache: ReadCache,
    held: BTreeMap<u32, u64>,
    evicted: Vec<BufferId>,
}

impl Bench {
    fn new(key: CacheKey, capacity: usize) -> Bench {
        let mut cache = ReadCache::new(capacity, 2 * capacity + 1);
        cache.set_key(key, 2 * capacity);
        Bench { cache, held: BTreeMap::new(), evicted: vec![] }
    }

    fn lru(mut self) -> Bench {
        self.cache.set_lru(true);
        self
    }

    /// Takes the lowest number without a holder, as of a buffer with this content.
    fn take(&mut self, content: u64) -> BufferId {
        let number = (0..).find(|number| !self.held.contains_key(number)).unwrap();
        self.held.insert(number, content);
        BufferId(number)
    }

    fn release_evicted(&mut self) {
        for buffer in core::mem::take(&mut self.evicted) {
            assert!(self.held.remove(&buffer.0).is_some(), "a buffer is let go of once");
        }
    }

    /// Returns true if the slot's content is in memory, as a read finds it: it gets the right bytes then.
    fn read(&mut self, slot: Slot, content: u64) -> bool {
        let mut found = self.cache.get(slot).or_else(|| self.cache.use_ahead(slot, &mut self.evicted));
        let is_candidate = self.cache.candidate(check_bits(digest(content))).is_some();
        if found.is_none() && is_candidate {
            found = self.cache.holding(digest(content));
            if let Some(buffer) = found {
                self.cache.use_shared(slot, buffer, &mut self.evicted);
            }
        }
        assert!(found.is_none_or(|buffer| self.held[&buffer.0] == content), "the wrong bytes");
        self.release_evicted();
        found.is_some()
    }

    /// Inserts a block that has come from the device.
    fn fill(&mut self, slot: Slot, content: u64, ahead: bool) {
        let buffer = self.take(content);
        let Bench { cache, evicted, .. } = self;
        match (cache.is_by_content(), ahead) {
            (true, false) => cache.insert_content(slot, buffer, digest(content), evicted),
            (true, true) => cache.insert_content_ahead(slot, buffer, digest(content), evicted),
            (false, false) => drop(cache.insert(slot, buffer, evicted)),
            (false, true) => drop(cache.insert_ahead(slot, buffer, evicted)),
        }
        self.release_evicted();
    }

    fn access(&mut self, slot: Slot, content: u64) -> bool {
        let hit = self.read(slot, content);
        if !hit {
            self.fill(slot, content, false);
        }
        hit
    }

    fn free(&mut self, slot: Slot) {
        self.evicted.extend(self.cache.remove(slot));
        self.release_evicted();
    }
}

#[test]
fn what_several_slots_hold_has_one_buffer_until_the_last_of_them_is_freed() {
    let mut bench = Bench::new(CacheKey::Content, 8);
    assert!(!bench.access(Slot(1), 7));
    assert!(bench.access(Slot(2), 7) && bench.access(Slot(3), 7) && bench.access(Slot(2), 7));
    assert_eq!((bench.held.len(), bench.cache.content_counts().shared_blocks), (1, 2));
    for (slot, left) in [(1, 1), (3, 0)] {
        bench.free(Slot(slot));
        assert_eq!((bench.held.len(), bench.cache.content_counts().shared_blocks), (1, left));
        assert_eq!(bench.cache.peek(Slot(slot)), None);
        assert!(bench.cache.peek(Slot(2)).is_some());
    }
    bench.free(Slot(2));
    assert!(bench.held.is_empty() && bench.cache.holding(digest(7)).is_none());
}

#[test]
fn contents_of_the_same_check_bits_are_told_apart() {
    let mut bench = Bench::new(CacheKey::Content, 8);
    assert_eq!(check_bits(digest(1)), check_bits(digest(4)));
    assert!(!bench.access(Slot(1), 1) && !bench.access(Slot(2), 4) && !bench.access(Slot(3), 7));
    assert!(bench.access(Slot(4), 4) && bench.access(Slot(5), 7) && bench.access(Slot(6), 1));
    assert_eq!((bench.held.len(), bench.cache.content_counts().shared_blocks), (3, 3));
}

/// Checks that ghosts keep most of their places when many slots of one content are read.
#[test]
fn shared_slots_take_a_quarter_of_the_places_at_most_and_all_are_hits() {
    let mut bench = Bench::new(CacheKey::Content, 8);
    assert!(!bench.access(Slot(0), 5));
    assert!((1..100).all(|slot| bench.access(Slot(slot), 5)));
    assert_eq!((bench.held.len(), bench.cache.content_counts().shared_blocks), (1, 4));
    assert!(bench.cache.by_slot.len() == 5);
}

#[test]
fn the_key_can_change_at_any_time() {
    let mut bench = Bench::new(CacheKey::Sector, 8);
    assert!(!bench.access(Slot(1), 1) && !bench.access(Slot(2), 1));
    bench.cache.set_key(CacheKey::Content, 16);
    // By content, only blocks that come from now on are found.
    assert!(bench.access(Slot(1), 1) && !bench.access(Slot(3), 1) && bench.access(Slot(4), 1));
    assert_eq!((bench.held.len(), bench.cache.content_counts().shared_blocks), (3, 1));
    bench.cache.set_key(CacheKey::Sector, 16);
    assert_eq!((bench.held.len(), bench.cache.content_counts().shared_blocks), (3, 0));
    assert!(bench.access(Slot(3), 1) && !bench.access(Slot(4), 1));
}

/// Checks the reason why the property below is of traces in which nothing is freed. By content, a block that was recently used through a slot that is
/// free by now keeps its place; by slot it does not.
#[test]
fn with_slots_that_are_freed_the_cache_by_slot_can_have_the_one_hit_more() {
    let [sector, content] = [CacheKey::Sector, CacheKey::Content].map(|key| {
        let mut bench = Bench::new(key, 2).lru();
        for (slot, of) in [(1, 5), (2, 6), (3, 5)] {
            bench.access(Slot(slot), of);
        }
        bench.free(Slot(3));
        bench.access(Slot(4), 7);
        bench.access(Slot(2), 6)
    });
    assert_eq!((sector, content), (true, false));
}

/// A naive LRU of contents, or of other keys.
struct Naive {
    capacity: usize,
    newest_last: Vec<u64>,
}

impl Naive {
    fn access(&mut self, what: u64) -> bool {
        let at = self.newest_last.iter().position(|&of| of == what);
        if let Some(at) = at {
            self.newest_last.remove(at);
        } else if self.newest_last.len() == self.capacity {
            self.newest_last.remove(0);
        }
        self.newest_last.push(what);
        at.is_some()
    }
}

proptest! {
    /// Checks that by content there are at least the hits that there are by slot, and no more than in an unbounded cache. Either agrees with the
    /// naive model.
    #[test]
    fn by_content_has_at_least_the_hits_of_by_slot(
        capacity in 1usize..12,
        contents in proptest::collection::vec(0u64..20, 40),
        trace in proptest::collection::vec(0usize..40, 1..400),
    ) {
        let (mut slots, mut seen) = (BTreeSet::new(), BTreeSet::new());
        let [mut by_slot, mut by_content] =
            [CacheKey::Sector, CacheKey::Content].map(|key| Bench::new(key, capacity).lru());
        let [mut naive_slot, mut naive_content] = [(), ()].map(|()| Naive { capacity, newest_last: vec![] });
        let [mut sector, mut content, mut most_sector, mut most_content] = [0; 4];
        for slot in trace {
            let (slot, holds) = (slot as u64, contents[slot]);
            let hits = (by_slot.access(Slot(slot), holds), by_content.access(Slot(slot), holds));
            prop_assert_eq!(hits, (naive_slot.access(slot), naive_content.access(holds)));
            sector += u32::from(hits.0);
            content += u32::from(hits.1);
            most_sector += u32::from(!slots.insert(slot));
            most_content += u32::from(!seen.insert(holds));
        }
        prop_assert!(sector <= content && content <= most_content && sector <= most_sector);
    }

    /// Checks that after any operation the cache holds a content once, gives the right bytes, and finds by content just its own contents.
    #[test]
    fn each_content_is_held_once_whatever_happens(
        first in 1usize..9,
        steps in proptest::collection::vec((0u8..12, 0u64..24), 1..300),
    ) {
        let mut bench = Bench::new(CacheKey::Content, first);
        let mut contents: Vec<u64> = (0..24).map(|slot| slot % 7).collect();
        let mut capacity = first;
        for (number, (kind, slot)) in (0..).zip(steps) {
            let (at, holds) = (Slot(slot), contents[slot as usize]);
            match kind {
                0 => {
                    // The slot is freed and rewritten.
                    bench.free(at);
                    contents[slot as usize] = (holds + number) % 9;
                }
                1 => {
                    let evicted = bench.cache.evict();
                    bench.evicted.extend(evicted);
                }
                2 => {
                    capacity = slot as usize % 9;
                    let Bench { cache, evicted, .. } = &mut bench;
                    cache.resize(capacity, 18, 40, |buffer| !buffer.0.is_multiple_of(3), evicted);
                }
                3 => {
                    capacity = slot as usize % 9;
                    bench.cache.set_capacity(capacity, &mut bench.evicted);
                }
                4 if slot % 4 == 0 => bench.cache.set_lru(slot >= 12),
                5 => {
                    let evicted = bench.cache.let_go(at);
                    bench.evicted.extend(evicted);
                }
                6 => {
                    // The buffer that moves must have a first slot.
                    if let Some(from) = bench.cache.peek(at) {
                        let slot = bench.cache.in_buffer(from).unwrap();
                        let into = bench.take(holds);
                        bench.cache.set_buffer(slot, into);
                        bench.evicted.push(from);
                    }
                }
                7 | 8 if bench.cache.peek(at).is_none() => bench.fill(at, holds, true),
                _ => drop(bench.access(at, holds)),
            }
            bench.release_evicted();
            let cached: Vec<_> = bench.cache.iter().collect();
            let different: BTreeSet<u64> = bench.held.values().copied().collect();
            prop_assert_eq!((cached.len(), different.len()), (bench.held.len(), bench.held.len()));
            prop_assert!(cached.iter().all(|&(slot, buffer)| bench.cache.in_buffer(buffer) == Some(slot)));
            for (slot, &holds) in contents.iter().enumerate() {
                let by_slot = bench.cache.peek(Slot(slot as u64));
                prop_assert!(by_slot.is_none_or(|buffer| bench.held[&buffer.0] == holds));
                let held = bench.held.iter().find(|(_, of)| **of == holds).map(|(&number, _)| BufferId(number));
                prop_assert_eq!(bench.cache.holding(digest(holds)), held);
            }
            let slots = (0..24).filter(|&slot| bench.cache.peek(Slot(slot)).is_some()).count();
            prop_assert_eq!(slots - cached.len(), bench.cache.contents.shared());
            prop_assert!(bench.cache.cached() <= capacity && bench.cache.ahead() <= bench.cache.most_ahead());
            // One ghost more where shared slots from larger times take all places.
            prop_assert!(bench.cache.by_slot.len() <= (2 * capacity).max(slots + 1));
        }
    }
}
