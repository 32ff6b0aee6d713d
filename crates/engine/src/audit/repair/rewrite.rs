//! Rewrite stage of a repair: maps with the delta merged and losses marked, then every table from the maps. A page is written only where it differs
//! from the old one, and never to a block that the superblock in force references.

use alloc::format;
use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use super::{JournalEnd, Planner};
use crate::api::VolumeId;
use crate::audit::hidden::{HiddenBlocks, HiddenCount};
use crate::block_map::map_buffer;
use crate::format::bytes::{checksum, put_u16, put_u32, put_u64, u16_at, u64_at};
use crate::format::entry::{Entry, Key, Slot};
use crate::format::layout::CONTAINER_BYTES;
use crate::format::layout::SUMMARY_BYTES;
use crate::format::layout::height_for;
use crate::format::superblock::{Pointer, Root, Superblock, TreeId};
use crate::metadata::page_cache::{PageKey, Region};
use crate::metadata::tree::fill_lost;
use crate::pool::tables::table_name;
use crate::space::SlotState;

/// State of a leaf before the repair.
pub(super) enum Old {
    /// The leaf did not exist.
    Absent,
    /// The leaf cannot be used.
    Bad,
    Page(Vec<u8>),
}

/// Function that returns the new content of a table's leaf; `None` if it stays unchanged.
type RewrittenLeaf<'w, P> = dyn FnMut(&P, u64, &Old) -> Option<Vec<u8>> + 'w;
/// Test if a table may change in a range of its leaves: the first, and one past the last.
type MayChange<'w, P> = dyn Fn(&P, u64, u64) -> bool + 'w;

impl Planner<'_, '_> {
    pub(super) fn rewrite(&mut self, end: JournalEnd) {
        self.recent.fill(None);
        for at in self.order.clone() {
            let root = self.rewrite_volume(at);
            self.engine.pool.durable.volumes_mut().set_map(at, root);
        }
        self.rewrite_map_buffer();
        self.list_losses();
        self.rewrite_volumes();
        self.rewrite_discards();
        self.rewrite_summaries();
        self.rewrite_space();
        self.rewrite_disk_index();
        self.rewrite_meta_map();
        let copies = self.plan.copies.len();
        if copies > 0 {
            self.plan.actions.push(format!("{copies} blocks are copied from the journal to their places"));
        }
        let epoch = self.engine.pool.metadata.epoch();
        self.plan.next = Superblock {
            epoch,
            included: end.sequence,
            included_checksum: end.checksum,
            journal_position: end.position,
            sealed: end.sequence,
            proven: end.sequence,
            seal_epoch: epoch,
            clean: true,
            data_used: self.counts.iter().filter(|&&count| count > 0).count() as u64,
            disk_index: self.engine.pool.hints.disk_index.record(),
            // Generations may have changed.
            flash: 0,
            next_volume: self.next_volume(),
            roots: *self.engine.pool.durable.roots(),
            ..*self.engine.pool.durable.superblock()
        };
    }

    // ---- pages ----

    /// Writes a page to a free block, or for the meta map to the location that is not in force. Returns its pointer. A page of zeroes becomes no
    /// page.
    fn put(&mut self, region: Region, level: u8, index: u64, before: Pointer, page: Vec<u8>) -> Pointer {
        self.give_up(region, before);
        if page.iter().all(|&byte| byte == 0) {
            return Pointer::NONE;
        }
        let location = match region {
            Region::Metadata => self.allocate(),
            Region::MetaMap => {
                let first = 2 * self.geometry().meta_map_page(level.into(), index) as u32 + 1;
                if before.location == first { first + 1 } else { first }
            }
        };
        let metadata = &self.engine.pool.metadata;
        let sum = checksum(metadata.page_seed(), &page);
        let offset = metadata.offset(PageKey { region, location });
        let birth = metadata.epoch() as u32;
        if region == Region::Metadata {
            self.written.insert(location, self.plan.pages.len());
        }
        self.plan.pages.push((offset, page));
        Pointer { location, birth, checksum: sum }
    }

    /// Frees the block of a page that is no longer part of any tree.
    fn give_up(&mut self, region: Region, before: Pointer) {
        let at = (before.location as usize).wrapping_sub(1);
        let good = !self.bad.contains(&PageKey { region, location: before.location });
        if region == Region::Metadata && at < self.used.len() && good {
            self.used[at] = false;
        }
    }

