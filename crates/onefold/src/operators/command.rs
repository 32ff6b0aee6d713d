//! Operators' requests as commands of the engine: the same checks whether a server runs or not.

use std::panic::{AssertUnwindSafe, catch_unwind};

use engine::{
    Command, ControlError, DedupCommand, Engine, Policy, PoolChange, PoolProperty, RelocateCommand, ScrubCommand,
    Volume, VolumeId,
};
use tracing::error;

use crate::commands::error_text::explain_control;
use crate::operators::control::{DedupAction, Request, RunAction, ScrubAction};
use crate::operators::settings::{PoolSettings, VolumeSettings};
use crate::report::status::no_volume;
use crate::size;
use crate::store::grow;

/// Maximum number of names that are listed one by one.
const LISTED_MAX: usize = 10;
/// Maximum number of clones that one request makes.
pub const CLONES_MAX: u32 = engine::MAX_VOLUMES as u32;

/// Checked request, in terms of the engine or the server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Wanted<'a> {
    /// Status only; nothing changes.
    Figures,
    /// Engine command, and the clients that are disconnected when it is done.
    Command(Command<'a>, Option<Leaving>),
    /// Snapshots of these volumes at one moment, with this name.
    Snapshots(Vec<VolumeId>, &'a str),
    /// Clones of a snapshot, of these names.
    Clones(VolumeId, Vec<String>),
    /// Deletion of these volumes and snapshots, in this order.
    Deletion(Vec<VolumeId>),
    /// Hold of these snapshots, or their release.
    Holds(Vec<VolumeId>, bool),
    /// Detachment of the flash from the pool.
    Detach,
    /// Clean stop of the server.
    Stop,
}

/// Clients of a volume that are disconnected when a command is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Leaving {
    /// The volume was deleted: at once.
    Deleted(VolumeId),
    /// The volume has the content of a snapshot: at once, when the command begins, and again when it is done, for those that have come meanwhile.
    RolledBack(VolumeId),
    /// The volume has another size: once their requests are answered, so that they connect again and learn it.
    Resized(VolumeId),
}

impl Wanted<'_> {
    /// Returns the engine's commands, in order; none for a request that the engine has no part in.
    pub fn commands(&self) -> Vec<Command<'_>> {
        match self {
            Wanted::Figures | Wanted::Detach | Wanted::Stop => Vec::new(),
            Wanted::Command(command, _) => vec![*command],
            Wanted::Snapshots(volumes, name) => {
                vec![Command::CreateSnapshots { volumes, name, seconds: seconds_since_1970() }]
            }
            &Wanted::Clones(snapshot, ref names) => {
                names.iter().map(|name| Command::CloneSnapshot { snapshot, name }).collect()
            }
            Wanted::Deletion(volumes) => volumes.iter().map(|&volume| Command::DeleteVolume { volume }).collect(),
            &Wanted::Holds(ref snapshots, held) => {
                snapshots.iter().map(|&snapshot| Command::HoldSnapshot { snapshot, held }).collect()
            }
        }
    }

    /// Returns the clients that are disconnected when all commands are done.
    pub fn leaving(&self) -> Vec<Leaving> {
        match self {
            Wanted::Command(_, leaving) => leaving.iter().copied().collect(),
            Wanted::Deletion(volumes) => volumes.iter().map(|&id| Leaving::Deleted(id)).collect(),
            _ => Vec::new(),
        }
    }
}

