//! Names of disks on the command line.

use std::path::Path;
use std::sync::Arc;

use super::drive::{Drive, WD1600AAJS_LIKE, WriteCache};
use super::ftl::{Flash, Parameters};
use super::hdd::{Hdd, Options};
use super::queue::Policy;
use super::raid5::{Array, Level};
use super::{Disk, Instant, ssd};

/// Syntax of the names of disks.
pub const SPECS: &str = "a disk is one of:
  instant                  takes no time
  ssd                      a datacenter SSD behind PCIe
  flash:SIZE               flash with a translation layer (options: erase-unit=SIZE, spare=PERMILLE, channels=N)
  hdd:wd1600aajs           a SATA disk of 160 GB at 7200 rpm
  hdd:DIR/NAME             the drive of DIR/NAME.parv or .diskspecs, DiskSim's parameter files
                           (options of both: queue=fifo|clook|ncq, write-cache=on|off)
  raid5:N:UNIT:DISK        N such disks with this stripe unit, as in raid5:4:64K:hdd:wd1600aajs,write-cache=off
  raid0:N:UNIT:DISK
A SIZE is a number of bytes, or one with K, M, G or T; a UNIT is a SIZE. Options follow after commas.";

impl Disk {
    /// Makes a disk from its name, with options: see [`SPECS`], which each error ends with.
    pub fn from_spec(spec: &str) -> Result<Disk, String> {
        parse(spec).map_err(|what| format!("'{spec}' is no disk: {what}\n{SPECS}"))
    }
}

fn parse(spec: &str) -> Result<Disk, String> {
    let (kind, rest) = spec.split_once(':').unwrap_or((spec, ""));
    match kind {
        "raid5" => array(Level::Raid5, rest),
        "raid0" => array(Level::Raid0, rest),
        "hdd" => hdd(rest),
        "flash" => flash(rest),
        _ => match spec {
            "instant" => Ok(Disk::Instant(Instant::default())),
            "ssd" => Ok(Disk::Ssd(ssd::Queue::new(ssd::SSD))),
            _ => Err(format!("there is no '{spec}'")),
        },
    }
}

/// Makes an array of disks of one kind: `N:UNIT:DISK`.
fn array(level: Level, rest: &str) -> Result<Disk, String> {
    let mut parts = rest.splitn(3, ':');
    let (Some(count), Some(unit), Some(member)) = (parts.next(), parts.next(), parts.next()) else {
        return Err("it must have a number of members, a stripe unit and a member: N:UNIT:DISK".to_owned());
    };
    let count: usize = count.parse().map_err(|_| format!("'{count}' is no number of members"))?;
    if count > 64 {
        return Err(format!("{count} members are too many: 64 at most"));
    }
    let member = match member.split(':').next() {
        Some("raid5" | "raid0") => return Err("the members of an array are no arrays".to_owned()),
        _ => parse(member)?,
    };
    // A translation layer keeps 8 bytes in memory for each page.
    if let Disk::Flash(flash) = &member
        && flash.capacity().saturating_mul(count as u64) > 1 << 40
    {
        return Err("an array of flash has at most 1 TiB in all its members".to_owned());
    }
    Ok(Disk::Array(Box::new(Array::new(level, vec![member; count], size(unit)?)?)))
}

fn hdd(rest: &str) -> Result<Disk, String> {
    let mut parts = rest.split(',');
    let name = parts.next().unwrap_or_default();
    let mut chosen = Options::default();
    for option in parts {
        match option {
            "queue=fifo" => chosen.queue = Policy::Fifo,
            "queue=clook" => chosen.queue = Policy::Clook,
            "queue=ncq" => chosen.queue = Policy::Ncq,
            "write-cache=on" => chosen.write_cache = Some(WriteCache::On),
            "write-cache=off" => chosen.write_cache = Some(WriteCache::Off),
            _ => return Err(format!("a hard disk has no option '{option}'")),
        }
    }
    let drive = match name.rsplit_once('/') {
        None if name == WD1600AAJS_LIKE => Drive::wd1600aajs_like(),
        Some((directory, file)) if !file.is_empty() => {
            let directory = if directory.is_empty() { "/" } else { directory };
            Drive::load(Path::new(directory), file).map_err(|problem| problem.to_string())?
        }
        _ => return Err(format!("there is no built-in drive '{name}'")),
    };
    Ok(Disk::Hdd(Box::new(Hdd::new(Arc::new(drive), chosen))))
}

