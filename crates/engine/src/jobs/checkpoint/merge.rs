//! The merges of a checkpoint: maps, discarded subtrees, counts, summaries, tables. All steps are restartable: one that stops for a page has made no
//! change that it would make again.

use super::{Checkpoint, CheckpointStage, Progress, TABLES};
use crate::api::{PageId, VolumeId};
use crate::block_map::discards::{DISCARD_BYTES, Discard};
use crate::block_map::map_buffer::Leaf;
use crate::format::bytes::{put_u32, put_u64, u32_at, u64_at};
use crate::format::entry::{Entry, Key, Slot};
use crate::format::layout::SUMMARY_BYTES;
use crate::format::superblock::{Pointer, Root, TreeId};
use crate::metadata::page_cache::{PageKey, Region};
use crate::metadata::tree::{CutOff, Stop, Walk, Writer, lookup};
use crate::mutant::Mutant;
use crate::pool::Pool;
use crate::pool::disk_index::NO_VOLUME;
use crate::pool::snapshot_groups::Mark;
use crate::pool::volumes::end_of;
use crate::space::SlotState;

/// Number of slots of one step of the merge of counts: a single one costs no more than the check between two steps.
const COUNTS_AT_ONCE: u32 = 16;

/// Number of summary leaves among which the leaves to be read are sought.
const LOOKED_AHEAD: usize = 64;

/// Returns the leaves of items that are in slot order, each with the number of its items.
fn by_leaf<T>(items: &[T], per_leaf: u64, slot: impl Fn(&T) -> Slot) -> impl Iterator<Item = (u64, usize)> {
    let mut rest = items;
    core::iter::from_fn(move || {
        let leaf = slot(rest.first()?).0 / per_leaf;
        let count = rest.partition_point(|item| slot(item).0 < (leaf + 1) * per_leaf);
        rest = &rest[count..];
        Some((leaf, count))
    })
}

impl Checkpoint {
    pub(super) fn finish_writer(&mut self, pool: &mut Pool) -> Result<Option<Root>, Stop> {
        let Some(writer) = &mut self.writer else { return Ok(None) };
        let root = writer.finish(&mut pool.metadata)?;
        let (written, pages) = (writer.written(), &mut pool.stats.counters.pages_written);
        *match self.stage {
            CheckpointStage::Maps => &mut pages.maps,
            CheckpointStage::Counts => &mut pages.counts,
            CheckpointStage::Summaries => &mut pages.summaries,
            CheckpointStage::Tables(at) if TABLES[at] == TreeId::MapBuffer => &mut pages.map_buffer,
            _ => &mut pages.others,
        } += written;
        self.writer = None;
        Ok(Some(root))
    }

    /// Returns the end of the new mappings that stay in the map buffer, within this volume, if the next new mapping does.
    fn next_kept(&self, volume: VolumeId) -> Option<Key> {
        let &(next, _) = self.points.get(self.point_at)?;
        let leaf = self.leaves.get(self.next_leaf).map_or(u64::MAX, |leaf| leaf.first.0);
        let end = leaf.min(end_of(volume).0);
        (next.0 < end).then_some(Key(end))
    }

    /// Puts the entry of a block into its leaf, and returns the entry that was there.
    fn put_entry(&self, pool: &mut Pool, page: PageId, key: Key, entry: Entry) -> Entry {
        assert_eq!(key.volume(), pool.durable.volumes()[self.shared.volume_at].id);
        let at = (key.lba() % pool.metadata.geometry().map_leaf_entries()) as usize * 8;
        let bytes = pool.metadata.pages_mut().bytes_mut(page);
        let before = Entry(u64_at(bytes, at));
        put_u64(bytes, at, entry.0);
        before
    }

    /// Returns the first volume with changes that are still to be merged.
    fn next_volume(&self) -> Option<VolumeId> {
        let clear = self.clears.get(self.clear_at).map(|&(first, _)| Key(first));
        let point = self.points.get(self.point_at).map(|&(key, _)| key);
        let leaf = self.leaves.get(self.next_leaf).map(|leaf| leaf.first);
        let snapshot = self.snapshots.marks().get(self.snapshot_at).map(|mark| Key::new(mark.volume, 0));
        [clear, point, leaf, snapshot].into_iter().flatten().min().map(Key::volume)
    }

