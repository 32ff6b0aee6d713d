//! Management of the index and the read cache.

use alloc::string::String;
use core::fmt;
use core::str::FromStr;

use super::choices::choices;

/// Partition of the memory that index and read cache share.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PartitionMode {
    /// By hits.
    Adaptive(Rule),
    /// Percentage that is index.
    Fixed(u8),
}

/// Rule that the adaptive partition follows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Rule {
    /// Hits that each partition would have had.
    #[default]
    Curves,
    /// Hits per size: POD's Algorithm 1.
    Paper,
}

/// Replacement algorithm of the read cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Replacement {
    /// Eviction by ARC, the adaptive replacement cache.
    #[default]
    Arc,
    /// Eviction of the least recently used block.
    Lru,
}

/// Management of the index and the read cache. Written `adaptive`, `adaptive:paper`, `fixed:PERCENT`, `index` or `read`, with `,lru` behind it for LRU in place
/// of ARC.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CacheSetting {
    /// Partition of the memory between the two.
    pub partition: PartitionMode,
    /// Replacement algorithm of the read cache.
    pub replacement: Replacement,
}

impl Default for CacheSetting {
    fn default() -> CacheSetting {
        CacheSetting { partition: PartitionMode::Adaptive(Rule::Curves), replacement: Replacement::Arc }
    }
}

impl CacheSetting {
    /// Encodes the setting in four bytes; never 0.
    pub(crate) fn encode(self) -> u32 {
        let (kind, percent) = match self.partition {
            PartitionMode::Adaptive(Rule::Curves) => (1, 0),
            PartitionMode::Adaptive(Rule::Paper) => (2, 0),
            PartitionMode::Fixed(percent) => (3, u32::from(percent)),
        };
        kind | percent << 8 | u32::from(self.replacement == Replacement::Lru) << 16
    }

    /// Decodes a number of [`CacheSetting::encode`]; `None` for numbers that it never gives.
    pub(crate) fn decode(code: u32) -> Option<CacheSetting> {
        let partition = match (code & 0xff, code >> 8 & 0xff) {
            (1, 0) => PartitionMode::Adaptive(Rule::Curves),
            (2, 0) => PartitionMode::Adaptive(Rule::Paper),
            (3, percent @ 0..=100) => PartitionMode::Fixed(percent as u8),
            _ => return None,
        };
        let replacement = match code >> 16 {
            0 => Replacement::Arc,
            1 => Replacement::Lru,
            _ => return None,
        };
        Some(CacheSetting { partition, replacement })
    }
}

impl fmt::Display for CacheSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.partition {
            PartitionMode::Adaptive(Rule::Curves) => f.write_str("adaptive")?,
            PartitionMode::Adaptive(Rule::Paper) => f.write_str("adaptive:paper")?,
            PartitionMode::Fixed(0) => f.write_str("read")?,
            PartitionMode::Fixed(100) => f.write_str("index")?,
            PartitionMode::Fixed(percent) => write!(f, "fixed:{percent}")?,
        }
        if self.replacement == Replacement::Lru { f.write_str(",lru") } else { Ok(()) }
    }
}

impl FromStr for CacheSetting {
    type Err = String;

    fn from_str(text: &str) -> Result<CacheSetting, String> {
        let (partition, replacement) = match text.split_once(',') {
            None => (text, Some(Replacement::Arc)),
            Some((partition, "lru")) => (partition, Some(Replacement::Lru)),
            Some((partition, "arc")) => (partition, Some(Replacement::Arc)),
            Some((partition, _)) => (partition, None),
        };
        let partition = match partition.split_once(':') {
            None => match partition {
                "adaptive" => Some(PartitionMode::Adaptive(Rule::Curves)),
                "index" => Some(PartitionMode::Fixed(100)),
                "read" => Some(PartitionMode::Fixed(0)),
                _ => None,
            },
            Some(("adaptive", "paper")) => Some(PartitionMode::Adaptive(Rule::Paper)),
            Some(("fixed", percent)) => {
                percent.parse().ok().filter(|&percent: &u8| percent <= 100).map(PartitionMode::Fixed)
            }
            Some(_) => None,
        };
        let setting = partition.zip(replacement);
        setting.map(|(partition, replacement)| CacheSetting { partition, replacement }).ok_or_else(|| {
            String::from(
                "it is adaptive, adaptive:paper, fixed:PERCENT (of the index, 0 to 100), index or read, with ',lru' behind it \
                 for LRU in place of ARC",
            )
        })
    }
}

choices! {
    /// Key by which the read cache finds blocks. Each has the same memory.
    #[derive(Default)]
    CacheKey(Err("the key of the read cache is of an unknown kind")), BadCacheKey("it is content, sector or off") {
        /// Their slots.
        #[default]
        Sector = "sector",
        /// Their slots, and then their contents. The content of several slots is kept once.
        Content = "content",
        /// Nothing: no block is kept.
        Off = "off",
    }
}

choices! {
    /// Copy of a block that the index names, where the block has been written again although it was known.
    #[derive(Default)]
    IndexCopy(Err("the copy that the index shall name is of an unknown kind")), BadIndexCopy("it is sequential, oldest or newest") {
        /// The copy in the longer run of blocks of its request, in consecutive slots; of equal ones, the older.
        #[default]
        Sequential = "sequential",
        /// The oldest copy.
        Oldest = "oldest",
        /// The copy that was written last.
        Newest = "newest",
    }
}
