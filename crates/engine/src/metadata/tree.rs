//! Copy-on-write radix trees of pages: volume maps and every other table on disk.
//!
//! An interior page holds `fanout` pointers of 16 bytes (location, birth epoch, checksum of the child): parents prove children. A leaf is one
//! page of the tree's own entries. An empty subtree has no page.
//!
//! Readers walk from a root ([`lookup`]) and see exactly the tree of that root, also while a writer is active. A [`Writer`] changes leaves in
//! ascending order: it copies the pages on its path. When it leaves a subtree, it gives each page its new location, writes it out and puts
//! pointer and checksum into the parent. So at most one page a level waits in memory, whatever the size of the change. The new root exists when
//! the writer finishes.
//!
//! A map with ancestors may have no page of its own for a subtree: its pointer is FROM an epoch, and the ancestor whose time covers that epoch has the page
//! (RFC 0020). Walks end there, and the reader goes on in the ancestor's tree. A writer that changes such a page copies it: pages and mapped blocks of the
//! ancestor become FROM the epoch of its birth, all else is copied by value.
//!
//! Steps are restartable: a step that needs a page which is not in memory returns [`Missing`]; the caller loads the page and repeats the step.

use alloc::vec::Vec;

use crate::api::{IoOp, PageId, RequestId, Segment, VolumeId};
use crate::format::bytes::{checksum, u64_at};
use crate::format::entry::Entry;
use crate::format::geometry::Geometry;
use crate::format::superblock::{Pointer, Root};
use crate::metadata::allocator::MetadataAllocator;
use crate::metadata::io::{IoTable, Purpose};
use crate::metadata::page_cache::{PageCache, PageKey, Region};

/// Maximum number of levels of a tree, leaves included.
pub(crate) const MAX_LEVELS: usize = 9;

/// Metadata of a pool: pages in memory, the allocator of blocks, and the table of I/O. Trees are built on these.
pub(crate) struct Metadata {
    geometry: Geometry,
    page_seed: u64,
    journal_seed: u64,
    pub(super) pages: PageCache,
    pub(super) allocator: MetadataAllocator,
    pub(super) io: IoTable,
    /// Epoch of pages that are written now.
    epoch: u64,
    /// Number of pages of trees looked at, see [`crate::Counters`].
    page_visits: u64,
    /// Pages of trees whose last read failed: users of such a page do not ask again.
    failed: Vec<PageKey>,
}

/// Number of pages whose failed read is remembered.
const FAILED_PAGES: usize = 64;

impl Metadata {
    /// Creates the metadata of a pool without pages. `page_seed` and `journal_seed` are the keys of the checksums of pages and of journal records.
    pub(crate) fn new(geometry: Geometry, pages: u32, page_seed: u64, journal_seed: u64) -> Metadata {
        Metadata {
            geometry,
            page_seed,
            journal_seed,
            pages: PageCache::new(pages, geometry.block_size),
            allocator: MetadataAllocator::new(geometry.metadata_blocks, geometry.meta_map_leaf_bits()),
            io: IoTable::new(),
            epoch: 0,
            page_visits: 0,
            failed: Vec::new(),
        }
    }

    #[inline]
    pub(crate) fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Returns the key of the checksums of journal records.
    pub(crate) fn journal_seed(&self) -> u64 {
        self.journal_seed
    }

    /// Sets the key of the checksums of journal records: a mutant uses one that anyone knows.
    #[cfg(feature = "mutants")]
    pub(crate) fn set_journal_seed(&mut self, seed: u64) {
        self.journal_seed = seed;
    }

    /// Returns the key of the checksums of pages.
    #[inline]
    pub(crate) fn page_seed(&self) -> u64 {
        self.page_seed
    }

    /// Returns true if a page has the content that a pointer proves.
    #[inline]
    pub(crate) fn is_intact(&self, pointer: Pointer, page: &[u8]) -> bool {
        checksum(self.page_seed, page) == pointer.checksum
    }

    /// Returns the epoch of pages that are written now.
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Gives the pages written from now on a newer epoch.
    pub(crate) fn begin_epoch(&mut self, epoch: u64) {
        assert!(epoch >= self.epoch, "epochs of pages only rise");
        self.epoch = epoch;
    }

    /// Returns the number of pages of trees looked at.
    pub(crate) fn page_visits(&self) -> u64 {
        self.page_visits
    }

