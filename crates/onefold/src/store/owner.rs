//! Ownership of a pool, recorded in the pool. An open store is locked (`backing`), and that guards against a second opening of the same file or device. By
//! another path (a loop device over the file, a device mapped onto the device, another host's path to the disk) there is another lock, or none. So an owner is
//! written to the pool itself, before the first other write; the engine looks at it again (engine/src/pool/owner.rs).
//!
//! ```text
//! judge      no owner, or one that is certainly dead: continue. An owner that lives, or may: refused, with its name and the remedy
//! write      our record, with a fresh nonce; made durable
//! wait       longer than any process takes from judging to writing, for those that have judged before our record was there
//! read back  it is still ours: so no other record has replaced it, and every later process finds it
//! release    at the end: the record says that the pool has no owner
//! ```
//!
//! Judging and writing are one step on one host, by a lock of its own ([`Gate`]); the waiting is for all that do not share it.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail};
use engine::{Opened, Owner, Parameters, Superblock};
use rustix::fs::{FlockOperation, OFlags, flock};
use tracing::warn;

use crate::io::arena::BLOCK;
use crate::io::input;
use crate::print::outside;
use crate::report::status::show_date;
use crate::store::backing::Store;
use crate::store::host::{self, Host};
use crate::store::probe;

/// Shortest wait before a record is read back.
const SETTLING: Duration = Duration::from_millis(20);
/// Wait before a record is read back, in multiples of the time that judging and writing took: others have the same disk.
const SETTLING_TIMES: u32 = 4;
/// Time to try for the lock, and to wait for the writes of a dead process to end.
const PATIENCE: Duration = Duration::from_secs(15);
/// Interval of the attempts at the lock and of the checks for these writes.
const PERIOD: Duration = Duration::from_millis(20);
/// Directory of the lock: everybody may make files there, and services that have no other directory in common have this one.
const GATES: &str = "/dev/shm";

/// True if the command line says that the owner of another host, or of another container, is gone. Set once, before a pool is opened.
static TAKES_OVER: AtomicBool = AtomicBool::new(false);

/// Counts as gone, from here on, each owner of which no process here can know whether it lives.
pub fn take_over() {
    TAKES_OVER.store(true, Ordering::Relaxed);
}

/// Purpose of opening a pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// Nothing is written.
    Read,
    /// It is served, or a command changes it: written, unless it has failed.
    Use,
    /// It is written also if it has failed.
    Repair,
}

/// A pool that is ours, until it is released.
pub struct Owned {
    store: Store,
    parameters: Parameters,
    owner: Owner,
    /// True while all writes have gone through [`Store`]: the pool can be released at any time.
    is_quiet: bool,
}

impl Owned {
    /// Returns the nonce that the owner's record holds as long as the pool is ours.
    pub fn nonce(&self) -> [u8; 16] {
        self.owner.nonce
    }

    /// Writes may be in flight from here on: only who knows that they have ended releases it.
    pub fn begins_to_write(&mut self) {
        self.is_quiet = false;
    }

    /// Describes the process that has taken the pool over from us, for a message.
    pub fn who_took_over(&self) -> String {
        let path = self.store.path().display();
        let taker = match read(&self.store, &self.parameters) {
            Ok(Some(owner)) if owner.released => format!("{}, and was closed there since", describe(&owner)),
            Ok(Some(owner)) => describe(&owner),
            Ok(None) | Err(_) => "somebody who cannot be told any more".into(),
        };
        format!(
            "{path} was taken over by {taker}. This process writes nothing more to it; its writes after the takeover may be lost"
        )
    }

    /// Writes into the owner's record that the pool is released, so that another host can open it without `--take-over`.
    pub fn release(&mut self) {
        self.is_quiet = false;
        let _gate = Gate::enter(&self.parameters);
        let result = (|| {
            match read(&self.store, &self.parameters)? {
                Some(owner) if owner.nonce == self.owner.nonce => {}
                // It is another's, or the pool is another one by now.
                _ => return Ok(()),
            }
            write(&self.store, &self.parameters, &Owner { released: true, ..self.owner.clone() })?;
            sync(&self.store)
        })();
        if let Err(error) = result {
            let path = self.store.path().display();
            warn!("{path} still says that this process has it ({error:#}): another host needs --take-over to open it");
        }
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        if self.is_quiet {
            self.release();
        }
    }
}

