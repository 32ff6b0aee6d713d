//! Scratch zones: ten areas at equal distances across the disk, with copies of the popular runs of the last epoch (I/O Deduplication).
//!
//! Each zone is a ring: a new run of blocks goes to the cursor in all zones, and the old blocks there are dropped. A copy never changes; it serves any read of
//! the same contents in the same order. The slides leave the sizes open. Here, as REFERENCE has it, copies take 1 % of the disk in all. Every zone has one copy
//! of each run that was read from the disk at least twice in an epoch. The most frequently read runs come first.

use std::collections::BTreeMap;

use crate::replay::lru::Numbers;
use crate::traces::ContentId;

/// Zones.
pub const ZONES: u64 = 10;
/// Divisor of the disk: the part for copies.
const BUDGET_PART: u64 = 100;
/// Reads from the disk from which on a run is copied.
const POPULAR: u32 = 2;

/// Returns the blocks of each zone, where a trace has one part in `part` of its data.
pub fn zone_blocks(disk_blocks: u64, part: u64) -> u64 {
    disk_blocks / BUDGET_PART / part / ZONES
}

/// Returns the first block of a zone.
pub fn zone_start(disk_blocks: u64, zone: u64) -> u64 {
    (2 * zone + 1) * disk_blocks / (2 * ZONES)
}

/// Returns true if any of these blocks is in a zone.
pub fn is_scratch(disk_blocks: u64, part: u64, block: u64, blocks: u64) -> bool {
    let size = zone_blocks(disk_blocks, part);
    (0..ZONES).map(|zone| zone_start(disk_blocks, zone)).any(|start| block < start + size && start < block + blocks)
}

/// Copies that are to be made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Task {
    /// Blocks of each.
    pub blocks: u64,
    /// Start of the run in each zone.
    pub at: u64,
}

/// A run, and whether its copies are on the disk.
#[derive(Clone, Debug)]
struct Copied {
    contents: Vec<ContentId>,
    is_written: bool,
}

/// Copies, and the reads since the epoch began.
#[derive(Clone, Debug)]
pub struct Zones {
    disk_blocks: u64,
    size: u64,
    cursor: u64,
    /// Copies by their place in a zone.
    copied: BTreeMap<u64, Copied>,
    /// The place of a run by its first content.
    by_content: Numbers<u64>,
    /// Reads from the disk of each run by its own address: their number, the last one, and the contents.
    reads: BTreeMap<u64, (u32, u64, Vec<ContentId>)>,
    count: u64,
}

impl Zones {
    /// Creates empty zones.
    pub fn new(disk_blocks: u64, part: u64) -> Zones {
        Zones {
            disk_blocks,
            size: zone_blocks(disk_blocks, part),
            cursor: 0,
            copied: BTreeMap::new(),
            by_content: Numbers::default(),
            reads: BTreeMap::new(),
            count: 0,
        }
    }

    /// Counts a read of a run of contents from the disk.
    pub fn read(&mut self, home: u64, contents: &[ContentId]) {
        self.count += 1;
        let (count, last, held) = self.reads.entry(home).or_default();
        if held.as_slice() != contents {
            (*count, *held) = (0, contents.to_vec());
        }
        *count += 1;
        *last = self.count;
    }

    /// Ends an epoch: returns the copies to make, most read first. Existing copies stay in place.
    pub fn end_epoch(&mut self) -> Vec<Task> {
        let reads = std::mem::take(&mut self.reads);
        let mut popular: Vec<_> = reads.into_iter().filter(|(_, (count, ..))| *count >= POPULAR).collect();
        popular.sort_by_key(|(home, (count, last, _))| (std::cmp::Reverse((*count, *last)), *home));
        let (mut space, mut tasks) = (self.size, Vec::new());
        for (_, (_, _, contents)) in popular {
            let blocks = contents.len() as u64;
            if blocks > space {
                break;
            }
            space -= blocks;
            if self.find(&contents).is_some() {
                continue;
            }
            let at = self.take(blocks);
            self.by_content.insert(contents[0], at);
            self.copied.insert(at, Copied { contents, is_written: false });
            tasks.push(Task { blocks, at });
        }
        tasks
    }

    /// Allocates blocks at the cursor; runs that overlap them are dropped.
    fn take(&mut self, blocks: u64) -> u64 {
        if self.cursor + blocks > self.size {
            self.cursor = 0;
        }
        let at = self.cursor;
        self.cursor += blocks;
        let before = self.copied.range(..at).next_back().filter(|(start, run)| *start + run.contents.len() as u64 > at);
        let mut gone: Vec<u64> = before.map(|(start, _)| *start).into_iter().collect();
        gone.extend(self.copied.range(at..at + blocks).map(|(start, _)| *start));
        for start in gone {
            if let Some(run) = self.copied.remove(&start)
                && self.by_content.get(&run.contents[0]) == Some(&start)
            {
                self.by_content.remove(&run.contents[0]);
            }
        }
        at
    }

    fn find(&self, contents: &[ContentId]) -> Option<(u64, &Copied)> {
        let at = *self.by_content.get(contents.first()?)?;
        let run = self.copied.get(&at)?;
        run.contents.starts_with(contents).then_some((at, run))
    }

    /// Notes that the copies of a run are on the disk.
    pub fn written(&mut self, at: u64) {
        if let Some(run) = self.copied.get_mut(&at) {
            run.is_written = true;
        }
    }

    /// Returns the places in the zones where these contents are in order.
    pub fn places(&self, contents: &[ContentId]) -> impl Iterator<Item = u64> + use<'_> {
        let found = self.find(contents).filter(|(_, run)| run.is_written);
        (0..ZONES).filter_map(move |zone| Some(zone_start(self.disk_blocks, zone) + found?.0))
    }
}
