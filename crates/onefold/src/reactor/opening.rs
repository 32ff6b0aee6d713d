//! Parameters of a reactor, its making, and the opening of the pool.

use std::collections::BTreeMap;
use std::os::fd::AsRawFd;
use std::time::Duration;

use anyhow::Context;
use engine::recording::Header;
use engine::{Geometry, Limits, Nanos, OpenError, Parameters, Recovered};
use tracing::info;

use super::Reactor;
use super::devices::Devices;
use super::event_wait::EventWait;
use super::growth::Growth;
use super::lifecycle::{Lifecycle, ReactorRole};
use super::memory_shares::MemoryShares;
use super::monitor::Monitor;
use super::pending_commands::PendingCommands;
use crate::commands::error_text::explain_open;
use crate::flash::device::Given;
use crate::flash::front::Plan;
use crate::frontend::nbd::listen::Listener;
use crate::frontend::nbd::server::Server;
use crate::frontend::nbd::tls::Tls;
use crate::io::arena::{Arena, BLOCK};
use crate::io::core::Core;
use crate::io::digest::Digester;
use crate::io::record::{self, Recorded, Recording};
use crate::io::ring::Ring;
use crate::memory::capacity::allow_files;
use crate::memory::{self, STAGING_BLOCKS, Source};
use crate::operators::control::Mailbox;
use crate::operators::relocate::Profiles;
use crate::operators::service::Manager;
use crate::size;
use crate::store::backing::Store;
use crate::store::heads;
use crate::store::owner::Owned;

/// Time from the making of the reactor after which an opening is a recovery that the operator is told of.
const LONG_OPENING_NANOS: Nanos = 2_000_000_000;

/// Parameters of opening a pool.
pub struct Opening<'a> {
    /// The store, locked.
    pub store: &'a Store,
    /// Ours, if it is to be written.
    pub owned: Option<Owned>,
    /// The pool's parameters.
    pub parameters: Parameters,
    /// Maximum of memory to use, and its source.
    pub memory: (u64, Source),
    /// Listeners to serve at; empty for a read-only command.
    pub listeners: Vec<Listener>,
    /// TLS for those of them that come over TCP, if they may have it.
    pub tls: Option<Tls>,
    /// Maximum of clients at a time.
    pub connections: u32,
    /// Service manager that is told the progress of the opening and of the end.
    pub manager: Manager,
    /// Queue of messages from other threads.
    pub mailbox: Mailbox,
    /// True if nothing may be changed.
    pub read_only: bool,
    /// True if the server lives only as long as a command of ours; the work of others through it cannot outlast that.
    pub ephemeral: bool,
    /// File that the engine's calls are recorded in, if they are.
    pub record: Option<record::Wanted>,
    /// The flash in front of the store.
    pub flash: Given,
    /// Longest poll for events, before the reactor sleeps.
    pub poll: Nanos,
}

impl Reactor {
    /// Sets everything up and lets the engine begin to open the pool.
    pub fn new(opening: Opening<'_>) -> anyhow::Result<Reactor> {
        let Opening { store, owned, parameters, memory, listeners, tls, connections, .. } = opening;
        let Opening { manager, mailbox, read_only, ephemeral, record, poll, flash: given, .. } = opening;
        let role = ReactorRole { serving: !listeners.is_empty(), ephemeral };
        let wanted = if role.serving { allow_files(connections) } else { 1 };
        let (memory, memory_source) = memory;
        let plan = plan(&given, memory, &parameters.geometry)?;
        let for_flash = plan.map_or(0, |plan| plan.memory);
        let partition = memory::divide(memory, for_flash, &parameters.geometry, role.serving, wanted)?;
        let partition = partition.on(heads::of(store));
        let (limits, connections) = (partition.limits, partition.connections);
        if connections.most < wanted {
            let (most, memory) = (connections.most, size::show(memory));
            info!("at most {most} clients at a time instead of {wanted}: {memory} of memory have no space for more");
        }
        let arena = arena(&limits, wanted as usize, role.serving)
            .with_context(|| format!("cannot get {} of memory", size::show(memory)))?;
        let ring = Ring::new(&arena, store.as_raw_fd(), role.serving)?;
        let program = env!("CARGO_PKG_VERSION").to_owned();
        let owner = owned.as_ref().map(Owned::nonce);
        let header = Header { program, parameters, limits, now: 0, reads_only: read_only, owner };
        let recording = record.map(|wanted| Recording::begin(&wanted, &header)).transpose()?;
        let engine = Recorded::new(header.open(), recording);
        let mut core = Core::new(engine, arena, ring, Digester::new(&parameters));
        core.ring.wake_up(mailbox.counter(), &core.arena);
        let devices = Devices::new(store, given, plan, &mut core)?;
        Ok(Reactor {
            core,
            devices,
            server: Server::new(listeners, &limits, parameters.geometry.piece_blocks, connections, wanted, tls),
            mailbox,
            event_wait: EventWait::new(poll),
            commands: PendingCommands::default(),
            growth: Growth::default(),
            memory: MemoryShares::new(partition, memory_source, for_flash, wanted),
            profiles: Profiles::default(),
            monitor: Monitor::default(),
            lifecycle: Lifecycle::new(role, manager, owned),
            snapshot_failures: BTreeMap::new(),
        })
    }

