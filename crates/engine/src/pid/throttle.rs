//! Our feedback loop: sets the share of the device for background work by the distance of the foreground from its goal.
//!
//! The error is relative, so the same gains do for any goal and any device. The loop is steady by:
//!
//! - *bounds*: never below the least share, so background work ends some day, and never above the most;
//! - *anti-windup*: at a bound the integral does not move further that way, so it leaves the bound as soon as the error turns;
//! - *a slew limit*: up by at most a twentieth of the device each second, so nothing bursts, also not when the mode of a volume changes. Down
//!   may be ten times as fast: the foreground does not wait.

use super::WHOLE;
use crate::api::Nanos;

/// Gain of the headroom that the foreground leaves, at once, in millionths.
const PROPORTIONAL: i64 = 300_000;
/// Gain of that headroom for each second that it is there, in millionths.
const INTEGRAL: i64 = 200_000;
/// Gain of that headroom's change in a second, in millionths.
const DERIVATIVE: i64 = 50_000;
/// A goal that is missed by more than this is urgent: the excess counts `URGENCY` times in addition.
const URGENT: i64 = 50_000;
const URGENCY: i64 = 3;
/// Most by which the share grows in a second, in millionths.
const UP: i64 = 50_000;
/// Most by which the share falls in a second, in millionths.
const DOWN: i64 = 500_000;
/// The longest time between measurements; longer ones count as this.
const LONGEST: Nanos = 10_000_000_000;
const SECOND: i64 = 1_000_000_000;

/// The background's least share, unless other bounds are given: 2 %.
pub const LEAST: i64 = 20_000;

/// Bounds of the background's share, in millionths of the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bounds {
    /// Background work always gets this.
    pub least: i64,
    /// Background work never gets more than this.
    pub most: i64,
}

impl Default for Bounds {
    fn default() -> Bounds {
        Bounds { least: LEAST, most: WHOLE }
    }
}

/// Our loop: its bounds and its state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Throttle {
    bounds: Bounds,
    /// Sum of the integral so far, in millionths.
    integral: i64,
    previous: i64,
    /// The share, in millionths of the device.
    pub share: i64,
}

impl Default for Throttle {
    fn default() -> Throttle {
        Throttle::new(Bounds::default())
    }
}

impl Throttle {
    /// Makes a loop with the least share to begin with. Invalid bounds (below 0, above the whole, or in the wrong order) are made valid.
    pub fn new(bounds: Bounds) -> Throttle {
        let most = bounds.most.clamp(0, WHOLE);
        let bounds = Bounds { least: bounds.least.clamp(0, most), most };
        Throttle { bounds, integral: bounds.least, previous: 0, share: bounds.least }
    }

    /// Returns true if nothing is left to take from the background: its share is the least.
    pub fn is_at_least(&self) -> bool {
        self.share <= self.bounds.least
    }

    /// Returns the loop after one more measurement over `time` nanoseconds: `miss` is the amount by which the goal was missed, in millionths of it; below 0 is
    /// headroom (`Measurement::miss` of `dedup/timing`).
    pub fn next(self, miss: i64, time: Nanos) -> Throttle {
        let miss = miss.clamp(-WHOLE, WHOLE);
        let headroom = -(miss + URGENCY * (miss - URGENT).max(0)).min(WHOLE);
        let time = time.clamp(1, LONGEST) as i64;
        let change = INTEGRAL * headroom / WHOLE * (time / 1000) / (SECOND / 1000);
        // At a bound it moves back alone.
        let integral = (self.integral + change).clamp(self.bounds.least, self.bounds.most);
        let derivative = (headroom - self.previous).saturating_mul(SECOND / 1000) / (time / 1000).max(1);
        let wanted = integral + PROPORTIONAL * headroom / WHOLE + DERIVATIVE * derivative.clamp(-WHOLE, WHOLE) / WHOLE;
        let limit = |a_second: i64| a_second * (time / 1000) / (SECOND / 1000);
        let share = wanted.clamp(self.share - limit(DOWN), self.share + limit(UP));
        let share = share.clamp(self.bounds.least, self.bounds.most);
        // The integral does not wind up where the share may not follow.
        let reach = PROPORTIONAL;
        let integral = integral.clamp(share - reach, share + reach).clamp(self.bounds.least, self.bounds.most);
        Throttle { integral, previous: headroom, share, ..self }
    }
}

/// Returns the nanoseconds of rest after a piece of work of `work` nanoseconds, so that it takes a part of the device of `part` millionths.
pub fn rest(part: i64, work: Nanos) -> Nanos {
    if part <= 0 {
        return Nanos::MAX;
    }
    let rest = u128::from(work) * (WHOLE - part).max(0) as u128 / part as u128;
    rest.min(u128::from(Nanos::MAX)) as Nanos
}
