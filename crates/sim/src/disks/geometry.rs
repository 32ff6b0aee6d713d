//! The geometry of a drive: zones, skews, spares and slipped sectors, seek times, and the rotation of the platters.
//!
//! The platters all begin at angle 0 at time 0 and turn without error, so an angle is a time: nanoseconds of the current
//! revolution. A sector's angle is computed from whole numbers alone, and a sector begins exactly where the one before it ends.

use engine::Nanos;

/// Bytes of a sector.
pub const SECTOR: u64 = 512;

/// Cylinders whose tracks have equally many sectors.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Zone {
    /// Its first cylinder.
    pub first_cylinder: u64,
    /// Number of cylinders of the zone, counted from its first one.
    pub cylinders: u64,
    /// Sectors of a track.
    pub track_sectors: u64,
    /// Angle of the first sector of the first track.
    pub first_angle: Nanos,
    /// Angle from the end of a track to the start of the next one of its cylinder.
    pub track_skew: Nanos,
    /// Angle from the end of a cylinder's last track to the start of the next cylinder.
    pub cylinder_skew: Nanos,
    /// Number of sectors at the start that hold nothing.
    pub front: u64,
    /// Number of sectors after which spares follow again, in the zone's order; 0: no spares between sectors.
    pub spare_unit: u64,
    /// Number of spares of each such unit.
    pub spares: u64,
    /// True if the spares are at the front of their unit.
    pub spares_at_front: bool,
    /// Sectors of the zone that are skipped because they are defective, ascending. Those without data in any case do not count.
    pub slips: Vec<u64>,
    /// First logical sector in it: computed by [`Geometry::new`].
    pub first: u64,
    /// Number of logical sectors in it: computed by [`Geometry::new`].
    pub sectors: u64,
}

/// Orders in which the tracks of a cylinder are used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Order {
    /// Order from the first surface to the last.
    #[default]
    Same,
    /// Order from the last surface to the first in every second cylinder of a zone.
    ByZone,
    /// Order from the last surface to the first in cylinders with odd numbers.
    ByCylinder,
}

/// Geometry of a drive.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Geometry {
    /// Surfaces with a head each.
    pub surfaces: u64,
    /// Number of logical sectors.
    pub sectors: u64,
    /// Nanoseconds of a revolution.
    pub revolution: Nanos,
    /// Order of the surfaces in a cylinder.
    pub order: Order,
    /// The zones, ascending.
    pub zones: Vec<Zone>,
    /// Times of a seek by distance in cylinders; the last one is that of all longer ones.
    pub seeks: Vec<u32>,
    /// Time to switch to another head of the same cylinder.
    pub head_switch: Nanos,
    /// Time that the heads take to find a track for a new access, also one that they were on before.
    pub resettle: Nanos,
    /// Time that a write waits in addition until the head has settled; negative in the files of some drives.
    pub write_settle: i64,
}

/// A part of a track with consecutive logical sectors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    /// Its cylinder.
    pub cylinder: u64,
    /// Its head.
    pub head: u64,
    /// Angle at which the first sector begins.
    pub angle: Nanos,
    /// Number of sectors from there to the track's end or something that is skipped.
    pub sectors: u64,
    /// Number of sectors before it, back to the track's start or something that is skipped.
    pub before: u64,
    /// Sectors of the track.
    pub track_sectors: u64,
    /// Number of the first sector within the track.
    pub place: u64,
}

impl Run {
    /// Returns the time from the start of the first sector until `sectors` sectors have passed.
    pub fn time(&self, sectors: u64, revolution: Nanos) -> Nanos {
        (self.place + sectors) * revolution / self.track_sectors - self.place * revolution / self.track_sectors
    }
}

impl Geometry {
    /// Assigns numbers to the logical sectors, at most `block_count` if the drive states that.
    pub fn new(mut self, block_count: Option<u64>) -> Geometry {
        let mut first = 0;
        for zone in &mut self.zones {
            let raw = zone.cylinders * self.surfaces * zone.track_sectors;
            let front = zone.place(zone.front);
            let holds_data = |slip: u64| {
                zone.spare_unit == 0 || {
                    let within = slip % zone.spare_unit;
                    if zone.spares_at_front { within >= zone.spares } else { within < zone.spare_unit - zone.spares }
                }
            };
            let slips = zone.slips.iter().copied().filter(|&slip| (front..raw).contains(&slip) && holds_data(slip));
            let slips = slips.collect();
            zone.slips = slips;
            let usable = match zone.spare_unit {
                0 => raw.saturating_sub(zone.spares),
                unit => raw / unit * (unit - zone.spares) + (raw % unit).saturating_sub(zone.spares),
            };
            zone.first = first;
            zone.sectors = usable.saturating_sub(zone.front + zone.slips.len() as u64);
            first += zone.sectors;
        }
        self.sectors = block_count.unwrap_or(first).min(first);
        self.zones.retain(|zone| zone.sectors > 0);
        self
    }

    /// Returns the nanoseconds of a seek over `distance` cylinders.
    pub fn seek(&self, distance: u64) -> Nanos {
        let last = self.seeks.len().saturating_sub(1) as u64;
        self.seeks.get(distance.min(last) as usize).map_or(0, |&nanos| Nanos::from(nanos))
    }

    /// Returns the longest time that a sector takes to pass the head.
    pub fn sector_time(&self, run: &Run) -> Nanos {
        self.revolution.div_ceil(run.track_sectors)
    }

