//! Onefold: a block device that stores every block once, served over NBD.
//!
//! ```text
//! main, cli                 what is asked for
//! create, grow, serve, offline, check    what is done about it
//! log, watch, service       what an operator, and the service manager, are told
//! reactor                   one thread: waits, takes in, lets the engine decide, carries out
//!   disk, backing           ... on the store
//!   server, connection, request, output    ... for clients
//!   control                 ... for operators
//! ring, arena               the kernel's side: the only unsafe code (and one descriptor in service)
//! ```

mod arena;
mod backing;
mod capacity;
mod check;
mod cli;
mod connection;
mod control;
mod create;
mod digest;
mod disk;
mod grow;
mod listen;
mod log;
mod offline;
mod output;
mod place;
mod print;
mod probe;
mod progress;
mod reactor;
mod request;
mod ring;
mod serve;
mod server;
mod service;
mod size;
mod status;
mod watch;

use std::path::Path;
use std::process::ExitCode;

use clap::Parser;
use serde_json::json;

use cli::{Cli, Command, CreateArgs, GrowArgs, StatusArgs, VolumeCommand};
use control::Request;
use log::Level;
use print::{complain, print, print_json};
use service::Inherited;

/// The exit status for wrong usage; clap's too.
const USAGE: u8 = 2;

fn main() -> ExitCode {
    // Before anything is opened.
    let inherited = service::inherited();
    let cli = Cli::parse();
    if !matches!(cli.command, Command::Serve(_)) {
        log::start(Level::Warn);
    }
    match run(&cli.command, inherited) {
        Ok(code) => code,
        Err(error) => {
            complain(format_args!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn run(command: &Command, inherited: anyhow::Result<Vec<Inherited>>) -> anyhow::Result<ExitCode> {
    match command {
        Command::Create(arguments) => create_pool(arguments),
        Command::Grow(arguments) => grow_pool(arguments),
        Command::Volume(VolumeCommand::Create { pool, name, size, policy, json }) => {
            if let Some(problem) = wrong_size(*size) {
                return Ok(wrong_usage(&problem));
            }
            create_volume(pool, name, *size, (*policy).into(), *json)
        }
        Command::Volume(VolumeCommand::List { pool, json }) => list_volumes(pool, *json),
        Command::Serve(arguments) => {
            if let Some(problem) = arguments.size.and_then(wrong_size) {
                return Ok(wrong_usage(&problem));
            }
            serve::serve(arguments, inherited?)
        }
        Command::Status(arguments) => show_status(arguments),
        Command::Check(arguments) => {
            let clean = check::check(arguments)?;
            Ok(if clean { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
    }
}

fn wrong_size(bytes: u64) -> Option<String> {
    let block = u64::from(engine::geometry::BLOCK_SIZE);
    if bytes == 0 {
        Some("the size must not be zero".into())
    } else if !bytes.is_multiple_of(block) {
        Some(format!("the size must be a multiple of {block} bytes; {} would do", bytes / block * block + block))
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
    let (_store, parameters) = create::create(&arguments.pool, arguments.capacity, arguments.force)?;
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
        let (capacity, total) = (size::show(geometry.capacity_bytes()), size::show(geometry.total_bytes()));
        print(format_args!(
            "made the pool {pool}: capacity {capacity}, {total} with its tables when full\n\
             next: onefold volume create {pool} NAME --size SIZE\n"
        ));
    }
    Ok(ExitCode::SUCCESS)
}

fn grow_pool(arguments: &GrowArgs) -> anyhow::Result<ExitCode> {
    let request = Request::Grow { capacity_bytes: arguments.capacity };
    let report = offline::request(&arguments.pool, &request)?;
    if arguments.json {
        print_json(&report);
    } else {
        let capacity = size::show(report.capacity_bytes);
        print(format_args!("{} has a capacity of {capacity} now\n", arguments.pool.display()));
    }
    Ok(ExitCode::SUCCESS)
}

fn create_volume(pool: &Path, name: &str, size: u64, policy: engine::Policy, json: bool) -> anyhow::Result<ExitCode> {
    let policy = status::policy_name(policy);
    let request = Request::CreateVolume { name: name.into(), size_bytes: size, policy: policy.into() };
    let report = offline::request(pool, &request).map_err(|error| error.context(format!("volume '{name}'")))?;
    let made = report.volumes.iter().find(|volume| volume.name == name);
    if json {
        print_json(&json!({ "version": status::VERSION, "volume": made }));
    } else {
        print(format_args!("made the volume '{name}' of {}, policy {policy}\n", size::show(size)));
    }
    Ok(ExitCode::SUCCESS)
}

fn list_volumes(pool: &Path, json: bool) -> anyhow::Result<ExitCode> {
    let report = offline::request(pool, &Request::Status { settle: false })?;
    if json {
        print_json(&json!({ "version": status::VERSION, "volumes": report.volumes }));
    } else {
        print(format_args!("{}", status::volumes_text(&report.volumes)));
    }
    Ok(ExitCode::SUCCESS)
}

fn show_status(arguments: &StatusArgs) -> anyhow::Result<ExitCode> {
    let report = offline::request(&arguments.pool, &Request::Status { settle: arguments.settle })?;
    if arguments.json {
        print_json(&report);
    } else {
        print(format_args!("{}", report.text(&arguments.pool.display().to_string())));
    }
    Ok(ExitCode::SUCCESS)
}
