//! Selection of the volumes of an answer, and the join of parts to a whole report.
//!
//! Invariants: an answer has at most [`VOLUMES_AT_ONCE`] volumes, each once. All volumes are read in parts, in the order of their numbers, each from the number
//! behind the last part on. So a volume that comes or goes between two parts neither moves nor repeats another.

use std::collections::HashMap;

use engine::{Engine, Volume, VolumeId};
use serde::{Deserialize, Serialize};

use crate::report::status::VolumeReport;

/// Volumes in an answer, at most.
pub const VOLUMES_AT_ONCE: usize = 256;

/// Volumes that an answer has, besides the pool's figures.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum Selection {
    /// Those of these names; names without a volume are left out.
    Named(Vec<String>),
    /// A part of those with higher numbers than this, without snapshots.
    Behind(u16),
    /// A part of the snapshots with higher numbers than this.
    Snapshots {
        /// Volume of the snapshots; none: of all volumes.
        of: Option<String>,
        /// Number behind which the part begins.
        behind: u16,
    },
    /// A part of the volumes with a schedule of snapshots and higher numbers than this.
    Scheduled {
        /// Number behind which the part begins.
        behind: u16,
    },
}

/// All volumes: the first part.
impl Default for Selection {
    fn default() -> Selection {
        Selection::ALL
    }
}

impl Selection {
    /// All volumes.
    pub const ALL: Selection = Selection::Behind(0);
    /// All volumes with a schedule of snapshots: the first part.
    pub const SCHEDULED: Selection = Selection::Scheduled { behind: 0 };
    /// No volumes: the pool's figures alone.
    pub const NONE: Selection = Selection::Named(Vec::new());

    /// Selects all snapshots, or those of a volume: the first part.
    pub fn snapshots(of: Option<&str>) -> Selection {
        Selection::Snapshots { of: of.map(String::from), behind: 0 }
    }

    /// Selects the part that begins behind a number.
    fn part_behind(self, number: u16) -> Selection {
        match self {
            Selection::Snapshots { of, .. } => Selection::Snapshots { of, behind: number },
            Selection::Scheduled { .. } => Selection::Scheduled { behind: number },
            Selection::Named(_) | Selection::Behind(_) => Selection::Behind(number),
        }
    }

    /// Selects one volume.
    pub fn one(name: &str) -> Selection {
        Selection::Named(vec![name.into()])
    }

    /// Refuses more names than an answer can have.
    pub fn check(&self) -> Result<(), String> {
        match self {
            Selection::Named(names) if names.len() > VOLUMES_AT_ONCE => {
                Err(format!("{} volumes are named, and an answer has at most {VOLUMES_AT_ONCE}", names.len()))
            }
            _ => Ok(()),
        }
    }

    /// Returns the selected volumes of an answer in the order of their numbers, and the number behind which the next part begins; `None` if there is none.
    pub fn part<'a>(&self, engine: &'a Engine) -> (Vec<&'a Volume>, Option<u16>) {
        match self {
            Selection::Named(_) => (self.volumes(engine), None),
            Selection::Behind(number) => first_of(volumes_behind(engine, *number)),
            Selection::Snapshots { of, behind } => first_of(snapshots_behind(engine, of.as_deref(), *behind)),
            Selection::Scheduled { behind } => first_of(scheduled_behind(engine, *behind)),
        }
    }

    /// Returns all selected volumes in the order of their numbers, for a report that is no answer of a server.
    pub fn volumes<'a>(&self, engine: &'a Engine) -> Vec<&'a Volume> {
        match self {
            Selection::Named(names) => {
                let mut volumes: Vec<&Volume> = names.iter().filter_map(|name| engine.volume_named(name)).collect();
                volumes.sort_by_key(|volume| volume.id);
                volumes.dedup_by_key(|volume| volume.id);
                volumes
            }
            Selection::Behind(number) => volumes_behind(engine, *number).collect(),
            Selection::Snapshots { of, behind } => snapshots_behind(engine, of.as_deref(), *behind).collect(),
            Selection::Scheduled { behind } => scheduled_behind(engine, *behind).collect(),
        }
    }
}

