//! The complete index on disk: digest to slot for every block of data. A hint (docs/rfc/0009), kept by checkpoints while a
//! volume has the policy `full`, which alone looks into it, where the index in memory knows nothing.
//!
//! One tree; a leaf is a bucket of entries, each a slot and a tag. In a checkpoint:
//!
//! ```text
//! Freed   the digests of slots that lost their last reference, from the summaries
//! Build   while it is not complete: digests of the next slots in use
//! Sort    all of them, and those of new slots, into the order of buckets
//! Apply   one leaf after the other
//! ```
//!
//! Whatever it says is proven by the summary before it is used. A page of it that is lost is an empty bucket.

use alloc::vec::Vec;
use core::ops::Range;

use crate::bytes::{put_u64, u64_at};
use crate::canary::Canary;
use crate::checkpoint::{Checkpoint, Discard, Progress};
use crate::contract::*;
use crate::engine::{Engine, Phase};
use crate::entry::Slot;
use crate::geometry::Geometry;
use crate::memory::list_bytes;
use crate::pages::Region;
use crate::request::OnDisk;
use crate::summaries::read_summary;
use crate::superblock::{DiskIndexRecord, Pointer, Root, TreeId};
use crate::tree::{Missing, Stop, Walk, Writer, height_for, lookup};
use crate::write::{Known, SUMMARY_BYTES};

/// Bytes of an entry: slot plus one, tag. Zero: no entry.
pub const ENTRY_BYTES: u64 = 8;
const SLOT_PLUS_ONE_BITS: u32 = 37;
/// Slots that are named for a tag, at most.
const COPIES: usize = 4;
/// Times that a write waits for pages before the index on disk counts as knowing nothing: those on the path to the bucket, of the
/// space map and of the summaries follow each other.
const ATTEMPTS: u8 = 16;
/// Changes that one step sorts.
const SORTED_AT_ONCE: usize = 1 << 14;
/// Buckets whose pages could not be read and are remembered.
const UNREADABLE: usize = 64;
/// On the discard list, the volume of a subtree of the index: none has this number.
pub(crate) const NO_VOLUME: VolumeId = VolumeId(0);

/// The index on disk, in figures.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DiskIndexStatus {
    /// Buckets, each a page; 0: there is no such index.
    pub buckets: u64,
    /// Blocks of data that are in it, about.
    pub entries: u64,
    /// Whether all of them are.
    pub is_complete: bool,
    /// Blocks that were looked up in it,
    pub lookups: u64,
    /// pages that had to be loaded for that: its own, and those that prove what it names,
    pub loads: u64,
    /// and blocks that it knew.
    pub hits: u64,
}

/// What an audit of the index on disk finds. Nothing of it is damage: stale entries and those that it lacks cost savings.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DiskIndexAudit {
    /// Entries.
    pub entries: u64,
    /// Those of them that name a slot which is not in use or holds something else, or that are in another bucket than is looked at.
    pub stale: u64,
    /// Slots in use that no entry names. (Equal blocks beyond the fourth are among them, and second copies are not.)
    pub absent: u64,
}

/// What the engine remembers of it.
#[derive(Default)]
pub(crate) struct DiskIndex {
    /// As the next superblock has it.
    pub record: DiskIndexRecord,
    /// Something that matters more needs the metadata.
    gives_up: bool,
    /// Buckets whose pages could not be read: digests that belong there.
    unreadable: Vec<u64>,
    lookups: u64,
    loads: u64,
    hits: u64,
}

/// A change of the index: the part of the digest that it knows, the slot, and whether the entry goes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Change {
    hash: u64,
    /// The slot, and in the lowest bit whether the entry goes.
    what: u64,
}

impl Change {
    fn enter(digest: Digest, slot: Slot) -> Change {
        Change { hash: hash_of(digest), what: slot.0 << 1 }
    }

    fn remove(digest: Digest, slot: Slot) -> Change {
        Change { hash: hash_of(digest), what: slot.0 << 1 | 1 }
    }

