//! LRU lists of bounded size: one with a hash table, and one with a ghost list behind it.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use sim::random::mix;

/// Hashes one number, the same way in every run.
#[derive(Clone, Copy, Default)]
pub struct NumberHasher(u64);

impl Hasher for NumberHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = mix(self.0 ^ u64::from(byte));
        }
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = mix(self.0 ^ number);
    }
}

/// A table by number.
pub type Numbers<V> = HashMap<u64, V, BuildHasherDefault<NumberHasher>>;

const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Node {
    key: u64,
    value: u64,
    newer: u32,
    older: u32,
}

/// Keys with a value each, by their last use.
#[derive(Clone, Debug)]
pub struct Lru {
    nodes: Vec<Node>,
    places: Numbers<u32>,
    newest: u32,
    oldest: u32,
    unused: u32,
    most: usize,
}

impl Lru {
    /// Creates an empty list for at most `most` keys.
    pub fn new(most: usize) -> Lru {
        let places = Numbers::default();
        Lru { nodes: Vec::new(), places, newest: NONE, oldest: NONE, unused: NONE, most: most.min(NONE as usize - 1) }
    }

    /// Returns the number of keys.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Returns true if there are no keys.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Returns the value of a key without a change of the order.
    pub fn peek(&self, key: u64) -> Option<u64> {
        self.places.get(&key).map(|&at| self.nodes[at as usize].value)
    }

    /// Returns the value of a key, and makes it the newest.
    pub fn get(&mut self, key: u64) -> Option<u64> {
        let at = *self.places.get(&key)?;
        self.unlink(at);
        self.link_newest(at);
        Some(self.nodes[at as usize].value)
    }

    /// Changes the value of a key that is there; when it was used last does not change.
    pub fn replace(&mut self, key: u64, value: u64) {
        if let Some(&at) = self.places.get(&key) {
            self.nodes[at as usize].value = value;
        }
    }

    /// Enters a key, or uses it with another value. The key that has to go for it, with its value.
    pub fn put(&mut self, key: u64, value: u64) -> Option<(u64, u64)> {
        if let Some(&at) = self.places.get(&key) {
            self.nodes[at as usize].value = value;
            self.unlink(at);
            self.link_newest(at);
            return None;
        }
        if self.most == 0 {
            return Some((key, value));
        }
        let gone = (self.places.len() == self.most).then(|| self.pop_oldest()).flatten();
        let at = self.node(key, value);
        self.link_newest(at);
        gone
    }

    /// Inserts a new key as the least recently used one, if there is space for it.
    fn put_oldest(&mut self, key: u64, value: u64) {
        if self.places.len() >= self.most || self.places.contains_key(&key) {
            return;
        }
        let at = self.node(key, value);
        let before = self.oldest;
        (self.nodes[at as usize].newer, self.nodes[at as usize].older) = (before, NONE);
        if before == NONE {
            self.newest = at;
        } else {
            self.nodes[before as usize].older = at;
        }
        self.oldest = at;
    }

    /// Allocates a node for a key, not yet linked in the list.
    fn node(&mut self, key: u64, value: u64) -> u32 {
        let node = Node { key, value, newer: NONE, older: NONE };
        let at = if self.unused == NONE {
            self.nodes.push(node);
            self.nodes.len() as u32 - 1
        } else {
            let at = self.unused;
            self.unused = self.nodes[at as usize].older;
            self.nodes[at as usize] = node;
            at
        };
        self.places.insert(key, at);
        at
    }

    /// Removes a key, and returns its value.
    pub fn remove(&mut self, key: u64) -> Option<u64> {
        let at = self.places.remove(&key)?;
        self.unlink(at);
        self.nodes[at as usize].older = self.unused;
        self.unused = at;
        Some(self.nodes[at as usize].value)
    }

    /// Removes and returns the least recently used key.
    pub fn pop_oldest(&mut self) -> Option<(u64, u64)> {
        let key = self.nodes.get(self.oldest as usize)?.key;
        self.remove(key).map(|value| (key, value))
    }