/// Checks a request against the pool as it is; `clients` counts the connections of a volume.
pub fn wanted<'a>(
    request: &'a Request,
    engine: &Engine,
    clients: impl Fn(VolumeId) -> usize,
) -> Result<Wanted<'a>, String> {
    let command = match request {
        Request::Status { settle, volumes } => {
            volumes.check()?;
            if !settle {
                return Ok(Wanted::Figures);
            }
            Command::Settle
        }
        Request::Stop => return Ok(Wanted::Stop),
        Request::DetachCache => return Ok(Wanted::Detach),
        Request::AttachCache(_) => return Err("a flash is attached through the control socket".into()),
        Request::CreateVolume { name, size_bytes, policy } => {
            Command::CreateVolume { name, size: *size_bytes, policy: inheritable(policy)? }
        }
        Request::DeleteVolumes { names, force, snapshots } => {
            return deletion(engine, names, [*force, *snapshots], clients).map(Wanted::Deletion);
        }
        Request::ResizeVolume { name, size_bytes, force, reconnect } => {
            let volume = find_volume(engine, name)?;
            if *size_bytes < volume.size && !force {
                return Err(format!(
                    "it has {}, and the data beyond {} would be lost: --force cuts it off",
                    size::show(volume.size),
                    size::show(*size_bytes)
                ));
            }
            let command = Command::ResizeVolume { volume: volume.id, size: *size_bytes };
            return Ok(Wanted::Command(command, reconnect.then_some(Leaving::Resized(volume.id))));
        }
        Request::SetVolume { name, settings: VolumeSettings(change) } => {
            if change.protected.is_some() && find(engine, name)?.is_snapshot() {
                return Err("it is a snapshot: 'onefold snapshot hold' keeps it from deletion".into());
            }
            Command::SetVolume { volume: find_volume(engine, name)?.id, change: *change }
        }
        Request::RenameVolume { name, new_name } => {
            let volume = find(engine, name)?;
            let part = match name.split_once('@') {
                None => new_name,
                Some((of, _)) => {
                    new_name.strip_prefix(of).and_then(|rest| rest.strip_prefix('@')).ok_or_else(|| {
                        format!("a snapshot stays with its volume: '{new_name}' does not begin with '{of}@'")
                    })?
                }
            };
            if engine.volume_named(new_name).is_some() {
                return Err(format!("'{new_name}' exists: choose another name"));
            }
            Command::RenameVolume { volume: volume.id, name: part }
        }
        Request::HoldSnapshots { names, held } => {
            let find = |name: &String| find_snapshot(engine, name).map(|snapshot| snapshot.id);
            return Ok(Wanted::Holds(names.iter().map(find).collect::<Result<_, _>>()?, *held));
        }
        Request::CreateSnapshots { volumes, name } => {
            let find = |volume: &String| {
                let full = format!("{volume}@{name}");
                match engine.volume_named(&full) {
                    Some(_) => Err(format!("the snapshot '{full}' exists: choose another name, or delete it first")),
                    None => find_volume(engine, volume).map(|volume| volume.id),
                }
            };
            return Ok(Wanted::Snapshots(volumes.iter().map(find).collect::<Result<_, _>>()?, name));
        }
        Request::DeleteSnapshots { names, force } => {
            let find = |name: &String| {
                let snapshot = find_snapshot(engine, name)?;
                if snapshot.is_held() {
                    return Err(format!("'{name}': {}", explain_control(ControlError::Held)));
                }
                let id = snapshot.id;
                let count = clients(id);
                if count > 0 && !force {
                    let plural = plural(count);
                    return Err(format!("'{name}' is in use by {plural}: --force disconnects them and deletes it"));
                }
                Ok(id)
            };
            let mut snapshots: Vec<VolumeId> = names.iter().map(find).collect::<Result<_, _>>()?;
            snapshots.sort_unstable();
            snapshots.dedup();
            return Ok(Wanted::Deletion(snapshots));
        }
        Request::RollBack { snapshot, force } => {
            let to = find_snapshot(engine, snapshot)?;
            let of = to.family.snapshot.map(|snapshot| snapshot.of);
            let volume = of.ok_or_else(|| explain_control(ControlError::NotSnapshot))?;
            let name = snapshot.split_once('@').map_or(snapshot.as_str(), |(volume, _)| volume);
            if engine.volume(volume).is_some_and(|volume| volume.properties.protected()) {
                return Err(format!("the volume '{name}': {}", explain_control(ControlError::Protected)));
            }
            let count = clients(volume);
            if count > 0 && !force {
                return Err(format!(
                    "the volume '{name}' is in use by {}: --force disconnects them and rolls it back",
                    plural(count)
                ));
            }
            let command = Command::RollBack { volume, snapshot: to.id };
            return Ok(Wanted::Command(command, Some(Leaving::RolledBack(volume))));
        }
        Request::CloneSnapshot { snapshot, name, count } => {
            let snapshot = find_snapshot(engine, snapshot)?.id;
            if count.is_some_and(|count| count == 0 || count > CLONES_MAX) {
                return Err(format!("--count is 1 to {CLONES_MAX}"));
            }
            let names = clone_names(name, *count);
            if let Some(name) = names.iter().find(|name| engine.volume_named(name).is_some()) {
                return Err(format!("a volume '{name}' exists: choose another name"));
            }
            return Ok(Wanted::Clones(snapshot, names));
        }
        Request::Relocate(_) => return Err("a profile is kept by the server of a pool: it is not served".into()),
        Request::Scrub { action } => scrub_command(*action),
        Request::Dedup { action } => dedup_command(*action),
        Request::Run(action) => run_command(action),
        Request::Grow { capacity_bytes, metadata_bytes } => {
            let (geometry, status) = (engine.geometry(), engine.status());
            let grow::Wanted { capacity, metadata } =
                grow::Wanted::asked(*capacity_bytes, *metadata_bytes, geometry, &status);
            Command::Grow { capacity, metadata }
        }
        Request::SetPool(PoolSettings(change)) => Command::SetPool(*change),
    };
    Ok(Wanted::Command(command, None))
}