    /// Finds the place of a logical sector. Those past the end are taken as the last one.
    pub fn locate(&self, sector: u64) -> Run {
        let sector = sector.min(self.sectors.saturating_sub(1));
        let zone = &self.zones[self.zones.partition_point(|zone| zone.first <= sector).max(1) - 1];
        let usable = zone.front + (sector - zone.first);
        let (mut low, mut high) = (0, zone.slips.len());
        // How many slipped sectors come before: the least number with which the place is before the next of them.
        while low < high {
            let middle = usize::midpoint(low, high);
            if zone.place(usable + middle as u64) < zone.slips[middle] { high = middle } else { low = middle + 1 }
        }
        let place = zone.place(usable + low as u64);
        let track = place / zone.track_sectors;
        let within = place % zone.track_sectors;
        let mut end = (track + 1) * zone.track_sectors;
        if let Some(&slip) = zone.slips.get(low) {
            end = end.min(slip.max(place + 1));
        }
        let mut start = track * zone.track_sectors;
        if low > 0 {
            start = start.max((zone.slips[low - 1] + 1).min(place));
        }
        if let Some(unit) = place.checked_div(zone.spare_unit) {
            let (front, back) = if zone.spares_at_front { (zone.spares, 0) } else { (0, zone.spares) };
            start = start.max((unit * zone.spare_unit + front).min(place));
            end = end.min(((unit + 1) * zone.spare_unit - back).max(place + 1));
        }
        end = end.min(place + (zone.first + zone.sectors - sector));
        let (cylinder, nth) = (track / self.surfaces, track % self.surfaces);
        let reversed = match self.order {
            Order::Same => false,
            Order::ByZone => cylinder % 2 == 1,
            Order::ByCylinder => (zone.first_cylinder + cylinder) % 2 == 1,
        };
        let skew = cylinder * ((self.surfaces - 1) * zone.track_skew + zone.cylinder_skew) + nth * zone.track_skew;
        let angle = zone.first_angle + skew + within * self.revolution / zone.track_sectors;
        Run {
            cylinder: zone.first_cylinder + cylinder,
            head: if reversed { self.surfaces - 1 - nth } else { nth },
            angle: angle % self.revolution,
            sectors: end - place,
            before: (place - start).min(sector - zone.first),
            track_sectors: zone.track_sectors,
            place: within,
        }
    }
}

impl Zone {
    /// Returns the place in the zone of its n-th sector that is no spare.
    fn place(&self, nth: u64) -> u64 {
        if self.spare_unit == 0 {
            return nth;
        }
        let usable = self.spare_unit - self.spares;
        let front = if self.spares_at_front { self.spares } else { 0 };
        nth / usable * self.spare_unit + nth % usable + front
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    fn small(slips: &[u64], spare_unit: u64, spares: u64, at_front: bool) -> Geometry {
        let zone = |first_cylinder, track_sectors| Zone {
            first_cylinder,
            cylinders: 4,
            track_sectors,
            track_skew: 3_000,
            cylinder_skew: 5_000,
            front: 2,
            spare_unit,
            spares,
            spares_at_front: at_front,
            slips: slips.to_vec(),
            ..Zone::default()
        };
        let geometry = Geometry {
            surfaces: 2,
            sectors: 0,
            revolution: 100_003,
            order: Order::Same,
            zones: vec![zone(0, 12), zone(5, 10)],
            seeks: vec![0, 10],
            head_switch: 1_000,
            resettle: 0,
            write_settle: 0,
        };
        geometry.new(None)
    }

    #[test]
    fn logical_sectors_follow_each_other_and_none_lies_on_a_slip_or_a_spare() {
        let mut random = Random::new(1);
        for case in 0..200 {
            let mut slips: Vec<u64> = (0..random.draw() % 6).map(|_| random.draw() % 70).collect();
            slips.sort_unstable();
            slips.dedup();
            let unit = [0, 20, 40][case % 3];
            let geometry = small(&slips, unit, if unit == 0 { 0 } else { 3 }, case % 2 == 0);
            let (mut sector, mut last) = (0, None);
            while sector < geometry.sectors {
                let run = geometry.locate(sector);
                let place = |run: &Run| ((run.cylinder * 2 + run.head) * 100) + run.place;
                assert!(last < Some(place(&run)), "{slips:?} {unit} {sector}");
                for offset in 1..run.sectors {
                    let next = geometry.locate(sector + offset);
                    assert_eq!((next.cylinder, next.head, next.place), (run.cylinder, run.head, run.place + offset));
                    assert_eq!((next.before, next.sectors), (run.before + offset, run.sectors - offset));
                    let angle = (run.angle + run.time(offset, geometry.revolution)) % geometry.revolution;
                    assert_eq!(next.angle, angle, "a sector begins where the one before it ends");
                }
                let end = geometry.locate(sector + run.sectors - 1);
                last = Some(place(&end));
                sector += run.sectors;
            }
        }
    }

    #[test]
    fn skews_turn_the_start_of_each_track() {
        let geometry = small(&[], 0, 0, false);
        assert_eq!(geometry.locate(0).angle, 2 * 100_003 / 12);
        assert_eq!(geometry.locate(10).angle, 3_000);
        assert_eq!(geometry.locate(22).angle, 8_000);
        assert_eq!(geometry.locate(34).head, 1);
        assert_eq!(geometry.locate(geometry.sectors + 7), geometry.locate(geometry.sectors - 1));
    }
}
