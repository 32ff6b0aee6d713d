//! Connection of one client: parses its bytes and submits its requests to the engine piece by piece.
//!
//! Owns the socket, the protocol session, the receive area and the buffers of the piece that is being received.
//!
//! States: handshake; then for each request in order: parsed, (payload received,) submitted piece by piece. One request at a time is in this part; any number
//! of earlier ones wait for their answers. A connection ends by draining (goodbye or end of file: outstanding requests are answered first) or dead (error:
//! outstanding buffers are only given back).
//!
//! A received piece of a write does not go to the engine at once, but into a queue that all connections share. Its digests and all later steps take longer than
//! to empty a socket. A socket is small, and a client whose socket is full sleeps. So the reactor receives the clients' bytes first, again between any two
//! steps through that queue ([`Shared::submit_arrived`]).
//!
//! Back-pressure: nothing is received while the engine has no space for a request or no buffers for a piece, or while the client does not take its replies. The
//! replies that one client leaves untaken are bounded, so that others have space. Buffers for a piece, or for a read that is collected, are taken all or none,
//! in order of arrival. Their holder needs nothing else that a connection could hold, so connections cannot wait for each other.
//!
//! Memory: a connection begins with a small share of memory to receive and send with. One whose client sends more than that at once gets a large share while
//! there are any, and keeps it.

use std::collections::VecDeque;

use std::os::fd::{AsRawFd, OwnedFd};

use engine::{Event, Nanos, Operation, Submit, VolumeId};
use nbd::{Command, Request, Session, Step};

use crate::frontend::nbd::budget::IterationBudget;
use crate::frontend::nbd::end::End;
use crate::frontend::nbd::exports::VolumeExports;
use crate::frontend::nbd::incoming::{Arrived, FEW_BLOCKS, Incoming, Shared};
use crate::frontend::nbd::members::{Identity, Member};
use crate::frontend::nbd::output::Output;
use crate::frontend::nbd::request::{Pieces, token, touched_bytes};
use crate::frontend::nbd::tls::Certificate;
use crate::io::arena::{BLOCK, HEADER_AREA, RECEIVE_AREA, Span};
use crate::io::core::Core;
use crate::io::disk::push_span;
use crate::io::peer;
use crate::store::host;

/// Requests of one connection that may wait for their answers.
const REQUESTS_MAX: u32 = 1024;
/// Limits of one connection: small for most, large for a few. `memory/capacity.rs` counts their bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Share {
    /// Bytes received at once.
    receive_bytes: usize,
    /// Bytes of headers sent at once.
    send_header_bytes: usize,
    /// Items that may wait to be sent before no more requests are taken.
    output: usize,
    /// Replies that may wait until a reply in several parts is complete.
    deferred: usize,
    /// Bytes of headers that may wait to be sent before no more requests are taken.
    header_bytes: usize,
}

const SMALL: Share =
    Share { receive_bytes: 8 << 10, send_header_bytes: 4 << 10, output: 128, deferred: 16, header_bytes: 4 << 10 };
const LARGE: Share = Share {
    receive_bytes: RECEIVE_AREA,
    send_header_bytes: HEADER_AREA,
    output: 1024,
    deferred: 1024,
    header_bytes: 64 << 10,
};

/// Bytes of reads that one connection may have in flight, unless it is a single piece or a single request.
const READ_WINDOW: u64 = 8 << 20;
/// Bytes received behind a payload of at least `LONG_PAYLOAD`: few headers follow it, and more would only mean copying the next payload.
const TAIL_BEHIND_PAYLOAD: usize = 4096;
const LONG_PAYLOAD: usize = 32 << 10;
/// Number of extents of one answer at most.
const EXTENTS_MAX: u32 = 128;

/// Minimum that a connection may have although others hold most of everything: bytes of buffers for reads, and places in the engine's table. Clients that take
/// no replies keep their buffers; a client with small requests does not wait for them.
const SURE_READ_BYTES: u64 = 64 << 10;
const SURE_PIECES: u32 = 2;

/// Stage of a connection's life: served, draining or dead.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// Requests are taken.
    Open,
    /// No more input: it is closed when all replies have left.
    Draining,
    /// Closed as soon as the kernel and the engine no longer use its memory.
    Dead,
}

