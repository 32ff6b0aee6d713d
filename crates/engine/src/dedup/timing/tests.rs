//! Tests of both controllers on series of measurements, and of the names on the command line.

use alloc::vec::Vec;

use super::forecast::Forecast;
use super::paper::{PaperTiming, is_stressed};
use super::*;

const SECOND: Nanos = 1_000_000_000;
const GOAL: Goal = Goal::Operations(20_000);

/// Makes a second in which clients were served `requests` requests, and `busy_percent` percent of it were busy; each request came right after another.
fn second(requests: u64, busy_percent: u64) -> Measurement {
    Measurement {
        time: SECOND,
        requests,
        bytes: requests * 4096,
        busy: SECOND / 100 * busy_percent,
        p99: 1_000_000,
        entered: requests,
        stressed: requests * 97 / 100,
        since_last: 1_000_000,
    }
}

/// Returns the mode after each of some measurements.
fn paper(mut controller: PaperTiming, series: &[Measurement]) -> Vec<Mode> {
    let step = |measured: &Measurement| {
        controller = controller.next(GOAL, measured);
        controller.mode
    };
    series.iter().map(step).collect()
}

fn offline_after(modes: &[Mode]) -> Option<usize> {
    modes.iter().position(|&mode| mode == Mode::Offline)
}

#[test]
fn the_preset_changes_after_three_measurements_in_a_row() {
    let (slow, good) = (second(15_000, 100), second(20_000, 90));
    let modes = paper(PaperTiming::new(Mode::Inline), &[slow, slow, good, slow, slow, slow, slow]);
    assert_eq!(offline_after(&modes), Some(5));
    let calm = Measurement { stressed: 100, ..second(1000, 10) };
    let modes = paper(PaperTiming::new(Mode::Offline), &[calm, calm, slow, calm, calm, calm]);
    assert_eq!(modes[..5], [Mode::Offline; 5]);
    assert_eq!(modes[5], Mode::Inline);
}

/// Checks that any goal that is missed counts, though the paper states goals in requests a second, and that without one nothing is missed.
#[test]
fn the_preset_goes_by_any_goal_and_without_one_stays_inline() {
    let busy = Measurement { bytes: 15_000 * 4096, p99: 3_000_000, ..second(15_000, 100) };
    let after = |goal| (0..3).fold(PaperTiming::new(Mode::Inline), |controller, _| controller.next(goal, &busy)).mode;
    for missed in [Goal::Operations(15_001), Goal::Bytes(15_000 * 4096 + 1), Goal::P99(2_999_999)] {
        assert_eq!(after(missed), Mode::Offline, "{missed}");
    }
    for met in [Goal::Operations(15_000), Goal::Bytes(15_000 * 4096), Goal::P99(3_000_000), Goal::None] {
        assert_eq!(after(met), Mode::Inline, "{met}");
    }
}

#[test]
fn stress_is_ninety_percent_and_lately() {
    let measured = |stressed, since_last| Measurement { entered: 1000, stressed, since_last, ..second(1000, 50) };
    assert!(is_stressed(&measured(900, SECOND)));
    assert!(!is_stressed(&measured(899, SECOND)));
    assert!(!is_stressed(&measured(1000, SECOND + 1)));
    assert!(!is_stressed(&Measurement { time: SECOND, ..Measurement::default() }), "nothing came");
}

/// Checks the trap of the paper's rule: 4,000 requests a second come 0.25 ms apart, which is stress, though inline could do 15,000.
#[test]
fn the_preset_stays_offline_under_a_load_that_inline_could_carry_and_ours_returns() {
    let low = second(4_000, 12);
    assert!(is_stressed(&low));
    assert_eq!(paper(PaperTiming::new(Mode::Offline), &[low; 1000])[999], Mode::Offline);
    let mut ours = Forecast::default();
    for _ in 0..10 {
        ours = ours.next(GOAL, &second(15_000, 100), true);
    }
    assert_eq!(ours.mode, Mode::Offline);
    for _ in 0..30 {
        ours = ours.next(GOAL, &low, false);
    }
    assert_eq!(ours.mode, Mode::Inline);
}

fn ours(mut controller: Forecast, series: impl IntoIterator<Item = (Measurement, bool)>) -> (Forecast, Vec<Mode>) {
    let mut modes = Vec::new();
    for (measured, spent) in series {
        controller = controller.next(GOAL, &measured, spent);
        modes.push(controller.mode);
    }
    (controller, modes)
}

#[test]
fn ours_leaves_inline_when_the_goal_is_missed_in_a_row_and_the_background_has_no_more_to_give() {
    let (little, much) = (second(19_000, 100), second(15_000, 100));
    let good = second(20_000, 100);
    let begin = Forecast::default();
    assert_eq!(
        offline_after(&ours(begin, [little, little, good, little, little, little].map(|m| (m, true))).1),
        Some(5)
    );
    assert_eq!(offline_after(&ours(begin, [(much, true); 5]).1), Some(1));
    assert_eq!(offline_after(&ours(begin, [(much, false); 50]).1), None, "the background gives first");
    // A miss of one percent is none, and a low rate without waiting is the clients' own rate.
    assert_eq!(offline_after(&ours(begin, [(second(19_800, 100), true); 50]).1), None);
    assert_eq!(offline_after(&ours(begin, [(second(300, 3), true); 50]).1), None);
}