    /// Merges a part of the changes of one volume after the other. Volumes without changes take no step.
    pub(super) fn merge_maps(&mut self, pool: &mut Pool) -> Result<Progress, Stop> {
        let id = match self.merging {
            Some(id) => id,
            None => {
                let Some(id) = self.next_volume() else {
                    self.remove_parents(pool);
                    return Ok(Progress::Next);
                };
                // A journal that names a volume that is not there is not replayed.
                self.shared.volume_at = pool.durable.volumes().find(id).ok_or(Stop::Contradiction)?;
                *self.merging.insert(id)
            }
        };
        let in_volume = |key: Key| key.volume() == id;
        if let Some(&(first, stop)) = self.clears.get(self.clear_at)
            && in_volume(Key(first))
        {
            self.merge_clear(pool, Key(first), stop)?;
        } else if let Some(end) = self.next_kept(id) {
            self.keep_points(pool, end);
        } else if self.leaves.get(self.next_leaf).is_some_and(|leaf| in_volume(leaf.first)) {
            self.load_maps_ahead(pool);
            self.merge_leaf(pool)?;
        } else {
            let deleted = pool.durable.volumes()[self.shared.volume_at].deleted.is_some_and(|at| at <= self.upto);
            if let Some(root) = self.finish_writer(pool)? {
                pool.durable.volumes_mut().set_map(self.shared.volume_at, root);
            }
            let (mapped, unmapped) = (core::mem::take(&mut self.mapped), core::mem::take(&mut self.unmapped));
            pool.durable.volumes_mut().note_merged(self.shared.volume_at, mapped, unmapped);
            pool.durable.volumes_mut().note_hidden(self.shared.volume_at, core::mem::take(&mut self.hidden));
            self.take_snapshot(pool, id);
            if deleted {
                if !pool.durable.volumes().map(self.shared.volume_at).pointer.is_none() {
                    // An entry is mapped beyond the end of every possible volume.
                    return Err(Stop::Contradiction);
                }
                if pool.durable.volumes().lineage().child_count(id) == 0 {
                    let gone = pool.durable.volumes_mut().remove(self.shared.volume_at);
                    pool.orphan(&gone);
                }
            }
            self.merging = None;
        }
        Ok(Progress::More)
    }

    /// Removes the snapshots whose turn came before that of their children: they are deleted by the same checkpoint.
    fn remove_parents(&self, pool: &mut Pool) {
        while let Some(at) = pool.durable.volumes().removable(self.upto) {
            let gone = pool.durable.volumes_mut().remove(at);
            pool.orphan(&gone);
        }
    }

    /// Gives the map of a volume that has just been merged to its snapshot, if this checkpoint makes one of it.
    fn take_snapshot(&mut self, pool: &mut Pool, volume: VolumeId) {
        let Some(&Mark { snapshot, .. }) =
            self.snapshots.marks().get(self.snapshot_at).filter(|mark| mark.volume == volume)
        else {
            return;
        };
        self.snapshot_at += 1;
        let (at, born) = (pool.durable.volumes().find(snapshot).expect("it was entered"), pool.metadata.epoch());
        pool.durable.volumes_mut().take_snapshot(self.shared.volume_at, at, born);
        // The blocks of its subtrees that are still to be walked are among those that the snapshot has now.
        pool.durable.discards_mut().relabel(volume, snapshot);
    }

    /// Releases the slot that an ancestor has for a block: only a mutant does so.
    #[cold]
    fn release_inherited(&mut self, pool: &mut Pool, key: Key) {
        let parent = pool.durable.volumes().lineage().parent(key.volume());
        let at = parent.and_then(|parent| Some((parent, pool.durable.volumes().find(parent)?)));
        if let Some((parent, at)) = at
            && let Ok(Some(slot)) = pool.map_entry(at, Key::new(parent, key.lba())).map(Entry::slot)
        {
            self.shared.changes.push((slot, -1));
        }
    }

    /// Returns the writer of the map that is being merged.
    fn map_writer(&mut self, pool: &Pool) -> &mut Writer {
        let Checkpoint { writer, shared, .. } = self;
        writer.get_or_insert_with(|| {
            let volumes = pool.durable.volumes();
            let ancestors = volumes.ancestors(volumes[shared.volume_at].id);
            let mut writer = Writer::with_ancestors(volumes.map(shared.volume_at), ancestors);
            writer.leave_blank(pool.mutant(Mutant::BlankBelowFrom));
            writer
        })
    }

