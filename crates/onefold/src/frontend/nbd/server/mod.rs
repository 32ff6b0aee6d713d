//! NBD server in the reactor: accepts connections, advances them, and turns the engine's answers into replies.
//!
//! Owns the listeners, the connections and their requests. Invariants: a connection's slot is free again only when neither the kernel nor the engine holds any
//! of its memory; a failure of one connection never ends the others or the process; connections that wait for the engine are served in order of arrival.

mod answers;

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use engine::{Event, Limits, Nanos, RequestId, VolumeId};
use nbd::Run;
use tracing::{debug, warn};

use crate::frontend::nbd::budget::Later;
use crate::frontend::nbd::connection::{Connection, Progress, State, Turn, Wants};
use crate::frontend::nbd::end::End;
use crate::frontend::nbd::incoming::Shared;
use crate::frontend::nbd::latency::Latencies;
use crate::frontend::nbd::listen::Listener;
use crate::frontend::nbd::output::Departed;
use crate::frontend::nbd::request::COLLECTING_MAX;
use crate::frontend::nbd::tls::{self, Mode, Tls};
use crate::io::arena::BLOCK;
use crate::io::core::Core;
use crate::io::ring::SPANS;
use crate::log::Failures;
use crate::memory::capacity::Connections;

/// Number of handshakes at a time: when more come, the oldest goes.
const HALF_OPEN_MAX: usize = 128;
/// Time that a client may take to choose an export.
const HANDSHAKE_NANOS: Nanos = 10_000_000_000;
/// Time that a client may take to choose an export while there is no space for another client.
const CROWDED_NANOS: Nanos = 1_000_000_000;
/// Time that a client may hold buffers that others wait for: for a piece of a write, and without taking any of a reply.
const STALL_NANOS: Nanos = 30_000_000_000;
/// Keepalive of TCP clients: silence before the first probe, time between probes, and number of unanswered probes after which a client is gone.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(60);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
const KEEPALIVE_COUNT: u32 = 6;
/// Time from a failed accept to the next one (too many open files).
const RETRY_NANOS: Nanos = 100_000_000;
/// Bytes of the largest read that is collected before it is answered, where an error could not be reported later.
const COLLECT_BYTES: u64 = 4 << 20;
/// Bytes of writes that the engine is given between two checks of the sockets.
const SUBMITTED_AT_ONCE: usize = 128 << 10;
/// Most turns of the reactor in a row whose replies are held back to be sent together; they are held only while each turn submits requests and more have
/// arrived.
const REPLIES_TOGETHER: u32 = 8;
/// Divisor of the engine's table of requests: one connection may take one part in 8.
const TABLE_SHARE: u32 = 8;

/// Listeners and connections.
pub struct Server {
    listeners: Vec<Listener>,
    /// True for each listener on which an accept is in flight.
    accepting: Vec<bool>,
    connections: Vec<Option<Box<Connection>>>,
    free: Vec<u32>,
    /// Number of connections at a time, at most.
    most: usize,
    shared: Shared,
    /// Bytes of a read that is collected, at most, however many buffers there are.
    collect_most: u64,
    /// Connections that wait for the engine, in order.
    waiting: VecDeque<u32>,
    /// Number of waiting connections for each resource ([`Wants`]).
    waiting_for: [u32; 2],
    /// Connections that have begun enough for now, in order.
    later: Later,
    /// Connections that may have something to send.
    ready: Vec<u32>,
    /// Turns in a row whose replies wait for those of the next. Only while more can be submitted: then no turn waits.
    replies_held: u32,
    departed: Departed,
    runs: Vec<Run>,
    deadline: Option<Nanos>,
    stopping: bool,
    /// Number of connections accepted so far.
    accepted: u64,
    failures: Failures,
    dropped: Failures,
    unaccepted: Failures,
}

