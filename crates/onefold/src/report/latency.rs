//! Report of the latency of clients' requests in `status` (docs/reference/metrics.md).

use serde::{Deserialize, Serialize};

use crate::frontend::nbd::latency::{BUCKETS, FIRST_BOUND_NANOS, Latencies, Latency};
use crate::report::define::report;

report! {
    /// Requests that clients got answers to since the server was started.
    #[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
    pub struct LatencyReport from (latencies: &Latencies) where {
        let Latencies { read, write, flush, other } = latencies;
    } {
        /// Reads.
        read: KindReport = KindReport::new(read),
        /// Writes.
        write: KindReport = KindReport::new(write),
        /// Flushes.
        flush: KindReport = KindReport::new(flush),
        /// Trims, zeroes and block status.
        other: KindReport = KindReport::new(other),
    }
    named KindReport
}

report! {
    /// The requests of one kind.
    #[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
    pub struct KindReport from (latency: &Latency) {
        /// Number of requests.
        requests: u64 = latency.buckets.iter().sum(),
        /// Sum of their times in seconds.
        seconds: f64 = latency.nanos as f64 / 1e9,
        /// Number of requests that took up to 16 µs, up to 32 µs, ..., up to 16.8 s, and longer; each is in one of these.
        buckets: Vec<u64> = latency.buckets.to_vec(),
    }
}

/// Returns the upper bound of a bucket, in seconds; none for the last, which has no end.
pub fn bound_seconds(bucket: usize) -> Option<f64> {
    (bucket < BUCKETS - 1).then(|| (FIRST_BOUND_NANOS << bucket) as f64 / 1e9)
}

impl LatencyReport {
    /// Formats a line for each kind of request for people; empty if there were no requests.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for (name, kind) in self.named() {
            if let (Some(half), Some(most)) = (kind.percentile(50.0), kind.percentile(99.0)) {
                let (half, most) = (show_seconds(half), show_seconds(most));
                let count = kind.requests;
                text.push_str(&format!("  {name:<12}{count} requests: half within {half}, 99 % within {most}\n"));
            }
        }
        if text.is_empty() { text } else { format!("\n  requests since the server was started\n{text}") }
    }
}

impl KindReport {
    /// Returns the requests that were added since `before`, which was reported earlier by the same server.
    pub fn since(&self, before: &KindReport) -> KindReport {
        let earlier = before.buckets.iter().copied().chain(std::iter::repeat(0));
        KindReport {
            requests: self.requests.saturating_sub(before.requests),
            seconds: (self.seconds - before.seconds).max(0.0),
            buckets: self.buckets.iter().zip(earlier).map(|(now, then)| now.saturating_sub(then)).collect(),
        }
    }

    /// Returns the seconds within which `percent` percent of the requests were answered: estimated within a bucket, whose upper bound is twice the
    /// lower one; for the first bucket its bound. None without requests.
    pub fn percentile(&self, percent: f64) -> Option<f64> {
        let wanted = (self.requests as f64 * percent / 100.0).max(1.0);
        let (mut below, mut lower) = (0u64, 0.0);
        for (bucket, &count) in self.buckets.iter().enumerate() {
            let upper = bound_seconds(bucket).unwrap_or(lower);
            if count > 0 && (below + count) as f64 >= wanted {
                if bucket == 0 {
                    return Some(upper);
                }
                return Some(lower + (upper - lower) * (wanted - below as f64) / count as f64);
            }
            below += count;
            lower = upper;
        }
        None
    }
}

/// Formats a time in the unit that suits it, µs, ms or s, mostly with three digits.
pub fn show_seconds(seconds: f64) -> String {
    match seconds {
        seconds if seconds < 0.000_999_5 => format!("{:.0} µs", seconds * 1e6),
        seconds if seconds < 0.009_995 => format!("{:.2} ms", seconds * 1e3),
        seconds if seconds < 0.099_95 => format!("{:.1} ms", seconds * 1e3),
        seconds if seconds < 0.9995 => format!("{:.0} ms", seconds * 1e3),
        seconds => format!("{seconds:.1} s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nbd::Command;

    fn reads(times: &[u64]) -> KindReport {
        let mut latencies = Latencies::default();
        times.iter().for_each(|time| latencies.add(Command::Read, *time));
        LatencyReport::new(&latencies).read
    }

    #[test]
    fn percentiles_are_within_the_bucket_of_the_request_that_they_mean() {
        assert_eq!(reads(&[]).percentile(50.0), None);
        assert_eq!(reads(&[0, 0]).percentile(50.0), Some(16e-6));
        let one = reads(&[100_000]).percentile(99.0).unwrap();
        assert!((64e-6..=128e-6).contains(&one), "{one}");
        let mut times = vec![20_000; 99];
        times.push(5_000_000);
        let kind = reads(&times);
        assert!((16e-6..=32e-6).contains(&kind.percentile(99.0).unwrap()));
        assert!((4e-3..=8.2e-3).contains(&kind.percentile(100.0).unwrap()));
        assert_eq!(reads(&[u64::MAX / 2]).percentile(50.0), Some(16.777216), "beyond the last bound");
    }

    #[test]
    fn what_came_since_is_the_difference() {
        let (before, now) = (reads(&[20_000]), reads(&[20_000, 20_000, 700_000_000]));
        let since = now.since(&before);
        assert_eq!((since.requests, since.buckets.iter().sum::<u64>()), (2, 2));
        assert!((since.seconds - 0.70002).abs() < 1e-9);
        assert_eq!(now.since(&KindReport::default()), now, "before there was anything");
    }

    #[test]
    fn times_have_three_figures() {
        let shown = [0.0, 42e-6, 0.0012345, 0.012345, 0.12345, 1.2345, 12.345].map(show_seconds);
        assert_eq!(shown, ["0 µs", "42 µs", "1.23 ms", "12.3 ms", "123 ms", "1.2 s", "12.3 s"]);
    }
}
