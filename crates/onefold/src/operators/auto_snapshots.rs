//! Automatic snapshots (`onefold volume set POOL VOLUME snapshots=hourly:36,daily:30`): takes those that are due and deletes those beyond the number to keep.
//!
//! A thread of its own looks at the beginning of each quarter of an hour, and soon after a schedule was set. It sends the reactor an operator's requests; what
//! they do is planned in [`super::snapshot_plan`].
//!
//! What must hold: nothing that was refused is tried again before the next hour. A refusal for one volume or snapshot does not keep the others from theirs.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, bail};
use engine::SnapshotSchedule;
use jiff::Timestamp;
use tracing::warn;

use crate::operators::control::{self, Message, Request, Response, Sending};
use crate::operators::selection::Selection;
#[cfg(feature = "faults")]
use crate::operators::set_clock::SetClock;
use crate::operators::snapshot_plan::{self, Existing, Scheduled, due, expired};
use crate::report::status::{Report, show_date};

/// Time from one look for other schedules to the next.
const LOOK: Duration = Duration::from_secs(30);
/// Extension of the file by which a test sees that a set time has been read.
#[cfg(feature = "faults")]
const SEEN: &str = "snapshots-seen";

/// Function that asks the server. An error is a reason to give up for now: the server stops, or is being opened.
type AskServer<'a> = &'a dyn Fn(&Request) -> anyhow::Result<Result<Report, String>>;

/// Clock that sets the moments of looks, and the time at each.
enum LookClock {
    /// Clock of this machine.
    Real,
    #[cfg(feature = "faults")]
    Set(SetClock),
}

impl LookClock {
    fn begin() -> LookClock {
        #[cfg(feature = "faults")]
        if let Some(set) = SetClock::from_environment(SEEN) {
            return LookClock::Set(set);
        }
        LookClock::Real
    }

    /// Waits for the next look, at the latest until a period begins. Returns the time in seconds since 1970.
    fn wait(&mut self) -> i64 {
        match self {
            LookClock::Real => {
                let now = Timestamp::now();
                let next = Timestamp::from_second(snapshot_plan::next_beginning(now.as_second())).unwrap_or(now);
                let left = Duration::try_from(next.duration_since(now)).unwrap_or_default();
                std::thread::sleep(left.clamp(Duration::from_millis(1), LOOK));
                Timestamp::now().as_second()
            }
            #[cfg(feature = "faults")]
            LookClock::Set(set) => set.wait().1.as_second(),
        }
    }
}

/// State that is kept from one look to the next.
#[derive(Default)]
struct AutoSnapshots {
    /// Schedules at the last look by volume, and the end of the quarter of an hour that it was in.
    seen: Option<(BTreeMap<String, SnapshotSchedule>, i64)>,
    /// Snapshots that were not taken or not deleted, with the time of the refusal.
    refused: BTreeMap<String, i64>,
    /// Last failure of each volume, as a sentence, until its snapshots succeed again.
    failures: BTreeMap<String, String>,
}

impl AutoSnapshots {
    /// Looks for other schedules, takes the snapshots that are due and deletes expired ones. Returns true if the failures have changed.
    fn look(&mut self, now: i64, asks: AskServer<'_>) -> anyhow::Result<bool> {
        let report = asks(&Request::status(Selection::SCHEDULED))?.map_err(anyhow::Error::msg)?;
        if report.mode != "normal" {
            return Ok(false);
        }
        let mut schedules = BTreeMap::new();
        for volume in &report.volumes {
            let property = volume.property(engine::VolumeProperty::Snapshots);
            let schedule = property.and_then(|(text, _)| text.parse::<SnapshotSchedule>().ok());
            schedules.insert(volume.name.clone(), schedule.context("a schedule that is not known")?);
        }
        let seen = (schedules, snapshot_plan::next_beginning(now));
        if self.seen.as_ref() == Some(&seen) {
            return Ok(false);
        }
        let before = self.failures.clone();
        self.failures.retain(|volume, _| seen.0.contains_key(volume));
        if !seen.0.is_empty() {
            self.work(now, &seen.0, asks)?;
        }
        self.seen = Some(seen);
        Ok(self.failures != before)
    }