    /// Visits a bucket and changes nothing: removes what cannot be there.
    fn visit(hash: u64) -> Change {
        Change { hash, what: u64::MAX }
    }

    fn apply(self, bucket: &mut [u8]) {
        if self.what & 1 == 0 {
            enter(bucket, entry(self.hash, Slot(self.what >> 1)));
        } else if self.what != u64::MAX {
            remove(bucket, entry(self.hash, Slot(self.what >> 1)));
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    Freed,
    Build,
    Sort,
    Apply,
}

/// The part of a checkpoint that changes the index.
pub(crate) struct Update {
    step: Step,
    changes: Vec<Change>,
    /// Slots whose last reference is gone: so many of them are among the changes.
    freed_at: usize,
    /// Changes that there may be, and so how far it builds.
    most: usize,
    /// As [`DiskIndexRecord::built`].
    built: u32,
    unsorted: Vec<Range<usize>>,
    at: usize,
    /// A page was lost: everything is entered once more.
    lost: bool,
}

impl Update {
    /// Bytes of memory.
    pub(crate) fn memory(&self) -> u64 {
        list_bytes(&self.changes)
    }
}

/// The part of a digest that the index looks at.
fn hash_of(digest: Digest) -> u64 {
    (u128::from_le_bytes(digest.0) >> 64) as u64
}

fn bucket_of(hash: u64, buckets: u32) -> u64 {
    ((u128::from(hash) * u128::from(buckets)) >> 64) as u64
}

fn entry(hash: u64, slot: Slot) -> u64 {
    hash << SLOT_PLUS_ONE_BITS | (slot.0 + 1)
}

fn slot_of(entry: u64) -> Option<Slot> {
    (entry & ((1 << SLOT_PLUS_ONE_BITS) - 1)).checked_sub(1).map(Slot)
}

fn has_tag(entry: u64, hash: u64) -> bool {
    entry >> SLOT_PLUS_ONE_BITS == hash << SLOT_PLUS_ONE_BITS >> SLOT_PLUS_ONE_BITS && entry != 0
}

fn entries(bucket: &[u8]) -> impl Iterator<Item = u64> + '_ {
    bucket.chunks_exact(ENTRY_BYTES as usize).map(|bytes| u64_at(bytes, 0))
}

/// Enters a slot, unless the bucket is full or names enough slots with that tag.
fn enter(bucket: &mut [u8], new: u64) {
    let (mut free, mut same) = (None, 0);
    for (at, known) in entries(bucket).enumerate() {
        match known {
            0 if free.is_none() => free = Some(at),
            _ if known == new => return,
            _ => same += usize::from(known != 0 && known >> SLOT_PLUS_ONE_BITS == new >> SLOT_PLUS_ONE_BITS),
        }
    }
    if let Some(at) = free.filter(|_| same < COPIES) {
        put_u64(bucket, at * ENTRY_BYTES as usize, new);
    }
}

fn remove(bucket: &mut [u8], old: u64) {
    let at = entries(bucket).position(|known| known == old);
    if let Some(at) = at {
        put_u64(bucket, at * ENTRY_BYTES as usize, 0);
    }
}

/// Entries of a bucket.
fn bucket_entries(geometry: &Geometry) -> u64 {
    geometry.block() / ENTRY_BYTES
}

/// Buckets for all slots of a pool: two thirds of each are filled.
fn buckets_for(geometry: &Geometry) -> u32 {
    u32::try_from((3 * geometry.slots()).div_ceil(2 * bucket_entries(geometry))).unwrap_or(u32::MAX)
}

/// Whether the pool has outgrown so many buckets: more than five sixths of each would be filled.
fn is_outgrown(geometry: &Geometry, buckets: u32) -> bool {
    6 * geometry.slots() > 5 * u64::from(buckets) * bucket_entries(geometry)
}

/// The most pages that changing so many leaves of an index with so many buckets writes.
fn pages_for(geometry: &Geometry, buckets: u32, leaves: u64) -> usize {
    let (mut pages, mut level) = (0, u64::from(buckets));
    for _ in 0..=height_for(buckets.into(), geometry.fanout()) {
        pages += leaves.min(level);
        level = level.div_ceil(geometry.fanout());
    }
    pages as usize
}

impl Engine {
    /// Figures of the index on disk.
    pub fn disk_index_status(&self) -> DiskIndexStatus {
        let DiskIndex { record, lookups, loads, hits, .. } = self.disk_index;
        let leaves = self.table_leaves(TreeId::Summaries).max(1);
        let used = self.space.data_used;
        let entries = if record.is_complete() { used } else { used * u64::from(record.built).min(leaves) / leaves };
        DiskIndexStatus {
            buckets: record.buckets.into(),
            entries: if record.is_on() { entries } else { 0 },
            is_complete: record.is_complete(),
            lookups,
            loads,
            hits,
        }
    }

