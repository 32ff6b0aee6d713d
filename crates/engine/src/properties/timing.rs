//! The times at which duplicates of a volume are found, and the performance that its clients get meanwhile.

use core::fmt;
use core::str::FromStr;

use super::choices::choices;

choices! {
    /// Time at which duplicates of a volume are found.
    Timing(Err("when duplicates are found is of an unknown kind")), BadTiming("it is inline, offline or hybrid") {
        /// Before a write is answered.
        Inline = "inline",
        /// In the background.
        Offline = "offline",
        /// A controller chooses.
        Hybrid = "hybrid",
    }
}

choices! {
    /// Controller that chooses the mode of a volume whose timing is hybrid.
    #[derive(Default)]
    Controller(Err("the controller is of an unknown kind")), BadController("it is forecast or paper") {
        /// Returns to inline when the forecast says that inline meets the goal.
        #[default]
        Forecast = "forecast",
        /// HIODS' controller (sections 3.5 and 4.3), with the constants of the paper.
        Paper = "paper",
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
