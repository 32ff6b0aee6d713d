//! Sizes of structures in memory.

use alloc::vec::Vec;
use core::hash::{BuildHasher, Hash};
use core::ops::Range;

use hashbrown::HashMap;

/// Returns the bytes that the capacity of a list takes.
pub(crate) fn list_bytes<T>(list: &Vec<T>) -> u64 {
    (list.capacity() * core::mem::size_of::<T>()) as u64
}

/// Returns the bytes that a hash table has allocated.
pub(crate) fn table_bytes<K: Eq + Hash, V, S: BuildHasher>(map: &HashMap<K, V, S>) -> u64 {
    map.allocation_size() as u64
}

/// Returns the entries that a hash table has space for where nothing has been removed: seven of eight places. (The table's own capacity is less by removed
/// entries whose places are not free yet.)
pub(crate) fn table_space<K: Eq + Hash, V, S: BuildHasher>(map: &HashMap<K, V, S>) -> usize {
    let place = core::mem::size_of::<(K, V)>() + 1;
    map.allocation_size() / place / 8 * 7
}

/// Changes that one step sorts.
const SORTED_AT_ONCE: usize = 1 << 14;

/// Sorts one of the unsorted parts by its keys, or divides it in two; returns false if there is none left. Items with the same key are in any order.
pub(crate) fn sort_part<T, K: Ord>(items: &mut [T], unsorted: &mut Vec<Range<usize>>, key: impl Fn(&T) -> K) -> bool {
    let Some(part) = unsorted.pop() else { return false };
    let items = &mut items[part.clone()];
    if items.len() > SORTED_AT_ONCE {
        let middle = items.len() / 2;
        items.select_nth_unstable_by_key(middle, key);
        unsorted.extend([part.start + middle..part.end, part.start..part.start + middle]);
    } else {
        items.sort_unstable_by_key(key);
    }
    true
}
