//! The table of volumes: each volume with the root of its map, in the order of their numbers.
//!
//! Indexes and sums over all volumes stand beside the list, so that no step walks it: names, sums of mapped blocks, the pages that maps can have,
//! volumes with equal settings. The methods of the table are the only ones that change them, together with the volumes.
//!
//! What must hold:
//!
//! - Numbers are unique and ascend. Each volume has a root. Names of volumes that are not deleted are unique, those of snapshots among the volume's.
//! - The families (`lineage`) have each map with a parent or children, from the checkpoint on that gives it one.
//! - Each figure equals that of a walk of the list (`is_consistent`: a property test, and an assertion in builds with mutants).
//! - While a checkpoint changes counts (`begin_counting` to `end_counting`), each changed count is known as it was when it began.
//!
//! Changes by families stand in `families.rs`. Visibility to clients and policy of a volume are decided in `mod.rs`.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;
use core::ops::{Bound, Index};

use crate::api::VolumeId;
use crate::block_map::lineage::Lineage;
use crate::counters::WriteCounts;
use crate::dedup::timing::Mode;
use crate::format::geometry::Geometry;
use crate::format::layout::{PACKED_VOLUME_BYTES, TableForm, VOLUME_BYTES, height_for};
use crate::format::superblock::{Pointer, Root};
use crate::format::volume::{self, Family, Hidden, Keeps, Volume, most_blocks};
use crate::metadata::tree::Ancestor;
use crate::pool::metadata_reservation::{LEVELS, PagesByLevel};
use crate::properties::VolumeProperties;
use crate::sizes::list_bytes;

mod families;

/// Bytes of an entry of an ordered map beside its key and value: nodes are filled to two thirds.
const NODE_BYTES: u64 = 16;

/// Volumes of a pool, by index, with the roots of their maps.
#[derive(Default)]
pub(crate) struct VolumeTable {
    volumes: Vec<Volume>,
    maps: Vec<Root>,
    form: TableForm,
    /// Bytes of a leaf of the table on disk.
    block: u64,
    /// Number of leaves of a packed table on disk, as last written.
    packed_leaves: u64,
    /// True if volumes were created since the last checkpoint began, or got a schedule of snapshots, which a packed entry does not have.
    has_created: bool,
    /// True if a volume has got a schedule since the pool was opened.
    has_scheduled: bool,
    /// True if the checkpoint in progress writes all leaves: the table gets another form.
    rewrites: bool,
    /// Volumes whose entries the checkpoint in progress writes, and those whose entries the next one does. Removed ones are among them.
    dirty: BTreeSet<VolumeId>,
    dirty_next: BTreeSet<VolumeId>,
    /// Volumes that the checkpoint in progress rolls back, each with its snapshot.
    rolled_back: BTreeMap<VolumeId, VolumeId>,
    shape: MapShape,
    /// Numbers of the volumes that are not deleted, by name, and of their snapshots, by volume and name.
    names: BTreeMap<String, VolumeId>,
    snapshots: BTreeMap<(VolumeId, String), VolumeId>,
    /// Snapshots that were deleted while others inherit from them.
    unnamed: BTreeSet<VolumeId>,
    /// Snapshots, with and without a name, by their volume and epoch. One that is not taken yet has none.
    by_epoch: BTreeMap<(VolumeId, u64), VolumeId>,
    /// Names of volumes when the last checkpoint began, of those that were renamed since.
    former_names: BTreeMap<VolumeId, String>,
    /// Families of the maps.
    lineage: Lineage,
    /// Deleted snapshot that is handed over to its child.
    giver: Option<VolumeId>,
    /// Numbers of the volumes that are not deleted, by their settings.
    settings: BTreeMap<SettingsKey, BTreeSet<VolumeId>>,
    deleted: BTreeSet<VolumeId>,
    sums: TableSums,
    /// Volumes whose size differs from that of the last checkpoint, perhaps.
    resized: BTreeSet<VolumeId>,
    /// Bytes of all names.
    name_bytes: u64,
    /// Number of volumes with counts of writes.
    written_volumes: u64,
    /// Volumes that users see and no census has counted.
    uncounted: BTreeSet<VolumeId>,
    /// Uncounted volumes whose maps were exchanged, in whole or in part, since a census began to count them.
    exchanged: BTreeSet<VolumeId>,
    /// Former counts of the volumes that the checkpoint in progress has changed; `None` if none changes counts.
    former: Option<BTreeMap<VolumeId, MappedBlocks>>,
    /// Number that was inserted last.
    last_inserted: u16,
    /// Numbers of volumes that the checkpoint in progress has removed: its delta may still name them.
    leaving: BTreeSet<VolumeId>,
}

/// Mapped blocks of a volume, with its purpose if it is a hidden one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct MappedBlocks {
    keeps: Option<Keeps>,
    is_snapshot: bool,
    is_deleted: bool,
    blocks: u64,
}

