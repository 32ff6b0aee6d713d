//! Requests of other threads and of the process itself: each is judged, gets its resources, becomes a command of the engine, and is answered when that is done.
//!
//! The parts that a request touches are called from here: memory for a new setting or a flash, space for a growth, the commands in progress.

use std::sync::mpsc::Sender;
use std::time::Duration;

use anyhow::ensure;
use engine::{Command, ControlError, PoolChange};
use tracing::{info, warn};

use super::Reactor;
use super::pending_commands::{ClientCommand, CommandOutcome, SPACE_NANOS, SPACE_PERIOD, Waiter};
use crate::commands::error_text::explain_control;
use crate::flash::device::Cache;
use crate::flash::front::Plan;
use crate::io::arena::BLOCK;
use crate::memory;
use crate::operators::command::{self, Leaving, Wanted};
use crate::operators::control::{Message, Request, Response};
use crate::operators::relocate::{Answer, Ask};
use crate::size;
use crate::store::grow;

/// Answer to the client of a command that could not be carried out for want of space.
const WAITS_FOR_SPACE: &str = "the host file system is full: it waits for space, and is carried out when there is some";

impl Reactor {
    /// Carries out a command and waits for it.
    pub fn command(&mut self, command: Command<'_>) -> anyhow::Result<Result<(), ControlError>> {
        Ok(self.run_commands(&[command])?.result)
    }

    /// Carries out the commands of a checked request and waits for them. Returns their refusal, if there is one.
    pub fn carry_out(&mut self, wanted: &Wanted<'_>) -> anyhow::Result<Result<(), String>> {
        let commands = wanted.commands();
        if commands.is_empty() {
            return Ok(Ok(()));
        }
        if let Err(error) = commands.iter().try_for_each(|command| self.prepare(command)) {
            return Ok(Err(format!("{error:#}")));
        }
        Ok(self.run_commands(&commands)?.error_text().map_or(Ok(()), Err))
    }

