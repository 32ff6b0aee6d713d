//! The papers' schemes on real samples. Their counts must equal those of a separate, slow computation.
//!
//! The slow computation shares no code with `repro`. It reads the words of the samples' lines. It follows the text of POD (sections 3.2 and 3.4) and
//! of iDedup, with lists that it searches from the front. Where the papers leave a choice open, it makes that of the reference: runs of three in a
//! request for Select-Dedupe, of four for iDedup. Of two copies the index names the oldest, as POD says, or another one. The disks are always idle:
//! blocks that a read found split are moved back to their own places at once.

use std::path::Path;

use engine::policy::IndexCopy;
use repro::replay::in_place::{InPlace, Layout, Warm};
use repro::replay::scheme::Scheme;
use repro::traces::{Options, open};

use crate::samples::{Words, joined, of_homes, of_mail, sample};

/// Places: enough for the largest address, and spare ones behind them.
const LAYOUT: Layout = Layout { data: 1 << 27, spare: 1 << 20, index: 1 << 20, swap: 1 << 20 };

/// The rule that selects the shared blocks of a request.
#[derive(Clone, Copy, PartialEq)]
enum Rule {
    Nothing,
    All,
    /// Sequences of at least this length (iDedup).
    Sequences(usize),
    /// Everything, if the whole request is one sequence; else sequences of at least this length (Select-Dedupe).
    Select(usize),
}

/// A list of pairs in LRU order, the most recently used at its end, cut at the front.
#[derive(Default)]
struct Recent {
    most: usize,
    pairs: Vec<(String, u64)>,
}

impl Recent {
    fn look(&mut self, key: &str) -> Option<u64> {
        let at = self.pairs.iter().position(|pair| pair.0 == key)?;
        let pair = self.pairs.remove(at);
        self.pairs.push(pair.clone());
        Some(pair.1)
    }

    fn enter(&mut self, key: &str, value: u64) {
        self.pairs.retain(|pair| pair.0 != key);
        self.pairs.push((key.to_string(), value));
        if self.pairs.len() > self.most {
            self.pairs.remove(0);
        }
    }

    /// Invalidates an entry, which keeps its position in the list.
    fn spoil(&mut self, key: &str, value: u64) {
        self.rename(key, value, u64::MAX);
    }

    fn drop(&mut self, key: &str, value: u64) {
        self.pairs.retain(|pair| !(pair.0 == key && pair.1 == value));
    }

    fn rename(&mut self, key: &str, from: u64, to: u64) {
        for pair in self.pairs.iter_mut().filter(|pair| pair.0 == key && pair.1 == from) {
            pair.1 = to;
        }
    }
}

/// Counts of a scheme over all requests.
#[derive(Clone, Debug, Default, PartialEq)]
struct Counted {
    writes: u64,
    removed: u64,
    written: u64,
    known: u64,
    shared: u64,
    reads: u64,
    read: u64,
    hits: u64,
    splits: u64,
    lookups: u64,
    to_disk: u64,
    used: u64,
    redirected_most: u64,
    home_again: u64,
}

/// A scheme, computed the slow way.
struct Slow {
    rule: Rule,
    is_complete: bool,
    /// The copy that the index names, and a flag: entries of freed places leave the index at once.
    copy: IndexCopy,
    drops_stale: bool,
    /// The place of each written block: pairs of block and place, the last remapped block at the end.
    blocks: Vec<(u64, u64)>,
    /// The content of each place.
    holds: Vec<(u64, String)>,
    index: Recent,
    /// The index on disk of Full-Dedupe.
    table: Recent,
    cache: Recent,
    spare: u64,
    counted: Counted,
}

impl Slow {
    fn new(rule: Rule, copy: IndexCopy, drops_stale: bool, entries: usize, cached: usize) -> Slow {
        Slow {
            rule,
            is_complete: rule == Rule::All,
            copy,
            drops_stale,
            blocks: Vec::new(),
            holds: Vec::new(),
            index: Recent { most: entries, ..Recent::default() },
            table: Recent { most: usize::MAX, ..Recent::default() },
            cache: Recent { most: cached, ..Recent::default() },
            spare: LAYOUT.data,
            counted: Counted::default(),
        }
    }

    fn place(&self, block: u64) -> Option<u64> {
        self.blocks.iter().find(|pair| pair.0 == block).map(|pair| pair.1)
    }

    fn held(&self, place: u64) -> Option<String> {
        self.holds.iter().find(|pair| pair.0 == place).map(|pair| pair.1.clone())
    }

