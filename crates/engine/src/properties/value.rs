//! The types of values, each with its code and its text form.

use alloc::format;
use alloc::string::{String, ToString};
use core::fmt::Display;
use core::str::FromStr;

use super::byte_size::{exact, parse_large};
use super::cache::CacheSetting;
use super::defrag::DefragSetting;
use super::flash::FlashPolicy;
use super::policy::Policy;
use super::schedule::Schedule;
use super::timing::{Goal, Timing};

/// Text that resets a value which has a default of the program's.
const DEFAULT: &str = "default";
/// Text of a value that allows nothing.
const OFF: &str = "off";

/// Code of a value on disk and in recordings.
pub(crate) type Code = u128;

/// Type of the values of a property. The code 0 is the default: a superblock that was written before the property existed has it.
pub(crate) trait PropertyValue: Copy + PartialEq {
    /// Returns the code on disk and in recordings.
    fn encode(self) -> Code;
    /// Returns the value with this code, or the reason why there is none.
    fn decode(code: Code) -> Result<Self, &'static str>;
    /// Reads the text form; an error is the reason, as it follows `NAME=TEXT is not possible: `.
    fn parse(text: &str) -> Result<Self, String>;
    /// Returns the text form, which [`PropertyValue::parse`] reads.
    fn text(self) -> String;
}

/// Reads a value by its type's own text form.
pub(super) fn parse_own<T: FromStr<Err: Display>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|error: T::Err| error.to_string())
}

/// A switch.
impl PropertyValue for bool {
    fn encode(self) -> Code {
        self.into()
    }

    fn decode(code: Code) -> Result<bool, &'static str> {
        match code {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err("a switch is neither on nor off"),
        }
    }

    fn parse(text: &str) -> Result<bool, String> {
        match text {
            "on" => Ok(true),
            OFF => Ok(false),
            _ => Err("it is on or off".into()),
        }
    }

    fn text(self) -> String {
        if self { "on" } else { OFF }.into()
    }
}

/// A number of references; 0 is off.
impl PropertyValue for u32 {
    fn encode(self) -> Code {
        self.into()
    }

    fn decode(code: Code) -> Result<u32, &'static str> {
        code.try_into().map_err(|_| "a number of references is too large")
    }

    fn parse(text: &str) -> Result<u32, String> {
        let above = if text == OFF { Some(0) } else { text.parse().ok().filter(|&above| above > 0) };
        above.ok_or_else(|| "it is a number of references, such as 16, or off".into())
    }

    fn text(self) -> String {
        if self == 0 { OFF.into() } else { self.to_string() }
    }
}

/// A size that cannot be none; 0 is the default of the program.
impl PropertyValue for u64 {
    fn encode(self) -> Code {
        self.into()
    }

    fn decode(code: Code) -> Result<u64, &'static str> {
        code.try_into().map_err(|_| "a size is too large")
    }

    fn parse(text: &str) -> Result<u64, String> {
        match text {
            DEFAULT => Ok(0),
            _ => match parse_large(text)? {
                0 => Err("it is a size, such as 2G, or default".into()),
                bytes => Ok(bytes),
            },
        }
    }

    fn text(self) -> String {
        if self == 0 { DEFAULT.into() } else { exact(self) }
    }
}

/// An upper bound in bytes, 0 for nothing; `None` is the default of the program. Codes have it plus one, so the greatest is `u64::MAX - 1`.
impl PropertyValue for Option<u64> {
    fn encode(self) -> Code {
        self.map_or(0, |bytes| bytes.saturating_add(1).into())
    }

    fn decode(code: Code) -> Result<Option<u64>, &'static str> {
        u64::decode(code).map(|code| code.checked_sub(1))
    }

    fn parse(text: &str) -> Result<Option<u64>, String> {
        match text {
            DEFAULT => Ok(None),
            OFF => Ok(Some(0)),
            _ => parse_large(text).map(Some).map_err(|error| format!("{error}, off or default")),
        }
    }

    fn text(self) -> String {
        match self {
            None => DEFAULT.into(),
            Some(0) => OFF.into(),
            Some(bytes) => exact(bytes),
        }
    }
}

/// The policy that a volume has, or that volumes without one have; `None` for the one above it. The code has the policy's number plus one in its lowest byte,
/// and the threshold in the next.
impl PropertyValue for Option<Policy> {
    fn encode(self) -> Code {
        self.map_or(0, |policy| {
            let (number, threshold) = policy.encode();
            Code::from(number + 1) | Code::from(threshold) << 8
        })
    }

