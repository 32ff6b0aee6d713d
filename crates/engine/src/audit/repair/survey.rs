//! Survey of a repair: visits every page once, counts references, and notes damaged pages. Then reads the blocks of doubtful slots to prove them.

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use super::{KNOWN, Planner, Suspect};
use crate::api::{Digest, VolumeId};
use crate::audit::inherited::span;
use crate::block_map::discards::DISCARD_BYTES;
use crate::block_map::map_buffer;
use crate::format::bytes::u64_at;
use crate::format::entry::{Entry, Key, Slot, check_bits};
use crate::format::layout::SUMMARY_BYTES;
use crate::format::superblock::{Pointer, TreeId};
use crate::format::volume::{self, Family, NAME_BYTES, Volume};
use crate::metadata::page_cache::{PageKey, Region};
use crate::pool::tables::table_name;

impl Planner<'_, '_> {
    // ---- pages ----

    /// Reads a page that its parent proves, or returns the reason why it cannot be used.
    pub(super) fn read_page(&mut self, region: Region, pointer: Pointer) -> Result<Vec<u8>, String> {
        let metadata = &self.engine.pool.metadata;
        let key = PageKey { region, location: pointer.location };
        if !metadata.is_valid(key) {
            return Err(format!("a pointer names block {} of metadata, which does not exist", key.location));
        }
        let offset = metadata.offset(key);
        let Some(page) = (self.medium.read)(offset, metadata.geometry().block_size) else {
            return Err(format!("the page at byte {offset} cannot be read"));
        };
        if !metadata.is_intact(pointer, &page) {
            return Err(format!("the page at byte {offset} fails its checksum"));
        }
        Ok(page)
    }

    /// Reads a page again that the survey has found good.
    pub(super) fn known_page(&mut self, region: Region, pointer: Pointer) -> Option<Vec<u8>> {
        if self.bad.contains(&PageKey { region, location: pointer.location }) {
            return None;
        }
        self.read_page(region, pointer).ok()
    }

    /// Reads a page for the first time. From then on it is not overwritten; if it stays in use, it is marked as used.
    fn visit(&mut self, region: Region, pointer: Pointer, stays: bool) -> Result<Vec<u8>, String> {
        let result = self.read_page(region, pointer);
        let at = (pointer.location as usize).wrapping_sub(1);
        if region == Region::Metadata && at < self.guarded.len() {
            self.guarded[at] = true;
            if result.is_ok() && stays && core::mem::replace(&mut self.used[at], true) {
                self.bad.insert(PageKey { region, location: pointer.location });
                return Err(format!("metadata block {at} has two parents"));
            }
        }
        if result.is_err() {
            self.bad.insert(PageKey { region, location: pointer.location });
        }
        result
    }

    /// Guards a subtree that is given up: the old superblock references it until the new one is written.
    fn guard(&mut self, pointer: Pointer, level: u8) {
        let at = (pointer.location as usize).wrapping_sub(1);
        // A visited page is guarded with its whole subtree. (Many pages may point to it, level by level.)
        if !pointer.has_page() || self.guarded.get(at) == Some(&true) {
            return;
        }
        let Ok(page) = self.visit(Region::Metadata, pointer, false) else { return };
        if level > 0 {
            for at in 0..page.len() / 16 {
                self.guard(Pointer::read(&page, at * 16), level - 1);
            }
        }
    }

    /// Visits the leaves of a table.
    fn visit_table(&mut self, tree: TreeId, visit: &mut dyn FnMut(&mut Self, u64, &[u8])) {
        let root = self.engine.pool.durable.root(tree);
        let leaves = self.engine.pool.table_leaves(tree);
        self.visit_subtree(tree, leaves, root.pointer, root.height, 0, visit);
    }

    fn visit_subtree(
        &mut self,
        tree: TreeId,
        leaves: u64,
        pointer: Pointer,
        level: u8,
        index: u64,
        visit: &mut dyn FnMut(&mut Self, u64, &[u8]),
    ) {
        let fanout = self.geometry().fanout();
        let span = fanout.saturating_pow(level.into());
        let first = index.saturating_mul(span);
        if pointer.is_none() || first >= leaves {
            return;
        }
        let region = if tree == TreeId::MetaMap { Region::MetaMap } else { Region::Metadata };
        match self.visit(region, pointer, tree != TreeId::Discards) {
            Err(why) => {
                let end = first.saturating_add(span).min(leaves);
                if tree == TreeId::Summaries {
                    self.lost_summaries.push((first, end));
                }
                self.problem(format!("{}: {why}", table_name(tree)));
                if tree == TreeId::Volumes {
                    let per_leaf = self.engine.pool.durable.volumes().form().per_leaf(self.geometry().block());
                    self.problem(format!(
                        "the entries of up to {} volumes were in it: these volumes are lost",
                        (end - first) * per_leaf
                    ));
                }
            }
            Ok(page) if level == 0 => visit(self, index, &page),
            Ok(page) => {
                for at in 0..fanout {
                    let child = Pointer::read(&page, at as usize * 16);
                    self.visit_subtree(tree, leaves, child, level - 1, index.saturating_mul(fanout) + at, visit);
                }
            }
        }
    }

