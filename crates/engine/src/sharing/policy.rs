//! Policies: which known blocks a write shares. Pure functions of what was found out about the blocks of one request.
//!
//! `select` is Select-Dedupe of POD (section 3.3), `idedup` the sequences of iDedup within a request; docs/policies.md has
//! the rules, and how they are read where the papers leave them open.

use core::fmt;
use core::num::NonZeroU8;
use core::ops::Range;
use core::str::FromStr;

#[cfg(test)]
mod tests;

/// From so many on: 1 to 255. (The paper's "exceeds the threshold T" is T + 1 here.)
pub type Threshold = NonZeroU8;

/// The threshold of `select` where none is given.
pub const SELECT_THRESHOLD: Threshold = Threshold::new(3).unwrap();
/// The threshold of `idedup` where none is given.
pub const IDEDUP_THRESHOLD: Threshold = Threshold::new(4).unwrap();

/// Which known blocks a volume shares when they are written again.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Policy {
    /// Shares nothing and looks nothing up.
    Native,
    /// Shares nothing, but looks everything up and counts what the others would share.
    Observe,
    /// Shares every known block, also one that is known from the same request only.
    Full,
    /// POD's Select-Dedupe: shares a request that is known as a whole and sequential on disk; of others, long runs.
    Select {
        /// How much has to be known before a part of a request is shared.
        threshold: Threshold,
        /// What the threshold counts.
        counts: Counts,
    },
    /// iDedup: shares runs of at least so many blocks.
    Idedup {
        /// The shortest run that is shared.
        threshold: Threshold,
    },
}

/// What the threshold of `select` counts.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Counts {
    /// The blocks of a run; runs of at least the threshold are shared.
    Run,
    /// The known blocks of the request; all of them are shared if there are at least so many (the paper's words).
    Request,
}

/// Which copy of a block the index names, where it has been written again although it was known.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum IndexCopy {
    /// The one that is in the longer run of blocks of its request, in slots that follow each other; of equal ones, the older.
    #[default]
    Sequential,
    /// The one that was there first.
    Oldest,
    /// The one that was written last.
    Newest,
}

impl IndexCopy {
    /// All of them, by their numbers on disk and in recordings.
    pub(crate) const ALL: [IndexCopy; 3] = [IndexCopy::Sequential, IndexCopy::Oldest, IndexCopy::Newest];
}

impl fmt::Display for IndexCopy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            IndexCopy::Sequential => "sequential",
            IndexCopy::Oldest => "oldest",
            IndexCopy::Newest => "newest",
        })
    }
}

impl FromStr for IndexCopy {
    type Err = BadIndexCopy;

    /// Reads `sequential`, `oldest` or `newest`.
    fn from_str(text: &str) -> Result<IndexCopy, BadIndexCopy> {
        match text {
            "sequential" => Ok(IndexCopy::Sequential),
            "oldest" => Ok(IndexCopy::Oldest),
            "newest" => Ok(IndexCopy::Newest),
            _ => Err(BadIndexCopy),
        }
    }
}

/// A text does not say which copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BadIndexCopy;

impl fmt::Display for BadIndexCopy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("it is sequential, oldest or newest")
    }
}

impl core::error::Error for BadIndexCopy {}

impl Default for Policy {
    fn default() -> Policy {
        Policy::SELECT
    }
}

/// What was found out about one block of a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lookup {
    /// Nothing to share: the block is zero, or its content is not known.
    Nothing,
    /// A slot holds the content.
    Known(u64),
    /// The block maps to this slot already, and the slot holds the content.
    SamePlace(u64),
}

impl Lookup {
    /// The slot that holds the content.
    pub fn slot(self) -> Option<u64> {
        match self {
            Lookup::Nothing => None,
            Lookup::Known(slot) | Lookup::SamePlace(slot) => Some(slot),
        }
    }
}

/// POD's categories of write requests (its Fig. 6).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Category {
    /// No block is known.
    Unknown,
    /// I: all blocks are known, and sequential on disk.
    Sequential,
    /// II: less is known than the threshold asks for.
    Scattered,
    /// III: at least as much is known as the threshold asks for.
    Partial,
}

