//! Sizes in bytes as text, for people: powers of 1024.

use alloc::format;
use alloc::string::{String, ToString};

/// Reads a size: a number of bytes, or one with K, M, G, T, P (also KiB, KB, ...), all powers of 1024.
pub fn parse(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = (&text[..digits], text[digits..].trim());
    let shift = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        "p" | "pb" | "pib" => 50,
        _ => return Err(format!("'{unit}' is not a unit: use K, M, G, T or P (powers of 1024), like 10G or 512MiB")),
    };
    let bad = || format!("'{text}' is not a size: write it like 10G, 512MiB or 4096");
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let whole: u64 = whole.parse().map_err(|_| bad())?;
    let bytes = whole.checked_mul(1 << shift).ok_or_else(|| format!("'{text}' is too large"))?;
    if fraction.is_empty() {
        return if number.ends_with('.') { Err(bad()) } else { Ok(bytes) };
    }
    // 1.5G: exact in integers, to nine digits.
    if shift == 0 || fraction.len() > 9 {
        return Err(bad());
    }
    let part: u64 = fraction.parse().map_err(|_| bad())?;
    let part = (u128::from(part) << shift) / 10u128.pow(fraction.len() as u32);
    bytes.checked_add(part as u64).ok_or_else(|| format!("'{text}' is too large"))
}

/// Sizes below this are meant with a unit, for whole devices and memories.
const SMALL: u64 = 1 << 20;

/// Reads the size of something large: a capacity, a memory, a budget. A small number without a unit is refused, since `10` is meant as `10G` more often than as
/// 10 bytes. (The caller judges 0.)
pub fn parse_large(text: &str) -> Result<u64, String> {
    let bytes = parse(text)?;
    let has_unit = text.contains(|c: char| c.is_ascii_alphabetic());
    if has_unit || bytes == 0 || bytes >= SMALL {
        return Ok(bytes);
    }
    Err(format!("a number without a unit counts bytes, and {} are too few: add a unit, such as {bytes}G", show(bytes)))
}

/// Returns the part of a message that advises on units for a size that is too small; empty for other sizes.
pub fn unit_advice(bytes: u64) -> &'static str {
    if (1..SMALL).contains(&bytes) { ". A number without a unit counts bytes; 10G are 10 GiB" } else { "" }
}

/// Writes a size for people: `10 GiB`, `1.5 MiB`, `512 bytes`.
pub fn show(bytes: u64) -> String {
    let units = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return if bytes == 1 { "1 byte".into() } else { format!("{bytes} bytes") };
    }
    let mut power = bytes.ilog2() / 10;
    let mut tenths = scaled_tenths(bytes, power);
    if tenths >= 10240 && (power as usize) < units.len() {
        power += 1;
        tenths = scaled_tenths(bytes, power);
    }
    let unit = units[power as usize - 1];
    if tenths.is_multiple_of(10) {
        format!("{} {unit}", tenths / 10)
    } else {
        format!("{}.{} {unit}", tenths / 10, tenths % 10)
    }
}

/// Writes a size exactly, in the largest unit (K, M, G or T) of which it is a whole number. [`parse`] reads it.
pub fn exact(bytes: u64) -> String {
    let unit =
        ["", "K", "M", "G", "T"].iter().enumerate().rev().find(|(power, _)| bytes.is_multiple_of(1 << (10 * power)));
    unit.map_or_else(|| bytes.to_string(), |(power, unit)| format!("{}{unit}", bytes >> (10 * power)))
}

/// Tenths of 1024^power in `bytes`, rounded.
fn scaled_tenths(bytes: u64, power: u32) -> u64 {
    let unit = 1u128 << (10 * power);
    ((u128::from(bytes) * 10 + unit / 2) / unit) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_in_powers_of_1024() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("4k", 4096),
            ("512MiB", 512 << 20),
            ("512 mb", 512 << 20),
            ("10G", 10 << 30),
            ("1.5G", 3 << 29),
            ("2T", 2 << 40),
            (" 1P ", 1 << 50),
        ] {
            assert_eq!(parse(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn what_is_no_size_is_refused() {
        for text in
            ["", "G", "-1G", "ten", "1X", "1.G", "1.5", ".5G", "1..5G", "99999999999G", "18446744073709551616", "1,5G"]
        {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_small_number_without_a_unit_is_no_capacity() {
        for text in ["1", "10", "4096", "1048575"] {
            let refused = parse_large(text).unwrap_err();
            assert!(refused.contains(&format!("such as {text}G")), "{refused}");
        }
        for (text, bytes) in [("0", 0), ("1048576", 1 << 20), ("10G", 10 << 30), ("4K", 4096), ("10b", 10)] {
            assert_eq!(parse_large(text), Ok(bytes), "{text}");
        }
        assert!(unit_advice(10).contains("10 GiB") && unit_advice(0).is_empty() && unit_advice(1 << 20).is_empty());
    }

    #[test]
    fn sizes_are_shown_for_people() {
        for (bytes, text) in [
            (0, "0 bytes"),
            (1, "1 byte"),
            (1023, "1023 bytes"),
            (1024, "1 KiB"),
            (1536, "1.5 KiB"),
            (10 << 30, "10 GiB"),
            ((1 << 20) - 1, "1 MiB"),
            (u64::MAX, "16 EiB"),
        ] {
            assert_eq!(show(bytes), text, "{bytes}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_read_or_refused_without_a_panic(text in ".{0,24}") {
            let _ = parse(&text);
        }

        #[test]
        fn a_whole_number_of_bytes_reads_back(bytes: u64) {
            proptest::prop_assert_eq!(parse(&bytes.to_string()), Ok(bytes));
            proptest::prop_assert_eq!(parse(&exact(bytes)), Ok(bytes));
            proptest::prop_assert!(!show(bytes).is_empty());
        }
    }
}
