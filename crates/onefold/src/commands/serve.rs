//! `onefold serve`: opens the pool, serves it, and closes it when asked to stop.

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use engine::{DeviceKind, Geometry, Parameters, Recovered};
use serde::Serialize;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use tracing::{error, info, warn};

use crate::commands::cli::ServeArgs;
use crate::commands::create;
use crate::commands::error_text::explain_control;
use crate::flash::device;
use crate::frontend::nbd::exports::DEFAULT_VOLUME;
use crate::frontend::nbd::listen::{Address, Listener, with_tls};
use crate::frontend::nbd::tls::{Mode, Tls};
use crate::http::Listening;
use crate::io::record;
use crate::log;
use crate::memory::{self, MemoryPartition, Source, TooLittle};
use crate::operators::command::inheritable;
use crate::operators::control::{self, Control, Message, Sending};
use crate::operators::selection::Selection;
use crate::operators::service::{Inherited, Manager};
use crate::operators::{auto_relocate, auto_snapshots};
use crate::print::{print, print_json, shown};
use crate::reactor::{Opening, Reactor};
use crate::report::status::{failure_text, remedy};
use crate::size;
use crate::store::backing::{self, Access, Store};
use crate::store::copy_on_write::{self, Overwriting};
use crate::store::grow;
use crate::store::guard::{self, Allowed};
use crate::store::owner::{self, Purpose};
use crate::store::place::Sockets;
use crate::store::probe;
use crate::version::VERSION;

/// Serves until it is told to stop. Errors before it is ready go to the user of the command; later ones are logged.
pub fn serve(arguments: &ServeArgs, inherited: Vec<Inherited>) -> anyhow::Result<ExitCode> {
    log::start(arguments.log);
    let began = Instant::now();
    let path = &arguments.pool;
    let manager = Manager::from_environment()?;
    info!("onefold {VERSION}: opening the pool {}", path.display());
    let (store, pool_memory) = open_store(arguments)?;
    if !store.is_direct() {
        warn!("the file system of {} has no O_DIRECT: using the page cache", path.display());
    }
    warn_of_copying(&store);
    let Some(sockets) = Sockets::of(path)? else { bail!("{} holds no pool", path.display()) };
    let listens_elsewhere = !inherited.is_empty() || !arguments.listen.is_empty();
    if !listens_elsewhere || arguments.control.is_none() {
        sockets.prepare()?;
    }
    let listeners = listen(arguments, inherited, &sockets)?;
    let tls = start_tls(arguments, &listeners)?;
    let page = arguments.http.as_ref().map(|address| Listening::bind(address, arguments.allow_remote)).transpose()?;
    let pages = page.as_ref().map(Listening::urls).unwrap_or_default();
    let (mailbox, sending) = control::mailbox()?;
    let control_path = arguments.control.as_ref().unwrap_or(&sockets.control);
    refuse_one_for_both(&listeners, control_path)?;
    let control = control::listen(control_path, store.share()?, device::make_for_served, sending.clone())?;
    if let Some(page) = page {
        page.start(path.display().to_string(), sending.clone())?;
    }
    if !arguments.read_only {
        auto_relocate::start(sending.clone())?;
        auto_snapshots::start(sending.clone())?;
    }
    catch_signals(sending)?;
    let (connections, read_only) = (arguments.max_connections, arguments.read_only);
    let memory = arguments.memory.map_or_else(|| memory::of_pool(pool_memory), |memory| (memory, Source::CommandLine));
    if memory.1 != Source::Default {
        memory::warn_of_much(
            memory.0,
            if memory.1 == Source::Pool { "the pool was set to" } else { "--memory asks for" },
        );
    }
    let size = arguments.record_size;
    let record = arguments.record.clone().map(|path| record::Wanted { path, size });
    let purpose = if store.is_writable() { Purpose::Use } else { Purpose::Read };
    let (superblock, owned) = owner::claim(&store, purpose)?;
    let parameters = superblock.parameters;
    let flash = arguments.flash.as_ref().map(|path| {
        device::open(path, device::Pool { store: &store, id: parameters.id }).context("--flash cannot be used")
    });
    let flash = flash.transpose()?.unwrap_or_default();
    let store = &store;
    let poll = arguments.poll * 1000;
    let opening = Opening {
        store,
        owned,
        parameters,
        memory,
        listeners,
        connections,
        tls,
        manager,
        mailbox,
        read_only,
        ephemeral: false,
        record,
        flash,
        poll,
    };
    let mut reactor = Reactor::new(opening)?;
    let recovered = reactor.open().map_err(|error| explain_opening(path, error))?;
    let Some(recovered) = recovered else {
        info!("stopped before the pool was open; nothing is lost, the next start opens it from the beginning");
        return Ok(ExitCode::SUCCESS);
    };
    log_opening(path, &recovered, began.elapsed());
    if let (true, Some(size), None) = (arguments.create, arguments.size, recovered.failed) {
        ensure_default_volume(&mut reactor, path, size)?;
    }
    if let (Some(policy), None) = (&arguments.policy, recovered.failed) {
        set_policy(&mut reactor, policy)?;
    }
    log_start(&reactor, &parameters, &control);
    announce(&reactor, arguments, (control_path, &pages), &sockets);
    let result = run(&mut reactor, arguments);
    let failure = reactor.engine().status().failure;
    // The kernel closes the store, and waiting commands are answered, before the end is reported.
    drop(reactor);
    drop(control);
    Ok(match (result, failure) {
        (Ok(()), None) => {
            info!("{} is closed", path.display());
            ExitCode::SUCCESS
        }
        (Ok(()), Some(failure)) => {
            error!("{} is closed; it has failed: {}. {}", path.display(), failure_text(failure), remedy(failure));
            ExitCode::FAILURE
        }
        (Err(error), _) => {
            error!("{error:#}");
            ExitCode::FAILURE
        }
    })
}