/// Checks a request as [`wanted`] does, and lets `compute` prepare its commands. Both only look: if one of them panics, the engine is unchanged, so the request
/// is refused and the service continues. Changes of the engine have no such boundary. A panic there may leave anything half done, and the next start recovers
/// the durable state.
pub fn judged<'a>(
    request: &'a Request,
    engine: &Engine,
    clients: impl Fn(VolumeId) -> usize,
    compute: impl Fn(&Command<'_>) -> anyhow::Result<()>,
) -> Result<Wanted<'a>, String> {
    let judge = || {
        let wanted = wanted(request, engine, clients)?;
        wanted.commands().iter().try_for_each(compute).map_err(|error| format!("{error:#}"))?;
        Ok(wanted)
    };
    catch_unwind(AssertUnwindSafe(judge)).unwrap_or_else(|_| {
        error!(
            "a command met a defect of this program and was refused; the message before says where: please report it"
        );
        Err("the server met a defect in this command and did not carry it out; its log says where: please report it"
            .into())
    })
}

/// Returns true if the pool in memory already has the effect of a request that has not been answered yet.
pub fn is_in_force(request: &Request, engine: &Engine) -> bool {
    let volume = |name: &str| engine.volume_named(name);
    match request {
        Request::CreateVolume { .. } | Request::SetVolume { .. } | Request::SetPool(_) => true,
        Request::CloneSnapshot { .. } | Request::HoldSnapshots { .. } => true,
        Request::RenameVolume { name, new_name } => volume(name).is_none() && volume(new_name).is_some(),
        Request::CreateSnapshots { .. } | Request::RollBack { .. } => false,
        Request::DeleteSnapshots { names, .. } => names.iter().all(|name| volume(name).is_none()),
        Request::Scrub { .. } | Request::Dedup { .. } | Request::Run(_) => true,
        Request::DeleteVolumes { names, .. } => names.iter().all(|name| volume(name).is_none()),
        Request::ResizeVolume { name, size_bytes, .. } => volume(name).is_some_and(|volume| volume.size == *size_bytes),
        Request::Grow { .. } | Request::Status { .. } => false,
        Request::Stop | Request::Relocate(_) | Request::AttachCache(_) | Request::DetachCache => false,
    }
}

/// Formats the log line for a finished request; `None` for requests that are not logged.
pub fn done(request: &Request) -> Option<String> {
    Some(match request {
        Request::Status { .. } | Request::Stop | Request::Grow { .. } => return None,
        Request::Scrub { .. } | Request::Dedup { .. } | Request::Relocate(_) | Request::Run(_) => return None,
        Request::AttachCache(_) | Request::DetachCache => return None,
        Request::CreateVolume { name, size_bytes, policy } => {
            let policy = if policy == "inherit" { String::new() } else { format!(", policy {policy}") };
            format!("made the volume '{name}' of {}{policy}", size::show(*size_bytes))
        }
        Request::DeleteVolumes { names, snapshots, .. } => {
            let (noun, their) = if names.len() == 1 { ("volume", "its") } else { ("volumes", "their") };
            let with = if *snapshots { format!(" with {their} snapshots") } else { String::new() };
            format!("deleted the {noun} {}{with}", listed(names))
        }
        Request::ResizeVolume { name, size_bytes, .. } => {
            format!("the volume '{name}' has {} now", size::show(*size_bytes))
        }
        Request::SetVolume { name, settings } => {
            format!("the volume '{name}': set {}", settings.shown().join(", "))
        }
        Request::SetPool(settings) => format!("the pool: set {}", settings.shown().join(", ")),
        Request::CreateSnapshots { volumes, name } => {
            format!("made the snapshot '{name}' of {}", listed(volumes))
        }
        Request::DeleteSnapshots { names, .. } => format!("deleted {}", listed(names)),
        Request::HoldSnapshots { names, held: true } => format!("holds {}", listed(names)),
        Request::HoldSnapshots { names, held: false } => format!("released {}", listed(names)),
        Request::RenameVolume { name, new_name } => format!("renamed '{name}' to '{new_name}'"),
        Request::RollBack { snapshot, .. } => format!("rolled a volume back to its snapshot '{snapshot}'"),
        Request::CloneSnapshot { snapshot, name, count: None } => format!("made the clone '{name}' of '{snapshot}'"),
        Request::CloneSnapshot { snapshot, name, count: Some(count) } => {
            format!("made the clones '{name}-1' to '{name}-{count}' of '{snapshot}'")
        }
    })
}