    /// Allocates an unreferenced block. Blocks that are in use by the map of metadata blocks come last: the page that references them cannot be read
    /// now, and perhaps can later.
    fn allocate(&mut self) -> u32 {
        let blocks = self.guarded.len();
        while self.next_free < 2 * blocks {
            let at = self.next_free % blocks;
            if !self.guarded[at] && (self.next_free >= blocks || !self.marked[at]) {
                (self.guarded[at], self.used[at]) = (true, true);
                return at as u32 + 1;
            }
            self.next_free += 1;
        }
        self.lacking += 1;
        1
    }

    // ---- maps ----

    /// Moves new mappings that have no leaf into the map buffer.
    pub(super) fn keep_in_log(&mut self) {
        let per_leaf = self.geometry().map_leaf_entries();
        let (mut stay, mut kept) = (Vec::new(), Vec::new());
        let mut last = None;
        for (key, entry) in core::mem::take(&mut self.points) {
            let known = self.engine.pool.durable.volumes().find(key.volume());
            let leaf = (key.volume(), key.lba() / per_leaf);
            let absent = match last {
                Some((known, absent)) if known == leaf => absent,
                _ => known.is_some_and(|at| self.is_absent(self.engine.pool.durable.volumes().map(at), leaf.1)),
            };
            last = Some((leaf, absent));
            if absent && !entry.is_lost() { kept.push((key, entry)) } else { stay.push((key, entry)) }
        }
        if !kept.is_empty() {
            self.plan.actions.push(format!(
                "the newest mappings of {} blocks go to the map buffer: there are too few free blocks for their pages of the map",
                kept.len()
            ));
            self.log.is_sound = false;
            self.log.mappings.extend(kept);
            self.log.mappings.sort_unstable_by_key(|&(key, _)| key);
        }
        self.points = stay;
    }

    /// Returns true if a map has no page of its own for a leaf.
    fn is_absent(&mut self, root: Root, leaf: u64) -> bool {
        let bits = self.geometry().fanout().trailing_zeros();
        if leaf.checked_shr(bits * u32::from(root.height)).unwrap_or(0) != 0 {
            return true;
        }
        let (mut pointer, mut level) = (root.pointer, root.height);
        while pointer.has_page() && level > 0 {
            let Some(page) = self.known_page(Region::Metadata, pointer) else { return false };
            level -= 1;
            let at = leaf >> (bits * u32::from(level)) & (self.geometry().fanout() - 1);
            pointer = Pointer::read(&page, at as usize * 16);
        }
        !pointer.has_page() && !pointer.is_lost()
    }

    fn rewrite_volume(&mut self, at: usize) -> Root {
        let geometry = self.geometry();
        let root = self.engine.pool.durable.volumes().map(at);
        let written = self.plan.pages.len();
        // Journaled mappings beyond the reach of the root make the tree higher.
        let last = self.points_in(at, 0, self.blocks[at]).last().map_or(0, |(key, _)| key.lba());
        let height = height_for(last / geometry.map_leaf_entries() + 1, geometry.fanout());
        let mut subtree = |planner: &mut Self, pointer: Pointer, level: u8, index: u64| {
            planner.rewrite_map(at, pointer, level, index, false)
        };
        let root = self.rewrite_from(Region::Metadata, root, height.max(root.height), &mut subtree);
        let count = self.plan.pages.len() - written;
        if count > 0 {
            let what = self.what(at);
            self.plan.actions.push(format!("{what}: {count} pages of the map are written"));
        }
        root
    }

    /// Rewrites a tree to its correct state, from the root of one that may be as high as `height`. It becomes as high only where necessary.
    fn rewrite_from(
        &mut self,
        region: Region,
        root: Root,
        height: u8,
        subtree: &mut dyn FnMut(&mut Self, Pointer, u8, u64) -> Pointer,
    ) -> Root {
        if height <= root.height {
            return Root { pointer: subtree(self, root.pointer, root.height, 0), ..root };
        }
        let below = self.rewrite_from(region, root, height - 1, subtree);
        let geometry = self.geometry();
        let mut page = vec![0; geometry.block_size as usize];
        for child in 1..geometry.fanout() {
            subtree(self, Pointer::NONE, height - 1, child).write(&mut page, child as usize * 16);
        }
        if page.iter().all(|&byte| byte == 0) {
            return below;
        }
        // Pages with one child connect a low tree to a high one.
        let mut below = below;
        while below.height + 1 < height && !below.pointer.is_none() {
            let mut page = vec![0; geometry.block_size as usize];
            below.pointer.write(&mut page, 0);
            below.height += 1;
            below.pointer = self.put(region, below.height, 0, Pointer::NONE, page);
        }
        below.pointer.write(&mut page, 0);
        Root { pointer: self.put(region, height, 0, Pointer::NONE, page), height }
    }

