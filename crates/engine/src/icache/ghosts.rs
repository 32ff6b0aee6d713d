//! Ghost lists: the share of the divisible memory that each hit would have needed (Mattson's LRU stack).
//!
//! A list of keys ordered by their last use, long enough for all of the memory that index and read cache share, cut into [`SEGMENTS`] equal parts. A
//! key that is used again was at some depth: a cache of at least that size would have had it. The keys in front of the cache's present size stand for
//! its content; those behind it are its ghosts. The index has a list of one digest in N, chosen by digest bits, whose hits count for all. The read
//! cache has two lists of all blocks, as ARC has: of those that were used once, and of those that were used again.

use alloc::vec;
use alloc::vec::Vec;

use crate::api::Digest;
use crate::format::entry::Slot;
use crate::icache::rule::Hits;
use crate::locality_map::near_hash;
use crate::sizes::list_bytes;

/// Parts of the list: the depth of a hit is known to a twentieth of the memory.
pub(crate) const SEGMENTS: usize = 20;

const NONE: u32 = u32::MAX;

/// Identity of a key: the number of a slot, or 32 bits of a digest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct GhostKey {
    hash: u32,
    slot: Slot,
    by_slot: bool,
}

impl GhostKey {
    /// Makes the key of a block of the read cache.
    pub(crate) fn of_slot(slot: Slot) -> GhostKey {
        GhostKey { hash: near_hash(slot.0) as u32, slot, by_slot: true }
    }

    /// Makes the key of a digest, found in `slot`, if it is one of those that stand for `one_in` (a power of two).
    pub(crate) fn of_digest(digest: Digest, slot: Slot, one_in: u32) -> Option<GhostKey> {
        let bits = u128::from_le_bytes(digest.0);
        // Bits that do not choose a bucket of the index.
        let is_chosen = (bits >> 56) as u32 & (one_in.max(1) - 1) == 0;
        is_chosen.then_some(GhostKey { hash: bits as u32, slot, by_slot: false })
    }
}

/// A key in the list; 24 bytes.
#[derive(Clone, Copy)]
struct Node {
    hash: u32,
    slot_low: u32,
    slot_high: u16,
    segment: u16,
    newer: u32,
    older: u32,
    /// The next node of the same chain in the table.
    next: u32,
}

impl Node {
    fn slot(&self) -> Slot {
        Slot(u64::from(self.slot_high) << 32 | u64::from(self.slot_low))
    }
}

/// Keys by their last use.
pub(crate) struct Ghosts {
    nodes: Vec<Node>,
    unused: u32,
    /// A table of chains, as long as a power of two.
    table: Vec<u32>,
    newest: u32,
    /// The oldest key of each segment, and the number of its keys.
    oldest: [u32; SEGMENTS],
    lengths: [u32; SEGMENTS],
    /// The most keys of a segment.
    segment: u32,
}

impl Ghosts {
    /// Makes an empty list for at most `most` keys.
    pub(crate) fn new(most: u64) -> Ghosts {
        let segment = most.div_ceil(SEGMENTS as u64).clamp(1, 1 << 26) as u32;
        Ghosts {
            nodes: Vec::with_capacity(segment as usize * SEGMENTS + 1),
            unused: NONE,
            table: vec![NONE; (segment as usize * SEGMENTS).next_power_of_two()],
            newest: NONE,
            oldest: [NONE; SEGMENTS],
            lengths: [0; SEGMENTS],
            segment,
        }
    }

    /// Resizes the list to at most `most` keys: those used last stay.
    pub(crate) fn resize(&mut self, most: u64) {
        let kept: Vec<Node> = self.newest_first(0).copied().collect();
        *self = Ghosts::new(0);
        *self = Ghosts::new(most);
        for node in kept[..kept.len().min(most as usize)].iter().rev() {
            self.push(node.hash, node.slot());
        }
    }

    fn place(&self, hash: u32) -> usize {
        hash as usize & (self.table.len() - 1)
    }

    fn find(&self, key: GhostKey) -> Option<u32> {
        let mut at = self.table[self.place(key.hash)];
        while at != NONE {
            let node = &self.nodes[at as usize];
            if node.hash == key.hash && (!key.by_slot || node.slot() == key.slot) {
                return Some(at);
            }
            at = node.next;
        }
        None
    }

    /// Uses a key, which is the newest from then on. Returns the segment that it was in, if it was there.
    pub(crate) fn touch(&mut self, key: GhostKey) -> Option<usize> {
        let found = self.remove(key);
        self.push(key.hash, key.slot);
        found
    }

    /// Removes a key. Returns the segment that it was in, if it was there.
    pub(crate) fn remove(&mut self, key: GhostKey) -> Option<usize> {
        let at = self.find(key)?;
        let segment = usize::from(self.nodes[at as usize].segment);
        self.drop_node(at);
        Some(segment)
    }