/// Finds the pool of a store, and makes it ours if it is to be written. Refuses one that another has.
pub fn claim(store: &Store, purpose: Purpose) -> anyhow::Result<(Superblock, Option<Owned>)> {
    let superblock = probe::require_pool(store)?;
    let parameters = superblock.parameters;
    if purpose == Purpose::Read || purpose == Purpose::Use && superblock.failed.is_some() {
        judged(store, &parameters, &record(store)?)?;
        return Ok((superblock, None));
    }
    let owned = acquire(store, &parameters)?;
    // Until it was ours, another process may have changed it.
    let superblock = probe::require_pool(store)?;
    if superblock.parameters.id != parameters.id {
        bail!("{} became another pool while it was being opened: try again", store.path().display());
    }
    Ok((superblock, Some(owned)))
}

/// Makes a pool ours.
pub fn acquire(store: &Store, parameters: &Parameters) -> anyhow::Result<Owned> {
    let path = store.path().display();
    let owner = record(store)?;
    let (taken_from, until) = {
        let _gate = Gate::enter(parameters);
        let (mut found, mut is_taken) = judged(store, parameters, &owner)?;
        // That may have taken long. From here to the write it may not.
        let begun = loop {
            let begun = Instant::now();
            if readable(store, parameters)? == found {
                break begun;
            }
            (found, is_taken) = judged(store, parameters, &owner)?;
        };
        write(store, parameters, &owner)?;
        let waiting = SETTLING.max(SETTLING_TIMES * begun.elapsed());
        let until = Instant::now() + waiting;
        sync(store)?;
        (found.filter(|_| is_taken), until)
    };
    std::thread::sleep(until.saturating_duration_since(Instant::now()));
    match read(store, parameters)? {
        Some(found) if found.nonce == owner.nonce => {}
        Some(found) if !found.released => bail!("{}", refusal(store, &found, &OwnerState::Overtook)),
        _ => bail!("{path} was opened by somebody else at the same time: try again"),
    }
    if let Some(former) = taken_from {
        warn!("{path} is taken over from {}", describe(&former));
    }
    Ok(Owned { store: store.share()?, parameters: *parameters, owner, is_quiet: true })
}

/// Reads the record and judges its owner: true if the pool is taken over from it. Fails if the pool may not be opened.
fn judged(store: &Store, parameters: &Parameters, ours: &Owner) -> anyhow::Result<(Option<Owner>, bool)> {
    let found = readable(store, parameters)?;
    let is_taken = match found.as_ref().filter(|owner| !owner.released) {
        Some(owner) => judge(store, owner, ours)?,
        None => false,
    };
    Ok((found, is_taken))
}

/// Returns the owner of the pool at `path` if it is a process of this host that still runs. Takes no lock.
pub fn running_at(path: &Path) -> Option<Owner> {
    let us = Host::current();
    let owner = owner_of(path).ok().flatten()?;
    let is_here = owner.boot == us.boot && us.boot != [0; 16] && owner.pid_namespace == us.pid_namespace;
    (is_here && host::is_running(owner.pid, owner.started)).then_some(owner)
}

fn owner_of(path: &Path) -> anyhow::Result<Option<Owner>> {
    let Some(parameters) = probe::parameters_without_lock(path)? else { return Ok(None) };
    let file = input::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    let mut block = vec![0; BLOCK];
    let Some(offset) = offset(&parameters) else { return Ok(None) };
    std::os::unix::fs::FileExt::read_exact_at(&file, &mut block, offset)
        .with_context(|| format!("cannot read {}", path.display()))?;
    Ok(Owner::decode(&parameters, &block).filter(|owner| !owner.released))
}