    /// Rewrites a subtree of a map to its correct state. `in_lost`: it was below a page that cannot be used.
    fn rewrite_map(&mut self, at: usize, pointer: Pointer, level: u8, index: u64, in_lost: bool) -> Pointer {
        let geometry = self.geometry();
        let (first, end) = self.span(level, index);
        if self.is_empty(at, first, end) {
            return Pointer::NONE;
        }
        let has_news = self.has_news(at, first, end);
        if !has_news && !in_lost && !self.is_touched(at, first, end) && !pointer.is_lost() {
            return pointer;
        }
        let good = match pointer.has_page() {
            true => self.known_page(Region::Metadata, pointer),
            false if pointer.is_none() || pointer.is_lost() => None,
            // A FROM that stays; otherwise its page, as the map has it from its ancestor.
            false if !has_news && end <= self.blocks[at] && self.is_inherited(at, pointer, level, index) => {
                return pointer;
            }
            false => self.inherited_page(at, pointer, level, index),
        };
        let is_bad = good.is_none() && !pointer.is_none() && !pointer.is_lost();
        let new_loss = is_bad || in_lost && pointer.is_lost();
        let old = match &good {
            Some(page) => page.clone(),
            None if pointer.is_none() => vec![0; geometry.block_size as usize],
            None => {
                if !has_news && end <= self.blocks[at] {
                    if new_loss {
                        self.lose(at, first, end);
                    }
                    return Pointer::LOST;
                }
                let mut page = vec![0; geometry.block_size as usize];
                fill_lost(&mut page, level);
                page
            }
        };
        let mut page = old;
        if level == 0 {
            self.rewrite_leaf(at, first, new_loss, &mut page);
        } else {
            for child in 0..geometry.fanout() {
                let before = Pointer::read(&page, child as usize * 16);
                let index = index.saturating_mul(geometry.fanout()) + child;
                let after = self.rewrite_map(at, before, level - 1, index, new_loss);
                after.write(&mut page, child as usize * 16);
            }
        }
        if good.as_ref() == Some(&page) {
            return pointer;
        }
        self.put(Region::Metadata, level, index, pointer, page)
    }

    fn is_touched(&self, at: usize, first: u64, end: u64) -> bool {
        let per_leaf = self.geometry().map_leaf_entries();
        let (first, end) = (first / per_leaf, end.div_ceil(per_leaf));
        let touched = &self.touched[at];
        let before = touched.partition_point(|&(from, _)| from < end);
        touched[..before].last().is_some_and(|&(_, its_end)| its_end > first)
    }

    fn rewrite_leaf(&mut self, at: usize, first: u64, new_loss: bool, page: &mut [u8]) {
        let id = self.volume(at).id;
        for i in 0..page.len() / 8 {
            let (lba, before) = (first + i as u64, Entry(u64_at(page, i * 8)));
            let key = Key::new(id, lba);
            let news = self.engine.pool.durable.delta().get(key);
            let after = if lba >= self.blocks[at] {
                Entry::UNMAPPED
            } else if news.is_some() {
                // The points of this planner include later losses.
                let point = self.points.binary_search_by_key(&key, |&(key, _)| key);
                let entry = point.map_or(Entry::UNMAPPED, |point| self.points[point].1);
                if entry.is_lost() {
                    self.lose(at, lba, lba + 1);
                }
                entry
            } else if before.is_lost() {
                if new_loss {
                    self.lose(at, lba, lba + 1);
                }
                before
            } else if self.is_block_inherited(at, before, lba) {
                before
            } else if self.is_disproved(before) {
                let slot = before.slot().expect("only slots are disproved");
                self.counts[slot.0 as usize] -= 1;
                self.mapped[at] -= 1;
                self.lose(at, lba, lba + 1);
                Entry::LOST
            } else if !before.is_valid() || before.slot().is_some_and(|slot| slot.0 >= self.geometry().slots()) {
                self.lose(at, lba, lba + 1);
                Entry::LOST
            } else {
                before
            };
            put_u64(page, i * 8, after.0);
        }
    }

