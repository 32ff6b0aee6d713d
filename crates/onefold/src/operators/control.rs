//! Control socket of a server: requests of other processes for its figures, or for an action.
//!
//! One request and one answer per line, both JSON. Threads of their own read and write them, so that parsing never delays the data path; they reach the reactor
//! through a queue and an event counter. Every process that may write to the socket file (mode 0600: its owner) may ask anything.
//!
//! Each request names the file or device that it is about. A server answers for the one that it has open and for no other: a socket is found by a name or by
//! the pool's id, and both can belong to something else by now, or to a copy.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use rustix::event::EventfdFlags;
use serde::{Deserialize, Serialize};
use tracing::warn;

use crate::flash::label::{Attach, Label};
use crate::frontend::nbd::listen::{Listener, Purpose, check_unix_path};
use crate::operators::relocate::{Answer, Ask};
use crate::operators::selection::{Parts, Selection};
use crate::operators::settings::{PoolSettings, VolumeSettings};
use crate::print::complain;
use crate::report::status::Report;
use crate::store::backing::Store;
use crate::store::identity::Identity;
use crate::store::place::Sockets;

/// Size of the longest request, in bytes.
const REQUEST_BYTES_MAX: u64 = 64 << 10;
/// Clients at a time; others wait until one of these has left.
const CLIENTS_MAX: usize = 64;
/// Commands at a time, beside read-only ones; others wait for their turn. So the figures can be seen while commands wait.
const COMMANDS_MAX: usize = 16;
/// Time after which the connection of a silent client is closed; it bounds each read and each write.
const SILENCE: Duration = Duration::from_secs(60);
/// Time that a check for a running server waits for the answer.
const PATIENCE: Duration = Duration::from_secs(1);
/// Time that a stopping server waits for its clients to take their answers.
const LAST_ANSWERS: Duration = Duration::from_secs(1);
/// Time that a command waits for a stopping server to end; it checks again after each `STOP_PERIOD`.
const STOP_PATIENCE: Duration = Duration::from_secs(15);
const STOP_PERIOD: Duration = Duration::from_millis(50);

/// A line to a server.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
struct Line {
    /// The file or device of the request.
    store: Identity,
    /// Request to carry out; `None` only asks if this server has the store.
    request: Option<Request>,
}

/// Reason given for a command that is no longer carried out.
pub const STOPPING: &str = "the server is stopping, and has not ended yet";

/// Error for an answer that does not come from this version.
pub const NOT_UNDERSTOOD: &str = "the server's answer is not understood: is it of another version?";

/// Note shown for a command that is in force and not durable.
const IN_FORCE: &str = "the host file system is full. The command is in force, and durable when there is space; a crash before that undoes it";

