//! `onefold snapshot` and `onefold clone`: the state of volumes at one moment, and volumes that begin with it.

use std::process::ExitCode;

use anyhow::{bail, ensure};
use serde_json::{Value, json};

use crate::commands::cli::{CloneArgs, HoldArgs, SnapshotCommand, Target};
use crate::commands::snapshot_names::{self, Named, split};
use crate::commands::{confirm, offline};
use crate::operators::command::{clone_names, listed};
use crate::operators::control::Request;
use crate::operators::selection::Selection;
use crate::print::{complain, print, print_json, shown};
use crate::report::status::{NOT_RECOVERED, VERSION, VolumeReport, no_volume};
use crate::report::text;

/// Carries out a command about snapshots.
pub fn snapshot(command: &SnapshotCommand) -> anyhow::Result<ExitCode> {
    match command {
        SnapshotCommand::Create { target, snapshots, json } => create(target, snapshots, *json),
        SnapshotCommand::List { target, volume, json } => list(target, volume.as_deref(), *json),
        SnapshotCommand::Hold(arguments) => hold(arguments, true),
        SnapshotCommand::Release(arguments) => hold(arguments, false),
        SnapshotCommand::Rollback { target, snapshot, delete_newer, force, yes, json } => {
            let rollback = Rollback::new(target, snapshot, *delete_newer, *force)?;
            if !yes && !confirm::is_rollback_meant(target, snapshot, &rollback.deleted)? {
                complain(format_args!("nothing was changed"));
                return Ok(ExitCode::FAILURE);
            }
            rollback.carry_out(target, *json)
        }
        SnapshotCommand::Delete { target, snapshots, force, yes, json } => {
            let named = snapshots.iter().map(|name| snapshot_names::read(name)).collect::<anyhow::Result<Vec<_>>>()?;
            let (names, known) = resolve(target, &named)?;
            if !yes && !confirm::are_meant(target, &names)? {
                complain(format_args!("nothing was deleted"));
                return Ok(ExitCode::FAILURE);
            }
            delete(target, &names, &known, *force, *json)
        }
    }
}

