//! The reactor: one thread that waits in one place, and completes all pending work before it waits again.
//!
//! A turn, in order: submit and wait; completions of disk and sockets, and clients' bytes beyond one receive; the timer; messages of other threads; a part of
//! the received writes. Then, until nothing more happens: the engine's effects, reports of I/O without the device, connections that wait for the engine, sends.
//! While there are more such writes, a turn does not wait, and some turns' replies leave together. Attachment and detachment of a flash in front of the store
//! are in `reactor/flash.rs`. Effects of the engine become operations of the disk, replies of the server, or answers to commands.

mod flash;
mod growth;

use std::collections::HashMap;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use engine::recording::Header;
use engine::{
    Command, ControlError, Device, Effect, Engine, Event, Failure, Limits, Nanos, OpenError, Parameters, PassState,
    PoolChange, Recovered,
};

use crate::commands::error_text::{explain_control, explain_open};
use crate::flash::device::{Cache, Given};
use crate::flash::front::Front;
use crate::frontend::nbd::listen::Listener;
use crate::frontend::nbd::server::Server;
use crate::frontend::nbd::tls::Tls;
use crate::io::arena::{Arena, BLOCK};
use crate::io::digest::Digester;
use crate::io::disk::{Core, Disk, Host, Part};
use crate::io::poll::Poll;
use crate::io::record::{self, Recorded, Recording};
use crate::io::ring::{Completion, DISK_SLOTS, Ring, Tag};
use crate::memory::capacity::allow_files;
use crate::memory::{self, PartitionMode, STAGING_BLOCKS, Source, TooLittle};
use crate::operators::command::{self, Leaving, Wanted};
use crate::operators::control::{self, Mailbox, Message, Request, Response, ScrubAction};
use crate::operators::relocate::{Answer, Ask, Profiles};
use crate::operators::service::Manager;
use crate::operators::watch::{REMEDY, Watch};
use crate::report::flash::FlashReport;
use crate::report::latency::LatencyReport;
use crate::report::status::{BEING_OPENED, Report, failure_text};
use crate::size;
use crate::store::backing::Store;
use crate::store::owner::Owned;
use crate::store::{grow, heads};

use std::os::fd::AsRawFd;

use flash::plan;
use tracing::{error, info, warn};

/// Time that requests in service, and then connections, may take to end when the server stops.
const PATIENCE: Duration = Duration::from_secs(5);
/// Time that the store may take to make the journal durable after the checkpoint was given up.
const LAST_PATIENCE: Duration = Duration::from_secs(10);
/// Interval of the reports on the progress of a stop.
const REPORT_PERIOD: Duration = Duration::from_secs(1);
/// Receives of one connection whose requests are handed to the engine together.
const RECEIVES_AT_ONCE: u32 = 4;
/// Most turns of the reactor in a row whose replies are held back to be sent together; they are held only while each turn submits requests and more have
/// arrived.
const REPLIES_TOGETHER: u32 = 8;
/// Longest wait of a command for space on the host before the client gets an answer without, and the interval of the checks for it.
const SPACE_NANOS: Nanos = 5_000_000_000;
const SPACE_PERIOD: Nanos = 500_000_000;
/// Delay from an event to the next look at the pool's figures.
const WATCH_NANOS: Nanos = 200_000_000;

/// Answer to the client of a command that could not be carried out for want of space.
const WAITS_FOR_SPACE: &str = "the host file system is full: it waits for space, and is carried out when there is some";

/// Party that waits for the result of a command.
enum Waiter {
    /// A client of the control socket.
    Client {
        /// Channel of the answer; `None` once the client has been told that the command waits for space.
        reply: Option<Sender<Response>>,
        request: Box<Request>,
        since: Nanos,
        /// The clients that leave when the command is done.
        leaving: Option<Leaving>,
        /// Text to log when the command succeeds.
        done: Option<String>,
    },
    /// [`Reactor::command`].
    Ourselves,
    /// The pool itself, whose maps were short.
    Growth,
}

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

