//! Parser of the CloudPhysics traces of virtual machines, in the format of libCacheSim.
//!
//! ```text
//! 1,5633898,2a,512,42932745
//! ```
//!
//! Fields: version, time in seconds, SCSI command in hex, size in bytes, first sector. The first line is a row of headings. Commands that neither read nor
//! write are skipped.

use super::record::{Line, Parsed, Record, SECTOR, number};

/// Parses a line; `is_first` of its file.
pub(super) fn line(text: &str, is_first: bool) -> Parsed {
    if is_first && text.starts_with("version,") {
        return Ok(Line::Other);
    }
    let fields: Vec<&str> = text.split(',').map(str::trim).collect();
    let [version, seconds, command, bytes, first] = fields[..] else {
        return Err("'version,time,command,size,sector'");
    };
    let numbers = (number(Some(version)), number(Some(seconds)), number(Some(bytes)), number(Some(first)));
    let (Some(_), Some(seconds), Some(bytes), Some(first)) = numbers else {
        return Err("numbers as version, time, size and sector");
    };
    let writes = match u8::from_str_radix(command, 16) {
        Ok(0x08 | 0x28 | 0xa8 | 0x88) => false,
        Ok(0x0a | 0x2a | 0xaa | 0x8a) => true,
        Ok(_) => return Ok(Line::Other),
        Err(_) => return Err("a SCSI command in hex in the third field"),
    };
    let at = seconds.checked_mul(1_000_000_000).ok_or("a time below 584 years")?;
    let offset = first.checked_mul(SECTOR).ok_or("an address below 2^64 bytes")?;
    Record::new(at, writes, offset, bytes).map(Line::Record)
}