impl Server {
    /// Makes a server on these listeners with this division of memory, for `wanted` clients if there is ever memory for them; it accepts nothing
    /// before [`Server::start`].
    pub fn new(
        listeners: Vec<Listener>,
        limits: &Limits,
        piece_blocks: u32,
        connections: Connections,
        wanted: u32,
        tls: Option<Tls>,
    ) -> Server {
        let mut server = Server {
            accepting: vec![false; listeners.len()],
            listeners,
            connections: Vec::new(),
            free: Vec::new(),
            most: 0,
            shared: Shared::default(),
            collect_most: 0,
            waiting: VecDeque::new(),
            waiting_for: [0; 2],
            later: Later::default(),
            ready: Vec::new(),
            replies_held: 0,
            departed: Vec::new(),
            runs: Vec::new(),
            deadline: None,
            stopping: false,
            accepted: 0,
            failures: Failures::default(),
            dropped: Failures::default(),
            unaccepted: Failures::default(),
        };
        server.shared.tls = tls;
        server.connections.resize_with(wanted as usize, || None);
        server.free = (0..wanted).rev().collect();
        server.divide(limits, piece_blocks, connections);
        server
    }

    /// Keeps to this division of the memory from here on. Requests in service continue as they began.
    pub fn divide(&mut self, limits: &Limits, piece_blocks: u32, connections: Connections) {
        let block = BLOCK as u64;
        // A piece must fit into the write buffers several times over, and into one operation of the ring together with the area for the bytes behind it. The
        // pool's number is only the engine's maximum.
        let most = (limits.write_buffers / 4).min(SPANS as u32 - 4);
        let piece_blocks = u64::from(piece_blocks.min(most).max(1));
        // Reads that are being collected keep their places in the engine's table until they are complete: there is space for
        // all of them. An unaligned one has a piece more.
        let collect_pieces = u64::from(limits.requests / COLLECTING_MAX).saturating_sub(1);
        let piece_bytes = piece_blocks * block;
        let large = self.connections.iter().flatten().filter(|connection| connection.is_large).count();
        self.most = connections.most as usize;
        self.shared.large_left = i64::from(connections.large) - large as i64;
        self.shared.places = limits.requests;
        self.shared.pieces_max = (limits.requests / TABLE_SHARE).max(1);
        self.shared.piece_bytes = piece_bytes;
        self.collect_most = COLLECT_BYTES.min(collect_pieces * piece_bytes);
        self.set_read_buffers(limits.buffers.saturating_sub(limits.write_buffers));
    }

    /// Sets the number of buffers beside those for incoming writes: the boundary between read cache and index has moved.
    pub fn set_read_buffers(&mut self, count: u32) {
        let read_budget = (u64::from(count) * BLOCK as u64 / 2).max(self.shared.piece_bytes);
        self.shared.read_budget = read_budget;
        self.shared.collect_bytes = self.collect_most.min(read_budget / 4);
    }

    /// Returns true if one more client may connect: a slot is free and the limit is not reached.
    fn has_space(&self) -> bool {
        self.connections.len() - self.free.len() < self.most && !self.free.is_empty()
    }

    /// Returns the sockets that it listens on; none after a stop.
    pub fn listeners(&self) -> &[Listener] {
        &self.listeners
    }

    /// Returns the TLS mode for clients over TCP: off, allowed or required.
    pub fn tls(&self) -> Mode {
        self.shared.tls.as_ref().map_or(Mode::Off, Tls::mode)
    }

    /// Accepts wherever no accept is in flight and there is space.
    pub fn start(&mut self, core: &mut Core) {
        if self.stopping || !self.has_space() {
            return;
        }
        for (number, accepting) in self.accepting.iter_mut().enumerate().filter(|(_, accepting)| !**accepting) {
            core.ring.accept(number as u32, self.listeners[number].as_raw_fd());
            *accepting = true;
        }
    }