    fn decode(code: Code) -> Result<Option<Policy>, &'static str> {
        let [number, threshold, ..] = code.to_le_bytes();
        let Some(number) = number.checked_sub(1) else { return Ok(None) };
        let policy = Policy::decode(number, threshold).filter(|_| code >> 16 == 0);
        policy.map(Some).ok_or("the pool's policy does not exist, or not with its threshold")
    }

    fn parse(text: &str) -> Result<Option<Policy>, String> {
        match text {
            "inherit" => Ok(None),
            _ => text.parse().map(Some).map_err(|error| format!("{error}; or inherit")),
        }
    }

    fn text(self) -> String {
        self.map_or_else(|| "inherit".into(), |policy| policy.to_string())
    }
}

/// The setting of index and read cache; `None` is the default of the program.
impl PropertyValue for Option<CacheSetting> {
    fn encode(self) -> Code {
        self.map_or(0, |setting| setting.encode().into())
    }

    fn decode(code: Code) -> Result<Option<CacheSetting>, &'static str> {
        if code == 0 {
            return Ok(None);
        }
        let setting = u32::try_from(code).ok().and_then(CacheSetting::decode);
        setting.map(Some).ok_or("how index and read cache share memory is of an unknown kind")
    }

    fn parse(text: &str) -> Result<Option<CacheSetting>, String> {
        match text {
            DEFAULT => Ok(None),
            _ => text.parse().map(Some).map_err(|error| format!("{error}, or default")),
        }
    }

    fn text(self) -> String {
        self.map_or_else(|| DEFAULT.into(), |setting| setting.to_string())
    }
}

impl PropertyValue for DefragSetting {
    fn encode(self) -> Code {
        DefragSetting::encode(self).into()
    }

    fn decode(code: Code) -> Result<DefragSetting, &'static str> {
        code.try_into().map(DefragSetting::decode).map_err(|_| "the amount that defragmentation moves is too large")
    }

    fn parse(text: &str) -> Result<DefragSetting, String> {
        match text {
            "auto" => Ok(DefragSetting::Auto),
            OFF => Ok(DefragSetting::Off),
            _ => match parse_large(text) {
                Ok(0) => Err("to move nothing, say defrag=off".into()),
                // Rounded as on disk: smaller amounts have no text form.
                Ok(bytes) => Ok(DefragSetting::decode(DefragSetting::PerDay(bytes).encode())),
                Err(error) => Err(format!("{error} (moved at most in a day); or auto, or off")),
            },
        }
    }

    fn text(self) -> String {
        match self {
            DefragSetting::Auto => "auto".into(),
            DefragSetting::Off => OFF.into(),
            DefragSetting::PerDay(bytes) => exact(bytes),
        }
    }
}

impl PropertyValue for Schedule {
    fn encode(self) -> Code {
        Schedule::encode(self).into()
    }

    fn decode(code: Code) -> Result<Schedule, &'static str> {
        let schedule = u64::try_from(code).ok().and_then(Schedule::decode);
        schedule.ok_or("when a plan of relocation is run is of an unknown kind")
    }

    fn parse(text: &str) -> Result<Schedule, String> {
        parse_own(text)
    }

    fn text(self) -> String {
        self.to_string()
    }
}

impl PropertyValue for FlashPolicy {
    fn encode(self) -> Code {
        FlashPolicy::encode(self).into()
    }

    fn decode(code: Code) -> Result<FlashPolicy, &'static str> {
        let policy = u32::try_from(code).ok().and_then(FlashPolicy::decode);
        policy.ok_or("which containers are copied to flash is decided in an unknown way")
    }

    fn parse(text: &str) -> Result<FlashPolicy, String> {
        parse_own(text)
    }

    fn text(self) -> String {
        self.to_string()
    }
}

/// The timing of a volume; `None` until it is set, and then it follows from the policy. No text resets it.
impl PropertyValue for Option<Timing> {
    fn encode(self) -> Code {
        self.map_or(0, |timing| 1 + timing.encode())
    }

    fn decode(code: Code) -> Result<Option<Timing>, &'static str> {
        code.checked_sub(1).map(Timing::decode).transpose()
    }

    fn parse(text: &str) -> Result<Option<Timing>, String> {
        Timing::parse(text).map(Some)
    }

    fn text(self) -> String {
        self.map_or_else(|| DEFAULT.into(), PropertyValue::text)
    }
}

/// The code has the kind in its lowest byte, and the amount behind it.
impl PropertyValue for Goal {
    fn encode(self) -> Code {
        let (kind, amount) = Goal::encode(self);
        Code::from(kind) | Code::from(amount) << 8
    }

    fn decode(code: Code) -> Result<Goal, &'static str> {
        let goal = u64::try_from(code >> 8).ok().and_then(|amount| Goal::decode(code as u8, amount));
        goal.ok_or("a goal is of an unknown kind")
    }

    fn parse(text: &str) -> Result<Goal, String> {
        parse_own(text)
    }

    fn text(self) -> String {
        self.to_string()
    }
}
