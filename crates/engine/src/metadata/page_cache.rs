//! The page cache: metadata pages in memory, allocated in chunks of many.
//!
//! States of a page: free; private (a writer's or a record's, not found by key); loading; clean; writing (clean, but must stay until its write
//! is done). Cached pages never change: trees are copy-on-write, a changed page is a new page. Victims of eviction are clean pages: first those
//! that a writer has replaced, then by second chance.
//!
//! The number of pages can change. Pages from the new number on become pending free, immediately or when their user is done with them. A chunk
//! with only such pages is given back.

use alloc::vec;
use alloc::vec::Vec;

use foldhash::fast::FixedState;
use hashbrown::HashMap;

use crate::api::{PageId, RequestId};
use crate::format::superblock::Pointer;
use crate::sizes::table_bytes;

/// Region of pages: copy-on-write metadata, or the locations of the meta map.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Region {
    Metadata,
    MetaMap,
}

/// Key of a page: region and location (block within it, plus one).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct PageKey {
    pub region: Region,
    pub location: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum PageState {
    Free,
    Private,
    Clean,
    Writing,
    /// State of a page beyond a reduced count.
    PendingFree,
}

/// Number of pages that are allocated together.
const CHUNK_PAGES: usize = 256;

#[derive(Clone, Copy)]
struct Frame {
    state: PageState,
    key: PageKey,
    used: bool,
    /// True if a writer has replaced it: nothing needs it when the checkpoint is done.
    replaced: bool,
}

/// Load in flight.
pub(crate) struct Load {
    pub(super) pointer: Pointer,
    waiters: Vec<RequestId>,
    /// True if the page was freed meanwhile and must not be kept.
    pub(super) orphan: bool,
    /// True if it is only loaded because it is beside another page, without a request of its own.
    pub(super) beside: bool,
    /// True if no request asked for it first, nor for the page that it comes with.
    background: bool,
}

impl Load {
    /// Returns the requests that wait for the page.
    pub(crate) fn waiters(&self) -> &[RequestId] {
        &self.waiters
    }

    /// Returns the pointer to the page.
    #[inline]
    pub(crate) fn pointer(&self) -> Pointer {
        self.pointer
    }

    /// Returns true if the page was freed meanwhile.
    #[inline]
    pub(crate) fn is_orphan(&self) -> bool {
        self.orphan
    }

    /// Returns true if the page was loaded beside another one only.
    #[inline]
    pub(crate) fn is_beside(&self) -> bool {
        self.beside
    }
}

/// Cache of metadata pages.
pub(crate) struct PageCache {
    block_size: usize,
    chunks: Vec<Vec<u8>>,
    frames: Vec<Frame>,
    free: Vec<u32>,
    /// Pages that writers have replaced; some are gone, or were used since.
    replaced: Vec<u32>,
    /// Target number of pages: pages from this number on become pending free when their users are done with them.
    count: usize,
    /// Number of pages beyond the target that are still in use.
    leaving: usize,
    by_key: HashMap<PageKey, PageId, FixedState>,
    loads: HashMap<PageKey, Load, FixedState>,
    /// Empty lists for waiters, kept for reuse.
    spare: Vec<Vec<RequestId>>,
    hand: usize,
    /// True if no page has been evicted at the present count, and no read of several pages has failed.
    filling: bool,
    background_loads: usize,
    /// Number of page writes in flight.
    writes: usize,
}

impl PageCache {
    pub(crate) fn new(pages: u32, block_size: u32) -> PageCache {
        let mut cache = PageCache {
            block_size: block_size as usize,
            chunks: Vec::new(),
            frames: Vec::new(),
            free: Vec::new(),
            replaced: Vec::new(),
            count: 0,
            leaving: 0,
            by_key: HashMap::with_hasher(FixedState::with_seed(1)),
            loads: HashMap::with_hasher(FixedState::with_seed(2)),
            spare: Vec::new(),
            hand: 0,
            filling: true,
            background_loads: 0,
            writes: 0,
        };
        cache.set_count(pages);
        cache
    }

