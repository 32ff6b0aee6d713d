//! Audit of the whole state: every quantity that can be counted in two ways is counted twice, and both must agree. (Invariants 2, 3 and 5 of the
//! design; docs/reference/disk-format.md lists them.) Needs an idle engine: no request, no I/O, no checkpoint in progress.

use crate::metadata::page_cache::ReadMetadata;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use super::hidden::{HiddenBlocks, HiddenCount};
use crate::api::{Digest, Segment, VolumeId};
use crate::audit::inherited::pointer_at;
use crate::block_map::map_buffer;
use crate::engine::Engine;
use crate::format::bytes::{u32_at, u64_at};
use crate::format::entry::{Entry, Key, Slot, check_bits};
use crate::format::layout::SUMMARY_BYTES;
use crate::format::layout::read_summary;
use crate::format::superblock::{Pointer, Root, TreeId};
use crate::format::volume::{Hidden, Volume};
use crate::locality_map::NearMap;
use crate::metadata::page_cache::{PageKey, Region};
use crate::pool::disk_index::NO_VOLUME;
use crate::pool::tables::table_name;
use crate::space::SlotState;

/// Number of pages of ancestors that are kept.
const ANCESTOR_PAGES: usize = 64;

/// Treatment of pointers FROM in a tree.
#[derive(Clone, Copy)]
enum Inherited {
    /// They are damage: a table has none.
    Wrong,
    /// They have no pages to visit.
    Skipped,
    /// They must name a page of an ancestor of this map.
    Checked(VolumeId),
}

/// An audit in progress.
pub(super) struct Audit<'a> {
    engine: &'a Engine,
    read: &'a mut ReadMetadata<'a>,
    report: &'a mut dyn FnMut(&str),
    pub(super) good: bool,
    /// True if some pages could not be read.
    is_incomplete: bool,
    /// Byte offsets of these pages: maps are visited twice, and each page is reported once.
    failed: BTreeSet<u64>,
    /// Metadata blocks that some tree references.
    pub(super) reached: Vec<bool>,
    /// Pages of ancestors that FROM named, by location; forgotten when there are many.
    ancestors: BTreeMap<u32, Rc<[u8]>>,
    /// References to each slot from the trees.
    pub(super) counts: Vec<u32>,
    /// The space map.
    states: Vec<SlotState>,
}

impl Engine {
    /// Audits the whole state of an idle engine. Reports each violation; returns true if there was none.
    pub fn check(&self, read: &mut ReadMetadata<'_>, report: &mut dyn FnMut(&str)) -> bool {
        let mut read = |offset, length| read(offset, length);
        let mut audit = Audit {
            engine: self,
            read: &mut read,
            report,
            good: true,
            is_incomplete: false,
            failed: BTreeSet::new(),
            reached: vec![false; self.pool.geometry().metadata_blocks as usize],
            ancestors: BTreeMap::new(),
            counts: vec![0; self.pool.geometry().slots() as usize],
            states: Vec::new(),
        };
        audit.at_rest();
        audit.space_map();
        audit.volumes();
        audit.discards();
        audit.delta();
        let stored = audit.stored_counts();
        audit.slots(&stored);
        audit.summaries();
        audit.tables();
        audit.metadata();
        audit.buffers();
        audit.good
    }

    /// Creates a read-only audit.
    pub(super) fn look<'a>(&'a self, read: &'a mut ReadMetadata<'a>, report: &'a mut dyn FnMut(&str)) -> Audit<'a> {
        Audit {
            engine: self,
            read,
            report,
            good: true,
            is_incomplete: false,
            failed: BTreeSet::new(),
            reached: vec![false; self.pool.geometry().metadata_blocks as usize],
            ancestors: BTreeMap::new(),
            counts: Vec::new(),
            states: Vec::new(),
        }
    }

    /// Visits every slot that is not free in the space map, with its digest and owner. `None` if some of it cannot be read.
    pub(crate) fn each_digest_in_use(
        &self,
        read: &mut ReadMetadata<'_>,
        visit: &mut dyn FnMut(Slot, Digest, Key),
    ) -> Option<()> {
        let (mut read, mut ignore) = (|offset, length| read(offset, length), |_: &str| {});
        let mut audit = self.look(&mut read, &mut ignore);
        audit.space_map();
        audit.each_summary(&mut |audit, slot, digest, owner| {
            if audit.states[slot.0 as usize] != SlotState::Free {
                visit(slot, digest, owner);
            }
        });
        audit.good.then_some(())
    }

