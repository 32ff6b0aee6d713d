//! The throttle of background work as a feedback loop: sets the share of the device for the background, so that the foreground meets its goal.
//!
//! Two controllers, both pure: a value and a measurement make the next value. Integers alone (millionths), so that every machine computes the same
//! figures.
//!
//! - [`paper::PaperThrottle`]: HIODS' feedback loop (listing 4.1): the delay before each block that the background looks at. A preset; it winds up.
//! - [`throttle::Throttle`]: ours: the background's share of the device. It has bounds, a slew limit, and an integral
//!   that stops at the bounds.
//!
//! Its callers: the throttle of jobs (`jobs/throttle.rs`), for all of them that go in bursts; and the simulator (`repro figure hiods-*`).

pub mod paper;
pub mod throttle;

#[cfg(test)]
mod tests;

/// A whole, in millionths.
pub const WHOLE: i64 = 1_000_000;
