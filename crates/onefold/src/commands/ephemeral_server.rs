//! Ephemeral server: a pool for a command that works through NBD, served by the server that has it, or by one that lives as long as the command.
//!
//! Other commands find our own server as any server (`onefold status` shows it). Clients reach it only through a socket in a folder that no other user can
//! enter.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, bail, ensure};

use crate::commands::cli::Target;
use crate::commands::offline;
use crate::commands::serve::{catch_signals, explain_opening, open_to_read};
use crate::flash::device::{self, Given};
use crate::frontend::nbd::listen::{Address, Listener, Purpose as Socket};
use crate::memory::{self, Source};
use crate::operators::command;
use crate::operators::control::{self, Message, Request, Response, Sending};
use crate::operators::selection::Selection;
use crate::operators::service::Manager;
use crate::print::complain;
use crate::progress::Progress;
use crate::reactor::{Opening, Reactor};
use crate::report::status::Report;
use crate::store::backing::{Access, InUse, Store};
use crate::store::owner::{self, Purpose};
use crate::store::place::Sockets;
use crate::store::probe;
use crate::transfer::folder::Folder;

/// Clients of a server of our own: the workers of a transfer.
const CLIENTS: u32 = 32;
/// Polling interval of a command that waits for another one, or for the index.
const PERIOD: Duration = Duration::from_millis(100);
/// Label of the progress display while the index is being filled.
const FILLING: &str = "filling the index";

/// Function that sends a request to the server of the pool, and fails if it is refused.
pub type SendRequest<'a> = &'a dyn Fn(&Request) -> anyhow::Result<()>;

/// Work on a pool, with the plan and the request that precede it.
pub struct Work<'a, Prepare, Job> {
    /// Set when the end is requested: every wait ends then.
    pub stop: &'a AtomicBool,
    /// Names of its volumes and snapshots, which the figures have if they exist.
    pub names: Vec<String>,
    /// True if the pool is written to.
    pub writes: bool,
    /// Makes a plan from the figures, and a request that comes first, if one is needed; an error ends it before anything has changed.
    pub prepare: Prepare,
    /// Function that does the work through NBD, by that plan, and may send requests.
    pub job: Job,
}

