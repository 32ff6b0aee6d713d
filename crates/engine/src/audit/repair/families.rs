//! Families of maps in a repair (RFC 0020): makes those that an opening admits, follows FROM to the ancestor that has the page or block, and lists the losses
//! of readers where an ancestor has lost pages or blocks.
//!
//! A map whose parent is lost has none from then on, and all that it inherited is lost. FROM stays where the ancestor has a page, a mapped block, or a loss.
//! Ancestors are surveyed and rewritten before their descendants, so a look at an ancestor shows its map as it will be.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec::Vec;

use super::Planner;
use crate::api::VolumeId;
use crate::audit::inherited::{inherited_ranges, pointer_at, unite};
use crate::format::bytes::{put_u64, u64_at};
use crate::format::entry::{Entry, Key};
use crate::format::superblock::{Pointer, Root};
use crate::format::volume::{Family, Snapshot, Volume};
use crate::metadata::page_cache::{PageKey, Region};
use crate::pool::volumes::FOR_SECOND_COPIES;
use crate::pool::volumes::table::inherited_root;

/// Volume of the table on disk, with the root of its map and its leaf of the table.
pub(super) type FoundVolume = (Volume, Root, u64);

/// Page of an ancestor that a pointer FROM names.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Origin {
    /// Page of the ancestor that was born at this epoch.
    Page { pointer: Pointer, born: u64 },
    /// A loss of the ancestor that was born at this epoch.
    Lost { born: u64 },
}

/// Returns the number of a snapshot's volume and its epoch, if the volume is one.
fn snapshot_of(volume: &Volume) -> Option<(VolumeId, u64)> {
    volume.family.snapshot.map(|Snapshot { of, born, .. }| (of, born))
}

impl Planner<'_, '_> {
    // ---- the volume table ----

    /// Makes families that an opening admits of the volumes of the table.
    pub(super) fn mend_families(&mut self, found: &mut Vec<FoundVolume>) {
        self.replace_lost_volumes(found);
        let born: BTreeMap<VolumeId, u64> =
            found.iter().map(|(volume, ..)| (volume.id, snapshot_of(volume).map_or(0, |(_, born)| born))).collect();
        for (volume, ..) in found.iter_mut() {
            let Some(parent) = volume.family.parent else { continue };
            let (own, above) = (born[&volume.id], born.get(&parent).copied().unwrap_or(0));
            if above == 0 || own > 0 && own <= above {
                volume.family.parent = None;
                self.orphans.insert(volume.id);
            }
        }
        // A hand-over goes on where it can be one.
        let mut children: BTreeMap<VolumeId, usize> = BTreeMap::new();
        let parents = found.iter().filter_map(|(volume, ..)| volume.family.parent);
        parents.for_each(|parent| *children.entry(parent).or_default() += 1);
        let mut is_first = true;
        for snapshot in found.iter_mut().filter_map(|(volume, ..)| Some((volume.id, volume.family.snapshot.as_mut()?)))
        {
            let (id, snapshot) = snapshot;
            snapshot.gives &= is_first && children.get(&id).is_none_or(|&count| count == 1);
            is_first &= !snapshot.gives;
        }
    }

    /// Puts a new volume in the place of each that is lost and has snapshots: a clone of the newest one. Without a volume, they would have no name.
    fn replace_lost_volumes(&mut self, found: &mut Vec<FoundVolume>) {
        let is_volume = |volume: &&FoundVolume| !volume.0.is_snapshot() && volume.0.keeps.is_none();
        let volumes: BTreeSet<VolumeId> = found.iter().filter(is_volume).map(|(volume, ..)| volume.id).collect();
        let mut lost: BTreeMap<VolumeId, (u64, usize)> = BTreeMap::new();
        for (at, (volume, ..)) in found.iter().enumerate() {
            if let Some((of, born)) = snapshot_of(volume).filter(|(of, _)| !volumes.contains(of))
                && !volume.is_unnamed()
            {
                let newest = lost.entry(of).or_insert((born, at));
                *newest = (born, at).max(*newest);
            }
        }
        for (of, (born, newest)) in lost {
            let Some(id) = self.unused_number(found) else {
                self.problem(format!("the volume table: volume {} is lost, and no number is left for another", of.0));
                found.iter_mut().for_each(|(volume, ..)| {
                    if snapshot_of(volume).is_some_and(|(its, _)| its == of) {
                        volume.name = String::new();
                    }
                });
                continue;
            };
            let is_taken =
                |name: &String| found.iter().any(|(volume, ..)| !volume.is_snapshot() && volume.name == *name);
            let mut name = format!("volume.{}", of.0);
            while is_taken(&name) {
                name = format!("{name}.{}", id.0);
            }
            let (origin, root, leaf) = &found[newest];
            self.problem(format!(
                "the volume table: volume {} is lost, its snapshots are not: they are those of a new volume {name}, which has the content of \
                 {name}@{}",
                of.0, origin.name
            ));
            let family = Family { parent: Some(origin.id), ..Family::default() };
            let volume = Volume { id, name, family, logical_blocks_used: 0, ..origin.clone() };
            let entry = (volume, inherited_root(*root, born), *leaf);
            for (volume, ..) in found.iter_mut() {
                if let Some(snapshot) = volume.family.snapshot.as_mut().filter(|snapshot| snapshot.of == of) {
                    snapshot.of = id;
                }
            }
            found.push(entry);
        }
    }