    /// Prefetches the leaves that are written next.
    fn load_maps_ahead(&self, pool: &mut Pool) {
        let per_leaf = pool.metadata.geometry().map_leaf_entries();
        let (volume, root) =
            (pool.durable.volumes()[self.shared.volume_at].id, pool.durable.volumes().map(self.shared.volume_at));
        let leaves = self.leaves[self.next_leaf..].iter();
        let leaves = leaves.map(|leaf| leaf.first).take_while(|first| first.volume() == volume);
        let most = pool.load_ahead(&self.load);
        pool.load_leaves_ahead(root, leaves.map(|first| first.lba() / per_leaf), most);
    }

    /// Merges the new mappings of one leaf, and its buffered ones if the leaf flushes.
    fn merge_leaf(&mut self, pool: &mut Pool) -> Result<(), Stop> {
        let per_leaf = pool.metadata.geometry().map_leaf_entries();
        let Leaf { first, flushes } = self.leaves[self.next_leaf];
        let page = self.map_writer(pool).leaf(&mut pool.metadata, first.lba() / per_leaf, true)?.expect("created");
        let end = first.0 + per_leaf;
        if flushes {
            let mut next = pool.durable.map_buffer().first_from(pool.durable.map_buffer().position(first));
            while let Some((place, key, entry)) = next.filter(|&(_, key, _)| key.0 < end) {
                let before = self.put_entry(pool, page, key, entry);
                self.release(pool, key, before);
                if pool.mutant(Mutant::ReleasedTwice) && key.0.is_multiple_of(7) {
                    self.release(pool, key, before);
                }
                self.note_unchanged(pool, before, entry);
                next = pool.durable.map_buffer().first_from(place + 1);
            }
        }
        while let Some(&(key, entry)) = self.points.get(self.point_at).filter(|(key, _)| key.0 < end) {
            let buffered = pool
                .durable
                .map_buffer()
                .first_from(pool.durable.map_buffer().position(key))
                .filter(|&(_, found, _)| found == key);
            if let (false, Some((place, _, before))) = (flushes, buffered) {
                // The frozen delta overrides the removed mapping until it is gone.
                pool.durable.map_buffer_mut().remove(place);
                self.release(pool, key, before);
            }
            let before = self.put_entry(pool, page, key, entry);
            self.release(pool, key, before);
            if pool.mutant(Mutant::ReleasedInherited) && before.inherited_from().is_some() {
                self.release_inherited(pool, key);
            }
            self.note_unchanged(pool, before, entry);
            self.refer(pool, entry);
            self.point_at += 1;
        }
        self.next_leaf += 1;
        Ok(())
    }

    /// Merges a clear: entry by entry in leaves that it covers in part, whole subtrees elsewhere.
    fn merge_clear(&mut self, pool: &mut Pool, first: Key, stop: u64) -> Result<(), Stop> {
        let per_leaf = pool.metadata.geometry().map_leaf_entries();
        let base = first.0 - first.lba();
        let (lba, end) = (first.lba(), stop - base);
        let leaf = lba / per_leaf;
        let next = if !lba.is_multiple_of(per_leaf) || end - lba < per_leaf {
            let upto = end.min((leaf + 1) * per_leaf);
            let page = self.map_writer(pool).leaf(&mut pool.metadata, leaf, false)?;
            if let Some(page) = page {
                for key in first.0..base + upto {
                    let before = self.put_entry(pool, page, Key(key), Entry::UNMAPPED);
                    self.release(pool, Key(key), before);
                }
            }
            upto
        } else {
            let mut from = leaf;
            let mut cut_off = core::mem::take(&mut self.cut_off);
            let result = self.map_writer(pool).cut(&mut pool.metadata, &mut from, end / per_leaf, &mut cut_off);
            let lost = pool.mutant(Mutant::LostSubtree).then(|| cut_off.iter().position(|cut| cut.pointer.has_page()));
            if let Some(at) = lost.flatten() {
                cut_off.remove(at);
            }
            self.discard(pool, first.volume(), &cut_off);
            cut_off.clear();
            self.cut_off = cut_off;
            self.clears[self.clear_at].0 = base + from.min(end / per_leaf) * per_leaf;
            result?;
            end / per_leaf * per_leaf
        };
        self.clears[self.clear_at].0 = base + next;
        if next >= end {
            self.clear_at += 1;
        }
        Ok(())
    }