    /// Drives the engine until the pool is open, or cannot be opened. Returns `None` if a stop was requested meanwhile: that is as safe as a crash, and the
    /// next start recovers from the beginning.
    pub fn open(&mut self) -> anyhow::Result<Option<Recovered>> {
        self.lifecycle.begin_to_write();
        let mut said = false;
        loop {
            if let Some(opened) = self.lifecycle.opened() {
                return opened.map(Some).map_err(|error| self.explain_opening(error));
            }
            if self.lifecycle.is_stopping() {
                return Ok(None);
            }
            self.turn(Some(Duration::from_secs(1)))?;
            if self.lifecycle.opened().is_none() && self.core.clock() > LONG_OPENING_NANOS {
                self.lifecycle.extend();
                if !std::mem::replace(&mut said, true) {
                    self.lifecycle.say("recovering a pool that was not closed cleanly");
                }
            }
        }
    }

    /// Explains why a pool cannot be opened; the error is a [`memory::TooLittle`] if there is too little memory.
    fn explain_opening(&self, error: OpenError) -> anyhow::Error {
        match error {
            OpenError::TakenOver => anyhow::anyhow!(self.lifecycle.who_took_over()),
            OpenError::TooLittleMemory { entries } => {
                anyhow::Error::new(self.memory.too_little(entries, self.core.engine.geometry()))
            }
            error => anyhow::anyhow!(explain_open(error)),
        }
    }

    /// Ends the reactor and returns the parts that outlive it: the mailbox and the ownership of the pool.
    pub fn give_back(self) -> (Mailbox, Option<Owned>) {
        let Reactor { core, mailbox, lifecycle, .. } = self;
        // Its ring may take the word that there is something in it, until it has ended.
        drop(core);
        mailbox.raise();
        (mailbox, lifecycle.into_owned())
    }
}

/// Plans the flash that the server was started with, in a server with `memory` bytes of memory; `None` if there is none or it is away.
fn plan(given: &Given, memory: u64, geometry: &Geometry) -> anyhow::Result<Option<Plan>> {
    match given {
        Given::Here(cache) => Plan::new(&cache.label, memory, geometry).map(Some),
        Given::Nothing | Given::Away { .. } => Ok(None),
    }
}

/// Maps the arena. A server gets addresses for as many buffers as the machine has space for.
fn arena(limits: &Limits, connections: usize, serving: bool) -> std::io::Result<Arena> {
    let (buffers, least) = (limits.buffers as usize, limits.most_buffers(BLOCK as u64) as usize);
    let most = usize::try_from(memory::installed()).unwrap_or(usize::MAX) / BLOCK;
    if serving && most < usize::MAX / BLOCK && most > least {
        // It fails where addresses count as memory: then there can be no more than now.
        if let Ok(arena) = Arena::new((buffers, most), STAGING_BLOCKS, connections) {
            return Ok(arena);
        }
    }
    Arena::new((buffers, least), STAGING_BLOCKS, connections)
}
