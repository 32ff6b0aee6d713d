//! State of the prototype, and its three ways through it (sections 3.2 to 3.4): inline, offline, background.
//!
//! Each step that the text names is done, in its order; [`Maps`] has the time cost of each lookup and change of a map. The text leaves one order open. Here
//! inline mode counts the references of the new content before it releases those of the old one. So a block that is written again with the same content stays.

use std::collections::VecDeque;

use engine::Nanos;

use super::bits::Bits;
use super::maps::{MISS, Map, Maps};
use super::{DRIVE, Keeping, Parameters, Scale};

/// Number of a content, dense from 0 on.
pub type Content = u32;
/// Number of a block on the drive.
pub type Physical = u32;

const NONE: u32 = u32::MAX;
/// Number of FreeBlocks read at a time from the device (section 4.2), 8 bytes each.
const FREE_AT_ONCE: u64 = 16_000;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Indexed {
    physical: Physical,
    references: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Mapped {
    physical: Physical,
    /// Copy on write: others may share it.
    is_shared: bool,
}

/// Outcome of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Done {
    /// Time at which the maps are done with.
    pub at: Nanos,
    /// Block that has to be written to the drive, if any.
    pub writes: Option<Physical>,
}

/// The store.
#[derive(Clone, Debug)]
pub struct Store {
    /// Costs of lookups and changes.
    pub maps: Maps,
    index: Vec<Indexed>,
    reverse: Vec<Content>,
    metadata: Vec<Mapped>,
    free: VecDeque<Physical>,
    /// Number of blocks taken so far from the untouched part of the drive.
    untouched: Physical,
    free_at_once: u64,
    taken: u64,
    is_on_device: bool,
    dirty: Bits,
    dirty_blocks: Vec<(Content, Physical)>,
    /// Address at which the background continues.
    cursor: u64,
}

impl Store {
    /// Creates an empty store for the logical blocks of `scale` and `contents` contents.
    pub fn new(keeping: Keeping, parameters: &Parameters, scale: Scale, contents: u64) -> Store {
        let blocks = scale.blocks();
        // Offline a block and its copy exist for a while.
        let physical = 2 * blocks;
        Store {
            maps: Maps::new(keeping, parameters, scale, contents, physical),
            index: vec![Indexed { physical: NONE, references: 0 }; contents as usize],
            reverse: vec![NONE; physical as usize],
            metadata: vec![Mapped { physical: NONE, is_shared: false }; blocks as usize],
            free: VecDeque::new(),
            untouched: 0,
            free_at_once: (FREE_AT_ONCE / scale.0).max(1),
            taken: 0,
            is_on_device: keeping == Keeping::Device,
            dirty: Bits::new(blocks),
            dirty_blocks: vec![(NONE, NONE); blocks as usize],
            cursor: 0,
        }
    }

    /// Returns the number of blocks that wait for the background.
    pub fn pending(&self) -> u64 {
        self.dirty.count
    }

    /// Looks a logical block up, for a read.
    pub fn read(&self, logical: u64, now: Nanos) -> (Nanos, Option<Physical>) {
        let physical = self.metadata[logical as usize].physical;
        (self.maps.get(Map::Metadata, logical as u32, now), (physical != NONE).then_some(physical))
    }

    fn take_free(&mut self, now: &mut Nanos) -> Physical {
        self.taken += 1;
        if self.is_on_device && self.taken.is_multiple_of(self.free_at_once) {
            *now += DRIVE.read_nanos + self.free_at_once * 8 * 1_000_000_000 / DRIVE.read_bytes_per_second;
        }
        // The free list is a ring: returned blocks come after the untouched ones.
        if (self.untouched as usize) < self.reverse.len() {
            self.untouched += 1;
            return self.untouched - 1;
        }
        self.free.pop_front().expect("twice as many blocks as are written")
    }

    /// Takes a block from the DirtyQueue, an array in memory in both versions (section 4.2).
    fn take_dirty(&mut self, logical: u64, now: &mut Nanos) -> Option<(Content, Physical)> {
        *now += MISS;
        self.dirty.remove(logical).then(|| self.dirty_blocks[logical as usize])
    }

    /// Gives one reference to a physical block back (Fig. 5, steps 9 to 13).
    fn release(&mut self, physical: Physical, mut now: Nanos) -> Nanos {
        now = self.maps.get(Map::Reverse, physical, now);
        let content = self.reverse[physical as usize];
        now = self.maps.get(Map::Index, content, now);
        now = self.maps.put(Map::Index, content, false, now);
        let indexed = &mut self.index[content as usize];
        indexed.references -= 1;
        if indexed.references == 0 {
            *indexed = Indexed { physical: NONE, references: 0 };
            self.reverse[physical as usize] = NONE;
            now = self.maps.put(Map::Index, content, false, now);
            now = self.maps.put(Map::Reverse, physical, false, now);
            self.free.push_back(physical);
        }
        now
    }

    /// Finds a content and counts one more reference, or inserts it at the block that `place` returns. Returns its block, and true if it is new.
    fn test_and_increment(
        &mut self,
        content: Content,
        now: &mut Nanos,
        place: impl FnOnce(&mut Store, &mut Nanos) -> Physical,
    ) -> (Physical, bool) {
        *now = self.maps.get(Map::Index, content, *now);
        let found = self.index[content as usize];
        if found.physical != NONE {
            self.index[content as usize].references += 1;
            *now = self.maps.put(Map::Index, content, false, *now);
            return (found.physical, false);
        }
        let physical = place(self, now);
        self.index[content as usize] = Indexed { physical, references: 1 };
        *now = self.maps.put(Map::Index, content, true, *now);
        self.reverse[physical as usize] = content;
        *now = self.maps.put(Map::Reverse, physical, true, *now);
        (physical, true)
    }

