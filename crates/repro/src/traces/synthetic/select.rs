//! Model of POD's Select-Dedupe with an unbounded index, used only to count the writes that it removes from a made trace.
//!
//! Each block has its own address, where it is written. A copy there that others need first moves to the spare area. A request is removed if all its blocks are
//! known and lie in one run. Otherwise a request shares its runs of at least three known blocks. The index names one place of each content.

use crate::traces::hashing::Table;
use crate::traces::{ContentId, Request};

/// POD's threshold.
const RUN: usize = 3;

/// Start of the spare area, after all own addresses of blocks.
const SPARE: u64 = 1 << 52;

/// Its tables.
#[derive(Default)]
pub(super) struct Select {
    /// Copy that each written block refers to.
    blocks: Table<u64>,
    copies: Table<Copy>,
    /// Copies that are at the homes of blocks.
    homes: Table<u64>,
    /// A copy of each content.
    index: Table<u64>,
    /// Number of copies that there ever were, and blocks of the spare space that were taken.
    next: u64,
    spare: u64,
    /// Writes, and those that needed no I/O.
    pub(super) writes: u64,
    pub(super) removed: u64,
}

/// A content on disk, once.
struct Copy {
    content: ContentId,
    /// Number of blocks that lead here.
    blocks: u32,
    address: u64,
}

impl Select {
    /// Applies a write.
    pub(super) fn write(&mut self, request: &Request) {
        let found: Vec<Option<u64>> = request.contents.iter().map(|content| self.index.get(content).copied()).collect();
        let addresses: Vec<Option<u64>> = found.iter().map(|copy| self.address((*copy)?)).collect();
        let mut shares = vec![false; found.len()];
        let mut begin = 0;
        while begin < found.len() {
            let mut end = begin + 1;
            while end < found.len() && follows(addresses[end - 1], addresses[end]) {
                end += 1;
            }
            if found[begin].is_some() && (end - begin >= RUN || end - begin == found.len()) {
                shares[begin..end].fill(true);
            }
            begin = end;
        }
        self.writes += 1;
        let mut is_removed = true;
        for (index, (block, &content)) in (request.block..).zip(&request.contents).enumerate() {
            // An earlier block of this request may have dropped the last reference to the copy.
            match found[index].filter(|copy| shares[index] && self.copies.contains_key(copy)) {
                Some(copy) => self.lead(block, copy),
                None => {
                    is_removed = false;
                    self.put(block, content);
                }
            }
        }
        self.removed += u64::from(is_removed);
    }

    fn address(&self, copy: u64) -> Option<u64> {
        self.copies.get(&copy).map(|copy| copy.address)
    }

    /// Leads a block to a copy of its content.
    fn lead(&mut self, block: u64, copy: u64) {
        if self.blocks.get(&block) == Some(&copy) {
            return;
        }
        if let Some(copy) = self.copies.get_mut(&copy) {
            copy.blocks += 1;
        }
        self.leave(block);
        self.blocks.insert(block, copy);
    }

    /// Writes a content to the block's own address; a copy there that other blocks need moves to the spare area.
    fn put(&mut self, block: u64, content: ContentId) {
        self.leave(block);
        self.next += 1;
        if let Some(moved) = self.homes.insert(block, self.next).and_then(|other| self.copies.get_mut(&other)) {
            self.spare += 1;
            moved.address = SPARE + self.spare;
        }
        self.copies.insert(self.next, Copy { content, blocks: 1, address: block });
        self.blocks.insert(block, self.next);
        // Of two copies the index keeps the older one, which is in a run more often than one that was written beside new contents.
        self.index.entry(content).or_insert(self.next);
    }

    /// Detaches a block from its copy; a copy without blocks is gone, from the index also.
    fn leave(&mut self, block: u64) {
        let Some(name) = self.blocks.remove(&block) else {
            return;
        };
        let Some(copy) = self.copies.get_mut(&name) else {
            return;
        };
        copy.blocks -= 1;
        if copy.blocks > 0 {
            return;
        }
        if copy.address < SPARE {
            self.homes.remove(&copy.address);
        }
        if self.index.get(&copy.content) == Some(&name) {
            self.index.remove(&copy.content);
        }
        self.copies.remove(&name);
    }
}

fn follows(before: Option<u64>, after: Option<u64>) -> bool {
    matches!((before, after), (Some(before), Some(after)) if before + 1 == after)
}
