//! `onefold dedup`: offline deduplication through the server where one runs, else by opening the pool for as long as it takes.

use std::process::ExitCode;
use std::time::Duration;

use crate::commands::cli::DedupArgs;
use crate::commands::error_text::explain_control;
use crate::commands::offline;
use crate::commands::serve::catch_signals;
use crate::operators::command::dedup_command;
use crate::operators::control::{self, DedupAction, Request};
use crate::operators::selection::Selection;
use crate::print::{complain, print, print_json, shown};
use crate::progress::Teller;
use crate::report::status::Report;

/// Time from one request for the server's progress to the next.
const PERIOD: Duration = Duration::from_millis(250);

/// Shows the progress to a waiting user. Returns true at the end.
fn see(teller: &mut Teller, report: &Report) -> bool {
    let is_running = report.dedup.state == "running";
    if is_running {
        teller.tell(|_| format!("dedup {}", report.dedup.text()));
    } else {
        teller.finish();
    }
    !is_running
}

fn end(arguments: &DedupArgs, report: Report) -> anyhow::Result<ExitCode> {
    let is_finished = report.dedup.state == "finished";
    show(arguments, report)?;
    Ok(if is_finished { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn show(arguments: &DedupArgs, report: Report) -> anyhow::Result<()> {
    if arguments.json {
        print_json(&offline::with_volumes(&arguments.target, report)?);
    } else {
        print(format_args!("dedup {}\n", report.dedup.text()));
    }
    Ok(())
}

/// Finds all duplicates of a pool, or pauses or stops the pass.
pub fn dedup(arguments: &DedupArgs) -> anyhow::Result<ExitCode> {
    let action = match (arguments.pause, arguments.stop) {
        (true, _) => DedupAction::Pause,
        (_, true) => DedupAction::Stop,
        _ => DedupAction::Start,
    };
    let (target, request) = (&arguments.target, Request::Dedup { action });
    let (path, control) = (&target.pool, target.control.as_deref());
    let server = control::call_server_of(path, control, &request)?;
    if action != DedupAction::Start || (server.is_some() && !arguments.wait) {
        let report = server.map_or_else(|| offline::request(target, &request), Ok)?;
        show(arguments, report)?;
        if action == DedupAction::Start && !arguments.json {
            let pool = shown(path);
            print(format_args!("'onefold status {pool}' shows how it goes on; --wait waits for its end\n"));
        }
        return Ok(ExitCode::SUCCESS);
    }
    let Some(mut report) = server else { return alone(arguments) };
    let mut teller = Teller::new();
    while !see(&mut teller, &report) {
        std::thread::sleep(PERIOD);
        let asked = control::call_server_of(path, control, &Request::status(Selection::NONE))?;
        report = asked.ok_or_else(|| anyhow::anyhow!("the server has stopped; the next one goes on with the pass"))?;
    }
    end(arguments, report)
}

/// Goes through a pool that no server has.
fn alone(arguments: &DedupArgs) -> anyhow::Result<ExitCode> {
    let (mailbox, sending) = control::mailbox()?;
    catch_signals(sending)?;
    let mut reactor = offline::open(&arguments.target.pool, mailbox)?;
    let refused = |error| anyhow::anyhow!(explain_control(error));
    reactor.command(dedup_command(DedupAction::Start))?.map_err(refused)?;
    let mut teller = Teller::new();
    while !see(&mut teller, &reactor.report(&[])) {
        if !reactor.work(PERIOD)? {
            reactor.command(dedup_command(DedupAction::Pause))?.map_err(refused)?;
            teller.finish();
            complain(format_args!("the pass rests: the next 'onefold dedup' goes on where it was"));
            break;
        }
    }
    let report = reactor.whole_report();
    let result = reactor.close(None);
    let code = end(arguments, report);
    result.and(code)
}
