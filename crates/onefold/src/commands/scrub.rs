//! `onefold scrub`: verifies the pool through the server where one runs, else by opening the pool for as long as it takes.

use std::process::ExitCode;
use std::time::Duration;

use crate::commands::cli::{ScrubArgs, Target};
use crate::commands::error_text::explain_control;
use crate::commands::offline;
use crate::commands::serve::catch_signals;
use crate::operators::command::scrub_command;
use crate::operators::control::{self, Request, ScrubAction};
use crate::operators::selection::Selection;
use crate::print::{complain, print, print_json};
use crate::progress::Progress;
use crate::report::status::Report;

/// Time from one request for the server's progress to the next.
const PERIOD: Duration = Duration::from_millis(250);
/// A block, as the figures count them.
const BLOCK_BYTES: u64 = 4096;

/// Progress display for a waiting user.
struct Follower {
    json: bool,
    progress: Option<Progress>,
    done: u64,
    /// The last damage that was told.
    damage: u64,
}

impl Follower {
    /// Creates a display that begins now: earlier damage is not shown.
    fn new(json: bool, report: &Report) -> Follower {
        let damage = report.damages.last().map_or(0, |damage| damage.number);
        Follower { json, progress: None, done: 0, damage }
    }

    /// Shows new damage and progress; returns true at the end.
    fn see(&mut self, report: &Report) -> bool {
        let scrub = &report.scrub;
        if self.progress.is_none() {
            self.done = scrub.blocks_done;
            let left = scrub.blocks_total.saturating_sub(scrub.blocks_done);
            self.progress = Some(Progress::new("scrubbing", left.saturating_mul(BLOCK_BYTES)));
        }
        for damage in &report.damages {
            if damage.number <= self.damage {
                continue;
            }
            let missed = damage.number - self.damage - 1;
            self.damage = damage.number;
            if let Some(progress) = &mut self.progress {
                progress.finish();
            }
            if !self.json {
                if missed > 0 {
                    print(format_args!("{missed} more damages\n"));
                }
                print(format_args!("{}\n", damage.text()));
            }
        }
        if let Some(progress) = &mut self.progress {
            progress.add(scrub.blocks_done.saturating_sub(self.done).saturating_mul(BLOCK_BYTES));
            self.done = scrub.blocks_done;
        }
        let ended = scrub.state != "running";
        if ended {
            self.progress = None;
        }
        ended
    }

    /// Shows the final state of the scrub; success if it is finished and no damage is left.
    fn end(self, target: &Target, report: Report) -> anyhow::Result<ExitCode> {
        drop(self.progress);
        let scrub = &report.scrub;
        let is_sound = scrub.state == "finished" && scrub.damages_left == 0;
        if self.json {
            print_json(&offline::with_volumes(target, report)?);
        } else {
            print(format_args!("scrub {}\n", scrub.text()));
        }
        Ok(if is_sound { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

/// Scrubs a pool, or pauses or stops the scrub.
pub fn scrub(arguments: &ScrubArgs) -> anyhow::Result<ExitCode> {
    let action = match (arguments.pause, arguments.stop) {
        (true, _) => ScrubAction::Pause,
        (_, true) => ScrubAction::Stop,
        _ => ScrubAction::Start,
    };
    let (target, request) = (&arguments.target, Request::Scrub { action });
    let (path, control) = (&target.pool, target.control.as_deref());
    let server = control::call_server_of(path, control, &request)?;
    if action != ScrubAction::Start || (server.is_some() && !arguments.wait) {
        let report = server.map_or_else(|| offline::request(target, &request), Ok)?;
        if arguments.json {
            print_json(&offline::with_volumes(target, report)?);
        } else {
            print(format_args!("scrub {}\n", report.scrub.text()));
            if action == ScrubAction::Start {
                print(format_args!(
                    "'onefold status {}' shows how it goes on; --wait waits for its end\n",
                    path.display()
                ));
            }
        }
        return Ok(ExitCode::SUCCESS);
    }
    let Some(mut report) = server else { return alone(arguments) };
    let mut follower = Follower::new(arguments.json, &report);
    while !follower.see(&report) {
        std::thread::sleep(PERIOD);
        let asked = control::call_server_of(path, control, &Request::status(Selection::NONE))?;
        let gone = || anyhow::anyhow!("the server has stopped; the next one goes on with the scrub");
        report = asked.ok_or_else(gone)?;
    }
    follower.end(&arguments.target, report)
}

/// Scrubs a pool that no server has.
fn alone(arguments: &ScrubArgs) -> anyhow::Result<ExitCode> {
    let (mailbox, sending) = control::mailbox()?;
    catch_signals(sending)?;
    let mut reactor = offline::open(&arguments.target.pool, mailbox)?;
    let mut follower = Follower::new(arguments.json, &reactor.report(&[]));
    let refused = |error| anyhow::anyhow!(explain_control(error));
    reactor.command(scrub_command(ScrubAction::Start))?.map_err(refused)?;
    while !follower.see(&reactor.report(&[])) {
        if !reactor.work(PERIOD)? {
            reactor.command(scrub_command(ScrubAction::Pause))?.map_err(refused)?;
            complain(format_args!("the scrub rests: the next 'onefold scrub' goes on where it was"));
            break;
        }
    }
    let report = reactor.whole_report();
    let result = reactor.close(None);
    let code = follower.end(&arguments.target, report);
    result.and(code)
}