impl MappedBlocks {
    fn of(volume: &Volume) -> MappedBlocks {
        let Volume { keeps, logical_blocks_used: blocks, .. } = *volume;
        MappedBlocks { keeps, is_snapshot: volume.is_snapshot(), is_deleted: volume.deleted.is_some(), blocks }
    }
}

/// Mapped blocks of all volumes, by their kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct MappedSums {
    /// Of volumes that users see.
    pub live: u64,
    /// Of snapshots, also of those that have lost their names.
    pub snapshots: u64,
    /// Of deleted volumes.
    pub deleted: u64,
    pub second_copies: u64,
    pub replicas: u64,
}

impl MappedSums {
    fn of_kind(&mut self, volume: MappedBlocks) -> &mut u64 {
        match volume.keeps {
            Some(Keeps::SecondCopies) => &mut self.second_copies,
            Some(Keeps::Replicas) => &mut self.replicas,
            None if volume.is_deleted => &mut self.deleted,
            None if volume.is_snapshot => &mut self.snapshots,
            None => &mut self.live,
        }
    }

    /// Returns the mapped blocks of hidden volumes.
    pub(crate) fn hidden(&self) -> u64 {
        self.second_copies + self.replicas
    }
}

/// Snapshots of a volume, and the blocks that they hold: those that they map and do not inherit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SnapshotSum {
    /// Number of snapshots.
    pub snapshots: u64,
    /// Mapped, non-zero blocks (merged ones).
    pub blocks: u64,
}

/// Sums over all volumes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct TableSums {
    mapped: MappedSums,
    /// Snapshots with names, by their volume.
    of_snapshots: BTreeMap<VolumeId, SnapshotSum>,
    /// Snapshots without names.
    of_unnamed: SnapshotSum,
    /// Pages that the maps can have.
    pages: PagesByLevel,
    /// Number of maps of each height, and the levels by which maps with pages may rise.
    heights: [u32; LEVELS],
    raised: u64,
}

/// Shape of the pages of maps.
#[derive(Clone, Copy, Debug, Default)]
struct MapShape {
    /// Bytes of a volume that a leaf maps.
    leaf_bytes: u64,
    fanout: u64,
    /// Largest size of a volume in bytes, and largest height of a map.
    most_bytes: u64,
    highest: u8,
}

impl MapShape {
    /// Returns the most leaves of a volume's map. After a shrink, the map may still be as large as the volume was before.
    fn leaves(&self, volume: &Volume) -> u64 {
        volume.size.max(volume.merged_size).div_ceil(self.leaf_bytes)
    }

    fn height(&self, volume: &Volume, root: &Root) -> u8 {
        height_for(self.leaves(volume), self.fanout).max(root.height)
    }
}

/// Returns the volume with whose snapshots a snapshot counts, `None` within if it has no name; `None` if it is no snapshot, or is to be removed.
fn snapshots_with(volume: &Volume) -> Option<Option<VolumeId>> {
    let snapshot = volume.family.snapshot.filter(|_| volume.deleted.is_none())?;
    Some((!volume.is_unnamed()).then_some(snapshot.of))
}

impl TableSums {
    /// Returns the sums of the snapshots of a volume, or of those without names.
    fn held_by_snapshots(&mut self, of: Option<VolumeId>) -> &mut SnapshotSum {
        match of {
            Some(of) => self.of_snapshots.entry(of).or_default(),
            None => &mut self.of_unnamed,
        }
    }

    /// Adds a volume, or with `sign` -1 takes it away.
    fn count(&mut self, shape: &MapShape, volume: &Volume, root: &Root, sign: i64) {
        let add = |sum: &mut u64, more: u64| {
            *sum = sum.checked_add_signed(sign * more as i64).expect("sums have each volume once");
        };
        let blocks = MappedBlocks::of(volume);
        add(self.mapped.of_kind(blocks), blocks.blocks);
        if let Some(of) = snapshots_with(volume) {
            let held = self.held_by_snapshots(of);
            add(&mut held.snapshots, 1);
            add(&mut held.blocks, blocks.blocks);
            let are_gone = held.snapshots == 0;
            if let Some(of) = of.filter(|_| are_gone) {
                self.of_snapshots.remove(&of);
            }
        }
        let height = shape.height(volume, root);
        let mut level = shape.leaves(volume);
        for pages in self.pages.iter_mut().take(usize::from(height) + 1) {
            add(pages, level.max(1));
            level = level.div_ceil(shape.fanout);
        }
        let maps = &mut self.heights[usize::from(height)];
        *maps = maps.checked_add_signed(sign as i32).expect("sums have each volume once");
        add(&mut self.raised, if root.pointer.is_none() { 0 } else { u64::from(height - root.height) });
    }
}

/// Returns the root of a map that has all from a snapshot with this root.
pub(crate) fn inherited_root(root: Root, born: u64) -> Root {
    let pointer = if root.pointer.has_page() { Pointer::inherited(born) } else { root.pointer };
    Root { pointer, ..root }
}

/// Settings of a volume, on which its policy, timing and measurement depend.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct SettingsKey {
    is_hidden: bool,
    is_pressed: bool,
    /// Properties, as in a packed entry of the table on disk: without the schedule of snapshots.
    properties: [u8; PACKED_VOLUME_BYTES as usize],
}