    /// Returns a number that no volume has had; when they have run out, one that none has.
    fn unused_number(&self, found: &[FoundVolume]) -> Option<VolumeId> {
        let last = found.iter().map(|(volume, ..)| volume.id.0).max().unwrap_or(0);
        let next = self.engine.pool.durable.superblock().next_volume.max(last.saturating_add(1));
        if next < FOR_SECOND_COPIES {
            return Some(VolumeId(next));
        }
        let used: BTreeSet<u16> = found.iter().map(|(volume, ..)| volume.id.0).collect();
        (1..FOR_SECOND_COPIES).find(|number| !used.contains(number)).map(VolumeId)
    }

    /// Links the volumes to families, and lists those that have lost their parent.
    pub(super) fn link_families(&mut self) {
        let epoch = self.engine.pool.durable.superblock().epoch;
        let linked = self.engine.pool.durable.volumes_mut().link(epoch);
        assert_eq!(linked, Ok(()), "families have been mended");
        for at in 0..self.engine.pool.durable.volumes().len() {
            if self.orphans.contains(&self.volume(at).id) {
                let what = self.what(at);
                self.problem(format!("{what}: the snapshot that it has blocks from is lost, and these blocks with it"));
            }
        }
        let volumes = self.engine.pool.durable.volumes();
        let mut order: Vec<usize> = (0..volumes.len()).collect();
        // Each parent is a snapshot, and older than its children.
        order.sort_by_key(|&at| snapshot_of(&volumes[at]).map_or(u64::MAX, |(_, born)| born));
        self.order = order;
    }

    /// Returns the name of a volume or snapshot in messages.
    pub(super) fn name_of(&self, at: usize) -> String {
        self.engine.full_name(self.volume(at))
    }

    /// Returns kind and name of a volume or snapshot, for problems.
    pub(super) fn what(&self, at: usize) -> String {
        self.engine.kind_and_name(self.volume(at))
    }

    // ---- FROM ----

    /// Returns the index of the ancestor that FROM an epoch names, and its epoch of birth.
    fn ancestor(&self, at: usize, epoch: u64) -> Option<(usize, u64)> {
        let volumes = self.engine.pool.durable.volumes();
        let ancestor = volumes.find(volumes.lineage().ancestor_for(self.volume(at).id, epoch)?)?;
        Some((ancestor, snapshot_of(&volumes[ancestor])?.1))
    }

    /// Returns a page of a map, also one that the repair has made.
    pub(super) fn map_page(&mut self, pointer: Pointer, level: u8) -> Option<Rc<[u8]>> {
        let recent = &self.recent[usize::from(level) % self.recent.len()];
        if let Some((_, page)) = recent.as_ref().filter(|(location, _)| *location == pointer.location) {
            return Some(page.clone());
        }
        let page: Rc<[u8]> = match self.written.get(&pointer.location) {
            Some(&at) => self.plan.pages[at].1.as_slice().into(),
            None => self.known_page(Region::Metadata, pointer)?.into(),
        };
        let places = self.recent.len();
        self.recent[usize::from(level) % places] = Some((pointer.location, page.clone()));
        Some(page)
    }

    /// Returns the pointer of a map to a page, or to a subtree that has it.
    fn own_pointer(&mut self, at: usize, level: u8, index: u64) -> Pointer {
        let (root, fanout) = (self.engine.pool.durable.volumes().map(at), self.geometry().fanout());
        let page = &mut |pointer, level| self.map_page(pointer, level);
        pointer_at(fanout, page, root, (level, index)).unwrap_or(Pointer::LOST)
    }

    /// Finds the page that a pointer FROM in a map names; `None` if no ancestor has one.
    fn origin(&mut self, mut at: usize, mut epoch: u64, level: u8, index: u64) -> Option<Origin> {
        loop {
            let (ancestor, born) = self.ancestor(at, epoch)?;
            if self.span(level, index).0 >= self.blocks[ancestor] {
                return None;
            }
            let pointer = self.own_pointer(ancestor, level, index);
            match pointer.inherited_from() {
                Some(older) => (at, epoch) = (ancestor, older),
                None if pointer.is_none() => return None,
                None if pointer.has_page() && !self.is_bad(pointer) => return Some(Origin::Page { pointer, born }),
                None => return Some(Origin::Lost { born }),
            }
        }
    }

    /// Returns true if a page was found to be unusable.
    fn is_bad(&self, pointer: Pointer) -> bool {
        let is_new = self.written.contains_key(&pointer.location);
        !is_new && self.bad.contains(&PageKey { region: Region::Metadata, location: pointer.location })
    }

