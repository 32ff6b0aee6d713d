//! Shared buffers of the read cache by content: slots with the same content have one buffer.
//!
//! Of the slots of a content one is the *first*: its node is in a list of the cache. The others *share* its buffer. They are found
//! by slot like the first, and a hit of any of them is a hit of the content. When the first is freed, another takes its place; when the
//! buffer goes, the shared slots are forgotten with it. Ghosts stay by slot: the ghost of a buffer is that of its first slot.
//!
//! Shared slots take places that ghosts would have, at most a quarter of all places. Beyond that a block found by content is answered and
//! not shared: it has to be found by content again.

use alloc::vec::Vec;

use super::content::{self, Contents};
use super::{List, NONE, Node, ReadCache};
use crate::api::{BufferId, Digest};
use crate::counters::ContentCounts;
use crate::format::entry::Slot;
use crate::properties::CacheKey;

/// The divisor of the capacity: one slot can be shared for each N blocks.
const SHARED_PART: usize = 2;

/// Returns the bytes of the tables by content, for buffers with `numbers` numbers.
pub(crate) fn content_bytes(numbers: u64) -> u64 {
    content::bytes_for(numbers)
}

impl ReadCache {
    /// Returns the key by which blocks are found.
    #[inline]
    pub(crate) fn key(&self) -> CacheKey {
        self.key
    }

    /// Returns true if blocks are found by content, too.
    #[inline]
    pub(crate) fn is_by_content(&self) -> bool {
        self.key == CacheKey::Content
    }

    /// Sets the key by which blocks are found; `numbers`: of the buffers. Cached blocks stay. By content, only blocks that come later are found.
    pub(crate) fn set_key(&mut self, key: CacheKey, numbers: usize) {
        if key == self.key {
            return;
        }
        let ReadCache { by_slot, nodes, unused, .. } = self;
        by_slot.retain(|_, &mut at| {
            let stays = nodes[at as usize].list != List::Shared;
            if !stays {
                unused.push(at);
            }
            stays
        });
        self.key = key;
        self.contents = Contents::of(key, numbers);
    }

    /// Returns the counts of hits by content, and of slots that are shared now.
    pub(crate) fn content_counts(&self) -> ContentCounts {
        ContentCounts { shared_blocks: self.contents.shared() as u64, ..self.counts }
    }

    /// Counts a block of a read that was found by content.
    pub(crate) fn count_content_hit(&mut self) {
        self.counts.hits += 1;
    }

    /// Returns a buffer that may hold a content with these check bits.
    #[inline]
    pub(crate) fn candidate(&self, check: u32) -> Option<BufferId> {
        self.contents.candidate(check)
    }

    /// Returns the buffer that holds the content with this digest.
    pub(crate) fn holding(&self, digest: Digest) -> Option<BufferId> {
        self.contents.holding(digest)
    }

    /// Returns the digest of a buffer's content, if blocks are found by content.
    pub(crate) fn digest_in(&self, buffer: BufferId) -> Option<Digest> {
        self.contents.digest(buffer)
    }

    /// Joins a slot to the buffer with its content, and counts a use. Returns true if that is the first use of a block that was read ahead.
    pub(crate) fn use_shared(&mut self, slot: Slot, buffer: BufferId, evicted: &mut Vec<BufferId>) -> bool {
        self.share(slot, buffer);
        let first = self.nodes[self.by_buffer[buffer.0 as usize] as usize];
        match first.list {
            List::Ahead => self.use_ahead(first.slot, evicted).is_some(),
            _ => {
                self.get(first.slot);
                false
            }
        }
    }

    /// Inserts a block with this digest as [`ReadCache::insert`] does; where its content is cached, its slot is shared to that.
    pub(crate) fn insert_content(&mut self, slot: Slot, buffer: BufferId, digest: Digest, evicted: &mut Vec<BufferId>) {
        if let Some(known) = self.contents.holding(digest) {
            evicted.push(buffer);
            self.use_shared(slot, known, evicted);
        } else if self.insert(slot, buffer, evicted) {
            self.contents.list(buffer, digest);
        }
    }