/// Lists names in quotes.
pub fn quoted(names: &[String]) -> String {
    names.iter().map(|name| format!("'{name}'")).collect::<Vec<_>>().join(", ")
}

/// Lists names in quotes: many as their number, the first and the last.
pub fn listed(names: &[String]) -> String {
    match names {
        [first, .., last] if names.len() > LISTED_MAX => format!("'{first}' to '{last}' ({})", names.len()),
        names => quoted(names),
    }
}

/// Returns the names of the clones of a request: the name, or with a number of clones `NAME-1`, `NAME-2` and so on.
pub fn clone_names(name: &str, count: Option<u32>) -> Vec<String> {
    count.map_or_else(|| vec![name.into()], |count| (1..=count).map(|number| format!("{name}-{number}")).collect())
}

/// Converts a scrub action into an engine command, with the wall clock in seconds since 1970.
pub fn scrub_command(action: ScrubAction) -> Command<'static> {
    let command = match action {
        ScrubAction::Start => ScrubCommand::Start,
        ScrubAction::Pause => ScrubCommand::Pause,
        ScrubAction::Stop => ScrubCommand::Stop,
    };
    Command::Scrub { command, seconds: seconds_since_1970() }
}

fn seconds_since_1970() -> u64 {
    let since_1970 = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since_1970.map_or(0, |time| time.as_secs())
}

/// Converts a deduplication action into an engine command.
pub fn dedup_command(action: DedupAction) -> Command<'static> {
    let command = match action {
        DedupAction::Start => DedupCommand::Start,
        DedupAction::Pause => DedupCommand::Pause,
        DedupAction::Stop => DedupCommand::Stop,
    };
    Command::Dedup { command }
}

/// Converts an action on the run of a plan into an engine command.
fn run_command(action: &RunAction) -> Command<'_> {
    let command = match action {
        RunAction::Plan { begins, extents } => RelocateCommand::Plan { begins: *begins, extents },
        RunAction::Start => RelocateCommand::Start,
        RunAction::Pause => RelocateCommand::Pause,
        RunAction::Stop => RelocateCommand::Stop,
    };
    Command::Relocate { command }
}

/// Returns what to delete so that these volumes are gone: their snapshots first, if these may be deleted, too. Refuses clients that may not be disconnected.
fn deletion(
    engine: &Engine,
    names: &[String],
    [force, snapshots]: [bool; 2],
    clients: impl Fn(VolumeId) -> usize,
) -> Result<Vec<VolumeId>, String> {
    let (mut deleted, mut of_volumes) = (Vec::new(), Vec::new());
    for name in names {
        let volume = find(engine, name)?;
        if volume.is_snapshot() {
            return Err(format!("'{name}' is a snapshot: 'onefold snapshot delete' deletes it"));
        }
        if volume.properties.protected() {
            return Err(format!("'{name}': {}", explain_control(ControlError::Protected)));
        }
        let held = |snapshot: &Volume| snapshot.is_held();
        if let Some(held) = engine.snapshots_of(volume.id).find(|&snapshot| snapshots && held(snapshot)) {
            return Err(format!("'{name}@{}': {}", held.name, explain_control(ControlError::Held)));
        }
        let own: Vec<VolumeId> = engine.snapshots_of(volume.id).map(|snapshot| snapshot.id).collect();
        if !own.is_empty() && !snapshots {
            let (count, them) =
                if own.len() == 1 { ("1 snapshot".into(), "it") } else { (format!("{} snapshots", own.len()), "them") };
            return Err(format!("'{name}' has {count}: --snapshots deletes {them}, too; clones keep their content"));
        }
        let count: usize = own.iter().chain([&volume.id]).map(|&id| clients(id)).sum();
        if count > 0 && !force {
            return Err(format!("'{name}' is in use by {}: --force disconnects them and deletes it", plural(count)));
        }
        if !of_volumes.contains(&volume.id) {
            deleted.extend(own);
            of_volumes.push(volume.id);
        }
    }
    deleted.extend(of_volumes);
    Ok(deleted)
}

