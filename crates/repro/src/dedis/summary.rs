//! Summary statistics of runs for a report: means, standard deviations, latencies.

use engine::Nanos;
use hdrhistogram::Histogram;
use serde::Serialize;

/// Largest distinguishable latency: an hour.
const LONGEST: Nanos = 3_600_000_000_000;

/// Latencies, in bounded memory, to three digits.
#[derive(Clone, Debug)]
pub struct Latencies {
    histogram: Histogram<u64>,
    sum: u128,
}

/// Latencies as a report has them, in microseconds.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct LatencyReport {
    /// The mean.
    pub mean_us: f64,
    /// Half of the requests took no longer.
    pub p50_us: f64,
    /// 95 of 100.
    pub p95_us: f64,
    /// 99 of 100.
    pub p99_us: f64,
    /// 999 of 1000.
    pub p999_us: f64,
    /// The longest.
    pub max_us: f64,
}

impl Default for Latencies {
    fn default() -> Latencies {
        let histogram = Histogram::new_with_bounds(1, LONGEST, 3).expect("the bounds are in order");
        Latencies { histogram, sum: 0 }
    }
}

impl Latencies {
    /// Adds a latency.
    pub fn add(&mut self, latency: Nanos) {
        self.histogram.saturating_record(latency.max(1));
        self.sum += u128::from(latency);
    }

    /// Adds the latencies of another collection.
    pub fn merge(&mut self, other: &Latencies) {
        self.histogram.add(&other.histogram).expect("all have the same bounds");
        self.sum += other.sum;
    }

    /// Returns the number of latencies.
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// Summarizes the latencies: mean, percentiles and maximum, in microseconds; 0 without any.
    pub fn report(&self) -> LatencyReport {
        let micros = |nanos: u64| nanos as f64 / 1e3;
        let at = |share: f64| if self.count() == 0 { 0.0 } else { micros(self.histogram.value_at_quantile(share)) };
        LatencyReport {
            mean_us: self.sum as f64 / self.count().max(1) as f64 / 1e3,
            p50_us: at(0.5),
            p95_us: at(0.95),
            p99_us: at(0.99),
            p999_us: at(0.999),
            max_us: at(1.0),
        }
    }
}

/// A value over several runs.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Spread {
    /// The mean.
    pub mean: f64,
    /// The standard deviation of the sample; 0 of one run.
    pub sd: f64,
}

impl Spread {
    /// Computes mean and standard deviation of the values of the runs.
    pub fn of(values: impl Iterator<Item = f64>) -> Spread {
        let values: Vec<f64> = values.collect();
        let count = values.len().max(1) as f64;
        let mean = values.iter().sum::<f64>() / count;
        let squares = values.iter().map(|value| (value - mean) * (value - mean)).sum::<f64>();
        Spread { mean, sd: if values.len() > 1 { (squares / (count - 1.0)).sqrt() } else { 0.0 } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spreads_are_of_the_sample() {
        assert_eq!(Spread::of([2.0, 4.0, 6.0].into_iter()), Spread { mean: 4.0, sd: 2.0 });
        assert_eq!(Spread::of([3.0].into_iter()), Spread { mean: 3.0, sd: 0.0 });
    }

    #[test]
    fn latencies_of_several_workers_are_those_of_all() {
        let (mut all, mut other) = (Latencies::default(), Latencies::default());
        (1..=50).for_each(|latency| all.add(latency * 1000));
        (51..=100).for_each(|latency| other.add(latency * 1000));
        all.merge(&other);
        let report = all.report();
        assert_eq!((all.count(), report.mean_us), (100, 50.5));
        assert!((49.9..50.2).contains(&report.p50_us) && (98.9..99.2).contains(&report.p99_us), "{report:?}");
        assert_eq!(Latencies::default().report(), LatencyReport::default());
    }
}
