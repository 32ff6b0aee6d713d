//! The schedule of a volume's automatic snapshots: how many of each period are kept. The engine stores it, and has no time of day: its driver takes and deletes
//! the snapshots.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;

/// Bits of a period's number on disk and in recordings.
const BITS: u32 = 10;
/// Maximum number of snapshots of a period.
const MOST: u16 = 1000;
/// Maximum number of all snapshots of a schedule: a volume can have 96 others.
const MOST_OF_ALL: u16 = 4000;

/// Period from one automatic snapshot to the next. All begin by UTC.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Period {
    /// A quarter of an hour.
    Frequently,
    /// An hour.
    Hourly,
    /// A day.
    Daily,
    /// A week, from Monday on.
    Weekly,
    /// A month.
    Monthly,
    /// A year.
    Yearly,
}

impl Period {
    /// All periods, the shortest first.
    pub const ALL: [Period; 6] =
        [Period::Frequently, Period::Hourly, Period::Daily, Period::Weekly, Period::Monthly, Period::Yearly];

    /// Returns the name in a schedule.
    pub fn name(self) -> &'static str {
        match self {
            Period::Frequently => "frequently",
            Period::Hourly => "hourly",
            Period::Daily => "daily",
            Period::Weekly => "weekly",
            Period::Monthly => "monthly",
            Period::Yearly => "yearly",
        }
    }

    /// Returns the period with this name.
    pub fn named(name: &str) -> Option<Period> {
        Period::ALL.into_iter().find(|period| period.name() == name)
    }
}

/// Numbers of automatic snapshots that are kept of a volume, by period; the default is none at all.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct SnapshotSchedule {
    kept: [u16; Period::ALL.len()],
}

impl SnapshotSchedule {
    /// No automatic snapshots.
    pub const OFF: SnapshotSchedule = SnapshotSchedule { kept: [0; Period::ALL.len()] };

    /// Returns the number of snapshots of a period that are kept; 0: none are taken.
    pub fn kept(&self, period: Period) -> usize {
        self.kept[period as usize].into()
    }

    /// Returns true if no snapshots are taken.
    pub fn is_off(&self) -> bool {
        *self == SnapshotSchedule::OFF
    }

    /// Encodes the schedule as the number on disk and in recordings; 0 is the default.
    pub(crate) fn encode(self) -> u64 {
        self.kept.iter().rev().fold(0, |code, &kept| code << BITS | u64::from(kept))
    }

    /// Decodes a number of [`SnapshotSchedule::encode`]; `None` for a number that is never written.
    pub(crate) fn decode(code: u64) -> Option<SnapshotSchedule> {
        let mut kept = [0; Period::ALL.len()];
        for (at, kept) in kept.iter_mut().enumerate() {
            *kept = (code >> (at as u32 * BITS) & ((1 << BITS) - 1)) as u16;
        }
        let schedule = SnapshotSchedule { kept };
        let is_possible = kept.iter().all(|&kept| kept <= MOST) && kept.iter().sum::<u16>() <= MOST_OF_ALL;
        (is_possible && schedule.encode() == code).then_some(schedule)
    }
}

impl fmt::Display for SnapshotSchedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kept = Period::ALL.into_iter().filter(|&period| self.kept(period) > 0);
        let parts: Vec<String> = kept.map(|period| format!("{}:{}", period.name(), self.kept(period))).collect();
        f.write_str(if parts.is_empty() { "off".to_string() } else { parts.join(",") }.as_str())
    }
}

impl FromStr for SnapshotSchedule {
    type Err = BadSnapshotSchedule;

    /// Reads `off`, or numbers by period: `hourly:36,daily:30,monthly:3`.
    fn from_str(text: &str) -> Result<SnapshotSchedule, BadSnapshotSchedule> {
        if text == "off" {
            return Ok(SnapshotSchedule::OFF);
        }
        let mut kept = [0; Period::ALL.len()];
        for part in text.split(',') {
            let (name, number) = part.split_once(':').ok_or(BadSnapshotSchedule::Form)?;
            let period = Period::named(name).ok_or(BadSnapshotSchedule::Period)?;
            let is_number = (1..=4).contains(&number.len()) && number.bytes().all(|byte| byte.is_ascii_digit());
            let number = number.parse().ok().filter(|number| is_number && (1..=MOST).contains(number));
            let number = number.ok_or(BadSnapshotSchedule::Number)?;
            if core::mem::replace(&mut kept[period as usize], number) > 0 {
                return Err(BadSnapshotSchedule::Twice(period));
            }
        }
        let schedule = SnapshotSchedule { kept };
        if kept.iter().sum::<u16>() > MOST_OF_ALL { Err(BadSnapshotSchedule::TooMany) } else { Ok(schedule) }
    }
}

