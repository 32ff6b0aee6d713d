//! Hash tables of slots and block addresses in which adjacent keys lie side by side.
//!
//! Most requests are of blocks in a row, which have slots in a row. With a hash that scatters all of them, each look-up in a table of many megabytes
//! would wait for memory separately. So keys that differ in their lowest bits only have places that do so, too. Groups of them are scattered as well
//! as with any other hash, and so are keys of which each is the only one of its group.

use core::hash::{BuildHasher, Hasher};

use hashbrown::{HashMap, HashSet};

/// Number of adjacent keys, as a power of two: the keys that hashbrown looks at together.
const GROUP_BITS: u32 = 4;
/// An odd number without a pattern.
const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

/// A table by slot, or by block address.
pub(crate) type NearMap<K, V> = HashMap<K, V, Near>;
/// A set of slots, or of block addresses.
pub(crate) type NearSet<K> = HashSet<K, Near>;

/// Hashes a number so that the numbers of a group stay together.
pub(crate) fn near_hash(number: u64) -> u64 {
    let (group, within) = (number >> GROUP_BITS, number & ((1 << GROUP_BITS) - 1));
    let product = u128::from(group ^ MULTIPLIER) * u128::from(MULTIPLIER);
    let mixed = product as u64 ^ (product >> 64) as u64;
    // hashbrown takes the place from the lowest bits, and tells keys at a place apart by the seven highest.
    mixed << GROUP_BITS & (u64::MAX >> 7) | within | (mixed & (0x7f << 57)) ^ within << 57
}

/// Makes hashers of one number.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Near;

/// Hasher of [`near_hash`].
pub(crate) struct NearHasher(u64);

impl BuildHasher for Near {
    type Hasher = NearHasher;

    fn build_hasher(&self) -> NearHasher {
        NearHasher(0)
    }
}

impl Hasher for NearHasher {
    fn write(&mut self, _: &[u8]) {
        unreachable!("keys are numbers of 64 bits");
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = near_hash(number);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    const PLACES: u64 = 1 << 16;

    /// Returns the number of keys in the fullest of the groups of 16 places, with a key for every second place.
    fn fullest(keys: impl Fn(u64) -> u64) -> u64 {
        let mut groups = vec![0; PLACES as usize / 16];
        for number in 0..PLACES / 2 {
            groups[(near_hash(keys(number)) % PLACES) as usize / 16] += 1;
        }
        groups.into_iter().max().unwrap_or(0)
    }

    #[test]
    fn neighbours_have_places_side_by_side_and_are_told_apart() {
        for group in [0, 5, 1 << 30] {
            let hashes: vec::Vec<u64> = (0..16).map(|within| near_hash(16 * group + within)).collect();
            for (within, pair) in hashes.windows(2).enumerate() {
                assert_eq!(pair[1] % PLACES, pair[0] % PLACES + 1, "{group} {within}");
            }
            let mut tags: vec::Vec<u64> = hashes.iter().map(|hash| hash >> 57).collect();
            tags.sort_unstable();
            tags.dedup();
            assert_eq!(tags.len(), 16);
        }
    }

    #[test]
    fn groups_are_scattered_whatever_lies_between_them() {
        // Of 8 on average: with all keys at random it is about 20.
        for stride in [16, 17, 32, 128, 1000, 1 << 12, 1 << 20, 1 << 30, (1 << 20) + 1] {
            let most = fullest(|number| number.wrapping_mul(stride));
            assert!(most <= 28, "{most} at a stride of {stride}");
        }
        // In rows: whole groups, so a few times as many come together.
        assert!(fullest(|number| number) <= 6 * 16);
        assert!(fullest(|number| number / 64 * 100_000 + number % 64) <= 6 * 16);
    }
}