/// Carries out the work on the pool, through its server or one of its own, and returns the result with the figures after it.
pub fn with_pool<T, Plan, Prepare, Job>(target: &Target, work: Work<'_, Prepare, Job>) -> anyhow::Result<(T, Report)>
where
    T: Send,
    Plan: Send,
    Prepare: FnOnce(&Report) -> anyhow::Result<(Plan, Option<Request>)>,
    Job: FnOnce(&Address, Plan, SendRequest<'_>) -> anyhow::Result<T> + Send,
{
    let (path, control) = (&target.pool, target.control.as_deref());
    let status = Request::status(Selection::Named(work.names.clone()));
    let (mut waiting, mut attempts) = (Waiting::default(), 0..offline::ATTEMPTS);
    let report = loop {
        match control::call_server_of(path, control, &status)? {
            Some(report) if report.ephemeral => {
                attempts = 0..offline::ATTEMPTS;
                waiting.wait(path, work.stop)?;
            }
            Some(report) => break report,
            None => match open(path, work.writes) {
                Ok(store) => return alone(path, &store, work),
                // A server may have come since none was found.
                Err(error) if error.is::<InUse>() && attempts.next().is_some() => {}
                Err(error) => return Err(error),
            },
        }
    };
    report.require_opened()?;
    let report = if work.writes {
        filled(report, work.stop, || control::call_server_of(path, control, &status))?
    } else {
        report
    };
    let (plan, request) = (work.prepare)(&report)?;
    if let Some(request) = request {
        offline::request(target, &request)?;
    }
    let read = |address: &String| Address::parse(address).map_err(anyhow::Error::msg);
    let mut addresses = report.addresses.iter().map(read).collect::<anyhow::Result<Vec<_>>>()?;
    addresses.sort_by_key(|address| matches!(address, Address::Tcp { .. }));
    let address = addresses.into_iter().next().context("the server of the pool does not say where it listens")?;
    let send = |request: &Request| offline::request(target, request).map(drop);
    let result = (work.job)(&local(address), plan, &send)?;
    let report = control::call_server_of(path, control, &status)?;
    Ok((result, report.context("the server of the pool has stopped")?))
}

fn open(path: &Path, writes: bool) -> anyhow::Result<Store> {
    if writes { Store::open(path, Access::Write) } else { open_to_read(path) }
}

/// Waits for another command of this kind, which has the pool for itself until it is done.
#[derive(Default)]
struct Waiting {
    is_told: bool,
}

impl Waiting {
    /// Waits for a moment. An interruption ends it.
    fn wait(&mut self, path: &Path, stop: &AtomicBool) -> anyhow::Result<()> {
        if !std::mem::replace(&mut self.is_told, true) {
            let who = owner::running_at(path).map_or(String::new(), |owner| format!(" (process {})", owner.pid));
            complain(format_args!("note: another command has {}{who}: waiting for its end", path.display()));
        }
        pause(stop, || format!("while another command had {}", path.display()))
    }
}

/// Waits for a moment before the next poll of another process's work. If the end is requested, fails with the stage that `when` names.
fn pause(stop: &AtomicBool, when: impl FnOnce() -> String) -> anyhow::Result<()> {
    ensure!(!stop.load(Ordering::Relaxed), "interrupted {}", when());
    std::thread::sleep(PERIOD);
    Ok(())
}

/// Waits until the index of a server is filled: blocks written before that are not found, and are stored again. A stop ends the wait.
fn filled(
    mut report: Report,
    stop: &AtomicBool,
    ask: impl Fn() -> anyhow::Result<Option<Report>>,
) -> anyhow::Result<Report> {
    let (mut progress, mut done) = (Progress::new(FILLING, 100), 0);
    while report.index_filled_percent < 100 {
        progress.add(report.index_filled_percent.saturating_sub(done));
        done = report.index_filled_percent;
        pause(stop, || "before anything was written".into())?;
        report = ask()?.context("the server of the pool has stopped")?;
    }
    Ok(report)
}

/// Replaces the wildcard addresses of a server on this machine by the loopback address, which a client here reaches.
fn local(address: Address) -> Address {
    match address {
        Address::Tcp { host, port } if host == "0.0.0.0" => Address::Tcp { host: "127.0.0.1".into(), port },
        Address::Tcp { host, port } if host == "::" => Address::Tcp { host: "::1".into(), port },
        other => other,
    }
}

/// Serves the pool while the work lasts.
fn alone<T, Plan, Prepare, Job>(path: &Path, store: &Store, work: Work<'_, Prepare, Job>) -> anyhow::Result<(T, Report)>
where
    T: Send,
    Plan: Send,
    Prepare: FnOnce(&Report) -> anyhow::Result<(Plan, Option<Request>)>,
    Job: FnOnce(&Address, Plan, SendRequest<'_>) -> anyhow::Result<T> + Send,
{
    let pool_memory = probe::require_pool(store)?.properties.memory();
    let folder = Folder::new()?;
    let address = Address::Unix(folder.join("pool.sock"));
    let Address::Unix(socket) = &address else { bail!("the socket is a Unix socket") };
    let listeners = vec![Listener::bind_unix(socket, Socket::Control)?];
    let (mailbox, sending) = control::mailbox()?;
    // Without a place for it the transfer continues all the same.
    let control = Sockets::of(path).ok().flatten().and_then(|sockets| {
        sockets.prepare().ok()?;
        control::listen(&sockets.control, store.share().ok()?, device::make_for_served, sending.clone()).ok()
    });
    catch_signals(sending.clone())?;
    let memory = memory::given().map_or_else(|| memory::of_pool(pool_memory), |given| (given, Source::CommandLine));
    let purpose = if store.is_writable() { Purpose::Use } else { Purpose::Read };
    let (superblock, owned) = owner::claim(store, purpose)?;
    let opening = Opening {
        store,
        owned,
        parameters: superblock.parameters,
        memory,
        listeners,
        tls: None,
        connections: CLIENTS,
        manager: Manager::none(),
        mailbox,
        read_only: !work.writes,
        ephemeral: true,
        record: None,
        flash: Given::Nothing,
        poll: 0,
    };
    let mut reactor = Reactor::new(opening)?;
    if reactor.open().map_err(|error| explain_opening(path, error))?.is_none() {
        bail!("interrupted before the pool was open");
    }
    if work.writes && !fill(&mut reactor)? {
        reactor.close(None)?;
        bail!("interrupted before anything was written");
    }
    let result = perform(reactor, work, &address, sending);
    drop(control);
    result
}

/// Fills the index of a pool that we have; false if a stop was requested.
fn fill(reactor: &mut Reactor) -> anyhow::Result<bool> {
    let (mut progress, mut done) = (Progress::new(FILLING, 1_000_000), 0);
    while let Some(ppm) = reactor.engine().status().index_filled_ppm {
        progress.add(u64::from(ppm).saturating_sub(done));
        done = u64::from(ppm).max(done);
        if !reactor.work(PERIOD)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn perform<T, Plan, Prepare, Job>(
    mut reactor: Reactor,
    work: Work<'_, Prepare, Job>,
    address: &Address,
    sending: Sending,
) -> anyhow::Result<(T, Report)>
where
    T: Send,
    Plan: Send,
    Prepare: FnOnce(&Report) -> anyhow::Result<(Plan, Option<Request>)>,
    Job: FnOnce(&Address, Plan, SendRequest<'_>) -> anyhow::Result<T> + Send,
{
    let names = Selection::Named(work.names.clone());
    let prepared = (work.prepare)(&reactor.report(&names.volumes(reactor.engine())))
        .and_then(|(plan, request)| request.map_or(Ok(()), |request| ask(&mut reactor, &request)).map(|()| plan));
    let plan = match prepared {
        Ok(plan) => plan,
        Err(error) => {
            reactor.close(None)?;
            return Err(error);
        }
    };
    let job = work.job;
    std::thread::scope(|scope| {
        let job = scope.spawn(move || {
            let end = End(sending);
            let send = |request: &Request| match control::ask(request.clone(), &end.0) {
                Response::Done(_) => Ok(()),
                Response::Failed(reason) | Response::Later(reason) => bail!(reason),
                _ => bail!(control::NOT_UNDERSTOOD),
            };
            job(address, plan, &send)
        });
        // The reactor ends before its clients are waited for, so that they end in every case.
        let served = serve(reactor, &names);
        let result = job.join().unwrap_or_else(|_| Err(anyhow::anyhow!("a defect of this program: please report it")));
        let report = served?;
        Ok((result?, report))
    })
}

/// Asks for the end of serving when the work is done, however it ends.
struct End(Sending);

impl Drop for End {
    fn drop(&mut self) {
        self.0.send(Message::Stop);
    }
}

/// Serves until the work is done, and closes the pool. Returns the figures, with those of its volumes.
fn serve(mut reactor: Reactor, names: &Selection) -> anyhow::Result<Report> {
    reactor.serve("")?;
    let report = reactor.report(&names.volumes(reactor.engine()));
    reactor.drain()?;
    reactor.close(None)?;
    Ok(report)
}

/// Carries out a request on the pool that we have.
fn ask(reactor: &mut Reactor, request: &Request) -> anyhow::Result<()> {
    let wanted = command::wanted(request, reactor.engine(), |_| 0).map_err(anyhow::Error::msg)?;
    reactor.carry_out(&wanted)?.map_err(anyhow::Error::msg)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stop_ends_each_wait_and_says_when() {
        let stop = AtomicBool::new(false);
        assert!(pause(&stop, String::new).is_ok());
        stop.store(true, Ordering::Relaxed);
        let problem = pause(&stop, || "before anything was written".into()).unwrap_err().to_string();
        assert_eq!(problem, "interrupted before anything was written");
        let waited = Waiting { is_told: true }.wait(Path::new("p"), &stop).unwrap_err().to_string();
        assert_eq!(waited, "interrupted while another command had p");
    }
}