    /// Reads the volume table, as far as that is possible.
    pub(super) fn read_volumes(&mut self) {
        let (form, block) = (self.engine.pool.durable.volumes().form(), self.geometry().block());
        let (mut found, mut names) = (Vec::new(), BTreeSet::new());
        self.visit_table(TreeId::Volumes, &mut |planner, leaf, page| {
            for (at, bytes) in page.chunks_exact(form.entry_bytes() as usize).enumerate() {
                let last: Option<&(Volume, _, _)> = found.last();
                let is_admitted = |volume: &Volume| {
                    form.is_place_of(volume.id, leaf, at as u64, block)
                        && last.is_none_or(|(last, ..)| last.id < volume.id)
                        && planner.admits_family(&volume.family)
                };
                match volume::decode(bytes) {
                    Ok(None) => {}
                    Ok(Some((volume, root)))
                        if is_admitted(&volume) && planner.engine.pool.durable.volumes().admits(&volume, &root) =>
                    {
                        let volume = planner.with_own_name(volume, &mut names);
                        found.extend(volume.map(|volume| (volume, root, leaf)));
                    }
                    _ => planner.problem(String::from("the volume table: an entry makes no sense, its volume is lost")),
                }
            }
        });
        self.mend_families(&mut found);
        for (volume, root, leaf) in found {
            self.engine.pool.durable.volumes_mut().load(volume, root, leaf);
        }
        self.link_families();
    }

    /// Returns true if a volume can have this place in a family: the pool has families, and its snapshots were born by now.
    fn admits_family(&self, family: &Family) -> bool {
        let superblock = self.engine.pool.durable.superblock();
        *family == Family::default()
            || superblock.has_families && family.snapshot.is_none_or(|snapshot| snapshot.born <= superblock.epoch)
    }

    /// Gives a volume of the table, or a snapshot, a name with its number where another one has its name. `None`: it is lost.
    fn with_own_name(&mut self, volume: Volume, names: &mut BTreeSet<(Option<VolumeId>, String)>) -> Option<Volume> {
        let of = volume.family.snapshot.map(|snapshot| snapshot.of);
        if volume.is_unnamed() || names.insert((of, volume.name.clone())) {
            return Some(volume);
        }
        let (number, taken) = (format!(".{}", volume.id.0), volume.name.clone());
        let name = format!("{}{number}", &taken[..taken.len().min(NAME_BYTES - number.len())]);
        let what = if of.is_some() { "snapshot" } else { "volume" };
        if volume.keeps.is_some() || !names.insert((of, name.clone())) {
            self.problem(format!("the volume table: a second {what} has the name {taken}, it is lost"));
            return None;
        }
        self.problem(format!("the volume table: a second {what} has the name {taken}, it gets the name {name}"));
        Some(Volume { name, ..volume })
    }

    /// Visits all other trees.
    pub(super) fn survey(&mut self) {
        let geometry = self.geometry();
        let (slots, per_leaf) = (geometry.slots(), geometry.summary_leaf_slots());
        self.visit_table(TreeId::Summaries, &mut |planner, leaf, page| {
            for (i, bytes) in page.chunks_exact(SUMMARY_BYTES as usize).enumerate() {
                let slot = leaf * per_leaf + i as u64;
                if slot < slots {
                    planner.checks[slot as usize] = check_bits(digest_at(bytes)) | KNOWN;
                }
            }
        });
        for tree in [TreeId::SpaceMap, TreeId::Counts, TreeId::Containers] {
            self.visit_table(tree, &mut |_, _, _| {});
        }
        let root = self.engine.pool.durable.root(TreeId::DiskIndex);
        self.survey_index(root.pointer, root.height);
        let bits = geometry.meta_map_leaf_bits() as usize;
        self.visit_table(TreeId::MetaMap, &mut |planner, leaf, page| {
            for (at, marked) in planner.marked.iter_mut().skip(leaf as usize * bits).take(bits).enumerate() {
                *marked = page[at / 8] >> (at % 8) & 1 != 0;
            }
        });
        self.count_points();
        for at in self.order.clone() {
            let root = self.engine.pool.durable.volumes().map(at);
            self.survey_map(at, root.pointer, root.height, 0);
            self.touched[at].sort_unstable();
            self.touched[at].dedup_by(|next, last| {
                let coalesced = next.0 <= last.1;
                if coalesced {
                    last.1 = last.1.max(next.1);
                }
                coalesced
            });
        }
        let root = self.engine.pool.durable.root(TreeId::MapBuffer);
        self.survey_log(root.pointer, root.height);
        self.count_buffered();
        // Subtrees that discards cut off have no owner: they are free at once because they are not counted.
        let mut cut_off = Vec::new();
        self.visit_table(TreeId::Discards, &mut |_, _, page| {
            cut_off.extend(page.chunks_exact(DISCARD_BYTES).map(|entry| (Pointer::read(entry, 0), entry[18].min(7))));
        });
        for (pointer, level) in cut_off {
            self.guard(pointer, level);
        }
    }

