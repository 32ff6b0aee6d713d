//! The page cache: metadata pages in memory, in one arena of fixed size.
//!
//! States of a page: free; private (a writer's or a record's, not found by key); loading; clean; writing (clean, but must
//! stay until its write is done). Cached pages never change: trees are copy-on-write, a changed page is a new page.
//! Victims are clean pages, by second chance.

use alloc::vec;
use alloc::vec::Vec;

use foldhash::fast::FixedState;
use hashbrown::HashMap;

use crate::contract::{PageId, RequestId};
use crate::superblock::Pointer;

/// Which of the two regions of pages: copy-on-write metadata, or the homes of the meta map.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Region {
    Metadata,
    MetaMap,
}

/// Where a page lives: region and location (block within it, plus one).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct PageKey {
    pub region: Region,
    pub location: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Free,
    Private,
    Clean,
    Writing,
}

#[derive(Clone, Copy)]
struct Frame {
    state: State,
    key: PageKey,
    used: bool,
}

/// A load in flight.
pub(crate) struct Load {
    pub pointer: Pointer,
    pub waiters: Vec<RequestId>,
    /// The page was freed meanwhile: do not keep it.
    pub orphan: bool,
    /// No request asked for it first.
    background: bool,
}

/// The page cache.
pub(crate) struct PageCache {
    block_size: usize,
    arena: Vec<u8>,
    frames: Vec<Frame>,
    free: Vec<u32>,
    by_key: HashMap<PageKey, PageId, FixedState>,
    loads: HashMap<PageKey, Load, FixedState>,
    hand: usize,
    background_loads: usize,
    /// Writes of pages in flight.
    pub(crate) writes: usize,
}

impl PageCache {
    pub(crate) fn new(pages: u32, block_size: u32) -> PageCache {
        let nothing = Frame { state: State::Free, key: PageKey { region: Region::Metadata, location: 0 }, used: false };
        PageCache {
            block_size: block_size as usize,
            arena: vec![0; pages as usize * block_size as usize],
            frames: vec![nothing; pages as usize],
            free: (0..pages).rev().collect(),
            by_key: HashMap::with_capacity_and_hasher(pages as usize, FixedState::with_seed(1)),
            loads: HashMap::with_hasher(FixedState::with_seed(2)),
            hand: 0,
            background_loads: 0,
            writes: 0,
        }
    }

    pub(crate) fn bytes(&self, page: PageId) -> &[u8] {
        let at = page.0 as usize * self.block_size;
        &self.arena[at..at + self.block_size]
    }

    /// The bytes of a private page.
    pub(crate) fn bytes_mut(&mut self, page: PageId) -> &mut [u8] {
        assert_eq!(self.frames[page.0 as usize].state, State::Private, "only private pages change");
        let at = page.0 as usize * self.block_size;
        &mut self.arena[at..at + self.block_size]
    }

    /// The cached page at `key`.
    pub(crate) fn get(&mut self, key: PageKey) -> Option<PageId> {
        let page = *self.by_key.get(&key)?;
        self.frames[page.0 as usize].used = true;
        Some(page)
    }

    /// Where a cached page lives.
    pub(crate) fn key_of(&self, page: PageId) -> PageKey {
        self.frames[page.0 as usize].key
    }

    /// A private page of zeroes, or `None` while every page is in use.
    pub(crate) fn allocate(&mut self) -> Option<PageId> {
        let page = match self.free.pop() {
            Some(page) => PageId(page),
            None => self.evict()?,
        };
        self.frames[page.0 as usize].state = State::Private;
        self.bytes_mut(page).fill(0);
        Some(page)
    }

    /// Pages that are free or could be made so.
    pub(crate) fn available(&self) -> usize {
        self.free.len() + self.by_key.len() - self.writes
    }

    fn evict(&mut self) -> Option<PageId> {
        for _ in 0..2 * self.frames.len() {
            self.hand = (self.hand + 1) % self.frames.len();
            let frame = &mut self.frames[self.hand];
            if frame.state != State::Clean {
                continue;
            }
            if !core::mem::take(&mut frame.used) {
                self.by_key.remove(&frame.key);
                frame.state = State::Free;
                return Some(PageId(self.hand as u32));
            }
        }
        None
    }

