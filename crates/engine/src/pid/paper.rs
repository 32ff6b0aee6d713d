//! HIODS' feedback loop (section 4.3.1, listing 4.1): the delay before each block of the background, from the error in requests a second.
//!
//! As published: no bound, no limit on the integral. Our addition: a negative delay counts as none, since no wait is shorter than none.

use crate::api::Nanos;

/// Millionths in a unit of the gains.
const UNIT: i128 = 1_000_000;
const SECOND: i128 = 1_000_000_000;

/// Nanoseconds of delay for each request a second that is missing, in millionths.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Gains {
    /// Gain of the error.
    pub proportional: i64,
    /// Gain of the error's integral over seconds.
    pub integral: i64,
    /// Gain of the error's change in a second.
    pub derivative: i64,
}

/// The gains of listing 4.1.
pub const LISTING: Gains = Gains { proportional: 5_000_000, integral: 150_000, derivative: 250_000 };
/// The gains of the experiment with a goal of 35,000 requests a second: a smaller integral.
pub const EXPERIMENT: Gains = Gains { integral: 1_000, ..LISTING };

/// HIODS' loop: its gains and its state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PaperThrottle {
    gains: Gains,
    /// Integral of the error, in requests a second times nanoseconds.
    integral: i128,
    previous: i64,
    /// The delay before each block, in nanoseconds.
    pub delay: Nanos,
}

impl PaperThrottle {
    /// Makes a controller without any measurement: no delay.
    pub fn new(gains: Gains) -> PaperThrottle {
        PaperThrottle { gains, integral: 0, previous: 0, delay: 0 }
    }

    /// Returns the controller after one more measurement over `time` nanoseconds, in requests a second.
    pub fn next(self, goal: u64, measured: u64, time: Nanos) -> PaperThrottle {
        let bounded = |rate: u64| rate.min(u32::MAX.into()) as i64;
        let error = bounded(goal) - bounded(measured);
        let time = i128::from(time.max(1));
        let integral = self.integral.saturating_add(i128::from(error) * time);
        let derivative = i128::from(error - self.previous) * SECOND / time;
        let sum = i128::from(self.gains.proportional) * i128::from(error)
            + i128::from(self.gains.integral).saturating_mul(integral) / SECOND
            + i128::from(self.gains.derivative) * derivative;
        let delay = (sum / UNIT).clamp(0, i128::from(Nanos::MAX)) as Nanos;
        PaperThrottle { integral, previous: error, delay, ..self }
    }
}