    /// Inserts a block with this digest as [`ReadCache::insert_ahead`] does; where its content is cached, its slot is shared to that.
    pub(crate) fn insert_content_ahead(
        &mut self,
        slot: Slot,
        buffer: BufferId,
        digest: Digest,
        evicted: &mut Vec<BufferId>,
    ) {
        if let Some(known) = self.contents.holding(digest) {
            evicted.push(buffer);
            self.share(slot, known);
        } else if self.insert_ahead(slot, buffer, evicted) {
            self.contents.list(buffer, digest);
        }
    }

    /// Joins a slot to the buffer with the same content, if it is not cached and there is memory for it.
    fn share(&mut self, slot: Slot, buffer: BufferId) {
        if let Some(&at) = self.by_slot.get(&slot) {
            if self.nodes[at as usize].list.has_buffer() {
                return;
            }
            self.drop_node(at);
        }
        if self.contents.shared() >= self.capacity / SHARED_PART {
            return;
        }
        let next = self.contents.first_shared(buffer);
        let at = self.add(Node {
            slot,
            buffer,
            list: List::Shared,
            ghost: None,
            is_passed: false,
            newer: next,
            older: NONE,
        });
        if next != NONE {
            self.nodes[next as usize].older = at;
        }
        self.contents.set_first_shared(buffer, at);
        self.contents.one_more();
        self.trim_ghosts();
    }

    /// Returns the node that has the buffer which a node uses: itself unless it is shared.
    pub(super) fn first_of(&self, at: u32) -> u32 {
        let node = self.nodes[at as usize];
        if node.list == List::Shared { self.by_buffer[node.buffer.0 as usize] } else { at }
    }

    /// Returns the buffer as [`ReadCache::get`] does, where the node is shared.
    #[cold]
    pub(super) fn get_shared(&mut self, node: Node) -> Option<BufferId> {
        if node.list != List::Shared {
            return None;
        }
        let at = self.by_buffer[node.buffer.0 as usize];
        if !matches!(self.nodes[at as usize].list, List::Recent | List::Frequent) {
            return None;
        }
        self.use_again(at);
        Some(node.buffer)
    }

    fn drop_shared(&mut self, at: u32) {
        let Node { slot, buffer, newer, older, .. } = self.nodes[at as usize];
        match older {
            NONE => self.contents.set_first_shared(buffer, newer),
            before => self.nodes[before as usize].newer = newer,
        }
        if newer != NONE {
            self.nodes[newer as usize].older = older;
        }
        self.by_slot.remove(&slot);
        self.unused.push(at);
        self.contents.one_less();
    }

    /// Removes one slot of a content. Returns true if other slots still hold it; if not, the entry of its buffer is gone.
    pub(super) fn remove_one_of(&mut self, at: u32) -> bool {
        let node = self.nodes[at as usize];
        if node.list == List::Shared {
            self.drop_shared(at);
            return true;
        }
        let other = self.contents.first_shared(node.buffer);
        if other == NONE {
            self.contents.unlist(node.buffer);
            return false;
        }
        let slot = self.nodes[other as usize].slot;
        self.drop_shared(other);
        self.by_slot.remove(&node.slot);
        self.by_slot.insert(slot, at);
        let first = &mut self.nodes[at as usize];
        (first.slot, first.ghost) = (slot, None);
        true
    }

    /// Notes that the cache evicts a buffer: no slot shares it any more, and it is not found by content.
    #[inline]
    pub(super) fn leave(&mut self, buffer: BufferId) {
        if self.is_by_content() {
            self.forget_content(buffer);
        }
    }

    #[inline(never)]
    fn forget_content(&mut self, buffer: BufferId) {
        while self.contents.first_shared(buffer) != NONE {
            self.drop_shared(self.contents.first_shared(buffer));
        }
        self.contents.unlist(buffer);
    }

    /// Moves the content entry of a buffer, with its shared nodes, to another buffer.
    pub(super) fn move_shared(&mut self, from: BufferId, into: BufferId) {
        self.contents.move_to(from, into);
        let mut at = self.contents.first_shared(into);
        while at != NONE {
            self.nodes[at as usize].buffer = into;
            at = self.nodes[at as usize].newer;
        }
    }
}
