//! Block layouts of files: a place for each block. Equal places are shared blocks.

use std::collections::HashMap;

use super::population::Population;
use super::reads::Request;

/// Blocks of a region, as in the engine: 7/8 of a container.
const REGION: usize = 896;
/// Displacement threshold: a region is moved back if at least one in N of its blocks is elsewhere (RFC 0012: one more device read in 128 for its readers).
const DISPLACED_ONE_IN: usize = 128;
const NOWHERE: u32 = u32::MAX;

/// A layout.
#[derive(Clone, Debug)]
pub struct Layout {
    /// Place of each block of all files.
    pub places: Vec<u32>,
    /// End of the used places.
    pub free: u32,
    /// Blocks that were written to make it of another layout.
    pub moved: u64,
    /// Place of each block of all files before it was overwritten.
    first_places: Vec<u32>,
    /// First place of the overwritten blocks; the moved blocks follow them.
    overwritten_from: u32,
}

impl Layout {
    /// Creates the layout without sharing, where blocks are overwritten in place.
    pub fn native(population: &Population) -> Layout {
        let blocks = population.content.len() as u32;
        let places: Vec<u32> = (0..blocks).collect();
        Layout { first_places: places.clone(), places, free: blocks, moved: 0, overwritten_from: blocks }
    }

    /// Creates the layout that keeps the oldest copy of each content: the paper's basic deduplication.
    pub fn oldest(population: &Population) -> Layout {
        Layout::shared_from(population, 1)
    }

    /// Creates the layout of iDedup: it shares only runs of at least `threshold` blocks that are also consecutive on disk. All else is written again. Blocks
    /// that were overwritten later lie after all else, and left a hole if no other block had them.
    pub fn shared_from(population: &Population, threshold: usize) -> Layout {
        let mut first_place = vec![NOWHERE; population.contents as usize];
        let mut places = vec![NOWHERE; population.content.len()];
        let mut free = 0;
        for file in 0..population.files() as u32 {
            let blocks = population.blocks(file);
            let mut at = blocks.start;
            while at < blocks.end {
                let run = shared_run(&population.first_content[at..blocks.end], &first_place);
                if run >= threshold {
                    (at..at + run).for_each(|at| places[at] = first_place[population.first_content[at] as usize]);
                } else {
                    // All of a run that is too short is written again.
                    for at in at..at + run.max(1) {
                        let first = &mut first_place[population.first_content[at] as usize];
                        *first = if *first == NOWHERE { free } else { *first };
                        places[at] = free;
                        free += 1;
                    }
                }
                at += run.max(1);
            }
        }
        let (overwritten_from, first_places) = (free, places.clone());
        for (place, &content) in places.iter_mut().zip(&population.content) {
            if content >= population.overwritten_from {
                *place = overwritten_from + (content - population.overwritten_from);
            }
        }
        free += population.contents - population.overwritten_from;
        Layout { places, free, moved: 0, first_places, overwritten_from }
    }

    /// Stretches of places for a read: the first, and how many.
    pub fn stretches(&self, population: &Population, request: Request) -> Vec<(u32, u32)> {
        let first = population.blocks(request.file).start + request.first as usize;
        stretches(&self.places[first..first + request.blocks as usize])
    }

    /// Moves overwritten blocks back to their first places (RFC 0012). A region takes part if enough of it is elsewhere and it was read. A block moves if it is
    /// unshared and its first place is free.
    pub fn homes(&self, population: &Population, day: &[Request]) -> Layout {
        let mut made = self.clone();
        let regions = self.places.len().div_ceil(REGION);
        let mut is_read = vec![false; regions];
        for request in day {
            let first = population.blocks(request.file).start + request.first as usize;
            is_read[first / REGION..=(first + request.blocks as usize - 1) / REGION].fill(true);
        }
        let mut holders = vec![0u8; self.free as usize];
        self.places.iter().for_each(|&place| holders[place as usize] = holders[place as usize].saturating_add(1));
        let regions = made.places.chunks_mut(REGION).zip(self.first_places.chunks(REGION));
        for ((places, homes), _) in regions.zip(is_read).filter(|(_, is_read)| *is_read) {
            let displaced = places.iter().filter(|&&place| place >= self.overwritten_from).count();
            if displaced * DISPLACED_ONE_IN < places.len() {
                continue;
            }
            for (place, &home) in places.iter_mut().zip(homes) {
                let is_own = *place >= self.overwritten_from && holders[*place as usize] == 1;
                if is_own && holders[home as usize] == 0 {
                    holders[home as usize] = 1;
                    *place = home;
                    made.moved += 1;
                }
            }
        }
        made
    }

    /// Collects the most frequently read blocks, in the order of their first reads, like BORG.
    pub fn hottest(&self, population: &Population, day: &[Request], budget: u64) -> Layout {
        let mut reads: HashMap<u32, (u32, u32)> = HashMap::new();
        for &request in day {
            for (first, blocks) in self.stretches(population, request) {
                for place in first..first + blocks {
                    let order = reads.len() as u32;
                    reads.entry(place).or_insert((0, order)).0 += 1;
                }
            }
        }
        let mut ranked: Vec<(u32, u32, u32)> =
            reads.iter().map(|(&place, &(count, order))| (count, order, place)).collect();
        ranked.sort_unstable_by_key(|&(count, order, _)| (std::cmp::Reverse(count), order));
        ranked.truncate(budget as usize);
        ranked.sort_unstable_by_key(|&(_, order, _)| order);
        let to: HashMap<u32, u32> = ranked.iter().zip(self.free..).map(|(&(.., place), to)| (place, to)).collect();
        let mut made = self.clone();
        made.places.iter_mut().for_each(|place| *place = to.get(place).copied().unwrap_or(*place));
        made.free += ranked.len() as u32;
        made.moved += ranked.len() as u64;
        made
    }

    /// Collects each fragmented file that was read into one piece, as Onefold's re-order does: those with most pieces read first, within a budget of blocks.
    pub fn copies(&self, population: &Population, day: &[Request], budget: u64) -> Layout {
        let mut pieces = vec![0u64; population.files()];
        for &request in day {
            pieces[request.file as usize] += self.stretches(population, request).len() as u64 - 1;
        }
        let mut files: Vec<u32> = (0..population.files() as u32).filter(|&file| pieces[file as usize] > 0).collect();
        files.sort_unstable_by_key(|&file| (std::cmp::Reverse(pieces[file as usize]), file));
        let mut made = self.clone();
        for file in files {
            let blocks = population.blocks(file);
            if made.moved + blocks.len() as u64 > budget {
                continue;
            }
            made.moved += blocks.len() as u64;
            for place in &mut made.places[blocks] {
                *place = made.free;
                made.free += 1;
            }
        }
        made
    }
}

/// Counts the contents from the first on that are stored already, one after another.
fn shared_run(contents: &[u32], first_place: &[u32]) -> usize {
    let place = |at: usize| first_place[contents[at] as usize];
    let first = place(0);
    if first == NOWHERE {
        return 0;
    }
    (1..contents.len())
        .find(|&at| place(at) == NOWHERE || place(at) - first.min(place(at)) != at as u32)
        .unwrap_or(contents.len())
}

/// Groups places into runs: first place, blocks.
pub(super) fn stretches(places: &[u32]) -> Vec<(u32, u32)> {
    let mut found: Vec<(u32, u32)> = Vec::new();
    for &place in places {
        match found.last_mut() {
            Some((first, blocks)) if *first + *blocks == place => *blocks += 1,
            _ => found.push((place, 1)),
        }
    }
    found
}
