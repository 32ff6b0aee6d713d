//! Interface to a service manager: messages to it (sd_notify(3)), and the sockets that it hands over (sd_listen_fds(3)).
//!
//! Without `NOTIFY_SOCKET` nothing is sent; without `LISTEN_FDS`, or with a `LISTEN_PID` that is another process, nothing is inherited. A manager that does not
//! read does not delay the server.

use std::ffi::OsString;
use std::net::TcpListener;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use rustix::net::{AddressFamily, SocketType, sockopt};

use crate::frontend::nbd::listen::{Listener, Service, refuse_remote};

/// The first descriptor that is handed over (SD_LISTEN_FDS_START).
const FIRST: i32 = 3;
/// Maximum of inherited descriptors.
const MOST: i32 = 64;
/// Additional time that is requested while an action takes long; requested again after each `EXTENSION_PERIOD`.
const EXTENSION: Duration = Duration::from_secs(30);
const EXTENSION_PERIOD: Duration = Duration::from_secs(5);

/// The service manager, if there is one.
pub struct Manager {
    socket: Option<(UnixDatagram, SocketAddr)>,
    extended: Option<Instant>,
}

impl Manager {
    /// Creates a manager that receives nothing.
    pub fn none() -> Manager {
        Manager { socket: None, extended: None }
    }

    /// Returns the manager that `NOTIFY_SOCKET` names: a path, or with '@' a name in the abstract namespace; without the variable as [`Manager::none`].
    pub fn from_environment() -> anyhow::Result<Manager> {
        match std::env::var_os("NOTIFY_SOCKET") {
            Some(name) if !name.is_empty() => Manager::at(&name),
            _ => Ok(Manager::none()),
        }
    }

    fn at(name: &OsString) -> anyhow::Result<Manager> {
        let address = match name.as_bytes() {
            [b'@', name @ ..] => SocketAddr::from_abstract_name(name),
            [b'/', ..] => SocketAddr::from_pathname(name),
            _ => bail!("NOTIFY_SOCKET is {name:?}: it must begin with '/' or '@'"),
        };
        let address = address.with_context(|| format!("NOTIFY_SOCKET is {name:?}, which is no address of a socket"))?;
        let socket = UnixDatagram::unbound().context("cannot make a socket")?;
        socket.set_nonblocking(true).context("cannot make a socket non-blocking")?;
        Ok(Manager { socket: Some((socket, address)), extended: None })
    }

    /// Reports that clients can connect, with a status line.
    pub fn ready(&self, status: &str) {
        self.tell(&format!("READY=1\nSTATUS={status}"));
    }

    /// Reports the present activity, on one line.
    pub fn status(&self, status: &str) {
        self.tell(&format!("STATUS={status}"));
    }

    /// Reports that the server has begun to stop.
    pub fn stopping(&self) {
        self.tell("STOPPING=1");
    }

    /// Asks for more time for an action that takes long, at most once in each `EXTENSION_PERIOD`.
    pub fn extend(&mut self) {
        if self.extended.is_none_or(|before| before.elapsed() >= EXTENSION_PERIOD) {
            self.extended = Some(Instant::now());
            self.tell(&format!("EXTEND_TIMEOUT_USEC={}", EXTENSION.as_micros()));
        }
    }

    fn tell(&self, text: &str) {
        if let Some((socket, address)) = &self.socket {
            // A manager that is gone, or does not read, ends nothing.
            let _ = socket.send_to_addr(text.as_bytes(), address);
        }
    }
}

/// A descriptor that was handed over, with the name that its unit gives it.
pub struct Inherited {
    descriptor: OwnedFd,
    name: String,
}

/// Takes the descriptors that were handed over to this process. Must be called before the process opens anything.
pub fn inherited() -> anyhow::Result<Vec<Inherited>> {
    let count = handed_over(std::process::id(), |name| std::env::var(name).ok())?;
    let names = std::env::var("LISTEN_FDNAMES").unwrap_or_default();
    let mut names = names.split(':');
    (FIRST..FIRST + count)
        .map(|number| {
            let name = names.next().filter(|name| !name.is_empty()).unwrap_or("unknown").to_string();
            Ok(Inherited { descriptor: take(number)?, name })
        })
        .collect()
}

/// Returns the number of descriptors handed over to process `us`: at most [`MOST`]; 0 if they are for another process.
fn handed_over(us: u32, variable: impl Fn(&str) -> Option<String>) -> anyhow::Result<i32> {
    let number = |name: &str| variable(name).map(|text| text.parse::<u32>().map_err(|_| text));
    match number("LISTEN_PID") {
        Some(Ok(pid)) if pid == us => {}
        Some(Ok(_)) | None => return Ok(0),
        Some(Err(text)) => bail!("LISTEN_PID is '{text}', which is not a process"),
    }
    match number("LISTEN_FDS") {
        None => Ok(0),
        Some(Ok(count)) if count <= MOST as u32 => Ok(count as i32),
        Some(Ok(count)) => bail!("LISTEN_FDS hands over {count} descriptors: at most {MOST} are taken"),
        Some(Err(text)) => bail!("LISTEN_FDS is '{text}', which is not a number of descriptors"),
    }
}

