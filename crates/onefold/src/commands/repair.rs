//! `onefold repair`: plans a repair, audits its result in memory, and only then writes.
//!
//! In order: an audit finds the damage; the engine plans (docs/rfc/0007-repair.md); the planned writes are laid over the store, and the whole result is
//! audited. With `--yes` the plan is written then: missing copies of the superblock, unreferenced pages, and last the superblock that puts them into force, one
//! place after the other.

use std::path::Path;

use anyhow::{Context, bail};
use engine::{Repair, Superblock};
use serde::Serialize;

use crate::commands::check::{Audit, Findings, Overlay, Range, refuse_while_served};
use crate::commands::cli::RepairArgs;
use crate::io::arena::BLOCK;
use crate::memory;
use crate::print::{print, print_json, shown};
use crate::report::status::failure_text;
use crate::size;
use crate::store::backing::{Access, Store};
use crate::store::owner::{self, Purpose};

/// Bytes of memory for each slot: those of the plan, and those of the audit.
const BYTES_A_SLOT: u64 = 24;
/// Sentences and ranges that are listed.
const LISTED_MAX: usize = 1000;

#[derive(Serialize)]
struct Report {
    version: u32,
    /// The pool was, or is now, sound: there is nothing left to do.
    sound: bool,
    /// True if something was written.
    written: bool,
    problems: Vec<String>,
    actions: Vec<String>,
    lost: Vec<Range>,
    /// Ranges that go back to their state before the records that the journal has lost.
    reverted: Vec<Range>,
    bytes_to_write: u64,
    /// Reason why the pool had failed, and whether that is lifted (with `--dry-run`: would be).
    failure: Option<&'static str>,
    failure_lifted: bool,
    /// Problems that an audit of the result finds.
    remaining: Vec<String>,
}

/// Repairs a pool, or says what that would do; true if there is nothing left to do.
pub fn repair(arguments: &RepairArgs) -> anyhow::Result<bool> {
    let path = &arguments.pool;
    refuse_while_served(path, "a repair")?;
    let store = Store::open(path, if arguments.yes { Access::Write } else { Access::Read })?;
    let (superblock, _owned) = owner::claim(&store, if arguments.yes { Purpose::Repair } else { Purpose::Read })?;
    require_memory(path, &superblock)?;
    let mut before = Findings::default();
    let mut audit = Audit::new(&superblock, Overlay::new(store))?;
    let opens = audit.run(&mut before)?;
    let is_sound = opens && before.problem_count == 0 && superblock.failed.is_none();
    let mut report = Report {
        version: crate::report::status::VERSION,
        sound: true,
        written: false,
        problems: Vec::new(),
        actions: Vec::new(),
        lost: Vec::new(),
        reverted: Vec::new(),
        bytes_to_write: 0,
        failure: superblock.failed.map(failure_text),
        failure_lifted: false,
        remaining: Vec::new(),
    };
    if is_sound && !arguments.data {
        return Ok(finish(arguments, report));
    }
    let plan = audit
        .plan(&superblock, arguments.data)
        .map_err(|error| anyhow::anyhow!("{} cannot be repaired: {error}", path.display()))?;
    if is_sound && plan.problems.is_empty() {
        return Ok(finish(arguments, report));
    }
    // If all tables are readable, only the audit sees contradictions between them.
    report.problems = if plan.problems.is_empty() { before.problems } else { plan.problems.clone() };
    report.actions.clone_from(&plan.actions);
    report.lost = plan.lost.iter().map(Range::from).collect();
    report.reverted = plan.reverted.iter().map(Range::from).collect();
    report.bytes_to_write = ((plan.superblocks.len() + plan.copies.len() + plan.pages.len() + 2) * BLOCK) as u64;

    let mut overlay = Overlay::new(audit.overlay.store);
    lay_over(&mut overlay, &plan).with_context(|| format!("cannot read {}", path.display()))?;
    let mut after = Findings::default();
    let mut result = Audit::new(&superblock, overlay)?;
    if !result.run(&mut after)? || after.problem_count > 0 {
        bail!(
            "{} cannot be repaired: the repaired pool does not pass its audit ({}). Nothing was written",
            path.display(),
            after.problems.first().map_or("", String::as_str)
        );
    }
    result.blocks(&mut after);
    report.sound = after.problem_count == 0;
    report.failure_lifted = report.sound && superblock.failed.is_some();
    report.remaining = after.problems;
    if arguments.yes {
        write(&result.overlay.store, &plan, report.sound)
            .with_context(|| format!("{} cannot be written: it is as damaged as before", path.display()))?;
        report.written = true;
    }
    Ok(finish(arguments, report))
}

