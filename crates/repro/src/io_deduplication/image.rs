//! Disk image before a week: the blocks that are read before they are written, and unused copies of them.
//!
//! The slides give the static similarity of the disks, pages by different contents: 2.64 to 2.94. The FAST paper uses the same term for the contents that a
//! workload accesses. Here each read content has a mean number of places. It equals the pages for each content of the image of the stand-ins for POD
//! (`traces/synthetic`). *Chosen here*: copies are of whole extents, anywhere. A geometric distribution draws their number for each extent.

use std::collections::HashSet;

use crate::replay::lru::Numbers;
use crate::traces::synthetic::draws::geometric;
use crate::traces::{ContentId, Request};
use sim::random::{Random, mix};

use super::workload::{Shape, journal_start};
use super::zones::is_scratch;

/// Blocks of a place for copies.
const GROUP: u64 = 256;

/// Extents of a disk: the first block of each, and its contents.
pub type Image = Vec<(u64, Vec<ContentId>)>;

/// Returns the disk before a week, with `similarity` places of each content in the mean.
pub fn before(week: &[Request], shape: Shape, disk_blocks: u64, similarity: f64, seed: u64) -> Image {
    let mut known = Numbers::default();
    let mut image: Image = Vec::new();
    for request in week {
        let is_first = known.insert(request.block, ()).is_none();
        if is_first && !request.writes {
            image.push((request.block, request.contents.clone()));
        }
    }
    let mut contents: HashSet<ContentId> = HashSet::new();
    let mut different: Vec<Vec<ContentId>> = Vec::new();
    let mut blocks = 0;
    for (_, extent) in &image {
        blocks += extent.len();
        let before = contents.len();
        contents.extend(extent);
        if contents.len() > before {
            different.push(extent.clone());
        }
    }
    let more = similarity - blocks as f64 / contents.len().max(1) as f64;
    let used: HashSet<u64> = week.iter().map(|request| request.block / GROUP).collect();
    let journal = journal_start(disk_blocks)..journal_start(disk_blocks) + shape.journal_blocks().max(GROUP);
    let mut random = Random::new(mix(seed) ^ mix(shape.profile as u64));
    let mut taken = HashSet::new();
    let mut group = |random: &mut Random| loop {
        let start = random.below(disk_blocks / GROUP) * GROUP;
        let is_in_journal = start < journal.end && journal.start < start + GROUP;
        let is_taken =
            used.contains(&(start / GROUP)) || is_in_journal || is_scratch(disk_blocks, shape.part, start, GROUP);
        if !is_taken && taken.insert(start) {
            return start;
        }
    };
    let (mut at, mut end) = (0, 0);
    // Copies of an extent are not adjacent: each round places one copy of every extent that has copies left.
    let mut counts: Vec<u32> = different.iter().map(|_| geometric(&mut random, 1.0 + more.max(0.0)) - 1).collect();
    while counts.iter().any(|&count| count > 0) {
        for (count, extent) in counts.iter_mut().zip(&different).filter(|(count, _)| **count > 0) {
            *count -= 1;
            if at + extent.len() as u64 > end {
                at = group(&mut random);
                end = at + GROUP;
            }
            image.push((at, extent.clone()));
            at += extent.len() as u64;
        }
    }
    image
}

/// Returns the mean number of places of a content of the disk.
pub fn similarity(image: &Image) -> f64 {
    let contents: HashSet<&ContentId> = image.iter().flat_map(|(_, contents)| contents).collect();
    image.iter().map(|(_, contents)| contents.len()).sum::<usize>() as f64 / contents.len().max(1) as f64
}
