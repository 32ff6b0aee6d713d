//! Parser of blkparse's default text output, which prints a blktrace recording.
//!
//! ```text
//!   8,0    3        1     0.000000000   697  Q   W 223490 + 8 [kjournald]
//! ```
//!
//! Fields: device, processor, sequence number, time in seconds, process, action, kind, first sector + sectors, name. Each I/O has several lines, one for each
//! stage. A line with action Q (queued: the request and its arrival time) becomes a request. Lines with other actions are skipped. So are discards, flushes
//! without data, and the totals at the end.

use super::record::{Line, Parsed, Record, number};

/// First words of a line of the totals.
const TOTALS: [&str; 6] = ["CPU", "Total", "Throughput", "Events", "Skips", "Input file"];

/// Names of the counts that blkparse prints in these totals.
const COUNTS: [&str; 11] = [
    "Reads Queued",
    "Read Dispatches",
    "Reads Requeued",
    "Reads Completed",
    "Read Merges",
    "Read depth",
    "PC Reads Queued",
    "PC Read Disp",
    "PC Reads Req",
    "PC Reads Compl",
    "IO unplugs",
];

/// Parses a line: a queued read or write is a record, other actions and totals are passed over.
pub(super) fn line(text: &str) -> Parsed {
    let trimmed = text.trim_start();
    if TOTALS.iter().chain(&COUNTS).any(|begin| trimmed.starts_with(begin)) {
        return Ok(Line::Other);
    }
    let mut fields = text.split_ascii_whitespace();
    let device = fields.next().and_then(|device| device.split_once(','));
    let device = device.and_then(|(major, minor)| Some((number(Some(major))?, number(Some(minor))?)));
    let numbers = (number(fields.next()), number(fields.next()), nanos(fields.next()), number(fields.next()));
    let (Some(_), (Some(_), Some(_), Some(at), Some(process))) = (device, numbers) else {
        return Err("'major,minor processor number time process action kind ...'");
    };
    let (Some(action), Some(kind)) = (fields.next(), fields.next()) else {
        return Err("an action and a kind");
    };
    if action != "Q" || kind.contains('D') {
        return Ok(Line::Other);
    }
    let writes = kind.contains('W');
    let place = (number(fields.next()), fields.next(), number(fields.next()));
    if !writes && !kind.contains('R') || place == (None, None, None) {
        return Ok(Line::Other);
    }
    let (Some(first), Some("+"), Some(sectors)) = place else {
        return Err("'sector + sectors' after the kind");
    };
    let mut record = Record::of_sectors(at, writes, first, sectors)?;
    record.process = process;
    Ok(Line::Record(record))
}

/// Parses seconds with nine digits behind the point.
fn nanos(text: Option<&str>) -> Option<u64> {
    let (seconds, nanos) = text?.split_once('.')?;
    if nanos.len() != 9 {
        return None;
    }
    number(Some(seconds))?.checked_mul(1_000_000_000)?.checked_add(number(Some(nanos))?)
}