impl SettingsKey {
    fn of(volume: &Volume) -> SettingsKey {
        let mut properties = [0; PACKED_VOLUME_BYTES as usize];
        volume.properties.write(&mut properties);
        SettingsKey { is_hidden: volume.keeps.is_some(), is_pressed: volume.is_pressed, properties }
    }
}

impl Index<usize> for VolumeTable {
    type Output = Volume;

    #[inline]
    fn index(&self, at: usize) -> &Volume {
        &self.volumes[at]
    }
}

impl VolumeTable {
    pub(crate) fn new(geometry: &Geometry, form: TableForm) -> VolumeTable {
        let leaf_bytes = geometry.block() * geometry.map_leaf_entries();
        let most = most_blocks(geometry);
        let highest = height_for(most / geometry.map_leaf_entries(), geometry.fanout());
        let shape = MapShape { leaf_bytes, fanout: geometry.fanout(), most_bytes: most * geometry.block(), highest };
        VolumeTable { shape, form, block: geometry.block(), ..VolumeTable::default() }
    }

    pub(crate) fn len(&self) -> usize {
        self.volumes.len()
    }

    pub(crate) fn get(&self, at: usize) -> Option<&Volume> {
        self.volumes.get(at)
    }

    pub(crate) fn last(&self) -> Option<&Volume> {
        self.volumes.last()
    }

    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = &Volume> + ExactSizeIterator + Clone {
        self.volumes.iter()
    }

    /// Returns each volume with the root of its map.
    pub(crate) fn with_maps(&self) -> impl Iterator<Item = (&Volume, &Root)> + Clone {
        self.volumes.iter().zip(&self.maps)
    }

    /// Returns the index of a volume, if it is there.
    #[inline]
    pub(crate) fn find(&self, id: VolumeId) -> Option<usize> {
        self.volumes.binary_search_by_key(&id, |volume| volume.id).ok()
    }

    /// Returns the index of the first volume whose number `is_before` is false for.
    pub(crate) fn first_after(&self, is_before: impl Fn(VolumeId) -> bool) -> usize {
        self.volumes.partition_point(|volume| is_before(volume.id))
    }

    /// Returns the index of the volume with a name, hidden ones included, if it is there and not deleted.
    pub(crate) fn named(&self, name: &str) -> Option<usize> {
        self.find(*self.names.get(name)?)
    }

    /// Returns true if a volume, or a snapshot of the same volume, has the name of this one.
    pub(crate) fn has_name_of(&self, volume: &Volume) -> bool {
        match volume.family.snapshot {
            None => self.names.contains_key(&volume.name),
            Some(_) if volume.is_unnamed() => false,
            Some(snapshot) => self.snapshot_named(snapshot.of, &volume.name).is_some(),
        }
    }

    /// Returns the number of the snapshot of a volume with a name, if it is there.
    pub(crate) fn snapshot_named(&self, of: VolumeId, name: &str) -> Option<VolumeId> {
        self.snapshots.get(&(of, String::from(name))).copied()
    }

    /// Returns the snapshots of a volume, in the order of their names. Deleted ones are left out.
    pub(crate) fn snapshots_of(&self, of: VolumeId) -> impl Iterator<Item = VolumeId> {
        let first = (of, String::new());
        self.snapshots.range(first..).take_while(move |((found, _), _)| *found == of).map(|(_, &id)| id)
    }

    /// Returns the sums of the snapshots of each volume that has some, in the order of the volumes' numbers.
    pub(crate) fn held_by_snapshots(&self) -> impl Iterator<Item = (VolumeId, SnapshotSum)> {
        self.sums.of_snapshots.iter().map(|(&of, &held)| (of, held))
    }

    /// Returns the sums of the snapshots of a volume.
    pub(crate) fn held_by_snapshots_of(&self, of: VolumeId) -> SnapshotSum {
        self.sums.of_snapshots.get(&of).copied().unwrap_or_default()
    }

    /// Returns the sums of the snapshots without names.
    pub(crate) fn held_by_unnamed(&self) -> SnapshotSum {
        self.sums.of_unnamed
    }

    /// Returns the snapshots that were deleted and stay because others inherit from them.
    pub(crate) fn unnamed(&self) -> impl Iterator<Item = VolumeId> {
        self.unnamed.iter().copied()
    }

    /// Returns the families of the maps.
    #[inline]
    pub(crate) fn lineage(&self) -> &Lineage {
        &self.lineage
    }

    /// Returns the ancestors of a map with their roots, for its writer; its parent first.
    pub(crate) fn ancestors(&self, id: VolumeId) -> Vec<Ancestor> {
        let ancestor = |found: crate::block_map::lineage::Covering| {
            let at = self.find(found.map).expect("the families have volumes of the table");
            Ancestor { root: self.maps[at], lower: found.lower, born: found.born }
        };
        self.lineage.ancestors(id).map(ancestor).collect()
    }

