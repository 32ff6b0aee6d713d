//! How memory is divided: between clients, staging and the engine.

use engine::{Geometry, Limits};

use crate::arena::BLOCK;
use crate::capacity::Connections;

/// Blocks of staging for metadata on its way.
pub const STAGING_BLOCKS: usize = 1024;

/// What a server uses if nobody says anything, in bytes.
pub const DEFAULT: u64 = 512 << 20;

/// Who said how much memory there is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    /// Nobody.
    Default,
    /// The pool: it was set.
    Pool,
    /// `--memory`.
    CommandLine,
}

impl Source {
    /// As it is shown.
    pub fn name(self) -> &'static str {
        match self {
            Source::Default => "default",
            Source::Pool => "pool",
            Source::CommandLine => "command line",
        }
    }
}

/// The memory of a pool that was set to `pool` bytes (0: not set).
pub fn of_pool(pool: u64) -> (u64, Source) {
    if pool == 0 { (DEFAULT, Source::Default) } else { (pool, Source::Pool) }
}

/// A division of so much memory.
#[derive(Clone, Copy, Debug)]
pub struct Division {
    /// All of it, in bytes.
    pub memory: u64,
    /// How many clients there can be.
    pub connections: Connections,
    /// How the engine's part is divided.
    pub limits: Limits,
}

impl Division {
    /// Divides `memory` bytes for a pool and up to `wanted` clients; fails with what would do if that is too little.
    pub fn new(memory: u64, geometry: &Geometry, wanted: u32) -> Result<Division, u64> {
        let mut needed = 0;
        for connections in [Connections::within(memory, wanted), Connections::least(wanted)] {
            let others = (STAGING_BLOCKS * BLOCK) as u64 + connections.memory_bytes();
            match Limits::for_memory(memory.saturating_sub(others), geometry) {
                Ok(limits) => return Ok(Division { memory, connections, limits }),
                Err(least) => needed = (least + others).next_multiple_of(1 << 20),
            }
        }
        Err(needed)
    }
}

/// The machine's memory, in bytes; as much as there can be where the system does not tell.
pub fn installed() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kibibytes = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    kibibytes.map_or(u64::MAX, |kibibytes| kibibytes.saturating_mul(1024))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The largest pool for so much memory, in whole GiB: that is served, and whose index entries prove equality by themselves.
    fn largest_pools_gib(memory: u64) -> [u64; 2] {
        let fits = |gib: u64, is_good: &dyn Fn(&Limits, &Geometry) -> bool| {
            let Ok(geometry) = Geometry::for_capacity(gib << 30) else { return false };
            Division::new(memory, &geometry, 1024).is_ok_and(|division| is_good(&division.limits, &geometry))
        };
        let largest = |is_good: &dyn Fn(&Limits, &Geometry) -> bool| {
            (0..18).rev().fold(0, |gib, bit| if fits(gib + (1 << bit), is_good) { gib + (1 << bit) } else { gib })
        };
        [largest(&|_, _| true), largest(&Limits::index_proves)]
    }

    /// The table of docs/memory.md.
    #[test]
    fn the_largest_pools_are_those_of_the_documents() {
        let table = [64u64, 128, 512, 1024, 4096].map(|mebibytes| (mebibytes, largest_pools_gib(mebibytes << 20)));
        let of_documents = [[9281, 507], [35_496, 2043], [192_782, 8187], [262_139, 16_379], [262_139, 65_531]];
        assert_eq!(table.map(|(_, gib)| gib), of_documents, "{table:?}");
    }

    #[test]
    fn what_is_too_little_says_what_would_do() {
        for (capacity, memory) in [(1u64 << 30, 1u64 << 20), (1 << 40, 32 << 20), (100 << 40, 64 << 20)] {
            let geometry = Geometry::for_capacity(capacity).unwrap();
            let needed = Division::new(memory, &geometry, 1024).unwrap_err();
            assert!(Division::new(needed, &geometry, 1024).is_ok(), "{capacity}: {needed}");
        }
    }

    /// 64 MiB are enough for 4 TiB, and for more than opening it.
    #[test]
    fn little_memory_is_of_use() {
        let geometry = Geometry::for_capacity(4 << 40).unwrap();
        let limits = Division::new(64 << 20, &geometry, 1024).unwrap().limits;
        assert!(limits.write_buffers >= 2 * geometry.piece_blocks && limits.pages >= 2000, "{limits:?}");
    }
}
