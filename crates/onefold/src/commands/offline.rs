//! Execution of commands on a pool: through the server's control socket where one runs, else by opening the pool for a moment. Read-only commands write nothing
//! (`look`).

use std::path::Path;

use anyhow::Context;

use crate::commands::cli::Target;
use crate::commands::inspect;
use crate::flash::device::Given;
use crate::memory::{self, Source};
use crate::operators::command;
use crate::operators::control::{self, Mailbox, Request};
use crate::operators::selection::{Selection, VOLUMES_AT_ONCE};
use crate::operators::service::Manager;
use crate::reactor::{Opening, Reactor};
use crate::report::status::{Report, VolumeReport};
use crate::store::backing::{Access, InUse, Store};
use crate::store::owner::{self, Purpose};

/// Memory for a command that opens the pool itself, unless the pool needs more.
const MEMORY: u64 = 128 << 20;
/// Number of searches for a server when another process has the pool.
pub const ATTEMPTS: usize = 2;

/// Opens a pool that no server has, for a command; with more memory than usual where its last server left a long journal to replay.
pub fn open(path: &Path, mut mailbox: Mailbox) -> anyhow::Result<Reactor> {
    let store = Store::open(path, Access::Write)?;
    let (superblock, mut owned) = owner::claim(&store, Purpose::Use)?;
    let mut memory = memory::given().unwrap_or_else(|| memory::usual(MEMORY));
    loop {
        let opening = Opening {
            store: &store,
            owned,
            parameters: superblock.parameters,
            memory: (memory, Source::Default),
            listeners: Vec::new(),
            tls: None,
            connections: 1,
            manager: Manager::none(),
            mailbox,
            read_only: false,
            ephemeral: false,
            record: None,
            flash: Given::Nothing,
            poll: 0,
        };
        let mut reactor = Reactor::new(opening)?;
        let Err(error) = reactor.open() else { return Ok(reactor) };
        let more = error.downcast().and_then(|too_little| memory::more(&too_little));
        memory = more.with_context(|| format!("{} cannot be opened", path.display()))?;
        (mailbox, owned) = reactor.give_back();
    }
}

/// Carries out a request, through the server or without one; returns the pool's figures after it, with the volumes that the request names. Without a server
/// they may have all volumes.
pub fn request(target: &Target, request: &Request) -> anyhow::Result<Report> {
    let path = &target.pool;
    let mut attempts = 0..ATTEMPTS;
    loop {
        if let Some(report) = control::call_server_of(path, target.control.as_deref(), request)? {
            return Ok(report);
        }
        let result = match request {
            Request::Status { settle: false, volumes } => inspect::report(path, volumes),
            request => perform(path, request),
        };
        match result {
            // A server may have come since none was found.
            Err(error) if error.is::<InUse>() && attempts.next().is_some() => {}
            result => return result,
        }
    }
}

/// Returns the figures of volumes and snapshots by their names, as far as they exist.
pub fn volumes_named(target: &Target, names: &[String]) -> anyhow::Result<Vec<VolumeReport>> {
    let mut found = Vec::new();
    for names in names.chunks(VOLUMES_AT_ONCE) {
        let report = request(target, &Request::status(Selection::Named(names.to_vec())))?;
        report.require_opened()?;
        found.extend(report.volumes.into_iter().filter(|volume| names.contains(&volume.name)));
    }
    Ok(found)
}

/// Deletes by requests with a part of the names each: a line on the control socket is bounded. An error says how many are gone.
pub fn delete(target: &Target, names: &[String], ask: impl Fn(Vec<String>) -> Request) -> anyhow::Result<()> {
    for (part, done) in names.chunks(VOLUMES_AT_ONCE).zip((0..).step_by(VOLUMES_AT_ONCE)) {
        let deleted = request(target, &ask(part.to_vec()));
        deleted.map_err(|error| match done {
            0 => error,
            done => error.context(format!("{done} of {} are deleted, the others are not", names.len())),
        })?;
    }
    Ok(())
}

/// Adds all volumes to the figures after a command that prints the whole report. A server answers a command with the volumes that it names.
pub fn with_volumes(target: &Target, mut report: Report) -> anyhow::Result<Report> {
    if report.is_served() {
        report.volumes = request(target, &Request::status(Selection::ALL))?.volumes;
    }
    Ok(report)
}

/// Returns the pool's figures, with all volumes. Exact figures and recovery write to a pool that no server has, so they must be requested.
pub fn status(target: &Target, settle: bool, recover: bool) -> anyhow::Result<Report> {
    let (path, wanted) = (&target.pool, Request::Status { settle, volumes: Selection::ALL });
    if !settle && !recover {
        return request(target, &wanted);
    }
    if let Some(report) = control::call_server_of(path, target.control.as_deref(), &wanted)? {
        return Ok(report);
    }
    if !recover {
        inspect::require_recovered(path)?;
    } else if !settle {
        let report = inspect::report(path, &Selection::ALL)?;
        if !report.needs_recovery {
            return Ok(report);
        }
    }
    perform(path, &wanted)
}

/// Carries out a request on a pool that no server has.
fn perform(path: &Path, request: &Request) -> anyhow::Result<Report> {
    // This mailbox has no sender: the sending end only keeps it open.
    let (mailbox, _sending) = control::mailbox()?;
    let mut reactor = open(path, mailbox)?;
    // A pool that is not served has no clients.
    let result = match command::wanted(request, reactor.engine(), |_| 0) {
        Ok(wanted) => reactor.carry_out(&wanted)?,
        Err(refusal) => Err(refusal),
    };
    let report = match request {
        Request::CreateSnapshots { .. } | Request::HoldSnapshots { .. } | Request::RenameVolume { .. } => {
            reactor.report(&request.volumes().volumes(reactor.engine()))
        }
        _ => reactor.whole_report(),
    };
    reactor.close(None)?;
    result.map_err(anyhow::Error::msg)?;
    Ok(report)
}