    /// Returns the volumes whose names follow a name, in the order of names. Hidden ones are included, deleted ones are not.
    pub(crate) fn named_after(&self, name: Option<&str>) -> impl Iterator<Item = &Volume> {
        let from = name.map_or(Bound::Unbounded, Bound::Excluded);
        let names = self.names.range::<str, _>((from, Bound::Unbounded));
        names.filter_map(|(_, &id)| Some(&self.volumes[self.find(id)?]))
    }

    /// Returns the number of volumes that are not deleted, hidden ones included.
    pub(crate) fn names(&self) -> usize {
        self.names.len()
    }

    /// Returns one volume of each group with equal settings, of those that are not deleted.
    pub(crate) fn with_different_settings(&self) -> impl Iterator<Item = &Volume> {
        let first = |group: &BTreeSet<VolumeId>| group.first().copied();
        self.settings.values().filter_map(move |group| Some(&self.volumes[self.find(first(group)?)?]))
    }

    /// Returns the volumes that are not deleted and have the settings of this one.
    pub(crate) fn with_settings_of(&self, volume: &Volume) -> impl Iterator<Item = VolumeId> {
        self.settings.get(&SettingsKey::of(volume)).into_iter().flatten().copied()
    }

    /// Returns the sums of mapped blocks, as counted now.
    pub(crate) fn mapped(&self) -> MappedSums {
        self.sums.mapped
    }

    /// Returns the sums of mapped blocks as they were when the checkpoint in progress began to change them, with the kinds that volumes have now.
    pub(crate) fn mapped_formerly(&self) -> MappedSums {
        let mut sums = self.sums.mapped;
        for (&id, &noted) in self.former.iter().flatten() {
            let now = self.find(id).map(|at| MappedBlocks::of(&self.volumes[at]));
            if let Some(now) = now {
                *sums.of_kind(now) -= now.blocks;
            }
            let is_deleted = now.is_none_or(|now| now.is_deleted);
            *sums.of_kind(MappedBlocks { is_deleted, ..noted }) += noted.blocks;
        }
        sums
    }

    /// Returns the mapped blocks of a volume as they were when the checkpoint in progress began to change them.
    pub(crate) fn blocks_formerly(&self, volume: &Volume) -> u64 {
        let noted = self.former.as_ref().and_then(|former| former.get(&volume.id));
        noted.map_or(volume.logical_blocks_used, |noted| noted.blocks)
    }

    /// Returns the numbers of volumes that are deleted and still in the list.
    pub(crate) fn deleted(&self) -> impl Iterator<Item = VolumeId> {
        self.deleted.iter().copied()
    }

    /// Returns the index of a volume that a record up to `upto` deletes, whose map is empty, and that nothing inherits from.
    pub(crate) fn removable(&self, upto: u64) -> Option<usize> {
        let is_removable = |&at: &usize| {
            self.volumes[at].deleted.is_some_and(|record| record <= upto)
                && self.maps[at].pointer.is_none()
                && self.lineage.child_count(self.volumes[at].id) == 0
        };
        self.deleted().filter_map(|id| self.find(id)).find(is_removable)
    }

    /// Returns the number of pages that the maps can have, by level.
    pub(crate) fn map_pages(&self) -> &PagesByLevel {
        &self.sums.pages
    }

    /// Returns the height of the highest map that may come to be.
    pub(crate) fn highest_map(&self) -> u8 {
        self.sums.heights.iter().rposition(|&maps| maps > 0).unwrap_or(0) as u8
    }

    /// Returns the number of levels by which maps with pages may rise.
    pub(crate) fn raised(&self) -> u64 {
        self.sums.raised
    }

    /// Returns the volumes that no census has counted, in the order of their numbers; hidden and deleted ones are left out.
    pub(crate) fn uncounted(&self) -> impl Iterator<Item = &Volume> {
        self.uncounted.iter().filter_map(|&id| Some(&self.volumes[self.find(id)?]))
    }

    /// Returns true if a volume waits for its first census. Another one may have been counted that had the same number.
    pub(crate) fn is_uncounted(&self, id: VolumeId) -> bool {
        self.uncounted.contains(&id)
    }

    /// Notes that a census begins to count a volume.
    pub(crate) fn begin_to_count(&mut self, id: VolumeId) {
        self.exchanged.remove(&id);
    }

    /// Notes that a census has counted a volume. It counts again where the map was exchanged meanwhile.
    pub(crate) fn note_counted(&mut self, id: VolumeId) {
        if !self.exchanged.remove(&id) {
            self.uncounted.remove(&id);
        }
    }

    /// Returns the next number after that of the last insertion that no volume has, none had that the checkpoint in progress has removed, and `is_taken` is
    /// false for. Behind the last number it continues with 1.
    pub(crate) fn free_number(&self, is_taken: impl Fn(VolumeId) -> bool) -> Option<VolumeId> {
        let from = self.last_inserted.wrapping_add(1).max(1);
        (from..=u16::MAX).chain(1..from).map(VolumeId).find(|&id| self.is_free(id) && !is_taken(id))
    }

