//! Distribution of values: exact number, mean and deviation, and percentiles to three digits.

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
    /// Adds a value.
    pub fn add(&mut self, value: u64) {
        self.count += 1;
        self.sum = self.sum.saturating_add(u128::from(value));
        self.squares = self.squares.saturating_add(u128::from(value) * u128::from(value));
        self.most = self.most.max(value);
        self.histogram.saturating_record(value);
    }

    /// Returns the number of values.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns the greatest value; 0 of none.
    pub fn most(&self) -> u64 {
        self.most
    }

    /// Returns the mean; 0 of none.
    pub fn mean(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.sum as f64 / self.count as f64 }
    }

    /// Returns the population variance of the values, not a sample variance.
    pub fn variance(&self) -> f64 {
        let mean = self.mean();
        if self.count == 0 { 0.0 } else { (self.squares as f64 / self.count as f64 - mean * mean).max(0.0) }
    }

    /// Returns the coefficient of variation: deviation by mean; 0 if there is no mean.
    pub fn variation(&self) -> f64 {
        let mean = self.mean();
        if mean == 0.0 { 0.0 } else { libm::sqrt(self.variance()) / mean }
    }

    /// Returns the value below which this share of them is, to three digits and never above the greatest; 0 of none.
    pub fn percentile(&self, percent: f64) -> u64 {
        if self.count == 0 { 0 } else { self.histogram.value_at_percentile(percent).min(self.most) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_not_above_the_greatest() {
        let mut spread = Spread::default();
        [1, 20_871].into_iter().for_each(|value| spread.add(value));
        assert!(spread.histogram.value_at_percentile(90.0) > 20_871, "the histogram rounds up");
        assert_eq!((spread.percentile(90.0), spread.percentile(10.0), spread.most()), (20_871, 1, 20_871));
    }
}