    /// Lists the subtrees of the merged volume that were cut off. Inherited blocks in them are to be counted, unless the volume is deleted: then nothing reads the
    /// count.
    fn discard(&self, pool: &mut Pool, volume: VolumeId, cut_off: &[CutOff]) {
        let merged = &pool.durable.volumes()[self.shared.volume_at];
        let counts = merged.deleted.is_none() && merged.family.parent.is_some();
        let fanout = pool.metadata.geometry().fanout();
        for &CutOff { pointer, level, index } in cut_off {
            let index = counts.then_some(index);
            pool.durable.discards_mut().cut(Discard { index, ..Discard::new(pointer, volume, level) }, fanout);
        }
    }

    /// Counts the blocks in one inherited leaf that was cut off.
    fn count_hidden(&mut self, pool: &mut Pool) -> Result<Progress, Stop> {
        let Some(&range) = pool.durable.discards().hidden().last() else { return Ok(Progress::Next) };
        let (blocks, next) = pool.hidden_in_leaf(range)?;
        let at = pool.durable.volumes().find(range.volume).ok_or(Stop::Contradiction)?;
        if !pool.mutant(Mutant::UncountedHidden) {
            pool.durable.volumes_mut().note_hidden(at, blocks);
        }
        pool.durable.discards_mut().note_counted(next);
        self.discard_budget.note_walked(0);
        Ok(Progress::More)
    }

    /// Walks one page of a discarded subtree, or counts the blocks of an inherited leaf.
    pub(super) fn walk_discards(&mut self, pool: &mut Pool) -> Result<Progress, Stop> {
        if self.discard_budget.is_spent() {
            return Ok(Progress::Next);
        }
        let Some(discard) = pool.durable.discards().next().filter(|_| !pool.durable.discards().has_much_hidden())
        else {
            return self.count_hidden(pool);
        };
        if discard.volume == NO_VOLUME {
            pool.walk_disk_index(discard)?;
            self.discard_budget.note_walked(0);
            pool.note_slots_freed();
            return Ok(Progress::More);
        }
        let Discard { pointer, volume, level, index, is_given } = discard;
        let key = PageKey { region: Region::Metadata, location: pointer.location };
        if !pool.metadata.is_valid(key) || !pool.metadata.allocator().is_used(pointer.location) {
            return Err(Stop::Contradiction);
        }
        let page = pool.metadata_page(pointer)?;
        pool.durable.discards_mut().pop();
        pool.note_slots_freed();
        let bytes = pool.metadata.pages().bytes(page);
        let before = self.shared.changes.len();
        if level > 0 {
            let fanout = pool.metadata.geometry().fanout();
            for (number, child) in (0..).zip(bytes.chunks_exact(16)) {
                let (pointer, level) = (Pointer::read(child, 0), level - 1);
                let index = index.map(|index| index.saturating_mul(fanout).saturating_add(number));
                pool.durable.discards_mut().cut(Discard { pointer, level, index, ..discard }, fanout);
            }
        } else {
            let inherited = bytes.chunks_exact(8).filter(|entry| Entry(u64_at(entry, 0)).inherited_from().is_some());
            let hidden = if index.is_some() { inherited.count() as u64 } else { 0 };
            let slots = bytes.chunks_exact(8).filter_map(|entry| Entry(u64_at(entry, 0)).slot());
            self.shared.changes.extend(slots.map(|slot| (slot, -1)));
            let freed = (self.shared.changes.len() - before) as u64;
            if !pool.durable.volumes_mut().note_unmapped(volume, freed) {
                pool.walked_orphans(freed);
            } else if let Some(at) = pool.durable.volumes().find(volume) {
                pool.durable.volumes_mut().note_hidden(at, hidden);
                pool.durable.volumes_mut().note_unhidden(at, if is_given { freed } else { 0 });
            }
        }
        self.discard_budget.note_walked((self.shared.changes.len() - before) as u64);
        pool.metadata.free_later(pointer.location);
        Ok(Progress::More)
    }

