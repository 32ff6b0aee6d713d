//! Operators' requests as commands of the engine: the same checks whether a server runs or not.

use std::panic::{AssertUnwindSafe, catch_unwind};

use engine::{
    Command, DedupCommand, Engine, Policy, PoolChange, PoolProperty, RelocateCommand, ScrubCommand, Volume, VolumeId,
};
use tracing::error;

use crate::operators::control::{DedupAction, Request, RunAction, ScrubAction};
use crate::operators::settings::{PoolSettings, VolumeSettings};
use crate::report::status::no_volume;
use crate::size;
use crate::store::grow;

/// Checked request, in terms of the engine or the server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wanted<'a> {
    /// Status only; nothing changes.
    Figures,
    /// Engine command, and the clients that are disconnected when it is done.
    Command(Command<'a>, Option<Leaving>),
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
    /// The volume has another size: once their requests are answered, so that they connect again and learn it.
    Resized(VolumeId),
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
        Request::DeleteVolume { name, force } => {
            let volume = find(engine, name)?;
            let count = clients(volume.id);
            if count > 0 && !force {
                return Err(format!("in use by {}: --force disconnects them and deletes it", plural(count)));
            }
            return Ok(Wanted::Command(Command::DeleteVolume { volume: volume.id }, Some(Leaving::Deleted(volume.id))));
        }
        Request::ResizeVolume { name, size_bytes, force, reconnect } => {
            let volume = find(engine, name)?;
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
            Command::SetVolume { volume: find(engine, name)?.id, change: *change }
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

/// Checks a request as [`wanted`] does, and lets `compute` prepare its command. Both only look: if one of them panics, the engine is unchanged, so the request
/// is refused and the service continues. Changes of the engine have no such boundary. A panic there may leave anything half done, and the next start recovers
/// the durable state.
pub fn judged<'a>(
    request: &'a Request,
    engine: &Engine,
    clients: impl Fn(VolumeId) -> usize,
    compute: impl FnOnce(&Command<'a>) -> anyhow::Result<()>,
) -> Result<Wanted<'a>, String> {
    let judge = || {
        let wanted = wanted(request, engine, clients)?;
        if let Wanted::Command(command, _) = &wanted {
            compute(command).map_err(|error| format!("{error:#}"))?;
        }
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
        Request::Scrub { .. } | Request::Dedup { .. } | Request::Run(_) => true,
        Request::DeleteVolume { name, .. } => volume(name).is_none(),
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
        Request::DeleteVolume { name, .. } => format!("deleted the volume '{name}'"),
        Request::ResizeVolume { name, size_bytes, .. } => {
            format!("the volume '{name}' has {} now", size::show(*size_bytes))
        }
        Request::SetVolume { name, settings } => {
            format!("the volume '{name}': set {}", settings.shown().join(", "))
        }
        Request::SetPool(settings) => format!("the pool: set {}", settings.shown().join(", ")),
    })
}

/// Converts a scrub action into an engine command, with the wall clock in seconds since 1970.
pub fn scrub_command(action: ScrubAction) -> Command<'static> {
    let command = match action {
        ScrubAction::Start => ScrubCommand::Start,
        ScrubAction::Pause => ScrubCommand::Pause,
        ScrubAction::Stop => ScrubCommand::Stop,
    };
    let since_1970 = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    Command::Scrub { command, seconds: since_1970.map_or(0, |time| time.as_secs()) }
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

fn find<'a>(engine: &'a Engine, name: &str) -> Result<&'a Volume, String> {
    engine.volume_named(name).ok_or_else(|| no_volume(name))
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
}
