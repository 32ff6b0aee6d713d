//! Tests of the read cache by slot: ARC, LRU, and blocks that were read ahead.

use super::*;
use alloc::vec;
use proptest::prelude::*;

#[test]
fn a_scan_does_not_evict_what_is_used_again_and_again() {
    let mut cache = ReadCache::new(8, 16);
    let mut evicted = vec![];
    for slot in 0..4 {
        cache.insert(Slot(slot), BufferId(slot as u32), &mut evicted);
        cache.get(Slot(slot));
    }
    for slot in 100..200 {
        cache.insert(Slot(slot), BufferId(slot as u32), &mut evicted);
    }
    assert!((0..4).all(|slot| cache.get(Slot(slot)).is_some()));
}

#[test]
fn what_is_read_ahead_pushes_nothing_out_and_its_first_use_counts_like_a_miss() {
    let mut cache = ReadCache::new(8, 16);
    let mut evicted = vec![];
    for slot in 0..8 {
        cache.insert(Slot(slot), BufferId(slot as u32), &mut evicted);
    }
    for slot in 4..8 {
        cache.get(Slot(slot));
    }
    for slot in 8..12 {
        cache.insert(Slot(slot), BufferId(slot as u32), &mut evicted);
    }
    assert_eq!(core::mem::take(&mut evicted), [0, 1, 2, 3].map(BufferId));
    for slot in [3, 100, 101] {
        cache.insert_ahead(Slot(slot), BufferId(slot as u32), &mut evicted);
    }
    // A quarter of eight; the oldest block gave way, and is a ghost again.
    assert_eq!(core::mem::take(&mut evicted), [BufferId(3)]);
    assert!((4..12).all(|slot| cache.peek(Slot(slot)).is_some()));
    cache.insert_ahead(Slot(3), BufferId(3), &mut evicted);
    assert_eq!(core::mem::take(&mut evicted), [BufferId(100)]);
    assert_eq!(cache.get(Slot(3)), None, "a use of what was read ahead is no hit");
    assert_eq!(cache.use_ahead(Slot(3), &mut evicted), Some(BufferId(3)));
    assert_eq!((cache.length(List::Frequent), cache.target), (5, 1), "the ghost was hit");
    assert_eq!(core::mem::take(&mut evicted), [BufferId(8)]);
    assert_eq!(cache.use_ahead(Slot(101), &mut evicted), Some(BufferId(101)));
    assert_eq!((cache.length(List::Frequent), cache.ahead()), (5, 0));
}

#[test]
fn a_smaller_cache_keeps_what_was_used_last() {
    let mut cache = ReadCache::new(8, 16);
    let mut evicted = vec![];
    for slot in 0..8 {
        cache.insert(Slot(slot), BufferId(slot as u32), &mut evicted);
    }
    for slot in [1, 2, 3, 4] {
        cache.get(Slot(slot));
    }
    // Recent: 0 5 6 7, frequent: 1 2 3 4, each from the oldest on.
    cache.resize(4, 8, 0, |buffer| buffer.0 != 4, &mut evicted);
    evicted.sort_unstable();
    assert_eq!(evicted, [0, 1, 4, 5].map(BufferId));
    let left: Vec<_> = (0..8).filter(|&slot| cache.peek(Slot(slot)).is_some()).collect();
    assert_eq!(left, [2, 3, 6, 7]);
    cache.resize(100, 125, 0, |_| true, &mut evicted);
    assert_eq!((cache.len(), evicted.len()), (4, 4));
}

#[test]
fn lru_evicts_what_was_used_least_recently_however_often() {
    let mut cache = ReadCache::new(4, 8);
    let mut evicted = vec![];
    for slot in 0..4 {
        cache.insert(Slot(slot), BufferId(slot as u32), &mut evicted);
        cache.get(Slot(slot));
    }
    cache.set_lru(true);
    cache.get(Slot(0));
    for slot in 10..13 {
        cache.insert(Slot(slot), BufferId(slot as u32), &mut evicted);
    }
    assert_eq!(evicted, [1, 2, 3].map(BufferId));
    assert!(cache.peek(Slot(0)).is_some());
}

/// Guards against mixed buffers: random use had mixed them up, and no stream put them in order again: aged volumes were read at two thirds of their speed until
/// the server was started again, though they lay in order on the disk.
#[test]
fn what_a_stream_leaves_goes_in_rows_of_buffers_and_nothing_else_with_it() {
    let mut cache = ReadCache::new(1024, 2048);
    let mut evicted = vec![];
    let buffer = |slot: u64| BufferId((slot * 5 % 1024) as u32);
    for slot in 0..1024 {
        // One in four is read at random, the others are read ahead, and one in four is used again.
        if slot % 4 == 0 {
            cache.insert(Slot(slot), buffer(slot), &mut evicted);
        } else {
            cache.insert_ahead(Slot(slot), buffer(slot), &mut evicted);
            cache.use_ahead(Slot(slot), &mut evicted);
        }
        if slot % 4 == 1 {
            cache.get(Slot(slot));
        }
    }
    assert_eq!(evicted, []);
    cache.insert(Slot(2000), BufferId(2000), &mut evicted);
    assert_eq!(core::mem::take(&mut evicted), [buffer(0)], "what was read at random goes alone");
    cache.insert(Slot(2001), BufferId(2001), &mut evicted);
    assert_eq!(evicted[0], buffer(2), "whose turn it is");
    // A row is a sixteenth of the cache.
    let mut row: Vec<BufferId> =
        (0..1024).filter(|slot| slot % 4 > 1).map(buffer).filter(|buffer| buffer.0 < 64).collect();
    row.sort_unstable();
    row.retain(|&other| other != buffer(2));
    assert_eq!(evicted[1..], row);
    assert_eq!(cache.len(), 1024 - row.len());
}

