//! Parser of the FIU traces (I/O Deduplication, FAST '10) with their digests.
//!
//! ```text
//! 777599999908936 2552 kjournald 160806224 8 W 6 0 3f4fc2833a17fd2a3dacad7c0e8ca8ad...
//! ```
//!
//! Fields: time in ns since 1 November 2008, process and its name, first sector, sectors, R or W, major and minor number of the device, digest in hex. The
//! digest is the MD5 of each 4 KiB (mail, web-vm) or of each 512 bytes (homes), one after another. Blanks separate fields, as in the SNIA files. In files
//! written by pandas, tabs separate them; each row begins with its number, and the first row has headings. Some sets have no digests. The name of a process may
//! contain blanks.

use super::record::{Line, Parsed, Record, SECTOR, content, number};
use super::{BLOCK, ContentId, ZEROES};
use sim::random::mix;

/// Hex digits of a digest.
const DIGITS: usize = 32;
const SECTORS: usize = (BLOCK / SECTOR) as usize;

/// MD5 of 512 bytes of zeroes.
const ZERO_SECTOR: &str = "bf619eac0cdf3f68d496ea9344137e8b";

/// MD5 of 4 KiB of zeroes, and the value that the authors' own page gives for it.
pub(super) const ZERO_BLOCKS: [&str; 2] = ["620f0b67a91f7f74151bc5be745b7110", "3df1244f6143869f52abf2a1d73d0c0f"];

/// Parses a line; `is_first` of its file.
pub(super) fn line(text: &str, is_first: bool) -> Parsed {
    if is_first && text.starts_with('\t') {
        return Ok(Line::Other);
    }
    let mut fields: Vec<&str> = match text.contains('\t') {
        true => text.split('\t').map(str::trim).collect(),
        false => text.split_ascii_whitespace().collect(),
    };
    if text.contains('\t') && fields.len() == 10 {
        fields.remove(0);
    }
    let is_op = |field: &str| matches!(field, "R" | "W" | "r" | "w");
    // From the end, because of the blanks in names.
    let count = fields.len();
    let digests = match (count.checked_sub(4), count.checked_sub(3)) {
        (Some(op), _) if op >= 5 && is_op(fields[op]) => fields.pop().unwrap_or_default(),
        (_, Some(op)) if op >= 5 && is_op(fields[op]) => "",
        _ => return Err("'time process name sector sectors R|W major minor digests'"),
    };
    let op = fields.len() - 3;
    let numbers =
        (number(Some(fields[0])), number(Some(fields[1])), number(Some(fields[op - 2])), number(Some(fields[op - 1])));
    let (Some(at), Some(process), Some(first), Some(sectors)) = numbers else {
        return Err("numbers as time, process, sector and sectors");
    };
    let mut record = Record::of_sectors(at, matches!(fields[op], "W" | "w"), first, sectors)?;
    record.process = process;
    record.contents = contents(digests, sectors as usize)?;
    Ok(Line::Record(record))
}

/// Parses the contents of the blocks. (A last part that is no whole block also has one, without use: such requests lose their contents.)
fn contents(digests: &str, sectors: usize) -> Result<Vec<ContentId>, &'static str> {
    if !digests.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return Err("digests in hex digits");
    }
    match digests.len() {
        0 => Ok(Vec::new()),
        length if length == sectors * DIGITS => Ok(pieces(digests, SECTORS * DIGITS).map(of_sectors).collect()),
        length if length == sectors.div_ceil(SECTORS) * DIGITS => Ok(pieces(digests, DIGITS).map(of_block).collect()),
        _ => Err("32 digits of digest for each 4 KiB, or for each 512 bytes"),
    }
}

/// Splits hex digits into pieces of `length`. Hex digits are ASCII, so every place is between characters.
fn pieces(digests: &str, length: usize) -> impl Iterator<Item = &str> {
    let count = digests.len().div_ceil(length);
    (0..count).map(move |piece| &digests[piece * length..digests.len().min((piece + 1) * length)])
}

fn of_block(digest: &str) -> ContentId {
    match ZERO_BLOCKS.iter().any(|zero| zero.eq_ignore_ascii_case(digest)) {
        true => ZEROES,
        false => content(first_half(digest)),
    }
}

fn of_sectors(digests: &str) -> ContentId {
    if pieces(digests, DIGITS).all(|digest| digest.eq_ignore_ascii_case(ZERO_SECTOR)) {
        return ZEROES;
    }
    content(pieces(digests, DIGITS).fold(0, |state, digest| mix(state ^ first_half(digest))))
}

/// Parses the first 64 bits of a digest, which must consist of hex digits.
fn first_half(digest: &str) -> u64 {
    u64::from_str_radix(&digest[..DIGITS / 2], 16).unwrap_or_default()
}

/// Formats the digest of a content. Contents are read back as equal only if they are equal.
pub(super) fn digest(content: ContentId) -> String {
    match content {
        ZEROES => ZERO_BLOCKS[0].to_string(),
        _ => format!("{content:016x}{:016x}", mix(content)),
    }
}