/// Makes a controller that is offline, having seen inline do 15,000 a second and offline 30,000.
fn offline() -> Forecast {
    let (controller, modes) = ours(Forecast::default(), [(second(15_000, 100), true); 5]);
    assert_eq!(modes[4], Mode::Offline);
    let (controller, _) = ours(controller, [(second(20_000, 66), false); 30]);
    assert_eq!((controller.mode, controller.inline_forecast()), (Mode::Offline, 15_000));
    controller
}

#[test]
fn ours_returns_when_the_forecast_says_that_inline_has_headroom() {
    // 12,000 a second are 80 % of what inline can do, 14,000 are 93 %.
    let (_, modes) = ours(offline(), [(second(12_000, 40), false); 20]);
    assert_eq!(modes.iter().filter(|mode| **mode == Mode::Offline).count(), 4);
    assert_eq!(ours(offline(), [(second(14_000, 47), false); 500]).0.mode, Mode::Offline);
    // One measurement between others is not enough.
    let flicker = (0..500).map(|at| (second(if at % 4 == 0 { 20_000 } else { 5_000 }, 60), false));
    assert_eq!(ours(offline(), flicker).0.mode, Mode::Offline);
    // There are no requests.
    assert_eq!(
        ours(offline(), [(Measurement { time: SECOND, ..Measurement::default() }, false); 6]).0.mode,
        Mode::Inline
    );
}

#[test]
fn the_mode_does_not_change_more_often_than_the_load_does() {
    let mut controller = Forecast::default();
    let mut changes = 0;
    // Ten minutes each of a load that inline carries, and of one that it does not.
    for at in 0..6000 {
        let (high, before) = ((at / 600) % 2 == 1, controller.mode);
        let measured = match (high, before) {
            (false, Mode::Inline) => second(4_000, 27),
            (false, Mode::Offline) => second(4_000, 14),
            (true, Mode::Inline) => second(15_000, 100),
            (true, Mode::Offline) => second(20_000, 70),
        };
        controller = controller.next(GOAL, &measured, before == Mode::Inline);
        changes += u32::from(controller.mode != before);
    }
    assert_eq!(changes, 9, "five times up, and each time down again but the last");
}

#[test]
fn offline_that_does_not_help_ends_and_is_tried_ever_less() {
    let mut controller = Forecast::default();
    let mut tries = Vec::new();
    for at in 0..4000 {
        let before = controller.mode;
        controller = controller.next(GOAL, &second(15_000, 100), true);
        if (before, controller.mode) == (Mode::Inline, Mode::Offline) {
            tries.push(at);
        }
    }
    let gaps: Vec<_> = tries.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(gaps.len() >= 4 && gaps.windows(2).all(|pair| pair[1] > pair[0] + 50), "{tries:?}");
}

#[test]
fn a_goal_of_latency_and_none_at_all_are_kept_too() {
    let slow = |nanos| Measurement { p99: nanos, ..second(9_000, 60) };
    let goal = Goal::P99(2_000_000);
    let mut controller = Forecast::default();
    for _ in 0..20 {
        controller = controller.next(goal, &slow(1_500_000), true);
    }
    assert_eq!(controller.mode, Mode::Inline);
    for _ in 0..2 {
        controller = controller.next(goal, &slow(5_000_000), true);
    }
    assert_eq!(controller.mode, Mode::Offline);
    let mut controller = Forecast::default();
    for _ in 0..20 {
        controller = controller.next(Goal::None, &slow(1_000_000), true);
    }
    assert!(controller.miss(Goal::None, &slow(1_900_000)) < 0);
    assert!(controller.miss(Goal::None, &slow(3_000_000)) > 400_000);
}

fn ours_with(goal: Goal, controller: Forecast, measured: Measurement, times: u32) -> Forecast {
    (0..times).fold(controller, |controller, _| controller.next(goal, &measured, true))
}

/// Checks that points for inline from before a short lack of headroom do not count against it afterwards.
#[test]
fn a_controller_that_was_held_inline_counts_anew() {
    let fits = second(12_000, 40);
    let counting = ours_with(GOAL, offline(), fits, 4);
    assert_eq!(counting.mode, Mode::Offline, "four of five");
    let held = counting.held_inline();
    let missed = second(10_000, 100);
    assert_eq!(ours_with(GOAL, held, missed, 1).mode, Mode::Inline);
    assert_eq!(ours_with(GOAL, held, missed, 2).mode, Mode::Offline);
    assert_eq!(held.held_inline(), held);
}

