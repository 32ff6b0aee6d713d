//! The write budget of the flash: N bytes a day, saved up for a day at most.

use crate::api::Nanos;

const DAY: Nanos = 24 * 3600 * 1_000_000_000;

/// Bytes that may be written now. They grow with time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Budget {
    bytes_per_day: u64,
    left: u64,
    /// Time up to which `left` has grown.
    at: Nanos,
    /// Fraction of a byte that time has given, in bytes times nanoseconds of a day.
    rest: u64,
}

impl Budget {
    /// Makes a budget of a day's bytes, and `first` beyond them that do not come again.
    pub fn new(bytes_per_day: u64, first: u64) -> Budget {
        Budget { bytes_per_day, left: bytes_per_day.saturating_add(first), at: 0, rest: 0 }
    }

    /// Restores the bytes that were left when that was last known. No time counts since then: its length is unknown.
    pub fn restore(&mut self, now: Nanos, left: u64) {
        (self.left, self.at) = (self.left.min(left), now);
    }

    /// Adds the bytes of the time that has passed. A clock that goes backwards adds none.
    pub fn pass(&mut self, now: Nanos) {
        let passed = now.saturating_sub(self.at);
        self.at = self.at.max(now);
        if self.left >= self.bytes_per_day {
            self.rest = 0;
            return;
        }
        let grown = u128::from(self.bytes_per_day) * u128::from(passed) + u128::from(self.rest);
        self.rest = (grown % u128::from(DAY)) as u64;
        let grown = u64::try_from(grown / u128::from(DAY)).unwrap_or(u64::MAX);
        self.left = self.left.saturating_add(grown).min(self.bytes_per_day);
    }

    /// Returns the bytes that may still be written.
    pub fn left(&self) -> u64 {
        self.left
    }

    /// Takes `bytes` off the budget; returns false, without a change, if fewer are left.
    pub fn take(&mut self, bytes: u64) -> bool {
        match self.left.checked_sub(bytes) {
            Some(left) => {
                self.left = left;
                true
            }
            None => false,
        }
    }

    /// Returns the spent part of a day's bytes, in parts of `parts`: 0 for nothing, `parts` for all.
    pub fn spent(&self, parts: u8) -> u8 {
        let gone = self.bytes_per_day.saturating_sub(self.left);
        let share = u128::from(gone) * u128::from(parts) / u128::from(self.bytes_per_day.max(1));
        share.min(u128::from(parts)) as u8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_gives_a_days_bytes_in_whatever_steps_it_passes() {
        for step in [1, 7, 1000, 86_400] {
            let mut budget = Budget::new(1000, 0);
            assert!(budget.take(1000) && !budget.take(1));
            for at in 1..=86_400 / step {
                budget.pass(at * step * (DAY / 86_400));
            }
            let passed = 86_400 / step * step;
            assert_eq!(budget.left(), 1000 * passed / 86_400, "{step}");
        }
    }

    #[test]
    fn nothing_is_saved_beyond_a_day_but_what_came_first() {
        let mut budget = Budget::new(1000, 500);
        budget.pass(10 * DAY);
        assert_eq!((budget.left(), budget.spent(20)), (1500, 0));
        assert!(budget.take(750));
        assert_eq!(budget.spent(20), 5);
        budget.pass(DAY);
        assert_eq!(budget.left(), 750, "the clock went backwards");
        budget.pass(20 * DAY);
        assert_eq!(budget.left(), 1000);
        assert!(budget.take(1000));
        assert_eq!((budget.spent(20), budget.take(1)), (20, false));
        budget.pass(Nanos::MAX);
        assert_eq!(budget.left(), 1000);
    }

    #[test]
    fn what_was_left_is_left_after_a_restart_and_no_more_than_a_new_one_has() {
        let mut budget = Budget::new(1000, 500);
        budget.restore(3 * DAY, 200);
        assert_eq!((budget.left(), budget.spent(20)), (200, 16));
        budget.pass(3 * DAY + DAY / 2);
        assert_eq!(budget.left(), 700);
        let mut lowered = Budget::new(100, 50);
        lowered.restore(0, 700);
        assert_eq!(lowered.left(), 150);
    }

    #[test]
    fn no_budget_writes_nothing_but_what_came_first() {
        let mut budget = Budget::new(0, 10);
        assert!(budget.take(10) && !budget.take(1));
        budget.pass(Nanos::MAX);
        assert_eq!((budget.left(), budget.spent(20)), (0, 0));
    }
}
