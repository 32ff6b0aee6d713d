//! Lookup of a block's map entry: in the deltas and the map buffer first, then in its leaf.

use super::Pool;
use crate::api::*;
use crate::format::bytes::u64_at;
use crate::format::entry::{Entry, Key};
use crate::metadata::page_cache::Region;
use crate::metadata::tree::{LastLeaf, Missing, PageLookup, Unresolved, Walk, locate};
use crate::mutant::Mutant;

/// Number of versions of a block that are compared with the slot of an owner hint: more than a schedule of hourly, daily and monthly snapshots keeps.
const VERSIONS_TRIED: u32 = 128;
/// Number of older versions that a step of a job compares, before it ends.
pub(crate) const COMPARED_AT_ONCE: u32 = 2048;

/// Position of a search for the block that maps to a slot. A search that lacks a page goes on there when the page is loaded. So it never needs the pages of
/// more than one version in memory, however many there are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct ReferrerSearch {
    at: Option<SearchPosition>,
    /// Number of older versions that were compared.
    older: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct SearchPosition {
    /// Entry with the slot.
    seen: Entry,
    /// Map that is looked at next; `None` at the end of the ancestors.
    map: Option<VolumeId>,
    /// Newest snapshot of the owner's line, if its ancestors are still to be searched.
    newest: Option<VolumeId>,
    /// Number of versions that were compared.
    compared: u32,
}

impl ReferrerSearch {
    /// Takes the number of versions behind the newest one that were compared since the last call.
    pub(crate) fn take_older(&mut self) -> u32 {
        core::mem::take(&mut self.older)
    }
}

impl Pool {
    /// Returns the entry of a block that is not in its leaf yet, from the deltas or the map buffer; `None`: it is in its leaf.
    pub(crate) fn unflushed(&self, key: Key) -> Option<Entry> {
        self.durable
            .delta
            .get(key)
            .or_else(|| self.durable.frozen.get(key))
            .or_else(|| self.durable.map_buffer.get(key))
    }

    /// Returns the entry of a block, which may be lost. Looks into the deltas and the map buffer, then into its leaf.
    pub(crate) fn map_entry(&mut self, volume: usize, key: Key) -> Result<Entry, Unresolved> {
        self.map_entry_after(volume, key, &mut LastLeaf::default())
    }

    /// Returns the entry of a block as [`Pool::map_entry`] does; `last` saves walks after others of the volume.
    pub(crate) fn map_entry_after(
        &mut self,
        volume: usize,
        key: Key,
        last: &mut LastLeaf,
    ) -> Result<Entry, Unresolved> {
        match self.own_entry_after(volume, key, last)? {
            entry if entry.is_valid() => Ok(entry),
            from => Ok(self.inherited_entry(volume, key, from, last)?.1),
        }
    }

    /// Returns the entry of a block, and the key of the block in the map with that entry: its own, or that of an ancestor. A change of the slot for all maps
    /// that inherit the block goes to that key.
    pub(crate) fn standing_entry(
        &mut self,
        volume: usize,
        key: Key,
        last: &mut LastLeaf,
    ) -> Result<(Key, Entry), Unresolved> {
        match self.own_entry_after(volume, key, last)? {
            entry if entry.is_valid() => Ok((key, entry)),
            from if self.mutant(Mutant::MovedForReader) => Ok((key, self.inherited_entry(volume, key, from, last)?.1)),
            from => self.inherited_entry(volume, key, from, last),
        }
    }

    /// Returns the entry of a block that its own map has, which may be FROM an ancestor; `last` saves walks after others of the volume.
    #[inline(always)]
    pub(crate) fn own_entry_after(
        &mut self,
        volume: usize,
        key: Key,
        last: &mut LastLeaf,
    ) -> Result<Entry, Unresolved> {
        if let Some(entry) = self.unflushed(key) {
            return Ok(entry);
        }
        let leaf = key.lba() / self.metadata.geometry().map_leaf_entries();
        match last.lookup(&mut self.metadata, self.durable.volumes.map(volume), leaf) {
            Walk::Leaf(page) => self.entry_in(page, key).ok_or(Unresolved::Damaged),
            Walk::Absent(_) => Ok(Entry::UNMAPPED),
            Walk::From { epoch, .. } => Ok(Entry::inherited(epoch)),
            Walk::Missing(missing) if missing.pointer.is_lost() => Ok(Entry::LOST),
            Walk::Missing(missing) => Err(Unresolved::Missing(missing)),
        }
    }

