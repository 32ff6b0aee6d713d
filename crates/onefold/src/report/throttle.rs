//! Report of the throttle: the clients' latency, their goals, and the resulting share of background work, for the pool and for a volume.

use engine::timing::Mode;
use engine::{Engine, Goal, PassThrottle, ThrottleStatus, Volume};
use serde::{Deserialize, Serialize};

/// Throttle of background work: its share, and the latency of clients.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
pub struct ThrottleReport {
    /// Part of the device that background work may have while clients are busy, in millionths.
    pub share_ppm: u32,
    /// Largest miss of all goals, which the share follows, in millionths of the goal; below 0 is headroom.
    pub miss_ppm: i64,
    /// Feedback loop that sets the rate of the pass that finds duplicates.
    #[serde(default)]
    pub policy: String,
    /// Pause of the pass for each block that it has examined, in nanoseconds; only with the paper's loop.
    #[serde(default)]
    pub pass_delay_ns: Option<u64>,
    /// Time within which 99 of 100 requests were answered when it was measured last, in nanoseconds.
    pub p99_ns: u64,
    /// Usual value of that time, in nanoseconds; 0: not known yet.
    pub usual_p99_ns: u64,
    /// Number of requests in flight.
    pub requests_in_flight: u32,
}

impl ThrottleReport {
    /// Collects the figures from the engine's status.
    pub fn new(status: &ThrottleStatus, throttle: PassThrottle) -> ThrottleReport {
        ThrottleReport {
            share_ppm: status.share_ppm,
            miss_ppm: status.miss_ppm,
            policy: throttle.to_string(),
            pass_delay_ns: status.pass_delay,
            p99_ns: status.p99,
            usual_p99_ns: status.usual_p99,
            requests_in_flight: status.requests,
        }
    }

    /// Returns true if the feedback loop is not the default one.
    pub fn is_throttle_set(&self) -> bool {
        !self.policy.is_empty() && self.policy != PassThrottle::default().to_string()
    }
}

/// Timing of a volume: mode, goal and measurements.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
pub struct TimingReport {
    /// True if writes are stored without a search for duplicates now.
    pub offline: bool,
    /// True if a controller chooses that. If being offline would save nothing, a hybrid volume stays inline.
    #[serde(default)]
    pub may_change: bool,
    /// Number of times that a controller has changed the mode.
    pub switches: u64,
    /// Goal, in requests or bytes a second, or as a p99 in nanoseconds, if there is one.
    pub setpoint: Option<u64>,
    /// Last measurement, in the unit of the goal, without a goal the p99; none if neither a goal nor a controller asks for it.
    pub measured: Option<u64>,
    /// Amount by which the measurement missed the goal, in millionths of it; below 0 is headroom.
    pub miss_ppm: Option<i64>,
    /// Part of the requests that came less than 3 ms after the one before had left, in millionths.
    pub stressed_ppm: Option<u64>,
}

impl TimingReport {
    /// Collects the figures of a volume from the engine.
    pub fn new(engine: &Engine, volume: &Volume) -> TimingReport {
        let status = engine.timing_of(volume);
        TimingReport {
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
