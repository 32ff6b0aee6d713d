//! In-place model of the papers' schemes: blocks at their own addresses, a table of redirected blocks (NVRAM), an index by digest, a read cache. One model
//! serves all schemes: native, Full-Dedupe, iDedup, Select-Dedupe and POD differ in a [`Scheme`].
//!
//! A request goes in and a [`Plan`] comes out: the digests, lookups, reads and writes of the request, with their places. The replayer of the trace gives the
//! plan to a disk. The state changes at once and the disk's time comes after, so times are not part of the state. The engine's own policies decide which blocks
//! are shared. Its own iCache moves the cache partition.

pub mod mapping;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::OnceLock;

use engine::policy::{IndexCopy, Lookup, next_run};
use engine::{Digest, Monitor, Nanos};

use self::mapping::Mapping;
use super::lru::{Ghosted, Lru, Numbers};
use super::scheme::{Counting, Lookups, PartitionMode, Scheme};
use crate::traces::{BLOCK, ContentId, Request};
use sim::disks::Op;
use sim::random::mix;

/// Bytes of an entry of the index: 8 GB for 1 TB (POD, section 2.2).
pub const INDEX_ENTRY: u64 = 32;
/// Bytes of an entry of the table of redirects (POD, section 3.5).
pub const MAP_ENTRY: u64 = 16;

/// Areas of the disk in blocks: the data first, then an area for each other purpose.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    /// Blocks that can be addressed.
    pub data: u64,
    /// Places for relocations.
    pub spare: u64,
    /// The index of all digests.
    pub index: u64,
    /// Blocks that iCache swaps out.
    pub swap: u64,
}

impl Layout {
    /// Lays out a disk of N blocks: an index entry for each block, space to swap all of `memory`, and one part in 64 for relocations.
    pub fn of(blocks: u64, memory: u64) -> Layout {
        let index = (blocks * INDEX_ENTRY).div_ceil(BLOCK);
        let (spare, swap) = (blocks / 64, memory.div_ceil(BLOCK));
        Layout { data: blocks.saturating_sub(index + spare + swap).max(1), spare, index, swap }
    }

    /// Returns the size of all areas together in blocks.
    pub fn blocks(&self) -> u64 {
        self.data + self.spare + self.index + self.swap
    }

    /// Returns the block of the on-disk index that holds this page.
    fn index_block(&self, page: u64) -> u64 {
        self.data + self.spare + page % self.index.max(1)
    }
}

/// Maximum pending split reads to write home. The oldest are dropped first. [D]
const MOST_SPLIT: usize = 1 << 16;

/// Place of an index entry whose content is gone.
const STALE: u64 = u64::MAX;

/// Percent of a page of the index on the disk that are in use, as in a table that grows with its entries. [D]
const PAGE_FILL: u64 = 70;

/// Blocks in a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extent {
    /// The first.
    pub block: u64,
    /// Number of blocks.
    pub blocks: u64,
}

/// Work that a request needs.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Plan {
    /// Blocks to digest.
    pub digests: u64,
    /// Blocks of the index to read before anything is decided.
    pub lookups: Vec<Extent>,
    /// Extents to read after the lookups.
    pub reads: Vec<Extent>,
    /// Extents to write after the lookups.
    pub writes: Vec<Extent>,
    /// Background commands, for which no request waits.
    pub background: Vec<(Op, Extent)>,
    /// Additional reads because blocks are redirected.
    pub splits: u64,
}

/// Counters of the work done so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Requests to write.
    pub write_requests: u64,
    /// Write requests that needed no write.
    pub removed_requests: u64,
    /// Blocks of them.
    pub written_blocks: u64,
    /// Written blocks whose content was found.
    pub known_blocks: u64,
    /// Known blocks that were shared.
    pub shared_blocks: u64,
    /// Requests to read.
    pub read_requests: u64,
    /// Blocks of them.
    pub read_blocks: u64,
    /// Read blocks found in the read cache.
    pub read_hits: u64,
    /// Additional reads because blocks are redirected.
    pub split_reads: u64,
    /// Lookups of the index on the disk.
    pub lookups: u64,
    /// Lookups that a cached page of the index, or the filter, made unnecessary.
    pub lookups_saved: u64,
    /// Blocks that iCache swapped, in or out.
    pub swapped_blocks: u64,
    /// Blocks written home again in the background.
    pub returned_home: u64,
}

