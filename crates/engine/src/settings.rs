//! What is set of a pool and its volumes.

use alloc::string::String;
use core::fmt;
use core::str::FromStr;

/// How the memory that index and read cache share is divided.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Division {
    /// By what is hit.
    Adaptive(Rule),
    /// So many percent are the index.
    Fixed(u8),
}

/// What the division follows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Rule {
    /// What each division would have hit.
    #[default]
    Curves,
    /// Hits per size: POD's Algorithm 1.
    Paper,
}

/// What the read cache evicts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Replacement {
    /// As ARC says.
    #[default]
    Arc,
    /// What was used least recently.
    Lru,
}

/// How the index and the read cache are managed. Written `adaptive`, `adaptive:paper`, `fixed:PERCENT`, `index` or `read`, with
/// `,lru` behind it for LRU in place of ARC.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CacheSetting {
    /// Who gets how much.
    pub division: Division,
    /// What the read cache evicts.
    pub replacement: Replacement,
}

impl Default for CacheSetting {
    fn default() -> CacheSetting {
        CacheSetting { division: Division::Adaptive(Rule::Curves), replacement: Replacement::Arc }
    }
}

impl CacheSetting {
    /// In four bytes; never 0.
    pub(crate) fn encode(self) -> u32 {
        let (kind, percent) = match self.division {
            Division::Adaptive(Rule::Curves) => (1, 0),
            Division::Adaptive(Rule::Paper) => (2, 0),
            Division::Fixed(percent) => (3, u32::from(percent)),
        };
        kind | percent << 8 | u32::from(self.replacement == Replacement::Lru) << 16
    }

    /// What was encoded; `None` for what cannot be.
    pub(crate) fn decode(code: u32) -> Option<CacheSetting> {
        let division = match (code & 0xff, code >> 8 & 0xff) {
            (1, 0) => Division::Adaptive(Rule::Curves),
            (2, 0) => Division::Adaptive(Rule::Paper),
            (3, percent @ 0..=100) => Division::Fixed(percent as u8),
            _ => return None,
        };
        let replacement = match code >> 16 {
            0 => Replacement::Arc,
            1 => Replacement::Lru,
            _ => return None,
        };
        Some(CacheSetting { division, replacement })
    }
}

impl fmt::Display for CacheSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.division {
            Division::Adaptive(Rule::Curves) => f.write_str("adaptive")?,
            Division::Adaptive(Rule::Paper) => f.write_str("adaptive:paper")?,
            Division::Fixed(0) => f.write_str("read")?,
            Division::Fixed(100) => f.write_str("index")?,
            Division::Fixed(percent) => write!(f, "fixed:{percent}")?,
        }
        if self.replacement == Replacement::Lru { f.write_str(",lru") } else { Ok(()) }
    }
}

impl FromStr for CacheSetting {
    type Err = String;

    fn from_str(text: &str) -> Result<CacheSetting, String> {
        let (division, replacement) = match text.split_once(',') {
            None => (text, Some(Replacement::Arc)),
            Some((division, "lru")) => (division, Some(Replacement::Lru)),
            Some((division, "arc")) => (division, Some(Replacement::Arc)),
            Some((division, _)) => (division, None),
        };
        let division = match division.split_once(':') {
            None => match division {
                "adaptive" => Some(Division::Adaptive(Rule::Curves)),
                "index" => Some(Division::Fixed(100)),
                "read" => Some(Division::Fixed(0)),
                _ => None,
            },
            Some(("adaptive", "paper")) => Some(Division::Adaptive(Rule::Paper)),
            Some(("fixed", percent)) => {
                percent.parse().ok().filter(|&percent: &u8| percent <= 100).map(Division::Fixed)
            }
            Some(_) => None,
        };
        let setting = division.zip(replacement);
        setting.map(|(division, replacement)| CacheSetting { division, replacement }).ok_or_else(|| {
            String::from(
                "it is adaptive, adaptive:paper, fixed:PERCENT (of the index, 0 to 100), index or read, with ',lru' behind it \
                 for LRU in place of ARC",
            )
        })
    }
}

/// The greatest budget in bytes: the superblock keeps it plus one, and more than that no pool has.
pub(crate) const MOST_BUDGET: u64 = u64::MAX - 1;
