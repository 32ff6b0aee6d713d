//! The schedule of automatic jobs of the server: never, whenever it finds the pool idle, or in some hours of the day. The engine stores the setting,
//! and has no time of day: its driver decides.

use core::fmt;
use core::str::FromStr;

/// Hours of a day.
const DAY: u8 = 24;
/// The numbers on disk and in recordings of hours: this, the first hour times [`DAY`], and the hour at which they end.
const HOURS: u16 = 2;

/// Times at which a job begins without a command.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Schedule {
    /// Never.
    #[default]
    Off,
    /// Whenever it is worth it and the pool is idle.
    Auto,
    /// Within these hours, when it is worth it.
    Hours(Hours),
}

/// Hours of the day, in the local time of the engine's driver. They may go past midnight; they are never none and never all.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Hours {
    from: u8,
    until: u8,
}

impl Hours {
    /// Makes the hours from the beginning of one hour until that of another, 0 to 23; `None` if both are the same or one is no hour.
    pub fn new(from: u8, until: u8) -> Option<Hours> {
        (from < DAY && until < DAY && from != until).then_some(Hours { from, until })
    }

    /// Returns true if this hour, 0 to 23, is one of them.
    pub fn has(self, hour: u8) -> bool {
        let after = |hour: u8| (hour + DAY - self.from) % DAY;
        after(hour) < after(self.until)
    }
}

impl Schedule {
    /// Encodes the schedule as the number on disk and in recordings; 0 is the default.
    pub(crate) fn encode(self) -> u16 {
        match self {
            Schedule::Off => 0,
            Schedule::Auto => 1,
            Schedule::Hours(Hours { from, until }) => HOURS + u16::from(from) * u16::from(DAY) + u16::from(until),
        }
    }

    /// Decodes a number of [`Schedule::encode`]; `None` for a number that is never written.
    pub(crate) fn decode(code: u64) -> Option<Schedule> {
        match code {
            0 => Some(Schedule::Off),
            1 => Some(Schedule::Auto),
            code => {
                let hours = u16::try_from(code).ok()? - HOURS;
                let (from, until) = (hours / u16::from(DAY), hours % u16::from(DAY));
                Hours::new(from.try_into().ok()?, until as u8).map(Schedule::Hours)
            }
        }
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Schedule::Off => f.write_str("off"),
            Schedule::Auto => f.write_str("auto"),
            Schedule::Hours(Hours { from, until }) => write!(f, "{from:02}-{until:02}"),
        }
    }
}

impl FromStr for Schedule {
    type Err = BadSchedule;

    /// Reads `auto`, `off`, or hours: `22-06`. Hours may also end at 24.
    fn from_str(text: &str) -> Result<Schedule, BadSchedule> {
        match text {
            "off" => return Ok(Schedule::Off),
            "auto" => return Ok(Schedule::Auto),
            _ => {}
        }
        let hour = |text: &str| -> Option<u8> {
            let is_one = (1..=2).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
            text.parse().ok().filter(|_| is_one)
        };
        let (from, until) = text.split_once('-').ok_or(BadSchedule)?;
        let (from, until) = (hour(from).ok_or(BadSchedule)?, hour(until).ok_or(BadSchedule)?);
        let until = if until == DAY { 0 } else { until };
        Hours::new(from, until).map(Schedule::Hours).ok_or(BadSchedule)
    }
}

/// An error: a text does not name a schedule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BadSchedule;

impl core::error::Error for BadSchedule {}

impl fmt::Display for BadSchedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("it is auto, off, or two different hours of the day, such as 22-06")
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    #[test]
    fn a_schedule_reads_back_as_written() {
        for (text, shown) in
            [("off", "off"), ("auto", "auto"), ("22-06", "22-06"), ("1-5", "01-05"), ("20-24", "20-00")]
        {
            let schedule: Schedule = text.parse().unwrap();
            assert_eq!(schedule.to_string(), shown);
            assert_eq!(Schedule::decode(schedule.encode().into()), Some(schedule));
        }
        let hours = (0..24).flat_map(|from| (0..24).map(move |until| (from, until)));
        for hours in hours.filter_map(|(from, until)| Hours::new(from, until)) {
            assert_eq!(Schedule::decode(Schedule::Hours(hours).encode().into()), Some(Schedule::Hours(hours)));
        }
    }

    #[test]
    fn what_is_no_schedule_is_refused() {
        for text in
            ["", "on", "6", "22", "22-", "-6", "22-22", "0-24", "24-6", "22-25", "2 - 6", "022-06", "+2-06", "2-6-9"]
        {
            assert_eq!(text.parse::<Schedule>(), Err(BadSchedule), "{text}");
        }
        // 00-00, an hour that does not exist, and a number that two bytes cannot hold.
        assert_eq!([2, 2 + 24 * 24, u64::from(u16::MAX), 1 << 16].map(Schedule::decode), [None; 4]);
    }

    #[test]
    fn hours_may_go_past_midnight() {
        let of = |from, until| {
            let hours = Hours::new(from, until).unwrap();
            (0..24).filter(|&hour| hours.has(hour)).collect::<alloc::vec::Vec<u8>>()
        };
        assert_eq!(of(22, 2), [0, 1, 22, 23]);
        assert_eq!(of(1, 3), [1, 2]);
        assert_eq!(of(20, 0), [20, 21, 22, 23]);
        assert_eq!(of(5, 4).len(), 23);
    }
}
