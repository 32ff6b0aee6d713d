//! The control socket: how other processes ask a serving one for its figures, or to do something.
//!
//! One request and one answer per line, both JSON. Threads of their own read and write them, so that parsing never delays
//! the data path; they reach the reactor through a queue and an event counter. Whoever may write to the socket file (mode
//! 0600: its owner) may ask anything.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use anyhow::{Context, bail};
use rustix::event::EventfdFlags;
use serde::{Deserialize, Serialize};

use crate::listen::Listener;
use crate::place::Sockets;
use crate::status::Report;

/// How much something may take.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "snake_case")]
pub enum Budget {
    /// What goes without saying.
    Default,
    /// So many bytes; 0: nothing.
    Bytes(u64),
}

impl Budget {
    /// As the engine takes it.
    pub fn bytes(self) -> Option<u64> {
        match self {
            Budget::Default => None,
            Budget::Bytes(bytes) => Some(bytes),
        }
    }
}

/// The longest request.
const REQUEST_BYTES_MAX: u64 = 64 << 10;
/// Clients at a time.
const CLIENTS_MAX: usize = 16;
/// How long a client may be silent.
const SILENCE: Duration = Duration::from_secs(60);

/// Who may connect: the owner.
const MODE: u32 = 0o600;

/// What can be asked.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(tag = "command", rename_all = "kebab-case")]
pub enum Request {
    /// The figures; with `settle`, when they are exact.
    Status {
        /// Whether to wait.
        settle: bool,
    },
    /// A new volume; answered when it is durable.
    CreateVolume {
        /// Its name.
        name: String,
        /// Its size.
        size_bytes: u64,
        /// Its policy, or `inherit`.
        policy: String,
    },
    /// Make the pool larger; answered when that is durable.
    Grow {
        /// How much data shall fit.
        capacity_bytes: u64,
    },
    /// The end of a volume; answered when it is durable.
    DeleteVolume {
        /// Which.
        name: String,
        /// Whether to disconnect its clients.
        force: bool,
    },
    /// Another size for a volume; answered when it is durable.
    ResizeVolume {
        /// Which.
        name: String,
        /// The new size.
        size_bytes: u64,
        /// Whether it may become smaller.
        force: bool,
    },
    /// Other properties of a volume; answered when they are durable.
    SetVolume {
        /// Which.
        name: String,
        /// Its policy, or `inherit`.
        policy: Option<String>,
        /// Whether writes are refused.
        read_only: Option<bool>,
    },
    /// Other properties of the pool; answered when they are durable.
    SetPool(PoolSettings),
    /// Begin, rest or end a scrub; answered when that is durable.
    Scrub {
        /// Which of these.
        action: ScrubAction,
    },
    /// Stop cleanly; answered at once.
    Stop,
}

/// Properties of the pool; what is not there stays as it is.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(default)]
pub struct PoolSettings {
    /// Its policy, or `inherit`.
    pub policy: Option<String>,
    /// Bytes of memory to serve it with, from now on; 0 for the default.
    pub memory_bytes: Option<u64>,
    /// References beyond which a block gets a second copy; 0 for none.
    pub second_copies: Option<u32>,
    /// What replicas for reads may take.
    pub replicas: Option<Budget>,
    /// Which copy the index names of a block that is written again, as it is written on the command line.
    pub index_copy: Option<String>,
    /// How index and read cache share memory, or `default`.
    pub cache: Option<String>,
}

/// What to do about the scrub.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum ScrubAction {
    /// Begin one, or go on with the one that rests.
    Start,
    /// Rest.
    Pause,
    /// End it.
    Stop,
}

/// An answer: figures, or what went wrong.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "kebab-case")]
pub enum Response {
    /// It was done; the figures after it.
    Done(Box<Report>),
    /// It was not done.
    Failed(String),
}

/// What other threads tell the reactor.
pub enum Message {
    /// A request, and where the answer goes.
    Request(Request, Sender<Response>),
    /// A signal asks for a clean stop; once more, for one without a checkpoint.
    Stop,
}

/// The reactor's end of the queue.
pub struct Mailbox {
    receiver: Receiver<Message>,
    counter: Arc<OwnedFd>,
}

/// The other threads' end of the queue.
#[derive(Clone)]
pub struct Sending {
    sender: Sender<Message>,
    counter: Arc<OwnedFd>,
}

/// A new queue.
pub fn mailbox() -> anyhow::Result<(Mailbox, Sending)> {
    let counter = rustix::event::eventfd(0, EventfdFlags::CLOEXEC).context("cannot make an event counter")?;
    let (sender, receiver) = channel();
    let counter = Arc::new(counter);
    Ok((Mailbox { receiver, counter: counter.clone() }, Sending { sender, counter }))
}

impl Mailbox {
    /// The event counter, for the ring.
    pub fn counter(&self) -> RawFd {
        self.counter.as_raw_fd()
    }

    /// The next message, if there is one.
    pub fn next(&self) -> Option<Message> {
        self.receiver.try_recv().ok()
    }
}

impl Sending {
    /// Sends a message and wakes the reactor; false if it is gone.
    pub fn send(&self, message: Message) -> bool {
        self.sender.send(message).is_ok() && rustix::io::write(&self.counter, &1u64.to_ne_bytes()).is_ok()
    }
}