    /// Returns the entry of a block that a map has FROM its ancestors, with the key of the block in the ancestor.
    #[cold]
    fn inherited_entry(
        &mut self,
        volume: usize,
        key: Key,
        from: Entry,
        last: &mut LastLeaf,
    ) -> Result<(Key, Entry), Unresolved> {
        let leaf = key.lba() / self.metadata.geometry().map_leaf_entries();
        let (mut map, mut from) = (key.volume(), from);
        // Levels of the inherited subtree; `None`: the leaf is the map's own, and only the block is inherited.
        let mut subtree = match last.lookup(&mut self.metadata, self.durable.volumes.map(volume), leaf) {
            Walk::From { level, .. } => Some(level),
            _ => None,
        };
        while let Some(epoch) = from.inherited_from() {
            map = self.durable.volumes.lineage().ancestor_for(map, epoch).ok_or(Unresolved::Damaged)?;
            let key = Key::new(map, key.lba());
            let at = self.durable.volumes.find(map).ok_or(Unresolved::Damaged)?;
            from = match self.unflushed(key) {
                Some(entry) => entry,
                None => match last.lookup_in(&mut self.metadata, map, self.durable.volumes.map(at), leaf) {
                    Walk::Leaf(page) => {
                        subtree = None;
                        self.entry_in(page, key).ok_or(Unresolved::Damaged)?
                    }
                    Walk::From { epoch, level, .. } => {
                        subtree = Some(level);
                        Entry::inherited(epoch)
                    }
                    Walk::Missing(missing) if missing.pointer.is_lost() => Entry::LOST,
                    Walk::Missing(missing) => return Err(Unresolved::Missing(missing)),
                    Walk::Absent(level) if subtree.is_some_and(|inherited| level < inherited) => Entry::UNMAPPED,
                    // A place FROM an ancestor has something there.
                    Walk::Absent(_) => return Err(Unresolved::Damaged),
                },
            };
            if from.is_valid() {
                return Ok((key, from));
            }
        }
        Err(Unresolved::Damaged)
    }

    /// Continues a walk to a leaf in the ancestors of a map, if it ended at an inherited subtree. Holes need no look into deltas and map buffer of an ancestor:
    /// a mapped block of a snapshot never becomes a hole, and a hole never becomes mapped.
    #[inline]
    pub(crate) fn inherited_leaf(
        &mut self,
        mut walk: Walk,
        mut map: VolumeId,
        leaf: u64,
        last: &mut LastLeaf,
    ) -> Result<Walk, Unresolved> {
        while let Walk::From { epoch, level, .. } = walk {
            map = self.durable.volumes.lineage().ancestor_for(map, epoch).ok_or(Unresolved::Damaged)?;
            let at = self.durable.volumes.find(map).ok_or(Unresolved::Damaged)?;
            walk = last.lookup_in(&mut self.metadata, map, self.durable.volumes.map(at), leaf);
            if let Walk::Absent(absent) = walk
                && absent >= level
            {
                return Err(Unresolved::Damaged);
            }
        }
        Ok(walk)
    }

    /// Returns the key of the block that maps to a slot as its owner hint says: the owner's, or that of an ancestor, where the owner has been written since. The
    /// search goes on in the snapshots of the owner's line, where it is gone or was rolled back. `None` if none of the last versions of the block maps to the
    /// slot. If a page is missing, `search` has the position.
    pub(crate) fn referrer(
        &mut self,
        owner: Key,
        seen: Entry,
        search: &mut ReferrerSearch,
    ) -> Result<Option<Key>, Unresolved> {
        let known = search.at.take().filter(|at| at.seen == seen);
        let mut at = known.unwrap_or_else(|| self.begin_search(owner.volume(), seen));
        while at.compared < VERSIONS_TRIED {
            let Some(id) = at.map.or_else(|| at.newest.take()) else { break };
            let Some(volume) = self.durable.volumes.find(id) else { break };
            search.older += u32::from(at.compared > 0);
            let (key, entry) = self
                .standing_entry(volume, Key::new(id, owner.lba()), &mut LastLeaf::default())
                .inspect_err(|_| search.at = Some(SearchPosition { map: Some(id), ..at }))?;
            if entry == seen {
                return Ok(Some(key));
            }
            // The maps between the two have the same version.
            at.map = self.durable.volumes.lineage().parent(key.volume());
            at.compared += 1;
        }
        Ok(None)
    }