/// Refuses the repair if memory is too small: both the plan and the audit hold something for each slot.
fn require_memory(path: &Path, superblock: &Superblock) -> anyhow::Result<()> {
    let needed = superblock.parameters.geometry.slots() * BYTES_A_SLOT;
    let Some(available) = memory::available() else { return Ok(()) };
    if needed > available {
        bail!(
            "the repair of {} needs {} of memory, {} are available: run it on a machine with more, or make space",
            path.display(),
            size::show(needed),
            size::show(available)
        );
    }
    Ok(())
}

fn lay_over(overlay: &mut Overlay, plan: &Repair) -> std::io::Result<()> {
    for (from, to) in &plan.copies {
        let block = overlay.store.read(*from, BLOCK)?;
        overlay.write(*to, block.bytes());
    }
    for (offset, page) in plan.superblocks.iter().chain(&plan.pages) {
        overlay.write(*offset, page);
    }
    let (bytes, places) = plan.superblock(true);
    places.iter().for_each(|place| overlay.write(*place, &bytes));
    Ok(())
}

/// Carries the plan out. A failure on the way leaves the pool unchanged, until the last superblocks.
fn write(store: &Store, plan: &Repair, lift: bool) -> std::io::Result<()> {
    if !plan.superblocks.is_empty() {
        for (offset, block) in &plan.superblocks {
            store.write(*offset, block)?;
        }
        store.sync()?;
    }
    for (from, to) in &plan.copies {
        store.write(*to, store.read(*from, BLOCK)?.bytes())?;
    }
    for (offset, page) in &plan.pages {
        store.write(*offset, page)?;
    }
    store.sync()?;
    let (bytes, places) = plan.superblock(lift);
    for place in places {
        store.write(place, &bytes)?;
        store.sync()?;
    }
    Ok(())
}

/// Prints the result. With `--dry-run` writes may be left to do although the result would be sound.
fn finish(arguments: &RepairArgs, mut report: Report) -> bool {
    let is_needed = report.bytes_to_write > 0;
    let sound = report.sound && (report.written || !is_needed);
    report.sound = sound;
    if arguments.json {
        print_json(&report);
        return sound;
    }
    let path = shown(&arguments.pool);
    if !is_needed {
        let advice = if arguments.data { "" } else { " (data was not read: 'onefold check' does, or --data)" };
        print(format_args!("{path}: nothing to repair{advice}\n"));
        return sound;
    }
    let list = |title: &str, lines: &mut dyn Iterator<Item = String>| {
        for (number, line) in lines.enumerate() {
            if number == 0 {
                print(format_args!("{title}:\n"));
            }
            if number == LISTED_MAX {
                return print(format_args!("  and more\n"));
            }
            print(format_args!("  {line}\n"));
        }
    };
    let is_dry = !report.written;
    if let Some(failure) = report.failure {
        print(format_args!("the pool has failed: {failure}\n"));
    }
    list("damaged", &mut report.problems.iter().cloned());
    list(if is_dry { "would be written" } else { "written" }, &mut report.actions.iter().cloned());
    let title = if is_dry { "would be lost" } else { "lost; reading it fails until it is written again" };
    list(title, &mut report.lost.iter().map(Range::text));
    if report.lost.is_empty() {
        print(format_args!("no block {} lost\n", if is_dry { "would be" } else { "is" }));
    }
    let title = "as they were before the damage to the journal, as far as it says which (compare them with a backup)";
    list(title, &mut report.reverted.iter().map(Range::text));
    list("what is left", &mut report.remaining.iter().cloned());
    let clean = report.remaining.is_empty();
    match (is_dry, clean) {
        (true, true) => {
            let lifted = if report.failure.is_some() { ", and the pool could be written again" } else { "" };
            print(format_args!(
                "{path}: the result would pass a full audit{lifted}; nothing was written. To do it: onefold repair {path} --yes\n"
            ))
        }
        (false, true) if report.failure.is_some() => {
            print(format_args!("{path}: repaired, and audited; it can be written again\n"))
        }
        (false, true) => print(format_args!("{path}: repaired, and audited\n")),
        (_, false) => print(format_args!(
            "{path}: {} blocks of data do not match their digests; 'onefold repair {path} --data --yes' gives them up, so that \
             whatever is read is right\n",
            report.remaining.len()
        )),
    }
    sound
}