    /// Visits every leaf of a table, with its number. `None` if some of it cannot be read.
    pub(crate) fn each_table_leaf(
        &self,
        read: &mut ReadMetadata<'_>,
        tree: TreeId,
        visit: &mut dyn FnMut(u64, &[u8]),
    ) -> Option<()> {
        let (mut read, mut ignore) = (|offset, length| read(offset, length), |_: &str| {});
        let mut audit = self.look(&mut read, &mut ignore);
        let root = self.pool.durable.root(tree);
        audit.each_leaf(Region::Metadata, root, table_name(tree), &mut |_, leaf, page| visit(leaf, page));
        audit.good.then_some(())
    }

    /// Visits every live slot with a known digest: its byte offset on the store and its digest. Returns false if a summary is damaged.
    pub fn live_slots(&self, read: &mut ReadMetadata<'_>, visit: &mut dyn FnMut(u64, Digest)) -> bool {
        let mut read = |offset, length| read(offset, length);
        let mut ignore = |_: &str| {};
        let mut audit = self.look(&mut read, &mut ignore);
        audit.space_map();
        audit.each_summary(&mut |audit, slot, digest, _| {
            if audit.states[slot.0 as usize].is_used() {
                visit(self.pool.slot_offset(slot), digest);
            }
        });
        let mut fresh: Vec<_> =
            self.pool.durable.delta().slots().iter().filter(|(_, recent)| recent.fresh && recent.refs > 0).collect();
        fresh.sort_unstable_by_key(|(slot, _)| **slot);
        for (slot, recent) in fresh {
            if !self.pool.memory.is_dirty(*slot) {
                visit(self.pool.slot_offset(*slot), recent.digest);
            }
        }
        audit.good
    }
}

impl Engine {
    /// Returns the mappings that are buffered for a volume.
    pub(super) fn buffered_of(&self, volume: VolumeId) -> impl Iterator<Item = (Key, Entry)> + '_ {
        let mut place = self.pool.durable.map_buffer().position(Key::new(volume, 0));
        core::iter::from_fn(move || {
            let (at, key, entry) =
                self.pool.durable.map_buffer().first_from(place).filter(|(_, key, _)| key.volume() == volume)?;
            place = at + 1;
            Some((key, entry))
        })
    }
}

impl<'a> Audit<'a> {
    fn violation(&mut self, text: String) {
        self.good = false;
        (self.report)(&text);
    }

    /// Reports a violation, unless it may follow from pages that cannot be read: these have been reported already.
    fn contradiction(&mut self, text: String) {
        if !self.is_incomplete {
            self.violation(text);
        }
    }

    fn at_rest(&mut self) {
        let engine = self.engine;
        if engine.pool.state.read_only() {
            return;
        }
        let busy = [
            (engine.jobs.checkpoint.is_some(), "a checkpoint is in progress"),
            (!engine.pool.durable.frozen().is_empty(), "changes are being merged"),
            (engine.requests.active() > 0, "requests are not answered"),
            (engine.pool.metadata.io().in_flight() > 0, "I/O is in flight"),
            (engine.pool.metadata.allocator().freed_count() > 0, "blocks of metadata wait to be free"),
        ];
        for (_, what) in busy.into_iter().filter(|(is, _)| *is) {
            self.violation(format!("the engine is not at rest: {what}"));
        }
    }

    // ---- trees ----

