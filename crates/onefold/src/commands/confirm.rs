//! Confirmation prompt before a volume or a snapshot is deleted.

use std::fmt::Arguments;
use std::io::{IsTerminal, Write};

use anyhow::Context;

use crate::commands::cli::Target;
use crate::commands::offline;
use crate::operators::command::quoted;
use crate::operators::control::Request;
use crate::operators::selection::Selection;
use crate::report::status::no_volume;
use crate::size;

/// Bytes of a block, as the figures count them.
const BLOCK: u64 = 4096;

/// Asks the user at the terminal to confirm the volume. A script, whose input is no terminal, is not asked.
pub fn is_meant(target: &Target, name: &str) -> anyhow::Result<bool> {
    if !std::io::stdin().is_terminal() {
        return Ok(true);
    }
    let report = offline::request(target, &Request::status(Selection::one(name)))?;
    let known = report.volumes.iter().find(|known| known.name == name);
    let volume = known.ok_or_else(|| anyhow::Error::msg(no_volume(name)))?;
    let (whole, used) = (size::show(volume.size_bytes), size::show(volume.logical_blocks_used * BLOCK));
    is_yes(format_args!(
        "delete the volume '{name}' of {} ({whole}, {used} of it in use) for good? Type yes: ",
        target.pool.display()
    ))
}

/// Asks the user at the terminal to confirm the deletion of snapshots. A script is not asked.
pub fn are_meant(target: &Target, snapshots: &[String]) -> anyhow::Result<bool> {
    if !std::io::stdin().is_terminal() {
        return Ok(true);
    }
    let noun = if snapshots.len() == 1 { "snapshot" } else { "snapshots" };
    let (names, pool) = (quoted(snapshots), target.pool.display());
    is_yes(format_args!("delete the {noun} {names} of {pool} for good? Type yes: "))
}

fn is_yes(question: Arguments<'_>) -> anyhow::Result<bool> {
    let mut output = std::io::stderr();
    write!(output, "{question}")
        .and_then(|()| output.flush())
        .context("cannot ask: --yes deletes it without a question")?;
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer).context("cannot read the answer")?;
    Ok(matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}
