//! The admission policy of a flash cache, as a property of the pool.

use alloc::format;
use alloc::string::String;
use core::fmt;
use core::str::FromStr;

/// The greatest factor of the in-out comparison, in tenths.
const MOST_TENTHS: u16 = 1000;
/// The bit of [`FlashPolicy::encode`] for the paper's policy.
const PAPER: u32 = 1 << 31;

/// Policy that selects which containers are copied to flash. Written `budget`, `paper`, or `paper:` and any of `filter=N`, `delay=N` and `comparison=M`, each
/// also `off`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum FlashPolicy {
    /// Ours: the threshold rises as the write budget of the day is used up.
    #[default]
    Budget,
    /// PLC-Cache's three modules (MSST 2014).
    Paper(PaperModules),
}

/// PLC-Cache's modules and their parameters; 0 switches one off.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PaperModules {
    /// Popularity filter: accesses from which on a container passes (the slides' PF.thr).
    pub filter: u8,
    /// Delayed eviction: offers until a victim goes (the slides' delay_count).
    pub delay: u8,
    /// In-out comparison: the slides' IOC.m, in tenths; 0 or 10 to 1000.
    pub comparison: u16,
}

impl PaperModules {
    /// PF.thr of the slides and the m of their example. The slides do not give the initial delay_count.
    pub const SLIDES: PaperModules = PaperModules { filter: 5, delay: 3, comparison: 15 };
}

impl Default for PaperModules {
    fn default() -> PaperModules {
        PaperModules::SLIDES
    }
}

impl FlashPolicy {
    /// Encodes the policy in four bytes; 0 is the default.
    pub(crate) fn encode(self) -> u32 {
        match self {
            FlashPolicy::Budget => 0,
            FlashPolicy::Paper(PaperModules { filter, delay, comparison }) => {
                PAPER | u32::from(filter) | u32::from(delay) << 8 | u32::from(comparison) << 16
            }
        }
    }

    /// Decodes a number of [`FlashPolicy::encode`]; `None` for numbers that it never gives.
    pub(crate) fn decode(code: u32) -> Option<FlashPolicy> {
        if code == 0 {
            return Some(FlashPolicy::Budget);
        }
        let comparison = (code >> 16 & 0x7fff) as u16;
        let modules = PaperModules { filter: code as u8, delay: (code >> 8) as u8, comparison };
        let is_possible = code & PAPER != 0 && (comparison == 0 || (10..=MOST_TENTHS).contains(&comparison));
        is_possible.then_some(FlashPolicy::Paper(modules))
    }
}

impl fmt::Display for FlashPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let FlashPolicy::Paper(modules) = self else { return f.pad("budget") };
        let PaperModules { filter, delay, comparison } = *modules;
        if *modules == PaperModules::default() {
            return f.pad("paper");
        }
        let count = |count: u8| if count == 0 { String::from("off") } else { format!("{count}") };
        let factor = match comparison {
            0 => String::from("off"),
            _ => format!("{}.{}", comparison / 10, comparison % 10),
        };
        f.pad(&format!("paper:filter={},delay={},comparison={factor}", count(filter), count(delay)))
    }
}

impl FromStr for FlashPolicy {
    type Err = BadFlashPolicy;

    /// Reads the form that [`FlashPolicy`] describes; a module that is not named has the paper's parameter.
    fn from_str(text: &str) -> Result<FlashPolicy, BadFlashPolicy> {
        match text.split_once(':') {
            None if text == "budget" => Ok(FlashPolicy::Budget),
            None if text == "paper" => Ok(FlashPolicy::Paper(PaperModules::default())),
            Some(("paper", modules)) => parse_modules(modules).map(FlashPolicy::Paper).ok_or(BadFlashPolicy),
            _ => Err(BadFlashPolicy),
        }
    }
}

fn parse_modules(text: &str) -> Option<PaperModules> {
    let mut modules = PaperModules::default();
    let mut named = [false; 3];
    for module in text.split(',') {
        let (name, value) = module.split_once('=')?;
        let count = || if value == "off" { Some(0) } else { value.parse().ok().filter(|&count: &u8| count > 0) };
        let at = match name {
            "filter" => {
                modules.filter = count()?;
                0
            }
            "delay" => {
                modules.delay = count()?;
                1
            }
            "comparison" => {
                modules.comparison = if value == "off" { 0 } else { parse_tenths(value)? };
                2
            }
            _ => return None,
        };
        if core::mem::replace(&mut named[at], true) {
            return None;
        }
    }
    Some(modules)
}

/// Reads a factor of 1 to 100 with at most one decimal.
fn parse_tenths(text: &str) -> Option<u16> {
    let (whole, tenth) = text.split_once('.').unwrap_or((text, "0"));
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|digit| digit.is_ascii_digit());
    if !is_number(whole) || !is_number(tenth) || tenth.len() > 1 {
        return None;
    }
    let tenths = whole.parse::<u16>().ok()?.checked_mul(10)?.checked_add(tenth.parse().ok()?)?;
    (10..=MOST_TENTHS).contains(&tenths).then_some(tenths)
}

/// An error: a text is no policy of a flash cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BadFlashPolicy;

impl core::error::Error for BadFlashPolicy {}

impl fmt::Display for BadFlashPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "it is budget, paper, or paper: and any of filter=1 to 255, delay=1 to 255 and comparison=1 to 100 (one decimal), each \
             also off, such as paper:filter=3,delay=off",
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    fn read(text: &str) -> Option<FlashPolicy> {
        text.parse().ok()
    }

    #[test]
    fn a_policy_reads_back_as_it_is_written_and_encoded() {
        for (text, written) in [
            ("budget", "budget"),
            ("paper", "paper"),
            ("paper:filter=5", "paper"),
            ("paper:comparison=1.5,delay=3", "paper"),
            ("paper:filter=3", "paper:filter=3,delay=3,comparison=1.5"),
            ("paper:delay=off", "paper:filter=5,delay=off,comparison=1.5"),
            ("paper:comparison=2", "paper:filter=5,delay=3,comparison=2.0"),
            ("paper:filter=off,comparison=off,delay=off", "paper:filter=off,delay=off,comparison=off"),
            ("paper:filter=255,delay=255,comparison=100", "paper:filter=255,delay=255,comparison=100.0"),
        ] {
            let policy = read(text).unwrap_or_else(|| panic!("{text}"));
            assert_eq!(policy.to_string(), written);
            assert_eq!((read(written), FlashPolicy::decode(policy.encode())), (Some(policy), Some(policy)), "{text}");
        }
    }

    #[test]
    fn what_is_no_policy_is_refused() {
        for text in [
            "",
            "budget:",
            "budget:filter=1",
            "paper:",
            "paper:filter",
            "paper:filter=0",
            "paper:filter=256",
            "paper:delay=-1",
            "paper:comparison=0.9",
            "paper:comparison=1.55",
            "paper:comparison=100.1",
            "paper:comparison=.5",
            "paper:comparison=1.",
            "paper:filter=1,filter=2",
            "paper:m=2",
            "paper,filter=1",
            "Paper",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
        for code in [1, 1 << 30, PAPER | 9 << 16, PAPER | 1001 << 16, u32::MAX] {
            assert_eq!(FlashPolicy::decode(code), None, "{code:x}");
        }
    }
}