    /// Returns the blocks that refer to a place, without the owner of the place.
    fn guests(&self, place: u64) -> Vec<u64> {
        self.blocks.iter().filter(|pair| pair.1 == place && pair.0 != place).map(|pair| pair.0).collect()
    }

    fn forget(&mut self, place: u64) {
        if let Some(content) = self.held(place) {
            if self.drops_stale {
                self.index.drop(&content, place);
            } else {
                self.index.spoil(&content, place);
            }
            self.table.drop(&content, place);
        }
    }

    /// Remaps a block to a place. The old place is freed if no other block refers to it.
    fn point(&mut self, block: u64, place: u64) {
        let before = self.place(block);
        self.blocks.retain(|pair| pair.0 != block);
        self.blocks.push((block, place));
        if let Some(before) = before
            && before != place
            && self.blocks.iter().all(|pair| pair.1 != before)
        {
            self.forget(before);
            self.holds.retain(|pair| pair.0 != before);
            self.cache.drop(&before.to_string(), 0);
        }
        let redirected = self.blocks.iter().filter(|pair| pair.0 != pair.1).count() as u64;
        self.counted.redirected_most = self.counted.redirected_most.max(redirected);
    }

    fn write(&mut self, block: u64, content: &str) {
        let guests = self.guests(block);
        if !guests.is_empty() {
            // POD, Fig. 10. The heir is the last remapped block among those whose own place is used by no other block.
            let free = |&&guest: &&u64| self.guests(guest).is_empty();
            let to = guests.iter().rev().take(16).find(free).copied().unwrap_or_else(|| {
                self.spare += 1;
                self.spare - 1
            });
            let old = self.held(block).expect("guests see something");
            self.index.rename(&old, block, to);
            self.table.rename(&old, block, to);
            self.holds.retain(|pair| pair.0 != to && pair.0 != block);
            self.holds.push((to, old));
            for pair in self.blocks.iter_mut().filter(|pair| pair.1 == block && pair.0 != block) {
                pair.1 = to;
            }
        } else if self.held(block).is_some_and(|old| old != content) {
            self.forget(block);
        }
        self.point(block, block);
        self.holds.retain(|pair| pair.0 != block);
        self.holds.push((block, content.to_string()));
        self.counted.to_disk += 1;
    }

    fn write_request(&mut self, request: &[&Words]) {
        let count = request.len();
        self.counted.writes += 1;
        self.counted.written += count as u64;
        if self.rule == Rule::Nothing {
            request.iter().for_each(|record| self.write(record.lba / 8, &record.digest));
            return;
        }
        let found: Vec<Option<u64>> = request.iter().map(|record| self.find(&record.digest)).collect();
        self.counted.known += found.iter().flatten().count() as u64;
        // For each block, the length of its sequence: known blocks at consecutive places.
        let is_row = |places: &[Option<u64>]| {
            places.iter().all(Option::is_some)
                && places.windows(2).all(|pair| pair[0].map(|place| place + 1) == pair[1])
        };
        let longest = |of: &[Option<u64>], at: usize| {
            (0..=at)
                .flat_map(|from| (at + 1..=of.len()).map(move |to| (from, to)))
                .filter(|&(from, to)| is_row(&of[from..to]))
                .map(|(from, to)| to - from)
                .max()
                .unwrap_or(0)
        };
        let wants = |at: usize| match self.rule {
            Rule::Nothing => false,
            Rule::All => found[at].is_some(),
            Rule::Sequences(least) => longest(&found, at) >= least,
            Rule::Select(least) => is_row(&found) || longest(&found, at) >= least,
        };
        let wanted: Vec<bool> = (0..count).map(wants).collect();
        let mut shared = vec![false; count];
        for at in (0..count).filter(|&at| wanted[at]) {
            let place = found[at].expect("it is known");
            // An earlier block of this request may have overwritten it.
            if self.held(place).as_deref() == Some(&request[at].digest) {
                shared[at] = true;
                self.counted.shared += 1;
                if self.place(request[at].lba / 8) != Some(place) {
                    self.point(request[at].lba / 8, place);
                }
            }
        }
        for at in (0..count).filter(|&at| !shared[at]) {
            self.write(request[at].lba / 8, &request[at].digest);
        }
        self.counted.removed += u64::from(shared.iter().all(|&shared| shared));
        let written: Vec<Option<u64>> = (0..count).map(|at| (!shared[at]).then(|| request[at].lba / 8)).collect();
        for at in (0..count).filter(|&at| !shared[at]) {
            let (home, digest) = (request[at].lba / 8, &request[at].digest);
            let old = found[at].filter(|&old| self.held(old).as_deref() == Some(digest));
            let named = match (old, self.copy) {
                (Some(old), IndexCopy::Oldest) => old,
                (Some(old), IndexCopy::Sequential) if longest(&found, at) >= longest(&written, at) => old,
                _ => home,
            };
            self.index.enter(digest, named);
            self.table.enter(digest, named);
        }
    }

