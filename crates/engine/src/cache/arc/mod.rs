//! The read cache: ARC (Megiddo and Modha, FAST 2003) over slots, each with a buffer that holds the slot's content.
//!
//! Four lists: `recent` (seen once) and `frequent` (seen again) hold buffers; their ghosts remember evicted blocks. A hit in a ghost moves the target
//! size of `recent` towards the list that would have had it. Only content that has passed its check is put in; a freed slot is taken out. So a found
//! buffer always has its slot's content.
//!
//! A fifth list, `ahead`, holds blocks that were read ahead of a sequential reader and have not been used yet. It is apart from ARC: it neither
//! counts towards the capacity nor pushes anything out, and is itself bounded by a part of the capacity. The first use of a block puts it in as if it
//! had come from the device just then, with its ghost taken into account.
//!
//! Blocks that sequential readers leave behind are evicted in rows of buffers that lie side by side (`beside.rs`).
//!
//! Where the pool wants it, blocks are found by content, too (`content.rs`). Slots with the same content then share the one buffer of that content
//! (`shared.rs`).

mod beside;
mod content;
#[cfg(test)]
mod content_tests;
mod shared;
#[cfg(test)]
mod tests;

use alloc::vec::Vec;

use self::content::Contents;
pub(crate) use self::shared::content_bytes;
use crate::api::BufferId;
use crate::counters::ContentCounts;
use crate::format::entry::Slot;
use crate::locality_map::{Near, NearMap};
use crate::properties::CacheKey;
use crate::sizes::table_bytes;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum List {
    Recent = 0,
    Frequent = 1,
    RecentGhost = 2,
    FrequentGhost = 3,
    Ahead = 4,
    /// In none of the lists: its content is in the buffer of another node, the *first*.
    Shared = 5,
}

/// Divisor of the capacity: blocks that have been read ahead take at most one part in N.
const AHEAD_PART: usize = 4;

impl List {
    fn has_buffer(self) -> bool {
        matches!(self, List::Recent | List::Frequent | List::Ahead | List::Shared)
    }
}

const NONE: u32 = u32::MAX;

#[derive(Clone, Copy)]
struct Node {
    slot: Slot,
    buffer: BufferId,
    list: List,
    /// The list of the ghost that a block which was read ahead had before.
    ghost: Option<List>,
    /// True if it was read ahead, used once, and not again.
    is_passed: bool,
    /// Adjacent nodes in the list; of a shared node, among those of the same buffer.
    newer: u32,
    older: u32,
}

#[derive(Clone, Copy)]
struct Ends {
    newest: u32,
    oldest: u32,
    length: usize,
}

/// An adaptive replacement cache of blocks.
pub(crate) struct ReadCache {
    capacity: usize,
    /// The most blocks and ghosts together.
    most: usize,
    target: usize,
    /// True for LRU in place of ARC: `frequent` is empty then.
    lru: bool,
    /// The node of the block in each buffer, if there is one (else anything).
    by_buffer: Vec<u32>,
    nodes: Vec<Node>,
    unused: Vec<u32>,
    by_slot: NearMap<Slot, u32>,
    lists: [Ends; 5],
    key: CacheKey,
    contents: Contents,
    counts: ContentCounts,
}

impl ReadCache {
    /// Makes a cache of `capacity` blocks, which remembers at most `most` blocks, evicted ones included.
    pub(crate) fn new(capacity: usize, most: usize) -> ReadCache {
        ReadCache {
            capacity,
            most,
            target: 0,
            lru: false,
            by_buffer: Vec::new(),
            nodes: Vec::with_capacity(most + 1),
            unused: Vec::new(),
            by_slot: NearMap::with_capacity_and_hasher(most + 1, Near),
            lists: [Ends { newest: NONE, oldest: NONE, length: 0 }; 5],
            key: CacheKey::default(),
            contents: Contents::none(),
            counts: ContentCounts::default(),
        }
    }