/// The reactor.
pub struct Reactor {
    core: Core,
    disk: Disk,
    flash: Front,
    server: Server,
    poll: Poll,
    /// Requests that had come when it last waited.
    requests_seen: u64,
    /// Turns in a row whose replies wait for those of the next. Only while more can be submitted: then no turn waits.
    replies_held: u32,
    mailbox: Mailbox,
    started: Instant,
    /// PartitionMode of the memory among its users; while it changes, the one that the engine is moving to.
    partition: PartitionMode,
    /// Bytes of it that the tables of the flash take.
    for_flash: u64,
    /// True while memory is being divided anew: memory that the tables no longer need returns to the system at the end of that.
    heap_shrinks: bool,
    memory_source: Source,
    /// The profile of device reads, which takes some of it.
    profiles: Profiles,
    /// Number of clients that was requested.
    wanted: u32,
    store: Store,
    owned: Option<Owned>,
    serving: bool,
    ephemeral: bool,
    /// Time at which the reactor was made, in seconds since 1970.
    made: u64,
    /// Clients are not served any more; commands that change something wait for the end.
    draining: bool,
    /// The command that makes the pool larger, while there is one.
    growing: Option<u64>,
    /// Time from which the pool may grow automatically again, after an attempt that failed.
    grows_after: Nanos,
    growth_offered: bool,
    growth_error: Option<String>,
    completions: Vec<Completion>,
    waiters: HashMap<u64, Waiter>,
    next_token: u64,
    /// The result of the command that we wait for ourselves.
    finished: Option<Result<(), ControlError>>,
    opened: Option<Result<Recovered, OpenError>>,
    /// Number of stop requests.
    stops: u32,
    manager: Manager,
    /// Watch over the figures while the pool is served, and the time of its next look.
    watch: Option<Watch>,
    watch_due: Option<Nanos>,
    /// Time of the next look at commands that wait for space, while there are any.
    space_due: Option<Nanos>,
}