    /// Returns true if no volume and no line has a number, and none had it that the checkpoint in progress has removed.
    pub(crate) fn is_free(&self, id: VolumeId) -> bool {
        self.find(id).is_none() && !self.leaving.contains(&id) && self.newest_snapshot(id).is_none()
    }

    /// Returns the root of a volume's map.
    #[inline]
    pub(crate) fn map(&self, at: usize) -> Root {
        self.maps[at]
    }

    /// Sets the root of a volume's map, after a merge.
    pub(crate) fn set_map(&mut self, at: usize, root: Root) {
        self.count(at, -1);
        self.maps[at] = root;
        self.count(at, 1);
        self.dirty.insert(self.volumes[at].id);
    }

    /// Adds a volume to the sums, or with `sign` -1 takes it away.
    fn count(&mut self, at: usize, sign: i64) {
        self.sums.count(&self.shape, &self.volumes[at], &self.maps[at], sign);
    }

    /// Adds a volume to those with its settings.
    fn list_settings(&mut self, at: usize) {
        let volume = &self.volumes[at];
        self.settings.entry(SettingsKey::of(volume)).or_default().insert(volume.id);
    }

    /// Takes a volume from those with its settings.
    fn unlist_settings(&mut self, at: usize) {
        let (settings, id) = (SettingsKey::of(&self.volumes[at]), self.volumes[at].id);
        let group = self.settings.get_mut(&settings).expect("each volume is listed by its settings");
        assert!(group.remove(&id), "each volume is listed by its settings");
        if group.is_empty() {
            self.settings.remove(&settings);
        }
    }

    /// Remembers the count of a volume before the checkpoint in progress changes it.
    fn note_former(&mut self, at: usize) {
        let volume = &self.volumes[at];
        if let Some(former) = &mut self.former {
            former.entry(volume.id).or_insert(MappedBlocks::of(volume));
            self.dirty.insert(volume.id);
        }
    }

    /// Notes that a checkpoint begins to change counts: until [`VolumeTable::end_counting`], the former ones are known, too.
    pub(crate) fn begin_counting(&mut self) {
        assert!(self.leaving.is_empty(), "the last checkpoint has ended");
        self.former = Some(BTreeMap::new());
    }

    /// Notes that a checkpoint has changed all counts, and that no delta names the volumes that it removed.
    pub(crate) fn end_counting(&mut self) {
        self.former = None;
        self.leaving.clear();
    }

    /// Creates a volume whose number and name are free. Returns its index.
    pub(crate) fn create(&mut self, volume: Volume, root: Root) -> usize {
        self.dirty_next.insert(volume.id);
        self.has_created = true;
        self.insert(volume, root)
    }

    /// Returns true if an entry of the table on disk can be that of the next volume: its number follows, and neither size nor map is larger than any.
    pub(crate) fn admits(&self, volume: &Volume, root: &Root) -> bool {
        let follows = self.last().is_none_or(|last| last.id < volume.id);
        follows && volume.size <= self.shape.most_bytes && self.admits_level(root.height)
    }

    /// Returns true if a subtree of a map can begin at this level: addresses below a higher one would not fit into their bits.
    pub(crate) fn admits_level(&self, level: u8) -> bool {
        level <= self.shape.highest
    }

    /// Adds a volume from a leaf of the table on disk.
    pub(crate) fn load(&mut self, volume: Volume, root: Root, leaf: u64) {
        self.insert(volume, root);
        if self.form == TableForm::Packed {
            self.packed_leaves = leaf + 1;
        }
    }

    /// Adds a volume whose number and name are free. Returns its index.
    fn insert(&mut self, volume: Volume, root: Root) -> usize {
        let at = self.first_after(|id| id < volume.id);
        assert!(self.volumes.get(at).is_none_or(|next| next.id != volume.id), "a volume's number is unique");
        if volume.deleted.is_none() {
            self.list_name(&volume);
        } else {
            self.deleted.insert(volume.id);
        }
        self.volumes.insert(at, volume);
        self.maps.insert(at, root);
        if self.volumes[at].deleted.is_none() {
            self.list_settings(at);
        }
        self.count(at, 1);
        if is_counted(&self.volumes[at]) {
            self.uncounted.insert(self.volumes[at].id);
        }
        self.name_bytes += self.volumes[at].name.len() as u64;
        if let Some(snapshot) = self.volumes[at].family.snapshot.filter(|snapshot| snapshot.born > 0) {
            self.by_epoch.insert((snapshot.of, snapshot.born), self.volumes[at].id);
        }
        self.last_inserted = self.volumes[at].id.0;
        at
    }

    /// Adds the name of a volume or snapshot that is not deleted.
    fn list_name(&mut self, volume: &Volume) {
        let known = match volume.family.snapshot {
            None => self.names.insert(volume.name.clone(), volume.id),
            Some(_) if volume.is_unnamed() => {
                self.unnamed.insert(volume.id);
                None
            }
            Some(snapshot) => self.snapshots.insert((snapshot.of, volume.name.clone()), volume.id),
        };
        assert!(known.is_none(), "a volume's name is unique");
    }