// ---- the record ----

fn offset(parameters: &Parameters) -> Option<u64> {
    parameters.geometry.owner_block().map(|block| block * parameters.geometry.block())
}

fn place(store: &Store, parameters: &Parameters) -> anyhow::Result<u64> {
    offset(parameters).with_context(|| format!("{} has no space for its owner's record", store.path().display()))
}

fn read(store: &Store, parameters: &Parameters) -> anyhow::Result<Option<Owner>> {
    let block = store
        .read(place(store, parameters)?, BLOCK)
        .with_context(|| format!("cannot read the owner of {}", store.path().display()))?;
    Ok(Owner::decode(parameters, block.bytes()))
}

/// Reads the record; `None` also if it cannot be read and the command line says that its owner is gone.
fn readable(store: &Store, parameters: &Parameters) -> anyhow::Result<Option<Owner>> {
    match read(store, parameters) {
        Err(_) if TAKES_OVER.load(Ordering::Relaxed) => Ok(None),
        Err(error) => Err(error.context(format!("if no other process uses it, type:\n  {}\nThe reason", again()))),
        found => found,
    }
}

fn write(store: &Store, parameters: &Parameters, owner: &Owner) -> anyhow::Result<()> {
    let mut block = vec![0; BLOCK];
    owner.encode(parameters, &mut block);
    store
        .write(place(store, parameters)?, &block)
        .with_context(|| format!("cannot write the owner of {}", store.path().display()))
}

fn sync(store: &Store) -> anyhow::Result<()> {
    store.sync().with_context(|| format!("cannot sync {}", store.path().display()))
}

/// Makes the record of this opening, with a new random nonce.
fn record(store: &Store) -> anyhow::Result<Owner> {
    let mut nonce = [0; 16];
    getrandom::fill(&mut nonce).context("the kernel gives no random numbers")?;
    let host = Host::current();
    let path = store.path();
    Ok(Owner {
        nonce,
        released: false,
        host: host.host,
        hardware: host.hardware,
        boot: host.boot,
        pid: host.pid,
        started: host.started,
        pid_namespace: host.pid_namespace,
        opened: identity(store)?,
        taken: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs()),
        host_name: host.name,
        path: path.canonicalize().unwrap_or_else(|_| path.to_path_buf()).display().to_string(),
    })
}

fn identity(store: &Store) -> anyhow::Result<Opened> {
    let stat = std::fs::metadata(format!("/proc/self/fd/{}", store.as_raw_fd()))
        .or_else(|_| std::fs::metadata(store.path()))
        .with_context(|| format!("cannot look at {}", store.path().display()))?;
    let device = if std::os::unix::fs::FileTypeExt::is_block_device(&stat.file_type()) { stat.rdev() } else { 0 };
    Ok(Opened { file_system: stat.dev(), inode: stat.ino(), device })
}

// ---- judging ----

/// State of the owner that the record names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum OwnerState {
    /// It is dead, and has the lock that we have.
    Gone,
    /// Its process is dead; its operations may still be in flight.
    Ended,
    /// Its process is there.
    Runs,
    /// Its process is in another container.
    Hidden,
    /// It is of another host.
    Elsewhere,
    /// It came at the same moment, and its record stands.
    Overtook,
}

/// Returns true if two openings are of one file or device, of which we have the lock.
fn is_same(one: &Opened, other: &Opened) -> bool {
    if one.device != 0 || other.device != 0 { one.device == other.device } else { one == other }
}

fn state(owner: &Owner, ours: &Owner, is_running: impl Fn(u32, u64) -> bool) -> OwnerState {
    let unknown = [0; 16];
    if owner.boot == ours.boot && ours.boot != unknown {
        return match () {
            () if is_same(&owner.opened, &ours.opened) => OwnerState::Gone,
            () if owner.pid_namespace != ours.pid_namespace || ours.pid_namespace == 0 => OwnerState::Hidden,
            () if is_running(owner.pid, owner.started) => OwnerState::Runs,
            () => OwnerState::Ended,
        };
    }
    // A machine and its copy have one id, and two sets of hardware.
    let other_hardware = owner.hardware != ours.hardware && owner.hardware != unknown && ours.hardware != unknown;
    let same_host = owner.host == ours.host && !other_hardware;
    if same_host && owner.boot != unknown && ours.boot != unknown { OwnerState::Gone } else { OwnerState::Elsewhere }
}

