//! How values lie: their number, mean and deviation, exactly; their percentiles, to three digits.

use hdrhistogram::Histogram;

/// Values as they come; its memory does not grow with their number.
#[derive(Clone, Debug)]
pub struct Spread {
    count: u64,
    sum: u128,
    squares: u128,
    most: u64,
    histogram: Histogram<u64>,
}

impl Default for Spread {
    fn default() -> Spread {
        // Up to 2^60 (36 years in ns), three digits: constants that are valid.
        let histogram = Histogram::new_with_bounds(1, 1 << 60, 3).expect("these bounds are valid");
        Spread { count: 0, sum: 0, squares: 0, most: 0, histogram }
    }
}

impl Spread {
    /// One more.
    pub fn add(&mut self, value: u64) {
        self.count += 1;
        self.sum = self.sum.saturating_add(u128::from(value));
        self.squares = self.squares.saturating_add(u128::from(value) * u128::from(value));
        self.most = self.most.max(value);
        self.histogram.saturating_record(value);
    }

    /// How many.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The greatest; 0 of none.
    pub fn most(&self) -> u64 {
        self.most
    }

    /// The mean; 0 of none.
    pub fn mean(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.sum as f64 / self.count as f64 }
    }

    /// The variance, of these values and not of those that they are a sample of.
    pub fn variance(&self) -> f64 {
        let mean = self.mean();
        if self.count == 0 { 0.0 } else { (self.squares as f64 / self.count as f64 - mean * mean).max(0.0) }
    }

    /// The coefficient of variation: deviation by mean; 0 if there is no mean.
    pub fn variation(&self) -> f64 {
        let mean = self.mean();
        if mean == 0.0 { 0.0 } else { libm::sqrt(self.variance()) / mean }
    }

    /// The value below which this share of them is; 0 of none.
    pub fn percentile(&self, percent: f64) -> u64 {
        if self.count == 0 { 0 } else { self.histogram.value_at_percentile(percent) }
    }
}
