//! Parser of the DiskSim traces: its own ASCII format, and the measured requests of real drives that it is validated with.
//!
//! ```text
//! 12.345000 0 264719034 16 1                            time in ms, device (not used), first sector, sectors, flags in hex (bit 0: a read)
//! R Hit    2992396   4  13670.00000  35942.00000        R or W, Hit or Miss, first sector, sectors, us of service, us of thinking
//! ```
//!
//! In the second format, a request arrives when the previous one has completed and the think time is over. The first request arrives at 0.

use engine::Nanos;

use super::record::{Line, Parsed, Record, fraction, number};

/// Parses a line. `clock` is the time of the next measured request, and advances with each.
pub(super) fn line(text: &str, clock: &mut Nanos) -> Parsed {
    let fields: Vec<&str> = text.split_ascii_whitespace().collect();
    match fields[..] {
        [at, device, first, sectors, flags] => {
            let numbers = (fraction(Some(at), 1e6), number(Some(device)), number(Some(first)), number(Some(sectors)));
            let (Some(at), Some(_), Some(first), Some(sectors)) = numbers else {
                return Err("numbers as time, device, sector and sectors");
            };
            let flags = u64::from_str_radix(flags, 16).map_err(|_| "flags in hex in the fifth field")?;
            Record::of_sectors(at, flags & 1 == 0, first, sectors).map(Line::Record)
        }
        [op @ ("R" | "W"), "Hit" | "Miss", first, sectors, service, think] => {
            let numbers =
                (number(Some(first)), number(Some(sectors)), fraction(Some(service), 1e3), fraction(Some(think), 1e3));
            let (Some(first), Some(sectors), Some(service), Some(think)) = numbers else {
                return Err("numbers as sector, sectors, service and thinking");
            };
            let record = Record::of_sectors(*clock, op == "W", first, sectors)?;
            *clock = clock.saturating_add(service).saturating_add(think);
            Ok(Line::Record(record))
        }
        _ => Err("'time device sector sectors flags' or 'R|W Hit|Miss sector sectors service think'"),
    }
}