    /// Returns the pages in memory.
    #[inline]
    pub(crate) fn pages(&self) -> &PageCache {
        &self.pages
    }

    #[inline]
    pub(crate) fn pages_mut(&mut self) -> &mut PageCache {
        &mut self.pages
    }

    /// Returns the allocator of metadata blocks.
    #[inline]
    pub(crate) fn allocator(&self) -> &MetadataAllocator {
        &self.allocator
    }

    /// Returns the table of I/O.
    #[inline]
    pub(crate) fn io(&self) -> &IoTable {
        &self.io
    }

    #[inline]
    pub(crate) fn io_mut(&mut self) -> &mut IoTable {
        &mut self.io
    }

    /// Returns true if the last read of a page failed: users of it do not ask again.
    #[inline]
    pub(crate) fn has_failed(&self, key: PageKey) -> bool {
        self.failed.contains(&key)
    }

    /// Remembers a page of a tree that could not be read or is damaged; the oldest is forgotten if there are many.
    pub(crate) fn note_failed(&mut self, key: PageKey) {
        if self.failed.len() == FAILED_PAGES {
            self.failed.remove(0);
        }
        self.failed.push(key);
    }

    /// Forgets that a page failed: it has been read.
    pub(crate) fn forget_failure(&mut self, key: PageKey) {
        self.failed.retain(|&failed| failed != key);
    }

    /// Forgets all failed pages: they may be asked for once more.
    pub(crate) fn forget_failed(&mut self) {
        self.failed.clear();
    }

    /// Puts another geometry in place, for as long as a question about it takes. Returns the present one.
    pub(crate) fn replace_geometry(&mut self, geometry: Geometry) -> Geometry {
        core::mem::replace(&mut self.geometry, geometry)
    }

    /// Grows to a geometry with more metadata blocks.
    pub(crate) fn grow(&mut self, geometry: Geometry) {
        self.allocator.grow(geometry.metadata_blocks);
        self.geometry = geometry;
    }

    /// Notes that the host has reserved space for the metadata blocks up to this one.
    pub(crate) fn note_reserved(&mut self, upto: u32) {
        self.allocator.note_reserved(upto);
    }

    /// Writes a leaf of the allocator's table to a page in memory.
    pub(crate) fn write_allocator_leaf(&mut self, leaf: u64, page: PageId) {
        self.allocator.write_leaf(leaf, self.pages.bytes_mut(page));
    }

    /// Reads a leaf of the allocator's table from a page in memory.
    pub(crate) fn read_allocator_leaf(&mut self, leaf: u64, page: PageId) {
        self.allocator.read_leaf(leaf, self.pages.bytes(page));
    }

    /// Frees a page of metadata once the checkpoint in progress is durable: no tree will have it then.
    pub(crate) fn free_later(&mut self, location: u32) {
        self.allocator.free_later(location);
    }

    /// Returns the byte offset of a page on the store. A null or invalid pointer refers to the first block, which is no page: its content never passes for one.
    pub(crate) fn offset(&self, key: PageKey) -> u64 {
        if !self.is_valid(key) {
            return 0;
        }
        let number = u64::from(key.location) - 1;
        let block = match key.region {
            Region::Metadata => self.geometry.metadata_block(number),
            Region::MetaMap => self.geometry.meta_map_block(number),
        };
        block * self.geometry.block()
    }

    /// Frees at most `most` pages replaced by a durable checkpoint: they are no longer part of any tree. Returns true if there are more.
    pub(crate) fn free_replaced(&mut self, most: usize) -> bool {
        let Metadata { allocator, pages, .. } = self;
        allocator.checkpoint_durable(most, |location| pages.forget(PageKey { region: Region::Metadata, location }))
    }

    /// Returns true if a pointer names a block that exists.
    pub(crate) fn is_valid(&self, key: PageKey) -> bool {
        let blocks = match key.region {
            Region::Metadata => u64::from(self.geometry.metadata_blocks),
            Region::MetaMap => 2 * self.geometry.meta_map_pages(),
        };
        (1..=blocks).contains(&u64::from(key.location))
    }