/// Adds the pool's path to an error, and the memory that would suffice if too little was given: its operator decides how much a server takes.
pub fn explain_opening(path: &Path, error: anyhow::Error) -> anyhow::Error {
    let path = path.display();
    match error.downcast_ref::<TooLittle>().and_then(TooLittle::argument) {
        Some(enough) => error.context(format!(
            "{path} cannot be opened with this memory; 'onefold serve {path} --memory {enough}' can, and after a clean stop this \
             memory does again"
        )),
        None => error.context(format!("{path} cannot be opened")),
    }
}

/// Serves clients until the end is requested, then drains requests and closes the pool before the deadline of `--stop-timeout`.
fn run(reactor: &mut Reactor, arguments: &ServeArgs) -> anyhow::Result<()> {
    reactor.serve(&format!("serving {}", arguments.pool.display()))?;
    let deadline = Instant::now() + Duration::from_secs(arguments.stop_timeout);
    reactor.drain()?;
    reactor.close(Some(deadline))
}

fn log_opening(path: &Path, recovered: &Recovered, took: Duration) {
    let (path, took, epoch) = (path.display(), took.as_secs_f64(), recovered.epoch);
    if let Some(failure) = recovered.failed {
        error!(
            "opened {path} in {took:.3} s, to be read only: the pool has failed before ({}); {} records with {} changes are \
             replayed in memory, nothing is written, epoch {epoch}. {}",
            failure_text(failure),
            recovered.records,
            recovered.entries,
            remedy(failure)
        );
    } else if recovered.clean && recovered.records == 0 {
        info!("opened {path} in {took:.3} s: closed cleanly, epoch {epoch}");
    } else {
        info!(
            "opened {path} in {took:.3} s: not closed cleanly, recovered {} records with {} changes, {} blocks redone, \
             epoch {epoch}",
            recovered.records, recovered.entries, recovered.blocks_redone
        );
        if recovered.offline_blocks > 0 {
            info!(
                "{} of these changes were written offline: the next pass looks for their duplicates",
                recovered.offline_blocks
            );
        }
    }
}