    // ---- when there is one ----

    /// Whether a volume has the policy that looks into the index on disk.
    fn disk_index_is_wanted(&self) -> bool {
        let wants = |volume: &crate::volume::Volume| {
            volume.deleted.is_none() && volume.keeps.is_none() && self.policy_of(volume) == Policy::Full
        };
        self.volumes.iter().any(wants)
    }

    /// After opening: a change of policies may not have come as far as the index.
    pub(crate) fn open_disk_index(&mut self) {
        self.want_checkpoint |= !self.reads_only && self.disk_index_is_wanted() != self.disk_index.record.is_on();
    }

    /// Whether a checkpoint is due only to go on with it.
    pub(crate) fn disk_index_is_due(&self) -> bool {
        let index = &self.disk_index;
        let unfinished = !index.record.is_complete()
            || is_outgrown(&self.store.geometry, index.record.buckets)
            || !index.unreadable.is_empty();
        // Who has a command pending waits for one checkpoint, not for all that it takes.
        index.record.is_on()
            && unfinished
            && self.phase == Phase::Serving
            && !self.reads_only
            && self.rebuild.is_none()
            && self.pending_commands.is_empty()
    }

    /// At the beginning of a checkpoint: whether there is to be one.
    pub(crate) fn review_disk_index(&mut self) {
        let wanted = self.disk_index_is_wanted() && !core::mem::take(&mut self.disk_index.gives_up);
        let geometry = self.store.geometry;
        let record = self.disk_index.record;
        if !wanted || record.is_on() && is_outgrown(&geometry, record.buckets) {
            self.cut_disk_index_off();
        }
        let buckets = buckets_for(&geometry);
        let room = 2 * pages_for(&geometry, buckets, buckets.into()) + self.pages_to_merge(0) + self.metadata_reserve();
        if wanted && !self.disk_index.record.is_on() && room <= self.store.meta.free() as usize {
            self.disk_index.record = DiskIndexRecord { buckets, built: 0 };
            let height = height_for(buckets.into(), geometry.fanout());
            self.roots[TreeId::DiskIndex as usize] = Root { height, ..Root::default() };
        }
    }

    /// Its pages go to the discard list.
    fn cut_disk_index_off(&mut self) {
        let root = core::mem::take(&mut self.roots[TreeId::DiskIndex as usize]);
        if !root.pointer.is_none() {
            self.discards.push(Discard { pointer: root.pointer, volume: NO_VOLUME, level: root.height });
        }
        self.disk_index.record = DiskIndexRecord::default();
        self.disk_index.unreadable.clear();
    }

    /// Metadata is short: the next checkpoint gives the index up. False if there is none.
    pub(crate) fn give_up_disk_index(&mut self) -> bool {
        let has_pages = !self.roots[TreeId::DiskIndex as usize].pointer.is_none();
        self.disk_index.gives_up |= has_pages;
        has_pages
    }

