//! The papers' schemes in the layout that they have: blocks at home, redirected ones in a table (NVRAM), an index by digest, a read
//! cache. One model for all of them: native, Full-Dedupe, iDedup, Select-Dedupe and POD differ in a [`Scheme`].
//!
//! A request goes in and a [`Plan`] comes out: what has to be digested, looked up, read and written for it, where. Who replays the trace
//! gives that to a disk. The state changes at once, the disk's time comes after; times are so not part of it. What is shared is decided by
//! the engine's own policies, and the boundary by its own iCache.

pub mod mapping;
#[cfg(test)]
mod tests;

use engine::policy::{IndexCopy, Lookup, next_run};
use engine::{Digest, Monitor, Nanos};

use self::mapping::Mapping;
use super::lru::{Ghosted, Lru, Numbers};
use super::scheme::{Division, Scheme};
use crate::disks::Op;
use crate::random::mix;
use crate::traces::{BLOCK, ContentId, Request};

/// Bytes of an entry of the index: 8 GB for 1 TB (POD, section 2.2).
pub const INDEX_ENTRY: u64 = 32;
/// Bytes of an entry of the table of redirects (POD, section 3.5).
pub const MAP_ENTRY: u64 = 16;

/// Where things are on the disk, in blocks: the data first, then what each other part needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    /// Blocks that can be addressed.
    pub data: u64,
    /// Places for relocations.
    pub spare: u64,
    /// The index of all digests.
    pub index: u64,
    /// What iCache swaps out.
    pub swap: u64,
}

impl Layout {
    /// For a disk of so many blocks: an entry of the index for each block, room to swap all memory, one part in 64 for relocations.
    pub fn of(blocks: u64, memory: u64) -> Layout {
        let index = (blocks * INDEX_ENTRY).div_ceil(BLOCK);
        let (spare, swap) = (blocks / 64, memory.div_ceil(BLOCK));
        Layout { data: blocks.saturating_sub(index + spare + swap).max(1), spare, index, swap }
    }

    /// All of it.
    pub fn blocks(&self) -> u64 {
        self.data + self.spare + self.index + self.swap
    }

    /// The block of the index on the disk that a digest is in.
    fn bucket(&self, content: ContentId) -> u64 {
        self.data + self.spare + mix(content) % self.index.max(1)
    }
}

/// Blocks in a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extent {
    /// The first.
    pub block: u64,
    /// How many.
    pub blocks: u64,
}

/// What has to be done for a request.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Plan {
    /// Blocks to digest.
    pub digests: u64,
    /// Blocks of the index to read before anything is decided.
    pub lookups: Vec<Extent>,
    /// What then is read.
    pub reads: Vec<Extent>,
    /// Or written.
    pub writes: Vec<Extent>,
    /// What nobody waits for.
    pub background: Vec<(Op, Extent)>,
    /// Reads more than there would be if all blocks were at home.
    pub splits: u64,
}

/// What was done so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Requests to write.
    pub write_requests: u64,
    /// Of these, those that needed no write.
    pub removed_requests: u64,
    /// Blocks of them.
    pub written_blocks: u64,
    /// Of these, those whose content was found.
    pub known_blocks: u64,
    /// Of these, those that were shared.
    pub shared_blocks: u64,
    /// Requests to read.
    pub read_requests: u64,
    /// Blocks of them.
    pub read_blocks: u64,
    /// Of these, those found in the read cache.
    pub read_hits: u64,
    /// Reads more because blocks are not at home.
    pub split_reads: u64,
    /// Looks at the index on the disk.
    pub lookups: u64,
    /// Blocks that iCache swapped, in or out.
    pub swapped_blocks: u64,
    /// Blocks written home again in the background.
    pub returned_home: u64,
}

/// What all schemes begin with: days of a trace written home, with an index and a read cache as large as any of them has.
///
/// The paper warms the index alone (section 4.1); its Map_tables of 0.3 to 1.5 MB show that nothing was shared before the day that is
/// measured.
pub struct Warm {
    mapping: Mapping,
    index: Lru,
    complete: Numbers<u64>,
    reads: Lru,
}