/// Returns as many volumes as an answer has, and the number behind which the next part begins; `None` if there is none.
fn first_of<'a>(mut volumes: impl Iterator<Item = &'a Volume>) -> (Vec<&'a Volume>, Option<u16>) {
    let part: Vec<&Volume> = volumes.by_ref().take(VOLUMES_AT_ONCE).collect();
    let next = part.last().filter(|_| volumes.next().is_some()).map(|last| last.id.0);
    (part, next)
}

fn volumes_behind(engine: &Engine, number: u16) -> impl Iterator<Item = &Volume> {
    engine.volumes_above(VolumeId(number)).filter(|volume| !volume.is_snapshot())
}

/// Returns the snapshots of a volume, or all, with higher numbers than one; none if there is no such volume.
fn snapshots_behind<'a>(engine: &'a Engine, of: Option<&str>, number: u16) -> impl Iterator<Item = &'a Volume> {
    let of = of.map(|name| engine.volume_named(name).map(|volume| volume.id));
    let is_of = move |volume: &&Volume| {
        volume.family.snapshot.is_some_and(|snapshot| of.is_none_or(|of| of == Some(snapshot.of)))
    };
    engine.volumes_above(VolumeId(number)).filter(is_of)
}

/// Returns the volumes with a schedule of snapshots and higher numbers than one.
fn scheduled_behind(engine: &Engine, number: u16) -> impl Iterator<Item = &Volume> {
    engine.volumes_above(VolumeId(number)).filter(|volume| !volume.properties.snapshots().is_off())
}

/// Parts of all volumes, joined in the order in which they come.
#[derive(Default)]
pub struct Parts {
    volumes: Vec<VolumeReport>,
    /// Number behind which the next part begins.
    behind: u16,
}

impl Parts {
    /// Adds a part of a selection behind which another one begins. Returns the selection of that; `None` if it is not behind the parts before.
    pub fn add(&mut self, selection: Selection, part: Vec<VolumeReport>, next: u16) -> Option<Selection> {
        if next <= self.behind {
            return None;
        }
        self.volumes.extend(part);
        self.behind = next;
        Some(selection.part_behind(next))
    }

    /// Joins the last part, too. Drops volumes whose names come again in later parts: they were deleted meanwhile, and their names given to others.
    pub fn join(mut self, last: Vec<VolumeReport>) -> Vec<VolumeReport> {
        self.volumes.extend(last);
        let names = self.volumes.iter().enumerate().map(|(place, volume)| (volume.name.clone(), place));
        let places: HashMap<String, usize> = names.collect();
        let all = self.volumes.into_iter().enumerate();
        all.filter(|(place, volume)| places[&volume.name] == *place).map(|(_, volume)| volume).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};
    use std::convert::Infallible;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::operators::control::{NOT_UNDERSTOOD, Request, Response, ask_in_parts};
    use crate::report::status::Report;
    use crate::report::text::tests::{report, volume};

    /// Volumes of a server by their numbers, which gives volumes out in parts of two.
    struct Server {
        volumes: BTreeMap<u16, String>,
        asked: Vec<Request>,
    }

    impl Server {
        fn answer(&mut self, request: &Request) -> Result<Option<Response>, Infallible> {
            self.asked.push(request.clone());
            let Request::Status { volumes: Selection::Behind(number), .. } = request else { panic!("{request:?}") };
            let mut behind = self.volumes.range(number + 1..);
            let part: Vec<_> = behind.by_ref().take(2).collect();
            let mut report = Box::new(report(0));
            report.volumes = part.iter().map(|(number, name)| volume(name, u64::from(**number))).collect();
            let next = part.last().filter(|_| behind.next().is_some()).map(|(number, _)| **number);
            Ok(Some(next.map_or(Response::Done(report.clone()), |next| Response::Part { report, next })))
        }