    fn push(&mut self, hash: u32, slot: Slot) {
        let place = self.place(hash);
        let node = Node {
            hash,
            slot_low: slot.0 as u32,
            slot_high: (slot.0 >> 32) as u16,
            segment: 0,
            newer: NONE,
            older: self.newest,
            next: self.table[place],
        };
        let at = match self.unused {
            NONE => {
                self.nodes.push(node);
                (self.nodes.len() - 1) as u32
            }
            at => {
                self.unused = self.nodes[at as usize].next;
                self.nodes[at as usize] = node;
                at
            }
        };
        self.table[place] = at;
        if self.newest != NONE {
            self.nodes[self.newest as usize].newer = at;
        }
        self.newest = at;
        if self.oldest[0] == NONE {
            self.oldest[0] = at;
        }
        self.lengths[0] += 1;
        // The excess of a segment moves to the next.
        for segment in 0..SEGMENTS {
            if self.lengths[segment] <= self.segment {
                return;
            }
            let moved = self.oldest[segment];
            if segment + 1 == SEGMENTS {
                return self.drop_node(moved);
            }
            self.oldest[segment] = self.nodes[moved as usize].newer;
            self.lengths[segment] -= 1;
            self.nodes[moved as usize].segment += 1;
            if self.oldest[segment + 1] == NONE {
                self.oldest[segment + 1] = moved;
            }
            self.lengths[segment + 1] += 1;
        }
    }

    fn drop_node(&mut self, at: u32) {
        let Node { hash, segment, newer, older, next, .. } = self.nodes[at as usize];
        let segment = usize::from(segment);
        self.lengths[segment] -= 1;
        if self.oldest[segment] == at {
            let is_left = self.lengths[segment] > 0;
            self.oldest[segment] = if is_left { newer } else { NONE };
        }
        match newer {
            NONE => self.newest = older,
            newer => self.nodes[newer as usize].older = older,
        }
        if older != NONE {
            self.nodes[older as usize].newer = newer;
        }
        let place = self.place(hash);
        if self.table[place] == at {
            self.table[place] = next;
        } else {
            let mut before = self.table[place];
            while self.nodes[before as usize].next != at {
                before = self.nodes[before as usize].next;
            }
            self.nodes[before as usize].next = next;
        }
        self.nodes[at as usize].next = self.unused;
        self.unused = at;
    }

    /// Iterates from the newest key of a segment on (or of the first one behind it that has any).
    fn newest_first(&self, segment: usize) -> impl Iterator<Item = &Node> {
        let before = self.oldest[..segment].iter().rev().find(|&&oldest| oldest != NONE);
        let mut at = before.map_or(self.newest, |&oldest| self.nodes[oldest as usize].older);
        core::iter::from_fn(move || {
            let node = self.nodes.get(at as usize)?;
            at = node.older;
            Some(node)
        })
    }

    /// Returns the slots of the keys of some segments, the newest first.
    pub(crate) fn slots(&self, segments: core::ops::Range<usize>) -> impl Iterator<Item = Slot> {
        let end = segments.end;
        let nodes = self.newest_first(segments.start);
        nodes.take_while(move |node| usize::from(node.segment) < end).map(Node::slot)
    }

    /// Returns the bytes of memory of list and table.
    pub(crate) fn memory(&self) -> u64 {
        list_bytes(&self.nodes) + list_bytes(&self.table)
    }
}

/// Ghosts of the read cache. As ARC, they keep blocks that were used again apart, so that blocks that are used once drive out only blocks that were
/// used once.
pub(crate) struct ReadGhosts {
    once: Ghosts,
    again: Ghosts,
}

impl ReadGhosts {
    /// Makes empty lists for at most `most` blocks in each.
    pub(crate) fn new(most: u64) -> ReadGhosts {
        ReadGhosts { once: Ghosts::new(most), again: Ghosts::new(most) }
    }

    /// Resizes each list to at most `most` blocks.
    pub(crate) fn resize(&mut self, most: u64) {
        self.once.resize(most);
        self.again.resize(most);
    }

    /// Uses a block. With LRU there is one list of all blocks. Returns the list and the segment that it was in, if it was there.
    pub(crate) fn touch(&mut self, slot: Slot, lru: bool) -> Option<(Hits, usize)> {
        let key = GhostKey::of_slot(slot);
        let again = self.again.remove(key).map(|segment| (Hits::ReadAgain, segment));
        // A block at its second use is in front of the blocks that were used once: that needs memory for both.
        let found = again.or_else(|| {
            let once = if lru { self.once.remove(key) } else { self.once.touch(key) };
            once.map(|segment| (Hits::ReadOnce, segment))
        });
        if found.is_some() || lru {
            self.again.push(key.hash, key.slot);
        }
        found
    }

    /// Drops the ghost of a slot that has become free, in whichever of the two lists it is; does nothing if it is in none.
    pub(crate) fn forget(&mut self, slot: Slot) {
        self.once.remove(GhostKey::of_slot(slot));
        self.again.remove(GhostKey::of_slot(slot));
    }

    /// Returns the slots of some segments: first those of blocks that were used again, the newest of them first. Some may come twice.
    pub(crate) fn slots(&self, segments: core::ops::Range<usize>) -> impl Iterator<Item = Slot> {
        self.again.slots(segments.clone()).chain(self.once.slots(segments))
    }

