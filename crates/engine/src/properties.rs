//! Properties of a pool and of its volumes.

mod flash;

use alloc::string::String;
use core::fmt;
use core::num::NonZeroU8;
use core::str::FromStr;

pub use flash::{FlashPolicy, PaperModules};

/// Amount of data that defragmentation may move for readers that found it scattered.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum DefragSetting {
    /// Data that was there when the pool was opened, once; from then on at most 1.5 moved blocks for each that is written.
    #[default]
    Auto,
    /// Nothing.
    Off,
    /// A limit of N bytes a day.
    PerDay(u64),
}

impl DefragSetting {
    /// Encodes the setting for the superblock: MiB a day, rounded up; 0 for the default, `u32::MAX` for off.
    pub(crate) fn encode(self) -> u32 {
        match self {
            DefragSetting::Auto => 0,
            DefragSetting::Off => u32::MAX,
            DefragSetting::PerDay(bytes) => bytes.div_ceil(1 << 20).clamp(1, u64::from(u32::MAX) - 1) as u32,
        }
    }

    /// Decodes a number of [`DefragSetting::encode`]; each number is a setting.
    pub(crate) fn decode(number: u32) -> DefragSetting {
        match number {
            0 => DefragSetting::Auto,
            u32::MAX => DefragSetting::Off,
            mib => DefragSetting::PerDay(u64::from(mib) << 20),
        }
    }
}

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
    /// Shares nothing, but looks everything up and counts the blocks that the others would share.
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

/// Copy of a block that the index names, where the block has been written again although it was known.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum IndexCopy {
    /// The copy in the longer run of blocks of its request, in consecutive slots; of equal ones, the older.
    #[default]
    Sequential,
    /// The oldest copy.
    Oldest,
    /// The copy that was written last.
    Newest,
}

impl IndexCopy {
    /// All copies, by their numbers on disk and in recordings.
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

/// An error: a text does not name a copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BadIndexCopy;

impl fmt::Display for BadIndexCopy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("it is sequential, oldest or newest")
    }
}

impl core::error::Error for BadIndexCopy {}

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

/// Key by which the read cache finds blocks. Each has the same memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum CacheKey {
    /// Their slots.
    #[default]
    Sector,
    /// Their slots, and then their contents: the content of several slots is kept once.
    Content,
    /// Nothing: no block is kept.
    Off,
}

impl CacheKey {
    /// All keys, by their numbers on disk and in recordings.
    pub const ALL: [CacheKey; 3] = [CacheKey::Sector, CacheKey::Content, CacheKey::Off];
}

impl fmt::Display for CacheKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            CacheKey::Sector => "sector",
            CacheKey::Content => "content",
            CacheKey::Off => "off",
        })
    }
}

impl FromStr for CacheKey {
    type Err = BadCacheKey;

    /// Reads `content`, `sector` or `off`.
    fn from_str(text: &str) -> Result<CacheKey, BadCacheKey> {
        match text {
            "sector" => Ok(CacheKey::Sector),
            "content" => Ok(CacheKey::Content),
            "off" => Ok(CacheKey::Off),
            _ => Err(BadCacheKey),
        }
    }
}

/// An error: a text does not name a key of the read cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BadCacheKey;

impl fmt::Display for BadCacheKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("it is content, sector or off")
    }
}

impl core::error::Error for BadCacheKey {}

/// The greatest budget in bytes: the superblock keeps it plus one, and no pool has more.
pub(crate) const MOST_BUDGET: u64 = u64::MAX - 1;

/// Time at which duplicates of a volume are found.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Timing {
    /// Before a write is answered.
    Inline,
    /// In the background.
    Offline,
    /// A controller chooses.
    Hybrid,
}

impl Timing {
    /// Encodes the timing for the volume table; 0 is for a volume that has none of its own.
    pub(crate) fn encode(timing: Option<Timing>) -> u8 {
        timing.map_or(0, |timing| 1 + timing as u8)
    }

    /// Decodes a number of [`Timing::encode`]; `Err` for a number that was never written.
    pub(crate) fn decode(code: u8) -> Result<Option<Timing>, ()> {
        match code {
            0 => Ok(None),
            1 => Ok(Some(Timing::Inline)),
            2 => Ok(Some(Timing::Offline)),
            3 => Ok(Some(Timing::Hybrid)),
            _ => Err(()),
        }
    }
}

/// Controller that chooses the mode of a volume whose timing is hybrid.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Controller {
    /// Ours: back to inline when the forecast says that inline meets the goal.
    #[default]
    Forecast,
    /// HIODS' (sections 3.5 and 4.3), with the paper's constants.
    Paper,
}

impl Controller {
    /// All controllers, by their numbers on disk.
    pub(crate) const ALL: [Controller; 2] = [Controller::Forecast, Controller::Paper];
}