    /// Takes the result of an accept: begins with the client if there is space, and accepts again, after a failure only after `RETRY_NANOS`.
    pub fn accepted(&mut self, listener: u32, result: i32, socket: Option<OwnedFd>, core: &mut Core) {
        let listener = listener as usize;
        if let Some(accepting) = self.accepting.get_mut(listener) {
            *accepting = false;
        }
        match socket {
            Some(socket) if !self.stopping => {
                let is_tcp = self.listeners[listener].is_tcp();
                if is_tcp {
                    prepare_tcp(&socket);
                }
                // Without a free slot (two listeners, one slot) the client is turned away.
                if self.has_space()
                    && let Some(slot) = self.free.pop()
                {
                    self.welcome(slot, socket, is_tcp, core);
                }
            }
            Some(_) => {}
            None if result == -libc::ECONNABORTED || result == -libc::EINTR => {}
            None if self.stopping => {}
            None => {
                if let Some(number) = self.unaccepted.add(core.now) {
                    let error = std::io::Error::from_raw_os_error(-result);
                    warn!(
                        "no client can be accepted on {}: {error} (number {number})",
                        self.listeners[listener].address()
                    );
                }
                return self.wake_at(core.now + RETRY_NANOS);
            }
        }
        self.start(core);
    }

    /// Begins with a client; if too many are in their handshakes, the oldest of these makes space.
    fn welcome(&mut self, slot: u32, socket: OwnedFd, is_tcp: bool, core: &mut Core) {
        let most = HALF_OPEN_MAX.min(self.most / 2).max(1);
        let half_open = |connection: &&mut Box<Connection>| connection.is_half_open();
        if self.connections.iter_mut().flatten().filter(half_open).count() >= most
            && let Some(oldest) =
                self.connections.iter_mut().flatten().filter(half_open).min_by_key(|connection| connection.number)
        {
            oldest.kill(End::Displaced);
            self.ready.push(oldest.slot());
        }
        self.accepted += 1;
        let (number, peer) = (self.accepted, peer_of(&socket, is_tcp));
        let offered = self.shared.tls.as_ref().filter(|_| is_tcp);
        let tls = offered.map_or(nbd::Tls::Unsupported, Tls::offer);
        debug!("client {number} ({peer}) came");
        let deadline = core.now + HANDSHAKE_NANOS;
        self.connections[slot as usize] =
            Some(Box::new(Connection::new(slot, (socket, tls), (number, peer), deadline, core)));
        self.wake_at(deadline);
        self.advance(slot, core);
        if !self.has_space() {
            self.hurry(core.now + CROWDED_NANOS);
        }
    }

    /// Brings forward the deadline of all handshakes because every slot is taken: handshakes that are not over at that time make space for others.
    fn hurry(&mut self, deadline: Nanos) {
        for connection in self.connections.iter_mut().flatten() {
            connection.deadline = connection.deadline.map(|late| late.min(deadline));
        }
        self.wake_at(deadline);
    }

    /// Takes the result of a receive, and lets the connection continue.
    pub fn received(&mut self, slot: u32, result: i32, core: &mut Core) {
        if let Some(connection) = self.connections[slot as usize].as_mut() {
            connection.received(result, &mut self.shared, core);
            self.advance(slot, core);
        }
    }

    /// Returns true if a receive since the last call probably left something behind in its socket.
    pub fn expects_more(&mut self) -> bool {
        std::mem::take(&mut self.shared.expects_more)
    }

    /// Submits at most about `SUBMITTED_AT_ONCE` bytes of received pieces to the engine, and decides whether the replies of this turn wait for those of the
    /// next.
    pub fn submit_arrived(&mut self, core: &mut Core) {
        let submitted = self.shared.submit_arrived(SUBMITTED_AT_ONCE, core);
        self.replies_held = if submitted && self.replies_held < REPLIES_TOGETHER { self.replies_held + 1 } else { 0 };
    }

    /// Returns true if there is something to do without a new event: the engine can take a piece of a write that has arrived, or a connection has more
    /// requests to begin than its turns took so far.
    pub fn has_work(&self, core: &Core) -> bool {
        self.shared.has_arrived(core) || !self.later.is_empty()
    }

