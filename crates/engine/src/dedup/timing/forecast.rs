//! Our timing controller: it forecasts the rate of inline deduplication from its own measurements.
//!
//! While inline, it notes the work of the foreground in the time that it was busy. Inline can do that, or more. While offline it compares this with
//! the demand of the clients:
//!
//! - **inline to offline** when the goal is missed three times in a row, twice if it is missed by much, while the throttle has nothing
//!   left to take from the background;
//! - **offline to inline** when the forecast says five times in a row that inline would have headroom to spare. Low load is no
//!   condition. The demand of clients is the rate that they got, if they did not wait for the device, and else the goal;
//! - **offline that does not help** ends automatically: where clients get no more than inline gave them, nor sooner if that is the goal,
//!   it goes back, and stays there for a minute, the next time for two, and so on up to an hour.
//!
//! Without a goal, the p99 that the foreground usually has is protected: twice as much is a miss.
//!
//! It needs no tuning: its only inputs are ratios of its measurements.

use super::{Goal, Measurement, Mode, WHOLE};
use crate::api::Nanos;

/// A goal that is missed by less, in millionths, is met.
const TOLERANCE: i64 = 20_000;
/// A goal that is missed by more, in millionths, counts twice.
const MUCH: i64 = 100_000;
/// Misses in a row after which it goes offline; a large one counts 2.
const MISSES: u8 = 3;
/// Good forecasts in a row after which it goes inline.
const FORECASTS: u8 = 5;
/// Least number of measurements for which it stays offline.
const STAYS: u32 = 10;
/// Greatest rate that clients may want, in percent of the rate that inline can do.
const HEADROOM_PERCENT: u128 = 85;
/// Greatest rate that clients may want where the goal is a latency, which grows as headroom is used up; in percent of inline's rate.
const LATENCY_HEADROOM_PERCENT: u128 = 70;
/// Measurements after which inline is tried again, where the goal is a latency.
const RETRIED: u32 = 300;
/// Assumed rate of inline before it was ever seen, in percent of offline's: HIODS measured 43 to 68 (tables 13 and 14).
const UNSEEN_PERCENT: u64 = 40;
/// Offline helps if it does this percentage of what inline does.
const HELPS_PERCENT: u128 = 105;
/// Offline also helps a latency that falls to this percentage of the one that missed the goal.
const SOONER_PERCENT: u128 = 80;
/// The divisor of a rise of the usual p99: it rises by 1/N of the excess, and by larger parts in the beginning.
const SLOWLY: u64 = 64;
/// Measurements that offline is not tried again after it did not help: at first, and at most.
const FIRST_BAR: u32 = 60;
const LONGEST_BAR: u32 = 3600;
/// A foreground that was busy for less of the time, in millionths, says nothing of the rate that is possible.
const ENOUGH_BUSY: i64 = 100_000;

/// The controller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Forecast {
    /// Mode that the controller has chosen.
    pub mode: Mode,
    /// Work that each mode gets done in a busy second, inline first: bytes if the goal is in bytes, else requests; 0: not seen yet.
    done: [u64; 2],
    /// The usual p99; 0: not known yet. It is the mean of `seen` measurements, up to [`SLOWLY`].
    usual: Nanos,
    seen: u64,
    /// Measurements when it went offline: the least p99 that missed the goal, and the amount that clients asked for in a second.
    missed_p99: Nanos,
    missed_rate: u64,
    /// The p99 since then; 0: not measured yet.
    offline_p99: Nanos,
    /// Points against this mode, in a row.
    against: u8,
    /// Measurements since the mode changed.
    stayed: u32,
    /// Measurements for which offline is not tried.
    barred: u32,
    /// Measurements for which offline is not tried the next time that it does not help.
    bar: u32,
}

impl Default for Forecast {
    fn default() -> Forecast {
        Forecast::new(Mode::Inline)
    }
}

impl Forecast {
    /// Makes a controller that begins in this mode; pass inline, unless there is a reason for the other.
    pub fn new(mode: Mode) -> Forecast {
        Forecast {
            mode,
            done: [0; 2],
            usual: 0,
            seen: 0,
            missed_p99: 0,
            missed_rate: 0,
            offline_p99: 0,
            against: 0,
            stayed: 0,
            barred: 0,
            bar: FIRST_BAR,
        }
    }

    /// Returns the amount by which the goal was missed, for the throttle. In millionths; below 0 is headroom.
    pub fn miss(&self, goal: Goal, measured: &Measurement) -> i64 {
        measured.miss(goal, self.usual)
    }

    /// Returns the usual p99; 0: not known yet.
    pub fn usual(&self) -> Nanos {
        self.usual
    }

    /// Returns the work that inline is expected to do in a second, in requests or in bytes.
    pub fn inline_forecast(&self) -> u64 {
        match self.done {
            [0, offline] => (u128::from(offline) * u128::from(UNSEEN_PERCENT) / 100) as u64,
            [inline, _] => inline,
        }
    }

    /// Holds the controller inline, regardless of its choice, for a caller that knows better. It begins anew to count points against that mode.
    pub fn held_inline(self) -> Forecast {
        let mut held = self;
        if held.mode == Mode::Offline {
            held.change_to(Mode::Inline);
        }
        held
    }