    /// Walks one page of an index that was cut off. One that cannot be read stays on the list, at its beginning.
    pub(crate) fn walk_disk_index(&mut self, discard: Discard) -> Result<(), Stop> {
        let Discard { pointer, volume, level } = discard;
        let mut children = Vec::new();
        if self.is_index_page(pointer.location) && level > 0 {
            match self.metadata_page(pointer) {
                Ok(page) => {
                    let pointers = self.store.pages.bytes(page).chunks_exact(16);
                    children.extend(pointers.map(|child| Pointer::read(child, 0)));
                }
                Err(Stop::Missing(missing)) if self.failed_pages.contains(&missing.key) => {
                    self.discards.rotate_right(1);
                    self.stuck_discards += 1;
                    return Ok(());
                }
                Err(stop) => return Err(stop),
            }
        }
        self.discards.pop();
        self.free_index_page(pointer.location);
        for pointer in children {
            if level == 1 {
                self.free_index_page(pointer.location);
            } else if !pointer.is_none() {
                self.discards.push(Discard { pointer, volume, level: level - 1 });
            }
        }
        Ok(())
    }

    fn is_index_page(&self, location: u32) -> bool {
        let key = crate::pages::PageKey { region: Region::Metadata, location };
        self.store.is_valid(key) && self.store.meta.is_used(location)
    }

    fn free_index_page(&mut self, location: u32) {
        if self.is_index_page(location) {
            self.store.meta.free_later(location);
        }
    }

    // ---- lookups ----

    /// What it knows of a block of a request, proven; for policies that look into it.
    pub(crate) fn known_on_disk(&mut self, id: RequestId, at: usize, digest: Digest) -> Known {
        let request = self.requests.get_mut(id);
        if !self.disk_index.record.is_on() || request.attempts >= ATTEMPTS {
            return Known::No;
        }
        let block = &mut request.blocks[at];
        if block.on_disk == OnDisk::NotAsked {
            block.on_disk = OnDisk::Asked;
            self.disk_index.lookups += 1;
        }
        match self.find_on_disk(digest) {
            Ok(Some(slot)) => {
                let block = &mut self.requests.get_mut(id).blocks[at];
                self.disk_index.hits += u64::from(core::mem::replace(&mut block.on_disk, OnDisk::Hit) != OnDisk::Hit);
                self.note_known(digest, slot);
                Known::Yes(slot, digest)
            }
            Ok(None) => Known::No,
            Err(missing) => {
                self.disk_index.loads += u64::from(!self.store.pages.is_loading(missing.key));
                Known::NotYet(missing)
            }
        }
    }

    /// Whether a request may wait once more for what the index on disk needs.
    pub(crate) fn may_ask_disk(&self, id: RequestId, at: usize) -> bool {
        let request = self.requests.get(id);
        request.blocks[at].on_disk != OnDisk::NotAsked && request.attempts < ATTEMPTS
    }

    fn find_on_disk(&mut self, digest: Digest) -> Result<Option<Slot>, Missing> {
        let hash = hash_of(digest);
        let bucket = bucket_of(hash, self.disk_index.record.buckets);
        let root = self.roots[TreeId::DiskIndex as usize];
        let page = match lookup(&mut self.store, Region::Metadata, root, bucket) {
            Walk::Leaf(page) => page,
            Walk::Absent(_) => return Ok(None),
            Walk::Missing(missing) if self.failed_pages.contains(&missing.key) => {
                self.note_unreadable(hash);
                return Ok(None);
            }
            Walk::Missing(missing) => return Err(missing),
        };
        let mut named = [None; COPIES];
        let slots = entries(self.store.pages.bytes(page)).filter(|&entry| has_tag(entry, hash)).filter_map(slot_of);
        named.iter_mut().zip(slots).for_each(|(place, slot)| *place = Some(slot));
        let mut wants = None;
        for slot in named.into_iter().flatten() {
            match self.holds(slot, digest) {
                Ok(true) => return Ok(Some(slot)),
                Ok(false) => {}
                Err(missing) if self.failed_pages.contains(&missing.key) => {}
                Err(missing) => wants = wants.or(Some(missing)),
            }
        }
        wants.map_or(Ok(None), Err)
    }

