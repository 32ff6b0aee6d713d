//! Generator of docs/reference/commands.md: every command and switch, as `--help` prints it, so that the page cannot differ from the program.
//!
//! `ONEFOLD_WRITE_REFERENCE=1 cargo test -p onefold reference` writes the page; without it the test compares.

use clap::{Command, CommandFactory};

use crate::commands::cli::Cli;

/// Path of the page, from the crate.
const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/commands.md");

/// Text before the commands.
const BEGINNING: &str = "\
# Reference

Every command with its arguments and switches: what `onefold COMMAND --help` prints. The program makes this page, and a test holds it
([CONTRIBUTING](../../CONTRIBUTING.md)): change the help in the program, not here.

Sizes are in powers of 1024 (`512M`, `10G`, `1TiB`). Exit status: 0 done, 1 failed, 2 wrong usage.
";

fn page() -> String {
    let mut cli = Cli::command();
    cli.build();
    let (mut list, mut text) = (String::new(), String::new());
    let mut commands = Vec::new();
    leaves(&mut cli, "onefold", &mut commands);
    for (name, about, help) in commands {
        let anchor = name.replace(' ', "-");
        list.push_str(&format!("- [`{name}`](#{anchor}): {about}\n"));
        text.push_str(&format!("\n## {name}\n\n```text\n{}\n```\n", help.trim_end()));
    }
    format!("{BEGINNING}\n{list}{text}")
}

/// Collects the commands that do something: their names, a line about each, and their help.
fn leaves(command: &mut Command, name: &str, found: &mut Vec<(String, String, String)>) {
    if !command.has_subcommands() {
        let about = command.get_about().map(ToString::to_string).unwrap_or_default();
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

#[test]
fn the_reference_is_what_the_program_says() {
    if std::env::var_os("ONEFOLD_WRITE_REFERENCE").is_some() {
        std::fs::write(PAGE, page()).unwrap();
    }
    let there = std::fs::read_to_string(PAGE).unwrap_or_default();
    let same = there == page();
    assert!(
        same,
        "docs/reference/commands.md differs from the program's help: ONEFOLD_WRITE_REFERENCE=1 cargo test -p onefold reference rewrites it"
    );
}