/// Listens on the control socket; the file is removed when the result is dropped.
pub fn listen(path: &Path, sending: Sending) -> anyhow::Result<Listener> {
    let listener = Listener::bind_unix(path, Some(MODE))?;
    let Listener::Unix { socket, .. } = &listener else { bail!("the control socket is a Unix socket") };
    let socket = socket.try_clone().context("cannot share the control socket")?;
    std::thread::Builder::new()
        .name("control".into())
        .spawn(move || accept(&socket, &sending))
        .context("cannot start a thread")?;
    Ok(listener)
}

fn accept(socket: &UnixListener, sending: &Sending) {
    let clients = Arc::new(AtomicUsize::new(0));
    loop {
        let Ok((client, _)) = socket.accept() else {
            std::thread::sleep(Duration::from_millis(100));
            continue;
        };
        if clients.fetch_add(1, Ordering::Relaxed) >= CLIENTS_MAX {
            clients.fetch_sub(1, Ordering::Relaxed);
            let _ = answer(&client, &Response::Failed("too many control clients at once: try again".into()));
            continue;
        }
        let (sending, done) = (sending.clone(), clients.clone());
        let spawned = std::thread::Builder::new().name("control client".into()).spawn(move || {
            // A client that breaks off is its own affair.
            let _ = serve(&client, &sending);
            done.fetch_sub(1, Ordering::Relaxed);
        });
        if spawned.is_err() {
            clients.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// Answers a client's requests until it goes away.
fn serve(client: &UnixStream, sending: &Sending) -> io::Result<()> {
    client.set_read_timeout(Some(SILENCE))?;
    client.set_write_timeout(Some(SILENCE))?;
    let mut reader = BufReader::new(client);
    loop {
        let mut line = String::new();
        if (&mut reader).take(REQUEST_BYTES_MAX).read_line(&mut line)? == 0 {
            return Ok(());
        }
        let response = match serde_json::from_str(&line) {
            Ok(request) => ask(request, sending),
            Err(error) => Response::Failed(format!("this is no request: {error}")),
        };
        answer(client, &response)?;
        if !line.ends_with('\n') {
            return Ok(());
        }
    }
}

fn ask(request: Request, sending: &Sending) -> Response {
    let (sender, receiver) = channel();
    let gone = || Response::Failed("the server is stopping".into());
    if !sending.send(Message::Request(request, sender)) {
        return gone();
    }
    receiver.recv().unwrap_or_else(|_| gone())
}

fn answer(mut client: &UnixStream, response: &Response) -> io::Result<()> {
    let mut line = serde_json::to_vec(response)?;
    line.push(b'\n');
    client.write_all(&line)
}

/// Asks the server of a pool; `None` if there is no server.
pub fn call_server_of(pool: &Path, request: &Request) -> anyhow::Result<Option<Report>> {
    for sockets in Sockets::candidates(pool)? {
        if let Some(report) = call(&sockets.control, request)? {
            return Ok(Some(report));
        }
    }
    Ok(None)
}

/// Whether a server of the pool at `pool` listens.
pub fn is_served(pool: &Path) -> bool {
    let sockets = Sockets::candidates(pool).into_iter().flatten();
    sockets.into_iter().any(|sockets| UnixStream::connect(sockets.control).is_ok())
}

/// Asks the server behind a control socket; `None` if there is no server.
fn call(path: &Path, request: &Request) -> anyhow::Result<Option<Report>> {
    let mut socket = match UnixStream::connect(path) {
        Ok(socket) => socket,
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => {
            return Ok(None);
        }
        // A path too long for a socket: no server can be there.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => return Ok(None),
        Err(error) => {
            return Err(error)
                .with_context(|| format!("cannot ask the server at {} (only its own user may)", path.display()));
        }
    };
    let lost = || format!("the server at {} broke off: is it stopping?", path.display());
    let mut line = serde_json::to_vec(request).context("cannot write the request")?;
    line.push(b'\n');
    socket.write_all(&line).with_context(lost)?;
    let mut text = String::new();
    BufReader::new(socket).read_line(&mut text).with_context(lost)?;
    if text.is_empty() {
        bail!(lost());
    }
    match serde_json::from_str(&text).context("the server's answer is not understood: is it of another version?")? {
        Response::Done(report) => Ok(Some(*report)),
        Response::Failed(error) => bail!(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn requests_and_answers_cross_the_socket() {
        let path = std::env::temp_dir().join(format!("onefold-control-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        assert!(call(&path, &Request::Stop).unwrap().is_none(), "no server, no answer");
        let (mailbox, sending) = mailbox().unwrap();
        let listener = listen(&path, sending).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let reactor = std::thread::spawn(move || {
            for _ in 0..2 {
                let mut raised = [0; 8];
                rustix::io::read(&mailbox.counter, &mut raised).unwrap();
                let Some(Message::Request(request, answer)) = mailbox.next() else { panic!("no request") };
                answer.send(Response::Failed(format!("{request:?}"))).unwrap();
            }
        });
        let error = call(&path, &Request::Status { settle: true }).unwrap_err().to_string();
        assert_eq!(error, "Status { settle: true }");
        let mut raw = UnixStream::connect(&path).unwrap();
        raw.write_all(b"nonsense\n{\"command\":\"stop\"}\n").unwrap();
        let mut lines = BufReader::new(&raw).lines();
        assert!(lines.next().unwrap().unwrap().contains("no request"));
        assert_eq!(lines.next().unwrap().unwrap(), r#"{"failed":"Stop"}"#);
        reactor.join().unwrap();
        drop(listener);
        assert!(!path.exists());
    }
}