    /// Begins to load a page, unless that is in progress; `waiter` runs again when it has come.
    ///
    /// While the page cache is being filled, the pages beside it in its parent come with it: with cold caches, walks to neighbours would wait for
    /// each of them separately.
    pub(crate) fn load(&mut self, missing: Missing, waiter: Option<RequestId>) {
        let Missing { key, pointer, parent } = missing;
        if !self.pages.want(key, pointer, waiter) {
            return;
        }
        match parent.filter(|_| self.is_valid(key) && self.pages.has_space_beside(BESIDE as usize)) {
            Some((parent, at)) => self.load_beside(key, parent, at),
            None => self.begin_load(key, 1),
        }
    }

    /// Loads a page and those beside it that are not in memory; consecutive pages on the store, together.
    fn load_beside(&mut self, asked: PageKey, parent: PageId, at: u64) {
        let mut run: Option<(PageKey, u32)> = None;
        let first = at - at % BESIDE;
        for sibling in first..first + BESIDE {
            let pointer = child(self.pages.bytes(parent), sibling);
            let key = PageKey { region: asked.region, location: pointer.location };
            let comes = if sibling == at {
                key == asked
            } else {
                self.is_valid(key) && self.pages.want_beside(key, pointer, asked)
            };
            if sibling == at && !comes {
                // The parent has changed.
                self.begin_load(asked, 1);
            }
            match &mut run {
                Some((first, pages)) if comes && self.follows(*first, *pages, key) => *pages += 1,
                _ if comes => {
                    if let Some((first, pages)) = run.replace((key, 1)) {
                        self.begin_load(first, pages);
                    }
                }
                _ => {}
            }
        }
        if let Some((first, pages)) = run {
            self.begin_load(first, pages);
        }
    }

    /// Returns true if a page follows directly after `pages` pages from the first on, in number and on the store.
    fn follows(&self, first: PageKey, pages: u32, key: PageKey) -> bool {
        first.location.checked_add(pages) == Some(key.location)
            && self.offset(first) + u64::from(pages) * self.geometry.block() == self.offset(key)
    }

    /// Reads consecutive pages that have been noted.
    pub(crate) fn begin_load(&mut self, first: PageKey, pages: u32) {
        let (offset, block) = (self.offset(first), self.geometry.block());
        let length = u64::from(pages) * block;
        self.io.begin(IoOp::ReadPages, offset, length, [], Purpose::LoadPages { first, pages });
    }
}

/// Group size for loading pages of one parent together while there is space.
const BESIDE: u64 = 16;

/// Page that has to be loaded first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Missing {
    pub key: PageKey,
    pub pointer: Pointer,
    /// Page that references it, and the position of the pointer there.
    pub parent: Option<(PageId, u64)>,
}

/// Result of a walk down a tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Walk {
    /// Leaf that was found.
    Leaf(PageId),
    /// Empty subtree of this many levels.
    Absent(u8),
    /// Subtree of this many levels that the map has from the ancestor whose time covers this epoch. In a tree without ancestors it is an unreadable page.
    From { epoch: u64, level: u8, missing: Missing },
    /// Page to load before another try.
    Missing(Missing),
}

/// Position of a page in a tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PageLookup {
    /// Pointer to the page, which may be lost.
    At(Pointer),
    /// Empty subtree below this level.
    Absent(u8),
    /// Subtree with a root of this level that the map has from an ancestor, as in [`Walk::From`].
    From { epoch: u64, level: u8, missing: Missing },
    /// Page of this level to load before another try.
    Missing(u8, Missing),
}

/// Counts the whole subtrees that [`Writer::cut`] cuts off for the leaves from `first` up to `end`, where all of them have pages.
pub(crate) fn subtrees(first: u64, end: u64, fanout: u64) -> u64 {
    let (mut first, mut end, mut count) = (first, end.max(first), 0);
    loop {
        let (above, end_above) = (first.div_ceil(fanout), end / fanout);
        if above >= end_above {
            return count + end - first;
        }
        count += above * fanout - first + end - end_above * fanout;
        (first, end) = (above, end_above);
    }
}

fn shift(geometry: &Geometry) -> u32 {
    geometry.fanout().trailing_zeros()
}

fn child(bytes: &[u8], at: u64) -> Pointer {
    Pointer::read(bytes, at as usize * 16)
}

/// Finds a leaf of a tree.
pub(crate) fn lookup(metadata: &mut Metadata, region: Region, root: Root, leaf: u64) -> Walk {
    find(metadata, region, root, 0, leaf)
}