    /// Surveys the pages of the index on disk. The index is dropped if one of them cannot be read.
    fn survey_index(&mut self, pointer: Pointer, level: u8) {
        let at = (pointer.location as usize).wrapping_sub(1);
        if pointer.is_none() {
            return;
        }
        if self.guarded.get(at) == Some(&true) {
            self.index_pages = None;
            return;
        }
        let page = match self.visit(Region::Metadata, pointer, false) {
            Ok(page) => page,
            Err(why) => {
                self.index_pages = None;
                return self.problem(format!("{}: {why}", table_name(TreeId::DiskIndex)));
            }
        };
        if let Some(pages) = &mut self.index_pages {
            pages.push(pointer.location);
        }
        if level > 0 {
            for at in 0..page.len() / 16 {
                self.survey_index(Pointer::read(&page, at * 16), level - 1);
            }
        }
    }

    /// Surveys the log of the map buffer.
    fn survey_log(&mut self, pointer: Pointer, level: u8) {
        if pointer.is_none() {
            return;
        }
        let page = match self.visit(Region::Metadata, pointer, false) {
            Ok(page) => page,
            Err(why) => {
                let records = self.geometry().block() / map_buffer::RECORD_BYTES as u64;
                let most = self.geometry().fanout().saturating_pow(level.into()).saturating_mul(records);
                self.log.is_sound = false;
                return self.problem(format!(
                    "{}: {why}: the newest mappings of up to {most} blocks were in it, of any volume; these blocks are as they were before",
                    table_name(TreeId::MapBuffer)
                ));
            }
        };
        self.log.pages.push(pointer.location);
        if level > 0 {
            for at in 0..page.len() / 16 {
                self.survey_log(Pointer::read(&page, at * 16), level - 1);
            }
        } else {
            self.log.mappings.extend(map_buffer::records(&page));
        }
    }

    /// Counts the references of the map buffer, and drops mappings that the journal has overwritten since.
    fn count_buffered(&mut self) {
        map_buffer::resolve(&mut self.log.mappings);
        let (mut mappings, mut wrong) = (core::mem::take(&mut self.log.mappings), 0);
        let before = mappings.len();
        mappings.retain(|&(key, entry)| {
            let known = self.engine.pool.durable.volumes().find(key.volume());
            let stays = known.is_some_and(|at| key.lba() < self.blocks[at])
                && self.engine.pool.durable.delta().get(key).is_none();
            let makes_sense = self.engine.pool.may_be_buffered(key, entry);
            wrong += u64::from(stays && !makes_sense);
            stays && makes_sense
        });
        self.log.is_sound &= mappings.len() == before;
        if wrong > 0 {
            self.problem(format!("{}: {wrong} of its mappings make no sense", table_name(TreeId::MapBuffer)));
        }
        for &(key, entry) in &mappings {
            let known = self.engine.pool.durable.volumes().find(key.volume());
            if let (Some(at), Some(slot)) = (known, entry.slot()) {
                self.refer(at, key, entry, slot);
            }
        }
        self.log.mappings = mappings;
    }

    // ---- maps ----

    /// Returns the blocks that a subtree covers: the first, and one past the last.
    pub(super) fn span(&self, level: u8, index: u64) -> (u64, u64) {
        span(&self.geometry(), level, index)
    }