    /// Takes the snapshots that are due, and then deletes those that are not kept.
    fn work(
        &mut self,
        now: i64,
        schedules: &BTreeMap<String, SnapshotSchedule>,
        asks: AskServer<'_>,
    ) -> anyhow::Result<()> {
        self.refused.retain(|_, &mut refused| snapshot_plan::hour(refused) == snapshot_plan::hour(now));
        let mut failed = BTreeMap::new();
        let mut volumes = scheduled(schedules, asks)?;
        let mut has_taken = false;
        for mut group in due(now, &volumes) {
            let key = |volume: &String| format!("{volume}@{}", group.period.name());
            group.volumes.retain(|volume| !self.refused.contains_key(&key(volume)));
            let refusals = in_parts(&group.volumes, &mut |volumes: &[String]| {
                let request = Request::CreateSnapshots { volumes: volumes.to_vec(), name: group.name.clone() };
                Ok(asks(&request)?.map(drop))
            })?;
            has_taken |= refusals.len() < group.volumes.len();
            for (volume, reason) in refusals {
                self.refused.insert(key(&volume), now);
                failed.insert(volume, format!("no {} snapshot: {reason}", group.period.name()));
            }
        }
        if has_taken {
            volumes = scheduled(schedules, asks)?;
        }
        let expired: Vec<String> = expired(&volumes).iter().map(|(volume, name)| format!("{volume}@{name}")).collect();
        let expired: Vec<String> = expired.into_iter().filter(|name| !self.refused.contains_key(name)).collect();
        let refusals = in_parts(&expired, &mut |names: &[String]| {
            Ok(asks(&Request::DeleteSnapshots { names: names.to_vec(), force: false })?.map(drop))
        })?;
        for (name, reason) in refusals {
            let volume = name.split('@').next().unwrap_or_default().to_string();
            failed.insert(volume, format!("'{name}' is not deleted: {reason}"));
            self.refused.insert(name, now);
        }
        self.note(now, failed);
        Ok(())
    }

    /// Keeps the failures of a look, and logs those that are new.
    fn note(&mut self, now: i64, failed: BTreeMap<String, String>) {
        // A refusal of this hour has not been tried again.
        let stays = |volume: &str| self.refused.keys().any(|name| name.split('@').next() == Some(volume));
        let mut failures = std::mem::take(&mut self.failures);
        failures.retain(|volume, _| stays(volume));
        for (volume, reason) in failed {
            let is_known = failures.get(&volume).is_some_and(|known| known.ends_with(&reason));
            if !is_known {
                warn!("automatic snapshots of the volume '{volume}': {reason}");
            }
            failures.insert(volume, format!("{}: {reason}", show_date(now.try_into().unwrap_or_default())));
        }
        self.failures = failures;
    }
}

/// Asks for the volumes with schedules and their snapshots.
fn scheduled(schedules: &BTreeMap<String, SnapshotSchedule>, asks: AskServer<'_>) -> anyhow::Result<Vec<Scheduled>> {
    let of = if schedules.len() == 1 { schedules.keys().next().map(String::as_str) } else { None };
    let report = asks(&Request::status(Selection::snapshots(of)))?.map_err(anyhow::Error::msg)?;
    let mut families: Vec<_> = report.volumes.into_iter().filter_map(|volume| volume.snapshot).collect();
    families.sort_by_key(|family| family.born);
    let mut snapshots: BTreeMap<String, Vec<Existing>> = BTreeMap::new();
    for family in families {
        let existing = Existing { name: family.name, is_held: family.held };
        snapshots.entry(family.volume).or_default().push(existing);
    }
    let volume = |(name, &schedule): (&String, _)| Scheduled {
        name: name.clone(),
        schedule,
        snapshots: snapshots.remove(name).unwrap_or_default(),
    };
    Ok(schedules.iter().map(volume).collect())
}

/// Sends a request for all names at once; where that is refused, for each half of them, and so on. Returns the names for which it is refused alone, with the
/// reasons.
fn in_parts<Perform>(names: &[String], perform: &mut Perform) -> anyhow::Result<Vec<(String, String)>>
where
    Perform: FnMut(&[String]) -> anyhow::Result<Result<(), String>>,
{
    if names.is_empty() {
        return Ok(Vec::new());
    }
    match (perform(names)?, names) {
        (Ok(()), _) => Ok(Vec::new()),
        (Err(reason), [name]) => Ok(vec![(name.clone(), reason)]),
        (Err(_), _) => {
            let (first, second) = names.split_at(names.len() / 2);
            let mut refusals = in_parts(first, perform)?;
            refusals.extend(in_parts(second, perform)?);
            Ok(refusals)
        }
    }
}