/// Finds page `index` of `target`, a level that is not above the root; [`Walk::Leaf`] is a page of that level.
#[inline(always)]
fn find(metadata: &mut Metadata, region: Region, root: Root, target: u8, index: u64) -> Walk {
    let bits = shift(&metadata.geometry);
    let mut level = root.height - target;
    if index.checked_shr(bits * u32::from(level)).unwrap_or(0) != 0 {
        return Walk::Absent(root.height);
    }
    let mut pointer = root.pointer;
    let mut parent = None;
    loop {
        if pointer.is_none() {
            return Walk::Absent(level + target);
        }
        let key = PageKey { region, location: pointer.location };
        let Some(page) = metadata.pages.get(key) else {
            let missing = Missing { key, pointer, parent };
            return match pointer.inherited_from() {
                Some(epoch) => Walk::From { epoch, level: level + target, missing },
                None => Walk::Missing(missing),
            };
        };
        metadata.page_visits += 1;
        if level == 0 {
            return Walk::Leaf(page);
        }
        level -= 1;
        let at = index >> (bits * u32::from(level)) & (metadata.geometry.fanout() - 1);
        pointer = child(metadata.pages.bytes(page), at);
        parent = Some((page, at));
    }
}

/// Ancestor of the map that a writer changes: a snapshot that covers the epochs behind `lower` up to `born`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Ancestor {
    pub root: Root,
    pub lower: u64,
    pub born: u64,
}

/// Makes the copy of an ancestor's page one of its descendant: pages and mapped blocks are FROM the epoch of the ancestor's birth, all else is as it was.
fn inherit(page: &mut [u8], level: u8, born: u64) {
    if level == 0 {
        let inherited = Entry::inherited(born).0.to_le_bytes();
        let mapped = page.chunks_exact_mut(8).filter(|entry| Entry(u64_at(entry, 0)).slot().is_some());
        mapped.for_each(|entry| entry.copy_from_slice(&inherited));
    } else {
        for at in (0..page.len()).step_by(16) {
            if Pointer::read(page, at).has_page() {
                Pointer::inherited(born).write(page, at);
            }
        }
    }
}

/// Makes a page of a map part of a subtree that was given up.
pub(crate) fn fill_lost(page: &mut [u8], level: u8) {
    if level == 0 {
        page.chunks_exact_mut(8).for_each(|entry| entry.copy_from_slice(&Entry::LOST.0.to_le_bytes()));
    } else {
        (0..page.len() / 16).for_each(|at| Pointer::LOST.write(page, at * 16));
    }
}

/// Finds page `index` of `level`, which is not above the root, without reading it.
pub(crate) fn locate(metadata: &mut Metadata, region: Region, root: Root, level: u8, index: u64) -> PageLookup {
    let bits = shift(&metadata.geometry);
    let (mut pointer, mut at, mut parent) = (root.pointer, root.height, None);
    if index.checked_shr(bits * u32::from(at - level)).unwrap_or(0) != 0 {
        return PageLookup::Absent(at);
    }
    loop {
        if pointer.is_none() {
            return PageLookup::Absent(at);
        }
        let key = PageKey { region, location: pointer.location };
        let missing = Missing { key, pointer, parent };
        if at == level {
            return match pointer.inherited_from() {
                Some(epoch) => PageLookup::From { epoch, level: at, missing },
                None => PageLookup::At(pointer),
            };
        }
        let Some(page) = metadata.pages.get(key) else {
            return match pointer.inherited_from() {
                Some(epoch) => PageLookup::From { epoch, level: at, missing },
                None => PageLookup::Missing(at, missing),
            };
        };
        metadata.page_visits += 1;
        at -= 1;
        let below = index >> (bits * u32::from(at - level)) & (metadata.geometry.fanout() - 1);
        pointer = child(metadata.pages.bytes(page), below);
        parent = Some((page, below));
    }
}

/// Reason why a writer cannot continue now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stop {
    /// Page to load before another try.
    Missing(Missing),
    /// State in which every page of the cache is in use: the writer tries again when a write or load is done.
    NoPage,
    /// State without a free metadata block.
    NoSpace,
    /// Page of the tree that is free in the meta map: the tables contradict each other.
    Contradiction,
}

/// Subtree that [`Writer::cut`] has cut off.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CutOff {
    /// Pointer to its root, or FROM.
    pub pointer: Pointer,
    pub level: u8,
    /// Number of its root within the level.
    pub index: u64,
}

