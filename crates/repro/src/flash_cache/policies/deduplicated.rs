//! Policies D-LRU and D-ARC (CacheDedup, FAST 2016). They track addresses and contents apart, so that one copy serves many addresses.
//!
//! A read hits if its address is known and its content cached. A read of an unknown address is a miss even if its content is cached: only the content itself,
//! after the read, shows that. But then nothing is written to flash.

use std::collections::VecDeque;

use super::Outcome;
use super::classic::{OFTEN, OFTEN_GHOSTS, ONCE, ONCE_GHOSTS, Queue};
use super::lists::Lists;

/// D-LRU: an LRU list of addresses and one of contents.
#[derive(Clone, Debug)]
pub struct DLru {
    addresses: Queue,
    contents: Queue,
}

impl DLru {
    /// Creates an empty cache. It knows as many addresses as in the paper's sizing of 100 %: one for each place, and as many again.
    pub fn new(addresses: u32, contents: u32, places: u32) -> DLru {
        DLru { addresses: Queue::lru(addresses, places.saturating_mul(2)), contents: Queue::lru(contents, places) }
    }

    /// Reads a content by an address: a hit needs both.
    pub fn access(&mut self, address: u32, content: u32) -> Outcome {
        let known = self.addresses.access(address).hit;
        let outcome = self.contents.access(content);
        Outcome { hit: known && outcome.hit, ..outcome }
    }
}

/// ARC's lists are of addresses here; D-ARC has one more: addresses that are about to be forgotten.
const STAGED: u32 = 4;

/// D-ARC: ARC over addresses. A content stays while an address of T1 or T2 has it, and after that until its place is needed.
#[derive(Clone, Debug)]
pub struct DArc {
    lists: Lists,
    /// The content that an address had when it was last read.
    content_of: Vec<u32>,
    contents: Vec<Content>,
    /// Contents without an address in T1 or T2, the oldest first. Those that have one again, or are gone, are skipped.
    orphans: VecDeque<(u32, u32)>,
    cached: usize,
    places: usize,
    target: usize,
}

#[derive(Clone, Copy, Default, Debug)]
struct Content {
    cached: bool,
    /// Addresses in T1 and T2.
    addresses: u32,
    /// Grows with each time that it becomes an orphan: which of its entries among them is valid.
    orphaned: u32,
}

impl DArc {
    /// Creates an empty cache.
    pub fn new(addresses: u32, contents: u32, places: u32) -> DArc {
        DArc {
            lists: Lists::new(addresses, 5),
            content_of: vec![u32::MAX; addresses as usize],
            contents: vec![Content::default(); contents as usize],
            orphans: VecDeque::new(),
            cached: 0,
            places: places as usize,
            target: 0,
        }
    }

    /// Reads a content by an address: a hit needs a cached content and an address in T1 or T2.
    pub fn access(&mut self, address: u32, content: u32) -> Outcome {
        let found = self.lists.list_of(address);
        let is_cached = self.contents[content as usize].cached;
        let hit = is_cached && matches!(found, Some(ONCE | OFTEN));
        match found {
            Some(ONCE_GHOSTS) => self.target = (self.target + 1).min(self.places),
            Some(OFTEN_GHOSTS) => self.target = self.target.saturating_sub(1),
            _ => {}
        }
        if found.is_none_or(|list| list >= ONCE_GHOSTS) {
            self.make_space_for_address();
        }
        let mut evicted = None;
        if !is_cached {
            if self.cached >= self.places {
                evicted = self.evict(found == Some(OFTEN_GHOSTS));
            }
            self.contents[content as usize].cached = true;
            self.cached += 1;
        }
        // The eviction may have moved the address itself to another list.
        let list = if matches!(found, None | Some(STAGED)) { ONCE } else { OFTEN };
        self.enter(list, address, content);
        Outcome { hit, inserted: !is_cached, evicted, refused: None }
    }

    /// Adds the address to T1 or T2, with this content.
    fn enter(&mut self, list: u32, address: u32, content: u32) {
        self.contents[content as usize].addresses += 1;
        if matches!(self.lists.list_of(address), Some(ONCE | OFTEN)) {
            self.leave(address);
        }
        self.content_of[address as usize] = content;
        self.lists.push_front(list, address);
    }

    /// Drops the reference of an address in T1 or T2 to its content; a content without references becomes an orphan. The caller moves the address.
    fn leave(&mut self, address: u32) {
        let number = self.content_of[address as usize];
        let content = &mut self.contents[number as usize];
        content.addresses -= 1;
        if content.addresses == 0 {
            content.orphaned += 1;
            self.orphans.push_back((number, content.orphaned));
        }
    }

    /// Drops an address if twice as many are known with their contents as there are places.
    fn make_space_for_address(&mut self) {
        if self.lists.len(ONCE) + self.lists.len(OFTEN) + self.lists.len(STAGED) < 2 * self.places {
            return;
        }
        if self.lists.len(STAGED) == 0 {
            self.retire(false);
        }
        self.lists.pop_back(STAGED);
    }

    /// Frees the place of the oldest orphan; if there is none, addresses become ghosts until there is one.
    fn evict(&mut self, from_often_ghosts: bool) -> Option<u32> {
        loop {
            while let Some((number, orphaned)) = self.orphans.pop_front() {
                let content = &mut self.contents[number as usize];
                if content.cached && content.addresses == 0 && content.orphaned == orphaned {
                    content.cached = false;
                    self.cached -= 1;
                    return Some(number);
                }
            }
            if self.lists.len(ONCE) + self.lists.len(OFTEN) == 0 {
                return None;
            }
            self.retire(from_often_ghosts);
        }
    }

    /// Makes a ghost of an address of T1 or T2, as ARC does; ghosts beyond their number are staged.
    fn retire(&mut self, from_often_ghosts: bool) {
        let len = |list| self.lists.len(list);
        if len(ONCE) + len(ONCE_GHOSTS) >= self.places {
            if let Some(last) = self.lists.back(ONCE_GHOSTS) {
                self.lists.push_front(STAGED, last);
            }
        } else if len(ONCE_GHOSTS) + len(OFTEN_GHOSTS) >= self.places
            && let Some(last) = self.lists.back(OFTEN_GHOSTS)
        {
            self.lists.push_front(STAGED, last);
        }
        let (once, often) = (self.lists.len(ONCE), self.lists.len(OFTEN));
        let exceeds = once > self.target || (from_often_ghosts && once == self.target);
        let (from, to) = if once > 0 && (exceeds || often == 0) { (ONCE, ONCE_GHOSTS) } else { (OFTEN, OFTEN_GHOSTS) };
        if let Some(last) = self.lists.back(from) {
            self.leave(last);
            self.lists.push_front(to, last);
        }
    }
}
