//! Policies: which known blocks a volume shares.

use core::fmt;
use core::num::NonZeroU8;
use core::str::FromStr;

/// A minimum count: 1 to 255. (The paper's "exceeds the threshold T" is T + 1 here.)
pub type Threshold = NonZeroU8;

/// The threshold of `select` where none is given.
pub const SELECT_THRESHOLD: Threshold = Threshold::new(3).unwrap();

/// The threshold of `idedup` where none is given.
pub const IDEDUP_THRESHOLD: Threshold = Threshold::new(4).unwrap();

/// Policy that selects which known blocks a volume shares when they are written again.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Policy {
    /// Shares nothing and looks nothing up.
    Native,
    /// Shares nothing at a write, but looks everything up and counts the blocks that the others would share. A pass shares them as with `Select`.
    Observe,
    /// Shares every known block, also one that is known from the same request only.
    Full,
    /// POD's Select-Dedupe: shares a request that is known as a whole and sequential on disk; of others, long runs.
    Select {
        /// Number of blocks that have to be known before a part of a request is shared.
        threshold: Threshold,
        /// Blocks that the threshold counts: those of a run, or of the request.
        counts: Counts,
    },
    /// Runs of at least `threshold` known blocks are shared (iDedup).
    Idedup {
        /// Minimum length of a run of known blocks, in blocks: shorter runs are not shared.
        threshold: Threshold,
    },
}

/// Unit that the threshold of `select` counts.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Counts {
    /// The blocks of a run; runs of at least the threshold are shared.
    Run,
    /// The known blocks of the request; all of them are shared if there are at least T (the paper's words).
    Request,
}

impl Default for Policy {
    fn default() -> Policy {
        Policy::SELECT
    }
}

impl Policy {
    /// `select` with its default threshold and default counts.
    pub const SELECT: Policy = Policy::Select { threshold: SELECT_THRESHOLD, counts: Counts::Run };
    /// `idedup` with its default threshold.
    pub const IDEDUP: Policy = Policy::Idedup { threshold: IDEDUP_THRESHOLD };

    /// Returns true if the policy looks blocks up to learn which are known: all but `native` do.
    pub fn looks_up(self) -> bool {
        self != Policy::Native
    }

    /// Returns true if the policy shares blocks: all but `native` and `observe` do.
    pub fn shares(self) -> bool {
        !matches!(self, Policy::Native | Policy::Observe)
    }

    /// Returns the numbers on disk: the policy's, and its threshold, 0 where it has none.
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

impl fmt::Display for Policy {
    /// Writes the form that [`Policy::from_str`] reads, without default thresholds and default counts.
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

/// Reason why a text is not a policy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BadPolicy {
    /// There is no policy of this name.
    Unknown,
    /// The policy takes no threshold.
    NoThreshold,
    /// The threshold is not a number from 1 to 255.
    Threshold,
    /// The text after the threshold names nothing that it could count.
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

fn parse_threshold(text: &str) -> Result<Threshold, BadPolicy> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| digits).ok_or(BadPolicy::Threshold)
}
