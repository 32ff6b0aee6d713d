//! What a cache finds, by sector or by content, with the same memory. Reads and writes fill it, as in the slides; a write that finds its block is
//! counted and written all the same.

use crate::flash_cache::policies::{Access, Cache, Policy, Size};
use crate::replay::lru::Numbers;
use crate::traces::{BLOCK, Request};

/// By what a cache knows its blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Key {
    /// By address.
    Sector,
    /// By content.
    Content,
}

/// Addresses and contents as small numbers.
#[derive(Clone, Debug, Default)]
pub struct Names {
    numbers: Numbers<u32>,
}

impl Names {
    /// The number of a name.
    pub fn number(&mut self, name: u64) -> u32 {
        let next = self.numbers.len() as u32;
        *self.numbers.entry(name).or_insert(next)
    }

    /// How many names there are.
    pub fn count(&self) -> u32 {
        self.numbers.len() as u32
    }
}

/// The blocks of a trace as a cache sees them: whether it is written, and its name.
#[derive(Clone, Debug, Default)]
pub struct Stream {
    /// In order.
    pub accesses: Vec<(bool, u32)>,
    /// Different names.
    pub names: u32,
}

impl Stream {
    /// Of a trace whose contents are known.
    pub fn of(requests: &[Request], key: Key) -> Stream {
        let (mut names, mut accesses) = (Names::default(), Vec::new());
        for request in requests {
            for (at, &content) in request.contents.iter().enumerate() {
                let name = if key == Key::Sector { request.block + at as u64 } else { content };
                accesses.push((request.writes, names.number(name)));
            }
        }
        Stream { accesses, names: names.count() }
    }
}

/// Blocks read and written, and those that were found.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Hits {
    /// Reads, writes.
    pub all: [u64; 2],
    /// Found of reads, of writes.
    pub found: [u64; 2],
}

impl Hits {
    /// Percent of the reads, or of the writes.
    pub fn percent(&self, writes: bool) -> f64 {
        let at = usize::from(writes);
        100.0 * self.found[at] as f64 / self.all[at].max(1) as f64
    }
}

/// A cache for so many different names, by the lab's own policies, which were checked against public ones (docs/flash-cache.md).
pub fn cache(policy: Policy, names: u32, blocks: u64) -> Cache {
    let places = u32::try_from(blocks).unwrap_or(u32::MAX).max(1);
    Cache::new(policy, Size { things: names, addresses: names, places, bytes: BLOCK })
}

/// An access of a cache: whether it hits.
pub fn access(cache: &mut Cache, name: u32) -> bool {
    cache.access(Access { now: 0, thing: name, address: name, references: 1, is_fragment: false }).hit
}

/// Counts, in a cache of so many blocks.
pub fn count(stream: &Stream, policy: Policy, blocks: u64) -> Hits {
    let mut cache = cache(policy, stream.names, blocks);
    let mut hits = Hits::default();
    for &(writes, name) in &stream.accesses {
        hits.all[usize::from(writes)] += 1;
        hits.found[usize::from(writes)] += u64::from(access(&mut cache, name));
    }
    hits
}

/// Counts in a cache without end.
pub fn oracle(stream: &Stream) -> Hits {
    let mut seen = vec![false; stream.names as usize];
    let mut hits = Hits::default();
    for &(writes, name) in &stream.accesses {
        hits.all[usize::from(writes)] += 1;
        hits.found[usize::from(writes)] += u64::from(std::mem::replace(&mut seen[name as usize], true));
    }
    hits
}