    /// Adds the blocks of a range to the lost ones, except those that are buffered.
    pub(super) fn lose(&mut self, at: usize, first: u64, end: u64) {
        let (mut first, end) = (first, end.min(self.blocks[at]));
        let base = Key::new(self.volume(at).id, 0).0;
        while first < end {
            let next = self.log.mappings.partition_point(|(key, _)| key.0 < base + first);
            let upto = self.log.mappings.get(next).map_or(end, |(key, _)| end.min(key.0 - base));
            if first < upto {
                self.losses[at].push((first, upto));
            }
            first = upto + 1;
        }
    }

    // ---- tables ----

    /// Rewrites a table to its correct state.
    fn rewrite_table(&mut self, tree: TreeId, changes: &MayChange<'_, Self>, wanted: &mut RewrittenLeaf<'_, Self>) {
        let leaves = self.engine.pool.table_leaves(tree);
        let mut root = self.engine.pool.durable.root(tree);
        if root.pointer.is_none() {
            root.height = height_for(leaves, self.geometry().fanout());
        }
        let written = self.plan.pages.len();
        let height = height_for(leaves, self.geometry().fanout());
        let mut subtree = |planner: &mut Self, pointer: Pointer, level: u8, index: u64| {
            planner.rewrite_subtree(tree, pointer, level, index, changes, wanted)
        };
        let root = self.rewrite_from(region_of(tree), root, height, &mut subtree);
        self.engine.pool.durable.set_root(tree, root);
        let count = self.plan.pages.len() - written;
        if count > 0 {
            self.plan.actions.push(format!("{}: {count} pages are written", table_name(tree)));
        }
    }

    fn rewrite_subtree(
        &mut self,
        tree: TreeId,
        pointer: Pointer,
        level: u8,
        index: u64,
        changes: &MayChange<'_, Self>,
        wanted: &mut RewrittenLeaf<'_, Self>,
    ) -> Pointer {
        let geometry = self.geometry();
        let leaves = self.engine.pool.table_leaves(tree);
        let span = geometry.fanout().saturating_pow(level.into());
        let first = index.saturating_mul(span);
        if first >= leaves {
            return Pointer::NONE;
        }
        if !changes(self, first, first.saturating_add(span).min(leaves)) {
            return pointer;
        }
        let region = region_of(tree);
        let old =
            if pointer.is_none() { Old::Absent } else { self.known_page(region, pointer).map_or(Old::Bad, Old::Page) };
        let mut page = match &old {
            Old::Page(page) => page.clone(),
            Old::Absent | Old::Bad => vec![0; geometry.block_size as usize],
        };
        if level == 0 {
            if let Some(wanted) = wanted(self, index, &old) {
                page = wanted;
            }
        } else {
            for child in 0..geometry.fanout() {
                let before = Pointer::read(&page, child as usize * 16);
                let index = index.saturating_mul(geometry.fanout()) + child;
                let after = self.rewrite_subtree(tree, before, level - 1, index, changes, wanted);
                after.write(&mut page, child as usize * 16);
            }
        }
        match &old {
            Old::Page(old) if *old == page => pointer,
            _ => self.put(region, level, index, pointer, page),
        }
    }

    /// Returns the number from which numbers of volumes are free.
    fn next_volume(&self) -> u16 {
        let next = self.engine.pool.durable.superblock().next_volume;
        self.engine.pool.durable.volumes().last().map_or(1, |last| last.id.0.saturating_add(1)).max(next)
    }

    fn rewrite_volumes(&mut self) {
        let volumes = self.engine.pool.durable.volumes_mut();
        let mut deleted = Vec::new();
        for &at in self.order.iter().rev() {
            if volumes[at].deleted.is_none() {
                volumes.recount(at, self.mapped[at]);
            } else {
                volumes.set_map(at, Root::default());
                deleted.push(volumes[at].id);
            }
        }
        volumes.recount_handed();
        // Children first.
        for id in deleted {
            volumes.remove(volumes.find(id).expect("it is in the table"));
        }
        self.recount_hidden();
        let block = self.geometry().block() as usize;
        self.rewrite_table(TreeId::Volumes, &|_, _, _| true, &mut |planner, number, _| {
            let mut page = vec![0; block];
            planner.engine.pool.durable.volumes().write_leaf(number, 0, &mut page);
            Some(page)
        });
    }