    /// A private page that a writer copies from a cached one.
    pub(crate) fn copy_of(&mut self, source: PageId) -> Option<PageId> {
        // The source must not be the victim of the allocation.
        let state = core::mem::replace(&mut self.frames[source.0 as usize].state, State::Private);
        let copy = self.allocate();
        self.frames[source.0 as usize].state = state;
        let copy = copy?;
        let from = source.0 as usize * self.block_size;
        self.arena.copy_within(from..from + self.block_size, copy.0 as usize * self.block_size);
        Some(copy)
    }

    /// A private page is done with.
    pub(crate) fn release(&mut self, page: PageId) {
        let frame = &mut self.frames[page.0 as usize];
        assert_eq!(frame.state, State::Private);
        frame.state = State::Free;
        self.free.push(page.0);
    }

    /// A private page becomes the cached page at `key`; its write is under way.
    pub(crate) fn publish(&mut self, page: PageId, key: PageKey) {
        self.insert(page, key, State::Writing);
        self.writes += 1;
    }

    fn insert(&mut self, page: PageId, key: PageKey, state: State) {
        self.frames[page.0 as usize] = Frame { state, key, used: true };
        let before = self.by_key.insert(key, page);
        assert!(before.is_none(), "a location is cached once");
    }

    /// The write of a page is done.
    pub(crate) fn written(&mut self, key: PageKey, page: PageId) {
        self.writes -= 1;
        let frame = &mut self.frames[page.0 as usize];
        assert_eq!((frame.state, frame.key), (State::Writing, key));
        frame.state = State::Clean;
        if self.by_key.get(&key) != Some(&page) {
            frame.state = State::Free;
            self.free.push(page.0);
        }
    }

    /// The page at `key` is no longer part of anything.
    pub(crate) fn forget(&mut self, key: PageKey) {
        if let Some(load) = self.loads.get_mut(&key) {
            load.orphan = true;
        }
        if let Some(page) = self.by_key.remove(&key) {
            let frame = &mut self.frames[page.0 as usize];
            if frame.state == State::Clean {
                frame.state = State::Free;
                self.free.push(page.0);
            }
        }
    }

    /// Whether a load or a write of the location is still in flight: it must not be reused yet.
    pub(crate) fn is_busy(&self, key: PageKey) -> bool {
        self.loads.contains_key(&key)
            || self.by_key.get(&key).is_some_and(|page| self.frames[page.0 as usize].state == State::Writing)
    }

    /// Notes a waiter for the page; true if the load has to be begun.
    pub(crate) fn want(&mut self, key: PageKey, pointer: Pointer, waiter: Option<RequestId>) -> bool {
        let new = !self.loads.contains_key(&key);
        let background = waiter.is_none();
        self.background_loads += usize::from(new && background);
        let load = self.loads.entry(key).or_insert(Load { pointer, waiters: Vec::new(), orphan: false, background });
        if let Some(waiter) = waiter {
            load.waiters.push(waiter);
        }
        new
    }

    /// Loads in flight.
    pub(crate) fn loads_in_flight(&self) -> usize {
        self.loads.len()
    }

    /// Whether a page is on its way.
    pub(crate) fn is_loading(&self, key: PageKey) -> bool {
        self.loads.contains_key(&key)
    }

    /// Loads in flight that no request asked for first.
    pub(crate) fn background_loads(&self) -> usize {
        self.background_loads
    }

    /// A load has ended, whichever way.
    pub(crate) fn end_load(&mut self, key: PageKey) -> Load {
        let load = self.loads.remove(&key).expect("a load ends once");
        self.background_loads -= usize::from(load.background);
        load
    }

    /// Keeps bytes that have been read and checked. Without a free page they are dropped; whoever waits asks again.
    pub(crate) fn fill(&mut self, key: PageKey, bytes: &[u8]) {
        if let Some(page) = self.allocate() {
            self.bytes_mut(page).copy_from_slice(bytes);
            self.insert(page, key, State::Clean);
        }
    }

    /// Pages that hold nothing that can be dropped, apart from `writing` ones: for the audit.
    pub(crate) fn private_pages(&self) -> usize {
        self.frames.iter().filter(|frame| frame.state == State::Private).count()
    }

    /// Bytes of memory.
    pub(crate) fn memory(&self) -> u64 {
        self.arena.len() as u64 + self.frames.len() as u64 * 64
    }
}
