//! Generator of docs/reference/commands.md and docs/reference/properties.md, so that the pages cannot differ from the program.
//!
//! The first has every command and switch, as `--help` prints them; the second the rows of the tables of properties.
//! `ONEFOLD_WRITE_REFERENCE=1 cargo test -p onefold reference` writes the pages; without it the tests compare.

use clap::{Arg, Command, CommandFactory};
use engine::{PoolProperties, PoolProperty, ValueForm, VolumeProperties, VolumeProperty};

use crate::commands::cli::Cli;

/// Path of a page, from the crate.
macro_rules! page {
    ($name:literal) => {
        concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/", $name)
    };
}

/// Text before the commands.
const COMMANDS: &str = "\
# Commands

This page lists every command with its arguments and options, as `onefold COMMAND --help` prints them. `onefold man FOLDER` writes the same as manual pages.
Properties have [a page of their own](properties.md).

Sizes are in powers of 1024: `4096`, `512M`, `10G`, `1TiB`. Exit status: 0 success, 1 failure, 2 wrong usage.

The program makes this page, and a test holds it: change the help in the program, not here (`CONTRIBUTING.md`).
";

/// Text before the properties.
const PROPERTIES: &str = "\
# Properties

This page lists the properties of pools and volumes: values, bounds, defaults and the field on disk. A property is in force as soon as a command has set it. The
next checkpoint makes it durable.

    $ onefold set disk.onefold index-copy=oldest
    $ onefold get disk.onefold index-copy
    NAME          PROPERTY    VALUE   SOURCE
    disk.onefold  index-copy  oldest  pool

`onefold volume set POOL VOLUME` and `onefold volume get POOL VOLUME` do the same for a volume. Without a property `get` shows all.

Sizes are in powers of 1024: `512M`, `10G`. Fields are in the [superblock](disk-format.md#superblock) or the [volume entry](disk-format.md#volume-entry). A field of
zeroes means the default, except for the policy of a volume, where it is 255 in byte 2.

The program makes this page from the tables in `properties/table.rs`, and a test holds it: change the rows, not the page
([how to add one](../internals/new-property.md)).
";

fn commands() -> String {
    let mut cli = Cli::command();
    cli.build();
    let globals: String = cli.get_arguments().filter(|option| option.is_global_set()).map(global).collect();
    let (mut list, mut text) = (String::new(), String::new());
    let mut commands = Vec::new();
    leaves(&mut cli, "onefold", &mut commands);
    for (name, about, help) in commands {
        let anchor = name.replace(' ', "-");
        list.push_str(&format!("| [`{name}`](#{anchor}) | {about} |\n"));
        text.push_str(&format!("\n## {name}\n\n```text\n{}\n```\n", help.trim_end()));
    }
    let globals = format!("## Options of every command\n\n| option | meaning |\n|---|---|\n{globals}");
    format!("{COMMANDS}\n| command | purpose |\n|---|---|\n{list}\n{globals}{text}")
}

/// Formats an option of every command as a row.
fn global(option: &Arg) -> String {
    let name = option.get_long().unwrap_or_default();
    let values: String =
        option.get_value_names().unwrap_or_default().iter().map(|value| format!(" <{value}>")).collect();
    let values = if option.get_action().takes_values() { values } else { String::new() };
    let help = option.get_help().map(ToString::to_string).unwrap_or_default();
    format!("| `--{name}{values}` | {help} |\n")
}

/// Hides options of every command, and that of help, in the help of a command.
fn hide_common(command: &mut Command) {
    let common = command.get_arguments().filter(|option| option.is_global_set() || option.get_id() == "help");
    for id in common.map(|option| option.get_id().clone()).collect::<Vec<_>>() {
        *command = std::mem::take(command).mut_arg(id, |option| option.hide(true));
    }
}

/// Collects the commands that do something: their names, a clause about each, and their help.
fn leaves(command: &mut Command, name: &str, found: &mut Vec<(String, String, String)>) {
    if !command.has_subcommands() {
        let about = command.get_about().map(ToString::to_string).unwrap_or_default();
        let about = about.split([':', ';', '.']).next().unwrap_or_default().to_owned();
        hide_common(command);
        let help = command.render_long_help().to_string();
        let lines: Vec<&str> = help.lines().map(str::trim_end).collect();
        found.push((name.to_owned(), about, lines.join("\n")));
        return;
    }
    for command in command.get_subcommands_mut().filter(|command| command.get_name() != "help") {
        let name = format!("{name} {}", command.get_name());
        leaves(command, &name, found);
    }
}

/// Property as the page shows it.
struct Row {
    name: &'static str,
    summary: &'static str,
    help: &'static str,
    forms: &'static [ValueForm],
    type_name: &'static str,
    default: String,
    location: String,
}

/// Lists the rows of a scope.
macro_rules! rows {
    ($Property:ident, $Values:ident) => {
        $Property::ALL
            .iter()
            .map(|&property| Row {
                name: property.name(),
                summary: property.summary(),
                help: property.help(),
                forms: property.forms(),
                type_name: property.type_name(),
                default: $Values::default().text(property),
                location: property.location(),
            })
            .collect()
    };
}

fn properties() -> String {
    let pool: Vec<Row> = rows!(PoolProperty, PoolProperties);
    let volume: Vec<Row> = rows!(VolumeProperty, VolumeProperties);
    let pool = scope("pool", "`onefold set --help`", "the superblock", &pool);
    let volume = scope("volume", "`onefold volume set --help`", "the volume entry", &volume);
    format!("{PROPERTIES}{pool}{volume}")
}

/// Formats the properties of a scope: a table of all, then each.
fn scope(scope: &str, help: &str, block: &str, rows: &[Row]) -> String {
    let mut table = format!("| property | default | {help} |\n|---|---|---|\n");
    let mut text = String::new();
    for Row { name, summary, help, forms, type_name, default, location } in rows {
        let help = help.replace('|', "\\|");
        table.push_str(&format!("| [`{name}`](#{scope}-{name}) | `{default}` | {help} |\n"));
        text.push_str(&format!("\n### {scope}: {name}\n\n{summary}\n\n| value | meaning |\n|---|---|\n"));
        for ValueForm { text: value, meaning } in *forms {
            text.push_str(&format!("| `{}` | {meaning} |\n", value.replace('|', "\\|")));
        }
        text.push_str(&format!("\nDefault: `{default}`. Type: `{type_name}`. Field: {location} of {block}.\n"));
    }
    format!("\n## Properties of a {scope}\n\n{table}{text}")
}

/// Writes a page, if that is requested, and compares it with the text.
fn hold(path: &str, text: &str) {
    if std::env::var_os("ONEFOLD_WRITE_REFERENCE").is_some() {
        std::fs::write(path, text).unwrap();
    }
    let is_same = std::fs::read_to_string(path).unwrap_or_default() == text;
    assert!(
        is_same,
        "{path} differs from the program: ONEFOLD_WRITE_REFERENCE=1 cargo test -p onefold reference rewrites it"
    );
}

#[test]
fn the_reference_of_commands_is_what_the_program_says() {
    hold(page!("commands.md"), &commands());
}

#[test]
fn the_reference_of_properties_is_what_their_tables_say() {
    hold(page!("properties.md"), &properties());
}