/// Logs the pool, its listeners, and the memory that it is served with.
fn log_start(reactor: &Reactor, parameters: &Parameters, control: &Control) {
    let status = reactor.engine().status();
    let MemoryPartition { memory, connections, limits } = reactor.partition();
    let block = |count: u32| size::show(u64::from(count) * u64::from(engine::geometry::BLOCK_SIZE));
    let listeners: Vec<String> = reactor.server().listeners().iter().map(Listener::address).collect();
    info!(
        "serving the pool {:032x}: capacity {}, {} volumes; listening on {}, for commands on {}; at most {} clients",
        u128::from_be_bytes(parameters.id),
        size::show(status.capacity_bytes),
        reactor.engine().volume_count(),
        listeners.join(", "),
        control.address(),
        connections.most
    );
    info!(
        "memory {}: buffers {} (half for writes), metadata pages {}, index {} entries{}, delta {} entries, {} requests, \
         clients {}",
        size::show(*memory),
        block(limits.buffers),
        block(limits.pages),
        limits.index_entries,
        if limits.index_proves(&parameters.geometry) {
            ""
        } else {
            " (few for a pool of this size: hits read summaries)"
        },
        limits.delta_entries,
        limits.requests,
        size::show(connections.memory_bytes())
    );
}

/// Opens the store, or makes it with `--create`; and the memory that the pool is set to.
fn open_store(arguments: &ServeArgs) -> anyhow::Result<(Store, u64)> {
    let path = &arguments.pool;
    if !arguments.create {
        if backing::kind_of(path)?.is_none() {
            bail!(
                "{path} does not exist: 'onefold serve --create --size 10G {path}' makes a pool with one volume and serves it",
                path = path.display()
            );
        }
        let store = if arguments.read_only { open_to_read(path)? } else { Store::open(path, Access::Write)? };
        let superblock = probe::require_pool(&store)?;
        return Ok((store, superblock.properties.memory()));
    }
    let size = arguments.size.context("--create needs --size")?;
    if backing::kind_of(path)?.is_none() {
        let (store, made) = create::create(path, create::geometry_for(size, 0)?, false, DeviceKind::Auto)?;
        say_made(&store, size, &made.geometry);
        return Ok((store, 0));
    }
    let mut store = Store::open(path, Access::Write)?;
    if let probe::Contents::Empty = probe::probe(&store)? {
        guard::check(&store, Allowed::Foreign)?;
        let made = create::fill(&mut store, create::geometry_for(size, 0)?, DeviceKind::Auto)?;
        say_made(&store, size, &made.geometry);
        return Ok((store, 0));
    }
    let superblock = probe::require_pool(&store)?;
    refuse_other_capacity(path, &superblock.parameters.geometry, size)?;
    Ok((store, superblock.properties.memory()))
}

/// Opens a store that is only read, unless its pool has to be recovered first.
pub fn open_to_read(path: &Path) -> anyhow::Result<Store> {
    let store = Store::open(path, Access::Read)?;
    let superblock = probe::require_pool(&store)?;
    if superblock.clean || superblock.failed.is_some() {
        return Ok(store);
    }
    drop(store);
    Store::open(path, Access::Write).with_context(|| {
        format!(
            "{} was not closed cleanly: recovering it means writing to it, also with --read-only. Make it writable, or serve a copy",
            path.display()
        )
    })
}

fn say_made(store: &Store, size: u64, geometry: &Geometry) {
    info!("made the pool {} with a capacity of {}", store.path().display(), size::show(geometry.capacity_bytes()));
    if let Some(rounded) = create::rounding(size, geometry.capacity_bytes()) {
        info!("{rounded}");
    }
    if let Some(note) = grow::short_of_space(store.path(), geometry.total_bytes()) {
        warn!("{note}");
    }
    if copy_on_write::overwriting(store) == Overwriting::SwitchedToInPlace {
        info!("{}", copy_on_write::SWITCHED);
    }
}

/// Warns if the file system overwrites by copying: then overwriting needs space too, and writes fail when it is full.
fn warn_of_copying(store: &Store) {
    if let Overwriting::Elsewhere(name) = copy_on_write::overwriting(store) {
        warn!(
            "{} is on {name}, which copies on write: when the file system is full, writes and flushes fail. Keep space \
             there, or make the pool anew in a file that is written in place (docs/guide/operate.md)",
            store.path().display()
        );
    }
}