impl Warm {
    /// Nothing is written yet. `memory` is the most that a scheme which begins here has.
    pub fn new(data: u64, memory: u64) -> Warm {
        Warm {
            mapping: Mapping::new(data),
            index: Lru::new((memory / INDEX_ENTRY) as usize),
            complete: Numbers::default(),
            reads: Lru::new((memory / BLOCK) as usize),
        }
    }

    /// A request of those days.
    pub fn request(&mut self, request: &Request) {
        for at in 0..u64::from(request.blocks) {
            let block = request.block + at;
            if !request.writes {
                self.reads.put(block, 0);
                continue;
            }
            let Some(&content) = request.contents.get(at as usize) else { continue };
            if let Some(gone) = self.mapping.write(block, content).overwritten
                && gone != content
            {
                if self.index.peek(gone) == Some(block) {
                    self.index.remove(gone);
                }
                if self.complete.get(&gone) == Some(&block) {
                    self.complete.remove(&gone);
                }
            }
            // The copy that was there first stays the one that the index names.
            let named = *self.complete.entry(content).or_insert(block);
            self.index.put(content, named);
        }
    }
}

/// A scheme at work.
pub struct InPlace {
    scheme: Scheme,
    layout: Layout,
    memory: u64,
    mapping: Mapping,
    index: Ghosted,
    complete: Numbers<u64>,
    reads: Ghosted,
    monitor: Option<Monitor>,
    /// What was done so far.
    pub counts: Counts,
}

impl InPlace {
    /// Begins with what was written before.
    pub fn new(scheme: Scheme, layout: Layout, memory: u64, warm: &Warm) -> InPlace {
        let (most_entries, most_blocks) = (memory / INDEX_ENTRY, memory / BLOCK);
        let (share, monitor) = match scheme.division {
            Division::Fixed(share) => (share, None),
            Division::Adaptive(rule, limits) => (500, Some(Monitor::new(rule, limits, most_entries, most_blocks, 500))),
        };
        let mut scheme = InPlace {
            scheme,
            layout,
            memory,
            mapping: warm.mapping.clone(),
            index: Ghosted::new(0, most_entries as usize),
            complete: if scheme.complete { warm.complete.clone() } else { Numbers::default() },
            reads: Ghosted::new(0, most_blocks as usize),
            monitor,
            counts: Counts::default(),
        };
        let (entries, blocks) = scheme.sizes(share);
        if scheme.scheme.looks_up() {
            scheme.index = Ghosted::from_lru(warm.index.clone(), entries, most_entries as usize);
        }
        if scheme.scheme.caches {
            scheme.reads = Ghosted::from_lru(warm.reads.clone(), blocks, most_blocks as usize);
        }
        scheme
    }

    /// Entries of the index and blocks of the read cache, if the index has so many thousandths of the memory.
    fn sizes(&self, share: u32) -> (usize, usize) {
        let index = self.memory * u64::from(share) / 1000;
        ((index / INDEX_ENTRY) as usize, ((self.memory - index) / BLOCK) as usize)
    }

    /// Carries out a request: what has to be done for it.
    pub fn request(&mut self, now: Nanos, request: &Request) -> Plan {
        let mut plan = if request.writes { self.write(request) } else { self.read(request) };
        if let Some(share) = self.monitor.as_mut().and_then(|monitor| monitor.request_done(now)) {
            self.divide(share, &mut plan);
        }
        plan
    }