    /// Whether a slot is live and holds what has this digest.
    fn holds(&mut self, slot: Slot, digest: Digest) -> Result<bool, Missing> {
        if !self.space.contains(slot) {
            return Ok(false);
        }
        if let Some(recent) = self.delta.live(slot).or_else(|| self.frozen.live(slot)) {
            return Ok(recent.digest == digest);
        }
        Ok(self.slot_state(slot)?.is_used() && self.summary(slot)? == Some(digest))
    }

    fn note_unreadable(&mut self, hash: u64) {
        let DiskIndex { record, unreadable, .. } = &mut self.disk_index;
        let bucket = |hash| bucket_of(hash, record.buckets);
        if unreadable.len() < UNREADABLE && !unreadable.iter().any(|&known| bucket(known) == bucket(hash)) {
            unreadable.push(hash);
        }
    }

    // ---- the checkpoint ----

    /// The most changes that the checkpoint which has just begun brings, and the pages that they may take.
    pub(crate) fn disk_index_room(&self, fresh: usize) -> usize {
        let frozen = &self.frozen;
        let walked = u64::from(self.discard_budget()) * self.store.geometry.map_leaf_entries();
        let freed = frozen.points.len() as u64 + frozen.slots.len() as u64 + frozen.releases + walked;
        let batch = (self.build_batch() as u64).max(self.store.geometry.block() / SUMMARY_BYTES);
        let changes = freed + (fresh + UNREADABLE) as u64 + batch;
        pages_for(&self.store.geometry, self.disk_index.record.buckets, changes)
    }

    /// Slots that one checkpoint enters while the index is being built.
    fn build_batch(&self) -> usize {
        if self.disk_index.record.is_complete() { 0 } else { self.limits.delta_entries as usize }
    }

    /// The stage of a checkpoint: brings the index up to what has been merged.
    pub(crate) fn merge_disk_index(&mut self, checkpoint: &mut Checkpoint) -> Result<Progress, Stop> {
        if !self.disk_index.record.is_on() {
            return Ok(Progress::Next);
        }
        let mut update = match checkpoint.index_update.take() {
            Some(update) => update,
            None => match self.begin_update(checkpoint) {
                Some(update) => update,
                None => {
                    self.cut_disk_index_off();
                    return Ok(Progress::Next);
                }
            },
        };
        let progress = match update.step {
            Step::Freed => self.gather_freed(checkpoint, &mut update),
            Step::Build => self.gather_built(&mut update),
            Step::Sort => Ok(sort(&mut update)),
            Step::Apply => self.apply(checkpoint, &mut update),
        };
        if !matches!(progress, Ok(Progress::Next)) {
            checkpoint.index_update = Some(update);
        }
        progress
    }

    /// `None`: there is no room for the pages that it would write.
    fn begin_update(&mut self, checkpoint: &mut Checkpoint) -> Option<Update> {
        let per_leaf = (self.store.geometry.block() / SUMMARY_BYTES) as usize;
        let batch = match (self.phase, self.build_batch()) {
            (Phase::Closing, _) | (_, 0) => 0,
            (_, most) if self.is_pressed() => (most / 8).max(per_leaf),
            (_, most) => most.max(per_leaf),
        };
        let unreadable = core::mem::take(&mut self.disk_index.unreadable);
        let most = checkpoint.fresh.len() + checkpoint.freed.len() + unreadable.len();
        let record = self.disk_index.record;
        let pages = pages_for(&self.store.geometry, record.buckets, (most + batch) as u64);
        let needed = pages + self.pages_to_merge(0) + self.metadata_reserve();
        if needed > self.store.meta.free() as usize || pages > checkpoint.index_room {
            return None;
        }
        checkpoint.index_pages = pages;
        // The merge is done: what it came to is in the space map, and the memory is needed here.
        (checkpoint.changes, checkpoint.change_at) = (Vec::new(), 0);
        let mut changes = Vec::with_capacity(most + batch);
        changes.extend(unreadable.into_iter().map(Change::visit));
        for &slot in &checkpoint.fresh {
            let recent = self.frozen.slots[&slot];
            if self.copied_from(recent.owner).is_none() {
                changes.push(Change::enter(recent.digest, slot));
            }
        }
        Some(Update {
            step: Step::Freed,
            changes,
            freed_at: 0,
            most: most + batch,
            built: record.built,
            unsorted: Vec::new(),
            at: 0,
            lost: false,
        })
    }