fn find<'a>(engine: &'a Engine, name: &str) -> Result<&'a Volume, String> {
    engine.volume_named(name).ok_or_else(|| no_volume(name))
}

/// Finds a volume that may change: a snapshot does not.
fn find_volume<'a>(engine: &'a Engine, name: &str) -> Result<&'a Volume, String> {
    match find(engine, name)? {
        volume if volume.is_snapshot() => Err(explain_control(ControlError::IsSnapshot).into()),
        volume => Ok(volume),
    }
}

fn find_snapshot<'a>(engine: &'a Engine, name: &str) -> Result<&'a Volume, String> {
    match engine.volume_named(name) {
        Some(volume) if volume.is_snapshot() => Ok(volume),
        Some(_) => Err(format!("'{name}': {}", explain_control(ControlError::NotSnapshot))),
        None => Err(format!("there is no snapshot '{name}': 'onefold snapshot list' shows them all")),
    }
}

/// Parses a policy; `None` for `inherit`.
pub fn inheritable(text: &str) -> Result<Option<Policy>, String> {
    let mut change = PoolChange::default();
    change.set_text(PoolProperty::Policy, text)?;
    Ok(change.policy.flatten())
}

/// Formats a number of clients with its noun: `1 client`, `2 clients`.
pub fn plural(clients: usize) -> String {
    if clients == 1 { "1 client".into() } else { format!("{clients} clients") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::{DigestFunction, Geometry, Limits, Parameters};

    /// Guards against a panic in a command's check that ended the service, although the engine was unchanged.
    #[test]
    fn a_panic_while_a_command_is_judged_refuses_the_command() {
        let geometry = Geometry::for_capacity(1 << 30).unwrap();
        let parameters = Parameters::new(geometry, [1; 16], [2; 32], DigestFunction::Blake3);
        let engine = Engine::open(parameters, Limits::for_memory(64 << 20, &geometry).unwrap(), 0);
        let request = Request::Grow { capacity_bytes: 1, metadata_bytes: 0 };
        let ok = judged(&request, &engine, |_| 0, |_| Ok(()));
        assert_eq!(ok, Ok(Wanted::Command(Command::Grow { capacity: 1, metadata: 0 }, None)));
        let refused = judged(&request, &engine, |_| 0, |_| Err(anyhow::anyhow!("no")));
        assert_eq!(refused, Err("no".into()));
        let refused = judged(&request, &engine, |_| 0, |_| panic!("on purpose: a test of what becomes of it"));
        assert!(refused.unwrap_err().contains("report it"));
    }

    #[test]
    fn a_request_is_one_group_of_commands() {
        let wanted = Wanted::Snapshots(vec![VolumeId(3), VolumeId(5)], "monday");
        let [Command::CreateSnapshots { volumes, name: "monday", seconds }] = wanted.commands()[..] else { panic!() };
        assert!(volumes == [VolumeId(3), VolumeId(5)] && seconds > 1_700_000_000, "one command, one cut");
        let wanted = Wanted::Clones(VolumeId(9), clone_names("vm", Some(3)));
        let clone = |name| Command::CloneSnapshot { snapshot: VolumeId(9), name };
        assert_eq!(wanted.commands(), ["vm-1", "vm-2", "vm-3"].map(clone));
        assert_eq!(clone_names("vm", None), ["vm"]);
        let wanted = Wanted::Deletion(vec![VolumeId(4), VolumeId(6)]);
        assert_eq!(wanted.commands(), [4, 6].map(|id| Command::DeleteVolume { volume: VolumeId(id) }));
        assert_eq!(wanted.leaving(), [4, 6].map(|id| Leaving::Deleted(VolumeId(id))));
        let wanted = Wanted::Holds(vec![VolumeId(4), VolumeId(6)], true);
        let hold = |id| Command::HoldSnapshot { snapshot: VolumeId(id), held: true };
        assert_eq!((wanted.commands(), wanted.leaving()), (vec![hold(4), hold(6)], vec![]));
        assert!(Wanted::Figures.commands().is_empty() && Wanted::Figures.leaving().is_empty());
    }
}