    /// Carries out commands, at least one, and waits for all of them.
    fn run_commands(&mut self, commands: &[Command<'_>]) -> anyhow::Result<CommandOutcome> {
        let not_durable = CommandOutcome { result: Err(ControlError::NotDurable), succeeded: 0, count: commands.len() };
        self.commands.submit_ours(commands, &mut self.core);
        let mut held_back = None;
        loop {
            self.settle();
            if let Some(outcome) = self.commands.take_result() {
                return Ok(outcome);
            }
            if self.core.engine.lacks_space() {
                return Ok(not_durable);
            }
            let now = self.core.clock();
            let since = *held_back.get_or_insert(now);
            if !self.core.engine.holds_back_commands() {
                held_back = None;
            } else if now - since >= SPACE_NANOS {
                return Ok(not_durable);
            }
            self.turn(Some(Duration::from_nanos(SPACE_PERIOD)))?;
        }
    }

    /// Computes what [`Reactor::prepare`] will, and changes nothing.
    fn rehearse(&self, command: &Command<'_>) -> anyhow::Result<()> {
        let geometry = self.core.engine.geometry();
        match *command {
            Command::SetPool(PoolChange { memory: Some(memory), .. }) => {
                self.memory.check(memory::of_pool(memory).0, geometry)
            }
            Command::Grow { capacity, metadata } => {
                grow::plan(geometry, grow::Wanted { capacity, metadata }, self.grown_memory()).map(drop)
            }
            _ => Ok(()),
        }
    }

    /// Prepares the resources of a command before the engine gets it: space for a growth, or a new division of the memory, which is only checked while the pool
    /// is not served.
    pub fn prepare(&mut self, command: &Command<'_>) -> anyhow::Result<()> {
        match *command {
            Command::Grow { capacity, metadata } => {
                let (wanted, memory) = (grow::Wanted { capacity, metadata }, self.grown_memory());
                self.growth.prepare(wanted, &self.core, &mut self.devices, memory)
            }
            Command::SetPool(PoolChange { memory: Some(memory), .. }) => {
                let wanted = memory::of_pool(memory);
                if !self.lifecycle.is_serving() {
                    // The next server of the pool must be able to use it.
                    return self.memory.check(wanted.0, self.core.engine.geometry());
                }
                ensure!(self.core.engine.takes_changes(), "{}", explain_control(ControlError::ReadOnly));
                self.memory.set(wanted, &mut self.core, &mut self.server)?;
                memory::warn_of_much(wanted.0, "the pool was set to");
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Returns the memory that a larger pool has to be served with; `None` if the pool is not served.
    pub(super) fn grown_memory(&self) -> Option<grow::ServerMemory> {
        self.lifecycle.is_serving().then(|| self.memory.of_server())
    }

    /// Takes the messages of other threads.
    pub(super) fn take_messages(&mut self) {
        while let Some(message) = self.mailbox.next() {
            match message {
                Message::Stop => self.lifecycle.request_stop(),
                Message::SnapshotFailures(failures) => self.snapshot_failures = failures,
                Message::Request(request, client) => self.take_request(*request, client),
                Message::Attach(flash, client) => {
                    let (store, label) = *flash;
                    let result = self.attach(Cache { store, label });
                    self.answer(result, &client);
                }
            }
        }
    }

    fn take_request(&mut self, request: Request, client: Sender<Response>) {
        // A client may be gone when it is answered.
        if let Some(refusal) = self.lifecycle.refuse(&request) {
            let _ = client.send(refusal);
            return;
        }
        if let Request::Relocate(ask) = request {
            let _ = client.send(self.relocate(ask).map_or_else(Response::Failed, Response::Relocate));
            return;
        }
        let clients = |volume| self.server.clients_of(volume);
        match command::judged(&request, &self.core.engine, clients, |command| self.rehearse(command)) {
            Ok(Wanted::Detach) => {
                let result = self.detach();
                self.answer(result, &client);
            }
            Ok(wanted @ (Wanted::Figures | Wanted::Stop)) => {
                if wanted == Wanted::Stop {
                    self.lifecycle.request_stop();
                }
                let _ = client.send(self.figures(&request));
            }
            Ok(wanted) => {
                let commands = wanted.commands();
                if let Err(error) = commands.iter().try_for_each(|command| self.prepare(command)) {
                    let _ = client.send(Response::Failed(format!("{error:#}")));
                    return;
                }
                for leaving in wanted.leaving() {
                    if let Leaving::RolledBack(volume) = leaving {
                        self.server.disconnect(|connection| connection.volume() == volume);
                    }
                }
                let waiter = Waiter::Client(ClientCommand::new(&request, wanted.leaving(), client, self.core.clock()));
                let token = self.commands.submit(&commands, waiter, &mut self.core);
                if matches!(commands[..], [Command::Grow { .. }]) {
                    self.growth.begin(token);
                }
            }
            Err(refusal) => {
                let _ = client.send(Response::Failed(refusal));
            }
        }
    }

    /// Answers a request that was carried out: with the figures, and the volumes that it names.
    fn figures(&self, request: &Request) -> Response {
        let (volumes, next) = request.volumes().part(&self.core.engine);
        let report = Box::new(self.report(&volumes));
        match next {
            Some(next) => Response::Part { report, next },
            None => Response::Done(report),
        }
    }

    /// Sends the result to a client of the control socket, which may be gone.
    fn answer(&self, result: anyhow::Result<()>, client: &Sender<Response>) {
        let _ = client.send(match result {
            Ok(()) => Response::Done(Box::new(self.report(&[]))),
            Err(error) => Response::Failed(format!("{error:#}")),
        });
    }

    /// Takes the engine's answer to a command.
    pub(super) fn take_result(&mut self, token: u64, result: Result<(), ControlError>) {
        if self.growth.end(token) && result.is_ok() {
            self.follow_growth();
        }
        match self.commands.finish(token, result) {
            Some((Waiter::Growth, _)) => self.growth.take_result(result, self.core.now),
            Some((Waiter::Client(command), outcome)) => {
                for &leaving in command.leaving() {
                    match leaving {
                        // Its other clients stay if it could not be deleted.
                        Leaving::Deleted(volume) if self.core.engine.volume(volume).is_some() => {}
                        Leaving::RolledBack(_) if outcome.result.is_err() => {}
                        Leaving::Deleted(volume) | Leaving::RolledBack(volume) => {
                            self.server.disconnect(|connection| connection.volume() == volume);
                        }
                        Leaving::Resized(volume) if outcome.result.is_ok() => self.server.let_go(volume, &self.core),
                        Leaving::Resized(_) => {}
                    }
                }
                let response = match outcome.error_text() {
                    None => self.figures(command.request()),
                    Some(error) => Response::Failed(error),
                };
                command.answer(response);
            }
            Some((Waiter::Ourselves, _)) | None => {}
        }
    }

    /// Logs the new size of a pool that has grown. Its tables have become longer: the remaining memory is divided anew.
    fn follow_growth(&mut self) {
        let status = self.core.engine.status();
        let capacity = size::show(status.capacity_bytes);
        let tables = size::show(status.metadata_blocks.saturating_mul(BLOCK as u64));
        info!("the pool has a capacity of {capacity} now, and {tables} for maps and tables");
        if self.lifecycle.is_serving()
            && let Err(error) = self.memory.divide_again(&mut self.core, &mut self.server)
        {
            warn!("{error}");
        }
    }

    /// Answers clients whose commands have waited for space on the host for long. Their commands continue.
    pub(super) fn answer_for_space(&mut self) {
        for (reply, is_in_force, volumes) in self.commands.overdue(&self.core) {
            let response = match is_in_force {
                true => Response::InForce(Box::new(self.report(&volumes.part(&self.core.engine).0))),
                false => Response::Failed(WAITS_FOR_SPACE.into()),
            };
            // The client may be gone.
            let _ = reply.send(response);
        }
    }

    /// Carries out a request about the read profile that relocation plans from. Fails if the server's memory cannot be divided anew with the profile's share.
    fn relocate(&mut self, ask: Ask) -> Result<Answer, String> {
        let wanted = self.profiles.memory_after(&ask, self.memory.for_profiles());
        if let Err(error) = self.memory.give_to_profiles(wanted, &mut self.core, &mut self.server) {
            return Err(format!("the profile takes {} of the memory: {error:#}", size::show(wanted)));
        }
        self.profiles.answer(&mut self.core.engine, ask)
    }

    /// Puts a cache in front of the pool, with memory for its tables. Fails while the pool is being opened, while calls are recorded, or if it has a flash.
    fn attach(&mut self, cache: Cache) -> anyhow::Result<()> {
        ensure!(self.lifecycle.recovered().is_some(), "the pool is still being opened: try again in a moment");
        ensure!(!self.core.engine.is_recorded(), "calls are being recorded (--record), and recordings know no flash");
        ensure!(!self.devices.has_flash(), "the pool has a flash: detach it first");
        let plan = Plan::new(&cache.label, self.memory.total().0, self.core.engine.geometry())?;
        let (path, size) = (cache.store.path().display().to_string(), size::show(cache.label.size));
        self.memory.give_to_flash(plan.memory, &mut self.core, &mut self.server)?;
        if let Err(error) = self.devices.attach_flash(cache, plan, &mut self.core) {
            self.memory.give_to_flash(0, &mut self.core, &mut self.server)?;
            return Err(error);
        }
        info!("attached the flash {path} of {size}");
        Ok(())
    }

    /// Detaches the flash and gives its memory back to the pool.
    fn detach(&mut self) -> anyhow::Result<()> {
        let path = self.devices.detach_flash(&mut self.core)?;
        info!("detached the flash {}", path.display());
        if let Err(error) = self.memory.give_to_flash(0, &mut self.core, &mut self.server) {
            warn!("{error}");
        }
        Ok(())
    }
}