    /// Visits every leaf below a root. Damaged pages are reported and skipped.
    pub(super) fn each_leaf(
        &mut self,
        region: Region,
        root: Root,
        what: &str,
        visit: &mut dyn FnMut(&mut Audit<'a>, u64, &[u8]),
    ) {
        self.descend(region, root.pointer, (root.height, 0), Inherited::Wrong, what, visit);
    }

    /// Visits every leaf of a map's own. Damaged pages are reported and skipped.
    pub(super) fn each_map_leaf(
        &mut self,
        volume: &Volume,
        root: Root,
        what: &str,
        visit: &mut dyn FnMut(&mut Audit<'a>, u64, &[u8]),
    ) {
        let inherited = if volume.family.parent.is_some() { Inherited::Skipped } else { Inherited::Wrong };
        self.descend(Region::Metadata, root.pointer, (root.height, 0), inherited, what, visit);
    }

    /// Returns true if FROM `epoch` in a map names a page of this level and number or, with `entry`, a mapped or lost block of it. Pages that
    /// cannot be read are reported elsewhere.
    fn names_an_ancestor(
        &mut self,
        mut map: VolumeId,
        mut epoch: u64,
        (level, index): (u8, u64),
        entry: Option<u64>,
    ) -> bool {
        let engine = self.engine;
        let volumes = engine.pool.durable.volumes();
        loop {
            let Some(ancestor) = volumes.lineage().ancestor_for(map, epoch) else { return false };
            let Some(at) = volumes.find(ancestor) else { return false };
            let is_there = |entry: Entry| entry.slot().is_some() || entry.is_lost();
            if let Some(place) = entry {
                let key = Key::new(ancestor, index * engine.pool.geometry().map_leaf_entries() + place);
                if let Some(found) = engine.pool.unflushed(key) {
                    return is_there(found);
                }
            }
            let Some(pointer) = self.own_pointer(volumes.map(at), level, index) else { return true };
            if let Some(older) = pointer.inherited_from() {
                (map, epoch) = (ancestor, older);
                continue;
            }
            let Some(place) = entry.filter(|_| pointer.has_page()) else {
                return pointer.has_page() || pointer.is_lost();
            };
            let Some(page) = self.ancestor_page(pointer) else { return true };
            let found = Entry(u64_at(&page, place as usize * 8));
            match found.inherited_from() {
                Some(older) => (map, epoch) = (ancestor, older),
                None => return is_there(found),
            }
        }
    }

    /// Returns the pointer of a map to a page, or to a subtree that has it; `None` if a page above cannot be read.
    fn own_pointer(&mut self, root: Root, level: u8, index: u64) -> Option<Pointer> {
        let fanout = self.engine.pool.geometry().fanout();
        let page = &mut |pointer, _| self.ancestor_page(pointer);
        pointer_at(fanout, page, root, (level, index))
    }

    /// Returns a page of an ancestor, if it can be read.
    fn ancestor_page(&mut self, pointer: Pointer) -> Option<Rc<[u8]>> {
        let metadata = &self.engine.pool.metadata;
        let key = PageKey { region: Region::Metadata, location: pointer.location };
        if !self.ancestors.contains_key(&key.location) {
            let page =
                metadata.is_valid(key).then(|| (self.read)(metadata.offset(key), metadata.geometry().block_size));
            let page = page.flatten().filter(|page| metadata.is_intact(pointer, page))?;
            if self.ancestors.len() >= ANCESTOR_PAGES {
                self.ancestors.clear();
            }
            self.ancestors.insert(key.location, page.into());
        }
        self.ancestors.get(&key.location).cloned()
    }

    fn descend(
        &mut self,
        region: Region,
        pointer: Pointer,
        (level, index): (u8, u64),
        inherited: Inherited,
        what: &str,
        visit: &mut dyn FnMut(&mut Audit<'a>, u64, &[u8]),
    ) {
        if pointer.is_none() || pointer.is_lost() {
            return;
        }
        match (inherited, pointer.inherited_from()) {
            (Inherited::Skipped, Some(_)) => return,
            (Inherited::Checked(map), Some(epoch)) => {
                if !self.names_an_ancestor(map, epoch, (level, index), None) {
                    self.contradiction(format!("{what}: page {index} of level {level} is that of no ancestor"));
                }
                return;
            }
            (Inherited::Wrong, _) | (_, None) => {}
        }
        let Some(page) = self.page(region, pointer, what) else { return };
        if level == 0 {
            return visit(self, index, &page);
        }
        let fanout = self.engine.pool.geometry().fanout();
        for at in 0..fanout {
            let child = Pointer::read(&page, at as usize * 16);
            self.descend(region, child, (level - 1, index * fanout + at), inherited, what, visit);
        }
    }

    fn page(&mut self, region: Region, pointer: Pointer, what: &str) -> Option<Vec<u8>> {
        let metadata = &self.engine.pool.metadata;
        let key = PageKey { region, location: pointer.location };
        if !metadata.is_valid(key) {
            self.is_incomplete = true;
            self.violation(format!("{what}: a pointer names block {} of metadata, which does not exist", key.location));
            return None;
        }
        if region == Region::Metadata {
            let reached = &mut self.reached[pointer.location as usize - 1];
            if core::mem::replace(reached, true) {
                self.is_incomplete = true;
                self.violation(format!("{what}: metadata block {} has two parents", pointer.location));
                return None;
            }
        }
        let offset = metadata.offset(key);
        let page = (self.read)(offset, metadata.geometry().block_size);
        let why = match &page {
            None => "cannot be read",
            Some(page) if !metadata.is_intact(pointer, page) => "fails its checksum",
            Some(_) => return page,
        };
        self.is_incomplete = true;
        if self.failed.insert(offset) {
            self.violation(format!("{what}: the page at byte {offset} {why}"));
        }
        None
    }

    fn reference(&mut self, slot: Slot, what: &str) {
        match self.counts.get_mut(slot.0 as usize) {
            Some(count) => *count += 1,
            None => self.violation(format!("{what} refers to slot {}, which does not exist", slot.0)),
        }
    }

    pub(super) fn volumes(&mut self) {
        let engine = self.engine;
        let per_leaf = engine.pool.geometry().map_leaf_entries();
        let mut found = Vec::new();
        for (volume, &root) in engine.pool.durable.volumes().with_maps() {
            let what = engine.kind_and_name(volume);
            let has_parent = volume.family.parent.is_some();
            let inherited = if has_parent { Inherited::Checked(volume.id) } else { Inherited::Wrong };
            let mut used = 0;
            let blocks = volume.merged_size.div_ceil(engine.pool.geometry().block());
            let top = (root.height, 0);
            self.descend(Region::Metadata, root.pointer, top, inherited, &what, &mut |audit, leaf, page| {
                for (i, bytes) in page.chunks_exact(8).enumerate() {
                    let (entry, lba) = (Entry(u64_at(bytes, 0)), leaf * per_leaf + i as u64);
                    if let Some(epoch) = entry.inherited_from().filter(|_| has_parent)
                        && engine.pool.unflushed(Key::new(volume.id, lba)).is_none()
                        && !audit.names_an_ancestor(volume.id, epoch, (0, leaf), Some(i as u64))
                    {
                        audit.contradiction(format!("{what}: block {lba} is that of no ancestor"));
                    }
                    if !entry.may_stand(has_parent) || (entry != Entry::UNMAPPED && lba >= blocks) {
                        audit.violation(format!("{what}: the entry of block {lba} makes no sense"));
                    } else if let Some(slot) = entry.slot() {
                        used += 1;
                        audit.reference(slot, &what);
                    }
                }
            });
            for (key, entry) in engine.buffered_of(volume.id) {
                if !entry.is_valid() || key.lba() >= blocks {
                    self.violation(format!("{what}: the buffered entry of block {} makes no sense", key.lba()));
                } else if let Some(slot) = entry.slot() {
                    used += 1;
                    self.reference(slot, "the map buffer");
                }
            }
            let cut_off = self.discarded_blocks(volume.id.0);
            found.push((volume, used, cut_off));
        }
        self.counts_of(&found);
    }

    /// Compares the numbers of mapped and cut-off blocks of each volume with the counts in the table.
    fn counts_of(&mut self, found: &[(&Volume, u64, u64)]) {
        let lineage = self.engine.pool.durable.volumes().lineage();
        let giver = self.engine.pool.durable.volumes().giver();
        let mapped =
            |of: VolumeId| found.iter().find(|(volume, ..)| volume.id == of).map_or(0, |&(_, mapped, _)| mapped);
        for &(volume, mut used, cut_off) in found {
            if giver == Some(volume.id) {
                // The blocks of a snapshot that is handed over count as its child's, or as those of a deleted volume.
                used = 0;
            } else if let Some(giver) = giver.filter(|&giver| lineage.parent(volume.id) == Some(giver)) {
                used += mapped(giver);
            }
            let what = self.engine.kind_and_name(volume);
            if used + cut_off != volume.logical_blocks_used {
                let counted = volume.logical_blocks_used;
                self.contradiction(format!("{what}: {used} blocks are mapped, {cut_off} cut off, {counted} counted"));
            }
            self.hidden_blocks(volume, &what);
        }
    }

    /// Compares the blocks that a map hides of its parent with their count. Those in subtrees that were given are still counted, and in no map.
    fn hidden_blocks(&mut self, volume: &Volume, what: &str) {
        let engine = self.engine;
        let (volumes, geometry) = (engine.pool.durable.volumes(), engine.pool.geometry());
        let (fanout, leaf_entries) = (geometry.fanout(), geometry.map_leaf_entries());
        let mut read = |pointer: Pointer, _: u8| self.ancestor_page(pointer);
        let mut count = HiddenCount { volumes, fanout, leaf_entries, read: &mut read };
        // Pages that cannot be read are reported elsewhere.
        let Some(HiddenBlocks { mapped, lost }) = count.of(volume.id) else { return };
        let (mut to_count, mut given) = (0, 0);
        for &range in engine.pool.durable.discards().hidden().iter().filter(|range| range.volume == volume.id) {
            let Some(found) = count.in_range(range) else { return };
            to_count += found.mapped;
        }
        let of_volume = engine.pool.durable.discards().iter().filter(|discard| discard.volume == volume.id);
        for &discard in of_volume.filter(|discard| discard.index.is_some() || discard.is_given) {
            let Some(found) = count.in_discard(discard) else { return };
            *if discard.is_given { &mut given } else { &mut to_count } += found.mapped;
        }
        let Hidden { blocks: counted, is_low } = volume.family.hidden;
        let least = if is_low { 0 } else { mapped + given };
        if !(least..=mapped + given + lost).contains(&(counted + to_count)) {
            self.contradiction(format!(
                "{what}: {mapped} blocks of its parent are hidden, {given} given, {counted} counted, {to_count} to be counted"
            ));
        }
    }

    /// Counts the mapped blocks in subtrees that were cut off a volume, with their references and pages.
    fn discarded_blocks(&mut self, volume: u16) -> u64 {
        let engine = self.engine;
        let mut used = 0;
        for discard in engine.pool.durable.discards().iter().filter(|discard| discard.volume.0 == volume) {
            let top = (discard.level, 0);
            self.descend(
                Region::Metadata,
                discard.pointer,
                top,
                Inherited::Skipped,
                "a discard",
                &mut |audit, _, page| {
                    for bytes in page.chunks_exact(8) {
                        if let Some(slot) = Entry(u64_at(bytes, 0)).slot() {
                            used += 1;
                            audit.reference(slot, "a discard");
                        }
                    }
                },
            );
        }
        used
    }

    /// Reads the space map.
    fn space_map(&mut self) {
        let engine = self.engine;
        let slots = engine.pool.geometry().slots();
        let per_leaf = engine.pool.geometry().space_leaf_slots();
        self.states = vec![SlotState::Free; slots as usize];
        let root = engine.pool.durable.root(TreeId::SpaceMap);
        self.each_leaf(Region::Metadata, root, "the space map", &mut |audit, leaf, page| {
            for at in 0..per_leaf {
                let (slot, state) = (leaf * per_leaf + at, SlotState::read(page, at));
                match audit.states.get_mut(slot as usize) {
                    Some(place) => *place = state,
                    None if state == SlotState::Free => {}
                    None => audit.violation(format!("slot {slot} is {state:?} in the space map and does not exist")),
                }
            }
        });
    }

    /// Audits the remaining subtrees of deleted volumes.
    pub(super) fn discards(&mut self) {
        let engine = self.engine;
        if engine.pool.durable.discards().has_some_of(NO_VOLUME) {
            // Pages of an index on disk that was cut off refer to nothing.
            for discard in engine.pool.durable.discards().iter().filter(|discard| discard.volume == NO_VOLUME) {
                let top = (discard.level, 0);
                self.descend(Region::Metadata, discard.pointer, top, Inherited::Wrong, "a discard", &mut |_, _, _| {});
            }
        }
        for id in engine.pool.durable.discards().volumes() {
            if id != NO_VOLUME && engine.pool.durable.volumes().find(id).is_none() {
                self.discarded_blocks(id.0);
            }
        }
    }

    // ---- counts ----

    fn delta(&mut self) {
        let engine = self.engine;
        let mut refs = NearMap::<Slot, u32>::default();
        for entry in engine.pool.durable.delta().points().values() {
            if let Some(slot) = entry.slot() {
                *refs.entry(slot).or_default() += 1;
            }
        }
        for (slot, recent) in engine.pool.durable.delta().slots() {
            if refs.remove(slot).unwrap_or(0) != recent.refs {
                self.contradiction(format!("slot {}: the delta counts {} references wrongly", slot.0, recent.refs));
            }
            let state = self.states[slot.0 as usize];
            if recent.fresh != (state == SlotState::Free) {
                let fresh = recent.fresh;
                self.contradiction(format!("slot {}: new in the delta {fresh}, {state:?} in the space map", slot.0));
            }
        }
        for slot in refs.keys() {
            self.contradiction(format!("slot {}: the delta refers to it and does not count it", slot.0));
        }
    }

    /// Reads the counts of shared slots, as stored.
    fn stored_counts(&mut self) -> Vec<(Slot, u32)> {
        let engine = self.engine;
        let per_leaf = engine.pool.geometry().block() / 4;
        let mut stored = Vec::new();
        let root = engine.pool.durable.root(TreeId::Counts);
        self.each_leaf(Region::Metadata, root, "the reference counts", &mut |_, leaf, page| {
            for (i, bytes) in page.chunks_exact(4).enumerate() {
                if u32_at(bytes, 0) != 0 {
                    stored.push((Slot(leaf * per_leaf + i as u64), u32_at(bytes, 0)));
                }
            }
        });
        stored
    }

    /// Checks that every slot is exactly one of free, referenced, pending, claimed by a run of a plan, and that counts equal references.
    fn slots(&mut self, stored: &[(Slot, u32)]) {
        let engine = self.engine;
        let space = engine.pool.durable.space();
        let mut stored = stored.iter().copied().peekable();
        let mut pending: Vec<Slot> = space.pending().iter().map(|&(slot, _)| slot).collect();
        pending.sort_unstable();
        if pending.windows(2).any(|pair| pair[0] == pair[1]) {
            self.contradiction(String::from("a slot is pending twice"));
        }
        let mut claimed: Vec<Slot> = engine.jobs.relocate().claimed().chain(engine.jobs.replicate.claimed()).collect();
        claimed.sort_unstable();
        let (mut used, mut free) = (0, 0);
        for number in 0..engine.pool.geometry().slots() {
            let slot = Slot(number);
            let count = self.counts[number as usize];
            let found = self.states[number as usize];
            let known = engine.pool.durable.delta().slots().contains_key(&slot);
            let fits = match count {
                // Held for the delta, which settles its state when it is merged.
                0 => found == SlotState::Free || found == SlotState::Held && known,
                1 => found == SlotState::Single,
                _ => found == SlotState::Shared,
            };
            if !fits {
                self.contradiction(format!("slot {number} has {count} references and is {found:?} in the space map"));
            }
            let written = stored.next_if(|&(at, _)| at == slot).map_or(0, |(_, count)| count);
            if written != if count > 1 { count } else { 0 } {
                self.contradiction(format!("slot {number} has {count} references, {written} are stored"));
            }
            used += u64::from(count > 0);
            let taken = found != SlotState::Free || space.is_taken(slot);
            free += u64::from(!taken);
            if !taken && engine.pool.hints.replicas.has_any(slot) {
                self.contradiction(format!("slot {number} is free and has a replica"));
            }
            let referenced = count > 0 || found == SlotState::Held || engine.pool.durable.delta().live(slot).is_some();
            let waits = pending.binary_search(&slot).is_ok();
            let is_claimed = claimed.binary_search(&slot).is_ok();
            if [referenced, waits, !taken, is_claimed].into_iter().filter(|&it| it).count() != 1 {
                self.contradiction(format!(
                    "slot {number}: referenced {referenced}, pending {waits}, taken {taken}, claimed {is_claimed}"
                ));
            }
        }
        if used != space.data_used() || free != space.free() {
            let (data_used, counted) = (space.data_used(), space.free());
            self.contradiction(format!("{used} slots used, {data_used} counted; {free} free, {counted} counted"));
        }
        for (number, container) in space.containers().iter().enumerate() {
            let free_in_map = |slot: &u64| self.states[*slot as usize] == SlotState::Free;
            let slots = space.slots_of(number as u32);
            let live = slots.clone().filter(|slot| !free_in_map(slot)).count();
            let free = slots.filter(|slot| free_in_map(slot) && !space.is_taken(Slot(*slot))).count();
            if live != container.live as usize || free != container.free as usize {
                self.contradiction(format!("container {number}: {live} live, {free} free, counted {container:?}"));
            }
        }
    }

    fn each_summary(&mut self, visit: &mut dyn FnMut(&mut Audit<'a>, Slot, Digest, Key)) {
        let engine = self.engine;
        let per_leaf = engine.pool.geometry().summary_leaf_slots();
        let root = engine.pool.durable.root(TreeId::Summaries);
        self.each_leaf(Region::Metadata, root, "the summaries", &mut |audit, leaf, page| {
            for (i, bytes) in page.chunks_exact(SUMMARY_BYTES as usize).enumerate() {
                let slot = Slot(leaf * per_leaf + i as u64);
                let (digest, owner) = read_summary(bytes, 0);
                if engine.pool.durable.space().contains(slot) {
                    visit(audit, slot, digest, owner);
                }
            }
        });
    }

    /// Checks that every live slot has a summary, and that the check bits of every entry agree with it.
    fn summaries(&mut self) {
        let engine = self.engine;
        let mut checks = vec![None; engine.pool.geometry().slots() as usize];
        self.each_summary(&mut |audit, slot, digest, _| {
            if audit.states[slot.0 as usize] != SlotState::Free {
                checks[slot.0 as usize] = Some(check_bits(digest));
            }
            if audit.counts[slot.0 as usize] > 0 && engine.pool.recent(slot).is_none() {
                audit.cached(slot, digest);
            }
        });
        for (&slot, recent) in engine.pool.durable.delta().slots().iter().filter(|(_, recent)| recent.refs > 0) {
            self.cached(slot, recent.digest);
        }
        for (number, check) in checks.iter().enumerate() {
            if check.is_none() && self.states[number] != SlotState::Free {
                self.contradiction(format!("slot {number} is in use and has no summary"));
            }
        }
        let reached = self.reached.clone();
        for (volume, &root) in engine.pool.durable.volumes().with_maps() {
            // A second visit of the maps: their pages have been counted.
            self.reached.fill(false);
            self.each_map_leaf(volume, root, "a map", &mut |audit, leaf, page| {
                for (i, bytes) in page.chunks_exact(8).enumerate() {
                    let entry = Entry(u64_at(bytes, 0));
                    let Some(slot) = entry.slot() else { continue };
                    if checks.get(slot.0 as usize).copied().flatten() != Some(entry.check()) {
                        let place = (leaf, i, slot.0);
                        audit.contradiction(format!("leaf, entry, slot {place:?}: the check is not the summary's"));
                    }
                }
            });
        }
        self.reached = reached;
        for (key, entry) in engine.pool.durable.map_buffer().iter() {
            if let Some(slot) = entry.slot()
                && checks.get(slot.0 as usize).copied().flatten() != Some(entry.check())
            {
                let place = (key.volume().0, key.lba(), slot.0);
                self.contradiction(format!(
                    "the map buffer: volume, block, slot {place:?}: the check is not the summary's"
                ));
            }
        }
        for (key, entry) in engine.pool.durable.delta().points() {
            if let Some(slot) = entry.slot() {
                let known = engine.pool.durable.delta().live(slot).map(|recent| check_bits(recent.digest));
                if known != Some(entry.check()) {
                    self.delta_violation(*key, slot);
                }
            }
        }
    }

    /// Checks that the block in the read cache for a slot is the one that the slot holds, by all bits of the digest where it knows them.
    fn cached(&mut self, slot: Slot, digest: Digest) {
        let cache = self.engine.pool.memory.cache();
        let known = cache.peek(slot).and_then(|buffer| cache.digest_in(buffer));
        if known.is_some_and(|known| known != digest) {
            self.violation(format!("the read cache has another content for slot {}", slot.0));
        }
    }

    fn delta_violation(&mut self, key: Key, slot: Slot) {
        let (volume, lba) = (key.volume().0, key.lba());
        self.contradiction(format!("volume {volume} block {lba}: its check is not that of slot {}", slot.0));
    }

    // ---- metadata and memory ----

    /// Visits the pages of the tables that have not been visited yet.
    fn tables(&mut self) {
        let engine = self.engine;
        for tree in [TreeId::Containers, TreeId::Volumes, TreeId::Discards, TreeId::DiskIndex] {
            let root = engine.pool.durable.root(tree);
            self.each_leaf(Region::Metadata, root, table_name(tree), &mut |_, _, _| {});
        }
        let root = engine.pool.durable.root(TreeId::MetaMap);
        self.each_leaf(Region::MetaMap, root, "the map of metadata blocks", &mut |_, _, _| {});
        let (root, mut records, mut logged) = (engine.pool.durable.root(TreeId::MapBuffer), Vec::new(), 0);
        let per_leaf = engine.pool.geometry().block() / map_buffer::RECORD_BYTES as u64;
        self.each_leaf(Region::Metadata, root, table_name(TreeId::MapBuffer), &mut |_, leaf, page| {
            let before = records.len();
            records.extend(map_buffer::records(page));
            logged = leaf * per_leaf + (records.len() - before) as u64;
        });
        map_buffer::resolve(&mut records);
        // After a failure the buffer can be ahead.
        if !engine.pool.state.read_only()
            && (!records.iter().copied().eq(engine.pool.durable.map_buffer().iter())
                || logged != engine.pool.durable.map_buffer().logged())
        {
            let (found, known) = (
                (records.len(), logged),
                (engine.pool.durable.map_buffer().len(), engine.pool.durable.map_buffer().logged()),
            );
            self.contradiction(format!(
                "the map buffer: its log comes to {found:?} mappings and records, not {known:?}"
            ));
        }
    }

    /// Checks that the metadata blocks in use are those that some tree references.
    fn metadata(&mut self) {
        let reached = core::mem::take(&mut self.reached);
        for (block, &reached) in reached.iter().enumerate() {
            let used = self.engine.pool.metadata.allocator().is_used(block as u32 + 1);
            if used != reached && !self.engine.pool.state.read_only() {
                self.contradiction(format!("metadata block {block}: in use {used}, reached {reached}"));
            }
        }
    }

    /// Checks that the buffers of an idle engine are held by the read cache, by blocks not in their slots, by a flash that hangs, or by the driver.
    fn buffers(&mut self) {
        let engine = self.engine;
        let mut holds = vec![0u32; engine.pool.memory.buffers().numbers() as usize];
        for (_, buffer) in engine.pool.memory.cache().iter() {
            holds[buffer.0 as usize] += 1;
        }
        for buffer in engine.pool.memory.dirty_buffers() {
            holds[buffer.0 as usize] += 1;
        }
        let mut pages_on_flash = 0;
        for segment in engine.pool.metadata.io().segments_on_flash() {
            match segment {
                Segment::Buffer(buffer) => holds[buffer.0 as usize] += 1,
                Segment::Page(_) => pages_on_flash += 1,
            }
        }
        let waiting = engine.pool.durable.journal().unwritten().len() + engine.pool.durable.journal().inlined().len();
        let repaired = engine.repairs.under_repair().filter(|&slot| engine.pool.memory.is_dirty(*slot)).count();
        let dirty = engine.pool.memory.dirty_buffers().len() - repaired;
        if dirty != waiting && !engine.pool.state.read_only() {
            self.violation(format!("{dirty} blocks are dirty, {waiting} wait to be written"));
        }
        let mut received = 0;
        for (number, &expected) in holds.iter().enumerate() {
            let held = engine.pool.memory.buffers().holds(crate::api::BufferId(number as u32));
            if held == 1 && expected == 0 {
                received += 1;
            } else if held != expected {
                self.violation(format!("buffer {number} is held {held} times, {expected} holders are known"));
            }
        }
        let incoming = engine.pool.memory.buffers().incoming() as usize;
        if incoming != dirty + received {
            self.violation(format!("{incoming} buffers are incoming, {} are known", dirty + received));
        }
        let private = engine.pool.metadata.pages().private_pages();
        if private > pages_on_flash && !engine.pool.state.read_only() {
            self.violation(format!("{private} pages are private"));
        }
    }
}
