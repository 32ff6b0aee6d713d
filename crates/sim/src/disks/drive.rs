//! A hard disk's parameters: taken from DiskSim's public files, or built in.
//!
//! Decisions on points that the files leave open:
//! - The spares of a unit (track, cylinder, range of cylinders or zone, by the sparing scheme) lie at its end, or at its front if
//!   the scheme says so.
//! - `Read any free blocks` (sectors that pass the head before the wanted ones are kept) is followed only by drives that read on
//!   arrival (`Immediate buffer read`). Of the measured drives that set it, atlas10k does both, and serves such sectors
//!   from its buffer; ibm18es does not read on arrival, and never serves them (0 of 302 reads).
//! - Reading ahead `4` is by tracks. A drive whose segments are smaller than a track does it when it sees a sequence (atlas_III);
//!   one that reads on arrival reads to the track's end (atlas10k); any other fills the segment (cheetah9LP).
//! - A new access takes at least a seek of one cylinder, also on the track on which the heads are: they must find it anew. The
//!   files have head switches of 0.1 ms and less, but no measured read from the medium is as fast as this would be.
//! - A write drops the read data of the buffer. Four of six measured drives served nearly all reads for which that
//!   matters from the medium; cheetah9LP and atlas10k did not.
//!
//! Times are rounded to nanoseconds when they are read: nothing is computed with floating point while a disk runs.

use std::path::Path;

use engine::Nanos;

use super::geometry::{Geometry, Order, Zone};
use super::parameters::{Block, Problem, Value, read, seek_table};

/// Extent to which the drive reads ahead after a requested read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReadAhead {
    /// No reading ahead.
    None,
    /// Read-ahead to the end of the track.
    Track,
    /// Read-ahead to the end of the cylinder.
    Cylinder,
    /// Read-ahead until the segment is full.
    Segment,
    /// Read-ahead to the end of the next track, after sequential reads only.
    NextTrack,
}

/// Points at which the drive acknowledges writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WriteCache {
    /// A write is acknowledged when it is on the medium.
    Off,
    /// A write is acknowledged when it is in the buffer, as long as that has a segment for it.
    On,
}

/// Overheads of a command by its kind, and by the kind of the command before it: after a read, after a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Overheads {
    /// Overheads of a read from the buffer.
    pub read_hit: [Nanos; 2],
    /// Overheads of a read from the medium.
    pub read_miss: [Nanos; 2],
    /// Overheads of a write into the buffer.
    pub write_hit: [Nanos; 2],
    /// Overheads of a write to the medium.
    pub write_miss: [Nanos; 2],
}

/// A hard disk as it is built.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Drive {
    /// Its name.
    pub name: String,
    /// Its sectors, arm and platters.
    pub geometry: Geometry,
    /// Overheads by the kind of command.
    pub overheads: Overheads,
    /// Time of a sector over the bus.
    pub bus_sector: Nanos,
    /// Number of segments of the buffer.
    pub segments: usize,
    /// Number of segments that may hold unwritten data.
    pub write_segments: usize,
    /// Sectors of a segment.
    pub segment_sectors: u64,
    /// Reading ahead.
    pub read_ahead: ReadAhead,
    /// Maximum number of sectors that it reads ahead.
    pub most_ahead: u64,
    /// True if reading ahead may overwrite the requested data.
    pub over_requested: bool,
    /// True if reading ahead continues when a read was served from the buffer.
    pub ahead_on_hit: bool,
    /// True if sectors that pass the head before the first wanted one are kept, too.
    pub reads_on_arrival: bool,
    /// True if reads are served from written data.
    pub hits_on_writes: bool,
    /// True if a write drops the read data of the buffer.
    pub writes_forget_reads: bool,
    /// True if writes that continue each other share a segment.
    pub combine_writes: bool,
    /// Acknowledging writes.
    pub write_cache: WriteCache,
}

const MS: f64 = 1e6;
/// The longest time in a parameter file, in milliseconds.
const TIMES: (f64, f64) = (0.0, 10_000.0);
/// Name of the built-in drive.
pub const WD1600AAJS_LIKE: &str = "wd1600aajs";