    /// A page of summaries, if it can be read.
    fn summary_page(&mut self, leaf: u64) -> Result<Option<PageId>, Stop> {
        match lookup(&mut self.store, Region::Metadata, self.roots[TreeId::Summaries as usize], leaf) {
            Walk::Leaf(page) => Ok(Some(page)),
            Walk::Absent(_) => Ok(None),
            Walk::Missing(missing) if self.failed_pages.contains(&missing.key) => Ok(None),
            Walk::Missing(missing) => Err(Stop::Missing(missing)),
        }
    }

    /// Asks for the pages of a tree that come next, where they are not in memory.
    fn load_leaves_ahead(&mut self, tree: TreeId, leaves: impl Iterator<Item = u64>) {
        if !self.should_load_ahead() {
            return;
        }
        let root = self.roots[tree as usize];
        let mut last = None;
        let mut looked = 0;
        for leaf in leaves {
            if last == Some(leaf) {
                continue;
            }
            if looked == self.load_ahead() || !self.may_load_ahead() {
                break;
            }
            (last, looked) = (Some(leaf), looked + 1);
            if let Walk::Missing(missing) = lookup(&mut self.store, Region::Metadata, root, leaf)
                && !self.failed_pages.contains(&missing.key)
            {
                self.store.load(missing, None);
            }
        }
    }

    /// The digests of the freed slots of one page of summaries. A slot whose summary is lost leaves a stale entry behind.
    fn gather_freed(&mut self, checkpoint: &Checkpoint, update: &mut Update) -> Result<Progress, Stop> {
        let per_leaf = self.store.geometry.block() / SUMMARY_BYTES;
        let Some(&first) = checkpoint.freed.get(update.freed_at) else {
            update.step = Step::Build;
            return Ok(Progress::More);
        };
        let leaf = first.0 / per_leaf;
        self.load_leaves_ahead(
            TreeId::Summaries,
            checkpoint.freed[update.freed_at..].iter().map(|slot| slot.0 / per_leaf),
        );
        let page = self.summary_page(leaf)?;
        while let Some(&slot) = checkpoint.freed.get(update.freed_at)
            && slot.0 / per_leaf == leaf
        {
            update.freed_at += 1;
            if let Some(page) = page {
                let at = (slot.0 % per_leaf * SUMMARY_BYTES) as usize;
                let (digest, owner) = read_summary(self.store.pages.bytes(page), at);
                if self.copied_from(owner).is_none() && !self.canary(Canary::ForgottenRemoval) {
                    update.changes.push(Change::remove(digest, slot));
                }
            }
        }
        Ok(Progress::More)
    }

    /// The digests of the blocks of data of the next page of summaries.
    fn gather_built(&mut self, update: &mut Update) -> Result<Progress, Stop> {
        let per_leaf = self.store.geometry.block() / SUMMARY_BYTES;
        let (leaf, leaves) = (u64::from(update.built), self.table_leaves(TreeId::Summaries));
        if leaf >= leaves {
            update.built = DiskIndexRecord::COMPLETE;
        }
        if leaf >= leaves || update.changes.len() + per_leaf as usize > update.most {
            update.step = Step::Sort;
            update.unsorted.push(0..update.changes.len());
            return Ok(Progress::More);
        }
        self.load_leaves_ahead(TreeId::Summaries, leaf..leaves);
        let next = self.each_block_of_leaf(leaf, |_, slot, _, digest| {
            update.changes.push(Change::enter(digest, slot));
        });
        update.built = next.map_err(Stop::Missing)?.min(leaves) as u32;
        Ok(Progress::More)
    }