/// Reason why [`Connection::advance`] stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Progress {
    /// It waits for its client: to send, or to take replies.
    Client,
    /// It waits for the engine.
    Engine(Wants),
    /// It has used its budget of this turn: others first.
    Later,
}

/// Resource of the engine that a connection waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wants {
    /// A place in the table, or buffers for a read.
    Place,
    /// Buffers for a piece of a write.
    Buffers,
}

/// Resources for which no connection that came earlier waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Turn {
    /// True if none waits for a place, or for buffers for a read.
    pub place: bool,
    /// True if none waits for buffers for a write.
    pub buffers: bool,
}

/// A reply that waits until a reply in several parts is complete.
pub enum Deferred {
    /// The reply to a request in the table.
    Request(u32),
    /// The reply itself, as the bytes to be sent.
    Bytes(Vec<u8>),
}

/// The request that is being received.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Current {
    None,
    /// Anything without payload and data.
    Plain(u32),
    /// A read: its next piece.
    Read(u32, u32),
    /// A write: its next piece.
    Write(u32, u32),
}

/// A connection.
pub struct Connection {
    /// The socket.
    pub socket: OwnedFd,
    /// State of the NBD protocol with this client.
    pub session: Session,
    /// Address of the client, or `unix`.
    pub peer: String,
    /// Number of the connection in the order of all that came.
    pub number: u64,
    /// Stage of the connection: served, draining or dead.
    pub state: State,
    /// Reason why it is dead.
    pub end: Option<End>,
    /// Time at which the handshake must be over; `None` once it is.
    pub deadline: Option<Nanos>,
    /// Queue of replies and data to be sent.
    pub output: Output,
    /// Requests in the table.
    pub requests: u32,
    /// Pieces that take a place in the engine's table: submitted, and not yet answered or not yet sent.
    pub pieces: u32,
    /// Bytes of buffers that its reads hold, or will hold.
    pub read_bytes: u64,
    /// Place of the request whose reply must not be interrupted.
    pub holder: Option<u32>,
    /// Replies that wait, the oldest first, while the reply of another request, [`Connection::holder`], must not be interrupted.
    pub deferred: VecDeque<Deferred>,
    /// Resource that it waits for, while it is in the queue of those that wait for the engine.
    pub waiting: Option<Wants>,
    /// Requests that it has begun in this turn of the reactor.
    pub begun: IterationBudget,
    /// Time at which it last began to send, or sent anything.
    pub last_progress: Nanos,
    /// True if it has a large share of memory.
    pub is_large: bool,
    volume: VolumeId,
    slot: u32,
    /// Part of the receive area that is not used up.
    input: Span,
    /// Payload bytes that the receive in flight takes first, and how many in all.
    receiving: Option<(usize, usize)>,
    current: Current,
    /// True if TLS begins once the replies in the clear have left.
    secures: bool,
    /// True if a list of exports continues once its last part has left.
    lists: bool,
    /// True if the relay has its client's socket.
    is_relayed: bool,
    /// The process that connected, if it is known.
    process: Option<Identity>,
    /// SHA-256 digest of the client's certificate, set once the relay has seen it.
    certificate: Certificate,
    has_written: bool,
    incoming: Incoming,
    spans: Vec<Span>,
}

impl Connection {
    /// Returns a new connection at `slot`, with its greeting ready to be sent and its handshake to end by `deadline`.
    pub fn new(
        slot: u32,
        (socket, tls): (OwnedFd, nbd::Tls),
        (number, peer): (u64, String),
        deadline: Nanos,
        core: &Core,
    ) -> Connection {
        let mut output = Output::default();
        let session = output.write(|output| Session::new(tls, output));
        let process = peer::process_of(&socket).map(|process| Identity::Process(process, host::start_of(process)));
        Connection {
            socket,
            session,
            peer,
            number,
            state: State::Open,
            end: None,
            deadline: Some(deadline),
            output,
            requests: 0,
            pieces: 0,
            read_bytes: 0,
            holder: None,
            deferred: VecDeque::new(),
            waiting: None,
            begun: IterationBudget::default(),
            last_progress: core.now,
            is_large: false,
            volume: VolumeId(0),
            slot,
            input: core.arena.receive_area(slot as usize).first(0),
            receiving: None,
            current: Current::None,
            secures: false,
            lists: false,
            is_relayed: false,
            process,
            certificate: Certificate::default(),
            has_written: false,
            incoming: Incoming::default(),
            spans: Vec::new(),
        }
    }

