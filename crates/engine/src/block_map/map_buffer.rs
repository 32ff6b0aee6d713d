//! The map buffer: mappings that a checkpoint has made durable, and that are not in their leaves yet (docs/rfc/0010). It lets a leaf be
//! written once for many mappings.
//!
//! The mapping of a block is in the first of these that has one: active delta, frozen delta, map buffer, leaf. A mapping here counts as a
//! reference like one in a leaf. The older mapping in its leaf also counts, until the leaf is written.
//!
//! In memory it is one list of keys and entries in the order of keys, with a *gap* of empty places somewhere. A checkpoint brings it up to
//! date in one pass, in steps. First the gap is moved to the front ([`MapBuffer::gather`]). Then all mappings are moved in front of it,
//! without those that have gone into their leaves, and with the new ones ([`MapBuffer::merge_part`]). Between the steps every mapping is
//! found, on one side of the gap or on the other.
//!
//! On disk it is a log of records of 16 bytes, key and entry, of which later ones win; a key of 0 is no record. [`Entry::UNBUFFERED`]
//! revokes the buffered mapping of the key. A checkpoint appends the new records. When the log has become half longer than it needs to be,
//! the checkpoint rewrites it, in the order of keys.

use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use crate::format::bytes::{put_u64, u64_at};
use crate::format::entry::{Entry, Key};
use crate::sizes::list_bytes;

/// Bytes of a record on disk.
pub(crate) const RECORD_BYTES: usize = 16;
/// Number of places that one step looks at or moves.
const AT_ONCE: usize = 1 << 13;
/// Interval of the fences: the key of every N-th place is kept in a separate list, which fits in a processor's caches.
const FENCED: usize = 64;

/// Buffer of mappings, in memory.
pub(crate) struct MapBuffer {
    /// Key and entry of each mapping.
    places: Vec<[u64; 2]>,
    gap: Range<usize>,
    fences: Vec<u64>,
    /// Number of places whose entry is [`Entry::UNBUFFERED`]: their mapping is removed, and the next pass omits them.
    dead: usize,
    /// Number of records of the log on disk.
    logged: u64,
}

/// Pass that brings a buffer up to date.
#[derive(Default)]
pub(crate) struct Pass {
    gathered: bool,
    point_at: usize,
    leaf_at: usize,
    /// Blocks whose records the log has to revoke.
    removed: Vec<Key>,
    /// True if there are too many blocks to revoke: the log is rewritten.
    anew: bool,
}

/// Leaf that a checkpoint writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Leaf {
    /// First of its blocks.
    pub first: Key,
    /// True if the checkpoint also writes the leaf's buffered mappings into it, false if it writes the new ones alone.
    pub flushes: bool,
}

impl MapBuffer {
    pub(crate) fn new() -> MapBuffer {
        MapBuffer { places: Vec::new(), gap: 0..0, fences: Vec::new(), dead: 0, logged: 0 }
    }

    /// Creates a buffer from records in the order of keys, each key once.
    pub(crate) fn from_sorted(records: &[(Key, Entry)], logged: u64) -> MapBuffer {
        let places: Vec<[u64; 2]> = records.iter().map(|&(key, entry)| [key.0, entry.0]).collect();
        let fences = places.iter().step_by(FENCED).map(|place| place[0]).collect();
        let gap = places.len()..places.len();
        MapBuffer { places, gap, fences, dead: 0, logged }
    }

    /// Creates a buffer from the log on disk.
    pub(crate) fn from_log(mut records: Vec<(Key, Entry)>, logged: u64) -> MapBuffer {
        resolve(&mut records);
        MapBuffer::from_sorted(&records, logged)
    }

    /// Returns the number of records in the log on disk.
    pub(crate) fn logged(&self) -> u64 {
        self.logged
    }

    /// Sets the number of records in the log on disk.
    pub(crate) fn set_logged(&mut self, records: u64) {
        self.logged = records;
    }