impl fmt::Display for Controller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Controller::Forecast => "forecast",
            Controller::Paper => "paper",
        })
    }
}

impl FromStr for Controller {
    type Err = BadController;

    /// Reads `forecast` or `paper`.
    fn from_str(text: &str) -> Result<Controller, BadController> {
        match text {
            "forecast" => Ok(Controller::Forecast),
            "paper" => Ok(Controller::Paper),
            _ => Err(BadController),
        }
    }
}

/// An error: there is no such controller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BadController;

impl core::error::Error for BadController {}

impl fmt::Display for BadController {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("it is forecast or paper")
    }
}

/// Feedback loop that throttles the pass that finds duplicates, while clients are busy.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum PassThrottle {
    /// Ours, as for all background work: a share of the device (`pid/throttle.rs`).
    #[default]
    Share,
    /// HIODS': a delay before each block, with the gains of its listing 4.1.
    Listing,
    /// HIODS': such a delay, with the smaller integral of its experiment.
    Experiment,
}

impl PassThrottle {
    /// All feedback loops, by their numbers on disk and in recordings.
    pub(crate) const ALL: [PassThrottle; 3] = [PassThrottle::Share, PassThrottle::Listing, PassThrottle::Experiment];
}

impl fmt::Display for PassThrottle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PassThrottle::Share => "share",
            PassThrottle::Listing => "paper",
            PassThrottle::Experiment => "paper:0.001",
        })
    }
}

impl FromStr for PassThrottle {
    type Err = BadPassThrottle;

    /// Reads `share`, `paper`, or `paper:` and one of the gains of the integral that the paper has: 0.15 (as `paper` alone) or 0.001.
    fn from_str(text: &str) -> Result<PassThrottle, BadPassThrottle> {
        match text {
            "share" => Ok(PassThrottle::Share),
            "paper" | "paper:0.15" => Ok(PassThrottle::Listing),
            "paper:0.001" => Ok(PassThrottle::Experiment),
            _ => Err(BadPassThrottle),
        }
    }
}

/// An error: there is no such feedback loop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BadPassThrottle;

impl core::error::Error for BadPassThrottle {}

impl fmt::Display for BadPassThrottle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("it is share, paper or paper:0.001")
    }
}

/// Reads of a pass that finds duplicates, before blocks come to share a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum DedupVerify {
    /// Nothing: digests are trusted.
    Off,
    /// Both slots, and their bytes are compared: contents that differ and have the same digest stay apart, too.
    Both,
    /// The canonical slot, once: its content must have its digest. Otherwise unnoticed damage would replace a good copy.
    #[default]
    Kept,
}

impl DedupVerify {
    /// All levels, by their numbers in recordings.
    pub const ALL: [DedupVerify; 3] = [DedupVerify::Off, DedupVerify::Both, DedupVerify::Kept];
}

impl fmt::Display for DedupVerify {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DedupVerify::Kept => "kept",
            DedupVerify::Both => "both",
            DedupVerify::Off => "off",
        })
    }
}

impl FromStr for DedupVerify {
    type Err = BadDedupVerify;

    fn from_str(text: &str) -> Result<DedupVerify, BadDedupVerify> {
        match text {
            "kept" => Ok(DedupVerify::Kept),
            "both" => Ok(DedupVerify::Both),
            "off" => Ok(DedupVerify::Off),
            _ => Err(BadDedupVerify),
        }
    }
}

/// An error: there is no such level of verification.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BadDedupVerify;

impl core::error::Error for BadDedupVerify {}

impl fmt::Display for BadDedupVerify {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("it is kept, both or off")
    }
}

/// Rule by which a pass that finds duplicates leaves them where sharing would split a run: blocks that are consecutive on disk and in the volume.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum KeepRuns {
    /// Runs are kept, unless the policy is `full`.
    #[default]
    Auto,
    /// Runs are kept.
    On,
    /// Runs are not kept: the pass takes every duplicate.
    Off,
}

impl KeepRuns {
    /// All rules, by their numbers on disk.
    pub(crate) const ALL: [KeepRuns; 3] = [KeepRuns::Auto, KeepRuns::On, KeepRuns::Off];

    /// Returns true if a pass keeps runs under this policy: `Auto` keeps them under all policies but `full`.
    pub fn keeps(self, policy: Policy) -> bool {
        match self {
            KeepRuns::Auto => policy != Policy::Full,
            KeepRuns::On => true,
            KeepRuns::Off => false,
        }
    }
}

impl fmt::Display for KeepRuns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            KeepRuns::Auto => "auto",
            KeepRuns::On => "on",
            KeepRuns::Off => "off",
        })
    }
}

impl FromStr for KeepRuns {
    type Err = BadKeepRuns;

