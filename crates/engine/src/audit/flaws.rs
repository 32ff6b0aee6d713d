//! Blocks of volumes that cannot be read, for a check: those of damaged or lost pages of a map, and those in slots that do not hold their contents. A block that a
//! map has from an ancestor is a flaw of each map that reads it (RFC 0020).
//!
//! Ancestors come before their descendants. Flaws of a map that others inherit from are kept until the end.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use super::inherited::{inherited_ranges, span, unite};
use crate::api::VolumeId;
use crate::engine::Engine;
use crate::format::bytes::u64_at;
use crate::format::entry::{Entry, Key, Slot};
use crate::format::superblock::Pointer;
use crate::format::volume::MAX_BLOCKS;
use crate::metadata::page_cache::{PageKey, ReadMetadata, Region};

/// Flaw of blocks of a volume.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Flaw {
    /// A repair gave them up: reading them fails until they are written again.
    Lost,
    /// Their page of the map is damaged.
    Damaged,
    /// Their content is in one of the given slots.
    InSlot,
}

/// Blocks with a flaw: the first one and the one behind the last.
type FlawedRange = (u64, u64, Flaw);

impl Engine {
    /// Visits blocks of volumes that cannot be read, and those whose content lies at one of the byte offsets: volume, first block, number of blocks.
    /// Based on the trees, without later changes in the journal, and without the volumes that it deletes.
    pub fn flawed_blocks(
        &self,
        read: &mut ReadMetadata<'_>,
        offsets: &BTreeSet<u64>,
        visit: &mut dyn FnMut(&str, u64, u64, Flaw),
    ) {
        let volumes = self.pool.durable.volumes();
        let mut order: Vec<usize> = (0..volumes.len()).filter(|&at| volumes[at].deleted.is_none()).collect();
        order.sort_by_key(|&at| volumes[at].family.snapshot.map_or(u64::MAX, |snapshot| snapshot.born));
        let mut search = FlawSearch { engine: self, read, offsets, seen: BTreeSet::new(), of: BTreeMap::new() };
        let unflushed = search.unflushed();
        for at in order {
            let volume = &volumes[at];
            let found = search.flaws_of(at, &unflushed);
            if !volume.is_unnamed() {
                let name = self.full_name(volume);
                found.iter().for_each(|&(first, end, flaw)| visit(&name, first, end - first, flaw));
            }
            if !found.is_empty() && volumes.lineage().child_count(volume.id) > 0 {
                search.of.insert(volume.id, found);
            }
        }
    }
}

struct FlawSearch<'a, 'r> {
    engine: &'a Engine,
    read: &'a mut ReadMetadata<'r>,
    offsets: &'a BTreeSet<u64>,
    /// Pages visited so far.
    seen: BTreeSet<u32>,
    /// Flaws of the maps that others inherit from.
    of: BTreeMap<VolumeId, Vec<FlawedRange>>,
}

impl FlawSearch<'_, '_> {
    /// Returns the flaws of a map in the order of its blocks. `unflushed`: those of all maps that are not in their leaves yet.
    fn flaws_of(&mut self, at: usize, unflushed: &[(Key, Flaw)]) -> Vec<FlawedRange> {
        let pool = &self.engine.pool;
        let (id, root) = (pool.durable.volumes()[at].id, pool.durable.volumes().map(at));
        let mut in_tree = Vec::new();
        self.visit(id, root.pointer, (root.height, 0), &mut in_tree);
        self.inherited(at, &mut in_tree);
        // A buffered block does not need its leaf.
        let blocks = pool.durable.volumes()[at].size.div_ceil(pool.geometry().block());
        let mut found = Vec::new();
        for (mut first, end, flaw) in in_tree {
            let end = end.min(blocks);
            while first < end {
                let next = pool.durable.map_buffer().next_key(Key::new(id, first), Key(u64::MAX));
                let upto = next.filter(|next| next.volume() == id).map_or(end, |next| end.min(next.lba()));
                if upto > first {
                    found.push((first, upto, flaw));
                }
                first = upto + 1;
            }
        }
        let first = unflushed.partition_point(|&(key, _)| key < Key::new(id, 0));
        let here = unflushed[first..].iter().take_while(|(key, _)| key.volume() == id);
        found.extend(here.map(|&(key, flaw)| (key.lba(), key.lba() + 1, flaw)));
        found.sort_unstable();
        found.dedup_by(|next, last| {
            let follows = next.0 <= last.1 && next.2 == last.2;
            last.1 = if follows { last.1.max(next.1) } else { last.1 };
            follows
        });
        found
    }