    /// Applies the changes of the counts of some slots, all of one leaf of the space map.
    pub(super) fn merge_counts(&mut self, pool: &mut Pool) -> Result<Progress, Stop> {
        let per_leaf = pool.metadata.geometry().space_leaf_slots();
        let leaf = |checkpoint: &Checkpoint| {
            checkpoint.shared.changes.get(checkpoint.shared.change_at).map(|change| change.0.0 / per_leaf)
        };
        let first = leaf(self);
        let mut progress = self.merge_count(pool)?;
        for _ in 1..COUNTS_AT_ONCE {
            if !matches!(progress, Progress::More) || pool.state.read_only() || leaf(self) != first {
                break;
            }
            progress = self.merge_count(pool)?;
        }
        Ok(progress)
    }

    /// Applies the changes of one slot's count.
    fn merge_count(&mut self, pool: &mut Pool) -> Result<Progress, Stop> {
        let Some(&(slot, _)) = self.shared.changes.get(self.shared.change_at) else {
            if let Some(root) = self.finish_writer(pool)? {
                pool.durable.set_root(TreeId::Counts, root);
            }
            if let Some(writer) = &mut self.space_writer {
                pool.durable.set_root(TreeId::SpaceMap, writer.finish(&mut pool.metadata)?);
                pool.stats.counters.pages_written.space_map += writer.written();
                self.space_writer = None;
            }
            return Ok(Progress::Next);
        };
        let same = self.shared.changes[self.shared.change_at..].iter().take_while(|change| change.0 == slot);
        let (mut many, mut net) = (0, 0i64);
        for &(_, change) in same {
            many += 1;
            net += i64::from(change);
        }
        if !pool.durable.space().contains(slot) {
            // A leaf that passed its checksum names a slot that does not exist.
            return Err(Stop::Contradiction);
        }
        let before = self.merging_state(pool, slot)?;
        let after = if net != 0 || before == SlotState::Held {
            let Some(after) = self.change_count(pool, slot, before, net)? else {
                return Err(Stop::Contradiction);
            };
            after
        } else {
            before
        };
        for change in &mut self.shared.changes[self.shared.change_at..self.shared.change_at + many] {
            change.1 = after as i32;
        }
        self.shared.change_at += many;
        Ok(Progress::More)
    }

    /// Returns the state of a slot that the merge has reached: from the leaf at work, or from the tree.
    fn merging_state(&self, pool: &mut Pool, slot: Slot) -> Result<SlotState, Stop> {
        let per_leaf = pool.metadata.geometry().space_leaf_slots();
        let leaf = slot.0 / per_leaf;
        let at_work = self.space_writer.as_ref().and_then(|writer| writer.at_work(leaf));
        let page = match at_work {
            Some(page) => page,
            None => {
                self.load_space_ahead(pool);
                let root = pool.durable.root(TreeId::SpaceMap);
                match lookup(&mut pool.metadata, Region::Metadata, root, leaf) {
                    Walk::Leaf(page) => page,
                    Walk::Absent(_) => return Ok(SlotState::Free),
                    Walk::Missing(missing) | Walk::From { missing, .. } => return Err(Stop::Missing(missing)),
                }
            }
        };
        Ok(SlotState::read(pool.metadata.pages().bytes(page), slot.0 % per_leaf))
    }

    /// Prefetches the leaves of the space map that the next changes need.
    fn load_space_ahead(&self, pool: &mut Pool) {
        let per_leaf = pool.metadata.geometry().space_leaf_slots();
        let leaves = by_leaf(&self.shared.changes[self.shared.change_at..], per_leaf, |&(slot, _)| slot);
        let most = pool.load_ahead(&self.load);
        pool.load_leaves_ahead(pool.durable.root(TreeId::SpaceMap), leaves.map(|(leaf, _)| leaf), most);
    }