    /// Takes the result of a send: gives the answers that have left back to the engine, and lets the connection continue.
    pub fn sent(&mut self, slot: u32, result: i32, core: &mut Core) {
        let Some(connection) = self.connections[slot as usize].as_mut() else { return };
        let socket = connection.socket.as_raw_fd();
        connection.last_progress = core.now;
        if !connection.output.completed(result, slot, socket, core, &mut self.departed) {
            connection.kill(End::Gone);
        } else if !connection.is_large && !connection.output.is_sending() {
            connection.output.shrink();
        }
        self.release(slot, core);
        self.advance(slot, core);
    }

    /// Lets a connection continue; queues it if it has to wait, and sets the deadlines that follow.
    fn advance(&mut self, slot: u32, core: &mut Core) {
        let Some(connection) = self.connections[slot as usize].as_mut() else { return };
        // A queued connection has its turn when the queue is walked.
        let queued = connection.waiting.is_some();
        let nobody = |wants| !queued && self.waiting_for[wants as usize] == 0;
        let turn = Turn { place: nobody(Wants::Place), buffers: nobody(Wants::Buffers) };
        match connection.advance(turn, &mut self.shared, core) {
            Progress::Engine(wants) if !queued => {
                connection.waiting = Some(wants);
                self.waiting_for[wants as usize] += 1;
                self.waiting.push_back(slot);
                self.wake_at(core.now + STALL_NANOS);
            }
            Progress::Later => self.later.add(connection),
            _ => {}
        }
        if self.connections[slot as usize].as_ref().is_some_and(|connection| connection.state == State::Draining) {
            self.wake_at(core.now + STALL_NANOS);
        }
        self.ready.push(slot);
        if std::mem::take(&mut self.shared.began_tls) {
            self.limit_tls(slot);
        }
    }

    /// Kills the oldest handshake if the client in `newest` has taken one place for TLS too many; that is the newest itself if it is the only
    /// handshake.
    fn limit_tls(&mut self, newest: u32) {
        let relayed = || self.connections.iter().flatten().filter(|connection| connection.has_tls_place());
        let handshakes = || relayed().filter(|connection| connection.is_half_open());
        if relayed().count() <= tls::CLIENTS_MAX && handshakes().count() <= tls::HANDSHAKES_MAX {
            return;
        }
        let Some(oldest) = handshakes().min_by_key(|connection| connection.number).map(|oldest| oldest.slot()) else {
            return;
        };
        if let Some(connection) = self.connections[oldest as usize].as_mut() {
            connection.kill(if oldest == newest { End::NoMoreTls } else { End::Displaced });
            self.ready.push(oldest);
        }
    }

    /// Begins a turn of the reactor: continues some of the connections that had more to begin than the last turns took.
    pub fn begin_turn(&mut self, core: &mut Core) {
        self.shared.turn += 1;
        for _ in 0..self.later.due() {
            if let Some(slot) = self.later.next(&mut self.connections) {
                self.advance(slot, core);
            }
        }
    }

    /// Continues the connections that wait for the engine, and starts sends unless the replies of this turn are held; returns true if anything was done.
    pub fn advance_all(&mut self, core: &mut Core) -> bool {
        let any = self.resume(core);
        // This must be checked here: the steps before may take the rest of the queue, and then the next turn waits.
        if self.replies_held > 0 && self.shared.has_arrived(core) {
            return any;
        }
        self.replies_held = 0;
        self.flush(core) || any
    }

    /// Continues the connections that wait for the engine; returns true if any did. Only the first that waits for a resource may take it; the others
    /// continue if they have it already.
    fn resume(&mut self, core: &mut Core) -> bool {
        let (mut any, mut at) = (false, 0);
        let mut turn = Turn { place: true, buffers: true };
        while let Some(slot) = self.waiting.get(at).copied() {
            let Some(connection) = self.connections[slot as usize].as_mut() else {
                self.waiting.remove(at);
                continue;
            };
            let before = connection.waiting.take();
            if let Some(wants) = before {
                self.waiting_for[wants as usize] -= 1;
            }
            match connection.advance(turn, &mut self.shared, core) {
                Progress::Engine(wants) => {
                    connection.waiting = Some(wants);
                    self.waiting_for[wants as usize] += 1;
                    match wants {
                        Wants::Place => turn.place = false,
                        Wants::Buffers => turn.buffers = false,
                    }
                    at += 1;
                }
                progress => {
                    if progress == Progress::Later {
                        self.later.add(connection);
                    }
                    self.ready.push(slot);
                    self.waiting.remove(at);
                    any = true;
                }
            }
        }
        any
    }