    /// Adds the flawed blocks of a subtree of a map's own.
    fn visit(&mut self, map: VolumeId, pointer: Pointer, (level, index): (u8, u64), found: &mut Vec<FlawedRange>) {
        let pool = &self.engine.pool;
        let (first, end) = span(pool.geometry(), level, index);
        if pointer.is_none() || first >= MAX_BLOCKS || pointer.inherited_from().is_some() {
            return;
        }
        if pointer.is_lost() {
            return found.push((first, end, Flaw::Lost));
        }
        // A page has one parent.
        let is_new = self.seen.insert(pointer.location);
        let Some(page) = self.page(pointer).filter(|_| is_new) else {
            return found.push((first, end, Flaw::Damaged));
        };
        if level > 0 {
            let fanout = pool.geometry().fanout();
            for child in 0..fanout {
                let pointer = Pointer::read(&page, child as usize * 16);
                self.visit(map, pointer, (level - 1, index * fanout + child), found);
            }
            return;
        }
        for (lba, bytes) in (first..).zip(page.chunks_exact(8)) {
            let entry = Entry(u64_at(bytes, 0));
            if pool.unflushed(Key::new(map, lba)).is_none() {
                found.extend(self.flaw_of(entry).map(|flaw| (lba, lba + 1, flaw)));
            }
        }
    }

    /// Adds the flaws of ancestors that a map reads.
    fn inherited(&mut self, at: usize, found: &mut Vec<FlawedRange>) {
        let volumes = self.engine.pool.durable.volumes();
        let (id, root) = (volumes[at].id, volumes.map(at));
        let flaws = volumes.lineage().ancestors(id).filter_map(|ancestor| self.of.get(&ancestor.map)).flatten();
        let mut ranges: Vec<(u64, u64)> = flaws.map(|&(first, end, _)| (first, end)).collect();
        unite(&mut ranges);
        let mut places = Vec::new();
        let geometry = self.engine.pool.geometry();
        for range in ranges {
            let page = &mut |pointer, _| self.page(pointer);
            inherited_ranges(geometry, page, root.pointer, (root.height, 0), range, &mut places);
        }
        for (epoch, from, to) in places {
            let flaws = volumes.lineage().ancestor_for(id, epoch).and_then(|ancestor| self.of.get(&ancestor));
            let here = flaws.into_iter().flatten().map(|&(first, end, flaw)| (first.max(from), end.min(to), flaw));
            // A block that is not in its leaf yet does not come from there.
            let is_in_leaf = |lba: u64| self.engine.pool.unflushed(Key::new(id, lba)).is_none();
            found.extend(here.filter(|&(first, end, _)| first < end && (end - first > 1 || is_in_leaf(first))));
        }
    }

    /// Returns the flawed blocks of all maps that are not in their leaves yet, in order.
    fn unflushed(&self) -> Vec<(Key, Flaw)> {
        let durable = &self.engine.pool.durable;
        let points = durable.delta().points();
        let buffered = durable.map_buffer().iter().filter(|(key, _)| !points.contains_key(key));
        let all = points.iter().map(|(&key, &entry)| (key, entry)).chain(buffered);
        let mut found: Vec<_> = all.filter_map(|(key, entry)| Some((key, self.flaw_of(entry)?))).collect();
        found.sort_unstable();
        found
    }

    fn flaw_of(&self, entry: Entry) -> Option<Flaw> {
        match entry.slot() {
            Some(slot) => self.offset(slot).filter(|offset| self.offsets.contains(offset)).map(|_| Flaw::InSlot),
            None => entry.is_lost().then_some(Flaw::Lost),
        }
    }

    /// Returns the byte offset of a slot, if it exists.
    fn offset(&self, slot: Slot) -> Option<u64> {
        let pool = &self.engine.pool;
        pool.durable.space().contains(slot).then(|| pool.slot_offset(slot))
    }

    fn page(&mut self, pointer: Pointer) -> Option<Vec<u8>> {
        let metadata = &self.engine.pool.metadata;
        let key = PageKey { region: Region::Metadata, location: pointer.location };
        let block_size = metadata.geometry().block_size;
        let page = if metadata.is_valid(key) { (self.read)(metadata.offset(key), block_size) } else { None };
        page.filter(|page| metadata.is_intact(pointer, page))
    }
}