    /// Returns the number of mappings.
    pub(crate) fn len(&self) -> usize {
        self.places.len() - self.gap.len() - self.dead
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the bytes of memory of places and fences.
    pub(crate) fn memory(&self) -> u64 {
        list_bytes(&self.places) + list_bytes(&self.fences)
    }

    /// Returns the number of places with a mapping, or with one removed since the last pass.
    pub(crate) fn used(&self) -> usize {
        self.places.len() - self.gap.len()
    }

    /// Returns the number of places in memory, including the gap.
    pub(crate) fn capacity(&self) -> usize {
        self.places.len()
    }

    /// Returns the first place at or after `key`, or the end. It is never in the gap.
    pub(crate) fn position(&self, key: Key) -> usize {
        let behind = self.places.get(self.gap.end).is_none_or(|place| key.0 <= place[0]);
        let side = if behind { 0..self.gap.start } else { self.gap.end..self.places.len() };
        let fences = side.start.div_ceil(FENCED)..side.end.div_ceil(FENCED);
        let number = fences.start + self.fences[fences].partition_point(|&fence| fence < key.0);
        let from = side.start.max((number * FENCED).saturating_sub(FENCED));
        let upto = side.end.min(number * FENCED).max(from);
        let at = from + self.places[from..upto].partition_point(|place| place[0] < key.0);
        if at == self.gap.start { self.gap.end } else { at }
    }

    /// Returns the first mapping at or after the place `at`, with its place.
    pub(crate) fn first_from(&self, mut at: usize) -> Option<(usize, Key, Entry)> {
        loop {
            if at == self.gap.start {
                at = self.gap.end;
            }
            let &[key, entry] = self.places.get(at)?;
            if Entry(entry) != Entry::UNBUFFERED {
                return Some((at, Key(key), Entry(entry)));
            }
            at += 1;
        }
    }

    /// Returns the mapping of a block, if one is buffered.
    pub(crate) fn get(&self, key: Key) -> Option<Entry> {
        if self.places.is_empty() {
            return None;
        }
        let &[found, entry] = self.places.get(self.position(key))?;
        (found == key.0 && Entry(entry) != Entry::UNBUFFERED).then_some(Entry(entry))
    }

    /// Returns the first block at or after `key`, and before `end`, that is mapped here.
    pub(crate) fn next_key(&self, key: Key, end: Key) -> Option<Key> {
        let mut at = if self.places.is_empty() { return None } else { self.position(key) };
        loop {
            at = if at == self.gap.start { self.gap.end } else { at };
            let &[found, entry] = self.places.get(at).filter(|place| place[0] < end.0)?;
            if Entry(entry) != Entry::UNBUFFERED {
                return Some(Key(found));
            }
            at += 1;
        }
    }

    /// Returns an upper bound on the number of mappings of the blocks from `start` up to `end`.
    pub(crate) fn count(&self, start: Key, end: Key) -> usize {
        let (from, upto) = (self.position(start), self.position(end));
        let between = if from < self.gap.start && self.gap.start < upto { self.gap.len() } else { 0 };
        upto - from - between
    }

    /// Returns all mappings, in the order of keys.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Key, Entry)> + '_ {
        let sides = self.places[..self.gap.start].iter().chain(&self.places[self.gap.end..]);
        sides.map(|&[key, entry]| (Key(key), Entry(entry))).filter(|&(_, entry)| entry != Entry::UNBUFFERED)
    }

    /// Removes the mapping at a place; the place stays until the next pass.
    pub(crate) fn remove(&mut self, at: usize) {
        assert!(!self.gap.contains(&at) && Entry(self.places[at][1]) != Entry::UNBUFFERED);
        self.places[at][1] = Entry::UNBUFFERED.0;
        self.dead += 1;
    }

    // ---- the pass ----

    /// Makes space for `places` mappings. It grows the list at once, and shrinks it if that needs no pass.
    pub(crate) fn fit(&mut self, places: usize) {
        let used = self.places.len() - self.gap.len();
        let is_behind = self.gap.end == self.places.len();
        if places > self.places.len() && self.places.is_empty() {
            // Pages of zeroes take no memory before they are written.
            self.places = vec![[0; 2]; places];
        } else if places > self.places.len() && is_behind {
            self.places.reserve_exact(places - self.places.len());
            self.places.resize(places, [0; 2]);
        } else if is_behind && places < self.places.len() && used < self.places.len() {
            self.places.truncate(places.max(used));
            self.places.shrink_to_fit();
        } else {
            return;
        }
        self.gap.end = self.places.len();
        let fences = self.places.len().div_ceil(FENCED);
        self.fences.truncate(fences);
        self.fences.reserve_exact(fences - self.fences.len());
        self.fences.resize(fences, 0);
        self.fences.shrink_to_fit();
    }

    /// Takes a step of the pass; false when the pass is done. New mappings are in `points`, in order, none of them in one of `leaves` that flush. There is
    /// space for all of them.
    pub(crate) fn step(
        &mut self,
        pass: &mut Pass,
        points: &[(Key, Entry)],
        leaves: &[Leaf],
        per_leaf: u64,
        most_removed: usize,
    ) -> bool {
        if !pass.gathered {
            pass.gathered = !self.gather();
            return true;
        }
        self.merge_part(pass, points, leaves, per_leaf, most_removed)
    }

