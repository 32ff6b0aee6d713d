//! Commands on a pool: through the server's control socket where one runs, else by opening the pool for a moment.

use std::path::Path;

use anyhow::Context;
use engine::Command;

use crate::backing::{Access, Store};
use crate::control::{self, Request};
use crate::probe;
use crate::reactor::{Opening, Reactor, explain_control};
use crate::service::Manager;
use crate::status::{self, Report};

/// Memory for a command that opens the pool itself, unless the pool needs more.
const MEMORY: u64 = 128 << 20;

/// Carries out a request; the result is the pool's figures after it.
pub fn request(path: &Path, request: &Request) -> anyhow::Result<Report> {
    if let Some(report) = control::call_server_of(path, request)? {
        return Ok(report);
    }
    let access = Access::Write;
    let store = Store::open(path, access)?;
    let superblock = probe::require_pool(&store)?;
    // Nobody sends to this mailbox: the sending end only keeps it open.
    let (mailbox, _sending) = control::mailbox()?;
    let opening = Opening {
        store: &store,
        parameters: superblock.parameters,
        memory: MEMORY,
        listeners: Vec::new(),
        connections: 1,
        manager: Manager::none(),
        mailbox,
    };
    let mut reactor = Reactor::new(opening)?;
    reactor.open().with_context(|| format!("{} cannot be opened", path.display()))?;
    let result = match request {
        Request::Status { settle: true } => reactor.command(Command::Settle)?,
        Request::Status { settle: false } | Request::Stop => Ok(()),
        Request::Grow { capacity_bytes: capacity } => match reactor.prepare_growth(*capacity) {
            Ok(()) => reactor.command(Command::Grow { capacity: *capacity })?,
            Err(error) => {
                reactor.close(None)?;
                return Err(error);
            }
        },
        Request::CreateVolume { name, size_bytes, policy } => {
            let policy = status::policy_from(policy).context("the policy is native or full")?;
            reactor.command(Command::CreateVolume { name, size: *size_bytes, policy })?
        }
    };
    let report = reactor.report();
    reactor.close(None)?;
    result.map_err(|error| anyhow::anyhow!("{}", explain_control(error)))?;
    Ok(report)
}
