//! Row eviction of blocks that streams leave behind: buffers that lie side by side in memory are evicted together.
//!
//! Random use mixes buffers up. A cache that evicts one block at a time hands them on in that order: each stream gets the buffers of the one before,
//! and every device read has many pieces of memory, without end. So the next victim takes others in the same *row* (buffers of consecutive numbers)
//! with it, if they too were read ahead, used once and not again. No other block is evicted before its turn. Once a row is filled by one stream, its
//! blocks have their turn together anyway.

use alloc::vec::Vec;

use super::{List, ReadCache};
use crate::api::BufferId;
use crate::cache::streams::RUN_BLOCKS;

/// The least number of rows in the cache: a row is at most one of N parts of it.
const LEAST_ROWS: usize = 16;

impl ReadCache {
    /// Evicts the blocks that streams have left in the row of this buffer, whose own block streams left and which was evicted in its turn.
    #[inline(never)]
    pub(super) fn let_go_beside(&mut self, buffer: BufferId, evicted: &mut Vec<BufferId>) {
        let row = (RUN_BLOCKS as usize).min(self.capacity / LEAST_ROWS);
        let first = buffer.0 as usize / row.max(1) * row;
        for number in first..self.by_buffer.len().min(first + row) {
            let at = self.by_buffer[number];
            let Some(node) = self.nodes.get(at as usize).copied() else { continue };
            if node.is_passed && node.list == List::Recent && node.buffer.0 as usize == number {
                self.leave(node.buffer);
                self.unlink(at);
                self.push(at, List::RecentGhost);
                evicted.push(node.buffer);
            }
        }
    }
}