    fn write(&mut self, request: &Request) -> Plan {
        let blocks = u64::from(request.blocks);
        let mut plan = Plan::default();
        self.counts.write_requests += 1;
        self.counts.written_blocks += blocks;
        if !self.scheme.looks_up() || request.contents.len() as u64 != blocks {
            for at in 0..blocks {
                let content = request.contents.get(at as usize).copied().unwrap_or(mix(request.at ^ at));
                self.write_home(request.block + at, content, &mut plan);
            }
            return plan;
        }
        plan.digests = blocks;
        let lookups: Vec<Lookup> = request.contents.iter().map(|&content| self.look_up(content, &mut plan)).collect();
        let mut shares = vec![false; lookups.len()];
        self.scheme.policy.decide_as_published(&lookups, &mut shares);
        self.counts.known_blocks += lookups.iter().filter(|lookup| lookup.slot().is_some()).count() as u64;
        // Shares first: what is written may be what they share.
        for (at, (lookup, share)) in lookups.iter().zip(&mut shares).enumerate() {
            let Some(place) = lookup.slot().filter(|_| *share) else { continue };
            // Another block of this request may have given the place free.
            *share = self.mapping.content(place) == Some(request.contents[at]);
            if *share {
                let freed = self.mapping.share(request.block + at as u64, place);
                self.forget(freed);
                self.counts.shared_blocks += 1;
            }
        }
        for (at, &content) in request.contents.iter().enumerate().filter(|(at, _)| !shares[*at]) {
            self.write_home(request.block + at as u64, content, &mut plan);
        }
        self.note(request, &lookups, &shares);
        self.counts.removed_requests += u64::from(plan.writes.is_empty());
        plan
    }

    /// Where a content is, as far as the scheme knows.
    fn look_up(&mut self, content: ContentId, plan: &mut Plan) -> Lookup {
        if let Some(monitor) = &mut self.monitor {
            monitor.digest_used(digest(content));
        }
        if let Some(place) = self.index.actual.get(content) {
            return Lookup::Known(place);
        }
        if !self.scheme.complete {
            return Lookup::Nothing;
        }
        if self.scheme.lookups_cost {
            plan.lookups.push(Extent { block: self.layout.bucket(content), blocks: 1 });
            self.counts.lookups += 1;
        }
        match self.complete.get(&content) {
            Some(&place) => {
                self.index.put(content, place);
                Lookup::Known(place)
            }
            None => Lookup::Nothing,
        }
    }

    fn write_home(&mut self, block: u64, content: ContentId, plan: &mut Plan) {
        let written = self.mapping.write(block, content);
        if let Some(relocation) = written.relocation {
            if let Some(moved) = self.mapping.content(relocation.to) {
                self.rename(moved, relocation.from, relocation.to);
            }
            plan.background.push((Op::Read, Extent { block: relocation.from, blocks: 1 }));
            plan.background.push((Op::Write, Extent { block: relocation.to, blocks: 1 }));
        }
        if let Some(gone) = written.overwritten.filter(|&gone| gone != content) {
            self.unname(gone, block);
        }
        self.forget(written.freed);
        push(&mut plan.writes, block);
    }

    /// What was written is known from here on. Where it was known before, the index names one of the two copies.
    fn note(&mut self, request: &Request, lookups: &[Lookup], shares: &[bool]) {
        let place_of = |at: usize| lookups[at].slot();
        let written = |at: usize| (!shares[at]).then(|| request.block + at as u64);
        let (mut known, mut fresh) = (0..0, 0..0);
        for (at, &content) in request.contents.iter().enumerate() {
            known = next_run(at, known, lookups.len(), place_of);
            fresh = next_run(at, fresh, lookups.len(), written);
            if shares[at] {
                continue;
            }
            let home = request.block + at as u64;
            let old = lookups[at].slot().filter(|&old| self.mapping.content(old) == Some(content));
            let named = match (old, self.scheme.index_copy) {
                (Some(old), IndexCopy::Oldest) => old,
                (Some(old), IndexCopy::Sequential) if known.len() >= fresh.len() => old,
                _ => home,
            };
            self.index.put(content, named);
            if self.scheme.complete {
                self.complete.insert(content, named);
            }
        }
    }

    fn read(&mut self, request: &Request) -> Plan {
        let mut plan = Plan::default();
        self.counts.read_requests += 1;
        let (mut at_home, mut last_missed) = (0, None);
        for block in request.block..request.block + u64::from(request.blocks) {
            self.counts.read_blocks += 1;
            let place = self.mapping.resolve(block);
            if let Some(monitor) = &mut self.monitor {
                monitor.block_read(place);
            }
            if self.reads.actual.get(place).is_some() {
                self.counts.read_hits += 1;
                continue;
            }
            if self.scheme.caches {
                self.reads.put(place, 0);
            }
            at_home += u64::from(last_missed.is_none_or(|last: u64| last + 1 != block));
            last_missed = Some(block);
            push(&mut plan.reads, place);
        }
        plan.splits = (plan.reads.len() as u64).saturating_sub(at_home);
        self.counts.split_reads += plan.splits;
        if plan.splits > 0 && self.scheme.relinearises {
            self.write_back_home(request, &mut plan);
        }
        plan
    }

