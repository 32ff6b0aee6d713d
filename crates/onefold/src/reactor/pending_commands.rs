//! Commands that the engine has been given and has not answered yet, and the parties that wait for their results.
//!
//! Owns the tokens of commands. Commands of one request form a group: successive tokens, one waiter, one result. A client whose
//! command waits too long for space on the host is answered before, and its command continues.
//!
//! Invariant: each waiter is answered once.

use std::collections::BTreeMap;
use std::sync::mpsc::Sender;

use engine::{Command, ControlError, Event, Nanos};
use tracing::info;

use crate::commands::error_text::explain_control;
use crate::io::core::Core;
use crate::operators::command::{self, Leaving};
use crate::operators::control::{Request, Response};
use crate::operators::selection::Selection;

/// Longest wait of a command for space on the host before the client gets an answer without, and the interval of the checks for it.
pub(super) const SPACE_NANOS: Nanos = 5_000_000_000;
pub(super) const SPACE_PERIOD: Nanos = 500_000_000;

/// Party that waits for the result of a command.
pub(super) enum Waiter {
    /// A client of the control socket.
    Client(ClientCommand),
    /// The reactor itself: the result is kept for [`PendingCommands::take_result`].
    Ourselves,
    /// The pool itself, whose maps were short.
    Growth,
}

/// Command of a client of the control socket.
pub(super) struct ClientCommand {
    /// Channel of the answer; `None` once the client has been told that the command waits for space.
    reply: Option<Sender<Response>>,
    request: Box<Request>,
    since: Nanos,
    /// The clients that leave when the command is done.
    leaving: Vec<Leaving>,
    /// Text to log when the command succeeds.
    done: Option<String>,
}

impl ClientCommand {
    /// Describes the command of a request that came at `since`.
    pub(super) fn new(
        request: &Request,
        leaving: Vec<Leaving>,
        reply: Sender<Response>,
        since: Nanos,
    ) -> ClientCommand {
        let done = command::done(request);
        ClientCommand { reply: Some(reply), request: Box::new(request.clone()), since, leaving, done }
    }

    /// Returns the request of the command.
    pub(super) fn request(&self) -> &Request {
        &self.request
    }

    /// Returns the clients of volumes that leave when the command succeeds.
    pub(super) fn leaving(&self) -> &[Leaving] {
        &self.leaving
    }

    /// Logs a success, and answers the client unless it has been answered.
    pub(super) fn answer(self, response: Response) {
        if let (Response::Done(_), Some(done)) = (&response, self.done) {
            info!("{done}");
        }
        if let Some(reply) = self.reply {
            // The client may be gone.
            let _ = reply.send(response);
        }
    }
}

/// Result of a group of commands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CommandOutcome {
    /// Success of all, or the first error.
    pub result: Result<(), ControlError>,
    /// Number of commands that succeeded.
    pub succeeded: usize,
    /// Number of commands.
    pub count: usize,
}

impl CommandOutcome {
    /// Describes why a command failed and what to do; `None` if all succeeded.
    pub fn error_text(&self) -> Option<String> {
        let error = explain_control(self.result.err()?);
        Some(match (self.succeeded, self.count) {
            (0, _) => error.into(),
            (succeeded, count) => format!("{succeeded} of {count} were done, the others were not: {error}"),
        })
    }
}

/// Group of commands with one waiter.
struct Group {
    waiter: Waiter,
    unanswered: usize,
    outcome: CommandOutcome,
}

/// Commands in progress.
#[derive(Default)]
pub(super) struct PendingCommands {
    /// Groups by the tokens of their first commands.
    groups: BTreeMap<u64, Group>,
    next_token: u64,
    /// The result of the commands that the reactor waits for itself.
    result: Option<CommandOutcome>,
    /// Time of the next look at commands that wait for space, while there are any.
    space_due: Option<Nanos>,
}

impl PendingCommands {
    /// Hands commands to the engine, at least one, and returns the token of the first.
    pub(super) fn submit(&mut self, commands: &[Command<'_>], waiter: Waiter, core: &mut Core) -> u64 {
        let (first, count) = (self.next_token, commands.len());
        self.next_token += count as u64;
        core.tick();
        if matches!(waiter, Waiter::Client(_)) {
            self.space_due.get_or_insert(core.now + SPACE_PERIOD);
        }
        let outcome = CommandOutcome { result: Ok(()), succeeded: 0, count };
        self.groups.insert(first, Group { waiter, unanswered: count, outcome });
        for (token, &command) in (first..).zip(commands) {
            core.engine.handle(core.now, Event::Control { token, command });
        }
        first
    }

    /// Hands commands of the reactor itself to the engine; their result is taken with [`PendingCommands::take_result`].
    pub(super) fn submit_ours(&mut self, commands: &[Command<'_>], core: &mut Core) {
        self.result = None;
        self.submit(commands, Waiter::Ourselves, core);
    }

    /// Takes the result of the reactor's own commands, once the engine has answered all of them.
    pub(super) fn take_result(&mut self) -> Option<CommandOutcome> {
        self.result.take()
    }

    /// Takes the engine's answer to a command. Returns the party that waited for its group, and the result of that, once all its commands are answered.
    pub(super) fn finish(&mut self, token: u64, result: Result<(), ControlError>) -> Option<(Waiter, CommandOutcome)> {
        let (&first, group) = self.groups.range_mut(..=token).next_back()?;
        match result {
            Ok(()) => group.outcome.succeeded += 1,
            Err(error) => group.outcome.result = group.outcome.result.and(Err(error)),
        }
        group.unanswered -= 1;
        if group.unanswered > 0 {
            return None;
        }
        let Group { waiter, outcome, .. } = self.groups.remove(&first)?;
        if let Waiter::Ourselves = waiter {
            self.result = Some(outcome);
        }
        Some((waiter, outcome))
    }

    /// Returns the time at which [`PendingCommands::overdue`] must be called; `None` if no command of a client is pending.
    pub(super) fn due(&self) -> Option<Nanos> {
        self.space_due
    }

    /// Takes the clients whose commands have waited for space on the host for long, each with true if its command is in force in memory, and the volumes of
    /// its answer. Returns none before the time for that has come.
    pub(super) fn overdue(&mut self, core: &Core) -> Vec<(Sender<Response>, bool, Selection)> {
        let now = core.now;
        let mut overdue = Vec::new();
        if self.space_due.is_none_or(|due| due > now) {
            return overdue;
        }
        self.space_due = None;
        for Group { waiter, .. } in self.groups.values_mut() {
            let Waiter::Client(ClientCommand { reply: reply @ Some(_), request, since, .. }) = waiter else { continue };
            if now - *since >= SPACE_NANOS && core.engine.holds_back_commands() {
                let is_in_force = command::is_in_force(request, &core.engine);
                overdue.extend(reply.take().map(|reply| (reply, is_in_force, request.volumes())));
            } else {
                self.space_due = Some(now + SPACE_PERIOD);
            }
        }
        overdue
    }
}