/// Lets a pool be opened whose owner is dead, or counts as gone because the command line says so: true then. Else it is refused.
fn judge(store: &Store, owner: &Owner, ours: &Owner) -> anyhow::Result<bool> {
    let state = state(owner, ours, host::is_running);
    match state {
        OwnerState::Gone => Ok(false),
        OwnerState::Ended => {
            let begun = Instant::now();
            while host::is_locked(owner.opened.file_system, owner.opened.inode) {
                if begun.elapsed() > PATIENCE {
                    bail!("{}", refusal(store, owner, &OwnerState::Ended));
                }
                std::thread::sleep(PERIOD);
            }
            Ok(false)
        }
        OwnerState::Hidden | OwnerState::Elsewhere if TAKES_OVER.load(Ordering::Relaxed) => Ok(true),
        _ => bail!("{}", refusal(store, owner, &state)),
    }
}

/// Describes an owner for a message: process, host, path and date.
pub fn describe(owner: &Owner) -> String {
    let Owner { host_name, pid, path, taken, .. } = owner;
    let (host_name, path) = (outside(host_name), outside(path));
    format!("process {pid} on host {host_name}, which opened it as {path} on {}", show_date(*taken))
}

/// Explains that the pool is in use by an owner, with advice for the administrator.
fn refusal(store: &Store, owner: &Owner, state: &OwnerState) -> String {
    let (path, who) = (store.path().display(), describe(owner));
    let (pid, name) = (owner.pid, &owner.host_name);
    let what = match state {
        OwnerState::Runs | OwnerState::Overtook | OwnerState::Gone => format!(
            "It is running on this host: 'onefold status {}' shows its activity. Stop it first, or use the pool through it",
            owner.path
        ),
        OwnerState::Ended => format!(
            "That process has ended, but the kernel still holds {}: writes of it may be in flight, or somebody else has locked it. Look what \
             has it open (fuser {}), and try again",
            owner.path, owner.path
        ),
        OwnerState::Hidden => format!(
            "It is in another container of this host, so whether it still runs cannot be seen from here. Look there; stop it if it does. \
             When you are sure that it has ended, type:\n  {}",
            again()
        ),
        OwnerState::Elsewhere => format!(
            "That is another host than this one. Stop it there: ssh {name} kill {pid}. If {name} cannot be reached, first make certain \
             that it no longer writes to this disk (power it off, or fence it: docs/guide/operate.md), then type:\n  {}",
            again()
        ),
    };
    format!("{path} is in use by {who}. Nothing was written. {what}")
}

/// Quotes the command line of this process with `--take-over` added.
fn again() -> String {
    let mut words: Vec<String> = std::env::args_os().map(|word| quoted(&word.to_string_lossy())).collect();
    words.push("--take-over".into());
    words.join(" ")
}

/// Quotes a word for a shell, if it needs that.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@%+".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.into()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

// ---- the lock ----

/// Lock from judging to writing, for one process of a host at a time. Another process may hold it without end: then the owner is taken without it.
struct Gate(Option<(File, PathBuf)>);

impl Gate {
    fn enter(parameters: &Parameters) -> Gate {
        let path = Path::new(GATES).join(format!("onefold-{:032x}.lock", u128::from_be_bytes(parameters.id)));
        let begun = Instant::now();
        while let Some(file) = open_gate(&path) {
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                // The previous holder has removed the file.
                Ok(()) if !is_at(&file, &path) => {}
                Ok(()) => return Gate(Some((file, path))),
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::WOULDBLOCK) if begun.elapsed() < PATIENCE => std::thread::sleep(PERIOD),
                Err(_) => {
                    warn!("{} is locked by somebody: going on without it", path.display());
                    break;
                }
            }
        }
        Gate(None)
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        if let Some((_, path)) = &self.0 {
            // While it is locked. It stays where another user has made it.
            let _ = std::fs::remove_file(path);
        }
    }
}

