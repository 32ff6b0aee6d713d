//! Coalescing of writes: those that arrive together and continue each other become one request. So policies look at the writes that arrived together,
//! regardless of the client's cuts.
//!
//! A write coalesced into another request keeps its place in the table, and is answered independently, with the same result. Its blocks are with that
//! request, its *leader*. Only writes that have not run yet are coalesced, so none waits for others. If a part of it cannot be done, a coalesced
//! request is taken apart, and each of its writes stands alone.
//!
//! Writes that overlap keep their order: a write passes requests that came between it and its leader only where those touch other blocks.

use alloc::vec::Vec;
use core::ops::Range;

use crate::api::{Error, RequestId};
use crate::engine::Engine;
use crate::requests::request::{Kind, Request, Stage};

/// Number of the newest waiting requests that are looked at.
const LOOK_BACK: usize = 8;

impl Engine {
    /// Coalesces a write that has just come with one that waits to run and that it continues, on either side; false if there is none.
    pub(crate) fn coalesce(&mut self, id: RequestId) -> bool {
        let request = self.requests.get(id);
        let block = self.pool.metadata.geometry().block();
        if request.kind() != Kind::Write || !is_whole(request, block) {
            return false;
        }
        let (volume, fua, range) = (request.volume(), request.fua(), touched(request, block));
        let most = u64::from(self.pool.metadata.geometry().piece_blocks);
        for at in 0..LOOK_BACK {
            let Some(leader) = self.queues.newest_ready(at) else { break };
            let other = self.requests.get(leader);
            let there = touched(other, block);
            let meets = there.end == range.start || range.end == there.start;
            let fits = there.end - there.start + range.end - range.start <= most;
            let waits = other.kind() == Kind::Write && !other.has_run() && is_whole(other, block);
            if waits && (other.volume(), other.fua()) == (volume, fua) && meets && fits {
                self.add(leader, id, range.end == there.start);
                return true;
            }
            if other.volume() == volume && there.start < range.end && range.start < there.end {
                return false;
            }
        }
        false
    }

    /// Adds the blocks of a write to its leader.
    fn add(&mut self, leader: RequestId, id: RequestId, before: bool) {
        let most = self.pool.metadata.geometry().piece_blocks as usize;
        let request = self.requests.get_mut(id);
        request.set_leader(leader);
        let mut more = core::mem::take(request.blocks_mut());
        let first = self.requests.get_mut(leader);
        if before {
            core::mem::swap(first.blocks_mut(), &mut more);
        }
        let count = first.blocks().len() + more.len();
        if count > first.blocks().capacity() {
            // It grows twice as large, but never larger than the longest request.
            let more = (2 * count).min(most) - first.blocks().len();
            first.blocks_mut().reserve_exact(more);
        }
        first.blocks_mut().append(&mut more);
        let next = first.replace_next(id);
        let request = self.requests.get_mut(id);
        // Its list is empty now. The next request in its place gets the memory.
        *request.blocks_mut() = more;
        if let Some(next) = next {
            request.set_next(next);
        }
    }

    /// Takes a coalesced request apart, if its error may not be that of all its writes: each is queued to run alone.
    pub(crate) fn part(&mut self, id: RequestId, error: Error) -> bool {
        let request = self.requests.get(id);
        let is_of_some = matches!(error, Error::NoSpace | Error::Invalid | Error::Io);
        if request.next().is_none() || request.stage() == Stage::Commit || self.pool.state.read_only() || !is_of_some {
            return false;
        }
        let block = self.pool.metadata.geometry().block();
        let blocks = core::mem::take(self.requests.get_mut(id).blocks_mut());
        let first = blocks[0].key.lba();
        let waits_since = self.requests.get(id).waits_since();
        let mut writes: Vec<RequestId> = self.requests.coalesced(id).collect();
        writes.sort_unstable_by_key(|&write| self.requests.get(write).offset());
        for &write in &writes {
            let request = self.requests.get_mut(write);
            let start = (request.offset() / block - first) as usize;
            let count = (request.length() / block) as usize;
            request.blocks_mut().clear();
            request.blocks_mut().extend_from_slice(&blocks[start..start + count]);
            request.begin_alone(waits_since);
        }
        for write in writes {
            self.queues.push_parted(write);
        }
        true
    }
}

/// Returns true if a request begins and ends at block boundaries.
fn is_whole(request: &Request, block: u64) -> bool {
    request.offset().is_multiple_of(block) && request.length().is_multiple_of(block)
}

/// Returns the blocks of its volume that a request touches, with those of the writes coalesced into it.
fn touched(request: &Request, block: u64) -> Range<u64> {
    match (request.kind(), request.blocks().first()) {
        (Kind::Flush, _) => 0..0,
        (Kind::Write, Some(first)) => first.key.lba()..first.key.lba() + request.blocks().len() as u64,
        _ => request.offset() / block..(request.offset() + request.length()).div_ceil(block),
    }
}
