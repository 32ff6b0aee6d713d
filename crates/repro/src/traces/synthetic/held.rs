//! Contents of written blocks, with the number of the write of each.

use crate::traces::ContentId;
use crate::traces::hashing::Table;

/// Blocks that are looked for together.
const TOGETHER: u64 = 16;

/// A content and the number of its write; 0 of blocks that were not written.
type Entry = (ContentId, u32);

/// Table of entries in groups of adjacent blocks.
#[derive(Default)]
pub(super) struct Held {
    groups: Table<usize>,
    entries: Vec<[Entry; TOGETHER as usize]>,
}

impl Held {
    /// Returns the content of a block and the number of its write, if it was written.
    pub(super) fn get(&self, block: u64) -> Option<Entry> {
        let group = self.groups.get(&(block / TOGETHER))?;
        Some(self.entries[*group][(block % TOGETHER) as usize]).filter(|&(_, write)| write > 0)
    }

    /// Calls `each` for every block of a range, with its content if it was written.
    pub(super) fn range(&self, block: u64, blocks: u32, mut each: impl FnMut(u64, Option<Entry>)) {
        let end = block + u64::from(blocks);
        let mut at = block;
        while at < end {
            let group = self.groups.get(&(at / TOGETHER)).map(|&group| &self.entries[group]);
            let next = end.min((at / TOGETHER + 1) * TOGETHER);
            for block in at..next {
                let entry = group.map(|group| group[(block % TOGETHER) as usize]);
                each(block, entry.filter(|&(_, write)| write > 0));
            }
            at = next;
        }
    }

    /// Stores the contents of a write, whose number is not 0, from this block on.
    pub(super) fn write(&mut self, block: u64, contents: &[ContentId], write: u32) {
        let mut group = None;
        for (block, &content) in (block..).zip(contents) {
            if group.is_none() || block.is_multiple_of(TOGETHER) {
                let next = self.entries.len();
                let found = *self.groups.entry(block / TOGETHER).or_insert(next);
                if found == next {
                    self.entries.push([(0, 0); TOGETHER as usize]);
                }
                group = Some(found);
            }
            if let Some(group) = group {
                self.entries[group][(block % TOGETHER) as usize] = (content, write);
            }
        }
    }
}