    /// Resizes the cache to `capacity` blocks, and to at most `most` that are remembered. Keeps the blocks used last, of the buffers that `keep` allows; the
    /// other buffers go to `evicted`, with those that were read ahead. Shared slots are forgotten. `numbers`: buffers have numbers up to this.
    pub(crate) fn resize(
        &mut self,
        capacity: usize,
        most: usize,
        numbers: usize,
        keep: impl Fn(BufferId) -> bool,
        evicted: &mut Vec<BufferId>,
    ) {
        let all = [List::Recent, List::Frequent, List::RecentGhost, List::FrequentGhost];
        let mut kept = all.map(|list| self.newest_first(list));
        let (target, lru, key, counts) = (self.target.min(capacity), self.lru, self.key, self.counts);
        evicted.extend(self.newest_first(List::Ahead).iter().map(|node| node.buffer));
        let before = core::mem::replace(self, ReadCache::new(0, 0)).contents;
        for nodes in &mut kept[..2] {
            nodes.retain(|node| {
                let good = keep(node.buffer);
                if !good {
                    evicted.push(node.buffer);
                }
                good
            });
        }
        while kept[0].len() + kept[1].len() > capacity {
            let longer = usize::from(kept[1].len() > kept[0].len());
            evicted.extend(kept[longer].pop().map(|node| node.buffer));
        }
        kept[2].truncate(capacity - kept[0].len());
        let all_ghosts = most.min(2 * capacity) - (kept[0].len() + kept[1].len());
        kept[2].truncate(all_ghosts);
        kept[3].truncate(all_ghosts - kept[2].len());
        *self = ReadCache::new(capacity, most);
        (self.target, self.lru) = (target, lru);
        (self.key, self.contents, self.counts) = (key, Contents::of(key, numbers), counts);
        for (list, nodes) in all.into_iter().zip(kept) {
            for node in nodes.into_iter().rev() {
                let at = self.add(node);
                self.push(at, list);
                if matches!(list, List::Recent | List::Frequent) {
                    self.note_buffer(node.buffer, at);
                    if let Some(digest) = before.digest(node.buffer) {
                        self.contents.list(node.buffer, digest);
                    }
                }
            }
        }
    }

    /// Sets the capacity in blocks: blocks that are evicted for that become ghosts, and their buffers go to `evicted`.
    pub(crate) fn set_capacity(&mut self, capacity: usize, evicted: &mut Vec<BufferId>) {
        self.capacity = capacity;
        self.target = self.target.min(capacity);
        while self.cached() > capacity {
            evicted.extend(self.replace(false));
        }
        while self.ahead() > self.most_ahead() {
            evicted.extend(self.evict_ahead());
        }
        self.trim_ghosts();
    }

    fn trim_ghosts(&mut self) {
        while self.length(List::RecentGhost) > 0
            && self.length(List::RecentGhost) + self.length(List::Recent) > self.capacity
        {
            self.drop_oldest(List::RecentGhost);
        }
        let most = self.most.min(2 * self.capacity).max(self.len() + self.contents.shared());
        while self.by_slot.len() > most {
            let list = if self.length(List::FrequentGhost) > 0 { List::FrequentGhost } else { List::RecentGhost };
            self.drop_oldest(list);
        }
    }

    /// Switches to LRU in place of ARC, or back. The cached blocks stay.
    pub(crate) fn set_lru(&mut self, lru: bool) {
        self.lru = lru;
        if lru {
            self.target = self.capacity;
            for (from, into) in [(List::Frequent, List::Recent), (List::FrequentGhost, List::RecentGhost)] {
                while self.lists[from as usize].oldest != NONE {
                    let at = self.lists[from as usize].oldest;
                    self.unlink(at);
                    self.push(at, into);
                }
            }
            self.trim_ghosts();
        }
    }

    fn note_buffer(&mut self, buffer: BufferId, at: u32) {
        let number = buffer.0 as usize;
        if self.by_buffer.len() <= number {
            self.by_buffer.resize(number + 1, NONE);
        }
        self.by_buffer[number] = at;
    }

    /// Returns the slot whose content is cached in this buffer.
    pub(crate) fn in_buffer(&self, buffer: BufferId) -> Option<Slot> {
        let slot = self.nodes.get(*self.by_buffer.get(buffer.0 as usize)? as usize)?.slot;
        (self.peek(slot) == Some(buffer)).then_some(slot)
    }