    /// Starts sends of everything that is ready, and closes connections that have ended; returns true if the engine was told something.
    fn flush(&mut self, core: &mut Core) -> bool {
        let mut any = false;
        while let Some(slot) = self.ready.pop() {
            let Some(connection) = self.connections[slot as usize].as_mut() else { continue };
            if connection.state != State::Dead {
                if !connection.output.is_sending() {
                    connection.last_progress = core.now;
                }
                let header_bytes = connection.send_header_bytes();
                let socket = connection.socket.as_raw_fd();
                connection.output.send(slot, socket, header_bytes, core, &mut self.departed);
            }
            if self.release(slot, core) {
                any = true;
                // It may have stopped because its reads held too much.
                self.advance(slot, core);
            }
            any |= self.close_if_done(slot, core);
        }
        any
    }

    /// Gives answers that have left back to the engine; returns true if there were any.
    fn release(&mut self, slot: u32, core: &mut Core) -> bool {
        let any = !self.departed.is_empty();
        for (answer, bytes) in self.departed.drain(..) {
            self.shared.read_bytes -= bytes;
            if let Some(connection) = self.connections[slot as usize].as_mut() {
                connection.read_bytes -= bytes;
                connection.pieces -= 1;
            }
            self.shared.places_taken -= 1;
            core.engine.handle(core.now, Event::Sent(answer));
        }
        any
    }

    /// Closes a connection that has ended; returns true if the engine was told something.
    fn close_if_done(&mut self, slot: u32, core: &mut Core) -> bool {
        let Some(connection) = self.connections[slot as usize].as_mut() else { return false };
        let mut told = false;
        match connection.state {
            State::Open => return false,
            State::Draining => {
                let quiet = connection.requests == 0 && connection.output.is_empty() && connection.deferred.is_empty();
                if !quiet || connection.is_in_kernel() {
                    return false;
                }
            }
            State::Dead => {
                if connection.is_in_kernel() {
                    return false;
                }
                told = self.bury(slot, core);
                if self.connections[slot as usize].as_ref().is_some_and(|connection| connection.requests > 0) {
                    return told;
                }
            }
        }
        if let Some(connection) = self.connections[slot as usize].take() {
            if let Some(wants) = connection.waiting {
                self.waiting_for[wants as usize] -= 1;
            }
            self.shared.read_bytes -= connection.read_bytes;
            self.shared.large_left += i64::from(connection.is_large);
            report_end(&mut self.dropped, core.now, &connection);
        }
        self.shared.members.leave(slot);
        core.arena.forget(slot as usize);
        self.waiting.retain(|waiting| *waiting != slot);
        self.later.forget(slot);
        self.free.push(slot);
        self.start(core);
        told
    }

    /// Gives back everything that a dead connection holds, except for requests that the engine has not answered yet; returns true if the engine was
    /// told something.
    fn bury(&mut self, slot: u32, core: &mut Core) -> bool {
        let Some(connection) = self.connections[slot as usize].as_mut() else { return false };
        if let Some(place) = connection.abandon(core) {
            self.shared.table.get(place).submitted = true;
        }
        connection.output.clear(&mut self.departed);
        connection.deferred.clear();
        connection.holder = None;
        let mut answers: Vec<RequestId> = Vec::new();
        for place in self.shared.table.of_connection(slot) {
            let entry = self.shared.table.get(place);
            if let Some(read) = &mut entry.read {
                answers.extend(read.answers.iter_mut().filter_map(|answer| answer.take()?.ok()));
            }
            if entry.outstanding == 0 {
                self.shared.table.remove(place);
                connection.requests -= 1;
            }
        }
        let mut any = !answers.is_empty();
        connection.pieces -= answers.len() as u32;
        self.shared.places_taken -= answers.len() as u32;
        for answer in answers {
            core.engine.handle(core.now, Event::Sent(answer));
        }
        any |= self.release(slot, core);
        any
    }

