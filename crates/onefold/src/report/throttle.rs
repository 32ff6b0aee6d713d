//! Report of the throttle: the clients' latency, their goals, and the resulting share of background work, for the pool and for a volume.

use engine::timing::Mode;
use engine::{Goal, PassThrottle, ThrottleStatus, TimingStatus};
use serde::{Deserialize, Serialize};

use crate::report::define::report;

report! {
    /// Throttle of background work: its share, and the latency of clients.
    #[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
    pub struct ThrottleReport from (status: &ThrottleStatus, throttle: PassThrottle) {
        /// Part of the device that background work may have while clients are busy, in millionths.
        share_ppm: u32,
        /// Largest miss of all goals, which the share follows, in millionths of the goal; below 0 is headroom.
        miss_ppm: i64,
        /// Feedback loop that sets the rate of the pass that finds duplicates.
        #[serde(default)]
        policy: String = throttle.to_string(),
        /// Pause of the pass for each block that it has examined, in nanoseconds; only with the paper's loop.
        #[serde(default)]
        pass_delay_ns: Option<u64> = status.pass_delay,
        /// Time within which 99 of 100 requests were answered when it was measured last, in nanoseconds.
        p99_ns: u64 = status.p99,
        /// Usual value of that time, in nanoseconds; 0: not known yet.
        usual_p99_ns: u64 = status.usual_p99,
        /// Number of requests in flight.
        requests_in_flight: u32 = status.requests,
    }
}

impl ThrottleReport {
    /// Returns true if the feedback loop is not the default one.
    pub fn is_throttle_set(&self) -> bool {
        !self.policy.is_empty() && self.policy != PassThrottle::default().to_string()
    }
}

report! {
    /// Timing of a volume: mode, goal and measurements.
    #[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
    pub struct TimingReport from (status: TimingStatus, goal: Goal) {
        /// True if writes are stored without a search for duplicates now.
        offline: bool = status.mode == Mode::Offline,
        /// True if a controller chooses that. If being offline would save nothing, a hybrid volume stays inline.
        #[serde(default)]
        may_change: bool,
        /// Number of times that a controller has changed the mode.
        switches: u64,
        /// Goal, in requests or bytes a second, or as a p99 in nanoseconds, if there is one.
        setpoint: Option<u64> = match goal {
            Goal::None => None,
            Goal::Operations(number) | Goal::Bytes(number) | Goal::P99(number) => Some(number),
        },
        /// Last measurement, in the unit of the goal, without a goal the p99; none if neither a goal nor a controller asks for it.
        measured: Option<u64>,
        /// Amount by which the measurement missed the goal, in millionths of it; below 0 is headroom.
        miss_ppm: Option<i64> = status.measured.map(|_| status.miss_ppm),
        /// Part of the requests that came less than 3 ms after the one before had left, in millionths.
        stressed_ppm: Option<u64> = status.measured.map(|_| status.stressed_ppm.into()),
    }
}