        /// Deletes the volume of a number, or creates one if the name is free.
        fn change(&mut self, number: u16, name: &str) {
            if self.volumes.remove(&number).is_none() && self.volumes.values().all(|other| other != name) {
                self.volumes.insert(number, name.into());
            }
        }
    }

    fn names(report: &Report) -> Vec<(u64, &str)> {
        report.volumes.iter().map(|volume| (volume.logical_blocks_used, volume.name.as_str())).collect()
    }

    fn joined(request: &Request, ask: impl FnMut(&Request) -> Result<Option<Response>, Infallible>) -> Report {
        let Ok(Some(Response::Done(report))) = ask_in_parts(request, ask) else { panic!("no figures") };
        *report
    }

    #[test]
    fn parts_are_joined_in_order_and_settled_each() {
        let volumes = [(1, "c"), (2, "b"), (7, "a"), (9, "d"), (10, "e")];
        let mut server =
            Server { volumes: volumes.map(|(number, name)| (number, name.into())).into(), asked: Vec::new() };
        let whole =
            joined(&Request::Status { settle: true, volumes: Selection::ALL }, |request| server.answer(request));
        assert_eq!(names(&whole), [(1, "c"), (2, "b"), (7, "a"), (9, "d"), (10, "e")]);
        let part = |number| Request::Status { settle: true, volumes: Selection::Behind(number) };
        assert_eq!(server.asked, [0, 2, 9].map(part));
    }

    #[test]
    fn each_part_is_of_the_same_selection() {
        let of = |behind| Selection::Snapshots { of: Some("vm".into()), behind };
        let mut parts = Parts::default();
        assert_eq!(parts.add(Selection::snapshots(Some("vm")), Vec::new(), 7), Some(of(7)));
        assert_eq!(parts.add(of(7), Vec::new(), 9), Some(of(9)));
        assert_eq!(parts.add(of(9), Vec::new(), 9), None);
    }

    #[test]
    fn a_server_that_does_not_go_on_is_not_asked_for_ever() {
        let stuck = |_: &Request| Ok::<_, Infallible>(Some(Response::Part { report: Box::new(report(1)), next: 5 }));
        let answer = ask_in_parts(&Request::status(Selection::ALL), stuck);
        assert_eq!(answer, Ok(Some(Response::Failed(NOT_UNDERSTOOD.into()))));
    }

    #[test]
    fn a_request_without_volumes_means_the_first_part() {
        let request: Request = serde_json::from_str(r#"{"command":"status","settle":false}"#).unwrap();
        assert_eq!(request, Request::status(Selection::ALL));
    }

    proptest! {
        // Volumes come and go between two parts, and take names and numbers of others.
        #[test]
        fn each_volume_comes_once_and_none_that_stays_is_missed(
            before in vec((1..20u16, "[a-h]"), 0..20),
            changes in vec(vec((1..20u16, "[a-h]"), 0..3), 12),
        ) {
            let mut server = Server { volumes: BTreeMap::new(), asked: Vec::new() };
            before.iter().for_each(|(number, name)| server.change(*number, name));
            let (mut stay, mut ever) = (server.volumes.clone(), BTreeSet::new());
            let mut changes = changes.into_iter();
            let whole = joined(&Request::status(Selection::ALL), |request| {
                let answer = server.answer(request);
                ever.extend(server.volumes.clone());
                for (number, name) in changes.next().unwrap_or_default() {
                    server.change(number, &name);
                    stay.retain(|number, name| server.volumes.get(number) == Some(name));
                }
                answer
            });
            let found = names(&whole);
            prop_assert!(found.is_sorted_by(|a, b| a.0 < b.0), "in the order of their numbers: {found:?}");
            prop_assert_eq!(found.iter().map(|(_, name)| name).collect::<BTreeSet<_>>().len(), found.len());
            prop_assert!(found.iter().all(|(number, name)| ever.contains(&(*number as u16, name.to_string()))));
            prop_assert!(stay.iter().all(|(number, name)| found.contains(&(u64::from(*number), name.as_str()))), "{stay:?}, {found:?}");
        }
    }
}