    /// Takes the name of a volume or snapshot away.
    fn unlist_name(&mut self, at: usize) {
        let volume = &self.volumes[at];
        match volume.family.snapshot {
            None => drop(self.names.remove(&volume.name)),
            Some(_) if volume.is_unnamed() => drop(self.unnamed.remove(&volume.id)),
            Some(snapshot) => drop(self.snapshots.remove(&(snapshot.of, volume.name.clone()))),
        }
    }

    /// Removes a deleted volume whose map is empty.
    pub(crate) fn remove(&mut self, at: usize) -> Volume {
        assert!(
            self.volumes[at].deleted.is_some() && self.maps[at].pointer.is_none(),
            "nothing refers to the volume's blocks"
        );
        self.note_former(at);
        self.count(at, -1);
        let id = self.volumes[at].id;
        self.deleted.remove(&id);
        self.resized.remove(&id);
        if self.former.is_some() {
            self.leaving.insert(id);
        }
        self.dirty.insert(id);
        self.maps.remove(at);
        self.lineage.remove(id);
        self.giver = self.giver.filter(|&giver| giver != id);
        if let Some(snapshot) = self.volumes[at].family.snapshot {
            self.by_epoch.remove(&(snapshot.of, snapshot.born));
        }
        self.written_volumes -= u64::from(self.volumes[at].writes.exist());
        self.name_bytes -= self.volumes[at].name.len() as u64;
        self.volumes.remove(at)
    }

    /// Notes that record `sequence` deletes a volume.
    pub(crate) fn delete(&mut self, at: usize, sequence: u64) {
        if self.volumes[at].deleted.is_none() {
            self.unlist_settings(at);
            self.unlist_name(at);
            self.deleted.insert(self.volumes[at].id);
            self.uncounted.remove(&self.volumes[at].id);
            self.exchanged.remove(&self.volumes[at].id);
        }
        self.count(at, -1);
        self.volumes[at].deleted = Some(sequence);
        self.count(at, 1);
    }

    /// Sets the size of a volume in bytes.
    pub(crate) fn resize(&mut self, at: usize, size: u64) {
        self.count(at, -1);
        self.volumes[at].size = size;
        self.count(at, 1);
        self.resized.insert(self.volumes[at].id);
        self.dirty_next.insert(self.volumes[at].id);
    }

    pub(crate) fn set_properties(&mut self, at: usize, properties: VolumeProperties) {
        self.change_settings(at, |volume| volume.properties = properties);
        let has_schedule = !properties.snapshots().is_off();
        (self.has_created, self.has_scheduled) = (self.has_created | has_schedule, self.has_scheduled | has_schedule);
        self.dirty_next.insert(self.volumes[at].id);
    }

    /// Returns true if entries may have what older programs do not read: families, or schedules that were set since the pool was opened.
    pub(crate) fn uses_upper_halves(&self) -> bool {
        self.lineage.has_maps() || self.has_scheduled
    }

    /// Sets the mode that a controller has chosen for a volume.
    pub(crate) fn set_mode(&mut self, at: usize, mode: Mode) {
        let is_pressed = mode == Mode::Offline;
        if self.volumes[at].is_pressed != is_pressed {
            self.change_settings(at, |volume| volume.is_pressed = is_pressed);
        }
    }

    fn change_settings(&mut self, at: usize, change: impl FnOnce(&mut Volume)) {
        let is_listed = self.volumes[at].deleted.is_none();
        if is_listed {
            self.unlist_settings(at);
        }
        change(&mut self.volumes[at]);
        if is_listed {
            self.list_settings(at);
        }
    }

    /// Notes that a checkpoint begins: it writes the entries that have changed, with the sizes that volumes have now. Where volumes were created, it brings a
    /// packed table into its new form.
    pub(crate) fn begin_checkpoint(&mut self) {
        self.dirty = core::mem::take(&mut self.dirty_next);
        self.former_names.clear();
        if core::mem::take(&mut self.has_created) && self.form == TableForm::Packed {
            (self.form, self.rewrites) = (TableForm::ByNumber, true);
        }
        for id in core::mem::take(&mut self.resized) {
            if let Some(at) = self.find(id) {
                self.count(at, -1);
                self.volumes[at].merged_size = self.volumes[at].size;
                self.count(at, 1);
            }
        }
    }

    /// Notes that a merge has mapped blocks of a volume to slots, and that others do not map to slots any more.
    pub(crate) fn note_merged(&mut self, at: usize, mapped: u64, unmapped: u64) {
        let used = self.volumes[at].logical_blocks_used;
        self.set_used(at, (used + mapped).saturating_sub(unmapped));
    }

    /// Notes that a map does not inherit `blocks` mapped blocks of its parent any more.
    pub(crate) fn note_hidden(&mut self, at: usize, blocks: u64) {
        if blocks > 0 {
            self.volumes[at].family.hidden.blocks += blocks;
            self.dirty.insert(self.volumes[at].id);
        }
    }