impl Policy {
    /// `select` with the threshold and the reading that it has where nothing else is said.
    pub const SELECT: Policy = Policy::Select { threshold: SELECT_THRESHOLD, counts: Counts::Run };
    /// `idedup` with the threshold that it has where none is given.
    pub const IDEDUP: Policy = Policy::Idedup { threshold: IDEDUP_THRESHOLD };

    /// Whether the policy wants to know which blocks are known.
    pub fn looks_up(self) -> bool {
        self != Policy::Native
    }

    /// Whether the policy shares anything.
    pub fn shares(self) -> bool {
        !matches!(self, Policy::Native | Policy::Observe)
    }

    /// Decides for a request, whose blocks these are in order of address: `shares` becomes true for each block that is not
    /// written, because its slot holds the content. One that maps to the slot already is such a block under every policy
    /// that shares. Both slices have the same length.
    pub fn decide(self, lookups: &[Lookup], shares: &mut [bool]) {
        assert_eq!(lookups.len(), shares.len());
        let kept = |lookup: &Lookup| self.shares() && matches!(lookup, Lookup::SamePlace(_));
        let all = match self {
            Policy::Native | Policy::Observe => false,
            Policy::Full => true,
            Policy::Select { counts, .. } => match self.category(lookups) {
                Category::Sequential => true,
                Category::Partial => counts == Counts::Request,
                Category::Unknown | Category::Scattered => false,
            },
            Policy::Idedup { .. } => false,
        };
        for (share, lookup) in shares.iter_mut().zip(lookups) {
            *share = kept(lookup) || all && lookup.slot().is_some();
        }
        if let Policy::Select { threshold, counts: Counts::Run } | Policy::Idedup { threshold } = self {
            for run in runs(lookups).filter(|run| run.len() >= usize::from(threshold.get())) {
                shares[run].fill(true);
            }
        }
    }

    /// The category of a request: as this policy's threshold and reading have it, as those of [`Policy::SELECT`] if it is
    /// not `select`.
    pub fn category(self, lookups: &[Lookup]) -> Category {
        let (threshold, counts) = match self {
            Policy::Select { threshold, counts } => (threshold, counts),
            _ => (SELECT_THRESHOLD, Counts::Run),
        };
        let (mut known, mut longest, mut count) = (0, 0, 0);
        for run in runs(lookups) {
            known += run.len();
            longest = run.len().max(longest);
            count += 1;
        }
        let counted = match counts {
            Counts::Run => longest,
            Counts::Request => known,
        };
        match (known, count) {
            (0, _) => Category::Unknown,
            (_, 1) if known == lookups.len() => Category::Sequential,
            _ if counted < usize::from(threshold.get()) => Category::Scattered,
            _ => Category::Partial,
        }
    }

    /// The numbers on disk: the policy's, and its threshold, 0 where it has none.
    pub(crate) fn encode(self) -> (u8, u8) {
        match self {
            Policy::Native => (0, 0),
            Policy::Full => (1, 0),
            Policy::Observe => (2, 0),
            Policy::Select { threshold, counts: Counts::Run } => (3, threshold.get()),
            Policy::Select { threshold, counts: Counts::Request } => (4, threshold.get()),
            Policy::Idedup { threshold } => (5, threshold.get()),
        }
    }

    /// Reads the numbers on disk; `None` if there is no such policy, or it makes no sense with this threshold.
    pub(crate) fn decode(code: u8, threshold: u8) -> Option<Policy> {
        let policy = match (code, Threshold::new(threshold)) {
            (0, None) => Policy::Native,
            (1, None) => Policy::Full,
            (2, None) => Policy::Observe,
            (3, Some(threshold)) => Policy::Select { threshold, counts: Counts::Run },
            (4, Some(threshold)) => Policy::Select { threshold, counts: Counts::Request },
            (5, Some(threshold)) => Policy::Idedup { threshold },
            _ => return None,
        };
        Some(policy)
    }
}