fn nanos(milliseconds: f64) -> Nanos {
    (milliseconds * MS).round() as Nanos
}

impl Drive {
    /// Returns its size in bytes.
    pub fn capacity(&self) -> u64 {
        self.geometry.sectors * super::geometry::SECTOR
    }

    /// Returns a drive with the published figures of a WD1600AAJS (160 GB, 7200 rpm, 2 surfaces, 8 MB, 2008): 16 zones of equally many cylinders from
    /// 1,578 to 846 sectors a track, the seek curve with Western Digital's 2.0, 8.9 and 21.0 ms. Like one, not measured on one: zones, skews and the
    /// buffer's segments are not published. The skews cover a head switch of 1 ms and a seek to the next cylinder of 2 ms. The write cache is on, as
    /// the drive is sold.
    pub fn wd1600aajs_like() -> Drive {
        const ZONES: u64 = 16;
        const SECTORS: u64 = 312_581_808;
        let revolution = 8_333_333;
        let track_sectors = |zone: u64| (1_578 * (ZONES - 1 - zone) + 846 * zone + 7) / (ZONES - 1);
        let around: u64 = (0..ZONES).map(track_sectors).sum();
        let cylinders = SECTORS.div_ceil(2 * around);
        let zone = |number| Zone {
            first_cylinder: number * cylinders,
            cylinders,
            track_sectors: track_sectors(number),
            track_skew: 1_100_000,
            cylinder_skew: 2_200_000,
            ..Zone::default()
        };
        let last = (ZONES * cylinders - 1) as f64;
        let seek = |distance: f64| 2.0 + 2.833 * (distance / last).sqrt() + 16.167 * (distance / last);
        let geometry = Geometry {
            surfaces: 2,
            sectors: 0,
            revolution,
            order: Order::Same,
            zones: (0..ZONES).map(zone).collect(),
            seeks: seeks(ZONES * cylinders, seek),
            head_switch: 1_000_000,
            resettle: 1_000_000,
            // The average seek of writes is 10.9 ms, of reads 8.9.
            write_settle: 2_000_000,
        };
        Drive {
            name: WD1600AAJS_LIKE.to_owned(),
            geometry: geometry.new(Some(SECTORS)),
            overheads: Overheads {
                read_hit: [300_000; 2],
                read_miss: [300_000; 2],
                write_hit: [300_000; 2],
                write_miss: [300_000; 2],
            },
            // SATA at 3 Gbit/s: 300 MB/s.
            bus_sector: 1_707,
            segments: 16,
            write_segments: 8,
            segment_sectors: 1_024,
            read_ahead: ReadAhead::Segment,
            most_ahead: 1_024,
            over_requested: true,
            ahead_on_hit: true,
            reads_on_arrival: false,
            hits_on_writes: true,
            writes_forget_reads: false,
            combine_writes: true,
            write_cache: WriteCache::On,
        }
    }

    /// Loads the first disk of `DIR/NAME.parv`, or of `DIR/NAME.diskspecs` if there is no such file.
    pub fn load(directory: &Path, name: &str) -> Result<Drive, Problem> {
        let parameters = directory.join(format!("{name}.parv"));
        let specification = directory.join(format!("{name}.diskspecs"));
        if !parameters.exists() && !specification.exists() {
            let what = format!("does not exist, nor does {name}.diskspecs beside it");
            return Err(Problem { file: parameters, line: 0, what });
        }
        let file = if parameters.exists() { parameters } else { specification };
        let blocks = read(&file)?;
        let what = "has no block disksim_disk, and takes in no file with one".to_owned();
        let problem = Problem { file, line: 0, what };
        Drive::from_block(blocks.iter().find(|block| block.kind == "disksim_disk").ok_or(problem)?)
    }