    /// Reads `on`, `off` or `auto`.
    fn from_str(text: &str) -> Result<KeepRuns, BadKeepRuns> {
        match text {
            "auto" => Ok(KeepRuns::Auto),
            "on" => Ok(KeepRuns::On),
            "off" => Ok(KeepRuns::Off),
            _ => Err(BadKeepRuns),
        }
    }
}

/// An error: a text does not say if runs are kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BadKeepRuns;

impl core::error::Error for BadKeepRuns {}

impl fmt::Display for BadKeepRuns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("it is on, off or auto")
    }
}

/// Performance that the foreground shall have.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Goal {
    /// Nothing is stated: the p99 of the recent past is protected.
    #[default]
    None,
    /// Requests a second.
    Operations(u64),
    /// Bytes a second.
    Bytes(u64),
    /// The latency in nanoseconds that 99 of 100 requests do not exceed.
    P99(u64),
}

impl Goal {
    /// Returns the numbers on disk: the kind of the goal, and its amount (operations, bytes or nanoseconds).
    pub(crate) fn encode(self) -> (u8, u64) {
        match self {
            Goal::None => (0, 0),
            Goal::Operations(count) => (1, count),
            Goal::Bytes(bytes) => (2, bytes),
            Goal::P99(nanos) => (3, nanos),
        }
    }

    /// Reads the numbers on disk; `None` if there is no such goal.
    pub(crate) fn decode(kind: u8, number: u64) -> Option<Goal> {
        match (kind, number) {
            (0, 0) => Some(Goal::None),
            (_, 0) => None,
            (1, count) => Some(Goal::Operations(count)),
            (2, bytes) => Some(Goal::Bytes(bytes)),
            (3, nanos) => Some(Goal::P99(nanos)),
            _ => None,
        }
    }
}

impl fmt::Display for Timing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Timing::Inline => "inline",
            Timing::Offline => "offline",
            Timing::Hybrid => "hybrid",
        })
    }
}

impl FromStr for Timing {
    type Err = BadTiming;

    fn from_str(text: &str) -> Result<Timing, BadTiming> {
        let all = [("inline", Timing::Inline), ("offline", Timing::Offline), ("hybrid", Timing::Hybrid)];
        all.into_iter().find(|(name, _)| *name == text).map(|(_, timing)| timing).ok_or(BadTiming)
    }
}

/// An error: there is no such timing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BadTiming;

impl core::error::Error for BadTiming {}

impl fmt::Display for BadTiming {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("it is inline, offline or hybrid")
    }
}

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const MIB: u64 = 1 << 20;
        match *self {
            Goal::None => f.write_str("none"),
            Goal::Operations(count) => write!(f, "{count}iops"),
            Goal::Bytes(bytes) if bytes.is_multiple_of(MIB) => write!(f, "{}MiB/s", bytes / MIB),
            Goal::Bytes(bytes) => write!(f, "{bytes}B/s"),
            Goal::P99(nanos) if nanos.is_multiple_of(1_000_000) => write!(f, "p99={}ms", nanos / 1_000_000),
            Goal::P99(nanos) if nanos.is_multiple_of(1_000) => write!(f, "p99={}us", nanos / 1_000),
            Goal::P99(nanos) => write!(f, "p99={nanos}ns"),
        }
    }
}

impl FromStr for Goal {
    type Err = BadGoal;

    /// Reads `none`, `20000iops`, `200MiB/s` (also KiB, GiB, B), `p99=2ms` (also s, us, ns). A goal is not 0.
    fn from_str(text: &str) -> Result<Goal, BadGoal> {
        if text == "none" {
            return Ok(Goal::None);
        }
        let (latency, text) = text.strip_prefix("p99=").map_or((false, text), |rest| (true, rest));
        let end = text.find(|c: char| !c.is_ascii_digit()).ok_or(BadGoal)?;
        let (digits, unit) = text.split_at(end);
        let number: u64 = digits.parse().map_err(|_| BadGoal)?;
        let times = |factor: u64| number.checked_mul(factor).filter(|&value| value > 0).ok_or(BadGoal);
        match (latency, unit) {
            (true, "s") => times(1_000_000_000).map(Goal::P99),
            (true, "ms") => times(1_000_000).map(Goal::P99),
            (true, "us") => times(1_000).map(Goal::P99),
            (true, "ns") => times(1).map(Goal::P99),
            (false, "iops") => times(1).map(Goal::Operations),
            (false, "GiB/s") => times(1 << 30).map(Goal::Bytes),
            (false, "MiB/s") => times(1 << 20).map(Goal::Bytes),
            (false, "KiB/s") => times(1 << 10).map(Goal::Bytes),
            (false, "B/s") => times(1).map(Goal::Bytes),
            _ => Err(BadGoal),
        }
    }
}

/// An error: there is no such goal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BadGoal;

impl core::error::Error for BadGoal {}

impl fmt::Display for BadGoal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("it is none, or a number with its unit, such as 20000iops, 200MiB/s or p99=2ms")
    }
}
