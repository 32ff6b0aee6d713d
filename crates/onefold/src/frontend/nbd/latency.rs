//! Latency histograms of clients' requests, by kind and time.
//!
//! A request's time is from its header's arrival until its reply is queued. The reactor reads its clock once in a turn. So a request that is answered within
//! the turn in which it came counts as one of no time.

use engine::Nanos;
use nbd::Command;

/// Upper bound of the first bucket; each of the following has twice that of the one before.
pub const FIRST_BOUND_NANOS: Nanos = 16_000;
/// Number of buckets: up to 16 µs, 32 µs, ..., 16.8 s, and more.
pub const BUCKETS: usize = 22;

/// The requests of one kind.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Latency {
    /// Sum of their times.
    pub nanos: Nanos,
    /// Number of requests by bucket: each took at most the bound of its bucket, and longer than that of the one before.
    pub buckets: [u64; BUCKETS],
}

impl Latency {
    fn add(&mut self, nanos: Nanos) {
        self.nanos += nanos;
        self.buckets[bucket(nanos)] += 1;
    }
}

/// Returns the number of the bucket that a time falls into.
fn bucket(nanos: Nanos) -> usize {
    let beyond = nanos.saturating_sub(1) / FIRST_BOUND_NANOS;
    ((u64::BITS - beyond.leading_zeros()) as usize).min(BUCKETS - 1)
}

/// The requests that were answered, since the server was started.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Latencies {
    /// Reads.
    pub read: Latency,
    /// Writes.
    pub write: Latency,
    /// Flushes.
    pub flush: Latency,
    /// Trims, zeroes and block status.
    pub other: Latency,
}

impl Latencies {
    /// Counts a request of this kind that took `nanos`.
    pub fn add(&mut self, command: Command, nanos: Nanos) {
        let kind = match command {
            Command::Read => &mut self.read,
            Command::Write => &mut self.write,
            Command::Flush => &mut self.flush,
            Command::Trim | Command::WriteZeroes | Command::BlockStatus => &mut self.other,
        };
        kind.add(nanos);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_within_the_bounds_of_its_bucket() {
        assert_eq!(bucket(0), 0);
        for number in 0..BUCKETS - 1 {
            let bound = FIRST_BOUND_NANOS << number;
            assert_eq!(bucket(bound), number);
            assert_eq!(bucket(bound + 1), number + 1);
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }
}