    /// Returns the time at which [`Server::expire`] must be called; `None` if nothing is timed.
    pub fn next_deadline(&self) -> Option<Nanos> {
        self.deadline
    }

    fn wake_at(&mut self, time: Nanos) {
        self.deadline = Some(self.deadline.map_or(time, |deadline| deadline.min(time)));
    }

    /// Kills connections that have exceeded a limit: late handshakes, clients that stall others, and clients that take no last replies.
    pub fn expire(&mut self, core: &mut Core) {
        if self.deadline.is_none_or(|deadline| deadline > core.now) {
            return;
        }
        self.deadline = None;
        let starving = !self.waiting.is_empty();
        let mut next: Option<Nanos> = starving.then(|| core.now + STALL_NANOS / 10);
        for (slot, connection) in self.connections.iter_mut().enumerate() {
            let Some(connection) = connection else { continue };
            let late = connection.deadline.is_some_and(|deadline| deadline <= core.now);
            let kept = connection.keeps_buffers_since().map_or(0, |since| core.now.saturating_sub(since));
            let leaving = connection.state == State::Draining && connection.output.is_sending();
            let lingers = leaving && core.now.saturating_sub(connection.last_progress) > STALL_NANOS;
            if late || lingers || (starving && kept > STALL_NANOS) {
                connection.kill(if late { End::LateHandshake } else { End::Stalled });
                self.ready.push(slot as u32);
                continue;
            }
            let again = leaving.then_some(core.now + STALL_NANOS / 10);
            next = [next, connection.deadline, again].into_iter().flatten().min();
        }
        self.deadline = next;
        self.start(core);
    }

    /// Stops accepting connections and requests; requests in service are still answered. Later requests of a client get no answer, so that a client that
    /// connects again sends them to the next server. An error would reach the origin of the request: a guest's file system.
    pub fn stop(&mut self, core: &mut Core) {
        self.stopping = true;
        for (number, listener) in self.listeners.iter().enumerate() {
            // Clients that come from now on belong to the process that handed the socket over.
            if listener.is_inherited() && self.accepting[number] {
                core.ring.cancel_accept(number as u32);
            }
        }
        // An accept that the kernel does not know yet would refer to the next file with the number of a closed listener.
        if core.ring.submit() {
            self.listeners.clear();
            self.accepting.clear();
        }
        for connection in self.connections.iter_mut().flatten() {
            connection.leave(core.now);
        }
    }

    /// Returns true if every request was answered and every answer has left.
    pub fn is_quiet(&self) -> bool {
        let quiet = |connection: &Connection| connection.requests == 0 && connection.output.is_empty();
        self.connections.iter().flatten().all(|connection| quiet(connection))
    }

    /// Returns true if the engine has requests to answer, or holds answers that have not left.
    pub fn is_in_service(&self) -> bool {
        self.shared.places_taken > 0
    }

    /// Returns the number of requests that have ever come.
    pub fn requests(&self) -> u64 {
        self.shared.table.entered
    }

    /// Returns the times of the requests that were answered, by kind.
    pub fn latencies(&self) -> &Latencies {
        &self.shared.latencies
    }

    /// Counts the connections, and those of them with requests or replies in service.
    pub fn in_service(&self) -> (usize, usize) {
        let connections = || self.connections.iter().flatten();
        let busy = connections().filter(|connection| connection.requests > 0 || !connection.output.is_empty());
        (connections().count(), busy.count())
    }

    /// Counts the connections to a volume that are not dead.
    pub fn clients_of(&self, volume: VolumeId) -> usize {
        let uses = |connection: &Connection| connection.volume() == volume && connection.state != State::Dead;
        self.connections.iter().flatten().filter(|connection| uses(connection)).count()
    }