    fn from_block(disk: &Block) -> Result<Drive, Problem> {
        let geometry = geometry(disk.block("Model", "dm_disk")?)?;
        let scale = disk.number_or("Time scale for overheads", (0.0, 1000.0), 1.0)?;
        let each = disk.number_or("Per-request overhead time", TIMES, 0.0)?;
        let overhead = |kind: &str| -> Result<[Nanos; 2], Problem> {
            let time = |after: &str| disk.number_or(&format!("{kind} over. after {after}"), TIMES, 0.0);
            Ok([nanos((each + time("read")?) * scale), nanos((each + time("write")?) * scale)])
        };
        let segment_sectors = disk.whole("Segment size (in blks)", (1, 1 << 24))?;
        let caching = disk.whole_or("Enable caching in buffer", (0, 2), 1)? > 0;
        let ahead = disk.whole_or("Buffer continuous read", (0, 4), 0)?;
        let on_arrival = disk.whole_or("Immediate buffer read", (0, 2), 0)? > 0;
        let reads_on_arrival = caching && on_arrival && disk.flag_or("Read any free blocks", false)?;
        let track = geometry.zones.iter().map(|zone| zone.track_sectors).max().unwrap_or(0);
        let segments = disk.whole("Number of buffer segments", (1, 4096))?;
        let written = disk.whole_or("Maximum number of write segments", (1, segments), 1)?;
        Ok(Drive {
            name: disk.name.clone(),
            geometry,
            overheads: Overheads {
                read_hit: overhead("Read hit")?,
                read_miss: overhead("Read miss")?,
                write_hit: overhead("Write hit")?,
                write_miss: overhead("Write miss")?,
            },
            bus_sector: nanos(disk.number_or("Bulk sector transfer time", TIMES, 0.0)? * scale),
            segments: segments as usize,
            write_segments: written as usize,
            segment_sectors,
            read_ahead: match ahead {
                1 if caching => ReadAhead::Track,
                2 if caching => ReadAhead::Cylinder,
                3 if caching => ReadAhead::Segment,
                4 if caching && segment_sectors < track => ReadAhead::NextTrack,
                4 if caching && reads_on_arrival => ReadAhead::Track,
                4 if caching => ReadAhead::Segment,
                _ => ReadAhead::None,
            },
            most_ahead: disk.whole_or("Maximum read-ahead (blks)", (0, 1 << 24), segment_sectors)?.min(segment_sectors),
            over_requested: disk.number_or("Read-ahead over requested", (-1.0, 1.0), 0.0)? == 1.0,
            reads_on_arrival,
            ahead_on_hit: disk.flag_or("Read-ahead on idle hit", false)?,
            hits_on_writes: disk.flag_or("Allow read hits on write data", false)?,
            writes_forget_reads: true,
            combine_writes: disk.flag_or("Combine seq writes", false)?,
            write_cache: match disk.whole_or("Fast write level", (0, 2), 0)? {
                0 => WriteCache::Off,
                _ if caching => WriteCache::On,
                _ => WriteCache::Off,
            },
        })
    }
}

