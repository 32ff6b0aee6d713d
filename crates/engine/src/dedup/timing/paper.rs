//! HIODS' controller (sections 3.5 and 4.3), with the paper's constants.
//!
//! A request is in stress if it comes less than 3 ms after the one before has left. The system is under stress if that is so of 90 % of the requests,
//! and the last one came at most a second ago. Three measurements in a row under stress and below the goal: offline. Three in a row without stress:
//! inline. The paper does not give the interval of measurements; here it is a second.
//!
//! It cannot know if inline would meet the goal. Load alone decides about the way back. So a load that inline could carry with ease, of requests less
//! than 3 ms apart, keeps it offline.

use super::{Goal, Measurement, Mode};
use crate::api::Nanos;

/// A request that comes this soon after the one before has left is in stress.
pub const STRESS_GAP: Nanos = 3_000_000;
/// The system is under stress if at least this percentage of the requests is.
const STRESSED_PERCENT: u64 = 90;
/// The greatest age of the last request under stress.
const RECENT: Nanos = 1_000_000_000;
/// Measurements in a row that change the mode.
const IN_A_ROW: u8 = 3;

/// Controller of the paper HIODS (sections 3.5 and 4.3), which switches between inline and offline deduplication after three measurements in a row for the
/// other mode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PaperTiming {
    /// Mode that the controller has chosen.
    pub mode: Mode,
    /// Measurements in a row that speak for the other mode.
    against: u8,
}

impl PaperTiming {
    /// Makes a controller that begins in this mode.
    pub fn new(mode: Mode) -> PaperTiming {
        PaperTiming { mode, against: 0 }
    }

    /// Returns the controller after one more measurement. The paper's goal is in requests a second; others count as well. Without a goal none is
    /// missed.
    pub fn next(self, goal: Goal, measured: &Measurement) -> PaperTiming {
        let stressed = is_stressed(measured);
        let is_against = match self.mode {
            Mode::Inline => stressed && measured.is_below(goal),
            Mode::Offline => !stressed,
        };
        match (is_against, self.against + 1, self.mode) {
            (false, _, mode) => PaperTiming { mode, against: 0 },
            (true, IN_A_ROW.., Mode::Inline) => PaperTiming::new(Mode::Offline),
            (true, IN_A_ROW.., Mode::Offline) => PaperTiming::new(Mode::Inline),
            (true, against, mode) => PaperTiming { mode, against },
        }
    }
}

/// Returns true if the system is under stress: enough of the requests came right after another, and the last one came recently.
pub fn is_stressed(measured: &Measurement) -> bool {
    let share = measured.stressed * 100 >= measured.entered * STRESSED_PERCENT;
    measured.entered > 0 && share && measured.since_last <= RECENT
}
