//! The reactor: one thread that waits in one place, and completes all pending work before it waits again.
//!
//! ```text
//!   clients            other threads (control socket, page, signals)
//!      |                      |
//!   server                 mailbox
//!      | requests             | messages ---> requests.rs ---> commands
//!      v                      v                                   |
//!   core: the engine <---------- events --------------------------+
//!      |
//!      | effects, performed at once
//!      +--> devices       I/O of the store and the flash
//!      +--> server        replies to clients
//!      +--> commands      results of commands, for those who wait for them
//!      +--> lifecycle     the pool is open
//! ```
//!
//! A turn, in order: submit and wait; completions of disk and sockets, and clients' bytes beyond one receive; the timer; messages of other threads; a part of
//! the received writes. Then, until nothing more happens: the engine's effects, reports of I/O without the device, connections that wait for the engine, sends.
//! While there are more such writes, a turn does not wait, and some turns' replies leave together.
//!
//! Each part owns its state, and gets the others that it needs for the time of a call; none knows the reactor:
//!
//! | part | owns |
//! |---|---|
//! | [`Core`] | the engine, the arena, the ring, the time of the turn |
//! | [`Devices`] | the store's file, I/O in flight, the flash and its state |
//! | [`Server`] (`frontend/nbd`) | listeners, connections, requests of clients, replies that are held back |
//! | [`Mailbox`] | messages of other threads |
//! | [`EventWait`] | the record of earlier waits, which decides between polling and sleeping |
//! | [`PendingCommands`] | commands in progress and their waiters, also those that wait for space |
//! | [`Growth`] | the growth in progress, the pause after a failed one, the offer to the engine |
//! | [`MemoryShares`] | the division of the memory |
//! | [`Profiles`] | the profile of device reads that is being loaded |
//! | [`Monitor`] | the watch for the operator's log, and the time of its next look |
//! | [`Lifecycle`] | the stage from opening to the end, stop requests, the ownership of the pool, the service manager |
//!
//! The reactor only calls them in order: here the turn, in `opening` and `stop` the beginning and the end, in `requests` whatever operators ask for.

mod devices;
mod event_wait;
mod growth;
mod lifecycle;
mod memory_shares;
mod monitor;
mod opening;
mod pending_commands;
mod requests;
mod stop;

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use engine::{Effect, Engine, Event, InheritedCounts, PassState, Status, Volume};
use tracing::error;

use crate::frontend::nbd::listen::Listener;
use crate::frontend::nbd::server::Server;
use crate::io::core::Core;
use crate::io::ring::{Completion, Tag};
use crate::memory::{self, MemoryPartition};
use crate::operators::command;
use crate::operators::control::{Mailbox, ScrubAction};
use crate::operators::relocate::Profiles;
use crate::operators::selection::Selection;
use crate::report::flash::FlashReport;
use crate::report::latency::LatencyReport;
use crate::report::status::{Report, VolumeReport};

use devices::Devices;
use event_wait::EventWait;
use growth::Growth;
use lifecycle::Lifecycle;
use memory_shares::MemoryShares;
use monitor::Monitor;
pub use opening::Opening;
use pending_commands::PendingCommands;

/// Receives of one connection whose requests are handed to the engine together.
const RECEIVES_AT_ONCE: u32 = 4;

/// The reactor.
pub struct Reactor {
    core: Core,
    devices: Devices,
    server: Server,
    mailbox: Mailbox,
    event_wait: EventWait,
    commands: PendingCommands,
    growth: Growth,
    memory: MemoryShares,
    profiles: Profiles,
    monitor: Monitor,
    lifecycle: Lifecycle,
    /// Last failures of automatic snapshots, by volume.
    snapshot_failures: BTreeMap<String, String>,
}

impl Reactor {
    /// Serves for a while; false if a stop was requested.
    pub fn work(&mut self, limit: Duration) -> anyhow::Result<bool> {
        self.turn(Some(limit))?;
        Ok(!self.lifecycle.is_stopping())
    }

    /// Serves until a stop is requested.
    pub fn serve(&mut self, status: &str) -> anyhow::Result<()> {
        self.server.start(&mut self.core);
        self.monitor.begin(self.lifecycle.recovered());
        if self.core.engine.status().scrub.state == PassState::Running {
            // A scrub that continues after a restart: the engine has no clock, and needs the time for that of its end.
            let _ = self.command(command::scrub_command(ScrubAction::Start))?;
        }
        self.lifecycle.ready(status);
        while !self.lifecycle.is_stopping() && !self.core.engine.is_taken_over() {
            self.turn(None)?;
        }
        if self.core.engine.is_taken_over() {
            error!("{}", self.lifecycle.who_took_over());
        }
        Ok(())
    }

    /// Collects the figures of the engine, the server and the flash, and those of some volumes.
    pub fn report(&self, volumes: &[&Volume]) -> Report {
        let (engine, serving) = (&self.core.engine, self.lifecycle.is_serving());
        let memory = if serving { self.memory.total() } else { memory::of_pool(engine.properties().memory()) };
        let clients = if volumes.is_empty() { HashMap::new() } else { self.server.clients() };
        let mut known = InheritedCounts::default();
        let of_volume = |volume: &&Volume| {
            let clients = clients.get(&volume.id).map_or(0, |&count| count);
            VolumeReport::new(volume, engine, clients, &mut known)
        };
        let mut report = Report::new(engine, memory, volumes.iter().map(of_volume).collect());
        for volume in report.volumes.iter_mut().filter(|_| !self.snapshot_failures.is_empty()) {
            volume.snapshots_failure = self.snapshot_failures.get(&volume.name).cloned();
        }
        report.latency = LatencyReport::new(self.server.latencies());
        report.host_full = self.monitor.host_lacks_space();
        report.discard.held_bytes = self.devices.held();
        report.addresses = self.server.listeners().iter().map(Listener::address).collect();
        report.tls = self.server.tls().to_string();
        report.ephemeral = self.lifecycle.is_ephemeral();
        report.opened = serving.then_some(self.lifecycle.made());
        let policy = engine.properties().flash_policy().to_string();
        report.flash = FlashReport { policy, ..self.devices.flash_report(&engine.status(), engine.geometry()) };
        report
    }