    /// Moves a cached block to another buffer, with all slots that are shared to it.
    pub(crate) fn set_buffer(&mut self, slot: Slot, buffer: BufferId) {
        let at = self.first_of(self.by_slot[&slot]);
        let before = core::mem::replace(&mut self.nodes[at as usize].buffer, buffer);
        self.note_buffer(buffer, at);
        self.move_shared(before, buffer);
    }

    fn newest_first(&self, list: List) -> Vec<Node> {
        let mut nodes = Vec::with_capacity(self.length(list));
        let mut at = self.lists[list as usize].newest;
        while at != NONE {
            let node = self.nodes[at as usize];
            nodes.push(node);
            at = node.older;
        }
        nodes
    }

    /// Enters a node, in no list yet.
    fn add(&mut self, node: Node) -> u32 {
        let at = match self.unused.pop() {
            Some(at) => {
                self.nodes[at as usize] = node;
                at
            }
            None => {
                self.nodes.push(node);
                (self.nodes.len() - 1) as u32
            }
        };
        self.by_slot.insert(node.slot, at);
        at
    }

    fn length(&self, list: List) -> usize {
        self.lists[list as usize].length
    }

    /// Returns the number of cached blocks that have been used.
    fn cached(&self) -> usize {
        self.length(List::Recent) + self.length(List::Frequent)
    }

    /// Returns the number of blocks that have been read ahead, and not been used.
    pub(crate) fn ahead(&self) -> usize {
        self.length(List::Ahead)
    }