/// Guards against a volume that stays offline: one without settings went offline as soon as an empty pool was no longer empty, and stayed so as long as it had
/// work: the p99 of its first second was the usual one, and only a busy device said that being offline did not help.
#[test]
fn latencies_that_being_offline_does_not_repair_bring_a_volume_back() {
    let slow = |nanos| Measurement { p99: nanos, ..second(9_000, 60) };
    for (goal, missed) in [(Goal::P99(2_000_000), 5_000_000), (Goal::None, 3_000_000)] {
        for (better, stays) in [(missed * 9 / 10, false), (missed * 6 / 10, true)] {
            let mut controller = Forecast::default();
            for _ in 0..30 {
                controller = controller.next(goal, &slow(1_000_000), true);
            }
            let mut modes = Vec::new();
            for _ in 0..40 {
                let p99 = if controller.mode == Mode::Inline { missed } else { better };
                controller = controller.next(goal, &slow(p99), true);
                modes.push(controller.mode);
            }
            assert_eq!(offline_after(&modes), Some(1), "{goal}");
            assert_eq!(controller.mode == Mode::Offline, stays, "{goal}, {better}");
            if stays {
                let less = Measurement { p99: better, ..second(7_000, 47) };
                assert_eq!(ours_with(goal, controller, less, 5).mode, Mode::Inline, "there is less to do");
                assert_eq!(ours_with(goal, controller, slow(better), 240).mode, Mode::Offline);
                assert_eq!(ours_with(goal, controller, slow(better), 267).mode, Mode::Inline, "it is tried again");
            }
        }
    }
    // Also where the load is too small to measure the possible rate of the device.
    let idle = |p99| Measurement { p99, ..second(500, 5) };
    let goal = Goal::P99(1_000_000);
    let controller = ours_with(goal, Forecast::default(), idle(3_000_000), 2);
    assert_eq!(controller.mode, Mode::Offline);
    assert_eq!(ours_with(goal, controller, idle(3_000_000), 20).mode, Mode::Inline);
    assert_eq!(ours_with(goal, controller, idle(3_000_000), 60).mode, Mode::Inline, "it is barred");
    assert_eq!(ours_with(goal, controller, idle(500_000), 60).mode, Mode::Offline);
    // An outlier is not the latency that it has to beat.
    let missed = ours_with(goal, ours_with(goal, Forecast::default(), idle(90_000_000), 1), idle(3_000_000), 1);
    assert_eq!(ours_with(goal, missed, idle(3_000_000), 20).mode, Mode::Inline);
    let mut controller = Forecast::default();
    for at in 0..60 {
        controller = controller.next(Goal::None, &slow(if at == 0 { 100_000 } else { 300_000 }), at > 3);
        assert_eq!(controller.mode, Mode::Inline, "{at}");
    }
}

#[test]
fn misses_are_of_the_goal_and_headroom_is_of_the_time() {
    let miss = |goal, measured: Measurement| measured.miss(goal, 0);
    assert_eq!(miss(GOAL, second(15_000, 100)), 250_000);
    assert_eq!(miss(GOAL, second(24_000, 100)), -50_000, "a quarter of what is beyond the goal");
    assert_eq!(miss(GOAL, second(10_000, 50)), -450_000, "clients did not wait");
    assert_eq!(miss(Goal::Bytes(8192), second(1, 100)), 500_000);
    assert_eq!(miss(Goal::P99(500_000), second(1, 10)), WHOLE);
    assert_eq!(miss(GOAL, Measurement { time: SECOND, ..Measurement::default() }), -WHOLE);
    let far = Measurement { p99: u64::MAX, requests: u64::MAX, bytes: u64::MAX, ..second(1, 100) };
    for goal in [GOAL, Goal::Bytes(1), Goal::P99(1), Goal::None] {
        assert!((-WHOLE..=WHOLE).contains(&far.miss(goal, 1)));
    }
    assert_eq!(largest_miss([-5, 30, 2]), 30);
    assert_eq!(largest_miss([]), -WHOLE);
}

#[test]
fn goals_and_timings_are_words_of_the_command_line() {
    use alloc::string::ToString;
    for text in ["none", "20000iops", "200MiB/s", "4097B/s", "p99=2ms", "p99=250us", "p99=77ns"] {
        assert_eq!(text.parse::<Goal>().map(|goal| goal.to_string()).as_deref(), Ok(text));
    }
    assert_eq!("1GiB/s".parse(), Ok(Goal::Bytes(1 << 30)));
    assert_eq!("p99=1s".parse(), Ok(Goal::P99(SECOND)));
    for text in [
        "",
        "20000",
        "0iops",
        "iops",
        "p99=",
        "p99=2",
        "2ms",
        "p99=2iops",
        "-1iops",
        "99999999999999999999iops",
        "18446744073709551615GiB/s",
    ] {
        assert_eq!(text.parse::<Goal>(), Err(BadGoal), "{text}");
    }
    for timing in [Timing::Inline, Timing::Offline, Timing::Hybrid] {
        assert_eq!(timing.to_string().parse(), Ok(timing));
    }
    assert_eq!("both".parse::<Timing>(), Err(BadTiming));
}
