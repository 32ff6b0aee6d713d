//! The engine's structures in isolation, for `crates/benches` (feature `bench`, not in a product's build): each function is one operation as the data
//! path does it, on tables of the size that a server with a few hundred MiB has. Places come from a sequence that is the same in every run.

use alloc::vec;
use alloc::vec::Vec;

use crate::api::{BufferId, Digest, Effect, Segment, VolumeId};
use crate::block_map::delta::Delta;
use crate::cache::arc::ReadCache;
use crate::dedup::index::{Index, Size};
use crate::format::entry::{Entry, Key, Slot, check_bits};
use crate::format::geometry::Geometry;
use crate::format::record::{self, Change, Header};
use crate::format::superblock::Root;
use crate::metadata::io::Purpose;
use crate::metadata::page_cache::Region;
use crate::metadata::tree::{Metadata, Walk, Writer, lookup};
use crate::properties::CacheKey;
use crate::space::Space;

const INDEX_ENTRIES: u64 = 1 << 22;
const DELTA_ENTRIES: u64 = 1 << 17;
const LEAVES: u64 = 4096;
const CACHED: u64 = 1 << 15;
/// Blocks of a record.
const CHANGES: u64 = 32;
const SEED: u64 = 9;

/// The tables.
pub struct Tables {
    state: u64,
    next: u64,
    index: Index,
    delta: Delta,
    metadata: Metadata,
    root: Root,
    cache: ReadCache,
    /// A read cache by content, and a buffer that it does not hold.
    contents: ReadCache,
    spare: BufferId,
    evicted: Vec<BufferId>,
    space: Space,
    dead: Vec<Slot>,
    changes: Vec<Change>,
    header: Header,
    pages: Vec<u8>,
    sum: u64,
}

fn digest_of(number: u64) -> Digest {
    let mixed = u128::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
    Digest((mixed ^ (mixed >> 61)).to_le_bytes())
}

fn key_of(number: u64) -> Key {
    Key::new(VolumeId(1), number)
}

/// Builds a tree whose pages are all in the page cache.
fn tree(geometry: Geometry) -> (Metadata, Root) {
    let mut metadata = Metadata::new(geometry, 2 * LEAVES as u32, SEED, SEED);
    let mut writer = Writer::new(Region::Metadata, Root::default());
    for leaf in 0..=LEAVES {
        if leaf < LEAVES {
            let page = writer.leaf(&mut metadata, leaf, true).ok().flatten().expect("there are pages enough");
            metadata.pages_mut().bytes_mut(page)[..8].copy_from_slice(&(leaf + 1).to_le_bytes());
        } else {
            writer.finish(&mut metadata).expect("there are pages enough");
        }
        while let Some(Effect::Io(id)) = metadata.io_mut().next_effect() {
            let (purpose, segments, _) = metadata.io_mut().end(id);
            if let (Purpose::WritePage(key), Some(&Segment::Page(page))) = (purpose, segments.first()) {
                metadata.pages_mut().written(key, page);
            }
            metadata.io_mut().recycle(id, segments);
        }
    }
    let root = writer.finish(&mut metadata).expect("it is written already");
    (metadata, root)
}

impl Default for Tables {
    fn default() -> Tables {
        let geometry = Geometry::for_capacity(64 << 30).expect("a usual size");
        let size = Size { entries: INDEX_ENTRIES, least: INDEX_ENTRIES, chunk: 8192 };
        let (metadata, root) = tree(geometry);
        let mut space = Space::new(&geometry);
        space.set_reserved(geometry.containers);
        let fresh = |at| Change::Fresh { key: key_of(at), slot: Slot(at), digest: digest_of(at), offline: false };
        let changes: Vec<Change> = (0..CHANGES).map(fresh).collect();
        let pages = record::pages_for(changes.len(), geometry.block_size as usize);
        let header = Header {
            pages: pages as u16,
            blocks: 0,
            sequence: 7,
            epoch: 3,
            previous: 5,
            watermark: 6,
            entries: changes.len() as u32,
            position: 0,
        };
        let mut tables = Tables {
            state: 1,
            next: 0,
            index: Index::new(size, geometry.slots(), 0),
            delta: Delta::with_capacity(DELTA_ENTRIES as usize),
            metadata,
            root,
            cache: ReadCache::new(CACHED as usize, 2 * CACHED as usize),
            contents: ReadCache::new(CACHED as usize, 2 * CACHED as usize),
            spare: BufferId(CACHED as u32),
            evicted: Vec::new(),
            space,
            dead: Vec::new(),
            changes,
            header,
            pages: vec![0; pages * geometry.block_size as usize],
            sum: 0,
        };
        for number in 0..INDEX_ENTRIES / 2 {
            tables.index.insert(digest_of(number), Slot(number), 1);
        }
        for number in 0..DELTA_ENTRIES / 2 {
            tables.delta.put(key_of(number), Entry::whole(Slot(number), digest_of(number)), digest_of(number), true);
        }
        tables.contents.set_key(CacheKey::Content, CACHED as usize);
        for number in 0..CACHED {
            let (slot, buffer) = (Slot(number), BufferId(number as u32));
            tables.contents.insert_content(slot, buffer, digest_of(number), &mut tables.evicted);
            tables.cache.insert(Slot(number), BufferId(number as u32), &mut tables.evicted);
        }
        tables.encode_record();
        tables
    }
}

