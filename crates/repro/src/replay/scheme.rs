//! Schemes of the papers, by name.

use std::fmt;
use std::str::FromStr;

use engine::policy::{Counts, IndexCopy, Policy, Threshold};
use engine::{CacheLimits, Rule};

/// Cache partition: the division of a scheme's memory between index and read cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PartitionMode {
    /// Constant share of the index, in thousandths.
    Fixed(u32),
    /// Partition that iCache moves, starting in the middle.
    Adaptive(Rule, CacheLimits, Counting),
}

/// Cost of a lookup in the complete index, for a digest that the cached entries do not have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lookups {
    /// Nothing.
    Free,
    /// Always a read of the disk.
    Bare,
    /// A read of the disk if the page of the index is not in memory. Half of the index memory holds pages, the other half entries. This follows POD's section
    /// 2.2: "most indices are stored in memory, thus reducing the number of in-disk index-lookup operations".
    Paged,
    /// A read of the disk if a Bloom filter reports that the digest may be known. The filter takes a quarter of the index memory.
    Filtered,
}

/// Unit in which iCache's Access Monitor counts, where section 3.4 can be read in two ways.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Counting {
    /// Requests that hit: "counting the numbers of the read and write requests that hit the corresponding caches". In the caches and their
    /// ghosts themselves, each of which is one LRU list.
    Requests,
    /// Blocks that hit, in the same.
    Blocks,
    /// Blocks that hit by depth, with lists of the Monitor's own. The read cache has two, as ARC has. The engine counts so.
    Depths,
}

/// Deduplication scheme: its treatment of written requests and its use of memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Scheme {
    /// Name in tables and on the command line.
    pub name: &'static str,
    /// Policy that decides which blocks are shared; [`Policy::Native`] shares nothing.
    pub policy: Policy,
    /// True if the disk has the index of all digests: digests unknown in memory are looked up there.
    pub complete: bool,
    /// Cost of a lookup in that index.
    pub lookups: Lookups,
    /// Copy that the index names, where a known block is written again. POD's section 3.3 inserts an entry only where none matches: the oldest.
    pub index_copy: IndexCopy,
    /// True if the entry of an overwritten content leaves the index at once. POD has a Map_table and an Index_table, and no reference from a place to its entry
    /// (section 3.3). There the entry stays until it is the oldest, and a match with it does not count.
    pub drops_stale: bool,
    /// Cache partition of the memory.
    pub partition: PartitionMode,
    /// True if a cache that shrinks is written to an area of the disk, from which a cache that grows is filled (POD, section 3.4). Otherwise its entries are
    /// dropped, and use fills the growing cache.
    pub swaps: bool,
    /// True if there is a read cache.
    pub caches: bool,
    /// True if blocks of a split read are written home again when the disk is idle (POD, section 3.3).
    pub relinearises: bool,
}