/// Request of another process to the server.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(tag = "command", rename_all = "kebab-case")]
pub enum Request {
    /// The figures, and some volumes; with `settle`, when they are exact.
    Status {
        /// Set to wait until no mapping is unmerged and nothing is pending, so that all figures are exact.
        settle: bool,
        /// The volumes.
        #[serde(default)]
        volumes: Selection,
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
        /// Bytes of data that shall fit; 0 together with `metadata_bytes`: as many as fit.
        capacity_bytes: u64,
        /// Bytes of metadata that the pool shall have; 0: as many as the capacity needs.
        #[serde(default)]
        metadata_bytes: u64,
    },
    /// The end of volumes; answered when it is durable.
    DeleteVolumes {
        /// Names of the volumes.
        names: Vec<String>,
        /// Set to delete them although clients are connected; they are disconnected.
        force: bool,
        /// Set to delete their snapshots, too; a volume with snapshots is refused without it.
        #[serde(default)]
        snapshots: bool,
    },
    /// Another size for a volume; answered when it is durable.
    ResizeVolume {
        /// Name of the volume.
        name: String,
        /// The new size.
        size_bytes: u64,
        /// Set to allow a smaller size, which cuts off the blocks beyond it.
        force: bool,
        /// Set to disconnect its clients after that, so that those that connect again see the new size.
        #[serde(default)]
        reconnect: bool,
    },
    /// Snapshots of volumes at one moment; answered when they are durable.
    CreateSnapshots {
        /// Names of the volumes.
        volumes: Vec<String>,
        /// Name of each snapshot, the part behind `@`.
        name: String,
    },
    /// The end of snapshots; answered when it is durable.
    DeleteSnapshots {
        /// Names of the snapshots, `VOLUME@NAME` each.
        names: Vec<String>,
        /// Set to delete them although clients are connected; they are disconnected.
        force: bool,
    },
    /// Hold of snapshots, which are not deleted then, or their release; answered when it is durable.
    HoldSnapshots {
        /// Names of the snapshots, `VOLUME@NAME` each.
        names: Vec<String>,
        /// True to hold them, false to release them.
        held: bool,
    },
    /// Another name for a volume or a snapshot; answered when it is durable.
    RenameVolume {
        /// Name of the volume, or `VOLUME@NAME` of the snapshot.
        name: String,
        /// The new name; that of a snapshot has the same volume.
        new_name: String,
    },
    /// A volume with the content of one of its snapshots again; answered when that is durable.
    RollBack {
        /// Name of the snapshot, `VOLUME@NAME`.
        snapshot: String,
        /// Set to roll the volume back although clients are connected; they are disconnected.
        force: bool,
    },
    /// Volumes with the content of a snapshot; answered when they are durable.
    CloneSnapshot {
        /// Name of the snapshot, `VOLUME@NAME`.
        snapshot: String,
        /// Name of the clone, or with `count` the part before `-1`, `-2` and so on.
        name: String,
        /// Number of clones; none: one, of exactly this name.
        count: Option<u32>,
    },
    /// Other properties of a volume; answered when they are durable.
    SetVolume {
        /// Name of the volume.
        name: String,
        /// Changes of its properties.
        #[serde(flatten)]
        settings: VolumeSettings,
    },
    /// Other properties of the pool; answered when they are durable.
    SetPool(PoolSettings),
    /// Begin, pause or end a scrub; answered when that is durable.
    Scrub {
        /// Action on the scrub.
        action: ScrubAction,
    },
    /// Begin, pause or end a pass that finds all duplicates; answered when that is durable.
    Dedup {
        /// Action on the pass.
        action: DedupAction,
    },
    /// About the profile of device reads; answered at once.
    Relocate(Ask),
    /// About the run of a plan; answered at once.
    Run(RunAction),
    /// Put a flash in front of the store.
    AttachCache(Attach),
    /// Take it away; answered at once.
    DetachCache,
    /// Stop cleanly; answered at once.
    Stop,
}

impl Request {
    /// Asks for the figures, and these volumes.
    pub fn status(volumes: Selection) -> Request {
        Request::Status { settle: false, volumes }
    }

    /// Returns the volumes that the answer has: those that the request names.
    pub fn volumes(&self) -> Selection {
        match self {
            Request::Status { volumes, .. } => volumes.clone(),
            Request::CreateVolume { name, .. } => Selection::one(name),
            Request::ResizeVolume { name, .. } | Request::SetVolume { name, .. } => Selection::one(name),
            Request::CreateSnapshots { volumes, name } => {
                Selection::Named(volumes.iter().map(|volume| format!("{volume}@{name}")).collect())
            }
            Request::HoldSnapshots { names, .. } => Selection::Named(names.clone()),
            Request::RenameVolume { new_name, .. } => Selection::one(new_name),
            Request::RollBack { snapshot, .. } => {
                Selection::one(snapshot.split_once('@').map_or("", |(volume, _)| volume))
            }
            Request::CloneSnapshot { name, count: None, .. } => Selection::one(name),
            Request::CloneSnapshot { .. } | Request::DeleteSnapshots { .. } => Selection::NONE,
            Request::DeleteVolumes { .. } => Selection::NONE,
            Request::Grow { .. } | Request::SetPool(_) | Request::Stop => Selection::NONE,
            Request::Scrub { .. } | Request::Dedup { .. } | Request::Relocate(_) | Request::Run(_) => Selection::NONE,
            Request::AttachCache(_) | Request::DetachCache => Selection::NONE,
        }
    }
}

/// Action on the pass that finds all duplicates.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum DedupAction {
    /// Begin one, or resume the paused one.
    Start,
    /// Rest.
    Pause,
    /// End it.
    Stop,
}

/// Action on the run of a plan of relocation.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(tag = "action", rename_all = "kebab-case")]
pub enum RunAction {
    /// Take some rows of slots into the plan.
    Plan {
        /// True if the rows begin a new plan; false if they follow those sent before.
        begins: bool,
        /// The first slot of each row, and how many.
        extents: Vec<(u64, u64)>,
    },
    /// Begin to run it, or resume the paused run.
    Start,
    /// Rest.
    Pause,
    /// End it.
    Stop,
}