fn geometry(model: &Block) -> Result<Geometry, Problem> {
    let surfaces = model.whole("Number of data surfaces", (1, 256))?;
    let cylinders = model.whole("Number of cylinders", (1, 4 << 20))?;
    let blocks = model.whole("Block count", (1, 1 << 40))?;
    let layout = model.block("Layout Model", "dm_layout_g1")?;
    let mechanics = model.block("Mechanical Model", "dm_mech_g1")?;
    if mechanics.get("Access time type").is_some() && mechanics.word("Access time type")? != "trackSwitchPlusRotation" {
        return Err(
            mechanics.problem("Access time type", "must be trackSwitchPlusRotation: other models are not known")
        );
    }
    let rate = mechanics.number("Rotation speed (in rpms)", (60.0, 1e6))?;
    let revolution = nanos(60_000.0 / rate);
    let order = match layout.whole_or("LBN-to-PBN mapping scheme", (0, 2), 0)? {
        0 => Order::Same,
        1 => Order::ByZone,
        _ => Order::ByCylinder,
    };
    let mut zones: Vec<Zone> = Vec::new();
    for value in layout.list("Zones")? {
        let Value::Block(block) = value else {
            return Err(layout.problem("Zones", "must be blocks dm_layout_g1_zone { ... }"));
        };
        let zone = zone(block, layout, revolution, surfaces, cylinders)?;
        if zones.last().is_some_and(|last| last.first_cylinder + last.cylinders > zone.first_cylinder) {
            return Err(block.problem("First cylinder number", "must be past the zone before"));
        }
        zones.push(zone);
    }
    let seeks = seek_curve(mechanics, cylinders)?;
    let settle = mechanics.number_or("Add. write settling delay", (-10.0, 1000.0), 0.0)?;
    let geometry = Geometry {
        surfaces,
        sectors: 0,
        revolution,
        order,
        resettle: seeks.get(1).map_or(0, |&nanos| Nanos::from(nanos)),
        zones,
        seeks,
        head_switch: nanos(mechanics.number_or("Head switch time", TIMES, 0.0)?),
        write_settle: (settle * MS).round() as i64,
    };
    let geometry = geometry.new(Some(blocks));
    if geometry.sectors == 0 {
        return Err(layout.problem("Zones", "hold no sector that is neither empty, spare nor slipped"));
    }
    Ok(geometry)
}

fn zone(block: &Block, layout: &Block, revolution: Nanos, surfaces: u64, cylinders: u64) -> Result<Zone, Problem> {
    let first_cylinder = block.whole("First cylinder number", (0, cylinders - 1))?;
    let last = block.whole("Last cylinder number", (first_cylinder, cylinders))?;
    let track_sectors = block.whole("Blocks per track", (1, 1 << 20))?;
    let count = last + 1 - first_cylinder;
    // Skews are numbers of sectors, or parts of a revolution.
    let unit = match layout.get("Skew units") {
        Some(Value::Word(word)) if word == "revolutions" => revolution as f64,
        Some(Value::Word(word)) if word != "sectors" => {
            return Err(layout.problem("Skew units", "must be sectors or revolutions"));
        }
        _ => revolution as f64 / track_sectors as f64,
    };
    let angle = |key| -> Result<Nanos, Problem> {
        let turns = block.number_or(key, (0.0, 1e6), 0.0)? * unit;
        Ok(turns.round() as Nanos % revolution)
    };
    let spares = block.whole_or("Number of spares", (0, 1 << 32), 0)?;
    let range = layout.whole_or("Rangesize for sparing", (1, 1 << 22), 1)?;
    let scheme = layout.whole_or("Sparing scheme used", (0, 10), 0)?;
    let cylinder = surfaces * track_sectors;
    let (spare_unit, spares) = match scheme {
        _ if spares == 0 => (0, 0),
        // Whole tracks at the zone's end.
        1 => (0, spares * track_sectors),
        3 => (track_sectors, spares),
        2 | 4..=6 => (cylinder, spares),
        8 => (range * cylinder, spares),
        9 | 10 => (0, spares),
        // None, or at the end of the disk.
        _ => (0, 0),
    };
    if spare_unit > 0 && spares >= spare_unit || spares > count * cylinder {
        return Err(block.problem("Number of spares", "must be less than the sectors that they are spares of"));
    }
    let mut slips = Vec::new();
    if block.get("slips").is_some() {
        for value in block.list("slips")? {
            match value {
                Value::Number(number) if number.fract() == 0.0 && (0.0..1e12).contains(number) => {
                    slips.push(*number as u64);
                }
                _ => return Err(block.problem("slips", "must be whole numbers of sectors")),
            }
        }
    }
    slips.sort_unstable();
    slips.dedup();
    Ok(Zone {
        first_cylinder,
        cylinders: count,
        track_sectors,
        first_angle: angle("Offset of first block")?,
        track_skew: angle("Skew for track switch")?,
        cylinder_skew: angle("Skew for cylinder switch")?,
        front: block.whole_or("Empty space at zone front", (0, 1 << 40), 0)?,
        spare_unit,
        spares,
        spares_at_front: matches!(scheme, 5 | 6),
        slips,
        ..Zone::default()
    })
}