    /// Notes that a page with blocks that a map hides cannot be read: they are not counted.
    pub(crate) fn note_hidden_is_low(&mut self, at: usize) {
        self.volumes[at].family.hidden.is_low = true;
        self.dirty.insert(self.volumes[at].id);
    }

    /// Notes that `blocks` blocks that a map hides were released.
    pub(crate) fn note_unhidden(&mut self, at: usize, blocks: u64) {
        if blocks > 0 {
            let hidden = &mut self.volumes[at].family.hidden.blocks;
            *hidden = hidden.saturating_sub(blocks);
            self.dirty.insert(self.volumes[at].id);
        }
    }

    /// Puts a recounted number of blocks that a map does not inherit in place.
    pub(crate) fn recount_hidden(&mut self, at: usize, blocks: u64) {
        self.volumes[at].family.hidden = Hidden { blocks, is_low: false };
    }

    fn set_used(&mut self, at: usize, blocks: u64) {
        self.note_former(at);
        let volume = &mut self.volumes[at];
        let before = core::mem::replace(&mut volume.logical_blocks_used, blocks);
        let sum = self.sums.mapped.of_kind(MappedBlocks::of(volume));
        *sum = *sum - before + blocks;
        if let Some(of) = snapshots_with(volume) {
            let held = &mut self.sums.held_by_snapshots(of).blocks;
            *held = *held - before + blocks;
        }
    }

    /// Notes that `blocks` blocks of a volume do not map to slots any more. Returns false if the volume is not there.
    #[inline]
    pub(crate) fn note_unmapped(&mut self, id: VolumeId, blocks: u64) -> bool {
        let Some(at) = self.find(id) else { return false };
        self.set_used(at, self.volumes[at].logical_blocks_used.saturating_sub(blocks));
        true
    }

    /// Puts a recounted number of mapped blocks in place, with the size that is to be written.
    pub(crate) fn recount(&mut self, at: usize, mapped: u64) {
        self.note_former(at);
        self.count(at, -1);
        let volume = &mut self.volumes[at];
        (volume.merged_size, volume.logical_blocks_used) = (volume.size, mapped);
        self.count(at, 1);
    }

    /// Adds to the counts of a volume's writes.
    pub(crate) fn count_writes(&mut self, at: usize, counts: WriteCounts) {
        *self.writes_of(at) += counts;
    }

    /// Counts a write with unchanged content.
    pub(crate) fn count_unchanged(&mut self, at: usize) {
        self.writes_of(at).unchanged_blocks += 1;
    }

    /// Returns the counts of a volume's writes: they take memory from the first write on.
    fn writes_of(&mut self, at: usize) -> &mut WriteCounts {
        let writes = &mut self.volumes[at].writes;
        self.written_volumes += u64::from(!writes.exist());
        writes.counts_mut()
    }

    /// Returns the form of the table on disk, or the one that the checkpoint in progress gives it.
    pub(crate) fn form(&self) -> TableForm {
        self.form
    }

    /// Sets the form that the table on disk has.
    pub(crate) fn set_form(&mut self, form: TableForm) {
        assert!(self.volumes.is_empty(), "the form is known before the volumes");
        self.form = form;
    }

    /// Returns the number of leaves that the volumes fill which checkpoint `done + 1` writes.
    fn leaves(&self, done: u64) -> u64 {
        let per_leaf = self.form.per_leaf(self.block);
        match self.form {
            TableForm::Packed => (self.written(done).count() as u64).div_ceil(per_leaf),
            TableForm::ByNumber => u64::from(self.last().map_or(0, |last| last.id.0)).div_ceil(per_leaf),
        }
    }

    /// Returns the volumes that checkpoint `done + 1` writes: volumes created after it began are not part of it.
    fn written(&self, done: u64) -> impl Iterator<Item = (&Volume, &Root)> + Clone {
        self.with_maps().filter(move |(volume, _)| volume.since <= done + 1)
    }

    /// Returns the first leaf from `from` on that checkpoint `done + 1` has to write.
    pub(crate) fn next_dirty_leaf(&self, from: u64, done: u64) -> Option<u64> {
        if self.rewrites || self.form == TableForm::Packed {
            return (from < self.leaves(done).max(self.packed_leaves)).then_some(from);
        }
        let per_leaf = self.form.per_leaf(self.block);
        let first = VolumeId(u16::try_from(from * per_leaf + 1).ok()?);
        self.dirty.range(first..).next().map(|id| u64::from(id.0 - 1) / per_leaf)
    }

