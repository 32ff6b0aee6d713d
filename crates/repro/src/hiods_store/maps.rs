//! Time cost of the prototype's three maps: Index, Reverse Index and Metadata, in memory or in LevelDB.
//!
//! Only times are here; [`super::store`] has the entries of the maps.

use engine::Nanos;

use super::lsm::{Databases, Key, Lsm, Order};
use super::{Keeping, Parameters, Scale};

/// An access to memory that misses the processor's caches.
pub const MISS: Nanos = 100;
/// Cache misses of a lookup or an insertion in a hash table: bucket, node, value.
const HASHED: u64 = 3;
/// Divisor of a search's time that gives the time of an entry in a merge. Our choice, as the paper has no figure ([D]). LevelDB's published figures have
/// 0.5 us for the next entry in order and 3.5 us for a lookup in cached tables, a ratio of 7.
const MERGED: Nanos = 4;
/// Bytes of an entry in LevelDB: digest or address, value, and 12 of its own.
const INDEX_BYTES: u64 = 20 + 16 + 12;
const REVERSE_BYTES: u64 = 8 + 20 + 12;
const METADATA_BYTES: u64 = 8 + 9 + 12;

/// One of the three.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Map {
    /// Digest to physical address and number of references.
    Index,
    /// Physical address to digest.
    Reverse,
    /// Logical address to physical address and whether it is shared.
    Metadata,
}

/// The times of all three.
#[derive(Clone, Debug)]
pub struct Maps {
    search: Nanos,
    /// None in memory.
    databases: Option<Databases>,
}

impl Maps {
    /// Creates empty maps for `contents` contents and `blocks` blocks.
    pub fn new(keeping: Keeping, parameters: &Parameters, scale: Scale, contents: u64, blocks: u64) -> Maps {
        let database = |order, bound, bytes| Lsm::new(order, bound, bytes, scale.0);
        let databases = || {
            vec![
                database(Order::Digest, contents, INDEX_BYTES),
                database(Order::LittleEndian, blocks, REVERSE_BYTES),
                database(Order::LittleEndian, blocks, METADATA_BYTES),
            ]
        };
        let entry = parameters.search / MERGED;
        let databases = (keeping == Keeping::Device).then(|| Databases::new(databases(), entry));
        Maps { search: parameters.search, databases }
    }

    /// Looks for a key; returns the time after it.
    pub fn get(&self, map: Map, key: Key, now: Nanos) -> Nanos {
        match &self.databases {
            Some(databases) => now + databases.of(map as usize).searched(key) * self.search,
            None if map == Map::Index => now + HASHED * MISS,
            None => now + MISS,
        }
    }

    /// Enters, changes or removes a key; returns the time after it. In LevelDB each is an entry.
    pub fn put(&mut self, map: Map, key: Key, is_new: bool, now: Nanos) -> Nanos {
        match &mut self.databases {
            Some(databases) => databases.put(map as usize, key, now) + self.search,
            None if map == Map::Index && is_new => now + HASHED * MISS,
            None if map == Map::Index => now,
            None => now + MISS,
        }
    }

    /// Ends all merges that are due.
    pub fn settle(&mut self) {
        if let Some(databases) = &mut self.databases {
            databases.settle();
        }
    }

    /// Returns the entries that merges and flushes wrote, for each that was put; 0 in memory.
    pub fn write_amplification(&self) -> f64 {
        self.databases.as_ref().map_or(0.0, |databases| {
            let all = [Map::Index, Map::Reverse, Map::Metadata].map(|map| databases.of(map as usize));
            let put: u64 = all.iter().map(|lsm| lsm.put).sum();
            all.iter().map(|lsm| lsm.written).sum::<u64>() as f64 / put.max(1) as f64
        })
    }

    /// Returns the time for which the merging thread worked, and for which writers waited for it.
    pub fn merging(&self) -> (Nanos, Nanos) {
        self.databases.as_ref().map_or((0, 0), |databases| (databases.worked, databases.waited))
    }
}