    /// Removes and returns the most recently used key.
    pub fn pop_newest(&mut self) -> Option<(u64, u64)> {
        let key = self.nodes.get(self.newest as usize)?.key;
        self.remove(key).map(|value| (key, value))
    }

    /// Iterates over all keys with their values, the newest first.
    pub fn newest_first(&self) -> impl Iterator<Item = (u64, u64)> {
        let mut at = self.newest;
        std::iter::from_fn(move || {
            let node = self.nodes.get(at as usize)?;
            at = node.older;
            Some((node.key, node.value))
        })
    }

    /// Sets the maximum number of keys. Returns the evicted keys, oldest first.
    pub fn resize(&mut self, most: usize) -> Vec<(u64, u64)> {
        self.most = most.min(NONE as usize - 1);
        let mut gone = Vec::new();
        while self.places.len() > self.most {
            gone.extend(self.pop_oldest());
        }
        gone
    }

    /// Returns the maximum number of keys.
    pub fn most(&self) -> usize {
        self.most
    }

    fn unlink(&mut self, at: u32) {
        let Node { newer, older, .. } = self.nodes[at as usize];
        if newer == NONE {
            self.newest = older;
        } else {
            self.nodes[newer as usize].older = older;
        }
        if older == NONE {
            self.oldest = newer;
        } else {
            self.nodes[older as usize].newer = newer;
        }
    }

    fn link_newest(&mut self, at: u32) {
        let before = self.newest;
        (self.nodes[at as usize].newer, self.nodes[at as usize].older) = (NONE, before);
        if before == NONE {
            self.oldest = at;
        } else {
            self.nodes[before as usize].newer = at;
        }
        self.newest = at;
    }
}

/// Cache that also remembers recently evicted keys: POD's actual and ghost cache. Together they have as many keys as all memory would hold.
#[derive(Clone, Debug)]
pub struct Ghosted {
    /// Keys that the cache has.
    pub actual: Lru,
    ghost: Lru,
    together: usize,
}

impl Ghosted {
    /// Creates an empty cache for at most `most` keys, and with ghosts at most `together`.
    pub fn new(most: usize, together: usize) -> Ghosted {
        Ghosted { actual: Lru::new(most), ghost: Lru::new(together.saturating_sub(most)), together }
    }

    /// Builds a cache from keys with their values, the newest first: the newest become actual keys, the next become ghosts.
    pub fn from_newest(keys: impl Iterator<Item = (u64, u64)>, most: usize, together: usize) -> Ghosted {
        let mut cache = Ghosted::new(most, together);
        for (at, (key, value)) in keys.take(together).enumerate() {
            let part = if at < most { &mut cache.actual } else { &mut cache.ghost };
            part.put_oldest(key, value);
        }
        cache
    }

    /// Enters a key, or uses it with another value.
    pub fn put(&mut self, key: u64, value: u64) {
        self.ghost.remove(key);
        if let Some((key, value)) = self.actual.put(key, value) {
            self.ghost.put(key, value);
        }
    }

    /// Removes a key from the cache and the ghosts.
    pub fn remove(&mut self, key: u64) {
        self.actual.remove(key);
        self.ghost.remove(key);
    }

    /// Replaces the value of a key, if it is there or a ghost.
    pub fn replace(&mut self, key: u64, value: u64) {
        self.actual.replace(key, value);
        self.ghost.replace(key, value);
    }

    /// Returns the value of a key that is there or a ghost, without a change of the order.
    pub fn peek(&self, key: u64) -> Option<u64> {
        self.actual.peek(key).or_else(|| self.ghost.peek(key))
    }