impl Tables {
    fn any(&mut self, bound: u64) -> u64 {
        self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.state >> 33) % bound
    }

    /// Looks up a digest that the index was given.
    pub fn index_hit(&mut self) -> bool {
        let number = self.any(INDEX_ENTRIES / 2);
        self.index.lookup(digest_of(number)).is_some()
    }

    /// Looks up an unknown digest.
    pub fn index_miss(&mut self) -> bool {
        let number = self.any(1 << 30) + (1 << 40);
        self.index.lookup(digest_of(number)).is_some()
    }

    /// Inserts a new digest into the index; once that is full, it evicts another.
    pub fn index_insert(&mut self) {
        self.next += 1;
        self.index.insert(digest_of((1 << 41) + self.next), Slot(self.next % self.space.slots_of(0).end), 1);
    }

    /// Looks up a block in the delta; returns true if the delta has it.
    pub fn delta_get(&mut self) -> bool {
        let number = self.any(DELTA_ENTRIES / 2);
        self.delta.get(key_of(number)).is_some()
    }

    /// Gives a block of the delta a new slot and forgets the old one; returns true if there was an old one.
    pub fn delta_put(&mut self) -> bool {
        self.next += 1;
        let (key, slot) = (key_of(self.any(DELTA_ENTRIES / 2)), Slot((1 << 30) + self.next));
        let dead = self.delta.put(key, Entry::whole(slot, digest_of(slot.0)), digest_of(slot.0), true);
        if let Some(slot) = dead {
            self.delta.forget(slot);
        }
        dead.is_some()
    }

    /// Finds a leaf in a tree of three levels that is all in the page cache.
    pub fn tree_lookup(&mut self) -> bool {
        let leaf = self.any(LEAVES);
        matches!(lookup(&mut self.metadata, Region::Metadata, self.root, leaf), Walk::Leaf(_))
    }

    /// Finds a block in the read cache.
    pub fn cache_hit(&mut self) -> bool {
        let slot = self.any(CACHED);
        self.cache.get(Slot(slot)).is_some()
    }

    /// Inserts a block into a full read cache, which evicts another.
    pub fn cache_insert(&mut self) -> bool {
        self.next += 1;
        self.cache.insert(Slot((1 << 31) + self.next), BufferId((self.next % CACHED) as u32), &mut self.evicted);
        self.evicted.pop().is_some()
    }

    /// Looks up a content that the read cache does not hold: the additional cost of a miss with content keys.
    pub fn content_miss(&mut self) -> bool {
        let digest = digest_of(self.any(1 << 30) + (1 << 40));
        self.contents.candidate(check_bits(digest)).is_some_and(|_| self.contents.holding(digest).is_some())
    }

    /// Finds a content in the read cache, as if its digest had been at hand.
    pub fn content_hit(&mut self) -> bool {
        let digest = digest_of(self.any(CACHED));
        self.contents.candidate(check_bits(digest)).is_some() && self.contents.holding(digest).is_some()
    }

    /// Inserts a block into the cache by content, as [`Tables::cache_insert`] does; returns true if that evicts one.
    pub fn content_insert(&mut self) -> bool {
        self.next += 1;
        let slot = Slot((1 << 31) + self.next);
        self.contents.insert_content(slot, self.spare, digest_of((1 << 42) + self.next), &mut self.evicted);
        let evicted = self.evicted.pop();
        self.spare = evicted.unwrap_or(self.spare);
        evicted.is_some()
    }

    /// Writes a record of 32 new blocks.
    pub fn encode_record(&mut self) -> u64 {
        self.sum = record::encode(&self.header, &self.changes, SEED, &mut self.pages);
        self.sum
    }

    /// Reads the record back.
    pub fn decode_record(&mut self) -> bool {
        record::decode_header(&self.pages) == Some(self.header)
            && record::decode(&self.header, &mut self.pages, SEED).is_some_and(|(_, sum)| sum == self.sum)
    }

    /// Allocates a slot and gives it up; in containers that are opened when they are needed.
    pub fn allocate_slot(&mut self) -> bool {
        if self.space.ready() == 0
            && let Some(container) = self.space.choose(false, &|_| false)
        {
            self.space.open(container, |_| true);
        }
        let Some(slot) = self.space.allocate(false) else { return false };
        self.space.defer_free(slot, 1);
        if self.space.pending().len() == 4096 {
            self.space.reclaim(1, 4096, |_| false, &mut self.dead);
            self.dead.clear();
        }
        true
    }
}