impl Scheme {
    /// No deduplication: the bare device behind a read cache of the whole memory.
    pub const NATIVE: Scheme = Scheme {
        name: "native",
        policy: Policy::Native,
        complete: false,
        lookups: Lookups::Free,
        index_copy: IndexCopy::Oldest,
        drops_stale: false,
        partition: PartitionMode::Fixed(0),
        swaps: true,
        caches: true,
        relinearises: false,
    };
    /// [`Scheme::NATIVE`] with a read cache of half the memory, as the other schemes have.
    pub const NATIVE_HALF: Scheme =
        Scheme { name: "native-half", partition: PartitionMode::Fixed(500), ..Scheme::NATIVE };
    /// The bare device.
    pub const NATIVE_UNCACHED: Scheme = Scheme { name: "native-uncached", caches: false, ..Scheme::NATIVE };
    /// Full-Dedupe: shares every known block, at the cost of a lookup on the disk. Pages of the index are cached.
    pub const FULL: Scheme = Scheme {
        name: "full",
        policy: Policy::Full,
        complete: true,
        lookups: Lookups::Paged,
        partition: PartitionMode::Fixed(500),
        ..Scheme::NATIVE
    };
    /// [`Scheme::FULL`] without a cache of pages: each digest that no cached entry has is looked up on the disk.
    pub const FULL_BARE: Scheme = Scheme { name: "full-bare", lookups: Lookups::Bare, ..Scheme::FULL };
    /// [`Scheme::FULL`] with a Bloom filter in front of the index on the disk.
    pub const FULL_FILTER: Scheme = Scheme { name: "full-filter", lookups: Lookups::Filtered, ..Scheme::FULL };
    /// [`Scheme::FULL`] with lookups in the index on disk that cost no read; all of the index memory holds entries.
    pub const FULL_FREE: Scheme = Scheme { name: "full-free", lookups: Lookups::Free, ..Scheme::FULL };
    /// Scheme of iDedup: sequences of a request, index in memory alone.
    pub const IDEDUP: Scheme =
        Scheme { name: "idedup", policy: Policy::IDEDUP, complete: false, lookups: Lookups::Free, ..Scheme::FULL };
    /// Shortest sequence of two blocks.
    pub const IDEDUP_2: Scheme =
        Scheme { name: "idedup-2", policy: Policy::Idedup { threshold: Threshold::new(2).unwrap() }, ..Scheme::IDEDUP };
    /// Shortest sequence of eight blocks.
    pub const IDEDUP_8: Scheme =
        Scheme { name: "idedup-8", policy: Policy::Idedup { threshold: Threshold::new(8).unwrap() }, ..Scheme::IDEDUP };
    /// Select-Dedupe.
    pub const SELECT: Scheme = Scheme { name: "select", policy: Policy::SELECT, relinearises: true, ..Scheme::IDEDUP };
    /// Select-Dedupe as the paper's words have it: the threshold counts known blocks of the request.
    pub const SELECT_COUNT: Scheme = Scheme {
        name: "select-count",
        policy: Policy::Select { threshold: Threshold::new(3).unwrap(), counts: Counts::Request },
        ..Scheme::SELECT
    };
    /// Select-Dedupe whose threshold has to be exceeded, as the paper's text says once.
    pub const SELECT_ABOVE: Scheme = Scheme {
        name: "select-above",
        policy: Policy::Select { threshold: Threshold::new(4).unwrap(), counts: Counts::Run },
        ..Scheme::SELECT
    };
    /// POD: Select-Dedupe with iCache, Algorithm 1.
    pub const POD: Scheme = Scheme {
        name: "pod",
        partition: PartitionMode::Adaptive(Rule::Paper, paper_limits(), Counting::Requests),
        ..Scheme::SELECT
    };
    /// Onefold's choices in the papers' layout: the partition follows the hits that each size would have had, and nothing is swapped.
    pub const CURVES: Scheme = Scheme {
        name: "curves",
        partition: PartitionMode::Adaptive(Rule::Curves, curves_limits(), Counting::Depths),
        swaps: false,
        ..Scheme::SELECT
    };

    /// All named schemes.
    pub const ALL: [Scheme; 15] = [
        Scheme::NATIVE,
        Scheme::NATIVE_HALF,
        Scheme::NATIVE_UNCACHED,
        Scheme::FULL,
        Scheme::FULL_BARE,
        Scheme::FULL_FILTER,
        Scheme::FULL_FREE,
        Scheme::IDEDUP_2,
        Scheme::IDEDUP,
        Scheme::IDEDUP_8,
        Scheme::SELECT,
        Scheme::SELECT_COUNT,
        Scheme::SELECT_ABOVE,
        Scheme::POD,
        Scheme::CURVES,
    ];

    /// Returns true if the policy looks up contents in an index.
    pub fn looks_up(&self) -> bool {
        self.policy.looks_up()
    }
}

/// Returns the limits of the paper's iCache, which counts all hits with equal weight.
const fn paper_limits() -> CacheLimits {
    CacheLimits { setting: None, interval: 1000, unit: 10, sampled_one_in: 1, hit_costs: [1, 1] }
}

/// Returns the limits of the engine, which weighs hits by the device time that they save. On a RAID5 without write caches a small write keeps two disks busy
/// for a seek and one and a half turns. A read keeps one busy for a seek and half a turn: 43 ms to 13 with the disks of the papers.
const fn curves_limits() -> CacheLimits {
    CacheLimits { setting: None, interval: 1000, unit: 10, sampled_one_in: 16, hit_costs: [3, 1] }
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name)
    }
}

impl FromStr for Scheme {
    type Err = String;

    fn from_str(text: &str) -> Result<Scheme, String> {
        let names = Scheme::ALL.map(|scheme| scheme.name).join(", ");
        Scheme::ALL.into_iter().find(|scheme| scheme.name == text).ok_or(format!("the schemes are {names}"))
    }
}