/// Action on the scrub.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum ScrubAction {
    /// Begin one, or resume the paused one.
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
    /// The request was carried out; the figures after it, with the volumes that it names.
    Done(Box<Report>),
    /// The figures, with a part of the volumes: more stand behind a number.
    Part {
        /// The figures.
        report: Box<Report>,
        /// The number behind which the next part begins.
        next: u16,
    },
    /// The request is in force, but not durable: the host has no space. It becomes durable when there is some. The figures after it.
    InForce(Box<Report>),
    /// The request was not carried out.
    Failed(String),
    /// Answer about the profile of device reads.
    Relocate(Answer),
    /// This server has the requested store; the message had no request.
    Here,
    /// The request was not carried out, for this temporary reason: the server stops, or has only begun.
    Later(String),
    /// The request was not carried out: it is about another store than this server has open; the current name of the server's store.
    Elsewhere(String),
}

/// Message from another thread to the reactor.
pub enum Message {
    /// A request, and where the answer goes.
    Request(Box<Request>, Sender<Response>),
    /// A flash to be attached, and where the answer goes.
    Attach(Box<(Store, Label)>, Sender<Response>),
    /// Last failures of automatic snapshots, by volume.
    SnapshotFailures(BTreeMap<String, String>),
    /// A signal asks for a clean stop; a second one, for a stop without a checkpoint.
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

/// Creates an empty queue; fails if no event counter can be made.
pub fn mailbox() -> anyhow::Result<(Mailbox, Sending)> {
    let counter = rustix::event::eventfd(0, EventfdFlags::CLOEXEC).context("cannot make an event counter")?;
    let (sender, receiver) = channel();
    let counter = Arc::new(counter);
    Ok((Mailbox { receiver, counter: counter.clone() }, Sending { sender, counter }))
}

impl Mailbox {
    /// Returns the descriptor of the event counter, which the ring waits on.
    pub fn counter(&self) -> RawFd {
        self.counter.as_raw_fd()
    }

    /// Wakes the thread that waits on the counter, so that it checks again.
    pub fn raise(&self) {
        let _ = rustix::io::write(&self.counter, &1u64.to_ne_bytes());
    }

    /// Takes the next message without waiting; `None` if there is none.
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

/// Listens on the control socket for a server of this store, until the result is dropped.
pub fn listen(path: &Path, store: Store, opens_flash: OpensFlash, sending: Sending) -> anyhow::Result<Control> {
    let commands = Places::new(COMMANDS_MAX);
    let served = Served { identity: store.identity()?, store, opens_flash, commands };
    let listener = Listener::bind_unix(path, Purpose::Control)?;
    let Listener::Unix { socket, .. } = &listener else { bail!("the control socket is a Unix socket") };
    let share = || socket.try_clone().context("cannot share the control socket");
    let (socket, accepting) = (share()?, share()?);
    // One is the listening thread's own.
    let (clients, ends) = (Places::new(CLIENTS_MAX + 1), Arc::new(AtomicBool::new(false)));
    let (places, is_ending) = (clients.clone(), ends.clone());
    std::thread::Builder::new()
        .name("control".into())
        .spawn(move || accept(&accepting, &places, &is_ending, &Arc::new(served), &sending))
        .context("cannot start a thread")?;
    Ok(Control { listener: Some(listener), socket, clients, ends })
}

/// Control socket of a server. It is dropped after the reactor. Clients that have come are told then that the server has ended, and no other client can come: a
/// command that finds no server any more continues without one.
pub struct Control {
    listener: Option<Listener>,
    socket: UnixListener,
    clients: Arc<Places>,
    ends: Arc<AtomicBool>,
}

impl Control {
    /// Returns the address that it listens on, in the syntax of the command line; empty once the listener is closed.
    pub fn address(&self) -> String {
        self.listener.as_ref().map_or_else(String::new, Listener::address)
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        // Its name goes first, and then the clients that found it before are accepted.
        self.listener = None;
        let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both);
        self.clients.wait_until_free(LAST_ANSWERS);
    }
}

/// Counting semaphore: a number of places for threads.
struct Places {
    count: usize,
    taken: Mutex<usize>,
    freed: Condvar,
}

/// A place of the semaphore, which is free again when this is dropped.
struct Place(Arc<Places>);

impl Places {
    fn new(count: usize) -> Arc<Places> {
        Arc::new(Places { count, taken: Mutex::new(0), freed: Condvar::new() })
    }

