//! Simulation of HIODS' own system (master's dissertation, University of Minho, 2021) in virtual time: the system that its tables measured.
//!
//! Data flow:
//!
//! ```text
//! workers --4 KiB--> page cache --write-back, read-ahead--> store --new contents--> drive
//!                                                             |  ^
//!                                 three maps: memory or LevelDB  DirtyQueue <-- background, delayed by the feedback loop
//! ```
//!
//! - [`client`] owns the virtual time, the workers and their page cache, which is the one of the machine on which the paper's benchmark ran;
//! - [`server`] owns the prototype's processor, which alternates between requests and the background, and the drive;
//! - [`store`] owns the prototype's state: Index, Reverse Index, Metadata, FreeBlocks, DirtyQueue, and the three ways through them;
//! - [`maps`] has the time cost of lookups and changes of the three maps: a few accesses to memory, or [`lsm`], the tables of a LevelDB each, with one thread
//!   that merges them all;
//! - [`bits`] is a set with ordered iteration.
//!
//! Contents and addresses are those of DEDISbench ([`crate::dedis`]). Everything that has a size (the load, page cache, tables of LevelDB) is smaller than the
//! paper's by one factor ([`Scale`]); times are not.
//!
//! Invariants: every content that is written and processed is stored once, and its reference count equals the number of addresses that map to it
//! ([`store::Store::audit`]). Nothing here depends on the engine, except its feedback loop as published.
//!
//! Three parameters are calibrated, one each from tables 9, 10 and 13 ([`Parameters`]); tables 2, 3 and 8 give the drive and the memory. Each decision that the
//! text leaves open is marked [D], and was made before the first run.

pub mod bits;
pub mod client;
pub mod lsm;
pub mod maps;
pub mod server;
pub mod store;

use engine::Nanos;

use sim::disks::ssd::{SSD, Ssd};

/// Blocks that the paper writes: 64 GiB of 4 KiB.
pub const PAPER_BLOCKS: u64 = 1 << 24;
/// The drive of tables 2 and 3 (MB are MiB there: 35,000 operations a second are 136.72 MB/s).
pub const DRIVE: Ssd = Ssd { read_bytes_per_second: 1_808_000_000, write_bytes_per_second: 529_000_000, ..SSD };
/// A write or read that the page cache serves (table 2: 2 us for a read in order).
pub const CACHED: Nanos = 2_000;
/// Time of DEDISbench between two writes: at 504.87 MB/s one takes 7.7 us, of which 6 are latency (table 3).
pub const BETWEEN_WRITES: Nanos = 1_700;
/// SHA-1 of 4 KiB at 1 GB/s. [D]: the paper does not name its digest.
pub const DIGEST: Nanos = 4_000;
/// Excess of a Linux sleep over the requested time: the default slack of its timers (prctl, PR_SET_TIMERSLACK).
pub const TIMER_SLACK: Nanos = 50_000;
/// Interval after which the background wakes (section 3.4).
pub const WAKES: Nanos = 60_000_000_000;
/// The goal of table 16, in requests a second.
pub const GOAL: u64 = 35_000;

/// Calibrated times, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Parameters {
    /// Table 9: a block that is written back without deduplication, to where it belongs: sequential, uniform, hotspot.
    pub native: [Nanos; 3],
    /// Table 10: a block through the prototype, its digest among it, without the maps.
    pub request: Nanos,
    /// Table 13: a lookup in one sorted table of LevelDB, or an entry that is put into its newest one.
    pub search: Nanos,
}

/// Calibration by the cells of one worker with highperf, sequential for the last two, at a sixteenth of the paper's size, on 29 November 2026.
pub const CALIBRATED: Parameters = Parameters { native: [9_000, 10_170, 15_830], request: 12_520, search: 3_460 };

/// Divisor of everything that has a size, against the paper's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Scale(pub u64);

impl Scale {
    /// Returns the blocks of a load.
    pub fn blocks(self) -> u64 {
        PAPER_BLOCKS / self.0
    }

    /// Returns the pages of the page cache: the part of 16 GB that table 8 leaves.
    pub fn pages(self, keeping: Keeping) -> u64 {
        let used: u64 = match keeping {
            Keeping::Native => 4_980_000_000,
            Keeping::Memory => 9_210_000_000,
            Keeping::Device => 3_570_000_000,
        };
        (16_000_000_000 - used) / 4096 / self.0
    }
}

/// Place of the three maps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Keeping {
    /// There are none: no deduplication.
    Native,
    /// Maps in memory (section 4.2: a hash table and two arrays).
    Memory,
    /// Maps in LevelDB.
    Device,
}

/// Unit of the error of the feedback loop, which the text never names (figure `hiods-unit`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unit {
    /// Requests a second, as goals are stated.
    Requests,
    /// KiB a second.
    Kibibytes,
    /// MiB a second, as tables are printed.
    Mebibytes,
}

impl Unit {
    /// Converts requests of 4 KiB a second to this unit, rounded down.
    pub fn of(self, requests: u64) -> u64 {
        match self {
            Unit::Requests => requests,
            Unit::Kibibytes => requests * 4,
            Unit::Mebibytes => requests / 256,
        }
    }
}