    fn find(&mut self, digest: &str) -> Option<u64> {
        if let Some(place) = self.index.look(digest).filter(|&place| place != u64::MAX) {
            return Some(place);
        }
        if !self.is_complete {
            return None;
        }
        self.counted.lookups += 1;
        let place = self.table.look(digest)?;
        self.index.enter(digest, place);
        Some(place)
    }

    fn read_request(&mut self, request: &[&Words]) {
        self.counted.reads += 1;
        let mut missed = Vec::new();
        for record in request {
            let block = record.lba / 8;
            let place = self.place(block).unwrap_or(block);
            self.counted.read += 1;
            match self.cache.look(&place.to_string()) {
                Some(_) => self.counted.hits += 1,
                None => {
                    self.cache.enter(&place.to_string(), 0);
                    missed.push((block, place));
                }
            }
        }
        let breaks = |of: &dyn Fn(&(u64, u64)) -> u64| {
            missed.windows(2).filter(|pair| of(&pair[0]) + 1 != of(&pair[1])).count() as u64
        };
        let splits = breaks(&|pair| pair.1).saturating_sub(breaks(&|pair| pair.0));
        self.counted.splits += splits;
        if splits > 0 && matches!(self.rule, Rule::Select(_)) {
            request.iter().for_each(|record| self.go_home(record.lba / 8));
        }
    }

    /// Moves a block of a split read to its own place, if no other block refers to that (POD, section 3.3).
    fn go_home(&mut self, block: u64) {
        let Some(place) = self.place(block).filter(|&place| place != block && self.guests(block).is_empty()) else {
            return;
        };
        let content = self.held(place).expect("it leads somewhere");
        let is_alone = self.blocks.iter().filter(|pair| pair.1 == place).count() == 1;
        let is_cached = self.cache.pairs.iter().any(|pair| pair.0 == place.to_string());
        if is_alone {
            self.index.rename(&content, place, block);
            self.table.rename(&content, place, block);
        }
        self.holds.push((block, content));
        self.point(block, block);
        if is_alone && is_cached {
            self.cache.enter(&block.to_string(), 0);
        }
        self.counted.home_again += 1;
    }

    fn all(mut self, records: &[Words]) -> Counted {
        for request in joined(records) {
            if request[0].op == "W" { self.write_request(&request) } else { self.read_request(&request) }
        }
        let mut places: Vec<u64> = self.blocks.iter().map(|pair| pair.1).collect();
        places.sort_unstable();
        places.dedup();
        self.counted.used = places.len() as u64;
        self.counted
    }
}

/// Runs `repro`'s model, over `repro`'s reader.
fn ours(scheme: Scheme, memory: u64, path: &Path) -> Counted {
    let mut model = InPlace::new(scheme, LAYOUT, memory, &Warm::new(LAYOUT.data, memory));
    let mut to_disk = 0;
    for request in open(&[path.to_path_buf()], &Options::default()).expect("it can be read") {
        let plan = model.request(0, &request.expect("every line is good"));
        to_disk += plan.writes.iter().map(|extent| extent.blocks).sum::<u64>();
        while model.has_split() {
            model.relinearise();
        }
    }
    let counts = model.counts;
    Counted {
        writes: counts.write_requests,
        removed: counts.removed_requests,
        written: counts.written_blocks,
        known: counts.known_blocks,
        shared: counts.shared_blocks,
        reads: counts.read_requests,
        read: counts.read_blocks,
        hits: counts.read_hits,
        splits: counts.split_reads,
        lookups: counts.lookups,
        to_disk,
        used: model.used_blocks(),
        redirected_most: model.most_nvram() / 16,
        home_again: counts.returned_home,
    }
}

/// Memory in which nothing is ever evicted, and memory for 256 entries of the index and two blocks.
const MEMORY: [u64; 2] = [64 << 20, 16 << 10];