    /// Writes a leaf as checkpoint `done + 1` has it.
    pub(crate) fn write_leaf(&self, leaf: u64, done: u64, bytes: &mut [u8]) {
        bytes.fill(0);
        let entry = self.form.entry_bytes() as usize;
        let per_leaf = self.form.per_leaf(self.block);
        let mut write = |at: u64, volume: &Volume, root: &Root| {
            let out = &mut bytes[at as usize * entry..][..entry];
            let former = self.former_names.get(&volume.id).filter(|_| !volume.is_unnamed());
            let rolled_back = self.rolled_back.get(&volume.id);
            if former.is_none() && rolled_back.is_none() {
                return volume::encode(volume, *root, out);
            }
            let (mut volume, mut root) = (volume.clone(), *root);
            volume.name = former.unwrap_or(&volume.name).clone();
            if let Some(&snapshot) = rolled_back {
                (volume.merged_size, root) = self.as_rolled_back(snapshot);
                volume.family = Family { parent: Some(snapshot), hidden: Hidden::default(), ..volume.family };
            }
            volume::encode(&volume, root, out);
        };
        match self.form {
            TableForm::Packed => {
                let here = self.written(done).skip((leaf * per_leaf) as usize).take(per_leaf as usize);
                (0..).zip(here).for_each(|(at, (volume, root))| write(at, volume, root));
            }
            TableForm::ByNumber => {
                let number = |volume: VolumeId| u64::from(volume.0) - 1;
                let first = self.first_after(|id| number(id) < leaf * per_leaf);
                let end = self.first_after(|id| number(id) < (leaf + 1) * per_leaf);
                for (volume, root) in self.volumes[first..end].iter().zip(&self.maps[first..end]) {
                    if volume.since <= done + 1 {
                        write(number(volume.id) - leaf * per_leaf, volume, root);
                    }
                }
            }
        }
    }

    /// Returns the size and the root that a rollback to a snapshot gives a volume.
    fn as_rolled_back(&self, snapshot: VolumeId) -> (u64, Root) {
        let at = self.find(snapshot).expect("nothing deletes it meanwhile");
        let born = self.volumes[at].family.snapshot.map_or(0, |snapshot| snapshot.born);
        (self.volumes[at].size, inherited_root(self.maps[at], born))
    }

    /// Notes that checkpoint `done + 1` has written its leaves.
    pub(crate) fn end_write(&mut self, done: u64) {
        self.packed_leaves = if self.form == TableForm::Packed { self.leaves(done) } else { 0 };
        self.rewrites = false;
        self.dirty.clear();
    }

    /// Returns the most leaves that a checkpoint writes which changes `touched` volumes beside those that are known to have changed, and the leaves that the
    /// table then reaches over. One more volume may be created meanwhile.
    pub(crate) fn leaves_to_write(&self, touched: u64) -> (u64, u64) {
        let per_leaf = self.block / VOLUME_BYTES;
        let last = self.last().map_or(0, |last| u64::from(last.id.0)) + 1;
        let reach = last.div_ceil(per_leaf).max(self.packed_leaves);
        let all = (self.volumes.len() as u64 + 1 + self.packed_leaves).min(reach);
        if self.rewrites || self.form == TableForm::Packed {
            return (all, reach);
        }
        let changed = (self.dirty.len() + self.dirty_next.len()) as u64 + 1;
        (touched.saturating_add(changed).min(all), reach)
    }

    /// Returns true if all figures equal those of a walk of the list.
    #[cfg(any(test, feature = "mutants"))]
    pub(crate) fn is_consistent(&self) -> bool {
        let mut counted = VolumeTable { shape: self.shape, ..VolumeTable::default() };
        for (volume, &root) in self.with_maps() {
            counted.insert(volume.clone(), root);
        }
        let resized = |volume: &&Volume| volume.size != volume.merged_size;
        let written = self.volumes.iter().filter(|volume| volume.writes.exist()).count();
        self.names == counted.names
            && self.snapshots == counted.snapshots
            && self.unnamed == counted.unnamed
            && self.by_epoch == counted.by_epoch
            && self.settings == counted.settings
            && self.deleted == counted.deleted
            && self.sums == counted.sums
            && self.name_bytes == counted.name_bytes
            && self.written_volumes == written as u64
            && self.uncounted.is_subset(&counted.uncounted)
            && self.volumes.iter().filter(resized).all(|volume| self.resized.contains(&volume.id))
    }

    /// Returns the bytes of memory of volumes, roots and indexes.
    pub(crate) fn memory(&self) -> u64 {
        let volumes = self.volumes.len() as u64;
        let name = size_of::<String>() as u64 + size_of::<VolumeId>() as u64 + NODE_BYTES;
        let number = size_of::<VolumeId>() as u64 + NODE_BYTES;
        let epochs = self.by_epoch.len() as u64 * (size_of::<(VolumeId, u64, VolumeId)>() as u64 + NODE_BYTES);
        let settings = self.settings.len() as u64 * (size_of::<SettingsKey>() as u64 + NODE_BYTES);
        let writes = self.written_volumes * size_of::<WriteCounts>() as u64;
        list_bytes(&self.volumes)
            + list_bytes(&self.maps)
            + settings
            + epochs
            + volumes * (name + number)
            + 2 * self.name_bytes
            + writes
    }
}

/// Returns true if a census counts the blocks of the volume.
fn is_counted(volume: &Volume) -> bool {
    volume.keeps.is_none() && volume.deleted.is_none() && !volume.is_snapshot()
}

#[cfg(test)]
mod tests;