fn refuse_other_capacity(path: &Path, geometry: &Geometry, size: u64) -> anyhow::Result<()> {
    let wanted = create::geometry_for(size, 0)?;
    if wanted.capacity_bytes() != geometry.capacity_bytes() {
        bail!(
            "{path} is a pool with a capacity of {} ({} bytes), and --size asks for {} ({size} bytes): leave --create and \
             --size out to serve it as it is, or name another file",
            size::show(geometry.capacity_bytes()),
            geometry.capacity_bytes(),
            size::show(size),
            path = path.display()
        );
    }
    Ok(())
}

/// Makes the volume of `--create` if it is missing; refuses one of another size.
fn ensure_default_volume(reactor: &mut Reactor, path: &Path, size: u64) -> anyhow::Result<()> {
    if let Some(volume) = reactor.engine().volume_named(DEFAULT_VOLUME) {
        if volume.size != size {
            bail!(
                "the volume '{DEFAULT_VOLUME}' of {} has {} ({} bytes), and --size asks for {} ({size} bytes): leave --create \
                 and --size out to serve it as it is",
                path.display(),
                size::show(volume.size),
                volume.size,
                size::show(size)
            );
        }
        return Ok(());
    }
    let command = engine::Command::CreateVolume { name: DEFAULT_VOLUME, size, policy: None };
    reactor.command(command)?.map_err(|error| anyhow::anyhow!("volume '{DEFAULT_VOLUME}': {}", explain_control(error)))
}

/// Sets the pool's policy, unless it is that already.
fn set_policy(reactor: &mut Reactor, policy: &str) -> anyhow::Result<()> {
    let wanted = inheritable(policy).map_err(anyhow::Error::msg)?;
    if reactor.engine().properties().policy() == wanted {
        return Ok(());
    }
    let change = engine::PoolChange { policy: Some(wanted), ..engine::PoolChange::default() };
    reactor
        .command(engine::Command::SetPool(change))?
        .map_err(|error| anyhow::anyhow!("policy={policy}: {}", explain_control(error)))
}

/// Builds the listeners from inherited sockets and `--listen`; the default address is used only if there are neither.
fn listen(arguments: &ServeArgs, inherited: Vec<Inherited>, sockets: &Sockets) -> anyhow::Result<Vec<Listener>> {
    let remote = arguments.allow_remote;
    let mut listeners = Vec::new();
    for inherited in inherited {
        listeners.push(inherited.into_listener(remote)?);
    }
    for address in &arguments.listen {
        listeners.extend(Listener::bind(address, remote)?);
    }
    if listeners.is_empty() {
        listeners.extend(Listener::bind(&Address::Unix(sockets.export.clone()), remote)?);
    }
    Ok(listeners)
}

/// Starts TLS for the listeners on TCP, and warns if they are open to other machines with less than full TLS.
fn start_tls(arguments: &ServeArgs, listeners: &[Listener]) -> anyhow::Result<Option<Tls>> {
    let over_tcp: Vec<String> = listeners.iter().filter(|listener| listener.is_tcp()).map(Listener::address).collect();
    let open = match (arguments.tls, arguments.tls_verify_peer) {
        (Mode::Require, true) => None,
        (Mode::Require, false) => Some(
            "any client that reaches it may read and write all volumes: --tls-verify-peer asks clients for certificates",
        ),
        (Mode::On | Mode::Off, _) => Some(
            "any client that reaches it may read and write all volumes, and nothing is encrypted unless the client asks: see --tls",
        ),
    };
    if let (true, Some(what)) = (arguments.allow_remote && !over_tcp.is_empty(), open) {
        warn!("OPEN TO OTHER MACHINES: {}: {what}", over_tcp.join(", "));
    }
    let Some(folder) = &arguments.tls_certificates else {
        if arguments.tls != Mode::Off {
            bail!(
                "--tls {} needs --tls-certificates FOLDER, with server-cert.pem and server-key.pem in it",
                arguments.tls
            );
        }
        return Ok(None);
    };
    if arguments.tls == Mode::Off {
        bail!(
            "--tls-certificates is given, and --tls is off: add --tls require (or on), or leave the certificates out"
        );
    }
    if over_tcp.is_empty() {
        bail!(
            "--tls is for clients over TCP, and there is no tcp: listener (Unix sockets need none): add --listen tcp:HOST:PORT"
        );
    }
    Tls::start(arguments.tls, folder, arguments.tls_verify_peer).map(Some)
}