#[derive(Clone, Copy)]
struct PathStep {
    page: PageId,
    /// Number of the page within its level.
    index: u64,
    /// Location before the change, 0 if the page is new.
    before: u32,
}

/// Writer that changes a tree, in ascending order of leaves.
pub(crate) struct Writer {
    region: Region,
    root: Root,
    /// Ancestors of the map, its parent first.
    ancestors: Vec<Ancestor>,
    /// True for a mutant whose pages are blank where the map inherits.
    is_blank: bool,
    path: [Option<PathStep>; MAX_LEVELS],
    /// Number of pages written.
    written: u64,
}

impl Writer {
    /// Returns the number of pages written.
    #[inline]
    pub(crate) fn written(&self) -> u64 {
        self.written
    }

    pub(crate) fn new(region: Region, root: Root) -> Writer {
        Writer { region, root, ancestors: Vec::new(), is_blank: false, path: [None; MAX_LEVELS], written: 0 }
    }

    /// Makes the writer of a map with ancestors, its parent first.
    pub(crate) fn with_ancestors(root: Root, ancestors: Vec<Ancestor>) -> Writer {
        Writer { ancestors, ..Writer::new(Region::Metadata, root) }
    }

    /// Makes blank pages instead of copies of the ancestors' from here on: only a mutant does so.
    #[inline]
    pub(crate) fn leave_blank(&mut self, is_blank: bool) {
        self.is_blank = is_blank;
    }

    /// Returns the leaf, as a private page to change. `Ok(None)` if there is none and `create` is false: an ancestor's is one. A leaf beyond the reach of the
    /// root makes the tree higher.
    pub(crate) fn leaf(&mut self, metadata: &mut Metadata, leaf: u64, create: bool) -> Result<Option<PageId>, Stop> {
        while leaf >= self.reach(metadata) {
            if !create {
                return Ok(None);
            }
            self.raise(metadata)?;
        }
        self.seek(metadata, leaf, 0, create)
    }

    /// Returns the leaf as a private page of zeroes, without reading its old page.
    pub(crate) fn blank(&mut self, metadata: &mut Metadata, leaf: u64) -> Result<PageId, Stop> {
        while leaf >= self.reach(metadata) {
            self.raise(metadata)?;
        }
        let bits = shift(&metadata.geometry);
        let pointer = if self.root.height == 0 {
            self.leave(metadata, 0)?;
            self.root.pointer
        } else {
            let parent = self.seek(metadata, leaf >> bits, 1, true)?.expect("created");
            self.leave(metadata, 0)?;
            child(metadata.pages.bytes(parent), leaf & (metadata.geometry.fanout() - 1))
        };
        let page = metadata.pages.allocate().ok_or(Stop::NoPage)?;
        metadata.page_visits += 1;
        self.path[0] = Some(PathStep { page, index: leaf, before: pointer.location });
        Ok(page)
    }

    /// Returns the number of leaves that a tree of this height can have.
    fn reach(&self, metadata: &Metadata) -> u64 {
        1u64.checked_shl(shift(&metadata.geometry) * u32::from(self.root.height)).unwrap_or(u64::MAX)
    }

    /// Makes the tree one level higher: a new root, whose first child is the old one.
    fn raise(&mut self, metadata: &mut Metadata) -> Result<(), Stop> {
        let height = usize::from(self.root.height);
        assert!(height + 1 < MAX_LEVELS, "addresses are shorter than that");
        if !self.root.pointer.is_none() || self.path[height].is_some() {
            let page = metadata.pages.allocate().ok_or(Stop::NoPage)?;
            self.root.pointer.write(metadata.pages.bytes_mut(page), 0);
            self.path[height + 1] = Some(PathStep { page, index: 0, before: 0 });
        }
        self.root = Root { pointer: Pointer::NONE, height: self.root.height + 1 };
        Ok(())
    }