    /// Blocks that are elsewhere go home, where nobody refers to it.
    fn write_back_home(&mut self, request: &Request, plan: &mut Plan) {
        for block in request.block..request.block + u64::from(request.blocks) {
            if !self.mapping.is_redirected(block) || self.mapping.is_shared(block) {
                continue;
            }
            let freed = self.mapping.return_home(block);
            if let Some((place, content)) = freed {
                self.rename(content, place, block);
                self.reads.remove(place);
            }
            self.counts.returned_home += 1;
            plan.background.push((Op::Write, Extent { block, blocks: 1 }));
        }
    }

    /// iCache moves the boundary: what goes out is written to the swap area, what comes in is read from there.
    fn divide(&mut self, share: u32, plan: &mut Plan) {
        let (entries, blocks) = self.sizes(share);
        let index_grows = entries > self.index.actual.most();
        let entries = (self.index.resize(entries) as u64 * INDEX_ENTRY).div_ceil(BLOCK);
        let blocks = self.reads.resize(blocks) as u64;
        let (index_op, read_op) = if index_grows { (Op::Read, Op::Write) } else { (Op::Write, Op::Read) };
        let area = self.layout.data + self.layout.spare + self.layout.index;
        for (op, count) in [(index_op, entries), (read_op, blocks)] {
            self.counts.swapped_blocks += count;
            // In commands of 128 KiB.
            for first in (0..count).step_by(32) {
                let block = area + first % self.layout.swap.max(1);
                plan.background.push((op, Extent { block, blocks: (count - first).min(32) }));
            }
        }
    }

    /// A place is free, and what it held is not there any more.
    fn forget(&mut self, freed: Option<(u64, ContentId)>) {
        if let Some((place, content)) = freed {
            self.unname(content, place);
            self.reads.remove(place);
        }
    }

    /// A content is not at a place any more.
    fn unname(&mut self, content: ContentId, place: u64) {
        if self.index.peek(content) == Some(place) {
            self.index.remove(content);
        }
        if self.complete.get(&content) == Some(&place) {
            self.complete.remove(&content);
        }
    }

    /// A content is at another place.
    fn rename(&mut self, content: ContentId, from: u64, to: u64) {
        if self.index.peek(content) == Some(from) {
            self.index.replace(content, to);
        }
        if self.complete.get(&content) == Some(&from) {
            self.complete.insert(content, to);
        }
    }

    /// Blocks of the disk in use for data.
    pub fn used_blocks(&self) -> u64 {
        self.mapping.used()
    }

    /// The most bytes of NVRAM that the table of redirects ever needed.
    pub fn most_nvram(&self) -> u64 {
        self.mapping.most_redirects * MAP_ENTRY
    }

    /// Thousandths of the memory that are the index.
    pub fn index_share(&self) -> u32 {
        match (&self.monitor, self.scheme.division) {
            (Some(monitor), _) => monitor.index_share(),
            (None, Division::Fixed(share)) => share,
            (None, Division::Adaptive(..)) => 0,
        }
    }

    /// What a block holds.
    #[cfg(test)]
    fn content(&self, block: u64) -> Option<ContentId> {
        self.mapping.content(self.mapping.resolve(block))
    }
}

/// A digest that stands for a content.
fn digest(content: ContentId) -> Digest {
    Digest((u128::from(mix(content)) << 64 | u128::from(mix(!content))).to_le_bytes())
}

/// Adds a block to the last extent, or begins another.
fn push(extents: &mut Vec<Extent>, block: u64) {
    match extents.last_mut() {
        Some(last) if last.block + last.blocks == block => last.blocks += 1,
        _ => extents.push(Extent { block, blocks: 1 }),
    }
}
