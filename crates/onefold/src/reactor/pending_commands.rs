//! Commands that the engine has been given and has not answered yet, and the parties that wait for their results.
//!
//! Owns the tokens of commands. Each command is answered once; a client whose command waits too long for space on the host is answered before, and its command
//! continues.

use std::collections::HashMap;
use std::sync::mpsc::Sender;

use engine::{Command, ControlError, Event, Nanos};
use tracing::info;

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
    leaving: Option<Leaving>,
    /// Text to log when the command succeeds.
    done: Option<String>,
}

impl ClientCommand {
    /// Describes the command of a request that came at `since`.
    pub(super) fn new(
        request: &Request,
        leaving: Option<Leaving>,
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

    /// Returns the clients of a volume that leave when the command succeeds.
    pub(super) fn leaving(&self) -> Option<Leaving> {
        self.leaving
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

/// Commands in progress.
#[derive(Default)]
pub(super) struct PendingCommands {
    waiters: HashMap<u64, Waiter>,
    next_token: u64,
    /// The result of the command that the reactor waits for itself.
    result: Option<Result<(), ControlError>>,
    /// Time of the next look at commands that wait for space, while there are any.
    space_due: Option<Nanos>,
}

impl PendingCommands {
    /// Hands a command to the engine, and returns its token.
    pub(super) fn submit(&mut self, command: Command<'_>, waiter: Waiter, core: &mut Core) -> u64 {
        let token = self.next_token;
        self.next_token += 1;
        core.tick();
        if matches!(waiter, Waiter::Client(_)) {
            self.space_due.get_or_insert(core.now + SPACE_PERIOD);
        }
        self.waiters.insert(token, waiter);
        core.engine.handle(core.now, Event::Control { token, command });
        token
    }

    /// Hands a command of the reactor itself to the engine; its result is taken with [`PendingCommands::take_result`].
    pub(super) fn submit_ours(&mut self, command: Command<'_>, core: &mut Core) {
        self.result = None;
        self.submit(command, Waiter::Ourselves, core);
    }

    /// Takes the result of the reactor's own command, once the engine has answered it.
    pub(super) fn take_result(&mut self) -> Option<Result<(), ControlError>> {
        self.result.take()
    }

    /// Takes the engine's answer to a command, and returns the party that waited for it.
    pub(super) fn finish(&mut self, token: u64, result: Result<(), ControlError>) -> Option<Waiter> {
        let waiter = self.waiters.remove(&token);
        if let Some(Waiter::Ourselves) = waiter {
            self.result = Some(result);
        }
        waiter
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
        for waiter in self.waiters.values_mut() {
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