    /// Returns the points of the delta in a range of blocks.
    pub(super) fn points_in(&self, at: usize, first: u64, end: u64) -> &[(Key, Entry)] {
        let base = Key::new(self.volume(at).id, 0).0;
        let from = self.points.partition_point(|(key, _)| key.0 < base + first);
        let to = self.points.partition_point(|(key, _)| key.0 < base + end);
        &self.points[from..to]
    }

    /// Returns true if the delta has points or clears in a range of blocks.
    pub(super) fn has_news(&self, at: usize, first: u64, end: u64) -> bool {
        let base = Key::new(self.volume(at).id, 0).0;
        let clear = self.engine.pool.durable.delta().clears().range(..base + end).next_back();
        clear.is_some_and(|(_, &its_end)| its_end > base + first) || !self.points_in(at, first, end).is_empty()
    }

    /// Returns true if no block in a range is mapped, whatever the tree says.
    pub(super) fn is_empty(&self, at: usize, first: u64, end: u64) -> bool {
        let base = Key::new(self.volume(at).id, 0).0;
        let clear = self.engine.pool.durable.delta().clears().range(..=base + first).next_back();
        let cleared = clear.is_some_and(|(_, &its_end)| its_end >= base + end.min(self.blocks[at]));
        first >= self.blocks[at] || cleared && self.points_in(at, first, end).is_empty()
    }

    /// Counts the references of the delta.
    fn count_points(&mut self) {
        let volumes = self.engine.pool.durable.volumes().len();
        let (block, live) = (self.geometry().block(), |volume: &Volume| volume.deleted.is_none());
        let blocks = |volume: &Volume| if live(volume) { volume.size.div_ceil(block) } else { 0 };
        self.blocks = self.engine.pool.durable.volumes().iter().map(blocks).collect();
        self.mapped = alloc::vec![0; volumes];
        (self.touched, self.losses) = (alloc::vec![Vec::new(); volumes], alloc::vec![Vec::new(); volumes]);
        for number in 0..self.points.len() {
            let (key, entry) = self.points[number];
            let known = self.engine.pool.durable.volumes().find(key.volume());
            if let (Some(at), Some(slot)) = (known, entry.slot()) {
                self.refer(at, key, entry, slot);
            }
        }
    }

    fn refer(&mut self, at: usize, key: Key, entry: Entry, slot: Slot) {
        self.mapped[at] += 1;
        let count = &mut self.counts[slot.0 as usize];
        *count = count.saturating_add(1);
        let check = entry.check();
        if self.summaries.contains_key(&slot) || self.checks[slot.0 as usize] == check | KNOWN {
            return;
        }
        let new = Suspect { owner: key, check, contradicted: false };
        let suspect = self.suspects.entry(slot).or_insert(new);
        suspect.contradicted |= suspect.check != check;
    }

    fn survey_map(&mut self, at: usize, pointer: Pointer, level: u8, index: u64) {
        let geometry = self.geometry();
        let (first, end) = self.span(level, index);
        if pointer.is_none() || pointer.is_lost() {
            return;
        }
        let per_leaf = geometry.map_leaf_entries();
        let leaves = (first / per_leaf, end.div_ceil(per_leaf));
        if self.is_empty(at, first, end) {
            self.touched[at].push(leaves);
            return self.guard(pointer, level);
        }
        if !pointer.has_page() {
            if !self.is_inherited(at, pointer, level, index) {
                self.inherits_nothing(at, first, end);
                self.touched[at].push(leaves);
            }
            return;
        }
        let page = match self.visit(Region::Metadata, pointer, true) {
            Ok(page) => page,
            Err(why) => {
                let last = end.min(self.blocks[at]) - 1;
                self.problem(format!("{}: {why}: blocks {first} to {last}", self.what(at)));
                return self.touched[at].push(leaves);
            }
        };
        if level > 0 {
            for child in 0..geometry.fanout() {
                let pointer = Pointer::read(&page, child as usize * 16);
                self.survey_map(at, pointer, level - 1, index.saturating_mul(geometry.fanout()) + child);
            }
            return;
        }
        let has_news = self.has_news(at, first, end);
        let mut is_touched = has_news;
        for (i, bytes) in page.chunks_exact(8).enumerate() {
            let (lba, entry) = (first + i as u64, Entry(u64_at(bytes, 0)));
            let key = Key::new(self.volume(at).id, lba);
            if has_news && self.engine.pool.durable.delta().get(key).is_some() {
                continue;
            }
            match entry.slot() {
                Some(slot) if slot.0 < geometry.slots() && lba < self.blocks[at] => self.refer(at, key, entry, slot),
                None if entry.is_valid() && (entry == Entry::UNMAPPED || lba < self.blocks[at]) => {}
                None if lba < self.blocks[at] && self.is_block_inherited(at, entry, lba) => {}
                None if entry.inherited_from().is_some() => {
                    self.inherits_nothing(at, lba, lba + 1);
                    is_touched = true;
                }
                _ => {
                    self.problem(format!("{}: the entry of block {lba} makes no sense", self.what(at)));
                    is_touched = true;
                }
            }
        }
        if is_touched {
            self.touched[at].push(leaves);
        }
    }

