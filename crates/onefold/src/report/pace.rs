//! What clients get, what they are to have, and what follows from it: for the pool, and for a volume.

use engine::timing::Mode;
use engine::{Engine, Goal, PaceStatus, PassThrottle, Volume};
use serde::{Deserialize, Serialize};

/// Clients and the pass that finds duplicates, side by side.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
pub struct PaceReport {
    /// Of a million parts of the device, those that background work may have while clients are busy.
    pub share_ppm: u32,
    /// What that follows: the largest miss of all goals, in millionths of the goal; below 0 is room.
    pub miss_ppm: i64,
    /// Which feedback loop sets the pace of the pass that finds duplicates.
    #[serde(default)]
    pub throttle: String,
    /// With the paper's: how long the pass rests for each block that it has looked at, in nanoseconds.
    #[serde(default)]
    pub pass_delay_ns: Option<u64>,
    /// Of 100 requests 99 took no longer when it was measured last, in nanoseconds,
    pub p99_ns: u64,
    /// and usually; 0: not known yet.
    pub usual_p99_ns: u64,
    /// Requests in flight.
    pub requests_in_flight: u32,
}

impl PaceReport {
    /// From the engine's figures.
    pub fn new(status: &PaceStatus, throttle: PassThrottle) -> PaceReport {
        PaceReport {
            share_ppm: status.share_ppm,
            miss_ppm: status.miss_ppm,
            throttle: throttle.to_string(),
            pass_delay_ns: status.pass_delay,
            p99_ns: status.p99,
            usual_p99_ns: status.usual_p99,
            requests_in_flight: status.requests,
        }
    }

    /// Whether somebody has chosen the feedback loop.
    pub fn is_throttle_set(&self) -> bool {
        !self.throttle.is_empty() && self.throttle != PassThrottle::default().to_string()
    }
}

/// The same of a volume.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
pub struct VolumePaceReport {
    /// Writes are stored without a look for duplicates now.
    pub offline: bool,
    /// A controller chooses that. Where being offline would save nothing, a hybrid volume stays inline.
    #[serde(default)]
    pub may_change: bool,
    /// How often a controller has changed that.
    pub switches: u64,
    /// The goal, in requests or bytes a second, or as a p99 in nanoseconds, if there is one.
    pub setpoint: Option<u64>,
    /// What was measured last, in the same unit, without a goal the p99; nothing where neither a goal nor a controller asks for it.
    pub measured: Option<u64>,
    /// By how much that missed the goal, in millionths of it; below 0 is room.
    pub miss_ppm: Option<i64>,
    /// Of a million requests those that came less than 3 ms after the one before had left.
    pub stressed_ppm: Option<u64>,
}

impl VolumePaceReport {
    /// From the engine's figures.
    pub fn new(engine: &Engine, volume: &Volume) -> VolumePaceReport {
        let status = engine.timing_of(volume);
        VolumePaceReport {
            offline: status.mode == Mode::Offline,
            may_change: status.may_change,
            switches: status.switches,
            setpoint: match volume.goal {
                Goal::None => None,
                Goal::Operations(number) | Goal::Bytes(number) | Goal::P99(number) => Some(number),
            },
            measured: status.measured,
            miss_ppm: status.measured.map(|_| status.miss_ppm),
            stressed_ppm: status.measured.map(|_| status.stressed_ppm.into()),
        }
    }
}