    /// Rewrites the map buffer if any of its mappings has been overwritten since, or lost.
    fn rewrite_map_buffer(&mut self) {
        let mut mappings = core::mem::take(&mut self.log.mappings);
        for (key, entry) in &mut mappings {
            if !self.is_disproved(*entry) {
                continue;
            }
            let known = self.engine.pool.durable.volumes().find(key.volume());
            if let (Some(at), Some(slot)) = (known, entry.slot()) {
                self.counts[slot.0 as usize] -= 1;
                self.mapped[at] -= 1;
                self.lose(at, key.lba(), key.lba() + 1);
            }
            *entry = Entry::LOST;
            self.log.is_sound = false;
        }
        let pages = core::mem::take(&mut self.log.pages);
        if self.log.is_sound && !pages.iter().any(|&location| self.used[location as usize - 1]) {
            pages.iter().for_each(|&location| self.used[location as usize - 1] = true);
            self.log.mappings = mappings;
            return;
        }
        self.engine.pool.durable.set_root(TreeId::MapBuffer, Root::default());
        let block = self.geometry().block() as usize;
        let per_leaf = block / map_buffer::RECORD_BYTES;
        let leaves = mappings.len().div_ceil(per_leaf) as u64;
        self.rewrite_table(TreeId::MapBuffer, &|_, first, _| first < leaves, &mut |_, leaf, _| {
            let mut page = vec![0; block];
            let here = mappings.iter().skip(leaf as usize * per_leaf);
            for (bytes, &(key, entry)) in page.chunks_exact_mut(map_buffer::RECORD_BYTES).zip(here) {
                map_buffer::write_record(bytes, key, entry);
            }
            Some(page)
        });
        self.log.mappings = mappings;
    }

    /// Counts the blocks that each map hides of its parent. Where a page cannot be read, the old count stays.
    fn recount_hidden(&mut self) {
        let (fanout, leaf_entries) = (self.geometry().fanout(), self.geometry().map_leaf_entries());
        let maps: Vec<VolumeId> = self.engine.pool.durable.volumes().iter().map(|volume| volume.id).collect();
        let volumes = core::mem::take(self.engine.pool.durable.volumes_mut());
        // A page that two trees named at first is bad in the survey. One of them has it still.
        let mut read = |pointer: Pointer, _: u8| match self.written.get(&pointer.location) {
            Some(&at) => Some(Rc::from(self.plan.pages[at].1.as_slice())),
            None => self.read_page(Region::Metadata, pointer).ok().map(Rc::from),
        };
        let mut count = HiddenCount { volumes: &volumes, fanout, leaf_entries, read: &mut read };
        let counted: Vec<Option<HiddenBlocks>> = maps.into_iter().map(|map| count.of(map)).collect();
        *self.engine.pool.durable.volumes_mut() = volumes;
        for (at, found) in counted.into_iter().enumerate() {
            if let Some(found) = found {
                self.engine.pool.durable.volumes_mut().recount_hidden(at, found.mapped);
            }
        }
    }

    /// Empties the list of discards: the subtrees that were cut off are free.
    fn rewrite_discards(&mut self) {
        let root = self.engine.pool.durable.root(TreeId::Discards);
        if !root.pointer.is_none() {
            self.engine.pool.durable.set_root(TreeId::Discards, Root { pointer: Pointer::NONE, ..root });
            self.plan.actions.push(String::from("the discard list is emptied: what discards cut off is free at once"));
        }
    }

    /// Keeps the index on disk only if nothing that it covers has changed: otherwise it is built anew while the pool is served.
    fn rewrite_disk_index(&mut self) {
        let is_sound = self.plan.pages.is_empty() && self.plan.problems.is_empty() && self.plan.copies.is_empty();
        let pages = self.index_pages.take().filter(|_| is_sound).unwrap_or_default();
        let shared = pages.iter().any(|&location| self.used[location as usize - 1]);
        let root = self.engine.pool.durable.root(TreeId::DiskIndex);
        if !pages.is_empty() && !shared {
            pages.iter().for_each(|&location| self.used[location as usize - 1] = true);
        } else if !root.pointer.is_none() {
            self.engine.pool.durable.set_root(TreeId::DiskIndex, Root::default());
            self.engine.pool.hints.disk_index.drop_record();
            self.plan
                .actions
                .push(String::from("the index on disk is dropped: it is built anew while the pool is served"));
        }
    }

