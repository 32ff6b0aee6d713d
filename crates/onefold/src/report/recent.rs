//! Differences between two reports of one server: requests a second and their latency.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::report::latency::{KindReport, LatencyReport};
use crate::report::status::Report;

/// Time from one place of the history to the next.
pub const HISTORY_PERIOD: Duration = Duration::from_secs(10);
/// Least time that rates are counted over.
const RATES_LEAST: Duration = Duration::from_secs(1);
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

/// Computes the rates since an earlier report; none without one.
fn rates_since(before: Option<&(Instant, LatencyReport)>, at: Instant, report: &Report) -> Rates {
    let since = |(then, before): &(Instant, LatencyReport)| {
        rates(&report.latency, before, at.saturating_duration_since(*then).as_secs_f64())
    };
    before.map(since).unwrap_or_default()
}

/// Last report, with the history before it. Bounded, however long it is kept.
#[derive(Default)]
pub struct Past {
    last: Option<(Instant, LatencyReport)>,
    sampled: Option<(Instant, LatencyReport)>,
    samples: VecDeque<Sample>,
}

impl Past {
    /// Takes a report; returns the rates since the one before it, or since the last place of the history if that is newer. Those of less than
    /// [`RATES_LEAST`] ago do not count, unless there is no other.
    pub fn add(&mut self, at: Instant, report: &Report) -> Rates {
        let before = [&self.last, &self.sampled].into_iter().flatten();
        let before = before.filter(|(then, _)| at.saturating_duration_since(*then) >= RATES_LEAST);
        let current = rates_since(before.max_by_key(|(then, _)| *then).or(self.last.as_ref()), at, report);
        self.sample(at, report);
        self.last = Some((at, report.latency.clone()));
        current
    }

    /// Takes a report for the history alone.
    pub fn sample(&mut self, at: Instant, report: &Report) {
        let due = self.sampled.as_ref().is_none_or(|(then, _)| at.saturating_duration_since(*then) >= HISTORY_PERIOD);
        if due {
            let rates = rates_since(self.sampled.as_ref(), at, report);
            if self.samples.len() == HISTORY_MOST {
                self.samples.pop_front();
            }
            let (index_bytes, read_bytes) = (report.cache.index_bytes, report.cache.read_bytes);
            self.samples.push_back(Sample { at, index_bytes, read_bytes, memory_bytes: report.memory_bytes, rates });
            self.sampled = Some((at, report.latency.clone()));
        }
    }

    /// Returns the history, the oldest first.
    pub fn samples(&self) -> impl ExactSizeIterator<Item = &Sample> {
        self.samples.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::text::tests::report;

    /// Guards against rates over some milliseconds: the history asks without a reader, and a reader may come right behind it.
    #[test]
    fn rates_are_of_a_second_at_least_and_since_the_history_otherwise() {
        let (began, mut past, mut report) = (Instant::now(), Past::default(), report(0));
        let at = |ms: u64| began + Duration::from_millis(ms);
        past.add(at(0), &report);
        report.latency.read.requests = 100;
        past.sample(at(10_000), &report);
        assert_eq!((past.samples().len(), past.samples().last().unwrap().rates[0].per_second), (2, 10.0));
        report.latency.read.requests = 103;
        assert_eq!(past.add(at(10_300), &report)[0].per_second, 10.0, "since the first report");
        report.latency.read.requests = 110;
        assert_eq!(past.add(at(11_250), &report)[0].per_second, 8.0, "since the history");
        report.latency.read.requests = 111;
        assert_eq!(past.add(at(13_250), &report)[0].per_second, 0.5, "since the last report");
    }
}