    /// Returns the bytes of memory of both lists.
    pub(crate) fn memory(&self) -> u64 {
        self.once.memory() + self.again.memory()
    }
}

/// Returns the bytes of a list for at most `most` keys.
pub(crate) fn ghost_bytes(most: u64) -> u64 {
    let most = most.div_ceil(SEGMENTS as u64).max(1) * SEGMENTS as u64;
    (most + 1) * 24 + most.next_power_of_two() * 4
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dedup::index::{Index, Size};
    use crate::icache::rule::CacheLimits;
    use proptest::prelude::*;

    proptest! {
        /// Compares the list with a plain one, the newest first: the segment is that of the place in the list, as long as nothing is removed.
        #[test]
        fn the_depth_of_a_hit_is_its_place_in_the_list_of_last_uses(
            most in 1u64..90, steps in proptest::collection::vec((0u8..40, 0u64..120), 1..600), removes: bool,
        ) {
            let mut ghosts = Ghosts::new(most);
            let segment = most.div_ceil(SEGMENTS as u64) as usize;
            let mut model: Vec<u64> = vec![];
            for (kind, n) in steps {
                let place = model.iter().position(|&known| known == n);
                if kind == 0 && removes {
                    ghosts.remove(GhostKey::of_slot(Slot(n)));
                    model.retain(|&known| known != n);
                    continue;
                }
                let found = ghosts.touch(GhostKey::of_slot(Slot(n)));
                if removes {
                    prop_assert!(found.is_none() || place.is_some());
                } else {
                    prop_assert_eq!(found, place.map(|place| place / segment));
                }
                place.map(|place| model.remove(place));
                model.insert(0, n);
                model.truncate(if removes { usize::MAX } else { segment * SEGMENTS });
            }
            let listed: Vec<u64> = ghosts.slots(0..SEGMENTS).map(|slot| slot.0).collect();
            prop_assert_eq!(&listed[..], &model[..listed.len()]);
            prop_assert!(ghosts.memory() <= ghost_bytes(most));
            ghosts.resize(7);
            let left: Vec<u64> = ghosts.slots(0..SEGMENTS).map(|slot| slot.0).collect();
            prop_assert_eq!(&left[..], &listed[..listed.len().min(7)]);
        }
    }

    /// Guards against a wrong depth: written blocks without a later read once pushed those that were read all the time behind the size of the read cache, which
    /// has them: as if it had been too small.
    #[test]
    fn what_is_used_once_pushes_nothing_back_that_is_used_again() {
        let mut ghosts = ReadGhosts::new(40);
        assert_eq!(ghosts.touch(Slot(1), false), None);
        assert_eq!(ghosts.touch(Slot(1), false), Some((Hits::ReadOnce, 0)));
        (100..130).for_each(|slot| assert_eq!(ghosts.touch(Slot(slot), false), None));
        assert_eq!(ghosts.touch(Slot(1), false), Some((Hits::ReadAgain, 0)));
        assert_eq!(ghosts.touch(Slot(100), false), Some((Hits::ReadOnce, 14)));
        assert_eq!(ghosts.slots(0..SEGMENTS).take(4).collect::<Vec<_>>(), [100, 1, 100, 129].map(Slot));
        // LRU has one list.
        ghosts.touch(Slot(7), true);
        (200..220).for_each(|slot| assert_eq!(ghosts.touch(Slot(slot), true), None));
        assert_eq!(ghosts.touch(Slot(7), true), Some((Hits::ReadAgain, 10)));
        ghosts.forget(Slot(7));
        assert_eq!(ghosts.touch(Slot(7), true), None);
    }

    /// Checks the figures of docs/guide/memory.md.
    #[test]
    fn an_entry_of_the_index_takes_16_bytes_and_with_its_ghosts_half_a_byte_more() {
        for entries in [3u64 << 18, 1 << 20, (1 << 20) + (1 << 14), 5 << 20] {
            let index = Index::new(Size { entries, least: entries, chunk: 1 << 14 }, 1 << 28, 0);
            assert_eq!(index.memory(), 16 * index.capacity());
            // If the index has all that it shares with the read cache.
            let most = index.capacity() / u64::from(CacheLimits::default().sampled_one_in);
            let mut ghosts = Ghosts::new(most);
            (0..2 * most).for_each(|n| ghosts.push(n as u32, Slot(n)));
            assert!(ghosts.memory() <= ghost_bytes(most));
            let hundredths = (index.memory() + ghosts.memory()) * 100 / index.capacity();
            assert!((1640..=1651).contains(&hundredths), "{hundredths} of {entries}");
        }
    }

    #[test]
    fn ghosts_of_a_part_of_the_digests_are_those_that_are_chosen() {
        let digest = |n: u64| Digest((u128::from(n) << 56).to_le_bytes());
        let chosen = (0..1000).filter(|&n| GhostKey::of_digest(digest(n), Slot(n), 8).is_some()).count();
        assert_eq!(chosen, 125);
    }
}