    fn rewrite_summaries(&mut self) {
        let geometry = self.geometry();
        let per_leaf = geometry.summary_leaf_slots();
        // Only slots in use have a summary.
        let counts = &self.counts;
        self.summaries.retain(|slot, _| counts[slot.0 as usize] > 0);
        let changes = |planner: &Self, first: u64, end: u64| {
            let slots = Slot(first * per_leaf)..Slot(end.saturating_mul(per_leaf));
            planner.summaries.range(slots).next().is_some()
                || planner.lost_summaries.iter().any(|&(from, to)| from < end && to > first)
        };
        self.rewrite_table(TreeId::Summaries, &changes, &mut |planner, leaf, old| {
            let mut page = match old {
                Old::Page(page) => page.clone(),
                Old::Absent | Old::Bad => vec![0; geometry.block_size as usize],
            };
            let slots = Slot(leaf * per_leaf)..Slot((leaf + 1) * per_leaf);
            for (slot, (digest, owner)) in planner.summaries.range(slots) {
                let at = (slot.0 % per_leaf * SUMMARY_BYTES) as usize;
                // The owner in a correct summary is as good as this one.
                if page[at..at + 16] != digest.0 {
                    page[at..at + 16].copy_from_slice(&digest.0);
                    put_u64(&mut page, at + 16, owner.0);
                }
            }
            Some(page)
        });
    }

    /// Rewrites space map, counts and containers from the references of the maps.
    fn rewrite_space(&mut self) {
        let geometry = self.geometry();
        let block = geometry.block_size as usize;
        let always = |_: &Self, _: u64, _: u64| true;
        let per_leaf = geometry.space_leaf_slots();
        self.rewrite_table(TreeId::SpaceMap, &always, &mut |planner, leaf, _| {
            let mut page = vec![0; block];
            for (at, &count) in planner.counts_of(leaf, per_leaf).iter().enumerate() {
                let state = match count {
                    0 => SlotState::Free,
                    1 => SlotState::Single,
                    _ => SlotState::Shared,
                };
                state.write(&mut page, at as u64);
            }
            Some(page)
        });
        let per_leaf = geometry.block() / 4;
        self.rewrite_table(TreeId::Counts, &always, &mut |planner, leaf, _| {
            let mut page = vec![0; block];
            for (at, &count) in planner.counts_of(leaf, per_leaf).iter().enumerate() {
                put_u32(&mut page, at * 4, if count > 1 { count } else { 0 });
            }
            Some(page)
        });
        let (entries, slots) = (geometry.block() / CONTAINER_BYTES, u64::from(geometry.slots_per_container));
        self.rewrite_table(TreeId::Containers, &always, &mut |planner, leaf, old| {
            let live = |container: u64| planner.counts_of(container, slots).iter().filter(|&&count| count > 0).count();
            let containers = leaf * entries..((leaf + 1) * entries).min(geometry.containers.into());
            if matches!(old, Old::Absent) && containers.clone().all(|container| live(container) == 0) {
                return None;
            }
            let mut page = vec![0; block];
            for (at, container) in containers.enumerate() {
                let at = at * CONTAINER_BYTES as usize;
                let generation = match old {
                    Old::Page(old) => u16_at(old, at),
                    Old::Absent | Old::Bad => 1,
                };
                put_u16(&mut page, at, generation);
                put_u16(&mut page, at + 2, live(container) as u16);
            }
            Some(page)
        });
    }

    /// Returns the counts of the slots of a leaf, or of a container.
    fn counts_of(&self, number: u64, each: u64) -> &[u32] {
        let first = ((number * each) as usize).min(self.counts.len());
        &self.counts[first..(first + each as usize).min(self.counts.len())]
    }

    fn rewrite_meta_map(&mut self) {
        let geometry = self.geometry();
        let per_leaf = geometry.meta_map_leaf_bits() as usize;
        self.rewrite_table(TreeId::MetaMap, &|_, _, _| true, &mut |planner, leaf, _| {
            let mut page = vec![0; geometry.block_size as usize];
            let first = leaf as usize * per_leaf;
            for (at, &used) in planner.used[first..].iter().take(per_leaf).enumerate() {
                page[at / 8] |= u8::from(used) << (at % 8);
            }
            Some(page)
        });
    }
}

fn region_of(tree: TreeId) -> Region {
    if tree == TreeId::MetaMap { Region::MetaMap } else { Region::Metadata }
}