    /// Returns the position at which the search for the referrer of a slot begins.
    fn begin_search(&self, owner: VolumeId, seen: Entry) -> SearchPosition {
        let volumes = &self.durable.volumes;
        let map = volumes.find(owner).map(|_| owner);
        let newest = volumes.newest_snapshot(volumes.line(owner));
        // The ancestors of the owner begin with it, as a rule.
        let is_covered = newest == map || map.is_some_and(|map| volumes.lineage().parent(map) == newest);
        SearchPosition { seen, map, newest: newest.filter(|_| !is_covered), compared: 0 }
    }

    /// Returns true if a page of a map is permanently unreadable: its read has failed, or a repair gave it up.
    pub(crate) fn is_unreadable(&self, missing: &Missing) -> bool {
        missing.pointer.is_lost() || self.metadata.has_failed(missing.key)
    }

    /// Returns true if a block certainly reads as zeroes, without a read of its leaf: a block whose leaf is not in memory counts as non-zero. `Err`: a page
    /// above the leaf has to be loaded first.
    pub(crate) fn reads_as_zeroes(&mut self, volume: usize, key: Key, last: &mut LastLeaf) -> Result<bool, Missing> {
        if let Some(entry) = self.unflushed(key) {
            return Ok(entry.is_hole());
        }
        let leaf = key.lba() / self.metadata.geometry().map_leaf_entries();
        let root = self.durable.volumes.map(volume);
        match last.lookup(&mut self.metadata, root, leaf) {
            Walk::Leaf(page) => Ok(self.entry_in(page, key).is_some_and(Entry::is_hole)),
            Walk::Absent(_) => Ok(true),
            Walk::From { .. } => Ok(false),
            Walk::Missing(missing) if self.is_unreadable(&missing) => Ok(false),
            Walk::Missing(missing) => match locate(&mut self.metadata, Region::Metadata, root, 0, leaf) {
                PageLookup::At(_) | PageLookup::From { .. } | PageLookup::Absent(_) => Ok(false),
                PageLookup::Missing(..) => Err(missing),
            },
        }
    }

    /// Returns the entry of a block in its leaf; `None` if it is invalid, for example with a slot beyond the pool, or FROM where the map has no parent.
    pub(crate) fn entry_in(&self, leaf: PageId, key: Key) -> Option<Entry> {
        let at = (key.lba() % self.metadata.geometry().map_leaf_entries()) as usize * 8;
        let entry = Entry(u64_at(self.metadata.pages().bytes(leaf), at));
        let makes_sense = match entry.is_valid() {
            true => entry.slot().is_none_or(|slot| self.durable.space.contains(slot)),
            false => entry.may_stand(self.durable.volumes.lineage().parent(key.volume()).is_some()),
        };
        makes_sense.then_some(entry)
    }

    // ---- the map ----

    /// Returns the entry of a block for a read of its content: a lost one is an error.
    pub(crate) fn resolve(&mut self, volume: usize, key: Key) -> Result<Entry, Unresolved> {
        self.resolve_after(volume, key, &mut LastLeaf::default())
    }

    /// Returns the entry of a block as [`Pool::resolve`] does; `last` saves walks after others of the volume.
    pub(crate) fn resolve_after(&mut self, volume: usize, key: Key, last: &mut LastLeaf) -> Result<Entry, Unresolved> {
        let entry = self.map_entry_after(volume, key, last)?;
        if entry.is_lost() { Err(Unresolved::Damaged) } else { Ok(entry) }
    }

    /// Returns true if a mapping of the map buffer makes sense with the existing volumes.
    pub(crate) fn may_be_buffered(&self, key: Key, entry: Entry) -> bool {
        let known = self.durable.volumes.find(key.volume()).map(|at| &self.durable.volumes[at]);
        // The blocks of a snapshot can get other slots. They do not become holes.
        known.is_some_and(|volume| {
            key.lba() < volume.size.div_ceil(self.metadata.geometry().block())
                && !(volume.is_snapshot() && entry.is_hole())
        }) && entry.is_valid()
            && entry.slot().is_none_or(|slot| self.durable.space.contains(slot))
    }
}