/// Warm state that all schemes start from: days of a trace written home, an index of all contents in the order of their last use, and a read cache as large as
/// any scheme has.
///
/// The paper warms the index alone (section 4.1); its Map_tables of 0.3 to 1.5 MB show that nothing was shared before the measured day. Mail has many days. So
/// the index is a table with the number of each last use, and becomes a list when a scheme begins.
pub struct Warm {
    mapping: Mapping,
    /// Index of all contents written at any time; the place of a content that is gone is [`STALE`].
    index: Numbers<Entry>,
    /// Blocks written.
    sequence: u32,
    /// Contents on the disk.
    contents: u64,
    reads: Lru,
    /// The index as a list, the newest first.
    list: OnceLock<Vec<(ContentId, u64)>>,
}

/// Place of the oldest copy of a content, and the number of its last write.
#[derive(Clone, Copy, Debug)]
struct Entry {
    place: u32,
    used: u32,
}

impl Entry {
    /// Its content is not there any more.
    const STALE: u32 = u32::MAX;
}

impl Warm {
    /// Creates an empty state with `data` addresses, fewer than 2^32. `memory` is the maximum of any scheme that starts from it.
    pub fn new(data: u64, memory: u64) -> Warm {
        Warm {
            mapping: Mapping::new(data),
            index: Numbers::default(),
            sequence: 0,
            contents: 0,
            reads: Lru::new((memory / BLOCK) as usize),
            list: OnceLock::new(),
        }
    }

    /// Returns the number of distinct contents on the disk.
    pub fn contents(&self) -> u64 {
        self.contents
    }

    /// Returns all contents with their places, the last written first.
    fn newest_first(&self) -> impl Iterator<Item = (ContentId, u64)> {
        let list = self.list.get_or_init(|| {
            let mut entries: Vec<(ContentId, Entry)> =
                self.index.iter().map(|(&content, &entry)| (content, entry)).collect();
            entries.sort_unstable_by_key(|&(content, entry)| (std::cmp::Reverse(entry.used), content));
            let place = |entry: Entry| if entry.place == Entry::STALE { STALE } else { u64::from(entry.place) };
            entries.into_iter().map(|(content, entry)| (content, place(entry))).collect()
        });
        list.iter().copied()
    }

    /// Returns the contents that are on the disk, with their places, the last written first.
    fn live(&self) -> impl Iterator<Item = (ContentId, u64)> {
        self.newest_first().filter(|&(_, place)| place != STALE)
    }