    /// Counts the connections that are not dead, by their volumes; volumes without any are left out.
    pub fn clients(&self) -> HashMap<VolumeId, usize> {
        let mut clients = HashMap::new();
        for connection in self.connections.iter().flatten().filter(|connection| connection.state != State::Dead) {
            *clients.entry(connection.volume()).or_default() += 1;
        }
        clients
    }

    /// Kills the connections for which `chosen` returns true.
    pub fn disconnect(&mut self, chosen: impl Fn(&Connection) -> bool) {
        for (slot, connection) in self.connections.iter_mut().enumerate() {
            if let Some(connection) = connection
                && chosen(connection)
            {
                connection.kill(End::Stopping);
                self.ready.push(slot as u32);
            }
        }
    }

    /// Ends the connections to a volume as a stop does: received requests are answered, and clients that connect again resend the others.
    pub fn let_go(&mut self, volume: VolumeId, core: &Core) {
        for (slot, connection) in self.connections.iter_mut().enumerate() {
            if let Some(connection) = connection
                && connection.volume() == volume
                && !connection.is_half_open()
            {
                connection.part(core.now);
                self.ready.push(slot as u32);
            }
        }
        self.wake_at(core.now + STALL_NANOS);
    }

    /// Returns true if no connection is left.
    pub fn is_empty(&self) -> bool {
        self.connections.iter().all(Option::is_none)
    }
}

/// Sets TCP options: replies leave at once, and a client whose machine is gone does not keep its slot permanently. A failure is ignored: another setting of the
/// system does no harm.
fn prepare_tcp(socket: &OwnedFd) {
    use rustix::net::sockopt;
    let _ = sockopt::set_tcp_nodelay(socket, true);
    let _ = sockopt::set_socket_keepalive(socket, true);
    let _ = sockopt::set_tcp_keepidle(socket, KEEPALIVE_IDLE);
    let _ = sockopt::set_tcp_keepintvl(socket, KEEPALIVE_INTERVAL);
    let _ = sockopt::set_tcp_keepcnt(socket, KEEPALIVE_COUNT);
}

/// Returns the address of a TCP client, `tcp` if it is not known, or `unix`.
fn peer_of(socket: &OwnedFd, is_tcp: bool) -> String {
    if !is_tcp {
        return "unix".into();
    }
    let address = rustix::net::getpeername(socket).ok().and_then(|address| SocketAddr::try_from(address?).ok());
    address.map_or_else(|| "tcp".into(), |address| address.to_string())
}

/// Logs that a connection has ended, and the reason if the server ended it.
fn report_end(dropped: &mut Failures, now: Nanos, connection: &Connection) {
    let (number, peer) = (connection.number, &connection.peer);
    match connection.end {
        None => debug!("client {number} ({peer}) left"),
        Some(end @ (End::Gone | End::Stopping)) => debug!("client {number} ({peer}): {end}"),
        Some(end) => {
            if let Some(count) = dropped.add(now) {
                warn!("client {number} ({peer}) was disconnected: {end} (disconnection {count} since the start)");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::Geometry;

    #[test]
    fn a_piece_fits_into_one_operation_whatever_the_pool_says() {
        let geometry = Geometry { piece_blocks: 4096, ..Geometry::for_capacity(1 << 30).unwrap() };
        let limits = Limits::for_memory(512 << 20, &geometry).unwrap();
        let block = BLOCK as u64;
        for piece_blocks in [1, 256, 257, 4096] {
            let shared =
                Server::new(Vec::new(), &limits, piece_blocks, Connections { most: 1024, large: 8 }, 1024, None).shared;
            assert!(shared.piece_bytes / block < SPANS as u64);
            assert!(
                shared.collect_bytes / shared.piece_bytes * u64::from(COLLECTING_MAX) <= u64::from(limits.requests)
            );
            assert_eq!(shared.piece_bytes, u64::from(piece_blocks.min(256)) * block);
        }
    }
}