    /// Moves to page `index` of `level`.
    fn seek(&mut self, metadata: &mut Metadata, index: u64, level: u8, create: bool) -> Result<Option<PageId>, Stop> {
        let bits = shift(&metadata.geometry);
        let mask = metadata.geometry.fanout() - 1;
        for at in (level..=self.root.height).rev() {
            let wanted = index >> (bits * u32::from(at - level));
            if self.path[usize::from(at)].is_some_and(|step| step.index == wanted) {
                continue;
            }
            self.leave(metadata, at)?;
            let parent = (at < self.root.height)
                .then(|| (self.path[usize::from(at) + 1].expect("parents come first").page, wanted & mask));
            let pointer = parent.map_or(self.root.pointer, |(page, below)| child(metadata.pages.bytes(page), below));
            let page = if pointer.has_page() {
                let key = PageKey { region: self.region, location: pointer.location };
                let source = metadata.pages.get(key).ok_or(Stop::Missing(Missing { key, pointer, parent }))?;
                metadata.pages.copy_of(source).ok_or(Stop::NoPage)?
            } else if pointer.is_lost() {
                let page = metadata.pages.allocate().ok_or(Stop::NoPage)?;
                fill_lost(metadata.pages.bytes_mut(page), at);
                page
            } else if !pointer.is_none() && !self.is_blank {
                let epoch = pointer.inherited_from().ok_or(Stop::Contradiction)?;
                self.inherited_page(metadata, epoch, at, wanted)?
            } else if create || self.is_blank && !pointer.is_none() {
                metadata.pages.allocate().ok_or(Stop::NoPage)?
            } else {
                return Ok(None);
            };
            metadata.page_visits += 1;
            let before = if pointer.has_page() { pointer.location } else { 0 };
            self.path[usize::from(at)] = Some(PathStep { page, index: wanted, before });
        }
        Ok(self.path[usize::from(level)].map(|step| step.page))
    }

    /// Makes the page of a place where the map has FROM `epoch`.
    fn inherited_page(&self, metadata: &mut Metadata, mut epoch: u64, level: u8, index: u64) -> Result<PageId, Stop> {
        let mut ancestors = self.ancestors.as_slice();
        loop {
            let nearest = ancestors.partition_point(|ancestor| ancestor.lower >= epoch);
            let Some((ancestor, farther)) = ancestors[nearest..].split_first() else { return Err(Stop::Contradiction) };
            if epoch > ancestor.born || level > ancestor.root.height {
                return Err(Stop::Contradiction);
            }
            match find(metadata, self.region, ancestor.root, level, index) {
                Walk::Leaf(source) => {
                    let page = metadata.pages.duplicate_of(source).ok_or(Stop::NoPage)?;
                    inherit(metadata.pages.bytes_mut(page), level, ancestor.born);
                    return Ok(page);
                }
                // While an ancestor gives, its child may not have the page yet.
                Walk::From { epoch: older, .. } => (epoch, ancestors) = (older, farther),
                Walk::Missing(missing) if missing.pointer.is_lost() => {
                    let page = metadata.pages.allocate().ok_or(Stop::NoPage)?;
                    fill_lost(metadata.pages.bytes_mut(page), level);
                    return Ok(page);
                }
                Walk::Missing(missing) => return Err(Stop::Missing(missing)),
                Walk::Absent(_) => return Err(Stop::Contradiction),
            }
        }
    }

    /// Omits the unreadable page on the path to `leaf`, with all below, for a tree that can do without. Returns its level; the page and those below it are
    /// still in use.
    pub(crate) fn leave_out(&mut self, metadata: &mut Metadata, leaf: u64) -> u8 {
        let bits = shift(&metadata.geometry);
        let index = |level: u8| leaf >> (bits * u32::from(level));
        let on_path = |&level: &u8| self.path[usize::from(level)].is_some_and(|step| step.index == index(level));
        match (0..=self.root.height).rev().take_while(on_path).last() {
            None => {
                self.root.pointer = Pointer::NONE;
                self.root.height
            }
            Some(level) => {
                let parent = self.path[usize::from(level)].expect("on the path").page;
                let at = index(level - 1) & (metadata.geometry.fanout() - 1);
                Pointer::NONE.write(metadata.pages.bytes_mut(parent), at as usize * 16);
                level - 1
            }
        }
    }

    /// Returns the page of a leaf, if the writer is at it.
    pub(crate) fn at_work(&self, leaf: u64) -> Option<PageId> {
        self.path[0].filter(|step| step.index == leaf).map(|step| step.page)
    }