    /// Returns the number of used blocks that the cache can hold.
    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }

    /// Returns the most blocks of the cache that may be read ahead and not used.
    pub(crate) fn most_ahead(&self) -> usize {
        self.capacity / AHEAD_PART
    }

    /// Returns the number of blocks whose buffers can be evicted.
    pub(crate) fn len(&self) -> usize {
        self.cached() + self.ahead()
    }

    fn unlink(&mut self, at: u32) {
        let node = self.nodes[at as usize];
        let ends = &mut self.lists[node.list as usize];
        ends.length -= 1;
        match node.newer {
            NONE => ends.newest = node.older,
            newer => self.nodes[newer as usize].older = node.older,
        }
        let ends = &mut self.lists[node.list as usize];
        match node.older {
            NONE => ends.oldest = node.newer,
            older => self.nodes[older as usize].newer = node.newer,
        }
    }

    fn push(&mut self, at: u32, list: List) {
        let ends = &mut self.lists[list as usize];
        ends.length += 1;
        let before = core::mem::replace(&mut ends.newest, at);
        if before == NONE {
            ends.oldest = at;
        } else {
            self.nodes[before as usize].newer = at;
        }
        let node = &mut self.nodes[at as usize];
        node.list = list;
        node.newer = NONE;
        node.older = before;
    }

    fn drop_node(&mut self, at: u32) {
        self.unlink(at);
        self.nodes[at as usize].is_passed = false;
        self.by_slot.remove(&self.nodes[at as usize].slot);
        self.unused.push(at);
    }

    fn drop_oldest(&mut self, list: List) {
        let oldest = self.lists[list as usize].oldest;
        if oldest != NONE {
            self.drop_node(oldest);
        }
    }

    /// Returns the buffer with the slot's content, if it is cached, and counts that as a use.
    pub(crate) fn get(&mut self, slot: Slot) -> Option<BufferId> {
        let at = *self.by_slot.get(&slot)?;
        let node = self.nodes[at as usize];
        if !matches!(node.list, List::Recent | List::Frequent) {
            return self.get_shared(node);
        }
        self.use_again(at);
        Some(node.buffer)
    }

    /// Returns the buffer with the slot's content, if it was read ahead and not used yet: this is the first use.
    pub(crate) fn use_ahead(&mut self, slot: Slot, evicted: &mut Vec<BufferId>) -> Option<BufferId> {
        if self.ahead() == 0 {
            return None;
        }
        let at = self.first_of(*self.by_slot.get(&slot)?);
        let node = self.nodes[at as usize];
        if node.list != List::Ahead {
            return None;
        }
        match node.ghost {
            Some(ghost) => {
                self.unlink(at);
                self.push(at, ghost);
            }
            None => self.drop_node(at),
        }
        if self.insert(node.slot, node.buffer, evicted) {
            self.nodes[self.by_buffer[node.buffer.0 as usize] as usize].is_passed = node.ghost.is_none();
        }
        Some(node.buffer)
    }

    /// Inserts a block that was read ahead, in place of the oldest such block; a cached block is kept. Returns true if it was inserted.
    pub(crate) fn insert_ahead(&mut self, slot: Slot, buffer: BufferId, evicted: &mut Vec<BufferId>) -> bool {
        let before = self.by_slot.get(&slot).copied();
        let ghost = before.map(|at| self.nodes[at as usize].list);
        let is_here = ghost.is_some_and(|list| !matches!(list, List::RecentGhost | List::FrequentGhost));
        if is_here || self.most_ahead() == 0 {
            evicted.push(buffer);
            return false;
        }
        if let Some(at) = before {
            self.drop_node(at);
        }
        while self.ahead() >= self.most_ahead() {
            evicted.extend(self.evict_ahead());
        }
        let at = self.add(Node { slot, buffer, list: List::Ahead, ghost, is_passed: false, newer: NONE, older: NONE });
        self.push(at, List::Ahead);
        self.note_buffer(buffer, at);
        self.trim_ghosts();
        true
    }

    /// Evicts the oldest block that was read ahead.
    pub(crate) fn evict_ahead(&mut self) -> Option<BufferId> {
        let oldest = self.lists[List::Ahead as usize].oldest;
        let node = *self.nodes.get(oldest as usize)?;
        self.leave(node.buffer);
        match node.ghost {
            Some(ghost) => {
                self.unlink(oldest);
                self.push(oldest, ghost);
                self.nodes[oldest as usize].ghost = None;
                self.trim_ghosts();
            }
            None => self.drop_node(oldest),
        }
        Some(node.buffer)
    }

    /// Counts another use of the block of a node.
    #[inline]
    fn use_again(&mut self, at: u32) {
        self.unlink(at);
        self.push(at, if self.lru { List::Recent } else { List::Frequent });
        self.nodes[at as usize].is_passed = false;
    }

    /// Returns the buffer if the slot's content is cached, without counting it as used.
    #[inline]
    pub(crate) fn peek(&self, slot: Slot) -> Option<BufferId> {
        let node = self.nodes[*self.by_slot.get(&slot)? as usize];
        node.list.has_buffer().then_some(node.buffer)
    }

    /// Inserts an uncached block. The cache holds the buffer from then on; evicted buffers go to `evicted`. Returns true if the block was inserted.
    pub(crate) fn insert(&mut self, slot: Slot, buffer: BufferId, evicted: &mut Vec<BufferId>) -> bool {
        if self.capacity == 0 {
            self.leave(buffer);
            evicted.push(buffer);
            return false;
        }
        if let Some(&at) = self.by_slot.get(&slot) {
            let (recent, frequent) = (self.length(List::RecentGhost), self.length(List::FrequentGhost));
            let in_frequent = match self.nodes[at as usize].list {
                List::RecentGhost => {
                    self.target = (self.target + (frequent / recent.max(1)).max(1)).min(self.capacity);
                    false
                }
                List::FrequentGhost => {
                    self.target = self.target.saturating_sub((recent / frequent.max(1)).max(1));
                    true
                }
                List::Recent | List::Frequent | List::Ahead | List::Shared => {
                    // Two fills of one slot: keep the first.
                    evicted.push(buffer);
                    return false;
                }
            };
            self.make_space(in_frequent, evicted);
            self.nodes[at as usize].buffer = buffer;
            self.use_again(at);
            self.note_buffer(buffer, at);
            self.trim_ghosts();
            return true;
        }
        let recent_side = self.length(List::Recent) + self.length(List::RecentGhost);
        let all = recent_side + self.length(List::Frequent) + self.length(List::FrequentGhost);
        let most = self.most.min(2 * self.capacity);
        if recent_side >= self.capacity {
            if self.length(List::RecentGhost) > 0 {
                self.drop_oldest(List::RecentGhost);
                self.make_space(false, evicted);
            } else {
                let Node { buffer, is_passed, .. } = self.nodes[self.lists[List::Recent as usize].oldest as usize];
                self.leave(buffer);
                evicted.push(buffer);
                self.drop_oldest(List::Recent);
                if is_passed {
                    self.let_go_beside(buffer, evicted);
                }
            }
        } else if all >= self.capacity {
            if self.by_slot.len() >= most {
                let list = if self.length(List::FrequentGhost) > 0 { List::FrequentGhost } else { List::RecentGhost };
                self.drop_oldest(list);
            }
            self.make_space(false, evicted);
        }
        let node = Node { slot, buffer, list: List::Recent, ghost: None, is_passed: false, newer: NONE, older: NONE };
        let at = self.add(node);
        self.push(at, List::Recent);
        self.note_buffer(buffer, at);
        true
    }

    fn make_space(&mut self, in_frequent_ghost: bool, evicted: &mut Vec<BufferId>) {
        if self.cached() >= self.capacity
            && let Some(buffer) = self.replace(in_frequent_ghost)
        {
            evicted.push(buffer);
            if self.nodes[self.by_buffer[buffer.0 as usize] as usize].is_passed {
                self.let_go_beside(buffer, evicted);
            }
        }
    }

    /// Evicts a block as ARC's REPLACE does: the victim becomes a ghost.
    fn replace(&mut self, in_frequent_ghost: bool) -> Option<BufferId> {
        let recent = self.length(List::Recent);
        let from_recent = recent > 0
            && (recent > self.target
                || (in_frequent_ghost && recent == self.target)
                || self.length(List::Frequent) == 0);
        let (from, ghost) =
            if from_recent { (List::Recent, List::RecentGhost) } else { (List::Frequent, List::FrequentGhost) };
        let victim = self.lists[from as usize].oldest;
        if victim == NONE {
            return None;
        }
        self.unlink(victim);
        self.push(victim, ghost);
        let buffer = self.nodes[victim as usize].buffer;
        self.leave(buffer);
        Some(buffer)
    }

    /// Evicts one block, because its buffer is needed elsewhere: one that was read ahead only where there is no other.
    pub(crate) fn evict(&mut self) -> Option<BufferId> {
        let buffer = self.replace(false);
        self.trim_ghosts();
        buffer.or_else(|| self.evict_ahead())
    }

    /// Removes a free slot. Returns the buffer that the cache releases, unless other slots hold the same content.
    pub(crate) fn remove(&mut self, slot: Slot) -> Option<BufferId> {
        let at = *self.by_slot.get(&slot)?;
        let node = self.nodes[at as usize];
        if node.list.has_buffer() && self.is_by_content() && self.remove_one_of(at) {
            return None;
        }
        self.drop_node(at);
        node.list.has_buffer().then_some(node.buffer)
    }

    /// Evicts a block, with all slots that hold it.
    pub(crate) fn let_go(&mut self, slot: Slot) -> Option<BufferId> {
        let buffer = self.peek(slot)?;
        self.leave(buffer);
        let at = self.by_buffer[buffer.0 as usize];
        self.drop_node(at);
        Some(buffer)
    }

    /// Returns every cached block, once each.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Slot, BufferId)> + '_ {
        let nodes = self.by_slot.values().map(|&at| self.nodes[at as usize]);
        let with_buffer = nodes.filter(|node| node.list.has_buffer() && node.list != List::Shared);
        with_buffer.map(|node| (node.slot, node.buffer))
    }

    /// Returns the bytes of memory of the tables, without the buffers.
    pub(crate) fn memory(&self) -> u64 {
        let numbers = self.unused.capacity() + self.by_buffer.capacity();
        (self.nodes.capacity() * core::mem::size_of::<Node>() + numbers * 4) as u64
            + table_bytes(&self.by_slot)
            + self.contents.memory()
    }
}