    /// Sets the number of pages. If it is less, the pages beyond it go as soon as their users are done with them.
    pub(crate) fn set_count(&mut self, pages: u32) {
        let (before, count) = (self.count, pages as usize);
        self.count = count;
        self.filling |= count > before;
        for at in count..self.frames.len() {
            let frame = self.frames[at];
            match frame.state {
                PageState::Clean => {
                    self.by_key.remove(&frame.key);
                    self.frames[at].state = PageState::PendingFree;
                }
                PageState::Free => self.frames[at].state = PageState::PendingFree,
                PageState::Private | PageState::Writing | PageState::PendingFree => {}
            }
        }
        self.free.retain(|&page| (page as usize) < count);
        let key = PageKey { region: Region::Metadata, location: 0 };
        let nothing = Frame { state: PageState::PendingFree, key, used: false, replaced: false };
        self.frames.resize(self.frames.len().max(count), nothing);
        for at in (before..count).rev() {
            if self.frames[at].state == PageState::PendingFree {
                self.frames[at].state = PageState::Free;
                self.free.push(at as u32);
            }
        }
        self.leaving = self.frames[count..].iter().filter(|frame| frame.state != PageState::PendingFree).count();
        self.fit_chunks();
        let spare = self.by_key.len().max(count);
        self.by_key.shrink_to(spare);
        self.by_key.reserve(spare - self.by_key.len());
        self.free.shrink_to(count);
        self.replaced = Vec::with_capacity(count);
    }

    /// Allocates the needed chunks, and gives back the others.
    fn fit_chunks(&mut self) {
        if self.leaving == 0 {
            self.frames.truncate(self.count);
            self.frames.shrink_to_fit();
        }
        self.chunks.resize(self.frames.len().div_ceil(CHUNK_PAGES), Vec::new());
        self.hand = self.hand.min(self.frames.len().saturating_sub(1));
        for (number, chunk) in self.chunks.iter_mut().enumerate() {
            let first = number * CHUNK_PAGES;
            let frames = &self.frames[first..self.frames.len().min(first + CHUNK_PAGES)];
            let is_used = frames.iter().any(|frame| frame.state != PageState::PendingFree);
            let bytes = if is_used { frames.len() * self.block_size } else { 0 };
            if bytes == 0 {
                *chunk = Vec::new();
            } else if chunk.is_empty() {
                *chunk = vec![0; bytes];
            } else if chunk.len() != bytes {
                chunk.resize(bytes, 0);
                chunk.shrink_to_fit();
            }
        }
    }

    /// Returns true while pages beyond the count are still in use.
    pub(crate) fn is_shrinking(&self) -> bool {
        self.leaving > 0
    }

    /// Releases a page: it becomes free, or pending free if it is beyond the count.
    fn let_go(&mut self, page: u32) {
        if (page as usize) < self.count {
            self.frames[page as usize].state = PageState::Free;
            self.free.push(page);
            return;
        }
        self.frames[page as usize].state = PageState::PendingFree;
        self.leaving -= 1;
        if self.leaving == 0 {
            self.fit_chunks();
        }
    }

    /// Returns the chunk of a page, and the byte at which the page begins in it.
    fn place(&self, page: PageId) -> (usize, usize) {
        let page = page.0 as usize;
        (page / CHUNK_PAGES, page % CHUNK_PAGES * self.block_size)
    }

    pub(crate) fn bytes(&self, page: PageId) -> &[u8] {
        let (chunk, at) = self.place(page);
        &self.chunks[chunk][at..at + self.block_size]
    }

    /// Returns the bytes of a private page for a change.
    pub(crate) fn bytes_mut(&mut self, page: PageId) -> &mut [u8] {
        assert_eq!(self.frames[page.0 as usize].state, PageState::Private, "only private pages change");
        let (chunk, at) = self.place(page);
        &mut self.chunks[chunk][at..at + self.block_size]
    }

    /// Returns the cached page at `key`, which counts as used.
    pub(crate) fn get(&mut self, key: PageKey) -> Option<PageId> {
        let page = *self.by_key.get(&key)?;
        self.frames[page.0 as usize].used = true;
        Some(page)
    }

