//! The throttle of background work as a feedback loop: how much of the device the background may have, so that the foreground meets its goal.
//!
//! Two controllers, both pure: a value and a measurement make the next value. Integers alone (millionths), so that every machine comes to
//! the same figures.
//!
//! - [`paper::PaperThrottle`]: HIODS' feedback loop (listing 4.1): the delay before each block that the background looks at. A preset; it winds up.
//! - [`throttle::Throttle`]: ours: the background's share of the device. It has bounds, a limit on how fast it changes, and an integral
//!   that stops at the bounds.
//!
//! Who calls it: the throttle of jobs (`jobs/throttle.rs`), for all of them that go in bursts; and the simulator (`repro figure hiods-*`).

pub mod paper;
pub mod throttle;

#[cfg(test)]
mod tests;

/// A whole, in millionths.
pub const WHOLE: i64 = 1_000_000;