    /// Writes out the pages of the path at `level` and below.
    fn leave(&mut self, metadata: &mut Metadata, level: u8) -> Result<(), Stop> {
        for at in 0..=usize::from(level) {
            if let Some(step) = self.path[at] {
                let pointer = self.write_out(metadata, at, step)?;
                self.path[at] = None;
                if at == usize::from(self.root.height) {
                    self.root.pointer = pointer;
                } else {
                    let parent = self.path[at + 1].expect("parents leave last");
                    let slot = step.index & (metadata.geometry.fanout() - 1);
                    pointer.write(metadata.pages.bytes_mut(parent.page), slot as usize * 16);
                }
            }
        }
        Ok(())
    }

    fn write_out(&mut self, metadata: &mut Metadata, level: usize, step: PathStep) -> Result<Pointer, Stop> {
        if step.before != 0 && self.region == Region::Metadata && !metadata.allocator.is_used(step.before) {
            return Err(Stop::Contradiction);
        }
        let empty = metadata.pages.bytes(step.page).iter().all(|&byte| byte == 0);
        let location = if empty { 0 } else { self.new_location(metadata, level, step)? };
        if step.before != 0 {
            match self.region {
                // Readers may still come by from the old root; the page is dropped when the checkpoint is durable.
                Region::Metadata => metadata.allocator.free_later(step.before),
                Region::MetaMap => metadata.pages.forget(PageKey { region: self.region, location: step.before }),
            }
        }
        if empty {
            metadata.pages.release(step.page);
            return Ok(Pointer::NONE);
        }
        let key = PageKey { region: self.region, location };
        let checksum = checksum(metadata.page_seed, metadata.pages.bytes(step.page));
        metadata.pages.publish(step.page, key);
        let (offset, block) = (metadata.offset(key), metadata.geometry.block());
        metadata.io.begin(IoOp::Write, offset, block, [Segment::Page(step.page)], Purpose::WritePage(key));
        self.written += 1;
        Ok(Pointer { location, birth: metadata.epoch as u32, checksum })
    }

    /// Chooses the location of a changed page. A copy-on-write page gets any free block. A page of the meta map gets the one of its two locations that is not
    /// in force.
    fn new_location(&self, metadata: &mut Metadata, level: usize, step: PathStep) -> Result<u32, Stop> {
        match self.region {
            Region::Metadata => {
                let pages = &metadata.pages;
                let busy = |location| pages.is_busy(PageKey { region: Region::Metadata, location });
                metadata.allocator.allocate(busy).ok_or(Stop::NoSpace)
            }
            Region::MetaMap => {
                let first = 2 * (metadata.geometry.meta_map_page(level, step.index) as u32) + 1;
                Ok(if step.before == first { first + 1 } else { first })
            }
        }
    }

    /// Cuts off the leaves from `first` up to `end`, in whole subtrees, which go to `out`: those with pages, and those that the map had from an ancestor.
    /// Restartable: `first` advances with the progress.
    pub(crate) fn cut(
        &mut self,
        metadata: &mut Metadata,
        first: &mut u64,
        end: u64,
        out: &mut Vec<CutOff>,
    ) -> Result<(), Stop> {
        let bits = shift(&metadata.geometry);
        let mask = metadata.geometry.fanout() - 1;
        let end = end.min(self.reach(metadata));
        while *first < end {
            // The greatest subtree that begins here and ends inside.
            let mut level = 0;
            while level < self.root.height {
                let span = 1u64 << (bits * (u32::from(level) + 1));
                if !first.is_multiple_of(span) || end - *first < span {
                    break;
                }
                level += 1;
            }
            let span = 1u64 << (bits * u32::from(level));
            let index = *first >> (bits * u32::from(level));
            let mut pointer = Pointer::NONE;
            if level == self.root.height {
                self.leave(metadata, level)?;
                pointer = core::mem::take(&mut self.root.pointer);
            } else if let Some(parent) = self.seek(metadata, index >> bits, level + 1, false)? {
                // The pages of the path below must be written before their subtree is cut off.
                self.leave(metadata, level)?;
                let at = (index & mask) as usize * 16;
                pointer = Pointer::read(metadata.pages.bytes(parent), at);
                if !pointer.is_none() {
                    Pointer::NONE.write(metadata.pages.bytes_mut(parent), at);
                }
            }
            if !pointer.is_none() && !pointer.is_lost() {
                if !pointer.has_page() && self.ancestors.is_empty() {
                    return Err(Stop::Contradiction);
                }
                out.push(CutOff { pointer, level, index });
            }
            *first = first.saturating_add(span);
        }
        Ok(())
    }

