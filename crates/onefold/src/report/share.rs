//! Shares of a total. Every ratio of two figures that do not move in step goes through here, so that none is negative, above 100 % or not a number.

/// Returns a part of a whole, from 0 to 1; 0 of nothing.
pub fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part.min(whole) as f64 / whole as f64 }
}

/// Returns a part of a whole in percent, from 0 to 100; 0 of nothing.
pub fn percent(part: u64, whole: u64) -> f64 {
    // Rounds once: 1 of 4 is 25.
    if whole == 0 { 0.0 } else { part.min(whole) as f64 / whole as f64 * 100.0 }
}

/// Returns millionths in percent.
pub fn ppm_percent(ppm: u32) -> f64 {
    f64::from(ppm) / 10_000.0
}

/// Returns a part of a whole in whole percent, rounded down, from 0 to 100; 0 of nothing.
pub fn whole_percent(part: u64, whole: u64) -> u64 {
    (u128::from(part.min(whole)) * 100).checked_div(u128::from(whole)).unwrap_or(0) as u64
}

/// Returns the part of `mapped` blocks that is saved if they are stored in `stored` slots, in percent, from 0 to 100. More slots than blocks save
/// nothing.
pub fn saved_percent(mapped: u64, stored: u64) -> f64 {
    percent(mapped.saturating_sub(stored), mapped)
}

/// Shows a percentage with one decimal digit. It says 100.0 only of 100: slightly less is 99.9.
pub fn shown_percent(percent: f64) -> String {
    format!("{:.1} %", if percent < 100.0 { percent.min(99.9) } else { percent })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn saving_is_the_share_that_is_not_stored() {
        assert_eq!(saved_percent(0, 0), 0.0);
        assert_eq!(saved_percent(200, 50), 75.0);
        assert_eq!(saved_percent(10, 10), 0.0);
    }

    /// Guards against a status that said -9300 % were saved: a volume was deleted, and its blocks were still to be freed.
    #[test]
    fn nothing_is_saved_where_more_is_stored_than_mapped() {
        assert_eq!(saved_percent(1, 94), 0.0);
        assert_eq!(saved_percent(0, u64::MAX), 0.0);
    }

    #[test]
    fn all_is_shown_only_of_all() {
        let shown = [0.0, 0.04, 50.0, 99.85, 99.94, 99.99, 99.999_999, 100.0].map(shown_percent);
        assert_eq!(shown, ["0.0 %", "0.0 %", "50.0 %", "99.8 %", "99.9 %", "99.9 %", "99.9 %", "100.0 %"]);
    }

    proptest::proptest! {
        #[test]
        fn a_share_is_between_nothing_and_all(part: u64, whole: u64) {
            proptest::prop_assert!((0.0..=1.0).contains(&share(part, whole)));
            proptest::prop_assert!((0.0..=100.0).contains(&percent(part, whole)));
            proptest::prop_assert!(whole_percent(part, whole) <= 100);
            proptest::prop_assert!((0.0..=100.0).contains(&saved_percent(whole, part)));
        }
    }
}