    /// Returns true if an ancestor has the page that a pointer FROM in a map names, or has lost it.
    pub(super) fn is_inherited(&mut self, at: usize, pointer: Pointer, level: u8, index: u64) -> bool {
        pointer.inherited_from().is_some_and(|epoch| self.origin(at, epoch, level, index).is_some())
    }

    /// Returns true if an ancestor has the block that an entry FROM in a map names, or has lost it.
    pub(super) fn is_block_inherited(&mut self, mut at: usize, entry: Entry, lba: u64) -> bool {
        let per_leaf = self.geometry().map_leaf_entries();
        let Some(mut epoch) = entry.inherited_from() else { return false };
        loop {
            let Some((ancestor, _)) = self.ancestor(at, epoch).filter(|&(at, _)| lba < self.blocks[at]) else {
                return false;
            };
            if let Some(entry) = self.engine.pool.durable.delta().get(Key::new(self.volume(ancestor).id, lba)) {
                return !entry.is_hole();
            }
            let pointer = self.own_pointer(ancestor, 0, lba / per_leaf);
            let older = match pointer.inherited_from() {
                None if pointer.is_none() => return false,
                None if !pointer.has_page() => return true,
                None => {
                    let Some(page) = self.map_page(pointer, 0) else { return true };
                    let found = Entry(u64_at(&page, (lba % per_leaf) as usize * 8));
                    match found.inherited_from() {
                        Some(older) => older,
                        None => return !found.is_hole(),
                    }
                }
                Some(older) => older,
            };
            (at, epoch) = (ancestor, older);
        }
    }

    /// Makes the page of a map in the place of a pointer FROM: all that the ancestor has there, or has lost, is FROM the epoch of its birth. `None` if no
    /// ancestor has it.
    pub(super) fn inherited_page(&mut self, at: usize, pointer: Pointer, level: u8, index: u64) -> Option<Vec<u8>> {
        let origin = self.origin(at, pointer.inherited_from()?, level, index)?;
        let mut page = alloc::vec![0; self.geometry().block_size as usize];
        let (source, born) = match origin {
            Origin::Page { pointer, born } => (self.map_page(pointer, level), born),
            Origin::Lost { born } => (None, born),
        };
        if let Some(source) = &source {
            page.copy_from_slice(source);
        }
        if level == 0 {
            for at in (0..page.len()).step_by(8) {
                let entry = Entry(u64_at(&page, at));
                if source.is_none() || !entry.is_hole() && entry.inherited_from().is_none() {
                    put_u64(&mut page, at, Entry::inherited(born).0);
                }
            }
        } else {
            for at in (0..page.len()).step_by(16) {
                let pointer = Pointer::read(&page, at);
                if source.is_none() || !pointer.is_none() && pointer.inherited_from().is_none() {
                    Pointer::inherited(born).write(&mut page, at);
                }
            }
        }
        Some(page)
    }

    // ---- losses ----

    /// Lists the lost blocks of all volumes, with those that they have from ancestors.
    pub(super) fn list_losses(&mut self) {
        for at in self.order.clone() {
            let id = self.volume(at).id;
            let volumes = self.engine.pool.durable.volumes();
            let ancestors: Vec<usize> =
                volumes.lineage().ancestors(id).filter_map(|ancestor| volumes.find(ancestor.map)).collect();
            let mut above: Vec<(u64, u64)> =
                ancestors.iter().flat_map(|&ancestor| self.losses[ancestor].iter().copied()).collect();
            unite(&mut above);
            let Root { pointer, height } = volumes.map(at);
            let (geometry, mut places, mut lost) = (self.geometry(), Vec::new(), Vec::new());
            for range in above {
                let page = &mut |pointer, level| self.map_page(pointer, level);
                inherited_ranges(&geometry, page, pointer, (height, 0), range, &mut places);
            }
            for (epoch, from, to) in places {
                self.losses_of_ancestor(at, epoch, (from, to), &mut lost);
            }
            for (first, end) in lost {
                self.lose(at, first, end);
            }
            unite(&mut self.losses[at]);
        }
        for at in 0..self.losses.len() {
            if self.volume(at).is_unnamed() {
                // No user sees it. Its readers are listed.
                continue;
            }
            let volume = self.name_of(at);
            let ranges = self.losses[at].iter();
            self.plan.lost.extend(ranges.map(|&(first, end)| super::BlockRange {
                volume: volume.clone(),
                first,
                blocks: end - first,
            }));
        }
    }

    /// Collects the blocks of a range that the ancestor has lost which FROM an epoch names.
    fn losses_of_ancestor(&self, at: usize, epoch: u64, (from, to): (u64, u64), lost: &mut Vec<(u64, u64)>) {
        let Some((ancestor, _)) = self.ancestor(at, epoch) else { return };
        let losses = &self.losses[ancestor];
        let first = losses.partition_point(|&(_, end)| end <= from);
        let here = losses[first..].iter().take_while(|&&(its_first, _)| its_first < to);
        lost.extend(here.map(|&(its_first, end)| (its_first.max(from), end.min(to))));
    }
}
