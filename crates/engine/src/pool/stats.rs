//! Statistics of a pool that no other part keeps. Two of them are read back: the allowance of moves grows with the written blocks (`moves.rs`), and a
//! read finds out from the hits of read-ahead whether its blocks came so.

use crate::counters::{Counters, ReadCounts, WriteCounts};

/// Statistics that are not kept elsewhere.
pub(crate) struct PoolStats {
    /// Counters that are not kept elsewhere.
    pub(crate) counters: Counters,
    /// Counts of the writes of all volumes, by their outcome.
    pub(crate) writes: WriteCounts,
    /// Counts of the work that was done for reads.
    pub(crate) reads: ReadCounts,
}