    /// Returns the key of a cached page.
    pub(crate) fn key_of(&self, page: PageId) -> PageKey {
        self.frames[page.0 as usize].key
    }

    /// Allocates a private page of zeroes; `None` while every page is in use.
    pub(crate) fn allocate(&mut self) -> Option<PageId> {
        let page = match self.free.pop() {
            Some(page) => PageId(page),
            None => self.evict()?,
        };
        self.frames[page.0 as usize].state = PageState::Private;
        self.bytes_mut(page).fill(0);
        Some(page)
    }

    /// Returns the number of pages that are free or could be evicted.
    pub(crate) fn available(&self) -> usize {
        self.free.len() + self.by_key.len() - self.writes
    }

    fn evict(&mut self) -> Option<PageId> {
        self.filling = false;
        while let Some(page) = self.replaced.pop() {
            let Some(frame) = self.frames.get_mut(page as usize) else { continue };
            if frame.state == PageState::Clean && core::mem::take(&mut frame.replaced) && !frame.used {
                self.by_key.remove(&frame.key);
                frame.state = PageState::Free;
                return Some(PageId(page));
            }
        }
        for _ in 0..2 * self.frames.len() {
            // Pages pending free are skipped like those in use.
            self.hand = (self.hand + 1) % self.frames.len();
            let frame = &mut self.frames[self.hand];
            if frame.state != PageState::Clean {
                continue;
            }
            if !core::mem::take(&mut frame.used) {
                self.by_key.remove(&frame.key);
                frame.state = PageState::Free;
                return Some(PageId(self.hand as u32));
            }
        }
        None
    }

    /// Makes a private copy of a cached page for a writer that replaces it. The cached one is evicted next unless it is used again.
    pub(crate) fn copy_of(&mut self, source: PageId) -> Option<PageId> {
        let copy = self.duplicate_of(source)?;
        let frame = &mut self.frames[source.0 as usize];
        if frame.state == PageState::Clean
            && !core::mem::replace(&mut frame.replaced, true)
            && self.replaced.len() < self.count
        {
            frame.used = false;
            self.replaced.push(source.0);
        }
        Some(copy)
    }

    /// Makes a private copy of a cached page, which stays in use.
    pub(crate) fn duplicate_of(&mut self, source: PageId) -> Option<PageId> {
        // The source must not be the victim of the allocation.
        let state = core::mem::replace(&mut self.frames[source.0 as usize].state, PageState::Private);
        let copy = self.allocate();
        self.frames[source.0 as usize].state = state;
        let copy = copy?;
        let ((from_chunk, from), (chunk, at)) = (self.place(source), self.place(copy));
        if from_chunk == chunk {
            self.chunks[chunk].copy_within(from..from + self.block_size, at);
        } else {
            let mut into = core::mem::take(&mut self.chunks[chunk]);
            into[at..at + self.block_size].copy_from_slice(self.bytes(source));
            self.chunks[chunk] = into;
        }
        Some(copy)
    }

    /// Releases a private page that has no further use.
    pub(crate) fn release(&mut self, page: PageId) {
        assert_eq!(self.frames[page.0 as usize].state, PageState::Private);
        self.let_go(page.0);
    }

    /// Publishes a private page as the cached page at `key`; its write is in progress. The page that was cached there is dropped: a page that a tree references
    /// can be free in a meta map that contradicts the tree.
    pub(crate) fn publish(&mut self, page: PageId, key: PageKey) {
        self.forget(key);
        self.insert(page, key, PageState::Writing);
        self.writes += 1;
    }

    /// Begins to rewrite a clean page in its place; false if it is not clean.
    pub(crate) fn begin_rewriting(&mut self, page: PageId) -> bool {
        let state = &mut self.frames[page.0 as usize].state;
        let clean = *state == PageState::Clean;
        if clean {
            *state = PageState::Writing;
            self.writes += 1;
        }
        clean
    }

    fn insert(&mut self, page: PageId, key: PageKey, state: PageState) {
        self.frames[page.0 as usize] = Frame { state, key, used: true, replaced: false };
        let before = self.by_key.insert(key, page);
        assert!(before.is_none(), "a location is cached once");
    }

