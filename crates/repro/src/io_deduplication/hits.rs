//! Hit counts of a cache by sector or by content, with the same memory. Reads and writes fill it, as in the slides. A write hit is counted, and the block is
//! written all the same.

use super::cache::{Block, Counts, Key, Knowledge, Names, SecondLevel};
use crate::flash_cache::policies::Policy;
use crate::traces::Request;

/// Blocks of a trace as a cache sees them.
#[derive(Clone, Debug, Default)]
pub struct Stream {
    /// Blocks in the order of the trace.
    pub blocks: Vec<Block>,
    /// Different addresses and contents.
    pub counts: Counts,
}

impl Stream {
    /// Lists the blocks of a trace whose contents are known.
    pub fn of(requests: &[Request]) -> Stream {
        let (mut sectors, mut contents, mut blocks) = (Names::default(), Names::default(), Vec::new());
        for request in requests {
            for (at, &content) in request.contents.iter().enumerate() {
                blocks.push(Block {
                    is_written: request.writes,
                    sector: sectors.number(request.block + at as u64),
                    content: contents.number(content),
                });
            }
        }
        Stream { blocks, counts: Counts { sectors: sectors.count(), contents: contents.count() } }
    }
}

/// Blocks that a trace reads and writes, and those of them that were hits in the cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Hits {
    /// Reads, writes.
    pub all: [u64; 2],
    /// Found of reads, of writes.
    pub found: [u64; 2],
}

impl Hits {
    fn add(&mut self, is_written: bool, is_hit: bool) {
        self.all[usize::from(is_written)] += 1;
        self.found[usize::from(is_written)] += u64::from(is_hit);
    }

    /// Returns the percentage of the reads, or of the writes.
    pub fn percent(&self, writes: bool) -> f64 {
        let at = usize::from(writes);
        100.0 * self.found[at] as f64 / self.all[at].max(1) as f64
    }

    /// Returns the percentage of both together.
    pub fn percent_of_all(&self) -> f64 {
        100.0 * self.found.iter().sum::<u64>() as f64 / self.all.iter().sum::<u64>().max(1) as f64
    }
}

/// Counts the hits of a cache of `blocks` blocks.
pub fn count(stream: &Stream, key: Key, knowledge: Knowledge, policy: Policy, blocks: u64) -> Hits {
    let mut cache = SecondLevel::new(key, knowledge, policy, stream.counts, blocks);
    let mut hits = Hits::default();
    for &block in &stream.blocks {
        hits.add(block.is_written, cache.access(block));
    }
    hits
}

/// Counts the hits of an unbounded cache. By content it knows all sectors. With only the sectors of earlier requests, it has the hits of reads by sector.
pub fn oracle(stream: &Stream, key: Key) -> Hits {
    let mut seen = vec![false; stream.counts.by(key) as usize];
    let mut hits = Hits::default();
    for block in &stream.blocks {
        hits.add(block.is_written, std::mem::replace(&mut seen[block.name(key) as usize], true));
    }
    hits
}