fn agree(path: &Path, records: &[Words]) {
    let schemes = [
        (Scheme::NATIVE, Rule::Nothing),
        (Scheme::NATIVE_HALF, Rule::Nothing),
        (Scheme::FULL_BARE, Rule::All),
        (Scheme::IDEDUP_2, Rule::Sequences(2)),
        (Scheme::IDEDUP, Rule::Sequences(4)),
        (Scheme::IDEDUP_8, Rule::Sequences(8)),
        (Scheme::SELECT, Rule::Select(3)),
        (Scheme::SELECT_ABOVE, Rule::Select(4)),
    ];
    for memory in MEMORY {
        let copies = [IndexCopy::Oldest, IndexCopy::Sequential, IndexCopy::Newest];
        let each = copies.into_iter().flat_map(|copy| [(copy, true), (copy, false)]);
        let each = each.flat_map(|variant| schemes.map(|(scheme, rule)| (scheme, rule, variant)));
        for (scheme, rule, (copy, drops_stale)) in each {
            let scheme = Scheme { index_copy: copy, drops_stale, ..scheme };
            let half = memory / 2;
            let cached = if scheme.name == "native" { memory } else { half } / 4096;
            let slow = Slow::new(rule, copy, drops_stale, (half / 32) as usize, cached as usize).all(records);
            assert_eq!(ours(scheme, memory, path), slow, "{scheme} with {memory} bytes, {copy}");
            if rule == Rule::All || rule == Rule::Select(3) {
                assert!(slow.removed > 0 && slow.shared > slow.removed, "{scheme}: {slow:?}");
            }
        }
    }
    // iCache moves memory. With enough memory nothing is evicted under any cache partition, so POD shares the same blocks as Select-Dedupe.
    let entries = (MEMORY[0] / 64) as usize;
    let slow = Slow::new(Rule::Select(3), IndexCopy::Oldest, false, entries, (MEMORY[0] / 8192) as usize).all(records);
    for scheme in [Scheme::POD, Scheme::CURVES] {
        assert_eq!(ours(scheme, MEMORY[0], path), slow, "{scheme}");
    }
    // The cost of an index lookup changes no decision. With cached pages and with a filter there are fewer lookups, and nothing else differs.
    for memory in MEMORY {
        let bare = ours(Scheme::FULL_BARE, memory, path);
        for scheme in [Scheme::FULL, Scheme::FULL_FILTER, Scheme::FULL_FREE] {
            let counted = ours(scheme, memory, path);
            assert!(counted.lookups <= bare.lookups, "{scheme}");
            assert_eq!(Counted { lookups: bare.lookups, ..counted }, bare, "{scheme} with {memory} bytes");
        }
    }
}

#[test]
fn schemes_count_on_the_sample_of_mail_what_its_lines_come_to() {
    let Some(path) = sample("fiu/mail_day1_first10000.csv") else { return };
    agree(&path, &of_mail(&path));
}

#[test]
fn schemes_count_on_the_sample_of_homes_what_its_lines_come_to() {
    let Some(path) = sample("fiu/homes-sample.1.blkparse") else { return };
    agree(&path, &of_homes(&path));
}

/// The other samples have no contents. Nothing can be shared, and a scheme writes the same blocks as the bare device.
#[test]
fn without_contents_every_scheme_is_the_bare_device() {
    for name in ["mqsim/tpcc-small.trace", "cloudphysics/cloudPhysicsIO.csv"] {
        let Some(path) = sample(name) else { continue };
        let native = ours(Scheme::NATIVE_HALF, MEMORY[1], &path);
        let mut blocks = Vec::new();
        let mut reads = 0;
        for request in open(std::slice::from_ref(&path), &Options::default()).expect("it can be read") {
            let request = request.expect("every line is good");
            match request.writes {
                true => blocks.extend(request.block..request.block + u64::from(request.blocks)),
                false => reads += 1,
            }
        }
        assert_eq!((native.written, native.to_disk, native.reads), (blocks.len() as u64, blocks.len() as u64, reads));
        blocks.sort_unstable();
        blocks.dedup();
        assert_eq!((native.used, native.removed, native.splits), (blocks.len() as u64, 0, 0), "{name}");
        for scheme in [Scheme::FULL_BARE, Scheme::IDEDUP, Scheme::SELECT] {
            assert_eq!(ours(scheme, MEMORY[1], &path), native, "{name}, {scheme}");
        }
    }
}
