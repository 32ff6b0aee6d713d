//! Names of snapshots on the command line: `VOLUME@NAME`, several of a volume, or a range of them, as in `zfs destroy`.
//!
//! ```text
//! vm@a,c      a and c
//! vm@a%c      a, c and those created between them
//! vm@%c       the oldest to c
//! vm@a%       a to the newest
//! vm@a,d%f    both forms
//! ```

use anyhow::{anyhow, bail, ensure};

use crate::report::status::VolumeReport;

/// Snapshots of one volume that an argument names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Named<'a> {
    /// Name of the volume.
    pub volume: &'a str,
    parts: Vec<NamePart<'a>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum NamePart<'a> {
    One(&'a str),
    /// First and last; `None` for the oldest and the newest.
    Range(Option<&'a str>, Option<&'a str>),
}

/// Splits `VOLUME@NAME`.
pub fn split(name: &str) -> anyhow::Result<(&str, &str)> {
    let parts = name.split_once('@').filter(|(volume, name)| !volume.is_empty() && !name.is_empty());
    parts.ok_or_else(|| anyhow!("'{name}' is no name of a snapshot: write VOLUME@NAME, such as vm1@before-upgrade"))
}

/// Returns the name at an end of a range; `None` if it is left out.
fn end(name: &str) -> Option<&str> {
    Some(name).filter(|name| !name.is_empty())
}

/// Reads an argument.
pub fn read(argument: &str) -> anyhow::Result<Named<'_>> {
    let (volume, names) = split(argument)?;
    let part = |part| match str::split_once(part, '%') {
        None if part.is_empty() => bail!("'{argument}' names nothing at a comma: write VOLUME@A,B"),
        None => Ok(NamePart::One(part)),
        Some((_, last)) if last.contains('%') => bail!("'{argument}' has a range with two '%': write VOLUME@A%C"),
        Some((first, last)) => Ok(NamePart::Range(end(first), end(last))),
    };
    Ok(Named { volume, parts: names.split(',').map(part).collect::<anyhow::Result<_>>()? })
}

impl Named<'_> {
    /// Returns true if it has a range: all snapshots of the volume are needed to know its names.
    pub fn has_range(&self) -> bool {
        self.parts.iter().any(|part| matches!(part, NamePart::Range(..)))
    }

    /// Returns the full names. `snapshots` are those of the volume, in any order; without a range they may be missing.
    pub fn names(&self, snapshots: &[VolumeReport]) -> anyhow::Result<Vec<String>> {
        let volume = self.volume;
        let mut known: Vec<_> = snapshots.iter().filter_map(|snapshot| snapshot.snapshot.as_ref()).collect();
        known.retain(|snapshot| snapshot.volume == volume);
        known.sort_by_key(|snapshot| snapshot.born);
        let place = |name: &str| {
            let place = known.iter().position(|snapshot| snapshot.name == name);
            place.ok_or_else(|| {
                anyhow!("there is no snapshot '{volume}@{name}': 'onefold snapshot list' shows them all")
            })
        };
        let mut names: Vec<String> = Vec::new();
        for &part in &self.parts {
            let found = match part {
                NamePart::One(name) => vec![format!("{volume}@{name}")],
                NamePart::Range(first, last) => {
                    ensure!(!known.is_empty(), "the volume '{volume}' has no snapshots");
                    let first = first.map_or(Ok(0), place)?;
                    let last = last.map_or(Ok(known.len() - 1), place)?;
                    let (one, other) = (&known[first].name, &known[last].name);
                    ensure!(
                        first <= last,
                        "'{volume}@{one}' was created behind '{volume}@{other}': a range goes from the older one to the newer one, \
                         {volume}@{other}%{one}"
                    );
                    known[first..=last].iter().map(|snapshot| format!("{volume}@{}", snapshot.name)).collect()
                }
            };
            for name in found {
                if !names.contains(&name) {
                    names.push(name);
                }
            }
        }
        Ok(names)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::status::SnapshotReport;
    use crate::report::text::tests::volume;

    /// Snapshots a to e of `vm`, created in this order, and one of another volume; listed in the order of their names backwards.
    fn snapshots() -> Vec<VolumeReport> {
        let snapshot = |(born, (of, name)): (u64, (&str, &str))| VolumeReport {
            snapshot: Some(SnapshotReport {
                volume: of.into(),
                name: name.into(),
                created: 7,
                born,
                clones: 0,
                held: false,
            }),
            ..volume(&format!("{of}@{name}"), 0)
        };
        let all = [("vm", "e"), ("vm", "d"), ("other", "c"), ("vm", "c"), ("vm", "b"), ("vm", "a")];
        (0..).map(|at| 9 - at).zip(all).map(snapshot).collect()
    }

    fn names(argument: &str) -> Result<String, String> {
        let named = read(argument).map_err(|error| error.to_string())?;
        let names = named.names(&snapshots()).map_err(|error| error.to_string())?;
        Ok(names.join(" ").replace("vm@", ""))
    }

    #[test]
    fn a_snapshot_is_named_by_its_volume_and_its_name() {
        assert_eq!(split("vm1@monday").unwrap(), ("vm1", "monday"));
        for name in ["vm1", "vm1@", "@monday", "", "@"] {
            let error = split(name).unwrap_err().to_string();
            assert!(error.contains(&format!("'{name}'")) && error.contains("VOLUME@NAME"), "{error}");
        }
    }

    #[test]
    fn several_and_ranges_are_by_their_creation() {
        for (argument, expected) in [
            ("vm@a", "a"),
            ("vm@c,a", "c a"),
            ("vm@b%d", "b c d"),
            ("vm@%b", "a b"),
            ("vm@d%", "d e"),
            ("vm@%", "a b c d e"),
            ("vm@c%c", "c"),
            ("vm@e,a%b,a", "e a b"),
            // The server says that it is not there.
            ("vm@none", "none"),
        ] {
            assert_eq!(names(argument).as_deref(), Ok(expected), "{argument}");
        }
        assert!(read("vm@a,b%").unwrap().has_range() && !read("vm@a,b").unwrap().has_range());
    }

    #[test]
    fn what_names_nothing_is_refused() {
        for (argument, reason) in [
            ("vm@a,", "at a comma"),
            ("vm@,a", "at a comma"),
            ("vm@a%b%c", "two '%'"),
            ("vm@a%none", "no snapshot 'vm@none'"),
            ("vm@none%", "no snapshot 'vm@none'"),
            ("vm@d%b", "vm@b%d"),
            ("nothing@%", "'nothing' has no snapshots"),
        ] {
            let error = names(argument).unwrap_err();
            assert!(error.contains(reason), "{argument}: {error}");
        }
    }
}
