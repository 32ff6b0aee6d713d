//! Confirmation prompt before a volume or a snapshot is deleted, or a volume is rolled back.

use std::fmt::Arguments;
use std::io::{IsTerminal, Write};

use anyhow::{Context, bail};

use crate::commands::cli::Target;
use crate::operators::command::listed;
use crate::report::status::{VolumeReport, no_volume};
use crate::size;

/// Bytes of a block, as the figures count them.
const BLOCK: u64 = 4096;

/// Returns true if there is a user at a terminal. A script, whose input is none, is not asked.
pub fn is_possible() -> bool {
    std::io::stdin().is_terminal()
}

/// Asks the user at the terminal to confirm the volumes; `known` are those that exist.
pub fn volumes_are_meant(target: &Target, names: &[String], known: &[VolumeReport]) -> anyhow::Result<bool> {
    if let Some(name) = names.iter().find(|name| !known.iter().any(|known| known.name == **name)) {
        bail!(no_volume(name));
    }
    let sum = |figure: fn(&VolumeReport) -> u64| size::show(known.iter().map(figure).sum());
    let (whole, used) = (sum(|volume| volume.size_bytes), sum(|volume| volume.logical_blocks_used * BLOCK));
    let (noun, them) = if names.len() == 1 { ("volume", "it") } else { ("volumes", "them") };
    let snapshots = match known.iter().map(|volume| volume.snapshots).sum() {
        0 => String::new(),
        1 => ", 1 snapshot".into(),
        count => format!(", {count} snapshots"),
    };
    is_yes(format_args!(
        "delete the {noun} {} of {} ({whole}, {used} of {them} in use{snapshots}) for good? Type yes: ",
        listed(names),
        target.pool.display()
    ))
}

/// Asks the user at the terminal to confirm the deletion of snapshots. A script is not asked.
pub fn are_meant(target: &Target, snapshots: &[String]) -> anyhow::Result<bool> {
    if !is_possible() {
        return Ok(true);
    }
    let noun = if snapshots.len() == 1 { "snapshot" } else { "snapshots" };
    let (names, pool) = (listed(snapshots), target.pool.display());
    is_yes(format_args!("delete the {noun} {names} of {pool} for good? Type yes: "))
}

/// Asks the user at the terminal to confirm a rollback, and the deletion of newer snapshots. A script is not asked.
pub fn is_rollback_meant(target: &Target, snapshot: &str, deleted: &[String]) -> anyhow::Result<bool> {
    if !is_possible() {
        return Ok(true);
    }
    let also = if deleted.is_empty() { String::new() } else { format!(", and delete {}", listed(deleted)) };
    let (volume, pool) = (snapshot.split('@').next().unwrap_or_default(), target.pool.display());
    is_yes(format_args!(
        "roll '{volume}' of {pool} back to '{snapshot}', so that all later writes are lost{also}? Type yes: "
    ))
}

fn is_yes(question: Arguments<'_>) -> anyhow::Result<bool> {
    let mut output = std::io::stderr();
    write!(output, "{question}")
        .and_then(|()| output.flush())
        .context("cannot ask: --yes goes on without a question")?;
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer).context("cannot read the answer")?;
    Ok(matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}
