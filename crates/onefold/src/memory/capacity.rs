//! Maximum number of clients at a time, by the memory and the limit on open files.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tracing::warn;

/// Open files besides those of clients: the store, the ring, listeners, control clients, the log.
const OTHER_FILES: u64 = 128;
/// Memory that a connection with a small share uses at most, apart from the buffers of its requests.
const CONNECTION_BYTES: u64 = 20 << 10;
/// Memory that a connection with a large share uses at most, apart from the buffers of its requests.
const LARGE_CONNECTION_BYTES: u64 = 192 << 10;
/// Minimum number of clients, for any memory.
const LEAST: u32 = 16;
/// Minimum number of clients with a large share of memory.
const LEAST_LARGE: u32 = 4;

/// Number of connections that the memory allows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Connections {
    /// Number at a time.
    pub most: u32,
    /// Number of these that may have a large share of memory.
    pub large: u32,
}

impl Connections {
    /// Computes the number for a memory: at most `wanted`, in a sixteenth of the memory; another sixty-fourth is for large shares.
    pub fn within(memory: u64, wanted: u32) -> Connections {
        let most = (memory / 16 / CONNECTION_BYTES).clamp(u64::from(LEAST), u64::from(u32::MAX)) as u32;
        let large = (memory / 64 / LARGE_CONNECTION_BYTES).clamp(u64::from(LEAST_LARGE), u64::from(u32::MAX)) as u32;
        Connections { most: most.min(wanted), large: large.min(wanted) }
    }

    /// Returns the fewest connections, for where there is hardly enough memory for the pool.
    pub fn least(wanted: u32) -> Connections {
        Connections { most: LEAST.min(wanted), large: LEAST_LARGE.min(wanted) }
    }

    /// Returns the bytes that all of them together can use, apart from the buffers of their requests.
    pub fn memory_bytes(&self) -> u64 {
        u64::from(self.most) * CONNECTION_BYTES + u64::from(self.large) * LARGE_CONNECTION_BYTES
    }
}

/// Raises the limit on open files for `wanted` clients; returns the number of clients that it allows.
pub fn allow_files(wanted: u32) -> u32 {
    let needed = u64::from(wanted) + OTHER_FILES;
    let limit = getrlimit(Resource::Nofile);
    let current = limit.current.unwrap_or(u64::MAX);
    if current >= needed {
        return wanted;
    }
    let raised = limit.maximum.map_or(needed, |maximum| maximum.min(needed));
    let allowed = match setrlimit(Resource::Nofile, Rlimit { current: Some(raised), maximum: limit.maximum }) {
        Ok(()) => raised,
        Err(_) => current,
    };
    let fit = u32::try_from(allowed.saturating_sub(OTHER_FILES)).unwrap_or(u32::MAX).clamp(1, wanted);
    if fit < wanted {
        warn!(
            "at most {fit} clients at a time instead of {wanted}: the limit on open files is {allowed} ('ulimit -n', \
             LimitNOFILE=), and {needed} are needed"
        );
    }
    fit
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_take_a_small_part_of_the_memory() {
        for mebibytes in [32u64, 64, 512, 4096, 1 << 20] {
            let memory = mebibytes << 20;
            let connections = Connections::within(memory, 1024);
            assert!(connections.memory_bytes() <= memory / 16 + memory / 64 + (2 << 20), "{mebibytes} MiB");
            assert!((LEAST..=1024).contains(&connections.most));
        }
        assert_eq!(Connections::within(512 << 20, 1024).most, 1024);
        assert!(Connections::within(64 << 20, 1024).most > 200);
        assert_eq!(Connections::within(1 << 30, 3), Connections { most: 3, large: 3 });
        assert!(Connections::least(1024).memory_bytes() < 2 << 20);
    }
}