    /// Moves some mappings from before the gap behind it; false when none is left before it.
    fn gather(&mut self) -> bool {
        let count = self.gap.start.min(AT_ONCE);
        let (from, to) = (self.gap.start - count, self.gap.end - count);
        self.places.copy_within(from..self.gap.start, to);
        for at in (to.div_ceil(FENCED)..self.gap.end.div_ceil(FENCED)).map(|number| number * FENCED) {
            self.fences[at / FENCED] = self.places[at][0];
        }
        self.gap = from..to;
        from > 0
    }

    /// Moves some mappings from behind the gap, and some new ones, before it; false when all are there.
    fn merge_part(
        &mut self,
        pass: &mut Pass,
        points: &[(Key, Entry)],
        leaves: &[Leaf],
        per_leaf: u64,
        most_removed: usize,
    ) -> bool {
        for _ in 0..AT_ONCE {
            let old = self.places.get(self.gap.end).copied();
            let new = points.get(pass.point_at).map(|&(key, entry)| [key.0, entry.0]);
            let (place, is_new) = match (old, new) {
                (None, None) => {
                    assert!(self.dead == 0);
                    return false;
                }
                (Some(old), Some(new)) if new[0] <= old[0] => {
                    if new[0] == old[0] {
                        self.take_old(old);
                    }
                    (new, true)
                }
                (Some(old), _) => {
                    self.take_old(old);
                    (old, false)
                }
                (None, Some(new)) => (new, true),
            };
            if is_new {
                pass.point_at += 1;
            } else if Entry(place[1]) == Entry::UNBUFFERED || pass.has_flushed(place[0], leaves, per_leaf) {
                pass.note_removed(Key(place[0]), most_removed);
                continue;
            }
            assert!(self.gap.start < self.gap.end, "space was made before");
            self.places[self.gap.start] = place;
            if self.gap.start.is_multiple_of(FENCED) {
                self.fences[self.gap.start / FENCED] = place[0];
            }
            self.gap.start += 1;
        }
        true
    }

    fn take_old(&mut self, old: [u64; 2]) {
        self.gap.end += 1;
        self.dead -= usize::from(Entry(old[1]) == Entry::UNBUFFERED);
    }

    // ---- the log ----

    /// Writes the records from `first` on into a page, in the order of keys. The gap must be at the end.
    pub(crate) fn write_sorted(&self, first: u64, page: &mut [u8]) {
        assert!(self.gap.end == self.places.len() && self.dead == 0);
        page.fill(0);
        let from = (first as usize).min(self.gap.start);
        for (bytes, place) in page.chunks_exact_mut(RECORD_BYTES).zip(&self.places[from..self.gap.start]) {
            write_record(bytes, Key(place[0]), Entry(place[1]));
        }
    }
}

impl Pass {
    /// Returns the blocks whose records the log has to revoke.
    pub(crate) fn removed(&self) -> &Vec<Key> {
        &self.removed
    }

    /// Returns true if the log is rewritten.
    pub(crate) fn is_anew(&self) -> bool {
        self.anew
    }

    /// Rewrites the log if `too_many` records would be appended to it.
    pub(crate) fn rewrite_if(&mut self, too_many: bool) {
        self.anew |= too_many;
    }

    /// Drops the records that the log has to revoke: a mutant does.
    pub(crate) fn revoke_nothing(&mut self) {
        self.removed.clear();
        self.anew = false;
    }

    /// Returns true if the buffered mapping of a block has gone into its leaf.
    fn has_flushed(&mut self, key: u64, leaves: &[Leaf], per_leaf: u64) -> bool {
        while let Some(leaf) = leaves.get(self.leaf_at)
            && leaf.first.0 + per_leaf <= key
        {
            self.leaf_at += 1;
        }
        leaves.get(self.leaf_at).is_some_and(|leaf| leaf.flushes && leaf.first.0 <= key)
    }

    fn note_removed(&mut self, key: Key, most: usize) {
        if self.removed.len() < most {
            self.removed.push(key);
        } else {
            self.anew = true;
        }
    }
}

/// Writes a record of the log.
pub(crate) fn write_record(bytes: &mut [u8], key: Key, entry: Entry) {
    put_u64(bytes, 0, key.0);
    put_u64(bytes, 8, entry.0);
}