fn is_at(file: &File, path: &Path) -> bool {
    let place = |metadata: std::fs::Metadata| (metadata.dev(), metadata.ino());
    file.metadata().is_ok_and(|ours| std::fs::metadata(path).is_ok_and(|theirs| place(ours) == place(theirs)))
}

/// Opens the lock file, and makes it if it is missing.
fn open_gate(path: &Path) -> Option<File> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32;
    for _ in 0..2 {
        match OpenOptions::new().read(true).custom_flags(flags).open(path) {
            Ok(file) => return Some(file),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(_) => return None,
        }
        let made = OpenOptions::new().write(true).create_new(true).mode(0o644).custom_flags(flags).open(path);
        if let Ok(file) = made {
            // A restrictive umask must not keep others out.
            let _ = file.set_permissions(std::fs::Permissions::from_mode(0o644));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ours() -> Owner {
        Owner {
            nonce: [1; 16],
            released: false,
            host: [2; 16],
            hardware: [3; 16],
            boot: [4; 16],
            pid: 5,
            started: 6,
            pid_namespace: 7,
            opened: Opened { file_system: 8, inode: 9, device: 0 },
            taken: 10,
            host_name: "a".into(),
            path: "p".into(),
        }
    }

    #[test]
    fn a_dead_owner_is_followed_and_one_that_may_live_is_not() {
        let elsewhere = Opened { file_system: 5, inode: 9, device: 0x700 };
        let judged = |owner: Owner, runs: bool| state(&owner, &ours(), |_, _| runs);
        // We have the lock on the same file, independent of a process of that number.
        assert_eq!(judged(ours(), true), OwnerState::Gone);
        assert_eq!(judged(Owner { host: [9; 16], ..ours() }, true), OwnerState::Gone);
        let by_another_path = Owner { opened: elsewhere, ..ours() };
        assert_eq!(judged(by_another_path.clone(), true), OwnerState::Runs);
        assert_eq!(judged(by_another_path.clone(), false), OwnerState::Ended);
        assert_eq!(judged(Owner { pid_namespace: 1, ..by_another_path }, false), OwnerState::Hidden);
        // Another boot of this host.
        let before = Owner { boot: [5; 16], opened: elsewhere, ..ours() };
        assert_eq!(judged(before.clone(), true), OwnerState::Gone);
        assert_eq!(judged(Owner { hardware: [0; 16], ..before.clone() }, true), OwnerState::Gone);
        // A copy of this host; another one; one of which nothing is known.
        assert_eq!(judged(Owner { hardware: [8; 16], ..before.clone() }, true), OwnerState::Elsewhere);
        assert_eq!(judged(Owner { host: [8; 16], ..before.clone() }, false), OwnerState::Elsewhere);
        assert_eq!(judged(Owner { boot: [0; 16], ..before }, false), OwnerState::Elsewhere);
    }

    #[test]
    fn two_names_of_one_device_are_one_and_two_devices_are_two() {
        let node = |file_system, device| Opened { file_system, inode: 3, device };
        assert!(is_same(&node(1, 0x701), &node(2, 0x701)));
        assert!(!is_same(&node(1, 0x701), &node(1, 0x702)));
        assert!(!is_same(&node(1, 0), &node(1, 0x702)) && !is_same(&node(1, 0), &node(2, 0)));
    }

    #[test]
    fn what_to_type_can_be_typed() {
        assert_eq!(quoted("/srv/a-b.onefold"), "/srv/a-b.onefold");
        assert_eq!(quoted("it's $HOME"), "'it'\\''s $HOME'");
        assert_eq!(quoted(""), "''");
    }
}