    /// Reports blocks that a map claims to have from an ancestor that has nothing there. Where its parent is lost, that has been reported.
    fn inherits_nothing(&mut self, at: usize, first: u64, end: u64) {
        if !self.orphans.contains(&self.volume(at).id) {
            let (what, last) = (self.what(at), end.min(self.blocks[at]).max(first + 1) - 1);
            self.problem(format!("{what}: no ancestor has blocks {first} to {last}, which it should have from one"));
        }
    }

    // ---- proof ----

    /// Reads the blocks of slots whose summaries are missing or contradict the map; with `data` those of all slots.
    pub(super) fn prove(&mut self, data: bool) {
        let mut is_lost = false;
        for (slot, suspect) in core::mem::take(&mut self.suspects) {
            let offset = self.slot_offset(slot);
            let found = (self.medium.content)(offset).filter(|content| !content.zero).map(|content| content.digest);
            let agrees = found.is_some_and(|digest| check_bits(digest) == suspect.check) && !suspect.contradicted;
            if !agrees {
                self.problem(format!("the block at byte {offset} of the store does not match its digest"));
                is_lost = true;
            }
            if let Some(digest) = found {
                self.summaries.insert(slot, (digest, suspect.owner));
            }
            self.proven.insert(slot, found);
        }
        if data {
            is_lost |= self.prove_data();
        }
        if is_lost {
            // Any map may refer to these slots.
            self.touched.iter_mut().for_each(|touched| *touched = alloc::vec![(0, u64::MAX)]);
        }
        for number in 0..self.points.len() {
            let (key, entry) = self.points[number];
            if !self.is_disproved(entry) {
                continue;
            }
            self.points[number].1 = Entry::LOST;
            let known = self.engine.pool.durable.volumes().find(key.volume());
            if let (Some(at), Some(slot)) = (known, entry.slot()) {
                self.mapped[at] -= 1;
                self.counts[slot.0 as usize] -= 1;
            }
        }
    }

    /// Returns true if an entry refers to a block that is known to be missing.
    pub(super) fn is_disproved(&self, entry: Entry) -> bool {
        let found = entry.slot().and_then(|slot| self.proven.get(&slot));
        found.is_some_and(|found| found.is_none_or(|digest| check_bits(digest) != entry.check()))
    }

    /// Compares every block in use with its digest. Returns true if one does not match.
    fn prove_data(&mut self) -> bool {
        let per_leaf = self.geometry().summary_leaf_slots();
        let before = self.proven.len();
        let root = self.engine.pool.durable.root(TreeId::Summaries);
        self.compare_leaves(root.pointer, root.height, 0, per_leaf);
        self.proven.len() > before
    }

    fn compare_leaves(&mut self, pointer: Pointer, level: u8, index: u64, per_leaf: u64) {
        if pointer.is_none() {
            return;
        }
        let Some(page) = self.known_page(Region::Metadata, pointer) else { return };
        let fanout = self.geometry().fanout();
        if level > 0 {
            for at in 0..fanout {
                let child = Pointer::read(&page, at as usize * 16);
                self.compare_leaves(child, level - 1, index.saturating_mul(fanout) + at, per_leaf);
            }
            return;
        }
        for (i, bytes) in page.chunks_exact(SUMMARY_BYTES as usize).enumerate() {
            let slot = Slot(index.saturating_mul(per_leaf) + i as u64);
            let live = self.counts.get(slot.0 as usize).is_some_and(|&count| count > 0);
            // Slots that the journal or the proof has handled are already known.
            if !live || self.summaries.contains_key(&slot) || self.proven.contains_key(&slot) {
                continue;
            }
            let offset = self.slot_offset(slot);
            let found = (self.medium.content)(offset);
            if !found.is_some_and(|found| !found.zero && found.digest == digest_at(bytes)) {
                self.problem(format!("the block at byte {offset} of the store does not match its digest"));
                self.proven.insert(slot, None);
            }
        }
    }
}

fn digest_at(summary: &[u8]) -> Digest {
    let mut digest = Digest::default();
    digest.0.copy_from_slice(&summary[..16]);
    digest
}
