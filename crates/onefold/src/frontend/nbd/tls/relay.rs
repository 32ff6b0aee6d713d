//! TLS relay: a thread that encrypts and decrypts between clients' sockets and the reactor's.
//!
//! Back-pressure: nothing is read from one side while the other has not taken the bytes before. So a client has at most one full read in each direction in
//! memory. A client that never reads delays no other: only the call that waits for all sockets blocks.
//!
//! An end is passed on: the client's goes to the reactor behind the last decrypted byte, the reactor's to the client behind the last reply. The reactor's is
//! seen also while the client takes nothing: a client that does not read loses its place soon after the reactor has ended it.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustls::crypto::ring::cipher_suite;
use rustls::{ServerConfig, ServerConnection};
use tracing::{debug, warn};

use crate::frontend::nbd::tls::certificate::explain;
use crate::frontend::nbd::tls::{CLIENTS_MAX, Certificate};
use crate::log::Failures;

/// Bytes of replies that are encrypted at once.
const CHUNK: usize = 64 << 10;

/// Number of rounds of one client before the others have their turn.
const ROUNDS_MAX: u32 = 16;

/// Time that a client may take none of the last replies after the reactor has closed its side.
const LAST_REPLIES: Duration = Duration::from_secs(5);
/// Time that a client may take for all of the last replies.
const LAST_REPLIES_IN_ALL: Duration = Duration::from_secs(30);

/// Wakes the relay by adding 1 to its event counter.
pub fn wake(counter: BorrowedFd<'_>) {
    // It can only fail when the counter is full, and then it wakes.
    let _ = rustix::io::write(counter, &1u64.to_ne_bytes());
}

/// A client that begins TLS.
pub struct Arrival {
    client: TcpStream,
    reactor: UnixStream,
    tls: ServerConnection,
    who: String,
    certificate: Certificate,
}

impl Arrival {
    /// Prepares the sockets and the TLS session of a client; `None` if the system or the library refuses.
    pub fn new(
        (client, reactor): (OwnedFd, UnixStream),
        config: Arc<ServerConfig>,
        who: String,
        certificate: Certificate,
    ) -> Option<Arrival> {
        let client = TcpStream::from(client);
        client.set_nonblocking(true).ok()?;
        reactor.set_nonblocking(true).ok()?;
        let mut tls = ServerConnection::new(config).ok()?;
        // The relay bounds the bytes that it passes to the session at once.
        tls.set_buffer_limit(None);
        Some(Arrival { client, reactor, tls, who, certificate })
    }
}

/// Reason why a client's relay has ended.
enum Ended {
    /// An end without a warning: the connection was closed, or a socket failed.
    Quietly,
    /// An error of TLS: an alert tells the client, the log the operator.
    Refused(String),
}

struct Client {
    arrival: Arrival,
    /// Decrypted bytes, and the number of them that the reactor has taken.
    decrypted: Vec<u8>,
    taken: usize,
    client_ended: bool,
    /// True if everything that the reactor sent before its end has been read.
    reactor_ended: bool,
    /// The reactor's end, which is seen before its last bytes can be read.
    closing: Option<Closing>,
}

/// Time at which the reactor closed its side, and time at which the client last took anything since.
#[derive(Clone, Copy)]
struct Closing {
    since: Instant,
    progress: Instant,
}

impl Closing {
    fn begin() -> Closing {
        let now = Instant::now();
        Closing { since: now, progress: now }
    }

    fn is_late(&self) -> bool {
        self.progress.elapsed() > LAST_REPLIES || self.since.elapsed() > LAST_REPLIES_IN_ALL
    }
}

impl Client {
    /// Returns the events to wait for: at the client's socket, and at the reactor's.
    fn interests(&self) -> (PollFlags, PollFlags) {
        let (mut client, mut reactor) = (PollFlags::empty(), PollFlags::empty());
        let tls = &self.arrival.tls;
        client.set(PollFlags::IN, !self.client_ended && self.decrypted.is_empty());
        client.set(PollFlags::OUT, tls.wants_write());
        reactor.set(PollFlags::OUT, !self.decrypted.is_empty());
        reactor.set(PollFlags::IN, !self.reactor_ended && !tls.wants_write());
        // An end that is known would wake the relay again and again.
        reactor.set(PollFlags::RDHUP, self.closing.is_none());
        (client, reactor)
    }

    /// Returns true if the reactor has ended it and its last replies are no longer waited for. In a handshake there are none.
    fn is_over(&self) -> bool {
        self.closing.is_some_and(|closing| closing.is_late() || self.arrival.tls.is_handshaking())
    }