    /// Changes a slot's count and its state. Returns the new state; `None` if the tables contradict each other.
    fn change_count(
        &mut self,
        pool: &mut Pool,
        slot: Slot,
        before: SlotState,
        net: i64,
    ) -> Result<Option<SlotState>, Stop> {
        let known = match before {
            SlotState::Free | SlotState::Held => Some(0),
            SlotState::Single => Some(1),
            SlotState::Shared => None,
        };
        let per_leaf = pool.metadata.geometry().space_leaf_slots();
        let root = pool.durable.root(TreeId::SpaceMap);
        let writer = self.space_writer.get_or_insert_with(|| Writer::new(Region::Metadata, root));
        let space_page = writer.leaf(&mut pool.metadata, slot.0 / per_leaf, true)?.expect("created");
        let mut new = known.map(|count| count + net);
        if new.is_none_or(|new| new > 1) {
            let per_leaf = pool.metadata.geometry().block() / 4;
            let root = pool.durable.root(TreeId::Counts);
            let writer = writer_of(self, Region::Metadata, root);
            let page = writer.leaf(&mut pool.metadata, slot.0 / per_leaf, true)?.expect("created");
            let bytes = pool.metadata.pages_mut().bytes_mut(page);
            let at = (slot.0 % per_leaf) as usize * 4;
            let before = known.unwrap_or_else(|| i64::from(u32_at(bytes, at)));
            // A count at the end of its 32 bits stays there: the slot is never freed, rather than too early.
            let most = i64::from(u32::MAX);
            let count = if before == most { most } else { (before + net).min(most) };
            put_u32(bytes, at, if count > 1 { count as u32 } else { 0 });
            new = Some(count);
        }
        let after = match new.unwrap_or(0) {
            // Records of the active delta refer to the slot, or did: the merge of that delta settles it.
            0 if pool.durable.delta().slots().contains_key(&slot) && !pool.mutant(Mutant::FreedWhileHeld) => {
                SlotState::Held
            }
            0 => SlotState::Free,
            1 => SlotState::Single,
            2.. => SlotState::Shared,
            _ => return Ok(None),
        };
        let new_here = pool.durable.frozen().slots().get(&slot).is_some_and(|recent| recent.fresh);
        if new_here != (before == SlotState::Free) || pool.durable.space_mut().merged(slot, before, after).is_none() {
            return Ok(None);
        }
        after.write(pool.metadata.pages_mut().bytes_mut(space_page), slot.0 % per_leaf);
        match after {
            // The slot is not free before the self is durable: an earlier superblock has the slot in its trees, and replay from there must not
            // find it new.
            SlotState::Free => {
                if pool.mutant(Mutant::FreedAtMerge) {
                    pool.durable.space_mut().defer_free(slot, 0);
                }
                self.freed.push(slot);
            }
            SlotState::Held => {
                self.held_by = pool.durable.journal().last();
                pool.durable.journal_mut().want_durable(self.held_by);
            }
            SlotState::Single | SlotState::Shared => {}
        }
        Ok(Some(after))
    }

    /// Writes the summaries of the new slots of one leaf.
    pub(super) fn merge_summaries(&mut self, pool: &mut Pool) -> Result<Progress, Stop> {
        let per_leaf = pool.metadata.geometry().summary_leaf_slots();
        let Some(&first) = self.fresh.get(self.fresh_at) else {
            if let Some(root) = self.finish_writer(pool)? {
                pool.durable.set_root(TreeId::Summaries, root);
            }
            return Ok(Progress::Next);
        };
        let leaf = first.0 / per_leaf;
        let root = pool.durable.root(TreeId::Summaries);
        let count = self.fresh[self.fresh_at..].partition_point(|slot| slot.0 / per_leaf == leaf);
        // A leaf whose slots are all new is not read first.
        let page = if count as u64 == per_leaf {
            writer_of(self, Region::Metadata, root).blank(&mut pool.metadata, leaf)?
        } else {
            let page = writer_of(self, Region::Metadata, root).leaf(&mut pool.metadata, leaf, true);
            if let Err(Stop::Missing(_)) = page {
                // The next leaves that are needed are loaded with it.
                let leaves = by_leaf(&self.fresh[self.fresh_at..], per_leaf, |&slot| slot);
                let in_part = leaves.take(LOOKED_AHEAD).filter(|&(_, count)| (count as u64) < per_leaf);
                let most = pool.load_ahead(&self.load);
                pool.load_leaves_ahead(root, in_part.map(|(leaf, _)| leaf), most);
            }
            page?.expect("created")
        };
        let bytes = pool.metadata.pages_mut().bytes_mut(page);
        let volumes = pool.durable.volumes();
        for &slot in &self.fresh[self.fresh_at..self.fresh_at + count] {
            let recent = pool.durable.frozen().slots()[&slot];
            let at = (slot.0 % per_leaf * SUMMARY_BYTES) as usize;
            bytes[at..at + 16].copy_from_slice(&recent.digest.0);
            // A snapshot may be gone before the block is.
            let line = volumes.line(recent.owner.volume());
            put_u64(bytes, at + 16, Key::new(line, recent.owner.lba()).0);
        }
        self.fresh_at += count;
        Ok(Progress::More)
    }