    /// Returns its index in the server's table of connections.
    pub fn slot(&self) -> u32 {
        self.slot
    }

    fn share(&self) -> &'static Share {
        if self.is_large { &LARGE } else { &SMALL }
    }

    /// Returns the bytes of headers that it may send at once, by its share.
    pub fn send_header_bytes(&self) -> usize {
        self.share().send_header_bytes
    }

    /// Returns true if it is in the handshake and not dead.
    pub fn is_half_open(&self) -> bool {
        self.state != State::Dead && self.session.is_in_handshake()
    }

    /// Describes the connection as a user of its volume.
    fn member(&self) -> Member {
        Member {
            slot: self.slot,
            number: self.number,
            peer: self.peer.clone(),
            identity: Identity::of(&self.certificate, self.process),
            volume: self.volume,
        }
    }

    /// Returns true if it takes one of the places for TLS: relayed and not dead.
    pub fn has_tls_place(&self) -> bool {
        self.is_relayed && self.state != State::Dead
    }

    /// Returns the volume that its client has chosen; 0, which is no volume, before that.
    pub fn volume(&self) -> VolumeId {
        self.volume
    }

    /// Returns true if the kernel uses its memory: a receive or send is in flight.
    pub fn is_in_kernel(&self) -> bool {
        self.receiving.is_some() || self.output.is_sending()
    }

    /// Returns the time since which its client has kept buffers: with an uncompleted piece of a write, even if bytes trickle in, or with replies of which it
    /// takes nothing.
    pub fn keeps_buffers_since(&self) -> Option<Nanos> {
        let receives = self.receiving.is_some() && !self.incoming.inputs.is_empty();
        let sends = self.output.is_sending() && self.read_bytes > 0;
        let both = [receives.then_some(self.incoming.since), sends.then_some(self.last_progress)];
        both.into_iter().flatten().min()
    }

    /// Continues as far as it can. It takes resources that connections compete for only if `turn` allows it.
    pub fn advance(&mut self, turn: Turn, shared: &mut Shared, core: &mut Core) -> Progress {
        while self.receiving.is_none() && self.state != State::Dead {
            let progress = match self.current {
                Current::None if self.state == State::Draining || self.is_choked() => Some(Progress::Client),
                Current::None if (self.secures || self.lists) && !self.output.is_empty() => Some(Progress::Client),
                Current::None if self.secures => {
                    self.secure(shared);
                    None
                }
                Current::None if self.input.length == 0 && !self.lists => {
                    self.receive(core);
                    Some(Progress::Client)
                }
                Current::None if self.begun.may_go_on(shared.turn, self.session.is_in_handshake()) => {
                    self.parse(shared, core);
                    None
                }
                Current::None => Some(Progress::Later),
                Current::Plain(place) => self.submit_plain(place, turn.place, shared, core),
                Current::Read(place, piece) => self.submit_read(place, piece, turn.place, shared, core),
                Current::Write(place, piece) => self.take_write(place, piece, turn.buffers, shared, core),
            };
            if let Some(progress) = progress {
                return progress;
            }
        }
        Progress::Client
    }

    /// Returns true if no more requests are taken, since too many requests, output items, header bytes or deferred replies wait.
    fn is_choked(&self) -> bool {
        self.requests >= REQUESTS_MAX
            || self.output.len() >= self.share().output
            || self.output.header_bytes() >= self.share().header_bytes
            || self.deferred.len() >= self.share().deferred
    }

    /// Receives the rest of the payload of the current piece, and the bytes behind it.
    fn receive(&mut self, core: &mut Core) {
        let area = core.arena.receive_area(self.slot as usize);
        self.spans.clear();
        let payload = self.incoming.length - self.incoming.received;
        let mut tail = self.share().receive_bytes;
        if payload > 0 {
            self.incoming.rest(core, &mut self.spans);
            if self.incoming.length >= LONG_PAYLOAD {
                tail = TAIL_BEHIND_PAYLOAD;
            }
        }
        push_span(&mut self.spans, area.first(tail));
        self.input = area.first(0);
        self.receiving = Some((payload, payload + tail));
        core.ring.receive(self.slot, self.socket.as_raw_fd(), &core.arena, &self.spans);
    }

    /// Takes the result of a receive. The end of file between requests is a goodbye; anywhere else, and on an error, the connection dies.
    pub fn received(&mut self, result: i32, shared: &mut Shared, core: &mut Core) {
        let (payload, most) = self.receiving.take().unwrap_or((0, 0));
        if self.state == State::Dead || result == -libc::EINTR || result == -libc::EAGAIN {
            return;
        }
        if result <= 0 {
            // The end of file between requests is a goodbye; anywhere else the client is gone.
            let goodbye = result == 0 && self.current == Current::None && !self.session.is_in_handshake();
            if goodbye {
                self.drain(core.now);
            } else {
                self.kill(End::Gone);
            }
            return;
        }
        let count = result as usize;
        let direct = count.min(payload);
        shared.expects_more |= count == most;
        if count == most && count > direct && !self.is_large && shared.large_left > 0 {
            shared.large_left -= 1;
            self.is_large = true;
        }
        self.incoming.received += direct;
        if self.incoming.received < self.incoming.length {
            // There is nothing else to do until the rest comes.
            self.incoming.digest(core);
        }
        self.input = core.arena.receive_area(self.slot as usize).first(count - direct);
    }

    /// Feeds the session, up to one step.
    fn parse(&mut self, shared: &mut Shared, core: &mut Core) {
        let input = core.arena.bytes(self.input);
        let exports = VolumeExports {
            engine: &core.engine,
            members: &shared.members,
            process: self.process,
            certificate: &self.certificate,
        };
        let session = &mut self.session;
        let progress = self.output.write(|output| session.receive(input, &exports, output));
        self.input = self.input.from(progress.consumed);
        let continued = std::mem::replace(&mut self.lists, progress.step == Step::ListPart);
        match progress.step {
            Step::Proceed if progress.consumed == 0 && !continued => self.kill(End::Gone),
            Step::Proceed | Step::ListPart => {}
            Step::Established { export } => {
                self.deadline = None;
                let Some(volume) = core.engine.volume_named(&export) else { return self.kill(End::Gone) };
                self.volume = volume.id;
                shared.members.enter(self.member());
            }
            Step::ExportRefused { reason } => shared.members.refused(&self.member(), &reason, core.now),
            Step::StartTls if self.input.length > 0 => self.kill(End::ClearBeforeTls),
            Step::StartTls => self.secures = true,
            Step::Request(request) => self.begin(request, shared, core),
            Step::Refused(refused) if self.holder.is_some() => {
                let mut bytes = Vec::new();
                refused.reply(&mut bytes);
                self.deferred.push_back(Deferred::Bytes(bytes));
            }
            Step::Refused(refused) => self.output.write(|output| refused.reply(output)),
            Step::Disconnect => self.drain(core.now),
            Step::ProtocolError(violation) => self.kill(End::Violation(violation)),
        }
    }

    /// Gives the socket to the TLS relay and continues with what that decrypts; kills the connection if there are no more places or sockets.
    fn secure(&mut self, shared: &mut Shared) {
        self.secures = false;
        let relayed = self.socket.try_clone().ok().zip(shared.tls.as_ref());
        let who = format!("client {} ({})", self.number, self.peer);
        match relayed.and_then(|(socket, tls)| tls.secure(socket, who, self.certificate.clone())) {
            Some(socket) => {
                self.socket = socket;
                self.is_relayed = true;
                shared.began_tls = true;
            }
            None => self.kill(End::NoMoreTls),
        }
    }

    /// Enters a request in the table and makes it the current one.
    fn begin(&mut self, request: Request, shared: &mut Shared, core: &Core) {
        let writes = matches!(request.command, Command::Write | Command::Trim | Command::WriteZeroes);
        if writes && !self.has_written {
            self.has_written = true;
            let volume = core.engine.volume(self.volume);
            shared.members.writes(self.slot, volume.map_or("", |volume| &volume.name), core.now);
        }
        let piece_bytes = match request.command {
            Command::Read | Command::Write => shared.piece_bytes,
            // The engine takes these at any length.
            Command::Flush | Command::Trim | Command::WriteZeroes | Command::BlockStatus => 1 << 62,
        };
        let pieces = Pieces::new(request.offset, u64::from(request.length), piece_bytes, BLOCK as u64);
        let place = shared.table.insert(self.slot, request, pieces, shared.collect_bytes, core.now);
        self.requests += 1;
        self.current = match request.command {
            Command::Read => Current::Read(place, 0),
            Command::Write => Current::Write(place, 0),
            Command::Flush | Command::Trim | Command::WriteZeroes | Command::BlockStatus => Current::Plain(place),
        };
    }

    fn submit_plain(&mut self, place: u32, first: bool, shared: &mut Shared, core: &mut Core) -> Option<Progress> {
        if self.pieces >= shared.pieces_max {
            return Some(Progress::Client);
        }
        if !self.may_take_place(first, shared) || !self.is_next(shared, core) || !core.engine.can_submit() {
            return Some(Progress::Engine(Wants::Place));
        }
        let entry = shared.table.get(place);
        let request = entry.request;
        let operation = match request.command {
            Command::Flush => Operation::Flush,
            Command::Trim => Operation::Trim,
            Command::WriteZeroes => Operation::WriteZeroes,
            Command::BlockStatus if request.flags.one_extent() => Operation::Extents { limit: 1 },
            Command::BlockStatus => Operation::Extents { limit: EXTENTS_MAX },
            Command::Read | Command::Write => unreachable!("reads and writes are submitted in pieces"),
        };
        (entry.outstanding, entry.submitted) = (1, true);
        self.submit(
            token(self.slot, place, 0),
            &request,
            (request.offset, u64::from(request.length)),
            operation,
            shared,
            core,
        );
        self.current = Current::None;
        None
    }

    fn submit_read(
        &mut self,
        place: u32,
        piece: u32,
        first: bool,
        shared: &mut Shared,
        core: &mut Core,
    ) -> Option<Progress> {
        let entry = shared.table.get(place);
        let (request, pieces) = (entry.request, entry.pieces);
        let (collect, holds_stream) =
            entry.read.as_ref().map_or((false, false), |read| (read.collect, read.holds_stream));
        let (offset, length) = pieces.get(piece);
        // Once the first piece is on its way no other reply is sent before the last: earlier reads that are answered
        // later would keep the buffers that the next pieces need.
        if holds_stream && piece == 0 && self.read_bytes > 0 {
            return Some(Progress::Client);
        }
        // A collected read is charged as a whole, so that it can be completed whatever others do.
        let charge = match (collect, piece) {
            (true, 0) => touched_bytes(request.offset, u64::from(request.length), BLOCK as u64),
            (true, _) => 0,
            (false, _) => touched_bytes(offset, length, BLOCK as u64),
        };
        let full = self.read_bytes > 0 && self.read_bytes + charge > READ_WINDOW;
        if charge > 0 && (full || self.pieces >= shared.pieces_max) {
            return Some(Progress::Client);
        }
        // A charged read waits for no other: others may be waiting for its buffers.
        let affordable = charge == 0 || self.may_take_place(first, shared) && self.may_read(charge, first, shared);
        if !affordable || !self.is_next(shared, core) || !core.engine.can_submit() {
            return Some(Progress::Engine(Wants::Place));
        }
        let entry = shared.table.get(place);
        shared.read_bytes += charge;
        self.read_bytes += charge;
        entry.outstanding += 1;
        entry.submitted = piece + 1 == pieces.count();
        self.current = if entry.submitted { Current::None } else { Current::Read(place, piece + 1) };
        let token = token(self.slot, place, piece);
        self.submit(token, &request, (offset, length), Operation::Read { object: 0 }, shared, core);
        None
    }

    /// Returns true if there is a place in the engine's table for it: half of the places are for connections that have none.
    fn may_take_place(&self, first: bool, shared: &Shared) -> bool {
        self.pieces < SURE_PIECES || first && shared.places_taken < shared.places / 2
    }

    /// Returns true if there are `charge` bytes of buffers for a read: a quarter of the budget is for connections that hold few.
    fn may_read(&self, charge: u64, first: bool, shared: &Shared) -> bool {
        let (taken, budget) = (shared.read_bytes, shared.read_budget);
        let sure = self.read_bytes + charge <= SURE_READ_BYTES && taken + charge <= budget;
        sure || first && (taken == 0 || taken + charge <= budget / 4 * 3)
    }

    /// Takes in a piece of a write: buffers, payload, submission.
    fn take_write(
        &mut self,
        place: u32,
        piece: u32,
        first: bool,
        shared: &mut Shared,
        core: &mut Core,
    ) -> Option<Progress> {
        let (offset, length) = shared.table.get(place).pieces.get(piece);
        if self.incoming.inputs.is_empty() && self.pieces >= shared.pieces_max {
            return Some(Progress::Client);
        }
        if self.incoming.inputs.is_empty() && !(first && self.incoming.begin(offset, length as usize, shared, core)) {
            return Some(Progress::Engine(Wants::Buffers));
        }
        let count = self.input.length.min(self.incoming.length - self.incoming.received);
        self.incoming.copy(self.input.first(count), core);
        self.input = self.input.from(count);
        if self.incoming.received < self.incoming.length {
            self.receive(core);
            return Some(Progress::Client);
        }
        let entry = shared.table.get(place);
        entry.outstanding += 1;
        entry.submitted = piece + 1 == entry.pieces.count();
        self.current = if entry.submitted { Current::None } else { Current::Write(place, piece + 1) };
        self.pieces += 1;
        shared.places_taken += 1;
        shared.arrived.push_back(Arrived {
            connection: self.slot,
            token: token(self.slot, place, piece),
            volume: self.volume,
            fua: entry.request.flags.force_unit_access(),
            piece: std::mem::take(&mut self.incoming),
        });
        if !self.is_large {
            self.spans.shrink_to(FEW_BLOCKS);
        }
        None
    }

    /// Returns true if the engine has every earlier request of the connection, since it takes them in order. If a piece of a write still waits, submits the
    /// received pieces of all connections first, as far as the engine has space.
    fn is_next(&self, shared: &mut Shared, core: &mut Core) -> bool {
        let waits = |shared: &Shared| shared.arrived.iter().any(|arrived| arrived.connection == self.slot);
        !waits(shared) || shared.submit_arrived(usize::MAX, core) && !waits(shared)
    }

    fn submit(
        &mut self,
        token: u64,
        request: &Request,
        (offset, length): (u64, u64),
        operation: Operation<'_>,
        shared: &mut Shared,
        core: &mut Core,
    ) {
        let fua = request.flags.force_unit_access();
        self.pieces += 1;
        shared.places_taken += 1;
        let submit = Submit { token, volume: self.volume, offset, length, fua, operation };
        core.engine.handle(core.now, Event::Submit(submit));
    }

    /// Ends the connection because the server stops: refuses a handshake; of a client's requests takes only the one that is coming in.
    pub fn leave(&mut self, now: Nanos) {
        if self.session.is_in_handshake() {
            self.session.shut_down();
        } else if self.state == State::Open {
            self.drain(now);
        }
    }

    /// Ends the connection as [`Connection::leave`] does, without waiting for its client: bytes that the client sends from now on are not received.
    pub fn part(&mut self, now: Nanos) {
        self.leave(now);
        let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Read);
    }

    /// Takes no more requests; it is closed when its replies have left.
    fn drain(&mut self, now: Nanos) {
        self.state = State::Draining;
        self.deadline = None;
        self.last_progress = now;
    }

    /// Makes it dead, and shuts its socket down so that the kernel's operations on it end.
    pub fn kill(&mut self, end: End) {
        if self.state != State::Dead {
            self.state = State::Dead;
            self.end = Some(end);
            let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both);
        }
    }

    /// Returns the buffers of the piece that was being received to the engine, and returns the place of the request that was being received. Call it only when
    /// the kernel no longer uses its memory.
    pub fn abandon(&mut self, core: &mut Core) -> Option<u32> {
        for input in self.incoming.inputs.drain(..) {
            core.engine.return_buffer(input.buffer);
        }
        match std::mem::replace(&mut self.current, Current::None) {
            Current::None => None,
            Current::Plain(place) | Current::Read(place, _) | Current::Write(place, _) => Some(place),
        }
    }
}
