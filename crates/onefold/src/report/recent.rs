//! Differences between two reports of one server: requests a second and their latency.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::report::latency::{KindReport, LatencyReport};
use crate::report::status::Report;

/// Time from one place of the history to the next.
pub const HISTORY_PERIOD: Duration = Duration::from_secs(10);
/// Number of places of the history: an hour.
pub const HISTORY_MOST: usize = 360;

/// Requests of one kind in a time.
#[derive(Clone, Copy, Default, PartialEq, Debug)]
pub struct Rate {
    /// Number of requests in a second.
    pub per_second: f64,
    /// Seconds within which half of them were answered; none without requests.
    pub half: Option<f64>,
    /// Seconds within which 99 of 100 were answered; none without requests.
    pub most: Option<f64>,
}

impl Rate {
    fn of(now: &KindReport, before: &KindReport, seconds: f64) -> Rate {
        let since = now.since(before);
        Rate {
            per_second: since.requests as f64 / seconds.max(0.001),
            half: since.percentile(50.0),
            most: since.percentile(99.0),
        }
    }
}

/// Rates of reads, writes, flushes and others, in this order.
pub type Rates = [Rate; 4];

/// Computes the rates between two reports that are `seconds` apart.
pub fn rates(now: &LatencyReport, before: &LatencyReport, seconds: f64) -> Rates {
    let (now, before) = (now.named(), before.named());
    std::array::from_fn(|kind| Rate::of(now[kind].1, before[kind].1, seconds))
}

/// A place of the history.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Time of the report.
    pub at: Instant,
    /// Bytes of memory of the index.
    pub index_bytes: u64,
    /// Bytes of memory of the read cache.
    pub read_bytes: u64,
    /// Bytes of all memory in use.
    pub memory_bytes: u64,
    /// Rates since the place before it.
    pub rates: Rates,
}

/// Last report, with the history before it. Bounded, however long it is kept.
#[derive(Default)]
pub struct Past {
    last: Option<(Instant, LatencyReport)>,
    sampled: Option<(Instant, LatencyReport)>,
    samples: VecDeque<Sample>,
}

impl Past {
    /// Takes a report; returns the rates since the one before it.
    pub fn add(&mut self, at: Instant, report: &Report) -> Rates {
        let since = |before: &Option<(Instant, LatencyReport)>| {
            let (then, before) = before.as_ref()?;
            Some(rates(&report.latency, before, at.saturating_duration_since(*then).as_secs_f64()))
        };
        let current = since(&self.last).unwrap_or_default();
        let due = self.sampled.as_ref().is_none_or(|(then, _)| at.saturating_duration_since(*then) >= HISTORY_PERIOD);
        if due {
            let rates = since(&self.sampled).unwrap_or_default();
            if self.samples.len() == HISTORY_MOST {
                self.samples.pop_front();
            }
            let (index_bytes, read_bytes) = (report.cache.index_bytes, report.cache.read_bytes);
            self.samples.push_back(Sample { at, index_bytes, read_bytes, memory_bytes: report.memory_bytes, rates });
            self.sampled = Some((at, report.latency.clone()));
        }
        self.last = Some((at, report.latency.clone()));
        current
    }

    /// Returns the history, the oldest first.
    pub fn samples(&self) -> impl ExactSizeIterator<Item = &Sample> {
        self.samples.iter()
    }
}
