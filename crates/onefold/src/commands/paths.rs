//! Table of every path on the command line, and its use. The test compares the table with clap's definitions, so that a new command that writes somewhere
//! cannot be forgotten. tests/interop/test_guard.py reads the table, and tries each output with every kind of target.

use std::any::TypeId;
use std::path::PathBuf;

use clap::{Command, CommandFactory};

use crate::commands::cli::Cli;
use crate::frontend::nbd::listen::Address;

/// Use that a command makes of a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Role {
    /// Reads it.
    Reads,
    /// Uses the pool that must be there.
    Pool,
    /// Connects to the socket that is there.
    Connects,
    /// Listens on a port, at no path.
    Port,
    /// Writes over it, or in its place.
    Writes,
}

use Role::{Connects, Pool, Port, Reads, Writes};

/// Path arguments of the commands, and their use. For a command that is not named here, `pool` is a pool and `control` a socket.
const PATHS: [(&str, &str, Role); 16] = [
    ("create", "pool", Writes),
    ("relocate profile save", "file", Writes),
    ("relocate profile load", "file", Reads),
    ("objects import", "file", Reads),
    ("cache attach", "device", Writes),
    ("serve", "pool", Writes),
    ("serve", "listen", Writes),
    ("serve", "control", Writes),
    ("serve", "http", Port),
    ("serve", "flash", Writes),
    ("serve", "record", Writes),
    ("serve", "tls_certificates", Reads),
    ("import", "image", Reads),
    ("export", "image", Writes),
    ("estimate", "paths", Reads),
    ("man", "folder", Writes),
];

fn role(command: &str, path: &str) -> Option<Role> {
    let row = PATHS.iter().find(|row| (row.0, row.1) == (command, path));
    let usual = match path {
        "pool" => Some(Pool),
        "control" => Some(Connects),
        _ => None,
    };
    row.map(|row| row.2).or(usual)
}

fn paths(command: &Command, name: &str, found: &mut Vec<(String, String)>) {
    for argument in command.get_arguments() {
        let kind = argument.get_value_parser().type_id();
        if kind == TypeId::of::<PathBuf>() || kind == TypeId::of::<Address>() {
            found.push((name.to_owned(), argument.get_id().to_string()));
        }
    }
    for command in command.get_subcommands().filter(|command| command.get_name() != "help") {
        paths(command, format!("{name} {}", command.get_name()).trim(), found);
    }
}

#[test]
fn every_path_of_the_command_line_has_its_role() {
    let (mut cli, mut found) = (Cli::command(), Vec::new());
    cli.build();
    paths(&cli, "", &mut found);
    assert!(found.len() > 70, "{found:?}");
    for (command, path) in &found {
        assert!(role(command, path).is_some(), "say in PATHS what '{command}' does at '{path}'");
    }
    for (command, path, _) in PATHS {
        assert!(found.contains(&(command.into(), path.into())), "'{command}' takes no path '{path}' any more");
    }
}
