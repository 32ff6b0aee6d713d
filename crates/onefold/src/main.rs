//! Onefold: a block device that stores every block once, served over NBD.
//!
//! ```text
//! commands    the command line, and its implementation
//! operators   ... by commands to the engine; messages to operators and the service manager
//! reactor     one thread: waits, takes in, lets the engine decide, carries out
//! frontend    ... for clients, over NBD
//! report      ... for figures of the pool
//! http        a page for browsers, metrics for monitoring: on threads of its own
//! transfer    whole images in and out of a volume
//! memory      one number, divided
//! store       the file or device, owned by one process
//! io          the kernel's side: the only unsafe code (and one descriptor in operators/service.rs)
//! clock, log, print, progress, size    words, times and numbers for people
//! ```

mod clock;
mod commands;
mod flash;
mod frontend;
mod http;
mod io;
mod log;
mod memory;
#[cfg(test)]
mod numbers;
mod operators;
mod print;
mod progress;
mod reactor;
mod report;
mod store;
mod transfer;
mod version;

use engine::byte_size as size;
use std::path::Path;
use std::process::ExitCode;

use clap::Parser;
use serde_json::json;

use commands::cli::{Cli, Command, CreateArgs, GrowArgs, StatusArgs, Target, VolumeCommand};
use commands::{
    cache, check, confirm, connect, create, dedup, estimate, images, manual, objects, offline, relocate, repair, scrub,
    serve, snapshot, top,
};
use io::heap;
use log::Level;
use operators::command::listed;
use operators::control::Request;
use operators::properties::Property;
use operators::selection::Selection;
use operators::service::Inherited;
use operators::{properties, service};
use print::{complain, has_failed, print, print_json, print_parsed, shown};
use report::status::Report;
use report::{prometheus, status, text};
use store::copy_on_write::Overwriting;
use store::{copy_on_write, file_size, grow, owner};

#[global_allocator]
static HEAP: heap::Heap = heap::Heap;

/// The exit status for wrong usage; clap's too.
const USAGE: u8 = 2;