    /// Returns the pointer at page `index` of `level`, or that of the empty, inherited or lost subtree around it.
    pub(crate) fn pointer(&self, metadata: &mut Metadata, level: u8, index: u64) -> Result<Pointer, Stop> {
        let bits = shift(&metadata.geometry);
        let top = self.root.height;
        if level > top || index.checked_shr(bits * u32::from(top - level)).unwrap_or(0) != 0 {
            return Ok(Pointer::NONE);
        }
        let (mut pointer, mut parent) = (self.root.pointer, None);
        for at in (level + 1..=top).rev() {
            let wanted = index >> (bits * u32::from(at - level));
            let key = PageKey { region: self.region, location: pointer.location };
            let page = match self.path[usize::from(at)].filter(|step| step.index == wanted) {
                Some(step) => step.page,
                None if pointer.has_page() => {
                    metadata.pages.get(key).ok_or(Stop::Missing(Missing { key, pointer, parent }))?
                }
                None => return Ok(pointer),
            };
            metadata.page_visits += 1;
            let below = index >> (bits * u32::from(at - 1 - level)) & (metadata.geometry.fanout() - 1);
            pointer = child(metadata.pages.bytes(page), below);
            parent = Some((page, below));
        }
        Ok(pointer)
    }

    /// Prepares [`Writer::replace`] at page `index` of `level`, whose parent exists: makes the parent a private page, and writes out the pages below it.
    pub(crate) fn open(&mut self, metadata: &mut Metadata, level: u8, index: u64) -> Result<(), Stop> {
        if level < self.root.height {
            self.seek(metadata, index >> shift(&metadata.geometry), level + 1, false)?.ok_or(Stop::Contradiction)?;
        }
        self.leave(metadata, level)
    }

    /// Replaces the pointer at page `index` of `level`, which has just been opened.
    pub(crate) fn replace(&mut self, metadata: &mut Metadata, level: u8, index: u64, pointer: Pointer) {
        if level == self.root.height {
            self.root.pointer = pointer;
            return;
        }
        let parent = self.path[usize::from(level) + 1].expect("it has been opened").page;
        let at = (index & (metadata.geometry.fanout() - 1)) as usize * 16;
        pointer.write(metadata.pages.bytes_mut(parent), at);
    }

    /// Returns the root as far as it is written.
    pub(crate) fn root(&self) -> Root {
        self.root
    }

    /// Writes out the remaining pages and returns the new root.
    pub(crate) fn finish(&mut self, metadata: &mut Metadata) -> Result<Root, Stop> {
        self.leave(metadata, self.root.height)?;
        Ok(self.root)
    }

    /// Gives the pages of the path back without writing them, because the pool has failed.
    pub(crate) fn abandon(&mut self, metadata: &mut Metadata) {
        for step in self.path.iter_mut().filter_map(Option::take) {
            metadata.pages.release(step.page);
        }
    }
}

/// Reason why a block's mapping is unknown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unresolved {
    /// Page to load before another try.
    Missing(crate::metadata::tree::Missing),
    /// Lost block, or a block whose leaf passed its checksum with an impossible entry.
    Damaged,
}

/// Result of the last lookup in a tree: the next is often in the same leaf. It is for consecutive lookups, while no page is loaded or evicted.
#[derive(Default)]
pub(crate) struct LastLeaf {
    own: Option<(u64, Walk)>,
    /// The last one in the tree of an ancestor.
    inherited: Option<(VolumeId, u64, Walk)>,
}

impl LastLeaf {
    /// Finds a leaf of the tree that this cursor belongs to.
    pub(crate) fn lookup(&mut self, metadata: &mut Metadata, root: Root, leaf: u64) -> Walk {
        let walk = match self.own {
            Some((known, walk)) if known == leaf => walk,
            _ => lookup(metadata, Region::Metadata, root, leaf),
        };
        self.own = Some((leaf, walk));
        walk
    }

    /// Finds a leaf of the tree of an ancestor.
    pub(crate) fn lookup_in(&mut self, metadata: &mut Metadata, map: VolumeId, root: Root, leaf: u64) -> Walk {
        let walk = match self.inherited {
            Some((known, at, walk)) if (known, at) == (map, leaf) => walk,
            _ => lookup(metadata, Region::Metadata, root, leaf),
        };
        self.inherited = Some((map, leaf, walk));
        walk
    }
}

#[cfg(test)]
mod tests;
