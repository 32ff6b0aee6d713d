//! The content index of the read cache: finds the buffer with a content by the first 24 bits of its digest, then by all 128.
//!
//! A map entry has 24 bits of its block's digest. They name candidates here and prove nothing. A caller with the whole digest of a slot, from the
//! summaries or from a delta, gets the buffer that holds just that (`pool/contents.rs`).
//!
//! Lists of buffers, one for each value of 24 bits (fewer for few buffers), linked by the numbers of the buffers: 24 bytes a buffer, and four to
//! eight for the heads of the lists. Only buffers that the cache holds are in them. No two of them hold the same content.

use alloc::vec;
use alloc::vec::Vec;

use super::NONE;
use crate::api::{BufferId, Digest};
use crate::format::entry::check_bits;
use crate::properties::CacheKey;
use crate::sizes::list_bytes;

/// A buffer that is in no list.
const UNLISTED: u32 = u32::MAX - 1;
/// The most lists: one for each value of 24 bits.
const MOST_LISTS: usize = 1 << 24;

/// State of a buffer whose content is known.
#[derive(Clone, Copy)]
struct Content {
    digest: Digest,
    /// The next buffer of its list.
    next: u32,
    /// The first of the nodes that share the buffer.
    shared: u32,
}

const UNKNOWN: Content = Content { digest: Digest([0; 16]), next: UNLISTED, shared: NONE };

/// Contents of buffers.
pub(super) struct Contents {
    /// The first buffer of each list. Without lists nothing is found by content.
    lists: Vec<u32>,
    of: Vec<Content>,
    /// Nodes that share a buffer of another one.
    shared: usize,
}

/// Returns the number of lists for buffers with `numbers` numbers.
fn lists(numbers: usize) -> usize {
    numbers.next_power_of_two().min(MOST_LISTS)
}

/// Returns the bytes that the tables take for buffers with `numbers` numbers.
pub(super) fn bytes_for(numbers: u64) -> u64 {
    numbers * core::mem::size_of::<Content>() as u64 + lists(numbers as usize) as u64 * 4
}

impl Contents {
    /// Makes tables in which nothing is found by content.
    pub(super) fn none() -> Contents {
        Contents { lists: Vec::new(), of: Vec::new(), shared: 0 }
    }

    /// Makes tables for buffers with `numbers` numbers, without contents; empty ones unless `key` is by content.
    pub(super) fn of(key: CacheKey, numbers: usize) -> Contents {
        match key {
            CacheKey::Content => {
                Contents { lists: vec![NONE; lists(numbers)], of: Vec::with_capacity(numbers), shared: 0 }
            }
            CacheKey::Sector | CacheKey::Off => Contents::none(),
        }
    }

    fn list_of(&self, check: u32) -> usize {
        check as usize & (self.lists.len() - 1)
    }

    /// Enters the digest of a buffer's content. No other buffer has that content.
    pub(super) fn list(&mut self, buffer: BufferId, digest: Digest) {
        if self.lists.is_empty() {
            return;
        }
        let number = buffer.0 as usize;
        if self.of.len() <= number {
            self.of.resize(number + 1, UNKNOWN);
        }
        let list = self.list_of(check_bits(digest));
        let next = core::mem::replace(&mut self.lists[list], buffer.0);
        self.of[number] = Content { digest, next, shared: NONE };
    }

    /// Removes a buffer from the tables. Its shared nodes are the caller's to remove.
    pub(super) fn unlist(&mut self, buffer: BufferId) {
        let number = buffer.0 as usize;
        let Some(content) = self.of.get_mut(number).filter(|content| content.next != UNLISTED) else { return };
        let Content { digest, next, .. } = core::mem::replace(content, UNKNOWN);
        let list = self.list_of(check_bits(digest));
        if self.lists[list] == buffer.0 {
            self.lists[list] = next;
            return;
        }
        let mut at = self.lists[list];
        while self.of[at as usize].next != buffer.0 {
            at = self.of[at as usize].next;
        }
        self.of[at as usize].next = next;
    }

    /// Moves the entry of a buffer, with its digest and its shared nodes, to another one.
    pub(super) fn move_to(&mut self, from: BufferId, into: BufferId) {
        if let Some(digest) = self.digest(from) {
            let shared = self.of[from.0 as usize].shared;
            self.unlist(from);
            self.list(into, digest);
            self.of[into.0 as usize].shared = shared;
        }
    }

    /// Returns the digest of a buffer's content, if it is known.
    pub(super) fn digest(&self, buffer: BufferId) -> Option<Digest> {
        let content = self.of.get(buffer.0 as usize).filter(|content| content.next != UNLISTED)?;
        Some(content.digest)
    }

    /// Returns the buffers in one list, with their digests.
    fn in_list(&self, check: u32) -> impl Iterator<Item = (BufferId, Digest)> + '_ {
        let first = if self.lists.is_empty() { NONE } else { self.lists[self.list_of(check)] };
        let number = |at: u32| (at != NONE).then_some(at);
        let all = core::iter::successors(number(first), move |&at| number(self.of[at as usize].next));
        all.map(|at| (BufferId(at), self.of[at as usize].digest))
    }

    /// Returns a buffer whose content has these check bits. That proves nothing.
    #[inline]
    pub(super) fn candidate(&self, check: u32) -> Option<BufferId> {
        self.in_list(check).find(|&(_, digest)| check_bits(digest) == check).map(|(buffer, _)| buffer)
    }

    /// Returns the buffer that holds the content with this digest.
    pub(super) fn holding(&self, digest: Digest) -> Option<BufferId> {
        self.in_list(check_bits(digest)).find(|&(_, of)| of == digest).map(|(buffer, _)| buffer)
    }

    /// Returns the number of nodes that share a buffer of another one.
    pub(super) fn shared(&self) -> usize {
        self.shared
    }

    /// Returns the first of the nodes that are shared to a buffer, or [`NONE`].
    pub(super) fn first_shared(&self, buffer: BufferId) -> u32 {
        self.of.get(buffer.0 as usize).map_or(NONE, |content| content.shared)
    }

    /// Sets the first of the nodes that are shared to a buffer.
    pub(super) fn set_first_shared(&mut self, buffer: BufferId, at: u32) {
        self.of[buffer.0 as usize].shared = at;
    }

    /// Counts one more shared node.
    pub(super) fn one_more(&mut self) {
        self.shared += 1;
    }

    /// Counts one shared node less.
    pub(super) fn one_less(&mut self) {
        self.shared -= 1;
    }

    /// Returns the bytes of memory of the tables.
    pub(super) fn memory(&self) -> u64 {
        list_bytes(&self.lists) + list_bytes(&self.of)
    }
}