    /// Ends the write of a page. The page becomes clean, or goes if it is not current or beyond the count.
    pub(crate) fn written(&mut self, key: PageKey, page: PageId) {
        self.writes -= 1;
        let frame = &mut self.frames[page.0 as usize];
        assert_eq!((frame.state, frame.key), (PageState::Writing, key));
        frame.state = PageState::Clean;
        let is_current = self.by_key.get(&key) == Some(&page);
        if is_current && page.0 as usize >= self.count {
            self.by_key.remove(&key);
        }
        if !is_current || page.0 as usize >= self.count {
            self.let_go(page.0);
        }
    }

    /// Notes that a page's write failed. The page stays in memory permanently, because no other copy of it is certain.
    pub(crate) fn not_written(&mut self) {
        self.writes -= 1;
    }

    /// Drops the page at `key`, which is no longer part of any tree.
    pub(crate) fn forget(&mut self, key: PageKey) {
        if let Some(load) = self.loads.get_mut(&key) {
            load.orphan = true;
        }
        if let Some(page) = self.by_key.remove(&key)
            && self.frames[page.0 as usize].state == PageState::Clean
        {
            self.let_go(page.0);
        }
    }

    /// Returns true if a load or a write of the location is still in flight: it must not be reused yet.
    pub(crate) fn is_busy(&self, key: PageKey) -> bool {
        self.loads.contains_key(&key)
            || self.by_key.get(&key).is_some_and(|page| self.frames[page.0 as usize].state == PageState::Writing)
    }

    /// Adds a waiter for the page; true if the load has to be started.
    pub(crate) fn want(&mut self, key: PageKey, pointer: Pointer, waiter: Option<RequestId>) -> bool {
        let new = !self.loads.contains_key(&key);
        let load = self.load(key, pointer, waiter.is_none());
        load.beside = false;
        if let Some(waiter) = waiter {
            load.waiters.push(waiter);
        }
        new
    }

    /// Notes that a page comes with one beside it; true if the load has to be started, because the page is neither cached nor being loaded.
    pub(crate) fn want_beside(&mut self, key: PageKey, pointer: Pointer, asked: PageKey) -> bool {
        let new = !self.loads.contains_key(&key) && !self.by_key.contains_key(&key);
        if new {
            let background = self.loads.get(&asked).is_some_and(|load| load.background);
            self.load(key, pointer, background).beside = true;
        }
        new
    }

    /// Switches to loads of single pages: one of several was unreadable, and requests for the others would wait for it.
    pub(crate) fn load_one_by_one(&mut self) {
        self.filling = false;
    }

    /// Returns the load of a page, and notes it if it is new.
    fn load(&mut self, key: PageKey, pointer: Pointer, background: bool) -> &mut Load {
        let PageCache { loads, spare, background_loads, .. } = self;
        loads.entry(key).or_insert_with(|| {
            *background_loads += usize::from(background);
            let waiters = spare.pop().unwrap_or_default();
            Load { pointer, waiters, orphan: false, beside: false, background }
        })
    }

    /// Returns true if `pages` pages can be loaded without a request and without an eviction: there are free ones, and there have always been.
    pub(crate) fn has_space_beside(&self, pages: usize) -> bool {
        self.filling && self.free.len() >= pages + self.loads.len()
    }

    /// Returns true if a page is being loaded that no request has asked for.
    pub(crate) fn is_beside(&self, key: PageKey) -> bool {
        self.loads.get(&key).is_some_and(|load| load.beside)
    }

    /// Returns true if at least half of the pages are being written.
    pub(crate) fn has_many_writes(&self) -> bool {
        self.writes * 2 >= self.count
    }

    /// Returns the number of loads in flight.
    pub(crate) fn loads_in_flight(&self) -> usize {
        self.loads.len()
    }

    /// Returns true if a page is being loaded from the device.
    pub(crate) fn is_loading(&self, key: PageKey) -> bool {
        self.loads.contains_key(&key)
    }

    /// Returns the number of loads in flight that no request asked for first.
    pub(crate) fn background_loads(&self) -> usize {
        self.background_loads
    }