/// Guards against a stale flag: the state of a ghost was still noted for its block when it came back: with LRU it went with its row, before its turn.
#[test]
fn what_comes_back_after_its_ghost_does_not_go_with_its_row() {
    let mut cache = ReadCache::new(32, 64);
    cache.set_lru(true);
    let mut evicted = vec![];
    // A row is two buffers. A stream has left the first block of each of the first two rows.
    for slot in 0..32 {
        let buffer = BufferId(slot as u32);
        match slot {
            0 | 2 => cache.insert_ahead(Slot(slot), buffer, &mut evicted),
            _ => cache.insert(Slot(slot), buffer, &mut evicted),
        };
        cache.use_ahead(Slot(slot), &mut evicted);
    }
    assert_eq!(cache.evict(), Some(BufferId(0)));
    // It comes back beside the other one that a stream left, which goes alone when its turn comes.
    cache.get(Slot(1));
    cache.remove(Slot(3));
    cache.insert(Slot(0), BufferId(3), &mut evicted);
    cache.insert(Slot(100), BufferId(100), &mut evicted);
    assert_eq!(evicted, []);
    cache.insert(Slot(101), BufferId(101), &mut evicted);
    assert_eq!(evicted, [BufferId(2)]);
}

proptest! {
    #[test]
    fn every_buffer_is_either_cached_once_or_let_go_once(
        first in 1usize..9, steps in proptest::collection::vec((0u8..14, 0u64..24), 1..300)
    ) {
        let (mut capacity, mut cache) = (first, ReadCache::new(first, 18));
        let (mut next, mut held, mut evicted) = (0, alloc::collections::BTreeSet::new(), vec![]);
        for (kind, slot) in steps {
            match kind {
                0 => { if let Some(buffer) = cache.remove(Slot(slot)) { evicted.push(buffer) } }
                1 => { if let Some(buffer) = cache.evict() { evicted.push(buffer) } }
                2..5 => { let _ = cache.get(Slot(slot)); }
                5 => {
                    capacity = slot as usize % 9;
                    cache.resize(capacity, 10, 0, |buffer| !buffer.0.is_multiple_of(3), &mut evicted);
                }
                6 => {
                    capacity = slot as usize % 9;
                    cache.set_capacity(capacity, &mut evicted);
                }
                7 if slot % 4 == 0 => cache.set_lru(slot >= 12),
                9 => {
                    held.insert(next);
                    cache.insert_ahead(Slot(slot), BufferId(next), &mut evicted);
                    next += 1;
                }
                10 => {
                    let ahead = cache.peek(Slot(slot)).filter(|_| cache.get(Slot(slot)).is_none());
                    prop_assert_eq!(cache.use_ahead(Slot(slot), &mut evicted), ahead);
                }
                8 => {
                    if let Some(before) = cache.peek(Slot(slot)) {
                        cache.set_buffer(Slot(slot), BufferId(next));
                        held.insert(next);
                        evicted.push(before);
                        next += 1;
                    }
                }
                _ => {
                    held.insert(next);
                    cache.insert(Slot(slot), BufferId(next), &mut evicted);
                    next += 1;
                }
            }
            for buffer in evicted.drain(..) {
                prop_assert!(held.remove(&buffer.0));
            }
            prop_assert_eq!(cache.iter().count(), held.len());
            prop_assert!(cache.cached() <= capacity && cache.ahead() <= cache.most_ahead());
            prop_assert!(cache.iter().all(|(slot, buffer)| cache.in_buffer(buffer) == Some(slot)));
            prop_assert!(cache.by_slot.len() <= 2 * capacity);
        }
    }
    #[test]
    fn rows_of_buffers_are_let_go_once_whatever_else_uses_the_cache(
        steps in proptest::collection::vec((0u8..6, 0u64..3000, 1u64..400), 1..40)
    ) {
        let mut cache = ReadCache::new(1024, 2048);
        let (mut free, mut evicted): (Vec<BufferId>, _) = ((0..2048).map(BufferId).collect(), vec![]);
        for (kind, first, count) in steps {
            for slot in (first..first + count).map(Slot) {
                match kind {
                    0 => { let _ = cache.get(slot); }
                    1 => evicted.extend(cache.remove(slot)),
                    2 => cache.set_lru(count % 2 == 0),
                    3 if cache.peek(slot).is_none() => {
                        cache.insert(slot, free.swap_remove(slot.0 as usize % free.len()), &mut evicted);
                    }
                    3 => { let _ = cache.use_ahead(slot, &mut evicted); }
                    _ => {
                        cache.insert_ahead(slot, free.swap_remove(slot.0 as usize % free.len()), &mut evicted);
                        cache.use_ahead(slot, &mut evicted);
                    }
                }
                free.append(&mut evicted);
                prop_assert_eq!(cache.len() + free.len(), 2048);
            }
            let mut all: Vec<BufferId> = cache.iter().map(|(_, buffer)| buffer).chain(free.iter().copied()).collect();
            all.sort_unstable();
            prop_assert!(all.iter().copied().eq((0..2048).map(BufferId)));
            prop_assert!(cache.cached() <= 1024 && cache.by_slot.len() <= 2048);
            prop_assert!(cache.iter().all(|(slot, buffer)| cache.in_buffer(buffer) == Some(slot)));
        }
    }
}
