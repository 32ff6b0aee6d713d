//! Lookup of a block's map entry: in the deltas and the map buffer first, then in its leaf.

use super::Pool;
use crate::api::*;
use crate::format::bytes::u64_at;
use crate::format::entry::{Entry, Key};
use crate::metadata::page_cache::Region;
use crate::metadata::tree::{LastLeaf, Missing, PageLookup, Unresolved, Walk, locate};

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
        if let Some(entry) = self.unflushed(key) {
            return Ok(entry);
        }
        let leaf = key.lba() / self.metadata.geometry().map_leaf_entries();
        match last.lookup(&mut self.metadata, self.durable.volumes.map(volume), leaf) {
            Walk::Leaf(page) => self.entry_in(page, key).ok_or(Unresolved::Damaged),
            Walk::Absent(_) => Ok(Entry::UNMAPPED),
            Walk::Missing(missing) if missing.pointer.is_lost() => Ok(Entry::LOST),
            Walk::Missing(missing) | Walk::From { missing, .. } => Err(Unresolved::Missing(missing)),
        }
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

    /// Returns the entry of a block in its leaf; `None` if it is invalid, for example with a slot beyond the pool.
    pub(crate) fn entry_in(&self, leaf: PageId, key: Key) -> Option<Entry> {
        let at = (key.lba() % self.metadata.geometry().map_leaf_entries()) as usize * 8;
        let entry = Entry(u64_at(self.metadata.pages().bytes(leaf), at));
        let makes_sense = entry.is_valid() && entry.slot().is_none_or(|slot| self.durable.space.contains(slot));
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
        let known = self.durable.volumes.find(key.volume());
        known.is_some_and(|at| key.lba() < self.durable.volumes[at].size.div_ceil(self.metadata.geometry().block()))
            && entry.is_valid()
            && entry.slot().is_none_or(|slot| self.durable.space.contains(slot))
    }
}
