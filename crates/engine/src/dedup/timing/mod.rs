//! The timing of deduplication: duplicates of a volume are found at once (inline), later in the background (offline), or as the load allows (hybrid;
//! HIODS).
//!
//! Owns the two controllers that choose the mode of a hybrid volume. All of it is pure: a controller is a value, a
//! measurement goes in, the next value comes out; nothing here reads a clock or knows the engine. Integers alone, so every machine decides
//! the same.
//!
//! - [`paper::PaperTiming`]: HIODS' controller (sections 3.5 and 4.3), as a preset.
//! - [`forecast::Forecast`]: ours, the default. It goes back to inline when its forecast says that inline meets the goal.
//! - [`meter::Meter`]: counts requests and makes the [`Measurement`]s that both go by.
//!
//! What must hold: a controller never asks for a burst. The rate of the background is the throttle's (`pid`), in any mode.
//!
//! Its callers: `requests/foreground.rs`, with measurements of the clients; and the simulator, with a model of the costs of both modes (`repro figure
//! hiods-*`).

pub mod forecast;
pub mod meter;
pub mod paper;

#[cfg(test)]
mod tests;

use crate::api::Nanos;
pub use crate::properties::{BadController, BadGoal, BadTiming, Controller, Goal, Timing};

/// Mode that a controller has chosen.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Mode {
    /// Duplicates are found before a write is answered.
    Inline,
    /// Writes are answered without a look-up of duplicates; the background finds them.
    Offline,
}

/// Measurement of the foreground, over a time of about a second.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Measurement {
    /// Nanoseconds that were measured; not 0.
    pub time: Nanos,
    /// Requests that were answered.
    pub requests: u64,
    /// Bytes of these requests.
    pub bytes: u64,
    /// Nanoseconds in which at least one request was in flight, at most `time`.
    pub busy: Nanos,
    /// The time that 99 of 100 requests did not exceed; 0 without requests.
    pub p99: Nanos,
    /// Requests that came, as HIODS counts them.
    pub entered: u64,
    /// Requests that came less than [`paper::STRESS_GAP`] after the one before had left.
    pub stressed: u64,
    /// Time since the last request came.
    pub since_last: Nanos,
}

/// A whole, where shares and misses are in millionths.
pub const WHOLE: i64 = 1_000_000;
/// The foreground waits for the device all the time if it has requests in flight for more than this part of it.
const SATURATED: i64 = 950_000;
/// Divisor of the work beyond the goal of such a foreground: only this part of it counts as headroom.
const MAKES_UP: i64 = 4;

impl Measurement {
    /// Returns true if a request was in flight nearly all the time, so that clients may want more than they got.
    pub fn is_saturated(&self) -> bool {
        self.busy_share() >= SATURATED
    }

    /// Returns true if there were no requests.
    pub fn is_quiet(&self) -> bool {
        self.requests == 0 && self.busy == 0
    }

    /// Returns the part of the time in which a request was in flight, in millionths.
    fn busy_share(&self) -> i64 {
        (u128::from(self.busy.min(self.time)) * WHOLE as u128 / u128::from(self.time.max(1))) as i64
    }

    /// Converts a count over the whole time to one for each second.
    fn each_second(&self, count: u64) -> u64 {
        (u128::from(count) * 1_000_000_000 / u128::from(self.time.max(1))) as u64
    }

    /// Returns the requests answered in a second.
    pub fn operations(&self) -> u64 {
        self.each_second(self.requests)
    }

    /// Returns the rate that the goal counts, for each second: bytes, or else requests.
    fn rate(&self, goal: Goal) -> u64 {
        match goal {
            Goal::Bytes(_) => self.each_second(self.bytes),
            _ => self.operations(),
        }
    }

    /// Returns the figure that the goal is about: requests or bytes a second, or else the p99.
    pub fn in_unit_of(&self, goal: Goal) -> u64 {
        match goal {
            Goal::P99(_) | Goal::None => self.p99,
            goal => self.rate(goal),
        }
    }

    /// Returns true if clients had less than the goal, regardless of their load.
    fn is_below(&self, goal: Goal) -> bool {
        match goal {
            Goal::None => false,
            Goal::P99(most) => self.p99 > most,
            Goal::Operations(least) | Goal::Bytes(least) => self.rate(goal) < least,
        }
    }

    /// Returns the amount by which the goal was missed, in millionths of it: below 0 is headroom that is left.
    ///
    /// Clients that did not wait for the device got all that they asked for, even if that is little: then the headroom is the part of the time
    /// without a request. `usual` is the p99 that counts where no goal is stated; 0 if it is not known yet.
    pub fn miss(&self, goal: Goal, usual: Nanos) -> i64 {
        let idle = self.busy_share() - SATURATED;
        let latency = |most: Nanos| {
            let miss = (i128::from(self.p99) - i128::from(most)) * i128::from(WHOLE) / i128::from(most.max(1));
            miss.clamp(i128::from(-WHOLE), i128::from(WHOLE)) as i64
        };
        match goal {
            _ if self.is_quiet() => -WHOLE,
            Goal::P99(most) => latency(most),
            Goal::None if usual == 0 => idle.min(0),
            // The usual p99 varies: twice as long is noticed.
            Goal::None => latency(2 * usual),
            Goal::Operations(_) | Goal::Bytes(_) if idle < 0 => idle,
            Goal::Operations(least) | Goal::Bytes(least) => {
                let miss = (i128::from(least) - i128::from(self.rate(goal))) * i128::from(WHOLE);
                let miss = (miss / i128::from(least.max(1))).clamp(i128::from(-WHOLE), i128::from(WHOLE)) as i64;
                // Clients that get more than the goal and still wait make up for earlier misses: there is less headroom than it seems.
                if miss < 0 { miss / MAKES_UP } else { miss }
            }
        }
    }
}

/// Returns the largest miss of several volumes, which the pool's throttle goes by; all headroom if there are none.
pub fn largest_miss(misses: impl IntoIterator<Item = i64>) -> i64 {
    misses.into_iter().max().unwrap_or(-WHOLE)
}