    /// Ends a load, successful or not, and returns it with its waiters.
    pub(crate) fn end_load(&mut self, key: PageKey) -> Load {
        let load = self.loads.remove(&key).expect("a load ends once");
        self.background_loads -= usize::from(load.background);
        load
    }

    /// Keeps the list of an ended load for reuse.
    pub(crate) fn recycle(&mut self, load: Load) {
        let mut waiters = load.waiters;
        waiters.clear();
        self.spare.push(waiters);
    }

    /// Keeps bytes that have been read and checked. Without a free page they are dropped, and the waiters ask again.
    pub(crate) fn fill(&mut self, key: PageKey, bytes: &[u8]) {
        if let Some(page) = self.allocate() {
            self.bytes_mut(page).copy_from_slice(bytes);
            self.insert(page, key, PageState::Clean);
        }
    }

    /// Returns the number of private pages, which cannot be dropped, without those being written: for the audit.
    pub(crate) fn private_pages(&self) -> usize {
        self.frames.iter().filter(|frame| frame.state == PageState::Private).count()
    }

    /// Returns the number of pages whose write is in flight.
    pub(crate) fn writes(&self) -> usize {
        self.writes
    }

    /// Returns the bytes of memory, pages included.
    pub(crate) fn memory(&self) -> u64 {
        let pages: usize = self.chunks.iter().map(Vec::len).sum();
        let lists = self.free.capacity() + self.replaced.capacity();
        let tables = self.frames.len() * core::mem::size_of::<Frame>() + lists * 4;
        (pages + tables) as u64 + table_bytes(&self.by_key)
    }
}

/// Reads `length` bytes of metadata at a byte offset of the store; `None` if they cannot be read.
pub type ReadMetadata<'a> = dyn FnMut(u64, u32) -> Option<Vec<u8>> + 'a;

#[cfg(test)]
mod tests {
    use super::*;

    fn key(location: u32) -> PageKey {
        PageKey { region: Region::Metadata, location }
    }

    /// Guards against a lost page: a checkpoint could not write a page, and the cache dropped it. Its content was then unreadable, although the engine had had
    /// it in memory.
    #[test]
    fn a_page_that_could_not_be_written_stays_in_memory() {
        let mut cache = PageCache::new(64, 512);
        let page = cache.allocate().unwrap();
        cache.publish(page, key(1));
        cache.not_written();
        while cache.allocate().is_some() {}
        assert_eq!(cache.get(key(1)), Some(page));
        assert_eq!(cache.writes, 0, "nothing waits for it");
    }

    #[test]
    fn pages_in_use_stay_until_they_are_done_with_when_there_are_to_be_fewer() {
        let mut cache = PageCache::new(600, 512);
        let pages: Vec<PageId> = (0..600).map(|_| cache.allocate().unwrap()).collect();
        for &page in &pages {
            cache.bytes_mut(page).fill(page.0 as u8);
        }
        let [private, writing] = [pages[599], pages[598]];
        cache.publish(writing, key(1));
        for &page in &pages[..598] {
            cache.release(page);
        }
        cache.set_count(300);
        assert!(cache.is_shrinking());
        assert_eq!(cache.available(), 300);
        // A copy of a page that is being removed.
        let copy = cache.copy_of(writing).unwrap();
        assert_eq!(cache.bytes(copy), cache.bytes(writing));
        assert_eq!(cache.bytes(private), [private.0 as u8; 512]);
        cache.written(key(1), writing);
        assert_eq!(cache.get(key(1)), None);
        let before = cache.memory();
        cache.release(private);
        assert!(!cache.is_shrinking() && cache.memory() < before - 290 * 512);
        cache.release(copy);
        assert_eq!((cache.available(), cache.frames.len()), (300, 300));
        // More again, while one of them is still in use.
        cache.set_count(1000);
        let pages: Vec<PageId> = (0..1000).map(|_| cache.allocate().unwrap()).collect();
        assert_eq!(cache.allocate(), None);
        cache.set_count(10);
        cache.set_count(900);
        assert_eq!(cache.available(), 0);
        pages.into_iter().for_each(|page| cache.release(page));
        assert_eq!((cache.available(), cache.is_shrinking()), (900, false));
    }
}