/// The longest runs of known blocks in slots that follow each other, in order.
fn runs(lookups: &[Lookup]) -> impl Iterator<Item = Range<usize>> + '_ {
    let mut at = 0;
    core::iter::from_fn(move || {
        let start = at + lookups[at..].iter().position(|lookup| lookup.slot().is_some())?;
        let first = lookups[start].slot()?;
        let follows = |&(i, lookup): &(usize, &Lookup)| lookup.slot() == first.checked_add(i as u64);
        at = start + lookups[start..].iter().enumerate().take_while(follows).count();
        Some(start..at)
    })
}

/// The run of slots that follow each other which block `at` of a request is in, where `before` is that of the block before it; empty for a
/// block without a slot.
pub fn next_run(
    at: usize,
    before: Range<usize>,
    blocks: usize,
    slot_of: impl Fn(usize) -> Option<u64>,
) -> Range<usize> {
    if before.contains(&at) {
        return before;
    }
    let Some(first) = slot_of(at) else { return at..at };
    let follows = |&next: &usize| slot_of(next) == first.checked_add((next - at) as u64);
    at..at + (at..blocks).take_while(follows).count()
}

// ---- what users write ----

/// Why a text is not a policy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BadPolicy {
    /// There is no policy of this name.
    Unknown,
    /// The policy takes no threshold.
    NoThreshold,
    /// The threshold is not one.
    Threshold,
    /// What the threshold shall count is not one of those.
    Counts,
}

impl fmt::Display for BadPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            BadPolicy::Unknown => {
                "it is native, observe, full, select or idedup, the last two also with a threshold, such as select:3"
            }
            BadPolicy::NoThreshold => "only select and idedup take a threshold",
            BadPolicy::Threshold => "the threshold is a number from 1 to 255, such as in select:3 or idedup:4",
            BadPolicy::Counts => "the threshold of select counts run or request, such as in select:3,request",
        })
    }
}

impl core::error::Error for BadPolicy {}

impl FromStr for Policy {
    type Err = BadPolicy;

    /// Reads `native`, `observe`, `full`, `select`, `select:T`, `select:T,run`, `select:T,request`, `idedup` or `idedup:T`.
    fn from_str(text: &str) -> Result<Policy, BadPolicy> {
        let (name, parameters) = match text.split_once(':') {
            Some((name, parameters)) => (name, Some(parameters)),
            None => (text, None),
        };
        match (name, parameters) {
            ("native", None) => Ok(Policy::Native),
            ("observe", None) => Ok(Policy::Observe),
            ("full", None) => Ok(Policy::Full),
            ("native" | "observe" | "full", Some(_)) => Err(BadPolicy::NoThreshold),
            ("select", None) => Ok(Policy::SELECT),
            ("select", Some(parameters)) => {
                let (threshold, counts) = match parameters.split_once(',') {
                    None => (parameters, Counts::Run),
                    Some((threshold, "run")) => (threshold, Counts::Run),
                    Some((threshold, "request")) => (threshold, Counts::Request),
                    Some(_) => return Err(BadPolicy::Counts),
                };
                Ok(Policy::Select { threshold: parse_threshold(threshold)?, counts })
            }
            ("idedup", None) => Ok(Policy::IDEDUP),
            ("idedup", Some(threshold)) => Ok(Policy::Idedup { threshold: parse_threshold(threshold)? }),
            _ => Err(BadPolicy::Unknown),
        }
    }
}

fn parse_threshold(text: &str) -> Result<Threshold, BadPolicy> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| digits).ok_or(BadPolicy::Threshold)
}

impl fmt::Display for Policy {
    /// As [`Policy::from_str`] reads it, without what goes without saying.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Policy::Native => f.pad("native"),
            Policy::Observe => f.pad("observe"),
            Policy::Full => f.pad("full"),
            Policy::SELECT => f.pad("select"),
            Policy::IDEDUP => f.pad("idedup"),
            Policy::Select { threshold, counts: Counts::Run } => write!(f, "select:{threshold}"),
            Policy::Select { threshold, counts: Counts::Request } => write!(f, "select:{threshold},request"),
            Policy::Idedup { threshold } => write!(f, "idedup:{threshold}"),
        }
    }
}