    /// Waits for a free place and takes it.
    fn take(self: &Arc<Places>) -> Place {
        let taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let is_full = |taken: &mut usize| *taken >= self.count;
        *self.freed.wait_while(taken, is_full).unwrap_or_else(PoisonError::into_inner) += 1;
        Place(self.clone())
    }

    /// Waits until all places are free, up to a time.
    fn wait_until_free(&self, patience: Duration) {
        let taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let is_used = |taken: &mut usize| *taken > 0;
        drop(self.freed.wait_timeout_while(taken, patience, is_used).unwrap_or_else(PoisonError::into_inner));
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        *self.0.taken.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        self.0.freed.notify_all();
    }
}

/// Function that opens a flash for the pool in a store; its provider knows what may be a flash.
pub type OpensFlash = fn(&Attach, &Store) -> anyhow::Result<(Store, Label)>;

/// Store, and what else a control client's request needs, of a server.
struct Served {
    store: Store,
    opens_flash: OpensFlash,
    identity: Identity,
    commands: Arc<Places>,
}

impl Served {
    /// Returns the refusal for a request that means another store; `None` if it means this one. Further checks that tell stores apart belong here.
    fn refusal(&self, meant: Identity) -> Option<Response> {
        (meant != self.identity).then(|| Response::Elsewhere(self.store.name_now().display().to_string()))
    }
}

fn accept(socket: &UnixListener, clients: &Arc<Places>, ends: &AtomicBool, served: &Arc<Served>, sending: &Sending) {
    let _own = clients.take();
    loop {
        let place = clients.take();
        let client = match socket.accept() {
            Ok((client, _)) => client,
            // All clients that had come before the end have been accepted.
            Err(_) if ends.load(Ordering::Relaxed) => return,
            Err(_) => {
                std::thread::sleep(Duration::from_millis(100));
                continue;
            }
        };
        let (served, sending) = (served.clone(), sending.clone());
        let serve = move || {
            // A client that breaks off is its own affair.
            let _ = serve(&client, &served, &sending);
            drop(place);
        };
        if let Err(error) = std::thread::Builder::new().name("control client".into()).spawn(serve) {
            warn!("a command cannot be answered: {error}");
        }
    }
}

/// Answers a client's requests until it goes away.
fn serve(client: &UnixStream, served: &Served, sending: &Sending) -> io::Result<()> {
    client.set_read_timeout(Some(SILENCE))?;
    client.set_write_timeout(Some(SILENCE))?;
    let mut reader = BufReader::new(client);
    loop {
        let mut line = String::new();
        if (&mut reader).take(REQUEST_BYTES_MAX).read_line(&mut line)? == 0 {
            return Ok(());
        }
        let response = match serde_json::from_str(&line) {
            Ok(Line { store, request }) => match (served.refusal(store), request) {
                (Some(refusal), _) => refusal,
                (None, Some(Request::AttachCache(wanted))) => attach(&wanted, served, sending),
                (None, Some(request)) => {
                    let _turn = (!only_looks(&request)).then(|| served.commands.take());
                    ask(request, sending)
                }
                (None, None) => Response::Here,
            },
            Err(error) => Response::Failed(format!("this is no request ({error}): is the server of another version?")),
        };
        answer(client, &response)?;
        if !line.ends_with('\n') {
            return Ok(());
        }
    }
}

/// Returns true if a request is answered at once, independent of the state of the pool.
fn only_looks(request: &Request) -> bool {
    matches!(request, Request::Status { settle: false, .. } | Request::Stop | Request::Relocate(_))
}

/// Asks the reactor, and waits for its answer.
pub fn ask(request: Request, sending: &Sending) -> Response {
    tell(|answer| Message::Request(Box::new(request), answer), sending)
}

/// Opens a flash, which may take its time, and hands it to the reactor.
fn attach(wanted: &Attach, served: &Served, sending: &Sending) -> Response {
    match (served.opens_flash)(wanted, &served.store) {
        Ok(flash) => tell(|answer| Message::Attach(Box::new(flash), answer), sending),
        Err(error) => Response::Failed(format!("{error:#}")),
    }
}

fn tell(message: impl FnOnce(Sender<Response>) -> Message, sending: &Sending) -> Response {
    let (sender, receiver) = channel();
    let gone = || Response::Later(STOPPING.into());
    if !sending.send(message(sender)) {
        return gone();
    }
    receiver.recv().unwrap_or_else(|_| gone())
}

fn answer(mut client: &UnixStream, response: &Response) -> io::Result<()> {
    let mut line = serde_json::to_vec(response)?;
    line.push(b'\n');
    client.write_all(&line)
}

/// Asks the server of a pool; `None` if no server is found that has it. With the path of a control socket, only that server. An answer in parts is joined.
pub fn call_server_of(pool: &Path, control: Option<&Path>, request: &Request) -> anyhow::Result<Option<Report>> {
    match ask_in_parts(request, |request| ask_server_of(pool, control, request))? {
        Some(Response::Done(report)) => Ok(Some(*report)),
        Some(Response::InForce(report)) => {
            complain(format_args!("note: {}: {IN_FORCE}", pool.display()));
            Ok(Some(*report))
        }
        Some(_) => bail!(NOT_UNDERSTOOD),
        None => Ok(None),
    }
}

/// Sends a request with `ask`. If the answer is a part of the volumes, asks for the others as well, and joins them: the figures are those of the last answer.
pub fn ask_in_parts<E>(
    request: &Request,
    mut ask: impl FnMut(&Request) -> Result<Option<Response>, E>,
) -> Result<Option<Response>, E> {
    let settle = matches!(request, Request::Status { settle: true, .. });
    let mut parts = Parts::default();
    let mut answer = ask(request)?;
    while let Some(Response::Part { report, next }) = answer {
        let Some(volumes) = parts.add(request.volumes(), report.volumes, next) else {
            return Ok(Some(Response::Failed(NOT_UNDERSTOOD.into())));
        };
        answer = ask(&Request::Status { settle, volumes })?;
    }
    if let Some(Response::Done(report)) = &mut answer {
        report.volumes = parts.join(std::mem::take(&mut report.volumes));
    }
    Ok(answer)
}

/// Asks as [`call_server_of`] does; the answer may be something else than figures. Waits for the end of a server that stops.
pub fn ask_server_of(pool: &Path, control: Option<&Path>, request: &Request) -> anyhow::Result<Option<Response>> {
    let began = Instant::now();
    loop {
        match ask_once(pool, control, request)? {
            Some(Response::Later(_)) if began.elapsed() < STOP_PATIENCE => std::thread::sleep(STOP_PERIOD),
            Some(Response::Later(reason)) => {
                bail!("{reason}. This command has waited for {} s: try again", STOP_PATIENCE.as_secs())
            }
            answer => return Ok(answer),
        }
    }
}

fn ask_once(pool: &Path, control: Option<&Path>, request: &Request) -> anyhow::Result<Option<Response>> {
    let (paths, is_named) = match control {
        Some(path) => {
            check_unix_path(path, "--control PATH")?;
            (vec![path.to_path_buf()], true)
        }
        None => (usual_sockets(pool)?, false),
    };
    let store = if pool.exists() { Identity::at(pool)? } else { return Ok(None) };
    for path in paths {
        match call(&path, &Line { store, request: Some(request.clone()) }, None)? {
            Some(Response::Failed(error)) => bail!(error),
            Some(Response::Elsewhere(served)) if is_named => bail!(
                "the server at {} serves {served}, not {}: name that pool, or the control socket of the other server",
                path.display(),
                pool.display()
            ),
            // A server of another store is not ours.
            Some(Response::Here | Response::Elsewhere(_)) | None => {}
            answer => return Ok(answer),
        }
    }
    Ok(None)
}

/// Lists the paths where the control socket of the pool's server may be; a server with this process's environment comes first.
fn usual_sockets(pool: &Path) -> anyhow::Result<Vec<PathBuf>> {
    Ok(Sockets::candidates(pool)?.into_iter().map(|sockets| sockets.control).collect())
}

/// Server found at the usual sockets of a pool.
pub enum Found {
    /// No server.
    Nobody,
    /// A server of the pool, or one that does not name its store.
    Server,
    /// A server of another store: its socket, and that store.
    Other(PathBuf, String),
}

/// Looks for the server of a pool, without waiting for one that does not answer.
pub fn find_server_of(pool: &Path) -> Found {
    let mut found = Found::Nobody;
    let Ok(store) = Identity::at(pool) else { return found };
    for path in usual_sockets(pool).into_iter().flatten() {
        match call(&path, &Line { store, request: None }, Some(PATIENCE)) {
            Ok(None) => {}
            Ok(Some(Response::Elsewhere(served))) => found = Found::Other(path, served),
            Ok(Some(_)) | Err(_) => return Found::Server,
        }
    }
    found
}

/// Asks the server behind a control socket; `None` if there is no server.
fn call(path: &Path, line: &Line, patience: Option<Duration>) -> anyhow::Result<Option<Response>> {
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
    socket.set_read_timeout(patience).with_context(lost)?;
    let mut bytes = serde_json::to_vec(line).context("cannot write the request")?;
    bytes.push(b'\n');
    socket.write_all(&bytes).with_context(lost)?;
    let mut text = String::new();
    BufReader::new(socket).read_line(&mut text).with_context(lost)?;
    if text.is_empty() {
        let only_looks = line.request.as_ref().is_none_or(only_looks);
        anyhow::ensure!(only_looks, lost());
        // Nothing can have been done: a second attempt finds out the state of the server.
        return Ok(Some(Response::Later(lost())));
    }
    serde_json::from_str(&text).map(Some).context(NOT_UNDERSTOOD)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn requests_and_answers_cross_the_socket() {
        let path = std::env::temp_dir().join(format!("onefold-control-{}", std::process::id()));
        let (pool, other) = (path.with_extension("pool"), path.with_extension("other"));
        let _ = std::fs::remove_file(&path);
        for file in [&pool, &other] {
            std::fs::write(file, "").unwrap();
        }
        let ask = |pool: &Path, request: &Request| call_server_of(pool, Some(&path), request);
        assert!(ask(&pool, &Request::Stop).unwrap().is_none(), "no server, no answer");
        let (mailbox, sending) = mailbox().unwrap();
        let store = Store::open(&pool, crate::store::backing::Access::Read).unwrap();
        let listener = listen(&path, store, |_, _| bail!("no flash here"), sending).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let reactor = std::thread::spawn(move || {
            for _ in 0..2 {
                let mut raised = [0; 8];
                rustix::io::read(&mailbox.counter, &mut raised).unwrap();
                let Some(Message::Request(request, answer)) = mailbox.next() else { panic!("no request") };
                answer.send(Response::Failed(format!("{request:?}"))).unwrap();
            }
        });
        let error = ask(&pool, &Request::Status { settle: true, volumes: Selection::ALL }).unwrap_err().to_string();
        assert_eq!(error, "Status { settle: true, volumes: Behind(0) }");
        let mut raw = UnixStream::connect(&path).unwrap();
        let line = |pool: &Path, request: Option<Request>| {
            serde_json::to_string(&Line { store: Identity::at(pool).unwrap(), request }).unwrap() + "\n"
        };
        // A request of an older command names no store.
        raw.write_all(b"nonsense\n{\"command\":\"stop\"}\n").unwrap();
        for (pool, request) in
            [(&pool, Some(Request::Stop)), (&pool, None), (&other, Some(Request::Stop)), (&other, None)]
        {
            raw.write_all(line(pool, request).as_bytes()).unwrap();
        }
        let answers: Vec<String> = BufReader::new(&raw).lines().take(6).map(Result::unwrap).collect();
        assert!(answers[..2].iter().all(|answer| answer.contains("no request")), "{answers:?}");
        assert_eq!(answers[2..4], [r#"{"failed":"Stop"}"#, r#""here""#]);
        let served = pool.canonicalize().unwrap();
        assert!(answers[4..].iter().all(|answer| *answer == format!(r#"{{"elsewhere":"{}"}}"#, served.display())));
        let error = ask(&other, &Request::Stop).unwrap_err().to_string();
        assert!(error.contains(served.to_str().unwrap()) && error.contains(other.to_str().unwrap()), "{error}");
        reactor.join().unwrap();
        drop(listener);
        assert!(!path.exists());
        for file in [&pool, &other] {
            std::fs::remove_file(file).unwrap();
        }
    }
}