impl Reactor {
    /// Sets everything up and lets the engine begin to open the pool.
    pub fn new(opening: Opening<'_>) -> anyhow::Result<Reactor> {
        let Opening { store, owned, parameters, memory, listeners, tls, connections, .. } = opening;
        let Opening { manager, mailbox, read_only, ephemeral, record, poll, flash: given, .. } = opening;
        let serving = !listeners.is_empty();
        let wanted = if serving { allow_files(connections) } else { 1 };
        let (memory, memory_source) = memory;
        let plan = plan(&given, memory, &parameters.geometry)?;
        let for_flash = plan.map_or(0, |plan| plan.memory);
        let partition = memory::divide(memory, for_flash, &parameters.geometry, serving, wanted)?.on(heads::of(store));
        let (limits, connections) = (partition.limits, partition.connections);
        if connections.most < wanted {
            let (most, memory) = (connections.most, size::show(memory));
            info!("at most {most} clients at a time instead of {wanted}: {memory} of memory have no space for more");
        }
        let arena = arena(&limits, wanted as usize, serving)
            .with_context(|| format!("cannot get {} of memory", size::show(memory)))?;
        let ring = Ring::new(&arena, store.as_raw_fd(), serving)?;
        let program = env!("CARGO_PKG_VERSION").to_owned();
        let owner = owned.as_ref().map(Owned::nonce);
        let header = Header { program, parameters, limits, now: 0, reads_only: read_only, owner };
        let recording = record.map(|wanted| Recording::begin(&wanted, &header)).transpose()?;
        let engine = Recorded::new(header.open(), recording);
        let mut core = Core { engine, arena, ring, digester: Digester::new(&parameters), now: 0 };
        core.ring.wake_up(mailbox.counter(), &core.arena);
        let mut flash = Front::default();
        flash.begin(given, plan, &mut core)?;
        let server = Server::new(listeners, &limits, parameters.geometry.piece_blocks, connections, wanted, tls);
        Ok(Reactor {
            core,
            disk: Disk::new(Part::STORE, store),
            flash,
            server,
            poll: Poll::new(poll),
            requests_seen: 0,
            replies_held: 0,
            mailbox,
            started: Instant::now(),
            partition,
            for_flash,
            heap_shrinks: false,
            memory_source,
            profiles: Profiles::default(),
            wanted,
            store: store.share()?,
            owned,
            serving,
            ephemeral,
            made: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs()),
            draining: false,
            growing: None,
            grows_after: 0,
            growth_offered: false,
            growth_error: None,
            completions: Vec::new(),
            waiters: HashMap::new(),
            next_token: 0,
            finished: None,
            opened: None,
            stops: 0,
            manager,
            watch: None,
            watch_due: None,
            space_due: None,
        })
    }

    /// Drives the engine until the pool is open, or cannot be opened. Returns `None` if a stop was requested meanwhile: that is as safe as a crash, and the next start
    /// recovers from the beginning.
    pub fn open(&mut self) -> anyhow::Result<Option<Recovered>> {
        if let Some(owned) = &mut self.owned {
            owned.begins_to_write();
        }
        let mut said = false;
        loop {
            if let Some(opened) = self.opened {
                return opened.map(Some).map_err(|error| self.explain_opening(error));
            }
            if self.stops > 0 {
                return Ok(None);
            }
            self.turn(Some(Duration::from_secs(1)))?;
            if self.opened.is_none() && self.started.elapsed() > Duration::from_secs(2) {
                self.manager.extend();
                if !said {
                    said = true;
                    info!("recovering a pool that was not closed cleanly");
                    self.manager.status("recovering a pool that was not closed cleanly");
                }
            }
        }
    }

    /// Explains why a pool cannot be opened; the error is a [`TooLittle`] if there is too little memory.
    fn explain_opening(&self, error: OpenError) -> anyhow::Error {
        if error == OpenError::TakenOver {
            return anyhow::anyhow!(self.who_took_over());
        }
        let OpenError::TooLittleMemory { entries } = error else { return anyhow::anyhow!(explain_open(error)) };
        let geometry = self.core.engine.geometry();
        let fits = |memory: u64| {
            PartitionMode::new(memory.saturating_sub(self.for_flash), geometry, self.wanted)
                .is_ok_and(|partition| partition.limits.replayable_entries(geometry) >= entries)
        };
        anyhow::Error::new(TooLittle::new(self.partition.memory, fits))
    }

    /// Ends the reactor and returns the parts that outlive it: the mailbox and the ownership of the pool.
    pub fn give_back(self) -> (Mailbox, Option<Owned>) {
        let Reactor { core, mailbox, owned, .. } = self;
        // Its ring may take the word that there is something in it, until it has ended.
        drop(core);
        mailbox.raise();
        (mailbox, owned)
    }

    /// Describes the process that has taken the pool over, for a message.
    fn who_took_over(&self) -> String {
        self.owned.as_ref().map_or_else(|| failure_text(Failure::TakenOver).into(), Owned::who_took_over)
    }

    /// Serves for a while; false if a stop was requested.
    pub fn work(&mut self, limit: Duration) -> anyhow::Result<bool> {
        self.turn(Some(limit))?;
        Ok(self.stops == 0)
    }

    /// Collects the figures of the engine, the server and the flash.
    pub fn report(&self) -> Report {
        let engine = &self.core.engine;
        let served = (self.partition.memory, self.memory_source);
        let memory = if self.serving { served } else { memory::of_pool(engine.pool_memory()) };
        let mut report = Report::new(engine, memory, |volume| self.server.clients_of(volume));
        report.latency = LatencyReport::new(self.server.latencies());
        report.host_full = self.watch.as_ref().is_some_and(Watch::host_lacks_space);
        report.addresses = self.server.listeners().iter().map(Listener::address).collect();
        report.tls = self.server.tls().to_string();
        report.ephemeral = self.ephemeral;
        report.opened = self.serving.then_some(self.made);
        let policy = engine.flash_policy().to_string();
        report.flash = FlashReport { policy, ..self.flash.report(&engine.status(), engine.geometry()) };
        report
    }

    /// Borrows the engine to read its state.
    pub fn engine(&self) -> &Engine {
        &self.core.engine
    }

    /// Borrows the server of clients to read its state.
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// Carries out a command and waits for it.
    pub fn command(&mut self, command: Command<'_>) -> anyhow::Result<Result<(), ControlError>> {
        self.finished = None;
        self.submit_command(command, Waiter::Ourselves);
        let mut held_back = None;
        loop {
            self.settle();
            if let Some(result) = self.finished.take() {
                return Ok(result);
            }
            if self.core.engine.lacks_space() {
                return Ok(Err(ControlError::NotDurable));
            }
            let now = self.clock();
            let since = *held_back.get_or_insert(now);
            if !self.core.engine.holds_back_commands() {
                held_back = None;
            } else if now - since >= SPACE_NANOS {
                return Ok(Err(ControlError::NotDurable));
            }
            self.turn(Some(Duration::from_nanos(SPACE_PERIOD)))?;
        }
    }

    /// Computes what [`Reactor::prepare`] will, and changes nothing.
    fn rehearse(&self, command: &Command<'_>) -> anyhow::Result<()> {
        let geometry = self.core.engine.geometry();
        match *command {
            Command::SetPool(PoolChange { memory: Some(memory), .. }) => {
                memory::divide(memory::of_pool(memory).0, self.taken_memory(), geometry, true, self.wanted).map(drop)
            }
            Command::Grow { capacity, metadata } => {
                grow::plan(geometry, grow::Wanted { capacity, metadata }, self.grown_memory()).map(drop)
            }
            _ => Ok(()),
        }
    }

    /// Returns the memory that a larger pool has to be served with; `None` if the pool is not served.
    fn grown_memory(&self) -> Option<grow::ServerMemory> {
        let all = grow::ServerMemory { bytes: self.partition.memory, taken: self.taken_memory(), clients: self.wanted };
        self.serving.then_some(all)
    }

    /// Returns the bytes of memory that the engine does not get: the tables of the flash, and the profile of device reads.
    fn taken_memory(&self) -> u64 {
        self.for_flash + self.profiles.memory
    }

    /// Prepares the resources of a command before the engine gets it: space for a growth, or a new division of the memory, which is only checked while the pool
    /// is not served.
    pub fn prepare(&mut self, command: &Command<'_>) -> anyhow::Result<()> {
        match *command {
            Command::Grow { capacity, metadata } => self.prepare_growth(grow::Wanted { capacity, metadata }),
            Command::SetPool(PoolChange { memory: Some(memory), .. }) => {
                let (bytes, source) = memory::of_pool(memory);
                if !self.serving {
                    // The next server of the pool must be able to use it.
                    return memory::divide(bytes, 0, self.core.engine.geometry(), true, self.wanted).map(drop);
                }
                anyhow::ensure!(self.core.engine.takes_changes(), "{}", explain_control(ControlError::ReadOnly));
                self.set_memory(bytes)?;
                memory::warn_of_much(bytes, "the pool was set to");
                self.memory_source = source;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Returns the current division of the memory.
    pub fn partition(&self) -> &PartitionMode {
        &self.partition
    }

    /// Divides the memory anew, while serving. Memory in use beyond the new division is freed at the end of its use.
    fn set_memory(&mut self, memory: u64) -> anyhow::Result<()> {
        let geometry = *self.core.engine.geometry();
        let limits = &self.partition.limits;
        let partition = memory::divide(memory, self.taken_memory(), &geometry, true, self.wanted)?.on(limits.device);
        let most = partition.limits.most_buffers(BLOCK as u64) as usize;
        let core = &mut self.core;
        anyhow::ensure!(
            most <= core.arena.buffers_max(),
            "this server cannot get {}: restart it with --memory {}M",
            size::show(memory),
            memory.div_ceil(1 << 20)
        );
        core.engine.set_limits(partition.limits);
        self.server.divide(&partition.limits, geometry.piece_blocks, partition.connections);
        self.partition = partition;
        self.heap_shrinks = true;
        self.follow_buffers();
        Ok(())
    }

    /// Keeps memory for the buffers that the engine uses, and for no more. Their number changes at each call for the engine's effects.
    fn follow_buffers(&mut self) {
        let core = &mut self.core;
        if self.heap_shrinks && !core.engine.is_resizing() {
            self.heap_shrinks = false;
            crate::io::arena::give_heap_back();
        }
        let numbers = core.engine.buffer_numbers() as usize;
        if numbers * BLOCK != core.arena.buffers().length {
            let write_buffers = self.partition.limits.write_buffers;
            self.server.set_read_buffers((numbers as u32).saturating_sub(write_buffers));
        }
        if numbers * BLOCK > core.arena.buffers().length {
            core.arena.set_buffers(numbers);
            core.ring.follow_buffers(&core.arena, core.arena.buffers());
        }
        if numbers * BLOCK < core.arena.buffers().length {
            core.ring.follow_buffers(&core.arena, core.arena.buffers().first(numbers * BLOCK));
            core.arena.set_buffers(numbers);
        }
    }

    /// Serves until a stop is requested.
    pub fn serve(&mut self, status: &str) -> anyhow::Result<()> {
        self.server.start(&mut self.core);
        self.watch = self.opened.and_then(Result::ok).as_ref().map(Watch::of);
        self.watch_due = Some(0);
        if self.core.engine.status().scrub.state == PassState::Running {
            // A scrub that continues after a restart: the engine has no clock, and needs the time for that of its end.
            let _ = self.command(command::scrub_command(ScrubAction::Start))?;
        }
        self.manager.ready(status);
        while self.stops == 0 && !self.core.engine.is_taken_over() {
            self.turn(None)?;
        }
        if self.core.engine.is_taken_over() {
            error!("{}", self.who_took_over());
        }
        Ok(())
    }

    /// Stops serving: no more clients. Requests in service get `PATIENCE` to complete; then all connections end.
    pub fn drain(&mut self) -> anyhow::Result<()> {
        self.draining = true;
        self.manager.stopping();
        self.manager.extend();
        self.server.stop(&mut self.core);
        let (clients, busy) = self.server.in_service();
        self.say(&format!(
            "stopping: {clients} clients, {busy} with requests or replies in service, up to {} s for these",
            PATIENCE.as_secs()
        ));
        let deadline = Instant::now() + PATIENCE;
        while !self.server.is_quiet() && Instant::now() < deadline && self.stops < 2 {
            self.turn_until(deadline)?;
        }
        self.server.disconnect(|_| true);
        let deadline = Instant::now() + PATIENCE;
        self.settle();
        while !self.server.is_empty() && Instant::now() < deadline {
            self.turn(Some(Duration::from_millis(50)))?;
        }
        Ok(())
    }

    /// Finishes operations in flight and marks the pool as cleanly closed. The checkpoint of that is given up at the deadline, or at one more stop request: the
    /// journal has everything.
    pub fn close(&mut self, deadline: Option<Instant>) -> anyhow::Result<()> {
        self.finished = None;
        self.submit_command(Command::Close, Waiter::Ourselves);
        let result = match self.closed_until(deadline, true)? {
            Some(result) => result,
            None => {
                self.say("giving up the last checkpoint: making the journal durable");
                self.submit_command(Command::CloseEarly, Waiter::Ourselves);
                let last = self.closed_until(Some(Instant::now() + LAST_PATIENCE), false)?;
                last.context(
                    "the store does not answer: unflushed writes may be lost; the next start recovers the rest",
                )?
            }
        };
        self.look();
        match result {
            Ok(()) => self.release(),
            Err(error @ (ControlError::NoCheckpoint | ControlError::HostFull)) => {
                warn!("{}", explain_control(error));
                self.release()
            }
            Err(_) if self.core.engine.is_taken_over() => {
                // A server has logged it when it noticed.
                let who = if self.serving { failure_text(Failure::TakenOver).into() } else { self.who_took_over() };
                Err(anyhow::anyhow!("{} is not closed: {who}", self.store.path().display()))
            }
            Err(error @ ControlError::NotDurable) => Err(anyhow::anyhow!(explain_control(error))),
            Err(ControlError::ReadOnly) if self.core.engine.status().failure.is_some() => {
                let failure = self.core.engine.status().failure.map_or("", failure_text);
                Err(anyhow::anyhow!("the pool has failed: {failure}. {REMEDY}"))
            }
            Err(error) => Err(anyhow::anyhow!(
                "the pool could not be marked as cleanly closed ({error:?}); it will be recovered when it is opened next"
            )),
        }
    }

    /// Gives up the ownership of the pool, which is closed: nothing is in flight.
    fn release(&mut self) -> anyhow::Result<()> {
        if let Some(owned) = &mut self.owned {
            owned.release();
        }
        Ok(())
    }

    /// Waits for the end of closing; `None` at the deadline, or, if it `hurries`, at one more stop request.
    fn closed_until(
        &mut self,
        deadline: Option<Instant>,
        hurries: bool,
    ) -> anyhow::Result<Option<Result<(), ControlError>>> {
        loop {
            self.settle();
            if let Some(result) = self.finished.take() {
                return Ok(Some(result));
            }
            let Some(deadline) = deadline else {
                self.turn(None)?;
                continue;
            };
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || (hurries && self.stops > 1) {
                return Ok(None);
            }
            let mappings = self.core.engine.status().unmerged_entries;
            self.manager.status(&format!("closing: {mappings} mappings to merge, {} s left", left.as_secs()));
            self.turn_until(deadline)?;
        }
    }

    /// Performs one turn on the way to the end, of at most a second, and asks the service manager for more time.
    fn turn_until(&mut self, deadline: Instant) -> anyhow::Result<()> {
        self.manager.extend();
        let left = deadline.saturating_duration_since(Instant::now());
        self.turn(Some(left.min(REPORT_PERIOD)))
    }

    /// Tells the log and the service manager.
    fn say(&self, text: &str) {
        info!("{text}");
        self.manager.status(text);
    }

    /// Performs one turn; waits for at most `limit` if nothing happens.
    fn turn(&mut self, limit: Option<Duration>) -> anyhow::Result<()> {
        self.settle();
        self.wait(limit)?;
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
        if active && self.watch_due.is_none() {
            self.watch_due = Some(self.core.now + WATCH_NANOS);
        }
        self.server.expire(&mut self.core);
        self.follow_buffers();
        let submitted = self.server.submit_arrived(&mut self.core);
        self.replies_held = if submitted && self.replies_held < REPLIES_TOGETHER { self.replies_held + 1 } else { 0 };
        self.settle();
        if self.watch_due.is_some_and(|due| due <= self.core.now) {
            self.look();
        }
        self.answer_for_metadata();
        if self.space_due.is_some_and(|due| due <= self.core.now) {
            self.answer_for_space();
        }
        Ok(())
    }

    /// Submits, and waits for the next event: awake for a while where that pays ([`Poll`]).
    fn wait(&mut self, limit: Option<Duration>) -> anyhow::Result<()> {
        if self.server.has_arrived(&self.core) || self.server.has_later() {
            // There is enough to do: only what else has come.
            self.core.ring.submit_and_wait(Some(Duration::ZERO))?;
            self.core.now = self.clock();
            return Ok(());
        }
        let (begun, requests) = (self.clock(), self.server.requests());
        let is_for_client = !self.server.is_in_service() && !self.core.ring.has_durable();
        let look = if is_for_client { self.poll.look(begun) } else { 0 };
        let looks = look > 0 && self.core.ring.submit() && !self.core.ring.has_unhurried();
        if looks {
            let mut now = begun;
            while !self.core.ring.has_news() && now - begun < look {
                std::hint::spin_loop();
                let before = std::mem::replace(&mut now, self.clock());
                self.poll.looked(before, now);
            }
            if self.core.ring.has_news() {
                self.poll.found();
            }
        }
        let timeout = self.timeout(limit);
        self.core.ring.submit_and_wait(timeout)?;
        self.core.now = self.clock();
        let requests = requests - std::mem::replace(&mut self.requests_seen, requests);
        if is_for_client {
            self.poll.waited(looks, self.core.now - begun, requests);
        }
        Ok(())
    }

    /// Takes finished operations; true if there are any.
    fn complete(&mut self) -> bool {
        let mut completions = std::mem::take(&mut self.completions);
        self.core.ring.completions(&mut completions);
        let any = !completions.is_empty();
        for completion in completions.drain(..) {
            self.completed(completion);
        }
        self.completions = completions;
        any
    }

    /// Looks whether an operator has to know something.
    fn look(&mut self) {
        let status = self.core.engine.status();
        if let Some(watch) = &mut self.watch {
            watch.look_at_scrub(&self.core.engine, &status);
            watch.look_at_dedup(&status);
            self.flash.look(&status);
        }
        self.grow_automatically(&status);
        let (now, failure, host) = (self.core.now, self.disk.last_failure(), self.disk.host());
        let host = Host { lacks_space: self.core.engine.lacks_space(), ..host };
        self.watch_due = self.watch.as_mut().and_then(|watch| watch.look(now, &status, failure, host));
    }

    fn clock(&self) -> Nanos {
        self.started.elapsed().as_nanos() as Nanos
    }

    fn timeout(&self, limit: Option<Duration>) -> Option<Duration> {
        let flash = self.flash.next_look(self.clock());
        let due = [self.core.engine.next_timer(), self.server.next_deadline(), self.watch_due, self.space_due, flash];
        let due = due.into_iter().flatten().min();
        #[cfg(feature = "faults")]
        let due = [due, self.disk.next_look(self.clock())].into_iter().flatten().min();
        let until = due.map(|due| Duration::from_nanos(due.saturating_sub(self.clock())));
        [until, limit].into_iter().flatten().min()
    }

    fn completed(&mut self, completion: Completion) {
        let (core, result) = (&mut self.core, completion.result);
        match completion.tag {
            Tag::Disk(slot) if slot as usize >= DISK_SLOTS => self.flash.completed(slot, result, core),
            Tag::Disk(slot) => self.disk.completed(slot, result, core),
            Tag::Receive(connection) => self.server.received(connection, result, core),
            Tag::Send(connection) => self.server.sent(connection, result, core),
            Tag::Accept(listener) => self.server.accepted(listener, result, completion.socket, core),
            // The accept itself says how it ended.
            Tag::Cancel => {}
            Tag::WakeUp => {
                core.ring.wake_up(self.mailbox.counter(), &core.arena);
                while let Some(message) = self.mailbox.next() {
                    self.take_message(message);
                }
            }
        }
    }

    /// Performs effects, I/O and replies until nothing is left to do without waiting.
    fn settle(&mut self) {
        loop {
            let mut any = false;
            while let Some(effect) = self.core.engine.next_effect() {
                any = true;
                self.follow_buffers();
                self.perform(effect);
            }
            self.follow_buffers();
            any |= self.disk.advance(&mut self.core);
            any |= self.flash.advance(&mut self.core);
            any |= self.server.resume(&mut self.core);
            // This must be checked here: the steps above may take the rest of the queue, and then the next turn waits.
            if self.replies_held == 0 || !self.server.has_arrived(&self.core) {
                self.replies_held = 0;
                any |= self.server.flush(&mut self.core);
            }
            if !any {
                return;
            }
        }
    }

    fn perform(&mut self, effect: Effect) {
        if let Effect::ControlReply { token, result } = effect
            && self.growing == Some(token)
        {
            self.growing = None;
            if result.is_ok() {
                let capacity = size::show(self.core.engine.status().capacity_bytes);
                let tables = self.core.engine.status().metadata_blocks.saturating_mul(BLOCK as u64);
                info!("the pool has a capacity of {capacity} now, and {} for maps and tables", size::show(tables));
                // Its tables have become longer: the remaining memory is divided anew.
                if self.serving
                    && let Err(error) = self.set_memory(self.partition.memory)
                {
                    warn!("{error}");
                }
            }
        }
        match effect {
            Effect::Io(io) if self.core.engine.io(io).device == Device::Flash => self.flash.take(io, &mut self.core),
            Effect::Io(io) => self.disk.take(io, &mut self.core),
            Effect::Reply { token, result } => self.server.reply(token, result, &mut self.core),
            Effect::ControlReply { token, result } => match self.waiters.remove(&token) {
                Some(Waiter::Ourselves) => self.finished = Some(result),
                Some(Waiter::Growth) => self.grown_automatically(result),
                Some(Waiter::Client { reply, leaving, done, .. }) => {
                    match leaving.filter(|_| result.is_ok()) {
                        Some(Leaving::Deleted(volume)) => {
                            self.server.disconnect(|connection| connection.volume() == volume);
                        }
                        Some(Leaving::Resized(volume)) => self.server.let_go(volume, &self.core),
                        None => {}
                    }
                    let response = match result {
                        Ok(()) => Response::Done(Box::new(self.report())),
                        Err(error) => Response::Failed(explain_control(error).into()),
                    };
                    if let (true, Some(done)) = (result.is_ok(), done) {
                        info!("{done}");
                    }
                    if let Some(reply) = reply {
                        // The client may be gone.
                        let _ = reply.send(response);
                    }
                }
                None => {}
            },
            Effect::Opened(result) => self.opened = Some(result),
        }
    }

    fn submit_command(&mut self, command: Command<'_>, waiter: Waiter) -> u64 {
        let token = self.next_token;
        self.next_token += 1;
        self.core.now = self.clock();
        if matches!(waiter, Waiter::Client { .. }) {
            self.space_due.get_or_insert(self.core.now + SPACE_PERIOD);
        }
        self.waiters.insert(token, waiter);
        self.core.engine.handle(self.core.now, Event::Control { token, command });
        token
    }

    /// Answers clients whose commands have waited for space on the host for long. Their commands continue.
    fn answer_for_space(&mut self) {
        let now = self.core.now;
        self.space_due = None;
        let mut answers = Vec::new();
        for waiter in self.waiters.values_mut() {
            let Waiter::Client { reply: reply @ Some(_), request, since, .. } = waiter else { continue };
            if now - *since >= SPACE_NANOS && self.core.engine.holds_back_commands() {
                answers.extend(reply.take().map(|reply| (reply, command::is_in_force(request, &self.core.engine))));
            } else {
                self.space_due = Some(now + SPACE_PERIOD);
            }
        }
        for (reply, is_in_force) in answers {
            let response = match is_in_force {
                true => Response::InForce(Box::new(self.report())),
                false => Response::Failed(WAITS_FOR_SPACE.into()),
            };
            // The client may be gone.
            let _ = reply.send(response);
        }
    }

    /// Carries out a request about the read profile that relocation plans from. Fails if the server's memory cannot be divided anew with the profile's share.
    fn relocate(&mut self, ask: Ask) -> Result<Answer, String> {
        let (before, wanted) = (self.profiles.memory, self.profiles.memory_after(&ask));
        self.profiles.memory = wanted;
        if self.profiles.memory != before
            && let Err(error) = self.set_memory(self.partition.memory)
        {
            self.profiles.memory = before;
            return Err(format!("the profile takes {} of the memory: {error:#}", size::show(wanted)));
        }
        self.profiles.answer(&mut self.core.engine, ask)
    }

    fn take_message(&mut self, message: Message) {
        let (request, client) = match message {
            Message::Stop => {
                self.stops += 1;
                return;
            }
            Message::Request(request, client) => (*request, client),
            Message::Attach(flash, client) => {
                let (store, label) = *flash;
                let result = self.attach(Cache { store, label });
                return self.answer(result, &client);
            }
        };
        let waits = !matches!(request, Request::Status { settle: false } | Request::Stop);
        if waits && !matches!(self.opened, Some(Ok(_))) {
            let answer = if self.ephemeral { Response::Later } else { Response::Failed };
            let _ = client.send(answer(BEING_OPENED.into()));
            return;
        }
        if waits && self.draining {
            let _ = client.send(Response::Later(control::STOPPING.into()));
            return;
        }
        if let Request::Relocate(ask) = request {
            let _ = client.send(self.relocate(ask).map_or_else(Response::Failed, Response::Relocate));
            return;
        }
        let clients = |volume| self.server.clients_of(volume);
        match command::judged(&request, &self.core.engine, clients, |command| self.rehearse(command)) {
            Ok(Wanted::Command(command, leaving)) => {
                if let Err(error) = self.prepare(&command) {
                    let _ = client.send(Response::Failed(format!("{error:#}")));
                    return;
                }
                let grows = matches!(command, Command::Grow { .. });
                let waiter = Waiter::Client {
                    reply: Some(client),
                    request: Box::new(request.clone()),
                    since: self.clock(),
                    leaving,
                    done: command::done(&request),
                };
                let token = self.submit_command(command, waiter);
                self.growing = self.growing.or(grows.then_some(token));
            }
            Ok(Wanted::Detach) => {
                let result = self.detach();
                self.answer(result, &client);
            }
            Ok(wanted) => {
                self.stops += u32::from(wanted == Wanted::Stop);
                let _ = client.send(Response::Done(Box::new(self.report())));
            }
            Err(refusal) => {
                let _ = client.send(Response::Failed(refusal));
            }
        }
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
