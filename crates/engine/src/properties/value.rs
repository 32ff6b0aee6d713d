//! The types of values, each with its code and its text form.

use alloc::format;
use alloc::string::{String, ToString};
use core::fmt::Display;
use core::str::FromStr;

use super::byte_size::{exact, parse_large};
use super::cache::CacheSetting;
use super::defrag::DefragSetting;
use super::discard::DiscardSetting;
use super::flash::FlashPolicy;
use super::policy::Policy;
use super::schedule::Schedule;
use super::snapshot_schedule::SnapshotSchedule;
use super::timing::{Goal, Timing};

/// Text that resets a value which has a default of the program's.
const DEFAULT: &str = "default";
/// Text of a value that allows nothing.
const OFF: &str = "off";

/// Code of a value on disk and in recordings.
pub(crate) type Code = u128;

/// Form of a value as text, for the page of reference. Capitals and brackets stand for parts of the text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ValueForm {
    /// Text as it is set.
    pub text: &'static str,
    /// Meaning, with the bounds: sentences.
    pub meaning: &'static str,
}

/// Makes a form of a value.
const fn form(text: &'static str, meaning: &'static str) -> ValueForm {
    ValueForm { text, meaning }
}

/// Type of the values of a property. The code 0 is the default: a superblock that was written before the property existed has it.
pub(crate) trait PropertyValue: Copy + PartialEq {
    /// Forms of the values as text.
    const FORMS: &'static [ValueForm];
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
    const FORMS: &'static [ValueForm] = &[form("on", "It is on."), form("off", "It is off.")];

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
    const FORMS: &'static [ValueForm] = &[form("N", "Number of references, 1 to 4294967295."), form("off", "None.")];

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
    const FORMS: &'static [ValueForm] = &[
        form("SIZE", "A size above 0. A number below 1M needs a unit."),
        form("default", "The default of the program."),
    ];

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
    const FORMS: &'static [ValueForm] = &[
        form("SIZE", "At most this size. A number below 1M needs a unit."),
        form("off", "Nothing."),
        form("default", "The default of the program."),
    ];

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
    const FORMS: &'static [ValueForm] = &[
        form("native", "Shares nothing, and looks nothing up."),
        form(
            "observe",
            "Shares nothing at a write, and counts the blocks that other policies would share. A pass shares them as with `select`.",
        ),
        form("full", "Shares every known block."),
        form(
            "select[:T[,run|,request]]",
            "Shares requests that are known as a whole and sequential on disk. Of others it shares runs of at least T known blocks, or, with `request`, all known blocks if there are at least T. T is 1 to 255, and 3 by default.",
        ),
        form("idedup[:T]", "Shares runs of at least T known blocks. T is 1 to 255, and 4 by default."),
        form("inherit", "The policy of the pool; for the pool itself `select`."),
    ];

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
    const FORMS: &'static [ValueForm] = &[
        form("adaptive", "Moves memory by the hits that each partition would have had."),
        form("adaptive:paper", "Moves memory by POD's Algorithm 1."),
        form("fixed:PERCENT", "Gives this percentage to the index, 0 to 100."),
        form("index", "Gives everything to the index: `fixed:100`."),
        form("read", "Gives everything to the read cache: `fixed:0`."),
        form("FORM,lru", "Any of these forms, with LRU in place of ARC in the read cache."),
        form("default", "The default of the program: `adaptive`."),
    ];

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
    const FORMS: &'static [ValueForm] = &[
        form(
            "auto",
            "Moves data that was there when the pool was opened once, and at most 1.5 blocks for each block written.",
        ),
        form("off", "Moves nothing."),
        form("SIZE", "Moves at most this size a day, rounded up to 1M. A number below 1M needs a unit."),
    ];

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

impl PropertyValue for DiscardSetting {
    const FORMS: &'static [ValueForm] = &[
        form("on", "Discards every empty container, but for a few that the next writes take."),
        form("off", "Discards nothing."),
        form(
            "SIZE",
            "Discards empty ranges of this size that begin at its multiples on the store. It is rounded up to a power of two, 1M to 1G. A number below 1M needs a unit.",
        ),
    ];

    fn encode(self) -> Code {
        DiscardSetting::encode(self).into()
    }

    fn decode(code: Code) -> Result<DiscardSetting, &'static str> {
        let setting = u8::try_from(code).ok().and_then(DiscardSetting::decode);
        setting.ok_or("what is discarded is of an unknown kind")
    }

    fn parse(text: &str) -> Result<DiscardSetting, String> {
        match text {
            "on" => Ok(DiscardSetting::On),
            OFF => Ok(DiscardSetting::Off),
            _ => match parse_large(text) {
                Ok(0) => Err("to discard nothing, say discard=off".into()),
                Ok(bytes) => DiscardSetting::units(bytes).ok_or_else(|| "at most 1G is discarded at once".into()),
                Err(error) => Err(format!("{error} (discarded at once); or on, or off")),
            },
        }
    }

    fn text(self) -> String {
        match self {
            DiscardSetting::On => "on".into(),
            DiscardSetting::Off => OFF.into(),
            DiscardSetting::Units(bytes) => exact(bytes),
        }
    }
}

impl PropertyValue for Schedule {
    const FORMS: &'static [ValueForm] = &[
        form("off", "Never."),
        form("auto", "Whenever it is worth it and the pool is idle."),
        form(
            "HH-HH",
            "Within these hours of the day, in local time, such as `22-06`: from the beginning of the first until that of the second. Hours are 0 to 23, the second also 24, and differ.",
        ),
    ];

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

impl PropertyValue for SnapshotSchedule {
    const FORMS: &'static [ValueForm] = &[
        form("off", "None are taken. Those taken before stay."),
        form(
            "PERIOD:N[,PERIOD:N...]",
            "Takes one at the beginning of each period and keeps the newest N of it. A period is `frequently` (a quarter of an hour), `hourly`, `daily`, `weekly` (from Monday on), `monthly` or `yearly`, by UTC. N is 1 to 1000; together at most 4000.",
        ),
    ];

    fn encode(self) -> Code {
        SnapshotSchedule::encode(self).into()
    }

    fn decode(code: Code) -> Result<SnapshotSchedule, &'static str> {
        let schedule = u64::try_from(code).ok().and_then(SnapshotSchedule::decode);
        schedule.ok_or("a schedule of snapshots keeps more than a volume can have")
    }

    fn parse(text: &str) -> Result<SnapshotSchedule, String> {
        parse_own(text)
    }

    fn text(self) -> String {
        self.to_string()
    }
}

impl PropertyValue for FlashPolicy {
    const FORMS: &'static [ValueForm] = &[
        form("budget", "Raises the threshold as the write budget of the day is used up."),
        form("paper", "Runs PLC-Cache's three modules: filter=5, delay=3, comparison=1.5."),
        form(
            "paper:filter=N,delay=N,comparison=M",
            "Runs these modules with other parameters: any of the three, in any order. N is 1 to 255, M is 1 to 100 with at most one decimal; each may be `off`.",
        ),
    ];

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
    const FORMS: &'static [ValueForm] = Timing::FORMS;

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
    const FORMS: &'static [ValueForm] = &[
        form("none", "No goal: the usual p99 of the pool is protected."),
        form("Niops", "Requests a second, at least 1."),
        form("NMiB/s", "Bytes a second, at least 1. Units: `B/s`, `KiB/s`, `MiB/s`, `GiB/s`."),
        form("p99=Nms", "Latency that 99 of 100 requests do not exceed, at least 1 ns. Units: `s`, `ms`, `us`, `ns`."),
    ];

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