    /// Collects the figures with those of all volumes, for a pool that is not served.
    pub fn whole_report(&self) -> Report {
        self.report(&Selection::ALL.volumes(&self.core.engine))
    }

    /// Borrows the engine to read its state.
    pub fn engine(&self) -> &Engine {
        &self.core.engine
    }

    /// Borrows the server of clients to read its state.
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// Returns the current division of the memory.
    pub fn partition(&self) -> &MemoryPartition {
        self.memory.partition()
    }

    /// Performs one turn; waits for at most `limit` if nothing happens.
    fn turn(&mut self, limit: Option<Duration>) -> anyhow::Result<()> {
        self.settle();
        let (devices, monitor, commands) = (&self.devices, &self.monitor, &self.commands);
        let due = |now| [devices.next_look(now), monitor.due(), commands.due()].into_iter().flatten().min();
        self.event_wait.wait(&mut self.core, &self.server, due, limit)?;
        self.server.begin_turn(&mut self.core);
        let mut active = self.complete();
        // The engine runs nothing before it has all requests that clients have sent by now: it decides them together.
        for _ in 1..RECEIVES_AT_ONCE {
            if !self.server.expects_more() || !self.core.ring.submit() {
                break;
            }
            active |= self.complete();
        }
        if self.core.engine.next_timer().is_some_and(|due| due <= self.core.now) {
            self.core.engine.handle(self.core.now, Event::Timer);
            active = true;
        }
        if active {
            self.monitor.note_event(self.core.now);
        }
        self.server.expire(&mut self.core);
        self.memory.follow_buffers(&mut self.core, &mut self.server);
        self.server.submit_arrived(&mut self.core);
        self.settle();
        if self.monitor.due().is_some_and(|due| due <= self.core.now) {
            self.look();
        }
        self.answer_for_metadata();
        self.answer_for_space();
        Ok(())
    }

    /// Takes finished operations; true if there are any.
    fn complete(&mut self) -> bool {
        let mut completions = self.event_wait.completions(&mut self.core);
        let any = !completions.is_empty();
        for completion in completions.drain(..) {
            self.completed(completion);
        }
        self.event_wait.give_back(completions);
        any
    }

    fn completed(&mut self, completion: Completion) {
        let (core, result) = (&mut self.core, completion.result);
        match completion.tag {
            Tag::Disk(slot) => self.devices.completed(slot, result, core),
            Tag::Receive(connection) => self.server.received(connection, result, core),
            Tag::Send(connection) => self.server.sent(connection, result, core),
            Tag::Accept(listener) => self.server.accepted(listener, result, completion.socket, core),
            // The accept itself says how it ended.
            Tag::Cancel => {}
            Tag::WakeUp => {
                core.ring.wake_up(self.mailbox.counter(), &core.arena);
                self.take_messages();
            }
        }
    }

    /// Performs effects, I/O and replies until nothing is left to do without waiting.
    fn settle(&mut self) {
        loop {
            let mut any = false;
            while let Some(effect) = self.core.engine.next_effect() {
                any = true;
                self.memory.follow_buffers(&mut self.core, &mut self.server);
                self.perform(effect);
            }
            self.memory.follow_buffers(&mut self.core, &mut self.server);
            any |= self.devices.advance(&mut self.core);
            any |= self.server.advance_all(&mut self.core);
            if !any {
                return;
            }
        }
    }

    fn perform(&mut self, effect: Effect) {
        match effect {
            Effect::Io(io) => self.devices.take(io, &mut self.core),
            Effect::Reply { token, result } => self.server.reply(token, result, &mut self.core),
            Effect::ControlReply { token, result } => self.take_result(token, result),
            Effect::Opened(result) => self.lifecycle.set_opened(result),
        }
    }

    /// Looks whether an operator has to know something, or the pool has to grow.
    fn look(&mut self) {
        let status = self.core.engine.status();
        self.monitor.look_at_jobs(&self.core.engine, &status, &mut self.devices);
        self.grow_automatically(&status);
        self.memory.follow_volumes(&mut self.core, &mut self.server);
        self.monitor.look_at_pool(self.core.now, &self.core.engine, &status, &self.devices);
    }

    /// Lets a served pool grow if its maps are short.
    fn grow_automatically(&mut self, status: &Status) {
        if self.lifecycle.is_serving() && !self.lifecycle.is_stopping() {
            let (core, devices, memory) = (&mut self.core, &mut self.devices, self.memory.of_server());
            self.growth.grow_automatically(status, core, devices, &mut self.commands, memory);
        }
    }

    /// Answers writes that wait for metadata: the pool grows, or they fail.
    fn answer_for_metadata(&mut self) {
        if self.core.engine.awaits_growth() && !self.growth.is_running() {
            self.grow_automatically(&self.core.engine.status());
            if !self.growth.is_running() {
                self.growth.offer(false, &mut self.core);
            }
            self.settle();
        }
    }
}
