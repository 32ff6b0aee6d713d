//! How large things in memory are.

use alloc::vec::Vec;
use core::hash::{BuildHasher, Hash};

use hashbrown::HashMap;

/// Bytes of a list.
pub(crate) fn list_bytes<T>(list: &Vec<T>) -> u64 {
    (list.capacity() * core::mem::size_of::<T>()) as u64
}

/// Bytes of a hash table as it is.
pub(crate) fn table_bytes<K: Eq + Hash, V, S: BuildHasher>(map: &HashMap<K, V, S>) -> u64 {
    map.allocation_size() as u64
}

/// Entries that a hash table has room for where nothing has been removed: seven of eight places. (What it says itself is less by what was
/// removed and is still in the way.)
pub(crate) fn table_room<K: Eq + Hash, V, S: BuildHasher>(map: &HashMap<K, V, S>) -> usize {
    let place = core::mem::size_of::<(K, V)>() + 1;
    map.allocation_size() / place / 8 * 7
}