fn flash(rest: &str) -> Result<Disk, String> {
    let mut parts = rest.split(',');
    let mut parameters = Parameters::of_size(size(parts.next().unwrap_or_default())?);
    let number = |text: &str| text.parse().map_err(|_| format!("'{text}' is no number"));
    for option in parts {
        match option.split_once('=') {
            Some(("erase-unit", value)) => parameters.erase_unit = size(value)?,
            Some(("spare", value)) => parameters.spare_permille = number(value)?,
            Some(("channels", value)) => parameters.channels = number(value)? as usize,
            _ => return Err(format!("flash has no option '{option}'")),
        }
    }
    Flash::new(parameters).map(|flash| Disk::Flash(Box::new(flash)))
}

/// Parses a number of bytes, with K, M, G or T for powers of 1024.
pub fn size(text: &str) -> Result<u64, String> {
    let (digits, shift) = match text.chars().last() {
        Some('K') => (&text[..text.len() - 1], 10),
        Some('M') => (&text[..text.len() - 1], 20),
        Some('G') => (&text[..text.len() - 1], 30),
        Some('T') => (&text[..text.len() - 1], 40),
        _ => (text, 0),
    };
    let number: Option<u64> = digits.parse().ok();
    number.and_then(|number| number.checked_mul(1 << shift)).ok_or_else(|| format!("'{text}' is no size"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disks_are_what_their_names_say() {
        let capacity = |spec: &str| Disk::from_spec(spec).expect(spec).capacity();
        assert_eq!(capacity("instant"), u64::MAX);
        assert_eq!(capacity("ssd"), u64::MAX);
        assert_eq!(capacity("flash:1G,erase-unit=4M,spare=280,channels=8"), 1 << 30);
        let one = capacity("hdd:wd1600aajs,queue=ncq,write-cache=off");
        assert_eq!(one, 312_581_808 * 512);
        assert_eq!(capacity("raid5:4:64K:hdd:wd1600aajs,queue=fifo"), one / 65_536 * 65_536 * 3);
        assert_eq!(capacity("raid0:2:4096:flash:1G"), 2 << 30);
    }

    #[test]
    fn wrong_names_say_what_is_right() {
        for spec in [
            "",
            "disk",
            "ssd:",
            "instant,x",
            "hdd",
            "hdd:",
            "hdd:wd",
            "hdd:/",
            "hdd:./",
            "hdd:none/none",
            "hdd:wd1600aajs,x",
            "hdd:wd1600aajs,queue=",
            "flash",
            "flash:",
            "flash:1",
            "flash:x",
            "flash:99999999T",
            "flash:2T",
            "flash:1G,x=1",
            "flash:1G,channels=0",
            "flash:1G,spare=99999",
            "flash:1G,erase-unit=5",
            "raid5",
            "raid5:4",
            "raid5:4:64K",
            "raid5:2:64K:ssd",
            "raid5:65:64K:ssd",
            "raid5:4:5:ssd",
            "raid5:5:64K:flash:256G",
            "raid5:4:0:ssd",
            "raid5:4:64K:raid5:4:64K:ssd",
            "raid5:-1:64K:ssd",
            "flash:é",
        ] {
            let error = Disk::from_spec(spec).expect_err(spec);
            assert!(error.ends_with(SPECS) && error.starts_with(&format!("'{spec}' is no disk: ")), "{error}");
        }
    }
}
