//! `onefold cache`: attaches and detaches a cache on flash in front of a pool, and shows its figures.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, bail};
use serde_json::json;

use crate::commands::cli::{CacheCommand, Target};
use crate::flash::device::{self, Pool};
use crate::flash::label::Attach;
use crate::operators::control::{self, Request};
use crate::operators::selection::Selection;
use crate::print::{print, print_json, shown};
use crate::report::flash::FlashReport;
use crate::report::status;
use crate::size;
use crate::store::backing::{Access, Store};
use crate::store::probe;

/// Carries out a command about the flash in front of a pool.
pub fn cache(command: &CacheCommand) -> anyhow::Result<ExitCode> {
    match command {
        CacheCommand::Attach { target, device, size, write_budget, tbw, force, json } => {
            let path = std::path::absolute(device).with_context(|| format!("cannot use {}", device.display()))?;
            let wanted =
                Attach { path, size_bytes: *size, budget_bytes: *write_budget, endurance_bytes: *tbw, force: *force };
            attach(target, &wanted, *json)
        }
        CacheCommand::Detach { target, json } => {
            let Some(report) = ask(target, &Request::DetachCache)? else {
                bail!("{} is not served: start it without --flash", target.pool.display())
            };
            if *json {
                show_json(&report);
            } else {
                print(format_args!("{} has no cache any more\n", shown(&target.pool)));
            }
            Ok(ExitCode::SUCCESS)
        }
        CacheCommand::Status { target, json } => {
            let Some(report) = ask(target, &Request::status(Selection::NONE))? else {
                bail!("{} is not served: a cache is at work only then", target.pool.display())
            };
            if *json {
                show_json(&report);
            } else {
                print(format_args!("{}", report.table()));
            }
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn attach(target: &Target, wanted: &Attach, json: bool) -> anyhow::Result<ExitCode> {
    let served = ask(target, &Request::AttachCache(wanted.clone()))?;
    let report = match &served {
        Some(report) => report.clone(),
        None => attach_to_stopped(&target.pool, wanted)?,
    };
    if json {
        show_json(&report);
        return Ok(ExitCode::SUCCESS);
    }
    let (pool, path) = (shown(&target.pool), shown(&wanted.path));
    let now = if served.is_some() { ", in use from now on" } else { "" };
    let (size, budget) = (size::show(report.size_bytes), size::show(report.budget_bytes_per_day));
    print(format_args!(
        "{path} is the cache of {pool} with {size}{now}; at most {budget} are written to it in a day\n\
         each start names it: onefold serve {pool} --flash {path}\n"
    ));
    Ok(ExitCode::SUCCESS)
}

/// Makes the cache of a pool that no server has. The pool is locked meanwhile and not written.
fn attach_to_stopped(pool: &Path, wanted: &Attach) -> anyhow::Result<FlashReport> {
    let store = Store::open(pool, Access::Read)?;
    let id = probe::require_pool(&store)?.parameters.id;
    let cache = device::make(wanted, Pool { store: &store, id })?;
    Ok(FlashReport {
        state: "unused".into(),
        reason: Some("the pool is not served".into()),
        path: Some(wanted.path.display().to_string()),
        size_bytes: cache.label.size,
        budget_bytes_per_day: cache.label.budget,
        endurance_bytes: (cache.label.endurance > 0).then_some(cache.label.endurance),
        ..FlashReport::default()
    })
}

/// Asks the server, if there is one.
fn ask(target: &Target, request: &Request) -> anyhow::Result<Option<FlashReport>> {
    let report = control::call_server_of(&target.pool, target.control.as_deref(), request)?;
    Ok(report.map(|report| report.flash))
}

fn show_json(report: &FlashReport) {
    print_json(&json!({ "version": status::VERSION, "flash": report }));
}