    /// Moves bytes in both directions as far as it can, within its turn; an error when the client's relay has ended.
    fn go_on(&mut self, chunk: &mut [u8]) -> Result<(), Ended> {
        if self.is_over() {
            return Err(Ended::Quietly);
        }
        for _ in 0..ROUNDS_MAX {
            let moved = [self.pass_to_reactor()?, self.receive(chunk)?, self.take_replies(chunk)?, self.send()?];
            if self.reactor_ended && !self.arrival.tls.wants_write() {
                return Err(Ended::Quietly);
            }
            if !moved.contains(&true) {
                break;
            }
        }
        Ok(())
    }

    fn pass_to_reactor(&mut self) -> Result<bool, Ended> {
        if self.decrypted.is_empty() {
            return Ok(false);
        }
        let Some(count) = done(self.arrival.reactor.write(&self.decrypted[self.taken..]))? else { return Ok(false) };
        self.taken += count;
        if self.taken == self.decrypted.len() {
            // An idle client keeps no memory for this.
            (self.decrypted, self.taken) = (Vec::new(), 0);
            if self.client_ended {
                let _ = self.arrival.reactor.shutdown(Shutdown::Write);
            }
        }
        Ok(true)
    }

    fn receive(&mut self, chunk: &mut [u8]) -> Result<bool, Ended> {
        if self.client_ended || !self.decrypted.is_empty() {
            return Ok(false);
        }
        let Arrival { client, tls, certificate, .. } = &mut self.arrival;
        let Some(count) = done(tls.read_tls(client))? else { return Ok(false) };
        if count == 0 && tls.is_handshaking() {
            return Err(Ended::Refused(
                "the client went away in the handshake: does it trust this server's certificate?".into(),
            ));
        }
        if let Err(error) = tls.process_new_packets() {
            // The alert that tells the client why.
            let _ = tls.write_tls(client);
            return Err(Ended::Refused(explain(&error)));
        }
        // This precedes any later byte of the client to the reactor.
        if let Some(first) = tls.peer_certificates().and_then(|chain| chain.first())
            && certificate.get().is_none()
            && let Some(digest) = sha256(first)
        {
            let _ = certificate.set(digest);
        }
        self.client_ended = count == 0;
        loop {
            match tls.reader().read(chunk) {
                Ok(0) => {
                    self.client_ended = true;
                    break;
                }
                Ok(count) => self.decrypted.extend_from_slice(&chunk[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                // The client went away without a goodbye; the reactor judges what that means.
                Err(_) => {
                    self.client_ended = true;
                    break;
                }
            }
        }
        if self.client_ended && self.decrypted.is_empty() {
            let _ = self.arrival.reactor.shutdown(Shutdown::Write);
        }
        Ok(true)
    }

    fn take_replies(&mut self, chunk: &mut [u8]) -> Result<bool, Ended> {
        let Arrival { reactor, tls, .. } = &mut self.arrival;
        if self.reactor_ended || tls.wants_write() {
            return Ok(false);
        }
        let Some(count) = done(reactor.read(chunk))? else { return Ok(false) };
        if count == 0 {
            self.reactor_ended = true;
            self.closing.get_or_insert_with(Closing::begin);
            tls.send_close_notify();
        } else if tls.writer().write_all(&chunk[..count]).is_err() {
            return Err(Ended::Quietly);
        }
        Ok(true)
    }

    fn send(&mut self) -> Result<bool, Ended> {
        let Arrival { client, tls, .. } = &mut self.arrival;
        let mut moved = false;
        while tls.wants_write() {
            match done(tls.write_tls(client))? {
                Some(_) => moved = true,
                None => break,
            }
        }
        if let (true, Some(closing)) = (moved, &mut self.closing) {
            closing.progress = Instant::now();
        }
        Ok(moved)
    }
}

/// Computes the SHA-256 digest of a certificate, with the library that has checked it.
fn sha256(bytes: &[u8]) -> Option<[u8; 32]> {
    let suite = cipher_suite::TLS13_AES_128_GCM_SHA256.tls13()?;
    suite.common.hash_provider.hash(bytes).as_ref().try_into().ok()
}

/// Returns the bytes that an operation on a nonblocking socket has moved; `None` if it would have to wait.
fn done(result: std::io::Result<usize>) -> Result<Option<usize>, Ended> {
    match result {
        Ok(count) => Ok(Some(count)),
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(None),
        Err(_) => Err(Ended::Quietly),
    }
}

/// The thread's own state.
pub struct Relay {
    arriving: Receiver<Arrival>,
    wake: Arc<OwnedFd>,
    open: Arc<AtomicUsize>,
    clients: Vec<Client>,
    refusals: Failures,
    began: Instant,
}

impl Relay {
    /// Makes a relay without clients. They come through `arriving`, with a count on `wake`; `open` goes down by one for each that has ended.
    pub fn new(arriving: Receiver<Arrival>, wake: Arc<OwnedFd>, open: Arc<AtomicUsize>) -> Relay {
        Relay { arriving, wake, open, clients: Vec::new(), refusals: Failures::default(), began: Instant::now() }
    }

    /// Relays until the sender of arrivals is gone and all clients have ended.
    pub fn run(mut self) {
        let mut chunk = vec![0; CHUNK];
        loop {
            let no_more = self.welcome();
            let mut clients = std::mem::take(&mut self.clients);
            clients.retain_mut(|client| match client.go_on(&mut chunk) {
                Ok(()) => true,
                Err(ended) => self.end(client, &ended),
            });
            self.clients = clients;
            self.make_space();
            if no_more && self.clients.is_empty() {
                return;
            }
            self.wait();
        }
    }

    /// Takes in the clients that have arrived; returns true if no more can come.
    fn welcome(&mut self) -> bool {
        loop {
            match self.arriving.try_recv() {
                Ok(arrival) => {
                    let decrypted = Vec::new();
                    self.clients.push(Client {
                        arrival,
                        decrypted,
                        taken: 0,
                        client_ended: false,
                        reactor_ended: false,
                        closing: None,
                    });
                }
                Err(TryRecvError::Empty) => return false,
                Err(TryRecvError::Disconnected) => return true,
            }
        }
    }

    /// Drops clients that the reactor has ended, the earliest first, while there are more than `CLIENTS_MAX`: their places have been given to
    /// others.
    fn make_space(&mut self) {
        while self.clients.len() > CLIENTS_MAX {
            let ended = self.clients.iter().enumerate().filter_map(|(at, client)| Some((client.closing?.since, at)));
            let Some((_, earliest)) = ended.min() else { return };
            let client = self.clients.remove(earliest);
            self.end(&client, &Ended::Quietly);
        }
    }

    /// Logs the end of a client and lowers the count of open ones; returns false, since the client is not kept.
    fn end(&mut self, client: &Client, ended: &Ended) -> bool {
        let who = &client.arrival.who;
        match ended {
            Ended::Quietly => debug!("{who}: its encrypted connection has ended"),
            Ended::Refused(why) => {
                let now = self.began.elapsed().as_nanos() as u64;
                if let Some(count) = self.refusals.add(now) {
                    warn!("{who} was refused by TLS: {why} (refusal {count} since the start)");
                }
            }
        }
        self.open.fetch_sub(1, Ordering::Relaxed);
        false
    }

    /// Waits until a client can continue. The socket of a client with more work in its turn is ready at once.
    fn wait(&mut self) {
        let mut waited = vec![PollFd::from_borrowed_fd(self.wake.as_fd(), PollFlags::IN)];
        // For each of them but the first, the client whose reactor's socket it is.
        let mut reactors = Vec::new();
        for (at, client) in self.clients.iter().enumerate() {
            let (at_client, at_reactor) = client.interests();
            let sockets = [
                (client.arrival.client.as_fd(), at_client, None),
                (client.arrival.reactor.as_fd(), at_reactor, Some(at)),
            ];
            for (socket, flags, reactor_of) in sockets.into_iter().filter(|(_, flags, _)| !flags.is_empty()) {
                waited.push(PollFd::from_borrowed_fd(socket, flags));
                reactors.push(reactor_of);
            }
        }
        let ends = self.clients.iter().any(|client| client.closing.is_some());
        let second = Timespec { tv_sec: 1, tv_nsec: 0 };
        // An interruption only causes one more check.
        let _ = poll(&mut waited, ends.then_some(&second));
        // A read does not meet the reactor's end while the client takes nothing.
        let has_ended = |socket: &PollFd<'_>| socket.revents().intersects(PollFlags::RDHUP | PollFlags::HUP);
        let looked = waited[1..].iter().zip(reactors);
        let ended: Vec<usize> = looked.filter_map(|(socket, of)| of.filter(|_| has_ended(socket))).collect();
        for at in ended {
            self.clients[at].closing.get_or_insert_with(Closing::begin);
        }
        let mut count = [0; 8];
        let _ = rustix::io::read(&*self.wake, &mut count);
    }
}
