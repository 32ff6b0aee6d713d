//! `onefold relocate`: shows the clients' device reads, plans moves that make those reads longer, and runs the plan.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use engine::relocation::assess::{Sharing, assess};
use engine::relocation::forecast::Reads;
use serde_json::json;

use crate::commands::cli::{ProfileCommand, RelocateCommand, RunArgs, Target};
use crate::commands::offline;
use crate::operators::control::{self, Request, Response, RunAction};
use crate::operators::planning::{self, BLOCK, Taken};
use crate::operators::profile_file;
use crate::operators::relocate::{Answer, Ask, OFF};
use crate::operators::selection::Selection;
use crate::print::{outside, print, print_json, shown};
use crate::progress::Teller;
use crate::report::status::{Report, VERSION};
use crate::size;

/// Time from one request for the progress of a run to the next.
const PERIOD: Duration = Duration::from_millis(250);

/// Carries the command out.
pub fn relocate(command: &RelocateCommand) -> anyhow::Result<ExitCode> {
    match command {
        RelocateCommand::Profile(ProfileCommand::Start { target }) => {
            ask(target, Ask::Start)?;
            print(format_args!("reads that go to the device are noted from now on, until the server stops\n"));
        }
        RelocateCommand::Profile(ProfileCommand::Stop { target }) => {
            ask(target, Ask::Stop)?;
            print(format_args!("no reads are noted any more; those that were are forgotten\n"));
        }
        RelocateCommand::Profile(ProfileCommand::Save { target, file }) => {
            let saved = profile_file::take(&target.pool, &asks(target))?;
            saved.write(file)?;
            let (runs, parts) =
                (saved.profiling.profile.ended() - saved.dropped, saved.profiling.objects.parts().len());
            print(format_args!("{}: {runs} runs, {parts} parts of files\n", shown(file)));
        }
        RelocateCommand::Profile(ProfileCommand::Load { target, file }) => {
            let (runs, left_out) = profile_file::load(file, &target.pool, &asks(target))?;
            print(format_args!("{runs} runs were loaded, and reads are noted from now on\n"));
            if left_out > 0 {
                let why = "their volumes are not there any more, or are called otherwise";
                print(format_args!("{left_out} parts of files were left out: {why}\n"));
            }
        }
        RelocateCommand::Profile(ProfileCommand::Show { target, json }) => show(&Taken::from(&asks(target))?, *json),
        RelocateCommand::Plan { target, json } => {
            let taken = Taken::from(&asks(target))?;
            ensure!(taken.on, OFF);
            show_plan(&taken, *json);
        }
        RelocateCommand::Run(arguments) => return run(arguments),
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns a function that asks the server of a pool; without a server the request fails.
fn asks(target: &Target) -> impl Fn(&Request) -> anyhow::Result<Response> {
    move |request| {
        let asked = control::ask_server_of(&target.pool, target.control.as_deref(), request)?;
        asked.with_context(|| {
            format!(
                "no server has {}: the server of a pool keeps its profile, and runs its plans",
                target.pool.display()
            )
        })
    }
}

/// Asks about the profile.
pub fn ask(target: &Target, ask: Ask) -> anyhow::Result<Answer> {
    planning::ask(&asks(target), ask)
}

fn show(taken: &Taken, json: bool) {
    let found = assess(&taken.runs, Sharing::OthersRuns);
    let blocks =
        |object| -> u64 { taken.runs.iter().filter(|run| run.object == object).map(|run| u64::from(run.blocks)).sum() };
    if json {
        let objects: Vec<_> = found
            .iter()
            .map(|one| {
                json!({
                    "name": taken.name(one.object), "runs": one.randomness, "sharing": one.sharing,
                    "blocks_read": blocks(one.object),
                })
            })
            .collect();
        return print_json(&json!({
            "version": VERSION, "profiling": taken.on, "reads": taken.reads, "runs": taken.runs.len(),
            "dropped_runs": taken.dropped, "objects": objects,
        }));
    }
    if !taken.on {
        return print(format_args!("{OFF}\n"));
    }
    print(format_args!("{} reads in {} runs, {} forgotten\n", taken.reads, taken.runs.len(), taken.dropped));
    for one in &found {
        let (name, read) =
            (outside(&taken.name(one.object)).into_owned(), size::show(blocks(one.object).saturating_mul(BLOCK)));
        print(format_args!("  {name:<24}{read} in {} runs; {} of others touch it\n", one.randomness, one.sharing));
    }
}

/// Asks the server for something about a run, or for its figures.
fn tell(target: &Target, request: &Request) -> anyhow::Result<Report> {
    let report = control::call_server_of(&target.pool, target.control.as_deref(), request)?;
    report.with_context(|| format!("no server has {}: a plan is run by the server of a pool", target.pool.display()))
}

/// Makes a plan and runs it, or pauses or stops the run.
fn run(arguments: &RunArgs) -> anyhow::Result<ExitCode> {
    let RunArgs { target, json, .. } = arguments;
    if arguments.pause || arguments.stop {
        let action = if arguments.pause { RunAction::Pause } else { RunAction::Stop };
        show_run(target, tell(target, &Request::Run(action))?, *json)?;
        return Ok(ExitCode::SUCCESS);
    }
    let state = tell(target, &Request::status(Selection::NONE))?.relocate.state;
    if !["running", "paused"].contains(&state.as_str()) {
        send_plan(target, arguments.budget)?;
    }
    let mut report = tell(target, &Request::Run(RunAction::Start))?;
    if !arguments.wait {
        show_run(target, report, *json)?;
        if !json {
            let pool = shown(&target.pool);
            print(format_args!("'onefold status {pool}' shows how it goes on; --wait waits for its end\n"));
        }
        return Ok(ExitCode::SUCCESS);
    }
    let mut teller = Teller::new();
    while report.relocate.state == "running" {
        std::thread::sleep(PERIOD);
        teller.tell(|_| format!("relocate {}", report.relocate.text()));
        let asked =
            control::call_server_of(&target.pool, target.control.as_deref(), &Request::status(Selection::NONE))?;
        report = asked.context("the server has stopped, and the run with it; moved blocks stay where they are")?;
    }
    teller.finish();
    let is_whole = report.relocate.state == "finished" && report.relocate.kept.no_space == 0;
    show_run(target, report, *json)?;
    Ok(if is_whole { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Makes a plan of the profile, and sends it to the server.
fn send_plan(target: &Target, budget: Option<u64>) -> anyhow::Result<()> {
    let taken = Taken::from(&asks(target))?;
    ensure!(taken.on, OFF);
    let (plan, _) = taken.plan(budget);
    if !planning::send(&asks(target), &plan)? {
        bail!(
            "there is nothing to move: no file read so far that shares blocks is scattered{}",
            if plan.too_large > 0 { ", or it is larger than --budget" } else { "" }
        );
    }
    Ok(())
}

fn show_run(target: &Target, report: Report, json: bool) -> anyhow::Result<()> {
    match json {
        true => print_json(&offline::with_volumes(target, report)?),
        false => print(format_args!("relocate {}\n", report.relocate.text())),
    }
    Ok(())
}

fn show_plan(taken: &Taken, json: bool) {
    let (plan, objects) = taken.plan(None);
    let forecast = taken.forecast(&plan);
    let (Reads { before, after }, harm) = (forecast.all(), forecast.harm());
    let of = |object| forecast.objects.iter().find(|(other, _)| *other == object).map_or(Reads::default(), |one| one.1);
    let bytes = plan.blocks().saturating_mul(BLOCK);
    if json {
        let moves: Vec<_> = plan
            .moves
            .iter()
            .map(|one| {
                let reads = of(one.assessment.object);
                json!({
                    "name": taken.name(one.assessment.object), "runs": one.assessment.randomness,
                    "sharing": one.assessment.sharing, "bytes": one.blocks.saturating_mul(BLOCK),
                    "bytes_of_earlier": one.taken.saturating_mul(BLOCK),
                    "reads_before": reads.before, "reads_after": reads.after,
                })
            })
            .collect();
        return print_json(&json!({
            "version": VERSION, "objects": objects, "candidates": plan.candidates,
            "taken": plan.taken, "moves": moves, "bytes": bytes, "reads_before": before, "reads_after": after,
            "reads_lost": harm,
        }));
    }
    print(format_args!("{objects} objects were read, {} of them share blocks\n", plan.candidates));
    for (place, one) in plan.moves.iter().enumerate() {
        let (name, reads) = (outside(&taken.name(one.assessment.object)).into_owned(), of(one.assessment.object));
        let moved = size::show(one.blocks.saturating_mul(BLOCK));
        print(format_args!("  {}. {name:<24}{moved}, device reads {} -> {}\n", place + 1, reads.before, reads.after));
    }
    print(format_args!(
        "would move {}: device reads {before} -> {after}, of which {harm} more for objects that lose\n\
         nothing is moved yet: 'onefold relocate run' does it\n",
        size::show(bytes)
    ));
}