/// Looks from here on, until the server ends.
pub fn start(sending: Sending) -> anyhow::Result<()> {
    let run = move || follow(&sending);
    std::thread::Builder::new().name("snapshots".into()).spawn(run).context("cannot start a thread")?;
    Ok(())
}

fn follow(sending: &Sending) {
    let mut clock = LookClock::begin();
    let mut auto = AutoSnapshots::default();
    let ask = |request: &Request| Ok::<_, anyhow::Error>(Some(control::ask(request.clone(), sending)));
    let asks = |request: &Request| match control::ask_in_parts(request, ask)? {
        Some(Response::Done(report) | Response::InForce(report)) => Ok(Ok(*report)),
        Some(Response::Failed(reason)) => Ok(Err(reason)),
        Some(Response::Later(reason)) => bail!(reason),
        _ => bail!(control::NOT_UNDERSTOOD),
    };
    // The last complaint: none is repeated.
    let mut said = String::new();
    loop {
        let now = clock.wait();
        match auto.look(now, &asks) {
            Ok(true) => {
                sending.send(Message::SnapshotFailures(auto.failures.clone()));
            }
            Ok(false) => {}
            Err(error) => {
                let text = format!("{error:#}");
                if said != text && text != control::STOPPING {
                    warn!("automatic snapshots: {text}");
                    said = text;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;
    use crate::report::status::{SnapshotReport, VolumeReport};
    use crate::report::text::tests::{report, volume};

    /// Server that has volumes with a schedule and their snapshots, and refuses some.
    #[derive(Default)]
    struct Server {
        volumes: Vec<(String, &'static str)>,
        snapshots: RefCell<Vec<(String, String)>>,
        full: RefCell<Vec<String>>,
        held: RefCell<Vec<String>>,
        asked: RefCell<Vec<String>>,
    }

    impl Server {
        fn with(names: &[&str], schedule: &'static str) -> Server {
            Server { volumes: names.iter().map(|&name| (name.into(), schedule)).collect(), ..Server::default() }
        }

        fn answer(&self, request: &Request) -> anyhow::Result<Result<Report, String>> {
            let mut answer = report(0);
            match request {
                Request::Status { volumes: Selection::Scheduled { .. }, .. } => {
                    let scheduled = |(name, schedule): &(String, &str)| {
                        let mut found = volume(name, 0);
                        let property = found.properties.get_mut("snapshots").expect("it is listed");
                        (property.value, property.is_set) = (schedule.to_string(), true);
                        found
                    };
                    answer.volumes = self.volumes.iter().map(scheduled).collect();
                }
                Request::Status { volumes: Selection::Snapshots { of, .. }, .. } => {
                    let all = self.snapshots.borrow();
                    let all =
                        (1..).zip(all.iter()).filter(|(_, (volume, _))| of.as_ref().is_none_or(|of| of == volume));
                    let snapshot = |(born, (of, name)): (u64, &(String, String))| VolumeReport {
                        snapshot: Some(SnapshotReport {
                            volume: of.clone(),
                            name: name.clone(),
                            created: 0,
                            born,
                            clones: 0,
                            // The schedule learns of holds from refusals only.
                            held: false,
                        }),
                        ..volume(&format!("{of}@{name}"), 0)
                    };
                    answer.volumes = all.map(snapshot).collect();
                }
                Request::CreateSnapshots { volumes, name } => {
                    self.asked.borrow_mut().push(format!("+{}@{name}", volumes.join(",")));
                    if volumes.iter().any(|volume| self.full.borrow().contains(volume)) {
                        return Ok(Err("no space".into()));
                    }
                    self.snapshots.borrow_mut().extend(volumes.iter().map(|volume| (volume.clone(), name.clone())));
                }
                Request::DeleteSnapshots { names, force: false } => {
                    self.asked.borrow_mut().push(format!("-{}", names.join(",")));
                    if names.iter().any(|name| self.held.borrow().contains(name)) {
                        return Ok(Err("it is held".into()));
                    }
                    self.snapshots.borrow_mut().retain(|(volume, name)| !names.contains(&format!("{volume}@{name}")));
                }
                request => panic!("{request:?}"),
            }
            Ok(Ok(answer))
        }

        /// Sets the time, and returns the requests of snapshots and deletions.
        fn at(&self, auto: &mut AutoSnapshots, time: &str) -> Vec<String> {
            let now = time.parse::<Timestamp>().unwrap().as_second();
            auto.look(now, &|request: &Request| self.answer(request)).unwrap();
            self.asked.take()
        }
    }

    #[test]
    fn all_volumes_are_in_one_group_and_old_ones_are_deleted_behind_it() {
        let (server, mut auto) = (Server::with(&["a", "b"], "hourly:1"), AutoSnapshots::default());
        assert_eq!(server.at(&mut auto, "2026-11-28T13:00:00Z"), ["+a,b@auto-2026-11-28T13:00Z-hourly"]);
        for time in ["2026-11-28T13:00:30Z", "2026-11-28T13:59:00Z"] {
            assert_eq!(server.at(&mut auto, time), [""; 0]);
        }
        assert_eq!(
            server.at(&mut auto, "2026-11-28T14:00:01Z"),
            ["+a,b@auto-2026-11-28T14:00Z-hourly", "-a@auto-2026-11-28T13:00Z-hourly,b@auto-2026-11-28T13:00Z-hourly"]
        );
        assert!(auto.failures.is_empty());
    }

    #[test]
    fn a_schedule_that_was_set_is_followed_at_the_next_look() {
        let (mut server, mut auto) = (Server::with(&["a"], "hourly:1"), AutoSnapshots::default());
        server.at(&mut auto, "2026-11-28T13:00:00Z");
        server.volumes.push(("b".into(), "daily:7"));
        assert_eq!(server.at(&mut auto, "2026-11-28T13:00:30Z"), ["+b@auto-2026-11-28T13:00Z-daily"]);
        server.volumes.clear();
        assert_eq!(server.at(&mut auto, "2026-11-28T14:00:00Z"), [""; 0]);
    }

    #[test]
    fn a_refusal_for_one_volume_leaves_the_others_and_is_tried_again_in_an_hour() {
        let (server, mut auto) =
            (Server::with(&["a", "b", "c", "d"], "frequently:9,daily:9"), AutoSnapshots::default());
        server.full.borrow_mut().push("c".into());
        let asked = server.at(&mut auto, "2026-11-28T13:00:00Z");
        let frequently =
            ["a,b,c,d", "a,b", "c,d", "c", "d"].map(|names| format!("+{names}@auto-2026-11-28T13:00Z-frequently"));
        assert_eq!(asked[..5], frequently);
        assert_eq!((asked.len(), server.snapshots.borrow().len()), (10, 6));
        assert_eq!(auto.failures["c"], "2026-11-28 13:00 UTC: no daily snapshot: no space");
        // In this hour, it is not tried again.
        assert_eq!(server.at(&mut auto, "2026-11-28T13:15:00Z"), ["+a,b,d@auto-2026-11-28T13:15Z-frequently"]);
        assert_eq!(auto.failures.len(), 1);
        server.full.borrow_mut().clear();
        let asked = server.at(&mut auto, "2026-11-28T14:00:00Z");
        assert_eq!(asked, ["+a,b,c,d@auto-2026-11-28T14:00Z-frequently", "+c@auto-2026-11-28T14:00Z-daily"]);
        assert!(auto.failures.is_empty());
    }

    #[test]
    fn a_refused_deletion_is_reported_and_skipped() {
        let (server, mut auto) = (Server::with(&["a", "b"], "frequently:1"), AutoSnapshots::default());
        server.at(&mut auto, "2026-11-28T13:00:00Z");
        server.held.borrow_mut().push("a@auto-2026-11-28T13:00Z-frequently".into());
        assert_eq!(server.at(&mut auto, "2026-11-28T13:15:00Z").len(), 4);
        assert!(auto.failures["a"].ends_with("'a@auto-2026-11-28T13:00Z-frequently' is not deleted: it is held"));
        let asked = server.at(&mut auto, "2026-11-28T13:30:00Z");
        let deleted = "-a@auto-2026-11-28T13:15Z-frequently,b@auto-2026-11-28T13:15Z-frequently";
        assert_eq!(asked, ["+a,b@auto-2026-11-28T13:30Z-frequently", deleted]);
        assert_eq!(auto.failures.len(), 1, "it is shown until it is tried again");
        assert_eq!(server.at(&mut auto, "2026-11-28T14:00:00Z").len(), 6);
        assert!(auto.failures["a"].starts_with("2026-11-28 14:00"));
    }
}