/// Refuses a control socket where clients connect.
fn refuse_one_for_both(listeners: &[Listener], control: &Path) -> anyhow::Result<()> {
    let control = std::path::absolute(control).with_context(|| format!("cannot use the path {}", control.display()))?;
    if listeners.iter().any(|listener| matches!(listener, Listener::Unix { path, .. } if *path == control)) {
        bail!(
            "{} cannot be for clients and for commands: give --control another path than --listen",
            control.display()
        );
    }
    Ok(())
}

/// Catches signals, each of which asks for a stop: the first for a clean one, the second for one without the last checkpoint. More signals do not make it
/// faster, and none makes it less safe.
pub fn catch_signals(sending: Sending) -> anyhow::Result<()> {
    let mut caught = vec![SIGINT, SIGTERM];
    if !ignores_hangup() {
        caught.push(SIGHUP);
    }
    let mut signals = signal_hook::iterator::Signals::new(caught).context("cannot catch signals")?;
    let watch = move || {
        for _ in signals.forever() {
            // The reactor may have ended, and the process with it.
            sending.send(Message::Stop);
        }
    };
    std::thread::Builder::new().name("signals".into()).spawn(watch).context("cannot start a thread")?;
    Ok(())
}

/// Returns true if the process was started so that SIGHUP, the end of its terminal, does not end it (nohup).
fn ignores_hangup() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    ignored & (1 << (SIGHUP - 1)) != 0
}

#[derive(Serialize)]
struct Started<'a> {
    version: u32,
    pool: String,
    control: String,
    pages: &'a [String],
    exports: Vec<Export<'a>>,
}

#[derive(Serialize)]
struct Export<'a> {
    name: &'a str,
    size_bytes: u64,
    uris: Vec<String>,
}

/// Says where clients can connect, where the page is, and how commands reach the server where that does not go without saying.
fn announce(reactor: &Reactor, arguments: &ServeArgs, (control, pages): (&Path, &[String]), usual: &Sockets) {
    let volumes = Selection::ALL.volumes(reactor.engine());
    let listeners = reactor.server().listeners();
    let uri = |listener: &Listener, name: &str| match reactor.server().tls() {
        Mode::Require => with_tls(listener.uri(name)),
        Mode::On | Mode::Off => listener.uri(name),
    };
    let uris = |name: &str| listeners.iter().map(|listener| uri(listener, name)).collect::<Vec<_>>();
    let pool = shown(&arguments.pool);
    if arguments.json {
        print_json(&Started {
            version: crate::report::status::VERSION,
            pool: arguments.pool.display().to_string(),
            control: control.display().to_string(),
            pages,
            exports: volumes
                .iter()
                .map(|volume| Export { name: &volume.name, size_bytes: volume.size, uris: uris(&volume.name) })
                .collect(),
        });
        return;
    }
    let capacity = size::show(reactor.engine().status().capacity_bytes);
    let how = if arguments.read_only { " read-only" } else { "" };
    let mut text =
        format!("serving {pool}{how}: capacity {capacity}, memory {}\n", size::show(reactor.partition().memory));
    for volume in &volumes {
        for uri in uris(&volume.name) {
            text.push_str(&format!("  {uri}\n"));
        }
    }
    for url in pages {
        text.push_str(&format!("page:  {url}\n"));
    }
    if arguments.control.is_some() {
        text.push_str(&format!("commands need:  --control {}\n", shown(control)));
    } else if usual.are_in_run_time {
        text.push_str(&format!("commands find:  {}\n", shown(control)));
    }
    match volumes.iter().find(|volume| volume.name == DEFAULT_VOLUME).or(volumes.first()) {
        Some(volume) => {
            let uri = listeners.first().map(|listener| uri(listener, &volume.name)).unwrap_or_default();
            text.push_str(&format!("try:  nbdinfo '{uri}'\n"));
        }
        None => text.push_str(&format!("no volumes yet: onefold volume create {pool} NAME --size SIZE\n")),
    }
    print(format_args!("{text}"));
}