    /// Sets the maximum number of actual keys. A smaller cache turns its oldest keys into ghosts. A larger one is filled by use, or, if it `swaps`, takes its
    /// newest ghosts back (POD's Swap Module). Returns the number of moved keys.
    pub fn resize(&mut self, most: usize, swaps: bool) -> usize {
        let grows = most > self.actual.most();
        let gone = self.actual.resize(most);
        let mut moved = gone.len();
        while swaps
            && grows
            && self.actual.len() < most
            && let Some((key, value)) = self.ghost.pop_newest()
        {
            // It is older than all that is there.
            self.actual.put_oldest(key, value);
            moved += 1;
        }
        self.ghost.resize(self.together.saturating_sub(most));
        for (key, value) in gone {
            self.ghost.put(key, value);
        }
        moved
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_list_is_that_of_a_naive_one(steps in prop::collection::vec((0u64..12, 0u8..5), 0..200), most in 0usize..8) {
            let mut lru = Lru::new(most);
            let mut naive: Vec<(u64, u64)> = Vec::new();
            for (i, (key, step)) in steps.into_iter().enumerate() {
                let at = naive.iter().position(|entry| entry.0 == key);
                match step {
                    0 | 1 => {
                        let gone = lru.put(key, i as u64);
                        if let Some(at) = at {
                            naive.remove(at);
                        }
                        naive.push((key, i as u64));
                        let expected = (naive.len() > most).then(|| naive.remove(0));
                        prop_assert_eq!(gone, expected);
                    }
                    2 => {
                        let value = lru.get(key);
                        prop_assert_eq!(value, at.map(|at| naive[at].1));
                        if let Some(at) = at {
                            let entry = naive.remove(at);
                            naive.push(entry);
                        }
                    }
                    3 => prop_assert_eq!(lru.remove(key), at.map(|at| naive.remove(at).1)),
                    _ => prop_assert_eq!(lru.pop_newest(), naive.pop()),
                }
                prop_assert_eq!(lru.len(), naive.len());
            }
        }

        #[test]
        fn what_a_smaller_list_holds_a_larger_one_holds_too(keys in prop::collection::vec(0u64..40, 0..300)) {
            let mut large = Lru::new(16);
            let mut small = Lru::new(5);
            for &key in &keys {
                large.put(key, key);
                small.put(key, key);
            }
            large.resize(5);
            while let Some(entry) = small.pop_oldest() {
                prop_assert_eq!(large.pop_oldest(), Some(entry));
            }
            prop_assert!(large.is_empty());
        }
    }

    #[test]
    fn a_cache_of_a_longer_list_has_its_newest_and_ghosts_of_the_next() {
        let mut list = Lru::new(100);
        (0..9).for_each(|key| _ = list.put(key, 10 * key));
        let cache = Ghosted::from_newest(list.newest_first(), 3, 5);
        assert_eq!(cache.actual.newest_first().collect::<Vec<_>>(), [(8, 80), (7, 70), (6, 60)]);
        assert_eq!(cache.ghost.newest_first().collect::<Vec<_>>(), [(5, 50), (4, 40)]);
    }

    #[test]
    fn a_cache_that_shrinks_and_grows_again_has_what_it_had() {
        let mut cache = Ghosted::new(6, 10);
        for key in 0..8 {
            cache.put(key, 10 * key);
        }
        assert_eq!(cache.resize(3, true), 3);
        assert_eq!((cache.actual.len(), cache.actual.peek(4), cache.peek(4)), (3, None, Some(40)));
        let mut dropped = cache.clone();
        assert_eq!(cache.resize(6, true), 3);
        // Together they have the same keys: a cache that grew dropped as many of its oldest ghosts as it took back of the newest.
        assert_eq!(
            (0..8).map(|key| cache.peek(key)).collect::<Vec<_>>(),
            (0..8).map(|key| Some(10 * key)).collect::<Vec<_>>()
        );
        assert_eq!(cache.actual.pop_oldest(), Some((2, 20)), "the order of their last use stays");
        assert_eq!(dropped.resize(6, false), 0);
        assert_eq!((dropped.actual.len(), dropped.actual.peek(4), dropped.peek(4)), (3, None, Some(40)));
    }
}