/// Reads the records of a leaf of the log, up to the first key of 0.
pub(crate) fn records(leaf: &[u8]) -> impl Iterator<Item = (Key, Entry)> + '_ {
    let all = leaf.chunks_exact(RECORD_BYTES).map(|bytes| (Key(u64_at(bytes, 0)), Entry(u64_at(bytes, 8))));
    all.take_while(|(key, _)| key.0 != 0)
}

/// Reduces a log to the last record of each key, in the order of keys.
pub(crate) fn resolve(records: &mut Vec<(Key, Entry)>) {
    records.sort_by_key(|&(key, _)| key);
    let mut kept = 0;
    for at in 0..records.len() {
        let (key, entry) = records[at];
        let is_last = records.get(at + 1).is_none_or(|&(next, _)| next != key);
        if is_last && entry != Entry::UNBUFFERED {
            records[kept] = (key, entry);
            kept += 1;
        }
    }
    records.truncate(kept);
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;
    use proptest::prelude::*;

    const PER_LEAF: u64 = 8;

    fn agrees(buffer: &MapBuffer, model: &BTreeMap<u64, u64>) {
        assert_eq!(buffer.len(), model.len());
        assert!(buffer.iter().map(|(key, entry)| (key.0, entry.0)).eq(model.iter().map(|(&key, &entry)| (key, entry))));
        for key in 0..800 {
            assert_eq!(buffer.get(Key(key)), model.get(&key).map(|&entry| Entry(entry)), "key {key}");
            let next = model.range(key..).next().map(|(&key, _)| Key(key));
            assert_eq!(buffer.next_key(Key(key), Key(u64::MAX)), next);
            assert_eq!(buffer.next_key(Key(key), Key(key + 9)), next.filter(|next| next.0 < key + 9));
        }
    }

    proptest! {
        /// Compares the buffer with a map, checkpoint after checkpoint, also between the steps.
        #[test]
        fn a_buffer_agrees_with_a_map_also_in_the_middle_of_a_pass(
            rounds in proptest::collection::vec((
                proptest::collection::btree_map(1u64..700, 16u64..1000, 0..300),
                proptest::collection::btree_set(0u64..90, 0..20),
                proptest::collection::btree_set(1u64..700, 0..40),
            ), 1..5),
        ) {
            let (mut buffer, mut model, mut log) = (MapBuffer::new(), BTreeMap::new(), Vec::new());
            for (new, flushed, cleared) in rounds {
                let leaves: Vec<Leaf> = flushed.iter().map(|leaf| Leaf { first: Key(leaf * PER_LEAF), flushes: true }).collect();
                let stays: Vec<_> = new.iter().filter(|(key, _)| !flushed.contains(&(*key / PER_LEAF))).map(|(&key, &entry)| (Key(key), Entry(entry))).collect();
                for key in cleared {
                    if model.remove(&key).is_some() {
                        let (at, ..) = buffer.first_from(buffer.position(Key(key))).unwrap();
                        buffer.remove(at);
                    }
                }
                agrees(&buffer, &model);
                buffer.fit(buffer.capacity().max(buffer.len() + buffer.dead + stays.len()));
                let mut pass = Pass::default();
                while buffer.step(&mut pass, &stays, &leaves, PER_LEAF, usize::MAX) {
                    let at = pass.point_at;
                    for (key, entry) in model.iter() {
                        let in_delta = new.contains_key(key) || flushed.contains(&(key / PER_LEAF));
                        prop_assert!(in_delta || buffer.get(Key(*key)) == Some(Entry(*entry)), "{key} {at}");
                    }
                }
                model.retain(|key, _| !flushed.contains(&(key / PER_LEAF)));
                model.extend(stays.iter().map(|(key, entry)| (key.0, entry.0)));
                agrees(&buffer, &model);
                log.extend(stays.iter().copied());
                log.extend(pass.removed.iter().map(|&key| (key, Entry::UNBUFFERED)));
                let mut resolved = log.clone();
                resolve(&mut resolved);
                agrees(&MapBuffer::from_sorted(&resolved, 0), &model);
                buffer.fit(buffer.len() + 7);
                agrees(&buffer, &model);
            }
        }
    }

    #[test]
    fn pages_of_the_log_read_back() {
        let mappings: Vec<_> = (1..40).map(|key| (Key(key), Entry(key * 16 + 2))).collect();
        let buffer = MapBuffer::from_sorted(&mappings, 0);
        let (mut first, mut second) = ([1; 512], [1; 512]);
        buffer.write_sorted(0, &mut first);
        buffer.write_sorted(32, &mut second);
        assert!(records(&first).chain(records(&second)).eq(mappings.iter().copied()));
    }
}