    /// Returns the controller after one more measurement. `spent`: true if the background has no more than its least share, or nothing to do.
    pub fn next(self, goal: Goal, measured: &Measurement, spent: bool) -> Forecast {
        let miss = self.miss(goal, measured);
        let mut next = Forecast { stayed: self.stayed.saturating_add(1), ..self };
        next.note(goal, measured, spent);
        next.barred = next.barred.saturating_sub(1);
        match self.mode {
            Mode::Inline => {
                let points = match miss {
                    _ if !spent || next.barred > 0 => 0,
                    miss if miss > MUCH => 2,
                    miss if miss > TOLERANCE => 1,
                    _ => 0,
                };
                if points > 0 {
                    // The least of those in a row: an outlier says little.
                    let is_first = self.against == 0;
                    next.missed_p99 = if is_first { measured.p99 } else { self.missed_p99.min(measured.p99) };
                }
                next.against = if points > 0 { self.against + points } else { 0 };
                if next.against >= MISSES {
                    next.change_to(Mode::Offline);
                    (next.missed_rate, next.offline_p99) = (measured.rate(goal), 0);
                }
            }
            Mode::Offline => {
                next.against = if next.inline_meets(goal, measured) { self.against + 1 } else { 0 };
                let helps = next.helps(goal);
                let can_tell = measured.is_saturated() && next.done[0] > 0 || is_latency(goal);
                if next.stayed < STAYS {
                    next.against = next.against.min(FORECASTS - 1);
                } else if next.against >= FORECASTS {
                    next.change_to(Mode::Inline);
                } else if !helps && spent && can_tell {
                    next.change_to(Mode::Inline);
                    next.barred = self.bar;
                    next.bar = (self.bar * 2).min(LONGEST_BAR);
                } else if helps {
                    next.bar = FIRST_BAR;
                }
            }
        }
        next
    }

    fn change_to(&mut self, mode: Mode) {
        (self.mode, self.against, self.stayed) = (mode, 0, 0);
    }

    /// Learns from a measurement: p99 while offline, and the rate of a busy second.
    fn note(&mut self, goal: Goal, measured: &Measurement, spent: bool) {
        if measured.requests == 0 {
            return;
        }
        if self.mode == Mode::Offline {
            // A request that was answered at once counts as a nanosecond: 0 is for none.
            let p99 = measured.p99.max(1);
            self.offline_p99 = if self.offline_p99 == 0 { p99 } else { self.offline_p99.midpoint(p99) };
        }
        if measured.busy_share() < ENOUGH_BUSY {
            return;
        }
        let count = if matches!(goal, Goal::Bytes(_)) { measured.bytes } else { measured.requests };
        let rate = (u128::from(count) * 1_000_000_000 / u128::from(measured.busy.max(1))) as u64;
        let done = &mut self.done[self.mode as usize];
        // Clients that do not keep the device busy see less than it can do. Full load shows its present rate, unless the background had a part of it.
        *done = match *done {
            0 => rate,
            seen if measured.is_saturated() && spent => seen - seen / 8 + rate / 8,
            seen => seen.max(rate),
        };
        if !measured.is_saturated() {
            self.usual = match self.usual {
                0 => measured.p99,
                usual if measured.p99 < usual => usual - (usual - measured.p99) / 8,
                usual => usual + (measured.p99 - usual) / (self.seen + 1),
            };
            self.seen = (self.seen + 1).min(SLOWLY - 1);
        }
    }

    /// Returns true if clients get more than they did inline, or sooner if the goal is a latency.
    fn helps(&self, goal: Goal) -> bool {
        let percent = |of: u64, percent: u128| u128::from(of) * percent;
        let gets_more = self.done[0] > 0 && percent(self.done[1], 100) > percent(self.done[0], HELPS_PERCENT);
        let is_sooner = percent(self.offline_p99, 100) <= percent(self.missed_p99, SOONER_PERCENT);
        gets_more || is_latency(goal) && self.offline_p99 > 0 && is_sooner
    }

    /// Returns true if inline would meet the goal, with headroom to spare.
    fn inline_meets(&self, goal: Goal, measured: &Measurement) -> bool {
        let rate = measured.rate(goal);
        let can = u128::from(self.inline_forecast());
        let fits = |wanted: u64, percent: u128| u128::from(wanted) * 100 <= can * percent;
        let is_less = u128::from(rate) * 100 <= u128::from(self.missed_rate) * HEADROOM_PERCENT;
        match goal {
            _ if measured.requests == 0 => true,
            Goal::Operations(least) | Goal::Bytes(least) if measured.is_saturated() => fits(least, HEADROOM_PERCENT),
            Goal::Operations(least) | Goal::Bytes(least) => fits(rate.min(least), HEADROOM_PERCENT),
            // Inline missed it under more load and may meet it under less. Or the device was slow for a while: that is tried now and then.
            Goal::P99(_) | Goal::None => is_less && fits(rate, LATENCY_HEADROOM_PERCENT) || self.stayed >= RETRIED,
        }
    }
}

/// Returns true if clients shall be answered soon, regardless of their load.
fn is_latency(goal: Goal) -> bool {
    matches!(goal, Goal::None | Goal::P99(_))
}

const _: () = assert!(TOLERANCE < MUCH && MUCH < WHOLE);
