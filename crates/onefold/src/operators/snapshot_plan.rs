//! Plan of automatic snapshots: which ones are due, and which ones are deleted, by a time that is given.
//!
//! A snapshot is due if its volume has none of that period since the beginning of the period. So a server that was away takes one when it is back, however many
//! were missed. Its name has the time at which it is taken, to the minute, and the period: `auto-2026-11-28T13:00Z-hourly`.
//!
//! What must hold: only snapshots with such a name are deleted, of periods that the schedule has, beyond the newest ones that it keeps. Held ones are not. The
//! order of age is that of their creation, whatever the clock said then.

use engine::{Period, SnapshotSchedule};
use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

/// Seconds of the shortest period. All others begin with one of this.
const QUARTER: i64 = 900;
const HOUR: i64 = 3600;
const DAY: i64 = 86_400;
/// Days from Monday, 29 December 1969, to the beginning of 1970.
const SINCE_MONDAY: i64 = 3;
/// Parts of a name.
const PREFIX: &str = "auto-";
const TIME: &str = "%Y-%m-%dT%H:%MZ";

/// Snapshot of a volume.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Existing {
    /// Name, the part behind `@`.
    pub name: String,
    /// True if it may not be deleted.
    pub is_held: bool,
}

/// Volume with a schedule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Scheduled {
    /// Name of the volume.
    pub name: String,
    /// Numbers of snapshots to keep.
    pub schedule: SnapshotSchedule,
    /// All its snapshots, in the order of their creation.
    pub snapshots: Vec<Existing>,
}

/// Snapshots to take at one moment, with one name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DueGroup {
    /// Period that they are taken for.
    pub period: Period,
    /// Name, the part behind `@`.
    pub name: String,
    /// Names of the volumes.
    pub volumes: Vec<String>,
}

/// Returns the beginning of the period that has a moment, both in seconds since 1970.
fn beginning(period: Period, now: i64) -> i64 {
    let day = now.div_euclid(DAY);
    let date = |first: fn(jiff::civil::Date) -> jiff::civil::Date| {
        let date = Timestamp::from_second(now).map(|now| first(now.to_zoned(TimeZone::UTC).date()));
        let began = date.and_then(|date| date.to_zoned(TimeZone::UTC)).map(|zoned| zoned.timestamp().as_second());
        // Beyond all times that have a date, each moment begins a period.
        began.unwrap_or(now)
    };
    match period {
        Period::Frequently => now.div_euclid(QUARTER) * QUARTER,
        Period::Hourly => hour(now),
        Period::Daily => day * DAY,
        Period::Weekly => ((day + SINCE_MONDAY).div_euclid(7) * 7 - SINCE_MONDAY) * DAY,
        Period::Monthly => date(jiff::civil::Date::first_of_month),
        Period::Yearly => date(jiff::civil::Date::first_of_year),
    }
}

/// Returns the beginning of the hour that has a moment.
pub fn hour(now: i64) -> i64 {
    now.div_euclid(HOUR) * HOUR
}

/// Returns the end of the quarter of an hour that has a moment: before it, no period begins.
pub fn next_beginning(now: i64) -> i64 {
    beginning(Period::Frequently, now).saturating_add(QUARTER)
}

/// Returns the name of a snapshot that is taken at a moment.
fn name_of(period: Period, now: i64) -> Option<String> {
    let time = Timestamp::from_second(now).ok()?.to_zoned(TimeZone::UTC);
    Some(format!("{PREFIX}{}-{}", time.strftime(TIME), period.name()))
}

/// Returns the moment and the period in the name of an automatic snapshot; `None` for all others.
fn parse(name: &str) -> Option<(i64, Period)> {
    let (time, period) = name.strip_prefix(PREFIX)?.rsplit_once('-')?;
    let (time, period) = (DateTime::strptime(TIME, time).ok()?, Period::named(period)?);
    let taken = time.to_zoned(TimeZone::UTC).ok()?.timestamp().as_second();
    (name_of(period, taken).as_deref() == Some(name)).then_some((taken, period))
}

/// Returns the snapshots to take now, with one group for each period.
pub fn due(now: i64, volumes: &[Scheduled]) -> Vec<DueGroup> {
    let group = |period: Period| {
        let (began, name) = (beginning(period, now), name_of(period, now)?);
        let is_current = |snapshot: &Existing| {
            let taken = parse(&snapshot.name).filter(|&(taken, of)| of == period && (began..=now).contains(&taken));
            taken.is_some() || snapshot.name == name
        };
        let is_due = |volume: &&Scheduled| volume.schedule.kept(period) > 0 && !volume.snapshots.iter().any(is_current);
        let volumes: Vec<String> = volumes.iter().filter(is_due).map(|volume| volume.name.clone()).collect();
        (!volumes.is_empty()).then_some(DueGroup { period, name, volumes })
    };
    Period::ALL.into_iter().filter_map(group).collect()
}