    /// Applies a request of the days before: writes go home, reads fill the read cache.
    pub fn request(&mut self, request: &Request) {
        self.list.take();
        for at in 0..u64::from(request.blocks) {
            let block = request.block + at;
            if !request.writes {
                self.reads.put(block, 0);
                continue;
            }
            let Some(&content) = request.contents.get(at as usize) else { continue };
            self.sequence = self.sequence.saturating_add(1);
            let place = block as u32;
            if let Some(gone) = self.mapping.write(block, content).overwritten
                && gone != content
                && let Some(entry) = self.index.get_mut(&gone)
                && entry.place == place
            {
                entry.place = Entry::STALE;
                self.contents -= 1;
            }
            // The copy that was there first stays the one that the index names.
            let entry = self.index.entry(content).or_insert(Entry { place: Entry::STALE, used: 0 });
            entry.used = self.sequence;
            if entry.place == Entry::STALE {
                entry.place = place;
                self.contents += 1;
            }
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
    /// Pages of the index on the disk that are in memory, and how many there are.
    pages: Lru,
    all_pages: u64,
    reads: Ghosted,
    monitor: Option<Monitor>,
    /// Hits of the present request in the index and in the read cache, their ghosts included.
    hits: [u64; 2],
    /// Requests whose read was split: first block, blocks.
    split: VecDeque<(u64, u64)>,
    /// Counters of the work done so far.
    pub counts: Counts,
}

impl InPlace {
    /// Creates a scheme that starts from the warm state.
    pub fn new(scheme: Scheme, layout: Layout, memory: u64, warm: &Warm) -> InPlace {
        let (most_entries, most_blocks) = (memory / INDEX_ENTRY, memory / BLOCK);
        let (share, monitor) = match scheme.partition {
            PartitionMode::Fixed(share) => (share, None),
            PartitionMode::Adaptive(rule, limits, counting) => {
                let own = if counting == Counting::Depths { (most_entries, most_blocks) } else { (0, 0) };
                (500, Some(Monitor::new(rule, limits, own.0, own.1, 500)))
            }
        };
        let mut scheme = InPlace {
            scheme,
            layout,
            memory,
            mapping: warm.mapping.clone(),
            index: Ghosted::new(0, 0),
            complete: Numbers::default(),
            pages: Lru::new(0),
            all_pages: layout.index.max(1),
            reads: Ghosted::new(0, most_blocks as usize),
            monitor,
            hits: [0; 2],
            split: VecDeque::new(),
            counts: Counts::default(),
        };
        scheme.warm(share, warm);
        scheme
    }

    /// Fills caches, ghosts, the complete index and the Monitor from the warm state of the days before.
    fn warm(&mut self, share: u32, warm: &Warm) {
        let (most_entries, most_blocks) = ((self.memory / INDEX_ENTRY) as usize, (self.memory / BLOCK) as usize);
        let (entries, blocks) = self.sizes(share);
        // Only an adaptive partition has ghosts.
        let together = |size: usize, most: usize| if self.monitor.is_some() { most } else { size };
        if self.scheme.looks_up() {
            let together = together(entries, most_entries);
            self.index = match self.scheme.drops_stale {
                true => Ghosted::from_newest(warm.live(), entries, together),
                false => Ghosted::from_newest(warm.newest_first(), entries, together),
            };
        }
        if self.scheme.caches {
            self.reads = Ghosted::from_newest(warm.reads.newest_first(), blocks, together(blocks, most_blocks));
        }
        if self.scheme.complete {
            self.complete = warm.live().collect();
        }
        if self.scheme.lookups == Lookups::Paged {
            let used = warm.contents() * INDEX_ENTRY * 100 / PAGE_FILL;
            self.all_pages = used.div_ceil(BLOCK).clamp(1, self.layout.index.max(1));
            self.warm_pages(share, warm);
        }
        if let (Some(monitor), PartitionMode::Adaptive(.., Counting::Depths)) =
            (&mut self.monitor, self.scheme.partition)
        {
            let mut contents: Vec<u64> = warm.newest_first().take(most_entries).map(|(key, _)| key).collect();
            contents.drain(..).rev().for_each(|content| monitor.warm_digest(digest(content)));
            let mut places: Vec<u64> = warm.reads.newest_first().take(most_blocks).map(|(key, _)| key).collect();
            places.drain(..).rev().for_each(|place| monitor.warm_block(place));
        }
    }

    /// Fills the page cache with the index pages that were used last.
    fn warm_pages(&mut self, share: u32, warm: &Warm) {
        let most = (self.memory * u64::from(share) / 1000 / 2 / BLOCK) as usize;
        let mut newest = Lru::new(most);
        for (content, _) in warm.live() {
            if newest.len() >= most.min(self.all_pages as usize) {
                break;
            }
            newest.put(self.page(content), 0);
        }
        self.pages = Lru::new(most);
        newest.newest_first().for_each(|(page, _)| _ = self.pages.put(page, 0));
    }

    /// Returns the page of the on-disk index that a digest is in.
    fn page(&self, content: ContentId) -> u64 {
        mix(content) % self.all_pages
    }

    /// Returns the entries of the index and the blocks of the read cache if the index has `share` thousandths of the memory.
    fn sizes(&self, share: u32) -> (usize, usize) {
        let index = self.memory * u64::from(share) / 1000;
        let of_entries = match self.scheme.lookups {
            Lookups::Free | Lookups::Bare => index,
            Lookups::Paged => index / 2,
            Lookups::Filtered => index - index / 4,
        };
        ((of_entries / INDEX_ENTRY) as usize, ((self.memory - index) / BLOCK) as usize)
    }

    /// Carries out a request, and returns its plan.
    pub fn request(&mut self, now: Nanos, request: &Request) -> Plan {
        let mut plan = if request.writes { self.write(request) } else { self.read(request) };
        self.count_hits();
        if let Some(share) = self.monitor.as_mut().and_then(|monitor| monitor.request_done(now)) {
            self.divide(share, &mut plan);
        }
        plan
    }

    /// Passes the hits of the present request to the Monitor, as blocks or at most one for each cache, and clears them.
    /// A partition that is fixed, or counts depths, only clears them.
    fn count_hits(&mut self) {
        let hits = std::mem::take(&mut self.hits);
        let [index, reads] = match self.scheme.partition {
            PartitionMode::Adaptive(.., Counting::Requests) => hits.map(|hits| hits.min(1)),
            PartitionMode::Adaptive(.., Counting::Blocks) => hits,
            PartitionMode::Adaptive(.., Counting::Depths) | PartitionMode::Fixed(_) => return,
        };
        if let Some(monitor) = &mut self.monitor {
            monitor.count_hits(index, reads);
        }
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
        // Shared blocks come first: a write may overwrite the place that they share.
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

    /// Looks up the place of a content, as far as the scheme knows it, and plans a read where the on-disk index is needed.
    fn look_up(&mut self, content: ContentId, plan: &mut Plan) -> Lookup {
        if let (Some(monitor), PartitionMode::Adaptive(.., Counting::Depths)) =
            (&mut self.monitor, self.scheme.partition)
        {
            monitor.digest_used(digest(content));
        }
        if let Some(place) = self.index.actual.get(content).filter(|&place| place != STALE) {
            self.hits[0] += 1;
            return Lookup::Known(place);
        }
        self.hits[0] += u64::from(self.index.peek(content).is_some_and(|place| place != STALE));
        if !self.scheme.complete {
            return Lookup::Nothing;
        }
        let place = self.complete.get(&content).copied();
        if self.looks_on_disk(content, place.is_some()) {
            plan.lookups.push(Extent { block: self.layout.index_block(self.page(content)), blocks: 1 });
            self.counts.lookups += 1;
        } else {
            self.counts.lookups_saved += 1;
        }
        match place {
            Some(place) => {
                self.index.put(content, place);
                Lookup::Known(place)
            }
            None => Lookup::Nothing,
        }
    }

    /// Returns true if a digest without a cached entry is looked up on the disk.
    fn looks_on_disk(&mut self, content: ContentId, is_known: bool) -> bool {
        match self.scheme.lookups {
            Lookups::Free => false,
            Lookups::Bare => true,
            Lookups::Paged => {
                let page = self.page(content);
                let is_cached = self.pages.get(page).is_some();
                if !is_cached {
                    self.pages.put(page, 0);
                }
                !is_cached
            }
            Lookups::Filtered => is_known || self.filter_errs(content),
        }
    }

    /// Returns true if the filter gives a false positive for this digest. A Bloom filter with the best number of hashes errs on 0.6185 to
    /// the power of its bits for each digest.
    fn filter_errs(&self, content: ContentId) -> bool {
        let bits = self.memory * u64::from(self.index_share()) / 1000 / 4 * 8;
        let errs = libm::pow(0.6185, bits as f64 / self.complete.len().max(1) as f64);
        ((mix(!content) >> 11) as f64 / (1_u64 << 53) as f64) < errs
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

    /// Adds the written contents to the index. For a content that was known before, the index names one of the two copies.
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
            if let (Some(monitor), PartitionMode::Adaptive(.., Counting::Depths)) =
                (&mut self.monitor, self.scheme.partition)
            {
                monitor.block_read(place);
            }
            if self.reads.actual.get(place).is_some() {
                self.counts.read_hits += 1;
                self.hits[1] += 1;
                continue;
            }
            self.hits[1] += u64::from(self.reads.peek(place).is_some());
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
            if self.split.len() == MOST_SPLIT {
                self.split.pop_front();
            }
            self.split.push_back((request.block, u64::from(request.blocks)));
        }
        plan
    }

    /// Returns true if blocks of earlier split reads can still be written home.
    pub fn has_split(&self) -> bool {
        !self.split.is_empty()
    }

    /// Writes the blocks of one pending split read home (POD, section 3.3). Returns the reads of blocks that are not in the read cache, then the writes. Both
    /// are empty if no work is left.
    pub fn relinearise(&mut self) -> (Vec<Extent>, Vec<Extent>) {
        let (mut reads, mut writes) = (Vec::new(), Vec::new());
        while writes.is_empty()
            && let Some((first, blocks)) = self.split.pop_front()
        {
            for block in first..first + blocks {
                // A content at its home that other blocks refer to stays there.
                if !self.mapping.is_redirected(block) || self.mapping.is_shared(block) {
                    continue;
                }
                let place = self.mapping.resolve(block);
                let is_cached = self.reads.actual.peek(place).is_some();
                if !is_cached {
                    push(&mut reads, place);
                }
                if let Some((place, content)) = self.mapping.return_home(block) {
                    self.rename(content, place, block);
                    self.reads.remove(place);
                    if is_cached {
                        self.reads.put(block, 0);
                    }
                }
                self.counts.returned_home += 1;
                push(&mut writes, block);
            }
        }
        (reads, writes)
    }

    /// Moves the cache partition of iCache: the cache that shrinks is written to the swap area, the one that grows is read from there.
    fn divide(&mut self, share: u32, plan: &mut Plan) {
        let (entries, blocks) = self.sizes(share);
        let index_grows = entries > self.index.actual.most();
        let swaps = self.scheme.swaps;
        let entries = (self.index.resize(entries, swaps) as u64 * INDEX_ENTRY).div_ceil(BLOCK);
        let blocks = self.reads.resize(blocks, swaps) as u64;
        if !swaps {
            return;
        }
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

    /// Drops the content of a freed place from the index and the place from the read cache.
    fn forget(&mut self, freed: Option<(u64, ContentId)>) {
        if let Some((place, content)) = freed {
            self.unname(content, place);
            self.reads.remove(place);
        }
    }

    /// Removes the index entry of a content if it names this place; without `drops_stale` the cached entry stays as stale.
    fn unname(&mut self, content: ContentId, place: u64) {
        if self.index.peek(content) == Some(place) {
            match self.scheme.drops_stale {
                true => self.index.remove(content),
                false => self.index.replace(content, STALE),
            }
        }
        if self.complete.get(&content) == Some(&place) {
            self.complete.remove(&content);
        }
    }

    /// Updates the index entries of a content that moved from one place to another.
    fn rename(&mut self, content: ContentId, from: u64, to: u64) {
        if self.index.peek(content) == Some(from) {
            self.index.replace(content, to);
        }
        if self.complete.get(&content) == Some(&from) {
            self.complete.insert(content, to);
        }
    }

    /// Returns the number of disk blocks that hold data.
    pub fn used_blocks(&self) -> u64 {
        self.mapping.used()
    }

    /// Returns the peak size of the table of redirects, which is kept in NVRAM, in bytes.
    pub fn most_nvram(&self) -> u64 {
        self.mapping.most_redirects * MAP_ENTRY
    }

    /// Thousandths of the memory that are the index.
    pub fn index_share(&self) -> u32 {
        match (&self.monitor, self.scheme.partition) {
            (Some(monitor), _) => monitor.index_share(),
            (None, PartitionMode::Fixed(share)) => share,
            (None, PartitionMode::Adaptive(..)) => 0,
        }
    }

    /// Returns the content of a block, or nothing if it was never written.
    #[cfg(test)]
    fn content(&self, block: u64) -> Option<ContentId> {
        self.mapping.content(self.mapping.resolve(block))
    }
}

/// Derives a digest that stands for a content.
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