    /// Changes one bucket.
    fn apply(&mut self, checkpoint: &mut Checkpoint, update: &mut Update) -> Result<Progress, Stop> {
        let buckets = self.disk_index.record.buckets;
        let root = self.roots[TreeId::DiskIndex as usize];
        let Some(&first) = update.changes.get(update.at) else {
            if let Some(writer) = &mut checkpoint.writer {
                self.roots[TreeId::DiskIndex as usize] = writer.finish(&mut self.store)?;
                checkpoint.writer = None;
            }
            self.disk_index.record.built = if update.lost { 0 } else { update.built };
            checkpoint.index_pages = 0;
            return Ok(Progress::Next);
        };
        let bucket = bucket_of(first.hash, buckets);
        let next = update.changes[update.at..].iter().map(|change| bucket_of(change.hash, buckets));
        self.load_leaves_ahead(TreeId::DiskIndex, next);
        let writer = checkpoint.writer.get_or_insert_with(|| Writer::new(Region::Metadata, root));
        let page = match writer.leaf(&mut self.store, bucket, true) {
            Ok(page) => page.expect("created"),
            Err(Stop::Missing(missing)) if self.failed_pages.contains(&missing.key) => {
                let level = writer.leave_out(&mut self.store, bucket);
                update.lost = true;
                // What it led to is in use as long as nobody knows what that was.
                let Missing { key, pointer } = missing;
                if level > 0 {
                    self.discards.push(Discard { pointer, volume: NO_VOLUME, level });
                } else {
                    self.free_index_page(key.location);
                }
                return Ok(Progress::More);
            }
            Err(stop) => return Err(stop),
        };
        let bytes = self.store.pages.bytes_mut(page);
        while let Some(&change) = update.changes.get(update.at)
            && bucket_of(change.hash, buckets) == bucket
        {
            change.apply(bytes);
            update.at += 1;
        }
        Ok(Progress::More)
    }

    // ---- the audit ----