fn main() -> ExitCode {
    // Before anything is opened.
    let inherited = service::inherited();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(said) => {
            print_parsed(&said);
            return if has_failed() { ExitCode::FAILURE } else { ExitCode::from(said.exit_code().clamp(0, 255) as u8) };
        }
    };
    if !matches!(cli.command, Command::Serve(_)) {
        log::start(Level::Warn);
    }
    if cli.take_over {
        owner::take_over();
    }
    match file_size::handle_signal().and_then(|()| take_memory(&cli)).and_then(|()| run(&cli.command, inherited)) {
        // A server that cannot say that it is ready serves all the same.
        Ok(code) if has_failed() && code == ExitCode::SUCCESS && !matches!(cli.command, Command::Serve(_)) => {
            ExitCode::FAILURE
        }
        Ok(code) => code,
        Err(error) => {
            complain(format_args!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}

/// Sets the `--memory` of commands that open a pool themselves, and refuses it where none is opened; a server and an estimate have their own.
fn take_memory(cli: &Cli) -> anyhow::Result<()> {
    match (&cli.command, cli.memory) {
        (Command::Create(_), Some(_)) => anyhow::bail!("'create' opens no pool: it takes no --memory"),
        (Command::Completions { .. } | Command::Man { .. }, Some(_)) => {
            anyhow::bail!("this command opens no pool: it takes no --memory")
        }
        (Command::Serve(_) | Command::Estimate(_), _) | (_, None) => Ok(()),
        (_, Some(bytes)) => memory::give(bytes),
    }
}

fn run(command: &Command, inherited: anyhow::Result<Vec<Inherited>>) -> anyhow::Result<ExitCode> {
    match command {
        Command::Create(arguments) => create_pool(arguments),
        Command::Grow(arguments) => grow_pool(arguments),
        Command::Volume(VolumeCommand::Create { target, name, size, policy, json }) => {
            if let Some(problem) = wrong_size(*size) {
                return Ok(wrong_usage(&problem));
            }
            create_volume(target, name, *size, policy, *json)
        }
        Command::Volume(VolumeCommand::Delete { target, names, snapshots, force, yes, json }) => {
            delete_volumes(target, names, [*snapshots, *force, *yes, *json])
        }
        Command::Volume(VolumeCommand::Resize { target, name, size, force, reconnect, json }) => {
            let size = size.bytes();
            if let Some(problem) = wrong_size(size) {
                return Ok(wrong_usage(&problem));
            }
            resize_volume(target, name, size, [*force, *reconnect], *json)
        }
        Command::Volume(VolumeCommand::Rename { target, name, new_name, json }) => {
            rename_volume(target, name, new_name, *json)
        }
        Command::Volume(VolumeCommand::Set { target, name, properties }) => {
            match properties::volume_request(name, properties) {
                Ok(request) => ask_about(target, name, &request).map(|_| ExitCode::SUCCESS),
                Err(problem) => Ok(wrong_usage(&problem)),
            }
        }
        Command::Volume(VolumeCommand::Get { target, name, key, json }) => {
            let report = look(target, Selection::one(name))?;
            let volume = report.volumes.iter().find(|volume| volume.name == *name);
            let volume = volume.ok_or_else(|| anyhow::Error::msg(status::no_volume(name)))?;
            Ok(show_properties(properties::select(properties::of_volume(volume), key.as_deref()), &report, *json))
        }
        Command::Set { target, properties } => match properties::pool_request(properties) {
            Ok(request) => {
                offline::request(target, &request)?;
                if properties::sets_replicas(&request)
                    && let Some(fit) = properties::replicas_fit(&look(target, Selection::NONE)?)
                {
                    println!("{fit}");
                }
                Ok(ExitCode::SUCCESS)
            }
            Err(problem) => Ok(wrong_usage(&problem)),
        },
        Command::Get { target, key, json } => {
            let report = look(target, Selection::NONE)?;
            let name = if *json { target.pool.display().to_string() } else { shown(&target.pool) };
            Ok(show_properties(properties::select(properties::of_pool(&name, &report), key.as_deref()), &report, *json))
        }
        Command::Volume(VolumeCommand::List { target, json }) => list_volumes(target, *json),
        Command::Snapshot(command) => snapshot::snapshot(command),
        Command::Clone(arguments) => snapshot::clone(arguments),
        Command::Cache(arguments) => cache::cache(arguments),
        Command::Serve(arguments) => {
            if let Some(problem) = arguments.size.and_then(wrong_size) {
                return Ok(wrong_usage(&problem));
            }
            serve::serve(arguments, inherited?)
        }
        Command::Status(arguments) => show_status(arguments),
        Command::Top { target, once } => top::top(target, *once),
        Command::Connect(arguments) => connect::connect(arguments),
        Command::Import(arguments) => images::import(arguments),
        Command::Export(arguments) => images::export(arguments),
        Command::Scrub(arguments) => scrub::scrub(arguments),
        Command::Dedup(arguments) => dedup::dedup(arguments),
        Command::Relocate(command) => relocate::relocate(command),
        Command::Objects(command) => objects::objects(command),
        Command::Check(arguments) => {
            let clean = check::check(arguments)?;
            Ok(if clean { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
        Command::Repair(arguments) => {
            if !arguments.dry_run && !arguments.yes {
                return Ok(wrong_usage(
                    "--dry-run prints the repair and its losses, --yes does it. Copy the pool first if \
                     you can",
                ));
            }
            let sound = repair::repair(arguments)?;
            Ok(if sound { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
        Command::Estimate(arguments) => {
            let complete = estimate::estimate(arguments)?;
            Ok(if complete { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
        Command::Completions { shell } => {
            manual::completions(*shell);
            Ok(ExitCode::SUCCESS)
        }
        Command::Man { folder } => manual::pages(folder).map(|()| ExitCode::SUCCESS),
    }
}

fn wrong_size(bytes: u64) -> Option<String> {
    let block = u64::from(engine::geometry::BLOCK_SIZE);
    if bytes == 0 {
        Some("the size must not be zero".into())
    } else if !bytes.is_multiple_of(block) {
        let would_do = bytes.checked_next_multiple_of(block).unwrap_or(bytes / block * block);
        Some(format!("the size must be a multiple of {block} bytes; {would_do} would do{}", size::unit_advice(bytes)))
    } else {
        None
    }
}

fn wrong_usage(problem: &str) -> ExitCode {
    complain(format_args!("{problem}"));
    ExitCode::from(USAGE)
}

fn create_pool(arguments: &CreateArgs) -> anyhow::Result<ExitCode> {
    if arguments.capacity == 0 {
        return Ok(wrong_usage("the capacity must not be zero"));
    }
    let geometry = create::geometry_for(arguments.capacity, arguments.metadata.unwrap_or(0))?;
    let (store, parameters) = create::create(&arguments.pool, geometry, arguments.force, arguments.device)?;
    let geometry = parameters.geometry;
    let pool = arguments.pool.display();
    let id = format!("{:032x}", u128::from_be_bytes(parameters.id));
    if arguments.json {
        print_json(&json!({
            "version": status::VERSION,
            "pool": pool.to_string(),
            "id": id,
            "capacity_bytes": geometry.capacity_bytes(),
            "store_bytes": geometry.total_bytes(),
        }));
    } else {
        let pool = shown(&arguments.pool);
        let (capacity, total) = (size::show(geometry.capacity_bytes()), size::show(geometry.total_bytes()));
        print(format_args!(
            "made the pool {pool}: capacity {capacity}, {total} with its tables when full\n\
             next: onefold volume create {pool} NAME --size SIZE\n"
        ));
        if let Some(rounded) = create::rounding(arguments.capacity, geometry.capacity_bytes()) {
            print(format_args!("{rounded}\n"));
        }
        if copy_on_write::overwriting(&store) == Overwriting::SwitchedToInPlace {
            print(format_args!("{}\n", copy_on_write::SWITCHED));
        }
    }
    note_of_space(&arguments.pool, geometry.total_bytes());
    Ok(ExitCode::SUCCESS)
}

/// Says if a pool's file may become larger than its file system has space for.
fn note_of_space(pool: &Path, total_bytes: u64) {
    if let Some(note) = grow::short_of_space(pool, total_bytes) {
        complain(format_args!("note: {note}"));
    }
}

fn grow_pool(arguments: &GrowArgs) -> anyhow::Result<ExitCode> {
    let (capacity_bytes, metadata_bytes) = (arguments.capacity.unwrap_or(0), arguments.metadata.unwrap_or(0));
    let request = Request::Grow { capacity_bytes, metadata_bytes };
    let report = offline::request(&arguments.target, &request)?;
    if arguments.json {
        print_json(&offline::with_volumes(&arguments.target, report.clone())?);
    } else {
        let (capacity, tables) = (size::show(report.capacity_bytes), size::show(report.metadata_bytes));
        let pool = shown(&arguments.target.pool);
        print(format_args!("{pool} has a capacity of {capacity} now, and {tables} for maps and tables\n"));
        let rounded = arguments.capacity.and_then(|asked| create::rounding(asked, report.capacity_bytes));
        if let Some(rounded) = rounded {
            print(format_args!("{rounded}\n"));
        }
    }
    note_of_space(&arguments.target.pool, report.capacity_bytes.saturating_add(report.metadata_bytes));
    Ok(ExitCode::SUCCESS)
}

fn create_volume(target: &Target, name: &str, size: u64, policy: &str, json: bool) -> anyhow::Result<ExitCode> {
    let request = Request::CreateVolume { name: name.into(), size_bytes: size, policy: policy.into() };
    let report = ask_about(target, name, &request)?;
    let made = report.volumes.iter().find(|volume| volume.name == name);
    if json {
        print_json(&json!({ "version": status::VERSION, "volume": made }));
    } else {
        let policy = made.map_or(policy, |volume| &volume.policy);
        print(format_args!("made the volume '{name}' of {}, policy {policy}\n", size::show(size)));
    }
    Ok(ExitCode::SUCCESS)
}

/// Sends a request about a volume; errors name the volume.
fn ask_about(target: &Target, name: &str, request: &Request) -> anyhow::Result<Report> {
    offline::request(target, request).map_err(|error| error.context(format!("volume '{name}'")))
}

fn delete_volumes(
    target: &Target,
    names: &[String],
    [snapshots, force, yes, json]: [bool; 4],
) -> anyhow::Result<ExitCode> {
    let is_asked = !yes && confirm::is_possible();
    let known = if is_asked || snapshots { offline::volumes_named(target, names)? } else { Vec::new() };
    if is_asked && !confirm::volumes_are_meant(target, names, &known)? {
        complain(format_args!("nothing was deleted"));
        return Ok(ExitCode::FAILURE);
    }
    let (noun, their) = if names.len() == 1 { ("volume", "its") } else { ("volumes", "their") };
    let deleted = offline::delete(target, names, |names| Request::DeleteVolumes { names, force, snapshots });
    deleted.map_err(|error| error.context(format!("{noun} {}", listed(names))))?;
    let count: usize = known.iter().map(|volume| volume.snapshots).sum();
    if json {
        print_json(&json!({ "version": status::VERSION, "deleted": names, "deleted_snapshots": count }));
        return Ok(ExitCode::SUCCESS);
    }
    let with = match count {
        0 => String::new(),
        1 => format!(" with {their} snapshot"),
        count => format!(" with {their} {count} snapshots"),
    };
    print(format_args!("deleted the {noun} {}{with}; {their} space comes back in the background\n", listed(names)));
    Ok(ExitCode::SUCCESS)
}

fn rename_volume(target: &Target, name: &str, new_name: &str, json: bool) -> anyhow::Result<ExitCode> {
    let request = Request::RenameVolume { name: name.into(), new_name: new_name.into() };
    let report = ask_about(target, name, &request)?;
    let renamed = report.volumes.iter().find(|volume| volume.name == new_name);
    if json {
        print_json(&json!({ "version": status::VERSION, "volume": renamed }));
        return Ok(ExitCode::SUCCESS);
    }
    print(format_args!("renamed '{name}' to '{new_name}'\n"));
    match renamed.map_or(0, |volume| volume.clients) {
        0 => {}
        1 => print(format_args!("1 client stays connected: it finds '{new_name}' when it connects again\n")),
        clients => {
            print(format_args!("{clients} clients stay connected: they find '{new_name}' when they connect again\n"))
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn resize_volume(
    target: &Target,
    name: &str,
    size: u64,
    [force, reconnect]: [bool; 2],
    json: bool,
) -> anyhow::Result<ExitCode> {
    let report =
        ask_about(target, name, &Request::ResizeVolume { name: name.into(), size_bytes: size, force, reconnect })?;
    let resized = report.volumes.iter().find(|volume| volume.name == name);
    if json {
        print_json(&json!({ "version": status::VERSION, "volume": resized }));
        return Ok(ExitCode::SUCCESS);
    }
    print(format_args!("the volume '{name}' has {} now\n", size::show(size)));
    let clients = resized.map_or(0, |volume| volume.clients);
    if clients == 0 {
        return Ok(ExitCode::SUCCESS);
    }
    let (are, they) = if clients == 1 { ("client is", "it sees") } else { ("clients are", "they see") };
    if reconnect {
        print(format_args!("{clients} {are} being disconnected: {they} the new size when connected again\n"));
    } else {
        print(format_args!(
            "{clients} {are} connected: {they} the new size after a new connection; --reconnect asks for one\n"
        ));
    }
    Ok(ExitCode::SUCCESS)
}

/// Asks for the figures and some volumes, for a command that shows them. A note tells if the pool was not closed cleanly.
fn look(target: &Target, volumes: Selection) -> anyhow::Result<Report> {
    let report = offline::request(target, &Request::status(volumes))?;
    report.require_opened()?;
    if report.needs_recovery {
        complain(format_args!("note: {} was not closed cleanly: {}", shown(&target.pool), status::NOT_RECOVERED));
    }
    Ok(report)
}

fn show_properties(selected: Result<Vec<Property>, String>, report: &Report, json: bool) -> ExitCode {
    match selected {
        Ok(properties) if json => print_json(&json!({
            "version": status::VERSION, "needs_recovery": report.needs_recovery, "properties": properties
        })),
        Ok(properties) => print(format_args!("{}", properties::table(&properties))),
        Err(problem) => return wrong_usage(&problem),
    }
    ExitCode::SUCCESS
}

fn list_volumes(target: &Target, json: bool) -> anyhow::Result<ExitCode> {
    let report = look(target, Selection::ALL)?;
    if json {
        print_json(&json!({
            "version": status::VERSION, "needs_recovery": report.needs_recovery, "volumes": report.volumes
        }));
    } else {
        print(format_args!("{}", text::volumes_text(&report.volumes, usize::MAX, report.is_served())));
    }
    Ok(ExitCode::SUCCESS)
}

fn show_status(arguments: &StatusArgs) -> anyhow::Result<ExitCode> {
    let StatusArgs { target, settle, recover, .. } = arguments;
    let report = offline::status(target, *settle, *recover)?;
    let pool = target.pool.display();
    if arguments.json {
        print_json(&report);
    } else if arguments.prometheus {
        print(format_args!("{}", prometheus::text(&report, pool)));
    } else if arguments.all {
        print(format_args!("{}", report.text_of_all(&shown(&target.pool))));
    } else {
        print(format_args!("{}", report.text(&shown(&target.pool))));
    }
    Ok(ExitCode::SUCCESS)
}