    /// Writes one changed leaf of a table that is held in memory.
    pub(super) fn write_table(&mut self, pool: &mut Pool, table: TreeId) -> Result<Progress, Stop> {
        let region = if table == TreeId::MetaMap { Region::MetaMap } else { Region::Metadata };
        let root = pool.durable.root(table);
        let Some(leaf) = next_table_leaf(pool, table, self.leaf_at) else {
            if let Some(root) = self.finish_writer(pool)? {
                pool.durable.set_root(table, root);
            }
            // Only now: leaves that a shorter list no longer fills have been emptied.
            match table {
                TreeId::Discards => {
                    let leaves = discard_table_leaves(pool);
                    pool.durable.discards_mut().set_leaves(leaves);
                }
                TreeId::Volumes => {
                    let done = pool.checkpoint.done();
                    pool.durable.volumes_mut().end_write(done);
                }
                _ => {}
            }
            self.leaf_at = 0;
            return Ok(Progress::Next);
        };
        let writer = writer_of(self, region, root);
        if let Some(page) = writer.leaf(&mut pool.metadata, leaf, true)? {
            fill_table_leaf(pool, table, leaf, page);
        }
        self.leaf_at = leaf + 1;
        Ok(Progress::More)
    }
}

fn next_table_leaf(pool: &Pool, table: TreeId, from: u64) -> Option<u64> {
    match table {
        TreeId::Containers => pool.durable.space().next_dirty_container_leaf(from),
        TreeId::MetaMap => pool.metadata.allocator().next_dirty_leaf(from),
        TreeId::Volumes if from > 0 && pool.mutant(Mutant::CleanLeaf) => None,
        TreeId::Volumes => pool.durable.volumes().next_dirty_leaf(from, pool.checkpoint.done()),
        TreeId::Discards => (from < discard_table_leaves(pool).max(pool.durable.discards().leaves())).then_some(from),
        TreeId::SpaceMap | TreeId::Counts | TreeId::Summaries | TreeId::DiskIndex | TreeId::MapBuffer => {
            unreachable!("merged, not written from memory")
        }
    }
}

/// Returns the number of leaves that the discard list fills.
pub(super) fn discard_table_leaves(pool: &Pool) -> u64 {
    pool.durable.discards().entries().div_ceil(pool.metadata.geometry().block_size as usize / DISCARD_BYTES) as u64
}

fn fill_table_leaf(pool: &mut Pool, table: TreeId, leaf: u64, page: PageId) {
    let metadata = &mut pool.metadata;
    match table {
        TreeId::Containers => pool.durable.space_mut().write_container_leaf(leaf, metadata.pages_mut().bytes_mut(page)),
        TreeId::MetaMap => metadata.write_allocator_leaf(leaf, page),
        TreeId::Volumes => {
            let bytes = metadata.pages_mut().bytes_mut(page);
            pool.durable.volumes().write_leaf(leaf, pool.checkpoint.done(), bytes);
        }
        TreeId::Discards => {
            let bytes = metadata.pages_mut().bytes_mut(page);
            bytes.fill(0);
            let per_leaf = bytes.len() / DISCARD_BYTES;
            for (i, out) in bytes.chunks_exact_mut(DISCARD_BYTES).enumerate() {
                pool.durable.discards().write(leaf as usize * per_leaf + i, out);
            }
        }
        TreeId::SpaceMap | TreeId::Counts | TreeId::Summaries | TreeId::DiskIndex | TreeId::MapBuffer => {
            unreachable!("merged, not written from memory")
        }
    }
}

/// Returns the writer of a tree: the one at work, or a new one.
fn writer_of(checkpoint: &mut Checkpoint, region: Region, root: Root) -> &mut Writer {
    checkpoint.writer.get_or_insert_with(|| Writer::new(region, root))
}
