//! Tests of both loops on series of measurements: the windup of the published one, and its absence in ours.

use alloc::vec::Vec;

use super::WHOLE;
use super::paper::{EXPERIMENT, LISTING, PaperThrottle};
use super::throttle::{Bounds, Throttle, rest};

const SECOND: u64 = 1_000_000_000;

#[test]
fn the_preset_computes_what_the_listing_says() {
    // 5 * 5000 + 0.15 * 5000 + 0.25 * 5000, and a second later 5 * 1000 + 0.15 * 6000 - 0.25 * 4000.
    let first = PaperThrottle::new(LISTING).next(20_000, 15_000, SECOND);
    assert_eq!(first.delay, 27_000);
    assert_eq!(first.next(20_000, 19_000, SECOND).delay, 4_900);
    assert_eq!(PaperThrottle::new(EXPERIMENT).next(20_000, 15_000, SECOND).delay, 26_255);
    // Half a second: the integral is half, the change is twice as fast.
    assert_eq!(PaperThrottle::new(LISTING).next(20_000, 15_000, SECOND / 2).delay, 27_875);
    assert_eq!(PaperThrottle::new(LISTING).next(20_000, 30_000, SECOND).delay, 0, "no delay below 0");
}

/// Shows its first windup: a goal that was out of reach for a while leaves an integral behind, which continues to delay when the goal is met.
#[test]
fn the_preset_winds_up_while_the_goal_is_missed() {
    let mut preset = PaperThrottle::new(LISTING);
    for _ in 0..600 {
        preset = preset.next(20_000, 14_000, SECOND);
    }
    assert!(preset.delay > 500_000, "{}", preset.delay);
    for _ in 0..600 {
        preset = preset.next(20_000, 20_000, SECOND);
    }
    assert_eq!(preset.delay, 540_000, "0.15 * 6000 * 600: for ever");
}

/// Shows its second windup: a goal that was met with ease for a while takes as long to be defended.
#[test]
fn the_preset_winds_down_while_there_is_headroom_and_then_falls_short() {
    let mut preset = PaperThrottle::new(LISTING);
    for _ in 0..600 {
        preset = preset.next(4_000, 9_000, SECOND);
    }
    let mut unprotected = 0;
    while preset.delay == 0 {
        preset = preset.next(20_000, 15_000, SECOND);
        unprotected += 1;
        assert!(unprotected < 2000);
    }
    assert!(unprotected > 300, "{unprotected} seconds below the goal without any delay");
}

#[test]
fn ours_gives_way_in_a_second_however_long_there_was_headroom() {
    let mut throttle = Throttle::default();
    for _ in 0..10_000 {
        throttle = throttle.next(-WHOLE, SECOND);
    }
    assert_eq!(throttle.share, WHOLE);
    let mut shares = Vec::new();
    for _ in 0..4 {
        throttle = throttle.next(250_000, SECOND);
        shares.push(throttle.share);
    }
    assert!(shares[0] <= 600_000 && shares[3] <= 350_000, "{shares:?}");
    for _ in 0..60 {
        throttle = throttle.next(250_000, SECOND);
    }
    assert!(throttle.is_at_least() && throttle.share == 20_000);
}

#[test]
fn ours_comes_back_as_soon_as_there_is_headroom_however_long_there_was_none() {
    let mut throttle = Throttle::default();
    for _ in 0..10_000 {
        throttle = throttle.next(WHOLE, SECOND);
    }
    assert!(throttle.is_at_least());
    throttle = throttle.next(-300_000, SECOND);
    assert!(throttle.share > 20_000, "at once: {}", throttle.share);
}

#[test]
fn ours_grows_by_a_twentieth_a_second_at_most() {
    let (mut throttle, mut before) = (Throttle::default(), 20_000);
    for at in 0..40 {
        // The mode changes, the load ends: nothing of that is a reason to burst.
        throttle = throttle.next(if at < 20 { -200_000 } else { -WHOLE }, SECOND);
        assert!(throttle.share - before <= 50_000, "second {at}: {before} to {}", throttle.share);
        before = throttle.share;
    }
    assert_eq!(throttle.share, WHOLE);
    assert!(Throttle::default().next(-WHOLE, SECOND / 10).share <= 25_000, "a tenth of that in a tenth of a second");
}

/// Simulates a device that gives the foreground the rest that the background leaves: 1 less 1.2 times the share, of 1.1 times the goal.
#[test]
fn ours_settles_where_the_goal_is_just_met() {
    let mut throttle = Throttle::default();
    let mut last = Vec::new();
    for at in 0..300 {
        let foreground = 1_100_000 - 1_320_000 * throttle.share / WHOLE;
        throttle = throttle.next((WHOLE - foreground).min(WHOLE), SECOND);
        if at >= 100 {
            last.push(throttle.share);
        }
    }
    let (low, high) = (last.iter().min().copied().unwrap_or(0), last.iter().max().copied().unwrap_or(0));
    // 0.1 / 1.32
    assert!((70_000..82_000).contains(&low) && high - low < 8_000, "{low} to {high}");
}

#[test]
fn nothing_that_comes_in_goes_beyond_the_bounds() {
    let bounds = Bounds { least: 100_000, most: 400_000 };
    let mut throttle = Throttle::new(bounds);
    for at in 0..1000_i64 {
        let miss = [i64::MIN + 1, i64::MAX, 0, -5, WHOLE][at as usize % 5];
        throttle = throttle.next(miss, [0, 1, SECOND, u64::MAX][at as usize % 4]);
        assert!((100_000..=400_000).contains(&throttle.share));
    }
    assert_eq!(Throttle::new(Bounds { least: 5 * WHOLE, most: -3 }).share, 0);
    assert_eq!(rest(250_000, 1000), 3000, "a quarter is a rest of three times as long");
    assert_eq!(rest(0, 1), u64::MAX);
    assert_eq!(rest(WHOLE, u64::MAX), 0);
}