/// Carries out `onefold clone`.
pub fn clone(arguments: &CloneArgs) -> anyhow::Result<ExitCode> {
    let CloneArgs { target, snapshot, name, count, json } = arguments;
    split(snapshot)?;
    let request = Request::CloneSnapshot { snapshot: snapshot.clone(), name: name.clone(), count: *count };
    ask(target, &request, format!("clone of '{snapshot}'"))?;
    if *json {
        print_json(&json!({ "version": VERSION, "snapshot": snapshot, "clones": clone_names(name, *count) }));
        return Ok(ExitCode::SUCCESS);
    }
    match count {
        None => print(format_args!("made the volume '{name}', a clone of '{snapshot}'\n")),
        Some(1) => print(format_args!("made the volume '{name}-1', a clone of '{snapshot}'\n")),
        Some(count) => {
            print(format_args!("made {count} volumes, clones of '{snapshot}': '{name}-1' to '{name}-{count}'\n"));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Sends a request, and adds its subject to an error.
fn ask(target: &Target, request: &Request, about: String) -> anyhow::Result<Vec<VolumeReport>> {
    offline::request(target, request).map(|report| report.volumes).map_err(|error| error.context(about))
}

/// Lists snapshots behind their noun, for messages.
fn named(snapshots: &[String]) -> String {
    format!("{} {}", if snapshots.len() == 1 { "snapshot" } else { "snapshots" }, listed(snapshots))
}

/// Returns the full names of snapshots, and the figures of those that exist.
fn resolve(target: &Target, named: &[Named<'_>]) -> anyhow::Result<(Vec<String>, Vec<VolumeReport>)> {
    let (mut names, mut known): (Vec<String>, Vec<VolumeReport>) = (Vec::new(), Vec::new());
    for of in named {
        let found = if of.has_range() {
            let report = offline::request(target, &Request::status(Selection::snapshots(Some(of.volume))))?;
            report.require_opened()?;
            report.volumes
        } else {
            offline::volumes_named(target, &of.names(&[])?)?
        };
        let new: Vec<String> = of.names(&found)?.into_iter().filter(|name| !names.contains(name)).collect();
        known.extend(found.into_iter().filter(|snapshot| new.contains(&snapshot.name)));
        names.extend(new);
    }
    Ok((names, known))
}

fn create(target: &Target, snapshots: &[String], json: bool) -> anyhow::Result<ExitCode> {
    let mut volumes = Vec::new();
    let (first, name) = split(&snapshots[0])?;
    for snapshot in snapshots {
        let (volume, other) = split(snapshot)?;
        ensure!(
            other == name,
            "'{first}@{name}' and '{snapshot}' have different names: snapshots of one moment have one name behind the '@'; for others \
             run the command again"
        );
        ensure!(!volumes.iter().any(|known| known == volume), "the volume '{volume}' is named twice");
        volumes.push(volume.to_owned());
    }
    let made = ask(target, &Request::CreateSnapshots { volumes, name: name.into() }, named(snapshots))?;
    if json {
        print_json(&json!({ "version": VERSION, "snapshots": made.iter().filter_map(figures).collect::<Vec<_>>() }));
    } else {
        print(format_args!("made the {}\n", named(snapshots)));
    }
    Ok(ExitCode::SUCCESS)
}

fn delete(
    target: &Target,
    snapshots: &[String],
    known: &[VolumeReport],
    force: bool,
    json: bool,
) -> anyhow::Result<ExitCode> {
    let deleted = offline::delete(target, snapshots, |names| Request::DeleteSnapshots { names, force });
    deleted.map_err(|error| error.context(named(snapshots)))?;
    let clones = |snapshot: &VolumeReport| snapshot.snapshot.as_ref().map_or(0, |family| family.clones);
    let cloned: Vec<&VolumeReport> = known.iter().filter(|snapshot| clones(snapshot) > 0).collect();
    if json {
        let cloned: Vec<&str> = cloned.iter().map(|snapshot| snapshot.name.as_str()).collect();
        print_json(&json!({ "version": VERSION, "deleted": snapshots, "with_clones": cloned }));
        return Ok(ExitCode::SUCCESS);
    }
    let named = named(snapshots);
    print(format_args!("deleted the {named}; space that no clone or volume inherits comes back in the background\n"));
    for snapshot in cloned {
        let (noun, they) = match clones(snapshot) {
            1 => ("1 clone".into(), "it is"),
            count => (format!("{count} clones"), "they are"),
        };
        print(format_args!("'{}' has {noun}: inherited blocks keep their space until {they} deleted\n", snapshot.name));
    }
    Ok(ExitCode::SUCCESS)
}

fn hold(arguments: &HoldArgs, held: bool) -> anyhow::Result<ExitCode> {
    let HoldArgs { target, snapshots, json } = arguments;
    for name in snapshots {
        split(name)?;
    }
    let found = ask(target, &Request::HoldSnapshots { names: snapshots.clone(), held }, named(snapshots))?;
    if *json {
        print_json(&json!({ "version": VERSION, "snapshots": found.iter().filter_map(figures).collect::<Vec<_>>() }));
    } else if held {
        print(format_args!("the {} cannot be deleted until released\n", named(snapshots)));
    } else {
        print(format_args!("released the {}\n", named(snapshots)));
    }
    Ok(ExitCode::SUCCESS)
}

/// Rollback of a volume to a snapshot, with the newer snapshots of the volume.
struct Rollback<'a> {
    snapshot: &'a str,
    force: bool,
    /// Newer snapshots that are deleted, and those that stay.
    deleted: Vec<String>,
    kept: Vec<String>,
}

impl<'a> Rollback<'a> {
    /// Finds the newer snapshots of the volume.
    fn new(target: &Target, snapshot: &'a str, deletes_newer: bool, force: bool) -> anyhow::Result<Rollback<'a>> {
        let (volume, _) = split(snapshot)?;
        let all = offline::request(target, &Request::status(Selection::snapshots(Some(volume))))?.volumes;
        let known = all.iter().filter_map(|known| Some((known, known.snapshot.as_ref()?)));
        let born = known.clone().find(|(known, _)| known.name == snapshot).map(|(_, family)| family.born);
        let newer = known.filter(|(_, family)| born.is_some_and(|born| family.born > born));
        let (deleted, kept): (Vec<_>, Vec<_>) = newer.partition(|(_, family)| deletes_newer && family.clones == 0);
        if let Some((used, _)) = deleted.iter().find(|(newer, _)| newer.clients > 0 && !force) {
            bail!("'{}' is in use: --force disconnects its clients and deletes it", used.name);
        }
        if let Some((held, _)) = deleted.iter().find(|(_, family)| family.held) {
            bail!("the newer '{}' is held: 'onefold snapshot release' ends that; without -r it stays", held.name);
        }
        let names = |snapshots: Vec<(&VolumeReport, &_)>| -> Vec<String> {
            snapshots.into_iter().map(|(known, _)| known.name.clone()).collect()
        };
        Ok(Rollback { snapshot, force, deleted: names(deleted), kept: names(kept) })
    }

    fn carry_out(self, target: &Target, json: bool) -> anyhow::Result<ExitCode> {
        let Rollback { snapshot, force, deleted, kept } = self;
        let request = Request::RollBack { snapshot: snapshot.into(), force };
        ask(target, &request, format!("rollback to '{snapshot}'"))?;
        if !deleted.is_empty() {
            let about = format!("rolled back to '{snapshot}', but could not delete the newer {}", named(&deleted));
            let done = offline::delete(target, &deleted, |names| Request::DeleteSnapshots { names, force });
            done.map_err(|error| error.context(about))?;
        }
        let (volume, _) = split(snapshot)?;
        if json {
            let (deleted, newer) = (json!(deleted), json!(kept));
            print_json(
                &json!({ "version": VERSION, "volume": volume, "snapshot": snapshot, "deleted": deleted, "newer": newer }),
            );
            return Ok(ExitCode::SUCCESS);
        }
        print(format_args!("rolled the volume '{volume}' back to '{snapshot}'\n"));
        if !deleted.is_empty() {
            print(format_args!("deleted the newer {}\n", named(&deleted)));
        }
        if !kept.is_empty() {
            print(format_args!("kept the newer {}\n", named(&kept)));
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn list(target: &Target, volume: Option<&str>, json: bool) -> anyhow::Result<ExitCode> {
    let report = offline::request(target, &Request::status(Selection::snapshots(volume)))?;
    report.require_opened()?;
    if report.needs_recovery {
        complain(format_args!("note: {} was not closed cleanly: {NOT_RECOVERED}", shown(&target.pool)));
    }
    let snapshots = &report.volumes;
    if let Some(volume) = volume.filter(|_| snapshots.is_empty()) {
        let known = offline::request(target, &Request::status(Selection::one(volume)))?.volumes;
        ensure!(known.iter().any(|known| known.name == volume), no_volume(volume));
    }
    if json {
        let snapshots: Vec<Value> = snapshots.iter().filter_map(figures).collect();
        print_json(&json!({ "version": VERSION, "needs_recovery": report.needs_recovery, "snapshots": snapshots }));
    } else if snapshots.is_empty() {
        print(format_args!("no snapshots yet: make one with 'onefold snapshot create POOL VOLUME@NAME'\n"));
    } else {
        print(format_args!("{}", text::snapshots_text(snapshots)));
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns a snapshot's figures for programs.
fn figures(snapshot: &VolumeReport) -> Option<Value> {
    let family = snapshot.snapshot.as_ref()?;
    Some(json!({
        "name": snapshot.name, "volume": family.volume, "created": family.created, "size_bytes": snapshot.size_bytes,
        "logical_blocks_used": snapshot.logical_blocks_used, "referred_blocks": snapshot.referred_blocks,
        "referred_is_most": snapshot.referred_is_most, "clones": family.clones, "held": family.held,
        "clients": snapshot.clients,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snapshots_of_one_moment_have_one_name() {
        let target = Target { pool: "nothing".into(), control: None };
        let refused = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|&name| name.into()).collect();
            create(&target, &names, false).unwrap_err().to_string()
        };
        let error = refused(&["a@x", "b@y"]);
        assert!(error.contains("'a@x'") && error.contains("'b@y'") && error.contains("one name"), "{error}");
        assert!(refused(&["a@x", "a@x"]).contains("'a' is named twice"));
    }
}
