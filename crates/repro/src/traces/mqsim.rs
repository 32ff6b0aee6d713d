//! Parser of the traces that come with MQSim.
//!
//! ```text
//! 938513000 4 264719034 16 0
//! ```
//!
//! Fields: time in ns, device (not used: MQSim does not use it either), first sector, sectors, 0 for a write and 1 for a read.

use super::record::{Line, Parsed, Record, number};

/// Parses a line.
pub(super) fn line(text: &str) -> Parsed {
    let fields: Vec<&str> = text.split_ascii_whitespace().collect();
    let [at, device, first, sectors, op] = fields[..] else {
        return Err("'time device sector sectors 0|1'");
    };
    let numbers = (number(Some(at)), number(Some(device)), number(Some(first)), number(Some(sectors)));
    let (Some(at), Some(_), Some(first), Some(sectors)) = numbers else {
        return Err("numbers as time, device, sector and sectors");
    };
    let writes = match op {
        "0" => true,
        "1" => false,
        _ => return Err("0 (write) or 1 (read) in the fifth field"),
    };
    Record::of_sectors(at, writes, first, sectors).map(Line::Record)
}
