//! Hash tables by block or content. Their hash is one mixing step, which spreads the numbers well enough.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use sim::random::mix;

/// Hash table by number. Its iteration order must not affect any visible result.
pub(super) type Table<V> = HashMap<u64, V, BuildHasherDefault<Mixing>>;

/// Mixes the one number that is hashed.
#[derive(Default)]
pub(super) struct Mixing(u64);

impl Hasher for Mixing {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(u64::from(byte)));
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = mix(self.0 ^ value);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
