//! Parser of the traces of Microsoft Research in Cambridge (FAST '08).
//!
//! ```text
//! 128166372003061629,hm,0,Read,383496192,32768,1131
//! ```
//!
//! Fields: time in Windows ticks (100 ns since 1601), host, number of the disk, Read or Write, offset and size in bytes, response time (not used).

use super::record::{Line, Parsed, Record, number};

/// Parses a line; `is_first` of its file.
pub(super) fn line(text: &str, is_first: bool) -> Parsed {
    if is_first && text.starts_with("Timestamp,") {
        return Ok(Line::Other);
    }
    let fields: Vec<&str> = text.split(',').map(str::trim).collect();
    let [ticks, _host, disk, op, offset, bytes, ..] = fields[..] else {
        return Err("'time,host,disk,Read|Write,offset,size,response time'");
    };
    let writes = match op {
        _ if op.eq_ignore_ascii_case("write") => true,
        _ if op.eq_ignore_ascii_case("read") => false,
        _ => return Err("Read or Write in the fourth field"),
    };
    let numbers = (number(Some(ticks)), number(Some(disk)), number(Some(offset)), number(Some(bytes)));
    let (Some(ticks), Some(_), Some(offset), Some(bytes)) = numbers else {
        return Err("numbers as time, disk, offset and size");
    };
    let at = ticks.checked_mul(100).ok_or("a time of Windows below the year 2185")?;
    Record::new(at, writes, offset, bytes).map(Line::Record)
}