/// Returns the snapshots to delete, by volume and the part behind `@`.
pub fn expired(volumes: &[Scheduled]) -> Vec<(&str, &str)> {
    let mut expired = Vec::new();
    for volume in volumes {
        for period in Period::ALL.into_iter().filter(|&period| volume.schedule.kept(period) > 0) {
            let is_of_period = |snapshot: &&Existing| parse(&snapshot.name).is_some_and(|(_, of)| of == period);
            let beyond = volume.snapshots.iter().rev().filter(is_of_period).skip(volume.schedule.kept(period));
            let deletable = beyond.filter(|snapshot| !snapshot.is_held);
            expired.extend(deletable.map(|snapshot| (volume.name.as_str(), snapshot.name.as_str())));
        }
    }
    expired
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn at(text: &str) -> i64 {
        text.parse::<Timestamp>().unwrap().as_second()
    }

    fn scheduled(name: &str, schedule: &str, snapshots: &[&str]) -> Scheduled {
        let existing = |name: &&str| Existing { name: name.trim_end_matches('!').into(), is_held: name.ends_with('!') };
        Scheduled {
            name: name.into(),
            schedule: schedule.parse().unwrap(),
            snapshots: snapshots.iter().map(existing).collect(),
        }
    }

    fn names(now: &str, volumes: &[Scheduled]) -> Vec<String> {
        due(at(now), volumes).into_iter().map(|group| group.name).collect()
    }

    #[test]
    fn periods_begin_by_utc() {
        for (period, expected) in [
            (Period::Frequently, "2026-11-28T13:45:00Z"),
            (Period::Hourly, "2026-11-28T13:00:00Z"),
            (Period::Daily, "2026-11-28T00:00:00Z"),
            (Period::Weekly, "2026-11-23T00:00:00Z"),
            (Period::Monthly, "2026-11-01T00:00:00Z"),
            (Period::Yearly, "2026-01-01T00:00:00Z"),
        ] {
            assert_eq!(beginning(period, at("2026-11-28T13:59:59Z")), at(expected), "{period:?}");
            assert_eq!(beginning(period, at(expected)), at(expected), "{period:?}");
            assert!(beginning(period, at(expected) - 1) < at(expected), "{period:?}");
            assert_eq!(next_beginning(at(expected) - 1), at(expected), "all begin with a quarter of an hour");
        }
        assert_eq!(beginning(Period::Monthly, at("1969-12-31T23:00:00Z")), at("1969-12-01T00:00:00Z"));
        assert_eq!(beginning(Period::Weekly, 0), at("1969-12-29T00:00:00Z"));
    }

    #[test]
    fn at_midnight_each_period_has_a_group_of_all_its_volumes() {
        let volumes = [
            scheduled("a", "hourly:2,daily:2", &["auto-2026-11-28T23:00Z-hourly", "auto-2026-11-28T00:00Z-daily"]),
            scheduled("b", "daily:1,monthly:1", &["auto-2026-11-28T00:00Z-daily", "auto-2026-11-01T00:00Z-monthly"]),
            scheduled("c", "off", &[]),
        ];
        let group = |period, name: &str, volumes: &[&str]| DueGroup {
            period,
            name: name.into(),
            volumes: volumes.iter().map(|&name| name.into()).collect(),
        };
        assert_eq!(due(at("2026-11-28T23:59:59Z"), &volumes), []);
        assert_eq!(
            due(at("2026-11-29T00:00:07Z"), &volumes),
            [
                group(Period::Hourly, "auto-2026-11-29T00:00Z-hourly", &["a"]),
                group(Period::Daily, "auto-2026-11-29T00:00Z-daily", &["a", "b"]),
            ]
        );
    }

    #[test]
    fn what_was_missed_is_taken_once_and_named_by_its_own_time() {
        let old = [scheduled("a", "hourly:36", &["auto-2026-11-28T13:00Z-hourly"])];
        assert_eq!(names("2026-11-28T13:59:00Z", &old), [""; 0]);
        assert_eq!(names("2026-11-29T09:20:31Z", &old), ["auto-2026-11-29T09:20Z-hourly"]);
        let new = [scheduled("a", "hourly:36", &["auto-2026-11-28T13:00Z-hourly", "auto-2026-11-29T09:20Z-hourly"])];
        assert_eq!(names("2026-11-29T09:59:00Z", &new), [""; 0]);
        assert_eq!(names("2026-11-29T10:00:00Z", &new), ["auto-2026-11-29T10:00Z-hourly"]);
    }

    #[test]
    fn a_clock_that_was_wrong_neither_stops_the_schedule_nor_takes_a_name_twice() {
        let ahead = [scheduled("a", "hourly:2", &["auto-2099-01-01T00:00Z-hourly"])];
        assert_eq!(names("2026-11-28T13:00:00Z", &ahead), ["auto-2026-11-28T13:00Z-hourly"]);
        let twice = [scheduled("a", "hourly:2", &["auto-2026-11-28T13:20Z-hourly", "auto-2026-11-28T14:00Z-hourly"])];
        assert_eq!(names("2026-11-28T13:30:00Z", &twice), [""; 0]);
        // The oldest by creation goes first.
        let hourly =
            ["auto-2099-01-01T00:00Z-hourly", "auto-2026-11-28T13:00Z-hourly", "auto-2026-11-28T14:00Z-hourly"];
        assert_eq!(expired(&[scheduled("a", "hourly:2", &hourly)]), [("a", hourly[0])]);
    }

    #[test]
    fn only_its_own_snapshots_are_deleted_and_never_held_ones() {
        let snapshots = [
            "before-upgrade",
            "auto-2026-11-28T09:00Z-hourly!",
            "auto-2026-11-28T10:00Z-hourly",
            "auto-2026-11-28T11:00Z-daily",
            "auto-2026-11-28T11:00Z-hourly",
            "auto-2026-11-28T12:00Z-hourly",
            "auto-2026-11-28T12:0Z-hourly",
            "auto-2026-11-28T12:00Z-hourlyx",
            "auto-2026-13-28T12:00Z-hourly",
            "auto-2026-11-28T12:00-hourly",
            "auto-hourly",
            "auto-2026-11-28T13:00Z-hourly",
        ];
        assert_eq!(
            expired(&[scheduled("a", "hourly:2", &snapshots), scheduled("b", "off", &snapshots)]),
            [("a", "auto-2026-11-28T11:00Z-hourly"), ("a", "auto-2026-11-28T10:00Z-hourly")]
        );
    }

    proptest! {
        /// Checks any schedules over any course of time, with a server that is away now and then, against what sanoid promises: never more than the number of a
        /// period, the newest ones, and one in each period in which the server was there.
        #[test]
        fn the_newest_of_each_period_stay(
            schedules in vec(vec((0..6usize, 1..5u16), 0..4), 1..4),
            began in -1_000_000..4_000_000_000i64,
            steps in vec((prop_oneof![0..1000i64, 0..100_000i64, 0..40_000_000i64], 0..8usize), 1..60),
        ) {
            let text = |periods: &Vec<(usize, u16)>| {
                let kept: BTreeMap<usize, u16> = periods.iter().copied().collect();
                let parts: Vec<_> = kept.iter().map(|(&at, kept)| format!("{}:{kept}", Period::ALL[at].name())).collect();
                if parts.is_empty() { "off".to_string() } else { parts.join(",") }
            };
            let mut volumes: Vec<Scheduled> =
                schedules.iter().zip('a'..).map(|(periods, name)| scheduled(&name.to_string(), &text(periods), &["mine"])).collect();
            let mut now = began;
            for (seconds, held) in steps {
                now += seconds;
                let before = volumes.clone();
                for group in due(now, &volumes) {
                    prop_assert!(engine::is_snapshot_name(&group.name));
                    for volume in &mut volumes {
                        if group.volumes.contains(&volume.name) {
                            prop_assert!(volume.snapshots.iter().all(|known| known.name != group.name));
                            volume.snapshots.push(Existing { name: group.name.clone(), is_held: held == 0 });
                        }
                    }
                }
                prop_assert_eq!(due(now, &volumes), [], "one at a time");
                let gone: Vec<(String, String)> =
                    expired(&volumes).into_iter().map(|(volume, name)| (volume.into(), name.into())).collect();
                for volume in &mut volumes {
                    let name = volume.name.clone();
                    volume.snapshots.retain(|snapshot| !gone.contains(&(name.clone(), snapshot.name.clone())));
                }
                prop_assert!(expired(&volumes).is_empty());
                for (volume, before) in volumes.iter().zip(&before) {
                    prop_assert_eq!(&volume.snapshots[0].name, "mine");
                    let held = |volume: &Scheduled| volume.snapshots.iter().filter(|snapshot| snapshot.is_held).count();
                    prop_assert!(held(volume) >= held(before));
                    for period in Period::ALL {
                        let of: Vec<i64> = volume.snapshots.iter().filter_map(|snapshot| parse(&snapshot.name))
                            .filter(|(_, found)| *found == period).map(|(taken, _)| taken).collect();
                        let kept = volume.schedule.kept(period);
                        prop_assert!(of.len() <= kept + held(volume));
                        prop_assert!(kept == 0 || of.last().is_some_and(|&taken| taken >= beginning(period, now)));
                        let mut periods: Vec<i64> = of.iter().map(|&taken| beginning(period, taken)).collect();
                        periods.dedup();
                        prop_assert_eq!(periods.len(), of.len(), "one a period");
                    }
                }
            }
        }
    }
}