    /// Compares the index on disk with the summaries, on an engine at rest: `None` if there is none, or if pages of tables cannot be
    /// read. Takes 17 bytes of memory a slot.
    pub fn check_disk_index(&self, read: &mut crate::check::ReadMetadata<'_>) -> Option<DiskIndexAudit> {
        let buckets = self.disk_index.record.buckets;
        if buckets == 0 {
            return None;
        }
        let mut audit = DiskIndexAudit::default();
        let mut hashes = alloc::vec![None; self.geometry().slots() as usize];
        self.each_digest_in_use(read, &mut |slot, digest, owner| {
            if self.copied_from(owner).is_none() {
                hashes[slot.0 as usize] = Some(hash_of(digest));
            }
        })?;
        let mut named = alloc::vec![false; hashes.len()];
        self.each_table_leaf(read, TreeId::DiskIndex, &mut |bucket, page| {
            for entry in entries(page).filter(|&entry| entry != 0) {
                let slot = slot_of(entry).map_or(usize::MAX, |slot| slot.0 as usize);
                let hash = hashes.get(slot).copied().flatten();
                let fits = |&hash: &u64| has_tag(entry, hash) && bucket_of(hash, buckets) == bucket;
                audit.entries += 1;
                match hash.filter(fits) {
                    Some(_) => named[slot] = true,
                    None => audit.stale += 1,
                }
            }
        })?;
        audit.absent = hashes.iter().zip(named).filter(|(hash, named)| hash.is_some() && !named).count() as u64;
        Some(audit)
    }
}

/// Sorts one part of the changes, or divides it in two.
fn sort(update: &mut Update) -> Progress {
    let Some(part) = update.unsorted.pop() else {
        update.step = Step::Apply;
        return Progress::More;
    };
    let changes = &mut update.changes[part.clone()];
    if changes.len() > SORTED_AT_ONCE {
        let middle = changes.len() / 2;
        changes.select_nth_unstable(middle);
        update.unsorted.extend([part.start + middle..part.end, part.start..part.start + middle]);
    } else {
        changes.sort_unstable();
    }
    Progress::Pause
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(hash: u64) -> Digest {
        Digest((u128::from(hash) << 64).to_le_bytes())
    }

    fn slots(bucket: &[u8], hash: u64) -> Vec<u64> {
        entries(bucket).filter(|&entry| has_tag(entry, hash)).filter_map(slot_of).map(|slot| slot.0).collect()
    }

    #[test]
    fn an_entry_holds_the_greatest_slot_and_is_found_by_its_tag_alone() {
        let most = Slot((1 << crate::geometry::SLOT_BITS) - 1);
        let mut bucket = [0; 64];
        for (hash, slot) in [(u64::MAX, most), (1 << 63, Slot(0)), (5, Slot(7))] {
            Change::enter(digest(hash), slot).apply(&mut bucket);
        }
        assert_eq!(slots(&bucket, u64::MAX), [most.0]);
        assert_eq!(slots(&bucket, 5), [7]);
        assert_eq!(slots(&bucket, 6), [0; 0]);
        // The tag is the lower part of it.
        assert_eq!(slots(&bucket, 0), [0]);
    }

    #[test]
    fn entering_twice_is_entering_once_and_a_full_bucket_takes_no_more() {
        let mut bucket = [0; 32];
        for slot in [1, 1, 2, 1] {
            Change::enter(digest(9), Slot(slot)).apply(&mut bucket);
        }
        assert_eq!(slots(&bucket, 9), [1, 2]);
        for slot in 0..9 {
            Change::enter(digest(10 + slot), Slot(slot)).apply(&mut bucket);
        }
        assert_eq!((slots(&bucket, 10), slots(&bucket, 11), slots(&bucket, 12)), (vec(&[0]), vec(&[1]), vec(&[])));
        Change::remove(digest(9), Slot(2)).apply(&mut bucket);
        Change::remove(digest(10), Slot(3)).apply(&mut bucket);
        Change::visit(9).apply(&mut bucket);
        assert_eq!((slots(&bucket, 9), slots(&bucket, 10)), (vec(&[1]), vec(&[0])));
    }

    fn vec(slots: &[u64]) -> Vec<u64> {
        slots.to_vec()
    }

    #[test]
    fn of_equal_blocks_four_are_named() {
        let mut bucket = [0; 512];
        (0..9).for_each(|slot| Change::enter(digest(3), Slot(slot)).apply(&mut bucket));
        assert_eq!(slots(&bucket, 3), [0, 1, 2, 3]);
    }

    #[test]
    fn buckets_are_in_the_order_of_digests_and_all_of_them_are_used() {
        for buckets in [1, 7, 12, 7920] {
            let step = u64::MAX / (u64::from(buckets) * 3);
            let numbers: Vec<u64> = (0..u64::from(buckets) * 3).map(|n| bucket_of(n * step, buckets)).collect();
            assert!(numbers.is_sorted());
            assert_eq!((numbers.first(), numbers.last()), (Some(&0), Some(&(u64::from(buckets) - 1))));
            assert!(numbers.windows(2).all(|pair| pair[1] - pair[0] <= 1));
        }
    }

    #[test]
    fn a_pool_outgrows_its_buckets_when_it_is_a_quarter_larger() {
        let size = |gib: u64| Geometry::for_capacity(gib << 30).unwrap();
        let buckets = buckets_for(&size(10));
        assert_eq!(buckets, 7920);
        assert!(
            !is_outgrown(&size(10), buckets) && !is_outgrown(&size(12), buckets) && is_outgrown(&size(13), buckets)
        );
        // Three GiB a TiB.
        let pages = pages_for(&size(1024), buckets_for(&size(1024)), u64::MAX) as u64;
        assert!((780_000..795_000).contains(&pages), "{pages}");
        assert_eq!(pages_for(&size(10), 7920, 2), 2 + 2 + 1);
    }
}