/// Takes a descriptor by its number.
#[allow(unsafe_code)]
fn take(number: i32) -> anyhow::Result<OwnedFd> {
    // SAFETY: nothing in this process has opened a descriptor yet (`inherited` is called first), so one of this number has no other owner; if none is open the
    // kernel says so to the one call that is made with it.
    let known = unsafe { BorrowedFd::borrow_raw(number) };
    let flags = rustix::io::fcntl_getfd(known)
        .with_context(|| format!("LISTEN_FDS hands over descriptor {number}, which is not open"))?;
    rustix::io::fcntl_setfd(known, flags | rustix::io::FdFlags::CLOEXEC)
        .with_context(|| format!("cannot use descriptor {number}"))?;
    // SAFETY: as above, and it is open, as just seen. Every number is taken once.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

impl Inherited {
    /// Converts the descriptor into a listener for clients; fails unless it is a listening stream socket, Unix with a path or TCP.
    pub fn into_listener(self, allow_remote: bool) -> anyhow::Result<Listener> {
        let Inherited { descriptor, name } = self;
        let number = descriptor.as_raw_fd();
        let which = format!("descriptor {number} ('{name}') that was handed over");
        let wrong =
            |what: &str| format!("{which} is {what}: hand over listening stream sockets (ListenStream=, Accept=no)");
        let Ok(kind) = sockopt::socket_type(&descriptor) else { bail!(wrong("not a socket")) };
        ensure!(kind == SocketType::STREAM, wrong("not a stream socket"));
        ensure!(sockopt::socket_acceptconn(&descriptor).unwrap_or(false), wrong("a socket that does not listen"));
        // The ring waits for clients; a non-blocking socket would have to be polled.
        let blocks = rustix::fs::fcntl_getfl(&descriptor)
            .and_then(|flags| rustix::fs::fcntl_setfl(&descriptor, flags - rustix::fs::OFlags::NONBLOCK));
        blocks.with_context(|| format!("cannot change {which}"))?;
        match sockopt::socket_domain(descriptor.as_fd()) {
            Ok(AddressFamily::UNIX) => {
                let socket = UnixListener::from(descriptor);
                let address = socket.local_addr().with_context(|| format!("cannot read the address of {which}"))?;
                let Some(path) = address.as_pathname().map(|path| path.to_path_buf()) else {
                    bail!("{which} is a Unix socket without a path, where no NBD client finds it: give it one")
                };
                Ok(Listener::Unix { socket, path, made: None })
            }
            Ok(AddressFamily::INET | AddressFamily::INET6) => {
                let socket = TcpListener::from(descriptor);
                let address = socket.local_addr().with_context(|| format!("cannot read the address of {which}"))?;
                refuse_remote(&which, address.ip(), Service::Nbd, allow_remote)?;
                Ok(Listener::Tcp { socket, address, inherited: true })
            }
            _ => bail!(wrong("neither a Unix nor a TCP socket")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manager_is_told_by_path_and_by_abstract_name() {
        let path = std::env::temp_dir().join(format!("onefold-notify-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let abstract_name = format!("onefold-notify-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&abstract_name).unwrap();
        let sockets = [
            (UnixDatagram::bind(&path).unwrap(), path.clone().into_os_string()),
            (UnixDatagram::bind_addr(&address).unwrap(), OsString::from(format!("@{abstract_name}"))),
        ];
        for (socket, name) in &sockets {
            let mut manager = Manager::at(name).unwrap();
            manager.ready("serving");
            manager.extend();
            manager.extend();
            manager.stopping();
            let next = || {
                let mut bytes = [0; 100];
                let count = socket.recv(&mut bytes).unwrap();
                String::from_utf8(bytes[..count].to_vec()).unwrap()
            };
            assert_eq!(next(), "READY=1\nSTATUS=serving");
            assert_eq!(next(), "EXTEND_TIMEOUT_USEC=30000000", "and not again at once");
            assert_eq!(next(), "STOPPING=1");
        }
        drop(sockets);
        // The socket has no reader any more.
        Manager::at(&path.clone().into_os_string()).unwrap().stopping();
        std::fs::remove_file(&path).unwrap();
        assert!(Manager::at(&"relative".into()).is_err());
        assert!(Manager::at(&OsString::from(format!("/{}", "x".repeat(200)))).is_err());
    }

    proptest::proptest! {
        /// Checks arbitrary values of the environment, which is not ours: each gives a number of descriptors from 0 to [`MOST`], or an error that names the
        /// variable.
        #[test]
        fn any_environment_hands_over_a_few_descriptors_or_is_refused(
            pid in ".{0,4}|-?[0-9]{1,22}|77",
            count in ".{0,4}|-?[0-9]{1,22}",
            name in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..300),
        ) {
            let handed = handed_over(77, |name| Some(if name == "LISTEN_PID" { pid.clone() } else { count.clone() }));
            match handed {
                Ok(count) => proptest::prop_assert!((0..=MOST).contains(&count) && FIRST.checked_add(count).is_some()),
                Err(error) => proptest::prop_assert!(error.to_string().contains("LISTEN_")),
            }
            let name: OsString = std::os::unix::ffi::OsStringExt::from_vec(name);
            if let Err(error) = Manager::at(&name) {
                proptest::prop_assert!(error.to_string().contains("NOTIFY_SOCKET"));
            }
        }
    }

    #[test]
    fn what_is_no_listening_stream_socket_is_refused() {
        let refusal = |descriptor: OwnedFd| {
            let inherited = Inherited { descriptor, name: "disk".into() };
            inherited.into_listener(false).unwrap_err().to_string()
        };
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(refusal(file.into()).contains("'disk') that was handed over is not a socket"));
        assert!(refusal(UnixDatagram::unbound().unwrap().into()).contains("not a stream socket"));
        let (one, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        assert!(refusal(one.into()).contains("does not listen"));
        let everywhere = TcpListener::bind("0.0.0.0:0").unwrap();
        assert!(refusal(everywhere.into()).contains("--allow-remote"));
        let here = TcpListener::bind("127.0.0.1:0").unwrap();
        here.set_nonblocking(true).unwrap();
        let inherited = Inherited { descriptor: here.into(), name: String::new() };
        assert!(inherited.into_listener(false).unwrap().is_tcp());
    }
}
