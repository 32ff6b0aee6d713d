//! TLS for clients over TCP, by a relay thread beside the reactor.
//!
//! The protocol begins in the clear. When a client asks for TLS and was promised it, the reactor gives its socket to the relay. It continues with one end of a
//! pair of local sockets: it reads decrypted bytes there, and writes bytes for encryption. So the reactor, its buffers and its turns are the same with TLS and
//! without, and clients without TLS pay nothing.
//!
//! Certificates are files with the names that qemu and nbdkit use; they are read once, at the start. Unix sockets have no TLS: the rights of the file say who
//! may connect.

mod certificate;
mod relay;

use std::fmt;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::Context;
use clap::ValueEnum;
use rustix::event::EventfdFlags;
use rustls::pki_types::UnixTime;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::time_provider::TimeProvider;
use rustls::{RootCertStore, ServerConfig};

use crate::clock;
use relay::Arrival;

/// Clients with TLS at a time. The relay's memory, at most 200 KiB for each, is beside the pool's `--memory`.
pub const CLIENTS_MAX: usize = 128;
/// Number of clients with TLS that may be without an export: in the handshake of TLS, or in that of NBD behind it. When more come, the oldest goes.
pub const HANDSHAKES_MAX: usize = 64;
/// Number of connections in the relay, at most: the clients, and ended connections that it has not closed yet.
const RELAYED_MAX: usize = 2 * CLIENTS_MAX;

/// Time that the relay may take, at the end, to send the reactor's last answers.
const PATIENCE: Duration = Duration::from_secs(2);

/// SHA-256 digest of a client's certificate: set when the handshake is over, if a certificate was requested of the client.
pub type Certificate = Arc<OnceLock<[u8; 32]>>;

/// Use of TLS by clients over TCP: off, allowed or required.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum)]
pub enum Mode {
    /// No TLS
    #[default]
    Off,
    /// TLS for clients that ask for it
    On,
    /// Clients that do not ask for TLS are refused
    Require,
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Mode::Off => "off",
            Mode::On => "on",
            Mode::Require => "require",
        })
    }
}

/// The server's certificate and key, and the authorities whose clients it lets in. Dropping it ends the relay.
pub struct Tls {
    config: Arc<ServerConfig>,
    mode: Mode,
    /// Arrivals for the relay; none when it is to end.
    arrivals: Option<Sender<Arrival>>,
    /// Event counter whose increment wakes the relay.
    wake: Arc<OwnedFd>,
    open: Arc<AtomicUsize>,
    /// Channel on which nothing ever comes; it is disconnected when the relay has ended.
    ended: Receiver<()>,
}

impl Tls {
    /// Reads `server-cert.pem` and `server-key.pem` of `folder`, and `ca-cert.pem` if clients must have a certificate that it has signed.
    /// Starts the relay.
    pub fn start(mode: Mode, folder: &Path, verify_peer: bool) -> anyhow::Result<Tls> {
        let config = Arc::new(configure(folder, verify_peer)?);
        let wake = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .context("cannot make an eventfd")?;
        let wake = Arc::new(wake);
        let (arrivals, arriving) = channel();
        let (alive, ended) = channel();
        let open = Arc::new(AtomicUsize::new(0));
        let relay = relay::Relay::new(arriving, Arc::clone(&wake), Arc::clone(&open));
        let run = move || {
            relay.run();
            drop(alive);
        };
        std::thread::Builder::new().name("tls".into()).spawn(run).context("cannot start a thread")?;
        Ok(Tls { config, mode, arrivals: Some(arrivals), wake, open, ended })
    }

    /// Returns the mode of TLS for clients over TCP.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Returns the protocol's form of the mode, for a connection over TCP.
    pub fn offer(&self) -> nbd::Tls {
        match self.mode {
            Mode::Off => nbd::Tls::Unsupported,
            Mode::On => nbd::Tls::Offered,
            Mode::Require => nbd::Tls::Required,
        }
    }

    /// Gives a client's socket to the relay; returns the one to continue with. `None` if the relay has too many, or the system has no more.
    pub fn secure(&self, socket: OwnedFd, who: String, certificate: Certificate) -> Option<OwnedFd> {
        if self.open.load(Ordering::Relaxed) >= RELAYED_MAX {
            return None;
        }
        let (ours, theirs) = UnixStream::pair().ok()?;
        let arrival = Arrival::new((socket, theirs), Arc::clone(&self.config), who, certificate)?;
        self.open.fetch_add(1, Ordering::Relaxed);
        self.arrivals.as_ref()?.send(arrival).ok()?;
        relay::wake(self.wake.as_fd());
        Some(ours.into())
    }
}

impl Drop for Tls {
    fn drop(&mut self) {
        self.arrivals = None;
        relay::wake(self.wake.as_fd());
        // Either it has ended, or it takes too long: then its clients see the end of the process.
        let (Ok(()) | Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected)) =
            self.ended.recv_timeout(PATIENCE);
    }
}

fn configure(folder: &Path, verify_peer: bool) -> anyhow::Result<ServerConfig> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .context("TLS cannot be set up")?;
    let builder = if verify_peer {
        let path = folder.join("ca-cert.pem");
        let mut roots = RootCertStore::empty();
        for certificate in certificate::read_chain(&path)? {
            roots
                .add(certificate)
                .with_context(|| format!("{} has a certificate that cannot be used", path.display()))?;
        }
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
        builder
            .with_client_cert_verifier(verifier.build().with_context(|| format!("{} cannot be used", path.display()))?)
    } else {
        builder.with_no_client_auth()
    };
    let (chain, key) = (folder.join("server-cert.pem"), folder.join("server-key.pem"));
    let certificates = certificate::read_chain(&chain)?;
    certificate::warn_of_validity(&chain, &certificates);
    let private = certificate::read_key(&key)?;
    let mut config = builder
        .with_single_cert(certificates, private)
        .with_context(|| format!("{} and {} cannot be used together", chain.display(), key.display()))?;
    // Sessions are long: nothing is kept to begin the next one faster.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    config.time_provider = Arc::new(Clock);
    Ok(config)
}

/// Time for the library, also if the system's clock is before 1970, at which the library's own panics.
#[derive(Debug)]
struct Clock;

impl TimeProvider for Clock {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(clock::since_1970()))
    }
}