/// Computes the time of each distance from a curve in milliseconds. Distance 0 takes none.
fn seeks(cylinders: u64, curve: impl Fn(f64) -> f64) -> Vec<u32> {
    let time = |distance: u64| if distance == 0 { 0 } else { nanos(curve(distance as f64).clamp(0.0, 1000.0)) as u32 };
    (0..cylinders).map(time).collect()
}

fn seek_curve(mechanics: &Block, cylinders: u64) -> Result<Vec<u32>, Problem> {
    let time = |key| mechanics.number(key, TIMES);
    let numbers = |key: &str, count: usize| -> Result<Vec<f64>, Problem> {
        let numbers: Option<Vec<f64>> = mechanics
            .list(key)?
            .iter()
            .map(|value| if let Value::Number(number) = value { Some(*number) } else { None })
            .collect();
        let problem = || mechanics.problem(key, format!("must be {count} numbers"));
        numbers.filter(|numbers| numbers.len() == count).ok_or_else(problem)
    };
    let last = cylinders.saturating_sub(1).max(1) as f64;
    // Lee's curve through the seeks of one cylinder, the average and the longest (DiskSim manual, B.5.1).
    let lee = || -> Result<_, Problem> {
        let (least, average, most) =
            (time("Single cylinder seek time")?, time("Average seek time")?, time("Full strobe seek time")?);
        let a = (-10.0 * least + 15.0 * average - 5.0 * most) / (3.0 * last.sqrt());
        let b = (7.0 * least - 15.0 * average + 8.0 * most) / (3.0 * last);
        Ok(move |x: f64| a * (x - 1.0).sqrt() + b * (x - 1.0) + least)
    };
    // The two pieces of Ruemmler and Wilkes (B.5.2).
    let hpl = || -> Result<_, Problem> {
        let v = numbers("HPL seek equation values", 6)?;
        Ok(move |x: f64| match x {
            1.0 if v[5] >= 0.0 => v[5],
            _ if x < v[0] => v[1] + v[2] * x.sqrt(),
            _ => v[3] + v[4] * x,
        })
    };
    Ok(match mechanics.word("Seek type")? {
        "constant" => {
            let constant = time("Average seek time").or_else(|_| time("Constant seek time"))?;
            seeks(cylinders, |_| constant)
        }
        "linear" => {
            let (least, most) = (time("Single cylinder seek time")?, time("Full strobe seek time")?);
            seeks(cylinders, |x| least + (most - least) * (x - 1.0) / (last - 1.0).max(1.0))
        }
        "curve" => seeks(cylinders, lee()?),
        "hpl" => seeks(cylinders, hpl()?),
        "hplplus10" => {
            let (ten, hpl) = (numbers("First ten seek times", 10)?, hpl()?);
            seeks(cylinders, |x| ten.get(x as usize - 1).copied().unwrap_or_else(|| hpl(x)))
        }
        "extracted" => {
            let file = match mechanics.value("Full seek curve")? {
                Value::Word(name) => mechanics.file.with_file_name(name),
                _ => return Err(mechanics.problem("Full seek curve", "must be the name of a file")),
            };
            let table = seek_table(&file)?;
            seeks(cylinders, |x| interpolated(&table, x as u64))
        }
        _ => {
            let known = "must be constant, linear, curve, hpl, hplplus10 or extracted";
            return Err(mechanics.problem("Seek type", known));
        }
    })
}

fn interpolated(table: &[(u64, f64)], distance: u64) -> f64 {
    let next = table.partition_point(|&(at, _)| at < distance);
    match (next.checked_sub(1).map(|last| table[last]), table.get(next)) {
        (_, Some(&(at, time))) if at == distance => time,
        (Some((from, before)), Some(&(to, after))) => {
            before + (after - before) * ((distance - from) as f64 / (to - from) as f64)
        }
        (Some((_, time)), None) | (None, Some(&(_, time))) => time,
        (None, None) => 0.0,
    }
}
