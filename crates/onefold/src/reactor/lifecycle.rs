//! Life of a reactor: its stage, its role, the ownership of the pool, and the service manager that is told of all of these.
//!
//! States, in order: opening; open (or it cannot be opened); draining; closed, which ends the ownership. A stop may be requested in each, and a second request
//! hurries the end.

use engine::{Failure, OpenError, Recovered};
use tracing::info;

use crate::clock::since_1970;
use crate::operators::control::{Request, Response, STOPPING};
use crate::operators::service::Manager;
use crate::report::status::{BEING_OPENED, failure_text};
use crate::store::owner::Owned;

/// Role of a reactor for its pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ReactorRole {
    /// True if it serves clients: it is more than the means of one command.
    pub serving: bool,
    /// True if the server lives only as long as a command of ours.
    pub ephemeral: bool,
}

/// Stage of the reactor's life.
pub(super) struct Lifecycle {
    role: ReactorRole,
    /// Time at which the reactor was made, in seconds since 1970.
    made: u64,
    opened: Option<Result<Recovered, OpenError>>,
    /// Clients are not served any more; commands that change something wait for the end.
    draining: bool,
    /// Number of stop requests.
    stops: u32,
    manager: Manager,
    owned: Option<Owned>,
}

impl Lifecycle {
    /// Begins a life: the pool is being opened from here on.
    pub(super) fn new(role: ReactorRole, manager: Manager, owned: Option<Owned>) -> Lifecycle {
        let made = since_1970().as_secs();
        Lifecycle { role, made, opened: None, draining: false, stops: 0, manager, owned }
    }

    /// Returns true if clients are served, or were before it began to drain.
    pub(super) fn is_serving(&self) -> bool {
        self.role.serving
    }

    /// Returns true if the server lives only as long as a command of ours.
    pub(super) fn is_ephemeral(&self) -> bool {
        self.role.ephemeral
    }

    /// Returns the time at which the reactor was made, in seconds since 1970.
    pub(super) fn made(&self) -> u64 {
        self.made
    }

    /// Claims the right to write for the opening.
    pub(super) fn begin_to_write(&mut self) {
        if let Some(owned) = &mut self.owned {
            owned.begins_to_write();
        }
    }

    /// Takes the result of the opening.
    pub(super) fn set_opened(&mut self, opened: Result<Recovered, OpenError>) {
        self.opened = Some(opened);
    }

    /// Returns the result of the opening; `None` before it.
    pub(super) fn opened(&self) -> Option<Result<Recovered, OpenError>> {
        self.opened
    }

    /// Returns the result of an opening that succeeded.
    pub(super) fn recovered(&self) -> Option<Recovered> {
        self.opened.and_then(Result::ok)
    }

    /// Refuses a request for a temporary reason: the pool is being opened, or the server stops. Returns `None` if the request may be judged.
    pub(super) fn refuse(&self, request: &Request) -> Option<Response> {
        if matches!(request, Request::Status { settle: false, .. } | Request::Stop) {
            return None;
        }
        if self.recovered().is_none() {
            let answer = if self.role.ephemeral { Response::Later } else { Response::Failed };
            return Some(answer(BEING_OPENED.into()));
        }
        self.draining.then(|| Response::Later(STOPPING.into()))
    }

    /// Counts a stop request.
    pub(super) fn request_stop(&mut self) {
        self.stops += 1;
    }

    /// Returns true once a stop was requested.
    pub(super) fn is_stopping(&self) -> bool {
        self.stops > 0
    }

    /// Returns true once a second stop was requested: the end must come soon.
    pub(super) fn is_hurried(&self) -> bool {
        self.stops > 1
    }

    /// Begins to drain.
    pub(super) fn drain(&mut self) {
        self.draining = true;
        self.manager.stopping();
        self.manager.extend();
    }

    /// Tells the service manager that clients can connect.
    pub(super) fn ready(&self, status: &str) {
        self.manager.ready(status);
    }

    /// Asks the service manager for more time.
    pub(super) fn extend(&mut self) {
        self.manager.extend();
    }

    /// Tells the service manager.
    pub(super) fn status(&self, text: &str) {
        self.manager.status(text);
    }

    /// Tells the log and the service manager.
    pub(super) fn say(&self, text: &str) {
        info!("{text}");
        self.manager.status(text);
    }

    /// Describes the process that has taken the pool over, for a message.
    pub(super) fn who_took_over(&self) -> String {
        self.owned.as_ref().map_or_else(|| failure_text(Failure::TakenOver).into(), Owned::who_took_over)
    }

    /// Gives up the ownership of the pool, which is closed: nothing is in flight.
    pub(super) fn release(&mut self) {
        if let Some(owned) = &mut self.owned {
            owned.release();
        }
    }

    /// Returns the ownership, which outlives the reactor.
    pub(super) fn into_owned(self) -> Option<Owned> {
        self.owned
    }
}