/// An error: a text does not name a schedule of snapshots.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BadSnapshotSchedule {
    /// It is neither `off` nor a list of periods with their numbers.
    Form,
    /// It names an unknown period.
    Period,
    /// A number is none that is possible.
    Number,
    /// It names a period twice.
    Twice(Period),
    /// Its numbers are more than a volume can have.
    TooMany,
}

impl core::error::Error for BadSnapshotSchedule {}

impl fmt::Display for BadSnapshotSchedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BadSnapshotSchedule::Form => f.write_str(
                "it is off, or the number of snapshots to keep of each period, such as hourly:36,daily:30,monthly:3",
            ),
            BadSnapshotSchedule::Period => {
                let names = Period::ALL.map(Period::name);
                let (last, others) = names.split_last().unwrap_or((&"", &[]));
                write!(f, "a period is {} or {last}", others.join(", "))
            }
            BadSnapshotSchedule::Number => {
                write!(
                    f,
                    "the number of snapshots to keep of a period is 1 to {MOST}; a period without a number is left out"
                )
            }
            BadSnapshotSchedule::Twice(period) => write!(f, "'{}' is named twice", period.name()),
            BadSnapshotSchedule::TooMany => write!(f, "a schedule keeps at most {MOST_OF_ALL} snapshots of a volume"),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_schedule_is_named_by_its_periods() {
        for (text, shown) in [
            ("off", "off"),
            ("hourly:36,daily:30,monthly:3", "hourly:36,daily:30,monthly:3"),
            ("yearly:1,frequently:1000", "frequently:1000,yearly:1"),
            ("weekly:0012", "weekly:12"),
        ] {
            let schedule: SnapshotSchedule = text.parse().unwrap();
            assert_eq!((schedule.to_string().as_str(), schedule.is_off()), (shown, text == "off"));
        }
        let schedule: SnapshotSchedule = "hourly:36,daily:30".parse().unwrap();
        assert_eq!(Period::ALL.map(|period| schedule.kept(period)), [0, 36, 30, 0, 0, 0]);
    }

    #[test]
    fn what_is_no_schedule_is_refused_with_the_reason() {
        for (text, reason) in [
            ("", "it is off"),
            ("on", "hourly:36"),
            ("hourly", "hourly:36"),
            ("hourly:", "1 to 1000"),
            ("hourly:0", "1 to 1000"),
            ("hourly:1001", "1 to 1000"),
            ("hourly:00001", "1 to 1000"),
            ("hourly:+1", "1 to 1000"),
            ("hourly:1,", "it is off"),
            ("minutely:1", "frequently, hourly, daily, weekly, monthly or yearly"),
            ("off,hourly:1", "it is off"),
            ("hourly:1,hourly:2", "'hourly' is named twice"),
            ("frequently:1000,hourly:1000,daily:1000,weekly:1000,monthly:1", "at most 4000"),
        ] {
            let error = text.parse::<SnapshotSchedule>().unwrap_err().to_string();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }

    proptest! {
        /// Checks that any number is refused, or is a schedule that is written as it was read, by its number and by its text.
        #[test]
        fn a_number_is_a_schedule_or_is_refused(
            code in prop_oneof![any::<u64>(), prop::array::uniform6(0..1010u64).prop_map(|kept| kept.iter().fold(0, |code, kept| code << 10 | kept))],
        ) {
            if let Some(schedule) = SnapshotSchedule::decode(code) {
                prop_assert_eq!(schedule.encode(), code);
                prop_assert_eq!(schedule.to_string().parse(), Ok(schedule));
            }
        }
    }
}