    fn lead(&mut self, logical: u64, physical: Physical, is_shared: bool, now: Nanos) -> Nanos {
        self.metadata[logical as usize] = Mapped { physical, is_shared };
        self.maps.put(Map::Metadata, logical as u32, false, now)
    }

    /// Writes a block with an inline duplicate lookup (section 3.2).
    pub fn inline(&mut self, logical: u64, content: Content, mut now: Nanos) -> Done {
        if let Some((_, pending)) = self.take_dirty(logical, &mut now) {
            self.free.push_back(pending);
        }
        now = self.maps.get(Map::Metadata, logical as u32, now);
        let old = self.metadata[logical as usize];
        let (physical, is_new) = self.test_and_increment(content, &mut now, Store::take_free);
        now = self.lead(logical, physical, true, now);
        if old.is_shared {
            now = self.release(old.physical, now);
        }
        Done { at: now, writes: is_new.then_some(physical) }
    }

    /// Writes a block that is left to the background (section 3.3).
    pub fn offline(&mut self, logical: u64, content: Content, mut now: Nanos) -> Done {
        let physical = match self.take_dirty(logical, &mut now) {
            Some((_, pending)) => pending,
            None => self.take_free(&mut now),
        };
        self.dirty.add(logical);
        self.dirty_blocks[logical as usize] = (content, physical);
        now += MISS;
        now = self.maps.get(Map::Metadata, logical as u32, now);
        let old = self.metadata[logical as usize];
        if old.is_shared {
            now = self.release(old.physical, now);
        }
        now = self.lead(logical, physical, false, now);
        Done { at: now, writes: Some(physical) }
    }

    /// Processes one block of the background (section 3.4), in the order of the DirtyQueue, an array by logical address. Returns false if
    /// there is none.
    pub fn background(&mut self, now: &mut Nanos) -> bool {
        let Some(logical) = self.dirty.next_from(self.cursor) else { return false };
        self.cursor = (logical + 1) % self.metadata.len() as u64;
        *now += MISS;
        let (content, written) = self.dirty_blocks[logical as usize];
        let (physical, is_new) = self.test_and_increment(content, now, |_, _| written);
        *now = self.lead(logical, physical, true, *now);
        if !is_new {
            self.free.push_back(written);
        }
        self.dirty.remove(logical);
        true
    }

    /// Returns the number of blocks with a content in the Index.
    pub fn stored(&self) -> u64 {
        self.index.iter().filter(|indexed| indexed.physical != NONE).count() as u64
    }

    /// Checks that the reference count of each content equals the number of logical blocks that map to it, and that Reverse Index and Index agree.
    pub fn audit(&self) -> Result<(), String> {
        let mut references = vec![0u32; self.index.len()];
        for (logical, mapped) in self.metadata.iter().enumerate() {
            if mapped.physical == NONE || self.dirty.has(logical as u64) {
                continue;
            }
            let content = self.reverse[mapped.physical as usize];
            if content == NONE || !mapped.is_shared {
                return Err(format!("block {logical} maps to {mapped:?}, which is of content {content}"));
            }
            references[content as usize] += 1;
        }
        for (content, (indexed, references)) in self.index.iter().zip(references).enumerate() {
            let is_found = indexed.physical == NONE || self.reverse[indexed.physical as usize] == content as u32;
            if indexed.references != references || !is_found {
                return Err(format!("content {content} has {indexed:?}, and {references} blocks map to it"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hiods_store::CALIBRATED;
    use sim::random::Random;

    /// Checks that any mix of inline, offline and background keeps each content once and references right.
    #[test]
    fn any_mix_of_the_three_ways_keeps_references() {
        for keeping in [Keeping::Memory, Keeping::Device] {
            for seed in 0..8 {
                let scale = Scale(1 << 16);
                let mut store = Store::new(keeping, &CALIBRATED, scale, 40);
                let (mut random, mut now) = (Random::new(seed), 0);
                for step in 0..3_000 {
                    let (logical, content) = (random.below(scale.blocks()), random.below(40) as u32);
                    match random.below(3) {
                        0 => now = store.inline(logical, content, now).at,
                        1 => now = store.offline(logical, content, now).at,
                        _ => _ = store.background(&mut now),
                    }
                    assert_eq!(store.audit(), Ok(()), "{keeping:?}, seed {seed}, step {step}");
                }
                while store.background(&mut now) {}
                assert_eq!((store.pending(), store.audit()), (0, Ok(())));
                assert!(store.stored() <= 40);
            }
        }
    }

    /// Checks that an inline write of a new content takes a lookup in two maps and a change of all three; a duplicate one change fewer.
    #[test]
    fn a_duplicate_takes_less_than_a_new_content() {
        for keeping in [Keeping::Memory, Keeping::Device] {
            let mut store = Store::new(keeping, &CALIBRATED, Scale(1 << 10), 10);
            let first = store.inline(0, 1, 0);
            let second = store.inline(1, 1, first.at);
            assert!(first.writes.is_some() && second.writes.is_none());
            assert!(second.at - first.at < first.at, "{keeping:?}");
            // Offline takes less than either.
            let offline = store.offline(2, 1, second.at);
            assert!(offline.at - second.at < second.at - first.at && offline.writes.is_some());
        }
    }
}
